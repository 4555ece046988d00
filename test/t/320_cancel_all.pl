# delay_cancel_all(): its time does not depend on how many tasks it hits; none
# of them runs after its commit; their rows go in the background, whatever
# happens to the process that removes them; and the cancellation stays until
# no transaction can bring more.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('cancel_all', injection => 1, conf => q{
log_statement = none
restart_after_crash = on
max_wal_size = 4GB
});
$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN;
	CREATE TABLE effects (tag text, began timestamptz DEFAULT now());
	GRANT ALL ON effects TO PUBLIC;
	SELECT delay_wheel.allow('app');
});

# Adds tasks by plain SQL, which says where they are due: i is their number.
sub adding
{
	my ($n, $tag, $due) = @_;
	return qq{
		INSERT INTO delay_wheel_data.task (due, owner, tag, sql)
		SELECT $due, 'app', '$tag', 'INSERT INTO public.effects VALUES (''$tag'')' FROM generate_series(1, $n) i;};
}

sub add
{
	my ($n, $tag, $due, $db) = @_;
	$node->safe_psql($db // 'postgres', adding($n, $tag, $due));
	return;
}

# Milliseconds that the statement takes, the best of some calls.
sub time_of_cancel
{
	my ($tag) = @_;
	my $out = $node->safe_psql('postgres', qq{
		DO \$\$
		DECLARE
			begun timestamptz := clock_timestamp();
		BEGIN
			PERFORM delay_cancel_all(tag => '$tag');
			COMMIT;
			PERFORM set_config('my.ms', (1000 * extract(epoch FROM clock_timestamp() - begun))::text, false);
		END \$\$;
		SELECT current_setting('my.ms')});
	return $out;
}

sub rows_of
{
	my ($tag) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM delay_wheel_data.task WHERE tag = '$tag'");
}

sub swept
{
	my ($what, $db) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.cancellation WHERE origin = delay_wheel_internal.origin()',
		"$what: the cancellation goes", 120, expected => 0, db => $db);
}

sub sweeper_ends
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper'},
		"$what: no process stays", 60, expected => 0);
}

#
# Many, among others, due in the far future.
#
add(100000, 'others', q{now() + interval '1 day' + i * interval '1 s'});
add(100, 'few', q{now() + interval '1 day' + i * interval '1 h'});
add(100000, 'many', q{now() + interval '1 day' + i * interval '1 s'});
my $few = time_of_cancel('few');
swept('few');
my $many = time_of_cancel('many');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.tasks WHERE tag = 'many'}), 0, 'they are gone at once');
note("delay_cancel_all and COMMIT: 100 tasks $few ms, 100,000 tasks $many ms");
cmp_ok($many, '<', 10 * $few + 100, 'its time does not grow with what it hits');
swept('many');
is(rows_of('few') + rows_of('many'), 0, 'their rows are gone');
is(rows_of('others'), 100000, 'those of others are not');
sweeper_ends('many');

#
# While they are due all the time.  One session adds and cancels them: on a busy machine all would
# have run before another one had begun.
#
my $committed = $node->safe_psql('postgres', adding(100000, 'due', 'now()') . q{
	DO $$
	BEGIN
		FOR i IN 1..60000 LOOP
			EXIT WHEN (SELECT count(*) > 100 FROM effects);
			PERFORM pg_sleep(0.001);
			COMMIT;
		END LOOP;
	END $$;
	SELECT delay_cancel_all(tag => 'due') > 0;
	SELECT clock_timestamp()});
$committed =~ s/.*\n//;
swept('due');
is(rows_of('due'), 0, 'their rows are gone');
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'nothing runs', 60, expected => 0);
is($node->safe_psql('postgres', "SELECT count(*) FROM effects WHERE tag = 'due' AND began > '$committed'"), 0,
	'none began after the commit');
my $ran = $node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE tag = 'due'});
cmp_ok($ran, '>', 100, "$ran had run before");
cmp_ok($ran, '<', 100000, 'and not all');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, 'none has failed');
add(1, 'after', 'now()');
wait_for($node, q{SELECT count(*) FROM effects WHERE tag = 'after'}, 'a task that comes after runs', 60, expected => 1);

