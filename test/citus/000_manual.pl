# The manual's section on Citus, from three empty clusters: runs its settings and statements
# as they stand there, with the addresses of these nodes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my ($section) = slurp_file("$FindBin::RealBin/../../doc/scaling.md") =~ /^## Citus\n(.*?)^## /ms;
my @blocks = $section =~ m{^<!-- shown by: test/citus/000_manual.pl -->\n(```(?:conf|sql)\n.*?)^```$}msg;
is(join(' ', map { /^```(\w+)/ } @blocks), 'conf sql sql sql sql sql', 'the section has its blocks');
my ($conf, @sql) = map { s/^```\w+\n//r } @blocks;
my @nodes = map { new_node($_, preload => 0, start => 0, conf => "listen_addresses = '127.0.0.1'\ncitus.node_conninfo = 'sslmode=disable'\n$conf") }
  qw(coordinator worker1 worker2);
my ($coordinator, @workers) = @nodes;
my $begun = time();

# Runs a block; each of its statements by itself, and the last result is returned.
sub run_block
{
	my ($node, $sql) = @_;

	for my $other (@nodes)
	{
		my ($name, $port) = ($other->name, $other->port);
		$sql =~ s/'$name\.example', 5432/'127.0.0.1', $port/;
	}
	my ($status, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 1);
	is($status, 0, 'a block runs') or diag("$sql\n$err");
	return $out;
}

$_->start for @nodes;
run_block($_, $sql[0]) for @nodes;
run_block($coordinator, $sql[1]);
my $view = run_block($coordinator, $sql[2]);
is(scalar(() = $view =~ /^127\.0\.0\.1:\d+\|/mg), 3, 'all nodes at a glance');
wait_for($coordinator, 'SELECT count(*) FILTER (WHERE stars = 5) FROM t_order', 'the first tasks of a distributed trigger run', 30, expected => 1000);
note(sprintf('%.1f s from the start of three empty clusters', time() - $begun));
is(run_block($coordinator, $sql[3]), '0', 'nothing has moved');
run_block($coordinator, $sql[4]);
is($coordinator->safe_psql('postgres', q{SELECT count(*) FROM run_command_on_all_nodes('SELECT 1 FROM delay_wheel.queues WHERE name = ''mail'' AND NOT paused') WHERE result = '1'}),
	'3', 'the queue is on all nodes');

done_testing();
