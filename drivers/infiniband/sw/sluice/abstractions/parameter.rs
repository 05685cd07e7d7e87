// SPDX-License-Identifier: GPL-2.0

//! Parameters of the module that are checked when they are set, and can be set at run time.
//!
//! Those of the `module!` macro are numbers that nobody checks and nobody sees in sysfs. So the
//! parameters themselves are declared in C (`bindings/parameters.c`), each with its name as
//! argument; the functions behind them are made here, for a list of [`Setting`]s.

use super::setting::Setting;
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    str::CStr, //
};

/// The parameters of a module.
pub(crate) trait Parameters: 'static {
    /// What they are the values of. They may be read and set before the module's initialisation
    /// and after its exit, as long as its code is there.
    type Values: Sync + 'static;

    /// The list.
    const SETTINGS: &'static [Setting<Self::Values>];

    /// The values.
    fn values() -> &'static Self::Values;
}

/// The functions behind the parameters `P`.
pub(crate) struct Ops<P>(PhantomData<P>);

impl<P: Parameters> Ops<P> {
    /// What C takes them for.
    pub(crate) const OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(Self::set),
        get: Some(Self::get),
        free: None,
    };

    /// # Safety
    ///
    /// `param` must be a parameter whose argument is a string.
    unsafe fn setting(param: *const bindings::kernel_param) -> Result<&'static Setting<P::Values>> {
        // SAFETY: By the safety requirement.
        let name = unsafe { CStr::from_char_ptr((*param).__bindgen_anon_1.arg.cast()) };
        P::SETTINGS
            .iter()
            .find(|setting| setting.name == name)
            .ok_or(EINVAL)
    }

    /// Takes a new value, from the command line of `insmod` or from sysfs.
    ///
    /// # Safety
    ///
    /// As the kernel keeps to: `text` is null or a string, and `param` one of those declared in C.
    unsafe extern "C" fn set(text: *const c_char, param: *const bindings::kernel_param) -> c_int {
        let done = || -> Result {
            if text.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: By the safety requirements.
            let (setting, text) = unsafe { (Self::setting(param)?, CStr::from_char_ptr(text)) };
            setting.write(P::values(), text.to_bytes())
        };
        done().map_or_else(Error::to_errno, |()| 0)
    }

    /// Reads the present value into `page`; returns the number of bytes.
    ///
    /// # Safety
    ///
    /// As the kernel keeps to: `page` has room for one page, and `param` is one of those declared
    /// in C.
    unsafe extern "C" fn get(page: *mut c_char, param: *const bindings::kernel_param) -> c_int {
        let len = || -> Result<usize> {
            // SAFETY: By the safety requirements. Nobody else looks at the page meanwhile.
            let (setting, page) =
                unsafe { (Self::setting(param)?, &mut *page.cast::<[u8; PAGE_SIZE]>()) };
            setting.read(P::values(), page)
        };
        // CAST: At most a page.
        len().map_or_else(Error::to_errno, |len| len as c_int)
    }
}
