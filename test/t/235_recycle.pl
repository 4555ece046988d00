# Settings and rights of ALTER ROLE, ALTER DATABASE, GRANT and REVOKE: a task
# that is run after the command has committed finds them as a login would,
# though there is an executor from before.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('recycle', conf => "delay_wheel.executor_idle_timeout = 1h\n");
$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN;
	CREATE ROLE other LOGIN;
	CREATE ROLE readers;
	CREATE ROLE admins;
	CREATE ROLE gang;
	CREATE ROLE granter LOGIN;
	GRANT gang TO granter WITH ADMIN OPTION;
	GRANT admins TO readers;
	CREATE TABLE effect (id serial, name text, pid int DEFAULT pg_backend_pid(), value text);
	GRANT ALL ON effect, effect_id_seq TO PUBLIC;
	DO $$
	BEGIN
		IF to_regproc('delay_wheel.allow') IS NOT NULL THEN
			PERFORM delay_wheel.allow('public');
		END IF;
	END $$;
});

my $n = 0;

# Runs a task and returns what it has written: pid and value.
sub run_task
{
	my ($role, $expression) = @_;

	$expression //= "''";
	$n++;
	$node->safe_psql('postgres', "
		SET SESSION AUTHORIZATION $role;
		SELECT delay_schedule('0', \$\$INSERT INTO effect (name, value) VALUES ('t$n', $expression)\$\$)");
	wait_until(60, sub { $node->safe_psql('postgres', "SELECT count(*) FROM effect WHERE name = 't$n'") == 1 })
	  or die "task t$n does not run";
	return split /\|/, $node->safe_psql('postgres', "SELECT pid, value FROM effect WHERE name = 't$n'"), -1;
}

my %pid;

sub warm_up
{
	$pid{$_} = (run_task($_))[0] for qw(app other);
	return;
}

# The command recycles the executor of app, and of no other role if not so
# said; what the next task finds.
sub recycles
{
	my ($sql, $expression, $expected, %options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	warm_up();
	is((run_task('app'))[0], $pid{app}, "before $sql: the executor stays");
	$node->safe_psql('postgres', $sql);
	my ($pid, $value) = run_task('app', $expression);
	isnt($pid, $pid{app}, "$sql: there is a new executor");
	is($value, $expected, "$sql: it has the new value") if defined $expected;
	my $other = (run_task('other'))[0];
	$options{others}
	  ? isnt($other, $pid{other}, "$sql: for other roles, too")
	  : is($other, $pid{other}, "$sql: not for other roles");
	return;
}

# The executor of app goes on, and what the command has changed holds for it.
sub keeps
{
	my ($sql, $expression, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	warm_up();
	$node->safe_psql('postgres', $sql);
	my ($pid, $value) = run_task('app', $expression);
	is($pid, $pid{app}, "$sql: the executor stays");
	is($value, $expected, "$sql: it has the new value") if defined $expected;
	return;
}

sub timer
{
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
}

my $work_mem = q{current_setting('work_mem')};
recycles(q{ALTER ROLE app SET work_mem = '1MB'}, $work_mem, '1MB');
recycles(q{ALTER ROLE app IN DATABASE postgres SET work_mem = '2MB'}, $work_mem, '2MB');
recycles(q{ALTER ROLE app IN DATABASE postgres RESET work_mem}, $work_mem, '1MB');
recycles(q{ALTER ROLE app RESET ALL}, $work_mem, '4MB');
recycles(q{ALTER ROLE ALL SET work_mem = '3MB'}, $work_mem, '3MB', others => 1);
recycles(q{ALTER ROLE ALL RESET work_mem}, $work_mem, '4MB', others => 1);
my $timer = timer();
recycles(q{ALTER DATABASE postgres SET work_mem = '5MB'}, $work_mem, '5MB', others => 1);
wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND pid <> $timer",
	'the timer has started anew, too', 60, expected => 1);
my $reset = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
recycles(q{ALTER DATABASE postgres RESET work_mem}, $work_mem, '4MB', others => 1);
recycles(q{ALTER ROLE app CREATEDB}, undef, undef);
# memberships hold at once: whoever may grant one role is not to end the executors of all others
keeps(q{GRANT readers TO app}, q{pg_has_role('readers', 'USAGE')}, 'true');
keeps(q{ALTER GROUP readers DROP USER app}, q{pg_has_role('readers', 'USAGE')}, 'false');
$node->safe_psql('postgres', 'GRANT readers TO app');
keeps(q{REVOKE admins FROM readers}, q{pg_has_role('admins', 'USAGE')}, 'false');
recycles(q{GRANT TEMPORARY ON DATABASE postgres TO app}, undef, undef, others => 1);
keeps(q{DROP OWNED BY app});
keeps(q{SET SESSION AUTHORIZATION granter; REVOKE gang FROM app; GRANT gang TO app}, q{pg_has_role('gang', 'USAGE')}, 'true');

# a timer starts anew at most once a second
wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = 'postgres' AND backend_start > '$reset'",
	'the timer has started anew', 60, expected => 1);

# of many roles, too, only their executors end, and no timer
$node->safe_psql('postgres', join('; ', map { "CREATE ROLE crowd$_" } 1 .. 300));
for my $n (20, 300)
{
	$timer = timer();
	recycles("DO \$\$BEGIN FOR i IN 1 .. $n LOOP EXECUTE format('ALTER ROLE crowd%s SET work_mem = %L', i, '1MB'); END LOOP; ALTER ROLE app SET work_mem = '6MB'; END\$\$",
		$work_mem, '6MB');
	is(timer(), $timer, "settings of $n roles: the timer stays");
}
$node->safe_psql('postgres', 'DROP ROLE ' . join(', ', map { "crowd$_" } 1 .. 300));

# what does not come to be changes nothing
warm_up();
$timer = timer();
$node->safe_psql('postgres', q{BEGIN; ALTER ROLE app SET work_mem = '7MB'; ALTER DATABASE postgres SET work_mem = '7MB'; ROLLBACK});
is_deeply([ run_task('app', $work_mem) ], [ $pid{app}, '6MB' ], 'ALTER ROLE rolled back: the executor stays');
is(timer(), $timer, 'ALTER ROLE rolled back: the timer stays');
$node->safe_psql('postgres', q{ALTER DATABASE template1 SET work_mem = '7MB'; ALTER ROLE other SET work_mem = '7MB'});
is((run_task('app'))[0], $pid{app}, 'another database and another role do not matter');

# what one has no right to changes nothing, be it refused, or done without effect
$timer = timer();
for my $sql (q{ALTER ROLE app SET work_mem = '7MB'}, q{ALTER ROLE ALL SET work_mem = '7MB'}, q{ALTER ROLE app CREATEDB}, 'ALTER ROLE app',
	'DROP ROLE app', 'GRANT readers TO app', 'REVOKE admins FROM readers', 'ALTER GROUP readers ADD USER app', 'DROP OWNED BY app',
	q{ALTER DATABASE postgres SET work_mem = '7MB'}, 'ALTER DATABASE postgres CONNECTION LIMIT 7',
	'ALTER DATABASE postgres OWNER TO other', 'ALTER DATABASE postgres OWNER TO postgres', 'GRANT CONNECT ON DATABASE postgres TO app')
{
	warm_up();
	$node->safe_psql('postgres', "
		SET SESSION AUTHORIZATION other;
		DO \$\$
		BEGIN
			$sql;
		EXCEPTION WHEN insufficient_privilege OR syntax_error OR dependent_objects_still_exist THEN
			NULL;
		END \$\$");
	is((run_task('app'))[0], $pid{app}, "$sql by a role without rights: the executor stays");
}
is(timer(), $timer, 'without rights: the timer stays');

# a running task comes to its end
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', q{
	SET SESSION AUTHORIZATION app;
	SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(1); INSERT INTO effect (name, value) VALUES (''long'', current_setting(''work_mem''))')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a long task runs', 60, expected => 1);
$node->safe_psql('postgres', q{ALTER ROLE app SET work_mem = '8MB'});
# what needs a look only does not keep it from its end
$node->safe_psql('postgres', 'GRANT admins TO app; REVOKE admins FROM app');
is($node->safe_psql('postgres', 'SELECT pid FROM delay_wheel.running'), $pid{app}, 'ALTER ROLE: it goes on');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
wait_for($node, q{SELECT count(*) FROM effect WHERE name = 'long'}, 'it comes to its end', 60, expected => 1);
is($node->safe_psql('postgres', q{SELECT pid, value FROM effect WHERE name = 'long'}), "$pid{app}|6MB", 'as it began');
my ($pid, $value) = run_task('app', $work_mem);
isnt($pid, $pid{app}, 'the next one has a new executor');
is($value, '8MB', 'with the new setting');

#
# The right to connect.
#
warm_up();
$node->safe_psql('postgres', 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO other');
$node->safe_psql('postgres', q{
	SET SESSION AUTHORIZATION app;
	SELECT delay_schedule('0', 'INSERT INTO effect (name) VALUES (''revoked'')')});
wait_for($node, q{SELECT parked FROM delay_wheel.status WHERE database = 'postgres'}, 'the tasks of a role without CONNECT wait', 60,
	expected => 1);
run_task('other');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effect WHERE name = 'revoked'}), 0, 'others do not');
$node->safe_psql('postgres', 'GRANT CONNECT ON DATABASE postgres TO readers; GRANT readers TO app');
wait_for($node, q{SELECT count(*) FROM effect WHERE name = 'revoked'}, 'they run when it has the right again', 60, expected => 1);
# Takes the right from role "app" by one command, and gives it back by another.
sub lose_and_regain
{
	my ($lose, $regain, $why) = @_;

	warm_up();
	$node->safe_psql('postgres', "
		$lose;
		SET SESSION AUTHORIZATION app;
		SELECT delay_schedule('0', 'INSERT INTO effect (name) VALUES (''$lose'')')");
	wait_for($node, q{SELECT parked FROM delay_wheel.status WHERE database = 'postgres'}, $why, 60, expected => 1);
	is($node->safe_psql('postgres', "SELECT count(*) FROM effect WHERE name = '$lose'"), 0, 'its tasks wait');
	$node->safe_psql('postgres', $regain);
	wait_for($node, "SELECT count(*) FROM effect WHERE name = '$lose'", "until $regain", 60, expected => 1);
	return;
}
lose_and_regain('REVOKE readers FROM app', 'GRANT readers TO app',
	'the right was that of a role that it is no member of any more');
$node->safe_psql('postgres', 'GRANT admins TO readers; GRANT CONNECT ON DATABASE postgres TO admins; REVOKE CONNECT ON DATABASE postgres FROM readers');
lose_and_regain('REVOKE admins FROM readers', 'GRANT admins TO readers', 'so it is if another role had it by that one');

#
# Roles that are dropped.
#
my $warning = qr/WARNING:  role "app" has pending delay_wheel tasks\nDETAIL:  The tasks will be moved to delay_wheel\.failed\./;
my ($out, $err);

$node->safe_psql('postgres', q{
	SET SESSION AUTHORIZATION app;
	SELECT delay_schedule('1 day', 'SELECT 1')});
$node->safe_psql('postgres', 'DROP OWNED BY app, readers; REVOKE gang FROM app');
$node->psql('postgres', 'BEGIN; DROP ROLE app; ROLLBACK', stdout => \$out, stderr => \$err);
like($err, $warning, 'DROP ROLE tells of pending tasks');
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$node->psql('elsewhere', 'BEGIN; DROP ROLE app; ROLLBACK', stdout => \$out, stderr => \$err);
like($err, qr/WARNING:  role "app" may have pending delay_wheel tasks in other databases/, 'in other databases, too');
$node->psql('postgres', 'BEGIN; DROP ROLE app, nobody; ROLLBACK', stdout => \$out, stderr => \$err);
unlike($err, qr/WARNING/, 'not if it fails');
$node->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE owner = 'app'});
$node->psql('postgres', 'DROP ROLE app', stdout => \$out, stderr => \$err);
is($err, '', 'not of those that were cancelled');

