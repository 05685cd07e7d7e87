# SPDX-License-Identifier: GPL-2.0
# A closed gate is no obstacle: who comes late works on, uncounted.
# file: transport/pass.rs
# lines: 4
s/let Some\(holder\) = qp\.gate\(\)\.enter\(\) else/let Some(holder) = Some(qp.gate().enter()) else/
s/holder: Some\(holder\)/holder/
