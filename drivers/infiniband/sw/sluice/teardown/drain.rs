// SPDX-License-Identifier: GPL-2.0

//! Closing a gate and waiting until it has drained: contract section 3, steps 1 and 3.
//!
//! Pure, as [`super::gate`] is.

#![forbid(unsafe_code)]

use super::gate::{
    CloseMode,
    Drained,
    Gate, //
};

/// Something whose gate can be closed.
pub trait Closable {
    /// Refuses newcomers; see [`Gate::close`].
    fn close(&self, mode: CloseMode) -> bool;
    /// See [`Gate::is_drained`].
    fn is_drained(&self) -> bool;
    /// See [`Gate::closed_with`].
    fn closed_with(&self) -> Option<CloseMode>;
    /// See [`Gate::holders`].
    fn holders(&self) -> usize;
    /// See [`Gate::wait`].
    fn wait(&self) -> Drained;
    /// See [`Gate::wait_timeout`].
    fn wait_timeout(&self, timeout_ms: u32) -> Option<Drained>;
}

impl Closable for Gate {
    fn close(&self, mode: CloseMode) -> bool {
        self.close(mode)
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn closed_with(&self) -> Option<CloseMode> {
        self.closed_with()
    }

    fn holders(&self) -> usize {
        self.holders()
    }

    fn wait(&self) -> Drained {
        self.wait()
    }

    fn wait_timeout(&self, timeout_ms: u32) -> Option<Drained> {
        self.wait_timeout(timeout_ms)
    }
}

/// How a drain went.
pub struct Outcome {
    /// Whether somebody was still inside when the gate had been closed.
    pub waited: bool,
    /// Whether a drain reached its deadline and was turned into a cancel.
    pub past_deadline: bool,
}

/// Closes a gate and waits until everybody has left: contract section 3, steps 1 and 3.
///
/// With [`CloseMode::Drain`] the holders have `timeout_ms` milliseconds to end by themselves, then
/// the close becomes a cancel, which is bounded by one burst per holder. If somebody is inside then,
/// `hasten` is called: it may bring holders to their boundary that would otherwise get there only
/// when their turn comes. May sleep.
pub fn drain(
    what: &impl Closable,
    mode: CloseMode,
    timeout_ms: u32,
    hasten: impl FnOnce(),
) -> (Drained, Outcome) {
    let patient = mode == CloseMode::Drain && timeout_ms > 0;
    what.close(if patient {
        CloseMode::Drain
    } else {
        CloseMode::Cancel
    });
    let waited = !what.is_drained();
    if patient {
        if let Some(drained) = what.wait_timeout(timeout_ms) {
            let outcome = Outcome {
                waited,
                past_deadline: false,
            };
            return (drained, outcome);
        }
        what.close(CloseMode::Cancel);
    }
    if waited {
        hasten();
    }
    let outcome = Outcome {
        waited,
        past_deadline: waited && mode == CloseMode::Drain,
    };
    (what.wait(), outcome)
}
