# Thousands of lanes: what a wake-up of the timer and what an executor that
# looks for its next task have to do does not grow with the lanes that are
# none of their business.  Lanes that are looked at are counted.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'needs the build with injection points' unless has_injection();

my ($owners, $queues) = (500, 8);
my $lanes = $owners * $queues;
my $node = new_node('many_lanes', injection => 1, conf => q{
log_statement = none
delay_wheel.executor_idle_timeout = 1h
delay_wheel.max_lanes = 5000
});

$node->safe_psql('postgres', qq{
	CREATE TABLE effects (owner name DEFAULT current_user, kind text, n int,
		at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON effects TO PUBLIC;
	SELECT delay_wheel.allow('public');
	CREATE ROLE app LOGIN;
	SELECT format('CREATE ROLE o%s', i) FROM generate_series(1, $owners) i \\gexec
	SELECT delay_wheel.create_queue('q' || i, users => '{app}') FROM generate_series(1, $queues) i;
	REVOKE CONNECT ON DATABASE postgres FROM PUBLIC;
	GRANT CONNECT ON DATABASE postgres TO app;
	-- one task in each lane of the many
	CREATE FUNCTION in_each_lane(due timestamptz, kind text) RETURNS void LANGUAGE sql AS \$\$
		INSERT INTO delay_wheel_data.task (due, owner, queue, sql)
		SELECT due, r.oid::regrole, q.id, format('INSERT INTO effects (kind, n) VALUES (%L, %s)', kind, q.id)
		FROM pg_roles r, delay_wheel_data.queue q WHERE r.rolname ~ '^o[0-9]+\$'
	\$\$;
});

# Tasks of the role app, one after the other; lanes that were looked at for each.
sub lanes_for_each
{
	my ($what, $n) = @_;
	# what came before is over: nothing for two seconds
	my ($last, $since) = (-1, 0);
	wait_until(60, sub {
		my $now = counted($node, 'lanes-looked-at');
		($last, $since) = ($now, time()) if $now != $last;
		return time() - $since > 2;
	});
	my %before = map { $_ => counted($node, $_) } qw(lanes-looked-at lanes-dispatched lanes-popped);
	my @each;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $ran = 0;
	for my $i (1 .. $n)
	{
		$node->safe_psql('postgres', "SET ROLE app;
			SELECT delay_schedule('10 ms', 'INSERT INTO effects (kind, n) VALUES (\$1, \$2)', '$what'::text, $i)");
		$ran++ if wait_until(60, sub {
			$node->safe_psql('postgres', "SELECT count(*) FROM effects WHERE kind = '$what' AND n = $i") eq '1' });
	}
	is($ran, $n, "$what: tasks of another role run");
	for my $counter (sort keys %before)
	{
		my $per_task = (counted($node, $counter) - $before{$counter}) / $n;

		cmp_ok($per_task, '<', $lanes / 20, "$what: $counter for each task");
		note(sprintf('%s: %s %.1f', $what, $counter, $per_task));
	}
	return;
}

# A lane that has no task may be given back; if one comes in that very moment, the
# timer looks at all lanes.  So this one has one.
$node->safe_psql('postgres', q{SET ROLE app; SELECT delay_schedule('30 days', 'SELECT 1')});
lanes_for_each('few', 10);

#
# Lanes with tasks that are not due for long.
#
$node->safe_psql('postgres', q{SELECT in_each_lane(now() + interval '30 days', 'never')});
wait_for($node, "SELECT lanes >= $lanes FROM delay_wheel.status", 'all lanes are known');
lanes_for_each('pending', 20);

#
# Lanes with tasks that are due, of owners that no executor can be had for.
#
$node->safe_psql('postgres', q{SELECT in_each_lane(now(), 'overdue')});
wait_for($node, "SELECT ready >= $lanes AND parked >= $lanes FROM delay_wheel.status",
	'all of them have a task that waits', 120);
lanes_for_each('blocked', 20);

#
# Lanes of the very role, that are paused.
#
$node->safe_psql('postgres', q{
	SELECT delay_wheel.create_queue('p' || i, users => '{app}'), delay_wheel.pause_queue('p' || i) FROM generate_series(1, 200) i;
	SET ROLE app;
	SELECT delay_schedule_task('INSERT INTO effects (kind, n) VALUES (''held'', ' || i || ')',
		queue => 'p' || i) FROM generate_series(1, 200) i});
wait_for($node, q{SELECT sum(ready) FROM delay_wheel.queues WHERE name ~ '^p'},
	'paused queues have a task each that is due', 60, expected => 200);
lanes_for_each('paused', 20);
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE kind = 'held'}), 0,
	'what is paused does not run');
$node->safe_psql('postgres', q{SELECT delay_wheel.resume_queue('p' || i) FROM generate_series(1, 200) i});
wait_for($node, q{SELECT count(*), count(DISTINCT n) FROM effects WHERE kind = 'held'},
	'resumed, all run', 120, expected => '200|200');

#
# After a restart all that are due run, each once, and nothing is left.
#
$node->safe_psql('postgres', q{DELETE FROM delay_wheel_data.task WHERE due > now() + interval '1 day' AND owner <> 'app'::regrole});
$node->restart;
lanes_for_each('restarted', 10);
$node->safe_psql('postgres', q{
	GRANT CONNECT ON DATABASE postgres TO PUBLIC});
wait_for($node, q{SELECT count(*), count(DISTINCT (owner, n)) FROM effects WHERE kind = 'overdue'},
	'those that were blocked run, each once', 300, expected => "$lanes|$lanes");
$node->safe_psql('postgres', q{SET ROLE app; SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE due > now() + interval '1 day'});
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'none is left', 60, expected => 0);

# More than half of all places were used: lanes that are empty are given back.
$node->safe_psql('postgres', q{SET ROLE app; SELECT delay_schedule('0', 'SELECT 1')});
wait_for($node, 'SELECT lanes <= 2500 FROM delay_wheel.status', 'empty lanes are given back');

#
# Two lanes of one owner, two executors that have nothing to do: each gets a
# task.  (If one had to do both, the other task would begin half a second
# later, when the timer looks at tasks that take long.)
#
$node->safe_psql('postgres', q{
	SET ROLE app;
	SELECT delay_schedule('0', 'SELECT pg_sleep(1)') FROM generate_series(1, 3)});
wait_for($node, q{SELECT executors >= 2 AND running = 0 AND ready = 0 FROM delay_wheel.status},
	'two executors are idle');
my $together = wait_until(60, sub {
	$node->safe_psql('postgres', q{
		TRUNCATE effects;
		SET ROLE app;
		SELECT delay_schedule_task(
			'INSERT INTO effects (kind) VALUES (''pair''); SELECT pg_sleep(1)',
			queue => 'q' || i, delay => '0.2 s') FROM generate_series(1, 2) i});
	wait_until(60, sub {
		$node->safe_psql('postgres', q{SELECT count(*) FROM effects}) eq '2' });
	return $node->safe_psql('postgres',
		q{SELECT max(at) - min(at) < interval '0.3 s' FROM effects}) eq 't';
});
ok($together, 'two lanes of one owner have a task each run at a time');

$node->stop;
done_testing();
