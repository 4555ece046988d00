# Tasks and shards: a trigger on a reference table makes one task, and tasks follow their
# shard to another node, with their keys, each once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use Test::More;

my $n = 5000;
my ($coordinator, @workers) = new_cluster(2);
my @nodes = ($coordinator, @workers);
my $tasks = 'SELECT count(*) FROM delay_wheel_data.task';

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
# Rows that are on several nodes: of a reference table, and of a table of one node.
#
sql(q{SET ROLE shop;
	CREATE TABLE campaign (id int PRIMARY KEY, runs int NOT NULL DEFAULT 0);
	SELECT create_reference_table('campaign');
	CREATE TABLE of_one (id int PRIMARY KEY, runs int NOT NULL DEFAULT 0);
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER later AFTER INSERT ON campaign FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('2 s',
		'UPDATE public.campaign SET runs = runs + 1 WHERE id = $1', 'id');
	CREATE TRIGGER later AFTER INSERT ON of_one FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('2 s',
		'UPDATE public.of_one SET runs = runs + 1 WHERE id = $1', 'id')});
sql(q{SELECT citus_add_local_table_to_metadata('of_one')});
for my $table (qw(campaign of_one))
{
	for my $from (@nodes)
	{
		my $id = $from->port;
		$from->safe_psql('postgres', "SET ROLE shop; INSERT INTO $table VALUES ($id)");
	}
	is(join(' ', on_nodes("SELECT count(*) FROM delay_wheel_data.task WHERE sql ~ '$table'", @nodes)), '3 0 0',
		"rows of $table, written on each node: a task each, at the coordinator");
	wait_for($coordinator, "SELECT string_agg(runs::text, ' ') FROM $table", 'each runs once', 30, expected => '1 1 1');
}
is(join(' ', on_nodes(q{SELECT string_agg(runs::text, ' ') FROM campaign}, @nodes)), '1 1 1 ' x 2 . '1 1 1', 'on all nodes');

# Citus shortens long names, by bytes
for my $name ("\x{c3}\x{a9}" x 30, 'n' x 63, 'Odd "name", 1')
{
	my $quoted = '"' . ($name =~ s/"/""/gr) . '"';

	sql(qq{SET ROLE shop; SET citus.enable_unsafe_triggers = on;
		CREATE TABLE $quoted (id int PRIMARY KEY);
		SELECT create_reference_table(\$\$$quoted\$\$);
		CREATE TRIGGER later AFTER INSERT ON $quoted FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 h', 'SELECT 1', 'tag=named');
		INSERT INTO $quoted VALUES (1)});
	is(sum_of(q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'named' AND more->'shard' IS NOT NULL}, @nodes), 1, "a name of " . length($name) . ' bytes: one task');
	$_->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE tag = 'named'}) for @nodes;
}

#
# Shards that move.
#
fails('SELECT delay_wheel.follow_shards()', qr/ERROR:  table "delay_wheel_data.handover" does not exist, or is no reference table\n.*HINT:  Call delay_wheel.set_up_citus\(\) once/, 'it must be set up');
fails(q{SET ROLE shop; SELECT delay_wheel.set_up_citus()}, qr/permission denied/, 'by superusers');
sql('SELECT delay_wheel.set_up_citus()') for 1 .. 2;

# A dump restores the tables as ordinary ones: a task that is handed over to such a table
# would be lost, for the trigger drops the row.
my $known = q{SELECT c.relname, p.partmethod, count(t.tgname)
	FROM pg_class c LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = 'take_over'
	WHERE c.oid IN ('delay_wheel_data.handover'::regclass, 'delay_wheel_data.two_phase'::regclass) GROUP BY 1, 2 ORDER BY 1};
