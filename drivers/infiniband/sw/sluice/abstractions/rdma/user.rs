// SPDX-License-Identifier: GPL-2.0

//! System calls of a program: sharing memory with it and answering it.
//!
//! A program maps shared memory through the file of its context, at an offset that a response has
//! told it. The core keeps these offsets; [`Context`] remembers which are in use, so that none
//! outlives the context that it belongs to.

use crate::{
    abstractions::shared::SharedMemory,
    bindings, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
    transmute::AsBytes, //
};

/// What the core knows of an offered piece of memory, and the memory.
#[repr(C)]
struct Entry {
    core: bindings::rdma_user_mmap_entry,
    memory: Arc<SharedMemory>,
}

impl Entry {
    /// # Safety
    ///
    /// `core` must be the first part of an `Entry`.
    unsafe fn memory<'a>(core: *mut bindings::rdma_user_mmap_entry) -> &'a SharedMemory {
        // SAFETY: By the safety requirement. The memory is never changed.
        unsafe { &(*core.cast::<Self>()).memory }
    }
}

/// The reference to an entry that keeps it on offer.
struct Offer(NonNull<Entry>);

// SAFETY: The core protects its part of an entry with locks of its own, and the other part is
// `Send` and `Sync`.
unsafe impl Send for Offer {}

impl Offer {
    /// Withdraws the offer.
    ///
    /// # Safety
    ///
    /// The context of the entry must still exist.
    unsafe fn withdraw(self) {
        // SAFETY: The reference is ours to give up, and the context exists by the safety
        // requirement.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.0.as_ptr().cast()) };
    }
}

/// A program's context: the open file through which it uses a device.
#[pin_data]
pub(super) struct Context {
    /// By offset; `None` when the context is no more.
    #[pin]
    offers: Mutex<Option<RBTree<u64, Offer>>>,
}

impl Context {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                offers <- new_mutex!(Some(RBTree::new())),
            }),
            GFP_KERNEL,
        )
    }

    /// Withdraws all offers and takes no more.
    ///
    /// # Safety
    ///
    /// The core's half of the context must still exist.
    pub(super) unsafe fn close(&self) {
        let mut offers = self.offers.lock();
        let Some(mut tree) = offers.take() else {
            return;
        };
        while let Some(cursor) = tree.cursor_front_mut() {
            let (_, node) = cursor.remove_current();
            let (_, offer) = node.to_key_value();
            // SAFETY: By the safety requirement.
            unsafe { offer.withdraw() };
        }
    }

    fn withdraw(&self, offset: u64) {
        // Under the lock, so that the context cannot go away meanwhile.
        let mut offers = self.offers.lock();
        if let Some(offer) = (*offers).as_mut().and_then(|offers| offers.remove(&offset)) {
            // SAFETY: The context exists, otherwise `close` would have left no offers.
            unsafe { offer.withdraw() };
        }
    }
}

/// The system call that a verb is part of.
pub(crate) struct UserCall<'a> {
    udata: NonNull<bindings::ib_udata>,
    ucontext: NonNull<bindings::ib_ucontext>,
    context: &'a Arc<Context>,
    _not_send: PhantomData<*mut ()>,
}

impl<'a> UserCall<'a> {
    /// # Errors
    ///
    /// `EOPNOTSUPP` if `udata` is null: the caller is not a program.
    ///
    /// # Safety
    ///
    /// `udata` must be null, or belong to the system call that is being carried out; and if it has
    /// a context, `context_of` must give the value behind that.
    pub(super) unsafe fn new(
        udata: *mut bindings::ib_udata,
        context_of: impl FnOnce(*mut bindings::ib_ucontext) -> &'a Arc<Context>,
    ) -> Result<Self> {
        let udata = NonNull::new(udata).ok_or(EOPNOTSUPP)?;
        // SAFETY: By the safety requirement it is inside the attributes of a system call.
        let ucontext = unsafe { bindings::sluice_udata_context(udata.as_ptr()) };
        let ucontext = NonNull::new(ucontext).ok_or(EOPNOTSUPP)?;
        Ok(Self {
            udata,
            ucontext,
            context: context_of(ucontext.as_ptr()),
            _not_send: PhantomData,
        })
    }
}

