# What a role may try by all that there is beside plain tasks (for these see
# sql/escapes.sql and 200_escapes.pl): keys, queues, triggers, recurring tasks,
# follow-ups, retries, delay_run() by a superuser, views, plain SQL, a dump, and
# what it has prepared where the extension is to be created.  Nobody runs
# anything with rights that he lacks, sees or stops what is another role's.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('hostile_users', conf => q{
log_line_prefix = '%m [%p] %b %e '
delay_wheel.history = all
delay_wheel.executor_idle_timeout = 1h
});
my ($out, $err);
my $position = log_position($node);
my $secret = 'hidden' . int(rand(1e9));

$node->safe_psql('postgres', q{
	CREATE ROLE victim LOGIN;
	CREATE ROLE mallory LOGIN;
	CREATE ROLE gang;
	GRANT gang TO mallory;
	CREATE ROLE hand NOLOGIN;
	GRANT hand TO mallory;
	CREATE ROLE boss LOGIN SUPERUSER;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE ROLE writer LOGIN;
	GRANT pg_write_all_data, pg_read_all_data, pg_signal_backend TO writer;
	SELECT delay_wheel.allow('victim', 'mallory', 'hand', 'writer', 'watcher');
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory, victim, writer; GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.arm, delay_wheel.follow_shards TO mallory, victim, writer;
	CREATE SCHEMA evil AUTHORIZATION mallory;
	GRANT ALL ON SCHEMA evil TO PUBLIC;
	-- only victim and superusers can write here
	CREATE TABLE loot (what text, who text DEFAULT current_user, session text DEFAULT session_user);
	GRANT INSERT ON loot TO victim;
	CREATE TABLE seen (what text, who text DEFAULT current_user, session text DEFAULT session_user);
	GRANT ALL ON seen TO PUBLIC;
});

# By a real login: what it says, errors included.
sub as
{
	my ($role, $sql, $db) = @_;
	my ($code, $out, $err) = $node->psql($db // 'postgres', $sql, on_error_stop => 0, extra_params => [ '-U', $role ]);

	die "could not run psql: $err" if $code == 2;
	return ($out, $err);
}

sub out_as { my ($out, $err) = as(@_); diag($err) if $err =~ /ERROR/; return $out; }

sub no_loot
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# who may write all tables may write there
	is($node->safe_psql('postgres', q{SELECT * FROM loot WHERE (who, session) <> ('writer', 'writer')}), '', "no loot: $what");
	return;
}

sub wait_until_done
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_for($node, q{SELECT NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE due <= now() AND origin = delay_wheel_internal.origin())
		AND NOT EXISTS (SELECT FROM delay_wheel.running)}, $what);
	return;
}

#
# 1. Becoming somebody else: each attack in each way.  Where it succeeds it has
# written the loot.
#
as('mallory', q{
	CREATE FUNCTION evil.loot(what text, before text DEFAULT 'SELECT 1') RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE before;
		INSERT INTO public.loot VALUES (what);
		RETURN true;
	END $$;
	CREATE FUNCTION evil.definer(what text, before text DEFAULT 'SELECT 1') RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS
		$$BEGIN RETURN evil.loot(what, before); END$$;
	-- never fails
	CREATE FUNCTION evil.try(what text, before text DEFAULT 'SELECT 1') RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		RETURN evil.loot(what, before);
	EXCEPTION WHEN OTHERS THEN
		INSERT INTO public.seen VALUES (what || ': ' || SQLERRM);
		RETURN true;
	END $$;
	CREATE FUNCTION evil.at_commit() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN PERFORM evil.loot('at the commit', TG_ARGV[0]); RETURN NULL; END$$;
	CREATE TABLE evil.deferred (i int);
	CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON evil.deferred DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION evil.at_commit('RESET ROLE');
	CREATE DOMAIN evil.domain AS text CHECK (evil.try('domain', 'RESET ROLE'));
	CREATE TYPE evil.pair AS (a int, b evil.domain);
	CREATE FUNCTION evil.cast(evil.pair) RETURNS bigint LANGUAGE sql AS $$SELECT evil.try('cast', 'RESET ROLE')::int::bigint$$;
	CREATE CAST (evil.pair AS bigint) WITH FUNCTION evil.cast(evil.pair) AS IMPLICIT;
	CREATE FUNCTION evil.equal(evil.pair, evil.pair) RETURNS boolean LANGUAGE sql AS $$SELECT evil.try('operator', 'RESET ROLE')$$;
	CREATE OPERATOR evil.= (LEFTARG = evil.pair, RIGHTARG = evil.pair, FUNCTION = evil.equal);
	-- every row that is inserted schedules tasks
	CREATE TABLE evil."fired ""%s" (
		i int, what text, "48 hours" interval DEFAULT '0', "key=" evil.domain, "$1" evil.domain DEFAULT 'x', "a'b\" evil.pair DEFAULT '(1,x)',
		generated text GENERATED ALWAYS AS ('g' || i) STORED, due timestamptz DEFAULT now());
});
$node->safe_psql('postgres', 'GRANT ALL ON evil.deferred, evil."fired ""%s" TO PUBLIC; GRANT USAGE ON SCHEMA evil TO PUBLIC');

