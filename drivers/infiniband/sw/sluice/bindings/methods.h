/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver's own methods of the uverbs ioctl interface. Their tables are made
 * by macros, so they are in C; what carries the methods out is not.
 */
#ifndef SLUICE_BINDINGS_METHODS_H
#define SLUICE_BINDINGS_METHODS_H

struct uapi_definition;
struct uverbs_attr_bundle;

/* The methods, of which @teardown is SLUICE_METHOD_TEARDOWN from now on. */
const struct uapi_definition *
sluice_methods(int (*teardown)(struct uverbs_attr_bundle *attrs));

#endif
