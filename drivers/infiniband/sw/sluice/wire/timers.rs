// SPDX-License-Identifier: GPL-2.0

//! The two encoded times of a reliable connection: how long a responder that is not ready asks to
//! be left alone, and how long a requester waits for an acknowledgement.

#![forbid(unsafe_code)]

/// The 5-bit RNR NAK timer code of a QP or of an AETH (`enum ib_rnr_timeout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The timer of `code`, or [`None`] above 31.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0..=31 => Some(Self(code)),
            _ => None,
        }
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time the requester must let pass before it sends again, in ns.
    pub const fn ns(self) -> u64 {
        // CAST: widens a code below 32, the length of the table.
        RNR_HUNDREDTHS_OF_MS[self.0 as usize] as u64 * NS_PER_HUNDREDTH_OF_MS
    }
}

/// The 5-bit local ACK timeout exponent of a QP (`ib_qp_attr.timeout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// The timeout of `exponent`, or [`None`] above 31.
    pub const fn from_exponent(exponent: u8) -> Option<Self> {
        match exponent {
            0..=31 => Some(Self(exponent)),
            _ => None,
        }
    }

    /// The exponent, 0 to 31.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// The nominal timeout, 4.096 us * 2^exponent, in ns; [`None`] for exponent 0, which means that
    /// the requester waits for ever.
    ///
    /// A requester may take up to four times as long to notice, never less than the nominal time.
    pub const fn ns(self) -> Option<u64> {
        match self.0 {
            0 => None,
            exponent => Some(ACK_TIMEOUT_UNIT_NS << exponent),
        }
    }
}

/// 4.096 us.
const ACK_TIMEOUT_UNIT_NS: u64 = 4096;

const NS_PER_HUNDREDTH_OF_MS: u64 = 10_000;

/// What each RNR timer code means, in the unit in which the verbs name it (`IB_RNR_TIMER_000_01` is
/// 0.01 ms).
const RNR_HUNDREDTHS_OF_MS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, //
    16, 24, 32, 48, 64, 96, 128, 192, //
    256, 384, 512, 768, 1024, 1536, 2048, 3072, //
    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[cfg(test)]
mod tests {
    use super::{
        AckTimeout,
        RnrTimer, //
    };

    #[test]
    fn rnr_timer_codes() {
        let ns = |code| RnrTimer::from_code(code).map(RnrTimer::ns);
        assert_eq!(ns(0), Some(655_360_000));
        assert_eq!(ns(1), Some(10_000));
        assert_eq!(ns(12), Some(640_000));
        assert_eq!(ns(25), Some(61_440_000));
        assert_eq!(ns(31), Some(491_520_000));
        assert_eq!(ns(32), None);
    }

    #[test]
    fn ack_timeout_exponents() {
        let ns = |exponent| AckTimeout::from_exponent(exponent).and_then(AckTimeout::ns);
        assert_eq!(ns(0), None);
        assert_eq!(ns(1), Some(8_192));
        assert_eq!(ns(14), Some(67_108_864));
        assert_eq!(ns(31), Some(8_796_093_022_208));
        assert_eq!(AckTimeout::from_exponent(32), None);
    }
}
