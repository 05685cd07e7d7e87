/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints (contract, section 7). Documentation/observe.rst explains
 * them to those who read them.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sluice

#if !defined(SLUICE_BINDINGS_TRACE_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define SLUICE_BINDINGS_TRACE_EVENTS_H

#include <linux/tracepoint.h>
#include <rdma/ib_verbs.h>

#include "trace.h"

/* Each name stands once here; the lists below make of it what they need. */
#define SLUICE_TRACE_OPERATIONS					\
	EM(SLUICE_TRACE_SEND, "send")				\
	EM(SLUICE_TRACE_WRITE, "write")			\
	EM(SLUICE_TRACE_READ, "read")				\
	EM(SLUICE_TRACE_FETCH_ADD, "fetch_add")		\
	EMe(SLUICE_TRACE_COMPARE_SWAP, "compare_swap")
#define SLUICE_TRACE_ENDS						\
	EM(SLUICE_TRACE_COMPLETED, "completed")			\
	EM(SLUICE_TRACE_ABORTED_OWN_QP, "aborted: own QP")		\
	EM(SLUICE_TRACE_ABORTED_PEER_QP, "aborted: peer QP")		\
	EM(SLUICE_TRACE_FAULTED_LOCAL_KEY, "faulted: local key")	\
	EMe(SLUICE_TRACE_FAULTED_REMOTE_KEY, "faulted: remote key")
#define SLUICE_TRACE_WHATS			\
	EM(SLUICE_TRACE_QP, "qp")		\
	EMe(SLUICE_TRACE_REGION, "region")
#define SLUICE_TRACE_MODES			\
	EM(SLUICE_TRACE_DRAIN, "drain")	\
	EMe(SLUICE_TRACE_CANCEL, "cancel")
#define SLUICE_TRACE_CAUSES			\
	EM(SLUICE_TRACE_RESET, "reset")	\
	EM(SLUICE_TRACE_ERROR, "error")	\
	EM(SLUICE_TRACE_DESTROY, "destroy")	\
	EM(SLUICE_TRACE_DEREG, "dereg")		\
	EMe(SLUICE_TRACE_REVOKE, "revoke")

/* Tell programs that read the trace the values of the names. */
#undef EM
#undef EMe
#define EM(value, name)	TRACE_DEFINE_ENUM(value);
#define EMe(value, name)	TRACE_DEFINE_ENUM(value);
SLUICE_TRACE_OPERATIONS
SLUICE_TRACE_ENDS
SLUICE_TRACE_WHATS
SLUICE_TRACE_MODES
SLUICE_TRACE_CAUSES

/* From here on they are lists for __print_symbolic(). */
#undef EM
#undef EMe
#define EM(value, name)	{ value, name },
#define EMe(value, name)	{ value, name }

TRACE_EVENT(sluice_transfer_start,
	TP_PROTO(struct ib_device *dev, u32 qpn, u32 peer, u64 wr_id,
		 enum sluice_trace_operation op, u64 length),
	TP_ARGS(dev, qpn, peer, wr_id, op, length),
	TP_STRUCT__entry(
		__string(device, dev_name(&dev->dev))
		__field(u32, qpn)
		__field(u32, peer)
		__field(u64, wr_id)
		__field(u32, operation)
		__field(u64, length)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->qpn = qpn;
		__entry->peer = peer;
		__entry->wr_id = wr_id;
		__entry->operation = op;
		__entry->length = length;
	),
	TP_printk("device=%s qpn=%u peer=%u wr_id=%llu operation=%s length=%llu",
		  __get_str(device), __entry->qpn, __entry->peer,
		  __entry->wr_id,
		  __print_symbolic(__entry->operation, SLUICE_TRACE_OPERATIONS),
		  __entry->length)
);

TRACE_EVENT(sluice_transfer_end,
	TP_PROTO(struct ib_device *dev, u32 qpn, u32 peer, u64 wr_id,
		 enum sluice_trace_end end, u64 landed, u64 length),
	TP_ARGS(dev, qpn, peer, wr_id, end, landed, length),
	TP_STRUCT__entry(
		__string(device, dev_name(&dev->dev))
		__field(u32, qpn)
		__field(u32, peer)
		__field(u64, wr_id)
		__field(u32, end)
		__field(u64, landed)
		__field(u64, length)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->qpn = qpn;
		__entry->peer = peer;
		__entry->wr_id = wr_id;
		__entry->end = end;
		__entry->landed = landed;
		__entry->length = length;
	),
	/* The words come last: they have blanks, and no reader knows escapes. */
	TP_printk("device=%s qpn=%u peer=%u wr_id=%llu landed=%llu length=%llu end=%s",
		  __get_str(device), __entry->qpn, __entry->peer,
		  __entry->wr_id, __entry->landed, __entry->length,
		  __print_symbolic(__entry->end, SLUICE_TRACE_ENDS))
);

TRACE_EVENT(sluice_close_begin,
	TP_PROTO(struct ib_device *dev, enum sluice_trace_what what, u32 id,
		 enum sluice_trace_mode mode, enum sluice_trace_cause cause,
		 u32 holders),
	TP_ARGS(dev, what, id, mode, cause, holders),
	TP_STRUCT__entry(
		__string(device, dev_name(&dev->dev))
		__field(u32, what)
		__field(u32, id)
		__field(u32, mode)
		__field(u32, cause)
		__field(u32, holders)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->what = what;
		__entry->id = id;
		__entry->mode = mode;
		__entry->cause = cause;
		__entry->holders = holders;
	),
	TP_printk("device=%s what=%s id=%u (0x%x) mode=%s cause=%s holders=%u",
		  __get_str(device),
		  __print_symbolic(__entry->what, SLUICE_TRACE_WHATS),
		  __entry->id, __entry->id,
		  __print_symbolic(__entry->mode, SLUICE_TRACE_MODES),
		  __print_symbolic(__entry->cause, SLUICE_TRACE_CAUSES),
		  __entry->holders)
);

TRACE_EVENT(sluice_close_end,
	TP_PROTO(struct ib_device *dev, enum sluice_trace_what what, u32 id,
		 enum sluice_trace_mode mode, bool past_deadline,
		 u64 waited_ns),
	TP_ARGS(dev, what, id, mode, past_deadline, waited_ns),
	TP_STRUCT__entry(
		__string(device, dev_name(&dev->dev))
		__field(u32, what)
		__field(u32, id)
		__field(u32, mode)
		__field(bool, past_deadline)
		__field(u64, waited_ns)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->what = what;
		__entry->id = id;
		__entry->mode = mode;
		__entry->past_deadline = past_deadline;
		__entry->waited_ns = waited_ns;
	),
	TP_printk("device=%s what=%s id=%u (0x%x) mode=%s past_deadline=%u waited_ns=%llu",
		  __get_str(device),
		  __print_symbolic(__entry->what, SLUICE_TRACE_WHATS),
		  __entry->id, __entry->id,
		  __print_symbolic(__entry->mode, SLUICE_TRACE_MODES),
		  __entry->past_deadline, __entry->waited_ns)
);

#endif

/*
 * Looked for where the compiler is told to look, which is this folder's parent.
 * Not ".": the kernel has a file of this name beside the header included next.
 */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH bindings
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace_events
#include <trace/define_trace.h>
