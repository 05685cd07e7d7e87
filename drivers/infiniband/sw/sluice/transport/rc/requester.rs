// SPDX-License-Identifier: GPL-2.0

//! The requester: takes work requests from the send ring and carries them out, one after another.
//!
//! Runs in the context of a doorbell or of the workqueue, under the lock of the queue pair's
//! sending side; a visit is limited by its [`Quantum`].

#![forbid(unsafe_code)]

use super::{
    completer::Outcome,
    request::{
        Limits,
        Op,
        Request,
        Status,
        Ticket, //
    },
    responder::{
        Arrival,
        Refusal,
        Responder,
        Sender,
        Served, //
    },
};
use crate::{
    abstractions::{
        processor,
        processor::Processor,
        rdma::{
            Access,
            AccessFlags,
            QpState, //
        },
        ring::{
            RecvWqe,
            SendRing,
            SendWqe, //
        },
        trace,
    },
    engine::{
        Cut,
        Direction,
        Quantum,
        Transfer, //
    },
    keys::SpanList,
    teardown::hold::Target,
    transport::{
        pass::Pass,
        path::local,
        qp::Qp, //
    },
    wire::{
        mtu::PathMtu,
        psn::Psn,
        timers::AckTimeout, //
    },
};
use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// A message has at most 2^31 bytes (C9-94).
const MAX_MESSAGE: usize = 1 << 31;

/// How often a message that is parked on purpose looks whether it has to be cut, so that nothing can
/// be held up by it for long that nobody hastens.
const HOLD_POLL: Delta = Delta::from_millis(20);

/// How long an attendant waits for a stream to go on before it leaves it to its doorbells again;
/// a multiple of what a program needs to post one more.
const LINGER: Delta = Delta::from_micros(20);

/// What is to follow a visit.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    /// Nothing, until something is posted.
    Idle,
    /// More is about to be posted, and this processor is to [attend](Requester::attend).
    Attend(Processor),
    /// Another visit, after those of other queue pairs.
    Again,
    /// Another visit after this time.
    After(Delta),
}

/// What is to follow a step.
pub(super) enum Step {
    /// Another step.
    Continue,
    /// The end of the visit.
    Stop(Next),
}

/// The terms on which this side sends, as far as `modify_qp` has set them.
#[derive(Clone, Copy)]
pub(crate) struct RequesterTerms {
    /// The queue pair that messages go to.
    pub(crate) dest_qpn: u32,
    /// Whether it is reached within this device.
    pub(crate) is_local: bool,
    pub(crate) path_mtu: PathMtu,
    /// How long to wait for an answer.
    pub(crate) timeout: AckTimeout,
    /// How often to try again for want of an answer.
    pub(crate) retry_cnt: u8,
    /// How often to try again when the peer is not ready; 7 means without end.
    pub(crate) rnr_retry: u8,
    /// RDMA reads and atomics that may be outstanding; none at all if 0.
    pub(crate) max_rd_atomic: u8,
}

/// Why the oldest request has to wait.
pub(super) struct Wait {
    /// Until when; for ever if `None`.
    pub(super) until: Option<Instant<Monotonic>>,
    /// How the request ends then; if `None` it is tried again.
    pub(super) give_up: Option<Status>,
}

/// The oldest request, while its bytes move.
struct Active {
    ticket: Ticket,
    request: Request,
    recv: Option<RecvWqe>,
    length: usize,
    transfer: Transfer,
}

/// The scatter/gather lists of the two sides of a transfer.
struct Lists {
    local: SpanList,
    remote: SpanList,
}

/// The sending side of a queue pair.
pub(crate) struct Requester {
    pub(crate) ring: SendRing,
    pub(crate) terms: RequesterTerms,
    /// The number of the next packet.
    pub(crate) psn: Psn,
    /// Whether to tell the consumer when the send queue has come to rest in the state SQD.
    pub(crate) tell_drained: bool,
    limits: Limits,
    peer: Option<Arc<Qp>>,
    /// Whether the peer did not answer in the visit that is going on.
    peer_is_silent: bool,
    lists: KBox<Lists>,
    active: Option<Active>,
    pub(super) wait: Option<Wait>,
    pub(super) retries_used: u8,
    pub(super) rnr_retries_used: u8,
}

