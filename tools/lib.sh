# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the scripts in this folder share: messages, checks of the machine, the cache folder, locks,
# and running a command inside the build root. Sourced, never executed.
#
# Conventions: a script prints what it made (a path) on standard output and everything meant for a
# person on standard error. Whatever is made once is made under a temporary name and renamed when it
# is complete, so a run that was interrupted leaves nothing half-made, and the next one goes on.

set -euo pipefail

# The Debian release everything is built and run in, and the kernel series the module is written
# for. Rust modules only load on a kernel built by the same compiler, and this release's rustc is
# the one that built these kernels.
# shellcheck disable=SC2034 # used by the scripts that source this one
SUITE=trixie SERIES=7.3 FLAVOUR=+deb13-amd64

TOOLS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
REPO=$(dirname "$TOOLS")
BUILD=${SLUICE_BUILD:-$REPO/build}

# --- messages --------------------------------------------------------------------------------

if [ -t 2 ]; then
	bold=$(printf '\033[1m') red=$(printf '\033[31m') plain=$(printf '\033[0m')
else
	bold='' red='' plain=''
fi

# say TEXT: one line for the person watching.
say() {
	printf '%s\n' "$*" >&2
}

# step TEXT [TIME]: what happens now, and roughly how long it takes.
step() {
	printf '%s==> %s%s%s\n' "$bold" "$1" "${2:+ (about $2)}" "$plain" >&2
}

# die SENTENCE: the end of a run that cannot go on.
die() {
	printf '%ssluice: %s%s\n' "$red" "$*" "$plain" >&2
	exit 1
}

# logged LOGFILE CMD...: runs CMD quietly; shows the end of its log if it fails.
logged() {
	local log=$1 rc=0
	shift
	mkdir -p "$(dirname "$log")"
	"$@" >"$log" 2>&1 </dev/null || rc=$?
	[ "$rc" -eq 0 ] && return
	say "--- the end of $log:"
	tail -n 30 "$log" >&2
	return "$rc"
}

# --- this machine ----------------------------------------------------------------------------

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		command -v sudo >/dev/null ||
			die "this step needs root: run it as root, or install sudo."
		sudo -- "$@"
	fi
}

check_architecture() {
	[ "$(uname -m)" = x86_64 ] ||
		die "this machine is $(uname -m); the kernels sluice is built for and the test VM are x86_64."
}

# check_disk MIB: is there room for that much more in the cache folder?
check_disk() {
	local free
	free=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
	[ "$free" -ge "$1" ] ||
		die "$CACHE has $free MiB of free disk space and this needs $1 MiB: free some, or set XDG_CACHE_HOME to another disk."
}

# need_host COMMAND PACKAGE ...: installs the packages whose command this machine lacks.
need_host() {
	local missing=()
	while [ $# -gt 0 ]; do
		# A name with a slash is a file to look for, not a command.
		case $1 in
		*/*) [ -e "$1" ] || missing+=("$2") ;;
		*) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null || missing+=("$2") ;;
		esac
		shift 2
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	command -v apt-get >/dev/null ||
		die "this machine lacks ${missing[*]} (Debian package names) and has no apt-get to install them."
	lock host-packages
	step "Installing host packages: ${missing[*]}" "30 s"
	if ! {
		logged "$CACHE/log/apt.log" as_root apt-get update -q &&
			logged "$CACHE/log/apt.log" as_root env DEBIAN_FRONTEND=noninteractive \
				apt-get install -q -y --no-install-recommends "${missing[@]}"
	}; then
		die "could not install ${missing[*]}: is the network reachable, and does this Debian have them?"
	fi
	unlock
}

# --- the cache folder ------------------------------------------------------------------------

# Daemons and CI may run without HOME.
if [ -z "${HOME:-}" ]; then
	HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
	export HOME
fi
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
mkdir -p "$CACHE/log" "$CACHE/lock" ||
	die "cannot write to the cache folder $CACHE."
CACHE=$(cd "$CACHE" && pwd -P)

# key TEXT...: a short name for everything an artefact depends on.
key() {
	printf '%s\n' "$@" | sha256sum | cut -c1-10
}

# lock NAME / unlock: one run at a time makes an artefact; the other one waits, then finds it made.
lock() {
	exec {lock_fd}>"$CACHE/lock/$1"
	if ! flock --nonblock "$lock_fd"; then
		say "Waiting for another run that is busy with: $1"
		flock "$lock_fd"
	fi
}

unlock() {
	exec {lock_fd}>&-
}

# --- inside the build root -------------------------------------------------------------------

# enter_root ROOT USER CMD...: runs CMD inside ROOT in the current folder. The checkout, the build
# folder and the cache have the same paths inside as outside, so messages and dependency files hold
# in both. The mounts live in a namespace of their own and go with it.
enter_root() {
	local root=$1 user=$2 env=(
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
		"HOME=$CACHE/home" "LANG=C.UTF-8" "TERM=${TERM:-dumb}" "DEBIAN_FRONTEND=noninteractive"
		"CARGO_HOME=$CACHE/cargo" "KBUILD_BUILD_USER=sluice" "KBUILD_BUILD_HOST=buildroot"
		# Take the newest crates this compiler can build, not the newest crates.
		"CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS=fallback"
	)
	shift 2
	local name
	for name in http_proxy https_proxy no_proxy; do
		[ -z "${!name:-}" ] || env+=("$name=${!name}")
	done
	mkdir -p "$CACHE/home" "$CACHE/cargo" "$BUILD"
	# shellcheck disable=SC2016 # expanded by the inner shell
	as_root unshare --mount --propagation private -- sh -euc '
		root=$1 user=$2 dir=$3 mounts=$4
		shift 4
		mount --rbind /dev "$root/dev"
		mount --bind /proc "$root/proc"
		printf "%s\n" "$mounts" | while IFS= read -r path; do
			mkdir -p "$root$path"
			mount --bind "$path" "$root$path"
		done
		# Names and certificates are looked up as this machine does.
		for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
			if [ -e "$file" ] && [ -e "$root$file" ]; then
				mount --bind "$(realpath "$file")" "$root$file"
			fi
		done
		exec chroot --userspec="$user" "$root" /usr/bin/env -i -C "$dir" "$@"
	' sh "$root" "$user" "$PWD" "$REPO
$BUILD
$CACHE" "${env[@]}" "$@"
}

# in_root CMD...: as enter_root, in the build root and as the calling user.
in_root() {
	local root
	root=$("$TOOLS/buildroot")
	enter_root "$root" "$(id -u):$(id -g)" "$@"
}
