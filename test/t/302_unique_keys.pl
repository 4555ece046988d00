# Keys that are unique for a period: the periods outlive a crash, go with a dump, and their rows
# go when they have ended.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('unique_keys');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub put
{
	my ($key, $db) = @_;
	return $node->safe_psql($db // 'postgres', qq{
		SELECT outcome FROM delay_scheduled(delay_schedule_task('INSERT INTO effect VALUES (\$1)', args => ARRAY['$key'], key => '$key', options => '{"unique_for": "1 hour"}'))});
}

$node->safe_psql('postgres', 'CREATE TABLE effect (key text)');
is(put('crash'), 'new', 'the first one is new');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'it is done', 60, expected => 0);
$node->stop('immediate');
$node->start;
is(put('crash'), 'refused', 'after a crash the period still lasts');
is($node->safe_psql('postgres', 'SELECT key FROM effect'), 'crash', 'it was done once');

# a period that ends while nobody looks, and more of them than are removed at a time
$node->safe_psql('postgres', q{
	INSERT INTO delay_wheel_data.unique_key SELECT 1000000 + i, now() - interval '1 hour', current_user::regrole, 0, 'old ' || i FROM generate_series(1, 2500) i});
$node->restart;
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.unique_key', 'the rows of periods that have ended are removed', 60, expected => 1);
is(put('old 1'), 'new', 'such a key can be scheduled again');
is(put('crash'), 'refused', 'others stay as they were');

# a dump
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'it is done', 60, expected => 0);
$node->safe_psql('postgres', q{
	SELECT delay_schedule_task('SELECT 1', key => 'pending', delay => '1 day', options => '{"unique_for": "1 hour"}');
	INSERT INTO delay_wheel_data.unique_key VALUES (2000000, now() - interval '1 hour', current_user::regrole, 0, 'ended')});
$node->command_ok([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-f', "$dir/dump", 'postgres' ], 'a dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-h', $node->host, '-p', $node->port, '-f', "$dir/dump", 'copy' ], 'is restored');
is($node->safe_psql('copy', 'SELECT key FROM delay_wheel_data.unique_key ORDER BY key'), "crash\nold 1\npending",
	'with the periods that last');
is(put('crash', 'copy'), 'refused', 'keys with a lasting period are refused in the copy');
is(put('pending', 'copy'), 'refused', 'also that of a task that is not armed');
$node->safe_psql('copy', 'SELECT delay_wheel.arm()');
is(put('pending', 'copy'), 'kept', 'the armed task of the key is pending and kept');

done_testing();
