# doc/reference.md is what scripts/reference.pl makes of this very source and
# catalog, each object, column and message has its word, doc/architecture.md speaks
# of what is there, and doc/proof.md has all mutations.

use strict;
use warnings;

use DelayWheel;
use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = dirname(__FILE__) . '/../..';
my $node = new_node('reference');

# What the script prints, for the server of this test.
sub reference
{
	my (@options) = @_;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'perl', "$root/scripts/reference.pl", @options ], '>', \$out, '2>', \$err);
	is($err, '', "reference.pl @options has nothing to complain of");
	return $out;
}

# The first lines that differ, for who has nothing but the test's output.
sub first_difference
{
	my @kept = split /\n/, $_[0];
	my @made = split /\n/, $_[1];

	for my $i (0 .. $#made)
	{
		next if ($kept[$i] // '') eq $made[$i];
		return sprintf("line %d of doc/reference.md is\n  %s\nand would be\n  %s", $i + 1, $kept[$i] // '(not there)', $made[$i]);
	}
	return 'doc/reference.md is longer than it would be';
}

is(reference('--lacking'), '', 'each object, column, message and process has its word');

my $kept = slurp_file("$root/doc/reference.md");
my $made = reference();
ok($made eq $kept, 'doc/reference.md is up to date')
  or diag(first_difference($kept, $made), "\nRun \"make reference\" and look at what has changed.");

# All links within it lead somewhere.
my %headings;
for my $heading ($made =~ /^#+ (.*)$/mg)
{
	my $anchor = lc($heading) =~ s/[^\w\- ]//gr =~ tr/ /-/r;
	my $n = $headings{$anchor}++;
	$headings{"$anchor-$n"} = 1 if $n;
}
my %nowhere = map { $_ => 1 } grep { !$headings{$_} } $made =~ /\]\(#([^)]*)\)/g;
is(join("\n", sort keys %nowhere), '', 'all links within it lead to a heading');

# What architecture.md names is there: files, and functions and variables of the source.
my $architecture = slurp_file("$root/doc/architecture.md");
my $source = join '', map { slurp_file($_) } glob "$root/src/*/*.[ch]";
my @missing;
for my $name ($architecture =~ /`([^`\n]+)`/g)
{
	push @missing, $name if $name =~ m{^(?:test|sql|expected|examples|scripts|doc)(?:/[\w.]+)+$} && !-e "$root/$name";
	push @missing, grep { !glob "$root/src/*/$_" } $name =~ m{(?<![\w/.])(\w+\.[ch])\b}g;
	push @missing, grep { $source !~ /\b\Q$_\E\b/ } $name =~ /\b((?:dw_|Dw|DW_)\w+)/g;
}
is(join("\n", @missing), '', 'all that architecture.md names is there');

# What proof.md counts is as many.
my ($rules) = slurp_file("$root/doc/proof.md") =~ /^\| rules of \|(.*?)\n\n/ms or die 'no table of mutations';
my $counted = 0;
$counted += $_ for $rules =~ /\| (\d+) \|/g;
my ($list) = run_command([ 'perl', "$root/test/mutations/run", '--list' ]);
is($counted, scalar(split /\n/, $list),
	'the table "rules of" in proof.md has all that test/mutations/run has');

# The check is one: it notices what is taken away, and what is there beside.
$node->safe_psql('postgres', q{
	COMMENT ON COLUMN delay_wheel.tasks.due IS NULL;
	COMMENT ON FUNCTION delay_retry(bigint) IS NULL;
	CREATE FUNCTION delay_wheel.quietly(a int, b int, c int, d int) RETURNS int LANGUAGE sql AS 'SELECT 1';
	COMMENT ON FUNCTION delay_wheel.quietly(int, int, int, int) IS 'a, b and d';
	ALTER EXTENSION delay_wheel ADD FUNCTION delay_wheel.quietly(int, int, int, int);
});
is(reference('--lacking'),
	"COMMENT ON FUNCTION delay_retry(id bigint)\nCOMMENT ON COLUMN delay_wheel.tasks.due\nargument c of delay_wheel.quietly\n",
	'what lacks a word is found');
isnt(reference(), $kept, 'an object more or a COMMENT less makes another reference');

$node->stop;
done_testing();
