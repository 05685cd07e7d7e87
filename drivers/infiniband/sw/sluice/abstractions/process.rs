// SPDX-License-Identifier: GPL-2.0

//! The process that is running.

use crate::bindings;

/// Whether it is about to end: what the kernel does now, it does to clean up after it.
pub(crate) fn is_exiting() -> bool {
    // SAFETY: looks at a flag of the current task, and may be called in any context.
    unsafe { bindings::sluice_current_is_exiting() }
}
