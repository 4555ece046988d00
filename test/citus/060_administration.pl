# What administrators do to a cluster: the order of the libraries, tables that are not to be
# distributed, tenants by schema, statements for all nodes, and the view of all nodes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($coordinator, @workers) = new_cluster(2);
my @nodes = ($coordinator, @workers);

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sub fails
{
	my ($sql, $message, $what) = @_;
	my (undef, undef, $err) = $coordinator->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	like($err, $message, $what);
	return;
}

#
# Tables of delay_wheel stay local, also where the setting lets Citus take any table.
#
sql('SELECT delay_wheel.set_up_citus()');
my $cannot = qr/table "\w+" of delay_wheel cannot be distributed\n.*HINT:  Each node has its own tasks and its own tables of delay_wheel/;
for my $sql (
	q{create_distributed_table('delay_wheel_data.pause', 'owner')}, q{create_distributed_table_concurrently('delay_wheel_data.pause', 'owner')},
	q{create_distributed_table('delay_wheel_data.pause', NULL)}, q{create_reference_table('delay_wheel_data.cancellation')},
	q{citus_add_local_table_to_metadata('delay_wheel_data.prepared')})
{
	fails("SET citus.enable_unsafe_triggers = on; SELECT $sql", $cannot, "refused: $sql");
}
# those that inherit Citus refuses itself
for my $sql (
	q{create_distributed_table('delay_wheel_data.task', 'id')}, q{create_distributed_table_concurrently('delay_wheel_data.task', 'id')},
	q{create_distributed_table('delay_wheel_data.history_0', 'task')}, q{create_reference_table('delay_wheel_data.queue')},
	q{create_reference_table('delay_wheel_data.readable_task')},
	q{citus_add_local_table_to_metadata('delay_wheel_data.task', cascade_via_foreign_keys => true)}, q{citus_schema_distribute('delay_wheel')},
	q{citus_schema_distribute('delay_wheel_data')}, q{citus_schema_distribute('delay_wheel_internal')})
{
	fails("SET citus.enable_unsafe_triggers = on; SELECT $sql", qr/ERROR/, "refused: $sql");
}
is(sql(q{SELECT string_agg(table_name::text, ' ' ORDER BY table_name::text) FROM citus_tables}), 'delay_wheel_data.handover delay_wheel_data.two_phase',
	'Citus has no other tables of ours than those made for it');
sql('SELECT count(*) FROM delay_wheel.tasks');

#
# Tenants by schema: like distributed tables, with the same setting for the trigger.
#
sql(q{GRANT CREATE ON DATABASE postgres TO shop; SET ROLE shop; SET citus.enable_schema_based_sharding = on;
	CREATE SCHEMA tenant1;
	CREATE TABLE tenant1.t_order (oid bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0)});
my $trigger = q{CREATE TRIGGER later AFTER INSERT ON tenant1.t_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('2 s',
	'UPDATE tenant1.t_order SET runs = runs + 1 WHERE oid = $1', 'oid', 'key=oid')};
fails("SET ROLE shop; $trigger", qr/triggers are not supported on distributed tables/, 'a tenant\'s table needs the setting for triggers, too');
sql("SET ROLE shop; SET citus.enable_unsafe_triggers = on; $trigger");
sql(q{SET ROLE shop; INSERT INTO tenant1.t_order SELECT generate_series(1, 100)});
my ($from) = grep { $_->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task') == 100 } @workers;
ok($from, 'all tasks of a tenant are on its worker');
my ($to) = grep { $_ != $from } @workers;
sql(sprintf(q{SELECT citus_schema_move('tenant1', '127.0.0.1', %d, 'block_writes')}, $to->port));
is(sql('SELECT delay_wheel.follow_shards()'), '100', 'a tenant that moves takes its tasks along');
wait_for($coordinator, 'SELECT count(*) FILTER (WHERE runs = 1) FROM tenant1.t_order', 'they run', 30, expected => 100);
is($to->safe_psql('postgres', 'SELECT done FROM delay_wheel.status'), '100', 'there');

#
# Statements for all nodes: each in a transaction of its own, which ROLLBACK does not undo.
#
sql(q{SET ROLE shop; CREATE TABLE t_order (oid bigint PRIMARY KEY);
	SELECT create_distributed_table('t_order', 'oid');
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT $1', 'oid', 'tag=spring');
	INSERT INTO t_order SELECT generate_series(1, 100)});
is(sql('SELECT sum(pending) FROM delay_wheel.nodes'), '100', 'pending on all nodes');
sql(q{BEGIN; SELECT run_command_on_all_nodes($$SELECT delay_wheel.create_queue('mail', max_running => 2)$$); ROLLBACK});
is(sum_of(q{SELECT count(*) FROM delay_wheel.queues WHERE name = 'mail'}, @nodes), 3, 'a queue on all nodes, in spite of ROLLBACK');
sql(q{SELECT run_command_on_all_nodes($$SELECT delay_wheel.pause_queue('mail')$$)});
is(sum_of(q{SELECT count(*) FROM delay_wheel.queues WHERE name = 'mail' AND paused}, @nodes), 3, 'paused on all nodes');
is(sql(q{SELECT bool_and(success) FROM run_command_on_all_nodes($$SELECT delay_cancel_all(tag => 'spring')$$)}), 't', 'a campaign is stopped on all nodes');
wait_for($coordinator, 'SELECT sum(pending) FROM delay_wheel.nodes', 'none is pending', 30, expected => 0);

#
# The view: who asks, and a node that does not answer.
#
is(sql(q{SET ROLE shop; SELECT count(*) FROM delay_wheel.nodes WHERE state = 'running' AND error IS NULL}), '3', 'other roles may look');
my $port = $workers[1]->port;
$workers[1]->stop('fast');
is(sql(q{SELECT string_agg(node, ' ') FROM delay_wheel.nodes WHERE state IS NULL AND error <> ''}), "127.0.0.1:$port", 'a node that is down has its error');
fails('SELECT delay_wheel.follow_shards()', qr/ERROR:  node 127.0.0.1:$port could not hand its tasks over/, 'nor can it hand over');

#
# Background workers: early, with the number to set.
#
$workers[1]->append_conf('postgresql.conf', 'max_worker_processes = 8');
my $position = log_position($workers[1]);
$workers[1]->start;
wait_until(30, sub { return log_since($workers[1], $position) =~ /may need/ });
like(log_since($workers[1], $position), qr/WARNING:  delay_wheel may need 11 background workers, but "max_worker_processes" is 8\n.*up to 4 executors and up to 3 workers of Citus; workers that other libraries have registered: 1 \+ 1 \* \(2 \+ 4 \+ 3\) \+ 1 = 11\.\n.*HINT:  Set "max_worker_processes" to 11,/,
	'too few background workers: a warning at the start');
$workers[1]->stop('fast');

#
# The libraries: Citus must be the first one.
#
$workers[1]->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel, citus'");
$position = log_position($workers[1]);
is($workers[1]->start(fail_ok => 1), 0, 'with delay_wheel first the server does not start');
like(log_since($workers[1], $position), qr/FATAL:  Citus has to be loaded first/, 'Citus says why');

done_testing();
