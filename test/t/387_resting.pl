# Databases that sleep: a timer with nothing to do ends, and is there again in time, whatever it
# is that needs it.
#
#   DW_RESTS   commits of each session that races with timers that go to rest (40; DW_LONG: 300)

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node;

# A timer rests if nothing is to be done for twice the margin: 2 * (2 s + 8 * 50 ms).
my $conf = q{
autovacuum = off
restart_after_crash = on
delay_wheel.max_databases = 8
delay_wheel.timer_idle_timeout = 0
delay_wheel.executor_idle_timeout = 100ms
};

sub set_up
{
	my ($name, %options) = @_;

	$node = new_node($name, %options, conf => $conf . ($options{conf} // ''));
	$node->safe_psql('postgres', q{
		CREATE TABLE ran (name text, due timestamptz, at timestamptz DEFAULT clock_timestamp());
		GRANT ALL ON ran TO PUBLIC;
		CREATE FUNCTION plan(name text, delay interval, queue text DEFAULT NULL) RETURNS bigint
		LANGUAGE sql AS $$
			SELECT delay_schedule_task(format('INSERT INTO public.ran VALUES (%L, %L)', name, clock_timestamp() + delay),
				delay => delay, queue => queue)
		$$;
		CREATE FUNCTION state() RETURNS text
		LANGUAGE sql AS 'SELECT state FROM delay_wheel.status WHERE database = current_database()';
	});
	return;
}

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

sub rests
{
	my ($what, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT state()', $what, 60, db => $db, expected => 'resting');
}

sub has_run
{
	my ($name, $what, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM ran WHERE name = '$name'", $what // "$name: it runs", 60, db => $db, expected => 1);
}

# A database that rests, something that is done there, and what must follow from it.
sub wakes
{
	my ($what, $sql, $follows) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	rests("$what: the timer rests before");
	ref $sql ? $sql->() : sql($sql);
	return wait_for($node, $follows, $what);
}

group ways => sub {
	set_up('resting');

	#
	# It rests, and shows that.
	#
	rests('with nothing to do the timer rests');
	is(scalar(worker_pids($node, 'timer')), 0, 'there is no process');
	is(sql(q{SELECT rests_until IS NULL AND last_problem IS NULL FROM delay_wheel.status}), 't', 'for as long as nothing happens');
	sql(q{SELECT plan('far', '1 day')});
	wait_for($node, q{SELECT state = 'resting' AND rests_until BETWEEN now() + interval '22 hours' AND now() + interval '1 day'
		FROM delay_wheel.status}, 'or until a task is due');
	is(sql(q{SELECT state, reason FROM delay_wheel.lanes}), 'idle|', 'its lanes are not blocked');
	sql(q{SELECT * FROM delay_wheel.tasks; SELECT * FROM delay_wheel.queues; SELECT * FROM delay_wheel.ring LIMIT 1});
	is(sql('SELECT state()'), 'resting', 'views do not wake it');
	# a later task changes nothing
	sql(q{SELECT plan('later', '2 days')});
	is(sql('SELECT state()'), 'resting', 'a task that is due later does not wake it');

	#
	# On time: beside a database whose timer is awake, since a task is near.
	#
	sql('CREATE DATABASE awake TEMPLATE postgres');
	sql(q{SELECT delay_wheel.arm(); TRUNCATE ran}, 'awake');
	sql(q{SELECT count(plan('near', make_interval(secs => i))) FROM generate_series(1, 14) i}, 'awake');
	rests('the timer rests while a task is some seconds ahead');
	sql(q{SELECT plan('ahead', '12 s')});
	wait_for($node, q{SELECT state = 'resting' AND rests_until < now() + interval '12 s' FROM delay_wheel.status WHERE database = 'postgres'},
		'it rests until a task');
	has_run('ahead', 'which begins');
	my $late = sql(q{SELECT round(1000 * extract(epoch FROM at - due), 1) FROM ran WHERE name = 'ahead'});
	wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'near'}, 'those of the other database begin, too', 60, db => 'awake', expected => 14);
	my $usual = sql(q{SELECT round(1000 * max(extract(epoch FROM at - due)), 1) FROM ran WHERE name = 'near'}, 'awake');
	note("late by $late ms; with a timer that is awake by $usual ms at most");
	cmp_ok($late, '<', $usual + 500, 'on time');
	sql('DROP DATABASE awake');
	# a lane of its own, whose task is due later
	rests('again');
	sql(q{SELECT plan('earlier', '9 s')});
	rests('until a task is due');
	sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', priority => 5, tag => 'other lane')});
	has_run('earlier', 'a later task of another lane does not put it off');
	sql(q{DELETE FROM delay_wheel_data.task WHERE tag = 'other lane'});

	#
	# All that wakes it.
	#
	wakes('a task that is due now', q{SELECT plan('now', '0')}, q{SELECT count(*) = 1 FROM ran WHERE name = 'now'});
	wakes('one that is due soon', q{SELECT plan('soon', '1 s')}, q{SELECT count(*) = 1 FROM ran WHERE name = 'soon'});
	wakes('many', q{SELECT count(plan('many', '0')) FROM generate_series(1, 5000)}, q{SELECT count(*) = 5000 FROM ran WHERE name = 'many'});
	wakes('one after a savepoint', q{BEGIN; SAVEPOINT s; SELECT plan('never', '0'); ROLLBACK TO s; SELECT plan('saved', '0'); COMMIT},
		q{SELECT count(*) = 1 FROM ran WHERE name = 'saved'});
	wakes('a task that is moved', q{SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks WHERE sql LIKE '%later%'},
		q{SELECT count(*) = 1 FROM ran WHERE name = 'later'});
	wakes('plain SQL', q{SELECT plan('plain', '1 day'); UPDATE delay_wheel_data.task SET due = now() WHERE sql LIKE '%plain%'},
		q{SELECT count(*) = 1 FROM ran WHERE name = 'plain'});
	sql(q{SELECT plan('locked', '8 s')});
	wakes('a cancel that is rolled back', q{BEGIN; SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE sql LIKE '%locked%'; ROLLBACK},
		q{SELECT count(*) = 1 FROM ran WHERE name = 'locked'});
	sql(q{SELECT count(plan('unwanted', '1 day')) FROM generate_series(1, 10)});
	wakes('delay_cancel_all()', q{SELECT delay_cancel_all(due_from => now(), due_until => now() + interval '10 days')},
		q{SELECT (SELECT count(*) FROM delay_wheel.cancellations) + (SELECT count(*) FROM delay_wheel_data.task) = 0});
	wakes('COMMIT PREPARED', sub {
			sql(q{BEGIN; SELECT plan('prepared', '0'); PREPARE TRANSACTION 'p'});
			rests('while a transaction is prepared the timer rests');
			sql(q{COMMIT PREPARED 'p'});
		}, q{SELECT count(*) = 1 FROM ran WHERE name = 'prepared'});
	wakes('a pause', q{SELECT delay_wheel.pause_database(); SELECT plan('paused', '0')}, q{SELECT ready = 1 AND state = 'paused' FROM delay_wheel.status});
	is(sql('SELECT count(*) FROM ran WHERE name = \'paused\''), 0, 'it holds');
	sql('SELECT delay_wheel.resume_database()');
	has_run('paused', 'until it ends');
	wakes('a queue', q{SELECT delay_wheel.create_queue('q', max_running => 1); SELECT count(plan('queued', '0', 'q')) FROM generate_series(1, 3)},
		q{SELECT count(*) = 3 FROM ran WHERE name = 'queued'});
	wakes('a pause of a queue', q{SELECT delay_wheel.pause_queue('q'); SELECT plan('held', '0', 'q')}, q{SELECT ready = 1 FROM delay_wheel.status});
	sql(q{SELECT delay_wheel.resume_queue('q')});
	has_run('held', 'until it ends');
	wakes('a recurring task', q{SELECT delay_every('tick', '1 s', 'INSERT INTO ran VALUES (''tick'')')},
		q{SELECT count(*) >= 3 FROM ran WHERE name = 'tick'});
	sql(q{SELECT delay_unschedule('tick')});
	sql(q{SELECT delay_schedule('0', 'SELECT 1/0')});
	wait_for($node, 'SELECT count(*) = 1 FROM delay_wheel.failed', 'a task has failed');
	wakes('delay_retry()', q{CREATE FUNCTION ok() RETURNS int LANGUAGE sql AS 'SELECT 1';
		SELECT delay_retry(id) FROM delay_wheel.failed}, q{SELECT count(*) = 1 FROM delay_wheel.failed});
	sql(q{CREATE ROLE gone LOGIN; SELECT delay_wheel.allow('gone'); SET ROLE gone; SELECT plan('orphan', '1 day')});
	wakes('DROP ROLE', 'DROP OWNED BY gone; DROP ROLE gone', q{SELECT count(*) = 2 FROM delay_wheel.failed});
	wakes('a reload of settings', sub {
			sql('ALTER SYSTEM SET delay_wheel.failed_max_count = 1');
			$node->reload;
		}, 'SELECT count(*) = 1 FROM delay_wheel.failed');
	wakes('ALTER DATABASE SET', q{ALTER DATABASE postgres SET delay_wheel.enabled = off; SELECT plan('off', '0')},
		q{SELECT state = 'disabled' FROM delay_wheel.status});
	sql('ALTER DATABASE postgres RESET ALL');
	has_run('off', 'when it is switched on the task runs');
	for my $case ([ 'disabled', 'ALTER DATABASE SET', 'ALTER DATABASE postgres SET delay_wheel.enabled = off', 'ALTER DATABASE postgres RESET ALL' ],
		[ 'disabled', 'a reload', 'ALTER SYSTEM SET delay_wheel.enabled = off', 'ALTER SYSTEM RESET delay_wheel.enabled' ],
		[ 'paused', 'delay_wheel.pause_database()', 'SELECT delay_wheel.pause_database()', 'SELECT delay_wheel.resume_database()' ])
	{
		my ($state, $how, $off, $on) = @$case;

		rests("$how: the timer rests");
		sql($off);
		$node->reload;
		wait_for($node, q{SELECT state() || ' ' || count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'},
			"$how: a database that rests is $state", 60, expected => "$state 0");
		sql($on);
		$node->reload;
		rests("$how: it is not any more");
	}

	#
	# Messages.
	#
	sql(q{SELECT delay_wheel.create_queue('mail', external => true, options => '{"lease": "7 s"}')});
	rests('a queue of messages');
	my $session = $node->background_psql('postgres');
	$session->query_until(qr/waits/, "\\echo waits\nCALL delay_await('mail', '60 s');\n\\echo answered\n");
	wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CALL delay_await%' AND state = 'active'}, 'a session waits');
	sql(q{SELECT delay_send('mail', '{}')});
	ok($session->query_until(qr/answered/, ''), 'it is told of a message') ;
	$session->quit;
	is(sql(q{SELECT count(*) FROM delay_lease('mail')}), 1, 'the message is leased');
	rests('meanwhile the timer rests');
	wait_for($node, q{SELECT count(*) = 1 FROM delay_receive('mail', autocommit => true)}, 'when the lease ends it can be received again');
	rests('again');
	sql(q{BEGIN; SELECT delay_send('mail', '{}'); COMMIT; BEGIN; SELECT * FROM delay_receive('mail'); ROLLBACK});
	wait_for($node, q{SELECT count(*) = 1 FROM delay_receive('mail', autocommit => true)}, 'one whose receiver was rolled back, too');

	#
	# Commands that need the database without sessions, and those that end it.
	#
	sql('CREATE DATABASE other TEMPLATE postgres');
	sql(q{TRUNCATE ran; DELETE FROM delay_wheel_data.task}, 'other');
	rests('another database', 'other');
	sql('CREATE DATABASE copy TEMPLATE other');
	rests('it rests after it was copied', 'other');
	sql('ALTER DATABASE other RENAME TO another');
	rests('and after it was renamed', 'another');
	sql(q{SELECT plan('renamed', '0')}, 'another');
	has_run('renamed', 'a task runs there', 'another');
	rests('it rests', 'another');
	sql('ALTER DATABASE another IS_TEMPLATE true');
	wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'another'}, 'as a template it is not served', 60, expected => 0);
	sql('ALTER DATABASE another IS_TEMPLATE false');
	rests('and is again', 'another');
	sql('DROP DATABASE another');
	wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'another'}, 'its place is given back', 60, expected => 0);
	rests('the copy', 'copy');
	sql('DROP EXTENSION delay_wheel CASCADE', 'copy');
	wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'copy'}, 'so it is after DROP EXTENSION', 60, expected => 0);
	sql(q{CREATE EXTENSION delay_wheel; SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''created'')')}, 'copy');
	has_run('created', 'and CREATE EXTENSION brings it back', 'copy');

	#
	# Ends of other processes.
	#
	rests('the timer rests');
	sql(q{SELECT plan('launched', '9 s')});
	rests('until a task');
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'});
	wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'}, 'the launcher is another one');
	has_run('launched', 'which starts a timer in time');
	for my $how (qw(fast immediate))
	{
		rests('the timer rests');
		sql(qq{SELECT plan('$how', '6 s'), plan('$how later', '12 s')});
		$node->stop($how);
		sleep(6);
		$node->start;
		has_run($how, "after a stop ($how) a task runs that was due meanwhile");
		has_run("$how later", 'and the next one');
	}
	rests('the timer rests');
	my ($launcher) = worker_pids($node, 'launcher');
	sql(q{SELECT plan('killed', '8 s')});
	kill 'KILL', $launcher;
	has_run('killed', 'after a crash a task runs');
	unlike(log_since($node, 0), qr/ERROR:  (?!division by zero)|FATAL:  (?!terminating|the database system)|PANIC/, 'the log has no errors');
	$node->stop;
};

