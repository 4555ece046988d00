# Every SQL block of the README runs as it stands, in order, in one session,
# and does what the text around it says.

use strict;
use warnings;

use DelayWheel;
use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;

my $readme = slurp_file(dirname(__FILE__) . '/../../README.md');
my @blocks = $readme =~ /^```sql\n(.*?)^```/msg;
cmp_ok(scalar @blocks, '>=', 5, 'the README has its SQL blocks');

my $node = new_node('readme', extension => 0);
my $script = PostgreSQL::Test::Utils::tempdir() . '/readme.sql';
append_to_file($script, join("\n", @blocks));

# the block that schedules by hand speaks of order 42, which is not there
my ($code, $out, $err) =
  $node->psql('postgres', undef, on_error_stop => 0,
	extra_params => [ '-v', 'ON_ERROR_STOP=1', '-f', $script ]);
is($code, 0, 'all of them run') or diag($err);
is($err, '', 'without a warning');

# what runs at once
wait_for($node, 'SELECT n = 109 FROM stock_total', 'the task with a key has run');
is($node->safe_psql('postgres', "SELECT status || ' ' || (SELECT n FROM stock) FROM purchase"), 'paid 109',
	'the order is paid, its task cancelled');

is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks'),
	3, 'the task of the first example and those of two orders are pending');

# what was scheduled for in two days does what it says
$node->safe_psql('postgres', 'SELECT delay_reschedule(id, interval \'0\') FROM delay_wheel.tasks');
wait_for($node, 'SELECT count(*) = 2 FROM t_order WHERE stars = 5 AND status = 1',
	'the orders have their 5 stars');
wait_for($node, 'SELECT done = 4 AND failed = 0 FROM delay_wheel.status', 'all tasks are done');

$node->stop;
done_testing();
