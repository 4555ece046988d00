# What one role does on purpose holds up no task of another: a neighbour's tasks
# are measured before it and beside it.  Each attack needs no right but to log
# in, or to schedule.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('other_tenants', conf => q{
log_statement = none
log_min_error_statement = panic
log_min_messages = fatal
delay_wheel.executor_idle_timeout = 1h
delay_wheel.max_lanes = 16384
delay_wheel.max_queues = 1200
});
$node->safe_psql('postgres', q{
	CREATE ROLE victim LOGIN;
	CREATE ROLE mallory LOGIN;
	CREATE ROLE nobody LOGIN;
	SELECT delay_wheel.allow('victim', 'mallory');
	CREATE TABLE effects (due timestamptz, ran timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON effects TO PUBLIC});

#
# Tasks of the victim, over some seconds: how late they are, in milliseconds,
# median and most.  One that has not run after a minute counts as a minute.
#
sub lateness
{
	my ($tasks) = @_;
	$tasks //= 50;
	my $done = 'SELECT count(*) FROM effects';

	$node->safe_psql('postgres', 'TRUNCATE effects');
	my $scheduled = time();
	$node->safe_psql('postgres', qq{
		SET SESSION AUTHORIZATION victim;
		SELECT count(delay_schedule_at(due, 'INSERT INTO public.effects VALUES (\$1)', due))
		FROM (SELECT now() + '300 ms' + i * interval '30 ms' AS due FROM generate_series(1, $tasks) i) t});
	wait_until(60, sub { $node->safe_psql('postgres', $done) == $tasks });
	return map { sprintf '%.0f', $_ } split /\|/, $node->safe_psql('postgres', qq{
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY late), max(late) FROM (
			SELECT extract(epoch FROM ran - due) * 1000 AS late FROM effects
			UNION ALL SELECT 60000 FROM generate_series(($done) + 1, $tasks)) l});
}

# CPU time that the timer has used, in ms; 0 where that cannot be told.
sub timer_cpu
{
	my ($pid) = worker_pids($node, 'timer');
	my $stat = -r "/proc/$pid/stat" ? slurp_file("/proc/$pid/stat") : '';

	# in hundredths of a second, user and system
	return $stat =~ /\) \w (?:-?\d+ ){10}(\d+) (\d+)/ ? 10 * ($1 + $2) : 0;
}

# A session that says the same again and again until it is stopped.
sub attack
{
	my ($role, $sql) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/attack.sql';

	append_to_file($file, "$sql;\n" x 20_000);
	return IPC::Run::start([ 'psql', '-X', '-q', '-o', '/dev/null', '-U', $role, '-f', $file, '-d', $node->connstr('postgres') . ' application_name=attack' ],
		'>', '/dev/null', '2>', '/dev/null');
}

sub stop_attacks
{
	$_->kill_kill(grace => 1) for @_;
	$node->poll_query_until('postgres', q{SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity WHERE application_name = 'attack'});
	return;
}

# before all attacks
my $median;
my $most;

# The attack in so many sessions: the victim is hardly later than before.  What
# harms does so each time; what a busy machine does is not taken for it.  But it makes
# nobody ten seconds late.
sub holds_nobody_up
{
	my ($what, $role, $sql, %options) = @_;
	my $median_beside;

	for (1 .. 3)
	{
		my @attacks = map { attack($role, $sql) } 1 .. $options{sessions} // 1;
		($median_beside, my $most_beside) = lateness();

		stop_attacks(@attacks);
		note("$what: median $median, most $most ms before; median $median_beside, most $most_beside ms beside it");
		last if $median_beside < $median + $options{limit} || $median_beside > $median + 10_000;
	}
	cmp_ok($median_beside, '<', $median + $options{limit}, "$what: the victim's tasks are in time");
	return;
}

lateness();
($median, $most) = lateness();

