// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that cannot be had: each call is made again and again, and fails its first allocation, its
 * second, and so on, until it has none left to fail. A call that needs memory says ENOMEM and
 * leaves nothing behind; one that takes something away needs none of the driver's.
 *
 * Needs a kernel with fault injection (tools/test-debug). Allocations of the calling task are
 * failed, wherever in the kernel they are made; for what the driver itself must not need, only
 * those that are made below one of its functions.
 */

#include "kselftest_harness.h"
#include "nldev.h"
#include "sluice_teardown.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define DEBUGFS "/sys/kernel/debug/"
/* More allocations than this no call makes. */
#define MOST 5000
#define HUGE_PAGE (2 * MIB)
#define STREAM 8

/* Failing allocations. */

static int nth_fd = -1;

static int write_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);
	ssize_t n = fd < 0 ? -1 : write(fd, value, strlen(value));
	int err = n < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

/* Sets @file of both kinds of failing allocations, or of the one that has it. */
static bool set_fault(const char *file, const char *value)
{
	char slab[128], page[128];

	snprintf(slab, sizeof(slab), DEBUGFS "failslab/%s", file);
	snprintf(page, sizeof(page), DEBUGFS "fail_page_alloc/%s", file);
	return !(write_file(slab, value) & write_file(page, value));
}

/* From here on the @n-th allocation of this task fails. No other one does, nor any after it. */
static void arm(unsigned int n)
{
	char value[16];

	snprintf(value, sizeof(value), "%u", n);
	if (pwrite(nth_fd, value, strlen(value), 0) < 0)
		abort();
}

/* No allocation fails any more; whether one has. */
static bool disarm(void)
{
	char value[16] = "";

	if (pread(nth_fd, value, sizeof(value) - 1, 0) <= 0 || pwrite(nth_fd, "0", 1, 0) < 0)
		abort();
	return !atoi(value);
}

/* Where the functions lie on whose lines in the list of all @text is. */
static bool function_range(const char *text, uint64_t *start, uint64_t *end)
{
	FILE *names = fopen("/proc/kallsyms", "r");
	unsigned long long at, last = 0;
	char line[1024], type;

	*start = UINT64_MAX;
	*end = UINT64_MAX;
	while (names && fgets(line, sizeof(line), names)) {
		if (sscanf(line, "%llx %c", &at, &type) != 2 || (type != 't' && type != 'T'))
			continue;
		if (strstr(line, text)) {
			*start = at < *start ? at : *start;
			if (at > last) {
				last = at;
				*end = UINT64_MAX;
			}
		} else if (last && at > last && at < *end) {
			/* The last one ends where this one begins. */
			*end = at;
		}
	}
	if (names)
		fclose(names);
	if (*end == UINT64_MAX)
		*end = last + PAGE;
	return last && *start;
}

static bool set_range(const char *of, uint64_t start, uint64_t end)
{
	char file[32], value[32];

	snprintf(file, sizeof(file), "%s-start", of);
	snprintf(value, sizeof(value), "0x%llx", (unsigned long long)start);
	if (!set_fault(file, value))
		return false;
	snprintf(file, sizeof(file), "%s-end", of);
	snprintf(value, sizeof(value), "0x%llx", (unsigned long long)end);
	return set_fault(file, value);
}

/* Only allocations of these functions, and of what they call; of all with NULL. */
static bool only_below(const char *text)
{
	uint64_t start = 0, end = UINT64_MAX;

	if (text && !function_range(text, &start, &end))
		return false;
	return set_range("require", start, end);
}

static bool only_of_driver(bool only)
{
	return only_below(only ? "[sluice]" : NULL);
}

/* None of the allocations of this function, and of what it calls; NULL for no such. */
static bool none_below(const char *text)
{
	uint64_t start = 0, end = 0;

	if (text && !function_range(text, &start, &end))
		return false;
	return set_range("reject", start, end);
}

static bool faults_ready(void)
{
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	/* Nothing at random and no words in the log; but single pages, and by those who can wait. */
	return nth_fd >= 0 && set_fault("probability", "0") && set_fault("verbose", "0") &&
	       set_fault("ignore-gfp-wait", "N") && set_fault("min-order", "0") &&
	       only_of_driver(false) && none_below(NULL);
}

/* The objects under test. */

