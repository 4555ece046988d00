# Queues and pauses under load: no task is started after the commit of a pause,
# what was paused runs in order, once; over restarts, crashes, two-phase commit
# and copies.  A queue is never dropped with tasks in it, and tasks of a queue
# that has no place in shared memory are not run without its limits.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('queues', injection => has_injection(), conf => q{
log_statement = none
log_min_error_statement = panic
autovacuum = off
restart_after_crash = on
});
$node->safe_psql('postgres', q{
	CREATE TABLE effects (n int, at timestamptz DEFAULT clock_timestamp(), seq serial,
		id bigint DEFAULT current_setting('delay_wheel.task_id')::bigint);
	CREATE ROLE other LOGIN;
	GRANT ALL ON effects, effects_seq_seq TO other;
	SELECT delay_wheel.allow('other');
	SELECT delay_wheel.create_queue('work', users => '{other}');
	CREATE FUNCTION put(n int, queue text DEFAULT NULL, due timestamptz DEFAULT now(), priority int DEFAULT NULL) RETURNS bigint LANGUAGE sql
		AS $$SELECT delay_schedule_task(format('INSERT INTO effects VALUES (%s)', n), queue => queue, due => due, priority => priority)$$;
	-- takes its time, so that the end of the list is not reached before the pause
	CREATE FUNCTION put_slow(n int, due timestamptz) RETURNS bigint LANGUAGE sql
		AS $$SELECT delay_schedule_task(format('SELECT pg_sleep(0.001); INSERT INTO effects VALUES (%s)', n), queue => 'work', due => due)$$;
	-- rows deleted, whether or not that was undone: claims
	CREATE VIEW claims AS SELECT pg_stat_get_tuples_deleted('delay_wheel_data.task'::regclass) AS n;
});

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub ran
{
	my ($n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, "SELECT count(*) > 0 FROM effects WHERE n = $n", $what);
}

# A later task of elsewhere has run: an earlier one that may would have, too.
my $control = 1000000;

sub nothing_else_runs
{
	my ($role) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$control++;
	sql(($role ? "SET ROLE $role; " : '') . "SELECT put($control)");
	ran($control, 'a task elsewhere runs');
	return;
}

sub has_not_run
{
	my ($n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql("SELECT count(*) FROM effects WHERE n = $n"), 0, $what);
}

#
# Under load.
#
sql(q{SELECT delay_wheel.pause_queue('work');
	SELECT put_slow(n, now() - interval '1 hour' + n * interval '1 second') FROM generate_series(1, 2000) n});
my $session = $node->background_psql('postgres');
$session->query_safe(q{SELECT delay_wheel.resume_queue('work')});
wait_for($node, 'SELECT count(*) > 100 FROM effects', 'tasks run');
$session->query_safe(q{SELECT delay_wheel.pause_queue('work')});
# those that run, then the time: what was started before is among them, or has ended
my $before = $session->query_safe(q{WITH r AS MATERIALIZED (SELECT COALESCE(array_agg(task), '{}') AS running FROM delay_wheel.running)
	SELECT running, clock_timestamp() FROM r});
$before =~ s/\s+\z//;
my ($running, $paused_at) = split /\|/, $before;
nothing_else_runs('other');
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'those that ran have ended', 60, expected => 0);
my $done = sql('SELECT count(*) FROM effects WHERE n <= 2000');
cmp_ok($done, '<', 2000, 'the pause came in between');
is( sql("SELECT count(*) FROM effects WHERE n <= 2000 AND at > '$paused_at' AND id <> ALL ('$running')"),
	0, 'no task was started after the pause');

