// SPDX-License-Identifier: GPL-2.0

//! Taking a region away: contract sections 3 and 4, row "revoke".

#![forbid(unsafe_code)]

use super::{
    close_and_drain,
    drain::Closable, //
};
use crate::{
    abstractions::{
        table::Published,
        trace::{
            Cause,
            What, //
        },
    },
    keys::Region,
    transport::qp::Qp,
    verbs::Device, //
};
use kernel::sync::Arc;

/// Unpublishes `region`, whose key is `key`, waits until no transfer touches it any more, and
/// unpins its memory.
///
/// When this returns, not one byte of the region will be read or written under its key again
/// (invariant I1). Waits at most for the drain time-out and one burst per holder; does not wait
/// for an RCU grace period. May sleep.
pub(crate) fn revoke(region: Published<Region>, key: u32, device: &Device) {
    let (what, policy) = (What::Region(key), device.policies.revoke());
    let cause = Cause::Deregister;
    let (_drained, outcome) = close_and_drain(device, what, cause, &region, policy, || {
        hasten(&region, device);
    });
    if outcome.waited {
        device.counters.revokes_waited.add(1);
    }
    drop(region.retire());
}

/// How long those who are at work get to come to their boundary, in milliseconds.
const AT_WORK_MS: u32 = 1;

/// Brings those who still use `region`, which has been cancelled, to their boundary. May sleep.
pub(super) fn hasten(region: &Published<Region>, device: &Device) {
    // A region does not know who uses it, so all queue pairs are asked. Those at work come to their
    // boundary by themselves, and may have nothing to do with the region: to wait for one of them
    // would be to wait for its whole turn.
    let mut all_asked = true;
    ask(region, device, |qp| all_asked &= qp.try_hasten());
    if all_asked || region.wait_timeout(AT_WORK_MS).is_some() {
        return;
    }
    // One whose turn ended just then, between two boundaries, waits for the next one.
    ask(region, device, Qp::hasten);
}

/// Has `each` of the device's queue pairs let go, until nobody uses `region` any more.
fn ask(region: &Published<Region>, device: &Device, mut each: impl FnMut(&Arc<Qp>)) {
    let mut next = 0;
    while !region.is_drained() {
        let Some((qpn, qp)) = device.qps.lookup_from(next) else {
            break;
        };
        each(&qp);
        next = qpn + 1;
    }
}
