// SPDX-License-Identifier: GPL-2.0
/*
 * The state machine of an RC queue pair: every cell of the table, the attributes each step
 * needs, what ibv_query_qp gives back, and what posting does in each state.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#define STATES (IBV_QPS_ERR + 1)

FIXTURE(qp) {
	struct rdma r;
	struct region buf;
};

FIXTURE_SETUP(qp)
{
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, region_create(&self->buf, self->r.pd, PAGE, RC_ACCESS));
}

FIXTURE_TEARDOWN(qp)
{
	region_free(&self->buf);
	rdma_close(&self->r);
}

static const char *const names[STATES] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

/* The RC part of qp_state_table in the kernel's drivers/infiniband/core/verbs.c. */
static const bool valid[STATES][STATES] = {
	[IBV_QPS_RESET] = { [IBV_QPS_RESET] = 1, [IBV_QPS_INIT] = 1 },
	[IBV_QPS_INIT] = { [IBV_QPS_RESET] = 1, [IBV_QPS_INIT] = 1, [IBV_QPS_RTR] = 1,
			   [IBV_QPS_ERR] = 1 },
	[IBV_QPS_RTR] = { [IBV_QPS_RESET] = 1, [IBV_QPS_RTS] = 1, [IBV_QPS_ERR] = 1 },
	[IBV_QPS_RTS] = { [IBV_QPS_RESET] = 1, [IBV_QPS_RTS] = 1, [IBV_QPS_SQD] = 1,
			  [IBV_QPS_ERR] = 1 },
	[IBV_QPS_SQD] = { [IBV_QPS_RESET] = 1, [IBV_QPS_RTS] = 1, [IBV_QPS_SQD] = 1,
			  [IBV_QPS_ERR] = 1 },
	[IBV_QPS_ERR] = { [IBV_QPS_RESET] = 1, [IBV_QPS_ERR] = 1 },
};

/* Tries to go to @to with the attributes that step needs from @from. */
static int step(struct rdma *r, struct rc *q, int from, int to)
{
	switch (to) {
	case IBV_QPS_INIT:
		return rc_to_init(q);
	case IBV_QPS_RTR:
		return rc_to_rtr(r, q, q->qp->qp_num);
	case IBV_QPS_RTS:
		/* Only the first step into RTS sets the timers and counts. */
		return from == IBV_QPS_RTR || from < IBV_QPS_RTR ? rc_to_rts(q) :
								   qp_to(q->qp, to);
	default:
		return qp_to(q->qp, to);
	}
}

/* A fresh queue pair in @state, connected to itself. */
static int create_in(struct rdma *r, struct rc *q, int state)
{
	struct rc_opts o = RC_DEFAULTS;
	int err = rc_create(r, q, &o);

	if (!err && state != IBV_QPS_RESET)
		err = rc_to_init(q);
	if (!err && state >= IBV_QPS_RTR && state != IBV_QPS_ERR)
		err = rc_to_rtr(r, q, q->qp->qp_num);
	if (!err && state >= IBV_QPS_RTS && state != IBV_QPS_ERR)
		err = rc_to_rts(q);
	if (!err && (state == IBV_QPS_SQD || state == IBV_QPS_ERR))
		err = qp_to(q->qp, state);
	return err;
}

TEST_F(qp, every_transition)
{
	for (int from = 0; from < STATES; from++) {
		if (from == IBV_QPS_SQE)
			continue; /* RC never gets there. */
		for (int to = 0; to < STATES; to++) {
			struct rc q;
			int err;

			ASSERT_EQ(0, create_in(&self->r, &q, from))
				TH_LOG("cannot get to %s", names[from]);
			ASSERT_EQ(from, qp_state(q.qp));
			err = step(&self->r, &q, from, to);
			EXPECT_EQ(valid[from][to] ? 0 : EINVAL, err)
				TH_LOG("%s to %s: errno %d", names[from], names[to], err);
			EXPECT_EQ(valid[from][to] ? to : from, qp_state(q.qp))
				TH_LOG("after %s to %s", names[from], names[to]);
			EXPECT_EQ(0, rc_destroy(&q));
		}
	}
}

