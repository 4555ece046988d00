# A good neighbour: other extensions with the same hooks, sessions that sit in
# a transaction, poolers, parallel query, any setting, small servers, standby
# servers, storms of terminations, xids that run out.
#
# PgBouncer is used where it is installed; "make test" installs it with CI in the environment only.
#
#   DW_STORM_SECONDS   how long processes are terminated and cancelled (3; long 60)
#   DW_CONNECTIONS     how many sessions come and go (500; long 100,000)

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

my $storm_seconds = $ENV{DW_STORM_SECONDS} // (long_tests() ? 60 : 3);
my $connections = $ENV{DW_CONNECTIONS} // (long_tests() ? 100_000 : 500);
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
chomp(my $libdir = `$ENV{PG_CONFIG} --pkglibdir`);
my @others = ('pg_stat_statements', 'auto_explain', (-f "$libdir/pg_cron.so" ? 'pg_cron' : ()), $compiled ? "$moduledir/neighbour" : ());
my $before = "shared_preload_libraries = '" . join(', ', @others, 'delay_wheel') . "'\n";
my $after = "shared_preload_libraries = '" . join(', ', 'delay_wheel', reverse @others) . "'\n";

my $node = new_node('neighbour',
	init => [ allows_streaming => 1, extra => ['--data-checksums'] ],
	conf => q{
log_statement = none
max_worker_processes = 40
max_locks_per_transaction = 64
restart_after_crash = on
pg_stat_statements.track = all
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_verbose = on
auto_explain.log_nested_statements = on
delay_wheel.executor_idle_timeout = 2s
# what a batch did that was undone would be counted again
delay_wheel.batch_tasks = 1
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
		SELECT delay_schedule_task('CALL commits($n + 101)', options => '{"mode": "at_most_once"}')});
	each_once($node, $n, $n + 102, "$order others: tasks run");
	wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, "$order others: all of them", 60, expected => 0);
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
	wait_for($node, q{SELECT n_tup_ins > 0 AND n_tup_del > 0 FROM pg_stat_user_tables WHERE relid = 'delay_wheel_data.task'::regclass},
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
# another name would be an error of PostgreSQL's
if ($compiled)
{
	restart_with($node, $before . "neighbour.wait_events = 127\n");
	schedule($node, 1, 100);
	each_once($node, 1, 100, 'others have taken all names of wait events: tasks run');
	wait_for($node, q{SELECT DISTINCT wait_event FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND wait_event_type = 'Extension'},
		'the timer waits under the name of all', 60, expected => 'Extension');
}
restart_with($node, "shared_preload_libraries = 'delay_wheel'\ndelay_wheel.batch_tasks = 100\n");

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
	sit('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM delay_wheel_data.task'),
	sit("SELECT delay_schedule('0', $effect, 3002::bigint)"),
	sit("SELECT delay_cancel($cancelled)"),
	sit("SELECT delay_reschedule($locked, '0'); SAVEPOINT s; SELECT delay_cancel($locked)"),
	sit('LOCK delay_wheel_data.failed_task IN SHARE MODE'));
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
wait_for($node, "SELECT now() > due + interval '200 ms' FROM delay_wheel_data.task WHERE id = $due", 'a task is due that somebody cancels');
is($node->safe_psql('postgres', q{SELECT ready FROM delay_wheel.status WHERE database = current_database()}), 0, 'an executor has met the lock');
each_once($node, 3003, 3003, 'it runs when the session is timed out');
eval { $_->{run}->kill_kill } for @sitting;

# the whole table
@sitting = (sit('LOCK delay_wheel_data.task IN ACCESS EXCLUSIVE MODE'));
my $waits = $node->background_psql('postgres', on_error_stop => 0);
$waits->query_until(qr/waiting/, "\\echo waiting\nSELECT delay_schedule('0', $effect, 3004::bigint);\n");
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'delay_wheel_data.task'::regclass AND NOT granted AND mode = 'RowExclusiveLock'},
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
	'parallel_tuple_cost = 0', 'parallel_leader_participation = off', 'jit = on', 'jit_above_cost = 0',
	# compiling is what takes long, not running
	map { "jit_${_}_above_cost = " . (long_tests() ? 0 : -1) } qw(inline optimize);
