# Reads the project's documents and does what they say; 905_docs.pl tells the rules.
# Compares X.zh-CN.md, the Chinese of X.md, with it; 903_chinese.pl tells in what.
#
# A document is, beside its text, a list of blocks, each a hash of
#   kind        the word after the fence; "wait" for a query that is waited for
#   text, line  what is in it, and where it begins
#   error       the SQLSTATE that it is to raise
#   output      for a run block: the text block that shows what it prints
#   shown_by    the script or test that does it instead
#   file        the file of the tree that has it word for word

package Documents;

use strict;
use warnings;

use Cwd qw(abs_path);
use Encode qw(decode_utf8 encode_utf8);
use Exporter 'import';
use File::Basename qw(basename dirname);
use File::Find;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils ();
use Time::HiRes qw(sleep);

our @EXPORT = qw(documents problems_of broken_links differences);

# what may stand before a block of a kind
my %directives = (
	sql => 'error shown_by',
	sh => 'shown_by',
	text => 'output file',
	conf => 'file shown_by',
	(map { $_ => 'file shown_by' } qw(yaml json promql dockerfile python js go java ruby php)),
	mermaid => '',
	'' => '');

my $root = abs_path(dirname(__FILE__) . '/../..');
my $mark = '#### block';
# seconds, for a block of sh or a wait, and for the whole of a document
my $block_limit = 60;
my $document_limit = 180;

# All there are but those of the tests, as paths in the tree.
sub documents
{
	my @found;

	find({
		no_chdir => 1,
		wanted => sub {
			my $path = $File::Find::name =~ s,^\Q$root/,,r;

			$File::Find::prune = 1 if $path =~ m,^(?:test|build|results|log|tmp_check|\.git)$|/node_modules$,;
			push @found, $path if $path =~ /\.md$/;
		}
	}, $root);
	return sort @found;
}

# What is wrong with a document, one line or more for each thing; nothing if it holds.
sub problems_of
{
	my ($node, $path) = @_;
	my $name = basename($path);
	my ($blocks, @problems) = parse_document(read_text(_whole_path($path)));

	push @problems, map { _problems_of_data($_, $name) } @$blocks;
	push @problems, _problems_of_conf($node, grep { $_->{kind} eq 'conf' && !_is_elsewhere($_) } @$blocks);
	return map { "$name:$_" } @problems if @problems;

	my @run = grep { _is_run($_) } @$blocks;
	return map { "$name:$_" } @run ? _run($node, $name, @run) : ();
}

sub _whole_path { return $_[0] =~ m,^/, ? $_[0] : "$root/$_[0]"; }

sub read_text
{
	my ($file) = @_;

	open(my $in, '<:raw', $file) or die "$file: $!\n";
	local $/;
	return scalar <$in>;
}

#
# Markdown to blocks.
#

