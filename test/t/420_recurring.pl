# Recurring tasks where it takes crashes, restarts, copies and the sweeper: no
# run is lost or doubled, lost ones are found again, and what was missed while
# the server was down is made up for as was told.
#
#   DW_LONG      also 1,000 runs of one second each
#   DW_CRASHES   how often the server crashes (4; 12 if DW_LONG)

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('recurring', injection => has_injection(), conf => q{
restart_after_crash = on
timezone = 'Europe/Berlin'
log_statement = none
});
my $q = sub { return $node->safe_psql('postgres', $_[0]) };

$q->(q{
	CREATE TABLE log (name text, ideal timestamptz, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION note(of_name text) RETURNS void LANGUAGE sql AS $$
		INSERT INTO public.log (name, ideal) SELECT name, next_due FROM delay_wheel_data.recurring_task WHERE name = of_name
	$$;
});

# A test: the ideal times in the log are starts, starts + every and so on, each once.
sub complete
{
	my ($name, $every, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is($q->(qq{
		SELECT count(*) > 1, count(*) = count(DISTINCT ideal), max(ideal) = min(ideal) + (count(*) - 1) * interval '$every'
		FROM log WHERE name = '$name'}), 't|t|t', $what);
}

# The timer starts anew; returns when it has.
sub new_timer
{
	my ($pid) = worker_pids($node, 'timer');

	$q->("SELECT pg_terminate_backend($pid, 60000)");
	return wait_until(60, sub { my ($new) = worker_pids($node, 'timer'); defined $new && $new != $pid });
}

#
# The long one runs while the others do: its own server is at peace.
#
my $quiet;
if (long_tests())
{
	$quiet = new_node('quiet');
	$quiet->safe_psql('postgres', q{
		CREATE TABLE log (ideal timestamptz, at timestamptz);
		SELECT delay_every('second', '1 second', 'INSERT INTO log SELECT next_due, clock_timestamp() FROM delay_wheel_data.recurring_task', options => '{"max_runs": 1000}')});
}

#
# Crashes: of the server, by killing an executor, or whoever is there, in any
# moment of a task of 100 ms.
#
$q->(q{SELECT delay_every('crashes', '100 ms', 'SELECT note(''crashes''), pg_sleep(0.05)', options => '{"catch_up": "all"}')});
for my $i (1 .. $ENV{DW_CRASHES} // (long_tests() ? 12 : 4))
{
	my $position = log_position($node);
	my $runs = $q->('SELECT count(*) FROM log');
	my $pid;

	wait_for($node, "SELECT count(*) > $runs FROM log", "crash $i: it runs before");
	sleep(rand(0.15));
	(undef, $pid) = try_psql($node, 'postgres', $i % 3 == 0 ?
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'} :
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor' ORDER BY (state = 'active') DESC LIMIT 1});
	# who connects before the postmaster has noticed is still served
	wait_until(10, sub { log_since($node, $position) =~ /all server processes terminated; reinitializing/ })
	  if $pid =~ /^\d+$/ && kill('KILL', $pid);
	wait_until(60, sub { (try_psql($node, 'postgres', 'SELECT 1'))[0] == 0 });
}
# with the points at which it matters
if (has_injection())
{
	for my $point (qw(run-after-sql schedule-before-insert schedule-after-insert run-before-commit run-after-commit))
	{
		my $position = log_position($node);
		my $runs;

		wait_for($node, 'SELECT true', "$point: the server is up");
		$q->(q{CREATE EXTENSION IF NOT EXISTS delay_wheel});
		# who crashes time and again is set aside
		$runs = $q->('SELECT count(*) FROM log');
		wait_for($node, "SELECT count(*) > $runs FROM log", "$point: it runs before");
		attach($node, $point, 'crash', 0, 1);
		ok(wait_until(60, sub { log_since($node, $position) =~ /all server processes terminated; reinitializing/ }),
			"a crash at $point");
	}
}
wait_for($node, 'SELECT count(*) > 20 FROM log', 'it still runs');
is($q->(q{SELECT delay_pause_recurring('crashes')}), 't', 'it is paused');
wait_for($node, q{SELECT state FROM delay_wheel.recurring}, 'its last run has ended', 60, expected => 'paused');
complete('crashes', '100 ms', 'no run is lost or doubled');
is($q->(q{SELECT runs = (SELECT count(*) FROM log) FROM delay_wheel.recurring}), 't', 'and their number is right');
is($q->('SELECT count(*) FROM delay_wheel_data.task'), 0, 'nothing is left');
$q->(q{SELECT delay_unschedule('crashes')});

#
# A server that was down for a day: what was due then is as if the clock had
# been set ahead.
#
$q->(q{SELECT delay_every(catch_up, '1 hour', format('SELECT note(%L)', catch_up), starts => date_trunc('hour', now()) + '90 minutes', options => jsonb_build_object('catch_up', catch_up))
	FROM unnest('{skip,all}'::text[]) catch_up;
	SELECT delay_every('late', '1 hour', 'SELECT note(''late'')', starts => date_trunc('hour', now()) + '90 minutes', options => '{"skip_after": "1 minute"}');
	SELECT delay_cron('cron ' || catch_up, '30 * * * *', format('SELECT note(%L)', 'cron ' || catch_up), options => jsonb_build_object('catch_up', catch_up))
	FROM unnest('{skip,all}'::text[]) catch_up});
$q->(q{ALTER SYSTEM SET delay_wheel.enabled = off});
$node->restart;
$q->(q{UPDATE delay_wheel_data.recurring_task SET starts = starts - interval '24 hours', next_due = next_due - interval '24 hours';
	UPDATE delay_wheel_data.task SET due = due - interval '24 hours'});
is($q->('SELECT count(*) FROM delay_wheel_data.task WHERE due < now()'), 5, 'all are overdue');
$q->(q{ALTER SYSTEM RESET delay_wheel.enabled});
$node->restart;
wait_for($node, 'SELECT count(*) FROM delay_wheel.recurring WHERE next_due > now()', 'all are up to date again', 60, expected => 5);
is($q->(q{SELECT name, count(*) BETWEEN 22 AND 26 AS day, count(*), count(*) - count(DISTINCT ideal) FROM log WHERE name LIKE '%skip' OR name = 'late' GROUP BY name ORDER BY name}),
	"cron skip|f|1|0\nskip|f|1|0", 'skip makes up for the one that waited, skip_after not even for that');
is($q->(q{SELECT string_agg(name, ',' ORDER BY name) FROM (SELECT name FROM log WHERE name LIKE '%all' GROUP BY name HAVING count(*) BETWEEN 22 AND 26) l}), 'all,cron all',
	'all makes up for the day');
complete($_, '1 hour', "$_: each hour once") for 'all', 'cron all';
is($q->(q{SELECT count(*) FROM (SELECT ideal < lag(ideal) OVER (PARTITION BY name ORDER BY at) AS back FROM log) l WHERE back}), 0, 'in order');
is($q->(q{SELECT count(*) FROM delay_wheel.recurring WHERE next_due <= now() + '1 hour' AND extract(minute FROM next_due) = 30}), 5, 'and all go on with their next time');
is($q->(q{SELECT runs, skipped, last_outcome FROM delay_wheel.recurring WHERE name = 'late'}), '0|1|skipped', 'a run that came too late is noted');
is($q->('SELECT count(delay_unschedule(name)) FROM delay_wheel.recurring'), 5, 'removed');

#
# Runs that got lost are found again when the timer starts; those that have not
# are left alone: pending, running, deleted by an open or prepared transaction,
# paused, finished.
#
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(4713)');
$q->(q{SELECT delay_every(name, '1 day', 'SELECT 1', starts => '2500-01-01')
		FROM unnest('{pending,open,prepared,changing,paused,deleted}'::text[]) name;
	SELECT delay_every('finished', '100 ms', 'SELECT 1', options => '{"max_runs": 1}');
	SELECT delay_pause_recurring('paused');
	SELECT delay_every('running', '1 day', 'SELECT pg_advisory_xact_lock_shared(4713)', starts => clock_timestamp() + '1 s')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'one is running', 60, expected => 1);
wait_for($node, q{SELECT state FROM delay_wheel.recurring WHERE name = 'finished'}, 'one is finished', 60, expected => 'finished');
my $runs = q{SELECT string_agg(format('%s %s', name, task), ',' ORDER BY name) FROM delay_wheel.recurring WHERE name <> 'deleted'};
my $before = $q->($runs);
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; DELETE FROM delay_wheel_data.task WHERE id = (SELECT task FROM delay_wheel.recurring WHERE name = 'open')});
my $changing = $node->background_psql('postgres');
$changing->query_safe(q{BEGIN; SELECT delay_every('changing', '2 days', 'SELECT 2', starts => '2500-01-01')});
$q->(q{BEGIN; SELECT delay_every('prepared', '2 days', 'SELECT 2', starts => '2500-01-01'); PREPARE TRANSACTION 'recurring'});
# the last one to be looked at, and the only one that is lost
my $lost = $q->(q{SELECT task FROM delay_wheel.recurring WHERE name = 'deleted'});
my $position = log_position($node);
$q->("DELETE FROM delay_wheel_data.task WHERE id = $lost");
my $is_back = qq{SELECT count(*) FROM delay_wheel.recurring r JOIN delay_wheel_data.task t ON t.id = r.task AND t.due = r.next_due WHERE name = 'deleted' AND t.id <> $lost};
wait_for($node, $is_back, 'one that has lost its run has a run again', 60, expected => 1);
ok(new_timer(), 'there is a new timer');
my $lost_again = $q->(q{SELECT task FROM delay_wheel.recurring WHERE name = 'deleted'});
$q->("DELETE FROM delay_wheel_data.task WHERE id = $lost_again");
wait_for($node, $is_back . " AND t.id <> $lost_again", 'which has all of them looked at', 60, expected => 1);
is($q->($runs), $before, 'the others are as they were');
is(scalar(() = log_since($node, $position) =~ /has lost its run/g), 2, 'the log tells of it');
$q->(q{COMMIT PREPARED 'recurring'});
$changing->query_safe('ROLLBACK');
$changing->quit;
# what an open transaction deletes is lost when it has committed
$open->query_safe('COMMIT');
$open->quit;
$gate->query_safe('SELECT pg_advisory_unlock(4713)');
wait_for($node, q{SELECT runs FROM delay_wheel.recurring WHERE name = 'running'}, 'the one that was running has ended', 60, expected => 1);
ok(new_timer(), 'there is a new timer');
my $all_back = q{SELECT count(*), count(t.id) FROM delay_wheel.recurring r LEFT JOIN delay_wheel_data.task t ON t.id = r.task AND t.due = r.next_due WHERE r.state = 'waiting'};
wait_for($node, $all_back, 'all have a run', 60, expected => '6|6');
is($q->('SELECT count(*) FROM delay_wheel_data.task'), 6, 'and no more');
# all of them at once
$q->('TRUNCATE delay_wheel_data.task');
ok(new_timer(), 'there is a new timer');
wait_for($node, $all_back, 'all have a run again', 60, expected => '6|6');
is($q->('SELECT count(*) FROM delay_wheel_data.task'), 6, 'and no more');
# changed, one that has lost its run gets another one
$q->(q{DELETE FROM delay_wheel_data.task; SELECT delay_every('deleted', '1 day', 'SELECT 3', starts => '2500-02-01')});
is($q->($is_back), 1, 'a change makes a new run');

#
# Outside of a transaction a run may get lost with its executor: at_most_once
# lets it be, and goes on with the next one; at_least_once runs it again.
#
$q->(q{SELECT delay_unschedule(name) FROM delay_wheel.recurring;
	CREATE TABLE gate (open boolean);
	CREATE PROCEDURE long_run(of_name text) LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO log (name) VALUES (of_name);
		COMMIT;
		WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.01); COMMIT; END LOOP;
	END $$;
	TRUNCATE log});
for my $mode (qw(at_most_once at_least_once))
{
	my $state = qq{SELECT state, runs, failures FROM delay_wheel.recurring WHERE name = '$mode'};
	my $has_run = qq{SELECT count(*) FROM delay_wheel.recurring r JOIN delay_wheel_data.task t ON t.id = r.task AND t.due = r.next_due WHERE name = '$mode' AND next_due > now()};

	$q->(qq{TRUNCATE gate; SELECT delay_every('$mode', '1 day', 'CALL long_run(''$mode'')', starts => clock_timestamp() + '0.5 s', options => jsonb_build_object('mode', '$mode'))});
	wait_for($node, qq{SELECT count(*) FROM log WHERE name = '$mode'}, "$mode: a run has begun", 60, expected => 1);
	is($q->($state), 'running|0|0', "$mode: it is shown");
	# changed, and looked for, meanwhile: there is no other one
	ok(new_timer(), "$mode: there is a new timer");
	$q->(qq{SELECT delay_every('$mode', '2 days', 'CALL long_run(''$mode'')', starts => clock_timestamp() + '2 days', options => jsonb_build_object('mode', '$mode'))});
	is($q->($has_run), 0, "$mode: a change makes no other run");
	is($q->('SELECT count(pg_terminate_backend(pid, 60000)) FROM delay_wheel.running'), 1, "$mode: its executor is terminated");
	$q->('INSERT INTO gate VALUES (true)');
	wait_for($node, $has_run, "$mode: there is the next run", 60, expected => 1);
	is($q->($state), $mode eq 'at_most_once' ? 'waiting|1|1' : 'waiting|1|0', "$mode: what is known of the run");
	is($q->(qq{SELECT count(*) FROM log WHERE name = '$mode'}), $mode eq 'at_most_once' ? 1 : 2, "$mode: how often it was begun");
}
is($q->(q{SELECT count(delay_unschedule(name)) FROM delay_wheel.recurring}), 2, 'removed');

#
# A mark hits a run whose task is being changed: the sweeper does not wait, and
# leaves it for later.
#
$q->(q{SELECT delay_every('marked', '1 day', 'SELECT 1', starts => '2500-01-01')});
$changing = $node->background_psql('postgres');
$changing->query_safe(q{BEGIN; SELECT FROM delay_wheel_data.recurring_task FOR UPDATE});
$q->(q{SELECT delay_cancel_all(due_from => '2500-01-01')});
wait_for($node, q{SELECT state FROM delay_wheel.cancellations}, 'the sweeper waits', 60, expected => 'waiting');
is($q->('SELECT count(*) FROM delay_wheel.tasks'), 0, 'the run is cancelled');
$changing->query_safe('ROLLBACK');
$changing->quit;
wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'it is removed in the end', 150, expected => 0);
is($q->(q{SELECT next_due = '2500-01-02', skipped, last_outcome, (SELECT count(*) FROM delay_wheel.tasks WHERE due = next_due) FROM delay_wheel.recurring}), 't|1|cancelled|1',
	'and followed by the next one');

#
# Locks: a limit that is meant for a run's SQL does not concern its end.
#
$q->(q{CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET lock_timeout = '10ms'; SELECT delay_wheel.allow('hasty');
	SET ROLE hasty; SELECT delay_every('hasty', '1 day', 'SELECT 1', starts => clock_timestamp() + '1 s')});
$changing = $node->background_psql('postgres');
$changing->query_safe(q{BEGIN; SELECT FROM delay_wheel_data.recurring_task FOR UPDATE});
wait_for($node, q{SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE backend_type = 'delay_wheel executor' AND usename = 'hasty' AND NOT granted},
	'a run waits at its end', 60, expected => 1);
sleep(0.1);
$changing->query_safe('COMMIT');
$changing->quit;
wait_for($node, q{SELECT runs, failures, last_outcome FROM delay_wheel.recurring WHERE name = 'hasty'}, 'it is done', 60, expected => '1|0|done');

#
# An error at the end of a run, not of its SQL: it counts as failed, and that is
# written down however often it takes, not in silence.
#
if (has_injection())
{
	$q->(q{TRUNCATE log; SELECT delay_unschedule('marked'); SELECT delay_every('error', '1 day', 'SELECT note(''error'')', starts => '2500-01-01')});
	$position = log_position($node);
	attach($node, 'recurring-before-lock', 'error', 0, 4);
	$q->(q{SELECT delay_reschedule(task, '0') FROM delay_wheel.recurring WHERE name = 'error'});
	wait_for($node, q{SELECT runs, last_outcome FROM delay_wheel.recurring WHERE name = 'error'}, 'a run is settled in the end', 60, expected => '1|failed');
	is(scalar(() = log_since($node, $position) =~ /could not record the outcome of task/g), 1, 'the log tells of it, once');
	is($q->(q{SELECT count(*) FROM delay_wheel_data.task WHERE more ? 'recurring' AND due = '2500-01-02'}), 1, 'there is the next one');
}

#
# The look for lost runs is begun anew after an error.
#
if (has_injection())
{
	attach($node, 'repair-before-commit', 'error', 0, 1);
	$q->(q{DELETE FROM delay_wheel_data.task});
	ok(new_timer(), 'there is a new timer');
	wait_for($node, q{SELECT count(*), count(t.id) FROM delay_wheel.recurring r LEFT JOIN delay_wheel_data.task t ON t.id = r.task}, 'lost runs are found after an error', 60, expected => '2|2');
}

#
# Copies: a dump carries them, they wait for delay_wheel.arm(), with their runs.
#
$q->(q{SELECT delay_unschedule(name) FROM delay_wheel.recurring;
	SELECT delay_every('copied', '1 day', 'SELECT 1', starts => '2500-01-01'), delay_cron('paused', '0 0 1 1 *', 'SELECT 1', starts => '2500-01-01');
	SELECT delay_pause_recurring('paused');
	SELECT delay_every('cancelled', '1 day', 'SELECT 1', starts => '2500-01-01')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
my $db = 'copy';
$node->command_ok([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-Fc', '-f', $dump, 'postgres' ], 'dumped');
$q->("CREATE DATABASE $db");
$node->run_log([ 'pg_restore', '-h', $node->host, '-p', $node->port, '-d', $db, $dump ]);
my $in_copy = sub { return $node->safe_psql($db, $_[0]) };
is($in_copy->('SELECT name, state, next_due IS NOT NULL FROM delay_wheel.recurring ORDER BY name'), "cancelled|unarmed|t\ncopied|unarmed|t\nhasty|unarmed|t\npaused|unarmed|f",
	'restored');
my $watched = 'SELECT sum(tasks) FROM delay_wheel.recurring_status';
is($in_copy->($watched), '', 'nobody is told that they do not run');
# its end does not make another run here
is($in_copy->(q{SELECT delay_cancel(task) FROM delay_wheel.recurring WHERE name = 'cancelled'}), 'cancelled', 'a single run is cancelled');
is($in_copy->(q{SELECT count(*) FROM delay_wheel.tasks}), 2, 'there is no other one for it');
# who declares it here means it to run here
is($in_copy->(q{SELECT delay_every('copied', '1 day', 'SELECT 1', starts => '2500-01-01') > 0}), 't', 'one is declared anew');
is($in_copy->(q{SELECT state, r.next_due = t.due FROM delay_wheel.recurring r JOIN delay_wheel.tasks t ON t.id = r.task AND t.armed WHERE name = 'copied'}), 'waiting|t', 'it is armed');
is($in_copy->('SELECT delay_wheel.arm()'), 1, 'the others are armed');
is($in_copy->(q{SELECT name, state, r.next_due = t.due FROM delay_wheel.recurring r LEFT JOIN delay_wheel.tasks t ON t.id = r.task AND t.armed ORDER BY name}),
	"cancelled|waiting|t\ncopied|waiting|t\nhasty|waiting|t\npaused|paused|", 'they go on');
is($in_copy->($watched), 4, 'from then on they are watched');
is($in_copy->(q{SELECT delay_resume_recurring('paused')}), 't', 'also the one that was paused');
is($in_copy->('SELECT count(*) FROM delay_wheel.tasks'), 4, 'each has one run');
is($q->('SELECT count(*) FROM delay_wheel.tasks'), 3, 'those of the original are as they were');

#
# 1,000 runs of one second.
#
if ($quiet)
{
	wait_for($quiet, 'SELECT state FROM delay_wheel.recurring', '1,000 runs of one second', 1100, expected => 'finished');
	is($quiet->safe_psql('postgres', q{SELECT count(*), count(DISTINCT ideal), max(ideal) - min(ideal) = '999 s' FROM log}), '1000|1000|t', 'each time has one');
	my $late = $quiet->safe_psql('postgres', q{SELECT extract(epoch FROM at - ideal) * 1000 FROM log ORDER BY ideal DESC LIMIT 1});
	note("the last one began $late ms after its ideal time; all of them: " . $quiet->safe_psql('postgres',
		q{SELECT percentile_disc('{0.5,0.99,1}'::float[]) WITHIN GROUP (ORDER BY extract(epoch FROM at - ideal) * 1000) FROM log}));
	cmp_ok($late, '>=', 0, 'the last one not before its ideal time');
	cmp_ok($late, '<', 20, 'and less than 20 ms after it');
}

done_testing();
