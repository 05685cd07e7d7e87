/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints, as Rust calls them: declare_trace! of the kernel crate does
 * not reach those of an external module. While an event is off, a call costs
 * the call and one branch that is not taken. None of them sleeps.
 */
#ifndef SLUICE_BINDINGS_TRACE_H
#define SLUICE_BINDINGS_TRACE_H

#include <linux/types.h>

struct ib_device;

/* What a transfer does. */
enum sluice_trace_operation {
	SLUICE_TRACE_SEND,
	SLUICE_TRACE_WRITE,
	SLUICE_TRACE_READ,
	SLUICE_TRACE_FETCH_ADD,
	SLUICE_TRACE_COMPARE_SWAP,
};

/* How a transfer ended, and because of what. */
enum sluice_trace_end {
	SLUICE_TRACE_COMPLETED,
	SLUICE_TRACE_ABORTED_OWN_QP,
	SLUICE_TRACE_ABORTED_PEER_QP,
	SLUICE_TRACE_FAULTED_LOCAL_KEY,
	SLUICE_TRACE_FAULTED_REMOTE_KEY,
};

/* Whose gate is closed. */
enum sluice_trace_what {
	SLUICE_TRACE_QP,
	SLUICE_TRACE_REGION,
};

/* How a gate is closed. */
enum sluice_trace_mode {
	SLUICE_TRACE_DRAIN,
	SLUICE_TRACE_CANCEL,
};

/* Why a gate is closed. */
enum sluice_trace_cause {
	SLUICE_TRACE_RESET,
	SLUICE_TRACE_ERROR,
	SLUICE_TRACE_DESTROY,
	SLUICE_TRACE_DEREG,
	SLUICE_TRACE_REVOKE,
};

void sluice_trace_transfer_start(struct ib_device *dev, u32 qpn, u32 peer,
				 u64 wr_id, enum sluice_trace_operation op,
				 u64 length);
void sluice_trace_transfer_end(struct ib_device *dev, u32 qpn, u32 peer,
			       u64 wr_id, enum sluice_trace_end end,
			       u64 landed, u64 length);
void sluice_trace_close_begin(struct ib_device *dev,
			      enum sluice_trace_what what, u32 id,
			      enum sluice_trace_mode mode,
			      enum sluice_trace_cause cause, u32 holders);
void sluice_trace_close_end(struct ib_device *dev,
			    enum sluice_trace_what what, u32 id,
			    enum sluice_trace_mode mode, bool past_deadline,
			    u64 waited_ns);

#endif
