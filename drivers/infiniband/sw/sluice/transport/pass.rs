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
        let Some(holder) = qp.gate().enter() else {
            qp.device().commit.settle();
            return None;
        };
        Some(Self {
            holder: Some(holder),
            qp: qp.clone(),
        })
    }

    /// Whether nobody would be given a pass any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.qp.gate().is_closed()
    }

    /// To be called when a gate was found closed, before anything is made of that; see [`Commit`].
    ///
    /// [`Commit`]: crate::teardown::commit::Commit
    pub(crate) fn settle(&self) {
        self.qp.device().commit.settle();
    }

    /// Counts a transfer that was cut because the queue pair is being torn down.
    pub(crate) fn count_cut(&self, landed: usize) {
        self.qp.cuts().count(landed);
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
