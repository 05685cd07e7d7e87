// SPDX-License-Identifier: GPL-2.0
/*
 * A scene about teardown: a stream of 1 MiB RDMA WRITEs runs into a memory region, and the region
 * is deregistered in the midst of it. What does the writer see, how long does ibv_dereg_mr take,
 * and does a byte of the region change after it has returned?
 *
 *     teardown_scene [-d DEVICE] [-n ROUNDS]
 *
 * Both ends of the connection are in this process. Works on any RoCE device. The exit code is 0
 * if no byte changed, and 1 if one did or the scene could not be played.
 */

#include "rc.h"

#include <unistd.h>

#define SIZE (1UL << 20)
#define WRITES 64
#define MARKS 256 /* one in each page, to see late writes */
#define WATCH_MS 20

struct scene {
	struct rc_conn writer, target;
	uint8_t *src, *dst;
	struct ibv_mr *src_mr, *dst_mr;
};

/* What one round showed. */
struct outcome {
	int completed, flushed; /* before and behind the cause */
	enum ibv_wc_status cause; /* success if the stream had ended before */
	double micros; /* ibv_dereg_mr */
	int changed; /* marks that were overwritten afterwards */
};

static void open_scene(struct scene *s, const char *device)
{
	struct rc_peer w, t;

	/* One context, PD and CQ of each: the two ends know nothing of each other. */
	rc_open(&s->writer, device, 2 * WRITES);
	rc_open(&s->target, device, 2 * WRITES);
	s->src_mr = rc_register(&s->writer, s->src, SIZE, 0);
	s->dst_mr = rc_register(&s->target, s->dst, SIZE,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	w = rc_self(&s->writer, NULL);
	t = rc_self(&s->target, s->dst_mr);
	rc_connect(&s->writer, &t);
	rc_connect(&s->target, &w);
}

static void close_scene(struct scene *s)
{
	ibv_dereg_mr(s->src_mr);
	rc_close(&s->writer);
	rc_close(&s->target);
}

static void start_stream(struct scene *s)
{
	struct ibv_sge sge = { (uintptr_t)s->src, SIZE, s->src_mr->lkey };
	struct ibv_send_wr wr[WRITES], *bad;

	for (int i = 0; i < WRITES; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < WRITES ? &wr[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE,
			.sg_list = &sge,
			.num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)s->dst, s->dst_mr->rkey },
		};
	errno = ibv_post_send(s->writer.qp, wr, &bad);
	if (errno)
		err(1, "cannot post the writes");
}

/* Own values in the region, at the end of every page: who writes the page now destroys them. */
static void set_marks(uint8_t *dst)
{
	for (int i = 0; i < MARKS; i++)
		((volatile uint8_t *)dst)[(i + 1) * (SIZE / MARKS) - 1] = 0x5a;
}

static int marks_gone(const uint8_t *dst)
{
	int gone = 0;

	for (int i = 0; i < MARKS; i++)
		gone += ((const volatile uint8_t *)dst)[(i + 1) * (SIZE / MARKS) - 1] != 0x5a;
	return gone;
}

static void note_completion(struct outcome *o, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		o->completed++;
	else if (o->cause == IBV_WC_SUCCESS)
		o->cause = wc->status;
	else
		o->flushed++;
}

static struct outcome play(struct scene *s, int round)
{
	struct outcome o = { 0 };
	struct ibv_wc wc;
	uint64_t start;

	memset(s->src, 0xff, SIZE);
	memset(s->dst, 0, SIZE);
	start_stream(s);
	/* Some writes go through, and then some time into the next. */
	for (int i = 0; i < 4 + round % 8; i++) {
		wc = rc_next(&s->writer, 60);
		note_completion(&o, &wc);
	}
	start = rc_now_ns();
	while (rc_now_ns() < start + round * 37 % 200 * 1000)
		;

	start = rc_now_ns();
	errno = ibv_dereg_mr(s->dst_mr);
	set_marks(s->dst);
	o.micros = (rc_now_ns() - start) / 1e3;
	if (errno)
		err(1, "ibv_dereg_mr failed");

	while (o.completed + !!o.cause + o.flushed < WRITES) {
		wc = rc_next(&s->writer, 60);
		note_completion(&o, &wc);
	}
	usleep(WATCH_MS * 1000);
	o.changed = marks_gone(s->dst);
	return o;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	int rounds = 20, midway = 0, changed = 0, pages = 0, option;
	const char *device = NULL;
	struct outcome last = { 0 };
	struct scene s = { 0 };
	double *micros;

	while ((option = getopt(argc, argv, "d:n:")) != -1) {
		if (option == 'd')
			device = optarg;
		else if (option == 'n' && atoi(optarg) > 0)
			rounds = atoi(optarg);
		else
			errx(2, "usage: teardown_scene [-d DEVICE] [-n ROUNDS]");
	}
	micros = calloc(rounds, sizeof(*micros));
	if (!micros || posix_memalign((void **)&s.src, 4096, SIZE) ||
	    posix_memalign((void **)&s.dst, 4096, SIZE))
		err(1, "no memory");

	for (int i = 0; i < rounds; i++) {
		struct outcome o;

		open_scene(&s, device);
		if (!i)
			printf("%s: a stream of %d RDMA WRITEs of 1 MiB runs into a memory region,\n"
			       "and the region is deregistered in the midst of it; %d rounds.\n",
			       ibv_get_device_name(s.writer.ctx->device), WRITES, rounds);
		o = play(&s, i);
		close_scene(&s);
		micros[i] = o.micros;
		midway += o.cause != IBV_WC_SUCCESS;
		changed += o.changed > 0;
		pages = o.changed > pages ? o.changed : pages;
		if (o.cause)
			last = o;
	}
	qsort(micros, rounds, sizeof(*micros), by_size);
	if (!midway)
		errx(1, "no stream was still running when its region went");
	printf("  the writer saw        %d writes completed, then \"%s\", %d flushed\n",
	       last.completed, ibv_wc_status_str(last.cause), last.flushed);
	printf("  ibv_dereg_mr took     %.0f us (median), %.0f us (longest)\n", micros[rounds / 2],
	       micros[rounds - 1]);
	if (changed)
		printf("  after it returned     BYTES CHANGED in %d rounds, in up to %d pages\n",
		       changed, pages);
	else
		printf("  after it returned     no byte changed (marks in all %d pages, watched until\n"
		       "                        the stream had ended and %d ms longer)\n",
		       MARKS, WATCH_MS);
	free(micros);
	free(s.src);
	free(s.dst);
	return changed ? 1 : 0;
}
