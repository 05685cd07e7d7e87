// SPDX-License-Identifier: GPL-2.0
/*
 * The teardown contract (Documentation/teardown.rst) with its default policies: reset_policy
 * drain, revoke_policy cancel. Something is taken away from a running stream of 1 MiB messages;
 * the invariants I1 to I7 have tests named after them. (I8 is about memory windows.)
 */

#include "kselftest_harness.h"
#include "stream.h"

#include <pthread.h>
#include <signal.h>

#define BOUND_MS (5000 * slowness())
#define QUIET_US 30000

/* The longest of several calls. */
struct longest {
	uint64_t ns;
};

static void took(struct longest *longest, uint64_t start)
{
	uint64_t ns = now_ns() - start;

	if (ns > longest->ns)
		longest->ns = ns;
}

#define EXPECT_BOUNDED(longest, what)                                                              \
	do {                                                                                       \
		EXPECT_LT((longest).ns, BOUND_MS * 1000000ULL);                                    \
		TH_LOG("%s: at most %llu us", what, (unsigned long long)(longest).ns / 1000);      \
	} while (0)

/* Deregistration in mid-stream. */

FIXTURE(dereg) {
	struct stream s;
};

FIXTURE_VARIANT(dereg) {
	enum ibv_wr_opcode op;
	bool far; /* the responder's region goes, not the requester's */
	enum ibv_wc_status want;
};

FIXTURE_VARIANT_ADD(dereg, write_remote) {
	.op = IBV_WR_RDMA_WRITE, .far = true, .want = IBV_WC_REM_ACCESS_ERR,
};

FIXTURE_VARIANT_ADD(dereg, write_local) {
	.op = IBV_WR_RDMA_WRITE, .far = false, .want = IBV_WC_LOC_PROT_ERR,
};

FIXTURE_VARIANT_ADD(dereg, read_remote) {
	.op = IBV_WR_RDMA_READ, .far = true, .want = IBV_WC_REM_ACCESS_ERR,
};

FIXTURE_VARIANT_ADD(dereg, read_local) {
	.op = IBV_WR_RDMA_READ, .far = false, .want = IBV_WC_LOC_PROT_ERR,
};

FIXTURE_VARIANT_ADD(dereg, send_remote) {
	.op = IBV_WR_SEND, .far = true, .want = IBV_WC_REM_OP_ERR,
};

FIXTURE_VARIANT_ADD(dereg, send_local) {
	.op = IBV_WR_SEND, .far = false, .want = IBV_WC_LOC_PROT_ERR,
};

FIXTURE_SETUP(dereg)
{
	srandom(1);
	ASSERT_EQ(0, stream_open(&self->s, variant->op));
}

FIXTURE_TEARDOWN(dereg)
{
	stream_close(&self->s);
}

static struct region *dereg_victim(FIXTURE_DATA(dereg) *self,
				   const FIXTURE_VARIANT(dereg) *variant)
{
	bool written = (variant->op == IBV_WR_RDMA_READ) != variant->far;

	return written ? &self->s.dst : &self->s.src;
}

/* A running stream from which the region has just been taken; poisoned the next instant. */
static void dereg_in_midstream(struct __test_metadata *_metadata, FIXTURE_DATA(dereg) *self,
			       const FIXTURE_VARIANT(dereg) *variant, struct longest *longest)
{
	struct region *victim = dereg_victim(self, variant);
	uint64_t start;

	ASSERT_EQ(0, stream_renew(&self->s));
	ASSERT_EQ(0, stream_start(&self->s));
	stream_run(&self->s, 1 + random() % 8, 400);
	start = now_ns();
	ASSERT_EQ(0, region_dereg(victim));
	poison(victim->addr, victim->len / 8,
	       victim == &self->s.dst ? POISON_WRITTEN : POISON_READ);
	took(longest, start);
}

TEST_F_TIMEOUT(dereg, I1_no_byte_is_touched_afterwards, 60)
{
	bool writes = dereg_victim(self, variant) == &self->s.dst;
	struct longest longest = { 0 };
	int interrupted = 0;

	for (int round = 0; round < 20; round++) {
		struct stream *s = &self->s;

		dereg_in_midstream(_metadata, self, variant, &longest);
		stream_collect(s, MESSAGES, LIMIT_MS);
		usleep(QUIET_US);
		interrupted += stream_good(s) < MESSAGES;
		if (writes) {
			ASSERT_TRUE(poison_intact(s->dst.addr, WORDS, POISON_WRITTEN))
				TH_LOG("round %d: the region was written afterwards", round);
		} else {
			const uint64_t *word = (const uint64_t *)s->dst.addr;

			for (size_t i = 0; i < WORDS; i++)
				ASSERT_NE(POISON_READ, word[i])
					TH_LOG("round %d: the region was read afterwards", round);
			ASSERT_TRUE(poison_intact(s->src.addr, SLOTS * WORDS, POISON_READ));
		}
	}
	EXPECT_GT(interrupted, 0) TH_LOG("no stream was still running");
	EXPECT_BOUNDED(longest, "ibv_dereg_mr");
}

