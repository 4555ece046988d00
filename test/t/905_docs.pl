# Every block of every document is run, or is found where it is run.
#
# The documents are all *.md of the tree but those in test/.  Of the Chinese pages of doc/ only
# the links are followed: 903_chinese shows that their blocks are those of the English pages, and
# to run them again would show nothing new.  There is one server, with
# the library in shared_preload_libraries; each document has an empty database of its own,
# named as the file without .md, without the extension until the document creates it.
# Databases, roles and ALTER SYSTEM of a document are gone before the next one.  The
# blocks of a document are run in order in one psql session, as a superuser, up to the
# first one that fails; the working directory is a copy of the tree.
#
#	```sql      goes to psql as it stands; the last statement ends with ; or a \command
#	            of psql.  Not even a warning may come of it, unless its output shows that
#	```sh       is run by bash -euo pipefail, 60 s at most, as the unprivileged user;
#	            PGHOST, PGPORT, PGDATABASE and PGDATA are those of the server.  It may be
#	            copied by pg_basebackup, and other servers started in the working directory,
#	            with sockets in $PGHOST: those that are left are stopped
#	```text     after <!-- output -->, next block after one that is run: what that prints,
#	            line by line.  Runs of blanks, and lines of dashes, are equal whatever their
#	            length, "..." is anything within a line, a line "..." any number of lines.
#	            Of sql it is what psql prints to its standard output; then the error, if the
#	            block is to raise one; before that notices, if the document shows any
#	```conf     settings of postgresql.conf, "name = value": the server must take them
#	```yaml, ```json, ```promql, ```dockerfile, ```python, ```js, ```go, ```java, ```ruby, ```php
#	            data, after <!-- file: PATH --> or <!-- shown by: PATH -->; JSON and YAML must parse
#	```mermaid, and ``` without a word           pictures, not looked at
#
# What stands before a block, on lines of its own:
#
#	<!-- error: 42501 -->    sql: one statement of it, and no other, fails with this SQLSTATE
#	<!-- output -->          text: see above
#	<!-- shown by: PATH -->  sql, sh: not run, since it takes root, another machine, or another
#	                         server.  PATH is a script or test that does this: each command,
#	                         and each statement, stands in it word for word (blanks, sudo and
#	                         comments apart; not in its comments either).
#	                         Data: PATH is a test that names this document
#	<!-- file: PATH -->      text, conf, data: PATH has it word for word (blanks apart), a line
#	                         "..." stands for what is left out
#
# Hidden from readers, but run like blocks, in their place:
#
#	<!-- run sql
#	...
#	-->                      and the same with sh
#	<!-- wait: SELECT count(*) = 0 FROM delay_wheel.tasks -->
#	                         a superuser asks this until it is true, for 60 s at most
#
# Other comments begin with a capital letter, or are of one line without a colon.
# Blocks that are indented by four blanks are refused, since nothing would run them.
# Links to files of the tree must lead somewhere, and so must anchors.
#
# To run it for some documents only:  DW_DOCS='README.md doc/howto.md' test/run --tap 905_docs

use strict;
use warnings;

use DelayWheel;
use Documents;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('docs',
	extension => 0,
	init => [ allows_streaming => 1, extra => [ '--encoding=UTF8', '--no-locale' ] ]);

#
# First that it is noticed if a document does not hold.
#
my $dir = PostgreSQL::Test::Utils::tempdir();

