/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the two sides of a sample meet: over TCP they tell each other what an RC connection needs.
 */

#ifndef SAMPLES_TCP_H
#define SAMPLES_TCP_H

#include <err.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connects to @host, or with NULL waits for somebody to connect. */
static inline int tcp_meet(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *list, *ai;
	int fd = -1, one = 1, error;

	error = getaddrinfo(host, port, &hints, &list);
	if (error)
		errx(1, "%s: %s", host ? host : port, gai_strerror(error));
	for (ai = list; ai; ai = ai->ai_next) {
		fd = socket(ai->ai_family, ai->ai_socktype, ai->ai_protocol);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (host ? !connect(fd, ai->ai_addr, ai->ai_addrlen) :
			   !bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, 1))
			break;
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		err(1, host ? "cannot connect to %s port %s" : "cannot listen on %s%s",
		    host ? host : "port ", port);
	freeaddrinfo(list);
	if (!host) {
		int listener = fd;

		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			err(1, "cannot accept");
		close(listener);
	}
	return fd;
}

/* Gives @own and takes @other; both sides call it at the same place. */
static inline void tcp_exchange(int fd, const void *own, void *other, size_t len)
{
	size_t got = 0;

	if (write(fd, own, len) != (ssize_t)len)
		err(1, "cannot write to the peer");
	while (got < len) {
		ssize_t n = read(fd, (char *)other + got, len - got);

		if (n < 0)
			err(1, "cannot read from the peer");
		if (!n)
			errx(1, "the peer has gone");
		got += n;
	}
}

#endif /* SAMPLES_TCP_H */
