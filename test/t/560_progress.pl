# What the background processes say of themselves: delay_wheel.progress while they
# work, when they have done it, and when they were cut off; who may see it; and
# what pg_stat_activity has of each.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# seconds that anything is waited for
my $limit = $ENV{DW_RACE_LIMIT} // 60;
my $node = new_node('progress', injection => has_injection(), conf => q{
log_statement = none
fsync = off
autovacuum = off
restart_after_crash = on
delay_wheel.executor_idle_timeout = 1h
delay_wheel.history_max_size = 1MB
});

sub query { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

sub set
{
	my ($name, $value) = @_;
	query("ALTER SYSTEM SET delay_wheel.$name = '$value'");
	$node->reload;
	return;
}

# Some columns of the row of a work come to be as expected.
sub shows
{
	my ($work, $columns, $expected, $what, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT $columns FROM delay_wheel.progress WHERE work = '$work' AND database = '" . ($db // 'postgres') . "'",
		$what, $limit, expected => $expected, db => $db);
}

sub times_of { return query("SELECT coalesce(max(times), 0) FROM delay_wheel.progress WHERE work = '$_[0]' AND database = 'postgres'") }

# A process of ours is shown to do that; the executors' texts are their owners' SQL.
sub says
{
	my ($kind, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT DISTINCT state, query FROM pg_stat_activity WHERE backend_type = 'delay_wheel $kind' AND coalesce(datname, 'postgres') = 'postgres'",
		$what, $limit, expected => $expected);
}

# Stops at the point what is begun meanwhile, and looks at it.
sub while_at
{
	my ($point, $skip, $begin, $look) = @_;

	attach($node, $point, 'wait', $skip, 1);
	$begin->();
	wait_until_waiting($node, $point);
	$look->();
	detach($node, $point);
	return;
}

my $timer = q{(SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'postgres')};
my $sweeper = q{(SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper')};

#
# At rest.
#
my $loaded = 'phase, active, pid IS NULL, done, total IS NULL, steps = steps_total';
shows('load', 'phase, active, pid IS NULL', 'done|f|t', 'the timer has read the table');
says('timer', 'idle|delay_wheel: sleeping until a task is due, or is scheduled', 'pg_stat_activity has what the timer waits for');
says('launcher', 'idle|delay_wheel: waiting for databases to serve', 'and the launcher');
my @waits = $node->pg_version >= 17
  ? ("DelayWheelLauncher\nDelayWheelTimer", 'DelayWheelExecutor', 'DelayWheelWait')
  : ("Extension\nExtension", 'Extension', 'Extension');
is(query(q{SELECT wait_event FROM pg_stat_activity WHERE backend_type IN ('delay_wheel timer', 'delay_wheel launcher') ORDER BY 1}),
	$waits[0], 'with the names of their waits');

query(q{SELECT delay_schedule('0', 'SELECT 4711')});
wait_for($node, q{SELECT done = 1 FROM delay_wheel.status}, 'a task is done');
says('executor', 'idle|SELECT 4711', 'an executor shows the SQL that it ran last');
is(query(q{SELECT application_name, wait_event_type, wait_event FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'}),
	"delay_wheel|Extension|$waits[1]", 'and that it waits for work');

#
# Loading: rows that plain SQL writes make the timer look at everything.
#
my $before = times_of('load');
my $write = sub {
	my ($n) = @_;
	return query("INSERT INTO delay_wheel_data.task (due, priority, sql, tag) SELECT now() + interval '1 hour', i % 3 - 1, 'SELECT 1', 'written' FROM generate_series(1, $n) i");
};
$write->(3000);
shows('load', "$loaded, done >= 3000, times > $before, rate > 0, unit", 'done|f|t|3000|t|t|t|t|t|tasks', 'all rows are read, which is counted');
is(query(q{SELECT count(*) FROM delay_wheel.progress WHERE duration::text <> round(duration::numeric, 3)::float8::text OR rate::text <> round(rate::numeric, 3)::float8::text}), 0,
	'duration and rate have three digits behind the point');
is(query(q{SELECT steps, started <= now(), duration > 0, duration < 60000 FROM delay_wheel.progress WHERE work = 'load'}),
	'3|t|t|t', 'with the lanes, and how long it took');

#
# Removing the rows of cancelled tasks.
#
query(q{SELECT delay_cancel_all(tag => 'written')});
shows('cancel', 'phase, active, pid IS NULL, done, total IS NULL, unit, steps, steps_total, rate > 0', 'done|f|t|3000|t|tasks|1|1|t',
	'what the sweeper has removed');
SKIP:
{
	my $open = $node->background_psql('postgres');
	$open->query_safe(q{BEGIN; SELECT delay_schedule('1 hour', 'SELECT 1')});
	$write->(1);
	query(q{SELECT delay_cancel_all(tag => 'written')});
	shows('cancel', "phase, active, pid = $sweeper, done, steps, steps_total", 'waiting|t|t|1|0|1', 'it waits for a transaction that may bring more');
	says('sweeper', 'idle|delay_wheel: resting between two pieces of work', 'at rest');
	query("SELECT pg_terminate_backend($sweeper)");
	$open->query_safe('COMMIT');
	shows('cancel', 'phase, active, steps, steps_total', 'done|f|1|1', 'the next one goes on with that');
	$open->quit;
}
query(q{SELECT delay_cancel_all(due_from => '-infinity')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'all is removed', 60, expected => 0);

#
# Tasks of dropped roles.
#
query(q{CREATE ROLE leaver LOGIN; SELECT delay_wheel.allow('leaver')});
query(q{SET SESSION AUTHORIZATION leaver; SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 50)});
query(q{SELECT delay_wheel.disallow('leaver'); DROP ROLE leaver});
shows('dropped roles', 'phase, active, done, unit', 'done|f|50|tasks', 'tasks of a role that was dropped are counted');

#
# Old failed tasks, the history, recurring tasks.
#
set('failed_max_count', 10);
shows('failed', 'phase, active, done, total IS NULL, unit', 'done|f|40|t|rows', 'so are failed ones that are too many');
query(q{ALTER SYSTEM RESET delay_wheel.failed_max_count});
$node->reload;

query(q{ALTER SYSTEM SET delay_wheel.history = 'all'});
$node->reload;
query(q{SELECT count(delay_schedule('0', 'SELECT 1 -- ' || repeat('x', 150))) FROM generate_series(1, 6000)});
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, 'many tasks are done', 120, expected => 0);
shows('history', q{phase, active, done > 20, total IS NULL, unit}, 'done|f|t|t|pages', 'pages of the history that were given back are counted');

query(q{SELECT delay_every('one', '1 day', 'SELECT 1', starts => now() + interval '1 day'), delay_every('two', '1 day', 'SELECT 1', starts => now() + interval '1 day')});
query("SELECT pg_terminate_backend($timer)");
shows('recurring', 'phase, active, done, unit', 'done|f|2|recurring tasks', 'recurring tasks are looked at when a timer starts');

#
# While it goes on, and cut off.
#
SKIP:
{
	skip 'there is no injection build', 34 if !has_injection();

	while_at('load-row', 3500, sub { $write->(4000) }, sub {
		shows('load', "phase, active, pid = $timer, done BETWEEN 1000 AND 3600, steps < steps_total, rate > 0", 'loading|t|t|t|t|t', 'a load that goes on');
		says('timer', 'active|delay_wheel: loading tasks of the near future', 'and what the timer does meanwhile');
	});
	shows('load', 'phase, active, done >= 4000', 'done|f|t', 'it comes to its end');
	while_at('reload-after-scan', 0, sub { $write->(1) }, sub {
		shows('load', "phase, active, pid = $timer", 'looking for lanes|t|t', 'a look for lanes that goes on');
		attach($node, 'begin-after-reset', 'wait', 0, 1);
		query("SELECT pg_terminate_backend($timer)");
	});
	wait_until_waiting($node, 'begin-after-reset', 'another timer begins');
	shows('load', 'phase, active, pid IS NULL', 'interrupted|f|t', 'the first one was interrupted');
	detach($node, 'begin-after-reset');
	shows('load', 'phase, active', 'done|f', 'the other one does it');

	while_at('sweep-before-commit', 1, sub { query(q{SELECT delay_cancel_all(tag => 'written')}) }, sub {
		shows('cancel', "phase, active, pid = $sweeper", 'sweeping|t|t', 'a sweep that goes on');
		says('sweeper', 'active|delay_wheel: removing rows of cancelled tasks', 'and what the sweeper does meanwhile');
	});
	shows('cancel', 'phase, done >= 4001', 'done|t', 'it comes to its end');

	while_at('trim-before-commit', 0, sub { set('failed_max_count', 5) }, sub {
		shows('failed', "phase, active, pid = $sweeper", 'counting|t|t', 'failed tasks are being counted');
		says('sweeper', 'active|delay_wheel: removing old rows of failed tasks', 'and what the sweeper does meanwhile');
	});
	shows('failed', 'phase, done', 'done|5', 'it comes to its end');
	while_at('trim-before-commit', 1, sub { set('failed_max_count', 2) }, sub {
		shows('failed', "phase, active", 'deleting|t', 'failed tasks are being deleted');
		query("SELECT pg_terminate_backend($sweeper)");
	});
	shows('failed', 'phase, done', 'done|3', 'another sweeper does it, if the first one was terminated');

	while_at('repair-before-commit', 0, sub { query("SELECT pg_terminate_backend($timer)") }, sub {
		shows('recurring', "phase, active, pid = $sweeper", 'checking|t|t', 'recurring tasks are being looked at');
		says('sweeper', 'active|delay_wheel: looking whether recurring tasks have their runs', 'and what the sweeper does meanwhile');
	});
	shows('recurring', 'phase, done', 'done|2', 'it comes to its end');
}

#
# The history's tables are locked by somebody.
#
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; LOCK delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2 IN ACCESS SHARE MODE');
set('history_max_age', '1 min');
query(q{DO $$BEGIN FOR i IN 0..2 LOOP EXECUTE format('UPDATE delay_wheel_data.history_%s SET ended = ended - interval ''1 day''', i); END LOOP; END$$});
set('history_max_age', '2 min');
shows('history', 'phase, active', 'waiting|t', 'emptying waits for who has locked the tables');
$reader->quit;
shows('history', 'phase, active, done > 0', 'done|f|t', 'and goes on when they have ended');

#
# Who sees what.
#
query('CREATE DATABASE second; CREATE ROLE plain LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
query('CREATE EXTENSION delay_wheel', 'second');
shows('load', 'phase', 'done', 'another database is served', 'second');
my $databases = 'SELECT DISTINCT database FROM delay_wheel.progress ORDER BY 1';
is($node->safe_psql('second', $databases, extra_params => [ '-U', 'plain' ]), 'second', 'everybody sees what goes on in the own database');
is($node->safe_psql('second', $databases, extra_params => [ '-U', 'watcher' ]), "postgres\nsecond", 'pg_monitor in all of them');
is(query('SELECT count(*) FROM delay_wheel.progress', 'second') > 1, 1, 'superusers, too');

# from nothing after a crash
my ($postmaster) = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'");
kill 'KILL', $postmaster;
wait_for($node, q{SELECT string_agg(work || ' ' || times, ', ' ORDER BY work) FROM delay_wheel.progress WHERE database = 'postgres' AND NOT active},
	'after a crash of the server it is counted anew', 60, expected => 'failed 1, load 1, recurring 1');

$node->stop;
done_testing();