# Meanwhile tasks come, go and are moved.  One executor, so that the order can
# be told.
$node->append_conf('postgresql.conf', 'delay_wheel.max_executors = 1');
$node->reload;
sql(q{SELECT put(2001, 'work', now() - interval '2 hours'), put(2002, 'work', now());
	SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE sql LIKE '%(1990)';
	SELECT delay_reschedule(id, now() - interval '3 hours') FROM delay_wheel.tasks WHERE sql LIKE '%(1991)'});
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'}, 'the executors have ended, but one', 60, expected => 1);
my $last = sql('SELECT max(seq) FROM effects');
$session->query_safe(q{SELECT delay_wheel.resume_queue('work')});
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'all of them run', 60, expected => 0);
is( sql('SELECT count(*), count(DISTINCT n) FROM effects WHERE n <= 2002'), '2001|2001', 'each once');
is( sql("SELECT array_agg(n ORDER BY seq) = array_agg(n ORDER BY CASE n WHEN 1991 THEN -1 WHEN 2001 THEN 0 ELSE n END)
		FROM effects WHERE seq > $last AND n <= 2002"), 't', 'in the order of their due times');
$node->append_conf('postgresql.conf', 'delay_wheel.max_executors = 4');
$node->reload;

#
# At the very moment: a task that was claimed is put back, one whose verdict
# was spoken runs.  Neither goes round in circles.
#
SKIP:
{
	skip 'needs the build with injection points', 9 unless has_injection();

	attach($node, 'claim-after-delete', 'wait', 0, 1);
	sql(q{SELECT put(3001, 'work')});
	wait_until_waiting($node, 'claim-after-delete', 'a task is claimed');
	sql(q{SELECT delay_wheel.pause_queue('work'), put(3002, 'work')});
	detach($node, 'claim-after-delete');
	nothing_else_runs();
	has_not_run('3001 OR n = 3002', 'paused, it does not run');
	wait_for($node, q{SELECT sum(ready) FROM delay_wheel.lanes WHERE queue = 'work'}, 'it is back in its lane', 60, expected => 2);
	sql(q{SELECT delay_wheel.resume_queue('work')});
	ran(3001, 'resumed, it runs');
	ran(3002, 'so does the next one');

	attach($node, 'run-before-sql', 'wait', 0, 1);
	sql(q{SELECT put(3003, 'work')});
	wait_until_waiting($node, 'run-before-sql', 'a task is started');
	sql(q{SELECT delay_wheel.pause_queue('work')});
	detach($node, 'run-before-sql');
	ran(3003, 'it runs in spite of a pause');
	sql(q{SELECT delay_wheel.resume_queue('work')});
}

# Lanes that are entered by who schedules into a pause: at most one claim each.
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'nothing runs', 60, expected => 0);
$session->query_safe('SET ROLE other');
$session->query_safe('SELECT delay_pause_all()');
$session->query_safe('SELECT put(n, NULL, now(), n % 3 - 1) FROM generate_series(3100, 3129) n');
nothing_else_runs();
wait_for($node, q{SELECT sum(ready) FROM delay_wheel.lanes WHERE owner = 'other'}, 'paused tasks wait', 60, expected => 30);
my $claims = sql('SELECT n FROM claims');
nothing_else_runs();
cmp_ok(sql('SELECT n FROM claims') - $claims, '<', 5, 'paused tasks are not claimed over and over');
has_not_run('ANY (SELECT generate_series(3100, 3129))', 'none of them runs');
$session->query_safe('SELECT delay_resume_all()');
wait_for($node, 'SELECT count(*) FROM effects WHERE n BETWEEN 3100 AND 3129', 'resumed, they do', 60, expected => 30);
$session->query_safe('RESET ROLE');

#
# Two-phase commit.
#
$session->query_safe(q{BEGIN; SELECT delay_wheel.pause_queue('work'), put(4001, 'work')});
$session->query_safe(q{PREPARE TRANSACTION 'pause'});
sql(q{SELECT put(4002, 'work')});
ran(4002, 'a prepared pause does nothing yet');
sql(q{COMMIT PREPARED 'pause'});
sql(q{SELECT put(4003, 'work')});
nothing_else_runs();
has_not_run('4001 OR n = 4003', 'committed, it does');
$session->query_safe(q{BEGIN; SELECT delay_wheel.resume_queue('work')});
$session->query_safe(q{PREPARE TRANSACTION 'resume'});
sql(q{ROLLBACK PREPARED 'resume'});
nothing_else_runs();
has_not_run(4001, 'a prepared resume that is rolled back does nothing');
$session->query_safe(q{BEGIN; SELECT delay_wheel.resume_queue('work')});
$session->query_safe(q{PREPARE TRANSACTION 'resume'});
$session->quit;
$node->restart;
nothing_else_runs();
has_not_run(4001, 'a restart resumes nothing');
like(($node->psql('postgres', q{SELECT delay_wheel.drop_queue('work')}))[2], qr/is being used by other transactions/,
	'a prepared change keeps the queue from being dropped');
sql(q{COMMIT PREPARED 'resume'});
ran(4001, 'a prepared resume, committed after a restart, does it');
ran(4003, 'for all tasks');

# Dropped, for a session that has used the queue before, and waits.
for my $end (qw(ROLLBACK COMMIT))
{
	sql(q{SELECT delay_wheel.create_queue('brief')});
	my $user = $node->background_psql('postgres', on_error_stop => 0);
	$user->query_safe(q{SELECT put(4010, 'brief')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'a queue is used', 60, expected => 0);
	sql(q{BEGIN; SELECT delay_wheel.drop_queue('brief'); PREPARE TRANSACTION 'drop'});
	$user->query_until(qr/begun/, "\\echo begun\nSELECT put(4011, 'brief');\n");
	wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted}, 'who uses it waits', 60, expected => 1);
	# the lock is given back before it is told that the queue was dropped
	attach($node, 'commit-visible', 'wait', 0, 1) if has_injection();
	my $ender = $node->background_psql('postgres');
	$ender->query_until(qr/begun/, "\\echo begun\n$end PREPARED 'drop';\n");
	wait_until_waiting($node, 'commit-visible') if has_injection();
	wait_for($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted}, 'he waits no more', 60, expected => 0);
	detach($node, 'commit-visible') if has_injection();
	$ender->quit;
	ran(4011, 'it was not dropped') if $end eq 'ROLLBACK';
	$user->quit;
	like($user->{stderr}, qr/queue "brief" does not exist/, 'it was dropped') if $end eq 'COMMIT';
}
is(sql('SELECT count(*) FROM delay_wheel_data.task'), 0, 'no task is in it');

