#!/usr/bin/env bash
#
# A throw-away PostgreSQL server with delay_wheel preloaded: made in a temporary
# directory, reached by a socket in that directory only, stopped and removed at
# the end, also upon Ctrl-C.  Any number of them can run at once.
#
# Called, it runs a command against such a server, or psql if none is given:
#
#   scripts/server.sh [OPTION]... [-- COMMAND [ARGUMENT]...]
#
# Sourced, it gives server_start [OPTION]..., which sets and exports PGHOST,
# PGPORT, PGUSER and PGDATABASE (superuser "postgres", database "postgres") and
# sets server_dir and server_log; and server_stop.  server_start sets traps
# that call server_stop, unless the caller has a trap for EXIT: then the caller
# has to call it.
#
#   --conf LINE     a line for postgresql.conf (can be repeated; the last wins)
#   --fsync         with fsync, as a server in earnest; without, a crash of
#                   the machine would lose data, which nobody needs here
#   --libdir DIR    load delay_wheel.so from DIR instead of the installed one
#   --built         with the extension as it was built in this tree; nothing needs to be
#                   installed, and what is installed is not looked at
#   --no-preload    a server without delay_wheel
#   --keep          leave the directory there at the end

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	set -euo pipefail
fi
# shellcheck source=scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

server_dir=
server_log=
server_keep=no

# A number that no TCP server listens at now.  The server listens at none: its
# directory alone makes its socket its own, but a number that is free spares
# tools that look at the number only.
free_port()
{
	perl -MSocket -e '
		socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in(0, INADDR_LOOPBACK)) or exit 1;
		my ($port) = sockaddr_in(getsockname(S));
		print $port;' || echo 5432
}

# PostgreSQL looks for the control files and scripts of extensions by the place of its own
# program, so a copy of that program has a directory of its own for them: of links to the
# files that are installed, and of copies of those that were built here.  (PostgreSQL 18 has
# a setting for it, extension_control_path, but 15 to 17 have not.)  Sets program.
copy_program()
{
	local share lib file

	share=$("$PG_CONFIG" --sharedir)
	lib=$("$PG_CONFIG" --pkglibdir)
	program=$server_dir/copy$bindir/postgres
	mkdir -p "${program%/*}" "$server_dir/copy${lib%/*}" "$server_dir/copy$share/extension"
	cp "$bindir/postgres" "$program"
	[ -e "$server_dir/copy$lib" ] || ln -s "$lib" "$server_dir/copy$lib"
	for file in "$share"/* "$share"/extension/*; do
		case $file in
			"$share/extension" | */delay_wheel.control | */delay_wheel--*.sql) ;;
			*) ln -s "$file" "$server_dir/copy$file" ;;
		esac
	done
	cp "$dw_root"/delay_wheel.control "$dw_root"/delay_wheel--*.sql "$server_dir/copy$share/extension/"
	chmod -R a+rX "$server_dir/copy"
	(cd / && as_user "$program" --version >/dev/null 2>&1) ||
		die "programs in $server_dir cannot be run: name another directory in TMPDIR"
}

server_start()
{
	local fsync=off preload=yes libdir='' built=no program conf=() line locale=${LC_ALL:-C}

	[ -z "$server_dir" ] || die "there is a server already"
	while [ $# -gt 0 ]; do
		case $1 in
			--conf) conf+=("$2"); shift ;;
			--fsync) fsync=on ;;
			--libdir) libdir=$2; shift ;;
			--built) built=yes ;;
			--no-preload) preload=no ;;
			--keep) server_keep=yes ;;
			*) die "unknown option $1 for the server" ;;
		esac
		shift
	done

	need_postgres
	find_user
	if [ -z "$(trap -p EXIT)" ]; then
		# Signals can come twice; the second must not cut the first's clean-up short.
		trap 'trap "" INT TERM HUP; server_stop' EXIT
		trap 'exit 130' INT
		trap 'exit 143' TERM HUP
	fi
	server_dir=$(make_workdir) || exit 1
	server_log=$server_dir/log
	program=$bindir/postgres
	if [ "$built" = yes ]; then
		[ -f "$dw_root/delay_wheel.so" ] || die "nothing has been built yet: call make first"
		libdir=${libdir:-$dw_root}
		copy_program
	fi

	# The server's user need not be able to read our own directory.
	if [ -n "$libdir" ]; then
		mkdir "$server_dir/lib"
		cp "$libdir/delay_wheel.so" "$server_dir/lib/"
		chmod -R a+rX "$server_dir/lib"
	fi

	(cd "$server_dir" && as_user "$bindir/initdb" --pgdata="$server_dir/data" \
		--no-sync --auth=trust --username=postgres --encoding=UTF8 --locale="$locale" \
		</dev/null >"$server_dir/initdb.log" 2>&1) ||
		{ cat "$server_dir/initdb.log" >&2; die "initdb failed"; }

	PGPORT=$(free_port)
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$server_dir'"
		echo "port = $PGPORT"
		echo "fsync = $fsync"
		echo "log_line_prefix = '%m [%p] %b %q%u@%d '"
		if [ "$preload" = yes ]; then
			echo "shared_preload_libraries = 'delay_wheel'"
		fi
		if [ -n "$libdir" ]; then
			echo "dynamic_library_path = '$server_dir/lib:\$libdir'"
		fi
		for line in ${conf[@]+"${conf[@]}"}; do
			printf '%s\n' "$line"
		done
	} | as_user tee -a "$server_dir/data/postgresql.conf" >/dev/null

	(cd "$server_dir" && as_user "$bindir/pg_ctl" start --silent --wait --timeout=120 \
		-p "$program" --pgdata="$server_dir/data" --log="$server_log" </dev/null >/dev/null 2>&1) ||
		{ tail -n 30 "$server_log" >&2 || true; die "the server did not start"; }

	export PGHOST=$server_dir PGPORT PGUSER=postgres PGDATABASE=postgres
	export PATH=$bindir:$PATH
}

server_stop()
{
	local dir=$server_dir

	[ -n "$dir" ] || return 0
	server_dir=
	if [ -s "$dir/data/postmaster.pid" ]; then
		(cd / && as_user "$bindir/pg_ctl" stop --silent --mode=fast --timeout=60 --pgdata="$dir/data" ||
			as_user "$bindir/pg_ctl" stop --silent --mode=immediate --timeout=60 --pgdata="$dir/data") \
			</dev/null >/dev/null 2>&1 ||
			[ ! -e "$dir/data/postmaster.pid" ] ||
			echo "the server in $dir did not stop" >&2
	fi
	if [ "$server_keep" = yes ]; then
		echo "kept: $dir" >&2
	else
		rm -rf "$dir"
	fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	clean_environment
	options=()
	while [ $# -gt 0 ]; do
		case $1 in
			--) shift; break ;;
			-h | --help) sed -n '3,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
			--conf | --libdir)
				[ $# -ge 2 ] || die "$1 needs a value"
				options+=("$1" "$2")
				shift
				;;
			*) options+=("$1") ;;
		esac
		shift
	done
	server_start ${options[@]+"${options[@]}"}
	if [ $# -eq 0 ]; then
		set -- psql -X
	fi
	"$@"
fi
