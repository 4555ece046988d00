#!/usr/bin/env bash
#
# Run by test/packages/run in the chroot that packages are built in, as root: builds the
# images of /context/Dockerfile and /context/workers/http/Dockerfile with buildah, and starts
# servers as the image, and CloudNativePG, would. In place of the official image the Dockerfile begins with one that
# is made here, of /images/base.tar, a bare Debian, and its PostgreSQL: there is no
# registry to fetch from. (The major is that of the release, wherever 15 is written.)

set -euo pipefail

PG_MAJOR=15
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
official=docker.io/library/postgres:$PG_MAJOR-$release

ok() { echo "ok - $*"; }

fail()
{
	echo "not ok - $*"
	exit 1
}

#
# buildah, without a daemon, with its files in /images. Where overlays cannot be mounted it
# copies.
#
export BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF=/images/storage.conf
for driver in overlay vfs; do
	printf '[storage]\ndriver = "%s"\nrunroot = "/images/run"\ngraphroot = "/images/%s"\n' "$driver" "$driver" >"$CONTAINERS_STORAGE_CONF"
	if container=$(buildah from scratch) && buildah mount "$container" >/dev/null; then
		buildah rm "$container" >/dev/null
		break
	fi
	[ "$driver" != vfs ] || fail "buildah cannot mount a container"
done
echo "with $(buildah --version), $driver"

build()							# directory, option...
{
	local directory=$1
	shift

	# with layers, so that the stages that targets share are built once
	buildah bud --pull-never --layers "$@" "$directory"
}

cat >/images/Dockerfile <<END
FROM scratch
ADD base.tar /
RUN mkdir -p /etc/postgresql-common/createcluster.d && \
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/none.conf && \
    apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql-$PG_MAJOR
ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/$PG_MAJOR/bin
END
build /images --tag "$official" || fail "the image that the Dockerfile begins with"

printf 'FROM scratch\nADD base.tar /\n' >/images/Dockerfile
build /images --tag "docker.io/library/debian:$release-slim" || fail "the image that the Dockerfile of workers/http begins with"

arguments=(--build-arg "PG_MAJOR=$PG_MAJOR" --build-arg "DEBIAN=$release")
build /context "${arguments[@]}" --tag delay_wheel || fail "the Dockerfile"
ok "the image is built"
build /context "${arguments[@]}" --target extension --tag extension || fail "the Dockerfile, target extension"
ok "the extension's image is built"
build /context/workers/http --build-arg "DEBIAN=$release" --tag delay-wheel-http || fail "the Dockerfile of workers/http"
ok "the image of delay-wheel-http is built"
image=$(buildah from --pull-never delay_wheel)
http=$(buildah from --pull-never delay-wheel-http)
plain=$(buildah from --pull-never "$official")
extension=$(buildah mount "$(buildah from --pull-never extension)")

# In a container, with the data of all of them.
container=$image
inside() { buildah run --user postgres --volume /images/data:/data --env PGDATA=/data/db "$@"; }

query() { inside "$container" -- psql -XAtq -v ON_ERROR_STOP=1 -h /data -d postgres "$@"; }

begin()							# option of buildah run..., --, command...
{
	inside "$@" -c listen_addresses= -c unix_socket_directories=/data >/images/log 2>&1 &
	for _ in $(seq 60); do
		query -c 'SELECT 1' >/dev/null 2>&1 && return
		sleep 0.5
	done
	cat /images/log
	return 1
}

end()
{
	inside "$container" -- pg_ctl stop --silent
	wait
}

a_task_runs()
{
	query -c "CREATE TABLE IF NOT EXISTS effects ()" -c "TRUNCATE effects" -c "SELECT delay_schedule('0', 'INSERT INTO effects DEFAULT VALUES')" >/dev/null
	for _ in $(seq 60); do
		[ "$(query -c 'SELECT count(*) FROM effects')" != 1 ] || return 0
		sleep 0.5
	done
	return 1
}

# The image: its command, and its script in a new database.
mkdir -p /images/data
buildah run --volume /images/data:/data "$image" -- chown postgres: /data
inside "$image" -- initdb --no-sync >/dev/null || fail "initdb"
mapfile -t command < <(buildah inspect --format '{{range .OCIv1.Config.Cmd}}{{println .}}{{end}}' "$image" | grep .)
begin "$image" -- "${command[@]}" || fail "the server of the image does not start"
ok "a server is started with: ${command[*]}"
query -f /docker-entrypoint-initdb.d/delay_wheel.sql || fail "the image's script"
a_task_runs || fail "a task runs in it"
ok "a task runs in it"

# delay-wheel-http beside it: as nobody, with the variables of a container.
mapfile -t command < <(buildah inspect --format '{{range .OCIv1.Config.Entrypoint}}{{println .}}{{end}}' "$http" | grep .)
[ "$(buildah run "$http" -- id -u)" != 0 ] || fail "delay-wheel-http is not root"
cp /context/workers/http/setup.sql /images/data/
query -f /data/setup.sql -c "SELECT delay_http.post('http://127.0.0.1:1/', '{}')" >/dev/null || fail "setup.sql"
buildah run --volume /images/data:/data --env PGHOST=/data --env PGDATABASE=postgres "$http" -- timeout -s TERM 60 "${command[@]}" >/images/log 2>&1 &
called=
for _ in $(seq 60); do
	called=$(query -c "SELECT message FROM delay_wheel.failed WHERE queue = 'http'")
	[ -z "$called" ] || break
	sleep 0.5
done
[[ $called == *"127.0.0.1, which is not allowed" ]] || fail "delay-wheel-http makes calls: $called $(cat /images/log)"
ok "delay-wheel-http serves it, and does not call into its own container"
kill $!
end

# CloudNativePG: the extension's image mounted where it mounts it, beside an image that
# knows nothing of it.
container=$plain
for file in lib/delay_wheel.so share/extension/delay_wheel.control share/extension/delay_wheel--1.0.sql; do
	[ -f "$extension/$file" ] || fail "the extension's image has $file"
done
ok "the extension's image has its files in lib and share/extension"
settings=(-c "dynamic_library_path=\$libdir:/extensions/delay_wheel/lib" -c shared_preload_libraries=delay_wheel)
if [ "$PG_MAJOR" -ge 18 ]; then
	settings+=(-c "extension_control_path=\$system:/extensions/delay_wheel/share")
fi
begin --volume "$extension:/extensions/delay_wheel:ro" "$plain" -- postgres "${settings[@]}" ||
	fail "a server with the mounted library does not start"
a_task_runs || fail "a task runs with the mounted library"
ok "a task runs with the mounted library"
if [ "$PG_MAJOR" -ge 18 ]; then
	query -c 'DROP EXTENSION delay_wheel' -c 'CREATE EXTENSION delay_wheel' || fail "the extension is created from there"
	ok "the extension is created from there"
fi
end

# The compose file, as its program reads it.
if POSTGRES_PASSWORD='' docker-compose --file /context/compose.yaml config >/dev/null 2>&1; then
	fail "the compose file wants a password"
fi
POSTGRES_PASSWORD=secret docker-compose --file /context/compose.yaml config || fail "the compose file"
ok "the compose file is understood"
