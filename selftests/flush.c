// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of posted work when a queue pair goes to ERR or RESET: on ERR every request
 * completes, in posting order on each queue, exactly once; on RESET none does after the call.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#include <pthread.h>

FIXTURE(flush) {
	struct rdma r;
	struct pair p;
	struct region src, dst;
};

FIXTURE_SETUP(flush)
{
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	ASSERT_EQ(0, region_create(&self->src, self->r.pd, MIB, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, MIB, RC_ACCESS));
}

FIXTURE_TEARDOWN(flush)
{
	pair_destroy(&self->p);
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

/* The completions @first to @last, all flushed, and nothing behind them. */
static void expect_flushed(struct __test_metadata *_metadata, struct ibv_cq *cq, int first,
			   int last)
{
	for (int i = first; i <= last; i++)
		EXPECT_WC(cq, i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_TRUE(cq_quiet(cq));
}

TEST_F(flush, both_queues_in_posting_order)
{
	/* Nobody receives: the first SEND has started, the others have not. */
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 64));
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(0, post_recv(self->p.a.qp, 1000 + i, &self->dst, 64));
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	expect_flushed(_metadata, self->p.a.scq, 0, 99);
	expect_flushed(_metadata, self->p.a.rcq, 1000, 1099);
	EXPECT_EQ(IBV_QPS_RTS, qp_state(self->p.b.qp));
}

TEST_F(flush, all_is_in_the_cq_when_the_call_returns)
{
	/* I2: no waiting, neither for the sends nor for the receives. */
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++) {
			ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 64));
			ASSERT_EQ(0, post_recv(self->p.a.qp, i, &self->dst, 64));
		}
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
		EXPECT_EQ(50, drain_cq(self->p.a.scq));
		EXPECT_EQ(50, drain_cq(self->p.a.rcq));
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
	}
}

TEST_F(flush, unsignalled_requests_too)
{
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
				.wr_id = i, .opcode = IBV_WR_SEND }));
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	expect_flushed(_metadata, self->p.a.scq, 0, 19);
}

TEST_F(flush, receives_of_an_idle_queue_pair)
{
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, post_recv(self->p.b.qp, i, &self->dst, 64));
	ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_ERR));
	expect_flushed(_metadata, self->p.b.rcq, 0, 9);
}

TEST_F(flush, receives_of_an_init_queue_pair)
{
	struct rc_opts o = RC_DEFAULTS;
	struct rc q;

	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	ASSERT_EQ(0, rc_to_init(&q));
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, post_recv(q.qp, i, &self->dst, 64));
	ASSERT_EQ(0, qp_to(q.qp, IBV_QPS_ERR));
	expect_flushed(_metadata, q.rcq, 0, 9);
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(flush, error_twice)
{
	ASSERT_EQ(0, post_recv(self->p.a.qp, 1, &self->dst, 64));
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	expect_flushed(_metadata, self->p.a.rcq, 1, 1);
}

TEST_F(flush, markers)
{
	/* What ib_drain_qp relies on: in ERR a marker completes, behind all that was before. */
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 64));
		ASSERT_EQ(0, post_recv(self->p.a.qp, i, &self->dst, 64));
	}
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	ASSERT_EQ(0, post_recv(self->p.a.qp, 10, &self->dst, 0));
	ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 10, .opcode = IBV_WR_RDMA_WRITE }));
	expect_flushed(_metadata, self->p.a.scq, 0, 10);
	expect_flushed(_metadata, self->p.a.rcq, 0, 10);
}

TEST_F(flush, receive_marker_alone)
{
	/* The provider library rings no bell for a receive. */
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	ASSERT_EQ(0, post_recv(self->p.a.qp, 1, &self->dst, 0));
	expect_flushed(_metadata, self->p.a.rcq, 1, 1);
}

