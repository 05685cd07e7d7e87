// SPDX-License-Identifier: GPL-2.0

//! A translation entry: what a key stands for.

#![forbid(unsafe_code)]

use super::KeyFault;
use crate::{
    abstractions::{
        rdma::AccessFlags,
        umem::UserMemory, //
    },
    observe::counters::Cuts,
    verbs::Pd, //
};
use kernel::sync::Arc;

/// Pinned memory with the terms on which it may be accessed. Immutable; lives in the Key Table.
pub(crate) struct Region {
    pd: Arc<Pd>,
    key: u32,
    /// The address of the first byte in work requests.
    iova: u64,
    access: AccessFlags,
    memory: UserMemory,
    cuts: Cuts,
}

impl Region {
    pub(super) fn new(
        pd: Arc<Pd>,
        key: u32,
        iova: u64,
        access: AccessFlags,
        memory: UserMemory,
    ) -> Self {
        Self {
            pd,
            key,
            iova,
            access,
            memory,
            cuts: Cuts::new(),
        }
    }

    /// The transfers that were cut because the region is being taken away.
    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// The key, which serves as lkey and rkey.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// The memory.
    pub(super) fn memory(&self) -> &UserMemory {
        &self.memory
    }

    /// Checks an access to `addr..addr + length` and returns the offset of `addr` in the memory.
    /// Overflow-safe for any values.
    pub(super) fn check(
        &self,
        key: u32,
        pd: &Arc<Pd>,
        addr: u64,
        length: u64,
        need: AccessFlags,
    ) -> Result<u64, KeyFault> {
        if key != self.key {
            return Err(KeyFault::Unknown);
        }
        if !Arc::ptr_eq(pd, &self.pd) {
            return Err(KeyFault::ForeignPd);
        }
        if self.access & need != need {
            return Err(KeyFault::Access);
        }
        // CAST: a length of memory always fits in 64 bits.
        let size = self.memory.len() as u64;
        match addr.checked_sub(self.iova) {
            Some(offset) if offset <= size && length <= size - offset => Ok(offset),
            _ => Err(KeyFault::Bounds),
        }
    }
}
