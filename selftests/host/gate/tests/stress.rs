// SPDX-License-Identifier: GPL-2.0

//! The gate on real threads, many lives long.
//!
//! Unlike under loom, what the gate protects is plain memory here: under Miri
//! (`cargo +nightly miri test -p sluice-gate`) an access that the gate should have kept out is a
//! reported data race, elsewhere it may show as a torn value.

use sluice_gate::teardown::{
    gate::{
        CloseMode,
        Drained,
        Gate, //
    },
    sync::Signal, //
};
use std::{
    cell::UnsafeCell,
    io::Write,
    sync::{
        atomic::{
            AtomicBool,
            AtomicUsize,
            Ordering, //
        },
        Barrier, //
    },
    thread,
    time::{
        Duration,
        Instant, //
    }, //
};

/// How many lives a gate has in one test at most.
const MAX_LIVES: u64 = if cfg!(miri) { 40 } else { 20_000 };
/// How long a test begins new lives.
const TIME: Duration = Duration::from_secs(3);
/// How many threads enter it.
const HOLDERS: usize = 3;
/// How many threads close it.
const CLOSERS: usize = 3;
/// How many bursts a transfer has.
const BURSTS: usize = 4;

/// Two words that only the owner of a drained gate changes, both at once.
#[derive(Default)]
struct Memory(UnsafeCell<[u64; 2]>);

// SAFETY: that it may be shared is what the gate promises, and what these tests examine.
unsafe impl Sync for Memory {}

impl Memory {
    /// The life that the memory is in. For holders.
    fn life(&self) -> u64 {
        // SAFETY: the caller is inside the gate, so nobody writes.
        let [one, two] = unsafe { *self.0.get() };
        assert_eq!(one, two, "torn");
        one
    }

    /// Begins the next life. For the owner of the drained gate.
    fn begin_next(&self) {
        // SAFETY: nobody is inside the gate, and there is one owner.
        unsafe { *self.0.get() = (*self.0.get()).map(|life| life + 1) };
    }
}

/// A gate, what it protects, and what its visitors met with.
struct World {
    gate: Gate,
    memory: Memory,
    start: Instant,
    over: AtomicBool,
    refused: AtomicUsize,
    ended: AtomicUsize,
    cut: AtomicUsize,
    last: AtomicUsize,
}

impl World {
    fn new() -> Self {
        Self {
            gate: Gate::new(Signal::new()),
            memory: Memory::default(),
            start: Instant::now(),
            over: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            last: AtomicUsize::new(0),
        }
    }

    /// Runs one transfer after the other until it is over.
    fn transfers(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let Some(holder) = self.gate.enter() else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
                continue;
            };
            let life = self.memory.life();
            let landed = (0..BURSTS)
                .take_while(|_| !self.gate.is_cancelled())
                .map(|burst| {
                    assert_eq!(self.memory.life(), life, "outlived its life");
                    if burst == BURSTS / 2 {
                        // There may be fewer processors than threads: let others meet a holder.
                        thread::yield_now();
                    }
                })
                .count();
            let end = match landed {
                BURSTS => &self.ended,
                _ => &self.cut,
            };
            end.fetch_add(1, Ordering::Relaxed);
            if self.gate.leave(holder) {
                self.last.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the life of the drained gate, and begins the next one. For its owner.
    fn next_life(&self, life: u64, proof: Drained) {
        self.memory.begin_next();
        assert!(self.gate.is_drained());
        assert!(self.gate.enter().is_none());
        if life + 1 == MAX_LIVES || (self.start.elapsed() >= TIME && !cfg!(miri)) {
            self.over.store(true, Ordering::Relaxed);
        }
        self.gate.reopen(proof);
    }

    /// Lets somebody in, so that not every life ends before it has begun.
    fn let_in(&self, life: u64) {
        while life % 2 == 0 && self.gate.holders() == 0 && !self.gate.is_closed() {
            thread::yield_now();
        }
    }

    /// Checks what has to hold when all threads are gone, and says what has happened.
    fn report(&self, test: &str) {
        let lives = self.memory.life();
        assert_eq!(self.gate.holders(), 0);
        assert!(!self.gate.is_closed());
        let [refused, ended, cut, last] = [&self.refused, &self.ended, &self.cut, &self.last]
            .map(|count| count.load(Ordering::Relaxed));
        assert!(ended + cut >= (lives / 2) as usize);
        assert!(last <= lives as usize, "one last out in a life");
        let line = format!(
            "{test}: {lives} lives, transfers: {ended} ended, {cut} cut, {last} the last one out; \
             {refused} refused\n"
        );
        // Not with `println!`, whose output the test harness keeps to itself.
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn one_owner_and_many_lives() {
    let world = World::new();
    let gate = &world.gate;
    thread::scope(|scope| {
        for _ in 0..HOLDERS {
            scope.spawn(|| world.transfers());
        }
        for life in 0.. {
            if world.over.load(Ordering::Relaxed) {
                break;
            }
            world.let_in(life);
            let mode = match life % 3 {
                0 => CloseMode::Cancel,
                _ => CloseMode::Drain,
            };
            assert!(gate.close(mode));
            let proof = match life % 3 {
                // A drain whose deadline passes at once.
                2 => gate.wait_timeout(0).unwrap_or_else(|| {
                    assert!(!gate.close(CloseMode::Cancel));
                    gate.wait()
                }),
                _ => gate.wait(),
            };
            world.next_life(life, proof);
        }
    });
    world.report("one_owner_and_many_lives");
}

#[test]
fn several_closers_in_every_life() {
    let world = World::new();
    let gate = &world.gate;
    let firsts = AtomicUsize::new(0);
    let together = Barrier::new(CLOSERS);
    thread::scope(|scope| {
        for _ in 0..HOLDERS {
            scope.spawn(|| world.transfers());
        }
        for closer in 0..CLOSERS {
            let (world, firsts, together) = (&world, &firsts, &together);
            scope.spawn(move || {
                for life in 0.. {
                    if world.over.load(Ordering::Relaxed) {
                        break;
                    }
                    world.let_in(life);
                    together.wait();
                    let mode = match (life + closer as u64) % 4 {
                        0 => CloseMode::Cancel,
                        _ => CloseMode::Drain,
                    };
                    if gate.close(mode) {
                        firsts.fetch_add(1, Ordering::Relaxed);
                    }
                    let proof = gate.wait();
                    // The gate is its owner's again when all waiters are gone.
                    if together.wait().is_leader() {
                        world.next_life(life, proof);
                    }
                    together.wait();
                }
            });
        }
    });
    assert_eq!(firsts.into_inner() as u64, world.memory.life());
    world.report("several_closers_in_every_life");
}