FIXTURE(nomem) {
	struct rdma r;
	struct pair good; /* carries a message after each failure */
	struct region small, large;
	struct nldev nl;
	uint32_t index;
	/* What the calls make and take away. */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct region region;
	int region_flags;
	size_t region_len;
	struct ibv_ah *ah;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct pair p;
	int cqe, posted;
	enum ibv_qp_state to;
	pid_t child;
};

#define BENCH FIXTURE_DATA(nomem)

FIXTURE_SETUP(nomem)
{
	int64_t index;

	if (access("/proc/thread-self/fail-nth", F_OK))
		SKIP(return, "this kernel has no fault injection (/proc/self/fail-nth)");
	ASSERT_TRUE(faults_ready()) TH_LOG("cannot set up fault injection in " DEBUGFS);
	ASSERT_EQ(0, rdma_open(&self->r));
	ASSERT_EQ(0, nldev_open(&self->nl));
	index = nldev_index(&self->nl, device_name());
	ASSERT_GE(index, 0);
	self->index = index;
	ASSERT_EQ(0, region_create(&self->small, self->r.pd, PAGE, RC_ACCESS));
	ASSERT_EQ(0, region_create(&self->large, self->r.pd, 2 * MIB, RC_ACCESS));
	ASSERT_EQ(0, pair_create(&self->r, &self->good, NULL));
}

FIXTURE_TEARDOWN(nomem)
{
	pair_destroy(&self->good);
	region_free(&self->small);
	region_free(&self->large);
	rdma_close(&self->r);
	only_of_driver(false);
}

/* Each function gives 0 or an errno. @before and @after run with all the memory there is. */
struct call {
	const char *what;
	int (*before)(BENCH *b);
	int (*call)(BENCH *b);
	/* Takes back what the call did; if it failed, makes it again first where it has to succeed. */
	int (*after)(BENCH *b, int err);
};

/* The device still moves bytes, and no object is left that was not there before. */
static void expect_as_before(struct __test_metadata *_metadata, BENCH *b, const char *objects)
{
	char now[128];

	ASSERT_EQ(0, nldev_objects(&b->nl, b->index, now));
	ASSERT_STREQ(objects, now);
	ASSERT_EQ(0, post_op(b->good.a.qp, 1, IBV_WR_RDMA_WRITE, sge_of(&b->small, 0, 64),
			     (uintptr_t)b->small.addr + 64, b->small.mr->rkey, 0));
	EXPECT_WC(b->good.a.scq, 1, IBV_WC_SUCCESS);
}

/* What routing and netlink say for ENOMEM is ENOBUFS. */
static bool no_memory(int err)
{
	return err == ENOMEM || err == ENOBUFS;
}

/* Makes a call until no allocation of it is left to fail; how many of them it did not survive. */
static int each_allocation(struct __test_metadata *_metadata, BENCH *b, const struct call *c)
{
	unsigned int n, failures = 0;
	bool injected = true;
	char objects[128];

	ASSERT_EQ(0, nldev_objects(&b->nl, b->index, objects));
	for (n = 1; injected; n++) {
		int err;

		ASSERT_LT(n, MOST);
		if (c->before)
			ASSERT_EQ(0, c->before(b));
		arm(n);
		err = c->call(b);
		injected = disarm();
		if (err) {
			failures++;
			ASSERT_TRUE(injected) TH_LOG("%s: errno %d", c->what, err);
			EXPECT_TRUE(no_memory(err))
				TH_LOG("%s, allocation %u: %s", c->what, n, strerror(err));
		}
		ASSERT_EQ(0, c->after(b, err)) TH_LOG("%s, allocation %u", c->what, n);
		expect_as_before(_metadata, b, objects);
	}
	TH_LOG("%s: %u allocations, %u of them needed", c->what, n - 2, failures);
	return failures;
}

/* Calls that take something away: for the lack of memory of the driver's they do not even fail. */
static void each_allocation_of_teardown(struct __test_metadata *_metadata, BENCH *b,
					const struct call *c)
{
	each_allocation(_metadata, b, c);
	if (only_of_driver(true))
		EXPECT_EQ(0, each_allocation(_metadata, b, c))
			TH_LOG("%s needs memory of the driver", c->what);
	ASSERT_TRUE(only_of_driver(false));
}