# The blocks, and what is against the rules.
sub parse_document
{
	my ($text) = @_;
	my @lines = split /\n/, $text, -1;
	my (@blocks, @problems, %next);
	my $before = '';

	for (my $n = 1; @lines; $n++)
	{
		my $line = shift @lines;
		my $at = $n;

		if ($line =~ /^(\s*)(`{3,}|~{3,})\s*(.*?)\s*$/)
		{
			my ($indent, $fence, $kind) = ($1, $2, $3);
			my @inside = _inside($indent, $fence, \@lines);

			push @problems, "$at: this fence is not closed" if !@lines;
			push @problems, "$at: unknown fence \"$kind\"" if !defined $directives{$kind};
			push @blocks, { %next, kind => $kind, line => $at, text => join('', map { "$_\n" } @inside) };
			%next = ();
			shift @lines;
			$n += @inside + 1;
		}
		elsif ($line =~ /^\s*<!--/)
		{
			while ($line !~ /-->/ && @lines)
			{
				$line .= "\n" . shift @lines;
				$n++;
			}
			push @problems, "$at: this comment is not closed" if $line !~ /-->/;
			$line =~ /<!--\s*(.*?)\s*(?:-->|$)/s;
			_directive($1, $at, \@blocks, \@problems, \%next);
		}
		else
		{
			push @problems, map { "$at: $_" } _problems_of_prose($line, $before);
			push @problems, "$at: the comment before this belongs to no block" if %next && $line =~ /\S/;
			%next = () if $line =~ /\S/;
		}
		$before = $line;
	}
	push @problems, '0: the last comment belongs to no block' if %next;
	return (\@blocks, @problems, _arrange(\@blocks));
}

# Takes the lines up to the end of a fence.
sub _inside
{
	my ($indent, $fence, $lines) = @_;
	my @inside;

	push @inside, (shift @$lines) =~ s/^\Q$indent//r while @$lines && $lines->[0] !~ /^\s*\Q$fence\E`*\s*$/;
	return @inside;
}

# What Markdown shows as a block, and we do not take for one.
sub _problems_of_prose
{
	my ($line, $before) = @_;

	return 'indented block, which nobody would run: put it between fences'
	  if $line =~ /^(?: {4,}|\t)\s*\S/
	  && $line !~ /^\s*(?:[-*+]|\d+\.)\s/
	  && $before =~ /^\s*(?:$|#|```|<!--)/;
	return 'fence in a quotation, which nobody would run' if $line =~ /^\s*>.*(?:```|~~~)/;
	return ();
}

# One comment: a block of its own, or what is to be known of the next one.
sub _directive
{
	my ($text, $at, $blocks, $problems, $next) = @_;

	if ($text =~ /^run (sql|sh)\s+(.*)$/s)
	{
		push @$blocks, { %$next, kind => $1, line => $at, text => "$2\n", hidden => 1 };
		%$next = ();
	}
	elsif ($text =~ /^wait: *(\S.*)$/s)
	{
		push @$blocks, { kind => 'wait', line => $at, text => $1, hidden => 1 };
	}
	elsif ($text eq 'output')
	{
		$next->{output} = 1;
	}
	elsif ($text =~ /^(error|shown by|file): (\S+)$/)
	{
		my ($name, $value) = ($1, $2);

		$next->{ $name =~ s/ /_/r } = $value;
	}
	elsif ($text =~ /^[^A-Z].*[:\n]/s)
	{
		push @$problems, "$at: unknown comment \"$text\" (one that is for readers begins with a capital)";
	}
	return;
}

# Gives blocks their outputs and looks whether all has its place.
sub _arrange
{
	my ($blocks) = @_;
	my (@problems, $before);

	for my $block (@$blocks)
	{
		my ($kind, $line) = @$block{qw(kind line)};
		my $allowed = $block->{hidden} ? 'error' : $directives{$kind} // '';

		push @problems, map { "$line: \"$_\" does not go with a block of this kind" =~ s/_/ /r }
		  grep { $block->{$_} && $allowed !~ /\b$_\b/ } qw(error output shown_by file);
		push @problems, "$line: which file has this, or which test looks at it?"
		  if $kind =~ /^(?:yaml|json|promql|dockerfile|python|js|go|java|ruby|php)$/ && !_is_elsewhere($block);
		push @problems, "$line: the last statement has no end"
		  if $kind eq 'sql' && !$block->{shown_by} && !_is_ended($block->{text});
		if ($kind eq 'text' && $block->{output})
		{
			if ($before && _is_run($before) && $before->{kind} ne 'wait')
			{
				$before->{output} = $block;
			}
			else
			{
				push @problems, "$line: output of nothing that is run";
			}
		}
		elsif ($kind eq 'text' && !$block->{file})
		{
			push @problems, "$line: text that is neither output nor of a file";
		}
		$before = $block;
	}
	return @problems;
}

sub _is_elsewhere { return $_[0]{file} || $_[0]{shown_by}; }

sub _is_run
{
	my ($block) = @_;

	return $block->{kind} =~ /^(?:sql|sh|wait)$/ && !$block->{shown_by};
}

# Else psql would take it together with the next block, or not run it at all.  A
# statement ends with a semicolon, \g and its kin; data of COPY with \., and a line that
# is a command of psql with itself.
sub _is_ended
{
	my ($sql) = @_;

	$sql =~ s/^\s*--.*\n//mg;
	return $sql =~ /(?:;|\\\.|^\\\w.*|\\(?:g\w*|crosstabview|watch)\b[^\n]*)[^\S\n]*(?:--[^\n]*)?\s*\z/m;
}

#
# What is not run here.
#

# With runs of blanks as one.
sub _plain
{
	my ($text) = @_;

	return $text =~ s/\s+/ /gr =~ s/^ | $//gr;
}

sub _problems_of_data
{
	my ($block, $document) = @_;
	my ($kind, $line, $text) = @$block{qw(kind line text)};
	my @problems;

	push @problems, "$line: not JSON: $@" =~ s/ at \S+ line.*//sr
	  if $kind eq 'json' && !eval { JSON::PP->new->relaxed(0)->decode($text); 1 };
	push @problems, "$line: not YAML" if $kind eq 'yaml' && !_is_yaml($text);
	for my $path (grep { defined } @$block{qw(file shown_by)})
	{
		return (@problems, "$line: there is no file $path") if !-f "$root/$path" || $path =~ m,^/|\.\.,;
	}
	push @problems, "$line: not in $block->{file} word for word"
	  if $block->{file} && !_is_in($text, read_text("$root/$block->{file}"));
	push @problems, _problems_of_shown($block, $document) if $block->{shown_by};
	return @problems;
}

# In this order; a line of dots stands for anything.
sub _is_in
{
	my ($text, $whole) = @_;
	my $pattern = join '.*', map { quotemeta _plain($_) } split /^\s*\.\.\.\s*$/m, $text;

	return _plain($whole) =~ /$pattern/s;
}

my $yaml_parser;

# Whatever is there to read it; if nothing is, we do not know better.
sub _is_yaml
{
	my ($text) = @_;

	$yaml_parser //= system('python3 -c "import yaml" 2>/dev/null') == 0 ? 1 : 0;
	return 1 if !$yaml_parser;
	open(my $out, '|-', 'python3', '-c', 'import sys, yaml; list(yaml.safe_load_all(sys.stdin))') or return 0;
	local $SIG{PIPE} = 'IGNORE';
	print $out $text;
	return close($out);
}

# The script or test has each command, or statement, of the block, or reads them from the
# document, by the comment that names it; of data it must know the document that they are in.
sub _problems_of_shown
{
	my ($block, $document) = @_;
	my ($kind, $line, $path) = @$block{qw(kind line shown_by)};

	return "$line: $path does nothing, it is a document" if $path =~ /\.md$/;
	my $script = read_text("$root/$path");
	if (($kind ne 'sql' && $kind ne 'sh') || $script =~ /<!-- shown by: \Q$path\E -->/)
	{
		return $script =~ /\Q$document\E/ ? () : "$line: $path does not speak of $document";
	}
	my $does = _plain(_without_comments($script, '#'));
	return map { "$line: not in $path: $_" }
	  grep { $does !~ /(?<![\w-])\Q$_\E(?![\w-])/ } _commands($kind, $block->{text});
}

sub _without_comments
{
	my ($text, $sign) = @_;

	$text =~ s/(?:^|\s)$sign.*//mg;
	$text =~ s/\bsudo (?:-u \S+ )?//g;
	$text =~ s/\\\n//g;
	return $text;
}

sub _commands
{
	my ($kind, $text) = @_;

	$text = _without_comments($text, $kind eq 'sql' ? '--' : '#');
	return grep { $_ ne '' } map { _plain($_) } split /\n/, $text if $kind eq 'sh';
	return grep { $_ ne '' } map { _plain($_) } split /;\s*$|^(?=\\)/m, $text;
}

# Each setting is one that the server knows, and the value one that it takes.  Nothing
# of it is ever in force.
sub _problems_of_conf
{
	my ($node, @blocks) = @_;
	my @problems;

	for my $block (@blocks)
	{
		my $line = $block->{line};

		for my $setting (split /\n/, $block->{text})
		{
			$line++;
			next if $setting =~ /^\s*(?:#|$)/;
			if ($setting !~ /^\s*([\w.]+)\s*=?\s*('(?:[^']|'')*'|[^\s#]+)\s*(?:#.*)?$/)
			{
				push @problems, "$line: not a setting: $setting";
				next;
			}
			my ($name, $value) = ($1, $2);
			$value = "'$value'" if $value !~ /^'/;
			my ($code, undef, $err) = $node->psql('postgres', "ALTER SYSTEM SET $name = $value");
			push @problems, "$line: $err" if $code != 0;
		}
	}
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL') if @blocks;
	return @problems;
}

#
# Links.
#

# The links of a document that lead to no file, or no heading, of the tree: as from
# its top.
sub broken_links
{
	my ($path) = @_;
	my (@broken, %anchors);

	for my $link (map { $_->{is} } _links(read_text(_whole_path($path))))
	{
		my ($file, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;

		next if $link =~ /^[a-z]+:/;
		$file = $file eq '' ? $path : ($path =~ m,(.*/), ? $1 : '') . $file;
		$file = "$root/$file" if $file !~ m,^/,;
		1 while $file =~ s,/[^/]+/\.\./,/,;
		$anchors{$file} //= _anchors(read_text($file)) if defined $anchor && $file =~ /\.md$/ && -e $file;
		push @broken, $file =~ s,^\Q$root\E/,,r . (defined $anchor ? "#$anchor" : '')
		  if !-e $file || (defined $anchor && $anchors{$file} && !$anchors{$file}{$anchor});
	}
	return @broken;
}

# All links, pictures among them, each with its line.
sub _links
{
	my ($text) = @_;
	my $prose = _without_blocks($text) =~ s/(`+)[^\n]*?\g1//gr;
	my @links;

	while ($prose =~ /\]\(\s*<?([^)\s>]+)|<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)="([^"\s]+)/g)
	{
		push @links, { is => $1 // $2, line => 1 + (substr($prose, 0, $-[0]) =~ tr/\n//) };
	}
	return @links;
}

# As many lines, those of blocks empty.
sub _without_blocks
{
	my ($text) = @_;

	return $text =~ s/^\s*(```+).*?^\s*\g1/$& =~ tr,\n,,cdr/gmser;
}

# As GitHub makes them of headings.
sub _anchors
{
	my ($text) = @_;
	my (%anchors, %times);

	for my $heading (_without_blocks($text) =~ /^#+\s+(.*?)\s*#*$/mg)
	{
		my $anchor = lc decode_utf8($heading);

		$anchor =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
		$anchor =~ s/[^\w -]//g;
		$anchor =~ tr/ /-/;
		my $before = $times{$anchor}++;
		$anchors{ encode_utf8($before ? "$anchor-$before" : $anchor) } = 1;
	}
	$anchors{$_} = 1 for $text =~ /<a (?:name|id)="([^"]+)"/g;
	return \%anchors;
}

#
# A Chinese page and the English one.
#

# What a Chinese page has otherwise than the English one of its name: of blocks, headings and
# the like, and links the first that differs, and all links to English pages that are there in Chinese.
sub differences
{
	my ($path) = @_;
	my $other = _english($path);
	my ($chinese, $english) = map { read_text(_whole_path($_)) } $path, $other;
	my ($blocks, @problems) = parse_document($chinese);
	my ($other_blocks) = parse_document($english);
	my @links = _known_links($path, $chinese);
	my @other_links = _known_links($path, $english);
	my $at_top = basename($other);

	push @problems,
	  _first_difference('block', [ _known_blocks(@$blocks) ], [ _known_blocks(@$other_blocks) ]),
	  _first_difference('heading, item or row', [ _outline($chinese) ], [ _outline($english) ]),
	  _first_difference('link', \@links, \@other_links);
	push @problems, "1: the first link is not that to $at_top" if !@links || $links[0]{is} ne $at_top;
	shift @links;
	push @problems, map { "$_->{line}: a link to $_->{to}, which is there in Chinese" } grep { $_->{to} ne $_->{chinese} } @links;
	return map { basename($path) . ":$_" } @problems;
}

sub _english { return $_[0] =~ s/\.zh-CN(?=\.)//r; }

sub _first_difference
{
	my ($what, $these, $those) = @_;

	for my $n (0 .. ($#$these > $#$those ? $#$these : $#$those))
	{
		my ($this, $that) = ($these->[$n], $those->[$n]);

		next if $this && $that && $this->{is} eq $that->{is};
		return ($this ? $this->{line} : 0) . ": $what " . ($n + 1) . ' is' . ($this ? '' : ' missing')
		  . ($this ? " <$this->{is}>" : '') . ', in English, '
		  . ($that ? "line $that->{line}, <$that->{is}>" : 'there is none');
	}
	return ();
}

# Each language has its own comments.  Hidden blocks count in no page: those of the Chinese pages of
# doc/ would not be run.
sub _known_blocks
{
	my @known;

	for my $block (grep { !$_->{hidden} } @_)
	{
		my $sign = $block->{kind} eq 'sql' ? '--' : '#';
		my $text = $block->{text};

		$text =~ s/\s*(?:^|\s)$sign\s.*//mg if $block->{kind} =~ /^(?:sql|sh|conf|yaml)$/;
		push @known, {
			line => $block->{line},
			is => join ' ', (map { $block->{$_} ? "$_: " . (ref $block->{$_} ? 'yes' : $block->{$_}) : () } qw(error shown_by file output)),
			"$block->{kind}: $text" };
	}
	return @known;
}

# Of a row its columns, with those that need no translation: figures, or one word of code.
sub _outline
{
	my ($text) = @_;
	my $line = 0;
	my @outline;

	for (split /\n/, _without_blocks($text))
	{
		$line++;
		push @outline, { line => $line, is => $1 } if /^(#+|\s*(?:[-*+]|\d+\.))\s/;
		push @outline, { line => $line, is => join '|', map { /^ (?:[\d.,k() ]+|`[^`]+`) $/ ? $_ : '' } split /\|/, $_, -1 } if /^\|/;
	}
	return @outline;
}

