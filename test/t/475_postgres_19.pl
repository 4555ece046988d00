# What is new in PostgreSQL 19: commands that a task may be or not, REPACK (CONCURRENTLY)
# of tables that tasks write, and of our own.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('nineteen', conf => q{
wal_level = replica
autovacuum = off
delay_wheel.executor_idle_timeout = 1h
});

if ($node->pg_version->major < 19)
{
	$node->stop;
	plan skip_all => 'for PostgreSQL 19 and later';
}

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE thing (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, filler text);
	CREATE INDEX thing_n ON thing (n);
	INSERT INTO thing SELECT i, 0, repeat('x', 500) FROM generate_series(1, 2000) i;
	CREATE PUBLICATION things FOR TABLE thing;
	ALTER SYSTEM SET delay_wheel.history = 'all';
	SELECT pg_reload_conf();
});

#
# When they are scheduled.
#
my $mode = q{delay_schedule_task() with mode => 'at_most_once' or 'at_least_once'.};
my $in_transaction = 'The command cannot run inside a transaction block. A task without a mode runs inside a transaction block.';

foreach (
	[ 'REPACK', 'REPACK without a table', '25001', "Use REPACK for each table. Or use $mode" ],
	[ 'REPACK USING INDEX', 'REPACK without a table', '25001', "Use REPACK for each table. Or use $mode" ],
	[ 'REPACK (CONCURRENTLY) thing', 'REPACK (CONCURRENTLY)', '25001', "Use REPACK without CONCURRENTLY. Or use $mode" ],
	[ 'REPACK (CONCURRENTLY 1) thing USING INDEX thing_n', 'REPACK (CONCURRENTLY)', '25001', "Use REPACK without CONCURRENTLY. Or use $mode" ],
	[ 'REPACK (ANALYZE) thing', 'REPACK (ANALYZE)', '25001', "Use REPACK, and ANALYZE after it. Or use $mode" ],
	[ 'REPACK (VERBOSE, ANALYSE on) thing (n)', 'REPACK (ANALYZE)', '25001', "Use REPACK, and ANALYZE after it. Or use $mode" ],
	[ q{WAIT FOR LSN '0/1'}, 'WAIT FOR', '0A000', "Use $mode" ],
	[ q{SELECT 1; WAIT FOR LSN '0/1' WITH (TIMEOUT '1s', NO_THROW)}, 'WAIT FOR', '0A000', "Use $mode" ],
	[ 'COPY thing TO STDOUT (FORMAT json)', 'COPY TO STDOUT', '0A000', 'Use COPY to a file or program.' ])
{
	my ($sql, $command, $state, $hint) = @$_;
	my ($out, $err);

	$node->psql('postgres', "\\set VERBOSITY verbose\nSELECT delay_schedule('0', \$t\$$sql\$t\$)", stdout => \$out, stderr => \$err);
	like($err, qr/ERROR:  $state: cannot execute \Q$command\E in a delayed task\n.*\nHINT:  \Q$hint\E\n/s, "$sql: refused");
}

# None of them has to do with anything that is there: what the catalog decides is decided when they run.
foreach my $sql (
	'REPACK t', 'REPACK (VERBOSE) t USING INDEX i', 'REPACK t USING INDEX', 'REPACK (CONCURRENTLY off, ANALYZE 0) t', 'CLUSTER t',
	'CHECKPOINT', 'CHECKPOINT (MODE SPREAD, FLUSH_UNLOGGED)',
	'ALTER SUBSCRIPTION s REFRESH SEQUENCES', 'CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE t), ALL SEQUENCES',
	'ALTER PUBLICATION p SET ALL SEQUENCES', q{COPY t TO '/x' (FORMAT json, FORCE_ARRAY)}, q{COPY t FROM '/x' (ON_ERROR SET_NULL)},
	'INSERT INTO t VALUES (1) ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING n',
	'SELECT lag(n) IGNORE NULLS OVER (ORDER BY n) FROM t',
	'ALTER TABLE t ALTER CONSTRAINT c NOT ENFORCED', 'GRANT SELECT ON t TO PUBLIC GRANTED BY r')
{
	is(query("BEGIN; SELECT count(delay_schedule('1 hour', \$t\$$sql\$t\$)); ROLLBACK"), 1, "$sql: let through");
}

#
# When they run.
#
sub ends
{
	my ($id, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT outcome || coalesce(': ' || message, '') FROM delay_wheel.history WHERE task = $id", $what, 120,
		expected => $expected);
}

