# Tasks that share a transaction: fewer transactions, and nobody notices.
#
# Most checks build a backlog while tasks are switched off, and stop executors
# at injection points in the middle of a batch.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('batches', injection => 1, conf => q{
	autovacuum = off
	restart_after_crash = on
	delay_wheel.executor_idle_timeout = 1h
});
$node->safe_psql('postgres', q{
	CREATE FUNCTION dw_inject_counted(text) RETURNS bigint
		AS 'delay_wheel', 'dw_inject_counted' LANGUAGE C STRICT;
	CREATE ROLE worker LOGIN;
	SELECT delay_wheel.allow('worker');
	ALTER ROLE worker SET log_min_messages = debug1;
	CREATE TABLE done (label text, n int, xid xid8 DEFAULT pg_current_xact_id(),
		started timestamptz DEFAULT now(), at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0);
	INSERT INTO account SELECT g FROM generate_series(1, 20) g;
	CREATE SEQUENCE tries;
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE setting (label text, at_once text, at_commit text);
	CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE setting SET at_commit = current_setting('dw_test.name', true) WHERE label = NEW.label;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER note AFTER INSERT ON setting
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_setting();
	GRANT ALL ON done, account, parent, child, setting TO worker;
	GRANT ALL ON SEQUENCE tries TO worker;
});

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', "SET ROLE worker;\n$sql");
}

sub setting
{
	my (%values) = @_;
	$node->safe_psql('postgres', join "\n", map { "ALTER SYSTEM SET $_ = '$values{$_}';" } sort keys %values);
	$node->reload;
	return;
}

# Schedules tasks, none of which begins before all are ready; or, with go => 0,
# before release().
sub backlog
{
	my ($sql, %options) = @_;

	setting('delay_wheel.enabled' => 'off');
	wait_for($node, q{SELECT state FROM delay_wheel.status}, 'tasks are switched off', 60, expected => 'disabled');
	my $out = sql($sql);
	wait_for($node, q{SELECT ready >= LEAST((SELECT count(*) FROM delay_wheel.task), 1000)
		FROM delay_wheel.status}, 'there is a backlog');
	release() if $options{go} // 1;
	return $out;
}

sub release
{
	setting('delay_wheel.enabled' => 'on');
	return;
}

sub all_over
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT count(*) FROM delay_wheel.task', "$what: all tasks come to an end", 120,
		expected => 0);
}

sub clean
{
	$node->safe_psql('postgres', 'TRUNCATE done, parent, child, setting; UPDATE account SET n = 0; DELETE FROM delay_wheel.failed_task');
	return;
}

# N tasks that leave a row each, numbered.
sub insertions
{
	my ($n, $label) = @_;
	return "SELECT count(delay_schedule('0', 'INSERT INTO done VALUES (\$1, \$2)', '$label'::text, g)) FROM generate_series(1, $n) g;";
}

sub query_is
{
	my ($query, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql('postgres', $query), $expected, $what);
}

my $once = q{SELECT count(*) || ' of ' || count(DISTINCT (label, n)) FROM done};

sub undone_batches
{
	my ($position) = @_;
	return scalar(() = log_since($node, $position) =~ /delay_wheel undoes a batch of/g);
}

#
# A backlog runs in few transactions.
#
sql(insertions(1, 'warm'));
all_over('the first task');
clean();

backlog(insertions(1000, 'many'));
all_over('a backlog');
query_is($once, '1000 of 1000', 'each task ran once');
query_is(q{SELECT count(DISTINCT xid) < 100 FROM done}, 't', 'in few transactions');
query_is(q{SELECT max(n) <= 100 FROM (SELECT count(*) AS n FROM done GROUP BY xid) x}, 't',
	'of batch_tasks tasks at most');
clean();

#
# Two executors at once do not take neighbours in turn.
#
sub counted
{
	my ($name) = @_;
	return $node->safe_psql('postgres', "SELECT dw_inject_counted('$name')");
}

my $apart = counted('places-apart');
backlog(insertions(20000, 'apart'));
all_over('two executors');
query_is($once, '20000 of 20000', 'each task ran once, by two executors');
cmp_ok(counted('places-apart'), '>', $apart, 'who keep apart');
clean();

# Where tasks are slow they run in order.
backlog(q{SELECT count(delay_schedule('0', 'INSERT INTO done SELECT $1, $2 FROM pg_sleep(0.001)', 'slow'::text, g))
	FROM generate_series(1, 1000) g;});
