// SPDX-License-Identifier: GPL-2.0

//! Devices and their one port.

use super::{
    ah::Gid,
    Mtu, //
};
use crate::{
    abstractions::netdev::NetDevice,
    bindings, //
};
use core::ptr::NonNull;
use kernel::{
    impl_flags,
    new_spinlock,
    prelude::*,
    str::CStr,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        SpinLock, //
    },
    types::Opaque, //
};

/// The number of the only port.
pub(super) const PORT: u32 = 1;

/// An RDMA device on a network device.
///
/// A reference keeps the structure in memory, no more: the device may be unregistered at any time.
#[repr(C)]
#[pin_data]
pub(crate) struct Device {
    core: Opaque<bindings::ib_device>,
    /// Empty when the network device, or this device, is going away.
    #[pin]
    netdev: SpinLock<Option<ARef<NetDevice>>>,
}

// SAFETY: The core's half may be used by any thread with the functions used here, and released by
// any. The other half is `Send` and `Sync`.
unsafe impl Send for Device {}

// SAFETY: As above.
unsafe impl Sync for Device {}

// SAFETY: The core's half has a reference count that keeps the whole in memory.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid.
        unsafe { bindings::get_device(Self::base(self.as_raw())) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirements, the caller gives up a reference that it owns.
        unsafe { bindings::put_device(Self::base(obj.as_ptr().cast())) };
    }
}

impl Device {
    /// The generic device in `core`.
    ///
    /// # Safety
    ///
    /// `core` must be valid.
    unsafe fn base(core: *mut bindings::ib_device) -> *mut bindings::device {
        // SAFETY: By the safety requirement. It is the only member of its union that has to do
        // with devices, and at the start of it.
        unsafe { (&raw mut (*core).__bindgen_anon_1).cast() }
    }

    /// # Safety
    ///
    /// `core` must be the first part of a `Device`, and be valid for as long as the returned
    /// reference lives.
    pub(super) unsafe fn from_raw<'a>(core: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the safety requirement.
        unsafe { &*core.cast() }
    }

    pub(in crate::abstractions) fn as_raw(&self) -> *mut bindings::ib_device {
        self.core.get()
    }

    /// Allocates a device that will be on `netdev`, of `size` bytes: what lies behind `Self` is
    /// zero. The result has one reference, which belongs to the core and ends with
    /// `ib_dealloc_device()`.
    ///
    /// # Safety
    ///
    /// `size` must be at least that of `Self`.
    pub(super) unsafe fn alloc(netdev: &NetDevice, size: usize) -> Result<NonNull<Self>> {
        // SAFETY: `size` is that of a structure that begins with an `ib_device`.
        let core = unsafe { bindings::_ib_alloc_device(size, netdev.net()) };
        let device = NonNull::new(core.cast::<Self>()).ok_or(ENOMEM)?;
        let netdev = new_spinlock!(Some(ARef::from(netdev)));
        // SAFETY: The memory is ours and will not move.
        unsafe { pin_init::raw_init(&raw mut (*device.as_ptr()).netdev, netdev) };
        Ok(device)
    }

    /// The name, as programs know it. The user may change it at any time, so this is for messages.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: The name lies inside the device and always ends in a NUL byte.
        unsafe { CStr::from_char_ptr((&raw const (*self.as_raw()).name).cast()) }
    }

    /// The network device, for the moment. `None` when it is going away.
    pub(crate) fn netdev(&self) -> Option<ARef<NetDevice>> {
        self.netdev.lock().clone()
    }

    /// Gives up the network device.
    pub(super) fn detach(&self) {
        let netdev = self.netdev.lock().take();
        // Not under the lock.
        drop(netdev);
    }

    /// Whether `gid` is one of the addresses of the port, under any protocol.
    pub(crate) fn has_gid(&self, gid: &Gid) -> bool {
        let raw = bindings::ib_gid { raw: gid.0 };
        [
            bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP,
            bindings::ib_gid_type_IB_GID_TYPE_ROCE,
        ]
        .into_iter()
        .any(|gid_type| {
            // SAFETY: `self` is valid; the reference that a find takes is given back at once.
            unsafe {
                let attr = bindings::rdma_find_gid_by_port(
                    self.as_raw(),
                    &raw,
                    gid_type,
                    PORT,
                    core::ptr::null_mut(),
                );
                let found = kernel::error::from_err_ptr(attr.cast_mut());
                found.map(|attr| bindings::rdma_put_gid_attr(attr)).is_ok()
            }
        })
    }

    /// Whether it is registered, and stays so until the returned guard is dropped.
    pub(super) fn try_get_registered(&self) -> Option<Registered<'_>> {
        // SAFETY: `self` is valid.
        // Not `then_some`: a guard that is made must have been got.
        unsafe { bindings::sluice_device_try_get(self.as_raw()) }.then(|| Registered(self))
    }

    /// Unregisters the device, if it is registered, and returns when this is done, even if
    /// another thread is at it.
    pub(super) fn unregister(&self) {
        // SAFETY: `self` is valid. The core makes sure that only the first of several threads does
        // it, and that the others wait.
        unsafe { bindings::ib_unregister_device(self.as_raw()) };
    }

    /// Gives programs and the core an identity that follows from the MAC address, so that it is
    /// the same after a reboot.
    ///
    /// It is not the EUI-64 of the MAC address: other RDMA devices on the same network device
    /// have that. The bit of locally administered addresses says so.
    pub(super) fn guid_from_mac(mac: [u8; 6]) -> u64 {
        let [a, b, c, d, e, f] = mac;
        u64::from_be_bytes([a | 2, b, c, b's', b'l', d, e, f])
    }
}

