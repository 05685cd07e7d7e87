// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::event::{
    raise,
    Target, //
};
use crate::bindings;
use kernel::sync::Arc;

/// What a program asks for when it creates a completion queue.
#[derive(Clone, Copy)]
pub(crate) struct CqInit {
    /// The least number of entries; at least one.
    pub(crate) cqe: u32,
}

/// Which completion raises the event of an armed queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The next one.
    Next,
    /// The next one that was solicited, or that is in error.
    Solicited,
}

impl Arm {
    pub(super) fn from_raw(flags: bindings::ib_cq_notify_flags) -> Self {
        match flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK {
            bindings::ib_cq_notify_flags_IB_CQ_SOLICITED => Self::Solicited,
            _ => Self::Next,
        }
    }
}

/// Raises the events of one completion queue.
///
/// Goes dead when the queue has been destroyed: calls then do nothing. May be called in process
/// context only. Does not sleep.
pub(crate) struct CqEvents(pub(super) Arc<Target<bindings::ib_cq>>);

impl CqEvents {
    /// Raises the completion event. The caller looks after the arming.
    pub(crate) fn completion(&self) {
        self.0.with(|cq| {
            // SAFETY: `cq` is valid while this runs, and the core has set its handler and context
            // before it was created.
            unsafe {
                let raw = cq.as_ptr();
                if let Some(handler) = (*raw).comp_handler {
                    handler(raw, (*raw).cq_context);
                }
            }
        });
    }

    /// Raises the asynchronous event `IBV_EVENT_CQ_ERR`: the queue has overrun.
    pub(crate) fn error(&self) {
        self.0.with(|cq| {
            let cq = cq.as_ptr();
            // SAFETY: `cq` is valid while this runs, and the core has set its handler and context
            // before it was created.
            unsafe {
                raise(
                    (*cq).event_handler,
                    (*cq).cq_context,
                    (*cq).device,
                    bindings::ib_event__bindgen_ty_1 { cq },
                    bindings::ib_event_type_IB_EVENT_CQ_ERR,
                );
            }
        });
    }
}
