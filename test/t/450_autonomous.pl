# Tasks outside of a transaction while they run: what others see of them and
# may do to them, how they are stopped, what is left after a crash, and whose
# rights they have.  What they do by themselves is in sql/autonomous.sql.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('autonomous', injection => 1, batches => 1, conf => q{
autovacuum = off
log_statement = none
restart_after_crash = on
log_min_error_statement = panic
delay_wheel.executor_idle_timeout = 1h
});

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE begun (id bigint);
	CREATE TABLE ended (id bigint);
	GRANT ALL ON begun, ended TO PUBLIC;
	CREATE FUNCTION me() RETURNS bigint LANGUAGE sql AS
		$$ SELECT current_setting('delay_wheel.task_id')::bigint $$;
	-- what was committed stays, whatever comes then: here it waits
	CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO begun VALUES (me());
		COMMIT;
		PERFORM pg_advisory_lock_shared(1);
		COMMIT;
		INSERT INTO ended VALUES (me());
	END $$;
});
my @modes = ('at_most_once', 'at_least_once');

# The work is held up by this session.
my ($session, $holder);

sub hold
{
	$session = $node->background_psql('postgres');
	$session->query_safe('SELECT pg_advisory_lock(1)');
	$holder = $session->query_safe('SELECT pg_backend_pid()');
	return;
}

sub release
{
	$session->quit;
	return;
}

sub task
{
	my ($mode, $options, $sql) = @_;
	return query("SELECT delay_schedule_task(\$t\$" . ($sql // 'CALL work()') . "\$t\$, "
		  . call_args("mode => '$mode'" . ($options ? ", $options" : '')) . ')');
}

sub waiting
{
	my ($id, $what, $condition) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM delay_wheel.running JOIN pg_stat_activity USING (pid)
			WHERE task = $id AND wait_event = 'advisory' AND " . ($condition // 'true'), $what, 60, expected => 1);
}

# In the middle of the work; not another executor that has the same task, and
# is just finding that out.
sub running
{
	my ($id, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return waiting($id, $what, "EXISTS (SELECT FROM begun WHERE begun.id = $id)");
}

sub executor_of { return query("SELECT pid FROM delay_wheel.running WHERE task = $_[0]"); }

# How often it was begun and came to its end, whether it is pending, and what
# it failed with.
sub came_to
{
	my ($id, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT (SELECT count(*) FROM begun WHERE id = $id),
			(SELECT count(*) FROM ended WHERE id = $id),
			(SELECT count(*) FROM delay_wheel_data.task WHERE id = $id),
			(SELECT string_agg(sqlstate || ' ' || attempts, ',') FROM delay_wheel.failed WHERE id = $id)",
		$what, 60, expected => $expected);
}

sub all_idle
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'all have ended', 60, expected => 0);
}

