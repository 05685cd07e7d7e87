// SPDX-License-Identifier: GPL-2.0

//! Bindings to C, made by bindgen: the RDMA core and whatever else the `kernel` crate lacks.
//!
//! For [`abstractions`](crate::abstractions) only.

#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
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
use pin_init::{
    MaybeZeroable,
    Zeroable, //
};

// bindgen does not do this: <https://github.com/rust-lang/rust-bindgen/issues/3196>.
//
// SAFETY: A unit of bit fields is nothing but its storage.
unsafe impl<Storage: Zeroable> Zeroable for __BindgenBitfieldUnit<Storage> {}

include!(env!("SLUICE_BINDINGS"));