# An executor that has found the task before, and deletes its row after.
attach($node, 'sweep-before-delete', 'wait', 0, 1);
attach($node, 'claim-before-delete', 'wait', 0, 1);
add(1, 'found', 'now()');
wait_until_waiting($node, 'claim-before-delete', 'an executor is about to claim a task');
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'found')});
wait_until_waiting($node, 'sweep-before-delete', 'the sweeper to remove it');
detach($node, 'claim-before-delete');
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'the executor leaves it', 60, expected => 0);
is(rows_of('found'), 1, 'its row is there');
detach($node, 'sweep-before-delete');
swept('found');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE tag = 'found'}), 0, 'it has not run');

#
# Transactions that were open, and prepared ones, over a restart.
#
my $open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; INSERT INTO delay_wheel_data.task (due, owner, tag, sql) VALUES (now(), 'app', 'open', 'INSERT INTO public.effects VALUES (''open'')')});
my $pid = $open->query_safe('SELECT pg_backend_pid()');
$node->safe_psql('postgres', q{
	BEGIN;
	SELECT delay_schedule('0', 'INSERT INTO effects VALUES (''prepared'')');
	PREPARE TRANSACTION 'tasks';
	BEGIN;
	SELECT delay_schedule('0', 'INSERT INTO effects VALUES (''rolled back'')');
	PREPARE TRANSACTION 'no tasks'});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(due_from => '-infinity')});
my $waiting = q{SELECT string_agg(x::text, ' ' ORDER BY x) FROM delay_wheel.cancellations c, unnest(waiting_for) x WHERE state = 'waiting'};
wait_for($node, $waiting, 'the cancellation waits for open and prepared transactions', 60, expected => "0 $pid");
is($node->safe_psql('postgres', 'SELECT removed FROM delay_wheel.cancellations'), 100000, 'it tells what was removed');
$open->query_safe('COMMIT');
$open->quit;
wait_for($node, $waiting, 'one of them has ended', 60, expected => '0');
$node->restart;
wait_for($node, $waiting, 'after a restart it waits for the others', 60, expected => '0');
$node->safe_psql('postgres', q{COMMIT PREPARED 'tasks'});
is($node->safe_psql('postgres', 'SELECT count(*), (SELECT count(*) FROM delay_wheel.tasks) FROM delay_wheel.cancellations'), '1|0',
	'what it brought is cancelled');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'no tasks'});
swept('prepared');
is($node->safe_psql('postgres', q{SELECT count(*) FROM effects WHERE tag IN ('open', 'prepared', 'rolled back')}), 0, 'none of it has run');
sweeper_ends('prepared');

# Each way to bring tasks of the role is waited for, also beside those of others;
# tasks of others alone are not.
my %brings = (
	'scheduled' => q{SELECT delay_schedule('1 day', 'SELECT 1')},
	'moved' => q{SELECT delay_reschedule((SELECT min(id) FROM delay_wheel.tasks WHERE tag = 'to be moved'), '2 days')},
	'by plain SQL' => q{RESET ROLE; INSERT INTO delay_wheel_data.task (due, owner, sql) SELECT now() + '1 day', 'app', 'SELECT 1' WHERE false; SET ROLE app},
	'before a savepoint' => q{SELECT delay_schedule('1 day', 'SELECT 1'); SAVEPOINT s; SELECT delay_schedule('1 day', 'SELECT 1'); ROLLBACK TO s},
	'beside those of others' => q{SELECT delay_schedule('1 day', 'SELECT 1'); RESET ROLE; SELECT delay_schedule('1 day', 'SELECT 1')},
	'after those of others' => q{RESET ROLE; SELECT delay_schedule('1 day', 'SELECT 1'); SET ROLE app; SELECT delay_schedule('1 day', 'SELECT 1')});
$node->safe_psql('postgres', q{SET ROLE app; SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'to be moved')});
for my $way (sort keys %brings)
{
	my $bringer = $node->background_psql('postgres');
	my $of_bringer = $bringer->query_safe("BEGIN; SET ROLE app; SELECT pg_backend_pid()");

	$bringer->query_safe($brings{$way});
	$node->safe_psql('postgres', q{SET ROLE app; SELECT delay_cancel_all(tag => 'none')});
	wait_for($node, $waiting, "the cancellation waits for who brings tasks: $way", 20, expected => $of_bringer);
	$bringer->query_safe('ROLLBACK');
	$bringer->quit;
	swept($way);
}
$open = $node->background_psql('postgres');
$open->query_safe(q{BEGIN; SELECT delay_schedule('1 day', 'SELECT 1')});
$node->safe_psql('postgres', q{SET ROLE app; SELECT delay_cancel_all(tag => 'to be moved')});
swept('beside tasks of others');
$open->query_safe('ROLLBACK');
$open->quit;

