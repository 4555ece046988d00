# Hostile tasks: each does its worst, alone, in a batch, or by delay_run().  It
# ends as it should, its executor is clean afterwards, and the tasks of another
# owner and queue stay on time all along.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# In seconds, and generous: machines are busy.
my $on_time = 5;
my $patience = $ENV{DW_FAIL_FAST} ? 20 : 60;

my $node = new_node('hostile_tasks', init => [ extra => ['--encoding=UTF8'] ],
	batches => 1, conf => q{
	max_connections = 40
	max_locks_per_transaction = 64
	max_parallel_workers = 4
	log_statement = none
	autovacuum = off
	restart_after_crash = on
	delay_wheel.executor_idle_timeout = 1h
	delay_wheel.executor_memory = 48MB
});

#
# The innocents: a run each 100 ms in a queue of their own; all of them are made.
#
$node->safe_psql('postgres', q{
	CREATE ROLE good LOGIN;
	CREATE ROLE hostile LOGIN;
	CREATE ROLE another LOGIN;
	CREATE ROLE signals LOGIN IN ROLE pg_signal_backend;
	SELECT delay_wheel.allow('good', 'hostile', 'another', 'signals');
	SELECT delay_wheel.create_queue('good', users => '{good}');
	SELECT delay_wheel.create_queue('batch', users => '{hostile}');
	CREATE TABLE tick (at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON tick TO good;
	CREATE TABLE probe (found text);
	CREATE TABLE innocent (n int, xid xid8 DEFAULT pg_current_xact_id());
	CREATE TABLE effect (label text);
	GRANT ALL ON probe, innocent, effect TO PUBLIC;
	CREATE SCHEMA hostile AUTHORIZATION hostile;
	ALTER ROLE hostile SET search_path = hostile, public;
	CREATE FUNCTION file_names(text) RETURNS text LANGUAGE sql SECURITY DEFINER AS
		$$SELECT string_agg(f, '') FROM pg_ls_dir($1) f$$;
	CREATE FUNCTION drop_extension() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		DROP EXTENSION delay_wheel;
	END $$;
	CREATE PROCEDURE drop_and_go_on() LANGUAGE plpgsql AS $$
	BEGIN
		DROP EXTENSION delay_wheel;
		COMMIT;
		INSERT INTO effect VALUES ('gone on');
	END $$;
});

sub innocents_begin
{
	$node->safe_psql('postgres',
		q{SELECT delay_every('tick', '100 ms', 'INSERT INTO tick DEFAULT VALUES', queue => 'good',
			max_attempts => 20, options => '{"catch_up": "all", "retry_delay": "100 ms"}')},
		extra_params => [ '-U', 'good' ]);
	return;
}

# None was later than that, and none has failed.
sub innocents_are_well
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $late = $node->safe_psql('postgres', q{
		SELECT lateness_max, failed FROM delay_wheel.lanes WHERE owner = 'good'});
	my ($max, $failed) = split /\|/, $late;

	ok($max < $on_time * 1000 && $failed == 0, "$what: others' tasks are on time")
	  or diag("latest: $max ms, failed: $failed");
	note("latest: $max ms");
	return;
}

# As the role, in one session; SQLSTATEs instead of messages.
sub run_as
{
	my ($role, $sql) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$sql",
		extra_params => [ '-U', $role ], timeout => 180, on_error_stop => 0);

	chomp $err;
	$err =~ s/^psql:<stdin>:\d+: //mg;
	return join("\n", grep { $_ ne '' } $out, $err);
}

sub query { return $node->safe_psql('postgres', $_[0]); }

my $schedule = 'SELECT delay_schedule_task($task$%s$task$%s) AS id \gset';

sub schedule
{
	my ($role, $sql, $options) = @_;
	return run_as($role, sprintf("SET delay_wheel.check_sql = off;\n$schedule\nSELECT :id;", $sql, $options ? call_args(", $options") : ''));
}

