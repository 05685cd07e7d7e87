// SPDX-License-Identifier: GPL-2.0
/*
 * Takes everything away from running transfers, in random order, and checks all the while what
 * the teardown contract (Documentation/teardown.rst) promises: its invariants I1 to I7.
 *
 * A controller starts workers, processes with a context of their own. In each worker, every lane
 * is a thread with two queue pairs that are connected to each other: it streams, takes something
 * away, looks at what has become of bytes and completions, and begins again. A reaper per worker
 * takes away regions that all lanes use; two lanes in different workers are the ends of one
 * connection. The controller kills workers, changes the policies of the device, and has workers
 * on a device of its own, which it removes under them.
 *
 * All memory that is ever registered is shared with the controller, so bytes that move for a
 * process that is gone are seen too. Documentation/torture.rst tells what is checked, and how.
 *
 *   SLUICE_SEED         where the random order begins; printed (default: from the clock)
 *   SLUICE_TEARDOWNS    how many teardowns; then without a limit of time (default: some thousands,
 *                       or as many as half a minute has room for; on the debug kernel a tenth of
 *                       them, in ten times the time)
 *   SLUICE_WORKERS, SLUICE_LANES    default 3 and 3
 *   SLUICE_NO_LINK      no device of its own
 */

#include "kselftest.h"
#include "verbs_lib.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define WORKERS_MAX 16
#define LANES_MAX 16
/* The lanes, a helper for each, the reaper, the two ends of connections to other workers. */
#define THREADS_MAX (2 * LANES_MAX + 3)
#define SETS 3

#define SLOT (256 * KIB)
#define SLOTS 4
#define SLOT_WORDS (SLOT / 8)
#define SHARED_BYTES (64 * KIB)
#define SHARED 2
/* Every size of a burst that this program sets is a multiple of this. */
#define UNIT_WORDS (4096 / 8)
/* The words of a region before this one are for messages below 512 bytes, and for atomics. */
#define SMALL_WORDS 64

/* The memory of a worker: what the lanes have in common, the ends of connections, the lanes. */
#define CROSS_AT (SHARED * SHARED_BYTES)
#define LANES_AT (CROSS_AT + 2 * SLOT)
#define LANE_BYTES (SETS * (SLOTS + 1) * SLOT)
#define ARENA_BYTES (LANES_AT + LANES_MAX * LANE_BYTES)

#define BATCH 40
#define SPARE_RECVS 2
#define QUEUE_MAX (BATCH + 8)
#define INLINE_MAX 64

/* Beyond the drain time-out, of which this program sets no longer one than a second. */
#define BOUND_MS (5000 * slowness())
#define WAIT_MS (15000 * slowness())
#define DEFAULT_TEARDOWNS (12000 / slowness())
#define DEFAULT_SECONDS (28 * slowness())
#define VIOLATIONS_MAX 12
/* So many streams that were cut short without one cut inside a message are no accident. */
#define COVERAGE_STREAMS 80
/* How long to go on after the first violation. */
#define AFTERWARDS_MS 2000

#define OWN_DEV "sluice_torture"
#define OWN_NETDEV "sluice-tt"
#define OWN_LANES 2

enum check { I1, I2, I3, I4, I5, I6, I7, CALLS, COVERAGE, CHECKS };

static const char *const check_names[CHECKS] = {
	"I1_no_byte_after_dereg",
	"I2_nothing_moves_or_completes_after_reset_error_destroy",
	"I3_every_request_completes_as_often_as_it_must",
	"I4_what_landed_is_a_prefix_of_whole_bursts",
	"I5_every_call_returns_in_time",
	"I6_keys_are_not_reused",
	"I7_closers_exits_and_removal_get_along",
	"no_call_fails",
	"transfers_were_cut",
};

enum kind { RESET, ERROR, DESTROY, DEREG, EXIT, REMOVAL, AT_REST, KINDS };

static const char *const kind_names[KINDS] = {
	"modify_qp to RESET", "modify_qp to ERR", "destroy_qp",
	"dereg_mr",	      "process exit",	  "link removal",
	"RESET/destroy at rest",
};

/* What a lane takes away. "a" is the requester, "b" the responder. */
enum act { RESET_A, RESET_B, ERROR_A, ERROR_B, DESTROY_A, DESTROY_B, DEREG_DST, DEREG_SRC, ACTS };

static const char *const act_names[ACTS] = {
	"RESET a", "RESET b", "ERR a", "ERR b", "destroy a", "destroy b", "dereg dst", "dereg src",
};

static const enum kind act_kinds[ACTS] = {
	RESET, RESET, ERROR, ERROR, DESTROY, DESTROY, DEREG, DEREG,
};

#define BIT(n) (1U << (n))
#define ACTS_ON_A (BIT(RESET_A) | BIT(ERROR_A) | BIT(DESTROY_A))
#define ACTS_ON_B (BIT(RESET_B) | BIT(ERROR_B) | BIT(DESTROY_B))
#define ACTS_ON_QP (ACTS_ON_A | ACTS_ON_B)

/* Microseconds in eighths of a power of two. */
#define BUCKETS 256

struct histogram {
	_Atomic uint64_t count[BUCKETS];
	_Atomic uint64_t max_us;
};

/* A call that has not returned yet. */
struct pending {
	_Atomic uint64_t since;
	_Atomic int kind;
};

/* What one end of a connection between workers tells the other. */
struct hello {
	_Atomic uint32_t round; /* 0: nothing to tell */
	uint32_t qpn, rkey;
	uint64_t addr;
	_Atomic uint32_t answers; /* the round of the target that a requester has seen */
	_Atomic uint32_t connected;
};

#define KEY_TABLE_BYTES (8UL << 24)
#define KEY_HELD (1ULL << 63)

struct shared {
	uint64_t seed;
	atomic_bool stop;
	_Atomic uint64_t teardowns, rounds, completions, cross;
	_Atomic int violations;
	_Atomic int broken[CHECKS];
	/* Streams of which a message was cut in two, by what was done to them. */
	_Atomic uint64_t tried[ACTS], torn[ACTS];
	struct histogram times[KINDS];
	struct pending pending[WORKERS_MAX + 1][THREADS_MAX];
	_Atomic uint32_t incarnation[WORKERS_MAX];
	atomic_bool doomed[WORKERS_MAX];
	struct hello target[WORKERS_MAX], requester[WORKERS_MAX];
};

static struct shared *shm;
/* For each key index and device: who holds the key, or held it last. */
static _Atomic uint64_t *keys[2];
static uint8_t *arenas;

/* Chance. */

struct chance {
	uint64_t state;
};

