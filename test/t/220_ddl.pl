# Commands that need a database without sessions: DROP, RENAME, SET TABLESPACE
# and being a template.  They find our workers idle or at work, are done by a
# superuser or by the owner, succeed or fail; the service goes on afterwards,
# and a task that was put back takes effect once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# The promise is 2 s; machines that run tests may be loaded.
my $limit = 5;

my $node = new_node('ddl', conf => "delay_wheel.executor_idle_timeout = 1h\n");
my $space = PostgreSQL::Test::Utils::tempdir_short();
$node->safe_psql('postgres', qq{
	CREATE TABLESPACE other LOCATION '$space';
	CREATE ROLE dba LOGIN CREATEDB;
	CREATE ROLE stranger LOGIN CREATEDB;
	GRANT CREATE ON TABLESPACE other TO dba;
	GRANT pg_signal_backend TO dba;
});

# A task that goes on as long as there is a role of that name, in whatever
# database it is.
my $work = q{INSERT INTO effect VALUES ('long'); DO $$
	BEGIN
		WHILE EXISTS (SELECT FROM pg_roles WHERE rolname = 'go_on') LOOP
			PERFORM pg_sleep(0.02);
		END LOOP;
	END $$};

sub timer_of
{
	my ($db) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'delay_wheel timer' AND datname = '$db'});
}

# A database of dba, with a warm executor.
sub make_database
{
	my ($db) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER dba");
	$node->safe_psql($db, q{
		CREATE EXTENSION delay_wheel;
		CREATE TABLE effect (name text);
		SELECT delay_schedule('1 day', 'SELECT 1');
		SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''first'')')});
	wait_for($node, q{SELECT count(*) FROM effect}, "$db: the service runs", 60, db => $db, expected => 1);
	return;
}

sub begin_work
{
	my ($db) = @_;

	$node->safe_psql('postgres', 'CREATE ROLE go_on');
	$node->safe_psql($db, "SELECT delay_schedule('0', \$task\$$work\$task\$)");
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', "$db: a long task runs", 60,
		db => $db, expected => 1);
	return;
}

sub end_work
{
	my ($db, $what) = @_;

	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', "$what: the long task runs again", 60,
		db => $db, expected => 1);
	$node->safe_psql('postgres', 'DROP ROLE go_on');
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task WHERE due < now()', "$what: it comes to its end", 60,
		db => $db, expected => 0);
	is($node->safe_psql($db, q{SELECT count(*) FROM effect WHERE name = 'long'}), 1,
		"$what: it has taken effect once");
	return;
}

