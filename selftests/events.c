// SPDX-License-Identifier: GPL-2.0
/*
 * Asynchronous events and the life of a device below its users: port state, MTU and GIDs follow
 * the netdev; a device taken away under a running stream gives device-fatal and clean errors.
 *
 * Each test makes a device of its own on a dummy netdev of its own, so it needs root and the
 * programs ip and rdma. SLUICE_TYPE is the link type, "sluice" if unset.
 */

#include "kselftest_harness.h"
#include "knobs.h"
#include "sluice_teardown.h"
#include "stream.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/wait.h>

#define NETDEV "sluice-t"
#define DEV "sluice_t"

static int shell(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command);
}

static const char *link_type(void)
{
	const char *type = getenv("SLUICE_TYPE");

	return type && *type ? type : "sluice";
}

FIXTURE(link) {
	struct rdma r;
};

static void remove_all(void)
{
	shell("rdma link del " DEV "/1 2>/dev/null || rdma link del " DEV " 2>/dev/null");
	shell("ip link del " NETDEV " 2>/dev/null");
}

FIXTURE_SETUP(link)
{
	remove_all();
	ASSERT_EQ(0, shell("ip link add " NETDEV " type dummy"));
	ASSERT_EQ(0, shell("ip link set " NETDEV " mtu 4608 up"));
	ASSERT_EQ(0, shell("ip addr add 192.168.93.1/24 dev " NETDEV));
	ASSERT_EQ(0, shell("rdma link add " DEV " type %s netdev " NETDEV, link_type()));
	/* The GID table is filled by a work item. */
	for (int i = 0; i < 50 && rdma_open_name(&self->r, DEV); i++)
		sleep_ms(50);
	ASSERT_NE(NULL, self->r.ctx);
}

FIXTURE_TEARDOWN(link)
{
	rdma_close(&self->r);
	remove_all();
}

/* Waits for one event of the device or the port; others are dropped. */
static bool event_comes(struct ibv_context *ctx, enum ibv_event_type type)
{
	uint64_t end = now_ms() + LIMIT_MS;
	struct ibv_async_event event;

	while (now_ms() < end) {
		if (next_event(ctx, &event, end - now_ms()) == (int)type)
			return true;
	}
	return false;
}

static int port_state(struct ibv_context *ctx)
{
	struct ibv_port_attr port;

	return ibv_query_port(ctx, 1, &port) ? -1 : (int)port.state;
}

static bool mtu_becomes(struct ibv_context *ctx, enum ibv_mtu mtu)
{
	struct ibv_port_attr port;

	for (int i = 0; i < 100; i++, sleep_ms(20))
		if (!ibv_query_port(ctx, 1, &port) && port.active_mtu == mtu)
			return true;
	return false;
}

TEST_F(link, port_follows_the_netdev)
{
	ASSERT_EQ(IBV_PORT_ACTIVE, port_state(self->r.ctx));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, shell("ip link set " NETDEV " down"));
		EXPECT_TRUE(event_comes(self->r.ctx, IBV_EVENT_PORT_ERR));
		EXPECT_EQ(IBV_PORT_DOWN, port_state(self->r.ctx));
		ASSERT_EQ(0, shell("ip link set " NETDEV " up"));
		EXPECT_TRUE(event_comes(self->r.ctx, IBV_EVENT_PORT_ACTIVE));
		EXPECT_EQ(IBV_PORT_ACTIVE, port_state(self->r.ctx));
	}
}

TEST_F(link, mtu_follows_the_netdev)
{
	EXPECT_TRUE(mtu_becomes(self->r.ctx, IBV_MTU_4096));
	ASSERT_EQ(0, shell("ip link set " NETDEV " mtu 1500"));
	EXPECT_TRUE(mtu_becomes(self->r.ctx, IBV_MTU_1024));
	ASSERT_EQ(0, shell("ip link set " NETDEV " mtu 9000"));
	EXPECT_TRUE(mtu_becomes(self->r.ctx, IBV_MTU_4096));
	ASSERT_EQ(0, shell("ip link set " NETDEV " mtu 576"));
	EXPECT_TRUE(mtu_becomes(self->r.ctx, IBV_MTU_512) ||
		    mtu_becomes(self->r.ctx, IBV_MTU_256));
}

