# The row of the benchmark about many databases on a server, of which few are busy: how many
# processes they need, how much memory, and how punctual those are that sleep.  Loaded by
# bench.pl.

package Databases;

use strict;
use warnings;

use Bench;
use Exporter 'import';
use List::Util qw(max);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(measure_databases);

# Processes of delay_wheel, and their private memory in bytes; undef where that cannot be told.
sub our_processes
{
	my @pids = admin()->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel %'});
	my $bytes;

	for my $pid (@pids)
	{
		open(my $rollup, '<', "/proc/$pid/smaps_rollup") or next;
		local $/ = undef;
		my $text = readline($rollup) // next;
		$bytes = ($bytes // 0) + 1024 * $1 while $text =~ /^Private_(?:Clean|Dirty): +(\d+) kB/mg;
	}
	return (scalar @pids, $bytes);
}

sub in_database
{
	my ($n, $sql) = @_;
	my $session = session('postgres', "database $n", "many_$n");
	my @answer = $session->query($sql);

	$session->close;
	return @answer;
}

# Databases 1 to the last one: the busy ones are the first.
sub create_databases
{
	my ($n) = @_;

	run('CREATE DATABASE many_0');
	in_database(0, 'CREATE EXTENSION delay_wheel; CREATE TABLE ran (due timestamptz, at timestamptz DEFAULT clock_timestamp())');
	run("CREATE DATABASE many_$_ TEMPLATE many_0 STRATEGY file_copy") for 1 .. $n;
	run('DROP DATABASE many_0 WITH (FORCE)');
	in_database($_, q{SELECT delay_schedule('1 day', 'SELECT 1')}) for 1 .. $n;
	return;
}

sub measure_databases
{
	my ($opt, undef, $record) = @_;
	my ($n, $busy, $tasks) = @$opt{qw(databases busy_databases sleeping_tasks)};
	# as after minutes in which nothing was near
	my @server = ('max_worker_processes=100', 'delay_wheel.timer_idle_timeout=1s', 'delay_wheel.max_databases=' . ($n + 10));
	my $served = sub { return "SELECT count(*) FILTER (WHERE state IN ($_[0])) >= " . ($n + 1) . ' FROM delay_wheel.status' };
	my $of = "$n databases, $busy of them busy";

	stop_server();
	start_server(@server);
	create_databases($n);
	stop_server();

	my $begun = time();
	start_server(@server);
	wait_for('all databases were looked into', 60 + $n, $served->(q{'running', 'resting'}), 0.2);
	my $looked = time() - $begun;

	in_database($_, q{SELECT delay_every('busy', '1 s', 'INSERT INTO ran VALUES (now())')}) for 1 .. $busy;
	wait_for('the others rest', 120, "SELECT count(*) FILTER (WHERE state = 'resting') >= " . ($n - $busy) . ' FROM delay_wheel.status', 0.2);

	# one after the other, in databases that sleep until then
	my $margin = 3 + ($n + 10) * 0.05;
	my @sleepers = map { $busy + 1 + int(($n - $busy) / $tasks) * $_ } 0 .. $tasks - 1;
	my $first = int(time() + 2 * $margin + 2 + 0.1 * $tasks);
	for my $i (0 .. $#sleepers)
	{
		in_database($sleepers[$i], "SELECT delay_schedule_at(to_timestamp($first + $i), 'INSERT INTO ran VALUES (\$1)', to_timestamp($first + $i))");
	}
	my (@processes, @bytes);
	while (time() < $first + $tasks + 1)
	{
		my ($processes, $bytes) = our_processes();

		push @processes, $processes;
		push @bytes, $bytes if defined $bytes;
		sleep(0.5);
	}
	my @late = sort { $a <=> $b } map { in_database($_, 'SELECT 1000 * extract(epoch FROM at - due) FROM ran') } @sleepers;

	die 'tasks of ' . (@sleepers - @late) . " databases have not run\n" if @late != @sleepers;
	$record->('databases', place => 91.5, variant => "lateness of the task of one that sleeps, most of $tasks, $of", unit => 'ms', ours => [ $late[-1] ],
		reach => [ '<=', 5 ], note => sprintf('median %.1f', quantiles(\@late, 0.5)));
	$record->('databases', place => 91.5, variant => "processes, $of", unit => 'at most', ours => [ max(@processes) ], reach => [ '<=', 100 ],
		@bytes ? (note => sprintf('private memory %.0f MB', max(@bytes) / 1e6)) : ());
	$record->('databases', place => 91.5, variant => "start until all are looked into, $of", unit => 's', ours => [$looked]);
	run("DROP DATABASE many_$_ WITH (FORCE)") for 1 .. $n;
	stop_server();
	start_server();
	return;
}

1;
