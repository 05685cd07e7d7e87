// SPDX-License-Identifier: GPL-2.0
/*
 * Sixteen connections that all want the whole device: each gets at least 80 % of its share.
 *
 * The load of every queue pair is posted while its send queue is at rest (SQD), and then all are
 * let go. So what is measured is the device's arbitration, not the scheduling of the threads that
 * post. From when the last was let go until the first has moved all of its load, what each has moved
 * is compared with the mean.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#define PAIRS 16
#define SHARE_PERCENT 80

struct flow {
	struct rdma r; /* a context of its own, as a process would have */
	struct pair p;
	struct region src, dst;
	int done, early; /* messages: all, and those before the last flow was let go */
};

FIXTURE(fair) {
	struct flow flows[PAIRS];
};

FIXTURE_VARIANT(fair) {
	size_t len;
	int load; /* messages */
};

FIXTURE_VARIANT_ADD(fair, small_messages) {
	.len = 64, .load = 16384,
};

FIXTURE_VARIANT_ADD(fair, large_messages) {
	.len = 64 * KIB, .load = 4096,
};

FIXTURE_VARIANT_ADD(fair, huge_messages) {
	.len = MIB, .load = 512,
};

FIXTURE_SETUP(fair)
{
	struct rc_opts o = RC_DEFAULTS;

	if (slowness() > 1)
		SKIP(return, "it measures, and this kernel is too slow for that");
	o.send_depth = variant->load;
	o.cq_depth = variant->load;
	for (int i = 0; i < PAIRS; i++) {
		struct flow *f = &self->flows[i];

		ASSERT_EQ(0, rdma_open(&f->r));
		ASSERT_EQ(0, pair_create(&f->r, &f->p, &o));
		ASSERT_EQ(0, region_create(&f->src, f->r.pd, variant->len, RC_ACCESS));
		ASSERT_EQ(0, region_create(&f->dst, f->r.pd, variant->len, RC_ACCESS));
	}
}

FIXTURE_TEARDOWN(fair)
{
	for (int i = 0; i < PAIRS; i++) {
		struct flow *f = &self->flows[i];

		pair_destroy(&f->p);
		region_free(&f->src);
		region_free(&f->dst);
		rdma_close(&f->r);
	}
}

/* Counts what has completed; the first status that is not success, or 0. */
static int count(struct flow *f)
{
	struct ibv_wc wc[64];
	int n;

	while ((n = ibv_poll_cq(f->p.a.scq, 64, wc)) > 0) {
		for (int i = 0; i < n; i++)
			if (wc[i].status)
				return wc[i].status;
		f->done += n;
	}
	return n;
}

TEST_F_TIMEOUT(fair, share_of_each, 60)
{
	uint64_t end = now_ms() + 40000;
	long total = 0, least = -1;
	bool finished = false;

	for (int i = 0; i < PAIRS; i++) {
		struct flow *f = &self->flows[i];

		ASSERT_EQ(0, qp_to(f->p.a.qp, IBV_QPS_SQD));
		for (int k = 0; k < variant->load; k++)
			ASSERT_EQ(0, post_rdma(f->p.a.qp, k, IBV_WR_RDMA_WRITE, &f->src,
					       variant->len, &f->dst));
	}
	for (int i = 0; i < PAIRS; i++)
		ASSERT_EQ(0, qp_to(self->flows[i].p.a.qp, IBV_QPS_RTS));
	for (int i = 0; i < PAIRS; i++) {
		struct flow *f = &self->flows[i];

		ASSERT_EQ(0, count(f));
		f->early = f->done;
	}
	while (!finished && now_ms() < end) {
		for (int i = 0; i < PAIRS; i++) {
			struct flow *f = &self->flows[i];

			ASSERT_EQ(0, count(f));
			finished |= f->done == variant->load;
		}
	}
	EXPECT_TRUE(finished) TH_LOG("no flow has finished");
	for (int i = 0; i < PAIRS; i++) {
		int moved = self->flows[i].done - self->flows[i].early;

		total += moved;
		least = least < 0 || moved < least ? moved : least;
	}
	TH_LOG("mean %ld messages, least %ld (%ld %%)", total / PAIRS, least,
	       total ? least * PAIRS * 100 / total : 0);
	EXPECT_GE(least * PAIRS * 100, total * SHARE_PERCENT);
}

TEST_HARNESS_MAIN
