# scripts/try: its tour goes to its end, as a script and at a terminal, on a PostgreSQL that
# does not have the extension, and nothing is left of it.

use strict;
use warnings;

use DelayWheel;
use File::Basename;
use File::Path;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my $try = "$root/scripts/try";
my $place = PostgreSQL::Test::Utils::tempdir_short();
my $bare = PostgreSQL::Test::Utils::tempdir();
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';

sub installed_in
{
	chomp(my $directory = qx($pg_config --$_[0]));
	return $directory;
}

#
# A PostgreSQL without delay_wheel, and into which nothing can be installed unseen: links to
# all files of the one that is tested, in directories of its own, found by copies of programs.
#
sub link_all
{
	my ($directory, @except) = @_;
	my %except = map { $_ => 1 } @except;

	mkpath("$bare$directory");
	for my $file (glob("$directory/*"))
	{
		my $name = basename($file);
		symlink($file, "$bare$directory/$name") or die "$bare$directory/$name: $!"
		  if !$except{$name} && $name !~ /^delay_wheel/ && !-e "$bare$directory/$name";
	}
	return;
}

my ($bindir, $sharedir, $libdir, $includedir) = map { installed_in($_) } qw(bindir sharedir pkglibdir includedir-server);
my @programs = qw(postgres initdb pg_ctl pg_config psql);
mkpath("$bare$bindir");
system_or_bail('cp', map({ "$bindir/$_" } @programs), "$bare$bindir/");
link_all($bindir, @programs);
link_all($libdir);
link_all("$sharedir/extension");
link_all($sharedir, 'extension');
mkpath("$bare" . dirname($includedir));
symlink($includedir, "$bare$includedir") or die $!;

# its files, as `find` names them
sub files { return scalar qx(find '$bare' -printf '%P %l %T\@\\n' | sort); }

local $ENV{TMPDIR} = $place;
local $ENV{PG_CONFIG} = "$bare$bindir/pg_config";
is(qx($ENV{PG_CONFIG} --sharedir), "$bare$sharedir\n", 'a PostgreSQL of its own');
my $before = files();
# no link to a file of it; a folder on the way may be called so
unlike($before, qr{\bdelay_wheel[^/\s]* /}, 'the new PostgreSQL has no delay_wheel');

sub nothing_is_left
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(join(' ', glob("$place/*")), '', "$when: nothing is left of the server");
	is(files(), $before, "$when: PostgreSQL is as it was");
	return;
}

# What the steps must show, whichever way they are taken.
my @steps = (
	[ 'a task runs', qr/\| +3\.0\n.*^ done\n.*^ hello from the past \| +\d+\.\d\n/ms ],
	[ 'a task fails', qr/^ failed\n.*\| 23514 +\| new row for relation "account" violates check constraint/ms ],
	[ 'it is put back, and runs', qr/^ put_back *\n-+\n retried\n.*^ ann +\| +70 \| +0\n/ms ],
	[ 'a message is received', qr/^ found *\n-+\n t\n.*\| \{"to": "ann"\}\n.*^ running \| +3 \|/ms ],
	[ 'the tour ends', qr/^That was the tour\..*^The server is gone\.\n\z/ms ]);

sub shows_all
{
	my ($what, $said) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	like($said, $_->[1], "$what: $_->[0]") for @steps;
	unlike($said, qr/\b(?:ERROR|WARNING|FATAL):/, "$what: without an error");
	return;
}

my $said = '';
ok(IPC::Run::run([ $try, '--prepared' ], '<', \undef, '>&', \$said, IPC::Run::timeout(300)), 'as a script: it succeeds') or diag($said);
shows_all('as a script', $said);
nothing_is_left('as a script');

#
# At a terminal, step by step, with something else in between, and a Ctrl-C, which psql
# survives.
#
SKIP:
{
	skip 'there is no IO::Pty', 1 if !eval { require IO::Pty; 1 };

	my ($in, $screen, $seen) = ('', '', 0);
	# without the escapes of readline, which would stand between words
	local $ENV{TERM} = 'dumb';
	local $ENV{INPUTRC} = '/dev/null';
	my $run = IPC::Run::start([ $try, '--prepared' ], '<pty<', \$in, '>pty>', \$screen, IPC::Run::timeout(300));
	# from what has been seen so far on
	my $see = sub {
		my ($pattern) = @_;

		IPC::Run::pump($run) until substr($screen, $seen) =~ /$pattern/ || !$run->pumpable;
		substr($screen, $seen) =~ /$pattern/ or return 0;
		$seen += $+[0];
		return 1;
	};
	my $prompt = qr/postgres=# (?:\e\S*)?$/;

	ok($see->($prompt), 'at a terminal: there is a prompt');
	# it says itself that it runs: a Ctrl-C that comes before is for the line that is typed
	$in .= "DO \$\$BEGIN RAISE NOTICE 'it runs'; PERFORM pg_sleep(300); END\$\$;\n";
	ok($see->(qr/NOTICE:  it runs/), 'at a terminal: a statement runs');
	$in .= "\x03";
	ok($see->(qr/ERROR:  canceling statement due to user request\s.*$prompt/s), 'at a terminal: Ctrl-C ends the statement alone');
	my $tour = $seen;
	for my $step (1, 2)
	{
		$in .= ":next\n";
		ok($see->(qr/^$step of 3.*^Type :next.*$prompt/ms), "at a terminal: step $step");
		$in .= "SELECT 6 * 7 AS own;\n";
		ok($see->(qr/ 42\s.*$prompt/s), 'at a terminal: a statement of one\'s own');
	}
	$in .= ":next\n";
	ok($see->(qr/^3 of 3.*^That was.*$prompt/ms), 'at a terminal: step 3');
	$in .= ":next\n";
	ok($see->(qr/^The tour has ended.*$prompt/ms), 'at a terminal: it ends there');
	$in .= "\\q\n";
	ok(IPC::Run::finish($run), 'at a terminal: it succeeds');
	shows_all('at a terminal', substr($screen, $tour) =~ s/\r\n/\n/gr);
	nothing_is_left('at a terminal');
}

#
# What does not go well is an error, and leaves nothing either.
#
{
	local $ENV{CC} = 'no-such-compiler';

	$said = '';
	ok(!IPC::Run::run([$try], '<', \undef, '>&', \$said), 'it needs a compiler');
	like($said, qr/^missing: gcc libc-headers\n/, 'the missing compiler is named');
	like($said, qr/^(?:sudo )?apt-get install gcc libc6-dev\n.*--install/m, '... and how to get it') if -x '/usr/bin/apt-get';
}
{
	# a tour that is not what it was
	my $copy = PostgreSQL::Test::Utils::tempdir();

	system_or_bail('cp', '-R', "$root/scripts", glob("$root/delay_wheel*"), $copy);
	append_to_file("$copy/scripts/tour/0.sql", "SELECT 1 / 0;\n");
	rename("$copy/scripts/tour/0.sql", "$copy/scripts/tour/1.sql") or die $!;
	$said = '';
	ok(!IPC::Run::run([ "$copy/scripts/try", '--prepared' ], '<', \undef, '>&', \$said), 'a tour that fails is an error');
	like($said, qr/did not go as it must/, '... which it says');
	nothing_is_left('after an error');
}

done_testing();
