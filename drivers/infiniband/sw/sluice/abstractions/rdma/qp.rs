// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use super::{
    ah::AhAttr,
    event::{
        raise,
        Target, //
    },
    mr::AccessFlags,
    Driver,
    Mtu,
    QpAttrMask,
    QpState, //
};
use crate::bindings;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl QpType {
    pub(super) fn from_raw(qp_type: bindings::ib_qp_type) -> Result<Self> {
        match qp_type {
            bindings::ib_qp_type_IB_QPT_RC => Ok(Self::Rc),
            bindings::ib_qp_type_IB_QPT_UC => Ok(Self::Uc),
            bindings::ib_qp_type_IB_QPT_UD => Ok(Self::Ud),
            _ => Err(EOPNOTSUPP),
        }
    }
}

/// The sizes of a queue pair's queues.
#[derive(Clone, Copy, Default)]
pub(crate) struct QpCaps {
    /// Work requests in the send queue.
    pub(crate) max_send_wr: u32,
    /// Work requests in the receive queue.
    pub(crate) max_recv_wr: u32,
    /// Data segments of a work request in the send queue.
    pub(crate) max_send_sge: u32,
    /// Data segments of a work request in the receive queue.
    pub(crate) max_recv_sge: u32,
    /// Bytes of inline data in a work request.
    pub(crate) max_inline_data: u32,
}

impl QpCaps {
    pub(super) fn from_raw(cap: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        }
    }

    pub(super) fn to_raw(self) -> bindings::ib_qp_cap {
        bindings::ib_qp_cap {
            max_send_wr: self.max_send_wr,
            max_recv_wr: self.max_recv_wr,
            max_send_sge: self.max_send_sge,
            max_recv_sge: self.max_recv_sge,
            max_inline_data: self.max_inline_data,
            ..pin_init::zeroed()
        }
    }
}

/// What a program asks for when it creates a queue pair.
pub(crate) struct QpInit<D: Driver> {
    /// The transport service.
    pub(crate) qp_type: QpType,
    /// The sizes of the queues.
    pub(crate) caps: QpCaps,
    /// Whether every work request in the send queue completes with an entry.
    pub(crate) signal_all: bool,
    /// Where work requests of the send queue complete.
    pub(crate) send_cq: Arc<D::Cq>,
    /// Where work requests of the receive queue complete.
    pub(crate) recv_cq: Arc<D::Cq>,
}

/// The attributes of a queue pair. Packet sequence and queue pair numbers are in host order.
#[derive(Clone, Copy)]
pub(crate) struct QpAttr {
    /// The state to go to, or the present one.
    pub(crate) state: QpState,
    /// The state that the program takes the queue pair to be in.
    pub(crate) cur_state: QpState,
    /// The largest payload of a packet on the path.
    pub(crate) path_mtu: Mtu,
    /// Queue key.
    pub(crate) qkey: u32,
    /// The first packet sequence number expected.
    pub(crate) rq_psn: u32,
    /// The first packet sequence number sent.
    pub(crate) sq_psn: u32,
    /// The number of the peer.
    pub(crate) dest_qp_num: u32,
    /// What the peer may do.
    pub(crate) access: AccessFlags,
    /// The way to the peer.
    pub(crate) ah: AhAttr,
    /// Index of the partition key.
    pub(crate) pkey_index: u16,
    /// Whether an event is raised when the send queue has drained.
    pub(crate) en_sqd_async_notify: bool,
    /// Whether the send queue is draining (result of a query only).
    pub(crate) sq_draining: bool,
    /// RDMA reads and atomics that this side may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// RDMA reads and atomics that the peer may have outstanding.
    pub(crate) max_dest_rd_atomic: u8,
    /// Code of the time that a peer must wait after a receiver-not-ready NAK: 0..=31.
    pub(crate) min_rnr_timer: u8,
    /// The port: always 1.
    pub(crate) port_num: u32,
    /// Code of the acknowledge timeout: 0 (never) ..= 31.
    pub(crate) timeout: u8,
    /// How often to retry after a timeout or a lost packet: 0..=7.
    pub(crate) retry_cnt: u8,
    /// How often to retry after a receiver-not-ready NAK: 0..=6, 7 without end.
    pub(crate) rnr_retry: u8,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            cur_state: QpState::Reset,
            path_mtu: Mtu::B256,
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qp_num: 0,
            access: AccessFlags::default(),
            ah: AhAttr::default(),
            pkey_index: 0,
            en_sqd_async_notify: false,
            sq_draining: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port_num: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
        }
    }
}

