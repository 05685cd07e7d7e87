// SPDX-License-Identifier: GPL-2.0

//! sluice: a software RDMA NIC whose teardown behaviour is specified.
//!
//! This file only wires the parts together. `Documentation/architecture.rst` says where things
//! live and why.

use kernel::prelude::*;

mod abstractions;
mod bindings;
mod engine;
mod keys;
#[cfg(CONFIG_KUNIT = "y")]
mod kunit;
mod observe;
pub mod teardown;
pub mod transport;
mod verbs;
pub mod wire;

module! {
    type: SluiceModule,
    name: "sluice",
    authors: ["The sluice authors"],
    description: "Software RDMA NIC with specified teardown",
    license: "GPL",
}

/// The functions behind the parameters, which are declared in `bindings/parameters.c`.
#[export_name = "sluice_parameter_ops"]
static PARAMETER_OPS: kernel::bindings::kernel_param_ops =
    abstractions::parameter::Ops::<teardown::settings::Defaults>::OPS;

/// The module: a driver that is registered.
struct SluiceModule {
    // The devices, which go first, have files in the folder.
    _registration: abstractions::rdma::Registration<verbs::Sluice>,
    _folder: abstractions::debugfs::Root,
}

impl kernel::Module for SluiceModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let folder = abstractions::debugfs::Root::new(c"sluice");
        Ok(Self {
            _registration: abstractions::rdma::Registration::new()?,
            _folder: folder,
        })
    }
}
