// SPDX-License-Identifier: GPL-2.0

//! Whether somebody sees by himself what is put in a ring, or is going to.
//!
//! A doorbell that finds its ring attended has nothing to do. That must not lose a request: the
//! doorbell puts it in the ring and then looks at the flag, who leaves takes the flag down and then
//! looks at the ring, each with a full barrier in between. So at least one of them sees what the
//! other has done. Between two visits the flag stays up. Pure; the host tests explore this very
//! source exhaustively.

#![forbid(unsafe_code)]

use crate::teardown::sync::{
    fence,
    AtomicBool,
    Ordering, //
};

/// A flag at a ring; at first nobody is there. It is put up and taken down under a lock of the
/// ring's that is for the caller to see to; looking at it needs none.
#[derive(Default)]
pub struct Attendance(AtomicBool);

impl Attendance {
    /// The caller is at the ring, or has seen to it that somebody will be, until
    /// [`Attendance::leave`]. Any context.
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

    /// Nobody comes to the ring any more, though something may be there that nobody has seen. For
    /// those who have it thrown away or completed in another way. Any context.
    pub fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether somebody will see what was put in the ring before this call. Any context.
    pub fn is_attended(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}
