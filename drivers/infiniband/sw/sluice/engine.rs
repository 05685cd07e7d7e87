// SPDX-License-Identifier: GPL-2.0

//! The DMA engine: moves the bytes of transfers in bursts.
//!
//! A [`Transfer`] exists only with a pass of both queue pairs and leases on all the memory that it
//! touches. It moves in [bursts](Transfer::burst); before each lies a boundary, the only place
//! where a teardown can cut it (contract sections 1 and 5). A burst never sleeps, allocates or
//! faults. How much may move in one go is told by a [`Quantum`].

#![forbid(unsafe_code)]

mod quantum;
mod transfer;

pub(crate) use self::{
    quantum::Quantum,
    transfer::{
        Cut,
        Direction,
        Transfer, //
    },
};
