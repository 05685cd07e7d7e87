// SPDX-License-Identifier: GPL-2.0

//! The lives of devices: how they come and go.
//!
//! A device comes by `rdma link add`. It goes by `rdma link del`, with its network device, with
//! the module, or when another module unregisters all devices that have its driver id (that of
//! rxe). The core sees to it that only one of them does it; what is left to us is that no code of
//! the module runs in another thread when the module is gone. [`Device::unregister`] is such a
//! fence, so [`DEVICES`] keeps a reference to every device until that has returned for it.
//!
//! # Lock order
//!
//! 1. the RTNL lock,
//! 2. `DEVICES`,
//! 3. the network device slot of a device.
//!
//! A device is registered and unregistered with none of them held: both take the RTNL lock.

use super::{
    device::Device,
    ops::{
        DeviceObject,
        Ops, //
    },
    Driver, //
};
use crate::{
    abstractions::netdev::{
        self,
        NetDevice,
        Notifier, //
    },
    bindings, //
};
use core::{
    marker::PhantomData,
    mem::size_of,
    sync::atomic::{
        AtomicBool,
        Ordering, //
    }, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    str::CStr,
    sync::{
        aref::ARef,
        global_lock, //
    },
    types::{
        Opaque,
        ScopeGuard, //
    }, //
};

global_lock! {
    // SAFETY: Initialised by `Registration::new`, before anything else here is used.
    unsafe(uninit) static DEVICES: Mutex<KVec<ARef<Device>>> = KVec::new();
}

/// Whether there has been a [`Registration`].
static USED: AtomicBool = AtomicBool::new(false);

/// Enters `device` among the devices.
///
/// # Errors
///
/// `EEXIST` if there is one on the same network device, `ENODEV` if that is going away.
fn enter(device: &Device, netdev: &NetDevice) -> Result {
    // From here on the notifier will tell when the network device goes away.
    netdev.while_registered(|| {
        let mut devices = DEVICES.lock();
        if let Some(other) = devices.iter().find(|other| is_on(other, netdev)) {
            pr_warn!("{} is used by {} already\n", netdev.name(), other.name());
            return Err(EEXIST);
        }
        devices.push(device.into(), GFP_KERNEL)?;
        Ok(())
    })
}

/// Takes the first device that `wanted` wants.
fn remove(wanted: impl Fn(&Device) -> bool) -> Option<ARef<Device>> {
    let mut devices = DEVICES.lock();
    let index = devices.iter().position(|device| wanted(device))?;
    devices.remove(index).ok()
}

/// Unregisters those devices that `wanted` wants. No operation of theirs runs after this.
fn unregister(wanted: impl Fn(&Device) -> bool) {
    while let Some(device) = remove(&wanted) {
        device.unregister();
    }
}

fn is_on(device: &Device, netdev: &NetDevice) -> bool {
    device
        .netdev()
        .is_some_and(|other| core::ptr::eq(&*other, netdev))
}

/// Whether the device is gone or going, so that all that is left to do is to let go of it.
fn is_detached(device: &Device) -> bool {
    device.netdev().is_none()
}

/// Checks that there can be a device on `netdev`.
fn mac_of(netdev: &NetDevice) -> Result<[u8; 6]> {
    let Some(mac) = netdev.mac() else {
        pr_warn!("{} is not an Ethernet device\n", netdev.name());
        return Err(EINVAL);
    };
    if netdev.is_vlan() {
        pr_warn!(
            "{} is a VLAN: take the device below it, which has the addresses of its VLANs too\n",
            netdev.name(),
        );
        return Err(EINVAL);
    }
    Ok(mac)
}

