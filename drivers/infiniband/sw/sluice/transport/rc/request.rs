// SPDX-License-Identifier: GPL-2.0

//! A send work request that has been validated.

#![forbid(unsafe_code)]

use crate::abstractions::ring::{
    Completion,
    SendWqe, //
};

/// Status of a completion: `enum ib_wc_status`, as far as this device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    /// Done.
    Success = 0,
    /// The message does not fit the buffer, or is longer than a message can be.
    LocalLength = 1,
    /// The request itself makes no sense.
    LocalQpOperation = 2,
    /// A key of the consumer's own does not allow the access.
    LocalProtection = 4,
    /// Not done, because the queue pair is in the error state.
    Flushed = 5,
    /// The peer found the request invalid.
    RemoteInvalidRequest = 9,
    /// The peer's keys do not allow the access.
    RemoteAccess = 10,
    /// The peer failed while it served the request.
    RemoteOperation = 11,
    /// The peer did not answer.
    RetryExceeded = 12,
    /// The peer had no receive request for too long.
    RnrRetryExceeded = 13,
}

/// What a request asks for.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    /// Place the message where the peer's receive request says.
    Send,
    /// Place the message at an address of the peer.
    Write { addr: u64, rkey: u32 },
    /// Fetch the message from an address of the peer.
    Read { addr: u64, rkey: u32 },
    /// Add to a word of the peer and fetch what it was.
    FetchAdd { addr: u64, rkey: u32, add: u64 },
    /// Replace a word of the peer if it has the value expected, and fetch what it was.
    CompareSwap {
        addr: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
}

impl Op {
    /// Whether the answer of the peer lands in the requester's memory.
    pub(crate) fn lands_here(self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::FetchAdd { .. } | Self::CompareSwap { .. }
        )
    }

    /// Whether this is an atomic operation, on one word of 8 bytes.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }
}

/// A send work request that makes sense by itself.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) op: Op,
    /// Immediate data, in network order.
    pub(crate) imm: Option<u32>,
    /// Whether success is reported, too.
    pub(crate) signaled: bool,
    /// Whether the peer's completion wakes consumers that wait for solicited events only.
    pub(crate) solicited: bool,
    /// If the data is in the work request itself: how many bytes.
    pub(crate) inline: Option<u32>,
    pub(crate) num_sge: u32,
}

/// `enum ib_send_flags`. The fence is always kept: requests of a queue pair run one after another.
mod flag {
    pub(super) const SIGNALED: u32 = 1 << 1;
    pub(super) const SOLICITED: u32 = 1 << 2;
    pub(super) const INLINE: u32 = 1 << 3;
}

/// What a queue pair was created for, as far as it limits requests.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_sge: u32,
    pub(crate) max_inline: u32,
    pub(crate) signal_all: bool,
}

impl Request {
    /// Makes sense of a work request.
    ///
    /// # Errors
    ///
    /// [`Status::LocalQpOperation`] if the operation is none that a reliable connection of this
    /// device knows, or has parameters that it cannot have.
    pub(crate) fn new(wqe: &SendWqe, limits: &Limits) -> Result<Self, Status> {
        let (addr, rkey) = (wqe.remote_addr, wqe.rkey);
        let (op, has_imm) = match wqe.opcode {
            0 => (Op::Write { addr, rkey }, false),
            1 => (Op::Write { addr, rkey }, true),
            2 => (Op::Send, false),
            3 => (Op::Send, true),
            4 => (Op::Read { addr, rkey }, false),
            5 => (
                Op::CompareSwap {
                    addr,
                    rkey,
                    compare: wqe.compare_add,
                    swap: wqe.swap,
                },
                false,
            ),
            6 => (
                Op::FetchAdd {
                    addr,
                    rkey,
                    add: wqe.compare_add,
                },
                false,
            ),
            _ => return Err(Status::LocalQpOperation),
        };
        let inline = (wqe.flags & flag::INLINE != 0).then_some(wqe.length);
        let sane = match inline {
            Some(length) => length <= limits.max_inline && !op.lands_here(),
            None => wqe.num_sge <= limits.max_sge,
        };
        if !sane {
            return Err(Status::LocalQpOperation);
        }
        Ok(Self {
            op,
            imm: has_imm.then_some(wqe.imm),
            signaled: limits.signal_all || wqe.flags & flag::SIGNALED != 0,
            solicited: wqe.flags & flag::SOLICITED != 0,
            inline,
            num_sge: wqe.num_sge,
        })
    }
}

/// What the consumer recognises a send work request by, also one that does not make sense.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) wr_id: u64,
    /// `enum ib_wr_opcode`.
    opcode: u32,
}

impl From<&SendWqe> for Ticket {
    fn from(wqe: &SendWqe) -> Self {
        Self {
            wr_id: wqe.wr_id,
            opcode: wqe.opcode,
        }
    }
}

/// The completion of a send work request.
pub(crate) fn send_completion(ticket: Ticket, qpn: u32, status: Status, bytes: u32) -> Completion {
    // `enum ib_uverbs_wc_opcode`.
    let opcode = match ticket.opcode {
        0 | 1 => 1,
        4 => 2,
        5 => 3,
        6 => 4,
        _ => 0,
    };
    Completion {
        wr_id: ticket.wr_id,
        // CAST: the discriminants are the verbs numbers.
        status: status as u32,
        opcode,
        byte_len: bytes,
        qp_num: qpn,
        port_num: 1,
        ..Default::default()
    }
}