$node->reload;
schedule($node, 4000, 4009, role => 'a');
schedule($node, 4010, 4019, role => 'b', delay => '1 hour');
each_once($node, 4000, 4009, 'with parallel query forced tasks run');
my $id = $node->safe_psql('postgres', q{SELECT delay_schedule('0', 'CREATE TABLE told AS SELECT DISTINCT current_setting(''delay_wheel.task_id'') AS id FROM public.effects')});
wait_for($node, q{SELECT count(*) FROM pg_class WHERE relname = 'told'}, 'so does one with a parallel plan', 60, expected => 1);
is($node->safe_psql('postgres', 'SELECT string_agg(id, $$ $$) FROM told'), $id, 'parallel workers see the id of the task');
for my $role (qw(b postgres))
{
	for my $view (split /\n/, $node->safe_psql('postgres', qq{SELECT oid::regclass FROM pg_class
		WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'v' ORDER BY 1}))
	{
		my $count = "SELECT count(*) FROM $view;";
		my ($rc, $out, $err) = $node->psql('postgres', "SET SESSION AUTHORIZATION $role; $count SET $forced = off; SET max_parallel_workers_per_gather = 0; SET jit = off; $count");
		my @counts = split /\n/, $out // '';

		is("$rc @counts", "0 $counts[1] $counts[1]", "view $view is the same in parallel for $role");
	}
}
is($node->safe_psql('postgres', q{
	SELECT string_agg(p.proname, ' ' ORDER BY 1) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'delay_wheel'
	WHERE p.proparallel <> 'u' AND p.provolatile = 'v' AND (p.proname LIKE 'delay\_%' OR p.prorettype = 'trigger'::regtype)}), '', 'nothing that writes is said to be safe in parallel');

#
# Each setting that can be changed by reload, while tasks run.
#
sub change_all
{
	my ($which) = @_;
	my $reached = 0;

	# what would stop this test rather than the server, needs files, or takes hours with assertions
	my $left_alone = q{'default_transaction_read_only', 'transaction_read_only', 'db_user_namespace', 'max_stack_depth', 'temp_file_limit',
		'delay_wheel.enabled', 'delay_wheel.superuser_tasks', 'delay_wheel.max_pending', 'delay_wheel.start_after_recovery', 'session_replication_role', 'ssl',
		'wal_sync_method', 'fsync', 'track_activities', 'authentication_timeout', 'post_auth_delay', 'pre_auth_delay',
		'synchronous_commit', 'exit_on_error', 'log_parser_stats', 'log_planner_stats', 'log_executor_stats',
		'debug_discard_caches'};
	my @settings = split /\n/, $node->safe_psql('postgres', qq{
		SELECT format('%s = %L', name, CASE vartype
			WHEN 'bool' THEN CASE setting WHEN 'on' THEN 'off' ELSE 'on' END
			WHEN 'enum' THEN (SELECT v FROM unnest(enumvals) v WHERE v <> setting ORDER BY v $which LIMIT 1)
			ELSE CASE WHEN '$which' = '' AND setting <> min_val THEN min_val WHEN setting <> max_val THEN max_val ELSE min_val END END)
		FROM pg_settings WHERE context IN ('sighup', 'superuser', 'user') AND vartype <> 'string' AND name NOT IN ($left_alone)
		AND name NOT LIKE 'transaction\\_%' AND NOT (vartype = 'enum' AND cardinality(enumvals) < 2) ORDER BY name});

	for my $i (0 .. $#settings)
	{
		append_to_file($node->data_dir . '/postgresql.auto.conf', "$settings[$i]\n");
		next unless $i % 20 == 19 || $i == $#settings;
		$node->reload;
		wait_until(60, sub { ($node->psql('postgres', 'SELECT last_value FROM busy'))[1] > $reached + 20 });
		$reached = ($node->psql('postgres', 'SELECT last_value FROM busy'))[1];
	}
	return scalar @settings;
}

my $script = "$moduledir/busy.sql";
append_to_file($script, "WITH s AS (INSERT INTO scheduled VALUES (nextval('busy')) RETURNING n)\nSELECT delay_schedule('50 ms', $effect, n) FROM s;\n");
$node->safe_psql('postgres', 'CREATE TABLE scheduled (n bigint); CREATE SEQUENCE busy MINVALUE 1000000');

my $sessions = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND query LIKE 'WITH s AS%'};