my $as_set_up = sql($known);
sql(q{SET citus.enable_unsafe_triggers = on; SELECT undistribute_table(t) FROM unnest('{delay_wheel_data.handover,delay_wheel_data.two_phase}'::regclass[]) t});
is(sql('SELECT count(*) FROM pg_dist_partition WHERE logicalrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $$delay_wheel$$::regnamespace)'), '0', 'the tables are ordinary ones');
fails('SELECT delay_wheel.follow_shards()', qr/ERROR:  table "delay_wheel_data.handover" does not exist, or is no reference table/, 'an ordinary table takes no tasks over');
sql('SELECT delay_wheel.set_up_citus()');
is(sql($known), $as_set_up, 'they are set up again');
fails(q{SET ROLE shop; SELECT delay_wheel.follow_shards()}, qr/permission denied/, 'to let tasks follow is for superusers');
fails(q{SET ROLE shop; INSERT INTO delay_wheel_data.handover (node, task) VALUES (0, '{}')}, qr/permission denied/, 'nobody else hands tasks over');
is(sql('SELECT delay_wheel.follow_shards()'), '0', 'nothing is to be moved');

sql(q{SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0, note text);
	SELECT create_distributed_table('t_order', 'oid', shard_count => 8, colocate_with => 'none');
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER later AFTER INSERT OR UPDATE OF note ON t_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('1 hour',
		'UPDATE public.t_order SET runs = runs + 1 WHERE oid = $1', 'oid', 'key=oid', 'queue=orders', 'tag=note')});
fails(q{SET ROLE shop; INSERT INTO t_order VALUES (1)}, qr/queue "orders" does not exist/, 'queues are declared on each node');
sql(q{SELECT run_command_on_all_nodes($$SELECT delay_wheel.create_queue('orders', max_attempts => 3, users => '{shop}')$$)});
# queues have another number on each node
$workers[1]->safe_psql('postgres', q{SELECT delay_wheel.drop_queue('orders'); SELECT delay_wheel.create_queue('other'); SELECT delay_wheel.create_queue('orders', max_attempts => 3, users => '{shop}')});
sql("SET ROLE shop; INSERT INTO t_order SELECT i, 0, 'note ' || i FROM generate_series(1, $n) i");
is(sum_of($tasks, @nodes), $n, 'a task for each row');
my ($key) = split /\n/, $workers[0]->safe_psql('postgres', q{SELECT key FROM delay_wheel.tasks ORDER BY id LIMIT 1});
my $whole = qq{SELECT owner::text, queue, priority, key, tag, sql, args::text, due FROM delay_wheel.tasks WHERE key <> '$key'};
my $before = join("\n", sort map { split /\n/ } on_nodes($whole, @workers));

# all shards of the first worker, away from it
sub shards_of { return split /\n/, sql("SELECT shardid FROM citus_shards WHERE table_name = 't_order'::regclass AND nodeport = " . $_[0]->port); }

sub drain
{
	my ($from, $to, $mode) = @_;

	for my $shard (shards_of($from))
	{
		my ($status, undef, $err) = move_shard($coordinator, $shard, $from, $to, $mode);
		is($status, 0, "a shard moves by $mode") or diag($err);
	}
	return;
}
drain($workers[0], $workers[1], 'block_writes');
is(sum_of($tasks, @nodes), $n, 'a move schedules nothing');
cmp_ok($workers[0]->safe_psql('postgres', $tasks), '>', 1000, 'the tasks stay behind');
# in between, a row that is written again has a second task
sql("SET ROLE shop; UPDATE t_order SET note = 'newer' WHERE oid = $key");
is(sum_of("SELECT count(*) FROM delay_wheel_data.task WHERE key = '$key'", @nodes), 2, 'in between the same key makes a second task');

