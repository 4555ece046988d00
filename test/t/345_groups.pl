# Groups of tasks: they take turns, and their limits hold across executors, roles and
# priorities, in batches, after rollbacks, restarts and kills, and with fewer places in
# memory than there are groups; what is counted of a group is never left over.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = q{
log_statement = none
autovacuum = off
restart_after_crash = on
delay_wheel.max_executors = 6
};
my $setup = q{
	CREATE ROLE anna LOGIN; CREATE ROLE berta LOGIN;
	CREATE TABLE ran (n bigserial, label text, of text, role name DEFAULT current_user, xid xid8 DEFAULT pg_current_xact_id(),
		began timestamptz DEFAULT clock_timestamp(), ended timestamptz);
	GRANT ALL ON ran, ran_n_seq TO PUBLIC;
	SELECT delay_wheel.allow('public');
	CREATE FUNCTION take(label text, of text, ms int) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE began timestamptz = clock_timestamp();
		BEGIN
			PERFORM pg_sleep(ms / 1000.0);
			INSERT INTO ran (label, of, began, ended) VALUES (label, of, began, clock_timestamp());
		END
	$$;
	-- n tasks of each group, of this role
	CREATE FUNCTION put(queue_name text, role regrole, groups text[], n int, sql text, priority int DEFAULT 0,
		due timestamptz DEFAULT now()) RETURNS void LANGUAGE sql AS $$
		INSERT INTO delay_wheel_data.task (due, owner, queue, priority, sql, group_key)
		SELECT put.due, role, q.id, put.priority, replace(put.sql, '$of', quote_literal(g)), g
		FROM delay_wheel_data.queue q, generate_series(1, n), unnest(put.groups) g
		WHERE q.name = queue_name
	$$;
	-- the most tasks of one group that ran at a time, by what they wrote
	CREATE FUNCTION overlap(which text) RETURNS bigint LANGUAGE sql AS $$
		SELECT max(at_once) FROM (
			SELECT sum(step) OVER (PARTITION BY of ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS at_once
			FROM ran, LATERAL (VALUES (began, 1), (ended, -1)) v(at, step) WHERE label = which) s
	$$;
};
my $node = new_node('groups', conf => $conf, batches => 1);

sub query { return $node->safe_psql('postgres', $_[0]); }

sub wait_for_count
{
	my ($label, $count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT count(*) FROM ran WHERE label = '$label'", $what, 120, expected => $count)
	  || diag(query('SELECT * FROM delay_wheel.lanes'));
}

# A task of each group runs, one at a time: nothing of them is counted as running.
sub nothing_left_over
{
	my ($queue, $label, @groups) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $list = join ',', @groups;

	query("SELECT delay_wheel.create_queue('$queue', users => '{public}', options => '{\"group_max_running\": 1}')");
	query("SELECT put('$queue', '$_', '{$list}', 2, 'SELECT take(''$label'', \$of, 1)')") for qw(anna berta);
	wait_for_count($label, 4 * @groups, 'a task of each group can be begun again');
	is(query("SELECT overlap('$label')"), 1, 'one at a time');
	is(query("SELECT sum(running) FROM delay_wheel.lanes WHERE queue = '$queue'"), 0, 'none is counted as running');
	return;
}

sub timer { return query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'postgres'}); }

query($setup);

#
# Turns: a group with many tasks does not hold up those with few, and these have one each in turn.
#
query(q{SELECT delay_wheel.create_queue('turns', groups => true, options => '{"batch": false}'); SELECT delay_wheel.pause_queue('turns')});
query(q{SELECT put('turns', 'anna', '{big}', 20000, 'INSERT INTO ran (label, of) VALUES (''turns'', $of)');
	SELECT put('turns', 'anna', '{a,b,c}', 100, 'INSERT INTO ran (label, of) VALUES (''turns'', $of)')});
query(q{INSERT INTO delay_wheel_data.task (due, owner, queue, sql)
	SELECT now(), 'anna'::regrole, id, 'INSERT INTO ran (label, of) VALUES (''turns'', ''none'')' FROM delay_wheel_data.queue, generate_series(1, 100) WHERE name = 'turns'});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'turns'}, 'of each group a thousand tasks are in memory at most', 60, expected => 1400);
query(q{SELECT delay_wheel.resume_queue('turns')});
wait_for($node, q{SELECT count(*) >= 400 FROM ran WHERE label = 'turns' AND of <> 'big'}, 'small groups are through');
# but for the last few, one for each executor, which may stand still for a while; and from the first one
# on: the end of the pause has all of them read again, those of the big one first
is(query(q{
	WITH last AS (SELECT n FROM ran WHERE label = 'turns' AND of <> 'big' ORDER BY n LIMIT 1 OFFSET 394)
	SELECT count(*) < 1000 FROM ran, last WHERE label = 'turns' AND of = 'big' AND ran.n < last.n
		AND ran.n > (SELECT min(n) FROM ran WHERE label = 'turns' AND of <> 'big')}), 't',
	'while the big one had its turns, and no more');
