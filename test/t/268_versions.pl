# Versions: a database that has the extension of an older version is served by this library,
# and ALTER EXTENSION UPDATE keeps all that is in it, with everything pending, running, being
# cancelled and prepared. What an update makes is what CREATE EXTENSION makes. The older
# version, 0.9, is made up here: it lacks what src/sql/page.sql brings.

use strict;
use warnings;

use File::Basename;
use File::Path qw(make_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

#
# PostgreSQL once more, with a directory of extensions of its own, where the scripts of 0.9
# can be written. Programs find that directory from their own place, so they are copied.
#
my $root = "$FindBin::RealBin/../..";
my $copy = PostgreSQL::Test::Utils::tempdir() . '/pg';
chomp(my ($bindir, $libdir, $pkglibdir, $sharedir) = map { scalar `$ENV{PG_CONFIG} --$_` } qw(bindir libdir pkglibdir sharedir));

make_path(map { $copy . dirname($_) } $bindir, $libdir, $pkglibdir, $sharedir);
system('cp', '-RL', $bindir, "$copy$bindir") == 0 or die 'cannot copy the programs';
for my $dir ($libdir, $pkglibdir)
{
	-e "$copy$dir" or symlink($dir, "$copy$dir") or die "cannot link to $dir";
}
make_path("$copy$sharedir/extension");
for my $file (glob("$sharedir/*"), glob("$sharedir/extension/*"))
{
	-e "$copy$file" or symlink($file, "$copy$file") or die "cannot link to $file";
}

my $script = slurp_file("$sharedir/extension/delay_wheel--1.0.sql");
my $page = slurp_file("$root/src/sql/page.sql");
my ($head) = slurp_file("$root/src/sql/begin.sql") =~ /^(CREATE FUNCTION delay_revoke_defaults.*?;\n)/ms;
my ($tail) = slurp_file("$root/src/sql/end.sql") =~ /^(SELECT delay_revoke_defaults.*?DROP FUNCTION.*?;\n)/ms;
$script =~ s/\Q$page\E// or die 'the script has no page';
append_to_file("$copy$sharedir/extension/delay_wheel--0.9.sql", $script);
append_to_file("$copy$sharedir/extension/delay_wheel--0.9--1.0.sql", $head . $page . $tail);

my $node = new_node('versions', extension => 0, bindir => "$copy$bindir", conf => q{
delay_wheel.executor_idle_timeout = 1s
delay_wheel.history = 'all'
});
my $newest = $node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'delay_wheel'});

sub q_in
{
	my ($db, $sql) = @_;
	return $node->safe_psql($db, $sql);
}

sub version { return q_in($_[0], q{SELECT extversion FROM pg_extension WHERE extname = 'delay_wheel'}) }

my @tables = ((map { "delay_wheel_data.$_" } qw(task failed_task queue pause cancellation recurring_task prepared)), map { "delay_wheel_data.history_$_" } 0 .. 2);

# What the rows of each table are.
sub rows
{
	my ($db, @which) = @_;
	return { map { $_ => q_in($db, "SELECT string_agg(r, E'\\n' ORDER BY r) FROM (SELECT to_jsonb(t)::text FROM $_ t) _(r)") } @which };
}

#
# A database of 0.9 with everything in it.
#
q_in('postgres', q{
	CREATE ROLE anna LOGIN;
	CREATE ROLE reader LOGIN;
	CREATE DATABASE old OWNER anna});
q_in('old', q{
	CREATE EXTENSION delay_wheel VERSION '0.9';
	SELECT delay_wheel.allow('anna');
	GRANT SELECT ON delay_wheel_data.task TO reader;
	CREATE TABLE public.effects (label text, who name DEFAULT current_user);
	CREATE TABLE public.orders (id int);
	GRANT ALL ON public.effects, public.orders TO anna;
	CREATE FUNCTION public.fails() RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''it fails''; END';
	SELECT delay_wheel.create_queue('slow', rate => 1000, max_running => 1, users => '{anna}', options => '{"history": "all"}'), delay_wheel.create_queue('stopped', users => '{anna}');
	SELECT delay_wheel.pause_queue('stopped')});
is(version('old'), '0.9', 'a database is at 0.9');

