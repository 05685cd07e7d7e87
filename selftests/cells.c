// SPDX-License-Identifier: GPL-2.0
/*
 * Every cell of sections 4 and 5 of the contract, one test each, without luck: the first of four
 * messages of 1 MiB is parked after two of its sixteen bursts, then something is taken away, and
 * then, if it may, the message goes on.
 */

#include "kselftest_harness.h"
#include "knobs.h"

#include <pthread.h>

#define MSG MIB
#define MESSAGES 4
#define BURST (64 * KIB)
#define LANDED (2 * BURST)
#define SEED 7

/* How long a call that has to wait is watched to see that it does. */
#define WATCH_MS 60

FIXTURE(cell) {
	struct rdma r;
	struct pair p;
	struct region src, dst; /* where the bytes come from, and where they land */
	struct region *local, *remote;
	struct saved_knobs saved;
};

FIXTURE_VARIANT(cell) {
	enum ibv_wr_opcode op;
};

FIXTURE_VARIANT_ADD(cell, write) { .op = IBV_WR_RDMA_WRITE };
FIXTURE_VARIANT_ADD(cell, read) { .op = IBV_WR_RDMA_READ };
FIXTURE_VARIANT_ADD(cell, send) { .op = IBV_WR_SEND };

FIXTURE_SETUP(cell)
{
	struct rc_opts o = RC_DEFAULTS;

	/* A dead peer is noticed after some 50 ms. */
	o.timeout = 11;
	o.retry_cnt = 4;
	if (open_hold(O_RDONLY) < 0)
		SKIP(return, "the device has no hold points");
	ASSERT_TRUE(knobs_save(&self->saved));
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, region_create(&self->src, self->r.pd, MSG, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, MSG, RC_ACCESS));
	ASSERT_EQ(0, pair_create(&self->r, &self->p, &o));
	pattern_fill(self->src.addr, MSG, SEED);
	memset(self->dst.addr, 0, MSG);
	self->remote = variant->op == IBV_WR_RDMA_READ ? &self->src : &self->dst;
	self->local = variant->op == IBV_WR_RDMA_READ ? &self->dst : &self->src;

	ASSERT_EQ(0, hold("qp %u boundary 2", self->p.a.qp->qp_num));
	for (int i = 0; i < MESSAGES; i++) {
		if (variant->op == IBV_WR_SEND) {
			ASSERT_EQ(0, post_recv(self->p.b.qp, i, &self->dst, MSG));
			ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, MSG));
		} else {
			ASSERT_EQ(0, post_rdma(self->p.a.qp, i, variant->op, self->local, MSG,
					       self->remote));
		}
	}
	ASSERT_TRUE(parks(self->p.a.qp, LANDED));
}