TEST_F_TIMEOUT(dereg, statuses_at_both_ends, 60)
{
	struct longest longest = { 0 };
	int interrupted = 0;

	for (int round = 0; round < 10; round++) {
		struct stream *s = &self->s;
		int good;

		dereg_in_midstream(_metadata, self, variant, &longest);
		stream_collect(s, MESSAGES, LIMIT_MS);
		/* I3: each request completed once: successes, one cause, the rest flushed. */
		ASSERT_EQ(MESSAGES, s->completed);
		ASSERT_TRUE(cq_quiet(s->p.a.scq));
		for (int i = 0; i < MESSAGES; i++) {
			ASSERT_EQ(i, s->wc[i].wr_id);
		}
		good = stream_good(s);
		if (good == MESSAGES)
			continue;
		interrupted++;
		ASSERT_EQ(variant->want, s->wc[good].status)
			TH_LOG("after %d messages: \"%s\", not \"%s\"", good,
			       ibv_wc_status_str(s->wc[good].status),
			       ibv_wc_status_str(variant->want));
		for (int i = good + 1; i < MESSAGES; i++)
			ASSERT_EQ(IBV_WC_WR_FLUSH_ERR, s->wc[i].status);
		EXPECT_STATE(IBV_QPS_ERR, s->p.a.qp);

		if (variant->op == IBV_WR_SEND) {
			for (int i = 0; i < good; i++)
				EXPECT_WC(s->p.b.rcq, i, IBV_WC_SUCCESS);
			if (variant->far)
				EXPECT_WC(s->p.b.rcq, good, IBV_WC_LOC_PROT_ERR);
		}
		if (!variant->far) {
			EXPECT_EQ(IBV_QPS_RTS, qp_state(s->p.b.qp)) TH_LOG("the peer noticed");
			continue;
		}
		EXPECT_STATE(IBV_QPS_ERR, s->p.b.qp);
		if (variant->op != IBV_WR_SEND)
			EXPECT_TRUE(qp_event_comes(s->r.ctx, IBV_EVENT_QP_ACCESS_ERR, s->p.b.qp,
						   LIMIT_MS))
				TH_LOG("no access error event");
	}
	EXPECT_GT(interrupted, 0) TH_LOG("no stream was still running");
}

TEST_F_TIMEOUT(dereg, I4_a_prefix_of_whole_bursts_has_landed, 60)
{
	bool writes = dereg_victim(self, variant) == &self->s.dst;
	struct longest longest = { 0 };
	int cut = 0;

	for (int round = 0; round < 30; round++) {
		struct stream *s = &self->s;
		int good, landed;

		dereg_in_midstream(_metadata, self, variant, &longest);
		stream_collect(s, MESSAGES, LIMIT_MS);
		good = stream_good(s);
		if (good == MESSAGES)
			continue;
		landed = bursts_landed(s, good, writes);
		ASSERT_GE(landed, 0)
			TH_LOG("round %d: what landed of message %d is no prefix of whole bursts",
			       round, good);
		cut += landed && landed < (int)(MSG / burst_bytes());
		/* And it stays like that. */
		usleep(QUIET_US);
		ASSERT_EQ(landed, bursts_landed(s, good, writes));
	}
	TH_LOG("%d of 30 streams were cut inside a message", cut);
	EXPECT_GT(cut, 0);
}

