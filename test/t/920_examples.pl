# The examples run, each on a server that examples/run makes for it, and all of
# their own checks hold.  (order_rating is the suite "demo" of test/run.)
#
# With DW_LONG also in the large size, which takes about 20 GB of disk and half an
# hour or more.

use strict;
use warnings;

use DelayWheel;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

# checks that there are at least
my %commands = (
	'examples/run unpaid_order' => 10,
	'examples/run cron_replacement' => 6,
	'examples/run greetings' => 10);
my %large = (
	'examples/run --size large unpaid_order' => 10,
	'examples/run --size large cron_replacement' => 6,
	'examples/run --size large greetings' => 10);

my $place = PostgreSQL::Test::Utils::tempdir_short();
local $ENV{TMPDIR} = $place;

# The server and the library that the other tests run with.
my @options = ('--prepared', map { ('--conf', $_) } grep { /\S/ } split /\n/, $ENV{DW_CONF} // '');
# (one for sanitizers needs a server that is started for them)
push @options, '--libdir', $ENV{DW_LIBDIR} if $ENV{DW_LIBDIR} && !$ENV{DW_SANITIZE};

sub run_example
{
	my ($command, $checks) = @_;
	my ($program, @arguments) = split ' ', $command;
	my $said = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $done = IPC::Run::run([ "$FindBin::RealBin/../../$program", @options, @arguments ], '<', \undef, '>&', \$said);
	ok($done, "$command: it comes to its end") or diag($said);
	note($said);
	my @checks = $said =~ /^ok - (.*)$/mg;
	pass("$command: $_") for @checks;
	cmp_ok(scalar @checks, '>=', $checks, "$command: it has checked what it says");
	is(join(' ', glob("$place/*")), '', "$command: nothing is left behind");
	return;
}

run_example($_, $commands{$_}) for sort keys %commands;
if (long_tests())
{
	run_example($_, $large{$_}) for sort keys %large;
}

# What is not as it must be is an error.
{
	my $said = '';
	my $done = IPC::Run::run(
		[ "$FindBin::RealBin/../../examples/run", @options, '--conf', 'delay_wheel.enabled = off', '--conf', 'max_worker_processes = wrong', 'unpaid_order' ],
		'<', \undef, '>&', \$said);
	ok(!$done, 'an example whose server does not start is an error');
	is(join(' ', glob("$place/*")), '', '... and leaves nothing behind');
}
command_fails([ "$FindBin::RealBin/../../examples/run", 'nonsense' ], 'an example that does not exist is refused');

done_testing();