sub serves
{
	my ($db, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($db, q{SELECT delay_schedule('0', 'INSERT INTO effect VALUES (''after'')')});
	my $begun = time();
	wait_for($node, q{SELECT count(*) > 0 FROM effect WHERE name = 'after'}, "$what: a new task runs", 60, db => $db);
	note(sprintf('%s: back after %.3f s', $what, time() - $begun));
	cmp_ok(time() - $begun, '<', $limit, "$what: soon");
	$node->safe_psql($db, q{DELETE FROM effect WHERE name = 'after'});
	return;
}

# Does the command as a role, in database postgres; it must be quick.
sub command
{
	my ($role, $sql, $what) = @_;
	my $begun = time();
	my ($out, $err);
	my $rc = $node->psql('postgres', $sql, stdout => \$out, stderr => \$err, extra_params => [ '-U', $role ]);
	my $took = time() - $begun;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($rc, 0, "$what: done") or diag($err);
	note(sprintf('%s: %.3f s', $what, $took));
	cmp_ok($took, '<', $limit, "$what: in time");
	return;
}

my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

#
# Those that succeed.
#
for my $busy (0, 1)
{
	for my $role ($superuser, 'dba')
	{
		my $how = ($busy ? 'busy' : 'idle') . ', ' . ($role eq 'dba' ? 'by the owner' : 'by a superuser');

		make_database('db');
		begin_work('db') if $busy;
		command($role, 'ALTER DATABASE db RENAME TO renamed', "$how: RENAME");
		serves('renamed', "$how: RENAME");
		command($role, 'ALTER DATABASE renamed SET TABLESPACE other', "$how: SET TABLESPACE");
		serves('renamed', "$how: SET TABLESPACE");
		command($role, 'CREATE DATABASE copy TEMPLATE renamed', "$how: TEMPLATE");
		serves('renamed', "$how: TEMPLATE");
		serves('copy', "$how: the copy");
		if ($busy)
		{
			is($node->safe_psql('copy', q{SELECT count(*) FROM effect WHERE name = 'long'}), 0,
				"$how: the copy has no half of a task");
			is($node->safe_psql('copy', 'SELECT bool_or(armed) FROM delay_wheel.tasks'), 'f',
				"$how: the copy runs no other task");
			end_work('renamed', $how);
			begin_work('renamed');
		}
		command($role, 'DROP DATABASE copy', "$how: DROP of the copy");
		command($role, 'DROP DATABASE renamed', "$how: DROP");
		$node->safe_psql('postgres', 'DROP ROLE IF EXISTS go_on');
	}
}
for my $role ($superuser, 'dba')
{
	make_database('db');
	begin_work('db');
	# one that he may end, as he may not ours of a superuser
	my $session = $node->background_psql('db', extra_params => [ '-U', 'dba' ]);
	$session->query_safe('SELECT 1');
	command($role, 'DROP DATABASE db WITH (FORCE)', "busy, by $role: DROP WITH (FORCE)");
	eval { $session->{run}->kill_kill };
	$node->safe_psql('postgres', 'DROP ROLE go_on');
}
wait_for($node, q{SELECT array_agg(database::text) = '{postgres}' FROM delay_wheel.status},
	'databases that are no more have no place');

#
# A template that is used by default: it is served only if it is not marked.
#
$node->safe_psql('template1', q{
	ALTER DATABASE template1 IS_TEMPLATE false;
	CREATE EXTENSION delay_wheel});
wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'template1' AND state = 'running'},
	'template1 is served, not being a template', 60, expected => 1);
command($superuser, 'CREATE DATABASE db', 'CREATE DATABASE without TEMPLATE');
wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'db' AND state = 'running'},
	'the copy is served, though nobody has used it', 60, expected => 1);
command($superuser, 'ALTER DATABASE template1 IS_TEMPLATE true', 'ALTER DATABASE IS_TEMPLATE true');
wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'template1'},
	'a template is let go', 60, expected => 0);
command($superuser, 'ALTER DATABASE template1 IS_TEMPLATE false', 'ALTER DATABASE IS_TEMPLATE false');
wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE database = 'template1' AND state = 'running'},
	'one that is none any more is served', 60, expected => 1);
$node->safe_psql('template1', 'DROP EXTENSION delay_wheel');
command($superuser, 'ALTER DATABASE template1 IS_TEMPLATE true', 'ALTER DATABASE IS_TEMPLATE true');
command($superuser, 'DROP DATABASE db', 'DROP of the copy');

#
# Those that fail.
#
make_database('db');
my $timer = timer_of('db');

sub fails
{
	my ($role, $sql, $pattern, $what) = @_;
	my ($out, $err);
	my $rc = $node->psql('postgres', $sql, stdout => \$out, stderr => \$err, extra_params => [ '-U', $role ]);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	like($err, $pattern, "$what: refused");
	serves('db', $what);
	return;
}

fails('stranger', 'DROP DATABASE db', qr/must be owner/, 'DROP by a stranger');
fails('stranger', 'ALTER DATABASE db RENAME TO his', qr/must be owner/, 'RENAME by a stranger');
fails('stranger', 'ALTER DATABASE db SET TABLESPACE other', qr/must be owner/, 'SET TABLESPACE by a stranger');
fails('stranger', 'CREATE DATABASE his TEMPLATE db', qr/permission denied to copy/, 'TEMPLATE by a stranger');
fails('dba', 'BEGIN; DROP DATABASE db', qr/cannot run inside a transaction block/, 'DROP in a transaction block');
fails('dba', 'DROP DATABASE nowhere', qr/does not exist/, 'DROP of a database that is not there');
is(timer_of('db'), $timer, 'none of these has disturbed the timer');
fails('dba', 'ALTER DATABASE db SET TABLESPACE nowhere', qr/does not exist/, 'SET TABLESPACE to one that is not there');
fails('dba', 'ALTER DATABASE db RENAME TO postgres', qr/already exists/, 'RENAME to a name that is taken');
my $session = $node->background_psql('db');
$session->query_safe('SELECT 1');
begin_work('db');
fails('dba', $_, qr/is being accessed by other users/, "in use: $_")
  for 'DROP DATABASE db', 'ALTER DATABASE db RENAME TO x', 'CREATE DATABASE x TEMPLATE db';
