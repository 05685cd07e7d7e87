#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a person can see of a transfer and of a teardown (contract, section 7): the tracepoints, what
# `rdma resource show -dd` says of the objects, and the counters; and that the three agree. For the
# test VM, as root. KTAP on standard output. A hold point parks the transfer that is looked at.

# shellcheck disable=SC2317 # the tests are called by their names

cd "$(dirname "$0")/.." || exit 1
slow=${SLUICE_SLOW:-1}
dev=${SLUICE_DEV:-sluice0}
trace=/sys/kernel/tracing
hold=/sys/kernel/debug/sluice/$dev/hold
knobs=/sys/class/infiniband/$dev
size=$((1 << 20)) burst=65536
number=0 failed=0

say() { echo "# $*"; }

# result NAME CODE
result() {
	number=$((number + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $number observe.$1"
	else
		echo "not ok $number observe.$1"
		failed=1
	fi
}

# --- the two queue pairs -----------------------------------------------------------------------

start_peer() {
	coproc PEER { exec vm/observe_peer.py "$dev" 2>&1; }
	exec {from_peer}<&"${PEER[0]}" {to_peer}>&"${PEER[1]}"
	# The shell's own copies go, so that closing ours is the end of the peer's input.
	eval "exec ${PEER[0]}<&- ${PEER[1]}>&-"
	peer_pid=$!
	hear ready || return 1
	read -r _ _ qpn peer_qpn _ lkey rkey <<<"$heard"
}

end_peer() {
	[ -n "${peer_pid:-}" ] || return 0
	echo 'release all' >"$hold"
	# The end of its input is the end of it.
	exec {to_peer}>&-
	wait "$peer_pid"
	exec {from_peer}<&-
	peer_pid=
}

tell() { echo "$*" >&"$to_peer"; }

# hear WORD: the next answer, which has to begin with WORD.
hear() {
	heard=
	read -r -t $((20 * slow)) heard <&"$from_peer"
	[[ $heard = "$1"* ]] || { say "waited for '$1', got '$heard'"; return 1; }
}

ask() { tell "$1" && hear "$2"; }

# --- what is seen ------------------------------------------------------------------------------

# events [PATTERN]: the trace, one event a line, without the columns in front.
events() {
	grep -v '^#' "$trace/trace" | sed -n 's/^.* \(sluice_[a-z_]*: .*\)$/\1/p' | grep -E "${1:-.}"
}

# expect N PATTERN: there are just N such events.
expect() {
	local count
	count=$(events "$2" | wc -l)
	[ "$count" -eq "$1" ] && return
	say "events like '$2': $count, not $1; the trace is"
	events | sed 's/^/#   /'
	return 1
}

# in_order PATTERN...: the first event of each kind comes after the one before.
in_order() {
	local last=0 at pattern
	for pattern; do
		at=$(events | grep -nEm1 "$pattern" | cut -d: -f1)
		[ "${at:-0}" -gt "$last" ] || { say "out of order: '$pattern'"; return 1; }
		last=$at
	done
}

# number_of FIELD PATTERN: the value of a field of that event.
number_of() { events "$2" | sed -n "s/.* $1=\([0-9]*\).*/\1/p"; }

counter() { cat "$knobs/ports/1/hw_counters/$1"; }

# note: what the counters are now. grown NAME N: that one has grown by N since.
note() {
	local name
	for name in "$knobs"/ports/1/hw_counters/*; do
		before[${name##*/}]=$(cat "$name" 2>/dev/null)
	done
}
declare -A before

grown() {
	local now
	# The core asks for the counters no more often than every 10 ms.
	sleep 0.05
	now=$(counter "$1")
	[ $((now - before[$1])) -eq "$2" ] && return
	say "$1 has grown by $((now - before[$1])), not $2"
	return 1
}

# resource KIND KEY: what is said of one object, on one line.
resource() {
	rdma -dd resource show "$1" | sed ':a; N; $!ba; s/\n \+/ /g' | grep -E " $dev(/| )" | grep -E "$2"
}

# shows KIND KEY TEXT...: each TEXT is said of the object.
shows() {
	local said text
	said=$(resource "$1" "$2")
	for text in "${@:3}"; do
		[[ " $said " = *" $text "* ]] || { say "'$text' is not in '$said'"; return 1; }
	done
}

# park WR_ID BOUNDARY: has a write stand there.
park() {
	echo "op write boundary $2" >"$hold" || return 1
	ask "write $1" posted || return 1
	for _ in $(seq $((100 * slow))); do
		! grep -q ": parked qp $qpn landed $(($2 * burst)) " "$hold" || return 0
		sleep 0.05
	done
	say "no transfer was parked: $(cat "$hold")"
	return 1
}

# --- the tests ---------------------------------------------------------------------------------

test_a_transfer_from_start_to_end() {
	ask 'write 7' posted && ask poll 'wc 7 0' || return 1
	local names="device=$dev qpn=$qpn peer=$peer_qpn wr_id=7"
	expect 1 "transfer_start: $names operation=write length=$size\$" || return 1
	expect 1 "transfer_end: $names landed=$size length=$size end=completed\$" || return 1
	expect 2 'sluice_transfer_' || return 1
	in_order transfer_start transfer_end || return 1
	grown transfers_completed 1 && grown bytes_moved "$size"
}

