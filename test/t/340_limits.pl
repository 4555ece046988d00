# Limits of queues: rate and max_running hold across executors and roles, also
# when executors are killed; a paused queue runs nothing and is in nobody's
# way; priority, without starvation; turns of queues and owners; the views say
# what waits for what.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('limits', conf => q{
log_statement = none
autovacuum = off
restart_after_crash = on
delay_wheel.max_executors = 8
});
my @roles = qw(anna berta carla dora emil fritz);
my $setup = q{
	CREATE TABLE ran (n bigserial, label text, role name DEFAULT current_user, priority int,
		due timestamptz, began timestamptz DEFAULT clock_timestamp(), ended timestamptz);
	GRANT ALL ON ran, ran_n_seq TO PUBLIC;
	SELECT delay_wheel.allow('public');
	CREATE FUNCTION take(label text, ms int) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE began timestamptz = clock_timestamp();
		BEGIN
			PERFORM pg_sleep(ms / 1000.0);
			INSERT INTO ran (label, began, ended) VALUES (label, began, clock_timestamp());
		END
	$$;
	-- tasks in a queue, by plain SQL
	CREATE FUNCTION put(queue_name text, role regrole, n int, sql text, priority int DEFAULT 0,
		first timestamptz DEFAULT clock_timestamp(), step interval DEFAULT '0') RETURNS void LANGUAGE sql AS $$
		INSERT INTO delay_wheel_data.task (due, owner, queue, priority, sql)
		SELECT d, role, q.id, $5, replace($4, '$due', quote_literal(d))
		FROM delay_wheel_data.queue q, generate_series(1, n) i, LATERAL (SELECT first + i * step) t(d)
		WHERE q.name = queue_name
	$$;
	-- the most tasks that ran at a time, by what they wrote
	CREATE FUNCTION overlap(which text) RETURNS bigint LANGUAGE sql AS $$
		SELECT max(at_once) FROM (
			SELECT sum(step) OVER (ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS at_once
			FROM ran, LATERAL (VALUES (began, 1), (ended, -1)) v(at, step) WHERE label = which) s
	$$;
} . join('', map { "CREATE ROLE $_ LOGIN;\n" } @roles);

sub query { return $node->safe_psql('postgres', $_[0]); }

query($setup);

# A queue that all roles may use, or a change of one.
sub set_queue
{
	my ($name, %with) = @_;
	my %defaults = (max_running => 'NULL', rate => 'NULL', per => 'NULL', burst => 'NULL', paused => 'false');

	%with = (%defaults, %with);
	query(qq{
		INSERT INTO delay_wheel_data.queue (name, max_running, rate, per, burst, paused, users)
			VALUES ('$name', $with{max_running}, $with{rate}, $with{per}, $with{burst}, $with{paused}, '{-}')
			ON CONFLICT (name) DO UPDATE SET max_running = EXCLUDED.max_running, rate = EXCLUDED.rate,
				per = EXCLUDED.per, burst = EXCLUDED.burst, paused = EXCLUDED.paused});
	wait_for($node, qq{
		SELECT q.paused = $with{paused} AND (s.state = 'paused') = $with{paused}
		FROM delay_wheel_data.queue q JOIN delay_wheel_internal.get_queues() s USING (id) WHERE q.name = '$name'},
		"queue $name: " . join(', ', map { "$_ $with{$_}" } sort keys %with));
	return;
}

sub set_executors
{
	query("ALTER SYSTEM SET delay_wheel.max_executors = $_[0]; SELECT pg_reload_conf()");
	return;
}

sub wait_for_count
{
	my ($label, $count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, "SELECT count(*) >= $count FROM ran WHERE label = '$label'", $what, 120)
	  or diag(query('SELECT * FROM delay_wheel.lanes'));
	return;
}

#
# Rate: of two roles and two priorities together.
#
my $window = long_tests() ? 60 : 12;
set_queue('rated', rate => 100);
query(qq{
	SELECT put('rated', 'anna', 5000, 'INSERT INTO ran (label) VALUES (''rated'')');
	SELECT put('rated', 'berta', 2500, 'INSERT INTO ran (label) VALUES (''rated'')');
	SELECT put('rated', 'berta', 2500, 'INSERT INTO ran (label) VALUES (''rated'')', -1);
});
wait_for_count('rated', 100, 'tasks run at a rate');
my $begun = query('SELECT clock_timestamp()');
my $per_second = 0;
# what the machine does otherwise may hold tasks up: but never may there be too many
for my $try (1 .. 3)
{
	my $from = query('SELECT clock_timestamp()');
	sleep($window);
	my ($rate, $seconds, $too_many) = split /\|/, query(qq{
		SELECT round(count(*) / seconds, 2), seconds, count(*) > 100 * seconds + 12
		FROM (SELECT clock_timestamp() AS now) c, LATERAL (SELECT extract(epoch FROM now - '$from') AS seconds) s, ran
		WHERE label = 'rated' AND began BETWEEN '$from' AND now GROUP BY seconds});

	note("$rate a second, over $seconds s");
	is($too_many, 'f', 'not more than the rate');
	$per_second = $rate;
	last if $per_second >= 95;
}
cmp_ok($per_second, '>=', 95, 'a rate of 100 a second holds within 5%');
cmp_ok($per_second, '<=', 105, 'and above it');
is(query(qq{SELECT count(DISTINCT role) FROM ran WHERE label = 'rated' AND began > '$begun'}), 2, 'both roles have their turns');
wait_for($node, q{SELECT count(*) > 0 FROM delay_wheel.lanes WHERE queue = 'rated' AND state = 'limited' AND reason = 'rate'},
	'the view lanes says so');
is(query(q{SELECT count(*) FROM delay_wheel.queues WHERE name = 'rated' AND ready > 0 AND done > 100}), 1, 'the view queues counts');

set_queue('rated', rate => 1);
wait_for($node, q{SELECT count(*) BETWEEN 1 AND 4 FROM ran WHERE label = 'rated' AND began > clock_timestamp() - interval '2 s'},
	'a lower rate holds', 5);
my $slow = query(q{SELECT count(*) FROM ran WHERE label = 'rated'});
set_queue('rated', rate => 2000);
wait_for($node, "SELECT count(*) > $slow + 1000 FROM ran WHERE label = 'rated'", 'and a higher one');
set_queue('rated');
wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'rated'}, 'without it the rest runs', 120, expected => 10000);
is(query(q{SELECT done, failed, retried, cancelled, running FROM delay_wheel.queues WHERE name = 'rated'}), '10000|0|0|0|0', 'the queue has counted all');
is(query(q{SELECT sum(done), sum(failed) FROM delay_wheel.lanes WHERE queue = 'rated'}), '10000|0', 'the lanes have counted all');

