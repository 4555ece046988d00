# Faults at random, while clients schedule by both ways: nodes and processes are killed,
# stopped and frozen, shards move, tasks follow them.  A row and its task are written in one
# transaction, so in the end each row there is has been written by its task: once, and not
# before it was due.
#
# Environment: DW_FAULTS, their number; DW_SEED, of the random numbers.

use strict;
use warnings;

use FindBin;
use POSIX ();
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $faults = $ENV{DW_FAULTS} || ($ENV{DW_LONG} ? 120 : 30);
my $seed = $ENV{DW_SEED} || int(time());
srand($seed);
note("DW_SEED=$seed");

my ($coordinator, @workers) = new_cluster(2);
my @nodes = ($coordinator, @workers);

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sql(q{SELECT delay_wheel.set_up_citus()});
sql(q{SET ROLE shop;
	CREATE TABLE at_rows (id bigint PRIMARY KEY, due timestamptz NOT NULL, runs int NOT NULL DEFAULT 0, ran timestamptz);
	CREATE TABLE at_coordinator (LIKE at_rows INCLUDING ALL);
	SELECT create_distributed_table(t, 'id', shard_count => 8, colocate_with => 'none') FROM unnest('{at_rows,at_coordinator}'::text[]) t;
	SET citus.enable_unsafe_triggers = on;
	CREATE TRIGGER later AFTER INSERT ON at_rows FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('due',
		'UPDATE public.at_rows SET runs = runs + 1, ran = now() WHERE id = $1', 'id', 'key=id')});

#
# A task of the coordinator may run before its row can be seen: Citus commits here first,
# and then what it has prepared on the workers, which may take until a worker that died is
# there again.  An UPDATE would find no row; an upsert waits for the one that is prepared.
# At the rows, a task and its row are one transaction of the same node.
#
# Clients: each inserts as long as the file is there, whatever becomes of it.
#
my $go = PostgreSQL::Test::Utils::tempdir() . '/go';
append_to_file($go, '');
my @clients;
my $me = $$;
END { unlink $go if defined $go && $$ == $me; }
my %sql_of = (
	at_rows => q{INSERT INTO at_rows (id, due) SELECT %d + i, now() + random() * interval '4 s' FROM generate_series(1, 10) i},
	at_coordinator => q{BEGIN;
		INSERT INTO at_coordinator (id, due) SELECT %d + i, now() + i * interval '300 ms' FROM generate_series(1, 10) i;
		SELECT count(delay_schedule_at(now() + i * interval '300 ms',
			'INSERT INTO public.at_coordinator AS t (id, due, runs, ran) VALUES ($1, ''infinity'', 1, now()) ON CONFLICT (id) DO UPDATE SET runs = t.runs + 1, ran = excluded.ran',
			%1$d::bigint + i)) FROM generate_series(1, 10) i;
		COMMIT});
for my $table (sort keys %sql_of)
{
	my $pid = fork();

	die 'cannot fork' unless defined $pid;
	if ($pid == 0)
	{
		open(STDOUT, '>', '/dev/null');
		open(STDERR, '>', '/dev/null');
		for (my $n = 0; -e $go; $n += 10)
		{
			# rows may be written by any node; tasks of the coordinator are scheduled there
			my $node = $table eq 'at_rows' ? $nodes[ ($n / 10) % @nodes ] : $coordinator;
			eval { $node->psql('postgres', 'SET ROLE shop; ' . sprintf($sql_of{$table}, $n)) };
			sleep(0.05);
		}
		POSIX::_exit(0);
	}
	push @clients, $pid;
}

#
# Faults.  Each leaves all nodes up.
#
sub any { return $_[ rand @_ ]; }