# A cancellation that is prepared counts from COMMIT PREPARED on.
$node->safe_psql('postgres', q{
	SELECT delay_schedule('1 day', 'SELECT 1');
	BEGIN;
	SELECT delay_cancel_all(due_from => '-infinity');
	PREPARE TRANSACTION 'cancellation'});
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks'), 1, 'prepared, it has no effect');
$node->restart;
my $id = $node->safe_psql('postgres', q{SELECT delay_schedule('1 day', 'SELECT 1')});
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM delay_wheel.tasks;
		COMMIT PREPARED 'cancellation';
		SELECT id FROM delay_wheel.tasks}),
	"2\n$id", 'committed, it has');
swept('committed');
is($node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ') FROM delay_wheel_data.task}), $id, 'what came after it stays');
$node->safe_psql('postgres', "SELECT delay_cancel($id)");

#
# One is removed while another one stays, of which executors are not told: a
# task that is moved to where the first would have hit it runs.
#
sub run_one
{
	my ($tag) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql('postgres', "SELECT delay_schedule('0', 'INSERT INTO effects VALUES (''$tag'')')");
	return wait_for($node, "SELECT count(*) FROM effects WHERE tag = '$tag'", "a task runs: $tag", 60, expected => 1);
}
my @holder = map { $node->background_psql('postgres') } 1 .. 2;
my $moved = $node->safe_psql('postgres', q{
	SELECT delay_schedule_task('INSERT INTO effects VALUES (''moved'')', delay => '1 day', tag => 'moved')});
$holder[0]->query_safe(q{BEGIN; SELECT delay_schedule('1 day', 'SELECT 1')});
my $first = $node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'moved', due_until => now() + interval '1 hour')});
run_one('first');
$holder[1]->query_safe(q{BEGIN; SELECT delay_schedule('1 day', 'SELECT 1')});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'none')});
run_one('second');
$holder[0]->query_safe('ROLLBACK');
wait_for($node, "SELECT count(*) FROM delay_wheel_data.cancellation WHERE id = $first", 'the first one is removed', 90, expected => 0);
$node->safe_psql('postgres', "SELECT delay_reschedule($moved, '0')");
wait_for($node, q{SELECT count(*) FROM effects WHERE tag = 'moved'}, 'a task that came later to where it hit runs', 60, expected => 1);
$holder[1]->query_safe('ROLLBACK');
$_->quit foreach @holder;
swept('the second');

#
# What happens to the sweeper.  It is stopped before the commit of a slice.
#
sub sweeping
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	add(20000, $what, q{now() + interval '1 day' + i * interval '1 s'});
	attach($node, 'sweep-before-commit', 'wait', 3, 1);
	$node->safe_psql('postgres', "SELECT delay_cancel_all(tag => '$what')");
	wait_until_waiting($node, 'sweep-before-commit', "$what: rows are being removed");
	is($node->safe_psql('postgres', 'SELECT state FROM delay_wheel.cancellations'), 'sweeping', "$what: the view says so");
	return (worker_pids($node, 'sweeper'))[0];
}

sub done
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	swept($what);
	is(rows_of($what), 0, "$what: nothing is left");
	return;
}

my $position = log_position($node);
$pid = sweeping('terminated');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
done('terminated');
$pid = sweeping('cancelled');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
detach($node, 'sweep-before-commit');
done('cancelled');
sweeping('immediate shutdown');
$node->stop('immediate');
$node->start;
done('immediate shutdown');
$pid = sweeping('killed');
kill 'KILL', $pid;
wait_for($node, 'SELECT true', 'the server restarts', 60);
done('killed');

# An error: another one is started, after a pause.
attach($node, 'sweep-before-delete', 'error', 10, 1);
add(1000, 'error', q{now() + interval '1 day' + i * interval '1 s'});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'error')});
done('error');
like($node->safe_psql('postgres', 'SELECT last_problem FROM delay_wheel.status'), qr/the sweeper ended by an error/, 'the view status tells');

