// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: what may be registered, what is refused and with which error, and that the
 * pages registered are the ones the process sees.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

FIXTURE(mr) {
	struct rdma r;
	struct pair p;
};

FIXTURE_SETUP(mr)
{
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
}

FIXTURE_TEARDOWN(mr)
{
	pair_destroy(&self->p);
	rdma_close(&self->r);
}

/* Moves @len bytes from @src to @dst, by keys and I/O addresses, and checks that it worked. */
static void carry(struct __test_metadata *_metadata, struct pair *p, struct ibv_mr *src,
		  uint64_t from, struct ibv_mr *dst, uint64_t to, size_t len)
{
	struct ibv_sge sge = { .addr = from, .length = len, .lkey = src->lkey };

	ASSERT_EQ(0, post_op(p->a.qp, 1, IBV_WR_RDMA_WRITE, sge, to, dst->rkey, 0));
	EXPECT_WC(p->a.scq, 1, IBV_WC_SUCCESS);
}

/* Registration has to fail with @want. */
static void expect_refused(struct __test_metadata *_metadata, struct ibv_pd *pd, void *addr,
			   size_t len, int access, int want)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(pd, addr, len, access);
	EXPECT_EQ(NULL, mr) {
		TH_LOG("%p + %zu registered with access %#x", addr, len, access);
		ibv_dereg_mr(mr);
		return;
	}
	EXPECT_EQ(want, errno)
		TH_LOG("%p + %zu, access %#x: errno %d, not %d", addr, len, access, errno, want);
}

TEST_F(mr, access_flags)
{
	static const int flags[] = { IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE,
				     IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC,
				     IBV_ACCESS_RELAXED_ORDERING };
	struct region g;

	ASSERT_EQ(0, region_map(&g, 2 * PAGE, 0));
	for (int set = 0; set < 1 << ARRAY_SIZE(flags); set++) {
		int access = 0;

		for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
			access |= set >> i & 1 ? flags[i] : 0;
		if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		    !(access & IBV_ACCESS_LOCAL_WRITE)) {
			expect_refused(_metadata, self->r.pd, g.addr, g.len, access, EINVAL);
			continue;
		}
		EXPECT_EQ(0, region_reg(&g, self->r.pd, access))
			TH_LOG("access %#x was refused", access);
		EXPECT_EQ(0, region_dereg(&g));
	}
	region_free(&g);
}

TEST_F(mr, unknown_access_flags_are_refused)
{
	struct region g;

	ASSERT_EQ(0, region_map(&g, PAGE, 0));
	expect_refused(_metadata, self->r.pd, g.addr, g.len, IBV_ACCESS_LOCAL_WRITE | 1 << 17,
		       EINVAL);
	region_free(&g);
}

TEST_F(mr, any_offset_any_length)
{
	static const size_t offsets[] = { 0, 1, 7, 64, 4095 };
	static const size_t lengths[] = { 1, 3, 4095, 4096, 4097, 8192, 65536, 65537, 262145 };

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(lengths); j++) {
			size_t len = lengths[j];
			struct region src, dst;

			ASSERT_EQ(0, region_create_at(&src, self->r.pd, len, offsets[i], 0));
			ASSERT_EQ(0, region_create_at(&dst, self->r.pd, len,
						      offsets[(i + 2) % ARRAY_SIZE(offsets)],
						      RC_ACCESS));
			pattern_fill(src.addr, len, j);
			carry(_metadata, &self->p, src.mr, (uintptr_t)src.addr, dst.mr,
			      (uintptr_t)dst.addr, len);
			EXPECT_TRUE(pattern_ok(dst.addr, len, j))
				TH_LOG("offset %zu, length %zu: bytes differ", offsets[i], len);
			EXPECT_TRUE(guards_intact(&src));
			EXPECT_TRUE(guards_intact(&dst));
			region_free(&src);
			region_free(&dst);
		}
	}
}

