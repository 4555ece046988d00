# doc/reference/errors.md against the source: it has each message, SQLSTATE of our own, process
# and wait event that src has, each message in one row, under its SQLSTATE, and no others.

package ReferenceErrors;

use strict;
use warnings;

use Exporter 'import';
use Messages qw(read_messages);

our @EXPORT_OK = qw(read_rows differing);

sub slurp
{
	my ($file) = @_;

	open(my $handle, '<:encoding(UTF-8)', $file) or die "$file: $!\n";
	local $/ = undef;
	return scalar <$handle>;
}

# The rows of all tables: texts (what is in backticks in the first cell, or the cell itself),
# head (of the first column), heading (the one before the table), and cells by the heads of their columns.
sub read_rows
{
	my ($file) = @_;
	my ($heading, @heads, @rows) = ('');

	for my $line (split /\n/, slurp($file))
	{
		$heading = $1 if $line =~ /^##+ (.*)/;
		if ($line !~ /^\|/) { @heads = (); next }
		next if $line =~ /^\|[-| :]+\|$/;
		my @cells = map { s/^\s+|\s+$//gr } split /(?<!\\)\|/, substr($line, 1, -1), -1;
		if (!@heads) { @heads = @cells; next }
		my %cells;
		@cells{@heads} = @cells;
		my $first = $cells[0] =~ s/<a id="[^"]*"><\/a>//gr;
		my @texts = $first =~ /`([^`]+)`/g;
		push @rows, { head => $heads[0], heading => $heading, cells => \%cells, texts => @texts ? \@texts : [$first], line => $line };
	}
	return @rows;
}

# SQLSTATEs by their names in C.
sub read_sqlstates
{
	my ($root) = @_;
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	chomp(my $sharedir = qx($pg_config --sharedir));
	my %states;

	for (split /\n/, slurp("$sharedir/errcodes.txt"))
	{
		$states{$2} //= $1 if /^([0-9A-Z]{5})\s+[EWS]\s+(ERRCODE_\w+)/;
	}
	my %own = slurp("$root/src/base/errors.h") =~ /^#define (DW_ERRCODE_\w+)\s+MAKE_SQLSTATE\(([^)]*)\)/gm;
	$states{$_} = $own{$_} =~ tr/A-Z0-9//cdr for keys %own;
	return %states;
}

# The messages of the source: by their text, the levels and SQLSTATEs that they come with.
sub messages_of_source
{
	my ($root) = @_;
	my %states = read_sqlstates($root);
	my %messages;

	for my $found (read_messages($root))
	{
		my %texts = map { $_ => 1 } @{ $found->{texts} };

		# one whose last part may be empty
		for my $text (grep { !$texts{"$_..."} } keys %texts)
		{
			my $level = $found->{internal} ? 'internal' : $found->{level};
			my @codes = grep { defined } map { $states{$_} } @{ $found->{codes} };
			@codes = ('00000') if !@codes && $level eq 'NOTICE';
			$messages{$text}{$level}{$_} = 1 for @codes ? @codes : ('');
		}
	}
	return %messages;
}

# What is in one of two lists only: what the first one, of this name, lacks, and what it has beside.
sub differing
{
	my ($name, $have, $want) = @_;
	my %have = map { $_ => 1 } @$have;
	my %want = map { $_ => 1 } @$want;

	return ((map { "$name lacks $_" } grep { !$have{$_} } sort keys %want),
		map { "$name has $_, which is not there" } grep { !$want{$_} } sort keys %have);
}

sub matches
{
	my ($root, $pattern) = @_;
	my %found = map { $_ => 1 } map { slurp($_) =~ /$pattern/g } glob "$root/src/*/*.c";

	return [ sort keys %found ];
}

# The SQLSTATEs of a message that its row does not name: in the heading before the table, the
# column of that name, or the cause.
sub codes_not_named
{
	my ($row, $levels) = @_;
	my %codes;

	return () if $levels->{internal} && $row->{heading} eq 'Internal errors';
	# one that comes with a statement has the SQLSTATEs that statements get
	my @counted = grep { $levels->{$_} } qw(ERROR WARNING NOTICE);
	%codes = (%codes, %{ $levels->{$_} }) for @counted ? @counted : keys %$levels;
	my $named = join ' ', $row->{heading}, map { $row->{cells}{$_} // '' } qw(SQLSTATE cause);
	return grep { $_ ne '' && $named !~ /\b$_\b/ } sort keys %codes;
}

# What errors.md lacks, has twice, or has beside.
sub wrong
{
	my ($root) = @_;
	my @rows = read_rows("$root/doc/reference/errors.md");
	my %messages = messages_of_source($root);
	my (@wrong, %row_of);

	for my $row (grep { $_->{head} eq 'message' } @rows)
	{
		my ($first) = $row->{line} =~ /^\| (.*?) \|/;

		push @wrong, "errors.md: a first cell is not made of messages: $first"
		  if $first !~ /^(?:<a id="[^"]*"><\/a>)*`[^`]+`(?:<br>`[^`]+`)*$/;
		for my $text (@{ $row->{texts} })
		{
			push @wrong, "errors.md has a message twice: $text" if $row_of{$text};
			$row_of{$text} = $row;
		}
	}
	push @wrong, differing('errors.md', [ keys %row_of ], [ keys %messages ]);
	for my $text (grep { $messages{$_} } sort keys %row_of)
	{
		push @wrong, map { "errors.md has a message without its SQLSTATE $_: $text" } codes_not_named($row_of{$text}, $messages{$text});
	}

	my %states = read_sqlstates($root);
	my %texts;
	push @{ $texts{ $_->{head} } }, @{ $_->{texts} } for @rows;
	return (@wrong,
		differing('the SQLSTATEs of errors.md', $texts{SQLSTATE} // [], [ grep { /^DW/ } values %states ]),
		differing('the processes of errors.md', $texts{process} // [], [ map { "delay_wheel $_" } @{ matches($root, qr/\bdw_worker_(?:start\(|describe\(&worker, )"([^"]+)"/) } ]),
		differing('the wait events of errors.md', $texts{'wait event'} // [], matches($root, qr/\bdw_wait_event\(\w+, "(\w+)"\)/)));
}

1;
