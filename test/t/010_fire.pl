# Exactly once under fire: several clients schedule, cancel and reschedule
# tasks, some rolling back, while processes of all kinds are terminated and
# killed and the server is stopped in immediate mode.  Each client records, in
# the same transaction, what must be true in the end; so whatever was lost
# with a crash, the record was lost with it.
#
#   DW_FIRE_SECONDS   how long (50; 600 if DW_LONG)
#   DW_SEED           to repeat a course of events, as far as that is possible

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{DW_FIRE_SECONDS} // (long_tests() ? 600 : 50);
my $seed = $ENV{DW_SEED} // int(rand(1_000_000_000));
srand($seed);
note("seed $seed");

my $node = new_node('fire', conf => q{
restart_after_crash = on
max_prepared_transactions = 100
max_connections = 40
log_min_messages = log
delay_wheel.executor_idle_timeout = 2s
});

$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN;
	SELECT delay_wheel.allow('alice');
	CREATE SEQUENCE n_seq;
	CREATE TABLE expected (n bigint PRIMARY KEY, id bigint, due timestamptz, cancelled boolean DEFAULT false, owner name DEFAULT current_user);
	CREATE INDEX ON expected (due);
	CREATE TABLE effects (n bigint, id bigint, at timestamptz, clock timestamptz);
	CREATE INDEX ON effects (n);
	CREATE TABLE odd (what text, n bigint, id bigint);
	GRANT ALL ON n_seq, expected, effects, odd TO alice;

	-- some take a while, so that there is somebody to be hit
	CREATE FUNCTION schedule(tasks int, longest float8) RETURNS void LANGUAGE sql AS $$
		INSERT INTO expected (n, id, due)
		SELECT n, delay_schedule(delay, 'INSERT INTO effects SELECT $1, current_setting(''delay_wheel.task_id'')::bigint, now(), clock_timestamp(); SELECT pg_sleep($2)',
								 n, CASE WHEN random() < 0.01 THEN random() * 0.1 ELSE 0 END), now() + delay
		FROM (SELECT nextval('n_seq') AS n, make_interval(secs => (random() * longest - 0.2)) AS delay
			  FROM generate_series(1, tasks) OFFSET 0) x
	$$;

	-- one's own, or anybody's for the superuser; mostly about to be due
	CREATE FUNCTION recent() RETURNS expected LANGUAGE sql AS $$
		SELECT x FROM expected x
		WHERE due > (SELECT now() + make_interval(secs => random() * 1.5 - 0.3))
			  AND NOT cancelled AND (owner = current_user OR current_user <> 'alice')
		ORDER BY due LIMIT 1
	$$;

	-- what a task is that is said to be gone: done, cancelled, or failed
	CREATE FUNCTION check_gone(x expected, what text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF NOT EXISTS (SELECT FROM effects e WHERE e.n = x.n) AND
		   NOT EXISTS (SELECT FROM expected e WHERE e.n = x.n AND cancelled) AND
		   NOT EXISTS (SELECT FROM delay_wheel.failed f WHERE f.id = x.id) THEN
			INSERT INTO odd VALUES (what, x.n, x.id);
		END IF;
	END $$;

	CREATE FUNCTION cancel() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		x expected := recent();
		answer text;
	BEGIN
		IF x.id IS NULL THEN RETURN; END IF;
		answer := delay_cancel(x.id);
		IF answer = 'cancelled' THEN
			UPDATE expected SET cancelled = true WHERE n = x.n;
		ELSIF answer = 'gone' THEN
			PERFORM check_gone(x, 'cancel says gone');
		END IF;
	END $$;

	CREATE FUNCTION reschedule(longest float8) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		x expected := recent();
		delay interval := make_interval(secs => (random() * longest - 0.2));
	BEGIN
		IF x.id IS NULL THEN RETURN; END IF;
		IF delay_reschedule(x.id, delay) = 'moved' THEN
			UPDATE expected SET due = now() + delay WHERE n = x.n;
		END IF;
	END $$;

	CREATE FUNCTION caught() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM schedule(1, 3);
		BEGIN
			PERFORM schedule(2, 3);
			PERFORM cancel();
			BEGIN
				PERFORM schedule(1, 3);
				PERFORM reschedule(2);
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
			PERFORM 1 / (random() < 0.5)::int;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		PERFORM schedule(1, 3);
	END $$;
});