# those without a group may be read last
is(query(q{
	WITH first AS (SELECT greatest((SELECT n FROM ran WHERE label = 'turns' AND of <> 'big' ORDER BY n LIMIT 1 OFFSET 20),
			(SELECT min(n) FROM ran WHERE label = 'turns' AND of = 'none')) AS n),
		few AS (SELECT of, count(*) FROM ran, first WHERE label = 'turns' AND ran.n BETWEEN first.n + 10 AND first.n + 109 GROUP BY of)
	SELECT count(*), min(count) >= 14, max(count) <= 26 FROM few}), '5|t|t', 'each group has its turn, and those without a group share one');
query(q{DELETE FROM delay_wheel_data.task});

#
# Batches: some of one group share a transaction if the limit allows; they are undone, tasks are
# cancelled, moved and paused meanwhile.  After a crash there are none for a while, so this comes first.
#
query(q{SELECT delay_wheel.create_queue('batch', groups => true, options => '{"group_max_running": 3}'); SELECT delay_wheel.pause_queue('batch')});
query(q{SELECT put('batch', 'anna', '{a,b,c,d}', 2000, 'INSERT INTO ran (label, of) VALUES (''batch'', $of)')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'batch'}, 'tasks are in memory', 60, expected => 4000);
query(q{SELECT put('batch', 'anna', '{a,b}', 20, 'SELECT 1/0')});
query(q{DELETE FROM delay_wheel_data.task WHERE id IN (SELECT id FROM delay_wheel.tasks WHERE queue = 'batch' AND sql !~ '/' ORDER BY id LIMIT 2000);
	UPDATE delay_wheel_data.task SET due = due + '1 ms' WHERE id IN (SELECT id FROM delay_wheel.tasks WHERE queue = 'batch' AND sql !~ '/' ORDER BY id DESC LIMIT 2000)});
query(q{SELECT delay_wheel.resume_queue('batch')});
wait_for($node, q{SELECT count(*) >= 500 FROM ran WHERE label = 'batch'}, 'they run in batches');
query(q{SELECT delay_wheel.pause_queue('batch'), delay_wheel.resume_queue('batch'), delay_wheel.pause_queue('batch')});
query(q{SELECT delay_wheel.resume_queue('batch')});
wait_for_count('batch', 6000, 'those that are left run');
my $together = query(q{SELECT max(count) FROM (SELECT count(*) FROM ran WHERE label = 'batch' GROUP BY xid, of) s});
cmp_ok($together, '<=', 3, 'of one group no more in a transaction than may run');
cmp_ok($together, '>', 1, 'but several');
# those that are cancelled before they are due are still in memory, and found gone
query(q{SELECT put('batch', 'anna', '{a,b,c,d}', 300, 'INSERT INTO ran (label, of) VALUES (''batch gone'', $of)', 0, now() + interval '5 s')});
wait_for($node, q{SELECT near FROM delay_wheel.queues WHERE name = 'batch'}, 'tasks are in memory', 60, expected => 1200);
query(q{SELECT count(delay_cancel(id)) FROM (SELECT id FROM delay_wheel.tasks WHERE queue = 'batch' AND id % 3 = 0) t});
my $left = query(q{SELECT (SELECT count(*) FROM delay_wheel.tasks WHERE queue = 'batch') + (SELECT count(*) FROM ran WHERE label = 'batch gone')});
wait_for_count('batch gone', $left, 'those between them run');
# executors remember where the rows of the next ids are, and then these are elsewhere
query(q{SELECT count(delay_schedule_task($$INSERT INTO ran (label, of) VALUES ('batch moved', $1)$$, args => ARRAY['g' || i % 8],
	due => now() + interval '3 s' + i % 2 * interval '5 s', queue => 'batch', group_key => 'g' || i % 8)) FROM generate_series(1, 1600) i});
wait_for($node, q{SELECT near FROM delay_wheel.queues WHERE name = 'batch'}, 'tasks are in memory', 60, expected => 1600);
wait_for_count('batch moved', 800, 'every other one runs');
query(q{VACUUM FULL delay_wheel_data.task});
wait_for_count('batch moved', 1600, 'and the others, whose rows have been moved');
nothing_left_over('batch', 'batch again', qw(a b c d));