impl QpAttr {
    /// Takes over those attributes that `mask` names, and the defaults for the others: what the
    /// program left there is none of our business.
    ///
    /// # Errors
    ///
    /// `EINVAL` if one has a value that does not exist.
    ///
    /// # Safety
    ///
    /// If `mask` names the address, that must have been resolved by the core.
    pub(super) unsafe fn from_raw(raw: &bindings::ib_qp_attr, mask: QpAttrMask) -> Result<Self> {
        let mut attr = Self {
            qkey: raw.qkey,
            rq_psn: raw.rq_psn,
            sq_psn: raw.sq_psn,
            dest_qp_num: raw.dest_qp_num,
            pkey_index: raw.pkey_index,
            en_sqd_async_notify: raw.en_sqd_async_notify != 0,
            max_rd_atomic: raw.max_rd_atomic,
            max_dest_rd_atomic: raw.max_dest_rd_atomic,
            min_rnr_timer: raw.min_rnr_timer,
            port_num: raw.port_num,
            timeout: raw.timeout,
            retry_cnt: raw.retry_cnt,
            rnr_retry: raw.rnr_retry,
            ..Self::default()
        };
        if mask.contains(QpAttrMask::STATE) {
            attr.state = QpState::from_verbs(raw.qp_state).ok_or(EINVAL)?;
        }
        if mask.contains(QpAttrMask::CUR_STATE) {
            attr.cur_state = QpState::from_verbs(raw.cur_qp_state).ok_or(EINVAL)?;
        }
        if mask.contains(QpAttrMask::PATH_MTU) {
            attr.path_mtu = Mtu::from_verbs(raw.path_mtu).ok_or(EINVAL)?;
        }
        if mask.contains(QpAttrMask::ACCESS_FLAGS) {
            attr.access = AccessFlags::for_peer(raw.qp_access_flags);
        }
        if mask.contains(QpAttrMask::AV) {
            // SAFETY: By the safety requirement.
            attr.ah = unsafe { AhAttr::from_raw(&raw.ah_attr) }?;
        }
        Ok(attr)
    }

    pub(super) fn to_raw(self, raw: &mut bindings::ib_qp_attr) {
        raw.qp_state = self.state.to_verbs();
        raw.cur_qp_state = self.cur_state.to_verbs();
        raw.path_mtu = self.path_mtu.to_verbs();
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        raw.qkey = self.qkey;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qp_num;
        raw.qp_access_flags = self.access.to_raw();
        self.ah.to_raw(&mut raw.ah_attr);
        raw.pkey_index = self.pkey_index;
        raw.en_sqd_async_notify = self.en_sqd_async_notify.into();
        raw.sq_draining = self.sq_draining.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port_num;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
    }
}

/// The answer to a query.
#[derive(Clone, Copy, Default)]
pub(crate) struct QpInfo {
    /// The attributes.
    pub(crate) attr: QpAttr,
    /// The sizes of the queues.
    pub(crate) caps: QpCaps,
    /// Whether every work request in the send queue completes with an entry.
    pub(crate) signal_all: bool,
}

/// An asynchronous event of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpEvent {
    /// It failed and entered the error state.
    Fatal,
    /// Its peer sent a request that cannot be right.
    RequestError,
    /// Its peer violated access rights.
    AccessError,
    /// A first message arrived in the state ready-to-receive.
    CommEstablished,
    /// The send queue has drained.
    SqDrained,
}

impl QpEvent {
    fn to_raw(self) -> bindings::ib_event_type {
        match self {
            Self::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            Self::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            Self::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            Self::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            Self::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
        }
    }
}

/// Raises the asynchronous events of one queue pair.
///
/// Goes dead when the queue pair has been destroyed: calls then do nothing. May be called in
/// process context only. Does not sleep.
pub(crate) struct QpEvents(pub(super) Arc<Target<bindings::ib_qp>>);

impl QpEvents {
    /// Raises `event`.
    pub(crate) fn async_event(&self, event: QpEvent) {
        self.0.with(|qp| {
            let qp = qp.as_ptr();
            // SAFETY: `qp` is valid while this runs, and the core has set its handler and context
            // before it was created.
            unsafe {
                raise(
                    (*qp).event_handler,
                    (*qp).qp_context,
                    (*qp).device,
                    bindings::ib_event__bindgen_ty_1 { qp },
                    event.to_raw(),
                );
            }
        });
    }
}
