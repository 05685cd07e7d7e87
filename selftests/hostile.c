// SPDX-License-Identifier: GPL-2.0
/*
 * A process that does its worst: it writes over the rings it shares with the kernel while the
 * engine runs, forges work requests, uses handles and keys that are not its own, sends commands of
 * any size and content, and maps what it should not. It gets an errno or a completion with an
 * error, it hurts nobody else, and the device goes on working.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/rdma_user_rxe.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* The rings, as the provider library of rdma-core has mapped them. */

struct mapping {
	uint8_t *addr;
	size_t len;
	off_t offset;
};

static int uverbs_mappings(struct mapping *maps, int max)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (f && n < max && fgets(line, sizeof(line), f)) {
		unsigned long from, to, offset;

		if (!strstr(line, "uverbs") ||
		    sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) != 3)
			continue;
		maps[n++] = (struct mapping){ (uint8_t *)from, to - from, offset };
	}
	if (f)
		fclose(f);
	return n;
}

/* A connected pair of which the first has its rings laid open. */
struct open_pair {
	struct pair p;
	struct mapping sq, rq, scq, rcq;
};

static struct rxe_queue_buf *ring(const struct mapping *m)
{
	return (struct rxe_queue_buf *)m->addr;
}

/* The mappings that have appeared since @before; how many. */
static int new_mappings(const struct mapping *before, int nb, struct mapping *out, int max)
{
	struct mapping now[64];
	int count = uverbs_mappings(now, 64), n = 0;

	for (int i = 0; i < count && n < max; i++) {
		bool old = false;

		for (int j = 0; j < nb; j++)
			old |= before[j].addr == now[i].addr;
		if (!old)
			out[n++] = now[i];
	}
	return n;
}

static struct ibv_cq *create_cq_seen(struct rdma *r, struct mapping *map)
{
	struct mapping before[64];
	int n = uverbs_mappings(before, 64);
	struct ibv_cq *cq = ibv_create_cq(r->ctx, RC_DEFAULTS.cq_depth, NULL, NULL, 0);

	return cq && new_mappings(before, n, map, 1) == 1 ? cq : NULL;
}

static int open_pair_create(struct rdma *r, struct open_pair *o)
{
	struct rc_opts opts = RC_DEFAULTS;
	struct mapping before[64], own[4];
	int err, n;

	memset(o, 0, sizeof(*o));
	err = rc_create(r, &o->p.b, &opts);
	if (err)
		return err;
	o->p.a.own_cqs = true;
	o->p.a.scq = create_cq_seen(r, &o->scq);
	o->p.a.rcq = create_cq_seen(r, &o->rcq);
	if (!o->p.a.scq || !o->p.a.rcq)
		return EPROTO;
	n = uverbs_mappings(before, 64);
	err = rc_create_qp(r, &o->p.a, &opts);
	if (err)
		return err;
	if (new_mappings(before, n, own, 4) != 2)
		return EPROTO;
	/* With as many SGEs, a send request is longer than a receive request. */
	n = ring(&own[1])->log2_elem_size > ring(&own[0])->log2_elem_size;
	o->sq = own[n];
	o->rq = own[!n];
	return pair_connect(r, &o->p);
}

/* The doorbell, without the library in between. */
static int doorbell(struct ibv_context *ctx, uint32_t qp_handle)
{
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send core;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_POST_SEND,
			.in_words = sizeof(cmd) / 4,
			.out_words = sizeof(resp) / 4,
		},
		.core = {
			.response = (uintptr_t)&resp,
			.qp_handle = qp_handle,
			.wqe_size = sizeof(struct ibv_send_wr),
		},
	};

	return write(ctx->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd) ? 0 : errno;
}

/* Puts a work request into the send ring and rings the bell. */
static int post_forged(struct open_pair *o, const struct rxe_send_wqe *wqe,
		       const struct rxe_sge *sges, int n)
{
	struct rxe_queue_buf *q = ring(&o->sq);
	uint32_t at = q->producer_index & q->index_mask;
	struct rxe_send_wqe *slot = (void *)(q->data + ((size_t)at << q->log2_elem_size));

	memcpy(slot, wqe, sizeof(*wqe));
	memcpy((uint8_t *)slot + sizeof(*wqe), sges, n * sizeof(*sges));
	__atomic_store_n(&q->producer_index, (at + 1) & q->index_mask, __ATOMIC_RELEASE);
	return doorbell(o->p.a.qp->context, o->p.a.qp->handle);
}

FIXTURE(hostile) {
	struct rdma r;
	struct open_pair o;
	struct pair canary; /* another connection, which must not notice */
	struct region src, dst;
};

