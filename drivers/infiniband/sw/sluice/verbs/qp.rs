// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: creation, attributes and state changes.

#![forbid(unsafe_code)]

use super::{
    Device,
    Pd,
    Sluice, //
};
use crate::{
    abstractions::{
        rdma::{
            Details,
            QpAttr,
            QpAttrMask,
            QpCaps,
            QpEvents,
            QpInfo,
            QpInit,
            QpState,
            QpType,
            UserCall, //
        },
        ring::{
            QueuePairPlaces,
            RecvRing,
            RingPlace,
            SendRing, //
        },
    },
    keys::MAX_SGE,
    teardown::{
        gate::CloseMode,
        reset, //
    },
    transport::{
        qp::{
            Qp,
            QpParts,
            Roots, //
        },
        rc::{
            request::Limits,
            requester::{
                Requester,
                RequesterTerms, //
            },
            responder::{
                Responder,
                ResponderTerms, //
            },
        },
    },
    wire::{
        psn::Psn,
        qp_state::check_modify,
        timers::{
            AckTimeout,
            RnrTimer, //
        },
    },
};
use core::cmp::max;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Queue pair numbers: 0 and 1 are those of the management interfaces.
pub(crate) const FIRST_QPN: u32 = 16;
pub(crate) const LAST_QPN: u32 = (1 << 24) - 2;

/// The largest number of work requests in a queue.
pub(crate) const MAX_WR: u32 = 1 << 15;

/// The largest amount of inline data: what takes no more room than the longest gather list.
pub(crate) const MAX_INLINE: u32 = MAX_SGE as u32 * SGE_BYTES;

/// RDMA reads and atomics that can be outstanding.
pub(crate) const MAX_RD_ATOMIC: u8 = 128;

/// The size of an element of a scatter/gather list in a ring.
const SGE_BYTES: u32 = 16;

/// A queue pair number has 24 bits.
const QPN_MASK: u32 = (1 << 24) - 1;

/// Creates a queue pair and tells the program where its rings are.
pub(super) fn create(
    pd: &Arc<Pd>,
    init: &QpInit<Sluice>,
    events: QpEvents,
    call: &mut UserCall<'_>,
) -> Result<(Arc<Qp>, QpCaps)> {
    let device = &pd.device;
    if init.qp_type != QpType::Rc {
        return Err(EOPNOTSUPP);
    }
    let asked = &init.caps;
    // CAST: 32.
    let max_sge = MAX_SGE as u32;
    if asked.max_send_wr > MAX_WR
        || asked.max_recv_wr > MAX_WR
        || asked.max_send_sge > max_sge
        || asked.max_recv_sge > max_sge
        || asked.max_inline_data > MAX_INLINE
    {
        return Err(EINVAL);
    }
    let payload = max(asked.max_send_sge * SGE_BYTES, asked.max_inline_data);
    // CAST: widens.
    let send_ring = SendRing::new(max(asked.max_send_wr, 1), payload as usize)?;
    let recv_ring = RecvRing::new(max(asked.max_recv_wr, 1), asked.max_recv_sge)?;
    let caps = QpCaps {
        max_send_wr: send_ring.capacity(),
        max_recv_wr: recv_ring.capacity(),
        max_send_sge: max(asked.max_send_sge, payload / SGE_BYTES),
        max_recv_sge: asked.max_recv_sge,
        max_inline_data: payload,
    };

    let send_mapping = call.map(send_ring.memory())?;
    let recv_mapping = call.map(recv_ring.memory())?;
    call.respond(&QueuePairPlaces {
        recv: RingPlace::of(&recv_mapping)?,
        send: RingPlace::of(&send_mapping)?,
    })?;

    let slot = device.qps.reserve()?;
    let limits = Limits {
        max_sge: caps.max_send_sge,
        max_inline: caps.max_inline_data,
        signal_all: init.signal_all,
    };
    let unset = QpAttr::default();
    let qp = Qp::new(QpParts {
        device: device.clone(),
        pd: pd.clone(),
        qpn: slot.index(),
        caps,
        signal_all: init.signal_all,
        send_cq: init.send_cq.clone(),
        recv_cq: init.recv_cq.clone(),
        events,
        requester: Requester::new(send_ring, requester_terms(device, &unset)?, limits)?,
        responder: Responder {
            ring: recv_ring,
            terms: responder_terms(&unset)?,
            psn: Psn::new(0),
        },
    })?;
    let entry = slot.publish(qp.clone())?;
    *qp.roots.lock() = Some(Roots {
        entry,
        _rings: [send_mapping, recv_mapping],
    });
    Ok((qp, caps))
}

