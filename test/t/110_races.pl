# Each race between those who commit, the timer and the executors, brought
# about by stopping one of them at an injection point: no task is lost, none
# runs twice, before its due time, or after its cancellation; and none waits
# for a timer that has gone to sleep without it.
#
# What nobody but the tested code can wake is meant to stay asleep: there is
# one try for each race, and the clock is its only witness.
#
# Environment:
#   DW_RACES      groups to run, separated by spaces (default: all)
#   DW_RACE_LIMIT seconds until a task that did not run counts as lost
#   DW_FAIL_FAST  end with the first failure

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
my $node;
my $serial = 0;

# A window of 2 s; what is due more than a second ahead is left to a later
# load.
my $tiny = q{
autovacuum = off
restart_after_crash = on
delay_wheel.slots = 20
delay_wheel.tick = 100ms
delay_wheel.turns_ahead = 1
delay_wheel.inbox_size = 4
delay_wheel.ring_memory = 64kB
delay_wheel.executor_idle_timeout = 1h
};

#
# The plan: which task is to run when.  It is written in the transaction that
# schedules the task, so it is there if the task is.
#
sub set_up
{
	my ($name, $conf) = @_;

	$node = new_node($name, injection => 1, conf => $conf);
	$node->safe_psql('postgres', q{
		CREATE TABLE ran (name text, started timestamptz);
		CREATE TABLE plan (name text PRIMARY KEY, id bigint, due timestamptz, fate text);
		GRANT ALL ON ran, plan TO PUBLIC;
		CREATE FUNCTION plan_at(name text, due timestamptz, fate text DEFAULT 'runs') RETURNS bigint
		LANGUAGE sql AS $$
			INSERT INTO plan SELECT name, delay_schedule_at(due,
				'INSERT INTO ran VALUES ($1, now())', name), due, fate
			RETURNING id
		$$;
		CREATE FUNCTION plan_in(name text, delay interval, fate text DEFAULT 'runs') RETURNS bigint
		LANGUAGE sql AS 'SELECT plan_at(name, clock_timestamp() + delay, fate)';
		CREATE FUNCTION id_of(text) RETURNS bigint
		LANGUAGE sql AS 'SELECT id FROM plan WHERE name = $1';
		CREATE FUNCTION move(which text, delay interval) RETURNS boolean
		LANGUAGE sql AS $$
			UPDATE plan SET due = now() + delay WHERE name = which;
			SELECT delay_reschedule(id_of(which), delay) = 'moved';
		$$;
		CREATE FUNCTION cancel(which text) RETURNS text
		LANGUAGE sql AS $$
			UPDATE plan SET fate = 'never' WHERE name = which;
			SELECT delay_cancel(id_of(which));
		$$;
	});
	return;
}

