// SPDX-License-Identifier: GPL-2.0

//! The port of a device, which follows its network device.

#![forbid(unsafe_code)]

use crate::{
    abstractions::{
        netdev::NetDevice,
        rdma::{
            PortAttr,
            PortState, //
        }, //
    },
    wire::mtu::PathMtu, //
};
use kernel::prelude::*;

/// Partition keys that the port has room for.
pub(super) const PKEY_TABLE_LEN: u16 = 1;
/// The default partition, as a full member: RoCE knows no other.
const DEFAULT_PKEY: u16 = 0xffff;
/// Addresses that the port has room for: work requests have eight bits to name one.
const GID_TABLE_LEN: u16 = 256;
/// Longest message in bytes, by IBTA C9-94.
pub(crate) const MAX_MESSAGE_SIZE: u32 = 1 << 31;

/// What RoCE v2 adds to the payload of a packet, in bytes. Only what counts against the MTU of the
/// network device, and the most of it: IPv6, UDP, base header, RDMA header, immediate data, ICRC.
const OVERHEAD: u32 = 40 + 8 + 12 + 16 + 4 + 4;

/// Fills in the state of the port.
pub(super) fn query(netdev: Option<&NetDevice>, attr: &mut PortAttr) {
    attr.gid_table_len = GID_TABLE_LEN;
    attr.pkey_table_len = PKEY_TABLE_LEN;
    attr.max_msg_size = MAX_MESSAGE_SIZE;
    attr.max_mtu = PathMtu::B4096;

    let Some(netdev) = netdev else {
        return;
    };
    // Programs on the same machine reach each other whatever the MTU is, so with a small one the
    // port is not down.
    let room = netdev.mtu().saturating_sub(OVERHEAD);
    attr.active_mtu = PathMtu::largest_within(room).unwrap_or(PathMtu::B256);
    attr.state = if netdev.is_up() {
        PortState::Active
    } else {
        PortState::Down
    };
}

/// The partition key at `index`.
pub(super) fn query_pkey(index: u16) -> Result<u16> {
    if index < PKEY_TABLE_LEN {
        Ok(DEFAULT_PKEY)
    } else {
        Err(EINVAL)
    }
}
