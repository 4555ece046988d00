# The clock is set by hours, both ways, while tasks wait in all places where
# they can: nothing begins before its due time by the clock of that moment,
# nothing runs twice, and nothing waits for a time that was computed by another
# clock.
#
# The whole server goes by a clock of its own (test/tools/clock_shim.c), now()
# in tasks and PostgreSQL's timeouts, too.  With DW_REAL_CLOCK=1 the machine's
# clock is set instead, by "sudo -n date": only where nobody minds.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME);

plan skip_all => 'the clock is set on Linux only' if $^O ne 'linux';

# the server's directory is another one
my $tempdir = abs_path(PostgreSQL::Test::Utils::tempdir());
my $really = $ENV{DW_REAL_CLOCK};
my $shim = "$tempdir/clock_shim.so";
my $file = "$tempdir/clock";
plan skip_all => 'the shim and the sanitizers are in each other\'s way' if !$really && $ENV{DW_SANITIZE};
# the machine's clock as it would be if nobody had set it
my $real = clock_gettime(CLOCK_REALTIME) - clock_gettime(CLOCK_MONOTONIC);

if (!$really && system($ENV{CC} // 'cc', '-O2', '-shared', '-fPIC', '-o', $shim,
		"$FindBin::RealBin/../tools/clock_shim.c", '-ldl') != 0)
{
	plan skip_all => 'there is no C compiler for the clock shim';
}

#
# The clock: by how many seconds it is ahead of the machine's.
#
my $ahead = 0;

sub set_clock
{
	($ahead) = @_;
	if ($really)
	{
		my $to = sprintf '@%.6f', $real + clock_gettime(CLOCK_MONOTONIC) + $ahead;
		system('sudo', '-n', 'date', '-s', $to) == 0 or die 'could not set the clock';
		return;
	}
	open(my $out, '+<:raw', $file) or die "$file: $!";
	syswrite($out, pack('q', $ahead * 1_000_000)) == 8 or die "$file: $!";
	close $out;
	return;
}

sub step { return set_clock($ahead + $_[0]); }

append_to_file($file, pack('q', 0));
END { set_clock(0) if $really && $ahead }

my $node = new_node('clock', start => 0, injection => has_injection(), conf => q{
log_statement = none
timezone = 'Europe/Berlin'
autovacuum = off
delay_wheel.slots = 60
delay_wheel.tick = 1s
delay_wheel.history = all
});
{
	local $ENV{LD_PRELOAD} = $shim if !$really;
	local $ENV{DW_CLOCK_FILE} = $file if !$really;
	$node->start;
}
my $q = sub { return $node->safe_psql('postgres', $_[0]) };
my ($minute, $hour, $day) = (60, 3600, 86400);

$q->(q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.allow('public');
	CREATE ROLE anna LOGIN;
	CREATE ROLE bert LOGIN;
	CREATE ROLE carla LOGIN;
	CREATE TABLE expected (label text PRIMARY KEY, due timestamptz);
	CREATE TABLE effects (label text, due timestamptz, at timestamptz DEFAULT now());
	GRANT ALL ON expected, effects TO public;
	CREATE FUNCTION schedule(of_label text, at timestamptz, of_queue text DEFAULT NULL, and_then text DEFAULT '') RETURNS bigint
		LANGUAGE sql AS $$
		INSERT INTO public.expected VALUES (of_label, at);
		SELECT delay_schedule_task('INSERT INTO public.effects VALUES ($1, $2)' || and_then, due => at, queue => of_queue,
			args => ARRAY[of_label, at::text], options => '{"arg_types": ["text", "timestamptz"]}')
	$$});
create_injection($node) if has_injection();

sub ran
{
	my ($like, $count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effects WHERE label LIKE '$like'", $what, 60, expected => $count);
}

# A test: the server is alive, a task that is due at once and one due in a moment run.
my $fresh = 0;

sub alive
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$fresh++;
	$q->("SELECT schedule('fresh $fresh now', now()), schedule('fresh $fresh soon', now() + interval '500 ms')");
	return ran("fresh $fresh %", 2, "$what: new tasks run");
}

