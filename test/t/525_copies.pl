# Copies of a database that has everything: pending tasks with keys, tags and
# queues, recurring ones, pauses, a cancellation under way, a failed task,
# history.  What came along, what of it acts, what waits for delay_wheel.arm(), and
# what one is told; then, armed, all of it acts once.  260_copies.pl has who may
# dump and restore, 265 replication, 267 pg_upgrade, 240 physical copies.

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
	SELECT delay_wheel.create_queue('slow', rate => 1000, max_running => 1, users => '{anna}'), delay_wheel.create_queue('stopped', users => '{anna}');
	SELECT delay_wheel.pause_queue('stopped');
	SET SESSION AUTHORIZATION anna;
	SELECT delay_schedule('0', 'INSERT INTO public.later VALUES (1)');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''key'')', delay => '1 day', key => 'order 1', tag => 'mail', queue => 'slow');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''superseded'')', delay => '1 day', key => 'order 2');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''stopped'')', delay => '1 day', queue => 'stopped');
	SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''marked'')', delay => '1 day', tag => 'marked') FROM generate_series(1, 5);
	SELECT delay_every('each day', '1 day', 'INSERT INTO public.effects VALUES (''recurring'')', starts => now() + interval '1 day');
	SELECT delay_every('each hour', '1 hour', 'INSERT INTO public.effects VALUES (''hourly'')', starts => now() + interval '1 day');
	SELECT delay_pause_recurring('each hour')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'a task has failed', 60, db => 'app', expected => 1);
# a cancellation that cannot end, since a transaction is open
my $open = $node->background_psql('app');
$open->query_safe(q{SET SESSION AUTHORIZATION anna; BEGIN; SELECT delay_schedule('2 days', 'SELECT 1')});
$node->safe_psql('app', q{SELECT delay_cancel_all(tag => 'marked')});
wait_for($node, 'SELECT state FROM delay_wheel.cancellations', 'a cancellation is under way', 60, db => 'app', expected => 'waiting');

my $n = 0;

# How often each label is in the table of effects.
my $effects = q{SELECT string_agg(label || ' ' || n, ', ' ORDER BY label) FROM (SELECT label, count(*) AS n FROM effects GROUP BY 1) e};

# New tasks of the same lanes run, behind all that is overdue in them and may run.
sub new_tasks
{
	my ($db, $label) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($db, qq{SET SESSION AUTHORIZATION anna;
		SELECT delay_schedule('0', 'INSERT INTO public.effects VALUES (''$label'')');
		SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''$label'')', delay => '0', queue => 'slow')});
	return wait_for($node, "SELECT count(*) FROM effects WHERE label = '$label'", "$label tasks run", 60, db => $db, expected => 2);
}

# What the copy has, and what of it acts; with so many rows of the history.
sub check
{
	my ($db, $what, $history) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $q = sub { return $node->safe_psql($db, $_[0]) };

	subtest $what => sub {
		wait_for($node, "SELECT unarmed FROM delay_wheel.status WHERE database = '$db'", 'the view status tells', 60, db => $db);
		my $warning = qr/WARNING:  database "$db" holds tasks that came with a copy; they are not run\n.*HINT:  .*call delay_wheel.arm\(\)/;
		ok(wait_until(60, sub { slurp_file($node->logfile) =~ $warning }), 'the log warns about tasks of the copy');
		is($q->('SELECT armed, key, tag, queue FROM delay_wheel.tasks WHERE key IS NOT NULL ORDER BY key'), "f|order 1|mail|slow\nf|order 2||default",
			'tasks with their keys, tag and queue, not armed');
		is($q->('SELECT count(*), count(*) FILTER (WHERE armed) FROM delay_wheel.tasks'), '4|0', 'the other tasks are not armed');
		is($q->('SELECT name, state FROM delay_wheel.recurring ORDER BY name'), "each day|unarmed\neach hour|unarmed", 'recurring tasks are not armed');
		is($q->('SELECT name, rate, max_running, paused FROM delay_wheel.queues WHERE name IS NOT NULL AND name <> $$default$$ ORDER BY name'),
			"slow|1000|1|f\nstopped|||t", 'queues with their limits, and a pause');
		is($q->('SELECT count(*), min(sqlstate) FROM delay_wheel.failed'), '1|42P01', 'the failed task');
		is($q->('SELECT count(*) FROM delay_wheel.history WHERE outcome <> $$cancelled$$'), $history, 'the history, if it came along');
		is($q->(q{SELECT count(*) FROM delay_wheel.tasks WHERE tag = 'marked'}), 0, 'what was cancelled stays cancelled');

		# all are overdue
		$q->(q{UPDATE delay_wheel_data.task SET due = now() - interval '1 min'});
		my (undef, undef, $err) = $node->psql($db, q{SELECT delay_run(id) FROM delay_wheel.tasks WHERE key = 'order 1'}, extra_params => [ '-U', 'anna' ]);
		like($err, qr/ERROR:  task \d+ is not armed/, 'an unarmed task cannot be run by hand');
		new_tasks($db, 'new');
		is($q->($effects), 'new 2', 'tasks of the copy do not run');
		is($q->(q{SET SESSION AUTHORIZATION anna; SELECT delay_resume_recurring('each hour'); SELECT state FROM delay_wheel.recurring WHERE name = 'each hour'}),
			"t\nunarmed", 'a resumed recurring task is not armed');
		$q->(q{CREATE TABLE later (n int); GRANT ALL ON later TO anna; SELECT delay_retry_all()});
		wait_for($node, 'SELECT count(*) FROM later', 'the failed task runs if it is put back', 60, db => $db, expected => 1);
		$q->(q{SET SESSION AUTHORIZATION anna; SELECT delay_schedule_task('INSERT INTO public.effects VALUES (''own'')', delay => '1 day', key => 'order 2')});
		is($q->(q{SELECT armed FROM delay_wheel.tasks WHERE key = 'order 2'}), 't', 'a newer task of a key supersedes that of the copy');

		is($q->('SELECT delay_wheel.arm(); SELECT delay_wheel.arm()'), "4\n0", 'armed, once');
		wait_for($node, $effects, 'what may run does, the recurring task, too', 60, db => $db, expected => 'key 1, new 2, recurring 1');
		wait_for($node, 'SELECT sqlstate FROM delay_wheel.failed', 'which is told when it is due', 60, db => $db, expected => 'DW001');
		is($q->('SELECT name, state, next_due > now() FROM delay_wheel.recurring ORDER BY name'), "each day|waiting|t\neach hour|waiting|t", 'recurring tasks wait for their next runs');
		is($q->('SELECT count(*) FROM delay_wheel.tasks t JOIN delay_wheel.recurring r ON t.id = r.task'), 2, 'the runs of recurring tasks are pending');
		$q->(q{SELECT delay_wheel.resume_queue('stopped')});
		wait_for($node, q{SELECT count(*) FROM effects WHERE label = 'stopped'}, 'what was paused runs when that ends', 60, db => $db, expected => 1);
		wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'the cancellation has come to its end', 60, db => $db, expected => 0);
		is($q->("SELECT unarmed FROM delay_wheel.status WHERE database = '$db'"), 'f', 'nothing is left to be armed');
		is($q->(q{SELECT count(*) FROM delay_wheel.history WHERE outcome = 'done'}), 6, 'the history goes on');
	};
	return;
}