all_over('slow tasks');
query_is(q{SELECT max(place - n) < 100 FROM (SELECT n, row_number() OVER (ORDER BY at) AS place FROM done) x}, 't',
	'slow tasks are not left behind');
clean();

setting('delay_wheel.batch_tasks' => 7);
backlog(insertions(300, 'seven'));
all_over('batches of seven');
query_is(q{SELECT max(n) = 7 FROM (SELECT count(*) AS n FROM done GROUP BY xid) x}, 't',
	'batch_tasks is obeyed');
clean();
setting('delay_wheel.batch_tasks' => 1);
backlog(insertions(300, 'one'));
all_over('one by one');
query_is(q{SELECT count(DISTINCT xid) FROM done}, 300, 'batch_tasks = 1 is no batch at all');
clean();
setting('delay_wheel.batch_tasks' => 100);

# Half a millisecond each: not 100 of them, and more than one.
backlog(q{SELECT count(delay_schedule('0', 'INSERT INTO done SELECT $1, $2 FROM pg_sleep(0.002)', 'time'::text, g))
	FROM generate_series(1, 60) g});
all_over('slower tasks');
query_is(q{SELECT max(n) <= 4 FROM (SELECT count(*) AS n FROM done GROUP BY xid) x}, 't',
	'batch_time is obeyed');
clean();

# Who does not fit, and queues that are counted.
$node->safe_psql('postgres', q{
	SELECT delay_queue('apart', batch => false, users => '{worker}');
	SELECT delay_queue('narrow', max_running => 2, users => '{worker}');
	SELECT delay_queue('rated', rate => 1000000, users => '{worker}');
	SELECT delay_queue('open', users => '{worker}');
});
backlog(q{
	SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1)', ARRAY[q], queue => q))
	FROM unnest(ARRAY['apart', 'narrow', 'rated', 'open']) q, generate_series(1, 50);
	SELECT count(delay_schedule_task(format(s, w), ARRAY['fits']))
	FROM generate_series(1, 20), unnest(ARRAY['INSERT INTO done VALUES ($1)', ' insert INTO done VALUES ($1) ; ']) s,
		unnest(ARRAY['']) w;
	SELECT count(delay_schedule('0', $$INSERT INTO done VALUES ('two'); INSERT INTO account SELECT 1 WHERE false$$))
	FROM generate_series(1, 20);
	SELECT count(delay_schedule('0', $$DO 'BEGIN INSERT INTO done VALUES (''do''); END'$$)) FROM generate_series(1, 20);
	SELECT count(delay_schedule_task($$INSERT INTO done VALUES ('timeout')$$, timeout => '90 ms'))
	FROM generate_series(1, 20)});
all_over('those that do not fit');
query_is(q{SELECT string_agg(label, ' ' ORDER BY label COLLATE "C") FROM
	(SELECT label FROM done GROUP BY label HAVING count(DISTINCT xid) = count(*)) x},
	'apart do narrow rated timeout two', 'queues with limits, several statements, other commands, short timeouts run one by one');
query_is(q{SELECT count(*) = 300 AND
	count(DISTINCT xid) FILTER (WHERE label = 'open') < 40 AND
	count(DISTINCT xid) FILTER (WHERE label = 'fits') < 30 FROM done}, 't', 'the others do not');
query_is(q{SELECT count(*) FROM (SELECT xid FROM done GROUP BY xid HAVING count(DISTINCT label) > 1) x}, 0,
	'a transaction is of one kind');
clean();

# now() is never before the due time, also of what becomes due meanwhile.
sql(q{SELECT count(delay_schedule_at(due, 'INSERT INTO done (label, n, at) VALUES ($1, $2, $3)', 'due'::text, g, due))
	FROM (SELECT g, clock_timestamp() + interval '1 s' + g * interval '50 us' AS due
		FROM generate_series(1, 4000) g OFFSET 0) s});
all_over('tasks that become due one after the other');
query_is($once, '4000 of 4000', 'all ran');
query_is(q{SELECT count(DISTINCT xid) < 4000 FROM done}, 't', 'some of them together');
query_is(q{SELECT count(*) FROM done WHERE started < at}, 0, 'now() is never before the due time');
clean();