# A link to a page that is there in Chinese is named as in English, without its anchor: the headings are others.
sub _known_links
{
	my ($path, $text) = @_;
	my $directory = dirname(_whole_path($path));
	my @links = _links($text);

	for my $link (@links)
	{
		my ($to, $anchor) = $link->{is} =~ /^([^#]*)(#.*)?$/;
		my $english = _english($to);
		my $chinese = $english =~ s/(?=\.\w+$)/.zh-CN/r;

		$chinese = $to if $to =~ /^[a-z]+:/ || !-e "$directory/$chinese";
		@$link{qw(to chinese)} = ($to, $chinese);
		$link->{is} = $english . ($to eq '' || $chinese =~ /\.zh-CN\./ ? '' : $anchor // '');
	}
	return @links;
}

#
# What is run: one psql script for a document, with marks between the blocks in both of
# its outputs.
#

sub _run
{
	my ($node, $name, @blocks) = @_;
	my $database = $name =~ s/\.md$//r;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($out, $err) = ('', '');

	mkdir "$dir/tree" or die "$dir/tree: $!\n";
	_copy_tree("$dir/tree") if grep { $_->{kind} eq 'sh' || $_->{text} =~ /\\/ } @blocks;
	_write("$dir/all.sql", _script($dir, @blocks));
	$node->safe_psql('postgres', qq(CREATE DATABASE "$database"));

	local %ENV = (
		%ENV,
		PGHOST => $node->host,
		PGPORT => $node->port,
		PGDATABASE => $database,
		PGDATA => $node->data_dir,
		PGCLIENTENCODING => 'UTF8',
		PSQL_PAGER => '');
	my $ended = eval {
		IPC::Run::run(
			[ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/all.sql" ],
			'<', '/dev/null', '>', \$out, '2>', \$err, IPC::Run::timeout($document_limit));
		1;
	};
	my @problems = _judge($dir, $out, $err, @blocks);
	push @problems, "0: it took more than $document_limit seconds" if !$ended;

	_stop_servers("$dir/tree");
	_clean_up($node);
	return @problems;
}

sub _write
{
	my ($file, $text) = @_;

	open(my $out, '>:raw', $file) or die "$file: $!\n";
	print $out $text;
	close($out) or die "$file: $!\n";
	return;
}

# What commands of the document write to is not ours.
sub _copy_tree
{
	my ($to) = @_;

	system("tar -C '$root' --exclude=./.git --exclude=./build --exclude=./test/tmp_check -cf - . | tar -C '$to' -xf -") == 0
	  or die "could not copy the tree\n";
	return;
}

sub _script
{
	my ($dir, @blocks) = @_;
	my $script = "\\cd $dir/tree\n";

	for my $n (0 .. $#blocks)
	{
		my ($kind, $text) = @{ $blocks[$n] }{qw(kind text)};

		$script .= "\\echo $mark $n\n\\warn $mark $n\n";
		if ($kind eq 'sql')
		{
			$script .= $blocks[$n]{error} ? _failing($text) : $text;
		}
		else
		{
			_write("$dir/$n.sh", $kind eq 'sh' ? $text : _waiting($text));
			$script .= _shell("$dir/$n");
		}
	}
	return "$script\\echo $mark end\n\\warn $mark end\n";
}

# Variables of psql say what came of it.
sub _failing
{
	my ($text) = @_;

	return "\\set ON_ERROR_STOP 0\n$text\\set ON_ERROR_STOP 1\n\\warn $mark sqlstate :LAST_ERROR_SQLSTATE\n";
}

# \! of PostgreSQL 15 does not tell psql how the command ended.
sub _shell
{
	my ($base) = @_;

	return
	    "\\! timeout -k 5 $block_limit bash -euo pipefail $base.sh </dev/null >$base.out 2>&1; echo \$? >$base.status\n"
	  . "\\set documents_ok `grep -qx 0 $base.status && echo 1 || echo 0`\n"
	  . "\\if :documents_ok\n\\else\n\\q\n\\endif\n";
}

sub _waiting
{
	my ($sql) = @_;

	return <<"END";
answer=
until [ "\$answer" = t ]; do
	[ -z "\$answer" ] || sleep 0.1
	answer=\$(psql -XAtq 2>&1 <<-'QUERY' || true
$sql;
QUERY
	)
	echo "last answer: \${answer:=null}"
done
END
}

# What psql said to a block: by their numbers, for one of its outputs.
sub _parts
{
	my ($text) = @_;
	my (undef, @parts) = split /^\Q$mark\E (\d+|end)\n/m, $text, -1;

	return { @parts };
}

sub _judge
{
	my ($dir, $out, $err, @blocks) = @_;
	my @problems;

	$err =~ s/^psql:[^\n]*?:\d+: //mg;
	my ($outs, $errs) = (_parts($out), _parts($err));
	for my $n (0 .. $#blocks)
	{
		my $block = $blocks[$n];
		my $line = $block->{line};

		if (!defined $errs->{$n})
		{
			push @problems, "$line: this and the " . ($#blocks - $n) . ' blocks after it have not been run';
			last;
		}
		push @problems, map { "$line: $_" }
			$block->{kind} eq 'sql'
		  ? _problems_of_sql($block, $outs->{$n}, $errs->{$n}, defined $errs->{ $n + 1 } || defined $errs->{end})
		  : _problems_of_shell($block, "$dir/$n");
	}
	push @problems, "0: psql has not come to the end" if !@problems && !defined $errs->{end};
	return @problems;
}

sub _problems_of_sql
{
	my ($block, $out, $err, $went_on) = @_;
	my $expected = $block->{output} ? $block->{output}{text} : undef;

	return "psql stopped: $err" if !$went_on;
	if ($block->{error})
	{
		my $sqlstate = $err =~ s/^\Q$mark\E sqlstate (\w+)\n//m ? $1 : 'none';
		my $errors = () = $err =~ /^(?:ERROR|FATAL):/mg;

		return "to fail, once, with $block->{error}, but $errors did, the last with $sqlstate: $err"
		  if $errors != 1 || $sqlstate ne $block->{error};
		$out .= $err;
	}
	elsif (defined $expected && $expected =~ /^(?:NOTICE|WARNING|INFO):/m)
	{
		$out = $err . $out;
	}
	elsif ($err =~ /^WARNING:/m)
	{
		return "it warns, and the document does not say so: $err";
	}
	return _problems_of_output($expected, $out);
}

sub _problems_of_shell
{
	my ($block, $base) = @_;
	my $out = -f "$base.out" ? read_text("$base.out") : '';
	my $status = -f "$base.status" ? read_text("$base.status") : 'none';

	chomp $status;
	return "exit status $status: $out" if $block->{kind} eq 'sh' && $status ne '0';
	return "waited in vain for $block->{text}: " . ((split /^/, $out)[-1] // '') if $status ne '0';
	return _problems_of_output($block->{output} ? $block->{output}{text} : undef, $out);
}

sub _problems_of_output
{
	my ($expected, $got) = @_;

	return () if !defined $expected || _matches($expected, $got);
	return "it prints\n$got" . "where the document has\n$expected";
}

# Line by line.
sub _matches
{
	my ($expected, $got) = @_;
	my $pattern = join '', map { /^\s*\.\.\.\s*$/ ? '(?:[^\n]*\n)*' : _line_pattern($_) } _lines($expected);

	return join('', map { "$_\n" } _lines($got)) =~ /\A$pattern\z/;
}

# Lines of dashes, between a heading and rows, are as wide as what is beneath.
sub _lines
{
	my ($text) = @_;

	return map { s/[^\S\n]+/ /gr =~ s/^ | $//gr =~ s/-{2,}/--/gr } split /\n/, $text =~ s/\s+\z//r;
}

sub _line_pattern
{
	my ($line) = @_;

	return join('[^\n]*', map { quotemeta } split /\.\.\./, $line, -1) . '\n';
}

# Those that a document has started, and not come to stop.
sub _stop_servers
{
	my ($dir) = @_;

	for my $file (glob("$dir/*/postmaster.pid"))
	{
		system('pg_ctl', 'stop', '--silent', '--mode=immediate', '--pgdata=' . dirname($file));
	}
	return;
}

# Nothing of a document is left for the next one: databases, roles, settings.
sub _clean_up
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		SELECT format('ALTER DATABASE %I IS_TEMPLATE false', datname) FROM pg_database
			WHERE datistemplate AND datname NOT IN ('template0', 'template1') \gexec
		SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database
			WHERE datname NOT IN ('postgres', 'template0', 'template1') \gexec
		SELECT format('DROP OWNED BY %I', rolname) FROM pg_roles WHERE oid >= 16384 \gexec
		SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE oid >= 16384 \gexec
		ALTER SYSTEM RESET ALL;
		SELECT pg_reload_conf();
	});
	return;
}

1;
