#!/usr/bin/env perl
#
# The benchmark itself, run by test/bench/run on a server that is there already:
# measures the rows, each with its floor in the same rounds, and writes
# figures.json, from which report.pl makes the table and the plots.
#
#   bench.pl FIGURES OPTION=VALUE...
#
# What the rows are, and how to read them: test/bench/README.md and doc/benchmarks.md.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Bench;
use Burst;
use Databases qw(measure_databases);
use Load qw(measure_beside measure_clients measure_day);
use Messages qw(measure_messages);
use Isolation qw(measure_isolation);
use Midnight qw(measure_midnight);
use Nodes qw(measure_citus);
use IPC::Open2;
use JSON::PP;
use List::Util qw(max min sum);
use Time::HiRes qw(sleep time);

my ($figures_file, @options) = @ARGV;
my %opt = map { split /=/, $_, 2 } @options;
$Burst::lead = $opt{lead};
my %only = map { $_ => 1 } split /,/, $opt{only};
$SIG{INT} = $SIG{TERM} = sub { exit 130 };

# the tasks that are pending all the time, beside those of the row, and the
# greatest ids among them
my $pending = 0;
my %mark;

# Rows that are not measured this time keep their figures.
my $json = JSON::PP->new->canonical->pretty;
my $results = { rows => {}, plots => {} };
if (-s $figures_file && (%only || $opt{pass} ne 'both'))
{
	open(my $in, '<', $figures_file) or die "$figures_file: $!";
	local $/ = undef;
	$results = $json->decode(readline $in);
}

sub write_results
{
	open(my $out, '>', "$figures_file.new") or die "$figures_file.new: $!";
	print $out $json->encode($results);
	close $out or die "$figures_file.new: $!";
	rename "$figures_file.new", $figures_file or die "$figures_file: $!";
	return;
}

