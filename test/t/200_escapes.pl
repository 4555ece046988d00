# What one role may not see or do of another's tasks, where it takes several
# sessions or databases, the server's log, or a dump to show it.  The rest is
# in sql/escapes.sql and sql/rights.sql.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('escapes', conf => q{
autovacuum_naptime = 1s
log_autovacuum_min_duration = 0
delay_wheel.executor_idle_timeout = 1h
});
my $secret = 'hidden' . int(rand(1e9));

$node->safe_psql('postgres', q{
	CREATE ROLE alice LOGIN;
	CREATE ROLE eve LOGIN;
	CREATE ROLE watcher LOGIN;
	GRANT pg_monitor TO watcher;
	CREATE DATABASE other;
	SELECT delay_wheel.allow('alice', 'eve');
	CREATE TABLE effects (label text, who text DEFAULT current_user);
	GRANT ALL ON effects TO PUBLIC;
	CREATE SCHEMA eve AUTHORIZATION eve;
});
$node->safe_psql('other', 'CREATE EXTENSION delay_wheel');

# By a real login: stdout and stderr, with all that the server says.
sub as
{
	my ($role, $sql, %options) = @_;
	my ($code, $out, $err) = $node->psql($options{db} // 'postgres',
		($options{debug} ? "SET client_min_messages = debug5;\n" : '') . $sql,
		on_error_stop => 0, extra_params => [ '-U', $role ]);

	die "could not run psql: $err" if $code == 2;
	return ($out, $err);
}

sub out_as { my ($out, $err) = as(@_); diag($err) if $err ne ''; return $out; }

sub last_line { return (split /\n/, $_[0])[-1]; }

#
# Another role's SQL, while it is pending, running, and failed.
#
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
my $position = log_position($node);
my $pending = out_as('alice', "SELECT delay_schedule('1 hour', 'SELECT ''$secret''')");
my $failed = out_as('alice', "SELECT delay_schedule('0', 'SELECT ''$secret''::int')");
my $running = out_as('alice', "SELECT delay_schedule('0', 'SELECT pg_advisory_lock_shared(1), ''$secret''')");
wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $running", 'a task is running', 60, expected => 1);
wait_for($node, "SELECT count(*) FROM delay_wheel.failed WHERE id = $failed", 'another one has failed', 60, expected => 1);
my $executor = $node->safe_psql('postgres', "SELECT pid FROM delay_wheel.running WHERE task = $running");

# that these would see it, if they could
like(out_as('alice', 'SELECT sql FROM delay_wheel.tasks'), qr/$secret/, 'the owner sees what is pending');
like(out_as('alice', 'SELECT message FROM delay_wheel.failed'), qr/$secret/, 'and what has failed');
like($node->safe_psql('postgres', "SELECT query FROM pg_stat_activity WHERE pid = $executor"), qr/$secret/,
	'a superuser sees what is running');
like(log_since($node, $position), qr/delay_wheel task $failed failed: .*$secret/, 'the log shows the failed task with its SQL');
is($node->safe_psql('postgres', "SELECT usename FROM pg_stat_activity WHERE pid = $executor"), 'alice',
	'the executor is a session of the owner');

as('eve', q{
	CREATE FUNCTION eve.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
		$$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$;
	CREATE FUNCTION eve.tell(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
		$$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$;
	CREATE OPERATOR eve.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = eve.tell)});