# A test: all that was ever expected by now has run, once, nothing else, nothing early.
sub sound
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($q->('SELECT count(*) FROM effects WHERE at < due'), 0, "$what: nothing early");
	is($q->('SELECT label, count(*) FROM effects GROUP BY label HAVING count(*) > 1'), '', "$what: nothing twice");
	is($q->(q{SELECT e.label FROM expected e WHERE due > now() + interval '10 s' AND NOT EXISTS (SELECT FROM effects x WHERE x.label = e.label)
			AND NOT EXISTS (SELECT FROM delay_wheel_data.task t WHERE t.args[1] = e.label)}), '', "$what: nothing lost");
	return;
}

#
# Steps with tasks everywhere.
#
my ($gate, $open);
group steps => sub {
	$q->(q{SELECT delay_wheel.create_queue('one', max_running => 1), delay_wheel.create_queue('rate', rate => 20)});
	$gate = $node->background_psql('postgres');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	my $wait = '; SELECT pg_advisory_xact_lock_shared(1)';
	$open = $node->background_psql('postgres');
	$open->query_safe(q{BEGIN; SELECT schedule('committed later', now() + interval '1 s'), schedule('committed much later', now() + interval '2 h')});
	$q->("SELECT schedule('running', now(), NULL, '$wait'), schedule('ready 0', now(), 'one', '$wait')");
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'two tasks run', 60, expected => 2);
	$q->(qq{
		SELECT schedule('ready ' || i, now(), 'one') FROM generate_series(1, 3) i;
		SELECT schedule('slot ' || i, now() + i * interval '10 ms') FROM generate_series(1, 300) i;
		SELECT schedule('rate ' || i, now(), 'rate') FROM generate_series(1, 100) i;
		SELECT schedule('pending ' || i, now() + i * interval '10 min') FROM generate_series(1, 24) i;
		SELECT schedule('day ' || i, now() + i * interval '1 day') FROM generate_series(1, 3) i;
		SELECT schedule('month ' || i, now() + i * interval '1 mon') FROM generate_series(1, 2) i;
		SELECT delay_schedule_task('SELECT 1 / 0', delay => '0', max_attempts => 2, options => '{"retry_delay": "10 min"}')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task WHERE attempts = 1', 'a task waits for its second attempt', 60, expected => 1);

	step(-5 * $hour);
	alive('5 hours back');
	$q->(q{SELECT schedule('rate back ' || i, now(), 'rate') FROM generate_series(1, 20) i});
	ran('rate back %', 20, 'a queue with a rate goes on at once');
	$open->query_safe('COMMIT');
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	ran('running', 1, 'the task that ran has come to its end');
	alive('its end');
	is($q->(q{SELECT count(*) FROM effects WHERE label LIKE 'pending%' OR label LIKE 'day%' OR label LIKE 'committed%'}), 0, 'nothing else has run');
	sound('5 hours back');

	step(5 * $hour);
	ran('slot %', 300, 'the time is what it was: what was due then runs');
	ran('ready %', 4, 'so does what was ready');
	ran('rate %', 120, 'and what the rate had kept');
	ran('committed later', 1, 'and what was committed meanwhile');
	sound('forward again');

	step(65 * $minute);
	ran('pending %', 6, 'an hour forward: what is due by then runs');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'the second attempt', 60, expected => 1);
	alive('an hour forward');
	step(-3 * $hour);
	alive('three hours back');
	ran('pending %', 6, 'what has run does not run again');
	step(3 * $hour + 60 * $minute);
	ran('pending %', 12, 'two hours forward');
	ran('committed%', 2, 'with what was committed by then');
	sound('two hours forward');
	# to and fro, quickly
	for my $i (1 .. 10)
	{
		step(-2 * $hour);
		step(2 * $hour + 4 * $minute);
	}
	ran('pending %', 16, 'to and fro');
	step($_ * $minute) for 30, -30, 50;
	alive('more of it');
	sound('more of it');
};

#
# Suspended, by two hours; everything was due meanwhile.
#
sub suspend
{
	my ($seconds) = @_;
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	# the postmaster first: it starts nobody then
	kill 'STOP', $postmaster;
	my @pids = map { /(\d+)/ } `pgrep -P $postmaster`;
	kill 'STOP', @pids;
	sleep(0.2);
	step($seconds);
	kill 'CONT', @pids, $postmaster;
	return;
}
group steps => sub {
	suspend(2 * $hour);
	ran('pending %', 24, 'resumed after two hours: all that was due runs');
	alive('resumed');
	suspend(-2 * $hour);
	alive('resumed, and the clock is back');
	step(2 * $hour);
	$open->quit;
	$gate->quit;

	# Days and months are those of the session's time zone when it was scheduled.
	step($day);
	ran('day %', 1, 'a day later');
	step(2 * $day);
	ran('day %', 3, 'three days later');
	step(62 * $day);
	ran('month %', 2, 'two months later');
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'nothing is left', 60, expected => 0);
	is($q->('SELECT count(*) FROM expected FULL JOIN effects USING (label) WHERE expected.due IS DISTINCT FROM effects.due'), 0,
		'each task has run');
	sound('two months later');
};

