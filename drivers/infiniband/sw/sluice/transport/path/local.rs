// SPDX-License-Identifier: GPL-2.0

//! The path to a queue pair of the same device: memory to memory, one copy.

#![forbid(unsafe_code)]

use crate::transport::qp::Qp;
use kernel::sync::Arc;

/// Finds the queue pair `dest_qpn` of the device of `qp`.
///
/// What comes back may be in any state, or even on its way out; whether it takes part in anything
/// is decided when it is asked for a pass. Takes no lock.
pub(crate) fn find_peer(qp: &Qp, dest_qpn: u32) -> Option<Arc<Qp>> {
    qp.device().qps.lookup(dest_qpn).map(|peer| (*peer).clone())
}