# Sessions that schedule all the time; ended by end_busy, which tests that each of the tasks has run once.
sub begin_busy
{
	return IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 3600, '--max-tries', 1000, '-h', $node->host, '-p', $node->port, '-f', $script, 'postgres' ],
		'>', '/dev/null', '2>', "$moduledir/busy.err");
}

sub end_busy
{
	my ($busy, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $last = $node->safe_psql('postgres', 'SELECT last_value + 50 FROM busy');

	wait_for($node, "SELECT last_value > $last FROM busy", "$what: the load goes on");
	$busy->kill_kill;
	wait_for($node, $sessions, "$what: and ends", 60, expected => 0);
	wait_for($node, q{SELECT count(*) FROM (SELECT n FROM scheduled EXCEPT SELECT n FROM effects) lost}, "$what: no task is lost", 180, expected => 0);
	is($node->safe_psql('postgres', q{SELECT count(*) > 50, count(*) - count(DISTINCT n) FROM effects WHERE n >= 1000000}), 't|0', "$what: none is run twice");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel_data.failed_task WHERE sql LIKE 'INSERT%'}), 0, "$what: none fails");
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
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.failed_task WHERE sql LIKE '%exits'}, 'with exit_on_error a task fails as ever', 60, expected => 1);

SKIP:
{
	skip 'there is no transaction_timeout', 1 if $node->pg_version < 17;
	$node->safe_psql('postgres', q{ALTER ROLE a SET transaction_timeout = '50ms'; SET SESSION AUTHORIZATION a;
		SELECT delay_schedule('0', 'SELECT pg_sleep(0.3); INSERT INTO public.effects VALUES (5999)')});
	each_once($node, 5999, 5999, 'transaction_timeout does not end a task');
	$node->safe_psql('postgres', 'ALTER ROLE a RESET ALL');
}

#
# One session for many: what a pooler in transaction mode does, by hand and by
# PgBouncer, if it is there.
#
$node->safe_psql('postgres', q{
	SELECT delay_wheel.create_queue('ours', users => '{a}');
	CREATE TABLE triggers (m bigint); GRANT ALL ON triggers TO PUBLIC;
	CREATE TRIGGER later AFTER INSERT ON triggers FOR EACH ROW
		EXECUTE FUNCTION delay_schedule_trigger('0', 'INSERT INTO public.effects VALUES ($1)', 'm')});
my $pooled = '';
for my $turn (0 .. 4)
{
	for my $role (qw(a b))
	{
		my $next = 6000 + 4 * $turn + ($role eq 'b' ? 2 : 0);

		# the queue is right for one, wrong for the other
		$pooled .= "DISCARD ALL;\nSET SESSION AUTHORIZATION $role;\nPREPARE s AS SELECT delay_schedule('0', $effect, \$1::bigint);\n"
		  . "EXECUTE s($next);\nSELECT delay_schedule_task('SELECT 1', queue => 'ours', delay => '1 hour', tag => 'pooled');\n"
		  . "BEGIN;\nINSERT INTO triggers VALUES ($next + 1);\nSET search_path = pg_temp;\nCOMMIT;\n"
		  . ($turn == 1 ? "SELECT 1 / 0;\n" : '') . ($turn % 2 ? "RESET SESSION AUTHORIZATION;\n" : '');
	}
	$pooled .= "RESET SESSION AUTHORIZATION;\n" . ($turn == 1 ? "SELECT delay_wheel.disallow('b');\n" : $turn == 2 ? "SELECT delay_wheel.allow('b');\n" : '');
}
$node->psql('postgres', $pooled, on_error_stop => 0, stderr => \my $refusals);
wait_for($node, q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM effects WHERE n BETWEEN 6000 AND 6099}, 'pooled: tasks run, but those of who may not schedule at the time',
	60, expected => join(' ', 6000 .. 6009, 6012 .. 6019));
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT owner::text, ' ') || ' ' || count(*) FROM delay_wheel.tasks WHERE tag = 'pooled'}), 'a 5',
	'pooled: a queue that one role may use is refused to the next');
