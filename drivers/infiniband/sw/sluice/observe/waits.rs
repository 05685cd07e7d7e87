// SPDX-License-Identifier: GPL-2.0

//! How long teardowns had to wait: the histogram of contract section 7.

#![forbid(unsafe_code)]

use crate::abstractions::trace::What;
use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering, //
    },
};
use kernel::time::Delta;

/// Bucket 0 counts the waits below 1 us, bucket n those from 2^(n-1) us on, and the last one also
/// all that are longer: 2^22 us are 4 s.
const BUCKETS: usize = 24;

/// How often a wait was how long.
type Histogram = [AtomicU64; BUCKETS];

/// The waits of one device's teardowns.
pub(crate) struct Waits {
    /// RESET, ERR and destroy.
    qp: Histogram,
    /// Deregistration.
    region: Histogram,
}

impl Waits {
    /// Nothing has been torn down.
    pub(crate) const fn new() -> Self {
        Self {
            qp: [const { AtomicU64::new(0) }; BUCKETS],
            region: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts a wait.
    pub(crate) fn record(&self, what: What, wait: Delta) {
        // CAST: a wait is not negative, and its logarithm is small.
        let us = wait.as_micros_ceil().max(1) as u64 - 1;
        let bucket = ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1);
        let histogram = match what {
            What::Qp(_) => &self.qp,
            What::Region(_) => &self.region,
        };
        histogram[bucket].fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Waits {
    /// One line for each bucket that is not empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10} {:>12} {:>12}", "us below", "qp", "region")?;
        for bucket in 0..BUCKETS {
            let [qp, region] = [&self.qp, &self.region].map(|h| h[bucket].load(Ordering::Relaxed));
            if qp != 0 || region != 0 {
                let below: &dyn fmt::Display = if bucket == BUCKETS - 1 {
                    &"inf"
                } else {
                    &(1u64 << bucket)
                };
                writeln!(f, "{below:>10} {qp:>12} {region:>12}")?;
            }
        }
        Ok(())
    }
}
