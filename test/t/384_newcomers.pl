# Who comes late waits for the tasks that run, not for the backlog of others: a queue, a group
# or a role that becomes ready has the next turn, roles by their backlog.  But after eight newcomers one of the others
# has its turn, and an executor is kept for a role whose tasks are few.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('newcomers', conf => q{
delay_wheel.max_executors = 1
delay_wheel.batch_tasks = 1
delay_wheel.executor_idle_timeout = 1h
max_worker_processes = 24
});

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE ran (n serial, what text, pid int DEFAULT pg_backend_pid());
	CREATE TABLE gate ();
	GRANT ALL ON ran, gate TO PUBLIC;
	GRANT ALL ON SEQUENCE ran_n_seq TO PUBLIC;
	CREATE FUNCTION put(what text, times int, queue text, group_key text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(delay_schedule_task(format('INSERT INTO ran (what) VALUES (%L)', what), delay => '0', queue => queue, group_key => group_key))
		FROM generate_series(1, times)$$;
	SELECT delay_wheel.create_queue('queue ' || n) FROM generate_series(1, 24) n;
	SELECT delay_wheel.create_queue('grouped', groups => true);
});

# Schedules a backlog in one transaction, in whose middle a task waits while this test holds a lock,
# then the late ones, each in a transaction of its own.  Returns what ran after the wait, in order.
sub run_late
{
	my ($backlog, @late) = @_;
	my $holder = $node->background_psql('postgres');
	my $ready = 'SELECT (SELECT sum(ready) FROM delay_wheel.lanes) + (SELECT count(*) FROM delay_wheel.running) = (SELECT count(*) FROM delay_wheel.tasks)';

	$holder->query_safe('BEGIN; LOCK gate IN ACCESS EXCLUSIVE MODE');
	query("TRUNCATE ran; BEGIN; $backlog; COMMIT");
	wait_for($node, q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'gate'::regclass}, 'the executor waits', 60, expected => 1);
	for my $late ('SELECT', @late)
	{
		query($late);
		wait_for($node, $ready, 'all others are ready', 60, expected => 't');
	}
	query('TRUNCATE ran');
	$holder->query_safe('COMMIT');
	$holder->quit;
	wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'all have run', 60, expected => 0);
	return query(q{SELECT string_agg(what, ' ' ORDER BY n) FROM ran});
}

my $wait = q{SELECT delay_schedule_task('SELECT count(*) FROM gate', delay => '0', queue => 'queue 1')};
my $queues = join('; ', (map { "SELECT put('old', 5, 'queue $_')" } 1 .. 3), $wait, (map { "SELECT put('old', 15, 'queue $_')" } 1 .. 3));

like(run_late($queues, q{SELECT put('late', 1, 'queue 5')}), qr/^late(?: old){45}$/, 'a queue that comes late has the next turn');
like(run_late($queues, map { "SELECT put('late', 1, 'queue $_')" } 5 .. 23), qr/^(?:late ){8}(?:old ){3}(?:late ){11}old/,
	'of many that come late eight, then the others have their turns');

my $groups = q{SELECT put('old', 2, 'grouped', 'g' || n) FROM generate_series(1, 30) n} . "; $wait" =~ s/queue 1/grouped/r
  . q{; SELECT put('old', 5, 'grouped', 'g' || n) FROM generate_series(1, 30) n};
like(run_late($groups, q{SELECT put('late', 1, 'grouped', 'late')}), qr/^late(?: old){100,}$/, 'a group that comes late has the next turn');

query(qq{CREATE ROLE busy$_ LOGIN; SELECT delay_wheel.allow('busy$_')}) for 1 .. 10;
query(q{CREATE ROLE rare LOGIN; SELECT delay_wheel.allow('rare')});
# When a task has run for a second, another role may have an executor: on a busy machine some tries.
my $roles = join('; ', map { "SET SESSION AUTHORIZATION $_->[0]; SELECT put('$_->[0]', $_->[1], NULL); RESET SESSION AUTHORIZATION" }
	  ['busy2', 3], ['busy3', 4], ['rare', 1], ['busy4', 2]);
