// SPDX-License-Identifier: GPL-2.0

//! How much work one visit to a queue pair may do: the arbitration between queue pairs.
//!
//! The workqueue is the arbiter. A visit that has used up its quantum puts the queue pair at the
//! end of the queue, so none starves another.

#![forbid(unsafe_code)]

/// What is left of one visit.
pub(crate) struct Quantum {
    bytes: usize,
    requests: u32,
}

/// What the workqueue does in one visit.
const WORK: Quantum = Quantum {
    bytes: 1 << 20,
    requests: 256,
};

/// Less than that is not worth a context switch.
const WORTHWHILE: Quantum = Quantum {
    bytes: 128 << 10,
    requests: 64,
};

impl Quantum {
    /// The visit of the program itself, when it rings the doorbell: enough for messages that are
    /// not worth a context switch.
    pub(crate) const fn doorbell() -> Self {
        WORTHWHILE
    }

    /// The visit of the workqueue.
    pub(crate) const fn work() -> Self {
        WORK
    }

    /// A visit that only passes a boundary, at which something has to be cut.
    pub(crate) const fn none() -> Self {
        Self {
            bytes: 0,
            requests: 0,
        }
    }

    /// Whether the visit is over.
    pub(crate) fn is_used_up(&self) -> bool {
        self.bytes == 0 || self.requests == 0
    }

    /// Whether a visit of the workqueue that has this left was worth a context switch.
    pub(crate) fn was_worthwhile(&self) -> bool {
        self.bytes <= WORK.bytes - WORTHWHILE.bytes
            || self.requests <= WORK.requests - WORTHWHILE.requests
    }

    /// Counts a request that was looked at.
    pub(crate) fn use_request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Counts bytes that were moved.
    pub(crate) fn use_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
