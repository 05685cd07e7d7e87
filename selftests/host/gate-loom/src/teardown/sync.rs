// SPDX-License-Identifier: GPL-2.0

//! What the driver's `teardown::sync` gives the pure modules, on loom.

use loom::sync::{
    Condvar,
    Mutex, //
};

pub use loom::sync::atomic::{
    fence,
    AtomicBool,
    AtomicUsize,
    Ordering, //
};

/// A lock around a few steps.
#[derive(Default)]
pub struct Lock(Mutex<()>);

impl Lock {
    /// A lock that is free.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `f` with the lock held.
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let _held = self.0.lock().unwrap();
        f()
    }
}

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
        while !state.happened {
            state = self.changed.wait(state).unwrap();
        }
        state.waiters -= 1;
    }

    /// Looks whether the event has happened, now.
    ///
    /// loom has no time: that the limit passes, or does not, is a matter of when this thread looks,
    /// and loom lets it look at every moment there is.
    pub fn wait_timeout(&self, _timeout_ms: u32) -> bool {
        self.state.lock().unwrap().happened
    }

    /// Makes the event not have happened.
    pub fn reset(&self) {
        let mut state = self.state.lock().unwrap();
        assert!(state.happened, "reset of an event that has not happened");
        assert_eq!(state.waiters, 0, "reset under a waiter");
        state.happened = false;
    }
}
