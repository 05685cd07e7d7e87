// SPDX-License-Identifier: GPL-2.0
/*
 * What the device says about itself: ibv_query_device, port, GIDs and P_Keys have sane values
 * that agree with each other and with the netdev below.
 */

#include "kselftest_harness.h"
#include "verbs_lib.h"

#include <net/if.h>

FIXTURE(device) {
	struct rdma r;
};

FIXTURE_SETUP(device)
{
	ASSERT_EQ(0, rdma_open(&self->r));
}

FIXTURE_TEARDOWN(device)
{
	rdma_close(&self->r);
}

TEST_F(device, is_a_roce_adapter)
{
	struct ibv_device *dev = self->r.ctx->device;

	EXPECT_EQ(IBV_NODE_CA, dev->node_type);
	EXPECT_EQ(IBV_TRANSPORT_IB, dev->transport_type);
	EXPECT_STREQ(device_name(), ibv_get_device_name(dev));
	EXPECT_NE(0, ibv_get_device_guid(dev));
	EXPECT_GE(self->r.ctx->num_comp_vectors, 1);
}

TEST_F(device, limits_are_usable)
{
	struct ibv_device_attr *a = &self->r.attr;

	EXPECT_EQ(1, a->phys_port_cnt);
	EXPECT_NE(0, a->node_guid);
	EXPECT_NE(0, a->sys_image_guid);
	EXPECT_NE(0, a->page_size_cap & PAGE);
	EXPECT_GE(a->max_mr_size, 2 * GIB);
	EXPECT_GE(a->max_qp, 1024);
	EXPECT_GE(a->max_qp_wr, 1024);
	EXPECT_GE(a->max_sge, 32);
	EXPECT_GE(a->max_cq, 1024);
	EXPECT_GE(a->max_cqe, 4096);
	EXPECT_GE(a->max_mr, 1024);
	EXPECT_GE(a->max_pd, 128);
	EXPECT_GE(a->max_ah, 1);
	EXPECT_GE(a->max_qp_rd_atom, 1);
	EXPECT_GE(a->max_qp_init_rd_atom, 1);
	EXPECT_GE(a->max_pkeys, 1);
	EXPECT_NE(IBV_ATOMIC_NONE, a->atomic_cap);
	EXPECT_NE(0, memchr(a->fw_ver, 0, sizeof(a->fw_ver)));
}

TEST_F(device, extended_query_agrees)
{
	struct ibv_device_attr_ex ex = { 0 };

	ASSERT_EQ(0, ibv_query_device_ex(self->r.ctx, NULL, &ex));
	EXPECT_EQ(self->r.attr.max_qp, ex.orig_attr.max_qp);
	EXPECT_EQ(self->r.attr.max_sge, ex.orig_attr.max_sge);
	EXPECT_EQ(self->r.attr.node_guid, ex.orig_attr.node_guid);
	EXPECT_EQ(1, ex.phys_port_cnt_ex);
}

TEST_F(device, port_is_active_ethernet)
{
	struct ibv_port_attr *p = &self->r.port;

	EXPECT_EQ(IBV_PORT_ACTIVE, p->state);
	EXPECT_EQ(5, p->phys_state) TH_LOG("physical state is not LinkUp");
	EXPECT_EQ(IBV_LINK_LAYER_ETHERNET, p->link_layer);
	EXPECT_GE(p->active_mtu, IBV_MTU_256);
	EXPECT_LE(p->active_mtu, p->max_mtu);
	EXPECT_LE(p->max_mtu, IBV_MTU_4096);
	EXPECT_GE(p->max_msg_sz, 1U << 31);
	EXPECT_GE(p->gid_tbl_len, 1);
	EXPECT_GE(p->pkey_tbl_len, 1);
	EXPECT_EQ(0, p->lid);
	EXPECT_NE(0, p->active_width);
	EXPECT_NE(0, p->active_speed);
}

TEST_F(device, port_numbers_out_of_range_are_refused)
{
	struct ibv_port_attr p;

	EXPECT_NE(0, ibv_query_port(self->r.ctx, 0, &p));
	EXPECT_NE(0, ibv_query_port(self->r.ctx, 2, &p));
	EXPECT_NE(0, ibv_query_port(self->r.ctx, 255, &p));
}

static int netdev_of(const char *dev, int gid_index, char *name)
{
	char path[256];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%d", dev,
		 gid_index);
	f = fopen(path, "r");
	if (!f)
		return -1;
	n = fscanf(f, "%15s", name);
	fclose(f);
	return n == 1 ? 0 : -1;
}

TEST_F(device, gids_are_rocev2_of_the_netdev)
{
	union ibv_gid gid, zero = { 0 };
	struct ibv_gid_entry entry;
	char name[IF_NAMESIZE];
	int found = 0;

	for (int i = 0; i < self->r.port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(self->r.ctx, 1, i, &entry, 0))
			continue;
		found++;
		EXPECT_EQ(IBV_GID_TYPE_ROCE_V2, entry.gid_type);
		EXPECT_EQ(1, entry.port_num);
		EXPECT_NE(0, memcmp(&entry.gid, &zero, sizeof(zero)));
		ASSERT_EQ(0, netdev_of(device_name(), i, name));
		EXPECT_EQ(if_nametoindex(name), entry.ndev_ifindex);
		ASSERT_EQ(0, ibv_query_gid(self->r.ctx, 1, i, &gid));
		EXPECT_EQ(0, memcmp(&entry.gid, &gid, sizeof(gid)));
	}
	EXPECT_GE(found, 1);
	EXPECT_NE(0, ibv_query_gid_ex(self->r.ctx, 1, self->r.port.gid_tbl_len, &entry, 0));
	EXPECT_NE(0, ibv_query_gid_ex(self->r.ctx, 2, 0, &entry, 0));
}

