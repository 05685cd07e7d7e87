/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the program rdma does, without a program: how many objects of each kind a device has, links
 * that are added and deleted. All of it happens in the calling task, which may have allocations
 * fail.
 */

#ifndef SLUICE_SELFTESTS_NLDEV_H
#define SLUICE_SELFTESTS_NLDEV_H

#include "verbs_lib.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

struct nldev {
	int fd;
	char buf[16384];
	int len; /* of what is in buf */
};

/* Requests that await an answer wait for a limited time. */
static inline int nldev_open(struct nldev *nl)
{
	struct timeval limit = { .tv_sec = LIMIT_MS / 1000 };

	nl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (nl->fd < 0)
		return errno;
	return setsockopt(nl->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ? errno : 0;
}

static inline void nldev_close(struct nldev *nl)
{
	close(nl->fd);
}

/* Begins a request in the buffer. */
static inline void nldev_begin(struct nldev *nl, int command, int flags)
{
	struct nlmsghdr *head = (void *)nl->buf;

	*head = (struct nlmsghdr){
		.nlmsg_len = NLMSG_HDRLEN,
		.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
		.nlmsg_flags = NLM_F_REQUEST | flags,
	};
}

static inline void nldev_put(struct nldev *nl, int type, const void *value, size_t len)
{
	struct nlmsghdr *head = (void *)nl->buf;
	struct nlattr *attr = (void *)(nl->buf + head->nlmsg_len);

	memset(attr, 0, NLA_HDRLEN + NLA_ALIGN(len));
	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	memcpy((char *)attr + NLA_HDRLEN, value, len);
	head->nlmsg_len += NLA_HDRLEN + NLA_ALIGN(len);
}

static inline void nldev_put_string(struct nldev *nl, int type, const char *value)
{
	nldev_put(nl, type, value, strlen(value) + 1);
}

/* Carries the request out; it has been when this returns. 0 or an errno, of the sending alone. */
static inline int nldev_send(struct nldev *nl)
{
	struct nlmsghdr *head = (void *)nl->buf;
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	return sendto(nl->fd, head, head->nlmsg_len, 0, (void *)&kernel, sizeof(kernel)) < 0 ?
		       errno : 0;
}

/* Reads the next answer into the buffer. */
static inline int nldev_receive(struct nldev *nl)
{
	nl->len = recv(nl->fd, nl->buf, sizeof(nl->buf), 0);
	return nl->len < 0 ? errno : 0;
}

/* The result that an acknowledged request has come to: 0 or an errno. */
static inline int nldev_result(struct nldev *nl)
{
	struct nlmsghdr *head = (void *)nl->buf;
	int err = nldev_receive(nl);

	if (err)
		return err;
	return head->nlmsg_type == NLMSG_ERROR ? -((struct nlmsgerr *)NLMSG_DATA(head))->error :
						 EPROTO;
}

/* The next of the attributes at @at, of @left bytes; NULL at the end. */
static inline const struct nlattr *nldev_attr(const char **at, int *left)
{
	const struct nlattr *attr = (const void *)*at;
	int len;

	if (*left < (int)NLA_HDRLEN || attr->nla_len < NLA_HDRLEN || attr->nla_len > *left)
		return NULL;
	len = NLA_ALIGN(attr->nla_len);
	*at += len;
	*left -= len;
	return attr;
}

static inline const void *nldev_value(const struct nlattr *attr)
{
	return (const char *)attr + NLA_HDRLEN;
}

/* The index of device @name, or -1. */
static inline int64_t nldev_index(struct nldev *nl, const char *name)
{
	int64_t found = -1;

	nldev_begin(nl, RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	if (nldev_send(nl))
		return -1;
	for (;;) {
		struct nlmsghdr *head = (void *)nl->buf;

		if (nldev_receive(nl))
			return -1;
		for (; NLMSG_OK(head, (unsigned int)nl->len); head = NLMSG_NEXT(head, nl->len)) {
			const char *at = NLMSG_DATA(head);
			int left = NLMSG_PAYLOAD(head, 0);
			const struct nlattr *attr;
			int64_t index = -1;

			if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR)
				return found;
			while ((attr = nldev_attr(&at, &left))) {
				if (attr->nla_type == RDMA_NLDEV_ATTR_DEV_INDEX)
					index = *(const uint32_t *)nldev_value(attr);
				if (attr->nla_type == RDMA_NLDEV_ATTR_DEV_NAME &&
				    !strcmp(nldev_value(attr), name))
					found = index;
			}
		}
	}
}

/* Writes "pd 1 cq 2 ..." to @text, of 128 bytes: the objects of a device by kind. */
static inline int nldev_objects(struct nldev *nl, uint32_t index, char *text)
{
	struct nlmsghdr *head = (void *)nl->buf;
	const struct nlattr *attr;
	const char *at;
	int left, err;

	*text = 0;
	nldev_begin(nl, RDMA_NLDEV_CMD_RES_GET, 0);
	nldev_put(nl, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	err = nldev_send(nl);
	if (!err)
		err = nldev_receive(nl);
	if (err)
		return err;
	if (head->nlmsg_type == NLMSG_ERROR)
		return -((struct nlmsgerr *)NLMSG_DATA(head))->error;
	at = NLMSG_DATA(head);
	left = NLMSG_PAYLOAD(head, 0);
	while ((attr = nldev_attr(&at, &left))) {
		const char *kind = nldev_value(attr);
		int kinds = attr->nla_len - NLA_HDRLEN;
		const struct nlattr *entry;

		if ((attr->nla_type & NLA_TYPE_MASK) != RDMA_NLDEV_ATTR_RES_SUMMARY)
			continue;
		while ((entry = nldev_attr(&kind, &kinds))) {
			const char *field = nldev_value(entry), *name = "?";
			int fields = entry->nla_len - NLA_HDRLEN;
			const struct nlattr *part;
			uint64_t count = 0;

			while ((part = nldev_attr(&field, &fields))) {
				if (part->nla_type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)
					name = nldev_value(part);
				if (part->nla_type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR)
					memcpy(&count, nldev_value(part), sizeof(count));
			}
			snprintf(text + strlen(text), 128 - strlen(text), "%s %llu ", name,
				 (unsigned long long)count);
		}
	}
	return *text ? 0 : EPROTO;
}

/* Puts a request for a new link of @type into the buffer; nldev_send() carries it out. */
static inline void nldev_new_link(struct nldev *nl, const char *name, const char *type,
				  const char *netdev)
{
	nldev_begin(nl, RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK);
	nldev_put_string(nl, RDMA_NLDEV_ATTR_DEV_NAME, name);
	nldev_put_string(nl, RDMA_NLDEV_ATTR_LINK_TYPE, type);
	nldev_put_string(nl, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
}

/* The same for the end of a link. */
static inline void nldev_del_link(struct nldev *nl, uint32_t index)
{
	nldev_begin(nl, RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK);
	nldev_put(nl, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
}

#endif /* SLUICE_SELFTESTS_NLDEV_H */
