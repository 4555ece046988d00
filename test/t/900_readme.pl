# README.md does what the text around its blocks says, and README.zh-CN.md has the same
# drawing.  (That the blocks of both run, and print what is shown, is for 905_docs; that they
# are the same ones, for 903_chinese.)

use strict;
use warnings;

use DelayWheel;
use Documents;
use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = dirname(__FILE__) . '/../..';

# The drawing of the ring is the same one, but for its words.
sub drawing_of
{
	my ($document) = @_;
	my ($file) = slurp_file("$root/$document") =~ m{\]\((doc/pictures/ring-explained[^)]*)\)};
	my $svg = slurp_file("$root/$file");

	$svg =~ s{(<(text|title|desc)\b[^>]*>)[^<]*(</\2>)}{$1$3}g;
	$svg =~ s{ xml:lang="[^"]*"}{};
	return $svg;
}
is(drawing_of('README.zh-CN.md'), drawing_of('README.md'), 'both have the same drawing of the ring, but for its words');

#
# What the text says of the blocks.
#
my $node = new_node('readme', extension => 0);
my $script = PostgreSQL::Test::Utils::tempdir() . '/readme.sql';
my ($blocks) = Documents::parse_document(slurp_file("$root/README.md"));
my @sql = map { $_->{kind} eq 'sql' ? $_->{text} : () } @$blocks;
is(scalar @sql, 3, 'the README has its SQL blocks');
append_to_file($script, join("\n", @sql));

my ($code, $out, $err) =
  $node->psql('postgres', undef, on_error_stop => 0,
	extra_params => [ '-v', 'ON_ERROR_STOP=1', '-f', $script ]);
is($code, 0, 'all of them run') or diag($err);
is($err, '', 'without a warning');

is($node->safe_psql('postgres', 'SELECT status FROM orders WHERE id = 7'), 'paid', 'the order is paid');
is($node->safe_psql('postgres', 'SELECT id FROM orders WHERE stars = 5'), '1',
	'the order whose task was brought forward has its stars');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.recurring'), '0', 'no recurring task is left');

# What was scheduled for in two days does what it says; the task of what is paid is cancelled.
is($node->safe_psql('postgres', 'SELECT args FROM delay_wheel.tasks ORDER BY id'), "{2}\n{7}", 'the tasks that rate the others are pending');
$node->safe_psql('postgres', 'SELECT delay_reschedule(id, interval \'0\') FROM delay_wheel.tasks');
wait_for($node, 'SELECT count(*) = 3 FROM orders WHERE stars = 5',
	'the orders have their 5 stars');
wait_for($node, 'SELECT done = 3 AND failed = 0 FROM delay_wheel.status', 'all tasks are done');

$node->stop;
done_testing();
