# Rows move, vanish and give their places to others while memory holds where
# they were, in the ring or in the lists of groups: that is a miss and a look by
# id, never an error, and never another task's row.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = 5000;
# enough for what is done to the table in between
my $delay = '8 s';

my $node = new_node('stale', conf => "autovacuum = off\n");
$node->safe_psql('postgres', q{
	CREATE TABLE ran (n int, id bigint);
	CREATE FUNCTION schedule(first int, count int, delay interval) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(delay_schedule(delay, 'INSERT INTO ran VALUES ($1, current_setting(''delay_wheel.task_id'')::bigint)', first + i))
		FROM generate_series(0, count - 1) i
	$$;
});

# Fills the ring, does something to the table, and waits until the tasks with
# these numbers, and only they, have run.
sub check
{
	my ($what, $do, $from, $to) = @_;

	$node->safe_psql('postgres', "TRUNCATE ran; SELECT schedule(1, $n, '$delay')");
	my $begun = time();
	wait_for($node, 'SELECT near >= ' . $n . ' FROM delay_wheel.status', "$what: the ring is full");
	my $positions = $node->safe_psql('postgres', 'SELECT md5(string_agg(ctid::text, $$ $$ ORDER BY id)), count(*) FROM delay_wheel_data.task');
	$do->();
	isnt($node->safe_psql('postgres', 'SELECT md5(string_agg(ctid::text, $$ $$ ORDER BY id)), count(*) FROM delay_wheel_data.task'),
		$positions, "$what: rows have moved, or are gone");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM ran WHERE n > 0'), 0, "$what: before they were due")
	  or diag(sprintf('%.1f s after they were scheduled', time() - $begun));

	wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', "$what: all tasks run", 120);
	wait_for($node, 'SELECT near + ready = 0 FROM delay_wheel.status', "$what: nothing is left in memory");
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n), min(n), max(n) FROM ran'),
		join('|', $to - $from + 1, $to - $from + 1, $from, $to), "$what: each once, and no other");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, "$what: none failed");
}

check(
	'VACUUM FULL',
	sub {
		# those in front go, so that each of the others gets another place
		$node->safe_psql('postgres', q{
			SELECT delay_cancel(id) FROM delay_wheel_data.task ORDER BY id LIMIT 1000;
			VACUUM FULL delay_wheel_data.task;
		});
	},
	1001, $n);

check(
	'VACUUM with truncation',
	sub {
		my $size = 'SELECT pg_relation_size(\'delay_wheel_data.task\')';

		$node->safe_psql('postgres', 'ALTER TABLE delay_wheel_data.task SET (vacuum_truncate = on)');
		my $before = $node->safe_psql('postgres', $size);
		# by plain SQL, which tells nobody
		$node->safe_psql('postgres', q{
			DELETE FROM delay_wheel_data.task WHERE id NOT IN (SELECT id FROM delay_wheel_data.task ORDER BY id LIMIT 1000)});
		wait_until(60, sub {
			$node->safe_psql('postgres', 'VACUUM delay_wheel_data.task');
			return $node->safe_psql('postgres', $size) < $before;
		});
		cmp_ok($node->safe_psql('postgres', $size), '<', $before, 'the table has become smaller');
	},
	1, 1000);

check(
	'places of deleted rows given to others',
	sub {
		# the ring has these places for the deleted ones
		$node->safe_psql('postgres', q{
			CREATE TEMP TABLE place AS SELECT ctid AS place FROM delay_wheel_data.task;
			DELETE FROM delay_wheel_data.task;
			VACUUM delay_wheel_data.task;
			SELECT schedule(100001, 4000, '8 s');
			SELECT 1 / (SELECT count(*) FROM delay_wheel_data.task t JOIN place p ON t.ctid = p.place);
		});
	},
	100001, 104000);

check(
	'TRUNCATE',
	sub {
		$node->safe_psql('postgres', qq{
			TRUNCATE delay_wheel_data.task;
			SELECT schedule(200001, 3000, '$delay');
		});
	},
	200001, 203000);

