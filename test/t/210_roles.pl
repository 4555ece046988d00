# Whose session a task runs in: roles with and without LOGIN, their settings,
# roles that may not connect, many roles at once, roles whose tasks hang.

use strict;
use warnings;

use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('roles', conf => "delay_wheel.max_executors = 4\nmax_worker_processes = 24\n");

sub sql { return $node->safe_psql('postgres', join("\n", @_)); }

# Schedules as a role; several SQL texts, all due at once.
sub schedule_as
{
	my ($role, @texts) = @_;

	return sql("SET ROLE $role;",
		map { 'SELECT delay_schedule(interval \'0\', $t$' . $_ . '$t$);' } @texts);
}

sql(q{
	-- ALLOW
	CREATE TABLE seen (what text, value text, who text DEFAULT current_user,
		pid int DEFAULT pg_backend_pid(), at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON seen TO PUBLIC;
	SELECT delay_wheel.allow('public');
	CREATE ROLE plain LOGIN;
	CREATE ROLE service NOLOGIN;
	CREATE ROLE granted NOLOGIN;
	GRANT granted TO service;
	GRANT CREATE ON SCHEMA public TO service, plain;
});

sub value_of
{
	my ($what, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, "SELECT count(*) = 1 FROM seen WHERE what = '$what'", "$name: ran", 60);
	is(sql("SELECT string_agg(value, ',') FROM seen WHERE what = '$what'"), $expected, $name);
	return;
}

#
# An owner without LOGIN, mostly that of a SECURITY DEFINER function.
#
my $switched = $node->pg_version < 17;

sql(q{
	SET ROLE service;
	CREATE FUNCTION by_service(what text, query text) RETURNS bigint
		LANGUAGE sql SECURITY DEFINER SET search_path = public
		AS $$SELECT delay_schedule(interval '0', query)$$;
	CREATE FUNCTION note_user() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		PERFORM set_config('work_mem', '77MB', false);
		INSERT INTO seen (what, value) VALUES ('deferred', current_user || ' ' || current_setting('is_superuser'));
		BEGIN
			RESET ROLE;
			INSERT INTO seen (what, value) VALUES ('deferred reset', current_user);
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO seen (what, value) VALUES ('deferred reset', 'refused ' || current_user);
		END;
		RETURN NULL;
	END $f$;
	CREATE TABLE deferring (x int);
	CREATE CONSTRAINT TRIGGER d AFTER INSERT ON deferring INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_user();
});
sql(q{SET ROLE plain; SELECT by_service('', $$insert into seen (what, value) select 'nologin', rolname || ' ' || rolsuper from pg_roles where rolname = current_user$$)});
value_of('nologin', 'service false', 'a task of an owner without LOGIN runs as that owner');

# A login ignores this, and so must a session that is switched to its role:
# nobody chooses the session_user that others see.
sql('SET ROLE service; ALTER ROLE service SET session_authorization = \'plain\'');
schedule_as('service', q{insert into seen (what, value) values ('forged', session_user)});
wait_for($node, q{SELECT count(*) = 1 FROM seen WHERE what = 'forged'}, 'the task ran', 60);
isnt(sql(q{SELECT value FROM seen WHERE what = 'forged'}), 'plain',
	'an owner without LOGIN cannot choose its session_user');
sql('ALTER ROLE service RESET session_authorization');

sql(q{SET ROLE plain; SELECT by_service('', 'insert into deferring values (1)')});
value_of('deferred', 'service off', 'its deferred triggers run as the owner');
is(sql(q{SELECT value FROM seen WHERE what = 'deferred reset'}),
	$switched ? 'refused service' : 'service', 'and have no way back to other rights');

my %ways = (
	'reset role' => 'reset role',
	'set role' => 'set role postgres',
	'set session' => 'set session authorization postgres',
	'reset session' => 'reset session authorization',
	'set_config role' => q{select set_config('role', 'postgres', false)},
	'set_config role none' => q{select set_config('role', 'none', false)},
	'set_config session' => q{select set_config('session_authorization', 'postgres', false)},
	'set local' => 'set local role none',
	'reset all' => 'reset all',
	'do' => 'do $d$ begin execute $x$set role none$x$; end $d$',
);
foreach my $owner ('service', 'plain')
{
	foreach my $way (sort keys %ways)
	{
		schedule_as($owner, "$ways{$way}; insert into seen (what, value) values ('$owner: $way', current_user)");
	}
	wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel_data.task}, "$owner: all ways were tried");
	is(sql(qq{SELECT count(*) FROM seen WHERE what LIKE '$owner: %' AND (value <> '$owner' OR who <> '$owner')}),
		'0', "$owner: none of them led to other rights");
}
is(sql(q{SELECT count(*) FROM delay_wheel.failed WHERE sqlstate NOT IN ('42501', '22023') AND owner IN ('service', 'plain')}),
	'0', 'what failed was refused');