#
# While it runs.
#
foreach my $mode (@modes)
{
	hold();
	my $id = task($mode, "key => 'k'");
	running($id, "$mode: it runs");
	my $pid = executor_of($id);

	is(query("SELECT delay_cancel($id)"), 'running', "$mode: delay_cancel()");
	is(query("SELECT delay_reschedule($id, '1 hour')"), 'running', "$mode: delay_reschedule()");
	is(query("SELECT delay_run($id)"), 'running', "$mode: delay_run()");
	is(query("SELECT delay_wait($id, '0')"), 'timeout', "$mode: delay_wait()");
	is(query('SELECT count(*) FROM delay_wheel.failed'), 0, "$mode: it has not failed");
	is(query("SELECT query FROM pg_stat_activity WHERE pid = $pid"), 'CALL work()', "$mode: what is seen of it");
	is(query("SELECT count(*) FROM pg_locks WHERE pid = $pid AND relation = 'delay_wheel_data.task'::regclass"), 0,
		"$mode: no lock on the table");
	is(query("SET lock_timeout = '10s'; VACUUM FULL delay_wheel_data.task; SELECT 'done'"), 'done', "$mode: nobody waits for it");
	if ($mode eq 'at_most_once')
	{
		is(query("SELECT sqlstate FROM delay_wheel_data.failed_task WHERE id = $id"), 'DW003', "$mode: failed_task has its record during the run");
		my (undef, undef, $err) = $node->psql('postgres', "SELECT delay_retry($id)");
		like($err, qr/task $id is running/, "$mode: delay_retry()");
		is(query('SELECT delay_retry_all()'), 0, "$mode: delay_retry_all()");
		(undef, undef, $err) = $node->psql('postgres', "SELECT delay_discard($id)");
		like($err, qr/task $id is running/, "$mode: delay_discard()");
		is(query('SELECT delay_discard_all()'), 0, "$mode: delay_discard_all()");
	}

	# it comes into memory again: other executors leave it alone
	query("INSERT INTO delay_wheel_data.task (due, sql) VALUES (now() - interval '1 hour', 'INSERT INTO ended VALUES (0)')");
	wait_for($node, 'SELECT count(*) FROM ended WHERE id = 0', "$mode: memory is read again", 60, expected => 1);
	query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'");
	my $other = query("SELECT delay_schedule('0', 'INSERT INTO ended VALUES (me())')");
	came_to($other, '0|1|0|', "$mode: also by another timer");
	came_to($id, $mode eq 'at_most_once' ? '1|0|0|' : '1|0|1|', "$mode: it goes on by itself");

	is(query("SELECT delay_cancel(key => 'k')"), 'running', "$mode: delay_cancel()");

	# its key is free, and a newer task does not remove it
	my $newer = task($mode, "key => 'k', delay => '1 hour'");
	isnt($newer, $id, "$mode: its key can be scheduled");
	is(query("SELECT delay_cancel(key => 'k')"), 'cancelled', "$mode: and the newer task cancelled");
	is(query("SELECT delay_cancel($id)"), 'running', "$mode: it runs on");
	$newer = query("SELECT delay_schedule_task('INSERT INTO ended VALUES (me())', key => 'k')");
	came_to($newer, '0|1|0|', "$mode: a newer one of the key runs meanwhile");

	# cancelled with others, it is not stopped
	query("SELECT delay_cancel_all(due_from => '-infinity')");
	is(query("SELECT delay_cancel($id)"), 'running', "$mode: delay_cancel_all() does not stop it");
	release();
	came_to($id, '1|1|0|', "$mode: it comes to its end");
	all_idle();
	is(query("SELECT delay_cancel($id)"), 'gone', "$mode: then it is gone");
	wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', "$mode: nothing is left of the cancellation", 60, expected => 0);
	is(query('SELECT count(*) FROM delay_wheel_data.failed_task'), 0, "$mode: nothing else is left");
	query('DELETE FROM ended WHERE id = 0');
}

#
# Stopped, while somebody waits for it; and what is stopped is not tried again.
#
foreach my $mode (@modes)
{
	hold();
	my $id = task($mode, 'max_attempts => 3');
	running($id, "$mode: it runs");
	my $waiter = $node->background_psql('postgres');
	$waiter->query_until(qr/waiting/, "\\echo waiting\nSELECT 'waited: ' || delay_wait($id);\n");
	wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_wait($id)%' AND wait_event_type = 'Extension'",
		"$mode: somebody waits", 60, expected => 1);
	is(query("SELECT delay_cancel($id, true)"), 'stopping', "$mode: it is stopped");
	came_to($id, '1|0|0|57014 1', "$mode: it has failed");
	like(query("SELECT message FROM delay_wheel.failed WHERE id = $id"), qr/stopped by role ".*" with delay_cancel/,
		"$mode: the message says who stopped it");
	like($waiter->query('SELECT 1'), qr/waited: failed/, "$mode: who waits is told");
	$waiter->quit;
	release();
	all_idle();
}
query('DELETE FROM delay_wheel_data.failed_task');

#
# The executor is terminated, or killed; the server is.
#
my %ends = (
	'pg_terminate_backend' => sub { query("SELECT pg_terminate_backend($_[0])") },
	'kill -9' => sub { kill 'KILL', $_[0] },
	'immediate shutdown' => sub { $node->stop('immediate'); $node->start },
);
foreach my $end (sort keys %ends)
{
	hold();
	my $once = task('at_most_once', 'max_attempts => 5');
	running($once, "$end: at_most_once runs");
	my $again = task('at_least_once');
	running($again, "$end: at_least_once runs");
	my @pids = (executor_of($once), executor_of($again));
	my $pids = join(',', @pids);
	foreach my $pid ($end eq 'immediate shutdown' ? $pids[0] : $end eq 'kill -9' ? $pids[0] : @pids)
	{
		$ends{$end}->($pid);
	}
	if ($end eq 'pg_terminate_backend') { release() }
	else
	{
		# ended by the crash, not before: else the other one would come to its end
		for (my $n = 0; kill(0, $holder) && $n < 600; $n++) { usleep(100_000) }
		eval { $session->quit };
	}
	came_to($once, '1|0|0|DW003 1', "$end: at_most_once stands in failed");
	came_to($again, '2|1|0|', "$end: at_least_once is run again");
	like(query("SELECT message FROM delay_wheel.failed WHERE id = $once"),
		qr/was begun, and its end is not known/, "$end: the message is clear");
	is(query("SELECT delay_cancel($once)"), 'gone', "$end: it is not pending");
	is(query("SELECT delay_wait($once)"), 'failed', "$end: but failed");
	is(query("SELECT delay_retry($once)"), 'retried', "$end: who wants to runs it again");
	came_to($once, '2|1|0|', "$end: then it is run");
	all_idle();
}