#
# What waits for a time that was computed by another clock.
#
group waits => sub {
	my $waiter = $node->background_psql('postgres');
	$q->("SELECT schedule('waited for', now() + interval '10 days')");
	$waiter->query_until(qr/waiting/, "\\echo waiting\nSELECT delay_wait((SELECT id FROM delay_wheel.tasks), '2 s') AS outcome;\n");
	wait_for($node, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE query ~ '^SELECT delay_wait'}, 'somebody waits');
	step(-3 * $hour);
	wait_for($node, q{SELECT state FROM pg_stat_activity WHERE query ~ '^SELECT delay_wait'}, 'three hours back: the timeout of delay_wait() is no longer', 60,
		expected => 'idle');
	$waiter->quit;
	$q->(q{SELECT delay_cancel(id) FROM delay_wheel.tasks; DELETE FROM expected WHERE label = 'waited for'});
};

$q->(q{ALTER SYSTEM SET delay_wheel.failed_max_count = 5; SELECT pg_reload_conf()});
sub fail_20
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$q->(q{SELECT delay_schedule('0', 'SELECT 1 / 0') FROM generate_series(1, 20)});
	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', "$what: tasks fail", 60, expected => 0);
}

sub trimmed
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.failed_task', "$what: the surplus of failed tasks is removed", 60, expected => 5);
}

# The first slice of a pass waits, or fails, and more tasks fail while it waits.
sub fail_while_trimmed
{
	my ($action) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	attach($node, 'trim-before-commit', $action, 0, 1);
	fail_20('the sweeper is called');
	return if $action ne 'wait';
	wait_until_waiting($node, 'trim-before-commit', 'the sweeper is at work');
	return fail_20('meanwhile');
}

sub failures
{
	my ($what) = @_;
	fail_20($what);
	return trimmed($what);
}
group failures => sub {
	failures('before');
	step(-3 * $hour);
	failures('three hours back');
};

group turns => sub {
	# Executors with work without end (pg_sleep() would sleep for three hours more) give way to an owner that has none.
	$q->(q{ALTER SYSTEM SET delay_wheel.max_executors = 1; SELECT pg_reload_conf()});
	$q->(q{SET SESSION AUTHORIZATION anna; SELECT delay_schedule_at(now() - interval '10 days', 'SELECT count(*) FROM generate_series(1, 200000)') FROM generate_series(1, 400)});
	wait_for($node, q{SELECT count(*) < 398 FROM delay_wheel_data.task}, 'an executor is at work');
	step(-3 * $hour);
	$q->(q{SET SESSION AUTHORIZATION bert; SELECT schedule('way', now())});
	ran('way', 1, 'three hours back: an executor gives way');
	cmp_ok($q->('SELECT count(*) FROM delay_wheel_data.task'), '>', 0, 'though it has work');
	$q->(q{ALTER SYSTEM RESET delay_wheel.max_executors; SELECT pg_reload_conf(); DELETE FROM delay_wheel_data.task});
};

