// SPDX-License-Identifier: GPL-2.0

//! Workqueues of the driver's own, and work items that can be delayed, hastened and cancelled.

use super::processor::Processor;
use core::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    bindings,
    container_of,
    prelude::*,
    str::CStr,
    sync::Arc,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// A workqueue that can be relied on under memory pressure; drained and freed on drop.
pub(crate) struct WorkQueue(ptr::NonNull<bindings::workqueue_struct>);

// SAFETY: a workqueue may be used from and destroyed on any thread.
unsafe impl Send for WorkQueue {}
// SAFETY: as above.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Allocates a workqueue on which at most `max_active` items run at the same time, on whatever
    /// processors the scheduler likes, the others in the order in which they were queued; 0 stands
    /// for the kernel's default. May sleep.
    pub(crate) fn new(name: &'static CStr, max_active: u32) -> Result<Self> {
        Self::with(name, bindings::wq_flags_WQ_UNBOUND, max_active)
    }

    /// Allocates a workqueue for [`Task::queue_on`]: on each processor one item at a time, which may
    /// take its time, in the order in which they were queued there. May sleep.
    pub(crate) fn per_processor(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_PERCPU | bindings::wq_flags_WQ_CPU_INTENSIVE;
        Self::with(name, flags, 1)
    }

    fn with(name: &'static CStr, flags: bindings::wq_flags, max_active: u32) -> Result<Self> {
        let max_active = max_active.try_into().map_err(|_| EINVAL)?;
        // SAFETY: the format takes one string, which is null-terminated.
        let wq = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags | bindings::wq_flags_WQ_MEM_RECLAIM,
                max_active,
                name.as_char_ptr(),
            )
        };
        Ok(Self(ptr::NonNull::new(wq).ok_or(ENOMEM)?))
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: the queue was allocated by `new` and is freed once. Work that is still queued
        // runs before; delayed work has been cancelled by its owners (see `Task::cancel`).
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}

/// What a [`Task`] runs. `ID` tells several tasks of one object apart.
pub(crate) trait Run<const ID: u64 = 0>: Send + Sync + 'static {
    /// Runs in process context on the task's workqueue; never twice at a time for one task.
    fn run(self: Arc<Self>);
}

#[pin_data]
struct Inner<T> {
    #[pin]
    dwork: Opaque<bindings::delayed_work>,
    /// The object to run, null until the first time the task is queued. Only valid while queued.
    target: AtomicPtr<T>,
}

/// A work item for one object, queued at once or after a delay.
///
/// # Invariants
///
/// While the work is queued, it owns a reference to `inner` and one to the target.
pub(crate) struct Task<T: Run<ID>, const ID: u64 = 0> {
    inner: Arc<Inner<T>>,
}

// SAFETY: `Inner` is synchronised by the workqueue and an atomic; `T` is `Send + Sync` by `Run`.
unsafe impl<T: Run<ID>, const ID: u64> Send for Task<T, ID> {}
// SAFETY: as above.
unsafe impl<T: Run<ID>, const ID: u64> Sync for Task<T, ID> {}

impl<T: Run<ID>, const ID: u64> Task<T, ID> {
    /// Creates a task that is not queued. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let inner = Arc::pin_init(
            pin_init!(Inner {
                dwork <- Opaque::ffi_init(|slot: *mut bindings::delayed_work| {
                    // SAFETY: `slot` points to uninitialised memory for a `struct delayed_work`
                    // which stays where it is; the lock class keys are static.
                    unsafe {
                        bindings::init_work_with_key(
                            ptr::addr_of_mut!((*slot).work),
                            Some(Self::work_func),
                            false,
                            c"sluice_task".as_char_ptr(),
                            kernel::static_lock_class!().as_ptr(),
                        );
                        bindings::timer_init_key(
                            ptr::addr_of_mut!((*slot).timer),
                            Some(bindings::delayed_work_timer_fn),
                            bindings::TIMER_IRQSAFE,
                            c"sluice_task_timer".as_char_ptr(),
                            kernel::static_lock_class!().as_ptr(),
                        );
                    }
                }),
                target: AtomicPtr::new(ptr::null_mut()),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { inner })
    }

