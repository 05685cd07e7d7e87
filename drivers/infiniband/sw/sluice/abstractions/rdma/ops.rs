// SPDX-License-Identifier: GPL-2.0

//! From the core's operations to the functions of a [`Driver`].
//!
//! Each function below is called by the core as an operation of a device of ours, so each may rely
//! on this: pointers to objects are valid during the call; the object that an operation creates
//! is the first part of the [`Object`] that [`Ops::TABLE`] has given the size of; every other
//! object has been created by the corresponding operation here, which succeeded, and has not been
//! destroyed. "By the core's contract" means these rules.

#![expect(
    clippy::missing_safety_doc,
    reason = "the contract is the same for all operations, and stands above"
)]

use super::{
    ah::AhAttr,
    attributes::Attributes,
    cq::{
        Arm,
        CqEvents,
        CqInit, //
    },
    device::{
        Device,
        DeviceAttr,
        PortAttr,
        PORT, //
    },
    event::{
        Live,
        Source, //
    },
    mr::{
        AccessFlags,
        MrInit, //
    },
    object::Object,
    qp::{
        QpAttr,
        QpCaps,
        QpEvents,
        QpInit,
        QpType, //
    },
    resource,
    stats,
    teardown::Call,
    user::{
        self,
        Context,
        UserCall, //
    },
    Driver,
    QpAttrMask, //
};
use crate::{
    abstractions::umem::UserMemory,
    bindings::{
        self,
        ib_ah,
        ib_cq,
        ib_device,
        ib_mr,
        ib_pd,
        ib_qp,
        ib_ucontext,
        ib_udata, //
    },
};
use core::{
    marker::PhantomData,
    mem::{
        size_of,
        MaybeUninit, //
    }, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// The objects of the driver `D`, behind the core's.
pub(super) type DeviceObject<D> = Object<Device, Arc<<D as Driver>::Device>>;
type ContextObject = Object<ib_ucontext, Arc<Context>>;
type PdObject<D> = Object<ib_pd, Arc<<D as Driver>::Pd>>;
type AhObject<D> = Object<ib_ah, Arc<<D as Driver>::Ah>>;
type CqObject<D> = Object<ib_cq, Live<<D as Driver>::Cq, ib_cq>>;
type QpObject<D> = Object<ib_qp, Live<<D as Driver>::Qp, ib_qp>>;
type MrObject<D> = Object<ib_mr, Arc<<D as Driver>::Mr>>;

/// The operations of devices of the driver `D`.
pub(super) struct Ops<D>(PhantomData<D>);

impl<D: Driver> Ops<D> {
    /// What the core is told at the birth of a device.
    ///
    /// What kernel consumers need is left out: see the documentation of the parent module.
    pub(super) const TABLE: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: D::MODULE.as_ptr(),
        // The provider library that knows our rings is that of rxe; it stamps this id into every
        // request.
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_RXE,
        uverbs_abi_ver: 2,

        query_device: Some(Self::query_device),
        query_port: Some(Self::query_port),
        query_pkey: Some(Self::query_pkey),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        get_netdev: Some(Self::get_netdev),
        alloc_hw_port_stats: Some(Self::alloc_hw_port_stats),
        get_hw_stats: Some(Self::get_hw_stats),
        dealloc_driver: Some(Self::dealloc_driver),
        device_group: Attributes::<D>::GROUP,

        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(Self::mmap),
        mmap_free: Some(Self::mmap_free),

        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        create_user_ah: Some(Self::create_user_ah),
        destroy_ah: Some(Self::destroy_ah),
        create_user_cq: Some(Self::create_user_cq),
        resize_user_cq: Some(Self::resize_user_cq),
        req_notify_cq: Some(Self::req_notify_cq),
        destroy_cq: Some(Self::destroy_cq),
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        reg_user_mr: Some(Self::reg_user_mr),
        dereg_mr: Some(Self::dereg_mr),

        fill_res_cq_entry: Some(Self::fill_res_cq_entry),
        fill_res_qp_entry: Some(Self::fill_res_qp_entry),
        fill_res_mr_entry: Some(Self::fill_res_mr_entry),

        size_ib_ucontext: size_of::<ContextObject>(),
        size_ib_pd: size_of::<PdObject<D>>(),
        size_ib_ah: size_of::<AhObject<D>>(),
        size_ib_cq: size_of::<CqObject<D>>(),
        size_ib_qp: size_of::<QpObject<D>>(),
        ..pin_init::zeroed()
    };

    /// The commands that the core lets programs use only if a driver says so.
    pub(super) const EXTRA_COMMANDS: u64 = 1
        << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND
        | 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;

    /// The driver's half of a device.
    ///
    /// # Safety
    ///
    /// `device` must be a device of ours, and valid.
    pub(super) unsafe fn device<'a>(device: *mut ib_device) -> &'a Arc<D::Device> {
        // SAFETY: By the safety requirement. The value is there from before registration until
        // `dealloc_driver`.
        unsafe { DeviceObject::<D>::get(device.cast()) }
    }

    /// The system call that `udata` belongs to.
    ///
    /// # Safety
    ///
    /// `udata` must be what the core has given to an operation that is running.
    unsafe fn call<'a>(udata: *mut ib_udata) -> Result<UserCall<'a>> {
        // SAFETY: By the safety requirement; the context is one of this device.
        unsafe { UserCall::new(udata, |ucontext| ContextObject::get(ucontext)) }
    }

    unsafe extern "C" fn query_device(
        device: *mut ib_device,
        raw: *mut bindings::ib_device_attr,
        _udata: *mut ib_udata,
    ) -> c_int {
        let mut attr = DeviceAttr {
            // SAFETY: By the core's contract. The GUID is set before registration.
            sys_image_guid: u64::from_be(unsafe { (*device).node_guid }),
            ..DeviceAttr::default()
        };
        // SAFETY: By the core's contract.
        D::query_device(unsafe { Self::device(device) }, &mut attr);
        // SAFETY: By the core's contract.
        unsafe { raw.write(attr.to_raw()) };
        0
    }

    unsafe extern "C" fn query_port(
        device: *mut ib_device,
        port: u32,
        raw: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            if port != PORT {
                return Err(EINVAL);
            }
            // SAFETY: By the core's contract.
            let attr = unsafe { Self::port_attr(device) };
            // SAFETY: By the core's contract.
            attr.to_raw(unsafe { &mut *raw });
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// `device` must be a device of ours, and valid.
    unsafe fn port_attr(device: *mut ib_device) -> PortAttr {
        // SAFETY: By the safety requirement.
        let netdev = unsafe { Device::from_raw(device) }.netdev();
        let mut attr = PortAttr::new();
        // The core warns of a speed that it does not get to know.
        if netdev.as_ref().is_some_and(|netdev| netdev.has_speed()) {
            // SAFETY: By the safety requirement. If it fails the values stay as they are.
            unsafe {
                bindings::ib_get_eth_speed(
                    device,
                    PORT,
                    &mut attr.active_speed,
                    &mut attr.active_width,
                )
            };
        }
        // SAFETY: By the safety requirement.
        let data = unsafe { Self::device(device) };
        D::query_port(data, netdev.as_deref(), &mut attr);
        attr
    }

    unsafe extern "C" fn query_pkey(
        device: *mut ib_device,
        _port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe { *pkey = D::query_pkey(Self::device(device), index)? };
            Ok(0)
        })
    }

    unsafe extern "C" fn get_port_immutable(
        device: *mut ib_device,
        _port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        // SAFETY: By the core's contract.
        let attr = unsafe { Self::port_attr(device) };
        // SAFETY: By the core's contract.
        let immutable = unsafe { &mut *immutable };
        immutable.gid_tbl_len = attr.gid_table_len.into();
        immutable.pkey_tbl_len = attr.pkey_table_len.into();
        // RoCE v2 with Ethernet addresses. Neither MADs nor a connection manager: those need
        // queue pairs in the kernel.
        immutable.core_cap_flags =
            bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP | bindings::RDMA_CORE_CAP_ETH_AH;
        0
    }

    unsafe extern "C" fn get_link_layer(
        _device: *mut ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
    }

    unsafe extern "C" fn get_netdev(
        device: *mut ib_device,
        _port: u32,
    ) -> *mut bindings::net_device {
        // SAFETY: By the core's contract.
        match unsafe { Device::from_raw(device) }.netdev() {
            // The caller takes over the reference.
            Some(netdev) => ARef::into_raw(netdev).as_ptr().cast(),
            None => core::ptr::null_mut(),
        }
    }

    unsafe extern "C" fn alloc_hw_port_stats(
        _device: *mut ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        stats::alloc(D::COUNTERS)
    }

    unsafe extern "C" fn get_hw_stats(
        device: *mut ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        from_result(|| {
            if port != PORT {
                return Err(EINVAL);
            }
            // SAFETY: By the core's contract; the lock of the statistics is held.
            let values = unsafe { stats::values(stats) };
            // SAFETY: By the core's contract.
            D::read_counters(unsafe { Self::device(device) }, values);
            // CAST: There are only a few.
            Ok(values.len() as c_int)
        })
    }

    unsafe extern "C" fn dealloc_driver(device: *mut ib_device) {
        // SAFETY: By the core's contract. This is the last operation, so nobody uses the value.
        let (common, data) = unsafe {
            (
                Device::from_raw(device),
                DeviceObject::<D>::take(device.cast()),
            )
        };
        D::remove(&data);
        common.detach();
    }

    unsafe extern "C" fn alloc_ucontext(
        ucontext: *mut ib_ucontext,
        _udata: *mut ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe { ContextObject::put(ucontext, Context::new()?) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_ucontext(ucontext: *mut ib_ucontext) {
        // SAFETY: By the core's contract, no system call uses the context any more.
        let context = unsafe { ContextObject::take(ucontext) };
        // SAFETY: By the core's contract the context exists until we return.
        unsafe { context.close() };
    }

    // There is nothing to do: programs have mapped ordinary memory, which stays theirs. That this
    // operation exists is what lets a device go while programs use it.
    unsafe extern "C" fn disassociate_ucontext(_ucontext: *mut ib_ucontext) {}

    unsafe extern "C" fn mmap(
        ucontext: *mut ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe { user::mmap(ucontext, vma) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn mmap_free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: By the core's contract, this was the last reference to an entry of ours.
        unsafe { user::free_entry(entry) };
    }

    unsafe extern "C" fn alloc_pd(pd: *mut ib_pd, _udata: *mut ib_udata) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe { PdObject::<D>::put(pd, D::alloc_pd(Self::device((*pd).device))?) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_pd(pd: *mut ib_pd, _udata: *mut ib_udata) -> c_int {
        // SAFETY: By the core's contract, nobody uses the object any more.
        D::dealloc_pd(&unsafe { PdObject::<D>::take(pd) });
        0
    }

    unsafe extern "C" fn create_user_ah(
        ah: *mut ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        udata: *mut ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract. The core has resolved the address.
            let (pd, attr, mut call) = unsafe {
                (
                    PdObject::<D>::get((*ah).pd),
                    AhAttr::from_raw(&*(*init).ah_attr)?,
                    Self::call(udata)?,
                )
            };
            let object = D::create_ah(pd, &attr, &mut call)?;
            // SAFETY: By the core's contract.
            unsafe { AhObject::<D>::put(ah, object) };
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_ah(ah: *mut ib_ah, _flags: u32) -> c_int {
        // SAFETY: By the core's contract, nobody uses the object any more.
        D::destroy_ah(&unsafe { AhObject::<D>::take(ah) });
        0
    }

    unsafe extern "C" fn create_user_cq(
        cq: *mut ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            let (device, attr, mut call) = unsafe {
                (
                    Self::device((*cq).device),
                    &*attr,
                    Self::call(bindings::sluice_attrs_udata(attrs))?,
                )
            };
            if attr.flags != 0 {
                return Err(EOPNOTSUPP);
            }
            // Of completion vectors there is one, so there is nothing to choose.
            let init = CqInit { cqe: attr.cqe };
            // SAFETY: The source is dropped at the latest when the object is destroyed.
            let source = unsafe { Source::new(cq) }?;
            let events = CqEvents(source.target());
            let (object, cqe) = D::create_cq(device, &init, events, &mut call)?;
            // SAFETY: By the core's contract.
            unsafe {
                // CAST: A number of entries that there is memory for.
                (*cq).cqe = cqe as c_int;
                CqObject::<D>::put(
                    cq,
                    Live {
                        _source: source,
                        object,
                    },
                );
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn resize_user_cq(
        cq: *mut ib_cq,
        cqe: c_uint,
        udata: *mut ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            let (live, mut call) = unsafe { (CqObject::<D>::get(cq), Self::call(udata)?) };
            let cqe = D::resize_cq(&live.object, cqe, &mut call)?;
            // CAST: A number of entries that there is memory for.
            // SAFETY: By the core's contract.
            unsafe { (*cq).cqe = cqe as c_int };
            Ok(0)
        })
    }

    unsafe extern "C" fn req_notify_cq(
        cq: *mut ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            let live = unsafe { CqObject::<D>::get(cq) };
            let report = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
            let missed = D::req_notify_cq(&live.object, Arm::from_raw(flags))?;
            Ok((report && missed).into())
        })
    }

    unsafe extern "C" fn destroy_cq(cq: *mut ib_cq, _udata: *mut ib_udata) -> c_int {
        // SAFETY: By the core's contract, nobody uses the object any more.
        D::destroy_cq(&unsafe { CqObject::<D>::take(cq) }.object);
        0
    }

    unsafe extern "C" fn create_qp(
        qp: *mut ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            let (raw, mut call) = unsafe { (&mut *attr, Self::call(udata)?) };
            // SAFETY: By the core's contract they are null or valid.
            let (pd, send_cq, recv_cq) = unsafe { ((*qp).pd, raw.send_cq, raw.recv_cq) };
            if pd.is_null()
                || send_cq.is_null()
                || recv_cq.is_null()
                || !raw.srq.is_null()
                || !raw.rwq_ind_tbl.is_null()
                || raw.create_flags != 0
            {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: By the core's contract.
            let (pd, send_cq, recv_cq) = unsafe {
                (
                    PdObject::<D>::get(pd),
                    CqObject::<D>::get(send_cq),
                    CqObject::<D>::get(recv_cq),
                )
            };
            let init = QpInit {
                qp_type: QpType::from_raw(raw.qp_type)?,
                caps: QpCaps::from_raw(&raw.cap),
                signal_all: raw.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                send_cq: send_cq.object.clone(),
                recv_cq: recv_cq.object.clone(),
            };
            // SAFETY: The source is dropped at the latest when the object is destroyed.
            let source = unsafe { Source::new(qp) }?;
            let events = QpEvents(source.target());
            let (object, caps) = D::create_qp(pd, &init, events, &mut call)?;
            raw.cap = caps.to_raw();
            // SAFETY: By the core's contract.
            unsafe {
                (*qp).qp_num = D::qp_num(&object);
                QpObject::<D>::put(
                    qp,
                    Live {
                        _source: source,
                        object,
                    },
                );
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn modify_qp(
        qp: *mut ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        _udata: *mut ib_udata,
    ) -> c_int {
        from_result(|| {
            // CAST: Flags are bits.
            let mask = QpAttrMask::from_bits(mask as u32);
            // SAFETY: By the core's contract. The core has resolved the address if there is one.
            let (live, attr) = unsafe { (QpObject::<D>::get(qp), QpAttr::from_raw(&*attr, mask)?) };
            D::modify_qp(&live.object, &attr, mask)?;
            Ok(0)
        })
    }

    unsafe extern "C" fn query_qp(
        qp: *mut ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            let (live, attr, init) = unsafe { (QpObject::<D>::get(qp), &mut *attr, &mut *init) };
            let info = D::query_qp(&live.object)?;
            info.attr.to_raw(attr);
            attr.cap = info.caps.to_raw();
            init.cap = info.caps.to_raw();
            init.sq_sig_type = if info.signal_all {
                bindings::ib_sig_type_IB_SIGNAL_ALL_WR
            } else {
                bindings::ib_sig_type_IB_SIGNAL_REQ_WR
            };
            // SAFETY: By the core's contract.
            init.qp_type = unsafe { (*qp).qp_type };
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_qp(qp: *mut ib_qp, _udata: *mut ib_udata) -> c_int {
        // SAFETY: By the core's contract, nobody uses the object any more.
        D::destroy_qp(&unsafe { QpObject::<D>::take(qp) }.object);
        0
    }

    unsafe extern "C" fn post_send(
        qp: *mut ib_qp,
        wr: *const bindings::ib_send_wr,
        bad_wr: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        from_result(|| {
            // The provider library puts work requests into the ring and then calls without any.
            if !wr.is_null() {
                // SAFETY: By the core's contract.
                unsafe { *bad_wr = wr };
                return Err(EOPNOTSUPP);
            }
            // SAFETY: By the core's contract.
            D::post_send_doorbell(&unsafe { QpObject::<D>::get(qp) }.object)?;
            Ok(0)
        })
    }

    unsafe extern "C" fn reg_user_mr(
        pd: *mut ib_pd,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        _udata: *mut ib_udata,
    ) -> *mut ib_mr {
        let register = || {
            if !dmah.is_null() {
                return Err(EOPNOTSUPP);
            }
            let access = AccessFlags::from_raw(access)?;
            // SAFETY: By the core's contract.
            let (pd, device) = unsafe { (PdObject::<D>::get(pd), Device::from_raw((*pd).device)) };
            let mr = KBox::<MrObject<D>>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
            let memory = UserMemory::pin(device, start, length.try_into()?, access)?;
            let init = MrInit {
                iova,
                access,
                memory,
            };
            let (object, keys) = D::reg_user_mr(pd, init)?;
            let mr = KBox::into_raw(mr).cast::<ib_mr>();
            // SAFETY: The memory is ours, and zeroed, which is a valid `ib_mr`.
            unsafe {
                (*mr).lkey = keys.lkey;
                (*mr).rkey = keys.rkey;
                MrObject::<D>::put(mr, object);
            }
            Ok(mr)
        };
        register().unwrap_or_else(|error: Error| error.to_ptr())
    }

    unsafe extern "C" fn dereg_mr(mr: *mut ib_mr, _udata: *mut ib_udata) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            D::dereg_mr(unsafe { MrObject::<D>::get(mr) })?;
            // SAFETY: By the core's contract, nobody uses the region any more. It is a box from
            // `reg_user_mr`.
            unsafe {
                drop(MrObject::<D>::take(mr));
                drop(KBox::from_raw(mr.cast::<MaybeUninit<MrObject<D>>>()));
            }
            Ok(0)
        })
    }

    /// The driver's own method `SLUICE_METHOD_TEARDOWN`.
    pub(super) unsafe extern "C" fn teardown(attrs: *mut bindings::uverbs_attr_bundle) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            let call = unsafe { Call::new(attrs) };
            let context = call.context()?;
            // SAFETY: By the core's contract the context is one of a device of ours.
            let device = unsafe { Self::device((*context).device) };
            let carry_out = || {
                let request = call.request::<D>(
                    // SAFETY: By the core's contract.
                    |qp| unsafe { QpObject::<D>::get(qp) }.object.clone(),
                    // SAFETY: As above.
                    |mr| unsafe { MrObject::<D>::get(mr) }.clone(),
                )?;
                let room = call.room(request.actions.len())?;
                let results = D::teardown(device, &request)?;
                Ok((room, results))
            };
            let (mut room, results) = carry_out().map_err(|refusal| call.refuse(refusal))?;
            call.respond(&mut room, &results)?;
            Ok(0)
        })
    }

    // The core takes an object out of its list, and waits for those who are in the following
    // functions with it, before it has the object destroyed; and it puts an object there only when
    // it has been created. It holds no lock here but the mutex of the one who asks.

    unsafe extern "C" fn fill_res_cq_entry(
        message: *mut bindings::sk_buff,
        cq: *mut ib_cq,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe {
                let live = CqObject::<D>::get(cq);
                resource::fill(message, |details| D::show_cq(&live.object, details))?;
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn fill_res_qp_entry(
        message: *mut bindings::sk_buff,
        qp: *mut ib_qp,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe {
                let live = QpObject::<D>::get(qp);
                resource::fill(message, |details| D::show_qp(&live.object, details))?;
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn fill_res_mr_entry(
        message: *mut bindings::sk_buff,
        mr: *mut ib_mr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the core's contract.
            unsafe {
                let object = MrObject::<D>::get(mr);
                resource::fill(message, |details| D::show_mr(object, details))?;
            }
            Ok(0)
        })
    }
}
