# What delay_wheel says: the errors, warnings, notices and log lines of src, as
# they stand in its calls of ereport() and elog(), and the texts that it writes
# into delay_wheel.failed and its views.  For ReferenceErrors.pm.
#
# No parser of C: it knows strings, parentheses, conditional expressions of
# strings, and psprintf().  What is only known when the message is raised is
# "...", as for instance in: role "..." does not exist

package Messages;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(read_messages);

# a string, or a character, and what is between a pair of parentheses
my $string = qr/"(?:[^"\\]|\\.)*+"/s;
my $char = qr/'(?:[^'\\]|\\.)*+'/s;
my $parens = qr/(?<parens>\((?:[^()"']++|$string|$char|(?&parens))*+\))/;

my %escape = (n => "\n", t => "\t", '"' => '"', '\\' => '\\');

# Without comments, line for line.
sub slurp_source
{
	my ($file) = @_;

	open(my $handle, '<', $file) or die "$file: $!\n";
	local $/ = undef;
	my $text = <$handle>;
	$text =~ s{($string)|/\*.*?\*/}{$1 // ' '}gse;
	return $text;
}

# Splits at the separator, but inside of strings and parentheses.
sub split_at
{
	my ($separator, $text) = @_;
	my @parts = ('');

	while ($text =~ /\G(?:(?<whole>$string|$char|$parens)|(?<separator>\Q$separator\E)|(?<other>.))/gs)
	{
		if (defined $+{separator}) { push @parts, '' }
		else { $parts[-1] .= $+{whole} // $+{other} }
	}
	s/^\s+|\s+$//g for @parts;
	return @parts;
}

# The expression between here and the semicolon, or comma, that ends it.
sub expression_at
{
	my ($text, $position) = @_;

	pos($text) = $position;
	$text =~ /\G((?:$string|$char|$parens|[^;,}])*+)/g;
	return $1;
}

sub all_of
{
	my (@lists) = @_;
	my @all = ('');

	for my $list (@lists)
	{
		@all = map { my $head = $_; map { $head . $_ } @$list } @all;
	}
	return @all;
}

# The texts that a format can become.
sub fill_in
{
	my ($source, $format, @args) = @_;
	my @parts;

	while ($format =~ /\G(?:([^%]+)|%(%|m|[-+ #0]*(\*)?[0-9]*(?:\.(?:(\*)|[0-9]*))?(?:ll|l|z|h)*[a-zA-Z]))/g)
	{
		if (defined $1) { push @parts, [$1] }
		elsif ($2 eq '%') { push @parts, ['%'] }
		elsif ($2 eq 'm') { push @parts, ['...'] }
		else
		{
			splice @args, 0, (defined $3) + (defined $4);
			push @parts, [ texts($source, shift @args // '') ];
		}
	}
	return all_of(@parts);
}

# Strings one after the other, some of them by their names; undef if one is unknown.
sub strings
{
	my ($source, $expression) = @_;
	my $text = '';

	while ($expression =~ /\G\s*(?:"((?:[^"\\]|\\.)*+)"|(\w+))/g)
	{
		my ($quoted, $name) = ($1, $2);

		if (defined $quoted) { $text .= $quoted =~ s/\\(.)/$escape{$1} \/\/ $1/ger }
		elsif ($name =~ /^U?INT64_FORMAT$/) { $text .= '%lld' }
		elsif ($name =~ /^[0-9]+$/) { $text .= $name }
		else { $text .= strings($source, $source->{defines}{$name} // return undef) // return undef }
	}
	return $text;
}

# The texts that an expression can be; '...' for what is not known here.
sub texts
{
	my ($source, $expression) = @_;

	if ($expression =~ /^(?:\s*(?:$string|[A-Z_0-9]+))+\s*$/)
	{
		my $text = strings($source, $expression);
		return defined $text ? $text : '...';
	}
	if ($expression =~ /^\(*\s*(?:pstrdup|psprintf|_)\s*$parens\s*$/)
	{
		my ($format, @args) = split_at(',', substr($+{parens}, 1, -1));
		return map { fill_in($source, $_, @args) } texts($source, $format);
	}
	my (undef, @rest) = split_at('?', $expression);
	if (@rest)
	{
		my ($yes, @no) = split_at(':', join('?', @rest));
		return map { texts($source, $_) } $yes, join(':', @no);
	}
	return texts_of_variable($source, 'text') if $expression eq 'text';
	return texts_of_function($source, $1) if $expression =~ /^([a-z_]+)\s*$parens$/;
	return ('...');
}

# What was written into the variable before the message, in the same function.
sub texts_of_variable
{
	my ($source, $name) = @_;
	my $before = substr($source->{text}, 0, $source->{position});
	my @texts;

	pos($before) = rindex($before, "\n{");
	while ($before =~ /\b(?:$name = |snprintf(?=\($name, ))/g)
	{
		my ($begin, $value) = ($-[0], expression_at($source->{text}, pos $before));

		# what comes before its format
		$value =~ s/^\($name, [^,]*, /psprintf(/;
		local $source->{position} = $begin;
		push @texts, texts($source, $value);
	}
	return @texts ? @texts : ('...');
}

# What a function of the same file returns, if that are strings.
sub texts_of_function
{
	my ($source, $name) = @_;
	my ($body) = $source->{text} =~ /^\Q$name\E\([^;{]*\)\n(\{.*?^\})/ms;
	my @returns = defined $body ? $body =~ /\breturn ([^;]+);/g : ();

	@returns = grep { !/^(?:NULL|"")$/ } @returns;
	return @returns && !grep({ !/^$string$/ } @returns) ? map { texts($source, $_) } @returns : ('...');
}

# The SQLSTATEs, by their names in C.
sub codes
{
	my ($source, $call) = @_;
	my ($expression) = $call =~ /\berrcode\s*$parens/ ? $+{parens} : '';

	return ('errno') if $call =~ /\berrcode_for_file_access\b/;
	my @codes = $expression =~ /\b((?:DW_)?ERRCODE_\w+)/g;
	# one that was noted before, in a variable of that name
	@codes = $source->{text} =~ /\b$1 = (ERRCODE_\w+)[;,]/g if !@codes && $expression =~ /(?:\.|->)(\w+)\)$/;
	@codes = ('task') if !@codes && $expression =~ /->sqlerrcode/;
	return distinct(@codes);
}

my %default_code = (
	ERROR => 'ERRCODE_INTERNAL_ERROR', FATAL => 'ERRCODE_INTERNAL_ERROR',
	PANIC => 'ERRCODE_INTERNAL_ERROR', WARNING => 'ERRCODE_WARNING');

sub parts_named
{
	my ($source, $call, $names) = @_;
	my @texts;

	while ($call =~ /\b$names\s*$parens/g)
	{
		my ($format, @args) = split_at(',', substr($+{parens}, 1, -1));
		push @texts, map { fill_in($source, $_, @args) } texts($source, $format);
	}
	return unknown_cut(@texts);
}

sub plurals_named
{
	my ($source, $call, $name) = @_;
	my @texts;

	while ($call =~ /\b$name\s*$parens/g)
	{
		my ($one, $many, undef, @args) = split_at(',', substr($+{parens}, 1, -1));
		push @texts, map { fill_in($source, texts($source, $_), @args) } $many, $one;
	}
	return unknown_cut(@texts);
}

sub unknown_cut
{
	my (@texts) = @_;

	s/\.\.\.(?:\.\.\.)+/.../g for @texts;
	return distinct(grep { $_ ne '...' } @texts);
}

sub distinct
{
	my %seen;

	return grep { !$seen{$_}++ } @_;
}

sub one_report
{
	my ($source, $call) = @_;
	my ($level) = $call =~ /^\(\s*(\w+)/;
	my @codes = codes($source, $call);

	return {
		level => $level,
		internal => "@codes" eq 'ERRCODE_INTERNAL_ERROR',
		texts => [ parts_named($source, $call, qr/errmsg(?:_internal)?/),
			plurals_named($source, $call, 'errmsg_plural') ],
		codes => [ @codes ? @codes : $default_code{$level} // () ],
	};
}

sub one_elog
{
	my ($source, $call) = @_;
	my ($level, $format, @args) = split_at(',', substr($call, 1, -1));

	return {
		level => $level,
		internal => 1,
		texts => [ unknown_cut(map { fill_in($source, $_, @args) } texts($source, $format)) ],
		codes => [ $default_code{$level} // () ],
	};
}

# An error that no ereport() raises: it is written into delay_wheel.failed.
sub one_recorded
{
	my ($source, $at) = @_;
	my $before = substr($source->{text}, $at > 200 ? $at - 200 : 0, $at > 200 ? 200 : $at);
	my @statements = $before =~ /\b(?:sqlstate|sqlerrcode) = ([^;,]*)/g;
	my @codes = @statements ? $statements[-1] =~ /\b((?:DW_)?ERRCODE_\w+)/g : ();

	return {
		level => 'failed',
		internal => 0,
		texts => [ unknown_cut(texts($source, expression_at($source->{text}, $at))) ],
		codes => [@codes],
	};
}

# A text that is no error.
sub plain_text
{
	my ($level, $text) = @_;

	return { level => $level, internal => 0, texts => [$text], codes => [] };
}

# What delay_wheel.status shows as last_problem.
sub problems
{
	my ($source, $call) = @_;
	my (undef, $expression) = split_at(',', substr($call, 1, -1));

	return map { plain_text('last_problem', $_) } unknown_cut(texts($source, $expression));
}

# The texts of the function and the arrays that put a reason into words.
sub reasons
{
	my ($source, $body) = @_;

	return map { plain_text('reason', $_) } grep { $_ ne '' && $_ ne '...' } map { texts($source, $_) }
	  $body =~ /\breturn ([^;]+);/g, $body =~ /\] = ($string)/g;
}

sub messages_of_file
{
	my ($file, $defines) = @_;
	my $text = slurp_source($file);
	my $source = { text => $text, defines => { %$defines, own_defines($text) } };
	my ($n, @messages) = (0);

	while ($text =~ /\b(ereport|elog|dw_problem(?:_quoting)?)\s*$parens|(?:\.message|->message|\*reason|\bclaim(?:ed)?->reason) = (?=[\w"])|^(?:const char \*const dw_\w+_texts\[\] = |receiver_reason\([^;{]*\)\n)(?<body>\{.*?^\})/gms)
	{
		my ($kind, $call, $body, $end) = ($1, $+{parens}, $+{body}, pos $text);

		$source->{position} = $-[0];
		if (defined $body) { push @messages, reasons($source, $body) }
		elsif (!defined $kind) { push @messages, one_recorded($source, $end) }
		elsif ($kind eq 'ereport') { push @messages, one_report($source, $call) }
		elsif ($kind eq 'elog') { push @messages, one_elog($source, $call) }
		elsif ($call !~ /^\(DwDatabase/) { push @messages, problems($source, $call) }
		die "$file: the text of this message is not found: $kind$call\n"
		  if ($kind // '') =~ /^e/ && !@{ $messages[-1]{texts} };
		$n++ if ($kind // '') =~ /^e/;
		pos($text) = $end;
	}
	my @calls = $text =~ /\b(?:ereport|elog)\s*\(/g;
	die "$file: not all messages are understood\n" if $n != @calls;
	return grep { @{ $_->{texts} } } @messages;
}

# Texts and numbers that have a name.
sub own_defines
{
	my ($text) = @_;

	return $text =~ /^#define[ \t]+([A-Z_]+)[ \t]+((?:(?:$string|[0-9]+|[A-Z_]+)[ \t]*)+)$/gm;
}

# All messages of a source tree, those of the tests' points left out.
sub read_messages
{
	my ($root) = @_;
	my %defines = map { own_defines(slurp_source($_)) } sort glob "$root/src/*/*.h";

	return map { messages_of_file($_, \%defines) } grep { !m{/inject\.c$} } sort glob "$root/src/*/*.c";
}

1;
