# A standby: nothing runs there; promoted under load, each task that somebody
# was told of runs once.  Servers that came out of recovery and are to hold:
# over restarts and crashes, until they are told to go on.

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

my $clients = 3;
my $mark = 'delay_wheel.recovered';

my $primary = new_node('primary',
	init => [ allows_streaming => 1, has_archiving => 1 ],
	conf => q{
log_statement = none
synchronous_commit = on
delay_wheel.slots = 60
delay_wheel.tick = 100ms
});
$primary->safe_psql('postgres', q{
	SELECT delay_wheel.allow('public');
	CREATE ROLE a LOGIN; CREATE ROLE b LOGIN;
	-- an executor has no inet_server_port()
	CREATE TABLE effects (client text, n int, due timestamptz,
		server text DEFAULT current_setting('port'), at timestamptz DEFAULT now());
	GRANT ALL ON effects TO PUBLIC});
# what copies have with them
$primary->safe_psql('postgres', q{SELECT delay_schedule('1 day', 'SELECT 1')});
$primary->backup('base');

sub new_standby
{
	my ($name, %options) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', $options{conf} // '');
	$standby->start;
	return $standby;
}

sub state_is
{
	my ($node, $state, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT state FROM delay_wheel.status WHERE database = current_database()', $what, 60,
		expected => $state);
}

sub schedule
{
	my ($node, $client, $n, $delay) = @_;
	return $node->safe_psql('postgres', "SELECT delay_schedule('" . ($delay // 0) . "',
		'INSERT INTO effects (client, n) VALUES (\$1, \$2)', '$client'::text, $n)");
}

sub effects
{
	my ($node, $client, $count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effects WHERE client = '$client'", $what, 60, expected => $count);
}

# The children of a postmaster that was killed may still use its memory.
sub kill_and_start
{
	my ($node) = @_;
	my ($pid) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

	$node->kill9;
	wait_until(60, sub { !kill(0, $pid) });
	wait_until(60, sub { $node->start(fail_ok => 1) }) or die 'could not start the server';
	return;
}

sub has_mark { return -e $_[0]->data_dir . "/$mark" ? 1 : 0; }

my $standby = new_standby('standby');
my $held = new_standby('held', conf => "delay_wheel.start_after_recovery = hold\nrestart_after_crash = on\n");

$primary->safe_psql('postgres', q{
	ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)';
	SELECT pg_reload_conf()});
wait_for($primary, q{SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'},
	'replication is synchronous', 60, expected => 'sync');

#
# On the standby.
#
schedule($primary, 'before', 1);
effects($primary, 'before', 1, 'a task runs on the primary');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is(scalar(worker_pids($standby)), 0, 'none of our processes is on the standby');
is($standby->safe_psql('postgres', 'SELECT database, state, lanes, last_problem FROM delay_wheel.status'),
	'postgres|standby||', 'the view says that it is a standby');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks'), 1, 'tasks can be seen');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.running'), 0, 'none is running');
for my $call (q{delay_schedule('0', 'SELECT 1')}, 'delay_cancel(1)', q{delay_reschedule(1, '1 h')})
{
	my (undef, undef, $stderr) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT $call");
	like($stderr, qr/ERROR:  25006: cannot execute delay_\w+\(\) during recovery/, "refused: $call");
}

#
# Promoted under load, the primary killed.  Each line that a client has got is
# a task that it was told of.
#
my @clients;
for my $client (1 .. $clients)
{
	my $c = { out => '', err => '', n => $client };
	my $role = $client == 1 ? 'a' : $client == 2 ? 'b' : '';
	my $script = ($role ? "SET ROLE $role;\n" : '')
	  . join('', map {
		# most are due soon, some in the middle of it, some after it
		my $delay = $_ % 5 == 0 ? '3 s' : $_ % 7 == 0 ? '10 s' : $_ % 3 == 0 ? '100 ms' : '0';
		"SELECT 'told $_' FROM delay_schedule('$delay',"
		  . " 'INSERT INTO effects (client, n, due) VALUES (\$1, \$2, \$3)', 'load$client'::text, $_, now() + '$delay');\n"
	  } 1 .. 20000);

	my $file = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
	append_to_file($file, $script);
	$c->{handle} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-f', $file ],
		'>', \$c->{out}, '2>', \$c->{err});
	push @clients, $c;
}

sub pump_clients
{
	my ($until) = @_;
	return wait_until(60, sub {
		for my $c (@clients) { $c->{handle}->pump_nb if $c->{handle}->pumpable }
		return $until->();
	});
}

ok(pump_clients(sub { !grep { $_->{out} !~ /told 300\n/ } @clients }), 'tasks are being scheduled');
wait_for($primary, q{SELECT count(*) > 100 FROM effects WHERE client LIKE 'load%'}, 'and run');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE $$delay_wheel%$$'), 0,
	'nothing runs on the standby');