my $moved = sql('SELECT delay_wheel.follow_shards()');
cmp_ok($moved, '>', 1000, "$moved tasks follow their shards");
is($workers[0]->safe_psql('postgres', $tasks), '0', 'none stays behind');
is(sum_of($tasks, @nodes), $n, 'each is there once');
is(sql(q{SELECT count(*) FROM delay_wheel_data.handover}), '0', 'nothing is stored on the way');
is($workers[1]->safe_psql('postgres', "SELECT string_agg(tag, ' ') FROM delay_wheel.tasks WHERE key = '$key'"), 'newer', 'of a key, the task on the new node is kept');
is(join("\n", sort map { split /\n/ } on_nodes($whole, @workers)), $before, 'they are what they were');
is(sql('SELECT delay_wheel.follow_shards()'), '0', 'once');
is($workers[1]->safe_psql('postgres', q{SET ROLE shop; SELECT delay_cancel(key => '7', queue => 'orders')}), 'cancelled', 'a key works on the new node');
is(sum_of($tasks, @nodes), $n - 1, 'that task is gone');

# tasks that fall due while they move, and the move fails: they run nevertheless, at once
sql(q{SET ROLE shop; INSERT INTO t_order SELECT i, 0, 'late' FROM generate_series(100001, 100100) i});
drain($workers[1], $workers[0], 'block_writes');
$workers[1]->safe_psql('postgres', q{SELECT count(delay_reschedule(id, '2 s')) FROM delay_wheel.tasks WHERE tag = 'late'});
my $mover = $workers[1]->background_psql('postgres');
$mover->query_safe('BEGIN');
is($mover->query_safe('SELECT delay_wheel_internal.leave_shards()'), '1000', 'a thousand tasks are on their way');
wait_for($workers[1], q{SELECT count(*) FILTER (WHERE due < now() - interval '0.5 s') FROM delay_wheel.tasks WHERE tag = 'late'}, 'they fall due meanwhile', 30, expected => 100);
$mover->query_safe('ROLLBACK');
$mover->quit;
wait_for($coordinator, 'SELECT count(*) FILTER (WHERE runs = 1) FROM t_order WHERE oid > 100000', 'tasks that were to be moved run', 60, expected => 100);
sql('DELETE FROM t_order WHERE oid > 100000');
drain($workers[0], $workers[1], 'block_writes');

# they run there, once, also while they move: due one after the other, moved to and fro
is(sum_of(q{SELECT count(delay_reschedule(id, interval '1 ms' * (id % 5000))) FROM delay_wheel.tasks}, @workers), $n - 1, 'all are due soon');
for my $mode (qw(block_writes force_logical))
{
	drain($workers[1], $workers[0], $mode);
	note(sql('SELECT delay_wheel.follow_shards()') . ' follow');
	drain($workers[0], $workers[1], $mode);
	note($workers[0]->safe_psql('postgres', 'SELECT delay_wheel.follow_shards()') . ' follow, as a worker says');
}
wait_for_sum($tasks, 0, 'all run', 120, @nodes);
is(sql('SELECT count(*) FROM t_order WHERE runs <> 1'), '1', 'each once, but for the one that was cancelled');
is(sum_of('SELECT count(*) FROM delay_wheel.failed', @nodes), 0, 'none has failed');

# a node that comes later, by logical replication of the reference tables, too
my $new = new_worker('worker3');
add_worker($coordinator, $new);
$new->safe_psql('postgres', q{SELECT delay_wheel.create_queue('orders', users => '{shop}')});
sql(q{SET ROLE shop; INSERT INTO t_order SELECT i, 0, 'new' FROM generate_series(200001, 200100) i});
sql(q{SELECT citus_rebalance_start(shard_transfer_mode => 'auto'); SELECT citus_rebalance_wait()});
cmp_ok(sql('SELECT delay_wheel.follow_shards()'), '>', 10, 'after a rebalance tasks follow to the new node');
is(sum_of($tasks, @nodes, $new), 100, 'each is there once');

