// SPDX-License-Identifier: GPL-2.0

//! What a driver tells of an object when a person asks: `rdma resource show -dd`.

use super::AccessFlags;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    str::CStr, //
};

/// Where a driver puts what it has to tell of one object: names, which appear with `drv_` in
/// front, and values.
///
/// Each function fails with `EMSGSIZE` when the message is full. That goes to the core, which puts
/// the object into the next one.
pub(crate) struct Details<'a>(&'a mut bindings::sk_buff);

impl Details<'_> {
    /// A number.
    pub(crate) fn number(&mut self, name: &CStr, value: u64) -> Result {
        // SAFETY: The message is valid, and the name is copied.
        to_result(unsafe { bindings::rdma_nl_put_driver_u64(self.0, name.as_char_ptr(), value) })
    }

    /// A number that is read in hexadecimal.
    pub(crate) fn hex(&mut self, name: &CStr, value: u64) -> Result {
        // SAFETY: The message is valid, and the name is copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64_hex(self.0, name.as_char_ptr(), value)
        })
    }

    /// Access rights: the sum of `enum ibv_access_flags`, in hexadecimal.
    pub(crate) fn access(&mut self, name: &CStr, flags: AccessFlags) -> Result {
        // CAST: flags are bits.
        self.hex(name, u64::from(flags.to_raw() as u32))
    }

    /// A word.
    pub(crate) fn word(&mut self, name: &CStr, value: &CStr) -> Result {
        // SAFETY: The message is valid, and name and word are copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(self.0, name.as_char_ptr(), value.as_char_ptr())
        })
    }
}

/// Has `tell` add details to `message`. If there is no room for all, there are none.
///
/// # Safety
///
/// `message` must be valid, and nobody else may use it.
pub(super) unsafe fn fill(
    message: *mut bindings::sk_buff,
    tell: impl FnOnce(&mut Details<'_>) -> Result,
) -> Result {
    // SAFETY: By the safety requirements.
    unsafe {
        let table = bindings::sluice_driver_table_start(message);
        let table = NonNull::new(table).ok_or(EMSGSIZE)?;
        match tell(&mut Details(&mut *message)) {
            Ok(()) => {
                bindings::sluice_driver_table_end(message, table.as_ptr());
                Ok(())
            }
            Err(error) => {
                bindings::sluice_driver_table_cancel(message, table.as_ptr());
                Err(error)
            }
        }
    }
}