impl UserCall<'_> {
    /// Offers `memory` to the program, which can then map it at the returned place.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory or no place left.
    pub(crate) fn map(&mut self, memory: Arc<SharedMemory>) -> Result<Mapping> {
        let size = memory.len();
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let entry = KBox::new(
            Entry {
                core: pin_init::zeroed(),
                memory,
            },
            GFP_KERNEL,
        )?;

        // A context outlives the system calls made through it, so it is open.
        let mut offers = self.context.offers.lock();
        let offers = (*offers).as_mut().ok_or(EIO)?;

        let entry = KBox::into_raw(entry);
        // SAFETY: The context is that of the running system call, and the entry stays where it is
        // until the core gives it back to `free_entry`.
        let inserted = to_result(unsafe {
            bindings::rdma_user_mmap_entry_insert(self.ucontext.as_ptr(), entry.cast(), size)
        });
        if let Err(error) = inserted {
            // SAFETY: It came from a box, and the core has not taken it.
            drop(unsafe { KBox::from_raw(entry) });
            return Err(error);
        }
        // SAFETY: The entry is valid because we have a reference.
        let start = unsafe { (*entry).core.start_pgoff };
        // CAST: An `unsigned long` has 64 bits here.
        let offset = (start as u64) << PAGE_SHIFT;
        // SAFETY: It came from a box, so it is not null.
        let offer = Offer(unsafe { NonNull::new_unchecked(entry) });
        offers.insert(node.into_node(offset, offer));

        Ok(Mapping {
            context: self.context.clone(),
            offset,
            size,
        })
    }

    /// Hands `response` to the program.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the program has no room for it, `EFAULT` if the room is not its own.
    pub(crate) fn respond<T: AsBytes>(&mut self, response: &T) -> Result {
        let bytes = response.as_bytes();
        // SAFETY: `udata` is valid while the system call runs.
        if unsafe { self.udata.as_ref() }.outlen < bytes.len() {
            return Err(EINVAL);
        }
        // SAFETY: As above; the core copies that many initialised bytes.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.udata.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        })
    }
}

/// Maps the memory that is on offer at the offset of `vma`.
///
/// # Errors
///
/// `EINVAL` if there is nothing, it has another size, or the program wants a private copy.
///
/// # Safety
///
/// `vma` must be the area of a `mmap` operation that is being carried out on `ucontext`, a context
/// that was not opened by another driver.
pub(super) unsafe fn mmap(
    ucontext: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> Result {
    // SAFETY: By the safety requirements. The core compares size and kind of mapping.
    let entry = unsafe { bindings::rdma_user_mmap_entry_get(ucontext, vma) };
    if entry.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: All entries of our contexts are from `UserCall::map`, and `vma` is what it has to be
    // by the safety requirements.
    let result = unsafe { Entry::memory(entry).map_into(vma) };
    // SAFETY: The reference was taken above.
    unsafe { bindings::rdma_user_mmap_entry_put(entry) };
    result
}

/// Frees an entry to which there are no more references.
///
/// # Safety
///
/// `entry` must be from [`UserCall::map`] and not be used any more.
pub(super) unsafe fn free_entry(entry: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: By the safety requirements it came from a box.
    drop(unsafe { KBox::from_raw(entry.cast::<Entry>()) });
}

/// A place in the file of a program's context where it can map memory.
///
/// When this is dropped, no new mapping can be made. Mappings that exist stay, and their memory
/// with them.
pub(crate) struct Mapping {
    context: Arc<Context>,
    offset: u64,
    size: usize,
}

impl Mapping {
    /// The place, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The size in bytes: what the program has to ask for.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.context.withdraw(self.offset);
    }
}
