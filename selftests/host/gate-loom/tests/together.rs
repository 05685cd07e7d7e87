// SPDX-License-Identifier: GPL-2.0

//! Several gates closed as one, and the drains of one gate and of several, under the interleavings of
//! three or four threads: contract sections 3 and 8.
//!
//! Goes on where `interleavings.rs` ends, and works as that does.

#[path = "common/explore.rs"]
mod explore;
#[path = "common/memory.rs"]
mod memory;

use explore::{
    explore,
    explore_within, //
};
use loom::{
    sync::atomic::{
        AtomicBool,
        Ordering, //
    },
    thread, //
};
use memory::Memory;
use sluice_gate_loom::teardown::{
    commit::Commit,
    drain::{
        drain,
        drain_all,
        Closable,
        Closing,
        End,
        Job,
        Report, //
    },
    gate::{
        CloseMode,
        Drained,
        Gate,
        Holder, //
    },
    sync::{
        Lock,
        Signal, //
    }, //
};
use std::{
    cell::Cell,
    sync::Arc, //
};

/// How many preemptions there may be in one run of the larger models. Without a bound they have
/// millions of interleavings.
const FEW: Option<usize> = Some(2);

/// A queue pair or a region: a gate, and what it protects.
struct Thing {
    gate: Gate,
    memory: Memory,
}

impl Thing {
    fn new() -> Self {
        Self {
            gate: Gate::new(Signal::new()),
            memory: Memory::default(),
        }
    }
}

/// Two things that are torn down as one, in the order in which a boundary looks at them.
struct World {
    first: Thing,
    second: Thing,
    commit: Commit,
    /// Somebody knows that a gate is closed, and has said so.
    known: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            first: Thing::new(),
            second: Thing::new(),
            commit: Commit::new(Lock::new()),
            known: AtomicBool::new(false),
        })
    }

    /// Closes both, the one that is looked at last first if `reversed`.
    fn close(&self, mode: CloseMode, reversed: bool) {
        self.commit.all(|| {
            let mut gates = [&self.first.gate, &self.second.gate];
            if reversed {
                gates.reverse();
            }
            for gate in gates {
                gate.close(mode);
            }
        });
    }

    /// What the engine does at a boundary, with a holder in each gate: which gate has to be left.
    fn boundary(&self) -> Option<usize> {
        let look = || {
            let gates = [&self.first.gate, &self.second.gate];
            gates.iter().position(|gate| gate.is_cancelled())
        };
        look().and_then(|_| {
            self.commit.settle();
            look()
        })
    }

    /// What the engine does to start a transfer. Returns who is at fault that it does not.
    fn start(&self) -> Result<(Holder, Holder), usize> {
        let Some(pass) = self.first.gate.enter() else {
            self.commit.settle();
            return Err(0);
        };
        let Some(lease) = self.second.gate.enter() else {
            self.commit.settle();
            let cause = if self.first.gate.is_closed() { 0 } else { 1 };
            self.first.gate.leave(pass);
            return Err(cause);
        };
        Ok((pass, lease))
    }

    fn tell(&self) {
        self.known.store(true, Ordering::Release);
    }

    fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    fn leave(&self, (pass, lease): (Holder, Holder)) {
        self.second.gate.leave(lease);
        self.first.gate.leave(pass);
    }
}

