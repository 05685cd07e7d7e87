// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma link add NAME type sluice ..." asks for the module by this alias. The
 * module!() macro of the kernel crate has no way to declare it.
 */
#include <linux/module.h>
#include <rdma/rdma_netlink.h>

MODULE_ALIAS_RDMA_LINK("sluice");