static uint64_t draw(struct chance *c)
{
	uint64_t z = c->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static uint32_t below(struct chance *c, uint32_t n)
{
	return (draw(c) >> 32) % n;
}

static bool one_in(struct chance *c, uint32_t n)
{
	return !below(c, n);
}

static struct chance chance_of(uint64_t a, uint64_t b, uint64_t c)
{
	struct chance chance = { shm->seed ^ a << 48 ^ b << 24 ^ c };

	chance.state = draw(&chance);
	return chance;
}

/* Reports. */

static void __attribute__((format(printf, 3, 4)))
violation(enum check check, const char *where, const char *format, ...)
{
	char what[256], line[640];
	va_list args;
	int n;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	atomic_fetch_add(&shm->broken[check], 1);
	if (atomic_fetch_add(&shm->violations, 1) < VIOLATIONS_MAX) {
		n = snprintf(line, sizeof(line), "# VIOLATION of %s, seed %llu, %s: %s\n",
			     check_names[check], (unsigned long long)shm->seed, where, what);
		if (write(STDOUT_FILENO, line, n) < 0)
			_exit(9);
	} else {
		atomic_store(&shm->stop, true);
	}
}

static void record(enum kind kind, uint64_t us)
{
	struct histogram *h = &shm->times[kind];
	int e = us < 8 ? 0 : 63 - __builtin_clzll(us);
	int bucket = us < 8 ? us : (e - 2) * 8 + (us >> (e - 3) & 7);
	uint64_t max = atomic_load(&h->max_us);

	atomic_fetch_add(&h->count[bucket < BUCKETS ? bucket : BUCKETS - 1], 1);
	while (us > max && !atomic_compare_exchange_weak(&h->max_us, &max, us))
		;
}

/* The upper end of the bucket in which the fraction @p of the calls is reached. */
static uint64_t quantile(const struct histogram *h, double p, uint64_t *count)
{
	uint64_t sum = 0, seen = 0;

	for (int i = 0; i < BUCKETS; i++)
		sum += h->count[i];
	*count = sum;
	for (int i = 0; i < BUCKETS; i++) {
		uint64_t edge = i < 8 ? i + 1ULL : (i % 8 + 9ULL) << (i / 8 - 1);

		seen += h->count[i];
		if (sum && seen >= p * sum)
			return edge < h->max_us ? edge : h->max_us;
	}
	return 0;
}

/* Bytes. */

static uint64_t src_word(size_t slot, size_t at)
{
	return (uint64_t)(slot + 2) << 32 | at;
}

static uint64_t old_word(size_t at)
{
	return 1ULL << 32 | at;
}

static uint64_t msg_word(int msg, size_t at)
{
	return msg < 0 ? old_word(at) : src_word(msg % SLOTS, at);
}

/* Every transfer of this program touches one of these, in what it reads and in what it writes. */
static bool is_place(size_t word)
{
	return word < SMALL_WORDS || word % SMALL_WORDS == 0;
}

static size_t next_place(size_t word)
{
	return word < SMALL_WORDS ? word + 1 : word + SMALL_WORDS;
}

#define POISON_WRITTEN 0xfeed000000000000ULL
#define POISON_READ 0xdead000000000000ULL
#define POISON_MASK 0xffff000000000000ULL

static void poison(void *to, size_t len, uint64_t value)
{
	volatile uint64_t *word = to;

	for (size_t i = 0; i < len / 8; i = next_place(i))
		word[i] = value;
}

/* The first place that does not hold @value any more, or -1. */
static ssize_t unpoisoned(const void *from, size_t len, uint64_t value)
{
	const volatile uint64_t *word = from;

	for (size_t i = 0; i < len / 8; i = next_place(i))
		if (word[i] != value)
			return i;
	return -1;
}

/* The first place that holds what was only ever written over regions that were gone, or -1. */
static ssize_t find_poison(const void *from, size_t len)
{
	const volatile uint64_t *word = from;

	for (size_t i = 0; i < len / 8; i = next_place(i))
		if ((word[i] & POISON_MASK) == POISON_READ)
			return i;
	return -1;
}

/* Workers and their lanes. */

/* Regions of one lane, used in every third round, so that they are watched for two more. */
struct set {
	struct region src, dst;
	bool poisoned;
	uint64_t read_value, written_value;
	enum check check_src, check_dst;
	char what[64];
};

/* The requests that were posted to one queue in its present life, and their completions. */
struct queue {
	const char *name;
	struct ibv_cq *cq;
	uint64_t life;
	bool over; /* no further completion may come */
	int posted;
	int last; /* index of the newest completion */
	int good;
	enum ibv_wc_status cause; /* the first status that is no success */
	bool signaled[QUEUE_MAX], done[QUEUE_MAX];
};

struct side {
	struct rc rc;
	struct queue send, recv;
};

struct common {
	struct region region;
	_Atomic uint32_t lkey, rkey;
};

struct worker {
	int slot;
	uint32_t incarnation;
	bool own_link;
	int lanes;
	struct rdma r;
	struct common common[SHARED];
	uint8_t *arena;
	bool cross;
	int workers;
};

/* A thread of a worker. */
struct lane {
	struct worker *w;
	int id;
	struct chance chance;
	uint32_t round;
	uint64_t life;
	char what[64];
	struct set sets[SETS];
	struct side sides[2];
	struct side *a, *b;
	/* The batch of this round. */
	bool shape; /* one opcode, one size */
	enum ibv_wr_opcode op;
	size_t size;
	bool uses_common;
	bool adds[BATCH];
	/* A key that was taken back, and what it was the key of. */
	uint32_t old_rkey;
	const struct set *old_set;
};

static const char *where(const struct lane *l, const char *what)
{
	static __thread char text[160];

	snprintf(text, sizeof(text), "worker %d.%u thread %d round %u (%s)", l->w->slot,
		 l->w->incarnation / WORKERS_MAX, l->id, l->round, what);
	return text;
}

/* The device goes or has gone: whatever this thread sees now means nothing. */
static void stop_if_doomed(struct worker *w)
{
	if (!atomic_load(&shm->doomed[w->slot]))
		return;
	for (;;)
		pause();
}

#define VIOLATION(check, l, ...)                                                                   \
	do {                                                                                       \
		stop_if_doomed((l)->w);                                                            \
		violation(check, where(l, (l)->what), __VA_ARGS__);                                \
	} while (0)

/* A call that has to succeed. */
#define MUST(l, call)                                                                              \
	do {                                                                                       \
		int err_ = (call);                                                                 \
												   \
		if (err_) {                                                                        \
			VIOLATION(CALLS, l, "%s: %s", #call, strerror(err_));                      \
			_exit(2);                                                                  \
		}                                                                                  \
	} while (0)

static uint64_t call_begin(int slot, int thread, enum kind kind)
{
	struct pending *p = &shm->pending[slot][thread];
	uint64_t now = now_ns();

	atomic_store(&p->kind, kind);
	atomic_store(&p->since, now);
	return now;
}

static uint64_t call_end(int slot, int thread, enum kind kind, uint64_t since)
{
	uint64_t us = (now_ns() - since) / 1000;

	atomic_store(&shm->pending[slot][thread].since, 0);
	record(kind, us);
	if (kind != AT_REST)
		atomic_fetch_add(&shm->teardowns, 1);
	return us;
}

static void check_time(struct lane *l, enum kind kind, uint64_t us)
{
	if (us > BOUND_MS * 1000)
		VIOLATION(I5, l, "%s took %llu ms", kind_names[kind],
			  (unsigned long long)us / 1000);
}

/* Keys (I6). */

static void key_taken(struct lane *l, uint32_t key)
{
	struct worker *w = l->w;
	uint64_t mine = KEY_HELD | (uint64_t)w->incarnation << 32 | key;
	uint64_t old = atomic_exchange(&keys[w->own_link][key >> 8], mine);
	uint32_t owner = old << 1 >> 33;

	if (old && (uint32_t)old == key)
		VIOLATION(I6, l, "key %#x is handed out again", key);
	else if (old & KEY_HELD && atomic_load(&shm->incarnation[owner % WORKERS_MAX]) == owner)
		VIOLATION(I6, l, "key %#x is handed out while %#x is held", key, (uint32_t)old);
}

static void key_given(struct lane *l, uint32_t key)
{
	atomic_fetch_and(&keys[l->w->own_link][key >> 8], ~KEY_HELD);
}

static void reg(struct lane *l, struct region *g)
{
	MUST(l, region_reg(g, l->w->r.pd, RC_ACCESS));
	key_taken(l, g->mr->rkey);
}

static void dereg(struct lane *l, struct region *g, int thread, enum kind kind)
{
	uint64_t since;

	if (!g->mr)
		return;
	key_given(l, g->mr->rkey);
	since = call_begin(l->w->slot, thread, kind);
	MUST(l, region_dereg(g));
	check_time(l, kind, call_end(l->w->slot, thread, kind, since));
}

/* Completions (I3). */

static void queue_begin(struct lane *l, struct queue *q)
{
	q->life = l->life;
	q->over = false;
	q->posted = 0;
	q->last = -1;
	q->good = 0;
	q->cause = IBV_WC_SUCCESS;
	memset(q->done, 0, sizeof(q->done));
}

static uint64_t next_id(struct queue *q, bool signaled)
{
	q->signaled[q->posted] = signaled;
	return q->life << 16 | q->posted++;
}

static void account(struct lane *l, struct queue *q, const struct ibv_wc *wc)
{
	int i = wc->wr_id & 0xffff;

	atomic_fetch_add(&shm->completions, 1);
	if (wc->wr_id >> 16 != q->life || q->over) {
		VIOLATION(I2, l, "%s: request %d of a life that is over has completed: %s", q->name,
			  i, ibv_wc_status_str(wc->status));
		return;
	}
	if (i >= q->posted || i <= q->last) {
		VIOLATION(I3, l, "%s: completion of request %d after %d (of %d): %s", q->name, i,
			  q->last, q->posted, ibv_wc_status_str(wc->status));
		return;
	}
	for (int passed = q->last + 1; passed < i; passed++)
		if (q->signaled[passed] || q->cause)
			VIOLATION(I3, l, "%s: request %d has no completion, %d has", q->name,
				  passed, i);
	q->last = i;
	if (wc->status == IBV_WC_SUCCESS) {
		if (q->cause || !q->signaled[i])
			VIOLATION(I3, l, "%s: request %d, %ssignaled, succeeds after \"%s\"",
				  q->name, i, q->signaled[i] ? "" : "not ",
				  ibv_wc_status_str(q->cause));
		q->good++;
		q->done[i] = true;
	} else if (!q->cause) {
		q->cause = wc->status;
	} else if (wc->status != IBV_WC_WR_FLUSH_ERR) {
		VIOLATION(I3, l, "%s: request %d fails after \"%s\": %s", q->name, i,
			  ibv_wc_status_str(q->cause), ibv_wc_status_str(wc->status));
	}
}

/* Takes what is there now. */
static void take(struct lane *l, struct queue *q)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = ibv_poll_cq(q->cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++)
			account(l, q, &wc[i]);
	if (n < 0)
		VIOLATION(CALLS, l, "%s: ibv_poll_cq fails", q->name);
}

static bool is_settled(const struct queue *q)
{
	return q->last == q->posted - 1;
}

static void expect_settled(struct lane *l, struct queue *q, enum check check, const char *when)
{
	if (!is_settled(q))
		VIOLATION(check, l, "%s: %d of %d completions %s", q->name, q->last + 1, q->posted,
			  when);
}

/* Everything completes in the end. */
static void settle(struct lane *l, struct queue *q)
{
	uint64_t end = now_ms() + WAIT_MS;

	for (take(l, q); !is_settled(q) && now_ms() < end; take(l, q))
		usleep(200);
	expect_settled(l, q, I3, "after a long wait");
}

/* The queue has been taken back: what is there is the last that comes. */
static void queue_end(struct lane *l, struct queue *q)
{
	take(l, q);
	q->over = true;
}

/* Queue pairs. */

static void side_create_qp(struct lane *l, struct side *s)
{
	struct rc_opts o = RC_DEFAULTS;

	/* A silent peer is noticed after some milliseconds. */
	o.timeout = 8;
	o.retry_cnt = 2;
	o.inline_bytes = INLINE_MAX;
	MUST(l, rc_create_qp(&l->w->r, &s->rc, &o));
}

static void side_open(struct lane *l, struct side *s, const char *send, const char *recv)
{
	s->send.name = send;
	s->recv.name = recv;
	s->rc.scq = ibv_create_cq(l->w->r.ctx, 512, NULL, NULL, 0);
	s->rc.rcq = ibv_create_cq(l->w->r.ctx, 512, NULL, NULL, 0);
	MUST(l, s->rc.scq && s->rc.rcq ? 0 : errno);
	s->send.cq = s->rc.scq;
	s->recv.cq = s->rc.rcq;
	s->send.last = -1;
	s->recv.last = -1;
}

static void side_take(struct lane *l, struct side *s)
{
	take(l, &s->send);
	take(l, &s->recv);
}

static void side_end(struct lane *l, struct side *s)
{
	queue_end(l, &s->send);
	queue_end(l, &s->recv);
}

static void side_destroy(struct lane *l, struct side *s, enum kind kind, int thread)
{
	uint64_t since;

	if (!s->rc.qp)
		return;
	since = call_begin(l->w->slot, thread, kind);
	MUST(l, ibv_destroy_qp(s->rc.qp));
	s->rc.qp = NULL;
	check_time(l, kind, call_end(l->w->slot, thread, kind, since));
}

/* Returns the error, as a transition may be refused when another thread was faster. */
static int side_modify(struct lane *l, struct side *s, enum kind kind, int thread,
		       enum ibv_qp_state to)
{
	uint64_t since = call_begin(l->w->slot, thread, kind);
	int err = qp_to(s->rc.qp, to);

	check_time(l, kind, call_end(l->w->slot, thread, kind, since));
	return err;
}

/* A queue pair in the reset state, for a new life. */
static void side_renew(struct lane *l, struct side *s)
{
	if (s->rc.qp && one_in(&l->chance, 4))
		side_destroy(l, s, AT_REST, l->id);
	if (s->rc.qp)
		MUST(l, side_modify(l, s, AT_REST, l->id, IBV_QPS_RESET));
	side_end(l, s);
	if (!s->rc.qp)
		side_create_qp(l, s);
}

static void side_close(struct lane *l, struct side *s)
{
	side_destroy(l, s, AT_REST, l->id);
	side_end(l, s);
	if (s->rc.scq)
		MUST(l, ibv_destroy_cq(s->rc.scq));
	if (s->rc.rcq)
		MUST(l, ibv_destroy_cq(s->rc.rcq));
}

/* The regions of a round. */

static void check_set(struct lane *l, struct set *s)
{
	ssize_t at;

	if (!s->poisoned)
		return;
	at = unpoisoned(s->dst.addr, s->dst.len, s->written_value);
	if (at >= 0)
		VIOLATION(s->check_dst, l, "after \"%s\": word %zd of the target was written: %#llx",
			  s->what, at, ((unsigned long long *)s->dst.addr)[at]);
	at = unpoisoned(s->src.addr, s->src.len, s->read_value);
	if (at >= 0)
		VIOLATION(s->check_src, l, "after \"%s\": word %zd of the source was written: %#llx",
			  s->what, at, ((unsigned long long *)s->src.addr)[at]);
}

/* Registered, and with the contents that the round begins with. */
static void set_renew(struct lane *l, struct set *s)
{
	uint64_t *src = (uint64_t *)s->src.addr, *dst = (uint64_t *)s->dst.addr;

	check_set(l, s);
	s->poisoned = false;
	for (size_t i = 0; i < SLOTS * SLOT_WORDS; i = next_place(i))
		src[i] = src_word(i / SLOT_WORDS, i % SLOT_WORDS);
	for (size_t i = 0; i < (l->shape ? l->size / 8 : SMALL_WORDS); i++)
		dst[i] = old_word(i);
	for (size_t i = SMALL_WORDS; i < SLOT_WORDS; i = next_place(i))
		dst[i] = old_word(i);
	dst[0] = l->shape ? old_word(0) : 0;
	if (!s->src.mr)
		reg(l, &s->src);
	if (!s->dst.mr)
		reg(l, &s->dst);
}

/* Posting. */

static void post_recvs(struct lane *l, struct side *s, int n, const struct set *set)
{
	size_t at = l->shape ? 0 : SMALL_WORDS * 8;

	for (int i = 0; i < n; i++) {
		struct ibv_sge sge = sge_of(&set->dst, at, SLOT - at);

		MUST(l, post_recv_sge(s->rc.qp, next_id(&s->recv, true), &sge, 1));
	}
}

struct batch {
	int n, recvs;
	struct ibv_send_wr wr[BATCH];
	struct ibv_sge sge[BATCH][2];
};

static bool takes_recv(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static uint64_t remote_of(const struct region *g, size_t at)
{
	return (uintptr_t)g->addr + at;
}

/* One message of a stream of equal ones, each from the next slot. */
static void compose_shape(struct lane *l, const struct set *s, int i, struct ibv_send_wr *wr,
			  struct ibv_sge *sge)
{
	size_t slot = i % SLOTS * SLOT;
	bool read = l->op == IBV_WR_RDMA_READ;

	wr->opcode = l->op;
	sge[0] = read ? sge_of(&s->dst, 0, l->size) : sge_of(&s->src, slot, l->size);
	wr->num_sge = 1;
	if (l->op != IBV_WR_SEND) {
		wr->wr.rdma.remote_addr = read ? remote_of(&s->src, slot) : remote_of(&s->dst, 0);
		wr->wr.rdma.rkey = read ? s->src.mr->rkey : s->dst.mr->rkey;
	}
}

/* The place of a message: small ones have their own, as only there every word is watched. */
static size_t any_place(struct lane *l, size_t *len)
{
	if (one_in(&l->chance, 3)) {
		*len = 1 + below(&l->chance, 48 * 8);
		return 16 * 8;
	}
	*len = one_in(&l->chance, 3) ? SLOT - SMALL_WORDS * 8 :
				       4096 + below(&l->chance, 60 * KIB);
	return SMALL_WORDS * 8;
}

/* Any message. */
static void compose_mixed(struct lane *l, const struct set *s, int i, struct ibv_send_wr *wr,
			  struct ibv_sge *sge)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,	  IBV_WR_SEND_WITH_IMM,	       IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM,  IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	enum ibv_wr_opcode op = ops[below(&l->chance, ARRAY_SIZE(ops))];
	size_t len, at = any_place(l, &len);
	struct ibv_sge local, far;
	bool is_inline = op != IBV_WR_RDMA_READ && len <= INLINE_MAX;

	wr->opcode = op;
	wr->num_sge = 1;
	wr->imm_data = htonl(i);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		bool add = op == IBV_WR_ATOMIC_FETCH_AND_ADD;

		sge[0] = sge_of(&s->dst, add ? 64 : 72, 8);
		wr->wr.atomic.remote_addr = remote_of(&s->dst, add ? 0 : 8);
		wr->wr.atomic.rkey = s->dst.mr->rkey;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.swap = 1;
		l->adds[i] = add;
		return;
	}
	local = op == IBV_WR_RDMA_READ ? sge_of(&s->dst, at, len) :
					 sge_of(&s->src, at + i % SLOTS * SLOT, len);
	far = op == IBV_WR_RDMA_READ ?
		      (struct ibv_sge){ remote_of(&s->src, at), 0, s->src.mr->rkey } :
		      (struct ibv_sge){ remote_of(&s->dst, at), 0, s->dst.mr->rkey };
	if (l->uses_common && at + len <= SHARED_BYTES && one_in(&l->chance, 3)) {
		struct common *c = &l->w->common[below(&l->chance, SHARED)];

		/* The library copies inline data when it is posted, with no region in between. */
		if (!is_inline && one_in(&l->chance, 2)) {
			local.addr = remote_of(&c->region, at);
			local.lkey = atomic_load(&c->lkey);
		} else {
			far.addr = remote_of(&c->region, at);
			far.lkey = atomic_load(&c->rkey);
		}
	}
	sge[0] = local;
	if (is_inline) {
		wr->send_flags |= IBV_SEND_INLINE;
	} else if (len >= 16 && one_in(&l->chance, 3)) {
		sge[0].length = 8 + below(&l->chance, len - 15);
		sge[1] = local;
		sge[1].addr += sge[0].length;
		sge[1].length -= sge[0].length;
		wr->num_sge = 2;
	}
	wr->wr.rdma.remote_addr = far.addr;
	wr->wr.rdma.rkey = far.lkey;
}