/// Runs `work` on a thread of its own.
fn spawn<W: Send + Sync + 'static, T: 'static>(
    world: &Arc<W>,
    work: impl FnOnce(&W) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

const MODES: [CloseMode; 2] = [CloseMode::Drain, CloseMode::Cancel];

/// No boundary finds the second gate cancelled and the first one not; and what one transfer has
/// found, all the others find, too.
#[test]
fn a_boundary_sees_all_or_nothing() {
    for reversed in [false, true] {
        let name = format!("a_boundary_sees_all_or_nothing, reversed {reversed}");
        explore_within(&name, FEW, move || {
            let world = World::new();
            let holders = [(); 2].map(|_| world.start().unwrap());
            let transfers = holders.map(|holders| {
                spawn(&world, move |world| {
                    for _burst in 0..2 {
                        let known = world.is_known();
                        let cut = world.boundary();
                        assert!(cut.is_some() || !known, "open after it was known closed");
                        assert_ne!(cut, Some(1), "the second is closed and the first is not");
                        if cut.is_some() {
                            world.tell();
                            break;
                        }
                    }
                    world.leave(holders);
                })
            });

            world.close(CloseMode::Cancel, reversed);

            for transfer in transfers {
                transfer.join().unwrap();
            }
        });
    }
}

/// A transfer that does not start finds the first gate at fault, whatever it had entered before.
#[test]
fn a_start_sees_all_or_nothing() {
    for mode in MODES {
        for reversed in [false, true] {
            let name = format!("a_start_sees_all_or_nothing, {mode:?}, reversed {reversed}");
            explore_within(&name, FEW, move || {
                let world = World::new();
                let starters = [(); 2].map(|_| {
                    spawn(&world, |world| {
                        let known = world.is_known();
                        match world.start() {
                            Ok(holders) => {
                                assert!(!known, "started after it was known closed");
                                world.first.memory.touch();
                                world.second.memory.touch();
                                world.leave(holders);
                            }
                            Err(cause) => {
                                assert_eq!(cause, 0);
                                world.tell();
                            }
                        }
                    })
                });

                world.close(mode, reversed);
                let _proof = world.first.gate.wait();
                world.first.memory.take_apart();
                let _proof = world.second.gate.wait();
                world.second.memory.take_apart();

                for starter in starters {
                    starter.join().unwrap();
                }
            });
        }
    }
}

/// One that starts, one at its boundary, and two commits of which one closes both gates: four
/// threads.
#[test]
fn two_commits_over_one_gate() {
    explore_within("two_commits_over_one_gate", FEW, || {
        let world = World::new();
        let holders = world.start().unwrap();
        let running = spawn(&world, move |world| {
            let cut = world.boundary();
            assert_ne!(cut, Some(1));
            world.leave(holders);
        });
        let starting = spawn(&world, |world| match world.start() {
            Ok(holders) => world.leave(holders),
            Err(cause) => assert_eq!(cause, 0),
        });
        // The queue pair alone.
        let other = spawn(&world, |world| {
            world.commit.all(|| {
                world.first.gate.close(CloseMode::Cancel);
            });
        });

        world.close(CloseMode::Cancel, true);
        let _ = world.first.gate.wait();
        let _ = world.second.gate.wait();

        running.join().unwrap();
        starting.join().unwrap();
        other.join().unwrap();
    });
}

/// The drain of one gate: in either mode it returns once, with the proof, when nobody is inside;
/// it hastens those who have been told to leave, and nobody else.
#[test]
fn drain_returns_when_nobody_is_inside() {
    for mode in MODES {
        for timeout_ms in [0, 1] {
            let name = format!("drain_returns_when_nobody_is_inside, {mode:?}, {timeout_ms} ms");
            explore(&name, move || {
                let world = Arc::new(Thing::new());
                let holder = world.gate.enter().unwrap();
                let running = spawn(&world, move |world| {
                    world.memory.touch();
                    world.gate.leave(holder);
                });
                let newcomer = spawn(&world, |world| {
                    if let Some(holder) = world.gate.enter() {
                        world.memory.touch();
                        world.gate.leave(holder);
                    }
                });

                let hastened = Cell::new(false);
                let (_proof, outcome) = drain(&world.gate, mode, timeout_ms, || {
                    assert!(world.gate.is_cancelled(), "hastened though it may run on");
                    hastened.set(true);
                });
                world.memory.take_apart();

                assert!(world.gate.is_drained());
                let patient = mode == CloseMode::Drain && timeout_ms > 0;
                let late = outcome.past_deadline;
                assert!(world.gate.is_cancelled() || patient && !hastened.get() && !late);
                assert!(!late || outcome.waited && mode == CloseMode::Drain);
                assert!(!hastened.get() || outcome.waited);
                if !patient {
                    assert_eq!(hastened.get(), outcome.waited);
                    assert_eq!(late, outcome.waited && mode == CloseMode::Drain);
                } else {
                    assert_eq!(hastened.get(), late);
                }
                running.join().unwrap();
                newcomer.join().unwrap();
            });
        }
    }
}

/// A drain whose holder does not end by itself: the deadline cuts it, with one that fails beside it.
#[test]
fn drain_cuts_at_the_deadline() {
    explore_within("drain_cuts_at_the_deadline", FEW, || {
        let world = Arc::new(Thing::new());
        let holder = world.gate.enter().unwrap();
        let endless = spawn(&world, move |world| {
            while !world.gate.is_cancelled() {
                world.memory.touch();
                thread::yield_now();
            }
            world.gate.leave(holder);
        });
        let failing = spawn(&world, |world| {
            if let Some(holder) = world.gate.enter() {
                world.gate.close(CloseMode::Cancel);
                world.gate.leave(holder);
            }
        });

        let (_proof, outcome) = drain(&world.gate, CloseMode::Drain, 1, || ());
        world.memory.take_apart();

        assert!(world.gate.is_cancelled());
        assert!(outcome.waited || !outcome.past_deadline);
        endless.join().unwrap();
        failing.join().unwrap();
    });
}

/// The drain of a thing as a job.
struct Teardown<'a>(&'a Thing);

impl Job for Teardown<'_> {
    type Done = Report;

    fn gate(&self) -> &dyn Closable {
        &self.0.gate
    }

    fn hasten(&self) {
        assert!(self.0.gate.is_cancelled(), "hastened though it may run on");
    }

    fn finish(self, _drained: Drained, report: Report) -> Report {
        self.0.memory.take_apart();
        assert!(self.0.gate.is_drained());
        report
    }
}

