// SPDX-License-Identifier: GPL-2.0
/*
 * The client of a pair of samples: it writes 1 MiB into the server's memory, tells it so with a
 * message, and compares the sum the server answers with its own.
 *
 *     rc_pingpong_client HOST [DEVICE [PORT]]
 */

#include "rc.h"
#include "tcp.h"

#define SIZE (1 << 20)
#define ROUNDS 10

/* What travels in the messages. */
struct note {
	uint64_t round, sum;
};

/* New contents for each round; their sum. */
static uint64_t fill(uint8_t *bytes, size_t len, uint64_t round)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += bytes[i] = i * 7 + round;
	return sum;
}

static void post_receive(struct rc_conn *c, struct ibv_mr *mr, struct note *note)
{
	struct ibv_sge sge = { (uintptr_t)note, sizeof(*note), mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(c->qp, &wr, &bad);
	if (errno)
		err(1, "cannot post a receive");
}

/*
 * A write into the server's memory and a message behind it. The write is unsignalled: requests
 * of one connection complete in order, so the completion of the message speaks for both.
 */
static void write_and_tell(struct rc_conn *c, struct ibv_mr *mr, struct ibv_mr *note_mr,
			   struct note *note, const struct rc_peer *server)
{
	struct ibv_sge data = { (uintptr_t)mr->addr, SIZE, mr->lkey };
	struct ibv_sge message = { (uintptr_t)note, sizeof(*note), note_mr->lkey };
	struct ibv_send_wr send = { .wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &message,
				    .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr write = { .wr_id = 1, .next = &send, .opcode = IBV_WR_RDMA_WRITE,
				     .sg_list = &data, .num_sge = 1,
				     .wr.rdma = { server->addr, server->rkey } };
	struct ibv_send_wr *bad;

	errno = ibv_post_send(c->qp, &write, &bad);
	if (errno)
		err(1, "cannot post work request %lu", (unsigned long)bad->wr_id);
}

/* The message was sent and the answer is here, in whatever order the two complete. */
static void await_answer(struct rc_conn *c)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = rc_next(c, 60);

		/* Failed requests complete even if unsignalled; wr_id 1 would be the write. */
		if (wc.status)
			errx(1, "work request %lu failed: %s", (unsigned long)wc.wr_id,
			     ibv_wc_status_str(wc.status));
	}
}

int main(int argc, char **argv)
{
	struct ibv_mr *mr, *notes_mr;
	struct rc_peer own, server;
	struct note notes[2]; /* one to receive in, one to send from */
	struct rc_conn c;
	uint8_t *memory;
	uint64_t start;
	int fd;

	if (argc < 2)
		errx(2, "usage: rc_pingpong_client HOST [DEVICE [PORT]]");
	rc_open(&c, argc > 2 ? argv[2] : NULL, 16);
	memory = calloc(1, SIZE);
	if (!memory)
		err(1, "no memory");
	/* Only read by the device, so no right to write is given away. */
	mr = rc_register(&c, memory, SIZE, 0);
	notes_mr = rc_register(&c, notes, sizeof(notes), IBV_ACCESS_LOCAL_WRITE);

	fd = tcp_meet(argv[1], argc > 3 ? argv[3] : "18515");
	own = rc_self(&c, NULL);
	tcp_exchange(fd, &own, &server, sizeof(own));
	if (server.len < SIZE)
		errx(1, "the server offers only %u bytes", server.len);
	rc_connect(&c, &server);
	tcp_exchange(fd, &own, &server, sizeof(own));

	start = rc_now_ns();
	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint64_t sum = fill(memory, SIZE, round);

		notes[1] = (struct note){ .round = round };
		post_receive(&c, notes_mr, &notes[0]);
		write_and_tell(&c, mr, notes_mr, &notes[1], &server);
		await_answer(&c);
		if (notes[0].round != round || notes[0].sum != sum)
			errx(1, "round %lu: the server has other bytes", (unsigned long)round);
	}
	printf("client: %d rounds of %d bytes, all sums right, %.1f ms\n", ROUNDS, SIZE,
	       (rc_now_ns() - start) / 1e6);
	tcp_exchange(fd, &own, &server, sizeof(own));
	close(fd);
	ibv_dereg_mr(mr);
	ibv_dereg_mr(notes_mr);
	rc_close(&c);
	free(memory);
	return 0;
}
