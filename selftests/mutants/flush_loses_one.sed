# SPDX-License-Identifier: GPL-2.0
# The flush leaves the last send request where it is.
# file: transport/rc/completer.rs
# lines: 2
/fn flush\(/,/^    \}/s/let pending = self\.ring\.pending\(\);/let pending = self.ring.pending().saturating_sub(1);/
