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
use Time::HiRes qw(sleep time);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('batches', injection => 1, batches => 1, conf => q{
	autovacuum = off
	restart_after_crash = on
	wal_level = replica
	max_wal_senders = 5
	delay_wheel.executor_idle_timeout = 1h
});
$node->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN;
	SELECT delay_wheel.allow('worker');
	ALTER ROLE worker SET log_min_messages = debug1;
	CREATE TABLE done (label text, n int, xid xid8 DEFAULT pg_current_xact_id(),
		started timestamptz DEFAULT now(), at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE account (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0);
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
	CREATE SEQUENCE begun;
	CREATE FUNCTION slow(seconds float) RETURNS bigint LANGUAGE plpgsql AS $$
	BEGIN
		RAISE LOG 'slow task begins, %', nextval('begun');
		PERFORM pg_sleep(seconds);
		RETURN NULL;
	END $$;
	GRANT ALL ON done, account, parent, child, setting TO worker;
	GRANT ALL ON SEQUENCE tries, begun TO worker;
});
# each has a lane, and so a size of batches, of its own
$node->safe_psql('postgres', "SELECT delay_wheel.create_queue('$_', users => '{worker}')")
	for qw(one_slow some_slow commits fails outlives);

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
	wait_for($node, q{SELECT ready >= LEAST((SELECT count(*) FROM delay_wheel_data.task), 1000)
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
	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', "$what: all tasks come to an end", 120,
		expected => 0);
}

sub clean
{
	$node->safe_psql('postgres', 'TRUNCATE done, parent, child, setting; UPDATE account SET n = 0; DELETE FROM delay_wheel_data.failed_task');
	return;
}

# N tasks that leave a row each, numbered.
sub insertions
{
	my ($n, $label) = @_;
	return "SELECT count(delay_schedule('0', 'INSERT INTO done VALUES (\$1, \$2)', '$label'::text, g)) FROM generate_series(1, $n) g;";
}

sub insertions_in
{
	my ($queue, $n, $label) = @_;
	return "SELECT count(delay_schedule_task('INSERT INTO done VALUES (\$1, \$2::int)', args => ARRAY['$label', g::text],
		queue => '$queue')) FROM generate_series(1, $n) g;";
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
my $apart = counted($node, 'positions-apart');
# on a busy machine one may have done all before there is another one
for (1 .. 5)
{
	clean();
	backlog(insertions(20000, 'apart'));
	all_over('two executors');
	query_is($once, '20000 of 20000', 'each task ran once, by two executors');
	last if counted($node, 'positions-apart') > $apart;
}
cmp_ok(counted($node, 'positions-apart'), '>', $apart, 'who keep apart');
clean();

# In a queue with groups they do not take the turns of neighbours, and each group has as many turns as the others.
$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('grouped', groups => true, users => '{worker}')});
$apart = counted($node, 'turns-apart');
for (1 .. 5)
{
	clean();
	backlog(q{SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1, $2::int)', args => ARRAY['group', g::text],
		queue => 'grouped', group_key => (g % 400)::text)) FROM generate_series(1, 20000) g;});
	all_over('two executors with groups');
	query_is($once, '20000 of 20000', 'each task of a group ran once, by two executors');
	query_is(q{SELECT max(turns) - min(turns) < 20 FROM (SELECT n % 400, count(*) FILTER (WHERE place <= 10000) AS turns
		FROM (SELECT n, row_number() OVER (ORDER BY at) AS place FROM done) p GROUP BY 1) t}, 't',
		'and half of the time each group has had half of its turns');
	last if counted($node, 'turns-apart') > $apart;
}
cmp_ok(counted($node, 'turns-apart'), '>', $apart, 'whose turns are apart');
clean();

# A task that must run alone ends the batch, and is the first task after it, so its group is not passed over.
$node->safe_psql('postgres', 'CREATE SEQUENCE alone; GRANT ALL ON alone TO worker');
setting('delay_wheel.max_executors' => 1);
backlog(q{SELECT count(delay_schedule_task(CASE WHEN g = 27 THEN 'SELECT 1 / (1 - n) FROM nextval(''alone'') n' ELSE 'INSERT INTO done VALUES ($1, $2::int)' END,
	args => CASE WHEN g <> 27 THEN ARRAY['alone', g::text] END, queue => 'grouped', group_key => (g % 20)::text)) FROM generate_series(1, 10000) g;});
