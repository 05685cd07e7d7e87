// SPDX-License-Identifier: GPL-2.0

//! Bindings to C, made by bindgen: the RDMA core and whatever else the `kernel` crate lacks.
//!
//! For [`abstractions`](crate::abstractions) only.

#![allow(
    clippy::all,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub(crate) use kernel::bindings::*;
use kernel::ffi;
use pin_init::MaybeZeroable;

include!(concat!(env!("SLUICE_GENERATED"), "/rdma_generated.rs"));

/// What is shared with the user-space provider library.
pub(crate) mod uapi {
    use kernel::ffi;
    use pin_init::MaybeZeroable;

    include!(concat!(env!("SLUICE_GENERATED"), "/uapi_generated.rs"));
}
