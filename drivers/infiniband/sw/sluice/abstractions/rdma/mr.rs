// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use crate::{
    abstractions::umem::UserMemory,
    bindings, //
};
use kernel::{
    impl_flags,
    prelude::*, //
};

impl_flags!(
    /// What may be done to a region through its keys, or to a queue pair's regions by its peer.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) struct AccessFlags(u32);

    /// One right of [`AccessFlags`].
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Access {
        /// Local write.
        LocalWrite = 1 << 0,
        /// Remote write.
        RemoteWrite = 1 << 1,
        /// Remote read.
        RemoteRead = 1 << 2,
        /// Remote atomic operations.
        RemoteAtomic = 1 << 3,
        /// Binding of memory windows.
        MwBind = 1 << 4,
        /// Addresses in work requests count from the start of the region.
        ZeroBased = 1 << 5,
    }
);

impl AccessFlags {
    /// # Errors
    ///
    /// `EOPNOTSUPP` if there is a flag that [`Access`] does not know, unless it is one that a
    /// driver is free to ignore.
    pub(super) fn from_raw(flags: c_int) -> Result<Self> {
        const IGNORED: u32 = bindings::ib_access_flags_IB_ACCESS_OPTIONAL
            | bindings::ib_access_flags_IB_ACCESS_HUGETLB;

        // CAST: Flags are bits.
        let flags = flags as u32 & !IGNORED;
        if flags & !Self::all_bits() != 0 {
            return Err(EOPNOTSUPP);
        }
        Ok(Self(flags))
    }

    /// What a peer may do, of the flags of a queue pair. Leave for operations that a driver does not
    /// know needs no answer: they are refused when they come.
    pub(super) fn for_peer(flags: c_int) -> Self {
        // CAST: Flags are bits.
        Self(flags as u32 & Self::all_bits())
    }

    /// The flags as the core has them.
    pub(in crate::abstractions) fn to_raw(self) -> c_int {
        // CAST: Flags are bits.
        self.0 as c_int
    }
}

/// What a program asks for when it registers memory.
pub(crate) struct MrInit {
    /// The address by which work requests name the first byte.
    pub(crate) iova: u64,
    /// The rights.
    pub(crate) access: AccessFlags,
    /// The memory itself.
    pub(crate) memory: UserMemory,
}

/// The keys of a region.
#[derive(Clone, Copy)]
pub(crate) struct MrKeys {
    /// The local key.
    pub(crate) lkey: u32,
    /// The remote key.
    pub(crate) rkey: u32,
}
