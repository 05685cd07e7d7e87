// SPDX-License-Identifier: GPL-2.0

//! Tearing down several things as one: contract section 8.
//!
//! A request is **prepared**: all that could be wrong with it is found, all the memory it takes is
//! allocated, and each of its objects is reserved, so that no other teardown is under way there.
//! Reserving waits for such a teardown; two requests reserve in the same order, so they do not wait
//! for each other. Up to here a refusal changes nothing. From the **commit** on, nothing can fail:
//! one step closes all the gates ([`Commit`]), then each [drains](drain_all) on its own, and what it
//! guarded is taken apart as soon as it has.
//!
//! [`Commit`]: super::commit::Commit

#![forbid(unsafe_code)]

use super::{
    drain::{
        drain_all,
        Closable,
        Closing,
        Job,
        Report, //
    },
    gate::{
        CloseMode,
        Drained, //
    },
    reset,
    revoke,
    tell_end, //
};
use crate::{
    abstractions::{
        rdma::{
            QpAttrMask,
            QpState,
            TeardownAction,
            TeardownObject,
            TeardownReason,
            TeardownRefusal,
            TeardownRequest,
            TeardownResult, //
        },
        table::Published,
        trace::{
            self,
            Cause,
            What, //
        },
        turn::Taken,
    },
    keys::Region,
    observe::counters::Cuts,
    transport::qp::{
        Ending,
        Qp, //
    },
    verbs::{
        Device,
        Mr,
        Sluice, //
    },
    wire::qp_state::check_modify,
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

type Action = TeardownAction<Sluice>;
type Object = TeardownObject<Sluice>;

impl Object {
    /// In which order objects are reserved; that of equal objects is equal.
    fn order(&self) -> (bool, u32) {
        match self {
            Self::Reset(qp) | Self::Error(qp) => (false, qp.qpn()),
            Self::Revoke(mr) => (true, mr.key()),
        }
    }

    /// Reserves the object for its teardown. May sleep.
    fn reserve(&self) -> Taken<'_> {
        match self {
            Self::Reset(qp) | Self::Error(qp) => qp.control.take(),
            Self::Revoke(mr) => mr.control.take(),
        }
    }

    /// Whether its state allows the teardown. To be asked when it is reserved: from then on the
    /// engine alone may change the state of a queue pair, to one that allows both.
    fn check(&self) -> Result<(), TeardownReason> {
        let (qp, next) = match self {
            Self::Reset(qp) => (qp, QpState::Reset),
            Self::Error(qp) => (qp, QpState::Err),
            Self::Revoke(_) => return Ok(()),
        };
        check_modify(qp.state(), next, QpAttrMask::STATE).map_err(|_| TeardownReason::State)
    }

    /// How its gate is closed by the policy of the device.
    fn policy(&self, device: &Device) -> CloseMode {
        match self {
            Self::Reset(_) | Self::Error(_) => device.policies.reset(),
            Self::Revoke(_) => device.policies.revoke(),
        }
    }
}

/// The teardown of one object, which is reserved.
enum Work<'a> {
    Reset(&'a Arc<Qp>),
    Error(&'a Arc<Qp>),
    Revoke(&'a Arc<Mr>, Published<Region>),
}

/// One that is under way.
struct Teardown<'a> {
    device: &'a Device,
    /// Which action of the request it is.
    action: usize,
    work: Work<'a>,
    /// How many transfers had been cut before, and how many bytes of them had landed.
    cut_before: (u64, u64),
}

impl<'a> Teardown<'a> {
    /// Does what comes before the gate is closed. `None` if there is nothing to tear down.
    fn begin(device: &'a Device, action: usize, object: &'a Object) -> Option<Self> {
        let work = match object {
            Object::Reset(qp) => {
                qp.set_ending(Ending::Silent);
                Work::Reset(qp)
            }
            Object::Error(qp) => {
                qp.set_ending(Ending::Error);
                Work::Error(qp)
            }
            Object::Revoke(mr) => Work::Revoke(mr, mr.take_region()?),
        };
        let cut_before = work.cuts().get();
        Some(Self {
            device,
            action,
            work,
            cut_before,
        })
    }
}

impl Work<'_> {
    /// What it is called in a trace.
    fn name(&self) -> (What, Cause) {
        match self {
            Self::Reset(qp) => (What::Qp(qp.qpn()), Cause::Reset),
            Self::Error(qp) => (What::Qp(qp.qpn()), Cause::Error),
            Self::Revoke(mr, _) => (What::Region(mr.key()), Cause::Revoke),
        }
    }

    fn cuts(&self) -> &Cuts {
        match self {
            Self::Reset(qp) | Self::Error(qp) => qp.cuts(),
            Self::Revoke(_, region) => region.cuts(),
        }
    }
}

