# Messages: sent and received with transactions, exactly once; keys, retries,
# limits and pauses as for tasks; rights; what is refused; waiting for them.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('messages', conf => q{
log_statement = none
autovacuum = off
restart_after_crash = on
});

# A session that stays open, of a role.
sub session
{
	my ($role) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0,
		extra_params => [ '-U', $role // 'postgres' ]);

	$session->query('\set VERBOSITY verbose');
	$session->query('SET client_min_messages = error');
	return $session;
}

# What a session answers; an error ends the test.
sub of
{
	my ($session, $sql) = @_;

	$session->{stderr} = '';
	return $session->query_safe($sql);
}

# A test: the session gets an error with this SQLSTATE.
sub refused
{
	my ($session, $sql, $sqlstate, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$session->{stderr} = '';
	$session->query($sql);
	like($session->{stderr}, qr/ERROR:  $sqlstate:/, $what);
	$session->{stderr} = '';
	return;
}

# A statement that a session begins, and its answer when it has ended.
sub begin
{
	my ($session, $sql) = @_;

	$session->{stderr} = '';
	$session->query_until(qr/begun/, "\\echo begun\n$sql;\n");
	return;
}

sub answer { return of($_[0], ''); }

my $admin;

sub value { return of($admin, $_[0]); }

# A test: the query comes to have this answer.
sub comes
{
	my ($sql, $expected, $what) = @_;
	my $answer = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_until(60, sub { return ($answer = value($sql)) eq $expected });
	is($answer, $expected, $what);
	return;
}

# So many due messages are in memory.
sub ready
{
	my ($queue, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	comes("SELECT ready FROM delay_wheel.queues WHERE name = '$queue'", $n, "$queue: $n are ready");
	return;
}

# Sends texts in this order.
sub put
{
	my ($queue, @texts) = @_;

	value("SELECT delay_send('$queue', to_jsonb('$_'::text))") for @texts;
	return;
}

# The texts that a session receives.
sub got
{
	my ($session, $queue, $n) = @_;

	$n //= 10;
	return of($session, "SELECT string_agg(payload #>> '{}', ' ') FROM delay_receive('$queue', $n)");
}

my ($one, $two, $three);

sub connect_all
{
	$admin = session();
	($one, $two, $three) = map { session() } 1 .. 3;
	# nothing here ever waits for another session
	of($_, q{SET statement_timeout = '30s'; SET lock_timeout = '20s'}) for $one, $two;
	return;
}

sub disconnect_all
{
	# they may have lost their server
	eval { $_->quit } for $one, $two, $three, $admin;
	return;
}

# Ends what the sessions have open, and takes what is left in a queue.
sub clear
{
	my ($queue) = @_;

	of($_, 'ROLLBACK') for $one, $two, $three;
	value("SELECT delay_cancel_all(queue => '$queue')");
	value('DELETE FROM delay_wheel.failed_task; TRUNCATE done');
	comes('SELECT count(*) FROM delay_wheel.task', 0, "$queue is empty");
	return;
}

sub left { return value(q{SELECT count(*) FROM delay_wheel.tasks WHERE payload IS NOT NULL}); }

$node->safe_psql('postgres', q{
	CREATE TABLE done (n bigserial, text text, pid int DEFAULT pg_backend_pid());
	GRANT ALL ON done, done_n_seq TO PUBLIC;
	CREATE ROLE sender LOGIN;
	CREATE ROLE sender2 LOGIN;
	CREATE ROLE mailer LOGIN;
	CREATE ROLE nobody LOGIN;
	SELECT delay_queue('mail', external => true);
	SELECT delay_queue('sql');
	-- what a receiver does, and writes
	CREATE FUNCTION handle(queue text, n int DEFAULT 1) RETURNS bigint LANGUAGE sql AS $$
		WITH handled AS (INSERT INTO done (text) SELECT payload #>> '{}' FROM delay_receive(queue, n) RETURNING 1)
		SELECT count(*) FROM handled
	$$;
});
connect_all();

#
# A message is received in a transaction: it is gone with its commit, else it is back.
#
group transactions => sub {
	# sent, if the transaction commits
	of($one, 'BEGIN');
	of($one, q{SELECT delay_send('mail', '"undone"')});
	of($one, 'ROLLBACK');
	of($one, 'BEGIN');
	of($one, q{SELECT delay_send('mail', '{"to": 7}')});
	is(got($two, 'mail', "10, true"), '', 'what is not committed is not received');
	of($one, 'COMMIT');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT payload, attempt, due <= now() FROM delay_receive('mail', 10)}), '{"to": 7}|1|t', 'a message is received');
	of($two, 'BEGIN');
	is(got($two, 'mail'), '', 'nobody else gets it');
	of($two, 'COMMIT');
	is(left(), 1, 'as others see it, it is there');
	of($one, 'COMMIT');
	is(left(), 0, 'after the commit it is gone');
	is(value(q{SELECT ready, running, done FROM delay_wheel.queues WHERE name = 'mail'}), '0|0|1', 'as the view queues has it');

	# not before its due time
	value(q{SELECT delay_send('mail', '"much later"', delay => '1 hour')});
	value(q{SELECT delay_send('mail', '"later"', delay => '400 ms')});
	comes(q{SELECT near FROM delay_wheel.queues WHERE name = 'mail'}, 2, 'messages are not due');
	value(q{
		DO $$
		DECLARE
			found text;
			due timestamptz;
		BEGIN
			LOOP
				SELECT payload #>> '{}', r.due INTO found, due FROM delay_receive('mail', 10) r;
				EXIT WHEN found IS NOT NULL;
				COMMIT;
			END LOOP;
			INSERT INTO done (text) VALUES (format('%s %s %s', found, clock_timestamp() >= due, now() - due < '1 minute'));
		END $$});
	is(value('SELECT text FROM done'), 'later t t', 'a message is received when it is due, not earlier');
	is(left(), 1, 'and no other one');
	clear('mail');

	# back after a rollback
	put('mail', 'a');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT handle('mail')}), 1, 'received');
	of($one, 'ROLLBACK');
	ready('mail', 1);
	of($two, 'BEGIN');
	is(of($two, q{SELECT payload, attempt FROM delay_receive('mail')}), '"a"|1', 'after a rollback another one receives it');
	# by an error, before the client has said ROLLBACK
	refused($two, 'SELECT 1 / 0', '22012', 'its transaction fails');
	ready('mail', 1);
	of($two, 'ROLLBACK');

	# back after a rollback to a savepoint
	put('mail', 'b', 'c');
	ready('mail', 3);
	of($one, 'BEGIN');
	is(got($one, 'mail', 1), 'a', 'one is received');
	of($one, 'SAVEPOINT s');
	is(got($one, 'mail', 1), 'b', 'another one after a savepoint');
	of($one, 'SAVEPOINT t');
	is(got($one, 'mail', 1), 'c', 'and one after the next savepoint');
	of($one, 'RELEASE t');
	of($one, 'ROLLBACK TO s');
	ready('mail', 2);
	of($two, 'BEGIN');
	is(got($two, 'mail'), 'b c', 'after a rollback to the savepoint others receive these two');
	of($one, 'SAVEPOINT t');
	of($one, 'ROLLBACK TO t');
	of($one, 'COMMIT');
	is(left(), 2, 'the one from before the savepoint is received');
	of($two, 'ROLLBACK');
	ready('mail', 2);

	# back after an error that was caught
	of($one, 'BEGIN');
	is(got($one, 'mail', 1), 'b', 'one is received');
	of($one, q{
		DO $$
		BEGIN
			BEGIN
				PERFORM handle('mail');
				ASSERT (SELECT count(*) = 1 FROM done);
				RAISE division_by_zero;
			EXCEPTION WHEN division_by_zero THEN
				INSERT INTO done (text) VALUES ('caught');
			END;
		END $$});
	ready('mail', 1);
	of($two, 'BEGIN');
	is(got($two, 'mail'), 'c', 'after an error that was caught another one receives it');
	of($_, 'COMMIT') for $one, $two;
	is(value('SELECT string_agg(text, NULL) FROM done'), 'caught', 'what was done with it is undone');
	is(left(), 0, 'both are gone');

	# the same session can take again what it gave back
	put('mail', 'd');
	ready('mail', 1);
	of($one, 'BEGIN');
	of($one, 'SAVEPOINT s');
	is(got($one, 'mail'), 'd', 'received in a savepoint');
	of($one, 'ROLLBACK TO s');
	ready('mail', 1);
	is(got($one, 'mail'), 'd', 'and again after the rollback to it');
	of($one, 'COMMIT');
	is(left(), 0, 'it is gone');

	# two transactions
	of($one, 'BEGIN');
	of($one, q{SELECT delay_send('mail', '"prepared"')});
	of($one, q{PREPARE TRANSACTION 'sent'});
	is(got($two, 'mail', '1, true'), '', 'a message of a prepared transaction is not there');
	value(q{COMMIT PREPARED 'sent'});
	ready('mail', 1);
	is(got($two, 'mail', '1, true'), 'prepared', 'after COMMIT PREPARED it is received');
	value('TRUNCATE done');
};