static bool gid_of(struct ibv_context *ctx, int entries, const char *address)
{
	uint8_t want[16] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;

	inet_pton(AF_INET, address, want + 12);
	for (int i = 0; i < entries; i++)
		if (!ibv_query_gid_ex(ctx, 1, i, &entry, 0) && !memcmp(entry.gid.raw, want, 16))
			return true;
	return false;
}

TEST_F(link, gids_follow_the_addresses)
{
	int entries = self->r.port.gid_tbl_len;

	EXPECT_TRUE(gid_of(self->r.ctx, entries, "192.168.93.1"));
	EXPECT_FALSE(gid_of(self->r.ctx, entries, "192.168.93.77"));
	ASSERT_EQ(0, shell("ip addr add 192.168.93.77/24 dev " NETDEV));
	EXPECT_TRUE(event_comes(self->r.ctx, IBV_EVENT_GID_CHANGE));
	EXPECT_TRUE(gid_of(self->r.ctx, entries, "192.168.93.77"));
	ASSERT_EQ(0, shell("ip addr del 192.168.93.77/24 dev " NETDEV));
	EXPECT_TRUE(event_comes(self->r.ctx, IBV_EVENT_GID_CHANGE));
	EXPECT_FALSE(gid_of(self->r.ctx, entries, "192.168.93.77"));
}

TEST_F(link, names_and_netdevs_that_cannot_be)
{
	/* A name in use, no such netdev, no such type. */
	EXPECT_NE(0, shell("rdma link add " DEV " type %s netdev " NETDEV " 2>/dev/null",
			   link_type()));
	EXPECT_NE(0, shell("rdma link add sluice_u type %s netdev no-such-dev 2>/dev/null",
			   link_type()));
	EXPECT_NE(0, shell("rdma link add sluice_u type no-such-type netdev " NETDEV
			   " 2>/dev/null"));
	EXPECT_NE(0, shell("rdma link del no_such_link 2>/dev/null"));
	EXPECT_EQ(IBV_PORT_ACTIVE, port_state(self->r.ctx));
}

/* A stream on the device of the test. */
static int own_stream(struct stream *s, struct rdma *r)
{
	int err;

	memset(s, 0, sizeof(*s));
	s->op = IBV_WR_RDMA_WRITE;
	s->r = *r;
	err = region_create(&s->src, r->pd, SLOTS * MSG, RC_ACCESS);
	if (!err)
		err = region_create(&s->dst, r->pd, MSG, RC_ACCESS);
	if (!err)
		err = stream_renew(s);
	return err ? err : stream_start(s);
}

/* What is left of a device whose context is still open. */
static void expect_dead(struct __test_metadata *_metadata, struct stream *s)
{
	struct region own;
	uint64_t start = now_ms();

	EXPECT_TRUE(event_comes(s->r.ctx, IBV_EVENT_DEVICE_FATAL)) TH_LOG("no device-fatal event");
	poison(s->dst.addr, WORDS, POISON_WRITTEN);
	usleep(30000);
	/* I7 and I1: gone is gone. */
	EXPECT_TRUE(poison_intact(s->dst.addr, WORDS, POISON_WRITTEN))
		TH_LOG("bytes were written after the device had gone");

	/* New objects are refused, old ones can be given back. */
	EXPECT_EQ(EIO, region_create(&own, s->r.pd, PAGE, RC_ACCESS));
	EXPECT_EQ(NULL, ibv_create_cq(s->r.ctx, 16, NULL, NULL, 0));
	EXPECT_EQ(NULL, ibv_alloc_pd(s->r.ctx));
	EXPECT_NE(0, qp_to(s->p.a.qp, IBV_QPS_RESET));
	EXPECT_NE(0, post_msg(s->p.a.qp, 1, &s->src, 8));
	pair_destroy(&s->p);
	EXPECT_EQ(NULL, s->p.a.qp);
	region_free(&s->src);
	region_free(&s->dst);
	EXPECT_LT(now_ms() - start, 10000);
}

