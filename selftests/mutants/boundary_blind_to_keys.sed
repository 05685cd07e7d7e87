# SPDX-License-Identifier: GPL-2.0
# A boundary does not look at the gates of regions.
# file: keys/span.rs
# lines: 2
/fn is_cancelled\(/,/^    \}/s/\.any\(.*\)$/.any(|_| false)/
