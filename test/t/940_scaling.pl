# More than one server, each of which runs the tasks of the rows that it holds
# (doc/scaling.md): a table in front whose partitions are on two servers, in four
# databases, by postgres_fdw; a server that dies; and a database that moves to the
# other server, with its pending tasks, while rows come.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my %node = map { $_ => new_node($_, conf => "log_statement = none\n", extension => 0, init => [ allows_streaming => 'logical' ]) } qw(a b);
# where each database is
my %place = (shard0 => 'a', shard1 => 'a', shard2 => 'b', shard3 => 'b');
my @shards = sort keys %place;

sub on
{
	my ($shard, $sql) = @_;

	return $node{ $place{$shard} }->safe_psql($shard, $sql);
}

sub front
{
	my ($sql) = @_;

	return $node{a}->safe_psql('front', "SET ROLE shop; $sql");
}

# The trigger fires where the row is.  postgres_fdw's sessions have a search_path
# of pg_catalog only, which the task would be run with, too: so the schema is named.
my $schema = q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.allow('shop');
	GRANT CREATE ON SCHEMA public TO shop;
	SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, stars int, status int NOT NULL DEFAULT 0, runs int NOT NULL DEFAULT 0);
	CREATE TRIGGER rate_later AFTER INSERT ON t_order FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('48 hours',
		'update public.t_order set stars = 5, status = 1, runs = runs + 1 where oid = $1 and status = 0', 'oid');
};

sub create_shard
{
	my ($node, $shard) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $shard");
	$node->safe_psql($shard, $schema);
	return;
}

