// SPDX-License-Identifier: GPL-2.0

//! Rings whose other side writes whatever it likes. KASAN watches where the driver's side reads and
//! writes.

#![forbid(unsafe_code)]

use super::{
    Numbers,
    Threads, //
};
use crate::abstractions::{
    kunit::scribble,
    ring::{
        Completion,
        CompletionRing,
        RecvRing,
        SendRing, //
    },
};
use core::sync::atomic::{
    AtomicU64,
    Ordering, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Where the program's indices are in the user ABI.
const PRODUCER: usize = 128;
const CONSUMER: usize = 256;

/// Values at which an index may go wrong.
fn index(numbers: &mut Numbers, capacity: u32) -> u32 {
    match numbers.below(6) {
        // CAST: Any bits will do.
        0 => numbers.any() as u32,
        1 => u32::MAX,
        2 => capacity,
        3 => capacity + 1,
        4 => 0x8000_0000,
        // CAST: Small.
        _ => numbers.below(2 * capacity as usize) as u32,
    }
}

/// Whatever the program says, no more waits than fits, and it is in the ring.
pub(crate) fn any_index_is_masked() -> Result {
    let mut numbers = Numbers(2);
    for entries in [1, 2, 15, 16, 100] {
        let mut send = SendRing::new(entries, 64)?;
        let mut recv = RecvRing::new(entries, 4)?;
        check!(send.capacity() >= entries && recv.capacity() >= entries);
        check!(send.memory().len() % PAGE_SIZE == 0);
        check!(send.peek().is_none() && recv.peek().is_none());
        for _ in 0..200 {
            scribble(
                &send.memory(),
                PRODUCER,
                index(&mut numbers, send.capacity()),
            );
            scribble(
                &recv.memory(),
                PRODUCER,
                index(&mut numbers, recv.capacity()),
            );
            check!(send.pending() <= send.capacity());
            check!(recv.pending() <= recv.capacity());
            check!(send.peek().is_some() == (send.pending() > 0));
            check!(recv.peek().is_some() == (recv.pending() > 0));
            send.sge(0);
            recv.sge(0);
            // The driver's own index is its own affair, wherever the program puts it.
            scribble(
                &send.memory(),
                CONSUMER,
                index(&mut numbers, send.capacity()),
            );
            let before = send.pending();
            if before > 0 {
                send.retire();
                recv.retire();
                check!(send.pending() == before - 1);
            }
        }
        let pending = send.pending();
        check!(send.discard() == pending && send.pending() == 0);
        recv.discard();
        check!(recv.pending() == 0 && recv.peek().is_none());
    }
    Ok(())
}

/// Every word changes under the reader, the sizes in the header included.
pub(crate) fn scribbled_over_while_it_is_read() -> Result {
    let mut send = SendRing::new(16, 128)?;
    let mut completions = CompletionRing::new(16)?;
    let threads = Threads::new()?;
    for memory in [send.memory(), completions.memory()] {
        let seed = AtomicU64::new(3);
        threads.over_and_over(move || {
            let mut numbers = Numbers(seed.load(Ordering::Relaxed));
            for _ in 0..200 {
                // The header and the first slots more often than the rest.
                let end = [512, memory.len()][numbers.below(2)];
                let offset = numbers.below(end);
                // CAST: Any bits will do.
                scribble(&memory, offset, numbers.any() as u32);
            }
            seed.store(numbers.any(), Ordering::Relaxed);
        })?;
    }
    let (send_capacity, completion_capacity) = (send.capacity(), completions.capacity());
    for i in 0..5000 {
        check!(send.pending() <= send_capacity);
        if let Some(wqe) = send.peek() {
            send.sge(wqe.num_sge);
            send.sge(wqe.num_sge % 8);
            send.retire();
        }
        check!(completions.pending() <= completion_capacity);
        completions.push(&Completion {
            wr_id: i,
            ..Default::default()
        });
        if i % 100 == 0 {
            let mut other = CompletionRing::new(completion_capacity)?;
            completions.move_into(&mut other)?;
            check!(other.pending() <= completion_capacity);
            super::pause();
        }
    }
    drop(threads);
    check!(send.capacity() == send_capacity && completions.capacity() == completion_capacity);
    Ok(())
}

/// Wherever the program says that it has read up to, one slot stays empty and none is left.
pub(crate) fn completions_stay_in_their_slots() -> Result {
    let mut numbers = Numbers(4);
    let mut ring = CompletionRing::new(10)?;
    for wr_id in 0..2000 {
        scribble(
            &ring.memory(),
            CONSUMER,
            index(&mut numbers, ring.capacity()),
        );
        scribble(
            &ring.memory(),
            PRODUCER,
            index(&mut numbers, ring.capacity()),
        );
        let before = ring.pending();
        let pushed = ring.push(&Completion {
            wr_id,
            ..Default::default()
        });
        check!(pushed == (before < ring.capacity()));
        check!(ring.pending() == before + u32::from(pushed));
    }
    // With a program that keeps to the rules: as many as fit, and then no more.
    let mut ring = CompletionRing::new(10)?;
    for _ in 0..ring.capacity() {
        check!(ring.push(&Completion::default()));
    }
    check!(!ring.push(&Completion::default()));
    let mut small = CompletionRing::new(1)?;
    check!(ring.move_into(&mut small).is_err() && small.pending() == 0);
    let mut large = CompletionRing::new(100)?;
    ring.move_into(&mut large)?;
    check!(large.pending() == ring.capacity());
    Ok(())
}

/// Neither elements of the list nor inline data are found where the next slot is.
pub(crate) fn what_is_beyond_a_slot_is_not_there() -> Result {
    let send = SendRing::new(3, 64)?;
    let recv = RecvRing::new(3, 4)?;
    scribble(&send.memory(), PRODUCER, 1);
    scribble(&recv.memory(), PRODUCER, 1);
    // CAST: Small.
    let room = (send.payload() / 16) as u32;
    check!(send.sge(room - 1).is_some() && send.sge(room).is_none());
    check!(send.sge(u32::MAX).is_none() && send.sge(0x1000_0000).is_none());
    let room = (0..).find(|i| recv.sge(*i).is_none());
    check!(room.is_some_and(|room| (4..16).contains(&room)));
    check!(recv.sge(u32::MAX).is_none());
    Ok(())
}
