# Texts that differ in their constants only share plans.  A task must not
# notice: statements made at random are run as tasks, and by EXECUTE on a copy
# of everything; results and errors are the same.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('constants', conf => q{
	delay_wheel.max_executors = 1
	delay_wheel.executor_idle_timeout = 1h
	autovacuum = off
	log_planner_stats = on
});
my $seed = $ENV{DW_SEED} // time();
srand($seed);
diag("DW_SEED=$seed");

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub wait_until_done
{
	wait_until(120, sub { sql('SELECT count(*) FROM delay_wheel_data.task') eq '0' }) or die 'tasks do not run';
	return;
}

#
# They do share plans.
#
sub plannings
{
	my ($from, $to, $text) = @_;
	my $position = log_position($node);

	sql("SELECT delay_schedule('0', format('$text', g)) FROM generate_series($from, $to) g");
	wait_until_done();
	my @lines = log_since($node, $position) =~ /delay_wheel executor LOG:  PLANNER STATISTICS/g;
	return scalar @lines;
}

sql(q{CREATE TABLE account (id int PRIMARY KEY, n bigint, note text);
	INSERT INTO account SELECT g, 0, '' FROM generate_series(1, 5000) g; ANALYZE account;
	CREATE INDEX ON account (n);
	CREATE FUNCTION add_to(which int, what bigint) RETURNS void LANGUAGE sql
		BEGIN ATOMIC UPDATE account SET n = n + what WHERE id = which; END});