#
# Receivers and servers that die.
#
group crashes => sub {
	my @kinds = (
		[ 'its receiver is terminated', sub { value("SELECT pg_terminate_backend($_[0])") } ],
		[ 'its receiver is killed', sub { kill 'KILL', $_[0] } ],
		[ 'the server is stopped at once', sub { $node->stop('immediate'); $node->start } ]);

	for my $kind (@kinds)
	{
		my ($what, $end) = @$kind;

		put('mail', 'first', 'second');
		ready('mail', 2);
		my $pid = of($one, 'SELECT pg_backend_pid()');
		my $up = value('SELECT pg_postmaster_start_time()');
		is(of($two, q{SELECT handle('mail')}), 1, 'one message is received');
		of($one, 'BEGIN');
		is(of($one, q{SELECT handle('mail')}), 1, 'another one, in an open transaction');
		$end->($pid);
		wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", $what, 60, expected => 0);
		wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'its message is back', 60, expected => 1);
		disconnect_all();
		connect_all();
		of($one, 'BEGIN');
		is(of($one, q{SELECT handle('mail', 10)}), 1, 'it is received again');
		of($one, 'COMMIT');
		is(value(q{SELECT string_agg(text, ' ' ORDER BY text) FROM done}), 'first second', 'each was handled once');
		is(left(), 0, 'and is gone');
		value('TRUNCATE done');
	}
};

