// SPDX-License-Identifier: GPL-2.0

//! The Key Table: lkeys and rkeys, and the regions behind them.
//!
//! A key is the index of a region in an RCU-read [`Table`] and, in its low byte, a variant that
//! changes whenever the index is used again (contract I6). Looking a key up takes no lock; it
//! yields a [`Span`], which holds a lease on the region: page memory is reachable through nothing
//! else. The region's owner takes it back by closing its gate (contract section 3).

#![forbid(unsafe_code)]

mod region;
mod span;

pub(crate) use self::{
    region::Region,
    span::{
        Span,
        SpanList,
        MAX_SGE, //
    },
};

use crate::{
    abstractions::{
        rdma::AccessFlags,
        table::{
            Published,
            Table, //
        },
        umem::UserMemory,
    },
    teardown::commit::Commit,
    verbs::Pd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Bits of the variant in a key.
const VARIANT_BITS: u32 = 8;

/// How many regions a device can have.
pub(crate) const MAX_REGIONS: u32 = 1 << 19;

/// Why a key cannot be used for an access. Every one of them is a protection error to the
/// consumer; they differ for the counters and for a person reading a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// There is no such key, or it is being taken away.
    Unknown,
    /// The region belongs to another protection domain.
    ForeignPd,
    /// The region does not grant the access.
    Access,
    /// The range is not within the region.
    Bounds,
}

/// The keys of one device.
pub(crate) struct KeyTable {
    table: Arc<Table<Region>>,
    commit: Arc<Commit>,
}

impl KeyTable {
    /// Creates an empty table, whose regions are taken away as `commit` orders it. May sleep.
    pub(crate) fn new(commit: Arc<Commit>) -> Result<Self> {
        Ok(Self {
            commit,
            table: Arc::new(Table::new(1, MAX_REGIONS)?, GFP_KERNEL)?,
        })
    }

    /// Gives `memory` a key, under which it is found from `iova` on; returns the owner of the
    /// entry, and the key. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the addresses from `iova` on would wrap, `ENOSPC` if all keys are taken,
    /// `ENOMEM`.
    pub(crate) fn register(
        &self,
        pd: &Arc<Pd>,
        iova: u64,
        access: AccessFlags,
        memory: UserMemory,
    ) -> Result<(Published<Region>, u32)> {
        // CAST: widens. The last byte may have the last address.
        let last = (memory.len() as u64).saturating_sub(1);
        iova.checked_add(last).ok_or(EINVAL)?;
        let slot = self.table.reserve()?;
        let key = (slot.index() << VARIANT_BITS) | (slot.round() & ((1 << VARIANT_BITS) - 1));
        let region = Region::new(pd.clone(), key, iova, access, memory);
        Ok((slot.publish(region)?, key))
    }

    /// Finds the bytes `addr..addr + length` under `key` for an access that needs all rights in
    /// `need`, on behalf of `pd`. Takes no lock, never sleeps.
    pub(crate) fn lookup(
        &self,
        key: u32,
        pd: &Arc<Pd>,
        addr: u64,
        length: u64,
        need: AccessFlags,
    ) -> Result<Span, KeyFault> {
        let Some(lease) = self.table.lookup(key >> VARIANT_BITS) else {
            self.commit.settle();
            return Err(KeyFault::Unknown);
        };
        let offset = lease.check(key, pd, addr, length, need)?;
        Ok(Span::new(lease, offset, length))
    }
}
