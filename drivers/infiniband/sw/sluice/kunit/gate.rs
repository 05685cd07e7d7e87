// SPDX-License-Identifier: GPL-2.0

//! The gate with the kernel's completions and threads.

#![forbid(unsafe_code)]

use super::{
    Threads,
    LIMIT_MS, //
};
use crate::{
    abstractions::signal::Signal,
    teardown::{
        drain::drain,
        gate::{
            CloseMode,
            Gate, //
        },
    },
};
use core::sync::atomic::{
    AtomicUsize,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Lives that a gate has in a test.
const LIVES: usize = 300;

/// A gate, and who is inside by another count.
struct Door {
    gate: Gate,
    inside: AtomicUsize,
    entered: AtomicUsize,
}

impl Door {
    fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                gate: Gate::new(Signal::new()?),
                inside: AtomicUsize::new(0),
                entered: AtomicUsize::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// Goes in and out if that is possible.
    fn visit(&self) {
        if let Some(holder) = self.gate.enter() {
            self.inside.fetch_add(1, Ordering::Relaxed);
            self.entered.fetch_add(1, Ordering::Relaxed);
            super::pause();
            self.inside.fetch_sub(1, Ordering::Relaxed);
            self.gate.leave(holder);
        }
    }

    /// Stays inside until asked to leave.
    fn stay(&self) {
        if let Some(holder) = self.gate.enter() {
            self.entered.fetch_add(1, Ordering::Relaxed);
            while !self.gate.is_cancelled() {
                super::pause();
            }
            self.gate.leave(holder);
        }
    }

    fn wait_for_entries(&self, count: usize) {
        while self.entered.load(Ordering::Relaxed) < count {
            super::pause();
        }
    }
}

/// Closed and opened again while others go in and out.
pub(crate) fn nobody_is_inside_after_the_wait() -> Result {
    let door = Door::new()?;
    let threads = Threads::new()?;
    for _ in 0..4 {
        let door = door.clone();
        threads.over_and_over(move || door.visit())?;
    }
    for life in 0..LIVES {
        door.wait_for_entries(door.entered.load(Ordering::Relaxed) + 1);
        let mode = [CloseMode::Drain, CloseMode::Cancel][life % 2];
        check!(door.gate.close(mode));
        check!(!door.gate.close(mode));
        check!(door.gate.enter().is_none());
        let drained = door.gate.wait_timeout(LIMIT_MS);
        let Some(drained) = drained else {
            // Nobody may go on in here.
            let _drained = door.gate.wait();
            return Err(ETIMEDOUT);
        };
        check!(door.inside.load(Ordering::Relaxed) == 0);
        check!(door.gate.holders() == 0 && door.gate.is_drained());
        door.gate.reopen(drained);
    }
    Ok(())
}

/// Who stays inside is asked to leave after the deadline and not before.
pub(crate) fn a_drain_becomes_a_cancel_at_its_deadline() -> Result {
    for timeout_ms in [0, 1, 30] {
        let door = Door::new()?;
        let threads = Threads::new()?;
        for _ in 0..2 {
            let door = door.clone();
            threads.once(move || door.stay())?;
        }
        door.wait_for_entries(2);
        let mut hastened = 0;
        let (_drained, outcome) = drain(&door.gate, CloseMode::Drain, timeout_ms, || hastened += 1);
        check!(outcome.waited && outcome.past_deadline && hastened == 1);
        check!(door.gate.holders() == 0);
    }
    let door = Door::new()?;
    let (_drained, outcome) = drain(&door.gate, CloseMode::Drain, LIMIT_MS, || ());
    check!(!outcome.waited && !outcome.past_deadline);
    Ok(())
}

/// Several wait for one gate, some of them with a limit.
pub(crate) fn everybody_who_waits_goes_on() -> Result {
    for _ in 0..20 {
        let door = Door::new()?;
        let threads = Threads::new()?;
        let gone_on = Arc::new(AtomicUsize::new(0), GFP_KERNEL)?;
        let Some(holder) = door.gate.enter() else {
            return Err(EINVAL);
        };
        door.gate.close(CloseMode::Drain);
        for i in 0..4 {
            let (door, gone_on) = (door.clone(), gone_on.clone());
            threads.once(move || {
                door.entered.fetch_add(1, Ordering::Relaxed);
                if i % 2 == 0 {
                    let _drained = door.gate.wait();
                } else if door.gate.wait_timeout(LIMIT_MS).is_none() {
                    return;
                }
                gone_on.fetch_add(1, Ordering::Relaxed);
            })?;
        }
        door.wait_for_entries(4);
        let early = gone_on.load(Ordering::Relaxed);
        check!(door.gate.leave(holder));
        drop(threads);
        check!(early == 0);
        check!(gone_on.load(Ordering::Relaxed) == 4);
    }
    Ok(())
}
