// SPDX-License-Identifier: GPL-2.0
/*
 * A laboratory of teardown: what becomes of a transfer that is running when its queue pair is
 * reset, when the memory region that it writes to is deregistered, and when both happen at once, by
 * two threads or as one transaction; under each of the four pairs of policies of a sluice device.
 *
 *     teardown_lab [-d DEVICE] [-o PART] [-t MS] [-u]
 *
 * Each experiment is one RDMA WRITE of many bursts with three small ones behind it. A hold point
 * (debugfs, root only) parks the write at a boundary in its midst, so nothing depends on luck: the
 * experiment takes its time to take something away, sees which calls wait and which return, and
 * lets the write go. Without hold points, or with -u, the write is made so large that it is still
 * running when something is taken away, with whatever outcome that has.
 *
 * Other devices have neither policies nor hold points; what they do is shown in the same way.
 *
 * The policies are set through sysfs, and what was found there is put back at the end, also after
 * ^C. Exit codes: 0; 1 if something failed, or was not as the contract has it; 2 to 5 if it could
 * not begin, see usage() and rc.h.
 */

#include "rc.h"
#include "sluice_teardown.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#define KIB 1024UL
#define MIB (1024 * KIB)
#define BURST (64 * KIB) /* what the engine moves at a time; set by us */
#define PARKED_SIZE MIB /* the write, 16 bursts, */
#define PARKED_AT 2 /* and how many of them have landed when it is parked */
#define LARGEST (64 * MIB) /* the write, where it cannot be parked */
#define BEHIND 3 /* small writes posted behind it, */
#define SMALL 4096UL /* and their size */
#define WRITES (1 + BEHIND)
#define ROUNDS_WITHOUT_POLICIES 3
#define LIMIT_S 20

/* What is taken away. Bits: both is both; and then perhaps by one call. */
enum { RESET = 1, DEREG = 2, BOTH = RESET | DEREG, AS_ONE = 4 };

struct lab {
	const char *device;
	struct rc_conn writer, target; /* both ends are in this process */
	uint8_t *src, *dst;
	struct ibv_mr *src_mr, *dst_mr;
	size_t size; /* of the first write */
	unsigned int hold_ms; /* how long a call is watched before the write is let go */
	int only; /* what is to be taken away; 0: each in turn */
	bool has_policies, parks;
	unsigned int delay_us; /* from posting to taking away, where the write is not parked */
	bool went_wrong; /* something was not as the device promises */
	bool moved_late; /* bytes landed after a call had returned */
};

/* What one experiment has shown. */
struct outcome {
	enum ibv_wc_status seen[WRITES]; /* the writer's completions */
	int completions;
	size_t landed; /* bytes of the first write, when the calls had returned */
	bool prefix; /* and they were the first bytes of it, */
	bool changed; /* and there were more of them later */
	double ms[2]; /* how long RESET and deregistration took (-1: they were not made), */
	bool waited[2]; /* and whether they waited until the write was let go */
};

/* Policies. */

/* What the experiments set. Paths and old values are at hand for the signal handler. */
static struct knob {
	const char *name;
	char path[128], saved[32];
} knobs[] = {
	{ .name = "reset_policy" },
	{ .name = "revoke_policy" },
	{ .name = "drain_timeout_ms" },
	{ .name = "burst_bytes" },
};

#define KNOBS (sizeof(knobs) / sizeof(*knobs))

static char hold_path[128], release[32];

/* Only what a signal handler may call. */
static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool read_file(const char *path, char *text, size_t max)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, max - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n >= 0;
}

static void put_back(void)
{
	for (size_t i = 0; i < KNOBS; i++)
		if (knobs[i].saved[0])
			write_file(knobs[i].path, knobs[i].saved);
	/* A call that waits for a parked write would keep the process from ending. */
	if (release[0])
		write_file(hold_path, release);
}

static void on_signal(int number)
{
	put_back();
	signal(number, SIG_DFL);
	raise(number);
}