# Asynchronous commits may be lost, but not that of the claim.
query('ALTER SYSTEM SET wal_writer_delay = 10000; ALTER DATABASE postgres SET synchronous_commit = off; SELECT pg_reload_conf()');
hold();
my $async = task('at_most_once', undef, "DO \$d\$ BEGIN PERFORM pg_advisory_lock_shared(1); INSERT INTO ended VALUES (me()); END \$d\$");
waiting($async, 'synchronous_commit = off: it runs');
$node->stop('immediate');
$node->start;
eval { $session->quit };
came_to($async, '0|0|0|DW003 1', 'synchronous_commit = off: it is not run again');
query('ALTER SYSTEM RESET wal_writer_delay; ALTER DATABASE postgres RESET synchronous_commit; SELECT pg_reload_conf()');

# Who waits is told, also if it was terminated.
hold();
my $id = task('at_most_once');
running($id, 'it runs');
my $waiter = $node->background_psql('postgres');
$waiter->query_until(qr/waiting/, "\\echo waiting\nSELECT 'waited: ' || delay_wait($id);\n");
wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_wait($id)%' AND wait_event_type = 'Extension'",
	'somebody waits', 60, expected => 1);
my $failed = query('SELECT failed FROM delay_wheel.status');
query('SELECT pg_terminate_backend(' . executor_of($id) . ')');
like($waiter->query('SELECT 1'), qr/waited: failed/, 'who waits is told of the end of the executor');
is(query('SELECT failed FROM delay_wheel.status'), $failed + 1, 'it is counted');
$waiter->quit;
release();
query('DELETE FROM delay_wheel_data.failed_task');

# Recurring: the next run is there, whatever becomes of one.
foreach my $mode (@modes)
{
	hold();
	$id = query("SELECT delay_every('r', '1 hour', 'CALL work()', starts => now(), options => jsonb_build_object('mode', '$mode'))");
	running($id, "$mode: a run of a recurring task");
	is(query("SELECT state, task FROM delay_wheel.recurring WHERE name = 'r'"), "running|$id", "$mode: it is seen");
	query('SELECT pg_terminate_backend(' . executor_of($id) . ')');
	release();
	wait_for($node, "SELECT state, task > $id, runs FROM delay_wheel.recurring WHERE name = 'r'",
		"$mode: the next run waits", 60, expected => 'waiting|t|1');
	came_to($id, $mode eq 'at_most_once' ? '1|0|0|DW003 1' : '2|1|0|', "$mode: what became of this one");
	my $next = query("SELECT task FROM delay_wheel.recurring WHERE name = 'r'");
	is(query("SELECT count(*) FROM delay_wheel.tasks WHERE id = $next AND due > now() AND mode = '$mode'"), 1,
		"$mode: it is in its time");
	query("SELECT delay_reschedule($next, '0')");
	came_to($next, '1|1|0|', "$mode: it is run");
	wait_for($node, "SELECT task > $next, last_outcome FROM delay_wheel.recurring WHERE name = 'r'",
		"$mode: and followed by another", 60, expected => 't|done');
	is(query("SELECT delay_unschedule('r')"), 't', "$mode: it is removed");
}
query('DELETE FROM delay_wheel_data.failed_task');