#
# One that fails, hangs or waits.
#
my $position = log_position($node);
backlog(q{SELECT count(delay_schedule('0', 'INSERT INTO done SELECT $1, $2 WHERE 1 / ($2 % 100) > -1', 'failing'::text, g))
	FROM generate_series(1, 2000) g});
all_over('1% fail');
query_is($once, '1980 of 1980', 'the others ran once each');
query_is(q{SELECT count(*) || ' ' || min(sqlstate) || max(attempts) FROM delay_wheel.failed_task}, '20 220121',
	'those that failed have failed once');
query_is(q{SELECT count(DISTINCT xid) < 1500 FROM done}, 't', 'still in fewer transactions');
cmp_ok(undone_batches($position), '>=', 1, 'batches were undone');
clean();

# Constraints that are checked at the commit, task by task: one executor, so
# that no other one mends them before.
setting('delay_wheel.max_executors' => 3);
wait_for($node, 'SELECT count(*) <= 1 FROM delay_wheel.running', 'one executor is left');
backlog(q{
	INSERT INTO parent SELECT g FROM generate_series(1, 30) g;
	SELECT count(delay_schedule('0', 'INSERT INTO child VALUES ($1)', g)) FROM generate_series(1, 31) g;
	SELECT delay_schedule('0', 'INSERT INTO parent VALUES (31)');
	SELECT count(delay_schedule('0', 'INSERT INTO child VALUES ($1)', g)) FROM generate_series(1, 30) g;
});
all_over('a deferred constraint');
query_is(q{SELECT (SELECT count(*) FROM child) || ' ' || (SELECT count(*) FROM parent)}, '60 31', 'the others ran');
query_is(q{SELECT string_agg(sqlstate, ' ') FROM delay_wheel.failed_task}, '23503',
	'the task that violated it has failed, though the next one mends it');
setting('delay_wheel.max_executors' => 4);
clean();

# One that takes long: those before and behind it are done long before.
backlog(insertions(20, 'before') . q{SELECT delay_schedule('0', $$INSERT INTO done SELECT 'slow' FROM pg_sleep(600)$$);}
	. insertions(20, 'behind'));
wait_for($node, q{SELECT count(*) FROM done}, 'those beside a task that takes long are done', 60, expected => 40);
query_is(q{SELECT count(*) FROM delay_wheel.running r JOIN delay_wheel.task t ON t.id = r.task}, 1, 'which runs');
query_is(q{SELECT delay_cancel(id, true) FROM delay_wheel.task}, 'stopping', 'and can be stopped');
all_over('the one that takes long');
clean();

# A task that waits for a lock of an application.
my $session = $node->background_psql('postgres', on_error_stop => 1);
$session->query_safe('BEGIN; UPDATE account SET n = n WHERE id = 7');
backlog(q{SELECT count(delay_schedule('0', 'UPDATE account SET n = n + 1 WHERE id = $1', g)) FROM generate_series(1, 20) g});
wait_for($node, q{SELECT sum(n) FROM account}, 'those beside one that waits for a lock are done', 60, expected => 19);
$session->query_safe('SELECT pg_sleep(1.5)');
query_is(q{SELECT count(*) FROM delay_wheel.running WHERE task IS NOT NULL}, 1, 'it waits');
$session->query_safe('COMMIT');
all_over('the one that waits');
query_is(q{SELECT min(n) || ' ' || max(n) FROM account}, '1 1', 'and then runs');
clean();

#
# What a task leaves in the session.
#
backlog(q{
	SELECT count(delay_schedule('0', CASE g % 2
		WHEN 0 THEN $$WITH s AS (SELECT set_config('dw_test.name', $1, g) FROM unnest(ARRAY[true, false]) g)
			INSERT INTO setting (label, at_once) SELECT DISTINCT $1, $1 FROM s$$
		ELSE $$INSERT INTO setting (label, at_once) VALUES ($1, current_setting('dw_test.name', true))$$ END,
		'task ' || g)) FROM generate_series(1, 100) g});
all_over('settings');
query_is(q{SELECT count(*) FROM setting WHERE at_once LIKE 'task%' AND at_commit = label}, 50,
	'deferred triggers of a task see its settings');
query_is(q{SELECT count(*) FROM setting WHERE COALESCE(at_once, '') = '' AND COALESCE(at_commit, '') = ''}, 50,
	'and no other task does');
