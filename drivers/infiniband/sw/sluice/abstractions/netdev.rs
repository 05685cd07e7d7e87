// SPDX-License-Identifier: GPL-2.0

//! Network devices: references to them, and the events of their lives.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    str::CStr,
    sync::aref::AlwaysRefCounted,
    types::{
        Opaque,
        ScopeGuard, //
    }, //
};

/// A network device.
///
/// A reference keeps the structure in memory. It also keeps the unregistration of the device from
/// finishing, so whoever holds one for long has to give it back on [`Event::Unregister`].
#[repr(transparent)]
pub(crate) struct NetDevice(Opaque<bindings::net_device>);

// SAFETY: A network device is shared by the whole kernel; what is read here is meant to be read by
// any thread, and the reference count may be dropped by any.
unsafe impl Send for NetDevice {}

// SAFETY: As above.
unsafe impl Sync for NetDevice {}

// SAFETY: The reference count of a network device keeps it in memory, and every network device
// has one.
unsafe impl AlwaysRefCounted for NetDevice {
    fn inc_ref(&self) {
        // SAFETY: `self` is a valid network device.
        unsafe { bindings::sluice_netdev_hold(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirements, the caller gives up a reference that it owns.
        unsafe { bindings::sluice_netdev_put(obj.as_ptr().cast()) };
    }
}

impl NetDevice {
    /// # Safety
    ///
    /// `ptr` must be valid for as long as the returned reference lives.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::net_device) -> &'a Self {
        // SAFETY: By the safety requirement; `Self` is transparent.
        unsafe { &*ptr.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// The network namespace it is in.
    pub(super) fn net(&self) -> *mut bindings::net {
        // SAFETY: `self` is a valid network device.
        unsafe { bindings::sluice_netdev_net(self.as_raw()) }
    }

    /// The name. It may change at any time, so this is for messages.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: The name lies inside the device and always ends in a NUL byte.
        unsafe { CStr::from_char_ptr(bindings::sluice_netdev_name(self.as_raw())) }
    }

    /// The present MTU: bytes of payload of a frame.
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: `self` is a valid network device.
        unsafe { bindings::sluice_netdev_mtu(self.as_raw()) }
    }

    /// Whether it is up and has a carrier.
    pub(crate) fn is_up(&self) -> bool {
        // SAFETY: `self` is a valid network device.
        unsafe { bindings::sluice_netdev_is_up(self.as_raw()) }
    }

    /// Whether it is a VLAN on another device.
    pub(crate) fn is_vlan(&self) -> bool {
        // SAFETY: `self` is a valid network device.
        unsafe { bindings::sluice_netdev_is_vlan(self.as_raw()) }
    }

    /// Whether its driver knows the speed of the link.
    pub(crate) fn has_speed(&self) -> bool {
        // SAFETY: `self` is a valid network device.
        unsafe { bindings::sluice_netdev_has_speed(self.as_raw()) }
    }

    /// The MAC address. `None` if it is not an Ethernet device: the loopback device is not.
    pub(crate) fn mac(&self) -> Option<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: `self` is a valid network device and `mac` has room for an Ethernet address.
        unsafe { bindings::sluice_netdev_mac(self.as_raw(), mac.as_mut_ptr()) }.then_some(mac)
    }

    /// Runs `f` unless the device is being unregistered, and holds off its unregistration and
    /// all events of network devices meanwhile (it takes the RTNL lock).
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is being unregistered, otherwise what `f` says.
    pub(crate) fn while_registered<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        // SAFETY: It is released by the guard.
        unsafe { bindings::rtnl_lock() };
        // SAFETY: It has been taken above.
        let _unlock = ScopeGuard::new(|| unsafe { bindings::rtnl_unlock() });

        // SAFETY: `self` is a valid network device.
        if !unsafe { bindings::sluice_netdev_is_registered(self.as_raw()) } {
            return Err(ENODEV);
        }
        f()
    }
}

/// What happened to a network device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its link may have come up or gone down.
    Link,
    /// It is going away, or to another network namespace. Give back every reference.
    Unregister,
}

impl Event {
    fn from_raw(event: c_ulong) -> Option<Self> {
        // CAST: The values of `enum netdev_cmd` are small.
        match event as bindings::netdev_cmd {
            bindings::netdev_cmd_NETDEV_UP
            | bindings::netdev_cmd_NETDEV_DOWN
            | bindings::netdev_cmd_NETDEV_CHANGE => Some(Self::Link),
            bindings::netdev_cmd_NETDEV_UNREGISTER => Some(Self::Unregister),
            _ => None,
        }
    }
}

/// Someone who wants to know about the events of all network devices.
pub(crate) trait Observer {
    /// `event` has happened to `netdev`. Called with the RTNL lock held; may sleep.
    fn event(netdev: &NetDevice, event: Event);
}

/// The registration of an [`Observer`], which ends when this is dropped.
///
/// # Invariants
///
/// `block` is registered.
pub(crate) struct Notifier<O: Observer> {
    block: Pin<KBox<Opaque<bindings::notifier_block>>>,
    _observer: PhantomData<fn(O)>,
}

// SAFETY: A notifier block is changed only by the functions that register and unregister it.
unsafe impl<O: Observer> Send for Notifier<O> {}

// SAFETY: Nothing can be done with a shared reference.
unsafe impl<O: Observer> Sync for Notifier<O> {}

impl<O: Observer> Notifier<O> {
    /// Registers the observer. It hears at once of the devices that exist already.
    pub(crate) fn register() -> Result<Self> {
        let block = KBox::pin(
            Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::notifier_call),
                ..pin_init::zeroed()
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The block stays where it is until it is unregistered in `drop`.
        to_result(unsafe { bindings::register_netdevice_notifier(block.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self {
            block,
            _observer: PhantomData,
        })
    }

    /// # Safety
    ///
    /// May only be called by a chain of notifiers for network devices.
    unsafe extern "C" fn notifier_call(
        _block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        if let Some(event) = Event::from_raw(event) {
            // SAFETY: By the safety requirement `info` names a device, which is valid during the
            // call.
            let netdev = unsafe { NetDevice::from_raw(bindings::sluice_notifier_netdev(info)) };
            O::event(netdev, event);
        }
        // CAST: The value is zero.
        bindings::NOTIFY_DONE as c_int
    }
}

impl<O: Observer> Drop for Notifier<O> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the block is registered. The result says otherwise only if
        // it is not.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get()) };
    }
}
