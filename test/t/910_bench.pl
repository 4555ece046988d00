# "make bench" works: with tiny sizes each row yields a figure, the table and the
# plots are well-formed, and nothing is left behind, also if it is interrupted.
# How fast anything is, is not looked at.  The rows that take longest are run with DW_LONG.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $program = "$FindBin::RealBin/../bench/run";
my $out = PostgreSQL::Test::Utils::tempdir();
# its server's directory; sockets have short names
my $place = PostgreSQL::Test::Utils::tempdir_short();

local $ENV{TMPDIR} = $place;

sub left_behind { return join ' ', glob("$place/*"); }

# Are all elements closed, in order, and all attributes quoted?
sub is_well_formed
{
	my ($text) = @_;
	my @open;
	my $elements = 0;

	while ($text =~ /\G([^<]*)(?:<(\/?)([a-z]+)((?:\s+[\w:.-]+="[^"<]*")*)\s*(\/?)>|\z)/gc)
	{
		my ($before, $end, $name, undef, $empty) = ($1, $2, $3, $4, $5);

		return 0 if $before =~ /&(?!amp;|lt;|gt;)/ || (!@open && $before =~ /\S/);
		last unless defined $name;
		$elements++;
		return 0 if $end && (pop @open // '') ne $name;
		push @open, $name unless $end || $empty;
	}
	return $elements > 10 && !@open && (pos($text) // 0) == length $text;
}

#
# A whole run.
#
my %slow = map { $_ => 1 } $ENV{DW_LONG} ? () : qw(clients snapshot beside start databases);
my ($rows_there_are) = slurp_file($program) =~ /^all_rows="(.*)"$/m;
my @rows = grep { !$slow{$_} } split ' ', $rows_there_are;
my $result = run_log([ $program, '--smoke', '--prepared', '--only', join(',', @rows), '--out', $out ], '>', "$out/said", '2>', "$out/errors");
ok($result, 'it comes to its end') or diag(slurp_file("$out/errors"));
unlike(slurp_file("$out/errors"), qr/FAILED|uninitialized/, 'no row fails');
is(left_behind(), '', 'nothing is left behind');

my $rows = decode_json(slurp_file("$out/figures.json"))->{rows};
my %measured;
for my $row (values %$rows)
{
	my $name = "$row->{name}, " . ($row->{pending} ? 'many' : 'none') . ' pending';

	push @{ $measured{$name} }, $row;
}
for my $name (
	grep { !$slow{ $_ =~ s/,.*//r } } (map { "$_, none pending" } qw(schedule clients bulk trigger drain burst batches million snapshot midnight isolation groups wal day lateness beside peers idle start databases memory messages citus)),
	(map { "$_, many pending" } qw(burst start)))
{
	ok( $measured{$name} && !(grep { !@{ $_->{ours} // [] } && !$_->{note} } @{ $measured{$name} }),
		"$name: there is a figure");
}
my @rates = grep { $_->{ours} && $_->{unit} =~ m{^(tasks|rows)/s$} } values %$rows;
is(scalar(grep { $_->{ours}[0] <= 0 || $_->{floor} && ($_->{floor}[0] <= 0 || $_->{ratio}[0] <= 0) } @rates), 0, 'rates are positive');

my $table = slurp_file("$out/README.md");
my @lines = grep { /^\|/ } split /\n/, $table;
is(scalar(grep { ($_ =~ tr/|//) != 9 } @lines), 0, 'each line of the table has all columns');
is(scalar(grep { /^\| [A-Z]/ } @lines), scalar(keys %$rows), 'each row is in the table');
like($table, qr/ cores.*PostgreSQL \d.*`autovacuum = off`/, 'machine and settings are there');
for my $plot (qw(rate lateness drain))
{
	my $svg = slurp_file("$out/$plot.svg");

	ok(is_well_formed($svg), "$plot.svg is well-formed");
	unlike($svg, qr/nan|inf/i, "$plot.svg has no impossible numbers");
	cmp_ok(scalar(() = $svg =~ /<polyline/g), '>=', 2, "$plot.svg compares");
}

#
# Made again from the figures; then a run that is cut short.
#
unlink "$out/README.md", "$out/rate.svg";
command_ok([ $program, '--report', '--out', $out ], 'table and plots can be made again');
command_ok([ $program, '--report', '--beside', $out, '--out', $out ], 'and a table beside another run');
my @beside = slurp_file("$out/beside.md") =~ /^(\| \d.*\|)$/mg;
cmp_ok(@beside, '>', 20, 'it has a line for each row');
is(scalar(grep { !/\| 1\.00 \|$/ && !/\|  \|$/ } @beside), 0, 'a run beside itself shows equal figures');
is(slurp_file("$out/README.md"), $table, 'the same');

my $pid = fork() // die "fork: $!";
if ($pid == 0)
{
	open(STDOUT, '>', '/dev/null');
	open(STDERR, '>', '/dev/null');
	exec($program, '--smoke', '--prepared', '--only', 'drain', '--out', "$out/short") or die;
}
my $deadline = time() + 120;
my @pidfile;
sleep(0.1) until (@pidfile = glob("$place/*/data/postmaster.pid")) && -s "$out/short/figures.json" || time() > $deadline;
is(scalar(@pidfile), 1, 'another run is under way');
my ($postmaster) = slurp_file($pidfile[0]) =~ /^(\d+)/;
kill 'TERM', $pid;
waitpid $pid, 0;
is($? >> 8, 143, 'it is ended by a signal');
is(left_behind(), '', 'nothing is left behind');
# a dead process can stay in the list for a while
is(readlink("/proc/$postmaster/exe"), undef, 'its server is gone');

command_fails([ $program, '--only', 'nonsense' ], 'a row that does not exist is refused');
command_fails([ $program, '--set', 'nonsense=1' ], 'a size that does not exist, too');

done_testing();