# A row that a stranger has locked: no other waits for it.
add(1000, 'locked', q{now() + interval '1 day' + i * interval '1 s'});
my $locker = $node->background_psql('postgres');
$locker->query_safe(q{BEGIN; SELECT id FROM delay_wheel_data.task WHERE id = (SELECT max(id) - 500 FROM delay_wheel_data.task WHERE tag = 'locked') FOR UPDATE});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'locked')});
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'locked'}, 'all but the locked row go', 60, expected => 1);
wait_for($node, q{SELECT state FROM delay_wheel.cancellations}, 'and are waited for', 60, expected => 'waiting');
$locker->query_safe('COMMIT');
done('locked');

# Who wants the table for himself.
add(100000, 'lock table', q{now() + interval '1 day' + i * interval '1 s'});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'lock table')});
my $begun = time();
$node->safe_psql('postgres', 'BEGIN; LOCK TABLE delay_wheel_data.task; COMMIT; BEGIN; LOCK TABLE delay_wheel_data.cancellation; COMMIT');
$node->safe_psql('postgres', 'VACUUM FULL delay_wheel_data.cancellation');
my $took = time() - $begun;
cmp_ok($took, '<', 5, sprintf('LOCK TABLE and VACUUM FULL in the middle took %.3f s', $took));
done('lock table');

#
# No background worker for it: launcher, timer, logical replication launcher,
# and an executor that waits for a lock.
#
$node->append_conf('postgresql.conf', "max_worker_processes = 4\nmax_parallel_workers = 2\n");
$node->restart;
$locker->quit;
$locker = $node->background_psql('postgres');
$locker->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', q{SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(1)')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'an executor takes the last place', 60, expected => 1);
$position = log_position($node);
add(10, 'no worker', q{now() + interval '1 day'});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'no worker')});
ok(wait_until(60, sub { log_since($node, $position) =~ /could not start delay_wheel sweeper of database "postgres"/ }),
	'the log tells that there is none for the sweeper');
is($node->safe_psql('postgres', 'SELECT state FROM delay_wheel.cancellations'), 'queued', 'the view shows the cancellation as queued');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel.tasks WHERE tag = 'no worker'}), 0, 'the tasks are cancelled nevertheless');
$locker->query_safe('SELECT pg_advisory_unlock(1)');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
done('no worker');
is(scalar(() = log_since($node, $position) =~ /could not start delay_wheel sweeper/g), 1, 'the log told it once');
$node->append_conf('postgresql.conf', "max_worker_processes = 20\n");
$node->restart;
$locker->quit;
$locker = $node->background_psql('postgres');

#
# A dump that was made in the middle brings nothing back.
#
$locker->query_safe(q{BEGIN; SELECT delay_schedule('1 day', 'SELECT 1')});
add(10, 'dumped', q{now() - interval '1 s'});
$node->safe_psql('postgres', q{
	SELECT delay_cancel_all(tag => 'dumped');
	INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now() + interval '1 day', 'app', 'INSERT INTO public.effects VALUES (''kept'')')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
# with rows that come too late to be swept before
wait_for($node, q{SELECT state FROM delay_wheel.cancellations}, 'a cancellation waits', 60, expected => 'waiting');
$node->safe_psql('postgres', q{
	INSERT INTO delay_wheel_data.task (id, due, owner, tag, sql)
	SELECT -i, now(), 'app', 'dumped', 'INSERT INTO public.effects VALUES (''dumped'')' FROM generate_series(1, 10) i});
is(rows_of('dumped'), 10, 'and there are rows that it hits');
$node->safe_psql('postgres', 'TRUNCATE effects');
$node->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], 'pg_dump');
$locker->query_safe('ROLLBACK');
$locker->quit;
swept('dumped');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', $dump, 'copy' ], 'it is restored');
is($node->safe_psql('copy', q{SELECT string_agg(state, ' ') FROM delay_wheel.cancellations}), 'unarmed', 'with the cancellation');
is($node->safe_psql('copy', q{SELECT count(*) FROM delay_wheel.tasks}), 1, 'the restored cancellation hits the same tasks');
is($node->safe_psql('copy', q{SELECT delay_wheel.arm()}), 1, 'the task that is left is armed by delay_wheel.arm()');
is($node->safe_psql('copy', q{SELECT count(*) FROM delay_wheel_data.cancellation}), 0, 'and the cancellation is done');
is($node->safe_psql('copy', q{SELECT count(*) FROM delay_wheel_data.task}), 1, 'the other tasks are there');
$node->safe_psql('copy', q{SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks});
wait_for($node, 'SELECT string_agg(tag, $$ $$) FROM effects', 'and only they run', 60, db => 'copy', expected => 'kept');

