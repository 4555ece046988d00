# Random values for everything that can be given to delay_wheel by SQL: every
# function of the extension, and every table of its own, by plain SQL of a
# superuser.  Whatever comes, no process of the server may crash, no error may
# be an internal one, the workers go on, and another role's tasks stay on time.
#
#   DW_SEED=n     the values of that run again; it is printed
#   DW_LONG=1     some minutes
#   DW_ROUNDS=n   so many rounds

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{DW_SEED} // int(rand(2**31));
my $rounds = $ENV{DW_ROUNDS} // (long_tests() ? 150 : 4);
my $calls = 150;				# in each round, and half as many rows
srand($seed);
note("repeat this with DW_SEED=$seed");

my $node = new_node('fuzz', conf => q{
log_line_prefix = '%m [%p] %b %e '
log_min_messages = notice
log_error_verbosity = verbose
log_statement = none
log_min_error_statement = panic
max_connections = 30
delay_wheel.history = all
delay_wheel.executor_idle_timeout = 1s
fsync = off
});

# Queues with groups, whose limits are changed all the time
my $crowd = q{SELECT delay_wheel.create_queue('crowd', groups => true, users => '{public}'),
	delay_wheel.create_queue('crowd mail', external => true, groups => true, users => '{public}', receivers => '{public}', max_attempts => 3, options => '{"retry_delay": "10 ms"}');};

