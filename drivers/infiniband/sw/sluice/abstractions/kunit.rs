// SPDX-License-Identifier: GPL-2.0

//! What the tests in [`crate::kunit`] need and safe code cannot do: the part of a program with its
//! memory, and to be registered.

use super::{
    shared::SharedMemory,
    umem::UserMemory, //
};
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    alloc::VVec,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Writes a word into memory that is shared with a program, as the program might do. `offset` is
/// in bytes and wraps around at the end.
pub(crate) fn scribble(memory: &SharedMemory, offset: usize, value: u32) {
    let word = offset % memory.len() / size_of::<u32>();
    // SAFETY: The word lies within the memory, which is accessed through raw pointers only.
    unsafe {
        memory
            .as_ptr()
            .cast::<u32>()
            .add(word)
            .write_volatile(value)
    };
}

/// Memory that stands in for a program's, of pages in any order. Nobody else accesses it.
pub(crate) struct Pages {
    // Goes before what it refers to.
    memory: UserMemory,
    _pages: VVec<u8>,
}

impl Pages {
    /// Makes a range of `len` bytes that begins `page_offset` bytes into its first page. All its
    /// bytes are zero. `order` says which of the kernel's pages stands at each place; pages with
    /// successive numbers lie side by side.
    ///
    /// # Errors
    ///
    /// `EINVAL` if these pages are not enough, `ENOMEM`.
    pub(crate) fn new(order: &[usize], page_offset: usize, len: usize) -> Result<Self> {
        if page_offset >= PAGE_SIZE || page_offset + len > order.len() * PAGE_SIZE {
            return Err(EINVAL);
        }
        let count = order.iter().max().map_or(0, |last| last + 1);
        let mut bytes = VVec::from_elem(0, count * PAGE_SIZE, GFP_KERNEL)?;
        let first = NonNull::from(bytes.as_mut_slice()).cast::<u8>();
        let mut pages = KVVec::with_capacity(order.len(), GFP_KERNEL)?;
        for page in order {
            // SAFETY: There are `count` pages.
            pages.push(unsafe { first.add(page * PAGE_SIZE) }, GFP_KERNEL)?;
        }
        // SAFETY: These are pages of `bytes`, which lives longer and is not used otherwise.
        let memory = unsafe { UserMemory::from_pages(pages, page_offset, len) };
        Ok(Self {
            memory,
            _pages: bytes,
        })
    }

    fn place(&self, offset: usize) -> Option<*mut u8> {
        let at = self.memory.page_offset() + offset;
        let page = self.memory.page(at / PAGE_SIZE)?;
        Some(page.wrapping_add(at % PAGE_SIZE))
    }

    /// The byte at `offset`, which may be beyond the range but not beyond its last page.
    pub(crate) fn byte(&self, offset: usize) -> Option<u8> {
        // SAFETY: The place is in a page of ours.
        self.place(offset).map(|place| unsafe { place.read() })
    }

    /// Changes the byte at `offset`, as [`Self::byte`] counts.
    pub(crate) fn set_byte(&mut self, offset: usize, value: u8) {
        if let Some(place) = self.place(offset) {
            // SAFETY: The place is in a page of ours.
            unsafe { place.write(value) };
        }
    }
}

impl Deref for Pages {
    type Target = UserMemory;

    fn deref(&self) -> &UserMemory {
        &self.memory
    }
}

/// Makes a suite of the functions of a module in [`crate::kunit`]. What KUnit's macro makes of them
/// is unsafe code, so it stands here.
macro_rules! suite {
    ($suite:ident, $module:ident: $($test:ident),* $(,)?) => {
        #[kunit_tests($suite)]
        mod $module {
            use crate::kunit::$module;

            $(
                #[test]
                fn $test() -> kernel::error::Result {
                    $module::$test()
                }
            )*
        }
    };
}

suite!(sluice_gate, gate:
    nobody_is_inside_after_the_wait,
    a_drain_becomes_a_cancel_at_its_deadline,
    everybody_who_waits_goes_on,
);
suite!(sluice_table, table:
    values_are_whole_while_they_are_taken_away,
    an_index_comes_with_another_round,
    nobody_waits_for_a_grace_period,
    what_is_closed_is_passed_over,
);
suite!(sluice_ring, ring:
    any_index_is_masked,
    scribbled_over_while_it_is_read,
    completions_stay_in_their_slots,
    what_is_beyond_a_slot_is_not_there,
);
suite!(sluice_task, task:
    each_queueing_is_followed_by_a_run,
    nothing_runs_after_cancel,
    nothing_is_lost_between_queue_and_cancel,
);
suite!(sluice_copy, copy:
    bytes_arrive_over_any_pages,
    nothing_is_moved_out_of_bounds,
    atomics_want_aligned_words,
);