is(join(' ', $refusals =~ /ERROR: +(permission denied (?:for|to) \w+ "?\w+|division)/g), join(' ',
	('permission denied for queue "ours') x 1, 'division', 'permission denied for queue "ours', 'division',
	('permission denied to use delay_wheel') x 3) . ' permission denied for queue "ours' x 2,
	'pooled: each is told why');

SKIP:
{
	my $pooler = start_pgbouncer($node, 1, qw(a b));

	skip 'there is no pgbouncer', 1 unless $pooler;
	my $dir = $pooler->dir;
	append_to_file("$dir/script", "BEGIN;\nINSERT INTO scheduled VALUES (nextval('busy')) RETURNING n \\gset\nSELECT delay_schedule('0', $effect, :n::bigint);\nCOMMIT;\n");
	$node->safe_psql('postgres', 'GRANT ALL ON scheduled TO PUBLIC; GRANT ALL ON SEQUENCE busy TO PUBLIC');
	for my $role (qw(a b))
	{
		ok(run_log([ 'pgbench', '-n', '-c', 4, '-t', 25, '-U', $role, '-h', $dir, '-p', 6432, '-f', "$dir/script", 'postgres' ]), "sessions of $role share one by PgBouncer");
	}
	wait_for($node, q{SELECT count(*) FROM (SELECT n FROM scheduled EXCEPT SELECT n FROM effects) lost}, 'and their tasks run', 60, expected => 0);
	$pooler->stop;
}

#
# xids run out: rows that wait are frozen, tables grow no older than others.
#
$node->safe_psql('postgres', q{
	CREATE UNLOGGED TABLE sink (i int);
	CREATE PROCEDURE burn(times int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. times LOOP
			BEGIN
				INSERT INTO sink VALUES (i);
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
			IF i % 1000 = 0 THEN COMMIT; END IF;
		END LOOP;
		TRUNCATE sink;
	END $$});
restart_with($node, q{
autovacuum_freeze_max_age = 100000
autovacuum_multixact_freeze_max_age = 10000
vacuum_freeze_min_age = 0
vacuum_freeze_table_age = 0
vacuum_multixact_freeze_min_age = 0
autovacuum_naptime = 1s
max_prepared_transactions = 10
});
schedule($node, 7000, 7199, delay => '1 hour');
$node->safe_psql('postgres', "BEGIN; SAVEPOINT s; SELECT delay_schedule('1 hour', $effect, 7200::bigint); RELEASE s; COMMIT");
# keys that several sessions keep: multixacts
my $keyed = "SELECT delay_schedule_task('INSERT INTO public.effects VALUES (7201)', key => 'kept', delay => '1 hour', if_exists => 'keep')";
$node->safe_psql('postgres', $keyed);
my @keepers = map { $node->background_psql('postgres') } (1, 2);
$_->query_safe("BEGIN; $keyed") for @keepers;
$_->query_safe('COMMIT') for @keepers;
$_->quit for @keepers;
# an old prepared transaction holds it all up
$node->safe_psql('postgres', "BEGIN; SELECT delay_schedule('0', $effect, 7202::bigint); PREPARE TRANSACTION 'old'");
my $ages = q{SELECT max(age(relfrozenxid)) < 100000 AND max(mxid_age(relminmxid)) < 10000 FROM pg_class
	WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'r'};
$node->safe_psql('postgres', 'CALL burn(120000)');
is($node->safe_psql('postgres', $ages), 'f', 'a prepared transaction keeps rows from being frozen');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)}), 0,
	'no process of ours holds a snapshot');
