// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_verbs.h>

#include "trace.h"

#define CREATE_TRACE_POINTS
#include "trace_events.h"

void sluice_trace_transfer_start(struct ib_device *dev, u32 qpn, u32 peer,
				 u64 wr_id, enum sluice_trace_operation op,
				 u64 length)
{
	if (trace_sluice_transfer_start_enabled())
		trace_sluice_transfer_start(dev, qpn, peer, wr_id, op, length);
}

void sluice_trace_transfer_end(struct ib_device *dev, u32 qpn, u32 peer,
			       u64 wr_id, enum sluice_trace_end end,
			       u64 landed, u64 length)
{
	if (trace_sluice_transfer_end_enabled())
		trace_sluice_transfer_end(dev, qpn, peer, wr_id, end, landed,
					  length);
}

void sluice_trace_close_begin(struct ib_device *dev,
			      enum sluice_trace_what what, u32 id,
			      enum sluice_trace_mode mode,
			      enum sluice_trace_cause cause, u32 holders)
{
	if (trace_sluice_close_begin_enabled())
		trace_sluice_close_begin(dev, what, id, mode, cause, holders);
}

void sluice_trace_close_end(struct ib_device *dev,
			    enum sluice_trace_what what, u32 id,
			    enum sluice_trace_mode mode, bool past_deadline,
			    u64 waited_ns)
{
	if (trace_sluice_close_end_enabled())
		trace_sluice_close_end(dev, what, id, mode, past_deadline,
				       waited_ns);
}
