// SPDX-License-Identifier: GPL-2.0
/*
 * What an RC connection carries: every operation, with the payload compared byte for byte and
 * the bytes around it unchanged, and the fields of the completions at both ends.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#include <pthread.h>

FIXTURE(rc) {
	struct rdma r;
	struct pair p;
	struct region src, dst;
};

FIXTURE_SETUP(rc)
{
	struct rc_opts o = RC_DEFAULTS;

	o.send_sge = 32;
	o.recv_sge = 32;
	o.inline_bytes = 256;
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, pair_create(&self->r, &self->p, &o));
	ASSERT_EQ(0, region_create_at(&self->src, self->r.pd, 4 * MIB, 40, RC_ACCESS));
	ASSERT_EQ(0, region_create_at(&self->dst, self->r.pd, 4 * MIB, 8, RC_ACCESS));
}

FIXTURE_TEARDOWN(rc)
{
	pair_destroy(&self->p);
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

static const size_t sizes[] = { 1, 2, 7, 8, 63, 64, 1024, 4095, 4096, 4097, 65535, 65536, 65537,
				262144 + 3, 1048576 };

/* The first @len bytes arrived, the byte behind them is as it was, and so are the guards. */
static void expect_arrived(struct __test_metadata *_metadata, struct region *to, size_t len,
			   uint64_t seed)
{
	size_t good = pattern_prefix(to->addr, len, seed);

	EXPECT_EQ(len, good) TH_LOG("the first %zu of %zu bytes are right", good, len);
	EXPECT_TRUE(all_bytes(to->addr + len, to->len - len < 256 ? to->len - len : 256, 0))
		TH_LOG("bytes behind the message were touched (%zu)", len);
	EXPECT_TRUE(guards_intact(to));
}

/* Source filled with the pattern, target empty as far as expect_arrived() looks. */
static void prepare(struct region *src, struct region *dst, size_t len, uint64_t seed)
{
	pattern_fill(src->addr, len, seed);
	memset(dst->addr, 0, len + 256 < dst->len ? len + 256 : dst->len);
}

TEST_F(rc, send)
{
	struct ibv_wc wc;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		prepare(&self->src, &self->dst, sizes[i], i);
		/* The buffer is larger than the message. */
		ASSERT_EQ(0, post_recv(self->p.b.qp, 100 + i, &self->dst, self->dst.len));
		ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, sizes[i]));
		ASSERT_POLL(self->p.b.rcq, &wc);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(100 + i, wc.wr_id);
		EXPECT_EQ(IBV_WC_RECV, wc.opcode);
		EXPECT_EQ(sizes[i], wc.byte_len);
		EXPECT_EQ(self->p.b.qp->qp_num, wc.qp_num);
		EXPECT_EQ(0, wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV));
		ASSERT_POLL(self->p.a.scq, &wc);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(i, wc.wr_id);
		EXPECT_EQ(IBV_WC_SEND, wc.opcode);
		EXPECT_EQ(self->p.a.qp->qp_num, wc.qp_num);
		expect_arrived(_metadata, &self->dst, sizes[i], i);
	}
}

TEST_F(rc, send_fills_the_buffer_exactly)
{
	prepare(&self->src, &self->dst, 5000, 1);
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, 5000));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &self->src, 5000));
	EXPECT_WC(self->p.b.rcq, 2, IBV_WC_SUCCESS);
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	expect_arrived(_metadata, &self->dst, 5000, 1);
}

TEST_F(rc, send_with_imm)
{
	struct ibv_sge sge = sge_of(&self->src, 0, 1000);
	struct ibv_wc wc;

	prepare(&self->src, &self->dst, 1000, 2);
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, self->dst.len));
	ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(0xdeadbeef) }));
	ASSERT_POLL(self->p.b.rcq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(IBV_WC_RECV, wc.opcode);
	EXPECT_NE(0, wc.wc_flags & IBV_WC_WITH_IMM);
	EXPECT_EQ(0xdeadbeef, ntohl(wc.imm_data));
	EXPECT_EQ(1000, wc.byte_len);
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	expect_arrived(_metadata, &self->dst, 1000, 2);
}