/* Contexts, protection domains, address handles. */

/* What the library says went wrong is what it tried last, not what it wanted. */
static int open_another(BENCH *b)
{
	b->ctx = ibv_open_device(b->r.ctx->device);
	return b->ctx ? 0 : ENOMEM;
}

static int close_another(BENCH *b)
{
	return ibv_close_device(b->ctx) ? errno : 0;
}

static int after_open(BENCH *b, int err)
{
	return err ? 0 : close_another(b);
}

TEST_F_TIMEOUT(nomem, open_device, 120)
{
	/*
	 * If that fails, the core (7.3.4, UVERBS_METHOD_GET_CONTEXT) frees the context and forgets
	 * the reference to the task in it; kmemleak would find the task.
	 */
	ASSERT_TRUE(none_below(" ib_init_ucontext\n"));
	each_allocation(_metadata, self,
			&(struct call){ "open_device", NULL, open_another, after_open });
	ASSERT_TRUE(none_below(NULL));
}

static int nothing(BENCH *b, int err)
{
	(void)b;
	return err;
}

TEST_F_TIMEOUT(nomem, close_device, 120)
{
	each_allocation(_metadata, self,
			&(struct call){ "close_device", open_another, close_another, nothing });
}

static int make_pd(BENCH *b)
{
	b->pd = ibv_alloc_pd(b->r.ctx);
	return b->pd ? 0 : errno;
}

static int take_pd(BENCH *b)
{
	return ibv_dealloc_pd(b->pd);
}

static int after_make_pd(BENCH *b, int err)
{
	return err ? 0 : take_pd(b);
}

static int after_take_pd(BENCH *b, int err)
{
	return err ? take_pd(b) : 0;
}

TEST_F_TIMEOUT(nomem, protection_domain, 120)
{
	each_allocation(_metadata, self,
			&(struct call){ "alloc_pd", NULL, make_pd, after_make_pd });
	each_allocation_of_teardown(_metadata, self,
				    &(struct call){ "dealloc_pd", make_pd, take_pd, after_take_pd });
}

static int make_ah(BENCH *b)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = b->r.gid, .sgid_index = b->r.gid_index, .hop_limit = 1 },
	};

	b->ah = ibv_create_ah(b->r.pd, &attr);
	return b->ah ? 0 : errno;
}

static int take_ah(BENCH *b)
{
	return ibv_destroy_ah(b->ah);
}

static int after_make_ah(BENCH *b, int err)
{
	return err ? 0 : take_ah(b);
}

static int after_take_ah(BENCH *b, int err)
{
	return err ? take_ah(b) : 0;
}

TEST_F_TIMEOUT(nomem, address_handle, 120)
{
	/* The library asks the kernel for routes and neighbours first; that is not the matter here. */
	if (only_of_driver(true))
		each_allocation(_metadata, self,
				&(struct call){ "create_ah", NULL, make_ah, after_make_ah });
	ASSERT_TRUE(only_of_driver(false));
	each_allocation_of_teardown(_metadata, self,
				    &(struct call){ "destroy_ah", make_ah, take_ah, after_take_ah });
}

/* Regions. */

static int map_region(BENCH *b)
{
	struct region *g = &b->region;

	/* Nobody has touched its pages yet: registration brings them in. */
	*g = (struct region){ .len = b->region_len, .map_len = b->region_len };
	g->map = mmap(NULL, b->region_len ? b->region_len : PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | b->region_flags, -1, 0);
	if (g->map == MAP_FAILED)
		return errno;
	g->addr = g->map;
	return 0;
}

static int make_region(BENCH *b)
{
	return region_reg(&b->region, b->r.pd, RC_ACCESS);
}

static int map_and_make_region(BENCH *b)
{
	int err = map_region(b);

	return err ? err : make_region(b);
}

static int take_region(BENCH *b)
{
	return region_dereg(&b->region);
}

static int unmap_region(BENCH *b)
{
	return munmap(b->region.map, b->region_len ? b->region_len : PAGE) ? errno : 0;
}

static int after_make_region(BENCH *b, int err)
{
	if (!err)
		err = take_region(b);
	else
		err = 0;
	return err ? err : unmap_region(b);
}

static int after_take_region(BENCH *b, int err)
{
	if (err)
		err = take_region(b);
	return err ? err : unmap_region(b);
}

