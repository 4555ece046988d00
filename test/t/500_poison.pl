# Tasks that crash the server, beside innocent ones: the former are set aside
# when they have crashed it three times, the latter never; stops that were ordered
# from outside, and crashes of others, blame nobody.
#
#   DW_STOPS     immediate stops (6; 100 if DW_LONG)
#   DW_CRASHES   poison tasks, each of which crashes the server three times (6; 36 if DW_LONG)

use strict;
use warnings;

use DelayWheel;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'needs the build with injection points' unless has_injection();
plan skip_all => 'sanitizers take its crashes for theirs' if $ENV{DW_SANITIZE};

my $poisons = $ENV{DW_CRASHES} // (long_tests() ? 36 : 6);
my $stops = $ENV{DW_STOPS} // (long_tests() ? 100 : 6);
my $limit = $ENV{DW_FAIL_FAST} ? 60 : 120;
my @dbs = qw(postgres other);
my @roles = qw(alice bob carol);
my $scheduled = 0;

my $node = new_node('poison', injection => 1, batches => 1,
	conf => "restart_after_crash = on\nfsync = off\nmax_worker_processes = 30\nlog_min_messages = log\n");
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('postgres', join ';', map { "CREATE ROLE $_ LOGIN" } @roles);
for my $db (@dbs)
{
	$node->safe_psql($db, 'CREATE EXTENSION IF NOT EXISTS delay_wheel');
	$node->safe_psql($db, q{
		GRANT INSERT ON delay_wheel.tasks TO PUBLIC;
		CREATE FUNCTION die(text) RETURNS void AS 'delay_wheel', 'dw_inject_die' LANGUAGE C STRICT;
		CREATE FUNCTION die_in_parallel(text) RETURNS bool AS 'delay_wheel', 'dw_inject_die' LANGUAGE C STRICT PARALLEL SAFE;
		CREATE TABLE done (name text, who text DEFAULT current_user, at timestamptz DEFAULT clock_timestamp());
		GRANT INSERT, SELECT ON done TO PUBLIC;
	});
}

my $data = $node->data_dir;

sub q_
{
	my ($sql, $db) = @_;
	return $node->safe_psql($db // 'postgres', $sql);
}

sub wait_up
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT true', $what // 'the server is back', $limit);
}

# Innocent tasks of all roles in both databases, due within some seconds, some of
# which take a while; with and without batches.
sub innocents
{
	my ($n, $over) = @_;
	for my $db (@dbs)
	{
		my $sql = '';
		for my $role (@roles)
		{
			$sql .= "SET ROLE $role; SELECT count(delay_schedule(g * interval '$over' / $n,
				'INSERT INTO done SELECT \$1 FROM pg_sleep(\$2)', 'i' || $scheduled + g, CASE g % 7 WHEN 0 THEN 0.2 ELSE 0 END))
				FROM generate_series(1, $n) g; RESET ROLE;";
		}
		q_($sql, $db);
	}
	$scheduled += $n;
	return;
}

# Each of them was run exactly once, and none has failed.
sub innocents_are_done
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $db (@dbs)
	{
		wait_for($node, q{SELECT count(*) FROM done WHERE name LIKE 'i%'}, "$what: innocent tasks are run in $db", $limit,
			expected => $scheduled * @roles, db => $db);
		is(q_(q{SELECT name, who, count(*) FROM done WHERE name LIKE 'i%' GROUP BY name, who HAVING count(*) > 1}, $db),
			'', "$what: none twice");
		is(q_(q{SELECT count(*) FROM delay_wheel.failed WHERE sql LIKE 'INSERT%'}, $db), 0, "$what: none has failed");
	}
	return;
}

# The file with the suspects, which is there while the server is down.
sub file { return -e "$data/delay_wheel.crashes" ? slurp_file("$data/delay_wheel.crashes") : ''; }

# The number of suspects in all databases.
my $suspects = q{SELECT sum(tasks) FROM delay_wheel.waiting WHERE state = 'suspected'};

# Nobody is suspected any more.
sub no_suspects
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, $suspects, "$what: nobody is suspected", $limit, expected => 0);
}

sub crashes_since
{
	my ($position) = @_;
	my @found = log_since($node, $position) =~ /all server processes terminated; reinitializing/g;
	return scalar @found;
}

