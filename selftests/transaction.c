// SPDX-License-Identifier: GPL-2.0
/*
 * Several things torn down as one (contract, section 8): what becomes of each, alone and together,
 * drained and cancelled, each for itself and as a group; that no transfer sees one of them taken
 * away and another one not; and that a request which is refused has changed nothing.
 */

#include "kselftest_harness.h"
#include "knobs.h"
#include "sluice_teardown.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define MSG MIB
#define MESSAGES 4
#define BURST (64 * KIB)
#define LANDED (2 * BURST)

/* How long a call that has to wait is watched to see that it does. */
#define WATCH_MS (60 * slowness())
/* How often something is repeated; a slow kernel gets through it sooner or later. */
#define ROUNDS(n) (((n) + slowness() - 1) / slowness())
/* What ends sooner than this has not waited for the 20 s that a drain is given here. */
#define SOON_MS (10000 * slowness())

/* A connection with a message under way. */
struct lane {
	struct pair p;
	struct region src, dst; /* where the bytes come from, and where they land */
	struct region *local, *remote;
	int seed;
};

static int lane_create(struct rdma *r, struct lane *l, enum ibv_wr_opcode op)
{
	struct rc_opts o = RC_DEFAULTS;
	static int seed;
	int err;

	/* A dead peer is noticed after some 50 ms. */
	o.timeout = 11;
	o.retry_cnt = 4;
	err = region_create(&l->src, r->pd, MSG, RC_ACCESS);
	if (!err)
		err = region_create(&l->dst, r->pd, MSG, RC_ACCESS);
	if (!err)
		err = pair_create(r, &l->p, &o);
	if (err)
		return err;
	l->seed = ++seed;
	pattern_fill(l->src.addr, MSG, l->seed);
	memset(l->dst.addr, 0, MSG);
	l->remote = op == IBV_WR_RDMA_READ ? &l->src : &l->dst;
	l->local = op == IBV_WR_RDMA_READ ? &l->dst : &l->src;
	return 0;
}

static void lane_destroy(struct lane *l)
{
	pair_destroy(&l->p);
	region_free(&l->src);
	region_free(&l->dst);
}

/* Posts the messages and parks the first one after two of its sixteen bursts. */
static bool lane_park(struct lane *l, enum ibv_wr_opcode op)
{
	if (hold("qp %u boundary 2", l->p.a.qp->qp_num))
		return false;
	for (int i = 0; i < MESSAGES; i++) {
		int err;

		if (op == IBV_WR_SEND) {
			err = post_recv(l->p.b.qp, i, &l->dst, MSG);
			if (!err)
				err = post_msg(l->p.a.qp, i, &l->src, MSG);
		} else {
			err = post_rdma(l->p.a.qp, i, op, l->local, MSG, l->remote);
		}
		if (err)
			return false;
	}
	return parks(l->p.a.qp, LANDED);
}

/* What of the message has landed, and nothing behind it. */
static size_t landed(const struct lane *l)
{
	size_t n = pattern_prefix(l->dst.addr, MSG, l->seed);

	return all_bytes(l->dst.addr + n, MSG - n, 0) ? n : (size_t)-1;
}

/* A request, made by a thread of its own. */
struct call {
	struct ibv_context *ctx;
	struct sluice_action *actions;
	unsigned int count;
	enum sluice_teardown_completion completion;
	struct sluice_teardown_refusal refusal;
	pthread_t thread;
	int err;
	bool done;
};

static void *make_call(void *arg)
{
	struct call *c = arg;

	c->err = sluice_teardown(c->ctx, c->actions, c->count, c->completion, &c->refusal);
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

#define CALL(r, list, mode)                                                                        \
	{ .ctx = (r)->ctx, .actions = (list), .count = ARRAY_SIZE(list), .completion = (mode) }

static void begin(struct __test_metadata *_metadata, struct call *c)
{
	ASSERT_EQ(0, pthread_create(&c->thread, NULL, make_call, c));
}

static bool is_done(struct call *c)
{
	return __atomic_load_n(&c->done, __ATOMIC_ACQUIRE);
}

/* Waits for the call, which must come to its end by itself, and before a drain's time is over. */
static void end(struct __test_metadata *_metadata, struct call *c)
{
	uint64_t limit = now_ms() + SOON_MS;

	while (!is_done(c) && now_ms() < limit)
		sleep_ms(1);
	EXPECT_TRUE(is_done(c)) {
		TH_LOG("the call does not return");
		hold("release all");
	}
	pthread_join(c->thread, NULL);
	EXPECT_EQ(0, c->err) TH_LOG("action %d: %s", (int)c->refusal.action,
				    sluice_teardown_why(&c->refusal));
}

static void still_waits(struct __test_metadata *_metadata, struct call *c)
{
	sleep_ms(WATCH_MS);
	EXPECT_FALSE(is_done(c)) TH_LOG("the call does not wait for the message");
}

/* The call waits until the messages have been let go. */
static void waits(struct __test_metadata *_metadata, struct call *c)
{
	begin(_metadata, c);
	still_waits(_metadata, c);
	EXPECT_EQ(0, hold("release all"));
	end(_metadata, c);
}

/* The call returns although nobody lets the messages go. */
static void cuts(struct __test_metadata *_metadata, struct call *c)
{
	begin(_metadata, c);
	end(_metadata, c);
}

#define EXPECT_RESULT(action, how, bits, transfers, bytes)                                         \
	do {                                                                                       \
		const struct sluice_teardown_result *r_ = &(action).result;                        \
												   \
		EXPECT_EQ((how), (int)r_->outcome);                                                \
		EXPECT_EQ((bits), (int)r_->flags);                                                 \
		EXPECT_EQ((transfers), (int)r_->cut);                                              \
		EXPECT_EQ((uint64_t)(bytes), (uint64_t)r_->landed);                                \
	} while (0)

/* @good successes, then @status unless it is 0, then flushes, @total in all. */
static void sees(struct __test_metadata *_metadata, struct ibv_cq *cq, int good, int status,
		 int total)
{
	struct ibv_wc wc;

	for (int i = 0; i < total; i++) {
		int want = i < good ? IBV_WC_SUCCESS :
			   i == good && status ? status : IBV_WC_WR_FLUSH_ERR;

		ASSERT_POLL(cq, &wc);
		EXPECT_EQ((uint64_t)i, wc.wr_id);
		EXPECT_EQ(want, (int)wc.status) TH_LOG("request %d: %s", i,
						       ibv_wc_status_str(wc.status));
	}
	EXPECT_TRUE(cq_quiet(cq));
}

#define POLICIES(reset, revoke)                                                                    \
	do {                                                                                       \
		ASSERT_EQ(0, knob_set("reset_policy", reset));                                     \
		ASSERT_EQ(0, knob_set("revoke_policy", revoke));                                   \
	} while (0)

/* One message under way. */

FIXTURE(one) {
	struct rdma r;
	struct lane l;
	struct saved_knobs saved;
};

FIXTURE_VARIANT(one) {
	enum ibv_wr_opcode op;
};

FIXTURE_VARIANT_ADD(one, write) { .op = IBV_WR_RDMA_WRITE };
FIXTURE_VARIANT_ADD(one, read) { .op = IBV_WR_RDMA_READ };
FIXTURE_VARIANT_ADD(one, send) { .op = IBV_WR_SEND };

FIXTURE_SETUP(one)
{
	if (open_hold(O_RDONLY) < 0)
		SKIP(return, "the device has no hold points");
	ASSERT_TRUE(knobs_save(&self->saved));
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, lane_create(&self->r, &self->l, variant->op));
	ASSERT_TRUE(lane_park(&self->l, variant->op));
}

