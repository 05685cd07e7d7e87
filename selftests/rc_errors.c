// SPDX-License-Identifier: GPL-2.0
/*
 * Every way an RC operation can fail: the status at the requester, what the responder's side
 * reports (completion, asynchronous event, state), and that no byte is moved that should not be.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

FIXTURE(err) {
	struct rdma r;
	struct pair p;
	struct region src, dst;
};

FIXTURE_SETUP(err)
{
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	ASSERT_EQ(0, region_create(&self->src, self->r.pd, 256 * KIB, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, 256 * KIB, RC_ACCESS));
	memset(self->src.addr, 0x5c, self->src.len);
	memset(self->dst.addr, 0, self->dst.len);
}

FIXTURE_TEARDOWN(err)
{
	pair_destroy(&self->p);
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

#define BAD_KEY 0x00badbad

static const enum ibv_wr_opcode remote_ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						 IBV_WR_ATOMIC_FETCH_AND_ADD,
						 IBV_WR_ATOMIC_CMP_AND_SWP };

static struct ibv_sge sge_with_key(struct region *g, size_t len, uint32_t lkey)
{
	return (struct ibv_sge){ (uintptr_t)g->addr, len, lkey };
}

/* Both ends new and connected, nothing left of what was before. */
static void reconnect(struct __test_metadata *_metadata, struct rdma *r, struct pair *p)
{
	struct ibv_async_event event;

	ASSERT_EQ(0, qp_to(p->a.qp, IBV_QPS_RESET));
	ASSERT_EQ(0, qp_to(p->b.qp, IBV_QPS_RESET));
	drain_cq(p->a.scq);
	drain_cq(p->a.rcq);
	drain_cq(p->b.scq);
	drain_cq(p->b.rcq);
	while (next_event(r->ctx, &event, 0) >= 0)
		;
	ASSERT_EQ(0, pair_connect(r, p));
}

/*
 * The requester's own memory is at fault: the failing request completes with LOC_PROT_ERR, those
 * behind it are flushed in order, the queue pair is in ERR, and the peer has not noticed.
 */
static void expect_local_fault(struct __test_metadata *_metadata, struct rdma *r, struct pair *p)
{
	EXPECT_WC(p->a.scq, 1, IBV_WC_LOC_PROT_ERR);
	EXPECT_STATE(IBV_QPS_ERR, p->a.qp);
	EXPECT_TRUE(cq_quiet(p->a.scq));
	EXPECT_EQ(IBV_QPS_RTS, qp_state(p->b.qp));
	reconnect(_metadata, r, p);
}

TEST_F(err, bad_lkey_then_flush_in_order)
{
	struct ibv_sge bad = sge_with_key(&self->src, 64, BAD_KEY);

	ASSERT_EQ(0, post_recv(self->p.b.qp, 50, &self->dst, 64));
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_SEND, bad, 0, 0, 0));
	for (int i = 2; i < 20; i++)
		ASSERT_EQ(0, post_rdma(self->p.a.qp, i, IBV_WR_RDMA_WRITE, &self->src, 64,
				       &self->dst));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
	for (int i = 2; i < 20; i++)
		EXPECT_WC(self->p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_TRUE(cq_quiet(self->p.a.scq));
	EXPECT_STATE(IBV_QPS_ERR, self->p.a.qp);
	EXPECT_EQ(IBV_QPS_RTS, qp_state(self->p.b.qp));
	EXPECT_EQ(0, drain_cq(self->p.b.rcq)) TH_LOG("the receive was used up");
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
}

TEST_F(err, bad_lkey_of_every_operation)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						  IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						  IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						  IBV_WR_ATOMIC_CMP_AND_SWP };

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		ASSERT_EQ(0, post_recv(self->p.b.qp, 9, &self->dst, 64));
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, ops[i], sge_with_key(&self->src, 8, BAD_KEY),
				     (uintptr_t)self->dst.addr, self->dst.mr->rkey, 0));
		expect_local_fault(_metadata, &self->r, &self->p);
	}
	EXPECT_TRUE(all_bytes(self->src.addr, self->src.len, 0x5c));
}

