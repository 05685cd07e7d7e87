# SPDX-License-Identifier: GPL-2.0
# Nobody waits for the last holder of a gate that was closed.
# file: teardown/gate.rs
# lines: 1
/pub fn wait\(&self\)/,/\}/{/self\.empty\.wait\(\);/d}