all_over('a task that must run alone');
query_is(q{SELECT count(*) > 200 FROM (SELECT n FROM done ORDER BY at LIMIT 5000) d WHERE n % 20 = 7}, 't',
	'the group of a task that must run alone has its turns');
setting('delay_wheel.max_executors' => 4);
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
	SELECT delay_wheel.create_queue('apart', users => '{worker}', options => '{"batch": false}');
	SELECT delay_wheel.create_queue('narrow', max_running => 2, users => '{worker}');
	SELECT delay_wheel.create_queue('rated', rate => 1000000, users => '{worker}');
	SELECT delay_wheel.create_queue('open', users => '{worker}');
});
backlog(q{
	SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1)', args => ARRAY[q], queue => q))
	FROM unnest(ARRAY['apart', 'narrow', 'rated', 'open']) q, generate_series(1, 50);
	SELECT count(delay_schedule_task(format(s, w), args => ARRAY['fits']))
	FROM generate_series(1, 20), unnest(ARRAY['INSERT INTO done VALUES ($1)', ' insert INTO done VALUES ($1) ; ']) s,
		unnest(ARRAY['']) w;
	SELECT count(delay_schedule('0', $$INSERT INTO done VALUES ('two'); INSERT INTO account SELECT 1 WHERE false$$))
	FROM generate_series(1, 20);
	SELECT count(delay_schedule('0', $$DO 'BEGIN INSERT INTO done VALUES (''do''); END'$$)) FROM generate_series(1, 20);
	SELECT count(delay_schedule_task($$INSERT INTO done VALUES ('timeout')$$, options => '{"timeout": "90 ms"}'))
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
query_is(q{SELECT count(*) || ' ' || min(sqlstate) || max(attempts) FROM delay_wheel_data.failed_task}, '20 220121',
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
query_is(q{SELECT string_agg(sqlstate, ' ') FROM delay_wheel_data.failed_task}, '23503',
	'the task that violated it has failed, though the next one mends it');
setting('delay_wheel.max_executors' => 4);
clean();

# One that takes long: those before and behind it are done long before.
backlog(insertions(20, 'before') . q{SELECT delay_schedule('0', $$INSERT INTO done SELECT 'slow' FROM pg_sleep(600)$$);}
	. insertions(20, 'behind'));
wait_for($node, q{SELECT count(*) FROM done}, 'those beside a task that takes long are done', 60, expected => 40);
# as long as no batch lives: until its batch is undone it would be cancelled, not stopped
wait_for($node, q{SELECT count(*) FROM delay_wheel.running r JOIN delay_wheel_data.task t ON t.id = r.task
	WHERE clock_timestamp() - r.since > '1 s'}, 'which runs', 60, expected => 1);
query_is(q{SELECT delay_cancel(id, true) FROM delay_wheel_data.task}, 'stopping', 'and can be stopped');
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

# One that takes longer than a batch lives: by one executor, so that it is clear
# who waits for whom.
setting('delay_wheel.max_executors' => 1);
wait_for($node, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'},
	'there is one executor');
$position = log_position($node);
backlog(insertions_in('one_slow', 20, 'before')
	. q{SELECT delay_schedule_task($$INSERT INTO done SELECT 'slow', slow(0.3)$$, queue => 'one_slow');}
	. insertions_in('one_slow', 20, 'behind'));
all_over('one that takes longer than a batch lives');
query_is(q{SELECT count(*) FILTER (WHERE label = 'before') || ' ' || count(*) FILTER (WHERE label = 'slow') || ' ' ||
	count(*) FILTER (WHERE label = 'behind') || ' ' || count(DISTINCT (label, COALESCE(n, -1))) FROM done}, '20 1 20 41',
	'each task ran once');
my $slow_xid = q{(SELECT xid FROM done WHERE label = 'slow')};
query_is(qq{SELECT count(*) FROM done WHERE xid = $slow_xid AND label <> 'slow'}, 0, 'that one alone');
query_is(q{SELECT count(DISTINCT xid) < 40 FROM done WHERE label <> 'slow'}, 't', 'the others together');
my @story = log_since($node, $position) =~ /^(\S+ \S+ \S+) \[\d+\] .*?(slow task begins|undoes a batch)/mg;
# a machine that stalls may undo others
like(join(', ', @story[ grep { $_ % 2 == 1 } 0 .. $#story ]),
	qr/^(undoes a batch, )*slow task begins, (undoes a batch, )+slow task begins(, undoes a batch)*$/,
	'it was begun in a batch that was undone, and then alone');
my ($slow_began) = map { $story[ 2 * $_ ] } grep { $story[ 2 * $_ + 1 ] =~ /slow/ } 0 .. $#story / 2;
query_is(qq{SELECT started - '$slow_began' < interval '10 s' FROM done WHERE label = 'slow'}, 't', 'which was soon');
query_is(qq{SELECT max(at) < (SELECT started FROM done WHERE label = 'slow') AND
	max(at) - '$slow_began' < interval '10 s' FROM done WHERE label = 'before'}, 't', 'those before it did not wait for it');
query_is(qq{SELECT min(at) - (SELECT started FROM done WHERE label = 'slow') < interval '10 s'
	FROM done WHERE label = 'behind'}, 't', 'nor did those behind it wait any longer than it took');
query_is('SELECT count(*) FROM delay_wheel_data.failed_task', 0, 'none has failed');
clean();

# What an application sees that waits for a row which a batch has locked,
# however that ends.
sub application_waits
{
	my ($queue, $what, $last, $stop, $skip, $before_go) = @_;

	backlog(qq{SELECT count(delay_schedule_task('UPDATE account SET n = n + 1 WHERE id = 7', queue => '$queue'))
			FROM generate_series(1, 20);
		SELECT delay_schedule_task('$last', queue => '$queue');}, go => 0);
	attach($node, $stop, 'wait', $skip, 1);
	release();
	wait_until_waiting($node, $stop, "$what: in the middle of a batch");
	my $app = $node->background_psql('postgres', on_error_stop => 0, timeout => 120);
	$app->query_until(qr/^started$/m, q{SET statement_timeout = '60 s';
		\echo started
		UPDATE account SET n = n + 1000000 WHERE id = 7;
	});
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity a JOIN delay_wheel.running r ON r.pid = ANY (pg_blocking_pids(a.pid))
		WHERE a.query LIKE '%1000000 WHERE id = 7%' AND a.wait_event_type = 'Lock'}, 'an application waits for it', 60,
		expected => 1);
	$before_go->() if $before_go;
	my $since = time;
	detach($node, $stop);
	$app->query('SELECT 1');
	is($app->{stderr}, '', 'the application has no error');
	cmp_ok(time - $since, '<', 30, 'and does not wait long');
	$app->quit;
	return;
}
application_waits('commits', 'a batch that commits', 'SELECT 1', 'batch-after-sql', 0);
all_over('a batch that commits');
query_is('SELECT n FROM account WHERE id = 7', 1000020, 'each has changed the row once');
clean();
$position = log_position($node);
application_waits('fails', 'a batch that fails', 'SELECT 1', 'batch-after-sql', 0,
	sub { attach($node, 'batch-before-commit', 'error', 0, 1) });
all_over('a batch that fails');
cmp_ok(undone_batches($position), '>=', 1, 'the batch was undone');
query_is('SELECT n FROM account WHERE id = 7', 1000020, 'each has changed the row once');
clean();
$position = log_position($node);
# stopped when it has several tasks: time must not have ended it before
setting('delay_wheel.batch_time' => '100ms');
application_waits('outlives', 'a batch with a task that does not end', 'SELECT pg_sleep(600)', 'batch-before-sql', 10);
setting('delay_wheel.batch_time' => '5ms');
wait_for($node, 'SELECT n FROM account WHERE id = 7', 'each changes the row once', 60, expected => 1000020);
cmp_ok(undone_batches($position), '>=', 1, 'the batch was undone');
wait_for($node, q{SELECT count(*) FROM delay_wheel.running r JOIN delay_wheel_data.task t ON t.id = r.task}, 'the other task runs alone',
	60, expected => 1);
query_is(q{SELECT delay_cancel(id, true) FROM delay_wheel_data.task}, 'stopping', 'and can be stopped');
all_over('a batch with a task that does not end');
clean();
setting('delay_wheel.max_executors' => 4);

# Some of them, and more executors.
$node->safe_psql('postgres', q{SELECT setval('begun', 1, false)});
backlog(q{SELECT count(delay_schedule_task(CASE g % 12 WHEN 5
			THEN 'INSERT INTO done VALUES ($1, $2::int + COALESCE(slow(0.3), 0))' ELSE 'INSERT INTO done VALUES ($1, $2::int)' END,
		args => ARRAY[CASE g % 12 WHEN 5 THEN 'slow' ELSE 'quick' END, g::text], queue => 'some_slow'))
	FROM generate_series(1, 60) g});
all_over('some that take longer than a batch lives');
query_is($once, '60 of 60', 'each task ran once');
query_is(q{SELECT last_value BETWEEN 5 AND 10 FROM begun}, 't', 'the slow ones were begun in one batch each at most');
query_is(q{SELECT count(*) || ' ' || count(DISTINCT xid) FROM done WHERE xid IN (SELECT xid FROM done WHERE label = 'slow')}, '5 5',
	'and ran alone');
clean();

# One that waits for a lock, and catches the error that it would not have met alone.
$node->safe_psql('postgres', q{CREATE FUNCTION count_up(which int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE account SET n = n + 1 WHERE id = which;
	EXCEPTION WHEN OTHERS THEN
		-- the last wait for a lock need not be the one that was given up
		UPDATE account SET n = n + 100 WHERE id = 20;
		INSERT INTO done VALUES (SQLSTATE, which);
	END $$});
$session->query_safe('BEGIN; UPDATE account SET n = n WHERE id = 7');
backlog(q{SELECT count(delay_schedule('0', 'SELECT count_up($1)', g)) FROM generate_series(1, 20) g});
wait_for($node, q{SELECT sum(n) FROM account}, 'those beside one that would catch the error are done', 60, expected => 19);
$session->query_safe('COMMIT');
all_over('the one that would catch the error');
query_is(q{SELECT min(n) || ' ' || max(n) || ' ' || (SELECT count(*) FROM done) FROM account}, '1 1 0',
	'it does not meet it');
clean();

# The limit for locks strikes when the lock is granted, and the next wait makes PostgreSQL take that
# for a cancel by somebody.  Here somebody is the task itself, after its wait.
$node->safe_psql('postgres', q{
	CREATE OR REPLACE FUNCTION count_up(which int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE account SET n = n + 1 WHERE id = which;
	EXCEPTION WHEN lock_not_available THEN
		PERFORM pg_cancel_backend(pg_backend_pid());
		PERFORM pg_sleep(60);
	END $$});
$session->query_safe('BEGIN; UPDATE account SET n = n WHERE id = 7');
backlog(q{SELECT count(delay_schedule('0', 'SELECT count_up($1)', g)) FROM generate_series(1, 20) g});
wait_for($node, q{SELECT sum(n) FROM account}, 'those beside one that takes its limit for a cancel are done', 60, expected => 19);
$session->query_safe('COMMIT');
all_over('the one that takes its limit for a cancel');
query_is(q{SELECT min(n) || ' ' || max(n) || ' ' || (SELECT count(*) FROM delay_wheel_data.failed_task) FROM account}, '1 1 0',
	'it runs alone, and does not fail');
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

# Cursors, prepared statements, values of sequences, as seen by the next one;
# and SET CONSTRAINTS, after which there is none.
setting('delay_wheel.max_executors' => 3);
wait_for($node, 'SELECT count(*) <= 1 FROM delay_wheel.running', 'one executor is left');
$node->safe_psql('postgres', q{
	CREATE SEQUENCE leavings;
	GRANT ALL ON SEQUENCE leavings TO worker;
	CREATE FUNCTION leave_all() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		open_one CURSOR FOR SELECT 1;
	BEGIN
		OPEN open_one;
		EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT 1';
		EXECUTE 'PREPARE prepared AS SELECT 1';
		PERFORM nextval('leavings');
		INSERT INTO done VALUES ('left');
	END $$;
	CREATE FUNCTION look() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		value text := 'none';
	BEGIN
		BEGIN
			value := currval('leavings');
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			NULL;
		END;
		INSERT INTO done VALUES (format('%s cursors, %s statements, value %s', (SELECT count(*) FROM pg_cursors),
			(SELECT count(*) FROM pg_prepared_statements), value));
	END $$;
	CREATE FUNCTION constrain() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		SET CONSTRAINTS ALL IMMEDIATE;
		INSERT INTO done VALUES ('immediate');
	END $$;
	CREATE FUNCTION child_first(which int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO child VALUES (which);
		INSERT INTO parent VALUES (which);
		INSERT INTO done VALUES ('deferred');
	EXCEPTION WHEN foreign_key_violation THEN
		INSERT INTO done VALUES ('not deferred');
	END $$});
backlog(q{SELECT count(delay_schedule('0', CASE g % 2 WHEN 1 THEN 'SELECT leave_all()' ELSE 'SELECT look()' END)) FROM generate_series(1, 20) g});
all_over('what is left');
query_is(q{SELECT label, count(*) FROM done GROUP BY 1 ORDER BY 1},
	"0 cursors, 0 statements, value none|10\nleft|10", 'a task does not see what another one has left');
query_is(q{SELECT count(DISTINCT xid) < 20 FROM done}, 't', 'in fewer transactions');
clean();
backlog(insertions(5, 'before') . q{
	SELECT count(delay_schedule('0', CASE g % 2 WHEN 1 THEN 'SELECT constrain()' ELSE format('SELECT child_first(%s)', g) END))
	FROM generate_series(1, 20) g});
all_over('SET CONSTRAINTS');
query_is(q{SELECT label, count(*) FROM done GROUP BY 1 ORDER BY 1}, "before|5\ndeferred|10\nimmediate|10", 'nor its SET CONSTRAINTS');
clean();

# What others have committed is seen by the next task, also if that needs no
# lock that the batch does not have already.
$node->safe_psql('postgres', q{
	CREATE TABLE replaced (at timestamptz);
	CREATE PROCEDURE replace_meanwhile() LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 60000 LOOP
			EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor' AND state = 'active'
				AND query ~ '^SELECT pg_sleep');
			PERFORM pg_stat_clear_snapshot(), pg_sleep(0.0005);
		END LOOP;
		CREATE OR REPLACE FUNCTION version() RETURNS text LANGUAGE sql AS 'SELECT $x$new$x$';
		COMMIT;
		INSERT INTO replaced VALUES (clock_timestamp());
	END $$});
setting('delay_wheel.batch_time' => '100ms');
my $in_one = '';
for (1 .. 20)
{
	clean();
	$node->safe_psql('postgres', q{TRUNCATE replaced;
		CREATE OR REPLACE FUNCTION public.version() RETURNS text LANGUAGE sql AS 'SELECT $x$old$x$'});
	my $version = q{'INSERT INTO done (label, n) SELECT public.version(), $1', };
	backlog(qq{SELECT count(CASE g WHEN 5 THEN delay_schedule('0', 'SELECT pg_sleep(0.05)')
		ELSE delay_schedule('0', $version g) END) FROM generate_series(1, 10) g}, go => 0);
	$session->query_until(qr/^started$/m, "SET search_path = public, pg_catalog;\n\\echo started\nCALL replace_meanwhile();\n");
	release();
	$session->query_safe('SELECT 1');
	all_over('a function is replaced');
	$in_one = $node->safe_psql('postgres', q{SELECT count(DISTINCT xid) = 1 AND
		count(*) FILTER (WHERE at < r.at) = 4 AND count(*) FILTER (WHERE at > r.at) = 5 FROM done d, replaced r}
		=~ s/WHERE at/WHERE d.at/gr);
	last if $in_one eq 't';
}
is($in_one, 't', 'a function is replaced in the middle of a batch');
query_is(q{SELECT string_agg(label, ' ' ORDER BY n) FROM done}, 'old old old old new new new new new', 'the next task runs the new one');
$session->query_safe('RESET search_path');
setting('delay_wheel.batch_time' => '5ms');
clean();

# What a task cancels by a mark is left alone until that is committed: here it
# is undone, and not done again.
$node->safe_psql('postgres', q{CREATE FUNCTION cancel_once() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF nextval('leavings') = 1 THEN
			PERFORM delay_cancel_all(tag => 'x');
		END IF;
	END $$;
	ALTER SEQUENCE leavings RESTART});
attach($node, 'batch-before-commit', 'error', 0, 1);
backlog(q{
	SELECT count(delay_schedule_task(CASE g WHEN 1 THEN 'SELECT cancel_once(), $1' ELSE 'INSERT INTO done VALUES ($1)' END,
		args => ARRAY['marked'], tag => CASE WHEN g > 1 THEN 'x' END)) FROM generate_series(1, 20) g});
all_over('a mark that is undone');
query_is(q{SELECT count(*) FROM done}, 19, 'what it would have cancelled runs');
detach($node, 'batch-before-commit');
clean();

# The commit waits for a synchronous standby for as long as it takes.
setting('delay_wheel.max_executors' => 4);
backlog(insertions(20, 'synchronous') . q{
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('alone')$$, queue => 'apart', options => '{"timeout": "100 ms"}')}, go => 0);
$position = log_position($node);
my $waiting = q{SELECT count(*) >= 2 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'delay_wheel executor'};
setting('synchronous_standby_names' => 'nobody');
# until the server knows of it nobody waits
wait_until(60, sub {
	$session->query_until(qr/^started$/m, "\\echo started\nINSERT INTO replaced VALUES (now());\n");
	sleep(0.2);
	$node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) });
release();
wait_for($node, $waiting, 'two transactions wait for a standby');
sleep(0.5);
query_is($waiting, 't', 'they go on waiting');
setting('synchronous_standby_names' => '');
$session->query_safe('SELECT 1');
all_over('a synchronous standby');
unlike(log_since($node, $position), qr/canceling wait for synchronous replication/, 'none was cut short');
query_is(q{SELECT count(*) FROM done}, 21, 'all were run');
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

# one executor only, so that the batch is all there is, however slow the machine
setting('delay_wheel.max_executors' => 3, 'delay_wheel.batch_time' => '50ms');
wait_for($node, 'SELECT count(*) <= 1 FROM delay_wheel.running', 'one executor is left');
# and batches that have become small grow again
backlog(insertions(1000, 'grow'));
all_over('batches grow');
clean();

# Rows that are being deleted by a batch are waited for.
in_the_middle(insertions(10, 'wait') . q{
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('wait', 11)$$, key => 'a');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('wait', 12)$$, key => 'b');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('wait', 13)$$, key => 'c');}, 12, 'others');
$node->safe_psql('postgres', 'CREATE TABLE seen AS SELECT id, key, row_number() OVER (ORDER BY id) AS n FROM delay_wheel_data.task; GRANT ALL ON seen TO worker');
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
	ask('cancel_key', q{SELECT delay_cancel(key => 'a')});
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
is_deeply(answers(), { cancel => 'gone', stop => 'gone', move => 'gone', cancel_key => 'gone', schedule_key => 'f',
	replace_key => 'f', delay_wait => 'done' }, 'what a batch has done is done');
