// SPDX-License-Identifier: GPL-2.0

//! The responder: serves the messages of the peer.
//!
//! A receive work request is looked at when a message that needs it arrives, and taken off its
//! queue when that message ends. So a message that is cut leaves it posted, for the flush or for
//! another attempt, and every receive request completes at most once (invariant I3).

#![forbid(unsafe_code)]

use super::request::{
    Op,
    Request,
    Status, //
};
use crate::{
    abstractions::{
        rdma::{
            Access,
            AccessFlags,
            QpEvent, //
        },
        ring::{
            Completion,
            RecvRing,
            RecvWqe, //
        },
    },
    keys::SpanList,
    transport::{
        pass::Pass,
        qp::Qp, //
    },
    wire::{
        psn::Psn,
        qp_state::{
            Inbound,
            QpState, //
        },
        timers::RnrTimer,
    },
};
use core::cmp::min;
use kernel::sync::Arc;

/// Completion of a receive request: the opcodes of `enum ib_uverbs_wc_opcode` and the flag for
/// immediate data.
const WC_RECV: u32 = 128;
const WC_RECV_RDMA_WITH_IMM: u32 = 129;
const WC_WITH_IMM: u32 = 1 << 1;

/// Why the peer's message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    /// Receiver not ready: try again after this time.
    Rnr(RnrTimer),
    /// The request is not one that this queue pair serves.
    InvalidRequest,
    /// The rkey does not allow the access.
    RemoteAccess,
    /// The responder failed for a reason of its own.
    RemoteOperation,
}

/// The answer to a message that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Refused, and the peer is told.
    Nak(Nak),
    /// Dropped without a word.
    Silence,
}

impl From<Nak> for Refusal {
    fn from(nak: Nak) -> Self {
        Self::Nak(nak)
    }
}

/// What the responder has to know of a message beside its request.
pub(crate) struct Arrival<'a> {
    pub(crate) request: &'a Request,
    /// The queue pair that it comes from.
    pub(crate) from: u32,
    /// The number of its first packet.
    pub(crate) psn: Psn,
    /// How many packet sequence numbers it takes.
    pub(crate) packets: u32,
    /// Bytes.
    pub(crate) length: usize,
}

/// What its sender holds for a message that is about to start.
pub(crate) struct Sender<'a> {
    pub(crate) pass: &'a Pass,
    pub(crate) local: &'a SpanList,
}

impl Sender<'_> {
    /// Whether something of that has been taken away, so that the message does not start.
    fn is_withdrawn(&self) -> bool {
        self.pass.is_withdrawn() || self.local.is_withdrawn()
    }
}

/// A message that is being served.
pub(crate) struct Served {
    /// The pass that keeps the responder's queue pair from being torn down under the message.
    pub(crate) pass: Pass,
    /// The receive request that it uses up.
    pub(crate) recv: Option<RecvWqe>,
}

/// The terms on which the peer may send, as far as `modify_qp` has set them.
#[derive(Clone, Copy)]
pub(crate) struct ResponderTerms {
    /// The only queue pair that messages are taken from.
    pub(crate) source_qpn: u32,
    /// What the peer may do.
    pub(crate) access: AccessFlags,
    /// The time told in a receiver-not-ready NAK.
    pub(crate) rnr_timer: RnrTimer,
    /// RDMA reads and atomics that the peer may have outstanding; none at all if 0.
    pub(crate) max_dest_rd_atomic: u8,
}

/// The receiving side of a queue pair.
pub(crate) struct Responder {
    pub(crate) ring: RecvRing,
    pub(crate) terms: ResponderTerms,
    /// The number of the next packet.
    pub(crate) psn: Psn,
}