# How it ended: done, or failed with that SQLSTATE.
sub end_of
{
	my ($id) = @_;
	my $end = "SELECT CASE WHEN EXISTS (SELECT FROM delay_wheel_data.task WHERE id = $id)
			OR EXISTS (SELECT FROM delay_wheel.running WHERE task = $id) THEN 'pending'
		ELSE coalesce((SELECT sqlstate FROM delay_wheel.failed WHERE id = $id), 'done') END";
	my $got;

	wait_until($patience * 2, sub { $got = (try_psql($node, 'postgres', $end))[1]; defined $got && $got =~ /^(?!pending)./ });
	return $got;
}

# Schedules it and looks how it ended; in one session, unless that fails for
# want of the locks that the task has taken.
sub ends_with
{
	my ($expected, $role, $sql, $options, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($id, $end, $sqlstate) = split /\n/, run_as($role, sprintf(
			"SET delay_wheel.check_sql = off;\n$schedule
SELECT :id;
SELECT delay_wait(:id, '$patience s');
SELECT sqlstate FROM delay_wheel.failed WHERE id = :id;", $sql, $options ? call_args(", $options") : ''));

	$end = $sqlstate // 'done' if $end eq 'failed' || $end eq 'gone';
	$end = end_of($id) unless $end =~ /^(done|[0-9A-Z]{5})$/;
	is($end, $expected, $what) or !$ENV{DW_FAIL_FAST} or die "failed: $what\n";
	return $id;
}

# What is left in an executor of the task before.
my $probe = q{INSERT INTO public.probe SELECT concat_ws(', ',
	(SELECT 'settings ' || string_agg(name || '=' || setting, ' ') FROM pg_settings
		WHERE source = 'session' AND name NOT IN ('search_path', 'transaction_read_only')),
	CASE WHEN current_setting('transaction_read_only')::boolean THEN 'read only' END,
	(SELECT 'statements ' || count(*) FROM pg_prepared_statements HAVING count(*) > 0),
	(SELECT 'cursors ' || count(*) FROM pg_cursors HAVING count(*) > 0),
	(SELECT 'locks ' || count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
		HAVING count(*) > 0),
	(SELECT 'temporary ' || count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() HAVING count(*) > 0),
	CASE WHEN current_user <> 'hostile' OR session_user <> 'hostile' THEN 'user ' || current_user END,
	CASE WHEN current_setting('transaction_isolation') <> 'read committed' THEN 'isolation' END)};

my $set_probe = sprintf($schedule, $probe, '');

sub is_clean
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is( run_as('hostile', "$set_probe
SELECT delay_wait(:id, '60 s') AS outcome \\gset
SELECT CASE WHEN count(*) = 1 AND max(found) = '' THEN 'clean' ELSE max(found) END FROM probe;
DELETE FROM probe;"), 'clean', "$what: its session is clean");
	return;
}

my $short = "timeout => '300 ms'";
my $every_setting = q{
	SELECT count(set_config(name, value, false)) FROM (
		SELECT name, CASE vartype WHEN 'bool' THEN CASE setting WHEN 'on' THEN 'off' ELSE 'on' END
			WHEN 'enum' THEN enumvals[array_length(enumvals, 1)]
			WHEN 'string' THEN reset_val
			ELSE least(max_val::numeric, 100000)::text END AS value
		FROM pg_settings
		WHERE context = 'user' AND name NOT LIKE 'transaction%'
			AND name NOT IN ('exit_on_error', 'max_parallel_workers', 'temp_buffers', 'role', 'session_authorization')
			-- always on from 19 on
			AND (name <> 'standard_conforming_strings' OR current_setting('server_version_num')::int < 190000)
		OFFSET 0) s};

# name, how it ends, SQL, options; those that begin with SELECT, INSERT or WITH
# are done again in batches.
my @cases = (
	# time
	'loop', '57014', 'DO $$BEGIN LOOP END LOOP; END$$', $short,
	'loop that catches errors', '57014',
	'DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(10); EXCEPTION WHEN OTHERS THEN END; END LOOP; END$$', $short,
	'series without end', '57014', 'SELECT count(*) FROM generate_series(1, 1e15)', $short,
	'recursion without end', '57014',
	'WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 0 FROM r) SELECT count(*) FROM r', $short,
	'regular expression that backtracks', '57014',
	q{SELECT repeat('a', 401) || 'b' ~ '^(a+)(a+)(a+)(a+)(a+)\5\4\3\2\1b$'}, $short,
	'sleep', '57014', 'SELECT pg_sleep(1000)', $short,
	'cursor WITH HOLD without end', '57014', 'DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 1e15)', $short,
	# results, memory
	'huge result', 'done', q{SELECT repeat('x', 10000) FROM generate_series(1, 100000)}, '',
	'huge RETURNING', 'done', q{INSERT INTO big SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g RETURNING *}, '',
	'more than a datum', '54000', q{SELECT repeat('xxxx', 2000000000)}, '',
	'array', 'done', q{SELECT array_agg(repeat('x', 1000)) FROM generate_series(1, 50000)}, '',
	'stack', '54001', 'SELECT deep(1)', '',
	# subtransactions, locks, temporary tables
	'subtransactions', 'done', q{DO $$BEGIN FOR i IN 1..5000 LOOP BEGIN INSERT INTO big VALUES (i); EXCEPTION WHEN OTHERS THEN END; END LOOP; END$$}, '',
	'advisory locks', 'done', 'SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 1000) g', '',
	'all advisory locks', '53200', 'SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 1000000) g', '',
	'all locks of the transaction', '53200', 'SELECT count(pg_advisory_xact_lock(g)) FROM generate_series(1, 1000000) g', '',
	'temporary tables', 'done', q{DO $$BEGIN FOR i IN 1..300 LOOP EXECUTE format('CREATE TEMP TABLE t%s (a int, b text)', i); END LOOP; END$$}, '',
	'temporary tables until the end', '53200', q{DO $$BEGIN FOR i IN 1..1000000 LOOP EXECUTE format('CREATE TEMP TABLE t%s (a int)', i); END LOOP; END$$}, '',
	# the session
	'every setting', 'done', $every_setting, '',
	'every setting for the transaction', 'done', $every_setting =~ s/, false\)/, true)/r, '',
	'more parallel workers than the server allows', '22023', 'SET max_parallel_workers = 100', '',
	'another role', '42501', 'SET ROLE good', '',
	'replication role', '42501', 'SET session_replication_role = replica', '',
	'settings of the log', '42501', 'SET log_min_messages = debug5', '',
	'ALTER SYSTEM', '25001', q{ALTER SYSTEM SET work_mem = '4MB'}, '',
	'read only', '25006', 'SET TRANSACTION READ ONLY; CREATE TABLE x (i int)', '',
	'read only from here on', 'done', 'SET TRANSACTION READ ONLY', '',
	'isolation', '25001', 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', '',
	'default isolation', 'done', q{SET default_transaction_isolation = serializable; SET default_transaction_read_only = on; SET default_transaction_deferrable = on}, '',
	'DISCARD ALL', '25001', 'DISCARD ALL', '',
	'DISCARD', 'done', 'CREATE TEMP TABLE t (i int); DISCARD TEMP; DISCARD PLANS; DISCARD SEQUENCES', '',
	'LISTEN', '0A000', 'LISTEN x', '',
	'prepared statements', 'done', q{DO $$BEGIN FOR i IN 1..3000 LOOP EXECUTE format('PREPARE p%s AS SELECT %s', i, i); END LOOP; END$$}, '',
	'settings that there were not', 'done', q{SELECT count(set_config('a.b' || g, repeat('x', 1000), false)) FROM generate_series(1, 1000) g}, '',
	'cursors WITH HOLD', 'done', q{DO $$BEGIN FOR i IN 1..300 LOOP EXECUTE format('DECLARE c%s CURSOR WITH HOLD FOR SELECT * FROM generate_series(1, 1000)', i); END LOOP; END$$}, '',
	# transaction control, what is not for tasks
	'COMMIT', '2D000', 'COMMIT', '',
	'COMMIT in DO', '2D000', 'DO $$BEGIN COMMIT; END$$', '',
	'PREPARE TRANSACTION', '2D000', q{PREPARE TRANSACTION 'x'}, '',
	'COPY FROM STDIN', '0A000', 'COPY big FROM STDIN', '',
	'COPY TO PROGRAM', '42501', q{COPY big TO PROGRAM 'true'}, '',
	'LOAD', '42501', q{LOAD 'auto_explain'}, '',
	'DROP EXTENSION', '42501', 'DROP EXTENSION delay_wheel', '',
	'table of tasks', '42501', 'DELETE FROM delay_wheel_data.task', '',
	# signals
	'cancels itself', '57014', 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1000)', '',
	'cancels timer and launcher', '42501', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'}, '',
	'terminates others', '42501', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IS DISTINCT FROM current_user}, '',
	# messages
	'NOTICEs', 'done', q{DO $$BEGIN FOR i IN 1..50000 LOOP RAISE NOTICE 'flood %', i; END LOOP; END$$}, '',
	'megabytes of message', 'P0001', q{SELECT complain(repeat('m', 5000000))}, '',
	'message that is no text', 'P0001', q{SELECT complain(file_names('@dir@'))}, '',
	# other places
	'large objects', 'done', 'SELECT lo_from_bytea(0, repeat(\'x\', 100000)::bytea) FROM generate_series(1, 20)', '',
	'logical messages', 'done', q{SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) FROM generate_series(1, 5)}, '',
	'NOTIFY', 'done', q{SELECT pg_notify('x', g::text) FROM generate_series(1, 10000) g}, '',
	'row security', '42501', 'INSERT INTO guarded VALUES (1)', '',
	'event trigger', '42501', 'CREATE TABLE forbidden (i int)', '',
);
# a name that is no text in UTF-8
my $dir = abs_path(PostgreSQL::Test::Utils::tempdir());
chmod 0755, $dir;
open(my $file, '>', "$dir/bad\xe2") or die $!;
close $file;

