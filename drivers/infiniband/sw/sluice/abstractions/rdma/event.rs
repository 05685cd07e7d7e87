// SPDX-License-Identifier: GPL-2.0

//! Raising events of objects that may be destroyed at any time.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// The way to an object of the core, for as long as that exists.
#[pin_data]
pub(super) struct Target<C> {
    #[pin]
    object: SpinLock<Option<NonNull<C>>>,
}

// SAFETY: The core's objects may be used by any thread, and the pointer is only followed under the
// lock.
unsafe impl<C> Send for Target<C> {}

// SAFETY: As above.
unsafe impl<C> Sync for Target<C> {}

impl<C> Target<C> {
    /// Runs `f` on the object, unless that is gone. The object stays until `f` has returned.
    pub(super) fn with(&self, f: impl FnOnce(NonNull<C>)) {
        // The lock is held meanwhile: this is what `close` waits for.
        let object = self.object.lock();
        if let Some(object) = *object {
            f(object);
        }
    }
}

/// The end of a [`Target`] that belongs to the object itself. When it is dropped the object is
/// gone for all others, and nobody is using it.
pub(super) struct Source<C>(Arc<Target<C>>);

impl<C> Source<C> {
    /// # Safety
    ///
    /// `object` must be valid for as long as this lives.
    pub(super) unsafe fn new(object: *mut C) -> Result<Self> {
        let target = Arc::pin_init(
            pin_init!(Target {
                object <- new_spinlock!(NonNull::new(object)),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(target))
    }

    pub(super) fn target(&self) -> Arc<Target<C>> {
        self.0.clone()
    }
}

impl<C> Drop for Source<C> {
    fn drop(&mut self) {
        *self.0.object.lock() = None;
    }
}

/// A driver's object and the source of its events.
pub(super) struct Live<T, C> {
    // Dropped first: an object that is being dropped has no events.
    pub(super) _source: Source<C>,
    pub(super) object: Arc<T>,
}

/// Raises the asynchronous event `event`, which concerns `element`, through `handler`.
///
/// # Safety
///
/// `handler` must be the event handler of `element` and `context` what it wants to be called with.
pub(super) unsafe fn raise(
    handler: Option<unsafe extern "C" fn(*mut bindings::ib_event, *mut c_void)>,
    context: *mut c_void,
    device: *mut bindings::ib_device,
    element: bindings::ib_event__bindgen_ty_1,
    event: bindings::ib_event_type,
) {
    let Some(handler) = handler else {
        return;
    };
    let mut event = bindings::ib_event {
        device,
        element,
        event,
    };
    // SAFETY: By the safety requirements. The handler does not keep the pointer.
    unsafe { handler(&mut event, context) };
}
