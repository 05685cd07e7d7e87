// SPDX-License-Identifier: GPL-2.0

//! Memory that the kernel shares with a program.

use crate::bindings;
use core::{
    alloc::Layout,
    ptr::NonNull, //
};
use kernel::{
    alloc::{
        allocator::Vmalloc,
        Allocator,
        NumaNode, //
    },
    mm::virt::VmaNew,
    page::{
        page_align,
        PAGE_SIZE, //
    },
    prelude::*, //
};

/// Zeroed memory, contiguous in the kernel's address space, that a program can map.
///
/// The program may change every byte at any time. So the kernel's half has to go through `as_ptr`,
/// with accesses that are fine with that, and there are no references to the memory.
///
/// # Invariants
///
/// `ptr` points at whole pages, as many as `layout` says, that came from `Vmalloc`, were zeroed, and
/// are owned by this.
pub(crate) struct SharedMemory {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: The memory may be accessed by any thread and freed by any.
unsafe impl Send for SharedMemory {}

// SAFETY: A shared reference gives away a raw pointer only.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Allocates `len` bytes, rounded up to whole pages.
    ///
    /// It is the program that says how many, so that there are not so many is no matter for the
    /// kernel's log.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is zero or absurd, `ENOMEM` if there is not that much memory.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let len = page_align(len).filter(|&len| len != 0).ok_or(EINVAL)?;
        let layout = Layout::from_size_align(len, PAGE_SIZE).map_err(|_| EINVAL)?;
        let flags = GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN;
        let ptr = Vmalloc::alloc(layout, flags, NumaNode::NO_NODE)?.cast();
        // INVARIANT: Just allocated, with this layout, whose size is a multiple of a page.
        Ok(Self { ptr, layout })
    }

    /// The length in bytes: a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    /// The first byte.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Maps the whole into `vma`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `vma` is larger, `ENOMEM` if there is no memory for page tables.
    ///
    /// # Safety
    ///
    /// `vma` must be the area of a `mmap` operation that is being carried out.
    pub(super) unsafe fn map_into(&self, vma: *mut bindings::vm_area_struct) -> Result {
        // SAFETY: By the safety requirement it is being set up.
        let vma = unsafe { VmaNew::from_raw(vma) };
        if vma.end() - vma.start() > self.len() {
            return Err(EINVAL);
        }
        vma.set_dontexpand();
        vma.set_dontdump();
        let pages = vma.set_mixedmap();
        for (index, address) in (vma.start()..vma.end()).step_by(PAGE_SIZE).enumerate() {
            // SAFETY: The area is no larger than the memory, so this is one of its pages, which are
            // from `Vmalloc` by the type invariant and outlive the call. The area takes references
            // to them, so it may live longer than `self`.
            let page = unsafe { Vmalloc::to_page(self.ptr.add(index * PAGE_SIZE)) };
            pages.vm_insert_page(address, &page)?;
        }
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the memory is ours, and nobody can reach it any more
        // except through mappings, which have references of their own to its pages.
        unsafe { Vmalloc::free(self.ptr, self.layout) };
    }
}
