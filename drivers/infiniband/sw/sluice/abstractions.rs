// SPDX-License-Identifier: GPL-2.0

//! Safe Rust over the C interfaces that the `kernel` crate does not cover.
//!
//! Together with [`crate::bindings`] this is the only place of the driver where `unsafe` may
//! appear. The modules are shaped as modules of the `kernel` crate would be: none of them knows
//! anything about this particular RDMA device.

pub(crate) mod copy;
pub(crate) mod debugfs;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod kunit;
pub(crate) mod netdev;
pub(crate) mod parameter;
pub(crate) mod process;
pub(crate) mod processor;
pub(crate) mod rdma;
pub(crate) mod ring;
pub(crate) mod setting;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod softirq;
pub(crate) mod table;
pub(crate) mod trace;
pub(crate) mod turn;
pub(crate) mod umem;
pub(crate) mod workqueue;