static void set_knob(size_t i, const char *value)
{
	if (!write_file(knobs[i].path, value))
		err(1, "cannot write %s to %s", value, knobs[i].path);
}

/* Finds out what can be set. Without the right to, the experiments take the policies as they are. */
static void find_knobs(struct lab *lab)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction action = { .sa_handler = on_signal };
	char old[KNOBS][32];
	size_t i;

	for (i = 0; i < KNOBS; i++) {
		snprintf(knobs[i].path, sizeof(knobs[i].path), "/sys/class/infiniband/%s/%s",
			 lab->device, knobs[i].name);
		if (!read_file(knobs[i].path, old[i], sizeof(old[i])))
			return;
		old[i][strcspn(old[i], "\n")] = 0;
	}
	lab->has_policies = true;
	for (i = 0; i < KNOBS; i++)
		if (access(knobs[i].path, W_OK))
			return;
	/* From here on, however this ends, what was found is put back. */
	atexit(put_back);
	for (i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &action, NULL);
	for (i = 0; i < KNOBS; i++)
		memcpy(knobs[i].saved, old[i], sizeof(old[i]));
	set_knob(2, "10000");
	set_knob(3, "65536");
}

/* Holding a write. */

static void find_hold_points(struct lab *lab, bool wanted)
{
	snprintf(hold_path, sizeof(hold_path), "/sys/kernel/debug/sluice/%s/hold", lab->device);
	lab->parks = wanted && lab->has_policies && knobs[0].saved[0] && !access(hold_path, W_OK);
	if (lab->parks || !wanted)
		return;
	if (!lab->has_policies)
		printf("%s has no policies and no hold points, so the write runs freely.\n",
		       lab->device);
	else
		printf("No hold points (%s: %s),\n"
		       "so the write runs freely. Root has them, where debugfs is mounted.\n",
		       hold_path, strerror(errno));
}

/* The next write of the queue pair is to be parked. */
static void hold(struct lab *lab)
{
	char command[64];

	snprintf(command, sizeof(command), "qp %u boundary %d", lab->writer.qp->qp_num, PARKED_AT);
	snprintf(release, sizeof(release), "release %u", lab->writer.qp->qp_num);
	if (!write_file(hold_path, command))
		err(1, "cannot write \"%s\" to %s", command, hold_path);
}

static bool is_parked(struct lab *lab)
{
	char want[64], list[2048];

	snprintf(want, sizeof(want), "parked qp %u landed %lu ", lab->writer.qp->qp_num,
		 PARKED_AT * BURST);
	return read_file(hold_path, list, sizeof(list)) && strstr(list, want);
}

static void await_parked(struct lab *lab)
{
	uint64_t end = rc_now_ns() + LIMIT_S * 1000000000ULL;

	while (!is_parked(lab)) {
		if (rc_now_ns() > end)
			errx(1, "the write has not come to its boundary within %d s", LIMIT_S);
		usleep(500);
	}
}

static void let_go(void)
{
	write_file(hold_path, release);
	release[0] = 0;
}

/* The traffic. */

static void connect_both(struct lab *lab)
{
	struct rc_peer w = rc_self(&lab->writer, NULL), t = rc_self(&lab->target, NULL);

	rc_connect(&lab->writer, &t);
	rc_connect(&lab->target, &w);
}

/* A large write, and small ones behind it into memory of their own. */
static void post_writes(struct lab *lab)
{
	struct ibv_send_wr wr[WRITES], *bad;
	struct ibv_sge sge[WRITES];

	for (int i = 0; i < WRITES; i++) {
		size_t at = i ? lab->size + (i - 1) * SMALL : 0;

		sge[i] = (struct ibv_sge){ (uintptr_t)lab->src + at, i ? SMALL : lab->size,
					   lab->src_mr->lkey };
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < WRITES ? &wr[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE,
			.sg_list = &sge[i],
			.num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)lab->dst + at, lab->dst_mr->rkey },
		};
	}
	errno = ibv_post_send(lab->writer.qp, wr, &bad);
	if (errno)
		err(1, "cannot post the writes");
}

