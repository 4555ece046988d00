# The service from outside: with and without the library, over restarts, when
# its processes are ended, in several databases, dropped and created again.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main', conf => "delay_wheel.executor_idle_timeout = 1h\n");

# Schedules the insertion of a name, which run_once() then waits for.
sub schedule
{
	my ($name, $delay, $db) = @_;
	return $node->safe_psql($db // 'postgres',
		"SELECT delay_schedule('$delay', 'INSERT INTO ran VALUES (''$name'', now())')");
}

sub ran_once
{
	my ($name, $what, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, "SELECT count(*) FROM ran WHERE name = '$name'", $what, 60,
		db => $db, expected => 1);
}

$node->safe_psql('postgres', 'CREATE TABLE ran (name text, at timestamptz)');
schedule('first', '0.5 s');
ran_once('first', 'a task runs');

#
# Restarts.
#
my $due = $node->safe_psql('postgres', q{
	SELECT delay_schedule('1 hour', 'INSERT INTO ran VALUES (''later'', now())');
	SELECT delay_schedule('1 s', 'INSERT INTO ran VALUES (''overdue'', now())');
	SELECT delay_schedule('8 s', 'INSERT INTO ran VALUES (''soon'', now())');
	SELECT extract(epoch FROM max(due)) FROM delay_wheel_data.task WHERE sql LIKE '%overdue%';
});
$due = (split /\n/, $due)[-1];
$node->stop('fast');
# overdue at the start, however fast that is
sleep(0.05) while time() < $due + 0.1;
$node->start;
ran_once('overdue', 'a task that fell due while the server was down runs after its start');
ran_once('soon', 'one that was pending meanwhile runs, too');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.tasks WHERE sql LIKE '%later%'}),
	1, 'one of the far future is pending still');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ran}), 3, 'nothing ran twice');

#
# The server's defaults for transactions are not for ours: this one would wait
# for every transaction that writes.
#
$node->safe_psql('postgres', q{
	ALTER SYSTEM SET default_transaction_isolation = 'serializable';
	ALTER SYSTEM SET default_transaction_read_only = on;
	ALTER SYSTEM SET default_transaction_deferrable = on;
});
$node->restart;
{
# our own sessions as usual
local $ENV{PGOPTIONS} = '-c default_transaction_isolation=read\ committed -c default_transaction_read_only=off';
my $writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe(q{
	BEGIN ISOLATION LEVEL SERIALIZABLE;
	SELECT * FROM ran;
	INSERT INTO ran VALUES ('rolled back', now());
});
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ 'delay_wheel (launcher|timer)'});
$node->safe_psql('postgres', q{
	SELECT delay_schedule('0.2 s', 'INSERT INTO ran VALUES (''defaults'', now())');
});
wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel.tasks WHERE sql LIKE '%defaults%'},
	'a task runs whatever the default kind of transaction is')
  or diag($node->safe_psql('postgres', 'SELECT pid, backend_type, wait_event_type, wait_event FROM pg_stat_activity'));
$writer->query_safe('ROLLBACK');
$writer->quit;
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
}
$node->restart;

#
# Processes are ended.
#
schedule('before', '0');
ran_once('before', 'a task runs');
for my $kind (qw(executor timer launcher))
{
	my ($pid) = worker_pids($node, $kind);

	ok($pid, "there is a process: $kind");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 30000)");
	schedule("after $kind", '0.2 s');
	ran_once("after $kind", "a task runs after the $kind was terminated");
	wait_for($node,
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel $kind' AND pid <> $pid",
		"there is another $kind", 60, expected => 1);
}

# all of them at once, with a task running and one about to be due
$node->safe_psql('postgres', q{
	CREATE TABLE gate (open boolean);
	SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''gate'', now()); SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM gate) THEN 0 ELSE 600 END)');
	SELECT delay_schedule('1 s', 'INSERT INTO ran VALUES (''crowd'', now())');
});
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a long task runs', 60, expected => 1);
$node->safe_psql('postgres', q{
	INSERT INTO gate VALUES (true);
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel %';
});
ran_once('crowd', 'a task runs after all processes were terminated');
ran_once('gate', 'the one that was running, too');

#
# A second database.
#
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION delay_wheel; CREATE TABLE ran (name text, at timestamptz)');
schedule('there', '0.2 s', 'second');
ran_once('there', 'a task runs in a second database', 'second');
schedule('here', '0.2 s');
ran_once('here', 'and in the first one');

$node->safe_psql($_, q{SELECT delay_schedule('2 s', 'INSERT INTO ran VALUES (''restarted'', now())')})
  for qw(postgres second);
$node->restart;
ran_once('restarted', "after a restart a task runs in database $_", $_) for qw(postgres second);
is($node->safe_psql('postgres', q{
		SELECT string_agg(database || ' ' || state, ', ' ORDER BY database) FROM delay_wheel.status}),
	'postgres running, second running', 'both are served, and no other');

#
# DROP EXTENSION, and CREATE again.
#
$node->safe_psql('second', 'DROP EXTENSION delay_wheel');
schedule('undisturbed', '0.2 s');
ran_once('undisturbed', 'after DROP EXTENSION in one database a task runs in the other one');
$node->safe_psql('second', q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_schedule('0.2 s', 'INSERT INTO ran VALUES (''again'', now())');
});
ran_once('again', 'after CREATE EXTENSION once more a task runs', 'second');

