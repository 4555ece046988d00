# Each page X.zh-CN.md has what X.md has: the same blocks that readers see (each with comments of
# its own language), headings, items of lists and rows of tables, in these the same figures, and links,
# all in the same order.
# A link to X.zh-CN.md is the same as one to X.md, whatever its anchor; and where a page is
# there in Chinese, the Chinese one is linked to.  Only the first link of each leads to the
# other language.  (905_docs runs the blocks, of the English pages, and follows all links.)

use strict;
use warnings;

use Documents;
use PostgreSQL::Test::Utils;
use Test::More;

#
# First that a difference is noticed.
#
my $dir = PostgreSQL::Test::Utils::tempdir();

# fences are written as ''' here, to be told from what is in a string
sub put
{
	my ($file, $text) = @_;

	unlink "$dir/$file";
	append_to_file("$dir/$file", $text =~ s/'''/```/gr);
	return;
}

my $english = <<'END';
# Sample

[中文](sample.zh-CN.md)

## A section

See [it](#a-section), [the other one](other.md#a-section), [a third one](third.md#part) and
[the world](https://host.invalid/#part).

* an item

  <!-- error: 22012 -->
  '''sql
  SELECT 1 / 0;    -- fails
  '''

  <!-- output -->
  '''text
  ERROR:  division by zero
  '''

| a | table |
|---|---|
| 1.5k (2k), 3 | `code` |
END
my $chinese = <<'END';
# 例子

[English](sample.md)

## 一节

见[本节](#一节)、[另一页](other.zh-CN.md#一节)、[第三页](third.md#part)和[世界](https://host.invalid/#part)。

* 一项

  <!-- error: 22012 -->
  '''sql
  SELECT 1 / 0;    -- 失败
  '''

  <!-- output -->
  '''text
  ERROR:  division by zero
  '''

| 一张 | 表 |
|---|---|
| 1.5k (2k), 3 | `code` |
END
put('sample.md', $english);
put($_, "# Page\n") for 'other.md', 'other.zh-CN.md', 'third.md';

sub differs
{
	my ($from, $to, $pattern, $what) = @_;
	my $text = $chinese;

	die "the sample has no $from" if $text !~ s/\Q$from\E/$to/;
	put('sample.zh-CN.md', $text);
	return like(join("\n", differences("$dir/sample.zh-CN.md")), $pattern, $what);
}

differs('失败', '出错', qr/\A\z/, 'what is the same but for its words');
differs("| 1.5k (2k), 3 | `code` |\n", '', qr/\Asample\.zh-CN\.md:0: heading, item or row 6 is missing, in English, line 24, <\| 1\.5k \(2k\), 3 \| `code` \|>\z/, 'a missing row');
differs('| 一张 | 表 |', '| 一张 表 |', qr/\Asample\.zh-CN\.md:21: heading, item or row 4 is <\|\|>/, 'a missing column');
differs('1.5k', '1.6k', qr/\Asample\.zh-CN\.md:23: heading, item or row 6 is <\| 1\.6k/, 'another figure');
differs('`code`', '`mode`', qr/\Asample\.zh-CN\.md:23: heading, item or row 6 is .* `mode` \|>/, 'another word of code');
differs('## 一节', '### 一节', qr/:5: heading, item or row 2 is <###>, in English, line 5, <##>\z/, 'a heading of another level');
differs('* 一项', '一项', qr/:21: heading, item or row 3 is <\|\|\|>/, 'a missing item');
differs('SELECT 1 / 0', 'SELECT 2 / 0', qr/\Asample\.zh-CN\.md:12: block 1 is <error: 22012 output: yes sql: SELECT 2/, 'a changed block');
differs('division by zero', 'division', qr/:17: block 2 is/, 'a changed output');
differs("  <!-- error: 22012 -->\n", '', qr/:11: block 1 is <output: yes sql: /, 'a missing directive');
differs('| 一张', "<!-- run sql\nSELECT 1;\n-->\n\n| 一张", qr/\A\z/, 'a hidden block');
differs("| 一张", "'''sql\nSELECT 1;\n'''\n\n| 一张", qr/:21: block 3 is <sql: SELECT 1;\n>, in English, there is none/, 'one more block');
differs('  <!-- error', '  <!-- erorr', qr/:11: unknown comment/, 'a slip in a directive');
differs('、[第三页](third.md#part)', '', qr/\Asample\.zh-CN\.md:7: link 4 is .*, in English, line 7, <third.md#part>\z/, 'a missing link');
differs('third.md#part', 'third.md', qr/\Asample\.zh-CN\.md:7: link 4 is <third.md>/, 'a missing anchor');
differs('host.invalid/#part', 'host.invalid/', qr/\Asample\.zh-CN\.md:7: link 5 is/, 'and one of the world');
differs('other.zh-CN.md#一节', 'other.md#part', qr/\Asample\.zh-CN\.md:7: a link to other\.md, which is there in Chinese\z/, 'a link to the English one');
differs("[English](sample.md)\n", '', qr/:1: the first link is not that to sample\.md/, 'a page without it');

#
# Then those that there are.
#
my @chinese = grep { /\.zh-CN\.md$/ } documents();
is(join("\n", differences($_)), '', $_) for @chinese;

# or the search for documents finds none
my %found = map { $_ => 1 } @chinese;
is(join(' ', grep { !$found{$_} } qw(README.zh-CN.md doc/tutorial.zh-CN.md)), '', 'those that are named here were found');

done_testing();
