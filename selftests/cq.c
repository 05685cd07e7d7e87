// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: sizes, completion channels and arming (IBTA C11-31, C11-32 as public code
 * cites them), overflow, resize.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#include <pthread.h>

FIXTURE(cq) {
	struct rdma r;
	struct ibv_comp_channel *channel;
	struct pair p;
	struct region buf;
};

FIXTURE_SETUP(cq)
{
	struct rc_opts o = RC_DEFAULTS;

	ASSERT_EQ(0, rdma_open(&self->r));
	self->channel = ibv_create_comp_channel(self->r.ctx);
	ASSERT_NE(NULL, self->channel);
	o.channel = self->channel;
	ASSERT_EQ(0, pair_create(&self->r, &self->p, &o));
	ASSERT_EQ(0, region_create(&self->buf, self->r.pd, PAGE, RC_ACCESS));
}

FIXTURE_TEARDOWN(cq)
{
	pair_destroy(&self->p);
	region_free(&self->buf);
	if (self->channel)
		EXPECT_EQ(0, ibv_destroy_comp_channel(self->channel));
	rdma_close(&self->r);
}

/* A write of no bytes: the shortest way to a completion. */
static int post_empty(struct rc *q, uint64_t id)
{
	return post_op(q->qp, id, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0);
}

/* The CQ whose event comes within @ms, acknowledged; NULL if none does. */
static struct ibv_cq *event_within(struct ibv_comp_channel *channel, unsigned int ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, ms) != 1 || ibv_get_cq_event(channel, &cq, &context))
		return NULL;
	ibv_ack_cq_events(cq, 1);
	return cq;
}

TEST_F(cq, sizes)
{
	const int sizes[] = { 1, 2, 3, 7, 255, 256, 1000, self->r.attr.max_cqe };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct ibv_cq *cq = ibv_create_cq(self->r.ctx, sizes[i], NULL, NULL, 0);

		ASSERT_NE(NULL, cq) TH_LOG("%d entries: errno %d", sizes[i], errno);
		EXPECT_GE(cq->cqe, sizes[i]);
		EXPECT_EQ(0, ibv_destroy_cq(cq));
	}
}

TEST_F(cq, bad_sizes_are_refused)
{
	const int sizes[] = { 0, -1, self->r.attr.max_cqe + 1, 0x7fffffff };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		errno = 0;
		EXPECT_EQ(NULL, ibv_create_cq(self->r.ctx, sizes[i], NULL, NULL, 0))
			TH_LOG("%d entries were granted", sizes[i]);
		EXPECT_EQ(EINVAL, errno) TH_LOG("%d entries: errno %d", sizes[i], errno);
	}
}

TEST_F(cq, bad_vector_is_refused)
{
	errno = 0;
	EXPECT_EQ(NULL, ibv_create_cq(self->r.ctx, 16, NULL, NULL,
				      self->r.ctx->num_comp_vectors));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, ibv_create_cq(self->r.ctx, 16, NULL, NULL, -1));
}

TEST_F(cq, holds_as_many_as_granted)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;
	int n;

	o.cq_depth = 50;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	n = p.a.scq->cqe;
	ASSERT_LE(n, 127) TH_LOG("the queue is deeper than this test can fill");
	for (int i = 0; i < n; i++)
		ASSERT_EQ(0, post_empty(&p.a, i));
	sleep_ms(QUIET_MS);
	for (int i = 0; i < n; i++)
		EXPECT_WC(p.a.scq, i, IBV_WC_SUCCESS);
	EXPECT_EQ(IBV_QPS_RTS, qp_state(p.a.qp));
	pair_destroy(&p);
}

TEST_F(cq, order_is_posting_order)
{
	struct ibv_wc wc;

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 100; i++)
			ASSERT_EQ(0, post_empty(&self->p.a, round * 100 + i));
		for (int i = 0; i < 100; i++) {
			ASSERT_POLL(self->p.a.scq, &wc);
			ASSERT_EQ(round * 100 + i, wc.wr_id);
			ASSERT_EQ(self->p.a.qp->qp_num, wc.qp_num);
		}
	}
}

