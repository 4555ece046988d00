# How long failed tasks are kept: by age and by number, also those from before
# a restart, without bloat and without waiting for anybody; and many of them
# are put back in one statement.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('failed', conf => q{
log_statement = none
log_min_messages = fatal
log_min_error_statement = panic
autovacuum_naptime = 1s
fsync = off
});
$node->safe_psql('postgres', 'CREATE TABLE effects (n int)');

sub count_failed
{
	my ($where) = @_;
	return $node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.failed_task WHERE ' . ($where // 'true'));
}

sub set
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET delay_wheel.$name = '$value'");
	$node->reload;
	return;
}

# Rows as executors write them, with ids that no task has had.
sub insert_failed
{
	my ($n, $failed_at, $sql) = @_;
	$node->safe_psql('postgres', qq{
		INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
			SELECT nextval('delay_wheel_data.task_id_seq'), $failed_at, now(), 0, current_user::regrole, 0, 0, 1, 'P0001', 'broken', $sql
			FROM generate_series(1, $n) i});
	return;
}

#
# By age, to the time; rows that nobody has told of are met when something
# else is to be done.
#
insert_failed(1500, q{now() - interval '2 hours'}, q{'SELECT 1'});
insert_failed(10, q{now() - interval '50 s'}, q{'SELECT 2'});
insert_failed(3, q{now() + interval '1 hour'}, q{'SELECT 3'});
is(count_failed(), 1513, 'nothing is removed that is younger than the limit');
set('failed_max_age', '1 min');
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.failed_task WHERE sql = 'SELECT 1'}, 'old ones go when the limit is lowered',
	60, expected => 0);
is(count_failed(), 13, 'younger ones stay');
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.failed_task}, 'and go when they have come of age', 60, expected => 3);

# What is locked by somebody is left, and holds up nothing.
insert_failed(20, q{now() - interval '1 hour'}, q{'SELECT ' || i});
my $locker = $node->background_psql('postgres');
$locker->query_safe(q{BEGIN; SELECT count(*) FROM (SELECT FROM delay_wheel_data.failed_task WHERE sql = 'SELECT 7' FOR UPDATE) x});
set('failed_max_age', '2 min');
wait_for($node, q{SELECT string_agg(sql, ',') FROM delay_wheel_data.failed_task WHERE failed_at < now()}, 'a locked row is passed over',
	60, expected => 'SELECT 7');
$locker->query_safe('COMMIT');
$locker->quit;
set('failed_max_age', '1 min');
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.failed_task}, 'and goes later', 60, expected => 3);

# From before a restart.
insert_failed(20, q{now() - interval '1 hour'}, q{'SELECT ' || i});
is(count_failed(), 23, 'rows by plain SQL are not noticed');
$node->restart;
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.failed_task}, 'until the next start', 60, expected => 3);

# Nothing is polled while the limits are far.
set('failed_max_age', '90 d');
my ($timer) = worker_pids($node, 'timer');
wait_until(60, sub {
	my $before = context_switches($timer);
	sleep(1);
	return !defined $before || context_switches($timer) == $before;
}) or diag('the timer does not come to rest');
my $before = context_switches($timer);
SKIP:
{
	skip 'the system does not tell of context switches', 1 if !defined $before;
	sleep(2);
	is(context_switches($timer), $before, 'the timer sleeps while there is nothing to remove');
}
$node->safe_psql('postgres', 'DELETE FROM delay_wheel_data.failed_task');

#
# By number: as many as may stay, the newest ones, and a hundredth at most on top.
#
set('failed_max_count', 200);
$node->safe_psql('postgres', q{SELECT count(delay_schedule('0', 'SELECT 1 / 0')) FROM generate_series(1, 1000)});
wait_for($node, q{SELECT (SELECT failed FROM delay_wheel.status) >= 1000 AND count(*) BETWEEN 200 AND 202 FROM delay_wheel_data.failed_task},
	'the oldest go when there are too many');
insert_failed(1000, q{now() - i * interval '1 hour'}, q{'SELECT ' || i});
set('failed_max_count', 50);
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.failed_task', 'and when the limit is lowered', 60, expected => 50);
is(count_failed(q{sql LIKE 'SELECT 1 / 0%'}), 50, 'the newest ones are kept');
set('failed_max_count', 0);
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.failed_task', 'all of them if none are to be kept', 60, expected => 0);