static const struct call reg_mr = { "reg_mr", map_region, make_region, after_make_region };
static const struct call dereg_mr = { "dereg_mr", map_and_make_region, take_region,
				      after_take_region };

TEST_F_TIMEOUT(nomem, small_region, 120)
{
	self->region_len = PAGE;
	each_allocation(_metadata, self, &reg_mr);
	each_allocation_of_teardown(_metadata, self, &dereg_mr);
}

TEST_F_TIMEOUT(nomem, region_of_many_pages, 240)
{
	/* So many that their list takes more than a page itself. */
	self->region_len = 600 * PAGE;
	self->region_flags = MAP_POPULATE;
	each_allocation(_metadata, self, &reg_mr);
	each_allocation_of_teardown(_metadata, self, &dereg_mr);
}

TEST_F_TIMEOUT(nomem, region_of_huge_pages, 120)
{
	self->region_len = 2 * HUGE_PAGE;
	self->region_flags = MAP_HUGETLB;
	if (map_region(self))
		SKIP(return, "no huge pages");
	unmap_region(self);
	each_allocation(_metadata, self, &reg_mr);
	each_allocation_of_teardown(_metadata, self, &dereg_mr);
}

TEST_F_TIMEOUT(nomem, empty_region, 120)
{
	self->region_len = 0;
	each_allocation(_metadata, self, &reg_mr);
	each_allocation_of_teardown(_metadata, self, &dereg_mr);
}

/* Completion queues. */

static int make_channel(BENCH *b)
{
	b->channel = ibv_create_comp_channel(b->r.ctx);
	return b->channel ? 0 : errno;
}

static int take_channel(BENCH *b)
{
	return ibv_destroy_comp_channel(b->channel);
}

static int after_make_channel(BENCH *b, int err)
{
	return err ? 0 : take_channel(b);
}

static int make_cq(BENCH *b)
{
	b->cq = ibv_create_cq(b->r.ctx, b->cqe, NULL, b->channel, 0);
	return b->cq ? 0 : errno;
}

static int take_cq(BENCH *b)
{
	return ibv_destroy_cq(b->cq);
}

static int after_make_cq(BENCH *b, int err)
{
	return err ? 0 : take_cq(b);
}

static int after_take_cq(BENCH *b, int err)
{
	return err ? take_cq(b) : 0;
}

TEST_F_TIMEOUT(nomem, completion_queue, 240)
{
	each_allocation(_metadata, self, &(struct call){ "create_comp_channel", NULL, make_channel,
							 after_make_channel });
	ASSERT_EQ(0, make_channel(self));
	self->cqe = 1000;
	each_allocation(_metadata, self,
			&(struct call){ "create_cq", NULL, make_cq, after_make_cq });
	each_allocation_of_teardown(_metadata, self,
				    &(struct call){ "destroy_cq", make_cq, take_cq, after_take_cq });
	ASSERT_EQ(0, take_channel(self));
}

/* A queue with three completions in it is resized: they must be there before and after. */

static int post_three(BENCH *b)
{
	struct ibv_qp *qp = b->p.a.qp;

	for (int i = 0; i < 3; i++) {
		int err = post_op(qp, i, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0);

		if (err)
			return err;
	}
	return 0;
}

static int resize_cq(BENCH *b)
{
	return ibv_resize_cq(b->p.a.scq, b->cqe);
}

static int after_resize(BENCH *b, int err)
{
	struct ibv_wc wc;

	for (int i = 0; i < 3; i++)
		if (poll_one(b->p.a.scq, &wc) != 1 || wc.wr_id != (uint64_t)i || wc.status)
			return EILSEQ;
	return err ? 0 : ibv_resize_cq(b->p.a.scq, 500);
}

TEST_F_TIMEOUT(nomem, resize_of_a_completion_queue, 240)
{
	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	self->cqe = 2000;
	/* The library does not survive it if it cannot map what the command has made. */
	ASSERT_TRUE(only_below(" ib_uverbs_resize_cq\n"));
	each_allocation(_metadata, self,
			&(struct call){ "resize_cq", post_three, resize_cq, after_resize });
	ASSERT_TRUE(only_below(NULL));
	pair_destroy(&self->p);
}

/* Queue pairs. */