FIXTURE_SETUP(hostile)
{
	srandom(7);
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, pair_create(&self->r, &self->canary, NULL));
	ASSERT_EQ(0, open_pair_create(&self->r, &self->o));
	ASSERT_EQ(0, region_create(&self->src, self->r.pd, 64 * KIB, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->dst, self->r.pd, 64 * KIB, RC_ACCESS));
}

FIXTURE_TEARDOWN(hostile)
{
	pair_destroy(&self->o.p);
	pair_destroy(&self->canary);
	region_free(&self->src);
	region_free(&self->dst);
	rdma_close(&self->r);
}

/* Everybody else is well: an old connection, a new context, and the memory around the regions. */
#define EXPECT_UNHARMED()                                                                          \
	do {                                                                                       \
		struct rdma fresh_;                                                                \
		struct pair pair_;                                                                 \
												   \
		EXPECT_WORKS(&self->r, &self->canary.a, &self->canary.b);                          \
		EXPECT_TRUE(guards_intact(&self->src));                                            \
		EXPECT_TRUE(guards_intact(&self->dst));                                            \
		ASSERT_EQ(0, rdma_open(&fresh_));                                                  \
		ASSERT_EQ(0, pair_create(&fresh_, &pair_, NULL));                                  \
		EXPECT_WORKS(&fresh_, &pair_.a, &pair_.b);                                         \
		pair_destroy(&pair_);                                                              \
		rdma_close(&fresh_);                                                               \
	} while (0)

/* The victim can still be taken down, at once. */
#define EXPECT_DESTROYABLE()                                                                       \
	do {                                                                                       \
		uint64_t start_ = now_ms();                                                        \
												   \
		EXPECT_EQ(0, qp_to(self->o.p.a.qp, IBV_QPS_ERR));                                  \
		EXPECT_EQ(0, qp_to(self->o.p.a.qp, IBV_QPS_RESET));                                \
		EXPECT_EQ(0, rc_destroy(&self->o.p.a));                                            \
		EXPECT_EQ(0, rc_destroy(&self->o.p.b));                                            \
		EXPECT_LT(now_ms() - start_, 10000);                                               \
	} while (0)

/* A work request as the library would write it: a write of 64 bytes. */
static struct rxe_send_wqe good_wqe(struct region *dst)
{
	struct rxe_send_wqe wqe = {
		.wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED },
		.iova = (uintptr_t)dst->addr,
		.dma = { .length = 64, .resid = 64, .num_sge = 1 },
	};

	wqe.wr.wr.rdma.remote_addr = (uintptr_t)dst->addr;
	wqe.wr.wr.rdma.rkey = dst->mr->rkey;
	return wqe;
}

static struct rxe_sge good_sge(struct region *src)
{
	return (struct rxe_sge){ (uintptr_t)src->addr, 64, src->mr->lkey };
}

TEST_F(hostile, forged_request_that_is_good)
{
	struct rxe_send_wqe wqe = good_wqe(&self->dst);
	struct rxe_sge sge = good_sge(&self->src);

	/* The forging itself works, so the tests below test what they say. */
	pattern_fill(self->src.addr, 64, 1);
	ASSERT_EQ(0, post_forged(&self->o, &wqe, &sge, 1));
	EXPECT_WC(self->o.p.a.scq, 1, IBV_WC_SUCCESS);
	EXPECT_TRUE(pattern_ok(self->dst.addr, 64, 1));
}

/* Fields that are the kernel's own business are not believed. */
TEST_F(hostile, progress_fields_are_ignored)
{
	for (int i = 0; i < 6; i++) {
		struct rxe_send_wqe wqe = good_wqe(&self->dst);
		struct rxe_sge sge = good_sge(&self->src);

		switch (i) {
		case 0:
			wqe.dma.cur_sge = 7;
			break;
		case 1:
			wqe.dma.sge_offset = 0xfffffff0;
			break;
		case 2:
			wqe.dma.resid = 0xffffffff;
			break;
		case 3:
			wqe.state = 3;
			wqe.status = 0xffffffff;
			break;
		case 4:
			wqe.first_psn = wqe.last_psn = 0xffffffff;
			wqe.ack_length = wqe.has_rd_atomic = wqe.mask = ~0U;
			break;
		case 5:
			wqe.wr.reserved = wqe.ssn = wqe.dma.reserved = ~0U;
			break;
		}
		pattern_fill(self->src.addr, 64, i);
		memset(self->dst.addr, 0, 128);
		ASSERT_EQ(0, post_forged(&self->o, &wqe, &sge, 1));
		EXPECT_WC(self->o.p.a.scq, 1, IBV_WC_SUCCESS);
		EXPECT_TRUE(pattern_ok(self->dst.addr, 64, i)) TH_LOG("case %d", i);
		EXPECT_TRUE(all_bytes(self->dst.addr + 64, 64, 0));
	}
	EXPECT_UNHARMED();
}