sub check
{
	my ($ok, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok($ok, $what);
	die "failed: $what\n" if !$ok && $ENV{DW_FAIL_FAST};
	return $ok;
}

# A role that has not scheduled anything: its lane is a new one, of which
# nothing has been loaded.
sub new_role
{
	my $role = 'r' . ++$serial;
	$node->safe_psql('postgres', "CREATE ROLE $role LOGIN; SELECT delay_wheel.allow('$role')");
	return $role;
}

# Each statement is a transaction.
sub as
{
	my ($role, $sql) = @_;
	return $node->safe_psql('postgres', "SET ROLE $role;\n$sql");
}

# A session that is left open, for what has to wait.
my @sessions;

sub session
{
	my ($role) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	push @sessions, $session;
	$session->query("SET ROLE $role");
	return $session;
}

# Sends a statement without waiting for its end.
sub start
{
	my ($session, $sql) = @_;
	$session->query_until(qr/^started$/m, "\\echo started\n$sql;\n");
	return;
}

sub close_sessions
{
	# the server may be gone, and has said so elsewhere
	eval { $_->quit } for @sessions;
	@sessions = ();
	return;
}

my $pending = q{
	SELECT count(*) FROM plan WHERE fate = 'runs' AND name NOT IN (SELECT name FROM ran)};
my $wrong = q{
	SELECT string_agg(format('%s: %s x, %s, %s before its due time', name, n, fate, due - first), '; ')
	FROM (SELECT name, fate, due, count(*) AS n, min(started) AS first
		  FROM ran JOIN plan USING (name) GROUP BY name, fate, due) r
	WHERE n > 1 OR fate = 'never' OR first < due};

# All that is planned runs, and nothing else does.  Ends the open sessions,
# unless they are still needed.
sub settled
{
	my ($what, $go_on) = @_;
	my $lost = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $done = wait_until($limit, sub {
		(undef, $lost) = try_psql($node, 'postgres', $pending);
		return ($lost // '') eq '0';
	});
	check($done, "$what: nothing is lost") or diag(
		$node->safe_psql('postgres', q{SELECT name, due, now() FROM plan
			WHERE fate = 'runs' AND name NOT IN (SELECT name FROM ran);
			SELECT * FROM delay_wheel.status; SELECT id, due FROM delay_wheel_data.task}));
	my $bad = $node->safe_psql('postgres', $wrong);
	check($bad eq '', "$what: nothing twice, early or against its cancellation") or diag($bad);
	close_sessions() unless $go_on;
	# what this race has done wrong is not to be found again in the next one
	$node->safe_psql('postgres', q{TRUNCATE plan, ran}) unless $done && $bad eq '';
	return;
}

sub waiting
{
	my ($point, $what, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return if wait_until($limit, sub {
		return $node->safe_psql('postgres',
			sprintf(q{SELECT dw_inject_waiting('%s') >= %d}, $point, $n // 1)) eq 't';
	});
	check(0, "$what: a process comes to $point");
	# nobody else is to be stopped there
	detach($node, $point);
	return;
}

# A process that is stopped loses the wake-ups that come meanwhile, as in a wait for a lock,
# unless it is about to sleep, when no such wait can come between.
sub stop_at
{
	my ($point) = @_;
	attach($node, $point, $point eq 'sleep-before-wait' ? 'wait' : 'block', 0, 1);
	return;
}

sub idle_timeout
{
	my ($value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET delay_wheel.executor_idle_timeout = '$value'");
	$node->reload;
	return;
}

# Makes the timer go round once and read its table anew.
sub stir
{
	$node->safe_psql('postgres', 'UPDATE delay_wheel_data.task SET tag = tag WHERE false');
	return;
}

# The timer goes round, for the reason given (or to read its table anew), has
# nothing to do, and sleeps.
sub asleep
{
	my ($what, $reason) = @_;

	stop_at('sleep-before-wait');
	($reason // \&stir)->();
	waiting('sleep-before-wait', $what);
	detach($node, 'sleep-before-wait');
	return;
}

sub kill_executor_of
{
	my ($name) = @_;
	return $node->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid) FROM delay_wheel.running WHERE task = id_of('$name')");
}

# A timer that dies often is started later each time; a new launcher forgets.
sub new_launcher
{
	my ($pid) = worker_pids($node, 'launcher');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") if $pid;
	return;
}

# Ten tasks of a kind that each race with a load: soon, overdue, beyond the
# window; moved, cancelled, cancelled in vain; of another lane; and more than
# the inbox takes.
sub prepare_many
{
	my ($role, $n) = @_;
	as($role, qq{
		SELECT plan_in('$n.moved', '1 hour');
		SELECT plan_in('$n.cancelled', '3 s');
		SELECT plan_in('$n.kept', '3 s')});
	return;
}

sub commit_many
{
	my ($role, $n) = @_;
	as($role, qq{
		SELECT plan_in('$n.soon', '0.3 s');
		SELECT plan_in('$n.overdue', '-1 s');
		SELECT plan_in('$n.beyond', '2.5 s');
		SELECT move('$n.moved', '0.5 s');
		SELECT cancel('$n.cancelled');
		BEGIN; SELECT cancel('$n.kept'); ROLLBACK;
		SELECT plan_in('$n.burst' || g, '0.4 s') FROM generate_series(1, 6) g});
	as(new_role(), "SELECT plan_in('$n.other', '0.3 s')");
	return;
}

set_up('races', $tiny);

#
# The timer is stopped at each step of taking hints, reading the table anew and
# loading, while others commit.
#
my @load_points = qw(load-before-take load-after-publish load-before-snapshot
  load-after-snapshot load-row load-after-scan load-after-cursor);
my @timer_points = (@load_points,
	qw(reload-after-take reload-after-scan drain-after-take));

group load => sub {
	for my $point (@timer_points)
	{
		for my $variant (qw(few many))
		{
			my $role = new_role();
			my $n = "$point.$variant";

			if ($point eq 'drain-after-take')
			{
				# a horizon, so that the next commit brings a hint
				as($role, "SELECT plan_in('$n.first', '0')");
				settled("$n, before");
			}
			prepare_many($role, $n) if $variant eq 'many';
			stop_at($point);
			stir() if $point =~ /^reload/;
			as($role, "SELECT plan_at('$n.loaded', clock_timestamp()"
				. ($point =~ /^drain/ ? '' : " + interval '0.8 s'") . ')');
			waiting($point, $n);
			as($role, "SELECT plan_in('$n.soon', '0.3 s'); SELECT plan_in('$n.beyond', '2.5 s')")
			  if $variant eq 'few';
			commit_many($role, $n) if $variant eq 'many';
			detach($node, $point);
			settled("commit at $point, $variant");
		}
	}
};

#
# A commit of another lane while the timer is between the flag and the lanes that
# it stands for.  Nothing else may set the flag again: no task ends meanwhile.
#
group flag => sub {
	my $role = new_role();

	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'nothing runs', $limit, expected => 0);
	stop_at('dirty-after-take');
	as($role, q{SELECT plan_in('flag.first', '1 hour', 'later')});
	waiting('dirty-after-take', 'flag');
	as(new_role(), q{SELECT plan_in('flag.other', '0.3 s')});
	detach($node, 'dirty-after-take');
	settled('commit of another lane at dirty-after-take');
	$node->safe_psql('postgres', q{SELECT cancel('flag.first')});
};

#
# The load fails, or the timer ends, at each step.
#
group error => sub {
	my @fatal_points = long_tests() ? (@timer_points, qw(sleep-before-publish sleep-after-publish)) :
	  qw(load-row load-after-scan reload-after-take drain-after-take sleep-after-publish);

	for my $case ((map { [ 'error', $_ ] } @timer_points), map { [ 'fatal', $_ ] } @fatal_points)
	{
		my ($action, $point) = @$case;
		my $role = new_role();
		my $n = "$action.$point";
		my $position = log_position($node);

		as($role, "SELECT plan_in('$n.first', '0')");
		settled("$n, before");
		# two rows are in memory already when the third one fails
		attach($node, $point, $action, $point eq 'load-row' ? 2 : 0, 1);
		stir() if $point =~ /^reload/;
		# beyond what was loaded before, so that it has to be loaded
		as($role, "BEGIN; SELECT plan_in('$n.' || g, "
			. ($point =~ /^(load|reload)/ ? "'2.5 s'" : "'0'")
			. ") FROM generate_series(1, 3) g; COMMIT");
		settled("$action at $point");
		check(log_since($node, $position) =~ /injected at "$point"/, "$action at $point was raised");
		new_launcher() if log_since($node, $position) =~ /delay_wheel timer" \(PID \d+\) exited/;
	}

	# a new timer that is stopped before and after it has cleared its memory
	for my $point (qw(begin-before-reset begin-after-reset))
	{
		my $role = new_role();

		# a timer that just begins would be stopped itself
		asleep("$point, before");
		prepare_many($role, $point);
		stop_at($point);
		as($role, "SELECT plan_in('$point.first', '0.5 s')");
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($_)")
		  for worker_pids($node, 'timer');
		waiting($point, $point);
		commit_many($role, $point);
		detach($node, $point);
		settled("commit at $point");
		new_launcher();
	}
};

#
# Who commits is stopped, while the timer goes on.
#
group commit => sub {
	my ($role, $other, $s);

	# The row is visible, nothing was said of it: who loads sees it.
	for my $point (qw(commit-visible commit-before-push commit-before-far commit-before-wake))
	{
		$role = new_role();
		if ($point eq 'commit-before-push')
		{
			as($role, "SELECT plan_in('$point.first', '0')");
			settled("$point, before");
		}
		stop_at($point);
		$s = session($role);
		start($s, "SELECT plan_at('$point.stopped', clock_timestamp())");
		waiting($point, $point);
		stir();
		wait_for($node, "SELECT count(*) FROM ran WHERE name = '$point.stopped'",
			"stopped at $point: a load that goes by finds the task", $limit, expected => 1);
		detach($node, $point);
		settled("stopped at $point");
	}

	# A load goes by just before the row becomes visible: it has missed the
	# row, so the commit must see the load's horizon.
	$role = new_role();
	stop_at('commit-before-visible');
	$s = session($role);
	start($s, "SELECT plan_in('visible.later', '1.2 s')");
	waiting('commit-before-visible', 'before visible');
	as($role, "SELECT plan_in('visible.first', '0')");
	wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'visible.first'},
		'the lane is loaded meanwhile', $limit, expected => 1);
	detach($node, 'commit-before-visible');
	settled('a load just before the commit');

	# The timer looks at its flags between the lowering of a far due time and
	# the flag for it.
	$role = new_role();
	asleep('far');
	stop_at('commit-before-far');
	$s = session($role);
	start($s, "SELECT plan_in('far.stopped', '0.5 s')");
	waiting('commit-before-far', 'far');
	# not by reading its table, for it would find the task
	asleep('far', sub { as(new_role(), "SELECT plan_in('far.other', '0')") });
	wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'far.other'},
		'the timer goes round meanwhile', $limit, expected => 1);
	detach($node, 'commit-before-far');
	settled('stopped before a far due time is told');

	# The hint is out, the wake-up is not: another commit's wake-up serves it.
	# (A hint that is out before its row is visible would be thrown away.)
	$role = new_role();
	as($role, q{SELECT plan_in('wake.first', '0')});
	settled('wake, before');
	stop_at('commit-before-wake');
	$s = session($role);
	start($s, q{SELECT plan_at('wake.stopped', clock_timestamp())});
	waiting('commit-before-wake', 'wake');
	as(new_role(), q{SELECT plan_in('wake.other', '0')});
	wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'wake.other'},
		'the timer goes round meanwhile', $limit, expected => 1);
	asleep('wake');
	detach($node, 'commit-before-wake');
	settled('stopped before the wake-up');

	# A reschedule, and a cancel that is rolled back, stopped likewise.
	for my $point (qw(commit-visible commit-before-push commit-before-wake))
	{
		$role = new_role();
		as($role, "SELECT plan_in('$point.m', '1 hour'); SELECT plan_in('$point.now', '0')");
		stop_at($point);
		$s = session($role);
		start($s, "SELECT move('$point.m', '0')");
		waiting($point, $point);
		detach($node, $point);
		# by the same session, which is quick enough to cancel it in time
		$s->query("SELECT plan_in('$point.c', '0.8 s')");
		$s->query('BEGIN');
		$s->query("SELECT cancel('$point.c')");
		stop_at($point);
		start($s, 'ROLLBACK');
		waiting($point, $point);
		stir();
		detach($node, $point);
		settled("a reschedule and a cancel stopped at $point");
	}
};

