// SPDX-License-Identifier: GPL-2.0

//! Taking things away from transfers that are running: the teardown contract.
//!
//! Everything that can be taken away stands behind a [`gate`]. A teardown closes the gate, waits
//! for the holders inside ([`drain::drain`]), and takes apart what they used. Orchestrates only:
//! this module copies no byte and walks no table.

#![forbid(unsafe_code)]

pub mod drain;
pub mod gate;
pub(crate) mod hold;
pub(crate) mod policy;
pub(crate) mod reset;
pub(crate) mod revoke;
pub mod sync;

use crate::abstractions::process;
use gate::CloseMode;

/// How a gate is closed on behalf of the present process, whose device has the policy `mode`.
///
/// A process that exits takes all its objects along, one after another. Nobody will see how its
/// transfers end, and the drains would add up; so they are cut.
fn at_exit(mode: CloseMode) -> CloseMode {
    if process::is_exiting() {
        CloseMode::Cancel
    } else {
        mode
    }
}