group attacks => sub {
	my @attacks = (
		'SELECT 1', 'RESET ROLE', 'SET ROLE NONE', 'SET ROLE victim', 'SET LOCAL ROLE boss', 'SET SESSION AUTHORIZATION victim', 'SET SESSION AUTHORIZATION DEFAULT',
		"SELECT set_config('role', 'none', false)", "SELECT set_config('session_authorization', 'boss', false)", 'RESET ALL',
		'SET ROLE gang; RESET ROLE', "SELECT evil.definer('definer')", "SELECT evil.definer('definer', 'RESET ROLE')",
		"DO 'BEGIN RESET ROLE; RESET SESSION AUTHORIZATION; END'", 'ALTER ROLE mallory SUPERUSER', 'GRANT INSERT ON loot TO PUBLIC',
		"CREATE OR REPLACE FUNCTION evil.r() RETURNS boolean LANGUAGE sql SET role = victim AS 'SELECT evil.loot(''role of a function'')'; SELECT evil.r()",
		'INSERT INTO evil.deferred VALUES (1)', "DECLARE c CURSOR WITH HOLD FOR SELECT evil.loot('hold', 'RESET ROLE')",
		"CREATE TEMP TABLE pg_proc (i int DEFAULT evil.loot('temp', 'RESET ROLE')::int) ON COMMIT DROP; INSERT INTO pg_proc DEFAULT VALUES",
		"PREPARE p AS SELECT evil.loot('prepared', 'RESET ROLE'); EXECUTE p", 'SET session_replication_role = replica',
		"UPDATE delay_wheel_data.task SET owner = 'victim'", "INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 'boss', 'SELECT evil.loot(''row'')')");
	my $n = 0;

	for my $role ('mallory', 'hand')
	{
		my @sql = $role eq 'mallory' ? () : ("SET ROLE $role");

		for my $attack (@attacks)
		{
			my $full = $attack =~ /DECLARE|evil\.deferred/ ? $attack : "$attack; INSERT INTO public.loot VALUES ('" . ($attack =~ s/'/''/gr) . "')";
			(my $quoted = $full) =~ s/'/''/g;
			$n++;
			push @sql, (
				"SELECT delay_schedule_task('$quoted', key => 'k$n', tag => 't', max_attempts => 2, options => '{\"retry_delay\": \"1 ms\"}')",
				"SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('on_success', '$quoted'))",
				"SELECT delay_schedule_task('SELECT 1/0', options => jsonb_build_object('on_failure', '$quoted'))",
				"SELECT delay_every('$role $n', '1 day', '$quoted', starts => now(), options => jsonb_build_object('max_runs', 1, 'on_failure', '$quoted'))",
				"CREATE TRIGGER t$n AFTER INSERT ON evil.\"fired \"\"%s\" FOR EACH ROW WHEN (NEW.i = $n) EXECUTE FUNCTION delay_schedule_trigger('48 hours', '$quoted', 'key=key=', 'tag=\$1')");
			push @sql, "RESET ROLE; INSERT INTO evil.\"fired \"\"%s\" (i, \"key=\") VALUES ($n, 'x$n'); SET ROLE $role" if $role eq 'mallory';
			push @sql, "RESET ROLE; SET ROLE mallory; DROP TRIGGER IF EXISTS t$n ON evil.\"fired \"\"%s\"; SET ROLE $role";
		}
		# modes, which run outside of a transaction
		push @sql, map { "SELECT delay_schedule_task('$_', options => '{\"mode\": \"at_least_once\"}')" } 'SET ROLE victim', 'RESET ROLE', 'CALL evil.procedure()';
		# what is read for its arguments
		push @sql, "SELECT delay_schedule('0', 'SELECT \$1, \$2', 'x'::evil.domain, '(1,x)'::evil.pair)",
			"SELECT delay_schedule_task('SELECT \$1', args => '{x}', options => '{\"arg_types\": [\"evil.domain\"]}')",
			"SELECT delay_schedule('0', 'SELECT \$1 = \$1', '(1,x)'::evil.pair)";
		as('mallory', 'CREATE PROCEDURE evil.procedure() LANGUAGE plpgsql AS $$BEGIN COMMIT; PERFORM evil.try(\'procedure\', \'RESET ROLE\'); COMMIT; END$$')
		  if $role eq 'mallory';
		my ($out, $err) = as('mallory', join(";\n", @sql) . ';');
		unlike($err, qr/(?:syntax error|XX000)/, "attacks of $role are scheduled") or diag(substr($err, 0, 3000));
	}
	wait_until_done('the attacks have been run');
	no_loot('attacks by all ways of scheduling');
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.failed_task WHERE owner IN ('mallory'::regrole, 'hand'::regrole)"),
		'>=', 8 * @attacks, 'they have failed');
	is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT who, ' ') FROM seen"), 'hand mallory', 'checks, casts and operators ran as the owners of the tasks');

	# put back by a superuser
	is(out_as('boss', q{SELECT count(*) > 100 FROM (SELECT delay_retry_all() OFFSET 0) r, delay_wheel.failed}) =~ /^[tf]$/, 1, 'a superuser puts them back');
	wait_until_done('they have been run again');
	no_loot('put back by a superuser');
	out_as('boss', 'TRUNCATE seen; DELETE FROM delay_wheel_data.failed_task');
	# nobody else's session runs them
	out_as('mallory', "SET ROLE $_; SELECT delay_schedule_task('SELECT evil.loot(1)', delay => '1 hour', key => '$_', options => '{\"on_failure\": \"SELECT evil.loot(2)\"}')") for 'mallory', 'hand';
	for my $as ('RESET ROLE', 'SET ROLE mallory', 'SET ROLE hand', 'SET SESSION AUTHORIZATION mallory', 'SET SESSION AUTHORIZATION hand')
	{
		for my $role ('mallory', 'hand')
		{
			(undef, $err) = as('boss', "SELECT id FROM delay_wheel.tasks WHERE key = '$role' \\gset\n$as;\nSELECT delay_run(:id);\nSELECT delay_run_due('infinity');");
			my @errors = $err =~ /ERROR:  (\S+ \S+)/g;
			my $own = $as eq 'RESET ROLE' ? 0 : 1;
			is(scalar(grep { /^(?:tasks of|permission denied)/ } @errors), 1 + $own, "$as: a task of $role is not run by a superuser") or diag($err);
		}
	}
	no_loot('run by a superuser');
	out_as('mallory', "SELECT delay_cancel_all(due_from => '-infinity'); SELECT delay_unschedule(name) FROM delay_wheel.recurring");
	out_as('mallory', "SET ROLE hand; SELECT delay_cancel_all(due_from => '-infinity'); SELECT delay_unschedule(name) FROM delay_wheel.recurring");

	#
	# 2. What is another role's
	#
	$node->safe_psql('postgres', qq{
		TRUNCATE seen;
		DELETE FROM delay_wheel_data.failed_task;
		TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
		SELECT delay_wheel.create_queue('q $secret', users => '{victim}', max_running => 1);
		SET SESSION AUTHORIZATION victim;
		SELECT delay_wheel.create_queue('own $secret');
		SELECT delay_schedule_task('SELECT ''$secret''', delay => '1 hour', key => 'k $secret', tag => 't $secret', queue => 'q $secret', options => '{"unique_for": "1 day"}');
		SELECT delay_schedule_task('SELECT ''$secret''', delay => '1 hour', key => 'shared', tag => 'shared');
		SELECT delay_schedule_task('SELECT ''$secret''', key => 'done $secret', options => jsonb_build_object('notify', '$secret'));
		SELECT delay_schedule_task('SELECT ''$secret''::int');
		SELECT delay_schedule_task('DO \$\$BEGIN RAISE EXCEPTION ''x'' USING DETAIL = ''$secret'', HINT = ''$secret'', MESSAGE = repeat(''$secret'', 1000); END\$\$');
		SELECT delay_every('$secret', '1 hour', 'SELECT ''$secret'' AS recurring', args => NULL);
		SELECT delay_every('shared', '1 hour', 'SELECT ''$secret'' AS shared');
		SELECT delay_every('failing $secret', '1 hour', 'SELECT ''$secret''::int', starts => now());
		SELECT delay_schedule_task('SELECT ''$secret'' AS many', delay => '1 hour', tag => 'gone $secret') FROM generate_series(1, 10)});
	wait_for($node, q{SELECT count(*) = 3 FROM delay_wheel.failed WHERE owner = 'victim'}, 'the victim has failed tasks');
	wait_until_done('and others');
	my $state = q{SELECT md5(string_agg(r::text, '|' ORDER BY r::text)) FROM (
		SELECT (t.id, t.due, t.sql, t.queue, t.key)::text FROM delay_wheel_data.task t WHERE owner = 'victim'::regrole UNION ALL
		SELECT (f.id, f.sql, f.failed_at)::text FROM delay_wheel_data.failed_task f WHERE owner = 'victim'::regrole UNION ALL
		SELECT d::text FROM delay_wheel_data.recurring_task d WHERE owner = 'victim'::regrole UNION ALL
		SELECT q::text FROM delay_wheel_data.queue q UNION ALL SELECT p::text FROM delay_wheel_data.pause p UNION ALL
		SELECT (c.id, c.owners)::text FROM delay_wheel_data.cancellation c WHERE 'victim'::regrole = ANY (owners)) r};
	my $before = $node->safe_psql('postgres', $state);

	as('mallory', q{
		CREATE FUNCTION evil.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$;
		CREATE FUNCTION evil.tell(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$BEGIN RAISE NOTICE 'saw % %', $1, $2; RETURN true; END$$;
		CREATE OPERATOR evil.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.tell, RESTRICT = eqsel, JOIN = eqjoinsel);
		CREATE OPERATOR evil.<<< (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.tell, RESTRICT = scalarltsel);
		CREATE VIEW evil.view AS SELECT * FROM delay_wheel.tasks});
	$node->safe_psql('postgres', 'ANALYZE');
	my @views = split /\n/, $node->safe_psql('postgres',
		q{SELECT oid::regclass FROM pg_class WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'v' ORDER BY 1});
	my @tables = split /\n/, $node->safe_psql('postgres',
		q{SELECT oid::regclass FROM pg_class WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind IN ('r', 'f', 'S') ORDER BY 1});
	my @queries;
	for my $view (@views)
	{
		push @queries, "TABLE $view", "SELECT v::text, row_to_json(v) FROM $view v WHERE evil.tell(v::text)", "SELECT 1 FROM $view v ORDER BY evil.tell(v::text)",
		  "SELECT DISTINCT ON (evil.tell(v::text)) 1 FROM $view v", "SELECT count(*) FILTER (WHERE evil.tell(v::text)) FROM $view v", "SELECT 1 FROM $view v GROUP BY evil.tell(v::text)",
		  "SELECT 1 FROM $view v JOIN evil.deferred ON evil.tell(v::text)", "SELECT 1 FROM evil.deferred RIGHT JOIN $view v ON evil.tell(v::text)",
		  "EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM $view v WHERE evil.tell(v::text)", "SELECT 1 FROM $view FOR UPDATE", "BEGIN; LOCK $view IN ACCESS EXCLUSIVE MODE; ROLLBACK", "DELETE FROM $view", "COPY (TABLE $view) TO STDOUT",
		  "SELECT v::text::int FROM $view v";
		for my $column (split /\n/, $node->safe_psql('postgres', "SELECT attname FROM pg_attribute WHERE attrelid = '$view'::regclass AND atttypid = 'text'::regtype AND attnum > 0"))
		{
			push @queries, "SELECT 1 FROM $view WHERE evil.tell($column)", "SELECT 1 FROM $view WHERE $column OPERATOR(evil.===) 'x'", "SELECT 1 FROM $view WHERE $column OPERATOR(evil.<<<) 'x'",
			  "SELECT 1 FROM $view WHERE $column\::int > 0", "SELECT 1 FROM $view a JOIN $view b ON a.$column OPERATOR(evil.===) b.$column";
		}
	}
	push @queries, map { ("TABLE $_", "COPY $_ TO STDOUT", "BEGIN; LOCK $_ IN ACCESS SHARE MODE; ROLLBACK", "CREATE TABLE evil.x (LIKE $_ INCLUDING ALL); TABLE evil.x", "CREATE TABLE evil.y () INHERITS ($_)",
			"CREATE TRIGGER t BEFORE INSERT ON $_ FOR EACH ROW EXECUTE FUNCTION evil.at_commit()", "CREATE RULE r AS ON INSERT TO $_ DO ALSO SELECT 1", "ALTER TABLE $_ OWNER TO mallory",
			"CREATE POLICY p ON $_", "CREATE INDEX ON $_ ((evil.tell('x')))", "TRUNCATE $_", "SELECT setval('$_', 1)", "SELECT nextval('$_')") } @tables;
	push @queries, 'SELECT delay_wheel_internal.get_running()', 'SELECT delay_wheel_internal.get_queues()', 'SELECT delay_wheel_internal.get_lanes()', 'SELECT delay_wheel_internal.get_cancellations()', 'TABLE evil.view', 'TABLE pg_stats', 'TABLE pg_statistic',
		'SELECT query FROM pg_stat_activity', 'CREATE OR REPLACE VIEW delay_wheel.tasks AS SELECT 1', 'ALTER EXTENSION delay_wheel DROP FUNCTION delay_wheel.arm()', 'DROP EXTENSION delay_wheel', 'DROP SCHEMA delay_wheel CASCADE',
		'CREATE FUNCTION delay_wheel.f() RETURNS int LANGUAGE sql AS \'SELECT 1\'', 'CREATE OR REPLACE FUNCTION delay_wheel_internal.origin() RETURNS bigint LANGUAGE sql AS \'SELECT 1\'', 'ALTER FUNCTION delay_wheel.arm() OWNER TO mallory';
	my $debug = "SET client_min_messages = debug5;\n";
	($out, $err) = as('mallory', $debug . join(";\n", @queries) . ";\nSELECT 'end of the queries';");
	like($out, qr/^end of the queries$/m, 'the queries have been sent: ' . scalar(@queries));
	unlike("$out\n$err", qr/$secret/, 'another role sees nothing');
	($out, $err) = as('watcher', join(";\n", map { ("TABLE $_", "SELECT 1 FROM $_ v WHERE v::text::int > 0") } grep { !/queues/ } @views) . ';');
	# names of queues are not hidden from who monitors
	unlike(($out . $err) =~ s/(?:q|own) $secret//gr, qr/$secret/, 'who monitors sees none of it, but names of queues');

	#
	# 3. By the functions
	#
	my @ids = split /\n/, $node->safe_psql('postgres', q{SELECT id FROM delay_wheel_data.task WHERE owner = 'victim'::regrole UNION SELECT id FROM delay_wheel_data.failed_task WHERE owner = 'victim'::regrole});
	my @calls = map { ("delay_cancel($_)", "delay_cancel($_, true)", "delay_reschedule($_, '0')", "delay_reschedule($_, now())", "delay_update($_, sql_text => 'SELECT evil.loot(1)', args => '{}')", "delay_update($_, priority => 1)", "delay_run($_)", "delay_wait($_, '0')", "delay_retry($_)") } @ids;
	push @calls, "delay_cancel(key => 'k $secret', queue => 'q $secret')", "delay_cancel(key => 'k $secret')", "delay_cancel(key => 'shared')", "delay_cancel_all(tag => 'shared')", "delay_cancel_all(due_from => '-infinity')", "delay_cancel_all('q $secret')",
		"delay_retry_all()", "delay_retry_all('q $secret')", "delay_unschedule('shared')", "delay_pause_recurring('shared')", "delay_resume_recurring('shared')", "delay_every('shared', '1 day', 'SELECT 1')",
		"delay_unschedule('shared')", "delay_wheel.pause_queue('q $secret')", "delay_pause_all()", "delay_resume_all()", "delay_wheel.pause_queue('own $secret')", "delay_wheel.resume_queue('own $secret')", "delay_wheel.create_queue('own $secret', max_running => 1)", "delay_wheel.drop_queue('own $secret')",
		"delay_wheel.create_queue('q $secret', users => '{mallory}')", "delay_schedule_task('SELECT 1', queue => 'q $secret', key => 'k $secret', if_exists => 'replace')", "delay_schedule_task('SELECT 1', delay => '1 hour', key => 'shared', if_exists => 'replace')", "delay_cancel(key => 'shared')",
		"delay_run_due('infinity')", 'delay_wheel.arm()', "delay_reschedule(key => 'k $secret', delay => '0', queue => 'q $secret')", "delay_reschedule(key => 'shared', due => now())", "delay_update(key => 'k $secret', queue => 'q $secret', priority => 1)",
		"delay_update(key => 'shared', tag => 'taken')", "delay_scheduled(delay_schedule_task('SELECT 1', key => 'k $secret', queue => 'q $secret', if_exists => 'later', delay => '1 day', options => '{\"unique_for\": \"1 h\"}'))";
	($out, $err) = as('mallory', join(";\n", map { "SELECT $_" } @calls) . ";\nSELECT 'end of the calls';");
	like($out, qr/^end of the calls$/m, 'the functions have been called: ' . scalar(@calls));
	is(() = $out =~ /^(?:cancelled|stopping|done)$/mg, 1, 'nothing is cancelled but what is one\'s own');
	is($node->safe_psql('postgres', $state), $before, 'no function does anything to what is another role\'s');
	$node->safe_psql('postgres', 'SELECT delay_wheel.resume_database()');

	#
	# 4. Plain SQL of who may write all tables
	#
	my ($pending, $failed, $definition) = split /\|/, $node->safe_psql('postgres', q{SELECT (SELECT min(id) FROM delay_wheel_data.task WHERE owner = 'victim'::regrole),
		(SELECT min(id) FROM delay_wheel_data.failed_task WHERE owner = 'victim'::regrole), (SELECT min(id) FROM delay_wheel_data.recurring_task WHERE owner = 'victim'::regrole)});
	my $evil = "'SELECT evil.loot(''written'')'";
	my @writes = (
		map { my $t = $_; map { "UPDATE delay_wheel.$t SET $_ WHERE owner = 'victim'::regrole" } 'sql = ' . $evil, "owner = 'writer'", "origin = 0", "tag = NULL", "search_path = 'evil'", "more = NULL" } 'task', 'failed_task', 'recurring_task');
	push @writes, (
		map { ("INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), $_, $evil)",
			"INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql) VALUES (1, now(), now(), delay_wheel_internal.origin(), $_, 0, 0, 1, 'XX000', 'x', $evil)",
			"INSERT INTO delay_wheel_data.recurring_task (owner, starts, every, name, timezone, sql, next_due, task) VALUES ($_, now(), '1 hour', 'w', 'UTC', $evil, now(), $pending)",
			"INSERT INTO delay_wheel_data.history_0 (task, due, ended, owner, queue, outcome, sql) VALUES (1, now(), now(), $_, 0, 'done', 'x')",
			"INSERT INTO delay_wheel_data.pause (owner) VALUES ($_)",
			"INSERT INTO delay_wheel_data.cancellation VALUES (nextval('delay_wheel_data.task_id_seq'), delay_wheel_internal.origin(), now(), 'writer', ARRAY[$_]::regrole[], NULL, NULL, NULL, NULL, 0)") } "'victim'", "'boss'", "'-'", "'10'", "'4294967295'", 'NULL'),
		"INSERT INTO delay_wheel_data.cancellation VALUES (nextval('delay_wheel_data.task_id_seq'), delay_wheel_internal.origin(), now(), 'writer', NULL, NULL, NULL, NULL, NULL, 0)",
		"UPDATE delay_wheel_data.queue SET users = '{writer}', max_running = 1", 'DELETE FROM delay_wheel_data.queue', "INSERT INTO delay_wheel_data.queue (name, owner) VALUES ('w', 'writer')", 'DELETE FROM delay_wheel_data.history_0', "UPDATE delay_wheel_data.history_0 SET sql = 'x'",
		"MERGE INTO delay_wheel_data.task t USING (SELECT $pending\::bigint AS id) s ON s.id = t.id WHEN MATCHED THEN UPDATE SET sql = $evil",
		"INSERT INTO delay_wheel_data.task (id, due, sql) VALUES ($pending, now(), $evil) ON CONFLICT (id) DO UPDATE SET sql = EXCLUDED.sql", 'ALTER TABLE delay_wheel_data.task DISABLE TRIGGER ALL', 'SET session_replication_role = replica',
		"WITH w AS (UPDATE delay_wheel_data.task SET sql = $evil WHERE id = $pending RETURNING 1) SELECT * FROM w", "INSERT INTO delay_wheel_data.task (due, sql, queue) SELECT now(), 'SELECT 1', id FROM delay_wheel_data.queue";
	# of one's own rows, what names others
	my @own = (
		"INSERT INTO delay_wheel_data.task (due, sql, more) VALUES (now(), 'SELECT 1', '{\"recurring\": $definition, \"on_success\": \"SELECT evil.loot(''more'')\", \"notify\": \"x\"}')",
		"INSERT INTO delay_wheel_data.task (due, sql, more) VALUES (now(), 'SELECT 1/0', '{\"recurring\": $definition, \"on_failure\": \"RESET ROLE; SELECT evil.loot(''more'')\"}')",
		"INSERT INTO delay_wheel_data.recurring_task (starts, every, name, timezone, sql, next_due, task) VALUES (now(), '1 hour', 'w', 'UTC', $evil, now(), $pending)",
		"INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql) VALUES ($failed, now(), now(), delay_wheel_internal.origin(), 'writer', 0, 0, 1, 'XX000', 'x', $evil); SELECT delay_retry($failed)",
		"BEGIN; INSERT INTO delay_wheel_data.prepared SELECT 'g', r.oid, q, p, now() FROM pg_roles r, generate_series(-300, 300, 30) q, generate_series(-300, 300, 100) p; SELECT delay_schedule('1 hour', 'SELECT 1'); PREPARE TRANSACTION 'g'; COMMIT PREPARED 'g'");
	$position = log_position($node);
	($out, $err) = as('writer', join(";\n", @writes, @own) . ";\nSELECT 'end of the writes';");
	like($out, qr/^end of the writes$/m, 'plain SQL has been sent: ' . scalar(@writes));
	is($node->safe_psql('postgres', $state), $before, 'nothing of another role is changed');
	is(() = $err =~ /ERROR:/g, scalar(@writes), 'each write is refused') or diag($err);
	is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.lanes WHERE priority < -1 AND NOT pg_has_role('writer', owner, 'USAGE')}), 0,
		'what it says that it has prepared for others makes no lanes');
	wait_until_done('what the writer has written for itself has been run');
	is($node->safe_psql('postgres', $state), $before, 'after its run nothing of others has changed');
	no_loot('rows by plain SQL');
	($out, $err) = as('writer', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%' AND (usename IS NULL OR usename = 'postgres');
		SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%' AND (usename IS NULL OR usename = 'postgres')});
	unlike($out, qr/t/, 'pg_signal_backend does not stop the workers');
};

