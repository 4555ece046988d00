# A process that does not answer, since it is stopped: nobody waits for an executor that was woken, told
# to end, or does not come up; the others go on, and one that goes on at last runs nothing twice.  Views
# and the log name executor, timer, sweeper and launcher.  Nothing is polled meanwhile.
#
#   idle         one of two, four, eight executors is stopped while it is idle
#   others       executors of other owners are stopped, which should make room
#   starting     an executor does not come up
#   busy         an executor is stopped while it runs a task
#   quiet        no process wakes up for one that is stopped
#   worker       no background worker is free for another executor
#   timer, sweeper, launcher, all
#   round        the timer does not end a round of its work

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('frozen', injection => has_injection(), conf => q{
autovacuum = off
log_statement = none
delay_wheel.executor_idle_timeout = 1h
delay_wheel.timer_idle_timeout = -1
});
my %frozen;

END
{
	my $exit_code = $?;
	kill('CONT', keys %frozen);
	$? = $exit_code;
}

sub query { return $node->safe_psql('postgres', $_[0]); }

sub state_of
{
	open(my $in, '<', "/proc/$_[0]/stat") or return 'gone';
	return (<$in> // '') =~ /^\d+ \(.*\) (\S)/s ? $1 : 'gone';
}

# Stops processes, and returns when they do not run any more.
sub freeze
{
	my (@pids) = @_;

	for my $pid (@pids)
	{
		$frozen{$pid} = 1;
		kill('STOP', $pid) or die "cannot stop $pid: $!";
		wait_until(60, sub { state_of($pid) eq 'T' }) or die "$pid does not stop";
	}
	return;
}

sub thaw
{
	my (@pids) = @_;

	kill('CONT', @pids);
	delete @frozen{@pids};
	return;
}

# Executors in the order in which they are woken; of a role, and idle.
sub idle_executors
{
	my ($role) = @_;
	return split /\n/, query("SELECT pid FROM delay_wheel_internal.get_running() WHERE state = 'idle' AND owner::text = '" . ($role // 'postgres') . q{'});
}

query(q{
	CREATE TABLE ran (label text, late float8, pid int DEFAULT pg_backend_pid(), at timestamptz DEFAULT clock_timestamp());
	CREATE ROLE anna LOGIN; CREATE ROLE ben LOGIN; CREATE ROLE carl LOGIN;
	SELECT delay_wheel.allow('public');
	GRANT ALL ON ran TO PUBLIC});

# A due task that notes how late it began.
sub put
{
	my ($label, $role) = @_;

	return query(($role ? "SET SESSION AUTHORIZATION $role; " : '')
		  . "SELECT delay_schedule('0', format('INSERT INTO ran SELECT %L, extract(epoch FROM clock_timestamp() - %L::timestamptz) * 1000', '$label', clock_timestamp()))");
}

sub ran
{
	my ($label, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, "SELECT count(*) FROM ran WHERE label = '$label'", $what, 60, expected => 1) or return;
	return query("SELECT late FROM ran WHERE label = '$label'");
}

sub set_executors
{
	my ($n) = @_;

	query("ALTER SYSTEM SET delay_wheel.max_executors = $n");
	query('SELECT pg_reload_conf()');
	wait_for($node, 'SHOW delay_wheel.max_executors', "$n executors", 60, expected => $n);
	return;
}

# No executor, as after the start of the server.
sub end_executors
{
	my $of = q{FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'};

	query("SELECT pg_terminate_backend(pid) $of");
	wait_for($node, "SELECT count(*) $of", 'there is no executor', 60, expected => 0);
	return;
}

# An executor of this role that is idle, and has no timeout that would still wake it, as fill()'s have.
sub one_idle
{
	my ($role) = @_;

	put($role, $role);
	wait_for($node, "DELETE FROM ran WHERE label = '$role' RETURNING 1", "$role has an executor", 60, expected => 1);
	ok(wait_until(60, sub { idle_executors($role) == 1 }), 'the executor is idle');
	# after a quick turn it is kept for a second, and another role would get one beyond the limit
	wait_for($node, "SELECT bool_and(since < now() - interval '1 s') FROM delay_wheel_internal.get_running() WHERE owner::text = '$role'",
		'and is not kept', 60, expected => 't');
	return;
}

# As many executors as one owner can have, all idle.
sub fill
{
	my ($n, $role) = @_;
	my $lock = $node->background_psql('postgres');

	$lock->query_safe('SELECT pg_advisory_lock(1)');
	query(($role ? "SET SESSION AUTHORIZATION $role; " : '')
		  . "SELECT count(delay_schedule_task('SELECT pg_advisory_xact_lock_shared(1)', priority => i % 2)) FROM generate_series(1, $n) i");
	wait_for($node, q{SELECT count(*) FROM delay_wheel_internal.get_running() WHERE state = 'running' AND owner::text = '} . ($role // 'postgres') . q{'},
		"$n executors run", 60, expected => $n);
	$lock->quit;
	ok(wait_until(60, sub { idle_executors($role) == $n }), 'and are idle');
	return;
}

sub silent_is
{
	my ($silent, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, q{SELECT silent FROM delay_wheel.status WHERE database = 'postgres'}, $what, 60, expected => $silent);
}

# One line in the log for each kind, however often one looks.
sub log_names
{
	my ($position, $pid, $kind) = @_;
	my @lines = log_since($node, $position) =~ /LOG:  delay_wheel $kind(?: of database "postgres")? does not answer: PID (\d+)/g;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is("@lines", $pid, "the log names the $kind, once");
}

#
# One of several executors.
#
group('idle' => sub {
	for my $n (2, 4, 8)
	{
		my $best = 1e9;
		my $position;

		set_executors($n);
		end_executors();
		fill($n - 1);
		for my $try (1 .. 10)
		{
			my ($first) = idle_executors();

			freeze($first);
			put("$n.$try");
			my $late = ran("$n.$try", "one of $n is stopped: another one runs the task") // last;
			$best = $late if $late < $best;
			isnt(query("SELECT pid FROM ran WHERE label = '$n.$try'"), $first, 'it was not the one that is stopped');
			thaw($first);
			ok(wait_until(60, sub { grep { $_ eq $first } idle_executors() }), 'that one is there again');
			last if $best < 300;
		}
		cmp_ok($best, '<', 300, "one of $n is stopped: a due task begins within 300 ms");
		note("$n executors: $best ms");

		# it is named
		my ($first) = idle_executors();
		$position = log_position($node);
		freeze($first);
		put("$n.named");
		ran("$n.named", 'one is stopped again');
		silent_is("executor $first", 'status names it');
		is(query('SELECT database, process, pid, since < now() FROM delay_wheel.silent'), "postgres|executor|$first|t", 'the view silent names it');
		is(query(q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}), 'running', 'tasks are run');
		put("$n.next");
		cmp_ok(ran("$n.next", 'the next task runs') // 1e9, '<', 60000, 'without it');
		thaw($first);
		silent_is('', 'it answers');
		# the log tells once a minute
		if ($n == 2)
		{
			log_names($position, $first, 'executor');
			is(query(q{SELECT last_problem FROM delay_wheel.status WHERE database = 'postgres'}), "executor does not answer: PID $first", 'the problem is noted');
		}
		# nothing is run twice, and it works
		freeze(grep { $_ ne $first } idle_executors()) if $n == 2;
		put("$n.back");
		ran("$n.back", 'it runs tasks');
		is(query("SELECT pid FROM ran WHERE label = '$n.back'"), $first, 'itself') if $n == 2;
		thaw(keys %frozen) if %frozen;
	}
	is(query('SELECT count(*) FROM (SELECT FROM ran GROUP BY label HAVING count(*) > 1) s'), 0, 'no task has run twice');
});

#
# Those of other owners, which are to end so that there is room.
#
group('others' => sub {
	set_executors(2);
	end_executors();
	one_idle('anna');
	one_idle('ben');
	# the one that has been idle longest is told to end
	my ($first, $other) = map { [ split /\|/ ] } split /\n/, query(q{SELECT pid, owner FROM delay_wheel_internal.get_running() ORDER BY since});
	freeze($first->[0]);
	put('carl', 'carl');
	ran('carl', 'one is stopped: another one ends');
	is(join(' ', idle_executors($other->[1])), '', 'the executor of the other owner has ended');
	thaw($first->[0]);
	ok(wait_until(60, sub { !idle_executors($first->[1]) }), 'the one that was told to end ends when it goes on');

	end_executors();
	one_idle('anna');
	one_idle('ben');
	my ($anna, $ben) = (idle_executors('anna'), idle_executors('ben'));
	freeze($anna, $ben);
	put('carl 2', 'carl');
	ran('carl 2', 'all are stopped: one more is started');
	put('anna 2', 'anna');
	ran('anna 2', 'and one for an owner whose own is stopped');
	thaw($anna, $ben);
	ok(wait_until(60, sub { !grep { $_ eq $anna || $_ eq $ben } idle_executors('anna'), idle_executors('ben') }), 'both end when they go on');
	put('ben 2', 'ben');
	ran('ben 2', 'then all is as it was');
});

#
# One that does not come up.
#
group('starting' => sub {
	plan_injection() or return;
	set_executors(4);
	end_executors();
	attach($node, 'executor-before-connect', 'wait', 0, 1);
	put('starting');
	wait_until_waiting($node, 'executor-before-connect', 'an executor does not come up');
	my $pid = query(q{SELECT pid FROM delay_wheel_internal.get_running() WHERE state = 'connecting'});
	ran('starting', 'another one runs the task');
	silent_is("executor $pid", 'status names it');
	detach($node, 'executor-before-connect');
	silent_is('', 'it has come up');
	is(query(q{SELECT count(*) FROM ran WHERE label = 'starting'}), 1, 'and has run nothing');

	# idle ones do not wait for it, even as long as no other one is started in its place, which is a second
	my $age = 1e9;
	for my $try (1 .. 10)
	{
		my $lock = $node->background_psql('postgres');

		end_executors();
		fill(2);
		$lock->query_safe('SELECT pg_advisory_lock(2)');
		attach($node, 'executor-before-connect', 'wait', 0, 1);
		query(q{SELECT count(delay_schedule_task('SELECT pg_advisory_xact_lock_shared(2)', priority => i)) FROM generate_series(1, 3) i});
		wait_until_waiting($node, 'executor-before-connect', 'two are busy, and the third one does not come up');
		$lock->query_safe('SELECT pg_advisory_unlock(2)');
		put("beside $try");
		ran("beside $try", 'the two run all tasks');
		$age = query("SELECT extract(epoch FROM at - since) FROM ran, delay_wheel_internal.get_running() WHERE label = 'beside $try' AND state = 'connecting'") || 1e9;
		detach($node, 'executor-before-connect');
		$lock->quit;
		last if $age < 0.9;
	}
	cmp_ok($age, '<', 0.9, 'idle executors do not wait for one that does not come up');
});

sub plan_injection
{
	return 1 if has_injection();
	note('there is no build with injection points');
	return 0;
}

#
# One that runs a task: the task is its own, others go on.
#
group('busy' => sub {
	set_executors(4);
	end_executors();
	fill(1);
	my $lock = $node->background_psql('postgres');
	$lock->query_safe('SELECT pg_advisory_lock(3)');
	query(q{SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''busy'', 0); SELECT pg_advisory_xact_lock_shared(3)')});
	wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'a task runs', 60, expected => 1);
	my $pid = query(q{SELECT pid FROM delay_wheel_internal.get_running() WHERE state = 'running'});

	freeze($pid);
	$lock->quit;
	put("others $_") for 1 .. 3;
	ran("others $_", 'others go on') for 1 .. 3;
	is(query(q{SELECT count(*) FROM ran WHERE label = 'busy'}), 0, 'its task waits for it');
	is(query(q{SELECT state FROM delay_wheel_internal.get_running() WHERE pid = } . $pid), 'running', 'and is its own');
	thaw($pid);
	ran('busy', 'it ends when it goes on');
});

#
# Nobody wakes up for it.
#
group('quiet' => sub {
	plan(skip_all => 'this system does not count context switches') unless defined context_switches($$);
	set_executors(4);
	end_executors();
	fill(1);
	my ($pid) = idle_executors();
	my ($timer) = worker_pids($node, 'timer');
	my ($launcher) = worker_pids($node, 'launcher');

	freeze($pid);
	put('quiet');
	ran('quiet', 'one is stopped: another one runs the task');
	silent_is("executor $pid", 'and is named');
	my @others = ($timer, $launcher, grep { $_ ne $pid } idle_executors());
	my $before = '';
	ok(wait_until(60, sub {
		my $now = join(' ', map { context_switches($_) // 'gone' } @others);
		my $same = $now eq $before;
		$before = $now;
		sleep(5) unless $same;
		return $same;
	}), 'no process wakes up in five seconds') or diag($before);
	thaw($pid);
	put('quiet 2');
	ran('quiet 2', 'the next task runs');
	silent_is('', 'all answer');
});

#
# The timer: whoever schedules tells the log, whoever reads the view sees it.
#
group('timer' => sub {
	my ($timer) = worker_pids($node, 'timer');
	my $position = log_position($node);

	freeze($timer);
	put('timer');
	silent_is("timer $timer", 'the timer is stopped, and called: status names it');
	is(query(q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}), 'silent', 'the state of the database is silent');
	is(query(q{SELECT count(*) FROM ran WHERE label = 'timer'}), 0, 'no task runs');
	query(q{SELECT delay_schedule('1 day', 'SELECT 1') FROM generate_series(1, 3)}) for 1 .. 3;
	log_names($position, $timer, 'timer');
	like(query(q{SELECT last_problem FROM delay_wheel.status WHERE database = 'postgres'}), qr/^timer does not answer: PID $timer$/, 'the problem is noted');
	thaw($timer);
	silent_is('', 'it answers when it goes on');
	ran('timer', 'and runs the task');
	is(query(q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}), 'running', 'the state is as before');

	# nobody calls it, but it should have woken
	query(q{SELECT delay_schedule('3 s', 'INSERT INTO ran VALUES (''overslept'', 0)')});
	freeze($timer);
	silent_is("timer $timer", 'the timer oversleeps: status names it');
	thaw($timer);
	ran('overslept', 'when it goes on the task runs');
	silent_is('', 'it answers');
});

# It waits in the middle of its work.
group('round' => sub {
	plan_injection() or return;
	my ($timer) = worker_pids($node, 'timer');

	# of a lane that has been loaded sessions send hints
	put('round 0');
	ran('round 0', 'a task runs');
	attach($node, 'drain-after-take', 'wait', 0, 1);
	put('round');
	wait_until_waiting($node, 'drain-after-take', 'the timer waits in the middle of its work');
	silent_is("timer $timer", 'status names it');
	detach($node, 'drain-after-take');
	ran('round', 'when it goes on the task runs');
	silent_is('', 'it answers');
});

#
# The sweeper.
#
group('sweeper' => sub {
	my $open = $node->background_psql('postgres');

	# it waits for this transaction, which may have scheduled more
	$open->query_safe(q{BEGIN; SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'x')});
	query(q{SELECT delay_cancel_all(tag => 'x')});
	wait_for($node, q{SELECT state FROM delay_wheel.cancellations}, 'a cancellation waits for an open transaction', 60, expected => 'waiting');
	my ($sweeper) = worker_pids($node, 'sweeper');
	freeze($sweeper);
	query(q{SELECT delay_cancel_all(tag => 'y')});
	silent_is("sweeper $sweeper", 'the sweeper is stopped, and called: status names it');
	thaw($sweeper);
	silent_is('', 'it answers');
	$open->query_safe('COMMIT');
	$open->quit;
	wait_for($node, q{SELECT count(*) FROM delay_wheel.cancellations}, 'and ends its work', 90, expected => 0);
});

#
# The launcher: it is needed when a timer has to be started.
#
group('launcher' => sub {
	my ($launcher) = worker_pids($node, 'launcher');
	my $position = log_position($node);

	query(q{ALTER SYSTEM SET delay_wheel.timer_idle_timeout = '1s'; ALTER SYSTEM SET delay_wheel.executor_idle_timeout = '100ms'});
	query('SELECT pg_reload_conf()');
	end_executors();
	wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}, 'the timer rests', 60, expected => 'resting');
	freeze($launcher);
	is(query(q{SELECT silent FROM delay_wheel.status WHERE database = 'postgres'}), '', 'a launcher that nobody needs is not missed');
	put('launcher');
	silent_is("launcher $launcher", 'the launcher is stopped, and called: status names it');
	is(query('SELECT database, process, pid FROM delay_wheel.silent'), "|launcher|$launcher", 'the view silent names the launcher');
	is(query(q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}), 'silent', 'and the state says so, since no timer is started');
	query(q{SELECT delay_schedule('1 day', 'SELECT 1')}) for 1 .. 3;
	log_names($position, $launcher, 'launcher');
	thaw($launcher);
	ran('launcher', 'when it goes on the task runs');
	silent_is('', 'it answers');
	query(q{ALTER SYSTEM RESET delay_wheel.timer_idle_timeout; ALTER SYSTEM RESET delay_wheel.executor_idle_timeout});
	query('SELECT pg_reload_conf()');
});

