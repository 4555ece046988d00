# Tasks at the rows: a trigger on a distributed table makes each task on the worker
# that has the row, in the transaction that writes the row.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use Test::More;

my ($coordinator, @workers) = new_cluster(2);

$coordinator->safe_psql('postgres', q{
	SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, stars int, status int NOT NULL DEFAULT 0, runs int NOT NULL DEFAULT 0);
	SELECT create_distributed_table('t_order', 'oid');
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER rate_later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 s',
		'update public.t_order set stars = 5, status = 1, runs = runs + 1 where oid = $1 and status = 0', 'oid', 'key=oid');
});
is(join(' ', on_nodes('SELECT count(*) FROM pg_extension WHERE extname = \'delay_wheel\'', $coordinator, @workers)),
	'1 1 1', 'Citus passes the extension on to its workers');
$coordinator->safe_psql('postgres', q{SET ROLE shop; INSERT INTO t_order SELECT generate_series(1, 2000)});
is($coordinator->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task'), '0', 'no task is at the coordinator');
$coordinator->safe_psql('postgres', q{SET ROLE shop; BEGIN; INSERT INTO t_order SELECT generate_series(10001, 10100); ROLLBACK});
wait_for($coordinator, 'SELECT count(*) FILTER (WHERE stars = 5 AND runs = 1) FROM t_order', 'each row is rated once', 60, expected => 2000);
wait_for_sum('SELECT count(*) FROM delay_wheel_data.task', 0, 'no task is left', 30, $coordinator, @workers);
my @done = on_nodes('SELECT done FROM delay_wheel.status', @workers);
is($done[0] + $done[1], 2000, 'ROLLBACK took its tasks along');
cmp_ok($_, '>', 500, 'a worker ran those of its rows') for @done;

done_testing();