#
# group_max_running, of two roles and two priorities, while executors and timer are killed.
#
query(q{SELECT delay_wheel.create_queue('narrow', groups => true, options => '{"group_max_running": 2}')});
for my $role (qw(anna berta))
{
	query("SELECT put('narrow', '$role', '{a,b}', 120, 'SELECT take(''narrow'', \$of, 30)', $_)") for 0, 5;
	query("SELECT put('narrow', '$role', '{a}', 1, 'SELECT 1/0', $_)") for 0, 5;
}
sub an_executor
{
	my $pid;

	wait_until(60, sub { return $pid = query('SELECT pid FROM delay_wheel.running ORDER BY since DESC LIMIT 1') })
	  or die 'no task runs: ' . query(q{SELECT string_agg(concat_ws(', ', queue, owner, state, reason, running, ready, near), '; ') FROM delay_wheel.lanes})
	  . query(q{SELECT ' tasks: ' || count(*) FROM delay_wheel.tasks});
	return $pid;
}
wait_for($node, q{SELECT count(*) >= 60 FROM ran WHERE label = 'narrow'}, 'tasks of two groups run');
query('SELECT pg_terminate_backend(' . an_executor() . ')');
wait_for($node, q{SELECT count(*) >= 100 FROM ran WHERE label = 'narrow'}, 'an executor is terminated');
query('SELECT pg_terminate_backend(' . timer() . ')');
wait_for($node, q{SELECT count(*) >= 180 FROM ran WHERE label = 'narrow'}, 'the timer is terminated');
kill 'KILL', an_executor();
wait_for_count('narrow', 960, 'an executor is killed; all run in the end');
is(query(q{SELECT overlap('narrow')}), 2, 'never more than two of a group at a time');
is(query(q{SELECT count(DISTINCT of || role) FROM ran WHERE label = 'narrow'}), 4, 'tasks of all roles and groups ran');
is(query(q{SELECT max(at_once) > 2 FROM (SELECT sum(step) OVER (ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS at_once
	FROM ran, LATERAL (VALUES (began, 1), (ended, -1)) v(at, step) WHERE label = 'narrow') s}), 't', 'more than two tasks of both groups ran at a time');
nothing_left_over('narrow', 'narrow again', qw(a b));

#
# Views say why nothing is begun.
#
query(q{SELECT delay_wheel.create_queue('stuck', groups => true, options => '{"group_max_running": 1}');
	SELECT put('stuck', 'anna', '{a}', 3, 'SELECT pg_sleep(1000)')});
wait_for($node, q{SELECT state, reason, running, ready FROM delay_wheel.lanes WHERE queue = 'stuck'}, 'the view lanes says so', 60,
	expected => 'limited|limits of groups|1|2');
is(query(q{SELECT state, reason, groups, group_max_running, group_rate, group_per, group_burst FROM delay_wheel.queues WHERE name = 'stuck'}),
	'limited|limits of groups|t|1|||', 'and the view queues');
query(q{SELECT put('stuck', 'anna', '{b}', 1, 'INSERT INTO ran (label, of) VALUES (''stuck'', $of)')});
wait_for_count('stuck', 1, 'another group goes on');
query(q{SELECT delay_wheel.create_queue('stuck', options => '{"group_max_running": 2}')});
wait_for($node, q{SELECT running FROM delay_wheel.lanes WHERE queue = 'stuck'}, 'a higher limit holds at once', 60, expected => 2);
query(q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'stuck' ORDER BY id DESC});
query(q{SELECT delay_cancel(task, true) FROM delay_wheel.running});
wait_for($node, q{SELECT count(*) FROM delay_wheel.tasks WHERE queue = 'stuck'}, 'tasks are stopped', 60, expected => 0);
nothing_left_over('stuck', 'stuck again', qw(a b));

#
# group_rate
#
query(q{SELECT delay_wheel.create_queue('rated', groups => true, options => '{"group_rate": 600, "group_per": "1 minute", "group_burst": 3}')});
query("SELECT put('rated', '$_', '{a,b}', 12, 'INSERT INTO ran (label, of) VALUES (''rated'', \$of)')") for qw(anna berta);
query(q{SELECT put('rated', 'anna', '{a}', 5, 'INSERT INTO ran (label, of) VALUES (''rated'', $of)', 5)});
wait_for_count('rated', 53, 'tasks with a rate for each group run');
# 10 a second, three at once, and 2 ms for what lies between start and clock
is(query(q{SELECT count(*) FROM (SELECT began - lag(began, 3) OVER (PARTITION BY of ORDER BY began) AS gap FROM ran WHERE label = 'rated') g WHERE gap < '98 ms'}), 0,
	'no fourth one of a group within the time for one');
is(query(q{SELECT of, extract(epoch FROM max(began) - min(began)) >= (count(*) - 3) * 0.1 - 0.002 FROM ran WHERE label = 'rated' GROUP BY of ORDER BY of}),
	"a|t\nb|t", 'the rate holds for all roles and priorities together');
is(query(q{SELECT max(began) - min(began) < '20 s' FROM ran WHERE label = 'rated'}), 't', 'and for each group by itself');
query(q{SELECT delay_wheel.create_queue('rated', options => '{"group_rate": 0}')});
nothing_left_over('rated', 'rated again', qw(a b));

