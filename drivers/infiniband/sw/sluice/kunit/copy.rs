// SPDX-License-Identifier: GPL-2.0

//! Moving bytes between ranges of pages: any offsets, pages side by side as in a huge page or
//! scattered, and never a byte more.

#![forbid(unsafe_code)]

use super::Numbers;
use crate::abstractions::{
    copy,
    kunit::Pages, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Orders of pages: side by side, backwards, in runs, one alone.
const ORDERS: [&[usize]; 5] = [
    &[0, 1, 2, 3, 4, 5, 6, 7],
    &[7, 6, 5, 4, 3, 2, 1, 0],
    &[4, 5, 6, 0, 1, 7, 2, 3],
    &[0, 2, 1, 3, 5, 4],
    &[0],
];

/// Makes a range in any of the orders, anywhere in its first page. All bytes of its pages, also
/// those around it, follow from `seed`.
fn pages(numbers: &mut Numbers, seed: u8) -> Result<Pages> {
    let order = ORDERS[numbers.below(ORDERS.len())];
    let page_offset = match numbers.below(3) {
        0 => 0,
        1 => PAGE_SIZE - 1,
        _ => numbers.below(PAGE_SIZE),
    };
    let len = 1 + numbers.below(order.len() * PAGE_SIZE - page_offset);
    let mut pages = Pages::new(order, page_offset, len)?;
    for i in 0..order.len() * PAGE_SIZE - page_offset {
        pages.set_byte(i, pattern(seed, i));
    }
    Ok(pages)
}

/// No two neighbours alike, and no two pages.
fn pattern(seed: u8, offset: usize) -> u8 {
    // CAST: The low bits.
    (offset + offset / PAGE_SIZE * 3) as u8 ^ seed
}

/// Every byte that was to move has, and no other.
pub(crate) fn bytes_arrive_over_any_pages() -> Result {
    let mut numbers = Numbers(6);
    for _ in 0..60 {
        let (from, to) = (pages(&mut numbers, 0)?, pages(&mut numbers, 0x80)?);
        let from_offset = numbers.below(from.len());
        let to_offset = numbers.below(to.len());
        let most = (from.len() - from_offset).min(to.len() - to_offset);
        let len = if numbers.below(3) == 0 {
            most
        } else {
            numbers.below(most + 1)
        };
        check!(copy::memory_to_memory(&to, to_offset, &from, from_offset, len).is_ok());
        let mut offset = 0;
        while let Some(byte) = to.byte(offset) {
            let want = if (to_offset..to_offset + len).contains(&offset) {
                pattern(0, offset - to_offset + from_offset)
            } else {
                pattern(0x80, offset)
            };
            check!(byte == want);
            offset += 1;
        }
        check!(offset >= to.len());
    }
    Ok(())
}

/// One byte too many, at either end, and numbers that wrap around: refused, and nothing moved.
pub(crate) fn nothing_is_moved_out_of_bounds() -> Result {
    let mut numbers = Numbers(7);
    for _ in 0..10 {
        let (from, to) = (pages(&mut numbers, 0)?, pages(&mut numbers, 0x80)?);
        let (from_len, to_len) = (from.len(), to.len());
        let tries = [
            (0, 0, to_len.max(from_len) + 1),
            (to_len, 0, 1),
            (0, from_len, 1),
            (to_len + 1, 0, 0),
            (0, usize::MAX, 2),
            (usize::MAX, 0, 1),
            (0, 0, usize::MAX),
        ];
        for (to_offset, from_offset, len) in tries {
            check!(copy::memory_to_memory(&to, to_offset, &from, from_offset, len).is_err());
        }
        check!(copy::bytes_to_memory(&to, to_len - 1, &[1, 2]).is_err());
        check!((0..to_len).all(|i| to.byte(i) == Some(pattern(0x80, i))));
        check!(copy::memory_to_memory(&to, to_len, &from, from_len, 0).is_ok());
    }
    Ok(())
}

/// A word that lies across two pages or is not aligned is refused; others change as they should.
pub(crate) fn atomics_want_aligned_words() -> Result {
    let memory = Pages::new(&[1, 0, 3], 4, 2 * PAGE_SIZE)?;
    check!(copy::fetch_add(&memory, 4, 5).is_ok_and(|was| was == 0));
    check!(copy::compare_swap(&memory, 4, 5, 1 << 40).is_ok_and(|was| was == 5));
    check!(copy::compare_swap(&memory, 4, 5, 7).is_ok_and(|was| was == 1 << 40));
    check!(memory.byte(4 + 5) == Some(1));
    for offset in [
        0,
        1,
        5,
        PAGE_SIZE - 8,
        2 * PAGE_SIZE - 4,
        2 * PAGE_SIZE,
        usize::MAX,
    ] {
        check!(copy::fetch_add(&memory, offset, 1).is_err());
        check!(copy::compare_swap(&memory, offset, 0, 1).is_err());
    }
    // The last one that is within.
    check!(copy::fetch_add(&memory, 2 * PAGE_SIZE - 12, 1).is_ok());
    Ok(())
}
