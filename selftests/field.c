// SPDX-License-Identifier: GPL-2.0
/*
 * What has gone wrong with software RDMA devices in the field, tried on this one. Each test is
 * named after its row in Documentation/field.rst, which also names the tests that other files have
 * for rows that are not here.
 */

#include "kselftest_harness.h"
#include "nldev.h"

#include <pthread.h>

#define THREADS 4

FIXTURE(field) {
	struct rdma r;
	struct region src, dst;
};

FIXTURE_SETUP(field)
{
	srandom(11);
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, region_create(&self->src, self->r.pd, MIB, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, MIB, RC_ACCESS));
}

FIXTURE_TEARDOWN(field)
{
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

/* The same work done by several threads; each says at the end which line of it failed, or 0. */
struct worker {
	struct rdma *r;
	struct region *src, *dst;
	unsigned int seed;
	int rounds;
	int line;
};

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			w->line = __LINE__;                                                        \
			return NULL;                                                               \
		}                                                                                  \
	} while (0)

static void all_threads(struct __test_metadata *_metadata, FIXTURE_DATA(field) *self, int rounds,
			void *(*work)(void *))
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .r = &self->r, .src = &self->src, .dst = &self->dst,
					      .seed = 77 + i, .rounds = rounds };
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, work, &workers[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, workers[i].line) TH_LOG("thread %d failed there", i);
	}
}

/*
 * A timer of a queue pair that had been destroyed fired, and used its memory. Here 64 requests wait
 * for a receiver that is not ready, or for a peer that is gone, and the queue pair goes between two
 * ticks of their timers. Destroying succeeds, and nothing comes after it.
 */
static void *destroy_under_timers(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < w->rounds; round++) {
		struct rc_opts o = RC_DEFAULTS;
		struct ibv_cq *cq = ibv_create_cq(w->r->ctx, 512, NULL, NULL, 0);
		struct pair p;

		CHECK(cq);
		o.cq = cq;
		o.timeout = 8; /* 1 ms */
		o.rnr_timer = 5; /* 0.06 ms */
		CHECK(!pair_create(w->r, &p, &o));
		if (round % 2)
			CHECK(!rc_destroy(&p.b));
		for (int i = 0; i < 64; i++)
			CHECK(!post_msg(p.a.qp, i, w->src, 64));
		usleep(rand_r(&w->seed) % 5000);
		CHECK(!rc_destroy(&p.a));
		drain_cq(cq);
		usleep(1000);
		CHECK(!drain_cq(cq));
		CHECK(!rc_destroy(&p.b));
		CHECK(!ibv_destroy_cq(cq));
	}
	return NULL;
}

TEST_F_TIMEOUT(field, row_02_no_timer_survives_destroy, 60)
{
	all_threads(_metadata, self, 50 / slowness(), destroy_under_timers);
}

/*
 * A wake-up was lost while a queue pair was being reset, and it slept for ever after; or the reset
 * itself did. Here both ends are reset under traffic in either direction and connected again, while
 * all CPUs have other things to do. Each call returns, and the connection carries messages.
 */
static void *burn(void *arg)
{
	while (!__atomic_load_n((bool *)arg, __ATOMIC_ACQUIRE))
		;
	return NULL;
}

TEST_F_TIMEOUT(field, row_05_no_wake_up_is_lost, 90)
{
	int cycles = 100 / slowness(), burners = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[16];
	bool stop = false;
	struct pair p;

	burners = burners < 16 ? burners : 16;
	ASSERT_EQ(0, pair_create(&self->r, &p, NULL));
	for (int i = 0; i < burners; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, burn, &stop));
	for (int cycle = 0; cycle < cycles; cycle++) {
		uint64_t start;

		for (int i = 0; i < 8; i++) {
			ASSERT_EQ(0, post_rdma(p.a.qp, i, IBV_WR_RDMA_WRITE, &self->src, 32 * KIB,
					       &self->dst));
			ASSERT_EQ(0, post_rdma(p.b.qp, i, IBV_WR_RDMA_READ, &self->dst, 32 * KIB,
					       &self->src));
		}
		start = now_ms();
		ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
		ASSERT_LT(now_ms() - start, LIMIT_MS);
		drain_cq(p.a.scq);
		drain_cq(p.b.scq);
		ASSERT_EQ(0, pair_connect(&self->r, &p));
		EXPECT_WORKS(&self->r, &p.a, &p.b);
		EXPECT_WORKS(&self->r, &p.b, &p.a);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (int i = 0; i < burners; i++)
		pthread_join(threads[i], NULL);
	pair_destroy(&p);
}

