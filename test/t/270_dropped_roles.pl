# DROP ROLE does not know of tasks: those of a role that is gone fail, soon,
# with the reason, and without being in the way of others.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('dropped_roles', conf => q{
log_statement = none
# one for each role, so that tasks can be made to wait
delay_wheel.max_executors = 2
});
$node->safe_psql('postgres', q{
	GRANT INSERT ON delay_wheel.tasks TO PUBLIC;
	CREATE ROLE keeper LOGIN;
	CREATE TABLE effects (label text, who name DEFAULT current_user);
	GRANT ALL ON effects TO PUBLIC;
	CREATE DATABASE second;
	CREATE DATABASE without;
});
$node->safe_psql('second', 'CREATE EXTENSION delay_wheel; GRANT INSERT ON delay_wheel.tasks TO PUBLIC');

sub schedule
{
	my ($db, $role, $label, $delay, $n) = @_;

	return $node->safe_psql($db, sprintf(q{
		SET SESSION AUTHORIZATION %s;
		SELECT max(delay_schedule('%s', 'INSERT INTO public.effects VALUES ($1)', '%s')) FROM generate_series(1, %d)},
		$role, $delay, $label, $n // 1));
}

sub create_role
{
	my ($role) = @_;
	return $node->safe_psql('postgres', "CREATE ROLE $role LOGIN; SELECT oid FROM pg_roles WHERE rolname = '$role'");
}

# So many tasks of the role have failed, and none is pending.
sub all_failed
{
	my ($db, $oid, $n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, "SELECT (SELECT count(*) FROM delay_wheel_data.task WHERE owner = $oid), (SELECT count(*) FROM delay_wheel_data.failed_task WHERE owner = $oid)",
		$what, 60, db => $db, expected => "0|$n");
	return;
}

#
# Pending in two databases, soon and late; dropped in a third one, which does
# not have the extension.
#
my $position = log_position($node);
my $oid = create_role('gone');
my $id = schedule('postgres', 'gone', 'NEVER', '1 hour', 3);
schedule('postgres', 'gone', 'NEVER', '1 year', 2);
schedule('second', 'gone', 'NEVER', '1 hour');
my $kept = schedule('postgres', 'keeper', 'kept', '1 hour');
$node->safe_psql('without', 'BEGIN; DROP ROLE gone; ROLLBACK');
is($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.task WHERE owner = $oid"), 5, 'a DROP ROLE that is rolled back changes nothing');
$node->safe_psql('without', 'DROP ROLE gone');
all_failed('postgres', $oid, 5, 'after DROP ROLE its tasks fail');
all_failed('second', $oid, 1, 'in all databases');
is( $node->safe_psql('postgres', "SELECT owner, sqlstate, message, detail, attempts, sql, args FROM delay_wheel.failed WHERE id = $id"),
	"unknown (OID=$oid)|42704|role with OID $oid does not exist|The role that scheduled the task was dropped before the task was run.|0|INSERT INTO public.effects VALUES (\$1)|{NEVER}",
	'with the reason');
is($node->safe_psql('postgres', 'SELECT id, owner FROM delay_wheel.tasks'), "$kept|keeper", 'the task of another role is not concerned');
is($node->safe_psql('postgres', q{SELECT failed FROM delay_wheel.status WHERE database = 'postgres'}), 5, 'they are counted');
like(log_since($node, $position), qr/LOG:  5 pending tasks of the dropped role with OID $oid have failed/, 'the log tells');
unlike(log_since($node, $position), qr/FATAL/, 'nobody has tried to connect');
is($node->safe_psql('postgres', 'SET SESSION AUTHORIZATION keeper; SELECT count(*) FROM delay_wheel.failed'), 0,
	'other roles do not see them');

#
# Very many, while others' tasks are due: those are not late.
#
$oid = create_role('gone');
schedule('postgres', 'gone', 'NEVER', '1 hour', 30000);
my $on_time = $node->background_psql('postgres', on_error_stop => 1);
$on_time->query_safe(q{SET SESSION AUTHORIZATION keeper});
$node->safe_psql('postgres', 'DROP ROLE gone');
for my $i (1 .. 20)
{
	$on_time->query_safe(qq{SELECT delay_schedule('50 ms', 'INSERT INTO public.effects VALUES (''on time'')')});
}
$on_time->quit;
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'on time'}, 'others run meanwhile', 60, expected => 20);
cmp_ok($node->safe_psql('postgres', q{SELECT lateness_max FROM delay_wheel.status WHERE database = 'postgres'}), '<', 2000,
	'on time, by a generous limit');
all_failed('postgres', $oid, 30000, 'a role with 30,000 tasks');
is($node->safe_psql('postgres', 'SELECT id, owner FROM delay_wheel.tasks'), "$kept|keeper", 'nobody else is concerned');

#
# A session of the role that is still there: what it schedules, locks, or runs.
#
$oid = create_role('gone');
my $session = $node->background_psql('postgres', on_error_stop => 1, extra_params => [ '-U', 'gone' ]);
my $lock = $node->background_psql('postgres', on_error_stop => 1);
$id = schedule('postgres', 'gone', 'locked by its own session', '1 hour');
my $moved = schedule('postgres', 'gone', 'moved by its own session', '1 hour');
my $locked = schedule('postgres', 'gone', 'locked by a stranger', '1 hour');
schedule('postgres', 'gone', 'not locked', '1 hour', 2);
$session->query_safe("BEGIN; SELECT delay_cancel($id), delay_reschedule($moved, '2 hours')");
$lock->query_safe("BEGIN; SELECT FROM delay_wheel_data.task WHERE id = $locked FOR UPDATE");
$node->safe_psql('postgres', 'DROP ROLE gone');
wait_for($node, "SELECT count(*) FROM delay_wheel_data.failed_task WHERE owner = $oid", 'rows that are locked are left', 60, expected => 2);
schedule('postgres', 'keeper', 'meanwhile', '0');
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'meanwhile'}, 'nobody waits for them', 60, expected => 1);
$session->query_safe('ROLLBACK');
wait_for($node, "SELECT count(*) FROM delay_wheel_data.failed_task WHERE owner = $oid", 'they fail when the locks are gone', 60, expected => 4);
$session->query_safe(q{SELECT delay_schedule('0', 'INSERT INTO public.effects VALUES (''NEVER'')'), delay_schedule('1 hour', 'SELECT 1')});
wait_for($node, "SELECT count(*) FROM delay_wheel_data.failed_task WHERE owner = $oid", 'so do those that it schedules yet', 60, expected => 6);
$session->quit;
is($node->safe_psql('postgres', "SELECT id FROM delay_wheel_data.task WHERE owner = $oid"), $locked, 'one is still locked');
$lock->query_safe('ROLLBACK');
$lock->quit;
# a lock by plain SQL ends without a word; a look at everything finds it
$node->safe_psql('postgres', 'UPDATE delay_wheel_data.task SET due = due WHERE false');
all_failed('postgres', $oid, 7, 'a look at all of them finds it');