#
# Between the statement and the transaction that settles it.
#
my $once = task('at_most_once', undef, 'INSERT INTO ended VALUES (me())');
came_to($once, '0|1|0|', 'a task without anything in between');
attach($node, 'autonomous-before-settle', 'fatal', 0, 1);
$once = task('at_most_once', undef, 'INSERT INTO ended VALUES (me())');
came_to($once, '0|1|0|DW003 1', 'at_most_once: it was done, but that is not known');
attach($node, 'autonomous-before-settle', 'fatal', 0, 1);
my $again = task('at_least_once', undef, 'INSERT INTO ended VALUES (me())');
came_to($again, '0|2|0|', 'at_least_once: it is done again');
query('DELETE FROM delay_wheel_data.failed_task');
foreach my $mode (@modes)
{
	attach($node, 'autonomous-before-settle', 'error', 0, 3);
	my $good = task($mode, undef, 'INSERT INTO ended VALUES (me())');
	came_to($good, '0|1|0|', "$mode: errors meanwhile pass");
	all_idle();
	attach($node, 'record-before-insert', 'error', 0, 3);
	my $bad = task($mode, undef, 'SELECT 1 / 0');
	came_to($bad, '0|0|0|22012 1', "$mode: also those of recording a failure");
	all_idle();
	attach($node, 'retry-before-insert', 'error', 0, 3);
	my $retried = task($mode, "max_attempts => 2, retry_delay => '1 ms'", 'SELECT 1 / 0');
	came_to($retried, '0|0|0|22012 2', "$mode: and of putting it back");
	all_idle();
	attach($node, 'autonomous-after-claim', 'error', 0, 1);
	my $early = task($mode, undef, 'INSERT INTO ended VALUES (me())');
	came_to($early, '0|0|0|XX000 1', "$mode: an error before it is its own");
	all_idle();
	attach($node, 'autonomous-after-claim', 'fatal', 0, 1);
	$early = task($mode, undef, 'INSERT INTO ended VALUES (me())');
	came_to($early, $mode eq 'at_most_once' ? '0|0|0|DW003 1' : '0|1|0|', "$mode: the executor ends before it");
	all_idle();
}
query('DELETE FROM delay_wheel_data.failed_task');

# Who comes first, a cancellation or the executor, has the task.
sub cancel_in_background
{
	my $canceller = $node->background_psql('postgres');
	$canceller->query_until(qr/trying/, "\\echo trying\nSELECT 'said: ' || delay_cancel($_[0]);\n");
	return $canceller;
}
hold();
attach($node, 'claim-after-delete', 'wait');
$id = task('at_least_once');
wait_until_waiting($node, 'claim-after-delete', 'an executor has the row, and has not let go of it');
my $canceller = cancel_in_background($id);
wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_cancel($id)%' AND wait_event = 'advisory'",
	'a cancellation waits for it', 60, expected => 1);
detach($node, 'claim-after-delete');
like($canceller->query('SELECT 1'), qr/said: running/, 'it comes too late');
$canceller->quit;
release();
came_to($id, '1|1|0|', 'the task is run');

query("SELECT delay_wheel.create_queue('q'); SELECT delay_wheel.pause_queue('q')");
attach($node, 'take-before-delete', 'wait');
$id = task('at_least_once', "queue => 'q'");
$canceller = cancel_in_background($id);
wait_until_waiting($node, 'take-before-delete', 'a cancellation is about to delete the row');
query("SELECT delay_wheel.resume_queue('q')");
waiting($id, 'an executor waits for it');
detach($node, 'take-before-delete');
like($canceller->query('SELECT 1'), qr/said: cancelled/, 'it has come first');
$canceller->quit;
all_idle();
came_to($id, '0|0|0|', 'the task is not run');

#
# Paused, it is not begun.
#
query("SELECT delay_wheel.pause_queue('q')");
foreach my $mode (@modes)
{
	$id = task($mode, "queue => 'q'", 'INSERT INTO ended VALUES (me())');
	my $next = query("SELECT delay_schedule('0', 'INSERT INTO ended VALUES (me())')");
	came_to($next, '0|1|0|', "$mode: another queue goes on");
	came_to($id, '0|0|1|', "$mode: a paused task waits");
	query("SELECT delay_wheel.resume_queue('q')");
	came_to($id, '0|1|0|', "$mode: until it is resumed");
	query("SELECT delay_wheel.pause_queue('q')");
}