/* One bad field each. */
static void spoil(struct rxe_send_wqe *wqe, struct rxe_sge *sge, int how)
{
	switch (how) {
	case 0:
		wqe->dma.num_sge = 33;
		break;
	case 1:
		wqe->dma.num_sge = 0x7fffffff;
		break;
	case 2:
		wqe->dma.num_sge = 0xffffffff;
		break;
	case 3:
		wqe->wr.opcode = 0xffffffff;
		break;
	case 4:
		wqe->wr.opcode = 200;
		break;
	case 5:
		wqe->wr.opcode = IBV_WR_TSO;
		break;
	case 6:
		wqe->wr.opcode = IBV_WR_BIND_MW;
		break;
	case 7:
		wqe->wr.opcode = IBV_WR_LOCAL_INV;
		break;
	case 8:
		wqe->wr.send_flags |= IBV_SEND_INLINE;
		wqe->dma.length = 0xffffffff;
		break;
	case 9:
		wqe->wr.send_flags |= IBV_SEND_INLINE;
		wqe->dma.length = 100000;
		break;
	case 10:
		sge->length = 0xffffffff;
		wqe->dma.length = 0xffffffff;
		break;
	case 11:
		sge->addr = -8ULL;
		break;
	case 12:
		sge->lkey = 0;
		break;
	case 13:
		wqe->wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wqe->wr.wr.atomic.rkey = 0;
		break;
	case 14: /* an atomic that gives back 64 bytes */
		wqe->wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wqe->wr.wr.atomic.rkey = wqe->wr.wr.rdma.rkey;
		break;
	case 15: /* an atomic of 4 bytes */
		wqe->wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wqe->wr.wr.atomic.rkey = wqe->wr.wr.rdma.rkey;
		wqe->dma.length = 4;
		sge->length = 4;
		break;
	case 16:
		wqe->wr.opcode = IBV_WR_DRIVER1;
		break;
	}
}

#define SPOILS 17

TEST_F_TIMEOUT(hostile, forged_requests_that_are_bad, 60)
{
	for (int how = 0; how < SPOILS; how++) {
		struct rxe_send_wqe wqe = good_wqe(&self->dst);
		struct rxe_sge sges[4] = { good_sge(&self->src) };
		struct ibv_wc wc;
		int err;

		memset(self->dst.addr, 0, self->dst.len);
		spoil(&wqe, sges, how);
		err = post_forged(&self->o, &wqe, sges, 4);
		if (!err) {
			ASSERT_POLL(self->o.p.a.scq, &wc);
			EXPECT_EQ(1, wc.wr_id);
			/* Cases 14 and 15: what the SGE says beyond 8 bytes may be ignored. */
			EXPECT_TRUE(wc.status != IBV_WC_SUCCESS || how == 14)
				TH_LOG("case %d succeeded", how);
			EXPECT_NE(IBV_WC_WR_FLUSH_ERR, wc.status)
				TH_LOG("case %d: the cause was not reported", how);
		}
		EXPECT_TRUE(how == 14 || how == 15 || all_bytes(self->dst.addr, self->dst.len, 0))
			TH_LOG("case %d moved bytes", how);
		EXPECT_EQ(0, qp_to(self->o.p.a.qp, IBV_QPS_RESET));
		EXPECT_EQ(0, qp_to(self->o.p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->o.p));
		drain_cq(self->o.p.a.scq);
		EXPECT_WORKS(&self->r, &self->o.p.a, &self->o.p.b);
	}
	EXPECT_UNHARMED();
}

TEST_F(hostile, any_request_in_error)
{
	ASSERT_EQ(0, qp_to(self->o.p.a.qp, IBV_QPS_ERR));
	/* Nothing of a request is looked at that is only flushed, its opcode least of all. */
	for (int how = 0; how < SPOILS; how++) {
		struct rxe_send_wqe wqe = good_wqe(&self->dst);
		struct rxe_sge sge = good_sge(&self->src);

		spoil(&wqe, &sge, how);
		ASSERT_EQ(0, post_forged(&self->o, &wqe, &sge, 1));
		EXPECT_WC(self->o.p.a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	}
	EXPECT_TRUE(cq_quiet(self->o.p.a.scq));
	EXPECT_EQ(IBV_QPS_ERR, qp_state(self->o.p.a.qp));
	EXPECT_UNHARMED();
}

TEST_F(hostile, length_that_belies_the_sges)
{
	static const uint32_t lengths[] = { 0, 1, 63, 65, 4096, 1 << 20, 1U << 31, 0xffffffff };

	/* The sum of the SGEs counts, or it is an error; never bytes nobody named. */
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct rxe_send_wqe wqe = good_wqe(&self->dst);
		struct rxe_sge sge = good_sge(&self->src);
		struct ibv_wc wc;

		memset(self->src.addr, 1, self->src.len);
		memset(self->dst.addr, 0, self->dst.len);
		wqe.dma.length = wqe.dma.resid = lengths[i];
		if (!post_forged(&self->o, &wqe, &sge, 1))
			ASSERT_POLL(self->o.p.a.scq, &wc);
		EXPECT_TRUE(all_bytes(self->dst.addr + 64, self->dst.len - 64, 0))
			TH_LOG("length %u: more than 64 bytes came", lengths[i]);
		EXPECT_EQ(0, qp_to(self->o.p.a.qp, IBV_QPS_RESET));
		EXPECT_EQ(0, qp_to(self->o.p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->o.p));
		drain_cq(self->o.p.a.scq);
	}
	EXPECT_UNHARMED();
}