schedule_as('service', q{insert into seen (what, value) values ('after ways', session_user || ' ' || current_user)});
value_of('after ways', 'service service', 'session user of an owner without LOGIN');
schedule_as('plain', q{insert into seen (what, value) values ('plain session', session_user || ' ' || current_user)});
value_of('plain session', 'plain plain', 'session user of one with LOGIN');
schedule_as('service', q{set role granted; insert into seen (what, value) values ('granted', current_user)});
if ($switched)
{
	wait_for($node, q{SELECT count(*) = 1 FROM delay_wheel.failed WHERE sql LIKE 'set role granted%'},
		'SET ROLE to a granted role fails in a switched session');
}
else
{
	value_of('granted', 'granted', 'SET ROLE to a granted role works');
}
schedule_as('service', q{create temp table t_left (x int) on commit preserve rows; insert into seen (what, value) values ('temp', 'made')});
value_of('temp', 'made', 'temporary tables can be made');
schedule_as('service', q{insert into seen (what, value) values ('temp gone', coalesce(to_regclass('t_left')::text, 'none'))});
value_of('temp gone', 'none', 'and do not stay');

#
# All that SECURITY DEFINER code can ask who calls is session_user: what it refuses
# to who may be the owner, it must refuse to the owner's task.  However that comes,
# and wherever it asks, the answer is the owner, no superuser.
#
sql(q{
	CREATE ROLE admins NOLOGIN;
	CREATE TABLE wiped (how text);
	CREATE FUNCTION wipe(how text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $f$
	BEGIN
		IF (SELECT rolsuper FROM pg_roles WHERE rolname = session_user) OR pg_has_role(session_user, 'admins', 'MEMBER')
			OR current_setting('is_superuser') = 'on' THEN
			INSERT INTO wiped VALUES (how);
		ELSE
			INSERT INTO seen (what, value) VALUES (how, 'refused ' || session_user);
		END IF;
		RETURN how;
	END $f$;
	CREATE FUNCTION wipe_at_commit() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		PERFORM wipe(NEW.how);
		RETURN NULL;
	END $f$;
	CREATE TABLE wiping (how text);
	GRANT INSERT ON wiping TO PUBLIC;
	CREATE CONSTRAINT TRIGGER w AFTER INSERT ON wiping DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION wipe_at_commit();
	CREATE FUNCTION wipe_at_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $f$
	BEGIN
		IF current_user IN ('service', 'plain') THEN
			PERFORM wipe(current_user || ' event trigger');
		END IF;
	END $f$;
	CREATE EVENT TRIGGER w ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION wipe_at_ddl();
	CREATE FUNCTION who() RETURNS text LANGUAGE sql PARALLEL SAFE STABLE
		AS $f$SELECT concat_ws(' ', session_user, current_user, current_setting('is_superuser'))$f$;
	CREATE TABLE many AS SELECT generate_series(1, 1000) AS i;
	GRANT SELECT ON many TO PUBLIC;
	ALTER TABLE many SET (parallel_workers = 2);
});
foreach my $owner ('service', 'plain')
{
	schedule_as($owner,
		qq{select wipe('$owner task')},
		qq{do \$d\$ begin begin perform wipe('none'), 1/0; exception when division_by_zero then perform wipe('$owner after an error'); end; end \$d\$},
		qq{insert into wiping values ('$owner deferred')},
		qq{create view v_$owner as select 1},
		(map { "select wipe('$owner batch')" } 1 .. 20));
	sql(qq{SET ROLE $owner;
		SELECT delay_schedule_task('select 1', delay => '0', options => jsonb_build_object('on_success', 'select wipe(''$owner on_success'')'));
		SELECT delay_schedule_task('select 1/0 as x', delay => '0', max_attempts => 1, options => jsonb_build_object('on_failure', 'select wipe(''$owner on_failure'')'))});
	schedule_as($owner, qq{do \$d\$ begin perform delay_run(delay_schedule('1 hour', 'select wipe(''$owner delay_run'')')); end \$d\$});
	schedule_as($owner, qq{set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
		set min_parallel_table_scan_size = 0; set parallel_leader_participation = off;
		insert into seen (what, value) select '$owner parallel', string_agg(distinct w, ',') from (select who() as w from many where i > 0 offset 0) x});
}
wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel_data.task}, 'each owner has come to the guard by each way');
is(sql(q{SELECT string_agg(DISTINCT how, ', ' ORDER BY how) FROM wiped}), '', 'the guard lets none of them pass');
foreach my $owner ('service', 'plain')
{
	is(sql(qq{SELECT string_agg(DISTINCT substr(what, length('$owner') + 2), ', ') FROM seen WHERE what LIKE '$owner %' AND value = 'refused $owner'}),
		'after an error, batch, deferred, delay_run, event trigger, on_failure, on_success, task', "$owner: it has refused each");
	is(sql(qq{SELECT value FROM seen WHERE what = '$owner parallel'}), "$owner $owner off", "$owner: parallel workers know the same");
}
is(sql(q{SELECT count(*) FROM seen WHERE what LIKE '% batch'}), '40', 'each task of a batch was one');

