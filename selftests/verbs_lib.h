/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the selftests share: opening the device under test, memory regions with guard bytes,
 * RC queue pairs connected to each other inside one process, posting, polling with a limit.
 *
 * Functions that can fail return 0 or a positive errno, as the verbs do. The EXPECT_WC family
 * needs kselftest_harness.h included first. Nothing here waits for ever.
 *
 * The device is named by the environment variable SLUICE_DEV, "sluice0" if unset.
 */

#ifndef SLUICE_SELFTESTS_VERBS_LIB_H
#define SLUICE_SELFTESTS_VERBS_LIB_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define KIB 1024UL
#define MIB (1024UL * KIB)
#define GIB (1024UL * MIB)
#define PAGE 4096UL

/* How many times slower than usual this kernel is: the debug kernel, with all it looks at. */
static inline unsigned int slowness(void)
{
	const char *factor = getenv("SLUICE_SLOW");

	return factor ? atoi(factor) : 1;
}

/* The limit of every wait for something that must happen; below the harness's own 30 s. */
#define LIMIT_MS (20000 * slowness())
/* How long a test watches for something that must not happen. */
#define QUIET_MS 200

#define RC_ACCESS                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* The harness's limits. */
#undef TEST_F
#define TEST_F(fixture, test) __TEST_F_IMPL(fixture, test, -1, TEST_TIMEOUT_DEFAULT * slowness())
#undef TEST_F_TIMEOUT
#define TEST_F_TIMEOUT(fixture, test, seconds)                                                     \
	__TEST_F_IMPL(fixture, test, -1, (seconds) * slowness())

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static inline uint64_t now_ms(void)
{
	return now_ns() / 1000000;
}

static inline void sleep_ms(unsigned int ms)
{
	usleep(ms * 1000);
}

/* The device. */

struct rdma {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
};

static inline const char *device_name(void)
{
	const char *name = getenv("SLUICE_DEV");

	return name && *name ? name : "sluice0";
}

/* Bytes the engine moves between two boundaries (contract, section 1). */
static inline size_t burst_bytes(void)
{
	const char *bytes = getenv("SLUICE_BURST");

	return bytes ? strtoul(bytes, NULL, 0) : 65536;
}