#
# Sessions commit just when timers go to rest.
#
group races => sub {
	my $rests = $ENV{DW_RESTS} // (long_tests() ? 300 : 40);
	my @sessions;

	set_up('rest_races');
	sql('CREATE DATABASE two TEMPLATE postgres');
	for my $db (qw(postgres two) x 2)
	{
		my $session = $node->background_psql($db);

		# an executor ends after 100 ms, and then the timer
		$session->query_until(qr/goes/, qq{\\echo goes
			DO \$\$ BEGIN FOR i IN 1 .. $rests LOOP
				PERFORM plan('race', '0'); COMMIT; PERFORM pg_sleep(CASE WHEN i % 2 = 0 THEN 0.05 ELSE 0.1 END + random() * 0.1);
			END LOOP; END \$\$;\n});
		push @sessions, $session;
	}
	for my $db (qw(postgres two))
	{
		wait_for($node, 'SELECT count(*) FROM ran', 'all tasks run', 120 + $rests, db => $db, expected => 2 * $rests);
		note('the latest one began after ' . sql('SELECT max(at - due) FROM ran', $db));
		cmp_ok(sql('SELECT extract(epoch FROM max(at - due)) FROM ran', $db), '<', 10, 'none stays overdue');
		is(sql('SELECT count(*) FROM delay_wheel.tasks', $db), 0, 'nothing is left');
	}
	$_->quit for @sessions;
	$node->stop;
};

