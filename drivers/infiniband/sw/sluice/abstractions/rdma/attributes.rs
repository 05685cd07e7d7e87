// SPDX-License-Identifier: GPL-2.0

//! Attributes of a device in sysfs, beside those that every RDMA device has.

use super::{
    ops::Ops,
    Driver, //
};
use crate::{
    abstractions::setting::Setting,
    bindings, //
};
use core::marker::PhantomData;
use kernel::{
    error::Error,
    page::PAGE_SIZE,
    prelude::*, //
};

/// The most attributes that a driver can have.
const MAX_ATTRIBUTES: usize = 8;

/// One attribute as the core sees it, and ours behind it.
#[repr(C)]
struct Entry<D: Driver> {
    raw: bindings::device_attribute,
    setting: Option<&'static Setting<D::Settings>>,
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
        while i < D::SETTINGS.len() {
            pointers[i] = (&raw const Self::ENTRIES[i].raw.attr).cast_mut();
            i += 1;
        }
        pointers
    };

    const ENTRIES: &'static [Entry<D>; MAX_ATTRIBUTES] = &{
        assert!(D::SETTINGS.len() <= MAX_ATTRIBUTES);
        let mut entries = [const {
            Entry {
                // SAFETY: Names, modes and optional functions: zero is none.
                raw: unsafe { core::mem::zeroed() },
                setting: None,
            }
        }; MAX_ATTRIBUTES];
        let mut i = 0;
        while i < D::SETTINGS.len() {
            let setting = &D::SETTINGS[i];
            entries[i].raw.attr.name = setting.name.to_bytes_with_nul().as_ptr().cast();
            entries[i].raw.attr.mode = 0o644;
            entries[i].raw.__bindgen_anon_1.show = Some(Self::show);
            entries[i].raw.__bindgen_anon_2.store = Some(Self::store);
            entries[i].setting = Some(setting);
            i += 1;
        }
        entries
    };

    /// # Safety
    ///
    /// `raw` must be the first part of one of `ENTRIES`.
    unsafe fn setting(
        raw: *mut bindings::device_attribute,
    ) -> Result<&'static Setting<D::Settings>> {
        // SAFETY: By the safety requirement; the entries are static.
        unsafe { (*raw.cast::<Entry<D>>()).setting }.ok_or(EINVAL)
    }

    /// Reads a setting into `buf`.
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
        let len = || -> Result<usize> {
            // SAFETY: By the safety requirements. Nobody else looks at the page meanwhile.
            let (setting, device, page) = unsafe {
                (
                    Self::setting(raw)?,
                    Ops::<D>::device(bindings::sluice_device_of(device)),
                    &mut *buf.cast::<[u8; PAGE_SIZE]>(),
                )
            };
            setting.read(D::settings(device), page)
        };
        // CAST: At most a page.
        len().map_or_else(errno, |len| len as isize)
    }

    /// Sets a setting to what the `len` bytes in `buf` say.
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
        let done = || -> Result {
            // SAFETY: By the safety requirements.
            let (setting, device, bytes) = unsafe {
                (
                    Self::setting(raw)?,
                    Ops::<D>::device(bindings::sluice_device_of(device)),
                    core::slice::from_raw_parts(buf.cast::<u8>(), len),
                )
            };
            setting.write(D::settings(device), bytes)
        };
        // CAST: At most a page.
        done().map_or_else(errno, |()| len as isize)
    }
}

fn errno(error: Error) -> isize {
    // CAST: Widens.
    error.to_errno() as isize
}
