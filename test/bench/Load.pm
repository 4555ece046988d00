# The rows of the benchmark about what happens beside others: many clients that schedule,
# tasks beside pgbench, a day of orders of which most are cancelled.  Loaded by bench.pl.

package Load;

use strict;
use warnings;

use Bench;
use Burst;
use Exporter 'import';
use IPC::Open2;
use List::Util qw(max min);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(measure_clients measure_beside measure_day);

my $order = "\\set oid random(1, 1000000000000000)\n";
my $update = 'update t_order set stars=stars+5, status=status+1, at=clock_timestamp() where oid=';

# What pgbench runs.
my %script = (
	schedule => "${order}SELECT delay_schedule(:delay::interval, task_of(:oid::bigint));\n",
	insert => "${order}INSERT INTO floor_task (due, sql) VALUES (now() + :delay::interval, task_of(:oid::bigint)) RETURNING id;\n",
	schedule_key => "${order}SELECT delay_schedule_task(task_of(:oid::bigint), delay => :delay::interval, key => 'order ' || :oid);\n",
	insert_key => "${order}INSERT INTO floor_task (due, sql, key) VALUES (now() + :delay::interval, task_of(:oid::bigint), 'order ' || :oid) RETURNING id;\n",
	update => "\\set oid random(1, :orders)\n${update}:oid;\n",
	day => "SELECT nextval('day_order') AS oid \\gset\n"
	  . "SELECT delay_schedule_task('update t_order set status=1 where oid=\$1', delay => :delay::interval, key => 'day ' || :oid, args => ARRAY[:oid]::text[]);\n"
	  . "\\set paid :oid - :behind\n\\if :paid > 0 and :paid % 10 <> 0\nSELECT delay_cancel(key => 'day ' || :paid);\n\\endif\n");

my ($opt, $rounds, $record, $sync_commit);

#
# So many clients that schedule, near and far, with a key and without.
#
sub client_rate
{
	my ($script, $clients, $delay) = @_;

	run('TRUNCATE delay_wheel_data.task, floor_task');
	run('CHECKPOINT');
	return scalar end_pgbench(begin_pgbench($script{$script}, $clients, split(' ', $opt->{pgbench}), '-D', "delay=$delay"));
}

sub measure_clients
{
	($opt, $rounds, $record, $sync_commit) = @_;
	for my $sync (split /,/, $opt->{syncs})
	{
		$sync_commit->($sync);
		for my $clients (split /,/, $opt->{clients})
		{
			for my $variant ([ '', '48 hours' ], [ '', '30 minutes' ], [ '_key', '48 hours' ], [ '_key', '30 minutes' ])
			{
				my ($key, $delay) = @$variant;
				my %figures = $rounds->($opt->{client_rounds}, [qw(ours floor)], {
					ours => sub { client_rate("schedule$key", $clients, $delay) },
					floor => sub { client_rate("insert$key", $clients, $delay) } });

				$record->('clients', %figures, place => 12, sync => $sync, unit => 'tasks/s', reach => [ '>=', 0.90 ],
					variant => "$clients client" . ($clients > 1 ? 's' : '') . ', ' . ($key ? 'a key each, ' : '') . "due in $delay");
			}
		}
	}
	run('TRUNCATE delay_wheel_data.task, floor_task');
	stop_server();
	start_server();
	return;
}

#
# A server that has worked for a while writes its WAL into files that are there.  On a new one each
# file is filled with zeros first, and synced, for which all commits wait.  So as many files as
# a row will take are used up, and stay there for it.
#
sub make_wal_files
{
	my ($files) = @_;

	run(q{SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()}) for 1 .. $files;
	run('CHECKPOINT');
	return;
}