TEST_F(rc, write)
{
	struct ibv_wc wc;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		prepare(&self->src, &self->dst, sizes[i], i);
		ASSERT_EQ(0, post_rdma(self->p.a.qp, i, IBV_WR_RDMA_WRITE, &self->src, sizes[i],
				       &self->dst));
		ASSERT_POLL(self->p.a.scq, &wc);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(i, wc.wr_id);
		EXPECT_EQ(IBV_WC_RDMA_WRITE, wc.opcode);
		expect_arrived(_metadata, &self->dst, sizes[i], i);
	}
	EXPECT_EQ(0, drain_cq(self->p.b.rcq)) TH_LOG("a plain write completed at the target");
}

TEST_F(rc, write_to_every_alignment)
{
	for (size_t from = 0; from < 9; from++) {
		for (size_t to = 0; to < 9; to++) {
			size_t len = 8190 + from;

			pattern_fill(self->src.addr + from, len, from * 16 + to);
			memset(self->dst.addr, 0, 16 * KIB);
			ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE,
					     sge_of(&self->src, from, len),
					     (uintptr_t)self->dst.addr + to, self->dst.mr->rkey,
					     0));
			EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
			EXPECT_TRUE(all_bytes(self->dst.addr, to, 0));
			EXPECT_TRUE(pattern_ok(self->dst.addr + to, len, from * 16 + to));
			EXPECT_TRUE(all_bytes(self->dst.addr + to + len, 256, 0));
		}
	}
}

TEST_F(rc, write_with_imm)
{
	struct ibv_sge sge = sge_of(&self->src, 0, 70000);
	struct ibv_wc wc;

	prepare(&self->src, &self->dst, 70000, 3);
	/* It takes a receive, but places nothing in it. */
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->src, 0));
	ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &sge,
			.num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(77),
			.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey } }));
	ASSERT_POLL(self->p.b.rcq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(2, wc.wr_id);
	EXPECT_EQ(IBV_WC_RECV_RDMA_WITH_IMM, wc.opcode);
	EXPECT_NE(0, wc.wc_flags & IBV_WC_WITH_IMM);
	EXPECT_EQ(77, ntohl(wc.imm_data));
	EXPECT_EQ(70000, wc.byte_len);
	ASSERT_POLL(self->p.a.scq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(IBV_WC_RDMA_WRITE, wc.opcode);
	expect_arrived(_metadata, &self->dst, 70000, 3);
}

TEST_F(rc, read)
{
	struct ibv_wc wc;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		prepare(&self->src, &self->dst, sizes[i], i);
		ASSERT_EQ(0, post_rdma(self->p.a.qp, i, IBV_WR_RDMA_READ, &self->dst, sizes[i],
				       &self->src));
		ASSERT_POLL(self->p.a.scq, &wc);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(i, wc.wr_id);
		EXPECT_EQ(IBV_WC_RDMA_READ, wc.opcode);
		EXPECT_EQ(sizes[i], wc.byte_len);
		expect_arrived(_metadata, &self->dst, sizes[i], i);
	}
}

TEST_F(rc, more_reads_than_rd_atomic)
{
	/* Four may be outstanding; the others wait, none fails. */
	prepare(&self->src, &self->dst, 64 * 1000, 5);
	for (int i = 0; i < 64; i++)
		ASSERT_EQ(0, post_op(self->p.a.qp, i, IBV_WR_RDMA_READ,
				     sge_of(&self->dst, i * 1000, 1000),
				     (uintptr_t)self->src.addr + i * 1000, self->src.mr->rkey, 0));
	for (int i = 0; i < 64; i++)
		EXPECT_WC(self->p.a.scq, i, IBV_WC_SUCCESS);
	expect_arrived(_metadata, &self->dst, 64 * 1000, 5);
}