# while they run
$node->safe_psql('postgres', q{
	TRUNCATE ran;
	SELECT schedule(i * 10, 10, make_interval(secs => i / 100.0)) FROM generate_series(1, 500) i;
});
my $rounds = 0;
wait_until(
	120,
	sub {
		$node->safe_psql('postgres', 'VACUUM FULL delay_wheel_data.task');
		$rounds++;
		return $node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task') == 0;
	});
note("$rounds times VACUUM FULL");
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'VACUUM FULL meanwhile: all tasks run', 120);
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM ran'), '5000|5000',
	'VACUUM FULL meanwhile: each once');

#
# Ready tasks of groups.  How often a row was looked for by its id, the index of ids says.
#
$node->safe_psql('postgres', q{
	SELECT delay_wheel.create_queue('grouped', groups => true, options => '{"group_max_running": 10}');
	-- so many tasks that are due, of 50 groups; no look for one comes by the id of another one
	CREATE FUNCTION put(first int, count int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO delay_wheel_data.task (id, due, owner, queue, sql, group_key)
		SELECT n * 300, now(), current_user::regrole, q.id, format('INSERT INTO ran VALUES (%s, current_setting(''delay_wheel.task_id'')::bigint)', n), 'g' || n % 50
		FROM delay_wheel_data.queue q, generate_series(first, first + count - 1) n WHERE q.name = 'grouped'
	$$;
});

# Waits until all processes have written down what they have counted.
sub looks_by_id
{
	my ($looks, $before) = (-1, -2);

	wait_until(60, sub {
		($before, $looks) = ($looks, $node->safe_psql('postgres', q{SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelname = 'task_pkey'}));
		sleep(1.5) if $looks != $before;
		return $looks == $before;
	});
	return $looks;
}

# As check(), with ready tasks of groups; returns how many were looked for by their ids.
sub check_groups
{
	my ($what, $do, $from, $to) = @_;

	# not by a pause: its end has the tasks read again
	$node->safe_psql('postgres', 'TRUNCATE ran; TRUNCATE delay_wheel_data.task; ALTER SYSTEM SET delay_wheel.enabled = off');
	$node->reload;
	wait_for($node, q{SELECT state = 'disabled' FROM delay_wheel.status}, "$what, groups: no task is begun");
	$node->safe_psql('postgres', "SELECT put(1, $n)");
	wait_for($node, "SELECT ready = $n FROM delay_wheel.queues WHERE name = 'grouped'", "$what, groups: tasks are ready");
	$do->();
	my $before = looks_by_id();
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET delay_wheel.enabled');
	$node->reload;
	wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', "$what, groups: all tasks run", 120);
	wait_for($node, 'SELECT near + ready = 0 FROM delay_wheel.status', "$what, groups: nothing is left in memory");
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n), min(n), max(n) FROM ran'),
		join('|', $to - $from + 1, $to - $from + 1, $from, $to), "$what, groups: each once, and no other");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, "$what, groups: none failed");
	return looks_by_id() - $before;
}

cmp_ok(check_groups('nothing', sub { }, 1, $n), '<', $n / 10, 'rows that have not moved are not looked for by their ids');
cmp_ok(check_groups('VACUUM FULL', sub {
		$node->safe_psql('postgres', q{
			SELECT delay_cancel(id) FROM delay_wheel_data.task ORDER BY id LIMIT 1000;
			VACUUM FULL delay_wheel_data.task;
		});
	}, 1001, $n), '>', 1000, 'those that have moved are');
check_groups('places of deleted rows given to others', sub {
		$node->safe_psql('postgres', q{
			CREATE TEMP TABLE place AS SELECT ctid AS place FROM delay_wheel_data.task;
			DELETE FROM delay_wheel_data.task;
			VACUUM delay_wheel_data.task;
			SELECT put(100001, 4000);
			SELECT 1 / (SELECT count(*) FROM delay_wheel_data.task t JOIN place p ON t.ctid = p.place);
		});
	}, 100001, 104000);

my @errors = grep { / (ERROR|FATAL|PANIC|WARNING): / } split /\n/, log_since($node, 0);
is(join("\n", @errors), '', 'no error in the log');

$node->stop;
done_testing();