/// Changes attributes and state. May sleep; never fails because traffic is running.
///
/// # Errors
///
/// `EINVAL` if the state machine has no such transition, or an attribute is missing, not allowed
/// or out of range. Nothing has changed then.
pub(super) fn modify(qp: &Arc<Qp>, attr: &QpAttr, mask: QpAttrMask) -> Result {
    let _control = qp.control.take();
    let current = qp.state();
    if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_state != current {
        return Err(EINVAL);
    }
    let next = if mask.contains(QpAttrMask::STATE) {
        attr.state
    } else {
        current
    };
    check_modify(current, next, mask).map_err(|_| EINVAL)?;
    let mut merged = *qp.attrs.lock();
    merge(&mut merged, attr, mask)?;

    match next {
        QpState::Reset => {
            reset::to_reset(qp);
            return Ok(());
        }
        QpState::Err => reset::to_error(qp),
        _ => {
            apply(qp, next, &merged, mask)?;
            if current == QpState::Rtr && next == QpState::Rts {
                // What the library wrote there when posts were refused must not come alive.
                qp.requester.lock().ring.discard();
            }
            qp.advance_state(current, next)?;
        }
    }
    *qp.attrs.lock() = merged;
    // There may be work that the old state did not allow, or an event that the new one owes.
    if !matches!(next, QpState::Init | QpState::Rtr) {
        qp.kick(0);
    }
    Ok(())
}