static inline struct ibv_context *open_context(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	errno = ENODEV;
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

/* A RoCEv2 entry of the GID table, an IPv4 one if there is any. */
static inline int find_gid(struct ibv_context *ctx, int entries, union ibv_gid *gid)
{
	static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;
	int found = -1;

	for (int i = 0; i < entries; i++) {
		bool v4;

		if (ibv_query_gid_ex(ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		v4 = !memcmp(entry.gid.raw, v4_prefix, sizeof(v4_prefix));
		if (found < 0 || v4) {
			found = i;
			*gid = entry.gid;
		}
		if (v4)
			break;
	}
	return found;
}

static inline void rdma_close(struct rdma *r)
{
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->ctx)
		ibv_close_device(r->ctx);
	memset(r, 0, sizeof(*r));
}

static inline int rdma_open_name(struct rdma *r, const char *name)
{
	memset(r, 0, sizeof(*r));
	r->ctx = open_context(name);
	if (!r->ctx) {
		fprintf(stderr, "# cannot open RDMA device %s: %s\n", name, strerror(errno));
		return errno;
	}
	r->pd = ibv_alloc_pd(r->ctx);
	if (!r->pd || ibv_query_device(r->ctx, &r->attr) || ibv_query_port(r->ctx, 1, &r->port)) {
		int err = errno ? errno : EIO;

		rdma_close(r);
		return err;
	}
	r->gid_index = find_gid(r->ctx, r->port.gid_tbl_len, &r->gid);
	if (r->gid_index < 0) {
		fprintf(stderr, "# %s has no RoCEv2 GID\n", name);
		rdma_close(r);
		return EADDRNOTAVAIL;
	}
	return 0;
}

static inline int rdma_open(struct rdma *r)
{
	return rdma_open_name(r, device_name());
}

/* Memory. A region lies between two guard pages whose bytes nobody may change. */

#define GUARD_BYTE 0xa5

struct region {
	uint8_t *addr; /* first byte registered */
	size_t len;
	uint8_t *map;
	size_t map_len;
	struct ibv_mr *mr;
};

/* Memory of @len bytes, @offset bytes behind the start of a page, not registered yet. */
static inline int region_map(struct region *g, size_t len, size_t offset)
{
	memset(g, 0, sizeof(*g));
	g->map_len = (offset % PAGE + len + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
	g->map = mmap(NULL, g->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g->map == MAP_FAILED) {
		g->map = NULL;
		return errno;
	}
	g->addr = g->map + PAGE + offset % PAGE;
	g->len = len;
	memset(g->map, GUARD_BYTE, g->addr - g->map);
	memset(g->addr + len, GUARD_BYTE, g->map + g->map_len - (g->addr + len));
	return 0;
}

static inline int region_reg(struct region *g, struct ibv_pd *pd, int access)
{
	g->mr = ibv_reg_mr(pd, g->addr, g->len, access);
	return g->mr ? 0 : errno;
}

static inline int region_dereg(struct region *g)
{
	int err = g->mr ? ibv_dereg_mr(g->mr) : 0;

	if (!err)
		g->mr = NULL;
	return err;
}

static inline void region_free(struct region *g)
{
	region_dereg(g);
	if (g->map)
		munmap(g->map, g->map_len);
	memset(g, 0, sizeof(*g));
}

static inline int region_create_at(struct region *g, struct ibv_pd *pd, size_t len, size_t offset,
				   int access)
{
	int err = region_map(g, len, offset);

	if (!err)
		err = region_reg(g, pd, access);
	if (err)
		region_free(g);
	return err;
}

static inline int region_create(struct region *g, struct ibv_pd *pd, size_t len, int access)
{
	return region_create_at(g, pd, len, 0, access);
}

static inline bool all_bytes(const uint8_t *p, size_t len, uint8_t byte)
{
	return !len || (*p == byte && !memcmp(p, p + 1, len - 1));
}

static inline bool guards_intact(const struct region *g)
{
	return all_bytes(g->map, g->addr - g->map, GUARD_BYTE) &&
	       all_bytes(g->addr + g->len, g->map + g->map_len - (g->addr + g->len), GUARD_BYTE);
}

/* A byte that depends on its place and on the seed, so that misplaced data is seen. */
static inline uint8_t pattern_byte(uint64_t seed, size_t at)
{
	uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15ULL + (at / 8) * 0xbf58476d1ce4e5b9ULL;

	word ^= word >> 29;
	return word >> (at % 8 * 8);
}

static inline void pattern_fill(void *to, size_t len, uint64_t seed)
{
	uint8_t *p = to;

	for (size_t i = 0; i < len; i++)
		p[i] = pattern_byte(seed, i);
}

/* How many bytes from the start are as pattern_fill() would leave them. */
static inline size_t pattern_prefix(const void *from, size_t len, uint64_t seed)
{
	const uint8_t *p = from;
	size_t i = 0;

	while (i < len && p[i] == pattern_byte(seed, i))
		i++;
	return i;
}

static inline bool pattern_ok(const void *from, size_t len, uint64_t seed)
{
	return pattern_prefix(from, len, seed) == len;
}

/* Queue pairs. */

struct rc_opts {
	struct ibv_pd *pd; /* NULL: the device's */
	struct ibv_cq *cq; /* NULL: an own CQ for each direction */
	struct ibv_comp_channel *channel;
	int cq_depth;
	int send_depth, recv_depth;
	int send_sge, recv_sge;
	int inline_bytes;
	int sig_all;
	int access;
	uint8_t timeout; /* 4.096 us << timeout; 0 for ever */
	uint8_t retry_cnt, rnr_retry;
	uint8_t rnr_timer; /* IBTA code: 1 is 0.01 ms */
	uint8_t rd_atomic;
	int mtu; /* 0: the port's active one */
};

#define RC_DEFAULTS                                                                                \
	((struct rc_opts){                                                                         \
		.cq_depth = 512, .send_depth = 128, .recv_depth = 128, .send_sge = 4,              \
		.recv_sge = 4, .inline_bytes = 64, .access = RC_ACCESS, .timeout = 14,             \
		.retry_cnt = 7, .rnr_retry = 7, .rnr_timer = 1, .rd_atomic = 4,                    \
	})

struct rc {
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	bool own_cqs;
	struct ibv_qp_cap cap; /* as granted */
	struct rc_opts opts;
};

static inline int rc_destroy(struct rc *q)
{
	int err = 0;

	if (q->qp)
		err = ibv_destroy_qp(q->qp);
	if (err)
		return err;
	if (q->own_cqs) {
		if (q->scq)
			ibv_destroy_cq(q->scq);
		if (q->rcq)
			ibv_destroy_cq(q->rcq);
	}
	memset(q, 0, sizeof(*q));
	return 0;
}

/* Between the CQs that @q names already. */
static inline int rc_create_qp(struct rdma *r, struct rc *q, const struct rc_opts *o)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = o->sig_all,
		.send_cq = q->scq,
		.recv_cq = q->rcq,
		.cap = {
			.max_send_wr = o->send_depth,
			.max_recv_wr = o->recv_depth,
			.max_send_sge = o->send_sge,
			.max_recv_sge = o->recv_sge,
			.max_inline_data = o->inline_bytes,
		},
	};

	q->opts = *o;
	q->qp = ibv_create_qp(o->pd ? o->pd : r->pd, &init);
	q->cap = init.cap;
	return q->qp ? 0 : errno;
}

static inline int rc_create(struct rdma *r, struct rc *q, const struct rc_opts *o)
{
	int err;

	memset(q, 0, sizeof(*q));
	q->own_cqs = !o->cq;
	q->scq = o->cq ? o->cq : ibv_create_cq(r->ctx, o->cq_depth, NULL, o->channel, 0);
	q->rcq = o->cq ? o->cq : ibv_create_cq(r->ctx, o->cq_depth, NULL, o->channel, 0);
	err = q->scq && q->rcq ? rc_create_qp(r, q, o) : errno;
	if (err)
		rc_destroy(q);
	return err;
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

static inline int qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) ? -1 : (int)attr.qp_state;
}