# One that runs just now comes to its end.
$oid = create_role('gone');
my $holder = $node->background_psql('postgres', on_error_stop => 1);
$holder->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION gone;
	SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock(1); INSERT INTO public.effects VALUES (''ran to its end'', ''gone'')')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a task runs', 60, expected => 1);
schedule('postgres', 'gone', 'NEVER', '0', 5);
wait_for($node, "SELECT ready FROM delay_wheel.status WHERE database = 'postgres'", 'others are due', 60, expected => 5);
$node->safe_psql('postgres', 'DROP ROLE gone');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'ran to its end'}, 'it comes to its end', 60, expected => 1);
all_failed('postgres', $oid, 5, 'the others fail');
wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE usesysid = $oid", 'nor are its executors', 60, expected => 0);

#
# Dropped while there is no timer; its tasks are overdue.
#
$oid = create_role('gone');
schedule('postgres', 'gone', 'NEVER', '1 hour', 10);
my $soon = schedule('postgres', 'keeper', 'after the restart', '1 hour');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
$node->safe_psql('postgres', qq{DROP ROLE gone; UPDATE delay_wheel_data.task SET due = now() - interval '1 day' WHERE owner = $oid OR id = $soon});
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
$node->restart;
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'after the restart'}, 'after a restart, others run', 60, expected => 1);
all_failed('postgres', $oid, 10, 'those of a role that was dropped meanwhile fail');

