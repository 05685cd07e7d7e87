# SPDX-License-Identifier: GPL-2.0
# A boundary does not look at the gate of the requester.
# file: engine/transfer.rs
# lines: 2
/fn look\(/,/^    \}/s/if self\.own\.is_cancelled\(\)/if false/
