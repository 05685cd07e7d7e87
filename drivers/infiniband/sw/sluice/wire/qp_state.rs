// SPDX-License-Identifier: GPL-2.0

//! The state machine of a reliable connection: which transitions exist, which attributes each one
//! needs, and what a QP does with work in each state.
//!
//! The transitions are those of the kernel's `ib_modify_qp_is_ok()`, for RC, cell by cell. What is
//! permitted in a state follows the IBTA compliance statements that public drivers cite (C10-96
//! for sends, C10-97.2.1 for receives). Contract sections 2 and 4 say what entering RESET or ERR
//! does to the work at hand; this file only says where a QP may go and what happens once there.

#![forbid(unsafe_code)]

use core::{
    fmt,
    ops::BitOr, //
};

/// The state of a QP, as the verbs number it (`enum ib_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// Nothing posted, nothing accepted.
    Reset = 0,
    /// Receives may be posted; nothing moves.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue finishes what it has started, and then pauses.
    Sqd = 4,
    /// The send queue has failed. An RC QP never enters this state; the table has it because the
    /// kernel's table has it.
    Sqe = 5,
    /// All work is flushed.
    Err = 6,
}

impl QpState {
    /// Every state, in the order of the verbs numbers.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Err,
    ];

    /// The state of a verbs number (`IB_QPS_RESET` = 0 to `IB_QPS_ERR` = 6), or [`None`] if the
    /// number names none.
    pub const fn from_verbs(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::Rtr),
            3 => Some(Self::Rts),
            4 => Some(Self::Sqd),
            5 => Some(Self::Sqe),
            6 => Some(Self::Err),
            _ => None,
        }
    }

    /// The verbs number of this state.
    pub const fn to_verbs(self) -> u32 {
        // CAST: the discriminants are the verbs numbers, 0 to 6.
        self as u32
    }

    /// What a QP does with work in this state.
    pub const fn permits(self) -> Permits {
        PERMITS[self.index()]
    }

    /// What a transition from this state to `next` asks for, or [`None`] if there is none.
    pub const fn transition(self, next: Self) -> Option<Transition> {
        TRANSITIONS[self.index()][next.index()]
    }

    const fn index(self) -> usize {
        // CAST: widens a discriminant below 7, the length of the tables.
        self as usize
    }
}

/// A set of attributes of a `modify_qp` call (`enum ib_qp_attr_mask`).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct AttrMask(u32);

impl AttrMask {
    /// No attribute.
    pub const NONE: Self = Self(0);
    /// `IB_QP_STATE`: the state to enter.
    pub const STATE: Self = Self(1 << 0);
    /// `IB_QP_CUR_STATE`: the state that the caller believes the QP to be in.
    pub const CUR_STATE: Self = Self(1 << 1);
    /// `IB_QP_EN_SQD_ASYNC_NOTIFY`.
    pub const EN_SQD_ASYNC_NOTIFY: Self = Self(1 << 2);
    /// `IB_QP_ACCESS_FLAGS`.
    pub const ACCESS_FLAGS: Self = Self(1 << 3);
    /// `IB_QP_PKEY_INDEX`.
    pub const PKEY_INDEX: Self = Self(1 << 4);
    /// `IB_QP_PORT`.
    pub const PORT: Self = Self(1 << 5);
    /// `IB_QP_QKEY`.
    pub const QKEY: Self = Self(1 << 6);
    /// `IB_QP_AV`: the address vector.
    pub const AV: Self = Self(1 << 7);
    /// `IB_QP_PATH_MTU`.
    pub const PATH_MTU: Self = Self(1 << 8);
    /// `IB_QP_TIMEOUT`: the local ACK timeout.
    pub const TIMEOUT: Self = Self(1 << 9);
    /// `IB_QP_RETRY_CNT`.
    pub const RETRY_CNT: Self = Self(1 << 10);
    /// `IB_QP_RNR_RETRY`.
    pub const RNR_RETRY: Self = Self(1 << 11);
    /// `IB_QP_RQ_PSN`.
    pub const RQ_PSN: Self = Self(1 << 12);
    /// `IB_QP_MAX_QP_RD_ATOMIC`.
    pub const MAX_QP_RD_ATOMIC: Self = Self(1 << 13);
    /// `IB_QP_ALT_PATH`.
    pub const ALT_PATH: Self = Self(1 << 14);
    /// `IB_QP_MIN_RNR_TIMER`.
    pub const MIN_RNR_TIMER: Self = Self(1 << 15);
    /// `IB_QP_SQ_PSN`.
    pub const SQ_PSN: Self = Self(1 << 16);
    /// `IB_QP_MAX_DEST_RD_ATOMIC`.
    pub const MAX_DEST_RD_ATOMIC: Self = Self(1 << 17);
    /// `IB_QP_PATH_MIG_STATE`.
    pub const PATH_MIG_STATE: Self = Self(1 << 18);
    /// `IB_QP_CAP`.
    pub const CAP: Self = Self(1 << 19);
    /// `IB_QP_DEST_QPN`.
    pub const DEST_QPN: Self = Self(1 << 20);
    /// `IB_QP_RATE_LIMIT`.
    pub const RATE_LIMIT: Self = Self(1 << 25);

