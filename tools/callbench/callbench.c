// SPDX-License-Identifier: GPL-2.0
/*
 * How long the calls that take something away take while traffic runs.
 *
 *     callbench CALL SIZE QPS COUNT        CALL: dereg_mr, reset, error, destroy or grace
 *
 * QPS queue pairs stream RDMA WRITEs of SIZE bytes, each with POSTED bytes of them posted. COUNT times, one
 * of them after the other loses something in the midst of its writes: its region or its queue pair,
 * at the writing end and at the other in turns. Then it gets a new connection and streams on.
 *
 * "grace" waits for an RCU grace period under the same load instead, by membarrier(2): what a call
 * would cost that did so.
 *
 * Prints one line "name=value ..." and one line "us" with all the times. The device is named by
 * SLUICE_DEV. A call that takes longer than STUCK_S ends the run after it, as do calls that fail.
 */

#include "verbs_lib.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>

#define POSTED (16 * MIB)
#define MAX_DEPTH 256
#define MAX_QPS 64
#define STUCK_S 5

struct conn {
	pthread_mutex_t lock; /* who uses the queue pairs */
	struct pair p; /* a writes to b */
	struct region src, dst;
	int outstanding;
	unsigned int done; /* in the life of this connection */
	bool broken; /* a write has failed; nothing more is posted */
};

static struct rdma device;
static struct conn conns[MAX_QPS];
static int qps, depth;
static size_t size;
static volatile bool over;

static void fail(const char *what, int err)
{
	fprintf(stderr, "callbench: %s: %s\n", what, strerror(err));
	exit(1);
}

/* Posts what there is room for, with one doorbell. */
static void fill(struct conn *c)
{
	struct ibv_send_wr wr[MAX_DEPTH];
	struct ibv_sge sge = sge_of(&c->src, 0, size);
	struct ibv_send_wr *bad;
	int n = depth - c->outstanding;

	if (n <= 0 || c->broken)
		return;
	for (int i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)c->dst.addr, c->dst.mr->rkey },
		};
	if (ibv_post_send(c->p.a.qp, wr, &bad))
		c->broken = true;
	else
		c->outstanding = depth;
}

static int reap(struct conn *c)
{
	struct ibv_wc wc[16];
	int n, all = 0;

	while ((n = ibv_poll_cq(c->p.a.scq, 16, wc)) > 0) {
		all += n;
		for (int i = 0; i < n; i++) {
			c->outstanding--;
			if (wc[i].status == IBV_WC_SUCCESS)
				c->done++;
			else
				c->broken = true;
		}
	}
	return all;
}

/* Keeps everything streaming, but for a connection that is being taken apart. */
static void *stream(void *unused)
{
	while (!over) {
		bool idle = true;

		for (int i = 0; i < qps; i++) {
			if (pthread_mutex_trylock(&conns[i].lock))
				continue;
			idle &= reap(&conns[i]) <= 0;
			fill(&conns[i]);
			pthread_mutex_unlock(&conns[i].lock);
		}
		if (idle)
			usleep(50);
	}
	return unused;
}

/* A new connection in place of the old one; and its regions, where they have gone. */
static void renew(struct conn *c)
{
	struct rc_opts o = RC_DEFAULTS;
	int err = 0;

	o.cq_depth = 2 * depth;
	o.send_depth = depth;
	o.recv_depth = 1;
	o.retry_cnt = 6; /* rdma_rxe takes 7 for infinitely many */
	o.timeout = 18; /* 1 s: a busy machine is no dead peer */
	pair_destroy(&c->p);
	if (c->p.a.qp || c->p.b.qp)
		fail("a queue pair cannot be destroyed", EBUSY);
	if (!c->src.mr)
		err = region_reg(&c->src, device.pd, RC_ACCESS);
	if (!err && !c->dst.mr)
		err = region_reg(&c->dst, device.pd, RC_ACCESS);
	if (!err)
		err = pair_create(&device, &c->p, &o);
	if (err)
		fail("cannot connect", err);
	c->outstanding = 0;
	c->done = 0;
	c->broken = false;
	fill(c);
}