query_is($once, '13 of 13', 'once');
query_is(q{SELECT count(*) FROM delay_wheel_data.task}, 2, 'new tasks of the keys are pending');
$node->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel_data.task; DROP TABLE seen});
clean();

# The same, and the batch is undone; then tasks run alone, but only when
# the others have had their say.
in_the_middle(insertions(10, 'undone') . q{
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('undone', 11)$$, key => 'a');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('undone', 12)$$, key => 'b');
	SELECT delay_schedule_task($$INSERT INTO done VALUES ('undone', 13)$$, key => 'c');}, 12, 'undone');
$node->safe_psql('postgres', 'CREATE TABLE seen AS SELECT id, key, row_number() OVER (ORDER BY id) AS n FROM delay_wheel_data.task; GRANT ALL ON seen TO worker');
ask_all();
attach($node, 'batch-before-commit', 'error', 0, 1);
attach($node, 'claim-before-fetch', 'wait', 0, 1);
detach($node, 'batch-after-sql');
wait_until_waiting($node, 'claim-before-fetch', 'the batch is undone');
delete local $asked{delay_wait};
is_deeply(answers(), { cancel => 'cancelled', stop => 'cancelled', move => 'moved', cancel_key => 'cancelled',
	schedule_key => 't', replace_key => 'f' }, 'what a batch has not done can be cancelled');