#
# With processes stopped between two steps.
#
group points => sub {
	return unless has_injection();
	set_up('rest_points', injection => 1);
	for my $point (qw(rest-before-publish rest-after-withdraw rest-before-end))
	{
		for my $case ([ 'now', '0' ], [ 'ahead', '1 s' ], [ 'far', '6 s' ])
		{
			my ($when, $delay) = @$case;

			rests('the timer rests');
			attach($node, $point, 'wait', 0, 1);
			sql(q{SELECT plan('before', '0')});
			wait_until_waiting($node, $point);
			sql("SELECT plan('$point $when', '$delay')");
			detach($node, $point);
			has_run("$point $when");
			sql('TRUNCATE ran');
		}
		rests('the timer rests');
		attach($node, $point, 'wait', 0, 1);
		sql(q{SELECT plan('before', '0')});
		wait_until_waiting($node, $point);
		sql(q{SELECT count(plan('rows', '1 day')) FROM generate_series(1, 10)});
		sql(q{SELECT delay_cancel_all(due_from => now())});
		detach($node, $point);
		wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel.cancellations}, "$point: marks are swept");
		rests('the timer rests');
		attach($node, $point, 'wait', 0, 1);
		sql(q{SELECT plan('before', '0')});
		wait_until_waiting($node, $point);
		# a command waits until the timer is gone
		my $copying = $node->background_psql('template1');
		$copying->query_until(qr/goes/, "\\echo goes\nCREATE DATABASE copied TEMPLATE postgres;\n");
		wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CREATE DATABASE copied%' AND state = 'active'},
			"$point: a command holds the database", 60, db => 'template1');
		detach($node, $point);
		$copying->query_safe('SELECT 1');
		$copying->quit;
		is(sql(q{SELECT count(*) FROM pg_database WHERE datname = 'copied'}), 1, "$point: it was copied");
		sql('DROP DATABASE copied');
	}
	$node->stop;
};