my $anna = 'SET SESSION AUTHORIZATION anna;';
q_in('old', "$anna SELECT delay_schedule('0', 'INSERT INTO public.effects VALUES (''before'')'), delay_schedule('0', 'SELECT public.fails()'),
	delay_schedule_task('SELECT public.fails()', tag => 'retried', max_attempts => 2, options => '{\"retry_delay\": \"10 days\"}')");
wait_for($node, q{SELECT string_agg(outcome, ' ' ORDER BY outcome) FROM delay_wheel.history}, 'its tasks run', 60,
	db => 'old', expected => 'done failed retried');
is(q_in('old', q{SELECT done, failed, retried, state FROM delay_wheel.status WHERE database = 'old'}), '1|1|1|running', 'its views tell');

# every kind of task; each leaves its label when it runs
my %kinds = (
	plain => q{delay_schedule('1 day', %s)},
	args => q{delay_schedule('1 day', 'INSERT INTO public.effects VALUES ($1 || $2)', 'ar'::text, 'gs')},
	at => q{delay_schedule_at(now() + interval '1 day', %s)},
	keyed => q{delay_schedule_task(%s, delay => '1 day', key => 'k')},
	options => q{delay_schedule_task(%s, delay => '1 day', tag => 't', priority => 1, max_attempts => 3, options => '{"retry_delay": "1 s", "timeout": "1 min", "expires": "1 h", "notify": "ended"}')},
	skipping => q{delay_schedule_task(%s, delay => '1 day', options => '{"skip_after": "1 h"}')},
	slow => q{delay_schedule_task(%s, delay => '1 day', queue => 'slow')},
	stopped => q{delay_schedule_task(%s, delay => '1 day', queue => 'stopped')},
	leading => q{delay_schedule_task(%s, delay => '1 day', options => jsonb_build_object('on_success', 'INSERT INTO public.effects VALUES (''following'')'))},
	once => q{delay_schedule_task('CALL public.commits(''once'')', delay => '1 day', options => '{"mode": "at_most_once"}')},
	least => q{delay_schedule_task('CALL public.commits(''least'')', delay => '1 day', options => '{"mode": "at_least_once"}')},
	every => q{delay_every('every', '1 day', %s, options => '{"max_runs": 1}')},
	cron => q{delay_cron('cron', '0 0 * * *', %s, timezone => 'UTC', options => '{"max_runs": 1}')},
);
q_in('old', q{CREATE PROCEDURE public.commits(text) LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.effects VALUES ($1); COMMIT; END'});
q_in('old', $anna . join(';', map { sprintf("SELECT $kinds{$_}", "'INSERT INTO public.effects VALUES (''$_'')'") } sort keys %kinds));
q_in('old', q{
	CREATE TRIGGER later AFTER INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION
		delay_schedule_trigger('1 day', 'INSERT INTO public.effects VALUES (''order '' || $1)', 'id')});
q_in('old', "$anna INSERT INTO public.orders VALUES (1)");

# one that runs, one that is prepared, some that are cancelled and cannot be removed yet
my $gate = $node->background_psql('old');
$gate->query_safe('SELECT pg_advisory_lock(1)');
q_in('old', "$anna SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock(1); INSERT INTO public.effects VALUES (''running'')')");
wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'one of them runs', 60, expected => 1);
q_in('old', "$anna BEGIN; SELECT delay_schedule('1 day', 'INSERT INTO public.effects VALUES (''prepared'')'); PREPARE TRANSACTION 'p'");
q_in('old', "$anna SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''CANCELLED'')', delay => '1 day', tag => 'gone') FROM generate_series(1, 5)");
my $holder = $node->background_psql('old');
$holder->query_safe(q{BEGIN; SELECT FROM delay_wheel_data.task WHERE tag = 'gone' FOR UPDATE});
q_in('old', "$anna SELECT delay_cancel_all(tag => 'gone')");

#
# The update, first undone, then done.
#
my $before = rows('old', @tables);
like(q_in('old', q{
	SET lock_timeout = '60s';
	BEGIN;
	ALTER EXTENSION delay_wheel UPDATE;
	SELECT delay_schedule('0', 'INSERT INTO effects VALUES (''NEVER'')');
	ROLLBACK;
	SELECT delay_schedule('0', 'INSERT INTO effects VALUES (''after the rollback'')')}), qr/^\d+\n\d+$/, 'the update is rolled back');
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'after the rollback'}, 'which is as if nothing had happened', 60, db => 'old', expected => 1);
is(version('old'), '0.9', 'the version is the old one');
wait_for($node, q{SELECT count(*) FROM delay_wheel.history WHERE outcome = 'done'}, 'the end of that is recorded', 60, db => 'old', expected => 2);
my @but_history = grep { !/history/ } @tables;
is_deeply(rows('old', @but_history), { map { $_ => $before->{$_} } @but_history }, 'all rows are the old ones');