static void compose(struct lane *l, const struct set *s, struct batch *b)
{
	memset(b, 0, sizeof(*b));
	memset(l->adds, 0, sizeof(l->adds));
	b->n = BATCH / 4 + below(&l->chance, BATCH * 3 / 4 + 1);
	if (!l->shape && one_in(&l->chance, 4))
		b->n = 1 + below(&l->chance, 4);
	for (int i = 0; i < b->n; i++) {
		struct ibv_send_wr *wr = &b->wr[i];
		bool signaled;

		if (l->shape)
			compose_shape(l, s, i, wr, b->sge[i]);
		else
			compose_mixed(l, s, i, wr, b->sge[i]);
		signaled = l->shape || l->adds[i] || i == b->n - 1 || !one_in(&l->chance, 3);
		wr->send_flags |= signaled ? IBV_SEND_SIGNALED : 0;
		wr->wr_id = next_id(&l->a->send, signaled);
		wr->sg_list = b->sge[i];
		wr->next = i + 1 < b->n ? wr + 1 : NULL;
		b->recvs += takes_recv(wr->opcode);
		}
}

/* Connects the two sides and posts the receives of the round. */
static void lane_connect(struct lane *l, const struct set *s, int recvs)
{
	struct worker *w = l->w;
	struct rc *a = &l->a->rc, *b = &l->b->rc;

	MUST(l, rc_to_init(a));
	MUST(l, rc_to_init(b));
	post_recvs(l, l->a, SPARE_RECVS, s);
	post_recvs(l, l->b, recvs + SPARE_RECVS, s);
	MUST(l, rc_to_rtr(&w->r, a, b->qp->qp_num));
	MUST(l, rc_to_rtr(&w->r, b, a->qp->qp_num));
	MUST(l, rc_to_rts(a));
	MUST(l, rc_to_rts(b));
}