/* An atomic at the 8 bytes @at of the target, its result to the start of the source. */
static int post_atomic(struct pair *p, uint64_t id, enum ibv_wr_opcode opcode, struct region *src,
		       struct region *dst, size_t at, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = sge_of(src, 0, 8);

	return post_send(p->a.qp, (struct ibv_send_wr){
		.wr_id = id, .opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {
			.remote_addr = (uintptr_t)dst->addr + at,
			.compare_add = compare_add,
			.swap = swap,
			.rkey = dst->mr->rkey,
		},
	});
}

static uint64_t word_at(const struct region *g, size_t at)
{
	uint64_t word;

	memcpy(&word, g->addr + at, sizeof(word));
	return word;
}

TEST_F(rc, fetch_and_add)
{
	const uint64_t start = 0xfffffffffffffff0ULL;
	struct ibv_wc wc;

	memset(self->dst.addr, 0, 64);
	memcpy(self->dst.addr + 8, &start, 8);
	for (uint64_t i = 0; i < 32; i++) {
		ASSERT_EQ(0, post_atomic(&self->p, i, IBV_WR_ATOMIC_FETCH_AND_ADD, &self->src,
					 &self->dst, 8, 3, 0));
		ASSERT_POLL(self->p.a.scq, &wc);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(IBV_WC_FETCH_ADD, wc.opcode);
		EXPECT_EQ(8, wc.byte_len);
		EXPECT_EQ(start + 3 * i, word_at(&self->src, 0));
	}
	EXPECT_EQ(start + 96, word_at(&self->dst, 8));
	EXPECT_EQ(0, word_at(&self->dst, 0));
	EXPECT_EQ(0, word_at(&self->dst, 16));
}

TEST_F(rc, compare_and_swap)
{
	struct ibv_wc wc;
	uint64_t word = 5;

	memcpy(self->dst.addr, &word, 8);
	ASSERT_EQ(0, post_atomic(&self->p, 1, IBV_WR_ATOMIC_CMP_AND_SWP, &self->src, &self->dst, 0,
				 4, 9));
	ASSERT_POLL(self->p.a.scq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(IBV_WC_COMP_SWAP, wc.opcode);
	EXPECT_EQ(5, word_at(&self->src, 0));
	EXPECT_EQ(5, word_at(&self->dst, 0)) TH_LOG("swapped although it differed");
	ASSERT_EQ(0, post_atomic(&self->p, 2, IBV_WR_ATOMIC_CMP_AND_SWP, &self->src, &self->dst, 0,
				 5, 9));
	EXPECT_WC(self->p.a.scq, 2, IBV_WC_SUCCESS);
	EXPECT_EQ(5, word_at(&self->src, 0));
	EXPECT_EQ(9, word_at(&self->dst, 0));
}

#define ADDERS 4
#define ADDS 500

struct adder {
	struct rdma *r;
	struct pair p;
	struct region result;
	struct region *counter;
	int failed;
};

static void *add_one_often(void *arg)
{
	struct adder *adder = arg;
	struct ibv_wc wc;

	for (int i = 0; i < ADDS && !adder->failed; i++) {
		adder->failed = post_atomic(&adder->p, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
					    &adder->result, adder->counter, 0, 1, 0) ||
				poll_one(adder->p.a.scq, &wc) != 1 || wc.status;
	}
	return NULL;
}

TEST_F(rc, atomics_are_atomic)
{
	struct adder adders[ADDERS];
	pthread_t threads[ADDERS];

	memset(self->dst.addr, 0, 8);
	for (int i = 0; i < ADDERS; i++) {
		adders[i] = (struct adder){ .r = &self->r, .counter = &self->dst };
		ASSERT_EQ(0, pair_create(&self->r, &adders[i].p, NULL));
		ASSERT_EQ(0, region_create(&adders[i].result, self->r.pd, 8, RC_ACCESS));
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, add_one_often, &adders[i]));
	}
	for (int i = 0; i < ADDERS; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, adders[i].failed);
		pair_destroy(&adders[i].p);
		region_free(&adders[i].result);
	}
	EXPECT_EQ(ADDERS * ADDS, word_at(&self->dst, 0));
}