$node->safe_psql('postgres', q{COMMIT PREPARED 'old'});
each_once($node, 7202, 7202, 'at its end its task runs');
wait_for($node, $ages, 'our tables are frozen as others are');
schedule($node, 7203, 7210);
each_once($node, 7203, 7210, 'tasks run');
$node->safe_psql('postgres', q{VACUUM (FREEZE) delay_wheel_data.task});
$node->safe_psql('postgres', q{SELECT delay_reschedule(id, '0') FROM delay_wheel_data.task WHERE key = 'kept' OR args[1]::bigint BETWEEN 7000 AND 7100});
$node->safe_psql('postgres', q{UPDATE delay_wheel_data.task SET due = now() WHERE args[1]::bigint BETWEEN 7101 AND 7200});
each_once($node, 7000, 7200, 'frozen tasks run');
each_once($node, 7201, 7201, 'so does the one that was kept');

#
# A storm: all our processes are terminated and cancelled while sessions
# schedule; tables are moved, rewritten and vacuumed beside.
#
my $tablespace = abs_path(PostgreSQL::Test::Utils::tempdir());
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck; CREATE EXTENSION pg_prewarm');
my @commands = ('VACUUM FULL delay_wheel_data.task', 'ALTER TABLE delay_wheel_data.task SET TABLESPACE elsewhere', 'CLUSTER delay_wheel_data.task USING task_pkey',
	'ALTER INDEX delay_wheel_data.task_pkey SET TABLESPACE elsewhere', 'REINDEX TABLE CONCURRENTLY delay_wheel_data.task', 'VACUUM (FREEZE) delay_wheel_data.task',
	'ANALYZE delay_wheel_data.task', 'ALTER TABLE delay_wheel_data.task SET TABLESPACE pg_default', 'SELECT pg_stat_reset()',
	q{SELECT pg_prewarm('delay_wheel_data.task')}, 'SELECT pg_rotate_logfile()', 'CHECKPOINT', 'SELECT pg_switch_wal()');
my $busy = begin_busy();
my $until = time() + $storm_seconds;
my ($killed, $turn) = (0, 0);
while (time() < $until)
{
	my $function = $turn % 3 ? 'pg_terminate_backend' : 'pg_cancel_backend';

	# a cancelled task has failed: cancels are for the others
	$killed += $node->safe_psql('postgres', "SELECT count($function(pid)) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%' AND ('$function' <> 'pg_cancel_backend' OR backend_type <> 'delay_wheel executor')");
	$node->psql('postgres', $commands[ $turn % @commands ]);
	$turn++;
}
end_busy($busy, "a storm of $killed signals and $turn commands");
wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}, 'the storm is over', 60, expected => 'running');
$node->safe_psql('postgres', $_) for grep { !/pg_stat_reset/ } @commands;
is($node->psql('postgres', 'ALTER EXTENSION delay_wheel SET SCHEMA delay_wheel'), 3, 'the extension stays in its schema');

# a crash, and what is on disk
$busy = begin_busy();
wait_for($node, $sessions, 'sessions schedule', 60, expected => 2);
$node->stop('immediate');
$node->start;
$busy->kill_kill;
wait_for($node, q{SELECT count(*) FROM (SELECT n FROM scheduled EXCEPT SELECT n FROM effects) lost}, 'after a crash no task is lost', 180, expected => 0);
is($node->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT n) FROM effects WHERE n >= 1000000}), 0, 'none is run twice');
$node->command_ok([ 'pg_amcheck', '-h', $node->host, '-p', $node->port, '--heapallindexed', '-s', 'delay_wheel_data', 'postgres' ], 'amcheck finds nothing');
$node->stop;
command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'nor does pg_checksums');
$node->start;