static void register_target(struct lab *lab)
{
	lab->dst_mr = rc_register(&lab->target, lab->dst, lab->size + BEHIND * SMALL,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

/* Memory of both ends for a write of @size bytes; false if so much cannot be locked. */
static bool get_memory(struct lab *lab, size_t size)
{
	size_t all = size + BEHIND * SMALL;
	uint64_t *word;

	if (posix_memalign((void **)&lab->src, 4096, all) ||
	    posix_memalign((void **)&lab->dst, 4096, all))
		err(RC_EXIT_NO_MEMORY, "no memory");
	word = (uint64_t *)lab->src;
	for (size_t i = 0; i < all / 8; i++)
		word[i] = ~i; /* never 0, which is what the target is filled with */
	memset(lab->dst, 0, all);
	lab->size = size;
	lab->src_mr = ibv_reg_mr(lab->writer.pd, lab->src, all, 0);
	lab->dst_mr = lab->src_mr ? ibv_reg_mr(lab->target.pd, lab->dst, all,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) :
				    NULL;
	return lab->dst_mr;
}

static void free_memory(struct lab *lab)
{
	if (lab->src_mr)
		ibv_dereg_mr(lab->src_mr);
	if (lab->dst_mr)
		ibv_dereg_mr(lab->dst_mr);
	lab->src_mr = lab->dst_mr = NULL;
	free(lab->src);
	free(lab->dst);
}

/* How long an undisturbed write takes, in ms. */
static double time_write(struct lab *lab)
{
	uint64_t start;
	struct ibv_wc wc;

	rc_create_qp(&lab->writer, WRITES);
	rc_create_qp(&lab->target, WRITES);
	connect_both(lab);
	start = rc_now_ns();
	post_writes(lab);
	for (int i = 0; i < WRITES; i++) {
		wc = rc_next(&lab->writer, 60);
		if (wc.status)
			errx(1, "an undisturbed write failed: %s", ibv_wc_status_str(wc.status));
	}
	start = rc_now_ns() - start;
	ibv_destroy_qp(lab->writer.qp);
	ibv_destroy_qp(lab->target.qp);
	return start / 1e6;
}

/* Chooses a write that takes about 100 ms, for which there is memory. */
static void choose_size(struct lab *lab)
{
	size_t size = lab->parks ? PARKED_SIZE : LARGEST;
	double ms;

	while (!get_memory(lab, size)) {
		if (errno != ENOMEM || size == PARKED_SIZE)
			err(RC_EXIT_NO_MEMORY, "cannot register twice %zu KiB%s", size / KIB,
			    errno == ENOMEM ? " (see: ulimit -l)" : "");
		free_memory(lab);
		size /= 2;
	}
	if (lab->parks)
		return;
	for (ms = time_write(lab); ms > 150 && size > PARKED_SIZE; ms = time_write(lab)) {
		free_memory(lab);
		size /= 2;
		if (!get_memory(lab, size))
			err(RC_EXIT_NO_MEMORY, "cannot register twice %zu KiB", size / KIB);
	}
	lab->delay_us = ms * 300;
}

/* Taking away. */

/* A call that may have to wait, made by a thread of its own. */
struct call {
	struct lab *lab;
	int what;
	pthread_t thread;
	double ms;
	double gates_ms[2]; /* AS_ONE: how long either gate took to drain */
	int error;
	bool begun, done;
};

/*
 * The transaction: both gates are closed in one step, so there is no order. When the call returns,
 * the queue pair is in RESET and the region's keys are dead; ibv_dereg_mr() only frees the handle.
 */
static int reset_and_revoke(struct call *call)
{
	struct sluice_action actions[] = {
		{ .kind = SLUICE_RESET_QP, .qp = call->lab->writer.qp },
		{ .kind = SLUICE_REVOKE_MR, .mr = call->lab->dst_mr },
	};
	struct sluice_teardown_refusal no;
	int error = sluice_teardown(call->lab->writer.ctx, actions, 2, SLUICE_INDIVIDUAL, &no);

	if (error)
		errx(1, "the transaction is refused for action %d: %s (%s)", (int)no.action,
		     sluice_teardown_why(&no), strerror(error));
	for (int i = 0; i < 2; i++)
		call->gates_ms[i] = actions[i].result.waited_ns / 1e6;
	return 0;
}

static void *make_call(void *arg)
{
	struct call *call = arg;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	uint64_t start = rc_now_ns();

	__atomic_store_n(&call->begun, true, __ATOMIC_RELEASE);
	if (call->what & AS_ONE)
		call->error = reset_and_revoke(call);
	else if (call->what == RESET)
		call->error = ibv_modify_qp(call->lab->writer.qp, &attr, IBV_QP_STATE);
	else
		call->error = ibv_dereg_mr(call->lab->dst_mr);
	call->ms = (rc_now_ns() - start) / 1e6;
	__atomic_store_n(&call->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static bool is_done(struct call *call)
{
	return __atomic_load_n(&call->done, __ATOMIC_ACQUIRE);
}

/*
 * Watches calls for a while, and lets the write go. A call waits for it if it has not returned, and
 * the write still stands at its boundary; on a busy machine a call may return late after it has cut
 * the write, but that is no waiting.
 */
static void watch(struct lab *lab, struct call *calls, struct outcome *o)
{
	uint64_t end = rc_now_ns() + lab->hold_ms * 1000000ULL;
	bool stands;

	while (!(is_done(&calls[0]) && is_done(&calls[1])) && rc_now_ns() < end)
		usleep(200);
	stands = is_parked(lab);
	for (int i = 0; i < 2; i++)
		o->waited[i] = stands && !is_done(&calls[i]);
	let_go();
}

/* Makes the calls that @what names, RESET first, and lets the write go if they wait for it. */
static void take_away(struct lab *lab, int what, struct outcome *o)
{
	struct call calls[2] = { { .lab = lab, .what = RESET }, { .lab = lab, .what = DEREG } };

	if (what & AS_ONE) {
		calls[0].what = what;
		calls[1].what = 0;
	}

	for (int i = 0; i < 2; i++) {
		if (!(what & calls[i].what)) {
			calls[i].done = true;
			continue;
		}
		errno = pthread_create(&calls[i].thread, NULL, make_call, &calls[i]);
		if (errno)
			err(1, "cannot start a thread");
		while (!__atomic_load_n(&calls[i].begun, __ATOMIC_ACQUIRE))
			usleep(10);
		/* Time for the reset to be at its gate before the region goes. */
		if (lab->parks && what == BOTH && i == 0)
			usleep(lab->hold_ms * 1000 / 4);
	}
	if (lab->parks)
		watch(lab, calls, o);
	for (int i = 0; i < 2; i++) {
		if (!(what & calls[i].what))
			continue;
		pthread_join(calls[i].thread, NULL);
		errno = calls[i].error;
		if (errno)
			err(1, calls[i].what == RESET ? "cannot reset the queue pair" :
							"cannot deregister the region");
		o->ms[i] = calls[i].ms;
	}
	if (what & AS_ONE) {
		memcpy(o->ms, calls[0].gates_ms, sizeof(o->ms));
		o->waited[1] = o->waited[0];
		errno = ibv_dereg_mr(lab->dst_mr);
		if (errno)
			err(1, "cannot free the region");
	}
	if (what & DEREG)
		lab->dst_mr = NULL;
}

/* How many bytes of the write have landed; @prefix: there are none behind a gap. */
static size_t count_landed(const struct lab *lab, bool *prefix)
{
	const volatile uint64_t *to = (const uint64_t *)lab->dst;
	const uint64_t *from = (const uint64_t *)lab->src;
	size_t words = lab->size / 8, n = 0, i;

	while (n < words && to[n] == from[n])
		n++;
	for (i = n; i < words && !to[i]; i++)
		;
	*prefix = i == words;
	return n * 8;
}

/* The writer's completions: all there will be. */
static void collect(struct lab *lab, int what, struct outcome *o)
{
	/* Whoever resets a queue pair need not get any; a region's end completes everything. */
	uint64_t end = rc_now_ns() + (what & RESET ? 50000000ULL : LIMIT_S * 1000000000ULL);
	struct ibv_wc wc;

	while (o->completions < WRITES && rc_now_ns() < end)
		if (ibv_poll_cq(lab->writer.cq, 1, &wc) > 0)
			o->seen[o->completions++] = wc.status;
}

static struct outcome experiment(struct lab *lab, int what)
{
	struct outcome o = { .ms = { -1, -1 } };
	bool prefix;

	rc_create_qp(&lab->writer, WRITES);
	rc_create_qp(&lab->target, WRITES);
	connect_both(lab);
	memset(lab->dst, 0, lab->size);
	if (!lab->dst_mr)
		register_target(lab);

	if (lab->parks)
		hold(lab);
	post_writes(lab);
	if (lab->parks)
		await_parked(lab);
	else
		usleep(lab->delay_us);
	take_away(lab, what, &o);
	/* The calls have returned: what has landed by now is all that may ever land. */
	o.landed = count_landed(lab, &o.prefix);
	collect(lab, what, &o);
	o.changed = count_landed(lab, &prefix) != o.landed;

	ibv_destroy_qp(lab->writer.qp);
	ibv_destroy_qp(lab->target.qp);
	return o;
}

/* What the contract says. */

/*
 * Sections "What completes, and how" and "Two at once" of Documentation/teardown.rst, for a write
 * that is parked after PARKED_AT bursts.
 */
static bool as_promised(const struct lab *lab, int what, bool abort, bool revoke_drains,
			const struct outcome *o)
{
	bool faults = what & DEREG && !revoke_drains; /* the next boundary is the last one */
	bool aborts = what & RESET && abort; /* the same; this gate is asked first */
	bool waits = !faults && !aborts;
	enum ibv_wc_status want[WRITES];
	int n = 0;

	if (waits)
		want[n++] = IBV_WC_SUCCESS;
	/* Either the write has lost its region, or the next one finds that there is none. */
	if (what == DEREG || (faults && !aborts))
		want[n++] = IBV_WC_REM_ACCESS_ERR;
	/* RESET discards what is left; a queue pair that has failed flushes it. */
	while (what == DEREG && n < WRITES)
		want[n++] = IBV_WC_WR_FLUSH_ERR;

	return o->prefix && !o->changed && o->landed == (waits ? lab->size : PARKED_AT * BURST) &&
	       o->completions == n && !memcmp(o->seen, want, n * sizeof(*want)) &&
	       o->waited[0] == (waits && what & RESET) && o->waited[1] == (waits && what & DEREG);
}

/* Saying it. */

static const char *status_name(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return "OK";
	case IBV_WC_LOC_PROT_ERR:
		return "LOC_PROT_ERR";
	case IBV_WC_WR_FLUSH_ERR:
		return "flushed";
	case IBV_WC_REM_ACCESS_ERR:
		return "REM_ACCESS_ERR";
	case IBV_WC_REM_OP_ERR:
		return "REM_OP_ERR";
	case IBV_WC_RETRY_EXC_ERR:
		return "RETRY_EXC_ERR";
	default:
		return ibv_wc_status_str(status);
	}
}

/* Runs of equal completions as one word each. */
static void describe(const struct outcome *o, char *text, size_t max)
{
	size_t len = 0;

	snprintf(text, max, "nothing");
	for (int i = 0, run; i < o->completions && len < max; i += run) {
		for (run = 1; i + run < o->completions && o->seen[i + run] == o->seen[i]; run++)
			;
		len += snprintf(text + len, max - len, i ? ", " : "");
		if (len < max && run > 1)
			len += snprintf(text + len, max - len, "%d ", run);
		if (len < max)
			len += snprintf(text + len, max - len, "%s", status_name(o->seen[i]));
	}
}

/* Who decided how the write ended: the first completion tells. */
static const char *winner(const struct lab *lab, const struct outcome *o)
{
	if (o->landed == lab->size)
		return "write";
	return o->completions && o->seen[0] == IBV_WC_REM_ACCESS_ERR ? "dereg" : "reset";
}

static void took(char *text, size_t max, double ms, bool waited)
{
	if (ms >= 0)
		snprintf(text, max, "%.*f%s", ms < 10 ? 2 : 0, ms, waited ? "*" : " ");
	else
		snprintf(text, max, "- ");
}

static void print_row(struct lab *lab, int what, const char *reset, const char *revoke)
{
	struct outcome o = experiment(lab, what);
	char landed[64], saw[80], ms[2][16];
	bool promised = true;

	if (lab->parks)
		snprintf(landed, sizeof(landed), "%zu of %zu", o.landed / BURST, lab->size / BURST);
	else
		snprintf(landed, sizeof(landed), "%.1f %%", 100.0 * o.landed / lab->size);
	describe(&o, saw, sizeof(saw));
	for (int i = 0; i < 2; i++)
		took(ms[i], sizeof(ms[i]), o.ms[i], o.waited[i]);
	printf("%-5s  %-6s  %8s  %-31s%8s %8s  %s\n", reset, revoke, landed, saw, ms[0], ms[1],
	       winner(lab, &o));
	if (!o.prefix)
		printf("       bytes have landed BEHIND A GAP\n");
	if (o.changed)
		printf("       MORE BYTES landed after the calls had returned\n");
	if (lab->parks)
		promised = as_promised(lab, what, !strcmp(reset, "abort"),
				       !strcmp(revoke, "drain"), &o);
	else if (lab->has_policies)
		promised = o.prefix && !o.changed;
	if (!promised)
		printf("       this is NOT AS THE CONTRACT SAYS\n");
	lab->went_wrong |= !promised;
	lab->moved_late |= o.changed;
	fflush(stdout);
}

/* One thing taken away, under all policies that there are. */
static void part(struct lab *lab, int what, const char *title, const char *lesson)
{
	static const char *const resets[] = { "drain", "abort" };
	static const char *const revokes[] = { "cancel", "drain" };
	char now[2][32];

	if (lab->only && lab->only != what)
		return;
	printf("\n%s\n", title);
	if (!lab->has_policies) {
		for (int i = 0; i < ROUNDS_WITHOUT_POLICIES; i++)
			print_row(lab, what, "-", "-");
		return;
	}
	printf("%s\n", lesson);
	if (!knobs[0].saved[0]) {
		for (int i = 0; i < 2; i++) {
			read_file(knobs[i].path, now[i], sizeof(now[i]));
			now[i][strcspn(now[i], "\n")] = 0;
		}
		print_row(lab, what, now[0], now[1]);
		return;
	}
	for (int i = 0; i < 4; i++) {
		set_knob(0, resets[i / 2]);
		set_knob(1, revokes[i % 2]);
		print_row(lab, what, resets[i / 2], revokes[i % 2]);
	}
}

static int part_named(const char *name)
{
	static const char *const names[] = { [RESET] = "reset", [DEREG] = "dereg",
					     [BOTH] = "both", [BOTH | AS_ONE] = "one" };

	for (int i = 0; i <= (BOTH | AS_ONE); i++)
		if (names[i] && !strcmp(name, names[i]))
			return i;
	return 0;
}

static void introduce(const struct lab *lab)
{
	if (lab->has_policies && !knobs[0].saved[0])
		printf("The policies in /sys/class/infiniband/%s are taken as they are: only root\n"
		       "sets them.\n", lab->device);
	if (lab->parks)
		printf("%s: an RDMA WRITE of %zu bursts of %zu KiB, with %d small ones behind it, is\n"
		       "parked after %d bursts. Then something is taken away from it. If a call has not\n"
		       "returned within %u ms, the write is let go: it waited, and is marked *.\n",
		       lab->device, lab->size / BURST, BURST / KIB, BEHIND, PARKED_AT, lab->hold_ms);
	else
		printf("%s: something is taken away from a running RDMA WRITE of %zu MiB, with %d\n"
		       "small ones behind it. How far it has got by then is left to chance.\n",
		       lab->device, lab->size / MIB, BEHIND);
	printf("\nreset_ revoke_                                                  calls took, ms\n"
	       "policy policy    landed  what the writer saw              reset    dereg  won\n");
}

static void conclude(const struct lab *lab)
{
	if (lab->went_wrong)
		printf("\nSomething above is not as Documentation/teardown.rst says.\n");
	else if (lab->moved_late)
		printf("\nIn the rows marked so, bytes still landed after the calls had returned. This\n"
		       "device does not say that they do not.\n");
	else
		printf("\nWhat landed was a prefix of the write each time, and no byte changed after the\n"
		       "calls had returned.%s\n",
		       lab->parks ? " All of it is as Documentation/teardown.rst says." : "");
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: teardown_lab [-d DEVICE] [-o PART] [-t MS] [-u]\n"
		"\n"
		"Takes queue pair and memory region away from running transfers and shows what\n"
		"comes of it, under each pair of the policies of a sluice device.\n"
		"\n"
		"  -d DEVICE  any RoCE device (default: sluice0)\n"
		"  -o PART    only this: reset, dereg, both or one (transaction)\n"
		"  -t MS      how long a call is watched before its transfer is let go (500)\n"
		"  -u         do not park transfers, even where they can be\n"
		"\n"
		"As root it sets the policies and parks transfers, and puts back what it found.\n"
		"\n"
		"Exit codes: 0 the device did what it promises; 1 it did not, or a call failed;\n"
		"2 wrong usage; 3 no such device; 4 its port is down or has no address; 5 too\n"
		"little memory, or too little that may be locked.\n");
}

int main(int argc, char **argv)
{
	struct lab lab = { .device = "sluice0", .hold_ms = 500 };
	bool park = true;
	char title[64];
	int option;

	while ((option = getopt(argc, argv, "d:o:t:uh")) != -1) {
		if (option == 'h') {
			usage(stdout);
			return 0;
		}
		if (option == 'd')
			lab.device = optarg;
		else if (option == 'u')
			park = false;
		else if (option == 'o' && part_named(optarg))
			lab.only = part_named(optarg);
		else if (option == 't' && atoi(optarg) > 0 && atoi(optarg) <= 5000)
			lab.hold_ms = atoi(optarg);
		else {
			usage(stderr);
			return RC_EXIT_USAGE;
		}
	}
	if (optind < argc) {
		usage(stderr);
		return RC_EXIT_USAGE;
	}

	/* The queue pairs are new for each experiment. All else the two ends have in common. */
	rc_open(&lab.writer, lab.device, WRITES);
	ibv_destroy_qp(lab.writer.qp);
	lab.target = lab.writer;
	find_knobs(&lab);
	find_hold_points(&lab, park);
	choose_size(&lab);

	introduce(&lab);
	part(&lab, RESET, "THE WRITER'S QUEUE PAIR IS RESET",
	     "reset_policy decides: drain waits for the write, abort cuts it at the boundary.");
	part(&lab, DEREG, "THE REGION THAT IT WRITES TO IS DEREGISTERED",
	     "revoke_policy decides: cancel faults at the boundary, drain lets the write end.");
	snprintf(title, sizeof(title),
		 lab.parks ? "BOTH, by two threads, the reset %u ms earlier" :
			     "BOTH AT ONCE, by two threads", lab.hold_ms / 4);
	part(&lab, BOTH, title,
	     "Whoever cuts wins; of two that do, the queue pair, whose gate is asked first.");
	if (lab.has_policies)
		part(&lab, BOTH | AS_ONE, "BOTH, AS ONE TRANSACTION",
		     "Both gates close in one step. The times are those until either had drained.");
	conclude(&lab);

	free_memory(&lab);
	ibv_destroy_cq(lab.writer.cq);
	ibv_dealloc_pd(lab.writer.pd);
	ibv_close_device(lab.writer.ctx);
	return lab.went_wrong ? RC_EXIT_FAILED : 0;
}