TEST_F(err, errors_complete_unsignalled)
{
	struct ibv_sge bad = sge_with_key(&self->src, 64, BAD_KEY);

	ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &bad, .num_sge = 1 }));
	expect_local_fault(_metadata, &self->r, &self->p);
}

TEST_F(err, second_sge_is_bad)
{
	struct ibv_sge sges[2] = { sge_of(&self->src, 0, 64),
				   sge_with_key(&self->src, 64, BAD_KEY) };

	ASSERT_EQ(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = sges, .num_sge = 2,
			.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey } }));
	expect_local_fault(_metadata, &self->r, &self->p);
	EXPECT_TRUE(all_bytes(self->dst.addr + 64, 64, 0));
}

TEST_F(err, local_range)
{
	const uint64_t start = (uintptr_t)self->src.addr, end = start + self->src.len;
	const struct ibv_sge sges[] = {
		{ end, 1, 0 },			{ end - 1, 2, 0 }, { start - 1, 1, 0 },
		{ start, self->src.len + 1, 0 }, { -8ULL, 16, 0 },  { 0, 8, 0 },
	};
	struct region far;

	/* The target has room for all of them, so that only the local range is wrong. */
	ASSERT_EQ(0, region_create(&far, self->r.pd, 2 * self->src.len, RC_ACCESS));
	for (size_t i = 0; i < ARRAY_SIZE(sges); i++) {
		struct ibv_sge sge = sges[i];

		sge.lkey = self->src.mr->lkey;
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge,
				     (uintptr_t)far.addr, far.mr->rkey, 0));
		expect_local_fault(_metadata, &self->r, &self->p);
	}
	region_free(&far);
}

TEST_F(err, lkey_of_another_pd)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->r.ctx);
	struct region other;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, region_create(&other, pd, 64, RC_ACCESS));
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, &other, 64, &self->dst));
	expect_local_fault(_metadata, &self->r, &self->p);
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0));
	region_free(&other);
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_F(err, read_into_memory_without_local_write)
{
	struct region fixed;

	ASSERT_EQ(0, region_create(&fixed, self->r.pd, 64, IBV_ACCESS_REMOTE_READ));
	memset(fixed.addr, 7, 64);
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 1, IBV_WR_RDMA_READ, &fixed, 64, &self->src));
	expect_local_fault(_metadata, &self->r, &self->p);
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, sge_of(&fixed, 0, 8),
			     (uintptr_t)self->dst.addr, self->dst.mr->rkey, 0));
	expect_local_fault(_metadata, &self->r, &self->p);
	EXPECT_TRUE(all_bytes(fixed.addr, 64, 7));
	region_free(&fixed);
}

TEST_F(err, key_of_a_deregistered_region)
{
	struct region gone;
	uint32_t rkey;

	ASSERT_EQ(0, region_create(&gone, self->r.pd, 64, RC_ACCESS));
	rkey = gone.mr->rkey;
	ASSERT_EQ(0, region_dereg(&gone));
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE,
			     sge_with_key(&gone, 64, rkey), (uintptr_t)self->dst.addr,
			     self->dst.mr->rkey, 0));
	expect_local_fault(_metadata, &self->r, &self->p);
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&self->src, 0, 64),
			     (uintptr_t)gone.addr, rkey, 0));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	region_free(&gone);
}

/*
 * The responder refuses a key: REM_ACCESS_ERR at the requester, both queue pairs in ERR, and an
 * access-error event at the responder, because no receive of its own could tell it (C9-222.1).
 */
