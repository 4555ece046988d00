# Settings at work: the service switched off and on, for the server and for one
# database; timeouts, the log of long tasks, fewer executors, all by reload;
# the warning when there are not enough background workers.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('settings', conf => q{
log_statement = none
delay_wheel.executor_idle_timeout = 1h
});

$node->safe_psql('postgres', q{
	CREATE TABLE effects (n int, serial int GENERATED ALWAYS AS IDENTITY);
	CREATE ROLE a LOGIN; CREATE ROLE b LOGIN; CREATE ROLE c LOGIN;
	SELECT delay_wheel.allow('a', 'b', 'c');
	GRANT ALL ON effects TO PUBLIC;
	CREATE DATABASE other});
$node->safe_psql('other', 'CREATE EXTENSION delay_wheel; CREATE TABLE effects (n int)');

sub schedule
{
	my ($sql, %options) = @_;
	return (split /\n/, $node->safe_psql($options{db} // 'postgres',
		($options{role} ? "SET ROLE $options{role}; " : '')
		  . "SELECT delay_schedule('" . ($options{delay} // 0) . "', \$\$$sql\$\$)"))[-1];
}

sub effects
{
	my ($n, $count, $what, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effects WHERE n = $n", $what, 60,
		expected => $count, db => $db // 'postgres');
}

sub set
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET delay_wheel.$name = $value");
	$node->reload;
	return;
}

sub state_is
{
	my ($db, $state, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT state FROM delay_wheel.status WHERE database = '$db'", $what, 60,
		expected => $state);
}

# What is in the log once another task has run.  Where the lane has one executor,
# it is complete up to there.
sub log_after_task
{
	my ($position) = @_;
	my $id = schedule("SELECT 'the last one'");

	wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id = $id", 'a task runs', 60, expected => 0);
	return log_since($node, $position);
}

sub count_in
{
	my ($text, $pattern) = @_;
	return scalar(() = $text =~ /$pattern/g);
}

#
# enabled, for the server.
#
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
schedule('SELECT pg_advisory_xact_lock_shared(1); INSERT INTO effects VALUES (1)');
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a task runs', 60, expected => 1);
schedule('INSERT INTO effects VALUES (0)', role => 'a');
effects(0, 1, 'so does one of another role, whose executor stays');
# one after the other from then on
set('max_executors', 3);
set('enabled', 'off');
state_is('postgres', 'disabled', 'switched off, the view says so');
state_is('other', 'disabled', 'in all databases');
schedule('INSERT INTO effects VALUES (2)');
schedule('INSERT INTO effects VALUES (2)', role => 'a');
schedule('INSERT INTO effects VALUES (2)', role => 'b');
schedule('INSERT INTO effects VALUES (2)', db => 'other');
# latest first
$node->safe_psql('postgres', q{
	SET ROLE a;
	SELECT delay_schedule_at(now() + i * interval '10 ms', format('INSERT INTO effects VALUES (%s)', 100 + i))
		FROM generate_series(50, 1, -1) i});
$gate->query_safe('SELECT pg_advisory_unlock(1)');
effects(1, 1, 'the task that was running ends as it would');
my $due = $node->safe_psql('postgres', 'SELECT max(due) FROM delay_wheel_data.task');
wait_for($node, "SELECT clock_timestamp() > '$due'", 'all are overdue');
wait_for($node, 'SELECT ready FROM delay_wheel.status WHERE database = current_database()',
	'the timer is at work', 60, expected => 53);
is($node->safe_psql('postgres', 'SELECT count(*) FROM effects'), 2, 'none of them runs');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'b'}), 0,
	'no executor is started');

$gate->quit;
$node->restart;
state_is('postgres', 'disabled', 'it is switched off after a restart');
wait_for($node, 'SELECT ready FROM delay_wheel.status WHERE database = current_database()',
	'the timer is at work', 60, expected => 53);
is(scalar(worker_pids($node, 'executor')), 0, 'there is no executor');

set('enabled', 'on');
effects(2, 3, 'switched on, what was overdue runs');
effects(2, 1, 'in all databases', 'other');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'all of it', 60, expected => 0);
is($node->safe_psql('postgres', 'SELECT string_agg(n::text, $$ $$ ORDER BY serial) FROM effects WHERE n > 100'),
	join(' ', 101 .. 150), 'in the order of due times');
state_is('postgres', 'running', 'the view says so');

#
# enabled, for one database.  The timer reads it at its start.
#
$node->safe_psql('postgres', q{
	ALTER DATABASE other SET delay_wheel.enabled = off;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'other'});