TEST_F(cq, shared_by_queue_pairs)
{
	struct rc_opts o = RC_DEFAULTS;
	uint64_t next[2] = { 0 };
	struct pair p, q;
	struct ibv_wc wc;

	o.cq = ibv_create_cq(self->r.ctx, 512, NULL, NULL, 0);
	ASSERT_NE(NULL, o.cq);
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, pair_create(&self->r, &q, &o));
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(0, post_empty(&p.a, i));
		ASSERT_EQ(0, post_empty(&q.a, i));
	}
	for (int i = 0; i < 200; i++) {
		int of;

		ASSERT_POLL(o.cq, &wc);
		of = wc.qp_num == q.a.qp->qp_num;
		ASSERT_EQ(of ? q.a.qp->qp_num : p.a.qp->qp_num, wc.qp_num);
		EXPECT_EQ(next[of]++, wc.wr_id);
	}
	pair_destroy(&p);
	pair_destroy(&q);
	EXPECT_EQ(0, ibv_destroy_cq(o.cq));
}

TEST_F(cq, no_event_unless_armed)
{
	ASSERT_EQ(0, post_empty(&self->p.a, 1));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_EQ(NULL, event_within(self->channel, QUIET_MS));
}

TEST_F(cq, one_event_for_each_arming)
{
	struct ibv_cq *cq = self->p.a.scq;

	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(0, ibv_req_notify_cq(cq, 0));
		for (int i = 0; i < 5; i++)
			ASSERT_EQ(0, post_empty(&self->p.a, i));
		EXPECT_EQ(cq, event_within(self->channel, LIMIT_MS));
		for (int i = 0; i < 5; i++)
			EXPECT_WC(cq, i, IBV_WC_SUCCESS);
	}
	EXPECT_EQ(NULL, event_within(self->channel, QUIET_MS));
}

TEST_F(cq, arming_both_queues)
{
	ASSERT_EQ(0, ibv_req_notify_cq(self->p.a.scq, 0));
	ASSERT_EQ(0, ibv_req_notify_cq(self->p.b.rcq, 0));
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->buf, 8));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &self->buf, 8));
	ASSERT_NE(NULL, event_within(self->channel, LIMIT_MS));
	ASSERT_NE(NULL, event_within(self->channel, LIMIT_MS));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_WC(self->p.b.rcq, 2, IBV_WC_SUCCESS);
}

/* A message to b, solicited or not. */
static int message(struct pair *p, struct region *buf, int flags)
{
	int err = post_recv(p->b.qp, 2, buf, 8);

	return err ? err : post_op(p->a.qp, 1, IBV_WR_SEND, sge_of(buf, 0, 8), 0, 0, flags);
}

TEST_F(cq, solicited_only)
{
	struct pair *p = &self->p;

	ASSERT_EQ(0, ibv_req_notify_cq(p->b.rcq, 1));
	ASSERT_EQ(0, message(p, &self->buf, 0));
	EXPECT_WC(p->b.rcq, 2, IBV_WC_SUCCESS);
	EXPECT_EQ(NULL, event_within(self->channel, QUIET_MS));
	/* Still armed. */
	ASSERT_EQ(0, message(p, &self->buf, IBV_SEND_SOLICITED));
	EXPECT_EQ(p->b.rcq, event_within(self->channel, LIMIT_MS));
	EXPECT_WC(p->b.rcq, 2, IBV_WC_SUCCESS);
}

TEST_F(cq, solicited_write_with_imm)
{
	struct pair *p = &self->p;

	ASSERT_EQ(0, ibv_req_notify_cq(p->b.rcq, 1));
	ASSERT_EQ(0, post_recv(p->b.qp, 2, &self->buf, 0));
	ASSERT_EQ(0, post_op(p->a.qp, 1, IBV_WR_RDMA_WRITE_WITH_IMM, sge_of(&self->buf, 0, 8),
			     (uintptr_t)self->buf.addr + 64, self->buf.mr->rkey,
			     IBV_SEND_SOLICITED));
	EXPECT_EQ(p->b.rcq, event_within(self->channel, LIMIT_MS));
}

