# Keys under load: at most one pending task of a key, whatever its callers do
# at once; no event is swallowed; most tasks are cancelled by key before they
# are due.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('keys', conf => q{
max_connections = 100
log_statement = none
log_min_messages = error
restart_after_crash = on
synchronous_commit = off
});
$node->safe_psql('postgres', q{
	CREATE TABLE made (mode text, key text, id bigint);
	-- how many tasks of a key there are beside the one
	CREATE VIEW surplus AS SELECT key, count(*) FROM delay_wheel_data.task GROUP BY owner, queue, key HAVING count(*) > 1;
	CREATE FUNCTION add(mode text, key text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO made VALUES (mode, key, delay_schedule_task('SELECT 1', key => key, if_exists => mode, delay => '1 day'));
	EXCEPTION WHEN unique_violation THEN
		NULL;
	END $$;
});

# A pgbench script: lines, without the newlines of which -f wants a file.
my $scripts = 0;

sub pgbench
{
	my ($script, @options) = @_;
	my $file = "$dir/script" . ++$scripts;

	append_to_file($file, $script);
	return IPC::Run::start(
		[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-f', $file, @options, 'postgres' ],
		'<', \undef, '>', "$file.out", '2>', "$file.err");
}

sub run_pgbench
{
	my ($what, @arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $job = pgbench(@arguments);

	ok($job->finish, $what)
	  or diag(PostgreSQL::Test::Utils::slurp_file("$dir/script$scripts.err"));
	my ($tps) = PostgreSQL::Test::Utils::slurp_file("$dir/script$scripts.out") =~ /tps = ([\d.]+)/;
	return $tps;
}

sub value { return $node->safe_psql('postgres', $_[0]); }

sub nothing_pending
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', $what, 60, expected => 0);
}

#
# 32 callers of one key, then all of them of the next one.
#
my $rounds = long_tests() ? 500 : 50;
for my $mode (qw(keep replace error))
{
	run_pgbench("32 callers schedule $rounds keys, if_exists => $mode",
		"\\set n :n + 1\nSELECT add('$mode', '$mode ' || :n);\n", '-c', 32, '-t', $rounds, '-D', 'n=0');
	is(value('SELECT count(*) FROM surplus'), 0, 'no key has two tasks');
	is(value("SELECT count(DISTINCT key) FROM delay_wheel.tasks WHERE key LIKE '$mode %'"), $rounds, 'each has one');
}
is(value("SELECT count(*) FROM (SELECT FROM made WHERE mode = 'keep' GROUP BY key HAVING count(*) = 32 AND count(DISTINCT id) = 1) k"),
	$rounds, 'keep gave all callers of a key the same task');
is(value("SELECT count(*) FROM (SELECT FROM made WHERE mode = 'replace' GROUP BY key HAVING count(DISTINCT id) = 32) k"),
	$rounds, 'replace gave each a task of his own');
is(value("SELECT count(*) FROM (SELECT FROM made WHERE mode = 'error' GROUP BY key HAVING count(*) = 1) k"),
	$rounds, 'only one of them did not get an error');
is(value("SELECT count(*) FROM delay_wheel.tasks t WHERE NOT EXISTS (SELECT FROM made WHERE id = t.id)"), 0,
	'what is pending was returned to a caller');

# Everything at once on few keys, also rolled back.
run_pgbench('all modes, cancels and moves at once, some of them rolled back', q{
\set k random(1, 4)
\set what random(1, 16)
\set end random(1, 3)
BEGIN;
\if :what <= 3
SELECT add('keep', 'mixed ' || :k);
\elif :what <= 6
SELECT add('replace', 'mixed ' || :k);
\elif :what <= 8
SELECT add('error', 'mixed ' || :k);
\elif :what <= 10
SELECT delay_cancel(key => 'mixed ' || :k);
\elif :what = 11
SELECT add('earlier', 'mixed ' || :k);
\elif :what = 12
SELECT add('later', 'mixed ' || :k);
\elif :what = 13
SELECT add('replace_keep_due', 'mixed ' || :k);
\elif :what = 14
SELECT delay_update(key => 'mixed ' || :k, tag => 'changed');
\elif :what = 15
SELECT delay_reschedule(key => 'mixed ' || :k, delay => '3 days');
\else
SELECT delay_reschedule(id, '2 days') FROM delay_wheel.tasks WHERE key = 'mixed ' || :k;
\endif
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
}, '-c', 32, '-t', long_tests() ? 2000 : 60);
is(value('SELECT count(*) FROM surplus'), 0, 'no key has two tasks');
is(value('SELECT count(*) FROM delay_wheel.failed'), 0, 'and none had');
value('SELECT count(delay_cancel(id)) FROM delay_wheel.tasks');

# One key after the other that is unique for an hour, and whose task is done meanwhile.
my $uniques = long_tests() ? 500 : 50;
value('CREATE TABLE once (key text); CREATE TABLE told (key text, id bigint, outcome text)');
run_pgbench("16 callers schedule $uniques keys that are unique for a period", q{
\set n :n + 1
BEGIN;
INSERT INTO told SELECT 'unique ' || :n, id, outcome FROM delay_scheduled(delay_schedule_task('INSERT INTO once VALUES ($1)', args => ARRAY['unique ' || :n], key => 'unique ' || :n, options => '{"unique_for": "1 hour"}'));
COMMIT;
}, '-c', 16, '-t', $uniques, '-D', 'n=0');
nothing_pending('all of them are done');
is(value('SELECT count(*) FROM once') . ' ' . value('SELECT count(DISTINCT key) FROM once'), "$uniques $uniques",
	'each is done once');
is(value("SELECT count(*) FROM (SELECT FROM told GROUP BY key HAVING count(*) = 16 AND count(DISTINCT id) = 1 AND count(*) FILTER (WHERE outcome = 'new') = 1) k"),
	$uniques, 'one caller was told that it is new, the others its number');

# One that is moved all the time is always found.
value(q{
	SELECT delay_schedule_task('SELECT 1', key => 'moved', delay => '1 day');
	CREATE TABLE lost (what text);
	CREATE FUNCTION look() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		pending bigint := id FROM delay_wheel.tasks WHERE key = 'moved';
		outcome text;
	BEGIN
		IF random() < 0.5 THEN
			IF delay_schedule_task('SELECT 1', key => 'moved', delay => '1 day') <> pending THEN
				INSERT INTO lost VALUES ('another one was made');
			END IF;
			RETURN;
		END IF;
		BEGIN
			outcome := delay_cancel(key => 'moved');
			RAISE EXCEPTION 'not really' USING ERRCODE = 'DW000';
		EXCEPTION WHEN SQLSTATE 'DW000' THEN
			NULL;
		END;
		IF outcome <> 'cancelled' THEN
			INSERT INTO lost VALUES (outcome);
		END IF;
	END $$;
});
my $moved = value(q{SELECT id FROM delay_wheel.tasks});
my @moves = (
	pgbench("SELECT delay_reschedule($moved, '1 day');\n", '-c', 4, '-T', long_tests() ? 30 : 3),
	pgbench("SELECT look();\n", '-c', 4, '-T', long_tests() ? 30 : 3));
ok($_->finish, 'a task is moved, kept and cancelled') for @moves;
is(value(q{SELECT coalesce(string_agg(what, ','), '') FROM lost}), '', 'it was always there');
value('SELECT count(delay_cancel(id)) FROM delay_wheel.tasks');
nothing_pending('nothing is left');

#
# No event is swallowed: the tasks copy a counter, or count rows, and in the
# end have seen all of them; they run again and again meanwhile, though there
# is always somebody who keeps one.
#
my $seconds = long_tests() ? 60 : 4;
value(q{
	CREATE TABLE counter (k int PRIMARY KEY, n bigint DEFAULT 0);
	CREATE TABLE copy (k int PRIMARY KEY, n bigint DEFAULT 0, runs bigint DEFAULT 0);
	CREATE TABLE event (k int);
	CREATE INDEX ON event (k);
	INSERT INTO counter SELECT generate_series(0, 8);
	INSERT INTO copy SELECT generate_series(0, 8);
});
my @jobs = (
	# one after the other, since they change the same row
	pgbench(q{
\set k random(1, 4)
BEGIN;
UPDATE counter SET n = n + 1 WHERE k = :k;
SELECT delay_schedule_task('UPDATE copy SET n = (SELECT n FROM counter WHERE k = $1), runs = runs + 1 WHERE k = $1',
	args => ARRAY[:k]::text[], key => 'copy ' || :k, options => '{"arg_types": ["int"]}');
COMMIT;
}, '-c', 8, '-T', $seconds),
	# beside each other, so that there is always one who keeps it
	pgbench(q{
\set ms random(1, 20)
BEGIN;
INSERT INTO event VALUES (0);
SELECT delay_schedule_task('UPDATE copy SET n = (SELECT count(*) FROM event WHERE k = 0), runs = runs + 1 WHERE k = 0', key => 'copy 0');
\sleep :ms ms
COMMIT;
}, '-c', 16, '-T', $seconds));
ok($_->finish, 'events under load') for @jobs;
my $runs = value("SELECT runs FROM copy WHERE k = 0");
cmp_ok($runs, '>', 3 * $seconds, 'a task that is always kept by somebody runs all the same');
note("$seconds s: " . value('SELECT count(*) FROM event') . " events kept by 16 callers ran in $runs tasks, "
	  . value('SELECT sum(n) FROM counter') . ' events one after the other in ' . value('SELECT sum(runs) FROM copy WHERE k > 0'));
nothing_pending('the load is over, and nothing is left');
is(value('SELECT count(*) FROM counter JOIN copy USING (k) WHERE k > 0 AND counter.n <> copy.n'), 0, 'no event was swallowed');
is(value('SELECT copy.n = (SELECT count(*) FROM event) FROM copy WHERE k = 0'), 't', 'nor with those that overlapped');
is(value(q{SELECT coalesce(string_agg(concat_ws(' ', id, sqlstate, message, detail, context), E'\n'), '') FROM delay_wheel.failed}), '', 'nothing has failed');

#
# A task that is kept does not run before who kept it commits: it has yet to see what
# that transaction wrote.  One that is due later shows that executors were there.
#
value('CREATE TABLE ran (label text)');
value("SELECT delay_pause_all()");
my $kept = value(q{SELECT delay_schedule_task($$INSERT INTO ran VALUES ('kept')$$, key => 'kept')});
my $keeper = $node->background_psql('postgres');
$keeper->query_safe('BEGIN');
is($keeper->query_safe(q{SELECT delay_schedule_task('SELECT 1', key => 'kept')}), $kept, 'an overdue task is kept');
value(q{SELECT delay_schedule('0', $$INSERT INTO ran VALUES ('other')$$)});
value("SELECT delay_resume_all()");
wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'other'}, 'a later one runs', 60, expected => 1);
is(value(q{SELECT count(*) FROM ran WHERE label = 'kept'}), 0, 'the kept one waits for who has kept it');
$keeper->query_safe('COMMIT');
wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'kept'}, 'and runs then', 60, expected => 1);
$keeper->quit;

