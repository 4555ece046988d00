# A good neighbour: other extensions with the same hooks, sessions that sit in
# a transaction, poolers, parallel query, any setting, small servers, standby
# servers, storms of terminations, xids that run out.
#
#   DW_STORM_SECONDS   how long processes are terminated and cancelled (4; long 60)
#   DW_CONNECTIONS     how many sessions come and go (1,500; long 100,000)

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $storm_seconds = $ENV{DW_STORM_SECONDS} // (long_tests() ? 60 : 4);
my $connections = $ENV{DW_CONNECTIONS} // (long_tests() ? 100_000 : 1500);
my $setup = q{
	CREATE ROLE a LOGIN; CREATE ROLE b LOGIN;
	SELECT delay_wheel.allow('a', 'b');
	CREATE TABLE effects (n bigint, note text, at timestamptz DEFAULT now());
	GRANT ALL ON effects TO PUBLIC};
my $effect = '$$INSERT INTO public.effects VALUES ($1)$$';

# Schedules effects first .. last, by a role.
sub schedule
{
	my ($node, $first, $last, %options) = @_;

	return $node->safe_psql($options{db} // 'postgres',
		($options{role} ? "SET SESSION AUTHORIZATION $options{role}; " : '')
		  . "SELECT min(delay_schedule('" . ($options{delay} // 0) . "', $effect, i::bigint)) FROM generate_series($first, $last) i");
}

# A test: each of the effects first .. last is there once.
sub each_once
{
	my ($node, $first, $last, $what, %options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $n = $last - $first + 1;

	return wait_for($node, "SELECT count(*), count(DISTINCT n) FROM public.effects WHERE n BETWEEN $first AND $last", $what,
		$options{seconds} // 120, expected => "$n|$n", db => $options{db} // 'postgres');
}

sub restart_with
{
	my ($node, $conf) = @_;

	PostgreSQL::Test::Utils::append_to_file($node->data_dir . '/postgresql.conf', $conf);
	$node->restart;
	return;
}

sub executors
{
	my ($node) = @_;
	return scalar(worker_pids($node, 'executor'));
}

#
# Other extensions with hooks, and one with all of them, before and after us.
#
my $moduledir = abs_path(PostgreSQL::Test::Utils::tempdir());
chomp(my $includes = `$ENV{PG_CONFIG} --includedir-server`);
chomp(my $sharedir = `$ENV{PG_CONFIG} --sharedir`);
my $compiled = PostgreSQL::Test::Utils::run_log(
	[ $ENV{CC} || 'cc', '-shared', '-fPIC', "-I$includes", '-o', "$moduledir/neighbour.so", "$FindBin::RealBin/../tools/neighbour.c" ]);
ok($compiled, 'another extension is compiled');
my @others = ('pg_stat_statements', 'auto_explain', $compiled ? "$moduledir/neighbour" : ());
my $before = "shared_preload_libraries = '" . join(', ', @others, 'delay_wheel') . "'\n";
my $after = "shared_preload_libraries = '" . join(', ', 'delay_wheel', reverse @others) . "'\n";

my $node = new_node('neighbour',
	init => [ allows_streaming => 1, extra => ['--data-checksums'] ],
	conf => q{
max_worker_processes = 40
max_locks_per_transaction = 64
restart_after_crash = on
pg_stat_statements.track = all
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_verbose = on
auto_explain.log_nested_statements = on
delay_wheel.executor_idle_timeout = 2s
} . $before);
$node->safe_psql('postgres', "$setup;" . q{
	CREATE EXTENSION pg_stat_statements;
	CREATE FUNCTION nested(m int) RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.effects VALUES (m, ''nested''); END';
	CREATE PROCEDURE commits(m int) LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.effects VALUES (m); COMMIT; INSERT INTO public.effects VALUES (m + 1); END'});
$node->safe_psql('postgres', q{CREATE FUNCTION neighbour_counts() RETURNS text LANGUAGE C AS '} . "$moduledir/neighbour'") if $compiled;

sub hook_counts
{
	return {} unless $compiled;
	return { map { split /=/ } split / /, $node->safe_psql('postgres', 'SELECT neighbour_counts()') };
}

my $n = 1000;
for my $order ('before', 'after')
{
	restart_with($node, $after) if $order eq 'after';
	$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset(), pg_stat_reset()');
	my $counts = hook_counts();
	my $position = log_position($node);

	schedule($node, $n, $n + 99, role => 'a');
	$node->safe_psql('postgres', qq{
		SELECT delay_schedule('0', 'SELECT nested(\$1)', $n + 100);
		SELECT delay_schedule('0', 'SELECT 1 / 0 AS broken');
		SELECT delay_schedule('0', 'ANALYZE effects');
		SELECT delay_schedule_task('CALL commits($n + 101)', mode => 'at_most_once')});
	each_once($node, $n, $n + 102, "$order others: tasks run");
	wait_for($node, q{SELECT count(*) FROM delay_wheel.task}, "$order others: all of them", 60, expected => 0);
	wait_for($node, q{SELECT calls, rows, toplevel FROM pg_stat_statements WHERE query LIKE 'INSERT INTO public.effects VALUES ($1)' AND userid = 'a'::regrole},
		"$order others: pg_stat_statements has the tasks, as their owner's, at top level", 60, expected => '100|100|t');
	is($node->safe_psql('postgres', q{SELECT string_agg(toplevel::text || ' ' || calls, ', ' ORDER BY query) FROM pg_stat_statements
		WHERE query LIKE '%nested($1)' OR query LIKE 'INSERT%(m, %'}), 'false 1, true 1',
		"$order others: and what functions do, nested");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%broken%'}), 0,
		"$order others: not a task that failed");
	my $log = log_since($node, $position);
	my $plans = () = $log =~ /delay_wheel executor LOG:  duration: [\d.]+ ms  plan:\n\s+Query Text: INSERT INTO public\.effects VALUES \(\$1\)\n/g;
	is($plans, 100, "$order others: auto_explain has a plan of each");
	like($log, qr/delay_wheel executor LOG: .*\n\s+Query Text: INSERT INTO public\.effects VALUES \(m, 'nested'\)/, "$order others: and of what a function does");
	unlike($log, qr/PANIC|terminated by signal|ERROR(?!:  division by zero)/, "$order others: no error but the task's");
	wait_for($node, q{SELECT n_tup_ins >= 103 FROM pg_stat_user_tables WHERE relname = 'effects'},
		"$order others: statistics count what executors write");
	wait_for($node, q{SELECT n_tup_ins > 0 AND n_tup_del > 0 FROM pg_stat_user_tables WHERE relid = 'delay_wheel.task'::regclass},
		"$order others: and what is done to our tables");
	if ($compiled)
	{
		$node->safe_psql('postgres', 'CREATE TABLE passing (); DROP TABLE passing');
		my $now = hook_counts();
		is(join(' ', grep { $now->{$_} <= ($counts->{$_} // 0) } sort keys %$now), '', "$order others: all of another extension's hooks are called");
	}
	# ours, too: what they notice
	$node->safe_psql('postgres', "CREATE DATABASE $order; ALTER DATABASE $order SET work_mem = '1MB'");
	$node->safe_psql($order, 'CREATE EXTENSION delay_wheel');
	wait_for($node, "SELECT state FROM delay_wheel.status WHERE database = '$order'", "$order others: CREATE EXTENSION is noticed", 60, expected => 'running');
	$node->safe_psql($order, 'DROP EXTENSION delay_wheel');
	wait_for($node, "SELECT count(*) FROM delay_wheel.status WHERE database = '$order'", "$order others: so is DROP EXTENSION", 60, expected => 0);
	is($node->psql('postgres', "DROP DATABASE $order"), 0, "$order others: a database can be dropped");
	$n += 1000;
}
restart_with($node, "shared_preload_libraries = 'delay_wheel'\n");

# created because another extension needs it
SKIP:
{
	my $control = "$sharedir/extension/dw_needs_it.control";

	skip 'the directory of extensions is not ours to write to', 2 unless -w "$sharedir/extension";
	append_to_file($control, "default_version = '1'\nrequires = 'delay_wheel'\n");
	append_to_file("$sharedir/extension/dw_needs_it--1.sql", "CREATE FUNCTION need() RETURNS int LANGUAGE sql AS 'SELECT 1';\n");
	$node->safe_psql('postgres', 'CREATE DATABASE needs');
	is($node->psql('needs', 'CREATE EXTENSION dw_needs_it CASCADE'), 0, 'another extension brings this one along');
	unlink($control, "$sharedir/extension/dw_needs_it--1.sql");
	wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'needs'}, 'whose database is served', 60, expected => 'running');
}

#
# Sessions that sit in a transaction, and what ends them.
#
sub sit
{
	my ($sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query("BEGIN; $sql");
	return $session;
}

sub end_sessions
{
	my ($what, @sessions) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'});
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'}, "$what: they are gone", 60, expected => 0);
	eval { $_->{run}->kill_kill } for @sessions;
	return;
}

my $locked = schedule($node, 3000, 3000, delay => '1 hour');
my $cancelled = schedule($node, 3001, 3001, delay => '1 hour');
my @sitting = (
	sit('CREATE TABLE has_xid ()'),
	sit('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM delay_wheel.task'),
	sit("SELECT delay_schedule('0', $effect, 3002::bigint)"),
	sit("SELECT delay_cancel($cancelled)"),
	sit("SELECT delay_reschedule($locked, '0'); SAVEPOINT s; SELECT delay_cancel($locked)"),
	sit('LOCK delay_wheel.failed_task IN SHARE MODE'));
schedule($node, 3100, 3199);
each_once($node, 3100, 3199, 'beside sessions that sit in a transaction tasks run');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE n BETWEEN 3000 AND 3099}), 0, 'what they have done is not seen');
end_sessions('idle in transaction', @sitting);
$node->safe_psql('postgres', "SELECT delay_reschedule(id, '0') FROM unnest(ARRAY[$locked, $cancelled]) id");
each_once($node, 3000, 3001, 'what they had locked runs');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE n = 3002}), 0, 'what they had scheduled does not');

# due while somebody who cancels it sits there: it runs when that one is thrown out
my $due = schedule($node, 3003, 3003, delay => '1 second');
@sitting = (sit("SET idle_in_transaction_session_timeout = '3s'; SELECT delay_cancel($due)"));
wait_for($node, "SELECT now() > due + interval '200 ms' FROM delay_wheel.task WHERE id = $due", 'a task is due that somebody cancels');
is($node->safe_psql('postgres', q{SELECT ready FROM delay_wheel.status WHERE database = current_database()}), 0, 'an executor has met the lock');
each_once($node, 3003, 3003, 'it runs when the session is timed out');
eval { $_->{run}->kill_kill } for @sitting;

# the whole table
@sitting = (sit('LOCK delay_wheel.task IN ACCESS EXCLUSIVE MODE'));
my $waits = $node->background_psql('postgres', on_error_stop => 0);
$waits->query_until(qr/waiting/, "\\echo waiting\nSELECT delay_schedule('0', $effect, 3004::bigint);\n");
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'delay_wheel.task'::regclass AND NOT granted AND mode = 'RowExclusiveLock'},
	'who schedules waits for a lock of the table', 60, expected => 1);
end_sessions('a locked table', @sitting);
each_once($node, 3004, 3004, 'and goes on');
$waits->quit;

#
# Parallel query, JIT.
#
my $forced = $node->safe_psql('postgres', q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
$node->safe_psql('postgres', "ALTER SYSTEM SET $forced = on");
$node->safe_psql('postgres', "ALTER SYSTEM SET $_") for 'min_parallel_table_scan_size = 0', 'parallel_setup_cost = 0',
	'parallel_tuple_cost = 0', 'parallel_leader_participation = off', 'jit = on', 'jit_above_cost = 0', 'jit_inline_above_cost = 0',
	'jit_optimize_above_cost = 0';
$node->reload;
schedule($node, 4000, 4009, role => 'a');
schedule($node, 4010, 4019, role => 'b', delay => '1 hour');
each_once($node, 4000, 4009, 'with parallel query forced tasks run');
my $id = $node->safe_psql('postgres', q{SELECT delay_schedule('0', 'CREATE TABLE told AS SELECT DISTINCT current_setting(''delay_wheel.task_id'') AS id FROM public.effects')});
wait_for($node, q{SELECT count(*) FROM pg_class WHERE relname = 'told'}, 'so does one with a parallel plan', 60, expected => 1);
is($node->safe_psql('postgres', 'SELECT string_agg(id, $$ $$) FROM told'), $id, 'whose workers know its id');
for my $view (split /\n/, $node->safe_psql('postgres', q{SELECT relname FROM pg_class WHERE relnamespace = 'delay_wheel'::regnamespace AND relkind = 'v' ORDER BY 1}))
{
	for my $role (qw(b postgres))
	{
		my $count = "SELECT count(*) FROM delay_wheel.$view;";
		my ($rc, $out, $err) = $node->psql('postgres', "SET SESSION AUTHORIZATION $role; $count SET $forced = off; SET max_parallel_workers_per_gather = 0; SET jit = off; $count");
		my @counts = split /\n/, $out // '';

		is("$rc @counts", "0 $counts[1] $counts[1]", "view $view is the same in parallel for $role");
	}
}
is($node->safe_psql('postgres', q{
	SELECT string_agg(p.proname, ' ' ORDER BY 1) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'delay_wheel'
	WHERE p.proparallel <> 'u' AND (p.proname LIKE 'delay\_%' OR p.prorettype = 'trigger'::regtype)}), '', 'nothing that writes is said to be safe in parallel');

#
# Each setting that can be changed by reload, while tasks run.
#
sub change_all
{
	my ($which) = @_;

	# what would stop this test rather than the server, or needs files
	my $left_alone = q{'default_transaction_read_only', 'transaction_read_only', 'db_user_namespace', 'max_stack_depth', 'temp_file_limit',
		'delay_wheel.enabled', 'delay_wheel.max_pending', 'delay_wheel.start_after_recovery', 'session_replication_role', 'ssl',
		'wal_sync_method', 'fsync', 'track_activities', 'authentication_timeout', 'post_auth_delay', 'pre_auth_delay',
		'synchronous_commit', 'log_parser_stats', 'log_planner_stats', 'log_executor_stats'};
	my $settings = $node->safe_psql('postgres', qq{
		SELECT format('ALTER SYSTEM SET %s = %L;', name, CASE vartype
			WHEN 'bool' THEN CASE setting WHEN 'on' THEN 'off' ELSE 'on' END
			WHEN 'enum' THEN (SELECT v FROM unnest(enumvals) v WHERE v <> setting ORDER BY v $which LIMIT 1)
			ELSE CASE WHEN '$which' = '' AND setting <> min_val THEN min_val WHEN setting <> max_val THEN max_val ELSE min_val END END)
			|| CASE WHEN row_number() OVER (ORDER BY name) % 10 = 0 THEN ' SELECT pg_reload_conf();' ELSE '' END
		FROM pg_settings WHERE context IN ('sighup', 'superuser', 'user') AND vartype <> 'string' AND name NOT IN ($left_alone)
		AND NOT (vartype = 'enum' AND cardinality(enumvals) < 2) ORDER BY name});

	# those that are not for files are refused
	$node->psql('postgres', $settings, on_error_stop => 0);
	$node->reload;
	return scalar(grep { /=/ } split /\n/, slurp_file($node->data_dir . '/postgresql.auto.conf'));
}

my $script = "$moduledir/busy.sql";
append_to_file($script, "WITH s AS (INSERT INTO scheduled VALUES (nextval('busy')) RETURNING n)\nSELECT delay_schedule('50 ms', $effect, n) FROM s;\n");
$node->safe_psql('postgres', 'CREATE TABLE scheduled (n bigint); CREATE SEQUENCE busy MINVALUE 1000000');

# Sessions that schedule all the time; ended by end_busy, which tests that each of the tasks has run once.
sub begin_busy
{
	return IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 3600, '--max-tries', 1000, '-h', $node->host, '-p', $node->port, '-f', $script, 'postgres' ],
		'>', \my $out, '2>', \my $err);
}

sub end_busy
{
	my ($busy, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $last = $node->safe_psql('postgres', 'SELECT last_value + 50 FROM busy');

	wait_for($node, "SELECT last_value > $last FROM busy", "$what: the load goes on");
	$busy->kill_kill;
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'}, "$what: and ends", 60, expected => 0);
	wait_for($node, q{SELECT count(*) FROM (SELECT n FROM scheduled EXCEPT SELECT n FROM effects) lost}, "$what: no task is lost", 180, expected => 0);
	is($node->safe_psql('postgres', q{SELECT count(*) > 50, count(*) - count(DISTINCT n) FROM effects WHERE n >= 1000000}), 't|0', "$what: none is run twice");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.failed_task WHERE sql LIKE 'INSERT%'}), 0, "$what: none fails");
	return;
}

for my $which ('', 'DESC')
{
	my $position = log_position($node);
	my $what = $which ? 'settings, other values' : 'settings, lowest values';
	my $busy = begin_busy();

	cmp_ok(change_all($which), '>', 180, "$what: they are changed");
	$node->psql('postgres', 'ALTER SYSTEM RESET ALL');
	$node->reload;
	end_busy($busy, $what);
	unlike(log_since($node, $position), qr/PANIC|terminated by signal|delay_wheel \w+ ERROR/, "$what: no process complains");
}

# errors that are to end the session, and others that are not for workers
$node->safe_psql('postgres', 'ALTER ROLE b SET exit_on_error = on; ALTER ROLE b SET default_transaction_isolation = serializable; ALTER ROLE b SET default_transaction_deferrable = on');
$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION b; SELECT delay_schedule('0', 'SELECT 1 / 0 AS exits')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.failed_task WHERE sql LIKE '%exits'}, 'with exit_on_error a task fails as ever', 60, expected => 1);

done_testing();
