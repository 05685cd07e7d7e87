// SPDX-License-Identifier: GPL-2.0

//! The tracepoints, typed.
//!
//! Each function records one event, or nothing while that event is off; then it costs one call
//! and one branch. May be called in any context. None sleeps.

use super::rdma::Device;
use crate::{
    bindings,
    teardown::gate::CloseMode, //
};
use kernel::time::Delta;

/// What a transfer does.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Operation {
    Send = bindings::sluice_trace_operation_SLUICE_TRACE_SEND,
    Write = bindings::sluice_trace_operation_SLUICE_TRACE_WRITE,
    Read = bindings::sluice_trace_operation_SLUICE_TRACE_READ,
    FetchAdd = bindings::sluice_trace_operation_SLUICE_TRACE_FETCH_ADD,
    CompareSwap = bindings::sluice_trace_operation_SLUICE_TRACE_COMPARE_SWAP,
}

/// How a transfer ended.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum End {
    Completed = bindings::sluice_trace_end_SLUICE_TRACE_COMPLETED,
    /// Aborted by a teardown of the requester's queue pair.
    OwnQp = bindings::sluice_trace_end_SLUICE_TRACE_ABORTED_OWN_QP,
    /// Aborted by a teardown of the responder's queue pair.
    PeerQp = bindings::sluice_trace_end_SLUICE_TRACE_ABORTED_PEER_QP,
    /// Faulted: a region of the requester was taken away.
    LocalKey = bindings::sluice_trace_end_SLUICE_TRACE_FAULTED_LOCAL_KEY,
    /// Faulted: a region of the responder was taken away.
    RemoteKey = bindings::sluice_trace_end_SLUICE_TRACE_FAULTED_REMOTE_KEY,
}

/// Whose gate is closed.
#[derive(Clone, Copy)]
pub(crate) enum What {
    /// That of the queue pair with this number.
    Qp(u32),
    /// That of the region with this key.
    Region(u32),
}

/// Why a gate is closed.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Cause {
    Reset = bindings::sluice_trace_cause_SLUICE_TRACE_RESET,
    Error = bindings::sluice_trace_cause_SLUICE_TRACE_ERROR,
    Destroy = bindings::sluice_trace_cause_SLUICE_TRACE_DESTROY,
    Deregister = bindings::sluice_trace_cause_SLUICE_TRACE_DEREG,
    /// Revoked together with others, and not deregistered yet.
    Revoke = bindings::sluice_trace_cause_SLUICE_TRACE_REVOKE,
}

/// By what a transfer is recognised.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    /// The number of the requester's queue pair.
    pub(crate) qpn: u32,
    /// The number of the responder's.
    pub(crate) peer: u32,
    /// The consumer's own name for the request.
    pub(crate) wr_id: u64,
}

/// A transfer of `length` bytes starts.
#[inline]
pub(crate) fn transfer_start(device: &Device, names: Names, operation: Operation, length: usize) {
    let Names { qpn, peer, wr_id } = names;
    // CAST: the first one to the number of a variant, the second one widens.
    // SAFETY: the device is valid, and nobody keeps the pointer.
    unsafe {
        bindings::sluice_trace_transfer_start(
            device.as_raw(),
            qpn,
            peer,
            wr_id,
            operation as u32,
            length as u64,
        )
    }
}

/// A transfer of `length` bytes has ended, of which `landed` have been moved.
#[inline]
pub(crate) fn transfer_end(device: &Device, names: Names, end: End, landed: usize, length: usize) {
    let Names { qpn, peer, wr_id } = names;
    // CAST: the first one to the number of a variant, the others widen.
    // SAFETY: the device is valid, and nobody keeps the pointer.
    unsafe {
        bindings::sluice_trace_transfer_end(
            device.as_raw(),
            qpn,
            peer,
            wr_id,
            end as u32,
            landed as u64,
            length as u64,
        )
    }
}

/// The gate of `what` is about to be closed; `holders` are inside.
#[inline]
pub(crate) fn close_begin(
    device: &Device,
    what: What,
    mode: CloseMode,
    cause: Cause,
    holders: usize,
) {
    let (what, id) = what.to_raw();
    // CAST: to the number of a variant; and there are not 2^32 holders.
    // SAFETY: the device is valid, and nobody keeps the pointer.
    unsafe {
        bindings::sluice_trace_close_begin(
            device.as_raw(),
            what,
            id,
            raw_mode(mode),
            cause as u32,
            holders as u32,
        )
    }
}

/// Nobody is inside the gate of `what` any more, which was closed with `mode` in the end.
#[inline]
pub(crate) fn close_end(
    device: &Device,
    what: What,
    mode: CloseMode,
    past_deadline: bool,
    waited: Delta,
) {
    let (what, id) = what.to_raw();
    // CAST: time does not go back.
    // SAFETY: the device is valid, and nobody keeps the pointer.
    unsafe {
        bindings::sluice_trace_close_end(
            device.as_raw(),
            what,
            id,
            raw_mode(mode),
            past_deadline,
            waited.as_nanos() as u64,
        )
    }
}

impl What {
    fn to_raw(self) -> (bindings::sluice_trace_what, u32) {
        match self {
            Self::Qp(qpn) => (bindings::sluice_trace_what_SLUICE_TRACE_QP, qpn),
            Self::Region(key) => (bindings::sluice_trace_what_SLUICE_TRACE_REGION, key),
        }
    }
}

fn raw_mode(mode: CloseMode) -> bindings::sluice_trace_mode {
    match mode {
        CloseMode::Drain => bindings::sluice_trace_mode_SLUICE_TRACE_DRAIN,
        CloseMode::Cancel => bindings::sluice_trace_mode_SLUICE_TRACE_CANCEL,
    }
}
