// SPDX-License-Identifier: GPL-2.0

//! A spinlock that softirqs may take, too.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use crate::bindings;
use kernel::{
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    types::Opaque, //
};

/// The pinned C object behind a [`Lock`].
#[pin_data]
struct Inner {
    #[pin]
    lock: Opaque<bindings::spinlock_t>,
}

/// A lock around a few steps that do not sleep; softirqs wait meanwhile, so they may take it as well.
pub struct Lock(Pin<KBox<Inner>>);

// SAFETY: A spinlock may be taken by any thread.
unsafe impl Send for Lock {}
// SAFETY: As above; that is what it is for.
unsafe impl Sync for Lock {}

impl Lock {
    /// A lock that is free; `name` and `class` are for the lock checker. May sleep.
    pub fn new(name: &'static CStr, class: Pin<&'static LockClassKey>) -> Result<Self> {
        let inner = KBox::pin_init(
            pin_init!(Inner {
                lock <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` points to uninitialised memory for a `spinlock_t`, which stays
                    // where it is because `Inner` is pinned; name and class are static.
                    unsafe {
                        bindings::__spin_lock_init(slot, name.as_char_ptr(), class.as_ptr());
                    }
                }),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(inner))
    }

    /// Runs `f`, which must not sleep, with the lock held. Process or softirq context.
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let lock = self.0.lock.get();
        // SAFETY: The lock is initialised, by construction.
        unsafe { bindings::sluice_spin_lock_bh(lock) };
        let result = f();
        // SAFETY: As above; it was taken by this thread just now.
        unsafe { bindings::sluice_spin_unlock_bh(lock) };
        result
    }
}