impl Responder {
    /// Decides whether `arrival` is served by `qp`, whose responder this is, and on which memory:
    /// that is put in `memory`. Never sleeps.
    pub(crate) fn accept(
        &mut self,
        qp: &Arc<Qp>,
        sender: &Sender<'_>,
        arrival: &Arrival<'_>,
        memory: &mut SpanList,
    ) -> Result<Served, Refusal> {
        let pass = Pass::ask(qp).ok_or(Refusal::Silence)?;
        let state = qp.state();
        if state.permits().inbound != Inbound::Accept
            || arrival.from != self.terms.source_qpn
            || arrival.psn != self.psn
        {
            return Err(Refusal::Silence);
        }
        if state == QpState::Rtr {
            qp.communication_established();
        }
        // What comes first in the order of a boundary, and has been taken away together with a key,
        // decides: then the message is not there any more, and nobody's fault.
        let gone = || sender.is_withdrawn() || pass.is_withdrawn();
        let recv = match self.place(qp, arrival, gone, memory) {
            Ok(recv) => recv,
            Err(refusal) => {
                memory.clear();
                return Err(refusal);
            }
        };
        Ok(Served { pass, recv })
    }

    /// Finds the memory of a message. Failing puts the queue pair into the error state, unless it is
    /// for want of a receive request or the message is `gone`.
    fn place(
        &mut self,
        qp: &Arc<Qp>,
        arrival: &Arrival<'_>,
        gone: impl Fn() -> bool,
        memory: &mut SpanList,
    ) -> Result<Option<RecvWqe>, Refusal> {
        let request = arrival.request;
        match request.op {
            Op::Send => {
                let wqe = self.oldest_receive(qp)?;
                if let Err(status) = self.scatter(qp, &wqe, arrival.length, memory) {
                    if gone() {
                        return Err(Refusal::Silence);
                    }
                    return Err(self.fail_recv(qp, &wqe, status).into());
                }
                return Ok(Some(wqe));
            }
            Op::Write { addr, rkey } => {
                self.permit(qp, Access::RemoteWrite)?;
                Self::find(qp, arrival, (rkey, addr), Access::RemoteWrite, gone, memory)?;
                if request.imm.is_some() {
                    return Ok(Some(self.oldest_receive(qp)?));
                }
            }
            Op::Read { addr, rkey } => {
                self.permit_fetch(qp, Access::RemoteRead)?;
                Self::find(qp, arrival, (rkey, addr), Access::RemoteRead, gone, memory)?;
            }
            Op::FetchAdd { addr, rkey, .. } | Op::CompareSwap { addr, rkey, .. } => {
                self.permit_fetch(qp, Access::RemoteAtomic)?;
                if addr % 8 != 0 {
                    return Err(Self::refuse(qp, Nak::InvalidRequest).into());
                }
                Self::find(
                    qp,
                    arrival,
                    (rkey, addr),
                    Access::RemoteAtomic,
                    gone,
                    memory,
                )?;
            }
        }
        Ok(None)
    }

    /// The receive request for a message that needs one.
    fn oldest_receive(&self, qp: &Qp) -> Result<RecvWqe, Nak> {
        self.ring.peek().ok_or_else(|| {
            qp.device().counters.rnr_naks.add(1);
            Nak::Rnr(self.terms.rnr_timer)
        })
    }

    /// Finds the buffers of a receive request, as far as a message of `length` bytes needs them.
    fn scatter(
        &self,
        qp: &Arc<Qp>,
        wqe: &RecvWqe,
        length: usize,
        memory: &mut SpanList,
    ) -> Result<(), Status> {
        if wqe.num_sge > qp.caps().max_recv_sge {
            return Err(Status::LocalQpOperation);
        }
        for index in 0..wqe.num_sge {
            let left = length - memory.left();
            if left == 0 {
                break;
            }
            let sge = self.ring.sge(index).ok_or(Status::LocalQpOperation)?;
            // CAST: widens.
            let wanted = min(left, sge.length as usize) as u64;
            if wanted == 0 {
                continue;
            }
            let span = qp
                .device()
                .keys
                .lookup(
                    sge.lkey,
                    qp.pd(),
                    sge.addr,
                    wanted,
                    Access::LocalWrite.into(),
                )
                .map_err(|_| Status::LocalProtection)?;
            if !memory.push(span) {
                return Err(Status::LocalQpOperation);
            }
        }
        if memory.left() == length {
            Ok(())
        } else {
            Err(Status::LocalLength)
        }
    }

    /// Checks that the peer may do this at all.
    fn permit(&self, qp: &Arc<Qp>, access: Access) -> Result<(), Nak> {
        let need = AccessFlags::from(access);
        if self.terms.access & need == need {
            Ok(())
        } else {
            Err(Self::refuse(qp, Nak::InvalidRequest))
        }
    }

