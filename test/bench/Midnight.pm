# The row of the benchmark about a midnight: very many tasks of one due time, in ten lanes or
# in one, beside a report, which is a transaction with an old snapshot, and beside a
# checkpoint; and again an hour later.  Loaded by bench.pl.

package Midnight;

use strict;
use warnings;

use Bench;
use Burst;
use Exporter 'import';
use List::Util qw(sum);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(measure_midnight);

my $owners = 10;
# The tasks of somebody else, of which so many seconds lie between two.
my $between = 0.05;
my $others_text = 'update other_order set stars=stars+5, status=status+1, at=clock_timestamp() where oid=$1';

my $opt;

# Roles with a lane each, and one more whose tasks shall be on time meanwhile.
sub create_roles
{
	for my $role (map({ "owner$_" } 1 .. $owners), 'other')
	{
		run("CREATE ROLE $role LOGIN; SELECT delay_wheel.allow('$role'); GRANT SELECT, UPDATE ON t_order TO $role");
	}
	run('CREATE TABLE other_order (LIKE t_order INCLUDING ALL, due timestamptz NOT NULL); ALTER TABLE other_order OWNER TO other');
	return;
}

# Schedules a part of the orders by each session, all at once.
sub schedule_parts
{
	my ($first, $last, $due, @sessions) = @_;
	my $from = $first;

	for my $i (0 .. $#sessions)
	{
		my $to = $first - 1 + int(($last - $first + 1) * ($i + 1) / @sessions);

		$sessions[$i]->send("SELECT count(delay_schedule_at(to_timestamp($due), '$bound_text', oid)) FROM generate_series($from, $to) oid");
		$from = $to + 1;
	}
	$_->answer for @sessions;
	return;
}

# Orders of somebody else, one after the other from the due time on, for longer than the
# burst should take.
sub schedule_others
{
	my ($n, $due) = @_;
	my $count = 1 + int($n / 20_000 / $between);

	kept_session('other', 'other')->query(qq{TRUNCATE other_order;
		INSERT INTO other_order (oid, due) SELECT i, to_timestamp($due + 0.005 + (i - 1) * $between) FROM generate_series(1, $count) i;
		SELECT count(delay_schedule_at(due, '$others_text', oid)) FROM other_order});
	return;
}

# Those that have fallen due by then must be done, once; the others are cancelled.  Returns
# how many milliseconds late they were.
sub end_others
{
	my ($end) = @_;
	my $other = kept_session('other', 'other');
	my $before = "due < greatest(to_timestamp($end), (SELECT min(due) + interval '1 ms' FROM other_order))";

	wait_for('the tasks of the other role', 30, "SELECT count(*) = 0 FROM other_order WHERE status = 0 AND $before");
	$other->query('SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE owner = current_user');
	my @late = $other->query("SELECT 1000 * extract(epoch FROM at - due) FROM other_order WHERE $before");
	$other->query("DELETE FROM other_order WHERE status = 0; SELECT check_orders((SELECT count(*) FROM other_order), 'other_order')");
	die "a task of the other role began early\n" if grep { $_ < 0 } @late;
	return \@late;
}

# A checkpoint shortly after the due time: at once, or spread as usual.  The checkpointer
# begins the latter when it hears that the last one is longer ago than allowed.
sub begin_checkpoint
{
	my ($n) = @_;

	sleep($n / 2_000_000);
	if ($opt->{midnight_checkpoint} eq 'spread')
	{
		run(q{ALTER SYSTEM SET checkpoint_timeout = '30s'; SELECT pg_reload_conf()});
	}
	else
	{
		kept_session('checkpoint', 'postgres')->send('CHECKPOINT');
	}
	return;
}

sub end_checkpoint
{
	if ($opt->{midnight_checkpoint} eq 'spread')
	{
		set_conf(checkpoint_timeout => undef);
	}
	else
	{
		kept_session('checkpoint', 'postgres')->answer;
	}
	return;
}

sub position { return value('SELECT pg_current_wal_insert_lsn()'); }

sub wal_since { return value("SELECT pg_current_wal_insert_lsn() - '$_[0]'"); }

# One burst, after all is vacuumed that can be.
sub midnight
{
	my ($first, $last, @sessions) = @_;
	my $n = $last - $first + 1;
	my (%result, $position, $scheduled);

	settle();
	my $settled = time();
	$result{dead} = value(q{SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = 'delay_wheel_data.task'::regclass});
	$position = position();
	my ($due) = finish_burst($n, sub {
			my ($due) = @_;
			schedule_parts($first, $last, $due, @sessions);
			schedule_others($n, $due);
			$scheduled = wal_since($position);
		}, [ @sessions, kept_session('other', 'other') ],
		not_before => $opt->{midnight_checkpoint} eq 'spread' ? $settled + 30 : 0,
		done => "SELECT ($done_here) - count(*) FROM other_order WHERE status > 0",
		at_due => sub { begin_checkpoint($n) });
	my $end = last_commit();

	$result{wal} = wal_since($position) / $n;
	$result{scheduling} = $scheduled / $n;
	end_checkpoint();
	$result{seconds} = $end - $due;
	$result{rate} = $n / ($end - $due);
	$result{late} = end_others($end);
	my %size = table_sizes();
	$result{size} = sum(values %size) / 1e6;
	$result{table} = $size{task} / 1e6;
	return \%result;
}

# A midnight under a report, one more while the report is still open, and one as the first
# after its end.
sub three_midnights
{
	my (@sessions) = @_;
	my $n = $opt->{midnight};
	my @results;

	run('TRUNCATE delay_wheel_data.task');
	shop()->query('SELECT new_orders(' . 3 * $n . ')');
	my $report = old_snapshot();
	push @results, midnight(1, $n, @sessions);
	push @results, midnight($n + 1, 2 * $n, @sessions);
	$report->close;
	# pages of indexes that one VACUUM has emptied can be used again after the next one
	run('VACUUM delay_wheel_data.task; SELECT pg_current_xact_id(); VACUUM delay_wheel_data.task');
	$report = old_snapshot();
	push @results, midnight(2 * $n + 1, 3 * $n, @sessions);
	$report->close;
	shop()->query('SELECT check_orders(' . 3 * $n . ')');
	return @results;
}

sub measure_midnight
{
	($opt, undef, my $record, my $sync_commit) = @_;
	my $n = $opt->{midnight};
	my %lanes = ("$owners lanes" => [ map { [ "owner$_" ] } 1 .. $owners ], '1 lane' => [ ['shop'] ]);

	$sync_commit->('on');
	shop()->query('SELECT new_orders(1)');
	create_roles();
	for my $lanes ("$owners lanes", '1 lane')
	{
		my (@first, @open, @again);

		for (1 .. $opt->{midnight_rounds})
		{
			my @sessions = map { kept_session(@$_, @$_) } @{ $lanes{$lanes} };
			my @results = three_midnights(@sessions);

			push @first, $results[0];
			push @open, $results[1];
			push @again, $results[2];
		}
		my $of = sub { my ($name, @results) = @_; return [ map { $_->{$name} } @results ] };
		my $line = sub {
			my ($what, $unit, %row) = @_;
			$record->('midnight', place => 52, variant => "$n, $lanes" . ($what && ", $what"), sync => 'on', unit => $unit, %row);
		};

		$line->('', 'tasks/s', ours => $of->('rate', @first), note => sprintf('%.1f s from the due time to the last commit', median(@{ $of->('seconds', @first) })));
		$line->('an hour later', 'tasks/s', ours => $of->('rate', @again), floor => $of->('rate', @first), reach => [ '>=', 0.90 ]);
		$line->('an hour later, under the same report', 'tasks/s', ours => $of->('rate', @open), floor => $of->('rate', @first), reach => [ '>=', 0.90 ]);
		my @late = map { [ map { @$_ } @{ $of->('late', @$_) } ] } \@first, \@open, \@again;
		for my $quantile ([ p50 => 0.5 ], [ p99 => 0.99 ], [ max => 1 ])
		{
			my ($name, $fraction) = @$quantile;
			$line->("lateness of another owner's, $name", 'ms', ours => [ map { quantiles($_, $fraction) } @late ],
				note => 'of ' . sum(map { scalar @$_ } @late) . ' tasks, in three bursts');
		}
		$line->('WAL', 'bytes/task', ours => $of->('wal', @first), note => sprintf('with whole pages; scheduling alone %.0f', median(@{ $of->('scheduling', @first) })));
		$line->('table and indexes', 'MB', ours => $of->('size', @again),
			note => sprintf('the table alone %.1f; both after the first %.1f, after one more under the same report %.1f', median(@{ $of->('table', @again) }),
				map { median(@{ $of->('size', @$_) }) } \@first, \@open));
		$line->('dead rows after VACUUM, the report ended', 'rows', ours => $of->('dead', @again), reach => [ '<=', 0 ],
			note => sprintf('%.0f under it', median(@{ $of->('dead', @open) })));
	}
	run('TRUNCATE delay_wheel_data.task; DROP TABLE other_order');
	stop_server();
	start_server();
	return;
}

1;