TEST_F(device, default_pkey_only)
{
	__be16 pkey;

	ASSERT_EQ(0, ibv_query_pkey(self->r.ctx, 1, 0, &pkey));
	EXPECT_EQ(0xffff, ntohs(pkey));
	EXPECT_NE(0, ibv_query_pkey(self->r.ctx, 1, self->r.port.pkey_tbl_len, &pkey));
}

TEST_F(device, many_contexts_and_pds)
{
	struct ibv_context *ctx[16];
	struct ibv_pd *pd[16];

	for (int i = 0; i < 16; i++) {
		ctx[i] = open_context(device_name());
		ASSERT_NE(NULL, ctx[i]);
		pd[i] = ibv_alloc_pd(ctx[i]);
		ASSERT_NE(NULL, pd[i]);
	}
	for (int i = 0; i < 16; i++) {
		EXPECT_EQ(0, ibv_dealloc_pd(pd[i]));
		EXPECT_EQ(0, ibv_close_device(ctx[i]));
	}
}

TEST_F(device, address_handle)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = self->r.gid,
			.sgid_index = self->r.gid_index,
			.hop_limit = 64,
		},
	};
	struct ibv_ah *ah = ibv_create_ah(self->r.pd, &attr);

	ASSERT_NE(NULL, ah);
	EXPECT_EQ(0, ibv_destroy_ah(ah));

	attr.port_num = 2;
	EXPECT_EQ(NULL, ibv_create_ah(self->r.pd, &attr));
	attr.port_num = 1;
	attr.grh.sgid_index = self->r.port.gid_tbl_len;
	EXPECT_EQ(NULL, ibv_create_ah(self->r.pd, &attr));
	/* RoCE has no other addresses than global ones. */
	attr.grh.sgid_index = self->r.gid_index;
	attr.is_global = 0;
	EXPECT_EQ(NULL, ibv_create_ah(self->r.pd, &attr));
}

TEST_F(device, unsupported_qp_types_are_refused)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND,
						  IBV_QPT_DRIVER };
	struct ibv_cq *cq = ibv_create_cq(self->r.ctx, 16, NULL, NULL, 0);

	ASSERT_NE(NULL, cq);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = types[i],
			.cap = { 1, 1, 1, 1, 0 },
		};

		EXPECT_EQ(NULL, ibv_create_qp(self->r.pd, &init))
			TH_LOG("queue pair type %d was created", types[i]);
	}
	EXPECT_EQ(0, ibv_destroy_cq(cq));
}

TEST_F(device, qp_capabilities)
{
	struct rc_opts o = RC_DEFAULTS;
	struct rc q;

	/* Granted is at least what was asked for. */
	o.send_depth = 33;
	o.recv_depth = 65;
	o.send_sge = 32;
	o.recv_sge = 32;
	o.inline_bytes = 128;
	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	EXPECT_GE(q.cap.max_send_wr, 33);
	EXPECT_GE(q.cap.max_recv_wr, 65);
	EXPECT_GE(q.cap.max_send_sge, 32);
	EXPECT_GE(q.cap.max_recv_sge, 32);
	EXPECT_GE(q.cap.max_inline_data, 128);
	EXPECT_EQ(0, rc_destroy(&q));

	o = RC_DEFAULTS;
	o.send_depth = self->r.attr.max_qp_wr + 1;
	EXPECT_EQ(EINVAL, rc_create(&self->r, &q, &o));
	o = RC_DEFAULTS;
	o.recv_depth = self->r.attr.max_qp_wr + 1;
	EXPECT_EQ(EINVAL, rc_create(&self->r, &q, &o));
	o = RC_DEFAULTS;
	o.send_sge = self->r.attr.max_sge + 1;
	EXPECT_EQ(EINVAL, rc_create(&self->r, &q, &o));
	o = RC_DEFAULTS;
	o.recv_sge = self->r.attr.max_sge + 1;
	EXPECT_EQ(EINVAL, rc_create(&self->r, &q, &o));
	o = RC_DEFAULTS;
	o.inline_bytes = 1 << 20;
	EXPECT_EQ(EINVAL, rc_create(&self->r, &q, &o));
}

TEST_F(device, objects_in_use_are_busy)
{
	struct rc_opts o = RC_DEFAULTS;
	struct region g;
	struct rc q;

	ASSERT_EQ(0, rc_create(&self->r, &q, &o));
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(self->r.pd));
	EXPECT_EQ(EBUSY, ibv_destroy_cq(q.scq));
	EXPECT_EQ(0, rc_destroy(&q));

	ASSERT_EQ(0, region_create(&g, self->r.pd, PAGE, IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(self->r.pd));
	region_free(&g);
	EXPECT_EQ(0, ibv_dealloc_pd(self->r.pd));
	self->r.pd = NULL;
}

TEST_HARNESS_MAIN