#
# Settings of one's own role, in more databases than are remembered one by one:
# no timer starts anew.
#
group settings => sub {
	$node->safe_psql('postgres', "CREATE DATABASE d$_") for 1 .. 17;
	my $timer = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'postgres'};
	my $pid = $node->safe_psql('postgres', $timer);
	my @settings = map { "ALTER ROLE nobody IN DATABASE d$_ SET work_mem = '1MB'" } 1 .. 17;

	holds_nobody_up('settings of one role in many databases', 'nobody', join('; ', 'BEGIN', @settings, 'COMMIT'), limit => 300);
	is($node->safe_psql('postgres', $timer), $pid, 'the timer is the same');

	# who may set it for all, by all that there is, has one start of the timer at a time
	$node->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO nobody');
	holds_nobody_up('settings of one\'s own database', 'nobody', q{ALTER DATABASE postgres SET work_mem = '1MB'}, limit => 1500);
	$node->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO postgres');
};

#
# COMMIT PREPARED that fails.
#
group prepared => sub {
	$node->safe_psql('postgres', q{
		SET SESSION AUTHORIZATION mallory;
		SELECT count(delay_schedule('1 minute', 'SELECT 1')) FROM generate_series(1, 200000);
		BEGIN; SELECT delay_pause_all(), delay_cancel_all(tag => 'none'); PREPARE TRANSACTION 'g'});
	for my $sql (q{BEGIN; COMMIT PREPARED 'g'; ROLLBACK}, q{ROLLBACK PREPARED 'g'}, q{COMMIT PREPARED 'none'})
	{
		my $cpu = timer_cpu();
		holds_nobody_up("$sql, in vain", 'nobody', $sql, limit => 200, sessions => 2);
		$cpu = timer_cpu() - $cpu;
		note("$sql: $cpu ms of the timer");
		cmp_ok($cpu, '<', 400, "$sql, in vain: the timer has nothing to read anew");
	}
	$node->safe_psql('postgres', q{ROLLBACK PREPARED 'g'; SET SESSION AUTHORIZATION mallory; SELECT delay_cancel_all(due_from => '-infinity')});
};

#
# Who has the table of tasks locked, but brings no tasks of the victim, keeps
# none of his cancellations.
#
group holders => sub {
	my $marks = q{SELECT count(*) FROM delay_wheel_data.cancellation WHERE made_by = 'victim'::regrole};

	# who may name the tables at all
	$node->safe_psql('postgres', 'CREATE ROLE clerk LOGIN IN ROLE pg_write_all_data');
	my %transactions = (
		'a statement that is prepared' => [ 'clerk', 'PREPARE p AS DELETE FROM delay_wheel_data.task' ],
		'an SQL function that is created' => [ 'clerk', q{CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql AS 'UPDATE delay_wheel_data.task SET due = due'} ],
		'tasks of another role' => [ 'mallory', q{SELECT delay_schedule('1 day', 'SELECT 1'), delay_schedule('0', 'SELECT 1')} ]);
	for my $what (sort keys %transactions)
	{
		my ($role, $sql) = @{ $transactions{$what} };
		my $open = $node->background_psql('postgres', extra_params => [ '-U', $role ]);

		$open->query_safe("BEGIN; $sql");
		is($open->query_safe(q{SELECT DISTINCT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text = 'delay_wheel_data.task' AND mode = 'RowExclusiveLock'}), 'RowExclusiveLock', "$what: the table is locked");
		$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION victim; SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'mine'); SELECT delay_cancel_all(tag => 'mine')});
		wait_for($node, $marks, "$what: the victim's cancellation is done", 10, expected => 0);
		$open->query_safe('ROLLBACK');
		$open->quit;
	}
};

#
# A task whose row has no room for what it failed with.
#
group outcome => sub {
	my $id = $node->safe_psql('postgres', q{
		INSERT INTO delay_wheel_data.task (due, sql, max_attempts, retry_delay, more)
		VALUES (now(), 'SELECT 1/0', 2, '1 ms', jsonb_build_object('on_success', repeat('x', 268435420))) RETURNING id});
	wait_for($node, "SELECT attempts FROM delay_wheel_data.failed_task WHERE id = $id", 'it is tried again, and then given up', 30, expected => 2);
	$node->safe_psql('postgres', 'DELETE FROM delay_wheel_data.failed_task');
};

