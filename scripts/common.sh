# shellcheck shell=bash
# shellcheck disable=SC2034  # some variables are for the caller
#
# What the scripts of this tree share: finding PostgreSQL, the unprivileged user
# that a server must run as, and directories which that user can use.
#
# To be sourced by scripts with "set -euo pipefail".

dw_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# The PostgreSQL majors that delay_wheel is written for, the preferred one first.
dw_majors="15 19 18 17 16"
dw_majors_said="PostgreSQL 15 to 19"
# Who runs the tests if root starts them (scripts/setup makes this user).  The name is not
# "postgres", so that the tests do not depend on that, and is one that SQL has to quote.
dw_test_user=delay-wheel

die()
{
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# Nothing of the caller's surroundings shall lead us to another server, or
# into another build.
clean_environment()
{
	local name

	for name in ${!PG@}; do
		case $name in
			PG_CONFIG | PG_TEST_*) ;;
			*) unset "$name" ;;
		esac
	done
	unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES CDPATH
	if LC_ALL=C.UTF-8 locale charmap 2>/dev/null | grep -qx UTF-8; then
		export LC_ALL=C.UTF-8
	else
		export LC_ALL=C
	fi
}

# Can delay_wheel be built against, and run by, the PostgreSQL of this pg_config?
usable_pg_config()
{
	local major bindir

	major=$("$1" --version 2>/dev/null | sed -E 's/^PostgreSQL ([0-9]+).*/\1/') || return 1
	case " $dw_majors " in
		*" ${major:-none} "*) ;;
		*) return 1 ;;
	esac
	bindir=$("$1" --bindir)
	[ -x "$bindir/postgres" ] && [ -x "$bindir/initdb" ] && [ -x "$bindir/psql" ] &&
		[ -f "$("$1" --pgxs)" ] &&
		[ -f "$("$1" --includedir-server)/postgres.h" ]
}

# Sets PG_CONFIG (unless the caller did) and bindir.  Fails if there is none.
find_postgres()
{
	local candidate m

	if [ -n "${PG_CONFIG:-}" ]; then
		usable_pg_config "$PG_CONFIG" ||
			die "PG_CONFIG=$PG_CONFIG is not a complete $dw_majors_said with its build files"
	else
		for candidate in pg_config $(for m in $dw_majors; do
			echo "/usr/lib/postgresql/$m/bin/pg_config" "/usr/pgsql-$m/bin/pg_config"
		done); do
			if usable_pg_config "$candidate"; then
				PG_CONFIG=$candidate
				break
			fi
		done
		[ -n "${PG_CONFIG:-}" ] || return 1
	fi
	export PG_CONFIG
	bindir=$("$PG_CONFIG" --bindir)
}

# The same for a script that can do nothing without.
need_postgres()
{
	find_postgres || die "no $dw_majors_said found: scripts/setup installs one"
}

# PostgreSQL refuses to run as root.  Sets dw_user to who runs it instead: the tests' user, if
# there is one.
find_user()
{
	if [ "$(id -u)" -ne 0 ]; then
		dw_user=$(id -un)
		return
	fi
	dw_user=${DW_USER:-}
	if [ -z "$dw_user" ]; then
		dw_user=$dw_test_user
		id -u "$dw_user" >/dev/null 2>&1 || dw_user=postgres
	fi
	id -u "$dw_user" >/dev/null 2>&1 ||
		die "PostgreSQL does not run as root, and there is no user \"$dw_user\": run this as another user, or name one in DW_USER"
	[ "$(id -u "$dw_user")" -ne 0 ] || die "DW_USER must not be root"
	command -v runuser >/dev/null ||
		die "runuser (of util-linux) is missing: run this as another user than root"
}

# Where scripts/setup puts what npm fetches for the tests.
node_dir()
{
	if [ "$(id -u)" -eq 0 ]; then
		echo /var/cache/delay_wheel/node
	else
		echo "${XDG_CACHE_HOME:-${HOME:-}/.cache}/delay_wheel/node"
	fi
}

# Run a command as the unprivileged user, from its own directory.
as_user()
{
	if [ "$(id -u)" -eq 0 ]; then
		runuser -u "$dw_user" -- "$@"
	else
		"$@"
	fi
}

# Make a directory for the unprivileged user and print its name: where TMPDIR
# says, if that user can work there and the names of sockets do not get too
# long, else in /tmp.
make_workdir()
{
	local base dir

	for base in "${TMPDIR:-/tmp}" /tmp; do
		dir=$(mktemp -d "$base/delay_wheel.XXXXXX") || continue
		if [ "$(id -u)" -eq 0 ]; then
			chown "$dw_user:" "$dir"
		fi
		if [ "${#dir}" -le 60 ] &&
			(cd / && as_user test -w "$dir" -a -x "$dir" 2>/dev/null); then
			echo "$dir"
			return
		fi
		rm -rf "$dir"
	done
	die "found no directory for temporary files that user \"$dw_user\" can use"
}

# Build in the checkout; what is given is passed to make.
build()
{
	make --no-print-directory -C "$dw_root" PG_CONFIG="$PG_CONFIG" "$@"
}

# Is what is installed what was built?
is_installed()
{
	local extdir file

	extdir=$("$PG_CONFIG" --sharedir)/extension
	cmp -s "$dw_root/delay_wheel.so" "$("$PG_CONFIG" --pkglibdir)/delay_wheel.so" || return 1
	for file in "$dw_root"/delay_wheel.control "$dw_root"/delay_wheel--*.sql; do
		cmp -s "$file" "$extdir/${file##*/}" || return 1
	done
}

# Install into PostgreSQL's directories, with sudo where needed.
install_extension()
{
	if is_installed; then
		return
	elif [ -w "$("$PG_CONFIG" --pkglibdir)" ] && [ -w "$("$PG_CONFIG" --sharedir)/extension" ]; then
		build "$@" install
	elif command -v sudo >/dev/null; then
		sudo make --no-print-directory -C "$dw_root" PG_CONFIG="$PG_CONFIG" "$@" install
	else
		die "cannot write to PostgreSQL's directories: run \"make install\" as root first, then this again"
	fi
	is_installed || die "the installed files are not those that were built"
}