$node->safe_psql('postgres', q{CREATE FUNCTION use_temp() RETURNS int LANGUAGE plpgsql AS
	$$BEGIN CREATE TEMP TABLE scratch (n int); INSERT INTO done VALUES ('temp'); RETURN 1; END$$});
backlog(q{SELECT count(delay_schedule('0', 'SELECT use_temp()')) FROM generate_series(1, 20)});
all_over('temporary tables');
query_is(q{SELECT count(*) FROM done WHERE label = 'temp'}, 20, 'each task has its own');
clean();

#
# Stopped in the middle of a batch: tasks are done, but not committed.
#
sub in_the_middle
{
	my ($sql, $skip, $what) = @_;

	my $out = backlog($sql, go => 0);
	attach($node, 'batch-after-sql', 'wait', $skip, 1);
	release();
	wait_until_waiting($node, 'batch-after-sql', "$what: in the middle of a batch");
	return $out;
}

# one executor only, so that the batch is all there is
setting('delay_wheel.max_executors' => 3);
wait_for($node, 'SELECT count(*) <= 1 FROM delay_wheel.running', 'one executor is left');

# Rows that are being deleted by a batch are waited for.
in_the_middle(insertions(10, 'wait') . q{
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('wait', 11)$$, key => 'a');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('wait', 12)$$, key => 'b');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('wait', 13)$$, key => 'c');}, 12, 'others');
$node->safe_psql('postgres', 'CREATE TABLE seen AS SELECT id, key, row_number() OVER (ORDER BY id) AS n FROM delay_wheel.task; GRANT ALL ON seen TO worker');
my %asked;
sub ask
{
	my ($name, $sql) = @_;
	my $s = $node->background_psql('postgres', on_error_stop => 0);

	$s->query('SET ROLE worker');
	$s->query_until(qr/^started$/m, "\\echo started\n$sql;\n");
	$asked{$name} = $s;
	return;
}
sub ask_all
{
	ask('cancel', 'SELECT delay_cancel((SELECT id FROM seen WHERE n = 1))');
	ask('stop', 'SELECT delay_cancel((SELECT id FROM seen WHERE n = 2), true)');
	ask('move', q{SELECT delay_reschedule((SELECT id FROM seen WHERE n = 3), '1 hour')});
	ask('cancel_key', q{SELECT delay_cancel_key('a')});
	ask('schedule_key', q{SELECT delay_schedule_task('SELECT 1', key => 'b', delay => '1 hour', if_exists => 'keep')
		IN (SELECT id FROM seen)});
	ask('replace_key', q{SELECT delay_schedule_task('SELECT 1', key => 'c', delay => '1 hour', if_exists => 'replace')
		IN (SELECT id FROM seen)});
	ask('delay_wait', 'SELECT delay_wait((SELECT id FROM seen WHERE n = 4))');
	return wait_for($node, q{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND query ~ 'SELECT delay_' AND pid <> pg_backend_pid()
			AND wait_event_type IN ('Lock', 'Extension')},
		'all of them wait', 60, expected => 7);
}
sub answers
{
	my %answers;
	for my $name (keys %asked)
	{
		my $out = $asked{$name}->query_until(qr/answered/, "\\echo answered\n");
		$out =~ s/\s*answered.*//s;
		$out =~ s/.*\s//s;
		$answers{$name} = $out;
		$asked{$name}->quit;
	}
	%asked = ();
	return \%answers;
}
ask_all();
query_is(q{SELECT count(*) FROM delay_wheel.running WHERE task IS NOT NULL}, 1, 'the view has one row for the batch');
detach($node, 'batch-after-sql');
is_deeply(answers(), { cancel => 'gone', stop => 'gone', move => 'f', cancel_key => 'gone', schedule_key => 'f',
	replace_key => 'f', delay_wait => 'done' }, 'what a batch has done is done');
query_is($once, '13 of 13', 'once');
query_is(q{SELECT count(*) FROM delay_wheel.task}, 2, 'new tasks of the keys are pending');
$node->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel.task; DROP TABLE seen});
clean();

