// SPDX-License-Identifier: GPL-2.0

//! Stands in for the driver's `teardown` module.

#[path = "../../../../drivers/infiniband/sw/sluice/teardown/gate.rs"]
pub mod gate;
pub mod sync;
