// SPDX-License-Identifier: GPL-2.0

//! Stands in for the driver's `transport` module.

#[path = "../../../../drivers/infiniband/sw/sluice/transport/attendance.rs"]
pub mod attendance;
