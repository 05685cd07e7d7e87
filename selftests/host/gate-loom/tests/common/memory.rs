// SPDX-License-Identifier: GPL-2.0

//! Memory that has to be taken apart by one alone.

use loom::cell::UnsafeCell;

/// What a gate protects: holders touch it together, the one who has drained the gate takes it apart
/// alone.
#[derive(Default)]
pub struct Memory(UnsafeCell<()>);

// SAFETY: there is nothing in the cell; loom watches the accesses and fails on those that race.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    pub fn touch(&self) {
        self.0.with(|_| ());
    }

    pub fn take_apart(&self) {
        self.0.with_mut(|_| ());
    }
}
