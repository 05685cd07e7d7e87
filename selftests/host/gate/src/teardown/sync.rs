// SPDX-License-Identifier: GPL-2.0

//! What the driver's `teardown::sync` gives the gate, on the standard library.

use std::sync::{
    Condvar,
    Mutex, //
};
use std::time::Duration;

pub use std::sync::atomic::{
    AtomicUsize,
    Ordering, //
};

/// An event that happens once, until it is reset. Panics where the kernel's completion would go
/// wrong silently: if it happens twice in one life, or is reset under a waiter.
#[derive(Default)]
pub struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    happened: bool,
    waiters: usize,
}

impl Signal {
    /// Creates an event that has not happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the event happen.
    pub fn complete(&self) {
        let mut state = self.state.lock().unwrap();
        assert!(!state.happened, "signalled twice in one life");
        state.happened = true;
        self.changed.notify_all();
    }

    /// Waits for the event.
    pub fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiters += 1;
        let mut state = self
            .changed
            .wait_while(state, |state| !state.happened)
            .unwrap();
        state.waiters -= 1;
    }

    /// Waits for the event, at most `timeout_ms` milliseconds; `true` if it has happened.
    pub fn wait_timeout(&self, timeout_ms: u32) -> bool {
        let mut state = self.state.lock().unwrap();
        state.waiters += 1;
        let limit = Duration::from_millis(timeout_ms.into());
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, limit, |state| !state.happened)
            .unwrap();
        state.waiters -= 1;
        state.happened
    }

    /// Makes the event not have happened.
    pub fn reset(&self) {
        let mut state = self.state.lock().unwrap();
        assert!(state.happened, "reset of an event that has not happened");
        assert_eq!(state.waiters, 0, "reset under a waiter");
        state.happened = false;
    }
}
