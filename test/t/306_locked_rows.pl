# Rows that plain SQL has locked: nobody tells when the lock is gone, so the
# timer looks again, 5 minutes later for each row, and then less often.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $limit = $ENV{DW_RACE_LIMIT} // 60;
my $node = new_node('locked_rows', injection => 1, batches => 1, conf => q{
autovacuum = off
delay_wheel.executor_idle_timeout = 1h
});

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE ran (name text);
	SELECT delay_wheel.create_queue('other');
});
my $recheck = q{SELECT count(*) FROM delay_wheel.lanes WHERE recheck_at IS NOT NULL};

# In minutes from now, rounded.
my $minutes = q{SELECT round(extract(epoch FROM min(recheck_at) - now()) / 60) FROM delay_wheel.lanes};

# A session that has locked a task before it could run, which is due now.
sub lock_row
{
	my ($name) = @_;
	my $session = $node->background_psql('postgres');

	query(q{SELECT delay_wheel.pause_queue('other')});
	my $id = query("SELECT delay_schedule_task('INSERT INTO ran VALUES (''$name'')', delay => '0', queue => 'other')");
	$session->query_safe("BEGIN; SELECT FROM delay_wheel_data.task WHERE id = $id FOR UPDATE");
	query(q{SELECT delay_wheel.resume_queue('other')});
	return $session;
}

#
# By a task in a batch: its transaction is the executor's, but no claim.
#
group batch => sub {
	# paused until the other one has locked it
	query(q{SELECT delay_wheel.pause_queue('other')});
	my $id = query(q{SELECT delay_schedule_task('INSERT INTO ran VALUES (''locked'')', delay => '0', queue => 'other')});

	query(q{SELECT delay_pause_all()});
	# the one that locks comes first, and is alone
	query(q{ALTER SYSTEM SET delay_wheel.max_executors = 1});
	$node->reload;
	wait_for($node, 'SHOW delay_wheel.max_executors', 'one executor', $limit, expected => 1);
	query("SELECT delay_schedule('0', 'SELECT FROM delay_wheel_data.task WHERE id = $id FOR UPDATE')");
	query(q{SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''next'')') FROM generate_series(1, 2)});
	attach($node, 'batch-after-sql', 'wait', 0, 1);
	query(q{SELECT delay_resume_all()});
	wait_until_waiting($node, 'batch-after-sql', 'a task in a batch has locked another one');
	query(q{ALTER SYSTEM RESET delay_wheel.max_executors});
	$node->reload;
	query(q{SELECT delay_wheel.resume_queue('other')});
	wait_for($node, $recheck, 'an executor that meets the locked row asks for another look', $limit, expected => 1);
	detach($node, 'batch-after-sql');
	wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'next'}, 'the batch goes on', $limit, expected => 2);
	# the look of in five minutes, now
	query('UPDATE delay_wheel_data.task SET tag = tag WHERE false');
	wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'locked'}, 'the task runs', $limit, expected => 1);
	query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
	wait_for($node, $recheck, 'another timer begins anew', $limit, expected => 0);
};

#
# What was locked before does not make the look at another one later.
#
group interval => sub {
	my $first = lock_row('first');

	wait_for($node, $minutes, 'a locked row: another look in five minutes', $limit, expected => 5);
	# the next look at the same row; the time of the last one is forgotten
	query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
	wait_for($node, $minutes, 'then in ten', $limit, expected => 10);
	my $second = lock_row('second');
	wait_for($node, $minutes, 'another row: in five', $limit, expected => 5);
	$_->query_safe('ROLLBACK') for $first, $second;
	$_->quit for $first, $second;
	query('UPDATE delay_wheel_data.task SET tag = tag WHERE false');
	wait_for($node, q{SELECT string_agg(name, ' ' ORDER BY name) FROM ran WHERE name IN ('first', 'second')},
		'both run', $limit, expected => 'first second');
};

$node->stop;
done_testing();
