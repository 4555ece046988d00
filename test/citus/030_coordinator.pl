# Tasks at the coordinator that write rows of the workers: each takes effect once, while
# nodes are killed, shards move, and some tasks fail.
#
# Environment: DW_TASKS, how many there are at each of these times.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = $ENV{DW_TASKS} || ($ENV{DW_LONG} ? 20000 : 10000);
my $kills = 5;
my ($coordinator, @workers) = new_cluster(2);
my @nodes = ($coordinator, @workers);

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sql(q{SELECT delay_wheel.set_up_citus()});
sql(q{
	SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0, early int NOT NULL DEFAULT 0);
	SELECT create_distributed_table('t_order', 'oid', shard_count => 8);
});

my $next = 1;

# So many rows, each with a task at the coordinator; one in a hundred of the tasks fails.
# Returns the first row.
sub schedule
{
	my ($n) = @_;
	my $first = $next;

	$next += $n;
	sql(qq{SET ROLE shop; INSERT INTO t_order SELECT generate_series($first, $first + $n - 1)});
	sql(qq{SET ROLE shop; SELECT count(CASE WHEN i % 100 = 0 THEN delay_schedule('1 s', 'SELECT 1 / 0')
		ELSE delay_schedule('1 s', 'UPDATE public.t_order SET runs = runs + 1 WHERE oid = \$1', i) END) FROM generate_series($first, $first + $n - 1) i});
	return $first;
}

# Tests, when all have run: each row that has a task was written once.
sub check
{
	my ($first, $n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $rest = "oid >= $first AND oid < $first + $n AND oid % 100 <> 0";

	wait_for($coordinator, 'SELECT count(*) FROM delay_wheel_data.task', "$what: no task is pending", 300, expected => 0);
	# what Citus has prepared, it commits when both nodes are there
	wait_for_sum(q{SELECT count(*) FROM pg_prepared_xacts}, 0, "$what: no prepared transaction is left", 60, @nodes);
	is(sql("SELECT count(*) FROM t_order WHERE $rest AND runs > 1"), '0', "$what: no task took effect twice");
	is(sql("SELECT count(*) FROM t_order WHERE $rest AND runs = 0"), '0', "$what: no task was lost");
	is(sql(q{SELECT string_agg(DISTINCT sqlstate, ' ') FROM delay_wheel.failed}), '22012', "$what: only those that divide by zero have failed");
	is(sql(q{SELECT count(*) FROM delay_wheel.failed}), int($n / 100), "$what: they have failed once each");
	sql(q{SELECT delay_discard_all()});
	return;
}

# Kills a server so many times while tasks run, after some of them have run each time.
sub kill_while_running
{
	my ($node, $kills) = @_;

	for my $i (1 .. $kills)
	{
		my (undef, $before) = try_psql($coordinator, 'postgres', 'SELECT count(*) FROM delay_wheel_data.task');
		wait_until(60, sub {
			my ($status, $left) = try_psql($coordinator, 'postgres', 'SELECT count(*) FROM delay_wheel_data.task');
			return $status == 0 && $left < $before - 200 - rand(300);
		}) or last;
		kill_server($node);
		await_server($node);
	}
	return;
}

my $first = schedule($n);
kill_while_running($coordinator, $kills);
check($first, $n, "the coordinator is killed $kills times");

for my $worker (@workers)
{
	$first = schedule($n);
	kill_while_running($worker, $kills);
	check($first, $n, $worker->name . " is killed $kills times");
}
is(sql(q{SELECT retried > 0 FROM delay_wheel.status}), 't', 'tasks that lost a connection were run again');

$first = schedule($n);
for my $mode (qw(block_writes force_logical))
{
	for my $i (1 .. 3)
	{
		my ($shard, $port) = shard_of($coordinator, 't_order', $i);
		my ($from) = grep { $_->port == $port } @workers;
		my ($to) = grep { $_->port != $port } @workers;
		my ($status, undef, $err) = move_shard($coordinator, $shard, $from, $to, $mode);
		$err =~ s/^NOTICE:.*\n?//mg;
		is("$status$err", '0', "a shard moves by $mode");
	}
}
check($first, $n, 'shards move');

#
# Deadlocks among nodes: two tasks write the same two rows, of two workers, in both orders.
# No worker sees a deadlock; Citus cancels one task, which is run again.
#
my %row_of;
for my $i (1 .. 100)
{
	my (undef, $port) = shard_of($coordinator, 't_order', $i);
	$row_of{$port} //= $i;
}
my ($one, $two) = values %row_of;
sql(q{SET ROLE shop;
	CREATE FUNCTION write_both(bigint, bigint) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE public.t_order SET runs = runs + 1 WHERE oid = $1;
		PERFORM pg_sleep(0.05);
		UPDATE public.t_order SET runs = runs + 1 WHERE oid = $2;
	END $$});
# So many of them.
sub meet
{
	my ($n, $what) = @_;
	my @positions = map { log_position($_) } @workers;

	sql(qq{UPDATE t_order SET runs = 0 WHERE oid IN ($one, $two)});
	sql(qq{SET ROLE shop; SELECT delay_schedule('1 s', 'SELECT public.write_both(\$1, \$2)', CASE WHEN i % 2 = 0 THEN $one ELSE $two END::bigint,
		CASE WHEN i % 2 = 0 THEN $two ELSE $one END::bigint) FROM generate_series(1, $n) i});
	wait_for($coordinator, 'SELECT count(*) FROM delay_wheel_data.task', "$what: they end", 300, expected => 0);
	is(sql(qq{SELECT string_agg(runs::text, ' ') FROM t_order WHERE oid IN ($one, $two)}), "$n $n", "$what: each of them once");
	is(sql(q{SELECT string_agg(format('%s: %s (%s, %s)', sqlstate, message, detail, context), '; ') FROM delay_wheel.failed}), '', "$what: none has failed");
	like(join('', map { log_since($workers[$_], $positions[$_]) } 0, 1), qr/canceling statement/, "$what: there was a deadlock");
	return;
}

meet(40, 'tasks that meet in deadlocks');
# Citus looks for deadlocks more often, so it finds some that are just being undone.
$coordinator->append_conf('postgresql.conf', q{deadlock_timeout = '50ms'});
$coordinator->restart;
meet(200, 'tasks that meet in deadlocks, of which more are seen twice');

done_testing();