# by plain SQL, in the transaction that creates the extension: no hint but that
$node->safe_psql('postgres', 'CREATE DATABASE third');
$node->safe_psql('third', q{
	CREATE TABLE ran (name text, at timestamptz);
	BEGIN;
	CREATE EXTENSION delay_wheel;
	INSERT INTO delay_wheel_data.task (due, sql) VALUES (now(), 'INSERT INTO ran VALUES (''plain'', now())');
	COMMIT;
});
ran_once('plain', 'a row written by plain SQL with CREATE EXTENSION runs', 'third');
$node->safe_psql('third', 'DROP EXTENSION delay_wheel');
wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'third' AND backend_type = 'delay_wheel timer'},
	'the timer leaves a database without the extension');

#
# Dump and restore.
#
$node->safe_psql('postgres', q{
	CREATE DATABASE origin;
	\c origin
	CREATE EXTENSION delay_wheel;
	CREATE TABLE ran (name text, at timestamptz);
	SELECT delay_schedule('1 day', 'INSERT INTO ran VALUES ($1, now())', 'tomorrow'::text);
	SELECT delay_schedule('1 hour', 'INSERT INTO ran VALUES (''restored'', now())');
	SELECT delay_schedule('0', 'SELECT 1/0');
});
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'a task fails', 60,
	db => 'origin', expected => 1);
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '--file', $dump, $node->connstr('origin') ], 'pg_dump');

# for rows and sequence are the same everywhere
my $contents = q{
	SELECT string_agg(concat_ws(' ', id, due, owner, sql, args, arg_types), ', ' ORDER BY id) FROM delay_wheel_data.task;
	SELECT string_agg(concat_ws(' ', id, due, owner, sqlstate, message), ', ' ORDER BY id) FROM delay_wheel.failed;
	SELECT last_value, is_called FROM delay_wheel_data.task_id_seq;
};
my $original = $node->safe_psql('origin', $contents);
like($original, qr/tomorrow.*restored.*division by zero/s, 'the original has what is to be restored');

$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '--no-psqlrc', '--quiet', '-v', 'ON_ERROR_STOP=1', '--file', $dump, $node->connstr('copy') ],
	'restore into another database');
is($node->safe_psql('copy', $contents), $original, 'with all its tasks');
$node->safe_psql('copy', q{
	UPDATE delay_wheel_data.task SET due = now() - interval '1 hour' WHERE sql LIKE '%restored%';
	SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''own'', now())');
});
ran_once('own', "the copy's own task runs", 'copy');
is($node->safe_psql('copy', q{SELECT string_agg(name, ' ') FROM ran}), 'own',
	'the overdue one of the original does not');
is($node->safe_psql('copy', q{SELECT string_agg(armed::text, ' ' ORDER BY id) FROM delay_wheel.tasks}),
	'false false', 'the view shows them as not armed');

#
# Without the library.
#
my $bare = new_node('bare', preload => 0);

my ($ret, $out, $err) = $bare->psql('postgres', '\set VERBOSITY verbose' . "\nCREATE EXTENSION delay_wheel");
is($ret, 0, 'without the library CREATE EXTENSION works');
like($err, qr/WARNING:  55000: no task will run before delay_wheel is loaded/, 'with a warning');
like($err, qr/HINT:  Add delay_wheel to "shared_preload_libraries"/, 'and a hint');

for my $call (
	q{delay_schedule('1 s', 'SELECT 1')}, q{delay_schedule('1 s', 'SELECT $1', 1)},
	q{delay_schedule_at(now(), 'SELECT 1')}, q{delay_schedule_at(now(), 'SELECT $1', 1)},
	q{delay_cancel(1)}, q{delay_reschedule(1, '1 s')}, q{delay_reschedule(1, now())},
	q{count(*) FROM delay_wheel.running}, q{count(*) FROM delay_wheel.ring},
	q{count(*) FROM delay_wheel.status}, q{delay_wheel_internal.count_due('{2100-01-01}')}, q{delay_wheel_internal.next_due()},
	q{count(*) FROM delay_wheel.forecast}, q{delay_wheel.ring_svg()}, q{delay_wheel.forecast_svg()},
	q{delay_wheel.lateness_svg()}, q{count(*) FROM delay_wheel.waiting},
	q{count(*) FROM delay_wheel.lateness}, q{count(*) FROM delay_wheel.recurring_status}, q{delay_wheel.page_data()})
{
	($ret, $out, $err) = $bare->psql('postgres', '\set VERBOSITY verbose' . "\nSELECT $call");
	like($err,
		qr/ERROR:  55000: delay_wheel must be loaded via "shared_preload_libraries".*HINT:  Add delay_wheel to "shared_preload_libraries" in postgresql.conf and restart the server/s,
		"error with hint: $call");
}

$bare->safe_psql('postgres', 'CREATE DATABASE copy');
$bare->command_ok([ 'psql', '--no-psqlrc', '--quiet', '-v', 'ON_ERROR_STOP=1', '--file', $dump, $bare->connstr('copy') ],
	'restore without the library');
is($bare->safe_psql('copy', $contents), $original, 'with all its tasks');
$bare->command_ok([ 'pg_dump', '--file', "$dump.again", $bare->connstr('copy') ], 'dump without the library');
is($bare->safe_psql('copy', q{SELECT count(*) FROM delay_wheel.tasks WHERE NOT armed}), 2,
	'the view of tasks works without the library');

# what was written without the library is found with it
$bare->safe_psql('postgres', q{
	CREATE TABLE ran (name text, at timestamptz);
	INSERT INTO delay_wheel_data.task (due, sql) VALUES (now(), 'INSERT INTO ran VALUES (''plain'', now())');
});
$bare->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
$bare->restart;
wait_for($bare, 'SELECT count(*) FROM ran', 'with the library, what was written before runs', 60, expected => 1);
$bare->stop;

my $log = log_since($node, 0);
unlike($log, qr/PANIC|TRAP|was terminated by signal/, 'no crash');
$node->stop;

done_testing();
