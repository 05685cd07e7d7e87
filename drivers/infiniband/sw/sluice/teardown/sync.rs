// SPDX-License-Identifier: GPL-2.0

//! Atomics, locks and waiting, as the pure modules see them.
//!
//! The host tests put an interleaving explorer's types in place of this module.

#![forbid(unsafe_code)]

pub use crate::abstractions::{
    signal::Signal,
    softirq::Lock, //
};
pub use core::sync::atomic::{
    fence,
    AtomicBool,
    AtomicUsize,
    Ordering, //
};
