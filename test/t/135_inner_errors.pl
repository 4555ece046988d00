# Errors in what timer and sweeper do by themselves, and an executor that does not
# come up: each is said, and what was to be done is done when they are over.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('inner_errors', injection => 1, conf => q{
log_statement = none
log_min_error_statement = panic
delay_wheel.executor_idle_timeout = 1h
delay_wheel.failed_max_count = 0
});
$node->safe_psql('postgres', q{
	CREATE TABLE effects (n int);
	GRANT ALL ON effects TO PUBLIC;
	CREATE ROLE other LOGIN;
	CREATE ROLE leaver LOGIN;
	SELECT delay_wheel.allow('other'), delay_wheel.allow('leaver')});

my $n = 0;

# Schedules a task as that role; the number it will insert.
sub schedule
{
	my ($role) = @_;

	$n++;
	$node->safe_psql('postgres',
		"SET ROLE $role; SELECT delay_schedule('0', 'INSERT INTO effects VALUES ($n)')");
	return $n;
}

sub runs
{
	my ($number, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT count(*) FROM effects WHERE n = $number", $what, 60, expected => 1);
}

# While every read of the timer fails: the statements, until the problem shows.
sub with_failing_reads
{
	my ($problem, @sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	attach($node, 'load-before-snapshot', 'error', 0, 0);
	$node->safe_psql('postgres', $_) for @sql;
	wait_for($node, "SELECT last_problem LIKE 'could not $problem: error injected%' FROM delay_wheel.status",
		"the view tells: could not $problem");
	detach($node, 'load-before-snapshot');
	return;
}

#
# The timer's reads.
#
$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('pausable')});
attach($node, 'load-before-snapshot', 'error', 0, 5);
$node->safe_psql('postgres', q{SELECT delay_wheel.pause_queue('pausable')});
$node->safe_psql('postgres', q{
	SELECT delay_schedule_task('INSERT INTO effects VALUES (-1)', queue => 'pausable')});
runs(schedule('other'), 'other tasks run');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task'), 1,
	'a pause that could not be read at once is obeyed');
$node->safe_psql('postgres', q{SELECT delay_wheel.resume_queue('pausable')});
runs(-1, 'the paused task runs later');

with_failing_reads('forget prepared transactions',
	q{BEGIN; SELECT delay_schedule('0', 'INSERT INTO effects VALUES (-2)'); PREPARE TRANSACTION 'p'},
	q{COMMIT PREPARED 'p'});
runs(-2, 'a prepared task runs');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.prepared', 'the transaction is forgotten', 60, expected => 0);

$node->safe_psql('postgres', q{SET ROLE leaver; SELECT delay_schedule('1 day', 'SELECT 1')});
with_failing_reads('move tasks of a dropped role', 'DROP OWNED BY leaver; DROP ROLE leaver');
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, 'the tasks of a dropped role are moved', 60, expected => 0);

$node->safe_psql('postgres', q{SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', tag => 't')) FROM generate_series(1, 10)});
with_failing_reads('look for cancellations', q{SELECT delay_cancel_all(tag => 't')});
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'cancelled tasks are removed', 60, expected => 0);

# Its own transactions go on as if nothing had been.
runs(schedule('other'), 'tasks run');

#
# The sweeper's.
#
my $position = log_position($node);
attach($node, 'sweep-before-commit', 'error', 0, 2);
$node->safe_psql('postgres', q{SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', tag => 'u')) FROM generate_series(1, 10);
	SELECT delay_cancel_all(tag => 'u')});
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'cancelled tasks are removed after errors', 60, expected => 0);
like(log_since($node, $position), qr/error injected at "sweep-before-commit"/, 'the log has the error');

$position = log_position($node);
attach($node, 'trim-before-commit', 'error', 0, 1);
$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT 1 / 0')});
ok(wait_until(60, sub { log_since($node, $position) =~ /error injected at "trim-before-commit"/ }),
	'an error while failed tasks are removed is in the log');
# a new failure does not make it look again before its time; a start does
$node->restart;
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'failed tasks are removed', 60, expected => 0);

# what fails when those that are too many have been counted, and are not removed yet
attach($node, 'trim-before-commit', 'wait', 0, 1);
$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT 1 / 0')});
wait_until_waiting($node, 'trim-before-commit', 'the sweeper has counted');
$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT 2 / 0')});
wait_for($node, q{SELECT failed FROM delay_wheel.status WHERE database = current_database()}, 'another task has failed meanwhile', 60, expected => 2);
detach($node, 'trim-before-commit');
# after a pause of up to a minute, since the pass took long
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'it is removed, too', 150, expected => 0);

#
# What executors read.
#
attach($node, 'marks-before-read', 'error', 0, 2);
$node->safe_psql('postgres', q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'v');
	SELECT delay_cancel_all(tag => 'v')});
runs(schedule('other'), 'a task runs, though cancellations could not be read at first');
detach($node, 'marks-before-read');

#
# Executors that do not come up, of a role that has none yet.
#
$node->safe_psql('postgres', q{CREATE ROLE late LOGIN; SELECT delay_wheel.allow('late')});
attach($node, 'executor-before-connect', 'fatal', 0, 2);
my $late = schedule('late');
wait_for($node, q{SELECT last_problem LIKE '%could not connect%' FROM delay_wheel.status},
	'the view tells that executors do not come up');
runs(schedule('other'), 'tasks of another role run');
runs($late, 'theirs runs when one has come up');

#
# delay_wheel.arm() that fails has armed nothing.
#
$node->safe_psql('postgres', q{
	SELECT delay_schedule('0', 'INSERT INTO effects VALUES (-3)') FROM delay_pause_all();
	UPDATE delay_wheel_data.task SET origin = 1});
$node->safe_psql('postgres', 'SELECT delay_resume_all()');
attach($node, 'arm-before-delete', 'error', 0, 1);
my ($status, $out, $error) = $node->psql('postgres', 'SELECT delay_wheel.arm()');
like($error, qr/error injected at "arm-before-delete"/, 'delay_wheel.arm() fails');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task WHERE origin = 1'), 1, 'and has armed nothing');
is($node->safe_psql('postgres', 'SELECT delay_wheel.arm()'), 1, 'the next one does');
runs(-3, 'and the task runs');

#
# A row that a stranger has locked, and let go of without a word: the one look
# that no event causes, after five minutes.
#
SKIP:
{
	skip 'takes five minutes', 2 unless long_tests();
	my $stranger = $node->background_psql('postgres');

	$stranger->query_safe(q{SELECT delay_schedule('3 s', 'INSERT INTO effects VALUES (-4)')});
	$stranger->query_safe('BEGIN');
	$stranger->query_safe('SELECT FROM delay_wheel_data.task FOR UPDATE');
	wait_for($node, 'SELECT now() > max(due) FROM delay_wheel_data.task', 'a locked task is due');
	# more than enough for the claim to meet the lock
	sleep(5);
	$stranger->query_safe('COMMIT');
	$stranger->quit;
	wait_for($node, 'SELECT count(*) FROM effects WHERE n = -4', 'it runs when the timer looks again', 400,
		expected => 1);
}

#
# Nothing is left, and nothing was done twice.
#
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT FROM effects GROUP BY n HAVING count(*) > 1) twice'), 0,
	'nothing ran twice');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'nothing is left', 60, expected => 0);
$node->stop;

done_testing();