impl Requester {
    /// A sending side that empties `ring`. May sleep.
    pub(crate) fn new(ring: SendRing, terms: RequesterTerms, limits: Limits) -> Result<Self> {
        Ok(Self {
            ring,
            terms,
            psn: Psn::new(0),
            tell_drained: false,
            limits,
            peer: None,
            peer_is_silent: false,
            lists: KBox::new(
                Lists {
                    local: SpanList::new(),
                    remote: SpanList::new(),
                },
                GFP_KERNEL,
            )?,
            active: None,
            wait: None,
            retries_used: 0,
            rnr_retries_used: 0,
        })
    }

    /// Forgets the connection and all that is posted; returns how many requests that were.
    pub(crate) fn reset(&mut self) -> u32 {
        self.drop_active();
        self.peer = None;
        self.wait = None;
        self.tell_drained = false;
        self.forget_retries();
        self.ring.discard()
    }

    /// Whether a message is on its way that has to be cut at the boundary that it has come to.
    pub(crate) fn has_to_cut(&self) -> bool {
        self.active.as_ref().is_some_and(|active| {
            let Lists { local, remote } = &*self.lists;
            active.transfer.boundary(local, remote).is_err()
        })
    }

    /// Whether a message is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.active.is_some()
    }

    /// The visit of the workqueue: works until there is nothing to do, or the quantum is used up. May
    /// sleep for a lock. What is posted meanwhile needs no doorbell.
    ///
    /// The caller sees to what is to follow.
    pub(crate) fn visit(&mut self, qp: &Arc<Qp>, quantum: &mut Quantum) -> Next {
        qp.attendance.begin();
        loop {
            let next = self.run(qp, quantum);
            if !matches!(next, Next::Idle) || qp.attendance.leave(|| self.has_work(qp)) {
                return next;
            }
            if quantum.is_used_up() {
                return Next::Again;
            }
        }
    }

    /// The visit of an attendant: as [`Self::visit`], and stays with the stream for as long as it
    /// goes on, nobody else waits, and the quantum lasts.
    pub(crate) fn attend(&mut self, qp: &Arc<Qp>, quantum: &mut Quantum) -> Next {
        qp.attendance.begin();
        let mut goes_on = false;
        loop {
            let next = self.run(qp, quantum);
            let is_over = quantum.is_used_up();
            // Looking counts, or a program could have it look for ever.
            if matches!(next, Next::Idle) && !is_over && self.linger(qp) {
                quantum.use_request();
                goes_on = true;
                continue;
            }
            let of_use = (goes_on || quantum.was_worthwhile()) && processor::is_alone();
            let next = match next {
                Next::Idle | Next::Again if is_over && of_use => Next::Attend(Processor::current()),
                Next::Idle if qp.attendance.leave(|| self.has_work(qp)) => Next::Idle,
                Next::Idle if is_over => Next::Again,
                Next::Idle => {
                    quantum.use_request();
                    goes_on = true;
                    continue;
                }
                next => next,
            };
            // To leave because somebody else waits says nothing about the stream.
            if of_use || !qp.is_waited_for() {
                qp.learn(of_use);
            }
            return next;
        }
    }

    /// Waits for a stream to go on; returns whether it does. Busily, as it is a matter of a
    /// microsecond.
    fn linger(&mut self, qp: &Qp) -> bool {
        let start = Instant::<Monotonic>::now();
        loop {
            if self.has_work(qp) {
                return true;
            }
            let goes_on = qp.state() == QpState::Rts
                && self.wait.is_none()
                && !qp.gate().is_closed()
                && !qp.is_waited_for()
                && processor::is_alone()
                && start.elapsed() < LINGER;
            if !goes_on {
                return false;
            }
            cpu_relax();
        }
    }

    /// Whether there is a message to start.
    fn has_work(&mut self, qp: &Qp) -> bool {
        self.rest(qp).is_none() && !qp.gate().is_closed()
    }

    /// The visit of a doorbell: as [`Self::run`], unless what is posted is a stream and there is
    /// another processor to attend to it, so that the program has but to post.
    pub(crate) fn answer(&mut self, qp: &Arc<Qp>, quantum: &mut Quantum) -> Next {
        if let Some(next) = self.pause(qp) {
            return next;
        }
        if !qp.gate().is_closed() {
            if let Some(processor) = qp.look_out(self.ring.pending()) {
                return Next::Attend(processor);
            }
        }
        self.work(qp, quantum)
    }

    /// Works until there is nothing to do, or the quantum is used up. May sleep for a lock.
    ///
    /// The caller sees to what is to follow.
    pub(crate) fn run(&mut self, qp: &Arc<Qp>, quantum: &mut Quantum) -> Next {
        match self.pause(qp) {
            Some(next) => next,
            None => self.work(qp, quantum),
        }
    }

    /// As [`Self::run`], with something to do.
    fn work(&mut self, qp: &Arc<Qp>, quantum: &mut Quantum) -> Next {
        // Taken out for the visit, and remembered for the next one unless it fails to answer.
        let peer = self.peer.take().or_else(|| self.find_peer(qp));
        let next = self.serve(qp, peer.as_ref(), quantum);
        if !core::mem::take(&mut self.peer_is_silent) {
            self.peer = peer;
        }
        next
    }

    /// Works until there is nothing to do, or the quantum is used up, with `peer` locked.
    fn serve(&mut self, qp: &Arc<Qp>, peer: Option<&Arc<Qp>>, quantum: &mut Quantum) -> Next {
        let mut responder = peer.map(|peer| peer.responder.lock());
        loop {
            let other = peer.zip(responder.as_deref_mut());
            if let Step::Stop(next) = self.step(qp, other, quantum) {
                return next;
            }
            if let Some(next) = self.pause(qp) {
                return next;
            }
            if quantum.is_used_up() {
                return Next::Again;
            }
        }
    }

    /// Whether no message is on its way and there is no reason to start one, and what is to follow
    /// then.
    fn pause(&mut self, qp: &Qp) -> Option<Next> {
        match self.active {
            Some(_) => None,
            None => self.rest(qp),
        }
    }

    /// Whether there is no reason to start a message now, and what is to follow then.
    fn rest(&mut self, qp: &Qp) -> Option<Next> {
        match qp.state() {
            QpState::Rts => (),
            QpState::Sqd => {
                if core::mem::take(&mut self.tell_drained) {
                    qp.send_queue_drained();
                }
                return Some(Next::Idle);
            }
            _ => return Some(Next::Idle),
        }
        if self.wait.as_ref().is_some_and(|wait| wait.until.is_none()) {
            return Some(Next::Idle);
        }
        if let Some(left) = self.time_to_wait() {
            return Some(Next::After(left));
        }
        (self.ring.pending() == 0).then_some(Next::Idle)
    }

    /// How long the oldest request has still to wait, if it has to and there is an end to it.
    pub(crate) fn time_to_wait(&self) -> Option<Delta> {
        let left = self.wait.as_ref()?.until? - Instant::now();
        (left > Delta::ZERO).then_some(left)
    }

    /// Looks up the peer, if there is a path to it.
    fn find_peer(&self, qp: &Qp) -> Option<Arc<Qp>> {
        if !self.terms.is_local {
            return None;
        }
        local::find_peer(qp, self.terms.dest_qpn)
    }

    /// Has the peer looked up again for the next message, as the way to it is another one now. One
    /// that is under way ends on the old one.
    pub(crate) fn path_changed(&mut self) {
        if self.active.is_none() {
            self.peer = None;
        }
    }

    /// Has the peer looked up again before the next attempt.
    pub(super) fn forget_peer(&mut self) {
        self.peer_is_silent = true;
    }

    pub(super) fn forget_retries(&mut self) {
        self.retries_used = 0;
        self.rnr_retries_used = 0;
    }

    /// Carries the oldest request on: starts it, moves its bytes as far as the quantum goes, and
    /// ends it after the last.
    fn step(
        &mut self,
        qp: &Arc<Qp>,
        mut other: Option<(&Arc<Qp>, &mut Responder)>,
        quantum: &mut Quantum,
    ) -> Step {
        let mut active = match self.active.take() {
            Some(active) => active,
            None => {
                let Some(wqe) = self.ring.peek() else {
                    return Step::Stop(Next::Idle);
                };
                let ticket = Ticket::from(&wqe);
                quantum.use_request();
                if let Some(status) = self.wait.take().and_then(|wait| wait.give_up) {
                    return self.settle(qp, ticket, Outcome::Failed(status));
                }
                let peer = other
                    .as_mut()
                    .map(|(qp, responder)| (*qp, &mut **responder));
                match self.start(qp, &wqe, peer) {
                    Ok(active) => active,
                    Err(outcome) => {
                        self.drop_active();
                        return self.settle(qp, ticket, outcome);
                    }
                }
            }
        };
        let Lists { local, remote } = &mut *self.lists;
        let mut end = Ok(());
        while !active.transfer.is_complete() && end.is_ok() {
            end = match active.transfer.boundary(local, remote) {
                Err(cut) => Err(cut),
                Ok(_) if quantum.is_used_up() => {
                    self.active = Some(active);
                    return Step::Stop(Next::Again);
                }
                Ok(_) if Self::is_held(qp, &active, local, remote) => {
                    self.active = Some(active);
                    return Step::Stop(Next::After(HOLD_POLL));
                }
                Ok(cleared) => active
                    .transfer
                    .burst(cleared, local, remote, &self.ring, quantum),
            };
        }
        self.finish(qp, other, &active, end)
    }

    /// Whether the active message has to stand at the boundary that it has come to.
    fn is_held(qp: &Qp, active: &Active, local: &SpanList, remote: &SpanList) -> bool {
        let holds = &qp.device().holds;
        if !holds.any() {
            return false;
        }
        let (boundary, landed) = active.transfer.position();
        holds.stops(qp.qpn(), boundary, landed, |target| match target {
            Target::Qp(qpn) => qpn == qp.qpn(),
            Target::Key(key) => local.uses(key) || remote.uses(key),
            Target::Op(kind) => kind == active.request.op.into(),
        })
    }

    /// Validates a request, gathers its memory, and has the peer accept it.
    fn start(
        &mut self,
        qp: &Arc<Qp>,
        wqe: &SendWqe,
        other: Option<(&Arc<Qp>, &mut Responder)>,
    ) -> Result<Active, Outcome> {
        let own = Pass::ask(qp).ok_or(Outcome::Torn)?;
        if qp.state() != QpState::Rts {
            return Err(Outcome::Torn);
        }
        let ticket = Ticket::from(wqe);
        let request = Request::new(wqe, &self.limits)?;
        let length = self.gather(qp, &request).map_err(|status| {
            // What has not started is for the teardown of the queue pair to end, if there is one.
            if own.is_withdrawn() {
                Outcome::Torn
            } else {
                status.into()
            }
        })?;
        let (peer, responder) = other.ok_or(Outcome::Refused(Refusal::Silence))?;
        let arrival = self.arrival(qp, &request, length);
        let Lists { local, remote } = &mut *self.lists;
        let sender = Sender { pass: &own, local };
        let served = responder.accept(peer, &sender, &arrival, remote);
        let Served { pass, recv } = served.map_err(|refusal| {
            if own.is_withdrawn() {
                Outcome::Torn
            } else if local.is_withdrawn() && !peer.gate().is_closed() {
                Outcome::Failed(Status::LocalProtection)
            } else {
                refusal.into()
            }
        })?;
        let direction = match request.op {
            Op::Read { .. } => Direction::In,
            Op::FetchAdd { add, .. } => Direction::FetchAdd { add },
            Op::CompareSwap { compare, swap, .. } => Direction::CompareSwap { compare, swap },
            Op::Send | Op::Write { .. } if request.inline.is_some() => Direction::OutInline,
            Op::Send | Op::Write { .. } => Direction::Out,
        };
        let burst = qp.device().policies.burst_bytes();
        trace::transfer_start(
            &qp.device().handle,
            self.names(qp, ticket),
            request.op.into(),
            length,
        );
        Ok(Active {
            ticket,
            request,
            recv,
            length,
            transfer: Transfer::new(own, pass, direction, length, burst),
        })
    }

    /// By what a request is recognised in a trace.
    fn names(&self, qp: &Qp, ticket: Ticket) -> trace::Names {
        trace::Names {
            qpn: qp.qpn(),
            peer: self.terms.dest_qpn,
            wr_id: ticket.wr_id,
        }
    }

    /// How a request presents itself to the peer.
    fn arrival<'a>(&self, qp: &Qp, request: &'a Request, length: usize) -> Arrival<'a> {
        Arrival {
            request,
            from: qp.qpn(),
            psn: self.psn,
            // CAST: `gather` has checked that a message has at most 2^31 bytes.
            packets: self.terms.path_mtu.packets(length as u32),
            length,
        }
    }

    /// Finds the memory of a request on this side; returns the length of the message in bytes.
    fn gather(&mut self, qp: &Qp, request: &Request) -> Result<usize, Status> {
        if request.op.lands_here() && self.terms.max_rd_atomic == 0 {
            return Err(Status::LocalQpOperation);
        }
        if let Some(length) = request.inline {
            // CAST: widens.
            return Ok(length as usize);
        }
        let need = if request.op.lands_here() {
            Access::LocalWrite.into()
        } else {
            AccessFlags::empty()
        };
        let local = &mut self.lists.local;
        for index in 0..request.num_sge {
            let sge = self.ring.sge(index).ok_or(Status::LocalQpOperation)?;
            if sge.length == 0 {
                continue;
            }
            let span = qp
                .device()
                .keys
                .lookup(sge.lkey, qp.pd(), sge.addr, sge.length.into(), need)
                .map_err(|_| Status::LocalProtection)?;
            if !local.push(span) {
                return Err(Status::LocalQpOperation);
            }
        }
        let length = local.left();
        let fits = if request.op.is_atomic() {
            length == 8
        } else {
            length <= MAX_MESSAGE
        };
        if fits {
            Ok(length)
        } else {
            Err(Status::LocalLength)
        }
    }

    /// Ends a message at both ends.
    fn finish(
        &mut self,
        qp: &Arc<Qp>,
        other: Option<(&Arc<Qp>, &mut Responder)>,
        active: &Active,
        end: Result<(), Cut>,
    ) -> Step {
        let Lists { local, remote } = &mut *self.lists;
        active
            .transfer
            .count_end(end, local, remote, &qp.device().counters);
        local.clear();
        remote.clear();
        trace::transfer_end(
            &qp.device().handle,
            self.names(qp, active.ticket),
            end.into(),
            active.transfer.position().1,
            active.length,
        );
        if qp.device().holds.any() {
            qp.device().holds.forget(qp.qpn());
        }
        // An active transfer holds a pass of the peer, which therefore exists and is remembered.
        let Some((peer, responder)) = other else {
            return self.settle(qp, active.ticket, Outcome::Refused(Refusal::Silence));
        };
        let outcome = match end {
            Ok(()) => {
                let arrival = self.arrival(qp, &active.request, active.length);
                let packets = arrival.packets;
                responder.finish(peer, &arrival, active.recv);
                self.psn = self.psn.add(packets);
                Outcome::Done {
                    // CAST: a message has at most 2^31 bytes.
                    bytes: active.length as u32,
                    signaled: active.request.signaled,
                }
            }
            Err(Cut::OwnQp) => Outcome::Torn,
            Err(Cut::PeerQp) => Outcome::Refused(Refusal::Silence),
            Err(Cut::LocalKey) => Outcome::Failed(Status::LocalProtection),
            Err(Cut::RemoteKey) => Outcome::Refused(Refusal::Nak(responder.fault(
                peer,
                &active.request,
                active.recv,
            ))),
        };
        // The passes in `active` outlive the completions, which the caller sees to: a teardown of
        // either queue pair returns only after these are in their queues.
        self.settle(qp, active.ticket, outcome)
    }

    fn drop_active(&mut self) {
        self.active = None;
        self.lists.local.clear();
        self.lists.remote.clear();
    }
}
