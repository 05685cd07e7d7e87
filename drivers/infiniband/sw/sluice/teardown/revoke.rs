// SPDX-License-Identifier: GPL-2.0

//! Taking a region away: contract sections 3 and 4, row "revoke".

#![forbid(unsafe_code)]

use super::{
    at_exit,
    drain::drain, //
};
use crate::{
    abstractions::{
        table::Published,
        trace::{
            self,
            Cause, //
        }, //
    },
    keys::Region,
    observe::waits::What,
    verbs::Device, //
};
use kernel::time::{
    Instant,
    Monotonic, //
};

/// Unpublishes `region`, whose key is `key`, waits until no transfer touches it any more, and
/// unpins its memory.
///
/// When this returns, not one byte of the region will be read or written under its key again
/// (invariant I1). Waits at most for the drain time-out and one burst per holder; does not wait
/// for an RCU grace period. May sleep.
pub(crate) fn revoke(region: Published<Region>, key: u32, device: &Device) {
    let policies = &device.policies;
    let counters = &device.counters;
    let mode = at_exit(policies.revoke());
    let what = trace::What::Region(key);
    trace::close_begin(
        &device.handle,
        what,
        mode,
        Cause::Deregister,
        region.holders(),
    );
    let start = Instant::<Monotonic>::now();
    let (_drained, outcome) = drain(&region, mode, policies.drain_timeout_ms(), || {
        // A region does not know who uses it. Whoever does and has to let go does so here.
        let mut next = 0;
        while let Some((qpn, qp)) = device.qps.lookup_from(next) {
            qp.hasten();
            next = qpn + 1;
        }
    });
    let waited = start.elapsed();
    device.waits.record(What::Region, waited);
    trace::close_end(
        &device.handle,
        what,
        region.closed_with().unwrap_or(mode),
        outcome.past_deadline,
        waited,
    );
    if outcome.waited {
        counters.revokes_waited.add(1);
    }
    if outcome.past_deadline {
        counters.drains_past_deadline.add(1);
    }
    drop(region.retire());
}
