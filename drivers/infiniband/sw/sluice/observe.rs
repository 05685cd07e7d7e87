// SPDX-License-Identifier: GPL-2.0

//! What can be seen from outside (contract, section 7).

#![forbid(unsafe_code)]

pub(crate) mod counters;
pub(crate) mod debugfs;
mod trace;
pub(crate) mod waits;
