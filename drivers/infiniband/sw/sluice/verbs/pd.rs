// SPDX-License-Identifier: GPL-2.0

//! Protection domains: what may be used together.

#![forbid(unsafe_code)]

use super::device::Device;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A protection domain. Two are the same if they are the same object.
pub(crate) struct Pd {
    /// The device that it belongs to.
    pub(crate) device: Arc<Device>,
}

impl Pd {
    /// Makes a protection domain of `device`.
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                device: device.clone(),
            },
            GFP_KERNEL,
        )?)
    }
}