my $before = query(q{SELECT pg_relation_filenode('thing')});
ends(query(q{SELECT delay_schedule('0', 'REPACK thing USING INDEX thing_n')}), 'done', 'REPACK in a transaction');
isnt(query(q{SELECT pg_relation_filenode('thing')}), $before, 'REPACK has rewritten the table');
ends(query(q{SELECT delay_schedule('0', 'CHECKPOINT (MODE FAST)')}), 'done', 'CHECKPOINT with options');
ends(query(q{SELECT delay_schedule('0', 'INSERT INTO thing VALUES (1) ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING n')}),
	'done', 'ON CONFLICT DO SELECT');
my $lsn = query('SELECT pg_current_wal_insert_lsn()');
foreach my $mode (qw(at_most_once at_least_once))
{
	foreach my $sql ('REPACK', 'REPACK USING INDEX', 'REPACK (CONCURRENTLY) thing', 'REPACK (ANALYZE) thing', 'CLUSTER thing USING thing_n',
		"WAIT FOR LSN '$lsn' WITH (MODE 'primary_flush', TIMEOUT '1min')", 'CHECKPOINT (MODE FAST, FLUSH_UNLOGGED)')
	{
		ends(query("SELECT delay_schedule_task(\$t\$$sql\$t\$, options => jsonb_build_object('mode', '$mode'))"), 'done', "$mode: $sql");
	}
	ends(query("SELECT delay_schedule_task(\$t\$WAIT FOR LSN '$lsn'\$t\$, options => jsonb_build_object('mode', '$mode'))"),
		'failed: recovery is not in progress', "$mode: what a primary cannot wait for");
}
query('SELECT delay_discard(id) FROM delay_wheel.failed');

#
# A table is rewritten while tasks write to it, alone and in batches, some of which fail.
#
foreach my $batches (1, 100)
{
	my $tasks = long_tests() ? 20000 : 2000;

	$node->append_conf('postgresql.conf', "delay_wheel.batch_tasks = $batches");
	$node->reload;
	query('UPDATE thing SET n = 0');
	query(qq{
		SELECT count(delay_schedule(i * interval '1 ms', CASE i % 10 WHEN 0 THEN 'UPDATE thing SET n = n + 1 / 0 WHERE id = \$1'
			WHEN 1 THEN 'WITH d AS (DELETE FROM thing WHERE id = \$1 RETURNING *) INSERT INTO thing SELECT id + 1000000, n + 1, filler FROM d'
			ELSE 'UPDATE thing SET n = n + 1 WHERE id = \$1' END, i % 2000 + 1))
		FROM generate_series(1, $tasks) i});
	my $rounds = 0;
	do
	{
		query('REPACK (CONCURRENTLY) thing');
		$rounds++;
	} while (query('SELECT count(*) FROM delay_wheel_data.task') > 0);
	note("$rounds times REPACK (CONCURRENTLY)");
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', "batches of $batches: all have ended", 60, expected => 0);
	my $failed = $tasks / 10;
	is(query('SELECT count(*), count(DISTINCT sqlstate), min(sqlstate) FROM delay_wheel.failed'), "$failed|1|22012", 'those fail that must');
	is(query('SELECT sum(n) FROM thing'), query("SELECT $tasks - $failed - (SELECT count(*) FROM generate_series(1, $tasks) i WHERE i > 2000 AND i % 10 = 1)"),
		"batches of $batches: each of the others has taken effect once");
	query(q{SELECT delay_discard(id) FROM delay_wheel.failed; UPDATE thing SET id = id - 1000000 WHERE id > 1000000});
	query(q{SET enable_seqscan = off; SELECT count(*) FROM thing WHERE id > 0});
}

#
# Of our own table: it waits for tasks that run already, and holds nobody up meanwhile.
#
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $long = query(q{SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(1)')});
wait_for($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'a long task runs', 60, expected => 1);
my $repack = $node->background_psql('postgres');
$repack->query_until(qr/begun/, "\\echo begun\nREPACK (CONCURRENTLY) delay_wheel_data.task;\n\\echo done\n");
wait_for($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'REPACK%' AND wait_event_type IS NOT NULL}, 'REPACK (CONCURRENTLY) of our table waits for it');
ends(query(q{SELECT delay_schedule('0', 'SELECT 1')}), 'done', 'other tasks run');
$holder->quit;
ends($long, 'done', 'the long task comes to its end');
$repack->query_until(qr/done/, '');
$repack->quit;
is(query('SELECT count(*) FROM delay_wheel.failed'), 0, 'none has failed');

$node->stop;
done_testing();