my $sorted = join(' ', 'rare', ('busy4') x 2, ('busy2') x 3, ('busy3') x 4);
my $order = '';
for (1 .. 10)
{
	$order = run_late("SET SESSION AUTHORIZATION busy1; SELECT delay_schedule('0', 'SELECT count(*) FROM gate')", $roles);
	last if $order eq $sorted;
}
is($order, $sorted, 'of roles that come late the one with the shortest backlog goes first');

#
# An executor is kept for a role with few tasks, beside ten with a backlog.  On a busy machine a turn
# may take long, and then its executor is not kept: the best of some tries.
#
$node->append_conf('postgresql.conf', "delay_wheel.max_executors = 4\ndelay_wheel.batch_tasks = 100\n");
$node->restart;
query(qq{SET SESSION AUTHORIZATION busy$_; SELECT count(delay_schedule('1 s', 'SELECT pg_sleep(0.005)')) FROM generate_series(1, 5000)}) for 1 .. 10;
my $processes = 'infinity';
for my $try (1 .. 5)
{
	query(q{TRUNCATE ran; SET SESSION AUTHORIZATION rare;
		SELECT count(delay_schedule_at(now() + interval '2 s' + i * interval '50 ms', $$INSERT INTO ran (what) VALUES ('rare')$$)) FROM generate_series(1, 40) i});
	wait_for($node, q{SELECT count(*) FROM ran}, 'the tasks of the rare role run', 120, expected => 40);
	is(query(q{SELECT count(DISTINCT owner) FROM delay_wheel.tasks}), 10, 'while all others have a backlog');
	my $used = query('SELECT count(DISTINCT pid) FROM ran');
	$processes = $used if $used < $processes;
	last if $processes <= 5;
}
cmp_ok($processes, '<=', 5, "in few processes ($processes)");

#
# But not while all others run tasks that take long: then a role without an executor would wait for
# the kept one.  The best of some tries, each with another role.
#
query(q{SELECT delay_cancel_all(due_from => '-infinity'); TRUNCATE ran});
wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'nothing is left', 120, expected => 0);
query(qq{SET SESSION AUTHORIZATION busy$_; SELECT delay_schedule('0', 'SELECT pg_sleep(1000)')}) for 1 .. 3;
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'three tasks take long', 60, expected => 3);
my $late = 'infinity';
for my $role (map { "busy$_" } 4 .. 8)
{
	query(q{SET SESSION AUTHORIZATION rare; SELECT delay_schedule('0', 'INSERT INTO ran VALUES (DEFAULT, ''before'')') AS id \gset
		SELECT delay_wait(:id);});
	my $seconds = query(qq{SET SESSION AUTHORIZATION $role; SELECT clock_timestamp() AS began, delay_schedule('0', 'INSERT INTO ran (what) VALUES (''$role'')') AS id \\gset
		SELECT delay_wait(:id) AS outcome \\gset
		SELECT extract(epoch FROM clock_timestamp() - :'began'::timestamptz);});
	$late = $seconds if $seconds < $late;
}
cmp_ok($late, '<', 0.7, "a role without an executor takes the place of an idle one ($late s)");
query(q{SELECT delay_cancel_all(due_from => '-infinity')});

