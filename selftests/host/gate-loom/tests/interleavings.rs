// SPDX-License-Identifier: GPL-2.0

//! The gate under every interleaving of three or four threads.
//!
//! Each test is one promise of the contract. loom runs its threads in every order that the memory
//! model allows, without a bound on preemptions, and fails on a broken assertion, on an access to
//! [`Memory`] that is not ordered after the accesses it has to follow, on a deadlock (a waiter that
//! nobody wakes) and on a livelock. The `Signal` under the gate fails if it is given twice.

#[path = "common/explore.rs"]
mod explore;
#[path = "common/memory.rs"]
mod memory;

use explore::explore;
use loom::{
    sync::atomic::{
        AtomicBool,
        Ordering, //
    },
    thread, //
};
use memory::Memory;
use sluice_gate_loom::teardown::{
    gate::{
        CloseMode,
        Drained,
        Gate,
        Holder, //
    },
    sync::Signal, //
};
use std::sync::{
    atomic::AtomicUsize as Tally,
    Arc, //
};

/// A gate, what it protects, and whether the call that closed it has returned.
struct World {
    gate: Gate,
    memory: Memory,
    told: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(Signal::new()),
            memory: Memory::default(),
            told: AtomicBool::new(false),
        })
    }

    /// Closes the gate and lets everybody know that the call has returned.
    fn close(&self, mode: CloseMode) -> bool {
        let first = self.gate.close(mode);
        self.told.store(true, Ordering::Release);
        first
    }

    fn told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// What a teardown does with the proof that the gate has drained.
    fn take_apart(&self, _proof: &Drained) {
        // First, because the others would order it after what the proof alone has to.
        self.memory.take_apart();
        assert!(self.gate.is_drained());
        assert_eq!(self.gate.holders(), 0);
    }

    /// Enters, touches the memory once without asking, and leaves.
    fn visit(&self) -> End {
        let Some(holder) = self.gate.enter() else {
            return End::Refused;
        };
        self.memory.touch();
        End::Left {
            landed: 1,
            last: self.gate.leave(holder),
        }
    }

    /// One transfer of `bursts` bursts.
    fn transfer(&self, bursts: usize) -> End {
        match self.gate.enter() {
            Some(holder) => self.run(holder, bursts),
            None => End::Refused,
        }
    }

    /// The bursts of a transfer that has been admitted.
    fn run(&self, holder: Holder, bursts: usize) -> End {
        let mut landed = 0;
        while landed < bursts && !self.gate.is_cancelled() {
            self.memory.touch();
            landed += 1;
        }
        End::Left {
            landed,
            last: self.gate.leave(holder),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Refused,
    Left { landed: usize, last: bool },
}

impl End {
    fn was_last(self) -> bool {
        matches!(self, End::Left { last: true, .. })
    }

    fn was_admitted(self) -> bool {
        self != End::Refused
    }
}

/// Runs `work` on a thread of its own.
fn spawn<T: 'static>(
    world: &Arc<World>,
    work: impl FnOnce(&World) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

const MODES: [CloseMode; 2] = [CloseMode::Drain, CloseMode::Cancel];

/// Contract section 1, Drain: transfers started run to their end, and the closer waits for them.
#[test]
fn drain_waits_for_transfers_to_end() {
    explore("drain_waits_for_transfers_to_end", || {
        let world = World::new();
        let transfers = [(); 2].map(|_| spawn(&world, |world| world.transfer(1)));

        assert!(world.gate.close(CloseMode::Drain));
        world.take_apart(&world.gate.wait());

        let ends = transfers.map(|transfer| transfer.join().unwrap());
        for end in ends {
            assert!(!matches!(end, End::Left { landed: 0, .. }), "{end:?}");
        }
        assert!(ends.iter().filter(|end| end.was_last()).count() <= 1);
        assert!(!world.gate.is_cancelled());
        assert!(world.gate.enter().is_none());
    });
}

/// Contract section 1, Cancel: nothing is touched after the wait, however far the transfers got.
#[test]
fn cancel_waits_for_holders_to_leave() {
    explore("cancel_waits_for_holders_to_leave", || {
        let world = World::new();
        let transfer = spawn(&world, |world| world.transfer(2));
        let visitor = spawn(&world, World::visit);

        assert!(world.gate.close(CloseMode::Cancel));
        world.take_apart(&world.gate.wait());

        let ends = [transfer, visitor].map(|thread| thread.join().unwrap());
        assert!(ends.iter().filter(|end| end.was_last()).count() <= 1);
        assert!(world.gate.enter().is_none());
    });
}

/// After `close(Cancel)` has returned, every holder is told so at its next boundary.
#[test]
fn cancel_is_seen_at_the_next_boundary() {
    explore("cancel_is_seen_at_the_next_boundary", || {
        let world = World::new();
        let holders = [(); 2].map(|_| world.gate.enter().unwrap());
        let transfers = holders.map(|holder| {
            spawn(&world, |world| {
                for _burst in 0..2 {
                    let told = world.told();
                    let cancelled = world.gate.is_cancelled();
                    assert!(cancelled || !told, "a burst after close has returned");
                    if cancelled {
                        break;
                    }
                }
                world.gate.leave(holder)
            })
        });

        assert!(world.close(CloseMode::Cancel));

        let last = transfers.map(|transfer| transfer.join().unwrap());
        assert!(last.iter().filter(|last| **last).count() <= 1);
        assert!(world.gate.wait_timeout(0).is_some());
    });
}

/// After `close` has returned nobody is admitted, in either mode.
#[test]
fn nobody_enters_after_close_has_returned() {
    for mode in MODES {
        let name = format!("nobody_enters_after_close_has_returned, {mode:?}");
        explore(&name, move || {
            let world = World::new();
            let newcomers = [(); 2].map(|_| {
                spawn(&world, |world| {
                    let told = world.told();
                    let end = world.visit();
                    assert!(!(told && end.was_admitted()), "admitted after close");
                })
            });

            assert!(world.close(mode));
            assert!(world.gate.enter().is_none());

            for newcomer in newcomers {
                newcomer.join().unwrap();
            }
            assert!(world.gate.is_drained());
        });
    }
}

/// The last one out is exactly one: the last holder, or the closer who found nobody inside.
#[test]
fn the_last_one_out_is_one() {
    explore("the_last_one_out_is_one", || {
        let world = World::new();
        let holders = [(); 3].map(|_| world.gate.enter().unwrap());
        let leavers = holders.map(|holder| spawn(&world, |world| world.gate.leave(holder)));

        assert!(world.gate.close(CloseMode::Drain));
        let inside = world.gate.wait_timeout(0).is_none();

        let last = leavers.map(|leaver| leaver.join().unwrap());
        let last = last.into_iter().filter(|last| *last).count();
        assert!(last <= 1);
        assert!(last == 1 || !inside);
        // Both given and, the signal sees to that, given once.
        assert!(world.gate.wait_timeout(0).is_some());
    });
}

/// Closing is idempotent: of two closers one is first, and both return after the gate is empty.
#[test]
fn two_closers_both_wait_and_one_is_first() {
    for (one, two) in [
        (CloseMode::Drain, CloseMode::Drain),
        (CloseMode::Drain, CloseMode::Cancel),
        (CloseMode::Cancel, CloseMode::Cancel),
    ] {
        let name = format!("two_closers_both_wait_and_one_is_first, {one:?} and {two:?}");
        explore(&name, move || {
            let world = World::new();
            // The holder writes and the closers read, so that the closers may do so together.
            let holder = spawn(&world, |world| {
                if let Some(holder) = world.gate.enter() {
                    world.memory.take_apart();
                    world.gate.leave(holder);
                }
            });
            let close = |world: &World, mode| {
                let first = world.gate.close(mode);
                let _proof = world.gate.wait();
                world.memory.touch();
                assert!(world.gate.is_drained());
                first
            };
            let other = spawn(&world, move |world| close(world, two));

            let first = close(&world, one);

            let other_first = other.join().unwrap();
            assert!(first != other_first, "one closer is first");
            holder.join().unwrap();
            let cancelled = [one, two].contains(&CloseMode::Cancel);
            assert_eq!(world.gate.is_cancelled(), cancelled);
        });
    }
}

/// Two teardowns over two transfers: four threads.
#[test]
fn drain_and_cancel_at_once_over_two_transfers() {
    explore("drain_and_cancel_at_once_over_two_transfers", || {
        let world = World::new();
        let holders = [(); 2].map(|_| world.gate.enter().unwrap());
        let leavers = holders.map(|holder| {
            spawn(&world, |world| {
                world.memory.touch();
                world.gate.leave(holder)
            })
        });
        let drainer = spawn(&world, |world| {
            let first = world.gate.close(CloseMode::Drain);
            let proof = world.gate.wait();
            world.take_apart(&proof);
            first
        });

        let first = world.gate.close(CloseMode::Cancel);

        assert!(first != drainer.join().unwrap());
        let last = leavers.map(|leaver| leaver.join().unwrap());
        assert!(last.iter().filter(|last| **last).count() <= 1);
    });
}

/// Contract section 1: at its deadline a drain becomes a cancel, and then ends whatever the holders
/// had in mind.
#[test]
fn a_drain_that_reaches_its_deadline_becomes_a_cancel() {
    explore("a_drain_that_reaches_its_deadline_becomes_a_cancel", || {
        let world = World::new();
        let holder = world.gate.enter().unwrap();
        let endless = spawn(&world, |world| {
            while !world.gate.is_cancelled() {
                world.memory.touch();
                thread::yield_now();
            }
            world.gate.leave(holder)
        });
        let newcomer = spawn(&world, World::visit);

        assert!(world.gate.close(CloseMode::Drain));
        assert!(world.gate.wait_timeout(1).is_none());
        assert!(!world.gate.close(CloseMode::Cancel));
        world.take_apart(&world.gate.wait());

        let last = endless.join().unwrap();
        let newcomer = newcomer.join().unwrap();
        assert!(last != newcomer.was_last());
        assert!(world.gate.is_cancelled());
    });
}

/// A drain whose deadline may or may not come before its holders' end: either way it returns once,
/// with the proof.
#[test]
fn a_deadline_races_with_the_last_one_out() {
    explore("a_deadline_races_with_the_last_one_out", || {
        let world = World::new();
        let holders = [(); 2].map(|_| world.gate.enter().unwrap());
        let transfers = holders.map(|holder| spawn(&world, |world| world.run(holder, 1)));

        assert!(world.gate.close(CloseMode::Drain));
        let proof = world.gate.wait_timeout(1).unwrap_or_else(|| {
            assert!(!world.gate.close(CloseMode::Cancel));
            world.gate.wait()
        });
        world.take_apart(&proof);

        for transfer in transfers {
            assert!(transfer.join().unwrap().was_admitted());
        }
    });
}

/// A new life starts with nobody inside and nothing asked of anybody; its teardown, here begun by a
/// holder of it or by the owner, waits for its own holders.
#[test]
fn no_old_holder_is_counted_in_a_new_life() {
    explore("no_old_holder_is_counted_in_a_new_life", || {
        let world = World::new();
        // Not one of loom's: it orders nothing, it only says which life this instant belongs to.
        let life = Arc::new(Tally::new(0));
        let stay = {
            let life = life.clone();
            move |world: &World, holder, inside: fn(&Gate) -> bool| {
                let entered = life.load(Ordering::Relaxed);
                world.memory.touch();
                let done = inside(&world.gate);
                assert_eq!(life.load(Ordering::Relaxed), entered, "outlived its life");
                world.gate.leave(holder);
                (entered, done)
            }
        };
        let old = world.gate.enter().unwrap();
        let old = {
            let stay = stay.clone();
            spawn(&world, move |world| stay(world, old, Gate::is_cancelled))
        };
        let newcomer = spawn(&world, move |world| {
            let holder = world.gate.enter()?;
            Some(stay(world, holder, |gate| gate.close(CloseMode::Cancel)))
        });

        world.gate.close(CloseMode::Cancel);
        let proof = world.gate.wait();
        world.take_apart(&proof);
        life.fetch_add(1, Ordering::Relaxed);
        world.gate.reopen(proof);

        let first = world.gate.close(CloseMode::Drain);
        let proof = world.gate.wait();
        world.take_apart(&proof);

        let (entered, _) = old.join().unwrap();
        assert_eq!(entered, 0);
        let newcomer = newcomer.join().unwrap();
        assert!(
            first != (newcomer == Some((1, true))),
            "the new life was open"
        );
        let cancelled = matches!(newcomer, Some((1, _)));
        assert_eq!(world.gate.is_cancelled(), cancelled, "in the new life");
    });
}

/// Contract section 4: the engine closes the gate from inside and waits for nobody; a consumer's
/// RESET does. One of the holders is the last one out, who flushes before the RESET goes on.
#[test]
fn the_last_one_out_flushes_before_a_reset_goes_on() {
    explore("the_last_one_out_flushes_before_a_reset_goes_on", || {
        let world = World::new();
        let flushes = Arc::new(Tally::new(0));
        let leave = {
            let flushes = flushes.clone();
            move |world: &World, holder| {
                world.gate.leave_with(holder, || {
                    world.memory.take_apart();
                    assert_eq!(world.gate.holders(), 0);
                    flushes.fetch_add(1, Ordering::Relaxed);
                })
            }
        };
        let fault = leave.clone();
        let faulting = spawn(&world, move |world| {
            let holder = world.gate.enter()?;
            world.memory.touch();
            let first = world.gate.close(CloseMode::Cancel);
            assert!(world.gate.is_cancelled());
            Some((first, fault(world, holder)))
        });
        let transfer = spawn(&world, move |world| {
            let holder = world.gate.enter()?;
            world.memory.touch();
            Some(leave(world, holder))
        });

        let reset_first = world.gate.close(CloseMode::Cancel);
        world.take_apart(&world.gate.wait());
        let flushes = flushes.load(Ordering::Relaxed);

        let faulting = faulting.join().unwrap();
        let transfer = transfer.join().unwrap();
        let (fault_first, fault_last) = faulting.unwrap_or((false, false));
        assert!(reset_first != fault_first, "one closer is first");
        let last = usize::from(fault_last) + usize::from(transfer == Some(true));
        assert_eq!(flushes, last);
        assert!(
            last == 1 || (last == 0 && faulting.is_none()),
            "nobody flushed"
        );
    });
}

/// How a transfer that holds a pass and a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Completed,
    Aborted,
    Faulted,
}

