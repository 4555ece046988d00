# A task that has ended is told by NOTIFY, and followed by others, exactly if
# its end is committed: in sessions, executors, batches and the sweeper, and over
# crashes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('notify', injection => 1, batches => 1, conf => q{
restart_after_crash = on
delay_wheel.max_executors = 2
});
$node->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN;
	CREATE ROLE nologin NOLOGIN;
	SELECT delay_wheel.allow('public');
	CREATE TABLE effect (label text, n bigint);
	GRANT ALL ON effect TO PUBLIC;
	SELECT delay_wheel.create_queue('paused', users => '{public}');
	SELECT delay_wheel.pause_queue('paused');
});

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'worker' ]);
}

# One that hears what is told on the channel.
my $listener;

sub begin_to_listen
{
	$listener = $node->background_psql('postgres', on_error_stop => 1);
	$listener->query_safe('LISTEN ended');
	return;
}

#
# A test: this was told since the last one, and nothing else; ids are left out.
# All tasks but those in the paused queue have come to an end before.
#
sub told
{
	my ($what, @expected) = @_;
	my ($out, @payloads) = ('');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task WHERE due < now() + interval '1 hour' AND queue = 0}, "$what: it has ended", 60,
		expected => 0);
	# what was committed before comes before
	$node->safe_psql('postgres', q{NOTIFY ended, 'all is told'});
	wait_until(60, sub { $out .= $listener->query_safe('SELECT 1') . "\n"; $out =~ /"all is told"/ })
	  or diag("last heard: $out");
	@payloads = map { s/"id":\d+,//r } grep { $_ ne 'all is told' } $out =~ /with payload "(.*)" received from/g;
	return is_deeply([ sort @payloads ], [ sort @expected ], $what);
}

sub effects
{
	my ($expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, q{SELECT string_agg(label || ' ' || n, ', ' ORDER BY label) FROM
		(SELECT label, count(*) AS n FROM effect GROUP BY label) e}, $what, 60, expected => $expected);
}

#
# Each kind of end, once.
#
begin_to_listen();
my $id = sql(q{SELECT delay_schedule_task('SELECT 1', options => '{"notify": "ended"}')});
wait_for($node, "SELECT count(*) FROM delay_wheel_data.task", 'a task ends', 60, expected => 0);
like($listener->query_safe('SELECT pg_sleep(0)'), qr/^Asynchronous notification "ended" with payload "\{"id":$id,"outcome":"done"\}" received/m,
	'the listener is told of it, with its id');
sql(q{SELECT delay_schedule_task('SELECT 1', key => 'a "key"', tag => E'a\ttag', options => '{"notify": "ended"}')});
told('done, with key and tag', '{"outcome":"done","key":"a \"key\"","tag":"a\ttag"}');
sql(q{SELECT delay_schedule_task('SELECT 1 / 0', tag => 't', options => '{"notify": "ended"}')});
told('failed', '{"outcome":"failed","sqlstate":"22012","tag":"t"}');
sql(q{SELECT delay_schedule_task('SELECT 1 / 0', max_attempts => 3, options => '{"notify": "ended", "retry_delay": "1 ms"}')});
told('three attempts are told once', '{"outcome":"failed","sqlstate":"22012"}');
sql(q{SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 day', options => '{"notify": "ended", "skip_after": "1 hour"}')});
told('skipped', '{"outcome":"skipped"}');
sql(q{SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 day', options => '{"notify": "ended", "expires": "1 hour"}')});
told('expired', '{"outcome":"failed","sqlstate":"DW002"}');
sql(q{SELECT delay_schedule_task('SELECT 1', options => '{"notify": "Ended"}'), delay_schedule_task('SELECT 1'), delay_schedule('0', 'SELECT 1')});
told('another channel, and none');
$node->safe_psql('postgres', q{GRANT nologin TO worker});
$node->safe_psql('postgres', q{SET ROLE nologin; SELECT delay_schedule_task('SELECT 1', options => '{"notify": "ended"}')});
told('a task of a role that cannot log in', '{"outcome":"done"}');

# One that is not to be told before its end.
$id = sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"notify": "ended"}')});
sql("SELECT delay_reschedule($id, '2 days')");
sql("BEGIN; SELECT delay_cancel($id); ROLLBACK");
sql("BEGIN; SELECT delay_run($id); ROLLBACK");
sql(q{BEGIN; SELECT delay_schedule_task('SELECT 1', options => '{"notify": "ended"}'); ROLLBACK});
told('scheduled, moved, and what is rolled back');
sql("SELECT delay_cancel($id)");
told('cancelled', '{"outcome":"cancelled"}');
$id = sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"notify": "ended"}')});
sql("SELECT delay_run($id)");
told('run by delay_run', '{"outcome":"done"}');
sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', tag => 'first', options => '{"notify": "ended"}')});
sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', key => 'k', tag => 'second', if_exists => 'replace', options => '{"notify": "ended"}')});
told('replaced', '{"outcome":"cancelled","key":"k","tag":"first"}');
sql(q{SELECT delay_cancel(key => 'k')});
told('cancelled by its key', '{"outcome":"cancelled","key":"k","tag":"second"}');
sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'all', options => '{"notify": "ended"}') FROM generate_series(1, 3);
	SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'all');
	SELECT delay_cancel_all(tag => 'all')});
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, 'the sweeper removes what is cancelled', 60, expected => 0);
told('cancelled with others, as their rows are removed', ('{"outcome":"cancelled","tag":"all"}') x 3);