/* A key of a region that is gone opens nothing, not even the same memory (I6). */
static void try_old_key(struct lane *l, const struct set *s)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = remote_of(&l->old_set->dst, 0),
		.wr.rdma.rkey = l->old_rkey,
		.num_sge = 1,
	};
	struct ibv_sge sge = sge_of(&s->src, 0, 64);

	snprintf(l->what, sizeof(l->what), "an old key");
	wr.wr_id = next_id(&l->a->send, true);
	wr.sg_list = &sge;
	MUST(l, post_send(l->a->rc.qp, wr));
	settle(l, &l->a->send);
	if (l->a->send.cause != IBV_WC_REM_ACCESS_ERR)
		VIOLATION(I6, l, "key %#x, taken back before, gives \"%s\"", l->old_rkey,
			  ibv_wc_status_str(l->a->send.cause));
	side_take(l, l->b);
	l->old_rkey = 0;
}

/* Taking away. */

struct deed {
	struct lane *l;
	struct set *set;
	enum act act;
	int thread;
	pthread_barrier_t *together;
	int err;
};

static void *deed_do(void *arg)
{
	struct deed *d = arg;
	struct lane *l = d->l;
	enum kind kind = act_kinds[d->act];

	if (d->together)
		pthread_barrier_wait(d->together);
	switch (d->act) {
	case RESET_A:
		d->err = side_modify(l, l->a, kind, d->thread, IBV_QPS_RESET);
		break;
	case RESET_B:
		d->err = side_modify(l, l->b, kind, d->thread, IBV_QPS_RESET);
		break;
	case ERROR_A:
		d->err = side_modify(l, l->a, kind, d->thread, IBV_QPS_ERR);
		break;
	case ERROR_B:
		d->err = side_modify(l, l->b, kind, d->thread, IBV_QPS_ERR);
		break;
	case DESTROY_A:
		side_destroy(l, l->a, kind, d->thread);
		break;
	case DESTROY_B:
		side_destroy(l, l->b, kind, d->thread);
		break;
	case DEREG_DST:
		dereg(l, &d->set->dst, d->thread, kind);
		break;
	default:
		dereg(l, &d->set->src, d->thread, kind);
		break;
	}
	return NULL;
}

/* Two that the library lets a program do at the same time. */
static bool go_together(enum act one, enum act two)
{
	unsigned int both = BIT(one) | BIT(two);

	if (one >= DEREG_DST && one == two)
		return false;
	if ((one == DESTROY_A && BIT(two) & ACTS_ON_A) || (two == DESTROY_A && BIT(one) & ACTS_ON_A))
		return false;
	return !(both & BIT(DESTROY_B)) || (one == DESTROY_B && !(BIT(two) & ACTS_ON_B)) ||
	       (two == DESTROY_B && !(BIT(one) & ACTS_ON_B));
}

/* Returns the set of acts. */
static unsigned int take_away(struct lane *l, struct set *s)
{
	struct deed one = { .l = l, .set = s, .thread = l->id, .act = below(&l->chance, ACTS) };
	struct deed two = { .l = l, .set = s, .thread = LANES_MAX + l->id };
	pthread_barrier_t barrier;
	unsigned int acts = BIT(one.act), same;
	pthread_t thread;

	two.act = below(&l->chance, ACTS);
	if (!one_in(&l->chance, 4) || !go_together(one.act, two.act)) {
		snprintf(l->what, sizeof(l->what), "%s", act_names[one.act]);
		deed_do(&one);
		MUST(l, one.err);
		return acts;
	}
	acts |= BIT(two.act);
	snprintf(l->what, sizeof(l->what), "%s with %s", act_names[one.act], act_names[two.act]);
	pthread_barrier_init(&barrier, NULL, 2);
	one.together = &barrier;
	two.together = &barrier;
	MUST(l, pthread_create(&thread, NULL, deed_do, &two));
	deed_do(&one);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
	/* From RESET there is no way to ERR: the slower one of the two may be told so. */
	same = acts & ACTS_ON_A ? acts & ACTS_ON_A : acts & ACTS_ON_B;
	if (same == (BIT(RESET_A) | BIT(ERROR_A)) || same == (BIT(RESET_B) | BIT(ERROR_B))) {
		if ((one.err && one.err != EINVAL) || (two.err && two.err != EINVAL))
			VIOLATION(I7, l, "errors %d and %d", one.err, two.err);
	} else if (one.err || two.err) {
		VIOLATION(I7, l, "errors %d and %d", one.err, two.err);
	}
	return acts;
}

/* What may end a stream to which this was done. */
static bool is_cause(const struct lane *l, unsigned int acts, enum ibv_wc_status cause)
{
	bool keys_go = acts & (BIT(DEREG_DST) | BIT(DEREG_SRC)) || l->uses_common;

	switch (cause) {
	case IBV_WC_SUCCESS:
		return true;
	case IBV_WC_WR_FLUSH_ERR:
		return acts & BIT(ERROR_A);
	case IBV_WC_RETRY_EXC_ERR:
		return acts & ACTS_ON_B;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
		return keys_go;
	default:
		return false;
	}
}