run_as('hostile', q{
	CREATE TABLE big (i int, t text);
	CREATE TABLE guarded (i int);
	ALTER TABLE guarded ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE FUNCTION deep(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN deep($1 + 1); END';
	CREATE FUNCTION complain(text) RETURNS void LANGUAGE plpgsql AS
		'BEGIN RAISE EXCEPTION USING message = $1, detail = $1, hint = $1; END';
	CREATE FUNCTION catch() RETURNS void LANGUAGE plpgsql AS
		'BEGIN LOOP BEGIN PERFORM pg_sleep(100); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END'});
query(q{
	CREATE FUNCTION forbid() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity LIKE '%.forbidden') THEN
			RAISE insufficient_privilege;
		END IF;
	END $$;
	CREATE EVENT TRIGGER forbid ON ddl_command_end EXECUTE FUNCTION forbid()});
innocents_begin();

my @batch;
group cases => sub {
	my $position = log_position($node);
	while (my ($name, $expected, $sql, $options) = splice(@cases, 0, 4))
	{
		$sql =~ s/\@dir\@/$dir/;
		ends_with($expected, 'hostile', $sql, $options, "$name: ends with $expected");
		is_clean($name);
		push @batch, [ $name, $expected, $sql, $options ] if $sql =~ /^\s*(SELECT|INSERT|WITH)/;
	}
	innocents_are_well('alone');
	cmp_ok(log_position($node) - $position, '<', 5_000_000, 'the log does not grow by much');
	ok(log_since($node, $position) !~ /^.{20000}/m, 'no line of it is long');
	is(query(q{SELECT max(octet_length(message)) <= 16384 AND max(octet_length(detail)) <= 16384
			AND max(octet_length(hint)) <= 16384 FROM delay_wheel.failed}), 't', 'texts of a stored error are not long');
	is(query(q{SELECT count(*) FROM delay_wheel.failed WHERE message = 'bad?' AND detail = 'bad?' AND hint = 'bad?'}), 1,
		'what is no text is made one');
	ok(slurp_dump() =~ /bad\?/, 'so that a dump can be restored');
};

