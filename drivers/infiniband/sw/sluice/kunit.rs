// SPDX-License-Identifier: GPL-2.0

//! Tests of what rests on the kernel itself: its completions, RCU, workqueues and memory.
//!
//! Part of the module on a kernel with `CONFIG_KUNIT=y` only. They run when somebody asks for it
//! (`/sys/kernel/debug/kunit/sluice_*/run`; `selftests/vm/kunit.sh` does). `abstractions/kunit.rs`
//! lists them. What can be tested on the host is tested there (`selftests/host`).

#![forbid(unsafe_code)]

/// Ends a test with a line in the log if something is not so.
macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            kernel::prelude::pr_info!(
                "{}:{}: not so: {}\n",
                module_path!(),
                line!(),
                stringify!($condition)
            );
            return Err(kernel::prelude::EINVAL);
        }
    };
}

pub(crate) mod copy;
pub(crate) mod gate;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod task;

use crate::abstractions::{
    signal::Signal,
    workqueue::{
        Run,
        Task,
        WorkQueue, //
    },
};
use core::sync::atomic::{
    AtomicBool,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Longer than anything here takes, and not for ever.
const LIMIT_MS: u32 = 60_000;

/// Some numbers, always the same.
struct Numbers(u64);

impl Numbers {
    /// Any number.
    fn any(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        // CAST: A `usize` has 64 bits here.
        self.any().checked_rem(end as u64).unwrap_or(0) as usize
    }
}

/// A thread of the kernel's that runs a function once.
struct Thread<F: Fn() + Send + Sync + 'static> {
    body: F,
    task: Task<Self>,
    over: Signal,
}

impl<F: Fn() + Send + Sync + 'static> Run for Thread<F> {
    fn run(self: Arc<Self>) {
        (self.body)();
        self.over.complete();
    }
}

/// Threads that run beside a test, and a word to end them.
struct Threads {
    queue: WorkQueue,
    stop: Arc<AtomicBool>,
}

impl Threads {
    fn new() -> Result<Self> {
        Ok(Self {
            queue: WorkQueue::new(c"sluice_kunit", 0)?,
            stop: Arc::new(AtomicBool::new(false), GFP_KERNEL)?,
        })
    }

    /// Runs `body` on another thread.
    fn once<F: Fn() + Send + Sync + 'static>(&self, body: F) -> Result<Arc<Thread<F>>> {
        let thread = Arc::new(
            Thread {
                body,
                task: Task::new()?,
                over: Signal::new()?,
            },
            GFP_KERNEL,
        )?;
        thread.task.queue(&self.queue, &thread, 0);
        Ok(thread)
    }

    /// Runs `body` on another thread, again and again until the threads are dropped.
    fn over_and_over<F: Fn() + Send + Sync + 'static>(&self, body: F) -> Result {
        let stop = self.stop.clone();
        self.once(move || {
            while !stop.load(Ordering::Acquire) {
                body();
                pause();
            }
        })?;
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The queue is drained next.
    }
}

/// Lets others run.
fn pause() {
    fsleep(Delta::from_micros(20));
}
