// SPDX-License-Identifier: GPL-2.0

//! Values that a person reads and sets as text, wherever the kernel shows them: in the folder of a
//! device in sysfs ([`rdma::Driver`](super::rdma::Driver)), or as parameters of the module
//! ([`super::parameter`]).

use core::fmt;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    str::CStr, //
};

/// One value among those in a `T`, which all may read and root may write.
pub(crate) struct Setting<T: 'static> {
    /// The name of the file.
    pub(crate) name: &'static CStr,
    /// Writes the present value, without the end of the line.
    pub(crate) show: fn(&T, &mut dyn fmt::Write) -> fmt::Result,
    /// Takes a new value, which arrives without white space around it. The error goes to the
    /// writer. What is not UTF-8 arrives as U+FFFD alone.
    pub(crate) store: fn(&T, &str) -> Result,
}

impl<T> Setting<T> {
    /// Writes the present value and the end of the line to the beginning of `page`. Returns the
    /// number of bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that is more than a page.
    pub(super) fn read(&self, values: &T, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        use fmt::Write;

        let mut text = Text { buf: page, len: 0 };
        (self.show)(values, &mut text)
            .and_then(|()| text.write_char('\n'))
            .map_err(|fmt::Error| EINVAL)?;
        Ok(text.len)
    }

    /// Takes what somebody wrote.
    pub(super) fn write(&self, values: &T, bytes: &[u8]) -> Result {
        let text = core::str::from_utf8(bytes).unwrap_or("\u{fffd}");
        (self.store)(values, text.trim())
    }
}

/// Text in a buffer of fixed size.
struct Text<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.buf.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
