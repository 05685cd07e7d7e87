// SPDX-License-Identifier: GPL-2.0

//! The driver's gate, as shipped, on the types of the interleaving explorer loom.

#![forbid(unsafe_code)]

pub mod teardown;