TEST_F(hostile, forged_receives)
{
	static const uint32_t sges[] = { 33, 1000, 0x7fffffff, 0xffffffff };

	for (size_t i = 0; i < ARRAY_SIZE(sges); i++) {
		struct rxe_queue_buf *q = ring(&self->o.rq);
		struct rxe_recv_wqe *wqe;
		struct ibv_wc wc;
		uint32_t at = q->producer_index;

		ASSERT_EQ(0, post_recv(self->o.p.a.qp, 1, &self->dst, 64));
		wqe = (void *)(q->data + ((size_t)at << q->log2_elem_size));
		wqe->dma.num_sge = sges[i];
		wqe->dma.length = 0xffffffff;
		wqe->dma.resid = 0xffffffff;
		ASSERT_EQ(0, post_msg(self->o.p.b.qp, 2, &self->src, 64));
		ASSERT_POLL(self->o.p.b.scq, &wc);
		EXPECT_NE(IBV_WC_SUCCESS, wc.status);
		ASSERT_POLL(self->o.p.a.rcq, &wc);
		EXPECT_EQ(1, wc.wr_id);
		EXPECT_NE(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(0, qp_to(self->o.p.a.qp, IBV_QPS_RESET));
		EXPECT_EQ(0, qp_to(self->o.p.b.qp, IBV_QPS_RESET));
		ASSERT_EQ(0, pair_connect(&self->r, &self->o.p));
	}
	EXPECT_WORKS(&self->r, &self->o.p.b, &self->o.p.a);
	EXPECT_UNHARMED();
}

/* Indices and headers of the four rings, set to nonsense one after the other. */

static const uint32_t nonsense[] = { 0, 1, 0x7f, 0x80, 0xff, 0x1000, 0x7fffffff, 0x80000000,
				     0xfffffffe, 0xffffffff };

static uint32_t *header_field(struct rxe_queue_buf *q, int which)
{
	switch (which) {
	case 0:
		return &q->producer_index;
	case 1:
		return &q->consumer_index;
	case 2:
		return &q->index_mask;
	default:
		return &q->log2_elem_size;
	}
}

TEST_F_TIMEOUT(hostile, ring_headers, 90)
{
	for (int which_ring = 0; which_ring < 4; which_ring++) {
		for (int field = 0; field < 4; field++) {
			struct mapping *maps[] = { &self->o.sq, &self->o.rq, &self->o.scq,
						   &self->o.rcq };

			for (int k = 0; k < 100; k++) {
				ASSERT_EQ(0, post_recv(self->o.p.b.qp, k, &self->dst, 64));
				ASSERT_EQ(0, post_recv(self->o.p.a.qp, k, &self->dst, 64));
			}
			for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
				*header_field(ring(maps[which_ring]), field) = nonsense[i];
				/* Not through the library, which would crash of its own. */
				doorbell(self->r.ctx, self->o.p.a.qp->handle);
				post_msg(self->o.p.b.qp, 1, &self->src, 64);
			}
			usleep(2000);
			EXPECT_DESTROYABLE();
			ASSERT_EQ(0, open_pair_create(&self->r, &self->o))
				TH_LOG("ring %d, field %d", which_ring, field);
		}
	}
	EXPECT_UNHARMED();
}

/* A thread that writes at random while the engine works. */

struct scribbler {
	struct mapping map;
	size_t from; /* offset of the first byte it may spoil */
	bool stop;
	unsigned long writes;
};

static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	unsigned int seed = 11;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		size_t words = (s->map.len - s->from) / 4;
		size_t at = (size_t)rand_r(&seed) % words;
		uint32_t value = rand_r(&seed);

		/* Small values are as interesting as wild ones. */
		value = value & 1 ? value >> 1 & 63 : value * 3;

		((volatile uint32_t *)(s->map.addr + s->from))[at] = value;
		s->writes++;
	}
	return NULL;
}

static void scribble_over(struct __test_metadata *_metadata, FIXTURE_DATA(hostile) *self,
			  struct mapping *map, size_t from)
{
	uint64_t end = now_ms() + 1500;
	unsigned long rounds = 0;

