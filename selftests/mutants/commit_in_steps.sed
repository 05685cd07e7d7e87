# SPDX-License-Identifier: GPL-2.0
# Several gates that go as one are closed one after the other, for everybody to see.
# test: transaction
# file: teardown/commit.rs
# lines: 2
/fn all\(/,/^    \}/s/self\.lock\.with\(close\)/close()/