#
# Poison of all kinds.
#
my @kinds = qw(segv exit quit kill _exit panic abort);
group kinds => sub {
	my $position = log_position($node);
	my @ids;

	innocents(40, '12 s');
	for my $i (1 .. $poisons)
	{
		my $kind = $kinds[ ($i - 1) % @kinds ];
		my $role = $roles[ $i % @roles ];
		my $db = $dbs[ $i % @dbs ];
		$kind = '3' if $kind eq 'exit';
		# a task of its own lane, now and then among others that share a transaction
		push @ids, [ $db, q_("SET ROLE $role; SELECT delay_schedule(interval '3 s' + interval '1 s' * ($i % 5), 'SELECT die(''$kind'')')", $db), $kind ];
	}
	for my $poison (@ids)
	{
		my ($db, $id, $kind) = @$poison;
		wait_for($node, "SELECT sqlstate, crashes FROM delay_wheel_data.failed_task WHERE id = $id",
			"a task that ends its process by $kind is set aside", $limit * 2, expected => 'DW004|3', db => $db);
	}
	# two may crash at the same time
	cmp_ok(crashes_since($position), '<=', 3 * $poisons, 'after three crashes each');
	innocents_are_done('beside poison');
	# one may stay that was set aside just when another crashed: its row is gone
	wait_for($node, 'SELECT count(*) FROM delay_wheel.tasks WHERE crashes > 0', "nobody in $_ is to be run again", $limit, expected => 0, db => $_)
		for @dbs;
};

#
# One of several that share a transaction: it is found, and the others have run.
#
group batch => sub {
	my $position = log_position($node);
	my $n = 300;

	my $id = q_(qq{
		BEGIN;
		SELECT FROM (SELECT count(delay_schedule('1 s', 'INSERT INTO done VALUES (\$1)', 'b' || g)) FROM generate_series(1, $n / 2) g) s WHERE count = 0;
		SELECT delay_schedule('1 s', 'SELECT die(''segv'')');
		SELECT FROM (SELECT count(delay_schedule('1 s', 'INSERT INTO done VALUES (\$1)', 'b' || g)) FROM generate_series($n / 2 + 1, $n) g) s WHERE count = 0;
		COMMIT});
	wait_for($node, q{SELECT count(*), count(DISTINCT name) FROM done WHERE name LIKE 'b%'}, 'neighbours of poison in a batch are run once',
		$limit, expected => "$n|$n");
	wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'and it is set aside', $limit, expected => 'DW004');
	is(crashes_since($position), 3, 'after three crashes');
	no_suspects('poison in a batch');
};

#
# What follows from the end of a task follows from this one, too.
#
group follow => sub {
	my $id = q_(q{SELECT delay_schedule_task(sql_text => 'SELECT die(''segv'')', delay => '1 s', max_attempts => 5,
		options => jsonb_build_object('on_failure', 'INSERT INTO done VALUES (''followed'')'))});
	wait_for($node, q{SELECT count(*) FROM done WHERE name = 'followed'}, 'on_failure is run of a task that is set aside', $limit, expected => 1);
	is(q_(qq{SELECT outcome, sqlstate FROM delay_wheel.history WHERE task = $id}), 'failed|DW004', 'and it is in the history');
	is(q_(qq{SELECT attempts, crashes FROM delay_wheel.failed WHERE id = $id}), '0|3', 'crashes are no attempts');
	no_suspects('with follow-up');

	# put back, it begins anew
	my $position = log_position($node);
	# the crash may come before the answer
	$node->psql('postgres', "SELECT delay_retry($id)");
	wait_for($node, qq{SELECT sqlstate, crashes FROM delay_wheel.failed WHERE id = $id}, 'put back, it is set aside again', $limit, expected => 'DW004|3');
	is(crashes_since($position), 3, 'after three more crashes');
};