# an error at commit, and one in the SQL
sql(q{SET ROLE service; CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);});
schedule_as('service', 'insert into child values (1)', 'select 1/0',
	q{insert into seen (what, value) values ('after errors', current_user)});
value_of('after errors', 'service', 'the next one after errors runs as the owner, too');
wait_for($node, q{SELECT string_agg(sqlstate, ' ' ORDER BY sqlstate) FROM delay_wheel.failed WHERE sql IN ('insert into child values (1)', 'select 1/0')},
	'errors of a switched session are recorded', 60, expected => '22012 23503');

#
# Settings are those of a login.
#
sql(q{
	ALTER ROLE postgres SET work_mem = '11MB';
	ALTER ROLE postgres SET lock_timeout = '11s';
	ALTER ROLE postgres SET statement_timeout = '55s';
	ALTER DATABASE postgres SET lock_timeout = '22s';
	ALTER ROLE service SET temp_buffers = '22MB';
	ALTER ROLE service IN DATABASE postgres SET maintenance_work_mem = '33MB';
	ALTER ROLE plain SET temp_buffers = '44MB';
});
sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
my $settings = q{concat_ws(' ', current_setting('work_mem'), current_setting('lock_timeout'), current_setting('statement_timeout'),
	current_setting('temp_buffers'), current_setting('maintenance_work_mem'))};
my $boot = sql(q{SELECT boot_val::int / 1024 || 'MB' FROM pg_settings WHERE name = 'maintenance_work_mem'});
schedule_as('service', "insert into seen (what, value) values ('settings service', $settings)");
schedule_as('plain', "insert into seen (what, value) values ('settings plain', $settings)");
value_of('settings service', '4MB 22s 0 22MB 33MB', 'settings of an owner without LOGIN are its own');
value_of('settings plain', "4MB 22s 0 44MB $boot", 'and so are those of one with LOGIN');
schedule_as('service', "set work_mem = '1MB'; reset all; insert into seen (what, value) values ('settings reset', $settings)");
value_of('settings reset', '4MB 22s 0 22MB 33MB', 'RESET ALL leads to these');
sql('ALTER ROLE postgres RESET ALL; ALTER DATABASE postgres RESET ALL');

