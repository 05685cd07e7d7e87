// SPDX-License-Identifier: GPL-2.0

//! A completion that can be waited for with a time limit and used again.

use kernel::{
    bindings,
    prelude::*,
    processor::cpu_relax,
    time::{
        msecs_to_jiffies,
        Delta,
        Instant,
        Monotonic, //
    },
    types::Opaque, //
};

/// How long to wait before going to sleep. Whoever makes the event happen is usually at it on
/// another processor; to be put to sleep and woken costs up to a tick where others compete.
const SPIN: Delta = Delta::from_micros(100);

/// The pinned C object behind a [`Signal`].
#[pin_data]
struct Inner {
    #[pin]
    completion: Opaque<bindings::completion>,
}

/// An event that happens once, until it is [reset](Signal::reset).
///
/// C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)
pub struct Signal(Pin<KBox<Inner>>);

// SAFETY: a `struct completion` is synchronised internally and not bound to a thread.
unsafe impl Send for Signal {}
// SAFETY: as above; all methods take `&self` and only call functions that lock the completion.
unsafe impl Sync for Signal {}

impl Signal {
    /// Creates an event that has not happened. May sleep.
    pub fn new() -> Result<Self> {
        let inner = KBox::pin_init(
            pin_init!(Inner {
                completion <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` points to uninitialised memory for a `struct completion`,
                    // which stays where it is because `Inner` is pinned.
                    unsafe { bindings::init_completion(slot) }
                }),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(inner))
    }

    fn as_raw(&self) -> *mut bindings::completion {
        self.0.completion.get()
    }

    /// Makes the event happen, for all present and future waiters. Any context.
    pub fn complete(&self) {
        // SAFETY: `as_raw` is an initialised completion, by construction.
        unsafe { bindings::complete_all(self.as_raw()) }
    }

    /// Waits for the event for a moment without giving up the processor.
    fn spin(&self) {
        let start = Instant::<Monotonic>::now();
        // SAFETY: `as_raw` is an initialised completion, by construction.
        while !unsafe { bindings::completion_done(self.as_raw()) } && start.elapsed() < SPIN {
            cpu_relax();
        }
    }

    /// Waits for the event, uninterruptibly. May sleep.
    pub fn wait(&self) {
        self.spin();
        // SAFETY: `as_raw` is an initialised completion, by construction.
        unsafe { bindings::wait_for_completion(self.as_raw()) }
    }

    /// Waits for the event, at most `timeout_ms` milliseconds; `true` if it has happened. May
    /// sleep.
    pub fn wait_timeout(&self, timeout_ms: u32) -> bool {
        self.spin();
        // SAFETY: `as_raw` is an initialised completion, by construction. The function returns
        // the jiffies that were left, at least 1 if the event has happened.
        unsafe {
            bindings::wait_for_completion_timeout(self.as_raw(), msecs_to_jiffies(timeout_ms)) != 0
        }
    }

    /// Makes the event not have happened. There must be no waiter.
    pub fn reset(&self) {
        // CAST: nothing is reinitialised but the `done` field; waiters, of which there are none,
        // are kept by the wait queue.
        // SAFETY: `as_raw` is an initialised completion. `done` is written without its lock, as
        // `reinit_completion()` does.
        unsafe { core::ptr::addr_of_mut!((*self.as_raw()).done).write_volatile(0) }
    }
}