/* I4: what is in the target is message @good over message @good - 1, up to some burst. */
static int units_landed(const struct lane *l, const struct set *s, int good)
{
	const uint64_t *word = (const uint64_t *)s->dst.addr;
	int landed = 0;

	for (size_t at = 0; at < l->size / 8; at += UNIT_WORDS) {
		size_t looked = 0, is_new = 0, is_old = 0;

		for (size_t i = at; i < at + UNIT_WORDS; i++) {
			if (is_place(i))
				continue;
			looked++;
			is_new += word[i] == msg_word(good, i);
			is_old += word[i] == msg_word(good - 1, i);
		}
		if (is_new == looked && landed == (int)(at / UNIT_WORDS))
			landed++;
		else if (is_old != looked)
			return -1;
	}
	return landed;
}

static void check_shape(struct lane *l, const struct set *s, unsigned int acts)
{
	const struct queue *sent = &l->a->send;
	int landed = units_landed(l, s, sent->good);

	if (landed < 0 || (sent->good == sent->posted && landed > 0))
		VIOLATION(I4, l, "of %d messages of %zu bytes %d succeeded; what landed of the next is no prefix",
			  sent->posted, l->size, sent->good);
	if (l->op == IBV_WR_SEND && l->b->recv.good != sent->good)
		VIOLATION(I3, l, "%d messages were sent and %d received", sent->good,
			  l->b->recv.good);
	if (acts & (acts - 1))
		return;
	for (int act = 0; act < ACTS; act++) {
		if (acts != BIT(act) || sent->good == sent->posted)
			continue;
		atomic_fetch_add(&shm->tried[act], 1);
		if (landed > 0)
			atomic_fetch_add(&shm->torn[act], 1);
	}
}

/* A queue pair that was torn down, and its completions at the moment in which the call returned. */
static void check_torn_side(struct lane *l, struct side *s, bool error, bool silent)
{
	side_take(l, s);
	if (error && !silent) {
		expect_settled(l, &s->send, I2, "when the call had returned");
		expect_settled(l, &s->recv, I2, "when the call had returned");
	}
	if (silent)
		side_end(l, s);
}

static void check_round(struct lane *l, struct set *s, unsigned int acts)
{
	struct queue *sent = &l->a->send;
	bool quiet = acts & ACTS_ON_QP;
	bool src_gone = acts & BIT(DEREG_SRC), dst_gone = acts & BIT(DEREG_DST);
	uint64_t sum = *(volatile uint64_t *)s->dst.addr, added = 0;
	ssize_t at;

	/* At once, so that bytes that move now are seen. */
	s->written_value = POISON_WRITTEN | l->life;
	s->read_value = POISON_READ | l->life;
	s->check_dst = dst_gone && !quiet ? I1 : I2;
	s->check_src = src_gone && !quiet ? I1 : I2;
	snprintf(s->what, sizeof(s->what), "%s", l->what);
	if (quiet || dst_gone)
		poison(s->dst.addr, s->dst.len, s->written_value);
	if (quiet || src_gone)
		poison(s->src.addr, s->src.len, s->read_value);

	if (acts & ACTS_ON_A)
		check_torn_side(l, l->a, acts & BIT(ERROR_A),
				acts & (BIT(RESET_A) | BIT(DESTROY_A)));
	if (acts & ACTS_ON_B)
		check_torn_side(l, l->b, acts & BIT(ERROR_B),
				acts & (BIT(RESET_B) | BIT(DESTROY_B)));
	if (!(acts & ACTS_ON_A))
		settle(l, sent);
	if (!(acts & ACTS_ON_B)) {
		enum ibv_wc_status cause = sent->cause;

		take(l, &l->b->recv);
		/* The responder has entered the error state by itself. */
		if (cause == IBV_WC_REM_ACCESS_ERR || cause == IBV_WC_REM_OP_ERR)
			settle(l, &l->b->recv);
	}
	/* Two closers of one queue pair: its requests may have been flushed or discarded. */
	if (!is_cause(l, acts, sent->cause))
		VIOLATION(I3, l, "the stream was ended by \"%s\"", ibv_wc_status_str(sent->cause));

	/* An addition that took place was reported, and the other way round. */
	for (int i = 0; i < BATCH; i++)
		added += l->adds[i] && sent->done[i];
	if (!l->shape && (quiet || dst_gone) && sum != added)
		VIOLATION(I3, l, "%llu additions took place and %llu succeeded",
			  (unsigned long long)sum, (unsigned long long)added);

	at = find_poison(s->dst.addr, s->dst.len);
	if (at >= 0)
		VIOLATION(src_gone && !quiet ? I1 : I2, l, "word %zd: a source was read afterwards: %#llx",
			  at, ((unsigned long long *)s->dst.addr)[at]);
	if (l->shape)
		check_shape(l, s, acts);
	/* By now all is over in any case. */
	if (!(quiet || dst_gone))
		poison(s->dst.addr, s->dst.len, s->written_value);
	if (!(quiet || src_gone))
		poison(s->src.addr, s->src.len, s->read_value);
	s->poisoned = true;
	if (one_in(&l->chance, 2)) {
		usleep(below(&l->chance, 3000));
		check_set(l, s);
	}
}

/* What is posted after ERR is flushed as well. */
static void post_into_error(struct lane *l, const struct set *s)
{
	struct ibv_sge sge = { .addr = remote_of(&s->src, 0), .length = 8 };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND, .num_sge = 1, .sg_list = &sge,
	};

	wr.wr_id = next_id(&l->a->send, true);
	MUST(l, post_send(l->a->rc.qp, wr));
	MUST(l, post_recv_sge(l->a->rc.qp, next_id(&l->a->recv, true), &sge, 1));
	settle(l, &l->a->send);
	settle(l, &l->a->recv);
}

static void lane_round(struct lane *l)
{
	struct set *s = &l->sets[l->round % SETS];
	struct ibv_send_wr *bad;
	struct batch batch;
	unsigned int acts;
	uint64_t end;
	int want;

	l->life++;
	l->a = &l->sides[below(&l->chance, 2)];
	l->b = l->a == l->sides ? l->sides + 1 : l->sides;
	l->shape = one_in(&l->chance, 2);
	if (l->shape) {
		static const enum ibv_wr_opcode ops[] = {
			IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
		};

		l->op = ops[below(&l->chance, ARRAY_SIZE(ops))];
		l->size = one_in(&l->chance, 4) ? 64 * KIB : SLOT;
	}
	l->uses_common = !l->shape && one_in(&l->chance, 2);

	snprintf(l->what, sizeof(l->what), "setup");
	side_renew(l, l->a);
	side_renew(l, l->b);
	set_renew(l, s);
	for (int i = 0; i < 2; i++) {
		queue_begin(l, &l->sides[i].send);
		queue_begin(l, &l->sides[i].recv);
	}
	if (l->old_rkey && one_in(&l->chance, 4)) {
		lane_connect(l, s, 0);
		try_old_key(l, s);
		return;
	}
	compose(l, s, &batch);
	lane_connect(l, s, batch.recvs);
	want = below(&l->chance, 5);
	MUST(l, ibv_post_send(l->a->rc.qp, batch.wr, &bad));

	/* Into the midst of it. */
	snprintf(l->what, sizeof(l->what), "stream");
	end = now_ns() + 20000000;
	while (l->a->send.good < want && !l->a->send.cause && now_ns() < end) {
		take(l, &l->a->send);
		sched_yield();
	}
	end = now_ns() + below(&l->chance, 500) * 1000;
	while (now_ns() < end)
		;

	l->old_rkey = s->dst.mr->rkey;
	l->old_set = s;
	acts = take_away(l, s);
	if (!(acts & BIT(DEREG_DST)))
		l->old_rkey = 0;
	check_round(l, s, acts);
	if ((acts & ACTS_ON_A) == BIT(ERROR_A) && one_in(&l->chance, 4))
		post_into_error(l, s);
	atomic_fetch_add(&shm->rounds, 1);
}

static void region_at(struct region *g, uint8_t **arena, size_t len)
{
	*g = (struct region){ .addr = *arena, .len = len };
	*arena += len;
}

static void *lane_run(void *arg)
{
	struct lane *l = arg;
	uint8_t *arena = l->w->arena + LANES_AT + l->id * LANE_BYTES;

	snprintf(l->what, sizeof(l->what), "open");
	for (int i = 0; i < SETS; i++) {
		region_at(&l->sets[i].src, &arena, SLOTS * SLOT);
		region_at(&l->sets[i].dst, &arena, SLOT);
		for (size_t word = 0; word < SLOTS * SLOT_WORDS; word++)
			((uint64_t *)l->sets[i].src.addr)[word] =
				src_word(word / SLOT_WORDS, word % SLOT_WORDS);
	}
	side_open(l, &l->sides[0], "send queue 0", "receive queue 0");
	side_open(l, &l->sides[1], "send queue 1", "receive queue 1");
	for (; !atomic_load(&shm->stop); l->round++)
		lane_round(l);
	snprintf(l->what, sizeof(l->what), "close");
	for (int i = 0; i < 2; i++)
		side_close(l, &l->sides[i]);
	for (int i = 0; i < SETS; i++) {
		check_set(l, &l->sets[i]);
		dereg(l, &l->sets[i].src, l->id, AT_REST);
		dereg(l, &l->sets[i].dst, l->id, AT_REST);
	}
	return NULL;
}