#
# A role that may not connect: its lane waits, with the reason, and one line
# in the log, and runs when it may.
#
sql('REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO plain');
sql('CREATE ROLE stranger LOGIN; CREATE ROLE stranger_nologin');
my $position = log_position($node);
foreach my $role ('stranger', 'stranger_nologin')
{
	schedule_as($role, "insert into seen (what, value) values ('$role', current_user)") for 1 .. 3;
	wait_for($node, qq{SELECT reason FROM delay_wheel.lanes WHERE owner = '$role' AND state = 'blocked'},
		"$role: the view lanes has the reason", 60,
		expected => 'the role does not have CONNECT privilege on the database');
}
is(sql(q{SELECT parked >= 2 AND last_problem LIKE 'cannot run tasks of role "stranger%' FROM delay_wheel.status WHERE database = 'postgres'}),
	't', 'status has it, too');
schedule_as('plain', q{insert into seen (what, value) values ('beside', current_user)});
value_of('beside', 'plain', 'others go on');
# a second try, and a third
wait_for($node, q{SELECT bool_and(retry_at > clock_timestamp() + interval '2.5 s') FROM delay_wheel.lanes WHERE owner::text LIKE 'stranger%'},
	'it is tried less and less often');
my $log = log_since($node, $position);
is(scalar(() = $log =~ /delay_wheel cannot run tasks of role "stranger"/g), 1, 'one line in the log for an episode');
unlike($log, qr/FATAL/, 'no process was started in vain');
sql('GRANT CONNECT ON DATABASE postgres TO PUBLIC');
wait_for($node, q{SELECT count(*) = 6 FROM seen WHERE what LIKE 'stranger%' AND what = who}, 'once it may connect, its tasks run', 120);
is(sql(q{SELECT count(*) FROM delay_wheel.lanes WHERE owner::text LIKE 'stranger%' AND reason IS NOT NULL}), '0', 'and the reason is gone');

#
# Tasks of superusers switched off, also for an executor that is there already.
#
sub superuser_tasks { sql("ALTER SYSTEM SET delay_wheel.superuser_tasks = $_[0]; SELECT pg_reload_conf()"); return; }
sql(q{SELECT delay_schedule('0', $$insert into seen (what, value) values ('before off', current_user)$$)});
value_of('before off', 'postgres', 'a task of a superuser runs');
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor' AND query LIKE '%before off%'}, 'its executor waits', 60, expected => 1);
my $waiting = sql(q{SELECT delay_schedule('1 hour', $$insert into seen (what, value) values ('while off', current_user)$$)});
superuser_tasks('off');
wait_for($node, q{SELECT current_setting('delay_wheel.superuser_tasks')}, 'the setting arrives', 60, expected => 'off');
for my $call (q{delay_schedule('0', 'SELECT 1')}, q{delay_schedule_task('SELECT 1')}, q{delay_every('e', '1 day', 'SELECT 1')}, "delay_update($waiting, sql_text => 'SELECT 1')",
	qq{delay_update($waiting, options => '{"on_success": "SELECT 1"}')}, "delay_run($waiting)", "delay_run_due('9999-01-01')")
{
	my (undef, undef, $err) = $node->psql('postgres', "SELECT $call");
	like($err, qr/tasks of superusers are switched off/, "refused: $call");
}
sql("SELECT delay_reschedule($waiting, '0')");
wait_for($node, q{SELECT reason FROM delay_wheel.lanes WHERE owner = 'postgres' AND state = 'blocked'}, 'what is pending waits, with the reason', 60,
	expected => 'tasks of superusers are switched off');
sql(q{SET ROLE plain; SELECT delay_schedule('0', $$insert into seen (what, value) values ('of others', current_user)$$)});
value_of('of others', 'plain', 'tasks of others run, also scheduled by a superuser after SET ROLE');
# a role that becomes one
sql(q{SET ROLE plain; SELECT delay_schedule('1 s', $$insert into seen (what, value) values ('promoted', current_user)$$)});
sql('ALTER ROLE plain SUPERUSER');
wait_for($node, q{SELECT reason FROM delay_wheel.lanes WHERE owner = 'plain' AND state = 'blocked'}, 'and those of a role that becomes one wait', 60,
	expected => 'tasks of superusers are switched off');
sql('ALTER ROLE plain NOSUPERUSER');
value_of('promoted', 'plain', 'until it is none any more');
is(sql(q{SELECT count(*) FROM seen WHERE what = 'while off'}), '0', 'nothing ran meanwhile');
superuser_tasks('on');
value_of('while off', 'postgres', 'switched on again, it runs');