static void expect_access_error(struct __test_metadata *_metadata, struct rdma *r, struct pair *p)
{
	EXPECT_WC(p->a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	EXPECT_STATE(IBV_QPS_ERR, p->a.qp);
	EXPECT_STATE(IBV_QPS_ERR, p->b.qp);
	EXPECT_TRUE(qp_event_comes(r->ctx, IBV_EVENT_QP_ACCESS_ERR, p->b.qp, LIMIT_MS))
		TH_LOG("no QP_ACCESS_ERR event");
	EXPECT_TRUE(cq_quiet(p->a.scq));
	reconnect(_metadata, r, p);
}

TEST_F(err, bad_rkey)
{
	for (size_t i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, remote_ops[i], sge_of(&self->src, 0, 8),
				     (uintptr_t)self->dst.addr, BAD_KEY, 0));
		expect_access_error(_metadata, &self->r, &self->p);
	}
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
	EXPECT_TRUE(all_bytes(self->src.addr, self->src.len, 0x5c));
}

TEST_F(err, bad_rkey_flushes_what_follows)
{
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 0, IBV_WR_RDMA_WRITE, &self->src, 64, &self->dst));
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&self->src, 0, 64),
			     (uintptr_t)self->dst.addr, BAD_KEY, 0));
	for (int i = 2; i < 10; i++)
		ASSERT_EQ(0, post_op(self->p.a.qp, i, IBV_WR_RDMA_WRITE,
				     sge_of(&self->src, 0, 64),
				     (uintptr_t)self->dst.addr + 4096, self->dst.mr->rkey, 0));
	EXPECT_WC(self->p.a.scq, 0, IBV_WC_SUCCESS);
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	for (int i = 2; i < 10; i++)
		EXPECT_WC(self->p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	EXPECT_TRUE(all_bytes(self->dst.addr + 4096, 4096, 0));
}

TEST_F(err, rkey_of_another_pd)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->r.ctx);
	struct region other;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, region_create(&other, pd, 64, RC_ACCESS));
	memset(other.addr, 7, 64);
	for (size_t i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, remote_ops[i], sge_of(&self->src, 0, 8),
				     (uintptr_t)other.addr, other.mr->rkey, 0));
		expect_access_error(_metadata, &self->r, &self->p);
	}
	EXPECT_TRUE(all_bytes(other.addr, 64, 7));
	region_free(&other);
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_F(err, region_without_the_right)
{
	static const int needed[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC };

	for (size_t i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		struct region g;

		ASSERT_EQ(0, region_create(&g, self->r.pd, 64, RC_ACCESS & ~needed[i]));
		memset(g.addr, 7, 64);
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, remote_ops[i], sge_of(&self->src, 0, 8),
				     (uintptr_t)g.addr, g.mr->rkey, 0));
		expect_access_error(_metadata, &self->r, &self->p);
		EXPECT_TRUE(all_bytes(g.addr, 64, 7));
		region_free(&g);
	}
}

TEST_F(err, remote_range)
{
	const uint64_t start = (uintptr_t)self->dst.addr, end = start + self->dst.len;
	const uint64_t addrs[] = { end, end - 8, start - 1, start - 16, 0, -8ULL, -16ULL,
				   1ULL << 63 };

	for (size_t op = 0; op < 2; op++) {
		for (size_t i = 0; i < ARRAY_SIZE(addrs); i++) {
			ASSERT_EQ(0, post_op(self->p.a.qp, 1, remote_ops[op],
					     sge_of(&self->src, 0, 16), addrs[i],
					     self->dst.mr->rkey, 0));
			expect_access_error(_metadata, &self->r, &self->p);
		}
	}
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
	EXPECT_TRUE(guards_intact(&self->dst));
}

TEST_F(err, remote_range_that_wraps)
{
	struct region g;

	/* A region that ends where the address space does: 2^64 - 8 is inside, 16 bytes are not. */
	ASSERT_EQ(0, region_map(&g, PAGE, 0));
	g.mr = ibv_reg_mr_iova(self->r.pd, g.addr, PAGE, -(uint64_t)PAGE, RC_ACCESS);
	if (!g.mr)
		SKIP(goto out, "such a region cannot be registered");
	memset(g.addr, 0, PAGE);
	for (size_t op = 0; op < 2; op++) {
		ASSERT_EQ(0, post_op(self->p.a.qp, 1, remote_ops[op], sge_of(&self->src, 0, 16),
				     -8ULL, g.mr->rkey, 0));
		expect_access_error(_metadata, &self->r, &self->p);
	}
	EXPECT_TRUE(all_bytes(g.addr, PAGE, 0));
	/* Its very last bytes can be reached. */
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&self->src, 0, 8), -8ULL,
			     g.mr->rkey, 0));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(all_bytes(g.addr + PAGE - 8, 8, 0x5c));