    /// Queues the task for `target` on `queue`, `delay_ms` milliseconds from now at the earliest;
    /// if it is queued already, its time becomes that. Any context.
    ///
    /// A task serves one object for its whole life: a call with another target does nothing.
    pub(crate) fn queue(&self, queue: &WorkQueue, target: &Arc<T>, delay_ms: u32) {
        // CAST: a constant that is made for this.
        let anywhere = bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32;
        self.submit(queue, target, anywhere, delay_ms);
    }

    /// Queues the task for `target` on `queue`, to run on processor `cpu` or, if that has gone
    /// offline meanwhile, on another one; if it is queued already, it moves there. Any context.
    ///
    /// As [`Self::queue`] else.
    pub(crate) fn queue_on(&self, queue: &WorkQueue, target: &Arc<T>, cpu: Processor) {
        self.submit(queue, target, cpu.number(), 0);
    }

    fn submit(&self, queue: &WorkQueue, target: &Arc<T>, cpu: i32, delay_ms: u32) {
        let raw = Arc::into_raw(target.clone()).cast_mut();
        let known = self.inner.target.compare_exchange(
            ptr::null_mut(),
            raw,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        let foreign = known.is_err_and(|other| other != raw);
        let inner = Arc::into_raw(self.inner.clone());
        let mut queued = false;
        if !foreign {
            // SAFETY: `dwork` is initialised, and alive while queued because the queue owns
            // `inner`; the queue is alive by the reference. `cpu` is "any" or a possible one.
            queued = !unsafe {
                bindings::mod_delayed_work_on(
                    cpu,
                    queue.0.as_ptr(),
                    (*inner).dwork.get(),
                    msecs_to_jiffies(delay_ms),
                )
            };
        }
        // INVARIANT: newly queued work takes over both references; work that was queued already
        // owns a pair, and the one made here is given back.
        if !queued {
            // SAFETY: both pointers come from `Arc::into_raw` above.
            unsafe {
                drop(Arc::from_raw(inner));
                drop(Arc::from_raw(raw));
            }
        }
    }

    /// Takes the task off its queue, or waits until it has run. May sleep.
    ///
    /// Must not be called from the task itself. Does not keep others from queueing it again; a task
    /// that queues itself again without end keeps it from returning.
    pub(crate) fn cancel(&self) {
        let dwork = self.inner.dwork.get();
        // Not `cancel_delayed_work_sync()`: it disables the work while it waits, and queueing a
        // work that is disabled cannot be told from queueing one that was idle.
        loop {
            // SAFETY: `dwork` is initialised.
            if unsafe { bindings::cancel_delayed_work(dwork) } {
                // SAFETY: by the type invariant the work that was cancelled owned both references.
                unsafe {
                    drop(Arc::from_raw(self.inner.target.load(Ordering::Acquire)));
                    drop(Arc::from_raw(Arc::as_ptr(&self.inner)));
                }
            }
            // Waits if it is running; it may have queued itself again, then. An item that is idle
            // ends the loop.
            // SAFETY: `dwork` is initialised.
            if !unsafe { bindings::flush_work(ptr::addr_of_mut!((*dwork).work)) } {
                break;
            }
        }
    }

    /// Runs the task.
    ///
    /// # Safety
    ///
    /// `work` must be that of an `Inner<T>` which was queued by `Task::queue`, and about to run.
    unsafe extern "C" fn work_func(work: *mut bindings::work_struct) {
        // SAFETY: by the requirement on the caller; the work hands its two references over.
        unsafe {
            let dwork = container_of!(work, bindings::delayed_work, work);
            let inner = container_of!(Opaque::cast_from(dwork), Inner<T>, dwork);
            let inner = Arc::from_raw(inner);
            let target = Arc::from_raw(inner.target.load(Ordering::Acquire));
            drop(inner);
            target.run();
        }
    }
}
