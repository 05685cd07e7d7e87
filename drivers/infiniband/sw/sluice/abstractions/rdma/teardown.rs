// SPDX-License-Identifier: GPL-2.0

//! The request to tear down several objects as one, as a program makes it.
//!
//! C header: [`include/uapi/rdma/sluice-abi.h`](../../../../../../../include/uapi/rdma/sluice-abi.h)

use super::Driver;
use crate::{
    bindings,
    teardown::{
        drain::{
            End,
            Report, //
        },
        gate::CloseMode,
    },
};
use core::{
    mem::size_of,
    slice, //
};
use kernel::{
    alloc::AllocError,
    error::to_result,
    prelude::*,
    sync::Arc,
    transmute::AsBytes, //
};

// SAFETY: two `u32` and three `u64` after them, without holes.
unsafe impl AsBytes for bindings::sluice_teardown_result {}
// SAFETY: two `u32`.
unsafe impl AsBytes for bindings::sluice_teardown_refusal {}

/// What is done to which object.
pub(crate) enum TeardownObject<D: Driver> {
    /// The queue pair goes to RESET.
    Reset(Arc<D::Qp>),
    /// The queue pair goes to ERR.
    Error(Arc<D::Qp>),
    /// The region is taken away from its keys.
    Revoke(Arc<D::Mr>),
}

/// One action of a request.
pub(crate) struct TeardownAction<D: Driver> {
    pub(crate) object: TeardownObject<D>,
    /// How the gate is closed; by the policy of the device if `None`.
    pub(crate) close: Option<CloseMode>,
    /// How long a drain may take, in milliseconds; 0 stands for what the device allows.
    pub(crate) timeout_ms: u32,
}

/// A request.
pub(crate) struct TeardownRequest<D: Driver> {
    pub(crate) actions: KVVec<TeardownAction<D>>,
    /// Whether a drain that goes wrong has the others cancelled.
    pub(crate) grouped: bool,
    /// Whether the program only wants to know if the request would be refused.
    pub(crate) check_only: bool,
}

/// What became of one action.
#[derive(Clone, Copy)]
pub(crate) struct TeardownResult {
    pub(crate) report: Report,
    /// Transfers that it has cut.
    pub(crate) cut: u64,
    /// Bytes that had landed of those.
    pub(crate) landed: u64,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum TeardownReason {
    /// For none of the other reasons, and for no action's fault.
    Request = bindings::sluice_teardown_reason_SLUICE_REFUSED_REQUEST,
    /// There is no such kind of action.
    Kind = bindings::sluice_teardown_reason_SLUICE_REFUSED_KIND,
    /// A field of the action has a value that it cannot have.
    Value = bindings::sluice_teardown_reason_SLUICE_REFUSED_VALUE,
    /// An earlier action has the object.
    Duplicate = bindings::sluice_teardown_reason_SLUICE_REFUSED_DUPLICATE,
    /// The state of the object does not allow it.
    State = bindings::sluice_teardown_reason_SLUICE_REFUSED_STATE,
    /// The action does not support the completion mode.
    Completion = bindings::sluice_teardown_reason_SLUICE_REFUSED_COMPLETION,
}

/// A refusal: nothing has been changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TeardownRefusal {
    action: u32,
    reason: TeardownReason,
    errno: Error,
}

impl TeardownRefusal {
    /// Because of one action.
    pub(crate) fn of_action(action: usize, reason: TeardownReason) -> Self {
        Self {
            // CAST: there are only a few.
            action: action as u32,
            reason,
            errno: match reason {
                TeardownReason::Kind | TeardownReason::Completion => EOPNOTSUPP,
                _ => EINVAL,
            },
        }
    }
}

impl From<Error> for TeardownRefusal {
    fn from(errno: Error) -> Self {
        Self {
            action: u32::MAX,
            reason: TeardownReason::Request,
            errno,
        }
    }
}

impl From<AllocError> for TeardownRefusal {
    fn from(_: AllocError) -> Self {
        ENOMEM.into()
    }
}

impl TeardownResult {
    /// There was nothing to tear down.
    pub(crate) const NOTHING: Self = Self {
        report: Report {
            end: End::Drained,
            waited: false,
            past_deadline: false,
            by_group: false,
            after_ns: 0,
        },
        cut: 0,
        landed: 0,
    };

