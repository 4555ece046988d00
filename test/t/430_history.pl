# The history of tasks within its bounds: by size, over tens of thousands of
# tasks, without dead rows; by age; while others have its tables locked, which
# holds up no task; over crashes. What is recorded is in sql/history.sql.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $conf = q{
log_statement = none
fsync = off
restart_after_crash = on
delay_wheel.history = all
delay_wheel.history_max_size = 4MB
};
my @tables = map { "delay_wheel_data.history_$_" } 0 .. 2;
# what all files of the tables may have beyond the limit: free space maps, and
# pages by which tables grow at once when several processes write
my $limit = (4 * 1024 + 512) * 1024;
my $sizes = 'SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE oid IN (' . join(', ', map { "'$_'::regclass" } @tables) . ')';
my $current = 'SELECT last_value FROM delay_wheel_data.history_seq';

my $node = new_node('history', conf => $conf);
$node->safe_psql('postgres', 'CREATE TABLE effects (n int)');

my ($round, $largest, $turns, $last_current) = (0, 0, 0, 0);

sub set
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET delay_wheel.$name = '$value'");
	$node->reload;
	return;
}

# So many tasks, to their end; notes how large the tables were meanwhile.
sub run_round
{
	my ($n) = @_;

	$round++;
	$node->safe_psql('postgres', qq{SELECT count(delay_schedule_task('INSERT INTO effects VALUES (\$1)', args => ARRAY[i::text], tag => 'round $round'))
		FROM generate_series(1, $n) i});
	my $done = wait_until(120, sub {
		my ($left, $size, $number) = split /\|/, $node->safe_psql('postgres', "SELECT (SELECT count(*) FROM delay_wheel_data.task), ($sizes), ($current)");

		$largest = max($largest, $size);
		$turns++ if $number != $last_current;
		$last_current = $number;
		return $left == 0;
	});
	return $done;
}

sub recorded
{
	return $node->safe_psql('postgres', "SELECT count(*), count(DISTINCT task) FROM delay_wheel.history WHERE tag = 'round $round'");
}

# Rounds of 2000; the newest must always be there.
sub run_rounds
{
	my ($rounds, $what) = @_;
	my ($done, $whole) = (0, 0);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	for (1 .. $rounds)
	{
		$done += run_round(2000) ? 1 : 0;
		$whole += recorded() eq '2000|2000' ? 1 : 0;
	}
	is($done, $rounds, "$what: tasks of all rounds run");
	is($whole, $rounds, "$what: each round is recorded, each task once, when it is over");
	cmp_ok($largest, '<', $limit, "$what: the tables keep within the limit");
	return;
}

#
# By size.
#
run_rounds(40, '80,000 tasks');
cmp_ok($turns, '>=', 8, 'tables were written in turn');
cmp_ok($largest, '>', 2400 * 1024, 'most of the space is used');
note("$largest bytes at most, $turns turns seen");
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects}), 80000, 'each task was run once');
is($node->safe_psql('postgres', q{SELECT sum(n_tup_upd + n_tup_del + n_dead_tup) FROM pg_stat_all_tables
	WHERE schemaname = 'delay_wheel_data' AND relname LIKE 'history\_%'}), 0, 'nothing was updated or deleted, no row is dead');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel_data.history_0 WHERE sql <> 'INSERT INTO effects VALUES ($1)' OR outcome <> 'done'}), 0,
	'rows are as they should be');
my $kept = $node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.history');
note("$kept rows are kept");
is($node->safe_psql('postgres', 'SELECT last_problem IS NULL FROM delay_wheel.status'), 't', 'there is no problem');

# In a dump there is none; in a copy there is.
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '--no-sync', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
unlike(slurp_file($dump), qr/history_[012s]/, 'a dump has nothing of it');
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
wait_for($node, "SELECT count(*) > 1000 FROM delay_wheel.history", 'a copy of the database has its history', 60, db => 'copy');
$node->safe_psql('postgres', 'DROP DATABASE copy');

#
# Others have locked the tables, if only to read.
#
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT count(*) FROM delay_wheel.history');
($largest, my $full) = (0, 0);
for (1 .. 15)
{
	run_round(2000) or last;
	$full = $node->safe_psql('postgres', q{SELECT last_problem LIKE 'delay_wheel.history is full%' FROM delay_wheel.status}) eq 't';
	last if $full;
}
ok($full, 'when there is no room any more, the view status tells');
ok(run_round(3000), 'tasks run nevertheless');
is(recorded(), '0|0', 'but are not recorded');
cmp_ok($largest, '<', $limit, 'the tables keep within the limit');
my $stuck = $node->safe_psql('postgres', $current);
$reader->query_safe('COMMIT');
wait_for($node, "SELECT ($current) <> $stuck", 'when the lock is gone, the next table is emptied and written', 90);
cmp_ok($node->safe_psql('postgres', $sizes), '<', 3700 * 1024, 'there is room again');
run_rounds(5, 'after a lock');

# Who writes rather waits for a table than fails, also with a lock_timeout.
$node->safe_psql('postgres', 'CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET lock_timeout = 50; SELECT delay_wheel.allow(\'hasty\')');
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE ' . join(', ', @tables));
my $id = $node->safe_psql('postgres', q{SET SESSION AUTHORIZATION hasty; SELECT delay_schedule('0', 'SELECT 1')});
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation::regclass::text LIKE 'delay_wheel_data.history%' AND mode = 'RowExclusiveLock'},
	'a task waits for the table', 60, expected => 1);
