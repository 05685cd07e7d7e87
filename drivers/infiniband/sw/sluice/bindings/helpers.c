// SPDX-License-Identifier: GPL-2.0

#include "helpers.h"

#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/mm.h>
#include <linux/sched/stat.h>
#include <net/netlink.h>
#include <rdma/rdma_netlink.h>

void sluice_netdev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void sluice_netdev_put(struct net_device *dev)
{
	dev_put(dev);
}

struct net *sluice_netdev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

const char *sluice_netdev_name(const struct net_device *dev)
{
	return netdev_name(dev);
}

unsigned int sluice_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

bool sluice_netdev_is_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

/* As ib_core judges the state of a port that has a netdev. */
bool sluice_netdev_is_up(const struct net_device *dev)
{
	return netif_running(dev) && netif_carrier_ok(dev);
}

bool sluice_netdev_is_vlan(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

bool sluice_netdev_has_speed(const struct net_device *dev)
{
	return dev->ethtool_ops->get_link_ksettings;
}

bool sluice_netdev_mac(const struct net_device *dev, u8 *mac)
{
	if (dev->type != ARPHRD_ETHER || dev->addr_len != ETH_ALEN)
		return false;

	memcpy(mac, dev->dev_addr, ETH_ALEN);
	return true;
}

struct net_device *sluice_notifier_netdev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

struct ib_device *sluice_device_of(struct device *dev)
{
	return rdma_device_to_ibdev(dev);
}

bool sluice_current_is_exiting(void)
{
	return current->flags & PF_EXITING;
}

bool sluice_is_alone(void)
{
	return single_task_running() && !need_resched();
}

unsigned int sluice_next_online_cpu(unsigned int cpu)
{
	return cpumask_next_wrap(cpu, cpu_online_mask);
}

bool sluice_cpu_keeps_house(unsigned int cpu)
{
	return housekeeping_test_cpu(cpu, HK_TYPE_DOMAIN) &&
	       housekeeping_test_cpu(cpu, HK_TYPE_KERNEL_NOISE);
}

void sluice_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void sluice_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

bool sluice_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

struct ib_udata *sluice_attrs_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

struct ib_ucontext *sluice_udata_context(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

struct ib_ucontext *sluice_attrs_context(struct uverbs_attr_bundle *attrs)
{
	return ib_uverbs_get_ucontext(attrs);
}

int sluice_attrs_length(struct uverbs_attr_bundle *attrs, u16 id)
{
	return uverbs_attr_get_len(attrs, id);
}

const void *sluice_attrs_bytes(struct uverbs_attr_bundle *attrs, u16 id)
{
	return uverbs_attr_get_alloced_ptr(attrs, id);
}

int sluice_attrs_objects(struct uverbs_attr_bundle *attrs, u16 id,
			 struct ib_uobject ***objects)
{
	return uverbs_attr_get_uobjs_arr(attrs, id, objects);
}

struct ib_umem *sluice_umem_get(struct ib_device *dev, unsigned long addr,
				size_t size, int access)
{
	return ib_umem_get_va(dev, addr, size, access);
}

void *sluice_driver_table_start(struct sk_buff *message)
{
	return nla_nest_start(message, RDMA_NLDEV_ATTR_DRIVER);
}

void sluice_driver_table_end(struct sk_buff *message, void *table)
{
	nla_nest_end(message, table);
}

void sluice_driver_table_cancel(struct sk_buff *message, void *table)
{
	nla_nest_cancel(message, table);
}

struct page *sluice_sg_page(struct scatterlist *sg)
{
	return sg_page(sg);
}

struct scatterlist *sluice_sg_next(struct scatterlist *sg)
{
	return sg_next(sg);
}

void *sluice_page_address(struct page *page)
{
	return page_address(page);
}