#
# Messages follow as tasks do; one under a lease stays until its lease has ended.
#
push @nodes, $new;
$_->safe_psql('postgres', q{SELECT delay_wheel.create_queue('mail', external => true, users => '{shop}', receivers => '{shop}')}) for @nodes;
sql(q{SET ROLE shop;
	CREATE TABLE customer (id bigint PRIMARY KEY);
	SELECT create_distributed_table('customer', 'id', shard_count => 4, colocate_with => 'none');
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER greet AFTER INSERT ON customer FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('0', 'mail', 'id', 'key=id');
	INSERT INTO customer SELECT generate_series(1, 200)});
my $mails = q{SELECT count(*) FROM delay_wheel_data.task WHERE more->'shard' = '%d'};
my ($shard, $port) = shard_of($coordinator, 'customer', 1);
my ($from) = grep { $_->port == $port } @nodes;
my ($to) = grep { $_->port != $port } @workers;
my $sent = $from->safe_psql('postgres', sprintf($mails, $shard));
cmp_ok($sent, '>', 20, 'a message for each row of a shard');
my ($id, $token) = split /\|/, $from->safe_psql('postgres', q{SET ROLE shop; SELECT id, token FROM delay_lease('mail', 1, '1 hour')});
$shard = $from->safe_psql('postgres', "SELECT more->'shard' FROM delay_wheel_data.task WHERE id = $id");
$sent = $from->safe_psql('postgres', sprintf($mails, $shard));
is(move_shard($coordinator, $shard, $from, $to), 0, 'the shard of a leased message moves');
is(sql('SELECT delay_wheel.follow_shards()'), $sent - 1, 'its messages follow');
is($from->safe_psql('postgres', sprintf($mails, $shard)), '1', 'the leased one stays');
is($to->safe_psql('postgres', sprintf($mails, $shard)), $sent - 1, 'the others are there');
is($from->safe_psql('postgres', "SET ROLE shop; SELECT delay_done($id, $token)"), 't', 'it is done where it was leased');
is($to->safe_psql('postgres', q{SET ROLE shop; SELECT count(delay_done(id, token)) FROM delay_lease('mail', 1000) WHERE payload ? 'id'}) >= $sent - 1, 1, 'the others are received where they are now');
is($to->safe_psql('postgres', sprintf($mails, $shard)), '0', 'and gone');

#
# A shard that is split: its tasks stay, and it is said.
#
$shard = sql(q{SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 't_order'::regclass ORDER BY shardid LIMIT 1});
my ($node, $middle) = split /\|/, sql(qq{SELECT p.groupid, (s.shardminvalue::bigint + s.shardmaxvalue::bigint) / 2
	FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid) WHERE shardid = $shard});
my ($node_id) = split /\n/, sql("SELECT nodeid FROM pg_dist_node WHERE groupid = $node");
my $of_shard = sum_of(sprintf($mails, $shard), @nodes);
cmp_ok($of_shard, '>', 0, "$of_shard tasks of a shard");
my $all = pending_everywhere(@nodes);
sql("SELECT citus_split_shard_by_split_points($shard, ARRAY['$middle'], ARRAY[$node_id, $node_id], 'block_writes')");
is(pending_everywhere(@nodes), $all, 'a split schedules nothing');
fails('SELECT delay_wheel.follow_shards()', qr/NOTICE:  $of_shard tasks? stays? where (it is|they are), since (its|their) shards? no longer exists?\n.*DETAIL:  Citus has split/, 'its tasks stay');
sql(q{SET ROLE shop; INSERT INTO t_order SELECT i, 0, 'split' FROM generate_series(300001, 300100) i});
is(pending_everywhere(@nodes), $all + 100, 'rows of the parts have tasks');
is(sum_of(q{SELECT count(delay_reschedule(id, '0')) FROM delay_wheel.tasks WHERE queue = 'orders'}, @nodes) > $of_shard, 1, 'all are due');
wait_for_sum(q{SELECT count(*) FROM delay_wheel.tasks WHERE queue = 'orders'}, 0, 'and run, those that stay, too', 60, @nodes);
is(sql('SELECT count(*) FROM t_order WHERE oid > 200000 AND runs <> 1'), '0', 'each once');

done_testing();
