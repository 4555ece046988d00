# Hostile tasks: each does its worst, alone, in a batch, or by delay_run().  It
# ends as it should, its executor is clean afterwards, and the tasks of another
# owner and queue stay on time all along.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('hostile_tasks', batches => 1, conf => q{
	max_connections = 40
	max_locks_per_transaction = 64
	max_parallel_workers = 4
	log_statement = none
	autovacuum = off
	delay_wheel.executor_idle_timeout = 1h
});

#
# The innocents: a run each 100 ms in a queue of their own.
#
$node->safe_psql('postgres', q{
	CREATE ROLE good LOGIN;
	CREATE ROLE hostile LOGIN;
	CREATE ROLE signals LOGIN IN ROLE pg_signal_backend;
	SELECT delay_wheel.allow('good', 'hostile', 'signals');
	SELECT delay_queue('good', users => '{good}');
	SELECT delay_queue('batch', users => '{hostile}');
	CREATE TABLE tick (at timestamptz DEFAULT clock_timestamp(), run bigint);
	GRANT ALL ON tick TO good;
	CREATE TABLE probe (at timestamptz DEFAULT clock_timestamp(), pid int DEFAULT pg_backend_pid(), found text);
	CREATE TABLE innocent (n int, xid xid8 DEFAULT pg_current_xact_id());
	GRANT ALL ON probe, innocent TO PUBLIC;
	CREATE SCHEMA hostile AUTHORIZATION hostile;
	ALTER ROLE hostile SET search_path = hostile, public;
});
$node->safe_psql('postgres', q{SELECT delay_every('tick', '100 ms', 'INSERT INTO tick DEFAULT VALUES', queue => 'good', catch_up => 'all')},
	extra_params => [ '-U', 'good' ]);

# What is left in an executor of the task before.
my $probe = q{INSERT INTO probe (found) SELECT concat_ws(', ',
	(SELECT 'settings ' || string_agg(name, ' ') FROM pg_settings WHERE source = 'session'
		AND name NOT IN ('search_path')),
	(SELECT 'prepared ' || count(*) FROM pg_prepared_statements HAVING count(*) > 0),
	(SELECT 'cursors ' || count(*) FROM pg_cursors WHERE name <> '' HAVING count(*) > 0),
	(SELECT 'locks ' || count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' HAVING count(*) > 0),
	(SELECT 'temporary ' || count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() HAVING count(*) > 0),
	CASE WHEN current_user <> 'hostile' OR session_user <> 'hostile' THEN 'user ' || current_user END,
	CASE WHEN current_setting('transaction_isolation') <> 'read committed' THEN 'isolation' END)};

# As the role, in one session.
sub run_as
{
	my ($role, $sql) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ], timeout => 180);
	return defined $out ? $out . ($err ? "\n$err" : '') : $err;
}

