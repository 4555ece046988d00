# delay-wheel-http, workers/http: it is built, and its own tests run on a server of this test, with
# sinks on this machine; all modules at the same time, each with a database and a sink of its own,
# since they mostly wait.  Skipped without what it is built from (libcurl 7.87, libpq, OpenSSL), or
# without Python 3.11 with psycopg 3 for the tests.
#
#   DW_LONG   faults at length, too

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Workers;

my $tree = abs_path("$FindBin::RealBin/../..");
my $scratch = PostgreSQL::Test::Utils::tempdir();
my $limit = $ENV{DW_LONG} ? 1800 : 600;

plan skip_all => lacks_for_http() if lacks_for_http();
plan skip_all => 'Python 3.11 with psycopg 3 is not there'
  if !has_python();

# as in the tree: the manual is tested, too
mkdir "$scratch/$_" for qw(workers doc);
system('cp', '-R', "$tree/workers/http", "$scratch/workers/") == 0 or die "cannot copy workers/http\n";
system('cp', "$tree/doc/http.md", "$scratch/doc/") == 0 or die "cannot copy doc/http.md\n";
my $http = "$scratch/workers/http";
my $built = IPC::Run::run([ 'make', '-s', '-j2', '-C', $http, 'WERROR=1', 'clean', 'all' ], '<', \undef, '>', \my $said, '2>&1');
ok($built, 'it is built without warnings') or diag($said);
is($said, '', 'and without a word');

# Without what it needs, make names Debian's packages: those of its README ("<!-- shown by: test/t/613_workers_http.pl -->").
my ($packages) = slurp_file("$http/README.md") =~ /^sudo apt-get install (gcc make .*)$/m or die 'the README installs nothing';
ok(!IPC::Run::run([ 'make', '-s', '-C', $http, 'PKG_CONFIG=false' ], '<', \undef, '>', \$said, '2>&1'), 'without libcurl nothing is built');
like($said, qr/apt-get install \Q$packages\E\./, 'make names the packages');

# What is installed, and the unit that starts it, from where the README copies it.
my ($unit) = slurp_file("$http/README.md") =~ /^sudo cp (\S+) /m or die 'the README copies no unit';
ok(works('make', '-s', '-C', $http, "DESTDIR=$scratch/out", 'install'), 'it is installed');
my ($starts) = slurp_file("$scratch/out$unit") =~ /^ExecStart=(\S+)$/m;
ok(-x "$scratch/out$starts", "its unit starts $starts");

my $node = new_node('http', conf => "max_worker_processes = 60\nmax_connections = 200\nautovacuum = off\n");
local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => 'postgres', PGDATABASE => 'postgres', PYTHONDONTWRITEBYTECODE => 1);
# its roles belong to the whole server: made once, before the databases of the tests
ok(works(qw(psql -Xq -v ON_ERROR_STOP=1 -f), "$http/setup.sql"), 'setup.sql runs');
ok(works(qw(psql -Xq -v ON_ERROR_STOP=1 -f), "$http/setup.sql"), 'and once more');

my @modules = grep { $ENV{DW_LONG} || $_ ne 'test_chaos' } map { s{.*/|\.py$}{}gr } glob "$http/test/test_*.py";
my %running = map {
	my $output = '';
	$_ => { output => \$output, run => IPC::Run::start([ '/usr/bin/python3', '-m', 'unittest', '-v', $_ ],
		init => sub { chdir "$http/test" or die "chdir: $!\n" },
		'<', \undef, '>', \$output, '2>&1', IPC::Run::timeout($limit)) }
} @modules;

for my $module (@modules)
{
	my $run = $running{$module};
	my $ended = eval { $run->{run}->finish };
	my ($passed) = ${ $run->{output} } =~ /^Ran (\d+) tests? in/m;

	ok($ended, $module) or diag(${ $run->{output} }, $@);
	cmp_ok($passed // 0, '>=', $module eq 'test_chaos' ? 1 : 5, "$module: its tests were run");
	note(${ $run->{output} });
}

$node->stop('immediate');
done_testing();
