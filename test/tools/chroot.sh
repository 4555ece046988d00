# shellcheck shell=bash
#
# A bare Debian in a directory: made by debootstrap from the mirror that the machine's own
# apt uses, without anything that the machine has installed.  To be sourced, after
# scripts/common.sh, by scripts that run as root.
#
#   bare_debian DIRECTORY         make one
#   in_chroot DIRECTORY COMMAND   run something there

# What is mounted there is mounted in a namespace of the processes that run there: the
# machine never sees it, and it is gone with them.  So are all processes left behind.
in_chroot()						# directory, command...
{
	local dir=$1
	shift

	# shellcheck disable=SC2016  # the inner shell's
	unshare --mount --pid --ipc --fork --kill-child bash -euc '
		root=$1
		shift
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LC_ALL=C.UTF-8 "$@"
		' in_chroot "$dir" "$@"
}

# The URIs that the machine's apt has for a suite of Debian's: the archive's, or the
# security archive's.
uri_of_suite()					# suite
{
	# shellcheck disable=SC2016  # these are apt's variables
	apt-get indextargets 'Identifier: Packages' \
		--format '$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT)' 2>/dev/null |
		awk -v suite="$1" '($2 == suite || $3 == suite) && $4 == "main" { print $1; exit }'
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

bare_debian()					# directory
{
	local dir=$1 codename mirror security proxy
	local keyring=/usr/share/keyrings/debian-archive-keyring.gpg

	# shellcheck source=/dev/null
	codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "$VERSION_CODENAME") ||
		die "this is not Debian"
	mirror=$(uri_of_suite "$codename")
	security=$(uri_of_suite "$codename-security")
	[ -n "$mirror" ] || die "the machine's apt has no mirror of $codename"
	command -v debootstrap >/dev/null ||
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends debootstrap

	for proxy in http https; do
		[ -n "$(printenv "${proxy}_proxy")" ] ||
			eval "$(apt-config shell "${proxy}_proxy" "Acquire::$proxy::Proxy"); export ${proxy}_proxy"
	done
	# debootstrap mounts there, too
	unshare --mount debootstrap --variant=minbase --keyring="$keyring" "$codename" "$dir" "$mirror"
	[ -z "$security" ] ||
		echo "deb $security $codename-security main" >"$dir/etc/apt/sources.list.d/security.list"
	chroot_network "$dir"
}
