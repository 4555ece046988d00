# The functions and views of pg_cron on top of delay_wheel, examples/pg_cron/cron.sql: jobs
# run, with their records; what cannot be done the same way is refused with a hint; nobody
# sees, changes or becomes another role; and the ways there and back of doc/from-pg_cron.md.
# The ways go from and to pg_cron itself where it is installed for this PostgreSQL, and else
# to tables like its own.
#
#   DW_PG_CRON=DIR   also pg_cron's own regress test, of its sources in DIR: how many of its
#                    statements do the same

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use Documents;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $load = "\\set QUIET on\n\\i $root/examples/pg_cron/cron.sql\n";
chomp(my $libdir = `$ENV{PG_CONFIG} --pkglibdir`);
my $has_pg_cron = -f "$libdir/pg_cron.so";

my $node = new_node('pg_cron', conf => q{
delay_wheel.max_executors = 8
timezone = 'Asia/Tokyo'
} . ($has_pg_cron ? q{
shared_preload_libraries = 'pg_cron,delay_wheel'
cron.database_name = 'moved'
cron.use_background_workers = on
cron.timezone = 'Europe/Berlin'
} : ''));
my $q = sub { return $node->safe_psql('postgres', $_[0]) };

# As that role, which logs in.
sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

# Tests, in one session: each statement is refused with this SQLSTATE, and a text.
sub refused
{
	my ($role, @statements) = @_;
	my $script = "\\set VERBOSITY verbose\n" . join '', map { "\\warn ## $_\n$statements[$_][0];\n" } 0 .. $#statements;
	my (undef, undef, $err) = $node->psql('postgres', $script, extra_params => [ '-U', $role ], on_error_stop => 0);
	my (undef, %err) = split /^## (\d+)\n/m, $err, -1;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	for my $n (0 .. $#statements)
	{
		my (undef, $sqlstate, $text, $what) = @{ $statements[$n] };
		like($err{$n}, qr/ERROR:  \Q$sqlstate\E: .*$text/s, "refused to $role: $what");
	}
	return;
}

# A test: so many runs of a job, by its name, have these records.
sub has_runs
{
	my ($n, $name, $status, $message, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, qq{SELECT count(*) >= $n FROM cron.job_run_details d JOIN cron.job USING (jobid)
		WHERE jobname = '$name' AND status = '$status' AND return_message IS NOT DISTINCT FROM $message}, $what);
}

refused('postgres', [ 'DROP EXTENSION delay_wheel; ' . $load, '42704', 'HINT:  CREATE EXTENSION', 'without the extension' ]);
# with pg_cron, the setting is in the configuration
$q->('CREATE EXTENSION IF NOT EXISTS delay_wheel; ' . ($has_pg_cron ? '' : q{SET cron.timezone = 'Europe/Berlin';}) . "\n$load");

#
# Jobs run, and are recorded.
#
$q->(q{
	CREATE TABLE t (a int);
	CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$BEGIN INSERT INTO t VALUES (1); COMMIT; ROLLBACK; END$$});