impl Job for Teardown<'_> {
    type Done = (usize, TeardownResult);

    fn gate(&self) -> &dyn Closable {
        match &self.work {
            Work::Reset(qp) | Work::Error(qp) => qp.gate(),
            Work::Revoke(_, region) => region.gate(),
        }
    }

    fn hasten(&self) {
        match &self.work {
            Work::Reset(qp) | Work::Error(qp) => reset::hasten(qp),
            Work::Revoke(_, region) => revoke::hasten(region, self.device),
        }
    }

    fn finish(self, drained: Drained, report: Report) -> Self::Done {
        // As it is in the end; nothing has opened the gate again.
        let mode = self.gate().closed_with().unwrap_or(CloseMode::Cancel);
        let Self {
            device,
            action,
            work,
            cut_before,
        } = self;
        let (cut, landed) = work.cuts().get();
        let result = TeardownResult {
            report,
            cut: cut - cut_before.0,
            landed: landed - cut_before.1,
        };
        // CAST: no drain takes centuries.
        let waited = Delta::from_nanos(report.after_ns as i64);
        tell_end(device, work.name().0, mode, report.past_deadline, waited);
        match work {
            Work::Reset(qp) => reset::enter_reset(qp, drained),
            Work::Error(qp) => {
                reset::enter_error(qp, drained);
                // It looks for what is posted from now on.
                qp.kick(0);
            }
            Work::Revoke(mr, region) => {
                if report.waited {
                    device.counters.revokes_waited.add(1);
                }
                let (region, slot) = region.vacate();
                drop(region);
                mr.keep_key(slot);
            }
        }
        (action, result)
    }
}

/// Refuses a request because of one of its actions.
fn refuse(action: usize, reason: TeardownReason) -> TeardownRefusal {
    TeardownRefusal::of_action(action, reason)
}

/// The actions in the order in which their objects are reserved.
fn in_order(actions: &[Action]) -> Result<KVVec<usize>, TeardownRefusal> {
    let mut order = KVVec::with_capacity(actions.len(), GFP_KERNEL)?;
    for action in 0..actions.len() {
        order.push(action, GFP_KERNEL)?;
    }
    order.sort_unstable_by_key(|&action| (actions[action].object.order(), action));
    for pair in order.windows(2) {
        if actions[pair[0]].object.order() == actions[pair[1]].object.order() {
            return Err(refuse(pair[1], TeardownReason::Duplicate));
        }
    }
    Ok(order)
}

/// Carries out `request`, or refuses it and changes nothing. May sleep; bounded by the time that
/// drains are given, one burst for each holder, and teardowns of the same objects that have begun
/// before.
///
/// # Errors
///
/// Which action cannot be carried out, and why.
pub(crate) fn run(
    device: &Arc<Device>,
    request: &TeardownRequest<Sluice>,
) -> Result<KVVec<TeardownResult>, TeardownRefusal> {
    let actions = &request.actions[..];
    // A drain that was asked for in so many words is not cut for the sake of others.
    let insists = |action: &Action| action.close == Some(CloseMode::Drain);
    if let Some(at) = actions.iter().position(insists).filter(|_| request.grouped) {
        return Err(refuse(at, TeardownReason::Completion));
    }
    let order = in_order(actions)?;
    let mut results = KVVec::with_capacity(actions.len(), GFP_KERNEL)?;
    for _ in actions {
        results.push(TeardownResult::NOTHING, GFP_KERNEL)?;
    }
    let mut turns = KVVec::with_capacity(actions.len(), GFP_KERNEL)?;
    let mut closings = KVVec::with_capacity(actions.len(), GFP_KERNEL)?;
    for &action in &order {
        if !request.check_only {
            turns.push(actions[action].object.reserve(), GFP_KERNEL)?;
        }
        let state = actions[action].object.check();
        state.map_err(|reason| refuse(action, reason))?;
    }
    if request.check_only {
        return Ok(results);
    }

    let allowed_ms = device.policies.drain_timeout_ms();
    for &action in &order {
        let Action {
            object,
            close,
            timeout_ms,
        } = &actions[action];
        let Some(teardown) = Teardown::begin(device, action, object) else {
            continue;
        };
        let mode = close.unwrap_or_else(|| object.policy(device));
        let timeout_ms = match *timeout_ms {
            0 => allowed_ms,
            own => own.min(allowed_ms),
        };
        let closing = Closing::new(teardown, mode, timeout_ms);
        tell_begin(device, &closing);
        // There is room for all, so this does not fail.
        closings.push(closing, GFP_KERNEL)?;
    }
    device
        .commit
        .all(|| closings.iter_mut().for_each(Closing::close));
    let start = Instant::<Monotonic>::now();
    // CAST: time does not go back.
    let clock = || start.elapsed().as_nanos() as u64;
    drain_all(&mut closings, request.grouped, clock);

    for closing in closings {
        if let Some((action, result)) = closing.into_done() {
            results[action] = result;
        }
    }
    Ok(results)
}

/// Leaves word that a gate is about to be closed.
fn tell_begin(device: &Device, closing: &Closing<Teardown<'_>>) {
    let Some(teardown) = closing.job() else {
        return;
    };
    let (what, cause) = teardown.work.name();
    let (mode, holders) = (closing.mode(), teardown.gate().holders());
    trace::close_begin(&device.handle, what, mode, cause, holders);
}
