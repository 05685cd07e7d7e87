// SPDX-License-Identifier: GPL-2.0

//! The gate step by step, on one thread: what each call says in each situation.

use sluice_gate::teardown::{
    gate::{
        CloseMode,
        Gate, //
    },
    sync::Signal, //
};
use std::{
    thread,
    time::Duration, //
};

fn open_gate() -> Gate {
    Gate::new(Signal::new())
}

/// What a gate says of itself: closed, cancelled, drained, holders.
fn look(gate: &Gate) -> (bool, bool, bool, usize) {
    (
        gate.is_closed(),
        gate.is_cancelled(),
        gate.is_drained(),
        gate.holders(),
    )
}

#[test]
fn an_open_gate_counts_holders_and_is_never_drained() {
    let gate = open_gate();
    assert_eq!(look(&gate), (false, false, false, 0));
    let one = gate.enter().unwrap();
    let two = gate.enter().unwrap();
    assert_eq!(look(&gate), (false, false, false, 2));
    assert!(!gate.leave(one));
    assert!(!gate.leave_with(two, || panic!("not the last one of a closed gate")));
    assert_eq!(look(&gate), (false, false, false, 0));
    assert!(gate.wait_timeout(0).is_none());
}

#[test]
fn a_gate_closed_empty_is_drained_at_once() {
    for (mode, cancelled) in [(CloseMode::Drain, false), (CloseMode::Cancel, true)] {
        let gate = open_gate();
        assert!(gate.close(mode));
        assert_eq!(look(&gate), (true, cancelled, true, 0));
        assert!(gate.enter().is_none());
        let _proof = gate.wait();
        // Waiting again, and closing again, is as good.
        assert!(!gate.close(CloseMode::Drain));
        let _proof = gate.wait();
        assert_eq!(look(&gate), (true, cancelled, true, 0));
        assert!(!gate.close(CloseMode::Cancel));
        assert_eq!(look(&gate), (true, true, true, 0));
        assert!(gate.wait_timeout(0).is_some());
    }
}

#[test]
fn the_last_holder_drains_a_closed_gate() {
    let gate = open_gate();
    let one = gate.enter().unwrap();
    let two = gate.enter().unwrap();
    assert!(gate.close(CloseMode::Drain));
    assert_eq!(look(&gate), (true, false, false, 2));
    assert!(gate.enter().is_none());
    assert!(!gate.leave_with(one, || panic!("not the last one")));
    assert!(gate.wait_timeout(1).is_none());
    assert!(!gate.close(CloseMode::Cancel));
    assert_eq!(look(&gate), (true, true, false, 1));
    let mut seen = None;
    assert!(gate.leave_with(two, || {
        seen = Some(look(&gate));
        assert!(gate.wait_timeout(0).is_none(), "proof before the last word");
    }));
    assert_eq!(seen, Some((true, true, true, 0)));
    assert!(gate.wait_timeout(0).is_some());
}

#[test]
fn a_drain_does_not_take_a_cancel_back() {
    let gate = open_gate();
    assert!(gate.close(CloseMode::Cancel));
    assert!(!gate.close(CloseMode::Drain));
    assert!(gate.is_cancelled());
}

#[test]
fn a_new_life_knows_nothing_of_the_old_one() {
    let gate = open_gate();
    for mode in [CloseMode::Cancel, CloseMode::Drain, CloseMode::Cancel] {
        assert_eq!(look(&gate), (false, false, false, 0));
        let holder = gate.enter().unwrap();
        assert!(gate.close(mode));
        assert!(gate.wait_timeout(0).is_none());
        assert!(gate.leave(holder));
        let proof = gate.wait();
        gate.reopen(proof);
    }
    assert!(gate.wait_timeout(0).is_none());
}

#[test]
fn a_waiter_sleeps_until_the_last_holder_leaves() {
    let gate = open_gate();
    let holder = gate.enter().unwrap();
    assert!(gate.close(CloseMode::Drain));
    thread::scope(|scope| {
        let waits = scope.spawn(|| gate.wait());
        let waits_long = scope.spawn(|| gate.wait_timeout(600_000));
        thread::sleep(Duration::from_millis(10));
        assert!(!waits.is_finished() && !waits_long.is_finished());
        assert!(gate.leave(holder));
        let _proof = waits.join().unwrap();
        assert!(waits_long.join().unwrap().is_some());
    });
}
