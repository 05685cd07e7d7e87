// SPDX-License-Identifier: GPL-2.0

//! Rust values behind the structures of the core.

use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};

/// A structure of the core with a value of ours behind it.
///
/// The core allocates such objects, zeroed and of the size that `ib_device_ops` names, and hands
/// them around as pointers to their first part. Nothing here makes references to that part: it is
/// the core's.
#[repr(C)]
pub(super) struct Object<C, T> {
    core: MaybeUninit<C>,
    value: MaybeUninit<T>,
    _not_made_in_rust: PhantomData<*mut ()>,
}

impl<C, T> Object<C, T> {
    /// Moves `value` behind `core`.
    ///
    /// # Safety
    ///
    /// `core` must be the first part of an `Object<C, T>` in which there is no value, and which
    /// nobody else looks at.
    pub(super) unsafe fn put(core: *mut C, value: T) {
        // SAFETY: By the safety requirements the memory is there, and ours for the moment.
        unsafe { Self::value(core).write(value) };
    }

    /// The value behind `core`.
    ///
    /// # Safety
    ///
    /// `core` must be the first part of an `Object<C, T>` in which there is a value, and it must
    /// stay there for as long as the returned reference lives.
    pub(super) unsafe fn get<'a>(core: *mut C) -> &'a T {
        // SAFETY: By the safety requirements.
        unsafe { &*Self::value(core) }
    }

    /// Moves the value out from behind `core`.
    ///
    /// # Safety
    ///
    /// `core` must be the first part of an `Object<C, T>` in which there is a value, to which there
    /// are no references.
    pub(super) unsafe fn take(core: *mut C) -> T {
        // SAFETY: By the safety requirements.
        unsafe { Self::value(core).read() }
    }

    /// # Safety
    ///
    /// `core` must be the first part of an `Object<C, T>`.
    unsafe fn value(core: *mut C) -> *mut T {
        // SAFETY: By the safety requirement, the projection stays inside the object.
        unsafe { (&raw mut (*core.cast::<Self>()).value).cast() }
    }
}