TEST_F(rc, inline_data)
{
	size_t max = self->p.a.cap.max_inline_data;
	struct ibv_sge sge;

	ASSERT_GE(max, 256);
	for (size_t len = 0; len <= max; len = len < 16 ? len + 1 : len + 13) {
		prepare(&self->src, &self->dst, len, len);
		/* The key of inline data is not looked at, and the bytes are taken at once. */
		sge = (struct ibv_sge){ (uintptr_t)self->src.addr, len, 0xbadbad };
		ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, self->dst.len));
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_SEND, sge, 0, 0, IBV_SEND_INLINE));
		memset(self->src.addr, 0xee, len);
		EXPECT_WC(self->p.b.rcq, 2, IBV_WC_SUCCESS);
		EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
		expect_arrived(_metadata, &self->dst, len, len);

		prepare(&self->src, &self->dst, len, len);
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge,
				     (uintptr_t)self->dst.addr, self->dst.mr->rkey,
				     IBV_SEND_INLINE));
		memset(self->src.addr, 0xee, len);
		EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
		expect_arrived(_metadata, &self->dst, len, len);
	}
	sge.length = max + 1;
	EXPECT_NE(0, post_op(self->p.a.qp, 1, IBV_WR_SEND, sge, 0, 0, IBV_SEND_INLINE));
}

/* Cuts @len bytes of @g into @n pieces of odd lengths, some of them empty. */
static void cut(struct region *g, struct ibv_sge *sges, int n, size_t len, unsigned int seed)
{
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		size_t piece = pattern_byte(seed, i) * 17 % (2 * len / n + 1);

		if (i == n - 1 || piece > len - at)
			piece = len - at;
		sges[i] = sge_of(g, at, piece);
		at += piece;
	}
}

TEST_F(rc, thirty_two_sges_each_side)
{
	struct ibv_sge from[32], to[32];
	const size_t len = 200001;

	for (unsigned int seed = 0; seed < 20; seed++) {
		prepare(&self->src, &self->dst, len, seed);
		cut(&self->src, from, 32, len, seed);
		cut(&self->dst, to, 32, len, seed + 1000);
		ASSERT_EQ(0, post_recv_sge(self->p.b.qp, 2, to, 32));
		ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
				.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = from, .num_sge = 32,
				.send_flags = IBV_SEND_SIGNALED }));
		EXPECT_WC(self->p.b.rcq, 2, IBV_WC_SUCCESS);
		EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
		expect_arrived(_metadata, &self->dst, len, seed);

		prepare(&self->src, &self->dst, len, seed + 50);
		ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
				.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .sg_list = to,
				.num_sge = 32, .send_flags = IBV_SEND_SIGNALED,
				.wr.rdma = { (uintptr_t)self->src.addr, self->src.mr->rkey } }));
		EXPECT_WC(self->p.a.scq, 3, IBV_WC_SUCCESS);
		expect_arrived(_metadata, &self->dst, len, seed + 50);
	}
}

TEST_F(rc, sges_of_several_regions)
{
	struct region parts[8], *g = parts;
	struct ibv_sge sges[8];

	memset(self->dst.addr, 0, 8 * 3000);
	for (int i = 0; i < 8; i++, g++) {
		ASSERT_EQ(0, region_create_at(g, self->r.pd, 3000, 11 * i, 0));
		pattern_fill(g->addr, 3000, i);
		sges[i] = sge_of(g, 0, 3000);
	}
	ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = sges, .num_sge = 8,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey } }));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	for (int i = 0; i < 8; i++) {
		EXPECT_TRUE(pattern_ok(self->dst.addr + i * 3000, 3000, i));
		region_free(&parts[i]);
	}
}

