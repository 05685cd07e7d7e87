// SPDX-License-Identifier: GPL-2.0

//! Address handles: where a datagram goes.

#![forbid(unsafe_code)]

use super::pd::Pd;
use crate::abstractions::rdma::{
    AhAttr,
    UserCall, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// An address handle.
pub(crate) struct Ah {
    /// The address.
    #[expect(dead_code, reason = "only datagrams need it")]
    pub(crate) attr: AhAttr,
    /// The protection domain.
    #[expect(dead_code, reason = "only datagrams need it")]
    pub(crate) pd: Arc<Pd>,
}

impl Ah {
    /// Makes an address handle in `pd`.
    pub(super) fn new(pd: &Arc<Pd>, attr: &AhAttr, call: &mut UserCall<'_>) -> Result<Arc<Self>> {
        let ah = Arc::new(
            Self {
                attr: *attr,
                pd: pd.clone(),
            },
            GFP_KERNEL,
        )?;
        // `struct rxe_create_ah_resp`: the number of the handle, and a reserved word. Number 0 says
        // that work requests carry the address itself, which the provider library then puts in.
        call.respond(&[0u32; 2])?;
        Ok(ah)
    }
}
