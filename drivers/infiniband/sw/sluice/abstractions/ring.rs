// SPDX-License-Identifier: GPL-2.0

//! The queues that a program and the driver share: send, receive and completion rings.
//!
//! The layout is the user ABI of the provider library
//! ([`include/uapi/rdma/rdma_user_rxe.h`](srctree/include/uapi/rdma/rdma_user_rxe.h)): a header
//! with a producer and a consumer index, then slots of a power of two in size and number, of which
//! one stays empty.
//!
//! A ring is hostile memory: the program may write anywhere in it at any time. So every field is
//! read once, into a private copy that is then validated; the driver's own index lives outside the
//! ring and is only published there; the program's index is masked. What a program can wreck this
//! way is its own queue.

use super::{
    rdma::Mapping,
    shared::SharedMemory, //
};
use core::{
    mem::{
        offset_of,
        size_of, //
    },
    sync::atomic::{
        AtomicU32,
        Ordering, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    transmute::AsBytes, //
};

/// The header of a ring, as the program sees it.
#[repr(C)]
struct Header {
    log2_slot_size: u32,
    index_mask: u32,
    _pad1: [u32; 30],
    producer: AtomicU32,
    _pad2: [u32; 31],
    consumer: AtomicU32,
    _pad3: [u32; 31],
}

/// The part that send and receive work queue entries share: how much data, and where.
#[repr(C)]
struct Dma {
    length: u32,
    resid: u32,
    cur_sge: u32,
    num_sge: u32,
    sge_offset: u32,
    _reserved: u32,
}

/// A send work queue entry up to the scatter/gather list or inline data. Of the union of operation
/// parameters only what RC uses.
#[repr(C)]
struct SendEntry {
    wr_id: u64,
    _reserved: u32,
    opcode: u32,
    send_flags: u32,
    /// Immediate data in network order, or the key to invalidate.
    ex: u32,
    /// `rdma`: remote address, then rkey. `atomic`: remote address, compare or add, swap, rkey.
    params: [u64; 15],
    _driver: [u32; 10],
    dma: Dma,
}

/// A receive work queue entry up to the scatter/gather list.
#[repr(C)]
struct RecvEntry {
    wr_id: u64,
    _reserved: u32,
    _padding: u32,
    dma: Dma,
}

const _: () = {
    assert!(size_of::<Header>() == 384);
    assert!(offset_of!(Header, producer) == 128 && offset_of!(Header, consumer) == 256);
    assert!(size_of::<SendEntry>() == 208 && offset_of!(SendEntry, dma) == 184);
    assert!(size_of::<RecvEntry>() == 40 && size_of::<Sge>() == 16);
    assert!(size_of::<Completion>() == 48);
};

/// One element of a scatter/gather list.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Sge {
    /// Address in the region's terms.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) length: u32,
    /// The region.
    pub(crate) lkey: u32,
}

/// A private copy of a send work request, not yet validated.
#[derive(Clone, Copy, Default)]
pub(crate) struct SendWqe {
    /// The consumer's own name for the request.
    pub(crate) wr_id: u64,
    /// `enum ib_wr_opcode`.
    pub(crate) opcode: u32,
    /// `enum ib_send_flags`.
    pub(crate) flags: u32,
    /// Immediate data, in network order.
    pub(crate) imm: u32,
    /// RDMA and atomic operations: the remote address.
    pub(crate) remote_addr: u64,
    /// RDMA and atomic operations: the key of the remote region.
    pub(crate) rkey: u32,
    /// Atomic operations: the value to compare with or to add.
    pub(crate) compare_add: u64,
    /// Atomic operations: the value to swap in.
    pub(crate) swap: u64,
    /// Length of the message in bytes, as the program says.
    pub(crate) length: u32,
    /// Number of elements in the gather list.
    pub(crate) num_sge: u32,
}

/// A private copy of a receive work request, not yet validated.
#[derive(Clone, Copy, Default)]
pub(crate) struct RecvWqe {
    /// The consumer's own name for the request.
    pub(crate) wr_id: u64,
    /// Number of elements in the scatter list.
    pub(crate) num_sge: u32,
}