state_is('other', 'disabled', 'one database is switched off');
state_is('postgres', 'running', 'and the other one is not');
schedule('INSERT INTO effects VALUES (3)', db => 'other');
schedule('INSERT INTO effects VALUES (3)');
effects(3, 1, 'a task runs here');
# a reload of the server's setting does not go before the database's
$node->reload;
schedule('INSERT INTO effects VALUES (4)');
effects(4, 1, 'and after a reload');
wait_for($node, q{SELECT ready FROM delay_wheel.status WHERE database = 'other'}, 'it waits there', 60, expected => 1);
is($node->safe_psql('other', 'SELECT count(*) FROM effects WHERE n = 3'), 0, 'and does not run');
$node->safe_psql('postgres', q{
	ALTER DATABASE other RESET delay_wheel.enabled;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'other'});
effects(3, 1, 'switched on, it runs', 'other');

#
# default_timeout, by reload: executors that are there take it in.
#
set('default_timeout', "'50ms'");
wait_for($node, q{SELECT setting FROM pg_settings WHERE name = 'delay_wheel.default_timeout'}, 'reloaded', 60, expected => 50);
my $id = schedule('SELECT pg_sleep(600)');
wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'a task that takes too long is cancelled', 60,
	expected => '57014');
set('default_timeout', 0);

#
# log_min_duration.
#
my $position = log_position($node);
set('log_min_duration', "'100ms'");
$id = schedule(q{SELECT pg_sleep(0.2), 'a long one'});
my $log = log_after_task($position);
like($log, qr/LOG:  delay_wheel task $id took [2-9]\d+\.\d{3} ms, and started \d+\.\d{3} ms after it was due\n[^\n]*DETAIL:  SQL: SELECT pg_sleep\(0\.2\), 'a long one'\n/,
	'a long task is logged with its SQL');
unlike($log, qr/STATEMENT:[^\n]*a long one/, 'once');

$position = log_position($node);
set('log_min_duration', 0);
my $long = 'x' x 5000;
my $id2 = schedule("SELECT '$long'");
my $id3 = schedule('SELECT 1 / 0');
$log = log_after_task($position);
like($log, qr/delay_wheel task $id2 took .*\n.*DETAIL:  SQL: SELECT 'x{1016}\.\.\.\n/, 'of a long text, the beginning');
like($log, qr/delay_wheel task $id3 took /, 'a task that fails is logged, too');

$position = log_position($node);
set('log_min_duration', "'1h'");
schedule('SELECT pg_sleep(0.01)');
unlike(log_after_task($position), qr/delay_wheel task \d+ took/, 'others are not');
set('log_min_duration', -1);

# by role
$node->safe_psql('postgres', 'ALTER ROLE c SET delay_wheel.log_min_duration = 0');
$position = log_position($node);
$id = schedule('SELECT 1', role => 'c');
wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id = $id", 'a task runs', 60, expected => 0);
unlike(log_after_task($position), qr/the last one/, 'others are not logged');
ok(wait_until(60, sub { log_since($node, $position) =~ /delay_wheel task $id took/ }), 'the tasks of one role are logged');

set('max_executors', 4);

#
# What the log quotes of a task that fails at its commit, when its transaction
# and that one's memory are gone.
#
$node->safe_psql('postgres', q{
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)});
$position = log_position($node);
$id = schedule(q{INSERT INTO child VALUES (1) /* at the commit */});
wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'a task fails at its commit', 60, expected => '23503');
like(log_since($node, $position),
	qr/delay_wheel task $id failed: [^\n]*\n(?:[^\n]*(?:DETAIL|CONTEXT)[^\n]*\n)*[^\n]*STATEMENT:  INSERT INTO child VALUES \(1\) \/\* at the commit \*\/\n/,
	'the log quotes its SQL');

#
# max_executors: those that are too many end, idle ones at once and busy ones
# after their task.
#
sub executors
{
	my ($db) = @_;
	return scalar(worker_pids($node, 'executor', $db // 'postgres'));
}
sub wait_for_executors
{
	my ($n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor' AND datname = 'postgres'},
		$what, 60, expected => $n);
}

$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
wait_for_executors(0, 'there is no executor');
$gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
schedule('SELECT pg_advisory_xact_lock_shared(1); INSERT INTO effects VALUES (5)', role => $_) for qw(a a b);
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'three executors are busy', 60, expected => 3);
schedule('INSERT INTO effects VALUES (6)', role => 'c');
effects(6, 1, 'a fourth one is idle');
wait_for_executors(4, 'there are four');
my ($timer) = worker_pids($node, 'timer');
set('max_executors', 2);
wait_for_executors(3, 'of two that are too many, an idle one ends at once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.running'), 3, 'a busy one does not');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
effects(5, 3, 'the tasks end as they would');
wait_for_executors(2, 'after their task there are two executors');
schedule('INSERT INTO effects VALUES (7)', role => $_) for qw(a b c);
effects(7, 3, 'and tasks of all roles run');
cmp_ok(executors(), '<=', 3, 'by no more than two executors, and one more for a role with few tasks');