TEST_F(flush, receive_marker_wakes_an_armed_queue)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(self->r.ctx);
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_cq *cq;
	struct pollfd fd;
	void *context;
	struct rc q;

	ASSERT_NE(NULL, channel);
	o.channel = channel;
	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	ASSERT_EQ(0, rc_to_init(&q));
	ASSERT_EQ(0, qp_to(q.qp, IBV_QPS_ERR));
	ASSERT_EQ(0, ibv_req_notify_cq(q.rcq, 0));
	ASSERT_EQ(0, post_recv(q.qp, 1, &self->dst, 0));
	fd = (struct pollfd){ .fd = channel->fd, .events = POLLIN };
	ASSERT_EQ(1, poll(&fd, 1, LIMIT_MS)) TH_LOG("no completion event");
	ASSERT_EQ(0, ibv_get_cq_event(channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	expect_flushed(_metadata, q.rcq, 1, 1);
	EXPECT_EQ(0, rc_destroy(&q));
	EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
}

TEST_F(flush, every_opcode)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV,
	};
	int posted = 0;

	/* C10-96: posting in ERR is accepted and flushed. Nothing of a request is looked at. */
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct ibv_sge sge = { (uintptr_t)self->src.addr, 8, 0xbadbad };

		EXPECT_EQ(0, post_op(self->p.a.qp, i, ops[i], sge, (uintptr_t)self->dst.addr,
				     0xbadbad, 0))
			TH_LOG("opcode %d was refused", ops[i]);
		posted++;
	}
	expect_flushed(_metadata, self->p.a.scq, 0, posted - 1);
	EXPECT_EQ(IBV_QPS_ERR, qp_state(self->p.a.qp));
}

TEST_F(flush, posting_on_and_on_in_error)
{
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	for (int i = 0; i < 1000; i++) {
		ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 64));
		EXPECT_WC(self->p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	}
	EXPECT_TRUE(cq_quiet(self->p.a.scq));
}

TEST_F(flush, peer_dead)
{
	/* Row 17: the peer is gone, 100 requests are waiting for it. */
	ASSERT_EQ(0, rc_destroy(&self->p.b));
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 64));
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
	expect_flushed(_metadata, self->p.a.scq, 0, 99);
}

TEST_F(flush, error_barrier_reset)
{
	/* Row 13: ERR, a marker, RESET: everything has completed before. */
	for (int round = 0; round < 50; round++) {
		int n = 0;

		for (int i = 0; i < 30; i++)
			ASSERT_EQ(0, post_rdma(self->p.a.qp, i, IBV_WR_RDMA_WRITE, &self->src,
					       64 * KIB, &self->dst));
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
		ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
				.wr_id = 30, .opcode = IBV_WR_RDMA_WRITE }));
		for (; n <= 30; n++) {
			struct ibv_wc wc;

			ASSERT_POLL(self->p.a.scq, &wc);
			ASSERT_EQ(n, wc.wr_id);
			if (wc.status)
				ASSERT_EQ(IBV_WC_WR_FLUSH_ERR, wc.status);
		}
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		EXPECT_EQ(0, drain_cq(self->p.a.scq));
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
	}
}

TEST_F(flush, reset_produces_no_completion)
{
	struct ibv_wc wc;

	for (int round = 0; round < 20; round++) {
		uint64_t last = 0;

		for (int i = 1; i <= 60; i++) {
			ASSERT_EQ(0, post_rdma(self->p.a.qp, i, IBV_WR_RDMA_WRITE, &self->src,
					       64 * KIB, &self->dst));
			ASSERT_EQ(0, post_recv(self->p.a.qp, 100 + i, &self->dst, 64));
		}
		usleep(round * 100);
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		/* Those from before the call are good and in order, */
		while (ibv_poll_cq(self->p.a.scq, 1, &wc) > 0) {
			EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
			EXPECT_EQ(++last, wc.wr_id);
		}
		/* and none comes after it, of either queue. */
		EXPECT_FALSE(poll_for(self->p.a.scq, &wc, 20));
		EXPECT_EQ(0, drain_cq(self->p.a.rcq));
		/* Nothing of the old life is left in the new one. */
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		drain_cq(self->p.b.rcq);
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
		EXPECT_FALSE(poll_for(self->p.a.scq, &wc, 20));
		EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
		EXPECT_WORKS(&self->r, &self->p.b, &self->p.a);
	}
}

TEST_F(flush, reset_forgets_receives)
{
	/* A receive posted before RESET must not take a message after it. */
	memset(self->dst.addr, 0, 4096);
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, post_recv(self->p.b.qp, 1, &self->dst, 64));
	ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
	ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
	ASSERT_EQ(0, pair_connect(&self->r, &self->p));
	EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0));
}

TEST_F(flush, rnr_timer_dies_with_reset)
{
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_wc wc;
	struct pair p;

	/* 163 ms until the next try; RESET and a new life come before it. */
	o.rnr_timer = 28;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	memset(self->dst.addr, 0, 64);
	memset(self->src.addr, 1, 64);
	for (int round = 0; round < 4; round++) {
		ASSERT_EQ(0, post_msg(p.a.qp, 1, &self->src, 64));
		sleep_ms(20);
		ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &p));
		ASSERT_EQ(0, post_recv(p.b.qp, 2, &self->dst, 64));
		EXPECT_FALSE(poll_for(p.a.scq, &wc, 300));
		EXPECT_EQ(0, drain_cq(p.b.rcq));
		EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0)) TH_LOG("an old message arrived");
		/* The next round's message must find no receive. */
		ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &p));
	}
	pair_destroy(&p);
}

