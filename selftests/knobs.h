/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be set about a device while it runs: the policies in sysfs, and in debugfs the hold
 * points, at which a transfer is parked.
 */

#ifndef SLUICE_SELFTESTS_KNOBS_H
#define SLUICE_SELFTESTS_KNOBS_H

#include "verbs_lib.h"

static const char *const knobs[4] = { "reset_policy", "revoke_policy", "drain_timeout_ms",
				      "burst_bytes" };

static inline int open_file(const char *folder, const char *name, int flags)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s/%s", folder, device_name(), name);
	return open(path, flags);
}

static inline int open_knob(const char *name, int flags)
{
	return open_file("/sys/class/infiniband", name, flags);
}

static inline int open_hold(int flags)
{
	return open_file("/sys/kernel/debug/sluice", "hold", flags);
}

/* Writes @value and closes @fd; 0 or an errno. */
static inline int write_to(int fd, const char *value)
{
	int err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		err = errno;
	close(fd);
	return err;
}

/* Reads all of @fd as a string and closes it. */
static inline bool read_from(int fd, char *value, size_t max)
{
	ssize_t n = fd < 0 ? -1 : read(fd, value, max - 1);

	if (fd >= 0)
		close(fd);
	value[n > 0 ? n : 0] = 0;
	return n >= 0;
}

/* 0 or an errno. */
static inline int knob_set(const char *name, const char *value)
{
	return write_to(open_knob(name, O_WRONLY), value);
}

static inline bool knob_get(const char *name, char *value, size_t max)
{
	bool ok = read_from(open_knob(name, O_RDONLY), value, max);

	value[strcspn(value, "\n")] = 0;
	return ok && *value;
}

/* What was set before a test. */
struct saved_knobs {
	char values[4][32];
};

/* Remembers what is set, and sets what tests with hold points count on. */
static inline bool knobs_save(struct saved_knobs *saved)
{
	for (int i = 0; i < 4; i++)
		if (!knob_get(knobs[i], saved->values[i], sizeof(saved->values[i])))
			return false;
	return !knob_set("burst_bytes", "65536") && !knob_set("drain_timeout_ms", "20000");
}

/* Gives a command to the hold points; 0 or an errno. */
static inline int __attribute__((format(printf, 1, 2))) hold(const char *format, ...)
{
	char command[64];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return write_to(open_hold(O_WRONLY), command);
}

/* Lets go of what is parked and sets what was set before; false if something cannot be set. */
static inline bool knobs_put_back(const struct saved_knobs *saved)
{
	bool ok = true;

	hold("release all");
	for (int i = 0; i < 4; i++)
		if (saved->values[i][0] && knob_set(knobs[i], saved->values[i]))
			ok = false;
	return ok;
}

/* Whether the list of holds comes to show @text; or, with @shown false, to show it no more. */
static inline bool hold_shows(const char *text, bool shown)
{
	uint64_t end = now_ms() + LIMIT_MS;
	char list[2048];

	do {
		if (read_from(open_hold(O_RDONLY), list, sizeof(list)) &&
		    !strstr(list, text) == !shown)
			return true;
		sleep_ms(1);
	} while (now_ms() < end);
	return false;
}

/* Whether the transfer of @qp comes to stand with @landed bytes moved. */
static inline bool parks(const struct ibv_qp *qp, size_t landed)
{
	char text[64];

	snprintf(text, sizeof(text), "parked qp %u landed %zu ", qp->qp_num, landed);
	return hold_shows(text, true);
}

#endif
