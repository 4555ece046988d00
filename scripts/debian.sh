# shellcheck shell=bash
# shellcheck disable=SC2034  # why is for the caller
#
# Debian's archive and chroots of it, for tests that run in other releases, or on a
# machine that has nothing (test/majors, test/packages, test/newcomer).
#
# To be sourced after common.sh.  Functions that fail for a reason of the machine's say it
# in why.  For prepare_apt the caller sets cache, a directory for what is kept, and logs.

: "${cache:=}" "${logs:=}"
why=
job=
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# The suites to look for something in, the first one that has it wins.
all_debian_suites="oldstable stable testing unstable experimental"

# Run a command in the background, so that a signal ends us at once; its output
# goes to a log, whose end is shown if it fails.
run_quietly()					# log, command...
{
	local log=$1 status=0
	shift

	set -m
	"$@" </dev/null >>"$log" 2>&1 &
	job=$!
	set +m
	wait "$job" || status=$?
	job=
	if [ "$status" -ne 0 ]; then
		echo "--- the end of $log"
		tail -n 25 "$log"
		echo "---"
	fi
	return "$status"
}

#
# apt, with lists and sources of our own.  The mirror, proxies and certificates
# are those of the machine's configuration, which is read and not touched.
#
apt_dir=
apt_ready=no
# code name of this machine's release
codename=
mirror=
security_mirror=

private_apt()					# program, argument...
{
	local program=$1
	shift

	"$program" -o Dir::Etc::SourceList="$apt_dir/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$apt_dir/lists" \
		-o Dir::Cache="$apt_dir/cache" "$@"
}

# What apt itself has made of all of its files: URI, suite, code name, origin.
machine_sources()
{
	# shellcheck disable=SC2016  # these are apt's variables
	apt-get indextargets 'Identifier: Packages' \
		--format '$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(ORIGIN)|$(COMPONENT)' 2>/dev/null |
		awk -F'|' '$5 == "main" && ($4 == "Debian" || $4 == "$(ORIGIN)")' | sort -u
}

# Sets codename, mirror and security_mirror; needs neither cache nor logs.
find_mirror()
{
	local uri release name rest

	[ -z "$mirror" ] || return 0
	command -v apt-get >/dev/null || { why="there is no apt-get"; return 1; }
	# shellcheck source=/dev/null
	codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}") ||
		{ why="this is not Debian"; return 1; }
	[ -r "$keyring" ] ||
		{ why="there is no $keyring: install debian-archive-keyring, or name another with --keyring"; return 1; }
	while IFS='|' read -r uri release name rest; do
		if [ "$release" = "$codename" ] || [ "$name" = "$codename" ]; then
			mirror=$uri
		elif [ "$release" = "$codename-security" ] || [ "$name" = "$codename-security" ]; then
			security_mirror=$uri
		fi
	done < <(machine_sources)
	case $mirror in
		http://* | https://*) ;;
		*) mirror='' why="the machine's apt has no http mirror of Debian's archive"; return 1 ;;
	esac
}

prepare_apt()
{
	local uri release rest suite

	[ "$apt_ready" = no ] || return 0
	find_mirror || return 1
	apt_dir=$cache/apt
	mkdir -p "$apt_dir/lists/partial" "$apt_dir/cache/archives/partial"
	while IFS='|' read -r uri release rest; do
		echo "deb-src [signed-by=$keyring] $uri $release main"
	done < <(machine_sources) >"$apt_dir/sources.list"
	for suite in $all_debian_suites; do
		echo "deb [signed-by=$keyring] $mirror $suite main" >>"$apt_dir/sources.list"
		echo "deb-src [signed-by=$keyring] $mirror $suite main" >>"$apt_dir/sources.list"
	done
	run_quietly "$logs/apt.log" private_apt apt-get update --quiet --allow-releaseinfo-change ||
		{ why="apt-get update failed; if the keys are too old: a newer debian-archive-keyring, or --keyring"; return 1; }
	apt_ready=yes
}

#
# Chroots.  What is mounted in one is mounted in a namespace of the processes
# that run there: the machine never sees it, and it is gone with them.  So are
# all processes that a test has left behind.
#
# Sets why if chroots cannot be had.
can_chroot()
{
	[ "$(id -u)" -eq 0 ] || { why="a chroot takes root"; return 1; }
	unshare --mount --pid --ipc --fork --kill-child true 2>/dev/null ||
		{ why="a chroot takes namespaces (unshare), which cannot be had here"; return 1; }
}

in_chroot()						# directory, command...
{
	local dir=$1
	shift

	# shellcheck disable=SC2016  # the inner shell's
	unshare --mount --pid --ipc --fork --kill-child bash -euc '
		root=$1
		shift
		# a mount of its own, as programs that make namespaces in it expect of a root
		mount --bind "$root" "$root"
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		# this shell stays, since it is the first process, and takes notice when those end whose parents
		# are gone: a postmaster that was killed would else count as running
		chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LC_ALL=C.UTF-8 ${http_proxy:+http_proxy="$http_proxy"} \
			${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} "$@"
		exit 0
		' in_chroot "$dir" "$@"
}

# How the machine reaches its mirror; nothing of how it trusts it.
chroot_network()				# directory
{
	local dir=$1

	cp -L /etc/resolv.conf "$dir/etc/resolv.conf"
	apt-config dump |
		grep -E '^Acquire::(http|https|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date)[: ]' \
			>"$dir/etc/apt/apt.conf.d/00machine" || true
	if [ -r /etc/ssl/certs/ca-certificates.crt ] && [ ! -e "$dir/etc/ssl/certs/ca-certificates.crt" ]; then
		mkdir -p "$dir/etc/ssl/certs"
		cp -L /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/"
	fi
}

install_debootstrap()
{
	command -v debootstrap >/dev/null && return
	DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends debootstrap
}

# A minimal Debian.
bootstrap()						# directory, suite
{
	local dir=$1 suite=$2 proxy

	for proxy in http https; do
		if [ -z "$(printenv "${proxy}_proxy")" ]; then
			eval "$(apt-config shell "${proxy}_proxy" "Acquire::$proxy::Proxy")"
			[ -z "$(eval echo "\${${proxy}_proxy:-}")" ] || export "${proxy}_proxy"
		fi
	done
	# debootstrap mounts in the chroot, too.
	unshare --mount debootstrap --variant=minbase --keyring="$keyring" \
		"$suite" "$dir" "$mirror"
}

# New minors are in the security archive first.  Its suites are asked for by code
# name: mirrors know those best.
security_source()				# directory
{
	local dir=$1 codename

	# shellcheck source=/dev/null
	codename=$(. "$dir/etc/os-release" && echo "${VERSION_CODENAME:-}")
	[ -n "$security_mirror" ] && [ -n "$codename" ] || return 0
	echo "deb $security_mirror $codename-security main" >"$dir/etc/apt/sources.list.d/security.list"
}

# A minimal Debian that can install packages.
bare_debian()					# directory, suite
{
	install_debootstrap && bootstrap "$1" "$2" && chroot_network "$1" && security_source "$1"
}
