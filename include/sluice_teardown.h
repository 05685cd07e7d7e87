/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Tearing down several objects of a sluice device as one: see sluice_teardown(3).
 *
 *	struct sluice_action actions[] = {
 *		{ .kind = SLUICE_RESET_QP, .qp = qp },
 *		{ .kind = SLUICE_REVOKE_MR, .mr = mr },
 *	};
 *	struct sluice_teardown_refusal no;
 *	int err = sluice_teardown(context, actions, 2, SLUICE_GROUPED, &no);
 *
 *	if (err)
 *		fprintf(stderr, "action %d: %s\n", (int)no.action, sluice_teardown_why(&no));
 *
 * It needs nothing but libibverbs; the functions are here.
 */
#ifndef SLUICE_TEARDOWN_H
#define SLUICE_TEARDOWN_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/sluice-abi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What to do to one object, and what became of it. Fields that are not named are 0. */
struct sluice_action {
	enum sluice_teardown_kind kind;
	union {
		struct ibv_qp *qp; /* SLUICE_RESET_QP, SLUICE_ERROR_QP */
		struct ibv_mr *mr; /* SLUICE_REVOKE_MR */
	};
	enum sluice_teardown_close close;
	uint32_t timeout_ms;
	struct sluice_teardown_result result; /* filled in if the call succeeds */
};

#define SLUICE_ATTRS_ 7

/* A request as the kernel takes it; behind it there is room for SLUICE_ATTRS_ attributes. */
struct sluice_request_ {
	struct sluice_teardown_action actions[SLUICE_TEARDOWN_MAX];
	struct sluice_teardown_result results[SLUICE_TEARDOWN_MAX];
	uint32_t qps[SLUICE_TEARDOWN_MAX], mrs[SLUICE_TEARDOWN_MAX];
	struct ib_uverbs_ioctl_hdr call;
};

static inline void sluice_attr_(struct sluice_request_ *r, uint16_t id, const void *data,
				size_t len)
{
	struct ib_uverbs_attr *attr = &r->call.attrs[r->call.num_attrs++];

	attr->attr_id = id;
	attr->len = (uint16_t)len;
	attr->flags = UVERBS_ATTR_F_MANDATORY;
	attr->data = (uintptr_t)data;
}

/* What the kernel reads and is no longer than 8 bytes stands in the attribute itself. */
static inline void sluice_attr_in_(struct sluice_request_ *r, uint16_t id, const void *data,
				   size_t len)
{
	uint64_t word = 0;

	if (!len)
		return;
	sluice_attr_(r, id, data, len);
	if (len <= sizeof(word)) {
		memcpy(&word, data, len);
		r->call.attrs[r->call.num_attrs - 1].data = word;
	}
}

/* One call; 0 or an errno. */
static inline int sluice_call_(struct ibv_context *context, struct sluice_request_ *r,
			       const struct sluice_action *actions, unsigned int count,
			       uint64_t completion, uint64_t flags,
			       struct sluice_teardown_refusal *refusal)
{
	unsigned int qps = 0, mrs = 0;

	r->call.num_attrs = 0;
	for (unsigned int i = 0; i < count; i++) {
		struct sluice_teardown_action *action = &r->actions[i];

		memset(action, 0, sizeof(*action));
		/* What does not fit is nothing that there is. */
		action->kind = actions[i].kind > UINT16_MAX ? UINT16_MAX : (uint16_t)actions[i].kind;
		action->close = actions[i].close > UINT16_MAX ? UINT16_MAX : (uint16_t)actions[i].close;
		action->timeout_ms = actions[i].timeout_ms;
		if (actions[i].kind == SLUICE_REVOKE_MR)
			r->mrs[mrs++] = actions[i].mr->handle;
		else
			r->qps[qps++] = actions[i].qp->handle;
	}
	sluice_attr_in_(r, SLUICE_ATTR_TEARDOWN_ACTIONS, r->actions, count * sizeof(r->actions[0]));
	sluice_attr_in_(r, SLUICE_ATTR_TEARDOWN_QPS, r->qps, qps * sizeof(r->qps[0]));
	sluice_attr_in_(r, SLUICE_ATTR_TEARDOWN_MRS, r->mrs, mrs * sizeof(r->mrs[0]));
	sluice_attr_in_(r, SLUICE_ATTR_TEARDOWN_COMPLETION, &completion, sizeof(completion));
	sluice_attr_in_(r, SLUICE_ATTR_TEARDOWN_FLAGS, &flags, sizeof(flags));
	sluice_attr_(r, SLUICE_ATTR_TEARDOWN_RESULTS, r->results, count * sizeof(r->results[0]));
	sluice_attr_(r, SLUICE_ATTR_TEARDOWN_REFUSAL, refusal, sizeof(*refusal));
	r->call.length = (uint16_t)(sizeof(r->call) +
				    r->call.num_attrs * sizeof(r->call.attrs[0]));
	r->call.object_id = SLUICE_OBJECT_TEARDOWN;
	r->call.method_id = SLUICE_METHOD_TEARDOWN;
	r->call.driver_id = RDMA_DRIVER_RXE;