out:
	region_free(&g);
}

TEST_F(err, part_of_a_write_is_out_of_range)
{
	/* Refused as a whole: nothing lands of a message that does not fit. */
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE,
			     sge_of(&self->src, 0, 200 * KIB),
			     (uintptr_t)self->dst.addr + 100 * KIB, self->dst.mr->rkey, 0));
	expect_access_error(_metadata, &self->r, &self->p);
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
	EXPECT_TRUE(guards_intact(&self->dst));
}

TEST_F(err, write_with_imm_bad_rkey)
{
	/* The responder's own receive may carry the error instead of an event. */
	struct ibv_async_event event;
	struct ibv_wc wc;

	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, 0));
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE_WITH_IMM,
			     sge_of(&self->src, 0, 64), (uintptr_t)self->dst.addr, BAD_KEY, 0));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	EXPECT_STATE(IBV_QPS_ERR, self->p.b.qp);
	ASSERT_POLL(self->p.b.rcq, &wc);
	EXPECT_EQ(2, wc.wr_id);
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_TRUE(wc.status != IBV_WC_WR_FLUSH_ERR ||
		    next_event(self->r.ctx, &event, LIMIT_MS) == IBV_EVENT_QP_ACCESS_ERR)
		TH_LOG("neither completion (%s) nor event told the responder",
		       ibv_wc_status_str(wc.status));
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0));
}

TEST_F(err, queue_pair_without_the_right)
{
	static const int needed[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC };
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_wc wc;

	for (size_t i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		struct pair p;

		o.access = RC_ACCESS & ~needed[i];
		ASSERT_EQ(0, pair_create2(&self->r, &p, NULL, &o));
		ASSERT_EQ(0, post_op(p.a.qp, 1, remote_ops[i], sge_of(&self->src, 0, 8),
				     (uintptr_t)self->dst.addr, self->dst.mr->rkey, 0));
		ASSERT_POLL(p.a.scq, &wc);
		EXPECT_TRUE(wc.status == IBV_WC_REM_INV_REQ_ERR ||
			    wc.status == IBV_WC_REM_ACCESS_ERR)
			TH_LOG("opcode %d: %s", remote_ops[i], ibv_wc_status_str(wc.status));
		EXPECT_STATE(IBV_QPS_ERR, p.a.qp);
		EXPECT_STATE(IBV_QPS_ERR, p.b.qp);
		pair_destroy(&p);
	}
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
}

TEST_F(err, receive_too_small)
{
	memset(self->dst.addr, 0, 256);
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, 63));
	ASSERT_EQ(0, post_recv(self->p.b.qp, 3, &self->dst, 64));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &self->src, 64));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 4, &self->src, 64));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	EXPECT_WC(self->p.a.scq, 4, IBV_WC_WR_FLUSH_ERR);
	EXPECT_WC(self->p.b.rcq, 2, IBV_WC_LOC_LEN_ERR);
	EXPECT_WC(self->p.b.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	EXPECT_STATE(IBV_QPS_ERR, self->p.a.qp);
	EXPECT_STATE(IBV_QPS_ERR, self->p.b.qp);
	EXPECT_TRUE(all_bytes(self->dst.addr + 63, 100, 0));
}

TEST_F(err, receive_too_small_for_many_pages)
{
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, 150001));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &self->src, 200000));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	EXPECT_WC(self->p.b.rcq, 2, IBV_WC_LOC_LEN_ERR);
	EXPECT_TRUE(all_bytes(self->dst.addr + 150001, self->dst.len - 150001, 0));
}

