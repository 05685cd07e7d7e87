// SPDX-License-Identifier: GPL-2.0

//! Pinned memory of a program.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)

use super::rdma::{
    AccessFlags,
    Device, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    alloc::{
        flags::GFP_KERNEL_ACCOUNT,
        KVVec, //
    },
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

/// The pins on a range of a program's memory. They count against the program's `RLIMIT_MEMLOCK`.
///
/// # Invariants
///
/// `umem` came from `ib_umem_get()` and is owned by this.
struct Pins {
    umem: NonNull<bindings::ib_umem>,
    /// The core counts the pins on behalf of the device, so that has to live longer.
    _device: ARef<Device>,
}

impl Pins {
    fn new(device: &Device, start: u64, length: usize, access: AccessFlags) -> Result<Self> {
        // CAST: Addresses have 64 bits here; the bits of the access flags are those of the C side.
        let (start, access) = (start as c_ulong, access.to_raw());
        // SAFETY: `device` is valid, and the core checks every other argument.
        let umem = from_err_ptr(unsafe {
            bindings::sluice_umem_get(device.as_raw(), start, length, access)
        })?;
        // INVARIANT: Just obtained.
        Ok(Self {
            umem: NonNull::new(umem).ok_or(EFAULT)?,
            _device: device.into(),
        })
    }

    /// The kernel addresses of the first `count` pages.
    fn addresses(&self, count: usize) -> Result<KVVec<NonNull<u8>>> {
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: By the type invariant.
        let mut sg = unsafe { (*self.umem.as_ptr()).sgt_append.sgt.sgl };

        // An entry of the list is a run of pages that lie side by side in physical memory, and
        // so in the kernel's direct mapping too.
        while let Some(entry) = NonNull::new(sg) {
            // SAFETY: `entry` is an entry of the list of a table that we own, and names pages that
            // are pinned. The kernel has no highmem (see Kconfig), so they have an address.
            let (first, length) = unsafe {
                let page = bindings::sluice_sg_page(entry.as_ptr());
                (bindings::sluice_page_address(page), entry.as_ref().length)
            };
            let first = NonNull::new(first.cast::<u8>()).ok_or(EFAULT)?;
            // CAST: 32 bits fit into a `usize`.
            for offset in (0..length as usize).step_by(PAGE_SIZE) {
                if pages.len() == count {
                    return Ok(pages);
                }
                // SAFETY: The run has `length` bytes.
                pages.push(unsafe { first.add(offset) }, GFP_KERNEL_ACCOUNT)?;
            }
            // SAFETY: `entry` is an entry of a valid list.
            sg = unsafe { bindings::sluice_sg_next(entry.as_ptr()) };
        }

        // The core pins whole pages, so there cannot be fewer than the range touches.
        if pages.len() < count {
            return Err(EFAULT);
        }
        Ok(pages)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is ours to release.
        unsafe { bindings::ib_umem_release(self.umem.as_ptr()) };
    }
}

/// A range of a program's memory, pinned for as long as this lives.
///
/// An empty range is allowed and pins nothing. Dropping may sleep.
///
/// # Invariants
///
/// Each element of `pages` is the kernel address of one page of memory that `_pins` keeps pinned;
/// together they are the pages of the range, in its order.
pub(crate) struct UserMemory {
    pages: KVVec<NonNull<u8>>,
    page_offset: usize,
    len: usize,
    _pins: Option<Pins>,
}

// SAFETY: Pinned memory may be accessed through the kernel's mapping by any thread, and unpinned by
// any: the core remembers whose account the pins are on.
unsafe impl Send for UserMemory {}

// SAFETY: A shared reference gives away raw pointers only.
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// Pins `length` bytes from address `start` of the current program.
    ///
    /// They are pinned for writing if `access` allows anybody to write.
    ///
    /// # Errors
    ///
    /// Those of the core: `EFAULT` if the program itself may not access the memory in this way,
    /// `ENOMEM` beyond `RLIMIT_MEMLOCK`, `EINVAL` if the range wraps around.
    pub(crate) fn pin(
        device: &Device,
        start: u64,
        length: usize,
        access: AccessFlags,
    ) -> Result<Self> {
        // CAST: Smaller than a page.
        let page_offset = (start % PAGE_SIZE as u64) as usize;
        if length == 0 {
            // INVARIANT: The range has no pages.
            return Ok(Self {
                pages: KVVec::new(),
                page_offset,
                len: 0,
                _pins: None,
            });
        }

        let pins = Pins::new(device, start, length, access)?;
        let count = page_offset
            .checked_add(length)
            .ok_or(EINVAL)?
            .div_ceil(PAGE_SIZE);
        // INVARIANT: `pages` are the addresses of the pages that `pins` keeps pinned.
        Ok(Self {
            pages: pins.addresses(count)?,
            page_offset,
            len: length,
            _pins: Some(pins),
        })
    }

    /// A range that pins nothing, as somebody else keeps the pages.
    ///
    /// # Safety
    ///
    /// `pages` must be the addresses of pages that live longer than what is returned, and enough
    /// of them for `len` bytes from `page_offset`, which is less than a page.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) unsafe fn from_pages(
        pages: KVVec<NonNull<u8>>,
        page_offset: usize,
        len: usize,
    ) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            pages,
            page_offset,
            len,
            _pins: None,
        }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The offset of the first byte in page 0.
    pub(crate) fn page_offset(&self) -> usize {
        self.page_offset
    }

    /// The kernel address of page `index`, counted from the page that holds the first byte.
    /// `None` beyond the end.
    ///
    /// The program, too, may access the memory at any time.
    pub(super) fn page(&self, index: usize) -> Option<*mut u8> {
        self.pages.get(index).map(|page| page.as_ptr())
    }
}
