#!/usr/bin/env bash
#
# Run by test/packages/run in the chroot that has PostgreSQL and what extensions are built
# with, as root: the steps of /context/Dockerfile, in the order of its stages. This Debian
# stands for the image that it begins with; each other stage is a directory. Then servers
# are started as the image, and CloudNativePG, would. (The major is that of the release,
# wherever 15 is written.)

set -euo pipefail

PG_MAJOR=15
stages=/stages
rm -rf "$stages" /src /out
mkdir -p "$stages"

ok() { echo "ok - $*"; }

fail()
{
	echo "not ok - $*"
	exit 1
}

# The instructions, each on one line, without comments.
instructions()
{
	sed -e '/^ *#/d' /context/Dockerfile | sed -e :a -e '/\\$/N; s/\\\n//; ta' | grep -v '^ *$'
}

# Sets root to where the files of a stage, or of the build context, are.
find_root()						# --from=STAGE or nothing
{
	case $1 in
		'') root=/context ;;
		--from=build) root=/ ;;
		--from=*) root=$stages/${1#--from=} ;;
	esac
}

copy()							# [--from=STAGE] source destination
{
	local from='' root target

	case $1 in
		--from=*) from=$1; shift ;;
	esac
	find_root "$from"
	target=${stage_root%/}$2
	[ -e "$root/$1" ] || fail "COPY $*: there is no $1"
	if [ -d "$root/$1" ]; then
		mkdir -p "$target"
		cp -a "$root/${1%/}/." "$target/"
	else
		mkdir -p "$(dirname "$target")"
		cp -a "$root/$1" "$target"
	fi
}

# The image's own stages are run in this Debian; only what is copied into the last one
# is kept apart.
begin_stage()					# image, AS, name
{
	stage=${3:-final}
	stage_root=$stages/$stage
	if [ "$stage" = build ]; then
		stage_root=/
	fi
	mkdir -p "$stage_root"
}

command=
execute()						# instruction, argument...
{
	local instruction=$1 line
	shift

	line=${*//\$\{PG_MAJOR\}/$PG_MAJOR}
	echo "$instruction $line"
	# shellcheck disable=SC2086  # words
	case $instruction in
		ARG | USER) ;;
		FROM) begin_stage $line ;;
		COPY) copy $line ;;
		RUN)
			[ "$stage" = build ] || fail "RUN in stage $stage"
			bash -euc "$line" || fail "RUN $line"
			;;
		CMD) command=$line ;;
		*) fail "an instruction that is not known here: $instruction" ;;
	esac
}

stage=
while read -r instruction rest; do
	execute "$instruction" "$rest"
done < <(instructions)
ok "the Dockerfile's steps are done"

data=$(mktemp -d /tmp/data.XXXXXX)
bindir=/usr/lib/postgresql/$PG_MAJOR/bin
chown postgres "$data"

as_postgres() { runuser -u postgres -- "$@"; }

query() { as_postgres psql -XAtq -v ON_ERROR_STOP=1 -h "$data" -d postgres "$@"; }

start()							# setting...
{
	local words=()

	for setting; do
		words+=(-c "$setting")
	done
	as_postgres "$bindir/postgres" -D "$data/db" -c listen_addresses= -c "unix_socket_directories=$data" "${words[@]}" >"$data/log" 2>&1 &
	for _ in $(seq 600); do
		query -c 'SELECT 1' >/dev/null 2>&1 && return
		sleep 0.1
	done
	cat "$data/log"
	return 1
}

stop() { as_postgres "$bindir/pg_ctl" stop --silent --pgdata="$data/db"; }

a_task_runs()
{
	query -c "CREATE TABLE IF NOT EXISTS effects ()" -c "TRUNCATE effects" -c "SELECT delay_schedule('0', 'INSERT INTO effects DEFAULT VALUES')" >/dev/null
	for _ in $(seq 600); do
		[ "$(query -c 'SELECT count(*) FROM effects')" != 1 ] || return 0
		sleep 0.1
	done
	return 1
}

# The image: its files in place, its command, its script in a new database.
as_postgres "$bindir/initdb" --no-sync --pgdata="$data/db" >/dev/null
find "$stages/final" -type f
cp -a "$stages/final/usr/." /usr/
mapfile -t settings < <(perl -MJSON::PP -e 'my @c = @{ decode_json(shift) }; shift @c; print map { "$_\n" } grep { $_ ne "-c" } @c' "$command")
start "${settings[@]}" || fail "the server of the image does not start"
ok "a server is started with: ${settings[*]}"
query -f "$stages/final/docker-entrypoint-initdb.d/delay_wheel.sql" || fail "the image's script"
a_task_runs || fail "a task runs in it"
ok "a task runs in it"
stop
(cd "$stages/final/usr" && find . -type f -print0 | (cd /usr && xargs -0 rm))

# CloudNativePG: the files of the extension's image mounted where it mounts them.
mkdir -p /extensions
rm -rf /extensions/delay_wheel
cp -a "$stages/extension" /extensions/delay_wheel
for file in lib/delay_wheel.so share/extension/delay_wheel.control share/extension/delay_wheel--1.0.sql; do
	[ -f "/extensions/delay_wheel/$file" ] || fail "the extension's image has $file"
done
ok "the extension's image has its files in lib and share/extension"
settings=("dynamic_library_path=\$libdir:/extensions/delay_wheel/lib" shared_preload_libraries=delay_wheel)
if [ "$PG_MAJOR" -ge 18 ]; then
	settings+=("extension_control_path=\$system:/extensions/delay_wheel/share")
fi
start "${settings[@]}" || fail "a server with the mounted library does not start"
a_task_runs || fail "a task runs with the mounted library"
ok "a task runs with the mounted library"
if [ "$PG_MAJOR" -ge 18 ]; then
	query -c 'DROP EXTENSION delay_wheel' -c 'CREATE EXTENSION delay_wheel' || fail "the extension is created from there"
	ok "the extension is created from there"
fi
stop
rm -rf "$data" "$stages" /src /out /extensions
