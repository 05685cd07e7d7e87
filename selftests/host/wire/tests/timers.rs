// SPDX-License-Identifier: GPL-2.0

//! Timer encodings against the names of the verbs and against how the codes are built.

use proptest::prelude::*;
use sluice_wire::wire::timers::{
    AckTimeout,
    RnrTimer, //
};

/// The names of `enum ib_rnr_timeout` in the order of their codes: whole ms, hundredths of a ms.
const RNR_NAMES: &str = "655_36 000_01 000_02 000_03 000_04 000_06 000_08 000_12 \
     000_16 000_24 000_32 000_48 000_64 000_96 001_28 001_92 \
     002_56 003_84 005_12 007_68 010_24 015_36 020_48 030_72 \
     040_96 061_44 081_92 122_88 163_84 245_76 327_68 491_52";

fn rnr_ns(code: u8) -> u64 {
    RnrTimer::from_code(code).unwrap().ns()
}

#[test]
fn rnr_timers_are_what_their_names_say() {
    let names: Vec<_> = RNR_NAMES.split_whitespace().collect();
    assert_eq!(names.len(), 32);
    for (code, name) in (0_u8..).zip(names) {
        let (ms, hundredths) = name.split_once('_').unwrap();
        let ms: u64 = ms.parse().unwrap();
        let hundredths: u64 = hundredths.parse().unwrap();
        assert_eq!(rnr_ns(code), ms * 1_000_000 + hundredths * 10_000, "{name}");
        assert_eq!(RnrTimer::from_code(code).map(RnrTimer::code), Some(code));
    }
}

/// The codes come in pairs, 2^n and 1.5 * 2^n hundredths of a ms, and 0 is where 32 would be.
#[test]
fn rnr_timers_double_every_second_code() {
    for code in 2..30 {
        assert_eq!(rnr_ns(code + 2), 2 * rnr_ns(code), "{code}");
    }
    assert_eq!(rnr_ns(2), 2 * rnr_ns(1));
    assert_eq!(rnr_ns(0), 2 * rnr_ns(30));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn longer_codes_wait_longer(shorter in 1..=31_u8, longer in 1..=31_u8) {
        prop_assert_eq!(shorter < longer, rnr_ns(shorter) < rnr_ns(longer));
        prop_assert!(rnr_ns(0) > rnr_ns(longer));
    }

    #[test]
    fn more_than_five_bits_are_no_code(code in 32..=u8::MAX) {
        prop_assert_eq!(RnrTimer::from_code(code), None);
        prop_assert_eq!(AckTimeout::from_exponent(code), None);
    }

    #[test]
    fn ack_timeout_is_a_power_of_two(exponent in 1..=31_u8) {
        let timeout = AckTimeout::from_exponent(exponent).unwrap();
        let ps = 4_096_000 * 2_u64.pow(exponent.into());
        prop_assert_eq!(timeout.ns(), Some(ps / 1_000));
        prop_assert_eq!(timeout.exponent(), exponent);
    }
}

#[test]
fn ack_timeout_zero_waits_for_ever() {
    assert_eq!(AckTimeout::from_exponent(0).unwrap().ns(), None);
}
