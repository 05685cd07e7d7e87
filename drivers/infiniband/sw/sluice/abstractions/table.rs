// SPDX-License-Identifier: GPL-2.0

//! A table of gated values, read under RCU.
//!
//! [`Table::lookup`] takes no lock: it finds a value and enters its gate inside one RCU read-side
//! critical section, and hands out a [`Lease`], the only way to reach the value. [`Published`] is
//! the unique owner of a value in the table; to have the value back, it must be unpublished, its
//! gate closed and drained, as [`Published::retire`] sees to. So a value can neither be reached
//! after its gate has drained nor be freed while somebody is inside.
//!
//! # Examples
//!
//! ```ignore
//! let slot = table.reserve()?;
//! let entry = slot.publish(value)?;            // lookup(index) is Some
//! entry.close(CloseMode::Cancel);              // lookup(index) is None, leases see is_cancelled()
//! let value = entry.retire();                  // nobody is inside any more
//! ```

use super::signal::Signal;
use crate::teardown::{
    drain::Closable,
    gate::{
        CloseMode,
        Drained,
        Gate,
        Holder, //
    },
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    container_of,
    error::to_result,
    ffi::c_void,
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

/// One value with its gate, as it stands in the table.
#[repr(C)]
struct Node<T> {
    rcu: UnsafeCell<bindings::callback_head>,
    gate: Gate,
    /// Present until the owner has taken it back, after the gate has drained.
    value: UnsafeCell<ManuallyDrop<T>>,
}

/// Where the next index is taken from.
struct Cursor {
    next: u32,
    /// How often `next` has started over.
    rounds: u32,
}

#[pin_data]
struct Inner {
    #[pin]
    xa: Opaque<bindings::xarray>,
    /// Held while an index is reserved. The lock of the xarray would not do: it is dropped to
    /// allocate memory, and an index that was free then could have been used and freed meanwhile.
    #[pin]
    cursor: Mutex<Cursor>,
}

/// Values under small integer indices, found without a lock.
///
/// An index is handed out again only after all higher ones have been tried, and it comes with the
/// number of the round, so that the pair does not repeat for 2^32 rounds.
///
/// # Invariants
///
/// Every non-null entry of the xarray is a live `Node<T>` owned by one [`Published`].
pub(crate) struct Table<T> {
    inner: Pin<KBox<Inner>>,
    first: u32,
    last: u32,
    _values: PhantomData<T>,
}

// SAFETY: values are shared with and dropped on any thread that holds a lease or an owner.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: as above; the cursor has a lock, and the xarray is synchronised.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T: Send + Sync + 'static> Table<T> {
    /// Creates an empty table for the indices `first..=last`. May sleep.
    pub(crate) fn new(first: u32, last: u32) -> Result<Self> {
        let inner = KBox::pin_init(
            pin_init!(Inner {
                xa <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` points to uninitialised memory for a `struct xarray`, which
                    // stays where it is because `Inner` is pinned.
                    unsafe { bindings::xa_init_flags(slot, bindings::XA_FLAGS_ALLOC) }
                }),
                cursor <- new_mutex!(Cursor { next: first, rounds: 0 }, "Table::cursor"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            inner,
            first,
            last,
            _values: PhantomData,
        })
    }

    fn xa(&self) -> *mut bindings::xarray {
        self.inner.xa.get()
    }

    /// Reserves an index, at which lookups find nothing yet. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all indices are taken, `ENOMEM`.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Reserved<T>> {
        let mut index = 0;
        let limit = bindings::xa_limit {
            min: self.first,
            max: self.last,
        };
        let mut cursor = self.inner.cursor.lock();
        // SAFETY: `xa` is an initialised xarray, locked around the call, which may drop the lock to
        // allocate memory.
        let ret = unsafe {
            bindings::xa_lock(self.xa());
            let ret = bindings::__xa_alloc_cyclic(
                self.xa(),
                &mut index,
                core::ptr::null_mut(),
                limit,
                &mut cursor.next,
                bindings::GFP_KERNEL,
            );
            bindings::xa_unlock(self.xa());
            ret
        };
        if ret == 1 {
            cursor.rounds = cursor.rounds.wrapping_add(1);
        }
        let rounds = cursor.rounds;
        drop(cursor);
        if ret == bindings::EBUSY.wrapping_neg() as i32 {
            return Err(ENOSPC);
        }
        to_result(ret.min(0))?;
        Ok(Reserved {
            table: self.clone(),
            index,
            rounds,
        })
    }

    /// Finds the value at `index` and enters its gate. Never sleeps, takes no lock.
    pub(crate) fn lookup(&self, index: u32) -> Option<Lease<T>> {
        let _rcu = rcu::read_lock();
        // SAFETY: `xa` is an initialised xarray; `xa_load()` may be called under the RCU read lock.
        let node = unsafe { bindings::xa_load(self.xa(), index as usize) };
        let node = NonNull::new(node.cast::<Node<T>>())?;
        // SAFETY: by the type invariant the entry is a live node; its owner unpublishes it and lets
        // a grace period pass before freeing it, and the RCU read lock is held.
        let holder = unsafe { node.as_ref() }.gate.enter()?;
        // INVARIANT: `holder` was obtained from the gate of `node`.
        Some(Lease {
            node,
            holder: ManuallyDrop::new(holder),
        })
    }
}

impl<T: Send + Sync + 'static> Table<T> {
    /// Finds the value with the lowest index from `from` on, and its index. Never sleeps, takes no
    /// lock. Values that are being taken away are passed over.
    pub(crate) fn lookup_from(&self, from: u32) -> Option<(u32, Lease<T>)> {
        let mut index = from as usize;
        loop {
            {
                let _rcu = rcu::read_lock();
                // SAFETY: `xa` is an initialised xarray; it is searched under the RCU read lock,
                // which the function takes itself, too.
                let node = unsafe {
                    bindings::xa_find(
                        self.xa(),
                        &mut index,
                        self.last as usize,
                        bindings::XA_PRESENT,
                    )
                };
                NonNull::new(node)?;
            }
            // CAST: `last` is a `u32`.
            let found = index as u32;
            if let Some(lease) = self.lookup(found) {
                return Some((found, lease));
            }
            index += 1;
        }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: every `Published` and `Reserved` holds a reference to the table, so no entry is
        // left and nobody else uses the xarray.
        unsafe { bindings::xa_destroy(self.inner.xa.get()) }
    }
}

/// An index that nobody else can get, without a value. Given back on drop.
pub(crate) struct Reserved<T: Send + Sync + 'static> {
    table: Arc<Table<T>>,
    index: u32,
    rounds: u32,
}

impl<T: Send + Sync + 'static> Reserved<T> {
    /// The index.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// In which round of the table the index was handed out; changes whenever an index is reused.
    pub(crate) fn round(&self) -> u32 {
        self.rounds
    }

    /// Puts `value` in the table, behind an open gate. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the value is dropped then.
    pub(crate) fn publish(self, value: T) -> Result<Published<T>> {
        // All memory comes first: a node that is dropped does not drop its value.
        let gate = Gate::new(Signal::new()?);
        let node = KBox::new_uninit(GFP_KERNEL)?;
        let node = KBox::write(
            node,
            Node {
                rcu: UnsafeCell::new(bindings::callback_head::default()),
                gate,
                value: UnsafeCell::new(ManuallyDrop::new(value)),
            },
        );
        let node = NonNull::from(KBox::leak(node));
        // INVARIANT: the node is live and from here on owned by the `Published` returned.
        // SAFETY: `xa` is an initialised xarray and the index is reserved, so storing needs no
        // memory and cannot fail.
        unsafe {
            bindings::xa_store(
                self.table.xa(),
                self.index as usize,
                node.as_ptr().cast::<c_void>(),
                bindings::GFP_KERNEL,
            );
        }
        Ok(Published {
            slot: ManuallyDrop::new(self),
            node,
        })
    }
}

impl<T: Send + Sync + 'static> Drop for Reserved<T> {
    fn drop(&mut self) {
        // SAFETY: `xa` is an initialised xarray; the entry is a reservation without a value.
        unsafe { bindings::xa_erase(self.table.xa(), self.index as usize) };
    }
}

/// The unique owner of a value in a [`Table`].
///
/// Dropping it closes the gate with [`CloseMode::Cancel`] and waits, so it may sleep.
///
/// # Invariants
///
/// `node` is live, and `value` in it is present.
pub(crate) struct Published<T: Send + Sync + 'static> {
    slot: ManuallyDrop<Reserved<T>>,
    node: NonNull<Node<T>>,
}

// SAFETY: an owner may be moved to and dropped on any thread, as `T` may.
unsafe impl<T: Send + Sync> Send for Published<T> {}
// SAFETY: shared access gives out `&T` and calls the gate, which is `Sync`.
unsafe impl<T: Send + Sync> Sync for Published<T> {}

impl<T: Send + Sync + 'static> Published<T> {
    fn node(&self) -> &Node<T> {
        // SAFETY: by the type invariant the node is live.
        unsafe { self.node.as_ref() }
    }

    /// The gate before the value. Who closes it here leaves the value in the table, where lookups
    /// find the gate closed.
    pub(crate) fn gate(&self) -> &Gate {
        &self.node().gate
    }

    /// Takes the value back and gives the index up, when nobody is inside any more. Does not wait
    /// if the gate has drained; otherwise closes it with [`CloseMode::Cancel`] and may sleep.
    ///
    /// The memory of the table's node is freed after a grace period, which this call does not wait
    /// for.
    pub(crate) fn retire(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used or dropped after this line's call.
        unsafe { this.retire_in_place() }
    }

    /// Like [`Self::retire`], but keeps the index, which is given up when that is dropped.
    pub(crate) fn vacate(self) -> (T, Reserved<T>) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used or dropped after these lines; the two functions divide it.
        unsafe { (this.take_value(), ManuallyDrop::take(&mut this.slot)) }
    }

    /// # Safety
    ///
    /// `self` must not be used afterwards.
    unsafe fn retire_in_place(&mut self) -> T {
        // SAFETY: by the requirement on the caller.
        let value = unsafe { self.take_value() };
        // SAFETY: dropped once, by the requirement on the caller.
        unsafe { ManuallyDrop::drop(&mut self.slot) };
        value
    }

    /// Takes the value, and gives the node up.
    ///
    /// # Safety
    ///
    /// Nothing but the slot of `self` may be used afterwards.
    unsafe fn take_value(&mut self) -> T {
        self.close(CloseMode::Cancel);
        let _drained: Drained = self.node().gate.wait();
        // SAFETY: the gate of this very node has drained, so no lease is left, and no new one can be made; the value
        // is present by the type invariant, and not used again.
        let value = unsafe { ManuallyDrop::take(&mut *self.node().value.get()) };
        let head = self.node().rcu.get();
        // SAFETY: the node was unpublished when the gate was closed; nobody but RCU readers that
        // are about to be refused refers to it. The callback frees it once.
        unsafe { bindings::call_rcu(head, Some(free_node::<T>)) };
        value
    }
}

impl<T: Send + Sync + 'static> Deref for Published<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: by the type invariant the value is present; it is not written before it is taken,
        // which consumes `self`.
        unsafe { &*self.node().value.get() }
    }
}

impl<T: Send + Sync + 'static> Closable for Published<T> {
    /// Unpublishes the value and closes its gate: lookups fail from here on. Never sleeps.
    ///
    /// The index stays taken. Idempotent; closing a drain with [`CloseMode::Cancel`] cuts it short.
    fn close(&self, mode: CloseMode) -> bool {
        // SAFETY: `xa` is an initialised xarray. Storing null at an index that is in use keeps it
        // reserved and needs no memory.
        unsafe {
            bindings::xa_store(
                self.slot.table.xa(),
                self.slot.index as usize,
                core::ptr::null_mut(),
                bindings::GFP_ATOMIC,
            );
        }
        self.node().gate.close(mode)
    }

    /// Whether somebody is inside.
    fn is_drained(&self) -> bool {
        self.node().gate.is_drained()
    }

    /// How many leases are out at this instant; for display only.
    fn holders(&self) -> usize {
        self.node().gate.holders()
    }

    /// How the gate is closed; `None` if it is open.
    fn closed_with(&self) -> Option<CloseMode> {
        self.node().gate.closed_with()
    }

    /// Waits until nobody is inside. The gate must have been closed. May sleep.
    fn wait(&self) -> Drained {
        self.node().gate.wait()
    }

    /// Like [`Closable::wait`], for at most `timeout_ms` milliseconds.
    fn wait_timeout(&self, timeout_ms: u32) -> Option<Drained> {
        self.node().gate.wait_timeout(timeout_ms)
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped.
        drop(unsafe { self.retire_in_place() });
    }
}

/// Frees a node after its grace period. Softirq.
///
/// # Safety
///
/// `head` must be the `rcu` field of a `Node<T>` whose value has been taken.
unsafe extern "C" fn free_node<T>(head: *mut bindings::callback_head) {
    // SAFETY: by the requirement on the caller.
    let node: *mut Node<T> = unsafe { container_of!(head.cast::<UnsafeCell<_>>(), Node<T>, rcu) };
    // SAFETY: the node was leaked from a `KBox` by `Reserved::publish`, and its grace period is
    // over.
    drop(unsafe { KBox::from_raw(node) });
}

/// The right to use a value of a [`Table`].
///
/// # Invariants
///
/// `holder` was obtained from the gate of `node`. So the node is live and its value present until
/// it is given back.
pub(crate) struct Lease<T> {
    node: NonNull<Node<T>>,
    holder: ManuallyDrop<Holder>,
}

// SAFETY: a lease is a counted reference to a `T`.
unsafe impl<T: Send + Sync> Send for Lease<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Lease<T> {}

impl<T> Lease<T> {
    /// Whether the value is being taken away: the holder must let go at its next boundary.
    pub(crate) fn is_cancelled(&self) -> bool {
        // SAFETY: by the type invariant the node is live.
        unsafe { self.node.as_ref() }.gate.is_cancelled()
    }

    /// Whether nobody would be given a lease any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        // SAFETY: by the type invariant the node is live.
        unsafe { self.node.as_ref() }.gate.is_closed()
    }
}

impl<T> Deref for Lease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: by the type invariant the node is live and its value present; it is not written
        // before the holder has been given back.
        unsafe { &*self.node.as_ref().value.get() }
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        // SAFETY: taken once; `self` is being dropped.
        let holder = unsafe { ManuallyDrop::take(&mut self.holder) };
        // SAFETY: by the type invariant the node is live until its gate has drained. `leave()`
        // touches the gate last when it signals that, and the owner waits for the signal.
        unsafe { self.node.as_ref() }.gate.leave(holder);
    }
}