sub slurp_dump
{
	my ($out, $err) = run_command([ 'pg_dump', '-d', $node->connstr('postgres'), '-t', 'delay_wheel_data.failed_task' ]);
	return $out;
}

#
# The same in batches, among innocent tasks of the same role.
#
my $innocents = q{SELECT count(delay_schedule_task('INSERT INTO innocent VALUES (1)', queue => 'batch',
	max_attempts => 20, options => '{"retry_delay": "100 ms"}')) FROM generate_series(1, 5);};

sub in_batches
{
	my @round = @_;
	my @ids;

	query(q{TRUNCATE innocent; SELECT delay_wheel.pause_queue('batch')});
	for my $case (@round)
	{
		my (undef, undef, $sql, $options) = @$case;
		my $answer = run_as('hostile', "SET delay_wheel.check_sql = off;\n$innocents\n" .
			sprintf("$schedule\nSELECT :id;\n$innocents", $sql, call_args(", queue => 'batch'" . ($options ? ", $options" : ''))));

		push @ids, (split /\n/, $answer)[1];
	}
	query(q{SELECT delay_wheel.resume_queue('batch')});
	is(end_of($ids[$_]), $round[$_][1], "in batches: $round[$_][0]") for 0 .. $#ids;
	wait_for($node, 'SELECT count(*) FROM innocent', 'in batches: each innocent one was run once', 60, expected => 10 * @ids);
	return;
}