FIXTURE_TEARDOWN(cell)
{
	EXPECT_TRUE(knobs_put_back(&self->saved));
	pair_destroy(&self->p);
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

/* A call that may have to wait, made by a thread of its own. */
struct call {
	enum { RESET, ERROR, DESTROY, DEREG } what;
	struct rc *rc;
	struct region *region;
	pthread_t thread;
	int err;
	bool done;
};

static void *make_call(void *arg)
{
	struct call *c = arg;

	switch (c->what) {
	case RESET:
		c->err = qp_to(c->rc->qp, IBV_QPS_RESET);
		break;
	case ERROR:
		c->err = qp_to(c->rc->qp, IBV_QPS_ERR);
		break;
	case DESTROY:
		c->err = ibv_destroy_qp(c->rc->qp);
		c->rc->qp = NULL;
		break;
	case DEREG:
		c->err = region_dereg(c->region);
		break;
	}
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void begin(struct __test_metadata *_metadata, struct call *c)
{
	ASSERT_EQ(0, pthread_create(&c->thread, NULL, make_call, c));
}

static bool is_done(struct call *c)
{
	return __atomic_load_n(&c->done, __ATOMIC_ACQUIRE);
}

/* Waits for the call, which must come to its end by itself. */
static void end(struct __test_metadata *_metadata, struct call *c)
{
	uint64_t limit = now_ms() + LIMIT_MS / 2;

	while (!is_done(c) && now_ms() < limit)
		sleep_ms(1);
	EXPECT_TRUE(is_done(c)) {
		TH_LOG("the call does not return");
		hold("release all");
	}
	pthread_join(c->thread, NULL);
	EXPECT_EQ(0, c->err);
}

/* The call waits until the message has been let go. */
static void waits(struct __test_metadata *_metadata, struct call *c)
{
	begin(_metadata, c);
	sleep_ms(WATCH_MS);
	EXPECT_FALSE(is_done(c)) TH_LOG("the call does not wait for the message");
	EXPECT_EQ(0, hold("release all"));
	end(_metadata, c);
}

/* The call returns although nobody lets the message go. */
static void cuts(struct __test_metadata *_metadata, struct call *c)
{
	begin(_metadata, c);
	end(_metadata, c);
}

/* What of the message has landed, and nothing behind it. */
static size_t landed(const FIXTURE_DATA(cell) *self)
{
	size_t n = pattern_prefix(self->dst.addr, MSG, SEED);

	return all_bytes(self->dst.addr + n, MSG - n, 0) ? n : (size_t)-1;
}

/* The requester's completions: @good successes, then @status unless it is 0, then flushes. */
static void requester_sees(struct __test_metadata *_metadata, struct rc *rc, int good, int status,
			   int total)
{
	struct ibv_wc wc;

	for (int i = 0; i < total; i++) {
		int want = i < good ? IBV_WC_SUCCESS :
			   i == good && status ? status : IBV_WC_WR_FLUSH_ERR;

		ASSERT_POLL(rc->scq, &wc);
		EXPECT_EQ((uint64_t)i, wc.wr_id);
		EXPECT_EQ(want, (int)wc.status) TH_LOG("request %d: %s", i,
						       ibv_wc_status_str(wc.status));
	}
	EXPECT_TRUE(cq_quiet(rc->scq));
}

/* The responder's completions, which only SENDs have; as above. */
static void responder_sees(struct __test_metadata *_metadata, struct rc *rc, int good, int status,
			   int total)
{
	struct ibv_wc wc;

	for (int i = 0; i < total; i++) {
		int want = i < good ? IBV_WC_SUCCESS :
			   i == good && status ? status : IBV_WC_WR_FLUSH_ERR;

		ASSERT_POLL(rc->rcq, &wc);
		EXPECT_EQ((uint64_t)i, wc.wr_id);
		EXPECT_EQ(want, (int)wc.status) TH_LOG("receive %d: %s", i,
						       ibv_wc_status_str(wc.status));
	}
	EXPECT_TRUE(cq_quiet(rc->rcq));
}

#define POLICIES(reset, revoke)                                                                    \
	do {                                                                                       \
		ASSERT_EQ(0, knob_set("reset_policy", reset));                                     \
		ASSERT_EQ(0, knob_set("revoke_policy", revoke));                                   \
	} while (0)

/* Section 4, the requester's side. */

TEST_F(cell, reset_drain)
{
	struct call c = { .what = RESET, .rc = &self->p.a };

	POLICIES("drain", "cancel");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, 0, 1);
}

TEST_F(cell, reset_abort)
{
	struct call c = { .what = RESET, .rc = &self->p.a };

	POLICIES("abort", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, 0);
}

TEST_F(cell, error_drain)
{
	struct call c = { .what = ERROR, .rc = &self->p.a };

	POLICIES("drain", "cancel");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, 0, MESSAGES);
}

TEST_F(cell, error_abort)
{
	struct call c = { .what = ERROR, .rc = &self->p.a };

	POLICIES("abort", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, MESSAGES);
}

TEST_F(cell, destroy_drain)
{
	struct call c = { .what = DESTROY, .rc = &self->p.a };

	POLICIES("drain", "cancel");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, 0, 1);
}

TEST_F(cell, destroy_abort)
{
	struct call c = { .what = DESTROY, .rc = &self->p.a };

	POLICIES("abort", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, 0);
}

TEST_F(cell, reset_past_the_deadline)
{
	struct call c = { .what = RESET, .rc = &self->p.a };

	POLICIES("drain", "cancel");
	ASSERT_EQ(0, knob_set("drain_timeout_ms", "100"));
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, 0);
}

/* Section 4, the responder's side: to the requester it is a peer that does not answer. */

TEST_F(cell, peer_reset_drain)
{
	struct call c = { .what = RESET, .rc = &self->p.b };

	POLICIES("drain", "cancel");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, IBV_WC_RETRY_EXC_ERR, MESSAGES);
	responder_sees(_metadata, &self->p.b, 1, 0, variant->op == IBV_WR_SEND);
}

