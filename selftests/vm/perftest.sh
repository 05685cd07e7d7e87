#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Every kind of perftest run to its end on the device: all operations, bandwidth and latency, 2 B to
# 8 MiB, 1, 2 and 16 QPs, events, inline, both directions. It looks at no figures and no payload;
# tools/bench and the C programs do.

device=${SLUICE_DEV:-sluice0}
count=0
failed=0

# check NAME PROGRAM ARGUMENT...: one perftest run, one KTAP line.
check() {
	local name=$1 output
	shift
	# A slow kernel gets every kind of run, but no long ones: as few messages as perftest takes where
	# they are large, and else what is enough for lists and moderation.
	local arguments=("$@") i most=32
	[[ " $* " != *' -a '* ]] || most=5
	for i in "${!arguments[@]}"; do
		if [ "${SLUICE_SLOW:-1}" -gt 1 ] && [ "${arguments[i]}" = -n ] &&
			[ "${arguments[i + 1]}" -gt "$most" ]; then
			arguments[i + 1]=$most
		fi
	done
	set -- "${arguments[@]}"
	count=$((count + 1))
	if output=$(guest/perftest.py "$device" "$@" 2>&1); then
		echo "# $output"
		echo "ok $count $name"
	else
		echo "# ${output//$'\n'/$'\n'# }"
		echo "not ok $count $name"
		failed=1
	fi
}

echo 'KTAP version 1'
for operation in write send read; do
	for qps in 1 2 16; do
		check "${operation}_bw, all sizes, $qps QPs" "ib_${operation}_bw" -a -n 20 -q "$qps"
	done
	check "${operation}_bw, both directions, all sizes" "ib_${operation}_bw" -a -n 20 -b
	check "${operation}_bw, both directions, 16 QPs" "ib_${operation}_bw" -s 65536 -n 20 -b -q 16
	# perftest has no events for WRITE.
	[ "$operation" = write ] ||
		check "${operation}_bw, events" "ib_${operation}_bw" -s 65536 -n 200 -e
	check "${operation}_lat, all sizes" "ib_${operation}_lat" -a -n 20
done
for operation in write send; do
	for size in 2 64; do
		check "${operation}_bw, $size B inline" "ib_${operation}_bw" -s "$size" -n 1000 -I 64
		check "${operation}_lat, $size B inline" "ib_${operation}_lat" -s "$size" -n 1000 -I 64
	done
done
for operation in send read; do
	check "${operation}_lat, events" "ib_${operation}_lat" -s 2 -n 200 -e
done
for kind in FETCH_AND_ADD CMP_AND_SWAP; do
	for qps in 1 2 16; do
		check "atomic_bw $kind, $qps QPs" ib_atomic_bw -A "$kind" -n 200 -q "$qps"
	done
	check "atomic_bw $kind, both directions" ib_atomic_bw -A "$kind" -n 200 -b
	check "atomic_bw $kind, events" ib_atomic_bw -A "$kind" -n 200 -e
	check "atomic_lat $kind" ib_atomic_lat -A "$kind" -n 200
done
for mtu in 256 1024; do
	check "write_bw, path MTU $mtu" ib_write_bw -s 65536 -n 50 -m "$mtu"
done
check 'send_bw, a list of 8 requests per doorbell' ib_send_bw -s 4096 -n 200 -l 8
check 'write_bw, one completion for 16 requests' ib_write_bw -s 4096 -n 1600 -Q 16
check 'write_bw, huge pages' ib_write_bw -s 1048576 -n 20 --use_hugepages
echo "1..$count"
exit "$failed"