#
# A task has scheduled its own key in its run, which is not over: whether there
# is one pending depends on that.
#
my $gate = $node->background_psql('postgres');
my $caller = $node->background_psql('postgres');
my $runs_at_gate = q{SELECT count(*) FROM pg_locks l JOIN delay_wheel.running r USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted};
my $itself = q{SELECT delay_schedule_task($$SELECT delay_schedule_task('SELECT 2', key => 'itself', delay => '1 day'); SELECT pg_advisory_xact_lock_shared(1)$$, key => 'itself')};
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $first = value($itself);
wait_for($node, $runs_at_gate, 'a task has scheduled its own key', 60, expected => 1);
is(value("SELECT delay_cancel(key => 'itself')"), 'running', 'what it has scheduled is not there yet');
$caller->query_until(qr/asked/, "\\echo asked\nSELECT delay_schedule_task('SELECT 1', key => 'itself', if_exists => 'replace', delay => '1 day');\n");
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}, 'another caller waits for its end', 60, expected => 1);
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_for($node, q{SELECT string_agg(sql, ',') FROM delay_wheel.tasks}, 'then that one replaces it', 60, expected => 'SELECT 1');
$caller->quit;
is(value("SELECT delay_cancel(key => 'itself')"), 'cancelled', 'and it is there');