/*
 * The event that the last receive of a failed queue pair has been taken came never, or with each
 * packet. It belongs to queue pairs with a shared receive queue; one without has none, whatever its
 * peer goes on sending.
 */
TEST_F(field, row_11_no_last_receive_event)
{
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_async_event event;
	uint64_t end;
	struct pair p;
	int seen;

	o.timeout = 8;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, post_recv(p.b.qp, i, &self->dst, 64));
	ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_ERR));
	for (end = now_ms() + 1000; now_ms() < end;) {
		if (!post_msg(p.a.qp, 1, &self->src, 64))
			sleep_ms(1);
		drain_cq(p.a.scq);
	}
	while ((seen = next_event(self->r.ctx, &event, 0)) >= 0)
		EXPECT_NE(IBV_EVENT_QP_LAST_WQE_REACHED, seen);
	EXPECT_EQ(10, drain_cq(p.b.rcq));
	pair_destroy(&p);
}

/*
 * Work that was to flush a failed queue pair met one that had been destroyed meanwhile. ERR, then
 * destroy at once, by several threads: what was posted had completed before, and nothing comes
 * after.
 */
static void *error_then_destroy(void *arg)
{
	struct worker *w = arg;
	struct rc_opts o = RC_DEFAULTS;

	o.cq = ibv_create_cq(w->r->ctx, 1024, NULL, NULL, 0);
	CHECK(o.cq);
	for (int round = 0; round < w->rounds; round++) {
		struct pair p;

		CHECK(!pair_create(w->r, &p, &o));
		for (int i = 0; i < 16; i++) {
			CHECK(!post_recv(p.a.qp, i, w->dst, 64));
			CHECK(!post_rdma(p.a.qp, i, IBV_WR_RDMA_WRITE, w->src, 4096, w->dst));
		}
		CHECK(!qp_to(p.a.qp, IBV_QPS_ERR));
		CHECK(!rc_destroy(&p.a));
		CHECK(drain_cq(o.cq) == 32);
		CHECK(!rc_destroy(&p.b));
		CHECK(!drain_cq(o.cq));
	}
	CHECK(!ibv_destroy_cq(o.cq));
	return NULL;
}

TEST_F_TIMEOUT(field, row_14_destroy_right_after_error, 60)
{
	all_threads(_metadata, self, 200 / slowness(), error_then_destroy);
}

/*
 * The sender used a queue pair that had been destroyed. Those who take down in two steps, ERR and
 * then destroy when all has completed, lose no completion, although somebody posts up to the last.
 */
struct poster {
	struct ibv_qp *qp;
	struct region *src;
	int posted;
	bool stop;
};

static void *post_until_stopped(void *arg)
{
	struct poster *poster = arg;

	while (!__atomic_load_n(&poster->stop, __ATOMIC_ACQUIRE) && poster->posted < 120)
		if (!post_msg(poster->qp, poster->posted, poster->src, 64))
			poster->posted++;
	return NULL;
}