#
# Hints of tasks at the very horizon: one microsecond before it, at it, after
# it; and of a smaller id than the cursor's.
#
group horizon => sub {
	# More tasks of one due time than a lane may hold: the cursor stays inside
	# of it, and a task with a smaller id comes late.
	my $role = new_role();
	my $s = session($role);
	my $t = session($role);
	$s->query_safe('BEGIN');
	my $due = $s->query_safe(q{SELECT clock_timestamp() + interval '3 s'});
	$s->query_safe("SELECT plan_at('same.late', '$due'::timestamptz)");
	as($role, q{SELECT plan_in('same.moved', '1 hour')});
	as($role, qq{
		INSERT INTO plan SELECT 'same.' || g, delay_schedule_at(timestamptz '$due',
			'INSERT INTO ran VALUES (\$1, now())', 'same.' || g), '$due', 'runs'
		FROM generate_series(1, 4000) g});
	# where nothing was loaded, the view has the due time of the first task, too
	wait_for($node, "SELECT horizon = '$due' AND near > 0 FROM delay_wheel.status",
		'the horizon is inside of a due time', $limit);
	$s->query_safe('COMMIT');
	$t->query_safe("UPDATE plan SET due = '$due' WHERE name = 'same.moved'");
	$t->query_safe("SELECT delay_reschedule(id_of('same.moved'), timestamptz '$due')");
	settled('a smaller id at the due time of the cursor');

	$role = new_role();
	# the task beyond makes the view show the horizon
	as($role, q{SELECT plan_in('horizon.beyond', '1 hour', 'later')});
	for my $n ('0', '-1, 0', '-1, 0, 1')
	{
		as($role, "SELECT plan_in('horizon.loaded $n', '0.9 s')");
		# where nothing was loaded, the view has the due time of the first task
		wait_for($node, 'SELECT max(horizon) > now() AND max(horizon) NOT IN (SELECT due FROM plan) FROM delay_wheel.status',
			'there is a horizon', $limit);
		as($role, qq{SELECT plan_at('horizon.$n.' || d, h + d * interval '1 us')
			FROM (SELECT coalesce(max(horizon) FILTER (WHERE horizon < now() + interval '30 min'), now()) AS h
				  FROM delay_wheel.status) s, unnest(ARRAY[$n]) d});
		settled("at the horizon, $n");
	}
	$node->safe_psql('postgres', q{SELECT cancel('horizon.beyond')});
};

