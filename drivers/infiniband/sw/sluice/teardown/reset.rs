// SPDX-License-Identifier: GPL-2.0

//! Taking a queue pair out of work: contract sections 3 and 4, rows "RESET", "ERR" and "destroy".
//!
//! The caller holds the lock of the control plane, `Qp::control`, or is the only one left, so there
//! is one teardown of a queue pair at a time. None of them fails, and all are bounded by the drain
//! time-out and one burst per holder (invariant I5). All may sleep.

#![forbid(unsafe_code)]

use super::{
    close_and_drain,
    drain::Closable,
    gate::{
        CloseMode,
        Drained, //
    },
};
use crate::{
    abstractions::{
        rdma::{
            QpAttr,
            QpState, //
        },
        trace::{
            Cause,
            What, //
        },
    },
    transport::qp::{
        Ending,
        Qp, //
    },
};
use kernel::sync::Arc;

/// Closes the gate of `qp` as the device's policy says, and waits for the transfers inside.
fn close(qp: &Arc<Qp>, ending: Ending, cause: Cause) -> Drained {
    qp.set_ending(ending);
    let device = qp.device();
    let policy = device.policies.reset();
    let what = What::Qp(qp.qpn());
    let (drained, _outcome) =
        close_and_drain(device, what, cause, qp.gate(), policy, || hasten(qp));
    drained
}

/// Brings those who are still inside the cancelled gate of `qp` to their boundary.
pub(super) fn hasten(qp: &Arc<Qp>) {
    qp.hasten();
    // What the peer has under way with this queue pair is in the peer's hands.
    if let Some(peer) = qp.device().qps.lookup(qp.dest_qpn()) {
        peer.hasten();
    }
}

/// Takes `qp` to ERR. When this returns, everything that had been posted has completed, and no
/// byte moves for it any more.
pub(crate) fn to_error(qp: &Arc<Qp>) {
    let drained = close(qp, Ending::Error, Cause::Error);
    enter_error(qp, drained);
}

/// What of [`to_error`] comes after the wait.
pub(super) fn enter_error(qp: &Arc<Qp>, _drained: Drained) {
    qp.set_state(QpState::Err);
    qp.flush();
}

/// Takes `qp` to RESET. When this returns, nothing of its old life is left: no transfer, no work
/// request, no timer; no completion of it will appear any more. The gate is open for the next
/// life, though nothing is admitted before the state allows it.
pub(crate) fn to_reset(qp: &Arc<Qp>) {
    let drained = close(qp, Ending::Silent, Cause::Reset);
    enter_reset(qp, drained);
}

/// What of [`to_reset`] comes after the wait.
pub(super) fn enter_reset(qp: &Arc<Qp>, drained: Drained) {
    qp.set_state(QpState::Reset);
    qp.discard();
    qp.stop_visits();
    *qp.attrs.lock() = QpAttr::default();
    qp.set_ending(Ending::None);
    qp.gate().reopen(drained);
}

/// Destroys `qp`: as RESET, for good. Others may still refer to the object, but find it closed.
pub(crate) fn destroy(qp: &Arc<Qp>) {
    let roots = qp.roots.lock().take();
    let _drained = close(qp, Ending::Silent, Cause::Destroy);
    qp.set_state(QpState::Reset);
    if let Some(roots) = &roots {
        // Whoever has found the queue pair by its number may have it visited; let them finish, and
        // nobody come after them.
        roots.entry.close(CloseMode::Cancel);
        let _nobody = roots.entry.wait();
    }
    qp.discard();
    qp.stop_visits();
    // The number can be given to another queue pair, and the rings cannot be mapped, from here on.
    drop(roots);
}