TEST_F_TIMEOUT(field, row_19_two_steps_lose_nothing, 60)
{
	for (int round = 0; round < 100 / (int)slowness(); round++) {
		struct rc_opts o = RC_DEFAULTS;
		struct poster poster;
		pthread_t thread;
		struct ibv_wc wc;
		struct pair p;

		o.cq = ibv_create_cq(self->r.ctx, 512, NULL, NULL, 0);
		ASSERT_NE(NULL, o.cq);
		ASSERT_EQ(0, pair_create(&self->r, &p, &o));
		for (int i = 0; i < 60; i++)
			ASSERT_EQ(0, post_recv(p.b.qp, 1000 + i, &self->dst, 64));
		poster = (struct poster){ .qp = p.a.qp, .src = &self->src };
		ASSERT_EQ(0, pthread_create(&thread, NULL, post_until_stopped, &poster));
		usleep(random() % 1000);
		ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_ERR));
		__atomic_store_n(&poster.stop, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		for (int next = 0; next < poster.posted;) {
			ASSERT_POLL(o.cq, &wc);
			if (wc.wr_id >= 1000)
				continue;
			ASSERT_EQ(next++, wc.wr_id);
			ASSERT_TRUE(wc.status == IBV_WC_SUCCESS ||
				    wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		EXPECT_EQ(0, rc_destroy(&p.a));
		EXPECT_EQ(0, rc_destroy(&p.b));
		while (ibv_poll_cq(o.cq, 1, &wc) > 0)
			EXPECT_GE(wc.wr_id, 1000) TH_LOG("a send completed after all");
		EXPECT_EQ(0, ibv_destroy_cq(o.cq));
	}
}

/*
 * A queue pair that was destroyed under the READs of its peer took others with it. The peer's READs
 * end with RETRY_EXC_ERR, as nobody answers; a connection beside them notices nothing.
 */
static void *destroy_under_reads(void *arg)
{
	struct worker *w = arg;

	for (int round = 0; round < w->rounds; round++) {
		struct rc_opts o = RC_DEFAULTS;
		bool bad = false;
		struct ibv_wc wc;
		struct pair p;

		o.timeout = 8;
		o.retry_cnt = 2;
		CHECK(!pair_create(w->r, &p, &o));
		for (int i = 0; i < 100; i++)
			CHECK(!post_rdma(p.a.qp, i, IBV_WR_RDMA_READ, w->dst, 16 * KIB, w->src));
		usleep(rand_r(&w->seed) % 1000);
		CHECK(!rc_destroy(&p.b));
		for (int i = 0; i < 100; i++) {
			CHECK(poll_one(p.a.scq, &wc) == 1 && wc.wr_id == (uint64_t)i);
			if (bad)
				CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
			else
				CHECK(wc.status == IBV_WC_SUCCESS ||
				      wc.status == IBV_WC_RETRY_EXC_ERR);
			bad = wc.status != IBV_WC_SUCCESS;
		}
		CHECK(!rc_destroy(&p.a));
	}
	return NULL;
}

struct canary {
	struct rdma *r;
	struct pair p;
	bool stop;
	int sung, wrong;
};

static void *sing(void *arg)
{
	struct canary *c = arg;
	struct region cage;
	struct ibv_wc wc;

	if (region_create(&cage, c->r->pd, 128, RC_ACCESS))
		c->wrong++;
	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE) && !c->wrong) {
		pattern_fill(cage.addr, 64, c->sung);
		c->wrong += post_op(c->p.a.qp, c->sung, IBV_WR_RDMA_WRITE, sge_of(&cage, 0, 64),
				    (uintptr_t)cage.addr + 64, cage.mr->rkey, 0) ||
			    poll_one(c->p.a.scq, &wc) != 1 || wc.status ||
			    !pattern_ok(cage.addr + 64, 64, c->sung);
		c->sung++;
	}
	region_free(&cage);
	return NULL;
}

TEST_F_TIMEOUT(field, row_20_others_do_not_notice, 90)
{
	struct canary canary = { .r = &self->r };
	pthread_t thread;

	ASSERT_EQ(0, pair_create(&self->r, &canary.p, NULL));
	ASSERT_EQ(0, pthread_create(&thread, NULL, sing, &canary));
	all_threads(_metadata, self, 50 / slowness(), destroy_under_reads);
	__atomic_store_n(&canary.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, canary.wrong) TH_LOG("after %d messages", canary.sung);
	EXPECT_GT(canary.sung, 0);
	pair_destroy(&canary.p);
}

