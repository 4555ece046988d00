#!/usr/bin/env bash
#
# Run by test/packages/run in a fresh chroot of Debian, as root: what doc/install.md says,
# on a machine without PostgreSQL.  /debs/new has the packages; /debs/former, if it is
# there, that of an older version, which is installed first.  (The major is that of the
# release, wherever 15 is written.)

set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# A step, with its time in milliseconds; it passes if the command does.
step()							# what, command...
{
	local what=$1 begun=${EPOCHREALTIME/[.,]/}
	shift

	if "$@"; then
		echo "ok - $what ($(((${EPOCHREALTIME/[.,]/} - begun) / 1000)) ms)"
	else
		echo "not ok - $what"
		tail -n 20 /var/log/postgresql/*.log || true
		exit 1
	fi
}

query()							# SQL
{
	runuser -u postgres -- psql -XAtq -v ON_ERROR_STOP=1 -d app -c "$1"
}

is()							# SQL, answer
{
	local answer

	answer=$(query "$1") || return
	[ "$answer" = "$2" ] || { echo "$1: $answer, not $2"; return 1; }
}

# An SQL expression becomes true, within a minute.
becomes()						# SQL
{
	local end=$((SECONDS + 60))

	until is "SELECT $1" t; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}

fails_with()					# text, command...
{
	local text=$1 output
	shift

	if output=$("$@" 2>&1); then
		echo "it does not fail: $*"
		return 1
	fi
	echo "$output"
	[[ $output == *"$text"* ]]
}

# Numbers and texts of all tasks, pending, failed and recurring.
tasks()
{
	query "SELECT md5(string_agg(t, ';' ORDER BY t)) FROM (SELECT to_jsonb(t)::text FROM delay_wheel_data.task t
		UNION ALL SELECT to_jsonb(f)::text FROM delay_wheel_data.failed_task f
		UNION ALL SELECT to_jsonb(r)::text FROM delay_wheel_data.recurring_task r) _(t)"
}

a_task_runs()					# label
{
	query "SELECT delay_schedule('0', 'INSERT INTO effects VALUES (\$1)', '$1'::text)" >/dev/null &&
		becomes "count(*) = 1 FROM effects WHERE label = '$1'"
}

restart()
{
	service postgresql restart
	pg_lsclusters
	pg_lsclusters --no-header | grep -q ' online '
}

printf 'quiet "1";\nDpkg::Use-Pty "0";\nAPT::Get::Assume-Yes "1";\n' >/etc/apt/apt.conf.d/99try

#
# On a machine that has nothing.
#
step "apt-get update" apt-get update --quiet
install()						# former or new
{
	mkdir -p "/debs/$1/tree"
	cd "/debs/$1/tree"
	apt-get install --simulate ../postgresql-15-delay-wheel_*.deb
	apt-get install ../postgresql-15-delay-wheel_*.deb
}
first=new
[ ! -d /debs/former ] || first=former
step "the $first package, and PostgreSQL with it, are installed" install "$first"
# as a machine without systemd does at its start
pg_lsclusters --no-header | grep -q ' online ' || service postgresql start
step "there is a cluster, which runs" bash -c "pg_lsclusters --no-header | grep '^15 *main .* online '"
step "the library is preloaded" \
	runuser -u postgres -- psql -c "ALTER SYSTEM SET shared_preload_libraries = 'delay_wheel'"
step "the server is restarted" restart
runuser -u postgres -- createdb app
step "the extension is created" runuser -u postgres -- psql -d app -c "CREATE EXTENSION delay_wheel"
query "CREATE TABLE effects (label text, at timestamptz DEFAULT clock_timestamp())"
step "a task runs" a_task_runs first

#
# A copy for tests.
#
copied()
{
	pg_createcluster 15 staging
	rm -r /var/lib/postgresql/15/staging
	runuser -u postgres -- pg_basebackup --cluster 15/main -D /var/lib/postgresql/15/staging -X stream -c fast
	echo "delay_wheel.start_after_recovery = hold" | tee -a /var/lib/postgresql/15/staging/postgresql.auto.conf
	pg_conftool 15 staging set shared_preload_libraries delay_wheel
	pg_ctlcluster 15 staging start
}
held() { [ "$(runuser -u postgres -- psql --cluster 15/staging -d app -XAtc "SELECT state FROM delay_wheel.status WHERE database = 'app'")" = held ]; }
held_soon()
{
	local end=$((SECONDS + 60))

	until held; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}
step "the server is copied" copied
step "which holds its tasks" held_soon
pg_dropcluster --stop 15 staging

#
# Another cluster, made with it; and one that is told by a file.
#
step "a cluster is made with the library preloaded" \
	pg_createcluster --start -o shared_preload_libraries=delay_wheel 15 tasks
preloads() { [ "$(runuser -u postgres -- psql --cluster 15/tasks -XAtc 'SHOW shared_preload_libraries')" = "$1" ]; }
step "which it is" preloads delay_wheel
sed -i '/delay_wheel/d' /etc/postgresql/15/tasks/postgresql.conf
told()
{
	echo "shared_preload_libraries = 'delay_wheel'" | tee /etc/postgresql/15/tasks/conf.d/delay_wheel.conf
	pg_ctlcluster 15 tasks restart
}
step "or by a file in conf.d" told
step "which is read" preloads delay_wheel
pg_dropcluster --stop 15 tasks
# which leaves that file
rm -r /etc/postgresql/15/tasks

#
# The upgrade, with tasks pending, failed and recurring.
#
query "SELECT delay_schedule('1 day', 'INSERT INTO effects VALUES (''pending'')') FROM generate_series(1, 1000);
	SELECT delay_schedule_task('INSERT INTO effects VALUES (''keyed'')', delay => '1 day', key => 'k', tag => 't', max_attempts => 3);
	SELECT delay_every('daily', '1 day', 'INSERT INTO effects VALUES (''recurring'')', options => '{\"max_runs\": 1}');
	SELECT delay_schedule('0', 'SELECT 1 / 0')" >/dev/null
step "a task has failed" becomes "count(*) = 1 FROM delay_wheel.failed"
before=$(tasks)
[ "$first" = new ] || step "the new package is installed over it" install new
# to files only: 269_packaging.pl follows anchors, too
links_hold()
{
	local document link broken=0

	while IFS=: read -r document link; do
		case $link in
			'' | *:*) ;;
			*) [ -e "${document%/*}/$link" ] || { echo "$document: $link"; broken=1; } ;;
		esac
	done < <(grep -roE --include='*.md' '\]\([^)# ]+' /usr/share/doc/postgresql-15-delay-wheel | sed 's/:](/:/')
	[ "$broken" -eq 0 ] && [ -e /usr/share/doc/postgresql-15-delay-wheel/README.md ]
}
step "the links of its documents lead to files" links_hold
step "the server that was not restarted runs tasks" a_task_runs "not restarted"
step "the server is restarted again" restart
step "the library runs tasks of the database that was not updated" a_task_runs "not updated"
step "an update" runuser -u postgres -- psql -d app -c "ALTER EXTENSION delay_wheel UPDATE"
step "the database is of the new version" is "SELECT extversion = default_version FROM pg_extension, pg_available_extensions WHERE extname = 'delay_wheel' AND name = extname" t
same() { [ "$(tasks)" = "$before" ]; }
step "all tasks are as they were" same
step "a new one runs" a_task_runs "updated"
query "UPDATE delay_wheel_data.task SET due = now()"
step "all that was pending runs, each once" becomes "string_agg(label || ' ' || n, ', ' ORDER BY label) = 'keyed 1, pending 1000, recurring 1'
	FROM (SELECT label, count(*) n FROM effects WHERE label IN ('keyed', 'pending', 'recurring') GROUP BY label) _"
step "the failed one is put back" is "SELECT delay_retry_all()" 1
step "and fails again" becomes "count(*) = 1 FROM delay_wheel.failed"

#
# delay-wheel-http, as the user of its role.
#
install_http() { apt-get install --no-install-recommends /debs/new/delay-wheel-http_*.deb; }
step "the package of delay-wheel-http is installed" install_http
step "its settings are for root only" test "$(stat -c '%a %U' /etc/default/delay-wheel-http)" = "600 root"
step "its unit starts what is there" grep -q '^ExecStart=/usr/bin/delay-wheel-http$' /lib/systemd/system/delay-wheel-http.service
step "which is not started without settings" bash -c '! find /etc/systemd -name "delay-wheel-http*" | grep .'
step "setup.sql runs" runuser -u postgres -- psql -Xq -v ON_ERROR_STOP=1 -d app -f /usr/share/delay-wheel-http/setup.sql
query "SELECT delay_http.post('http://127.0.0.1:1/', '{}')" >/dev/null
# with the settings of the template, but for the database
(
	set -a
	# shellcheck source=/dev/null
	. /etc/default/delay-wheel-http
	PGPORT=$(query 'SHOW port') PGDATABASE=app exec setpriv --reuid=delay_http_worker --regid=delay_http_worker --clear-groups /usr/bin/delay-wheel-http
) &
step "it refuses a call of this machine" becomes "count(*) = 1 FROM delay_wheel.failed WHERE queue = 'http' AND message LIKE '%127.0.0.1, which is not allowed'"
kill $!
step "it stops" wait $!
step "it is purged" apt-get purge delay-wheel-http
query "DROP SCHEMA delay_http CASCADE; SELECT delay_wheel.drop_queue('http')" >/dev/null

#
# Removal, in the wrong order, undone; then in the right one.
#
query "SELECT delay_schedule('1 day', 'INSERT INTO effects VALUES (''kept'')')" >/dev/null
logged()						# command...
{
	"$@" 2>&1 | tee /removal.log
}
warns() { grep -F 'sudo -u postgres psql --cluster 15/main -c "ALTER SYSTEM RESET shared_preload_libraries"' /removal.log; }
step "the package is removed while the library is preloaded" logged apt-get remove postgresql-15-delay-wheel
step "which comes with a warning" warns
step "the server does not start any more" fails_with 'could not access file "delay_wheel"' pg_ctlcluster 15 main restart
step "the package is installed again" install new
step "the server starts" restart
step "the task is there" is "SELECT count(*) FROM delay_wheel.tasks" 1
query "UPDATE delay_wheel_data.task SET due = now()"
step "and runs" becomes "count(*) = 1 FROM effects WHERE label = 'kept'"
step "the extension is dropped" runuser -u postgres -- psql -d app -c "DROP EXTENSION delay_wheel"
step "the library is not preloaded any more" \
	runuser -u postgres -- psql -c "ALTER SYSTEM RESET shared_preload_libraries"
step "the server is restarted without it" restart
step "the package is purged" logged apt-get purge postgresql-15-delay-wheel
does_not_warn() { ! grep Warning /removal.log; }
step "which comes without a warning" does_not_warn
rm /removal.log
step "the server starts without its files" restart
nothing_left() { ! find / -xdev -path /debs -prune -o -path /proc -prune -o -name '*delay*wheel*' -print | grep -v '^/var/\(lib/dpkg\|log\|cache\)/\|^/try' | grep .; }
step "nothing of it is left" nothing_left
service postgresql stop