$before = rows('old', @tables);
q_in('old', q{SET lock_timeout = '60s'; ALTER EXTENSION delay_wheel UPDATE});
is(version('old'), $newest, "the database is at $newest");
is_deeply(rows('old', @tables), $before, 'every row is as it was, while one task runs, one is prepared, and some are being cancelled');
is(q_in('old', q{SELECT delay_wheel.page_data() ->> 'version'}), $newest, 'it has what is new');
is(q_in('old', q{SELECT has_table_privilege('reader', 'delay_wheel_data.task', 'SELECT'), has_table_privilege('anna', 'delay_wheel.tasks', 'INSERT')}),
	't|t', 'what was granted still is');

# Another start, before anything of it has run.
q_in('old', q{COMMIT PREPARED 'p'});
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'running'}, 'what ran over the update ends', 60, db => 'old', expected => 1);
$gate->quit;
$holder->query_safe('COMMIT');
$holder->quit;
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.cancellation', 'the cancellation goes on', 60, db => 'old', expected => 0);
$node->restart;
q_in('old', 'UPDATE delay_wheel_data.task SET due = now() WHERE due > now()');
my @labels = ((grep { $_ ne 'stopped' } sort keys %kinds),
	'before', 'after the rollback', 'following', 'order 1', 'prepared', 'running');
wait_for($node, q{SELECT string_agg(label, ',' ORDER BY label COLLATE "C") FROM effects}, 'all kinds of tasks run, each once', 60,
	db => 'old', expected => join(',', sort @labels));
is(q_in('old', 'SELECT queue FROM delay_wheel.tasks'), 'stopped', 'what is paused alone is left');
q_in('old', q{SELECT delay_wheel.resume_queue('stopped')});
wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'stopped'}, 'it runs when it is not any more', 60, db => 'old', expected => 1);
is(q_in('old', q{SELECT string_agg(DISTINCT who, ' ') FROM effects WHERE label <> 'after the rollback'}), 'anna', 'all as their owner');
wait_for($node, q{SELECT string_agg(attempts::text, ' ' ORDER BY attempts) FROM delay_wheel.failed}, 'the second attempt of a task was its last', 60,
	db => 'old', expected => '1 2');
is(q_in('old', q{SELECT delay_retry(min(id)) FROM delay_wheel.failed}), 'retried', 'one that failed at 0.9 is put back');
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'and fails again', 60, db => 'old', expected => 2);
is(q_in('old', 'SELECT string_agg(name || state, $$ $$ ORDER BY name) FROM delay_wheel.recurring'), 'cronfinished everyfinished', 'recurring tasks have come to their end');

#
# Both ways lead to the same objects, whatever default privileges say.
#
my $default_privileges = join(';', map { "ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO reader" } qw(TABLES SEQUENCES FUNCTIONS SCHEMAS TYPES));
q_in('postgres', "CREATE DATABASE $_") for qw(fresh updated);
q_in('fresh', "$default_privileges; CREATE EXTENSION delay_wheel");
q_in('updated', "$default_privileges; CREATE EXTENSION delay_wheel VERSION '0.9'");
q_in('updated', "ALTER EXTENSION delay_wheel UPDATE TO '$newest'");