FIXTURE_TEARDOWN(one)
{
	knobs_put_back(&self->saved);
	lane_destroy(&self->l);
	rdma_close(&self->r);
}

TEST_F(one, reset_drains)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { { .kind = SLUICE_RESET_QP, .qp = l->p.a.qp } };
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	POLICIES("drain", "cancel");
	waits(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_DRAINED, 0, 0, 0);
	EXPECT_LT(0ULL, (unsigned long long)a[0].result.waited_ns);
	EXPECT_EQ(MSG, landed(l));
	sees(_metadata, l->p.a.scq, 1, 0, 1);

	/* The kernel and the library agree that it is in RESET, and its next life works. */
	EXPECT_EQ(IBV_QPS_RESET, l->p.a.qp->state);
	EXPECT_STATE(IBV_QPS_RESET, l->p.a.qp);
	EXPECT_EQ(0, qp_to(l->p.b.qp, IBV_QPS_RESET));
	drain_cq(l->p.b.rcq);
	ASSERT_EQ(0, pair_connect(&self->r, &l->p));
	EXPECT_WORKS(&self->r, &l->p.a, &l->p.b);
}

TEST_F(one, reset_cancelled_by_policy)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { { .kind = SLUICE_RESET_QP, .qp = l->p.a.qp } };
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	POLICIES("abort", "drain");
	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, 0, 1, LANDED);
	EXPECT_EQ(LANDED, landed(l));
	sees(_metadata, l->p.a.scq, 0, 0, 0);
	EXPECT_STATE(IBV_QPS_RTS, l->p.b.qp);
}

TEST_F(one, reset_of_the_responder)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { {
		.kind = SLUICE_RESET_QP, .qp = l->p.b.qp, .close = SLUICE_CLOSE_CANCEL,
	} };
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	POLICIES("drain", "drain");
	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, 0, 1, LANDED);
	EXPECT_EQ(LANDED, landed(l));
	sees(_metadata, l->p.a.scq, 0, IBV_WC_RETRY_EXC_ERR, MESSAGES);
}

TEST_F(one, error_drains)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { {
		.kind = SLUICE_ERROR_QP, .qp = l->p.a.qp, .close = SLUICE_CLOSE_DRAIN,
	} };
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	POLICIES("abort", "cancel");
	waits(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_DRAINED, 0, 0, 0);
	EXPECT_EQ(MSG, landed(l));
	EXPECT_EQ(IBV_QPS_ERR, l->p.a.qp->state);
	EXPECT_STATE(IBV_QPS_ERR, l->p.a.qp);
	sees(_metadata, l->p.a.scq, 1, 0, MESSAGES);
}

TEST_F(one, error_cancelled)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { {
		.kind = SLUICE_ERROR_QP, .qp = l->p.a.qp, .close = SLUICE_CLOSE_CANCEL,
	} };
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	POLICIES("drain", "drain");
	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, 0, 1, LANDED);
	EXPECT_EQ(LANDED, landed(l));
	/* All of them are there when the call returns. */
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc;

		ASSERT_EQ(1, ibv_poll_cq(l->p.a.scq, 1, &wc));
		EXPECT_EQ((uint64_t)i, wc.wr_id);
		EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
	}
	/* What is posted from now on is flushed, too. */
	ASSERT_EQ(0, post_rdma(l->p.a.qp, 77, IBV_WR_RDMA_WRITE, &l->src, 8, &l->dst));
	EXPECT_WC(l->p.a.scq, 77, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(one, revoke_of_the_requester_cancelled)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { { .kind = SLUICE_REVOKE_MR, .mr = l->local->mr } };
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	POLICIES("drain", "cancel");
	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, 0, 1, LANDED);
	EXPECT_EQ(LANDED, landed(l));
	sees(_metadata, l->p.a.scq, 0, IBV_WC_LOC_PROT_ERR, MESSAGES);
	EXPECT_STATE(IBV_QPS_RTS, l->p.b.qp);
	EXPECT_EQ(0, region_dereg(l->local));
}

TEST_F(one, revoke_of_the_responder_drains)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = { { .kind = SLUICE_REVOKE_MR, .mr = l->remote->mr } };
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);
	bool send = variant->op == IBV_WR_SEND;

	POLICIES("abort", "drain");
	waits(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_DRAINED, 0, 0, 0);
	EXPECT_EQ(MSG, landed(l));
	/* The next message finds it gone. */
	sees(_metadata, l->p.a.scq, 1, send ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR, MESSAGES);
	EXPECT_STATE(IBV_QPS_ERR, l->p.b.qp);
	EXPECT_EQ(0, region_dereg(l->remote));
}

/* The order of a boundary holds within a request: the queue pair is asked first. */
TEST_F(one, all_cancelled_together)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_REVOKE_MR, .mr = l->remote->mr, .close = SLUICE_CLOSE_CANCEL },
		{ .kind = SLUICE_REVOKE_MR, .mr = l->local->mr, .close = SLUICE_CLOSE_CANCEL },
		{ .kind = SLUICE_RESET_QP, .qp = l->p.a.qp, .close = SLUICE_CLOSE_CANCEL },
	};
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	POLICIES("drain", "drain");
	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, 0, 0, 0);
	EXPECT_RESULT(a[1], SLUICE_CANCELLED, 0, 0, 0);
	EXPECT_RESULT(a[2], SLUICE_CANCELLED, 0, 1, LANDED);
	EXPECT_EQ(LANDED, landed(l));
	sees(_metadata, l->p.a.scq, 0, 0, 0);
	EXPECT_STATE(IBV_QPS_RTS, l->p.b.qp);
}

