// SPDX-License-Identifier: GPL-2.0

//! Closing several gates in one step: contract section 8, "commit".
//!
//! The gates are closed one after the other, under a lock that nobody else takes on a path that
//! leads anywhere. What makes it one step is the other half of the bargain: **whoever finds a gate
//! closed [settles](Commit::settle) before making anything of it**, and then looks again, in order,
//! at all the gates that have a say. Settling waits for a commit that is under way, so:
//!
//! * A gate is known to be closed only when all the gates of its commit are. Who knows of one finds
//!   each of the others closed.
//! * A gate that is found open is found so before anybody knows that any of them is closed.
//!
//! So a transfer sees all of them open or all of them closed, though it looks at one after the
//! other. Looking at an open gate costs what it did; there is nothing new to be looked at.
//!
//! Pure, as [`super::gate`] is.

#![forbid(unsafe_code)]

use super::sync::Lock;

/// The order of the commits of one device.
pub struct Commit {
    lock: Lock,
}

impl Commit {
    /// No commit is under way.
    pub fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Runs `close`, which closes gates and does nothing that could sleep, as one step. Never sleeps.
    pub fn all(&self, close: impl FnOnce()) {
        self.lock.with(close);
    }

    /// Waits until the commit that has closed a gate, if one has, has closed all of its gates. For
    /// who has found a gate closed; any context. Never sleeps.
    pub fn settle(&self) {
        self.lock.with(|| ());
    }
}
