/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the samples share: an RC connection from the device's name to a queue pair that can send.
 * Plain libibverbs, nothing of it is special to sluice. Every failure ends the program with a
 * sentence that says what could not be done and why, and with one of the exit codes below.
 */

#ifndef SAMPLES_RC_H
#define SAMPLES_RC_H

#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RC_EXIT_FAILED 1 /* a call failed, or something that must happen did not */
#define RC_EXIT_USAGE 2
#define RC_EXIT_NO_DEVICE 3
#define RC_EXIT_NO_PORT 4 /* its netdev is down or has no address */
#define RC_EXIT_NO_MEMORY 5 /* none left, or the limit for locked memory is too low */

/* What one side has to know of the other, in host byte order. */
struct rc_peer {
	uint32_t qpn;
	uint32_t psn;
	union ibv_gid gid;
	uint64_t addr; /* memory the peer may write, */
	uint32_t rkey; /* and its key */
	uint32_t len;
};

struct rc_conn {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* for sends and receives */
	struct ibv_qp *qp;
	union ibv_gid gid;
	int gid_index;
	enum ibv_mtu mtu;
	uint32_t psn; /* number of the first packet that this side sends */
};

/* Opens the device called @name, or the first one if it is NULL. */
static inline struct ibv_context *rc_open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;

	if (!list)
		err(RC_EXIT_NO_DEVICE, "cannot list RDMA devices");
	for (i = 0; list[i] && name && strcmp(ibv_get_device_name(list[i]), name); i++)
		;
	if (!list[i])
		errx(RC_EXIT_NO_DEVICE, "there is no RDMA device %s (see: rdma link)",
		     name ? name : "at all");
	ctx = ibv_open_device(list[i]);
	if (!ctx)
		err(RC_EXIT_NO_DEVICE, "cannot open %s", ibv_get_device_name(list[i]));
	ibv_free_device_list(list);
	return ctx;
}

/* RoCE addresses are GIDs made from the netdev's IP addresses; take version 2, IPv4 if possible. */
static inline void rc_find_gid(struct rc_conn *c, int entries)
{
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry e;

	c->gid_index = -1;
	for (int i = 0; i < entries; i++) {
		int is_v4;

		if (ibv_query_gid_ex(c->ctx, 1, i, &e, 0) || e.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		is_v4 = !memcmp(e.gid.raw, v4, sizeof(v4));
		if (c->gid_index < 0 || is_v4) {
			c->gid_index = i;
			c->gid = e.gid;
		}
		if (is_v4)
			return;
	}
	if (c->gid_index < 0)
		errx(RC_EXIT_NO_PORT, "the device has no RoCEv2 address; is its netdev up?");
}

/* RESET to INIT: the queue pair may be given receives. */
static inline void rc_to_init(struct rc_conn *c)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	/*
	 * Any number will do, if the other side hears of it. A queue pair that is connected again
	 * takes another one, so that stray packets of its old life are not taken for new ones.
	 */
	c->psn = (c->psn + 0x123457 + c->qp->qp_num) & 0xffffff;
	errno = ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						    IBV_QP_ACCESS_FLAGS);
	if (errno)
		err(1, "cannot bring the queue pair to INIT");
}

/* RESET, from any state: it forgets all that is posted. */
static inline void rc_to_reset(struct rc_conn *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	errno = ibv_modify_qp(c->qp, &attr, IBV_QP_STATE);
	if (errno)
		err(1, "cannot bring the queue pair to RESET");
}

/* A queue pair in state INIT. @depth: WRs each way. */
static inline void rc_create_qp(struct rc_conn *c, int depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	c->qp = ibv_create_qp(c->pd, &init);
	if (!c->qp)
		err(1, "cannot create a queue pair");
	rc_to_init(c);
}

static inline void rc_open(struct rc_conn *c, const char *device, int depth)
{
	struct ibv_port_attr port;

	c->ctx = rc_open_device(device);
	errno = ibv_query_port(c->ctx, 1, &port);
	if (errno)
		err(1, "cannot query port 1");
	if (port.state != IBV_PORT_ACTIVE)
		errx(RC_EXIT_NO_PORT, "port 1 of %s is not active; is its netdev up?",
		     ibv_get_device_name(c->ctx->device));
	c->mtu = port.active_mtu;
	rc_find_gid(c, port.gid_tbl_len);
	c->pd = ibv_alloc_pd(c->ctx);
	if (!c->pd)
		err(1, "cannot allocate a protection domain");
	c->cq = ibv_create_cq(c->ctx, 2 * depth, NULL, NULL, 0);
	if (!c->cq)
		err(1, "cannot create a completion queue");
	c->psn = 0;
	rc_create_qp(c, depth);
}

/* What to tell the other side. @mr may be NULL. */
static inline struct rc_peer rc_self(const struct rc_conn *c, const struct ibv_mr *mr)
{
	return (struct rc_peer){
		.qpn = c->qp->qp_num,
		.psn = c->psn,
		.gid = c->gid,
		.addr = mr ? (uintptr_t)mr->addr : 0,
		.rkey = mr ? mr->rkey : 0,
		.len = mr ? mr->length : 0,
	};
}

/* INIT to RTR (can receive) to RTS (can send), towards @peer. */
static inline void rc_connect(struct rc_conn *c, const struct rc_peer *peer)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = c->mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, /* 0.64 ms */
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = peer->gid, .sgid_index = c->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = c->psn,
		.timeout = 14, /* 67 ms for an answer, */
		.retry_cnt = 6, /* six more tries (rdma_rxe takes 7 for infinitely many), */
		.rnr_retry = 7, /* and all the time it takes to post a receive */
		.max_rd_atomic = 1,
	};

	errno = ibv_modify_qp(c->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						   IBV_QP_MAX_DEST_RD_ATOMIC |
						   IBV_QP_MIN_RNR_TIMER);
	if (errno)
		err(1, "cannot bring the queue pair to RTR");
	errno = ibv_modify_qp(c->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						   IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		err(1, "cannot bring the queue pair to RTS");
}

static inline struct ibv_mr *rc_register(struct rc_conn *c, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(c->pd, addr, len, access);

	if (!mr)
		err(RC_EXIT_NO_MEMORY, "cannot register %zu bytes%s", len,
		    errno == ENOMEM ? " (see: ulimit -l)" : "");
	return mr;
}

static inline uint64_t rc_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* The next completion; it must come within @seconds. */
static inline struct ibv_wc rc_next(struct rc_conn *c, int seconds)
{
	uint64_t end = rc_now_ns() + seconds * 1000000000ULL;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(c->cq, 1, &wc)) == 0)
		if (rc_now_ns() > end)
			errx(1, "no completion within %d s", seconds);
	if (n < 0)
		errx(1, "cannot poll the completion queue");
	return wc;
}

/* Takes down in the reverse order of creation. Regions have to be deregistered before. */
static inline void rc_close(struct rc_conn *c)
{
	ibv_destroy_qp(c->qp);
	ibv_destroy_cq(c->cq);
	ibv_dealloc_pd(c->pd);
	ibv_close_device(c->ctx);
}

#endif /* SAMPLES_RC_H */
