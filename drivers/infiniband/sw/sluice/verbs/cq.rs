// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

#![forbid(unsafe_code)]

use super::Device;
use crate::{
    abstractions::{
        processor::Processor,
        rdma::{
            Arm,
            CqEvents,
            CqInit,
            Details,
            Mapping,
            UserCall, //
        },
        ring::{
            Completion,
            CompletionRing,
            RingPlace, //
        },
    },
    transport::lookout::Lookout,
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

/// The largest number of entries that can be asked for. Resizing copies them under a spinlock.
pub(crate) const MAX_CQE: u32 = (1 << 17) - 1;

/// So many requests posted without the consumer having taken a completion in between are a stream:
/// it does not wait for each request, but for the device to be free for more.
const STREAM: u32 = 8;

/// A completion does not fit in the queue, or an earlier one did not.
#[derive(Debug)]
pub(crate) struct Overrun;

struct State {
    ring: CompletionRing,
    /// Which completion raises the next event.
    armed: Option<Arm>,
    /// Set for good when a completion was lost.
    overrun: bool,
    /// Up to where the program had taken completions at the last doorbell.
    taken: u32,
    /// Requests posted since it has taken one.
    streak: u32,
    lookout: Lookout,
}

/// A completion queue.
#[pin_data]
pub(crate) struct Cq {
    device: Arc<Device>,
    events: CqEvents,
    #[pin]
    state: SpinLock<State>,
    /// The place of the ring; changes when the queue is resized, goes when it is destroyed.
    #[pin]
    place: Mutex<Option<Mapping>>,
}

impl Cq {
    /// Creates a completion queue and tells the program where it is.
    pub(super) fn new(
        device: &Arc<Device>,
        init: &CqInit,
        events: CqEvents,
        call: &mut UserCall<'_>,
    ) -> Result<(Arc<Self>, u32)> {
        let (ring, mapping) = Self::offer(init.cqe, call)?;
        let capacity = ring.capacity();
        let cq = Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                events,
                state <- new_spinlock!(
                    State {
                        ring,
                        armed: None,
                        overrun: false,
                        taken: 0,
                        streak: 0,
                        lookout: Lookout::default(),
                    },
                    "Cq::state"
                ),
                place <- new_mutex!(Some(mapping), "Cq::place"),
            }),
            GFP_KERNEL,
        )?;
        Ok((cq, capacity))
    }

    /// Makes a ring of at least `cqe` entries and tells the program where it is.
    fn offer(cqe: u32, call: &mut UserCall<'_>) -> Result<(CompletionRing, Mapping)> {
        if cqe == 0 || cqe > MAX_CQE {
            return Err(EINVAL);
        }
        let ring = CompletionRing::new(cqe)?;
        let mapping = call.map(ring.memory())?;
        call.respond(&RingPlace::of(&mapping)?)?;
        Ok((ring, mapping))
    }

    /// Changes the number of entries; completions that the program has not taken move along.
    ///
    /// # Errors
    ///
    /// `EINVAL` if these do not fit.
    pub(super) fn resize(&self, cqe: u32, call: &mut UserCall<'_>) -> Result<u32> {
        let mut place = self.place.lock();
        let (mut ring, mapping) = Self::offer(cqe, call)?;
        let capacity = ring.capacity();
        let mut state = self.state.lock();
        if state.ring.pending() > cqe {
            return Err(EINVAL);
        }
        state.ring.move_into(&mut ring)?;
        let old = core::mem::replace(&mut state.ring, ring);
        drop(state);
        *place = Some(mapping);
        drop(old);
        Ok(capacity)
    }

    /// Arms the queue; returns whether completions are waiting already.
    ///
    /// A queue that is armed for the next completion stays so (C11-31, C11-32).
    pub(super) fn arm(&self, arm: Arm) -> bool {
        let mut state = self.state.lock();
        if state.armed != Some(Arm::Next) {
            state.armed = Some(arm);
        }
        state.ring.pending() != 0
    }

    /// To be called at a doorbell with which `posted` requests wait that complete here; returns a
    /// processor to attend to them, if they are part of a stream and there is one. Any context.
    pub(crate) fn look_out(&self, posted: u32) -> Option<Processor> {
        let mut state = self.state.lock();
        let taken = state.ring.taken();
        if taken == state.taken {
            state.streak = state.streak.saturating_add(posted);
        } else {
            state.taken = taken;
            state.streak = posted;
        }
        if state.streak < STREAM {
            return None;
        }
        state.lookout.find()
    }

    /// Whether it was of use that a processor attended to a stream. Any context.
    pub(crate) fn learn(&self, of_use: bool) {
        self.state.lock().lookout.learn(of_use);
    }

    /// Appends a completion and raises the event if the queue is armed for it. `solicited` tells
    /// whether the completion is one that consumers wait for who wait for solicited ones only; one
    /// in error always is.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if there is no room, now or at any time before: completions have been lost.
    pub(crate) fn post(&self, completion: &Completion, solicited: bool) -> Result<(), Overrun> {
        let mut state = self.state.lock();
        if state.overrun || !state.ring.push(completion) {
            let first = !core::mem::replace(&mut state.overrun, true);
            drop(state);
            if first {
                self.device.counters.cq_overruns.add(1);
                self.events.error();
            }
            return Err(Overrun);
        }
        let wakes = match state.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => solicited || completion.status != 0,
        };
        if wakes {
            state.armed = None;
        }
        drop(state);
        if wakes {
            self.events.completion();
        }
        Ok(())
    }

    /// How the queue stands.
    pub(super) fn show(&self, details: &mut Details<'_>) -> Result {
        let state = self.state.lock();
        let entries = state.ring.capacity();
        let pending = state.ring.pending();
        let armed = match state.armed {
            None => c"no",
            Some(Arm::Next) => c"next",
            Some(Arm::Solicited) => c"solicited",
        };
        let overrun = state.overrun;
        drop(state);
        details.number(c"entries", entries.into())?;
        details.number(c"pending", pending.into())?;
        details.word(c"armed", armed)?;
        details.number(c"overrun", overrun.into())
    }

    /// No queue pair uses the queue any more.
    pub(super) fn destroy(&self) {
        drop(self.place.lock().take());
    }
}