#
# Several receivers at a time.
#
group together => sub {
	put('mail', 'a', 'b');
	ready('mail', 2);
	of($_, 'BEGIN') for $one, $two, $three;
	is(got($one, 'mail', 1), 'a', 'a receiver gets one message');
	is(got($two, 'mail'), 'b', 'another one the other, without waiting');
	is(got($three, 'mail'), '', 'a third one nothing');
	of($_, 'COMMIT') for $one, $two, $three;

	value(q{SELECT count(delay_send('mail', to_jsonb(n::text))) FROM generate_series(1, 1000) n});
	ready('mail', 1000);
	# all at a time, some by ones, some by more, some with rollbacks
	value(q{
		CREATE PROCEDURE work(n int) LANGUAGE plpgsql AS $$
		DECLARE
			turn int = 0;
		BEGIN
			PERFORM pg_advisory_lock_shared(1);
			WHILE EXISTS (SELECT FROM delay_wheel.task) LOOP
				turn := turn + 1;
				PERFORM handle('mail', n);
				IF turn % 5 = 0 THEN
					ROLLBACK;
				ELSE
					COMMIT;
				END IF;
			END LOOP;
		END $$});
	value('SELECT pg_advisory_lock(1)');
	my @sessions = map { session() } 1 .. 4;
	my $n = 0;
	begin($_, 'CALL work(' . ++$n . ')') for @sessions;
	comes(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 4, 'four receivers are there');
	value('SELECT pg_advisory_unlock(1)');
	is(answer($_), '', 'one has worked to the end') for @sessions;
	is(value('SELECT count(*), count(DISTINCT text), count(DISTINCT pid) FROM done WHERE text ~ E\'^\\\\d+$\''), '1000|1000|4',
		'four receivers, each of 1,000 messages once');
	$_->quit for @sessions;
	clear('mail');
};