# Between two starts of a slow rate both roles come to wait, and a fast one leaves no time to wait.
set_executors(2);
for my $try ([ 8, 40 ], [ 200, 600 ], [ 1000, 2000 ])
{
	my ($rate, $tasks) = @$try;

	set_queue("fair$rate", rate => $rate);
	query("SELECT put('fair$rate', '$_', $tasks, 'INSERT INTO ran (label) VALUES (''fair$rate'')')") for @roles[0, 1];
	wait_for_count("fair$rate", $tasks, "two roles share $rate starts a second");
	cmp_ok(query(qq{SELECT min(count) FROM (SELECT count(*) FILTER (WHERE f.role = r.role)
			FROM unnest('{anna, berta}'::name[]) r(role), (SELECT role FROM ran WHERE label = 'fair$rate' ORDER BY n LIMIT $tasks) f GROUP BY r.role) c}),
		'>=', $tasks / 5, 'each has a fifth of them at least');
	query("SELECT delay_cancel_all(queue => 'fair$rate')");
}
set_executors(8);
is(query(q{SELECT count(*) FROM delay_wheel.lanes WHERE queue = 'rated' AND lateness_p50 > 1000 AND lateness_p50 <= lateness_p95 AND lateness_p95 <= lateness_p99 AND lateness_p99 <= lateness_max}), 3,
	'each with its lateness');
is(query(q{SELECT lateness_p50 > 1000 AND lateness_p50 <= lateness_p95 AND lateness_p95 <= lateness_p99 AND lateness_p99 <= lateness_max AND
	lateness_max = (SELECT max(lateness_max) FROM delay_wheel.lanes WHERE queue = 'rated') AND
	lateness_p95 BETWEEN (SELECT min(lateness_p95) FROM delay_wheel.lanes WHERE queue = 'rated') AND (SELECT max(lateness_p95) FROM delay_wheel.lanes WHERE queue = 'rated')
	FROM delay_wheel.queues WHERE name = 'rated'}), 't', 'the queue has the lateness of all its lanes');
is(query(q{SELECT s.lateness_max = (SELECT max(lateness_max) FROM delay_wheel.lanes) FROM delay_wheel.status s WHERE database = 'postgres'}), 't',
	'the maximum of the database is that of its lanes');