/// A device that cannot be unregistered at the moment.
pub(super) struct Registered<'a>(&'a Device);

impl Registered<'_> {
    /// Tells programs if the state of the port is another than last time.
    pub(super) fn port_changed(&self, netdev: &NetDevice) {
        // SAFETY: Both are valid, and the device is registered.
        unsafe { bindings::ib_dispatch_port_state_event(self.0.as_raw(), netdev.as_raw()) };
    }

    /// Has the device unregistered, some time soon, by another thread.
    pub(super) fn unregister_later(&self) {
        // SAFETY: The device is registered.
        unsafe { bindings::ib_unregister_device_queued(self.0.as_raw()) };
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // SAFETY: It was taken in `try_get_registered`.
        unsafe { bindings::ib_device_put(self.0.as_raw()) };
    }
}

impl_flags!(
    /// What a device can do, as far as it is a matter of yes or no.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) struct DeviceCaps(u32);

    /// One of [`DeviceCaps`].
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum DeviceCap {
        /// The state that the program takes a queue pair to be in is checked.
        CurrQpStateMod = 1 << 7,
        /// It raises an event when a port becomes active.
        PortActiveEvent = 1 << 10,
        /// It has a system image GUID.
        SysImageGuid = 1 << 11,
        /// Reliable connections send receiver-not-ready NAKs.
        RcRnrNakGen = 1 << 12,
    }
);

/// With what other accesses an atomic operation is atomic.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum AtomicCap {
    /// There are no atomic operations.
    #[default]
    None = bindings::ib_atomic_cap_IB_ATOMIC_NONE,
    /// With those of the same device.
    Device = bindings::ib_atomic_cap_IB_ATOMIC_HCA,
}

/// What a device can do. What is left zero does not exist.
#[derive(Clone, Copy, Default)]
pub(crate) struct DeviceAttr {
    /// Identity of the system that the device is part of.
    pub(crate) sys_image_guid: u64,
    /// Vendor: an IEEE OUI, or 0.
    pub(crate) vendor_id: u32,
    /// The vendor's number of the part.
    pub(crate) vendor_part_id: u32,
    /// Hardware version.
    pub(crate) hw_ver: u32,
    /// Firmware version.
    pub(crate) fw_ver: u64,
    /// Largest memory region, in bytes.
    pub(crate) max_mr_size: u64,
    /// The page sizes, as a sum.
    pub(crate) page_size_cap: u64,
    /// Queue pairs.
    pub(crate) max_qp: u32,
    /// Work requests in a queue.
    pub(crate) max_qp_wr: u32,
    /// Data segments of a work request.
    pub(crate) max_sge: u32,
    /// Data segments of an RDMA read.
    pub(crate) max_sge_rd: u32,
    /// Completion queues.
    pub(crate) max_cq: u32,
    /// Entries of a completion queue.
    pub(crate) max_cqe: u32,
    /// Memory regions.
    pub(crate) max_mr: u32,
    /// Protection domains.
    pub(crate) max_pd: u32,
    /// Address handles.
    pub(crate) max_ah: u32,
    /// RDMA reads and atomics outstanding at a queue pair, as responder and as requester.
    pub(crate) max_rd_atomic: u32,
    /// Responder resources of the device.
    pub(crate) max_res_rd_atomic: u32,
    /// Atomic operations.
    pub(crate) atomic_cap: AtomicCap,
    /// Partition keys.
    pub(crate) max_pkeys: u16,
    /// The longest that it takes to answer: 4.096 us times two to the power of this.
    pub(crate) local_ca_ack_delay: u8,
    /// Yes or no.
    pub(crate) caps: DeviceCaps,
}