#
# A timer that cannot start keeps no other one from it.
#
group held_up => sub {
	set_up('rest_held_up');
	sql('CREATE DATABASE other TEMPLATE postgres');
	rests('another database', 'other');
	sql(q{SELECT plan('held up', '8 s')});
	rests('until a task');
	my $lock = $node->background_psql('postgres');
	$lock->query_safe('BEGIN; LOCK TABLE pg_extension');
	wait_for($node, q{SELECT state = 'starting' FROM delay_wheel.status WHERE database = 'postgres'}, 'its timer waits for a lock', 60, db => 'other');
	sql(q{SELECT plan('beside', '0')}, 'other');
	has_run('beside', 'the timer of another database is not held up', 'other');
	$lock->query_safe('ROLLBACK');
	$lock->quit;
	has_run('held up');

	# all are to be looked into, of which the first ones take as long as a look may
	my @slow = map { "slow$_" } 1 .. 4;
	sql("CREATE DATABASE $_ TEMPLATE postgres") for @slow;
	rests("$_ rests", $_) for @slow;
	sql('CREATE DATABASE last TEMPLATE postgres');
	rests('one that comes after them', 'last');
	my @locks = map { $node->background_psql($_) } @slow;
	$_->query_safe('BEGIN; LOCK TABLE pg_extension') for @locks;
	sql(q{ALTER SYSTEM SET delay_wheel.failed_max_age = '7d'});
	$node->reload;
	wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND wait_event_type = 'Lock'}, 'a look takes long');
	sql(q{SELECT delay_schedule('0', $$INSERT INTO ran (name) SELECT 'asked' FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND wait_event_type = 'Lock'$$)}, 'last');
	wait_for($node, q{SELECT count(*) > 0 FROM ran WHERE name = 'asked'}, 'a task for now in the last database', 60, db => 'last');
	cmp_ok(sql(q{SELECT count(*) FROM ran WHERE name = 'asked'}, 'last'), '<', scalar @slow, 'runs before all others were looked into');
	$_->quit for @locks;
	$node->stop;
};

#
# More databases than background workers, all of which have a task at the same time.
#
group few => sub {
	# a window of 2 s: tasks that are due later are not in memory
	set_up('rest_few', conf => "max_worker_processes = 8\nmax_logical_replication_workers = 0\ndelay_wheel.max_databases = 20\ndelay_wheel.slots = 20\ndelay_wheel.tick = 100ms\ndelay_wheel.turns_ahead = 1\n");
	rests('the first one');
	sql("CREATE DATABASE db$_ TEMPLATE postgres") for 1 .. 15;
	for my $db (map { "db$_" } 1 .. 15)
	{
		sql(q{INSERT INTO ran VALUES ('copied')}, $db);
		wait_for($node, qq{SELECT state = 'resting' FROM delay_wheel.status WHERE database = '$db'}, "$db rests");
	}
	my $due = sql(q{SELECT clock_timestamp() + interval '14 s'});
	sql(qq{SELECT delay_schedule_at('$due', 'INSERT INTO ran VALUES (''midnight'')')}, "db$_") for 1 .. 15;
	wait_for($node, q{SELECT count(*) FILTER (WHERE state = 'resting') >= 10 FROM delay_wheel.status}, 'most rest until a task');
	has_run('midnight', "db$_: it runs", "db$_") for 1 .. 15;
	note('the latest one began after ' . join(', ', sort map { sql("SELECT at - '$due' FROM ran WHERE name = 'midnight'", "db$_") } 1 .. 15));
	my $position = log_position($node);
	$node->restart;
	wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE state = 'resting'}, 'after a restart all were looked into, and rest', 60, expected => 16);
	unlike(log_since($node, $position), qr/could not (start|look)/, 'though background workers are few');
	$node->stop;
};