#
# 5. Whoever owns a table of ours: its indexes have his functions
#
group owners => sub {
	$node->safe_psql('postgres', q{GRANT CREATE, USAGE ON SCHEMA delay_wheel_data TO mallory; ALTER TABLE delay_wheel_data.failed_task OWNER TO mallory});
	out_as('mallory', q{
		CREATE FUNCTION evil.expression(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
			$$BEGIN RAISE LOG 'index expression as %', current_user; PERFORM evil.try('expression', 'RESET ROLE'), set_config('application_name', 'set by an index', false); RETURN true; END$$;
		GRANT SELECT, INSERT, UPDATE, DELETE ON delay_wheel_data.failed_task TO postgres;
		CREATE INDEX evil ON delay_wheel_data.failed_task (evil.expression(message)) WHERE evil.expression(sql)});
	$position = log_position($node);
	$node->safe_psql('postgres', q{CREATE ROLE leaving; SELECT delay_wheel.allow('leaving'); SET SESSION AUTHORIZATION leaving; SELECT delay_schedule('1 hour', 'SELECT 1')});
	$node->safe_psql('postgres', q{SELECT delay_wheel.disallow('leaving'); DROP ROLE leaving; SET SESSION AUTHORIZATION boss; SELECT delay_schedule('0', 'SELECT 1/0')});
	wait_for($node, q{SELECT count(*) >= 2 FROM delay_wheel_data.failed_task WHERE sqlstate = '22012' AND owner = 'boss'::regrole OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = owner)}, 'tasks have failed, in an executor and in the timer');
	my %as = map { $_ => 1 } log_since($node, $position) =~ /index expression as (\w+)/g;
	is(join(' ', sort keys %as), 'mallory', 'an expression of the owner of the table runs with his rights');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'set by an index'}), 0, 'and leaves no setting');
	no_loot('index expressions');
	$node->safe_psql('postgres', 'DROP INDEX delay_wheel_data.evil; REVOKE ALL ON SCHEMA delay_wheel_data FROM mallory; ALTER TABLE delay_wheel_data.failed_task OWNER TO postgres');
};