TEST_F(link, removed_under_a_stream)
{
	struct stream s;
	uint64_t start;

	ASSERT_EQ(0, own_stream(&s, &self->r));
	stream_run(&s, 2, 400);
	start = now_ms();
	ASSERT_EQ(0, shell("rdma link del " DEV));
	EXPECT_LT(now_ms() - start, 10000);
	expect_dead(_metadata, &s);
	/* Its name is free again, although the old context is still open. */
	ASSERT_EQ(0, shell("rdma link add " DEV " type %s netdev " NETDEV, link_type()));
}

TEST_F(link, netdev_removed_under_a_stream)
{
	struct stream s;
	uint64_t start;

	ASSERT_EQ(0, own_stream(&s, &self->r));
	stream_run(&s, 2, 400);
	start = now_ms();
	ASSERT_EQ(0, shell("ip link del " NETDEV));
	EXPECT_LT(now_ms() - start, 10000);
	expect_dead(_metadata, &s);
	EXPECT_NE(0, shell("rdma link show " DEV "/1 >/dev/null 2>&1")) TH_LOG("still there");
}

#define NETNS "sluice-ns"

TEST_F(link, namespace_ends_under_a_stream)
{
	struct rdma r = { 0 };
	struct stream s;
	uint64_t start;

	/* The device of the fixture makes room for one whose netdev lives in a namespace. */
	rdma_close(&self->r);
	remove_all();
	if (shell("ip netns add " NETNS))
		SKIP(return, "no network namespaces");
	ASSERT_EQ(0, shell("ip -n " NETNS " link add " NETDEV " type dummy"));
	ASSERT_EQ(0, shell("ip -n " NETNS " link set " NETDEV " mtu 4608 up"));
	ASSERT_EQ(0, shell("ip -n " NETNS " addr add 192.168.93.1/24 dev " NETDEV));
	if (shell("ip netns exec " NETNS " rdma link add " DEV " type %s netdev " NETDEV,
		  link_type())) {
		shell("ip netns del " NETNS);
		SKIP(return, "no devices in namespaces");
	}
	for (int i = 0; i < 50 && rdma_open_name(&r, DEV); i++)
		sleep_ms(50);
	ASSERT_NE(NULL, r.ctx);
	ASSERT_EQ(0, own_stream(&s, &r));
	stream_run(&s, 2, 400);
	start = now_ms();
	ASSERT_EQ(0, shell("ip netns del " NETNS));
	/* The namespace is taken apart by a work item. */
	for (int i = 0; i < 100 && access("/sys/class/infiniband/" DEV, F_OK) == 0; i++)
		sleep_ms(100);
	EXPECT_LT(now_ms() - start, 10000);
	expect_dead(_metadata, &s);
	rdma_close(&s.r);
}

static void *remove_link(void *arg)
{
	sleep_ms(200);
	*(int *)arg = shell("rdma link del " DEV);
	return NULL;
}

