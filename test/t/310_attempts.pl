# Retries over time, terminations and crashes; waiting for outcomes, and
# stopping what runs, with other sessions at it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('attempts', injection => has_injection(), conf => q{
autovacuum = off
log_statement = none
restart_after_crash = on
log_min_error_statement = panic
deadlock_timeout = 100ms
timezone = UTC
log_timezone = UTC
delay_wheel.executor_idle_timeout = 1h
});

# What an attempt leaves behind, though it fails: sequences are not rolled back.
$node->safe_psql('postgres', q{
	CREATE SEQUENCE runs;
	CREATE SEQUENCE start1; CREATE SEQUENCE start2; CREATE SEQUENCE start3; CREATE SEQUENCE start4;
	CREATE TABLE ran (id bigint);
	CREATE TABLE answers (id bigint, answer text);
	CREATE FUNCTION me() RETURNS bigint LANGUAGE sql AS
		$$ SELECT current_setting('delay_wheel.task_id')::bigint $$;
	CREATE FUNCTION begun() RETURNS bigint LANGUAGE sql AS $$
		SELECT setval(('start' || nextval('runs'))::regclass, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) $$;
});

sub query { return $node->safe_psql('postgres', $_[0]); }

sub task
{
	my ($sql, $attempts, $pause) = @_;
	query("SELECT setval('runs', 1, false)");
	return query("SELECT delay_schedule_task(\$task\$$sql\$task\$, max_attempts => $attempts, options => jsonb_build_object('retry_delay', '$pause'))");
}

sub failed_with
{
	my ($id, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT attempts, sqlstate FROM delay_wheel.failed WHERE id = $id", $what, 60,
		expected => $expected);
}