# The same by a commit that has given its locks back, and has more to tell.
if (has_injection())
{
	sql(q{SELECT delay_wheel.create_queue('brief')});
	my $user = $node->background_psql('postgres', on_error_stop => 0);
	$user->query_safe(q{SELECT put(4012, 'brief')});
	ran(4012, 'a queue is used');
	attach($node, 'commit-before-hints', 'wait', 0, 1);
	my $dropper = $node->background_psql('postgres');
	$dropper->query_until(qr/begun/, "\\echo begun\nSELECT delay_wheel.drop_queue('brief');\n");
	wait_until_waiting($node, 'commit-before-hints', 'the queue is dropped');
	$user->query(q{SELECT put(4013, 'brief')});
	detach($node, 'commit-before-hints');
	$_->quit for $user, $dropper;
	like($user->{stderr}, qr/queue "brief" does not exist/, 'who has used it knows');
}

#
# The database, and all of it over restart and crash.
#
sql(q{SELECT delay_wheel.pause_queue('work'), put(5001, 'work'); SET ROLE other; SELECT delay_pause_all(), put(5002)});
$node->restart;
nothing_else_runs();
has_not_run('5001 OR n = 5002', 'pauses last over a restart');
sql(q{SELECT delay_wheel.pause_database(), put(5003)});
my $started = sql('SELECT pg_postmaster_start_time()');
my ($pid) = worker_pids($node, 'timer');
kill 'KILL', $pid;
wait_for($node, "SELECT state = 'paused' AND lanes = 3 FROM delay_wheel.status WHERE (SELECT count(*) FROM pg_stat_activity WHERE pid = $pid) = 0",
	'the database is paused after a crash');
wait_for($node, 'SELECT sum(ready) FROM delay_wheel.lanes', 'its tasks wait', 60, expected => 3);
is(scalar(worker_pids($node, 'executor')), 0, 'without executors');
sql(q{SELECT delay_wheel.resume_database()});
ran(5003, 'resumed, its tasks run');
nothing_else_runs();
has_not_run('5001 OR n = 5002', 'but those that are paused otherwise');

#
# A copy has the queues and the pauses; the ids of new queues are others.
#
$node->command_ok([ 'pg_dump', '-Fc', '-f', $node->basedir . '/dump', $node->connstr('postgres') ], 'dumped');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '-d', $node->connstr('copy'), $node->basedir . '/dump' ], 'restored');
my $all = 'SELECT q.* FROM delay_wheel_data.queue q; SELECT * FROM delay_wheel_data.pause';
is($node->safe_psql('copy', $all), sql($all), 'the copy has the queues and the pauses');
$node->safe_psql('copy', q{SELECT delay_wheel.create_queue('new'), delay_wheel.arm(), put(5004)});
is($node->safe_psql('copy', 'SELECT count(DISTINCT id) FROM delay_wheel_data.queue'), 2, 'a new queue has another id');
wait_for($node, 'SELECT count(*) FROM effects WHERE n = 5004', 'its own tasks run', 60, expected => 1, db => 'copy');
is($node->safe_psql('copy', 'SELECT count(*) FROM effects WHERE n IN (5001, 5002)'), 0, 'paused tasks are paused in the copy');
$node->safe_psql('copy', q{SELECT delay_wheel.resume_queue('work'); SET ROLE other; SELECT delay_resume_all()});
wait_for($node, 'SELECT count(*) FROM effects WHERE n IN (5001, 5002)', 'resumed, they run there', 60, expected => 2, db => 'copy');
has_not_run('5001 OR n = 5002', 'and only there');
sql(q{SELECT delay_wheel.resume_queue('work'); SET ROLE other; SELECT delay_resume_all()});
ran(5001, 'now here, too');
ran(5002, 'all of them');