#
# Tasks beside pgbench's own transactions, which take all processors: how late they begin,
# and what pgbench loses, compared with the same statements sent by clients.
#
sub tasks_beside
{
	my $seconds = $opt->{beside_seconds};
	my $rate = $opt->{beside_rate};
	my $n = $seconds * $rate;
	my $start_us;

	shop()->query("SELECT new_orders($n)");
	run('VACUUM ANALYZE t_order');
	run('VACUUM delay_wheel_data.task');
	for (my $lead = 5 + $n / 20_000; !defined $start_us; $lead *= 2)
	{
		my $at = int(time() + $lead) * 1_000_000;

		shop()->query('BEGIN');
		shop()->query("SELECT count(delay_schedule_at(to_timestamp(0) + ($at + (oid - 1) * (1000000.0 / $rate)) * interval '1 us', '$update\$1', oid)) FROM generate_series(1::bigint, $n) oid");
		run('CHECKPOINT');
		$start_us = $at if time() * 1e6 < $at - 500_000;
		shop()->query(defined $start_us ? 'COMMIT' : 'ROLLBACK');
	}
	sleep(max(0, $start_us / 1e6 - 1 - time()));
	my $clients = begin_pgbench(undef, 4, '-b', 'tpcb-like', '-T', $seconds + 1);
	open2(my $out, my $in, $ENV{DW_BENCH_SLEEP}, $start_us + 5000, 10_000, 100 * $seconds, 'all');
	my @floor = map { $_ / 1000 } readline $out;
	my $tps = end_pgbench($clients);

	wait_for('all orders', 60 + $n / 1000, "SELECT count(*) = $n FROM t_order WHERE status > 0");
	shop()->query("SELECT check_orders($n)");
	my @late = map { $_ / 1000 } admin()->query(
		"SELECT extract(epoch FROM at) * 1000000 - $start_us - (oid - 1) * (1000000.0 / $rate) FROM t_order");
	return ($tps, \@late, \@floor);
}

sub clients_beside
{
	my $seconds = $opt->{beside_seconds};
	my $n = $seconds * $opt->{beside_rate};

	shop()->query("SELECT new_orders($n)");
	run('VACUUM ANALYZE t_order');
	run('CHECKPOINT');
	my $updates = begin_pgbench($script{update}, 4, '-R', $opt->{beside_rate}, '-T', $seconds, '-D', "orders=$n");
	my $tps = end_pgbench(begin_pgbench(undef, 4, '-b', 'tpcb-like', '-T', $seconds));

	return ($tps, scalar end_pgbench($updates));
}

# What pgbench does on a server that has just been started, with its tables in memory.
sub pgbench_alone
{
	my @tpcb = (undef, 4, '-b', 'tpcb-like', '-T');

	$sync_commit->('on');
	run('VACUUM ANALYZE pgbench_accounts, pgbench_branches, pgbench_tellers');
	end_pgbench(begin_pgbench(@tpcb, 1));
	run('CHECKPOINT');
	return scalar end_pgbench(begin_pgbench(@tpcb, $opt->{beside_idle_seconds}));
}