$node->safe_psql('postgres', q{
	CREATE ROLE fuzzer LOGIN;
	CREATE ROLE canary LOGIN;
	-- with tokens, also those of others
	CREATE VIEW every_task AS TABLE delay_wheel_data.task;
	GRANT SELECT ON every_task TO PUBLIC;
	CREATE ROLE nologin;
	SELECT delay_wheel.allow('fuzzer', 'canary', 'nologin');
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA delay_wheel TO fuzzer;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO fuzzer;
	REVOKE EXECUTE ON FUNCTION delay_wheel.pause_database(), delay_wheel.allow(name[]), delay_wheel.disallow(name[]) FROM fuzzer;
	ALTER ROLE fuzzer SET statement_timeout = '300ms';
	ALTER ROLE fuzzer SET delay_wheel.default_timeout = '100ms';
	ALTER ROLE fuzzer SET delay_wheel.max_pending = 2000;
	CREATE SCHEMA fuzz AUTHORIZATION fuzzer;
	CREATE TABLE sung (at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON sung TO canary;
	SELECT delay_wheel.create_queue('outbox', external => true, users => '{public}', receivers => '{public}', max_attempts => 3, options => '{"retry_delay": "10 ms"}');
	GRANT EXECUTE ON ALL PROCEDURES IN SCHEMA public TO fuzzer;
	SELECT delay_wheel.create_queue('fuzz', users => '{fuzzer}'), delay_wheel.create_queue('limited', max_running => 1, rate => 100, users => '{public}');
	SET SESSION AUTHORIZATION canary;
	SELECT delay_every('canary', '200 ms', 'INSERT INTO public.sung DEFAULT VALUES') > 0;
	RESET SESSION AUTHORIZATION;
	GRANT SET ON PARAMETER delay_wheel.history, delay_wheel.history_sample, delay_wheel.history_result TO fuzzer;
	SET SESSION AUTHORIZATION fuzzer;
	} . $crowd . q{
	CREATE TYPE fuzz.mood AS ENUM ('good', 'so so');
	CREATE TYPE fuzz.pair AS (a int, b fuzz.mood);
	CREATE TYPE fuzz.gone AS (a int);
	CREATE DOMAIN fuzz.positive AS int CHECK (VALUE > 0);
	CREATE FUNCTION fuzz.raises(fuzz.pair) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''XX000''; END';
	CREATE DOMAIN fuzz.picky AS fuzz.pair CHECK ((VALUE).a IS NULL OR (VALUE).a <> 13);
	CREATE TABLE fuzz.matter (i int, f text, "48 hours" interval DEFAULT '0', "key=" text DEFAULT 'k', at timestamptz DEFAULT now(), "$1" fuzz.picky DEFAULT '(1,good)',
		m fuzz.mood DEFAULT 'good', p fuzz.positive DEFAULT 3, a int[] DEFAULT '{1}', g text GENERATED ALWAYS AS ('g' || i) STORED, c char(5) DEFAULT 'c', z bytea, inf timestamptz DEFAULT 'infinity');
	-- the same text but for its numbers is not parsed: the answer must be that of the parser
	CREATE FUNCTION fuzz.outcome(t text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM delay_cancel(delay_schedule('1 hour', t));
		RETURN 'accepted';
	EXCEPTION WHEN OTHERS THEN
		RETURN SQLSTATE || ' ' || SQLERRM;
	END $$;
	CREATE FUNCTION fuzz.differ(a text, b text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		compared text;
		parsed text;
		ok boolean := fuzz.outcome(a) = 'accepted';
	BEGIN
		compared := fuzz.outcome(b);
		PERFORM fuzz.outcome('SELECT another');
		parsed := fuzz.outcome(b);
		IF compared <> parsed THEN
			RETURN format('after %s: %s: %s, but %s', a, b, compared, parsed);
		END IF;
		RETURN CASE WHEN ok AND parsed = 'accepted' THEN 'accepted' END;
	END $$;
	INSERT INTO fuzz.matter SELECT generate_series(1, 3);
});
my $gone = $node->safe_psql('postgres', q{SELECT 'fuzz.gone'::regtype::oid; DROP TYPE fuzz.gone});

#
# What values are drawn from
#
sub one_of { return $_[ int(rand(@_)) ]; }

sub quoted
{
	my ($value) = @_;
	$value =~ s/'/''/g;
	$value =~ s/\\/\\\\/g;
	return "E'$value'";
}

my @words = ('', ' ', 'a', 'k', 'default', 'fuzz', 'limited', 'outbox', 'outbox', 'crowd', 'crowd mail', 'public', 'canary', 'fuzzer', 'nologin', 'keep', 'replace', 'error', 'skip', 'all',
	'off', 'errors', 'at_most_once', 'at_least_once', 'UTC', 'Europe/Berlin', 'Nowhere/Else', '../../etc/passwd', "a'b\"c", "x\ty\nz", "\x{e4}\x{20ac}",
	'%s%n%d', '$1', '-', '0', '1', '-1', '9223372036854775807', 'NaN', 'infinity', '2026-01-01', '1 day', 'null', '{}', '{"a": 1}', '22012', 'XX000', '--', '/*');
my @schedules = ('* * * * *', '*/7 * * * * *', '@hourly', '@yearly', '0 0 29 2 *', '0 0 31 2 *', '60 * * * *', '* * * * 8', '1-0 * * * *', '*/0 * * * *',
	'0 0 L * *', '0 0 * * friL', '0 0 * * fri#5', '0 0 * * fri#6', '@never', '* * * *', '* * * * * * *', '99999999999999999999 * * * *', ',,, * * * *',
	'1,2,3-5/2 0 1 jan-dec mon', '*/1-5 * * * *', '0-59/59 0-23/23 * * *', '0 0 1 1 * trailing');
my @texts = ('SELECT 1', 'SELECT $1', 'SELECT $1, $2', 'SELECT $2', 'SELECT $65536', 'SELECT $0', 'SELECT $99999999999', 'SELEC', 'SELECT 1/0',
	'SELECT pg_sleep(0.05)', 'SELECT pg_sleep(10)', 'UPDATE fuzz.matter SET f = $1', 'UPDATE fuzz.matter SET f = 7 WHERE i = 2', 'VACUUM fuzz.matter', 'BEGIN', 'COMMIT', 'ROLLBACK; SELECT 1',
	'SAVEPOINT a', 'LISTEN a', 'NOTIFY a', 'COPY fuzz.matter TO STDOUT', 'COPY fuzz.matter FROM STDIN', 'SET ROLE canary', 'SET SESSION AUTHORIZATION DEFAULT',
	'RESET ALL', 'DISCARD ALL', 'DEALLOCATE ALL', 'DECLARE c CURSOR WITH HOLD FOR SELECT 1', 'PREPARE p AS SELECT $1::int; EXECUTE p(1)', 'CREATE TEMP TABLE t (i int)',
	'DO $$BEGIN RAISE EXCEPTION USING ERRCODE = \'40001\'; END$$', 'DO $$BEGIN RAISE EXCEPTION USING MESSAGE = repeat(\'x\', 100000); END$$',
	'SELECT pg_cancel_backend(pg_backend_pid())', 'SELECT pg_terminate_backend(pg_backend_pid())', 'SELECT public.delay_schedule(\'0\', \'SELECT 1\')',
	'SELECT public.delay_cancel(id) FROM delay_wheel.tasks', 'SELECT * FROM delay_wheel.history', '', ';', ';;;', '--', '/*', "'", '$$', 'SELECT U&\'\\+12345g\'',
	'EXPLAIN ANALYZE SELECT $1', 'CALL fuzz.none()', 'ALTER SYSTEM SET a = 1', 'SELECT public.delay_run_due(\'infinity\')', 'LOCK fuzz.matter; SELECT pg_sleep(0.01)');
my @times = ("'-infinity'", "'infinity'", "'4714-11-24 00:00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'", "'1970-01-01'", "'2000-01-01'", 'now()', 'clock_timestamp()',
	"now() + interval '50 ms'", "now() - interval '1 day'", "now() + interval '1 hour'", "'2038-01-19 03:14:08+00'");
my @intervals = ("'0'", "'1 microsecond'", "'-1 microsecond'", "'50 ms'", "'100 ms'", "'99 ms'", "'1 s'", "'1 day'", "'1 month'", "'-1 month 32 days'", "'178000000 years'", "'-178000000 years'",
	"'2147483647 days'", "'-2147483648 days'", "'2147483647 months'", "'2147483647 months 2147483647 days 2562047788:00:54.775807'", "'24 days'", "'366 days'", "'2562047788 hours'",
	"'-2562047788 hours'", "'infinity'", "'1 month -30 days'", "'366 days 1 microsecond'");
my @integers = (0, 1, -1, 2, 10, 32767, -32768, 2147483647, -2147483648, 1000, 10000, 1000001);
my @bigs = (@integers, 9223372036854775807, '(-9223372036854775808)', 4294967295, 4294967296);
my @numbers = (@integers, '2147483648');
my @roles = ("'fuzzer'", "'canary'", "'nologin'", "'-'", 'fuzzer_oid', "'4294967295'", "'99999'", "'postgres'");

sub long_text { return sprintf("repeat(%s, %d)", quoted(one_of('x', ' ', '\'', '$1', '(', "\x{20ac}", 'SELECT 1;', '[')), one_of(999, 1000, 1001, 63, 64, 10000, 100000)); }

# A valid one of at least half of the cases, so that calls come past the checks.
my %pool = (
	'boolean' => sub { one_of('true', 'false', 'NULL') },
	'smallint' => sub { one_of(0, 0, 1, -1, 2, 100, 32767, -32768, 'NULL') },
	'integer' => sub { rand() < 0.3 ? 'NULL' : one_of(@integers) },
	'bigint' => sub {
		rand() < 0.5 ? '(SELECT max(id) - ' . int(rand(30)) . ' FROM delay_wheel.tasks)' : one_of(@bigs, '(SELECT max(id) FROM delay_wheel.failed)', 'NULL') },
	'bigint[]' => sub {
		one_of("NULL", "'{}'", "'{NULL}'", "'{1,2}'", "'{{1,2},{3,4}}'", "'{9223372036854775807}'", "ARRAY(SELECT id FROM delay_wheel.tasks LIMIT 3)") . '::bigint[]' },
	'double precision' => sub { one_of('0', '-1.5', '1e300', "'NaN'", "'Infinity'", "'-Infinity'", 'NULL') . '::float8' },
	'numeric' => sub { one_of('0', '-0.1', '123456789.25', '1e30', "'NaN'", "'Infinity'", 'NULL') . '::numeric' },
	'timestamp with time zone' => sub { one_of(@times, 'NULL') . '::timestamptz' },
	'timestamp without time zone' => sub { one_of("'2027-03-28 02:30'", "'infinity'", "'-infinity'", "'294276-12-31 23:59:59'", "'4714-11-24 00:00 BC'", 'now()', 'NULL') . '::timestamp' },
	'timestamp with time zone[]' => sub {
		one_of('NULL::timestamptz[]', "'{}'::timestamptz[]", "'{NULL}'::timestamptz[]", "'{{-infinity,infinity}}'::timestamptz[]",
			'ARRAY[' . join(', ', map { one_of(@times) . '::timestamptz' } 1 .. 1 + int(rand(4))) . ']',
			"ARRAY(SELECT now() + g * interval '1 s' FROM generate_series(1, " . one_of(3, 500, 501) . ') g)') },
	'interval' => sub { one_of(@intervals, "'0'", "'50 ms'", 'NULL') . '::interval' },
	'text' => sub {
		my $r = rand();
		return 'NULL' if $r < 0.15;
		return quoted(one_of(@words)) if $r < 0.5;
		return quoted(one_of(@texts)) if $r < 0.8;
		return quoted(one_of(@schedules)) if $r < 0.93;
		return "repeat('SELECT 1 --', 100000)" if $r < 0.94;
		return long_text(); },
	'text[]' => sub {
		one_of("NULL", "'{}'", "'{1}'", "'{1,2}'", "'{NULL}'", "'{{1,2},{3,4}}'", "'[5:6]={1,2}'", "'[0:0]={1}'", 'array_fill(1, ARRAY[70000])', "ARRAY[repeat('x', 1000000)]") . '::text[]' },
	'anycompatiblearray' => sub {
		one_of('NULL::text[]', "'{1,2}'", "'{1}'", "'{1,2}'::int[]", "'{}'::int[]", "'{NULL,2001-02-03}'::date[]", "'{{1,2},{3,4}}'::int[]", "'[0:0]={1}'::int[]", "ARRAY['{}'::jsonb]", "'{good}'::fuzz.mood[]",
			"ARRAY[ROW(1, 'good')::fuzz.picky]", 'ARRAY[ROW(1, 2)]', "'{a}'::varchar[]", "'{3}'::fuzz.positive[]", 'array_fill(1, ARRAY[70000])', "ARRAY['now'::timestamptz]", "ARRAY['[1,2)'::int4range]", "'{1}'::pg_lsn[]") },
	'name[]' => sub { one_of("'{fuzzer}'", "'{public}'", "'{}'", "'{NULL}'", "'{nobody}'", "'{{a,b},{c,d}}'", 'NULL') . '::name[]' },
	'regtype[]' => sub {
		one_of("NULL", "'{}'", "'{int4}'", "'{text}'", "'{int4,text}'", "'{NULL}'", "'{-}'", "'{{int4,int4}}'", "'{4294967295}'", "'{$gone}'", "'{anyelement}'", "'{record}'", "'{internal}'",
			"'{void}'", "'{cstring}'", "'{cstring[]}'", "'{trigger}'", "'{fuzz.mood}'", "'{fuzz.pair}'", "'{fuzz.picky}'", "'{fuzz.positive}'", "'{int4range}'", "'{int4multirange}'", "'{delay_wheel_data.task}'",
			"'{unknown}'", "'{pg_node_tree}'", "'{pg_ddl_command}'", "'{regrole}'", "'{_record}'", "'[3:3]={int4}'", "'{money}'", "'{xml}'", "'{tid}'", "'{pg_lsn}'", "'{anyarray}'") . '::regtype[]' },
	'regrole' => sub { one_of(@roles) . '::regrole' },
	'regrole[]' => sub { one_of('NULL', "'{}'", "'{fuzzer}'", "'{canary,fuzzer}'", "'{NULL}'", "'{-}'", "'{4294967295}'", "'{{fuzzer,canary},{fuzzer,canary}}'") . '::regrole[]' },
	'jsonb' => sub {
		my $value = one_of('1', '-1', '0.5', '1e100', '9223372036854775807', '99999999999999999999', 'null', 'true', '""', '"a"', '"SELECT 1"', '"SELECT $1, $2"', '"SELEC"', '"at_most_once"', '"at_least_once"',
			'"' . ('x' x 5000) . '"', '{"time": 1, "zone": "UTC", "instant": 5}', '{"time": 1e30, "zone": 7}', '[]', '{}', '[[[[1]]]]', '"1 day"', '"-1 s"');
		my $key = one_of('recurring', 'mode', 'notify', 'on_success', 'on_failure', 'skip_after', 'last_error', 'expires', 'ran', 'local', '', 'other');
		one_of('NULL', "'{\"$key\": $value}'", "'{\"$key\": $value}'", "'$value'", "'{\"$key\": $value, \"mode\": \"at_most_once\"}'") . '::jsonb' },
	'json' => sub {
		one_of("'1'", "'null'", "'[1, [2.50, true]]'", "'{\"a\": \"\\\\u202e\", \"a\": {}}'", "'\"\x{202e}\"'", "'\"\\\\u0000\"'", "repeat('[', 5000) || repeat(']', 5000)", "'{'", 'NULL') . '::json' },
	'"any"' => sub {
		one_of("'unknown'", 'NULL', '1', '1.5', "'NaN'::float8", "'infinity'::float8", "'a'::text", "'x'::\"char\"", "'good'::fuzz.mood", "ROW(1, 'good')::fuzz.pair", "ROW(1, 'good')::fuzz.picky", "ROW(1, 2)",
			'3::fuzz.positive', "'{1,2}'::int[]", "'{}'::text[]", "ARRAY[ROW(1, 'good')::fuzz.pair]", "'[1,2)'::int4range", "'{[1,2)}'::int4multirange", "'\\x00ff'::bytea", "'1'::xml", "'{\"a\": 1}'::jsonb", "'\$.a'::jsonpath",
			"'pg_class'::regclass", "'now'::timestamptz", "'1 day'::interval", "'12.50'::money", "'(1,1)'::point", "'a b'::tsvector", "'(0,1)'::tid", "'0/0'::pg_lsn", "'x'::cstring", "repeat('x', 1000000)",
			'public.delay_schedule', '(SELECT m FROM fuzz.matter m LIMIT 1)', "'1'::unknown", '$$a$$::bpchar(5)', "B'101'", "'10.0.0.1'::inet") },
);
$pool{name} = sub { quoted(one_of(@words)) . '::name' };

sub value_for
{
	my ($type) = @_;
	# now and then of a wrong type
	my @any = map { $_ eq 'regtype[]' ? () : $_ } sort keys %pool;

	$type = one_of(@any) if rand() < 0.02;
	my $value = ($pool{$type} // die "no values for type $type")->();
	$value =~ s/fuzzer_oid/(SELECT 'fuzzer'::regrole)/;
	return $value;
}

#
# A call of each function, in many circumstances
#
my @functions = map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', q{
	SELECT p.oid::regproc, COALESCE((SELECT string_agg(format_type(t, NULL), ';' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY u(t, n)), ''),
		p.provariadic <> 0, COALESCE(array_to_string((p.proargnames)[1:p.pronargs], ';'), ''), p.pronargdefaults, p.prokind
	FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'delay_wheel'
	-- who calls that is the planner alone
	WHERE p.prorettype <> 'internal'::regtype
	ORDER BY p.oid});
cmp_ok(scalar(@functions), '>', 40, 'the functions of the extension are known');
is(join(', ', grep { !$pool{$_} } map { split /;/, $_->[1] } @functions), '', 'there are values for each type that they take');

my $depth = 0;

sub call_of
{
	my ($name, $types, $variadic, $names, $defaults) = @{ $_[0] };
	my @types = split /;/, $types;
	my @names = split /;/, $names;
	my @args;

	for my $i (0 .. $#types)
	{
		my $last = $variadic eq 't' && $i == $#types;
		# those with a default are mostly left out
		next if $i >= @types - $defaults && rand() < 0.7;
		if ($types[$i] eq '"any"')
		{
			push @args, map { value_for('"any"') } 0 .. int(rand(3));
			$args[-1] = 'VARIADIC ' . one_of("'{1,2}'::int[]", 'NULL::int[]', "'{}'::text[]", "ARRAY[ROW(1, 'good')::fuzz.pair]", "'{{1},{2}}'::int[]") if rand() < 0.2;
			next;
		}
		my $value = value_for($types[$i]);
		if ($types[$i] eq 'bigint' && $depth == 0 && rand() < 0.2)
		{
			$depth++;
			$value = call_of(one_of(grep { $_->[0] =~ /^delay_(schedule|schedule_at|schedule_task|every|send)$/ } @functions));
			$depth--;
		}
		push @args, $last ? "VARIADIC $value" : $defaults > 0 ? "$names[$i] => $value" : $value;
	}
	return "$name(" . join(', ', @args) . ')';
}

# A trigger with such arguments, and rows that fire it
sub trigger_statement
{
	my @names = ('i', 'f', '48 hours', 'key=', 'at', '$1', 'm', 'p', 'a', 'g', 'c', 'z', 'inf', 'none', 'ctid', 'tableoid');
	my @args = (quoted(one_of('0', '48 hours', 'at', 'inf', 'infinity', '1 s', 'i', 'yesterday')), quoted(one_of(@texts)));

	push @args, quoted(one_of(one_of(@names), one_of(@names), one_of('key=', 'queue=', 'tag=', 'if_exists=', 'other=', '=') . one_of(@names, @words))) for 1 .. int(rand(4));
	return one_of('', 'BEGIN; ') . 'CREATE TRIGGER f ' . one_of('AFTER', 'AFTER', 'AFTER', 'BEFORE') . ' ' . one_of('INSERT', 'INSERT OR UPDATE', 'UPDATE', 'DELETE') . ' ON fuzz.matter FOR EACH '
	  . one_of('ROW', 'ROW', 'ROW', 'STATEMENT') . ' EXECUTE FUNCTION public.' . one_of('delay_schedule_trigger', 'delay_send_trigger') . '(' . join(', ', splice(@args, 0, 1 + int(rand(@args)) + (rand() < 0.8)))
	  . "); INSERT INTO fuzz.matter (i) VALUES (1), (2); UPDATE fuzz.matter SET i = 5, \"key=\" = NULL; ALTER TABLE fuzz.matter RENAME z TO y; UPDATE fuzz.matter SET f = NULL; DELETE FROM fuzz.matter; ROLLBACK; "
	  . 'DROP TRIGGER IF EXISTS f ON fuzz.matter; ALTER TABLE fuzz.matter RENAME y TO z;';
}

# Two texts that are the same but for their digits
sub text_pair
{
	my @pieces = ('1', "'1'", "B'101'", "x'1F'", '"a1"', 'a1', '$1', '$2', '$$ 1 $$', '$a1$ 1 $a1$', "-- 1\n", '/* 1 */', '/* 1 /* 2 */ */', '1.5', '.5', '5.', '1e5', '1e', '1::float(5)', '1::numeric(1,2)', "interval '1' day", "interval '1' second(3)",
		'interval(3) \'1\'', 'LIMIT 1', 'OFFSET 1', 'ORDER BY 1', 'UNION SELECT 1', 'FROM t', 'WHERE a = 1', '+', ',', '-', '(', ')', '(1)', '1_000', '0x1F', '1a', "E'\\\\1'", "U&'d!0061' UESCAPE '!'", "N'1'", 'FETCH FIRST 1 ROWS ONLY',
		"'1' '2'", "'1\n2'", 'FROM generate_series(1, 2)', '; SELECT 1', ';', '[1]', '[1:2]', '::bit(1)', '1..2', 'TABLESAMPLE system(1)', 'OVER (ROWS 1 PRECEDING)', "\x{20ac}1", '1$', '$', "'", 'float', 'FLOAT(1)', 'a.1', '= 1', 'IN (1,2)',
		'1234567890', '123456789', "extract(year from '1'::date)", 'a@1', 'b.c1', '<1', '~1');
	my $a = one_of('SELECT 1', 'SELECT', 'UPDATE t SET a = 1', 'INSERT INTO t VALUES (1)', 'DELETE FROM t WHERE a = 1', 'WITH w AS (SELECT 1) SELECT 1', 'CALL f(1)', 'EXPLAIN SELECT 1', 'SELECT f(1)', '1', 'VACUUM', 'DECLARE c CURSOR FOR SELECT 1', 'VALUES (1)');

	$a .= one_of(' ', ' ', ' ', '') . one_of(@pieces) for 1 .. int(rand(5));
	(my $b = $a) =~ s/(\d+)/rand() < 0.5 ? $1 : join('', map { int(rand(10)) } 1 .. 1 + int(rand(rand() < 0.1 ? 12 : 4)))/ge;
	return ($a, $b);
}

# A group: few of them, so that their limits matter; and what may be none
sub group_key { return one_of("'a'", "'a'", "'b'", "'b'", 'i::text', 'NULL', "''", quoted(one_of(@words)), "repeat('x', " . one_of(63, 64, 200, 255, 256, 1000, 3000, 100000) . ')', "E'\\U0001F600'", "' a'", 'chr(1)') . '::text'; }

# Limits and order of groups, declared or changed while tasks and messages of groups are about;
# what the history keeps of them
sub group_statement
{
	my $queue = one_of("'crowd'", "'crowd'", "'crowd mail'", "'crowd mail'", "'outbox'", "'fuzz'", "'limited'", 'NULL', quoted(one_of(@words)));
	my $number = sub { return one_of(1, 1, 2, 5, 0, 'NULL', one_of(@integers)); };
	my $time = sub { return rand() < 0.5 ? one_of("'1 s'", "'100 ms'", "'1 min'", "'0'", 'NULL') : value_for('interval'); };
	my %limits = (
		group_max_running => $number,
		group_rate => sub { return one_of(10, 100, 1000, $number->()) },
		group_per => $time,
		group_burst => $number,
		group_order => sub { return one_of("'hold'", "'pass'", "'none'", "''", 'NULL', quoted(one_of(@words))) },
		groups => sub { return one_of('true', 'true', 'true', 'false', 'NULL') },
		external => sub { return one_of('true', 'false', 'NULL') },
		max_running => $number,
		rate => $number,
		batch => sub { return one_of('true', 'false', 'NULL') },
		history => sub { return one_of("'sample'", "'sample'", "'all'", "'off'", "''", 'NULL') });
	my $declare = sub { return "SELECT delay_wheel.create_queue($queue" . call_args(join '', map { ", $_ => " . $limits{$_}->() } grep { rand() < ($_ eq 'external' ? 0.1 : 0.4) } sort keys %limits) . ');' };
	my $text = quoted(one_of('SELECT 1', 'SELECT 1', 'SELECT 1 / 0', 'SELECT pg_sleep(0.01)', "SELECT now(), 'x' AS x", 'SELECT 1 WHERE false', "SELECT repeat('x', 10000)",
		"SELECT 'NaN'::float8, 'infinity'::timestamptz, NULL, ''::bytea, ROW(1, 2)", 'SELECT m FROM fuzz.matter m', 'SELECT 1 AS a, 2 AS a', 'SELECT', "UPDATE fuzz.matter SET i = i RETURNING *",
		'SELECT delay_wheel.result', "SELECT '\x01'::text", one_of(@texts)));
	my @put = (
		"delay_schedule_task($text, delay => " . one_of("'0'", "'0'", "'10 ms'", 'NULL') . ", queue => 'crowd', group_key => " . group_key() . ')',
		"delay_send('crowd mail', " . value_for('jsonb') . ", due => " . one_of('now()', "now() - interval '1 day'", "now() + interval '50 ms'", 'NULL', one_of(@times)) . ", group_key => " . group_key() . ')',
		"delay_every('g' || i, " . one_of("'100 ms'", "'1 s'", value_for('interval')) . ", $text, queue => $queue, options => jsonb_build_object('group_key', " . group_key() . '))',
		"delay_cron('g' || i, " . one_of("'* * * * * *'", "'* * * * *'", quoted(one_of(@schedules))) . ", $text, queue => $queue, options => jsonb_build_object('group_key', " . group_key() . '))',
		"delay_schedule_local(" . value_for('timestamp without time zone') . ", 'Europe/Berlin', $text, queue => $queue, group_key => " . group_key() . ')',
		"delay_schedule_local(now()::timestamp, 'UTC', $text, queue => 'crowd', group_key => " . group_key() . ')');
	my @steps = map {
		one_of(
			$declare->(), $declare->(),
			(map { "SELECT count($_) FROM generate_series(1, " . one_of(1, 3, 20) . ') i;' } @put),
			"SELECT delay_wheel.pause_queue($queue);", "SELECT delay_wheel.resume_queue($queue);", "SELECT count(g::text) FROM delay_wheel.groups g;",
			"SELECT delay_cancel_all(queue => $queue);", "SELECT delay_unschedule('g1');",
			"SET delay_wheel.history = " . one_of("'sample'", "'sample'", "'all'", "'none'") . ';',
			'SET delay_wheel.history_sample = ' . one_of(0, 1, 0.5, '1e-300', '1e-320', '-0.0', '-1', 2, "'NaN'", "'infinity'", "''", "'x'") . ';',
			'SET delay_wheel.history_result = ' . one_of(0, 1, 10, 100, 4096, 4097, -1, "'1kB'", "'NaN'", "''") . ';',
			'SAVEPOINT a;', 'ROLLBACK TO a;')
	} 1 .. 1 + int(rand(5));
	return one_of('', '', '', 'BEGIN; ') . join(' ', @steps) . one_of(' COMMIT;', ' ROLLBACK;', " PREPARE TRANSACTION 'fuzz'; COMMIT PREPARED 'fuzz'; ROLLBACK;");
}

# What executors go by: settings of the role, and of the database
sub settings_statement
{
	my ($name, @values) = @{ one_of([ 'history', qw(sample sample sample all errors off) ], [ 'history_sample', qw(0 1 0.5 0.01 1e-300) ], [ 'history_result', qw(0 1 50 1000 4096) ]) };

	return one_of('ALTER ROLE fuzzer', 'ALTER DATABASE postgres') . " SET delay_wheel.$name = '" . one_of(@values) . "';";
}

# A message, and what its receivers may do with it, in any order
sub message_statement
{
	my $mail = one_of("'outbox'", "'crowd mail'");
	my $leased = "(SELECT token FROM every_task WHERE token IS NOT NULL ORDER BY random() LIMIT 1)";
	my $id = "(SELECT id FROM every_task WHERE payload IS NOT NULL ORDER BY random() LIMIT 1)";
	my @steps = map {
		one_of("SELECT delay_send($mail, " . value_for('jsonb') . ", key => " . value_for('text') . ");",
			"SELECT delay_send($mail, '1', group_key => CASE WHEN i % 3 > 0 THEN 'g' || i % 3 END) FROM generate_series(1, 20) i;",
			"SELECT count(*) FROM delay_receive($mail, " . value_for('integer') . ");",
			"SELECT * FROM delay_receive($mail, 3) LIMIT 1;",
			"SELECT id, delay_fail(id, NULL, " . value_for('text') . ", '0') FROM delay_receive($mail, 5);",
			"SELECT count(*) FROM delay_lease($mail, 5, '20 ms');",
			"SELECT * FROM delay_lease($mail, 5, " . value_for('interval') . ");",
			"SELECT delay_done(t.id, t.token), delay_extend(t.id, t.token), delay_release(t.id, t.token), delay_fail(t.id, t.token, 'no') FROM every_task t WHERE token IS NOT NULL LIMIT 4;",
			"SELECT delay_done($id, $leased), delay_extend($id, $leased, " . value_for('interval') . ");",
			"SELECT delay_done_all(array_agg(id), array_agg(token)) FROM every_task WHERE token IS NOT NULL;",
			"SELECT delay_cancel($id, true), delay_reschedule($id, '0');",
			"CALL delay_await($mail, '1 ms');",
			"SAVEPOINT a;", "ROLLBACK TO a;", "SELECT 1 / 0;")
	} 1 .. 1 + int(rand(5));
	return one_of('', '', 'BEGIN; ', 'BEGIN ISOLATION LEVEL REPEATABLE READ; ') . join(' ', @steps) . one_of(' COMMIT;', ' ROLLBACK;', " PREPARE TRANSACTION 'fuzz'; COMMIT PREPARED 'fuzz'; ROLLBACK;");
}

# One line, which leaves nothing open.
sub statement_for
{
	my ($call) = @_;
	return "CALL $call;" if $call =~ /^delay_await\(/;
	my $block = $call;
	$block =~ s/'/''/g;

	return one_of(
		("SELECT $call;") x 6,
		"SELECT * FROM $call;",
		"SELECT $call FROM generate_series(1, 3);",
		"SELECT CASE WHEN random() < 2 THEN $call END, $call;",
		"BEGIN READ ONLY; SELECT $call; ROLLBACK;",
		"BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT $call; COMMIT;",
		"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT $call; SAVEPOINT a; SELECT $call; ROLLBACK TO a; SELECT $call; COMMIT;",
		"DO E'BEGIN PERFORM " . escaped($call) . "; EXCEPTION WHEN OTHERS THEN PERFORM 1; END';",
		"DO E'BEGIN FOR i IN 1..3 LOOP BEGIN PERFORM " . escaped($call) . "; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END';",
		"SET force_parallel_mode = on; SELECT $call; RESET force_parallel_mode;",
		"CREATE MATERIALIZED VIEW fuzz.m AS SELECT ($call)::text AS t; REFRESH MATERIALIZED VIEW fuzz.m; DROP MATERIALIZED VIEW fuzz.m;",
		"PREPARE p AS SELECT $call; EXECUTE p; EXECUTE p; DEALLOCATE p;",
		"BEGIN; DECLARE c CURSOR FOR SELECT $call; FETCH 2 FROM c; COMMIT;",
		"BEGIN; SELECT $call; PREPARE TRANSACTION 'fuzz'; COMMIT PREPARED 'fuzz'; ROLLBACK;",
		"EXPLAIN ANALYZE SELECT $call;",
		"COPY (SELECT $call) TO '/dev/null';",
		"SELECT count(*) FROM fuzz.matter WHERE ($call)::text IS NULL;",
		"SET search_path = ''; SELECT " . ($call =~ s/\bdelay_(?!wheel)/public.delay_/gr) . "; RESET search_path;");
}

sub escaped { my ($s) = @_; $s =~ s/\\/\\\\/g; $s =~ s/'/\\'/g; return $s; }

#
# Rows by plain SQL, as a superuser: whatever types and constraints admit
#
my %columns;
for my $line (split /\n/, $node->safe_psql('postgres', q{
	SELECT c.oid::regclass, a.attname, format_type(a.atttypid, NULL), a.attnotnull, a.atthasdef
	FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE c.relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND c.relkind = 'r' AND c.relname NOT LIKE 'readable%' AND a.attnum > 0
	ORDER BY c.relname, a.attnum}))
{
	my ($table, @column) = split /\|/, $line;
	push @{ $columns{$table} }, \@column;
}
is(join(' ', sort keys %columns), join(' ', sort((map { "delay_wheel_data.$_" } qw(batch batch_count cancellation failed_task pause prepared queue recurring_task task unique_key)), qw(delay_wheel_data.audit), map { "delay_wheel_data.history_$_" } 0 .. 2)), 'all tables are known');

# One of those that are likely to be looked at by workers
sub row_for
{
	my $table = one_of(('delay_wheel_data.task') x 6, ('delay_wheel_data.recurring_task') x 3, sort keys %columns);
	my (@names, @values);

	for my $column (@{ $columns{$table} })
	{
		my ($name, $type, $notnull, $default) = @$column;
		my $value;

		next if $default eq 't' && rand() < ($name eq 'origin' ? 0.95 : 0.7);
		next if $notnull eq 'f' && rand() < 0.7;
		if ($name eq 'owner') { $value = one_of("'fuzzer'", "'fuzzer'", one_of(@roles), "'nologin'"); }
		elsif ($name eq 'id') { $value = one_of(@bigs, ("nextval('delay_wheel_data.task_id_seq')") x 8); }
		elsif ($name eq 'sql') { $value = quoted(one_of(@texts)); }
		elsif ($name eq 'name') { $value = quoted(one_of(@words) . int(rand(1000))); }
		elsif ($name eq 'timezone') { $value = one_of("'UTC'", "'UTC'", quoted(one_of(@words))); }
		elsif ($name eq 'schedule' || ($name eq 'every' && rand() < 0.5)) { $value = $name eq 'schedule' ? quoted(one_of(@schedules)) : 'NULL'; }
		elsif ($name eq 'catch_up' || $name eq 'history') { $value = one_of("'skip'", "'all'", "'off'"); }
		elsif ($name eq 'due' || $name eq 'starts' || $name eq 'next_due') { $value = one_of(grep { !/infinity/ } @times); }
		elsif ($type eq 'smallint' && $name eq 'queue') { $value = one_of(0, 0, 0, 1, 2, -1, 32767, -32768); }
		elsif ($name eq 'gid') { $value = "'fuzz'"; }
		elsif ($name eq 'args') { $value = "'{1}'"; push @names, 'arg_types'; push @values, one_of("'{int4}'", "'{$gone}'", "'{-}'", "'{anyelement}'", "'{fuzz.picky}'", "'{NULL}'", "'{0}'"); }
		elsif ($name eq 'arg_types') { next; }
		else
		{
			$value = value_for($type);
			$value = one_of("''", "'x'", "'fuzz'") if $value eq 'NULL' && $type eq 'text';
			next if $value =~ /^NULL/ && $notnull eq 't';
		}
		$value =~ s/fuzzer_oid/(SELECT 'fuzzer'::regrole)/;
		push @names, $name;
		push @values, $value;
	}
	my $row = "INSERT INTO $table (" . join(', ', @names) . ') VALUES (' . join(', ', @values) . ') ON CONFLICT DO NOTHING;';
	# the canary's tasks must not run its own future, which has no end, in one transaction
	$row =~ s/delay_run_due\('+infinity'+\)/delay_run_due()/ if grep { /canary/ } @values;
	return one_of($row, $row, "BEGIN; $row PREPARE TRANSACTION 'fuzz'; COMMIT PREPARED 'fuzz'; ROLLBACK;",
		"BEGIN; SAVEPOINT a; $row ROLLBACK TO a; COMMIT;");
}

# What is left is put back in order, so that the canary can go on; its tasks stay.
my $tidy = q{
	DELETE FROM delay_wheel_data.pause;
	DELETE FROM delay_wheel_data.cancellation;
	DELETE FROM delay_wheel_data.queue WHERE name NOT IN ('fuzz', 'limited', 'outbox');
	DELETE FROM delay_wheel_data.recurring_task WHERE owner <> 'canary'::regrole OR name <> 'canary';
	DELETE FROM delay_wheel_data.task WHERE owner <> 'canary'::regrole;
	DELETE FROM delay_wheel_data.failed_task;
	SELECT setval('delay_wheel_data.task_id_seq', (SELECT max(m) FROM (SELECT last_value FROM delay_wheel_data.task_id_seq UNION ALL SELECT max(id) FROM delay_wheel_data.task WHERE id < 1e15) v(m)));
	SET SESSION AUTHORIZATION fuzzer;
	} . $crowd;
my @views = split /\n/, $node->safe_psql('postgres', q{SELECT oid::regclass FROM pg_class
	WHERE relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind IN ('v', 'r') ORDER BY 1});

#
# One psql that sends them all; each is a line, which its messages name.
#
sub send_all
{
	my ($role, @statements) = @_;
	my $script = join("\n", @statements) . "\n";
	my ($out, $err) = ('', '');

	utf8::encode($script) if utf8::is_utf8($script);
	$node->psql('postgres', $script, stdout => \$out, stderr => \$err, on_error_stop => 0,
		extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=never' ]);
	return wantarray ? ($out, $err) : $err;
}

my %seen;
my $internal = 0;
my $compared = 0;
my @different;
my $position = log_position($node);
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

sub judge
{
	my ($err, @statements) = @_;

	while ($err =~ /^psql:<stdin>:(\d+): (?:ERROR|FATAL|PANIC): +(\w{5}): (.*)$/mg)
	{
		my ($line, $state, $message) = ($1, $2, $3);

		$seen{$state}++;
		next if $state !~ /^XX/ && $message !~ /cache lookup failed|unrecognized node|could not open relation with OID|invalid memory alloc/;
		$internal++;
		diag("$state: $message\n  by: " . substr($statements[ $line - 1 ], 0, 1000));
	}
	# a task may have ended its session, by delay_run()
	if ($err =~ /server closed the connection|terminating connection because of crash|Connection refused/ && $err !~ /FATAL:  57P01/)
	{
		$internal++;
		diag("the server has crashed:\n$err\n" . join("\n", map { substr($_, 0, 500) } @statements));
	}
	return;
}

for my $round (1 .. $rounds)
{
	my @calls = map { rand() < 0.1 ? trigger_statement() : rand() < 0.15 ? message_statement() : rand() < 0.2 ? group_statement() : statement_for(call_of(one_of(@functions))) } 1 .. $calls;
	judge(scalar(send_all('fuzzer', @calls)), @calls);
	my @pairs = map { my ($a, $b) = text_pair(); s/\\/\\\\/g, s/'/\\'/g, s/\n/\\n/g for $a, $b; "SELECT fuzz.differ(E'$a', E'$b');" } 1 .. $calls;
	my ($answers, $problems) = send_all('fuzzer', @pairs);
	judge($problems, @pairs);
	$compared += () = $answers =~ /^accepted$/mg;
	push @different, $answers =~ /^(after .*)$/mg;
	# as a superuser, and nothing of it stays
	my @undone = map { 'BEGIN; SET LOCAL statement_timeout = 300; SELECT ' . call_of(one_of(grep { $_->[5] ne 'p' } @functions)) . '; ROLLBACK;' } 1 .. $calls / 3;
	judge(scalar(send_all('postgres', @undone)), @undone);
	my @settings = map { settings_statement() } 1 .. 3;
	judge(scalar(send_all('postgres', @settings)), @settings);
	my @rows = map { row_for() } 1 .. $calls / 2;
	judge(scalar(send_all('postgres', @rows)), @rows);
	my @reads = map { "SELECT count(v::text) FROM $_ v;" } @views;
	judge(scalar(send_all(one_of('postgres', 'fuzzer'), @reads)), @reads) if $round % 2;
	# tasks that cancel others are still at it
	my $err;
	wait_until(60, sub { ($err = send_all('postgres', $tidy)) !~ /40P01/ });
	is($err =~ s/^psql.*NOTICE.*\n//mgr, '', "round $round: put in order") or last;
	last if $internal > 10;
}
is($internal, 0, 'no crash, and no error is an internal one');
is(join("\n", @different), '', 'a text that is like the one before but for its numbers is judged as the parser does');
cmp_ok($compared, '>', 10 * $rounds, "there were such texts: $compared");
note('errors: ' . join(', ', map { "$_ $seen{$_}" } sort keys %seen));
cmp_ok(scalar(keys %seen), '>=', 15, 'many kinds of errors were met');

#
# Workers
#
my $log = log_since($node, $position);
my @crashes = $log =~ /^.*(?:PANIC:|was terminated by signal|exited with exit code [2-9]|terminating any other active).*$/mg;
is(join("\n", @crashes), '', 'no process has crashed');
my @internal = $log =~ /^.* XX\w{3} .*$/mg;
is(join("\n", @internal[ 0 .. ($#internal > 10 ? 10 : $#internal) ]), '', 'no internal error in the log');
my @workers = $log =~ /^.*delay_wheel (?:launcher|timer|sweeper) .*(?:ERROR|FATAL): .*$/mg;
is(join("\n", @workers[ 0 .. ($#workers > 10 ? 10 : $#workers) ]), '', 'launcher, timer and sweeper have had no error');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $postmaster, 'the server is the same');

#
# What others have
#
for my $view (@views)
{
	my ($code, undef, $err) = $node->psql('postgres', "SELECT count(v::text) FROM $view v");
	is($code, 0, "$view can be read") or diag($err);
}
my $sung = $node->safe_psql('postgres', 'SELECT count(*) FROM sung');
cmp_ok($sung, '>=', 3, 'the canary has sung all the while');
wait_for($node, "SELECT count(*) >= $sung + 10 FROM sung", 'and still does');
$node->safe_psql('postgres', "SET SESSION AUTHORIZATION canary; SELECT delay_schedule('0', 'INSERT INTO sung VALUES (''2001-01-01'')')");
wait_for($node, "SELECT count(*) FROM sung WHERE at = '2001-01-01'", 'a new task of it is run', 60, expected => 1);
$node->restart;
$sung = $node->safe_psql('postgres', 'SELECT count(*) FROM sung');
wait_for($node, "SELECT count(*) >= $sung + 3 FROM sung", 'after a restart, too');

$node->stop;
done_testing();
