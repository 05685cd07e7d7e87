// SPDX-License-Identifier: GPL-2.0
/*
 * The server of a pair of samples: it offers 1 MiB of memory, waits until the client has written
 * into it and has said so with a message, and answers with the sum of the bytes.
 *
 *     rc_pingpong_server [DEVICE [PORT]]        and then        rc_pingpong_client HOST ...
 */

#include "rc.h"
#include "tcp.h"

#define SIZE (1 << 20)
#define ROUNDS 10

/* What travels in the messages. */
struct note {
	uint64_t round, sum;
};

static uint64_t sum_of(const uint8_t *bytes, size_t len)
{
	uint64_t sum = 0;

	while (len--)
		sum += *bytes++;
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

static void send_note(struct rc_conn *c, struct ibv_mr *mr, struct note *note)
{
	struct ibv_sge sge = { (uintptr_t)note, sizeof(*note), mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	errno = ibv_post_send(c->qp, &wr, &bad);
	if (errno)
		err(1, "cannot post a send");
}

/* Whatever completes next has to be a success of this kind. */
static void expect(struct rc_conn *c, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = rc_next(c, 60);

	/* On an error only status and wr_id are valid. */
	if (wc.status)
		errx(1, "the connection broke: %s", ibv_wc_status_str(wc.status));
	if (wc.opcode != opcode)
		errx(1, "unexpected completion (opcode %d)", wc.opcode);
}

int main(int argc, char **argv)
{
	struct ibv_mr *mr, *notes_mr;
	struct rc_peer own, client;
	struct note notes[2]; /* one to receive in, one to send from */
	struct rc_conn c;
	uint8_t *memory;
	int fd;

	rc_open(&c, argc > 1 ? argv[1] : NULL, 16);
	memory = calloc(1, SIZE);
	if (!memory)
		err(1, "no memory");
	/* The client may write here; a remote right needs the local one as well. */
	mr = rc_register(&c, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	notes_mr = rc_register(&c, notes, sizeof(notes), IBV_ACCESS_LOCAL_WRITE);

	/* A receive has to be there before the first message comes. */
	post_receive(&c, notes_mr, &notes[0]);
	fd = tcp_meet(NULL, argc > 2 ? argv[2] : "18515");
	own = rc_self(&c, mr);
	tcp_exchange(fd, &own, &client, sizeof(own));
	rc_connect(&c, &client);
	/* Both sides are in RTS once this has been exchanged. */
	tcp_exchange(fd, &own, &client, sizeof(own));

	for (uint64_t round = 0; round < ROUNDS; round++) {
		/*
		 * The message comes behind the write on the same connection, so when it is here
		 * the bytes are, too.
		 */
		expect(&c, IBV_WC_RECV);
		notes[1] = (struct note){ notes[0].round, sum_of(memory, SIZE) };
		post_receive(&c, notes_mr, &notes[0]);
		send_note(&c, notes_mr, &notes[1]);
		/* notes[1] may be used again only after this. */
		expect(&c, IBV_WC_SEND);
	}
	/* Whoever closes first takes the other's last answer away: wait for the client. */
	tcp_exchange(fd, &own, &client, sizeof(own));
	printf("server: %d rounds of %d bytes\n", ROUNDS, SIZE);
	close(fd);
	ibv_dereg_mr(mr);
	ibv_dereg_mr(notes_mr);
	rc_close(&c);
	free(memory);
	return 0;
}
