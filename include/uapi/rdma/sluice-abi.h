/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What a program can ask of a sluice device beside the verbs: to tear down
 * several of its objects as one.
 *
 * It is a method of the uverbs ioctl interface, RDMA_VERBS_IOCTL on the file of
 * the program's context. sluice_teardown.h makes the call.
 */
#ifndef SLUICE_ABI_USER_H
#define SLUICE_ABI_USER_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

/*
 * The driver's own numbers. Its driver id is that of rdma_rxe, so the object's
 * is not the first one, which rdma_rxe would take.
 */
enum sluice_objects {
	SLUICE_OBJECT_TEARDOWN = (1U << UVERBS_ID_NS_SHIFT) + 8,
};

enum sluice_teardown_methods {
	SLUICE_METHOD_TEARDOWN = 1U << UVERBS_ID_NS_SHIFT,
};

/*
 * ACTIONS: an array of struct sluice_teardown_action.
 * QPS, MRS: arrays of handles. The first action on a queue pair means the first
 * of QPS, the second one the second, and so on to the last; so with MRS. An
 * array that would be empty is left out.
 * COMPLETION: of enum sluice_teardown_completion; individual if it is left out.
 * FLAGS: of enum sluice_teardown_flags; none if it is left out.
 * RESULTS: room for as many struct sluice_teardown_result as there are actions.
 * REFUSAL: room for a struct sluice_teardown_refusal, written if the request is
 * refused; may be left out.
 */
enum sluice_teardown_attrs {
	SLUICE_ATTR_TEARDOWN_ACTIONS = 1U << UVERBS_ID_NS_SHIFT,
	SLUICE_ATTR_TEARDOWN_QPS,
	SLUICE_ATTR_TEARDOWN_MRS,
	SLUICE_ATTR_TEARDOWN_COMPLETION,
	SLUICE_ATTR_TEARDOWN_FLAGS,
	SLUICE_ATTR_TEARDOWN_RESULTS,
	SLUICE_ATTR_TEARDOWN_REFUSAL,
};

/* The most actions of one request. */
#define SLUICE_TEARDOWN_MAX	256

/* What is done to an object. */
enum sluice_teardown_kind {
	SLUICE_RESET_QP = 1,	/* as ibv_modify_qp() to RESET */
	SLUICE_ERROR_QP,	/* as ibv_modify_qp() to ERR */
	SLUICE_REVOKE_MR,	/* as ibv_dereg_mr(), but for the handle */
};

/* How its gate is closed. */
enum sluice_teardown_close {
	SLUICE_CLOSE_BY_POLICY,	/* as the device's policy says */
	SLUICE_CLOSE_DRAIN,	/* drain; not in a group, which may cut it */
	SLUICE_CLOSE_CANCEL,	/* cancel */
};

/* What a drain that goes wrong means for the others. */
enum sluice_teardown_completion {
	SLUICE_INDIVIDUAL,	/* nothing */
	SLUICE_GROUPED,		/* they are all cancelled at once */
};

enum sluice_teardown_flags {
	/* Say whether the request would be refused, and change nothing. */
	SLUICE_TEARDOWN_CHECK = 1 << 0,
};

struct sluice_teardown_action {
	__u16 kind;		/* enum sluice_teardown_kind */
	__u16 close;		/* enum sluice_teardown_close */
	__u32 timeout_ms;	/* of a drain; 0, or more than the device
				 * allows: as long as the device allows
				 */
	__u32 reserved[2];	/* 0 */
};

/* What became of the transfers that were inside when the gate was closed. */
enum sluice_teardown_outcome {
	SLUICE_DRAINED = 1,	/* they ended by themselves, or there were none */
	SLUICE_CANCELLED,	/* they were told to leave */
	SLUICE_FAULTED,		/* one failed, and that ended the drain */
};

enum sluice_teardown_result_flags {
	/* The drain reached its deadline. */
	SLUICE_PAST_DEADLINE = 1 << 0,
	/* The drain was cut short because of another action of its group. */
	SLUICE_CUT_BY_GROUP = 1 << 1,
};

struct sluice_teardown_result {
	__u32 outcome;		/* enum sluice_teardown_outcome */
	__u32 flags;		/* enum sluice_teardown_result_flags */
	__aligned_u64 waited_ns; /* from the commit until nobody was inside */
	__aligned_u64 cut;	/* transfers that were cut by this action */
	__aligned_u64 landed;	/* bytes of those that had landed */
};

/* Why a request is refused. */
enum sluice_teardown_reason {
	SLUICE_REFUSED_NOT,		/* it is not */
	SLUICE_REFUSED_REQUEST,		/* no action's fault: see the errno */
	SLUICE_REFUSED_KIND,		/* there is no such kind of action */
	SLUICE_REFUSED_VALUE,		/* a field has a value it cannot have */
	SLUICE_REFUSED_OBJECT,		/* the program has no such object */
	SLUICE_REFUSED_DUPLICATE,	/* an earlier action has the object */
	SLUICE_REFUSED_STATE,		/* the queue pair's state forbids it */
	SLUICE_REFUSED_COMPLETION,	/* not with this completion mode */
};

struct sluice_teardown_refusal {
	__u32 action;		/* which, from 0; ~0 if it is none of them */
	__u32 reason;		/* enum sluice_teardown_reason */
};

#endif
