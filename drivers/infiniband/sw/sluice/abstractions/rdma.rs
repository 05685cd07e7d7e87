// SPDX-License-Identifier: GPL-2.0

//! RDMA devices that are driven from user space.
//!
//! A driver implements [`Driver`]: one associated type for each kind of object the RDMA core
//! knows, and one function for each verb. [`Registration`] makes a link type of it (`rdma link
//! add NAME type TYPE netdev DEV`) and undoes everything when it is dropped.
//!
//! # Objects
//!
//! The core allocates the C half of a protection domain, completion queue, queue pair, address
//! handle or memory region; behind it lies one [`Arc`](kernel::sync::Arc) of the driver's own
//! object. A driver's function therefore sees only `&Arc<T>` and never a C structure. The
//! reference is dropped after the destroying function has returned.
//!
//! # Which devices this is for
//!
//! The operations that in-kernel consumers need (`get_dma_mr`, `poll_cq`, kernel work requests)
//! are left out on purpose: the core then sets `kverbs_provider` to zero and offers the device to
//! user space only. So every verb comes from a system call, in process context, and may sleep.

mod ah;
mod attributes;
mod cq;
mod device;
mod driver;
mod event;
mod link;
mod mr;
mod object;
mod ops;
mod qp;
mod resource;
mod stats;
mod teardown;
mod user;

pub(crate) use self::{
    ah::{
        AhAttr,
        Gid, //
    },
    cq::{
        Arm,
        CqEvents,
        CqInit, //
    },
    device::{
        AtomicCap,
        Device,
        DeviceAttr,
        DeviceCap,
        DeviceCaps,
        PortAttr,
        PortState, //
    },
    driver::Driver,
    link::Registration,
    mr::{
        Access,
        AccessFlags,
        MrInit,
        MrKeys, //
    },
    qp::{
        QpAttr,
        QpCaps,
        QpEvent,
        QpEvents,
        QpInfo,
        QpInit,
        QpType, //
    },
    resource::Details,
    stats::Counter,
    teardown::{
        TeardownAction,
        TeardownObject,
        TeardownReason,
        TeardownRefusal,
        TeardownRequest,
        TeardownResult, //
    },
    user::{
        Mapping,
        UserCall, //
    },
};

// What the verbs and the wire have in common is defined once, in the pure modules.
pub(crate) use crate::wire::{
    mtu::PathMtu as Mtu,
    qp_state::{
        AttrMask as QpAttrMask,
        QpState, //
    },
};