#
# Failed tasks beyond their number.
#
group failed => sub {
	my $failed = 'INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql) SELECT';
	my $rest = q{now(), delay_wheel_internal.origin(), r.oid, 0, 0, 1, '22012', 'x', 'SELECT 1/0' FROM generate_series(1, %d) i, pg_roles r WHERE rolname};

	# the victim's are the oldest
	$node->safe_psql('postgres', "$failed i, now() - interval '2 days' + i * interval '1 s', " . sprintf($rest, 100) . " = 'victim'");
	$node->safe_psql('postgres', "$failed 1000 + i, now() - interval '1 day' + i * interval '1 s', " . sprintf($rest, 100) . " = 'nobody'");
	$node->safe_psql('postgres', "$failed 10000 + i, now() - interval '1 hour', " . sprintf($rest, 5000) . " = 'mallory'");
	$node->safe_psql('postgres', 'ALTER SYSTEM SET delay_wheel.failed_max_count = 1000; SELECT pg_reload_conf()');
	my $counts = q{SELECT string_agg(rolname || ' ' || n, ', ' ORDER BY rolname) FROM
		(SELECT rolname, count(*) AS n FROM delay_wheel_data.failed_task JOIN pg_roles r ON r.oid = owner GROUP BY 1) c};
	wait_for($node, $counts, 'those of who has most make room', 150, expected => 'mallory 800, nobody 100, victim 100');
	is($node->safe_psql('postgres', q{SELECT min(id) FROM delay_wheel_data.failed_task WHERE owner = 'mallory'::regrole}), 10000 + 4201, 'the oldest of them');
	# who has less than a fair part keeps all, the others have as many as each other
	$node->safe_psql('postgres', 'ALTER SYSTEM SET delay_wheel.failed_max_count = 250; SELECT pg_reload_conf()');
	wait_for($node, $counts, 'the others are left alone', 150, expected => 'mallory 84, nobody 83, victim 83');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET delay_wheel.failed_max_count; SELECT pg_reload_conf(); DELETE FROM delay_wheel_data.failed_task');
};

#
# Who looks at thousands of lanes, again and again, by the functions behind the
# views: they look for who sees nothing, too.
#
group readers => sub {
	my @roles = ('mallory', map { "crowd$_" } 1 .. 3);
	$node->safe_psql('postgres', join ';', (map { "CREATE ROLE $_; SELECT delay_wheel.allow('$_')" } @roles[1 .. 3]),
		"SELECT count(delay_wheel.create_queue('q' || i, users => '{" . join(',', @roles) . "}')) FROM generate_series(1, 1100) i",
		map { "SET SESSION AUTHORIZATION $_; SELECT count(delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'q' || i, priority => p)) FROM generate_series(1, 1100) i, generate_series(-1, 1) p; RESET SESSION AUTHORIZATION" } @roles);
	wait_for($node, q{SELECT lanes > 13000 FROM delay_wheel.status WHERE database = 'postgres'}, 'there are many lanes');
	for my $function (qw(get_queues get_status get_lanes))
	{
		holds_nobody_up("readers of $function", 'nobody', "DO 'BEGIN LOOP PERFORM count(*) FROM delay_wheel_internal.$function(); END LOOP; END'", sessions => 6, limit => 100);
	}
};

