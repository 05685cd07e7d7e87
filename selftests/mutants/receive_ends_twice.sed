# SPDX-License-Identifier: GPL-2.0
# A receive request that fails stays in its queue, to be flushed as well.
# file: transport/rc/responder.rs
# lines: 1
/fn fail_recv\(/,/^    \}/{/self\.ring\.retire\(\);/d}