#
# An executor is killed, and with it the server, while its task has a successor.
#
value('CREATE TABLE effect (label text)');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $old = value(q{SELECT delay_schedule_task($$SELECT pg_advisory_xact_lock_shared(1); INSERT INTO effect VALUES ('old')$$, key => 'killed')});
wait_for($node, $runs_at_gate, 'a task runs', 60, expected => 1);
value(q{SELECT delay_schedule_task($$INSERT INTO effect VALUES ('new')$$, key => 'killed', delay => '1 day')});
my $pid = value('SELECT pid FROM delay_wheel.running');
value('CHECKPOINT');
kill 'KILL', $pid;
wait_for($node, "SELECT count(*) = 1 FROM delay_wheel.failed WHERE id = $old AND sqlstate = 'DW001'", 'the old one has failed');
is(value(q{SELECT string_agg(sql, '') FROM delay_wheel_data.task}), q{INSERT INTO effect VALUES ('new')}, 'the successor is pending');
value("SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks");
nothing_pending('it runs');
is(value("SELECT string_agg(label, ',') FROM effect"), 'new', 'and only it');
eval { $gate->quit };

#
# A dump: tasks with keys come along, and give way to those scheduled since.
#
value(q{SELECT delay_schedule_task('SELECT 1', key => 'dump ' || i, delay => '1 day') FROM generate_series(1, 3) i});
value('CREATE DATABASE copy');
my $dump = "$dir/dump.sql";
$node->command_ok([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-f', $dump, 'postgres' ], 'a dump');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-h', $node->host, '-p', $node->port, '-f', $dump, 'copy' ], 'is restored');
is($node->safe_psql('copy', q{
		SELECT delay_schedule_task('SELECT 2', key => 'dump 1', delay => '1 day') > 0, delay_cancel(key => 'dump 2');
		SELECT delay_wheel.arm();
		SELECT string_agg(key || ': ' || sql, ', ' ORDER BY key) FROM delay_wheel.tasks}),
	"t|cancelled\n2\ndump 1: SELECT 2, dump 3: SELECT 1", 'what is scheduled in the copy is newer; the others are there');
