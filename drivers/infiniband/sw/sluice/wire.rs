// SPDX-License-Identifier: GPL-2.0

//! What two ends of a connection have to agree on, as plain values.
//!
//! Everything below this module is pure: it imports `core` only, so the shipped source is compiled
//! and tested on the host (`selftests/host`).

#![forbid(unsafe_code)]

pub mod mtu;
pub mod psn;
pub mod qp_state;
pub mod timers;