#
# One line of the table.  ours, floor: figures of the rounds, which are compared
# by their ratio, or by the difference if that is given; reach: [ '>=' or '<=',
# limit ] for the median of these, or of ours if there is no floor; place: where
# it stands.  Lines with the same key replace each other.
#
sub record
{
	my ($name, %row) = @_;
	my $key = join ' ', $name, $row{variant} // '', $row{sync} // '', $row{pending} // $pending;

	$row{name} = $name;
	$row{pending} //= $pending;
	$row{at} = time();
	$row{commit} = $opt{commit};
	$row{ratio} = [ map { $row{ours}[$_] / $row{floor}[$_] } 0 .. $#{ $row{ours} } ]
	  if $row{floor} && !$row{difference};
	$results->{rows}{$key} = \%row;
	write_results();

	my @said;
	push @said, sprintf('%.4g', median(@{ $row{ours} })) if $row{ours};
	push @said, sprintf('floor %.4g', median(@{ $row{floor} })) if $row{floor};
	push @said, sprintf('ratio %.3f', median(@{ $row{ratio} })) if $row{ratio};
	say_progress('  %-34s %s', $key, join(', ', @said, $row{note} // ()));
	return;
}

#
# Measures each of the named things once a round, in turns: forwards in one
# round, backwards in the next; a round before the first is not counted, unless
# there is no warm-up, nor with many pending tasks, where all is warm.  Returns a
# hash of arrays of figures.
#
sub rounds
{
	my ($count, $order, $measure, $warm_up) = @_;
	my %figures = map { $_ => [] } @$order;

	$warm_up //= $opt{warm_up};
	($count, $warm_up) = (min($count, $opt{pending_rounds}), 0) if $pending > 0;
	for my $round (($warm_up ? 0 : 1) .. $count)
	{
		for my $name ($round % 2 ? @$order : reverse @$order)
		{
			my $figure = $measure->{$name}->($round);

			push @{ $figures{$name} }, $figure if $round > 0;
		}
	}
	return %figures;
}

#
# Tasks and orders.
#
my $far_due = q{now() + interval '48 hours'};

# What can be rolled back between measurements is rolled back: when nothing else
# is pending the tables are emptied, else cleaned.
sub clean
{
	if ($pending == 0)
	{
		run('TRUNCATE delay_wheel_data.task, floor_task');
	}
	else
	{
		run("DELETE FROM $_ WHERE id > $mark{$_}") for qw(delay_wheel_data.task floor_task);
		run("VACUUM $_") for qw(delay_wheel_data.task floor_task);
	}
	return;
}

sub sync_commit
{
	my ($sync) = @_;

	run("ALTER ROLE shop SET synchronous_commit = $sync");
	shop()->query("SET synchronous_commit = $sync");
	$ENV{PGOPTIONS} = "-c synchronous_commit=$sync";
	return;
}

# The rate of a burst of delay_wheel's tasks, with fresh orders that are checked.
sub wheel_drain
{
	my ($n, $text) = @_;

	shop()->query("SELECT new_orders($n)");
	settle();
	my ($due, $end) = wheel_burst(1, $n, $text);
	shop()->query("SELECT check_orders($n)");
	watch_memory();
	return $n / ($end - $due);
}

# The same with the SKIP LOCKED loop, by two sessions.
sub skip_locked_burst
{
	my ($first, $last) = @_;
	my $due = schedule_burst($last - $first + 1, sub {
		shop()->query("INSERT INTO floor_task (due, sql) SELECT to_timestamp($_[0]), task_of(oid) FROM generate_series($first, $last) oid");
	}, [ shop() ], time() + 2 + 1e-5 * ($last - $first + 1));

	# the rest must be ready by then, too
	run('ANALYZE floor_task') if $pending == 0;
	my @drainers = map { kept_session("drainer $_", 'shop') } 1, 2;
	$_->query("SET synchronous_commit = '" . shop()->value('SHOW synchronous_commit') . q{'}) for @drainers;
	# plans are made, and both begin, before the clock runs
	$_->query('CALL skip_locked_drain(1000)') for @drainers;
	die "the SKIP LOCKED loops were not ready in time\n" if time() > $due;
	$_->send("SELECT pg_sleep($due - extract(epoch FROM clock_timestamp())) \\g /dev/null\n" .
			'SELECT extract(epoch FROM clock_timestamp()); CALL skip_locked_drain(1000)') for @drainers;
	my $start = min(map { ($_->answer)[0] } @drainers);
	return ($start, last_commit());
}

sub skip_locked_drain
{
	my ($n) = @_;

	shop()->query("SELECT new_orders($n)");
	settle();
	my ($start, $end) = skip_locked_burst(1, $n);
	shop()->query("SELECT check_orders($n)");
	return $n / ($end - $start);
}

sub update_loop
{
	my ($n, $procedure) = @_;

	shop()->query("SELECT new_orders($n)");
	settle();
	my $start = shop()->value("SELECT extract(epoch FROM clock_timestamp()); CALL $procedure($n)");
	my $end = last_commit();
	shop()->query("SELECT check_orders($n)");
	return $n / ($end - $start);
}

# Shared memory is fixed at the start, and what a database holds of the ring's
# part must stay within the setting.
my %memory = (most => 0);
sub watch_memory
{
	my ($used, $limit) = split /\|/,
	  value('SELECT memory_used, memory_limit FROM delay_wheel.status WHERE database = current_database()');

	$memory{most} = max($memory{most}, $used);
	$memory{limit} = $limit;
	die "delay_wheel holds $used bytes of ring memory, of $limit\n" if $used > $limit;
	return;
}

#
# The rows of the table.
#
# A rate of pgbench; each of its transactions must have left a task.
sub insert_rate
{
	my ($clients, $delay, $script, $table) = @_;

	clean();
	run('CHECKPOINT');
	my $mark = value("SELECT coalesce(max(id), 0) FROM $table");
	my ($tps, $count) = end_pgbench(begin_pgbench(undef, $clients, '-M', 'prepared', split(' ', $opt{pgbench}),
			'-D', "delay=$delay", '-f', "$FindBin::RealBin/$script"));
	my $there = value("SELECT count(*) FROM $table WHERE id > $mark");
	die "$there tasks in $table after $count transactions\n" if $there != $count;
	return $tps;
}

sub row_schedule
{
	for my $sync (split /,/, $opt{syncs})
	{
		sync_commit($sync);
		# the last ones are for the ring, and the timer hears of each
		for my $variant ([ 1, '48 hours' ], [ 2, '48 hours' ], $sync eq 'off' && $pending == 0 ? [ 2, '30 minutes' ] : ())
		{
			my %figures = rounds(
				$opt{rounds},
				[qw(ours floor)],
				{
					ours => sub { insert_rate(@$variant, 'schedule.pgbench', 'delay_wheel_data.task') },
					floor => sub { insert_rate(@$variant, 'insert.pgbench', 'floor_task') },
				});
			record('schedule',
				%figures,
				place => 10,
				variant => "$variant->[0] client" . ($variant->[0] > 1 ? 's' : '') . ", due in $variant->[1]",
				sync => $sync,
				unit => 'tasks/s',
				reach => [ '>=', 0.90 ]);
		}
	}
	forget_memory() if $pending == 0;
	return;
}

# What the ring still holds of tasks that are gone would be in the way of later
# rows when it falls due.
sub forget_memory
{
	clean();
	stop_server();
	start_server();
	return;
}

sub bulk_rate
{
	my ($statement, $table) = @_;
	my $n = $opt{bulk};

	clean();
	run('CHECKPOINT');
	my $mark = value("SELECT coalesce(max(id), 0) FROM $table");
	my $begun = time();
	shop()->query($statement);
	my $rate = $n / (time() - $begun);
	my $there = value("SELECT count(*) FROM $table WHERE id > $mark");
	die "$there tasks in $table of $n\n" if $there != $n;
	return $rate;
}

sub row_bulk
{
	my $n = $opt{bulk};

	for my $sync (split /,/, $opt{syncs})
	{
		sync_commit($sync);
		my %figures = rounds(
			$opt{rounds},
			[qw(ours floor)],
			{
				ours => sub {
					bulk_rate("SELECT count(delay_schedule('48 hours', task_of(oid))) FROM generate_series(1, $n) oid",
						'delay_wheel_data.task');
				},
				floor => sub {
					bulk_rate("INSERT INTO floor_task (due, sql) SELECT $far_due, task_of(oid) FROM generate_series(1, $n) oid",
						'floor_task');
				},
			});
		record('bulk', %figures, place => 20, variant => "$n in one statement",
			sync => $sync, unit => 'tasks/s', reach => [ '>=', 1.30 ]);
	}
	clean();
	return;
}

#
# The story's orders with a trigger that schedules, next to the same table with a
# foreign key, whose triggers look at a row of another table each.
#
sub trigger_rate
{
	my ($variant, $file) = @_;
	my $n = $opt{bulk};

	clean();
	run("TRUNCATE ride_$variant; VACUUM rider; CHECKPOINT");
	my $begun = time();
	shop()->query($file ? "COPY ride_$variant (oid, few, many) FROM '$file'" :
		"INSERT INTO ride_$variant (oid, few, many) SELECT oid, 1 + oid % 1000, oid FROM generate_series(1, $n) oid");
	my $rate = $n / (time() - $begun);
	my $there = value('SELECT count(*) FROM delay_wheel_data.task');
	my $wanted = $variant =~ /wheel|statement|plpgsql/ ? $n : 0;
	die "$there tasks of $wanted\n" if $there != $wanted;
	return $rate;
}

sub row_trigger
{
	my $n = $opt{bulk};
	my $file = value('SHOW data_directory') . '/rides';
	my %others = (
		few => "$n rows; a foreign key to 1,000", many => "$n rows; a foreign key to as many",
		plpgsql => "$n rows; a trigger in PL/pgSQL that calls delay_schedule", plain => "$n rows; no trigger");

	shop()->query("TRUNCATE rider CASCADE; INSERT INTO rider SELECT generate_series(1, greatest($n, 1000))");
	run('VACUUM ANALYZE rider');
	run("GRANT pg_read_server_files TO shop");
	run("COPY (SELECT oid, 1 + oid % 1000, oid FROM generate_series(1, $n) oid) TO '$file'");
	for my $sync (split /,/, $opt{syncs})
	{
		sync_commit($sync);
		my @variants = qw(plain few wheel statement many plpgsql);
		my %figures = rounds($opt{rounds}, \@variants,
			{ map { my $variant = $_; $variant => sub { trigger_rate($variant) } } @variants });
		my @copies = qw(plain wheel statement);
		my %copied = rounds($opt{rounds}, \@copies,
			{ map { my $variant = $_; $variant => sub { trigger_rate($variant, $file) } } @copies });
		my $row = sub {
			my ($name, $ours, $floor, $least) = @_;
			record('trigger', place => 25, variant => $name, sync => $sync, unit => 'rows/s',
				ours => $ours, floor => $floor, $least ? (reach => [ '>=', $least ]) : ());
		};
		my %least = (few => 0.90, many => 0.90, plain => 0.45);
		$row->($others{$_}, @figures{'wheel', $_}, $least{$_}) for qw(few many plpgsql plain);
		$row->("$n rows, FOR EACH STATEMENT; no trigger", @figures{qw(statement plain)}, 0.45);
		$row->("$n rows, COPY; no trigger", @copied{qw(wheel plain)}, 0.45);
		$row->("$n rows, COPY, FOR EACH STATEMENT; no trigger", @copied{qw(statement plain)}, 0.45);
	}
	run("TRUNCATE ride_$_") for qw(plain few wheel statement many plpgsql);
	clean();
	return;
}

sub row_drain
{
	my $n = $opt{burst};

	set_conf('delay_wheel.max_executors' => 1);
	for my $sync (split /,/, $opt{syncs})
	{
		sync_commit($sync);
		for my $variant ([ 'bound', "'$bound_text', oid", 0.60 ], [ 'literal', 'task_of(oid)', 0.80 ])
		{
			my ($name, $text, $reach) = @$variant;
			my %figures = rounds(
				$opt{rounds},
				[qw(ours floor)],
				{
					ours => sub { wheel_drain($n, $text) },
					floor => sub { update_loop($n, "update_$name") },
				});
			record('drain', %figures, place => 30, variant => "$name, $n, 1 executor",
				sync => $sync, unit => 'tasks/s', reach => [ '>=', $reach ]);
		}
	}
	set_conf('delay_wheel.max_executors' => undef);
	clean();
	return;
}

# Tasks with a text each, and with one text and an argument, beside the SKIP LOCKED loop, which
# knows texts only.
sub burst_row
{
	my ($name, $n, $rounds, @syncs) = @_;

	for my $sync (@syncs)
	{
		sync_commit($sync);
		my %figures = rounds(
			$rounds,
			[qw(ours bound floor)],
			{
				ours => sub { keep_progress('delay_wheel', $name, $n, wheel_drain($n, 'task_of(oid)')) },
				bound => sub { wheel_drain($n, "'$bound_text', oid") },
				floor => sub { keep_progress('SKIP LOCKED loop', $name, $n, skip_locked_drain($n)) },
			},
			$n < 200_000 ? undef : 0);
		my %row = (floor => $figures{floor}, place => 40, sync => $sync, unit => 'tasks/s', reach => [ '>=', 1.00 ]);

		record($name, %row, ours => $figures{ours}, variant => "$n, 2 executors");
		record($name, %row, ours => $figures{bound}, variant => "bound, $n, 2 executors");
	}
	clean();
	return;
}

sub row_burst { burst_row('burst', $opt{burst}, $opt{rounds}, split /,/, $opt{syncs}); return; }
sub row_million { burst_row('million', $opt{million}, $opt{million_rounds}, split /,/, $opt{million_sync}); return; }

# A burst whose tasks are the members of batches of this size, or of none.
sub batch_burst
{
	my ($n, $size) = @_;

	shop()->query("SELECT new_orders($n)");
	settle();
	my ($due) = finish_burst($n, sub {
		my $task = "delay_schedule_task('$bound_text', args => ARRAY[oid::text], due => to_timestamp($_[0])";

		shop()->query($size ? qq{
			WITH b AS MATERIALIZED (SELECT k, delay_batch() AS id FROM generate_series(0, ($n - 1) / $size) k)
			SELECT count($task, options => jsonb_build_object('batch_id', b.id)))
			FROM generate_series(1, $n) oid JOIN b ON b.k = (oid - 1) / $size} :
			  "SELECT count($task)) FROM generate_series(1, $n) oid");
	}, [ shop() ]);
	my $rate = $n / (last_commit() - $due);

	shop()->query("SELECT check_orders($n)");
	wait_for('the batches', 60, q{SELECT NOT EXISTS (SELECT FROM delay_wheel_data.batch WHERE ended_at IS NULL)}, 0.03);
	return $rate;
}

sub row_batches
{
	my $n = $opt{burst};

	sync_commit('on');
	my %figures = rounds($opt{rounds}, [qw(one tens none)], {
		one => sub { batch_burst($n, $n) }, tens => sub { batch_burst($n, 10) }, none => sub { batch_burst($n) } });
	my %row = (floor => $figures{none}, place => 45, sync => 'on', unit => 'tasks/s', reach => [ '>=', 0.90 ]);

	record('batches', %row, ours => $figures{one}, variant => "$n in one batch, beside none");
	record('batches', %row, ours => $figures{tens}, variant => "$n in batches of 10, beside none");
	clean();
	return;
}

# For the plot: how many of a great burst were done after each hundredth of the
# time.
sub keep_progress
{
	my ($who, $name, $n, $rate) = @_;

	return $rate if $name ne 'million';
	my $step = $n / $rate / 100;
	my $due = last_commit() - 100 * $step;
	my @points = map { [ split /\|/ ] } admin()->query(qq{
		SELECT round(($step * (step + 1))::numeric, 3), sum(count(*)) OVER (ORDER BY step)
		FROM (SELECT least(floor((extract(epoch FROM pg_xact_commit_timestamp(xmin)) - $due) / $step), 99) AS step
			  FROM t_order) o GROUP BY step ORDER BY step});
	# the last round's
	$results->{plots}{drain}{$who} = { n => $n, points => [ map { [ $_->[0] + 0, $_->[1] + 0 ] } @points ] };
	return $rate;
}

#
# Three bursts in a row, with and without somebody's old snapshot, under which
# nothing that is deleted or updated can be cleaned up.
#
sub three_bursts
{
	my ($held, $burst) = @_;
	my $n = $opt{burst};
	my ($holder, @rates);

	clean();
	shop()->query('SELECT new_orders(' . 3 * $n . ')');
	settle();
	$holder = old_snapshot() if $held;
	for my $k (0 .. 2)
	{
		my ($start, $end) = $burst->($k * $n + 1, ($k + 1) * $n);

		push @rates, $n / ($end - $start);
	}
	shop()->query('SELECT check_orders(' . 3 * $n . ')');
	$holder->close if $holder;
	return \@rates;
}

sub row_snapshot
{
	my $wheel = sub { wheel_burst(@_, 'task_of(oid)') };
	my $skip_locked = sub { skip_locked_burst(@_) };

	sync_commit('on');
	my %figures = rounds(
		$opt{snapshot_rounds},
		[qw(without held peer_without peer_held)],
		{
			without => sub { three_bursts(0, $wheel) },
			held => sub { three_bursts(1, $wheel) },
			peer_without => sub { three_bursts(0, $skip_locked) },
			peer_held => sub { three_bursts(1, $skip_locked) },
		},
		0);
	for my $k (0 .. 2)
	{
		my %rates = map { my $which = $_; $which => [ map { $_->[$k] } @{ $figures{$which} } ] } keys %figures;

		record('snapshot', place => 50, variant => 'burst ' . ($k + 1), sync => 'on',
			unit => 'tasks/s', ours => $rates{held}, floor => $rates{without}, reach => [ '>=', 0.90 ],
			note => sprintf('the SKIP LOCKED loop: %.2f',
				median(map { $rates{peer_held}[$_] / $rates{peer_without}[$_] } 0 .. $#{ $rates{held} })));
	}
	clean();
	return;
}

#
# What recording the ends of tasks costs, where they come fastest.
#
my @history_tables = map { "delay_wheel_data.history_$_" } 0 .. 2;

sub history_drain
{
	my ($n, $level) = @_;

	set_conf('delay_wheel.history' => $level);
	run('TRUNCATE ' . join(', ', @history_tables));
	my $rate = wheel_drain($n, "'$bound_text', oid");
	my $recorded = value('SELECT count(*) FROM delay_wheel.history');
	die "$recorded rows of history after $n tasks\n" if $recorded != ($level eq 'all' ? $n : 0);
	return $rate;
}

sub row_history
{
	my $n = $opt{burst};
	my $bytes = 0;

	for my $sync (split /,/, $opt{syncs})
	{
		sync_commit($sync);
		my %figures = rounds(
			$opt{rounds},
			[qw(off errors all)],
			{
				off => sub { history_drain($n, 'off') },
				errors => sub { history_drain($n, 'errors') },
				all => sub {
					my $rate = history_drain($n, 'all');
					$bytes = value('SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE oid IN (' .
							join(', ', map { "'$_'::regclass" } @history_tables) . ')');
					return $rate;
				},
			});
		for my $line ([ errors => 0.97 ], [ all => 0.80 ])
		{
			my ($level, $reach) = @$line;

			record('history', place => 55, variant => "$level, $n, 2 executors", sync => $sync, unit => 'tasks/s',
				ours => $figures{$level}, floor => $figures{off}, reach => [ '>=', $reach ],
				$level eq 'all' ? (note => sprintf('%.0f bytes a row', $bytes / $n)) : ());
		}
	}
	set_conf('delay_wheel.history' => undef);
	run('TRUNCATE ' . join(', ', @history_tables));
	clean();
	return;
}

#
# What groups cost, whose limit is not reached: a backlog in a queue with a
# thousand of them, beside the same in a queue without.
#
my @group_queues = (plain => 'bench plain', groups => 'bench groups');

sub group_drain
{
	my ($n, $queue, $text, $args) = @_;
	my $ready = "SELECT ready >= $n FROM delay_wheel.queues WHERE name = '$queue'";
	my $done = value(q{SELECT done FROM delay_wheel.status WHERE database = current_database()});
	my $group = $queue eq 'bench groups' ? q{, group_key => 'g' || oid % 1000} : '';

	clean();
	shop()->query("SELECT new_orders($n)");
	run("SELECT delay_wheel.pause_queue('$queue')");
	shop()->query("SELECT count(delay_schedule_task($text, queue => '$queue'$args$group)) FROM generate_series(1, $n) oid");
	settle();
	wait_for("$n tasks are ready", 60 + $n / 1000, $ready);
	my $begun = time();
	run("SELECT delay_wheel.resume_queue('$queue')");
	wait_for("$n tasks", 60 + $n / 1000,
		'SELECT done >= ' . ($done + $n) . ' FROM delay_wheel.status WHERE database = current_database()', 0.01);
	my $rate = $n / (time() - $begun);
	shop()->query("SELECT check_orders($n)") if $text =~ /update/;
	watch_memory();
	return $rate;
}

sub row_groups
{
	my $n = $opt{groups};
	my %queue = @group_queues;

	sync_commit('on');
	run("SELECT delay_wheel.create_queue('$queue{plain}', users => '{shop}'), delay_wheel.create_queue('$queue{groups}', groups => true, users => '{shop}', options => '{\"group_max_running\": 10}')");
	for my $task ([ 'an UPDATE', "'$bound_text'", ', args => ARRAY[oid]' ], [ 'SELECT 1', q{'SELECT 1'}, '' ])
	{
		my ($name, @task) = @$task;
		my %figures = rounds(
			$opt{rounds},
			[qw(ours floor)],
			{
				ours => sub { group_drain($n, $queue{groups}, @task) },
				floor => sub { group_drain($n, $queue{plain}, @task) },
			});
		record('groups', %figures, place => 57, variant => "$name, $n, 2 executors", sync => 'on',
			unit => 'tasks/s', reach => [ '>=', 0.90 ]);
	}
	run("SELECT delay_wheel.drop_queue(name) FROM unnest(ARRAY['$queue{plain}', '$queue{groups}']) name");
	clean();
	return;
}

#
# WAL from scheduling to done.  Whole pages are not counted, of which there are
# many after a checkpoint and few later: full_page_writes is off here.
#
sub wal_bytes
{
	my ($n, $work) = @_;

	clean();
	shop()->query("SELECT new_orders($n)");
	settle();
	my $before = value('SELECT pg_current_wal_insert_lsn()');
	$work->();
	my $bytes = value("SELECT pg_current_wal_insert_lsn() - '$before'") / $n;
	shop()->query("SELECT check_orders($n)");
	return $bytes;
}

sub floor_wal
{
	my ($n, $insert, $batch) = @_;
	my $first = value('SELECT last_value + is_called::int FROM floor_task_id');

	$insert->();
	shop()->query("CALL delete_and_update($first, $n, $batch)");
	return;
}

sub row_wal
{
	my $n = $opt{wal};
	my $has_batches = value(q{SELECT count(*) FROM pg_settings WHERE name = 'delay_wheel.batch_tasks'});
	my $batch = $has_batches ? value('SHOW delay_wheel.batch_tasks') : 100;

	sync_commit('on');
	set_conf(full_page_writes => 'off', 'delay_wheel.max_executors' => 1);
	my %figures = rounds(
		$opt{wal_rounds},
		[qw(ours floor)],
		{
			ours => sub {
				wal_bytes($n, sub { wheel_burst(1, $n, 'task_of(oid)') });
			},
			floor => sub {
				wal_bytes($n, sub {
						floor_wal($n, sub {
							shop()->query("INSERT INTO floor_task (due, sql) SELECT now(), task_of(oid) FROM generate_series(1, $n) oid")
						}, $batch) });
			},
		});
	record('wal', %figures, place => 60, variant => "$n scheduled at once, done by $batch", sync => 'on',
		unit => 'bytes/task', reach => [ '<=', 1.05 ]);

	set_conf('delay_wheel.batch_tasks' => 1) if $has_batches;
	my $single = int($n / 10) || 1;
	%figures = rounds(
		$opt{wal_rounds},
		[qw(ours floor)],
		{
			ours => sub {
				wal_bytes($single, sub { one_by_one($single) });
			},
			floor => sub {
				wal_bytes($single, sub {
						floor_wal($single, sub {
							shop()->query("DO \$\$ BEGIN FOR oid IN 1 .. $single LOOP
								INSERT INTO floor_task (due, sql) VALUES (now(), task_of(oid)); COMMIT; END LOOP; END \$\$")
						}, 1) });
			},
		});
	record('wal', %figures, place => 60, variant => "$single, each in a transaction of its own", sync => 'on',
		unit => 'bytes/task');
	set_conf('delay_wheel.batch_tasks' => undef) if $has_batches;
	set_conf(full_page_writes => undef, 'delay_wheel.max_executors' => undef);
	clean();
	return;
}

# Tasks that are scheduled one by one, and due at once.
sub one_by_one
{
	my ($n) = @_;
	my $done = value('SELECT done FROM delay_wheel.status WHERE database = current_database()');

	shop()->query("DO \$\$ BEGIN FOR oid IN 1 .. $n LOOP
		PERFORM delay_schedule('0', task_of(oid)); COMMIT; END LOOP; END \$\$");
	wait_for("$n tasks", 120, 'SELECT done >= ' . ($done + $n) . ' FROM delay_wheel.status WHERE database = current_database()');
	return;
}

#
# Lateness under light load: a hundred tasks a second, and in the same seconds,
# between them, a program that does nothing but sleep until given times.
#
my $interval_us = 10_000;

# Orders, and for each a due time, of which the statement makes what it wants.
sub schedule_evenly
{
	my ($count, $start_us, $statement) = @_;

	clean();
	shop()->query("SELECT new_orders($count)");
	settle();
	shop()->query(sprintf($statement,
		"SELECT oid, to_timestamp(0) + ($start_us + (oid - 1) * ${interval_us}::bigint) * interval '1 us' AS due
		 FROM generate_series(1, $count) oid"));
	die "the orders were due before they had their tasks\n" if time() * 1e6 > $start_us - 100_000;
	return;
}

# From each order's due time to the moment at which its task's SQL looked at the
# clock, in microseconds.
sub lateness_of
{
	my ($start_us, $interval, $table) = @_;

	return [ admin()->query(qq{
		SELECT round(extract(epoch FROM at) * 1000000 - $start_us - (oid - 1) * ${interval}::bigint) FROM $table}) ];
}

# For the plot.
sub keep_lateness
{
	my ($who, $late) = @_;

	$results->{plots}{lateness}{$who} = [ map { $_ + 0 } quantiles($late, map { $_ / 500 } 0 .. 500) ];
	return;
}

sub lateness_round
{
	my $count = $opt{lateness_seconds} * 1_000_000 / $interval_us;
	my $start_us = int(time() + 3) * 1_000_000;

	schedule_evenly($count, $start_us, 'SELECT count(delay_schedule_at(due, timed_task_of(oid))) FROM (%s) x');
	open2(my $out, my $in, $ENV{DW_BENCH_SLEEP}, $start_us + $interval_us / 2, $interval_us, $count, 'all');
	my @floor = map { $_ + 0 } readline $out;
	die "the program that sleeps has failed\n" if @floor != $count;
	wait_for('all orders', 60, "SELECT count(*) = $count FROM t_order WHERE status > 0");
	shop()->query("SELECT check_orders($count)");
	my $late = lateness_of($start_us, $interval_us, 't_order');

	die 'a task began ' . -min(@$late) . " us early\n" if min(@$late) < 0;
	return ($late, \@floor);
}

sub row_lateness
{
	my (%ours, %floor, @all, @all_floor);
	my %at = (p50 => 0.5, p99 => 0.99, max => 1);

	sync_commit('on');
	for (1 .. ($pending ? 1 : $opt{lateness_rounds}))
	{
		my ($late, $floor) = lateness_round();

		for my $name (keys %at)
		{
			push @{ $ours{$name} }, map { $_ / 1000 } quantiles($late, $at{$name});
			push @{ $floor{$name} }, map { $_ / 1000 } quantiles($floor, $at{$name});
		}
		push @all, @$late;
		push @all_floor, @$floor;
	}
	for my $line ([ p50 => 0.2 ], [ p99 => 0.5 ], ['max'])
	{
		my ($name, $limit) = @$line;

		record('lateness', place => 70, variant => $name, sync => 'on', unit => 'ms',
			ours => $ours{$name}, floor => $floor{$name},
			difference => [ map { $ours{$name}[$_] - $floor{$name}[$_] } 0 .. $#{ $ours{$name} } ],
			defined $limit ? (reach => [ '<=', $limit ]) : ());
	}
	if ($pending == 0)
	{
		keep_lateness('delay_wheel', \@all);
		keep_lateness('timerfd, nothing else', \@all_floor);
		write_results();
	}
	clean();
	return;
}

# What others do: nothing to reach.
sub record_peer
{
	my ($variant, $late) = @_;

	keep_lateness($variant, $late);
	record('peers', place => 75, variant => $variant, unit => 'ms', ours => [ map { $_ / 1000 } quantiles($late, 0.5) ],
		note => sprintf('p99 %.0f, max %.0f', map { $_ / 1000 } quantiles($late, 0.99, 1)));
	return;
}

sub row_poller
{
	my $count = $opt{lateness_seconds} * 1_000_000 / $interval_us;
	my $start_us = int(time() + 3) * 1_000_000;
	my @pollers = map { kept_session("drainer $_", 'shop') } 1, 2;

	sync_commit('on');
	schedule_evenly($count, $start_us, 'INSERT INTO floor_task (due, sql) SELECT due, timed_task_of(oid) FROM (%s) x');
	$_->send('CALL skip_locked_poll(' . 'to_timestamp(' . ($start_us / 1e6 + $opt{lateness_seconds} + 0.3) . '))')
	  for @pollers;
	$_->answer for @pollers;
	shop()->query("SELECT check_orders($count)");
	record_peer('SKIP LOCKED poller, each 100 ms', lateness_of($start_us, $interval_us, 't_order'));
	clean();
	return;
}

#
# pg_cron with the articles' scheme, in two tables at once: a scan each minute,
# for orders of a whole minute, and one each second.  It has to be preloaded, so
# the server is started again with it, and afterwards without.
#
sub row_cron
{
	my @variants = ('pg_cron, scan each minute', 'pg_cron, scan each second');

	if ($opt{cron} ne 'yes')
	{
		record('peers', place => 75, variant => $_, unit => 'ms', note => "not measured: $opt{cron}") for @variants;
		return;
	}
	stop_server();
	start_server('shared_preload_libraries=delay_wheel,pg_cron');
	run('CREATE EXTENSION IF NOT EXISTS pg_cron');
	my $knows_seconds = value(q{SELECT string_to_array(substring(extversion, '^[0-9]+[.][0-9]+'), '.')::int[] >= '{1,5}' FROM pg_extension WHERE extname = 'pg_cron'});

	my %table = (each_minute => [ 600, 100_000 ], each_second => [ 100 * $opt{lateness_seconds}, 10_000 ]);
	# a whole minute, with time for pg_cron to see its jobs before
	my $start_us = (int((time() + 5) / 60) + 1) * 60_000_000;
	for my $name (sort keys %table)
	{
		my ($count, $interval) = @{ $table{$name} };

		run(qq{TRUNCATE $name;
			INSERT INTO $name (oid, finish_time)
			SELECT oid, to_timestamp(0) + ($start_us + (oid - 1) * ${interval}::bigint) * interval '1 us' - interval '48 hours'
			FROM generate_series(1, $count) oid});
	}
	run('VACUUM ANALYZE each_minute, each_second');
	run(q{SELECT cron.schedule('minute', '* * * * *', 'CALL scan(''each_minute'')')});
	run($knows_seconds eq 't'
		? q{SELECT cron.schedule('second', '1 seconds', 'CALL scan(''each_second'')')}
		: q{SELECT cron.schedule('second', '* * * * *', 'CALL scan_each_second(''each_second'')')});
	sleep(max(0, $start_us / 1e6 + 59 - time()));
	wait_for("$_ by pg_cron", 90, "SELECT count(*) = 0 FROM $_ WHERE status = 0") for sort keys %table;
	run(q{SELECT cron.unschedule('minute'), cron.unschedule('second')});
	shop()->query("SELECT check_orders($table{$_}[0], '$_')") for sort keys %table;
	record_peer($variants[0], lateness_of($start_us, $table{each_minute}[1], 'each_minute'));
	record_peer($variants[1], lateness_of($start_us, $table{each_second}[1], 'each_second'));
	stop_server();
	start_server();
	return;
}

#
# Idle: what our processes, and two pollers, do while nothing is due.
#
sub switches
{
	my ($pid) = @_;

	open(my $status, '<', "/proc/$pid/status") or die "process $pid has ended\n";
	return sum(map { /^(?:non)?voluntary_ctxt_switches:\s+(\d+)/ ? $1 : 0 } readline $status);
}

# Context switches of the processes and transactions in the database, until now.
sub activity
{
	my ($outside, @pids) = @_;

	return (sum(map { switches($_) } @pids),
		$outside->value(q{SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench'}));
}

# How much of both there is in so many seconds, for a minute.
sub activity_per_minute
{
	my ($outside, $seconds, @pids) = @_;
	my @before = activity($outside, @pids);

	sleep($seconds);
	my @after = activity($outside, @pids);
	return map { ($after[$_] - $before[$_]) * 60 / $seconds } 0, 1;
}

sub pids_of
{
	my ($outside, $condition) = @_;

	return $outside->query("SELECT pid FROM pg_stat_activity WHERE $condition");
}

sub row_idle
{
	my $n = $opt{idle_pending};

	# an executor stays, to be counted, too
	set_conf('delay_wheel.executor_idle_timeout' => '1d');
	sync_commit('on');
	clean();
	shop()->query('SELECT new_orders(1)');
	shop()->query("SELECT count(delay_schedule('1 day', task_of(oid))) FROM generate_series(1, $n) oid") if $pending == 0;
	one_by_one(1);
	close_sessions();

	my $outside = session('postgres', 'outside', 'postgres');
	my @ours = pids_of($outside, q{backend_type LIKE 'delay_wheel %'});
	my $deadline = time() + 120;
	while (sum(activity_per_minute($outside, min(2, $opt{idle_seconds}), @ours)) > 0)
	{
		die "our processes do not come to rest\n" if time() > $deadline;
	}
	my ($switches, $statements) = activity_per_minute($outside, $opt{idle_seconds}, @ours);
	my $counted = scalar(@ours) . ' processes';
	die "processes came or went\n" if join(' ', sort @ours) ne join(' ', sort(pids_of($outside, q{backend_type LIKE 'delay_wheel %'})));

	my $until = time() + 3600;
	my @pollers = map { kept_session("drainer $_", 'shop') } 1, 2;
	$_->send("CALL skip_locked_poll(to_timestamp($until))") for @pollers;
	sleep(1);
	my ($their_switches) = activity_per_minute($outside, max(1, $opt{idle_seconds} / 6),
		pids_of($outside, q{query LIKE 'CALL skip_locked_poll%'}));
	$outside->query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL skip_locked_poll%'});
	$outside->close;
	close_sessions();

	my $tasks = $pending || $n;
	record('idle', place => 80, variant => "wake-ups, $tasks pending", unit => 'a minute', ours => [$switches],
		reach => [ '<=', 0 ], note => sprintf('%s; two SKIP LOCKED pollers: %.0f', $counted, $their_switches));
	record('idle', place => 80, variant => "statements, $tasks pending", unit => 'a minute', ours => [$statements],
		reach => [ '<=', 0 ]);
	set_conf('delay_wheel.executor_idle_timeout' => undef);
	clean();
	return;
}

#
# Start: from "ready" in the server's log to the effect of a task that fell due
# while the server was down.
#
sub start_time
{
	my ($mode) = @_;

	clean();
	shop()->query('SELECT new_orders(1)');
	run('CHECKPOINT');
	shop()->query(q{SELECT delay_schedule('1 second', timed_task_of(1))});
	stop_server($mode);
	sleep(1.1);
	my $position = log_size();
	start_server();
	wait_for('the first task after the start', 120, 'SELECT status > 0 FROM t_order', 0.02);
	my ($ready) = log_after($position) =~ /^(\S+ \S+ \S+) .*database system is ready to accept connections/m
	  or die "the server's log does not say that it is ready\n";
	shop()->query('SELECT check_orders(1)');
	return last_commit() - value("SELECT extract(epoch FROM '$ready'::timestamptz)");
}

sub row_start
{
	sync_commit('on');
	for my $mode ([ fast => 'after a stop' ], [ immediate => 'after a crash' ])
	{
		my @seconds = map { start_time($mode->[0]) } 1 .. $opt{start_rounds};

		record('start', place => 90, variant => $mode->[1], unit => 's', ours => \@seconds, reach => [ '<=', 1 ]);
	}
	sync_commit('on');
	return;
}

#
# Memory: more tasks than the ring can hold, all of them within its reach.
#
sub shared_memory
{
	return value(q{SELECT sum(allocated_size) FROM pg_shmem_allocations WHERE name LIKE 'delay_wheel%'});
}

sub row_memory
{
	my $setting = value(q{SELECT setting::bigint * 1024 FROM pg_settings WHERE name = 'delay_wheel.ring_memory'});
	# 42 entries in each kB
	my $n = int($opt{memory_fill} * $setting / 1024 * 42);
	my $before = shared_memory();
	my $held = -1;

	clean();
	watch_memory();
	# in transactions that tell the timer of each task, which large ones do not
	my $loops = int($n / 500) || 1;
	shop()->query("DO \$\$
		DECLARE due CONSTANT timestamptz := now() + interval '30 min';
		BEGIN
			FOR i IN 0 .. $loops - 1 LOOP
				PERFORM count(delay_schedule_at(due + interval '15 min' * oid / $n, task_of(oid)))
				FROM generate_series(i * 500 + 1, (i + 1) * 500) oid;
				COMMIT;
			END LOOP;
		END \$\$");
	while ($held != $memory{most})
	{
		$held = $memory{most};
		for (1 .. 10)
		{
			watch_memory();
			sleep(0.1);
		}
	}
	my $after = shared_memory();
	die "shared memory has changed from $before to $after bytes\n" if $before != $after;
	record('memory', place => 95, variant => "$n tasks in reach", unit => 'of ring_memory', ours => [ $memory{most} / $setting ],
		reach => [ '<=', 1 ], note => sprintf('all shared memory of delay_wheel: %.1f MB before and after', $after / 1048576));
	forget_memory();
	return;
}

#
# The rates against the number of pending tasks, for the plot.
#
sub row_scale
{
	my $n = $opt{burst};

	sync_commit('off');
	my %figures = rounds(
		$opt{scale_rounds},
		[qw(schedule insert drain skip_locked)],
		{
			schedule => sub { insert_rate(1, '48 hours', 'schedule.pgbench', 'delay_wheel_data.task') },
			insert => sub { insert_rate(1, '48 hours', 'insert.pgbench', 'floor_task') },
			drain => sub { clean(); wheel_drain($n, 'task_of(oid)') },
			skip_locked => sub { clean(); skip_locked_drain($n) },
		});
	$results->{plots}{scale}{$pending} = { map { $_ => median(@{ $figures{$_} }) } keys %figures };
	write_results();
	say_progress('  %-34s %s', "scale $pending", join(', ', map { sprintf('%s %.4g', $_, median(@{ $figures{$_} })) } sort keys %figures));
	clean();
	return;
}

# So many tasks for the next two days, in both tables.
sub fill
{
	my ($count) = @_;
	my $due = q{now() + interval '1 hour' + random() * interval '48 hours'};

	sync_commit('off');
	clean();
	while ($pending < $count)
	{
		my $n = min($count - $pending, 1_000_000);

		shop()->query("SELECT count(delay_schedule_at($due, task_of(oid))) FROM generate_series(1, $n) oid");
		shop()->query("INSERT INTO floor_task (due, sql) SELECT $due, task_of(oid) FROM generate_series(1, $n) oid");
		$pending += $n;
	}
	for my $table (qw(delay_wheel_data.task floor_task))
	{
		run("VACUUM ANALYZE $table");
		$mark{$table} = value("SELECT max(id) FROM $table");
		my $there = value("SELECT count(*) FROM $table");
		die "$there tasks in $table, not $count\n" if $there != $count;
	}
	run('CHECKPOINT');
	return;
}

#
# All of it.
#
my %row = (
	schedule => \&row_schedule, bulk => \&row_bulk, trigger => \&row_trigger, drain => \&row_drain, burst => \&row_burst, batches => \&row_batches,
	million => \&row_million, snapshot => \&row_snapshot, history => \&row_history, groups => \&row_groups, wal => \&row_wal, lateness => \&row_lateness,
	poller => \&row_poller, cron => \&row_cron, idle => \&row_idle, start => \&row_start,
	memory => \&row_memory, scale => \&row_scale,
	map { my ($name, $measure) = @$_; $name => sub { $measure->(\%opt, \&rounds, \&record, \&sync_commit, \&insert_rate) } }
	  [ messages => \&measure_messages ], [ clients => \&measure_clients ], [ beside => \&measure_beside ], [ day => \&measure_day ],
	  [ databases => \&measure_databases ], [ midnight => \&measure_midnight ], [ isolation => \&measure_isolation ], [ citus => \&measure_citus ]);
my @errors;

# A row that fails has no figure, and the run has failed; the others go on.
sub measure
{
	my ($name) = @_;
	my $begun = time();

	return if %only && !$only{$name};
	say_progress('%s, %d pending', $name, $pending);
	my $rows = $results->{rows};
	delete @$rows{ grep { $rows->{$_}{name} eq $name && $rows->{$_}{pending} == $pending } keys %$rows };
	if (!eval { $row{$name}->(); 1 })
	{
		my $error = $@ =~ s/\s*\n\s*/; /gr;

		push @errors, "$name, $pending pending: $error\n";
		record($name, place => 100, variant => '', unit => '', note => "**failed**: $error");
		close_sessions();
		eval { stop_server() };
		start_server();
		run('ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()');
		clean();
	}
	say_progress('  (%.0f s)', time() - $begun);
	return;
}

if ($opt{pass} ne 'pending')
{
	measure($_) for qw(schedule clients bulk trigger drain burst batches million snapshot midnight history groups wal day lateness beside poller cron idle start databases memory messages isolation citus);
}
if ($opt{pass} ne 'empty' && grep { !%only || $only{$_} } split(/,/, $opt{pending_rows}), 'scale')
{
	measure('scale');
	if (!%only || $only{scale})
	{
		for my $count (grep { $_ < $opt{rows} } split /,/, $opt{scale_at})
		{
			fill($count);
			measure('scale');
		}
	}
	my $begun = time();
	say_progress('filling up to %d pending', $opt{rows});
	fill($opt{rows});
	say_progress('  (%.0f s)', time() - $begun);
	measure($_) for 'scale', split /,/, $opt{pending_rows};
}
close_sessions();
print STDERR "FAILED: $_" for @errors;
exit(@errors ? 1 : 0);
