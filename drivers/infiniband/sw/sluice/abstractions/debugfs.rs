// SPDX-License-Identifier: GPL-2.0

//! The folder of a driver in debugfs, shared by all its devices.

use kernel::{
    debugfs::Dir,
    prelude::*,
    str::CStr,
    sync::global_lock, //
};

global_lock! {
    // SAFETY: Initialised by `Root::new`, before anything else here is used.
    unsafe(uninit) static ROOT: Mutex<Option<Dir>> = None;
}

/// The folder, for as long as this lives. There is one of it, in the object of the module.
pub(crate) struct Root(());

impl Root {
    /// Makes the folder. To be called once, when the module is initialised.
    pub(crate) fn new(name: &CStr) -> Self {
        // SAFETY: Called once, by the rule above.
        unsafe { ROOT.init() };
        *ROOT.lock() = Some(Dir::new(name));
        Self(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let root = ROOT.lock().take();
        drop(root);
    }
}

/// Makes a folder called `name` in that of the driver.
pub(crate) fn folder(name: &CStr) -> Option<Dir> {
    ROOT.lock().as_ref().map(|root| root.subdir(name))
}