TEST_F(err, receive_into_bad_memory)
{
	struct region fixed;
	struct ibv_sge bad[] = {
		sge_with_key(&self->dst, 64, BAD_KEY),
		{ (uintptr_t)self->dst.addr + self->dst.len - 8, 64, self->dst.mr->lkey },
		{ 0 },
	};

	ASSERT_EQ(0, region_create(&fixed, self->r.pd, 64, IBV_ACCESS_REMOTE_READ));
	memset(fixed.addr, 7, 64);
	bad[2] = sge_of(&fixed, 0, 64);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ASSERT_EQ(0, post_recv_sge(self->p.b.qp, 2, &bad[i], 1));
		ASSERT_EQ(0, post_recv(self->p.b.qp, 3, &self->dst, 64));
		ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &self->src, 64));
		EXPECT_WC(self->p.b.rcq, 2, IBV_WC_LOC_PROT_ERR);
		EXPECT_WC(self->p.b.rcq, 3, IBV_WC_WR_FLUSH_ERR);
		EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_OP_ERR);
		EXPECT_STATE(IBV_QPS_ERR, self->p.a.qp);
		EXPECT_STATE(IBV_QPS_ERR, self->p.b.qp);
		reconnect(_metadata, &self->r, &self->p);
	}
	EXPECT_TRUE(all_bytes(fixed.addr, 64, 7));
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
	EXPECT_TRUE(guards_intact(&self->dst));
	region_free(&fixed);
}

TEST_F(err, receive_into_a_deregistered_region)
{
	struct region gone;

	ASSERT_EQ(0, region_create(&gone, self->r.pd, 64, RC_ACCESS));
	memset(gone.addr, 7, 64);
	ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &gone, 64));
	ASSERT_EQ(0, region_dereg(&gone));
	ASSERT_EQ(0, post_msg(self->p.a.qp, 1, &self->src, 64));
	EXPECT_WC(self->p.b.rcq, 2, IBV_WC_LOC_PROT_ERR);
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_OP_ERR);
	EXPECT_STATE(IBV_QPS_ERR, self->p.a.qp);
	EXPECT_STATE(IBV_QPS_ERR, self->p.b.qp);
	EXPECT_TRUE(all_bytes(gone.addr, 64, 7));
	region_free(&gone);
}

TEST_F(err, unaligned_atomic)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = self->p.a.scq,
		.recv_cq = self->p.a.rcq,
		.cap = { 16, 16, 1, 1, 0 },
		.pd = self->r.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_qp_ex *qpx;
	struct pair p;

	/* ibv_post_send() of the provider library refuses it; the other interface does not. */
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, ibv_destroy_qp(p.a.qp));
	p.a.qp = ibv_create_qp_ex(self->r.ctx, &init);
	ASSERT_NE(NULL, p.a.qp);
	qpx = ibv_qp_to_qp_ex(p.a.qp);
	ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
	ASSERT_EQ(0, pair_connect(&self->r, &p));
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(qpx, self->dst.mr->rkey, (uintptr_t)self->dst.addr + 4, 1);
	ibv_wr_set_sge(qpx, self->src.mr->lkey, (uintptr_t)self->src.addr, 8);
	ASSERT_EQ(0, ibv_wr_complete(qpx));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	EXPECT_STATE(IBV_QPS_ERR, p.a.qp);
	EXPECT_STATE(IBV_QPS_ERR, p.b.qp);
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0));
	EXPECT_TRUE(all_bytes(self->src.addr, 64, 0x5c));
	pair_destroy(&p);
}

