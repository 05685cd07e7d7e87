// SPDX-License-Identifier: GPL-2.0

//! The completer: turns the outcome of a request into a completion, another attempt, or the end.

#![forbid(unsafe_code)]

use super::{
    request::{
        send_completion,
        Status,
        Ticket, //
    },
    requester::{
        Next,
        Requester,
        Step,
        Wait, //
    },
    responder::{
        Nak,
        Refusal, //
    },
};
use crate::transport::{
    pass::Pass,
    qp::Qp, //
};
use kernel::{
    sync::Arc,
    time::{
        Delta,
        Instant, //
    }, //
};

/// The retry count that stands for "without end".
const RNR_RETRY_FOREVER: u8 = 7;

/// How an attempt at a request has gone.
pub(super) enum Outcome {
    /// All bytes have been moved, and the peer says so.
    Done { bytes: u32, signaled: bool },
    /// It failed on this side, for good.
    Failed(Status),
    /// The peer did not serve it.
    Refused(Refusal),
    /// The queue pair is being torn down; what becomes of the request is for the teardown to say.
    Torn,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Requester {
    /// Concludes an attempt at the oldest request, whose `ticket` this is.
    pub(super) fn settle(&mut self, qp: &Arc<Qp>, ticket: Ticket, outcome: Outcome) -> Step {
        let status = match outcome {
            Outcome::Done { bytes, signaled } => {
                self.forget_retries();
                self.ring.retire();
                if signaled {
                    qp.complete_send(&send_completion(ticket, qp.qpn(), Status::Success, bytes));
                }
                return Step::Continue;
            }
            Outcome::Torn => return Step::Stop(Next::Idle),
            Outcome::Failed(status) => status,
            Outcome::Refused(Refusal::Silence) => return self.unanswered(),
            Outcome::Refused(Refusal::Nak(nak)) => {
                self.retries_used = 0;
                match nak {
                    Nak::Rnr(timer) if self.may_retry_rnr() => {
                        // CAST: the longest time has 30 bits.
                        return self.wait_for(Some(timer.ns() as i64), None);
                    }
                    Nak::Rnr(_) => Status::RnrRetryExceeded,
                    Nak::InvalidRequest => Status::RemoteInvalidRequest,
                    Nak::RemoteAccess => Status::RemoteAccess,
                    Nak::RemoteOperation => Status::RemoteOperation,
                }
            }
        };
        self.fail(qp, ticket, status)
    }

    /// Ends the oldest request in error, and this life of the queue pair with it.
    fn fail(&mut self, qp: &Arc<Qp>, ticket: Ticket, status: Status) -> Step {
        let counters = &qp.device().counters;
        match status {
            Status::RetryExceeded => counters.retries_exceeded.add(1),
            Status::LocalQpOperation | Status::LocalLength => counters.bad_wqes.add(1),
            _ => (),
        }
        // A failure may be found before the transfer starts, with no pass in hand.
        let pass = Pass::ask(qp);
        self.ring.retire();
        qp.complete_send(&send_completion(ticket, qp.qpn(), status, 0));
        qp.fail(None);
        drop(pass);
        Step::Stop(Next::Idle)
    }

    /// Whether a receiver that is not ready may be asked once more.
    fn may_retry_rnr(&mut self) -> bool {
        if self.terms.rnr_retry == RNR_RETRY_FOREVER {
            return true;
        }
        let more = self.rnr_retries_used < self.terms.rnr_retry;
        self.rnr_retries_used = self.rnr_retries_used.saturating_add(1);
        more
    }

    /// The peer does not answer: wait for the time-out, then try again or give up.
    fn unanswered(&mut self) -> Step {
        self.forget_peer();
        let give_up = if self.retries_used < self.terms.retry_cnt {
            self.retries_used += 1;
            None
        } else {
            Some(Status::RetryExceeded)
        };
        // CAST: the longest time has 43 bits.
        self.wait_for(self.terms.timeout.ns().map(|ns| ns as i64), give_up)
    }

    fn wait_for(&mut self, ns: Option<i64>, give_up: Option<Status>) -> Step {
        self.wait = Some(Wait {
            until: ns.map(|ns| Instant::now() + Delta::from_nanos(ns)),
            give_up,
        });
        // The next step finds out how long the wait is.
        Step::Continue
    }

    /// Completes all that is posted as flushed, in posting order; returns how much that was.
    pub(crate) fn flush(&mut self, qp: &Qp) -> u32 {
        self.wait = None;
        // What a hostile program adds meanwhile is left for the next time.
        let pending = self.ring.pending();
        for done in 0..pending {
            let Some(wqe) = self.ring.peek() else {
                return done;
            };
            self.ring.retire();
            qp.complete_send(&send_completion(
                (&wqe).into(),
                qp.qpn(),
                Status::Flushed,
                0,
            ));
        }
        pending
    }
}
