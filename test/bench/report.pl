#!/usr/bin/env perl
#
# Makes the table and the plots of the benchmark from what bench.pl has measured.
#
#   report.pl [--beside OTHER] DIR [DOCUMENT]
#
# Reads figures.json and machine in DIR; writes README.md and *.svg there, and renews
# the rows that stand between the marks in DOCUMENT.  With --beside, writes beside.md,
# too: a table of what decides, in OTHER and in DIR.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Getopt::Long;
use JSON::PP;
use List::Util qw(max min uniq);
use POSIX qw(strftime);

use Bench qw(median);
use Plot;

my $other;
GetOptions('beside=s' => \$other) or die "usage: report.pl [--beside OTHER] DIR [DOCUMENT]\n";
my ($dir, $document) = @ARGV;

sub read_file
{
	my ($name) = @_;

	open(my $in, '<', $name) or die "$name: $!\n";
	local $/ = undef;
	return scalar readline $in;
}

sub write_file
{
	my ($name, $text) = @_;

	open(my $out, '>', $name) or die "$name: $!\n";
	print $out $text;
	close $out or die "$name: $!\n";
	return;
}

my $results = JSON::PP->new->decode(read_file("$dir/figures.json"));
my @machine = map { [ split /=/, $_, 2 ] } split /\n/, read_file("$dir/machine");

# What stands in the first column, and what is compared with.
my %title = (
	schedule => [ 'Schedule, one per transaction', 'the same INSERT' ],
	clients => [ 'Schedule, many clients', 'the same INSERT' ],
	bulk => [ 'Schedule in bulk', 'INSERT ... SELECT' ],
	trigger => [ 'INSERT, each row schedules a task', 'instead' ],
	drain => [ 'Drain of a burst', 'PL/pgSQL loop, one transaction' ],
	burst => [ 'Drain of a burst', 'two SKIP LOCKED loops' ],
	batches => [ 'Drain of a burst of members of batches', 'the same without a batch' ],
	million => [ 'Drain of a great burst', 'two SKIP LOCKED loops' ],
	snapshot => [ 'Drain under an old snapshot', 'itself without' ],
	midnight => [ 'A midnight, beside a report and a checkpoint', 'the first one' ],
	isolation => [ 'Lateness of single tasks beside a burst', '' ],
	history => [ 'Drain with a history', 'itself without' ],
	groups => [ 'Drain of 1,000 groups', 'itself without' ],
	wal => [ 'WAL, schedule to done', 'INSERT, UPDATE, DELETE' ],
	day => [ 'A day of orders, nine of ten cancelled', '' ],
	beside => [ 'Beside others', '' ],
	lateness => [ 'Lateness of start, 100 tasks/s', 'sleep and wake up' ],
	peers => [ 'Lateness of others, p50', '' ],
	poller => [ 'Lateness of a SKIP LOCKED poller', '' ],
	cron => [ 'Lateness of pg_cron', '' ],
	scale => [ 'Rates against pending count', '' ],
	idle => [ 'Idle', '' ],
	start => [ 'Start to first due task', '' ],
	databases => [ 'Many databases, most of which sleep', '' ],
	memory => [ 'Ring memory', '' ],
	messages => [ 'Messages', '' ],
	citus => [ 'Citus', '' ]);

sub number
{
	my ($x) = @_;
	my $text = abs($x) >= 100 ? sprintf('%.0f', $x) : abs($x) >= 10 ? sprintf('%.1f', $x) : sprintf('%.3g', $x);

	1 while $text =~ s/^(-?\d+)(\d{3})/$1,$2/;
	return $text;
}

# Median and spread.
sub figure
{
	my ($values, $format) = @_;

	return '' unless $values && @$values;
	$format //= \&number;
	return '**' . $format->(median(@$values)) . '**'
	  . (@$values > 1 ? ' (' . $format->(min(@$values)) . '..' . $format->(max(@$values)) . ')' : '');
}

sub ratio_format { return sprintf('%.2f', $_[0]); }

# What decides: the ratio, the difference, or the figure itself.
sub decisive
{
	my ($row) = @_;

	return $row->{ratio} // $row->{difference} // $row->{ours};
}

sub reached
{
	my ($row) = @_;
	my ($relation, $limit) = @{ $row->{reach} };
	my $figure = median(@{ decisive($row) });

	return $relation eq '>=' ? $figure >= $limit : $figure <= $limit;
}