# also if the timer was away when it was lowered
set('max_executors', 4);
$gate->query_safe('SELECT pg_advisory_lock(1)');
schedule('SELECT pg_advisory_xact_lock_shared(1); INSERT INTO effects VALUES (8)', role => $_) for qw(a b c postgres);
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'more executors are started', 60, expected => 4);
$node->safe_psql('postgres', q{ALTER SYSTEM SET delay_wheel.max_executors = 1; SELECT pg_reload_conf();
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
$gate->query_safe('SELECT pg_advisory_unlock(1)');
effects(8, 4, 'the tasks end as they would');
wait_for_executors(1, 'one executor is left');
set('max_executors', 4);

#
# executor_memory: an executor that has more from the start runs a task all the same.
#
set('executor_memory', 0);
schedule('INSERT INTO effects VALUES (12)') for 1 .. 3;
effects(12, 3, 'tasks run where no memory is to be kept');
# one whose first task another has taken has run none yet, and stays for the next
ok(wait_until(60, sub { return 1 if executors() == 0; schedule('SELECT 1'); return 0; }), 'no executor is left');
set('executor_memory', -1);

#
# turns_ahead: another window, by reload.
#
$node->append_conf('postgresql.conf', "delay_wheel.slots = 60\ndelay_wheel.turns_ahead = 1\n");
$node->restart;
schedule('INSERT INTO effects VALUES (9)', delay => '10 minutes');
my $near = 'SELECT near FROM delay_wheel.status WHERE database = current_database()';
schedule('INSERT INTO effects VALUES (10)');
effects(10, 1, 'the timer is at work');
is($node->safe_psql('postgres', $near), 0, 'a task beyond the window is not in memory');
set('turns_ahead', 30);
wait_for($node, $near, 'it is when the window is longer', 60, expected => 1);
set('turns_ahead', 1);
schedule('INSERT INTO effects VALUES (11)');
effects(11, 1, 'a shorter one does no harm');
$gate->quit;
$node->stop;

#
# Background workers.
#
my $few = new_node('few', conf => "max_worker_processes = 6\nmax_parallel_workers = 2\n", extension => 0);
my $warning = qr/WARNING:  delay_wheel may need (\d+) background workers, but "max_worker_processes" is \d+\n/;
wait_for($few, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'}, 'the launcher is there', 60, expected => 1);
ok(wait_until(60, sub { log_since($few, 0) =~ $warning }), 'a warning if there is not enough even for one database');
# logical replication has one of them
like(log_since($few, 0), qr/may need 8 .* is 6\n.*DETAIL:  One launcher; for each database a timer, a sweeper and up to 4 executors; workers that other libraries have registered: 1 \+ 1 \* \(2 \+ 4\) \+ 1 = 8\.\n.*HINT:  Set "max_worker_processes" to 8, plus 6 for each further database/,
	'with the arithmetic');

$few->append_conf('postgresql.conf', "max_worker_processes = 10\ndelay_wheel.max_executors = 2\n");
$position = log_position($few);
$few->restart;

sub serve
{
	my ($db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$few->safe_psql('postgres', "CREATE DATABASE $db");
	$few->safe_psql($db, 'CREATE EXTENSION delay_wheel');
	wait_for($few, 'SELECT state FROM delay_wheel.status WHERE database = current_database()', "$db is served", 60,
		db => $db, expected => 'running');
	return;
}
sub warnings_are
{
	my ($expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# the launcher may be about to say it
	wait_until($expected eq '' ? 0 : 10, sub { join(' ', log_since($few, $position) =~ /$warning/g) eq $expected });
	is(join(' ', log_since($few, $position) =~ /$warning/g), $expected, $what);
	return;
}

serve('one');
serve('two');
warnings_are('', 'no warning as long as there are enough: 1 + 2 * 4 + 1');
serve('three');
warnings_are('14', 'a warning with the third database');
$few->safe_psql('one', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = current_database()});
wait_for($few, q{SELECT state = 'running' FROM delay_wheel.status WHERE database = 'one'}, 'a timer comes back', 60, db => 'one');
$few->reload;
serve('four');
warnings_are('14 18', 'one more with the fourth, and only then');
$few->safe_psql('postgres', 'ALTER SYSTEM SET delay_wheel.max_executors = 1');
$few->reload;
warnings_are('14 18 14', 'one if it was lowered by too little');
$few->stop;

done_testing();