TEST_F(cq, any_completion_event_covers_solicited)
{
	struct pair *p = &self->p;

	/* Asking for all and then for solicited only does not take back the first. */
	ASSERT_EQ(0, ibv_req_notify_cq(p->b.rcq, 0));
	ASSERT_EQ(0, ibv_req_notify_cq(p->b.rcq, 1));
	ASSERT_EQ(0, message(p, &self->buf, 0));
	EXPECT_EQ(p->b.rcq, event_within(self->channel, LIMIT_MS));
}

TEST_F(cq, errors_are_solicited)
{
	struct pair *p = &self->p;

	ASSERT_EQ(0, ibv_req_notify_cq(p->b.rcq, 1));
	ASSERT_EQ(0, post_recv(p->b.qp, 2, &self->buf, 8));
	ASSERT_EQ(0, qp_to(p->b.qp, IBV_QPS_ERR));
	EXPECT_EQ(p->b.rcq, event_within(self->channel, LIMIT_MS));
	EXPECT_WC(p->b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
}

#define RACE_ROUNDS 5000

struct poster {
	struct rc *q;
	int posted, taken;
	int err;
};

/* Posts one after the other, as fast as the consumer takes them, so that every arming races. */
static void *post_many(void *arg)
{
	struct poster *poster = arg;

	for (int i = 0; i < RACE_ROUNDS && !poster->err; i++) {
		uint64_t end = now_ms() + LIMIT_MS;

		while (i - __atomic_load_n(&poster->taken, __ATOMIC_ACQUIRE) > 32) {
			if (now_ms() > end)
				return NULL;
			sched_yield();
		}
		poster->err = post_empty(poster->q, i);
	}
	return NULL;
}

TEST_F_TIMEOUT(cq, no_event_is_lost, 90)
{
	struct poster poster = { .q = &self->p.a };
	struct ibv_cq *cq = self->p.a.scq;
	uint64_t sleeps = 0;
	pthread_t thread;
	struct ibv_wc wc;
	int got = 0;

	ASSERT_EQ(0, pthread_create(&thread, NULL, post_many, &poster));
	while (got < RACE_ROUNDS) {
		int n;

		while ((n = ibv_poll_cq(cq, 1, &wc)) > 0) {
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			ASSERT_EQ(got, wc.wr_id);
			__atomic_store_n(&poster.taken, ++got, __ATOMIC_RELEASE);
		}
		if (got == RACE_ROUNDS)
			break;
		/* Arm, look once more, only then sleep: after this no completion may be missed. */
		ASSERT_EQ(0, ibv_req_notify_cq(cq, 0));
		n = ibv_poll_cq(cq, 1, &wc);
		ASSERT_GE(n, 0);
		if (n) {
			ASSERT_EQ(got, wc.wr_id);
			__atomic_store_n(&poster.taken, ++got, __ATOMIC_RELEASE);
			continue;
		}
		sleeps++;
		ASSERT_EQ(cq, event_within(self->channel, 20000))
			TH_LOG("lost an event after %d of %d completions", got, RACE_ROUNDS);
	}
	pthread_join(thread, NULL);
	EXPECT_EQ(0, poster.err);
	TH_LOG("%d completions, slept %llu times", got, (unsigned long long)sleeps);
}

TEST_F(cq, overflow)
{
	struct rc_opts o = RC_DEFAULTS, deep = RC_DEFAULTS;
	struct ibv_async_event event;
	int seen = -1, good = 0, n;
	struct ibv_wc wc;
	struct pair p;

	o.cq_depth = 16;
	ASSERT_EQ(0, pair_create2(&self->r, &p, &o, &deep));
	ASSERT_LT(p.a.scq->cqe, 100);
	n = p.a.scq->cqe;
	for (int i = 0; i < 120; i++)
		ASSERT_EQ(0, post_empty(&p.a, i));
	for (int tries = 0; tries < 4 && seen != IBV_EVENT_CQ_ERR; tries++)
		seen = next_event(self->r.ctx, &event, LIMIT_MS / 4);
	ASSERT_EQ(IBV_EVENT_CQ_ERR, seen) TH_LOG("no CQ error event");
	EXPECT_EQ(p.a.scq, event.element.cq);
	EXPECT_STATE(IBV_QPS_ERR, p.a.qp);
	/* What was in the queue before it overflowed is still good and in order. */
	while (ibv_poll_cq(p.a.scq, 1, &wc) > 0 && wc.status == IBV_WC_SUCCESS)
		EXPECT_EQ(good++, wc.wr_id);
	EXPECT_GE(good, n);
	pair_destroy(&p);
}

TEST_F(cq, overflow_spares_other_queues)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;

	o.cq_depth = 4;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	for (int i = 0; i < 100; i++)
		post_empty(&p.a, i);
	EXPECT_STATE(IBV_QPS_ERR, p.a.qp);
	EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
	pair_destroy(&p);
	EXPECT_WORKS(&self->r, &self->p.b, &self->p.a);
}