TEST_F(cell, peer_reset_abort)
{
	struct call c = { .what = RESET, .rc = &self->p.b };

	POLICIES("abort", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, IBV_WC_RETRY_EXC_ERR, MESSAGES);
	responder_sees(_metadata, &self->p.b, 0, 0, 0);
}

TEST_F(cell, peer_error_drain)
{
	struct call c = { .what = ERROR, .rc = &self->p.b };

	POLICIES("drain", "cancel");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, IBV_WC_RETRY_EXC_ERR, MESSAGES);
	responder_sees(_metadata, &self->p.b, 1, 0, variant->op == IBV_WR_SEND ? MESSAGES : 0);
}

TEST_F(cell, peer_error_abort)
{
	struct call c = { .what = ERROR, .rc = &self->p.b };

	POLICIES("abort", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, IBV_WC_RETRY_EXC_ERR, MESSAGES);
	responder_sees(_metadata, &self->p.b, 0, 0, variant->op == IBV_WR_SEND ? MESSAGES : 0);
}

/* Section 4, keys. */

TEST_F(cell, revoke_local_cancel)
{
	struct call c = { .what = DEREG, .region = self->local };

	POLICIES("drain", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, IBV_WC_LOC_PROT_ERR, MESSAGES);
	EXPECT_STATE(IBV_QPS_RTS, self->p.b.qp);
}

TEST_F(cell, revoke_local_drain)
{
	struct call c = { .what = DEREG, .region = self->local };

	POLICIES("drain", "drain");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, IBV_WC_LOC_PROT_ERR, MESSAGES);
	EXPECT_STATE(IBV_QPS_RTS, self->p.b.qp);
}

static void remote_fault(struct __test_metadata *_metadata, FIXTURE_DATA(cell) *self,
			 enum ibv_wr_opcode op, int good)
{
	bool send = op == IBV_WR_SEND;

	requester_sees(_metadata, &self->p.a, good,
		       send ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR, MESSAGES);
	responder_sees(_metadata, &self->p.b, good, IBV_WC_LOC_PROT_ERR, send ? MESSAGES : 0);
	EXPECT_TRUE(state_comes(self->p.b.qp, IBV_QPS_ERR));
	if (!send)
		EXPECT_TRUE(qp_event_comes(self->r.ctx, IBV_EVENT_QP_ACCESS_ERR, self->p.b.qp,
					   LIMIT_MS));
}

TEST_F(cell, revoke_remote_cancel)
{
	struct call c = { .what = DEREG, .region = self->remote };

	POLICIES("drain", "cancel");
	cuts(_metadata, &c);
	EXPECT_EQ(LANDED, landed(self));
	remote_fault(_metadata, self, variant->op, 0);
}

TEST_F(cell, revoke_remote_drain)
{
	struct call c = { .what = DEREG, .region = self->remote };

	POLICIES("drain", "drain");
	waits(_metadata, &c);
	EXPECT_EQ(MSG, landed(self));
	remote_fault(_metadata, self, variant->op, 1);
}

/* Section 5: both at once, in either order. */

static void both(struct __test_metadata *_metadata, FIXTURE_DATA(cell) *self, bool key_first,
		 bool waits_for_message)
{
	struct call qp = { .what = RESET, .rc = &self->p.a };
	struct call mr = { .what = DEREG, .region = self->remote };

	begin(_metadata, key_first ? &mr : &qp);
	sleep_ms(WATCH_MS);
	begin(_metadata, key_first ? &qp : &mr);
	if (waits_for_message) {
		sleep_ms(WATCH_MS);
		EXPECT_FALSE(is_done(&qp));
		EXPECT_FALSE(is_done(&mr));
		EXPECT_EQ(0, hold("release all"));
	}
	end(_metadata, &qp);
	end(_metadata, &mr);
}

TEST_F(cell, both_drain_drain)
{
	POLICIES("drain", "drain");
	both(_metadata, self, false, true);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, 0, 1);
}

TEST_F(cell, both_drain_drain_key_first)
{
	POLICIES("drain", "drain");
	both(_metadata, self, true, true);
	EXPECT_EQ(MSG, landed(self));
	requester_sees(_metadata, &self->p.a, 1, 0, 1);
}

/* The queue pair drains to a reported fault. */
TEST_F(cell, both_drain_cancel)
{
	POLICIES("drain", "cancel");
	both(_metadata, self, false, false);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0,
		       variant->op == IBV_WR_SEND ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR, 1);
}