#
# Clients.
#
my %scripts = (
	plain => [ 20, 'SELECT schedule(10, 4);' ],
	far => [ 2, 'SELECT schedule(10, 15);' ],
	bulk => [ 1, 'SELECT schedule(1500, 6);' ],
	rollback => [ 8, 'BEGIN; SELECT schedule(5, 4); SELECT cancel(); SELECT reschedule(2); ROLLBACK;' ],
	savepoint => [ 8, q{
		BEGIN;
		SELECT schedule(2, 3);
		SAVEPOINT a; SELECT schedule(3, 3); SELECT cancel(); SELECT reschedule(3);
		SAVEPOINT b; SELECT schedule(1, 3); RELEASE b;
		ROLLBACK TO a; SELECT schedule(2, 3); SAVEPOINT c; SELECT cancel(); SELECT schedule(1, 3); RELEASE c;
		COMMIT; } ],
	caught => [ 8, 'SELECT caught();' ],
	cancel => [ 8, 'SELECT cancel();' ],
	reschedule => [ 8, 'SELECT reschedule(4);' ],
	hesitant => [ 4, "\\set end random(0, 1)\nBEGIN; SELECT cancel(); SELECT reschedule(1); SELECT pg_sleep(random());\n"
		. "\\if :end\nCOMMIT;\n\\else\nROLLBACK;\n\\endif\n" ],
	prepared => [ 2, "\\set gid random(1, 1000000000)\n"
		. "BEGIN; SELECT schedule(3, 2); SELECT cancel(); SELECT reschedule(1); PREPARE TRANSACTION ':gid';" ],
);
my @script_args;
for my $name (sort keys %scripts)
{
	my ($weight, $text) = @{ $scripts{$name} };
	my $file = $node->basedir . "/$name.sql";

	append_to_file($file, "$text\n");
	push @script_args, '-f', "$file\@$weight";
}

my $stop_file = $node->basedir . '/stop';
my $pause_file = $node->basedir . '/pause';
my @clients;
for my $i (0 .. 2)
{
	my $user = $i == 2 ? 'alice' : (getpwuid($>))[0];
	my $log = "$PostgreSQL::Test::Utils::log_path/010_fire_pgbench_$i.log";
	# it gives up when the connection is lost; names must be new ones then
	my $loop = 'seed=$1; pause=$2; shift 2; while [ ! -e "$0" ]; do '
	  . 'if [ ! -e "$pause" ]; then seed=$((seed + 1)); "$@" --random-seed=$seed postgres; fi; sleep 0.2; done';
	my @command = ('pgbench', '--no-vacuum', '--client=2', '--time=4', '--rate=30',
		"--username=$user", @script_args, '--host=' . $node->host, '--port=' . $node->port);
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		setpgrp;
		open(STDOUT, '>>', $log);
		open(STDERR, '>&', \*STDOUT);
		exec('sh', '-c', $loop, $stop_file, $seed + 1_000_000 * $i, $pause_file, @command) or POSIX::_exit(1);
	}
	push @clients, $pid;
}

END
{
	my $status = $?;

	kill('TERM', map { -$_ } @clients);
	$? = $status;
}

#
# Fire.
#
my %happened;

# The server may be down, so this asks the system.
sub processes
{
	my ($what) = @_;
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my @pids;

	for my $line (split /\n/, `ps -o pid=,args= --ppid $postmaster`)
	{
		push @pids, $1 if $line =~ /^\s*(\d+) postgres: .*(?:$what)/;
	}
	return @pids;
}

sub hit
{
	my ($signal, $what, $all) = @_;
	my @pids = eval { processes($what) };

	return unless @pids;
	@pids = ($pids[ rand @pids ]) unless $all;
	$happened{"$signal $what"} += kill($signal, @pids);
}

sub random_of { return $_[ rand @_ ]; }