/// A completion queue entry in the form of `struct ib_uverbs_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Completion {
    /// The consumer's own name for the request.
    pub(crate) wr_id: u64,
    /// `enum ib_wc_status`.
    pub(crate) status: u32,
    /// `enum ib_uverbs_wc_opcode`.
    pub(crate) opcode: u32,
    /// Nothing more to say about an error.
    pub(crate) vendor_err: u32,
    /// Bytes moved.
    pub(crate) byte_len: u32,
    /// Immediate data in network order.
    pub(crate) imm: u32,
    /// The queue pair that the request was posted to.
    pub(crate) qp_num: u32,
    /// The queue pair that the message came from.
    pub(crate) src_qp: u32,
    /// `enum ib_wc_flags`.
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
    pub(crate) port_num: u8,
    pub(crate) reserved: u8,
}

/// A ring of either direction.
struct Ring {
    memory: Arc<SharedMemory>,
    log2_slot_size: u32,
    mask: u32,
}

impl Ring {
    /// Makes an empty ring with room for `entries` of `slot` bytes.
    fn new(entries: u32, slot: usize) -> Result<Self> {
        let slots = entries
            .checked_add(1)
            .and_then(u32::checked_next_power_of_two)
            .ok_or(EINVAL)?;
        let slot = slot.next_power_of_two();
        let bytes = slot
            .checked_mul(slots as usize)
            .and_then(|n| n.checked_add(size_of::<Header>()))
            .ok_or(EINVAL)?;
        let ring = Self {
            memory: Arc::new(SharedMemory::new(bytes)?, GFP_KERNEL)?,
            log2_slot_size: slot.trailing_zeros(),
            mask: slots - 1,
        };
        let header = ring.memory.as_ptr().cast::<Header>();
        // SAFETY: the memory is larger than a header, and page-aligned; no program has mapped it.
        unsafe {
            (*header).log2_slot_size = ring.log2_slot_size;
            (*header).index_mask = ring.mask;
        }
        Ok(ring)
    }

    fn capacity(&self) -> u32 {
        self.mask
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the memory begins with a header and lives as long as `self`. Nobody but the
        // program writes to it in other ways than atomically, and that is outside of this program.
        unsafe { &(*self.memory.as_ptr().cast::<Header>()).producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { &(*self.memory.as_ptr().cast::<Header>()).consumer }
    }

    /// The slot at `index`, which is masked.
    fn slot(&self, index: u32) -> *mut u8 {
        let at = size_of::<Header>() + (((index & self.mask) as usize) << self.log2_slot_size);
        // SAFETY: `new` has made the memory large enough for `mask + 1` slots after the header.
        unsafe { self.memory.as_ptr().add(at) }
    }

    /// How many of `size` bytes fit in a slot after `used` bytes.
    fn room(&self, used: usize, size: usize) -> usize {
        (1usize << self.log2_slot_size).saturating_sub(used) / size
    }
}

/// Reads one field of a shared entry, once.
macro_rules! read_once {
    ($entry:expr, $($field:tt)+) => {
        // SAFETY: `$entry` points into a slot, which is large enough for the entry and aligned to
        // its own power of two. A volatile read neither tears (the fields are aligned words) nor
        // is repeated.
        unsafe { core::ptr::addr_of!((*$entry).$($field)+).read_volatile() }
    };
}

/// A ring that the program fills and the driver empties. The driver's side is not shared: changing
/// it takes `&mut self`.
struct Inbound {
    ring: Ring,
    next: u32,
}

impl Inbound {
    fn new(entries: u32, slot: usize) -> Result<Self> {
        Ok(Self {
            ring: Ring::new(entries, slot)?,
            next: 0,
        })
    }

    /// How many entries wait.
    fn pending(&self) -> u32 {
        let producer = self.ring.producer().load(Ordering::Acquire);
        producer.wrapping_sub(self.next) & self.ring.mask
    }

    fn advance(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count) & self.ring.mask;
        self.ring.consumer().store(self.next, Ordering::Release);
    }

    /// Reads element `index` of the scatter/gather list that starts `head` bytes into the slot.
    fn sge(&self, head: usize, index: u32) -> Option<Sge> {
        if index as usize >= self.ring.room(head, size_of::<Sge>()) {
            return None;
        }
        // SAFETY: the list element lies within the slot, as was just checked.
        let sge = unsafe {
            self.ring
                .slot(self.next)
                .add(head)
                .cast::<Sge>()
                .add(index as usize)
        };
        Some(Sge {
            addr: read_once!(sge, addr),
            length: read_once!(sge, length),
            lkey: read_once!(sge, lkey),
        })
    }
}