    /// As [`Self::permit`], for operations that need a resource to answer from.
    fn permit_fetch(&self, qp: &Arc<Qp>, access: Access) -> Result<(), Nak> {
        if self.terms.max_dest_rd_atomic == 0 {
            return Err(Self::refuse(qp, Nak::InvalidRequest));
        }
        self.permit(qp, access)
    }

    /// Finds the memory that the peer names. A message of no bytes needs none (C9-88).
    fn find(
        qp: &Arc<Qp>,
        arrival: &Arrival<'_>,
        (rkey, addr): (u32, u64),
        access: Access,
        gone: impl Fn() -> bool,
        memory: &mut SpanList,
    ) -> Result<(), Refusal> {
        if arrival.length == 0 {
            return Ok(());
        }
        // CAST: widens.
        let length = arrival.length as u64;
        let keys = &qp.device().keys;
        let found = keys.lookup(rkey, qp.pd(), addr, length, access.into());
        if found.is_ok_and(|span| memory.push(span)) {
            Ok(())
        } else if gone() {
            Err(Refusal::Silence)
        } else {
            Err(Self::refuse(qp, Nak::RemoteAccess).into())
        }
    }

    /// Puts the queue pair into the error state for what its peer asked (C9-222.1).
    fn refuse(qp: &Arc<Qp>, nak: Nak) -> Nak {
        qp.fail(Some(match nak {
            Nak::RemoteAccess => QpEvent::AccessError,
            _ => QpEvent::RequestError,
        }));
        nak
    }

    /// Ends a receive request in error, and the queue pair with it. Returns what the peer is told.
    fn fail_recv(&mut self, qp: &Arc<Qp>, wqe: &RecvWqe, status: Status) -> Nak {
        self.ring.retire();
        qp.complete_recv(&recv_completion(wqe, qp.qpn(), status), false);
        qp.fail(None);
        if status == Status::LocalLength {
            Nak::InvalidRequest
        } else {
            Nak::RemoteOperation
        }
    }

    /// Ends the message `arrival` well: contract "Completed".
    pub(crate) fn finish(&mut self, qp: &Arc<Qp>, arrival: &Arrival<'_>, recv: Option<RecvWqe>) {
        self.psn = self.psn.add(arrival.packets);
        let Some(wqe) = recv else {
            return;
        };
        let request = arrival.request;
        let completion = Completion {
            opcode: match request.op {
                Op::Send => WC_RECV,
                _ => WC_RECV_RDMA_WITH_IMM,
            },
            // CAST: a message has at most 2^31 bytes.
            byte_len: arrival.length as u32,
            imm: request.imm.unwrap_or(0),
            wc_flags: if request.imm.is_some() {
                WC_WITH_IMM
            } else {
                0
            },
            src_qp: arrival.from,
            ..recv_completion(&wqe, qp.qpn(), Status::Success)
        };
        self.ring.retire();
        qp.complete_recv(&completion, request.solicited);
    }

    /// Ends a message whose memory on this side was taken away in the middle: contract "Faulted".
    /// Returns what the peer is told.
    pub(crate) fn fault(&mut self, qp: &Arc<Qp>, request: &Request, recv: Option<RecvWqe>) -> Nak {
        match (request.op, recv) {
            (Op::Send, Some(wqe)) => self.fail_recv(qp, &wqe, Status::LocalProtection),
            _ => Self::refuse(qp, Nak::RemoteAccess),
        }
    }

    /// Completes everything that is posted as flushed, in posting order; returns how much that was.
    pub(crate) fn flush(&mut self, qp: &Qp) -> u32 {
        // What a hostile program adds meanwhile is left for the next time.
        let pending = self.ring.pending();
        for done in 0..pending {
            let Some(wqe) = self.ring.peek() else {
                return done;
            };
            self.ring.retire();
            qp.complete_recv(&recv_completion(&wqe, qp.qpn(), Status::Flushed), false);
        }
        pending
    }
}

fn recv_completion(wqe: &RecvWqe, qpn: u32, status: Status) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        // CAST: the discriminants are the verbs numbers.
        status: status as u32,
        opcode: WC_RECV,
        qp_num: qpn,
        port_num: 1,
        ..Default::default()
    }
}