TEST_F(err, longer_than_any_message)
{
	struct ibv_sge sges[2] = {
		{ (uintptr_t)self->src.addr, 1U << 31, self->src.mr->lkey },
		{ (uintptr_t)self->src.addr, 1, self->src.mr->lkey },
	};
	struct ibv_wc wc;
	int err;

	err = post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = sges, .num_sge = 2,
			.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey } });
	if (!err) {
		/* LOC_PROT_ERR would be right as well: the memory is not there. */
		ASSERT_POLL(self->p.a.scq, &wc);
		EXPECT_TRUE(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_PROT_ERR ||
			    wc.status == IBV_WC_LOC_QP_OP_ERR)
			TH_LOG("%s", ibv_wc_status_str(wc.status));
		reconnect(_metadata, &self->r, &self->p);
	}
	/* Two halves whose sum is 2^32, which the provider library counts as 0 bytes. */
	sges[1].length = 1U << 31;
	err = post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .sg_list = sges, .num_sge = 2,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)self->dst.addr, self->dst.mr->rkey } });
	if (!err) {
		ASSERT_POLL(self->p.a.scq, &wc);
		EXPECT_TRUE(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_PROT_ERR ||
			    wc.status == IBV_WC_LOC_QP_OP_ERR)
			TH_LOG("2^32 bytes: %s", ibv_wc_status_str(wc.status));
	}
	EXPECT_TRUE(all_bytes(self->dst.addr, self->dst.len, 0));
	EXPECT_TRUE(guards_intact(&self->dst));
}

TEST_F(err, too_many_sges)
{
	struct ibv_sge sges[64];

	for (int i = 0; i < 64; i++)
		sges[i] = sge_of(&self->src, 0, 8);
	EXPECT_NE(0, post_send(self->p.a.qp, (struct ibv_send_wr){
			.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = sges, .num_sge = 64 }));
	EXPECT_NE(0, post_recv_sge(self->p.a.qp, 1, sges, 64));
	EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
}

TEST_F(err, invalidate_is_refused)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV };
	struct ibv_wc wc;

	/* Without memory extensions these are unknown operations: an error, and no effect. */
	if (self->r.attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS)
		SKIP(return, "the device has memory management extensions");
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		int err;

		ASSERT_EQ(0, post_recv(self->p.b.qp, 2, &self->dst, 64));
		err = post_send(self->p.a.qp, (struct ibv_send_wr){
				.wr_id = 1, .opcode = ops[i], .send_flags = IBV_SEND_SIGNALED,
				.invalidate_rkey = self->dst.mr->rkey });
		if (!err) {
			ASSERT_POLL(self->p.a.scq, &wc);
			EXPECT_EQ(1, wc.wr_id);
			EXPECT_NE(IBV_WC_SUCCESS, wc.status);
			EXPECT_NE(IBV_WC_WR_FLUSH_ERR, wc.status);
		}
		EXPECT_EQ(IBV_QPS_RTS, qp_state(self->p.b.qp));
		reconnect(_metadata, &self->r, &self->p);
	}
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 3, IBV_WR_RDMA_WRITE, &self->src, 64, &self->dst));
	EXPECT_WC(self->p.a.scq, 3, IBV_WC_SUCCESS);
}

/* Receiver not ready. */

/* The responder's timer and the requester's patience, with nothing else changed. */
static struct rc_opts rnr_opts(uint8_t timer, uint8_t retry)
{
	struct rc_opts o = RC_DEFAULTS;

	o.rnr_timer = timer;
	o.rnr_retry = retry;
	return o;
}

#define RNR_163_MS 28