sub new_copy
{
	my $db = 'everything' . ++$n;
	$node->safe_psql('postgres', "CREATE DATABASE $db" . ($_[0] // ''));
	return $db;
}

my @as = ('-U', 'operator', '--role=admin');
$node->command_ok([ 'pg_dump', '-f', "$dir/plain.sql", 'app' ], 'dumped as a script');
$node->command_ok([ 'pg_dump', '-Fc', @as, '-f', "$dir/custom.dump", 'app' ], 'dumped, by another role');
$node->command_ok([ 'pg_dump', '--schema-only', '-f', "$dir/schema.sql", 'app' ], 'the schema');
$node->command_ok([ 'pg_dump', '--data-only', '-Fc', '-f', "$dir/data.dump", 'app' ], 'the data');

group script => sub {
	my $db = new_copy();
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$dir/plain.sql", $db ], 'restored');
	check($db, 'a script', 0);
};
group archive => sub {
	my $db = new_copy();
	$node->command_ok([ 'pg_restore', @as, '-d', $db, "$dir/custom.dump" ], 'restored by another role');
	check($db, 'an archive, with --role', 0);
};
group parts => sub {
	my $db = new_copy();
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$dir/schema.sql", $db ], 'restored: the schema');
	$node->command_ok([ 'pg_restore', '-d', $db, "$dir/data.dump" ], 'and the data');
	check($db, 'schema and data', 0);
};
$open->query_safe('ROLLBACK');
$open->quit;
group template => sub {
	my $db = new_copy(' TEMPLATE app');
	check($db, 'TEMPLATE', 1);
};

# The original has its tasks as before, and runs them.
is($node->safe_psql('app', 'SELECT count(*), count(*) FILTER (WHERE armed) FROM delay_wheel.tasks'), '4|4', 'the original has nothing to be armed');
$node->safe_psql('app', q{UPDATE delay_wheel_data.task SET due = now(); SELECT delay_wheel.resume_queue('stopped')});
wait_for($node, $effects, 'it runs its own', 60, db => 'app', expected => 'key 1, recurring 1, stopped 1, superseded 1');

# A copy that has nothing but a paused recurring task tells of it, too.
$node->safe_psql('postgres', 'CREATE DATABASE paused');
$node->safe_psql('paused', q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_every('paused', '1 day', 'SELECT 1');
	SELECT delay_pause_recurring('paused')});
$node->command_ok([ 'pg_dump', '-f', "$dir/paused.sql", 'paused' ], 'a paused recurring task is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE paused_copy');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', "$dir/paused.sql", 'paused_copy' ], 'and restored');
wait_for($node, q{SELECT unarmed FROM delay_wheel.status WHERE database = 'paused_copy'}, 'the view status tells', 60, db => 'paused_copy');
ok(wait_until(60, sub { slurp_file($node->logfile) =~ /WARNING:  database "paused_copy" holds tasks that came with a copy/ }), 'paused: the log warns about tasks of the copy');
is($node->safe_psql('paused', q{SELECT unarmed FROM delay_wheel.status WHERE database = 'paused'}), 'f', 'the original has nothing to be armed');
is($node->safe_psql('paused_copy', q{SELECT delay_wheel.arm(); SELECT unarmed FROM delay_wheel.status WHERE database = 'paused_copy'}), "0\nf", 'the armed copy has nothing to be armed');

# Nothing of it comes again.
my $position = log_position($node);
$node->restart;
for my $db (map { "everything$_" } 1 .. $n)
{
	new_tasks($db, 'after');
	is($node->safe_psql($db, $effects), 'after 2, key 1, new 2, recurring 1, stopped 1', 'and nothing else');
}
unlike(log_since($node, $position), qr/WARNING/, 'and no more is said');

done_testing();