TEST_F(qp, no_such_state)
{
	struct rc q;

	ASSERT_EQ(0, create_in(&self->r, &q, IBV_QPS_INIT));
	EXPECT_EQ(EINVAL, qp_to(q.qp, STATES));
	EXPECT_EQ(EINVAL, qp_to(q.qp, 200));
	EXPECT_EQ(IBV_QPS_INIT, qp_state(q.qp));
	EXPECT_EQ(0, rc_destroy(&q));
}

/* Each of the attributes a step needs is left out once. */
static void expect_all_needed(struct __test_metadata *_metadata, struct ibv_qp *qp,
			      struct ibv_qp_attr attr, int mask)
{
	int before = qp_state(qp);

	for (int bit = IBV_QP_STATE << 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
		if (!(mask & bit))
			continue;
		EXPECT_EQ(EINVAL, ibv_modify_qp(qp, &attr, mask & ~bit))
			TH_LOG("to %s without %#x", names[attr.qp_state], bit);
		EXPECT_EQ(before, qp_state(qp));
	}
	/* And one of another transport added. */
	EXPECT_EQ(EINVAL, ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY));
	EXPECT_EQ(before, qp_state(qp));
	EXPECT_EQ(0, ibv_modify_qp(qp, &attr, mask));
}

TEST_F(qp, needed_attributes)
{
	struct rc q;

	ASSERT_EQ(0, create_in(&self->r, &q, IBV_QPS_RESET));
	expect_all_needed(_metadata, q.qp, init_attr_of(&q), INIT_MASK);
	expect_all_needed(_metadata, q.qp, rtr_attr_of(&self->r, &q, q.qp->qp_num), RTR_MASK);
	expect_all_needed(_metadata, q.qp, rts_attr_of(&q), RTS_MASK);
	EXPECT_EQ(IBV_QPS_RTS, qp_state(q.qp));
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(qp, bad_values_are_refused)
{
	struct ibv_qp_attr attr;
	struct rc q;

	ASSERT_EQ(0, create_in(&self->r, &q, IBV_QPS_RESET));
	attr = init_attr_of(&q);
	attr.port_num = 2;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, INIT_MASK));
	attr = init_attr_of(&q);
	attr.port_num = 0;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, INIT_MASK));
	attr = init_attr_of(&q);
	attr.pkey_index = self->r.port.pkey_tbl_len;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, INIT_MASK));
	ASSERT_EQ(IBV_QPS_RESET, qp_state(q.qp));
	ASSERT_EQ(0, rc_to_init(&q));

	attr = rtr_attr_of(&self->r, &q, q.qp->qp_num);
	attr.path_mtu = 0;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTR_MASK));
	attr.path_mtu = IBV_MTU_4096 + 1;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTR_MASK));
	attr = rtr_attr_of(&self->r, &q, q.qp->qp_num);
	attr.ah_attr.grh.sgid_index = self->r.port.gid_tbl_len;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTR_MASK));
	attr = rtr_attr_of(&self->r, &q, q.qp->qp_num);
	attr.ah_attr.port_num = 2;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTR_MASK));
	attr = rtr_attr_of(&self->r, &q, q.qp->qp_num);
	attr.ah_attr.is_global = 0;
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTR_MASK));
	if (self->r.attr.max_qp_rd_atom < 255) {
		attr = rtr_attr_of(&self->r, &q, q.qp->qp_num);
		attr.max_dest_rd_atomic = self->r.attr.max_qp_rd_atom + 1;
		EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTR_MASK));
	}
	ASSERT_EQ(IBV_QPS_INIT, qp_state(q.qp));
	ASSERT_EQ(0, rc_to_rtr(&self->r, &q, q.qp->qp_num));

	if (self->r.attr.max_qp_init_rd_atom < 255) {
		attr = rts_attr_of(&q);
		attr.max_rd_atomic = self->r.attr.max_qp_init_rd_atom + 1;
		EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, RTS_MASK));
	}
	ASSERT_EQ(IBV_QPS_RTR, qp_state(q.qp));
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(qp, current_state_has_to_match)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	struct rc q;

	ASSERT_EQ(0, create_in(&self->r, &q, IBV_QPS_RTS));
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	attr.cur_qp_state = IBV_QPS_RTS;
	EXPECT_EQ(0, ibv_modify_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(qp, query_gives_back_what_was_set)
{
	struct ibv_qp_init_attr init;
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_qp_attr attr;
	struct rc q;

	o.timeout = 11;
	o.retry_cnt = 5;
	o.rnr_retry = 3;
	o.rnr_timer = 12;
	o.rd_atomic = 2;
	o.sig_all = 1;
	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	ASSERT_EQ(0, rc_connect(&self->r, &q, q.qp->qp_num));
	ASSERT_EQ(0, ibv_query_qp(q.qp, &attr, ~0U >> 8, &init));
	EXPECT_EQ(IBV_QPS_RTS, attr.qp_state);
	EXPECT_EQ(IBV_QPS_RTS, attr.cur_qp_state);
	EXPECT_EQ(self->r.port.active_mtu, attr.path_mtu);
	EXPECT_EQ(0x123456, attr.rq_psn);
	EXPECT_EQ(0x123456, attr.sq_psn);
	EXPECT_EQ(q.qp->qp_num, attr.dest_qp_num);
	EXPECT_EQ((unsigned int)RC_ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
		  attr.qp_access_flags & ~IBV_ACCESS_LOCAL_WRITE);
	EXPECT_EQ(1, attr.port_num);
	EXPECT_EQ(0, attr.pkey_index);
	EXPECT_EQ(11, attr.timeout);
	EXPECT_EQ(5, attr.retry_cnt);
	EXPECT_EQ(3, attr.rnr_retry);
	EXPECT_EQ(12, attr.min_rnr_timer);
	EXPECT_EQ(2, attr.max_rd_atomic);
	EXPECT_EQ(2, attr.max_dest_rd_atomic);
	EXPECT_EQ(0, attr.sq_draining);
	EXPECT_EQ(1, attr.ah_attr.is_global);
	EXPECT_EQ(1, attr.ah_attr.port_num);
	EXPECT_EQ(self->r.gid_index, attr.ah_attr.grh.sgid_index);
	EXPECT_EQ(64, attr.ah_attr.grh.hop_limit);
	EXPECT_EQ(0, memcmp(&attr.ah_attr.grh.dgid, &self->r.gid, sizeof(self->r.gid)));
	EXPECT_EQ(IBV_QPT_RC, init.qp_type);
	EXPECT_EQ(1, init.sq_sig_all);
	EXPECT_EQ(q.scq, init.send_cq);
	EXPECT_EQ(q.rcq, init.recv_cq);
	EXPECT_EQ(q.cap.max_send_wr, init.cap.max_send_wr);
	EXPECT_EQ(q.cap.max_recv_wr, init.cap.max_recv_wr);
	EXPECT_EQ(q.cap.max_send_sge, init.cap.max_send_sge);
	EXPECT_EQ(q.cap.max_recv_sge, init.cap.max_recv_sge);
	EXPECT_EQ(q.cap.max_inline_data, init.cap.max_inline_data);
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(qp, attributes_change_in_rts)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .min_rnr_timer = 20,
				    .qp_access_flags = IBV_ACCESS_REMOTE_READ };
	struct ibv_qp_init_attr init;
	struct rc q;

	ASSERT_EQ(0, create_in(&self->r, &q, IBV_QPS_RTS));
	ASSERT_EQ(0, ibv_modify_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER |
						IBV_QP_ACCESS_FLAGS));
	/* Without naming a state the present one is meant. */
	attr.min_rnr_timer = 21;
	ASSERT_EQ(0, ibv_modify_qp(q.qp, &attr, IBV_QP_MIN_RNR_TIMER));
	ASSERT_EQ(0, ibv_query_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER, &init));
	EXPECT_EQ(IBV_QPS_RTS, attr.qp_state);
	EXPECT_EQ(21, attr.min_rnr_timer);
	EXPECT_EQ(IBV_ACCESS_REMOTE_READ, attr.qp_access_flags & ~IBV_ACCESS_LOCAL_WRITE);
	/* The timeout is fixed once the queue pair runs. */
	EXPECT_EQ(EINVAL, ibv_modify_qp(q.qp, &attr, IBV_QP_TIMEOUT));
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(qp, reset_forgets)
{
	struct rc q;

	ASSERT_EQ(0, create_in(&self->r, &q, IBV_QPS_RTS));
	for (int i = 0; i < 50; i++) {
		EXPECT_WORKS(&self->r, &q, &q);
		ASSERT_EQ(0, qp_to(q.qp, i % 2 ? IBV_QPS_RESET : IBV_QPS_ERR));
		ASSERT_EQ(0, qp_to(q.qp, IBV_QPS_RESET));
		EXPECT_EQ(0, drain_cq(q.scq) + drain_cq(q.rcq));
		ASSERT_EQ(0, rc_connect(&self->r, &q, q.qp->qp_num));
	}
	EXPECT_EQ(0, rc_destroy(&q));
}