static int make_qp(BENCH *b)
{
	const struct rc_opts o = RC_DEFAULTS;

	return rc_create_qp(&b->r, &b->p.a, &o);
}

static int take_qp(BENCH *b)
{
	int err = ibv_destroy_qp(b->p.a.qp);

	if (!err)
		b->p.a.qp = NULL;
	return err;
}

static int after_make_qp(BENCH *b, int err)
{
	return err ? 0 : take_qp(b);
}

static int after_take_qp(BENCH *b, int err)
{
	return err ? take_qp(b) : 0;
}

TEST_F_TIMEOUT(nomem, queue_pair, 240)
{
	self->p.a.scq = self->good.a.scq;
	self->p.a.rcq = self->good.a.rcq;
	each_allocation(_metadata, self,
			&(struct call){ "create_qp", NULL, make_qp, after_make_qp });
	each_allocation_of_teardown(_metadata, self,
				    &(struct call){ "destroy_qp", make_qp, take_qp, after_take_qp });
}

/* The three steps to a connection, and what may be asked meanwhile. */

static int reset_both(BENCH *b)
{
	int err = qp_to(b->p.a.qp, IBV_QPS_RESET);

	return err ? err : qp_to(b->p.b.qp, IBV_QPS_RESET);
}

static int step(BENCH *b)
{
	switch (b->to) {
	case IBV_QPS_INIT:
		return rc_to_init(&b->p.a);
	case IBV_QPS_RTR:
		return rc_to_rtr(&b->r, &b->p.a, b->p.b.qp->qp_num);
	default:
		return rc_to_rts(&b->p.a);
	}
}

static int before_step(BENCH *b)
{
	enum ibv_qp_state to = b->to;
	int err = reset_both(b);

	for (b->to = IBV_QPS_INIT; !err && b->to < to; b->to++)
		err = step(b);
	b->to = to;
	return err;
}

static int after_step(BENCH *b, int err)
{
	/* A step that was refused was not made, and can be. */
	if (qp_state(b->p.a.qp) != (int)(err ? b->to - 1 : b->to))
		return EILSEQ;
	return err ? step(b) : 0;
}

static int query_qp(BENCH *b)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(b->p.a.qp, &attr, IBV_QP_STATE, &init);
}

static int after_query(BENCH *b, int err)
{
	return err ? query_qp(b) : 0;
}

TEST_F_TIMEOUT(nomem, steps_to_a_connection, 240)
{
	static const char *const names[] = { "", "modify_qp to INIT", "modify_qp to RTR",
					     "modify_qp to RTS" };

	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	for (self->to = IBV_QPS_INIT; self->to <= IBV_QPS_RTS; self->to++)
		each_allocation(_metadata, self, &(struct call){ names[self->to], before_step, step,
								 after_step });
	each_allocation(_metadata, self,
			&(struct call){ "query_qp", NULL, query_qp, after_query });
	pair_destroy(&self->p);
}

/*
 * The first messages of a connection. If the core has no memory for the doorbell it does not reach
 * the driver; the request is in the ring and runs with the next one.
 */

static int connect_both(BENCH *b)
{
	int err = reset_both(b);

	drain_cq(b->p.a.scq);
	drain_cq(b->p.a.rcq);
	return err ? err : pair_connect(&b->r, &b->p);
}

static int post_first(BENCH *b)
{
	return post_op(b->p.a.qp, 10, IBV_WR_RDMA_WRITE, sge_of(&b->large, 0, b->posted),
		       (uintptr_t)b->large.addr + MIB, b->large.mr->rkey, 0);
}

static int after_post(BENCH *b, int err)
{
	struct ibv_wc wc;

	err = post_op(b->p.a.qp, 11, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0);
	for (int id = 10; !err && id <= 11; id++)
		if (poll_one(b->p.a.scq, &wc) != 1 || wc.wr_id != (uint64_t)id || wc.status)
			return EILSEQ;
	if (!err && ibv_poll_cq(b->p.a.scq, 1, &wc))
		return EILSEQ;
	return err ? err : memcmp(b->large.addr, b->large.addr + MIB, b->posted) ? EILSEQ : 0;
}