TEST_F(rc, unsignalled)
{
	struct ibv_sge sge = sge_of(&self->src, 0, 8);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey },
	};

	/* Only each tenth completes, and its completion frees the places of those before it. */
	for (int i = 1; i <= 1000; i++) {
		wr.wr_id = i;
		wr.send_flags = i % 10 ? 0 : IBV_SEND_SIGNALED;
		ASSERT_EQ(0, post_send(self->p.a.qp, wr));
		if (i % 10 == 0)
			EXPECT_WC(self->p.a.scq, i, IBV_WC_SUCCESS);
	}
	EXPECT_TRUE(cq_quiet(self->p.a.scq));
}

TEST_F(rc, sq_sig_all)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;

	o.sig_all = 1;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	for (int i = 0; i < 50; i++)
		ASSERT_EQ(0, post_send(p.a.qp, (struct ibv_send_wr){
				.wr_id = i, .opcode = IBV_WR_RDMA_WRITE }));
	for (int i = 0; i < 50; i++)
		EXPECT_WC(p.a.scq, i, IBV_WC_SUCCESS);
	pair_destroy(&p);
}

TEST_F(rc, queue_full)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;
	int posted = 0;

	/* Nobody receives, so nothing completes and the ring fills. */
	o.send_depth = 20;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	while (posted < 4096 && !post_msg(p.a.qp, posted, &self->src, 8))
		posted++;
	EXPECT_GE(posted, 20);
	EXPECT_LT(posted, 4096);
	for (int i = 0; i < posted; i++)
		ASSERT_EQ(0, post_recv(p.b.qp, i, &self->dst, 8));
	for (int i = 0; i < posted; i++) {
		EXPECT_WC(p.a.scq, i, IBV_WC_SUCCESS);
		EXPECT_WC(p.b.rcq, i, IBV_WC_SUCCESS);
	}
	pair_destroy(&p);
}

TEST_F(rc, list_of_work_requests)
{
	struct ibv_send_wr wr[32], *bad;
	struct ibv_sge sge[32];

	prepare(&self->src, &self->dst, 32 * 500, 8);
	for (int i = 0; i < 32; i++) {
		sge[i] = sge_of(&self->src, i * 500, 500);
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i < 31 ? &wr[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge[i], .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)self->dst.addr + i * 500, self->dst.mr->rkey },
		};
	}
	ASSERT_EQ(0, ibv_post_send(self->p.a.qp, wr, &bad));
	for (int i = 0; i < 32; i++)
		EXPECT_WC(self->p.a.scq, i, IBV_WC_SUCCESS);
	expect_arrived(_metadata, &self->dst, 32 * 500, 8);
}

TEST_F(rc, fence_waits_for_the_read)
{
	/* The write takes its bytes from where the read puts them. */
	for (int i = 0; i < 20; i++) {
		struct region local;

		prepare(&self->src, &self->dst, MIB, i);
		ASSERT_EQ(0, region_create(&local, self->r.pd, MIB, RC_ACCESS));
		ASSERT_EQ(0, post_rdma(self->p.a.qp, 1, IBV_WR_RDMA_READ, &local, MIB,
				       &self->src));
		ASSERT_EQ(0, post_op(self->p.a.qp, 2, IBV_WR_RDMA_WRITE, sge_of(&local, 0, MIB),
				     (uintptr_t)self->dst.addr, self->dst.mr->rkey,
				     IBV_SEND_FENCE));
		EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
		EXPECT_WC(self->p.a.scq, 2, IBV_WC_SUCCESS);
		expect_arrived(_metadata, &self->dst, MIB, i);
		region_free(&local);
	}
}