/* The regions that all lanes of a worker use. */

static void common_publish(struct lane *l, struct common *c)
{
	for (size_t i = 0; i < SHARED_BYTES / 8; i++)
		((uint64_t *)c->region.addr)[i] = old_word(i);
	reg(l, &c->region);
	atomic_store(&c->lkey, c->region.mr->lkey);
	atomic_store(&c->rkey, c->region.mr->rkey);
}

static void *reaper_run(void *arg)
{
	struct lane *l = arg;
	struct worker *w = l->w;

	snprintf(l->what, sizeof(l->what), "dereg of a region in common");
	for (; !atomic_load(&shm->stop); l->round++) {
		struct common *c = &w->common[below(&l->chance, SHARED)];
		uint64_t value = POISON_READ | l->round;
		ssize_t at;

		usleep(1000 + below(&l->chance, 30000));
		dereg(l, &c->region, l->id, DEREG);
		poison(c->region.addr, c->region.len, value);
		usleep(below(&l->chance, 5000));
		at = unpoisoned(c->region.addr, c->region.len, value);
		if (at >= 0)
			VIOLATION(I1, l, "word %zd was written afterwards: %#llx", at,
				  ((unsigned long long *)c->region.addr)[at]);
		common_publish(l, c);
	}
	return NULL;
}

/* Connections between workers: everybody is the target of the one before. */

/* Whether what the other end does can be waited for. */
static bool wait_round(struct lane *l, const _Atomic uint32_t *from, uint32_t want)
{
	uint64_t end = now_ms() + 50 + below(&l->chance, 50);

	while (atomic_load(from) != want) {
		if (atomic_load(&shm->stop) || now_ms() > end)
			return false;
		usleep(200);
	}
	return true;
}

/* One of the three ways to be rid of a queue pair. */
static enum kind cross_take_away(struct lane *l, struct side *s, struct region *g)
{
	enum kind how = below(&l->chance, 4);

	snprintf(l->what, sizeof(l->what), "%s between workers", kind_names[how]);
	switch (how) {
	case RESET:
		MUST(l, side_modify(l, s, how, l->id, IBV_QPS_RESET));
		break;
	case ERROR:
		MUST(l, side_modify(l, s, how, l->id, IBV_QPS_ERR));
		break;
	case DESTROY:
		side_destroy(l, s, how, l->id);
		break;
	default:
		dereg(l, g, l->id, how);
		break;
	}
	return how;
}

static void cross_target_round(struct lane *l, struct side *s, struct region *g)
{
	struct hello *own = &shm->target[l->w->slot];
	struct hello *peer = &shm->requester[(l->w->slot + l->w->workers - 1) % l->w->workers];
	uint32_t round = l->w->incarnation << 16 | (l->round + 1);
	uint64_t value = POISON_WRITTEN | (l->life + 1);
	enum kind how;
	ssize_t at;

	snprintf(l->what, sizeof(l->what), "setup between workers");
	l->life++;
	atomic_store(&own->round, 0);
	atomic_store(&own->connected, 0);
	side_renew(l, s);
	queue_begin(l, &s->send);
	queue_begin(l, &s->recv);
	for (size_t i = 0; i < SLOT_WORDS; i = next_place(i))
		((uint64_t *)g->addr)[i] = old_word(i);
	if (!g->mr)
		reg(l, g);
	MUST(l, rc_to_init(&s->rc));
	own->qpn = s->rc.qp->qp_num;
	own->rkey = g->mr->rkey;
	own->addr = (uintptr_t)g->addr;
	atomic_store(&own->round, round);
	if (!wait_round(l, &peer->answers, round))
		return;
	for (int i = 0; i < SPARE_RECVS; i++)
		MUST(l, post_recv_sge(s->rc.qp, next_id(&s->recv, true),
				      &(struct ibv_sge){ (uintptr_t)g->addr, 8, g->mr->lkey }, 1));
	MUST(l, rc_to_rtr(&l->w->r, &s->rc, peer->qpn));
	MUST(l, rc_to_rts(&s->rc));
	atomic_store(&own->connected, round);
	usleep(500 + below(&l->chance, 12000));
	if (*(volatile uint64_t *)g->addr != old_word(0))
		atomic_fetch_add(&shm->cross, 1);
	how = cross_take_away(l, s, g);
	poison(g->addr, g->len, value);
	side_take(l, s);
	if (how == ERROR)
		expect_settled(l, &s->recv, I2, "when the call had returned");
	usleep(below(&l->chance, 5000));
	at = unpoisoned(g->addr, g->len, value);
	if (at >= 0)
		VIOLATION(g->mr ? I2 : I1, l, "word %zd of the target was written: %#llx", at,
			  ((unsigned long long *)g->addr)[at]);
}

static void cross_requester_round(struct lane *l, struct side *s, struct region *g)
{
	struct hello *own = &shm->requester[l->w->slot];
	int to = (l->w->slot + 1) % l->w->workers;
	struct hello *peer = &shm->target[to];
	uint32_t round = atomic_load(&peer->round);
	struct ibv_send_wr wr[BATCH], *bad;
	struct ibv_sge sge[BATCH];
	enum kind how;

	if (!round) {
		usleep(1000);
		return;
	}
	snprintf(l->what, sizeof(l->what), "setup between workers");
	l->life++;
	side_renew(l, s);
	queue_begin(l, &s->send);
	queue_begin(l, &s->recv);
	for (size_t i = 0; i < SLOT_WORDS; i = next_place(i))
		((uint64_t *)g->addr)[i] = src_word(0, i);
	if (!g->mr)
		reg(l, g);
	MUST(l, rc_to_init(&s->rc));
	MUST(l, rc_to_rtr(&l->w->r, &s->rc, peer->qpn));
	MUST(l, rc_to_rts(&s->rc));
	own->qpn = s->rc.qp->qp_num;
	atomic_store(&own->answers, round);
	if (!wait_round(l, &peer->connected, round))
		return;
	for (int i = 0; i < BATCH; i++) {
		sge[i] = sge_of(g, 0, SLOT);
		wr[i] = (struct ibv_send_wr){
			.wr_id = next_id(&s->send, true),
			.next = i + 1 < BATCH ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma.remote_addr = peer->addr,
			.wr.rdma.rkey = peer->rkey,
		};
	}
	MUST(l, ibv_post_send(s->rc.qp, wr, &bad));
	usleep(below(&l->chance, 12000));
	/* Or leave it to the other end, which may be killed, too. */
	if (one_in(&l->chance, 2)) {
		settle(l, &s->send);
		return;
	}
	how = cross_take_away(l, s, g);
	poison(g->addr, g->len, POISON_READ | l->life);
	side_take(l, s);
	if (how == ERROR)
		expect_settled(l, &s->send, I2, "when the call had returned");
	else if (how == DEREG)
		settle(l, &s->send);
}

struct cross {
	struct lane lane;
	bool target;
};

static void *cross_run(void *arg)
{
	struct cross *x = arg;
	struct lane *l = &x->lane;
	uint8_t *arena = l->w->arena + CROSS_AT + (x->target ? SLOT : 0);
	struct side side = { 0 };
	struct region g;

	region_at(&g, &arena, SLOT);
	snprintf(l->what, sizeof(l->what), "open");
	side_open(l, &side, "send queue", "receive queue");
	for (; !atomic_load(&shm->stop); l->round++) {
		if (x->target)
			cross_target_round(l, &side, &g);
		else
			cross_requester_round(l, &side, &g);
	}
	snprintf(l->what, sizeof(l->what), "close");
	side_close(l, &side);
	dereg(l, &g, l->id, AT_REST);
	return NULL;
}

/* A worker. */

static void lane_init(struct lane *l, struct worker *w, int id)
{
	l->w = w;
	l->id = id;
	l->chance = chance_of(w->slot + 1, w->incarnation / WORKERS_MAX, id + 1);
}

