// SPDX-License-Identifier: GPL-2.0

//! A device: what all its objects share, and what it can do.

#![forbid(unsafe_code)]

use super::{
    cq::MAX_CQE,
    qp::{
        FIRST_QPN,
        LAST_QPN,
        MAX_RD_ATOMIC,
        MAX_WR, //
    },
};
use crate::{
    abstractions::{
        rdma::{
            self,
            AtomicCap,
            DeviceAttr,
            DeviceCap,
            DeviceCaps,
            Gid, //
        },
        softirq::Lock,
        table::Table,
        workqueue::WorkQueue,
    },
    keys::{
        KeyTable,
        MAX_REGIONS,
        MAX_SGE, //
    },
    observe::{
        counters::Counters,
        debugfs::Files,
        waits::Waits, //
    },
    teardown::{
        commit::Commit,
        hold::Holds,
        policy::Policies,
        settings::Defaults, //
    },
    transport::qp::Qp, //
};
use core::sync::atomic::AtomicU32;
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    static_lock_class,
    str::CStr,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// Queue pairs, completion queues, protection domains and address handles: memory ends first.
const MAX_OBJECTS: u32 = 1 << 20;
/// Queue pairs: their numbers have 24 bits, and the first ones are taken.
const MAX_QP: u32 = MAX_OBJECTS;
/// A region may be as large as a program's address space.
const MAX_MR_SIZE: u64 = 1 << 47;
/// Every power of two from 4 KiB on: the device splits everything into 4 KiB pages.
const PAGE_SIZES: u64 = 0xffff_f000;
/// 4.096 us times two to the power of this, 134 ms: how long the answering work item may have to
/// wait for a CPU.
const LOCAL_CA_ACK_DELAY: u8 = 15;

/// What all objects of a device share.
pub(crate) struct Device {
    /// The core's half.
    pub(crate) handle: ARef<rdma::Device>,
    /// The keys of all memory regions.
    pub(crate) keys: KeyTable,
    /// The queue pairs by their numbers.
    pub(crate) qps: Arc<Table<Arc<Qp>>>,
    /// Where the queue pairs have their work done: one item for each processor at a time, so that
    /// it is the order of the queue that decides who is next, and not the scheduler.
    pub(crate) workqueue: WorkQueue,
    /// Where processors that have nothing else to do attend to streams.
    pub(crate) attendants: WorkQueue,
    /// How many queue pairs wait for their turn on either.
    pub(crate) waiting: AtomicU32,
    /// Where the queue pairs sleep off short waits.
    pub(crate) naps: WorkQueue,
    /// How several things are taken away as one.
    pub(crate) commit: Arc<Commit>,
    /// What happens when something is taken away from a running transfer.
    pub(crate) policies: Policies,
    /// Where transfers are parked on purpose.
    pub(crate) holds: Arc<Holds>,
    /// How long teardowns had to wait.
    pub(crate) waits: Arc<Waits>,
    /// The counters.
    pub(crate) counters: Counters,
    _files: Option<Pin<KBox<Files>>>,
}

impl Device {
    /// Makes a device, whose files in debugfs are found under `name`.
    pub(super) fn new(handle: ARef<rdma::Device>, name: &CStr) -> Result<Arc<Self>> {
        let qps = Arc::new(Table::new(FIRST_QPN, LAST_QPN)?, GFP_KERNEL)?;
        let holds = Holds::new()?;
        let waits = Arc::new(Waits::new(), GFP_KERNEL)?;
        let lock = Lock::new(c"Commit::lock", static_lock_class!())?;
        let commit = Arc::new(Commit::new(lock), GFP_KERNEL)?;
        Ok(Arc::new(
            Self {
                handle,
                keys: KeyTable::new(commit.clone())?,
                commit,
                _files: Files::new(name, &holds, &qps, &waits)?,
                qps,
                holds,
                waits,
                workqueue: WorkQueue::new(c"sluice", nr_cpu_ids())?,
                attendants: WorkQueue::per_processor(c"sluice_attendants")?,
                waiting: AtomicU32::new(0),
                naps: WorkQueue::new(c"sluice_naps", 0)?,
                policies: Defaults::policies(),
                counters: Counters::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Whether `gid` is an address of this device.
    pub(super) fn owns_gid(&self, gid: &Gid) -> bool {
        self.handle.has_gid(gid)
    }
}

/// What the device can do, which is the same for all devices.
pub(super) fn query(attr: &mut DeviceAttr) {
    *attr = DeviceAttr {
        // There is no vendor, and no OUI for one: all ones, as other software devices have it, for
        // programs that take 0 for a failure. What remains zero does not exist.
        vendor_id: 0xff_ffff,
        max_mr_size: MAX_MR_SIZE,
        page_size_cap: PAGE_SIZES,
        max_qp: MAX_QP,
        max_qp_wr: MAX_WR,
        // CAST: 32.
        max_sge: MAX_SGE as u32,
        max_sge_rd: MAX_SGE as u32,
        max_cq: MAX_OBJECTS,
        max_cqe: MAX_CQE,
        max_mr: MAX_REGIONS,
        max_pd: MAX_OBJECTS,
        max_ah: MAX_OBJECTS,
        max_rd_atomic: MAX_RD_ATOMIC.into(),
        max_res_rd_atomic: u32::from(MAX_RD_ATOMIC) * MAX_QP,
        atomic_cap: AtomicCap::Device,
        max_pkeys: super::port::PKEY_TABLE_LEN,
        local_ca_ack_delay: LOCAL_CA_ACK_DELAY,
        caps: DeviceCaps::from(DeviceCap::RcRnrNakGen)
            | DeviceCap::SysImageGuid
            | DeviceCap::PortActiveEvent
            | DeviceCap::CurrQpStateMod,
        ..*attr
    };
}