#
# 6. A dump with rows of others
#
group dump => sub {
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
	$node->safe_psql('postgres', 'CREATE DATABASE original TEMPLATE template0; CREATE DATABASE restored TEMPLATE template0; CREATE DATABASE doctored TEMPLATE template0');
	$node->safe_psql('original', q{CREATE EXTENSION delay_wheel; SELECT delay_wheel.allow('mallory'); GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory; GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.arm, delay_wheel.follow_shards TO mallory;
		CREATE TABLE loot (what text)});
	out_as('mallory', q{SELECT delay_schedule_task(E'SELECT \'\n\\\\.\nDROP TABLE loot;\n\'', delay => '1 hour', key => E'\\\\.\n\t\'', tag => E'$$; DROP TABLE loot; --'),
		delay_every(E'\\\\.\n; DROP TABLE loot', '1 hour', 'SELECT 1'), delay_wheel.create_queue(E'\n\\\\.\nDROP TABLE loot; --')}, 'original');
	$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('original') ], 'dumped');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'restored');
	is($node->safe_psql('restored', q{SELECT count(*) FROM loot}), 0, 'with its table, whatever stands in tasks');
	is($node->safe_psql('restored', q{SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'mallory'::regrole AND key = E'\\\\.\n\t\''}), 1, 'and the task as it was') ;
	my $text = slurp_file($dump);
	$text =~ s/\bmallory\b/boss/g;
	append_to_file("$dump.doctored", $text);
	$node->safe_psql('doctored', 'CREATE EXTENSION delay_wheel; GRANT ALL ON SCHEMA public TO mallory, writer; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory, writer; GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.arm, delay_wheel.follow_shards TO mallory, writer');
	for my $role ('mallory', 'writer')
	{
		(undef, $err) = as($role, "\\i $dump.doctored\n", 'doctored');
		like($err, qr/permission denied/, "a dump with a superuser's tasks, restored by $role, is refused");
		is($node->safe_psql('doctored', q{SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'boss'::regrole}), 0, 'there is no such task');
	}
	as('boss', "\\i $dump.doctored\n", 'doctored');
	as('mallory', 'SELECT delay_wheel.arm()', 'doctored');
	is($node->safe_psql('doctored', q{SELECT bool_or(armed), count(*) > 0 FROM delay_wheel.tasks WHERE owner = 'boss'}), 'f|t',
		'restored by a superuser they wait for delay_wheel.arm() of who has the right');
};

