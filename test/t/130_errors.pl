# Errors outside of a task's SQL: at its commit, while its failure is recorded,
# while it is claimed, and for want of processes.  Each is recorded once, or
# passes; the log tells of it once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('errors', injection => 1, conf => q{
log_statement = none
log_min_error_statement = panic
delay_wheel.executor_idle_timeout = 1h
});
$node->safe_psql('postgres', q{
	CREATE TABLE effects (n int);
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
});

my $id;

sub schedule
{
	my ($sql, $role) = @_;
	$id = (split /\n/, $node->safe_psql('postgres',
		($role ? "SET ROLE $role; " : '') . "SELECT delay_schedule('0', \$\$$sql\$\$)"))[-1];
	return $id;
}

sub ran
{
	my ($n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effects WHERE n = $n", $what, 60, expected => 1);
}

# Each failure once, with the task's own error.
sub failed_with
{
	my ($sqlstate, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, "SELECT sqlstate, attempts FROM delay_wheel.failed WHERE id = $id", $what, 60,
		expected => "$sqlstate|1");
	return;
}

sub nothing_pending
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', $what, 60, expected => 0);
	return;
}

sub count_in_log
{
	my ($position, $pattern) = @_;
	return scalar(() = log_since($node, $position) =~ /$pattern/g);
}

#
# At the commit.
#
schedule('INSERT INTO effects VALUES (1); INSERT INTO child VALUES (1)');
failed_with('23503', 'an error of a deferred constraint is recorded');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effects'), 0, 'the task had no effect');
schedule('INSERT INTO child VALUES (2); INSERT INTO parent VALUES (2); INSERT INTO effects VALUES (2)');
ran(2, 'a deferred constraint that is met does not matter');
nothing_pending('nothing is left');

# Cancelled between the commit that failed and the recording.
attach($node, 'claim-before-fetch', 'wait', 1, 1);
schedule('INSERT INTO effects VALUES (3); INSERT INTO child VALUES (3)');
wait_until_waiting($node, 'claim-before-fetch', 'the failure of a commit is about to be recorded');
is($node->safe_psql('postgres', "SELECT delay_cancel($id)"), 'cancelled', 'meanwhile the task is cancelled');
detach($node, 'claim-before-fetch');
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'the executor gives up', 60, expected => 0);
is($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel.failed WHERE id = $id"), 0,
	'a cancelled task has not failed');

#
# While a failure is recorded, several times over.
#
my $position = log_position($node);
attach($node, 'record-before-insert', 'error', 0, 4);
schedule('SELECT 1 / 0');
failed_with('22012', 'a failure is recorded, in spite of errors while it is');
is(count_in_log($position, 'could not record the outcome of task'), 1, 'the log tells of it once');
like($node->safe_psql('postgres', 'SELECT last_problem FROM delay_wheel.status'),
	qr/could not record the outcome of task \d+: error injected/, 'the view shows it');
$node->safe_psql('postgres', 'CREATE ROLE watcher IN ROLE pg_monitor');
like($node->safe_psql('postgres', 'SET ROLE watcher; SELECT last_problem FROM delay_wheel.status'),
	qr/^could not record the outcome of task \d+: see the server's log$/, 'who may not read tasks is not shown what the error says');
$position = log_position($node);
attach($node, 'record-before-insert', 'error', 0, 3);
schedule('INSERT INTO child VALUES (4)');
failed_with('23503', 'so is one at commit');
is(count_in_log($position, 'could not record the outcome of task'), 1, 'and the log tells of it once');

# An error while the end of a task is recorded that was too late is not the task's own.
attach($node, 'run-before-commit', 'error', 0, 2);
$id = $node->safe_psql('postgres', q{SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 h', options => '{"skip_after": "1 min"}')});
nothing_pending('a task that is too late is taken off, in spite of errors');
is($node->safe_psql('postgres', "SELECT skipped FROM delay_wheel.status WHERE database = 'postgres'"), 1, 'it was skipped');
is($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel.failed WHERE id = $id"), 0, 'and has not failed');

# The executor ends meanwhile: another one begins anew.
attach($node, 'record-before-insert', 'fatal', 0, 1);
schedule('SELECT 1 / 0');
failed_with('22012', 'a failure is recorded, though the executor ended before');

#
# While it is claimed.
#
$position = log_position($node);
attach($node, 'claim-after-delete', 'error', 0, 4);
schedule('INSERT INTO effects VALUES (5)');
ran(5, 'an error of the claim is not the task\'s');
is(count_in_log($position, 'could not claim task'), 1, 'the log tells of it once');

# Each of them runs once more, or its failure is recorded: never both.
for my $point (qw(run-before-sql run-after-sql run-before-commit run-after-commit))
{
	attach($node, $point, 'error', 0, 1);
	schedule('INSERT INTO effects VALUES (6)');
	nothing_pending("an error at $point ends");
	is( $node->safe_psql('postgres', "SELECT (SELECT count(*) FROM effects WHERE n = 6)
			+ (SELECT count(*) FROM delay_wheel.failed WHERE id = $id)"),
		1, 'the task has run or failed');
	$node->safe_psql('postgres', 'DELETE FROM effects WHERE n = 6');
}
nothing_pending('nothing is left');

#
# No place for a worker process: launcher and timer have one each, and others
# take the rest.
#
$node->append_conf('postgresql.conf', "max_worker_processes = 4\nmax_parallel_workers = 2\n");
$node->restart;
$node->safe_psql('postgres', q{
	CREATE ROLE other LOGIN;
	SELECT delay_wheel.allow('other');
	GRANT ALL ON effects TO other;
	CREATE TABLE seen (n int)});
# launcher, timer, logical replication launcher: one place is left, which an
# executor takes that waits for a lock
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
schedule('SELECT pg_advisory_xact_lock_shared(1); INSERT INTO effects VALUES (7)');
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'an executor takes the last place', 60, expected => 1);
$position = log_position($node);
schedule('INSERT INTO effects VALUES (8)', 'other');
wait_for($node, q{SELECT last_problem LIKE 'cannot run tasks of role "other": no background worker%' AND parked = 1
		FROM delay_wheel.status},
	'the view shows that there is none for another role', 60);
my $retry = q{SELECT max(retry_at) FROM delay_wheel.lanes WHERE owner = 'other'};
is($node->safe_psql('postgres', "SELECT ($retry) IS NULL"), 't', 'it is tried when it is its turn, not at some time');
is(count_in_log($position, 'cannot run tasks of role "other"'), 1, 'the log tells of it once');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
ran(7, 'the task that held the place runs');
ran(8, 'so does the one that had none');
nothing_pending('nothing is left');

# No place for the timer either.
my $no_timer = 'could not start delay_wheel timer';
$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_parallel_workers = 1\n");
$position = log_position($node);
$node->restart;
schedule('INSERT INTO effects VALUES (9)');
is(scalar(worker_pids($node, 'executor')), 0, 'there is no place for an executor');
ok(wait_until(60, sub { count_in_log($position, $no_timer) > 0 }),
	'the log tells that there is none for a timer');
$node->append_conf('postgresql.conf', "max_worker_processes = 20\n");
$node->restart;
ran(9, 'a task waits until there are enough');
is(count_in_log($position, $no_timer), 1, 'the log tells of it once');

done_testing();