/* Contract, section 4, last column: what is posted and has not started faults when it starts. */
TEST(dereg_of_a_region_that_waits)
{
	struct region src, dst;
	struct rdma r;

	ASSERT_EQ(0, rdma_open(&r));
	ASSERT_EQ(0, region_create(&dst, r.pd, 64, RC_ACCESS));
	memset(dst.addr, 7, 64);
	for (int round = 0; round < 20; round++) {
		uint64_t start;
		struct pair p;

		ASSERT_EQ(0, pair_create(&r, &p, NULL));
		ASSERT_EQ(0, region_create(&src, r.pd, 64, RC_ACCESS));
		/* The receiver is not ready, and the sender has all the time there is. */
		ASSERT_EQ(0, post_msg(p.a.qp, 1, &src, 64));
		ASSERT_EQ(0, post_msg(p.a.qp, 2, &src, 64));
		usleep(round * 300);
		start = now_ms();
		ASSERT_EQ(0, region_dereg(&src));
		EXPECT_LT(now_ms() - start, BOUND_MS);
		ASSERT_EQ(0, post_recv(p.b.qp, 3, &dst, 64));
		EXPECT_WC(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
		EXPECT_WC(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
		EXPECT_EQ(IBV_QPS_RTS, qp_state(p.b.qp));
		EXPECT_EQ(0, drain_cq(p.b.rcq));
		EXPECT_TRUE(all_bytes(dst.addr, 64, 7));
		pair_destroy(&p);
		region_free(&src);
	}
	region_free(&dst);
	rdma_close(&r);
}

/* A queue pair is taken out of the stream. */

FIXTURE(qp) {
	struct stream s;
};

enum how { RESET, ERR, DESTROY };

FIXTURE_VARIANT(qp) {
	enum ibv_wr_opcode op;
	enum how how;
	bool far; /* the responder's queue pair */
};

#define QP_VARIANTS(name, opcode)                                                                  \
	FIXTURE_VARIANT_ADD(qp, name##_reset) { .op = opcode, .how = RESET };                      \
	FIXTURE_VARIANT_ADD(qp, name##_error) { .op = opcode, .how = ERR };                        \
	FIXTURE_VARIANT_ADD(qp, name##_destroy) { .op = opcode, .how = DESTROY };                  \
	FIXTURE_VARIANT_ADD(qp, name##_peer_reset) { .op = opcode, .how = RESET, .far = true };    \
	FIXTURE_VARIANT_ADD(qp, name##_peer_error) { .op = opcode, .how = ERR, .far = true };      \
	FIXTURE_VARIANT_ADD(qp, name##_peer_destroy) { .op = opcode, .how = DESTROY, .far = true }

QP_VARIANTS(write, IBV_WR_RDMA_WRITE);
QP_VARIANTS(read, IBV_WR_RDMA_READ);
QP_VARIANTS(send, IBV_WR_SEND);

FIXTURE_SETUP(qp)
{
	srandom(2);
	ASSERT_EQ(0, stream_open(&self->s, variant->op));
}

FIXTURE_TEARDOWN(qp)
{
	stream_close(&self->s);
}

static int take_down(struct rc *q, enum how how)
{
	int err = how == DESTROY ? ibv_destroy_qp(q->qp) :
				   qp_to(q->qp, how == RESET ? IBV_QPS_RESET : IBV_QPS_ERR);

	if (how == DESTROY && !err)
		q->qp = NULL;
	return err;
}

/* The requester's own queue pair went; what had completed by then is in s->wc. */
static void expect_requester_settled(struct __test_metadata *_metadata, struct stream *s,
				     enum how how)
{
	int good = stream_good(s);

	for (int i = 0; i < s->completed; i++)
		ASSERT_EQ(i, s->wc[i].wr_id);
	if (how == ERR) {
		/* I2, I3: every request, at once, exactly once. */
		ASSERT_EQ(MESSAGES, s->completed)
			TH_LOG("%d completions were there when the call returned", s->completed);
		for (int i = good; i < MESSAGES; i++)
			ASSERT_EQ(IBV_WC_WR_FLUSH_ERR, s->wc[i].status);
	} else {
		ASSERT_EQ(good, s->completed)
			TH_LOG("\"%s\"", ibv_wc_status_str(s->wc[good].status));
	}
	ASSERT_EQ(0, drain_cq(s->p.a.scq)) TH_LOG("a completion came afterwards");
}

/* The responder's receives, where there are any. */
static void expect_receives_settled(struct __test_metadata *_metadata, struct stream *s,
				    const FIXTURE_VARIANT(qp) *variant, int good)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(s->p.b.rcq, 1, &wc) > 0) {
		ASSERT_EQ(n, wc.wr_id);
		ASSERT_EQ(n < good ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR, wc.status)
			TH_LOG("receive %d of %d: \"%s\"", n, good, ibv_wc_status_str(wc.status));
		n++;
	}
	EXPECT_EQ(variant->far && variant->how == ERR ? MESSAGES : good, n);
}

TEST_F_TIMEOUT(qp, I2_I3_no_byte_moves_and_every_request_is_accounted_for, 60)
{
	struct longest longest = { 0 };
	int interrupted = 0;

	for (int round = 0; round < 12; round++) {
		struct stream *s = &self->s;
		uint64_t start;
		int good;

		ASSERT_EQ(0, stream_renew(s));
		ASSERT_EQ(0, stream_start(s));
		stream_run(s, 1 + random() % 8, 400);
		start = now_ns();
		ASSERT_EQ(0, take_down(variant->far ? &s->p.b : &s->p.a, variant->how));
		poison(s->dst.addr, WORDS, POISON_WRITTEN);
		poison(s->src.addr, SLOTS * WORDS, POISON_READ);
		took(&longest, start);

		/* The near end at once; the far end's requester finds out by its timer. */
		stream_collect(s, MESSAGES, variant->far ? LIMIT_MS : 0);
		usleep(QUIET_US);
		good = stream_good(s);
		interrupted += good < MESSAGES;
		if (!variant->far) {
			expect_requester_settled(_metadata, s, variant->how);
		} else if (good < MESSAGES) {
			ASSERT_EQ(MESSAGES, s->completed);
			ASSERT_EQ(IBV_WC_RETRY_EXC_ERR, s->wc[good].status)
				TH_LOG("\"%s\"", ibv_wc_status_str(s->wc[good].status));
		}
		ASSERT_TRUE(poison_intact(s->dst.addr, WORDS, POISON_WRITTEN))
			TH_LOG("round %d: bytes were written afterwards", round);
		/* Drained: the message that was running ended by itself, the next never began. */
		ASSERT_EQ(0, bursts_landed(s, good, true))
			TH_LOG("round %d: the target does not hold exactly message %d", round,
			       good - 1);
		if (variant->op == IBV_WR_SEND)
			expect_receives_settled(_metadata, s, variant, good);
	}
	EXPECT_GT(interrupted, 0) TH_LOG("no stream was still running");
	EXPECT_BOUNDED(longest, "the call");
}

/* Several streams at once, each with a thread that keeps it going. */

#define PUMPS 4

struct pump {
	struct rdma *r;
	struct pair p;
	struct region src, *dst;
	bool stop;
	int err;
	enum ibv_wc_status ended; /* first status that was no success */
	long messages;
};

static void *pump_run(void *arg)
{
	struct pump *pump = arg;
	int outstanding = 0;
	struct ibv_wc wc;

	while (!__atomic_load_n(&pump->stop, __ATOMIC_ACQUIRE) && !pump->ended && !pump->err) {
		while (outstanding < 4 && !pump->err) {
			pump->err = post_rdma(pump->p.a.qp, 0, IBV_WR_RDMA_WRITE, &pump->src, MSG,
					      pump->dst);
			outstanding++;
		}
		if (poll_one(pump->p.a.scq, &wc) != 1) {
			pump->err = ETIMEDOUT;
			break;
		}
		outstanding--;
		pump->ended = wc.status;
		pump->messages++;
	}
	return NULL;
}

static int pump_open(struct pump *pump, struct rdma *r, struct region *dst)
{
	int err;

	*pump = (struct pump){ .r = r, .dst = dst };
	err = pair_create(r, &pump->p, NULL);
	return err ? err : region_create(&pump->src, r->pd, MSG, RC_ACCESS);
}

static void pump_close(struct pump *pump)
{
	pair_destroy(&pump->p);
	region_free(&pump->src);
}

FIXTURE(load) {
	struct rdma r;
	struct pump pumps[PUMPS];
	pthread_t threads[PUMPS];
	struct region dst;
};

FIXTURE_SETUP(load)
{
	srandom(3);
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, MSG, RC_ACCESS));
	for (int i = 0; i < PUMPS; i++) {
		ASSERT_EQ(0, pump_open(&self->pumps[i], &self->r, &self->dst));
		ASSERT_EQ(0, pthread_create(&self->threads[i], NULL, pump_run, &self->pumps[i]));
	}
	sleep_ms(50);
}

FIXTURE_TEARDOWN(load)
{
	for (int i = 0; i < PUMPS; i++) {
		__atomic_store_n(&self->pumps[i].stop, true, __ATOMIC_RELEASE);
		pthread_join(self->threads[i], NULL);
		pump_close(&self->pumps[i]);
	}
	region_free(&self->dst);
	rdma_close(&self->r);
}

TEST_F_TIMEOUT(load, I5_every_teardown_is_bounded, 90)
{
	struct longest dereg = { 0 }, reset = { 0 }, error = { 0 }, destroy = { 0 };
	uint64_t end = now_ms() + 12000;
	int rounds = 0;

	for (; rounds < 60 && now_ms() < end; rounds++) {
		struct pump victim;
		pthread_t thread;
		struct region own;
		uint64_t start;

		ASSERT_EQ(0, region_create(&own, self->r.pd, MSG, RC_ACCESS));
		ASSERT_EQ(0, pump_open(&victim, &self->r, &own));
		ASSERT_EQ(0, pthread_create(&thread, NULL, pump_run, &victim));
		usleep(1000 + random() % 20000);
		start = now_ns();
		switch (rounds % 4) {
		case 0:
			ASSERT_EQ(0, region_dereg(&own));
			took(&dereg, start);
			break;
		case 1:
			ASSERT_EQ(0, qp_to(victim.p.b.qp, IBV_QPS_RESET));
			took(&reset, start);
			break;
		case 2:
			ASSERT_EQ(0, qp_to(victim.p.a.qp, IBV_QPS_ERR));
			took(&error, start);
			break;
		case 3:
			ASSERT_EQ(0, ibv_destroy_qp(victim.p.b.qp));
			victim.p.b.qp = NULL;
			took(&destroy, start);
			break;
		}
		pthread_join(thread, NULL);
		EXPECT_EQ(0, victim.err);
		EXPECT_NE(IBV_WC_SUCCESS, victim.ended);
		pump_close(&victim);
		region_free(&own);
	}
	TH_LOG("%d rounds beside %d streams", rounds, PUMPS);
	EXPECT_BOUNDED(dereg, "ibv_dereg_mr");
	EXPECT_BOUNDED(reset, "to RESET");
	EXPECT_BOUNDED(error, "to ERR");
	EXPECT_BOUNDED(destroy, "ibv_destroy_qp");
	for (int i = 0; i < PUMPS; i++)
		EXPECT_EQ(IBV_WC_SUCCESS, self->pumps[i].ended) TH_LOG("another stream broke");
}

TEST_F_TIMEOUT(load, I5_one_region_under_several_queue_pairs, 60)
{
	struct longest longest = { 0 };
	uint64_t start = now_ns();

	/* All of them run into it; the call waits for each one's burst, not for a message. */
	ASSERT_EQ(0, region_dereg(&self->dst));
	took(&longest, start);
	poison(self->dst.addr, WORDS, POISON_WRITTEN);
	for (int i = 0; i < PUMPS; i++) {
		pthread_join(self->threads[i], NULL);
		self->threads[i] = 0;
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, self->pumps[i].ended);
		EXPECT_EQ(0, self->pumps[i].err);
	}
	usleep(QUIET_US);
	EXPECT_TRUE(poison_intact(self->dst.addr, WORDS, POISON_WRITTEN));
	EXPECT_BOUNDED(longest, "ibv_dereg_mr");
	/* For the teardown of the fixture, which joins again. */
	for (int i = 0; i < PUMPS; i++) {
		self->pumps[i].stop = true;
		ASSERT_EQ(0, pthread_create(&self->threads[i], NULL, pump_run, &self->pumps[i]));
	}
}

/* Two at once (contract, section 5). */

struct call {
	struct region *region;
	struct ibv_qp *qp;
	enum ibv_qp_state to;
	pthread_barrier_t *together;
	struct longest longest;
	int err;
};

static void *call_run(void *arg)
{
	struct call *call = arg;
	uint64_t start;

	pthread_barrier_wait(call->together);
	start = now_ns();
	call->err = call->region ? region_dereg(call->region) : qp_to(call->qp, call->to);
	took(&call->longest, start);
	return NULL;
}

/* Runs both calls at the same time; both have to succeed within the bound. */
static void together(struct __test_metadata *_metadata, struct call *one, struct call *two)
{
	struct call *calls[2] = { one, two };
	pthread_barrier_t barrier;
	pthread_t threads[2];

	pthread_barrier_init(&barrier, NULL, 2);
	for (int i = 0; i < 2; i++) {
		calls[i]->together = &barrier;
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, call_run, calls[i]));
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, calls[i]->err);
		EXPECT_LT(calls[i]->longest.ns, BOUND_MS * 1000000ULL);
	}
	pthread_barrier_destroy(&barrier);
}