/// Contract section 5: a queue pair and a region torn down at once, each with its own gate. Neither
/// teardown waits for the other, and the queue pair's gate is consulted first.
#[test]
fn queue_pair_and_region_at_once() {
    for qp_mode in MODES {
        for mr_mode in MODES {
            let name = format!("queue_pair_and_region_at_once, QP {qp_mode:?} and MR {mr_mode:?}");
            explore(&name, move || {
                let qp = World::new();
                let mr = World::new();
                let pass = qp.gate.enter().unwrap();
                let lease = mr.gate.enter().unwrap();

                let transfer = {
                    let mr = mr.clone();
                    spawn(&qp, move |qp| {
                        let mut cause = Cause::Completed;
                        for _burst in 0..2 {
                            if qp.gate.is_cancelled() {
                                cause = Cause::Aborted;
                                break;
                            }
                            if mr.gate.is_cancelled() {
                                cause = Cause::Faulted;
                                break;
                            }
                            qp.memory.touch();
                            mr.memory.touch();
                        }
                        mr.gate.leave(lease);
                        qp.gate.leave(pass);
                        cause
                    })
                };
                let revoke = spawn(&mr, move |mr| {
                    assert!(mr.gate.close(mr_mode));
                    mr.take_apart(&mr.gate.wait());
                });

                assert!(qp.gate.close(qp_mode));
                qp.take_apart(&qp.gate.wait());

                revoke.join().unwrap();
                let possible: &[_] = match (qp_mode, mr_mode) {
                    (CloseMode::Drain, CloseMode::Drain) => &[Cause::Completed],
                    (CloseMode::Drain, CloseMode::Cancel) => &[Cause::Completed, Cause::Faulted],
                    (CloseMode::Cancel, CloseMode::Drain) => &[Cause::Completed, Cause::Aborted],
                    (CloseMode::Cancel, CloseMode::Cancel) => {
                        &[Cause::Completed, Cause::Aborted, Cause::Faulted]
                    }
                };
                let cause = transfer.join().unwrap();
                assert!(possible.contains(&cause), "{cause:?}");
            });
        }
    }
}
