// SPDX-License-Identifier: GPL-2.0
/*
 * No request is forgotten, whoever sees to it: the doorbell of its own, or the workqueue that
 * attends to a stream and sends doorbells away meanwhile. Whatever the pace, the program never needs
 * a second doorbell for the same request, in no life of the queue pair.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#define DEPTH 64
#define ROUNDS 4000

FIXTURE(doorbell) {
	struct rdma r;
	struct pair p;
	struct region src, dst;
	uint64_t posted, done;
	uint32_t random;
};

/* How long the program does something else between two doorbells, in nanoseconds, at the most. */
FIXTURE_VARIANT(doorbell) {
	unsigned int pause;
};

FIXTURE_VARIANT_ADD(doorbell, at_full_speed) {
	.pause = 0,
};

/* Often about as long as the workqueue stays with a stream that has stopped, 20 us. */
FIXTURE_VARIANT_ADD(doorbell, as_the_workqueue_leaves) {
	.pause = 30000,
};

FIXTURE_SETUP(doorbell)
{
	struct rc_opts o = RC_DEFAULTS;

	o.send_depth = DEPTH;
	o.cq_depth = DEPTH;
	self->random = 1;
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, pair_create(&self->r, &self->p, &o));
	ASSERT_EQ(0, region_create(&self->src, self->r.pd, PAGE, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, PAGE, RC_ACCESS));
}

FIXTURE_TEARDOWN(doorbell)
{
	pair_destroy(&self->p);
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

/* xorshift: a sequence that is the same in each run. */
static unsigned int next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void pause_ns(unsigned int ns)
{
	uint64_t until = now_ns() + ns;

	while (now_ns() < until)
		;
}

static int write_word(FIXTURE_DATA(doorbell) *self, uint64_t id, int flags)
{
	struct ibv_sge sge = sge_of(&self->src, 0, 8);

	return post_send(self->p.a.qp, (struct ibv_send_wr){
		.wr_id = id,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey },
	});
}

/*
 * Posts a random number of requests without looking at the completion queue, as streams do; then
 * waits for all of them, without another doorbell.
 */
TEST_F_TIMEOUT(doorbell, no_request_waits_for_the_next, 60)
{
	unsigned int rounds = ROUNDS / slowness();
	struct ibv_wc wc;

	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int n = 1 + next_random(&self->random) % DEPTH;

		for (unsigned int i = 0; i < n; i++) {
			ASSERT_EQ(0, write_word(self, self->posted++, IBV_SEND_SIGNALED));
			if (variant->pause)
				pause_ns(next_random(&self->random) % variant->pause);
		}
		for (unsigned int i = 0; i < n; i++) {
			ASSERT_EQ(1, poll_one(self->p.a.scq, &wc)) {
				TH_LOG("round %u: %u of %u requests completed", round, i, n);
			}
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			ASSERT_EQ(self->done, wc.wr_id);
			self->done++;
		}
	}
	EXPECT_TRUE(cq_quiet(self->p.a.scq));
}

/* The same, seen from the memory: the last value arrives though nobody polls. */
TEST_F_TIMEOUT(doorbell, what_was_posted_arrives_without_a_poll, 60)
{
	volatile uint64_t *here = (void *)self->src.addr, *there = (void *)self->dst.addr;
	unsigned int rounds = ROUNDS / 8 / slowness();
	struct ibv_wc wc;

	for (unsigned int round = 1; round <= rounds; round++) {
		uint64_t until;

		for (unsigned int i = 1; i <= DEPTH; i++) {
			*here = round * DEPTH + i;
			ASSERT_EQ(0, write_word(self, i, i < DEPTH ? 0 : IBV_SEND_SIGNALED));
			if (variant->pause)
				pause_ns(next_random(&self->random) % variant->pause);
		}
		until = now_ms() + LIMIT_MS;
		while (*there != *here && now_ms() < until)
			sched_yield();
		ASSERT_EQ(*here, *there);
		ASSERT_EQ(1, poll_one(self->p.a.scq, &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(DEPTH, wc.wr_id);
	}
}

/* A RESET that comes while a visit of the workqueue is due does not have doorbells wait for it. */
TEST_F_TIMEOUT(doorbell, first_of_the_next_life_needs_but_one, 60)
{
	unsigned int rounds = 200 / slowness();
	struct region large;
	struct ibv_wc wc;

	ASSERT_EQ(0, region_create(&large, self->r.pd, 128 << 10, RC_ACCESS));
	for (unsigned int round = 0; round < rounds; round++) {
		struct ibv_sge sge = sge_of(&large, 0, 128 << 10);

		/* A doorbell moves one of them, a visit of the workqueue eight. */
		for (unsigned int i = 0; i < DEPTH; i++) {
			ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
				.opcode = IBV_WR_RDMA_WRITE,
				.sg_list = &sge,
				.num_sge = 1,
				.wr.rdma = { (uintptr_t)large.addr, large.mr->rkey },
			}));
		}
		pause_ns(next_random(&self->random) % 1000000);
		ASSERT_EQ(0, qp_to(self->p.a.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, qp_to(self->p.b.qp, IBV_QPS_RESET));
		while (ibv_poll_cq(self->p.a.scq, 1, &wc))
			;
		ASSERT_EQ(0, pair_connect(&self->r, &self->p));
		ASSERT_EQ(0, write_word(self, round, IBV_SEND_SIGNALED));
		ASSERT_EQ(1, poll_one(self->p.a.scq, &wc)) TH_LOG("round %u", round);
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(round, wc.wr_id);
	}
	region_free(&large);
}

TEST_HARNESS_MAIN
