// SPDX-License-Identifier: GPL-2.0

//! The process that is running.

use crate::bindings;

/// Whether it is about to end: what the kernel does now, it does to clean up after it.
pub(crate) fn is_exiting() -> bool {
    // SAFETY: looks at a flag of the current task, and may be called in any context.
    unsafe { bindings::sluice_current_is_exiting() }
}

/// Whether nobody else wants this processor now: for those who busily wait for something.
pub(crate) fn is_alone() -> bool {
    // SAFETY: looks at a counter of this processor and a flag of the current task; any context.
    unsafe { bindings::sluice_is_alone() }
}