FIXTURE(both) {
	struct stream s;
};

FIXTURE_SETUP(both)
{
	srandom(4);
	ASSERT_EQ(0, stream_open(&self->s, IBV_WR_RDMA_WRITE));
}

FIXTURE_TEARDOWN(both)
{
	stream_close(&self->s);
}

TEST_F_TIMEOUT(both, dereg_and_reset, 60)
{
	struct stream *s = &self->s;

	for (int round = 0; round < 20; round++) {
		struct call dereg = { .region = round & 1 ? &s->dst : &s->src };
		struct call reset = { .to = round & 2 ? IBV_QPS_RESET : IBV_QPS_ERR };
		int good;

		ASSERT_EQ(0, stream_renew(s));
		reset.qp = round & 4 ? s->p.b.qp : s->p.a.qp;
		ASSERT_EQ(0, stream_start(s));
		stream_run(s, 1 + random() % 8, 400);
		together(_metadata, &dereg, &reset);
		poison(s->dst.addr, WORDS, POISON_WRITTEN);

		/* In whatever order: successes, at most one cause, then only flushes. */
		stream_collect(s, MESSAGES, reset.qp == s->p.a.qp ? 0 : LIMIT_MS);
		good = stream_good(s);
		for (int i = 0; i < s->completed; i++) {
			ASSERT_EQ(i, s->wc[i].wr_id);
			if (i > good)
				ASSERT_EQ(IBV_WC_WR_FLUSH_ERR, s->wc[i].status);
		}
		usleep(QUIET_US);
		EXPECT_EQ(0, drain_cq(s->p.a.scq));
		ASSERT_TRUE(poison_intact(s->dst.addr, WORDS, POISON_WRITTEN));
		if (good < MESSAGES)
			ASSERT_GE(bursts_landed(s, good, true), 0);
	}
}