#
# What the snapshot does not see is not taken.
#
group snapshots => sub {
	of($one, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
	of($one, 'SELECT 1');
	put('mail', 'a', 'b');
	ready('mail', 2);
	is(got($one, 'mail'), '', 'an older snapshot gets nothing');
	of($two, 'BEGIN');
	is(got($two, 'mail'), 'a b', 'others at once, in their order');
	of($two, 'ROLLBACK');
	ready('mail', 2);
	of($one, 'COMMIT');
	of($one, 'BEGIN ISOLATION LEVEL SERIALIZABLE');
	is(got($one, 'mail'), 'a b', 'so does a newer snapshot');
	of($one, 'COMMIT');
	is(left(), 0, 'they are gone');
};

#
# What would lose messages, and what makes no sense.
#
group refusals => sub {
	put('mail', 'a');
	ready('mail', 1);
	refused($one, q{SELECT * FROM delay_receive('mail')}, '25P01', 'not outside of a transaction block');
	refused($one, q{WITH m AS MATERIALIZED (SELECT * FROM delay_receive('mail')) SELECT * FROM m}, '25P01', 'nor in WITH');
	refused($one, q{SELECT (SELECT id FROM delay_receive('mail'))}, '25P01', 'nor in a subquery');
	refused($one, q{SELECT * FROM delay_receive('mail', autocommit => null)}, '25P01', 'nor with a null autocommit');
	refused($one, q{COPY (SELECT * FROM delay_receive('mail')) TO STDOUT}, '25P01', 'nor in COPY');
	refused($one, q{DECLARE c CURSOR WITH HOLD FOR SELECT * FROM delay_receive('mail')}, '25P01', 'nor by a cursor');
	for my $begin ('', 'BEGIN')
	{
		my $where = $begin ? ' in a transaction block' : '';

		of($one, $begin);
		refused($one, q{EXPLAIN ANALYZE SELECT * FROM delay_receive('mail', autocommit => true)}, '0A000', "EXPLAIN ANALYZE is refused$where");
		of($one, "ROLLBACK; $begin") if $begin;
		refused($one, q{SELECT delay_receive('mail', autocommit => true)}, '0A000', "so is the target list$where");
		of($one, "ROLLBACK; $begin") if $begin;
		refused($one, q{SELECT (delay_receive('mail', autocommit => true)).*}, '0A000', "also with .*$where");
		of($one, 'ROLLBACK') if $begin;
	}
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'a', 'the message is still there');
	refused($one, q{PREPARE TRANSACTION 'received'}, '0A000', 'a transaction that has received is not prepared');
	ready('mail', 1);
	of($one, 'ROLLBACK');
	for my $call ([ q{delay_send('mail', '1')}, 'delay_send()' ], [ q{r.id FROM delay_receive('mail') r}, 'delay_receive()' ],
		[ 'delay_fail(1)', 'delay_fail()' ])
	{
		of($one, 'BEGIN READ ONLY');
		refused($one, "SELECT $call->[0]", '25006', "$call->[1] not in a read-only transaction");
		of($one, 'ROLLBACK');
	}
	of($one, 'BEGIN');
	of($one, 'SAVEPOINT s');
	for my $case ([ q{'mail', 0}, '22023', 'no 0 messages' ], [ q{'mail', 1001}, '22023', 'no 1001' ], [ q{'mail', -1}, '22023', 'no -1' ],
		[ 'null', '22004', 'no null queue' ], [ q{'nowhere'}, '42704', 'no unknown queue' ], [ q{'sql'}, '55000', 'no queue that is not external' ],
		[ q{'default'}, '55000', 'not the default queue' ])
	{
		refused($one, "SELECT * FROM delay_receive($case->[0])", $case->[1], "delay_receive(): $case->[2]");
		of($one, 'ROLLBACK TO s');
	}
	for my $case ([ q{null, '1'}, '22004', 'no null queue' ], [ q{'mail', null}, '22004', 'no null payload' ],
		[ q{'nowhere', '1'}, '42704', 'no unknown queue' ], [ q{'sql', '1'}, '55000', 'no queue that is not external' ],
		[ q{'default', '1'}, '55000', 'not the default queue' ],
		[ q{'mail', to_jsonb(repeat('x', 1048577))}, '54000', 'no payload of more than 1 MB' ])
	{
		refused($one, "SELECT delay_send($case->[0])", $case->[1], "delay_send(): $case->[2]");
		of($one, 'ROLLBACK TO s');
	}
	is(of($one, q{SELECT payload FROM delay_receive('mail', null)}), '"a"', 'a null number is 1');
	of($one, 'ROLLBACK');
	ready('mail', 1);

	# where nothing is lost
	is(of($one, q{SELECT payload FROM delay_receive('mail', autocommit => true)}), '"a"', 'with autocommit it is allowed');
	is(left(), 0, 'and committed');
	put('mail', 'b', 'c', 'd', 'e', 'f');
	ready('mail', 5);
	of($one, q{INSERT INTO done (text) SELECT payload #>> '{}' FROM delay_receive('mail')});
	is(of($one, q{SELECT handle('mail')}), 1, 'in a function');
	of($one, q{DO $$ BEGIN INSERT INTO done (text) SELECT payload #>> '{}' FROM delay_receive('mail'); END $$});
	of($one, q{CREATE TABLE kept AS SELECT payload #>> '{}' FROM delay_receive('mail')});
	of($one, 'BEGIN');
	is(of($one, q{COPY (SELECT payload FROM delay_receive('mail')) TO STDOUT}), '"f"', 'COPY in a block');
	of($one, 'COMMIT');
	is(value('SELECT string_agg(text, NULL ORDER BY n) || (SELECT * FROM kept) FROM done'), 'bcde', 'INSERT, a function, DO, CREATE TABLE AS');
	is(left(), 0, 'all are gone');

	# 1000 at most in a transaction
	value(q{SELECT count(delay_send('mail', '1')) FROM generate_series(1, 1001) n});
	ready('mail', 1001);
	of($one, 'BEGIN');
	is(of($one, q{SELECT count(*) FROM delay_receive('mail', 600)}), 600, '600 messages');
	of($one, 'SAVEPOINT s');
	is(of($one, q{SELECT count(*) FROM delay_receive('mail', 600)}), 400, 'then 400');
	refused($one, q{SELECT * FROM delay_receive('mail')}, '54000', 'but not one more');
	of($one, 'ROLLBACK TO s');
	is(of($one, q{SELECT count(*) FROM delay_receive('mail', 300)}), 300, 'after a rollback to a savepoint there is room');
	of($one, 'ROLLBACK');
	ready('mail', 1001);
	clear('mail');
};

disconnect_all();
$node->stop;
done_testing();
