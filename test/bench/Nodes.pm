# The row of the benchmark about Citus: a coordinator and two workers, each a server of its
# own, which are there for this row only.  Loaded by bench.pl.

package Nodes;

use strict;
use warnings;

use Bench;
use Burst;
use Exporter 'import';
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use FindBin;
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(measure_citus);

# The manual's settings, the rest as at the benchmark's own server.  Nodes talk to each other
# by sockets in their directory, so nobody else can reach them.
my $conf = q{
listen_addresses = ''
shared_preload_libraries = 'citus, delay_wheel'
max_worker_processes = 24
max_prepared_transactions = 200
wal_level = logical
max_connections = 150
max_wal_size = 8GB
checkpoint_timeout = 1h
autovacuum = off
log_checkpoints = off
citus.node_conninfo = 'sslmode=disable'
};

my $workers = 2;
my $update = 'update public.d_order set stars=stars+5, status=status+1 where oid=$1';
my $done_at_workers = q{SELECT sum(result::bigint) FROM run_command_on_workers(
	'SELECT done FROM delay_wheel.status WHERE database = current_database()')};

# Their directories by their ports, those that run.
my %running;
my $opt;

# What Bench does, it does with the server that the environment names: here one of ours.
sub at_node
{
	my ($port, $code) = @_;
	local @ENV{qw(PGPORT DW_BENCH_DATA DW_BENCH_LOG)} = ($port, "$running{$port}/data", "$running{$port}/log");

	return $code->();
}

sub start_node
{
	my ($port) = @_;
	my $dir = dirname($ENV{DW_BENCH_DATA}) . "/node$port";
	my @as_user = split ' ', $ENV{DW_BENCH_AS_USER};

	system(@as_user, 'mkdir', $dir) == 0 or die "no directory $dir\n";
	system(@as_user, 'sh', '-c', 'exec "$0" "$@" >/dev/null 2>&1', "$ENV{DW_BENCH_BINDIR}/initdb", "--pgdata=$dir/data", '--no-sync', '--auth=trust',
		'--username=postgres', '--encoding=UTF8', '--locale=C') == 0 or die "initdb failed\n";
	open(my $out, '>>', "$dir/data/postgresql.conf") or die "$dir: $!\n";
	print $out $conf, "unix_socket_directories = '$ENV{PGHOST}'\nport = $port\n";
	close $out or die "$dir: $!\n";
	$running{$port} = $dir;
	at_node($port, sub {
		start_server();
		my $session = session('postgres', "node $port", 'postgres');
		$session->query('CREATE DATABASE bench');
		$session->close;
		$session = session('postgres', "node $port");
		$session->query('CREATE EXTENSION citus');
		$session->close;
	});
	return;
}

sub stop_nodes
{
	for my $port (sort keys %running)
	{
		eval { at_node($port, sub { stop_server('immediate') }) };
		remove_tree(delete $running{$port});
	}
	return;
}

# A signal must not leave servers behind.
END
{
	my $status = $?;
	stop_nodes();
	$? = $status;
}

# The cluster as the manual sets it up, with the benchmark's own tables at the coordinator,
# and distributed ones: one that tasks of the coordinator write to, and one whose rows have
# tasks where they are.
sub set_up
{
	my ($coordinator, @others) = @_;

	start_node($_) for $coordinator, @others;
	close_sessions();
	at_node($coordinator, sub {
		run("SELECT citus_set_coordinator_host('$ENV{PGHOST}', $coordinator)");
		run("SELECT citus_add_node('$ENV{PGHOST}', $_)") for @others;
		# Citus warns of functions that it leaves at the coordinator
		my $said = `"$ENV{DW_BENCH_BINDIR}/psql" -Xq -d bench -f "$FindBin::RealBin/bench.sql" 2>&1`;
		die $said if $?;
		run('SELECT delay_wheel.set_up_citus()');
		shop()->query(qq{
			CREATE TABLE d_order (LIKE t_order INCLUDING ALL);
			CREATE TABLE d_row (LIKE t_order INCLUDING ALL);
			SELECT create_distributed_table(t, 'oid', shard_count => 12, colocate_with => 'none') FROM unnest('{d_order, d_row}'::regclass[]) t;
			SET citus.enable_unsafe_triggers = on;
			CREATE TRIGGER later AFTER INSERT ON d_row FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('finish_time',
				'update public.d_row set stars=stars+5, status=status+1 where oid=\$1', 'oid');
			CREATE PROCEDURE update_distributed(first bigint, last bigint, batch int) LANGUAGE plpgsql AS \$\$
			BEGIN
				FOR i IN first .. last LOOP
					UPDATE d_order SET stars = stars + 5, status = status + 1 WHERE oid = i;
					IF (i - first) % batch = batch - 1 THEN
						COMMIT;
					END IF;
				END LOOP;
			END \$\$});
	});
	return;
}

