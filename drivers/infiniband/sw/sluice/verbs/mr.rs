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
            MrInit,
            MrKeys, //
        },
        table::Published,
    },
    keys::Region,
    teardown::revoke::revoke,
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
    /// Gone once the region has been deregistered.
    #[pin]
    region: Mutex<Option<Published<Region>>>,
}

impl Mr {
    /// Gives pinned memory its keys. The lkey and the rkey are the same.
    pub(super) fn register(pd: &Arc<Pd>, init: MrInit) -> Result<(Arc<Self>, MrKeys)> {
        let device = &pd.device;
        let (region, key) = device
            .keys
            .register(pd, init.iova, init.access, init.memory)?;
        let mr = Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
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

    /// Takes the region away from whatever uses it; see [`revoke`]. Idempotent.
    pub(super) fn deregister(&self) {
        let region = self.region.lock().take();
        if let Some(region) = region {
            revoke(region, &self.device);
        }
    }
}