#
# group_order: one after the other, by due time and id, of several roles and priorities, while
# executors and the timer are killed, and tasks fail, come late, are moved and locked.
#
query(q{
	SELECT delay_wheel.create_queue('ordered', groups => true, max_attempts => 3, users => '{public}', options => '{"group_order": "hold", "retry_delay": "20 ms"}');
	SELECT delay_wheel.create_queue('passing', groups => true, max_attempts => 3, users => '{public}', options => '{"group_order": "pass", "retry_delay": "2 s"}');
	CREATE SEQUENCE tries; GRANT ALL ON tries TO PUBLIC;
	-- writes down its due time and id; fails as long as its row says so
	CREATE TABLE plan (task bigint, label text, of text, due timestamptz);
	CREATE FUNCTION step(label text, of text, ms int, fails int DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE began timestamptz = clock_timestamp(); id bigint = current_setting('delay_wheel.task_id');
		BEGIN
			PERFORM pg_sleep(ms / 1000.0);
			IF fails > 0 AND nextval('tries') <= fails THEN RAISE 'not yet'; END IF;
			INSERT INTO ran (label, of, began, ended, xid) SELECT label, of, began, clock_timestamp(), id::text::xid8;
		END
	$$;
	-- notes the order in which the pending tasks of a queue are to run
	CREATE FUNCTION note(queue_name text) RETURNS bigint LANGUAGE sql AS $$
		WITH noted AS (INSERT INTO plan SELECT t.id, queue_name, t.group_key, t.due FROM delay_wheel.tasks t
			WHERE t.queue = queue_name AND t.id NOT IN (SELECT task FROM plan) RETURNING 1)
		SELECT count(*) FROM noted
	$$;
	-- how many began before one of their group that comes before them had ended
	CREATE FUNCTION overtakers(which text) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM (
			SELECT r.began, max(r.ended) OVER (PARTITION BY p.of ORDER BY p.due, p.task ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM plan p JOIN ran r ON r.label = p.label AND r.xid = p.task::text::xid8 WHERE p.label = which) o
		WHERE began < before
	$$;
});
query(q{SELECT delay_wheel.pause_queue('ordered')});
for my $i (0 .. 3)
{
	# the same due time for many, and others before and after it
	query("SELECT put('ordered', '$_', '{a,b,c}', 12, 'SELECT step(''ordered'', \$of, 12)', $i % 2, now() - interval '$i s')") for qw(anna berta);
	query("SELECT put('ordered', 'anna', '{a,b,c}', 3, 'SELECT step(''ordered'', \$of, 12)', 0, now() - make_interval(secs => i)) FROM generate_series(1, 8) i");
}
query(q{SELECT put('ordered', 'berta', '{a}', 1, 'SELECT step(''ordered'', $of, 0, 2)', 0, now() - interval '2 s')});
query(q{SELECT note('ordered'); SELECT delay_wheel.resume_queue('ordered')});
wait_for($node, q{SELECT count(*) >= 50 FROM ran WHERE label = 'ordered'}, 'tasks of ordered groups run');
query('SELECT pg_terminate_backend(' . an_executor() . ')');
wait_for($node, q{SELECT count(*) >= 100 FROM ran WHERE label = 'ordered'}, 'an executor is terminated');
query('SELECT pg_terminate_backend(' . timer() . ')');
wait_for($node, q{SELECT count(*) >= 200 FROM ran WHERE label = 'ordered'}, 'the timer is terminated');
kill 'KILL', an_executor();
wait_for_count('ordered', 289 + 288, 'an executor is killed; all run in the end');
is(query(q{SELECT overlap('ordered')}), 1, 'never two of a group at a time');
is(query(q{SELECT overtakers('ordered')}), 0, 'in the order of due times and ids, whatever their owners and priorities');
is(query(q{SELECT last_value >= 3 FROM tries}), 't', 'also behind one that had failed twice');

# one that comes late, with a due time that has passed, is next
query(q{SELECT delay_wheel.pause_queue('ordered'); SELECT put('ordered', 'anna', '{late}', 20, 'SELECT step(''late'', $of, 30)'); SELECT delay_wheel.resume_queue('ordered')});
wait_for($node, q{SELECT count(*) >= 3 FROM ran WHERE label = 'late'}, 'tasks of another group run');
query(q{SELECT put('ordered', 'berta', '{late}', 1, 'SELECT step(''late'', ''first'', 0)', 9, now() - interval '1 day')});
wait_for_count('late', 21, 'all of it run');
cmp_ok(query(q{SELECT count(*) FROM ran WHERE label = 'late' AND n < (SELECT n FROM ran WHERE label = 'late' AND of = 'first')}), '<', 18, 'what comes late goes first');

# one whose row is locked holds its group back, and no other one
query(q{SELECT delay_wheel.pause_queue('ordered'); SELECT put('ordered', 'anna', '{locked,free}', 3, 'SELECT step(''locked'', $of, 0)')});
my $locker = $node->background_psql('postgres');
$locker->query_safe(q{BEGIN; SELECT id FROM delay_wheel_data.task WHERE group_key = 'locked' ORDER BY due, id LIMIT 1 FOR UPDATE});
query(q{SELECT delay_wheel.resume_queue('ordered')});
wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'locked' AND of = 'free'}, 'another group runs', 60, expected => 3);
is(query(q{SELECT count(*) FROM ran WHERE label = 'locked' AND of = 'locked'}), 0, 'one whose first task is locked does not');
$locker->query_safe(q{SELECT delay_cancel(id) FROM delay_wheel_data.task WHERE group_key = 'locked' ORDER BY due, id LIMIT 1; COMMIT});
$locker->quit;
wait_for_count('locked', 5, 'when it is cancelled the others run');

# one that is paused holds those of other roles back
query(q{SET SESSION AUTHORIZATION anna; SELECT delay_pause_all()});
query(q{SELECT put('ordered', 'anna', '{paused}', 1, 'SELECT step(''paused'', ''first'', 0)'); SELECT put('ordered', 'berta', '{paused}', 2, 'SELECT step(''paused'', $of, 0)')});
wait_for($node, q{SELECT count(*) = 1 FROM delay_wheel.lanes WHERE queue = 'ordered' AND owner = 'berta' AND reason = 'limits of groups' AND ready = 2}, 'the view lanes says so');
query(q{SET SESSION AUTHORIZATION anna; SELECT delay_resume_all()});
wait_for_count('paused', 3, 'resumed, they run');
is(query(q{SELECT of FROM ran WHERE label = 'paused' ORDER BY n LIMIT 1}), 'first', 'in their order');

