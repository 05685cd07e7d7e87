// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

#![forbid(unsafe_code)]

use super::{
    Device,
    Pd, //
};
use crate::{
    abstractions::{
        rdma::{
            AccessFlags,
            Details,
            MrInit,
            MrKeys, //
        },
        table::{
            Published,
            Reserved, //
        },
        turn::Turn,
    },
    keys::Region,
    teardown::{
        drain::Closable,
        revoke::revoke, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// A memory region of a program: the owner of an entry in the Key Table.
#[pin_data]
pub(crate) struct Mr {
    device: Arc<Device>,
    key: u32,
    iova: u64,
    length: usize,
    access: AccessFlags,
    /// The right to take the region away. Whoever takes that of several regions does so in the order
    /// of their keys, and after that of queue pairs.
    #[pin]
    pub(crate) control: Turn,
    #[pin]
    held: Mutex<Held>,
}

/// What a memory region has in the Key Table.
enum Held {
    /// A region under its key.
    Region(Published<Region>),
    /// The key, for the region has been revoked. No other region gets it before this one has been
    /// deregistered.
    Key { _slot: Reserved<Region> },
    /// Nothing, or nothing at the moment: it is being taken away.
    Nothing,
}

impl Mr {
    /// Gives pinned memory its keys. The lkey and the rkey are the same.
    pub(super) fn register(pd: &Arc<Pd>, init: MrInit) -> Result<(Arc<Self>, MrKeys)> {
        let device = &pd.device;
        let MrInit {
            iova,
            access,
            memory,
        } = init;
        let length = memory.len();
        let (region, key) = device.keys.register(pd, iova, access, memory)?;
        let mr = Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                key,
                iova,
                length,
                access,
                control <- Turn::new(),
                held <- new_mutex!(Held::Region(region), "Mr::held"),
            }),
            GFP_KERNEL,
        )?;
        Ok((
            mr,
            MrKeys {
                lkey: key,
                rkey: key,
            },
        ))
    }

    /// What the region is, and how many leases on it are out. One that is being taken away is not
    /// shown any more.
    pub(super) fn show(&self, details: &mut Details<'_>) -> Result {
        details.hex(c"iova", self.iova)?;
        // CAST: widens.
        details.number(c"length", self.length as u64)?;
        details.access(c"access", self.access)?;
        let leases = match &*self.held.lock() {
            Held::Region(region) => region.holders(),
            Held::Key { .. } | Held::Nothing => 0,
        };
        // CAST: widens.
        details.number(c"leases", leases as u64)
    }

    /// The key.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Takes the region out, to take it away; `None` if it is gone already. For who has the turn.
    pub(crate) fn take_region(&self) -> Option<Published<Region>> {
        let mut held = self.held.lock();
        match core::mem::replace(&mut *held, Held::Nothing) {
            Held::Region(region) => Some(region),
            other => {
                *held = other;
                None
            }
        }
    }

    /// Keeps the key of the region that was taken away. For who has the turn.
    pub(crate) fn keep_key(&self, slot: Reserved<Region>) {
        *self.held.lock() = Held::Key { _slot: slot };
    }

    /// Takes the region away from whatever uses it; see [`revoke`]. Gives up the key.
    pub(super) fn deregister(&self) {
        let _control = self.control.take();
        if let Some(region) = self.take_region() {
            revoke(region, self.key, &self.device);
        }
        let held = core::mem::replace(&mut *self.held.lock(), Held::Nothing);
        drop(held);
    }
}