# Schedules it, waits for its end; the outcome and SQLSTATE.
sub outcome
{
	my ($role, $sql, $options) = @_;
	$options = $options ? ", $options" : '';
	return run_as($role, qq{SET delay_wheel.check_sql = off;
SELECT delay_schedule_task(\$task\$$sql\$task\$$options) AS id \\gset
SELECT delay_wait(:id, '120 s') AS outcome \\gset
SELECT concat_ws(' ', :'outcome', (SELECT sqlstate FROM delay_wheel.failed WHERE id = :id));
SELECT message FROM delay_wheel.failed WHERE id = :id;
});
}
my %all = ();
my @cases = (
	loop => '57014', q{DO $$BEGIN LOOP END LOOP; END$$}, "timeout => '300 ms'",
	loopothers => '57014', q{DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(10); EXCEPTION WHEN OTHERS THEN END; END LOOP; END$$}, "timeout => '300 ms'",
	series => '57014', q{SELECT count(*) FROM generate_series(1, 1e12)}, "timeout => '300 ms'",
	regex => '57014', q{SELECT repeat('a', 200) ~ '^(a*)*(a*)*(\1\2)*b$'}, "timeout => '300 ms'",
	sleep => '57014', q{SELECT pg_sleep(1000)}, "timeout => '300 ms'",
	recurse => '57014', q{WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r}, "timeout => '300 ms'",
	hugeresult => 'done', q{SELECT repeat('x', 1000) FROM generate_series(1, 300000)}, '',
	repeat => '54000', q{SELECT repeat('xxxx', 2000000000)}, '',
	bigalloc => 'XX000', q{SELECT repeat('x', 1073741819)}, '',
	array => 'done', q{SELECT array_agg(repeat('x', 1000)) FROM generate_series(1, 200000)}, '',
	subxacts => 'done', q{DO $$BEGIN FOR i IN 1..20000 LOOP BEGIN INSERT INTO innocent VALUES (-1); EXCEPTION WHEN OTHERS THEN END; END LOOP; END$$}, '',
	locks => '53200', q{SELECT pg_advisory_lock(g) FROM generate_series(1, 1000000) g}, '',
	xlocks => '53200', q{SELECT pg_advisory_xact_lock(g) FROM generate_series(1, 1000000) g}, '',
	manylocks => 'done', q{SELECT pg_advisory_lock(g) FROM generate_series(1, 1000) g}, '',
	temp => 'done', q{DO $$BEGIN FOR i IN 1..500 LOOP EXECUTE format('CREATE TEMP TABLE t%s (a int, b text)', i); END LOOP; END$$}, '',
	temps => '53200', q{DO $$BEGIN FOR i IN 1..100000 LOOP EXECUTE format('CREATE TEMP TABLE t%s (a int, b text)', i); END LOOP; END$$}, '',
	cancelself => '57014', q{SELECT pg_cancel_backend(pg_backend_pid()); SELECT pg_sleep(10)}, '',
	warnings => 'done', q{DO $$BEGIN FOR i IN 1..20000 LOOP RAISE WARNING 'flood %', i; END LOOP; END$$}, '',
	notices => 'done', q{DO $$BEGIN FOR i IN 1..100000 LOOP RAISE NOTICE 'flood %', i; END LOOP; END$$}, '',
	bigmessage => 'P0001', q{DO $$BEGIN RAISE EXCEPTION USING message = repeat('m', 10000000), detail = repeat('d', 10000000), hint = repeat('h', 10000000); END$$}, '',
	copy => '0A000', q{COPY innocent FROM STDIN}, '',
	program => '42501', q{COPY innocent TO PROGRAM 'sleep 1'}, '',
	commit => '2D000', q{COMMIT}, '',
	docommit => '2D000', q{DO $$BEGIN COMMIT; END$$}, '',
	prepare2 => '2D000', q{PREPARE TRANSACTION 'x'}, '',
	discard => '25001', q{DISCARD ALL}, '',
	discardtemp => 'done', q{DISCARD TEMP; DISCARD PLANS; DISCARD SEQUENCES}, '',
	listen => '0A000', q{LISTEN x}, '',
	load => '42501', q{LOAD 'auto_explain'}, '',
	prepared => 'done', q{DO $$BEGIN FOR i IN 1..5000 LOOP EXECUTE format('PREPARE p%s AS SELECT %s', i, i); END LOOP; END$$}, '',
	hold => 'done', q{DO $$BEGIN FOR i IN 1..500 LOOP EXECUTE format('DECLARE c%s CURSOR WITH HOLD FOR SELECT * FROM generate_series(1, 1000)', i); END LOOP; END$$}, '',
	holdloop => '57014', q{DECLARE c CURSOR WITH HOLD FOR SELECT * FROM generate_series(1, 1e12)}, "timeout => '300 ms'",
	stack => '54001', q{DO $$BEGIN CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN hostile.f($1 + 1); END'; PERFORM hostile.f(1); END$$}, '',
	large => 'done', q{SELECT lo_create(0) FROM generate_series(1, 100)}, '',
	logical => 'done', q{SELECT pg_logical_emit_message(false, 'x', repeat('x', 10000000))}, '',
	settings => 'done', q{DO $$DECLARE s record; BEGIN FOR s IN SELECT * FROM pg_settings WHERE context = 'user' AND name NOT IN ('exit_on_error', 'role', 'session_authorization', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable') LOOP
		BEGIN PERFORM set_config(s.name, CASE s.vartype WHEN 'bool' THEN CASE s.setting WHEN 'on' THEN 'off' ELSE 'on' END WHEN 'enum' THEN s.enumvals[array_length(s.enumvals, 1)] WHEN 'string' THEN 'UTC' ELSE least(s.max_val::numeric, 1000000)::text END, false);
		EXCEPTION WHEN OTHERS THEN END; END LOOP; END$$}, '',
	readonly => '25006', q{SET TRANSACTION READ ONLY; CREATE TABLE x (i int)}, '',
	readonly2 => 'done', q{SET TRANSACTION READ ONLY}, '',
	serial => '25001', q{SET TRANSACTION ISOLATION LEVEL SERIALIZABLE}, '',
	seterr => 'failed', q{SET exit_on_error = on; SELECT 1/0}, '',
	terminate => 'failed', q{SELECT pg_terminate_backend(pg_backend_pid())}, '',
	catch => 'failed', q{DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(100); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END$$}, "timeout => '300 ms'",
);
while (my ($name, $expected, $sql, $options) = splice(@cases, 0, 4))
{
	next if $ENV{ONLY} && $name !~ /$ENV{ONLY}/;
	next if $name =~ /^(seterr|terminate|catch)$/ && !$ENV{ONLY};
	my $begin = time;
	my $pos = log_position($node);
	my $got = outcome('hostile', $sql, $options);
	my $t = time - $begin;
	outcome('hostile', $probe, '');
	my $found = $node->safe_psql('postgres', 'SELECT pid, found FROM probe ORDER BY at DESC LIMIT 1');
	my ($pid) = $found =~ /^(\d+)/;
	my $statm = `cat /proc/$pid/statm`; my (undef, $res, $shr) = split / /, $statm;
	diag(sprintf "%-12s %5.1f s exp %s got %s | %s | %d kB | log %d", $name, $t, $expected, substr($got =~ s/\n/ /gr, 0, 100), $found, ($res - $shr) * 4, log_position($node) - $pos);
}
ok(1);
diag($node->safe_psql('postgres', "SELECT owner, queue, done, failed, lateness_p50, lateness_p95, lateness_max FROM delay_wheel.lanes"));
diag($node->safe_psql('postgres', "SELECT max(d) FROM (SELECT at - lag(at) OVER (ORDER BY at) d FROM tick) s"));
done_testing();
