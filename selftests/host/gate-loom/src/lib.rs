// SPDX-License-Identifier: GPL-2.0

//! What the driver's threads share without a lock, as shipped, on the types of the interleaving
//! explorer loom.

#![forbid(unsafe_code)]

pub mod teardown;
pub mod transport;