# a pause between attempts holds the group back, or not
query(q{SELECT setval('tries', 1, false)});
query("SELECT put('$_', 'anna', '{a}', 1, 'SELECT step(''$_ again'', ''fails'', 0, 1)'); SELECT put('$_', 'berta', '{a}', 3, 'SELECT step(''$_ again'', \$of, 0)')") for qw(passing);
wait_for_count('passing again', 4, 'one has failed, and was tried again');
is(query(q{SELECT string_agg(of, ' ' ORDER BY n) FROM ran WHERE label = 'passing again'}), 'a a a fails', 'the failed task runs after the tasks that passed it by');
query(q{SELECT setval('tries', 1, false); SELECT delay_wheel.create_queue('ordered', options => '{"retry_delay": "1 s"}')});
query(q{BEGIN; SELECT put('ordered', 'anna', '{a}', 1, 'SELECT step(''holding again'', ''fails'', 0, 1)'); SELECT put('ordered', 'berta', '{a}', 3, 'SELECT step(''holding again'', $of, 0)');
	SELECT note('ordered'); COMMIT});
wait_for_count('holding again', 4, 'one has failed, and was tried again');
is(query(q{SELECT string_agg(of, ' ' ORDER BY n) FROM ran WHERE label = 'holding again'}), 'fails a a a', 'the failed task runs before the tasks that it held back');
is(query(q{SELECT r.began >= p.due + interval '1 s' FROM ran r JOIN plan p ON r.xid = p.task::text::xid8 WHERE r.of = 'fails' AND r.label = 'holding again'}), 't', 'after its pause');

# one that holds its group back for an hour: what comes before it does not wait so long, nor do the others when it is cancelled
query(q{SELECT delay_wheel.create_queue('ordered', options => '{"retry_delay": "1 hour"}'); SELECT put('ordered', 'anna', '{hour}', 1, 'SELECT 1/0')});
wait_for($node, q{SELECT attempts FROM delay_wheel.tasks WHERE group_key = 'hour'}, 'one has failed', 60, expected => 1);
query("SELECT put('ordered', '$_', '{hour}', 2, 'SELECT step(''hour'', \$of, 0)')") for qw(anna berta);
wait_for($node, q{SELECT count(*) FROM delay_wheel.lanes WHERE queue = 'ordered' AND reason = 'limits of groups' AND ready >= 2}, 'it holds its group back', 60, expected => 2);
my $scheduled = query(q{SET SESSION AUTHORIZATION anna;
	SELECT now() FROM delay_schedule_task($$SELECT step('hour', 'before', 0)$$, due => now() - interval '1 day', queue => 'ordered', group_key => 'hour')});
wait_for_count('hour', 1, 'one that comes before it runs');
is(query("SELECT of, began < timestamptz '$scheduled' + interval '5 s' FROM ran WHERE label = 'hour'"), 'before|t', 'at once, and no other');
query(q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE group_key = 'hour' AND attempts = 1});
wait_for_count('hour', 5, 'when it is cancelled the others run');

# nor when the order becomes one in which they pass it by; it waits on
query(q{SELECT put('ordered', 'anna', '{passed by}', 1, 'SELECT 1/0')});
wait_for($node, q{SELECT attempts FROM delay_wheel.tasks WHERE group_key = 'passed by'}, 'one has failed', 60, expected => 1);
query("SELECT put('ordered', '$_', '{passed by}', 2, 'SELECT step(''passed by'', \$of, 0)')") for qw(anna berta);
wait_for($node, q{SELECT count(*) FROM delay_wheel.lanes WHERE queue = 'ordered' AND reason = 'limits of groups' AND ready >= 2}, 'it holds its group back', 60, expected => 2);
query(q{SELECT delay_wheel.create_queue('ordered', options => '{"group_order": "pass"}')});
wait_for_count('passed by', 4, 'when others may pass it by they run');
is(query(q{SELECT count(*), max(attempts) FROM delay_wheel.tasks WHERE group_key = 'passed by'}), '1|1', 'and it is not tried before its time');
query(q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE group_key = 'passed by'});

query(q{SELECT delay_wheel.create_queue('ordered', options => '{"group_order": "any"}')});
nothing_left_over('ordered', 'ordered again', qw(a b c));