# Between a failure and the next try at once.
group repeat => sub {
	my $lock = $node->background_psql('postgres');

	$lock->query_safe('SELECT pg_advisory_lock(2)');
	$q->(q{
		CREATE SEQUENCE tries;
		CREATE FUNCTION fail_once() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('tries') = 1 THEN
				PERFORM pg_advisory_xact_lock_shared(2);
				RAISE serialization_failure;
			END IF;
		END $$;
		SELECT schedule('repeated', now(), NULL, '; SELECT fail_once()')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a task is about to fail', 60, expected => 1);
	step(-2 * $hour);
	$lock->query_safe('SELECT pg_advisory_unlock(2)');
	$lock->quit;
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'two hours back: it has failed', 60, expected => 0);
	alive('a failure two hours before its due time');
	sound('a failure two hours before its due time');
	ran('repeated', 0, 'it is not tried again yet');
	step(2 * $hour);
	ran('repeated', 1, 'it is, when it is due');
	sound('tried again');
};

group moments => sub {
	if (has_injection())
	{
		my $position;

		# an owner without executors
		attach($node, 'executor-before-connect', 'error');
		$q->(q{SET SESSION AUTHORIZATION carla; SELECT schedule('blocked', now())});
		wait_for($node, q{SELECT reason FROM delay_wheel.lanes WHERE owner = 'carla' AND state = 'blocked'}, 'an owner is blocked', 60,
			expected => 'an executor could not connect, see the server log');
		step(-3 * $hour);
		detach($node, 'executor-before-connect');
		step(10 * $minute);
		$q->(q{SET SESSION AUTHORIZATION carla; SELECT schedule('not blocked', now())});
		ran('not blocked', 1, 'three hours back: it is tried again');
		step(3 * $hour);
		ran('blocked', 1, 'the other task, by its time');

		# a timer that ends by errors
		$position = log_position($node);
		attach($node, 'begin-after-reset', 'error');
		$q->('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = $$delay_wheel timer$$');
		ok(wait_until(60, sub { (() = log_since($node, $position) =~ /ERROR:.*begin-after-reset/g) >= 4 }), 'a timer ends again and again');
		step(-3 * $hour);
		detach($node, 'begin-after-reset');
		alive('three hours back: another one is started');

		# a load that failed
		$position = log_position($node);
		$q->(q{SELECT schedule('loaded', now() + interval '10 min')});
		attach($node, 'load-after-scan', 'error');
		step(9 * $minute + 50);
		ok(wait_until(60, sub { log_since($node, $position) =~ /ERROR:.*load-after-scan/ }), 'a load has failed');
		step(-3 * $hour);
		detach($node, 'load-after-scan');
		$q->(q{SELECT schedule('loaded, too', now() + interval '10 min')});
		step(11 * $minute);
		ran('loaded, too', 1, 'three hours back: the lane is loaded again');
		step(3 * $hour);
		ran('loaded', 1, 'the other task, by its time');

		# a slice of the sweeper's work that took ten hours, as it seems; more tasks fail than it has counted
		fail_while_trimmed('wait');
		step(10 * $hour);
		detach($node, 'trim-before-commit');
		wait_for($node, 'SELECT count(*) FROM pg_stat_activity WHERE backend_type = $$delay_wheel sweeper$$', 'ten hours forward: the sweeper ends', 60, expected => 0);
		# after a pass that took a second there is none for a minute
		step(2 * $minute);
		trimmed('ten hours forward');

		# a pass that is given up after it has counted
		$position = log_position($node);
		fail_while_trimmed('error');
		ok(wait_until(60, sub { log_since($node, $position) =~ /ERROR:.*trim-before-commit/ }), 'a pass has failed');
		detach($node, 'trim-before-commit');
		# it is tried again after a minute
		step(2 * $minute);
		trimmed('an error');
		fail_while_trimmed('wait');
		$q->('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = $$delay_wheel sweeper$$');
		trimmed('the sweeper terminated');
		detach($node, 'trim-before-commit');

		# between the moment in which a time to sleep until was computed, and the sleep
		attach($node, 'sleep-before-wait', 'wait', 0, 1);
		$q->(q{SELECT schedule('overslept', now() + interval '1 hour')});
		wait_until_waiting($node, 'sleep-before-wait', 'the timer is about to sleep');
		step(2 * $hour);
		detach($node, 'sleep-before-wait');
		ran('overslept', 1, 'the timer does not oversleep');

		# between the moment in which it was due, and its transaction
		for my $point (qw(claim-before-fetch claim-before-delete))
		{
			attach($node, $point, 'wait', 0, 1);
			$q->("SELECT schedule('$point', now())");
			wait_until_waiting($node, $point, "a task is about to begin: $point");
			step(-2 * $hour);
			detach($node, $point);
			alive("back in that moment: $point");
			step(2 * $hour);
			ran($point, 1, "$point: it runs, once");
		}
		sound('other clocks');
	}
};
is($q->(q{SELECT count(*) FROM delay_wheel_data.task}), 0, 'nothing is left');

#
# Recurring tasks that catch up: each ideal time once, whatever the clock does.  The others go on by
# the clock.
#
$q->(q{
	CREATE TABLE log (name text, ideal timestamptz, at timestamptz DEFAULT now(), nr bigint GENERATED ALWAYS AS IDENTITY);
	CREATE FUNCTION note(of_name text) RETURNS void LANGUAGE sql AS $$
		INSERT INTO public.log (name, ideal) SELECT name, next_due FROM delay_wheel_data.recurring_task WHERE name = of_name
	$$});

sub up_to_date
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, q{SELECT count(*) FROM delay_wheel.recurring WHERE next_due <= now()}, $what, 60, expected => 0);
}

