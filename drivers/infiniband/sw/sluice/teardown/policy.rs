// SPDX-License-Identifier: GPL-2.0

//! What a device does when something is taken away from a running transfer: contract section 2.

#![forbid(unsafe_code)]

use super::gate::CloseMode;
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};

/// The default of [`Policies::drain_timeout_ms`].
const DRAIN_TIMEOUT_MS: u32 = 1000;

/// The default of [`Policies::burst_bytes`].
const BURST_BYTES: u32 = 64 << 10;

/// The policies of one device. A teardown reads each of them once, when it begins.
pub(crate) struct Policies {
    reset_drains: AtomicBool,
    revoke_drains: AtomicBool,
    drain_timeout_ms: AtomicU32,
    burst_bytes: AtomicU32,
}

fn mode(drains: &AtomicBool) -> CloseMode {
    if drains.load(Ordering::Relaxed) {
        CloseMode::Drain
    } else {
        CloseMode::Cancel
    }
}

impl Policies {
    /// The defaults.
    pub(crate) const fn new() -> Self {
        Self {
            reset_drains: AtomicBool::new(true),
            revoke_drains: AtomicBool::new(false),
            drain_timeout_ms: AtomicU32::new(DRAIN_TIMEOUT_MS),
            burst_bytes: AtomicU32::new(BURST_BYTES),
        }
    }

    /// How the gate of a queue pair is closed by RESET, ERR and destroy.
    pub(crate) fn reset(&self) -> CloseMode {
        mode(&self.reset_drains)
    }

    /// How the gate of a region is closed by deregistration.
    pub(crate) fn revoke(&self) -> CloseMode {
        mode(&self.revoke_drains)
    }

    /// How long a drain may take before it becomes a cancel, in milliseconds.
    pub(crate) fn drain_timeout_ms(&self) -> u32 {
        self.drain_timeout_ms.load(Ordering::Relaxed)
    }

    /// The largest burst in bytes: what a teardown may have to wait for.
    pub(crate) fn burst_bytes(&self) -> usize {
        // CAST: a `usize` has at least 32 bits on every machine that this driver is for.
        self.burst_bytes.load(Ordering::Relaxed) as usize
    }
}
