// SPDX-License-Identifier: GPL-2.0

//! Counters of a device, as `rdma statistic` and sysfs show them.

use crate::bindings;
use kernel::{
    prelude::*,
    str::CStr, //
};

/// A counter.
#[repr(transparent)]
pub(crate) struct Counter(bindings::rdma_stat_desc);

// SAFETY: A description is read only, and its name is static.
unsafe impl Send for Counter {}

// SAFETY: As above.
unsafe impl Sync for Counter {}

impl Counter {
    /// A counter called `name`.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            ..pin_init::zeroed()
        })
    }
}

/// Makes room for the values of `counters`; null if there is no memory. The core frees it.
pub(super) fn alloc(counters: &'static [Counter]) -> *mut bindings::rdma_hw_stats {
    // How long values are fresh enough, in milliseconds. The core has the same default.
    const LIFESPAN: c_ulong = 10;

    // CAST: `Counter` is transparent, and there are not 2^31 of them.
    // SAFETY: The descriptions are static and so outlive the values.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            counters.as_ptr().cast(),
            counters.len() as c_int,
            LIFESPAN,
        )
    }
}

/// The values in `stats`.
///
/// # Safety
///
/// `stats` must have come from [`alloc`], and its lock must be held for as long as the returned
/// reference lives.
pub(super) unsafe fn values<'a>(stats: *mut bindings::rdma_hw_stats) -> &'a mut [u64] {
    // CAST: The number came from a length.
    // SAFETY: By the safety requirements there are as many values, and nobody else uses them.
    unsafe {
        core::slice::from_raw_parts_mut(
            (&raw mut (*stats).value).cast(),
            (*stats).num_counters as usize,
        )
    }
}
