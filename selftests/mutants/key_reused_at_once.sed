# SPDX-License-Identifier: GPL-2.0
# A key is handed out again as soon as it has been given back.
# file: abstractions/table.rs
# lines: 2
s/let mut cursor = self\.inner\.cursor\.lock\(\);/let mut cursor = self.inner.cursor.lock(); cursor.next = self.first;/