detach($node, 'claim-before-fetch');
wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task WHERE due <= now()}, 'the others run', 60, expected => 0);
query_is(q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM done}, '4 5 6 7 8 9 10 12', 'and only they do');
query_is(q{SELECT count(DISTINCT xid) FROM done}, 8, 'alone');
$node->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel_data.task; DROP TABLE seen});
clean();

# A pause that is committed in the middle: nothing is claimed after it.
in_the_middle(insertions(30, 'pause'), 9, 'a pause');
sql('SELECT delay_pause_all()');
detach($node, 'batch-after-sql');
wait_for($node, q{SELECT count(*) FROM delay_wheel.running WHERE task IS NOT NULL}, 'the batch ends', 60, expected => 0);
query_is(q{SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM delay_wheel_data.task)}, 30, 'no task is lost');
query_is(q{SELECT count(*) <= 10 FROM done}, 't', 'none was begun');
sql('SELECT delay_resume_all()');
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
	SELECT count(delay_schedule_task($$INSERT INTO done VALUES ('expired')$$, due => now() - interval '1 hour', options => '{"expires": "1 minute"}'))
	FROM generate_series(1, 10);});
all_over('expired');
query_is(q{SELECT (SELECT count(*) FROM done) || ' ' || string_agg(DISTINCT sqlstate, ' ') || ' ' || count(*) FROM delay_wheel_data.failed_task},
	'10 DW002 10', 'tasks that are too late have failed, the others ran');