end_work('db', 'in use');
$session->quit;

#
# RENAME in a transaction block.
#
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('BEGIN; ALTER DATABASE db RENAME TO renamed');
is(timer_of('db'), '', 'RENAME in a transaction: nobody comes before its end');
$session->query_safe('ROLLBACK');
serves('db', 'RENAME rolled back');

$session->query('BEGIN; SAVEPOINT s; ALTER DATABASE db RENAME TO postgres; ROLLBACK TO s');
serves('db', 'RENAME failed and rolled back to a savepoint');
$session->quit;
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
$session->query_safe('SAVEPOINT s; ALTER DATABASE db RENAME TO renamed; RELEASE s; SAVEPOINT t; ROLLBACK TO t');
is(timer_of('db'), '', 'another savepoint does not matter');
$session->query_safe('COMMIT');
serves('renamed', 'RENAME in a subtransaction');

# its session ends meanwhile
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe('BEGIN; ALTER DATABASE renamed RENAME TO other');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
serves('renamed', 'RENAME terminated');
eval { $session->{run}->kill_kill };

# prepared: the database is locked by PostgreSQL until the end
$node->safe_psql('postgres', q{BEGIN; ALTER DATABASE renamed RENAME TO db; PREPARE TRANSACTION 'rename'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'rename'});
serves('db', 'RENAME prepared');

# a task that renames another database
make_database('neighbour');
$node->safe_psql('db', q{SELECT delay_schedule('0', 'ALTER DATABASE neighbour RENAME TO renamed')});
wait_for($node, q{SELECT count(*) FROM pg_database WHERE datname = 'renamed'}, 'a task renames another database', 60,
	expected => 1);
serves('renamed', 'RENAME by a task');
serves('db', 'the database of that task');

is($node->safe_psql('db', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'no task has failed');

#
# One RENAME after the other, while tasks of several roles schedule their
# followers, so that workers are found in any state.
#
my @roles = map { "chain$_" } 1 .. 3;
$node->append_conf('postgresql.conf', "delay_wheel.executor_idle_timeout = 100ms\n");
$node->reload;
$node->safe_psql('postgres', "CREATE ROLE $_ LOGIN") for @roles, 'go_on';
$node->safe_psql('db', q{
	CREATE TABLE link (role name DEFAULT current_user, n int);
	GRANT ALL ON link TO PUBLIC;
	CREATE FUNCTION chain(n int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO link (n) VALUES (n);
		IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'go_on') THEN
			PERFORM delay_schedule(random() * interval '20 ms', 'SELECT chain($1)', n + 1);
		END IF;
	END $$;
	DO $$
	BEGIN
		IF to_regproc('delay_wheel.allow') IS NOT NULL THEN
			PERFORM delay_wheel.allow('public');
		END IF;
	END $$;
});
$node->safe_psql('db', "SET SESSION AUTHORIZATION $_; SELECT chain(1)") for @roles;
my ($renamed, $longest) = (0, 0);
for my $i (1 .. 30)
{
	my $begun = time();

	$node->psql('postgres', 'ALTER DATABASE db RENAME TO fro') == 0 or last;
	$node->psql('postgres', 'ALTER DATABASE fro RENAME TO db') == 0 or last;
	$longest = time() - $begun if time() - $begun > $longest;
	# at some moment of the start
	select(undef, undef, undef, rand(0.05));
	$renamed++;
}
is($renamed, 30, 'a database can be renamed at any time');
note(sprintf('two in %.3f s at most', $longest));
$node->safe_psql('postgres', 'DROP ROLE go_on');
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task WHERE due < now() + interval '1 hour'}, 'the tasks end', 60,
	db => 'db', expected => 0);
is($node->safe_psql('db', 'SELECT count(*) FROM (SELECT role FROM link GROUP BY role HAVING count(*) = max(n) AND count(DISTINCT n) = max(n)) c'),
	3, 'each has run once');
note($node->safe_psql('db', 'SELECT count(*) FROM link') . ' tasks');
$node->stop;
done_testing();
