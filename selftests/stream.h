/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stream of 1 MiB messages to take things away from, and the bytes that tell what became of it.
 *
 * Message k copies slot k % SLOTS of the source over the whole of the target. Each word of a slot
 * names slot and place, so the target always shows which messages reached it, and how far.
 */

#ifndef SLUICE_SELFTESTS_STREAM_H
#define SLUICE_SELFTESTS_STREAM_H

#include "verbs_lib.h"

#define MSG MIB
#define WORDS (MSG / 8)
#define SLOTS 8
#define MESSAGES 64
#define POISON_READ 0xdeadbeefdeadbeefULL
#define POISON_WRITTEN 0xfeedfacefeedfaceULL

struct stream {
	struct rdma r;
	struct pair p;
	enum ibv_wr_opcode op;
	struct region src; /* SLOTS messages */
	struct region dst; /* one message */
	struct ibv_wc wc[MESSAGES];
	int completed; /* of wc[] */
};

static inline uint64_t slot_word(int msg, size_t at)
{
	return (uint64_t)(msg < 0 ? 1 : msg % SLOTS + 2) << 32 | at;
}

static inline void fill_message(void *to, int msg)
{
	uint64_t *word = to;

	for (size_t i = 0; i < WORDS; i++)
		word[i] = slot_word(msg, i);
}

/* Source and target as before the first message. */
static inline void stream_fill(struct stream *s)
{
	for (int i = 0; i < SLOTS; i++)
		fill_message(s->src.addr + i * MSG, i);
	fill_message(s->dst.addr, -1);
}

static inline int stream_open(struct stream *s, enum ibv_wr_opcode op)
{
	int err;

	memset(s, 0, sizeof(*s));
	s->op = op;
	err = rdma_open(&s->r);
	if (!err)
		err = region_create(&s->src, s->r.pd, SLOTS * MSG, RC_ACCESS);
	if (!err)
		err = region_create(&s->dst, s->r.pd, MSG, RC_ACCESS);
	return err;
}

static inline void stream_close(struct stream *s)
{
	pair_destroy(&s->p);
	region_free(&s->src);
	region_free(&s->dst);
	rdma_close(&s->r);
}

/* New queue pairs, fresh contents, and both regions registered. */
static inline int stream_renew(struct stream *s)
{
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_async_event event;
	int err = 0;

	pair_destroy(&s->p);
	while (next_event(s->r.ctx, &event, 0) >= 0)
		;
	if (!s->src.mr)
		err = region_reg(&s->src, s->r.pd, RC_ACCESS);
	if (!err && !s->dst.mr)
		err = region_reg(&s->dst, s->r.pd, RC_ACCESS);
	stream_fill(s);
	s->completed = 0;
	/* A dead peer is noticed after some 50 ms. */
	o.timeout = 11;
	o.retry_cnt = 4;
	return err ? err : pair_create(&s->r, &s->p, &o);
}

/* Posts all the messages with one doorbell. */
static inline int stream_start(struct stream *s)
{
	const struct region *remote = s->op == IBV_WR_RDMA_READ ? &s->src : &s->dst;
	struct ibv_send_wr wr[MESSAGES], *bad;
	struct ibv_sge sge[MESSAGES];

	for (int i = 0; i < MESSAGES; i++) {
		size_t slot = i % SLOTS * MSG;
		bool read = s->op == IBV_WR_RDMA_READ;

		if (s->op == IBV_WR_SEND) {
			int err = post_recv(s->p.b.qp, i, &s->dst, MSG);

			if (err)
				return err;
		}
		sge[i] = read ? sge_of(&s->dst, 0, MSG) : sge_of(&s->src, slot, MSG);
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < MESSAGES ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = s->op,
			.send_flags = IBV_SEND_SIGNALED,
		};
		if (s->op != IBV_WR_SEND) {
			wr[i].wr.rdma.remote_addr = (uintptr_t)remote->addr + (read ? slot : 0);
			wr[i].wr.rdma.rkey = remote->mr->rkey;
		}
	}
	return ibv_post_send(s->p.a.qp, wr, &bad);
}

/* Takes completions of the requester until there are @n or nothing comes for @ms. */
static inline void stream_collect(struct stream *s, int n, unsigned int ms)
{
	while (s->completed < n && poll_for(s->p.a.scq, &s->wc[s->completed], ms) == 1)
		s->completed++;
}

/* How many completions, from the first, were successes. */
static inline int stream_good(const struct stream *s)
{
	int good = 0;

	while (good < s->completed && s->wc[good].status == IBV_WC_SUCCESS)
		good++;
	return good;
}

/* Waits for @n messages and a little longer, up to @max_us, so as to be in the midst of one. */
static inline void stream_run(struct stream *s, int n, unsigned int max_us)
{
	uint64_t end;

	stream_collect(s, n, LIMIT_MS);
	end = now_ns() + random() % max_us * 1000ULL;
	while (now_ns() < end)
		;
}

/* First and last word of each burst. */
static inline bool is_poison_place(size_t word)
{
	size_t per_burst = burst_bytes() / 8;

	return word % per_burst == 0 || word % per_burst == per_burst - 1;
}

static inline void poison(void *to, size_t words, uint64_t value)
{
	volatile uint64_t *word = to;
	size_t per_burst = burst_bytes() / 8;

	for (size_t i = 0; i < words; i += per_burst) {
		word[i] = value;
		word[i + per_burst - 1] = value;
	}
}

static inline bool poison_intact(const void *from, size_t words, uint64_t value)
{
	const volatile uint64_t *word = from;
	size_t per_burst = burst_bytes() / 8;

	for (size_t i = 0; i < words; i += per_burst)
		if (word[i] != value || word[i + per_burst - 1] != value)
			return false;
	return true;
}

/*
 * What landed of message @msg over message @msg - 1: a count of whole bursts, or -1 if the bytes
 * are no prefix of whole bursts. @poisoned: words at poison places are not looked at.
 */
static inline int bursts_landed(const struct stream *s, int msg, bool poisoned)
{
	const uint64_t *word = (const uint64_t *)s->dst.addr;
	size_t per_burst = burst_bytes() / 8;
	int landed = 0;

	for (size_t at = 0; at < WORDS; at += per_burst) {
		size_t is_new = 0, is_old = 0, looked = 0;

		for (size_t i = at; i < at + per_burst; i++) {
			if (poisoned && is_poison_place(i))
				continue;
			looked++;
			is_new += word[i] == slot_word(msg, i);
			is_old += word[i] == slot_word(msg - 1, i);
		}
		if (is_new == looked && landed == (int)(at / per_burst))
			landed++;
		else if (is_old != looked)
			return -1;
	}
	return landed;
}

#endif /* SLUICE_SELFTESTS_STREAM_H */
