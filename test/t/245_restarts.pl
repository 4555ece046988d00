# Stops of each kind with idle and busy workers; each worker terminated and
# cancelled, several times in a row; single-user mode, pg_upgrade's binary mode,
# and the library taken out while there are tasks.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# What the issue asks for is 2 s; the tests' limit allows for a busy machine.
my $back_within = 5;
my $in_a_row = 4;
# growing pauses between timers, if there were any, are shorter at first
my %in_a_row = (timer => 8);

my $node = new_node('restarts', conf => q{
delay_wheel.executor_idle_timeout = 1h
});
$node->safe_psql('postgres', q{
	CREATE TABLE effects (n int);
	CREATE TABLE gate (open boolean)});

sub schedule
{
	my ($sql, $delay) = @_;
	return $node->safe_psql('postgres', "SELECT delay_schedule('" . ($delay // 0) . "', \$\$$sql\$\$)");
}

sub effects
{
	my ($n, $count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effects WHERE n = $n", $what, 60, expected => $count);
}

sub running
{
	my ($count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel.running', $what, 60, expected => $count);
}

# One that goes on until somebody opens the gate; run again, it may end.
sub schedule_long
{
	my ($n) = @_;
	$node->safe_psql('postgres', 'TRUNCATE gate');
	return schedule("INSERT INTO effects VALUES ($n); SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM gate) THEN 0 ELSE 600 END)");
}

sub open_gate { return $node->safe_psql('postgres', 'INSERT INTO gate VALUES (true)'); }

#
# Stops.
#
my $n = 0;
for my $mode (qw(smart fast immediate))
{
	for my $workers (qw(idle busy))
	{
		my $task = ++$n;
		my $later = ++$n;
		my $began;

		schedule('SELECT 1');
		wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'},
			'there is an executor');
		running(0, 'it is idle');
		if ($workers eq 'busy')
		{
			schedule_long($task);
			running(1, 'it is busy');
			open_gate();
		}
		schedule("INSERT INTO effects VALUES ($later)", '1 s');
		$began = time();
		ok($node->stop($mode), "$mode stop with $workers workers");
		# that of a hanging one would be pg_ctl's 60 s
		cmp_ok(time() - $began, '<', 30, sprintf('does not hang: %.1f s', time() - $began));
		$node->start;
		effects($later, 1, 'what was due meanwhile runs after the start');
		effects($task, 1, 'so does, once, the task that was running') if $workers eq 'busy';
	}
}
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'nothing is left', 60, expected => 0);
is($node->safe_psql('postgres', 'SELECT count(*) FROM effects GROUP BY n HAVING count(*) > 1'), '', 'nothing ran twice');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'nothing failed');

#
# Terminate, several times in a row.  The time from there to the end of a task
# that is scheduled at once afterwards.
#
my $next = 1000;

sub back
{
	my ($what, $began) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $took;

	$next++;
	try_psql($node, 'postgres', "SELECT delay_schedule('0', 'INSERT INTO effects VALUES ($next)')");
	effects($next, 1, "$what: a task runs");
	$took = time() - $began;
	note(sprintf('%s: after %.2f s', $what, $took));
	cmp_ok($took, '<', $back_within, "$what: soon");
	return;
}

sub pids
{
	my ($kind) = @_;
	return split /\n/, (try_psql($node, 'postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel $kind'"))[1];
}

# Waits for such a process to be there, and ends or cancels it.
sub signal_worker
{
	my ($kind, $function) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @pids;
	my $began;

	wait_until(60, sub { @pids = pids($kind) });
	ok(@pids > 0, "there is: $kind");
	$began = time();
	$node->safe_psql('postgres', "SELECT $function($_)") for @pids;
	return $began;
}

for my $kind (qw(executor timer launcher %))
{
	for my $i (1 .. $in_a_row{$kind} // $in_a_row)
	{
		my $began = signal_worker($kind, 'pg_terminate_backend');
		back(($kind eq '%' ? 'all' : $kind) . " terminated, time $i", $began);
	}
}

# the launcher has no part in running tasks: it comes back by itself
{
	my $began = signal_worker('launcher', 'pg_terminate_backend');
	ok(wait_until(60, sub { pids('launcher') }), 'there is a launcher again');
	note(sprintf('launcher again after %.2f s', time() - $began));
	$began = time();
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION delay_wheel; CREATE TABLE effects (n int);
		SELECT delay_schedule($$0$$, $$INSERT INTO effects VALUES (1)$$)');
	wait_for($node, 'SELECT count(*) FROM effects', 'it serves a new database', 60, db => 'other', expected => 1);
}

# in the middle of a task, which then is the first one of each executor
schedule_long(2001);
for my $i (1 .. 6)
{
	my ($pid, $began);

	running(1, 'a task is running');
	$pid = $node->safe_psql('postgres', 'SELECT pid FROM delay_wheel.running');
	$began = signal_worker('executor', 'pg_terminate_backend');
	wait_for($node, "SELECT pid <> $pid FROM delay_wheel.running", 'it runs again');
	note(sprintf('again after %.2f s', time() - $began));
	cmp_ok(time() - $began, '<', $back_within, "executor terminated in its first task, time $i: soon");
}
open_gate();
signal_worker('executor', 'pg_terminate_backend');
effects(2001, 1, 'in the end it runs, once');

# a task that ends its own session is not run over and over
{
	my $id = schedule('INSERT INTO effects VALUES (2002); SELECT pg_terminate_backend(pg_backend_pid())');
	wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $id", 'a task that ends its own session has failed', 60, expected => 'DW005');
	like($node->safe_psql('postgres', 'SELECT last_problem FROM delay_wheel.status WHERE database = current_database()'),
		qr/an executor ended while it ran task $id/, 'the view says why');
	effects(2002, 0, 'it has no effect');
	back('after that', time());
}

#
# Cancel: a running task fails, nothing else happens.
#
schedule('SELECT 1');
running(0, 'executors are idle');
for my $kind (qw(launcher timer executor))
{
	my @before = pids($kind);
	my $position = log_position($node);

	for (1 .. $in_a_row)
	{
		back("$kind cancelled", signal_worker($kind, 'pg_cancel_backend'));
	}
	# there may be more executors than before
	my %after = map { $_ => 1 } pids($kind);
	is(scalar(grep { !$after{$_} } @before), 0, "$kind: goes on");
	unlike(log_since($node, $position), qr/delay_wheel $kind (?:ERROR|FATAL)/, "$kind: says nothing");
}
schedule('SELECT pg_sleep(600)');
running(1, 'a task is running');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM delay_wheel.running');
wait_for($node, q{SELECT sqlstate FROM delay_wheel.failed ORDER BY id DESC LIMIT 1}, 'cancelled, it has failed', 60, expected => '57014');
$node->stop;

#
# Single-user mode.
#
my $data = $node->data_dir;
my $bin = $node->config_data('--bindir');

sub single_user
{
	my ($sql) = @_;
	my ($stdout, $stderr);

	IPC::Run::run([ "$bin/postgres", '--single', '-D', $data, 'postgres' ], '<', \$sql, '>', \$stdout, '2>', \$stderr);
	return ($? >> 8, $stdout, $stderr);
}

my ($rc, $stdout, $stderr) = single_user(
	"SELECT delay_schedule('0', 'INSERT INTO effects VALUES (2003)')\n"
	  . "SELECT delay_cancel(delay_schedule('0', 'INSERT INTO effects VALUES (2004)'))\n"
	  . "SELECT delay_reschedule(delay_schedule('1 h', 'INSERT INTO effects VALUES (2005)'), '0')\n"
	  . "SELECT state, lanes FROM delay_wheel.status\n");
is($rc, 0, 'single-user mode ends without an error');
like($stdout, qr/delay_schedule = "\d+"/, 'a task can be scheduled');
like($stdout, qr/delay_cancel = "cancelled"/, 'and cancelled');
like($stdout, qr/state = "stopped"/, 'the view says that nothing runs');
unlike($stderr, qr/ERROR|FATAL|PANIC/, 'without an error') or diag($stderr);
$node->start;
effects(2003, 1, 'it runs after the normal start');
effects(2005, 1, 'so does the one that was moved');
effects(2004, 0, 'the cancelled one does not');

#
# pg_upgrade's mode: nothing of us is there.
#
schedule("INSERT INTO effects VALUES ($_)", '1 s') for 2006, 2007;
$node->stop;
{
	command_ok([ "$bin/pg_ctl", '-w', '-D', $data, '-l', $node->logfile, '-o', '-b --cluster-name=restarts', 'start' ],
		'the server starts in binary upgrade mode');
	(undef, $stdout, $stderr) = $node->psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE $$delay_wheel%$$');
	is($stdout, 0, 'none of our processes is there');
	(undef, $stdout, $stderr) = $node->psql('postgres', q{SELECT delay_schedule('0', 'SELECT 1')});
	like($stderr, qr/delay_wheel must be loaded via "shared_preload_libraries"/, 'functions refuse');
	(undef, $stdout, $stderr) = $node->psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks WHERE due < clock_timestamp() + $$1 s$$');
	is($stdout, 2, 'the tasks are there');
	is(scalar($node->psql('postgres', q{
			CREATE DATABASE upgrade; ALTER DATABASE upgrade RENAME TO upgraded; DROP DATABASE upgraded;
			BEGIN; DROP EXTENSION delay_wheel; ROLLBACK; PREPARE TRANSACTION 'none'})), 0, 'nothing is in the way of commands');
	command_ok([ "$bin/pg_ctl", '-w', '-D', $data, '-m', 'fast', 'stop' ], 'it stops');
}
$node->start;
effects($_, 1, 'after that tasks run') for 2006, 2007;

#
# Without the library.
#
my $later = schedule('INSERT INTO effects VALUES (2008)', '1 s');
schedule('INSERT INTO effects VALUES (2009)', '1 day');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->restart;
for my $call (qq{delay_schedule('0', 'SELECT 1')}, "delay_cancel($later)", "delay_reschedule($later, '1 h')",
	'* FROM delay_wheel.status', '* FROM delay_wheel.running', '* FROM delay_wheel.ring')
{
	(undef, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT $call");
	like($stderr, qr/ERROR:  55000: delay_wheel must be loaded via "shared_preload_libraries"\nHINT:/, "without the library: $call");
}
is($node->safe_psql('postgres', "SELECT sql FROM delay_wheel.tasks WHERE id = $later"), 'INSERT INTO effects VALUES (2008)',
	'tasks can be read');
is($node->safe_psql('postgres', "SELECT sql FROM delay_wheel_data.task WHERE id = $later"), 'INSERT INTO effects VALUES (2008)',
	'the table of tasks can be read');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 2, 'and failed ones');
is($node->safe_psql('postgres', "UPDATE delay_wheel_data.task SET due = due WHERE id = $later RETURNING id"), $later,
	'a superuser can change them');
my $dump = $node->basedir . '/without.sql';
$node->command_ok([ 'pg_dump', '--file', $dump, $node->connstr('postgres') ], 'pg_dump');
like(slurp_file($dump), qr/INSERT INTO effects VALUES \(2008\)/, 'takes them along');
is(scalar($node->psql('postgres', 'CREATE DATABASE copy')), 0, 'CREATE DATABASE');
$node->command_ok([ 'psql', '--no-psqlrc', '--quiet', '-v', 'ON_ERROR_STOP=1', '--file', $dump, $node->connstr('copy') ],
	'and a restore works');
$node->safe_psql('postgres', 'DROP DATABASE copy');
is(scalar(worker_pids($node)), 0, 'there is no process of ours');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'delay_wheel'");
$node->restart;
effects(2008, 1, 'with the library again, they run');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effects WHERE n = 2009'), 0, 'tasks that are not due do not run');

unlike(log_since($node, 0), qr/PANIC|TRAP|was terminated by signal/, 'no crash');
$node->stop;

done_testing();