test_the_objects_of_a_parked_transfer() {
	park 1 3 || return 1
	expect 1 'sluice_transfer_' || return 1
	shows qp "lqpn $qpn " 'state RTS' 'drv_gate open' 'drv_holders 1' 'drv_sq_pending 1' \
		'drv_busy 1' || return 1
	shows qp "lqpn $peer_qpn " 'drv_gate open' 'drv_holders 1' 'drv_busy 0' || return 1
	shows mr "$(printf 'rkey 0x%x ' "$rkey")" "drv_length $size" 'drv_access 0x3' \
		'drv_leases 1' || return 1
	shows cq "pid $peer_pid " 'drv_pending 0' 'drv_armed no' 'drv_overrun 0' || return 1
	echo 'release all' >"$hold"
	for _ in $(seq $((100 * slow))); do
		[ "$(events transfer_end | wc -l)" -eq 0 ] || break
		sleep 0.05
	done
	shows qp "lqpn $qpn " 'drv_holders 0' 'drv_sq_pending 0' 'drv_busy 0' || return 1
	shows mr "$(printf 'rkey 0x%x ' "$rkey")" 'drv_leases 0' || return 1
	# Nobody has taken it yet.
	shows cq "pid $peer_pid " 'drv_pending 1' || return 1
	ask poll 'wc 1 0' && shows cq "pid $peer_pid " 'drv_pending 0'
}

test_a_region_goes_under_a_transfer() {
	park 2 3 || return 1
	ask dereg deregistered && ask poll 'wc 2 10' || return 1
	local id="device=$dev what=region id=$rkey \\(0x[0-9a-f]+\\)"
	expect 1 "close_begin: $id mode=cancel cause=dereg holders=1\$" || return 1
	expect 1 "close_end: $id mode=cancel past_deadline=0 waited_ns=[1-9][0-9]*\$" || return 1
	expect 1 "transfer_end: .* wr_id=2 landed=$((3 * burst)) length=$size end=faulted: remote key\$" ||
		return 1
	in_order transfer_start close_begin transfer_end close_end || return 1
	grown transfers_faulted 1 && grown bytes_landed_of_torn $((3 * burst)) &&
		grown revokes_waited 1 && grown transfers_completed 0 || return 1
	# The queue pair has failed, and its gate with it; the region is not there any more.
	shows qp "lqpn $qpn " 'state ERR' 'drv_gate cancelled' 'drv_holders 0' || return 1
	resource mr "$(printf 'rkey 0x%x ' "$lkey")" >/dev/null &&
		! resource mr "$(printf 'rkey 0x%x ' "$rkey")"
}

test_a_reset_waits_for_a_transfer() {
	park 3 2 || return 1
	echo 60000 >"$knobs/drain_timeout_ms" || return 1
	tell reset
	for _ in $(seq $((100 * slow))); do
		[ "$(events close_begin | wc -l)" -eq 0 ] || break
		sleep 0.05
	done
	# It can be seen who waits, and for what, while it lasts.
	shows qp "lqpn $qpn " 'state RTS' 'drv_gate draining' 'drv_holders 1' 'drv_busy 1' || return 1
	expect 0 close_end || return 1
	sleep 0.1
	echo 'release all' >"$hold"
	hear reset && ask poll 'wc 3 0' || return 1
	local id="what=qp id=$qpn "
	expect 1 "close_begin: .* $id.* mode=drain cause=reset holders=1\$" || return 1
	expect 1 "close_end: .* $id.* mode=drain past_deadline=0 " || return 1
	expect 1 "transfer_end: .* wr_id=3 landed=$size length=$size end=completed\$" || return 1
	in_order close_begin transfer_end close_end || return 1
	[ "$(number_of waited_ns close_end)" -ge 100000000 ] || { say 'it has not waited'; return 1; }
	shows qp "lqpn $qpn " 'state RESET' 'drv_gate open' 'drv_holders 0'
}

test_a_reset_reaches_its_deadline() {
	echo 100 >"$knobs/drain_timeout_ms" && park 4 5 && ask reset reset || return 1
	local id="what=qp id=$qpn "
	expect 1 "close_begin: .* $id.* mode=drain cause=reset holders=1\$" || return 1
	expect 1 "close_end: .* $id.* mode=cancel past_deadline=1 " || return 1
	expect 1 "transfer_end: .* wr_id=4 landed=$((5 * burst)) length=$size end=aborted: own QP\$" ||
		return 1
	in_order close_begin transfer_end close_end || return 1
	[ "$(number_of waited_ns close_end)" -ge 100000000 ] || { say 'it has not waited'; return 1; }
	grown transfers_aborted 1 && grown drains_past_deadline 1 &&
		grown bytes_landed_of_torn $((5 * burst))
}

test_nothing_is_recorded_when_off() {
	echo 0 >"$trace/events/sluice/enable"
	ask 'write 8' posted && ask poll 'wc 8 0' && expect 0 .
}

if [ ! -e "$trace/events/sluice" ] || [ ! -e "$hold" ]; then
	echo "not here: tracepoints ($trace/events/sluice) or hold points ($hold)"
	exit 4
fi
tests=(a_transfer_from_start_to_end the_objects_of_a_parked_transfer
	a_region_goes_under_a_transfer a_reset_waits_for_a_transfer
	a_reset_reaches_its_deadline nothing_is_recorded_when_off)
echo "TAP version 13"
echo "1..${#tests[@]}"
timeout_ms=$(cat "$knobs/drain_timeout_ms")
burst=$(cat "$knobs/burst_bytes")
restore() {
	echo 0 >"$trace/events/sluice/enable"
	end_peer
	echo "$timeout_ms" >"$knobs/drain_timeout_ms"
}
trap restore EXIT
for test in "${tests[@]}"; do
	if start_peer; then
		echo 1 >"$trace/events/sluice/enable"
		echo >"$trace/trace"
		note
		"test_$test"
		result "$test" $?
	else
		result "$test" 1
	fi
	restore
done
exit $failed