# the database does not accept connections
$node->safe_psql('postgres', 'CREATE DATABASE closed');
$node->safe_psql('closed', q{CREATE EXTENSION delay_wheel; SELECT delay_wheel.allow('plain'); CREATE TABLE done (x int); GRANT ALL ON done TO PUBLIC});
wait_for($node, q{SELECT state FROM delay_wheel.status WHERE database = 'closed'}, 'another database is served', 60, expected => 'running');
$position = log_position($node);
$node->safe_psql('closed', q{SET ROLE plain; SELECT delay_schedule(interval '1.5 s', 'insert into done values (1)')});
sql('ALTER DATABASE closed ALLOW_CONNECTIONS false');
ok(wait_until(60, sub { log_since($node, $position) =~ /cannot run tasks of role "plain": the database does not accept connections/ }),
	'a database that does not accept connections is named as the reason');
sql('ALTER DATABASE closed ALLOW_CONNECTIONS true');
wait_for($node, 'SELECT count(*) = 1 FROM done', 'its task runs when it does again', 60, db => 'closed');

#
# A thousand roles at once, four executors.
#
sql(q{SELECT format('CREATE ROLE many_%s LOGIN', i) FROM generate_series(1, 1000) i} . " \\gexec");
sql(q{TRUNCATE seen;
	DO $$
	BEGIN
		FOR i IN 1 .. 1000 LOOP
			EXECUTE format('SET LOCAL ROLE many_%s', i);
			PERFORM delay_schedule_at(date_trunc('second', now()) + interval '2 s', 'insert into seen (what) values (''many'')');
			PERFORM delay_schedule_at(date_trunc('second', now()) + interval '2 s', 'insert into seen (what) values (''many'')');
			RESET ROLE;
		END LOOP;
	END $$});
my $most = 0;
my $done = wait_until(
	180,
	sub {
		my ($n, $executors) = split /\|/, sql(q{SELECT (SELECT count(*) FROM seen),
			(SELECT count(*) FROM delay_wheel_internal.get_running())});
		$most = $executors if $executors > $most;
		return $n >= 2000;
	});
ok($done, 'a thousand roles due at once are all served');
is(sql(q{SELECT count(*) = 1000 AND min(n) = 2 AND max(n) = 2 FROM (SELECT count(*) n FROM seen GROUP BY who) x}), 't',
	'each task ran once, as its role');
cmp_ok($most, '<=', 5, 'never by more executors than max_executors, and one more for roles with few tasks');
my $processes = sql('SELECT count(DISTINCT pid) FROM seen');
cmp_ok($processes, '<=', 1100, 'hardly more than one process for each role');
note("$processes processes, " . sql('SELECT max(at) - min(at) FROM seen') . " from the first task to the last");
wait_for($node, q{SELECT count(*) <= 5 FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor' AND datname = 'postgres'}, 'no more remain');

# one of them has ten thousand: the others need not wait for these
sql(q{TRUNCATE seen;
	DO $$
	BEGIN
		SET LOCAL ROLE many_1;
		PERFORM delay_schedule(interval '0', 'insert into seen (what) values (''flood''); select pg_sleep(0.002)') FROM generate_series(1, 10000);
		RESET ROLE;
	END $$;
	DO $$
	BEGIN
		FOR i IN 2 .. 50 LOOP
			EXECUTE format('SET LOCAL ROLE many_%s', i);
			PERFORM delay_schedule(interval '0', 'insert into seen (what) values (''few'')');
			RESET ROLE;
		END LOOP;
	END $$});
wait_for($node, q{SELECT count(*) = 49 FROM seen WHERE what = 'few'}, 'roles with a task each are served beside a flood', 120);
cmp_ok(sql(q{SELECT count(*) FROM seen WHERE what = 'flood'}), '<', 10000, 'before the flood is over');
sql(q{SELECT count(delay_cancel(id)) FROM delay_wheel.tasks});
wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel_data.task}, 'the flood is cancelled');

#
# Roles whose tasks hang.  However they come, another one is on time.
#
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(42)');