TEST_F(one, all_drain_together)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l->p.a.qp },
		{ .kind = SLUICE_ERROR_QP, .qp = l->p.b.qp },
		{ .kind = SLUICE_REVOKE_MR, .mr = l->remote->mr },
		{ .kind = SLUICE_REVOKE_MR, .mr = l->local->mr },
	};
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	POLICIES("drain", "drain");
	waits(_metadata, &c);
	for (int i = 0; i < 4; i++)
		EXPECT_RESULT(a[i], SLUICE_DRAINED, 0, 0, 0);
	EXPECT_EQ(MSG, landed(l));
	sees(_metadata, l->p.a.scq, 1, 0, 1);
	sees(_metadata, l->p.b.rcq, 1, 0, variant->op == IBV_WR_SEND ? MESSAGES : 0);
}

/* The default policies: the queue pair drains to a reported fault. */
TEST_F(one, queue_pair_drains_while_its_region_is_cancelled)
{
	struct lane *l = &self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l->p.a.qp },
		{ .kind = SLUICE_REVOKE_MR, .mr = l->remote->mr },
	};
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);
	bool send = variant->op == IBV_WR_SEND;

	POLICIES("drain", "cancel");
	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_FAULTED, 0, 0, 0);
	EXPECT_RESULT(a[1], SLUICE_CANCELLED, 0, 1, LANDED);
	EXPECT_EQ(LANDED, landed(l));
	sees(_metadata, l->p.a.scq, 0, send ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR, 1);
}

TEST_F(one, kill_9_in_the_call)
{
	struct lane *l = &self->l;
	uint64_t start;
	int status;
	pid_t child;

	hold("release all");
	drain_cq(l->p.a.scq);
	ASSERT_EQ(0, knob_set("reset_policy", "drain"));
	ASSERT_EQ(0, knob_set("drain_timeout_ms", "2000"));
	child = fork();
	if (!child) {
		struct lane own = { 0 };
		struct rdma r;

		if (rdma_open(&r) || lane_create(&r, &own, variant->op) ||
		    !lane_park(&own, variant->op))
			_exit(1);
		struct sluice_action a[] = {
			{ .kind = SLUICE_RESET_QP, .qp = own.p.a.qp },
			{ .kind = SLUICE_REVOKE_MR, .mr = own.local->mr,
			  .close = SLUICE_CLOSE_DRAIN },
		};
		_exit(sluice_teardown(r.ctx, a, 2, SLUICE_INDIVIDUAL, NULL) ? 2 : 3);
	}
	/* The child is in the call. */
	ASSERT_TRUE(hold_shows("parked", true));
	sleep_ms(2 * WATCH_MS);
	start = now_ms();
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status)) TH_LOG("status %#x", status);
	EXPECT_LT(now_ms() - start, SOON_MS);
	EXPECT_TRUE(hold_shows("parked", false));
}

/* Two messages under way. */

FIXTURE(two) {
	struct rdma r;
	struct lane l[2];
	struct saved_knobs saved;
};

FIXTURE_SETUP(two)
{
	if (open_hold(O_RDONLY) < 0)
		SKIP(return, "the device has no hold points");
	ASSERT_TRUE(knobs_save(&self->saved));
	POLICIES("drain", "cancel");
	ASSERT_EQ(0, rdma_open(&self->r));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, lane_create(&self->r, &self->l[i], IBV_WR_RDMA_WRITE));
		ASSERT_TRUE(lane_park(&self->l[i], IBV_WR_RDMA_WRITE));
	}
}

FIXTURE_TEARDOWN(two)
{
	knobs_put_back(&self->saved);
	for (int i = 0; i < 2; i++)
		lane_destroy(&self->l[i]);
	rdma_close(&self->r);
}

TEST_F(two, a_deadline_cancels_that_one_alone)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp, .timeout_ms = 50 },
		{ .kind = SLUICE_ERROR_QP, .qp = l[1].p.a.qp },
	};
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	begin(_metadata, &c);
	/* The first is down already, and the other one is waited for. */
	EXPECT_TRUE(state_comes(l[0].p.a.qp, IBV_QPS_RESET));
	still_waits(_metadata, &c);
	EXPECT_EQ(LANDED, landed(&l[1]));
	EXPECT_EQ(0, hold("release all"));
	end(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, SLUICE_PAST_DEADLINE, 1, LANDED);
	EXPECT_RESULT(a[1], SLUICE_DRAINED, 0, 0, 0);
	EXPECT_LE(50000000ULL, a[0].result.waited_ns);
	EXPECT_LT(a[0].result.waited_ns, a[1].result.waited_ns);
	EXPECT_EQ(LANDED, landed(&l[0]));
	EXPECT_EQ(MSG, landed(&l[1]));
	sees(_metadata, l[1].p.a.scq, 1, 0, MESSAGES);
}

TEST_F(two, a_deadline_cancels_the_group)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_ERROR_QP, .qp = l[1].p.a.qp },
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp, .timeout_ms = 50 },
	};
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	cuts(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_CANCELLED, SLUICE_CUT_BY_GROUP, 1, LANDED);
	EXPECT_RESULT(a[1], SLUICE_CANCELLED, SLUICE_PAST_DEADLINE, 1, LANDED);
	EXPECT_EQ(LANDED, landed(&l[0]));
	EXPECT_EQ(LANDED, landed(&l[1]));
	sees(_metadata, l[1].p.a.scq, 0, 0, MESSAGES);
}

TEST_F(two, a_fault_leaves_the_others_alone)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp },
		{ .kind = SLUICE_RESET_QP, .qp = l[1].p.a.qp },
	};
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	begin(_metadata, &c);
	still_waits(_metadata, &c);
	ASSERT_EQ(0, region_dereg(&l[0].dst));
	still_waits(_metadata, &c);
	EXPECT_EQ(0, hold("release all"));
	end(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_FAULTED, 0, 0, 0);
	EXPECT_RESULT(a[1], SLUICE_DRAINED, 0, 0, 0);
	EXPECT_EQ(MSG, landed(&l[1]));
}

TEST_F(two, a_fault_cancels_the_group)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp },
		{ .kind = SLUICE_RESET_QP, .qp = l[1].p.a.qp },
	};
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	begin(_metadata, &c);
	still_waits(_metadata, &c);
	ASSERT_EQ(0, region_dereg(&l[0].dst));
	end(_metadata, &c);
	EXPECT_RESULT(a[0], SLUICE_FAULTED, 0, 0, 0);
	EXPECT_RESULT(a[1], SLUICE_CANCELLED, SLUICE_CUT_BY_GROUP, 1, LANDED);
	EXPECT_EQ(LANDED, landed(&l[1]));
	sees(_metadata, l[0].p.a.scq, 0, IBV_WC_REM_ACCESS_ERR, 1);
	sees(_metadata, l[1].p.a.scq, 0, 0, 0);
}

