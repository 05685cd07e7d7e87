// SPDX-License-Identifier: GPL-2.0

//! The policies as text: the files of a device in sysfs, and the parameters of the module, which
//! are what a new device begins with. Contract section 2.

#![forbid(unsafe_code)]

use super::policy::{
    Policies,
    BURST_BYTES_RANGE,
    DRAIN_TIMEOUT_MS_RANGE,
    RESET_POLICY,
    REVOKE_POLICY, //
};
use crate::abstractions::{
    parameter::Parameters,
    setting::Setting, //
};
use core::{
    fmt,
    ops::RangeInclusive, //
};
use kernel::prelude::*;

/// What a device begins with.
static DEFAULTS: Policies = Policies::new();

/// The parameters of the module, in `/sys/module/sluice/parameters/`.
pub(crate) struct Defaults;

impl Defaults {
    /// The policies of a new device.
    pub(crate) fn policies() -> Policies {
        DEFAULTS.copied()
    }
}

impl Parameters for Defaults {
    type Values = Policies;
    const SETTINGS: &'static [Setting<Policies>] = SETTINGS;

    fn values() -> &'static Policies {
        &DEFAULTS
    }
}

/// What can be read and set.
pub(crate) const SETTINGS: &[Setting<Policies>] = &[
    Setting {
        name: c"reset_policy",
        show: |policies, out| out.write_str(RESET_POLICY.name(policies.reset())),
        store: |policies, text| {
            let mode = RESET_POLICY.mode(text);
            let mode =
                mode.ok_or_else(|| refuse("reset_policy", text, format_args!("{RESET_POLICY}")))?;
            policies.set_reset(mode);
            Ok(())
        },
    },
    Setting {
        name: c"revoke_policy",
        show: |policies, out| out.write_str(REVOKE_POLICY.name(policies.revoke())),
        store: |policies, text| {
            let mode = REVOKE_POLICY.mode(text);
            let mode =
                mode.ok_or_else(|| refuse("revoke_policy", text, format_args!("{REVOKE_POLICY}")))?;
            policies.set_revoke(mode);
            Ok(())
        },
    },
    Setting {
        name: c"drain_timeout_ms",
        show: |policies, out| write!(out, "{}", policies.drain_timeout_ms()),
        store: |policies, text| {
            let value = number("drain_timeout_ms", text, DRAIN_TIMEOUT_MS_RANGE)?;
            policies.set_drain_timeout_ms(value);
            Ok(())
        },
    },
    Setting {
        name: c"burst_bytes",
        show: |policies, out| write!(out, "{}", policies.burst_bytes()),
        store: |policies, text| {
            let value = number("burst_bytes", text, BURST_BYTES_RANGE)?;
            policies.set_burst_bytes(value);
            Ok(())
        },
    },
];

/// Says in the log what would have been right.
fn refuse(name: &str, text: &str, allowed: fmt::Arguments<'_>) -> Error {
    // What was written may be long and is not ours; a little of it is enough.
    let text = text.get(..32).unwrap_or(text);
    pr_info!("{}: '{}' is not allowed, but: {}\n", name, text, allowed);
    EINVAL
}

fn number(name: &str, text: &str, range: RangeInclusive<u32>) -> Result<u32> {
    match text.parse() {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(refuse(
            name,
            text,
            format_args!("{} to {}", range.start(), range.end()),
        )),
    }
}