#
# Two executors, and both have a backlog: the role with few tasks has one more, and not a new one for each task.
#
$node->append_conf('postgresql.conf', 'delay_wheel.max_executors = 2');
$node->restart;
wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'nothing is left', 120, expected => 0);
query(qq{SET SESSION AUTHORIZATION busy$_; SELECT count(delay_schedule('1 s', 'SELECT pg_sleep(0.005)')) FROM generate_series(1, 5000)}) for 1 .. 10;
($processes, my $most) = ('infinity', 0);
for my $try (1 .. 5)
{
	query(q{TRUNCATE ran; SET SESSION AUTHORIZATION rare;
		SELECT count(delay_schedule_at(now() + interval '2 s' + i * interval '50 ms', $$INSERT INTO ran (what) VALUES ('rare')$$)) FROM generate_series(1, 40) i});
	ok(wait_until(120, sub {
		my ($ran, $running) = split /\|/, query('SELECT (SELECT count(*) FROM ran), (SELECT count(*) FROM delay_wheel.running)');
		$most = $running if $running > $most;
		return $ran == 40;
	}), 'two executors: the tasks of the rare role run');
	is(query(q{SELECT count(DISTINCT owner) FROM delay_wheel.tasks}), 10, 'while all others have a backlog');
	my $used = query('SELECT count(DISTINCT pid) FROM ran');
	$processes = $used if $used < $processes;
	last if $processes <= 5;
}
cmp_ok($processes, '<=', 5, "in few processes ($processes)");
cmp_ok($most, '<=', 3, "and no more than three tasks run at a time ($most)");
query(q{SELECT delay_cancel_all(due_from => '-infinity')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'nothing is left', 120, expected => 0);

#
# An executor that has just become idle is kept, too, while no other runs a task, as between the turns
# of others: the next role gets one beyond the limit.  The best of some tries, since a turn must be quick.
#
sub executors { return query(q{SELECT string_agg(owner::text, ' ' ORDER BY owner::text) FROM delay_wheel_internal.get_running()}); }
my $executors = '';
for my $try (1 .. 10)
{
	# some may still be started for tasks that were cancelled
	ok(wait_until(60, sub {
		query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
		return executors() eq '';
	}), 'there is no executor');
	query(qq{SET SESSION AUTHORIZATION $_; SELECT delay_schedule('0', 'SELECT 1') AS id \\gset
		SELECT delay_wait(:id);}) for 'busy1', 'rare', 'busy1', 'rare', 'busy2';
	$executors = executors();
	last if $executors eq 'busy1 busy2 rare';
}
is($executors, 'busy1 busy2 rare', 'none ends for the third role while one is kept');

#
# If this role then has a backlog, too, it keeps no executor beyond the limit.
#
$node->restart;
query(qq{SET SESSION AUTHORIZATION busy$_; SELECT count(delay_schedule('0', 'SELECT pg_sleep(0.02)')) FROM generate_series(1, 4000)}) for 1, 2;
wait_for($node, 'SELECT count(*) < 7850 FROM delay_wheel.tasks', 'two roles use both executors', 60);
query(q{SET SESSION AUTHORIZATION rare; SELECT delay_schedule('0', 'SELECT pg_sleep(0.3)')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.running WHERE owner = 'rare'}, 'the third has one', 60, expected => 1);
query(q{SET SESSION AUTHORIZATION rare; SELECT count(delay_schedule('0', 'SELECT pg_sleep(0.02)')) FROM generate_series(1, 4000)});
my $within = 0;
ok(wait_until(30, sub {
	$within = query('SELECT count(*) FROM delay_wheel.running') <= 2 ? $within + 1 : 0;
	return $within == 30;
}), 'no more than two tasks run at a time for long');
is(query('SELECT count(DISTINCT owner) FROM delay_wheel.tasks'), 3, 'while all three have a backlog');
query(q{SELECT delay_cancel_all(due_from => '-infinity')});

#
# A backlog of many groups that does not fit into memory, as from the end of a pause: a group whose
# task comes now does not wait until all that is due earlier has been loaded.
#
$node->append_conf('postgresql.conf', "delay_wheel.max_executors = 1\ndelay_wheel.batch_tasks = 1\ndelay_wheel.ring_memory = 256kB");
$node->restart;
wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'nothing is left', 120, expected => 0);
my $gate = $node->background_psql('postgres');
$gate->query_safe('BEGIN; LOCK gate IN ACCESS EXCLUSIVE MODE');
query(qq{TRUNCATE ran; $wait});
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'gate'::regclass}, 'the executor waits', 60, expected => 1);
query(q{SELECT put('old', 1, 'grouped', 'g' || n % 100) FROM generate_series(1, 20000) n});
wait_for($node, q{SELECT ready BETWEEN 100 AND 15000 FROM delay_wheel.lanes WHERE queue = 'grouped'}, 'a part of them is in memory', 60);
query(q{SELECT put('late', 3, 'grouped', 'late')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.groups WHERE group_key = 'late' AND ready > 0}, 'and so is the late group', 60, expected => 1);
$gate->query_safe('COMMIT');
$gate->quit;
wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'all have run', 120, expected => 0);
is(query(q{SELECT count(*) FILTER (WHERE what = 'late') || ' ' || count(*) FILTER (WHERE what = 'old') FROM ran}), '3 20000', 'each one once');
my ($first, $last) = split /\|/, query(q{SELECT min(n) - (SELECT min(n) FROM ran), max(n) - (SELECT min(n) FROM ran) FROM ran WHERE what = 'late'});
cmp_ok($first, '<', 1000, "the late group's first task comes after $first of 20,000");
cmp_ok($last, '<', 2000, "its last one after $last: the group has its turns");