sub settle_nodes
{
	run('VACUUM ANALYZE d_order; VACUUM ANALYZE d_row');
	run('VACUUM delay_wheel_data.task');
	run("SELECT run_command_on_all_nodes('CHECKPOINT')");
	return;
}

sub fresh_orders
{
	my ($n) = @_;

	shop()->query("TRUNCATE d_order; INSERT INTO d_order (oid) SELECT generate_series(1, $n)");
	settle_nodes();
	return;
}

# The rates of a burst, with orders that are checked: of tasks at the coordinator, of tasks at
# the rows, and of what can be had from Citus without tasks: two sessions, with as many
# statements in a transaction as tasks have in common.
sub at_coordinator
{
	my ($n) = @_;

	fresh_orders($n);
	my ($due, $end) = finish_burst($n, sub {
		shop()->query("SELECT count(delay_schedule_at(to_timestamp($_[0]), '$update', oid)) FROM generate_series(1::bigint, $n) oid");
	}, [ shop() ]);
	shop()->query("SELECT check_orders($n, 'd_order')");
	return $n / ($end - $due);
}

sub at_rows
{
	my ($n) = @_;

	shop()->query('TRUNCATE d_row');
	settle_nodes();
	my ($due, $end) = finish_burst($n, sub {
		shop()->query("INSERT INTO d_row (oid, finish_time) SELECT oid, to_timestamp($_[0]) FROM generate_series(1, $n) oid");
	}, [ shop() ], done => $done_at_workers);
	shop()->query("SELECT check_orders($n, 'd_row')");
	return $n / ($end - $due);
}

sub two_loops
{
	my ($n) = @_;
	my @sessions = map { kept_session("loop $_", 'shop') } 1, 2;
	my $half = int($n / 2);
	my $batch = value('SHOW delay_wheel.batch_tasks');

	fresh_orders($n);
	# plans, and connections to the workers, are made before the clock runs
	$_->query("CALL update_distributed(-100, -1, $batch)") for @sessions;
	my $begun = time();
	$sessions[0]->send("CALL update_distributed(1, $half, $batch)");
	$sessions[1]->send("CALL update_distributed($half + 1, $n, $batch)");
	$_->answer for @sessions;
	my $rate = $n / (time() - $begun);
	shop()->query("SELECT check_orders($n, 'd_order')");
	return $rate;
}

sub measure_at_coordinator
{
	my ($rounds, $record, $sync_commit, $insert_rate) = @_;
	my $n = $opt->{citus_burst};
	my ($version) = value('SELECT citus_version()') =~ /^(Citus [\d.]+)/;

	for my $sync (split /,/, $opt->{syncs})
	{
		$sync_commit->($sync);
		my %figures = $rounds->($opt->{citus_rounds}, [qw(ours floor)], {
			ours => sub { $insert_rate->(2, '48 hours', 'schedule.pgbench', 'delay_wheel_data.task') },
			floor => sub { $insert_rate->(2, '48 hours', 'insert.pgbench', 'floor_task') } });

		$record->('citus', %figures, place => 92, variant => 'schedule, one per transaction, 2 clients', sync => $sync, unit => 'tasks/s',
			reach => [ '>=', 0.90 ], note => "floor: the same INSERT into a local table there; $version, $workers workers");
	}
	run('TRUNCATE delay_wheel_data.task, floor_task');
	$sync_commit->('on');
	my %figures = $rounds->($opt->{citus_rounds}, [qw(loops coordinator rows)], {
		loops => sub { two_loops($n) },
		coordinator => sub { at_coordinator($n) },
		rows => sub { at_rows($n) } });
	$record->('citus', place => 92, variant => "a burst of $n at the coordinator, 2 executors", sync => 'on', unit => 'tasks/s',
		ours => $figures{coordinator}, floor => $figures{loops}, note => 'floor: two PL/pgSQL loops with the same statements, as many in a transaction');
	$record->('citus', place => 92, variant => "a burst of $n at the rows", sync => 'on', unit => 'tasks/s',
		ours => $figures{rows}, floor => $figures{coordinator}, note => 'floor: the one at the coordinator');
	return;
}

sub measure_citus
{
	($opt, my ($rounds, $record, $sync_commit, $insert_rate)) = @_;
	my ($coordinator, @others) = map { $ENV{PGPORT} + $_ } 1 .. 1 + $workers;

	if ($opt->{citus} ne 'yes')
	{
		$record->('citus', place => 92, variant => 'a coordinator and workers', unit => 'tasks/s', note => "not measured: $opt->{citus}");
		return;
	}
	my $done = eval {
		set_up($coordinator, @others);
		at_node($coordinator, sub { measure_at_coordinator($rounds, $record, $sync_commit, $insert_rate) });
		1;
	};
	my $error = $@;
	stop_nodes();
	die $error unless $done;
	return;
}

1;