    /// The set that the verbs bits stand for; unknown bits are kept, and [`check_modify`] refuses
    /// them.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The verbs bits of this set.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The attributes in any of `sets`.
    pub const fn of(sets: &[Self]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < sets.len() {
            bits |= sets[i].0;
            i += 1;
        }
        Self(bits)
    }

    /// Whether every attribute of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no attribute is in this set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The attributes of this set that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for AttrMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttrMask({:#x})", self.0)
    }
}

/// The attributes of a transition, besides those that every transition takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Must all be given.
    pub required: AttrMask,
    /// May be given.
    pub optional: AttrMask,
}

/// Why a modification is refused. The verbs have one error for all of them, `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// `CUR_STATE` is given in a state where it cannot be.
    CurStateNotAllowed,
    /// The state machine has no such transition.
    NoTransition,
    /// These required attributes are not given.
    Missing(AttrMask),
    /// These attributes are given, and the transition does not take them.
    NotAllowed(AttrMask),
}

/// Checks a `modify_qp` from `current` to `next` with the attributes in `mask`, for an RC QP.
///
/// `current` is the state that the QP is in. If `mask` has no `STATE`, `next` is `current`: the
/// state stays, and attributes are changed as in a transition of the state to itself.
///
/// `STATE` and `RATE_LIMIT` are taken by every transition. A device without rate limits refuses
/// the latter itself.
///
/// # Errors
///
/// The first rule broken, in the order of the variants of [`ModifyError`].
///
/// # Examples
///
/// ```ignore
/// let port = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT;
/// let open = port | AttrMask::ACCESS_FLAGS;
/// assert_eq!(check_modify(QpState::Reset, QpState::Init, open), Ok(()));
/// assert_eq!(
///     check_modify(QpState::Reset, QpState::Init, port),
///     Err(ModifyError::Missing(AttrMask::ACCESS_FLAGS))
/// );
/// assert_eq!(
///     check_modify(QpState::Err, QpState::Init, open),
///     Err(ModifyError::NoTransition)
/// );
/// ```
pub const fn check_modify(
    current: QpState,
    next: QpState,
    mask: AttrMask,
) -> Result<(), ModifyError> {
    if mask.contains(AttrMask::CUR_STATE) && !may_name_current_state(current) {
        return Err(ModifyError::CurStateNotAllowed);
    }
    let Some(transition) = current.transition(next) else {
        return Err(ModifyError::NoTransition);
    };
    let missing = transition.required.without(mask);
    if !missing.is_empty() {
        return Err(ModifyError::Missing(missing));
    }
    let foreign = mask.without(AttrMask::of(&[
        transition.required,
        transition.optional,
        ALWAYS_ALLOWED,
    ]));
    if !foreign.is_empty() {
        return Err(ModifyError::NotAllowed(foreign));
    }
    Ok(())
}

/// What a QP does with work in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// What becomes of a send work request that is posted now.
    pub post_send: Post,
    /// What becomes of a receive work request that is posted now.
    pub post_recv: Post,
    /// What the send queue does with its work requests.
    pub send_queue: SendQueue,
    /// What the receive queue does with its work requests.
    pub receive_queue: ReceiveQueue,
    /// What becomes of a request that arrives from the peer.
    pub inbound: Inbound,
}

/// What becomes of a work request that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// It is queued, and executed when the queue runs.
    Accept,
    /// The post fails with `EINVAL`; nothing is queued.
    Reject,
    /// The post succeeds, and the work request completes in error (`WR_FLUSH_ERR`).
    Flush,
}

