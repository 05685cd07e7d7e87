// SPDX-License-Identifier: GPL-2.0
/*
 * The other answers (contract, section 2): a device whose policies have been changed while it
 * runs. reset_policy abort cuts a transfer at the next boundary; revoke_policy drain lets it end;
 * the drain's deadline turns the one into the other.
 *
 * The policies are files of the device in sysfs. They are put back at the end of each test.
 */

#include "kselftest_harness.h"
#include "knobs.h"
#include "stream.h"

FIXTURE(policy) {
	struct stream s;
	char saved[4][32];
};

FIXTURE_SETUP(policy)
{
	srandom(8);
	memset(self, 0, sizeof(*self));
	if (open_knob(knobs[0], O_RDONLY) < 0)
		SKIP(return, "the device has no policies");
	for (int i = 0; i < 4; i++) {
		ASSERT_TRUE(knob_get(knobs[i], self->saved[i], sizeof(self->saved[i])))
			TH_LOG("cannot read %s", knobs[i]);
	}
	ASSERT_EQ(0, stream_open(&self->s, IBV_WR_RDMA_WRITE));
}

FIXTURE_TEARDOWN(policy)
{
	for (int i = 0; i < 4; i++)
		if (self->saved[i][0])
			EXPECT_EQ(0, knob_set(knobs[i], self->saved[i]));
	stream_close(&self->s);
}

TEST_F(policy, defaults)
{
	EXPECT_STREQ("drain", self->saved[0]);
	EXPECT_STREQ("cancel", self->saved[1]);
	EXPECT_STREQ("1000", self->saved[2]);
	EXPECT_STREQ("65536", self->saved[3]);
}

TEST_F(policy, values_are_checked_and_kept)
{
	static const struct {
		const char *knob, *value;
		int want;
	} tries[] = {
		{ "reset_policy", "abort", 0 },	     { "reset_policy", "drain\n", 0 },
		{ "reset_policy", "cancel", EINVAL },  { "reset_policy", "x", EINVAL },
		{ "revoke_policy", "drain", 0 },	     { "revoke_policy", "cancel", 0 },
		{ "revoke_policy", "abort", EINVAL },  { "revoke_policy", "drain drain", EINVAL },
		{ "drain_timeout_ms", "0", 0 },	     { "drain_timeout_ms", "-1", EINVAL },
		{ "drain_timeout_ms", "99999999999999999999", EINVAL },
		{ "drain_timeout_ms", "soon", EINVAL }, { "burst_bytes", "4096", 0 },
		{ "burst_bytes", "0", EINVAL },	     { "burst_bytes", "4294967296", EINVAL },
	};
	char value[32], before[32];

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		ASSERT_TRUE(knob_get(tries[i].knob, before, sizeof(before)));
		EXPECT_EQ(tries[i].want, knob_set(tries[i].knob, tries[i].value))
			TH_LOG("%s = \"%s\"", tries[i].knob, tries[i].value);
		ASSERT_TRUE(knob_get(tries[i].knob, value, sizeof(value)));
		EXPECT_EQ(0, strncmp(value, tries[i].want ? before : tries[i].value,
				     strlen(value)))
			TH_LOG("%s is %s", tries[i].knob, value);
	}
}

/* A stream is running, and has been for some messages. */
static void run_stream(struct __test_metadata *_metadata, struct stream *s)
{
	ASSERT_EQ(0, stream_renew(s));
	ASSERT_EQ(0, stream_start(s));
	stream_run(s, 1 + random() % 8, 400);
}

/* Aborted at a boundary: @cut counts the streams that were cut inside a message. */
static void expect_cut(struct __test_metadata *_metadata, struct stream *s, int *cut)
{
	int good = stream_good(s);
	int landed = bursts_landed(s, good, false);

	ASSERT_GE(landed, 0) TH_LOG("what landed is no prefix of whole bursts");
	usleep(20000);
	ASSERT_EQ(landed, bursts_landed(s, good, false)) TH_LOG("bytes moved afterwards");
	*cut += landed > 0;
}

TEST_F_TIMEOUT(policy, reset_aborts, 60)
{
	struct stream *s = &self->s;
	int cut = 0;

	ASSERT_EQ(0, knob_set("reset_policy", "abort"));
	for (int round = 0; round < 20; round++) {
		run_stream(_metadata, s);
		ASSERT_EQ(0, qp_to(s->p.a.qp, IBV_QPS_RESET));
		/* The transfer that was cut has no completion, nor have those behind it. */
		stream_collect(s, MESSAGES, 0);
		ASSERT_EQ(stream_good(s), s->completed);
		expect_cut(_metadata, s, &cut);
		ASSERT_EQ(0, drain_cq(s->p.a.scq));
	}
	TH_LOG("%d of 20 streams were cut inside a message", cut);
	EXPECT_GT(cut, 0);
}