/// Makes and registers a device called `name` on `netdev`.
fn add<D: Driver>(name: &CStr, netdev: &NetDevice) -> Result {
    let mac = mac_of(netdev)?;
    unregister(is_detached);

    // SAFETY: A `DeviceObject` begins with a `Device`.
    let device = unsafe { Device::alloc(netdev, size_of::<DeviceObject<D>>()) }?;
    let dealloc = ScopeGuard::new(|| {
        // SAFETY: The device has been allocated, and is not registered.
        unsafe {
            device.as_ref().detach();
            bindings::ib_dealloc_device(device.as_ptr().cast());
        }
    });
    // SAFETY: The device is valid.
    let device = ARef::from(unsafe { device.as_ref() });

    enter(&device, netdev)?;
    let leave = ScopeGuard::new(|| drop(remove(|other| core::ptr::eq(other, &*device))));

    let data = D::probe(device.clone(), name)?;
    let core = device.as_raw();
    // SAFETY: The device is ours until it is registered.
    unsafe {
        DeviceObject::<D>::put(core.cast(), data);
        // The driver's half is there, so the operations may be called.
        bindings::ib_set_device_ops(core, &Ops::<D>::TABLE);
        (*core).node_type = bindings::RDMA_NODE_IB_CA as u8;
        (*core).node_guid = Device::guid_from_mac(mac).to_be();
        (*core).phys_port_cnt = super::device::PORT;
        (*core).num_comp_vectors = 1;
        (*core).uverbs_cmd_mask |= Ops::<D>::EXTRA_COMMANDS;
        (*core).driver_def = bindings::sluice_methods(Some(Ops::<D>::teardown));
    }
    // SAFETY: The device is complete. It has no DMA device: the core hands us kernel addresses.
    to_result(unsafe {
        bindings::ib_register_device(core, name.as_char_ptr(), core::ptr::null_mut())
    })?;

    // Now it is the core that deallocates it, and `unregister` that removes it from the list.
    dealloc.dismiss();
    leave.dismiss();

    // The notifier may have wanted to unregister it when it was not registered yet.
    if is_detached(&device) {
        unregister(|other| core::ptr::eq(other, &*device));
        // In case another thread has taken it from the list.
        device.unregister();
        return Err(ENODEV);
    }
    Ok(())
}

/// # Safety
///
/// May only be called by the core, as the `newlink` operation of a type of links.
unsafe extern "C" fn newlink<D: Driver>(
    name: *const c_char,
    netdev: *mut bindings::net_device,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirement the core gives us a string and a network device that are valid during the call.
        let (name, netdev) = unsafe { (CStr::from_char_ptr(name), NetDevice::from_raw(netdev)) };
        add::<D>(name, netdev)?;
        Ok(0)
    })
}

/// Lets devices follow their network devices.
struct Follower;

impl netdev::Observer for Follower {
    fn event(netdev: &NetDevice, event: netdev::Event) {
        let devices = DEVICES.lock();
        for device in devices.iter().filter(|device| is_on(device, netdev)) {
            let registered = device.try_get_registered();
            match event {
                netdev::Event::Link => {
                    if let Some(registered) = registered {
                        registered.port_changed(netdev);
                    }
                }
                netdev::Event::Unregister => {
                    // The network device waits for this reference; the rest can be done later.
                    device.detach();
                    if let Some(registered) = registered {
                        registered.unregister_later();
                    }
                }
            }
        }
    }
}

/// The registration of a driver as a type of links.
///
/// When this is dropped, all devices are unregistered, also those that programs use: these get
/// `IBV_EVENT_DEVICE_FATAL`, and `EIO` for every further verb.
///
/// # Invariants
///
/// `ops` is registered.
pub(crate) struct Registration<D: Driver> {
    ops: Pin<KBox<Opaque<bindings::rdma_link_ops>>>,
    _notifier: Notifier<Follower>,
    _driver: PhantomData<fn(D)>,
}

// SAFETY: The operations are changed only by the functions that register and unregister them.
unsafe impl<D: Driver> Send for Registration<D> {}

// SAFETY: Nothing can be done with a shared reference.
unsafe impl<D: Driver> Sync for Registration<D> {}

impl<D: Driver> Registration<D> {
    /// Registers the driver.
    ///
    /// # Errors
    ///
    /// `EBUSY` from the second time on: a module has one driver.
    pub(crate) fn new() -> Result<Self> {
        if USED.swap(true, Ordering::Relaxed) {
            return Err(EBUSY);
        }
        // SAFETY: Only one thread ever gets here, and only once.
        unsafe { DEVICES.init() };
        let ops = KBox::pin(
            Opaque::new(bindings::rdma_link_ops {
                type_: D::LINK_TYPE.as_char_ptr(),
                newlink: Some(newlink::<D>),
                ..pin_init::zeroed()
            }),
            GFP_KERNEL,
        )?;
        let notifier = Notifier::register()?;
        // SAFETY: The operations stay where they are until they are unregistered in `drop`.
        unsafe { bindings::rdma_link_register(ops.get()) };
        // INVARIANT: Just registered.
        Ok(Self {
            ops,
            _notifier: notifier,
            _driver: PhantomData,
        })
    }
}

impl<D: Driver> Drop for Registration<D> {
    fn drop(&mut self) {
        // No new devices. This waits for `newlink`.
        // SAFETY: By the type invariant they are registered.
        unsafe { bindings::rdma_link_unregister(self.ops.get()) };
        unregister(|_| true);
        // A static is never dropped.
        *DEVICES.lock() = KVec::new();
        // Callbacks of the module that the devices have left behind.
        // SAFETY: May be called in any context that may sleep.
        unsafe { bindings::rcu_barrier() };
    }
}