my $promoting = $standby->safe_psql('postgres', 'SELECT clock_timestamp()');
$primary->kill9;
ok(pump_clients(sub { !grep { $_->{handle}->pumpable } @clients }), 'the clients have lost the primary');
$_->{handle}->finish for @clients;

my $began = time();
$standby->promote;
my @told;
for my $c (@clients)
{
	# a line that was cut off is none
	push @told, map { "(\$\$load$c->{n}\$\$, $_)" } $c->{out} =~ /^told (\d+)\n/mg;
}
note(scalar(@told) . ' tasks scheduled before the primary was killed');
cmp_ok(scalar(@told), '>', 300 * $clients - 1, 'the clients were told of tasks');
$standby->safe_psql('postgres', 'CREATE TABLE told (client text, n int); INSERT INTO told VALUES ' . join(', ', @told));
wait_for($standby, 'SELECT count(*) FROM delay_wheel_data.task WHERE sql <> $$SELECT 1$$', 'after the promotion all tasks run', 120, expected => 0);
note(sprintf('%.1f s from the promotion', time() - $began));
is($standby->safe_psql('postgres', 'SELECT count(*) FROM told LEFT JOIN effects USING (client, n) WHERE effects IS NULL'), 0,
	'each that somebody was told of has run');
is($standby->safe_psql('postgres', 'SELECT client, n, count(*) FROM effects GROUP BY client, n HAVING count(*) > 1 LIMIT 5'), '',
	'none has run twice');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM effects WHERE at < due'), 0, 'none too early');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'none failed');
my ($old, $new, $too_early) = split /\|/, $standby->safe_psql('postgres', sprintf(q{
	SELECT count(*) FILTER (WHERE server = '%s'), count(*) FILTER (WHERE server = '%s'),
		count(*) FILTER (WHERE server = '%2$s' AND at < '%s')
		FROM effects}, $primary->port, $standby->port, $promoting));
note("$old on the old primary, $new on the new one");
cmp_ok($old, '>', 0, 'some had run before');
cmp_ok($new, '>', 0, 'some run on the new primary');
is($too_early, 0, 'none of those before it was promoted');
state_is($standby, 'running', 'the view says that it is served');
ok(!has_mark($standby), 'the service has begun: no mark is left');
$primary->stop('immediate', fail_ok => 1);

# setting it now is about later starts
$standby->append_conf('postgresql.conf', "delay_wheel.start_after_recovery = hold\n");
$standby->reload;
schedule($standby, 'goes on', 1);
effects($standby, 'goes on', 1, 'a running service is not stopped by "hold"');
$standby->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%'});
schedule($standby, 'goes on', 2);
effects($standby, 'goes on', 2, 'nor if the launcher is started again');

#
# hold, on another standby of the same.
#
my $hold_text = qr/WARNING:  delay_wheel runs no tasks, since this server came out of recovery and "delay_wheel\.start_after_recovery" is "hold"\n[^\n]*HINT:  If the tasks must run on this server, set the parameter to "on" and reload the configuration\./;

# The server serves nobody: this is so after whatever has been done to it.
sub is_held
{
	my ($node, $position, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'},
		"$what: the launcher is there", 60, expected => 1);
	state_is($node, 'held', "$what: the service is held");
	ok(wait_until(60, sub { log_since($node, $position) =~ $hold_text }), "$what: the log says why");
	is(scalar(() = log_since($node, $position) =~ /$hold_text/g), 1, "$what: once");
	is(join(' ', worker_pids($node, 'timer'), worker_pids($node, 'executor')), '', "$what: nothing runs");
	ok(has_mark($node), "$what: the mark is there");
	return;
}

state_is($held, 'standby', 'the other standby is one');
my $position = log_position($held);
$held->promote;
is_held($held, $position, 'promoted');
my $pending = $held->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task');
schedule($held, 'held', 1);
schedule($held, 'held', 2, '100 ms');
is($held->safe_psql('postgres', q{SELECT delay_cancel(delay_schedule('0', 'SELECT 1'))}), 'cancelled', 'tasks can be scheduled and cancelled');
is($held->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task') - $pending, 2, 'they wait');
state_is($held, 'held', 'the service is held, also with a task');

$position = log_position($held);
$held->restart;
is_held($held, $position, 'restarted');

$position = log_position($held);
my $victim = $held->background_psql('postgres');
my $pid = $victim->query_safe('SELECT pg_backend_pid()');
kill 'KILL', $pid;
ok(wait_until(60, sub { log_since($held, $position) =~ /all server processes terminated; reinitializing/ }), 'a process has crashed');
eval { $victim->quit };
is_held($held, $position, 'after a crash');

$position = log_position($held);
kill_and_start($held);
is_held($held, $position, 'killed and started');

$position = log_position($held);
$held->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'});
ok(wait_until(60, sub { log_since($held, $position) =~ $hold_text }), 'a new launcher comes');
is_held($held, $position, 'with a new launcher');
$held->reload;
is($held->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE client = 'held'}), 0, 'in all this time nothing has run');

