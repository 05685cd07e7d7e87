// SPDX-License-Identifier: GPL-2.0

//! The processors of the machine.

use crate::bindings;
use core::ptr;
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    sync::rcu, //
};

/// A processor that was online at some time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processor(u32);

impl Processor {
    /// The processor that the caller runs on; it may be another one already. Any context.
    pub(crate) fn current() -> Self {
        Self(CpuId::current().as_u32())
    }

    /// The next one of those that are online and open to the work of others, which excludes
    /// `isolcpus=` and `nohz_full=`; after the last one the first again, this one if there is no
    /// other. Any context.
    pub(crate) fn next(self) -> Self {
        let _rcu = rcu::read_lock();
        let mut number = self.0;
        for _ in 0..nr_cpu_ids() {
            // SAFETY: looks at a mask of processors, which may change meanwhile.
            number = unsafe { bindings::sluice_next_online_cpu(number) };
            // SAFETY: as above; those who change the mask wait for readers under RCU.
            if number == self.0 || unsafe { bindings::sluice_cpu_keeps_house(number) } {
                return Self(number);
            }
        }
        self
    }

    /// How long it has been idle since boot, in microseconds; at the worst as of its last tick. Any
    /// context.
    pub(crate) fn idle_us(self) -> u64 {
        // SAFETY: asks for a counter of a processor that exists.
        unsafe { bindings::get_cpu_idle_time_us(self.number(), ptr::null_mut()) }
    }

    /// The number.
    pub(super) fn number(self) -> i32 {
        // CAST: a kernel has far fewer processors.
        self.0 as i32
    }
}

/// Whether nobody else wants the processor that the caller runs on: for those who have work that
/// others could do, or who busily wait for something. Any context.
pub(crate) fn is_alone() -> bool {
    // SAFETY: looks at a counter of this processor and a flag of the current task; any context.
    unsafe { bindings::sluice_is_alone() }
}
