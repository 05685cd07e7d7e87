// SPDX-License-Identifier: GPL-2.0

//! The paths between a requester and its responder.
//!
//! Today there is one, within a device: [`local`]. A path that sends packets is the next to come;
//! it meets the same requester, responder and completer.

#![forbid(unsafe_code)]

pub(crate) mod local;
