# SPDX-License-Identifier: GPL-2.0
# A drain that goes wrong is none of the business of the others in its group.
# test: transaction
# file: teardown/drain.rs
# lines: 2
/fn drain_all</,/^\}/s/if grouped/if false/