#
# A server that was killed just when a task was set aside counts its crashes yet.
#
group stale => sub {
	my $id = q_(q{SELECT delay_schedule('0', 'INSERT INTO done SELECT ''stale'' WHERE 1 / (SELECT count(*) FROM done WHERE name = ''mended'') = 1')});
	wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'a task fails', $limit, expected => '22012');
	my $db = q_(q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
	my $now = q_(q{SELECT (extract(epoch FROM now() - '2000-01-01 00:00+00') * 1000000)::bigint});
	$node->stop;
	open(my $file, '>', "$data/delay_wheel.crashes") or die $!;
	print $file "delay_wheel crashes 1: database, task, crashes, when\n$db $id 3 $now\n";
	close $file;
	# a look in single-user mode is not a start
	my ($out, $err);
	ok(IPC::Run::run([ 'postgres', '--single', '-F', '-D', $data, 'postgres' ], '<', \'', '>', \$out, '2>', \$err), 'a single-user server begins and ends')
	  or diag($err);
	like(file(), qr/^$db $id 3 $now$/m, 'and leaves the file alone');
	$node->start;
	q_(q{INSERT INTO done VALUES ('mended')});
	q_("SELECT delay_retry($id)");
	wait_for($node, q{SELECT count(*) FROM done WHERE name = 'stale'}, 'put back, it is run all the same', $limit, expected => 1);
	no_suspects('stale');
};

#
# A recurring task is paused.
#
group recurring => sub {
	my $position = log_position($node);
	q_(q{SELECT delay_every('poison', '1 s', 'SELECT die(''segv'')')});
	wait_for($node, q{SELECT paused, last_outcome FROM delay_wheel.recurring WHERE name = 'poison'}, 'a recurring task is paused',
		$limit, expected => 't|failed');
	is(crashes_since($position), 3, 'after three crashes');
	like(log_since($node, $position), qr/delay_wheel recurring task "poison" is paused/, 'the log says so');
	is(q_(q{SELECT count(*) FROM delay_wheel.tasks}), 0, 'there is no next run');
	q_(q{SELECT delay_unschedule('poison')});
	no_suspects('recurring');

	# also if each run comes too late after the crash, and is left out
	$position = log_position($node);
	q_(q{SELECT delay_every('poison', '1 s', 'SELECT die(''segv'')', options => '{"skip_after": "100 ms"}')});
	wait_for($node, q{SELECT paused FROM delay_wheel.recurring WHERE name = 'poison'}, 'one whose runs are soon too late is paused', $limit);
	is(crashes_since($position), 3, 'after three crashes');
	q_(q{SELECT delay_unschedule('poison')});
	no_suspects('recurring, left out');

	# also if each run is lost
	$position = log_position($node);
	q_(q{SELECT delay_every('poison', '1 s', 'SELECT die(''kill'')', options => '{"mode": "at_most_once"}')});
	wait_for($node, q{SELECT paused FROM delay_wheel.recurring WHERE name = 'poison'}, 'one that runs at most once is paused', $limit * 2);
	is(crashes_since($position), 3, 'after three crashes');
	q_(q{SELECT delay_unschedule('poison')});
	no_suspects('recurring, at most once');
};

#
# What crashes is a parallel worker of the task.
#
group parallel => sub {
	my $position = log_position($node);
	my $setting = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	# dies for each row
	q_(q{INSERT INTO done VALUES ('row')});
	my $id = q_(qq{SELECT delay_schedule('1 s', 'SET $setting = on; SELECT count(*) FROM done WHERE die_in_parallel(''segv'')')});
	wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'a task whose parallel worker crashes is set aside', $limit, expected => 'DW004');
	is(crashes_since($position), 3, 'after three crashes');
	like(log_since($node, $position), qr/worker "parallel worker.*" \(PID \d+\) was terminated by signal 11/, 'the log names the parallel worker');

	# a worker that is told to quit is innocent, from its first moment on
	$position = log_position($node);
	for my $point (qw(helper-watches helper-comes helper-is-there))
	{
		attach($node, $point, 'wait');
		q_(qq{SELECT delay_schedule('0', 'SET $setting = on; SELECT count(*) FROM done; INSERT INTO done VALUES (''$point'')')});
		wait_until_waiting($node, $point);
		$node->psql('postgres', q{SELECT die('kill')});
		wait_up();
		wait_for($node, "SELECT count(*) FROM done WHERE name = '$point'", 'a task is run whose worker was told to quit', $limit, expected => 1);
	}
	unlike(log_since($node, $position), qr/the process of delay_wheel task/, 'and is not suspected');
};