/* RESET, ERR, SQD: the states that need nothing but their name. */
static inline int qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static inline struct ibv_qp_attr init_attr_of(const struct rc *q)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = q->opts.access,
	};
}

static inline struct ibv_qp_attr rtr_attr_of(const struct rdma *r, const struct rc *q,
					     uint32_t dest_qpn)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = q->opts.mtu ? (enum ibv_mtu)q->opts.mtu : r->port.active_mtu,
		.dest_qp_num = dest_qpn,
		.rq_psn = 0x123456,
		.max_dest_rd_atomic = q->opts.rd_atomic,
		.min_rnr_timer = q->opts.rnr_timer,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = r->gid, .sgid_index = r->gid_index, .hop_limit = 64 },
		},
	};
}

static inline struct ibv_qp_attr rts_attr_of(const struct rc *q)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = q->opts.timeout,
		.retry_cnt = q->opts.retry_cnt,
		.rnr_retry = q->opts.rnr_retry,
		.sq_psn = 0x123456,
		.max_rd_atomic = q->opts.rd_atomic,
	};
}

static inline int rc_to_init(struct rc *q)
{
	struct ibv_qp_attr attr = init_attr_of(q);

	return ibv_modify_qp(q->qp, &attr, INIT_MASK);
}

static inline int rc_to_rtr(const struct rdma *r, struct rc *q, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = rtr_attr_of(r, q, dest_qpn);

	return ibv_modify_qp(q->qp, &attr, RTR_MASK);
}

static inline int rc_to_rts(struct rc *q)
{
	struct ibv_qp_attr attr = rts_attr_of(q);

	return ibv_modify_qp(q->qp, &attr, RTS_MASK);
}

