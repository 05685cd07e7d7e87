// SPDX-License-Identifier: GPL-2.0

//! The driver's gate, as shipped, on the standard library's atomics.

#![forbid(unsafe_code)]

pub mod teardown;