# The same, and the batch is undone; then tasks run alone, but only when
# the others have had their say.
in_the_middle(insertions(10, 'undone') . q{
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('undone', 11)$$, key => 'a');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('undone', 12)$$, key => 'b');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('undone', 13)$$, key => 'c');}, 12, 'undone');
$node->safe_psql('postgres', 'CREATE TABLE seen AS SELECT id, key, row_number() OVER (ORDER BY id) AS n FROM delay_wheel.task; GRANT ALL ON seen TO worker');
ask_all();
attach($node, 'batch-before-commit', 'error', 0, 1);
attach($node, 'claim-before-fetch', 'wait', 0, 1);
detach($node, 'batch-after-sql');
wait_until_waiting($node, 'claim-before-fetch', 'the batch is undone');
delete local $asked{delay_wait};
is_deeply(answers(), { cancel => 'cancelled', stop => 'cancelled', move => 't', cancel_key => 'cancelled',
	schedule_key => 't', replace_key => 'f' }, 'what a batch has not done can be cancelled');
detach($node, 'claim-before-fetch');
wait_for($node, q{SELECT count(*) FROM delay_wheel.task WHERE due <= now()}, 'the others run', 60, expected => 0);
query_is(q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM done}, '4 5 6 7 8 9 10 12', 'and only they do');
query_is(q{SELECT count(DISTINCT xid) FROM done}, 8, 'alone');
$node->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel.task; DROP TABLE seen});
clean();

# A pause that is committed in the middle: nothing is claimed after it.
in_the_middle(insertions(30, 'pause'), 9, 'a pause');
sql('SELECT delay_pause()');
detach($node, 'batch-after-sql');
wait_for($node, q{SELECT count(*) FROM delay_wheel.running WHERE task IS NOT NULL}, 'the batch ends', 60, expected => 0);
query_is(q{SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM delay_wheel.task)}, 30, 'no task is lost');
query_is(q{SELECT count(*) <= 10 FROM done}, 't', 'none was begun');
sql('SELECT delay_resume()');
all_over('resumed');
query_is($once, '30 of 30', 'each task ran once');
clean();

# A mark: what the batch has done is done, the rest is cancelled.
in_the_middle(insertions(30, 'mark'), 9, 'a mark');
sql(q{SELECT delay_cancel_all(due_from => '-infinity')});
detach($node, 'batch-after-sql');
all_over('marked');
query_is($once, '10 of 10', 'what was claimed before the mark is done, nothing after it');
wait_for($node, 'SELECT count(*) FROM delay_wheel.cancellations', 'the mark goes', 60, expected => 0);
clean();

# Tasks that are too late.
backlog(insertions(10, 'expires') . q{
	SELECT count(delay_schedule_task($$INSERT INTO done VALUES ('expired')$$, due => now() - interval '1 hour', expires => '1 minute'))
	FROM generate_series(1, 10);});
all_over('expired');
query_is(q{SELECT (SELECT count(*) FROM done) || ' ' || string_agg(DISTINCT sqlstate, ' ') || ' ' || count(*) FROM delay_wheel.failed_task},
	'10 DW002 10', 'tasks that are too late have failed, the others ran');
clean();

# A cancel is for the task that runs.
backlog(insertions(5, 'first') . q{SELECT delay_schedule('0', 'SELECT pg_cancel_backend(pg_backend_pid()), nextval($1::regclass)', 'tries');}
	. insertions(5, 'last'));
all_over('a cancel');
query_is($once, '10 of 10', 'those beside a task that is cancelled ran');
query_is(q{SELECT sqlstate || ' ' || attempts FROM delay_wheel.failed_task}, '57014 1', 'that one has failed');
query_is(q{SELECT last_value FROM tries}, 1, 'and was not run again');
clean();

# The executor ends, or the server crashes.
for my $signal (qw(TERM KILL))
{
	in_the_middle(insertions(50, $signal), 20, "SIG$signal");
	my ($pid) = $node->safe_psql('postgres', q{SELECT pid FROM delay_wheel.running WHERE task IS NOT NULL});
	kill $signal, $pid;
	if ($signal eq 'KILL')
	{
		wait_until(60, sub { (try_psql($node, 'postgres', 'SELECT 1'))[1] // '' eq '1' });
	}
	else
	{
		wait_for($node, qq{SELECT count(*) FROM pg_stat_activity WHERE pid = $pid}, 'the executor ends', 60, expected => 0);
		detach($node, 'batch-after-sql');
	}
	all_over("SIG$signal");
	query_is($once, '50 of 50', "each task ran once in spite of SIG$signal");
	clean();
}

#
# Of two priorities the lower one has its turns.  By one executor: a third one
# would be free for the lower one alone.
#
setting('delay_wheel.max_executors' => 1);
wait_for($node, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'},
	'there is one executor');
backlog(q{
	SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1)', ARRAY['high'], priority => 1::smallint)) FROM generate_series(1, 320);
	SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1)', ARRAY['low'], priority => -1::smallint)) FROM generate_series(1, 40);
});
all_over('priorities');
query_is(q{SELECT count(*) FILTER (WHERE label = 'low') BETWEEN 9 AND 11
	FROM (SELECT label FROM done ORDER BY at LIMIT 160) x}, 't', 'the lower priority has each 16th task');
