#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The parameters of the module: with which policies a device begins, given when the module is loaded
# or later, and what is refused. For the test VM, as root. KTAP on standard output.
#
# Devices there before (called sluice...) are removed first and made again at the end.

# shellcheck disable=SC2317 # the tests are called by their names

netdev=sluice-p
dev=sluice_p
parameters=/sys/module/sluice/parameters
policies=/sys/class/infiniband/$dev
names=(reset_policy revoke_policy drain_timeout_ms burst_bytes)
defaults='drain cancel 1000 65536'
others_values='abort drain 250 8192'
# A parameter, what it refuses, and what the kernel's log has to say about it.
refused=(
	'reset_policy|cancel|drain, abort'
	'reset_policy||drain, abort'
	'reset_policy|Drain|drain, abort'
	"reset_policy|$(printf 'x%.0s' {1..500})|drain, abort"
	$'reset_policy|\xff\xfe|drain, abort'
	'revoke_policy|abort|drain, cancel'
	'drain_timeout_ms|60001|0 to 60000'
	'drain_timeout_ms|-1|0 to 60000'
	'drain_timeout_ms|soon|0 to 60000'
	'burst_bytes|4095|4096 to 1048576'
	'burst_bytes|1048577|4096 to 1048576'
	'burst_bytes|4294967296|4096 to 1048576'
	'burst_bytes|64K|4096 to 1048576'
)
number=0 failed=0

# result NAME CODE
result() {
	number=$((number + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $number parameters.$1"
	else
		echo "not ok $number parameters.$1"
		failed=1
	fi
}

say() { echo "# $*"; }

loaded() { [ -e /sys/module/sluice ]; }
unload() { ! loaded || timeout $((30 * ${SLUICE_SLOW:-1})) rmmod sluice; }
link_add() { rdma link add "$dev" type sluice netdev "$netdev"; }
link_del() { rdma link del "$dev"; }

# are FOLDER VALUE...: do the four files in FOLDER have these values?
are() {
	local name have=()
	for name in "${names[@]}"; do
		have+=("$(cat "$1/$name")")
	done
	[ "${have[*]}" = "${*:2}" ] || { say "$1: ${have[*]}, not ${*:2}"; return 1; }
}

# set_all FOLDER VALUE...
set_all() {
	local name
	for name in "${names[@]}"; do
		echo "$2" >"$1/$name" || { say "$name=$2 is refused"; return 1; }
		set -- "$1" "${@:3}"
	done
}

# logged TEXT: has the kernel's log it, below the mark that was set last?
mark() { echo "parameters.sh: $1" >/dev/kmsg; }
logged() { dmesg | tac | sed '/parameters.sh: /q' | grep -qF -- "$1"; }

test_described() {
	local name
	for name in "${names[@]}"; do
		modinfo -F parm sluice | grep -Eq "^$name:.*default.*\((charp|uint)\)$" || {
			modinfo -F parm sluice | sed 's/^/# /'
			return 1
		}
	done
}

test_defaults() {
	unload && modprobe sluice && are "$parameters" "$defaults" || return 1
	link_add && are "$policies" "$defaults" && link_del
}

test_given_at_load() {
	local arguments=() values name
	read -ra values <<<"$others_values"
	for name in "${names[@]}"; do
		arguments+=("$name=${values[${#arguments[@]}]}")
	done
	unload && modprobe sluice "${arguments[@]}" && are "$parameters" "$others_values" || return 1
	link_add && are "$policies" "$others_values" && link_del
}

test_forgotten_by_unloading() {
	unload && modprobe sluice && are "$parameters" "$defaults"
}

test_refused_at_load() {
	local entry name value allowed message
	unload || return 1
	for entry in "${refused[@]}"; do
		IFS='|' read -r name value allowed <<<"$entry"
		mark "$name"
		if message=$(insmod /sluice/sluice.ko "$name=$value" 2>&1); then
			say "loaded with $name=$value"
			return 1
		fi
		# insmod knows errno only by its text.
		[[ $message == *'Invalid '* ]] || { say "$name=$value: $message"; return 1; }
		logged "is not allowed, but: $allowed" || { say "$name=$value: not in the log"; return 1; }
		! loaded || { say "$name=$value: the module is there"; return 1; }
	done
	# A name alone.
	! insmod /sluice/sluice.ko reset_policy 2>/dev/null && ! loaded
}

test_set_for_devices_made_afterwards() {
	modprobe sluice && link_add || return 1
	set_all "$parameters" abort drain 0 4096 && are "$parameters" 'abort drain 0 4096' || return 1
	are "$policies" "$defaults" || { say 'a device that is there has changed'; return 1; }
	link_del && link_add && are "$policies" 'abort drain 0 4096' || return 1
	set_all "$policies" drain cancel 60000 1048576 && are "$parameters" 'abort drain 0 4096' || return 1
	link_del && set_all "$parameters" drain cancel 1000 65536 && are "$parameters" "$defaults"
}

test_refused_while_loaded() {
	local entry name value allowed message folder before
	modprobe sluice && link_add || return 1
	for folder in "$parameters" "$policies"; do
		for entry in "${refused[@]}"; do
			IFS='|' read -r name value allowed <<<"$entry"
			mark "$name"
			before=$(cat "$folder/$name")
			if message=$(printf '%s\n' "$value" 2>&1 >"$folder/$name"); then
				say "$folder/$name has taken $value"
				return 1
			fi
			[[ $message == *'Invalid argument'* ]] || { say "$name=$value: $message"; return 1; }
			logged "is not allowed, but: $allowed" ||
				{ say "$name=$value: not in the log"; return 1; }
			[ "$before" = "$(cat "$folder/$name")" ] || { say "$name has changed"; return 1; }
		done
	done
	link_del
}

test_for_root_to_write() {
	local name
	for name in "${names[@]}"; do
		[ "$(stat -c %a "$parameters/$name")" = 644 ] || return 1
	done
}

# Set without a pause while devices are made and the module goes.
test_set_while_devices_come_and_go() {
	local writer code=0
	while true; do
		echo abort >"$parameters"/reset_policy
		echo drain >"$parameters"/reset_policy
		cat "$parameters"/*
	done >/dev/null 2>&1 &
	writer=$!
	for _ in $(seq 5); do
		{ modprobe sluice && link_add && link_del && unload; } || code=1
	done
	kill "$writer"
	wait "$writer"
	return "$code"
} 2>/dev/null

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

tests=(described defaults given_at_load forgotten_by_unloading refused_at_load
	set_for_devices_made_afterwards refused_while_loaded for_root_to_write
	set_while_devices_come_and_go)
echo "TAP version 13"
echo "1..${#tests[@]}"
others=$(links)
trap restore EXIT
while read -r name _; do
	[ -z "$name" ] || rdma link del "$name"
done <<<"$others"
if ! { ip link add "$netdev" type dummy && ip link set "$netdev" up; }; then
	echo "Bail out! cannot make the netdev $netdev"
	exit 1
fi
for test in "${tests[@]}"; do
	"test_$test"
	result "$test" $?
	[ ! -e "$policies" ] || link_del
done
unload
exit $failed
