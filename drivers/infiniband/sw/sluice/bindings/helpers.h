/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Inline functions, macros and fields of opaque structures that Rust cannot
 * reach by itself. One line of C each; anything more belongs in abstractions/.
 */
#ifndef SLUICE_BINDINGS_HELPERS_H
#define SLUICE_BINDINGS_HELPERS_H

#include <linux/kernel_stat.h>
#include <linux/moduleparam.h>
#include <linux/netdevice.h>
#include <linux/scatterlist.h>
#include <linux/sched/isolation.h>
#include <linux/spinlock.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

void sluice_netdev_hold(struct net_device *dev);
void sluice_netdev_put(struct net_device *dev);
struct net *sluice_netdev_net(const struct net_device *dev);
const char *sluice_netdev_name(const struct net_device *dev);
unsigned int sluice_netdev_mtu(const struct net_device *dev);
bool sluice_netdev_is_registered(const struct net_device *dev);
bool sluice_netdev_is_up(const struct net_device *dev);
bool sluice_netdev_is_vlan(const struct net_device *dev);
bool sluice_netdev_has_speed(const struct net_device *dev);
bool sluice_netdev_mac(const struct net_device *dev, u8 *mac);
struct net_device *sluice_notifier_netdev(void *info);

bool sluice_current_is_exiting(void);
bool sluice_is_alone(void);
unsigned int sluice_next_online_cpu(unsigned int cpu);
bool sluice_cpu_keeps_house(unsigned int cpu);

void sluice_spin_lock_bh(spinlock_t *lock);
void sluice_spin_unlock_bh(spinlock_t *lock);

bool sluice_device_try_get(struct ib_device *dev);
struct ib_device *sluice_device_of(struct device *dev);
struct ib_udata *sluice_attrs_udata(struct uverbs_attr_bundle *attrs);
struct ib_ucontext *sluice_udata_context(struct ib_udata *udata);
struct ib_ucontext *sluice_attrs_context(struct uverbs_attr_bundle *attrs);
int sluice_attrs_length(struct uverbs_attr_bundle *attrs, u16 id);
const void *sluice_attrs_bytes(struct uverbs_attr_bundle *attrs, u16 id);
int sluice_attrs_objects(struct uverbs_attr_bundle *attrs, u16 id,
			 struct ib_uobject ***objects);

struct ib_umem *sluice_umem_get(struct ib_device *dev, unsigned long addr,
				size_t size, int access);
void *sluice_driver_table_start(struct sk_buff *message);
void sluice_driver_table_end(struct sk_buff *message, void *table);
void sluice_driver_table_cancel(struct sk_buff *message, void *table);

struct page *sluice_sg_page(struct scatterlist *sg);
struct scatterlist *sluice_sg_next(struct scatterlist *sg);
void *sluice_page_address(struct page *page);

/* Defined in Rust, for parameters whose argument is their name. */
extern const struct kernel_param_ops sluice_parameter_ops;

#endif