sub recurring_sound
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($q->(q{SELECT name, ideal FROM log WHERE name LIKE '%all' GROUP BY 1, 2 HAVING count(*) > 1}), '', "$what: each time once by those that catch up");
	is($q->('SELECT * FROM log WHERE at < ideal'), '', "$what: none early");
	return is($q->(q{SELECT name FROM (SELECT name, ideal - lag(ideal) OVER (PARTITION BY name ORDER BY ideal) AS gap FROM log WHERE name LIKE '%all') l
		WHERE gap <> CASE name WHEN 'every all' THEN interval '10 min' ELSE interval '15 min' END}), '', "$what: none left out by those that catch up");
}
group recurring => sub {
	$q->(q{
		SELECT delay_every('every ' || c, '10 min', format('SELECT note(%L)', 'every ' || c), options => jsonb_build_object('catch_up', c)),
			delay_cron('cron ' || c, '*/15 * * * *', format('SELECT note(%L)', 'cron ' || c), timezone => 'UTC', options => jsonb_build_object('catch_up', c)) FROM unnest('{skip,all}'::text[]) c});
	for (1 .. 3)
	{
		step(20 * $minute);
		up_to_date('recurring tasks run');
	}
	step(3 * $hour);
	up_to_date('three hours forward: they are up to date');
	my ($log, $newest) = split(/\|/, $q->('SELECT count(*), max(nr) FROM log'));
	cmp_ok($q->(q{SELECT count(*) FROM log WHERE name LIKE '%all'}), '>', 26, 'those that catch up have made all their runs');
	cmp_ok($q->(q{SELECT count(*) FROM log WHERE name LIKE '%skip'}), '<', 18, 'the others one');
	recurring_sound('three hours forward');
	step(-3 * $hour);
	alive('with recurring tasks');
	wait_for($node, q{SELECT count(*) FROM delay_wheel.recurring WHERE next_due < now() + interval '15 min'}, 'three hours back: those that do not catch up go on', 60, expected => 2);
	is($q->(q{SELECT count(*) FROM delay_wheel.recurring WHERE next_due > now() + interval '2 h'}), 2, 'the others wait, since no time of theirs comes twice');
	step(20 * $minute);
	wait_for($node, "SELECT string_agg(DISTINCT name, ',' ORDER BY name) FROM log WHERE nr > $newest", 'they have runs', 60, expected => 'cron skip,every skip');
	# by more than once every: a time may have come just before it was set back
	step(3 * $hour + 20 * $minute);
	up_to_date('forward again: they go on');
	wait_for($node, "SELECT count(DISTINCT name) FROM log WHERE nr > $newest", 'all of them', 60, expected => 4);
	recurring_sound('forward again');
	$q->('SELECT delay_unschedule(name) FROM delay_wheel.recurring; TRUNCATE log');
};

sub clock_to
{
	my ($time) = @_;
	return step($q->("SELECT round(extract(epoch FROM timestamptz '$time' - clock_timestamp()))"));
}

#
# The clock is set back while recurring tasks are pending, run, wait for another attempt, are paused,
# or have had no run yet.  A time that is too far away by the schedule is brought forward; a time of
# the day that has come does not come again for some hours.
#
sub next_of { return $q->("SELECT next_due AT TIME ZONE 'UTC' FROM delay_wheel.recurring WHERE name = '$_[0]'") }

