// SPDX-License-Identifier: GPL-2.0

//! Path MTU: how much payload one packet carries, and so how many PSNs a message takes.

#![forbid(unsafe_code)]

/// The payload of a full packet on a path, as the verbs number it (`enum ib_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl PathMtu {
    /// Every path MTU, smallest first.
    pub const ALL: [Self; 5] = [
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    /// The path MTU of a verbs number (`IB_MTU_256` = 1 to `IB_MTU_4096` = 5), or [`None`] if the
    /// number names none.
    pub const fn from_verbs(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The verbs number of this path MTU.
    pub const fn to_verbs(self) -> u32 {
        // CAST: the discriminants are the verbs numbers, 1 to 5.
        self as u32
    }

    /// The largest path MTU of at most `bytes`, or [`None`] below 256 bytes.
    pub const fn largest_within(bytes: u32) -> Option<Self> {
        match bytes {
            0..=255 => None,
            256..=511 => Some(Self::B256),
            512..=1023 => Some(Self::B512),
            1024..=2047 => Some(Self::B1024),
            2048..=4095 => Some(Self::B2048),
            _ => Some(Self::B4096),
        }
    }

    /// Payload of a full packet, in bytes.
    pub const fn bytes(self) -> u32 {
        128 << self.to_verbs()
    }

    /// The number of packets, and of PSNs, that a message of `bytes` bytes takes on this path.
    ///
    /// A message of no bytes is still one packet. The same number of PSNs is set aside for the
    /// responses to a READ of `bytes` bytes.
    pub const fn packets(self, bytes: u32) -> u32 {
        match bytes {
            0 => 1,
            _ => bytes.div_ceil(self.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PathMtu;

    #[test]
    fn sizes_are_those_the_names_say() {
        assert_eq!(
            PathMtu::ALL.map(PathMtu::bytes),
            [256, 512, 1024, 2048, 4096]
        );
        for mtu in PathMtu::ALL {
            assert_eq!(PathMtu::from_verbs(mtu.to_verbs()), Some(mtu));
            assert_eq!(PathMtu::largest_within(mtu.bytes()), Some(mtu));
            assert!(PathMtu::largest_within(mtu.bytes() - 1) < Some(mtu));
        }
        assert_eq!(PathMtu::from_verbs(0), None);
        assert_eq!(PathMtu::from_verbs(6), None);
        assert_eq!(PathMtu::largest_within(9000), Some(PathMtu::B4096));
    }

    #[test]
    fn a_message_has_at_least_one_packet() {
        for mtu in PathMtu::ALL {
            assert_eq!(mtu.packets(0), 1);
            assert_eq!(mtu.packets(1), 1);
            assert_eq!(mtu.packets(mtu.bytes()), 1);
            assert_eq!(mtu.packets(mtu.bytes() + 1), 2);
        }
        // The largest message, 2 GiB, takes half the PSN space at the smallest path MTU.
        assert_eq!(PathMtu::B256.packets(1 << 31), 1 << 23);
        assert_eq!(PathMtu::B4096.packets(u32::MAX), 1 << 20);
    }
}