	while (now_ms() < end) {
		struct scribbler s = { .map = *map, .from = from };
		pthread_t thread;
		struct ibv_wc wc;

		ASSERT_EQ(0, pthread_create(&thread, NULL, scribble, &s));
		for (int i = 0; i < 50; i++) {
			doorbell(self->r.ctx, self->o.p.a.qp->handle);
			post_msg(self->o.p.b.qp, i, &self->src, 64);
			if (i % 8 == 0)
				post_rdma(self->canary.a.qp, 5, IBV_WR_RDMA_WRITE, &self->src, 64,
					  &self->dst);
			while (ibv_poll_cq(self->canary.a.scq, 1, &wc) > 0)
				EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		}
		__atomic_store_n(&s.stop, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		EXPECT_DESTROYABLE();
		ASSERT_EQ(0, open_pair_create(&self->r, &self->o));
		rounds++;
	}
	while (drain_cq(self->canary.a.scq) || !cq_quiet(self->canary.a.scq))
		;
	TH_LOG("%lu rounds", rounds);
	EXPECT_UNHARMED();
}

TEST_F_TIMEOUT(hostile, scribbling_over_send_requests, 60)
{
	scribble_over(_metadata, self, &self->o.sq, offsetof(struct rxe_queue_buf, data));
}

TEST_F_TIMEOUT(hostile, scribbling_over_receive_requests, 60)
{
	scribble_over(_metadata, self, &self->o.rq, offsetof(struct rxe_queue_buf, data));
}

TEST_F_TIMEOUT(hostile, scribbling_over_the_whole_send_ring, 60)
{
	scribble_over(_metadata, self, &self->o.sq, 0);
}

TEST_F_TIMEOUT(hostile, scribbling_over_the_whole_completion_ring, 60)
{
	scribble_over(_metadata, self, &self->o.scq, 0);
}

/* Row 58: a count that is good when it is checked and bad when it is used. */
struct toggler {
	struct open_pair *o;
	bool stop;
};

static void *toggle_num_sge(void *arg)
{
	struct toggler *t = arg;
	struct rxe_queue_buf *q = ring(&t->o->rq), *sq = ring(&t->o->sq);
	uint32_t mask = q->index_mask, sq_mask = sq->index_mask;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		for (uint32_t i = 0; i <= mask; i++) {
			struct rxe_recv_wqe *wqe =
				(void *)(q->data + ((size_t)i << q->log2_elem_size));

			*(volatile uint32_t *)&wqe->dma.num_sge ^= 0x10000;
		}
		for (uint32_t i = 0; i <= sq_mask; i++) {
			struct rxe_send_wqe *wqe =
				(void *)(sq->data + ((size_t)i << sq->log2_elem_size));

			*(volatile uint32_t *)&wqe->dma.num_sge ^= 0x10000;
		}
	}
	return NULL;
}

