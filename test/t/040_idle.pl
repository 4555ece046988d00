# No polling: with many tasks pending for tomorrow nothing happens for a
# minute, and a worker that meets a locked task does not spin.
#
#   DW_IDLE_SECONDS   length of the quiet time (60)

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{DW_IDLE_SECONDS} // 60;

plan skip_all => 'this system does not count context switches'
  unless defined context_switches($$);

# executors stay: they are to be counted, too
my $node = new_node('idle', conf => "autovacuum = off\ndelay_wheel.executor_idle_timeout = 1d\n");
# looked at from another database, whose sessions do not count
$node->safe_psql('postgres', q{
	CREATE DATABASE elsewhere;
	CREATE TABLE ran (name text, at timestamptz, due timestamptz);
	SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''first'')');
	SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 100000);
});
wait_for($node, 'SELECT count(*) FROM ran', 'an executor is there', 60, expected => 1);

sub workers
{
	my %workers;

	$workers{$_} = [ worker_pids($node, $_, 'elsewhere') ] for qw(launcher timer executor);
	return map { my $kind = $_; map { [ "$kind $_", $_ ] } @{ $workers{$kind} } } sort keys %workers;
}

sub count_switches
{
	return map { $_->[0] => context_switches($_->[1]) // 'gone' } @_;
}

# What sessions of the database have done: transactions, and when a statement
# of it began last.
sub activity
{
	return $node->safe_psql('elsewhere', q{
		SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres';
		SELECT max(query_start), max(state_change) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel %'});
}

# Loading and the like come to an end.
sub settle
{
	my ($seconds) = @_;
	my %before;

	return wait_until(
		120,
		sub {
			my %now = count_switches(workers());
			my $same = %before && join(' ', %before{ sort keys %before }) eq join(' ', %now{ sort keys %now });

			%before = %now;
			sleep($seconds) unless $same;
			return $same;
		});
}

#
# A quiet minute.
#
ok(settle(3), 'our processes come to rest');
my @workers = workers();
is(scalar(grep { $_->[0] =~ /^executor/ } @workers), 1, 'an executor is counted');
cmp_ok(scalar(@workers), '==', 3, 'besides launcher and timer');

my $activity = activity();
my %before = count_switches(@workers);
sleep($seconds);
my %after = count_switches(@workers);

is_deeply(\%after, \%before, "no process went to sleep, so none woke, in $seconds s");
is(activity(), $activity, 'no statement ran');
is($node->safe_psql('elsewhere', 'SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE $$delay_wheel %$$'),
	3, 'no process was started');

$node->safe_psql('postgres', q{
	SELECT delay_schedule('2 s', 'INSERT INTO ran VALUES ($1, clock_timestamp(), $2)', 'after'::text, now() + interval '2 s')});
wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'after'}, 'then a task runs', 60, expected => 1);
my $late = $node->safe_psql('postgres', q{SELECT extract(epoch FROM at - due) FROM ran WHERE name = 'after'});
note(sprintf('%.1f ms after it was due', $late * 1000));
cmp_ok($late, '>=', 0, 'not early');
cmp_ok($late, '<', 1, 'on time');

#
# A locked task falls due.
#
for my $end (qw(ROLLBACK COMMIT))
{
	my $holder = $node->background_psql('postgres', on_error_stop => 1);
	my $id = $node->safe_psql('postgres',
		q{SELECT delay_schedule('2 s', 'INSERT INTO ran VALUES ($1, clock_timestamp())', '} . $end . q{'::text)});

	is($holder->query_safe("BEGIN; SELECT delay_cancel($id)"), 'cancelled', "$end: a task is cancelled");
	wait_for($node, "SELECT clock_timestamp() > due + interval '1 s' FROM delay_wheel_data.task WHERE id = $id",
		"$end: it falls due meanwhile");

	ok(settle(1), "$end: our processes come to rest");
	my @workers = workers();
	my %before = count_switches(@workers);
	my $held = $end eq 'ROLLBACK' ? $seconds : $seconds / 2;
	sleep($held);
	my %after = count_switches(@workers);
	is_deeply(\%after, \%before, sprintf('%s: nobody looks at it for %d s', $end, $held));
	is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE name = '$end'"), 0, "$end: it has not run");

	$holder->query_safe("$end; SELECT pg_sleep(0)");
	if ($end eq 'ROLLBACK')
	{
		my $begun = time();

		wait_for($node, "SELECT count(*) FROM ran WHERE name = '$end'", "$end: it runs", 60, expected => 1);
		cmp_ok(time() - $begun, '<', 10, "$end: at once");
	}
	$holder->quit;
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM ran WHERE name = 'COMMIT'}), 0, 'COMMIT: it never runs');

# among more than are remembered one by one, and undone by a savepoint
my $holder = $node->background_psql('postgres', on_error_stop => 1);
my $id = $node->safe_psql('postgres',
	q{SELECT delay_schedule('2 s', 'INSERT INTO ran VALUES (''savepoint'')')});
$holder->query_safe(qq{
	BEGIN;
	SELECT count(delay_schedule('1 day', 'SELECT 1')) FROM generate_series(1, 3000);
	SAVEPOINT s;
	SELECT delay_cancel($id);
});
wait_for($node, "SELECT clock_timestamp() > due + interval '1 s' FROM delay_wheel_data.task WHERE id = $id",
	'savepoint: a locked task falls due');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ran WHERE name = 'savepoint'}), 0, 'savepoint: it has not run');
$holder->query_safe('ROLLBACK TO s');
wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'savepoint'},
	'savepoint: it runs, though the transaction is open', 60, expected => 1);
$holder->query_safe('COMMIT');
$holder->quit;

$node->stop;
done_testing();
