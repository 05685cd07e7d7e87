// SPDX-License-Identifier: GPL-2.0

//! Every cell of the QP state tables against expectations written independently of them: from the
//! tables for RC in the man page `ibv_modify_qp(3)`, the optional attributes that the kernel adds,
//! and the compliance statements listed at [`PERMITTED`].

use sluice_wire::wire::qp_state::{
    check_modify,
    AttrMask,
    Inbound,
    ModifyError,
    Post,
    QpState,
    ReceiveQueue,
    SendQueue, //
};

/// The bits of `enum ib_qp_attr_mask`, from bit 0 up; `-` is a reserved bit.
const ATTRIBUTES: &str =
    "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV \
     PATH_MTU TIMEOUT RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN \
     MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN - - - - RATE_LIMIT";

/// The states in the order of `enum ib_qp_state`.
const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

/// One transition a line: from, to, required attributes, optional attributes. `*` is every state.
/// STATE and RATE_LIMIT, which every transition takes, are left out.
const TRANSITIONS: &str = "
    * > RESET | |
    INIT RTR RTS SQD SQE ERR > ERR | |
    RESET > INIT | PKEY_INDEX PORT ACCESS_FLAGS |
    INIT > INIT | | PKEY_INDEX PORT ACCESS_FLAGS
    INIT > RTR | AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER \
               | ALT_PATH ACCESS_FLAGS PKEY_INDEX
    RTR > RTS | SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT \
              | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
    RTS SQD > RTS | | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
    SQE > RTS | |
    RTS > SQD | | EN_SQD_ASYNC_NOTIFY
    SQD > SQD | | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC \
                  ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
";

/// The attributes that are tried in every combination: all those that exist.
const TRIED: u32 = ((1 << 21) - 1) | (1 << 25);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Expected {
    required: u32,
    optional: u32,
}

fn bits(names: &str) -> u32 {
    names
        .split_whitespace()
        .map(|name| {
            let bit = ATTRIBUTES
                .split_whitespace()
                .position(|known| known == name);
            1 << bit.unwrap_or_else(|| panic!("no attribute {name}"))
        })
        .sum()
}

/// The expectation for the transition of one state to another, [`None`] if there is none.
fn expected(from: QpState, to: QpState) -> Option<Expected> {
    let name = |state: QpState| STATES[state.to_verbs() as usize];
    let mut found = TRANSITIONS
        .lines()
        .filter(|line| !line.trim().is_empty())
        .filter_map(|line| {
            let (states, attributes) = line.split_once('|').unwrap();
            let (left, entered) = states.split_once('>').unwrap();
            let (required, optional) = attributes.split_once('|').unwrap();
            let leaves = left
                .split_whitespace()
                .any(|word| word == "*" || word == name(from));
            (leaves && entered.trim() == name(to)).then(|| Expected {
                required: bits(required),
                optional: bits(optional),
            })
        });
    let first = found.next();
    assert!(found.next().is_none(), "{from:?} to {to:?} is listed twice");
    first
}

/// All pairs of states.
fn cells() -> impl Iterator<Item = (QpState, QpState)> {
    QpState::ALL
        .into_iter()
        .flat_map(|from| QpState::ALL.map(|to| (from, to)))
}

/// All subsets of the bits in `of`.
fn subsets(of: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(of), move |&last| (last != 0).then(|| (last - 1) & of))
}

#[test]
fn attribute_bits_are_those_of_the_verbs() {
    let ours = [
        ("STATE", AttrMask::STATE),
        ("CUR_STATE", AttrMask::CUR_STATE),
        ("EN_SQD_ASYNC_NOTIFY", AttrMask::EN_SQD_ASYNC_NOTIFY),
        ("ACCESS_FLAGS", AttrMask::ACCESS_FLAGS),
        ("PKEY_INDEX", AttrMask::PKEY_INDEX),
        ("PORT", AttrMask::PORT),
        ("QKEY", AttrMask::QKEY),
        ("AV", AttrMask::AV),
        ("PATH_MTU", AttrMask::PATH_MTU),
        ("TIMEOUT", AttrMask::TIMEOUT),
        ("RETRY_CNT", AttrMask::RETRY_CNT),
        ("RNR_RETRY", AttrMask::RNR_RETRY),
        ("RQ_PSN", AttrMask::RQ_PSN),
        ("MAX_QP_RD_ATOMIC", AttrMask::MAX_QP_RD_ATOMIC),
        ("ALT_PATH", AttrMask::ALT_PATH),
        ("MIN_RNR_TIMER", AttrMask::MIN_RNR_TIMER),
        ("SQ_PSN", AttrMask::SQ_PSN),
        ("MAX_DEST_RD_ATOMIC", AttrMask::MAX_DEST_RD_ATOMIC),
        ("PATH_MIG_STATE", AttrMask::PATH_MIG_STATE),
        ("CAP", AttrMask::CAP),
        ("DEST_QPN", AttrMask::DEST_QPN),
        ("RATE_LIMIT", AttrMask::RATE_LIMIT),
    ];
    for (name, mask) in ours {
        assert_eq!(mask.bits(), bits(name), "{name}");
    }
    assert_eq!(AttrMask::of(&ours.map(|(_, mask)| mask)).bits(), TRIED);
}