is(query(q{SELECT count(*) FROM delay_wheel.queues WHERE done = 0 AND (lateness_p50 IS NOT NULL OR lateness_max IS NOT NULL)}), 0, 'and one without tasks has none');

# A rate in a longer time, and a burst: what may begin at once does, the rest comes evenly.
set_queue('slow', rate => 120, per => "'1 minute'", burst => 5, paused => 'true');
query(q{SELECT put('slow', 'anna', 9, 'INSERT INTO ran (label) VALUES (''slow'')')});
wait_for($node, q{SELECT ready + near >= 9 FROM delay_wheel.queues WHERE name = 'slow'}, 'tasks are in memory');
set_queue('slow', rate => 120, per => "'1 minute'", burst => 5);
wait_for_count('slow', 9, 'they run');
is(query(q{SELECT count(*) FROM (SELECT began - lag(began, 5) OVER (ORDER BY began) AS gap FROM ran WHERE label = 'slow') g WHERE gap < '490 ms'}), 0,
	'no sixth one within half a second of a first one');
cmp_ok(query(q{SELECT extract(epoch FROM max(began) - min(began)) FROM ran WHERE label = 'slow'}), '>=', 1.99, 'four later ones take two seconds');
is(query(q{SELECT rate, per, burst FROM delay_wheel.queues WHERE name = 'slow'}), '120|00:01:00|5', 'the view says so');

# what turns out to be gone does not use the rate up
set_queue('gone', rate => 1);
query(q{SELECT put('gone', 'anna', 3000, 'INSERT INTO ran (label) VALUES (''gone'')')});
wait_for($node, q{SELECT ready > 2900 FROM delay_wheel.queues WHERE name = 'gone'}, 'tasks are in memory');
query(q{DELETE FROM delay_wheel_data.task t USING delay_wheel_data.queue q WHERE q.id = t.queue AND q.name = 'gone' AND t.id % 10 <> 0});
$begun = query('SELECT clock_timestamp()');
set_queue('gone', rate => 100);
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task t JOIN delay_wheel_data.queue q ON q.id = t.queue WHERE q.name = 'gone'},
	'those that are not gone run', 120, expected => 0);
cmp_ok(query(qq{SELECT extract(epoch FROM max(began) - '$begun') FROM ran WHERE label = 'gone'}), '<', 12, 'at the rate');

#
# max_running: of two roles, with executors that are killed.
#
set_queue('narrow', max_running => 3);
query(qq{
	SELECT put('narrow', '$_', 150, 'SELECT take(''narrow'', 50)');
}) for qw(anna berta);
my ($most, $limited) = (0, 0);

sub sample
{
	my ($until, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok(wait_until(120, sub {
		my (undef, $out) = try_psql($node, 'postgres', q{
			SELECT count(*), (SELECT COALESCE(sum((state = 'limited' AND reason = 'max_running')::int), 0) FROM delay_wheel.lanes l WHERE l.queue = 'narrow'),
				(SELECT count(*) FROM ran WHERE label = 'narrow')
			FROM delay_wheel.running r JOIN delay_wheel_data.task t ON t.id = r.task JOIN delay_wheel_data.queue q ON q.id = t.queue AND q.name = 'narrow'});
		return 0 if !$out;
		my ($running, $lanes, $done) = split /\|/, $out;
		$most = $running if $running > $most;
		$limited++ if $lanes > 0;
		return $done >= $until;
	}), $what);
	return;
}

sub an_executor
{
	my $pid;

	wait_until(60, sub { return $pid = query('SELECT pid FROM delay_wheel.running ORDER BY since DESC LIMIT 1') });
	return $pid;
}

sample(50, 'tasks run three at a time');
query('SELECT pg_terminate_backend(' . an_executor() . ')');
sample(100, 'an executor is terminated');
kill 'KILL', an_executor();
sample(150, 'another one is killed');
sample(300, 'all run');
is(query(q{SELECT count(*), count(DISTINCT role) FROM ran WHERE label = 'narrow'}), '300|2', 'each of them once');
is(query(q{SELECT overlap('narrow')}), 3, 'never more than three at a time, as the tasks saw it');
cmp_ok($most, '<=', 3, 'and as sampled');
cmp_ok($limited, '>', 0, 'the view lanes says that they wait for max_running');
cmp_ok(query(q{SELECT min(count) FROM (SELECT count(*) FROM (SELECT role FROM ran WHERE label = 'narrow' ORDER BY n LIMIT 100) f GROUP BY role) c}), '>=', 20,
	'both roles have their turns');
is(query(q{SELECT running FROM delay_wheel.queues WHERE name = 'narrow'}), 0, 'none is counted as running in the end');

# raised and lowered while tasks run, and the timer started anew
query(qq{SELECT put('narrow', 'anna', 500, 'SELECT take(''wide'', 20)')});
set_queue('narrow', max_running => 5);
wait_for_count('wide', 60, 'more at a time are allowed');
my $former = query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = current_database()});
query("SELECT pg_terminate_backend($former)");
wait_for($node, qq{SELECT s.state = 'running' AND a.pid <> $former FROM delay_wheel.status s JOIN pg_stat_activity a ON a.datname = s.database
	WHERE s.database = current_database() AND a.backend_type = 'delay_wheel timer'}, 'another timer begins');