TEST_F_TIMEOUT(hostile, count_that_changes_under_the_check, 60)
{
	uint64_t end = now_ms() + 2000;

	while (now_ms() < end) {
		struct toggler t = { .o = &self->o };
		pthread_t thread;

		ASSERT_EQ(0, pthread_create(&thread, NULL, toggle_num_sge, &t));
		for (int i = 0; i < 100; i++) {
			post_recv(self->o.p.a.qp, i, &self->dst, 64);
			post_recv(self->o.p.b.qp, i, &self->dst, 64);
			post_msg(self->o.p.b.qp, i, &self->src, 64);
			post_msg(self->o.p.a.qp, i, &self->src, 64);
		}
		__atomic_store_n(&t.stop, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		EXPECT_DESTROYABLE();
		ASSERT_EQ(0, open_pair_create(&self->r, &self->o));
	}
	EXPECT_UNHARMED();
}

/* Mappings. */

TEST_F(hostile, rings_unmapped_while_in_use)
{
	struct open_pair *o = &self->o;

	for (int i = 0; i < 50; i++) {
		post_msg(o->p.a.qp, i, &self->src, 64);
		post_rdma(o->p.b.qp, i, IBV_WR_RDMA_WRITE, &self->src, 64 * KIB, &self->dst);
	}
	ASSERT_EQ(0, munmap(o->sq.addr, o->sq.len));
	ASSERT_EQ(0, munmap(o->rq.addr, o->rq.len));
	ASSERT_EQ(0, munmap(o->scq.addr, o->scq.len));
	doorbell(self->r.ctx, o->p.a.qp->handle);
	sleep_ms(50);
	EXPECT_EQ(0, qp_to(o->p.a.qp, IBV_QPS_ERR));
	/* The library's own unmapping later fails or hits nothing; that is its affair. */
	EXPECT_EQ(0, ibv_destroy_qp(o->p.a.qp));
	o->p.a.qp = NULL;
	EXPECT_EQ(0, ibv_destroy_cq(o->p.a.scq));
	o->p.a.scq = NULL;
	EXPECT_UNHARMED();
}

TEST_F(hostile, mapping_kept_after_destroy)
{
	struct mapping sq = self->o.sq;
	int fd = self->r.ctx->cmd_fd;
	uint8_t *second = mmap(NULL, sq.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, sq.offset);

	if (second == MAP_FAILED)
		SKIP(return, "a ring cannot be mapped a second time");
	EXPECT_EQ(0, rc_destroy(&self->o.p.a));
	/* The memory stays as long as it is mapped, and is nobody else's. */
	memset(second, 0xff, sq.len);
	EXPECT_UNHARMED();
	EXPECT_EQ(0xff, second[sq.len - 1]);
	EXPECT_EQ(0, munmap(second, sq.len));
	/* Its offset is void. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, sq.len, PROT_READ, MAP_SHARED, fd, sq.offset));
}

TEST_F(hostile, wrong_offsets_and_sizes)
{
	int fd = self->r.ctx->cmd_fd;
	struct mapping *sq = &self->o.sq;

	/* Larger than the ring, or starting inside or behind it. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, sq->len + PAGE, PROT_READ, MAP_SHARED, fd, sq->offset));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, sq->len + MIB, PROT_READ, MAP_SHARED, fd, sq->offset));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, sq->len, PROT_READ, MAP_SHARED, fd,
				   sq->offset + (1L << 40)));
	for (int i = 0; i < 2000; i++) {
		off_t offset = ((off_t)random() << 20 | random()) & ~(PAGE - 1);
		void *map = mmap(NULL, PAGE << random() % 12, PROT_READ | PROT_WRITE, MAP_SHARED,
				 fd, offset & 0x7ffffffffffff000L);

		EXPECT_EQ(MAP_FAILED, map) TH_LOG("offset %#lx was mapped", offset);
	}
	/* Any small offset is an existing ring, or refused; reading it does no harm. */
	for (off_t offset = 0; offset < 1000 * (off_t)PAGE; offset += PAGE) {
		volatile uint8_t *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, offset);

		if (map != MAP_FAILED) {
			(void)map[PAGE - 1];
			munmap((void *)map, PAGE);
		}
	}
	EXPECT_UNHARMED();
}

TEST_F(hostile, rings_of_another_context)
{
	struct mapping *sq = &self->o.sq;
	struct rdma other;
	void *map;

	ASSERT_EQ(0, rdma_open(&other));
	/* Offsets belong to a context: here there is none, or one of its own. */
	map = mmap(NULL, sq->len, PROT_READ, MAP_SHARED, other.ctx->cmd_fd, sq->offset);
	EXPECT_EQ(MAP_FAILED, map);
	rdma_close(&other);
	EXPECT_UNHARMED();
}

/* Handles and commands. */

TEST_F(hostile, foreign_handles)
{
	struct rdma other;

	ASSERT_EQ(0, rdma_open(&other));
	for (uint32_t handle = 0; handle < 64; handle++) {
		EXPECT_NE(0, doorbell(other.ctx, handle))
			TH_LOG("handle %u rang", handle);
	}
	EXPECT_NE(0, doorbell(other.ctx, 0xffffffff));
	/* Of the right context, but not of a queue pair. */
	EXPECT_NE(0, doorbell(self->r.ctx, self->src.mr->handle));
	EXPECT_NE(0, doorbell(self->r.ctx, self->o.p.a.scq->handle));
	EXPECT_NE(0, doorbell(self->r.ctx, self->r.pd->handle));
	rdma_close(&other);
	EXPECT_UNHARMED();
}

TEST_F(hostile, real_work_requests_in_the_doorbell)
{
	struct ib_uverbs_post_send_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_post_send core;
		struct ib_uverbs_send_wr wr[2];
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_POST_SEND,
			.in_words = sizeof(cmd) / 4,
			.out_words = sizeof(resp) / 4,
		},
		.core = {
			.response = (uintptr_t)&resp,
			.qp_handle = self->o.p.a.qp->handle,
			.wr_count = 2,
			.wqe_size = sizeof(struct ib_uverbs_send_wr),
		},
	};

	/* The kernel's way to post; the rings are the only way here. */
	EXPECT_EQ(-1, write(self->r.ctx->cmd_fd, &cmd, sizeof(cmd)));
	EXPECT_TRUE(cq_quiet(self->o.p.a.scq));
	EXPECT_UNHARMED();
}