/// The send queue of a queue pair, driver's side.
pub(crate) struct SendRing(Inbound);

impl SendRing {
    /// Makes a ring for `entries` requests, each with up to `payload` bytes of gather list or
    /// inline data. May sleep.
    pub(crate) fn new(entries: u32, payload: usize) -> Result<Self> {
        Ok(Self(Inbound::new(
            entries,
            size_of::<SendEntry>() + payload,
        )?))
    }

    /// The memory to map into the program.
    pub(crate) fn memory(&self) -> Arc<SharedMemory> {
        self.0.ring.memory.clone()
    }

    /// How many requests fit.
    pub(crate) fn capacity(&self) -> u32 {
        self.0.ring.capacity()
    }

    /// How many bytes of gather list or inline data a request can have.
    pub(crate) fn payload(&self) -> usize {
        self.0.ring.room(size_of::<SendEntry>(), 1)
    }

    /// How many requests wait.
    pub(crate) fn pending(&self) -> u32 {
        self.0.pending()
    }

    /// Copies the oldest request out of the ring, if there is one. It stays in the ring.
    pub(crate) fn peek(&self) -> Option<SendWqe> {
        if self.pending() == 0 {
            return None;
        }
        let entry = self.0.ring.slot(self.0.next).cast::<SendEntry>();
        let opcode = read_once!(entry, opcode);
        let mut wqe = SendWqe {
            wr_id: read_once!(entry, wr_id),
            opcode,
            flags: read_once!(entry, send_flags),
            imm: read_once!(entry, ex),
            remote_addr: read_once!(entry, params[0]),
            length: read_once!(entry, dma.length),
            num_sge: read_once!(entry, dma.num_sge),
            ..Default::default()
        };
        if SendWqe::is_atomic_opcode(opcode) {
            wqe.compare_add = read_once!(entry, params[1]);
            wqe.swap = read_once!(entry, params[2]);
            // CAST: the lower half of the word, where a little-endian machine has the `u32`.
            wqe.rkey = read_once!(entry, params[3]) as u32;
        } else {
            // CAST: as above.
            wqe.rkey = read_once!(entry, params[1]) as u32;
        }
        Some(wqe)
    }

    /// Reads element `index` of the oldest request's gather list; `None` beyond its slot.
    pub(crate) fn sge(&self, index: u32) -> Option<Sge> {
        self.0.sge(size_of::<SendEntry>(), index)
    }

    /// The inline data of the oldest request from byte `from`: `len` bytes in the slot, or `None`
    /// if they do not fit there. The program may change them while they are being copied.
    pub(super) fn inline_data(&self, from: usize, len: usize) -> Option<*const u8> {
        if from.checked_add(len)? > self.payload() {
            return None;
        }
        // SAFETY: within the slot, as was just checked.
        Some(unsafe {
            self.0
                .ring
                .slot(self.0.next)
                .add(size_of::<SendEntry>() + from)
        })
    }

    /// Removes the oldest request.
    pub(crate) fn retire(&mut self) {
        self.0.advance(1);
    }

    /// Removes everything; returns how many requests that were.
    pub(crate) fn discard(&mut self) -> u32 {
        let count = self.pending();
        self.0.advance(count);
        count
    }
}

impl SendWqe {
    /// Whether `opcode` stands for an atomic operation, whose parameters differ in layout.
    pub(crate) const fn is_atomic_opcode(opcode: u32) -> bool {
        matches!(opcode, 5 | 6)
    }
}

/// The receive queue of a queue pair, driver's side.
pub(crate) struct RecvRing(Inbound);

impl RecvRing {
    /// Makes a ring for `entries` requests of up to `max_sge` elements. May sleep.
    pub(crate) fn new(entries: u32, max_sge: u32) -> Result<Self> {
        let slot = size_of::<RecvEntry>() + max_sge as usize * size_of::<Sge>();
        Ok(Self(Inbound::new(entries, slot)?))
    }

    /// The memory to map into the program.
    pub(crate) fn memory(&self) -> Arc<SharedMemory> {
        self.0.ring.memory.clone()
    }

    /// How many requests fit.
    pub(crate) fn capacity(&self) -> u32 {
        self.0.ring.capacity()
    }

    /// How many requests wait.
    pub(crate) fn pending(&self) -> u32 {
        self.0.pending()
    }

