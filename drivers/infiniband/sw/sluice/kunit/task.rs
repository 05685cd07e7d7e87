// SPDX-License-Identifier: GPL-2.0

//! Work items: what is queued runs, what is cancelled does not, and no reference is lost in
//! between.

#![forbid(unsafe_code)]

use super::{
    Numbers,
    Threads,
    LIMIT_MS, //
};
use crate::abstractions::{
    signal::Signal,
    workqueue::{
        Run,
        Task,
        WorkQueue, //
    },
};
use core::{
    ops::Deref,
    sync::atomic::{
        AtomicBool,
        AtomicUsize,
        Ordering, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// What is known of an item after it is gone.
struct Record {
    runs: AtomicUsize,
    running: AtomicBool,
    overlapped: AtomicBool,
    gone: Signal,
}

/// An item that queues itself again a few times.
struct Item {
    task: Task<Self>,
    queue: WorkQueue,
    record: Arc<Record>,
    again: AtomicUsize,
}

impl Item {
    fn owned() -> Result<(Owner, Arc<Record>)> {
        let record = Arc::new(
            Record {
                runs: AtomicUsize::new(0),
                running: AtomicBool::new(false),
                overlapped: AtomicBool::new(false),
                gone: Signal::new()?,
            },
            GFP_KERNEL,
        )?;
        let item = Self {
            task: Task::new()?,
            queue: WorkQueue::new(c"sluice_kunit_item", 0)?,
            record: record.clone(),
            again: AtomicUsize::new(0),
        };
        Ok((Owner(Arc::new(item, GFP_KERNEL)?), record))
    }

    fn queue(self: &Arc<Self>, delay_ms: u32) {
        self.task.queue(&self.queue, self, delay_ms);
    }
}

impl Run for Item {
    fn run(self: Arc<Self>) {
        if self.record.running.swap(true, Ordering::AcqRel) {
            self.record.overlapped.store(true, Ordering::Release);
        }
        super::pause();
        self.record.runs.fetch_add(1, Ordering::Relaxed);
        let again = &self.again;
        if again
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
        {
            self.queue(0);
        }
        self.record.running.store(false, Ordering::Release);
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.record.gone.complete();
    }
}

/// Whose end is that of the item, too: the last reference must not be that of the run, as the item
/// takes its workqueue along.
struct Owner(Arc<Item>);

impl Deref for Owner {
    type Target = Arc<Item>;

    fn deref(&self) -> &Arc<Item> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.again.store(0, Ordering::Relaxed);
        self.0.task.cancel();
    }
}

/// However it was queued before: a run begins after the last queueing.
pub(crate) fn each_queueing_is_followed_by_a_run() -> Result {
    let (item, record) = Item::owned()?;
    for delays in [&[0][..], &[5], &[10_000, 0], &[0, 1], &[20, 0, 3]] {
        let before = record.runs.load(Ordering::Relaxed);
        for delay_ms in delays {
            item.queue(*delay_ms);
        }
        let mut waited_ms = 0;
        while record.runs.load(Ordering::Relaxed) == before && waited_ms < LIMIT_MS / 10 {
            fsleep(Delta::from_millis(1));
            waited_ms += 1;
        }
        check!(record.runs.load(Ordering::Relaxed) > before);
    }
    drop(item);
    check!(record.gone.wait_timeout(LIMIT_MS));
    Ok(())
}

/// An item that is idle, delayed, queued or running, and one that queues itself again.
pub(crate) fn nothing_runs_after_cancel() -> Result {
    let (item, record) = Item::owned()?;
    let mut numbers = Numbers(5);
    for _ in 0..200 {
        item.again.store(numbers.below(3), Ordering::Relaxed);
        match numbers.below(4) {
            0 => item.queue(1),
            1 => item.queue(10_000),
            2 => item.queue(0),
            _ => (),
        }
        for _ in 0..numbers.below(4) {
            super::pause();
        }
        item.task.cancel();
        let (running, runs) = (
            record.running.load(Ordering::Acquire),
            record.runs.load(Ordering::Relaxed),
        );
        super::pause();
        check!(!running && runs == record.runs.load(Ordering::Relaxed));
    }
    check!(record.runs.load(Ordering::Relaxed) > 0);
    drop(item);
    check!(record.gone.wait_timeout(LIMIT_MS));
    Ok(())
}

/// Queued by several while it is being cancelled. The object is gone when all have let go of it, so
/// no reference was lost or given back twice.
pub(crate) fn nothing_is_lost_between_queue_and_cancel() -> Result {
    let (item, record) = Item::owned()?;
    let threads = Threads::new()?;
    for delay_ms in [0, 0, 1] {
        let item = Arc::clone(&item);
        threads.over_and_over(move || item.queue(delay_ms))?;
    }
    for _ in 0..500 {
        item.queue(0);
        item.task.cancel();
        super::pause();
    }
    drop(threads);
    item.task.cancel();
    check!(!record.overlapped.load(Ordering::Acquire));
    check!(record.runs.load(Ordering::Relaxed) > 0);
    drop(item);
    check!(record.gone.wait_timeout(LIMIT_MS));
    Ok(())
}
