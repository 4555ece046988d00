# Servers with too few background workers for what they have to do: what the log and the views
# say of each database, so that a monitoring system notices.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('few', conf => q{
log_statement = none
max_logical_replication_workers = 0
max_parallel_workers = 1
# timers that rest would let others have the only worker
delay_wheel.timer_idle_timeout = -1
});
my $position;

# Restarts the server with so many background workers.
sub restart_with
{
	my ($n) = @_;

	$node->append_conf('postgresql.conf', "max_worker_processes = $n\n");
	$position = log_position($node);
	$node->restart;
	return;
}

# A test: the log comes to have this, since the restart.
sub log_has
{
	my ($pattern, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok(wait_until(60, sub { log_since($node, $position) =~ $pattern }), $what)
	  or note(log_since($node, $position));
	return;
}

sub count_in_log
{
	my ($pattern) = @_;

	return scalar(() = log_since($node, $position) =~ /$pattern/g);
}

$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(msg plain);
$node->safe_psql('msg', 'CREATE EXTENSION delay_wheel');
my $states = q{SELECT string_agg(database || ' ' || state, ', ' ORDER BY state, database) FROM delay_wheel.status};
wait_for($node, $states, 'two databases are served', 60, expected => 'msg running, postgres running');
# the lines of the log come after that
$position = 0;
log_has(qr/LOG:  delay_wheel serves database "$_"\n/, "the log tells of $_") for qw(msg postgres);

# an ordinary start and stop: a line for each database, and nothing that looks like an error
restart_with(20);
log_has(qr/LOG:  delay_wheel serves database "$_"\n/, "the log tells that $_ is served") for qw(msg postgres);
is(count_in_log('LOG:  delay_wheel serves database'), 2, 'once each');
my $ran = q{SELECT done FROM delay_wheel.status WHERE database = 'postgres'};
# what a process says that is told to end in the middle of work, or of its own start, is
# PostgreSQL's, as FATAL: so the stop is tried again if it met one; and clients' processes and
# autovacuum's have such lines of their own
my ($said, $told);
for my $try (1 .. 5)
{
	$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT 1')});
	wait_for($node, $ran, 'an executor is there, and idle', 60, expected => 1);
	$position = log_position($node);
	$node->stop;
	$said = log_since($node, $position);
	$told = () = $said =~ /LOG:  delay_wheel \w+ is shutting down\n/g;
	last if $told == 4 && $said !~ /delay_wheel \w+ FATAL/;
	note($said);
	$node->start if $try < 5;
}
is(join(', ', sort($said =~ /LOG:  (delay_wheel \w+) is shutting down\n/g)),
	'delay_wheel executor, delay_wheel launcher, delay_wheel timer, delay_wheel timer', 'processes that are told to end say so');
unlike($said, qr/delay_wheel \w+ FATAL/, 'that is no error');
$node->start;
# nor when somebody ends the launcher, which is started again
my $launcher = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'};
wait_for($node, "SELECT count(*) FROM ($launcher) l", 'the launcher is there', 60, expected => 1);
my $pid = $node->safe_psql('postgres', $launcher);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_for($node, "SELECT count(*) FROM ($launcher) l WHERE pid <> $pid", 'one that somebody ends is started again', 60, expected => 1);
wait_for($node, $states, 'and all goes on', 60, expected => 'msg running, postgres running');

#
# Launcher, and one timer.  Nobody uses the other database, and yet it is seen.
#
restart_with(2);
log_has(qr/WARNING:  delay_wheel may need 13 background workers, but "max_worker_processes" is 2\n.*DETAIL:  .*: 1 \+ 2 \* \(2 \+ 4\) \+ 0 = 13\.\n.*HINT:  Set "max_worker_processes" to 13,/, 'the warning at the start counts both');
is(count_in_log('delay_wheel may need'), 1, 'at once');
my $problem = q{SELECT state, last_problem, last_problem_at IS NOT NULL FROM delay_wheel.status WHERE state <> 'running' AND database <> 'plain'};
wait_for($node, $problem, 'the status has a database whose timer could not be started since the start', 60,
	expected => 'stopped|could not start the timer: no background worker is free|t');
my ($other) = $node->safe_psql('postgres', q{SELECT database FROM delay_wheel.status WHERE state = 'stopped' AND database <> 'plain'});
log_has(qr/LOG:  could not start delay_wheel timer of database "$other"\n.*HINT: .*max_worker_processes/, 'the log names it');
is(count_in_log('could not start delay_wheel timer'), 1, 'once');

#
# A copy, into which nobody has looked so far, and which nobody has used.
#
$node->safe_psql('postgres', 'DROP DATABASE plain');
restart_with(1);
log_has(qr/LOG:  could not start delay_wheel timer of database "$_"\n/, "no timer for $_") for qw(msg postgres);

# there, lanes of queues that are declared are not called paused, and receivers hear of it
$node->safe_psql('msg', q{SELECT delay_wheel.create_queue('declared'), delay_wheel.create_queue('mail', external => true)});
$node->safe_psql('msg', q{SELECT delay_schedule_task('SELECT 1', queue => 'declared'), delay_send('mail', '{}')});
is($node->safe_psql('msg', 'SELECT DISTINCT state, reason FROM delay_wheel.lanes'), 'blocked|the database is not served', 'a lane says that the database is not served');
foreach my $case ([ 'delay_receive()', "BEGIN; SELECT * FROM delay_receive('mail'); ROLLBACK" ], [ 'delay_lease()', "SELECT * FROM delay_lease('mail')" ],
	[ 'delay_await()', "CALL delay_await('mail', '0')" ])
{
	my ($function, $sql) = @$case;
	my ($code, $out, $err) = $node->psql('msg', "\\set VERBOSITY verbose\n$sql;\n$sql");

	is($code, 0, "$function is no error");
	is(scalar(() = $err =~ /WARNING:  55000: no message can be received, since the database is not served\n.*DETAIL:  No background worker is free for its timer\./g),
		1, "but warns, once: $err");
}
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE msg');
log_has(qr/LOG:  delay_wheel could not look into database "copy": no background worker is free\n.*DETAIL:  If the database has the extension, its tasks wait\.\n/, 'the log names a database that may have the extension');
is($node->safe_psql('postgres', q{SELECT database, state, last_problem, last_problem_at IS NOT NULL FROM delay_wheel.status WHERE database = 'copy'}),
	'copy|stopped|could not look into the database: no background worker is free|t', 'status names the database that could not be looked into');
is($node->safe_psql('copy', q{SELECT count(*), min(state), min(last_problem) FROM delay_wheel.status WHERE database = 'copy'}),
	'1|stopped|could not start the timer: no background worker is free', 'the database itself has one row there');
restart_with(20);
wait_for($node, q{SELECT count(*) FROM delay_wheel.tasks}, 'with workers the task runs', 60, db => 'msg', expected => 1);
is($node->safe_psql('msg', "BEGIN; SELECT count(*) FROM delay_receive('mail'); COMMIT"), '1', 'and the message can be received');
wait_for($node, $states, 'with enough of them all are served', 60, expected => 'copy running, msg running, postgres running');
is($node->safe_psql('postgres', 'SELECT count(last_problem) FROM delay_wheel.status'), '0', 'without a problem');

#
# Databases that go, and that lose the extension, are not remembered.
#
my $file = $node->data_dir . '/delay_wheel.databases';
my %oid = map { $_ => $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$_'") } qw(copy msg postgres);
sub remembered { return join(' ', sort { $a <=> $b } slurp_file($file) =~ /^(\d+)$/mg); }
is(remembered(), join(' ', sort { $a <=> $b } values %oid), 'those that are served are remembered');
$node->safe_psql('postgres', 'DROP DATABASE copy');
$node->safe_psql('msg', 'DROP EXTENSION delay_wheel');
ok(wait_until(60, sub { remembered() eq $oid{postgres} }), 'and no others');
$node->stop;
append_to_file($file, "$oid{copy}\n$oid{msg}\nnonsense\n");
$node->start;
wait_for($node, $states, 'a file that is wrong does no harm', 60, expected => 'postgres running');
ok(wait_until(60, sub { remembered() eq $oid{postgres} }), 'and is put right');
$node->stop;
my $before = -s $file;
open(my $out, '>', $file) or die $!;
print $out 'something else';
close $out;
$position = log_position($node);
$node->start;
wait_for($node, $states, 'nor does one that is something else', 60, expected => 'postgres running');
log_has(qr/LOG:  ignoring invalid file "delay_wheel\.databases"/, 'the log tells of it');
ok(wait_until(60, sub { -s $file == $before }), 'it is written anew');

#
# No worker for the sweeper, which has old rows to remove, though nothing was cancelled; nor for a
# role, which matters more.
#
$node->safe_psql('postgres', q{
	SELECT delay_schedule('0', 'SELECT 1 / 0') \gset
	CREATE ROLE a LOGIN;
	SELECT delay_wheel.allow('a')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'a task has failed', 60, expected => 1);
$node->append_conf('postgresql.conf', "delay_wheel.enabled = off\n");
$node->reload;
wait_for($node, 'SELECT state FROM delay_wheel.status', 'tasks are switched off', 60, expected => 'disabled');
$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION a; SELECT delay_schedule('0', 'SELECT 1')});
$node->append_conf('postgresql.conf', "delay_wheel.enabled = on\ndelay_wheel.failed_max_count = 0\n");
restart_with(2);
log_has(qr/LOG:  could not start delay_wheel sweeper of database "postgres"\n.*DETAIL:  Old rows stay for some time\. Cancelled tasks are not run\.\n.*HINT: .*max_worker_processes/,
	'the log tells that there is no worker for the sweeper');
unlike(log_since($node, $position), qr/cancelled tasks:/, 'and nothing of tasks that were cancelled');
is($node->safe_psql('postgres', q{SELECT last_problem FROM delay_wheel.status WHERE database = 'postgres'}), 'cannot run tasks of role "a": no background worker is free', 'the status has what matters more');
restart_with(20);
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'with enough of them it does its work', 60, expected => 0);

# nothing is left in the data directory
$node->safe_psql('postgres', 'DROP EXTENSION delay_wheel');
ok(wait_until(60, sub { !-e $file }), 'the last database takes the file with it');
$node->stop;

done_testing();