clean();

# A cancel is for the task that runs.
backlog(insertions(5, 'first') . q{SELECT delay_schedule('0', 'SELECT pg_cancel_backend(pg_backend_pid()), nextval($1::regclass)', 'tries');}
	. insertions(5, 'last'));
all_over('a cancel');
query_is($once, '10 of 10', 'those beside a task that is cancelled ran');
query_is(q{SELECT sqlstate || ' ' || attempts FROM delay_wheel_data.failed_task}, '57014 1', 'that one has failed');
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

# there are no batches for a minute after one in which the server crashed
$node->restart;
setting('delay_wheel.batch_time' => '5ms');

#
# Of two priorities the lower one has its turns.  By one executor: a third one
# would be free for the lower one alone.
#
setting('delay_wheel.max_executors' => 1);
wait_for($node, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'},
	'there is one executor');
backlog(q{
	SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1)', args => ARRAY['high'], priority => 1::smallint)) FROM generate_series(1, 320);
	SELECT count(delay_schedule_task('INSERT INTO done VALUES ($1)', args => ARRAY['low'], priority => -1::smallint)) FROM generate_series(1, 40);
});
all_over('priorities');
query_is(q{SELECT count(*) FILTER (WHERE label = 'low') BETWEEN 9 AND 11
	FROM (SELECT label FROM done ORDER BY at LIMIT 160) x}, 't', 'the lower priority has each 16th task');
