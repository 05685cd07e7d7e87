#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma-core's own tests through pyverbs: at least as good as rdma_rxe, but for what pyverbs.known lists.

exec guest/pyverbs-tests.py "${SLUICE_DEV:-sluice0}" rxe0 vm/pyverbs.known \
	test_device test_addr test_pd test_mr test_cq test_cq_events test_cqex test_qp test_qpex \
	test_atomic test_relaxed_ordering test_shared_pd test_fork