TEST_F(qp, destroy_from_every_state)
{
	static const int states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
				      IBV_QPS_SQD,   IBV_QPS_ERR };

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct rc q;

		ASSERT_EQ(0, create_in(&self->r, &q, states[i]));
		EXPECT_EQ(0, rc_destroy(&q)) TH_LOG("destroy in %s", names[states[i]]);
	}
}

/*
 * Posting. A send work request refused in RESET, INIT or RTR must have no effect later, although
 * the provider library has already put it into the shared ring (a "ghost").
 */

static void expect_no_ghost(struct __test_metadata *_metadata, struct rdma *r, int state)
{
	struct rc_opts o = RC_DEFAULTS;
	struct region src, dst;
	struct ibv_wc wc;
	struct pair p;

	ASSERT_EQ(0, region_create(&src, r->pd, 64, 0));
	ASSERT_EQ(0, region_create(&dst, r->pd, 64, RC_ACCESS));
	memset(src.addr, 1, 64);
	memset(dst.addr, 0, 64);
	memset(&p, 0, sizeof(p));
	ASSERT_EQ(0, rc_create(r, &p.a, &o));
	ASSERT_EQ(0, rc_create(r, &p.b, &o));
	ASSERT_EQ(0, rc_connect(r, &p.b, p.a.qp->qp_num));
	if (state >= IBV_QPS_INIT)
		ASSERT_EQ(0, rc_to_init(&p.a));
	if (state >= IBV_QPS_RTR)
		ASSERT_EQ(0, rc_to_rtr(r, &p.a, p.b.qp->qp_num));

	EXPECT_EQ(EINVAL, post_rdma(p.a.qp, 13, IBV_WR_RDMA_WRITE, &src, 64, &dst))
		TH_LOG("posted a send in %s", names[state]);

	if (state < IBV_QPS_INIT)
		ASSERT_EQ(0, rc_to_init(&p.a));
	if (state < IBV_QPS_RTR)
		ASSERT_EQ(0, rc_to_rtr(r, &p.a, p.b.qp->qp_num));
	ASSERT_EQ(0, rc_to_rts(&p.a));
	EXPECT_FALSE(poll_for(p.a.scq, &wc, QUIET_MS))
		TH_LOG("ghost of %s: wr_id %llu, %s", names[state], (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status));
	/* Nor may the next doorbell bring it to life. */
	EXPECT_WORKS(r, &p.a, &p.b);
	EXPECT_TRUE(cq_quiet(p.a.scq));
	EXPECT_TRUE(all_bytes(dst.addr, 64, 0)) TH_LOG("a ghost of %s wrote", names[state]);
	pair_destroy(&p);
	region_free(&src);
	region_free(&dst);
}

