// SPDX-License-Identifier: GPL-2.0

//! A queue pair: its state, its gate, and the two sides that work behind it.
//!
//! # Locks
//!
//! In the order in which they are taken:
//!
//! 1. `control`: the control plane. Held through `modify_qp`, waiting included. Whoever takes that
//!    of several queue pairs does so in the order of their numbers, and that of regions after them.
//! 2. `requester` of a queue pair.
//! 3. `responder` of a queue pair: the own one or the peer's. A requester takes the peer's
//!    responder, never the reverse, and nobody holds two requesters or two responders.
//! 4. The lock of a completion queue.
//!
//! `attrs` is a lock for moments, under which no other one is taken; only a holder of `control`
//! changes what it guards.
//!
//! The state is an atomic. The control plane changes it under `control`; the engine alone may at any
//! time take it to ERR ([`Qp::fail`]), which only a holder of a pass does.

#![forbid(unsafe_code)]

use super::{
    attendance::Attendance,
    rc::{
        requester::{
            Next,
            Requester, //
        },
        responder::Responder,
    }, //
};
use crate::{
    abstractions::{
        processor::Processor,
        rdma::{
            Mapping,
            QpAttr,
            QpCaps,
            QpEvent,
            QpEvents,
            QpState, //
        },
        ring::Completion,
        signal::Signal,
        table::Published,
        turn::Turn,
        workqueue::{
            Run,
            Task, //
        },
    },
    engine::Quantum,
    observe::counters::Cuts,
    teardown::gate::{
        CloseMode,
        Gate, //
    },
    verbs::{
        Cq,
        Device,
        Pd, //
    },
    wire::qp_state::Post,
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// How soon a queue pair in the error state looks again for work requests to flush, at the least and
/// at the most. The user ABI has no doorbell for the receive queue, so nothing tells that one was
/// posted there; the longer there was none, the longer it takes to be noticed.
const FLUSH_POLL_MS: (u32, u32) = (20, 1000);

/// The task of a queue pair that sleeps off short waits.
const NAP: u64 = 1;

/// The task of a queue pair that attends to a stream.
const ATTEND: u64 = 2;

/// Waits below this are slept off, to the microsecond; a receiver that is not ready may ask for as
/// little as ten.
const SHORT_WAIT: Delta = Delta::from_millis(10);

/// Why the present life of a queue pair ends. The first cause is kept, but for the consumer's own
/// RESET and destroy, after which nothing is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Ending {
    /// It does not end.
    None = 0,
    /// Into the error state: what is posted completes as flushed.
    Error = 1,
    /// Into the reset state, or for good: what is posted is discarded.
    Silent = 2,
}

/// A reliable-connected queue pair.
#[pin_data]
pub(crate) struct Qp {
    device: Arc<Device>,
    pd: Arc<Pd>,
    qpn: u32,
    caps: QpCaps,
    signal_all: bool,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    events: QpEvents,
    state: AtomicU32,
    ending: AtomicU32,
    established: AtomicBool,
    /// Whether the workqueue is at the send ring, or is going to be.
    pub(super) attendance: Attendance,
    /// How many wait for the lock of the sending side to cut a message.
    hastened: AtomicU32,
    /// Whether this queue pair is counted in the device's `waiting`.
    waiting: AtomicBool,
    /// See [`FLUSH_POLL_MS`].
    flush_poll_ms: AtomicU32,
    gate: Gate,
    /// The transfers that were cut by its teardowns.
    cuts: Cuts,
    task: Task<Qp>,
    nap: Task<Qp, NAP>,
    attend: Task<Qp, ATTEND>,
    #[pin]
    pub(crate) control: Turn,
    #[pin]
    pub(crate) attrs: SpinLock<QpAttr>,
    #[pin]
    pub(crate) requester: Mutex<Requester>,
    #[pin]
    pub(crate) responder: Mutex<Responder>,
    /// What goes when the queue pair is destroyed, though others may still refer to it.
    #[pin]
    pub(crate) roots: Mutex<Option<Roots>>,
}

/// What makes a queue pair reachable; kept for what dropping it does.
pub(crate) struct Roots {
    /// Its number.
    pub(crate) entry: Published<Arc<Qp>>,
    /// Its rings, for the program.
    pub(crate) _rings: [Mapping; 2],
}