TEST_F_TIMEOUT(nomem, first_message, 240)
{
	const struct call post = { "post_send", connect_both, post_first, after_post };

	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	pattern_fill(self->large.addr, MIB, 5);
	for (int i = 0; i < 2; i++) {
		/* Within the doorbell, or carried on by the workqueue. */
		self->posted = i ? MIB : 64;
		each_allocation_of_teardown(_metadata, self, &post);
	}
	pair_destroy(&self->p);
}

/* Teardown of a stream that is running. */

static int start_stream(BENCH *b)
{
	int err = connect_both(b);

	for (b->posted = 0; !err && b->posted < STREAM; b->posted++)
		err = post_op(b->p.a.qp, b->posted, IBV_WR_RDMA_WRITE, sge_of(&b->large, 0, MIB),
			      (uintptr_t)b->region.addr, b->region.mr->rkey, 0);
	return err;
}

/* All that was posted completes, in order: good up to some point, then @first_bad, then flushed. */
static int all_complete(BENCH *b, enum ibv_wc_status first_bad)
{
	bool bad = false;
	struct ibv_wc wc;

	for (int i = 0; i < b->posted; i++) {
		if (poll_one(b->p.a.scq, &wc) != 1 || wc.wr_id != (uint64_t)i)
			return EILSEQ;
		if (wc.status != IBV_WC_SUCCESS &&
		    wc.status != (bad ? IBV_WC_WR_FLUSH_ERR : first_bad))
			return EILSEQ;
		if (bad && wc.status == IBV_WC_SUCCESS)
			return EILSEQ;
		bad = wc.status != IBV_WC_SUCCESS;
	}
	return ibv_poll_cq(b->p.a.scq, 1, &wc) ? EILSEQ : 0;
}

static int to_error(BENCH *b)
{
	return qp_to(b->p.a.qp, IBV_QPS_ERR);
}

static int after_error(BENCH *b, int err)
{
	if (err)
		err = to_error(b);
	return err ? err : all_complete(b, IBV_WC_WR_FLUSH_ERR);
}

static int to_reset(BENCH *b)
{
	return qp_to(b->p.a.qp, IBV_QPS_RESET);
}

static int after_reset(BENCH *b, int err)
{
	if (err)
		err = to_reset(b);
	drain_cq(b->p.a.scq);
	return err || ibv_poll_cq(b->p.a.scq, 1, &(struct ibv_wc){ 0 }) ? EILSEQ : 0;
}

static int start_stream_of_new(BENCH *b)
{
	int err = b->p.a.qp ? 0 : make_qp(b);

	return err ? err : start_stream(b);
}

/* As many objects as before the call, which the next round takes away. */
static int after_destroy(BENCH *b, int err)
{
	if (err)
		err = take_qp(b);
	drain_cq(b->p.a.scq);
	return err ? err : make_qp(b);
}

static int start_stream_to_new(BENCH *b)
{
	int err = b->region.mr ? 0 : make_region(b);

	return err ? err : start_stream(b);
}

static int after_dereg(BENCH *b, int err)
{
	if (err)
		err = take_region(b);
	if (!err)
		err = all_complete(b, IBV_WC_REM_ACCESS_ERR);
	return err ? err : make_region(b);
}

TEST_F_TIMEOUT(nomem, teardown_of_a_stream, 240)
{
	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	ASSERT_EQ(0, region_create(&self->region, self->r.pd, MIB, RC_ACCESS));
	each_allocation_of_teardown(_metadata, self, &(struct call){
			"modify_qp to ERR", start_stream, to_error, after_error });
	each_allocation_of_teardown(_metadata, self, &(struct call){
			"modify_qp to RESET", start_stream, to_reset, after_reset });
	each_allocation_of_teardown(_metadata, self, &(struct call){
			"destroy_qp in a stream", start_stream_of_new, take_qp, after_destroy });
	each_allocation_of_teardown(_metadata, self, &(struct call){
			"dereg_mr in a stream", start_stream_to_new, take_region, after_dereg });
	region_free(&self->region);
	pair_destroy(&self->p);
}

/* Several things as one: without memory the request is refused, and nothing has changed. */

static int take_both(BENCH *b)
{
	struct sluice_action a[] = {
		{ .kind = SLUICE_REVOKE_MR, .mr = b->region.mr },
		{ .kind = SLUICE_RESET_QP, .qp = b->p.a.qp },
	};

	return sluice_teardown(b->r.ctx, a, ARRAY_SIZE(a), SLUICE_GROUPED, NULL);
}