/* The device's time is the most that a program can ask for. */
TEST_F(two, the_device_bounds_the_time)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp, .timeout_ms = UINT32_MAX },
		{ .kind = SLUICE_RESET_QP, .qp = l[1].p.a.qp, .close = SLUICE_CLOSE_DRAIN },
	};
	struct call c = CALL(&self->r, a, SLUICE_INDIVIDUAL);

	ASSERT_EQ(0, knob_set("drain_timeout_ms", "100"));
	cuts(_metadata, &c);
	for (int i = 0; i < 2; i++)
		EXPECT_RESULT(a[i], SLUICE_CANCELLED, SLUICE_PAST_DEADLINE, 1, LANDED);
}

TEST_F(two, no_time_is_a_cancel)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp },
		{ .kind = SLUICE_RESET_QP, .qp = l[1].p.b.qp },
	};
	struct call c = CALL(&self->r, a, SLUICE_GROUPED);

	ASSERT_EQ(0, knob_set("drain_timeout_ms", "0"));
	cuts(_metadata, &c);
	for (int i = 0; i < 2; i++)
		EXPECT_RESULT(a[i], SLUICE_CANCELLED, SLUICE_PAST_DEADLINE, 1, LANDED);
}

/* One that waits for another, and finds nothing left to do. */
TEST_F(two, a_second_request_waits_for_the_first)
{
	struct lane *l = self->l;
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp },
		{ .kind = SLUICE_REVOKE_MR, .mr = l[1].src.mr, .close = SLUICE_CLOSE_DRAIN },
	};
	struct sluice_action b[] = {
		{ .kind = SLUICE_REVOKE_MR, .mr = l[1].src.mr, .close = SLUICE_CLOSE_CANCEL },
		{ .kind = SLUICE_RESET_QP, .qp = l[0].p.a.qp, .close = SLUICE_CLOSE_CANCEL },
	};
	struct call first = CALL(&self->r, a, SLUICE_INDIVIDUAL);
	struct call second = CALL(&self->r, b, SLUICE_INDIVIDUAL);

	begin(_metadata, &first);
	still_waits(_metadata, &first);
	begin(_metadata, &second);
	still_waits(_metadata, &second);
	EXPECT_EQ(0, hold("release all"));
	end(_metadata, &first);
	end(_metadata, &second);
	for (int i = 0; i < 2; i++) {
		EXPECT_RESULT(a[i], SLUICE_DRAINED, 0, 0, 0);
		EXPECT_RESULT(b[i], SLUICE_DRAINED, 0, 0, 0);
		EXPECT_EQ(0ULL, (unsigned long long)b[i].result.waited_ns);
	}
}

/* What is refused. */

FIXTURE(request) {
	struct rdma r;
	struct lane l;
	struct saved_knobs saved;
};

FIXTURE_SETUP(request)
{
	if (open_hold(O_RDONLY) < 0)
		SKIP(return, "the device has no hold points");
	ASSERT_TRUE(knobs_save(&self->saved));
	POLICIES("drain", "cancel");
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, lane_create(&self->r, &self->l, IBV_WR_RDMA_WRITE));
	ASSERT_TRUE(lane_park(&self->l, IBV_WR_RDMA_WRITE));
}

/* Whatever was asked for, the messages go their way, both queue pairs and the regions live on. */
FIXTURE_TEARDOWN(request)
{
	struct lane *l = &self->l;

	EXPECT_TRUE(parks(l->p.a.qp, LANDED)) TH_LOG("a request that was refused did something");
	knobs_put_back(&self->saved);
	sees(_metadata, l->p.a.scq, MESSAGES, 0, MESSAGES);
	EXPECT_EQ(MSG, landed(l));
	EXPECT_WORKS(&self->r, &l->p.a, &l->p.b);
	EXPECT_WORKS(&self->r, &l->p.b, &l->p.a);
	lane_destroy(l);
	rdma_close(&self->r);
}

static void refused(struct __test_metadata *_metadata, struct rdma *r, struct sluice_action *a,
		    unsigned int count, int completion, int err, int action, int reason)
{
	struct sluice_teardown_refusal no;

	EXPECT_EQ(err, sluice_teardown(r->ctx, a, count, completion, &no));
	EXPECT_EQ(action, (int)no.action);
	EXPECT_EQ(reason, (int)no.reason) TH_LOG("%s", sluice_teardown_why(&no));
	EXPECT_EQ(err, sluice_teardown(r->ctx, a, count, completion, NULL));
}

#define REFUSED(list, completion, err, action, reason)                                             \
	refused(_metadata, &self->r, list, ARRAY_SIZE(list), completion, err, action, reason)

TEST_F(request, actions_that_cannot_be)
{
	struct ibv_qp *qp = self->l.p.a.qp, *peer = self->l.p.b.qp;
	struct ibv_mr *mr = self->l.dst.mr;
	struct rc fresh;
	struct sluice_action kind[] = { { .kind = SLUICE_RESET_QP, .qp = qp }, { .qp = peer } };
	struct sluice_action other[] = { { .kind = 77, .qp = qp } };
	struct sluice_action close[] = { { .kind = SLUICE_REVOKE_MR, .mr = mr },
					 { .kind = SLUICE_RESET_QP, .qp = qp, .close = 3 } };
	struct sluice_action twice[] = { { .kind = SLUICE_RESET_QP, .qp = qp },
					 { .kind = SLUICE_RESET_QP, .qp = peer },
					 { .kind = SLUICE_ERROR_QP, .qp = qp } };
	struct sluice_action again[] = { { .kind = SLUICE_REVOKE_MR, .mr = mr },
					 { .kind = SLUICE_REVOKE_MR, .mr = mr } };
	struct sluice_action group[] = { { .kind = SLUICE_RESET_QP, .qp = qp },
					 { .kind = SLUICE_REVOKE_MR, .mr = mr,
					   .close = SLUICE_CLOSE_DRAIN } };
	struct sluice_action none[] = { { .kind = SLUICE_RESET_QP, .qp = qp } };

	REFUSED(kind, SLUICE_INDIVIDUAL, EOPNOTSUPP, 1, SLUICE_REFUSED_KIND);
	REFUSED(other, SLUICE_INDIVIDUAL, EOPNOTSUPP, 0, SLUICE_REFUSED_KIND);
	REFUSED(close, SLUICE_INDIVIDUAL, EINVAL, 1, SLUICE_REFUSED_VALUE);
	REFUSED(twice, SLUICE_INDIVIDUAL, EINVAL, 2, SLUICE_REFUSED_DUPLICATE);
	REFUSED(again, SLUICE_GROUPED, EINVAL, 1, SLUICE_REFUSED_DUPLICATE);
	REFUSED(group, SLUICE_GROUPED, EOPNOTSUPP, 1, SLUICE_REFUSED_COMPLETION);
	REFUSED(none, 2, EINVAL, -1, SLUICE_REFUSED_REQUEST);
	refused(_metadata, &self->r, none, 0, SLUICE_INDIVIDUAL, EINVAL, -1,
		SLUICE_REFUSED_REQUEST);
	refused(_metadata, &self->r, none, SLUICE_TEARDOWN_MAX + 1, SLUICE_INDIVIDUAL, EINVAL, -1,
		SLUICE_REFUSED_REQUEST);

	/* From RESET there is no way to ERR. */
	ASSERT_EQ(0, rc_create(&self->r, &fresh, &self->l.p.a.opts));
	struct sluice_action state[] = { { .kind = SLUICE_RESET_QP, .qp = qp },
					 { .kind = SLUICE_ERROR_QP, .qp = fresh.qp } };

	REFUSED(state, SLUICE_INDIVIDUAL, EINVAL, 1, SLUICE_REFUSED_STATE);
	EXPECT_EQ(0, rc_destroy(&fresh));
}