#
# Cancellations by the thousand, which a transaction of their own keeps from
# being done with; and commits that have everybody look at them again, and have
# the thousands of lanes of that role paused and read again.
#
group marks => sub {
	my $looks = sub {
		my $best = 60_000;
		for (1 .. 3)
		{
			my $began = time();
			is($node->safe_psql('postgres', 'SET SESSION AUTHORIZATION victim; SELECT count(*) FROM delay_wheel.tasks'), 5000, 'the victim sees its tasks');
			my $took = 1000 * (time() - $began);
			$best = $took if $took < $best;
		}
		return sprintf '%.0f', $best;
	};
	$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION victim; SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 5000)});
	my $before = $looks->();
	my $open = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]);
	my @calls = map { "SELECT count(delay_cancel_all(tag => 't' || i)) FROM generate_series(1, $_) i" } 1_500, 7_500, 2_000;
	$open->query_safe("BEGIN; SELECT delay_schedule('1 day', 'SELECT 1'); $calls[0]");
	is($node->psql('postgres', $calls[1], extra_params => [ '-U', 'mallory' ]), 0, 'thousands of cancellations are allowed');
	my ($code, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$calls[2]", extra_params => [ '-U', 'mallory' ]);
	like($err, qr/ERROR:  53400: role "mallory" has reached its limit of cancellations: 10000/, 'no more than that, those that are not committed included');
	my $beside;
	# what harms does so each time
	for (1 .. 3)
	{
		$beside = $looks->();
		note("the view tasks: $before ms before, $beside ms beside the cancellations");
		last if $beside < $before + 1000;
	}
	cmp_ok($beside, '<', $before + 1000, 'its view compares none of its tasks with those of another role');
	$node->safe_psql('postgres', q{DELETE FROM delay_wheel_data.task WHERE owner = 'victim'::regrole});
	is($node->psql('postgres', q{SELECT delay_cancel_all(tag => 'mine')}, extra_params => [ '-U', 'victim' ]), 0, 'another role has its own');
	# and tasks enough to fill the memory, so that lanes of others have to be loaded again, too
	$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION mallory; SELECT count(delay_schedule('10 minutes', 'SELECT 1')) FROM generate_series(1, 200000)});
	# several times: it is a matter of luck whether the timer gets through all lanes in between
	holds_nobody_up('cancellations by the thousand', 'mallory',
		'SELECT delay_pause_all(); SELECT pg_sleep(0.002); SELECT delay_resume_all(); SELECT pg_sleep(0.004)', limit => 200, sessions => 2) for 1 .. 3;

	# an emergency stop works: it takes the place of all that it covers
	my @one = (q{SELECT delay_cancel_all(tag => 'one more')}, q{SELECT delay_cancel_all(due_from => '-infinity', due_until => 'infinity')});
	my $refused = sub { ($node->psql('postgres', $one[0], extra_params => [ '-U', 'mallory' ]))[2] };
	is($node->psql('postgres', q{SELECT count(delay_cancel_all(tag => 'u' || i)) FROM generate_series(1, 1000) i}, extra_params => [ '-U', 'mallory' ]), 0, 'as many as there may be');
	like($refused->(), qr/its limit of cancellations/, 'there is no room for one more');
	$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('stopped', users => '{mallory}')});
	is($node->psql('postgres', q{SELECT delay_cancel_all('stopped'), delay_cancel_all('stopped')}, extra_params => [ '-U', 'mallory' ]), 0, 'but to stop a queue');
	is($node->psql('postgres', $one[1], extra_params => [ '-U', 'mallory' ]), 0, 'an emergency stop has room');
	my $marks = q{SELECT count(*) FROM delay_wheel_data.cancellation WHERE made_by = 'mallory'::regrole};
	is($node->safe_psql('postgres', $marks), 1, 'and makes some');
	# those of another transaction that is open cannot be taken away
	my $other = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]);
	$other->query_safe("BEGIN; $calls[1]; SAVEPOINT s; SELECT count(delay_cancel_all(tag => 'u' || i)) FROM generate_series(1, 999) i");
	like($refused->(), qr/its limit of cancellations/, 'there is none beside a transaction with as many');
	is($node->psql('postgres', $one[1], extra_params => [ '-U', 'mallory' ]), 0, 'where an emergency stop works, too');
	# undone with its savepoint, it has superseded nothing
	$other->query_safe("SAVEPOINT e; $one[1]; ROLLBACK TO e; COMMIT");
	is($node->safe_psql('postgres', $marks), 8500, 'what was rolled back has taken nothing away');
	is($node->safe_psql('postgres', "SET SESSION AUTHORIZATION victim; $one[1]; RESET SESSION AUTHORIZATION; $marks") =~ s/.*\n//sr, 8500, 'an emergency stop of another role has taken nothing away');
	$node->psql('postgres', $one[1], extra_params => [ '-U', 'mallory' ]);
	is($node->safe_psql('postgres', $marks), 1, 'what was committed is taken away');
	$other->quit;
	$open->query_safe('ROLLBACK');
	$open->quit;
};

$node->stop;
done_testing();