#
# 7. Where the extension is to be created
#
group create => sub {
	my $ours = q{SELECT pg_describe_object(d.classid, d.objid, 0) || ' uses ' || pg_describe_object(d.refclassid, d.refobjid, 0)
		FROM pg_depend d
			JOIN LATERAL pg_identify_object(d.refclassid, d.refobjid, 0) r ON r.schema = 'trap'
			JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) o ON o.schema = 'delay_wheel' OR o.identity LIKE '%delay\_wheel.%'
		WHERE d.deptype IN ('n', 'a', 'i')};
	$node->safe_psql('postgres', 'CREATE DATABASE prepared; CREATE DATABASE captured');
	$node->safe_psql('prepared', q{CREATE SCHEMA trap AUTHORIZATION mallory});
	my @types = ('bigint', 'smallint', 'integer', 'oid', 'regrole', 'regclass', 'timestamptz', 'interval', 'text', 'name', 'boolean', '"char"', 'jsonb', 'double precision');
	my @trap = ('SET search_path = pg_catalog',
		'CREATE FUNCTION trap.met(what text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION \'met: % as %\', what, current_user; END$$');
	for my $l (@types)
	{
		push @trap, "CREATE FUNCTION trap.f($l) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT trap.met(''$l'')'", "CREATE OPERATOR trap.- (RIGHTARG = $l, FUNCTION = trap.f)";
		for my $r (@types)
		{
			push @trap, "CREATE FUNCTION trap.f($l, $r) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT trap.met(''$l, $r'')'",
			  map { "CREATE OPERATOR trap.$_ (LEFTARG = $l, RIGHTARG = $r, FUNCTION = trap.f)" } '=', '<>', '<', '>', '<=', '>=', '-', '/', '->>', '||';
		}
	}
	push @trap, map { "CREATE FUNCTION trap.$_ RETURNS boolean LANGUAGE sql AS 'SELECT trap.met(''$_'')'" }
		'now()', 'nextval(regclass)', 'pg_has_role(oid, text)', 'pg_has_role(regrole, text)', 'isfinite(timestamptz)', 'cardinality(text[])', 'cardinality(regtype[])', 'octet_length(text)', 'unnest(regrole[])',
		'format(text, text)', 'string_agg(text, text)', 'aclexplode(aclitem[])', 'quote_ident(text)', 'quote_ident(name)', 'to_regrole(text)', 'pg_extension_config_dump(regclass, text)', 'make_interval(double precision)', 'float8(integer)', 'bool_and(boolean)';
	push @trap, "CREATE DOMAIN trap.timestamptz AS text CHECK (trap.met('type'))", "CREATE DOMAIN trap.regrole AS text CHECK (trap.met('type'))", "CREATE DOMAIN trap.jsonb AS text CHECK (trap.met('type'))", 'CREATE TABLE trap.pg_extension (oid oid, extname name)', 'CREATE TABLE trap.pg_roles (oid oid)';
	($out, $err) = as('mallory', join(";\n", @trap) . ';', 'prepared');
	unlike($err, qr/ERROR/, 'a schema is prepared') or diag($err);
	$node->safe_psql('prepared', q{
		ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO mallory, PUBLIC;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO mallory, PUBLIC;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO mallory;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO mallory, PUBLIC;
		ALTER DEFAULT PRIVILEGES IN SCHEMA trap GRANT ALL ON FUNCTIONS TO mallory WITH GRANT OPTION;
		CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE DEBUG '%', tg_tag; END$$;
		CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION watch();
		CREATE EVENT TRIGGER watch_drop ON sql_drop EXECUTE FUNCTION watch();
		SET search_path = trap, pg_catalog;
		CREATE EXTENSION delay_wheel SCHEMA trap});
	is($node->safe_psql('prepared', $ours), '', 'created in a schema of somebody else, the extension refers to nothing there');
	is($node->safe_psql('prepared', q{SELECT DISTINCT a.grantee::regrole, a.privilege_type FROM (
			SELECT relacl, relowner FROM pg_class WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) UNION ALL SELECT nspacl, nspowner FROM pg_namespace WHERE nspname IN ('delay_wheel', 'delay_wheel_data', 'delay_wheel_internal') UNION ALL
			SELECT proacl, proowner FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'delay_wheel') o(acl, owner),
			LATERAL aclexplode(acl) a WHERE a.grantee <> owner ORDER BY 1, 2}), "-|EXECUTE\n-|SELECT\n-|USAGE\npg_database_owner|SELECT\npg_database_owner|USAGE", 'default privileges give nobody anything of it');
	is($node->safe_psql('prepared', q{SELECT DISTINCT a.grantee::regrole, a.privilege_type FROM pg_class, LATERAL aclexplode(relacl) a
			WHERE relnamespace = 'delay_wheel_data'::regnamespace AND relkind IN ('r', 'S') AND relname NOT LIKE 'readable%' AND a.grantee <> relowner}),
		'pg_database_owner|SELECT', 'default privileges give no table and no sequence');
	is($node->safe_psql('prepared', q{SELECT has_schema_privilege('mallory', 'delay_wheel_data', 'USAGE')}), 'f', 'default privileges give no USAGE on the schema');
	# a sequence is found by its number, without its schema
	my $sequence = $node->safe_psql('prepared', q{SELECT 'delay_wheel_data.history_seq'::regclass::oid});
	($out, $err) = as('mallory', "SELECT nextval($sequence)", 'prepared');
	like($err, qr/permission denied for sequence history_seq/, 'no number of the sequence can be taken');
	($out, $err) = as('mallory', q{SET search_path = pg_catalog; SELECT count(*) FROM delay_wheel_data.task; SELECT trap.delay_schedule('0', 'SELECT 1'); SELECT delay_wheel.arm(); CREATE TABLE delay_wheel.t (); BEGIN; LOCK delay_wheel.tasks}, 'prepared');
	is(() = $err =~ /ERROR:  permission denied/g, 5, 'a role without the right gets no access');
	($out, $err) = as('boss', q{SET search_path = trap, pg_catalog;
		SELECT delay_wheel.allow('victim');
		SELECT delay_cancel(delay_schedule('1 hour', 'SELECT 1'));
		SELECT delay_schedule_task('SELECT 1', delay => '1 hour', key => 'k') IS NOT NULL;
		SELECT delay_cancel(key => 'k');
		SELECT delay_wheel.create_queue('q');
		SELECT delay_every('r', '1 hour', 'SELECT 1') IS NOT NULL;
		SELECT 1 FROM delay_wheel.tasks, delay_wheel.failed, delay_wheel.history, delay_wheel.recurring, delay_wheel.queues, delay_wheel.lanes, delay_wheel.status, delay_wheel.cancellations, delay_wheel.ring LIMIT 1;
		SELECT delay_run(task) FROM delay_wheel.recurring;
		SELECT delay_cancel_all(due_from => '-infinity'::pg_catalog.timestamptz) IS NOT NULL;
		SELECT delay_wheel.arm(), delay_retry_all()}, 'prepared');
	unlike($err, qr/met:/, 'what it does meets nothing in its schema') or diag($err);
	is($err, '', 'and works') or diag($out);
	# what is there already is not taken for its own
	for my $first (
		'CREATE SCHEMA delay_wheel AUTHORIZATION mallory; CREATE TABLE delay_wheel.tasks (id bigint, due timestamptz, owner regrole, sql text)',
		'CREATE SCHEMA delay_wheel_data AUTHORIZATION mallory; CREATE TABLE delay_wheel_data.task (id bigint, due timestamptz, owner regrole, sql text)',
		"CREATE FUNCTION public.delay_schedule(interval, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
		"CREATE FUNCTION public.delay_run(bigint) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'")
	{
		my ($code) = $node->psql('captured', "BEGIN; $first; CREATE EXTENSION delay_wheel; COMMIT", on_error_stop => 1);
		isnt($code, 0, 'it is not created over what is there: ' . substr($first, 0, 30));
		is($node->safe_psql('captured', q{SELECT count(*) FROM pg_extension WHERE extname = 'delay_wheel'}), 0, 'nothing of it is');
	}
	$node->safe_psql('captured', q{
		CREATE SCHEMA delay_wheel_data AUTHORIZATION mallory;
		CREATE TABLE delay_wheel_data.task (id bigint, due timestamptz, origin bigint, owner regrole, queue smallint, priority smallint, sql text);
		INSERT INTO delay_wheel_data.task SELECT 1, now(), 0, 'boss', 0, 0, 'SELECT 1'});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.status WHERE database = 'captured'}), 0, 'a schema of that name alone is not served');
	$node->safe_psql('prepared', 'DROP EXTENSION delay_wheel');
};