#
# Whose rights.
#
query(q{
	CREATE ROLE plain LOGIN;
	CREATE ROLE service NOLOGIN;
	CREATE ROLE granted NOLOGIN;
	GRANT granted TO plain;
	SELECT delay_wheel.allow('plain', 'service');
	CREATE TABLE seen (n serial, how text, who text DEFAULT current_user, session text DEFAULT session_user,
		super text DEFAULT current_setting('is_superuser'));
	GRANT ALL ON seen, seen_n_seq TO PUBLIC;
});

sub schedule_as
{
	my ($role, $mode, $sql) = @_;
	return (split /\n/, query("SET ROLE $role; SELECT delay_schedule_task(\$t\$$sql\$t\$, options => jsonb_build_object('mode', '$mode'))"))[-1];
}
my @ways = ('RESET ROLE', 'SET ROLE none', 'SET ROLE postgres', 'SET SESSION AUTHORIZATION postgres', 'RESET SESSION AUTHORIZATION',
	'RESET ALL', 'SET SESSION AUTHORIZATION DEFAULT', 'SET ROLE granted');
my $steps = join("\n", map { my $end = $_; map { qq{
	BEGIN EXECUTE '$_'; EXCEPTION WHEN insufficient_privilege OR invalid_parameter_value THEN NULL; END;
	INSERT INTO seen (how) VALUES ('$_, $end'); $end;
	INSERT INTO seen (how) VALUES ('$_, after $end'); COMMIT;} } @ways } ('COMMIT', 'ROLLBACK'));
foreach my $mode (@modes)
{
	query('TRUNCATE seen');
	$id = schedule_as('plain', $mode, "DO \$d\$ BEGIN $steps END \$d\$");
	wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id = $id", "$mode: all ways were tried", 60, expected => 0);
	all_idle();
	is(query('SELECT message FROM delay_wheel.failed'), '', "$mode: without an error");
	is(query('SELECT count(*) >= 24 FROM seen'), 't', "$mode: they left something");
	is(query(q{SELECT string_agg(DISTINCT who, ',' ORDER BY who) || ' ' || string_agg(DISTINCT session, ',') || ' ' || string_agg(DISTINCT super, ',') FROM seen}),
		'granted,plain plain off', "$mode: none leads to other rights");
	$id = schedule_as('plain', $mode, 'DO $d$ BEGIN SET ROLE granted; COMMIT; PERFORM 1 / 0; END $d$');
	came_to($id, '0|0|0|22012 1', "$mode: an error as another role");
	is(query("SELECT owner FROM delay_wheel.failed WHERE id = $id"), 'plain', "$mode: is the owner's");
	query("TRUNCATE seen; DELETE FROM delay_wheel_data.failed_task");
	$id = schedule_as('plain', $mode, q{INSERT INTO seen (how) VALUES ('next')});
	wait_for($node, 'SELECT who || session FROM seen', "$mode: the next task is the role's again", 60, expected => 'plainplain');

	# the switched process of a role without LOGIN must not end a transaction
	query('TRUNCATE seen');
	$id = schedule_as('service', $mode, q{DO $d$ BEGIN ROLLBACK; INSERT INTO seen (how) VALUES ('service'); END $d$});
	if ($node->pg_version < 17)
	{
		came_to($id, '0|0|0|0A000 0', "$mode: not for a role without LOGIN");
		is(query('SELECT count(*) FROM seen'), 0, "$mode: it was not run");
		like(query("SELECT message FROM delay_wheel.failed WHERE id = $id"), qr/role without LOGIN/, "$mode: and says why");
	}
	else
	{
		wait_for($node, 'SELECT who FROM seen', "$mode: a role without LOGIN", 60, expected => 'service');
	}
	query('DELETE FROM delay_wheel_data.failed_task');
}

# Others are not told.
hold();
$id = schedule_as('plain', 'at_most_once', 'CALL work()');
running($id, 'a task of a role runs');
foreach my $call ("delay_cancel($id)", "delay_wait($id, '0')")
{
	my (undef, undef, $err) = $node->psql('postgres', "SELECT delay_wheel.allow('granted'); SET ROLE granted; SELECT $call");
	like($err, qr/permission denied for task $id/, "$call is not another role's");
}
is((split /\n/, query("SET ROLE granted; SELECT delay_wheel_internal.is_running($id)"))[-1], 'f', 'another role cannot see whether it runs');
is((split /\n/, query("SET ROLE plain; SELECT delay_wheel_internal.is_running($id)"))[-1], 't', 'but its own');
release();
came_to($id, '1|1|0|', 'it comes to its end');

done_testing();
