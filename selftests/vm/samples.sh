#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The samples do what they say: each runs to its end on sluice and, where it is meant for any device,
# on another one (SLUICE_OTHER, or rxe0); and teardown_lab leaves the policies as it found them, however
# it ends. For the test VM, as root. KTAP on standard output.

# shellcheck disable=SC2317 # the tests are called by their names

cd "$(dirname "$0")/.." || exit 1
slow=${SLUICE_SLOW:-1}
dev=${SLUICE_DEV:-sluice0}
other=${SLUICE_OTHER:-rxe0}
knobs=/sys/class/infiniband/$dev
log=$(mktemp)
number=0 failed=0

# run NAME [ARGUMENT...]: a sample, within a limit; what it says is kept.
run() {
	local name=$1
	shift
	timeout $((60 * slow)) "samples/$name" "$@" >"$log" 2>&1
}

# ends CODE NAME [ARGUMENT...]: it ends with this exit code and has something to say.
ends() {
	local code=0
	run "${@:2}" || code=$?
	[ "$code" -eq "$1" ] && [ -s "$log" ] && return
	echo "# exit code $code, not $1"
	return 1
}

says() { grep -qF -- "$1" "$log" || { echo "# does not say: $1"; return 1; }; }

rows() { grep -cE '^(drain|abort|-) ' "$log"; }

# expect_rows N
expect_rows() { [ "$(rows)" -eq "$1" ] || { echo "# $(rows) rows, not $1"; return 1; }; }

policies() { head "$knobs"/{reset_policy,revoke_policy,drain_timeout_ms,burst_bytes}; }

as_nobody() { timeout $((60 * slow)) setpriv --reuid=65534 --clear-groups "$@" >"$log" 2>&1; }

# --- the tests ---------------------------------------------------------------------------------

# The port, 18599, is 48A7 in the kernel's list; 0A is LISTEN.
pingpong() {
	local server code=0
	samples/rc_pingpong_server "$1" 18599 >/dev/null &
	server=$!
	for _ in $(seq $((100 * slow))); do
		! grep -qE ':48A7 [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6 || break
		sleep 0.1
	done
	ends 0 rc_pingpong_client localhost "$1" 18599 && says 'all sums right' || code=1
	[ "$code" -eq 0 ] || kill "$server"
	wait "$server" && return "$code"
}
pingpong_on_sluice() { pingpong "$dev"; }
pingpong_on_another_device() { pingpong "$other"; }

scene() { ends 0 teardown_scene -d "$dev" -n 5; }

# Every row is compared with the contract by the program itself.
lab_is_as_the_contract_says() {
	ends 0 teardown_lab -d "$dev" -t $((500 * slow)) &&
		expect_rows "$lab_rows" && says 'All of it is as Documentation/teardown.rst says.'
}

lab_fits_one_screen() {
	ends 0 teardown_lab -d "$dev" -t $((500 * slow)) || return
	[ "$(wc -l <"$log")" -le 50 ] && [ "$(wc -L <"$log")" -le 80 ] && return
	echo "# $(wc -l <"$log") lines of up to $(wc -L <"$log") columns"
	return 1
}

lab_without_parking() { ends 0 teardown_lab -d "$dev" -u && expect_rows "$lab_rows"; }

lab_without_root() {
	as_nobody samples/teardown_lab -d "$dev" && expect_rows 4 &&
		says 'No hold points' && says 'only root'
}

lab_on_another_device() {
	ends 0 teardown_lab -d "$other" -o dereg && expect_rows 3 && says 'has no policies'
}

# What was found is put back: at the end, and when it is interrupted with a write parked.
policies_are_put_back() {
	local before pid signal changed result=0
	echo abort >"$knobs/reset_policy"
	echo 777 >"$knobs/drain_timeout_ms"
	before=$(policies)
	run teardown_lab -d "$dev" && [ "$(policies)" = "$before" ] || result=1
	for signal in INT TERM HUP; do
		samples/teardown_lab -d "$dev" -t 5000 >"$log" 2>&1 &
		pid=$! changed=
		for _ in $(seq $((100 * slow))); do
			# The first experiment waits for its write for five seconds.
			grep -q parked "/sys/kernel/debug/sluice/$dev/hold" && changed=1 && break
			sleep 0.1
		done
		kill -"$signal" "$pid"
		wait "$pid"
		if [ -z "$changed" ] || [ "$(policies)" != "$before" ]; then
			echo "# not after SIG$signal: $(policies | tr '\n' ' ')"
			result=1
		fi
		if grep -q qp "/sys/kernel/debug/sluice/$dev/hold"; then
			echo "# a hold is left after SIG$signal"
			result=1
		fi
	done
	echo drain >"$knobs/reset_policy"
	echo 1000 >"$knobs/drain_timeout_ms"
	return "$result"
}

lab_names_what_is_missing() {
	ends 3 teardown_lab -d nonsense && says 'no RDMA device nonsense' &&
		ends 2 teardown_lab -x && ends 2 teardown_lab -t 0 && ends 2 teardown_lab -o nothing &&
		ends 0 teardown_lab -h || return
	ip link set eth-sluice down
	ends 4 teardown_lab -d "$dev" && says 'is its netdev up?'
	local code=$?
	ip link set eth-sluice up
	[ "$code" -eq 0 ] || return
	(ulimit -l 64 && as_nobody samples/teardown_lab -d "$dev")
	[ $? -eq 5 ] && says 'ulimit -l'
}

survives() {
	ends 0 survive -d "$1" && says 'all bytes are right, after 4 interruptions'
}
survives_on_sluice() { survives "$dev"; }
# After one RESET in mid-stream of some hundred, rdma_rxe gets stuck and warns: only if asked for.
survives_on_another_device() {
	[ -n "${SLUICE_OTHER:-}" ] || return 4
	survives "$other"
}

# --- all of them ---------------------------------------------------------------------------------

lab_rows=16
tests=(
	pingpong_on_sluice pingpong_on_another_device scene
	lab_is_as_the_contract_says lab_fits_one_screen lab_without_parking lab_without_root
	lab_on_another_device policies_are_put_back lab_names_what_is_missing
	survives_on_sluice survives_on_another_device
)
echo "TAP version 13"
echo "1..${#tests[@]}"
for test in "${tests[@]}"; do
	number=$((number + 1))
	: >"$log"
	code=0
	"$test" || code=$?
	if [ "$code" -eq 0 ]; then
		echo "ok $number samples.$test"
	elif [ "$code" -eq 4 ]; then
		echo "ok $number samples.$test # SKIP only on the device that SLUICE_OTHER names"
	else
		sed 's/^/# /' "$log"
		echo "not ok $number samples.$test"
		failed=1
	fi
done
rm -f "$log"
exit "$failed"