TEST_F_TIMEOUT(both, I7_reset_by_two_threads, 60)
{
	struct stream *s = &self->s;

	for (int round = 0; round < 20; round++) {
		struct call one = { .to = round & 1 ? IBV_QPS_RESET : IBV_QPS_ERR };
		struct call two = { .to = IBV_QPS_RESET };

		ASSERT_EQ(0, stream_renew(s));
		one.qp = s->p.a.qp;
		two.qp = s->p.a.qp;
		ASSERT_EQ(0, stream_start(s));
		stream_run(s, 2, 400);
		/* RESET to ERR is no transition: the slower of the two may be told so. */
		if (one.to == IBV_QPS_RESET)
			together(_metadata, &one, &two);
		else
			ASSERT_EQ(0, qp_to(s->p.a.qp, IBV_QPS_ERR));
		ASSERT_EQ(0, qp_to(s->p.a.qp, IBV_QPS_RESET));
		drain_cq(s->p.a.scq);
		ASSERT_TRUE(cq_quiet(s->p.a.scq));
		ASSERT_EQ(0, qp_to(s->p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&s->r, &s->p));
		EXPECT_WORKS(&s->r, &s->p.a, &s->p.b);
	}
}

TEST_F_TIMEOUT(both, I7_both_ends_reset_at_once, 60)
{
	struct stream *s = &self->s;

	for (int round = 0; round < 20; round++) {
		struct call one = { .to = IBV_QPS_RESET }, two = { .to = IBV_QPS_RESET };

		ASSERT_EQ(0, stream_renew(s));
		one.qp = s->p.a.qp;
		two.qp = s->p.b.qp;
		ASSERT_EQ(0, stream_start(s));
		stream_run(s, 2, 400);
		together(_metadata, &one, &two);
		drain_cq(s->p.a.scq);
		ASSERT_EQ(0, pair_connect(&s->r, &s->p));
		EXPECT_WORKS(&s->r, &s->p.a, &s->p.b);
	}
}