#
# 8. Operators of all names over all types of ours, and functions of all names
# that the script has, in that schema, as good a match as there can be: none is
# bound at CREATE EXTENSION.
#
group operators => sub {
	my $root = "$FindBin::RealBin/../..";
	my $scripts = join '', map { slurp_file($_) } glob("$root/delay_wheel--*.sql");
	my $exporters = join '', map { slurp_file("$root/monitoring/$_") } 'postgres_exporter.yaml', 'sql_exporter.yml';
	# the lines that are indented further than "query:"
	my @queries = $exporters =~ /^ *query: \|\n((?: {4,}(?:SELECT|FROM|WHERE|LEFT|GROUP|ORDER|UNION| ).*\n)+)/mg;
	my %names = map { lc($_) => 1 } ($scripts . $exporters . slurp_file("$root/scripts/dashboard.sql")) =~ /\b([a-z_]\w*)\s*\(/gi;
	my $names = join ',', sort keys %names;
	# whatever depends on the extension's objects as a part of them, and what that uses
	my $foreign = q{WITH RECURSIVE ours(classid, objid) AS (
			SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.extname = 'delay_wheel' AND d.refobjid = e.oid
				AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			UNION SELECT d.classid, d.objid FROM pg_depend d JOIN ours o ON d.refclassid = o.classid AND d.refobjid = o.objid WHERE d.deptype IN ('i', 'a'))
		SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) || ' uses ' || pg_describe_object(d.refclassid, d.refobjid, 0)
		FROM pg_depend d JOIN ours USING (classid, objid)
		WHERE (d.refclassid, d.refobjid) NOT IN (TABLE ours) AND d.refclassid NOT IN ('pg_extension'::regclass, 'pg_namespace'::regclass)};
	$node->safe_psql('postgres', 'CREATE DATABASE trapped TEMPLATE template0');
	my $types = $node->safe_psql('postgres', q{SELECT string_agg(DISTINCT t::regtype::text, ';') FROM (
			SELECT atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND attnum > 0 UNION ALL
			SELECT unnest(coalesce(proallargtypes, proargtypes::oid[])) FROM pg_proc WHERE pronamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) UNION ALL
			SELECT unnest('{int4,timestamp,date,oid,name,numeric,float8,float4,"\"char\"",_oid,_int8,json}'::regtype[])) _(t)
		JOIN pg_type ON pg_type.oid = t AND typtype = 'b'});
	$node->safe_psql('trapped', qq{
		CREATE SCHEMA trap AUTHORIZATION mallory;
		CREATE FUNCTION trap.met() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''met''; END';
		CREATE FUNCTION trap.met(bigint) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''met''; END';
		CREATE FUNCTION trap.met(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''met''; END';
		CREATE TEMP TABLE t AS SELECT t::regtype AS t FROM unnest(string_to_array('$types', ';')) t;
		-- written into the catalogs: to create them one by one takes minutes.  The result is what is expected, if that can be told
		INSERT INTO pg_operator
		SELECT pg_nextoid('pg_operator', 'oid', 'pg_operator_oid_index'), o.name, 'trap'::regnamespace, 'mallory'::regrole, 'b', false, false, l.t, r.t,
			coalesce((SELECT min(p.oprresult) FROM pg_operator p WHERE p.oprname = o.name AND p.oprright = r.t), 'bool'::regtype), 0, 0, 'trap.met(bigint, bigint)'::regprocedure, 0, 0
		FROM (SELECT DISTINCT oprname FROM pg_operator WHERE oprkind = 'b') o(name), t l, t r;
		INSERT INTO pg_operator
		SELECT pg_nextoid('pg_operator', 'oid', 'pg_operator_oid_index'), o.name, 'trap'::regnamespace, 'mallory'::regrole, 'l', false, false, 0, r.t, r.t, 0, 0, 'trap.met(bigint)'::regprocedure, 0, 0
		FROM (SELECT DISTINCT oprname FROM pg_operator WHERE oprkind = 'l') o(name), t r;
		CREATE TEMP TABLE f AS SELECT p.* FROM pg_proc p WHERE pronamespace = 'trap'::regnamespace;
		INSERT INTO pg_proc
		SELECT pg_nextoid('pg_proc', 'oid', 'pg_proc_oid_index'), n.name, f.pronamespace, 'mallory'::regrole, f.prolang, f.procost, 0, 0, 0, 'f', false, false, false, false, 'v', 'u',
			n.args, 0, n.result, n.types::oidvector, NULL, NULL, NULL, NULL, NULL, f.prosrc, NULL, NULL, NULL, NULL
		FROM f, (
			SELECT DISTINCT p.proname, 1, t.t::oid::text, first_value(p.prorettype) OVER (PARTITION BY p.proname ORDER BY p.oid) FROM pg_proc p, t
				WHERE p.pronargs = 1 AND p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ('{$names}')
			UNION ALL
			SELECT DISTINCT p.proname, 2, l.t::oid || ' ' || r.t::oid, first_value(p.prorettype) OVER (PARTITION BY p.proname ORDER BY p.oid) FROM pg_proc p, t l, t r
				WHERE p.pronargs = 2 AND p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ('{$names}')) n(name, args, types, result)
		WHERE f.pronargs = n.args});
	cmp_ok($node->safe_psql('trapped', q{SELECT count(*) FROM pg_operator WHERE oprnamespace = 'trap'::regnamespace}), '>', 30000, 'a schema has operators of all names over all types');
	cmp_ok($node->safe_psql('trapped', q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'trap'::regnamespace}), '>', 5000, 'and functions');

	my $db = 'trapped_new';
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE trapped");
	$node->safe_psql($db, 'SET search_path = trap, pg_catalog; CREATE EXTENSION delay_wheel SCHEMA trap');
	is($node->safe_psql($db, $foreign), '', "nothing is bound but what is PostgreSQL's or its own");
	($out, $err) = as('boss', join(';', 'SET search_path = trap, pg_catalog', (map { "TABLE $_" }
			split(/\n/, $node->safe_psql($db, q{SELECT oid::regclass FROM pg_class WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'v'}))),
			'SELECT 1 FROM delay_wheel.page_data() p, delay_wheel.forecast_svg() f, delay_wheel.ring_svg() r, delay_wheel.lateness_svg() l', "SELECT delay_wheel.allow('victim')"), $db);
	is($err, '', 'what it does meets nothing either');
	# what comes beside it for who watches: where his search_path leads there, too
	$node->safe_psql($db, q{
		ALTER DATABASE trapped_new SET search_path = trap;
		CREATE FUNCTION trap.format(text, name, text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''met''; END'});
	# the timer of a database that has just been made may still be on its way
	$node->poll_query_until('postgres', "SELECT state = 'running' FROM delay_wheel.status WHERE database = '$db'") or die 'no timer';
	(my $code, $out, $err) = $node->psql($db, '', extra_params => [ '-U', 'boss', '-v', 'once=1', '-f', "$root/scripts/dashboard.sql" ]);
	is($err, '', 'the dashboard for a terminal meets nothing');
	like($out, qr/^database $db: RUNNING/m, 'and works') or diag($out);
	cmp_ok(scalar @queries, '>', 15, 'there are queries for exporters');
	for my $query (@queries)
	{
		(undef, $err) = as('boss', $query, $db);
		is($err, '', 'a query of an exporter meets nothing: ' . substr($query =~ s/\s+/ /gr, 0, 60));
	}
	$node->safe_psql('postgres', "DROP DATABASE $_ WITH (FORCE)") for qw(trapped trapped_new);
};

#
# 9. What the views tell of rows that they do not show: by conditions, counts, plans and
# estimates nothing, but of what an index finds by an id or a time (SECURITY.md).
#
group leaks => sub {
	# statistics know the rows; all that there can be of each kind
	$node->safe_psql('postgres', q{
		CREATE ROLE stranger LOGIN;
		SET SESSION AUTHORIZATION victim;
		SELECT count(delay_schedule_task('SELECT $1, ' || i, args => ARRAY['a' || i], delay => '1 day', key => 'unpaid ' || i, tag => 'tag ' || i, priority => i % 3 - 1, options => '{"arg_types": ["text"]}')) FROM generate_series(1, 300) i;
		SELECT count(delay_schedule_task('SELECT 1/0', key => 'fails ' || i)) FROM generate_series(1, 30) i;
		SELECT count(delay_every('every ' || i, '1 day', 'SELECT ' || i)) FROM generate_series(1, 10) i;
		SELECT delay_wheel.create_queue('hidden');
		SELECT delay_wheel.create_queue('hidden_post', external => true);
		SELECT count(delay_send('hidden_post', jsonb_build_object('a', i), key => 'message ' || i)) FROM generate_series(1, 30) i;
		CALL delay_await('hidden_post', '60 s');
		SELECT count(*) FROM delay_lease('hidden_post', 5, '1 day');
		SELECT delay_cancel_all(tag => 'tag 7');
		-- what is stored out of line is read when it is asked for
		SELECT delay_send('hidden_post', (SELECT jsonb_object_agg('a' || i, md5(i::text)) FROM generate_series(1, 3000) i), tag => 'large');
		SELECT delay_schedule_task('SELECT $1, $2', args => ARRAY[(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 3000) i), 'b'], delay => '1 day', tag => 'large', options => '{"arg_types": ["text", "text"]}')});
	wait_for($node, q{SELECT count(*) >= 30 FROM delay_wheel.failed}, 'there are failed tasks of the victim');
	out_as('mallory', q{SELECT count(delay_schedule_task('SELECT 1', delay => '1 day', key => 'mine ' || i)) FROM generate_series(1, 5) i});
	$node->safe_psql('postgres', 'ANALYZE');

	# comparisons that count what they are given, and cost next to nothing
	$node->safe_psql('postgres', q{
		CREATE SEQUENCE calls; GRANT ALL ON SEQUENCE calls TO PUBLIC;
		CREATE FUNCTION counting(text, text) RETURNS boolean LANGUAGE plpgsql STABLE COST 0.000001 AS $$BEGIN PERFORM nextval('calls'); RETURN $1 >= $2; END$$;
		CREATE OPERATOR >>= (LEFTARG = text, RIGHTARG = text, FUNCTION = counting, RESTRICT = scalargesel)});
	my $calls = sub {
		my ($role, $sql) = @_;
		$node->safe_psql('postgres', q{SELECT setval('calls', 1, false)});
		my ($out, $err) = as($role, $sql);
		is($err, '', "it is asked: $sql") if $err;
		return $node->safe_psql('postgres', q{SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM calls});
	};
	my %columns;
	push @{ $columns{ (split /\|/)[0] } }, (split /\|/)[1] for split /\n/, $node->safe_psql('postgres',
		q{SELECT c.oid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
			WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind = 'v' AND attnum > 0 ORDER BY 1, attnum});
	my %rows_of = map { $_ => 1 } (map { "delay_wheel_internal.$_" } qw(newest_failed first_messages)), map { "delay_wheel.$_" } qw(tasks failed history recurring queues cancellations lanes running);
	my (@called, @plans);
	for my $view (sort grep { $rows_of{$_} } keys %columns)
	{
		my ($mine) = out_as('mallory', "SELECT count(*) FROM $view");
		# all of its columns in one query, none of which decides
		my $n = $calls->('mallory', "SELECT count(*) FROM $view WHERE " . join(' AND ', map { "($_\::text OPERATOR(public.>>=) '' OR true)" } @{ $columns{$view} }));
		my $one = 0;
		for my $column (@{ $columns{$view} })
		{
			my $given = $calls->('mallory', "SELECT count(*) FROM $view WHERE $column\::text OPERATOR(public.>>=) 'x'");
			# at most once for each row of his own
			push @called, "$view.$column: $given of $mine" if $given > $mine;
			$one += $given;
			push @called, "$view.$column by a join: $given of $mine"
				if ($given = $calls->('mallory', "SELECT count(*) FROM (VALUES ('x')) g(x) JOIN $view v ON v.$column\::text OPERATOR(public.>>=) g.x")) > $mine;
		}
		push @called, "$view: never" if $view eq 'delay_wheel.tasks' && $one == 0;
	}
	is(join("\n", @called), '', 'a comparison of the reader is called for his own rows only, at most');

	# plans, counts and estimates: the same for what is there and for what is not, to who has nothing
	my $id = $node->safe_psql('postgres', q{SELECT min(id) FROM delay_wheel_data.task WHERE key = 'unpaid 4'});
	my %pairs = (
		'delay_wheel.tasks' => [ [ "owner = 'victim' AND key = 'unpaid 4711'", "owner = 'victim' AND key = 'unpaid 4'" ], [ "key = 'unpaid 4711'", "key = 'unpaid 4'" ], [ "key >= 'zzz'", "key >= 'aaa'" ],
			[ "sql > 'z'", "sql > 'S'" ], [ "args[1] = 'none'", "args[1] = 'a4'" ], [ "tag = 'none'", "tag = 'tag 4'" ], [ "due > '2500-01-01'", "due > '1999-01-01'" ],
			[ "queue = 'none'", "queue = 'hidden'" ], [ q{payload = '{"a": -4}'}, q{payload = '{"a": 4}'} ],
			[ "leased_until > '2500-01-01'", "leased_until > '1999-01-01'" ], [ "attempts > 9", "attempts < 9" ], [ "last_error > 'z'", "last_error > '0'" ], [ "group_key = 'none'", "group_key = 'g1'" ],
			# conditions that cost nothing
			[ 'args[3] IS NOT NULL AND args[1] IS NOT NULL', 'args[2] IS NOT NULL AND args[1] IS NOT NULL' ],
			[ q{payload['none'] IS NOT NULL AND payload['a2'] IS NOT NULL}, q{payload['a1'] IS NOT NULL AND payload['a2'] IS NOT NULL} ], [ 'tag IS NULL AND args[2] IS NOT NULL', 'group_key IS NULL AND args[2] IS NOT NULL' ] ],
		'delay_wheel.failed' => [ [ "key = 'none'", "key = 'fails 4'" ], [ "sqlstate = '99999'", "sqlstate = '22012'" ], [ "message > 'z'", "message > 'd'" ], [ "context > 'z'", "context > 'A'" ] ],
		'delay_wheel_internal.newest_failed' => [ [ "message > 'z'", "message > 'd'" ] ],
		'delay_wheel.history' => [ [ "message > 'z'", "message > 'd'" ], [ "outcome = 'none'", "outcome = 'failed'" ], [ "ended > '2500-01-01'", "ended > '1999-01-01'" ] ],
		'delay_wheel.recurring' => [ [ "name = 'none'", "name = 'every 4'" ], [ "sql > 'z'", "sql > 'S'" ],],
		# that a name is taken an index tells, as delay_wheel.create_queue() does
		'delay_wheel.queues' => [ [ "owner = 'nobody'", "owner = 'victim'" ] ]);
	for my $view (sort keys %pairs)
	{
		for my $pair (map { my $pair = $_; map { [ $_, @$pair ] } qw(on off) } @{ $pairs{$view} })
		{
			my $seqscan = shift @$pair;
			my @plan = map {
				my $where = $_;
				my ($plan) = out_as('stranger', "SET max_parallel_workers_per_gather = 0; SET enable_seqscan = $seqscan; EXPLAIN SELECT * FROM $view WHERE $where;
					EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT * FROM $view WHERE $where;
					SELECT count(*) FROM $view WHERE $where");
				# what was asked is in the plan
				join "\n", grep { !/Filter: |Cond: |Index Cond|Recheck|InitPlan|SubPlan/ || /Rows Removed/ } split /\n/, $plan;
			} @$pair;
			push @plans, "$view, enable_seqscan $seqscan: $pair->[1]\n$plan[0]\n-- but\n$plan[1]" if $plan[0] ne $plan[1];
		}
	}
	is(join("\n", @plans), '', 'plans, counts and estimates do not depend on whether a row exists');
	# nor do they lead to a page that holds it: the pages that are read are the same
	my @pages;
	push @{ $pairs{$_} }, [ "owner = 'boss'", "owner = 'victim'" ] for keys %pairs;
	for my $view (sort keys %pairs)
	{
		for my $pair (map { my $pair = $_; map { [ $_, @$pair ] } qw(on off) } @{ $pairs{$view} })
		{
			my $index = shift @$pair;
			my $set = "SET max_parallel_workers_per_gather = 0; SET enable_indexscan = $index; SET enable_bitmapscan = $index;";
			my @hits = map {
				my @runs = out_as('stranger', join(';', $set, ("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM $view WHERE $_") x 3)) =~ /"Plan": \{.*?"Shared Hit Blocks": (\d+)/sg;
				$runs[-1];
			} @$pair;
			push @pages, "$view, enable_indexscan $index, $pair->[1]: $hits[1], not $hits[0]" if $hits[0] != $hits[1];
		}
	}
	is(join("\n", @pages), '', 'the pages that are read do not depend on whether a row exists');
	# nor whether others have a task of a key that one has oneself
	out_as('mallory', q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => k) FROM unnest('{unpaid 5,unpaid 4711}'::text[]) k});
	my @keyed = map {
		my ($plan) = out_as('mallory', "SET enable_nestloop = off; SET enable_indexscan = off; SET enable_bitmapscan = off; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT id FROM delay_wheel.tasks WHERE key = '$_'");
		$plan =~ s/'unpaid \d+'//gr;
	} 'unpaid 5', 'unpaid 4711';
	is($keyed[0], $keyed[1], 'a plan does not tell whether others have a task of a key');
	out_as('mallory', q{SELECT delay_cancel(key => k) FROM unnest('{unpaid 5,unpaid 4711}'::text[]) k});
	# locks of keys, which all may see, cannot be told from guesses
	$node->safe_psql('postgres', q{
		CREATE FUNCTION sightings(guess bigint, OUT all_locks bigint, OUT guessed bigint) LANGUAGE plpgsql AS $$
		DECLARE
			seen record;
		BEGIN
			all_locks = 0;
			guessed = 0;
			FOR i IN 1 .. 1000000 LOOP
				EXIT WHEN all_locks >= 20;
				FOR seen IN SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = -8678 LOOP
					all_locks = all_locks + 1;
					guessed = guessed + (seen.classid::bigint = (guess >> 32) & 4294967295 AND seen.objid::bigint = guess & 4294967295)::int;
				END LOOP;
			END LOOP;
		END $$});
	my $busy = $node->background_psql('postgres', extra_params => [ '-U', 'victim' ]);
	$busy->query_until(qr/started/, "\\echo started\nDO 'BEGIN LOOP PERFORM delay_schedule_task(''SELECT 1'', delay => ''1 day'', key => ''unpaid 4''); END LOOP; END';\n");
	is(out_as('mallory', q{SELECT all_locks > 0, guessed FROM sightings(hashtextextended('unpaid 4', 'victim'::regrole::oid::bigint << 16))}), 't|0',
		'a lock of a key does not tell the key');
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'victim' AND backend_type = 'client backend'; DROP FUNCTION sightings});
	eval { $busy->{run}->kill_kill };
	# what is shown is what was shown
	my $shown = q{SELECT count(*), count(*) FILTER (WHERE owner = 'victim') > 290, bool_or(key = 'unpaid 7') IS TRUE FROM delay_wheel.tasks};
	like(out_as('boss', $shown), qr/^\d{3}\|t\|f$/, 'a superuser sees all tasks but the cancelled ones');
	like(out_as('writer', $shown), qr/^\d{3}\|t\|f$/, 'pg_read_all_data sees all tasks but the cancelled ones');
	is(out_as('mallory', $shown), '5|f|f', 'the others their own');
	my $watched = q{SELECT count(*) > 0 FROM delay_wheel.lanes WHERE owner = 'victim'};
	is(out_as($_, $watched), 't', "numbers without SQL are for $_, too") for qw(writer watcher);
	is(out_as('mallory', $watched), 'f', 'but not for the others');
	my $counted = q{SELECT ready + near + running FROM delay_wheel.queues WHERE name = 'hidden'};
	is(out_as($_, $counted), '0', "numbers of queues without SQL are for $_") for qw(writer watcher);
	is(out_as('mallory', $counted), '', 'and not for others');
	is(out_as('mallory', qq{SELECT count(*) FROM delay_wheel.tasks WHERE id = $id}), 0, 'by its id, too');
	$node->safe_psql('postgres', 'GRANT victim TO gang');
	is(out_as('mallory', qq{SELECT count(*) FROM delay_wheel.tasks WHERE id = ANY (ARRAY[$id, NULL]::int[])}), 1, 'a member of a member sees it');
	like(out_as('mallory', $shown), qr/^\d{3}\|t\|f$/, 'and all the others');
	$node->safe_psql('postgres', 'REVOKE victim FROM gang; DROP OPERATOR >>= (text, text); DROP FUNCTION counting; DROP SEQUENCE calls');
	out_as('mallory', q{SELECT delay_cancel_all(due_from => '-infinity')});
	out_as('victim', q{SELECT delay_cancel_all(due_from => '-infinity'); SELECT delay_unschedule(name) FROM delay_wheel.recurring; SELECT delay_wheel.drop_queue('hidden')});
};

