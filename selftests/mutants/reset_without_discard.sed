# SPDX-License-Identifier: GPL-2.0
# RESET leaves in the queues what was posted.
# file: teardown/reset.rs
# lines: 1
/fn enter_reset\(/,/^\}/{/qp\.discard\(\);/d}