static void worker_run(int slot, uint32_t incarnation, const char *dev, bool own_link, int lanes,
		       int workers)
{
	struct worker *w = calloc(1, sizeof(*w));
	struct lane *lane = calloc(LANES_MAX + 1, sizeof(*lane)), *reaper = &lane[LANES_MAX];
	struct cross *cross = calloc(2, sizeof(*cross));
	pthread_t threads[LANES_MAX + 3];
	uint8_t *arena;
	int n = 0;

	*w = (struct worker){
		.slot = slot, .incarnation = incarnation, .own_link = own_link, .lanes = lanes,
		.arena = arenas + slot * ARENA_BYTES, .cross = !own_link && workers > 1,
		.workers = workers,
	};
	lane_init(reaper, w, 2 * LANES_MAX);
	snprintf(reaper->what, sizeof(reaper->what), "open");
	MUST(reaper, rdma_open_name(&w->r, dev));
	arena = w->arena;
	for (int i = 0; i < SHARED; i++) {
		region_at(&w->common[i].region, &arena, SHARED_BYTES);
		common_publish(reaper, &w->common[i]);
	}
	for (int i = 0; i < lanes; i++) {
		lane_init(&lane[i], w, i);
		MUST(reaper, pthread_create(&threads[n++], NULL, lane_run, &lane[i]));
	}
	for (int i = 0; w->cross && i < 2; i++) {
		lane_init(&cross[i].lane, w, 2 * LANES_MAX + 1 + i);
		cross[i].target = i;
		MUST(reaper, pthread_create(&threads[n++], NULL, cross_run, &cross[i]));
	}
	reaper_run(reaper);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	snprintf(reaper->what, sizeof(reaper->what), "close");
	for (int i = 0; i < SHARED; i++)
		dereg(reaper, &w->common[i].region, reaper->id, AT_REST);
	MUST(reaper, ibv_dealloc_pd(w->r.pd));
	MUST(reaper, ibv_close_device(w->r.ctx));
	_exit(0);
}

/* The controller. */

struct control {
	struct chance chance;
	const char *dev;
	int workers; /* on the device under test */
	int total;   /* and the one on the device of our own */
	int lanes;
	uint32_t births;
	pid_t pids[WORKERS_MAX];
	char saved[4][32];
	uint64_t kills, removals, changes;
};

static const char *const knobs[4] = { "reset_policy", "revoke_policy", "drain_timeout_ms",
				      "burst_bytes" };

static bool knob_set(const char *dev, const char *knob, const char *value)
{
	char path[128];
	bool ok;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/%s", dev, knob);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return false;
	ok = write(fd, value, strlen(value)) == (ssize_t)strlen(value);
	close(fd);
	return ok;
}