wait_for_count('wide', 100, 'tasks run on');
set_queue('narrow', max_running => 1);
wait_for_count('wide', 500, 'only one at a time is');
cmp_ok(query(q{SELECT overlap('wide')}), '<=', 5, 'never more than the higher limit');
is(query(q{UPDATE ran SET label = 'one' WHERE n IN (SELECT n FROM ran WHERE label = 'wide' ORDER BY n DESC LIMIT 50); SELECT overlap('one')}), 1,
	'and then the lower one');

#
# More owners than executors want the only place of a queue.
#
set_executors(3);
set_queue('single', max_running => 1);
query("SELECT put('single', '$_', 40, 'SELECT take(''single'', 20)')") for @roles;
wait_for_count('single', 40 * @roles, 'six owners share a place, with three executors');
is(query(q{SELECT overlap('single')}), 1, 'one at a time');
is(query(q{SELECT count(DISTINCT role) FROM ran WHERE label = 'single' AND began <= (
		SELECT min(last) FROM (SELECT max(began) AS last FROM ran WHERE label = 'single' GROUP BY role) l)}),
	scalar(@roles), 'in turn: each has begun before the first one is through');
# 6 turns of 100 ms, and 5 executors to be started
cmp_ok(query(q{SELECT extract(epoch FROM max(first) - min(first)) FROM (SELECT min(began) AS first FROM ran WHERE label = 'single' GROUP BY role) f}),
	'<', 10, 'soon');

#
# Priority: what is higher goes first, but for each 16th.
#
set_queue('ordered', max_running => 1, paused => 'true');
query(qq{
	SELECT put('ordered', 'anna', 10000, 'INSERT INTO ran (label, priority) VALUES (''ordered'', -1)', -1);
	SELECT put('ordered', 'anna', 100, 'INSERT INTO ran (label, priority) VALUES (''ordered'', 1)', 1);
});
wait_for($node, q{SELECT count(*) = 2 AND bool_and(state = 'paused' AND ready > 0) AND max(reason) LIKE '%paused%' FROM delay_wheel.lanes WHERE queue = 'ordered'},
	'lanes of a paused queue are paused');
is(query(q{SELECT count(*) FROM ran WHERE label = 'ordered'}), 0, 'it runs nothing');
set_queue('ordered', max_running => 1);
wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'ordered' AND priority = 1}, 'resumed, it runs', 120, expected => 100);
my ($before, $between) = split /\|/, query(q{
	WITH high AS (SELECT min(n), max(n) FROM ran WHERE label = 'ordered' AND priority = 1)
	SELECT count(*) FILTER (WHERE n < min), count(*) FILTER (WHERE n BETWEEN min AND max)
	FROM ran, high WHERE label = 'ordered' AND priority = -1});
# while the higher lane is being read, tasks of the lower one run
cmp_ok($before, '<', 1000, 'tasks of high priority are not behind all those of low priority');
cmp_ok($between, '>=', 6, 'of 16 tasks one is of low priority');
cmp_ok($between, '<=', 7, 'and only one');

# All priorities at once: of 33 tasks 15 are of the highest, and one of each other.
set_queue('many', max_running => 1, paused => 'true');
query(q{SELECT put('many', 'anna', 60, format('INSERT INTO ran (label, priority) VALUES (''many'', %s)', p), p) FROM generate_series(-9, 9) p});
wait_for($node, q{SELECT count(*) = 19 AND bool_and(state = 'paused' AND ready > 0) FROM delay_wheel.lanes WHERE queue = 'many'},
	'lanes of all priorities are paused');