TEST_F(rc, writes_land_before_the_send_behind_them)
{
	uint64_t word;

	for (uint64_t i = 1; i <= 200; i++) {
		memcpy(self->src.addr, &i, 8);
		ASSERT_EQ(0, post_recv(self->p.b.qp, i, &self->dst, 0));
		ASSERT_EQ(0, post_op(self->p.a.qp, i, IBV_WR_RDMA_WRITE,
				     sge_of(&self->src, 0, 100000),
				     (uintptr_t)self->dst.addr, self->dst.mr->rkey, 0));
		ASSERT_EQ(0, post_msg(self->p.a.qp, i, &self->src, 0));
		EXPECT_WC(self->p.b.rcq, i, IBV_WC_SUCCESS);
		memcpy(&word, self->dst.addr, 8);
		EXPECT_EQ(i, word);
		EXPECT_WC(self->p.a.scq, i, IBV_WC_SUCCESS);
		EXPECT_WC(self->p.a.scq, i, IBV_WC_SUCCESS);
	}
}

TEST_F(rc, empty_messages_need_no_key)
{
	const struct ibv_sge none = { 0 };
	struct ibv_wc wc;

	/* C9-88: the key of a READ or WRITE of no bytes is not checked. */
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, none, 12345, 0xbadbad, 0));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	ASSERT_EQ(0, post_op(self->p.a.qp, 2, IBV_WR_RDMA_READ, none, ~0ULL, 0xbadbad, 0));
	EXPECT_WC(self->p.a.scq, 2, IBV_WC_SUCCESS);

	ASSERT_EQ(0, post_recv(self->p.b.qp, 3, &self->dst, 0));
	ASSERT_EQ(0, post_op(self->p.a.qp, 4, IBV_WR_SEND, none, 0, 0, 0));
	ASSERT_POLL(self->p.b.rcq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(0, wc.byte_len);
	EXPECT_WC(self->p.a.scq, 4, IBV_WC_SUCCESS);

	ASSERT_EQ(0, post_recv(self->p.b.qp, 5, &self->dst, 0));
	ASSERT_EQ(0, post_op(self->p.a.qp, 6, IBV_WR_RDMA_WRITE_WITH_IMM, none, 0, 0xbadbad, 0));
	ASSERT_POLL(self->p.b.rcq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(IBV_WC_RECV_RDMA_WITH_IMM, wc.opcode);
	EXPECT_EQ(0, wc.byte_len);
	EXPECT_WC(self->p.a.scq, 6, IBV_WC_SUCCESS);
}

TEST_F(rc, to_itself)
{
	struct rc_opts o = RC_DEFAULTS;
	struct rc q;

	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	ASSERT_EQ(0, rc_connect(&self->r, &q, q.qp->qp_num));
	prepare(&self->src, &self->dst, MIB, 4);
	ASSERT_EQ(0, post_rdma(q.qp, 1, IBV_WR_RDMA_WRITE, &self->src, MIB, &self->dst));
	EXPECT_WC(q.scq, 1, IBV_WC_SUCCESS);
	expect_arrived(_metadata, &self->dst, MIB, 4);
	EXPECT_WORKS(&self->r, &q, &q);
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(rc, both_directions_at_once)
{
	const size_t len = 64 * KIB;

	/* a writes into the lower half of dst, b into the upper half of src, 16 slots each. */
	pattern_fill(self->src.addr, 16 * len, 1);
	pattern_fill(self->dst.addr + 32 * len, 16 * len, 2);
	for (int i = 0; i < 16; i++) {
		ASSERT_EQ(0, post_op(self->p.a.qp, i, IBV_WR_RDMA_WRITE,
				     sge_of(&self->src, i * len, len),
				     (uintptr_t)self->dst.addr + i * len, self->dst.mr->rkey, 0));
		ASSERT_EQ(0, post_op(self->p.b.qp, i, IBV_WR_RDMA_WRITE,
				     sge_of(&self->dst, (32 + i) * len, len),
				     (uintptr_t)self->src.addr + (32 + i) * len,
				     self->src.mr->rkey, 0));
	}
	for (int i = 0; i < 16; i++) {
		EXPECT_WC(self->p.a.scq, i, IBV_WC_SUCCESS);
		EXPECT_WC(self->p.b.scq, i, IBV_WC_SUCCESS);
	}
	EXPECT_TRUE(pattern_ok(self->dst.addr, 16 * len, 1));
	EXPECT_TRUE(pattern_ok(self->src.addr + 32 * len, 16 * len, 2));
}

struct poster {
	struct ibv_qp *qp;
	struct region *src, *dst;
	int first, failed;
};

#define POSTS 60

static void *post_own_slots(void *arg)
{
	struct poster *p = arg;

	for (int i = p->first; i < p->first + POSTS && !p->failed; i++)
		p->failed = post_op(p->qp, i, IBV_WR_RDMA_WRITE, sge_of(p->src, i * 3000, 3000),
				    (uintptr_t)p->dst->addr + i * 3000, p->dst->mr->rkey, 0);
	return NULL;
}

TEST_F(rc, two_threads_post_to_one_queue_pair)
{
	for (int round = 0; round < 20; round++) {
		struct poster posters[2] = {
			{ self->p.a.qp, &self->src, &self->dst, 0, 0 },
			{ self->p.a.qp, &self->src, &self->dst, POSTS, 0 },
		};
		bool seen[2 * POSTS] = { false };
		pthread_t threads[2];
		struct ibv_wc wc;

		prepare(&self->src, &self->dst, 2 * POSTS * 3000, round);
		for (int i = 0; i < 2; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL, post_own_slots,
						    &posters[i]));
		for (int i = 0; i < 2 * POSTS; i++) {
			ASSERT_POLL(self->p.a.scq, &wc);
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			ASSERT_FALSE(seen[wc.wr_id]);
			seen[wc.wr_id] = true;
		}
		for (int i = 0; i < 2; i++) {
			pthread_join(threads[i], NULL);
			EXPECT_EQ(0, posters[i].failed);
		}
		expect_arrived(_metadata, &self->dst, 2 * POSTS * 3000, round);
	}
}

TEST_F(rc, write_within_one_region)
{
	prepare(&self->src, &self->dst, 100000, 6);
	pattern_fill(self->dst.addr, 100000, 6);
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&self->dst, 0, 100000),
			     (uintptr_t)self->dst.addr + 200001, self->dst.mr->rkey, 0));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(pattern_ok(self->dst.addr + 200001, 100000, 6));
	EXPECT_TRUE(pattern_ok(self->dst.addr, 100000, 6));
}

