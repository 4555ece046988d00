# Commands that lock delay_wheel's tables while a long task runs: the task
# gives way and is run again, so that nobody who schedules a task has to wait
# for its end.  DROP EXTENSION by each path, idle, busy, and rolled back.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

# The promise is 2 s; machines that run tests may be loaded.
my $limit = 5;

my $node = new_node('locks', conf => q{
delay_wheel.executor_idle_timeout = 1h
lock_timeout = 60s
});
$node->safe_psql('postgres', q{
	CREATE ROLE builder SUPERUSER LOGIN;
	CREATE TABLE effect (name text);
	CREATE FUNCTION long_task(t text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (t);
		WHILE EXISTS (SELECT FROM pg_roles WHERE rolname = 'go_on') LOOP
			PERFORM pg_sleep(0.02);
		END LOOP;
	END $$;
});

my $id;

sub begin_work
{
	my ($sql, $what) = @_;

	$node->safe_psql('postgres', 'CREATE ROLE go_on');
	$id = $node->safe_psql('postgres', "SELECT delay_schedule('0', \$\$$sql\$\$)");
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', "$what: a long task runs", 60, expected => 1);
	return;
}

sub end_work
{
	my ($what) = @_;

	$node->safe_psql('postgres', 'DROP ROLE go_on');
	wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id = $id", "$what: it comes to its end", 60,
		expected => 0);
	is($node->safe_psql('postgres', "SELECT count(*) FROM effect WHERE name = 'long'"), 1,
		"$what: it has taken effect once");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, "$what: and not failed");
	$node->safe_psql('postgres', q{DELETE FROM effect});
	return;
}

sub in_time
{
	my ($begun, $what) = @_;
	my $took = time() - $begun;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	note(sprintf('%s: %.3f s', $what, $took));
	cmp_ok($took, '<', $limit, "$what: in time");
	return;
}

sub serves
{
	my ($what) = @_;
	my $begun = time();
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''after'')')});
	wait_for($node, q{SELECT count(*) > 0 FROM effect WHERE name = 'after'}, "$what: a new task runs");
	in_time($begun, "$what: the new task");
	return;
}

my $long = q{SELECT long_task('long')};

# it schedules something, too: so it has a lock on the sequence
my $scheduling = q{SELECT delay_schedule('1 day', 'SELECT 1'); SELECT long_task('long')};

# it has looked at the queues
my $looking = q{SELECT count(*) FROM delay_wheel.tasks; SELECT long_task('long')};

for (
	[ 'VACUUM FULL', $long, 'VACUUM FULL delay_wheel_data.task' ],
	[ 'CLUSTER', $long, 'CLUSTER delay_wheel_data.task USING task_pkey' ],
	($node->pg_version->major >= 19 ? [ 'REPACK', $long, 'REPACK delay_wheel_data.task USING INDEX task_pkey' ] : ()),
	[ 'REINDEX', $long, 'REINDEX TABLE delay_wheel_data.task' ],
	[ 'CREATE INDEX', $long, 'CREATE INDEX ON delay_wheel_data.task (tag)' ],
	[ 'ALTER TABLE', $long, 'ALTER TABLE delay_wheel_data.task ADD COLUMN theirs int' ],
	[ 'LOCK TABLE', $long, 'BEGIN; LOCK TABLE delay_wheel_data.task; COMMIT' ],
	[ 'ALTER SEQUENCE', $scheduling, 'ALTER SEQUENCE delay_wheel_data.task_id_seq CACHE 1' ],
	[ 'LOCK TABLE queue', $looking, 'BEGIN; LOCK TABLE delay_wheel_data.queue; COMMIT' ])
{
	my ($what, $task, $sql) = @$_;

	begin_work($task, $what);
	my $position = log_position($node);
	my $begun = time();
	$node->safe_psql('postgres', $sql);
	in_time($begun, $what);
	my $reason = qr/delay_wheel task $id is put back, because process \d+ waits for a lock on delay_wheel_data\.\w+/;
	ok(wait_until(60, sub { log_since($node, $position) =~ $reason }), "$what: the log tells why");
	serves($what);
	wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $id", "$what: the long task runs again", 60,
		expected => 1);
	end_work($what);
}

#
# Who schedules a task while somebody waits for the table.
#
begin_work($long, 'queued');
my $waiter = $node->background_psql('postgres');
$waiter->query_until(qr//, "VACUUM FULL delay_wheel_data.task;\n\\echo done\n");
my $begun = time();
$node->safe_psql('postgres', q{SELECT delay_schedule('1 day', 'SELECT 1')});
in_time($begun, 'delay_schedule() behind VACUUM FULL');
$waiter->quit;
end_work('queued');

#
# A lock that others hold: not the task's, which is left alone.
#
begin_work($long, 'lock of another session');
my $holder = $node->background_psql('postgres');
$holder->query_safe(q{BEGIN; SELECT nextval('delay_wheel_data.task_id_seq')});
my $pid = $node->safe_psql('postgres', 'SELECT pid FROM delay_wheel.running');
$waiter = $node->background_psql('postgres');
$waiter->query_until(qr//, "ALTER SEQUENCE delay_wheel_data.task_id_seq CACHE 1;\n\\echo done\n");
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'delay_wheel_data.task_id_seq'::regclass AND NOT granted},
	'somebody waits for another session', 60, expected => 1);