/// What a send queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendQueue {
    /// Nothing: it is empty, since nothing can be posted.
    Idle,
    /// Starts work requests and carries on with those started.
    Run,
    /// Carries on with the work requests started, and starts no other.
    Finish,
    /// Completes every work request in error, in posting order.
    Flush,
}

/// What a receive queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveQueue {
    /// Nothing: what it holds stays where it is.
    Idle,
    /// Serves what arrives.
    Run,
    /// Completes every work request in error, in posting order.
    Flush,
}

/// What becomes of a request that arrives from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// It is executed.
    Accept,
    /// It is dropped silently: no response, no event.
    Drop,
}

/// The attributes that `ib_modify_qp_is_ok()` takes with every transition.
const ALWAYS_ALLOWED: AttrMask = AttrMask::of(&[AttrMask::STATE, AttrMask::RATE_LIMIT]);

/// Only where the state can change behind the caller's back is the caller asked which state it
/// believes to find.
const fn may_name_current_state(current: QpState) -> bool {
    matches!(
        current,
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
    )
}

const RESET_TO_INIT: Transition = Transition {
    required: AttrMask::of(&[AttrMask::PKEY_INDEX, AttrMask::PORT, AttrMask::ACCESS_FLAGS]),
    optional: AttrMask::NONE,
};

const INIT_TO_INIT: Transition = Transition {
    required: AttrMask::NONE,
    optional: RESET_TO_INIT.required,
};

const INIT_TO_RTR: Transition = Transition {
    required: AttrMask::of(&[
        AttrMask::AV,
        AttrMask::PATH_MTU,
        AttrMask::DEST_QPN,
        AttrMask::RQ_PSN,
        AttrMask::MAX_DEST_RD_ATOMIC,
        AttrMask::MIN_RNR_TIMER,
    ]),
    optional: AttrMask::of(&[
        AttrMask::ALT_PATH,
        AttrMask::ACCESS_FLAGS,
        AttrMask::PKEY_INDEX,
    ]),
};

const RTR_TO_RTS: Transition = Transition {
    required: AttrMask::of(&[
        AttrMask::TIMEOUT,
        AttrMask::RETRY_CNT,
        AttrMask::RNR_RETRY,
        AttrMask::SQ_PSN,
        AttrMask::MAX_QP_RD_ATOMIC,
    ]),
    optional: TO_RTS.optional,
};

/// To RTS from RTS itself or back from SQD.
const TO_RTS: Transition = Transition {
    required: AttrMask::NONE,
    optional: AttrMask::of(&[
        AttrMask::CUR_STATE,
        AttrMask::ACCESS_FLAGS,
        AttrMask::ALT_PATH,
        AttrMask::MIN_RNR_TIMER,
        AttrMask::PATH_MIG_STATE,
    ]),
};

const RTS_TO_SQD: Transition = Transition {
    required: AttrMask::NONE,
    optional: AttrMask::EN_SQD_ASYNC_NOTIFY,
};

/// With the send queue at rest nearly everything that concerns it may be changed.
const SQD_TO_SQD: Transition = Transition {
    required: AttrMask::NONE,
    optional: AttrMask::of(&[
        AttrMask::PORT,
        AttrMask::AV,
        AttrMask::TIMEOUT,
        AttrMask::RETRY_CNT,
        AttrMask::RNR_RETRY,
        AttrMask::MAX_QP_RD_ATOMIC,
        AttrMask::MAX_DEST_RD_ATOMIC,
        AttrMask::ALT_PATH,
        AttrMask::ACCESS_FLAGS,
        AttrMask::PKEY_INDEX,
        AttrMask::MIN_RNR_TIMER,
        AttrMask::PATH_MIG_STATE,
    ]),
};

/// A transition that takes no attributes.
const BARE: Option<Transition> = Some(Transition {
    required: AttrMask::NONE,
    optional: AttrMask::NONE,
});

/// Rows: the state left; columns: the state entered; both in the order of [`QpState::ALL`].
#[rustfmt::skip]
const TRANSITIONS: [[Option<Transition>; 7]; 7] = [
    // RESET, INIT, RTR, RTS, SQD, SQE, ERR
    [BARE, Some(RESET_TO_INIT), None, None, None, None, None], // From RESET.
    [BARE, Some(INIT_TO_INIT), Some(INIT_TO_RTR), None, None, None, BARE], // From INIT.
    [BARE, None, None, Some(RTR_TO_RTS), None, None, BARE], // From RTR.
    [BARE, None, None, Some(TO_RTS), Some(RTS_TO_SQD), None, BARE], // From RTS.
    [BARE, None, None, Some(TO_RTS), Some(SQD_TO_SQD), None, BARE], // From SQD.
    [BARE, None, None, BARE, None, None, BARE], // From SQE.
    [BARE, None, None, None, None, None, BARE], // From ERR.
];

