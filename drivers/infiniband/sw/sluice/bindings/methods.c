// SPDX-License-Identifier: GPL-2.0

#include "methods.h"

#include <rdma/ib_verbs.h>
#include <rdma/sluice-abi.h>
#include <rdma/uverbs_types.h>

#define UVERBS_MODULE_NAME sluice
#include <rdma/uverbs_named_ioctl.h>

static int (*sluice_teardown)(struct uverbs_attr_bundle *attrs);

static int
UVERBS_HANDLER(SLUICE_METHOD_TEARDOWN)(struct uverbs_attr_bundle *attrs)
{
	return sluice_teardown(attrs);
}

DECLARE_UVERBS_NAMED_METHOD(
	SLUICE_METHOD_TEARDOWN,
	UVERBS_ATTR_PTR_IN(SLUICE_ATTR_TEARDOWN_ACTIONS,
			   UVERBS_ATTR_MIN_SIZE(sizeof(struct sluice_teardown_action)),
			   UA_MANDATORY, UA_ALLOC_AND_COPY),
	UVERBS_ATTR_IDRS_ARR(SLUICE_ATTR_TEARDOWN_QPS, UVERBS_OBJECT_QP,
			     UVERBS_ACCESS_READ, 1, SLUICE_TEARDOWN_MAX,
			     UA_OPTIONAL),
	UVERBS_ATTR_IDRS_ARR(SLUICE_ATTR_TEARDOWN_MRS, UVERBS_OBJECT_MR,
			     UVERBS_ACCESS_READ, 1, SLUICE_TEARDOWN_MAX,
			     UA_OPTIONAL),
	UVERBS_ATTR_CONST_IN(SLUICE_ATTR_TEARDOWN_COMPLETION,
			     enum sluice_teardown_completion, UA_OPTIONAL),
	UVERBS_ATTR_FLAGS_IN(SLUICE_ATTR_TEARDOWN_FLAGS,
			     enum sluice_teardown_flags, UA_OPTIONAL),
	UVERBS_ATTR_PTR_OUT(SLUICE_ATTR_TEARDOWN_RESULTS,
			    UVERBS_ATTR_MIN_SIZE(sizeof(struct sluice_teardown_result)),
			    UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(SLUICE_ATTR_TEARDOWN_REFUSAL,
			    UVERBS_ATTR_TYPE(struct sluice_teardown_refusal),
			    UA_OPTIONAL));

DECLARE_UVERBS_GLOBAL_METHODS(SLUICE_OBJECT_TEARDOWN,
			      &UVERBS_METHOD(SLUICE_METHOD_TEARDOWN));

static const struct uapi_definition sluice_definitions[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(SLUICE_OBJECT_TEARDOWN),
	{},
};

const struct uapi_definition *
sluice_methods(int (*teardown)(struct uverbs_attr_bundle *attrs))
{
	sluice_teardown = teardown;
	return sluice_definitions;
}
