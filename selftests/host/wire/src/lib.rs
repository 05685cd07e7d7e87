// SPDX-License-Identifier: GPL-2.0

//! The driver's `wire` module, as shipped.

#![forbid(unsafe_code)]

pub mod wire;