TEST_F(mr, any_iova)
{
	const size_t len = 3 * PAGE + 17;
	const uint64_t iovas[] = { 0, PAGE, 0x123456789000ULL, 1ULL << 63, -(uint64_t)(4 * PAGE) };
	struct region src, dst;

	ASSERT_EQ(0, region_create(&src, self->r.pd, len, 0));
	ASSERT_EQ(0, region_map(&dst, len, 0));
	for (size_t i = 0; i < ARRAY_SIZE(iovas); i++) {
		dst.mr = ibv_reg_mr_iova(self->r.pd, dst.addr, len, iovas[i], RC_ACCESS);
		EXPECT_NE(NULL, dst.mr) {
			TH_LOG("iova %#llx was refused", (unsigned long long)iovas[i]);
			continue;
		}
		pattern_fill(src.addr, len, i);
		carry(_metadata, &self->p, src.mr, (uintptr_t)src.addr, dst.mr, iovas[i], len);
		EXPECT_TRUE(pattern_ok(dst.addr, len, i));

		/* As a local address too. */
		pattern_fill(dst.addr, len, i + 100);
		ASSERT_EQ(0, region_dereg(&src));
		ASSERT_EQ(0, region_reg(&src, self->r.pd, RC_ACCESS));
		carry(_metadata, &self->p, dst.mr, iovas[i], src.mr, (uintptr_t)src.addr, len);
		EXPECT_TRUE(pattern_ok(src.addr, len, i + 100));
		EXPECT_TRUE(guards_intact(&dst));
		ASSERT_EQ(0, region_dereg(&dst));
	}
	region_free(&src);
	region_free(&dst);
}

TEST_F(mr, iova_of_another_page_offset_is_refused)
{
	struct region g;

	ASSERT_EQ(0, region_map(&g, 2 * PAGE, 0));
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr_iova(self->r.pd, g.addr, g.len, 0x1000008, RC_ACCESS));
	EXPECT_EQ(EINVAL, errno);
	region_free(&g);
}

TEST_F(mr, iova_range_that_wraps_is_refused)
{
	struct region g;

	ASSERT_EQ(0, region_map(&g, 4 * PAGE, 0));
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr_iova(self->r.pd, g.addr, g.len, -(uint64_t)PAGE, RC_ACCESS));
	EXPECT_EQ(EINVAL, errno);
	region_free(&g);
}

TEST_F(mr, zero_length)
{
	struct region g, src;
	struct ibv_sge sge;

	ASSERT_EQ(0, region_create(&src, self->r.pd, 8, 0));
	ASSERT_EQ(0, region_map(&g, PAGE, 0));
	g.mr = ibv_reg_mr(self->r.pd, g.addr, 0, RC_ACCESS);
	ASSERT_NE(NULL, g.mr) TH_LOG("a region of no bytes was refused");

	/* Moving nothing through it is fine, */
	ASSERT_EQ(0, post_op(self->p.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&src, 0, 0),
			     (uintptr_t)g.addr, g.mr->rkey, 0));
	EXPECT_WC(self->p.a.scq, 1, IBV_WC_SUCCESS);
	/* one byte is not. */
	sge = sge_of(&src, 0, 1);
	ASSERT_EQ(0, post_op(self->p.a.qp, 2, IBV_WR_RDMA_WRITE, sge, (uintptr_t)g.addr,
			     g.mr->rkey, 0));
	EXPECT_WC(self->p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	region_free(&g);
	region_free(&src);
}

TEST_F(mr, read_only_mapping)
{
	int fd = memfd_create("read-only", 0);
	struct region dst;
	struct ibv_mr *mr;
	char *map;

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_EQ(8, pwrite(fd, "contents", 8, 0));
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	expect_refused(_metadata, self->r.pd, map, PAGE, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	expect_refused(_metadata, self->r.pd, map, PAGE, RC_ACCESS, EFAULT);

	mr = ibv_reg_mr(self->r.pd, map, PAGE, 0);
	ASSERT_NE(NULL, mr) TH_LOG("reading read-only memory was refused");
	ASSERT_EQ(0, region_create(&dst, self->r.pd, 8, RC_ACCESS));
	carry(_metadata, &self->p, mr, (uintptr_t)map, dst.mr, (uintptr_t)dst.addr, 8);
	EXPECT_EQ(0, memcmp(dst.addr, "contents", 8));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	region_free(&dst);
	munmap(map, PAGE);
	close(fd);
}

TEST_F(mr, bad_addresses)
{
	char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);

	ASSERT_NE(MAP_FAILED, map);
	/* A hole in the middle, */
	ASSERT_EQ(0, munmap(map + 2 * PAGE, PAGE));
	expect_refused(_metadata, self->r.pd, map, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	/* nothing mapped at all, */
	expect_refused(_metadata, self->r.pd, map + 2 * PAGE, PAGE, 0, EFAULT);
	/* no access, */
	ASSERT_EQ(0, mprotect(map, PAGE, PROT_NONE));
	expect_refused(_metadata, self->r.pd, map, PAGE, 0, EFAULT);
	/* kernel memory, */
	expect_refused(_metadata, self->r.pd, (void *)0xffff888000000000UL, PAGE, 0, EFAULT);
	/* beyond the end of the address space. */
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr(self->r.pd, (void *)-PAGE, 4 * PAGE, 0));
	EXPECT_NE(0, errno);
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr(self->r.pd, map, SIZE_MAX - 2 * PAGE, 0));
	EXPECT_NE(0, errno);
	munmap(map, 4 * PAGE);
}