TEST_F(flush, retry_timer_dies_with_destroy)
{
	struct rc_opts o = RC_DEFAULTS;

	o.timeout = 8; /* 1 ms */
	for (int round = 0; round < 200; round++) {
		struct pair p;

		ASSERT_EQ(0, pair_create(&self->r, &p, &o));
		ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
		for (int i = 0; i < 16; i++)
			ASSERT_EQ(0, post_msg(p.a.qp, i, &self->src, 64));
		usleep(round * 37 % 5000);
		EXPECT_EQ(0, rc_destroy(&p.a));
		EXPECT_EQ(0, rc_destroy(&p.b));
	}
}

/* Threads that all do the same to one queue pair; nothing may be lost or come twice. */

struct breaker {
	struct ibv_qp *qp;
	enum ibv_qp_state to;
	int err;
};

static void *break_it(void *arg)
{
	struct breaker *breaker = arg;

	breaker->err = qp_to(breaker->qp, breaker->to);
	return NULL;
}

TEST_F(flush, error_by_two_threads)
{
	for (int round = 0; round < 50; round++) {
		struct breaker breakers[2] = { { self->p.a.qp, IBV_QPS_ERR, 0 },
					       { self->p.a.qp, IBV_QPS_ERR, 0 } };
		pthread_t threads[2];

		for (int i = 0; i < 40; i++) {
			ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 64));
			ASSERT_EQ(0, post_recv(self->p.a.qp, i, &self->dst, 64));
		}
		for (int i = 0; i < 2; i++)
			pthread_create(&threads[i], NULL, break_it, &breakers[i]);
		for (int i = 0; i < 2; i++) {
			pthread_join(threads[i], NULL);
			EXPECT_EQ(0, breakers[i].err);
		}
		for (int i = 0; i < 40; i++) {
			EXPECT_WC(self->p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
			EXPECT_WC(self->p.a.rcq, i, IBV_WC_WR_FLUSH_ERR);
		}
		EXPECT_EQ(0, drain_cq(self->p.a.scq) + drain_cq(self->p.a.rcq));
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
	}
}

struct poster {
	struct ibv_qp *qp;
	struct region *src;
	int posted;
	bool stop;
};

static void *post_until_full(void *arg)
{
	struct poster *poster = arg;

	while (!__atomic_load_n(&poster->stop, __ATOMIC_ACQUIRE) && poster->posted < 120)
		if (!post_msg(poster->qp, poster->posted, poster->src, 64))
			poster->posted++;
	return NULL;
}

TEST_F(flush, posting_while_it_fails)
{
	/* Row 19: one thread posts, the other modifies to ERR: nothing is lost. */
	for (int round = 0; round < 30; round++) {
		struct poster poster = { .qp = self->p.a.qp, .src = &self->src };
		pthread_t thread;

		ASSERT_EQ(0, pthread_create(&thread, NULL, post_until_full, &poster));
		usleep(round * 50);
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_ERR));
		pthread_join(thread, NULL);
		for (int i = 0; i < poster.posted; i++)
			EXPECT_WC(self->p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
		EXPECT_EQ(0, drain_cq(self->p.a.scq));
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
	}
}

TEST_F(flush, receives_complete_once_under_a_stream)
{
	/* Row 3: the receiver fails in the middle of a stream of messages. */
	for (int round = 0; round < 30; round++) {
		int seen[120] = { 0 }, n = 0;
		struct ibv_wc wc;

		for (int i = 0; i < 120; i++)
			ASSERT_EQ(0, post_recv(self->p.b.qp, i, &self->dst, 4096));
		for (int i = 0; i < 120; i++)
			ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 4096));
		usleep(round * 53 % 1500);
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_ERR));
		while (ibv_poll_cq(self->p.b.rcq, 1, &wc) > 0) {
			ASSERT_LT(wc.wr_id, 120);
			ASSERT_EQ(n++, wc.wr_id);
			ASSERT_EQ(1, ++seen[wc.wr_id]);
			ASSERT_TRUE(wc.status == IBV_WC_SUCCESS ||
				    wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		EXPECT_EQ(120, n);
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		drain_cq(self->p.a.scq);
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
	}
}

TEST_HARNESS_MAIN
