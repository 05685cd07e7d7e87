// SPDX-License-Identifier: GPL-2.0

//! Hold points: parking a transfer at a boundary until it is let go (contract section 7).
//!
//! A hold names a transfer that is still to come: the next one of a queue pair, the next one that
//! uses a key, or the next one of an operation; and a boundary, counted from 0, which is the one
//! before the first burst. The transfer that is caught stands there, with its passes and leases,
//! as one does whose turn has not come; so a teardown cuts it or waits for it exactly as it would
//! do with one that is running. A hold catches one transfer and is gone with it.

#![forbid(unsafe_code)]

use crate::transport::rc::request::Op;
use core::{
    fmt,
    sync::atomic::{
        AtomicU32,
        Ordering, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// How many holds a device can have at a time.
const MAX_HOLDS: usize = 16;

/// Which transfer a hold is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The next one that the queue pair with this number requests.
    Qp(u32),
    /// The next one that touches the region with this key, at either end.
    Key(u32),
    /// The next one of this kind.
    Op(OpKind),
}

/// The kinds of transfers, by the names that users know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpKind {
    Send,
    Write,
    Read,
    Atomic,
}

impl OpKind {
    const ALL: [Self; 4] = [Self::Send, Self::Write, Self::Read, Self::Atomic];

    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
        }
    }
}

impl From<Op> for OpKind {
    fn from(op: Op) -> Self {
        match op {
            Op::Send => Self::Send,
            Op::Write { .. } => Self::Write,
            Op::Read { .. } => Self::Read,
            Op::FetchAdd { .. } | Op::CompareSwap { .. } => Self::Atomic,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qp(qpn) => write!(f, "qp {qpn}"),
            Self::Key(key) => write!(f, "key {key:#x}"),
            Self::Op(op) => write!(f, "op {}", op.name()),
        }
    }
}

/// A transfer that has been caught.
struct Caught {
    /// The queue pair that requests it.
    qpn: u32,
    /// Bytes that have landed.
    landed: usize,
    since: Instant<Monotonic>,
    /// Whether it stands at its boundary; if not, it is on the way to it.
    parked: bool,
}

struct Hold {
    target: Target,
    boundary: u32,
    caught: Option<Caught>,
}

/// The holds of one device.
#[pin_data]
pub(crate) struct Holds {
    /// How many there are; transfers look at this first.
    count: AtomicU32,
    #[pin]
    list: SpinLock<[Option<Hold>; MAX_HOLDS]>,
}

/// What is asked for.
pub(crate) enum Command {
    /// Catch a transfer at a boundary.
    Hold(Target, u32),
    /// Let the transfer of a queue pair go on to its next boundary.
    Step(u32),
    /// Let the transfer of a queue pair go, and forget holds for the queue pair; or all.
    Release(Option<u32>),
}

impl Command {
    /// Understands `qp N`, `key K` and `op NAME`, each with or without `boundary B`, and `step N`,
    /// `release N` and `release all`. Numbers are decimal or, with `0x`, hexadecimal.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let verb = words.next()?;
        let object = words.next()?;
        let boundary = match words.next() {
            None => 0,
            Some("boundary") => number(words.next()?)?,
            Some(_) => return None,
        };
        if words.next().is_some() {
            return None;
        }
        Some(match verb {
            "qp" => Self::Hold(Target::Qp(number(object)?), boundary),
            "key" => Self::Hold(Target::Key(number(object)?), boundary),
            "op" => {
                let mut kinds = OpKind::ALL.into_iter();
                let op = kinds.find(|kind| kind.name() == object)?;
                Self::Hold(Target::Op(op), boundary)
            }
            "step" => Self::Step(number(object)?),
            "release" if object == "all" => Self::Release(None),
            "release" => Self::Release(Some(number(object)?)),
            _ => return None,
        })
    }
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

impl Holds {
    /// No holds. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                count: AtomicU32::new(0),
                list <- new_spinlock!([const { None }; MAX_HOLDS], "Holds::list"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether there is any hold at all.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Adds a hold.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many.
    pub(crate) fn add(&self, target: Target, boundary: u32) -> Result {
        let mut list = self.list.lock();
        let slot = list.iter_mut().find(|slot| slot.is_none()).ok_or(ENOSPC)?;
        *slot = Some(Hold {
            target,
            boundary,
            caught: None,
        });
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the transfer that `qpn` requests has to stand at `boundary`, where it has come to
    /// with `landed` bytes. `is` tells whether it is the one that a hold waits for.
    pub(crate) fn stops(
        &self,
        qpn: u32,
        boundary: u32,
        landed: usize,
        is: impl Fn(Target) -> bool,
    ) -> bool {
        let mut list = self.list.lock();
        for hold in list.iter_mut().flatten() {
            let free = hold.caught.is_none();
            let wanted = match &hold.caught {
                Some(caught) => caught.qpn == qpn,
                None => is(hold.target),
            };
            if !wanted || boundary < hold.boundary {
                continue;
            }
            let parked = hold.caught.as_ref().is_some_and(|caught| caught.parked);
            if free || !parked {
                hold.boundary = boundary;
                hold.caught = Some(Caught {
                    qpn,
                    landed,
                    since: Instant::now(),
                    parked: true,
                });
            }
            return true;
        }
        false
    }

    /// Forgets the hold that has caught the transfer of `qpn`, which has ended.
    pub(crate) fn forget(&self, qpn: u32) {
        self.remove(|hold| hold.caught.as_ref().is_some_and(|caught| caught.qpn == qpn));
    }

    /// Has the transfer of `qpn` go on to its next boundary; `false` if it is not parked.
    pub(crate) fn step(&self, qpn: u32) -> bool {
        let mut list = self.list.lock();
        for hold in list.iter_mut().flatten() {
            if let Some(caught) = &mut hold.caught {
                if caught.qpn == qpn && caught.parked {
                    caught.parked = false;
                    hold.boundary += 1;
                    return true;
                }
            }
        }
        false
    }

    /// Removes the holds of `qpn`, whether they have caught a transfer or not; all if `None`.
    pub(crate) fn release(&self, qpn: Option<u32>) {
        self.remove(|hold| match qpn {
            None => true,
            Some(qpn) => {
                hold.target == Target::Qp(qpn)
                    || hold.caught.as_ref().is_some_and(|caught| caught.qpn == qpn)
            }
        });
    }

    fn remove(&self, which: impl Fn(&Hold) -> bool) {
        let mut list = self.list.lock();
        for slot in list.iter_mut() {
            if slot.as_ref().is_some_and(&which) {
                *slot = None;
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Display for Holds {
    /// One line for each hold: what it is for and, if it has caught a transfer, where that stands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.list.lock();
        for hold in list.iter().flatten() {
            write!(f, "{} boundary {}", hold.target, hold.boundary)?;
            match &hold.caught {
                None => writeln!(f, ": waiting")?,
                Some(caught) => writeln!(
                    f,
                    ": {} qp {} landed {} since {} ms",
                    if caught.parked { "parked" } else { "moving" },
                    caught.qpn,
                    caught.landed,
                    caught.since.elapsed().as_millis(),
                )?,
            }
        }
        Ok(())
    }
}