static bool knob_get(const char *dev, const char *knob, char *value, size_t max)
{
	char path[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/%s", dev, knob);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? -1 : read(fd, value, max - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	value[n] = 0;
	value[strcspn(value, "\n")] = 0;
	return true;
}

static void change_policy(struct control *c, const char *dev)
{
	static const char *const values[4][5] = {
		{ "drain", "abort", "abort", "drain", "abort" },
		{ "cancel", "drain", "cancel", "drain", "cancel" },
		{ "0", "1", "20", "200", "1000" },
		{ "4096", "16384", "65536", "262144", "1048576" },
	};
	int i = below(&c->chance, 4);
	const char *value = values[i][below(&c->chance, 5)];

	if (!c->saved[0][0])
		return;
	c->changes++;
	if (!knob_set(dev, knobs[i], value))
		violation(CALLS, "controller", "%s of %s cannot be set to %s: %s", knobs[i], dev,
			  value, strerror(errno));
}

static int lanes_of(const struct control *c, int slot)
{
	return slot < c->workers ? c->lanes : OWN_LANES;
}

static void spawn(struct control *c, int slot)
{
	bool own = slot >= c->workers;
	uint32_t incarnation = ++c->births * WORKERS_MAX + slot;

	memset(&shm->pending[slot], 0, sizeof(shm->pending[slot]));
	memset(&shm->target[slot], 0, sizeof(shm->target[slot]));
	memset(&shm->requester[slot], 0, sizeof(shm->requester[slot]));
	atomic_store(&shm->doomed[slot], false);
	atomic_store(&shm->incarnation[slot], incarnation);
	c->pids[slot] = fork();
	if (c->pids[slot])
		return;
	worker_run(slot, incarnation, own ? OWN_DEV : c->dev, own, lanes_of(c, slot), c->workers);
}

/* Waits for the end of a worker; false if it does not come. */
static bool reap(struct control *c, int slot, int *status, unsigned int ms)
{
	uint64_t end = now_ms() + ms;
	pid_t pid;

	while ((pid = waitpid(c->pids[slot], status, WNOHANG)) == 0) {
		if (now_ms() > end)
			return false;
		usleep(200);
	}
	c->pids[slot] = 0;
	return true;
}

/* Nobody may touch the memory of a worker that is gone, or has lost its device. */
static size_t arena_used(const struct control *c, int slot)
{
	return LANES_AT + lanes_of(c, slot) * LANE_BYTES;
}

static void poison_arena(const struct control *c, int slot, uint64_t value)
{
	poison(arenas + slot * ARENA_BYTES, arena_used(c, slot), value);
}

static void check_arena(struct control *c, int slot, uint64_t value, const char *what)
{
	ssize_t at;

	usleep(1000 + below(&c->chance, 5000));
	at = unpoisoned(arenas + slot * ARENA_BYTES, arena_used(c, slot), value);
	if (at >= 0)
		violation(I7, what, "worker %d: word %zd of its memory was written: %#llx", slot, at,
			  ((unsigned long long *)(arenas + slot * ARENA_BYTES))[at]);
}

/* Ends a worker in the midst of whatever it does. */
static void kill_worker(struct control *c, int slot)
{
	uint64_t since, us, value = POISON_WRITTEN | c->births;
	int status;

	/* The keys that it holds go with it. */
	atomic_store(&shm->incarnation[slot], 0);
	atomic_store(&shm->requester[slot].answers, 0);
	since = call_begin(WORKERS_MAX, 0, EXIT);
	kill(c->pids[slot], SIGKILL);
	if (!reap(c, slot, &status, 4 * BOUND_MS)) {
		violation(I7, "controller", "worker %d has not ended %d s after kill -9", slot,
			  4 * BOUND_MS / 1000);
		atomic_store(&shm->stop, true);
		return;
	}
	us = call_end(WORKERS_MAX, 0, EXIT, since);
	/* It had many objects, each of which may take its time. */
	if (us > 2 * BOUND_MS * 1000)
		violation(I5, "controller", "exit took %llu ms", (unsigned long long)us / 1000);
	poison_arena(c, slot, value);
	check_arena(c, slot, value, "after kill -9");
	c->kills++;
}

static int shell(const char *command)
{
	char text[256];
	int status;

	snprintf(text, sizeof(text), "timeout -k 5 %u %s >/dev/null 2>&1", 30 * slowness(), command);
	status = system(text);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool own_link_add(void)
{
	struct rdma r;

	madvise((void *)keys[1], KEY_TABLE_BYTES, MADV_REMOVE);
	if (shell("rdma link add " OWN_DEV " type sluice netdev " OWN_NETDEV))
		return false;
	/* Its addresses appear a little later. */
	for (unsigned int i = 0; i < 200 * slowness(); i++) {
		char gid[64];
		bool there = knob_get(OWN_DEV, "ports/1/gids/0", gid, sizeof(gid)) &&
			     strcmp(gid, "0000:0000:0000:0000:0000:0000:0000:0000");

		if (there && !rdma_open_name(&r, OWN_DEV)) {
			rdma_close(&r);
			return true;
		}
		usleep(10000);
	}
	return false;
}

static bool own_link_setup(void)
{
	shell("ip link add " OWN_NETDEV " type dummy");
	shell("sysctl -q -w net.ipv6.conf." OWN_NETDEV ".accept_dad=0");
	return !shell("ip link set " OWN_NETDEV " mtu 4608 up") &&
	       !shell("ip addr replace 192.168.96.1/24 dev " OWN_NETDEV) && own_link_add();
}

static void own_link_end(void)
{
	shell("rdma link del " OWN_DEV);
	shell("ip link del " OWN_NETDEV);
}

/* Removes the device of our own under its worker, which stands still or runs on. */
static void remove_link(struct control *c)
{
	bool still = one_in(&c->chance, 2);
	uint64_t since, value = POISON_WRITTEN | c->births;
	int slot = c->workers, status, code;

	atomic_store(&shm->doomed[slot], true);
	atomic_store(&shm->incarnation[slot], 0);
	if (still) {
		kill(c->pids[slot], SIGSTOP);
		waitpid(c->pids[slot], &status, WUNTRACED);
	}
	since = call_begin(WORKERS_MAX, 0, REMOVAL);
	code = shell("rdma link del " OWN_DEV);
	call_end(WORKERS_MAX, 0, REMOVAL, since);
	if (code)
		violation(I7, "controller", "\"rdma link del\" ends with %d", code);
	if (still) {
		poison_arena(c, slot, value);
		check_arena(c, slot, value, "after the removal of its device");
	}
	kill_worker(c, slot);
	c->removals++;
	if (atomic_load(&shm->stop))
		return;
	if (!own_link_add())
		violation(I7, "controller", "the link cannot be added again");
	else
		spawn(c, slot);
}

/* Calls that do not return, and workers that end by themselves. */
static void look_after(struct control *c)
{
	uint64_t now = now_ns();
	char what[64];

	for (int slot = 0; slot < c->total; slot++) {
		int status;

		for (int i = 0; i < THREADS_MAX; i++) {
			struct pending *p = &shm->pending[slot][i];
			uint64_t since = atomic_load(&p->since);

			if (!since || since > now || now - since < 4 * BOUND_MS * 1000000ULL)
				continue;
			snprintf(what, sizeof(what), "worker %d thread %d", slot, i);
			violation(I5, what, "%s does not return", kind_names[p->kind]);
			atomic_store(&shm->stop, true);
			return;
		}
		if (!c->pids[slot] || waitpid(c->pids[slot], &status, WNOHANG) <= 0)
			continue;
		c->pids[slot] = 0;
		if (atomic_load(&shm->stop))
			continue;
		snprintf(what, sizeof(what), "worker %d", slot);
		violation(CALLS, what, "ended with status %#x", status);
		atomic_store(&shm->stop, true);
	}
}

/* All workers end in an orderly way. */
static void finish(struct control *c)
{
	atomic_store(&shm->stop, true);
	for (int slot = 0; slot < c->total; slot++) {
		int status;

		if (!c->pids[slot])
			continue;
		if (!reap(c, slot, &status, 2 * WAIT_MS)) {
			violation(I7, "controller", "worker %d does not come to its end", slot);
			kill(c->pids[slot], SIGKILL);
			if (!reap(c, slot, &status, WAIT_MS))
				violation(I7, "controller", "worker %d cannot be killed", slot);
		} else if (status && !shm->violations) {
			violation(CALLS, "controller", "worker %d ended with status %#x", slot,
				  status);
		}
	}
}

static void run(struct control *c, uint64_t teardowns, uint64_t seconds)
{
	uint64_t begin = now_ms(), next_kill = begin + 300, next_removal = begin + 1000;
	uint64_t progress = 0, progress_at = begin, shown = 1, broken_at = 0;

	for (int slot = 0; slot < c->total; slot++)
		spawn(c, slot);
	while (!atomic_load(&shm->stop)) {
		uint64_t now, done = atomic_load(&shm->teardowns);

		usleep(1000 + below(&c->chance, 8000));
		now = now_ms();
		look_after(c);
		if (one_in(&c->chance, 2))
			change_policy(c, c->dev);
		if (c->total > c->workers && one_in(&c->chance, 8))
			change_policy(c, OWN_DEV);
		if (atomic_load(&shm->stop))
			break;
		if (now >= next_kill) {
			int slot = below(&c->chance, c->total);

			kill_worker(c, slot);
			if (!atomic_load(&shm->stop))
				spawn(c, slot);
			next_kill = now_ms() + 200 + below(&c->chance, 600);
		} else if (c->total > c->workers && now >= next_removal) {
			remove_link(c);
			next_removal = now_ms() + 800 + below(&c->chance, 1500);
		}
		if (done != progress) {
			progress = done;
			progress_at = now;
		} else if (now - progress_at > 2 * WAIT_MS) {
			violation(I7, "controller", "nothing has happened for %d s",
				  2 * WAIT_MS / 1000);
			break;
		}
		if (done >= shown * 10000) {
			ksft_print_msg("%llu teardowns after %llu s\n", (unsigned long long)done,
				       (unsigned long long)(now - begin) / 1000);
			shown = done / 10000 + 1;
		}
		/* More of them may help to understand the first one. */
		if (atomic_load(&shm->violations) && !broken_at)
			broken_at = now;
		if (broken_at && now - broken_at > AFTERWARDS_MS)
			break;
		if (done >= teardowns || (seconds && now - begin > seconds * 1000))
			break;
	}
	finish(c);
}

/* The streams were really interrupted in the midst of messages, in each way. */
static void check_coverage(const struct control *c)
{
	static const struct {
		const char *name;
		unsigned int acts;
	} ways[] = {
		{ "the requester's queue pair", ACTS_ON_A },
		{ "the responder's queue pair", ACTS_ON_B },
		{ "a region", BIT(DEREG_DST) | BIT(DEREG_SRC) },
	};

	for (size_t i = 0; c->saved[0][0] && i < ARRAY_SIZE(ways); i++) {
		uint64_t tried = 0, torn = 0;

		for (int act = 0; act < ACTS; act++) {
			tried += ways[i].acts & BIT(act) ? shm->tried[act] : 0;
			torn += ways[i].acts & BIT(act) ? shm->torn[act] : 0;
		}
		/* A slow kernel runs other things between a message and what takes it away. */
		if (tried >= COVERAGE_STREAMS * slowness() && !torn)
			violation(COVERAGE, ways[i].name, "no message was cut in %llu streams",
				  (unsigned long long)tried);
	}
}

static void summary(const struct control *c)
{
	ksft_print_msg("%llu teardowns: %llu rounds, %llu completions, %llu kills, %llu removals, %llu changes of policy, %llu streams between workers\n",
		       (unsigned long long)shm->teardowns, (unsigned long long)shm->rounds,
		       (unsigned long long)shm->completions, (unsigned long long)c->kills,
		       (unsigned long long)c->removals, (unsigned long long)c->changes,
		       (unsigned long long)shm->cross);
	for (int kind = 0; kind < KINDS; kind++) {
		const struct histogram *h = &shm->times[kind];
		uint64_t count, median = quantile(h, 0.5, &count), tail = quantile(h, 0.99, &count);

		if (count)
			ksft_print_msg("%-22s %7llu calls: p50 %7llu us, p99 %7llu us, max %7llu us\n",
				       kind_names[kind], (unsigned long long)count,
				       (unsigned long long)median, (unsigned long long)tail,
				       (unsigned long long)h->max_us);
	}
	for (int act = 0; act < ACTS; act++)
		ksft_print_msg("%-22s %7llu streams of large messages cut short, %llu within a message\n",
			       act_names[act], (unsigned long long)shm->tried[act],
			       (unsigned long long)shm->torn[act]);
}

static void *map_shared(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		ksft_exit_fail_msg("no memory: %s\n", strerror(errno));
	return p;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

int main(void)
{
	struct control c = { .dev = device_name() };
	uint64_t limit = number("SLUICE_TEARDOWNS", 0);
	struct rdma r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	ksft_print_header();
	if (rdma_open(&r))
		ksft_exit_skip("no device %s\n", c.dev);
	rdma_close(&r);
	ksft_set_plan(CHECKS);

	shm = map_shared(sizeof(*shm));
	keys[0] = map_shared(KEY_TABLE_BYTES);
	keys[1] = map_shared(KEY_TABLE_BYTES);
	arenas = map_shared(WORKERS_MAX * ARENA_BYTES);
	shm->seed = number("SLUICE_SEED", now_ns() / 1000 % 1000000000);
	c.chance = chance_of(0, 0, 0);
	c.workers = number("SLUICE_WORKERS", 3);
	c.lanes = number("SLUICE_LANES", 3);
	if (c.workers < 1 || c.workers >= WORKERS_MAX || c.lanes < 1 || c.lanes > LANES_MAX)
		ksft_exit_fail_msg("that many workers or lanes there cannot be\n");
	c.total = c.workers;
	ksft_print_msg("seed %llu (SLUICE_SEED), %d workers with %d lanes each\n",
		       (unsigned long long)shm->seed, c.workers, c.lanes);
	for (int i = 0; i < 4; i++)
		if (!knob_get(c.dev, knobs[i], c.saved[i], sizeof(c.saved[i])))
			c.saved[0][0] = 0;
	if (!getenv("SLUICE_NO_LINK") && !own_link_setup())
		ksft_print_msg("no device of our own: no link is removed\n");
	else if (!getenv("SLUICE_NO_LINK"))
		c.total++;

	run(&c, limit ? limit : DEFAULT_TEARDOWNS, limit ? 0 : DEFAULT_SECONDS);

	for (int i = 0; i < 4 && c.saved[0][0]; i++)
		knob_set(c.dev, knobs[i], c.saved[i]);
	if (c.total > c.workers)
		own_link_end();
	check_coverage(&c);
	summary(&c);
	for (int i = 0; i < CHECKS; i++)
		ksft_test_result(!shm->broken[i], "torture.%s\n", check_names[i]);
	ksft_finished();
}