#
# With one worker for timers: when it is free, a timer that was refused for long has it at once.
#
group refused => sub {
	set_up('rest_refused', conf => "max_worker_processes = 3\nmax_logical_replication_workers = 0\n");
	sql('CREATE DATABASE other TEMPLATE postgres');
	rests('another database', 'other');
	rests('the timer rests');
	# tries after pauses of 10, 20, 40 ms and so on: the next one would be 5 s after the last
	sql(q{SELECT delay_schedule('0', 'INSERT INTO ran SELECT ''long'' FROM pg_sleep(7); UPDATE ran SET at = clock_timestamp() WHERE name = ''long''')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task runs', 60, expected => 1);
	sql(q{SELECT plan('waits', '0')}, 'other');
	wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'other'}, 'no worker is free for the timer of another database', 60, expected => 'stopped');
	has_run('long');
	has_run('waits', 'it is when the task has ended', 'other');
	my $ended = sql('SELECT extract(epoch FROM at) FROM ran');
	my $after = sql("SELECT extract(epoch FROM at) - $ended FROM ran", 'other');
	note("after $after s");
	cmp_ok($after, '<', 1.5, 'at once');

	#
	# Databases that cannot be looked into are named in the log, also after one of them was dropped.
	#
	rests('another database', 'other');
	rests('the timer rests');
	sql(q{SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task runs', 60, expected => 1);
	for my $name (qw(first second))
	{
		sql("CREATE DATABASE $name TEMPLATE template0");
		ok(wait_until(60, sub { log_since($node, 0) =~ /could not look into database "$name"/ }), "$name: the log says that it cannot be looked into");
		sql("DROP DATABASE $name");
	}
	$node->stop('immediate');
};

#
# With one worker for timers: an executor that only waits for work keeps no other database from its
# worker, however long it may be idle.
#
group idle => sub {
	set_up('rest_idle', conf => "max_worker_processes = 3\nmax_logical_replication_workers = 0\ndelay_wheel.executor_idle_timeout = 1h\n");
	sql('CREATE DATABASE other TEMPLATE postgres');
	rests('another database', 'other');
	rests('the timer rests');
	sql(q{SELECT plan('before', '0')});
	has_run('before');
	sql(q{SELECT plan('waits', '0')}, 'other');
	has_run('waits', 'a task of another database has the worker', 'other');
	# databases take turns after 5 s
	cmp_ok(sql(q{SELECT extract(epoch FROM at - due) FROM ran WHERE name = 'waits'}, 'other'), '<', 5, 'not only in its turn');
	$node->stop;
};

#
# With one worker for timers: databases that always have something near take turns.
#
group turns => sub {
	my $begun = time();
	set_up('rest_turns', conf => "max_worker_processes = 3\nmax_logical_replication_workers = 0\ndelay_wheel.executor_idle_timeout = 1h\n");
	sql("CREATE DATABASE db$_ TEMPLATE postgres") for 1 .. 2;
	sql(q{SELECT delay_every('tick', '500 ms', 'INSERT INTO ran VALUES (''tick'')')}, "db$_") for 1 .. 2;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "$_: its tasks run", 60, db => $_) for qw(db1 db2);
	sql('TRUNCATE ran', "db$_") for 1 .. 2;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "$_: again", 60, db => $_) for qw(db1 db2);
	sql(q{SELECT plan('long', '0')});
	has_run('long', 'and those of a third one');
	# a backlog
	sql(q{SELECT count(delay_schedule('0', 'SELECT pg_sleep(0.1)')) FROM generate_series(1, 10000)}, 'db1');
	sql(q{SELECT plan('beside', '0')});
	has_run('beside', 'a backlog keeps no other database from its turn');
	# a receiver that has a message in a transaction does not, either, and loses nothing
	sql(q{SELECT delay_wheel.create_queue('mail', external => true); SELECT delay_send('mail', '1')});
	my $receiver = $node->background_psql('postgres');
	ok(wait_until(60, sub { $receiver->query(q{COMMIT; BEGIN; SELECT count(*) FROM delay_receive('mail')}) == 1 }), 'a message is received');
	sql(q{SELECT plan('receiver', '0')}, 'db2');
	has_run('receiver', 'a receiver keeps no other database from its turn', 'db2');
	$receiver->query('ROLLBACK');
	ok(wait_until(60, sub { $receiver->query(q{COMMIT; BEGIN; SELECT count(*) FROM delay_receive('mail')}) == 1 }), 'it is received again after a rollback');
	$receiver->quit;
	my %told;
	$told{$_}++ for log_since($node, 0) =~ /could not start delay_wheel timer of database "(\w+)"/g;
	cmp_ok(max(values %told), '<=', 1 + (time() - $begun) / 60, 'the log is told of each once in a minute');
	$node->stop;
};