TEST_F(request, objects_of_others)
{
	struct ibv_qp *qp = self->l.p.a.qp;
	struct ibv_qp no_qp = { .context = self->r.ctx, .handle = 0xfffffff };
	struct ibv_mr no_mr = { .context = self->r.ctx, .handle = qp->handle };
	struct sluice_action unknown[] = { { .kind = SLUICE_RESET_QP, .qp = qp },
					   { .kind = SLUICE_RESET_QP, .qp = &no_qp } };
	struct sluice_action type[] = { { .kind = SLUICE_REVOKE_MR, .mr = &no_mr },
					{ .kind = SLUICE_RESET_QP, .qp = qp } };
	struct region far[16];
	struct rdma r;

	REFUSED(unknown, SLUICE_INDIVIDUAL, ENOENT, 1, SLUICE_REFUSED_OBJECT);
	REFUSED(type, SLUICE_GROUPED, EINVAL, 0, SLUICE_REFUSED_OBJECT);

	/* Of another context of this very process, whatever the handle means in this one. */
	ASSERT_EQ(0, rdma_open(&r));
	for (int i = 0; i < 16; i++)
		ASSERT_EQ(0, region_create(&far[i], r.pd, PAGE, RC_ACCESS));
	for (int i = 0; i < 16; i++) {
		struct sluice_action foreign[] = { { .kind = SLUICE_RESET_QP, .qp = qp },
						   { .kind = SLUICE_REVOKE_MR, .mr = far[i].mr } };

		REFUSED(foreign, SLUICE_INDIVIDUAL, ENOENT, 1, SLUICE_REFUSED_OBJECT);
	}
	for (int i = 0; i < 16; i++)
		region_free(&far[i]);
	rdma_close(&r);
}

/* A request as no library would make it: attribute by attribute. */
struct raw {
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[8];
	} call;
	struct sluice_teardown_action actions[4];
	struct sluice_teardown_result results[4];
	struct sluice_teardown_refusal refusal;
	uint32_t qps[4], mrs[4];
};

static struct ib_uverbs_attr *raw_attr(struct raw *raw, int id)
{
	for (int i = 0; i < raw->call.hdr.num_attrs; i++)
		if (raw->call.attrs[i].attr_id == id)
			return &raw->call.attrs[i];
	return NULL;
}

static void raw_add(struct raw *raw, int id, uint64_t data, size_t len)
{
	raw->call.attrs[raw->call.hdr.num_attrs++] = (struct ib_uverbs_attr){
		.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data,
	};
}

/* Two queue pairs and two regions: what would be right. */
static void raw_fill(struct raw *raw, struct lane *l)
{
	memset(raw, 0, sizeof(*raw));
	for (int i = 0; i < 4; i++)
		raw->actions[i].kind = i % 2 ? SLUICE_REVOKE_MR : SLUICE_RESET_QP;
	raw->qps[0] = l->p.a.qp->handle;
	raw->qps[1] = l->p.b.qp->handle;
	raw->mrs[0] = l->src.mr->handle;
	raw->mrs[1] = l->dst.mr->handle;
	raw_add(raw, SLUICE_ATTR_TEARDOWN_ACTIONS, (uintptr_t)raw->actions, sizeof(raw->actions));
	raw_add(raw, SLUICE_ATTR_TEARDOWN_QPS, raw->qps[0] | (uint64_t)raw->qps[1] << 32, 8);
	raw_add(raw, SLUICE_ATTR_TEARDOWN_MRS, raw->mrs[0] | (uint64_t)raw->mrs[1] << 32, 8);
	raw_add(raw, SLUICE_ATTR_TEARDOWN_RESULTS, (uintptr_t)raw->results, sizeof(raw->results));
	raw_add(raw, SLUICE_ATTR_TEARDOWN_REFUSAL, (uintptr_t)&raw->refusal, sizeof(raw->refusal));
}

static int raw_call(struct raw *raw, struct ibv_context *ctx)
{
	raw->call.hdr.length = sizeof(raw->call.hdr) +
			       raw->call.hdr.num_attrs * sizeof(raw->call.attrs[0]);
	raw->call.hdr.object_id = SLUICE_OBJECT_TEARDOWN;
	raw->call.hdr.method_id = SLUICE_METHOD_TEARDOWN;
	raw->call.hdr.driver_id = RDMA_DRIVER_RXE;
	return ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &raw->call.hdr) ? errno : 0;
}