# A test: the task has runs by the clock as it is now.
sub goes_on
{
	my ($name, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $newest = $q->('SELECT coalesce(max(nr), 0) FROM log');
	return wait_for($node, "SELECT count(*) > 0 FROM log WHERE nr > $newest AND name = '$name' AND at < now() + interval '1 min'", "$what: $name", 60);
}
# A test: its next time is at most so far away.
sub is_near
{
	my ($name, $by, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT next_due <= now() + interval '$by' AND due <= now() + interval '$by' FROM delay_wheel.recurring r JOIN delay_wheel_data.task t ON t.id = r.task WHERE name = '$name'",
		"$what: $name", 60);
}
group back => sub {
	$q->(q{SET timezone = 'UTC';
		CREATE TABLE gate ();
		CREATE SEQUENCE runs_that_fail;
		CREATE FUNCTION fail_first() RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF nextval('public.runs_that_fail') = 1 THEN RAISE 'once'; END IF; END $$});
	clock_to('2027-06-01 02:29:55 UTC');
	$q->(q{SET timezone = 'UTC';
		SELECT delay_every('second', '1 second', 'SELECT note(''second'')'), delay_cron('two', '*/2 * * * * *', 'SELECT note(''two'')'), delay_cron('ten', '*/10 * * * * *', 'SELECT note(''ten'')'),
			delay_every('hourly', '1 hour', 'SELECT note(''hourly'')', starts => '2027-06-01 00:30'), delay_cron('daily', '30 2 * * *', 'SELECT note(''daily'')'),
			delay_cron('burst', '*/10 2 * * *', 'SELECT note(''burst'')'), delay_every('monthly', '1 month', 'SELECT note(''monthly'')', starts => '2027-05-01 02:30'),
			delay_every('later', '10 min', 'SELECT note(''later'')', starts => '2027-06-03'),
			delay_every('paused', '1 min', 'SELECT note(''paused'')', starts => '2027-06-01 02:30'),
			delay_every('failing', '10 min', 'SELECT note(''failing''), fail_first()', starts => '2027-06-01 02:30', max_attempts => 2, options => '{"retry_delay": "1 hour"}'),
			delay_every('running', '1 min', 'SELECT note(''running''), pg_advisory_xact_lock_shared(1)', starts => '2027-06-01 02:30')});
	wait_for($node, 'SELECT count(DISTINCT name) FROM log', 'all that are due at 02:30 have run', 60, expected => 9);
	step(29 * $minute);
	$q->(q{SELECT delay_every('fresh', '5 min', 'SELECT note(''fresh'')'), delay_cron('fresh cron', '*/5 * * * *', 'SELECT note(''fresh cron'')', timezone => 'UTC'); SELECT delay_pause_recurring('paused')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.recurring WHERE next_due <= now() AND name <> 'failing'}, 'all are up to date', 60, expected => 0);
	my $gate = $node->background_psql('postgres');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	step(2 * $minute);
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running x JOIN delay_wheel_data.recurring_task r ON r.task = x.task WHERE name = 'running'}, 'one is running', 60, expected => 1);
	wait_for($node, q{SELECT attempts FROM delay_wheel_data.task t JOIN delay_wheel_data.recurring_task r ON r.task = t.id WHERE name = 'failing'}, 'one waits for its second attempt', 60, expected => 1);
	$q->(q{SELECT schedule('once', now() + interval '10 min')});
	my $once = $q->(q{SELECT due FROM delay_wheel_data.task WHERE args[1] = 'once'});
	my $of_the_day = q{SELECT count(*) FROM log WHERE name IN ('daily', 'burst', 'monthly')};
	my $ran = $q->($of_the_day);
	my %before = map { $_ => next_of($_) } qw(daily burst monthly later);
	my $position = log_position($node);

	step(-2 * $hour);
	goes_on($_, 'two hours back') for qw(second two ten);
	is_near('hourly', '1 hour', 'two hours back');
	is_near($_, '10 min', 'two hours back') for ('fresh', 'fresh cron');
	is_near('failing', '90 min', 'a further attempt comes forward, too');
	is(next_of($_), $before{$_}, "a time of the day does not come again: $_") for sort keys %before;
	is($q->(q{SELECT due FROM delay_wheel_data.task WHERE args[1] = 'once'}), $once, 'a single task waits for its time');
	like($q->('SELECT last_problem FROM delay_wheel.status WHERE database = current_database()'), qr/^the clock was set back by 7[12]\d\d\.\d* s/, 'status tells of it');
	ok(wait_until(60, sub { log_since($node, $position) =~ /recurring tasks? of database "postgres" (?:was|were) rescheduled, since the clock was set back/ }), 'the log shows that recurring tasks go on by the clock');
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	is_near('running', '1 min', 'one that ran comes again soon after its end');
	$q->(q{SELECT delay_resume_recurring('paused')});
	is_near('paused', '1 min', 'so does one that is resumed');
	is($q->($of_the_day), $ran, 'those of a time of the day have had no other run');
	is($q->(q{SELECT count(*) FROM log WHERE at < ideal}), 0, 'none early');
	# a step that is short for the schedule
	my $hourly = next_of('hourly');
	step(-20 * $minute);
	goes_on('second', '20 minutes back');
	is(next_of('hourly'), $hourly, 'an hourly one waits a little longer');
	# between the times of a day
	clock_to('2027-06-02 02:45 UTC');
	wait_for($node, q{SELECT next_due AT TIME ZONE 'UTC' FROM delay_wheel.recurring WHERE name = 'burst'}, 'some times of the day have come', 60, expected => '2027-06-02 02:50:00');
	step(-$hour);
	goes_on('second', 'an hour back');
	is(next_of('burst'), '2027-06-02 02:50:00', 'they do not come again');

	# by years
	clock_to('2037-06-01 02:29:58 UTC');
	wait_for($node, q{SELECT count(*) FROM log WHERE name = 'daily' AND at > '2037-06-01'}, 'years ahead', 60, expected => 1);
	$q->(q{SELECT delay_every('born', '1 day', 'SELECT 1'), delay_every('last day', '1 month', 'SELECT 1', starts => '2037-05-31 10:00 UTC', timezone => 'UTC'),
		delay_every('leap', '1 year', 'SELECT 1', starts => '2036-02-29 10:00 UTC', timezone => 'UTC')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.recurring WHERE next_due <= now()}, 'all are up to date', 60, expected => 0);
	clock_to('2027-06-02 03:00 UTC');
	is_near($_, '1 day', 'back from there') for qw(daily burst born);
	is_near('monthly', '31 days', 'back from there');
	is(next_of('monthly'), '2027-07-01 02:30:00', 'the day of the month is as it was');
	is_near('last day', '29 days', 'back from there');
	is_near('leap', '1 year', 'back from there');
	is($q->(q{SELECT string_agg(to_char(starts AT TIME ZONE 'UTC', 'MM-DD HH24:MI'), ',' ORDER BY name) FROM delay_wheel_data.recurring_task WHERE name IN ('last day', 'leap')}) =~ /^\d\d-31 10:00,02-29 10:00$/ ? 1 : 0, 1,
		'starts of tasks that had not begun are moved back, too');
	goes_on($_, 'back from there') for qw(second ten);

	# while the server was down
	$node->stop;
	step(-3 * $hour);
	{
		local $ENV{LD_PRELOAD} = $shim if !$really;
		local $ENV{DW_CLOCK_FILE} = $file if !$really;
		$node->start;
	}
	goes_on($_, 'set back while the server was down') for qw(second ten);
	$gate->quit;
	$q->('SELECT delay_unschedule(name) FROM delay_wheel.recurring; TRUNCATE log; DELETE FROM delay_wheel_data.task');
};

