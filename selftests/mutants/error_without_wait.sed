# SPDX-License-Identifier: GPL-2.0
# ERR closes the gate and does not wait.
# file: teardown/reset.rs
# lines: 4
/fn to_error\(/,/^\}/{
s/let drained = close\(qp, Ending::Error[^()]*\);/qp.set_ending(Ending::Error); qp.gate().close(crate::teardown::gate::CloseMode::Drain);/
s/enter_error\(qp, drained\);/qp.set_state(QpState::Err); qp.flush();/
}