/* From RESET to RTS. */
static inline int rc_connect(const struct rdma *r, struct rc *q, uint32_t dest_qpn)
{
	int err = rc_to_init(q);

	if (!err)
		err = rc_to_rtr(r, q, dest_qpn);
	if (!err)
		err = rc_to_rts(q);
	return err;
}

/* Two queue pairs of one device, connected to each other. */
struct pair {
	struct rc a, b;
};

static inline int pair_connect(const struct rdma *r, struct pair *p)
{
	int err = rc_to_init(&p->a);

	if (!err)
		err = rc_to_init(&p->b);
	if (!err)
		err = rc_to_rtr(r, &p->a, p->b.qp->qp_num);
	if (!err)
		err = rc_to_rtr(r, &p->b, p->a.qp->qp_num);
	if (!err)
		err = rc_to_rts(&p->a);
	if (!err)
		err = rc_to_rts(&p->b);
	return err;
}

static inline void pair_destroy(struct pair *p)
{
	rc_destroy(&p->a);
	rc_destroy(&p->b);
}

/* @a and @b may be the same; NULL is RC_DEFAULTS. */
static inline int pair_create2(struct rdma *r, struct pair *p, const struct rc_opts *a,
			       const struct rc_opts *b)
{
	const struct rc_opts defaults = RC_DEFAULTS;
	int err;

	memset(p, 0, sizeof(*p));
	err = rc_create(r, &p->a, a ? a : &defaults);
	if (!err)
		err = rc_create(r, &p->b, b ? b : &defaults);
	if (!err)
		err = pair_connect(r, p);
	if (err)
		pair_destroy(p);
	return err;
}

static inline int pair_create(struct rdma *r, struct pair *p, const struct rc_opts *o)
{
	return pair_create2(r, p, o, o);
}

/* Posting. */

static inline struct ibv_sge sge_of(const struct region *g, size_t at, size_t len)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)g->addr + at,
		.length = len,
		.lkey = g->mr ? g->mr->lkey : 0,
	};
}

static inline int post_send(struct ibv_qp *qp, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}

/* The common case: one SGE or none, signalled. @flags are added. */
static inline int post_op(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode opcode,
			  struct ibv_sge sge, uint64_t remote, uint32_t rkey, int flags)
{
	struct ibv_send_wr wr = {
		.wr_id = id,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED | flags,
		.sg_list = &sge,
		.num_sge = sge.length ? 1 : 0,
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return post_send(qp, wr);
}

/* The first @len bytes of two regions. */
static inline int post_rdma(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode opcode,
			    const struct region *local, size_t len, const struct region *remote)
{
	return post_op(qp, id, opcode, sge_of(local, 0, len), (uintptr_t)remote->addr,
		       remote->mr ? remote->mr->rkey : 0, 0);
}

static inline int post_msg(struct ibv_qp *qp, uint64_t id, const struct region *local, size_t len)
{
	return post_op(qp, id, IBV_WR_SEND, sge_of(local, 0, len), 0, 0, 0);
}

static inline int post_recv_sge(struct ibv_qp *qp, uint64_t id, struct ibv_sge *sges, int n)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sges, .num_sge = n }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static inline int post_recv(struct ibv_qp *qp, uint64_t id, const struct region *g, size_t len)
{
	struct ibv_sge sge = sge_of(g, 0, len);

	return post_recv_sge(qp, id, &sge, len ? 1 : 0);
}

/* Polling. */

/* One completion within @ms; 1, or 0 if none came, or -1 if the CQ cannot be polled. */
static inline int poll_for(struct ibv_cq *cq, struct ibv_wc *wc, unsigned int ms)
{
	uint64_t end = now_ms() + ms;

	memset(wc, 0, sizeof(*wc));
	for (unsigned int turn = 0;; turn++) {
		int n = ibv_poll_cq(cq, 1, wc);

		if (n)
			return n;
		if (now_ms() >= end)
			return 0;
		if (turn < 100)
			sched_yield();
		else
			usleep(100);
	}
}

static inline int poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return poll_for(cq, wc, LIMIT_MS);
}

