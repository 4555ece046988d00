# What each way of running tasks costs on a cluster: tasks a second, and tasks per second
# of processor time of all nodes.  Run by itself: test/citus/run --tap bench.
#
# Environment:
#   DW_TASKS    number of tasks of each measurement (20000)
#   DW_WAYS     the measurements wanted, if not all: citus coordinator rows

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = $ENV{DW_TASKS} || 20000;
my %wanted = map { $_ => 1 } split ' ', $ENV{DW_WAYS} // '';
my ($coordinator, $first) = new_cluster(1);
my @nodes = ($coordinator, $first);

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sub wanted { return !%wanted || $wanted{ $_[0] }; }

# Processor time of all processes of the nodes so far, in seconds: of the postmaster, of
# its children, and of those that have ended.
sub cpu
{
	my $ticks = 0;

	for my $node (@nodes)
	{
		my ($postmaster) = split /\s+/, slurp_file($node->data_dir . '/postmaster.pid');
		for my $pid ($postmaster, split /\s+/, `pgrep -P $postmaster`)
		{
			my $stat = eval { slurp_file("/proc/$pid/stat") } // next;
			my @fields = split / /, ($stat =~ s/^.*\) //r);
			$ticks += $fields[11] + $fields[12] + ($pid == $postmaster ? $fields[13] + $fields[14] : 0);
		}
	}
	return $ticks / 100;
}

# Measures the code, and notes a line of the table.
sub measure
{
	my ($way, $code) = @_;
	my ($cpu, $begun) = (cpu(), time());

	my $seconds = $code->() // time() - $begun;
	my $used = cpu() - $cpu;
	diag(sprintf('| %-75s | %6d | %6d |', $way, $n / $seconds, $n / ($used || 0.01)));
	return;
}

sub set
{
	my (%settings) = @_;

	for my $node (@nodes)
	{
		for my $name (keys %settings)
		{
			$node->safe_psql('postgres', "ALTER SYSTEM SET $name = $settings{$name}");
		}
		$node->reload;
	}
	sleep(1);
	return;
}

# Holds all tasks of the database back, schedules, and measures from the moment that they
# may run until none is left.
sub burst
{
	my ($way, $schedule, @where) = @_;

	$_->safe_psql('postgres', 'SELECT delay_wheel.pause_database()') for @where;
	$schedule->();
	sql('CHECKPOINT');
	measure($way, sub {
		my $begun = time();
		$_->safe_psql('postgres', 'SELECT delay_wheel.resume_database()') for @where;
		wait_until(600, sub { return (sum_of('SELECT count(*) FROM delay_wheel_data.task', @where) // 1) == 0; });
		return time() - $begun;
	});
	return;
}

# A burst of tasks at the rows, on so many workers as there are.
sub rows
{
	my @workers = @nodes[ 1 .. $#nodes ];
	my $table = 't_rows' . @workers;

	sql(qq{SET ROLE shop;
		CREATE TABLE $table (oid bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0);
		SELECT create_distributed_table('$table', 'oid', shard_count => 12, colocate_with => 'none');
		SET citus.enable_unsafe_triggers = on;
		CREATE TRIGGER later AFTER INSERT ON $table FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('0',
			'UPDATE public.$table SET runs = runs + 1 WHERE oid = \$1', 'oid')});
	for my $i (1 .. 3)
	{
		burst('tasks at the rows, ' . @workers . ' worker' . (@workers > 1 ? 's' : ''),
			sub { sql("SET ROLE shop; INSERT INTO $table SELECT generate_series(($i - 1) * $n + 1, $i * $n)") }, @workers);
	}
	is(sql("SELECT count(*) FROM $table WHERE runs = 1"), 3 * $n, 'each ran once');
	return;
}

sub add
{
	my ($name) = @_;
	my $worker = new_worker($name);

	add_worker($coordinator, $worker);
	push @nodes, $worker;
	return;
}

diag(sprintf('| %-75s | %6s | %6s |', "$n tasks, each writes a row by its distribution column", 'a s', 'CPU s'));

rows() if wanted('rows');
add('worker2');
rows() if wanted('rows');

sql(q{SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0);
	SELECT create_distributed_table('t_order', 'oid', shard_count => 12, colocate_with => 'none')});
sql("SET ROLE shop; INSERT INTO t_order SELECT generate_series(1, $n)");
sql('VACUUM ANALYZE t_order');
if (wanted('citus'))
{
	measure('Citus itself: one transaction at the coordinator, one statement a row', sub {
		sql(qq{SET ROLE shop; DO 'BEGIN FOR i IN 1 .. $n LOOP UPDATE t_order SET runs = runs + 1 WHERE oid = i; END LOOP; END'});
		return undef;
	});
	my $script = PostgreSQL::Test::Utils::tempdir() . '/one_row.sql';
	append_to_file($script, "\\set i random(1, $n)\nUPDATE t_order SET runs = runs + 1 WHERE oid = :i;\n");
	for my $clients (1, 4)
	{
		my $each = int($n / $clients);
		measure("Citus itself: a transaction a row, $clients client" . ($clients > 1 ? 's' : ''), sub {
			$coordinator->run_log([ 'pgbench', '--no-vacuum', '--protocol=prepared', "--client=$clients", "--jobs=$clients", "--transactions=$each",
				'--file', $script, '--host', $coordinator->host, '--port', $coordinator->port, '--username=shop', 'postgres' ]);
			return undef;
		});
	}
}

my $schedule_there = sub {
	sql(qq{SET ROLE shop; SELECT count(delay_schedule('0', 'UPDATE public.t_order SET runs = runs + 1 WHERE oid = \$1', i)) FROM generate_series(1, $n) i});
};

if (wanted('coordinator'))
{
	for my $batch (1, 100)
	{
		for my $executors (1, 2, 4, 8)
		{
			set('delay_wheel.batch_tasks' => $batch, 'delay_wheel.max_executors' => $executors);
			burst("tasks at the coordinator, $executors executors, batch_tasks = $batch", $schedule_there, $coordinator);
		}
	}
}

if (wanted('rows'))
{
	add('worker3');
	rows();
}
is(sum_of('SELECT count(*) FROM delay_wheel.failed', @nodes), 0, 'nothing has failed');
done_testing();