/* Waits until the connection has got going, and a little longer. */
static void let_run(struct conn *c)
{
	uint64_t end = now_ns() + 200000000;
	bool runs = false;

	while (!runs && now_ns() < end) {
		pthread_mutex_lock(&c->lock);
		runs = c->done > 0;
		pthread_mutex_unlock(&c->lock);
		if (!runs)
			usleep(100);
	}
	usleep(random() % 500);
}

enum call { DEREG_MR, RESET, ERROR, DESTROY, GRACE };

static const char *const names[] = { "dereg_mr", "reset", "error", "destroy", "grace" };

static int make_call(enum call call, struct conn *c, bool writer)
{
	struct rc *rc = writer ? &c->p.a : &c->p.b;
	int err;

	switch (call) {
	case DEREG_MR:
		return region_dereg(writer ? &c->src : &c->dst);
	case RESET:
		return qp_to(rc->qp, IBV_QPS_RESET);
	case ERROR:
		return qp_to(rc->qp, IBV_QPS_ERR);
	case DESTROY:
		err = ibv_destroy_qp(rc->qp);
		if (!err)
			rc->qp = NULL;
		return err;
	case GRACE:
		return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) ? errno : 0;
	}
	return EINVAL;
}

static void measure(enum call call, int count)
{
	int n = 0, midway = 0, failed = 0, last_error = 0;
	double *us = calloc(count, sizeof(*us)), renew_max = 0;

	if (!us)
		fail("no memory", ENOMEM);
	while (n < count && !failed) {
		struct conn *c = &conns[n % qps];
		uint64_t start, taken;
		int err;

		let_run(c);
		pthread_mutex_lock(&c->lock);
		reap(c);
		fill(c);
		start = now_ns();
		err = make_call(call, c, n / qps % 2);
		taken = now_ns() - start;
		us[n++] = taken / 1e3;
		if (err) {
			failed++;
			last_error = err;
		}
		reap(c);
		/* Had all its writes ended before, it was not in the midst of them. */
		midway += c->outstanding > 0 || c->broken;
		if (call != GRACE) {
			start = now_ns();
			renew(c);
			if ((now_ns() - start) / 1e3 > renew_max)
				renew_max = (now_ns() - start) / 1e3;
		}
		pthread_mutex_unlock(&c->lock);
		if (taken > STUCK_S * 1000000000ULL || renew_max > STUCK_S * 1e6)
			break;
	}
	printf("call=%s size=%zu qps=%d count=%d midway=%d failed=%d errno=%d renew_max_us=%.0f\nus",
	       names[call], size, qps, n, midway, failed, last_error, renew_max);
	for (int i = 0; i < n; i++)
		printf(" %.1f", us[i]);
	printf("\n");
	free(us);
}

int main(int argc, char **argv)
{
	int call = 0, count, err;
	pthread_t thread;

	while (argc > 1 && call <= GRACE && strcmp(argv[1], names[call]))
		call++;
	if (argc == 5) {
		size = strtoul(argv[2], NULL, 0);
		qps = atoi(argv[3]);
		count = atoi(argv[4]);
	}
	if (argc != 5 || call > GRACE || !size || qps < 1 || qps > MAX_QPS || count < 1) {
		fprintf(stderr, "usage: callbench dereg_mr|reset|error|destroy|grace SIZE QPS COUNT\n");
		return 2;
	}
	depth = POSTED / size;
	depth = depth < 2 ? 2 : depth > MAX_DEPTH ? MAX_DEPTH : depth;
	err = rdma_open(&device);
	if (err)
		fail("cannot open the device", err);
	for (int i = 0; i < qps; i++) {
		struct conn *c = &conns[i];

		pthread_mutex_init(&c->lock, NULL);
		err = region_create(&c->src, device.pd, size, RC_ACCESS);
		if (!err)
			err = region_create(&c->dst, device.pd, size, RC_ACCESS);
		if (err)
			fail("cannot register memory", err);
		renew(c);
	}
	err = pthread_create(&thread, NULL, stream, NULL);
	if (err)
		fail("cannot start a thread", err);

	measure(call, count);

	over = true;
	pthread_join(thread, NULL);
	for (int i = 0; i < qps; i++) {
		pair_destroy(&conns[i].p);
		region_free(&conns[i].src);
		region_free(&conns[i].dst);
	}
	rdma_close(&device);
	return 0;
}
