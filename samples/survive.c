// SPDX-License-Identifier: GPL-2.0
/*
 * How a program survives what others do to its connection. A writer fills the memory of its peer
 * with a stream of RDMA WRITEs. Four times, something is taken away in the midst of it:
 *
 *   1. the peer deregisters the region that is written to,
 *   2. the peer takes its queue pair to RESET,
 *   3. the peer takes its queue pair to ERR,
 *   4. the writer itself deregisters the region that it reads from.
 *
 * Each time, the writer finds out what has happened (classify() is the part to copy), collects what
 * is left, connects again, and resumes with the first write that it does not know to be complete.
 * At the end the peer compares all the bytes.
 *
 *     survive [-d DEVICE]
 *
 * The peer is a thread with a connection of its own; the two talk over a socket, as two machines
 * would. Works on any RoCE device.
 */

#include "rc.h"
#include "tcp.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

#define CHUNK (32UL << 10) /* bytes of one write */
#define BATCH 16 /* writes that are posted at a time */
#define CHUNKS 1024
#define SIZE (CHUNKS * CHUNK)
#define PEER_INCIDENTS 3
#define INCIDENTS (PEER_INCIDENTS + 1)

/* What the two tell each other whenever they (re)connect. */
struct hello {
	struct rc_peer peer;
	uint32_t finished; /* the writer needs no connection any more */
};

struct side {
	struct rc_conn c;
	struct rc_peer other; /* what the other side said last */
	uint8_t *memory;
	struct ibv_mr *mr; /* NULL while it is gone, */
	uint32_t lkey; /* and what its key is or was */
	int access;
	int socket;
};

/* What every word of the stream has to be; never 0. */
static uint64_t word_at(size_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15ULL | 1;
}

/* Connecting, the first time and again. */

/*
 * Both sides come here after anything has gone wrong. RESET is the one way out of ERR, and takes
 * what is left of the old connection along: so all completions that are wanted have to be
 * collected before. The peer has to do the same even if its queue pair is well, as the two count
 * packets together. Returns false if the other side has finished.
 */
static bool connect_again(struct side *s, bool finished)
{
	struct hello own = { .finished = finished }, other;

	rc_to_reset(&s->c);
	rc_to_init(&s->c);
	/* A region that has gone is registered again, and has other keys then: tell them. */
	if (!s->mr)
		s->mr = rc_register(&s->c, s->memory, SIZE, s->access);
	s->lkey = s->mr->lkey;
	own.peer = rc_self(&s->c, s->mr);
	tcp_exchange(s->socket, &own, &other, sizeof(own));
	if (finished || other.finished)
		return false;
	rc_connect(&s->c, &other.peer);
	/* Once this has been exchanged, both can receive, and the writer may begin. */
	tcp_exchange(s->socket, &own, &other, sizeof(own));
	s->other = other.peer;
	return true;
}

static void take_region(struct side *s)
{
	errno = ibv_dereg_mr(s->mr);
	if (errno)
		err(1, "cannot deregister the region");
	s->mr = NULL;
}

/* The peer, which does the misdeeds. */

static bool has_landed(const struct side *s, size_t chunk)
{
	const volatile uint64_t *word = (const uint64_t *)(s->memory + chunk * CHUNK);

	return word[0] != 0;
}

static void misbehave(struct side *s, int incident)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (incident == 0)
		take_region(s);
	else if (incident == 1)
		rc_to_reset(&s->c);
	else if (ibv_modify_qp(s->c.qp, &attr, IBV_QP_STATE))
		errx(1, "cannot bring the queue pair to ERR");
}

static void *peer(void *arg)
{
	struct side *s = arg;
	struct pollfd news = { .fd = s->socket, .events = POLLIN };
	int incident = 0;

	do {
		const size_t mark = (incident + 1) * CHUNKS / (INCIDENTS + 1);

		/* Until the writer says something, watch its bytes arrive. */
		while (!poll(&news, 1, 0)) {
			if (incident == PEER_INCIDENTS || !has_landed(s, mark))
				continue;
			misbehave(s, incident++);
			/* One at a time: the writer has to notice. */
			poll(&news, 1, -1);
		}
	} while (connect_again(s, false));

	for (size_t i = 0; i < SIZE / 8; i++)
		if (((uint64_t *)s->memory)[i] != word_at(i))
			errx(1, "byte %zu of the peer's memory is wrong", i * 8);
	return NULL;
}

/* The writer. */

/* One batch, or what is left, from write @first on; returns how many were posted. */
static int post_batch(struct side *s, size_t first)
{
	struct ibv_send_wr wr[BATCH], *bad;
	struct ibv_sge sge[BATCH];
	int n = CHUNKS - first < BATCH ? CHUNKS - first : BATCH;

	for (int i = 0; i < n; i++) {
		size_t at = (first + i) * CHUNK;

		sge[i] = (struct ibv_sge){ (uintptr_t)s->memory + at, CHUNK, s->lkey };
		wr[i] = (struct ibv_send_wr){
			.wr_id = first + i,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE,
			.sg_list = &sge[i],
			.num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { s->other.addr + at, s->other.rkey },
		};
	}
	errno = ibv_post_send(s->c.qp, wr, &bad);
	if (errno)
		err(1, "cannot post write %lu", (unsigned long)bad->wr_id);
	return n;
}