TEST_F(request, attributes_that_cannot_be)
{
	static const struct {
		int attr, len, err;
	} lengths[] = {
		{ SLUICE_ATTR_TEARDOWN_ACTIONS, 0, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_ACTIONS, 8, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_ACTIONS, 63, EINVAL },
		/* One action less than there are handles. */
		{ SLUICE_ATTR_TEARDOWN_ACTIONS, 48, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_QPS, 0, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_QPS, 4, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_QPS, 7, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_MRS, 4, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_MRS, 65535, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_RESULTS, 0, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_RESULTS, 127, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_REFUSAL, 4, EINVAL },
		{ SLUICE_ATTR_TEARDOWN_REFUSAL, 16, EINVAL },
	};
	static const int pointers[] = { SLUICE_ATTR_TEARDOWN_ACTIONS,
					SLUICE_ATTR_TEARDOWN_RESULTS };
	static const int needed[] = { SLUICE_ATTR_TEARDOWN_ACTIONS, SLUICE_ATTR_TEARDOWN_QPS,
				      SLUICE_ATTR_TEARDOWN_MRS, SLUICE_ATTR_TEARDOWN_RESULTS };
	struct ibv_context *ctx = self->r.ctx;
	struct lane *l = &self->l;
	struct raw raw;
	void *wall;

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		raw_fill(&raw, l);
		raw_attr(&raw, lengths[i].attr)->len = lengths[i].len;
		EXPECT_EQ(lengths[i].err, raw_call(&raw, ctx))
			TH_LOG("attribute %#x of %d bytes", lengths[i].attr, lengths[i].len);
	}
	wall = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < ARRAY_SIZE(pointers); i++) {
		raw_fill(&raw, l);
		raw_attr(&raw, pointers[i])->data = 0;
		EXPECT_EQ(EFAULT, raw_call(&raw, ctx));
		raw_attr(&raw, pointers[i])->data = (uintptr_t)wall;
		EXPECT_EQ(EFAULT, raw_call(&raw, ctx));
		raw_attr(&raw, pointers[i])->data = UINT64_MAX - 16;
		EXPECT_EQ(EFAULT, raw_call(&raw, ctx));
	}
	munmap(wall, PAGE);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		raw_fill(&raw, l);
		*raw_attr(&raw, needed[i]) = raw.call.attrs[--raw.call.hdr.num_attrs];
		EXPECT_EQ(EINVAL, raw_call(&raw, ctx)) TH_LOG("without attribute %#x", needed[i]);
	}
	/* Twice the same, one that does not exist, modes and flags that do not exist. */
	raw_fill(&raw, l);
	raw_add(&raw, SLUICE_ATTR_TEARDOWN_QPS, raw.qps[0], 4);
	EXPECT_EQ(EINVAL, raw_call(&raw, ctx));
	raw_fill(&raw, l);
	raw_add(&raw, SLUICE_ATTR_TEARDOWN_REFUSAL + 1, 0, 8);
	EXPECT_EQ(EPROTONOSUPPORT, raw_call(&raw, ctx));
	raw_fill(&raw, l);
	raw_add(&raw, SLUICE_ATTR_TEARDOWN_COMPLETION, UINT64_MAX, 8);
	EXPECT_EQ(EINVAL, raw_call(&raw, ctx));
	raw_fill(&raw, l);
	raw_add(&raw, SLUICE_ATTR_TEARDOWN_FLAGS, SLUICE_TEARDOWN_CHECK | 2, 8);
	EXPECT_EQ(EINVAL, raw_call(&raw, ctx));
	/* The last field of the last action. */
	raw_fill(&raw, l);
	raw.actions[3].reserved[1] = 1;
	EXPECT_EQ(EINVAL, raw_call(&raw, ctx));
	EXPECT_EQ(3, (int)raw.refusal.action);
	EXPECT_EQ(SLUICE_REFUSED_VALUE, (int)raw.refusal.reason);
	/* No room for the reason is no reason to go on. */
	raw_attr(&raw, SLUICE_ATTR_TEARDOWN_REFUSAL)->data = 0;
	EXPECT_EQ(EINVAL, raw_call(&raw, ctx));
	/* Nothing is wrong, but it was only a question. */
	raw_fill(&raw, l);
	raw_add(&raw, SLUICE_ATTR_TEARDOWN_FLAGS, SLUICE_TEARDOWN_CHECK, 8);
	EXPECT_EQ(0, raw_call(&raw, ctx));
}

TEST_F(request, a_device_of_another_driver)
{
	struct ibv_context *ctx = open_context("rxe0");
	struct ibv_qp qp = { .context = ctx, .handle = self->l.p.a.qp->handle };
	struct sluice_action a[] = { { .kind = SLUICE_RESET_QP, .qp = &qp } };
	struct sluice_teardown_refusal no;

	if (!ctx)
		SKIP(return, "no rxe0 here");
	EXPECT_EQ(EOPNOTSUPP, sluice_teardown(ctx, a, 1, SLUICE_INDIVIDUAL, &no));
	EXPECT_EQ(SLUICE_REFUSED_REQUEST, (int)no.reason);
	ibv_close_device(ctx);
}

/* Nobody inside, as many as there may be, and threads against each other. */

FIXTURE(many) {
	struct rdma r;
};

FIXTURE_SETUP(many)
{
	srandom(9);
	ASSERT_EQ(0, rdma_open(&self->r));
}

FIXTURE_TEARDOWN(many)
{
	rdma_close(&self->r);
}

/* KiB of this process that are pinned. */
static long pinned(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

TEST_F(many, as_many_as_there_may_be)
{
	static struct sluice_action a[SLUICE_TEARDOWN_MAX];
	static struct region g[SLUICE_TEARDOWN_MAX - 2];
	long before = pinned(), during;
	struct ibv_wc wc;
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, NULL));
	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		ASSERT_EQ(0, region_create(&g[i], self->r.pd, PAGE, RC_ACCESS));
		a[ARRAY_SIZE(g) - 1 - i] = (struct sluice_action){ .kind = SLUICE_REVOKE_MR,
								   .mr = g[i].mr };
	}
	a[ARRAY_SIZE(g)] = (struct sluice_action){ .kind = SLUICE_RESET_QP, .qp = p.b.qp };
	a[ARRAY_SIZE(g) + 1] = (struct sluice_action){ .kind = SLUICE_RESET_QP, .qp = p.a.qp };
	during = pinned();
	EXPECT_EQ(before + (long)(ARRAY_SIZE(g) * PAGE / KIB), during);
	ASSERT_EQ(0, sluice_teardown(self->r.ctx, a, ARRAY_SIZE(a), SLUICE_GROUPED, NULL));
	for (size_t i = 0; i < ARRAY_SIZE(a); i++) {
		EXPECT_EQ(SLUICE_DRAINED, (int)a[i].result.outcome);
		EXPECT_EQ(0, (int)a[i].result.flags);
		EXPECT_EQ(0ULL, (unsigned long long)a[i].result.waited_ns);
	}
	EXPECT_EQ(before, pinned()) TH_LOG("the pages of revoked regions are still pinned");

	/* Once more, and again: nothing is left to be done, and that is no mistake. */
	ASSERT_EQ(0, sluice_teardown(self->r.ctx, a, ARRAY_SIZE(a), SLUICE_INDIVIDUAL, NULL));
	ASSERT_EQ(0, pair_connect(&self->r, &p));
	ASSERT_EQ(0, post_rdma(p.a.qp, 5, IBV_WR_RDMA_WRITE, &g[0], 8, &g[1]));
	ASSERT_POLL(p.a.scq, &wc);
	EXPECT_EQ(IBV_WC_LOC_PROT_ERR, wc.status) TH_LOG("a revoked region was found");
	for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
		EXPECT_EQ(0, region_dereg(&g[i]));
		region_free(&g[i]);
	}
	pair_destroy(&p);
}

