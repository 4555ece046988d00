# Many arguments: no more than PostgreSQL has parameters, and neither the check of
# a text nor its analysis takes longer than its length says, or cannot be stopped.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('arguments', conf => "delay_wheel.max_executors = 1\nlog_statement = none\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }

#
# How many
#
my ($code, $out, $err) = $node->psql('postgres', q{\set VERBOSITY verbose
	SELECT delay_schedule('1 day', 'SELECT $1', VARIADIC array_agg(i)) FROM generate_series(1, 65536) i});
like($err, qr/54000: a task cannot have more than 65535 arguments\nHINT:/, 'more than 65535 arguments are refused');
($code, $out, $err) = $node->psql('postgres', q{\set VERBOSITY verbose
	SELECT delay_schedule_task('SELECT $1', delay => '1 day', args => array_agg(i::text)) FROM generate_series(1, 65536) i});
like($err, qr/54000: a task cannot have more than 65535 arguments\nHINT:/, 'by delay_schedule_task() as well');
is(sql(q{SELECT delay_cancel(delay_schedule('1 day', 'SELECT $' || string_agg(i::text, ', $'), VARIADIC array_agg(i))) FROM generate_series(1, 65535) i}),
	'cancelled', 'as many are possible');

#
# How long.  An older version may have left more of them; typed ones are what
# untyped ones are compared with.
#
sql(q{CREATE TABLE ran (n int);
	CREATE PROCEDURE run_with(n int, type text, patience interval, INOUT seconds float8) LANGUAGE plpgsql AS $$
	DECLARE
		new_id bigint := delay_schedule_task('SELECT 1', delay => '1 day', max_attempts => 1, options => jsonb_build_object('timeout', patience));
		began timestamptz;
	BEGIN
		UPDATE delay_wheel_data.task SET
			(sql, args, arg_types) = (SELECT 'INSERT INTO ran SELECT count(*) FROM (VALUES ' || string_agg('($' || i || '::int)', ',') || ') v(x)',
				array_agg(i::text), array_agg(type::regtype) FROM generate_series(1, n) i)
			WHERE id = new_id;
		COMMIT;
		PERFORM delay_reschedule(new_id, '0');
		began := clock_timestamp();
		COMMIT;
		WHILE EXISTS (SELECT FROM delay_wheel_data.task WHERE id = new_id) LOOP
			PERFORM pg_sleep(0.01);
			COMMIT;
		END LOOP;
		seconds := extract(epoch FROM clock_timestamp() - began);
	END $$});

sub seconds_of { return sql("CALL run_with($_[0], '$_[1]', " . ($_[2] ? "'$_[2]'" : 'NULL') . ', 0)'); }

my $many = long_tests() ? 300_000 : 100_000;
my $typed = seconds_of($many, 'int4');
my $untyped = seconds_of($many, '-');
is(sql('SELECT string_agg(n::text, $$ $$) FROM ran'), "$many $many", 'many arguments reach the task');
cmp_ok($untyped, '<', 5 * $typed, "$many untyped arguments take $untyped s, typed ones $typed s");
my $stopped = seconds_of($many, '-', '20 ms');
is(sql('SELECT sqlstate FROM delay_wheel.failed'), '57014', 'a timeout strikes in their analysis');
cmp_ok($stopped, '<', 4 * $typed, "after $stopped s");

#
# Many statements: the check finds the one that each parameter belongs to.
#
sql(q{CREATE FUNCTION seconds_to_schedule(statement text, n int) RETURNS float8 LANGUAGE plpgsql AS $$
	DECLARE
		began timestamptz := clock_timestamp();
	BEGIN
		PERFORM delay_cancel(delay_schedule('1 day', repeat(statement, n) || ' SELECT $1', 1));
		RETURN extract(epoch FROM clock_timestamp() - began);
	END $$});
my $without = sql(q{SELECT seconds_to_schedule('SELECT 12;', 40000)});
my $with = sql(q{SELECT seconds_to_schedule('SELECT $1;', 40000)});
cmp_ok($with, '<', 10 * $without, "40,000 statements with a parameter are checked in $with s, without one in $without s");

$node->stop;
done_testing();