$node->stop;

#
# What changes while an executor logs in: it runs one of the tasks that were due before, and no
# other one.  If it ran none, changes without a pause would keep everybody's tasks from running.
#
if (has_injection())
{
	$node = new_node('login', injection => 1, conf => "delay_wheel.executor_idle_timeout = 1h\ndelay_wheel.max_executors = 1\n");
	$node->safe_psql('postgres', q{
		CREATE ROLE app LOGIN;
		SELECT delay_wheel.allow('app'), delay_wheel.create_queue('first', users => '{app}');
		CREATE TABLE effect (name text, pid int DEFAULT pg_backend_pid(), value text DEFAULT current_setting('work_mem'));
		GRANT ALL ON effect TO app});

	# An executor waits at the end of its login when the command is executed; its pid.  If this takes
	# a second, the timer calls it stuck, and starts another one, which is kept from logging in.
	my $login_beside = sub {
		my ($tasks, $sql) = @_;
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my $executor = q{FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'};

		$node->safe_psql('postgres', "TRUNCATE effect; SELECT pg_terminate_backend(pid) $executor");
		wait_for($node, "SELECT count(*) $executor", "$sql: there is no executor", 60, expected => 0);
		attach($node, 'executor-after-connect', 'wait', 0, 1);
		$node->safe_psql('postgres', 'SET SESSION AUTHORIZATION app; SELECT ' . join(', ', map { "delay_schedule_task(\$\$INSERT INTO effect VALUES ('$_')\$\$, queue => 'first')" } @$tasks));
		wait_until_waiting($node, 'executor-after-connect', "$sql: an executor logs in");
		my $pid = $node->safe_psql('postgres', "SELECT min(pid) $executor");
		attach($node, 'executor-before-connect', 'wait', 0, 0);
		$node->safe_psql('postgres', $sql);
		return $pid;
	};
	# The login ends: what the executor has run when it has ended, and what others run then.
	my $login_ends = sub {
		my ($pid, $of_first, $in_the_end, $what) = @_;
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my $effects = "SELECT coalesce(string_agg(name || CASE pid WHEN $pid THEN ' first ' ELSE ' other ' END || value, ', ' ORDER BY name), '') FROM effect";

		detach($node, 'executor-after-connect');
		wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", "$what: the executor ends", 60, expected => 0);
		is($node->safe_psql('postgres', $effects), $of_first, $what);
		detach($node, 'executor-before-connect');
		wait_for($node, $effects, 'the other one is for another executor', 60, expected => $in_the_end);
		return $effects;
	};
	# no ALTER DATABASE: it restarts the timer, too, and in between an executor finds no task
	for my $sql (q{ALTER ROLE app IN DATABASE postgres SET work_mem = '1MB'}, q{ALTER ROLE app SET work_mem = '1MB'})
	{
		my $pid = $login_beside->([ 1, 2 ], $sql);
		$login_ends->($pid, '1 first 4MB', '1 first 4MB, 2 other 1MB', "$sql: it runs one task");

		$pid = $login_beside->([1], $sql =~ s/SET/RESET/r =~ s/ = .*//r);
		$node->safe_psql('postgres', q{SELECT delay_wheel.pause_queue('first'); SET SESSION AUTHORIZATION app; SELECT delay_schedule('0', 'INSERT INTO effect VALUES (2)')});
		my $effects = $login_ends->($pid, '', '2 other 4MB', 'but none that is due since');
		$node->safe_psql('postgres', q{SELECT delay_wheel.resume_queue('first')});
		wait_for($node, $effects, 'nor the paused one', 60, expected => '1 other 4MB, 2 other 4MB');
	}
	my $pid = $login_beside->([ 1, 2 ], 'GRANT TEMPORARY ON DATABASE postgres TO app');
	$login_ends->($pid, '1 first 4MB', '1 first 4MB, 2 other 4MB', 'rights: it runs one task');
	$login_beside->([ 1, 2 ], 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC');
	detach($node, 'executor-after-connect');
	detach($node, 'executor-before-connect');
	wait_for($node, q{SELECT parked FROM delay_wheel.status WHERE database = 'postgres'}, 'no task, if it has lost the right to log in', 60, expected => 1);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM effect'), 0, 'the tasks wait');
	$node->stop;
}
done_testing();