#[test]
fn states_are_those_of_the_verbs() {
    for state in QpState::ALL {
        let name = format!("{state:?}").to_uppercase();
        assert_eq!(STATES[state.to_verbs() as usize], name);
    }
}

#[test]
fn every_cell_has_the_expected_attributes() {
    let mut transitions = 0;
    for (from, to) in cells() {
        let ours = from.transition(to).map(|transition| Expected {
            required: transition.required.bits(),
            optional: transition.optional.bits(),
        });
        assert_eq!(ours, expected(from, to), "{from:?} to {to:?}");
        transitions += usize::from(ours.is_some());
    }
    assert_eq!(transitions, 22);
}

#[test]
fn every_cell_with_every_mask() {
    let always = bits("STATE RATE_LIMIT");
    let cur_state = bits("CUR_STATE");
    let mut cases = 0_u64;
    for (from, to) in cells() {
        let nameable = ["RTR", "RTS", "SQD", "SQE"].contains(&STATES[from.to_verbs() as usize]);
        let expected = expected(from, to);
        for mask in subsets(TRIED) {
            let accepted = expected.is_some_and(|expected| {
                expected.required & !mask == 0
                    && mask & !(expected.required | expected.optional | always) == 0
                    && (nameable || mask & cur_state == 0)
            });
            let verdict = check_modify(from, to, AttrMask::from_bits(mask));
            assert_eq!(verdict.is_ok(), accepted, "{from:?} to {to:?}, {mask:#x}");
            cases += 1;
        }
    }
    assert_eq!(cases, 49 << 22);
}

#[test]
fn the_error_names_the_attributes() {
    for (from, to) in cells() {
        let Some(expected) = expected(from, to) else {
            assert_eq!(
                check_modify(from, to, AttrMask::STATE),
                Err(ModifyError::NoTransition)
            );
            continue;
        };
        for given in subsets(expected.required) {
            let missing = expected.required & !given;
            let verdict = match missing {
                0 => Ok(()),
                _ => Err(ModifyError::Missing(AttrMask::from_bits(missing))),
            };
            assert_eq!(check_modify(from, to, AttrMask::from_bits(given)), verdict);
        }
        // One attribute too many, of all 32 bits, also those that mean nothing.
        let taken = expected.required | expected.optional | bits("STATE RATE_LIMIT");
        for foreign in (0..32).map(|bit| 1 << bit) {
            let given = AttrMask::from_bits(expected.required | foreign);
            let nameable = (2..6).contains(&from.to_verbs());
            let verdict = if taken & foreign != 0 {
                Ok(())
            } else if foreign == bits("CUR_STATE") && !nameable {
                Err(ModifyError::CurStateNotAllowed)
            } else {
                Err(ModifyError::NotAllowed(AttrMask::from_bits(foreign)))
            };
            assert_eq!(check_modify(from, to, given), verdict);
        }
    }
}

/// One state a line: what a posted send does, what the send queue does, what a posted receive
/// does, what the receive queue does, what an inbound request finds.
///
/// Sends: refused at once in RESET, INIT, RTR (10.8.2, C10-96); accepted and flushed in SQE and ERR
/// (C10-96); SQD completes what is in progress and starts nothing. Receives: refused in RESET
/// (C10-97.2.1), accepted and flushed in ERR. Inbound: dropped silently in RESET, INIT and ERR.
const PERMITTED: &str = "
    RESET | refuse | rest   | refuse | rest  | drop
    INIT  | refuse | rest   | queue  | rest  | drop
    RTR   | refuse | rest   | queue  | serve | execute
    RTS   | queue  | serve  | queue  | serve | execute
    SQD   | queue  | finish | queue  | serve | execute
    SQE   | flush  | flush  | queue  | serve | execute
    ERR   | flush  | flush  | flush  | flush | drop
";

#[test]
fn every_state_permits_what_is_expected() {
    let post = |post| match post {
        Post::Accept => "queue",
        Post::Reject => "refuse",
        Post::Flush => "flush",
    };
    let mut lines = PERMITTED.lines().filter(|line| !line.trim().is_empty());
    for (state, name) in QpState::ALL.into_iter().zip(STATES) {
        let permits = state.permits();
        let ours = [
            name,
            post(permits.post_send),
            match permits.send_queue {
                SendQueue::Idle => "rest",
                SendQueue::Run => "serve",
                SendQueue::Finish => "finish",
                SendQueue::Flush => "flush",
            },
            post(permits.post_recv),
            match permits.receive_queue {
                ReceiveQueue::Idle => "rest",
                ReceiveQueue::Run => "serve",
                ReceiveQueue::Flush => "flush",
            },
            match permits.inbound {
                Inbound::Accept => "execute",
                Inbound::Drop => "drop",
            },
        ];
        let expected: Vec<_> = lines.next().unwrap().split('|').map(str::trim).collect();
        assert_eq!(ours.as_slice(), expected);
    }
    assert_eq!(lines.next(), None);
}
