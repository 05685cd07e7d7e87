# SPDX-License-Identifier: GPL-2.0
# A message that starts while its queue pair and its region go as one sees that the region has gone,
# and does not ask whether the queue pair has.
# test: transaction
# file: transport/rc/requester.rs
# lines: 4
/fn start\(/,/^    \}/s/own\.is_withdrawn\(\)/false/