#
# The handshake: the timer is stopped before it tells until when it sleeps,
# after that, and after it has looked again.
#
group handshake => sub {
	my %commit = (
		push => sub { as($_[0], "SELECT plan_at('$_[1]', clock_timestamp())") },
		far => sub { as(new_role(), "SELECT plan_in('$_[1]', '0.5 s')") },
		overflow => sub {
			as($_[0], "SELECT plan_at('$_[1].' || g, clock_timestamp()) FROM generate_series(1, 6) g");
		},
		# by plain SQL, as a restore would
		database => sub {
			$node->safe_psql('postgres', qq{
				WITH t AS (INSERT INTO delay_wheel_data.task (due, sql)
					VALUES (now(), 'INSERT INTO ran VALUES (''$_[1]'', now())') RETURNING id, due)
				INSERT INTO plan SELECT '$_[1]', id, due, 'runs' FROM t});
		});

	for my $point (qw(sleep-before-publish sleep-after-publish sleep-before-wait))
	{
		for my $kind (sort keys %commit)
		{
			my $role = new_role();
			my $n = "$point.$kind";

			as($role, "SELECT plan_in('$n.first', '0')");
			settled("$n, before");
			asleep($n);
			stop_at($point);
			stir();
			waiting($point, $n);
			$commit{$kind}->($role, $n);
			detach($node, $point);
			settled("$kind at $point");
		}
	}

	# The commit was begun before the timer fell asleep, and ends after.
	for my $point (qw(commit-visible commit-before-push commit-before-far))
	{
		my $role = new_role();
		if ($point ne 'commit-before-far')
		{
			as($role, "SELECT plan_in('asleep.$point.first', '0')");
			settled("$point, before");
		}
		asleep($point);
		stop_at('sleep-before-publish');
		stir();
		waiting('sleep-before-publish', $point);
		stop_at($point);
		my $s = session($role);
		start($s, "SELECT plan_at('$point.awake', "
			. ($point eq 'commit-before-far' ? "clock_timestamp() + interval '0.5 s')" : 'clock_timestamp())'));
		waiting($point, $point);
		stop_at('sleep-before-wait');
		detach($node, 'sleep-before-publish');
		waiting('sleep-before-wait', $point);
		detach($node, 'sleep-before-wait');
		# that it sleeps is for the kernel to know; it has nothing else to do
		detach($node, $point);
		settled("fell asleep while somebody was at $point");
	}
};