/*
 * After a thousand connections a server answered no more: each had left something behind. Here
 * there are two thousand, made, used and taken down in changing ways; the device has as many
 * objects afterwards as before, and the last connection works like the first.
 */
TEST_F_TIMEOUT(field, row_22_connections_leave_nothing, 120)
{
	char before[128], after[128];
	struct nldev nl;
	int64_t index;

	ASSERT_EQ(0, nldev_open(&nl));
	index = nldev_index(&nl, device_name());
	ASSERT_GE(index, 0);
	ASSERT_EQ(0, nldev_objects(&nl, index, before));
	for (int i = 0; i < 2000 / (int)slowness(); i++) {
		struct rc_opts o = RC_DEFAULTS;
		struct region window = self->dst;
		struct pair p;

		window.mr = NULL;
		o.cq_depth = 16;
		o.send_depth = 16;
		o.recv_depth = 16;
		ASSERT_EQ(0, pair_create(&self->r, &p, &o)) TH_LOG("connection %d", i);
		ASSERT_EQ(0, region_reg(&window, self->r.pd, RC_ACCESS));
		ASSERT_EQ(0, post_rdma(p.a.qp, i, IBV_WR_RDMA_WRITE, &self->src, MIB, &window));
		/* In the middle of the message, or after it. */
		if (i % 2)
			EXPECT_WC(p.a.scq, i, IBV_WC_SUCCESS);
		if (i % 3 == 1)
			ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_ERR));
		if (i % 3 == 2)
			ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
		if (i % 5)
			ASSERT_EQ(0, region_dereg(&window));
		ASSERT_EQ(0, rc_destroy(&p.a));
		ASSERT_EQ(0, rc_destroy(&p.b));
		ASSERT_EQ(0, region_dereg(&window));
	}
	ASSERT_EQ(0, nldev_objects(&nl, index, after));
	EXPECT_STREQ(before, after);
	nldev_close(&nl);
}

/*
 * A completion queue that ran full lost completions in silence. Two queue pairs share one; the
 * first fills it up. There is one error event, and both fail: neither goes on as if its completions
 * were still told to somebody. What is in the queue is as good as ever.
 */
TEST_F(field, row_42_both_queue_pairs_fail)
{
	struct rc_opts o = RC_DEFAULTS, deep = RC_DEFAULTS;
	struct ibv_async_event event;
	struct pair first, second;
	int errors = 0, good = 0;
	struct ibv_wc wc;

	o.cq = ibv_create_cq(self->r.ctx, 16, NULL, NULL, 0);
	ASSERT_NE(NULL, o.cq);
	ASSERT_LT(o.cq->cqe, 60);
	ASSERT_EQ(0, pair_create2(&self->r, &first, &o, &deep));
	ASSERT_EQ(0, pair_create2(&self->r, &second, &o, &deep));
	for (int i = 0; i < 64; i++)
		ASSERT_EQ(0, post_op(first.a.qp, i, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0,
				     0));
	EXPECT_STATE(IBV_QPS_ERR, first.a.qp);
	/* Room again is no help: what was lost is lost. */
	while (ibv_poll_cq(o.cq, 1, &wc) > 0 && wc.status == IBV_WC_SUCCESS)
		EXPECT_EQ(good++, wc.wr_id);
	EXPECT_GE(good, 16);
	ASSERT_EQ(0, post_op(second.a.qp, 100, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0));
	EXPECT_STATE(IBV_QPS_ERR, second.a.qp);
	while (ibv_poll_cq(o.cq, 1, &wc) > 0)
		EXPECT_NE(100, wc.wr_id);
	for (int seen; (seen = next_event(self->r.ctx, &event, QUIET_MS)) >= 0;)
		errors += seen == IBV_EVENT_CQ_ERR;
	EXPECT_EQ(1, errors);
	pair_destroy(&first);
	pair_destroy(&second);
	EXPECT_EQ(0, ibv_destroy_cq(o.cq));
}

TEST_HARNESS_MAIN