sub kill_process
{
	my ($type) = @_;
	my $node = any(@nodes);
	my (undef, $pid) = try_psql($node, 'postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel $type' LIMIT 1");

	kill 'KILL', $pid if ($pid // '') =~ /^\d+$/;
	wait_until(60, sub { return (try_psql($node, 'postgres', 'SELECT 1'))[0] == 0; });
	return $node->name . ": its $type";
}

sub move
{
	my ($mode) = @_;
	my (undef, $shards) = try_psql($coordinator, 'postgres', q{SELECT shardid, nodeport FROM citus_shards WHERE table_name::text LIKE 'at_%'});
	my ($shard, $port) = split /\|/, any(split /\n/, $shards // '') // return 'nothing';
	my ($from) = grep { $_->port == $port } @workers;
	my ($to) = grep { $_->port != $port } @workers;

	move_shard($coordinator, $shard, $from, $to, $mode);
	return "$shard to " . $to->name;
}

my %faults = (
	'kill of a node' => sub { my $node = any(@nodes); kill_server($node); $node->start; return $node->name; },
	'immediate stop' => sub { my $node = any(@nodes); $node->stop('immediate'); $node->start; return $node->name; },
	'restart' => sub { my $node = any(@nodes); $node->restart; return $node->name; },
	'kill of a process' => sub { return kill_process(any('executor', 'timer')); },
	'move, blocking' => sub { return move('block_writes'); },
	'move, by replication' => sub { return move('force_logical'); },
	'kill of a node while tasks follow' => sub {
		my $node = any(@nodes);
		my $pid = fork();

		if ($pid == 0)
		{
			open(STDERR, '>', '/dev/null');
			eval { $coordinator->psql('postgres', 'SELECT delay_wheel.follow_shards()') };
			POSIX::_exit(0);
		}
		sleep(rand(0.15));
		kill_server($node);
		$node->start;
		waitpid($pid, 0);
		return $node->name;
	},
	'freeze of a node' => sub {
		my $node = any(@nodes);
		my ($postmaster) = split /\s+/, slurp_file($node->data_dir . '/postmaster.pid');
		my @pids = ($postmaster, split /\s+/, `pgrep -P $postmaster`);

		kill 'STOP', @pids;
		sleep(1);
		kill 'CONT', @pids;
		return $node->name;
	});
my %done;
for my $i (1 .. $faults)
{
	my $fault = any(sort keys %faults);

	note("$i: $fault: " . $faults{$fault}->());
	$done{$fault}++;
	# until they answer again, and a little longer
	wait_until(60, sub { return !grep { (try_psql($_, 'postgres', 'SELECT 1'))[0] != 0 } @nodes; }) or last;
	sleep(rand(0.5));
}
is(eval { my $n = 0; $n += $_ for values %done; $n }, $faults, "$faults faults: " . join(', ', map { "$done{$_} $_" } sort keys %done));
unlink $go;
waitpid($_, 0) for @clients;

#
# The end: all that is pending runs.
#
wait_until(60, sub { return $coordinator->psql('postgres', 'SELECT delay_wheel.follow_shards()') == 0; });
wait_for_sum('SELECT count(*) FROM pg_prepared_xacts', 0, 'no prepared transaction is left', 120, @nodes);
# a lost connection leads to pauses
wait_until(60, sub {
	$_->psql('postgres', q{SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks WHERE last_error LIKE '08%' OR last_error LIKE '57P%'}) for @nodes;
	sleep(1);
	return (sum_of('SELECT count(*) FROM delay_wheel_data.task', @nodes) // 1) == 0;
});
wait_for_sum('SELECT count(*) FROM delay_wheel_data.task', 0, 'no task is pending', 300, @nodes);
is(sum_of('SELECT count(*) FROM delay_wheel.failed', @nodes), 0, 'none has failed')
  or diag(join("\n", on_nodes('SELECT DISTINCT sqlstate, message FROM delay_wheel.failed', @nodes)));
for my $table (sort keys %sql_of)
{
	my $rows = sql("SELECT count(*) FROM $table");

	cmp_ok($rows, '>', 100, "$table: $rows rows with tasks");
	is(sql("SELECT count(*) FROM $table WHERE runs > 1"), '0', "$table: none took effect twice");
	is(sql("SELECT count(*) FROM $table WHERE runs = 0"), '0', "$table: none was lost");
	is(sql("SELECT count(*) FROM $table WHERE ran < due"), '0', "$table: none was early");
	note("$table: the latest after " . sql("SELECT max(ran - due) FROM $table"));
}

done_testing();