#
# Between an executor's look at a row and its deletion.
#
group claim => sub {
	my ($role, $s);

	# those of other roles do not keep their places
	idle_timeout('100ms');
	for my $point (qw(claim-before-fetch claim-before-delete))
	{
		$role = new_role();

		stop_at($point);
		as($role, "SELECT plan_in('$point.cancelled', '0.3 s')");
		waiting($point, $point);
		is(as($role, "SELECT cancel('$point.cancelled')"), 'cancelled', "cancelled at $point");
		detach($node, $point);

		stop_at($point);
		as($role, "SELECT plan_in('$point.later', '0.3 s')");
		waiting($point, $point);
		is(as($role, "SELECT move('$point.later', '1.5 s')"), 't', "moved to later at $point");
		detach($node, $point);

		stop_at($point);
		as($role, "SELECT plan_in('$point.sooner', '0.3 s')");
		waiting($point, $point);
		is(as($role, "SELECT move('$point.sooner', '-1 s')"), 't', "moved to an earlier time at $point");
		detach($node, $point);

		# a lock that is there when the claim comes, and goes without a trace
		for my $sub (0, 1)
		{
			my $n = "$point.undone$sub";

			stop_at($point);
			as($role, "SELECT plan_in('$n', '0.3 s')");
			waiting($point, $point);
			$s = session($role);
			$s->query_safe('BEGIN');
			$s->query_safe('SAVEPOINT a') if $sub;
			$s->query_safe("SELECT cancel('$n')");
			detach($node, $point);
			wait_for($node, 'SELECT count(*) FROM delay_wheel.running', "$n: the executor gives up",
				$limit, expected => 0);
			$s->query_safe($sub ? 'ROLLBACK TO a' : 'ROLLBACK');
			settled("a claim meets a cancel that is undone, $n");
		}

		# two executors with the same task
		stop_at($point);
		as($role, "SELECT plan_in('$point.twice', '0.3 s')");
		waiting($point, $point);
		stir();
		wait_for($node, "SELECT count(*) FROM ran WHERE name = '$point.twice'",
			'another executor runs it', $limit, expected => 1);
		detach($node, $point);
		settled("two executors with one task at $point");
	}

	# Once it is claimed, a cancel is told so and waits for nothing.
	for my $point (qw(claim-after-delete run-before-sql run-after-sql run-before-commit))
	{
		$role = new_role();
		stop_at($point);
		as($role, "SELECT plan_in('$point', '0.3 s')");
		waiting($point, $point);
		for my $call ('delay_cancel(id)', "delay_reschedule(id,'1s')")
		{
			my (undef, $answer, $error) = try_psql($node, 'postgres',
				"SET statement_timeout = '${limit}s'; SELECT $call FROM plan WHERE name = '$point'");
			check($answer eq 'running', "$call tells that the task runs, at $point")
			  or diag($error);
		}
		stir();
		asleep($point);
		detach($node, $point);
		settled("cancelled in vain at $point");
	}
	idle_timeout('1h');
};

