// SPDX-License-Identifier: GPL-2.0

//! The verbs: one file per object. Translates the calls of the core into the storeys below.

#![forbid(unsafe_code)]

pub(crate) mod ah;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod port;
pub(crate) mod qp;

pub(crate) use self::{
    ah::Ah,
    cq::Cq,
    device::Device,
    mr::Mr,
    pd::Pd, //
};

use crate::{
    abstractions::{
        netdev::NetDevice,
        rdma::{
            self,
            AhAttr,
            Arm,
            Counter,
            CqEvents,
            CqInit,
            Details,
            DeviceAttr,
            MrInit,
            MrKeys,
            PortAttr,
            QpAttr,
            QpAttrMask,
            QpCaps,
            QpEvents,
            QpInfo,
            QpInit,
            TeardownRefusal,
            TeardownRequest,
            TeardownResult,
            UserCall, //
        },
        setting::Setting, //
    },
    observe::counters::Counters,
    teardown::{
        policy::Policies,
        reset,
        settings,
        transaction, //
    },
    transport::qp::Qp,
    LocalModule, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        aref::ARef,
        Arc, //
    },
    ModuleMetadata, //
};

/// The driver, as the core sees it.
pub(crate) struct Sluice;

impl rdma::Driver for Sluice {
    const MODULE: ThisModule = LocalModule::THIS_MODULE;
    const LINK_TYPE: &'static CStr = c"sluice";
    const COUNTERS: &'static [Counter] = Counters::NAMES;
    const SETTINGS: &'static [Setting<Policies>] = settings::SETTINGS;

    type Settings = Policies;
    type Device = Device;
    type Pd = Pd;
    type Cq = Cq;
    type Qp = Qp;
    type Mr = Mr;
    type Ah = Ah;

    fn probe(device: ARef<rdma::Device>, name: &CStr) -> Result<Arc<Device>> {
        Device::new(device, name)
    }

    fn settings(device: &Device) -> &Policies {
        &device.policies
    }

    fn remove(_device: &Arc<Device>) {}

    fn query_device(_device: &Arc<Device>, attr: &mut DeviceAttr) {
        device::query(attr);
    }

    fn query_port(_device: &Arc<Device>, netdev: Option<&NetDevice>, attr: &mut PortAttr) {
        port::query(netdev, attr);
    }

    fn query_pkey(_device: &Arc<Device>, index: u16) -> Result<u16> {
        port::query_pkey(index)
    }

    fn read_counters(device: &Arc<Device>, values: &mut [u64]) {
        device.counters.read(values);
    }

    fn alloc_pd(device: &Arc<Device>) -> Result<Arc<Pd>> {
        Pd::new(device)
    }

    fn dealloc_pd(_pd: &Arc<Pd>) {}

    fn create_ah(pd: &Arc<Pd>, attr: &AhAttr, call: &mut UserCall<'_>) -> Result<Arc<Ah>> {
        Ah::new(pd, attr, call)
    }

    fn destroy_ah(_ah: &Arc<Ah>) {}

    fn create_cq(
        device: &Arc<Device>,
        init: &CqInit,
        events: CqEvents,
        call: &mut UserCall<'_>,
    ) -> Result<(Arc<Cq>, u32)> {
        Cq::new(device, init, events, call)
    }

    fn resize_cq(cq: &Arc<Cq>, cqe: u32, call: &mut UserCall<'_>) -> Result<u32> {
        cq.resize(cqe, call)
    }

    fn req_notify_cq(cq: &Arc<Cq>, arm: Arm) -> Result<bool> {
        Ok(cq.arm(arm))
    }

    fn show_cq(cq: &Arc<Cq>, details: &mut Details<'_>) -> Result {
        cq.show(details)
    }

    fn destroy_cq(cq: &Arc<Cq>) {
        cq.destroy();
    }

    fn create_qp(
        pd: &Arc<Pd>,
        init: &QpInit<Self>,
        events: QpEvents,
        call: &mut UserCall<'_>,
    ) -> Result<(Arc<Qp>, QpCaps)> {
        qp::create(pd, init, events, call)
    }

    fn qp_num(qp: &Arc<Qp>) -> u32 {
        qp.qpn()
    }

    fn modify_qp(qp: &Arc<Qp>, attr: &QpAttr, mask: QpAttrMask) -> Result {
        qp::modify(qp, attr, mask)
    }

    fn query_qp(qp: &Arc<Qp>) -> Result<QpInfo> {
        Ok(qp::query(qp))
    }

    fn show_qp(qp: &Arc<Qp>, details: &mut Details<'_>) -> Result {
        qp::show(qp, details)
    }

    fn destroy_qp(qp: &Arc<Qp>) {
        reset::destroy(qp);
    }

    fn post_send_doorbell(qp: &Arc<Qp>) -> Result {
        qp.doorbell()
    }

    fn reg_user_mr(pd: &Arc<Pd>, init: MrInit) -> Result<(Arc<Mr>, MrKeys)> {
        Mr::register(pd, init)
    }

    fn show_mr(mr: &Arc<Mr>, details: &mut Details<'_>) -> Result {
        mr.show(details)
    }

    fn dereg_mr(mr: &Arc<Mr>) -> Result {
        mr.deregister();
        Ok(())
    }

    fn teardown(
        device: &Arc<Device>,
        request: &TeardownRequest<Self>,
    ) -> Result<KVVec<TeardownResult>, TeardownRefusal> {
        transaction::run(device, request)
    }
}