$node->safe_psql('postgres', 'ANALYZE delay_wheel_data.task; ANALYZE delay_wheel_data.failed_task');
for my $query (
	'SELECT * FROM delay_wheel.tasks',
	'SELECT * FROM delay_wheel.failed',
	'SELECT * FROM delay_wheel.running',
	'SELECT * FROM delay_wheel.status',
	'SELECT * FROM delay_wheel.ring WHERE tasks > 0',
	'SELECT * FROM delay_wheel_internal.get_running()',
	'SELECT * FROM delay_wheel_internal.get_status()',
	'SELECT * FROM delay_wheel.tasks WHERE eve.tell(sql)',
	'SELECT * FROM delay_wheel.tasks WHERE sql OPERATOR(eve.===) sql',
	'SELECT * FROM delay_wheel.tasks ORDER BY eve.tell(sql)',
	'SELECT 1 FROM delay_wheel.tasks GROUP BY eve.tell(sql)',
	'SELECT * FROM delay_wheel.failed WHERE eve.tell(message) AND eve.tell(sql)',
	'SELECT * FROM delay_wheel.tasks WHERE sql::int > 0',
	'SELECT * FROM delay_wheel.tasks t JOIN (VALUES (1)) v(i) ON eve.tell(t.sql)',
	'EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM delay_wheel.tasks WHERE eve.tell(sql)',
	'SELECT * FROM delay_wheel_data.task',
	'SELECT * FROM delay_wheel_data.failed_task',
	'SELECT * FROM delay_wheel_data.prepared',
	'COPY delay_wheel_data.task TO STDOUT',
	'LOCK delay_wheel_data.task IN ACCESS SHARE MODE',
	"SELECT * FROM pg_stats WHERE schemaname LIKE 'delay_wheel%'",
	'SELECT * FROM pg_statistic',
	"SELECT * FROM pg_stat_activity WHERE pid = $executor",
	"SELECT pg_stat_get_backend_activity(id) FROM pg_stat_get_backend_idset() id",
	"SELECT delay_cancel($pending), delay_cancel($running)",
	"SELECT delay_cancel($running)",
	"SELECT delay_reschedule($pending, '0')",
	"SELECT delay_reschedule($pending, now())",
	"SELECT delay_update($pending, priority => 1)",
	'SELECT * FROM delay_wheel_data.unique_key',
	'SELECT * FROM delay_wheel.audit',
	'SELECT * FROM delay_wheel_data.audit',
	"SELECT pg_terminate_backend($executor)",
	"SELECT pg_log_backend_memory_contexts($executor)")
{
	my ($out, $err) = as('eve', $query, debug => 1);
	(my $name = $query) =~ s{\d{2,}}{...}g;
	unlike("$out\n$err", qr/$secret/, "not seen by another role: $name");
}
my (undef, $error) = as('eve', "SELECT delay_cancel($running)");
like($error, qr/permission denied for task $running/, 'a running task is not another role\'s to cancel');
is(out_as('eve', 'SELECT count(*) FROM delay_wheel.tasks'), 0, 'another role sees no pending tasks');
is(out_as('eve', 'SELECT count(*) FROM delay_wheel.running'), 0, 'another role sees no running tasks');
is(out_as('eve', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'another role sees no failed tasks');

#
# Monitoring: all that runs, in all databases, without SQL.
#
is(out_as('watcher', "SELECT task, owner FROM delay_wheel.running"), "$running|alice", 'pg_monitor sees what is running');
is(out_as('watcher', 'SELECT database FROM delay_wheel.status ORDER BY 1'), "other\npostgres", 'and the state of all databases');
is(out_as('watcher', 'SELECT (SELECT count(*) FROM delay_wheel.tasks), (SELECT count(*) FROM delay_wheel.failed)'), '0|0',
	'but no tasks');
my @views = split /\n/, $node->safe_psql('postgres', q{SELECT oid::regclass FROM pg_class
	WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'v' ORDER BY 1});
cmp_ok(scalar(@views), '>=', 5, 'there are views');
for my $view (@views)
{
	my ($out, $err) = as('watcher', "SELECT * FROM $view", debug => 1);
	unlike("$out\n$err", qr/$secret/, "pg_monitor sees no SQL in $view");
}
is(out_as('eve', 'SELECT database FROM delay_wheel.status'), 'postgres', 'a plain role sees the state of its database');
is(out_as('eve', 'SELECT database FROM delay_wheel.status', db => 'other'), 'other', 'a plain role sees the state of another database when connected to it');
is(out_as('eve', 'SELECT count(*) FROM delay_wheel.status WHERE last_problem IS NOT NULL'), 0, 'without its problems');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$lock->quit;
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'the task ends', 60, expected => 0);
out_as('alice', "SELECT delay_cancel($pending)");

