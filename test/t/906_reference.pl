# The reference (doc/reference.md, doc/reference/) is what scripts/reference.pl makes of
# this very source and catalog, each object, column and message has its word,
# doc/architecture.md and the README.md of each folder of src name what is there, and
# doc/proof.md has all mutations.

use strict;
use warnings;

use DelayWheel;
use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = dirname(__FILE__) . '/../..';
my $node = new_node('reference');

my @pages = qw(reference.md reference/functions.md reference/settings.md reference/messages.md);

# Runs the script against the server of this test; returns what it prints.
sub run_script
{
	my ($argument) = @_;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'perl', "$root/scripts/reference.pl", $argument ], '>', \$out, '2>', \$err);
	is($err, '', "reference.pl $argument has nothing to complain of");
	return $out;
}

# The text of each page, as the script writes it.
sub reference
{
	my $directory = PostgreSQL::Test::Utils::tempdir();

	run_script($directory);
	return { map { $_ => slurp_file("$directory/$_") } @pages };
}

# The first lines that differ.
sub first_difference
{
	my @kept = split /\n/, $_[0];
	my @made = split /\n/, $_[1];

	for my $i (0 .. $#made)
	{
		next if ($kept[$i] // '') eq $made[$i];
		return sprintf("line %d is\n  %s\nand would be\n  %s", $i + 1, $kept[$i] // '(not there)', $made[$i]);
	}
	return 'the file is longer than it would be';
}

is(run_script('--lacking'), '', 'each object, column, message and process has its word');

my $kept = { map { $_ => slurp_file("$root/doc/$_") } @pages };
my $made = reference();
for my $page (@pages)
{
	ok($made->{$page} eq $kept->{$page}, "doc/$page is up to date")
	  or diag(first_difference($kept->{$page}, $made->{$page}), "\nRun \"make reference\" and look at what has changed.");
}
cmp_ok(scalar(split /\n/, $kept->{'reference.md'}), '<=', 80, 'the index is a page');

# The documents of the source name what is there: files, and functions and variables.
# The README.md of a folder names each of its .c files.
my @source_files = glob "$root/src/*/*.[ch]";
my $source = join '', map { slurp_file($_) } @source_files;
my %is_there = map { basename($_) => 1 } @source_files;
my %folders = map { dirname($_) => 1 } @source_files;
for my $document ("$root/doc/architecture.md", "$root/src/README.md", map { "$_/README.md" } sort keys %folders)
{
	my $short = $document =~ s,^\Q$root/,,r;
	my $text = -e $document ? slurp_file($document) : '';
	my @missing;

	for my $name ($text =~ /`([^`\n]+)`/g)
	{
		push @missing, $name if $name =~ m{^(?:test|sql|expected|examples|scripts|doc)(?:/[\w.]+)+$} && !-e "$root/$name";
		push @missing, grep { !$is_there{$_} } $name =~ m{(?<![\w/.])(\w+\.[ch])\b}g;
		push @missing, grep { $source !~ /\b\Q$_\E\b/ } $name =~ /\b((?:dw_|Dw|DW_)\w+)/g;
	}
	is(join("\n", @missing), '', "all that $short names is there");

	my @not_named = grep { index($text, "`$_`") < 0 } map { basename($_) } glob dirname($document) . '/*.c';
	is("@not_named", '', "$short names each file") if $folders{ dirname($document) };
	cmp_ok(length $text, '<=', 10_000, "$short is a page") if $short =~ m,^src/,;
}

cmp_ok(scalar(split /\n/, slurp_file("$root/doc/architecture.md")), '<=', 300, 'doc/architecture.md is a map');

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
is(run_script('--lacking'),
	"COMMENT ON FUNCTION delay_retry(id bigint)\nCOMMENT ON COLUMN delay_wheel.tasks.due\nargument c of delay_wheel.quietly\n",
	'what lacks a word is found');
isnt(reference()->{'reference/functions.md'}, $kept->{'reference/functions.md'}, 'an object more or a COMMENT less makes another reference');

$node->stop;
done_testing();
