// SPDX-License-Identifier: GPL-2.0

//! Whether somebody is at a ring who sees by himself what is put there.
//!
//! A doorbell that finds its ring attended has nothing to do. That must not lose a request: the
//! doorbell puts it in the ring and then looks at the flag, who leaves takes the flag down and then
//! looks at the ring, each with a full barrier in between. So at least one of them sees what the
//! other has done. Pure; the host tests explore this very source exhaustively.

#![forbid(unsafe_code)]

use crate::teardown::sync::{
    fence,
    AtomicBool,
    Ordering, //
};

/// A flag at a ring; at first nobody is there. One at a time may attend; that is for the caller to
/// see to.
#[derive(Default)]
pub struct Attendance(AtomicBool);

impl Attendance {
    /// The caller is at the ring from here on, until [`Attendance::leave`]. Any context.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The caller leaves the ring, unless `find_more` still finds something there; returns whether
    /// it has left. Any context that `find_more` may run in.
    pub fn leave(&self, find_more: impl FnOnce() -> bool) -> bool {
        self.0.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let left = !find_more();
        if !left {
            self.begin();
        }
        left
    }

    /// Whether somebody is there who will see what was put in the ring before this call. Any
    /// context.
    pub fn is_attended(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}
