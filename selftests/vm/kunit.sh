#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the KUnit suites inside the module (drivers/.../kunit). KTAP on standard output. The stock kernel
# has no KUnit; the debug kernel does.

shopt -s nullglob
count=0 failed=0

echo 'KTAP version 1'
# A suite's cases are indented; what comes before a bad one says why.
for folder in /sys/kernel/debug/kunit/sluice_*; do
	suite=${folder##*/}
	echo 1 >"$folder/run"
	while IFS= read -r line; do
		if [[ $line =~ ^\ +(not\ )?ok\ [0-9]+\ (.*) ]]; then
			count=$((count + 1))
			echo "${BASH_REMATCH[1]}ok $count $suite: ${BASH_REMATCH[2]}"
			[ -z "${BASH_REMATCH[1]}" ] || failed=1
		else
			echo "# $line"
		fi
	done <"$folder/results"
done
if [ "$count" -eq 0 ]; then
	echo 'no suite here: a kernel without KUnit, or a module without suites'
	exit 4
fi
echo "1..$count"
exit "$failed"
