# Servers with few background workers: who gets them, and what tells that there
# are none.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('few', conf => q{
log_statement = none
max_logical_replication_workers = 0
max_parallel_workers = 2
max_worker_processes = 3
delay_wheel.batch_tasks = 1
});
$node->safe_psql('postgres', q{
	CREATE ROLE a LOGIN; CREATE ROLE b LOGIN; CREATE ROLE c LOGIN;
	SELECT delay_wheel.allow('a', 'b', 'c');
	CREATE TABLE ran (who name DEFAULT current_user, at timestamptz DEFAULT clock_timestamp(), pid int DEFAULT pg_backend_pid());
	GRANT ALL ON ran TO PUBLIC});

# Schedules tasks of a role, each of so many milliseconds.
sub schedule_as
{
	my ($role, $tasks, $ms) = @_;
	my $seconds = $ms / 1000;

	$node->safe_psql('postgres', qq{SET SESSION AUTHORIZATION $role;
		SELECT count(delay_schedule('0', 'INSERT INTO public.ran SELECT FROM pg_sleep($seconds)')) FROM generate_series(1, $tasks)});
	return;
}

#
# Launcher, timer, and one executor, for three busy roles.
#
my $position = log_position($node);
my $began = time;
schedule_as($_, 150, 20) for qw(a b c);
wait_for($node, 'SELECT count(*) FROM ran', 'with one executor, tasks of three roles run', 120, expected => 450);
# each turn is of 100 ms; when each change of places took a second, they were much longer
my $waited = $node->safe_psql('postgres', q{SELECT round(1000 * max(extract(epoch FROM at - before))) FROM (
	SELECT at, lag(at) OVER (ORDER BY at) AS before FROM ran) s});
my $turns = $node->safe_psql('postgres', q{SELECT count(DISTINCT pid) FROM ran});
note("$turns turns, the longest time without any task $waited ms");
is($node->safe_psql('postgres', q{SELECT count(DISTINCT who) FROM (SELECT who FROM ran ORDER BY at LIMIT 150) s}), 3, 'none waits for the others to be done');
cmp_ok($turns, '>=', 20, 'they take turns');
my $log = log_since($node, $position);
my $minutes = int((time - $began) / 60);
foreach my $role (qw(a b c))
{
	my $told = () = $log =~ /cannot run tasks of role "$role": no background worker/g;

	cmp_ok($told, '<=', 1 + $minutes, "the log tells no more than once a minute that $role has to wait");
}
like($log, qr/cannot run tasks of role "[abc]": no background worker is free.*\n.*HINT:.*max_worker_processes/, 'the lack of a worker is logged');

#
# The sweeper has the only place, and waits for a transaction that may have
# scheduled more.
#
$node->safe_psql('postgres', q{ALTER SYSTEM SET delay_wheel.executor_idle_timeout = '500ms'; TRUNCATE ran});
$node->reload;
my $sitter = $node->background_psql('postgres');
$sitter->query_safe(q{BEGIN; SELECT delay_schedule('1 day', 'SELECT 1')});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'unwanted')});
my $waits = q{SELECT count(*) FROM delay_wheel.cancellations WHERE state = 'waiting'};
wait_for($node, $waits, 'the sweeper waits', 120, expected => 1);
is(scalar(worker_pids($node)), 3, 'all places are taken');
my @before = worker_pids($node, 'sweeper');
schedule_as('a', 1, 0);
schedule_as('b', 1, 0);
wait_for($node, 'SELECT count(*) FROM ran', 'it makes way for tasks', 60, expected => 2);
wait_for($node, $waits, 'another one comes back', 120, expected => 1);
my @after = worker_pids($node, 'sweeper');
isnt("@after", "@before", 'the sweeper that came back is another process');
schedule_as('c', 1, 0);
wait_for($node, 'SELECT count(*) FROM ran', 'and makes way, too', 60, expected => 3);
$sitter->quit;
wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'when the transaction has ended it comes to the end', 120, expected => 0);
unlike(log_since($node, 0), qr/the sweeper ended by an error/, 'that is no error');