group cases => sub {
	# those that take all locks make others fail that run beside them
	in_batches(grep { $_->[1] ne '53200' } @batch);
	cmp_ok(query('SELECT count(DISTINCT xid) FROM innocent'), '<', query('SELECT count(*) FROM innocent'), 'some shared a transaction');
	in_batches(grep { $_->[1] eq '53200' } @batch);
	is_clean('batches');
	innocents_are_well('batches');
};

#
# By delay_run(), in a session of the role.
#
group cases => sub {
	my %expected = ('more than a datum' => '54000', 'stack' => '54001', 'COMMIT' => '2D000', 'all locks of the transaction' => '53200', 'sleep' => undef);
	for my $case (grep { $expected{ $_->[0] } } @batch)
	{
		my ($name, $expected, $sql) = @$case;
		is(run_as('hostile', "SET delay_wheel.check_sql = off;\n" .
				sprintf($schedule, $sql, ", delay => '1 h'") . "\nSELECT delay_run(:id);\nSELECT delay_cancel(:id)"),
			"cancelled\nERROR:  $expected", "delay_run: $name is the caller's error, and can be cancelled");
	}
};

#
# Tasks that end their executor have failed.
#
group quits => sub {
	my $before = log_position($node);
	ends_with('DW005', 'hostile', 'SET exit_on_error = on; SELECT 1 / 0', '', 'an error that is FATAL is a failure');
	ends_with('DW005', 'hostile', 'SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1000)', '', 'so is to terminate oneself');
	my $id = ends_with('DW005', 'hostile', 'SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1000)',
		"max_attempts => 2, retry_delay => '1 ms'", 'and with attempts');
	is(query("SELECT attempts FROM delay_wheel.failed WHERE id = $id"), 2, 'it is tried as often as that');
	$id = ends_with('DW005', 'hostile', 'SELECT catch()', $short, 'who catches the timeout is ended nevertheless');
	ok(log_since($node, $before) =~ /an executor ends, since delay_wheel task $id went on after its timeout/, 'and the log says so');
	ends_with('DW005', 'hostile', 'CALL quit()', "mode => 'at_least_once', max_attempts => 1", 'outside of a transaction')
	  if run_as('hostile', q{CREATE PROCEDURE quit() LANGUAGE plpgsql AS 'BEGIN COMMIT; PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1000); END'}) eq '';
	ends_with('DW003', 'hostile', 'CALL quit()', "mode => 'at_most_once'", 'at most once: its end is not known');

	# In a batch: the others are put back, and done.
	in_batches(map { [ $_, 'DW005', $_, $short ] } ('SELECT catch()', 'SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(100)',
		q{SELECT set_config('exit_on_error', 'on', false), 1 / (random() > 2)::int}));

	# Who is terminated by somebody else is run again, as ever; but not if it was to be stopped.
	my $stopped = schedule('hostile', 'SELECT catch()');
	wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $stopped", 'a task that catches cancels runs', 60, expected => 1);
	query("SELECT pg_terminate_backend(pid, 60000) FROM delay_wheel.running WHERE task = $stopped");
	wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $stopped", 'terminated, it runs again', 60, expected => 1);
	run_as('hostile', "SELECT delay_cancel($stopped, true)");
	query("SELECT pg_terminate_backend(pid, 60000) FROM delay_wheel.running WHERE task = $stopped");
	is(end_of($stopped), '57014', 'stopped and terminated, it does not');
	is_clean('executors that were ended');
	innocents_are_well('executors that were ended');
};