#
# What is told has a limit of its own.
#
sql(q{SELECT delay_schedule_task('SELECT 1', key => repeat('"', 1000), tag => repeat('t', 1000), options => '{"notify": "ended"}')});
told('a long key and tag', '{"outcome":"done","key":"' . '\"' x 1000 . '","tag":"' . 't' x 1000 . '"}');
sql(q{SELECT delay_schedule_task('SELECT 1 / 0', key => repeat(E'\x01', 1000), tag => repeat(E'\x02', 1000), options => '{"notify": "ended"}')});
told('too long, they are left out', '{"outcome":"failed","sqlstate":"22012"}');

#
# PREPARE TRANSACTION refuses it, as NOTIFY.
#
$id = sql(q{SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"notify": "ended"}')});
my ($ret, undef, $err) = $node->psql('postgres', "BEGIN; SELECT delay_cancel($id); PREPARE TRANSACTION 'cancel'");
isnt($ret, 0, 'a cancellation that is to be told cannot be prepared');
like($err, qr/cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY/, 'and says so');
is(sql("SELECT delay_cancel($id)"), 'cancelled', 'the task was left as it was');
told('told once', '{"outcome":"cancelled"}');
sql(q{BEGIN; SELECT delay_schedule_task('SELECT 1', options => '{"notify": "ended"}'); PREPARE TRANSACTION 'schedule'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'schedule'});
told('scheduling can be prepared', '{"outcome":"done"}');

#
# Several tasks of a batch; one that is undone.
#
sub backlog
{
	my ($n, $sql) = @_;

	sql(qq{SELECT delay_pause_all();
		SELECT count(delay_schedule_task($sql, tag => g::text, options => jsonb_build_object('notify', 'ended', 'on_success', 'INSERT INTO effect VALUES (''success'', \$1)', 'on_failure', 'INSERT INTO effect VALUES (''failure'', \$1)'))) FROM generate_series(1, $n) g});
	wait_for($node, "SELECT sum(ready) >= $n FROM delay_wheel.lanes", 'there is a backlog');
	return;
}

# tasks that note in which transaction they ran
my $noting = q{'INSERT INTO effect SELECT ''main'', pg_current_xact_id()::text::bigint'};
my $transactions = q{SELECT count(DISTINCT n) FROM effect WHERE label = 'main'};

backlog(200, $noting);
sql('SELECT delay_resume_all()');
told('a backlog: each is told', map { "{\"outcome\":\"done\",\"tag\":\"$_\"}" } 1 .. 200);
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || count(DISTINCT n) FROM effect WHERE label = 'success'}), '200 200',
	'and followed');