# longer than the timeout
sleep(0.2);
$locker->query_safe('COMMIT');
is($node->safe_psql('postgres', qq{SELECT delay_wait($id, '60 s') IN ('done', 'gone')}), 't', 'it ends');
is($node->safe_psql('postgres', "SELECT outcome FROM delay_wheel.history WHERE task = $id"), 'done', 'well');
$_->quit for $reader, $locker;

#
# By age. Rows as executors write them, some time ago.
#
sub insert_history
{
	my ($table, $ended) = @_;
	$node->safe_psql('postgres', qq{INSERT INTO delay_wheel_data.history_$table (task, due, started, ended, owner, queue, outcome, sql)
		SELECT -1, $ended, $ended, $ended, current_user::regrole, 0, 'done', 'SELECT $table' FROM generate_series(1, 500)});
	return;
}

my $labels = q{SELECT coalesce(string_agg(DISTINCT sql, ', '), '') FROM delay_wheel.history WHERE task = -1};
$node->safe_psql('postgres', 'TRUNCATE ' . join(', ', @tables));
my $now = $node->safe_psql('postgres', $current);
my ($oldest, $older) = (($now + 1) % 3, ($now + 2) % 3);
insert_history($oldest, q{now() - interval '3 days'});
insert_history($older, q{now() - interval '1 day 4 hours'});
insert_history($now, q{now() - interval '2 hours'});
set('history_max_age', '2d');
wait_for($node, $labels, 'what is older than the limit goes', 60, expected => join(', ', sort "SELECT $older", "SELECT $now"));
is($node->safe_psql('postgres', $current), $now, 'the others are as they were');
set('history_max_age', '1d');
wait_for($node, $labels, 'when it is lowered, too', 60, expected => "SELECT $now");
set('history_max_age', '5h');
wait_for($node, $current, 'another table is written when this one is old', 60, expected => $oldest);
is($node->safe_psql('postgres', $labels), "SELECT $now", 'it stays');
set('history_max_age', '1h');
wait_for($node, $labels, 'until its time has come', 60, expected => '');
# to the time, with nobody who writes
insert_history($node->safe_psql('postgres', $current), q{now() - interval '50 s'});
set('history_max_age', '1min');
wait_for($node, $labels, 'also if nobody writes any more', 60, expected => '');
# what tasks write: the time is noticed
ok(run_round(10), 'some tasks');
my $was = $node->safe_psql('postgres', $current);
is(recorded(), '10|10', 'they are recorded');
wait_for($node, "SELECT ($current) <> $was", 'their table has its time', 60);
is(recorded(), '10|10', 'they are still there');
# from before a restart
set('history_max_age', '1d');
$now = $node->safe_psql('postgres', $current);
insert_history(($now + 1) % 3, q{now() - interval '2d'});
$node->restart;
wait_for($node, $labels, 'what is old goes at the next start', 60, expected => '');
is($node->safe_psql('postgres', $current), $now, 'the same table is written');
is(recorded(), '10|10', 'what is not old stays');

# Nothing is polled.
my ($timer) = worker_pids($node, 'timer');
ok(wait_until(60, sub { return !worker_pids($node, 'sweeper') }), 'the sweeper ends');
my $before;
wait_until(60, sub {
	$before = context_switches($timer);
	sleep(1);
	return !defined $before || context_switches($timer) == $before;
});
SKIP:
{
	skip 'the system does not tell of context switches', 1 if !defined $before;
	$before = context_switches($timer);
	sleep(2);
	is(context_switches($timer), $before, 'the timer sleeps while there is nothing to do');
}

#
# Crashes: at once, and between the steps of a turn.
#
run_rounds(5, 'before a crash');
$now = $node->safe_psql('postgres', $current);
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', $current), $now, 'after a crash the same table is written');
is(recorded(), '2000|2000', 'all is there');
run_rounds(5, 'after a crash');
$node->stop;

SKIP:
{
	skip 'no build with injection points', 1 if !has_injection();
	$node = new_node('crash', conf => $conf, injection => 1);
	$node->safe_psql('postgres', 'CREATE TABLE effects (n int, task bigint)');
	($largest, $last_current) = (0, 0);
	run_rounds(8, 'the tables are full');
	for my $point (qw(history-before-commit history-after-commit))
	{
		for my $skip (0 .. 3)
		{
			my $position = log_position($node);

			attach($node, $point, 'crash', $skip, 1);
			ok(wait_until(120, sub {
				return 1 if log_since($node, $position) =~ /all server processes terminated; reinitializing/;
				try_psql($node, 'postgres', q{SELECT count(delay_schedule('0',
					'INSERT INTO effects VALUES ($1, current_setting(''delay_wheel.task_id'')::bigint)', i)) FROM generate_series(1, 2000) i});
				return 0;
			}), "$point, $skip: it crashes");
			wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'the tasks run', 120, expected => 0);
			is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT task FROM effects WHERE task IS NOT NULL ORDER BY task DESC LIMIT 1000) e
				JOIN delay_wheel.history h USING (task)}), 1000, 'the newest are recorded, each once');
		}
	}
	run_rounds(6, 'after all these crashes');
	$node->stop;
}

done_testing();
