# SPDX-License-Identifier: GPL-2.0
# Destroy closes the gate and does not wait.
# file: teardown/reset.rs
# lines: 2
/fn destroy\(/,/^\}/s/let _drained = close\(qp, Ending::Silent[^()]*\);/qp.set_ending(Ending::Silent); qp.gate().close(crate::teardown::gate::CloseMode::Drain);/