# Table and indexes stay small, though thousands go through: what went makes
# room for what comes.
set('failed_max_count', 200);
my $sizes = q{SELECT pg_total_relation_size('delay_wheel_data.failed_task') / 1024, pg_relation_size('delay_wheel_data.failed_task_pkey') / 1024,
	pg_relation_size('delay_wheel_data.failed_task_failed_at_idx') / 1024};
my $vacuumed = q{SELECT n_tup_ins - n_tup_del <= 202 AND n_dead_tup < 300 FROM pg_stat_all_tables WHERE relid = 'delay_wheel_data.failed_task'::regclass};
my $done = $node->safe_psql('postgres', 'SELECT failed FROM delay_wheel.status');
my @totals;
for my $round (1 .. 4)
{
	$node->safe_psql('postgres', q{SELECT count(delay_schedule('0', 'SELECT 1 / 0, $1', noise))
		FROM (SELECT i % 1500 AS task, string_agg(md5(i::text), '') AS noise FROM generate_series(1, 90000) i GROUP BY 1) n});
	$done += 1500;
	wait_for($node, qq{SELECT (SELECT failed FROM delay_wheel.status) >= $done AND count(*) BETWEEN 200 AND 202 FROM delay_wheel_data.failed_task},
		"round $round has failed, and so many are left", 180);
	wait_for($node, $vacuumed, 'autovacuum knows, and has been there', 180);
	my @kb = split /\|/, $node->safe_psql('postgres', $sizes);
	push @totals, $kb[0];
	note("after $round rounds of 1500 failures, 2 kB each: $kb[0] kB in all, indexes $kb[1] and $kb[2] kB");
}
cmp_ok($totals[3], '<', 1.5 * $totals[0], 'the table does not grow with what has gone through it');
set('failed_max_count', -1);

#
# Put back, 20,000 in one statement; rolled back, at first.
#
$node->safe_psql('postgres', 'DELETE FROM delay_wheel_data.failed_task');
insert_failed(20000, 'now()', q{'INSERT INTO effects VALUES (' || i || ')'});
is($node->safe_psql('postgres', 'BEGIN; SELECT delay_retry_all(); ROLLBACK; SELECT count(*) FROM delay_wheel_data.failed_task'),
	"20000\n20000", 'put back, and rolled back');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task'), 0, 'no task is left of it');
my $began = time();
is($node->safe_psql('postgres', 'SELECT delay_retry_all(max_tasks => 15000)'), 15000, 'many are put back');
note(sprintf('15,000 tasks put back in %.1f s', time() - $began));
# two at once take what is left between them
my $other = $node->background_psql('postgres');
$other->query_safe('BEGIN');
is($other->query_safe('SELECT delay_retry_all(max_tasks => 2000)'), 2000, 'some by one session');
is(($node->psql('postgres', q{SET lock_timeout = '5s'; SELECT delay_retry_all()}))[1], 3000, 'the others by another one, which waits for nobody')
  or die 'it has waited';
$other->query_safe('COMMIT');
# ... nor for who has the key of one
insert_failed(1, 'now()', q{'INSERT INTO effects VALUES (0)'});
$node->safe_psql('postgres', q{UPDATE delay_wheel_data.failed_task SET key = 'k'});
$other->query_safe(q{BEGIN; SELECT delay_schedule_task('SELECT 1', key => 'k', delay => '1 day')});
is(($node->psql('postgres', q{SET lock_timeout = '5s'; SELECT delay_retry_all()}))[1], 0, 'one whose key another session has is left')
  or die 'it has waited';
$other->query_safe('ROLLBACK');
$other->quit;
$node->safe_psql('postgres', 'DELETE FROM delay_wheel_data.failed_task');
wait_for($node, 'SELECT count(*) FROM effects', 'all of them run', 120, expected => 20000);
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'none is left', 60, expected => 0);
is($node->safe_psql('postgres', 'SELECT count(DISTINCT n), min(n), max(n) FROM effects'), '20000|1|20000', 'each of them once');
is(count_failed(), 0, 'no failed one is left');

#
# A reload that reaches the timer, but not the sweeper: the server ignores SIGHUP for a
# worker that it is just starting.
#
insert_failed(200, 'now()', q{'SELECT 1'});
$node->safe_psql('postgres', q{ALTER SYSTEM SET delay_wheel.failed_max_count = 20});
kill 'HUP', worker_pids($node, 'timer');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.failed_task', 'the sweeper has the settings of the timer', 60, expected => 20);

$node->stop;
done_testing();