TEST_F(cq, resize)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;
	int err;

	o.cq_depth = 60;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	for (int i = 0; i < 50; i++)
		ASSERT_EQ(0, post_empty(&p.a, i));
	sleep_ms(QUIET_MS);
	err = ibv_resize_cq(p.a.scq, 1000);
	if (err == EOPNOTSUPP) {
		pair_destroy(&p);
		SKIP(return, "CQs cannot be resized");
	}
	ASSERT_EQ(0, err);
	EXPECT_GE(p.a.scq->cqe, 1000);
	/* Nothing is lost, and the next ones go on behind. */
	for (int i = 50; i < 100; i++)
		ASSERT_EQ(0, post_empty(&p.a, i));
	for (int i = 0; i < 20; i++)
		EXPECT_WC(p.a.scq, i, IBV_WC_SUCCESS);
	/* 80 are unpolled: fewer than that is too small. */
	sleep_ms(QUIET_MS);
	EXPECT_EQ(EINVAL, ibv_resize_cq(p.a.scq, 16));
	EXPECT_EQ(EINVAL, ibv_resize_cq(p.a.scq, self->r.attr.max_cqe + 1));
	for (int i = 20; i < 100; i++)
		EXPECT_WC(p.a.scq, i, IBV_WC_SUCCESS);
	EXPECT_EQ(0, ibv_resize_cq(p.a.scq, 16));
	EXPECT_GE(p.a.scq->cqe, 16);
	ASSERT_EQ(0, post_empty(&p.a, 7));
	EXPECT_WC(p.a.scq, 7, IBV_WC_SUCCESS);
	pair_destroy(&p);
}

struct resizer {
	struct ibv_cq *cq;
	bool stop;
	int err, times;
};

static void *resize_on_and_on(void *arg)
{
	struct resizer *resizer = arg;

	while (!__atomic_load_n(&resizer->stop, __ATOMIC_ACQUIRE) && !resizer->err) {
		resizer->err = ibv_resize_cq(resizer->cq, resizer->times % 2 ? 200 : 2000);
		resizer->times++;
		usleep(500);
	}
	return NULL;
}

TEST_F_TIMEOUT(cq, resize_under_load, 60)
{
	struct resizer resizer = { .cq = self->p.a.scq };
	pthread_t thread;

	if (ibv_resize_cq(resizer.cq, 400))
		SKIP(return, "CQs cannot be resized");
	ASSERT_EQ(0, pthread_create(&thread, NULL, resize_on_and_on, &resizer));
	for (int i = 0; i < 3000; i++) {
		ASSERT_EQ(0, post_empty(&self->p.a, 2 * i));
		ASSERT_EQ(0, post_empty(&self->p.a, 2 * i + 1));
		EXPECT_WC(resizer.cq, 2 * i, IBV_WC_SUCCESS);
		EXPECT_WC(resizer.cq, 2 * i + 1, IBV_WC_SUCCESS);
	}
	__atomic_store_n(&resizer.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, resizer.err);
	TH_LOG("resized %d times", resizer.times);
}

TEST_F(cq, channel_in_use)
{
	EXPECT_EQ(EBUSY, ibv_destroy_comp_channel(self->channel));
}

TEST_HARNESS_MAIN