/// Tears both down, the first with `timeouts[0]` milliseconds, the second with `timeouts[1]`. The
/// deadline of 1 ms passes after some looks, one of 1000 ms does not.
fn tear_down(world: &World, mode: CloseMode, timeouts: [u32; 2], grouped: bool) -> [Report; 2] {
    let things = [&world.first, &world.second];
    let mut at = 0;
    let mut closings = things.map(|thing| {
        at += 1;
        Closing::new(Teardown(thing), mode, timeouts[at - 1])
    });
    world
        .commit
        .all(|| closings.iter_mut().for_each(Closing::close));
    let looks = Cell::new(0_u64);
    drain_all(&mut closings, grouped, || {
        looks.set(looks.get() + 1);
        if looks.get() == 1 {
            return 0;
        }
        // Time passes only when the others get on.
        thread::yield_now();
        looks.get() * 500_000
    });
    closings.map(|closing| closing.into_done().expect("finished"))
}

/// One transfer of `bursts` bursts through both gates.
fn transfer(world: &World, holders: (Holder, Holder), bursts: usize) -> bool {
    for _ in 0..bursts {
        if world.boundary().is_some() {
            world.leave(holders);
            return false;
        }
        world.first.memory.touch();
        world.second.memory.touch();
    }
    world.leave(holders);
    true
}

/// Each is finished once, when nobody is inside, and says what was the matter.
#[test]
fn all_drain_beside_each_other() {
    for mode in MODES {
        let name = format!("all_drain_beside_each_other, {mode:?}");
        explore_within(&name, FEW, move || {
            let world = World::new();
            let holders = world.start().unwrap();
            let running = spawn(&world, move |world| transfer(world, holders, 1));
            let starting = spawn(&world, |world| match world.start() {
                Ok(holders) => transfer(world, holders, 1),
                Err(cause) => {
                    assert_eq!(cause, 0);
                    true
                }
            });

            let reports = tear_down(&world, mode, [1000, 1000], true);

            let whole = [running, starting].map(|thread| thread.join().unwrap());
            for report in reports {
                let cut = mode == CloseMode::Cancel && report.waited;
                assert_eq!(report.end == End::Cancelled, cut, "{report:?}");
                assert_eq!(report.end == End::Drained, !cut, "{report:?}");
                assert!(!report.past_deadline && !report.by_group);
            }
            assert!(mode == CloseMode::Cancel || whole == [true; 2]);
        });
    }
}

/// A holder of the first gate that does not end by itself, one of the second that ends soon or, in a
/// group, is told to leave.
#[test]
fn a_deadline_concerns_one_or_all() {
    for grouped in [false, true] {
        let name = format!("a_deadline_concerns_one_or_all, grouped {grouped}");
        explore_within(&name, FEW, move || {
            let world = World::new();
            let endless = world.first.gate.enter().unwrap();
            let soon = world.second.gate.enter().unwrap();
            let endless = spawn(&world, move |world| {
                while !world.first.gate.is_cancelled() {
                    thread::yield_now();
                }
                world.first.gate.leave(endless);
            });
            let soon = spawn(&world, move |world| {
                world.second.memory.touch();
                world.second.gate.leave(soon);
            });

            let [first, second] = tear_down(&world, CloseMode::Drain, [1, 1000], grouped);

            assert_eq!(first.end, End::Cancelled);
            assert!(first.past_deadline && !first.by_group);
            assert!(!second.past_deadline);
            assert_eq!(second.by_group, second.end == End::Cancelled);
            assert_eq!(world.second.gate.is_cancelled(), second.by_group);
            assert!(grouped || !second.by_group);
            endless.join().unwrap();
            soon.join().unwrap();
        });
    }
}

/// A holder of the second gate fails, and closes that by itself; the one of the first never ends by
/// itself. In a group it is told to leave at once, alone at its deadline.
#[test]
fn a_fault_concerns_one_or_all() {
    for grouped in [false, true] {
        let name = format!("a_fault_concerns_one_or_all, grouped {grouped}");
        explore_within(&name, FEW, move || {
            let world = World::new();
            let endless = world.first.gate.enter().unwrap();
            let failing = world.second.gate.enter().unwrap();
            let endless = spawn(&world, move |world| {
                while !world.first.gate.is_cancelled() {
                    thread::yield_now();
                }
                world.first.gate.leave(endless);
            });
            let failing = spawn(&world, move |world| {
                world.second.gate.close(CloseMode::Cancel);
                world.second.gate.leave(failing);
            });

            let [first, second] = tear_down(&world, CloseMode::Drain, [3, 1000], grouped);

            assert_eq!(first.end, End::Cancelled);
            assert_ne!(first.by_group, first.past_deadline);
            assert!(grouped || !first.by_group && !second.by_group);
            match second.end {
                End::Faulted => {
                    assert!(second.waited);
                    assert_eq!(first.by_group, grouped);
                }
                // It has failed before the gates were closed, or after the deadline of the first.
                End::Cancelled => assert!(second.waited && first.past_deadline),
                End::Drained => assert!(!second.waited && first.past_deadline),
            }
            endless.join().unwrap();
            failing.join().unwrap();
        });
    }
}