#
# Dropped while others schedule into it.
#
sql(q{CREATE TABLE scheduled (id bigint); CREATE TABLE dropped (at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE race_effects ()});
my %scripts = (
	schedule => q{INSERT INTO scheduled SELECT delay_schedule_task('INSERT INTO race_effects DEFAULT VALUES', queue => 'race'); EXCEPTION WHEN undefined_object THEN},
	drop => q{PERFORM delay_wheel.drop_queue('race'); INSERT INTO dropped DEFAULT VALUES; EXCEPTION WHEN undefined_object OR object_in_use THEN},
	declare => q{PERFORM delay_wheel.create_queue('race'); EXCEPTION WHEN undefined_object THEN});
my @options;
for my $name (sort keys %scripts)
{
	my $file = $node->basedir . "/$name.sql";

	append_to_file($file, "DO \$\$ BEGIN $scripts{$name} END \$\$;\n");
	push @options, '-f', $file . ($name eq 'schedule' ? '@1' : '@2');
}
my $seconds = long_tests() ? 60 : 4;
$node->command_ok([ 'pgbench', '-n', '-c', 4, '-T', $seconds, @options, $node->connstr('postgres') ], 'a race of scheduling and dropping');
cmp_ok(sql('SELECT count(*) FROM dropped'), '>', 10, 'the queue was dropped now and then');
cmp_ok(sql('SELECT count(*) FROM scheduled'), '>', 10, 'tasks were scheduled now and then');
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'no task is left in a queue that does not exist', 60, expected => 0);
is(sql('SELECT (SELECT count(*) FROM race_effects) - (SELECT count(*) FROM scheduled)'), 0, 'all tasks have run');
sql(q{DO $$ BEGIN PERFORM delay_wheel.drop_queue('race'); EXCEPTION WHEN undefined_object THEN END $$});

#
# More queues than places.
#
sql(q{SELECT delay_wheel.create_queue('second', max_running => 1), delay_wheel.create_queue('third', max_running => 1)});
$node->append_conf('postgresql.conf', 'delay_wheel.max_queues = 4');
my $position = log_position($node);
$node->restart;
wait_for($node, 'SELECT bool_and(state = $$running$$), count(*) FROM delay_wheel.status', 'both databases are served', 60, expected => 't|2');
# 3 here, 2 in the copy, 4 places
ok( wait_until(60, sub { log_since($node, $position) =~ /too many queues are declared: the limit of 4 is reached/ }),
	'the log tells of too many queues');
my ($full) = grep { $node->safe_psql($_, 'SELECT last_problem FROM delay_wheel.status WHERE database = current_database()') =~ /too many queues/ } qw(postgres copy);
ok($full, 'status shows that there are too many queues');
my $names = join ' ', map { "SELECT put(6000, '$_');" } split /\n/, $node->safe_psql($full, 'SELECT name FROM delay_wheel_data.queue');
my $count = () = $names =~ /put/g;
$node->safe_psql($full, $names);
wait_for($node, 'SELECT count(*) FROM effects WHERE n = 6000', 'tasks of queues with a place run', 60, expected => $count - 1, db => $full);
wait_for($node, q{SELECT sum(ready) FROM delay_wheel.lanes WHERE queue <> 'default'}, 'that of the other one waits', 60, expected => 1, db => $full);
# also when the timer looks again
$node->safe_psql($full, 'SELECT delay_pause_all()');
$node->safe_psql($full, 'SELECT delay_resume_all()');
$node->safe_psql($full, 'SELECT put(6001)');
wait_for($node, 'SELECT count(*) FROM effects WHERE n = 6001', 'a task of the default queue runs', 60, expected => 1, db => $full);
is($node->safe_psql($full, 'SELECT count(*) FROM effects WHERE n = 6000'), $count - 1, 'that of the queue without a place does not');
my ($rc, $out, $err) = $node->psql($full, q{SELECT delay_wheel.create_queue('fourth')});
like($err, qr/ERROR:  too many queues are declared: the limit of 4 is reached.*HINT:  Drop queues/s, 'no more can be declared');
is( scalar(() = log_since($node, $position) =~ /LOG:  too many queues are declared/g), 1, 'the log tells of it once');
$node->safe_psql($full eq 'postgres' ? 'copy' : 'postgres', q{SELECT delay_wheel.drop_queue(name) FROM delay_wheel_data.queue LIMIT 1});
wait_for($node, 'SELECT count(*) FROM effects WHERE n = 6000', 'a queue that is dropped elsewhere gives its place', 60, expected => $count, db => $full);

done_testing();