clean();
setting('delay_wheel.max_executors' => 4);

#
# An application that locks the same rows in the other order never has a
# deadlock.
#
$node->safe_psql('postgres', q{
	CREATE PROCEDURE lock_backwards(seconds float) LANGUAGE plpgsql AS $$
	DECLARE ends timestamptz := clock_timestamp() + seconds * interval '1 s';
	BEGIN
		WHILE clock_timestamp() < ends LOOP
			FOR i IN REVERSE 20 .. 1 LOOP
				UPDATE account SET n = n + 1000000 WHERE id = i;
			END LOOP;
			PERFORM pg_sleep(0.001);
			COMMIT;
		END LOOP;
	END $$;
	CREATE PROCEDURE feed(seconds float) LANGUAGE plpgsql AS $$
	DECLARE ends timestamptz := clock_timestamp() + seconds * interval '1 s';
	BEGIN
		WHILE clock_timestamp() < ends LOOP
			IF (SELECT count(*) < 500 FROM delay_wheel.tasks) THEN
				PERFORM delay_schedule('0', 'UPDATE account SET n = n + 1 WHERE id = $1', i)
				FROM generate_series(1, 10), generate_series(1, 20) i;
				INSERT INTO done (label, n) VALUES ('fed', 200);
			END IF;
			COMMIT;
			PERFORM pg_sleep(0.01);
		END LOOP;
	END $$;
});
setting('delay_wheel.max_executors' => 4);
my $seconds = long_tests() ? 180 : 8;
for my $timeout ('1s', '50ms')
{
	setting('deadlock_timeout' => $timeout);
	$position = log_position($node);
	my @clients = map { $node->background_psql('postgres', on_error_stop => 1, timeout => 300) } 1 .. 3;
	$clients[$_]->query_until(qr/^started$/m, "\\echo started\nCALL lock_backwards($seconds);\n") for 0 .. 1;
	$clients[2]->query_until(qr/^started$/m, "\\echo started\nSET ROLE worker; CALL feed($seconds);\n");
	$_->query_safe('SELECT 1') for @clients;
	$_->quit for @clients;
	all_over("deadlock_timeout $timeout");
	unlike(log_since($node, $position), qr/deadlock detected/, "deadlock_timeout $timeout: nobody has a deadlock");
	query_is(q{SELECT count(*) FROM delay_wheel.failed_task}, 0, 'no task has failed');
	query_is(q{SELECT (SELECT sum(n % 1000000) FROM account) = (SELECT sum(n) FROM done)}, 't', 'each task ran once');
	cmp_ok(undone_batches($position), '>=', 1, 'batches have met the application');
	clean();
}
# Less than that is no batch.
setting('deadlock_timeout' => '9ms');
backlog(insertions(100, 'short'));
all_over('a short deadlock_timeout');
query_is(q{SELECT count(DISTINCT xid) FROM done}, 100, 'there is no batch that could be done in time');
clean();
setting('deadlock_timeout' => '1s');

# Tasks that would be logged run alone.
$node->safe_psql('postgres', q{ALTER ROLE worker SET delay_wheel.log_min_duration = 0});
backlog(insertions(20, 'logged'));
all_over('logged');
query_is(q{SELECT count(DISTINCT xid) FROM done}, 20, 'tasks whose duration is logged run one by one');
$node->safe_psql('postgres', q{ALTER ROLE worker RESET delay_wheel.log_min_duration});
clean();

#
# Each second batch fails at its commit.
#
setting('delay_wheel.fail_batches' => 2);
backlog(insertions(500, 'fallback'));
all_over('batches that fail');
query_is($once, '500 of 500', 'each task ran once, though each second batch failed');
query_is(q{SELECT count(*) FROM delay_wheel.failed_task}, 0, 'none has failed');

$node->stop;
done_testing();