/* While its handle exists, a key stands for a revoked region and for nothing else. */
TEST_F(many, the_key_of_a_revoked_region_is_not_given_away)
{
	struct region g, others[64];
	struct sluice_action a[1];
	uint32_t key;

	ASSERT_EQ(0, region_create(&g, self->r.pd, PAGE, RC_ACCESS));
	key = g.mr->lkey;
	a[0] = (struct sluice_action){ .kind = SLUICE_REVOKE_MR, .mr = g.mr };
	ASSERT_EQ(0, sluice_teardown(self->r.ctx, a, 1, SLUICE_INDIVIDUAL, NULL));
	for (int i = 0; i < 64; i++) {
		ASSERT_EQ(0, region_create(&others[i], self->r.pd, PAGE, RC_ACCESS));
		EXPECT_NE(key >> 8, others[i].mr->lkey >> 8);
	}
	for (int i = 0; i < 64; i++)
		region_free(&others[i]);
	region_free(&g);
}

struct rival {
	struct ibv_context *ctx;
	struct sluice_action *actions;
	unsigned int count;
	int err;
};

static void *rival_runs(void *arg)
{
	struct rival *rival = arg;

	for (unsigned int i = 0; i < ROUNDS(300) && !rival->err; i++)
		rival->err = sluice_teardown(rival->ctx, rival->actions, rival->count,
					     i % 2 ? SLUICE_GROUPED : SLUICE_INDIVIDUAL, NULL);
	return NULL;
}

/* Two threads, the same objects in opposite order, and a third that resets and connects them. */
TEST_F_TIMEOUT(many, opposite_orders, 120)
{
	struct sluice_action a[8], b[8];
	struct rival rivals[2] = { { self->r.ctx, a, 8, 0 }, { self->r.ctx, b, 8, 0 } };
	struct region src, dst;
	pthread_t threads[2];
	struct pair p[4];

	ASSERT_EQ(0, region_create(&src, self->r.pd, MIB, RC_ACCESS));
	ASSERT_EQ(0, region_create(&dst, self->r.pd, MIB, RC_ACCESS));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, pair_create(&self->r, &p[i], NULL));
		a[2 * i] = (struct sluice_action){ .kind = SLUICE_RESET_QP, .qp = p[i].a.qp };
		a[2 * i + 1] = (struct sluice_action){ .kind = SLUICE_RESET_QP, .qp = p[i].b.qp };
	}
	for (int i = 0; i < 8; i++)
		b[i] = a[7 - i];
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, rival_runs, &rivals[i]));
	for (unsigned int i = 0; i < ROUNDS(200); i++) {
		/* Any of these may find the state changed under it. */
		pair_connect(&self->r, &p[i % 4]);
		post_rdma(p[i % 4].a.qp, i, IBV_WR_RDMA_WRITE, &src, MIB, &dst);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, rivals[i].err);
	}
	for (int i = 0; i < 4; i++) {
		EXPECT_EQ(0, qp_to(p[i].a.qp, IBV_QPS_RESET));
		EXPECT_EQ(0, qp_to(p[i].b.qp, IBV_QPS_RESET));
		drain_cq(p[i].a.scq);
		drain_cq(p[i].b.rcq);
		ASSERT_EQ(0, pair_connect(&self->r, &p[i]));
		EXPECT_WORKS(&self->r, &p[i].a, &p[i].b);
		pair_destroy(&p[i]);
	}
	region_free(&src);
	region_free(&dst);
}

struct destroyer {
	struct pair *p;
	struct region *g;
	int tries;
};

static void *destroyer_runs(void *arg)
{
	struct destroyer *d = arg;

	/* The core refuses while another call has the object. */
	for (d->tries = 0; ibv_destroy_qp(d->p->a.qp) == EBUSY; d->tries++)
		sched_yield();
	d->p->a.qp = NULL;
	while (region_dereg(d->g) == EBUSY)
		d->tries++;
	return NULL;
}

/* A thread destroys what another one's request names. */
TEST_F_TIMEOUT(many, destroyed_by_another_thread, 120)
{
	int done = 0, gone = 0;

	for (unsigned int round = 0; round < ROUNDS(100); round++) {
		struct sluice_teardown_refusal no;
		struct sluice_action a[3];
		struct region src, dst;
		struct destroyer d;
		pthread_t thread;
		struct pair p;
		int err;

		ASSERT_EQ(0, region_create(&src, self->r.pd, MIB, RC_ACCESS));
		ASSERT_EQ(0, region_create(&dst, self->r.pd, MIB, RC_ACCESS));
		ASSERT_EQ(0, pair_create(&self->r, &p, NULL));
		a[0] = (struct sluice_action){ .kind = SLUICE_REVOKE_MR, .mr = dst.mr };
		a[1] = (struct sluice_action){ .kind = SLUICE_RESET_QP, .qp = p.b.qp };
		a[2] = (struct sluice_action){ .kind = SLUICE_ERROR_QP, .qp = p.a.qp };
		/* The library's structures outlive the objects: copies are named. */
		struct ibv_qp qp = *p.a.qp;
		struct ibv_mr mr = *dst.mr;

		a[0].mr = &mr;
		a[2].qp = &qp;
		for (int i = 0; i < 4; i++)
			ASSERT_EQ(0, post_rdma(p.a.qp, i, IBV_WR_RDMA_WRITE, &src, MIB, &dst));
		d = (struct destroyer){ &p, &dst, 0 };
		ASSERT_EQ(0, pthread_create(&thread, NULL, destroyer_runs, &d));
		usleep(random() % 300);
		err = sluice_teardown(self->r.ctx, a, 3, SLUICE_INDIVIDUAL, &no);
		pthread_join(thread, NULL);
		if (err) {
			gone++;
			EXPECT_TRUE(err == ENOENT || err == EBUSY || err == EINVAL)
				TH_LOG("%s", strerror(err));
		} else {
			done++;
		}
		pair_destroy(&p);
		region_free(&src);
		region_free(&dst);
	}
	TH_LOG("%d requests came before, %d came too late", done, gone);
}

/* The commit is one step. */

struct traffic {
	struct pair p;
	struct region src, dst;
	pthread_t thread;
	bool stop;
	int statuses[32]; /* how many completions of each */
};

/* Small messages without end, so that most of the time one is about to start. */
static void *traffic_runs(void *arg)
{
	struct traffic *t = arg;
	int posted = 0, polled = 0;
	struct ibv_wc wc;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		if (posted - polled < 64) {
			if (post_rdma(t->p.a.qp, posted, IBV_WR_RDMA_WRITE, &t->src, 64, &t->dst))
				break;
			posted++;
		}
		while (ibv_poll_cq(t->p.a.scq, 1, &wc) > 0) {
			t->statuses[wc.status & 31]++;
			polled++;
		}
	}
	return NULL;
}