# some looks of the timer
sleep(2);
is($node->safe_psql('postgres', 'SELECT pid FROM delay_wheel.running'), $pid, 'the long task goes on');
$holder->query_safe('COMMIT');
$holder->quit;
$waiter->quit;
end_work('lock of another session');

#
# A task that wants the table for itself, while another one runs.
#
begin_work($long, 'task');
$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'LOCK TABLE delay_wheel_data.task; INSERT INTO effect VALUES (''lock'')')});
wait_for($node, q{SELECT count(*) FROM effect WHERE name = 'lock'}, 'a task gets a lock on the table', 60, expected => 1);
end_work('task');

#
# DROP EXTENSION.
#
$node->safe_psql('postgres', 'DROP EXTENSION delay_wheel');

sub create
{
	my ($where) = @_;

	# before there is a timer, which would start anew for it, a second after its start
	$node->safe_psql('postgres', 'ALTER ROLE ALL SET search_path = public, there');
	$node->safe_psql('postgres', "
		SET ROLE builder;
		CREATE SCHEMA there;
		CREATE EXTENSION delay_wheel $where");
	serves("CREATE EXTENSION $where");
	return;
}

for my $busy (0, 1)
{
	for my $sql ('DROP EXTENSION delay_wheel', 'DROP SCHEMA there CASCADE', 'DROP OWNED BY builder CASCADE')
	{
		my $what = "$sql, " . ($busy ? 'busy' : 'idle');

		create('SCHEMA there');
		my $kept = $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity WHERE backend_type = $$delay_wheel timer$$');
		begin_work($long, $what) if $busy;
		$begun = time();
		$node->safe_psql('postgres', "BEGIN; $sql; ROLLBACK");
		in_time($begun, "$what, rolled back");
		serves("$what, rolled back");
		if ($busy)
		{
			wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $id",
				"$what, rolled back: the long task runs again", 60, expected => 1);
		}
		is($node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity WHERE backend_type = $$delay_wheel timer$$'),
			$kept, "$what, rolled back: the timer is the same");

		$node->safe_psql('postgres', "BEGIN; SAVEPOINT s; $sql; ROLLBACK TO s; COMMIT");
		serves("$what, rolled back to a savepoint");

		$begun = time();
		$node->safe_psql('postgres', $sql);
		in_time($begun, $what);
		wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'delay_wheel (timer|executor)'},
			"$what: our sessions end", 60, expected => 0);
		$node->safe_psql('postgres', 'DROP ROLE go_on; DELETE FROM effect') if $busy;
		$node->safe_psql('postgres', 'DROP SCHEMA IF EXISTS there CASCADE');
	}
}

#
# A session waits for a task, with a lock of its transaction in the way of who
# wants the table, and thereby of the task.
#
create('SCHEMA public');
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
$id = $node->safe_psql('postgres', q{SELECT delay_schedule('5 s', 'INSERT INTO effect VALUES (''waited for'')')});
$waiter->query_until(qr/begun/, qq{BEGIN; SELECT count(*) FROM delay_wheel.tasks; \\echo begun\nSELECT delay_wait($id);\n});
$node->safe_psql('postgres', 'VACUUM FULL delay_wheel_data.task');
wait_for($node, q{SELECT count(*) FROM effect WHERE name = 'waited for'}, 'after a deadlock: the task runs', 60, expected => 1);
$waiter->quit;
like($waiter->{stderr}, qr/deadlock detected.*waits for task $id/s, 'who waited for it is told');
$node->safe_psql('postgres', 'DELETE FROM effect; DROP EXTENSION delay_wheel; DROP SCHEMA there');

#
# What PostgreSQL itself refuses.
#
create('SCHEMA there');
my ($out, $err);
$node->psql('postgres', 'ALTER EXTENSION delay_wheel SET SCHEMA public', stdout => \$out, stderr => \$err);
like($err, qr/extension "delay_wheel" does not support SET SCHEMA/, 'ALTER EXTENSION SET SCHEMA is refused');
$node->psql('postgres', 'DROP SCHEMA delay_wheel CASCADE', stdout => \$out, stderr => \$err);
like($err, qr/cannot drop schema delay_wheel because extension delay_wheel requires it/, 'DROP SCHEMA delay_wheel is refused');
serves('refused commands');

#
# ALTER EXTENSION UPDATE, with a script that adds a column.
#
SKIP:
{
	chomp(my $share = `$ENV{PG_CONFIG} --sharedir`);
	my $version = $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'delay_wheel'});
	my $script = "$share/extension/delay_wheel--$version--${version}test.sql";

	skip "$share/extension is not writable", 6 unless -w "$share/extension";
	append_to_file($script, q{
		ALTER TABLE delay_wheel_data.task ADD COLUMN extra int DEFAULT 7;
		CREATE FUNCTION delay_wheel.is_new() RETURNS bool LANGUAGE sql AS 'SELECT true';
	});
	begin_work($long, 'UPDATE');
	$begun = time();
	$node->safe_psql('postgres', "ALTER EXTENSION delay_wheel UPDATE TO '${version}test'");
	unlink($script);
	in_time($begun, 'UPDATE');
	serves('UPDATE');
	is($node->safe_psql('postgres', 'SELECT delay_wheel.is_new()'), 't', 'UPDATE: the new version is there');
	end_work('UPDATE');
}

$node->stop;
done_testing();
