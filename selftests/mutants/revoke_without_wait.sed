# SPDX-License-Identifier: GPL-2.0
# Deregistration takes the pages back, and unpins them, without waiting for who uses them. (It waits
# in two places.)
# file: abstractions/table.rs
# lines: 3
/fn wait\(&self\)/,/\}/s/self\.node\(\)\.gate\.wait\(\)/unsafe { core::mem::transmute::<(), Drained>(()) }/
/fn take_value\(/,/^    \}/{/gate\.wait\(\);/d}