/// Takes over the fields of `attr` that `mask` names.
///
/// # Errors
///
/// `EINVAL` if a value is out of range or names something that this device does not have.
fn merge(into: &mut QpAttr, attr: &QpAttr, mask: QpAttrMask) -> Result {
    let has = |bit| mask.contains(bit);
    let unsupported = [
        QpAttrMask::ALT_PATH,
        QpAttrMask::PATH_MIG_STATE,
        QpAttrMask::CAP,
        QpAttrMask::RATE_LIMIT,
    ];
    let wrong = unsupported.into_iter().any(has)
        || has(QpAttrMask::PORT) && attr.port_num != 1
        || has(QpAttrMask::PKEY_INDEX) && attr.pkey_index != 0
        || has(QpAttrMask::DEST_QPN) && attr.dest_qp_num > QPN_MASK
        || has(QpAttrMask::TIMEOUT) && AckTimeout::from_exponent(attr.timeout).is_none()
        || has(QpAttrMask::MIN_RNR_TIMER) && RnrTimer::from_code(attr.min_rnr_timer).is_none()
        || has(QpAttrMask::RETRY_CNT) && attr.retry_cnt > 7
        || has(QpAttrMask::RNR_RETRY) && attr.rnr_retry > 7
        || has(QpAttrMask::MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > MAX_RD_ATOMIC
        || has(QpAttrMask::MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > MAX_RD_ATOMIC
        || has(QpAttrMask::AV) && !attr.ah.is_global;
    if wrong {
        return Err(EINVAL);
    }
    macro_rules! take {
        ($($bit:ident: $field:ident),+ $(,)?) => {
            $(if has(QpAttrMask::$bit) {
                into.$field = attr.$field;
            })+
        };
    }
    take!(
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify,
        ACCESS_FLAGS: access,
        PKEY_INDEX: pkey_index,
        PORT: port_num,
        AV: ah,
        PATH_MTU: path_mtu,
        TIMEOUT: timeout,
        RETRY_CNT: retry_cnt,
        RNR_RETRY: rnr_retry,
        RQ_PSN: rq_psn,
        MAX_QP_RD_ATOMIC: max_rd_atomic,
        MIN_RNR_TIMER: min_rnr_timer,
        SQ_PSN: sq_psn,
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        DEST_QPN: dest_qp_num,
    );
    Ok(())
}

/// Tells the two sides of the queue pair the terms that follow from its attributes.
fn apply(qp: &Qp, next: QpState, attrs: &QpAttr, mask: QpAttrMask) -> Result {
    let sending = requester_terms(qp.device(), attrs)?;
    let receiving = responder_terms(attrs)?;

    let mut requester = qp.requester.lock();
    requester.terms = sending;
    if mask.contains(QpAttrMask::SQ_PSN) {
        requester.psn = Psn::new(attrs.sq_psn);
    }
    if mask.contains(QpAttrMask::EN_SQD_ASYNC_NOTIFY) {
        requester.tell_drained = attrs.en_sqd_async_notify;
    }
    if next == QpState::Rts {
        requester.tell_drained = false;
    }
    if mask.contains(QpAttrMask::AV) {
        requester.path_changed();
    }
    drop(requester);

    let mut responder = qp.responder.lock();
    responder.terms = receiving;
    if mask.contains(QpAttrMask::RQ_PSN) {
        responder.psn = Psn::new(attrs.rq_psn);
    }
    Ok(())
}

fn requester_terms(device: &Device, attrs: &QpAttr) -> Result<RequesterTerms> {
    Ok(RequesterTerms {
        dest_qpn: attrs.dest_qp_num,
        is_local: device.owns_gid(&attrs.ah.dgid),
        path_mtu: attrs.path_mtu,
        timeout: AckTimeout::from_exponent(attrs.timeout).ok_or(EINVAL)?,
        retry_cnt: attrs.retry_cnt,
        rnr_retry: attrs.rnr_retry,
        max_rd_atomic: attrs.max_rd_atomic,
    })
}

fn responder_terms(attrs: &QpAttr) -> Result<ResponderTerms> {
    Ok(ResponderTerms {
        source_qpn: attrs.dest_qp_num,
        access: attrs.access,
        rnr_timer: RnrTimer::from_code(attrs.min_rnr_timer).ok_or(EINVAL)?,
        max_dest_rd_atomic: attrs.max_dest_rd_atomic,
    })
}

/// How the gate stands, and the work behind it. What is in use at this moment is left out.
pub(super) fn show(qp: &Qp, details: &mut Details<'_>) -> Result {
    let gate = match qp.gate().closed_with() {
        None => c"open",
        Some(CloseMode::Drain) => c"draining",
        Some(CloseMode::Cancel) => c"cancelled",
    };
    details.word(c"gate", gate)?;
    // CAST: widens.
    details.number(c"holders", qp.gate().holders() as u64)?;
    if let Some(requester) = qp.requester.try_lock() {
        let (pending, busy) = (requester.ring.pending(), requester.is_busy());
        drop(requester);
        details.number(c"sq_pending", pending.into())?;
        details.number(c"busy", busy.into())?;
    }
    if let Some(responder) = qp.responder.try_lock() {
        let pending = responder.ring.pending();
        drop(responder);
        details.number(c"rq_pending", pending.into())?;
    }
    Ok(())
}

/// The attributes as they stand, with the packet sequence numbers of this moment. Does not wait for
/// a change that is under way.
pub(super) fn query(qp: &Qp) -> QpInfo {
    let mut attr = *qp.attrs.lock();
    attr.state = qp.state();
    attr.cur_state = attr.state;
    let requester = qp.requester.lock();
    attr.sq_psn = requester.psn.bits();
    attr.sq_draining = attr.state == QpState::Sqd && requester.is_busy();
    drop(requester);
    attr.rq_psn = qp.responder.lock().psn.bits();
    QpInfo {
        attr,
        caps: *qp.caps(),
        signal_all: qp.signal_all(),
    }
}