/*
 * What the completion of a failed WR says. Only the first one that is no flush names the cause. A
 * WR that has failed may have landed in part. What that means is the program's business: a WRITE of
 * the same bytes can simply be done again, as here; an atomic that got no answer cannot.
 */
static const char *classify(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
		/* Own key, range or request. The peer has seen no fault and its queue pair is well. */
		return "own fault; a part may have landed";
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
		/* It answered, and refused: its keys are not what we were told, or not any more. */
		return "the peer's fault; a part may have landed";
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		/* It did not answer. The answer may be what got lost, so all may have landed. */
		return "the peer is silent; all or a part may have landed";
	case IBV_WC_WR_FLUSH_ERR:
		/*
		 * Its queue pair was in ERR when its turn came, or got there meanwhile. If there is
		 * no other failure before, somebody took it there, or the device keeps the cause to
		 * itself, as rdma_rxe does with own faults.
		 */
		return "flushed; do not count on its not having landed";
	default:
		return "something else";
	}
}

/*
 * Takes all completions of a batch, whatever they say: a queue pair in ERR completes every WR that
 * was posted, in order. Returns how many were good; the first bad one is the one to resume with.
 */
static int collect(struct side *s, int posted, struct ibv_wc *cause)
{
	int good = 0, flushed = 0;

	cause->status = IBV_WC_SUCCESS;
	for (int i = 0; i < posted; i++) {
		struct ibv_wc wc = rc_next(&s->c, 60);

		if (wc.status == IBV_WC_SUCCESS)
			good++;
		else if (cause->status == IBV_WC_SUCCESS)
			*cause = wc; /* of which only status, wr_id and qp_num are valid */
		else
			flushed++;
	}
	if (cause->status)
		printf("write %4lu: %s\n"
		       "            (%s); %d flushed\n",
		       (unsigned long)cause->wr_id, ibv_wc_status_str(cause->status),
		       classify(cause->status), flushed);
	return good;
}

/* Writes everything, whatever happens; returns how often something did. */
static int stream(struct side *s)
{
	bool own_fault_due = true;
	struct ibv_wc cause;
	size_t done = 0;
	int incidents = 0;

	while (done < CHUNKS || incidents < INCIDENTS) {
		int posted;

		/* A peer that was too slow for its misdeeds gets another round. */
		done %= CHUNKS;
		posted = post_batch(s, done);
		if (own_fault_due && incidents == PEER_INCIDENTS &&
		    done >= INCIDENTS * CHUNKS / (INCIDENTS + 1)) {
			own_fault_due = false;
			take_region(s);
		}
		done += collect(s, posted, &cause);
		if (cause.status) {
			incidents++;
			connect_again(s, false);
			printf("            connected again, resuming with write %zu\n", done);
		}
		/* A stream that takes its time, so that the peer can come in between. */
		usleep(1000);
	}
	return incidents;
}

static void open_side(struct side *s, const char *device, int access, int socket)
{
	rc_open(&s->c, device, BATCH);
	s->access = access;
	s->socket = socket;
	if (posix_memalign((void **)&s->memory, 4096, SIZE))
		err(RC_EXIT_NO_MEMORY, "no memory");
	memset(s->memory, 0, SIZE);
}

static void close_side(struct side *s)
{
	if (s->mr)
		ibv_dereg_mr(s->mr);
	rc_close(&s->c);
	free(s->memory);
}

int main(int argc, char **argv)
{
	struct side writer = { 0 }, target = { 0 };
	const char *device = NULL;
	pthread_t thread;
	int fds[2], incidents, option;

	while ((option = getopt(argc, argv, "d:")) != -1) {
		if (option != 'd')
			errx(RC_EXIT_USAGE, "usage: survive [-d DEVICE]");
		device = optarg;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		err(1, "cannot make a socket");
	open_side(&writer, device, 0, fds[0]);
	open_side(&target, device, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, fds[1]);
	for (size_t i = 0; i < SIZE / 8; i++)
		((uint64_t *)writer.memory)[i] = word_at(i);

	errno = pthread_create(&thread, NULL, peer, &target);
	if (errno)
		err(1, "cannot start the peer");
	connect_again(&writer, false);
	incidents = stream(&writer);
	connect_again(&writer, true);
	pthread_join(thread, NULL);

	printf("%s: all %d writes are done and all bytes are right, after %d interruptions\n",
	       ibv_get_device_name(writer.c.ctx->device), CHUNKS, incidents);
	close_side(&writer);
	close_side(&target);
	return 0;
}
