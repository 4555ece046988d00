# Plans that an executor keeps: they are used, they need no more memory than
# they may, and no task notices them: its SQL means what it would mean if it
# were parsed when it is run.
#
# There is one executor, so tasks of one transaction run in their order, most
# often in some milliseconds: less than the second after which a plan is made
# anew anyhow.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('plans', batches => 1, conf => q{
	delay_wheel.max_executors = 1
	delay_wheel.executor_idle_timeout = 1h
	autovacuum = off
	log_planner_stats = on
});

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub quoted { return '$sql$' . $_[0] . '$sql$'; }

# Runs tasks one after the other.  Each is its SQL, or a list: SQL, what is to
# be written after it as arguments.
sub run_tasks
{
	my @calls;

	for my $task (@_)
	{
		my ($text, $arguments) = ref $task ? @$task : ($task);
		push @calls, "SELECT delay_schedule('0', " . quoted($text)
		  . (defined $arguments ? ", $arguments" : '') . ');';
	}
	sql("BEGIN;\n@calls\nCOMMIT");
	wait_until(60, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' })
	  or die 'tasks do not run';
	return;
}

sub result
{
	my $rows = sql("SELECT coalesce(string_agg(value, ' ' ORDER BY id), '') FROM result");

	sql('TRUNCATE result');
	return $rows;
}

sub failures
{
	my $rows = sql("SELECT coalesce(string_agg(message, '; ' ORDER BY id), '') FROM delay_wheel.failed");

	sql('TRUNCATE delay_wheel_data.failed_task');
	return $rows;
}

# The text is run often enough to have a plan, then changed is what it refers
# to, by a task and by another session; the next run notices.
sub notices
{
	my ($what, $text, $before, $change, $after, %options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	for my $by ('a task', 'a session')
	{
		sql($options{setup}) if $options{setup};
		sql('TRUNCATE result');
		if ($by eq 'a task')
		{
			run_tasks(($text) x 3, $change, $text);
		}
		else
		{
			run_tasks(($text) x 3);
			sql($change);
			run_tasks($text);
		}
		is(join(' ', grep { $_ ne '' } result(), failures()), join(' ', ($before) x 3, $after), "$what, by $by");
	}
	return;
}

sub plannings
{
	my ($position) = @_;
	my @lines = log_since($node, $position) =~ /delay_wheel executor LOG:  PLANNER STATISTICS/g;

	return scalar @lines;
}

sql('CREATE TABLE result (id serial, value text)');

#
# They are used.
#
sql('CREATE TABLE account (id int PRIMARY KEY, n bigint, note text);
	INSERT INTO account SELECT g, 0, NULL FROM generate_series(1, 1000) g; ANALYZE account');

sub count_plannings
{
	my @tasks = @_;
	my $position = log_position($node);

	run_tasks(@tasks);
	return plannings($position);
}

my @bound = map { ['UPDATE account SET n = n + $1 WHERE id = $2', "$_, $_"] } 1 .. 400;
my @untyped = map { ['UPDATE account SET n = n + $1, note = $2 WHERE id = $3', "'$_', 'it''s $_', '$_'"] } 1 .. 400;

cmp_ok(count_plannings(@bound), '<', 200, 'arguments with types: hardly any run is planned');
cmp_ok(count_plannings(@untyped), '<', 200, 'untyped ones: the same');
cmp_ok(count_plannings(('UPDATE account SET n = n WHERE id = 0') x 400), '<', 200, 'the same text: the same');
is(sql("SELECT count(*) FROM account WHERE id <= 400 AND n = 2 * id AND note = 'it''s ' || id"), '400',
	'each run had its own values');

sub reload
{
	my $loaded = sql('SELECT pg_conf_load_time()');

	sql("ALTER SYSTEM SET $_") for @_;
	sql('SELECT pg_reload_conf()');
	wait_for($node, "SELECT pg_conf_load_time() > '$loaded'", "set: @_");
	return;
}

reload('delay_wheel.plan_cache = 0');
cmp_ok(count_plannings(@bound), '>=', 400, 'plan_cache = 0: each run is planned');

#
# Their memory is bounded.
#
sub memory
{
	run_tasks(q{INSERT INTO result (value)
		SELECT count(*) FILTER (WHERE name = 'CachedPlanSource') || ' ' ||
			coalesce(sum(total_bytes) FILTER (WHERE name ~ '^(CachedPlan|SPI Plan|delay_wheel plan$)'), 0) / 1024 || ' ' ||
			sum(total_bytes) / 1024
		FROM pg_backend_memory_contexts});
	return split / /, result();
}

sub texts
{
	my ($from, $to, $times) = @_;

	sql("SELECT delay_schedule('0', format('SELECT n FROM account WHERE id = %s', g / $times))
		FROM generate_series($from * $times, $to * $times) g");
	wait_until(120, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' });
	return;
}

reload('delay_wheel.plan_cache = 256');
texts(1, 300, 3);
my ($plans, $kb, $all) = memory();
cmp_ok($plans, '>', 3, 'texts that come again have plans');
cmp_ok($kb, '<=', 256, 'they take no more than plan_cache');
texts(301, 1000, 3);
my ($plans_later, $kb_later, $all_later) = memory();
cmp_ok($kb_later, '<=', 256, 'more texts: no more memory');
cmp_ok($all_later, '<=', $all + 256, 'more texts: no more memory elsewhere in the process');

reload('delay_wheel.plan_cache = default');
texts(1, 100, 1);
($plans, $kb, $all) = memory();
texts(101, 20000, 1);
($plans_later, $kb_later, $all_later) = memory();
# (on a busy machine a batch may be rolled back and run again, so that its texts come twice)
cmp_ok($plans_later, '<', 200, 'texts that do not come again have no plans');
cmp_ok($all_later - $kb_later, '<=', $all - $kb + 256, 'texts that do not come again keep no memory');

# one that is too large for the rest
reload('delay_wheel.plan_cache = 64');
run_tasks(('INSERT INTO result (value) SELECT ' . join(' + ', 1 .. 1000)) x 3);
is(result(), '500500 500500 500500', 'a plan that is too large is not kept');
($plans, $kb) = memory();
cmp_ok($kb, '<=', 64, 'a plan that is too large is not counted');
reload('delay_wheel.plan_cache = default');

#
# They are never out of date.
#
my $all_of_it = 'INSERT INTO result (value) SELECT to_jsonb(item)::text FROM item';

notices('ADD COLUMN', $all_of_it,
	'{"a": 1}', 'ALTER TABLE item ADD COLUMN b int DEFAULT 2', '{"a": 1, "b": 2}',
	setup => 'DROP TABLE IF EXISTS item CASCADE; CREATE TABLE item (a int); INSERT INTO item VALUES (1)');
notices('DROP COLUMN', $all_of_it,
	'{"a": 1, "b": 2}', 'ALTER TABLE item DROP COLUMN b', '{"a": 1}',
	setup => 'DROP TABLE IF EXISTS item CASCADE; CREATE TABLE item (a int, b int); INSERT INTO item VALUES (1, 2)');
notices('a column of another type', 'INSERT INTO result (value) SELECT pg_typeof(a) FROM item',
	'integer', 'ALTER TABLE item ALTER a TYPE numeric', 'numeric',
	setup => 'DROP TABLE IF EXISTS item CASCADE; CREATE TABLE item (a int); INSERT INTO item VALUES (1)');
notices('a table dropped and made again', 'INSERT INTO result (value) SELECT pg_typeof(a) FROM item',
	'integer', 'DROP TABLE item; CREATE TABLE item (a text); INSERT INTO item VALUES (1)', 'text',
	setup => 'DROP TABLE IF EXISTS item CASCADE; CREATE TABLE item (a int); INSERT INTO item VALUES (1)');
notices('a table dropped', 'INSERT INTO result (value) SELECT a FROM item',
	'1', 'DROP TABLE item', 'relation "item" does not exist',
	setup => 'DROP TABLE IF EXISTS item CASCADE; CREATE TABLE item (a int); INSERT INTO item VALUES (1)');
notices('a table renamed', 'INSERT INTO result (value) SELECT a FROM item',
	'1', 'ALTER TABLE item RENAME TO thing', 'relation "item" does not exist',
	setup => 'DROP TABLE IF EXISTS item, thing CASCADE; CREATE TABLE item (a int); INSERT INTO item VALUES (1)');
notices('a view', 'INSERT INTO result (value) SELECT a FROM v',
	'1', 'CREATE OR REPLACE VIEW v AS SELECT 2 AS a', '2',
	setup => 'DROP VIEW IF EXISTS v; CREATE VIEW v AS SELECT 1 AS a');
notices('a default', 'INSERT INTO result DEFAULT VALUES',
	'x', q{ALTER TABLE result ALTER value SET DEFAULT 'y'}, 'y',
	setup => q{ALTER TABLE result ALTER value SET DEFAULT 'x'});
notices('a trigger', 'INSERT INTO item VALUES (1)',
	'inserted', 'DROP TRIGGER item_t ON item; INSERT INTO result (value) VALUES (0)', '0',
	setup => q{DROP TABLE IF EXISTS item CASCADE; CREATE TABLE item (a int);
		CREATE OR REPLACE FUNCTION item_f() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN INSERT INTO result (value) VALUES ('inserted'); RETURN NULL; END$$;
		CREATE TRIGGER item_t AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION item_f()});
notices('a function replaced', 'INSERT INTO result (value) SELECT f(1)',
	'1', q{CREATE OR REPLACE FUNCTION f(numeric) RETURNS text IMMUTABLE LANGUAGE sql AS $$SELECT 'other'$$}, 'other',
	setup => q{DROP FUNCTION IF EXISTS f(numeric), f(int);
		CREATE FUNCTION f(numeric) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1::text'});
notices('a function dropped', 'INSERT INTO result (value) SELECT f(1)',
	'1', 'DROP FUNCTION f(numeric)', 'function f(integer) does not exist',
	setup => q{DROP FUNCTION IF EXISTS f(numeric), f(int);
		CREATE FUNCTION f(numeric) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN $1; END'});
notices('a function that fits better', 'INSERT INTO result (value) SELECT f(1)',
	'numeric', q{CREATE FUNCTION f(int) RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN 'int'; END$$}, 'int',
	setup => q{DROP FUNCTION IF EXISTS f(numeric), f(int);
		CREATE FUNCTION f(numeric) RETURNS text LANGUAGE plpgsql AS $$BEGIN RETURN 'numeric'; END$$});
notices('a label', q{INSERT INTO result (value) SELECT 'sad'::mood},
	'sad', q{ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'}, 'invalid input value for enum mood: "sad"',
	setup => q{DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('sad', 'ok')});
notices('a type renamed', q{INSERT INTO result (value) SELECT 'sad'::mood},
	'sad', q{ALTER TYPE mood RENAME TO state}, 'type "mood" does not exist',
	setup => q{DROP TYPE IF EXISTS mood, state; CREATE TYPE mood AS ENUM ('sad', 'ok')});
notices('a domain', 'INSERT INTO result (value) SELECT 5::small',
	'5', 'ALTER DOMAIN small ADD CHECK (VALUE < 5)', 'value for domain small violates check constraint "small_check"',
	setup => q{DROP DOMAIN IF EXISTS small; CREATE DOMAIN small AS int});
notices('an operator', 'INSERT INTO result (value) SELECT 1 <!> 2',
	'1', 'DROP OPERATOR <!> (int, int)', 'operator does not exist: integer <!> integer',
	setup => q{DROP OPERATOR IF EXISTS <!> (int, int);
		CREATE OPERATOR <!> (LEFTARG = int, RIGHTARG = int, FUNCTION = int4smaller)});
notices('a name by OID', q{INSERT INTO result (value) SELECT coalesce('item'::regclass = to_regclass('item'), false)},
	'true', 'ALTER TABLE item RENAME TO thing; CREATE TABLE item (a int)', 'true',
	setup => 'DROP TABLE IF EXISTS item, thing CASCADE; CREATE TABLE item (a int)');

#
# Names are looked up along the task's search_path, as it is now.
#
sql(q{CREATE SCHEMA one; CREATE SCHEMA two;
	CREATE TABLE one.place AS SELECT 'one' AS name; CREATE TABLE two.place AS SELECT 'two' AS name});
my $place = 'INSERT INTO public.result (value) SELECT name FROM place';

sub run_in
{
	my ($path, @texts) = @_;

	sql("SET search_path = $path; " . join(';', map { 'SELECT public.delay_schedule(\'0\', ' . quoted($_) . ')' } @texts));
	wait_until(60, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' }) or die;
	return;
}
run_in($_, $place) for ('one', 'two') x 3;
is(result(), 'one two one two one two', 'two paths by turns');
my $before_turns = log_position($node);
sql(join(';', map { "SET search_path = $_; SELECT public.delay_schedule('0', '$place')" } ('one', 'two') x 100));
wait_until(60, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' }) or die;
is(result(), join(' ', ('one two') x 100), 'many turns');
cmp_ok(plannings($before_turns), '<', 100, 'each path has its plan');
run_in('two, one', ($place) x 3);
sql('ALTER TABLE two.place RENAME TO hidden');
run_in('two, one', $place);
sql('ALTER TABLE two.hidden RENAME TO place');
run_in('two, one', $place);
is(result(), 'two two two one two', 'a table that comes before');
run_in('one', ($place) x 3, 'CREATE TEMP TABLE place AS SELECT \'temp\' AS name; ' . $place, $place);
is(result(), 'one one one temp one', 'a temporary one, for one task');

#
# Row security
#
sql(q{CREATE ROLE clerk LOGIN; CREATE ROLE chiefs; GRANT ALL ON result, result_id_seq TO clerk;
	SELECT delay_wheel.allow('clerk');
	CREATE TABLE secret (level int); INSERT INTO secret VALUES (1), (2); GRANT SELECT ON secret TO clerk});

sub clerk_sees
{
	my ($expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	sql("SET SESSION AUTHORIZATION clerk; BEGIN;"
		  . "SELECT delay_schedule('0', 'INSERT INTO result (value) SELECT level FROM secret');" x 3 . 'COMMIT');
	wait_until(60, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' }) or die;
	is(result() . failures(), join(' ', ($expected) x 3), $what);
	return;
}
reload('delay_wheel.max_executors = 2');
clerk_sees('1 2', 'without row security');
sql('ALTER TABLE secret ENABLE ROW LEVEL SECURITY; CREATE POLICY low ON secret USING (level = 1)');
clerk_sees('1', 'row security is seen');
sql('CREATE POLICY high ON secret TO chiefs USING (true)');
clerk_sees('1', 'a policy for others');
sql('GRANT chiefs TO clerk');
clerk_sees('1 2', 'now it is for the role, too');
sql('REVOKE chiefs FROM clerk; ALTER POLICY low ON secret USING (level = 2)');
clerk_sees('2', 'another policy');
sql('ALTER ROLE clerk BYPASSRLS');
clerk_sees('1 2', 'the role is above it');
sql('REVOKE SELECT ON secret FROM clerk');
sql("SET SESSION AUTHORIZATION clerk; SELECT delay_schedule('0', 'INSERT INTO result (value) SELECT level FROM secret')");
wait_until(60, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' }) or die;
is(result() . failures(), 'permission denied for table secret', 'a right taken away');
reload('delay_wheel.max_executors = 1');

#
# Constants are read anew where it makes a difference.
#
my $now = q{INSERT INTO result (value) SELECT ('now'::timestamptz = now())::text};
my @now = ($now, 'SELECT pg_sleep(0.002)');
run_tasks(@now, @now, @now, @now);
is(result(), 'true true true true', q{'now'});
@now = ([ 'INSERT INTO result (value) SELECT ($1::timestamptz = now())::text', q{'now'} ], 'SELECT pg_sleep(0.002)');
run_tasks(@now, @now, @now, @now);
is(result(), 'true true true true', q{'now' as argument});
my $arrays = q{INSERT INTO result (value) SELECT (('{"Now"}'::timestamptz[])[1] = now())::text};
run_tasks($arrays, 'SELECT pg_sleep(0.002)', $arrays, 'SELECT pg_sleep(0.002)', $arrays);
is(result(), 'true true true', q{'now' in an array});
my $known = q{INSERT INTO result (value) VALUES ('unknown, not now')};
my $date = q{INSERT INTO result (value) SELECT extract(month FROM '02/01/2020'::date)};
run_tasks(($date) x 3);
reload(q{DateStyle = 'ISO, DMY'});
run_tasks(($date) x 3);
is(result(), '2 2 2 1 1 1', 'settings that are read again');
reload('DateStyle = default');

#
# Arguments without a type: each place by itself, as in the first run.
#
my $places = 'INSERT INTO result (value) SELECT pg_typeof($1) || (5 + $1)::text || ($1 || \'!\') || (1.5 * $1)::text || ($1 IS NULL)::text';
run_tasks(map { [ $places, $_ ] } (q{'2'}, q{'2'}, q{'3'}, 'NULL', q{'4'}));
is(result(), join(' ', 'unknown72!3.0false', 'unknown72!3.0false', 'unknown83!4.5false', 'unknown94!6.0false'),
	'one argument as several types')
  or diag(sql('SELECT * FROM delay_wheel.failed'));
sql(q{CREATE TABLE lengths (v varchar(3), c char(3), n numeric(4, 1), b bit(3), i interval(0), a varchar(2)[])});
my $lengths = 'INSERT INTO lengths SELECT $1, $1, $2, $3, $4, $5';
run_tasks(map { [ $lengths, $_ ] } (q{'ab', '12.345', '101', '1.6 s', '{a,b}'}) x 3, q{'long', '1', '101', '1 s', '{}'});
is(sql('SELECT string_agg(lengths::text, \' \') FROM lengths'), join(' ', ('(ab,"ab ",12.3,101,00:00:02,"{a,b}")') x 3), 'columns with a length');
is(failures(), 'value too long for type character varying(3)', 'and what does not fit');
my $group = 'INSERT INTO result (value) SELECT $1 || count(*) FROM generate_series(1, 3) GROUP BY $1';
run_tasks(map { [ $group, $_ ] } (q{'a'}, q{'b'}, q{'c'}));
is(result(), 'a3 b3 c3', 'the same expression twice');
my $interval = q{INSERT INTO result (value) SELECT $1::interval hour || ' ' || $1::interval};
run_tasks(map { [ $interval, $_ ] } (q{'1'}, q{'2'}, q{'3'}));
is(result(), '01:00:00 00:00:01 02:00:00 00:00:02 03:00:00 00:00:03', 'an interval with its fields');
sql('DROP DOMAIN small; CREATE DOMAIN small AS varchar(3) CHECK (VALUE <> \'bad\'); CREATE TABLE smalls (s small)');
run_tasks(map { [ 'INSERT INTO smalls VALUES ($1)', $_ ] } (q{'a'}, q{'b'}, q{'bad'}, q{'long'}, 'NULL', q{'c'}));
is(sql(q{SELECT string_agg(coalesce(s, 'NULL'), ' ' ORDER BY ctid) FROM smalls}), 'a b NULL c', 'a domain');
is(failures(), 'value for domain small violates check constraint "small_check"; value too long for type character varying(3)',
	'it is checked');
run_tasks(map { [ 'UPDATE account SET note = $1 WHERE id = $2', "'y', $_" ] } (q{'x'}, q{'1'}, q{'2'}, q{'3'}, q{'x'}));
is(sql(q{SELECT count(*), count(DISTINCT message || context) FROM delay_wheel.failed}), '2|1',
	'an error looks the same with and without a plan');
is(sql(q{SELECT message || ' ' || context FROM delay_wheel.failed LIMIT 1}),
	'invalid input syntax for type integer: "x" at character 41 of: UPDATE account SET note = $1 WHERE id = $2', 'and says where it is');
sql('TRUNCATE delay_wheel_data.failed_task');
my $typed = 'INSERT INTO result (value) SELECT pg_typeof($1)';
run_tasks(map { [ $typed, $_ ] } ('1', '1::bigint', q{'1'}, '1::smallint', '2', '2::bigint', q{'2'}));
is(result(), 'integer bigint unknown smallint integer bigint unknown', 'types tell plans apart');

#
# What cannot be prepared is run as ever.
#
run_tasks(('CREATE TEMP TABLE mine (a int); INSERT INTO mine VALUES (1); INSERT INTO result (value) SELECT a FROM mine') x 3);
is(result(), '1 1 1', 'several statements, which need each other');
run_tasks(('SELECT 1 AS a INTO made', 'DROP TABLE made') x 3,
	('CALL p()') x 2, q{CREATE PROCEDURE p() LANGUAGE sql AS $$INSERT INTO result (value) VALUES ('called')$$}, ('CALL p()') x 3);
is(result(), 'called called called', 'utility statements');
is(failures(), 'procedure p() does not exist; procedure p() does not exist', 'they fail as ever');
run_tasks(('INSERT INTO result (value) SELECT a FROM not_yet') x 3,
	'CREATE TABLE not_yet AS SELECT 1 AS a', ('INSERT INTO result (value) SELECT a FROM not_yet') x 3);
is(result(), '1 1 1', 'after errors, a text can be prepared');
is(failures(), join('; ', ('relation "not_yet" does not exist') x 3), 'the errors');
sql(q{SET delay_wheel.check_sql = off; SELECT delay_schedule('0', 'SELECT wrong syntax here') FROM generate_series(1, 3)});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'tasks with wrong syntax');
is(sql('SELECT count(*), count(DISTINCT message || context) FROM delay_wheel.failed'), '3|1', 'wrong syntax looks the same');
sql('TRUNCATE delay_wheel_data.failed_task');
sql(q{SET delay_wheel.check_sql = off; SELECT delay_schedule('0', $$UPDATE account SET note = 'open WHERE id = 1$$) FROM generate_series(1, 3)});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'tasks that the lexer does not like');
is(sql('SELECT count(*), min(context), max(context) FROM delay_wheel.failed'),
	join('|', 3, (q{at character 27 of: UPDATE account SET note = 'open WHERE id = 1}) x 2), 'they say where');
sql('TRUNCATE delay_wheel_data.failed_task');

#
# Tasks that do away with plans, or come back to them
#
run_tasks(($known, 'DISCARD PLANS', 'DEALLOCATE ALL') x 3);
is(result(), join(' ', ('unknown, not now') x 3), 'DISCARD PLANS, DEALLOCATE ALL');
sql(q{CREATE FUNCTION again(n int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		inner_id bigint;
	BEGIN
		INSERT INTO result (value) VALUES (n);
		IF n > 0 THEN
			inner_id := delay_schedule('1 day', 'SELECT again($1)', n - 1);
			PERFORM delay_run(inner_id);
		END IF;
	END$$});
run_tasks((['SELECT again($1)', '3']) x 3);
is(result(), join(' ', ('3 2 1 0') x 3), 'a task that runs another one of the same text');
is(failures(), '', 'without an error');

done_testing();
