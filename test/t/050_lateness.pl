# Lateness: 2,000 tasks over 20 s, beside a bare program that does nothing but
# sleep until the same times, on the same machine at the same time.  What the
# view status says agrees with what the tasks saw and with commit timestamps.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $count = 2000;
my $interval_us = 10_000;

plan skip_all => 'needs timerfd' if $^O ne 'linux';

my $node = new_node('lateness', conf => "track_commit_timestamp = on\nautovacuum = off\n");
my $floor_program = $node->basedir . '/sleep_floor';
command_ok([ $ENV{CC} // 'cc', '-O2', '-o', $floor_program, "$FindBin::RealBin/../tools/sleep_floor.c" ],
	'the program to compare with is built');

$node->safe_psql('postgres', 'CREATE TABLE ran (due timestamptz, at timestamptz, clock timestamptz)');

my $start_us = int(time() + 3) * 1_000_000;
$node->safe_psql('postgres', qq{
	SELECT count(delay_schedule_at(due, 'INSERT INTO ran VALUES (\$1, now(), clock_timestamp())', due))
	FROM (SELECT to_timestamp(0) + ($start_us + i * ${interval_us}::bigint) * interval '1 us' AS due
		  FROM generate_series(0, $count - 1) i) x
});
my ($floor_out, $floor_err);
my $floor = IPC::Run::start([ $floor_program, $start_us, $interval_us, $count ], '>', \$floor_out, '2>', \$floor_err);
wait_for($node, 'SELECT count(*) FROM ran', 'all tasks run', 120, expected => $count);
ok($floor->finish, 'the program to compare with ends well');

my @floor = map { $_ / 1000 } split ' ', $floor_out;
sub percentiles
{
	my ($what) = @_;
	my $late = "extract(epoch FROM $what - due) * 1000";

	return split /\|/, $node->safe_psql('postgres', qq{
		SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY $late),
			   percentile_disc(0.99) WITHIN GROUP (ORDER BY $late), max($late), min($late)
		FROM ran});
}
my @now = percentiles('at');
my @clock = percentiles('clock');
my @commit = percentiles('pg_xact_commit_timestamp(xmin)');
my @status = split /\|/, $node->safe_psql('postgres',
	'SELECT lateness_p50, lateness_p99, lateness_max, done FROM delay_wheel.status');

note('lateness in ms:           p50      p99      max');
note(sprintf('%-20s %8.3f %8.3f %8.3f', @$_))
  for [ 'bare program', @floor[0 .. 2] ], [ 'now() in the task', @now[0 .. 2] ], [ 'status', @status[0 .. 2] ],
  [ 'clock in the task', @clock[0 .. 2] ], [ 'commit', @commit[0 .. 2] ];

is($status[3], $count, 'status has counted all tasks');
cmp_ok($now[3], '>=', 0, 'none was early');

# each task's start is counted before its SQL reads the clock, and that is
# before its commit; 7% is what the histogram may be off
for my $i (0 .. 2)
{
	my $which = (qw(p50 p99 max))[$i];

	cmp_ok($status[$i], '<=', $clock[$i] * 1.07 + 0.01, "$which by status is not above that in the tasks");
	cmp_ok($status[$i], '>=', $now[$i] * 0.93 - 0.01, "$which by status is not below that of now()");
	cmp_ok($clock[$i], '<=', $commit[$i], "$which in the tasks is not above that of the commits");
}

# not how fast it is, but that nothing waits for a tick, a poll or a timeout
cmp_ok($commit[0], '<', $floor[0] + 20, 'p50 is near that of the bare program');
cmp_ok($commit[1], '<', $floor[1] + 500, 'p99, too');

$node->stop;
done_testing();