/* Runs as an ordinary user with a limit of 256 KiB of locked memory; an exit status. */
static int with_memlock_limit(struct ibv_pd *pd)
{
	const struct rlimit limit = { 256 * KIB, 256 * KIB };
	struct region small, large;

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534))
		return 10;
	/* Returned memory may be used again, so the limit holds however often one asks. */
	for (int i = 0; i < 20; i++) {
		if (region_create(&small, pd, 128 * KIB, IBV_ACCESS_LOCAL_WRITE))
			return 11;
		if (region_create(&large, pd, 192 * KIB, IBV_ACCESS_LOCAL_WRITE) != ENOMEM)
			return 12;
		region_free(&small);
	}
	if (region_create(&large, pd, MIB, IBV_ACCESS_LOCAL_WRITE) != ENOMEM)
		return 13;
	return 0;
}

TEST(memlock_limit_is_honoured)
{
	int status;
	pid_t pid = fork();

	ASSERT_GE(pid, 0);
	if (!pid) {
		struct rdma r;

		/* The device is opened by root: the test is not about file permissions. */
		_exit(rdma_open(&r) ? 9 : with_memlock_limit(r.pd));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status))
		TH_LOG("step %d failed (11: below the limit, 12/13: above)", WEXITSTATUS(status));
}

TEST_F(mr, huge_pages)
{
	const size_t len = 4 * MIB;
	struct region dst = { 0 }, src;
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "w");

	if (f) {
		fputs("4", f);
		fclose(f);
	}
	dst.map = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (dst.map == MAP_FAILED)
		SKIP(return, "no huge pages");
	dst.map_len = len;
	dst.addr = dst.map + 4097;
	dst.len = len - 8192;
	ASSERT_EQ(0, region_reg(&dst, self->r.pd, RC_ACCESS | IBV_ACCESS_HUGETLB));
	ASSERT_EQ(0, region_create(&src, self->r.pd, dst.len, 0));
	pattern_fill(src.addr, src.len, 5);
	carry(_metadata, &self->p, src.mr, (uintptr_t)src.addr, dst.mr, (uintptr_t)dst.addr,
	      dst.len);
	EXPECT_TRUE(pattern_ok(dst.addr, dst.len, 5));
	EXPECT_TRUE(all_bytes(dst.map, 4097, 0));
	EXPECT_TRUE(all_bytes(dst.addr + dst.len, 4095, 0));
	region_free(&dst);
	region_free(&src);
}

TEST_F(mr, untouched_memory)
{
	uint8_t *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint8_t *out = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	struct ibv_mr *from, *to;

	/* Both are the shared page of zeros until somebody writes; registering must end that. */
	ASSERT_NE(MAP_FAILED, map);
	ASSERT_NE(MAP_FAILED, out);
	ASSERT_EQ(0, map[0] | out[0]);
	from = ibv_reg_mr(self->r.pd, map, 4 * PAGE, 0);
	to = ibv_reg_mr(self->r.pd, out, 4 * PAGE, RC_ACCESS);
	ASSERT_NE(NULL, from);
	ASSERT_NE(NULL, to);
	pattern_fill(map, 4 * PAGE, 1);
	carry(_metadata, &self->p, from, (uintptr_t)map, to, (uintptr_t)out, 4 * PAGE);
	EXPECT_TRUE(pattern_ok(out, 4 * PAGE, 1));
	EXPECT_EQ(0, ibv_dereg_mr(from));
	EXPECT_EQ(0, ibv_dereg_mr(to));
	munmap(map, 4 * PAGE);
	munmap(out, 4 * PAGE);
}

