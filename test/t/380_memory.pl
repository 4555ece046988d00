# No process grows with the number of tasks that it has seen: launcher, timer,
# executors, and a session that schedules.  Tasks of all kinds are run in equal
# parts; what each process holds after one part is what it held after the one
# before.  A leak of a few bytes a task shows.  Plans, of which executors keep
# as many as they may, are looked at apart from that.
#
#   DW_MEMORY_TASKS   tasks of a part (9000)

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tasks = $ENV{DW_MEMORY_TASKS} // (long_tests() ? 90000 : 9000);

# Caches may grow a little; this is less than 8 bytes for each task of an executor.
my $slack = 32 * 1024;

my $node = new_node('memory', conf => q{
	autovacuum = off
	synchronous_commit = off
	delay_wheel.executor_idle_timeout = 1d
	delay_wheel.failed_max_count = 100
	delay_wheel.plan_cache = 0
});

#
# Of n tasks, in transactions of a hundred: distinct literal texts, arguments,
# errors, a second attempt, keys that replace each other, tasks that are moved
# or cancelled, that schedule, and that leave as much behind as a session can.
#
$node->safe_psql('postgres', q{
	CREATE TABLE ran (n int, text text, at timestamptz);
	CREATE SEQUENCE tries;
	CREATE FUNCTION second_time() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF nextval('tries') % 2 = 1 THEN RAISE 'not yet'; END IF;
	END $$;
	CREATE FUNCTION untidy(n int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('PREPARE p%s AS SELECT 1', n);
		EXECUTE format('DECLARE c%s CURSOR WITH HOLD FOR SELECT generate_series(1, 10)', n);
		PERFORM set_config('work_mem', '8MB', false), set_config('a.b' || n % 10, repeat('x', 1000), false);
		PERFORM pg_advisory_lock(n), nextval('tries'), nextval('tries');
		BEGIN
			PERFORM 1 / (n - n);
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END $$;
	CREATE PROCEDURE part(total int) LANGUAGE plpgsql AS $$
	DECLARE
		id bigint;
	BEGIN
		PERFORM delay_wheel.create_queue('limited', max_running => 2, priority => 1) WHERE NOT EXISTS
			(SELECT FROM delay_wheel_data.queue WHERE name = 'limited');
		FOR i IN 1 .. total LOOP
			CASE i % 9
				WHEN 0 THEN
					PERFORM delay_schedule('0', format('INSERT INTO ran VALUES (%s, %L)', i, repeat(md5(i::text), i % 50)));
				WHEN 1 THEN
					PERFORM delay_schedule('0', 'INSERT INTO ran VALUES ($1, $2, $3)', i, repeat('y', i % 3000), now());
				WHEN 2 THEN
					PERFORM delay_schedule('0', format('SELECT 1 / (%s - %s)', i, i));
				WHEN 3 THEN
					PERFORM delay_schedule_task('SELECT second_time()', max_attempts => 5, options => '{"retry_delay": "1 ms"}');
				WHEN 4 THEN
					PERFORM delay_schedule_task('SELECT 1', key => 'key ' || i % 100, if_exists => 'replace', delay => '1 s');
				WHEN 5 THEN
					id := delay_schedule('2 s', 'SELECT 1');
					PERFORM delay_reschedule(id, '3 s'), delay_reschedule(id, '1 s');
					IF i % 2 = 0 THEN PERFORM delay_cancel(id); END IF;
				WHEN 6 THEN
					PERFORM delay_schedule('0', 'SELECT delay_schedule(''0'', ''SELECT 2'')');
				WHEN 7 THEN
					PERFORM delay_schedule('0', 'SELECT untidy($1)', i);
				WHEN 8 THEN
					PERFORM delay_schedule_task('SET search_path = public; SELECT count(*) FROM ran WHERE n = -1',
						queue => 'limited', tag => 'tag ' || i % 7);
			END CASE;
			IF i % 100 = 0 THEN COMMIT; END IF;
		END LOOP;
	END $$;
});

my $session = $node->background_psql('postgres', on_error_stop => 1, timeout => 600);

sub run_part
{
	my ($what) = @_;

	$session->query_safe("CALL part($tasks)");
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', "$what: all tasks run", 600, expected => 0);
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', "$what: and are over", 60, expected => 0);
	wait_for($node, 'SELECT near, ready FROM delay_wheel.status', "$what: none is left in memory", 60, expected => '0|0');
	$node->safe_psql('postgres', 'TRUNCATE ran');
	return;
}

# Bytes in use in all memory contexts of a process, by its own word in the log.
sub memory_of
{
	my ($pid) = @_;
	my $position = log_position($node);
	my $bytes;

	$node->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($pid)");
	wait_until(60, sub {
		($bytes) = log_since($node, $position) =~ /\[$pid\].*Grand total: .*; (\d+) used/;
		return defined $bytes;
	}) or die "process $pid does not tell how much memory it uses";
	return $bytes;
}

# Memory that a process shares with no other one, in kB; 0 where that is not told.
sub private_kb
{
	my ($pid) = @_;

	open(my $status, '<', "/proc/$pid/status") or return 0;
	while (my $line = <$status>)
	{
		return $1 if $line =~ /^RssAnon:\s+(\d+)/;
	}
	return 0;
}

sub measure
{
	my %memory;

	for my $kind (qw(launcher timer executor))
	{
		$memory{"$kind $_"} = { used => memory_of($_), private => private_kb($_) } for worker_pids($node, $kind);
	}
	$memory{'the session'} = {
		used => $session->query_safe('SELECT sum(used_bytes) FROM pg_backend_memory_contexts'),
		private => private_kb($session->query_safe('SELECT pg_backend_pid()')) };
	return %memory;
}

run_part('warm');
run_part('first');
my %first = measure();
my $ring = $node->safe_psql('postgres', 'SELECT memory_used FROM delay_wheel.status');
run_part('second');
my %second = measure();

is_deeply([ grep { !exists $second{$_} } sort keys %first ], [], 'no process has ended');
cmp_ok(scalar(grep { /^executor/ } keys %first), '>=', 2, 'there are several executors');
for my $process (sort keys %first)
{
	my ($from, $to) = map { $_->{$process} } \%first, \%second;

	note("$process: $from->{used} -> $to->{used} bytes used, $from->{private} -> $to->{private} kB of its own");
	cmp_ok($to->{used} - $from->{used}, '<', $slack, "$process does not use more");
	cmp_ok($to->{private} - $from->{private}, '<', 2048, "$process does not have more of its own");
}
is($node->safe_psql('postgres', 'SELECT memory_used FROM delay_wheel.status'), $ring,
	'the ring holds as much memory as before');

#
# With plans that are kept.
#
$node->append_conf('postgresql.conf', "delay_wheel.plan_cache = 1MB\n");
$node->reload;
run_part('plans');
my %plans = measure();
for my $process (grep { /^executor/ } sort keys %first)
{
	note("$process: $first{$process}{used} -> $plans{$process}{used} bytes used with plans");
	cmp_ok($plans{$process}{used} - $first{$process}{used}, '<', 2 * 1024 * 1024, "$process keeps no more plans than it may");
}

$session->quit;
$node->stop;
done_testing();