#
# The log.
#
group log => sub {
	my $before = log_position($node);
	ends_with('53400', 'hostile', q{DO $$BEGIN LOOP RAISE WARNING 'flood %', repeat('x', 10000); END LOOP; END$$}, '',
		'a flood of the log ends');
	ends_with('53400', 'hostile', q{DO $$BEGIN FOR i IN 1..30 LOOP BEGIN RAISE LOG 'flood %', repeat('x', 1000000); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$}, '',
		'so does one that catches the cancel, at its end');
	ends_with('53400', 'hostile', q{CREATE TABLE flood (i int); DO $$BEGIN RAISE WARNING '%', repeat('x', 20000000); EXCEPTION WHEN query_canceled THEN NULL; END$$}, '',
		'one message that is too long is left out');
	is(query(q{SELECT to_regclass('hostile.flood') IS NULL}), 't', 'and its task has no effect');
	ends_with('22012', 'hostile', 'SELECT 1 / 0 /* ' . ('x' x 100_000) . ' */', '', 'a long text fails');
	cmp_ok(log_position($node) - $before, '<', 3 * 11 * 1024 * 1024, 'the log is bounded');
	is_clean('floods of the log');
};

#
# Memory: an executor that keeps too much of it ends when its task has.
#
# In kB; none if the process is gone.
sub private_memory
{
	my ($pid) = @_;

	open(my $statm, '<', "/proc/$pid/statm") or return 0;
	my (undef, $resident, $shared) = split / /, <$statm> // '0 0 0';
	return ($resident - $shared) * 4;
}

group memory => sub {
	is_clean('memory, before');
	SKIP:
	{
		skip 'needs /proc', 3 unless -r '/proc/self/statm';
		my $pids = sub { return query(q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity
			WHERE backend_type = 'delay_wheel executor' AND usename = 'hostile'}); };

		ends_with('done', 'hostile', q{DO $$BEGIN FOR i IN 1..20000 LOOP EXECUTE format('PREPARE p%s AS SELECT %s', i, i); END LOOP; END$$}, '',
			'prepared statements by the ten thousand');
		# what a session keeps of names that there are not is nothing that it could give back
		ends_with('done', 'hostile', q{SELECT count(to_regclass('hostile_' || g)) FROM generate_series(1, 400000) g}, '', 'names by the hundred thousand');
		ok( wait_until(60, sub { return !grep { private_memory($_) > 64 * 1024 } split / /, $pids->(); }),
			'no executor keeps the memory');
	}
	is_clean('memory');
};

#
# Signals: launcher and timers are there again, and tasks go on.
#
group signals => sub {
	ends_with('42501', 'signals', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'}, '',
		'a member of pg_signal_backend does not terminate a timer');
	for (1 .. 3)
	{
		ends_with('done', 'postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type IN ('delay_wheel timer', 'delay_wheel launcher')}, '',
			'a superuser cancels timer and launcher');
		ends_with('done', 'postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%' AND pid <> pg_backend_pid()}, '',
			'a superuser terminates timer, launcher and executors');
	}
	ends_with('done', 'signals', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('good', 'hostile')}, '',
		'a member of pg_signal_backend terminates executors');
	is_clean('signals');
	innocents_are_well('signals');
};

