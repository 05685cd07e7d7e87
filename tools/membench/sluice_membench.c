// SPDX-License-Identifier: GPL-2.0
/*
 * The limits to compare a software RNIC with: how fast this kernel, on this machine, at this moment,
 * copies memory and computes CRC-32. Loading the module measures and writes one line to the kernel
 * log; the module does not stay:
 *
 *	sluice_membench: memcpy_4096=N memcpy_65536=N memcpy_1048576=N crc32_4096=N	(MiB/s)
 *
 * The copies are made page by page through kmap_local_page(), as a provider's are.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/crc32.h>
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

/* How long one figure is measured, in nanoseconds, and how many are taken for its median. */
#define ROUND_NS	(40 * NSEC_PER_MSEC)
#define ROUNDS		5

#define LARGEST		(1024 * 1024)
#define PAGES		(LARGEST / PAGE_SIZE)

struct buffers {
	struct page *from[PAGES];
	struct page *to[PAGES];
	u32 crc;
};

static void copy(struct buffers *b, size_t size)
{
	size_t page;

	for (page = 0; page * PAGE_SIZE < size; page++) {
		void *to = kmap_local_page(b->to[page]);
		void *from = kmap_local_page(b->from[page]);

		memcpy(to, from, min_t(size_t, size - page * PAGE_SIZE, PAGE_SIZE));
		kunmap_local(from);
		kunmap_local(to);
	}
}

static void checksum(struct buffers *b, size_t size)
{
	void *from = kmap_local_page(b->from[0]);

	b->crc = crc32_le(b->crc, from, size);
	kunmap_local(from);
}

/* Runs @work on @size bytes over and over for one round; returns MiB/s. */
static u64 one_round(void (*work)(struct buffers *, size_t), struct buffers *b, size_t size)
{
	u64 start = ktime_get_ns(), bytes = 0, now;

	do {
		int i;

		for (i = 0; i < 16; i++)
			work(b, size);
		bytes += 16 * size;
		cond_resched();
		now = ktime_get_ns();
	} while (now - start < ROUND_NS);

	return div64_u64(bytes, div64_u64(now - start, NSEC_PER_USEC)) * USEC_PER_SEC / LARGEST;
}

static u64 median(void (*work)(struct buffers *, size_t), struct buffers *b, size_t size)
{
	u64 rate[ROUNDS];
	int n, i;

	for (n = 0; n < ROUNDS; n++) {
		u64 new = one_round(work, b, size);

		for (i = n; i > 0 && rate[i - 1] > new; i--)
			rate[i] = rate[i - 1];
		rate[i] = new;
	}
	return rate[ROUNDS / 2];
}

static void release(struct buffers *b)
{
	size_t page;

	for (page = 0; page < PAGES; page++) {
		if (b->from[page])
			__free_page(b->from[page]);
		if (b->to[page])
			__free_page(b->to[page]);
	}
	kfree(b);
}

/* One buffer after the other, as a program's are; pages taken in turns would copy unduly fast. */
static bool get_pages(struct page **pages)
{
	size_t i;

	for (i = 0; i < PAGES; i++) {
		pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!pages[i])
			return false;
	}
	return true;
}

static struct buffers *acquire(void)
{
	struct buffers *b = kzalloc(sizeof(*b), GFP_KERNEL);

	if (!b)
		return NULL;
	if (!get_pages(b->from) || !get_pages(b->to)) {
		release(b);
		return NULL;
	}
	return b;
}

static int __init membench_init(void)
{
	struct buffers *b = acquire();

	if (!b)
		return -ENOMEM;
	pr_info("memcpy_4096=%llu memcpy_65536=%llu memcpy_1048576=%llu crc32_4096=%llu\n",
		median(copy, b, 4096), median(copy, b, 65536), median(copy, b, 1048576),
		median(checksum, b, 4096));
	release(b);
	/* Everything there was to do is done; there is nothing to keep loaded. */
	return -EAGAIN;
}
module_init(membench_init);

MODULE_DESCRIPTION("Measures memcpy and crc32 in the kernel");
MODULE_LICENSE("GPL");