#
# 10. Messages: by who may only send, only receive, or neither.
#
group messages => sub {
	my $refused = sub
	{
		my ($role, $sql) = @_;
		my (undef, $err) = as($role, "\\set VERBOSITY sqlstate\n$sql");
		return $err =~ /ERROR:\s+(\w+)/ ? $1 : 'done';
	};
	# one message of the queue under a lease of the role: id and token
	my $lease = sub
	{
		my ($role, $queue) = @_;
		my @got;
		wait_until(60, sub { as($role, "CALL delay_await('$queue', '1 s')"); return @got = split /\|/, out_as($role, "SELECT id, token FROM delay_lease('$queue', lease => '1 hour')") });
		return join(', ', @got);
	};

	$node->safe_psql('postgres', q{
		TRUNCATE seen, loot;
		SET SESSION AUTHORIZATION boss;
		SELECT delay_wheel.create_queue('of_boss', external => true, users => '{mallory}', max_attempts => 1);
		SELECT delay_wheel.create_queue('of_victim', external => true, users => '{victim}', receivers => '{mallory}', options => '{"history": "all"}');
		SELECT delay_wheel.create_queue('private', external => true, users => '{victim}', receivers => '{victim}')});

	# who sends: what follows the end runs as the sender, whoever ends it, in whatever way
	my @attacks = ('SELECT 1', 'RESET ROLE', 'SET ROLE boss', 'SET SESSION AUTHORIZATION boss', 'SET SESSION AUTHORIZATION DEFAULT');
	for my $attack (@attacks)
	{
		my $sql = "\$sql\$SELECT evil.try('message', '$attack')\$sql\$";
		out_as('mallory', "SELECT count(delay_send('of_boss', '\"$attack\"', options => jsonb_build_object('on_success', $sql, 'on_failure', $sql, 'notify', 'of_boss'))) FROM generate_series(1, 4)");
		wait_for($node, q{SELECT ready >= 4 FROM delay_wheel.queues WHERE name = 'of_boss'}, "they are due: $attack");
		# received, given up, done, and left: then the sweeper ends it after the last lease
		out_as('boss', q{BEGIN; SELECT count(*) FROM delay_receive('of_boss'); COMMIT; BEGIN; SELECT delay_fail(id, give_up => true) FROM delay_receive('of_boss'); COMMIT});
		is(out_as('boss', 'SELECT delay_done(' . $lease->('boss', 'of_boss') . q{, '{"role": "boss"}')}), 't', 'one is done by a superuser');
		is(out_as('boss', q{SELECT count(*) FROM delay_lease('of_boss', lease => '1 ms')}), 1, 'and one is left');
	}
	wait_for($node, sprintf(q{SELECT count(*) = %d FROM delay_wheel.failed WHERE queue = 'of_boss'}, 2 * @attacks), 'half of them have failed');
	wait_until_done('their follow-ups have been run');
	is($node->safe_psql('postgres', 'SELECT DISTINCT who, session FROM seen'), 'mallory|mallory', 'as their sender');
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM seen'), '>=', 4 * @attacks, 'all of them');
	no_loot('by messages');
	is(out_as('mallory', q{SELECT delay_retry_all(queue => 'of_boss')}), 2 * @attacks, 'those that failed are sent again by their sender');
	is($refused->('mallory', $_), '42501', "but not received: $_")
	  for q{SELECT * FROM delay_receive('of_boss', autocommit => true)}, q{SELECT * FROM delay_lease('of_boss')}, q{CALL delay_await('of_boss', '0')};
	out_as('boss', q{SELECT delay_cancel_all(queue => 'of_boss')});

	# who receives: sees the payload, and changes nothing but what the functions are for
	out_as('victim', q{
		SELECT count(delay_send('of_victim', jsonb_build_object('n', n), key => 'key ' || n, tag => 'tag',
			options => jsonb_build_object('on_success', 'INSERT INTO loot SELECT $2->>''what''', 'on_failure', 'INSERT INTO loot SELECT $3'))) FROM generate_series(1, 6) n;
		SELECT count(delay_send('private', '"private"')) FROM generate_series(1, 3)});
	my $held = $lease->('mallory', 'of_victim');
	my ($id) = split /,/, $held;
	is($refused->('mallory', $_), '42501', "a receiver must not: $_")
	  for "SELECT delay_cancel($id)", "SELECT delay_cancel($id, stop_running => true)", "SELECT delay_reschedule($id, delay => '1 day')", "SELECT delay_wheel.create_queue('of_victim', receivers => '{public}')",
	  "SELECT delay_wheel.pause_queue('of_victim')", q{SELECT delay_send('of_victim', '1')}, 'UPDATE delay_wheel_data.task SET token = 1', 'SELECT token FROM delay_wheel_data.task', 'SELECT task FROM delay_wheel_data.history_0';
	is(out_as('mallory', q{SELECT count(*) FROM delay_wheel.tasks; SELECT string_agg(concat_ws(' ', owner, outcome, sql), ', ') FROM delay_wheel.history WHERE owner <> 'mallory'; SELECT delay_cancel(key => 'key 1')}), "0\n\ngone", 'sees and cancels nothing');
	# what is written in its transaction, for the sender, meets nothing of the receiver's
	out_as('mallory', q{
		CREATE FUNCTION evil.int8eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$SELECT evil.try('int8eq')$$;
		CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.int8eq)});
	my $hostile = q{SET search_path = evil, pg_temp, pg_catalog; CREATE TEMP TABLE task (i int); CREATE TEMP TABLE failed_task (i int); CREATE TEMP TABLE history_0 (i int);
		SET default_transaction_isolation = serializable;};
	out_as('mallory', "$hostile SELECT public.delay_done($held, '{\"what\": \"''); RESET ROLE; --\"}')");
	out_as('mallory', "$hostile BEGIN; SELECT id FROM public.delay_receive('of_victim'); SAVEPOINT s; SELECT public.delay_fail(id, error => 'x''); --', give_up => true) FROM public.delay_receive('of_victim'); COMMIT");
	out_as('mallory', 'SELECT delay_fail(' . $lease->('mallory', 'of_victim') . q{, E'\x01', give_up => true)});
	wait_for($node, 'SELECT count(*) >= 4 FROM loot', 'what the receiver has ended is followed');
	is($node->safe_psql('postgres', q{SELECT who, session, count(*), bool_or(what LIKE '%RESET ROLE%') FROM loot GROUP BY 1, 2}), 'victim|victim|4|t', 'by what the sender wanted, with what it was given as a value');
	is($node->safe_psql('postgres', q{SELECT * FROM seen WHERE what LIKE '%int8eq%'}), '', 'and nothing else');
	is($node->safe_psql('postgres', q{SELECT string_agg(owner || ' ' || key || ' ' || outcome, ', ' ORDER BY key) FROM delay_wheel.history WHERE queue = 'of_victim'}),
		'victim key 1 done, victim key 2 done, victim key 3 failed, victim key 4 failed', q{the history is the sender's});

	# a token of another queue, by whatever way it got out; without one nothing can be told
	my $others = $lease->('victim', 'private');
	my $array = $others =~ s/(\d+), (\d+)/ARRAY[$1], ARRAY[$2]/r;
	($id) = split /,/, $others;
	for my $role ('mallory', 'hand', 'watcher')
	{
		my ($login, $set) = $role eq 'hand' ? ('mallory', 'SET ROLE hand;') : ($role, '');

		is($refused->($login, "$set SELECT $_"), '42501', "a token is no right: $role, $_")
		  for "delay_done($others)", "delay_extend($others)", "delay_release($others)", "delay_fail($others)", "delay_done_all($array)";
		my ($there, $none) = map { out_as($login, "$set SELECT delay_done($_, 1), delay_extend($_, 1), delay_release($_, 1), delay_fail($_, 1), delay_fail($_), delay_done_all(ARRAY[$_]::bigint[], '{1}')") } $id, -7;
		is($there, 'f|f|f|f|f|{}', "a wrong one ends nothing: $role");
		is($there, $none, "and does not tell whether the message is there: $role");
		is($refused->($login, "$set $_"), '42501', "nothing is received: $role, $_")
		  for q{SELECT * FROM delay_receive('private', autocommit => true)}, q{SELECT * FROM delay_lease('private')}, q{CALL delay_await('private', '0')},
		  q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM delay_receive('private'); FETCH ALL FROM c}, q{DO $$BEGIN PERFORM id FROM delay_receive('private'); END$$};
	}
	is(out_as('victim', "SELECT delay_done($others)"), 't', 'it is as it was');

	# by a definer: the rights are those of the function's owner, for as long as it runs
	$node->safe_psql('postgres', q{
		CREATE FUNCTION take_one() RETURNS jsonb LANGUAGE sql SECURITY DEFINER SET search_path = public AS $$SELECT payload FROM delay_receive('private')$$;
		ALTER FUNCTION take_one() OWNER TO victim});
	is(out_as('mallory', 'BEGIN; SELECT take_one(); ROLLBACK'), '"private"', 'a definer lends the right to receive');
	is($refused->('mallory', q{BEGIN; SELECT take_one(); SELECT * FROM delay_receive('private')}), '42501', 'not beyond its end');
	$node->safe_psql('postgres', q{DROP FUNCTION take_one(); TRUNCATE loot; SET SESSION AUTHORIZATION boss; SELECT delay_cancel_all(queue => q) FROM unnest('{of_boss,of_victim,private}'::text[]) q});
};