#
# Roles that take turns leave none for others; but those find one as well, from
# time to time: a timer, another database, the sweeper.
#
$node->append_conf('postgresql.conf', "max_worker_processes = 4\n");
$node->restart;
schedule_as($_, 3000, 20) for qw(a b c);
wait_for($node, 'SELECT count(DISTINCT who) FROM ran', 'three busy roles take turns', 60, expected => 3);
$node->safe_psql('postgres', 'CREATE DATABASE two');
$node->safe_psql('two', q{
	CREATE EXTENSION delay_wheel;
	CREATE TABLE ran ();
	SELECT delay_schedule('0', 'INSERT INTO ran DEFAULT VALUES')});
wait_for($node, 'SELECT count(*) FROM ran', 'a task of another database is run', 150, db => 'two', expected => 1);
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'unwanted')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'the sweeper does its work', 150, expected => 0);
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks'), '>', 0, 'while they are busy');
$node->safe_psql('postgres', 'DROP DATABASE two WITH (FORCE)');
$node->safe_psql('postgres', 'DELETE FROM delay_wheel_data.task');

#
# Parallel queries of tasks may take what the server allows, as it is now.
#
sub try_parallel_workers
{
	my ($role, $n) = @_;

	return $node->safe_psql('postgres', qq{SET SESSION AUTHORIZATION $role;
		SELECT delay_schedule('0', 'SET max_parallel_workers = $n; INSERT INTO public.ran DEFAULT VALUES')});
}

# A test: tasks of a role come to be able, or not, to have so many; 1 in the end.
sub comes_to_allow
{
	my ($role, $n, $allowed, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok(wait_until(60, sub {
		my $id = try_parallel_workers($role, $n);
		wait_until(60, sub { $node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel.tasks WHERE id = $id") == 0 });
		my $code = $node->safe_psql('postgres', "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id");
		return $code eq ($allowed ? '' : '22023');
	}), $what);
	return;
}

$node->append_conf('postgresql.conf', "max_worker_processes = 20\n");
$node->safe_psql('postgres', q{ALTER SYSTEM RESET delay_wheel.executor_idle_timeout; ALTER ROLE b SET max_parallel_workers = 1});
$node->restart;
for my $role (qw(a b))
{
	comes_to_allow($role, 3, 0, "no more parallel workers than the server allows, for $role");
	comes_to_allow($role, 2, 1, "as many as it does, for $role");
}
$node->append_conf('postgresql.conf', "max_parallel_workers = 4\n");
$node->reload;
comes_to_allow($_, 4, 1, "more after a reload, for $_") for qw(a b);
$node->append_conf('postgresql.conf', "max_parallel_workers = 1\n");
$node->reload;
comes_to_allow($_, 2, 0, "less after a reload, for $_") for qw(a b);
comes_to_allow($_, 1, 1, "but that, for $_") for qw(a b);

#
# None for executors, the timer, the launcher.
#
$node->safe_psql('postgres', 'TRUNCATE ran');
my $problem = 'SELECT state, last_problem FROM delay_wheel.status WHERE database = current_database()';
for my $case ([ 2, 'running|cannot run tasks of role "a": no background worker is free' ],
	[ 1, 'stopped|could not start the timer: no background worker is free' ],
	[ 0, 'stopped|the launcher is not running: "max_worker_processes" may be too low' ])
{
	my ($n, $expected) = @$case;

	$node->append_conf('postgresql.conf', "max_worker_processes = $n\n");
	$node->restart;
	schedule_as('a', 1, 0);
	wait_for($node, $problem, "max_worker_processes = $n: the view says why nothing runs", 60, expected => $expected);
}
is($node->safe_psql('postgres', "SET SESSION AUTHORIZATION a; $problem"), 'stopped|the launcher is not running: "max_worker_processes" may be too low', 'to everybody');
$node->append_conf('postgresql.conf', "max_worker_processes = 3\n");
$node->restart;
wait_for($node, 'SELECT count(*) FROM ran', 'with enough of them, all runs', 60, expected => 3);

done_testing();