#
# The long version: a minute of tasks that come all the time, while executors and timers die.
#
if (long_tests())
{
	query(q{SELECT delay_wheel.create_queue('minute', groups => true, max_attempts => 3, options => '{"group_max_running": 2, "group_rate": 10, "group_burst": 2, "retry_delay": "10 ms"}');
		SELECT delay_wheel.create_queue('in order', groups => true, max_attempts => 3, options => '{"group_order": "hold", "retry_delay": "10 ms"}')});
	for my $role (qw(anna berta))
	{
		query(qq{INSERT INTO delay_wheel_data.task (due, owner, queue, priority, sql, group_key)
			SELECT clock_timestamp() + i * interval '25 ms', '$role'::regrole, q.id, i % 3, format('SELECT take(''minute'', %L, %s)', 'g' || i % 7, i % 40), 'g' || i % 7
			FROM delay_wheel_data.queue q, generate_series(1, 2400) i WHERE q.name = 'minute'});
		query(qq{INSERT INTO delay_wheel_data.task (due, owner, queue, priority, sql, group_key)
			SELECT clock_timestamp() + i / 3 * interval '75 ms', '$role'::regrole, q.id, i % 3, format('SELECT step(''in order'', %L, %s)', 'g' || i % 7, i % 10), 'g' || i % 7
			FROM delay_wheel_data.queue q, generate_series(1, 2400) i WHERE q.name = 'in order'});
	}
	query(q{SELECT note('in order'); CREATE TABLE killed (at timestamptz)});
	my $round = 0;
	ok(wait_until(300, sub {
		my (undef, $left) = try_psql($node, 'postgres', q{SELECT count(*) FROM delay_wheel.tasks WHERE queue IN ('minute', 'in order')});
		return 1 if defined $left && $left eq '0';
		my (undef, $pids) = try_psql($node, 'postgres', q{SELECT string_agg(pid::text, ' ' ORDER BY random()) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel executor'});
		my ($pid) = split / /, $pids // '';
		# two of three are only terminated
		if ($pid && $round % 3 == 0)
		{
			# after a crash nothing of a rate counts as used
			try_psql($node, 'postgres', 'INSERT INTO killed VALUES (clock_timestamp())');
			kill 'KILL', $pid;
		}
		kill 'TERM', $pid if $pid;
		try_psql($node, 'postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'}) if $round % 4 == 1;
		$round++;
		select(undef, undef, undef, 2);
		return 0;
	}), 'a minute of tasks, with kills');
	note("$round rounds of kills");
	is(query(q{SELECT count(*), count(DISTINCT n) FROM ran WHERE label = 'minute'}), '4800|4800', 'each has run once');
	cmp_ok(query(q{SELECT overlap('minute')}), '<=', 2, 'never more than two of a group at a time');
	# those that are taken at their time may begin some ms later
	is(query(q{SELECT count(*) FROM (SELECT began, count(*) OVER (PARTITION BY of ORDER BY began RANGE BETWEEN CURRENT ROW AND '1 s' FOLLOWING) AS n FROM ran WHERE label = 'minute') w
		WHERE n > 14 AND NOT EXISTS (SELECT FROM killed WHERE at BETWEEN began - interval '1 s' AND began + interval '2 s')}), 0,
		'never above the rate of a group');
	note('in a second of a group at most ' . query(q{SELECT max(n) FROM (SELECT count(*) OVER (PARTITION BY of ORDER BY began RANGE BETWEEN CURRENT ROW AND '1 s' FOLLOWING) AS n FROM ran WHERE label = 'minute') w}));
	is(query(q{SELECT count(*) FROM ran WHERE label = 'in order'}), 4800, 'each one in order has run once');
	is(query(q{SELECT overlap('in order')}), 1, 'never two of a group at a time');
	is(query(q{SELECT overtakers('in order')}), 0, 'none has overtaken another one');
}

#
# Executors that sleep are woken at once, also for a lane of another role: the best of some rounds,
# since the timer looks each half second while tasks run.
#
sub best_round
{
	my ($queue, $label, $expected, @puts) = @_;

	for my $round (1 .. 5)
	{
		query("SELECT delay_wheel.pause_queue('$queue')");
		query("SELECT put('$queue', $_)") for @puts;
		wait_for($node, "SELECT ready FROM delay_wheel.queues WHERE name = '$queue'", "tasks are ready, round $round", 60, expected => $expected);
		query("SELECT delay_wheel.resume_queue('$queue')");
		wait_for_count($label, $round * $expected, "they run, round $round");
	}
	return query("SELECT min(late) < '400 ms' FROM (SELECT max(began) - min(began) AS late FROM
		(SELECT began, (row_number() OVER (ORDER BY began) - 1) / $expected AS round FROM ran WHERE label = '$label') r GROUP BY round) l");
}
query(q{SELECT delay_wheel.create_queue('idle', users => '{public}', options => '{"batch": false}')});
query("SELECT put('idle', '$_', '{x}', 3, 'SELECT take(''idle'', \$of, 500)')") for qw(anna berta);
wait_for_count('idle', 6, 'both roles have executors');
query(q{SELECT delay_wheel.create_queue('woken', groups => true, options => '{"group_max_running": 1}')});
is(best_round('woken', 'woken', 3, q{'anna', '{a,b}', 1, 'SELECT take(''woken'', $of, 1200)'}, q{'berta', '{d}', 1, 'SELECT take(''woken'', $of, 0)'}),
	't', 'for one role and the other');
query(q{SELECT delay_wheel.create_queue('wakes', groups => true, options => '{"group_max_running": 1, "group_rate": 10, "group_per": "1 s", "group_burst": 1}')});
is(best_round('wakes', 'wakes', 2, map { "'$_', '{a}', 1, 'SELECT take(''wakes'', \$of, 30)'" } qw(anna berta)),
	't', 'when the rate allows the next one, after the end of the one before');

#
# A queue gets groups, and loses their limits, while its tasks are due and run.
#
query(q{SELECT delay_wheel.create_queue('changes', options => '{"batch": false}');
	SELECT put('changes', 'anna', '{a,b}', 300, 'SELECT take(''changes'', $of, 3)'),
		delay_schedule_task('SELECT 1', delay => '1 day', queue => 'changes', key => 'far')});
wait_for($node, q{SELECT count(*) >= 20 FROM ran WHERE label = 'changes'}, 'without groups all run together');
query(q{SELECT delay_wheel.create_queue('changes', groups => true, options => '{"group_max_running": 1}')});
wait_for($node, q{SELECT count(*) >= 200 FROM ran WHERE label = 'changes'}, 'then groups are declared');
my (undef, undef, $refused) = $node->psql('postgres', q{SELECT delay_wheel.create_queue('changes', groups => false, options => '{"group_max_running": 0}')});
like($refused, qr/queue "changes" has pending tasks/, 'they stay while tasks wait');
query(q{SELECT delay_wheel.create_queue('changes', options => '{"group_max_running": 0}')});
wait_for($node, q{SELECT count(*) >= 300 FROM ran WHERE label = 'changes'}, 'without a limit');
query(q{SELECT delay_wheel.create_queue('changes', options => '{"group_max_running": 1}')});
wait_for_count('changes', 600, 'each runs once');
is(query(q{SELECT count(DISTINCT n), count(*) FROM ran WHERE label = 'changes'}), '600|600', 'and no more');
query(q{SELECT delay_cancel(key => 'far', queue => 'changes')});
nothing_left_over('changes', 'changes again', qw(a b));

#
# Hints: tasks that are scheduled when they are due already, moved, put back, restored.
#
query(q{SELECT delay_wheel.create_queue('hints', groups => true, max_attempts => 3, users => '{public}', options => '{"group_max_running": 1, "retry_delay": "10 ms"}')});
query(q{SELECT delay_schedule_task($$SELECT take('hints', 'a', 20)$$, queue => 'hints', group_key => 'a') FROM generate_series(1, 20)});
query(q{BEGIN; SELECT delay_schedule_task($$SELECT take('hints', 'never', 20)$$, queue => 'hints', group_key => 'a'); ROLLBACK});
query(q{BEGIN; SAVEPOINT s; SELECT delay_schedule_task($$SELECT take('hints', 'never', 20)$$, queue => 'hints', group_key => 'a'); ROLLBACK TO s;
	SELECT delay_schedule_task($$SELECT take('hints', 'a', 20)$$, queue => 'hints', group_key => 'a'); COMMIT});
query(q{SELECT delay_schedule_task($$SELECT take('hints', 'a', 20)$$, delay => '1 hour', queue => 'hints', group_key => 'a', key => 'k');
	SELECT delay_reschedule(key => 'k', delay => '0 s', queue => 'hints')});
query(q{SELECT delay_schedule_task($$SELECT take('hints', 'a', 20) FROM (SELECT 1 / (currval('attempts') - 2) FROM nextval('attempts')) s$$, queue => 'hints', group_key => 'a')
	FROM (SELECT 1) s}) if query(q{CREATE SEQUENCE attempts START 2}) || 1;
wait_for_count('hints', 23, 'all of a group run');
is(query(q{SELECT overlap('hints')}), 1, 'one at a time');
is(query(q{SELECT count(*) FROM ran WHERE of = 'never'}), 0, 'none that was rolled back');
is(query(q{SELECT retried FROM delay_wheel.queues WHERE name = 'hints'}), 1, 'one in its second attempt');
query(q{SELECT delay_wheel.create_queue('hints', max_attempts => 1); SELECT delay_schedule_task('SELECT 1/0', queue => 'hints', group_key => 'a')});
wait_for($node, q{SELECT group_key FROM delay_wheel.failed WHERE queue = 'hints'}, 'a failed task says its group', 60, expected => 'a');
is(query(q{SELECT delay_wheel.pause_queue('hints'); SELECT delay_retry(id) IS NOT NULL FROM delay_wheel.failed WHERE queue = 'hints'; SELECT group_key FROM delay_wheel.tasks WHERE queue = 'hints'}),
	"t\nt\na", 'a task that was put back keeps its group');
query(q{DELETE FROM delay_wheel_data.task; SELECT delay_wheel.resume_queue('hints')});
nothing_left_over('hints', 'hints again', qw(a));

# a lower priority has one task in 16 also where a group's limit lets only one run at a time
query(q{SELECT delay_wheel.create_queue('ranked', groups => true, options => '{"group_max_running": 1}'); SELECT delay_wheel.pause_queue('ranked')});
query("SELECT put('ranked', 'anna', '{tenant}', 60, 'SELECT take(''ranked'', ''$_'', 0)', $_)") for 0, 3;
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'ranked'}, 'tasks of two priorities in one group are due', 60, expected => 120);
query(q{SELECT delay_wheel.resume_queue('ranked')});
wait_for_count('ranked', 120, 'all of them run');
is(query(q{SELECT count(*) FROM (SELECT of FROM ran WHERE label = 'ranked' ORDER BY n LIMIT 48) f WHERE of = '0'}), 3, 'of the first 48 three have the lower priority');

