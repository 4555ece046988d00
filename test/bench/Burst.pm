# What the rows of the benchmark about bursts share: tasks that fall due at one instant, how
# long they take, what they leave.

package Burst;

use strict;
use warnings;

use Bench;
use Exporter 'import';
use List::Util qw(max);
use Time::HiRes qw(sleep time);

our @EXPORT = qw(schedule_burst finish_burst wheel_burst $bound_text $done_here last_commit settle old_snapshot table_sizes);

# The text of tasks whose order is an argument.
our $bound_text = 'update t_order set stars=stars+5, status=status+1 where oid=$1';

# Seconds between the end of scheduling and the due time, at least; set by bench.pl.
our $lead;

my $seconds_per_task = 10e-6;

# A point in time by which so many tasks can surely be scheduled.
sub due_soon
{
	my ($n) = @_;

	return time() + $lead + 1.2 * $n * $seconds_per_task;
}

sub check_in_time
{
	my ($n, $due, $begun) = @_;
	my $now = time();

	$seconds_per_task = max(($now - $begun) / $n, 5e-6) if $n >= 10000;
	return 1 if $now < $due - 0.1;
	$seconds_per_task *= 1.5;
	return 0;
}

# Transactions of these sessions in which so many tasks are scheduled for one point in time,
# which has not come when they commit, nor comes before the given time.  Returns it; seconds
# since 1970.
sub schedule_burst
{
	my ($n, $schedule, $sessions, $not_before) = @_;
	my ($begun, $due);

	for (;;)
	{
		$begun = time();
		$due = max(due_soon($n), $not_before // 0);
		$_->query('BEGIN') for @$sessions;
		$schedule->($due);
		last if check_in_time($n, $due, $begun);
		$_->query('ROLLBACK') for @$sessions;
	}
	$_->query('COMMIT') for @$sessions;
	return $due;
}

# How many tasks have been done in this database.
our $done_here = 'SELECT done FROM delay_wheel.status WHERE database = current_database()';

# When the last of the orders was updated, and committed; seconds since 1970.
sub last_commit { return value('SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin))) FROM t_order'); }

# Waits for the end of so many tasks, scheduled by the code for these sessions, which gets
# their due time.  Options: not_before, the earliest one; at_due, code to be run then; done,
# the query that counts those which have been done.  Returns when they were due, and when it
# was seen that all are done.
sub finish_burst
{
	my ($n, $schedule, $sessions, %how) = @_;
	my $done = $how{done} // $done_here;
	my $before = value($done);
	my $due = schedule_burst($n, $schedule, $sessions, $how{not_before});

	sleep(max(0, $due - time()));
	$how{at_due}->() if $how{at_due};
	wait_for("$n tasks", 60 + $n / 1000, "SELECT ($done) >= " . ($before + $n), 0.03);
	return ($due, time());
}

# So many orders of the table get a task of delay_wheel, due at once; returns
# when they were due, and when the last one was done.
sub wheel_burst
{
	my ($first, $last, $text) = @_;
	my ($due) = finish_burst($last - $first + 1, sub {
		shop()->query("SELECT count(delay_schedule_at(to_timestamp($_[0]), $text)) FROM generate_series($first, $last) oid");
	}, [ shop() ]);

	return ($due, last_commit());
}

# Nobody's background work shall fall into a measurement.
sub settle
{
	run('VACUUM ANALYZE t_order');
	run("VACUUM $_") for qw(delay_wheel_data.task floor_task);
	run('CHECKPOINT');
	return;
}

# A session with a snapshot, which nothing that is deleted or updated later can be removed
# under.
sub old_snapshot
{
	my $holder = session('postgres', 'holder');

	$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	return $holder;
}

# Bytes of our table, and of each of its indexes.
sub table_sizes
{
	return map { split /\|/ } admin()->query(q{SELECT relname, pg_relation_size(oid) FROM pg_class
		WHERE oid = 'delay_wheel_data.task'::regclass OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'delay_wheel_data.task'::regclass)});
}

1;
