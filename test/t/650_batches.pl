# Batches under faults: each callback runs once, after the last member, with the right numbers.
# That is checked from outside: members write into a table, and a callback writes its arguments
# and how many members it sees there.
#
# With DW_LONG there are more members, and more tries.  DW_RACES has the groups to run (default: all).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use List::Util qw(max);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $limit = $ENV{DW_RACE_LIMIT} // 60;
my $node = new_node('batches', injection => 1, conf => q{
autovacuum = off
log_statement = none
log_min_error_statement = panic
restart_after_crash = on
max_prepared_transactions = 20
delay_wheel.executor_idle_timeout = 1h
});

sub query { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# What the members and the callbacks write, and functions that make batches and members.
my $setup = q{
	CREATE TABLE member (batch bigint, n int);
	CREATE TABLE effect (batch bigint, what text, numbers bigint[], seen bigint);
	CREATE INDEX ON member (batch);
	GRANT ALL ON member, effect TO PUBLIC;
	CREATE FUNCTION callback(what text) RETURNS text LANGUAGE sql AS $$
		SELECT format('INSERT INTO public.effect SELECT $1, %L, ARRAY[$3, $4, $5, $6, $7], (SELECT count(*) FROM public.member WHERE batch = $1)', what)
	$$;
	CREATE FUNCTION make(open boolean DEFAULT false, batch_id bigint DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
		SELECT delay_batch(on_done => callback('done'), on_failed => callback('failed'), on_end => callback('end'), open => open, batch_id => batch_id)
	$$;
	CREATE FUNCTION put(batch bigint, sql text DEFAULT 'SELECT 1', delay interval DEFAULT '0', more jsonb DEFAULT '{}') RETURNS bigint LANGUAGE sql AS $$
		SELECT delay_schedule_task(sql, delay => delay, options => more || jsonb_build_object('batch_id', batch))
	$$;
	CREATE FUNCTION mark(batch bigint, n int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
		SELECT format('INSERT INTO public.member VALUES (%s, %s)', batch, n)
	$$;
	-- a batch with one member that waits
	CREATE FUNCTION make_waiting(OUT batch bigint, OUT member bigint) LANGUAGE plpgsql AS $$
	BEGIN
		batch := make();
		member := put(batch, mark(batch), '1 day');
	END $$;
};
query($setup);

# A closed batch whose member waits for a day: its id and the member's.
sub make_waiting { return split /\|/, query('SELECT * FROM make_waiting()'); }

sub now { return query("SELECT delay_reschedule($_[0], '0')"); }

# All batches whose end was tested; no callback of them may run again.
my $callbacks = 0;

# A test: the batch ends, once, with these numbers (total, done, failed, cancelled, skipped).
sub ended
{
	my ($batch, $numbers, $seen, $what, %options) = @_;
	my ($total, $done) = split /,/, $numbers;
	my $max = delete $options{max} // $limit;
	my $outcome = $total == $done ? 'done' : 'failed';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$callbacks += 2 unless $options{db};
	return wait_for($node, "SELECT string_agg(concat_ws(' ', what, numbers, seen), ';' ORDER BY what = 'end') FROM effect WHERE batch = $batch",
		$what, $max, expected => "$outcome {$numbers} $seen;end {$numbers} $seen", %options);
}

# A test: the batch has not ended.
sub goes_on
{
	my ($batch, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is(query("SELECT count(*) FROM delay_wheel.batches WHERE id = $batch AND ended_at IS NULL"), 1, $what);
}

# Runs the code with the sweeper stopped before it ends another batch, so that it takes the notes
# of what the code does at once.
sub with_sweeper_stopped
{
	my ($code) = @_;

	attach($node, 'batch-before-commit', 'wait', 0, 1);
	my $other = query('SELECT make()');
	wait_until_waiting($node, 'batch-before-commit', 'the sweeper ends another batch');
	$code->();
	detach($node, 'batch-before-commit');
	ended($other, '0,0,0,0,0', 0, 'the other batch ends');
	return;
}

# A batch that could not end is tried again after 10 s.
my $max_retry = max($limit, 30);

# Sessions whose statements wait.
sub session { return $node->background_psql('postgres', on_error_stop => 1); }

sub begin
{
	my ($session, $sql) = @_;
	return $session->query_until(qr/^started$/m, "\\echo started\n$sql\n");
}

#
# Members end, join, are undone and put back while the sweeper looks.
#

# The last two end at once.
group last_two => sub {
	my $tries = long_tests() ? 500 : 60;
	my @sessions = map { session() } 1 .. 2;

	for my $i (1 .. $tries)
	{
		my @members = split /\|/, query('SELECT b, put(b, mark(b), $$1 day$$), put(b, mark(b), $$1 day$$) FROM make() b');
		my $batch = shift @members;

		begin($sessions[$_], "SELECT delay_run($members[$_]);") for 0, 1;
		$_->query('SELECT 1') for @sessions;
	}
	$_->quit for @sessions;
	wait_for($node, q{SELECT count(*), count(DISTINCT batch) FROM effect WHERE numbers = '{2,2,0,0,0}' AND seen = 2},
		"the last two end at once: $tries batches end once", $limit, expected => 2 * $tries . "|$tries");
	$callbacks += 2 * $tries;
};

group joins => sub {
	# the sweeper has seen no member, but not yet locked the row
	attach($node, 'batch-looked', 'wait', 0, 1);
	my $batch = query('SELECT make(open => true)');
	wait_until_waiting($node, 'batch-looked', 'the sweeper has seen no member');
	my $member = query("SELECT put($batch, mark($batch), '1 day')");
	is(query("SELECT delay_close_batch($batch)"), 'closed', 'a task joins, and the batch is closed, meanwhile');
	detach($node, 'batch-looked');
	with_sweeper_stopped(sub { });
	goes_on($batch, 'it has not ended');
	now($member);
	ended($batch, '1,1,0,0,0', 1, 'it ends after the new member');

	# a batch is not closed while a task joins it
	for my $end (qw(COMMIT ROLLBACK))
	{
		my ($joins, $closes) = map { session() } 1 .. 2;
		$batch = query('SELECT make(open => true)');
		$joins->query_safe("BEGIN; SELECT put($batch, mark($batch))");
		begin($closes, "SELECT 'it is ' || delay_close_batch($batch);");
		wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'it is ' AND wait_event = 'transactionid'},
			"$end: who closes the batch waits for who joins it", $limit, expected => 1);
		$joins->query_safe($end);
		like($closes->query('SELECT 1'), qr/it is closed/, "$end: then it is closed");
		ended($batch, $end eq 'COMMIT' ? ('1,1,0,0,0', 1) : ('0,0,0,0,0', 0), "$end: it ends");
		$_->quit for $joins, $closes;
	}

	# a task is no member because it has run one, and is one still after it has run another
	query(q{
		CREATE PROCEDURE run_member(batch bigint, member bigint) LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM delay_run(member);
			COMMIT;
			PERFORM put(batch, 'SELECT 1', '1 day');
		END $$});
	($batch, $member) = make_waiting();
	my $task = query("SELECT delay_schedule_task('CALL run_member($batch, $member)', delay => '0', options => '{\"mode\": \"at_least_once\"}')");
	wait_for($node, "SELECT message ~ 'batch $batch (is closed|has ended)' FROM delay_wheel.failed WHERE id = $task", 'a task that has run a member is none', $limit);
	ended($batch, '1,1,0,0,0', 1, 'it ends with its member');
	$batch = query(q{
		SELECT delay_schedule('1 day', 'SELECT 1') AS other \gset
		SELECT b FROM make() b, put(b, format('SELECT delay_run(%s), put(%s, mark(%s))', :other, b, b))});
	ended($batch, '2,2,0,0,0', 1, 'a member that has run another task adds a member');

	# joining is undone after the close, in the same transaction
	my $both = session();
	$batch = query('SELECT make(open => true)');
	$both->query_safe("BEGIN; SELECT delay_close_batch($batch); ROLLBACK");
	goes_on($batch, 'a close that is rolled back');
	$both->query_safe("BEGIN; SAVEPOINT a; SELECT put($batch); ROLLBACK TO a; SELECT put($batch, mark($batch)); SELECT delay_close_batch($batch); COMMIT");
	ended($batch, '1,1,0,0,0', 1, 'a join that a savepoint undoes does not count');
	$both->quit;
};

# Who locks the row of a batch.
group locks => sub {
	my %cases = (
		'a commit' => [ 'BEGIN; SELECT delay_close_batch(%s)', 'COMMIT' ],
		'FOR UPDATE of a superuser' => [ 'BEGIN; SELECT FROM delay_wheel_data.batch WHERE id = %s FOR UPDATE', 'COMMIT' ],
		'FOR KEY SHARE of a superuser' => [ 'BEGIN; SELECT FROM delay_wheel_data.batch WHERE id = %s FOR KEY SHARE', 'ROLLBACK' ]);

	for my $case (sort keys %cases)
	{
		my ($batch, $member) = make_waiting();
		my $session = session();
		$session->query_safe(sprintf $cases{$case}[0], $batch);
		my $looked = counted($node, 'batch-looked');
		now($member);
		wait_for($node, "SELECT dw_inject_waiting('batch-looked') > $looked", "$case: the sweeper meets the lock", $limit);
		with_sweeper_stopped(sub { });
		goes_on($batch, "$case: it has not ended");
		$session->query_safe($cases{$case}[1]);
		ended($batch, '1,1,0,0,0', 1, "$case: it ends when the lock is gone");
		$session->quit;
		detach($node, 'batch-looked');
	}
};

# A library's lock is gone: the sweeper looks at once, and not a second later.
group locks_end => sub {
	my $tries = 12;
	my $at_once = 0;
	my $session = session();

	for my $i (1 .. $tries)
	{
		my ($batch, $member) = make_waiting();
		my $savepoint = $i % 2 ? 'SAVEPOINT a;' : '';
		$session->query_safe("BEGIN; $savepoint SELECT delay_close_batch($batch)");
		my $looked = counted($node, 'batch-looked');
		now($member);
		wait_until($limit, sub { return query('SELECT dw_inject_waiting($$batch-looked$$)') > $looked });
		my $now = $session->query_safe('SELECT clock_timestamp()');
		$session->query_safe($savepoint ? 'ROLLBACK TO a' : 'ROLLBACK');
		ended($batch, '1,1,0,0,0', 1, "rolled back: it ends ($i)");
		$at_once++ if query("SELECT ended_at < '$now'::timestamptz + interval '0.5 s' FROM delay_wheel.batches WHERE id = $batch") eq 't';
		$session->query_safe('ROLLBACK') if $savepoint;
		detach($node, 'batch-looked');
	}
	$session->quit;
	cmp_ok($at_once, '>=', $tries - 3, "rolled back: looked at at once ($at_once of $tries)");
};

# Tasks that try to join a closed batch.
group refused => sub {
	my $tries = long_tests() ? 100 : 8;
	my @sessions = map { session() } 1 .. 3;
	for my $i (1 .. $tries)
	{
		my ($batch, $member) = make_waiting();
		begin($_, qq{DO \$\$ BEGIN
			WHILE EXISTS (SELECT FROM delay_wheel_data.task WHERE id = $member) LOOP
				BEGIN PERFORM put($batch); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END;
			END LOOP;
			FOR i IN 1..100 LOOP
				BEGIN PERFORM put($batch); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END;
			END LOOP;
		END \$\$;}) for @sessions;
		now($member);
		ended($batch, '1,1,0,0,0', 1, "it ends though tasks try to join it ($i)");
		$_->query('SELECT 1') for @sessions;
	}
	$_->quit for @sessions;
};

# A member ends after the sweeper has looked for it, and before it removes the note.
group notes => sub {
	my ($batch, $member, $empty);

	# after this, no pass over all batches goes on
	with_sweeper_stopped(sub { });
	with_sweeper_stopped(sub {
		($batch, $member) = make_waiting();
		$empty = query('SELECT make()');
		attach($node, 'batch-looked', 'wait', 0, 1);
	});
	wait_until_waiting($node, 'batch-looked', 'the sweeper has seen the member, and looks at the next batch');
	now($member);
	wait_for($node, "SELECT count(*) FROM member WHERE batch = $batch", 'the member ends', $limit, expected => 1);
	detach($node, 'batch-looked');
	ended($empty, '0,0,0,0,0', 0, 'the next batch ends');
	ended($batch, '1,1,0,0,0', 1, 'noted again: so does the batch');
	query("SELECT dw_inject_attach('batch-before-commit', 'error', 0, 2)");
	$batch = query('SELECT b FROM make() b, put(b, mark(b))');
	ended($batch, '1,1,0,0,0', 1, 'the sweeper fails twice, and tries again', max => $max_retry);
	detach($node, 'batch-before-commit');

	# more than there is room for, in one transaction
	my $many = 3000;
	query("CREATE TABLE many AS SELECT make(open => true) AS batch FROM generate_series(1, $many)");
	query('SELECT count(put(batch, mark(batch))), count(delay_close_batch(batch)) FROM many');
	wait_for($node, q{SELECT count(*), count(DISTINCT batch) FROM effect JOIN many USING (batch) WHERE numbers = '{1,1,0,0,0}' AND seen = 1},
		'more batches than notes: all end', 120, expected => 2 * $many . "|$many");
	$callbacks += 2 * $many;
};

# The numbers, whatever a transaction and its savepoints do.
group numbers => sub {
	query(q{SELECT delay_wheel.create_queue('numbers', external => true, max_attempts => 1)});
	my $batch = query(q{
		BEGIN;
		SELECT make() AS batch \gset
		SAVEPOINT a;
		SELECT count(put(:batch)) FROM generate_series(1, 5) \gset
		SAVEPOINT b;
		SELECT put(:batch, 'SELECT 1/0') \gset
		ROLLBACK TO a;
		SELECT put(:batch, mark(:batch)) \gset
		SAVEPOINT c;
		SELECT put(:batch, 'SELECT 1/0') \gset
		RELEASE c;
		SELECT put(:batch, delay => '1 day') AS cancelled \gset
		SAVEPOINT d;
		SELECT delay_cancel(:cancelled) \gset
		ROLLBACK TO d;
		SELECT delay_cancel(:cancelled) \gset
		COMMIT;
		SELECT :batch;});
	ended($batch, '3,1,1,1,0', 1, 'savepoints: only what was not undone counts');

	# messages end before the commit, and what follows them joins then
	$batch = query(q{
		BEGIN;
		SELECT make() AS batch \gset
		SELECT delay_send('numbers', '{}', options => jsonb_build_object('batch_id', :batch, 'on_success', mark(:batch), 'on_failure', mark(:batch))) FROM generate_series(1, 3) \g /dev/null
		COMMIT;
		DO $$
		DECLARE
			ids bigint[];
		BEGIN
			LOOP
				ids := ARRAY(SELECT id FROM delay_receive('numbers', 3));
				EXIT WHEN cardinality(ids) = 3;
				ROLLBACK;
			END LOOP;
			PERFORM delay_fail(ids[1], error => 'no');
		END $$;
		SELECT :batch;});
	ended($batch, '6,5,1,0,0', 3, 'received messages: what follows them counts');
	query(q{SELECT delay_wheel.drop_queue('numbers')});

	# put back
	$batch = query(q{SELECT b FROM make() b, put(b, format('SELECT 1 / (SELECT count(*) FROM member WHERE batch = %s)', b))});
	ended($batch, '1,0,1,0,0', 0, 'a member fails');
	query("INSERT INTO member VALUES ($batch, 0); TRUNCATE effect");
	my $open = session();
	$open->query_safe("BEGIN; SELECT delay_retry(id) FROM delay_wheel.failed WHERE batch_id = $batch");
	is(query("SELECT state FROM delay_wheel.batches WHERE id = $batch"), 'failed', 'it is being put back');
	$open->query_safe('ROLLBACK');
	is(query("SELECT state, failed FROM delay_wheel.batches WHERE id = $batch"), 'failed|1', 'that is undone');
	$open->query_safe("BEGIN; SELECT delay_retry(id) FROM delay_wheel.failed WHERE batch_id = $batch; COMMIT");
	$open->quit;
	$callbacks = 0;
	ended($batch, '1,1,0,0,0', 1, 'put back: it ends once more');

	my ($code, $out, $err) = $node->psql('postgres', q{SELECT put(make(), more => '{"mode": "at_most_once"}')});
	like($err, qr/a task with mode at_most_once cannot be in a batch/, 'mode at_most_once is refused');
	query(q{CREATE ROLE stranger LOGIN; SELECT delay_wheel.allow('stranger')});
	$batch = query('SELECT make(open => true)');
	($code, $out, $err) = $node->psql('postgres', "SET SESSION AUTHORIZATION stranger; SELECT put($batch)");
	like($err, qr/permission denied for batch $batch/, 'so are tasks of others');
	is(query("SET SESSION AUTHORIZATION stranger; SELECT delay_close_batch($batch), delay_cancel_batch($batch)"), 'gone|0', 'who cannot close it either');
	query("SELECT delay_close_batch($batch)");
	ended($batch, '0,0,0,0,0', 0, 'it is not changed');
};

#
# Prepared transactions decide by their end.
#
group two_phase => sub {
	query(q{SELECT delay_wheel.create_queue('prepared', external => true)});
	my (%batch, %leased);
	for my $end (qw(COMMIT ROLLBACK))
	{
		my ($member, $message, $token);
		$batch{"$end made"} = query("BEGIN; SELECT b FROM make() b, put(b, mark(b)); PREPARE TRANSACTION '$end made'");
		$batch{"$end joins"} = query('SELECT make(open => true)');
		query(qq{BEGIN; SELECT put($batch{"$end joins"}, mark($batch{"$end joins"})); PREPARE TRANSACTION '$end joins'});
		($batch{"$end cancels"}, $member) = make_waiting();
		query("BEGIN; SELECT delay_cancel($member); PREPARE TRANSACTION '$end cancels'");
		($batch{"$end message"}, $message) = split /\|/, query(q{SELECT b, delay_send('prepared', '{}', options => jsonb_build_object('batch_id', b)) FROM make() b});
		$token = query(q{SELECT token FROM delay_lease('prepared', 1, '1 hour')});
		$leased{$end} = "$message, $token";
		query("BEGIN; SELECT delay_done($leased{$end}); PREPARE TRANSACTION '$end message'");
		($batch{"$end locks"}, $member) = make_waiting();
		query(qq{BEGIN; SELECT delay_close_batch($batch{"$end locks"}); PREPARE TRANSACTION '$end locks'});
		now($member);
		wait_for($node, qq{SELECT count(*) FROM member WHERE batch = $batch{"$end locks"}}, "$end: the member of a locked batch ends", $limit, expected => 1);
	}
	$node->stop('immediate');
	$node->start;
	is(query('SELECT count(*) FROM effect WHERE batch IN (' . join(', ', map { $batch{$_} } grep { !/made/ } keys %batch) . ')'), 0, 'prepared: none has ended');
	for my $end (qw(COMMIT ROLLBACK))
	{
		my $commit = $end eq 'COMMIT';

		query("$end PREPARED '$end $_'") for qw(made joins cancels message locks);
		ended($batch{"$end made"}, '1,1,0,0,0', 1, "$end PREPARED: a batch is made") if $commit;
		is(query(qq{SELECT count(*) FROM delay_wheel.batches WHERE id = $batch{"$end made"}}), 0, "$end PREPARED: no batch is made") if !$commit;
		is(query(qq{SELECT delay_close_batch($batch{"$end joins"})}), 'closed', "$end PREPARED: the batch can be closed");
		ended($batch{"$end joins"}, $commit ? ('1,1,0,0,0', 1) : ('0,0,0,0,0', 0), "$end PREPARED: a task joins, or not");
		query(qq{SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks WHERE batch_id = $batch{"$end cancels"}}) if !$commit;
		ended($batch{"$end cancels"}, $commit ? ('1,0,0,1,0', 0) : ('1,1,0,0,0', 1), "$end PREPARED: a member is cancelled, or not");
		is(query(qq{SELECT delay_done($leased{$end})}), $commit ? 'f' : 't', "$end PREPARED: a message is gone, or not");
		ended($batch{"$end message"}, '1,1,0,0,0', 0, "$end PREPARED: the message is done");
		ended($batch{"$end locks"}, '1,1,0,0,0', 1, "$end PREPARED: a lock is gone");
	}

	# one that has touched no task
	my $closed = query('SELECT make(open => true)');
	query("BEGIN; SELECT delay_close_batch($closed); PREPARE TRANSACTION 'close'");
	with_sweeper_stopped(sub { });
	goes_on($closed, 'prepared: a batch is not closed yet');
	query("COMMIT PREPARED 'close'");
	ended($closed, '0,0,0,0,0', 0, 'COMMIT PREPARED: it is closed, and ends');
};

#
# Whatever becomes of a member.
#
group ways => sub {
	query(q{
		SELECT delay_wheel.create_queue('leased', external => true, max_attempts => 3);
		SELECT delay_wheel.create_queue('dropped');
		CREATE SEQUENCE tries;
	});
	my ($batch, $member) = make_waiting();
	query("SELECT delay_reschedule($member, '1 ms')");
	ended($batch, '1,1,0,0,0', 1, 'moved');

	$batch = query(q{
		BEGIN;
		SELECT make() AS batch \gset
		SELECT put(:batch, $$SELECT CASE WHEN nextval('tries') < 4 THEN delay_snooze('1 ms') END$$) \gset
		SELECT put(:batch, 'SELECT 1/0', more => '{"max_attempts": 3, "retry_delay": "1 ms"}') \gset
		SELECT put(:batch, 'SELECT pg_sleep(100)', more => '{"timeout": "0.1 s"}') \gset
		SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 hour', options => jsonb_build_object('batch_id', :batch, 'skip_after', '1 s')) \gset
		SELECT put(:batch, mark(:batch), more => '{"on_success": "SELECT 2"}') \gset
		COMMIT;
		SELECT :batch;});
	ended($batch, '6,3,2,0,1', 1, 'snoozed, tried again, timed out, skipped, followed');

	# an executor is ended while it runs a member
	$batch = query(q{SELECT b FROM make() b, put(b, format('INSERT INTO member VALUES (%s, 1); SELECT pg_sleep(CASE WHEN nextval($$tries$$) < 10 THEN 100 ELSE 0 END)', b), more => '{"max_attempts": 5, "retry_delay": "1 ms"}')});
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'a member runs', $limit, expected => 1);
	query(q{SELECT setval('tries', 10); SELECT pg_terminate_backend(pid) FROM delay_wheel.running});
	ended($batch, '1,1,0,0,0', 1, 'its executor is ended: it runs again');

	# leases lapse
	$batch = query(q{SELECT b FROM make() b, delay_send('leased', '{}', options => jsonb_build_object('batch_id', b))});
	for my $i (1 .. 3)
	{
		goes_on($batch, "lease $i: it goes on");
		wait_for($node, q{SELECT count(*) FROM delay_lease('leased', 1, '50 ms')}, "lease $i", $limit, expected => 1);
	}
	ended($batch, '1,0,1,0,0', 0, 'three leases lapse: it fails');

	# cancelled as many, the rows are left to the sweeper; a queue is dropped with its tasks
	$batch = query(q{SELECT min(b) FROM (SELECT make() OFFSET 0) m (b), LATERAL (SELECT delay_schedule_task('SELECT 1', delay => '1 day', tag => 'many', options => jsonb_build_object('batch_id', b)) FROM generate_series(1, 2000)) t});
	query(q{SELECT delay_cancel_all(tag => 'many')});
	ended($batch, '2000,0,0,2000,0', 0, 'cancelled as many');
	$batch = query(q{SELECT min(b) FROM (SELECT make() OFFSET 0) m (b), LATERAL (SELECT delay_schedule_task('SELECT 1', delay => '1 day', queue => 'dropped', options => jsonb_build_object('batch_id', b)) FROM generate_series(1, 100)) t});
	query(q{SELECT delay_cancel_all(queue => 'dropped')});
	wait_for($node, q{SELECT delay_wheel.drop_queue('dropped')}, 'a queue is dropped', $limit);
	ended($batch, '100,0,0,100,0', 0, 'a queue is dropped with its tasks');
	# rows that plain SQL deletes
	($batch, $member) = make_waiting();
	query("DELETE FROM delay_wheel_data.task WHERE id = $member");
	ended($batch, '1,0,0,1,0', 0, 'deleted by plain SQL');
};

#
# An idle server: open batches wake nobody.
#
group idle => sub {
	return unless defined context_switches($$);
	my $seconds = long_tests() ? 60 : 5;
	query(q{SELECT count(put(make(i <= 1000), delay => '1 day')) FROM generate_series(1, 2000) i});
	$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
	my $count = sub {
		return { map { $_ => context_switches($_) // 'gone' } worker_pids($node, undef, 'elsewhere') };
	};
	my $before = $count->();
	ok(wait_until(120, sub {
		sleep(2);
		my $now = $count->();
		my $same = join(' ', %$now{ sort keys %$now }) eq join(' ', %$before{ sort keys %$before });
		$before = $now;
		return $same;
	}), 'our processes come to rest');
	cmp_ok(scalar(keys %$before), '>=', 2, 'they are there');
	sleep($seconds);
	is_deeply($count->(), $before, "2,000 batches wake nobody in $seconds s");
	query('SELECT count(delay_cancel_batch(id)) FROM delay_wheel.batches WHERE ended_at IS NULL');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.batches WHERE ended_at IS NULL', 'they end when they are cancelled', 120, expected => 0);
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'and their callbacks', 120, expected => 0);
	$callbacks += 4000;
};

#
# The view counts the members of the rows that it returns only.
#
group view => sub {
	query(q{
		CREATE ROLE counts LOGIN; GRANT INSERT ON delay_wheel.tasks TO counts;
		CREATE ROLE sees_none LOGIN});
	query(q{SET SESSION AUTHORIZATION counts; SELECT count(put(make(), delay => '1 day')) FROM generate_series(1, 1000)});
	query('ANALYZE delay_wheel_data.batch');
	my $first = query('SELECT id FROM delay_wheel.batches WHERE owner = $$counts$$ ORDER BY id LIMIT 1');

	# how often a query counts members
	my $counts = sub {
		my ($role, $sql) = @_;
		my $plan = query("SET SESSION AUTHORIZATION $role; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $sql");
		my $loops = 0;
		$loops += $_ for $plan =~ /Aggregate \(actual rows=\S+ loops=(\d+)\)/g;
		return $loops;
	};
	for my $role (qw(postgres counts))
	{
		for my $order ('id', 'id DESC', 'ended_at')
		{
			cmp_ok($counts->($role, "SELECT * FROM delay_wheel.batches ORDER BY $order LIMIT 20"), '<=', 3 * 20, "$role: 20 rows by $order");
		}
		is($counts->($role, "SELECT * FROM delay_wheel.batches WHERE id = $first"), 3, "$role: one row");
		is($counts->($role, "SELECT id, name, state FROM delay_wheel.batches"), 0, "$role: without numbers");
		is(query("SET SESSION AUTHORIZATION $role; SELECT count(*), sum(total), sum(pending) FROM (SELECT * FROM delay_wheel.batches WHERE id >= $first ORDER BY id LIMIT 20) b"),
			'20|20|20', "$role: what it counts");
	}
	is(query(q{
		CREATE FUNCTION leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.000001 AS $$BEGIN RAISE 'seen: %', $1; END$$;
		SET SESSION AUTHORIZATION sees_none;
		SELECT count(*) FROM (SELECT * FROM delay_wheel.batches WHERE leak(id::text) AND leak(total::text) ORDER BY id LIMIT 20) b}),
		0, 'strangers see no row, also by a function in the condition');
	query('SET SESSION AUTHORIZATION counts; SELECT count(delay_cancel_batch(id)) FROM delay_wheel.batches WHERE ended_at IS NULL');
	wait_for($node, 'SELECT count(*) FROM delay_wheel.batches WHERE ended_at IS NULL', 'they end when they are cancelled', 120, expected => 0);
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'and their callbacks', 120, expected => 0);
	$callbacks += 2000;
};

#
# Faults at random: executors, timer and sweeper are ended in every way, the server is stopped.
#
my @faults = (
	[ terminate => 'executor' ], [ KILL => 'executor' ], [ terminate => 'timer' ], [ stop => '' ],
	[ terminate => 'sweeper' ], [ KILL => 'timer' ], [ terminate => 'executor' ], [ stop => '' ]);

sub fault
{
	my ($how, $kind) = @{ $_[0] };

	if ($how eq 'stop')
	{
		$node->stop('immediate');
		$node->start;
		return;
	}
	my ($pid) = (try_psql($node, 'postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel $kind' ORDER BY random() LIMIT 1"))[1];
	return unless $pid;
	$how eq 'terminate' ? try_psql($node, 'postgres', "SELECT pg_terminate_backend($pid)") : kill $how, $pid;
	return;
}

sub under_faults
{
	my ($executors, $batches, $members) = @_;
	my $all = $batches * $members;
	my $what = "$batches batches of $members, $executors executors";
	my $first = query('SELECT make()');
	ended($first, '0,0,0,0,0', 0, "$what: begin");

	query("ALTER SYSTEM SET delay_wheel.max_executors = $executors");
	$node->reload;
	query(qq{
		SELECT count(put(b, format('INSERT INTO member SELECT %s, %s FROM pg_sleep(0.0005)', b, n), more => '{"max_attempts": 1000, "retry_delay": "0"}'))
		FROM (SELECT make() AS b FROM generate_series(1, $batches) OFFSET 0) m, generate_series(1, $members) n});
	for my $i (0 .. $#faults)
	{
		my $at = int($all * ($i + 0.5) / @faults);
		# a crash of the sweeper before it ends a batch
		try_psql($node, 'postgres', sprintf "SELECT dw_inject_attach('batch-before-commit', '%s', 0, 1)", ('error', 'fatal', 'crash')[$i % 3]) if $batches > 1;
		wait_until(120, sub { return ((try_psql($node, 'postgres', "SELECT count(*) >= $at FROM member WHERE batch > $first"))[1] // '') eq 't' })
		  or fail("$what: members go on");
		fault($faults[$i]);
	}
	wait_until(60, sub { return (try_psql($node, 'postgres', q{SELECT dw_inject_attach('batch-before-commit', 'crash', 0, 1)}))[0] == 0 });
	wait_for($node, "SELECT count(*), count(DISTINCT (batch, n)) FROM member WHERE batch > $first", "$what: all members have run once", 300, expected => "$all|$all");
	wait_for($node, qq{SELECT count(*), count(DISTINCT batch) FROM effect WHERE batch > $first AND what IN ('done', 'end')
			AND numbers = '{$members,$members,0,0,0}' AND seen = $members}, "$what: all have ended once, after their last member", 120,
		expected => 2 * $batches . "|$batches");
	$callbacks += 2 * $batches;
	is(query("SELECT count(*) FROM effect WHERE batch > $first"), 2 * $batches, "$what: no other callback has run");
	query('ALTER SYSTEM RESET delay_wheel.max_executors');
	$node->reload;
	return;
}

group faults => sub {
	my $n = long_tests() ? 100_000 : 10_000;
	under_faults(2, 1, $n);
	under_faults(4, 1, $n);
	under_faults(4, 1000, 10);
};

# What was tested has not run again.
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'nothing is pending', 120, expected => 0);
is(query('SELECT count(*) FROM effect'), $callbacks, 'no callback has run twice');
is(query('SELECT count(*) FROM delay_wheel_data.batch_count'), 0, 'no numbers are left');

#
# What may keep the sweeper from its work: settings of the database, plain SQL, errors, ids.
#
group hostile => sub {
	my $position = log_position($node);

	# settings of the database
	my $free = 'SET default_transaction_read_only = off; SET ROLE postgres;';
	query('CREATE ROLE other_role');
	for my $setting ('default_transaction_read_only = on', 'role = other_role', "default_transaction_isolation = 'serializable'")
	{
		query("ALTER DATABASE postgres SET $setting");
		$node->restart;
		my $batch = query("$free BEGIN; SELECT b FROM make() b, put(b, mark(b)); COMMIT");
		ended($batch, '1,1,0,0,0', 1, "$setting: a batch ends");
		query("$free ALTER DATABASE postgres RESET ALL");
	}
	$node->restart;
	unlike(log_since($node, $position), qr{sweeper.*ERROR}, 'without errors');

	# an id that nothing has
	my $batch;
	for my $none (-59, 0)
	{
		my $id = query(q{SELECT delay_schedule('1 day', 'SELECT 1')});
		query(qq{UPDATE delay_wheel_data.task SET more = '{"batch_id": $none}' WHERE id = $id; SELECT delay_close_batch($none)});
		$batch = query('SELECT b FROM make() b, put(b, mark(b))');
		ended($batch, '1,1,0,0,0', 1, "id $none: other batches end");
		query("SELECT delay_cancel($id)");
	}
	unlike(log_since($node, $position), qr{terminated by signal}, 'without a crash');

	# rows of numbers that plain SQL has locked
	my $locker = session();
	my ($locked) = split /\|/, query('SELECT b, put(b, mark(b)) FROM make(true) b');
	$locker->query_safe("BEGIN; SELECT * FROM delay_wheel_data.batch_count WHERE batch_id = $locked FOR UPDATE");
	query("SELECT delay_close_batch($locked)");
	$batch = query('SELECT b FROM make() b, put(b, mark(b))');
	ended($batch, '1,1,0,0,0', 1, 'locked numbers: another batch ends');
	goes_on($locked, 'the one with the lock does not');
	$locker->quit;
	ended($locked, '1,1,0,0,0', 1, 'after the lock it ends');

	# a batch that cannot end is not tried with each other one
	$batch = query('SELECT make(true)');
	query("UPDATE delay_wheel_data.batch SET total = 9223372036854775807 WHERE id = $batch; SELECT put($batch, mark($batch))");
	query("SELECT delay_close_batch($batch)");
	ok(wait_until($limit, sub { log_since($node, $position) =~ m{could not end batch $batch} }), 'a batch cannot end');
	my $began = log_position($node);
	for (1 .. 20)
	{
		my $other = query('SELECT b FROM make() b, put(b, mark(b))');
		ended($other, '1,1,0,0,0', 1, 'another one ends');
	}
	my @tries = log_since($node, $began) =~ /could not end batch $batch/g;
	cmp_ok(scalar(@tries), '<=', 5, 'it is not tried with each of them');
	# nor does a pass over all batches wait for it
	my $at_once = 0;
	my $start = time;
	$began = log_position($node);
	for my $i (1 .. 5)
	{
		my $closed = query('SELECT make(true)');
		query("BEGIN; SELECT delay_close_batch($closed); PREPARE TRANSACTION 'close'");
		my $now = query("COMMIT PREPARED 'close'; SELECT clock_timestamp()");
		ended($closed, '0,0,0,0,0', 0, "a batch that only a pass finds ends ($i)");
		$at_once++ if query("SELECT ended_at < '$now'::timestamptz + interval '5 s' FROM delay_wheel.batches WHERE id = $closed") eq 't';
	}
	cmp_ok($at_once, '>=', 4, "at once ($at_once of 5)");
	@tries = log_since($node, $began) =~ /could not end batch $batch/g;
	cmp_ok(scalar(@tries), '<=', 2 + (time - $start) / 10, 'it is not tried in each pass');
	# more of them than are remembered
	my $many = 80;
	query("CREATE TABLE unable AS SELECT make(true) AS batch FROM generate_series(1, $many)");
	query('UPDATE delay_wheel_data.batch SET total = 9223372036854775807 WHERE id IN (TABLE unable)');
	query('SELECT count(put(batch, mark(batch))) FROM unable');
	wait_for($node, 'SELECT count(*) FROM member WHERE batch IN (TABLE unable)', 'members of batches that cannot end', $limit, expected => $many);
	$began = log_position($node);
	query('SELECT count(delay_close_batch(batch)) FROM unable');
	ok(wait_until($limit, sub { my %ids = map { $_ => 1 } log_since($node, $began) =~ /could not end batch (\d+)/g; return keys %ids >= $many }), "$many batches cannot end");
	my $other = query('SELECT b FROM make() b, put(b, mark(b))');
	ended($other, '1,1,0,0,0', 1, 'another one ends');
	query("UPDATE delay_wheel_data.batch SET total = 0 WHERE id = $batch OR id IN (TABLE unable)");
	ended($batch, '1,1,0,0,0', 1, 'it ends without the wrong number', max => $max_retry);
	wait_for($node, q{SELECT count(*), count(DISTINCT batch) FROM effect JOIN unable USING (batch) WHERE numbers = '{1,1,0,0,0}' AND seen = 1},
		'so do the others', 120, expected => 2 * $many . "|$many");
	$callbacks += 2 * $many;

	# callbacks that are long
	my $size = 500_000;
	my @long = split /\n/, query(qq{SELECT delay_batch(on_end => format('INSERT INTO effect SELECT \$1, ''long'', ARRAY[\$3], octet_length(\$x\$%s\$x\$)', repeat('x', $size))) FROM generate_series(1, 10)});
	wait_for($node, "SELECT count(*) FROM effect WHERE what = 'long' AND seen = $size", 'long callbacks run', $limit, expected => scalar @long);
	$callbacks += @long;

	# the transaction that makes the batch also ends its members; nothing else has the sweeper look
	for my $way ('delay_run(:m)', 'delay_cancel(:m)')
	{
		$batch = query("BEGIN;
			SELECT make() AS b \\gset
			SELECT put(:b, mark(:b), '1 day') AS m \\gset
			SELECT $way AS done \\gset
			COMMIT; SELECT :b");
		$way =~ /run/ ? ended($batch, '1,1,0,0,0', 1, "$way: the batch ends") : ended($batch, '1,0,0,1,0', 0, "$way: the batch ends");
	}

	# TRUNCATE
	$batch = query("SELECT b FROM make() b, put(b, mark(b), '1 day'), put(b, mark(b), '1 day') p");
	query('TRUNCATE delay_wheel_data.task');
	ended($batch, '2,0,0,2,0', 0, 'TRUNCATE: its members are cancelled');

	# a member that joins while the batch is cancelled
	my $joiner = session();
	my $canceller = session();
	$batch = query('SELECT make(true)');
	$joiner->query_safe("BEGIN; SELECT put($batch, mark($batch), '1 day')");
	begin($canceller, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT delay_cancel_batch($batch) AS n \\gset\nCOMMIT;");
	wait_for($node, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted", 'delay_cancel_batch() waits for who joins', $limit, expected => 't');
	$joiner->query_safe('COMMIT');
	is($canceller->query_safe('SELECT :n'), 1, 'it cancels this member');
	ended($batch, '1,0,0,1,0', 0, 'the batch ends');
	$_->quit for $joiner, $canceller;
};

#
# A copy: it ends after it was armed.
#
group copies => sub {
	my $dir = PostgreSQL::Test::Utils::tempdir();
	query('CREATE DATABASE original');
	query("CREATE EXTENSION delay_wheel; $setup", 'original');
	my ($batch, $open) = split /\|/, query(q{
		BEGIN;
		SELECT make() AS batch \gset
		SELECT put(:batch, 'SELECT 1/0'), put(:batch, mark(:batch)), put(:batch, mark(:batch), '1 day') \g /dev/null
		SELECT make(open => true) AS open \gset
		COMMIT;
		SELECT :batch, :open;}, 'original');
	wait_for($node, "SELECT pending, failed, done FROM delay_wheel.batches WHERE id = $batch", 'two members have ended', $limit, db => 'original', expected => '1|1|1');
	$node->command_ok([ 'pg_dump', '-f', "$dir/dump.sql", 'original' ], 'pg_dump');
	query('CREATE DATABASE copy');
	$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/dump.sql", 'copy' ], 'it is restored');
	is(query('SELECT state, total, pending, done, failed FROM delay_wheel.batches ORDER BY id', 'copy'), "unarmed|3|1|1|1\nunarmed|0|0|0|0", 'the copies are unarmed');
	query("SELECT delay_close_batch($open)", 'copy');
	query(q{SELECT delay_schedule('0', 'SELECT 1') AS id \gset
SELECT delay_wait(:id, '1 min')}, 'copy');
	is(query('SELECT count(*) FROM effect', 'copy'), 0, 'they do not end');
	query('SELECT delay_wheel.arm()', 'copy');
	ended($open, '0,0,0,0,0', 0, 'armed: the empty one ends', db => 'copy');
	query("SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks WHERE batch_id = $batch", 'copy');
	ended($batch, '3,2,1,0,0', 2, 'the other one ends with its last member', db => 'copy');
	is(query('SELECT count(*) FROM effect', 'original'), 0, 'the original is not concerned');

	# the extension is dropped, and created again
	query('DROP EXTENSION delay_wheel CASCADE; TRUNCATE member', 'original');
	query('BEGIN; CREATE EXTENSION delay_wheel; SELECT make(); DROP EXTENSION delay_wheel; COMMIT', 'original');
	query('CREATE EXTENSION delay_wheel', 'original');
	$batch = query('SELECT b FROM make() b, put(b, mark(b))', 'original');
	ended($batch, '1,1,0,0,0', 1, 'DROP EXTENSION: a new batch ends', db => 'original');
};

# The owner is dropped.
group owner => sub {
	query('CREATE ROLE leaver LOGIN; GRANT INSERT ON delay_wheel.tasks TO PUBLIC');
	my ($batch, $open) = split /\|/, query(q{
		SET SESSION AUTHORIZATION leaver;
		SELECT b, make(open => true) FROM make() b, put(b, delay => '1 day')});
	my $position = log_position($node);
	query('DROP ROLE leaver');
	wait_for($node, "SELECT count(*) FROM delay_wheel.tasks WHERE batch_id = $batch", 'DROP ROLE: its member fails', $limit, expected => 0);
	$node->restart;
	wait_for($node, "SELECT count(*) FROM delay_wheel.batches WHERE id = $batch", 'its batch is removed', $limit, expected => 0);
	wait_for($node, "SELECT count(*) FROM delay_wheel.batches WHERE id = $open", 'an open one, too', $limit, expected => 0);
	is(query("SELECT count(*) FROM effect WHERE batch IN ($batch, $open)"), 0, 'without callbacks');
	unlike(log_since($node, $position), qr{ERROR}, 'without errors');
};

$node->stop;
done_testing();