$node->stop;

#
# Fewer places in memory than groups, and little memory for tasks.
#
$node = new_node('few', conf => $conf . q{
delay_wheel.max_groups = 3
delay_wheel.ring_memory = 48kB
delay_wheel.inbox_size = 16
}, batches => 1);
query($setup);
query(q{SELECT delay_wheel.create_queue('few', groups => true, options => '{"group_max_running": 1}'); SELECT delay_wheel.create_queue('held', groups => true); SELECT delay_wheel.pause_queue('held')});
query(q{SELECT put('held', 'anna', (SELECT array_agg('h' || i) FROM generate_series(1, 50) i), 20, 'SELECT 1')});
wait_for($node, q{SELECT ready > 100 FROM delay_wheel.queues WHERE name = 'held'}, 'a paused queue takes all places');
query("SELECT put('few', '$_', (SELECT array_agg('g' || i) FROM generate_series(1, 40) i), 20, 'SELECT take(''few'', \$of, 1)')") for qw(anna berta);
query(q{SELECT put('few', 'anna', '{big}', 2000, 'SELECT take(''few'', $of, 0)')});
wait_for_count('few', 3600, 'with few places and little memory all tasks run');
is(query(q{SELECT overlap('few')}), 1, 'one of each group at a time');
is(query(q{SELECT memory_used <= memory_limit FROM delay_wheel.status}), 't', 'memory is within its limit');
$node->restart;
query(q{SELECT delay_wheel.resume_queue('held')});
wait_for($node, q{SELECT count(*) FROM delay_wheel.tasks}, 'those of the other queue, too, after a restart', 120, expected => 0);
nothing_left_over('few', 'few again', map { "g$_" } 1 .. 40);