#
# A suspect that is innocent: its executor was killed.
#
sub kill_executor_of
{
	my ($id, $signal) = @_;
	my $pid = '';
	wait_until($limit, sub { (undef, $pid) = try_psql($node, 'postgres', "SELECT pid FROM delay_wheel.running WHERE task = $id");
		return ($pid // '') ne '' }) or die "task $id does not run";
	kill $signal // 'KILL', $pid;
	return;
}
group killed => sub {
	attach($node, 'run-before-sql', 'wait');
	my $id = q_(q{SELECT delay_schedule('0', 'INSERT INTO done VALUES (''killed'')')});
	wait_until_waiting($node, 'run-before-sql');
	kill_executor_of($id);
	wait_up();
	like(slurp_file($node->logfile), qr/the process of delay_wheel task $id of database "postgres" crashed \(crash 1 of 3\)/, 'a task whose executor was killed is suspected');
	wait_for($node, q{SELECT count(*) FROM done WHERE name = 'killed'}, 'it is run again', $limit, expected => 1);
	no_suspects('killed from outside');
};

# A suspect that is pending, and paused with all others.
sub paused_suspect
{
	my ($sql) = @_;
	attach($node, 'run-before-sql', 'wait');
	my $id = q_("SELECT delay_schedule('0', \$\$$sql\$\$)");
	wait_until_waiting($node, 'run-before-sql');
	q_('SELECT delay_wheel.pause_database()');
	kill_executor_of($id);
	wait_for($node, "SELECT crashes FROM delay_wheel.tasks WHERE id = $id", 'a task that is paused is suspected', $limit, expected => 1);
	return $id;
}

#
# One that is cancelled before it runs again.
#
group cancelled => sub {
	my $id = paused_suspect('SELECT 1');
	q_("SELECT delay_reschedule($id, '5 s')");
	q_('SELECT delay_wheel.resume_database()');
	wait_for($node, 'SELECT sum(near) FROM delay_wheel.lanes', 'its run is near', $limit, expected => 1);
	is(q_("SELECT delay_cancel($id)"), 'cancelled', 'and it is cancelled');
	is(q_($suspects), 1, 'still suspected');
	no_suspects('cancelled');
};

#
# An executor that has run other tasks leaves a suspect to a new one.
#
group fresh => sub {
	# without a pause, both would be in one batch
	for my $pause ('3 s', '0')
	{
		my $id = paused_suspect(q{INSERT INTO done VALUES ('tried', pg_backend_pid()::text)});
		q_(q{DELETE FROM done WHERE name IN ('first', 'tried')});
		q_(q{SELECT delay_schedule('0', $$INSERT INTO done VALUES ('first', pg_backend_pid()::text)$$)});
		q_("SELECT delay_reschedule($id, '$pause')");
		q_('SELECT delay_wheel.resume_database()');
		wait_for($node, q{SELECT count(*) FROM done WHERE name IN ('first', 'tried')}, "a task is run, and then a suspect, due in $pause", $limit, expected => 2);
		is(q_(q{SELECT count(DISTINCT who) FROM done WHERE name IN ('first', 'tried') AND who ~ '^[0-9]+$'}), 2, 'by another process');
		no_suspects('tried by a fresh process');
	}
};

#
# A crash of another process while a suspect runs again does not count, also if the
# suspect ignores the signal to quit.
#
group again => sub {
	for my $deaf (0, 1)
	{
		my $position = log_position($node);
		my $id = q_(sprintf(q{SELECT delay_schedule('0', '%sINSERT INTO done SELECT ''again%d'' FROM pg_sleep(CASE WHEN EXISTS (SELECT FROM done WHERE name = ''beside%2$d'') THEN 0 ELSE 60 END)')},
			$deaf ? q{SELECT die(''deaf''); } : '', $deaf));
		kill_executor_of($id);
		wait_up();
		wait_for($node, "SELECT crashes FROM delay_wheel.tasks WHERE id = $id", 'it is a suspect', $limit, expected => 1);
		wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $id", 'it runs again', $limit, expected => 1);
		q_(qq{SELECT delay_schedule('0', 'INSERT INTO done VALUES (''beside$deaf'')')});
		wait_for($node, "SELECT count(*) FROM done WHERE name = 'beside$deaf'", 'another task goes on beside it', $limit, expected => 1);
		# a crash of somebody else
		$node->psql('postgres', q{SELECT die('kill')});
		wait_up();
		wait_for($node, "SELECT count(*) FROM done WHERE name = 'again$deaf'", 'it comes to its end', $limit, expected => 1);
		unlike(log_since($node, $position), qr/task $id of database \S+ crashed \(crash 2/, 'a crash of another process did not count');
		no_suspects('innocent');
	}
};

#
# Crashes of others, and for want of disk, make nobody a suspect.
#
group others => sub {
	my $position = log_position($node);
	for my $i (1 .. 3)
	{
		innocents(20, '5 s');
		wait_for($node, q{SELECT count(*) > 0 FROM delay_wheel.running}, 'some run', $limit);
		$node->psql('postgres', sprintf(q{SELECT die('%s')}, qw(segv kill abort)[ $i % 3 ]));
		wait_up();
	}
	q_(q{SELECT delay_schedule('1 s', 'SELECT die(''full'') WHERE clock_timestamp() < $1; INSERT INTO done VALUES (''full'')', now() + interval '2.5 s')});
	wait_for($node, q{SELECT count(*) FROM done WHERE name = 'full'}, 'a task that met a full disk is tried again', $limit, expected => 1);
	innocents_are_done('beside crashes of others');
	unlike(log_since($node, $position), qr/the process of delay_wheel task/, 'nobody was suspected');
	is(q_(q{SELECT count(*) FROM delay_wheel.failed WHERE sql LIKE '%full%'}), 0, 'nor failed');
};

#
# Stops that are ordered.
#
group stops => sub {
	my $position = log_position($node);
	innocents(50, sprintf('%d s', 3 + $stops / 2));
	for my $i (1 .. $stops)
	{
		wait_until(2, sub { q_(q{SELECT count(*) FROM delay_wheel.running}) > 0 });
		$node->stop('immediate');
		$node->start;
	}
	innocents_are_done("after $stops immediate stops");
	unlike(log_since($node, $position), qr/the process of delay_wheel task/, 'nobody was suspected');
};

#
# A server that does not start again by itself.
#
group off => sub {
	$node->append_conf('postgresql.conf', "restart_after_crash = off\n");
	$node->reload;
	my $id = q_(q{SELECT delay_schedule('1 s', 'SELECT die(''segv'')')});
	for my $i (1 .. 3)
	{
		ok(wait_until($limit, sub { !-e "$data/postmaster.pid" }), "crash $i ends the server");
		$node->{_pid} = undef;
		like(file(), qr/^\d+ $id $i /m, 'and is remembered');
		# whoever starts it does not find it gone again
		$node->append_conf('postgresql.conf', "delay_wheel.enabled = off\n");
		$node->start;
		# a background worker that has just been forked is deaf to a reload
		wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}, 'the timer is there', $limit, expected => 'disabled');
		$node->append_conf('postgresql.conf', "delay_wheel.enabled = on\n");
		$node->reload;
	}
	wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'it is set aside all the same', $limit, expected => 'DW004');
	no_suspects('without restarts');

	# one that crashes at its claim, as a damaged row may, cannot be set aside
	$node->stop;
	$node->append_conf('postgresql.conf', "delay_wheel.enabled = off\n");
	$node->start;
	$id = q_(q{SELECT delay_schedule('0', 'SELECT 1')});
	for my $i (1 .. 4)
	{
		attach($node, 'claim-before-fetch', 'crash');
		wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'postgres'}, 'the timer is there again', $limit, expected => 'disabled');
		$node->append_conf('postgresql.conf', "delay_wheel.enabled = on\n");
		$node->reload;
		ok(wait_until($limit, sub { !-e "$data/postmaster.pid" }), "crash $i at a claim ends the server");
		$node->{_pid} = undef;
		like(file(), qr/^\d+ $id $i /m, 'and is charged');
		$node->append_conf('postgresql.conf', 'delay_wheel.enabled = ' . ($i < 4 ? 'off' : 'on') . "\n");
		$node->start;
	}
	ok(wait_until($limit, sub { slurp_file($node->logfile) =~ /task $id stays in delay_wheel_data\.task and is not run any more/ }), 'then it is not run any more');
	q_(q{SELECT delay_schedule('0', 'INSERT INTO done VALUES (''after'')')});
	wait_for($node, q{SELECT count(*) FROM done WHERE name = 'after'}, 'others are run', $limit, expected => 1);
	is(q_(q{SELECT id, crashes FROM delay_wheel.tasks}), "$id|4", 'its row is as it was');
};

$node->stop;
done_testing();