TEST_F_TIMEOUT(rc, sixty_four_mib, 60)
{
	struct region src, dst;
	const size_t len = 64 * MIB;

	ASSERT_EQ(0, region_create_at(&src, self->r.pd, len, 1, RC_ACCESS));
	ASSERT_EQ(0, region_create_at(&dst, self->r.pd, len, 2, RC_ACCESS));
	pattern_fill(src.addr, len, 3);
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, &src, len, &dst));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(pattern_ok(dst.addr, len, 3));
	EXPECT_TRUE(guards_intact(&dst));

	memset(dst.addr, 0, len);
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &dst, len));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 3, &src, len));
	EXPECT_WC(self->p.b.rcq, 2, IBV_WC_SUCCESS);
	EXPECT_WC(self->p.a.scq, 3, IBV_WC_SUCCESS);
	EXPECT_EQ(0, memcmp(src.addr, dst.addr, len));
	EXPECT_TRUE(guards_intact(&dst));
	region_free(&src);
	region_free(&dst);
}

/* @len bytes of address space over @period bytes of memory, again and again. */
static int map_repeated(struct region *g, size_t len, size_t period)
{
	int fd = memfd_create("repeated", 0), err = 0;

	memset(g, 0, sizeof(*g));
	if (fd < 0 || ftruncate(fd, period))
		return errno;
	g->map = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g->map == MAP_FAILED)
		err = errno;
	for (size_t at = 0; !err && at < len; at += period) {
		size_t piece = len - at < period ? len - at : period;

		if (mmap(g->map + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			 0) == MAP_FAILED)
			err = errno;
	}
	close(fd);
	g->map_len = len;
	g->addr = g->map;
	g->len = len;
	return err;
}