cmp_ok($node->safe_psql('postgres', $transactions), '<', 100, 'in batches');
$node->safe_psql('postgres', 'TRUNCATE effect');

backlog(50, q{format('SELECT 1 / %s', g % 10)});
attach($node, 'batch-before-commit', 'error', 0, 1);
sql('SELECT delay_resume_all()');
told('a batch that is undone: each is told once',
	map { $_ % 10 ? "{\"outcome\":\"done\",\"tag\":\"$_\"}" : "{\"outcome\":\"failed\",\"sqlstate\":\"22012\",\"tag\":\"$_\"}" } 1 .. 50);
effects('failure 5, success 45', 'and followed once');
detach($node, 'batch-before-commit');
$node->safe_psql('postgres', 'TRUNCATE effect');

# Those who notify commit one after the other, which may take long: a batch waits.
backlog(20, $noting);
my $session = $node->background_psql('postgres', on_error_stop => 1);
$session->query_safe(q{BEGIN; SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'paused'); NOTIFY other});
attach($node, 'commit-visible', 'wait', 0, 1);
$session->query_until(qr/committing/, "\\echo committing\nCOMMIT;\n\\echo committed\n");
wait_until_waiting($node, 'commit-visible', 'a session that notifies is at its commit');
$node->psql('postgres', 'SET ROLE worker; SELECT delay_resume_all()');
wait_for($node, q{SELECT bool_or(wait_event_type = 'Lock' AND now() - query_start > '0.5 s') FROM pg_stat_activity
	WHERE backend_type = 'delay_wheel executor'}, 'an executor waits to notify');
detach($node, 'commit-visible');
told('and goes on', map { "{\"outcome\":\"done\",\"tag\":\"$_\"}" } 1 .. 20);
cmp_ok($node->safe_psql('postgres', $transactions), '<', 20, 'with its batch');
$session->quit;
$node->safe_psql('postgres', q{TRUNCATE effect; SELECT delay_cancel(id) FROM delay_wheel_data.task});

#
# An executor that is terminated with all done but the commit.
#
attach($node, 'run-before-commit', 'wait', 0, 1);
sql(q{SELECT delay_schedule_task('INSERT INTO effect VALUES (''main'')', options => jsonb_build_object('notify', 'ended', 'on_success', 'INSERT INTO effect VALUES (''success'', $1)'))});
wait_until_waiting($node, 'run-before-commit', 'a task is about to be committed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM delay_wheel.running) t}), 1,
	'its executor is terminated');
detach($node, 'run-before-commit');
effects('main 1, success 1', 'the task and what follows ran once');
told('told once', '{"outcome":"done"}');
$node->safe_psql('postgres', 'TRUNCATE effect');

#
# Crashes before and after the commit: what follows is there once, as the task's
# own work.
#
sub crash
{
	my ($point, $main, $expected) = @_;
	my $position = log_position($node);

	attach($node, $point, 'crash', 0, 1);
	# later than the answer, which the crash would cut off
	sql(qq{SELECT delay_schedule_task($main, delay => '500 ms', options => jsonb_build_object('on_success', 'INSERT INTO effect VALUES (''success'', \$1)', 'on_failure', 'INSERT INTO effect VALUES (''failure'', \$1)'))});
	ok(wait_until(60, sub { log_since($node, $position) =~ /all server processes terminated; reinitializing/ }), "crash at $point");
	effects($expected, "each ran once after it");
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'and nothing is left', 60, expected => 0);
	$node->safe_psql('postgres', 'TRUNCATE effect; DELETE FROM delay_wheel_data.failed_task');
	return;
}

eval { $listener->quit };
crash($_, q{'INSERT INTO effect VALUES (''main'')'}, 'main 1, success 1') for qw(run-before-commit run-after-commit);
crash($_, q{'INSERT INTO effect VALUES (1 / 0)'}, 'failure 1') for qw(record-before-insert run-before-commit run-after-commit);

begin_to_listen();
sql(q{SELECT delay_schedule_task('SELECT 1', options => '{"notify": "ended"}')});
told('told again after crashes', '{"outcome":"done"}');
$listener->quit;

$node->stop;
done_testing();
