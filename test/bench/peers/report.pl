#!/usr/bin/env perl
#
# Makes the tables of the peers from the rounds that measure.pl has measured.
#
#   report.pl DIR
#
# Reads peers.json in DIR, and writes peers.md there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use JSON::PP;
use List::Util qw(max min sum);
use POSIX qw(strftime);

use Bench qw(median);

my ($dir) = @ARGV;

open(my $in, '<', "$dir/peers.json") or die "$dir/peers.json: $!\n";
my $results = JSON::PP->new->decode(do { local $/ = undef; scalar readline $in });
close $in;
my @rounds = @{ $results->{rounds} };

sub number
{
	my ($x) = @_;
	my $text = abs($x) >= 100 ? sprintf('%.0f', $x) : abs($x) >= 10 ? sprintf('%.1f', $x) : sprintf('%.2g', $x);

	$text = sprintf('%.2f', $x) if abs($x) >= 1 && abs($x) < 10;
	1 while $text =~ s/^(-?\d+)(\d{3})/$1,$2/;
	return $text;
}

# Median and spread.
sub figure
{
	my (@values) = @_;

	return '' unless @values;
	return '**' . number(median(@values)) . '**'
	  . (@values > 1 ? ' (' . number(min(@values)) . '..' . number(max(@values)) . ')' : '');
}

# What a row has of a measure in the rounds that have it, and its ratios to the floor of
# the same rounds.
sub figures
{
	my ($name, $measure, $which) = @_;
	my (@values, @ratios);

	for my $round (@rounds)
	{
		my $value = $round->{measures}{$measure}{$name}{$which} // next;
		my $floor = $round->{measures}{$measure}{floor}{$which};

		push @values, $value;
		push @ratios, $value / $floor if $floor;
	}
	return (\@values, \@ratios);
}

# A table: for each column its title, measure, which figure of it, and whether its ratio
# to the floor is told.
sub table
{
	my (@columns) = @_;
	my @lines = (
		join(' | ', '| peer', map { ($_->[0], $_->[3] ? 'ratio' : ()) } @columns) . ' |',
		'|---' x (1 + sum(map { $_->[3] ? 2 : 1 } @columns)) . '|');

	for my $row (@{ $results->{rows} })
	{
		my @cells;

		for my $column (@columns)
		{
			my ($values, $ratios) = figures($row->{name}, $column->[1], $column->[2]);
			push @cells, figure(@$values);
			push @cells, figure(@$ratios) if $column->[3];
		}
		push @lines, join(' | ', "| $row->{title}", @cells) . ' |' if grep { $_ ne '' } @cells;
	}
	return join("\n", @lines) . "\n\n";
}

# Bursts that were not done in their minute.
sub cut_off
{
	my @said;

	for my $row (@{ $results->{rows} })
	{
		my @done = map { my $round = $_; map { $round->{measures}{$_}{ $row->{name} }{done} // () } qw(burst snapshot) } @rounds;

		push @said, "$row->{title}: after a minute " . join(', ', map { number($_) } @done) . ' were done' if @done;
	}
	return @said ? "Bursts that were cut off, whose rates are those of what was done:\n" . join('', map { "* $_\n" } @said) . "\n" : '';
}

sub effects_table
{
	my @lines = ('| peer | tasks | exactly once | twice or more | lost | committed early | not done in their minute |', '|---' x 7 . '|');

	for my $row (@{ $results->{rows} })
	{
		my $effects = $results->{effects}{ $row->{name} } // next;
		my @counts = map { $effects->{$_} } qw(once twice lost early cut);

		push @lines, join(' | ', "| $row->{title}", number(sum(@counts[ 0, 1, 2, 4 ])), map { number($_) } @counts) . ' |';
	}
	return join("\n", @lines) . "\n\n";
}

my %size = %{ $results->{sizes} };
my %machine = %{ $results->{machine} };
my $at = strftime('%Y-%m-%d %H:%M', gmtime $results->{begun});
my $until = $results->{ended} ? strftime('%H:%M', gmtime $results->{ended}) : 'an early end';

my $busy = max(map { $_->{busy} } @rounds);

my $text = <<"END";
# Peers
@{[ $busy > 20 ? "\n**Other work took up to " . number($busy) . "% of the processors before a round: the spread is wide, and 99th percentiles are the machine's.**\n" : '' ]}
Made by `test/bench/peers/run`; what is measured, and how to read it: [doc/benchmarks.md](../../../doc/benchmarks.md#beside-what-one-would-use-instead).
The rounds themselves are in [peers.json](peers.json). Each figure is the **median** of the rounds, with the least and the
greatest; a ratio is one to plain PostgreSQL in the same round.

## Scheduling, tasks/s

Two clients, one task a transaction (Redis: one a command); @{[number($size{bulk})]} at once.

END
$text .= table([ 'one by one', 'schedule', 'rate', 1 ], [ 'in bulk', 'bulk', 'rate', 1 ]);
$text .= <<"END";
## Lateness, ms

100 tasks a second for $size{late} seconds (a scan each minute: 10 a second, a minute), from the due time to the timestamp of the commit.

END
$text .= table([ 'median', 'late', 'p50', 1 ], [ '99th percentile', 'late', 'p99', 1 ], [ 'longest', 'late', 'max', 0 ]);
$text .= <<"END";
## @{[number($size{burst})]} due at once, tasks/s

From the due time to the timestamp of the last commit. Then two such bursts beside a transaction that holds a snapshot from before them.

END
$text .= table(
	[ 'without', 'burst', 'rate', 1 ], [ 'old snapshot, first burst', 'snapshot', 'first', 1 ], [ 'second burst', 'snapshot', 'second', 1 ]);
$text .= cut_off() . <<"END";
## Nothing due

@{[number($size{idle_pending})]} tasks are pending, none is due; $size{idle} seconds. Processor time is that of the server's processes that serve the
peer, of its own server and of its consumer, in per cent of one core.

END
$text .= table(
	[ 'statements/s', 'idle', 'statements', 0 ], [ "wake-ups/s of the server's processes", 'idle', 'wakeups', 0 ], [ 'processor, %', 'idle', 'cpu', 0 ]);
$text .= "## Was each effect there exactly once?\n\nOver all rounds, lateness and bursts.\n\n" . effects_table();
$text .= "## How it was measured\n\n";
$text .= join '', map { "* $_->{title}: $_->{note}.\n" } grep { $_->{note} } @{ $results->{rows} };
$text .= "* Not measured: $_.\n" for @{ $results->{skipped} };
$text .= "\nMeasured $at to $until UTC, revision $results->{commit}, " . scalar(@rounds) . " rounds (pg_cron: at most 2). "
  . "$machine{cpu}, $machine{cores} cores" . ($machine{virtual} eq 'yes' ? ' (virtual machine)' : '')
  . ", $machine{kernel}, data directory on $machine{filesystem}; PostgreSQL $machine{postgresql}, Node $machine{node}; fsync on, "
  . "`shared_buffers = $machine{shared_buffers}`, `max_wal_size = 8GB`, `autovacuum = off`, `track_commit_timestamp = on`.\n\n"
  . "Before each round the load of the machine, and how much of its processors others used while the measure did nothing:\n"
  . join(', ', map { sprintf('%.2f (%.0f%%)', $_->{load}, $_->{busy}) } @rounds) . ". The load has that of the round before in it.\n";

open(my $out, '>', "$dir/peers.md") or die "$dir/peers.md: $!\n";
print $out $text;
close $out or die "$dir/peers.md: $!\n";