TEST_F(qp, no_ghost_of_reset)
{
	expect_no_ghost(_metadata, &self->r, IBV_QPS_RESET);
}

TEST_F(qp, no_ghost_of_init)
{
	expect_no_ghost(_metadata, &self->r, IBV_QPS_INIT);
}

TEST_F(qp, no_ghost_of_rtr)
{
	expect_no_ghost(_metadata, &self->r, IBV_QPS_RTR);
}

TEST_F(qp, receives_may_be_posted_early)
{
	struct rc_opts o = RC_DEFAULTS;
	struct pair p;

	memset(&p, 0, sizeof(p));
	ASSERT_EQ(0, rc_create(&self->r, &p.a, &o));
	ASSERT_EQ(0, rc_create(&self->r, &p.b, &o));
	EXPECT_EQ(EINVAL, post_recv(p.b.qp, 1, &self->buf, 64));
	ASSERT_EQ(0, rc_to_init(&p.b));
	EXPECT_EQ(0, post_recv(p.b.qp, 2, &self->buf, 64));
	ASSERT_EQ(0, rc_to_rtr(&self->r, &p.b, p.a.qp->qp_num));
	EXPECT_EQ(0, post_recv(p.b.qp, 3, &self->buf, 64));
	/* RTR is enough to receive. */
	ASSERT_EQ(0, rc_connect(&self->r, &p.a, p.b.qp->qp_num));
	ASSERT_EQ(0, post_msg(p.a.qp, 4, &self->buf, 8));
	ASSERT_EQ(0, post_msg(p.a.qp, 5, &self->buf, 8));
	EXPECT_WC(p.a.scq, 4, IBV_WC_SUCCESS);
	EXPECT_WC(p.a.scq, 5, IBV_WC_SUCCESS);
	EXPECT_WC(p.b.rcq, 2, IBV_WC_SUCCESS);
	EXPECT_WC(p.b.rcq, 3, IBV_WC_SUCCESS);
	pair_destroy(&p);
}

