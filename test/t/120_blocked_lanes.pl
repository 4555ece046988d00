# Lanes that cannot go on, with memory for a fraction of their tasks: the
# others stay on time, memory keeps to its limit, and once they can go on each
# of their tasks runs once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = long_tests() ? 1_000_000 : 100_000;

my $node = new_node('blocked', conf => q{
log_statement = none
max_connections = 20
delay_wheel.ring_memory = 48kB
delay_wheel.inbox_size = 16
delay_wheel.slots = 60
delay_wheel.tick = 100ms
delay_wheel.executor_idle_timeout = 1h
});

$node->safe_psql('postgres', q{
	CREATE TABLE effects (owner name DEFAULT current_user, n int, due timestamptz,
		at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON effects TO PUBLIC;
	SELECT delay_wheel.allow('public');
	CREATE ROLE nologin;
	CREATE ROLE hanging LOGIN;
	CREATE ROLE bystander LOGIN;
	REVOKE CONNECT ON DATABASE postgres FROM PUBLIC;
	GRANT CONNECT ON DATABASE postgres TO hanging, bystander;
	-- what is due in a while, at even distances
	CREATE FUNCTION schedule(n int, delay interval, step interval, prefix text DEFAULT '') RETURNS void
	LANGUAGE sql AS $$
		SELECT count(delay_schedule_at(due, prefix || 'INSERT INTO effects (n, due) VALUES ($1, $2)', i, due))
		FROM generate_series(1, n) i, LATERAL (SELECT clock_timestamp() + delay + i * step AS due) d
	$$;
});

my ($samples, $most, $over) = (0, 0, 0);

sub sample_memory
{
	my ($used, $limit) = split /\|/,
	  $node->safe_psql('postgres', 'SELECT memory_used, memory_limit FROM delay_wheel.status');
	$samples++;
	$most = $used if $used > $most;
	$over++ if $used > $limit;
	return;
}

sub wait_for_effects
{
	my ($where, $count, $seconds, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $found = 0;
	my $ok = wait_until($seconds, sub {
		sample_memory();
		$found = $node->safe_psql('postgres', "SELECT count(*) FROM effects WHERE $where");
		return $found >= $count;
	});
	ok($ok, $what) or diag("$found of $count\n"
		. $node->safe_psql('postgres', 'SELECT * FROM delay_wheel.status'));
	return;
}

#
# A role that cannot connect, and tasks that wait for a lock.
#
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', qq{
	SET ROLE nologin;
	SELECT schedule($n, '-1 s', '0')});
$node->safe_psql('postgres', qq{
	SET ROLE hanging;
	SELECT schedule($n, '-1 s', '0', 'SELECT pg_advisory_xact_lock_shared(1); ')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.running}, 'tasks hang', 60, expected => 2);

# Each of them is due in memory that the others would like to have.
my $position = log_position($node);
$node->safe_psql('postgres', q{
	SET ROLE bystander;
	SELECT schedule(200, '0.5 s', '50 ms')});
wait_for_effects(q{owner = 'bystander'}, 200, 120, 'tasks of another role run meanwhile');
cmp_ok($node->safe_psql('postgres', q{
		SELECT extract(epoch FROM max(at - due)) FROM effects WHERE owner = 'bystander'}),
	'<', 3, 'they are on time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE owner <> 'bystander'}), 0,
	'the blocked ones do not run');
# growing pauses: 1, 2, 4, 8 s; the reason is in the log once
my $log = log_since($node, $position);
my $tries = () = $log =~ /cannot run tasks of role "nologin"|permission denied for database/g;
cmp_ok($tries, '<=', 5, 'a role that cannot connect is not tried over and over');

$node->safe_psql('postgres', 'GRANT CONNECT ON DATABASE postgres TO PUBLIC');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
wait_for_effects('true', 2 * $n + 200, long_tests() ? 3600 : 300, 'all run when nothing holds them up');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (owner, n)) FROM effects'),
	join('|', (2 * $n + 200) x 2), 'each of them once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'none failed');
wait_for($node, 'SELECT near + ready + running FROM delay_wheel.status', 'nothing is left in memory',
	30, expected => 0);
is($over, 0, 'memory is within its limit');
note("$samples samples of memory, at most $most bytes");

#
# More lanes than memory has chunks: each has something overdue, something
# soon, and something later.
#
my $lanes = 200;
$node->append_conf('postgresql.conf', "delay_wheel.ring_memory = 16kB\n");
$node->restart;
$node->safe_psql('postgres', qq{
	TRUNCATE effects;
	SELECT format('CREATE ROLE many%s LOGIN', i) FROM generate_series(1, $lanes) i \\gexec
	SELECT format('SET ROLE many%s; SELECT schedule(5, ''-1 s'', ''0''), schedule(2, ''1 s'', ''1 s''),
		schedule(2, ''10 s'', ''0'')', i) FROM generate_series(1, $lanes) i \\gexec});
wait_for($node, q{SELECT state FROM delay_wheel.status}, 'the timer is there', 60, expected => 'running');
my ($timer) = worker_pids($node, 'timer');
wait_for_effects('true', 9 * $lanes, 300, "all tasks of $lanes lanes run");
is($node->safe_psql('postgres', 'SELECT count(DISTINCT owner) FROM effects'), $lanes, 'tasks of each lane ran');
is($node->safe_psql('postgres', 'SELECT count(*) FROM effects WHERE at < due'), 0, 'none early');
is($over, 0, 'memory is within its limit, again');
is((worker_pids($node, 'timer'))[0], $timer, 'by one and the same timer');

#
# Tasks in more slots than memory has chunks, of one lane and of several, none
# of them due for a while: the timer does not try to make them fit for ever.
#
$node->append_conf('postgresql.conf', "delay_wheel.slots = 1000\ndelay_wheel.tick = 1s\n");
$node->restart;

sub timer_ticks
{
	my ($pid) = worker_pids($node, 'timer');
	my @stat = split ' ', slurp_file("/proc/$pid/stat");
	return $stat[-39] + $stat[-38];
}

SKIP:
{
	skip 'no /proc', 2 unless -e "/proc/$$/stat";
	for my $roles (['many1'], [map { "many$_" } 2 .. 5])
	{
		$node->safe_psql('postgres', "SET ROLE $_; SELECT schedule(100, '100 s', '1 s')") for @$roles;
		wait_for($node, 'SELECT near > 10 FROM delay_wheel.status', 'some are in memory', 60);
		my $before = timer_ticks();
		sleep(2);
		# of 200, were it busy
		cmp_ok(timer_ticks() - $before, '<', 40, 'the timer sleeps, with ' . @$roles . ' lanes');
	}
}

done_testing();
