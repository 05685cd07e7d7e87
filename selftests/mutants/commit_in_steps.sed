# SPDX-License-Identifier: GPL-2.0
# Several gates that go as one are closed one after the other, for everybody to see.
# test: transaction
# file: teardown/transaction.rs
# lines: 2
s/\.all\(\|\| closings\.iter_mut\(\)\.for_each\(Closing::close\)\);/.settle(); for closing in \&mut closings { closing.close(); kernel::time::delay::fsleep(Delta::from_micros(50)); }/
