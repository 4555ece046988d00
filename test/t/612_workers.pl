# The worker libraries, workers/node and workers/python: their own tests, on a server of this
# test, beside each other. What is not there (node 20 with pg, Python 3.11 with psycopg 3) is
# skipped.
#
#   DW_LONG             faults at length, too
#   DW_ONLY             node or python
#   DW_DRIVER_MODULES   see Workers.pm

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

# A node of each library: their tests restart the server.
sub server
{
	my ($name) = @_;

	return new_node($name, conf => "max_worker_processes = 16\nautovacuum = off\nlog_line_prefix = '%m [%p] %q%a '\n");
}

# node looks for packages beside a program, so the library is tested in a copy with pg beside it.
my %library = (
	node => {
		there => sub { return has_node('pg') },
		needs => 'node 20 with pg',
		prepare => sub { symlink(node_modules_with('pg'), "$scratch/node/node_modules") or die "symlink: $!\n" },
		command => [qw(npm test --silent)] },
	python => {
		there => \&has_python,
		needs => 'Python 3.11 with psycopg 3',
		prepare => sub { },
		command => [ '/usr/bin/python3', '-m', 'tests' ] });

my %running;
for my $name (sort keys %library)
{
	my $library = $library{$name};
	next if ($ENV{DW_ONLY} // $name) ne $name || !$library->{there}->();
	system('cp', '-R', "$tree/workers/$name", "$scratch/$name") == 0 or die "cannot copy workers/$name\n";
	system('rm', '-rf', "$scratch/$name/node_modules");
	$library->{prepare}->();
	my $node = server($name);
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => 'postgres', PGDATABASE => 'postgres', npm_config_cache => "$scratch/npm");
	$running{$name} = { node => $node, output => "$scratch/$name.out" };
	$running{$name}{run} = IPC::Run::start($library->{command}, init => sub { chdir "$scratch/$name" or die "chdir: $!\n" },
		'<', \undef, '>', $running{$name}{output}, '2>&1', IPC::Run::timeout($limit));
}

for my $name (sort keys %library)
{
	SKIP:
	{
		my $run = $running{$name} // skip "$library{$name}{needs} is not there", 1;
		my $ended = eval { $run->{run}->finish };
		my $error = $@;
		$run->{run}->kill_kill(grace => 1) if $error;
		my $output = slurp_file($run->{output});
		my $passed = () = $output =~ /^(?:ok \d+|\s*✔|test\w+ .*\.\.\. ok)/mg;

		ok($ended, "tests of workers/$name") or diag($output, $error);
		cmp_ok($passed, '>', 20, "$passed tests of workers/$name were run");
		$run->{node}->stop('immediate');
	}
}

done_testing();