#
# The same with a task that hangs: nothing of the queue can run.  Returns what is in memory.
#
sub hang_with_backlog
{
	query(q{SELECT delay_cancel_all(due_from => '-infinity')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'nothing is left', 120, expected => 0);
	query(q{TRUNCATE ran; SELECT delay_wheel.create_queue('grouped', max_running => 1);
		SELECT delay_schedule_task('SELECT pg_sleep(1000)', delay => '0', queue => 'grouped', group_key => 'hangs')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a task hangs', 60, expected => 1);
	query(q{SELECT put('old', 1, 'grouped', 'g' || n % 100) FROM generate_series(1, 20000) n});
	wait_for($node, q{SELECT ready BETWEEN 100 AND 15000 FROM delay_wheel.lanes WHERE queue = 'grouped'}, 'a part of the backlog is in memory', 60);
	return;
}
sub timer_cpu
{
	my $pid = query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'postgres'});

	my @stat = split / /, slurp_file("/proc/$pid/stat");
	return $stat[13] + $stat[14];
}
my $late_groups = q{SELECT count(*) FROM delay_wheel.groups WHERE group_key LIKE 'late%' AND ready > 0};

hang_with_backlog();
query(q{SELECT put('late', 1, 'grouped', 'late' || n) FROM generate_series(1, 40) n});
wait_for($node, $late_groups, 'many groups that come at a time are in memory', 60, expected => 40);
# longer than between two looks
my $slow = $node->background_psql('postgres');
$slow->query_safe(q{BEGIN; SELECT put('late', 1, 'grouped', 'late 41'), pg_sleep(1.5)});
query(q{SELECT put('late', 1, 'grouped', 'late 42')});
wait_for($node, $late_groups, 'one more is', 60, expected => 41);
$slow->query_safe('COMMIT');
$slow->quit;
wait_for($node, $late_groups, 'and one that was committed after its due time', 60, expected => 42);

# 400 groups fill the memory, which cannot become free
query(qq{SELECT put('new', 60, 'grouped', 'new $_')}) for 1 .. 400;
ok(wait_until(60, sub {
	my $before = timer_cpu();
	query('SELECT pg_sleep(2)');
	return timer_cpu() - $before < 40;
}), 'the timer comes to rest');
query(q{SELECT delay_cancel_all(due_from => '-infinity'); SELECT delay_cancel(task, stop_running => true) FROM delay_wheel.running});

#
# Groups that came late and have reached their limits do not keep the others from being loaded, even
# if a second database takes half of the memory.
#
wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks', 'nothing is left', 120, expected => 0);
query(q{TRUNCATE ran; SELECT delay_wheel.create_queue('grouped', max_running => 0, options => '{"group_rate": 1, "group_per": "1 hour", "group_burst": 1}');
	SELECT count(delay_schedule_task('INSERT INTO ran (what) SELECT ''old'' FROM pg_sleep(0.002)', delay => '0', queue => 'grouped', group_key => 'o' || n)) FROM generate_series(1, 9000) n});
wait_for($node, 'SELECT count(*) > 10 FROM ran', 'the backlog runs', 60);
query(qq{SELECT put('new', 300, 'grouped', 'new $_'), pg_sleep(0.02)}) for 1 .. 100;
query('CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION delay_wheel');
wait_for($node, q{SELECT count(*) FROM ran WHERE what = 'old'}, 'all that may run run', 180, expected => 9000);
$node->stop('immediate');

done_testing();
