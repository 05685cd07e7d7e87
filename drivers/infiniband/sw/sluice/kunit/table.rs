// SPDX-License-Identifier: GPL-2.0

//! The table of gated values under RCU: what keys and queue pair numbers are looked up in.

#![forbid(unsafe_code)]

use super::{
    Numbers,
    Threads, //
};
use crate::{
    abstractions::table::{
        Published,
        Table, //
    },
    teardown::{
        drain::Closable,
        gate::CloseMode, //
    },
};
use core::sync::atomic::{
    AtomicBool,
    AtomicUsize,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// The last index; so small that each is used often.
const LAST: u32 = 7;

/// A value that knows where it was put, and says so when it has been dropped.
struct Value {
    index: u32,
    check: u64,
}

impl Value {
    fn new(index: u32) -> Self {
        Self {
            index,
            check: !u64::from(index),
        }
    }

    fn is_whole(&self, index: u32) -> bool {
        self.index == index && self.check == !u64::from(index)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check = 0;
    }
}

fn publish(table: &Arc<Table<Value>>) -> Result<(u32, Published<Value>)> {
    let slot = table.reserve()?;
    let index = slot.index();
    Ok((index, slot.publish(Value::new(index))?))
}

/// Looked up by others all the while, with leases that are kept for a moment.
pub(crate) fn values_are_whole_while_they_are_taken_away() -> Result {
    let table = Arc::new(Table::<Value>::new(1, LAST)?, GFP_KERNEL)?;
    let (bad, found) = (
        Arc::new(AtomicUsize::new(0), GFP_KERNEL)?,
        Arc::new(AtomicUsize::new(0), GFP_KERNEL)?,
    );
    let threads = Threads::new()?;
    for reader in 0..3 {
        let (table, bad, found) = (table.clone(), bad.clone(), found.clone());
        threads.over_and_over(move || {
            for index in 0..LAST + 2 {
                let Some(lease) = table.lookup(index) else {
                    continue;
                };
                if reader == 0 {
                    super::pause();
                }
                found.fetch_add(1, Ordering::Relaxed);
                if !lease.is_whole(index) {
                    bad.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?;
    }
    let mut numbers = Numbers(1);
    for _ in 0..300 {
        let mut published = KVec::new();
        for _ in 0..1 + numbers.below(LAST as usize) {
            published.push(publish(&table)?, GFP_KERNEL)?;
        }
        super::pause();
        for (index, owner) in published {
            match numbers.below(3) {
                0 => drop(owner),
                1 => check!(owner.retire().is_whole(index)),
                _ => {
                    owner.close(CloseMode::Drain);
                    check!(table.lookup(index).is_none());
                    check!(owner.retire().is_whole(index));
                }
            }
            check!(table.lookup(index).is_none());
        }
    }
    drop(threads);
    check!(bad.load(Ordering::Relaxed) == 0);
    check!(found.load(Ordering::Relaxed) > 0);
    Ok(())
}

/// Index and round together do not come again, and no index before all others have been used.
pub(crate) fn an_index_comes_with_another_round() -> Result {
    let table = Arc::new(Table::<Value>::new(1, LAST)?, GFP_KERNEL)?;
    let kept = table.reserve()?;
    let mut seen = KVec::new();
    for _ in 0..5 * LAST {
        let slot = table.reserve()?;
        let now = (slot.index(), slot.round());
        check!(now.0 != kept.index() && (1..=LAST).contains(&now.0));
        check!(!seen.contains(&now));
        let recent = seen.len().saturating_sub(LAST as usize - 2);
        check!(seen.iter().skip(recent).all(|(index, _)| *index != now.0));
        seen.push(now, GFP_KERNEL)?;
    }
    let mut all = KVec::new();
    for _ in 1..LAST {
        all.push(table.reserve()?, GFP_KERNEL)?;
    }
    check!(table.reserve().is_err_and(|error| error == ENOSPC));
    Ok(())
}

/// A reader stays in its critical section for as long as a value is taken away.
pub(crate) fn nobody_waits_for_a_grace_period() -> Result {
    let table = Arc::new(Table::<Value>::new(1, LAST)?, GFP_KERNEL)?;
    let (inside, over, gave_up) = (
        Arc::new(AtomicBool::new(false), GFP_KERNEL)?,
        Arc::new(AtomicBool::new(false), GFP_KERNEL)?,
        Arc::new(AtomicBool::new(false), GFP_KERNEL)?,
    );
    let (_, owner) = publish(&table)?;
    let threads = Threads::new()?;
    let (inside_there, over_there, gave_up_there) = (inside.clone(), over.clone(), gave_up.clone());
    threads.once(move || {
        let start = Instant::<Monotonic>::now();
        let _rcu = rcu::read_lock();
        inside_there.store(true, Ordering::Release);
        while !over_there.load(Ordering::Acquire) {
            if start.elapsed() > Delta::from_secs(5) {
                gave_up_there.store(true, Ordering::Release);
                break;
            }
            core::hint::spin_loop();
        }
    })?;
    while !inside.load(Ordering::Acquire) {
        super::pause();
    }
    drop(owner.retire());
    over.store(true, Ordering::Release);
    drop(threads);
    check!(!gave_up.load(Ordering::Acquire));
    Ok(())
}

/// A value whose gate is closed is not found, by number or in passing.
pub(crate) fn what_is_closed_is_passed_over() -> Result {
    let table = Arc::new(Table::<Value>::new(1, LAST)?, GFP_KERNEL)?;
    let (first, first_owner) = publish(&table)?;
    let (second, second_owner) = publish(&table)?;
    let (third, third_owner) = publish(&table)?;
    let lease = table.lookup(second).ok_or(EINVAL)?;
    check!(!lease.is_cancelled());
    second_owner.close(CloseMode::Drain);
    check!(!lease.is_cancelled() && second_owner.holders() == 1);
    check!(second_owner.wait_timeout(1).is_none());
    second_owner.close(CloseMode::Cancel);
    check!(lease.is_cancelled());
    check!(lease.is_whole(second));
    check!(table.lookup(second).is_none());
    let (found, _) = table.lookup_from(first + 1).ok_or(EINVAL)?;
    check!(found == third);
    check!(table.lookup_from(third + 1).is_none());
    drop(lease);
    // The index is not free before its owner has gone.
    for _ in 0..2 * LAST {
        check!(table.reserve()?.index() != second);
    }
    check!(second_owner.retire().is_whole(second));
    drop((first_owner, third_owner));
    check!(table.lookup_from(0).is_none());
    Ok(())
}
