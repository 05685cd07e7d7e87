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
        table::Published,
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
    /// Gone once the region has been deregistered.
    #[pin]
    region: Mutex<Option<Published<Region>>>,
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
                region <- new_mutex!(Some(region), "Mr::region"),
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
        let leases = self.region.lock().as_ref().map_or(0, Closable::holders);
        // CAST: widens.
        details.number(c"leases", leases as u64)
    }

    /// Takes the region away from whatever uses it; see [`revoke`]. Idempotent.
    pub(super) fn deregister(&self) {
        let region = self.region.lock().take();
        if let Some(region) = region {
            revoke(region, self.key, &self.device);
        }
    }
}