TEST_F_TIMEOUT(policy, error_aborts, 60)
{
	struct stream *s = &self->s;
	int cut = 0;

	ASSERT_EQ(0, knob_set("reset_policy", "abort"));
	for (int round = 0; round < 20; round++) {
		run_stream(_metadata, s);
		ASSERT_EQ(0, qp_to(s->p.a.qp, IBV_QPS_ERR));
		stream_collect(s, MESSAGES, 0);
		ASSERT_EQ(MESSAGES, s->completed);
		for (int i = stream_good(s); i < MESSAGES; i++) {
			ASSERT_EQ(IBV_WC_WR_FLUSH_ERR, s->wc[i].status);
		}
		expect_cut(_metadata, s, &cut);
	}
	TH_LOG("%d of 20 streams were cut inside a message", cut);
	EXPECT_GT(cut, 0);
}

TEST_F_TIMEOUT(policy, peer_reset_aborts, 60)
{
	struct stream *s = &self->s;
	int cut = 0;

	ASSERT_EQ(0, knob_set("reset_policy", "abort"));
	for (int round = 0; round < 20; round++) {
		run_stream(_metadata, s);
		ASSERT_EQ(0, qp_to(s->p.b.qp, IBV_QPS_RESET));
		stream_collect(s, MESSAGES, LIMIT_MS);
		ASSERT_EQ(MESSAGES, s->completed);
		if (stream_good(s) < MESSAGES)
			ASSERT_EQ(IBV_WC_RETRY_EXC_ERR, s->wc[stream_good(s)].status);
		expect_cut(_metadata, s, &cut);
	}
	EXPECT_GT(cut, 0);
}

TEST_F_TIMEOUT(policy, drain_without_time_aborts, 60)
{
	struct stream *s = &self->s;
	int cut = 0;

	ASSERT_EQ(0, knob_set("drain_timeout_ms", "0"));
	for (int round = 0; round < 20; round++) {
		run_stream(_metadata, s);
		ASSERT_EQ(0, qp_to(s->p.a.qp, IBV_QPS_RESET));
		stream_collect(s, MESSAGES, 0);
		ASSERT_EQ(stream_good(s), s->completed);
		expect_cut(_metadata, s, &cut);
	}
	EXPECT_GT(cut, 0);
}

/* Which region is deregistered, and what the first message that starts afterwards gets. */
static void revoke_drains(struct __test_metadata *_metadata, struct stream *s, bool far)
{
	int interrupted = 0;

	ASSERT_EQ(0, knob_set("revoke_policy", "drain"));
	for (int round = 0; round < 20; round++) {
		int good;

		run_stream(_metadata, s);
		ASSERT_EQ(0, region_dereg(far ? &s->dst : &s->src));
		poison(s->dst.addr, WORDS, POISON_WRITTEN);
		stream_collect(s, MESSAGES, LIMIT_MS);
		good = stream_good(s);
		if (good == MESSAGES)
			continue;
		interrupted++;
		ASSERT_EQ(far ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR, s->wc[good].status);
		/* The message that was running has landed whole, the next not at all. */
		ASSERT_EQ(0, bursts_landed(s, good, true));
		usleep(20000);
		ASSERT_TRUE(poison_intact(s->dst.addr, WORDS, POISON_WRITTEN));
	}
	EXPECT_GT(interrupted, 0);
}

TEST_F_TIMEOUT(policy, remote_revoke_drains, 60)
{
	revoke_drains(_metadata, &self->s, true);
}

TEST_F_TIMEOUT(policy, local_revoke_drains, 60)
{
	revoke_drains(_metadata, &self->s, false);
}

TEST_F_TIMEOUT(policy, bursts_of_another_size, 60)
{
	static const char *const sizes[] = { "4096", "16384", "1048576" };
	struct stream *s = &self->s;

	/* The size of the bursts is what a cut message shows. */
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, knob_set("burst_bytes", sizes[i]));
		setenv("SLUICE_BURST", sizes[i], 1);
		for (int round = 0; round < 10; round++) {
			run_stream(_metadata, s);
			ASSERT_EQ(0, region_dereg(&s->dst));
			stream_collect(s, MESSAGES, LIMIT_MS);
			if (stream_good(s) < MESSAGES)
				ASSERT_GE(bursts_landed(s, stream_good(s), false), 0)
					TH_LOG("bursts of %s", sizes[i]);
		}
	}
}

TEST_HARNESS_MAIN
