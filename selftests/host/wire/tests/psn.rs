// SPDX-License-Identifier: GPL-2.0

//! PSN arithmetic and message lengths against sequence numbers that never wrap.

use proptest::prelude::*;
use sluice_wire::wire::{
    mtu::PathMtu,
    psn::Psn, //
};

/// Half of the PSN space: the most that two PSNs in use at one time are apart.
const HALF: i64 = 1 << 23;

/// The PSN that the packet with this number, counted from the first ever sent, bears.
fn psn(sequence: u64) -> Psn {
    Psn::new(u32::try_from(sequence % (1 << 24)).unwrap())
}

/// Sequence numbers, half of them close to a wrap.
fn sequence() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..1_u64 << 40,
        (1..1_u64 << 16, -4..4_i64)
            .prop_map(|(laps, off)| ((laps << 24) + HALF as u64).wrapping_add_signed(off)),
        (1..1_u64 << 16, -4..4_i64).prop_map(|(laps, off)| (laps << 24).wrapping_add_signed(off)),
    ]
}

/// Distances a PSN can tell, the extremes often among them.
fn distance() -> impl Strategy<Value = i64> {
    prop_oneof![
        -HALF..HALF,
        -4..4_i64,
        Just(-HALF),
        Just(HALF - 1),
        Just(1 - HALF),
    ]
}

fn path_mtu() -> impl Strategy<Value = PathMtu> {
    prop::sample::select(PathMtu::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn only_24_bits_count(bits: u32) {
        prop_assert_eq!(Psn::new(bits).bits(), bits % (1 << 24));
        prop_assert_eq!(Psn::new(bits), psn(bits.into()));
    }

    #[test]
    fn steps_forward_and_back(start in sequence(), packets: u32) {
        prop_assert_eq!(psn(start).add(packets), psn(start + u64::from(packets)));
        prop_assert_eq!(psn(start).add(packets).sub(packets), psn(start));
        prop_assert_eq!(psn(start).next(), psn(start + 1));
        prop_assert_eq!(psn(start).next().sub(1), psn(start));
    }

    #[test]
    fn distance_and_order(start in sequence(), distance in distance()) {
        let start = start + HALF as u64;
        let (from, to) = (psn(start), psn(start.wrapping_add_signed(distance)));
        prop_assert_eq!(i64::from(to.distance_from(from)), distance);
        prop_assert_eq!(to.is_before(from), distance < 0);
        if distance != -HALF {
            prop_assert_eq!(i64::from(from.distance_from(to)), -distance);
            prop_assert_eq!(from.is_before(to), distance > 0);
        }
    }

    #[test]
    fn steps_lead_there(start in sequence(), packets in 0..1_u32 << 24) {
        let to = psn(start + u64::from(packets));
        prop_assert_eq!(psn(start).steps_to(to), packets);
        prop_assert_eq!(psn(start).add(psn(start).steps_to(to)), to);
    }

    #[test]
    fn packets_hold_the_message_and_no_fewer_would(bytes: u32, mtu in path_mtu()) {
        let packets = u64::from(mtu.packets(bytes));
        let payload = u64::from(mtu.bytes());
        prop_assert!(packets * payload >= bytes.into());
        prop_assert!(packets == 1 || (packets - 1) * payload < bytes.into());
        prop_assert!(packets >= 1);
    }

    #[test]
    fn packets_near_a_multiple(full in 1..1_u32 << 19, off in -1..=1_i32, mtu in path_mtu()) {
        let bytes = (full * mtu.bytes()).wrapping_add_signed(off);
        let packets = if off > 0 { full + 1 } else { full };
        prop_assert_eq!(mtu.packets(bytes), packets);
    }

    #[test]
    fn a_message_never_laps_its_own_psns(start in sequence(), bytes in 1..=1_u32 << 31,
                                         mtu in path_mtu()) {
        let first = psn(start);
        let last = first.add(mtu.packets(bytes) - 1);
        prop_assert!(!last.is_before(first));
    }

    #[test]
    fn largest_within_fits(bytes in 256..100_000_u32) {
        let mtu = PathMtu::largest_within(bytes).unwrap();
        prop_assert!(mtu.bytes() <= bytes);
        prop_assert!(PathMtu::ALL.into_iter().all(|m| m <= mtu || m.bytes() > bytes));
    }
}
