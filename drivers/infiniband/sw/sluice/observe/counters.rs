// SPDX-License-Identifier: GPL-2.0

//! The counters of a device (contract, section 7). `rdma statistic` shows them.

#![forbid(unsafe_code)]

use crate::abstractions::rdma;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// A number that only grows. It may be counted up in any context, and orders nothing.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts `n` more.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The present value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What was cut by the teardowns of one object.
pub(crate) struct Cuts {
    transfers: Counter,
    landed: Counter,
}

impl Cuts {
    pub(crate) const fn new() -> Self {
        Self {
            transfers: Counter::new(),
            landed: Counter::new(),
        }
    }

    /// Counts a transfer that was cut when `landed` bytes of it had landed.
    pub(crate) fn count(&self, landed: usize) {
        self.transfers.add(1);
        // CAST: widens.
        self.landed.add(landed as u64);
    }

    /// How many transfers so far, and how many bytes of them.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.transfers.get(), self.landed.get())
    }
}

/// Declares [`Counters`] so that names, fields and order cannot come apart.
macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)+) => {
        /// The counters of one device.
        pub(crate) struct Counters {
            $($(#[$meta])* pub(crate) $name: Counter,)+
        }

        impl Counters {
            /// The names, in the order of [`Counters::read`].
            pub(crate) const NAMES: &'static [rdma::Counter] = &[
                $(rdma::Counter::new($text),)+
            ];

            /// Counters that stand at zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter::new(),)+ }
            }

            /// Copies the present values to `values`. They are read one after the other, so they
            /// are not those of a single instant.
            pub(crate) fn read(&self, values: &mut [u64]) {
                let now = [$(self.$name.get(),)+];
                for (value, now) in values.iter_mut().zip(now) {
                    *value = now;
                }
            }
        }
    };
}

counters! {
    /// Transfers that ended Completed.
    transfers_completed = c"transfers_completed",
    /// Transfers that ended Faulted.
    transfers_faulted = c"transfers_faulted",
    /// Transfers that ended Aborted.
    transfers_aborted = c"transfers_aborted",
    /// Work requests that were discarded before they started.
    wrs_discarded = c"wrs_discarded",
    /// Bytes that the DMA engine has moved.
    bytes_moved = c"bytes_moved",
    /// Bytes that had landed of transfers that ended Aborted or Faulted.
    bytes_landed_of_torn = c"bytes_landed_of_torn",
    /// Drains that reached their deadline and were cancelled.
    drains_past_deadline = c"drains_past_deadline",
    /// Revocations of a key that had to wait for a transfer.
    revokes_waited = c"revokes_waited",
    /// Receiver-not-ready NAKs sent.
    rnr_naks = c"rnr_naks",
    /// Work requests that were malformed.
    bad_wqes = c"bad_wqes",
    /// Completions that found their queue full.
    cq_overruns = c"cq_overruns",
    /// Work requests that failed because no retry was left.
    retries_exceeded = c"retries_exceeded",
}