TEST_F(qp, drained_queue_pauses)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, NULL));
	ASSERT_EQ(0, post_op(p.a.qp, 1, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0));
	EXPECT_WC(p.a.scq, 1, IBV_WC_SUCCESS);
	ASSERT_EQ(0, ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	EXPECT_TRUE(qp_event_comes(self->r.ctx, IBV_EVENT_SQ_DRAINED, p.a.qp, LIMIT_MS));
	/* Accepted, but kept until the queue runs again. */
	ASSERT_EQ(0, post_op(p.a.qp, 2, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0));
	EXPECT_TRUE(cq_quiet(p.a.scq));
	/* The receive side goes on. */
	EXPECT_WORKS(&self->r, &p.b, &p.a);
	ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_RTS));
	EXPECT_WC(p.a.scq, 2, IBV_WC_SUCCESS);
	pair_destroy(&p);
}

TEST_F(qp, no_drained_event_unless_asked_for)
{
	struct ibv_async_event event;
	struct pair p;

	ASSERT_EQ(0, pair_create(&self->r, &p, NULL));
	ASSERT_EQ(0, qp_to(p.a.qp, IBV_QPS_SQD));
	while (next_event(self->r.ctx, &event, QUIET_MS) >= 0)
		EXPECT_NE(IBV_EVENT_SQ_DRAINED, event.event_type);
	pair_destroy(&p);
}

TEST_F(qp, numbers_differ)
{
	enum { N = 64 };
	struct rc q[N];
	struct rc_opts o = RC_DEFAULTS;

	o.send_depth = 1;
	o.recv_depth = 1;
	o.cq_depth = 1;
	for (int i = 0; i < N; i++) {
		ASSERT_EQ(0, rc_create(&self->r, &q[i], &o));
		EXPECT_GT(q[i].qp->qp_num, 1); /* 0 and 1 are the management queue pairs. */
		EXPECT_LT(q[i].qp->qp_num, 1 << 24);
		for (int j = 0; j < i; j++)
			EXPECT_NE(q[i].qp->qp_num, q[j].qp->qp_num);
	}
	for (int i = 0; i < N; i++)
		EXPECT_EQ(0, rc_destroy(&q[i]));
}

TEST_HARNESS_MAIN