query_is(q{SELECT count(DISTINCT xid) < count(*) FROM done WHERE label = 'high'}, 't', 'also where several of the higher one share a transaction');
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
my $formed;
# that of a deadlock, or any other one of a client
my $error = qr/deadlock detected|client backend ERROR/;
# Returns whether nobody had an error.
my $meet = sub {
	$position = log_position($node);
	$formed = counted($node, 'batches');
	my @clients = map { $node->background_psql('postgres', on_error_stop => 0, timeout => 300) } 1 .. 3;
	$clients[$_]->query_until(qr/^started$/m, "\\echo started\nCALL lock_backwards($seconds);\n") for 0 .. 1;
	$clients[2]->query_until(qr/^started$/m, "\\echo started\nSET ROLE worker; CALL feed($seconds);\n");
	$_->query('SELECT 1') for @clients;
	$_->quit for @clients;
	return log_since($node, $position) !~ $error;
};
for my $timeout ('1s', '50ms')
{
	setting('deadlock_timeout' => $timeout);
	# a batch lives half as long: with 50 ms it cannot end in time if its process gets no processor for 25 ms,
	# as happens on a busy machine
	my $tries = $timeout eq '1s' ? 1 : 3;
	1 while !$meet->() && --$tries > 0;
	all_over("deadlock_timeout $timeout");
	unlike(log_since($node, $position), $error, "deadlock_timeout $timeout: nobody has a deadlock");
	query_is(q{SELECT count(*) FROM delay_wheel_data.failed_task}, 0, 'no task has failed');
	query_is(q{SELECT (SELECT sum(n % 1000000) FROM account) = (SELECT sum(n) FROM done)}, 't', 'each task ran once');
	cmp_ok(undone_batches($position), '>=', 1, 'batches have met the application');
	note(sprintf('%s tasks, %d batches committed, %d undone, %s transactions of the application',
		$node->safe_psql('postgres', 'SELECT sum(n) FROM done'), counted($node, 'batches') - $formed, undone_batches($position),
		$node->safe_psql('postgres', 'SELECT n / 1000000 FROM account WHERE id = 1')));
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
query_is(q{SELECT count(*) FROM delay_wheel_data.failed_task}, 0, 'none has failed');

$node->stop;
done_testing();