#
# With one worker for executors, and timers that stay: executors of several databases take turns.
#
group turns_of_executors => sub {
	set_up('rest_executors', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\ndelay_wheel.timer_idle_timeout = -1\n");
	sql('CREATE DATABASE other TEMPLATE postgres');
	sql(q{SELECT count(delay_schedule('0', 'SELECT pg_sleep(0.1)')) FROM generate_series(1, 10000)});
	sql(q{SELECT plan('waits', '0')}, 'other');
	has_run('waits', 'a backlog keeps a worker from no other database', 'other');
	sql(q{SELECT delay_every('tick', '300 ms', 'SELECT 1')}, 'other');
	my $left = sql('SELECT count(*) FROM delay_wheel_data.task');
	wait_for($node, "SELECT count(*) < $left - 20 FROM delay_wheel_data.task", 'the other database has its turns');
	$node->stop;
};

#
# The same, where each has but a short task now and then: its executor is neither busy nor idle for long.
#
group short_tasks => sub {
	set_up('rest_short', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\ndelay_wheel.timer_idle_timeout = -1\ndelay_wheel.executor_idle_timeout = 1h\n");
	sql('CREATE DATABASE other TEMPLATE postgres');
	sql(q{SELECT delay_every('tick', '500 ms', 'INSERT INTO ran VALUES (''tick'')')});
	wait_for($node, q{SELECT count(*) > 2 FROM ran}, 'a short task runs now and then');
	sql(q{SELECT plan('waits', '0')}, 'other');
	has_run('waits', 'it keeps the worker from no other database', 'other');
	sql('TRUNCATE ran');
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, 'and goes on');
	$node->stop;
};

#
# With two workers for timers, one for executors, and tasks that take their time: a timer that has its turn
# also has an executor.
#
group many => sub {
	set_up('rest_many', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\n");
	sql("CREATE DATABASE db$_ TEMPLATE postgres") for 1 .. 2;
	sql(q{SELECT count(delay_schedule('0', 'INSERT INTO ran SELECT ''long'' FROM pg_sleep(2)')) FROM generate_series(1, 1000)}, $_) for qw(postgres db1 db2);
	for my $round (1 .. 2)
	{
		wait_for($node, q{SELECT count(*) > 0 FROM ran}, "$_: tasks run, $round", 120, db => $_) for qw(postgres db1 db2);
		sql('TRUNCATE ran', $_) for qw(postgres db1 db2);
	}
	$node->stop('immediate');
};

#
# A timer whose owner waits for an executor is not the one that ends, however long it has run: it has its turn first.
#
group spared => sub {
	set_up('rest_spared', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\n");
	sql("CREATE DATABASE db$_ TEMPLATE postgres") for 1 .. 2;
	rests("the timer of $_ rests", $_) for qw(db2 postgres);
	sql(q{SELECT delay_every('tick', '500 ms', 'INSERT INTO ran VALUES (''tick'')')}, 'db1');
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, 'a database has timer and executor', 60, db => 'db1');
	sql(q{SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task of another one has the executor now', 60, expected => 1);
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE ready > 0}, 'so the first one waits', 60, db => 'db1', expected => 'blocked');
	sql('TRUNCATE ran', 'db1');
	sql(q{SELECT plan('third', '0')}, 'db2');
	has_run('third', 'a third one has its turn', 'db2');
	is(sql('SELECT count(*) > 0 FROM ran', 'db1'), 't', 'after the one that has waited had its turn');
	$node->stop('immediate');
};

#
# One long task holds the worker that timers leave to executors: then there is one timer less.
#
group hogged => sub {
	set_up('rest_hogged', conf => "max_worker_processes = 5\nmax_logical_replication_workers = 0\n");
	my @all = map { "db$_" } 1 .. 4;
	sql("CREATE DATABASE $_ TEMPLATE postgres") for @all;
	sql(q{SELECT delay_every('tick', '500 ms', 'INSERT INTO ran VALUES (''tick'')')}, $_) for @all;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "$_: its tasks run", 60, db => $_) for @all;
	sql(q{SELECT delay_schedule('0', 'SELECT pg_sleep(600)')}, 'db1');
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task runs', 60, db => 'db1', expected => 1);
	for my $round (1 .. 2)
	{
		sql('TRUNCATE ran', $_) for @all[1 .. 3];
		wait_for($node, q{SELECT count(*) > 0 FROM ran}, "beside it tasks of $_ run, $round", 60, db => $_) for @all[1 .. 3];
	}
	$node->stop('immediate');
};

#
# One whose only executor has a long task lacks another one for its other tasks, as those do that have none.
#
group beside_long => sub {
	set_up('rest_beside', conf => "max_worker_processes = 6\nmax_logical_replication_workers = 0\ndelay_wheel.timer_idle_timeout = -1\n");
	sql("CREATE DATABASE db$_ TEMPLATE postgres") for 1 .. 2;
	my $long = sql(q{SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task runs', 60, expected => 1);
	sql(q{SELECT count(delay_schedule('0', 'INSERT INTO ran SELECT ''x'' FROM pg_sleep(0.1)')) FROM generate_series(1, 10000)}, "db$_") for 1 .. 2;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "db$_ has the other worker", 60, db => "db$_") for 1 .. 2;
	sql(q{SELECT plan('beside', '0')});
	has_run('beside', 'a task beside the long one has its turn');
	sql('TRUNCATE ran', "db$_") for 1 .. 2;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "and then db$_ again", 60, db => "db$_") for 1 .. 2;
	# the long task ends while others wait: its executor goes on with those, and no other one is lacking
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'the second executor has left', 60, expected => 1);
	sql("SELECT plan('after', '0')");
	sql(q{SELECT count(delay_schedule('0', 'SELECT pg_sleep(0.05)')) FROM generate_series(1, 1000)});
	wait_for($node, q{SELECT reason FROM delay_wheel.lanes WHERE ready > 0}, 'others wait', 60, expected => 'no background worker is free');
	sql("SELECT delay_cancel($long, stop_running => true)");
	has_run('after', 'the executor goes on when the long one ends');
	is(sql(q{SELECT reason IS NULL FROM delay_wheel.lanes WHERE ready > 0}), 't', 'and no other one is lacking');
	$node->stop('immediate');
};

#
# With one worker for executors: two roles that always have something keep no other database from its turn.
#
group two_roles => sub {
	set_up('rest_two_roles', conf => "max_worker_processes = 3\nmax_logical_replication_workers = 0\n");
	sql("CREATE ROLE $_ LOGIN; SELECT delay_wheel.allow('$_')") for qw(a b);
	sql('CREATE DATABASE other TEMPLATE postgres');
	rests('another database', 'other');
	sql("SET SESSION AUTHORIZATION $_; SELECT count(delay_schedule('0', 'SELECT pg_sleep(0.1)')) FROM generate_series(1, 10000)") for qw(a b);
	wait_for($node, q{SELECT count(*) > 0 FROM delay_wheel.lanes WHERE state = 'blocked'}, 'one of two roles waits for the other');
	sql(q{SELECT plan('waits', '0')}, 'other');
	has_run('waits', 'another database has its turn', 'other');
	$node->stop('immediate');
};

