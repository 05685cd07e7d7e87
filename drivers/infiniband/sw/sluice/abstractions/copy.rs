// SPDX-License-Identifier: GPL-2.0

//! Moving bytes between pinned memory: what the DMA engine does.
//!
//! All functions check their bounds and never sleep, fault or allocate. The memory is a program's
//! own; it may change while it is being read, and may be read while it is being written. That is
//! what the program would see of any DMA, and no value in it is ever interpreted here.

use super::{
    ring::SendRing,
    umem::UserMemory, //
};
use core::{
    cmp::min,
    sync::atomic::{
        AtomicU64,
        Ordering, //
    },
};
use kernel::{
    bindings,
    page::PAGE_SIZE, //
};

/// The bytes asked for are not within the memory.
#[derive(Debug)]
pub(crate) struct OutOfBounds;

/// Checks that `offset..offset + len` is within `memory`.
fn check(memory: &UserMemory, offset: usize, len: usize) -> Result<(), OutOfBounds> {
    match offset.checked_add(len) {
        Some(end) if end <= memory.len() => Ok(()),
        _ => Err(OutOfBounds),
    }
}

/// The kernel address of byte `offset` of `memory` and how many bytes from there, `max` at most,
/// are contiguous.
fn run(memory: &UserMemory, offset: usize, max: usize) -> Result<(*mut u8, usize), OutOfBounds> {
    let at = memory.page_offset() + offset;
    let mut index = at / PAGE_SIZE;
    let page = memory.page(index).ok_or(OutOfBounds)?;
    let start = page.wrapping_add(at % PAGE_SIZE);
    let mut len = PAGE_SIZE - at % PAGE_SIZE;
    let mut end = page.wrapping_add(PAGE_SIZE);
    while len < max {
        index += 1;
        match memory.page(index) {
            Some(next) if next == end => {
                len += PAGE_SIZE;
                end = next.wrapping_add(PAGE_SIZE);
            }
            _ => break,
        }
    }
    Ok((start, min(len, max)))
}

/// Copies `len` bytes from `src` to `dst`, in rising order of addresses.
pub(crate) fn memory_to_memory(
    dst: &UserMemory,
    mut dst_offset: usize,
    src: &UserMemory,
    mut src_offset: usize,
    mut len: usize,
) -> Result<(), OutOfBounds> {
    check(dst, dst_offset, len)?;
    check(src, src_offset, len)?;
    let (mut to, mut to_len) = (core::ptr::null_mut(), 0);
    let (mut from, mut from_len) = (core::ptr::null_mut::<u8>(), 0);
    while len > 0 {
        if to_len == 0 {
            (to, to_len) = run(dst, dst_offset, len)?;
        }
        if from_len == 0 {
            (from, from_len) = run(src, src_offset, len)?;
        }
        let n = min(to_len, from_len);
        // SAFETY: both runs lie within pinned pages, which the two borrows keep pinned. The C
        // function is told nothing about the memory's contents or about overlaps.
        unsafe { bindings::memcpy(to.cast(), from.cast(), n) };
        to = to.wrapping_add(n);
        from = from.wrapping_add(n);
        to_len -= n;
        from_len -= n;
        dst_offset += n;
        src_offset += n;
        len -= n;
    }
    Ok(())
}

/// Copies `len` bytes from byte `src_offset` of the inline data of the oldest request in `ring`.
pub(crate) fn inline_to_memory(
    dst: &UserMemory,
    mut dst_offset: usize,
    ring: &SendRing,
    src_offset: usize,
    mut len: usize,
) -> Result<(), OutOfBounds> {
    check(dst, dst_offset, len)?;
    let mut from = ring.inline_data(src_offset, len).ok_or(OutOfBounds)?;
    while len > 0 {
        let (to, n) = run(dst, dst_offset, len)?;
        // SAFETY: the destination as in `memory_to_memory`; the source lies within a slot of the
        // ring, which the borrow keeps alive.
        unsafe { bindings::memcpy(to.cast(), from.cast(), n) };
        from = from.wrapping_add(n);
        dst_offset += n;
        len -= n;
    }
    Ok(())
}

/// The atomic 64-bit word at `offset`, which must be a multiple of 8 in the program's addresses.
fn word(memory: &UserMemory, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
    check(memory, offset, 8)?;
    let (at, _) = run(memory, offset, 8)?;
    if at.align_offset(8) != 0 {
        return Err(OutOfBounds);
    }
    // SAFETY: the word is aligned, hence within one page, which is pinned as long as `memory` is
    // borrowed. The program accesses it from outside of this program.
    Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
}

/// Adds `add` to the word at `offset` and returns what it was. Atomic towards all processors.
pub(crate) fn fetch_add(memory: &UserMemory, offset: usize, add: u64) -> Result<u64, OutOfBounds> {
    Ok(word(memory, offset)?.fetch_add(add, Ordering::SeqCst))
}

/// Replaces the word at `offset` by `swap` if it equals `compare`, and returns what it was.
pub(crate) fn compare_swap(
    memory: &UserMemory,
    offset: usize,
    compare: u64,
    swap: u64,
) -> Result<u64, OutOfBounds> {
    let word = word(memory, offset)?;
    Ok(
        match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(was) | Err(was) => was,
        },
    )
}

/// Writes `bytes` to `offset`.
pub(crate) fn bytes_to_memory(
    dst: &UserMemory,
    mut offset: usize,
    mut bytes: &[u8],
) -> Result<(), OutOfBounds> {
    check(dst, offset, bytes.len())?;
    while !bytes.is_empty() {
        let (to, n) = run(dst, offset, bytes.len())?;
        // SAFETY: the destination as in `memory_to_memory`; the source is a slice.
        unsafe { bindings::memcpy(to.cast(), bytes.as_ptr().cast(), n) };
        offset += n;
        bytes = &bytes[n..];
    }
    Ok(())
}
