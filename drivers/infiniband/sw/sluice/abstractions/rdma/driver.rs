// SPDX-License-Identifier: GPL-2.0

//! What a driver of an RDMA device implements.

use super::{
    AhAttr,
    Arm,
    Counter,
    CqEvents,
    CqInit,
    Details,
    Device,
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
};
use crate::abstractions::{
    netdev::NetDevice,
    setting::Setting, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// A driver for RDMA devices that sit on a network device and are driven from user space.
///
/// All functions are called in process context and may sleep. The core serialises the calls on
/// one object against its destruction: no function is entered for an object whose destroying
/// function has begun, and an object is destroyed only after all objects that were created from
/// it (a queue pair keeps its completion queues and its protection domain). Calls on the same
/// object may otherwise run at the same time.
///
/// Errors go to the program that made the system call.
pub(crate) trait Driver: Sized + 'static {
    /// The module that the driver is part of.
    const MODULE: ThisModule;

    /// The name of the link type, as in `rdma link add NAME type LINK_TYPE netdev DEV`.
    const LINK_TYPE: &'static CStr;

    /// The counters of a device, in the order in which [`Driver::read_counters`] gives them.
    const COUNTERS: &'static [Counter];

    /// What can be set about a device: files in `/sys/class/infiniband/NAME/`.
    const SETTINGS: &'static [Setting<Self::Settings>];

    /// What [`Driver::SETTINGS`] are the values of.
    type Settings: 'static;
    /// A device.
    type Device: Send + Sync + 'static;
    /// A protection domain.
    type Pd: Send + Sync + 'static;
    /// A completion queue.
    type Cq: Send + Sync + 'static;
    /// A queue pair.
    type Qp: Send + Sync + 'static;
    /// A memory region.
    type Mr: Send + Sync + 'static;
    /// An address handle.
    type Ah: Send + Sync + 'static;

    /// Makes the driver's half of a device that is about to be registered as `name`.
    fn probe(device: ARef<Device>, name: &CStr) -> Result<Arc<Self::Device>>;

    /// The values of [`Driver::SETTINGS`] of a device.
    fn settings(device: &Self::Device) -> &Self::Settings;

    /// The device has been unregistered. All its objects have been destroyed and none of the
    /// other functions will be called again.
    fn remove(device: &Arc<Self::Device>);

    /// Fills in what the device can do. `attr` arrives with the GUID set.
    fn query_device(device: &Arc<Self::Device>, attr: &mut DeviceAttr);

    /// Fills in the state of the port, which follows from the network device. That is [`None`]
    /// once it is going away. `attr` arrives with the speed and width set.
    fn query_port(device: &Arc<Self::Device>, netdev: Option<&NetDevice>, attr: &mut PortAttr);

    /// The partition key at `index`. `EINVAL` if there is none.
    fn query_pkey(device: &Arc<Self::Device>, index: u16) -> Result<u16>;

    /// Fills `values` with the current values of [`Driver::COUNTERS`].
    fn read_counters(device: &Arc<Self::Device>, values: &mut [u64]);

    /// Creates a protection domain.
    fn alloc_pd(device: &Arc<Self::Device>) -> Result<Arc<Self::Pd>>;

    /// Destroys a protection domain.
    fn dealloc_pd(pd: &Arc<Self::Pd>);

    /// Creates an address handle and gives the program what it needs to name it in a work
    /// request.
    fn create_ah(
        pd: &Arc<Self::Pd>,
        attr: &AhAttr,
        call: &mut UserCall<'_>,
    ) -> Result<Arc<Self::Ah>>;

    /// Destroys an address handle.
    fn destroy_ah(ah: &Arc<Self::Ah>);

    /// Creates a completion queue of at least `init.cqe` entries. Returns it with the number of
    /// entries that it really has.
    fn create_cq(
        device: &Arc<Self::Device>,
        init: &CqInit,
        events: CqEvents,
        call: &mut UserCall<'_>,
    ) -> Result<(Arc<Self::Cq>, u32)>;

    /// Changes the number of entries. Returns the number of entries that it now has.
    fn resize_cq(cq: &Arc<Self::Cq>, cqe: u32, call: &mut UserCall<'_>) -> Result<u32>;

    /// Arms the queue: the next completion (or the next solicited one) raises an event.
    ///
    /// Returns whether the queue holds completions already, so that the caller may have to poll
    /// again.
    fn req_notify_cq(cq: &Arc<Self::Cq>, arm: Arm) -> Result<bool>;

    /// Tells a person about a completion queue. Destroying it waits for this function, so this one
    /// must not wait for anything of the program's.
    fn show_cq(cq: &Arc<Self::Cq>, details: &mut Details<'_>) -> Result;

    /// Destroys a completion queue. No queue pair uses it any more.
    fn destroy_cq(cq: &Arc<Self::Cq>);

    /// Creates a queue pair. Returns it with the capabilities that were granted, none of which
    /// may be less than asked for.
    fn create_qp(
        pd: &Arc<Self::Pd>,
        init: &QpInit<Self>,
        events: QpEvents,
        call: &mut UserCall<'_>,
    ) -> Result<(Arc<Self::Qp>, QpCaps)>;

    /// The number of a queue pair; fixed for its life and unique in its device.
    fn qp_num(qp: &Arc<Self::Qp>) -> u32;

    /// Changes attributes and state. Those fields of `attr` are meaningful whose bit is set in
    /// `mask`. Whether the transition is allowed, and with these attributes, is for the driver
    /// to check.
    fn modify_qp(qp: &Arc<Self::Qp>, attr: &QpAttr, mask: QpAttrMask) -> Result;

    /// The present attributes of a queue pair.
    fn query_qp(qp: &Arc<Self::Qp>) -> Result<QpInfo>;

    /// Tells a person about a queue pair, as [`Driver::show_cq`].
    fn show_qp(qp: &Arc<Self::Qp>, details: &mut Details<'_>) -> Result;

    /// Destroys a queue pair.
    fn destroy_qp(qp: &Arc<Self::Qp>);

    /// The program has put work requests into the send queue, which it shares with the driver.
    fn post_send_doorbell(qp: &Arc<Self::Qp>) -> Result;

    /// Registers a memory region over the pinned memory in `init`.
    fn reg_user_mr(pd: &Arc<Self::Pd>, init: MrInit) -> Result<(Arc<Self::Mr>, MrKeys)>;

    /// Tells a person about a memory region, as [`Driver::show_cq`].
    fn show_mr(mr: &Arc<Self::Mr>, details: &mut Details<'_>) -> Result;

    /// Deregisters a memory region. After success not one byte of it is touched under its keys.
    fn dereg_mr(mr: &Arc<Self::Mr>) -> Result;

    /// Tears down several objects of one program as one. Returns what became of each. No object is
    /// destroyed meanwhile.
    ///
    /// # Errors
    ///
    /// Why the request is refused; then nothing has been changed.
    fn teardown(
        device: &Arc<Self::Device>,
        request: &TeardownRequest<Self>,
    ) -> Result<KVVec<TeardownResult>, TeardownRefusal>;
}