/* In a child, so that whatever it breaks in its own process dies with it. */
#define IN_CHILD(body)                                                                             \
	do {                                                                                       \
		int status_;                                                                       \
		pid_t pid_ = fork();                                                               \
												   \
		ASSERT_GE(pid_, 0);                                                                \
		if (!pid_) {                                                                       \
			alarm(20 * slowness());                                                    \
			body;                                                                      \
			_exit(0);                                                                  \
		}                                                                                  \
		ASSERT_EQ(pid_, waitpid(pid_, &status_, 0));                                       \
		EXPECT_EQ(0, status_) TH_LOG("the child ended with %#x", status_);                 \
	} while (0)

static void random_bytes(void *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = random() % 3 ? 0 : random();
}

/* Legacy commands: every number, every length, random contents, good and bad answers. */
static void fuzz_write(const struct rdma *r, int rounds)
{
	static uint8_t answer[4096];
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		uint64_t response; /* most commands begin with where the answer goes */
		uint32_t rest[128];
	} cmd;

	for (int i = 0; i < rounds; i++) {
		size_t len = random() % sizeof(cmd);

		random_bytes(&cmd, sizeof(cmd));
		cmd.hdr.command = i % 64;
		cmd.hdr.in_words = len / 4;
		if (random() % 4 == 0)
			cmd.hdr.in_words = random();
		cmd.hdr.out_words = random() % 64;
		cmd.response = (uintptr_t)answer;
		if (random() % 4 == 0)
			cmd.response = (uint64_t)random() << 20;
		if (write(r->ctx->cmd_fd, &cmd, random() % 4 ? len & ~3UL : len) < 0)
			continue;
	}
}

TEST_F_TIMEOUT(hostile, write_commands_of_any_size, 60)
{
	for (int seed = 0; seed < 10; seed++)
		IN_CHILD({
			struct rdma r;

			srandom(seed);
			if (rdma_open(&r))
				_exit(1);
			fuzz_write(&r, 3000);
		});
	EXPECT_UNHARMED();
}

/* The ioctl: random objects, methods and attributes. */
static void fuzz_ioctl(const struct rdma *r, int rounds)
{
	static uint8_t data[512];
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[16];
	} cmd;

	for (int i = 0; i < rounds; i++) {
		int n = random() % 16;

		memset(&cmd, 0, sizeof(cmd));
		random_bytes(data, sizeof(data));
		cmd.hdr.length = random() % 8 ? sizeof(cmd.hdr) + n * sizeof(cmd.attrs[0]) :
						random() & 0xffff;
		cmd.hdr.object_id = random() % 20;
		cmd.hdr.method_id = random() % 12;
		/* The core's own affair: a context asked for twice leaks a reference to the task. */
		if (cmd.hdr.object_id == UVERBS_OBJECT_DEVICE &&
		    cmd.hdr.method_id == UVERBS_METHOD_GET_CONTEXT)
			continue;
		cmd.hdr.num_attrs = random() % 8 ? n : random() & 0xffff;
		cmd.hdr.driver_id = random() % 8 ? RDMA_DRIVER_RXE : random() % 32;
		for (int j = 0; j < n; j++) {
			cmd.attrs[j].attr_id = random() % 8 ? j : (random() & 0x1003);
			cmd.attrs[j].len = random() % 4 ? random() % 64 : random() & 0xffff;
			cmd.attrs[j].flags = random() & 1;
			cmd.attrs[j].data = random() % 4 ? (uintptr_t)data : (uint64_t)random();
		}
		ioctl(r->ctx->cmd_fd, RDMA_VERBS_IOCTL, &cmd);
	}
}

TEST_F_TIMEOUT(hostile, ioctls_of_any_size, 60)
{
	for (int seed = 0; seed < 10; seed++)
		IN_CHILD({
			struct rdma r;

			srandom(seed);
			if (rdma_open(&r))
				_exit(1);
			fuzz_ioctl(&r, 5000);
		});
	EXPECT_UNHARMED();
}

/*
 * Row 7: creating fails at the last step, when the answer cannot be delivered or is too short for
 * what the driver has to say (where the ring is).
 */
static int create_cq_raw(struct ibv_context *ctx, void *answer, size_t answer_len)
{
	uint32_t cqe = 0;
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[7];
	} cmd = {
		.hdr = {
			.length = sizeof(cmd),
			.object_id = UVERBS_OBJECT_CQ,
			.method_id = UVERBS_METHOD_CQ_CREATE,
			.num_attrs = 7,
			.driver_id = RDMA_DRIVER_RXE,
		},
		.attrs = {
			{ .attr_id = UVERBS_ATTR_CREATE_CQ_HANDLE, .flags = 1 },
			{ .attr_id = UVERBS_ATTR_CREATE_CQ_CQE, .flags = 1, .len = 4, .data = 100 },
			{ .attr_id = UVERBS_ATTR_CREATE_CQ_USER_HANDLE, .flags = 1, .len = 8 },
			{ .attr_id = UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, .flags = 1, .len = 4 },
			{ .attr_id = UVERBS_ATTR_CREATE_CQ_FLAGS, .len = 4 },
			{ .attr_id = UVERBS_ATTR_CREATE_CQ_RESP_CQE, .flags = 1, .len = 4,
			  .data = (uintptr_t)&cqe },
			{ .attr_id = UVERBS_ATTR_UHW_OUT, .flags = 1, .len = answer_len,
			  .data = (uintptr_t)answer },
		},
	};

	return ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &cmd) ? errno : 0;
}