TEST_F_TIMEOUT(both, a_new_life_of_the_queue_pair, 60)
{
	struct stream *s = &self->s;

	/* Nothing of the old life gets into the new one, however fast it begins. */
	ASSERT_EQ(0, stream_renew(s));
	for (int round = 0; round < 60; round++) {
		s->completed = 0;
		ASSERT_EQ(0, stream_start(s));
		stream_run(s, 1, 300);
		ASSERT_EQ(0, qp_to(s->p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(s->p.b.qp, IBV_QPS_RESET));
		drain_cq(s->p.a.scq);
		fill_message(s->dst.addr, -1);
		ASSERT_EQ(0, pair_connect(&s->r, &s->p));
		EXPECT_WORKS(&s->r, &s->p.a, &s->p.b);
		ASSERT_EQ(0, bursts_landed(s, 0, false));
	}
}

/* Keys. */

TEST(I6_keys_are_not_reused)
{
	enum { N = 1000 };
	uint32_t *lkeys = calloc(N, sizeof(*lkeys)), *rkeys = calloc(N, sizeof(*rkeys));
	struct region g;
	struct rdma r;

	ASSERT_EQ(0, rdma_open(&r));
	ASSERT_EQ(0, region_map(&g, PAGE, 0));
	for (int i = 0; i < N; i++) {
		ASSERT_EQ(0, region_reg(&g, r.pd, RC_ACCESS));
		lkeys[i] = g.mr->lkey;
		rkeys[i] = g.mr->rkey;
		ASSERT_EQ(0, region_dereg(&g));
		if (!i)
			continue;
		EXPECT_NE(rkeys[i - 1], rkeys[i]);
		EXPECT_NE(lkeys[i - 1], lkeys[i]);
		/* The index may come back, with another variant. */
		for (int j = i < 255 ? 0 : i - 255; j < i; j++) {
			ASSERT_NE(rkeys[j], rkeys[i])
				TH_LOG("key %d is key %d again", i, j);
		}
	}
	region_free(&g);
	rdma_close(&r);
	free(lkeys);
	free(rkeys);
}

TEST(I6_an_old_key_never_reaches_a_new_region)
{
	struct region g, other, src;
	struct pair p;
	struct rdma r;

	ASSERT_EQ(0, rdma_open(&r));
	ASSERT_EQ(0, region_create(&src, r.pd, 64, 0));
	ASSERT_EQ(0, region_map(&g, PAGE, 0));
	for (int round = 0; round < 50; round++) {
		uint32_t old;

		ASSERT_EQ(0, pair_create(&r, &p, NULL));
		ASSERT_EQ(0, region_reg(&g, r.pd, RC_ACCESS));
		old = g.mr->rkey;
		ASSERT_EQ(0, region_dereg(&g));
		ASSERT_EQ(0, region_create(&other, r.pd, PAGE, RC_ACCESS));
		memset(other.addr, 0, PAGE);
		ASSERT_EQ(0, post_op(p.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&src, 0, 64),
				     (uintptr_t)other.addr, old, 0));
		EXPECT_WC(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
		EXPECT_TRUE(all_bytes(other.addr, PAGE, 0));
		region_free(&other);
		pair_destroy(&p);
	}
	region_free(&g);
	region_free(&src);
	rdma_close(&r);
}

/* Processes that die. */

struct hello {
	uint32_t qpn, rkey;
	uint64_t addr;
};

static bool say(int to, const struct hello *hello)
{
	return write(to, hello, sizeof(*hello)) == sizeof(*hello);
}

static bool hear(int from, struct hello *hello)
{
	struct pollfd fd = { .fd = from, .events = POLLIN };

	return poll(&fd, 1, LIMIT_MS) == 1 && read(from, hello, sizeof(*hello)) == sizeof(*hello);
}

/* A stream to the other process until somebody dies; never returns. */
static void stream_for_ever(struct rdma *r, struct rc *q, const struct hello *peer)
{
	struct region remote = { .addr = (uint8_t *)(uintptr_t)peer->addr };
	struct ibv_mr mr = { .rkey = peer->rkey };
	struct region src;
	struct ibv_wc wc;
	int outstanding = 0;

	if (region_create(&src, r->pd, MSG, RC_ACCESS))
		_exit(3);
	fill_message(src.addr, 0);
	remote.mr = &mr;
	for (;;) {
		while (outstanding < 8) {
			if (post_rdma(q->qp, 1, IBV_WR_RDMA_WRITE, &src, MSG, &remote))
				_exit(4);
			outstanding++;
		}
		if (poll_one(q->scq, &wc) != 1 || wc.status)
			_exit(5);
		outstanding--;
	}
}

/* The child: connects to the parent, and streams or is the target of a stream. */
static void child(int from, int to, bool streams)
{
	struct rc_opts o = RC_DEFAULTS;
	struct hello peer, own;
	struct region dst;
	struct rdma r;
	struct rc q;

	if (rdma_open(&r) || rc_create(&r, &q, &o) || region_create(&dst, r.pd, MSG, RC_ACCESS))
		_exit(1);
	own = (struct hello){ q.qp->qp_num, dst.mr->rkey, (uintptr_t)dst.addr };
	if (!say(to, &own) || !hear(from, &peer) || rc_connect(&r, &q, peer.qpn))
		_exit(2);
	/* Both are connected before the first byte moves. */
	if (!say(to, &own) || !hear(from, &peer))
		_exit(2);
	if (streams)
		stream_for_ever(&r, &q, &peer);
	for (;;)
		pause();
}

struct victim {
	pid_t pid;
	int to, from;
	struct hello hello;
};

/* Forks before anything is opened, so that the child has a context of its own and only that. */
static bool victim_start(struct victim *v, bool streams)
{
	int down[2], up[2];

	if (pipe(down) || pipe(up))
		return false;
	v->pid = fork();
	if (!v->pid) {
		close(down[1]);
		close(up[0]);
		child(down[0], up[1], streams);
	}
	close(down[0]);
	close(up[1]);
	v->to = down[1];
	v->from = up[0];
	return v->pid > 0;
}

/* Kills it, and returns when it and all it had open are gone. */
static bool victim_kill(struct victim *v, struct longest *longest)
{
	uint64_t start = now_ns();
	int status;

	kill(v->pid, SIGKILL);
	if (waitpid(v->pid, &status, 0) != v->pid)
		return false;
	took(longest, start);
	close(v->to);
	close(v->from);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* The parent's end of the connection. */
static void meet(struct __test_metadata *_metadata, struct victim *v, struct rdma *r, struct rc *q,
		 const struct region *dst)
{
	struct hello own = { q->qp->qp_num, dst->mr->rkey, (uintptr_t)dst->addr };

	ASSERT_TRUE(hear(v->from, &v->hello));
	ASSERT_EQ(0, rc_connect(r, q, v->hello.qpn));
	ASSERT_TRUE(say(v->to, &own));
	ASSERT_TRUE(hear(v->from, &v->hello));
	ASSERT_TRUE(say(v->to, &own));
}

TEST(I7_kill_9_of_the_requester)
{
	struct longest longest = { 0 };

	srandom(5);
	for (int round = 0; round < 8; round++) {
		struct rc_opts o = RC_DEFAULTS;
		struct region dst;
		struct victim v;
		struct rdma r;
		struct pair p;
		struct rc q;

		ASSERT_TRUE(victim_start(&v, true));
		ASSERT_EQ(0, rdma_open(&r));
		ASSERT_EQ(0, rc_create(&r, &q, &o));
		ASSERT_EQ(0, pair_create(&r, &p, NULL));
		ASSERT_EQ(0, region_create(&dst, r.pd, MSG, RC_ACCESS));
		memset(dst.addr, 0, MSG);
		meet(_metadata, &v, &r, &q, &dst);
		for (uint64_t end = now_ms() + LIMIT_MS;
		     *(volatile uint64_t *)dst.addr == 0 && now_ms() < end;)
			sched_yield();
		EXPECT_NE(0, *(volatile uint64_t *)dst.addr) TH_LOG("no stream arrived");
		usleep(random() % 5000);
		ASSERT_TRUE(victim_kill(&v, &longest));
		poison(dst.addr, WORDS, POISON_WRITTEN);
		usleep(QUIET_US);
		EXPECT_TRUE(poison_intact(dst.addr, WORDS, POISON_WRITTEN))
			TH_LOG("a dead process went on writing");
		/* This end is none the wiser, and everything else works. */
		EXPECT_EQ(IBV_QPS_RTS, qp_state(q.qp));
		EXPECT_WORKS(&r, &p.a, &p.b);
		EXPECT_EQ(0, rc_destroy(&q));
		pair_destroy(&p);
		region_free(&dst);
		rdma_close(&r);
	}
	EXPECT_BOUNDED(longest, "exit");
}

TEST(I7_kill_9_of_the_target)
{
	struct longest longest = { 0 };

	srandom(6);
	for (int round = 0; round < 8; round++) {
		struct rc_opts o = RC_DEFAULTS;
		struct region dst, remote = { 0 };
		struct ibv_mr mr = { 0 };
		struct victim v;
		struct ibv_wc wc;
		struct rdma r;
		struct pair p;
		struct rc q;

		ASSERT_TRUE(victim_start(&v, false));
		ASSERT_EQ(0, rdma_open(&r));
		o.timeout = 11;
		o.retry_cnt = 4;
		ASSERT_EQ(0, rc_create(&r, &q, &o));
		ASSERT_EQ(0, pair_create(&r, &p, NULL));
		ASSERT_EQ(0, region_create(&dst, r.pd, MSG, RC_ACCESS));
		meet(_metadata, &v, &r, &q, &dst);
		remote.addr = (uint8_t *)(uintptr_t)v.hello.addr;
		mr.rkey = v.hello.rkey;
		remote.mr = &mr;
		for (int i = 0; i < 100; i++)
			ASSERT_EQ(0, post_rdma(q.qp, i, IBV_WR_RDMA_WRITE, &dst, MSG, &remote));
		ASSERT_POLL(q.scq, &wc);
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		usleep(random() % 3000);
		ASSERT_TRUE(victim_kill(&v, &longest));
		/* Its queue pair or its region may have gone first. */
		for (int i = 1, cause = 0; i < 100; i++) {
			ASSERT_POLL(q.scq, &wc);
			ASSERT_EQ(i, wc.wr_id);
			ASSERT_TRUE(cause ? wc.status == IBV_WC_WR_FLUSH_ERR :
				    wc.status == IBV_WC_SUCCESS ||
				    wc.status == IBV_WC_RETRY_EXC_ERR ||
				    wc.status == IBV_WC_REM_ACCESS_ERR)
				TH_LOG("\"%s\"", ibv_wc_status_str(wc.status));
			cause |= wc.status;
		}
		EXPECT_WORKS(&r, &p.a, &p.b);
		EXPECT_EQ(0, rc_destroy(&q));
		pair_destroy(&p);
		region_free(&dst);
		rdma_close(&r);
	}
	EXPECT_BOUNDED(longest, "exit");
}

TEST(I7_exit_without_closing_anything)
{
	for (int round = 0; round < 20; round++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			struct stream s;

			if (stream_open(&s, round & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE) ||
			    stream_renew(&s) || stream_start(&s))
				_exit(1);
			usleep(round * 200);
			_exit(0);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
}

TEST(I7_children_do_not_keep_objects_alive)
{
	struct stream s;
	int status;
	pid_t pid;

	/* A child inherits the open file and the mapped rings; the parent still tears down. */
	ASSERT_EQ(0, stream_open(&s, IBV_WR_RDMA_WRITE));
	ASSERT_EQ(0, stream_renew(&s));
	ASSERT_EQ(0, stream_start(&s));
	pid = fork();
	if (!pid) {
		sleep_ms(500);
		_exit(0);
	}
	ASSERT_EQ(0, qp_to(s.p.a.qp, IBV_QPS_RESET));
	ASSERT_EQ(0, region_dereg(&s.dst));
	poison(s.dst.addr, WORDS, POISON_WRITTEN);
	usleep(QUIET_US);
	EXPECT_TRUE(poison_intact(s.dst.addr, WORDS, POISON_WRITTEN));
	stream_close(&s);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_HARNESS_MAIN
