// SPDX-License-Identifier: GPL-2.0

//! Packet sequence numbers: 24 bits that wrap, ordered only relative to each other.

#![forbid(unsafe_code)]

/// A 24-bit packet sequence number.
///
/// There is deliberately no `Ord`: of two PSNs one is "before" the other only in the sense of the
/// shorter way round, and that relation is not transitive.
///
/// # Examples
///
/// ```ignore
/// let last = Psn::new(0xff_ffff);
/// let first = last.next();
/// assert_eq!(first, Psn::new(0));
/// assert!(last.is_before(first));
/// assert_eq!(first.distance_from(last), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// The bits a PSN has.
    pub const BITS: u32 = 24;

    const MASK: u32 = (1 << Self::BITS) - 1;

    /// The PSN in the lower 24 bits of `bits`; the upper eight are ignored, as the verbs do.
    pub const fn new(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }

    /// The PSN as a number below 2^24, in host order.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The PSN that follows this one.
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The PSN `packets` after this one.
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The PSN `packets` before this one.
    pub const fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// How many packets this PSN is ahead of `earlier` (negative: behind), the shorter way round:
    /// from -2^23 to 2^23 - 1.
    pub const fn distance_from(self, earlier: Self) -> i32 {
        let unused = u32::BITS - Self::BITS;
        // CAST: reinterprets the bits. Bit 23 of the difference becomes the sign, and the
        // arithmetic shift carries it down.
        (self.0.wrapping_sub(earlier.0) << unused) as i32 >> unused
    }

    /// Whether this PSN comes before `other`, which it may not equal.
    ///
    /// Two PSNs exactly half the space apart each come "before" the other; a sender never has
    /// more than 2^23 packets under way, so no such pair is ever compared in earnest.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// How many steps forward lead from this PSN to `later`, whatever their order: 0 to 2^24 - 1.
    pub const fn steps_to(self, later: Self) -> u32 {
        later.0.wrapping_sub(self.0) & Self::MASK
    }
}

#[cfg(test)]
mod tests {
    use super::Psn;

    const TOP: Psn = Psn::new(0xff_ffff);

    #[test]
    fn wraps_at_24_bits() {
        assert_eq!(Psn::new(0x0100_0000), Psn::new(0));
        assert_eq!(TOP.next(), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), TOP);
        assert_eq!(Psn::new(7).add(1 << 24), Psn::new(7));
        assert_eq!(TOP.add(u32::MAX).bits(), 0xff_fffe);
    }

    #[test]
    fn order_is_the_shorter_way_round() {
        assert!(TOP.is_before(Psn::new(0)));
        assert!(!Psn::new(0).is_before(TOP));
        assert!(!TOP.is_before(TOP));
        assert_eq!(Psn::new(2).distance_from(TOP), 3);
        assert_eq!(TOP.distance_from(Psn::new(2)), -3);
        assert_eq!(TOP.steps_to(Psn::new(2)), 3);
        assert_eq!(Psn::new(2).steps_to(TOP), 0xff_fffd);
    }

    #[test]
    fn half_the_space_away_is_behind() {
        let opposite = Psn::new(0x80_0000);
        assert_eq!(opposite.distance_from(Psn::new(0)), -(1 << 23));
        assert_eq!(Psn::new(0).distance_from(opposite), -(1 << 23));
        assert_eq!(
            Psn::new(0x7f_ffff).distance_from(Psn::new(0)),
            (1 << 23) - 1
        );
    }
}
