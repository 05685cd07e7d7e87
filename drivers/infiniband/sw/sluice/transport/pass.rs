// SPDX-License-Identifier: GPL-2.0

//! The right to work for a queue pair.

#![forbid(unsafe_code)]

use super::qp::Qp;
use crate::teardown::gate::Holder;
use kernel::sync::Arc;

/// A counted right to work for a queue pair. While one is out, no teardown of the queue pair
/// returns.
pub(crate) struct Pass {
    qp: Arc<Qp>,
    holder: Option<Holder>,
}

impl Pass {
    /// Asks for a pass; `None` if the queue pair is being torn down. Never sleeps.
    pub(super) fn ask(qp: &Arc<Qp>) -> Option<Self> {
        Some(Self {
            holder: Some(qp.gate().enter()?),
            qp: qp.clone(),
        })
    }

    /// Whether the work must stop at its next boundary.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.qp.gate().is_cancelled()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.qp.gate().leave_with(holder, || self.qp.drained());
        }
    }
}