#
# A synchronous standby with feedback, queries there, and its death.
#
$node->safe_psql('postgres', $_) for 'ALTER INDEX delay_wheel_data.task_pkey SET TABLESPACE pg_default', 'DROP TABLESPACE elsewhere';
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nmax_standby_streaming_delay = -1\n");
$standby->start;
$node->safe_psql('postgres', q{
	ALTER SYSTEM SET synchronous_standby_names = '*';
	ALTER SYSTEM SET synchronous_commit = 'remote_apply';
	SELECT pg_reload_conf()});
wait_for($node, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}, 'there is a synchronous standby', 60, expected => 1);
my $reader = $standby->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM delay_wheel.tasks');
schedule($node, 9000, 9199);
each_once($node, 9000, 9199, 'its tasks run');
$node->safe_psql('postgres', 'VACUUM delay_wheel_data.task');
for my $view (split /\n/, $standby->safe_psql('postgres', q{SELECT relname FROM pg_class WHERE relnamespace = 'delay_wheel'::regnamespace AND relkind = 'v' ORDER BY 1}))
{
	is($standby->psql('postgres', "SELECT * FROM delay_wheel.$view"), 0, "on the standby view $view can be read");
}
is($reader->query('SELECT count(*) >= 0 FROM delay_wheel.tasks; COMMIT'), 't', 'an old snapshot there has met no conflict');
$reader->quit;
is($standby->safe_psql('postgres', 'SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = current_database()'), 0, 'there was no snapshot conflict on the standby');
$standby->stop('immediate');
# who schedules must not wait for it as well
my $stuck = q{SET synchronous_commit = local; };
$node->safe_psql('postgres', "$stuck SELECT min(delay_schedule('0', $effect, i::bigint)) FROM generate_series(9200, 9299) i");
wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'delay_wheel executor'}, 'with the standby dead tasks wait at their commit');
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'delay_wheel executor'});
wait_for($node, 'SELECT count(*) > 0 FROM effects WHERE n BETWEEN 9200 AND 9299', 'a cancel ends the wait, and the task is done');
wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'delay_wheel executor'
	OR NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE due < now())}, 'the next one waits');
$node->safe_psql('postgres', "$stuck SELECT min(delay_schedule('0', $effect, i::bigint)) FROM generate_series(9300, 9399) i");
wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'delay_wheel executor'}, 'executors wait');
my $begun = time();
$node->stop('fast');
cmp_ok(time() - $begun, '<', 30, 'and do not keep the server from stopping');
append_to_file($node->data_dir . '/postgresql.auto.conf', "synchronous_standby_names = ''\n");
$node->start;
each_once($node, 9200, 9399, 'each of the tasks has run once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel_data.failed_task WHERE sql LIKE 'INSERT%'}), 0, 'none has failed');

#
# Sessions that come and go.
#
sub places
{
	return $node->safe_psql('postgres', q{SELECT count(*), sum(lanes) >= 0, bool_and(executors <= 8) FROM delay_wheel.status});
}

sub private_memory
{
	my ($pid) = @_;
	my $text = slurp_file("/proc/$pid/smaps_rollup");
	my $sum = 0;

	$sum += $1 while $text =~ /^Private_\w+:\s+(\d+)/mg;
	return $sum;
}

schedule($node, 8000, 8010);
each_once($node, 8000, 8010, 'tasks run');
my ($timer) = worker_pids($node, 'timer');
my $places = places();
my $memory = -r "/proc/$timer/smaps_rollup" ? private_memory($timer) : undef;
append_to_file("$moduledir/churn.sql", "SELECT delay_cancel(delay_schedule('1 hour', 'SELECT 1'));\n");
ok(run_log([ 'pgbench', '-n', '-C', '-c', 5, '-t', $connections / 5, '-h', $node->host, '-p', $node->port, '-f', "$moduledir/churn.sql", 'postgres' ]),
	"$connections sessions come and go");
is(places(), $places, 'they leave no place behind');
cmp_ok(private_memory($timer), '<', $memory + 4096, 'they leave no memory in the timer') if defined $memory;
# a place that is pinned would not be given back
$node->safe_psql('postgres', 'DROP EXTENSION delay_wheel CASCADE');
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND backend_type ~ 'delay_wheel'}, 'nor pins', 60, expected => 0);
$node->stop;

