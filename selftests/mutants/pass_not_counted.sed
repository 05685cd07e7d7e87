# SPDX-License-Identifier: GPL-2.0
# A closed gate is no obstacle: who comes late works on, uncounted.
# file: transport/pass.rs
# lines: 2
s/Some\(qp\.gate\(\)\.enter\(\)\?\)/qp.gate().enter()/