#
# Autovacuum analyzes a table with an expression of eve's: as its owner would,
# but in a security-restricted operation.
#
$position = log_position($node);
as('eve', q{
	CREATE FUNCTION eve.expression(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN i; END';
	CREATE TABLE eve.analyzed (i int) WITH (autovacuum_analyze_threshold = 10, autovacuum_analyze_scale_factor = 0);
	CREATE INDEX ON eve.analyzed (eve.expression(i));
	INSERT INTO eve.analyzed SELECT generate_series(1, 9);
	CREATE OR REPLACE FUNCTION eve.expression(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		IF i < 100 THEN
			PERFORM public.delay_schedule('0', 'INSERT INTO effects VALUES (''from autovacuum'')');
		END IF;
		RETURN i;
	END$$;
	INSERT INTO eve.analyzed SELECT generate_series(100, 200)});
ok( wait_until(120, sub {
		log_since($node, $position) =~ /cannot execute delay_schedule\(\) within security-restricted operation/ }),
	'a function that autovacuum runs cannot schedule');
like(log_since($node, $position), qr/automatic analyze of table "postgres.eve.analyzed"/, 'in the middle of its work');
as('eve', 'DROP TABLE eve.analyzed');
is($node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM delay_wheel_data.task)}), 0,
	'nothing comes of it');

#
# Two tenants that log in by themselves, each with a search_path of its own.
#
$node->safe_psql('postgres', q{
	CREATE ROLE tenant1 LOGIN;
	CREATE ROLE tenant2 LOGIN;
	SELECT delay_wheel.allow('tenant1', 'tenant2');
	CREATE SCHEMA tenant1 AUTHORIZATION tenant1;
	CREATE SCHEMA shop2 AUTHORIZATION tenant2;
	ALTER ROLE tenant2 SET search_path = shop2, public;
	CREATE FUNCTION rate_later() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM delay_schedule('0', 'UPDATE t_order SET stars = 5 WHERE oid = $1', NEW.oid);
		RETURN NULL;
	END $$});
for my $tenant ('tenant1', 'tenant2')
{
	out_as($tenant, q{
		CREATE TABLE t_order (oid int PRIMARY KEY, stars int);
		CREATE TRIGGER rate_later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION rate_later()});
}
out_as($_, 'INSERT INTO t_order VALUES (1), (2)') for ('tenant1', 'tenant2');
$node->safe_psql('postgres', 'INSERT INTO tenant1.t_order VALUES (3)');
for my $table ('tenant1.t_order', 'shop2.t_order')
{
	wait_for($node, "SELECT count(*) FROM $table WHERE stars = 5 AND oid < 3", "each tenant's task finds $table", 60, expected => 2);
}
wait_for($node, q{SELECT count(*) FROM delay_wheel.failed WHERE message LIKE 'relation "t_order" does not exist'},
	'a superuser without that path finds none', 60, expected => 1);

#
# max_pending: by ALTER ROLE, at login; with several sessions.
#
$node->safe_psql('postgres', q{
	ALTER ROLE alice SET delay_wheel.max_pending = 10;
	DELETE FROM delay_wheel_data.failed_task});
my @session = map { $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'alice' ]) } 1 .. 2;
my $five = "SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 5)";
is($session[0]->query("BEGIN; $five"), 5, 'a session schedules some, in a transaction');
is($session[1]->query($five), 5, 'another one the rest');
unlike($session[1]->query("SELECT delay_schedule('1 hour', 'SELECT 1') > 0"), qr/^t$/m, 'what is not committed counts');
$session[0]->query('ROLLBACK');
is($session[1]->query($five), 5, 'what is rolled back does not');
unlike($session[1]->query("SELECT delay_schedule('1 hour', 'SELECT 1') > 0"), qr/^t$/m, 'nothing beyond the limit');
is($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'alice'::regrole"), 10, 'it is kept');
$_->quit for @session;
$node->safe_psql('postgres', 'SELECT delay_cancel(id) FROM delay_wheel.tasks; ALTER ROLE alice SET delay_wheel.max_pending = 100');
# recurring tasks that are paused have no run, and none is pending; each that goes on has one
my $made = $node->psql('postgres', "SELECT delay_every('r' || i, '1 day', 'SELECT 1'), delay_pause_recurring('r' || i) FROM generate_series(1, 101) i",
	extra_params => [ '-U', 'alice' ]);
my ($rc, $out, $err) = $node->psql('postgres', "SELECT count(delay_resume_recurring('r' || i)) FROM generate_series(1, 100) i; SELECT delay_resume_recurring('r101')",
	extra_params => [ '-U', 'alice' ]);
is($made, 0, 'recurring tasks that are paused count for nothing');
is($out, 100, 'they are resumed up to the limit');
like($err, qr/role "alice" has reached its limit of pending tasks: 100/, 'and not beyond it');
$node->safe_psql('postgres', "SELECT delay_unschedule('r' || i) FROM generate_series(1, 101) i", extra_params => [ '-U', 'alice' ]);
# both sessions may have counted at once: a tenth of what was left for each
@session = map { $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'alice' ]) } 1 .. 2;
$session[0]->query("SELECT delay_schedule('1 hour', 'SELECT 1')");
for my $i (1, 0)
{
	for (1 .. 120)
	{
		last if $session[$i]->query("SELECT delay_schedule('1 hour', 'SELECT 1') > 0") !~ /^t$/m;
	}
}
my $total = $node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'alice'::regrole");
cmp_ok($total, '>=', 100, 'several sessions reach the limit');
cmp_ok($total, '<=', 110, 'and exceed it by no more than a tenth each');
$_->quit for @session;
$node->safe_psql('postgres', 'SELECT delay_cancel(id) FROM delay_wheel.tasks; ALTER ROLE alice RESET delay_wheel.max_pending');