set_queue('many', max_running => 1);
wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'many' AND priority = 9}, 'resumed, they run', 120, expected => 60);
is(query(q{
	WITH high AS (SELECT min(n), max(n) FROM ran WHERE label = 'many' AND priority = 9)
	SELECT count(*), min(runs) BETWEEN 3 AND 4, max(runs) BETWEEN 3 AND 4
	FROM (SELECT priority, count(*) AS runs FROM ran, high WHERE label = 'many' AND n BETWEEN min AND max AND priority < 9 GROUP BY priority) r}),
	'18|t|t', 'while 60 of the highest run, each other priority has 3 or 4');

#
# Queues take turns: one with 100,000 due tasks does not hold another one up.
#
query(q{DELETE FROM delay_wheel_data.task});
set_queue('flood');
set_queue('other');
# of two lanes, so that the owner has no executor to spare
query(qq{SELECT put('flood', 'anna', 50000, 'SELECT take(''flood'', 1)', $_)}) for 0, 1;
wait_for_count('flood', 100, 'a queue is flooded');
query(q{SELECT put('other', 'anna', 50, 'INSERT INTO ran (label, due) VALUES (''other'', $due)', 0, clock_timestamp() + '1 s', '40 ms')});
wait_for_count('other', 50, 'tasks of another one run');
cmp_ok(query(q{SELECT count(*) FROM ran WHERE label = 'flood'}), '<', 100000, 'before the flood is over');
my ($late, $median, $passed, $most_passed) = split /\|/, query(q{
	SELECT round(extract(epoch FROM max(o.began - o.due)), 3), round((extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY o.began - o.due)) * 1000)::numeric, 3),
		percentile_disc(0.5) WITHIN GROUP (ORDER BY f.count), max(f.count)
	FROM ran o, LATERAL (SELECT count(DISTINCT xmin::text) FROM ran WHERE label = 'flood' AND began BETWEEN o.due AND o.began) f
	WHERE o.label = 'other'});
note("at most $late s late, $median ms at the median; behind $passed transactions of the flood at the median, $most_passed at most");
cmp_ok($late, '<', 1, 'on time');
# one batch goes before it by turn; others while the timer hands it over
cmp_ok($passed, '<=', 3, 'at their turn');

$node->stop;

#
# A paused queue with far more due tasks than memory has places for.
#
$node = new_node('small', conf => q{
log_statement = none
autovacuum = off
delay_wheel.max_executors = 3
delay_wheel.ring_memory = 48kB
delay_wheel.inbox_size = 16
delay_wheel.executor_idle_timeout = 1d
});
query($setup);
query('CREATE DATABASE elsewhere');
set_queue('held', paused => 'true');
set_queue('open');
query(q{
	SELECT put('held', 'anna', 100000, 'INSERT INTO ran (label, due) VALUES (''held'', $due)', 0, clock_timestamp(), '-1 ms');
	SELECT put('open', 'anna', 100, 'INSERT INTO ran (label, due) VALUES (''open'', $due)', 0, clock_timestamp() + '1 s', '50 ms')});
wait_for_count('open', 100, 'tasks of another queue run beside a paused one');
cmp_ok(query(q{SELECT extract(epoch FROM max(began - due)) FROM ran WHERE label = 'open'}), '<', 3, 'they are on time');
is(query(q{SELECT count(*) FROM ran WHERE label = 'held'}), 0, 'no task of the paused one runs');
is(query(q{SELECT memory_used <= memory_limit FROM delay_wheel.status}), 't', 'memory is within its limit');
is(query(q{SELECT state, ready > 0, ready < 2000, done FROM delay_wheel.queues WHERE name = 'held'}), 'paused|t|t|0', 'the view queues says how it stands');

sub switches
{
	return join ' ', map { $_ . ' ' . (context_switches($_) // 'gone') } worker_pids($node, undef, 'elsewhere');
}

SKIP:
{
	skip 'this system does not count context switches', 2 unless defined context_switches($$);
	my $last = '';

	ok(wait_until(60, sub {
		my $same = $last eq switches();
		$last = switches();
		sleep(1) unless $same;
		return $same;
	}), 'our processes come to rest');
	sleep(10);
	is(switches(), $last, 'none wakes for the tasks that are paused');
}

query(q{DELETE FROM delay_wheel_data.task WHERE due > (SELECT due FROM delay_wheel_data.task ORDER BY due OFFSET 2000 LIMIT 1)});
my $left = query(q{SELECT count(*) FROM delay_wheel_data.task});
set_queue('held');
wait_for_count('held', $left, 'resumed, its tasks run');
is(query(q{SELECT count(*) FROM (SELECT due < lag(due) OVER (ORDER BY n) AS early FROM ran WHERE label = 'held') o WHERE early}), 0,
	'in due order');
$node->stop;

done_testing();