#
# Both changes of the clock by hand in the time zone, walked through.
#

group changes => sub {
	# label => UTC times at which it is to have run
	my %changes = (
		spring => {
			night => '2027-03-27 23:55 UTC',
			runs => {
				elapsed => '23:58,00:58,01:58,02:58,03:58',
				cron => '01:00',		# 03:00, since there is no 02:30
				calendar => '01:30',
			},
			day => '2027-03-28 12:00 Europe/Berlin',
		},
		autumn => {
			night => '2027-10-30 22:55 UTC',
			runs => {
				elapsed => '22:58,23:58,00:58,01:58,02:58',
				cron => '00:30',		# the first 02:30 of two
				calendar => undef,		# one of them, once
			},
			day => '2027-10-31 12:00 Europe/Berlin',
		});
	for my $change (qw(spring autumn))
	{
		my $c = $changes{$change};

		clock_to("$c->{night}");
		$q->(q{
			SELECT delay_every('elapsed', '1 hour', 'SELECT note(''elapsed'')', starts => date_trunc('hour', now()) + interval '58 min'),
				delay_cron('cron', '30 2 * * *', 'SELECT note(''cron'')', timezone => 'Europe/Berlin'),
				delay_every('calendar', '1 day', 'SELECT note(''calendar'')', starts => (current_date - 1 + time '02:30') AT TIME ZONE 'Europe/Berlin', timezone => 'Europe/Berlin')});
		# now() is before midnight in UTC, and a day of 23 or 25 hours is ahead
		my $id = $q->(q{SELECT delay_schedule('1 day', 'SELECT 1')});
		is($q->("SELECT due - now() > interval '24 hours', (due AT TIME ZONE 'Europe/Berlin')::date - (now() AT TIME ZONE 'Europe/Berlin')::date FROM delay_wheel.tasks WHERE id = $id"),
			$change eq 'spring' ? 'f|1' : 't|1', "$change: a day is one of the calendar in the session's time zone");
		$q->("SELECT delay_cancel($id)");
		for (1 .. 9)
		{
			step(30 * $minute);
			up_to_date("$change: all have run");
		}
		for my $name (sort keys %{ $c->{runs} })
		{
			my $times = $q->("SELECT string_agg(to_char(ideal AT TIME ZONE 'UTC', 'HH24:MI'), ',' ORDER BY ideal) FROM log WHERE name = '$name'");
			defined $c->{runs}{$name} ? is($times, $c->{runs}{$name}, "$change: $name")
			  : like($times, qr/^0[01]:30$/, "$change: $name");
		}
		is($q->('SELECT count(*) FROM log WHERE at < ideal'), 0, "$change: none early");
		$q->('SELECT delay_unschedule(name) FROM delay_wheel.recurring; TRUNCATE log');
	}
	clock_to('2028-01-31 12:00 Europe/Berlin');
	$q->(q{SELECT delay_schedule('1 mon', 'SELECT 1')});
	is($q->(q{SELECT due AT TIME ZONE 'Europe/Berlin' BETWEEN '2028-02-29 11:59' AND '2028-02-29 12:01' FROM delay_wheel.tasks}), 't',
		'a month after the 31st of January');
	clock_to('2028-02-29 12:02 Europe/Berlin');
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'it runs on the 29th of February', 60, expected => 0);
};

