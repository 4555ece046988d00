# One statement schedules a million tasks, some due at once and some later: more
# than are hinted one by one, more than fit into the ring; each runs once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $n = 1_000_000;
my $node = new_node('many', conf => "delay_wheel.ring_memory = 1MB\n");

$node->safe_psql('postgres', q{
	CREATE TABLE ran (n int, at timestamptz, due timestamptz);
	CREATE FUNCTION schedule(count int) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(delay_schedule(delay, 'INSERT INTO ran VALUES ($1, now(), $2)', i, now() + delay))
		FROM (SELECT i, make_interval(secs => i % 20 / 2.0) AS delay FROM generate_series(1, count) i) x
	$$;
});

# rolled back: nothing of it may run
$node->safe_psql('postgres', "BEGIN; SELECT schedule($n / 10); ROLLBACK");
my $begun = time();
is($node->safe_psql('postgres', "SELECT schedule($n)"), $n, "$n tasks are scheduled in one statement");
note(sprintf('scheduled in %.1f s', time() - $begun));

my $above = 0;
ok( wait_until(
		1200,
		sub {
			my ($left, $over) = split /\|/, $node->safe_psql('postgres', q{
				SELECT (SELECT count(*) FROM (SELECT FROM delay_wheel_data.task LIMIT 1) x), memory_used > memory_limit
				FROM delay_wheel.status});
			$above++ if ($over // '') eq 't';
			return $left == 0;
		}),
	'all have run');
note(sprintf('done after %.1f s', time() - $begun));

is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n), min(n), max(n) FROM ran'), "$n|$n|1|$n",
	'each once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ran WHERE at < due'), 0, 'none early');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'none failed');
is($above, 0, 'memory was never above its limit');
wait_for($node, 'SELECT near, ready, running, done FROM delay_wheel.status', 'and is empty', 60,
	expected => "0|0|0|$n");

$node->stop;
done_testing();
