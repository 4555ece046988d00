# What the tests on a cluster of Citus share.

package Citus;

use strict;
use warnings;

use Exporter 'import';
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(new_cluster new_worker add_worker on_nodes sum_of shard_of workers_of move_shard pending_everywhere
  wait_for_sum await_server kill_server);

# A server with Citus and delay_wheel, and no extension yet.  They find each other by
# TCP, as the nodes of a cluster do.
sub new_worker
{
	my ($name, %options) = @_;

	return new_node($name, extension => 0, start => $options{start} // 1, conf => qq{
		listen_addresses = '127.0.0.1'
		log_statement = 'none'
		shared_preload_libraries = '@{[ $options{libraries} // 'citus, delay_wheel' ]}'
		max_worker_processes = 24
		max_prepared_transactions = 200
		max_connections = 300
		max_wal_senders = 20
		max_replication_slots = 20
		wal_level = logical
		restart_after_crash = on
		autovacuum_naptime = 1
		citus.node_conninfo = 'sslmode=disable'
		citus.recover_2pc_interval = '2s'
		citus.max_background_task_executors_per_node = 1
		citus.defer_shard_delete_interval = -1
	} . ($options{conf} // ''));
}

# Adds a server to the cluster, which passes the extensions on to it.
sub add_worker
{
	my ($coordinator, $worker) = @_;

	$worker->safe_psql('postgres', 'CREATE EXTENSION citus');
	$coordinator->safe_psql('postgres', sprintf(q{SELECT citus_add_node('127.0.0.1', %d)}, $worker->port));
	return;
}

# A coordinator and so many workers, with both extensions, and a role shop that may
# schedule, as the manual sets them up.
sub new_cluster
{
	my ($n, %options) = @_;
	my $coordinator = new_worker('coordinator', %options);
	my @workers = map { new_worker("worker$_", %options) } 1 .. $n;

	$coordinator->safe_psql('postgres', 'CREATE EXTENSION citus');
	$coordinator->safe_psql('postgres', sprintf(q{SELECT citus_set_coordinator_host('127.0.0.1', %d)}, $coordinator->port));
	add_worker($coordinator, $_) for @workers;
	$coordinator->safe_psql('postgres', q{
		CREATE EXTENSION delay_wheel;
		CREATE ROLE shop LOGIN;
		GRANT CREATE ON SCHEMA public TO shop;
	});
	$coordinator->safe_psql('postgres', q{SELECT delay_wheel.allow('shop')});
	return ($coordinator, @workers);
}

# The answers of several nodes to a query, one a node.
sub on_nodes
{
	my ($sql, @nodes) = @_;
	return map { $_->safe_psql('postgres', $sql) } @nodes;
}

# The sum of the numbers that several nodes answer; undef while one of them does not.
sub sum_of
{
	my ($sql, @nodes) = @_;
	my $sum = 0;

	for my $node (@nodes)
	{
		my ($status, $out) = try_psql($node, 'postgres', $sql);
		return undef if $status != 0 || $out !~ /^-?\d+$/;
		$sum += $out;
	}
	return $sum;
}

sub pending_everywhere { return sum_of('SELECT count(*) FROM delay_wheel_data.task', @_); }

# A test: the sum over the nodes comes to the expected number.
sub wait_for_sum
{
	my ($sql, $expected, $what, $seconds, @nodes) = @_;
	my $sum;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $done = wait_until($seconds, sub { $sum = sum_of($sql, @nodes); return defined $sum && $sum == $expected; });

	return ok($done, $what) || diag("waited for $expected from: $sql\nlast sum: " . ($sum // 'none'));
}

# The shard of a distributed table's row with this distribution value, and the port of its node.
sub shard_of
{
	my ($coordinator, $table, $value) = @_;
	return split /\|/, $coordinator->safe_psql('postgres', qq{
		SELECT shardid, nodeport FROM citus_shards WHERE shardid = get_shard_id_for_distribution_column('$table', $value)});
}

# The ports of the workers, in the order of the cluster.
sub workers_of { return map { $_->port } @_; }

# Moves a shard, and all that are co-located with it, from one node to another.
sub move_shard
{
	my ($coordinator, $shard, $from, $to, $mode) = @_;
	return $coordinator->psql('postgres', sprintf(
		q{SELECT citus_move_shard_placement(%d, '127.0.0.1', %d, '127.0.0.1', %d, '%s')},
		$shard, $from->port, $to->port, $mode // 'block_writes'));
}

# Kills the postmaster and all its processes, as a machine that dies does.
sub kill_server
{
	my ($node) = @_;
	my @pids = split /\s+/, slurp_file($node->data_dir . '/postmaster.pid');
	my $postmaster = $pids[0];
	my @children = split /\s+/, `pgrep -P $postmaster`;

	kill 'KILL', $postmaster, @children;
	wait_until(30, sub { return !grep { kill 0, $_ } $postmaster, @children; }) or die 'a killed process stays';
	$node->{_pid} = undef;
	return;
}

# Starts a server that was killed.
sub await_server
{
	my ($node) = @_;

	$node->start;
	return;
}

1;