#
# Executors are terminated.
#
my @run_points = qw(claim-before-fetch claim-before-delete claim-after-delete
  run-before-sql run-after-sql run-before-commit);

group exit => sub {
	my $role;

	for my $point (@run_points)
	{
		$role = new_role();
		stop_at($point);
		as($role, "SELECT plan_in('$point.ended', '0.3 s')");
		waiting($point, $point);
		is(kill_executor_of("$point.ended"), 't', "the executor is terminated at $point");
		settled("terminated at $point");
		detach($node, $point);
	}

	# Between the abort and the hint that follows it, the task is free.
	for my $what (qw(nothing cancelled later sooner))
	{
		$role = new_role();
		stop_at('run-before-commit');
		as($role, "SELECT plan_in('ended.$what', '0.3 s')");
		waiting('run-before-commit', $what);
		stop_at('executor-before-rehint');
		kill_executor_of("ended.$what");
		waiting('executor-before-rehint', $what);
		detach($node, 'run-before-commit');
		is(as($role, "SELECT cancel('ended.$what')"), 'cancelled', 'a task is free when its executor has ended')
		  if $what eq 'cancelled';
		is(as($role, "SELECT move('ended.$what', '1.5 s')"), 't', 'it can be moved to later')
		  if $what eq 'later';
		is(as($role, "SELECT move('ended.$what', '-1 s')"), 't', 'it can be moved to an earlier time')
		  if $what eq 'sooner';
		detach($node, 'executor-before-rehint');
		settled("$what while an executor ends");
	}
};