sub ran
{
	my ($id, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM ran WHERE id = $id", $what, 60, expected => 1);
}

# It sleeps, or waits for a lock.
sub running
{
	my ($id, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM delay_wheel.running JOIN pg_stat_activity USING (pid)
			WHERE task = $id AND wait_event IN ('PgSleep', 'advisory')", $what, 60, expected => 1);
}

#
# The pauses double, and are lengthened at random; no attempt comes sooner.
#
my $pause = 0.3;
my $position = log_position($node);
my $id = task('SELECT begun(); SELECT 1 / 0', 4, "$pause s");
failed_with($id, '4|22012', 'a task fails for good');
my @starts = split /\|/, query('SELECT a.last_value / 1e6, b.last_value / 1e6, c.last_value / 1e6, d.last_value / 1e6
	FROM start1 a, start2 b, start3 c, start4 d');
my @pauses;
my $log = log_since($node, $position);
while ($log =~ /^(\S+ \S+) UTC .*\n?.*task $id failed and will be tried again: division by zero\n.*DETAIL:  This was attempt (\d) of 4; the next one is due at (\S+ \S+)\+00\./mg)
{
	push @pauses, query("SELECT extract(epoch FROM timestamptz '$3+00' - timestamptz '$1+00')");
}
is(scalar(@pauses), 3, 'the log tells of each attempt but the last') or diag($log);
for my $n (0 .. 2)
{
	my $least = $pause * 2**$n;
	my $after = $starts[ $n + 1 ] - $starts[$n];

	cmp_ok($after, '>=', $least, sprintf('attempt %d comes %.3f s after the one before, no sooner than %.1f s', $n + 2, $after, $least));
	# the log has whole milliseconds
	cmp_ok($pauses[$n] // 99, '<=', 1.25 * $least + 0.002, 'and is due no later than a quarter more');
}

# None at all, but not for ever: log and table would be filled.
$position = log_position($node);
query(q{SELECT delay_wheel.create_queue('at once', max_attempts => 101, options => '{"retry_delay": "0"}')});
$id = query(q{SELECT delay_schedule_task('SELECT 1 / 0', queue => 'at once')});
failed_with($id, '101|22012', 'a task without pauses fails for good');
$log = log_since($node, $position);
for my $case ([ 99, '<', 0.5, 'the 100th attempt is due at once' ], [ 100, '>', 0.9, 'the one after that in a second' ])
{
	my ($n, $op, $seconds, $what) = @$case;
	$log =~ /^(\S+ \S+) UTC .*\n?.*task $id failed and will be tried again: division by zero\n.*DETAIL:  This was attempt $n of 101; the next one is due at (\S+ \S+)\+00\./m;
	cmp_ok(query("SELECT extract(epoch FROM timestamptz '$2+00' - timestamptz '$1+00')"), $op, $seconds, $what);
}

#
# Neither executors that end nor crashes take anything away between attempts.
#
$id = task('SELECT 1 / (nextval($$runs$$) / 3); INSERT INTO ran VALUES (me())', 9, '1 hour');
my $state = "SELECT attempts, due, last_error FROM delay_wheel.tasks WHERE id = $id";
wait_for($node, "SELECT attempts FROM delay_wheel.tasks WHERE id = $id", 'the first attempt has failed', 60, expected => 1);
my $before = query($state);
query(q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
is(query($state), $before, 'an executor ends meanwhile: nothing changes');
query("SELECT delay_reschedule($id, '0')");
wait_for($node, "SELECT attempts FROM delay_wheel.tasks WHERE id = $id", 'the second attempt has failed', 60, expected => 2);
$before = query($state);
$node->stop('immediate');
$node->start;
is(query($state), $before, 'attempts, due time and error survive a crash');
query("SELECT delay_reschedule($id, '0')");
ran($id, 'the third attempt goes well');

# A termination is no attempt; the attempt that it interrupts is done again.
$id = task('SELECT pg_sleep(CASE nextval($$runs$$) WHEN 1 THEN 600 ELSE 0 END); INSERT INTO ran VALUES (me())', 1, '1 hour');
running($id, 'a task runs');
query("SELECT pg_terminate_backend(pid) FROM delay_wheel.running WHERE task = $id");
ran($id, 'a task with one attempt is run again if its executor is terminated');

# Real deadlocks: both tasks are done, at their first attempt.
query(q{CREATE TABLE accounts (i int PRIMARY KEY, n int DEFAULT 0); INSERT INTO accounts VALUES (1), (2)});
my $deadlocks = q{SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = 'postgres'};
for my $round (1 .. 3)
{
	query(q{SELECT delay_schedule_task(format('UPDATE accounts SET n = n + 1 WHERE i = %s; SELECT pg_sleep(0.3);
			UPDATE accounts SET n = n + 1 WHERE i = %s', i, 3 - i)) FROM accounts});
	wait_for($node, "SELECT min(n), max(n) FROM accounts", 'two tasks that meet are both done', 60, expected => 2 * $round . '|' . 2 * $round);
}
wait_for($node, $deadlocks, 'they did meet');
is(query(q{SELECT count(*) FROM delay_wheel.failed WHERE sqlstate = '40P01'}), 0, 'and none has failed');

#
# Stopping: how long it takes.
#
$id = task('SELECT pg_sleep(600)', 3, '1 us');
running($id, 'a task sleeps');
my ($answer, $outcome, $took) = split /\|/, query("DO \$\$BEGIN PERFORM set_config('x.t', clock_timestamp()::text, false); END\$\$;
	SELECT delay_cancel($id, true), delay_wait($id, '60 s'), extract(epoch FROM clock_timestamp() - current_setting('x.t')::timestamptz)");
is($answer, 'stopping', 'it is stopped');
is($outcome, 'failed', 'and has failed');
cmp_ok($took, '<', 10, sprintf('it took %.1f ms', $took * 1000));
failed_with($id, '1|57014', 'it is not tried again');

# Nor is one that is cancelled as any query; a timeout is nobody's wish.
$id = task('SELECT pg_sleep(600)', 3, '1 us');
running($id, 'a task sleeps');
query("SELECT pg_cancel_backend(pid) FROM delay_wheel.running WHERE task = $id");
failed_with($id, '1|57014', 'it is cancelled, and not tried again');
$id = query(q{SELECT delay_schedule_task('SELECT pg_sleep(600)', max_attempts => 2, options => '{"retry_delay": "1 us", "timeout": "50 ms"}')});
failed_with($id, '2|57014', 'one that takes too long is');

# One that is told to end with this attempt goes on, and is not tried again if it fails.
{
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(77)');
	$id = task('SELECT pg_advisory_xact_lock(77); SELECT 1 / 0', 3, '1 us');
	running($id, 'a task waits');
	is(query("BEGIN; SELECT delay_cancel($id, no_retry => true); ROLLBACK"), 'ending', 'its last attempt, also if the call is rolled back');
	my $done = task('SELECT pg_advisory_xact_lock_shared(77)', 3, '1 us');
	running($done, 'another one');
	is(query("SELECT delay_cancel($done, no_retry => true)"), 'ending', 'its last one, too');
	$holder->quit;
	my $again = task('SELECT 1 / 0', 2, '1 us');
	failed_with($id, '1|22012', 'it is not tried again');
	is(query("SELECT detail FROM delay_wheel.failed WHERE id = $id"), 'The task was not tried again, as delay_cancel() had asked for.', 'which its error says');
	failed_with($again, '2|22012', 'others that the same executors run are');
	wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id = $done", 'what succeeds is done', 60, expected => 0);
	is(query("SELECT count(*) FROM delay_wheel.failed WHERE id = $done"), '0', 'and has not failed');
	is(query("SELECT delay_cancel($id, no_retry => true), delay_cancel(delay_schedule('1 day', 'SELECT 1'), no_retry => true)"), 'gone|cancelled',
		'one that is gone, and one that is pending');
}

#
# A storm of stops.  Tasks with an odd id are hit whenever they are seen to
# run; those with an even one, in between and in the same sessions, are not.
#
query(q{
	TRUNCATE ran, answers;
	DELETE FROM delay_wheel_data.failed_task;
	CREATE PROCEDURE harass(once boolean) LANGUAGE plpgsql AS $$
	DECLARE
		victim bigint;
		word text;
	BEGIN
		WHILE EXISTS (SELECT FROM delay_wheel_data.task) LOOP
			FOR victim IN SELECT task FROM delay_wheel.running WHERE task % 2 = 1 LOOP
				CONTINUE WHEN once AND EXISTS (SELECT FROM answers WHERE id = victim AND answer IN ('stopping', 'cancelled'));
				word := delay_cancel(victim, true);
				INSERT INTO answers VALUES (victim, word);
				COMMIT;
			END LOOP;
			COMMIT;
		END LOOP;
	END $$});
sub storm
{
	my ($once) = @_;
	my @sessions = map { $node->background_psql('postgres', timeout => 300, on_error_stop => 0) } 1 .. 2;

	$_->query_until(qr/^go$/m, "\\echo go\nCALL harass($once);\n\\echo over\n") for @sessions;
	for my $session (@sessions)
	{
		$session->query_until(qr/^over$/m, '');
		$session->quit;
	}
	return;
}
my $n = long_tests() ? 50000 : 6000;
# a task of a batch is not stopped: who wants to waits for the batch
$node->safe_psql('postgres', 'ALTER SYSTEM SET delay_wheel.batch_tasks = 1');
$node->reload;
$position = log_position($node);
# (all at once, when the sessions are there)
query("SELECT count(delay_schedule('2 s', 'INSERT INTO ran SELECT me() FROM pg_sleep(0.0005 * (me() % 2))')) FROM generate_series(1, $n)");
storm('false');
is(query(q{SELECT count(*) FROM ran WHERE id % 2 = 0}), $n / 2, "of $n tasks, the ones that are left alone have all run");
is(query(q{SELECT count(*) FROM delay_wheel.failed WHERE id % 2 = 0}), 0, 'none of them has failed');
is(query(q{WITH e AS (SELECT id FROM ran WHERE id % 2 = 1 UNION ALL SELECT id FROM delay_wheel.failed
			UNION ALL SELECT id FROM answers WHERE answer = 'cancelled')
		SELECT count(*), count(DISTINCT id) FROM e}), $n / 2 . '|' . $n / 2,
	'each of the others was cancelled, has run, or was stopped: one of them');
is(query(q{SELECT count(*) FROM delay_wheel.failed WHERE sqlstate <> '57014' OR message !~ '^task was stopped by role' OR attempts <> 1
		OR id NOT IN (SELECT id FROM answers WHERE answer = 'stopping')}), 0, 'none has failed that was not stopped');
note('answers: ' . query(q{SELECT string_agg(answer || ' ' || n, ', ') FROM (SELECT answer, count(*) AS n FROM answers GROUP BY 1) a})
	. '; stopped: ' . query('SELECT count(*) FROM delay_wheel.failed'));
cmp_ok(query('SELECT count(*) FROM delay_wheel.failed'), '>', 20, 'many were stopped');
unlike(log_since($node, $position), qr/could not (claim|record)/, 'nobody was cancelled in between');

# Tasks that fail and are tried again for ever: who is told that one is
# stopping, or cancelled, needs no second word.
query('TRUNCATE ran, answers; DELETE FROM delay_wheel_data.failed_task');
query(q{SELECT count(delay_schedule_task('SELECT pg_sleep(0.002); SELECT 1 / 0', delay => '2 s', max_attempts => 32767, options => '{"retry_delay": "1 s"}')) FROM generate_series(1, 200)});
query(q{DELETE FROM delay_wheel_data.task WHERE id % 2 = 0; UPDATE delay_wheel_data.task SET retry_delay = '0'});
storm('true');
is(query(q{SELECT count(DISTINCT id), count(*) FILTER (WHERE answer NOT IN ('cancelled', 'stopping', 'gone')) FROM answers}),
	'100|0', 'each of 100 tasks that were tried again and again has ended by a word');
is(query(q{SELECT count(*) FROM delay_wheel.failed WHERE sqlstate = '57014'}),
	query(q{SELECT count(DISTINCT id) FROM answers WHERE answer = 'stopping'}), 'those that were stopping have failed');
is(query(q{SELECT count(*) FROM answers a JOIN answers b USING (id) WHERE a.answer = 'stopping' AND b.answer = 'cancelled'}), 0,
	'none of them was put back first');
note('answers: ' . query(q{SELECT string_agg(answer || ' ' || n, ', ') FROM (SELECT answer, count(*) AS n FROM answers GROUP BY 1) a}));

#
# The steps at which it matters.
#
SKIP:
{
	skip 'needs the build with injection points', 1 unless has_injection();

	query('TRUNCATE ran');
	# claimed, but not begun
	attach($node, 'claim-after-delete', 'wait', 0, 1);
	$id = task('INSERT INTO ran VALUES (me())', 3, '1 us');
	wait_until_waiting($node, 'claim-after-delete', 'a task is claimed');
	is(query("SELECT delay_cancel($id, true)"), 'stopping', 'it can be stopped');
	detach($node, 'claim-after-delete');
	failed_with($id, '1|57014', 'it has failed');
	is(query('SELECT count(*) FROM ran'), 0, 'and has had no effect');

	# its SQL is over, it is about to commit: done, and the next one is not hit
	attach($node, 'run-before-commit', 'wait', 0, 1);
	$id = task('INSERT INTO ran VALUES (me())', 3, '1 us');
	wait_until_waiting($node, 'run-before-commit', 'a task is about to commit');
	my $next = task('INSERT INTO ran SELECT me() FROM pg_sleep(0.1)', 1, '1 us');
	is(query("SELECT delay_cancel($id, true)"), 'stopping', 'it can be stopped');
	detach($node, 'run-before-commit');
	ran($id, 'but is done');
	ran($next, 'the next one runs');

	# it has failed and is being put back: who stops it waits, and cancels it
	attach($node, 'retry-before-insert', 'wait', 0, 1);
	$id = task('SELECT 1 / 0', 3, '1 hour');
	wait_until_waiting($node, 'retry-before-insert', 'a task is about to be put back');
	my $other = $node->background_psql('postgres');
	$other->query_until(qr/^go$/m, "\\echo go\nSELECT 'said: ' || delay_cancel($id, true);\n");
	wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'", 'a session waits for that', 60, expected => 1);
	detach($node, 'retry-before-insert');
	like($other->query_until(qr/said: \w+/, ''), qr/said: cancelled/, 'and cancels it');
	$other->quit;
	is(query("SELECT count(*) FROM delay_wheel_data.task"), 0, 'it is gone');
	is(query("SELECT count(*) FROM delay_wheel.failed WHERE id = $id"), 0, 'and has not failed');

	# putting it back fails: an error, then the end of the executor
	attach($node, 'retry-before-insert', 'error', 0, 2);
	$id = task('SELECT 1 / (nextval($$runs$$) / 2); INSERT INTO ran VALUES (me())', 2, '1 us');
	ran($id, 'an error while a task is put back passes');
	attach($node, 'retry-before-insert', 'fatal', 0, 1);
	$id = task('SELECT 1 / (nextval($$runs$$) / 3); INSERT INTO ran VALUES (me())', 2, '1 us');
	ran($id, 'if the executor ends then, the attempt is done again');
}

#
# Waiting.
#
my ($session, $pid);
sub begin_wait
{
	my ($task) = @_;
	$session = $node->background_psql('postgres', on_error_stop => 0);
	($pid) = $session->query_safe('SELECT pg_backend_pid()') =~ /(\d+)/;
	$session->query_until(qr/^go$/m, "\\echo go\nSELECT 'outcome: ' || delay_wait($task);\n\\echo over\n");
	wait_for($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid", 'a session waits');
	return;
}
sub end_wait
{
	my ($expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out) = $session->query_until(qr/^over$/m, '');

	if (defined $expected) { like($out, qr/^outcome: $expected$/m, $what); }
	$session->quit;
	return;
}
sub still_waits
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(query("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid"), 'Extension', $what);
	return;
}

$id = task("SELECT pg_sleep(600)", 1, '1 us');
running($id, 'a task sleeps');
begin_wait($id);
query("SELECT delay_cancel($id, true)");
end_wait('failed', 'a session is told that it was stopped');

$id = query("SELECT delay_schedule('1 hour', 'INSERT INTO ran VALUES (me())')");
begin_wait($id);
query("BEGIN; SELECT delay_cancel($id); ROLLBACK");
query("BEGIN; SELECT delay_cancel($id); PREPARE TRANSACTION 'p'");
query("ROLLBACK PREPARED 'p'");
query("BEGIN; SELECT delay_cancel_all(due_from => '-infinity'); ROLLBACK");
query("SELECT delay_reschedule($id, '2 hours')");
still_waits('it waits on, whatever is rolled back or moved');
query("BEGIN; SELECT delay_cancel($id); PREPARE TRANSACTION 'p'");
still_waits('and while that is prepared');
query("COMMIT PREPARED 'p'");
end_wait('cancelled', 'it is told of the end of a prepared transaction');

$id = query("SELECT delay_schedule('1 hour', 'SELECT 1')");
begin_wait($id);
query("SELECT delay_cancel_all(due_from => now())");
end_wait('cancelled', 'it is told of a cancellation of all tasks');

# One that had begun before is not cancelled by that.
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
$id = query("SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(1)')");
running($id, 'a task runs');
begin_wait($id);
query("SELECT delay_cancel_all(due_from => '-infinity')");
still_waits('a task that runs is waited for in spite of that');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
end_wait('done', 'and is done');

# Replaced by a newer one of its key; put to the failed ones with its owner.
$id = query("SELECT delay_schedule_task('SELECT 1', delay => '1 hour', key => 'k')");
begin_wait($id);
query("SELECT delay_schedule_task('SELECT 2', delay => '1 hour', key => 'k', if_exists => 'replace')");
end_wait('cancelled', 'it is told that the task was replaced');
query("CREATE ROLE leaver LOGIN; SELECT delay_wheel.allow('leaver')");
$id = (split /\n/, query("SET ROLE leaver; SELECT delay_schedule('1 hour', 'SELECT 1')"))[-1];
begin_wait($id);
query("SELECT delay_wheel.disallow('leaver'); DROP ROLE leaver");
end_wait('failed', 'it is told that the task has failed for want of its owner');
query('SELECT delay_cancel(id) FROM delay_wheel.tasks');

# Cancelled or terminated itself: the place in shared memory is free again.
$id = query("SELECT delay_schedule('1 hour', 'SELECT 1')");
begin_wait($id);
query("SELECT pg_cancel_backend($pid)");
my ($error) = $session->query_until(qr/^over$/m, '');
unlike($error, qr/outcome/, 'who waits can be cancelled');
like($session->query("SELECT 'outcome: ' || delay_wait($id, '0.1 s')"), qr/outcome: timeout/, 'and can wait again');
$session->quit;
begin_wait($id);
query("SELECT pg_terminate_backend($pid, 60000)");
eval { $session->quit };
is(query("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), 0, 'and terminated');

# It is in nobody's way, also not of the end of the extension.
$position = log_position($node);
begin_wait($id);
query('VACUUM FULL delay_wheel_data.task');
query("SET statement_timeout = '60 s'; DROP EXTENSION delay_wheel CASCADE");
pass('the extension is dropped meanwhile');
end_wait();
like(log_since($node, $position), qr/extension "delay_wheel" is not complete in this database/, 'who waits gets an error');

done_testing();