# a database that comes meanwhile
$held->safe_psql('postgres', 'CREATE DATABASE meanwhile');
$held->safe_psql('meanwhile', 'CREATE EXTENSION delay_wheel; CREATE TABLE effects (client text, n int)');
state_is($held, 'held', 'the service is held for new databases, too');

$position = log_position($held);
$held->safe_psql('postgres', q{ALTER SYSTEM SET delay_wheel.start_after_recovery = 'on'; SELECT pg_reload_conf()});
effects($held, 'held', 2, 'released by a reload, tasks run');
state_is($held, 'running', 'the view says so');
like(log_since($held, $position), qr/LOG:  delay_wheel begins to run tasks/, 'the log shows the start');
ok(!has_mark($held), 'no mark is left');
$held->safe_psql('meanwhile', q{SELECT delay_schedule('0', 'INSERT INTO effects VALUES (''meanwhile'', 1)')});
wait_for($held, 'SELECT count(*) FROM effects', 'also in the database that came meanwhile', 60, db => 'meanwhile', expected => 1);
$held->safe_psql('postgres', 'ALTER SYSTEM RESET delay_wheel.start_after_recovery');
schedule($held, 'later', 1, '1 s');
$held->restart;
effects($held, 'later', 1, 'a restart that is none of recovery starts the service, whatever the setting');
schedule($held, 'later', 2, '1 s');
kill_and_start($held);
effects($held, 'later', 2, 'so does one after a crash');

#
# Set while the standby is one: the last word counts.
#
sub turned
{
	my ($name, $from, $to) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, 'base', has_streaming => 1);
	$node->append_conf('postgresql.conf', "delay_wheel.start_after_recovery = $from\n");
	$node->start;
	$node->append_conf('postgresql.conf', "delay_wheel.start_after_recovery = $to\n");
	$node->reload;
	wait_for($node, 'SHOW delay_wheel.start_after_recovery', "$from, then $to", 60, expected => $to);
	$node->promote;
	return $node;
}

my $node = turned('to_hold', 'on', 'hold');
is_held($node, 0, 'promoted');
$position = log_position($node);
$node->stop('immediate');
$node->start;
is_held($node, $position, 'restarted');
$node->stop;

$node = turned('to_on', 'hold', 'on');
schedule($node, 'on', 1);
effects($node, 'on', 1, 'promoted, it serves');
$node->stop;

#
# Other ways out of recovery: from the archive, and from the backup alone.
#
for my $kind (qw(archive backup))
{
	for my $setting (qw(hold on))
	{
		$node = PostgreSQL::Test::Cluster->new("${kind}_$setting");
		$node->init_from_backup($primary, 'base', $kind eq 'archive' ? (has_restoring => 1, standby => 0) : ());
		# what one copy does is not for the archive that the next one reads
		$node->append_conf('postgresql.conf', "archive_mode = off\ndelay_wheel.start_after_recovery = $setting\n");
		$node->start;
		wait_for($node, 'SELECT NOT pg_is_in_recovery()', "$kind: recovery has ended");
		schedule($node, $kind, 1);
		if ($setting eq 'hold')
		{
			is_held($node, 0, $kind);
			# the way for a staging copy that is to be used
			$node->append_conf('postgresql.conf', "delay_wheel.start_after_recovery = on\n");
			$node->reload;
		}
		effects($node, $kind, 1, "$kind: with \"on\" tasks run");
		ok(!has_mark($node), "$kind: no mark is left");
		$node->stop;
	}
}

#
# The mark cannot be written: the server starts, and holds this time.
#
$node = PostgreSQL::Test::Cluster->new('no_mark');
$node->init_from_backup($primary, 'base');
$node->append_conf('postgresql.conf', "delay_wheel.start_after_recovery = hold\n");
mkdir $node->data_dir . "/$mark.tmp" or die "mkdir: $!";
$node->start;
state_is($node, 'held', 'without the mark: the service is held');
like(log_since($node, 0), qr/LOG:  could not write file "\Q$mark\E\.tmp": Is a directory\n[^\n]*DETAIL:  After another restart, delay_wheel will run tasks/,
	'the log says that it is not for long');
rmdir $node->data_dir . "/$mark.tmp" or die "rmdir: $!";
$position = log_position($node);
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher'});
ok(wait_until(60, sub { has_mark($node) }), 'the next launcher leaves it');
$node->restart;
state_is($node, 'held', 'then the hold is for long');
$node->stop;

for ($standby, $held)
{
	unlike(log_since($_, 0), qr/PANIC|TRAP/, 'no crash of our own');
	$_->stop;
}

done_testing();