sub measure_beside
{
	($opt, $rounds, $record, $sync_commit) = @_;
	my (%tps, %late, %floor, @sent);
	my %at = (p50 => 0.5, p99 => 0.99, max => 1);

	$sync_commit->('on');
	system("$ENV{DW_BENCH_BINDIR}/pgbench -i -q -s $opt->{beside_scale} -U shop bench >/dev/null 2>&1") == 0 or die "pgbench -i failed\n";
	run('VACUUM ANALYZE');
	make_wal_files($opt->{beside_wal_files});
	for my $round (1 .. $opt->{beside_rounds})
	{
		my ($tps, $late, $floor) = tasks_beside();

		push @{ $tps{tasks} }, $tps;
		for my $name (keys %at)
		{
			push @{ $late{$name} }, quantiles($late, $at{$name});
			push @{ $floor{$name} }, quantiles($floor, $at{$name});
		}
		($tps, my $sent) = clients_beside();
		push @{ $tps{clients} }, $tps;
		push @sent, $sent;
	}
	shop()->query('SELECT new_orders(1)');
	for my $round (1 .. $opt->{beside_idle_rounds})
	{
		for my $side ($round % 2 ? qw(idle without) : qw(without idle))
		{
			stop_server();
			start_server($side eq 'idle' ? () : 'shared_preload_libraries=');
			push @{ $tps{$side} }, pgbench_alone();
		}
	}
	stop_server();
	start_server();
	my $load = "$opt->{beside_rate} tasks/s beside pgbench, 4 clients, $opt->{beside_seconds} s";
	for my $line ([ p50 => undef ], [ p99 => 1 ], [ max => undef ])
	{
		my ($name, $limit) = @$line;

		$record->('beside', place => 72, variant => "lateness, $load, $name", sync => 'on', unit => 'ms', ours => $late{$name},
			floor => $floor{$name}, difference => [ map { $late{$name}[$_] - $floor{$name}[$_] } 0 .. $#{ $late{$name} } ],
			note => 'floor: a program that sleeps, at the same time', $limit ? (reach => [ '<=', $limit ]) : ());
	}
	$record->('beside', place => 72, variant => "pgbench, $load", sync => 'on', unit => 'transactions/s', ours => $tps{tasks}, floor => $tps{clients},
		reach => [ '>=', 1 ], note => sprintf('floor: the same statements sent by 4 clients, %.0f a second came through', median(@sent)));
	$record->('beside', place => 72, variant => 'pgbench, nothing is due', sync => 'on', unit => 'transactions/s', ours => $tps{idle}, floor => $tps{without},
		reach => [ '>=', 0.98 ], note => 'floor: a server without delay_wheel');
	run('DROP TABLE pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers');
	return;
}

#
# A day, of which half an hour takes so many seconds: orders that are cancelled if nobody pays,
# and nine of ten are paid after half the time.  The greatest sizes of the last quarter are
# compared with those of the second one.
#
sub day_sizes
{
	my %size = table_sizes();

	$size{'ring memory'} = value('SELECT memory_used FROM delay_wheel.status WHERE database = current_database()');
	return \%size;
}

sub measure_day
{
	($opt, $rounds, $record, $sync_commit) = @_;
	my ($delay, $seconds, $rate) = @$opt{qw(day_delay day_seconds day_rate)};
	my $behind = int($rate * $delay / 2);
	my @sizes;

	run('TRUNCATE delay_wheel_data.task');
	stop_server();
	start_server('autovacuum=on', 'autovacuum_naptime=1s');
	$sync_commit->('off');
	shop()->query('DROP SEQUENCE IF EXISTS day_order; CREATE SEQUENCE day_order');
	shop()->query('SELECT new_orders(1)');
	my $day = begin_pgbench($script{day}, 4, '-R', $rate, '-T', $seconds, '-D', "delay=$delay seconds", '-D', "behind=$behind");
	my $end = time() + $seconds;
	while (time() < $end - 0.2)
	{
		sleep(min(1, $end - time()));
		push @sizes, day_sizes();
	}
	my $tps = end_pgbench($day);
	my $rows = value('SELECT count(*) FROM delay_wheel_data.task');
	my $quarter = int(@sizes / 4) || 1;
	my @second = @sizes[ $quarter .. 2 * $quarter - 1 ];
	my @last = @sizes[ -$quarter .. -1 ];

	for my $name (sort keys %{ $last[0] })
	{
		my ($before, $after) = map { max(map { $_->{$name} } @$_) } \@second, \@last;

		$record->('day', place => 65, variant => "$name, $seconds s with orders of $delay s", unit => 'of the second quarter', sync => 'off',
			ours => [ $after / max($before, 1) ], reach => [ '<=', 1.1 ],
			note => sprintf('%.1f MB, %.0f bytes for each of %d pending; %.0f orders/s', $after / 1e6, $after / max($rows, 1), $rows, $tps));
	}
	wait_for('the last orders', 60 + 2 * $delay, 'SELECT count(*) = 0 FROM delay_wheel_data.task');
	stop_server();
	start_server();
	return;
}

1;