#
# What is noted of a task that has ended its executor goes with the extension:
# another one of the same id has not.
#
group noted => sub {
	query('CREATE DATABASE again');
	my $again = sub { return $node->safe_psql('again', $_[0]); };
	$again->(q{CREATE EXTENSION delay_wheel; CREATE TABLE effect (label text)});
	my $first = $again->(q{SELECT delay_schedule('0', $sql$DO $$BEGIN
		WHILE NOT EXISTS (SELECT FROM effect) LOOP PERFORM pg_sleep(0.02); END LOOP;
		PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1000); END$$$sql$)});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a task runs', 60, db => 'again', expected => 1);
	$again->(q{SELECT delay_wheel.pause_database(); INSERT INTO effect VALUES ('paused')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'it ends its executor, and waits', 60, db => 'again', expected => 0);
	$again->('DROP EXTENSION delay_wheel');
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'again'}, 'the timer is gone', 60, expected => 0);
	$again->('CREATE EXTENSION delay_wheel');
	is($again->(q{SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''done'')')}), $first, 'the extension begins with the same id again');
	wait_for($node, q{SELECT count(*) FROM effect}, 'which is run', 60, db => 'again', expected => 2);
	is($again->('SELECT count(*) FROM delay_wheel.failed'), 0, 'and does not fail');
	query('DROP DATABASE again');
};

#
# What a task needs is changed before it runs.
#
group changed => sub {
	run_as('hostile', q{
		CREATE TYPE colour AS ENUM ('red', 'green');
		CREATE TYPE pair AS (a int, b int);
		CREATE TYPE gone AS ENUM ('red');
		CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
		CREATE TABLE t (i int)});
	run_as('hostile', 'SELECT delay_pause_all()');
	my @changed = map { [ $_->[0], run_as('hostile', "SELECT delay_schedule('0', $_->[1])") ] } (
		[ '22P02', q{'SELECT $1', 'red'::colour} ], [ '22P02', q{'SELECT $1', ROW(1, 2)::pair} ], [ '42704', q{'SELECT $1', 'red'::gone} ],
		[ '42883', q{'SELECT f(1)'} ], [ '42P01', q{'INSERT INTO t VALUES (1)'} ]);
	run_as('hostile', q{
		ALTER TYPE colour RENAME VALUE 'red' TO 'blue';
		ALTER TYPE pair ADD ATTRIBUTE c int;
		DROP TYPE gone;
		DROP FUNCTION f(int);
		DROP TABLE t;
		SELECT delay_resume_all()});
	is(end_of($_->[1]), $_->[0], "what was changed meanwhile: $_->[0]") for @changed;
};

#
# Deadlocks: among tasks they are repeated, and with the application one of both ends.
#
group deadlocks => sub {
	run_as('hostile', q{CREATE TABLE account (id int PRIMARY KEY, n int); INSERT INTO account VALUES (1, 0), (2, 0);
		CREATE PROCEDURE move(a int, b int) LANGUAGE plpgsql AS
			'BEGIN UPDATE account SET n = n + 1 WHERE id = $1; PERFORM pg_sleep(0.2); UPDATE account SET n = n + 1 WHERE id = $2; END'});
	my @moves = map { schedule('hostile', "CALL move($_)") } ('1, 2', '2, 1', '1, 2', '2, 1');
	my $answer = run_as('hostile', 'CALL move(2, 1)');
	is(end_of($_), 'done', 'deadlocks: the task is done') for @moves;
	is(query('SELECT count(*) FILTER (WHERE n IN (4, 5)) FROM hostile.account'), 2, 'once');
};

#
# Defaults of the role: tasks run at its isolation level, and may write nevertheless.
#
group defaults => sub {
	query(q{ALTER ROLE another SET default_transaction_isolation = serializable;
		ALTER ROLE another SET default_transaction_read_only = on; ALTER ROLE another SET default_transaction_deferrable = on});
	my $id = query(q{SET ROLE another; SELECT delay_schedule('0', 'INSERT INTO effect SELECT current_setting($$transaction_isolation$$)')});
	is(end_of($id), 'done', 'defaults of the role');
	is(query('SELECT label FROM effect'), 'serializable', 'its isolation level is that of its tasks');
};

#
# A task that schedules itself twice, without end: as far as max_pending allows.
#
group bomb => sub {
	query(q{ALTER ROLE another RESET ALL; ALTER ROLE another SET delay_wheel.max_pending = 2000;
		CREATE PROCEDURE bomb() LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM delay_schedule('0', 'CALL bomb()'), delay_schedule('0', 'CALL bomb()');
		END $$});
	schedule('another', 'CALL bomb()');
	wait_for($node, q{SELECT count(*) > 20 FROM delay_wheel.failed WHERE owner = 'another' AND sqlstate = '53400'},
		'a fork bomb comes to the limit', 120);
	cmp_ok(query(q{SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'another'::regrole}), '<=', 2200, 'and not beyond');
	is_clean('a fork bomb');
	innocents_are_well('a fork bomb');
	query(q{CREATE OR REPLACE PROCEDURE bomb() LANGUAGE sql AS 'SELECT 1'});
	run_as('another', q{SELECT delay_cancel_all(due_from => '-infinity')});
};

group long => sub {
	if (long_tests())
	{
		# the first one has all locks for a while: nobody can write, and all goes on afterwards
		for my $case (
			[ 'done', q{DO $$DECLARE n int := 0; BEGIN BEGIN FOR i IN 1..1000000 LOOP PERFORM pg_advisory_lock(i); END LOOP;
				EXCEPTION WHEN OTHERS THEN PERFORM pg_sleep(20); END; END$$} ],
			[ '54000', q{SELECT array_agg(g) FROM (SELECT array_fill(1, ARRAY[100000000]) g FROM generate_series(1, 10)) s} ],
			[ 'done', q{SELECT count(DISTINCT repeat('x', 1000) || g) FROM generate_series(1, 2000000) g} ],
			[ 'done', q{SELECT repeat('x', 1000) || g FROM generate_series(1, 10000000) g} ],
			[ 'done', q{DO $$BEGIN FOR i IN 1..5000000 LOOP RAISE NOTICE '%', i; END LOOP; END$$} ],
			[ 'done', q{DO $$BEGIN FOR i IN 1..200000 LOOP BEGIN INSERT INTO big VALUES (i); EXCEPTION WHEN OTHERS THEN END; END LOOP; END$$} ],
			[ 'done', q{DO $$BEGIN FOR i IN 1..50000 LOOP EXECUTE format('PREPARE p%s AS SELECT %s', i, i); END LOOP; END$$} ])
		{
			ends_with($case->[0], 'hostile', $case->[1], '', "long: $case->[1]");
			is_clean('long');
		}
	}
};

#
# The extension, its schema and its tables are dropped by a task; alone, in a
# batch, and outside of a transaction.
#
sub create_again
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, q{SELECT count(*) FROM pg_extension WHERE extname = 'delay_wheel'}, "$what: the extension is gone", 60, expected => 0);
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('delay_wheel executor', 'delay_wheel timer')},
		"$what: and so are executors and timer", 60, expected => 0);
	query(q{CREATE EXTENSION delay_wheel});
	query(q{SELECT delay_wheel.allow('good', 'hostile'); SELECT delay_wheel.create_queue('good', users => '{good}')});
	is(end_of(schedule('hostile', 'SELECT 1')), 'done', "$what: created again, it works");
	return;
}

