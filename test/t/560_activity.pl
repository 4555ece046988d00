# What the background processes say of themselves in pg_stat_activity: what each does, and how
# many rows it has dealt with so far.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# seconds that anything is waited for
my $limit = $ENV{DW_RACE_LIMIT} // 60;
my $node = new_node('activity', injection => has_injection(), conf => q{
log_statement = none
fsync = off
autovacuum = off
restart_after_crash = on
delay_wheel.executor_idle_timeout = 1h
delay_wheel.history_max_size = 1MB
});

sub query { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

sub set
{
	my ($name, $value) = @_;
	query("ALTER SYSTEM SET delay_wheel.$name = '$value'");
	$node->reload;
	return;
}

# A process of ours is shown to do that; the executors' texts are their owners' SQL.
sub says
{
	my ($kind, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT DISTINCT state, query FROM pg_stat_activity WHERE backend_type = 'delay_wheel $kind' AND coalesce(datname, 'postgres') = 'postgres'",
		$what, $limit, expected => $expected);
}

# Stops at the point what is begun meanwhile, and looks at it.
sub while_at
{
	my ($point, $skip, $begin, $look) = @_;

	attach($node, $point, 'wait', $skip, 1);
	$begin->();
	wait_until_waiting($node, $point);
	$look->();
	detach($node, $point);
	return;
}

my $timer = q{(SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'postgres')};
my $sweeper = q{(SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper')};

#
# At rest.
#
says('timer', 'idle|delay_wheel: sleeping until a task is due, or is scheduled', 'pg_stat_activity has what the timer waits for');
says('launcher', 'idle|delay_wheel: waiting for databases to serve', 'and the launcher');
my @waits = $node->pg_version >= 17
  ? ("DelayWheelLauncher\nDelayWheelTimer", 'DelayWheelExecutor')
  : ("Extension\nExtension", 'Extension');
is(query(q{SELECT wait_event FROM pg_stat_activity WHERE backend_type IN ('delay_wheel timer', 'delay_wheel launcher') ORDER BY 1}),
	$waits[0], 'with the names of their waits');

query(q{SELECT delay_schedule('0', 'SELECT 4711')});
wait_for($node, q{SELECT done = 1 FROM delay_wheel.status}, 'a task is done');
says('executor', 'idle|SELECT 4711', 'an executor shows the SQL that it ran last');
is(query(q{SELECT application_name, wait_event_type, wait_event FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'}),
	"delay_wheel|Extension|$waits[1]", 'and that it waits for work');

my $write = sub {
	my ($n) = @_;
	return query("INSERT INTO delay_wheel_data.task (due, priority, sql, tag) SELECT now() + interval '1 hour', i % 3 - 1, 'SELECT 1', 'written' FROM generate_series(1, $n) i");
};

#
# It waits for a transaction that may bring more cancelled tasks.
#
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT delay_schedule('1 hour', 'SELECT 1')});
$write->(1);
query(q{SELECT delay_cancel_all(tag => 'written')});
wait_for($node, 'SELECT state FROM delay_wheel.cancellations', 'the sweeper waits for a transaction that may bring more', $limit, expected => 'waiting');
says('sweeper', 'idle|delay_wheel: resting between two pieces of work', 'at rest');
query('CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE ROLE plain LOGIN');
my $seen = q{SELECT state, tag IS NULL, waiting_for IS NOT NULL FROM delay_wheel.cancellations};
is($node->safe_psql('postgres', $seen, extra_params => [ '-U', 'watcher' ]), 'waiting|t|t', 'pg_monitor sees that, without the tag');
is($node->safe_psql('postgres', $seen, extra_params => [ '-U', 'plain' ]), '', 'others see nothing of it');
$open->query_safe('ROLLBACK');
$open->quit;
wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'all is removed', $limit, expected => 0);

#
# While it goes on.
#
SKIP:
{
	skip 'there is no injection build', 14 if !has_injection();

	while_at('load-row', 3500, sub { $write->(4000) }, sub {
		wait_for($node, q{SELECT query ~ '^delay_wheel: loading tasks of the near future: [123]\d\d\d so far$' FROM pg_stat_activity WHERE pid = } . $timer, 'the timer loads', $limit);
	});
	while_at('sweep-before-commit', 1, sub { query(q{SELECT delay_cancel_all(tag => 'written')}) }, sub {
		wait_for($node, q{SELECT query ~ '^delay_wheel: removing rows of cancelled tasks' FROM pg_stat_activity WHERE pid = } . $sweeper, 'the sweeper removes', $limit);
	});
	query(q{SELECT count(delay_schedule('0', 'SELECT 1/0')) FROM generate_series(1, 20)});
	wait_for($node, q{SELECT count(*) FROM delay_wheel.failed}, 'tasks have failed', $limit, expected => 20);
	while_at('trim-before-commit', 0, sub { set('failed_max_count', 5) }, sub {
		says('sweeper', 'active|delay_wheel: counting rows of failed tasks', 'failed tasks are counted');
	});
	query(q{SELECT delay_every('one', '1 day', 'SELECT 1', starts => now() + interval '1 day')});
	while_at('repair-before-commit', 0, sub { query("SELECT pg_terminate_backend($timer)") }, sub {
		says('sweeper', 'active|delay_wheel: looking whether recurring tasks have their runs', 'recurring tasks are looked at');
	});
}

$node->stop;
done_testing();
