/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The layout of what we share with the user-space provider library, which is
 * that of rxe in rdma-core. A run of its own, over user API headers only, so
 * that unions become unions of Rust.
 */
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
