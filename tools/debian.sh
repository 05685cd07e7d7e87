# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Making Debian systems in folders: which mirror, how it is reached, what can be wrong with it.
# Sourced after lib.sh, never executed.

# mirror: where this machine's own apt gets Debian from; Debian's default elsewhere.
mirror() {
	local uri=
	if [ -z "${SLUICE_MIRROR:-}" ] && command -v apt-get >/dev/null; then
		# shellcheck disable=SC2016 # apt's own placeholders
		uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
			sed -nE 's|^(https?://.*/debian)/? main$|\1|p' | head -n 1)
	fi
	printf '%s\n' "${SLUICE_MIRROR:-${uri:-http://deb.debian.org/debian}}"
}

# apt_options: the host's apt settings that decide how a mirror is reached.
apt_options() {
	command -v apt-config >/dev/null || return 0
	apt-config dump 2>/dev/null | grep -E \
		'^Acquire::((http|https)::|Retries |Check-Valid-Until |Check-Date |ForceIPv)' | grep -v ' "";$' || true
}

# check_suite NAME: tells a network that is down from a suite that is not there.
check_suite() {
	local url log=$CACHE/log/suite.log
	url=$(mirror)/dists/$1/InRelease
	[ -x /usr/lib/apt/apt-helper ] || return 0
	if /usr/lib/apt/apt-helper download-file "$url" "$CACHE/InRelease.$$" >"$log" 2>&1; then
		rm -f "$CACHE/InRelease.$$"
		return
	fi
	rm -f "$CACHE/InRelease.$$"
	if grep -q '404' "$log"; then
		die "the mirror $(mirror) does not have Debian's suite $1; set SLUICE_MIRROR to one that has."
	fi
	die "cannot reach $url: a network connection is needed the first time (see $log)."
}

# bootstrap FOLDER PACKAGE...: a minimal Debian system with these packages. Options for mmdebstrap
# may stand among the packages.
bootstrap() {
	local folder=$1 options=() packages=() line log
	log=$CACHE/log/$(basename "$1").log
	shift
	while IFS= read -r line; do
		options+=(--aptopt="$line")
	done < <(apt_options)
	while [ $# -gt 0 ]; do
		case $1 in
		-*) options+=("$1") ;;
		*) packages+=("$1") ;;
		esac
		shift
	done
	need_host mmdebstrap mmdebstrap unshare util-linux \
		/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
	check_suite "$SUITE"
	check_suite "$SUITE-backports"
	as_root rm -rf --one-file-system "$folder"
	logged "$log" as_root mmdebstrap --mode=root --variant=minbase \
		--include="$(IFS=, && echo "${packages[*]}")" \
		--aptopt="APT::Default-Release \"$SUITE\"" "${options[@]}" "$SUITE" "$folder" \
		"deb $(mirror) $SUITE main" "deb $(mirror) $SUITE-backports main" ||
		die "could not make a Debian $SUITE system in $folder (log: $log)."
}
