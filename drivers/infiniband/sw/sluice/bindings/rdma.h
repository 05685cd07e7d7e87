/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make bindings for the RDMA core and the few other
 * interfaces of the kernel that abstractions/ is built on.
 */
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/rtnetlink.h>

#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/sluice-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "helpers.h"
#include "methods.h"
#include "trace.h"