static int after_both(BENCH *b, int err)
{
	if (err) {
		/* The stream goes on to its end. */
		if (all_complete(b, IBV_WC_SUCCESS))
			return EILSEQ;
		err = take_both(b);
	}
	drain_cq(b->p.a.scq);
	if (!err)
		err = take_region(b);
	return err ? err : make_region(b);
}

TEST_F_TIMEOUT(nomem, several_as_one, 240)
{
	ASSERT_EQ(0, pair_create(&self->r, &self->p, NULL));
	ASSERT_EQ(0, region_create(&self->region, self->r.pd, MIB, RC_ACCESS));
	EXPECT_LT(0, each_allocation(_metadata, self, &(struct call){
			"several as one", start_stream, take_both, after_both }));
	region_free(&self->region);
	pair_destroy(&self->p);
}

/* A process that ends in the midst of its stream; the allocations are those of its exit. */

static void live_until_exit(unsigned int n)
{
	struct region src, dst;
	struct rdma r;
	struct pair p;

	if (rdma_open(&r) || region_create(&src, r.pd, MIB, RC_ACCESS) ||
	    region_create(&dst, r.pd, MIB, RC_ACCESS) || pair_create(&r, &p, NULL))
		_exit(1);
	for (int i = 0; i < STREAM; i++)
		if (post_rdma(p.a.qp, i, IBV_WR_RDMA_WRITE, &src, MIB, &dst))
			_exit(1);
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	arm(n);
	_exit(0);
}

TEST_F_TIMEOUT(nomem, exit_of_a_process, 240)
{
	char objects[128];

	/* More than an exit has been seen to make; nobody is there to ask afterwards. */
	ASSERT_EQ(0, nldev_objects(&self->nl, self->index, objects));
	for (unsigned int n = 1; n <= 30; n++) {
		pid_t pid = fork();
		int status;

		if (!pid)
			live_until_exit(n);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_EQ(0, status) TH_LOG("allocation %u", n);
		expect_as_before(_metadata, self, objects);
	}
}

/* Links. */

#define NETDEV "sluice-n"
#define DEV "sluice_n"

static const char *link_type(void)
{
	const char *type = getenv("SLUICE_TYPE");

	return type && *type ? type : "sluice";
}

/* Fails if it is not there. */
static int remove_netdev(void)
{
	return system("ip link del " NETDEV " 2>/dev/null");
}

static int make_netdev(void)
{
	remove_netdev();
	return system("ip link add " NETDEV " type dummy && ip link set " NETDEV " mtu 4608 up && "
		      "ip addr add 192.168.96.1/24 dev " NETDEV);
}

/* The request with its @n-th allocation failing: what it has come to, and whether one failed. */
static int request(struct nldev *nl, unsigned int n, bool *injected)
{
	int err;

	arm(n);
	err = nldev_send(nl);
	*injected = disarm();
	return err ? err : nldev_result(nl);
}

static int add_link(struct nldev *nl)
{
	nldev_new_link(nl, DEV, link_type(), NETDEV);
	return nldev_send(nl) ? errno : nldev_result(nl);
}

static int delete_link(struct nldev *nl)
{
	int64_t index = nldev_index(nl, DEV);

	if (index < 0)
		return ENODEV;
	nldev_del_link(nl, index);
	return nldev_send(nl) ? errno : nldev_result(nl);
}

/* A link is there, or it is not and can be made. Behind the @n-th, @n / @share are left out. */
static void expect_links(struct __test_metadata *_metadata, BENCH *b, unsigned int share)
{
	unsigned int n, failures = 0, tries = 0;
	bool injected = true;
	char objects[128];

	ASSERT_EQ(0, make_netdev());
	ASSERT_EQ(0, nldev_objects(&b->nl, b->index, objects));
	for (n = 1; injected; n += 1 + n / share) {
		bool there;
		int err;

		ASSERT_LT(n, MOST);
		tries++;
		nldev_new_link(&b->nl, DEV, link_type(), NETDEV);
		err = request(&b->nl, n, &injected);
		there = nldev_index(&b->nl, DEV) >= 0;
		if (err) {
			failures++;
			ASSERT_TRUE(injected) TH_LOG("errno %d", err);
			EXPECT_TRUE(no_memory(err)) TH_LOG("allocation %u: %s", n, strerror(err));
		} else {
			ASSERT_TRUE(there);
		}
		if (there)
			ASSERT_EQ(0, delete_link(&b->nl)) TH_LOG("allocation %u", n);
		expect_as_before(_metadata, b, objects);
	}
	TH_LOG("link add: %u allocations tried, %u of them needed", tries - 1, failures);
	ASSERT_EQ(0, add_link(&b->nl));
	ASSERT_EQ(0, delete_link(&b->nl));
	remove_netdev();
}

