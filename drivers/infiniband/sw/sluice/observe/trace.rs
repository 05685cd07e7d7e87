// SPDX-License-Identifier: GPL-2.0

//! What the engine's terms are called in a trace.

#![forbid(unsafe_code)]

use crate::{
    abstractions::trace::{
        End,
        Operation, //
    },
    engine::Cut,
    transport::rc::request::Op,
};

impl From<Op> for Operation {
    fn from(op: Op) -> Self {
        match op {
            Op::Send => Self::Send,
            Op::Write { .. } => Self::Write,
            Op::Read { .. } => Self::Read,
            Op::FetchAdd { .. } => Self::FetchAdd,
            Op::CompareSwap { .. } => Self::CompareSwap,
        }
    }
}

impl From<Result<(), Cut>> for End {
    fn from(end: Result<(), Cut>) -> Self {
        match end {
            Ok(()) => Self::Completed,
            Err(Cut::OwnQp) => Self::OwnQp,
            Err(Cut::PeerQp) => Self::PeerQp,
            Err(Cut::LocalKey) => Self::LocalKey,
            Err(Cut::RemoteKey) => Self::RemoteKey,
        }
    }
}