/* The removal waits for a call that is in progress, and that comes to its end as ever. */
TEST_F(link, removed_in_the_midst_of_a_call)
{
	int removed = -1;
	pthread_t thread;
	struct stream s;

	ASSERT_EQ(0, setenv("SLUICE_DEV", DEV, 1));
	if (open_hold(O_RDONLY) < 0)
		SKIP(return, "the device has no hold points");
	ASSERT_EQ(0, knob_set("drain_timeout_ms", "1500"));
	ASSERT_EQ(0, own_stream(&s, &self->r));
	ASSERT_EQ(0, hold("qp %u boundary 2", s.p.a.qp->qp_num));
	ASSERT_TRUE(hold_shows("parked", true));
	struct sluice_action a[] = {
		{ .kind = SLUICE_RESET_QP, .qp = s.p.a.qp },
		{ .kind = SLUICE_REVOKE_MR, .mr = s.dst.mr, .close = SLUICE_CLOSE_DRAIN },
	};

	ASSERT_EQ(0, pthread_create(&thread, NULL, remove_link, &removed));
	EXPECT_EQ(0, sluice_teardown(s.r.ctx, a, 2, SLUICE_INDIVIDUAL, NULL));
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(SLUICE_CANCELLED, (int)a[i].result.outcome);
		EXPECT_EQ(SLUICE_PAST_DEADLINE, (int)a[i].result.flags);
	}
	pthread_join(thread, NULL);
	EXPECT_EQ(0, removed);
	EXPECT_EQ(EIO, sluice_teardown(s.r.ctx, a, 2, SLUICE_INDIVIDUAL, NULL));
	expect_dead(_metadata, &s);
}

TEST_F(link, sleepers_are_woken)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(self->r.ctx);
	struct rc_opts o = RC_DEFAULTS;
	struct pollfd fd;
	pthread_t thread;
	struct rc q;
	int removed = -1;

	/* One who waits for a completion that will not come any more. */
	ASSERT_NE(NULL, channel);
	o.channel = channel;
	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	ASSERT_EQ(0, ibv_req_notify_cq(q.scq, 0));
	ASSERT_EQ(0, pthread_create(&thread, NULL, remove_link, &removed));
	fd = (struct pollfd){ .fd = channel->fd, .events = POLLIN };
	EXPECT_EQ(1, poll(&fd, 1, LIMIT_MS)) TH_LOG("still asleep");
	pthread_join(thread, NULL);
	EXPECT_EQ(0, removed);
	EXPECT_EQ(0, rc_destroy(&q));
	EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
}

TEST_F(link, removed_while_a_process_exits)
{
	for (int round = 0; round < 10; round++) {
		int status, removed = -1;
		pthread_t thread;
		pid_t pid = fork();

		if (!pid) {
			struct stream s;
			struct rdma r;

			if (rdma_open_name(&r, DEV) || own_stream(&s, &r))
				_exit(1);
			sleep_ms(180 + round * 5);
			_exit(0);
		}
		ASSERT_EQ(0, pthread_create(&thread, NULL, remove_link, &removed));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		pthread_join(thread, NULL);
		EXPECT_EQ(0, removed);
		/* The child may have found the device gone before it had everything. */
		EXPECT_TRUE(WIFEXITED(status));
		ASSERT_EQ(0, shell("rdma link add " DEV " type %s netdev " NETDEV, link_type()));
		sleep_ms(100);
	}
}

TEST_F(link, mapped_rings_of_a_dead_device)
{
	struct rc_opts o = RC_DEFAULTS;
	struct ibv_wc wc;
	struct pair p;

	/* The library polls and posts in mapped memory: no SIGBUS, and nothing happens. */
	ASSERT_EQ(0, pair_create(&self->r, &p, &o));
	ASSERT_EQ(0, shell("rdma link del " DEV));
	EXPECT_GE(ibv_poll_cq(p.a.scq, 1, &wc), 0);
	EXPECT_NE(0, post_op(p.a.qp, 1, IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0 }, 0, 0, 0));
	EXPECT_GE(ibv_poll_cq(p.a.scq, 1, &wc), 0);
	pair_destroy(&p);
}

TEST_F(link, two_devices)
{
	struct rdma other;

	/* Each keeps to its own; a queue pair of one does not reach those of the other. */
	if (rdma_open(&other))
		SKIP(return, "there is no second device");
	EXPECT_NE(other.ctx->device, self->r.ctx->device);
	rdma_close(&other);
}

TEST_HARNESS_MAIN