static void traffic_begin(struct __test_metadata *_metadata, struct traffic *t, struct rdma *r)
{
	struct rc_opts o = RC_DEFAULTS;

	o.timeout = 11;
	o.retry_cnt = 1;
	ASSERT_EQ(0, pair_create(r, &t->p, &o));
	ASSERT_EQ(0, pthread_create(&t->thread, NULL, traffic_runs, t));
	while (!__atomic_load_n(&t->statuses[IBV_WC_SUCCESS], __ATOMIC_RELAXED))
		sched_yield();
	usleep(random() % 2000);
}

static void traffic_end(struct traffic *t)
{
	struct ibv_wc wc;

	__atomic_store_n(&t->stop, true, __ATOMIC_RELEASE);
	pthread_join(t->thread, NULL);
	while (poll_for(t->p.a.scq, &wc, 20) > 0)
		t->statuses[wc.status & 31]++;
}

/*
 * Queue pair and region go together. A message that sees the region gone sees the queue pair gone,
 * which comes first: so none of them ever fails, and the peer never hears of anything.
 */
static void queue_pair_first(struct __test_metadata *_metadata, struct rdma *r,
			     enum sluice_teardown_close close)
{
	for (unsigned int round = 0; round < ROUNDS(150); round++) {
		struct ibv_async_event event;
		struct traffic t = { 0 };

		ASSERT_EQ(0, region_create(&t.dst, r->pd, PAGE, RC_ACCESS));
		ASSERT_EQ(0, region_create(&t.src, r->pd, PAGE, RC_ACCESS));
		traffic_begin(_metadata, &t, r);
		struct sluice_action a[] = {
			{ .kind = SLUICE_REVOKE_MR, .mr = t.dst.mr, .close = close },
			{ .kind = SLUICE_REVOKE_MR, .mr = t.src.mr, .close = close },
			{ .kind = SLUICE_RESET_QP, .qp = t.p.a.qp, .close = close },
		};

		ASSERT_EQ(0, sluice_teardown(r->ctx, a, 3, SLUICE_INDIVIDUAL, NULL));
		traffic_end(&t);
		EXPECT_EQ(0, t.statuses[IBV_WC_LOC_PROT_ERR]);
		EXPECT_EQ(0, t.statuses[IBV_WC_REM_ACCESS_ERR]);
		EXPECT_EQ(IBV_QPS_RTS, qp_state(t.p.b.qp));
		EXPECT_GT(0, next_event(r->ctx, &event, 0)) TH_LOG("event %d", event.event_type);
		pair_destroy(&t.p);
		region_free(&t.src);
		region_free(&t.dst);
		if (!__test_passed(_metadata))
			return;
	}
}

TEST_F_TIMEOUT(many, cancelled_as_one, 120)
{
	queue_pair_first(_metadata, &self->r, SLUICE_CLOSE_CANCEL);
}

TEST_F_TIMEOUT(many, drained_as_one, 120)
{
	queue_pair_first(_metadata, &self->r, SLUICE_CLOSE_DRAIN);
}

/*
 * The responder's region and its queue pair: a message that sees the region gone sees a peer that
 * does not answer, and nobody's access was wrong.
 */
TEST_F_TIMEOUT(many, responder_as_one, 120)
{
	for (unsigned int round = 0; round < ROUNDS(100); round++) {
		struct ibv_async_event event;
		struct traffic t = { 0 };

		ASSERT_EQ(0, region_create(&t.dst, self->r.pd, PAGE, RC_ACCESS));
		ASSERT_EQ(0, region_create(&t.src, self->r.pd, PAGE, RC_ACCESS));
		traffic_begin(_metadata, &t, &self->r);
		struct sluice_action a[] = {
			{ .kind = SLUICE_REVOKE_MR, .mr = t.dst.mr },
			{ .kind = SLUICE_RESET_QP, .qp = t.p.b.qp, .close = SLUICE_CLOSE_CANCEL },
		};

		ASSERT_EQ(0, sluice_teardown(self->r.ctx, a, 2, SLUICE_INDIVIDUAL, NULL));
		traffic_end(&t);
		EXPECT_EQ(0, t.statuses[IBV_WC_REM_ACCESS_ERR]);
		EXPECT_GT(0, next_event(self->r.ctx, &event, 0)) TH_LOG("event %d",
									event.event_type);
		pair_destroy(&t.p);
		region_free(&t.src);
		region_free(&t.dst);
		if (!__test_passed(_metadata))
			return;
	}
}

/*
 * The regions of both sides go, between them many others. A message that sees its target gone sees
 * its source gone, which comes first: the target's owner hears of nothing.
 */
TEST_F_TIMEOUT(many, regions_as_one, 120)
{
	static struct sluice_action a[SLUICE_TEARDOWN_MAX];
	static struct region between[SLUICE_TEARDOWN_MAX - 2];

	for (unsigned int round = 0; round < ROUNDS(60); round++) {
		struct traffic t = { 0 };
		unsigned int n = 0;

		/* Regions are closed in the order of their keys. */
		ASSERT_EQ(0, region_create(&t.dst, self->r.pd, PAGE, RC_ACCESS));
		a[n++] = (struct sluice_action){ .kind = SLUICE_REVOKE_MR, .mr = t.dst.mr };
		for (size_t i = 0; i < ARRAY_SIZE(between); i++) {
			ASSERT_EQ(0, region_create(&between[i], self->r.pd, 64, RC_ACCESS));
			a[n++] = (struct sluice_action){ .kind = SLUICE_REVOKE_MR,
							 .mr = between[i].mr };
		}
		ASSERT_EQ(0, region_create(&t.src, self->r.pd, PAGE, RC_ACCESS));
		a[n++] = (struct sluice_action){ .kind = SLUICE_REVOKE_MR, .mr = t.src.mr };
		traffic_begin(_metadata, &t, &self->r);
		ASSERT_EQ(0, sluice_teardown(self->r.ctx, a, n, SLUICE_INDIVIDUAL, NULL));
		EXPECT_STATE(IBV_QPS_ERR, t.p.a.qp);
		traffic_end(&t);
		EXPECT_EQ(1, t.statuses[IBV_WC_LOC_PROT_ERR]);
		EXPECT_EQ(0, t.statuses[IBV_WC_REM_ACCESS_ERR]);
		EXPECT_EQ(IBV_QPS_RTS, qp_state(t.p.b.qp));
		pair_destroy(&t.p);
		region_free(&t.src);
		region_free(&t.dst);
		for (size_t i = 0; i < ARRAY_SIZE(between); i++)
			region_free(&between[i]);
		if (!__test_passed(_metadata))
			return;
	}
}

TEST_HARNESS_MAIN
