# Copies of a database that has everything: pending tasks with keys, tags and
# queues, recurring ones, pauses, cancellations under way, failed tasks.  What
# came along, what of it acts, what waits for delay_arm(), and what one is told.
# 260_copies.pl has who may dump and restore, 265 replication, 267 pg_upgrade.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('everything', extension => 0, conf => q{
max_worker_processes = 60
log_statement = none
delay_wheel.history = all
});
my $dir = PostgreSQL::Test::Utils::tempdir();

$node->safe_psql('postgres', q{
	CREATE ROLE anna LOGIN;
	CREATE ROLE admin SUPERUSER;
	CREATE ROLE operator LOGIN;
	GRANT admin TO operator;
	CREATE DATABASE app});
$node->safe_psql('app', q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.allow('anna');
	CREATE TABLE effects (label text);
	GRANT ALL ON effects TO anna;
	SELECT delay_queue('slow', rate => 1000, max_running => 1, users => '{anna}'), delay_queue('stopped', users => '{anna}');
	SELECT delay_pause('stopped');
	SET SESSION AUTHORIZATION anna;
	SELECT delay_schedule('0', 'SELECT 1 / 0');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''key'')', delay => '1 day', key => 'order 1', tag => 'mail', queue => 'slow');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''stopped'')', delay => '1 day', queue => 'stopped');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''marked'')', delay => '1 day', tag => 'marked') FROM generate_series(1, 5);
	SELECT delay_every('each day', '1 day', 'INSERT INTO public.effects VALUES (''recurring'')', starts => now() + interval '1 day')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'a task has failed', 60, db => 'app', expected => 1);
# a cancellation that cannot end, since a transaction is open
my $open = $node->background_psql('app');
$open->query_safe(q{SET SESSION AUTHORIZATION anna; BEGIN; SELECT delay_schedule('2 days', 'SELECT 1')});
$node->safe_psql('app', q{SELECT delay_cancel_all(tag => 'marked')});
wait_for($node, 'SELECT state FROM delay_wheel.cancellations', 'a cancellation is under way', 60, db => 'app', expected => 'waiting');

my $n = 0;

# What the copy has, and what of it acts.
sub check
{
	my ($db, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $q = sub { return $node->safe_psql($db, $_[0]) };

	subtest $what => sub {
		wait_for($node, "SELECT unarmed FROM delay_wheel.status WHERE database = '$db'", 'the view status tells', 60, db => $db);
		ok(wait_until(60, sub { slurp_file($node->logfile) =~ /WARNING:.*database "$db" holds tasks that came with a copy/ }), 'so does the log');
		is($q->('SELECT args IS NULL, armed, key, tag, queue FROM delay_wheel.tasks WHERE key IS NOT NULL'), 't|f|order 1|mail|slow', 'a task with its key, not armed');
		is($q->('SELECT count(*) FROM delay_wheel.tasks WHERE armed'), 0, 'nor is any other');
		is($q->('SELECT name, state FROM delay_wheel.recurring'), 'each day|unarmed', 'neither the recurring task');
		is($q->('SELECT name, rate, max_running, paused FROM delay_wheel.queues WHERE name IS NOT NULL AND name <> $$default$$ ORDER BY name'),
			"slow|1000|1|f\nstopped|||t", 'queues with their limits, and a pause');
		is($q->('SELECT count(*), min(sqlstate) FROM delay_wheel.failed'), '1|22012', 'the failed task');
		is($q->(q{SELECT count(*) FROM delay_wheel.tasks WHERE tag = 'marked'}), 0, 'what was cancelled stays cancelled');
		# all are overdue
		$q->(q{UPDATE delay_wheel.task SET due = now() - interval '1 min'});
		my ($rc, $out, $err) = $node->psql($db, q{SET SESSION AUTHORIZATION anna; SELECT delay_run(id) FROM delay_wheel.tasks WHERE key = 'order 1'});
		like($err, qr/ERROR/, 'an unarmed task cannot be run by hand');
		$q->(q{SET SESSION AUTHORIZATION anna; SELECT delay_schedule('0', 'INSERT INTO public.effects VALUES (''new'')')});
		wait_for($node, 'SELECT string_agg(label, $$ $$) FROM effects', 'a new task runs, no other', 60, db => $db, expected => 'new');
		cmp_ok($q->('SELECT delay_arm()'), '>=', 2, 'armed');
		wait_for($node, q{SELECT string_agg(DISTINCT label, ' ' ORDER BY label) FROM effects}, 'what may run does, the recurring task, too', 60,
			db => $db, expected => 'key new recurring');
		is($q->('SELECT label FROM effects GROUP BY label HAVING count(*) > 1'), '', 'each once');
		is($q->('SELECT state FROM delay_wheel.recurring'), 'waiting', 'the recurring task waits for its next run');
		$q->(q{SELECT delay_resume('stopped')});
		wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'stopped'}, 'what was paused runs when that ends', 60, db => $db, expected => 1);
		wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'the cancellation has come to its end', 60, db => $db, expected => 0);
		is($q->("SELECT unarmed FROM delay_wheel.status WHERE database = '$db'"), 'f', 'nothing is left to be armed');
	};
	return;
}

sub new_copy
{
	my $db = 'everything' . ++$n;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	return $db;
}

my @as = ('-U', 'operator', '--role=admin');
$node->command_ok([ 'pg_dump', '-f', "$dir/plain.sql", 'app' ], 'dumped as a script');
$node->command_ok([ 'pg_dump', '-Fc', @as, '-f', "$dir/custom.dump", 'app' ], 'dumped, by another role');
$node->command_ok([ 'pg_dump', '--schema-only', '-f', "$dir/schema.sql", 'app' ], 'the schema');
$node->command_ok([ 'pg_dump', '--data-only', '-Fc', '-f', "$dir/data.dump", 'app' ], 'the data');

my $db = new_copy();
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$dir/plain.sql", $db ], 'restored');
check($db, 'a script');
$db = new_copy();
$node->command_ok([ 'pg_restore', @as, '-d', $db, "$dir/custom.dump" ], 'restored by another role');
check($db, 'an archive, with --role');
$db = new_copy();
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$dir/schema.sql", $db ], 'restored: the schema');
$node->command_ok([ 'pg_restore', '-d', $db, "$dir/data.dump" ], 'and the data');
check($db, 'schema and data');
$open->query_safe('ROLLBACK');
$open->quit;
$node->safe_psql('postgres', 'CREATE DATABASE template_of_everything TEMPLATE app');
check('template_of_everything', 'TEMPLATE');
is($node->safe_psql('app', 'SELECT count(*) FROM delay_wheel.tasks WHERE NOT armed'), 0, 'the original has nothing to be armed');

done_testing();