#
# A million of them: how late other tasks begin before, and while the rows are
# removed.
#
sub lateness
{
	my ($what, $seconds) = @_;
	my $n = 200 * $seconds;

	$node->safe_psql('postgres', qq{
		SET ROLE app;
		SELECT count(delay_schedule_at(d, 'INSERT INTO public.lateness VALUES (\$1, clock_timestamp() - \$2)', '$what', d))
		FROM generate_series(1, $n) i, LATERAL (SELECT now() + interval '500 ms' + i * interval '5 ms') due(d)});
	return $n;
}

sub lateness_known
{
	my ($what, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT count(*) FROM lateness WHERE what = '$what'", "$what: $n other tasks run", 120, expected => $n);
}

SKIP:
{
	skip 'takes long', 1 unless long_tests();
	$node->safe_psql('postgres', 'CREATE TABLE lateness (what text, late interval); GRANT ALL ON lateness TO PUBLIC');
	# some of them in memory
	add(1000000, 'million', q{now() + interval '30 min' + i * interval '10 ms'});
	$node->safe_psql('postgres', 'VACUUM ANALYZE delay_wheel_data.task; CHECKPOINT');
	lateness_known($_, lateness($_, 10)) for qw(warm before);
	note('a million: ' . time_of_cancel('million') . ' ms');
	my $begun = time();
	my $n = lateness('during', 10);
	swept('million');
	note(sprintf('removed after %.1f s', time() - $begun));
	lateness_known('during', $n);
	lateness_known('after', lateness('after', 5));
	my %late;
	for (qw(before during after))
	{
		my $row = $node->safe_psql('postgres', qq{
			SELECT round(1000 * extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY late)), 3),
				round(1000 * extract(epoch FROM percentile_disc(0.95) WITHIN GROUP (ORDER BY late)), 3),
				round(1000 * extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY late)), 3),
				round(1000 * extract(epoch FROM max(late)), 3) FROM lateness WHERE what = '$_'});
		$late{$_} = [ split /\|/, $row ];
		note("$_: ms to the statement, p50, p95, p99, max: $row");
	}
	# what else the machine does is not ours
	my @usual = map { max($late{before}[$_], $late{after}[$_]) } (0, 1);
	cmp_ok($late{during}[0], '<', 1.2 * $usual[0] + 0.5, 'the median stays');
	cmp_ok($late{during}[1], '<', 1.2 * $usual[1] + 5, 'the 95th percentile stays');
}

#
# The database, or the extension, goes in the middle.
#
add(100000, 'dropped', q{now() + interval '1 day' + i * interval '1 s'}, 'copy');
$node->safe_psql('copy', q{SELECT delay_cancel_all(tag => 'dropped')});
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper'}, 'a sweeper is there', 60, expected => 1);
$begun = time();
$node->safe_psql('postgres', 'ALTER DATABASE copy RENAME TO copy2');
$took = time() - $begun;
cmp_ok($took, '<', 5, sprintf('RENAME in the middle took %.3f s', $took));
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper' AND datname = 'copy2'},
	'it goes on', 60, expected => 1);
$begun = time();
$node->safe_psql('postgres', 'DROP DATABASE copy2');
$took = time() - $begun;
cmp_ok($took, '<', 5, sprintf('DROP DATABASE in the middle took %.3f s', $took));

add(100000, 'extension', q{now() + interval '1 day' + i * interval '1 s'});
$node->safe_psql('postgres', q{SELECT delay_cancel_all(tag => 'extension')});
$begun = time();
$node->safe_psql('postgres', 'DROP EXTENSION delay_wheel');
$took = time() - $begun;
cmp_ok($took, '<', 5, sprintf('DROP EXTENSION in the middle took %.3f s', $took));
wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'delay_wheel (timer|executor|sweeper)'},
	'no process stays', 60, expected => 0);
unlike(log_since($node, 0), qr/PANIC|TRAP|could not open relation/, 'nothing in the log');

$node->stop;
done_testing();
