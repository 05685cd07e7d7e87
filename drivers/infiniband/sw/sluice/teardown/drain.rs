// SPDX-License-Identifier: GPL-2.0

//! Closing gates and waiting until they have drained: contract section 3, steps 1 and 3, and
//! section 8, "drain".
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

/// How long to wait for one gate of several before looking at the others, in milliseconds.
const LOOK_MS: u32 = 1;

const NS_PER_MS: u64 = 1_000_000;

/// What became of the holders that were inside when a gate was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They ended by themselves, or nobody was inside.
    Drained,
    /// They were told to leave.
    Cancelled,
    /// One of them failed, and so closed the gate for the others.
    Faulted,
}

/// How one drain of several went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What became of the holders.
    pub end: End,
    /// Whether somebody was still inside when the gate had been closed.
    pub waited: bool,
    /// Whether it reached its deadline and was turned into a cancel.
    pub past_deadline: bool,
    /// Whether it was turned into a cancel because of another one.
    pub by_group: bool,
    /// When the gate was found empty, in nanoseconds since the gates were closed.
    pub after_ns: u64,
}

/// One of several gates that are closed together and drain beside each other.
pub trait Job {
    /// What is left of it.
    type Done;

    /// Its gate.
    fn gate(&self) -> &dyn Closable;
    /// See [`drain`].
    fn hasten(&self);
    /// Nobody is inside any more.
    fn finish(self, drained: Drained, report: Report) -> Self::Done;
}

/// A job and its drain.
pub struct Closing<J: Job> {
    /// `None` when it is finished.
    job: Option<J>,
    done: Option<J::Done>,
    mode: CloseMode,
    timeout_ms: u32,
    /// Whether the holders have been told to leave.
    told: bool,
    report: Report,
}

impl<J: Job> Closing<J> {
    /// Will be closed with `mode`; a drain becomes a cancel after `timeout_ms` milliseconds, with 0
    /// at once.
    pub fn new(job: J, mode: CloseMode, timeout_ms: u32) -> Self {
        Self {
            job: Some(job),
            done: None,
            mode,
            timeout_ms,
            told: false,
            report: Report {
                end: End::Drained,
                waited: false,
                past_deadline: false,
                by_group: false,
                after_ns: 0,
            },
        }
    }

    /// The job, unless it is finished.
    pub fn job(&self) -> Option<&J> {
        self.job.as_ref()
    }

    /// What is left of the job, if it is finished.
    pub fn into_done(self) -> Option<J::Done> {
        self.done
    }

    /// How the gate will be closed.
    pub fn mode(&self) -> CloseMode {
        if self.timeout_ms == 0 {
            CloseMode::Cancel
        } else {
            self.mode
        }
    }

    /// Closes the gate. Never sleeps.
    pub fn close(&mut self) {
        let Some(job) = &self.job else {
            return;
        };
        let gate = job.gate();
        // One that has failed before has told its holders to leave already.
        let failed = gate.closed_with() == Some(CloseMode::Cancel);
        gate.close(self.mode());
        self.told = failed || self.mode() == CloseMode::Cancel;
        self.report.waited = !gate.is_drained();
        if self.told && self.report.waited {
            self.report.end = End::Cancelled;
            self.report.past_deadline = !failed && self.mode == CloseMode::Drain;
        }
    }

    /// Turns a drain that is under way into a cancel; `false` if there is none.
    fn cancel(&mut self) -> bool {
        let Some(job) = self.job.as_ref().filter(|_| !self.told) else {
            return false;
        };
        job.gate().close(CloseMode::Cancel);
        self.told = true;
        self.report.end = End::Cancelled;
        true
    }

    /// Looks where the drain stands `now`, and finishes the job if it is over; `true` if it has just
    /// gone wrong.
    fn look(&mut self, now: u64) -> bool {
        let Some(job) = &self.job else {
            return false;
        };
        // In this order: who fails says so before he leaves.
        let empty = job.gate().is_drained();
        let failed = job.gate().closed_with() == Some(CloseMode::Cancel);
        let mut wrong = false;
        if failed && !self.told && self.report.waited {
            self.told = true;
            self.report.end = End::Faulted;
            wrong = true;
        } else if !empty && now >= u64::from(self.timeout_ms) * NS_PER_MS {
            wrong = self.cancel();
            self.report.past_deadline |= wrong;
        }
        if empty {
            if self.report.waited {
                self.report.after_ns = now;
            }
            if let Some(job) = self.job.take() {
                let drained = job.gate().wait();
                self.done = Some(job.finish(drained, self.report));
            }
        }
        wrong
    }
}

/// Waits until all of `closings`, which have been closed, have drained, and finishes each when it
/// has: contract section 8.
///
/// `grouped`: the first drain that reaches its deadline or faults has all the others cancelled.
/// `clock` tells the time since the gates were closed, in nanoseconds. What becomes of one gate is
/// noticed a tick of the kernel's clock after it has, or when those that are to be cut have been
/// hastened. May sleep.
pub fn drain_all<J: Job>(closings: &mut [Closing<J>], grouped: bool, clock: impl Fn() -> u64) {
    // Some may have been cancelled from the start.
    let mut hasten = true;
    loop {
        let now = clock();
        for at in 0..closings.len() {
            if !closings[at].look(now) {
                continue;
            }
            hasten = true;
            if grouped {
                for other in closings.iter_mut() {
                    other.report.by_group |= other.cancel();
                }
            }
        }
        if core::mem::take(&mut hasten) {
            let told = closings.iter().filter(|closing| closing.told);
            told.filter_map(Closing::job).for_each(Job::hasten);
        }
        let Some(next) = closings.iter().find_map(Closing::job) else {
            return;
        };
        let _ = next.gate().wait_timeout(LOOK_MS);
    }
}