is($q->(q{SELECT cron.schedule('1 second', 'SELECT 1 UNION SELECT 2'), cron.schedule('rows', ' 01  sEcOnDs ', 'INSERT INTO t VALUES (1), (2)'),
		cron.schedule('several', '1second', 'SELECT 1; DELETE FROM t'), cron.schedule('fails', '1 second', 'SELECT 1 / 0'),
		cron.schedule('vacuum', '1 second', 'VACUUM t'), cron.schedule('call', '1 second', '/* nightly */ -- call
			CALL commits()'), cron.schedule('do', '1 second', 'DO $$BEGIN PERFORM 1; COMMIT; END$$'),
		cron.schedule('two calls', '1 second', 'CALL commits(); SELECT 1'),
		cron.schedule('waits', '1 second', 'SELECT pg_advisory_xact_lock_shared(4714)')}),
	'1|2|3|4|5|6|7|8|9', 'jobs have numbers');
is($q->(q{SELECT * FROM cron.job WHERE jobid < 3 ORDER BY jobid}),
	join("\n", '1|1 second|SELECT 1 UNION SELECT 2|localhost|' . $node->port . '|postgres|postgres|t|',
		'2| 01  sEcOnDs |INSERT INTO t VALUES (1), (2)|localhost|' . $node->port . '|postgres|postgres|t|rows'),
	'cron.job shows them as they were given');
has_runs(2, 'rows', 'succeeded', q{'INSERT 0 2'}, 'INSERT is done');
has_runs(2, 'several', 'succeeded', q{(SELECT return_message FROM cron.job_run_details e WHERE e.runid = d.runid AND return_message LIKE 'DELETE %')},
	'several statements are done');
has_runs(2, 'fails', 'failed', q{'ERROR: division by zero'}, 'an error is recorded');
has_runs(2, 'vacuum', 'succeeded', q{'VACUUM'}, 'VACUUM is done');
has_runs(2, 'call', 'succeeded', q{'CALL'}, 'a procedure that commits is done');
has_runs(2, 'do', 'succeeded', q{'DO'}, 'so is a block that commits');
has_runs(1, 'two calls', 'failed', q{'ERROR: invalid transaction termination'}, 'but not with another statement: that is a transaction');
wait_for($node, q{SELECT count(*) > 1 FROM cron.job_run_details WHERE jobid = 1 AND status = 'succeeded' AND return_message = 'SELECT 2'
	AND database = 'postgres' AND username = 'postgres' AND command = 'SELECT 1 UNION SELECT 2' AND end_time >= start_time AND job_pid IS NULL},
	'a query without a name is done');
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(4714)');
wait_for($node, q{SELECT count(*) FROM cron.job_run_details d JOIN pg_stat_activity a ON a.pid = d.job_pid
	WHERE jobid = 9 AND status = 'running' AND end_time IS NULL AND start_time < now() AND a.query = d.command}, 'one that is going on is shown', 60, expected => 1);
$gate->query_safe('SELECT pg_advisory_unlock(4714)');
has_runs(1, 'waits', 'succeeded', q{'SELECT 1'}, 'it ends');

# cut off outside of a transaction
$q->(q{CREATE PROCEDURE hangs() LANGUAGE plpgsql AS $$BEGIN COMMIT; PERFORM pg_advisory_lock(4714); END$$});
$gate->query_safe('SELECT pg_advisory_lock(4714)');
$q->(q{SELECT cron.schedule('hangs', '1 second', 'CALL hangs()')});
my $pid = q{SELECT max(job_pid) FROM cron.job_run_details d JOIN cron.job USING (jobid) WHERE jobname = 'hangs'};
wait_for($node, "SELECT ($pid) IS NOT NULL", 'a procedure hangs');
$q->("SELECT pg_terminate_backend(($pid), 60000)");
has_runs(1, 'hangs', 'failed', q{'the task was begun, and its end is not known'}, 'one that is terminated has failed');
$gate->quit;

#
# The same name is the same job.
#
is($q->(q{SELECT cron.schedule('rows', '1 second', 'INSERT INTO t VALUES (3)'), schedule, command FROM cron.job WHERE jobid = 2}),
	'2| 01  sEcOnDs |INSERT INTO t VALUES (1), (2)', 'a job is changed by its name');
is($q->(q{SELECT schedule, command FROM cron.job WHERE jobid = 2}), '1 second|INSERT INTO t VALUES (3)', 'it is');
has_runs(1, 'rows', 'succeeded', q{'INSERT 0 1'}, 'it runs as changed');
{
	my ($first, $second) = map { $node->background_psql('postgres') } 1 .. 2;
	my $id = $first->query_safe(q{BEGIN; SELECT cron.schedule('at once', '0 0 1 1 *', 'SELECT 1')});

	$second->{stdin} .= "SELECT cron.schedule('at once', '0 0 2 1 *', 'SELECT 2');\n\\echo second done\n";
	$second->{run}->pump_nb;
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%SELECT 2%' AND pid <> pg_backend_pid()},
		'a second session waits for the name', 60, expected => 1);
	$first->query_safe('COMMIT');
	$second->{run}->pump until $second->{stdout} =~ /second done/;
	is($second->{stdout} =~ s/\nsecond done.*//sr, $id, 'both get the same number');
	is($q->(q{SELECT count(*), max(command) FROM cron.job WHERE jobname = 'at once'}), '1|SELECT 2', '... and there is one job');
	$second->{stdout} = '';
	$_->quit for $first, $second;
}

#
# alter_job.
#
my $state = q{SELECT active, state FROM cron.job JOIN delay_wheel.recurring ON name = jobname WHERE jobid = 2};
$q->('SELECT cron.alter_job(2, active => false)');
wait_for($node, $state, 'a job is switched off', 60, expected => 'f|paused');
is($q->(q{SELECT count(*) FROM delay_wheel.tasks WHERE tag = 'cron 2'}), 0, '... and has no run');
$q->(q{SELECT cron.schedule('rows', '1 second', 'UPDATE t SET a = 4')});
is($q->($state), 'f|paused', 'scheduled again it stays switched off, as in pg_cron');
$q->(q{INSERT INTO t VALUES (1); SELECT cron.alter_job(2, active => true, schedule => '2 seconds')});
has_runs(1, 'rows', 'succeeded', q{(SELECT return_message FROM cron.job_run_details e WHERE e.runid = d.runid AND command LIKE 'UPDATE%')},
	'switched on it runs');
is($q->(q{SELECT j.schedule, command, active, every FROM cron.job j JOIN delay_wheel.recurring ON tag = 'cron 2' WHERE jobid = 2}),
	'2 seconds|UPDATE t SET a = 4|t|00:00:02', 'it is changed, and keeps what was not named');
$q->(q{SELECT cron.alter_job(2, command => 'VACUUM', schedule => '5 4 $ * *')});
is($q->(q{SELECT j.schedule, mode, timezone, to_char(next_due AT TIME ZONE 'Europe/Berlin' + interval '1 day', 'DD HH24:MI')
	FROM cron.job j JOIN delay_wheel.recurring ON tag = 'cron 2' WHERE jobid = 2}),
	'5 4 $ * *|at_most_once|Europe/Berlin|01 04:05', '$ is the last day of the month, in cron.timezone');
$q->(q{CREATE OR REPLACE FUNCTION cron.timezone() RETURNS text LANGUAGE sql IMMUTABLE RETURN 'Asia/Tokyo'; SELECT cron.alter_job(2, schedule => '@daily')});
is($q->(q{SELECT j.schedule, timezone FROM cron.job j JOIN delay_wheel.recurring ON tag = 'cron 2' WHERE jobid = 2}),
	"\@daily|Asia/Tokyo", 'or in another time zone');

#
# What is refused.
#
my $jobs = q{SELECT jobid, schedule, command, username, active, jobname FROM cron.job ORDER BY jobid};
my $before_refusals = $q->($jobs);
refused('postgres',
	[ q{SELECT cron.schedule_in_database('x', '* * * * *', 'SELECT 1', 'template1')}, '0A000', 'HINT:  Connect to database template1', 'another database' ],
	[ q{SELECT cron.alter_job(2, database => 'template1')}, '0A000', 'HINT:  Connect to database template1', 'a move to another database' ],
	[ q{SELECT cron.schedule_in_database('x', '* * * * *', 'SELECT 1', 'nowhere')}, '3D000', 'nowhere', 'one that does not exist' ],
	[ q{SELECT cron.schedule_in_database('x', '* * * * *', 'SELECT 1', 'postgres', 'nobody')}, '42704', 'nobody', 'a role that does not exist' ],
	[ q{SELECT cron.schedule('@reboot', 'SELECT 1')}, '0A000', 'HINT:  Runs that were due', 'a start of the server' ],
	[ q{SELECT cron.schedule(' @RESTART ', 'SELECT 1')}, '0A000', 'HINT:  Runs that were due', 'the same' ],
	[ q{SELECT cron.schedule('* * * * * *', 'SELECT 1')}, '22023', 'HINT:  Write the five fields', 'six fields' ],
	[ q{SELECT cron.schedule('* * * *', 'SELECT 1')}, '22023', 'HINT:  Write the five fields', 'four fields' ],
	[ q{SELECT cron.schedule('', 'SELECT 1')}, '22023', 'HINT:  Write the five fields', 'no field' ],
	[ q{SELECT cron.schedule('60 seconds', 'SELECT 1')}, '22023', 'HINT:  Write the five fields', 'too many seconds' ],
	[ q{SELECT cron.schedule('0 seconds', 'SELECT 1')}, '22023', 'HINT:  Write the five fields', 'no second' ],
	[ q{SELECT cron.schedule('0 0 $x * *', 'SELECT 1')}, '22023', 'HINT:  ', 'a field that is none' ],
	[ q{SELECT cron.schedule('* * * * *', 'BEGIN; SELECT 1; COMMIT')}, '0A000', 'HINT:  ', 'transaction control' ],
	[ q{SELECT cron.schedule('* * * * *', 'VACUUM; VACUUM')}, '22023', 'HINT:  Use several tasks', 'VACUUM with another statement' ],
	[ q{SET delay_wheel.check_sql = off; SELECT cron.schedule('* * * * *', 'SELEC'); RESET delay_wheel.check_sql}, '42601', 'SELEC', 'a syntax error' ],
	[ q{SELECT cron.schedule('* * * * *', '')}, '22023', 'HINT:  The text is empty', 'no command' ],
	[ q{SELECT cron.schedule('x', '* * * * *', NULL)}, '22004', 'command', 'a null command' ],
	[ q{SELECT cron.schedule('x', NULL, 'SELECT 1')}, '22004', 'schedule', 'a null schedule' ],
	[ q{SELECT cron.schedule(NULL, '* * * * *', 'SELECT 1')}, '22004', 'job_name', 'a null name' ],
	[ q{SELECT cron.alter_job(2)}, '22023', 'HINT:  Give at least one', 'a change of nothing' ],
	[ q{SELECT cron.alter_job(999, active => true)}, '42704', 'job 999', 'a change of no job' ],
	[ q{SELECT cron.unschedule(999)}, '42704', 'job 999', 'removal of no job' ],
	[ q{SELECT cron.unschedule('none')}, '42704', '"none"', 'removal of no name' ],
	[ q{DELETE FROM cron.job_run_details WHERE end_time < now() - interval '7 days'}, '0A000', 'HINT:  .*history_max_age', 'removal of records' ],
	[ q{UPDATE cron.job SET nodename = 'elsewhere' WHERE jobid = 2}, '0A000', 'HINT:  Unschedule the job', 'a job of another server' ],
	[ q{SELECT delay_every('mine', '1 day', 'SELECT 1'); SELECT cron.schedule('mine', '* * * * *', 'SELECT 1')}, '42710', 'HINT:  Give the job another name',
		'a name that a recurring task has' ]);
is($q->(q{SELECT cron.schedule(NULL, 'SELECT 1') IS NULL}), 't', 'null schedules nothing without a name, as in pg_cron');
is($q->($jobs), $before_refusals, 'nothing is left of all that');
is($q->(q{SELECT cron.unschedule('several'), cron.unschedule(1)}), 't|t', 'jobs are removed');
is($q->(q{SELECT count(*) FROM delay_wheel.recurring WHERE tag IN ('cron 1', 'cron 3')}), 0, '... with their tasks');
is($q->(q{SELECT count(*) > 1 FROM cron.job_run_details WHERE jobid = 1}), 't', 'their records stay');
$q->(q{SELECT cron.unschedule(jobid) FROM cron.job; SELECT delay_unschedule('mine')});

#
# Roles.
#
$q->(q{CREATE ROLE "Alice" LOGIN; CREATE ROLE bob LOGIN IN ROLE "Alice"; CREATE ROLE carol LOGIN;
	CREATE SCHEMA "Alice" AUTHORIZATION "Alice"; CREATE TABLE "Alice".here AS SELECT 1; ALTER TABLE "Alice".here OWNER TO "Alice";
	GRANT USAGE ON SCHEMA cron TO "Alice", bob, carol; SELECT delay_wheel.allow('Alice', 'bob');
	CREATE SCHEMA app; CREATE TABLE app.seen (who name, session name, path text);
	GRANT USAGE ON SCHEMA app TO PUBLIC; GRANT INSERT ON app.seen TO PUBLIC; ALTER ROLE bob SET search_path = app});
my $insert = q{$$INSERT INTO app.seen VALUES (current_user, session_user, current_setting('search_path'))$$};
refused('carol', [ qq{SELECT cron.schedule('c', '1 second', $insert)}, '42501', q{HINT:  .*SELECT delay_wheel.allow\('carol'\)}, 'scheduling, unless allowed' ]);
my ($of_alice, $of_bob) = (as('Alice', qq{SELECT cron.schedule('job', '1 second', $insert)}), as('bob', qq{SELECT cron.schedule('job', '1 second', $insert)}));
my $of_superuser = $q->(qq{SELECT cron.schedule('job', '1 second', $insert)});
isnt($of_alice, $of_bob, 'a name is of its role');
wait_for($node, 'SELECT count(DISTINCT who) FROM app.seen', 'jobs of all run', 60, expected => 3);
is($q->('SELECT DISTINCT * FROM app.seen ORDER BY 1'), qq{Alice|Alice|"\$user", public\nbob|bob|app\npostgres|postgres|"\$user", public},
	'each as its role, with the search_path of that');
is($q->(qq{SELECT cron.schedule_in_database('by a superuser', '0 0 1 1 *', $insert, 'postgres', 'bob') > 0;
	SELECT COALESCE(search_path, 'that of new sessions') FROM delay_wheel_data.recurring_task WHERE name = 'by a superuser';
	SET ROLE bob; SELECT cron.unschedule('by a superuser')}), "t\nthat of new sessions\nt", 'also if a superuser has made it');
for my $role ('Alice', 'bob')
{
	my $own = $role eq 'bob' ? $of_bob : $of_alice;

	is(as($role, 'SELECT jobid, username FROM cron.job'), "$own|$role", "$role sees the own job");
	is(as($role, 'SELECT DISTINCT jobid, username FROM cron.job_run_details'), "$own|$role", '... and its records');
	is(as($role, 'SELECT jobid FROM cron.job_number'), $own, '... and not more in the table');
	refused($role,
		[ q{SELECT cron.schedule_in_database('x', '* * * * *', 'SELECT 1', 'postgres')}, '42501', 'permission denied', 'schedule_in_database, unless granted' ],
		[ "SELECT cron.alter_job($own, active => false)", '42501', 'permission denied', 'alter_job, unless granted' ]);
}
is($q->('SELECT count(DISTINCT jobid) = 3, count(DISTINCT username) = 3 FROM cron.job'), 't|t', 'a superuser sees all');
$q->('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA cron TO bob, carol; GRANT SELECT, INSERT, UPDATE, DELETE ON cron.job, cron.job_run_details TO bob, carol');
# bob is a member of Alice
refused('bob',
	[ "SELECT cron.unschedule($of_alice)", '42704', "job $of_alice", 'removal of the job of a role that one is a member of' ],
	[ "SELECT cron.alter_job($of_alice, active => false)", '42704', '', 'a change of the job of a role that one is a member of' ],
	[ "SELECT cron.alter_job($of_superuser, command => 'SELECT 1')", '42704', "job $of_superuser", "a change of a superuser's job" ],
	[ "SELECT cron.alter_job($of_bob, username => 'postgres')", '42501', 'only superusers', 'a job made over to a superuser' ],
	[ "SELECT cron.schedule_in_database('x', '* * * * *', 'SELECT 1', 'postgres', 'postgres')", '42501', 'only superusers', 'a job of a superuser' ],
	[ q{SELECT cron.call('delay_cron', 'postgres', 'x', NULL, '* * * * *', 'SELECT 1', 'cron 1000')}, '42501', '', 'the same by a function inside' ],
	[ q{INSERT INTO cron.job (schedule, command, username) VALUES ('* * * * *', 'SELECT 1', 'postgres')}, '42501', '', 'the same by a row' ],
	[ q{INSERT INTO cron.job (jobid, schedule, command) VALUES (1000, '* * * * *', 'SELECT 1')}, '42501', '', 'a number of choice' ],
	[ q{INSERT INTO cron.job_number (jobid, username, schedule) VALUES (1000, 'bob', '* * * * *')}, '42501', '', 'the same in the table' ],
	[ q{INSERT INTO cron.job_number (username, schedule) VALUES ('postgres', '* * * * *')}, '42501', '', 'a row of another role there' ],
	[ q{UPDATE cron.job_number SET username = 'postgres'}, '42501', '', 'a row given away' ]);
is(as('bob', 'DELETE FROM cron.job RETURNING jobid'), $of_bob, 'a role that may delete rows deletes its own');
is(as('bob', qq{SELECT cron.schedule('job', '1 second', $insert)}) > $of_bob ? 'new' : 'old', 'new', 'a job that comes back has another number');
is(as('carol', 'SELECT count(*) FROM cron.job'), 0, 'a role without a job sees none');
# tags of one's own choice
as('bob', qq{SELECT public.delay_every('cron $of_alice', '1 second', 'SELECT 666', tag => 'cron $of_alice')});
wait_for($node, q{SELECT max(runs) FROM delay_wheel.recurring WHERE sql = 'SELECT 666'}, 'a task pretends to be a job', 60, expected => 2);
is($q->("SELECT count(*), max(username) FROM cron.job WHERE jobid = $of_alice"), '1|Alice', 'it is none');
is(as('Alice', q{SELECT count(*) FROM cron.job_run_details WHERE command = 'SELECT 666'}), 0, '... nor shown to the owner of the job');
$q->(qq{SET ROLE bob; SELECT public.delay_unschedule('cron $of_alice')});
as('bob', q{SELECT public.delay_unschedule('job'); SELECT public.delay_every('job', '1 day', 'SELECT 667', tag => 'mine')});
is(as('bob', 'SELECT count(*) FROM cron.job'), 0, 'a task in the place of a job is none either');
as('bob', q{SELECT public.delay_unschedule('job')});

#
# A superuser handles jobs of a role that lays traps.
#
$q->(q{CREATE SCHEMA trap AUTHORIZATION bob; CREATE TABLE trapped (who name, what text); GRANT INSERT ON trapped TO PUBLIC; GRANT CREATE ON SCHEMA public TO bob;
	ALTER ROLE bob SET search_path = trap, pg_catalog, public});
my $trap = sub
{
	my ($signature, $returns) = @_;
	return qq{CREATE FUNCTION $signature RETURNS $returns LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO public.trapped VALUES (current_user, '$signature'); RETURN NULL; END\$\$;};
};
as('bob', join ' ',
	(map { my $schema = $_; map { $trap->("$schema.$_", 'text') } 'current_setting(text)', 'set_config(text, text, boolean)', 'format(text, text)', 'to_regrole(text)',
		'has_table_privilege(regrole, oid, text)', 'pg_get_userbyid(regrole)', 'quote_ident(name)', 'lower(text)' } qw(trap public)),
	(map { $trap->("public.$_", 'bigint') } 'delay_every(name text, every interval, sql_text text, tag text, options text)',
		'delay_cron(name text, schedule text, sql_text text, tag text, options text)',
		'delay_cron(a text, b text, c text, d text[], e jsonb, f timestamptz, g timestamptz, h text, i text, j text, k int, l int, m json)'),
	(map { $trap->("public.delay_unschedule($_)", 'boolean') } 'name', 'varchar'),
	(map { my $schema = $_; $trap->("$schema.differs(text, text)", 'boolean') . "CREATE OPERATOR $schema.<> (FUNCTION = $schema.differs, LEFTARG = text, RIGHTARG = text);
		CREATE OPERATOR $schema.= (FUNCTION = $schema.differs, LEFTARG = text, RIGHTARG = text); CREATE OPERATOR $schema.|| (FUNCTION = $schema.differs, LEFTARG = text, RIGHTARG = text);" } qw(trap public)));
my $handled = $q->(q{SET search_path = trap, public, pg_catalog;
	SELECT cron.schedule_in_database('made for', '0 0 1 1 *', 'SELECT 1', 'postgres', 'bob', false)});
$q->(qq{SET search_path = trap, public, pg_catalog; SELECT cron.alter_job($handled, '1 second', 'VACUUM trapped', NULL, 'bob', true);
	SELECT cron.alter_job($handled, NULL, 'SELECT 1', NULL, NULL, NULL); SELECT cron.alter_job($handled, NULL, NULL, NULL, 'Alice', NULL);
	SELECT cron.alter_job($handled, NULL, NULL, NULL, 'bob', NULL); SELECT FROM cron.job; SELECT FROM cron.job_run_details;
	SET ROLE bob; SELECT cron.schedule('by role', '0 0 1 1 *', 'SELECT 1'); RESET ROLE;
	SELECT cron.unschedule($handled); UPDATE cron.job SET active = false; DELETE FROM cron.job});
is($q->('SELECT * FROM trapped'), '', 'no trap is met');
is($q->('SELECT count(*) FROM delay_wheel.recurring'), 0, '... and all was done');
$q->('REVOKE CREATE ON SCHEMA public FROM bob; DROP SCHEMA trap CASCADE; DROP OWNED BY bob');

#
# A superuser writes rows; a dump has all.
#
$q->(q{SELECT delay_wheel.allow('bob')});
is($q->(q{INSERT INTO cron.job (schedule, command) VALUES ('* * * * *', 'SELECT 1') RETURNING jobid > 0}), 't', 'a row is a job');
$q->(qq{COPY cron.job FROM STDIN;\n1000\t0 0 * * *\tSELECT 2\tthere\t1\tpostgres\tbob\tf\tcopied\n\\.\n});
is($q->(q{SELECT schedule, command, username, active, jobname FROM cron.job WHERE jobid = 1000}), '0 0 * * *|SELECT 2|bob|f|copied', 'COPY makes jobs, with their numbers');
is($q->(q{SELECT cron.schedule('next', '0 0 * * *', 'SELECT 3')}), 1001, 'the next one has the next number');
is($q->(q{UPDATE cron.job SET active = false, schedule = '@daily', username = 'Alice' WHERE jobid = 1001 RETURNING jobname}), 'next', 'a row is changed');
is($q->(q{SELECT username, active, schedule FROM cron.job WHERE jobid = 1001}), 'Alice|f|@daily', '... and so is the job');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-Fc', '-f', $dump, 'postgres' ], 'dumped');
$q->('CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '-h', $node->host, '-p', $node->port, '-d', 'copy', $dump ], 'restored');
is($node->safe_psql('copy', $jobs), $q->($jobs), 'a copy has the jobs');
is($node->safe_psql('copy', q{SELECT delay_wheel.arm() > 0, cron.schedule('more', '0 0 * * *', 'SELECT 4')}), 't|1002', '... and can have more');
$q->('SELECT cron.unschedule(jobid) FROM cron.job; DROP DATABASE copy');

#
# The document's ways.
#
my $document = 'doc/from-pg_cron.md';
my ($blocks) = Documents::parse_document(slurp_file("$root/$document"));
# those with <!-- shown by: test/t/425_pg_cron.pl -->
my ($move, $left_out, $others, $back, $others_back) = map { $_->{text} } grep { ($_->{shown_by} // '') eq 'test/t/425_pg_cron.pl' } @$blocks;

# the database that has pg_cron is another one here
s/-d postgres /-d moved / or die for $others, $others_back;

sub in_moved
{
	my ($sql) = @_;
	return $node->safe_psql('moved', "\\cd $root\n$sql");
}

# A test: the commands are done.
sub in_shell
{
	my ($commands, $what) = @_;
	my $said = '';
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'moved');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(IPC::Run::run([ 'bash', '-euo', 'pipefail', '-c', "cd $root\n$commands" ], '<', \undef, '>&', \$said), $what) || diag($said);
}

$q->('CREATE DATABASE moved; CREATE DATABASE app');
my $create = 'CREATE EXTENSION pg_cron;';
if (!$has_pg_cron)
{
	note('pg_cron is not installed: tables stand in for it');
	$create = q{CREATE SCHEMA cron; CREATE SEQUENCE cron.jobid_seq; SET cron.host = 'localhost';
		CREATE TABLE cron.job (jobid bigint PRIMARY KEY DEFAULT nextval('cron.jobid_seq'), schedule text NOT NULL, command text NOT NULL,
			nodename text NOT NULL DEFAULT 'localhost', nodeport int NOT NULL DEFAULT 5432, database text NOT NULL DEFAULT current_database(),
			username text NOT NULL DEFAULT current_user, active boolean NOT NULL DEFAULT true, jobname text, UNIQUE (jobname, username));
		CREATE TABLE cron.job_run_details (jobid bigint, runid bigint, job_pid int, database text, username text, command text, status text,
			return_message text, start_time timestamptz, end_time timestamptz);};
	$move =~ s/DROP EXTENSION pg_cron/DROP SCHEMA cron CASCADE/ or die;
	$back =~ s/CREATE EXTENSION pg_cron;/$create/ or die;
}
in_moved($create);
in_moved(q{INSERT INTO cron.job (jobid, schedule, command, nodename, nodeport, database, username, active, jobname) VALUES
	(3, '0 3 * * *', 'VACUUM', 'there', 1, 'moved', 'postgres', true, 'vacuum'), (5, '*/5 * * * *', 'SELECT 1', 'there', 1, 'moved', 'Alice', false, NULL),
	(6, '@reboot', 'SELECT 2', 'there', 1, 'moved', 'postgres', true, NULL), (7, '0 0 1 1 *', 'INSERT INTO ran VALUES (1)', 'there', 1, 'app', 'bob', true, 'of app')});
my (undef, undef, $err) = $node->psql('moved', "\\cd $root\nINSERT INTO cron.job (schedule, command, nodeport) VALUES ('0 3 * * *', 'BEGIN; COMMIT', 1);\n$move", on_error_stop => 1);
like($err, qr/ERROR:  cannot execute BEGIN.*QUERY:  BEGIN; COMMIT\n/s, 'a job that cannot be taken is named');
is(in_moved(q{SELECT count(*), to_regclass('pg_cron_job') IS NULL, to_regclass('cron.job_number') IS NULL FROM cron.job}), '5|t|t', '... and all is as it was');
in_moved(q{DELETE FROM cron.job WHERE command LIKE 'BEGIN%'});
my $before = in_moved(q{SELECT jobid, schedule, command, username, active, jobname FROM cron.job WHERE jobid < 6 ORDER BY jobid});
in_moved($move);
is(in_moved($jobs), $before, 'jobs move, with numbers, owners and states');
is(in_moved(q{SELECT count(*) FROM pg_extension WHERE extname = 'pg_cron'}), 0, 'pg_cron is gone');
is(in_moved(q{SET SESSION AUTHORIZATION "Alice"; SELECT cron.unschedule(jobid), jobid FROM cron.job}), 't|5', 'roles may use theirs');
is(in_moved($left_out =~ s/SELECT jobid,.*(?= FROM)/SELECT string_agg(jobid::text, ' ' ORDER BY jobid)/r), '6 7', 'those that were left out are listed');
in_shell($others, 'so do those of another database');
is($node->safe_psql('app', $jobs), '7|0 0 1 1 *|INSERT INTO ran VALUES (1)|bob|t|of app', '... with all that belongs to them');
$node->safe_psql('app', q{CREATE TABLE ran (n int); GRANT INSERT ON ran TO bob; SELECT delay_reschedule(task, '0') FROM delay_wheel.recurring});
wait_for($node, 'SELECT count(*) FROM ran', 'they run there', 60, db => 'app', expected => 1);
in_moved(q{SELECT cron.schedule('made here', '0 4 * * *', 'SELECT 4')});
my $there = in_moved($jobs);
in_moved($back);
is(in_moved($jobs), $there, 'and back');
is(in_moved(q{SELECT nextval('cron.jobid_seq') - max(jobid) FROM cron.job}), 1, 'with numbers that go on');
in_shell($others_back, 'those of another database follow');
is(in_moved(q{SELECT schedule, command, database, username, active FROM cron.job WHERE jobname = 'of app'}), '0 0 1 1 *|INSERT INTO ran VALUES (1)|app|bob|t',
	'... with all that belongs to them');
is($node->safe_psql($_, q{SELECT count(*), to_regclass('cron.job_number') IS NULL FROM delay_wheel.recurring}), '0|t', "nothing is left in $_") for qw(moved app);
refused('postgres', [ "\\c moved\n$load", '42710', 'HINT:  Keep the rows', 'the file beside pg_cron' ]) if $has_pg_cron;

#
# pg_cron's own test.
#
SKIP:
{
	skip 'no DW_PG_CRON', 1 if !$ENV{DW_PG_CRON};
	$q->('DROP SCHEMA cron CASCADE; SELECT delay_wheel.drop_queue(\'pg_cron\'); DROP TABLE IF EXISTS test; CREATE DATABASE regress');
	$node->safe_psql('regress', q{CREATE EXTENSION delay_wheel; SELECT delay_wheel.allow('public')});

	my @statements = statements_of($ENV{DW_PG_CRON});
	my ($script, @other) = ('');
	for my $n (0 .. $#statements)
	{
		# to be run with this instead
		my $text = $statements[$n]{text};
		$text = $text =~ /^CREATE EXTENSION/ ? "$load\\set ON_ERROR_STOP off\n"
		  : $text =~ /^DROP EXTENSION/ ? "DELETE FROM cron.job; DROP SCHEMA cron CASCADE;\n"
		  : $text =~ /^ALTER EXTENSION/ ? '' : $text;
		$script .= "\\echo ## $n\n\\warn ## $n\n$text";
	}
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-X', '-q', '-d', $node->connstr('regress') ], '<', \$script, '>', \$out, '2>', \$err);
	my (undef, %out) = split /^## (\d+)\n/m, $out, -1;
	my (undef, %err) = split /^## (\d+)\n/m, $err, -1;
	my @calls = grep { $statements[$_]{text} =~ /\bcron\.\w/ } 0 .. $#statements;
	for my $n (@calls)
	{
		my $got = plain(($err{$n} // '') . ($out{$n} // ''));

		push @other, "$statements[$n]{text}there: " . plain($statements[$n]{expected}) . "\nhere:  $got" if $got ne plain($statements[$n]{expected});
	}
	note("$_\n") for @other;
	note(sprintf '%d of %d statements do the same', @calls - @other, scalar @calls);
	is_deeply([ grep { !/\Qjob_id:=6,database:='pgcron_dbyes'\E|^SELECT database |\@restart|\*\/60/ } @other ], [], 'all others do the same');
	cmp_ok(scalar @calls, '>', 50, 'there were statements');
}

# Statements of the regress test, with what they print there.
sub statements_of
{
	my ($dir) = @_;
	my @printed = split /\n/, slurp_file("$dir/expected/pg_cron-test.out");
	my (@statements, $open);

	for my $line (grep { /\S/ } split /\n/, slurp_file("$dir/sql/pg_cron-test.sql"))
	{
		while (@printed && $printed[0] ne $line)
		{
			$statements[-1]{expected} .= shift(@printed) . "\n";
		}
		shift @printed // die "not in the output: $line\n";
		next if $line =~ /^--/;
		push @statements, { text => '', expected => '' } if !$open;
		$statements[-1]{text} .= "$line\n";
		$open = $line !~ /;\s*$/;
	}
	$statements[-1]{expected} .= join("\n", @printed);
	return @statements;
}

# Each has errors of its own words.
sub plain
{
	my ($text) = @_;

	return 'an error' if $text =~ /^(?:psql:.*)?ERROR:/m;
	return $text =~ s/-+/-/gr =~ s/\s+/ /gr =~ s/^ | $//gr;
}

$node->stop;
done_testing();