TEST_F(err, rnr_retries_run_out)
{
	struct rc_opts o = rnr_opts(RNR_163_MS, 2);
	uint64_t start, took;
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	start = now_ms();
	ASSERT_EQ(0, post_msg(p.a.qp, 1, &self->src, 64));
	ASSERT_EQ(0, post_msg(p.a.qp, 2, &self->src, 64));
	EXPECT_WC(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	took = now_ms() - start;
	EXPECT_WC(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	EXPECT_STATE(IBV_QPS_ERR, p.a.qp);
	EXPECT_EQ(IBV_QPS_RTS, qp_state(p.b.qp)) TH_LOG("the receiver's side failed");
	/* Twice it waits what the responder asked for, 163.84 ms. */
	EXPECT_GE(took, 2 * 163);
	pair_destroy(&p);
}

TEST_F(err, rnr_without_retries)
{
	struct rc_opts o = rnr_opts(1, 0);
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, post_msg(p.a.qp, 1, &self->src, 64));
	EXPECT_WC(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_destroy(&p);
}

TEST_F(err, rnr_timer_of_code_0_is_the_longest)
{
	struct rc_opts o = rnr_opts(0, 1);
	uint64_t start;
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	start = now_ms();
	ASSERT_EQ(0, post_msg(p.a.qp, 1, &self->src, 64));
	EXPECT_WC(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	EXPECT_GE(now_ms() - start, 655);
	pair_destroy(&p);
}

TEST_F(err, rnr_then_a_late_receive)
{
	struct rc_opts o = rnr_opts(RNR_163_MS, 6);
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, post_msg(p.a.qp, 1, &self->src, 64));
	ASSERT_EQ(0, post_msg(p.a.qp, 2, &self->src, 64));
	sleep_ms(300);
	ASSERT_EQ(0, post_recv(p.b.qp, 3, &self->dst, 64));
	ASSERT_EQ(0, post_recv(p.b.qp, 4, &self->dst, 64));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_WC(p.a.scq, 2, IBV_WC_SUCCESS);
	EXPECT_WC(p.b.rcq, 3, IBV_WC_SUCCESS);
	EXPECT_WC(p.b.rcq, 4, IBV_WC_SUCCESS);
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0x5c));
	pair_destroy(&p);
}

TEST_F(err, rnr_retry_7_is_for_ever)
{
	struct rc_opts o = rnr_opts(1, 7);
	struct ibv_wc wc;
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, post_op(p.a.qp, 1, IBV_WR_RDMA_WRITE_WITH_IMM, sge_of(&self->src, 0, 64),
			     (uintptr_t)self->dst.addr, self->dst.mr->rkey, 0));
	EXPECT_FALSE(poll_for(p.a.scq, &wc, 1000))
		TH_LOG("%s", ibv_wc_status_str(wc.status));
	/* The others go on meanwhile. */
	EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
	ASSERT_EQ(0, post_recv(p.b.qp, 2, &self->dst, 0));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_WC(p.b.rcq, 2, IBV_WC_SUCCESS);
	pair_destroy(&p);
}

TEST_F(err, write_needs_no_receive)
{
	struct rc_opts o = rnr_opts(1, 0);
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, post_rdma(p.a.qp, 1, IBV_WR_RDMA_WRITE, &self->src, 64, &self->dst));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	pair_destroy(&p);
}

/* Nobody answers. */

/* Timeout code 12 is 16.8 ms; the first try and three more. */
#define RETRY_TIMEOUT 12
#define RETRY_COUNT 3
#define RETRY_AT_LEAST_MS (RETRY_COUNT * 16)

static struct rc_opts retry_opts(void)
{
	struct rc_opts o = RC_DEFAULTS;

	o.timeout = RETRY_TIMEOUT;
	o.retry_cnt = RETRY_COUNT;
	return o;
}

/* Puts the peer into @state (-1: destroys it) and expects the requester to give up. */
static void expect_retries_run_out(struct __test_metadata *_metadata, struct rdma *r,
				   struct region *src, struct region *dst, int state)
{
	struct rc_opts o = retry_opts();
	uint64_t start, took;
	struct pair p;