$_->safe_psql('postgres', 'CREATE ROLE shop LOGIN') for values %node;
create_shard($node{ $place{$_} }, $_) for @shards;
$node{a}->safe_psql('postgres', 'CREATE DATABASE front');
$node{a}->safe_psql('front', q{
	CREATE EXTENSION postgres_fdw;
	GRANT CREATE ON DATABASE front TO shop;
	GRANT CREATE ON SCHEMA public TO shop;
	SET ROLE shop;
	CREATE TABLE t_order (oid bigint NOT NULL, stars int, status int NOT NULL DEFAULT 0, runs int NOT NULL DEFAULT 0) PARTITION BY HASH (oid);
});
my $import = q{IMPORT FOREIGN SCHEMA delay_wheel LIMIT TO (tasks, failed, status) FROM SERVER shard0 INTO shard0};
for my $i (0 .. $#shards)
{
	my ($shard, $node) = ($shards[$i], $node{ $place{ $shards[$i] } });

	$node{a}->safe_psql('front', sprintf(q{
		CREATE SERVER %1$s FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%2$s', port '%3$s', dbname '%1$s', batch_size '100');
		GRANT USAGE ON FOREIGN SERVER %1$s TO shop;
		CREATE USER MAPPING FOR shop SERVER %1$s OPTIONS (user 'shop', password_required 'false');
		SET ROLE shop;
		CREATE FOREIGN TABLE t_order_%1$s PARTITION OF t_order FOR VALUES WITH (MODULUS 4, REMAINDER %4$d)
			SERVER %1$s OPTIONS (schema_name 'public', table_name 't_order');
		CREATE SCHEMA %1$s;
		%5$s;
	}, $shard, $node->host, $node->port, $i, $import =~ s/shard0/$shard/gr));
}

sub sum_of
{
	my ($sql) = @_;
	my $sum = 0;

	$sum += on($_, $sql) for @shards;
	return $sum;
}

#
# Rows come in front, tasks are where they are.
#
my $orders = 1000;
front("INSERT INTO t_order (oid) SELECT generate_series(1, $orders)");
front('BEGIN; INSERT INTO t_order (oid) SELECT generate_series(100001, 100100); ROLLBACK');
is(front('SELECT count(*) FROM t_order'), $orders, 'the orders are there, those rolled back are not');
for my $shard (@shards)
{
	is(on($shard, q{SELECT count(*) = (SELECT count(*) FROM t_order) AND count(*) > 0 AND bool_and(owner = 'shop') FROM delay_wheel.tasks}),
		't', "$shard has the tasks of its own orders");
}
my $tasks = join ' UNION ALL ', map { "SELECT * FROM $_.tasks" } @shards;
is(front("SELECT count(*) FROM ($tasks) t"), $orders, 'all of them are seen in front');
my $states = join ' UNION ALL ', map { "SELECT '$_' AS shard, state FROM $_.status" } @shards;
is(front("SELECT string_agg(state, ' ') FROM ($states) s"), 'running running running running', 'the state of each timer is seen in front');

#
# They fall due while one of the servers dies.
#
my $now = q{SELECT count(*) FROM (SELECT delay_reschedule(id, row_number() OVER () * interval '5 ms') FROM delay_wheel.tasks) t};
my $rated = 'SELECT count(*) FROM t_order WHERE stars = 5';
my $unrated = 'SELECT count(*) FROM t_order WHERE runs = 0';
my $twice = 'SELECT count(*) FROM t_order WHERE runs > 1';
on($_, "SET ROLE shop; $now") for @shards;
wait_for($node{b}, "SELECT count(*) > 0 FROM t_order WHERE stars = 5", 'some are done', 60, db => 'shard2');
$node{b}->stop('immediate');
wait_for($node{a}, $unrated, "$_ goes on without the other server", 60, db => $_, expected => 0) for qw(shard0 shard1);
$node{b}->start;
wait_for($node{b}, $unrated, "$_ goes on after its start", 60, db => $_, expected => 0) for qw(shard2 shard3);
is(front($rated), $orders, 'each order is rated');
is(front($twice), 0, 'none twice');

#
# One database moves, with its tasks, while orders come.
#
sub orders
{
	my ($from, $to) = @_;

	front("INSERT INTO t_order (oid) SELECT generate_series($from, $to)");
	$orders += $to - $from + 1;
	return;
}
orders(2001, 3000);
create_shard($node{b}, 'shard1');
$node{a}->safe_psql('shard1', 'CREATE PUBLICATION move FOR ALL TABLES');
# what the extension's script and the tables' definitions have put there comes with the copy
$node{b}->safe_psql('shard1', sprintf(q{CREATE SUBSCRIPTION move CONNECTION '%s dbname=shard1' PUBLICATION move}, $node{a}->connstr));
orders(3001, 3500);
$node{b}->wait_for_subscription_sync($node{a}, 'move', 'shard1');
is($node{b}->safe_psql('shard1', 'SELECT count(*) = 0 FROM delay_wheel.tasks WHERE armed'), 't', 'the copies of tasks do not run');

# no more orders come, and no more tasks run
$node{a}->safe_psql('shard1', 'ALTER DATABASE shard1 CONNECTION LIMIT 0');
$node{a}->safe_psql('shard1', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'shard1' AND usename = 'shop' AND backend_type = 'client backend'});
my ($code) = $node{a}->psql('front', 'SET ROLE shop; INSERT INTO t_order (oid) SELECT generate_series(4001, 4100)');
isnt($code, 0, 'the database takes no more orders');
$node{a}->safe_psql('shard1', 'SELECT delay_wheel.pause_database()');
wait_for($node{a}, 'SELECT count(*) FROM delay_wheel.running', 'nothing runs', 60, db => 'shard1', expected => 0);
my $pending = $node{a}->safe_psql('shard1', 'SELECT count(*) FROM delay_wheel_data.task');
cmp_ok($pending, '>', 0, 'tasks are pending');
$node{a}->wait_for_catchup('move', 'replay', $node{a}->lsn('insert'));

# the copy takes over
$node{b}->safe_psql('shard1', q{DROP SUBSCRIPTION move});
$node{b}->safe_psql('shard1', sprintf(q{SELECT setval('delay_wheel_data.task_id_seq', %d)}, $node{a}->safe_psql('shard1', 'SELECT last_value FROM delay_wheel_data.task_id_seq')));
is($node{b}->safe_psql('shard1', 'SELECT delay_wheel.arm()'), $pending, 'all that is pending is armed');
$node{b}->safe_psql('shard1', 'SELECT delay_wheel.resume_database()');
$place{shard1} = 'b';
$node{a}->safe_psql('front', sprintf(q{ALTER SERVER shard1 OPTIONS (SET host '%s', SET port '%s')}, $node{b}->host, $node{b}->port));
$node{a}->safe_psql('postgres', 'DROP DATABASE shard1 WITH (FORCE)');

orders(4001, 4100);
is(sum_of('SELECT count(*) FROM t_order'), $orders, 'no order is lost');
is(sum_of('SELECT count(*) FROM delay_wheel.tasks WHERE armed'), 1600, 'no task is lost');
on($_, "SET ROLE shop; $now") for @shards;
wait_for($node{ $place{$_} }, $unrated, "$_ is done", 60, db => $_, expected => 0) for @shards;
is(front($rated), $orders, 'each order is rated');
is(front($twice), 0, 'none twice');
is(sum_of('SELECT count(*) FROM delay_wheel.failed'), 0, 'no task has failed');

$_->stop for values %node;
done_testing();
