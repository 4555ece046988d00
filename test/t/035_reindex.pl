# REINDEX CONCURRENTLY of the task table while tasks are scheduled and run:
# there are two of each index for a while, and names change hands.  No row may
# be missing from any of them.

use strict;
use warnings;

use DelayWheel;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('reindex', conf => "delay_wheel.ring_memory = '256kB'\n");
my $clients = 3;

$node->safe_psql('postgres', q{
	CREATE EXTENSION amcheck;
	CREATE TABLE effect (client int, n bigint);
	CREATE TABLE scheduled (client int, n bigint);
	CREATE SEQUENCE number;
});

my $script = PostgreSQL::Test::Utils::tempdir() . '/schedule.sql';
append_to_file($script, q{
\set delay random(0, 8)
BEGIN;
SELECT nextval('number') AS n \gset
INSERT INTO scheduled VALUES (:client_id, :n);
SELECT delay_schedule(:delay * interval '1 second', 'INSERT INTO effect VALUES ($1, $2)', :client_id::int, :n::bigint);
COMMIT;
});

my $pgbench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', $clients, '-T', 10, '-h', $node->host, '-p', $node->port,
		'-f', $script, 'postgres' ],
	'>', \my $out, '2>', \my $err);
my $rounds = 0;
while ($pgbench->pumpable && $rounds < 8)
{
	$node->safe_psql('postgres', 'REINDEX TABLE CONCURRENTLY delay_wheel_data.task');
	$rounds++;
}
ok($pgbench->finish, 'scheduling goes on') or diag($err);
note("$rounds rounds of REINDEX CONCURRENTLY");

foreach my $index (qw(task_pkey task_lane_due_idx))
{
	my ($code, undef, $problem) = $node->psql('postgres',
		"SELECT bt_index_parent_check('delay_wheel_data.$index', true)");
	is($code, 0, "$index has all rows") or diag($problem);
}

# whatever is only in the table is found now
$node->safe_psql('postgres',
	"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'");
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'all tasks have run', 120);
is($node->safe_psql('postgres',
		'SELECT count(*) FROM (SELECT * FROM scheduled EXCEPT ALL SELECT * FROM effect) missing'),
	0, 'each task has run');
is($node->safe_psql('postgres',
		'SELECT count(*) FROM (SELECT * FROM effect EXCEPT ALL SELECT * FROM scheduled) doubled'),
	0, 'and none twice');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM scheduled'), '>', 100, 'there were tasks');

$node->stop;
done_testing();