#
# A small server, minimal WAL, odd defaults, many databases and encodings.
#
my $databases = long_tests() ? 32 : 12;
my $small = new_node('small', extension => 0, conf => qq{
log_statement = none
wal_level = minimal
max_wal_senders = 0
max_connections = 8
superuser_reserved_connections = 1
max_locks_per_transaction = 20
max_worker_processes = 0
max_parallel_workers = 0
restart_after_crash = on
track_commit_timestamp = on
default_toast_compression = pglz
huge_pages = try
temp_file_limit = 1MB
shared_buffers = 1MB
delay_wheel.max_executors = 1
delay_wheel.executor_idle_timeout = 100ms
logging_collector = on
log_directory = 'logs'
log_filename = '%H%M%S.log'
});
# its lock table has 440 entries at least, more than either takes
$small->safe_psql('postgres', 'CREATE EXTENSION delay_wheel');
$small->safe_psql('postgres', 'DROP EXTENSION delay_wheel');
my $place = abs_path(PostgreSQL::Test::Utils::tempdir());
$small->safe_psql('postgres', "CREATE TABLESPACE place LOCATION '$place'");
$small->safe_psql('postgres', 'CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler');
$small->safe_psql('postgres', "SET default_table_access_method = other; SET default_tablespace = place; CREATE EXTENSION delay_wheel; RESET default_table_access_method; $setup");
is($small->safe_psql('postgres', q{SELECT DISTINCT amname, reltablespace <> 0 FROM pg_class c JOIN pg_am a ON a.oid = relam
	WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'r'}), 'heap|t', 'our tables are heaps, in the default tablespace');
schedule($small, 1, 50);
is($small->safe_psql('postgres', q{SELECT state FROM delay_wheel.status}), 'stopped', 'without background workers nothing runs, and the view says so');
for my $workers (1 .. 3)
{
	restart_with($small, "max_worker_processes = $workers\n");
	schedule($small, 50 * $workers + 1, 50 * $workers + 50);
}
restart_with($small, "max_worker_processes = 4\n");
each_once($small, 1, 200, 'with four background workers, one of them for logical replication, all tasks run');
# keys by the thousand, in one transaction
$small->safe_psql('postgres', q{SELECT count(delay_schedule_task('INSERT INTO public.effects VALUES (1000 + $1)', args => ARRAY[i::text], key => i::text, options => '{"arg_types": ["bigint"]}')) FROM generate_series(1, 3000) i});
each_once($small, 1001, 4000, 'few locks do for many keys');
restart_with($small, "max_worker_processes = 8\n");
# with minimal WAL, rows of tables that are new in the transaction are not logged
$small->safe_psql('postgres', 'CREATE DATABASE fresh');
$small->psql('fresh', q{BEGIN; CREATE EXTENSION delay_wheel; CREATE TABLE effects (n bigint);
	SELECT count(delay_schedule('0', 'INSERT INTO public.effects VALUES ($1)', i)) FROM generate_series(1, 500) i;
	SELECT delay_wheel.create_queue('q'); SELECT delay_every('e', interval '1 hour', 'SELECT 1'); COMMIT});
$small->stop('immediate');
$small->start;
each_once($small, 1, 500, 'after a crash just after CREATE EXTENSION its tasks are there', db => 'fresh');
is($small->safe_psql('fresh', 'SELECT (SELECT count(*) FROM delay_wheel.recurring), (SELECT count(*) FROM delay_wheel.queues)'), '1|1', 'the recurring task and the queue are there, too');
$small->safe_psql('postgres', q{BEGIN; TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2, delay_wheel_data.failed_task;
	SELECT count(delay_schedule('0', 'SELECT 1 / 0')) FROM generate_series(1, 20); COMMIT});
