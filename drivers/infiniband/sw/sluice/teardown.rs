// SPDX-License-Identifier: GPL-2.0

//! Taking things away from transfers that are running: the teardown contract.
//!
//! Everything that can be taken away stands behind a [`gate`]. A teardown closes the gate, waits
//! for the holders inside ([`drain::drain`]), and takes apart what they used. Orchestrates only:
//! this module copies no byte and walks no table.

#![forbid(unsafe_code)]

pub mod commit;
pub mod drain;
pub mod gate;
pub(crate) mod hold;
pub(crate) mod policy;
pub(crate) mod reset;
pub(crate) mod revoke;
pub(crate) mod settings;
pub mod sync;
pub(crate) mod transaction;

use crate::{
    abstractions::{
        process,
        trace::{
            self,
            Cause,
            What, //
        },
    },
    verbs::Device, //
};
use drain::{
    Closable,
    Outcome, //
};
use gate::{
    CloseMode,
    Drained, //
};
use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

/// Closes the gate of `what` as `policy` of the device says, waits for the holders inside, and
/// leaves in counters, histogram and trace what there is to see of it (contract section 7).
///
/// See [`drain::drain`], also for `hasten`. May sleep.
fn close_and_drain(
    device: &Device,
    what: What,
    cause: Cause,
    gate: &impl Closable,
    policy: CloseMode,
    hasten: impl FnOnce(),
) -> (Drained, Outcome) {
    let mode = at_exit(policy);
    trace::close_begin(&device.handle, what, mode, cause, gate.holders());
    let start = Instant::<Monotonic>::now();
    let (drained, outcome) = drain::drain(gate, mode, device.policies.drain_timeout_ms(), hasten);
    let mode = gate.closed_with().unwrap_or(mode);
    tell_end(device, what, mode, outcome.past_deadline, start.elapsed());
    (drained, outcome)
}

/// Leaves word of a gate that has drained, `waited` after it was closed, with `mode` in the end.
fn tell_end(device: &Device, what: What, mode: CloseMode, past_deadline: bool, waited: Delta) {
    device.waits.record(what, waited);
    trace::close_end(&device.handle, what, mode, past_deadline, waited);
    if past_deadline {
        device.counters.drains_past_deadline.add(1);
    }
}

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