group drop => sub {
	ends_with('2BP01', 'postgres', 'DROP SCHEMA delay_wheel CASCADE', '', 'the schema cannot be dropped');
	ends_with('2BP01', 'postgres', 'DROP TABLE delay_wheel_data.task', '', 'nor a table');
	schedule('postgres', 'DROP EXTENSION delay_wheel');
	create_again('alone');
	query(q{SELECT delay_pause_all()});
	query(q{SELECT delay_schedule('0', 'SELECT 1') FROM generate_series(1, 5)});
	query(q{SELECT delay_schedule('0', 'SELECT drop_extension()')});
	query(q{SELECT delay_schedule('0', 'SELECT 1') FROM generate_series(1, 5)});
	query(q{SELECT delay_resume_all()});
	create_again('in a batch');
	for my $mode ('at_least_once', 'at_most_once')
	{
		query('TRUNCATE effect');
		schedule('postgres', 'CALL drop_and_go_on()', "mode => '$mode'");
		create_again($mode);
		wait_for($node, 'SELECT label FROM effect', "$mode: the task went on", 60, expected => 'gone on');
	}
};

ok(PostgreSQL::Test::Utils::slurp_file($node->logfile) !~ /terminated by signal|PANIC|TRAP/, 'no process has crashed');
$node->stop;
done_testing();