wait_for($small, 'SELECT count(*) FROM delay_wheel.failed', 'tables that were truncated are written', 60, expected => 20);
$small->stop('immediate');
$small->start;
is($small->safe_psql('postgres', 'SELECT (SELECT count(*) FROM delay_wheel.failed), (SELECT count(*) FROM delay_wheel.history)'), '20|20', 'and survive a crash');
is($small->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.failed_task WHERE pg_xact_commit_timestamp(xmin) IS NULL'), 0, 'commits have their time');
my $temp = $small->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT count(*) FROM (SELECT i FROM generate_series(1, 2000000) i ORDER BY i DESC) s')});
wait_for($small, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $temp", 'temp_file_limit stops a task', 60, expected => '53400');

wait_until(60, sub {
	$small->safe_psql('postgres', 'SELECT pg_rotate_logfile()');
	return scalar(my @files = glob($small->data_dir . '/logs/*.log')) > 1;
});
my $logged = $small->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT 1 / 0 AS rotated')});
ok(wait_until(60, sub { slurp_file((sort(glob($small->data_dir . '/logs/*.log')))[-1]) =~ /delay_wheel task $logged failed/ }),
	'what fails after a rotation of the log is in the new file');

restart_with($small, "max_worker_processes = 80\n");
my %encodings = (ascii => 'SQL_ASCII', latin1 => 'LATIN1', euc => 'EUC_JP', koi8 => 'KOI8R');
$small->safe_psql('postgres', "CREATE DATABASE $_ ENCODING '$encodings{$_}' LOCALE 'C' TEMPLATE template0") for sort keys %encodings;
$small->psql('postgres', q{CREATE DATABASE icu ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LOCALE 'C' TEMPLATE template0});
my @encoded = (sort(keys %encodings), $small->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'icu'}) ? 'icu' : ());
my %letter = (euc => "\xe6\x97\xa5", koi8 => "\xd0\x96");
for my $db (@encoded)
{
	my $letter = $letter{$db} // "\xc3\xa4";
	my $long = $letter x 3000;

	$small->safe_psql($db, qq{SET client_encoding = 'UTF8'; CREATE EXTENSION delay_wheel; CREATE TABLE effects (n bigint, t text);
		SELECT delay_wheel.create_queue('$letter'); SELECT delay_schedule_task('INSERT INTO public.effects VALUES (1, \$1)', args => ARRAY['$letter'], key => '$letter', tag => '$letter', queue => '$letter');
		SELECT delay_schedule('0', 'SELECT ''$long''::int')});
	wait_for($small, qq{SET client_encoding = 'UTF8'; SELECT count(*) FROM effects WHERE t = '$letter'}, "database $db: a task runs", 60, db => $db, expected => 1);
	wait_for($small, qq{SET client_encoding = 'UTF8'; SELECT count(*) FROM delay_wheel.failed WHERE message LIKE '%$letter%' AND sql LIKE '%$long%'}, "database $db: one fails, whose message can be read", 60, db => $db, expected => 1);
	is($small->safe_psql($db, 'SELECT count(sql) FROM delay_wheel.history'), 1, "database $db: so can the history");
}
my $have = $small->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.status');
$small->safe_psql('postgres', "CREATE DATABASE db$_ TEMPLATE fresh") for $have + 1 .. $databases;
wait_for($small, q{SELECT count(*) FROM delay_wheel.status WHERE state = 'running'}, "$databases databases are served", 120, expected => $databases);
schedule($small, 10000 + $_, 10000 + $_, db => "db$_") for $have + 1 .. $databases;
each_once($small, 10000 + $_, 10000 + $_, "a task runs in database $_", db => "db$_") for $have + 1 .. $databases;
$small->stop;

done_testing();