sub problems_of_text
{
	my ($text) = @_;
	my $file = "$dir/sample.md";

	# fences are written as ''' here, to be told from what is in a string
	unlink $file;
	append_to_file($file, $text =~ s/'''/```/gr);
	return join "\n", problems_of($node, $file);
}

sub holds
{
	my ($text, $what) = @_;

	return is(problems_of_text($text), '', $what);
}

sub fails
{
	my ($text, $pattern, $what) = @_;

	return like(problems_of_text($text), $pattern, $what);
}

holds(<<'END', 'a document with everything in it holds');
# Sample

<!-- run sql
CREATE TABLE hidden AS SELECT 42 AS n;
-->

1. In a list:

   '''sql
   BEGIN;
   INSERT INTO hidden VALUES (43);
   SELECT n AS "the number" FROM hidden ORDER BY n;   -- a comment
   '''

   <!-- output -->
   '''text
   ...
    the number
   ------------
    42
    ...
   (2 rows)
   '''

It is the same session.

'''sql
COMMIT;
'''
<!-- wait: SELECT count(*) = 2
FROM hidden -->
<!-- error: 22012 -->
'''sql
SELECT 1 AS before;
SELECT 1 / 0;
'''
<!-- output -->
'''text
...
ERROR:  division by ...
'''

'''sql
DO $$BEGIN RAISE WARNING 'mind'; END$$;
'''
<!-- output -->
'''text
WARNING:  mind
DO
'''

'''sh
psql -XAtc 'SELECT current_database(), sum(n) FROM hidden'    # another session
test -f README.md
'''
<!-- output -->
'''text
sample|85
'''

'''sql
CREATE ROLE sample_role;
ALTER SYSTEM SET work_mem = '5MB';
'''

'''conf
# settings
shared_preload_libraries = 'delay_wheel'
delay_wheel.turns_ahead = 3    # a comment
log_min_duration_statement = 5s
'''

<!-- shown by: scripts/demo -->
'''sh
sudo "$dw_root/scripts/setup"  --what demo   # as root
'''

<!-- file: delay_wheel.control -->
'''text
...
relocatable = false
'''

'''
A picture.
'''
END
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname = 'sample_role'}),
	'0', 'its role is gone');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'sample'}),
	'0', 'its database is gone');

fails("'''sql\nSELECT 1;\n'''\n<!-- output -->\n'''text\n?column?\n---\n2\n(1 row)\n'''\n",
	qr/:1: it prints/, 'an output that is not so');
fails("'''sql\nSELECT 1;\n'''\n<!-- output -->\n'''text\n?column?\n---\n1\n'''\n",
	qr/:1: it prints/, 'an output with a line too few');
fails("'''sh\necho one\n'''\n<!-- output -->\n'''text\ntwo\n'''\n", qr/:1: it prints/, 'an output of a shell that is not so');
fails("'''\npicture\n'''\n<!-- output -->\n'''text\ntwo\n'''\n", qr/:5: output of nothing/, 'an output of nothing');
fails("'''text\ntwo\n'''\n", qr/:1: text that is neither/, 'a text of nothing');
fails("'''sql\nSELECT 1 / 0;\n'''\n\n'''sql\nSELECT 1;\n'''\n", qr/:1: psql stopped: ERROR:  division/, 'an SQL block that fails');
fails("<!-- error: 22012 -->\n'''sql\nSELECT 1;\n'''\n", qr/:2: to fail.* but 0 did/, 'one that does not fail as it should');
fails("<!-- error: 22012 -->\n'''sql\nSELECT a;\n'''\n", qr/:2: to fail.* the last with 42703/, 'one that fails otherwise');
fails("<!-- error: 22012 -->\n'''sql\nSELECT 1/0;\nSELECT 1/0;\n'''\n", qr/:2: to fail.* but 2 did/, 'one that fails twice');
fails("'''sql\nCOMMIT;\n'''\n", qr/:1: it warns.*no transaction/, 'one that warns');
fails("'''sql\nSELECT 1\n'''\n", qr/:1: the last statement has no end/, 'one without an end');
fails("'''sql\n\\q\n'''\n\n'''sql\nSELECT 1;\n'''\n", qr/:1: psql stopped/, 'one that ends psql');
fails("'''sh\nfalse\ntrue\n'''\n\n'''sql\nSELECT 1;\n'''\n",
	qr/:1: exit status 1.*:6: this and/s, 'a shell block that fails, and what is after it');
fails("<!-- run sh\nfalse\n-->\n", qr/:1: exit status 1/, 'a hidden block that fails');
fails("'''bash\ntrue\n'''\n", qr/:1: unknown fence "bash"/, 'an unknown fence');
fails("'''\nopen\n", qr/:1: this fence is not closed/, 'a fence that is not closed');
fails("Text:\n\n    SELECT 1;\n", qr/:3: indented block/, 'an indented block');
fails("'''\npicture\n'''\n    SELECT 1;\n", qr/:4: indented block/, 'an indented block after another one');
fails("# Heading\n\tSELECT 1;\n", qr/:2: indented block/, 'a block behind a tab');
fails("> '''sql\n> SELECT 1/0;\n> '''\n", qr/:1: fence in a quotation/, 'a block in a quotation');
fails("<!-- erorr: 22012 -->\n", qr/:1: unknown comment/, 'a comment with a slip');
fails("<!-- runsql\nSELECT 1;\n-->\n", qr/:1: unknown comment/, 'a hidden block with a slip');
fails("<!-- error: 22012 -->\nText\n", qr/:2: the comment before this/, 'a comment that belongs to nothing');
fails("<!-- error: 22012 -->\n'''sh\ntrue\n'''\n", qr/:2: "error" does not go/, 'a comment before a wrong block');
fails("<!-- shown by: scripts/demo -->\n'''sh\nscripts/setup --what nothing\n'''\n",
	qr,:2: not in scripts/demo: scripts/setup --what nothing,, 'a command that the script does not have');
fails("<!-- shown by: scripts/demo -->\n'''sh\nscripts/demo [--prepared]\n'''\n",
	qr,:2: not in scripts/demo,, 'one that stands in its comments');
fails("<!-- shown by: scripts/none -->\n'''sh\ntrue\n'''\n", qr,:2: there is no file scripts/none,, 'a script that is not there');
fails("<!-- shown by: README.md -->\n'''sh\nmake demo\n'''\n", qr/:2: README.md does nothing/, 'a document for a script');
fails("'''json\n{}\n'''\n", qr/:1: which file has this/, 'data of nowhere');
fails("<!-- file: META.json -->\n'''json\n{\"abstract\": }\n'''\n", qr/:2: not JSON/, 'JSON that is none');
fails("<!-- file: META.json -->\n'''json\n{\"abstract\": 1}\n'''\n", qr/:2: not in META.json/, 'data that is not in its file');
fails("<!-- shown by: test/run -->\n'''promql\nup\n'''\n", qr/:2: test.run does not speak of/, 'data that a test does not know');
# newer majors have other words for it
fails("'''conf\ndelay_wheel.turns_ahaed = 3\n'''\n",
	qr/:2: .*(unrecognized|invalid) configuration parameter.* "delay_wheel\.turns_ahaed"/, 'a setting with a slip');
fails("'''conf\n\ndelay_wheel.turns_ahead = many\n'''\n", qr/:3: .*invalid value/, 'a value with a slip');

unlink "$dir/other.md";
append_to_file("$dir/other.md", "# The `one`, and 2nd: it's\n\n## Again\n\n## Again\n\n## 出错了，`怎么 办`？看《这 一节》、“那一节”。\n");
append_to_file("$dir/links.md", <<'END');
# Links
[1](other.md#the-one-and-2nd-its) [2](other.md#again-1) [3](#links) [4](https://host.invalid/) `[5](none.md)`
[6](none.md) [7](other.md#two) ![8](none.svg) <img src="none.png">
[9](other.md#出错了怎么-办看这-一节那一节) [10](other.md#出错了，怎么-办看这-一节那一节)
END
is(join(' ', map { s,.*/,,r } broken_links("$dir/links.md")),
	'none.md other.md#two none.svg none.png other.md#出错了，怎么-办看这-一节那一节', 'links that lead nowhere');

#
# Then those that there are.
#
my %wanted = map { $_ => 1 } split ' ', $ENV{DW_DOCS} // '';
my @documents = documents();

for my $document (grep { !%wanted || $wanted{$_} } @documents)
{
	my $begun = time;

	is(join(' ', broken_links($document)), '', "links of $document");
	is(join("\n", problems_of($node, $document)), '', $document) if $document !~ m,^doc/.*\.zh-CN\.md$,;
	note(sprintf '%.1f s', time - $begun);
}

# or the search for documents finds none
my %found = map { $_ => 1 } @documents;
is(join(' ', grep { !$found{$_} } qw(README.md doc/operations/tasks.md), keys %wanted),
	'', 'all of those that are named here were found');

$node->stop;
done_testing();