/* Takes all that is in the CQ now; how many. */
static inline int drain_cq(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		n++;
	return n;
}

/* True if no completion comes for a while. */
static inline bool cq_quiet(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	return !poll_for(cq, &wc, QUIET_MS);
}

/* Waits until the queue pair has entered @state. */
static inline bool state_comes(struct ibv_qp *qp, int state)
{
	uint64_t end = now_ms() + LIMIT_MS;

	while (qp_state(qp) != state) {
		if (now_ms() > end)
			return false;
		usleep(1000);
	}
	return true;
}

/* Next asynchronous event within @ms, acknowledged; its type or -1. */
static inline int next_event(struct ibv_context *ctx, struct ibv_async_event *event,
			     unsigned int ms)
{
	struct pollfd fd = { .fd = ctx->async_fd, .events = POLLIN };

	if (poll(&fd, 1, ms) != 1 || ibv_get_async_event(ctx, event))
		return -1;
	ibv_ack_async_event(event);
	return event->event_type;
}

/* Waits for one event of one queue pair; events of other kinds are dropped. */
static inline bool qp_event_comes(struct ibv_context *ctx, enum ibv_event_type type,
				  struct ibv_qp *qp, unsigned int ms)
{
	uint64_t end = now_ms() + ms;
	struct ibv_async_event event;

	while (now_ms() < end) {
		int seen = next_event(ctx, &event, end - now_ms());

		if (seen == (int)type && event.element.qp == qp)
			return true;
	}
	return false;
}

#ifdef __KSELFTEST_HARNESS_H

/* One completion has to come; it is left in @wc. */
#define ASSERT_POLL(cq, wc) ASSERT_EQ(1, poll_one(cq, wc)) \
	TH_LOG("no completion within the limit")

/* The next completion of @cq has this wr_id and this status. */
#define EXPECT_WC(cq, id, want)                                                                    \
	do {                                                                                       \
		struct ibv_wc wc_;                                                                 \
												   \
		ASSERT_POLL(cq, &wc_);                                                             \
		EXPECT_EQ((uint64_t)(id), wc_.wr_id);                                              \
		EXPECT_EQ((want), wc_.status)                                                      \
			TH_LOG("wr_id %llu: status is \"%s\", not \"%s\"",                         \
			       (unsigned long long)wc_.wr_id, ibv_wc_status_str(wc_.status),       \
			       ibv_wc_status_str(want));                                           \
	} while (0)

/* The queue pair is or soon gets into @want. */
#define EXPECT_STATE(want, qp)                                                                     \
	EXPECT_TRUE(state_comes(qp, want))                                                         \
		TH_LOG("queue pair is in state %d, not %d", qp_state(qp), want)

/* The connection carries a SEND of 64 bytes from @from to @to and back. */
#define EXPECT_WORKS(r, from, to)                                                                  \
	do {                                                                                       \
		struct region w_src_, w_dst_;                                                      \
												   \
		ASSERT_EQ(0, region_create(&w_src_, (r)->pd, 64, IBV_ACCESS_LOCAL_WRITE));         \
		ASSERT_EQ(0, region_create(&w_dst_, (r)->pd, 64, IBV_ACCESS_LOCAL_WRITE));         \
		pattern_fill(w_src_.addr, 64, 99);                                                 \
		ASSERT_EQ(0, post_recv((to)->qp, 9001, &w_dst_, 64));                              \
		ASSERT_EQ(0, post_msg((from)->qp, 9002, &w_src_, 64));                             \
		EXPECT_WC((from)->scq, 9002, IBV_WC_SUCCESS);                                      \
		EXPECT_WC((to)->rcq, 9001, IBV_WC_SUCCESS);                                        \
		EXPECT_TRUE(pattern_ok(w_dst_.addr, 64, 99));                                      \
		region_free(&w_src_);                                                              \
		region_free(&w_dst_);                                                              \
	} while (0)

#endif /* __KSELFTEST_HARNESS_H */

#endif /* SLUICE_SELFTESTS_VERBS_LIB_H */