sub hang
{
	my ($role) = @_;
	schedule_as($role, ('select pg_advisory_xact_lock_shared(42)') x 10);
	wait_for($node, qq{SELECT count(*) >= 1 FROM delay_wheel.running WHERE owner = '$role'}, "$role: its tasks hang");
	return;
}
hang("many_$_") for (1 .. 3);
foreach my $i (4 .. 6)
{
	# all but one second at the utmost, until the hanging ones count as stuck
	schedule_as("many_$i", "insert into seen (what) values ('on time $i')");
	wait_for($node, "SELECT count(*) = 1 FROM seen WHERE what = 'on time $i'", "another role's task runs beside three that hang", 60);
}
is(sql(q{SELECT count(*) <= 8 FROM delay_wheel_internal.get_running()}), 't',
	'there are never more than twice max_executors');
note(sql(q{SELECT string_agg(owner::text || ' ' || n, ', ') FROM (SELECT owner, count(*) n FROM delay_wheel.running GROUP BY 1) x}));
$holder->query_safe('SELECT pg_advisory_unlock(42)');
$holder->quit;
wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel_data.task}, 'those that hung go on');

#
# Hundreds of roles, each allowed by a call of its own, in one transaction.
#
my $begun = time();
sql(q{DO $$
	BEGIN
		FOR i IN 1 .. 600 LOOP
			PERFORM delay_wheel.allow(format('many_%s', i)::name);
		END LOOP;
	END $$});
my $taken = time() - $begun;
note(sprintf '%.2f s for 600 roles', $taken);
cmp_ok($taken, '<', 10, 'allowing 600 roles takes seconds');
is(sql(q{SELECT count(*) FROM pg_roles r WHERE rolname LIKE 'many\_%' AND EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'delay_wheel.tasks'::regclass AND a.grantee = r.oid)}),
	'600', 'each has its right');
my (undef, undef, $dependent) = $node->psql('postgres', 'DROP ROLE many_600');
like($dependent, qr/because some objects depend on it\nDETAIL:  privileges for view delay_wheel\.tasks\n?\z/, 'DROP ROLE names one privilege');
sql(q{SELECT delay_wheel.disallow(VARIADIC array_agg(format('many_%s', i)::name)) FROM generate_series(1, 600) i; DROP ROLE many_600});
my (undef, undef, $too_many) = $node->psql('postgres', q{BEGIN;
	DO $$BEGIN FOR i IN 1 .. 4000 LOOP EXECUTE format('CREATE ROLE crowd_%s', i); END LOOP; END$$;
	SELECT delay_wheel.allow(VARIADIC array_agg(format('crowd_%s', i)::name)) FROM generate_series(1, 4000) i; ROLLBACK});
like($too_many, qr/ERROR:  row is too big.*\nHINT:  Allow a group of roles/, 'more than there is room for: the error says what to do');

#
# The group that has the right on all nodes of Citus means nothing on a server by itself.
#
sql(q{CREATE ROLE delay_wheel_user; GRANT delay_wheel_user TO many_1});
is(sql(q{SELECT has_table_privilege('delay_wheel_user', 'delay_wheel.tasks', 'INSERT') AND NOT has_table_privilege('public', 'delay_wheel.tasks', 'INSERT'),
	EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a WHERE a.grantee = 'delay_wheel_user'::regrole)}), 'f|f', 'without Citus a role delay_wheel_user has no right');
sql(q{DROP ROLE delay_wheel_user});

#
# Too few worker slots: launcher, timer, one executor.
#
$node->append_conf('postgresql.conf', "max_worker_processes = 4\nmax_logical_replication_workers = 0\n");
$node->restart;
sql('TRUNCATE seen');
$position = log_position($node);
foreach my $i (1 .. 8)
{
	schedule_as("many_$i", "insert into seen (what) values ('slots')");
}
wait_for($node, q{SELECT count(DISTINCT who) = 8 FROM seen WHERE what = 'slots'}, 'with a single worker slot, all roles come to their turn', 120);
note('the last after ' . sql('SELECT max(at) - min(at) FROM seen'));
$log = log_since($node, $position);
like($log, qr/cannot run tasks of role "many_\d+": no background worker is free.*\n.*HINT:.*max_worker_processes/, 'the log says what is short');

done_testing();
