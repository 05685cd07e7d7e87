// SPDX-License-Identifier: GPL-2.0

//! What a device does when something is taken away from a running transfer: contract section 2.

#![forbid(unsafe_code)]

use super::gate::CloseMode;
use core::{
    fmt,
    ops::RangeInclusive,
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering, //
    },
};

/// The time that a drain can be given, in milliseconds; 0 cancels at once.
pub(crate) const DRAIN_TIMEOUT_MS_RANGE: RangeInclusive<u32> = 0..=60_000;

/// The size that a burst can have, in bytes. A burst is what a teardown may have to wait for.
pub(crate) const BURST_BYTES_RANGE: RangeInclusive<u32> = 4096..=1 << 20;

/// The two answers to one question, by the names that users know.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    drain: &'static str,
    cancel: &'static str,
}

/// What RESET, ERR and destroy do to the transfers of a queue pair.
pub(crate) const RESET_POLICY: Policy = Policy {
    drain: "drain",
    cancel: "abort",
};

/// What deregistration does to the transfers that use a region.
pub(crate) const REVOKE_POLICY: Policy = Policy {
    drain: "drain",
    cancel: "cancel",
};

impl Policy {
    /// The name of a mode.
    pub(crate) fn name(self, mode: CloseMode) -> &'static str {
        match mode {
            CloseMode::Drain => self.drain,
            CloseMode::Cancel => self.cancel,
        }
    }

    /// The mode of a name.
    pub(crate) fn mode(self, name: &str) -> Option<CloseMode> {
        [CloseMode::Drain, CloseMode::Cancel]
            .into_iter()
            .find(|mode| self.name(*mode) == name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.drain, self.cancel)
    }
}

/// The policies of one device. A teardown reads each of them once, when it begins, so changing one
/// does not disturb those under way.
pub(crate) struct Policies {
    reset_drains: AtomicBool,
    revoke_drains: AtomicBool,
    drain_timeout_ms: AtomicU32,
    burst_bytes: AtomicU32,
}

fn load(drains: &AtomicBool) -> CloseMode {
    if drains.load(Ordering::Relaxed) {
        CloseMode::Drain
    } else {
        CloseMode::Cancel
    }
}

impl Policies {
    /// What everything begins with.
    pub(crate) const fn new() -> Self {
        Self {
            reset_drains: AtomicBool::new(true),
            revoke_drains: AtomicBool::new(false),
            drain_timeout_ms: AtomicU32::new(1000),
            burst_bytes: AtomicU32::new(64 << 10),
        }
    }

    /// The same policies for another device.
    pub(crate) fn copied(&self) -> Self {
        fn copy(drains: &AtomicBool) -> AtomicBool {
            AtomicBool::new(drains.load(Ordering::Relaxed))
        }
        Self {
            reset_drains: copy(&self.reset_drains),
            revoke_drains: copy(&self.revoke_drains),
            drain_timeout_ms: AtomicU32::new(self.drain_timeout_ms()),
            burst_bytes: AtomicU32::new(self.burst_bytes.load(Ordering::Relaxed)),
        }
    }

    /// How the gate of a queue pair is closed by RESET, ERR and destroy.
    pub(crate) fn reset(&self) -> CloseMode {
        load(&self.reset_drains)
    }

    /// Sets what [`Self::reset`] returns.
    pub(crate) fn set_reset(&self, mode: CloseMode) {
        let drains = mode == CloseMode::Drain;
        self.reset_drains.store(drains, Ordering::Relaxed);
    }

    /// How the gate of a region is closed by deregistration.
    pub(crate) fn revoke(&self) -> CloseMode {
        load(&self.revoke_drains)
    }

    /// Sets what [`Self::revoke`] returns.
    pub(crate) fn set_revoke(&self, mode: CloseMode) {
        let drains = mode == CloseMode::Drain;
        self.revoke_drains.store(drains, Ordering::Relaxed);
    }

    /// How long a drain may take before it becomes a cancel, in milliseconds.
    pub(crate) fn drain_timeout_ms(&self) -> u32 {
        self.drain_timeout_ms.load(Ordering::Relaxed)
    }

    /// Sets what [`Self::drain_timeout_ms`] returns; see [`DRAIN_TIMEOUT_MS_RANGE`].
    pub(crate) fn set_drain_timeout_ms(&self, value: u32) {
        self.drain_timeout_ms.store(value, Ordering::Relaxed);
    }

    /// The largest burst in bytes. A transfer keeps the size that it was started with.
    pub(crate) fn burst_bytes(&self) -> usize {
        // CAST: a `usize` has at least 32 bits on every machine that this driver is for.
        self.burst_bytes.load(Ordering::Relaxed) as usize
    }

    /// Sets what [`Self::burst_bytes`] returns; see [`BURST_BYTES_RANGE`].
    pub(crate) fn set_burst_bytes(&self, value: u32) {
        self.burst_bytes.store(value, Ordering::Relaxed);
    }
}
