// SPDX-License-Identifier: GPL-2.0

//! Stands in for the driver's `teardown` module.

#[path = "../../../../drivers/infiniband/sw/sluice/teardown/commit.rs"]
pub mod commit;
#[path = "../../../../drivers/infiniband/sw/sluice/teardown/drain.rs"]
pub mod drain;
#[path = "../../../../drivers/infiniband/sw/sluice/teardown/gate.rs"]
pub mod gate;
pub mod sync;
