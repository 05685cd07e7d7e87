// SPDX-License-Identifier: GPL-2.0

//! Taking things away from transfers that are running: the teardown contract.
//!
//! Everything that can be taken away stands behind a [`gate`]. A teardown closes the gate, waits
//! for the holders inside ([`drain`]), and takes apart what they used. Orchestrates only: this
//! module copies no byte and walks no table.

#![forbid(unsafe_code)]

pub(crate) mod gate;
pub(crate) mod policy;
pub(crate) mod reset;
pub(crate) mod revoke;
pub(crate) mod sync;

use crate::abstractions::table::Published;
use gate::{
    CloseMode,
    Drained,
    Gate, //
};

/// Something whose gate can be closed.
pub(crate) trait Closable {
    /// Refuses newcomers; see [`Gate::close`].
    fn close(&self, mode: CloseMode) -> bool;
    /// See [`Gate::is_drained`].
    fn is_drained(&self) -> bool;
    /// See [`Gate::wait`].
    fn wait(&self) -> Drained;
    /// See [`Gate::wait_timeout`].
    fn wait_timeout(&self, timeout_ms: u32) -> Option<Drained>;
}

macro_rules! impl_closable {
    ($({$($generics:tt)*})? $type:ty) => {
        impl$(<$($generics)*>)? Closable for $type {
            fn close(&self, mode: CloseMode) -> bool {
                self.close(mode)
            }
            fn is_drained(&self) -> bool {
                self.is_drained()
            }
            fn wait(&self) -> Drained {
                self.wait()
            }
            fn wait_timeout(&self, timeout_ms: u32) -> Option<Drained> {
                self.wait_timeout(timeout_ms)
            }
        }
    };
}

impl_closable!(Gate);
impl_closable!({T: Send + Sync + 'static} Published<T>);

/// How a drain went.
pub(crate) struct Outcome {
    /// Whether somebody was still inside when the gate had been closed.
    pub(crate) waited: bool,
    /// Whether a drain reached its deadline and was turned into a cancel.
    pub(crate) past_deadline: bool,
}

/// Closes a gate and waits until everybody has left: contract section 3, steps 1 and 3.
///
/// With [`CloseMode::Drain`] the holders have `timeout_ms` milliseconds to end by themselves, then
/// the close becomes a cancel, which is bounded by one burst per holder. May sleep.
pub(crate) fn drain(
    what: &impl Closable,
    mode: CloseMode,
    timeout_ms: u32,
) -> (Drained, Outcome) {
    what.close(mode);
    let waited = !what.is_drained();
    if mode == CloseMode::Drain {
        if let Some(drained) = what.wait_timeout(timeout_ms) {
            let outcome = Outcome {
                waited,
                past_deadline: false,
            };
            return (drained, outcome);
        }
        what.close(CloseMode::Cancel);
    }
    let outcome = Outcome {
        waited,
        past_deadline: mode == CloseMode::Drain,
    };
    (what.wait(), outcome)
}
