// SPDX-License-Identifier: GPL-2.0

//! Which processor attends to the streams of a consumer, if any.
//!
//! Only one that has nothing else to do is asked to. It is watched for a few doorbells before; when
//! it was called and had something else to do all the same, the next call comes later.

#![forbid(unsafe_code)]

use crate::abstractions::processor::Processor;
use kernel::time::{
    Delta,
    Instant,
    Monotonic, //
};

/// Doorbells from one look at a processor to the next, at the least.
const LOOK: u32 = 8;

/// For how long a processor that was found is taken for idle without another look.
const FRESH: Delta = Delta::from_millis(10);

/// After how many looks or calls that were of no use these do not become rarer any more, each time
/// four times.
const MAX_RELUCTANCE: u32 = 5;

/// A processor, and how long it had been idle at some time.
struct Watch {
    processor: Processor,
    since: Instant<Monotonic>,
    /// Microseconds.
    idle: u64,
}

impl Watch {
    fn begin(processor: Processor) -> Self {
        Self {
            processor,
            since: Instant::now(),
            idle: processor.idle_us(),
        }
    }

    /// Whether the processor has been idle for most of the time.
    fn is_idle(&self) -> bool {
        // CAST: no time since boot is negative.
        let elapsed = self.since.elapsed().as_micros_ceil() as u64;
        let idle = self.processor.idle_us().saturating_sub(self.idle);
        4 * idle >= 3 * elapsed
    }
}

/// Looks out for a processor to attend to the streams of one consumer.
#[derive(Default)]
pub(crate) struct Lookout {
    /// The one that was found, and when it was or was of use last.
    found: Option<(Processor, Instant<Monotonic>)>,
    watch: Option<Watch>,
    /// Doorbells until the next look.
    patience: u32,
    reluctance: u32,
}

impl Lookout {
    /// To be called for each doorbell of a stream; returns a processor that has nothing to do, or
    /// does this already, if one is known. Any context.
    pub(crate) fn find(&mut self) -> Option<Processor> {
        let here = Processor::current();
        if let Some((processor, since)) = self.found {
            if processor != here && since.elapsed() < FRESH {
                return Some(processor);
            }
            self.found = None;
        }
        if self.patience > 0 {
            self.patience -= 1;
            return None;
        }
        let next = match self.watch.take() {
            Some(watch) if watch.processor == here => here.next(),
            Some(watch) if watch.is_idle() => {
                self.found = Some((watch.processor, Instant::now()));
                return Some(watch.processor);
            }
            Some(watch) => {
                self.grow_reluctant();
                watch.processor.next()
            }
            None => here.next(),
        };
        // There may be no other one.
        self.watch = (next != here).then(|| Watch::begin(next));
        self.patience = LOOK << (2 * self.reluctance);
        None
    }

    /// To be called on a processor that has attended to a stream: whether that was of use. Any
    /// context.
    pub(crate) fn learn(&mut self, of_use: bool) {
        if of_use {
            self.found = Some((Processor::current(), Instant::now()));
            self.reluctance = 0;
        } else {
            self.found = None;
            self.grow_reluctant();
        }
    }

    fn grow_reluctant(&mut self) {
        self.reluctance = MAX_RELUCTANCE.min(self.reluctance + 1);
    }
}
