#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Load, use, unload, again and again: nothing may be left behind. For the test VM, as root.
# KTAP on standard output. ROUNDS (default 100, less on a slow kernel) of load, link, traffic, unload.
#
# Devices there before (called sluice...) are removed first and made again at the end.

# shellcheck disable=SC2317 # the tests are called by their names

cd "$(dirname "$0")/.." || exit 1
slow=${SLUICE_SLOW:-1}
rounds=${ROUNDS:-$((100 / slow))}
netdev=sluice-l
dev=sluice_l
export SLUICE_DEV=$dev
number=0 failed=0

# result NAME CODE [WHY]
result() {
	number=$((number + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $number lifecycle.$1"
	else
		echo "not ok $number lifecycle.$1${3:+ # $3}"
		failed=1
	fi
}

say() { echo "# $*"; }

loaded() { grep -q '^sluice ' /proc/modules; }

# within SECONDS CMD...: its code, or 124 when it takes longer. A slow kernel has SLUICE_SLOW times that.
within() { timeout -k 5 $(($1 * slow)) "${@:2}"; }

setup_netdev() {
	ip link add "$netdev" type dummy 2>/dev/null
	ip link set "$netdev" mtu 4608 up && ip addr replace 192.168.94.1/24 dev "$netdev"
}

link_add() {
	rdma link add "$dev" type sluice netdev "$netdev" || return 1
	# The GID table is filled by a work item.
	for _ in $(seq 100); do
		! grep -qv '^0000:0000:0000:0000:0000:0000:0000:0000$' \
			"/sys/class/infiniband/$dev/ports/1/gids/0" || return 0
		sleep 0.02
	done
	say "no GID appeared"
	return 1
}

# Every operation once, with the payload compared.
traffic() {
	within 60 selftests/rc_ops -t send -t write -t read -t fetch_and_add \
		-t thirty_two_sges_each_side >/tmp/traffic.log 2>&1 || {
		grep -E '^not ok|Expected' /tmp/traffic.log | sed 's/^/# /'
		return 1
	}
}

# KiB that the kernel holds for itself.
kernel_memory() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^(Slab|VmallocUsed|KernelStack|PageTables|Percpu):/ { sum += $2 } END { print sum }' \
		/proc/meminfo
}

unload() { within 30 rmmod sluice; }

# A process that streams for some seconds, and is not told that anything is taken away.
start_stream() {
	# What it waits for in vain when all is gone, it need not wait for longer on a slow kernel.
	SLUICE_SLOW=1 selftests/teardown -t I5_every_teardown_is_bounded >/tmp/stream.log 2>&1 &
	stream=$!
	for _ in $(seq 100); do
		sleep 0.05
		! rdma resource show "$dev" | grep -Eq ' qp [1-9]' || break
	done
	rdma resource show "$dev" | grep -Eq ' qp [1-9]' || { say "no stream is running"; return 1; }
}

test_rounds() {
	local before=0 after

	for round in $(seq "$rounds"); do
		modprobe sluice || { say "round $round: modprobe"; return 1; }
		link_add || { say "round $round: link add"; return 1; }
		traffic || { say "round $round: traffic"; return 1; }
		# Every other round leaves the link to the module's exit.
		[ $((round % 2)) -eq 0 ] || rdma link del "$dev" || { say "round $round: del"; return 1; }
		unload || { say "round $round: rmmod ($?)"; return 1; }
		[ "$round" -ne $((rounds / 4 + 1)) ] || before=$(kernel_memory)
	done
	after=$(kernel_memory)
	say "kernel memory after a quarter and all of $rounds rounds: $before KiB, $after KiB"
	# A page lost in each round would be seen; the allocators' own noise is less than this. A kernel
	# that watches itself makes more of it: it keeps what was freed for a while, and remembers each
	# stack it has seen.
	[ $((after - before)) -lt $((rounds * 3 + 1024 * slow)) ]
}

test_alias() {
	loaded && ! unload && return 1
	# The link type loads its module.
	link_add && loaded && rdma link del "$dev"
}

test_refcount() {
	loaded || modprobe sluice
	link_add || return 1
	traffic || return 1
	rdma link del "$dev" || return 1
	local count
	count=$(awk '$1 == "sluice" { print $3 }' /proc/modules)
	say "references with no link and no user: $count"
	[ "$count" -eq 0 ]
}

test_no_objects() {
	link_add || return 1
	traffic || return 1
	local left
	left=$(rdma resource show "$dev")
	say "$left"
	rdma link del "$dev"
	! echo "$left" | grep -Eq '(qp|cq|mr|pd|ctx|srq|cm_id) [1-9]'
}

# Row 23 of Documentation/field.rst: rdma-core's own tests, however they end, leave nothing.
test_nothing_left_by_pyverbs() {
	link_add || return 1
	within 300 guest/pyverbs-tests.py "$dev" rxe0 vm/pyverbs.known test_mr test_cq test_qp \
		>/tmp/pyverbs.log 2>&1
	say "$(grep -c '^ok' /tmp/pyverbs.log) tests ran"
	grep -q '^ok' /tmp/pyverbs.log || return 1
	local left
	left=$(rdma resource show "$dev")
	say "$left"
	! echo "$left" | grep -Eq '(qp|cq|mr|pd|ctx|srq|cm_id) [1-9]' || return 1
	rdma link del "$dev" && unload
}

# Taken away while a process streams: it must not hang, neither must the process.
busy_removal() {
	loaded || modprobe sluice
	link_add || return 1
	start_stream || return 1
	"$@" || { say "$*: code $?"; kill -9 "$stream"; return 1; }
	wait "$stream"
	say "the stream's program ended with $?"
}

test_del_busy() { busy_removal within 30 rdma link del "$dev"; }

test_unload_busy() { busy_removal unload && ! loaded; }

test_netdev_busy() {
	busy_removal within 30 ip link del "$netdev" || return 1
	for _ in $(seq 100); do
		[ -e "/sys/class/infiniband/$dev" ] || break
		sleep 0.05
	done
	[ ! -e "/sys/class/infiniband/$dev" ] || return 1
	setup_netdev
}

# The link vanishes while its users are killed.
test_kill_and_unload() {
	for round in $(seq $((slow > 1 ? 3 : 10))); do
		loaded || modprobe sluice
		link_add || return 1
		start_stream || return 1
		# The program and the test it runs.
		# shellcheck disable=SC2046 # process numbers, one a word
		kill -9 "$stream" $(cat "/proc/$stream/task/$stream/children")
		unload || { say "round $round: rmmod ($?)"; return 1; }
		wait "$stream"
	done 2>/dev/null
	return 0
}

test_beside_rxe() {
	# Both types on one netdev are refused or work, but never disturb each other.
	modprobe rdma_rxe || { say "no rdma_rxe here"; return 0; }
	loaded || modprobe sluice
	link_add || return 1
	ip link add sluice-x type dummy && ip link set sluice-x up
	ip addr add 192.168.95.1/24 dev sluice-x
	rdma link add rxe_l type rxe netdev sluice-x || say "rxe could not be added"
	traffic || return 1
	rdma link del rxe_l 2>/dev/null
	ip link del sluice-x
	traffic && rdma link del "$dev"
}

# NAME NETDEV of each device that is there.
links() {
	rdma link show | sed -n 's,^link \(sluice[^/]*\)/.* netdev \([^ ]*\).*,\1 \2,p'
}

restore() {
	ip link del "$netdev" 2>/dev/null
	[ -z "$others" ] || modprobe sluice
	while read -r name below; do
		[ -z "$name" ] || rdma link add "$name" type sluice netdev "$below"
	done <<<"$others"
}

tests=(alias refcount no_objects nothing_left_by_pyverbs del_busy netdev_busy unload_busy kill_and_unload beside_rxe rounds)
echo "TAP version 13"
echo "1..${#tests[@]}"
others=$(links)
trap restore EXIT
while read -r name _; do
	[ -z "$name" ] || rdma link del "$name"
done <<<"$others"
setup_netdev || { echo "Bail out! cannot make the netdev $netdev"; exit 1; }
! loaded || unload
for test in "${tests[@]}"; do
	"test_$test"
	result "$test" $?
	rdma link del "$dev" 2>/dev/null
done
! loaded || unload
exit $failed