sub line
{
	my ($row) = @_;
	my ($what, $floor) = @{ $title{ $row->{name} } };
	my $reach = $row->{reach}
	  ? "$row->{reach}[0] " . ($row->{difference} ? "floor + $row->{reach}[1]" : $row->{reach}[1]) : '';

	return '| ' . join(' | ',
		"$what: " . ($row->{variant} =~ s/(\d{4,})/number($1)/ger) . ($row->{sync} && $row->{sync} eq 'off' ? ', asynchronous commit' : ''),
		$row->{unit},
		figure($row->{ours}),
		$row->{floor} ? figure($row->{floor}) . ' ' . $floor : '',
		$row->{ratio} ? figure($row->{ratio}, \&ratio_format)
		: $row->{difference} ? '+' . figure($row->{difference}) : '',
		$reach,
		!$row->{reach} ? '' : reached($row) ? 'yes' : '**no**',
		$row->{note} // '') . ' |';
}

sub table
{
	my (@rows) = @_;

	return join("\n",
		'| what | unit | delay_wheel | floor | ratio, or difference | to reach | reached | |',
		'|---|---|---|---|---|---|---|---|',
		map { line($_) } @rows) . "\n";
}

my @rows = sort { $a->{pending} <=> $b->{pending} || $a->{place} <=> $b->{place}
	|| ($b->{sync} // '') cmp ($a->{sync} // '') || $a->{at} <=> $b->{at} } values %{ $results->{rows} };

# The rows of figures.json in the order of the table.
sub keys_in_order
{
	my %key = map { $results->{rows}{$_} => $_ } keys %{ $results->{rows} };
	return map { $key{$_} } @rows;
}

# A row of this run beside the same one of another.
sub beside
{
	my ($key, $before) = @_;
	my ($new, $old) = ($results->{rows}{$key}, $before->{$key});
	my @medians = map { $_ && decisive($_) ? median(@{ decisive($_) }) : undef } $old, $new;

	return '| ' . join(' | ', number($new->{pending}), (line($new) =~ /^\| (.*?) \|/)[0],
		$new->{ratio} ? 'ratio' : $new->{difference} ? "$new->{unit} above the floor" : $new->{unit},
		(map { $_ ? figure(decisive($_), $_->{ratio} ? \&ratio_format : undef) : '' } $old, $new),
		$medians[0] && $medians[0] > 0 && defined $medians[1] ? sprintf('%.2f', $medians[1] / $medians[0]) : '') . " |\n";
}

sub tables
{
	my $text = '';

	for my $pending (uniq(map { $_->{pending} } @rows))
	{
		my $heading = $pending ? 'With ' . number($pending) . ' other tasks pending' : 'With no other tasks pending';

		$text .= "### $heading\n\n" . table(grep { $_->{pending} == $pending } @rows) . "\n";
	}
	return $text;
}

sub machine
{
	my %machine = map { @$_ } grep { $_->[0] !~ /^setting\./ } @machine;
	my @settings = map { $_->[0] =~ /^setting\.(.*)/ ? "`$1 = $_->[1]`" : () } @machine;

	return "$machine{cpu}, $machine{cores} cores" . ($machine{virtual} eq 'yes' ? ' (virtual machine)' : '')
	  . ", $machine{memory}, $machine{kernel}, data directory on $machine{filesystem}; PostgreSQL $machine{postgresql}, "
	  . "delay_wheel built by $machine{compiler} with PostgreSQL's flags. Settings that are not the default: " . join(', ', @settings) . ".\n";
}

# When, and of what; rows can be from several runs.
sub origin
{
	my @at = sort { $a <=> $b } map { $_->{at} } @rows;
	my @commits = uniq(map { $_->{commit} } sort { $a->{at} <=> $b->{at} } @rows);

	my ($day, $last_day) = map { strftime('%Y-%m-%d ', gmtime $_) } @at[0, -1];
	my ($from, $to) = map { strftime('%H:%M', gmtime $_) } @at[0, -1];

	$to = $last_day . $to if $last_day ne $day;
	return "Measured $day$from to $to UTC, revision " . join(', ', @commits) . ".\n";
}

#
# The plots.
#
my %plots;

sub plot_rate
{
	my $scale = $results->{plots}{scale} or return;
	my @counts = sort { $a <=> $b } keys %$scale;
	my @lines = (
		[ schedule => 'schedule, delay_wheel', 1, '' ],
		[ insert => 'the same INSERT', 1, 'dashed' ],
		[ drain => 'drain, delay_wheel', 2, '' ],
		[ skip_locked => 'drain, SKIP LOCKED loop', 2, 'dashed' ]);

	$plots{rate} = Plot::lines(
		title => 'Rate against the number of pending tasks',
		x => { label => 'other tasks pending', categories => [ map { number($_) } @counts ] },
		y => { label => 'tasks/s, asynchronous commit', from => 0 },
		lines => [
			map {
				my ($key, $name, $color, $style) = @$_;
				{   name => $name, color => $color, style => $style, marks => 1,
					points => [ map { [ $_, $scale->{ $counts[$_] }{$key} ] } 0 .. $#counts ] }
			} @lines
		]);
	return;
}

sub plot_lateness
{
	my $lateness = $results->{plots}{lateness} or return;
	my @order = grep { $lateness->{$_} } 'timerfd, nothing else', 'delay_wheel', 'SKIP LOCKED poller, each 100 ms',
	  'pg_cron, scan each second', 'pg_cron, scan each minute';
	my $color = 0;

	$plots{lateness} = Plot::lines(
		title => 'How late tasks begin, under light load',
		x => { label => 'late by at most (ms)', log => 1 },
		y => { label => 'part of all tasks, %', from => 0, to => 100 },
		lines => [
			map {
				my $late = $lateness->{$_};
				{   name => $_, color => $color++,
					points => [ map { [ max($late->[$_], 10) / 1000, 100 * $_ / $#$late ] } 0 .. $#$late ] }
			} @order
		]);
	return;
}

sub plot_drain
{
	my $drain = $results->{plots}{drain} or return;
	my $color = 0;

	$plots{drain} = Plot::lines(
		title => 'A burst of ' . number((values %$drain)[0]{n}) . ' tasks, all due at once',
		x => { label => 'seconds after they fell due', from => 0 },
		y => { label => 'thousands done', from => 0 },
		lines => [
			map {
				{   name => $_, color => $color++,
					points => [ [ 0, 0 ], map { [ $_->[0], $_->[1] / 1000 ] } @{ $drain->{$_}{points} } ] }
			} sort { $b =~ /SKIP/ <=> $a =~ /SKIP/ } keys %$drain
		]);
	return;
}

plot_rate();
plot_lateness();
plot_drain();
write_file("$dir/$_.svg", $plots{$_}) for sort keys %plots;

# The document shows some of the rows; each becomes what it is now.
sub renewed
{
	my ($shown) = @_;
	my ($tables) = $shown =~ /(.*^\|[^\n]*\n)/ms or die "$document has no rows between its marks\n";
	my (%row, $section, @lines);

	for my $line (split /\n/, tables())
	{
		$section = $line if $line =~ /^### /;
		$row{$section}{$1} = $line if $line =~ /^\| (.+?) \| /;
	}
	for my $line (split /\n/, $tables)
	{
		$section = $line if $line =~ /^### /;
		$line = $row{$section}{$1} // die "$document: there is no row \"$1\" in \"$section\"\n" if $line =~ /^\| (.+?) \| /;
		push @lines, $line;
	}
	return join("\n", @lines, '', origin(), machine());
}

my $text = tables() . origin() . "\n" . machine();
write_file("$dir/README.md",
	"# Results of the benchmark\n\nWhat the rows measure: [test/bench](../README.md#rows). How to read them: [doc/benchmarks.md](../../../doc/benchmarks.md#how-to-read-it).\n\n"
	  . $text . "\n" . join("\n", map { "![$_]($_.svg)" } sort keys %plots) . "\n");
if (defined $other)
{
	my $before = JSON::PP->new->decode(read_file("$other/figures.json"))->{rows};
	my ($old, $new) = map { read_file("$_/machine") =~ /^postgresql=(\S+)/m ? "PostgreSQL $1" : $_ } $other, $dir;

	write_file("$dir/beside.md", "# $new beside $old\n\nThe ratio to the floor, or what is above it, or the figure itself, as in [the results](README.md): "
		  . "median, lowest and highest. The last column is the right one's median through the left one's.\n\n"
		  . "| other tasks | what | unit | $old | $new | |\n|---|---|---|---|---|---|\n" . join('', map { beside($_, $before) } keys_in_order()));
}
if (defined $document)
{
	my $old = read_file($document);
	$old =~ s/(<!-- Results -->\n)(.*)(<!-- End of results -->)/$1 . renewed($2) . $3/es or die "$document has no marks\n";
	write_file($document, $old);
}
print $text;
