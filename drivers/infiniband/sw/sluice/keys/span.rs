// SPDX-License-Identifier: GPL-2.0

//! Bytes that somebody holds a lease on, one piece or a scatter/gather list of them.

#![forbid(unsafe_code)]

use super::Region;
use crate::abstractions::{
    copy,
    copy::OutOfBounds,
    ring::SendRing,
    table::Lease, //
};
use core::cmp::min;

/// The largest number of elements in a scatter/gather list.
pub(crate) const MAX_SGE: usize = 32;

/// A range of a region that was found in the Key Table and checked, and the lease on it.
pub(crate) struct Span {
    region: Lease<Region>,
    offset: usize,
    left: usize,
}

impl Span {
    pub(super) fn new(region: Lease<Region>, offset: u64, length: u64) -> Self {
        // CAST: both were checked against the length of memory, a `usize`.
        Self {
            region,
            offset: offset as usize,
            left: length as usize,
        }
    }

    /// Adds to the 64-bit word that the span is, and returns what it was.
    pub(crate) fn fetch_add(&self, add: u64) -> Result<u64, OutOfBounds> {
        copy::fetch_add(self.region.memory(), self.offset, add)
    }

    /// Replaces the word that the span is if it equals `compare`, and returns what it was.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Result<u64, OutOfBounds> {
        copy::compare_swap(self.region.memory(), self.offset, compare, swap)
    }
}

/// The spans of one side of a transfer, used up from the front.
///
/// The lease on a span ends with its last byte, so that taking away one region waits for the use
/// of that region alone.
pub(crate) struct SpanList {
    spans: [Option<Span>; MAX_SGE],
    first: usize,
    end: usize,
    left: usize,
}

impl SpanList {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            spans: [const { None }; MAX_SGE],
            first: 0,
            end: 0,
            left: 0,
        }
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        for span in &mut self.spans[self.first..self.end] {
            *span = None;
        }
        self.first = 0;
        self.end = 0;
        self.left = 0;
    }

    /// Appends a span; `false` if the list is full.
    pub(crate) fn push(&mut self, span: Span) -> bool {
        let Some(slot) = self.spans.get_mut(self.end) else {
            return false;
        };
        self.left += span.left;
        *slot = Some(span);
        self.end += 1;
        true
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Whether a region that is still to be touched is being taken away.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.spans[self.first..self.end]
            .iter()
            .flatten()
            .any(|span| span.region.is_cancelled())
    }

    /// Whether a region that is still to be touched would not be found any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.spans[self.first..self.end]
            .iter()
            .flatten()
            .any(|span| span.region.is_withdrawn())
    }

    /// Counts a transfer that was cut because the first region of these that is being taken away is.
    pub(crate) fn count_cut(&self, landed: usize) {
        let mut spans = self.spans[self.first..self.end].iter().flatten();
        if let Some(span) = spans.find(|span| span.region.is_cancelled()) {
            span.region.cuts().count(landed);
        }
    }

    /// Whether the region with this key is still to be touched.
    pub(crate) fn uses(&self, key: u32) -> bool {
        self.spans[self.first..self.end]
            .iter()
            .flatten()
            .any(|span| span.region.key() == key)
    }

    /// The first span, if any.
    pub(crate) fn front(&self) -> Option<&Span> {
        self.spans[self.first..self.end].first()?.as_ref()
    }

    /// Counts `n` bytes of the front span as used, and lets go of it with the last one.
    fn consume(&mut self, n: usize) {
        self.left -= n;
        if let Some(Some(span)) = self.spans.get_mut(self.first) {
            span.offset += n;
            span.left -= n;
            if span.left == 0 {
                self.spans[self.first] = None;
                self.first += 1;
            }
        }
    }

    /// Moves `len` bytes from the front of `src` to the front of `self`.
    pub(crate) fn copy_from(&mut self, src: &mut Self, mut len: usize) -> Result<(), OutOfBounds> {
        while len > 0 {
            let to = self.front().ok_or(OutOfBounds)?;
            let from = src.front().ok_or(OutOfBounds)?;
            let n = min(len, min(to.left, from.left));
            copy::memory_to_memory(
                to.region.memory(),
                to.offset,
                from.region.memory(),
                from.offset,
                n,
            )?;
            self.consume(n);
            src.consume(n);
            len -= n;
        }
        Ok(())
    }

    /// Moves `len` bytes of the inline data of the oldest request in `ring`, from byte `from` on,
    /// to the front of `self`.
    pub(crate) fn copy_from_inline(
        &mut self,
        ring: &SendRing,
        mut from: usize,
        mut len: usize,
    ) -> Result<(), OutOfBounds> {
        while len > 0 {
            let to = self.front().ok_or(OutOfBounds)?;
            let n = min(len, to.left);
            copy::inline_to_memory(to.region.memory(), to.offset, ring, from, n)?;
            self.consume(n);
            from += n;
            len -= n;
        }
        Ok(())
    }

    /// Writes `bytes` to the front of `self`.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), OutOfBounds> {
        while !bytes.is_empty() {
            let to = self.front().ok_or(OutOfBounds)?;
            let n = min(bytes.len(), to.left);
            copy::bytes_to_memory(to.region.memory(), to.offset, &bytes[..n])?;
            self.consume(n);
            bytes = &bytes[n..];
        }
        Ok(())
    }
}
