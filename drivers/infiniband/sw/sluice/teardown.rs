// SPDX-License-Identifier: GPL-2.0

//! Taking things away from transfers that are running: the teardown contract.
//!
//! Everything that can be taken away stands behind a [`gate`]. A teardown closes the gate, waits
//! for the holders inside ([`drain::drain`]), and takes apart what they used. Orchestrates only:
//! this module copies no byte and walks no table.

#![forbid(unsafe_code)]

pub mod drain;
pub mod gate;
pub(crate) mod policy;
pub(crate) mod reset;
pub(crate) mod revoke;
pub mod sync;
