// SPDX-License-Identifier: GPL-2.0

//! Stands in for the driver's `wire.rs`, which only lists the same files.

#[path = "../../../../drivers/infiniband/sw/sluice/wire/mtu.rs"]
pub mod mtu;
#[path = "../../../../drivers/infiniband/sw/sluice/wire/psn.rs"]
pub mod psn;
#[path = "../../../../drivers/infiniband/sw/sluice/wire/qp_state.rs"]
pub mod qp_state;
#[path = "../../../../drivers/infiniband/sw/sluice/wire/timers.rs"]
pub mod timers;