TEST_F_TIMEOUT(rc, two_gib, 60)
{
	const size_t len = 2 * GIB, from = 48 * MIB, to = 32 * MIB;
	struct region src, dst;
	struct ibv_wc wc;

	if (self->r.port.max_msg_sz < len)
		SKIP(return, "the port's limit is %u bytes", self->r.port.max_msg_sz);
	/* The largest message there is, over little memory: the ends do not repeat alike. */
	ASSERT_EQ(0, map_repeated(&src, len, from));
	ASSERT_EQ(0, map_repeated(&dst, len, to));
	pattern_fill(src.addr, from, 1);
	memset(dst.addr, 0, to);
	ASSERT_EQ(0, region_reg(&src, self->r.pd, RC_ACCESS));
	ASSERT_EQ(0, region_reg(&dst, self->r.pd, RC_ACCESS));
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &dst, len));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &src, len));
	ASSERT_POLL(self->p.b.rcq, &wc);
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(1U << 31, wc.byte_len);
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	/* What remains in the target is the last @to bytes of the message. */
	EXPECT_EQ(0, memcmp(src.addr + len - to, dst.addr + len - to, to));
	memset(dst.addr, 0, to);
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 3, IBV_WR_RDMA_READ, &dst, len, &src));
	EXPECT_WC(self->p.a.scq, 3, IBV_WC_SUCCESS);
	EXPECT_EQ(0, memcmp(src.addr + len - to, dst.addr + len - to, to));
	region_free(&src);
	region_free(&dst);
}

TEST_F(rc, between_two_protection_domains)
{
	struct rc_opts o = RC_DEFAULTS;
	struct region far;
	struct pair p;

	/* Each end's keys belong to its own PD. */
	o.pd = ibv_alloc_pd(self->r.ctx);
	ASSERT_NE(NULL, o.pd);
	ASSERT_EQ(0, pair_create2(&self->r, &p, NULL, &o));
	ASSERT_EQ(0, region_create(&far, o.pd, 10000, RC_ACCESS));
	pattern_fill(self->src.addr, 10000, 7);
	ASSERT_EQ(0, post_rdma(p.a.qp, 1, IBV_WR_RDMA_WRITE, &self->src, 10000, &far));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(pattern_ok(far.addr, 10000, 7));
	pair_destroy(&p);
	region_free(&far);
	EXPECT_EQ(0, ibv_dealloc_pd(o.pd));
}

TEST_F(rc, between_two_contexts)
{
	struct rc_opts o = RC_DEFAULTS;
	struct region far;
	struct rdma other;
	struct pair p;

	memset(&p, 0, sizeof(p));
	ASSERT_EQ(0, rdma_open(&other));
	ASSERT_EQ(0, rc_create(&self->r, &p.a, &o));
	ASSERT_EQ(0, rc_create(&other, &p.b, &o));
	ASSERT_EQ(0, pair_connect(&self->r, &p));
	ASSERT_EQ(0, region_create(&far, other.pd, 10000, RC_ACCESS));
	pattern_fill(self->src.addr, 10000, 9);
	ASSERT_EQ(0, post_rdma(p.a.qp, 1, IBV_WR_RDMA_WRITE, &self->src, 10000, &far));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(pattern_ok(far.addr, 10000, 9));
	pair_destroy(&p);
	region_free(&far);
	rdma_close(&other);
}

TEST_HARNESS_MAIN
