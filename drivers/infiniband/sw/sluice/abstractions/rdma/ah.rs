// SPDX-License-Identifier: GPL-2.0

//! Addresses of RoCE ports.

use crate::bindings;
use kernel::prelude::*;

/// A global identifier: sixteen bytes in network order. Holds an IPv6 address, or an IPv4 address
/// mapped into IPv6.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

impl Gid {
    /// Whether this is an IPv4 address mapped into IPv6 (`::ffff:a.b.c.d`).
    pub(crate) fn is_ipv4(&self) -> bool {
        self.0[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }
}

/// The network protocol that carries the packets of a path.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Network {
    /// RoCE v1: Ethernet only.
    Ethernet,
    /// RoCE v2 over IPv4.
    #[default]
    Ipv4,
    /// RoCE v2 over IPv6.
    Ipv6,
}

/// The way to a remote port.
#[derive(Clone, Copy, Default)]
pub(crate) struct AhAttr {
    /// The remote port.
    pub(crate) dgid: Gid,
    /// The local address, which the core found at `sgid_index`.
    #[expect(dead_code, reason = "only packets on the wire need it")]
    pub(crate) sgid: Gid,
    /// The index of the local address in the table of the port.
    pub(crate) sgid_index: u8,
    /// The protocol, which follows from the local address.
    #[expect(dead_code, reason = "only packets on the wire need it")]
    pub(crate) network: Network,
    /// The MAC address of the next hop, resolved by the core.
    pub(crate) dmac: [u8; 6],
    /// Flow label: 20 bits, host order.
    pub(crate) flow_label: u32,
    /// Hop limit or time to live.
    pub(crate) hop_limit: u8,
    /// Traffic class or type of service.
    pub(crate) traffic_class: u8,
    /// Service level.
    pub(crate) sl: u8,
    /// Static rate.
    pub(crate) static_rate: u8,
    /// The local port: always 1.
    pub(crate) port_num: u32,
    /// Whether there is a global route, without which RoCE knows no way.
    pub(crate) is_global: bool,
}

impl AhAttr {
    /// # Errors
    ///
    /// `EINVAL` if it is not an address of a RoCE port, or the core has not found the local address.
    ///
    /// # Safety
    ///
    /// `grh.sgid_attr` must be null or valid.
    pub(super) unsafe fn from_raw(raw: &bindings::rdma_ah_attr) -> Result<Self> {
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirement.
        let local = unsafe { raw.grh.sgid_attr.as_ref() }.ok_or(EINVAL)?;
        // SAFETY: Every bit pattern is a GID, and the type says that this is a RoCE address.
        let (dgid, sgid, roce) = unsafe {
            (
                raw.grh.dgid.raw,
                local.gid.raw,
                raw.__bindgen_anon_1.roce.as_ref(),
            )
        };
        let sgid = Gid(sgid);
        Ok(Self {
            dgid: Gid(dgid),
            sgid,
            sgid_index: raw.grh.sgid_index,
            network: match local.gid_type {
                bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP if sgid.is_ipv4() => Network::Ipv4,
                bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP => Network::Ipv6,
                _ => Network::Ethernet,
            },
            dmac: roce.dmac,
            flow_label: raw.grh.flow_label,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            sl: raw.sl,
            static_rate: raw.static_rate,
            port_num: raw.port_num,
            is_global: u32::from(raw.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0,
        })
    }

    pub(super) fn to_raw(self, raw: &mut bindings::rdma_ah_attr) {
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        raw.grh.dgid.raw = self.dgid.0;
        raw.grh.sgid_index = self.sgid_index;
        raw.grh.flow_label = self.flow_label;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = self.port_num;
        raw.ah_flags = if self.is_global {
            // CAST: The flag is 1.
            bindings::ib_ah_flags_IB_AH_GRH as u8
        } else {
            0
        };
        // SAFETY: Every bit pattern of the union is an address of a RoCE port.
        unsafe { raw.__bindgen_anon_1.roce.as_mut() }.dmac = self.dmac;
    }
}
