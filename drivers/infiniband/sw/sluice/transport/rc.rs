// SPDX-License-Identifier: GPL-2.0

//! The reliable connection.

#![forbid(unsafe_code)]

pub(crate) mod completer;
pub(crate) mod request;
pub(crate) mod requester;
pub(crate) mod responder;