my $members = q{pg_depend d JOIN pg_extension e ON e.extname = 'delay_wheel' AND d.refobjid = e.oid
	AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'};
my %catalog = (
	objects => "SELECT pg_describe_object(d.classid, d.objid, 0), obj_description(d.objid, d.classid::regclass::text) FROM $members",
	functions => "SELECT pg_get_functiondef(p.oid), p.proacl::text FROM $members JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid",
	relations => "SELECT c.oid::regclass, c.relkind, c.reloptions, c.relreplident, c.relacl::text, pg_get_viewdef(c.oid) FROM $members
		JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid",
	columns => "SELECT c.oid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage, a.attacl::text,
		pg_get_expr(f.adbin, f.adrelid), col_description(c.oid, a.attnum) FROM $members JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 LEFT JOIN pg_attrdef f ON f.adrelid = c.oid AND f.adnum = a.attnum",
	constraints => "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace)",
	indexes => "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid::regclass::text LIKE 'delay_wheel%'",
	triggers => "SELECT pg_get_triggerdef(oid), tgenabled FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'delay_wheel%' AND NOT tgisinternal",
	dumped => "SELECT c::regclass, condition FROM pg_extension, unnest(extconfig, extcondition) u(c, condition) WHERE extname = 'delay_wheel'",
	initial => "SELECT pg_describe_object(i.classoid, i.objoid, i.objsubid), i.initprivs::text FROM $members
		JOIN pg_init_privs i ON d.classid = i.classoid AND d.objid = i.objoid",
	schema => q{SELECT nspacl::text, obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname IN ('delay_wheel', 'delay_wheel_data', 'delay_wheel_internal')},
);

sub catalog
{
	my ($db, $which) = @_;
	return [ split /^--\n/m, q_in($db, "SELECT string_agg(r, E'\\n--\\n' ORDER BY r COLLATE \"C\") FROM (SELECT to_jsonb(t)::text FROM ($catalog{$which}) t) _(r)") ];
}

for my $which (sort keys %catalog)
{
	my $fresh = catalog('fresh', $which);

	cmp_ok(scalar @$fresh, '>=', 1, "$which of a new database");
	is_deeply(catalog('updated', $which), $fresh, "$which of an updated database are the same");
}
is( q_in('updated', "SELECT string_agg(pg_describe_object(d.classid, d.objid, 0), ', ') FROM $members
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid,
	LATERAL aclexplode(coalesce(c.relacl, p.proacl)) a WHERE a.grantee = 'reader'::regrole"),
	'', 'default privileges give nobody anything of either');

# Default privileges that keep functions from everybody do not keep these.
q_in('postgres', 'CREATE DATABASE strict');
q_in('strict', 'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; ALTER DEFAULT PRIVILEGES GRANT INSERT ON TABLES TO PUBLIC; CREATE EXTENSION delay_wheel');
my $of_public = "SELECT string_agg(o, E'\\n' ORDER BY o COLLATE \"C\") FROM (
	SELECT p.oid::regprocedure::text FROM $members JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid WHERE has_function_privilege('public', p.oid, 'EXECUTE')
	UNION ALL SELECT c.oid::regclass::text FROM $members JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid WHERE has_table_privilege('public', c.oid, 'INSERT')) _(o)";
is(q_in('strict', $of_public), q_in('fresh', $of_public), 'default privileges that revoke EXECUTE from PUBLIC, and grant INSERT, change nothing for PUBLIC');

#
# A dump does not say which version it was made of: it is restored as the newest.
#
q_in('postgres', 'CREATE DATABASE made; CREATE DATABASE restored');
q_in('made', q{CREATE EXTENSION delay_wheel VERSION '0.9'; SELECT delay_wheel.allow('anna'); SELECT delay_wheel.create_queue('q', users => '{anna}')});
q_in('made', "$anna SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', queue => 'q'), delay_schedule('0', 'SELECT 1 / 0'), delay_every('r', '1 day', 'SELECT 1')");
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'a dump is made at 0.9', 60, db => 'made', expected => 1);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/made.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, 'made' ], 'it is');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored' ], 'it is restored');
is(version('restored'), $newest, "the copy is at $newest");
my @dumped = map { "delay_wheel_data.$_" } qw(task failed_task queue recurring_task);
is_deeply(rows('restored', @dumped), rows('made', @dumped), 'with all that was in it');
is(q_in('restored', "$anna SELECT delay_schedule('1 day', 'SELECT 1') IS NOT NULL"), 't', 'and its grants');

$node->stop;
done_testing();
