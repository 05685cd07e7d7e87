// SPDX-License-Identifier: GPL-2.0

//! The gate: admits holders, is closed once per life, counts holders out.
//!
//! A gate is open or closed. While it is open, [`Gate::enter`] hands out [`Holder`]s. Closing it
//! refuses newcomers from that instant on and, depending on the [`CloseMode`], lets the holders
//! inside run on or asks them to leave at their next boundary. When the last holder has left a
//! closed gate, every [`Gate::wait`] returns, each with a [`Drained`] token: the proof that nobody
//! is inside and that nobody will ever be in this life. What a gate protects is taken apart only
//! against that proof, and only that proof opens the gate again.
//!
//! Carries out contract sections 1 and 3. A queue pair's passes and a translation entry's leases
//! are holders of the same primitive. Pure: atomics and waiting come from [`super::sync`], so that
//! the host tests explore this very source exhaustively.

#![forbid(unsafe_code)]

use super::sync::{
    AtomicUsize,
    Ordering,
    Signal, //
};

/// The gate is closed: newcomers are refused.
const CLOSED: usize = 1 << 0;
/// The gate was closed with [`CloseMode::Cancel`], or a drain was turned into a cancel.
const CANCELLED: usize = 1 << 1;
/// One holder, counted above the flags.
const HOLDER: usize = 1 << 2;

/// What closing a gate asks of the holders inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// They may run on to the end of their transfer.
    Drain,
    /// They must leave at their next boundary.
    Cancel,
}

/// The right to be inside a gate. Given back to the same gate with [`Gate::leave`].
///
/// It carries no reference to its gate; the types that hand it on (passes, leases) pair the two.
#[must_use = "a holder that is not given back keeps the gate from draining for ever"]
#[derive(Debug)]
pub struct Holder(());

/// The proof that a gate is closed and empty.
#[must_use = "the proof is what allows taking apart what the gate protected"]
#[derive(Debug)]
pub struct Drained(());

/// Admits holders until it is closed, and tells when the last one has left.
///
/// # Invariants
///
/// * The holder count never rises while [`CLOSED`] is set.
/// * `empty` is signalled exactly once per life, by whoever brings the state to "closed and no
///   holder": the closer if nobody was inside, else the last holder to leave.
pub struct Gate {
    state: AtomicUsize,
    empty: Signal,
}

impl Gate {
    /// Creates an open gate; `empty` must be unsignalled.
    pub fn new(empty: Signal) -> Self {
        Self {
            state: AtomicUsize::new(0),
            empty,
        }
    }

    /// Enters the gate, or returns `None` if it is closed. Never sleeps.
    pub fn enter(&self) -> Option<Holder> {
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & CLOSED == 0 {
            match self.state.compare_exchange_weak(
                seen,
                seen + HOLDER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Holder(())),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Gives a holder back. Never sleeps.
    ///
    /// Returns `true` if this was the last holder of a closed gate; true for exactly one holder of
    /// each life, and for none if the gate was empty when it was closed.
    pub fn leave(&self, holder: Holder) -> bool {
        self.leave_with(holder, || ())
    }

    /// Like [`Gate::leave`]; the last holder of a closed gate calls `last` when the gate is empty
    /// already, but before anybody who waits for that goes on.
    pub fn leave_with(&self, _holder: Holder, last: impl FnOnce()) -> bool {
        let before = self.state.fetch_sub(HOLDER, Ordering::AcqRel);
        let is_last = before & CLOSED != 0 && before / HOLDER == 1;
        if is_last {
            last();
            self.empty.complete();
        }
        is_last
    }

    /// Closes the gate, or turns a drain under way into a cancel. Never sleeps.
    ///
    /// Idempotent. Returns `true` if it was this call that closed the gate.
    pub fn close(&self, mode: CloseMode) -> bool {
        let flags = match mode {
            CloseMode::Drain => CLOSED,
            CloseMode::Cancel => CLOSED | CANCELLED,
        };
        let before = self.state.fetch_or(flags, Ordering::AcqRel);
        let first = before & CLOSED == 0;
        if first && before / HOLDER == 0 {
            self.empty.complete();
        }
        first
    }

    /// Whether holders must leave at their next boundary.
    pub fn is_cancelled(&self) -> bool {
        self.state.load(Ordering::Acquire) & CANCELLED != 0
    }

    /// Whether newcomers are refused.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How the gate is closed at this instant; `None` if it is open.
    pub fn closed_with(&self) -> Option<CloseMode> {
        let seen = self.state.load(Ordering::Acquire);
        if seen & CLOSED == 0 {
            None
        } else if seen & CANCELLED == 0 {
            Some(CloseMode::Drain)
        } else {
            Some(CloseMode::Cancel)
        }
    }

    /// Whether the gate is closed and nobody is inside.
    ///
    /// True before those who wait go on; not a proof, so nothing is taken apart on it.
    pub fn is_drained(&self) -> bool {
        let seen = self.state.load(Ordering::Acquire);
        seen & CLOSED != 0 && seen / HOLDER == 0
    }

    /// How many holders are inside at this instant; for display only.
    pub fn holders(&self) -> usize {
        self.state.load(Ordering::Relaxed) / HOLDER
    }

    /// Waits until the last holder of the closed gate has left. May sleep.
    ///
    /// Bounded by the caller's side of the contract: after a cancel every holder leaves within one
    /// burst.
    pub fn wait(&self) -> Drained {
        self.empty.wait();
        Drained(())
    }

    /// Like [`Gate::wait`], but gives up after `timeout_ms` milliseconds. May sleep.
    pub fn wait_timeout(&self, timeout_ms: u32) -> Option<Drained> {
        self.empty.wait_timeout(timeout_ms).then_some(Drained(()))
    }

    /// Begins a new life: opens the gate again, against the proof that the old one is over.
    ///
    /// There must be no other waiter of the old life left, and nobody who may close the gate at the
    /// same time. The owner of the gate sees to that: teardowns of its own are serialised, and who
    /// else closes it does so as a holder, of whom none is left.
    pub fn reopen(&self, _drained: Drained) {
        self.empty.reset();
        self.state.store(0, Ordering::Release);
    }
}