#
# The server crashes at each point with a task in flight.
#
group crash => sub {
	for my $point (
		qw(schedule-after-insert commit-before-visible commit-visible commit-before-push
		commit-before-far commit-before-wake drain-after-take reload-after-scan
		load-after-publish load-after-scan load-after-cursor sleep-after-publish),
		@run_points, qw(run-after-commit record-before-insert executor-before-rehint))
	{
		my $role = new_role();
		my $n = "crash.$point";
		my $position = log_position($node);

		as($role, "SELECT plan_in('$n.first', '0'); SELECT plan_in('$n.kept', '1 s')");
		settled("$n, before");
		if ($point eq 'executor-before-rehint')
		{
			stop_at('run-before-commit');
			as($role, "SELECT plan_in('$n', '0')");
			waiting('run-before-commit', $n);
		}
		as($role, "SELECT plan_in('$n.overdue', '0.5 s'); SELECT plan_in('$n.soon', '3 s')")
		  if $point !~ /^(run|claim|record)/;
		if ($point eq 'executor-before-rehint')
		{
			attach($node, $point, 'crash', 0, 1);
			$node->psql('postgres',
				"SELECT pg_terminate_backend(pid) FROM delay_wheel.running WHERE task = id_of('$n')");
		}
		else
		{
			attach($node, $point, 'crash', 0, 1);
			$node->psql('postgres', 'UPDATE delay_wheel_data.task SET tag = tag WHERE false')
			  if $point =~ /^reload/;
			$node->psql('postgres', "SET ROLE $role; "
				. ($point =~ /^record/ ? q{SELECT delay_schedule('0', 'SELECT 1 / 0')} :
					$point =~ /far$/ ? "SELECT plan_in('$n', '3 s')" : "SELECT plan_at('$n', clock_timestamp())"));
		}
		check(wait_until($limit, sub { return log_since($node, $position) =~ /terminated by signal 9/ }),
			"a crash at $point");
		wait_for($node, 'SELECT NOT pg_is_in_recovery()', "the server is back after a crash at $point", $limit);
		settled("crash at $point");
		wait_for($node, q{SELECT count(*) FROM delay_wheel.failed}, 'the failure is recorded once',
			$limit, expected => 1)
		  if $point =~ /^record/;
	}
};

#
# A lane is given back, and its place taken by another one, while a transaction
# holds on to it.
#
group lanes => sub {
	set_up('lanes', $tiny . "delay_wheel.max_lanes = 4\n");

	for my $case (qw(push far lows full rollback))
	{
		my @roles = map { new_role() } 1 .. 3;
		my $role = $roles[0];

		as($role, "SELECT plan_in('$case.first', '0')");
		settled("$case, before");
		my $s = session($role);
		if ($case eq 'rollback')
		{
			as($role, "SELECT plan_in('$case.held', '0.8 s')");
			$s->query_safe('BEGIN');
			$s->query_safe("SELECT cancel('$case.held')");
			wait_for($node, q{SELECT sum(near + ready + running) FROM delay_wheel.status},
				'the lane is empty', $limit, expected => 0);
		}
		else
		{
			$s->query_safe('BEGIN');
			$s->query_safe($case eq 'lows' ?
				"SELECT plan_at('$case.' || g, clock_timestamp()) FROM generate_series(1, 1100) g" :
				"SELECT plan_at('$case.held', "
				. ($case eq 'far' ? "clock_timestamp() + interval '5 s')" : 'clock_timestamp())'));
		}
		# two more lanes make places short; the timer looks when it falls asleep
		for my $r (@roles[1, 2])
		{
			as($r, "SELECT plan_in('$case.$r', '0')");
			wait_for($node, "SELECT count(*) FROM ran WHERE name = '$case.$r'", 'another lane is entered',
				$limit, expected => 1);
		}
		asleep($case);
		wait_for($node, 'SELECT lanes <= 2 FROM delay_wheel.status', 'empty lanes are given back', $limit)
		  if $case ne 'rollback';
		my $next = new_role();
		as($next, "SELECT plan_in('$case.next', '0')");
		if ($case eq 'full')
		{
			# the inbox has no place for the first hint
			settled("$case, before the inbox is full", 1);
			stop_at('sleep-before-wait');
			stir();
			waiting('sleep-before-wait', $case);
			as($next, "SELECT plan_in('$case.next' || g, '0') FROM generate_series(1, 6) g");
		}
		$s->query_safe($case eq 'rollback' ? 'ROLLBACK' : 'COMMIT');
		detach($node, 'sleep-before-wait') if $case eq 'full';
		settled("a lane was given back under a transaction, $case");
	}

	# Lanes without a task in memory, of which the timer thinks that they have some later.  Plain SQL
	# makes it look; a mark does not.
	for my $removal ('DELETE FROM delay_wheel_data.task', q{SELECT delay_cancel_all(due_from => '-infinity')})
	{
		my $plans = sub { $node->psql('postgres', q{SELECT delay_schedule('100 days', 'SELECT 1')}, extra_params => [ '-U', $_[0] ]) == 0 };

		$plans->(new_role()) for 1 .. 4;
		$node->safe_psql('postgres', $removal);
		wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'no task is left', $limit, expected => 0);
		is($node->safe_psql('postgres', 'SELECT lanes FROM delay_wheel.status'), 4, 'all places are taken')
		  if $removal !~ /DELETE/;
		my $next = new_role();
		ok(wait_until($limit, sub { $plans->($next) }), "a place is found after $removal");
		$node->safe_psql('postgres', 'DELETE FROM delay_wheel_data.task');
	}
};

