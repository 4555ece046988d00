# delay_run against an executor that is at the same task, and in sessions of
# the task's owner: there all is allowed that the owner may do.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('run_now', injection => 1, conf => q{
search_path = 'public, conf'
});
$node->safe_psql('postgres', q{
	CREATE SCHEMA conf;
	CREATE ROLE owner LOGIN;
	CREATE ROLE member LOGIN IN ROLE owner;
	CREATE ROLE silent NOLOGIN;
	SELECT delay_wheel.allow('public');
	CREATE TABLE effects (n int, who text DEFAULT current_user, path text DEFAULT current_setting('search_path'));
	CREATE TABLE deferred (i int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	GRANT ALL ON effects, deferred TO PUBLIC;
});

sub as
{
	my ($role, $sql) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);
	return $ret == 0 ? $out : $err;
}

my $id;

sub schedule
{
	my ($role, $delay, $sql) = @_;
	$id = as($role, "SELECT public.delay_schedule('$delay', \$\$$sql\$\$)");
	like($id, qr/^\d+$/, 'scheduled') or BAIL_OUT($id);
	return;
}

sub ran
{
	my ($n, $times, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) FROM effects WHERE n = $n", $what, 60, expected => $times);
}

sub nothing_pending
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', $what, 60, expected => 0);
}

#
# An executor has come as far as before the claim, the session is first: the
# executor finds the task gone, or hears of it again.
#
my $session = $node->background_psql('postgres');

for my $end (qw(COMMIT ROLLBACK))
{
	my $n = $end eq 'COMMIT' ? 1 : 2;

	attach($node, 'claim-before-fetch', 'wait', 0, 1);
	schedule('postgres', '0', "INSERT INTO effects VALUES ($n)");
	wait_until_waiting($node, 'claim-before-fetch', 'an executor is about to claim');
	$session->query_safe('BEGIN');
	is($session->query_safe("SELECT delay_run($id)"), 'done', 'a session runs the task');
	detach($node, 'claim-before-fetch');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'the executor gives up', 60, expected => 0);
	is($node->safe_psql('postgres', "SELECT count(*) FROM effects WHERE n = $n"), 0, 'nothing has happened yet');
	$session->query_safe($end);
	ran($n, 1, "run once, after $end");
	nothing_pending('and no more');
}

# The executor is first.
attach($node, 'claim-after-delete', 'wait', 0, 1);
schedule('postgres', '0', 'INSERT INTO effects VALUES (3)');
wait_until_waiting($node, 'claim-after-delete', 'an executor has claimed');
is($session->query_safe("SELECT delay_run($id)"), 'running', 'a session is told that the task is running');
detach($node, 'claim-after-delete');
ran(3, 1, 'the executor runs it');
nothing_pending('once');
$session->quit;

# A session that is terminated while it runs a task: an executor runs it.
schedule('postgres', '1 day', 'SELECT pg_advisory_xact_lock(1); INSERT INTO effects VALUES (4)');
my $locker = $node->background_psql('postgres');
$locker->query_safe('SELECT pg_advisory_lock(1)');
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_until(qr/started/, "\\echo started\nSELECT delay_run($id);\n");
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'a session runs the task', 60, expected => 1);
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
wait_for($node, "SELECT delay_reschedule($id, '0') = 'moved'", 'it is terminated');
$locker->query_safe('SELECT pg_advisory_unlock(1)');
$locker->quit;
ran(4, 1, 'an executor runs the task');

#
# In the owner's own session.
#
my $all = q{CREATE TEMP TABLE own_temp (i int); INSERT INTO deferred VALUES (%d); DECLARE own CURSOR WITH HOLD FOR SELECT 1;
	SELECT delay_schedule('0', 'INSERT INTO effects VALUES (%d)'); SET work_mem = '123kB'};
schedule('owner', '1 day', sprintf($all, 5, 5));
my $elsewhere = qr/tasks of role "owner" cannot run in this session/;
like(as('member', "SELECT delay_run($id)"), $elsewhere, 'a member may not run it');
like(as('member', "SET ROLE owner; SELECT delay_run($id)"), $elsewhere, 'a member may not run it after SET ROLE to the owner');
like(as('postgres', "SET SESSION AUTHORIZATION owner; SELECT delay_run($id)"), $elsewhere, 'a superuser may not run it after SET SESSION AUTHORIZATION');
is(as('owner', "SELECT delay_run($id); SHOW work_mem; FETCH own"), "done\n4MB\n1", 'the owner can');
ran(5, 1, 'what it has scheduled is run');

# In an executor, also one of a role that cannot log in.
for my $role (qw(owner silent))
{
	my $n = $role eq 'owner' ? 6 : 7;

	if ($role eq 'silent')
	{
		my $sql = sprintf($all, $n, $n);
		$id = (split /\n/, as('postgres', "SET ROLE silent; SELECT delay_schedule('1 day', \$\$$sql\$\$)"))[-1];
		as('postgres', "SET ROLE silent; SELECT delay_schedule('0', 'SELECT delay_run($id)')");
	}
	else
	{
		schedule($role, '1 day', sprintf($all, $n, $n));
		as($role, "SELECT delay_schedule('0', 'SELECT delay_run($id)')");
	}
	ran($n, 1, "a task of role $role runs another one");
	is($node->safe_psql('postgres', "SELECT who FROM effects WHERE n = $n"), $role, 'as that role');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'nothing has failed');

#
# The search path that a session of the owner would have: of the server, of
# the database, of the role.
#
sub path_of_owner
{
	schedule('owner', '1 day', 'INSERT INTO public.effects VALUES (8)');
	is(as('owner', "SET search_path = pg_catalog; SELECT public.delay_run($id)"), 'done', 'run by its owner');
	return $node->safe_psql('postgres', 'DELETE FROM effects WHERE n = 8 RETURNING path');
}

is(path_of_owner(), 'public, conf', 'search_path of the server');
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = conf, public');
is(path_of_owner(), 'conf, public', 'search_path of the database');
$node->safe_psql('postgres', 'ALTER ROLE owner SET search_path = conf');
is(path_of_owner(), 'conf', 'search_path of the role');
$node->safe_psql('postgres', 'ALTER ROLE owner IN DATABASE postgres SET search_path = public');
is(path_of_owner(), 'public', 'search_path of the role in the database');
$node->safe_psql('postgres', q{ALTER ROLE owner IN DATABASE postgres SET search_path = ''});
is(path_of_owner(), '""', 'an empty one');

nothing_pending('nothing is left');
$node->stop;
done_testing();
