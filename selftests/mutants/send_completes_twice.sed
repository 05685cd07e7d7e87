# SPDX-License-Identifier: GPL-2.0
# A send request that succeeds completes twice.
# file: transport/rc/completer.rs
# lines: 2
s/^ *(qp\.complete_send\(&send_completion\(ticket, qp\.qpn\(\), Status::Success, bytes\)\);)$/\1 \1/
