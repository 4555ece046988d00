# Tasks of mode at_most_once have no row while they run, and may have one again
# afterwards: who looks for tasks by their rows knows of them.

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
my $node = new_node('rowless', injection => 1, conf => q{
autovacuum = off
log_min_error_statement = panic
delay_wheel.executor_idle_timeout = 1h
});

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE begun (id bigint DEFAULT current_setting('delay_wheel.task_id')::bigint);
	-- goes on when nobody has the lock, and fails
	CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO begun DEFAULT VALUES;
		COMMIT;
		PERFORM pg_advisory_lock_shared(1);
		RAISE 'in vain';
	END $$;
});

my $holder;

# Begins a task, which runs until release().
sub begin
{
	my ($options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	my $id = query("SELECT delay_schedule_task('CALL work()', " . call_args("mode => 'at_most_once', $options") . ')');
	wait_for($node, "SELECT count(*) FROM delay_wheel.running JOIN pg_stat_activity USING (pid)
			WHERE task = $id AND wait_event = 'advisory'", 'it runs', $limit, expected => 1);
	return $id;
}

sub release
{
	$holder->quit;
	return;
}

#
# What is cancelled while it runs is not tried again.
#
group cancel => sub {
	my $id = begin(q{max_attempts => 3, retry_delay => '50 ms'});
	my $pid = query("SELECT pid FROM delay_wheel.running WHERE task = $id");

	query(q{SELECT delay_cancel_all(due_from => '-infinity')});
	ok(wait_until($limit, sub {
		return query(q{SELECT count(*) FILTER (WHERE state <> 'waiting') FROM delay_wheel.cancellations}) eq '0';
	}), 'delay_cancel_all(): the sweeper has removed what there is');
	is(query('SELECT state, waiting_for FROM delay_wheel.cancellations'), "waiting|{$pid}", 'it waits for the task that runs');
	release();
	wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'the cancellation ends after the task', $limit, expected => 0);
	is(query("SELECT (SELECT count(*) FROM begun WHERE id = $id), (SELECT count(*) FROM delay_wheel_data.task)"), '1|0',
		'it is not tried again');

	# others are not waited for: what is newer, or of another queue
	query(q{SELECT delay_wheel.create_queue('elsewhere')});
	begin(q{queue => 'elsewhere', max_attempts => 1});
	query(q{SELECT delay_cancel_all(queue => 'default')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'a task of another queue is not waited for', $limit, expected => 0);
	release();
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'it ends', $limit, expected => 0);
	my $open = $node->background_psql('postgres');
	$open->query_safe(q{BEGIN; SELECT delay_schedule('1 day', 'SELECT 1')});
	query(q{SELECT delay_cancel_all(queue => 'default')});
	begin('max_attempts => 1');
	$open->query_safe('ROLLBACK');
	$open->quit;
	wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'nor is one that was scheduled later', $limit, expected => 0);
	release();
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'it ends', $limit, expected => 0);
};

#
# Its queue stays.
#
group queue => sub {
	query(q{SELECT delay_wheel.create_queue('needed')});
	my $id = begin(q{queue => 'needed', max_attempts => 2, retry_delay => '10 ms'});

	my (undef, undef, $error) = $node->psql('postgres', q{\set VERBOSITY verbose
		SELECT delay_wheel.drop_queue('needed')});
	like($error, qr/55006: queue "needed" has pending tasks/, 'its queue cannot be dropped');
	release();
	wait_for($node, "SELECT (SELECT count(*) FROM begun WHERE id = $id), (SELECT count(*) FROM delay_wheel.failed WHERE id = $id)",
		'it is tried again', $limit, expected => '2|1');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'it ends', $limit, expected => 0);
	is(query(q{SELECT delay_wheel.drop_queue('needed')}), 't', 'then it can');
};

#
# Its key is looked for among the rows, then among what runs: it is put back in
# between.
#
group key => sub {
	my $id = begin(q{key => 'k', max_attempts => 2, retry_delay => '1 hour'});
	my $session = $node->background_psql('postgres');

	attach($node, 'key-cancel-rows', 'wait', 0, 1);
	$session->query_until(qr/^started$/m, "\\echo started\nSELECT 'key: ' || delay_cancel(key => 'k');\n");
	wait_until_waiting($node, 'key-cancel-rows', 'no row of the key is there');
	release();
	wait_for($node, "SELECT (SELECT count(*) FROM delay_wheel_data.task WHERE id = $id) - (SELECT count(*) FROM delay_wheel.running)",
		'it is put back', $limit, expected => 1);
	detach($node, 'key-cancel-rows');
	like($session->query('SELECT 1'), qr/key: cancelled/, 'delay_cancel() finds it');
	$session->quit;
};

#
# Its claim cannot be committed: it has not begun.
#
group claim => sub {
	my $position = log_position($node);
	my $failed = query('SELECT failed FROM delay_wheel.status');

	attach($node, 'run-before-commit', 'wait', 0, 1);
	my $id = query(q{SELECT delay_schedule_task('INSERT INTO begun DEFAULT VALUES', options => '{"mode": "at_most_once"}')});
	wait_until_waiting($node, 'run-before-commit', 'an executor is about to commit its claim');
	query('SELECT pg_terminate_backend(pid) FROM delay_wheel.running');
	wait_for($node, "SELECT count(*) FROM begun WHERE id = $id", 'another one runs it', $limit, expected => 1);
	detach($node, 'run-before-commit');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'it ends', $limit, expected => 0);
	is(query('SELECT failed FROM delay_wheel.status'), $failed, 'it is not counted as failed');
	unlike(log_since($node, $position), qr/task $id failed/, 'it is not logged as failed');

	# by an error: nobody takes it for running until the next try
	attach($node, 'run-before-commit', 'error', 0, 4);
	$id = query(q{SELECT delay_schedule_task('INSERT INTO begun DEFAULT VALUES', options => '{"mode": "at_most_once"}')});
	wait_until($limit, sub { return log_since($node, $position) =~ /injected at "run-before-commit"/ });
	my $taken = query("SELECT delay_wheel_internal.is_running($id)");
	detach($node, 'run-before-commit');
	wait_for($node, "SELECT count(*) FROM begun WHERE id = $id", 'it runs', $limit, expected => 1);
	is($taken, 'f', 'after an error it does not run without a row');
};

#
# A claim that finds its row changed looks again: it takes the key's lock before the
# task's then, too, as a cancel does.
#
group order => sub {
	my $position = log_position($node);
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	attach($node, 'claim-before-delete', 'wait', 0, 1);
	my $id = query(q{SELECT delay_schedule_task('SELECT 1', key => 'order', options => '{"mode": "at_least_once"}')});
	wait_until_waiting($node, 'claim-before-delete', 'an executor is about to claim a task');
	query("UPDATE delay_wheel_data.task SET tag = 'changed' WHERE id = $id");
	$session->query_until(qr/^started$/m, "\\echo started\nSELECT 'told: ' || delay_cancel(key => 'order');\n");
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'delay_cancel' AND wait_event = 'advisory'},
		'a cancel waits for the lock of the key', $limit, expected => 1);
	detach($node, 'claim-before-delete');
	like($session->query('SELECT 1'), qr/^told: /m, 'it comes to an end');
	$session->quit;
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'so does the task', $limit, expected => 0);
	unlike(log_since($node, $position), qr/deadlock detected/, 'neither has waited for the other');
};

$node->stop;
done_testing();