cmp_ok(plannings(1, 400, q{UPDATE account SET n = 7, note = ''it''''s'' WHERE id = %s}), '<', 200, 'UPDATE by a key');
is(sql(q{SELECT count(*) FROM account WHERE n = 7 AND note = 'it''s'}), '400', 'each its row');
cmp_ok(plannings(401, 800, q{delete from account where id=''%s'' and n=0;}), '<', 200, 'DELETE by a key');
is(sql('SELECT count(*) FROM account WHERE id BETWEEN 401 AND 800'), '0', 'each its row');
cmp_ok(plannings(1001, 1400, q{SELECT public.add_to(%s, ''9'')}), '<', 600, 'a function');
is(sql('SELECT count(*) FROM account WHERE n = 9'), '400', 'each its arguments');
# values for which plans would differ
cmp_ok(plannings(1, 200, q{UPDATE account SET note = note WHERE n = %s}), '>=', 200, 'not where the planner has a choice');

#
# Statements at random, also wrong ones
#
sql(q{
	CREATE SCHEMA one;
	SET search_path = one;
	CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
	CREATE DOMAIN small AS varchar(4) CHECK (VALUE <> 'bad');
	CREATE TABLE t (id int PRIMARY KEY, i2 smallint UNIQUE, i8 bigint, n numeric(6, 2), f float8, v varchar(5),
		c char(4), x text, m mood, d date, ts timestamptz, iv interval, s small, a int[], j jsonb, o oid, b boolean,
		u text COLLATE "C" UNIQUE, CHECK (i8 < 1000), UNIQUE (v, c));
	INSERT INTO t SELECT g, g, g % 7, g / 3.0, g, g, g, 'x' || g, 'ok', '2020-01-01', '2020-01-01', '1 hour', g, ARRAY[g],
		to_jsonb(g), g, g % 2 = 0, 'u' || g FROM generate_series(1, 500) g;
	ANALYZE t;
	CREATE TABLE log (id serial, what text);
	CREATE FUNCTION f(int) RETURNS text LANGUAGE sql AS $$INSERT INTO log (what) VALUES ('int ' || $1) RETURNING what$$;
	CREATE FUNCTION f(text) RETURNS text LANGUAGE sql AS $$INSERT INTO log (what) VALUES ('text ' || $1) RETURNING what$$;
	CREATE FUNCTION f(bigint, date) RETURNS text LANGUAGE sql AS $$INSERT INTO log (what) VALUES ('date ' || $1 || $2) RETURNING what$$;
	CREATE FUNCTION f(int, VARIADIC "any") RETURNS text LANGUAGE internal AS 'text_format_nv';
	CREATE FUNCTION g(a numeric DEFAULT 1, b mood DEFAULT 'sad') RETURNS text LANGUAGE sql
		AS $$INSERT INTO log (what) VALUES (a || ' ' || b) RETURNING what$$;
	CREATE FUNCTION h(anyelement, anyelement) RETURNS text LANGUAGE sql
		AS $$INSERT INTO log (what) VALUES (pg_typeof($1) || ' ' || $1 || $2) RETURNING what$$;
} =~ s/CREATE FUNCTION f\(int, VARIADIC.*\n//r);

sub pick { return $_[ int rand @_ ]; }

sub constant
{
	return pick(0, 1, 5, int(rand 510), int(rand 510), 32768, 2147483647, 2147483648, '1.5', '-3', 'NULL', 'true',
		map { "'$_'" } 'sad', 'happy', 'bad', 'x', 'it\'\'s', '2021-02-03', '2 days', '{1,2}', '{"a": 1}', 'abcdefgh', '', 'u17',
		int(rand 510), int(rand 510), 'ab  ', '99999', '17 ', '1.25')
	  if rand() < 0.9;
	return pick(q{E'a\\\\nb'}, q{$$dollar$$}, q{U&'\\0041'}, q{'con' /* not a constant: 5 */}, "'two'\n 'parts'", q{'x'::text}, '5 + 1',
		q{date '2020-02-02'}, q{interval '1' day}, q{-'7'::int}, q{(SELECT 5)}, q{'x' || 'y'}, q{B'101'}, '1e3');
}

my @columns = qw(id i2 i8 n f v c x m d ts iv s a j o b u);

sub right_constant
{
	my ($column) = @_;
	my $n = 1 + int rand 500;

	return constant() if rand() < 0.3;
	return pick($n, "'$n'") if $column =~ /^(id|i2|i8|n|f|o)$/;
	return pick("'$n'", "'x$n'", "'u$n'") if $column =~ /^[vcxsu]$/;
	return { m => q{'happy'}, d => q{'2021-01-01'}, ts => q{'2021-01-01 10:00'}, iv => q{'3 days'}, a => q{'{3,4}'},
		j => q{'[1]'}, b => q{'on'} }->{$column};
}

sub condition
{
	my $key = pick('id', 'id', 'id', 'i2', 'u', 'v');
	my @conditions = ("$key = " . right_constant($key));

	push @conditions, 'c = ' . right_constant('c') if $key eq 'v';
	for (1 .. int rand 3)
	{
		my $column = pick(@columns);
		push @conditions, $column . pick(' = ', '=', ' <> ', ' < ') . right_constant($column);
	}
	return join(pick(@_), @conditions);
}

sub statement
{
	my $kind = rand();

	return 'DELETE FROM t WHERE ' . condition(' AND ') . pick('', ';') if $kind < 0.05;
	return pick('SELECT ', 'select ') . pick('f', 'f', 'g', 'h', 'one.f', 'no_such', '"f"') . '('
	  . join(', ', map { constant() } 1 .. pick(1, 1, 2, 2, 0, 3)) . ')' . pick('', ' ; ') if $kind < 0.4;
	my @set = map { my $c = pick(grep { !/^(id|i2|u)$/ } @columns); $c . pick(' = ', '=') . right_constant($c) } 1 .. pick(1, 1, 2, 3);
	return pick('UPDATE t SET ', 'update one.t set ') . join(', ', @set) . pick(' WHERE ', ' /* c = 1 */ where ')
	  . condition(' AND ', ' and ', ' AND ', ' and ', ' OR ') . pick('', '', ' RETURNING *', ' RETURNING id = 5');
}

my @statements = map { statement() } 1 .. (long_tests() ? 20000 : 3000);
# Each twice with other constants, so that there is a plan for many, and then with constants that
# make a text of another form of it.
sub in_another_form
{
	my ($statement) = @_;

	$statement =~ s/(?<![\w.'])\d+\b(?![.'])/pick(7, 12, 2147483648, 9999999999, '007', '1.5', '1e3', 400)/ge;
	$statement =~ s/'(\w*)'(?!')/pick("'$1'", "'$1'", "'it''s'", "'a\\b'", "E'$1'", "'$1'\n'7'")/ge;
	return $statement;
}
@statements = map { my $other = $_; $other =~ s/\b\d{2,3}\b/1 + int rand 500/ge; ($_, $other, $other, in_another_form($other)) } @statements;

# The copy, by EXECUTE
sql('CREATE TABLE statement (id serial PRIMARY KEY, sql text, error text)');
my $quote = sub { my $text = $_[0]; $text =~ s/'/''/g; $text =~ s/\\/\\\\/g; return "E'$text'" };
for (my $i = 0; $i < @statements; $i += 500)
{
	my $last = $i + 499 < $#statements ? $i + 499 : $#statements;

	sql('INSERT INTO statement (sql) VALUES ' . join(', ', map { '(' . $quote->($_) . ')' } @statements[ $i .. $last ]));
}
$node->safe_psql('postgres', q{
	CREATE TABLE one_before AS SELECT * FROM one.t;
	CREATE TABLE state (name text, rows text);
	CREATE FUNCTION note_state(label text) RETURNS void LANGUAGE sql SET search_path = one AS $$
		INSERT INTO public.state SELECT label, concat((SELECT string_agg(t::text, E'\n' ORDER BY id) FROM t),
			E'\n', (SELECT string_agg(what, E'\n' ORDER BY id) FROM log))$$;
});

# First by EXECUTE ...
sql(q{SET search_path = one, public;
	SET log_min_messages = panic;
	DO $do$
	DECLARE
		s record;
	BEGIN
		FOR s IN SELECT * FROM statement ORDER BY id LOOP
			BEGIN
				EXECUTE s.sql;
			EXCEPTION WHEN OTHERS THEN
				UPDATE statement SET error = SQLSTATE || ' ' || SQLERRM WHERE id = s.id;
			END;
		END LOOP;
	END $do$;
	SELECT note_state('execute')});
# ... then, from the same state, as tasks
sql(q{TRUNCATE one.t, one.log; ALTER SEQUENCE one.log_id_seq RESTART; INSERT INTO one.t SELECT * FROM one_before; ANALYZE one.t});
my $position = log_position($node);
sql(q{SET delay_wheel.check_sql = off; SET search_path = one, public;
	CREATE TABLE public.scheduled AS SELECT id, delay_schedule('0', sql) AS task FROM (SELECT * FROM statement ORDER BY id) s});
wait_until_done();
my @planned = log_since($node, $position) =~ /delay_wheel executor LOG:  PLANNER STATISTICS/g;
sql(q{SELECT note_state('tasks')});

is(sql('SELECT count(DISTINCT rows) FROM state'), '1', 'the same rows')
  or diag(sql(q{SELECT a, b FROM (SELECT regexp_split_to_table(rows, E'\n') a FROM state WHERE name = 'execute') x
	FULL JOIN (SELECT regexp_split_to_table(rows, E'\n') b FROM state WHERE name = 'tasks') y ON a = b WHERE a IS NULL OR b IS NULL LIMIT 20}));
# What no row would get is not looked at by a plan that is there; and which one of
# several wrong values is found first, nobody says.
my $different = q{FROM statement s JOIN scheduled USING (id) LEFT JOIN delay_wheel.failed f ON f.id = task
	WHERE s.error IS DISTINCT FROM f.sqlstate || ' ' || f.message AND NOT (f.id IS NULL AND s.error ~ '^(22001|22003|23514) ')
		AND NOT (s.error ~ '^22' AND f.sqlstate ~ '^22')};
is(sql("SELECT count(*) $different"), '0', 'the same errors')
  or diag(sql("SELECT s.sql, s.error, f.sqlstate, f.message $different LIMIT 20"));
is(sql(q{SELECT count(*) FROM delay_wheel.failed
	WHERE context ~ '^at character' AND context !~ '\ninlining|^at character \d+ of: (SELECT|INSERT INTO log)'
		AND position(regexp_replace(context, '^at character \d+ of: ([^\n]*)(\n.*)?$', '\1', 's') IN sql) = 0}), '0', 'places are places in the task')
  or diag(sql(q{SELECT sql, context FROM delay_wheel.failed WHERE context ~ '^at character' LIMIT 5}));
cmp_ok(sql('SELECT count(*) FROM statement WHERE error IS NULL'), '>', @statements / 5, 'many of the statements are right');
cmp_ok(sql('SELECT count(*) FROM one.log'), '>', @statements / 50, 'many functions were called');
cmp_ok(sql('SELECT count(*) FROM one.t JOIN one_before USING (id) WHERE t IS DISTINCT FROM one_before'), '>', 50, 'many rows were changed');
diag(scalar(@statements) . ' statements, ' . scalar(@planned) . ' planned, '
	  . sql('SELECT count(*) FROM statement WHERE error IS NOT NULL') . ' wrong');

done_testing();