sub restart
{
	my ($mode) = @_;

	$node->stop($mode, fail_ok => 1);
	# later lines win
	$node->append_conf('postgresql.conf', sprintf(q{
delay_wheel.ring_memory = %s
delay_wheel.inbox_size = %d
delay_wheel.slots = %d
delay_wheel.turns_ahead = %d
delay_wheel.max_executors = %d
}, random_of('16kB', '64kB', '1MB', '32MB'), random_of(1, 8, 1024), random_of(3, 60, 3600),
		random_of(1, 2), random_of(3, 4, 6)));
	$node->start(fail_ok => 1);
	$happened{"stop $mode"}++;
}

# Ends what the clients have left prepared, one way or the other.
sub end_prepared
{
	my ($ret, $out) = try_psql($node, 'postgres', q{SELECT gid FROM pg_prepared_xacts WHERE prepared < now() - interval '0.5 s'});

	return if $ret != 0;
	for my $gid (split /\n/, $out)
	{
		my $how = random_of('COMMIT', 'ROLLBACK');

		($ret) = try_psql($node, 'postgres', "$how PREPARED '$gid'");
		$happened{lc "$how prepared"}++ if $ret == 0;
	}
}

my %fire = (
	'one executor' => sub { hit('TERM', 'delay_wheel executor', 0) },
	'all executors' => sub { hit('TERM', 'delay_wheel executor', 1) },
	'timer' => sub { hit('TERM', 'delay_wheel timer', 0) },
	'launcher' => sub { hit('TERM', 'delay_wheel launcher', 0) },
	'all' => sub { hit('TERM', 'delay_wheel ', 1) },
	'cancel' => sub { hit('INT', 'delay_wheel ', 1) },
	'terminate client' => sub { hit('TERM', 'alice|\[local\]', 0) },
	'kill executor' => sub { hit('KILL', 'delay_wheel executor', 0) },
	'kill timer' => sub { hit('KILL', 'delay_wheel timer', 0) },
	'kill launcher' => sub { hit('KILL', 'delay_wheel launcher', 0) },
	'kill client' => sub { hit('KILL', 'alice|\[local\]', 0) },
	'immediate' => sub { restart('immediate') },
	'fast' => sub { restart('fast') });

# A new timer, or a new server, reads the table and so finds what was lost
# before; so each kind of fire has a time of its own, and what is overdue must
# run after it without such help.
my @rounds = (
	[ 'executors', 'one executor', 'one executor', 'all executors', 'cancel' ],
	[ 'clients', 'terminate client', 'cancel' ],
	[ 'timer', 'timer', 'one executor' ],
	[ 'launcher', 'launcher', 'one executor', 'all executors' ],
	[ 'kills', 'kill executor', 'kill executor', 'kill timer', 'kill launcher', 'kill client' ],
	[ 'restarts', 'immediate', 'immediate', 'fast', 'one executor' ],
	[ 'everything', sort keys %fire ]);