	ASSERT_EQ(0, pair_create(r, &p, &o));
	if (state < 0) {
		ASSERT_EQ(0, rc_destroy(&p.b));
	} else {
		ASSERT_EQ(0, qp_to(p.b.qp, state == IBV_QPS_INIT ? IBV_QPS_RESET : state));
		if (state == IBV_QPS_INIT)
			ASSERT_EQ(0, rc_to_init(&p.b));
	}
	start = now_ms();
	ASSERT_EQ(0, post_rdma(p.a.qp, 1, IBV_WR_RDMA_WRITE, src, 64, dst));
	ASSERT_EQ(0, post_msg(p.a.qp, 2, src, 64));
	EXPECT_WC(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	took = now_ms() - start;
	EXPECT_GE(took, RETRY_AT_LEAST_MS);
	EXPECT_WC(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	EXPECT_STATE(IBV_QPS_ERR, p.a.qp);
	EXPECT_TRUE(all_bytes(dst->addr, 64, 0));
	if (state >= 0)
		EXPECT_EQ(state, qp_state(p.b.qp));
	pair_destroy(&p);
}

TEST_F(err, peer_in_reset)
{
	expect_retries_run_out(_metadata, &self->r, &self->src, &self->dst, IBV_QPS_RESET);
}

TEST_F(err, peer_in_init)
{
	expect_retries_run_out(_metadata, &self->r, &self->src, &self->dst, IBV_QPS_INIT);
}

TEST_F(err, peer_in_error)
{
	expect_retries_run_out(_metadata, &self->r, &self->src, &self->dst, IBV_QPS_ERR);
}

TEST_F(err, peer_destroyed)
{
	expect_retries_run_out(_metadata, &self->r, &self->src, &self->dst, -1);
}

TEST_F(err, peer_connected_elsewhere)
{
	struct rc_opts o = retry_opts();
	struct rc stranger;

	/* A queue pair answers only the one it is connected to. */
	ASSERT_EQ(0, rc_create(&self->r, &stranger, &o));
	ASSERT_EQ(0, rc_connect(&self->r, &stranger, self->p.b.qp->qp_num));
	ASSERT_EQ(0, post_rdma(stranger.qp, 1, IBV_WR_RDMA_WRITE, &self->src, 64, &self->dst));
	EXPECT_WC(stranger.scq, 1, IBV_WC_RETRY_EXC_ERR);
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0));
	EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
	EXPECT_EQ(0, rc_destroy(&stranger));
}

TEST_F(err, peer_becomes_ready)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;

	memset(&p, 0, sizeof(p));
	/* 67 ms, seven more tries: the peer is there before they are used up. */
	ASSERT_EQ(0, rc_create(&self->r, &p.a, &o));
	ASSERT_EQ(0, rc_create(&self->r, &p.b, &o));
	ASSERT_EQ(0, rc_connect(&self->r, &p.a, p.b.qp->qp_num));
	ASSERT_EQ(0, post_rdma(p.a.qp, 1, IBV_WR_RDMA_WRITE, &self->src, 64, &self->dst));
	sleep_ms(100);
	ASSERT_EQ(0, rc_connect(&self->r, &p.b, p.a.qp->qp_num));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(all_bytes(self->dst.addr, 64, 0x5c));
	pair_destroy(&p);
}

TEST_F(err, timeout_0_waits_for_ever)
{
	struct rc_opts o = retry_opts();
	struct pair p;

	o.timeout = 0;
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, qp_to(p.b.qp, IBV_QPS_RESET));
	ASSERT_EQ(0, post_rdma(p.a.qp, 1, IBV_WR_RDMA_WRITE, &self->src, 64, &self->dst));
	sleep_ms(500);
	EXPECT_TRUE(cq_quiet(p.a.scq));
	EXPECT_EQ(IBV_QPS_RTS, qp_state(p.a.qp));
	ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_ERR));
	EXPECT_WC(p.a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	pair_destroy(&p);
}

TEST_F(err, others_go_on)
{
	struct ibv_sge bad = sge_with_key(&self->src, 64, BAD_KEY);
	struct pair p;

	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, pair_create(&self->r, &p, NULL));
		ASSERT_EQ(0, post_op(p.a.qp, 1, i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_READ, bad,
				     (uintptr_t)self->dst.addr, self->dst.mr->rkey, 0));
		EXPECT_WORKS(&self->r, &self->p.a, &self->p.b);
		EXPECT_WC(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
		pair_destroy(&p);
	}
}

TEST_HARNESS_MAIN
