// SPDX-License-Identifier: GPL-2.0

//! The policies of a device as files in sysfs: contract section 2.

#![forbid(unsafe_code)]

use super::Device;
use crate::{
    abstractions::rdma::Attribute,
    teardown::policy::{
        BURST_BYTES_RANGE,
        DRAIN_TIMEOUT_MS_RANGE,
        RESET_POLICY,
        REVOKE_POLICY, //
    },
};
use core::{
    fmt,
    ops::RangeInclusive, //
};
use kernel::prelude::*;

/// What can be read and set in `/sys/class/infiniband/NAME/`.
pub(super) const ATTRIBUTES: &[Attribute<Device>] = &[
    Attribute {
        name: c"reset_policy",
        show: |device, out| out.write_str(RESET_POLICY.name(device.policies.reset())),
        store: |device, text| {
            let mode = RESET_POLICY.mode(text);
            let mode =
                mode.ok_or_else(|| refuse("reset_policy", text, format_args!("{RESET_POLICY}")))?;
            device.policies.set_reset(mode);
            Ok(())
        },
    },
    Attribute {
        name: c"revoke_policy",
        show: |device, out| out.write_str(REVOKE_POLICY.name(device.policies.revoke())),
        store: |device, text| {
            let mode = REVOKE_POLICY.mode(text);
            let mode =
                mode.ok_or_else(|| refuse("revoke_policy", text, format_args!("{REVOKE_POLICY}")))?;
            device.policies.set_revoke(mode);
            Ok(())
        },
    },
    Attribute {
        name: c"drain_timeout_ms",
        show: |device, out| write!(out, "{}", device.policies.drain_timeout_ms()),
        store: |device, text| {
            let value = number("drain_timeout_ms", text, DRAIN_TIMEOUT_MS_RANGE)?;
            device.policies.set_drain_timeout_ms(value);
            Ok(())
        },
    },
    Attribute {
        name: c"burst_bytes",
        show: |device, out| write!(out, "{}", device.policies.burst_bytes()),
        store: |device, text| {
            let value = number("burst_bytes", text, BURST_BYTES_RANGE)?;
            device.policies.set_burst_bytes(value);
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
