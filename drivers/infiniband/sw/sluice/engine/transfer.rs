// SPDX-License-Identifier: GPL-2.0

//! One message on its way from memory to memory.

#![forbid(unsafe_code)]

use super::Quantum;
use crate::{
    abstractions::{
        copy::OutOfBounds,
        ring::SendRing, //
    },
    keys::SpanList,
    observe::counters::Counters,
    transport::pass::Pass,
};
use core::cmp::min;

/// Which way the bytes of a transfer go, seen from the requester.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the requester's gather list.
    Out,
    /// From the inline data of the requester's work request.
    OutInline,
    /// Into the requester's scatter list.
    In,
    /// A word of the responder into the requester's scatter list, and something added to it.
    FetchAdd { add: u64 },
    /// A word of the responder into the requester's scatter list, and another value in its place
    /// if it was as expected.
    CompareSwap { compare: u64, swap: u64 },
}

/// What cut a transfer at a boundary. The variants stand in the order in which a boundary looks
/// (contract section 5): the gates of the queue pairs come before the Key Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The requester's queue pair is being torn down.
    OwnQp,
    /// The responder's queue pair is being torn down.
    PeerQp,
    /// A region of the requester was taken away.
    LocalKey,
    /// A region of the responder was taken away.
    RemoteKey,
}

/// The proof that a boundary has been passed: what a burst is executed against.
#[must_use]
pub(crate) struct Cleared(());

/// The data movement of one message between two queue pairs of this device.
///
/// Holds a pass of either queue pair from its start to its end, so a teardown of either waits for
/// it or cuts it. The spans that it moves are kept beside it, in lists that are allocated once.
pub(crate) struct Transfer {
    own: Pass,
    peer: Pass,
    direction: Direction,
    length: usize,
    /// Bytes that have been moved: a prefix of the message, and until the end a whole number of
    /// bursts (invariant I4).
    landed: usize,
    burst: usize,
}

impl Transfer {
    /// Starts a transfer of `length` bytes in bursts of at most `burst` bytes.
    pub(crate) fn new(
        own: Pass,
        peer: Pass,
        direction: Direction,
        length: usize,
        burst: usize,
    ) -> Self {
        Self {
            own,
            peer,
            direction,
            length,
            landed: 0,
            burst,
        }
    }

    /// Which boundary the transfer has come to, counted from 0, and how many bytes have landed.
    pub(crate) fn position(&self) -> (u32, usize) {
        // CAST: a message has at most 2^31 bytes, and a burst more than one.
        (self.landed.div_ceil(self.burst) as u32, self.landed)
    }

    /// Whether all bytes have been moved.
    pub(crate) fn is_complete(&self) -> bool {
        self.landed == self.length
    }

    /// The boundary: decides whether another burst may run. Never sleeps.
    pub(crate) fn boundary(&self, local: &SpanList, remote: &SpanList) -> Result<Cleared, Cut> {
        self.look(local, remote).or_else(|_| {
            // Others may have been closed with the gate that was found closed.
            self.own.settle();
            self.look(local, remote)
        })
    }

    /// Looks at the gates, one after the other.
    fn look(&self, local: &SpanList, remote: &SpanList) -> Result<Cleared, Cut> {
        if self.own.is_cancelled() {
            Err(Cut::OwnQp)
        } else if self.peer.is_cancelled() {
            Err(Cut::PeerQp)
        } else if local.is_cancelled() {
            Err(Cut::LocalKey)
        } else if remote.is_cancelled() {
            Err(Cut::RemoteKey)
        } else {
            Ok(Cleared(()))
        }
    }

    /// Moves one burst, for which a boundary has been passed; counts it in `quantum`. Never sleeps.
    ///
    /// `local` is the requester's list, `remote` the responder's; `ring` holds the inline data.
    pub(crate) fn burst(
        &mut self,
        _cleared: Cleared,
        local: &mut SpanList,
        remote: &mut SpanList,
        ring: &SendRing,
        quantum: &mut Quantum,
    ) -> Result<(), Cut> {
        let n = min(self.burst, self.length - self.landed);
        // The lists were checked against the length of the message when it started; should they
        // fall short all the same, the side that does is at fault.
        let moved = match self.direction {
            Direction::Out => remote.copy_from(local, n),
            Direction::OutInline => remote.copy_from_inline(ring, self.landed, n),
            Direction::In => local.copy_from(remote, n),
            Direction::FetchAdd { add } => remote
                .front()
                .ok_or(OutOfBounds)
                .and_then(|word| word.fetch_add(add))
                .and_then(|was| local.write(&was.to_ne_bytes())),
            Direction::CompareSwap { compare, swap } => remote
                .front()
                .ok_or(OutOfBounds)
                .and_then(|word| word.compare_swap(compare, swap))
                .and_then(|was| local.write(&was.to_ne_bytes())),
        };
        moved.map_err(|OutOfBounds| Cut::LocalKey)?;
        self.landed += n;
        quantum.use_bytes(n);
        Ok(())
    }

    /// Counts the one end of this transfer (invariant I3): for the device, and for the object that
    /// has cut it if one has.
    pub(crate) fn count_end(
        &self,
        end: Result<(), Cut>,
        local: &SpanList,
        remote: &SpanList,
        counters: &Counters,
    ) {
        // CAST: widens.
        let landed = self.landed as u64;
        match end {
            Ok(()) => (),
            Err(Cut::OwnQp) => self.own.count_cut(self.landed),
            Err(Cut::PeerQp) => self.peer.count_cut(self.landed),
            Err(Cut::LocalKey) => local.count_cut(self.landed),
            Err(Cut::RemoteKey) => remote.count_cut(self.landed),
        }
        let torn = match end {
            Ok(()) => {
                counters.transfers_completed.add(1);
                counters.bytes_moved.add(landed);
                return;
            }
            Err(Cut::OwnQp | Cut::PeerQp) => &counters.transfers_aborted,
            Err(Cut::LocalKey | Cut::RemoteKey) => &counters.transfers_faulted,
        };
        torn.add(1);
        counters.bytes_landed_of_torn.add(landed);
    }
}
