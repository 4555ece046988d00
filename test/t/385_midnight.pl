# A midnight: many tasks of one due time, more than fit into memory, streamed
# from the table.  They run in the order of (due, id); all executors that their
# owner may have take part, none stops while there is work; other owners' tasks
# are run in between; tasks share transactions also while owners wait for an
# executor.
#
#   DW_MIDNIGHT_TASKS   tasks of a midnight (40000; 1000000 if DW_LONG)

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our $tasks = $ENV{DW_MIDNIGHT_TASKS} // (long_tests() ? 1_000_000 : 40_000);
my $lead = 4 + int($tasks / 15_000);

# A task that another one overtakes is run by then, in the hands of an executor,
# put back with all of a batch, or among those that lie between executors of one
# lane, which keep 672 tasks apart.
my $executors = 4;
my $out_of_order = $executors * 100 + ($executors - 2) * 672;

# generous: nothing takes that long
my $pause = 10;

my $node = new_node('midnight', batches => 1, conf => q{
synchronous_commit = off
delay_wheel.executor_idle_timeout = 1h
});

$node->safe_psql('postgres', q{
	CREATE TABLE ran (n int, lane int, at timestamptz DEFAULT clock_timestamp(), pid int DEFAULT pg_backend_pid());
	CREATE TABLE others (due timestamptz, at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON ran, others TO PUBLIC;
	SELECT delay_wheel.allow('public');
	SELECT format('CREATE ROLE m%s', i) FROM generate_series(0, 9) i \gexec
	CREATE ROLE other;
});

# So many tasks of so many owners, in their order, and some of another owner in between.
sub midnight
{
	my ($what, $lanes, %options) = @_;
	my $q = sub { return $node->safe_psql('postgres', $_[0]) };
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# somebody is there to run what the other one has
	$q->(q{TRUNCATE ran, others; SET ROLE other; SELECT delay_schedule('0', 'INSERT INTO public.others (due) VALUES (now())')});
	wait_for($node, 'SELECT count(*) FROM others', "$what: the other owner has an executor", 60, expected => 1);
	$q->('TRUNCATE others');
	my $due = $options{overdue} ? $q->('SELECT now()') : $q->("SELECT now() + interval '$lead s'");
	$q->(qq{
		BEGIN;
		INSERT INTO delay_wheel_data.task (due, owner, sql, args, arg_types)
		SELECT '$due', format('m%s', i % $lanes)::regrole, 'INSERT INTO public.ran (n, lane) VALUES (\$1, \$2)',
			ARRAY[i::text, (i % $lanes)::text], '{int4,int4}'
		FROM generate_series(1, $tasks) i;
		INSERT INTO delay_wheel_data.task (due, owner, sql, args, arg_types)
		SELECT d, 'other'::regrole, 'INSERT INTO public.others (due) VALUES (\$1)', ARRAY[d::text], '{timestamptz}'
		FROM (SELECT '$due'::timestamptz + i * interval '10 ms' AS d FROM generate_series(1, 5) i) x;
		COMMIT});
	wait_for($node, 'SELECT count(*) FROM (SELECT FROM delay_wheel_data.task LIMIT 1) x', "$what: all run", 1200, expected => 0);
	is($q->('SELECT count(*), count(DISTINCT n) FROM ran'), "$tasks|$tasks", "$what: each once");
	is($q->("SELECT count(*) FROM ran WHERE at < '$due'"), 0, "$what: none early");
	is($q->('SELECT count(*) FROM delay_wheel.failed'), 0, "$what: none failed");

	my $early = $q->(q{
		SELECT max(place - position) FROM (SELECT
			row_number() OVER (PARTITION BY lane ORDER BY n) AS place,
			row_number() OVER (PARTITION BY lane ORDER BY at) AS position FROM ran) x});
	note("$what: out of order by $early");
	cmp_ok($early, '<=', $out_of_order, "$what: in order");
	my $longest = $q->(q{
		SELECT max(extract(epoch FROM gap)) FROM (SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM ran) x});
	note("$what: longest pause $longest s");
	cmp_ok($longest, '<', $pause, "$what: no pause");
	my $transactions = $q->('SELECT count(DISTINCT xmin::text) FROM ran');
	note("$what: $transactions transactions");
	cmp_ok($transactions, '<', $tasks / 10, "$what: tasks share transactions");
	# a few are over before the other's are due
	ok($q->('SELECT max(at) < (SELECT max(at) FROM ran) FROM others') eq 't',
		"$what: another owner's tasks do not wait for the end") if $tasks > 10_000;
	return;
}

# One lane: all executors that it may have, from the first to the last.
sub one_lane
{
	my ($what, %options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# on a machine with other work one of them may get no core for as long as it all takes: once
	my $taking_part = 0;
	for my $try (1 .. 3)
	{
		midnight($what, 1, %options);
		$taking_part = $node->safe_psql('postgres', "SELECT count(*) FROM (SELECT FROM ran GROUP BY pid HAVING count(*) > $tasks / 10) x");
		last if $taking_part == $executors - 2;
	}
	is($taking_part, $executors - 2, "$what: executors take part");
	my $idle = $node->safe_psql('postgres', q{
		SELECT max(extract(epoch FROM gap)) FROM (SELECT at - lag(at) OVER (PARTITION BY pid ORDER BY at) AS gap FROM ran) x});
	cmp_ok($idle, '<', $pause, "$what: none of them pauses");
	return;
}

one_lane('one lane');

# Fewer than fit into the heap that orders tasks which are due soon.
{
	local $tasks = 10_000;
	one_lane('a small midnight');
}

midnight('ten owners', 10);

$node->append_conf('postgresql.conf', "delay_wheel.ring_memory = 256kB\n");
$node->restart;
one_lane('little memory');
one_lane('little memory, overdue', overdue => 1);
midnight('little memory, ten owners', 10);

$node->stop;
done_testing();