    /// Copies the oldest request out of the ring, if there is one. It stays in the ring.
    pub(crate) fn peek(&self) -> Option<RecvWqe> {
        if self.0.pending() == 0 {
            return None;
        }
        let entry = self.0.ring.slot(self.0.next).cast::<RecvEntry>();
        Some(RecvWqe {
            wr_id: read_once!(entry, wr_id),
            num_sge: read_once!(entry, dma.num_sge),
        })
    }

    /// Reads element `index` of the oldest request's scatter list; `None` beyond its slot.
    pub(crate) fn sge(&self, index: u32) -> Option<Sge> {
        self.0.sge(size_of::<RecvEntry>(), index)
    }

    /// Removes the oldest request.
    pub(crate) fn retire(&mut self) {
        self.0.advance(1);
    }

    /// Removes everything; returns how many requests that were.
    pub(crate) fn discard(&mut self) -> u32 {
        let count = self.0.pending();
        self.0.advance(count);
        count
    }
}

/// A completion queue, driver's side: the driver fills it and the program empties it.
pub(crate) struct CompletionRing {
    ring: Ring,
    next: u32,
}

/// The slot of a completion: a power of two, as large as the library expects.
const COMPLETION_SLOT: usize = 64;

impl CompletionRing {
    /// Makes a ring for `entries` completions. May sleep.
    pub(crate) fn new(entries: u32) -> Result<Self> {
        Ok(Self {
            ring: Ring::new(entries, COMPLETION_SLOT)?,
            next: 0,
        })
    }

    /// The memory to map into the program.
    pub(crate) fn memory(&self) -> Arc<SharedMemory> {
        self.ring.memory.clone()
    }

    /// How many completions fit.
    pub(crate) fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// How many completions the program has not taken yet, as far as it tells.
    pub(crate) fn pending(&self) -> u32 {
        let consumer = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(consumer) & self.ring.mask
    }

    /// Up to where the program has taken completions, as far as it tells; for comparing only.
    pub(crate) fn taken(&self) -> u32 {
        self.ring.consumer().load(Ordering::Relaxed)
    }

    /// Appends a completion; `false` if there is no room. Never sleeps.
    pub(crate) fn push(&mut self, completion: &Completion) -> bool {
        if self.pending() == self.ring.mask {
            return false;
        }
        let slot = self.ring.slot(self.next).cast::<Completion>();
        // SAFETY: a slot is large enough for a completion and aligned to 64 bytes; the program may
        // read it at the same time, but has no business to before the index is published.
        unsafe { slot.write_volatile(*completion) };
        self.next = self.next.wrapping_add(1) & self.ring.mask;
        self.ring.producer().store(self.next, Ordering::Release);
        true
    }

    /// Moves what the program has not taken yet into `other`, which must be fresh.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not fit; then nothing has changed.
    pub(crate) fn move_into(&self, other: &mut Self) -> Result {
        let count = self.pending();
        if count > other.capacity() {
            return Err(EINVAL);
        }
        for back in (1..=count).rev() {
            let slot = self.ring.slot(self.next.wrapping_sub(back));
            // SAFETY: as in `push`; whatever the program has made of the bytes, they are plain
            // integers, and they only go back to it.
            let completion = unsafe { slot.cast::<Completion>().read_volatile() };
            other.push(&completion);
        }
        Ok(())
    }
}

/// Where the program finds a ring: `struct mminfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RingPlace {
    offset: u64,
    size: u32,
    pad: u32,
}

impl RingPlace {
    /// The place at which `mapping` was made.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the ring is larger than the ABI can say.
    pub(crate) fn of(mapping: &Mapping) -> Result<Self> {
        Ok(Self {
            offset: mapping.offset(),
            size: mapping.size().try_into().map_err(|_| EINVAL)?,
            pad: 0,
        })
    }
}

// SAFETY: three integers without padding between or after them.
unsafe impl AsBytes for RingPlace {}

/// The response to creating a queue pair: `struct rxe_create_qp_resp`.
#[repr(C)]
pub(crate) struct QueuePairPlaces {
    /// The receive ring.
    pub(crate) recv: RingPlace,
    /// The send ring.
    pub(crate) send: RingPlace,
}

// SAFETY: two structures of integers without padding.
unsafe impl AsBytes for QueuePairPlaces {}