impl DeviceAttr {
    pub(super) fn to_raw(self) -> bindings::ib_device_attr {
        bindings::ib_device_attr {
            fw_ver: self.fw_ver,
            sys_image_guid: self.sys_image_guid.to_be(),
            max_mr_size: self.max_mr_size,
            page_size_cap: self.page_size_cap,
            vendor_id: self.vendor_id,
            vendor_part_id: self.vendor_part_id,
            hw_ver: self.hw_ver,
            max_qp: self.max_qp,
            max_qp_wr: self.max_qp_wr,
            device_cap_flags: u32::from(self.caps).into(),
            // `rdma link del` may remove it.
            kernel_cap_flags: bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG.into(),
            max_send_sge: self.max_sge,
            max_recv_sge: self.max_sge,
            max_sge_rd: self.max_sge_rd,
            max_cq: self.max_cq,
            max_cqe: self.max_cqe,
            max_mr: self.max_mr,
            max_pd: self.max_pd,
            max_ah: self.max_ah,
            max_qp_rd_atom: self.max_rd_atomic,
            max_qp_init_rd_atom: self.max_rd_atomic,
            max_res_rd_atom: self.max_res_rd_atomic,
            // CAST: The discriminants are those of the C side.
            atomic_cap: self.atomic_cap as bindings::ib_atomic_cap,
            max_pkeys: self.max_pkeys,
            local_ca_ack_delay: self.local_ca_ack_delay,
            ..pin_init::zeroed()
        }
    }
}

/// The state of a port.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PortState {
    /// No link.
    #[default]
    Down,
    /// Ready.
    Active,
}

/// A port.
#[derive(Clone, Copy)]
pub(crate) struct PortAttr {
    /// The state.
    pub(crate) state: PortState,
    /// The largest path MTU that the port knows.
    pub(crate) max_mtu: Mtu,
    /// The largest path MTU that the network device has room for.
    pub(crate) active_mtu: Mtu,
    /// Addresses that the table of the port has room for.
    pub(crate) gid_table_len: u16,
    /// Partition keys that the table of the port has room for.
    pub(crate) pkey_table_len: u16,
    /// Longest message in bytes.
    pub(crate) max_msg_size: u32,
    /// Link speed (`enum ib_port_speed`).
    pub(crate) active_speed: u16,
    /// Link width (`enum ib_port_width`).
    pub(crate) active_width: u8,
}

impl PortAttr {
    pub(super) fn new() -> Self {
        Self {
            state: PortState::Down,
            max_mtu: Mtu::B4096,
            active_mtu: Mtu::B256,
            gid_table_len: 0,
            pkey_table_len: 0,
            max_msg_size: 0,
            // CAST: Both are small.
            active_speed: bindings::ib_port_speed_IB_SPEED_SDR as u16,
            active_width: bindings::ib_port_width_IB_WIDTH_1X as u8,
        }
    }

    /// Fills in `raw`, which the core has zeroed.
    pub(super) fn to_raw(self, raw: &mut bindings::ib_port_attr) {
        (raw.state, raw.phys_state) = match self.state {
            // CAST: The values are small.
            PortState::Down => (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED as u8,
            ),
            PortState::Active => (
                bindings::ib_port_state_IB_PORT_ACTIVE,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP as u8,
            ),
        };
        raw.max_mtu = self.max_mtu.to_verbs();
        raw.active_mtu = self.active_mtu.to_verbs();
        raw.phys_mtu = self.active_mtu.bytes();
        raw.gid_tbl_len = self.gid_table_len.into();
        raw.set_ip_gids(1);
        raw.max_msg_sz = self.max_msg_size;
        raw.pkey_tbl_len = self.pkey_table_len;
        raw.max_vl_num = 1;
        raw.active_speed = self.active_speed;
        raw.active_width = self.active_width;
    }
}