/// What a queue pair is created from.
pub(crate) struct QpParts {
    pub(crate) device: Arc<Device>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) qpn: u32,
    pub(crate) caps: QpCaps,
    pub(crate) signal_all: bool,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) events: QpEvents,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}

impl Qp {
    /// Creates a queue pair in the reset state. May sleep.
    pub(crate) fn new(parts: QpParts) -> Result<Arc<Self>> {
        let gate = Gate::new(Signal::new()?);
        let task = Task::new()?;
        let nap = Task::new()?;
        let attend = Task::new()?;
        Arc::pin_init(
            pin_init!(Self {
                device: parts.device,
                pd: parts.pd,
                qpn: parts.qpn,
                caps: parts.caps,
                signal_all: parts.signal_all,
                send_cq: parts.send_cq,
                recv_cq: parts.recv_cq,
                events: parts.events,
                state: AtomicU32::new(QpState::Reset.to_verbs()),
                ending: AtomicU32::new(Ending::None as u32),
                established: AtomicBool::new(false),
                attendance: Attendance::default(),
                hastened: AtomicU32::new(0),
                waiting: AtomicBool::new(false),
                flush_poll_ms: AtomicU32::new(FLUSH_POLL_MS.0),
                gate,
                cuts: Cuts::new(),
                task,
                nap,
                attend,
                control <- Turn::new(),
                attrs <- new_spinlock!(QpAttr::default(), "Qp::attrs"),
                requester <- new_mutex!(parts.requester, "Qp::requester"),
                responder <- new_mutex!(parts.responder, "Qp::responder"),
                roots <- new_mutex!(None, "Qp::roots"),
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    pub(crate) fn caps(&self) -> &QpCaps {
        &self.caps
    }

    pub(crate) fn signal_all(&self) -> bool {
        self.signal_all
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// The state at this instant.
    pub(crate) fn state(&self) -> QpState {
        // Only `to_verbs` numbers are ever stored.
        QpState::from_verbs(self.state.load(Ordering::Acquire)).unwrap_or(QpState::Err)
    }

    /// Enters `next`. For the control plane, which holds `control`.
    pub(crate) fn set_state(&self, next: QpState) {
        self.state.store(next.to_verbs(), Ordering::Release);
    }

    /// Enters `next` unless the engine has taken the queue pair elsewhere than `from` meanwhile.
    /// For the control plane, which holds `control`.
    pub(crate) fn advance_state(&self, from: QpState, next: QpState) -> Result {
        self.state
            .compare_exchange(
                from.to_verbs(),
                next.to_verbs(),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map(|_| ())
            .map_err(|_| EINVAL)
    }

    /// Says why this life ends.
    pub(crate) fn set_ending(&self, ending: Ending) {
        if ending == Ending::Error {
            let _ = self.ending.compare_exchange(
                Ending::None as u32,
                ending as u32,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        } else {
            self.ending.store(ending as u32, Ordering::Release);
            self.established.store(false, Ordering::Relaxed);
            self.flush_poll_ms.store(FLUSH_POLL_MS.0, Ordering::Relaxed);
        }
    }

    /// Enters the error state because of something that went wrong: contract section 4, last
    /// paragraph. Waits for nobody; the last holder of a pass has the queues flushed.
    ///
    /// To be called with a pass in hand, so that a teardown by the consumer is not over yet.
    pub(crate) fn fail(&self, event: Option<QpEvent>) {
        let entered = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                let alive = state != QpState::Reset.to_verbs() && state != QpState::Err.to_verbs();
                alive.then_some(QpState::Err.to_verbs())
            })
            .is_ok();
        if !entered {
            return;
        }
        self.set_ending(Ending::Error);
        self.gate.close(CloseMode::Cancel);
        if let Some(event) = event {
            self.events.async_event(event);
        }
    }

    /// The last holder of a pass has left the closed gate. A teardown that waits for that goes on
    /// after this call only, so what is queued here is still found by [`Self::stop_visits`].
    pub(super) fn drained(self: &Arc<Self>) {
        if self.fails() {
            self.kick(0);
        }
    }

    /// Whether this life ends in the error state. One that began to end there may still be reset.
    fn fails(&self) -> bool {
        self.ending.load(Ordering::Acquire) == Ending::Error as u32
    }

    /// Has the workqueue visit the queue pair, `delay_ms` milliseconds from now at the earliest.
    pub(crate) fn kick(self: &Arc<Self>, delay_ms: u32) {
        self.task.queue(&self.device.workqueue, self, delay_ms);
    }

    /// Cuts the message that is under way if it has to be cut and waits for a visit, so that a
    /// teardown does not have to wait for the turn of the queue pair. May sleep for a lock: somebody
    /// who is at it just now comes to the boundary by himself.
    ///
    /// For those who hold a lease on the queue pair's entry in the table: its destruction waits for
    /// them, and so finds the visit that may follow.
    pub(crate) fn hasten(self: &Arc<Self>) {
        self.hastened.fetch_add(1, Ordering::Relaxed);
        let requester = self.requester.lock();
        self.hastened.fetch_sub(1, Ordering::Relaxed);
        self.cut(requester);
    }

    /// As [`Self::hasten`], but does not wait for somebody who is at it just now: `false` if there is
    /// somebody.
    pub(crate) fn try_hasten(self: &Arc<Self>) -> bool {
        let Some(requester) = self.requester.try_lock() else {
            return false;
        };
        self.cut(requester);
        true
    }

    /// Cuts the message that is under way if it has to be cut.
    fn cut(self: &Arc<Self>, mut requester: MutexGuard<'_, Requester>) {
        if requester.has_to_cut() {
            let next = requester.run(self, &mut Quantum::none());
            self.visit_over(requester, next);
        }
    }

    /// To be called at a doorbell with which `posted` requests wait; returns a processor to attend to
    /// them, if there is one.
    pub(super) fn look_out(&self, posted: u32) -> Option<Processor> {
        self.send_cq.look_out(posted)
    }

    /// Whether it was of use that a processor attended to the send queue.
    pub(super) fn learn(&self, of_use: bool) {
        self.send_cq.learn(of_use);
    }

    /// Whether somebody waits for what a visit holds that has nothing to do: another queue pair for
    /// the processor, or a teardown for the lock.
    pub(super) fn is_waited_for(&self) -> bool {
        self.device.waiting.load(Ordering::Relaxed) != 0
            || self.hastened.load(Ordering::Relaxed) != 0
    }

    /// Says whether this queue pair waits for its turn.
    fn set_waiting(&self, waiting: bool) {
        match (self.waiting.swap(waiting, Ordering::Relaxed), waiting) {
            (false, true) => self.device.waiting.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.device.waiting.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    /// The queue pair that this one is connected to, or has been.
    pub(crate) fn dest_qpn(&self) -> u32 {
        self.requester.lock().terms.dest_qpn
    }

    /// Stops the visits of the workqueue, in the reset state. May sleep; not for the workqueue
    /// itself.
    pub(crate) fn stop_visits(&self) {
        // In the reset state, a visit has nothing to wait for; but one that began before may have
        // asked for a nap, and a nap ends with a visit.
        self.attend.cancel();
        self.task.cancel();
        self.nap.cancel();
        self.task.cancel();
        self.set_waiting(false);
    }

    /// A first message has come while this side does not send yet.
    pub(super) fn communication_established(&self) {
        if !self.established.swap(true, Ordering::Relaxed) {
            self.events.async_event(QpEvent::CommEstablished);
        }
    }

    /// The send queue has come to rest in the state SQD.
    pub(super) fn send_queue_drained(&self) {
        self.events.async_event(QpEvent::SqDrained);
    }

    /// Reports the end of a send request. A completion queue that has overrun is fatal.
    pub(super) fn complete_send(&self, completion: &Completion) {
        if self.send_cq.post(completion, false).is_err() {
            self.fail(Some(QpEvent::Fatal));
        }
    }

    /// Reports the end of a receive request; `solicited` wakes consumers that wait for solicited
    /// events only.
    pub(super) fn complete_recv(&self, completion: &Completion, solicited: bool) {
        if self.recv_cq.post(completion, solicited).is_err() {
            self.fail(Some(QpEvent::Fatal));
        }
    }

    /// The program has put work requests in the send ring.
    ///
    /// # Errors
    ///
    /// `EINVAL` in a state in which nothing may be posted; then nothing stays behind in the ring,
    /// though the library has written there already.
    pub(crate) fn doorbell(self: &Arc<Self>) -> Result {
        if self.state().permits().post_send == Post::Reject {
            let mut requester = self.requester.lock();
            // The state cannot get to where the ring counts without this lock.
            if self.state().permits().post_send == Post::Reject {
                requester.ring.discard();
                return Err(EINVAL);
            }
        }
        if self.attendance.is_attended() {
            return Ok(());
        }
        match self.requester.try_lock() {
            Some(mut requester) => {
                let next = requester.answer(self, &mut Quantum::doorbell());
                self.visit_over(requester, next);
            }
            // Whoever is at it may have looked at the ring for the last time already.
            None => self.kick(0),
        }
        Ok(())
    }

    /// Ends a visit: sees to what is to follow.
    ///
    /// The next visit is queued under the lock that this one was made under. So a teardown, which
    /// takes the lock once the state is RESET, finds what has been queued before and stops it, and
    /// nothing is queued after.
    fn visit_over(self: &Arc<Self>, requester: MutexGuard<'_, Requester>, next: Next) {
        let state = self.state();
        match state {
            QpState::Reset => (),
            QpState::Err => {
                self.attendance.end();
                self.set_waiting(false);
                self.kick(self.flush_poll_ms.load(Ordering::Relaxed));
            }
            _ => self.call(next),
        }
        drop(requester);
        if state == QpState::Err {
            self.flush();
        }
    }

    /// Has somebody make the visit that is to follow.
    fn call(self: &Arc<Self>, next: Next) {
        if !matches!(next, Next::Idle) {
            self.attendance.begin();
        }
        match next {
            Next::Idle => (),
            Next::Attend(cpu) => {
                self.set_waiting(true);
                self.attend.queue_on(&self.device.attendants, self, cpu);
            }
            Next::Again => {
                self.set_waiting(true);
                self.kick(0);
            }
            Next::After(wait) => {
                // A visit that was due is put off.
                self.set_waiting(false);
                // A workqueue counts in ticks; what is shorter than a few is slept off.
                if wait < SHORT_WAIT {
                    self.nap.queue(&self.device.naps, self, 0);
                } else {
                    // CAST: the longest wait, that of acknowledge timeout 31, has 24 bits of
                    // milliseconds.
                    self.kick(wait.as_millis_ceil() as u32);
                }
            }
        }
    }

    /// Completes all that is posted as flushed, if the queue pair is in the error state and no
    /// transfer is running any more (contract section 4, row "ERR"). May sleep.
    pub(crate) fn flush(&self) {
        let due = || self.state() == QpState::Err && self.fails() && self.gate.is_drained();
        let mut flushed = 0;
        let mut requester = self.requester.lock();
        if due() {
            flushed += requester.flush(self);
        }
        drop(requester);
        let mut responder = self.responder.lock();
        if due() {
            flushed += responder.flush(self);
        }
        drop(responder);
        let (least, most) = FLUSH_POLL_MS;
        let next = match flushed {
            0 => most.min(2 * self.flush_poll_ms.load(Ordering::Relaxed)),
            _ => least,
        };
        self.flush_poll_ms.store(next, Ordering::Relaxed);
    }

    /// Throws away all that is posted and whatever the sides remember of the connection (contract
    /// section 4, row "RESET"). May sleep.
    pub(crate) fn discard(&self) {
        let mut requester = self.requester.lock();
        // A visit that is still due finds nothing to do in the reset state.
        self.attendance.end();
        let mut discarded = requester.reset();
        drop(requester);
        discarded += self.responder.lock().ring.discard();
        self.device.counters.wrs_discarded.add(discarded.into());
    }
}

impl Run for Qp {
    fn run(self: Arc<Self>) {
        self.set_waiting(false);
        let mut requester = self.requester.lock();
        let next = requester.visit(&self, &mut Quantum::work());
        self.visit_over(requester, next);
    }
}

impl Run<ATTEND> for Qp {
    fn run(self: Arc<Self>) {
        self.set_waiting(false);
        let mut requester = self.requester.lock();
        let next = requester.attend(&self, &mut Quantum::work());
        self.visit_over(requester, next);
    }
}

impl Run<NAP> for Qp {
    fn run(self: Arc<Self>) {
        let wait = self.requester.lock().time_to_wait();
        if let Some(wait) = wait {
            fsleep(wait.min(SHORT_WAIT));
        }
        self.kick(0);
    }
}