#
# With one worker for executors: a sweeper that has much to do makes way after its turn.
#
group sweeping => sub {
	set_up('rest_sweeping', conf => "max_worker_processes = 3\nmax_logical_replication_workers = 0\n");
	sql(q{SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 3000000)});
	sql(q{SELECT delay_cancel_all(due_from => '-infinity')});
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper'}, 'a sweeper removes what was cancelled', 60, expected => 1);
	sql(q{SELECT plan('waits', '0')});
	has_run('waits', 'a task that is due has its turn');
	is(sql('SELECT count(*) > 0 FROM delay_wheel_data.task'), 't', 'before all is removed');
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'which goes on', 300, expected => 0);
	$node->stop;
};

#
# A database that cannot be looked into, since there is no place for it, keeps none of the others from its turn.
#
group unplaced => sub {
	set_up('rest_unplaced', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\ndelay_wheel.max_databases = 4\n");
	my @all = map { "db$_" } 1 .. 3;
	sql("CREATE DATABASE $_ TEMPLATE postgres") for @all;
	sql(q{SELECT count(delay_schedule('0', 'INSERT INTO ran SELECT ''x'' FROM pg_sleep(0.3)')) FROM generate_series(1, 10000)}, $_) for @all;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "$_: its tasks run", 60, db => $_) for @all;
	sql('CREATE DATABASE unplaced TEMPLATE template0');
	for my $round (1 .. 2)
	{
		sql('TRUNCATE ran', $_) for @all;
		wait_for($node, q{SELECT count(*) > 0 FROM ran}, "beside one without a place: tasks of $_ run, $round", 120, db => $_) for @all;
	}
	$node->stop('immediate');
};

#
# A timer that is stopped has a worker for as long as it is. The others take turns with what is left.
#
group stopped => sub {
	set_up('rest_stopped', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\n");
	sql("CREATE DATABASE db$_ TEMPLATE postgres") for 1 .. 2;
	my @all = qw(postgres db1 db2);
	sql(q{SELECT delay_every('tick', '500 ms', 'INSERT INTO ran VALUES (''tick'')')}, $_) for @all;
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, "$_: its tasks run", 60, db => $_) for @all;
	my ($stopped, $timer) = split /\|/, sql(q{SELECT datname, pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' ORDER BY backend_start DESC LIMIT 1});
	kill('STOP', $timer) or die "cannot stop $timer: $!";
	my @others = grep { $_ ne $stopped } @all;
	for my $round (1 .. 3)
	{
		sql('TRUNCATE ran', $_) for @others;
		wait_for($node, q{SELECT count(*) > 0 FROM ran}, "beside one that is stopped: tasks of $_ run, $round", 60, db => $_) for @others;
	}
	kill('CONT', $timer);
	sql('TRUNCATE ran', $stopped);
	wait_for($node, q{SELECT count(*) > 0 FROM ran}, 'and those of the stopped one when it goes on', 60, db => $stopped);
	$node->stop('immediate');
};

#
# The one that has waited longest for the worker of executors does not answer: the next one has it.
#
group silent => sub {
	set_up('rest_silent', conf => "max_worker_processes = 4\nmax_logical_replication_workers = 0\ndelay_wheel.timer_idle_timeout = -1\n");
	sql('CREATE ROLE a LOGIN; SELECT delay_wheel.allow(\'a\')');
	sql('CREATE DATABASE other TEMPLATE postgres');
	wait_for($node, 'SELECT state()', 'another database has its timer', 60, db => 'other', expected => 'running');
	my $long = sql(q{SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task has the worker', 60, expected => 1);
	sql(q{SELECT plan('first', '0')}, 'other');
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE ready > 0}, 'another database waits for it', 60, db => 'other', expected => 'blocked');
	is(sql(q{SELECT retry_at IS NULL FROM delay_wheel.lanes WHERE ready > 0}, 'other'), 't', 'until it is its turn');
	sql(q{SET SESSION AUTHORIZATION a; SELECT plan('second', '0')});
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE owner = 'a'}, 'another role waits, too', 60, expected => 'blocked');
	my $timer = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'other'});
	kill('STOP', $timer) or die "cannot stop $timer: $!";
	sql("SELECT delay_cancel($long, stop_running => true)");
	has_run('second', 'a timer that does not answer keeps the worker from nobody');
	kill('CONT', $timer);
	has_run('first', 'when it answers it has its turn', 'other');

	# one whose tasks are paused meanwhile waits anew
	sql('TRUNCATE ran', $_) for qw(postgres other);
	$long = sql(q{SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a long task has the worker again', 60, expected => 1);
	sql(q{SELECT plan('first', '0')}, 'other');
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE ready > 0}, 'another database waits for it', 60, db => 'other', expected => 'blocked');
	sql(q{SELECT delay_pause_all()}, 'other');
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE ready > 0}, 'and is paused', 60, db => 'other', expected => 'paused');
	sql(q{SET SESSION AUTHORIZATION a; SELECT plan('second', '0')});
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE owner = 'a'}, 'another role waits, too', 60, expected => 'blocked');
	sql(q{SELECT delay_resume_all()}, 'other');
	wait_for($node, q{SELECT state FROM delay_wheel.lanes WHERE ready > 0}, 'it goes on, and waits', 60, db => 'other', expected => 'blocked');
	sql("SELECT delay_cancel($long, stop_running => true)");
	has_run('second', 'who has waited all the time comes first');
	has_run('first', 'then who was paused', 'other');
	my $second = sql(q{SELECT at FROM ran WHERE name = 'second'});
	is(sql("SELECT at > '$second' FROM ran WHERE name = 'first'", 'other'), 't', 'in this order');
	$node->stop;
};