TEST_F(cell, both_abort_drain)
{
	POLICIES("abort", "drain");
	both(_metadata, self, false, false);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, 0);
}

TEST_F(cell, both_abort_drain_key_first)
{
	POLICIES("abort", "drain");
	both(_metadata, self, true, false);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, 0);
}

TEST_F(cell, both_abort_cancel)
{
	POLICIES("abort", "cancel");
	both(_metadata, self, false, false);
	EXPECT_EQ(LANDED, landed(self));
	requester_sees(_metadata, &self->p.a, 0, 0, 0);
}

/* The hold points themselves. */

TEST_F(cell, step_moves_one_burst)
{
	for (size_t at = LANDED; at < LANDED + 3 * BURST; at += BURST) {
		ASSERT_TRUE(parks(self->p.a.qp, at));
		EXPECT_EQ(at, landed(self));
		ASSERT_EQ(0, hold("step %u", self->p.a.qp->qp_num));
	}
	ASSERT_TRUE(parks(self->p.a.qp, LANDED + 3 * BURST));
	EXPECT_EQ(0, hold("release %u", self->p.a.qp->qp_num));
	requester_sees(_metadata, &self->p.a, MESSAGES, 0, MESSAGES);
	EXPECT_TRUE(hold_shows(" qp ", false));
}

TEST_F(cell, a_hold_ends_with_its_transfer)
{
	ASSERT_EQ(0, knob_set("reset_policy", "abort"));
	EXPECT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
	EXPECT_TRUE(hold_shows("parked", false));
}

TEST_F(cell, a_key_and_an_operation_are_held)
{
	static const char *const names[] = { [IBV_WR_RDMA_WRITE] = "write",
					     [IBV_WR_RDMA_READ] = "read",
					     [IBV_WR_SEND] = "send" };

	ASSERT_EQ(0, hold("key %#x boundary 3", self->remote->mr->rkey));
	ASSERT_EQ(0, hold("op %s boundary 5", names[variant->op]));
	ASSERT_EQ(0, hold("release %u", self->p.a.qp->qp_num));
	/* The first message goes on to the key's boundary; the next of the kind is the second. */
	ASSERT_TRUE(parks(self->p.a.qp, 3 * BURST));
	ASSERT_EQ(0, hold("release %u", self->p.a.qp->qp_num));
	ASSERT_TRUE(parks(self->p.a.qp, 5 * BURST));
	ASSERT_EQ(0, hold("release all"));
	requester_sees(_metadata, &self->p.a, MESSAGES, 0, MESSAGES);
}

TEST_F(cell, wrong_commands_are_refused)
{
	static const char *const wrong[] = { "qp", "qp x", "qp 1 boundary", "qp 1 boundary x",
					     "qp 1 2", "op jump", "park 1", "qp 99999999999",
					     "release", "qp 1 boundary 1 1" };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		EXPECT_EQ(EINVAL, hold("%s", wrong[i]))
			TH_LOG("\"%s\"", wrong[i]);
	}
	EXPECT_EQ(ENOENT, hold("step 1"));
	for (int i = 0; i < 15; i++)
		EXPECT_EQ(0, hold("qp 1"));
	EXPECT_EQ(ENOSPC, hold("qp 1"));
}

/* A process that dies with a transfer parked takes it along. */
TEST_F(cell, a_forgotten_hold_does_not_outlive_its_process)
{
	pid_t child;
	int status;

	ASSERT_EQ(0, knob_set("drain_timeout_ms", "100"));
	child = fork();
	if (!child) {
		struct rdma r;
		struct pair p;
		struct region from, to;

		if (rdma_open(&r) || region_create(&from, r.pd, MSG, RC_ACCESS) ||
		    region_create(&to, r.pd, MSG, RC_ACCESS) || pair_create(&r, &p, NULL) ||
		    hold("qp %u boundary 1", p.a.qp->qp_num) ||
		    post_rdma(p.a.qp, 0, IBV_WR_RDMA_WRITE, &from, MSG, &to) ||
		    !parks(p.a.qp, BURST))
			_exit(1);
		_exit(0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_TRUE(hold_shows("landed 65536 ", false));
	EXPECT_TRUE(parks(self->p.a.qp, LANDED));
}

TEST_HARNESS_MAIN