# one with far more due tasks than memory has room for does not keep later ones out
query(q{SELECT delay_wheel.create_queue('crowd', groups => true); SELECT delay_wheel.pause_queue('crowd')});
query(q{SELECT put('crowd', 'anna', '{big}', 20000, 'INSERT INTO ran (label, of) VALUES (''crowd'', $of)', 0, now() - interval '1 hour');
	SELECT put('crowd', 'anna', '{small}', 10, 'INSERT INTO ran (label, of) VALUES (''crowd'', $of)')});
wait_for($node, q{SELECT ready < 100 FROM delay_wheel.queues WHERE name = 'crowd'}, 'a group that is large has few tasks in memory');
query(q{SELECT delay_wheel.resume_queue('crowd')});
wait_for_count('crowd', 20010, 'all of them run');
is(query(q{SELECT count(*) < 10000 FROM ran WHERE label = 'crowd' AND of = 'big' AND n < (SELECT max(n) FROM ran WHERE label = 'crowd' AND of = 'small')}), 't',
	'a small one, all of whose tasks are due later, has its turns meanwhile');
is(query(q{SELECT count(DISTINCT n) FROM ran WHERE label = 'crowd'}), 20010, 'each once');

# two roles share a group that runs one task at a time: neither occupies it
query(q{SELECT delay_wheel.create_queue('shared', groups => true, users => '{public}', options => '{"group_max_running": 1, "batch": false}')});
query(qq{SELECT put('shared', '$_', '{tenant}', 3000, 'SELECT take(''shared'', \$of, 1)')}) for qw(anna berta);
wait_for($node, q{SELECT count(*) >= 2000 FROM ran WHERE label = 'shared'}, 'tasks of two roles in one group run');
cmp_ok(query(q{SELECT min(count) FROM (SELECT count(*) FILTER (WHERE f.role = r.role) FROM unnest('{anna,berta}'::name[]) r(role),
	(SELECT role FROM ran WHERE label = 'shared' ORDER BY n LIMIT 2000) f GROUP BY r.role) c}), '>=', 400, 'each has a fifth of them at least');
is(query(q{SELECT overlap('shared')}), 1, 'one at a time');
query(q{SELECT delay_wheel.pause_queue('shared'); DELETE FROM delay_wheel_data.task WHERE queue = (SELECT id FROM delay_wheel_data.queue WHERE name = 'shared')});

# those of a large group that become due while it is loaded are loaded, too
query(q{SELECT delay_wheel.create_queue('stream', groups => true);
	SELECT put('stream', 'anna', '{a}', 4, 'INSERT INTO ran (label, of) VALUES (''stream'', $of)', 0, now() + interval '2 s' + i * interval '60 us')
	FROM generate_series(1, 20000, 4) i});
wait_for_count('stream', 20000, 'all of a group that become due one after the other run');
$node->stop;

#
# Groups in order, more of them than places: they wait for tasks of other priorities, which have no place.
#
$node = new_node('ordered', conf => $conf . q{
delay_wheel.max_groups = 3
delay_wheel.ring_memory = 48kB
delay_wheel.inbox_size = 16
}, batches => 1);
query($setup);
query(q{SELECT delay_wheel.create_queue('few ordered', groups => true, users => '{public}', options => '{"group_order": "hold"}')});
query(q{SELECT count(delay_schedule_task($$INSERT INTO ran (label, of, xid) VALUES ('few ordered', $1, (current_setting('delay_wheel.task_id'))::xid8)$$,
	args => ARRAY['g' || k % 25], queue => 'few ordered', group_key => 'g' || k % 25, priority => k % 3)) FROM generate_series(1, 600) k});
wait_for_count('few ordered', 600, 'groups in order run, too, with fewer places than groups');
is(query(q{SELECT count(*) FROM (SELECT xid, max(xid::text::bigint) OVER (PARTITION BY of ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
	FROM ran WHERE label = 'few ordered') s WHERE before > xid::text::bigint}), 0, 'in the order in which they were scheduled');
$node->stop;

done_testing();