TEST_F_TIMEOUT(nomem, link_add, 120)
{
	/* Registration with the core is many allocations of the core's, and takes its time. */
	ASSERT_TRUE(none_below(" ib_register_device\n"));
	expect_links(_metadata, self, MOST);
	ASSERT_TRUE(none_below(NULL));
}

TEST_F_TIMEOUT(nomem, link_add_as_far_as_the_core, 290)
{
	/*
	 * A radix tree (7.3.4) that cannot have the node it needs keeps those that it has got for
	 * that entry so far, empty; ib_uverbs, which frees its tree entry by entry, never finds
	 * them, but kmemleak would.
	 */
	ASSERT_TRUE(none_below(" radix_tree_insert\n"));
	/* The further on, the fewer: 8, 9, 11, 13, ... */
	expect_links(_metadata, self, 8);
	ASSERT_TRUE(none_below(NULL));
}

/* A link goes when it is deleted: what is short of memory is at most the answer. */
TEST_F_TIMEOUT(nomem, link_del, 290)
{
	bool injected = true;

	ASSERT_EQ(0, make_netdev());
	for (unsigned int n = 1; injected; n += 1 + n / 8) {
		int64_t index;
		int err;

		ASSERT_LT(n, MOST);
		ASSERT_EQ(0, add_link(&self->nl));
		index = nldev_index(&self->nl, DEV);
		ASSERT_GE(index, 0);
		nldev_del_link(&self->nl, index);
		err = request(&self->nl, n, &injected);
		EXPECT_TRUE(!err || (injected && no_memory(err))) TH_LOG("errno %d", err);
		/* Without memory for the request it has not been read. */
		if (nldev_index(&self->nl, DEV) >= 0) {
			EXPECT_NE(0, err);
			ASSERT_EQ(0, delete_link(&self->nl));
		}
	}
	remove_netdev();
}

/* The netdev goes down, up, and away below a link. */

static int set_up(int fd, bool up)
{
	struct ifreq request = { .ifr_name = NETDEV, .ifr_flags = up ? IFF_UP : 0 };

	return ioctl(fd, SIOCSIFFLAGS, &request) ? errno : 0;
}

TEST_F_TIMEOUT(nomem, netdev_down_and_up, 240)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool injected = true;
	struct rdma r;

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, make_netdev());
	ASSERT_EQ(0, add_link(&self->nl));
	for (int i = 0; i < 100 && rdma_open_name(&r, DEV); i++)
		sleep_ms(50);
	ASSERT_NE(NULL, r.ctx);
	/* Only what the driver does with it; the state of the port follows in any case. */
	ASSERT_TRUE(only_of_driver(!strcmp(link_type(), "sluice")));
	for (unsigned int n = 1; injected; n++) {
		bool down, up;

		arm(n);
		EXPECT_EQ(0, set_up(fd, false));
		down = disarm();
		ASSERT_EQ(0, ibv_query_port(r.ctx, 1, &r.port));
		EXPECT_EQ(IBV_PORT_DOWN, r.port.state);
		arm(n);
		EXPECT_EQ(0, set_up(fd, true));
		up = disarm();
		ASSERT_EQ(0, ibv_query_port(r.ctx, 1, &r.port));
		EXPECT_EQ(IBV_PORT_ACTIVE, r.port.state);
		injected = down || up;
	}
	ASSERT_TRUE(only_of_driver(false));
	rdma_close(&r);
	remove_netdev();
	for (int i = 0; i < 100 && nldev_index(&self->nl, DEV) >= 0; i++)
		sleep_ms(50);
	EXPECT_EQ(-1, nldev_index(&self->nl, DEV));
	close(fd);
}

TEST_HARNESS_MAIN