TEST_F(hostile, answers_that_cannot_be_delivered)
{
	struct mminfo answer;

	for (int i = 0; i < 200; i++) {
		EXPECT_NE(0, create_cq_raw(self->r.ctx, (void *)8, sizeof(answer)));
		EXPECT_NE(0, create_cq_raw(self->r.ctx, &answer, 0));
		EXPECT_NE(0, create_cq_raw(self->r.ctx, &answer, 4));
		EXPECT_NE(0, create_cq_raw(self->r.ctx, &answer, sizeof(answer) - 8));
	}
	/* A whole one, to see that the command is right otherwise. */
	EXPECT_EQ(0, create_cq_raw(self->r.ctx, &answer, sizeof(answer)));
	EXPECT_UNHARMED();
}

TEST_F(hostile, create_qp_limits_that_overflow)
{
	static const uint32_t huge[] = { 0x7fffffff, 0x80000000, 0xffffffff, 1 << 24 };

	for (size_t i = 0; i < ARRAY_SIZE(huge); i++) {
		for (int field = 0; field < 5; field++) {
			struct ibv_qp_init_attr init = {
				.qp_type = IBV_QPT_RC,
				.send_cq = self->canary.a.scq,
				.recv_cq = self->canary.a.rcq,
				.cap = { 1, 1, 1, 1, 0 },
			};
			uint32_t *fields[] = { &init.cap.max_send_wr, &init.cap.max_recv_wr,
					       &init.cap.max_send_sge, &init.cap.max_recv_sge,
					       &init.cap.max_inline_data };

			*fields[field] = huge[i];
			EXPECT_EQ(NULL, ibv_create_qp(self->r.pd, &init))
				TH_LOG("field %d = %u was granted", field, huge[i]);
		}
	}
	EXPECT_UNHARMED();
}

/* Streams without an end. */

/* Puts one more request of no bytes in the ring whenever there is none, and rings no bell. */
struct trickle {
	struct open_pair *o;
	uint32_t fed;
	bool stop;
};

static void *feed(void *arg)
{
	struct trickle *t = arg;
	struct rxe_queue_buf *q = ring(&t->o->sq);
	/* Should something go wrong, nobody waits for ever. */
	uint64_t end = now_ms() + LIMIT_MS, moved = now_ns(), now;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE) && now_ms() < end) {
		uint32_t at = q->producer_index & q->index_mask;

		now = now_ns();
		if (__atomic_load_n(&q->consumer_index, __ATOMIC_ACQUIRE) == at) {
			__atomic_store_n(&q->producer_index, (at + 1) & q->index_mask,
					 __ATOMIC_RELEASE);
			t->fed++;
			moved = now;
		} else if (now - moved > 10000) {
			doorbell(t->o->p.a.qp->context, t->o->p.a.qp->handle);
			moved = now;
		}
	}
	return NULL;
}

/*
 * The workqueue attends to a stream, and has its queue pair to itself meanwhile. That ends after a
 * while even if the stream does not, nor moves a byte.
 */
TEST_F_TIMEOUT(hostile, stream_of_nothing_that_does_not_end, 60)
{
	struct trickle t = { .o = &self->o };
	struct rxe_queue_buf *q = ring(&self->o.sq);
	struct rxe_send_wqe wqe = good_wqe(&self->dst);
	uint64_t start, took, longest = 0;
	pthread_t thread;

	wqe.wr.send_flags = 0;
	wqe.dma.length = wqe.dma.resid = wqe.dma.num_sge = 0;
	for (uint32_t i = 0; i <= q->index_mask; i++)
		ASSERT_EQ(0, post_forged(&self->o, &wqe, NULL, 0));
	ASSERT_EQ(0, pthread_create(&thread, NULL, feed, &t));
	for (int i = 0; i < 60; i++) {
		sleep_ms(50);
		start = now_ms();
		EXPECT_EQ(IBV_QPS_RTS, qp_state(self->o.p.a.qp));
		took = now_ms() - start;
		longest = took > longest ? took : longest;
	}
	__atomic_store_n(&t.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	TH_LOG("%u requests, longest query %lu ms", t.fed, (unsigned long)longest);
	EXPECT_LT(longest, LIMIT_MS / 4);
	EXPECT_DESTROYABLE();
	EXPECT_UNHARMED();
}

TEST_HARNESS_MAIN