for my $round (@rounds)
{
	my ($what, @kinds) = @$round;
	my $end = time() + $seconds / @rounds;

	while (time() < $end)
	{
		sleep(0.1 + rand(1));
		$fire{ random_of(@kinds) }->();
		end_prepared() if rand() < 0.5;
	}
	my $overdue;
	my $begun = time();
	ok( wait_until(
			180,
			sub {
				# a machine on which the clients schedule more than can be run has to catch up
				append_to_file($pause_file, '') if time() - $begun > 15 && !-e $pause_file;
				end_prepared();
				(undef, $overdue) = try_psql($node, 'postgres',
					q{SELECT count(*) FROM delay_wheel_data.task WHERE due < now() - interval '3 s'});
				return ($overdue // '') eq '0';
			}),
		"$what: nothing stays overdue")
	  or diag('overdue: ' . ($overdue // 'no answer'));
	unlink $pause_file;
}
append_to_file($stop_file, '');
# some may wait for what others have left prepared
wait_until(
	120,
	sub {
		end_prepared();
		@clients = grep { waitpid($_, WNOHANG) == 0 } @clients;
		return !@clients;
	});
is(scalar(@clients), 0, 'the clients end');
note(join(', ', map { "$_: $happened{$_}" } sort keys %happened));

#
# What is left runs, in peace.
#
ok(wait_until(60, sub { (try_psql($node, 'postgres', 'SELECT 1'))[0] == 0 }), 'the server is up')
  or restart('immediate');
wait_until(60, sub { end_prepared(); $node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts') == 0 });
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'all that was left has run', 180, expected => 0)
  or diag($node->safe_psql('postgres', q{
	SELECT * FROM delay_wheel.status;
	SELECT id, due, clock_timestamp() - due, owner FROM delay_wheel_data.task ORDER BY due LIMIT 20;
	SELECT * FROM delay_wheel_internal.get_running();
  }));

sub count_is_zero
{
	my ($what, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $rows = $node->safe_psql('postgres', "SELECT * FROM ($sql) x LIMIT 10");

	is($rows, '', $what);
}

my $counts = $node->safe_psql('postgres', q{
	SELECT (SELECT count(*) FROM expected), (SELECT count(*) FROM expected WHERE cancelled),
		   (SELECT count(*) FROM effects), (SELECT count(*) FROM delay_wheel.failed), (SELECT last_value FROM n_seq)});
note(sprintf('committed %d, cancelled %d, effects %d, failed %d, of %d tries', split /\|/, $counts));
my ($committed, $cancelled, $effects, $failed) = split /\|/, $counts;
cmp_ok($effects, '>', 100 * $seconds, 'a fair number of tasks ran');
cmp_ok($cancelled, '>', 0, 'some were cancelled');
# a cancel of a running task is an error of the task like any other
is($effects, $committed - $cancelled - $failed, 'effects = committed - cancelled - failed');

count_is_zero('nothing is lost', q{
	SELECT x.* FROM expected x LEFT JOIN effects e USING (n)
	WHERE e.n IS NULL AND NOT x.cancelled AND x.id NOT IN (SELECT id FROM delay_wheel.failed)});
count_is_zero('nothing ran twice', q{SELECT n, count(*) FROM effects GROUP BY n HAVING count(*) > 1});
count_is_zero('nothing ran that was rolled back or cancelled', q{
	SELECT e.* FROM effects e LEFT JOIN expected x USING (n) WHERE x.n IS NULL OR x.cancelled});
count_is_zero('nothing ran early, by its own now()', q{
	SELECT e.*, x.due FROM effects e JOIN expected x USING (n) WHERE e.at < x.due OR e.clock < x.due});
count_is_zero('each saw its own id', q{
	SELECT e.*, x.id AS x FROM effects e JOIN expected x USING (n) WHERE e.id IS DISTINCT FROM x.id});
count_is_zero('what was said to be gone was', q{SELECT * FROM odd});
count_is_zero('nothing failed but by a cancel', q{
	SELECT * FROM delay_wheel.failed WHERE sqlstate <> '57014' OR message NOT LIKE '%user request%'});
count_is_zero('nothing that failed has run', q{
	SELECT f.* FROM delay_wheel.failed f WHERE id IN (SELECT id FROM effects)
	UNION ALL SELECT f.* FROM delay_wheel.failed f WHERE id NOT IN (SELECT id FROM expected WHERE NOT cancelled)});
is($node->safe_psql('postgres', q{
		SELECT near, ready, running, memory_used FROM delay_wheel.status WHERE database = current_database()}),
	'0|0|0|0', 'memory is empty');

# a task now is as good as ever
$node->safe_psql('postgres', 'SELECT schedule(1, 0)');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'a task after it all runs', 60, expected => 0);

my $log = log_since($node, 0);
my @bad = grep { /PANIC|TRAP|delay_wheel \w+ (ERROR|FATAL)/ && !/terminating background worker/ } split /\n/, $log;
is(join("\n", @bad[0 .. ($#bad < 9 ? $#bad : 9)]), '', 'no error of a worker in the log');
# by the kills only
unlike($log, qr/terminated by signal (?!9)/, 'no crash of its own');

$node->stop;
done_testing();