TEST_F(mr, unmapped_after_registration)
{
	struct region src, dst, back;

	/* The region keeps its pages; nobody else gets them. */
	ASSERT_EQ(0, region_create(&src, self->r.pd, 16 * PAGE, 0));
	ASSERT_EQ(0, region_create(&dst, self->r.pd, 16 * PAGE, RC_ACCESS));
	ASSERT_EQ(0, region_create(&back, self->r.pd, 16 * PAGE, RC_ACCESS));
	ASSERT_EQ(0, munmap(dst.map, dst.map_len));
	pattern_fill(src.addr, src.len, 3);
	carry(_metadata, &self->p, src.mr, (uintptr_t)src.addr, dst.mr, (uintptr_t)dst.addr,
	      src.len);
	carry(_metadata, &self->p, dst.mr, (uintptr_t)dst.addr, back.mr, (uintptr_t)back.addr,
	      src.len);
	EXPECT_TRUE(pattern_ok(back.addr, back.len, 3));
	dst.map = NULL;
	region_free(&src);
	region_free(&dst);
	region_free(&back);
}

TEST_F(mr, fork_leaves_the_pages_to_the_parent)
{
	struct region src, dst;
	int hold[2];
	pid_t pid;

	ASSERT_EQ(0, region_create(&src, self->r.pd, PAGE, 0));
	ASSERT_EQ(0, region_create(&dst, self->r.pd, PAGE, RC_ACCESS));
	pattern_fill(src.addr, src.len, 1);
	ASSERT_EQ(0, pipe(hold));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		char c;

		memset(src.addr, 0x11, src.len);
		memset(dst.addr, 0x22, dst.len);
		close(hold[1]);
		_exit(read(hold[0], &c, 1));
	}
	pattern_fill(src.addr, src.len, 2);
	carry(_metadata, &self->p, src.mr, (uintptr_t)src.addr, dst.mr, (uintptr_t)dst.addr, PAGE);
	EXPECT_TRUE(pattern_ok(dst.addr, PAGE, 2));
	close(hold[0]);
	close(hold[1]);
	waitpid(pid, NULL, 0);
	region_free(&src);
	region_free(&dst);
}

TEST_F(mr, keys_differ)
{
	enum { N = 256 };
	struct region g;
	struct ibv_mr *mr[N];

	ASSERT_EQ(0, region_map(&g, PAGE, 0));
	for (int i = 0; i < N; i++) {
		mr[i] = ibv_reg_mr(self->r.pd, g.addr, PAGE, RC_ACCESS);
		ASSERT_NE(NULL, mr[i]);
		for (int j = 0; j < i; j++) {
			EXPECT_NE(mr[i]->lkey, mr[j]->lkey);
			EXPECT_NE(mr[i]->rkey, mr[j]->rkey);
		}
	}
	for (int i = 0; i < N; i++)
		EXPECT_EQ(0, ibv_dereg_mr(mr[i]));
	region_free(&g);
}

TEST_F(mr, overlapping_regions)
{
	struct region g, src;
	struct ibv_mr *half;

	/* Rights are those of the key used, whatever other keys reach the same bytes. */
	ASSERT_EQ(0, region_create(&g, self->r.pd, 2 * PAGE, 0));
	ASSERT_EQ(0, region_create(&src, self->r.pd, PAGE, 0));
	half = ibv_reg_mr(self->r.pd, g.addr + PAGE, PAGE, RC_ACCESS);
	ASSERT_NE(NULL, half);
	pattern_fill(src.addr, PAGE, 8);
	carry(_metadata, &self->p, src.mr, (uintptr_t)src.addr, half, (uintptr_t)g.addr + PAGE,
	      PAGE);
	EXPECT_TRUE(pattern_ok(g.addr + PAGE, PAGE, 8));
	ASSERT_EQ(0, post_rdma(self->p.a.qp, 2, IBV_WR_RDMA_WRITE, &src, 8, &g));
	EXPECT_WC(self->p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	EXPECT_EQ(0, ibv_dereg_mr(half));
	region_free(&g);
	region_free(&src);
}

TEST_HARNESS_MAIN
