// SPDX-License-Identifier: GPL-2.0

//! Memory that the kernel shares with a program.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    page::page_align,
    prelude::*, //
};

/// Zeroed memory, contiguous in the kernel's address space, that a program can map.
///
/// The program may change every byte at any time. So the kernel's half has to go through `as_ptr`,
/// with accesses that are fine with that, and there are no references to the memory.
///
/// # Invariants
///
/// `ptr` points at `len` bytes that came from `vmalloc_user()` and are owned by this.
pub(crate) struct SharedMemory {
    ptr: NonNull<c_void>,
    len: usize,
}

// SAFETY: The memory may be accessed by any thread and freed by any.
unsafe impl Send for SharedMemory {}

// SAFETY: A shared reference gives away a raw pointer only.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Allocates `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is zero or absurd, `ENOMEM` if there is not that much memory.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let len = page_align(len).filter(|&len| len != 0).ok_or(EINVAL)?;
        // SAFETY: May be called with any size, in a context that may sleep.
        let ptr = unsafe { bindings::vmalloc_user_noprof(len) };
        // INVARIANT: Just allocated.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            len,
        })
    }

    /// The length in bytes: a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first byte.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr().cast()
    }

    /// Maps the whole into `vma`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `vma` is larger.
    ///
    /// # Safety
    ///
    /// `vma` must be the area of a `mmap` operation that is being carried out.
    pub(super) unsafe fn map_into(&self, vma: *mut bindings::vm_area_struct) -> Result {
        // SAFETY: `vma` is valid by the safety requirement, the memory is from `vmalloc_user()`
        // by the type invariant. The area takes references to the pages, so it may live longer
        // than `self`.
        to_result(unsafe { bindings::remap_vmalloc_range(vma, self.ptr.as_ptr(), 0) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the memory is ours, and nobody can reach it any more
        // except through mappings, which have references of their own to its pages.
        unsafe { bindings::vfree(self.ptr.as_ptr()) };
    }
}
