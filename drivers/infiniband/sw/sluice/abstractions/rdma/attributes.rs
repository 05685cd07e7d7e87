// SPDX-License-Identifier: GPL-2.0

//! Attributes of a device in sysfs, beside those that every RDMA device has.

use super::{
    ops::Ops,
    Driver, //
};
use crate::bindings;
use core::{
    fmt,
    marker::PhantomData, //
};
use kernel::{
    error::Error,
    page::PAGE_SIZE,
    prelude::*,
    str::CStr, //
};

/// The most attributes that a driver can have.
const MAX_ATTRIBUTES: usize = 8;

/// An attribute of a device of type `T`: a file in `/sys/class/infiniband/NAME/` that all may read
/// and root may write.
pub(crate) struct Attribute<T: 'static> {
    /// The name of the file.
    pub(crate) name: &'static CStr,
    /// Writes the present value, without the end of the line.
    pub(crate) show: fn(&T, &mut dyn fmt::Write) -> fmt::Result,
    /// Takes a new value, which arrives without white space around it. The error goes to the
    /// writer.
    pub(crate) store: fn(&T, &str) -> Result,
}

/// One attribute as the core sees it, and ours behind it.
#[repr(C)]
struct Entry<D: Driver> {
    raw: bindings::device_attribute,
    attribute: Option<&'static Attribute<D::Device>>,
}

/// The attributes of the driver `D`, made at compile time.
pub(super) struct Attributes<D>(PhantomData<D>);

impl<D: Driver> Attributes<D> {
    /// What [`bindings::ib_device_ops`] takes.
    pub(super) const GROUP: &'static bindings::attribute_group = &bindings::attribute_group {
        __bindgen_anon_2: bindings::attribute_group__bindgen_ty_2 {
            // The core only reads the list, though its type does not say so.
            attrs: core::ptr::from_ref(Self::POINTERS).cast_mut().cast(),
        },
        // SAFETY: The rest are optional functions and pointers: zero is none.
        ..unsafe { core::mem::zeroed() }
    };

    /// Ends, as the core wants it, with a null pointer.
    const POINTERS: &'static [*mut bindings::attribute; MAX_ATTRIBUTES + 1] = &{
        let mut pointers = [core::ptr::null_mut(); MAX_ATTRIBUTES + 1];
        let mut i = 0;
        while i < D::ATTRIBUTES.len() {
            pointers[i] = (&raw const Self::ENTRIES[i].raw.attr).cast_mut();
            i += 1;
        }
        pointers
    };

    const ENTRIES: &'static [Entry<D>; MAX_ATTRIBUTES] = &{
        assert!(D::ATTRIBUTES.len() <= MAX_ATTRIBUTES);
        let mut entries = [const {
            Entry {
                // SAFETY: Names, modes and optional functions: zero is none.
                raw: unsafe { core::mem::zeroed() },
                attribute: None,
            }
        }; MAX_ATTRIBUTES];
        let mut i = 0;
        while i < D::ATTRIBUTES.len() {
            let attribute = &D::ATTRIBUTES[i];
            entries[i].raw.attr.name = attribute.name.to_bytes_with_nul().as_ptr().cast();
            entries[i].raw.attr.mode = 0o644;
            entries[i].raw.__bindgen_anon_1.show = Some(Self::show);
            entries[i].raw.__bindgen_anon_2.store = Some(Self::store);
            entries[i].attribute = Some(attribute);
            i += 1;
        }
        entries
    };

    /// # Safety
    ///
    /// `raw` must be the first part of one of `ENTRIES`.
    unsafe fn attribute(
        raw: *mut bindings::device_attribute,
    ) -> Result<&'static Attribute<D::Device>> {
        // SAFETY: By the safety requirement; the entries are static.
        unsafe { (*raw.cast::<Entry<D>>()).attribute }.ok_or(EINVAL)
    }

    /// Reads an attribute into `buf`.
    ///
    /// # Safety
    ///
    /// As the core keeps to: `device` is one of ours and registered, `raw` one of its attributes,
    /// and `buf` has room for one page.
    unsafe extern "C" fn show(
        device: *mut bindings::device,
        raw: *mut bindings::device_attribute,
        buf: *mut c_char,
    ) -> isize {
        let text = || -> Result<isize> {
            // SAFETY: By the safety requirements.
            let (attribute, device, buf) = unsafe {
                (
                    Self::attribute(raw)?,
                    Ops::<D>::device(bindings::sluice_device_of(device)),
                    core::slice::from_raw_parts_mut(buf.cast::<u8>(), PAGE_SIZE),
                )
            };
            let mut text = Text { buf, len: 0 };
            let written = (attribute.show)(device, &mut text).and_then(|()| {
                use fmt::Write;
                text.write_char('\n')
            });
            written.map_err(|fmt::Error| EINVAL)?;
            // CAST: At most a page.
            Ok(text.len as isize)
        };
        text().unwrap_or_else(errno)
    }

    /// Writes the `len` bytes in `buf` to an attribute.
    ///
    /// # Safety
    ///
    /// As for `show`, but that `buf` holds `len` bytes.
    unsafe extern "C" fn store(
        device: *mut bindings::device,
        raw: *mut bindings::device_attribute,
        buf: *const c_char,
        len: usize,
    ) -> isize {
        let done = || -> Result<isize> {
            // SAFETY: By the safety requirements.
            let (attribute, device, bytes) = unsafe {
                (
                    Self::attribute(raw)?,
                    Ops::<D>::device(bindings::sluice_device_of(device)),
                    core::slice::from_raw_parts(buf.cast::<u8>(), len),
                )
            };
            let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
            (attribute.store)(device, text.trim())?;
            // CAST: At most a page.
            Ok(len as isize)
        };
        done().unwrap_or_else(errno)
    }
}

fn errno(error: Error) -> isize {
    // CAST: Widens.
    error.to_errno() as isize
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
