// SPDX-License-Identifier: GPL-2.0
/*
 * The parameters of the module: with which policies a device begins. The
 * module!() macro of the kernel crate has only numbers that cannot be changed.
 * What a parameter does is in abstractions/parameter.rs, which is given the
 * parameter's name as the argument.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "helpers.h"

#define PARAMETER(name, type, description)				\
	module_param_cb(name, &sluice_parameter_ops, #name, 0644);	\
	__MODULE_PARM_TYPE(name, #type);				\
	MODULE_PARM_DESC(name, description)

PARAMETER(reset_policy, charp,
	  "What reset, error and destruction of a queue pair do to running transfers, for devices made afterwards: drain (default) or abort");
PARAMETER(revoke_policy, charp,
	  "What deregistration of a region does to running transfers, for devices made afterwards: cancel (default) or drain");
PARAMETER(drain_timeout_ms, uint,
	  "When a drain becomes a cancel, for devices made afterwards: 0 to 60000 ms (default 1000)");
PARAMETER(burst_bytes, uint,
	  "How much a transfer moves between two places where it can be cut, for devices made afterwards: 4096 to 1048576 bytes (default 65536)");