    fn to_raw(self) -> bindings::sluice_teardown_result {
        let Report {
            end,
            past_deadline,
            by_group,
            after_ns,
            ..
        } = self.report;
        let mut flags = 0;
        if past_deadline {
            flags |= bindings::sluice_teardown_result_flags_SLUICE_PAST_DEADLINE;
        }
        if by_group {
            flags |= bindings::sluice_teardown_result_flags_SLUICE_CUT_BY_GROUP;
        }
        bindings::sluice_teardown_result {
            outcome: match end {
                End::Drained => bindings::sluice_teardown_outcome_SLUICE_DRAINED,
                End::Cancelled => bindings::sluice_teardown_outcome_SLUICE_CANCELLED,
                End::Faulted => bindings::sluice_teardown_outcome_SLUICE_FAULTED,
            },
            flags,
            waited_ns: after_ns,
            cut: self.cut,
            landed: self.landed,
        }
    }
}

// CAST: the numbers of attributes have 16 bits.
const ACTIONS: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_ACTIONS as u16;
const QPS: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_QPS as u16;
const MRS: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_MRS as u16;
const COMPLETION: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_COMPLETION as u16;
const FLAGS: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_FLAGS as u16;
const RESULTS: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_RESULTS as u16;
const REFUSAL: u16 = bindings::sluice_teardown_attrs_SLUICE_ATTR_TEARDOWN_REFUSAL as u16;

/// The method's call, while it runs.
///
/// # Invariants
///
/// `0` is the bundle of attributes of a call of the method `SLUICE_METHOD_TEARDOWN`, and the call is
/// being carried out.
pub(super) struct Call(*mut bindings::uverbs_attr_bundle);

impl Call {
    /// # Safety
    ///
    /// `attrs` must be what the core has given to the handler of the method, which must not return
    /// before this is gone.
    pub(super) unsafe fn new(attrs: *mut bindings::uverbs_attr_bundle) -> Self {
        // INVARIANT: By the safety requirements.
        Self(attrs)
    }

    /// The context that the call is made through.
    pub(super) fn context(&self) -> Result<*mut bindings::ib_ucontext> {
        // SAFETY: By the type invariant.
        kernel::error::from_err_ptr(unsafe { bindings::sluice_attrs_context(self.0) })
    }

    /// The actions, as the program has them.
    fn actions(&self) -> Result<&[bindings::sluice_teardown_action]> {
        // SAFETY: By the type invariant.
        let (length, bytes) = unsafe {
            (
                bindings::sluice_attrs_length(self.0, ACTIONS),
                bindings::sluice_attrs_bytes(self.0, ACTIONS),
            )
        };
        let length = usize::try_from(length).map_err(|_| EINVAL)?;
        let size = size_of::<bindings::sluice_teardown_action>();
        // CAST: 256.
        let most = bindings::SLUICE_TEARDOWN_MAX as usize;
        if length == 0 || length % size != 0 || length / size > most {
            return Err(EINVAL);
        }
        // SAFETY: The core has copied that many bytes for the time of the call, aligned for any
        // type, and every pattern of bits is an action. Nobody writes there.
        Ok(unsafe { slice::from_raw_parts(bytes.cast(), length / size) })
    }

    /// The objects named by the array `id`; none if it was left out.
    fn objects(&self, id: u16) -> Result<&[*mut bindings::ib_uobject]> {
        let mut objects = core::ptr::null_mut();
        // SAFETY: By the type invariant.
        let count = unsafe { bindings::sluice_attrs_objects(self.0, id, &mut objects) };
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: The core has looked up that many objects for the time of the call.
        Ok(unsafe { slice::from_raw_parts(objects, count) })
    }

