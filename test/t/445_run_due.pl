# delay_run_due against other sessions and executors that are at the same tasks.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('run_due', injection => 1, batches => 1);
$node->safe_psql('postgres', q{
	CREATE TABLE effect (label text);
	CREATE FUNCTION task(label text, delay interval) RETURNS bigint LANGUAGE sql AS
		$$SELECT delay_schedule(delay, 'INSERT INTO effect VALUES ($1)', label)$$;
});
my ($runner, $other) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;

sub effects
{
	my ($expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', q{SELECT string_agg(label, ' ' ORDER BY label) FROM effect}), $expected, $what);
	$node->safe_psql('postgres', 'TRUNCATE effect; DELETE FROM delay_wheel_data.task');
	return;
}

#
# Another session has taken one of the tasks: it is waited for, and looked at
# again.
#
for my $case (
	[ 'delay_cancel(%d)', 'COMMIT', 2, 'first last', 'is cancelled' ],
	[ 'delay_cancel(%d)', 'ROLLBACK', 3, 'first last middle', 'is cancelled, but that is rolled back' ],
	[ q{delay_reschedule(%d, '10 days')}, 'COMMIT', 2, 'first last', 'is moved to a time that is not asked for' ],
	[ q{delay_reschedule(%d, '5 hours')}, 'COMMIT', 3, 'first last middle', 'is moved to a later time' ],
	[ q{delay_reschedule(%d, '1 min')}, 'COMMIT', 3, 'first last middle', 'is moved to an earlier time' ],
	[ 'delay_run(%d)', 'COMMIT', 2, 'first last middle', 'is run' ])
{
	my ($change, $end, $n, $effects, $what) = @$case;
	my (undef, $id) = split /\n/, $node->safe_psql('postgres',
		q{SELECT task('first', '1 hour'); SELECT task('middle', '2 hours'); SELECT task('last', '3 hours')});

	$other->query_safe('BEGIN');
	$other->query_safe('SELECT ' . sprintf($change, $id));
	$runner->query_until(qr/begun/, q{\echo begun
		SELECT delay_run_due(now() + interval '1 day');
	});
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^\s*SELECT delay_run_due'},
		"one task $what: it is waited for", 60, expected => 1);
	$other->query_safe($end);
	is($runner->query_safe('SELECT 1'), "$n\n1", "$n are run");
	effects($effects, 'each once');
}

# What was committed after the snapshot of the transaction.
$runner->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM effect');
$node->safe_psql('postgres', q{SELECT task('new', '1 hour')});
is($runner->query_safe(q{SELECT delay_run_due(now() + interval '1 day')}), 1, 'a task that is newer than the snapshot');
$runner->query_safe('COMMIT');
effects('new', 'is run');

#
# An executor has come as far as before the claim.
#
for my $end (qw(COMMIT ROLLBACK))
{
	attach($node, 'claim-before-fetch', 'wait', 0, 1);
	$node->safe_psql('postgres', q{SELECT task('once', '0')});
	wait_until_waiting($node, 'claim-before-fetch', 'an executor is about to claim');
	$runner->query_safe('BEGIN');
	is($runner->query_safe('SELECT delay_run_due()'), 1, 'a session runs the task');
	detach($node, 'claim-before-fetch');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'the executor gives up', 60, expected => 0);
	$runner->query_safe($end);
	wait_for($node, 'SELECT count(*) FROM effect', "run after $end", 60, expected => 1);
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'and nothing is left', 60, expected => 0);
	effects('once', 'once');
}

# Executors take what is due while a session takes the same, again and again.
my $ran = 0;
for my $n (1 .. 20)
{
	my (undef, $by_session) = split /\n/, $runner->query_safe(
		"SELECT count(task(g::text, '0')) FROM generate_series($n * 1000, $n * 1000 + 299) g;\nSELECT delay_run_due();");
	$ran += $by_session;
}
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'all tasks are run', 60, expected => 0);
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT label) FROM effect}), '6000 6000', 'each once');
note("the session ran $ran of them");

$_->quit for $runner, $other;
$node->stop;
done_testing();