#
# Another database takes its part of memory while the timer is about to sleep:
# one that was a template, since to create it would wake all processes.
#
group quota => sub {
	set_up('quota', "autovacuum = off\ndelay_wheel.ring_memory = 64kB\n");
	$node->safe_psql('postgres', 'CREATE DATABASE second TEMPLATE template0');
	$node->safe_psql('second', 'CREATE EXTENSION delay_wheel');
	my $served = q{SELECT count(*) FROM delay_wheel.status WHERE state = 'running'};
	wait_for($node, $served, 'there are two databases', $limit, expected => 2);
	$node->safe_psql('postgres', 'ALTER DATABASE second IS_TEMPLATE true');
	wait_for($node, $served, 'one is a template', $limit, expected => 1);
	as(new_role(), q{SELECT count(delay_schedule_at(now() + interval '10 min', 'SELECT 1')) FROM generate_series(1, 240)})
	  for 1 .. 7;
	my $memory = "memory_used > memory_limit FROM delay_wheel.status WHERE database = 'postgres'";
	wait_for($node, "SELECT 2 * $memory", 'the other one uses more than half of the memory', $limit);
	stop_at('sleep-before-publish');
	stir();
	waiting('sleep-before-publish', 'quota');
	$node->safe_psql('postgres', 'ALTER DATABASE second IS_TEMPLATE false');
	wait_for($node, "SELECT $memory", 'then it may use half of it', $limit);
	detach($node, 'sleep-before-publish');
	check(wait_until($limit, sub { return $node->safe_psql('postgres', "SELECT $memory") eq 'f' }),
		'what is beyond that is given back');
};

#
# A wake-up that comes while the process waits for something else, which resets its latch.
#
group latch => sub {
	set_up('latch', "autovacuum = off\ndelay_wheel.executor_idle_timeout = 1h\n");
	$node->safe_psql('postgres', 'CREATE DATABASE second');
	my $state = q{SELECT state FROM delay_wheel.status WHERE database = };
	my $reload = sub {
		my ($setting) = @_;
		$node->safe_psql('postgres', "ALTER SYSTEM SET $setting");
		$node->reload;
	};

	# the launcher, which has nothing else to do
	wait_for($node, q{SELECT count(*) FROM delay_wheel.status}, 'one database is served', $limit, expected => 1);
	stop_at('launcher-before-sleep');
	$reload->('work_mem = 5000');
	waiting('launcher-before-sleep', 'latch');
	$node->safe_psql('second', 'CREATE EXTENSION delay_wheel');
	detach($node, 'launcher-before-sleep');
	wait_for($node, "$state 'second'", 'the launcher notices CREATE EXTENSION', $limit, expected => 'running');

	# the timer
	stop_at('sleep-before-publish');
	stir();
	waiting('sleep-before-publish', 'latch');
	$reload->('delay_wheel.enabled = off');
	detach($node, 'sleep-before-publish');
	wait_for($node, "$state 'postgres'", 'the timer notices a setting', $limit, expected => 'disabled');
	$reload->('delay_wheel.enabled = on');
	wait_for($node, "$state 'postgres'", 'and another one', $limit, expected => 'running');

	# an executor, which the timer has woken for another task when it is about to sleep itself
	my $role = new_role();
	stop_at('executor-before-wait');
	as($role, q{SELECT plan_in('first', '0')});
	waiting('executor-before-wait', 'latch');
	stop_at('sleep-before-publish');
	as($role, q{SELECT plan_in('second', '0')});
	waiting('sleep-before-publish', 'latch');
	detach($node, $_) for qw(executor-before-wait sleep-before-publish);
	settled('an executor was woken');
};

done_testing();