    /// Reads the request. `qp` and `mr` turn what the core has for an object into the driver's.
    pub(super) fn request<D: Driver>(
        &self,
        qp: impl Fn(*mut bindings::ib_qp) -> Arc<D::Qp>,
        mr: impl Fn(*mut bindings::ib_mr) -> Arc<D::Mr>,
    ) -> Result<TeardownRequest<D>, TeardownRefusal> {
        let (mut completion, mut flags, mut none) = (0, 0, 0);
        // CAST: small numbers, and a number of an attribute.
        // SAFETY: By the type invariant.
        unsafe {
            to_result(bindings::_uverbs_get_const_unsigned(
                &mut completion,
                self.0,
                COMPLETION.into(),
                bindings::sluice_teardown_completion_SLUICE_GROUPED.into(),
                &mut none,
            ))?;
            to_result(bindings::uverbs_get_flags32(
                &mut flags,
                self.0,
                FLAGS.into(),
                bindings::sluice_teardown_flags_SLUICE_TEARDOWN_CHECK.into(),
            ))?;
        }
        let raw = self.actions()?;
        // SAFETY: By the type invariant.
        let room = unsafe { bindings::sluice_attrs_length(self.0, RESULTS) };
        let room = usize::try_from(room).map_err(|_| EINVAL)?;
        if room / size_of::<bindings::sluice_teardown_result>() < raw.len() {
            return Err(EINVAL.into());
        }
        let mut qps = self.objects(QPS)?.iter();
        let mut mrs = self.objects(MRS)?.iter();
        let mut actions = KVVec::with_capacity(raw.len(), GFP_KERNEL)?;
        for (at, raw) in raw.iter().enumerate() {
            let refuse = |reason| TeardownRefusal::of_action(at, reason);
            let is_reset = match raw.kind.into() {
                bindings::sluice_teardown_kind_SLUICE_RESET_QP => Some(true),
                bindings::sluice_teardown_kind_SLUICE_ERROR_QP => Some(false),
                bindings::sluice_teardown_kind_SLUICE_REVOKE_MR => None,
                _ => return Err(refuse(TeardownReason::Kind)),
            };
            let close = match raw.close.into() {
                bindings::sluice_teardown_close_SLUICE_CLOSE_BY_POLICY => None,
                bindings::sluice_teardown_close_SLUICE_CLOSE_DRAIN => Some(CloseMode::Drain),
                bindings::sluice_teardown_close_SLUICE_CLOSE_CANCEL => Some(CloseMode::Cancel),
                _ => return Err(refuse(TeardownReason::Value)),
            };
            if raw.reserved != [0; 2] {
                return Err(refuse(TeardownReason::Value));
            }
            // As many handles as actions on such objects.
            let uobject = if is_reset.is_some() {
                &mut qps
            } else {
                &mut mrs
            };
            let uobject = *uobject.next().ok_or(EINVAL)?;
            // SAFETY: The core keeps the object, of the kind that the array is for, from being
            // destroyed until the call is over.
            let object = unsafe { (*uobject).object };
            let object = match is_reset {
                Some(true) => TeardownObject::Reset(qp(object.cast())),
                Some(false) => TeardownObject::Error(qp(object.cast())),
                None => TeardownObject::Revoke(mr(object.cast())),
            };
            let action = TeardownAction {
                object,
                close,
                timeout_ms: raw.timeout_ms,
            };
            actions.push(action, GFP_KERNEL)?;
        }
        if qps.next().is_some() || mrs.next().is_some() {
            return Err(EINVAL.into());
        }
        Ok(TeardownRequest {
            actions,
            // The bound was checked above.
            grouped: completion != 0,
            check_only: flags != 0,
        })
    }

    /// Writes to the program's memory for an attribute.
    fn copy_out<T: AsBytes>(&self, id: u16, values: &[T]) -> Result {
        // SAFETY: By the type invariant. What is copied may be looked at as bytes, by its type.
        to_result(unsafe {
            bindings::uverbs_copy_to(
                self.0,
                id.into(),
                values.as_ptr().cast(),
                core::mem::size_of_val(values),
            )
        })
    }

    /// Room for the results of `count` actions, which the program has proved to have.
    pub(super) fn room(
        &self,
        count: usize,
    ) -> Result<KVVec<bindings::sluice_teardown_result>, TeardownRefusal> {
        let mut room = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            room.push(bindings::sluice_teardown_result::default(), GFP_KERNEL)?;
        }
        self.copy_out(RESULTS, &room)?;
        Ok(room)
    }

    /// Hands the results to the program.
    pub(super) fn respond(
        &self,
        room: &mut [bindings::sluice_teardown_result],
        results: &[TeardownResult],
    ) -> Result {
        for (raw, result) in room.iter_mut().zip(results) {
            *raw = result.to_raw();
        }
        self.copy_out(RESULTS, room)
    }

    /// Tells the program why its request is refused. Returns what the call fails with.
    pub(super) fn refuse(&self, refusal: TeardownRefusal) -> Error {
        let raw = bindings::sluice_teardown_refusal {
            action: refusal.action,
            // CAST: the discriminants are those of the C side.
            reason: refusal.reason as u32,
        };
        // A program that does not want to know has no room for it.
        let _ = self.copy_out(REFUSAL, &[raw]);
        refusal.errno
    }
}