#
# The ends of time.
#
group ends => sub {
	for my $due ('294276-12-31 23:59:59.999999 UTC', '294276-12-31 00:00 UTC', '2200-01-01', '3000-01-01')
	{
		$q->("SELECT schedule('far $due', '$due')");
	}
	$q->("SELECT schedule('long ago', '4713-01-01 00:00 BC')");
	ran('long ago', 1, 'what was due long ago runs');
	for my $call (q{delay_schedule_at('infinity', 'SELECT 1')}, q{delay_schedule_at('-infinity', 'SELECT 1')}, q{delay_schedule('300000 years', 'SELECT 1')},
		q{delay_schedule('178000000 years', 'SELECT 1')})
	{
		my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT $call");
		like($stderr, qr/ERROR:  22008/, "refused: $call");
	}
	alive('with tasks of the year 294276');
	is($q->(q{SELECT count(*) FROM delay_wheel_data.task}), 4, 'they are pending');
	is($q->(q{SELECT delay_every('far', '1 year', 'SELECT 1', starts => '294276-06-01'); SELECT next_due > '294276-01-01' FROM delay_wheel.recurring}) =~ /t$/ ? 1 : 0, 1,
		'a recurring task of that year is accepted');
	is($q->(q{SELECT delay_run(id) FROM delay_wheel.tasks WHERE sql = 'SELECT 1'}), 'done', 'its run is made now');
	is($q->(q{SELECT state FROM delay_wheel.recurring}), 'finished', 'and there is no other');
	$q->(q{SELECT delay_unschedule('far')});
	SKIP:
	{
		skip 'no machine has that year', 4 if $really;
		clock_to('2199-12-31 23:59:58');
		alive('in the year 2199');
		ran('far 2200%', 1, 'and in the next one');
		set_clock(0);
		alive('back in the present');
		is($q->('SELECT delay_reschedule(id, interval $$0$$) FROM delay_wheel.tasks'), "moved\nmoved\nmoved", 'the others are moved');
		ran('far%', 4, 'and run');
	}
};
is($q->('SELECT count(*) FROM delay_wheel.failed WHERE sqlstate <> $$22012$$'), 0, 'nothing has failed but what was to');
is($q->('SELECT label FROM effects GROUP BY label HAVING count(*) > 1'), '', 'nothing twice in all of it');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'no crash');

done_testing();