/// In the order of [`QpState::ALL`].
const PERMITS: [Permits; 7] = [
    // RESET.
    Permits {
        post_send: Post::Reject,
        post_recv: Post::Reject,
        send_queue: SendQueue::Idle,
        receive_queue: ReceiveQueue::Idle,
        inbound: Inbound::Drop,
    },
    // INIT.
    Permits {
        post_send: Post::Reject,
        post_recv: Post::Accept,
        send_queue: SendQueue::Idle,
        receive_queue: ReceiveQueue::Idle,
        inbound: Inbound::Drop,
    },
    // RTR.
    Permits {
        post_send: Post::Reject,
        post_recv: Post::Accept,
        send_queue: SendQueue::Idle,
        receive_queue: ReceiveQueue::Run,
        inbound: Inbound::Accept,
    },
    // RTS.
    Permits {
        post_send: Post::Accept,
        post_recv: Post::Accept,
        send_queue: SendQueue::Run,
        receive_queue: ReceiveQueue::Run,
        inbound: Inbound::Accept,
    },
    // SQD.
    Permits {
        post_send: Post::Accept,
        post_recv: Post::Accept,
        send_queue: SendQueue::Finish,
        receive_queue: ReceiveQueue::Run,
        inbound: Inbound::Accept,
    },
    // SQE.
    Permits {
        post_send: Post::Flush,
        post_recv: Post::Accept,
        send_queue: SendQueue::Flush,
        receive_queue: ReceiveQueue::Run,
        inbound: Inbound::Accept,
    },
    // ERR.
    Permits {
        post_send: Post::Flush,
        post_recv: Post::Flush,
        send_queue: SendQueue::Flush,
        receive_queue: ReceiveQueue::Flush,
        inbound: Inbound::Drop,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_verbs_numbers() {
        for (number, state) in (0..).zip(QpState::ALL) {
            assert_eq!(state.to_verbs(), number);
            assert_eq!(QpState::from_verbs(number), Some(state));
        }
        assert_eq!(QpState::from_verbs(7), None);
        assert_eq!(QpState::from_verbs(u32::MAX), None);
    }

    #[test]
    fn the_first_rule_broken_is_reported() {
        let cur = AttrMask::CUR_STATE;
        assert_eq!(
            check_modify(QpState::Err, QpState::Rts, cur),
            Err(ModifyError::CurStateNotAllowed)
        );
        assert_eq!(
            check_modify(QpState::Rts, QpState::Init, cur),
            Err(ModifyError::NoTransition)
        );
        assert_eq!(
            check_modify(QpState::Rtr, QpState::Rts, AttrMask::QKEY),
            Err(ModifyError::Missing(RTR_TO_RTS.required))
        );
        assert_eq!(
            check_modify(QpState::Rts, QpState::Rts, cur | AttrMask::QKEY),
            Err(ModifyError::NotAllowed(AttrMask::QKEY))
        );
    }

    #[test]
    fn reset_and_error_take_no_attributes() {
        for state in QpState::ALL {
            assert_eq!(check_modify(state, QpState::Reset, AttrMask::STATE), Ok(()));
            assert_eq!(
                check_modify(state, QpState::Err, AttrMask::STATE).is_ok(),
                state != QpState::Reset
            );
        }
    }

    #[test]
    fn queues_hold_nothing_where_nothing_can_be_posted() {
        for state in QpState::ALL {
            let permits = state.permits();
            assert_eq!(
                permits.post_send == Post::Reject,
                permits.send_queue == SendQueue::Idle
            );
            assert_eq!(
                permits.post_send == Post::Flush,
                permits.send_queue == SendQueue::Flush
            );
            assert_eq!(
                permits.post_recv == Post::Flush,
                permits.receive_queue == ReceiveQueue::Flush
            );
            assert_eq!(
                permits.inbound == Inbound::Accept,
                permits.receive_queue == ReceiveQueue::Run
            );
        }
    }
}
