# SPDX-License-Identifier: GPL-2.0
# A queue pair that fails by itself goes on admitting work.
# file: transport/qp.rs
# lines: 1
/fn fail\(/,/^    \}/{/self\.gate\.close\(CloseMode::Cancel\);/d}