value('DROP DATABASE copy');
value('SELECT count(delay_cancel(id)) FROM delay_wheel.tasks');

#
# Orders, of which nine of ten are paid in time: their tasks are cancelled in
# the transaction that pays.
#
value(q{
	CREATE TABLE orders (id bigint PRIMARY KEY, paid boolean NOT NULL DEFAULT false);
	CREATE SEQUENCE order_id;
	CREATE TABLE beat (due timestamptz, began timestamptz DEFAULT clock_timestamp());
});
my $sizes = q{SELECT pg_size_pretty(pg_table_size('delay_wheel_data.task')) || ' table, ' || pg_size_pretty(pg_indexes_size('delay_wheel_data.task')) || ' indexes, '
	|| count(*) || ' rows' FROM delay_wheel_data.task};
my $lateness = q{SELECT format('lateness of %s beats: p50 %s, p99 %s, max %s ms', count(*), round(percentile_disc(0.5) WITHIN GROUP (ORDER BY late), 2),
	round(percentile_disc(0.99) WITHIN GROUP (ORDER BY late), 2), round(max(late), 2))
	FROM (SELECT extract(epoch FROM began - due)::numeric * 1000 AS late FROM beat) b};
my $beats = q{SELECT count(delay_schedule_at(due, 'INSERT INTO beat VALUES ($1)', due)) FROM generate_series(now() + interval '1 s', now() + interval '%d s', interval '20 ms') due};
value(sprintf($beats, 4));
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'nothing but beats', 60, expected => 0);
note('idle: ' . value($lateness));
my $quiet = value('SELECT count(*) FROM beat');
cmp_ok($quiet, '>', 100, 'each beat ran');
value('TRUNCATE beat');

$seconds = long_tests() ? 180 : 6;
value(sprintf($beats, $seconds));
my $job = pgbench(q{
\set paid random(1, 10)
SELECT nextval('order_id') AS id \gset
BEGIN;
INSERT INTO orders VALUES (:id);
SELECT delay_schedule_task('DELETE FROM orders WHERE id = $1 AND NOT paid', args => ARRAY[:id]::text[],
	delay => '30 minutes', key => 'order ' || :id, options => '{"arg_types": ["bigint"]}');
COMMIT;
\if :paid < 10
BEGIN;
UPDATE orders SET paid = true WHERE id = :id;
SELECT delay_cancel(key => 'order ' || :id);
COMMIT;
\endif
}, '-c', 4, '-T', $seconds);
my $half = 0;
while ($job->pumpable)
{
	$job->pump_nb;
	sleep(1);
	note(value($sizes)) if ++$half % ($seconds / 6) == 0;
}
ok($job->finish, 'orders under load');
note('under load: ' . value($lateness));
note('in the end: ' . value('SELECT count(*) FROM orders') . ' orders, ' . value($sizes));
is(value('SELECT (SELECT count(*) FROM delay_wheel.tasks WHERE key LIKE $$order %$$) - (SELECT count(*) FROM orders WHERE NOT paid)'), 0,
	'each order that is not paid has its task, the paid ones have none');
wait_for($node, q{SELECT count(*) FROM delay_wheel.tasks WHERE key IS NULL}, 'all beats ran', 60, expected => 0);
cmp_ok(value('SELECT max(began - due) < interval $$5 s$$ AND min(began - due) >= interval $$0$$ FROM beat'), 'eq', 't', 'in time, and never early');

$node->stop;
done_testing();