#
# Unarmed tasks are left as they are; so are the tasks of a role whose objects
# are given away, or dropped; a superuser can give tasks away.
#
$oid = create_role('gone');
$node->safe_psql('postgres', q{INSERT INTO delay_wheel_data.task (due, origin, owner, sql) VALUES (now(), 1, 'gone', 'SELECT 1')});
schedule('postgres', 'gone', 'given away', '1 hour');
$node->safe_psql('postgres', 'REASSIGN OWNED BY gone TO keeper; DROP OWNED BY gone');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.tasks WHERE owner = 'gone'}), 2,
	'REASSIGN OWNED and DROP OWNED leave tasks alone');
$node->safe_psql('postgres', q{UPDATE delay_wheel_data.task SET owner = 'keeper', due = now() WHERE owner = 'gone'::regrole AND origin <> 1; DROP ROLE gone});
wait_for($node, q{SELECT who FROM effects WHERE label = 'given away'}, 'a superuser can give tasks to another role', 60, expected => 'keeper');
# the timer has looked: another role's tasks, dropped after, are gone
my $next = create_role('another');
schedule('postgres', 'another', 'NEVER', '1 hour');
$node->safe_psql('postgres', 'DROP ROLE another');
all_failed('postgres', $next, 1, 'those of another role fail');
is($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.task WHERE owner = $oid"), 1, 'an unarmed task is left');
$node->safe_psql('postgres', "DELETE FROM delay_wheel_data.task WHERE owner = $oid");

#
# A prepared transaction of the role.
#
$oid = create_role('gone');
$node->safe_psql('postgres', q{
	SET SESSION AUTHORIZATION gone;
	BEGIN;
	SELECT delay_schedule('0', 'SELECT 1'), delay_schedule('1 hour', 'SELECT 1');
	PREPARE TRANSACTION 'of a role that is gone'});
$node->safe_psql('postgres', 'DROP ROLE gone');
$node->safe_psql('postgres', q{COMMIT PREPARED 'of a role that is gone'});
all_failed('postgres', $oid, 2, 'tasks of a prepared transaction fail when it is committed');

# Dropped by one, of which nobody is told: the next look at everything finds it.
$oid = create_role('gone');
schedule('postgres', 'gone', 'NEVER', '1 hour');
$node->safe_psql('postgres', q{
	BEGIN;
	DROP ROLE gone;
	PREPARE TRANSACTION 'drops a role'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'drops a role'});
$node->safe_psql('postgres', 'UPDATE delay_wheel_data.task SET due = due WHERE false');
all_failed('postgres', $oid, 1, 'a role that a prepared transaction has dropped');

#
# A new role that has the number of an old one is not confused with it.
#
$oid = create_role('gone');
schedule('postgres', 'gone', 'NEVER', '1 hour');
$node->safe_psql('postgres', 'DROP ROLE gone');
all_failed('postgres', $oid, 1, 'those of the old one fail');
$node->safe_psql('postgres', qq{
	SET allow_system_table_mods = on;
	CREATE ROLE reborn LOGIN;
	UPDATE pg_authid SET oid = $oid WHERE rolname = 'reborn'});
schedule('postgres', 'reborn', 'of the new one', '0');
wait_for($node, q{SELECT who FROM effects WHERE label = 'of the new one'}, 'those of the new one run', 60, expected => 'reborn');
is($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.failed_task WHERE owner = $oid"), 1, 'none of them has failed');

is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE label = 'NEVER'}), 0, 'no task of a role that is gone was run');
is($node->safe_psql('postgres', 'SELECT id FROM delay_wheel_data.task'), $kept, 'only the task of the other role is left');

$node->stop;

#
# In slices: between them the timer looks after everything else.
#
SKIP:
{
	skip 'needs the build with injection points', 4 unless has_injection();

	$node = new_node('slices', injection => 1, conf => "log_statement = none\n");
	$node->safe_psql('postgres', 'GRANT INSERT ON delay_wheel.tasks TO PUBLIC');
	$oid = create_role('gone');
	schedule('postgres', 'gone', 'NEVER', '1 hour', 20000);
	attach($node, 'orphans-before-move', 'wait', 1, 1);
	$node->safe_psql('postgres', 'DROP ROLE gone');
	wait_until_waiting($node, 'orphans-before-move', 'one slice is done, another is to begin');
	my $n = $node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.failed_task');
	cmp_ok($n, '>', 0, 'some tasks have failed');
	cmp_ok($n, '<', 20000, 'but not all');
	detach($node, 'orphans-before-move');
	all_failed('postgres', $oid, 20000, 'then all of them');
}

done_testing();