#
# A dump takes the grants along, as they differ from those of CREATE EXTENSION.
#
my $grants = q{SELECT o.name, a.grantee::regrole, a.privilege_type, a.is_grantable
	FROM pg_depend d JOIN (
			SELECT 'pg_proc'::regclass, oid, oid::regprocedure::text, COALESCE(proacl, acldefault('f', proowner)) FROM pg_proc
			UNION ALL SELECT 'pg_class'::regclass, oid, oid::regclass::text, relacl FROM pg_class WHERE relkind = 'v') o(class, oid, name, acl)
			ON o.class = d.classid AND o.oid = d.objid
		JOIN pg_extension e ON e.oid = d.refobjid AND d.deptype = 'e' AND e.extname = 'delay_wheel',
		LATERAL aclexplode(o.acl) a
	ORDER BY o.name COLLATE "C", 2, 3, 4};
$node->safe_psql('postgres', q{
	SELECT delay_wheel.disallow('eve');
	CREATE ROLE "Odd "" Role";
	SELECT delay_wheel.allow('Odd " Role');
	CREATE ROLE grantor;
	GRANT INSERT ON delay_wheel.tasks TO grantor WITH GRANT OPTION;
	GRANT EXECUTE ON FUNCTION delay_wheel.arm() TO eve WITH GRANT OPTION;
	GRANT SELECT ON delay_wheel_data.failed_task TO eve;
	REVOKE SELECT ON delay_wheel.ring FROM PUBLIC});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
for my $format ('p', 'c')
{
	$node->command_ok([ 'pg_dump', '-F', $format, '-f', $dump, '-d', $node->connstr('postgres') ], "dumped, format $format");
	$node->safe_psql('postgres', "CREATE DATABASE restored_$format TEMPLATE template0");
	$node->command_ok(
		$format eq 'p'
		? [ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr("restored_$format") ]
		: [ 'pg_restore', '-e', '-d', $node->connstr("restored_$format"), $dump ],
		'restored');
	is($node->safe_psql("restored_$format", $grants), $node->safe_psql('postgres', $grants), 'with the right, and the grants on functions');
	is($node->safe_psql("restored_$format", q{SELECT has_table_privilege('eve', 'delay_wheel_data.failed_task', 'SELECT'),
			has_table_privilege('public', 'delay_wheel.ring', 'SELECT'), has_table_privilege('public', 'delay_wheel.tasks', 'SELECT')}),
		't|f|t', 'and on tables');
	my ($out, $err) = as('alice', "SELECT delay_cancel(delay_schedule('1 hour', 'SELECT 1'))", db => "restored_$format");
	is($out, 'cancelled', 'who was allowed still is') or diag($err);
	(undef, $err) = as('eve', "SELECT delay_cancel(1)", db => "restored_$format");
	like($err, qr/permission denied to use delay_wheel/, 'who was not is not');
}

$node->stop;
done_testing();
