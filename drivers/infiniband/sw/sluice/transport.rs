// SPDX-License-Identifier: GPL-2.0

//! The transport services: what a queue pair does with work requests and with its peer's messages.
//!
//! A work request takes one way through here: the [`rc::requester`] fetches and validates it and
//! gathers its memory, the path ([`path::local`]) hands it to the peer's [`rc::responder`], the
//! engine moves the bytes, and the [`rc::completer`] turns the outcome into a completion.

#![forbid(unsafe_code)]

pub mod attendance;
pub(crate) mod lookout;
pub(crate) mod pass;
pub(crate) mod path;
pub(crate) mod qp;
pub(crate) mod rc;
