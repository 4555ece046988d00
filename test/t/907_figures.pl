# The figures of the benchmark in the documents are those of the runs that test/bench/results
# keeps: README.md there (of figures.json) has that of test/bench/run, peers.md (of peers.json)
# that of test/bench/peers/run.
#
# Compared are the rows that doc/benchmarks.md shows, the tables of peers in README.md and
# doc/comparison.md, and figures in running text: @claims has where they stand, and of which row
# they are.  A figure may be rounded, to three digits or more.  After a new run this test names
# the figures that have to change.

use strict;
use warnings;

use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = dirname(__FILE__) . '/../..';
my $results = "$root/test/bench/results";

#
# Figures.
#
my $figure = qr/\d(?:[\d,]*\d)?(?:\.\d+)?/;

sub value_of
{
	my $value = $_[0] =~ s/,//gr;

	return $value =~ s/k\z// ? 1000 * $value : $value;
}

# Half of the last place that the figure has.
sub tolerance_of
{
	my ($digits, $decimals, $k) = $_[0] =~ s/,//gr =~ /^(\d+)(?:\.(\d+))?(k?)\z/ or die "not a figure: $_[0]";
	my $place = -length($decimals // '');

	if (!defined $decimals && length $digits > 3)
	{
		my ($zeros) = $digits =~ /(0*)\z/;

		$place = length($digits) - 3;
		$place = length $zeros if length $zeros < $place;
	}
	return 0.5 * 10**$place * ($k ? 1000 : 1);
}

sub is_rounded
{
	my ($shown, $exact) = @_;

	return defined $exact && abs(value_of($shown) - $exact) <= tolerance_of($shown) * 1.000001;
}

# First that a wrong one is noticed.
ok(is_rounded(@$_), "$_->[0] is $_->[1]")
  for [ '150,954', 150954 ], [ '151,000', 150954 ], [ '0.12', 0.115 ], [ '7', 6.62 ], [ '383k', 382551 ], [ '8.7k', 8736 ], [ '10,300', 10325 ], [ '0', 0 ];
ok(!is_rounded(@$_), "$_->[0] is not " . ($_->[1] // 'there'))
  for [ '77,000', 150954 ], [ '150,000', 150954 ], [ '13', 6.62 ], [ '0.1', 0.2 ], [ '384k', 382551 ], [ '9,600', 10325 ], [ '10,000', 10325 ], [ '1', undef ];

#
# Tables: the rows of a document, or of a part of it, by their first column.
#
sub rows_of
{
	my ($text) = @_;
	my %rows;

	for my $line ($text =~ /^\|(.*)\|$/mg)
	{
		my ($name, @columns) = map { s/^ +| +\z//gr } split /\|/, $line, -1;

		$rows{$name} //= \@columns;
	}
	return \%rows;
}

# From a heading up to the next one.
sub part_of
{
	my ($text, $heading) = @_;
	my ($part) = $text =~ /^#+ \Q$heading\E\n(.*?)(?=^#|\z)/ms or die "there is no \"$heading\"";

	return $part;
}

sub median_of
{
	my ($rows, $name, $column) = @_;
	my ($median) = ($rows->{$name} // die "there is no row \"$name\"")->[$column] =~ /\*\*($figure)\*\*/;

	return defined $median ? value_of($median) : undef;
}

#
# The tables are those of the figures that were measured.
#
my %made = (
	'README.md' => [ "$root/test/bench/report.pl", qw(figures.json machine) ],
	'peers.md' => [ "$root/test/bench/peers/report.pl", qw(peers.json) ]);
for my $table (sort keys %made)
{
	my ($program, @from) = @{ $made{$table} };
	my $dir = PostgreSQL::Test::Utils::tempdir();

	append_to_file("$dir/$_", slurp_file("$results/$_")) for @from;
	run_command([ 'perl', $program, $dir ]);
	ok(slurp_file("$dir/$table") eq slurp_file("$results/$table"), "test/bench/results/$table is made of @from");
}

my $run = slurp_file("$results/README.md");
my $benchmarks = slurp_file("$root/doc/benchmarks.md");
my ($shown) = $benchmarks =~ /<!-- Results -->\n(.*)<!-- End of results -->/s;
my ($none, $many) = map { rows_of(part_of($run, $_)) } 'With no other tasks pending', 'With 1,000,000 other tasks pending';

for my $heading ('With no other tasks pending', 'With 1,000,000 other tasks pending')
{
	my %is_row = map { $_ => 1 } split /\n/, part_of($run, $heading);
	my @rows = grep { /^\| / } split /\n/, part_of($shown, $heading);

	cmp_ok(scalar @rows, '>', 4, "doc/benchmarks.md shows rows $heading");
	is(join("\n", grep { !$is_row{$_} } @rows), '', 'they are rows of the run');
}
my @origin = $run =~ /^(Measured .*|.* cores.* PostgreSQL .*)$/mg;
is(scalar @origin, 2, 'the run tells when it was, and where');
is(index($shown, $_) >= 0, 1, 'doc/benchmarks.md has it, too') for @origin;

#
# Peers.
#
my $peers = slurp_file("$results/peers.md");
my %of = (
	schedule => rows_of(part_of($peers, 'Scheduling, tasks/s')),
	late => rows_of(part_of($peers, 'Lateness, ms')),
	burst => rows_of(part_of($peers, '20,000 due at once, tasks/s')),
	idle => rows_of(part_of($peers, 'Nothing due')));

# What the documents call them, by what the tables do.
my %name = (
	'plain PostgreSQL' => qr/^plain PostgreSQL/,
	'delay_wheel 1.0' => qr/^\*\*delay_wheel\*\*/,
	'SKIP LOCKED by hand, 100 a transaction' => qr/SKIP LOCKED.* 100 ms/,
	'SKIP LOCKED by hand, 1 a transaction' => qr/^the same, 1 task/,
	'pg_cron 1.4-1, a scan each second' => qr/pg_cron.* each second/,
	'pg_cron 1.4-1, a scan each minute' => qr/pg_cron.* (?:each|every) minute/,
	'pg_timers 0.0.0' => qr/^pg_timers/,
	'pgmq, 100 a transaction' => qr/^pgmq/,
	'PgQ 3.5' => qr/^PgQ/,
	'graphile-worker 0.18.0, tuned: looks each 100 ms, 10 at a time' => qr/^graphile-worker.*tuned/,
	'graphile-worker 0.18.0, by default: each 2 s, 1 at a time' => qr/^graphile-worker.*default/,
	'pg-boss 12.38.0, tuned: looks each 500 ms, 100 at a time' => qr/^pg-boss.*tuned/,
	'Redis 7.0.15, by 100, read each 10 ms' => qr/^Redis.* 10 ms/,
	'Redis 7.0.15, one by one, read each 10 ms' => qr/^the same, one by one/);

# Each cell has these figures, in this order, or none.
sub check_cell
{
	my ($where, $cell, @exact) = @_;
	my @figures = $cell =~ /\b(${figure}k?)/g;

	return () if !@figures;
	return "$where: more than @exact: $cell" if @figures > @exact;
	return map { is_rounded($figures[$_], $exact[$_]) ? () : "$where: $figures[$_] is not $exact[$_]" } 0 .. $#figures;
}

# Median, and with it least and greatest if $spread.
sub exact_of
{
	my ($table, $name, $column, $spread) = @_;
	my $cell = $of{$table}{$name} ? $of{$table}{$name}[$column] // '' : '';
	my @all = map { value_of($_) } $cell =~ /($figure)/g;

	return $spread ? @all : @all[ 0 .. (@all ? 0 : -1) ];
}

sub check_peers
{
	my ($document, $heading, $check) = @_;
	my $rows = rows_of(part_of(slurp_file("$root/$document"), $heading));
	my (%found, @wrong);

	for my $row (sort keys %$rows)
	{
		my ($peer) = grep { $row =~ $name{$_} } sort keys %name or next;

		$found{$peer} = 1;
		push @wrong, $check->("$document, $row", $peer, @{ $rows->{$row} });
	}
	is(join("\n", @wrong), '', "$document has the figures of peers.md");
	return sort keys %found;
}

is(join("\n", check_peers('doc/comparison.md', 'What was measured', sub {
	my ($where, $peer, $late, $burst, $snapshot, $bulk, $idle) = @_;

	return (
		check_cell("$where, late", $late, map { exact_of('late', $peer, $_) } 0, 2, 4),
		check_cell("$where, burst", $burst, exact_of('burst', $peer, 0, 'spread')),
		check_cell("$where, old snapshot", $snapshot, exact_of('burst', $peer, 4, 'spread')),
		check_cell("$where, scheduled", $bulk, exact_of('schedule', $peer, 2)),
		check_cell("$where, nothing due", $idle, exact_of('idle', $peer, 0), exact_of('idle', $peer, 2)));
})), join("\n", sort keys %name), 'doc/comparison.md has a row for each peer');

my @found = check_peers('README.md', 'How it compares', sub {
	my ($where, $peer, undef, undef, $late, $load) = @_;
	my @late = map { exact_of('late', $peer, $_) } 0, 2;

	@late = map { $_ / 1000 } @late if $late =~ /\d s/;
	return (
		check_cell("$where, late", $late, @late),
		check_cell("$where, load", $load, exact_of('idle', $peer, 0)));
});
cmp_ok(scalar @found, '>', 4, 'README.md has rows of peers');

#
# Figures in running text: document, where it stands (the figure in parentheses), and what it is.
#
my $million = median_of($none, 'Drain of a great burst: 1,000,000, 2 executors', 1);
my $two = median_of($none, 'Schedule, one per transaction: 2 clients, due in 48 hours', 1);
my $bulk = median_of($none, 'Schedule in bulk: 100,000 in one statement', 1);
my $wal_bulk = median_of($none, 'WAL, schedule to done: 20,000 scheduled at once, done by 100', 1);
my $wal_one = median_of($none, 'WAL, schedule to done: 2,000, each in a transaction of its own', 1);
my $midnight = 'A midnight, beside a report and a checkpoint: 1,000,000';
my @one_by_one = map { exact_of('schedule', $_, 0) } (
	'plain PostgreSQL', 'delay_wheel 1.0', 'SKIP LOCKED by hand, 100 a transaction', 'PgQ 3.5', 'pg_timers 0.0.0', 'pgmq, 100 a transaction',
	'graphile-worker 0.18.0, tuned: looks each 100 ms, 10 at a time', 'pg-boss 12.38.0, tuned: looks each 500 ms, 100 at a time',
	'Redis 7.0.15, by 100, read each 10 ms');
my $k = qr/([\d.]+k)/;

my @claims = (
	[ 'doc/benchmarks.md', qr/runs at ([\d,]+) tasks a second\. Two hand-written SKIP LOCKED loops run at ([\d,]+)/,
		$million, median_of($none, 'Drain of a great burst: 1,000,000, 2 executors', 2) ],
	[ 'doc/benchmarks.md', qr/at 100 tasks a second is ([\d.]+) ms at the median and ([\d.]+) ms/,
		map { median_of($none, "Lateness of start, 100 tasks/s: $_", 1) } qw(p50 p99) ],
	[ 'doc/benchmarks.md', qr/bursts run at ([\d.]+) to ([\d.]+) of the rate/,
		map { median_of($none, "Drain under an old snapshot: burst $_", 3) } 1, 2 ],
	[ 'doc/benchmarks.md', qr/costs a sixth in a backlog[^(]*\(([\d.]+) and ([\d.]+);/,
		map { median_of($none, "Drain of 1,000 groups: $_, 100,000, 2 executors", 3) } 'an UPDATE', 'SELECT 1' ],
	[ 'doc/benchmarks.md', qr/after 160 s \(([\d.]+);/,
		median_of($none, 'A day of orders, nine of ten cancelled: task_key_idx, 160 s with orders of 20 s, asynchronous commit', 1) ],
	[ 'doc/benchmarks.md', qr/another owner are late by ([\d.]+) ms.*?million they are late by ([\d.]+) ms/,
		map { median_of($none, "$midnight, $_, lateness of another owner's, p50", 1) } '10 lanes', '1 lane' ],
	[ 'README.md', qr/million small updates.{0,80}?(\d[\d.]*) s\b/, 1e6 / $million ],
	[ 'README.zh-CN.md', qr/用了 ([\d.]+) 秒/, 1e6 / $million ],
	[ 'examples/greetings/README.md', qr/drained at ([\d,]+) (?:in )?a second/, $million ],
	[ 'doc/dba.md', qr/([\d,]+) bytes (?:for )?a task from scheduling to done/, $wal_one ],
	[ 'doc/scaling.md', qr/^\| schedule.*2 clients.*?\| ([\d,]+) a second/mi, $two ],
	[ 'doc/scaling.md', qr/^\| schedule.*bulk.*?\| ([\d,]+) a second/mi, $bulk ],
	[ 'doc/scaling.md', qr/^\| run a burst.*?\| ([\d,]+) a second/mi, $million ],
	[ 'doc/scaling.md', qr/^\| WAL,.*?\| (\d+) bytes a task in bulk, (\d+) one by one/mi, $wal_bulk, $wal_one ],
	[ 'doc/scaling.md', qr/^\| start with ([\d,]+) million pending.*?\| ([\d.]+) s/mi, 1, median_of($many, 'Start to first due task: after a stop', 1) ],
	[ 'doc/scaling.md', qr/^\| scheduled, peak \| [\d,]+ a second \| ([\d,]+) \| (\d+)%/mi, $two, 100 * 1650 / $two ],
	[ 'doc/scaling.md', qr/^\| run, peak \| [\d,]+ a second \| ([\d,]+) \| ([\d.]+)%/mi, $million, 100 * 1650 / $million ],
	[ 'doc/scaling.md', qr/^\| from midnight.*?, ([\d,]+) a second.*?\| ([\d.]+) minutes \| ([\d.]+) minutes/mi,
		$million, map { 1e8 / $million / 60 / $_ } 1, 4 ],
	[ 'doc/comparison.md', qr/INSERT $k a second, delay_wheel $k, SKIP LOCKED $k, PgQ $k, pg_timers $k, pgmq $k, graphile-worker $k, pg-boss $k\..*?takes $k/,
		@one_by_one ]);

for my $claim (@claims)
{
	my ($document, $pattern, @exact) = @$claim;
	# a paragraph is a line
	my @figures = slurp_file("$root/$document") =~ s/(?<![|\n])\n[ \t]*(?![\n|])/ /gr =~ $pattern;

	is(scalar @figures, scalar @exact, "$document has $pattern") or next;
	is(join(', ', map { is_rounded($figures[$_], $exact[$_]) ? () : "$figures[$_] is not $exact[$_]" } 0 .. $#exact),
		'', "$document: @figures");
}

done_testing();