	refusal->action = UINT32_MAX;
	refusal->reason = SLUICE_REFUSED_NOT;
	return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &r->call) ? errno : 0;
}

/*
 * Which of the actions is on an object of another context, where its handle has another meaning;
 * @count if there is none.
 */
static inline unsigned int sluice_foreign_(struct ibv_context *context,
					   const struct sluice_action *actions, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		int is_mr = actions[i].kind == SLUICE_REVOKE_MR;

		if (context != (is_mr ? actions[i].mr->context : actions[i].qp->context))
			return i;
	}
	return count;
}

/*
 * Tears down @count objects of @context as one. Returns 0 when the last is down, and what became of
 * each is in its action; or an errno when nothing has been changed, and why is in @refusal, which
 * may be NULL.
 */
static inline int sluice_teardown(struct ibv_context *context, struct sluice_action *actions,
				  unsigned int count, enum sluice_teardown_completion completion,
				  struct sluice_teardown_refusal *refusal)
{
	struct sluice_teardown_refusal why = { UINT32_MAX, SLUICE_REFUSED_REQUEST };
	struct sluice_request_ *r = NULL;
	int err = EINVAL;

	if (count && count <= SLUICE_TEARDOWN_MAX) {
		unsigned int foreign = sluice_foreign_(context, actions, count);

		if (foreign < count) {
			why.action = foreign;
			why.reason = SLUICE_REFUSED_OBJECT;
			err = ENOENT;
		} else {
			size_t room = SLUICE_ATTRS_ * sizeof(struct ib_uverbs_attr);

			r = (struct sluice_request_ *)calloc(1, sizeof(*r) + room);
			err = r ? sluice_call_(context, r, actions, count, completion, 0, &why) :
				  ENOMEM;
		}
	}
	if (r && err && why.reason == SLUICE_REFUSED_NOT) {
		/* The core refused it, for one of the handles perhaps: ask for one at a time. */
		struct sluice_teardown_refusal one;

		why.reason = SLUICE_REFUSED_REQUEST;
		for (unsigned int i = 0; i < count && err != EPROTONOSUPPORT && err != EIO; i++) {
			int its = sluice_call_(context, r, &actions[i], 1, SLUICE_INDIVIDUAL,
					       SLUICE_TEARDOWN_CHECK, &one);

			if (its && one.reason == SLUICE_REFUSED_NOT) {
				err = its;
				why.action = i;
				why.reason = SLUICE_REFUSED_OBJECT;
				break;
			}
		}
	}
	for (unsigned int i = 0; i < count && !err; i++) {
		actions[i].result = r->results[i];
		/* What libibverbs remembers of a queue pair. */
		if (actions[i].kind == SLUICE_RESET_QP)
			actions[i].qp->state = IBV_QPS_RESET;
		else if (actions[i].kind == SLUICE_ERROR_QP)
			actions[i].qp->state = IBV_QPS_ERR;
	}
	free(r);
	if (refusal)
		*refusal = why;
	/* The device is no sluice device, or an older one. */
	return err == EPROTONOSUPPORT ? EOPNOTSUPP : err;
}

/* Why a request was refused, for a person. */
static inline const char *sluice_teardown_why(const struct sluice_teardown_refusal *refusal)
{
	switch (refusal->reason) {
	case SLUICE_REFUSED_NOT:
		return "not refused";
	case SLUICE_REFUSED_REQUEST:
		return "the request as a whole is refused";
	case SLUICE_REFUSED_KIND:
		return "there is no such kind of action";
	case SLUICE_REFUSED_VALUE:
		return "a field has a value that it cannot have";
	case SLUICE_REFUSED_OBJECT:
		return "this context has no such object";
	case SLUICE_REFUSED_DUPLICATE:
		return "an earlier action names the same object";
	case SLUICE_REFUSED_STATE:
		return "the state of the queue pair does not allow it";
	case SLUICE_REFUSED_COMPLETION:
		return "it cannot be part of a group";
	}
	return "refused for an unknown reason";
}

#ifdef __cplusplus
}
#endif

#endif