#
# Nothing of all that has stopped anything.
#
$node->safe_psql('postgres', q{SET SESSION AUTHORIZATION victim; SELECT delay_schedule('0', 'INSERT INTO loot VALUES (''the victim may'')')});
wait_for($node, q{SELECT what || ' ' || who FROM loot WHERE who <> 'writer'}, 'the victim\'s task runs', 60, expected => 'the victim may victim');
my $log = log_since($node, 0);
my @bad = $log =~ /^.*(?: XX\w{3} |PANIC:|was terminated by signal|cache lookup failed|delay_wheel (?:timer|launcher|sweeper) (?:ERROR|FATAL)).*$/mg;
is(join("\n", @bad), '', 'no crash, and no internal error');

#
# How often a task has crashed is for those to know who see the task.
#
group crashes => sub {
	my $pending = out_as('victim', q{SELECT delay_schedule('1 day', 'SELECT 1')});
	my ($database, $now) = split /\|/, $node->safe_psql('postgres',
		q{SELECT oid, (extract(epoch FROM now() - '2000-01-01 00:00+00') * 1000000)::bigint FROM pg_database WHERE datname = 'postgres'});
	$node->stop;
	append_to_file($node->data_dir . '/delay_wheel.crashes', "delay_wheel crashes 1: database, task, crashes, when\n$database $pending 2 $now\n");
	$node->start;
	my $crashes = "SELECT delay_wheel_internal.crashes($pending), (SELECT crashes FROM delay_wheel.tasks WHERE id = $pending)";
	is(out_as($_, $crashes), '2|2', "the crashes of the victim's task are told: $_") for qw(victim writer boss);
	is(out_as($_, $crashes), '0|', "they are not: $_") for qw(mallory watcher);
};

$node->stop;
done_testing();
