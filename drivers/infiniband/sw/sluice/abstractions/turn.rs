// SPDX-License-Identifier: GPL-2.0

//! Taking turns at an object.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        CondVar,
        Mutex, //
    }, //
};

/// The right to be the only one at something, for as long as that takes.
///
/// A mutex for when one thread may hold any number of them, which the lock checker of the kernel does
/// not allow for mutexes of a kind. It does not see these, so that they are taken in an order is for
/// their users to say and to keep.
#[pin_data]
pub(crate) struct Turn {
    #[pin]
    taken: Mutex<bool>,
    #[pin]
    free: CondVar,
}

impl Turn {
    /// Nobody's turn.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken <- new_mutex!(false, "Turn::taken"),
            free <- new_condvar!("Turn::free"),
        })
    }

    /// Waits until it is nobody's turn, uninterruptibly, and takes it. May sleep.
    pub(crate) fn take(&self) -> Taken<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            self.free.wait(&mut taken);
        }
        *taken = true;
        Taken(self)
    }
}

/// A turn, which ends when this is dropped.
#[must_use = "the turn ends when this is dropped"]
pub(crate) struct Taken<'a>(&'a Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.free.notify_one();
    }
}