#
# With one worker for timers: messages that nobody receives do not keep it from other databases, and can
# be received all the same.
#
group unread => sub {
	my $held;

	# A task of the other database that has the worker until it is let go.
	my $occupy = sub {
		$held = $node->background_psql('other');
		$held->query_safe('SELECT pg_advisory_lock(1)');
		sql(q{SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock(1)')}, 'other');
		wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'a task of another database runs', 60, db => 'other', expected => 1);
		wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}, 'the timer has given way', 60, db => 'other', expected => 'resting');
	};
	my $let_go = sub {
		$held->quit;
		wait_for($node, q{SELECT count(*) FROM delay_wheel.tasks}, 'the task ends', 60, db => 'other', expected => 0);
	};
	my $receive = q{SELECT count(*) FROM delay_receive('mail', %d, autocommit => true)};

	set_up('rest_unread', conf => "max_worker_processes = 3\nmax_logical_replication_workers = 0\n");
	sql('CREATE DATABASE other TEMPLATE postgres');
	rests('another database', 'other');
	sql(q{SELECT delay_wheel.create_queue('mail', external => true)});
	sql(q{SELECT count(delay_send('mail', to_json(i)::jsonb)) FROM generate_series(1, 4) i});
	wait_for($node, q{SELECT state || ' ' || ready FROM delay_wheel.status WHERE database = 'postgres'}, 'messages wait', 60, expected => 'running 4');
	$occupy->();
	is(sql(q{SELECT ready FROM delay_wheel.status WHERE database = 'postgres'}), 4, 'messages are there');
	is(sql(q{SELECT state FROM delay_wheel.lanes WHERE queue = 'mail'}), 'unreceived', 'and said not to be received');
	is(sql(q{SELECT string_agg(payload::text, ' ' ORDER BY id) FROM delay_receive('mail', 2, autocommit => true)}), '1 2', 'they can be received without a timer');
	is(sql(q{BEGIN; SELECT count(*) FROM delay_receive('mail'); ROLLBACK}), 1, 'one is put back');
	sql(q{SELECT delay_send('mail', '5')});
	my $waiting = $node->background_psql('postgres');
	$let_go->();
	wait_for($node, q{SELECT ready FROM delay_wheel.status WHERE database = 'postgres'}, 'when the worker is free, these are there, too', 60, expected => 3);
	wait_for($node, q{SELECT string_agg(payload::text, ' ' ORDER BY id) FROM delay_receive('mail', 9, autocommit => true)}, 'and can be received', 60, expected => '3 4 5');

	#
	# A session that waits.
	#
	$waiting->query_until(qr/waits/, "\\echo waits\nCALL delay_await('mail', '120 s');\n\\echo answered\n");
	wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CALL delay_await%' AND state = 'active'}, 'a session waits');
	$occupy->();
	sql(q{SELECT delay_send('mail', '6')});
	$let_go->();
	ok($waiting->query_until(qr/answered/, ''), 'it is told of a message');
	$waiting->quit;

	#
	# Many: more than are left in memory.
	#
	sql(q{SELECT count(delay_send('mail', '7')) FROM generate_series(1, 5000)});
	wait_for($node, q{SELECT ready FROM delay_wheel.status WHERE database = 'postgres'}, 'many wait', 60, expected => 5001);
	$occupy->();
	cmp_ok(sql(q{SELECT ready FROM delay_wheel.status WHERE database = 'postgres'}), '<', 3000, 'some of them are in memory');
	my $received = 0;
	while ((my $n = sql(q{SELECT count(*) FROM delay_lease('mail', 100, '1 h')})) > 0)
	{
		$received += $n;
	}
	note("$received were received without a timer");
	cmp_ok($received, '>', 0, 'those can be received');
	$let_go->();
	ok(wait_until(120, sub { ($received += sql(q{SELECT count(*) FROM delay_lease('mail', 1000, '1 h')})) >= 5001 }), 'then all others');
	is($received, 5001, 'each once');

	#
	# Ends of processes.
	#
	sql(q{SELECT count(delay_send('mail', '8')) FROM generate_series(1, 3)});
	wait_for($node, q{SELECT ready FROM delay_wheel.status WHERE database = 'postgres'}, 'messages wait', 60, expected => 3);
	$occupy->();
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'});
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'}, 'another launcher', 60, expected => 1);
	is(sql(sprintf($receive, 1)), 1, 'one is received');
	$let_go->();
	wait_for($node, q{SELECT state || ' ' || ready FROM delay_wheel.status WHERE database = 'postgres'}, 'a timer has read the others', 60, expected => 'running 2');
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
	wait_for($node, sprintf($receive, 1), 'one is received when the timer was ended', 60, expected => 1);
	$occupy->();
	$node->stop('immediate');
	$node->start;
	wait_for($node, sprintf($receive, 1), 'the last one after a crash', 60, expected => 1);
	$held->quit;
	$node->stop;
};

done_testing();