#
# All of them.
#
group('all' => sub {
	set_executors(4);
	end_executors();
	fill(2);
	my @all = worker_pids($node, '%');

	cmp_ok(scalar(@all), '>=', 4, 'launcher, timer, executors');
	freeze(@all);
	put('all');
	my $began = query('SELECT clock_timestamp()');
	like(wait_for_value(q{SELECT silent FROM delay_wheel.status WHERE database = 'postgres' AND silent IS NOT NULL}), qr/timer \d+/, 'all are stopped: status names the timer');
	cmp_ok(query("SELECT extract(epoch FROM clock_timestamp() - '$began')"), '<', 10, 'within ten seconds');
	is(query(q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}), 'silent', 'the state says so');
	thaw(@all);
	ran('all', 'when they go on the task runs');
	silent_is('', 'all answer');
});

sub wait_for_value
{
	my ($sql) = @_;
	my $value = '';

	wait_until(60, sub { ($value = query($sql)) ne '' });
	return $value;
}

is(query('SELECT count(*) FROM (SELECT FROM ran GROUP BY label HAVING count(*) > 1) s'), 0, 'no task has run twice');
is(query('SELECT count(*) FROM delay_wheel.failed'), 0, 'and none has failed');
$node->stop;

#
# There is no background worker for another executor.
#
group('worker' => sub {
	# launcher, timer, an executor, and the launcher of logical replication
	my $few = new_node('few', conf => q{
max_worker_processes = 4
log_statement = none
delay_wheel.executor_idle_timeout = 1h
delay_wheel.timer_idle_timeout = -1
});
	my $reason = 'SELECT reason FROM delay_wheel.lanes';

	$few->safe_psql('postgres', q{CREATE TABLE ran (n int); SELECT delay_schedule('0', 'INSERT INTO ran VALUES (1)')});
	wait_for($few, 'SELECT count(*) FROM ran', 'an executor is there', 60, expected => 1);
	my ($pid) = worker_pids($few, 'executor');
	freeze($pid);
	$few->safe_psql('postgres', q{SELECT delay_schedule('0', 'INSERT INTO ran VALUES (2)')});
	wait_for($few, $reason, 'it is stopped, and there is no worker for another one', 60, expected => 'no background worker is free');
	thaw($pid);
	wait_for($few, 'SELECT count(*) FROM ran', 'it runs the task when it goes on', 60, expected => 2);
	wait_for($few, $reason, 'the owner has a worker', 60, expected => '');
	$few->stop;
});
done_testing();
