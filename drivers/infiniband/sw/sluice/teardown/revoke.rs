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
    verbs::Device, //
};

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

/// Brings those who still use `region`, which has been cancelled, to their boundary.
pub(super) fn hasten(region: &Published<Region>, device: &Device) {
    // A region does not know who uses it. Whoever does and has to let go does so here, until the
    // last one has.
    let mut next = 0;
    while !region.is_drained() {
        let Some((qpn, qp)) = device.qps.lookup_from(next) else {
            break;
        };
        qp.hasten();
        next = qpn + 1;
    }
}
