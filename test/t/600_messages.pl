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
	# PostgreSQL 16.4 leaves its mark where there is no answer
	return $session->query_safe($sql) =~ s/^background_psql: QUERY_SEPARATOR\n\z//r;
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

	my $done = wait_until(60, sub { return ($answer = value($sql)) eq $expected });
	is($answer, $expected, $what);
	die "failed: $what\n" if !$done && $ENV{DW_FAIL_FAST};
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
	value('DELETE FROM delay_wheel_data.failed_task; TRUNCATE done');
	comes('SELECT count(*) FROM delay_wheel_data.task', 0, "$queue is empty");
	# and so is memory, when somebody has looked at what is gone
	comes("SELECT ready FROM delay_wheel.queues, (SELECT count(*) FROM delay_receive('$queue', 1000, true)) r WHERE name = '$queue'", 0,
		'also in memory');
	return;
}

# The same, as soon as there is something: entries of messages that are gone may be in
# memory beside it, so that their number says nothing.
sub soon
{
	my @arguments = @_;
	my $texts = '';

	wait_until(60, sub { return ($texts = got(@arguments)) ne '' });
	return $texts;
}

sub left { return value(q{SELECT count(*) FROM delay_wheel.tasks WHERE payload IS NOT NULL}); }

$node->safe_psql('postgres', q{
	CREATE TABLE done (n bigserial, text text, pid int DEFAULT pg_backend_pid());
	GRANT ALL ON done, done_n_seq TO PUBLIC;
	CREATE ROLE sender LOGIN;
	CREATE ROLE sender2 LOGIN;
	CREATE ROLE mailer LOGIN;
	CREATE ROLE nobody LOGIN;
	SELECT delay_wheel.create_queue('mail', external => true);
	SELECT delay_wheel.create_queue('sql');
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
	value(q{SELECT count(delay_send('mail', to_jsonb(n), delay => interval '400 ms' + n * interval '1 ms')) FROM generate_series(1, 300) n});
	value(q{
		DO $$
		DECLARE
			r record;
			received int = 0;
			early int = 0;
		BEGIN
			WHILE received < 300 LOOP
				SELECT count(*) AS n, count(*) FILTER (WHERE clock_timestamp() < due) AS early INTO r FROM delay_receive('mail');
				received := received + r.n;
				early := early + r.early;
				COMMIT;
			END LOOP;
			INSERT INTO done (text) VALUES (received || ' ' || early);
		END $$});
	is(value('SELECT text FROM done'), '300 0', 'messages are received when they are due, none earlier');
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
			WHILE EXISTS (SELECT FROM delay_wheel_data.task) LOOP
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
	refused($one, q{WITH w AS (INSERT INTO done (text) VALUES ('w')) SELECT * FROM delay_receive('mail')}, '25P01', 'nor by a SELECT that writes something else');
	refused($one, q{WITH w AS (INSERT INTO done (text) VALUES ('w') RETURNING n) SELECT * FROM w, delay_receive('mail')}, '25P01', 'nor if it returns that, too');
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

	# by a statement that writes them in WITH, and by a function that writes something else
	value(q{
		CREATE FUNCTION handle_beside() RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r text;
		BEGIN
			FOR r IN WITH w AS (INSERT INTO done (text) VALUES ('w')) SELECT payload #>> '{}' FROM delay_receive('mail') LOOP RETURN NEXT r; END LOOP;
		END $$;
		TRUNCATE done});
	put('mail', 'a' .. 'g');
	ready('mail', 7);
	is($one->query(q{WITH h AS (INSERT INTO done (text) SELECT payload #>> '{}' FROM delay_receive('mail') RETURNING text) SELECT * FROM h}), 'a', 'written in WITH');
	is($one->query(q{WITH r AS (SELECT * FROM delay_receive('mail')), h AS (INSERT INTO done (text) SELECT payload #>> '{}' FROM r RETURNING text) SELECT * FROM h}), 'b', 'received in WITH, and written');
	is(of($one, q{INSERT INTO done (text) SELECT payload #>> '{}' FROM delay_receive('mail') RETURNING text}), 'c', 'INSERT that returns what it writes');
	is(of($one, 'SELECT handle_beside()'), 'd', 'in a function that writes something else');
	is(of($one, q{WITH w AS (INSERT INTO done (text) VALUES ('w')) SELECT handle_beside()}), 'e', 'also in a query that writes');
	of($one, 'BEGIN');
	is(of($one, q{WITH w AS (INSERT INTO done (text) VALUES ('w')) SELECT payload FROM delay_receive('mail')}), '"f"', 'beside a write, in a block');
	of($one, 'COMMIT');
	is(of($one, q{WITH w AS (INSERT INTO done (text) VALUES ('w')) SELECT payload FROM delay_receive('mail', autocommit => true)}), '"g"', 'or with autocommit');
	is(value('SELECT string_agg(text, NULL ORDER BY text) FROM done'), 'abcwwwww', 'all that is written');
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
	ready('mail', 401);
	is(of($one, q{SELECT count(*) FROM delay_receive('mail', 300)}), 300, 'after a rollback to a savepoint there is room');
	of($one, 'ROLLBACK');
	ready('mail', 1001);
	clear('mail');
};

#
# Loops, and cursors, of PL/pgSQL: these are no client's.
#
group loops => sub {
	value(q{
		CREATE FUNCTION each(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT payload #>> '{}' AS text FROM delay_receive('mail', n) LOOP RETURN NEXT r.text; END LOOP;
		END $$;
		CREATE FUNCTION each_one(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r text;
		BEGIN
			FOR i IN 1 .. n LOOP FOR r IN EXECUTE 'SELECT * FROM each($1)' USING 1 LOOP RETURN NEXT r; END LOOP; END LOOP;
		END $$;
		CREATE FUNCTION each_by_cursor(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE c refcursor; r text;
		BEGIN
			OPEN c FOR SELECT payload #>> '{}' FROM delay_receive('mail', n);
			LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; RETURN NEXT r; END LOOP;
			CLOSE c;
		END $$;
		CREATE FUNCTION each_inside(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE a record; r text;
		BEGIN
			FOR a IN SELECT i FROM generate_series(1, n) i LOOP
				FOR r IN SELECT payload #>> '{}' FROM delay_receive('mail', 1) WHERE a.i > 0 LOOP RETURN NEXT r; END LOOP;
			END LOOP;
		END $$;
		CREATE FUNCTION each_into(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r text;
		BEGIN
			FOR i IN 1 .. n LOOP SELECT payload #>> '{}' INTO r FROM delay_receive('mail', 1); RETURN NEXT r; END LOOP;
		END $$;
		CREATE FUNCTION each_in_query(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		BEGIN RETURN QUERY SELECT payload #>> '{}' FROM delay_receive('mail', n); END $$;
		CREATE FUNCTION each_in_sql(n int) RETURNS SETOF text LANGUAGE sql AS $$ SELECT payload #>> '{}' FROM delay_receive('mail', n) $$;
		CREATE FUNCTION leased() RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT payload #>> '{}' AS text FROM delay_lease('mail') LOOP RETURN NEXT r.text; END LOOP;
		END $$;
		CREATE FUNCTION explained(sql text) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r text;
		BEGIN
			FOR r IN EXECUTE 'EXPLAIN ANALYZE ' || sql LOOP RETURN NEXT r; END LOOP;
		END $$;
		CREATE PROCEDURE each_in_procedure(n int) LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT payload #>> '{}' AS text FROM delay_receive('mail', n) LOOP
				INSERT INTO done (text) VALUES (r.text);
				COMMIT;
			END LOOP;
		END $$;
		CREATE FUNCTION on_arrival() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE r text;
		BEGIN
			FOR r IN SELECT payload #>> '{}' FROM delay_receive('mail', 1) LOOP INSERT INTO done (text) VALUES (r); END LOOP;
			RETURN NULL;
		END $$;
		CREATE TABLE arrivals (n int);
		CREATE TRIGGER on_arrival AFTER INSERT ON arrivals FOR EACH STATEMENT EXECUTE FUNCTION on_arrival();
		TRUNCATE done});
	for my $function (qw(each each_one each_by_cursor each_inside each_into each_in_query each_in_sql))
	{
		put('mail', 'a', 'b', 'c');
		ready('mail', 3);
		is(of($one, "SELECT string_agg(m, ' ') FROM $function(2) m"), 'a b', "$function: in a query");
		is(of($one, "SELECT * FROM $function(1)"), 'c', "$function: alone");
		is(left(), 0, "$function: they are gone");
	}
	put('mail', 'a' .. 'h');
	ready('mail', 8);
	of($one, q{DO $$ DECLARE r record; BEGIN FOR r IN SELECT payload #>> '{}' AS text FROM delay_receive('mail', 2) LOOP INSERT INTO done (text) VALUES (r.text); END LOOP; END $$});
	of($one, 'CALL each_in_procedure(2)');
	of($one, 'INSERT INTO arrivals VALUES (1)');
	of($one, q{COPY arrivals FROM PROGRAM 'echo 2'});
	of($one, q{CREATE TABLE kept_more AS SELECT * FROM each(1)});
	is(of($one, q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM each(1); FETCH ALL FROM c; COMMIT}), 'h', 'a cursor of a client, in a block');
	is(value(q{SELECT string_agg(text, ' ' ORDER BY n) || (SELECT ' ' || each FROM kept_more) FROM done}), 'a b c d e f g', 'DO, a procedure that commits, triggers of INSERT and COPY, CREATE TABLE AS');
	is(left(), 0, 'all are gone');

	# what a client could lose is refused as ever
	put('mail', 'a');
	ready('mail', 1);
	refused($one, 'EXPLAIN ANALYZE SELECT * FROM each(1)', '0A000', 'a loop is refused in EXPLAIN ANALYZE');
	refused($one, 'EXPLAIN ANALYZE SELECT * FROM each_one(1)', '0A000', 'so is one in a loop');
	refused($one, 'EXPLAIN ANALYZE SELECT * FROM each_in_query(1)', '0A000', 'and a query');
	refused($one, q{SELECT * FROM explained('SELECT * FROM each(1)')}, '0A000', 'also where a function explains');
	refused($one, q{SELECT * FROM explained($$SELECT * FROM delay_receive('mail')$$)}, '0A000', 'a call without a loop');
	refused($one, 'COPY (SELECT * FROM each(1)) TO STDOUT', '25P01', 'not by COPY outside of a block');
	refused($one, 'SELECT * FROM leased()', '25001', 'no lease in a loop');
	refused($one, q{DO $$ DECLARE r record; BEGIN FOR r IN SELECT * FROM delay_lease('mail') LOOP NULL; END LOOP; END $$}, '25001', 'nor in DO');
	refused($one, q{SELECT * FROM delay_receive('mail')}, '25P01', 'nor without a loop');
	of($one, q{DO $$ BEGIN PERFORM explained('SELECT * FROM each(1)'); EXCEPTION WHEN feature_not_supported THEN INSERT INTO done (text) SELECT each(1); END $$});
	is(value(q{SELECT text FROM done ORDER BY n DESC LIMIT 1}), 'a', 'what was refused has no effect on what follows');
	clear('mail');
};

#
# A cursor that is older than the savepoint in which it has received: it does not outlast the
# rollback to the savepoint.  Others receive its messages then.
#
group cursors => sub {
	my $query = q{SELECT payload #>> '{}' FROM delay_receive('mail', 3)};
	# rollbacks are counted, so that each case needs messages of its own
	my $fresh = sub { put('mail', 'a', 'b', 'c'); ready('mail', 3); };
	my $others = sub {
		ready('mail', 3);
		is(join(' ', sort split / /, got($two, 'mail', '10, true')), 'a b c', "$_[0]: others receive its messages");
		of($one, 'ROLLBACK');
	};
	my $fails = sub {
		my ($between, $what) = @_;

		refused($one, "$between FETCH ALL c", '55000', "$what: the cursor has failed");
		$others->($what);
	};

	value(q{
		CREATE FUNCTION each_in_cursor(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE c refcursor; r text;
		BEGIN
			OPEN c FOR SELECT payload #>> '{}' FROM delay_receive('mail', n);
			LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; RETURN NEXT r; END LOOP;
		END $$;
		CREATE FUNCTION each_in_loop(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		DECLARE r text;
		BEGIN
			FOR r IN SELECT payload #>> '{}' FROM delay_receive('mail', n) LOOP
				BEGIN
					RETURN NEXT r;
					PERFORM 1 / (r <> 'b')::int;
				EXCEPTION WHEN division_by_zero THEN RETURN NEXT 'not ' || r;
				END;
			END LOOP;
		END $$;
		CREATE FUNCTION each_in_block(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
		BEGIN RETURN QUERY SELECT payload #>> '{}' FROM delay_receive('mail', n); EXCEPTION WHEN division_by_zero THEN NULL; END $$});
	for my $case ([ $query, 'a cursor' ], [ $query =~ s/^/WITH m AS MATERIALIZED (/r . ') SELECT * FROM m', 'with WITH' ],
		map { [ "SELECT * FROM $_(3)", "with $_()" ] } qw(each_in_cursor each_in_loop each_in_block))
	{
		$fresh->();
		of($one, "BEGIN; DECLARE c CURSOR FOR $case->[0]; SAVEPOINT x");
		is(of($one, 'FETCH c'), 'a', "$case->[1] receives in a savepoint");
		$fails->('ROLLBACK TO x;', $case->[1]);
	}
	$fresh->();
	of($one, "BEGIN; SAVEPOINT w; DECLARE c SCROLL CURSOR FOR $query; SAVEPOINT x; SAVEPOINT y; FETCH ALL c; RELEASE y");
	$fails->('ROLLBACK TO x; MOVE ABSOLUTE 0 c;', 'a savepoint within it was released');
	$fresh->();
	of($one, "BEGIN; DECLARE c CURSOR FOR SELECT payload #>> '{}' FROM generate_series(1, 3) i, delay_receive('mail', sign(i)::int)");
	of($one, 'SAVEPOINT x; FETCH c; SAVEPOINT y; FETCH c');
	$fails->('ROLLBACK TO y; ROLLBACK TO x;', 'all at once');
	# such a cursor can be closed, and another one can have its name
	$fresh->();
	of($one, "BEGIN; DECLARE c CURSOR FOR $query; SAVEPOINT x; FETCH c; ROLLBACK TO x; CLOSE c");
	of($one, 'DECLARE c CURSOR FOR SELECT generate_series(1, 2); SAVEPOINT y; FETCH c; ROLLBACK TO y');
	is(of($one, 'FETCH c'), 2, 'another cursor of the name goes on');
	$others->('closed');
	$fresh->();
	of($one, "BEGIN; DECLARE c CURSOR FOR $query; SAVEPOINT x; FETCH c; CLOSE c; DECLARE c CURSOR FOR SELECT 1; ROLLBACK TO x");
	is(of($one, 'SELECT count(*) FROM pg_cursors'), 0, 'closed and declared again after the savepoint: there is none');
	$others->('declared again');
	$fresh->();
	of($one, "BEGIN; DECLARE c CURSOR WITH HOLD FOR $query; SAVEPOINT x; FETCH c; ROLLBACK TO x; COMMIT");
	refused($one, 'FETCH c', '34000', 'with WITH HOLD it does not outlast the commit');
	$others->('WITH HOLD');
	$fresh->();
	of($one, q{
		CREATE FUNCTION pg_temp.by_cursor() RETURNS text LANGUAGE plpgsql AS $$
		DECLARE c refcursor; r text; got text = '';
		BEGIN
			OPEN c FOR SELECT payload #>> '{}' FROM delay_receive('mail', 3);
			FOR i IN 1 .. 3 LOOP
				BEGIN
					FETCH c INTO r;
					got := got || r;
					PERFORM 1 / (r <> 'a')::int;
				EXCEPTION
					WHEN division_by_zero THEN got := got || ' undone ';
					WHEN object_not_in_prerequisite_state THEN got := got || 'failed ';
				END;
			END LOOP;
			RETURN got;
		END $$});
	is(of($one, 'SELECT pg_temp.by_cursor()'), 'a undone failed failed ', 'a cursor of PL/pgSQL, in blocks');
	$others->('in blocks');

	# what was received before the savepoint, or in one that was released, is kept
	$fresh->();
	is(of($one, q{SELECT string_agg(r, ' ') FROM each_in_loop(3) r}), 'a b not b c', 'a loop goes on whose blocks fail');
	$fresh->();
	of($one, "BEGIN; DECLARE c CURSOR FOR $query; FETCH c; SAVEPOINT x; FETCH c; ROLLBACK TO x");
	is(of($one, 'FETCH ALL c; COMMIT'), 'c', 'a cursor that has received before the savepoint goes on');
	$fresh->();
	of($one, "BEGIN; DECLARE c CURSOR FOR $query; SAVEPOINT x; FETCH c; RELEASE x; SAVEPOINT x; FETCH c; ROLLBACK TO x");
	is(of($one, 'FETCH ALL c; COMMIT'), 'c', 'and in one that was released');
	is(left(), 0, 'all are gone');
	clear('mail');
};

#
# Rights.
#
group rights => sub {
	my ($sender, $mailer, $nobody) = map { session($_) } qw(sender mailer nobody);
	my $id = 0;

	refused($nobody, $_, '42501', "not without EXECUTE: $_")
	  for q{SELECT delay_send('mail', '1')}, q{SELECT * FROM delay_receive('mail', autocommit => true)}, 'SELECT delay_fail(1)',
	  q{CALL delay_await('mail', '0', null)}, q{SELECT delay_wheel.create_queue('mine', external => true)};
	value(q{SELECT delay_wheel.allow('sender', 'sender2', 'mailer', 'nobody')});
	value(q{SELECT delay_wheel.create_queue('post', external => true, users => '{sender}', receivers => '{mailer}')});
	refused($_->[1], q{SELECT delay_send('post', '1')}, '42501', "$_->[0] must not send") for [ mailer => $mailer ], [ nobody => $nobody ];
	for my $role ([ sender => $sender ], [ nobody => $nobody ])
	{
		refused($role->[1], q{SELECT * FROM delay_receive('post', autocommit => true)}, '42501', "$role->[0] must not receive");
		refused($role->[1], q{CALL delay_await('post', '0', null)}, '42501', "$role->[0] must not wait for a message");
	}
	refused($mailer, q{SELECT delay_wheel.create_queue('post', receivers => '{nobody}')}, '42501', 'a receiver must not change the queue');
	$id = of($sender, q{SELECT delay_send('post', '"secret"', key => 'k', tag => 't')});
	of($sender, q{SELECT delay_send('post', '"2"')});
	ready('post', 2);
	is(of($sender, q{SELECT owner, queue, payload, key FROM delay_wheel.tasks WHERE payload = '"secret"'}), 'sender|post|"secret"|k', 'the sender sees his message');
	is(of($mailer, 'SELECT count(*) FROM delay_wheel.tasks'), 0, 'the receiver does not');
	refused($mailer, "SELECT delay_cancel($id)", '42501', 'nor may he cancel it');
	of($mailer, 'BEGIN');
	is(got($mailer, 'post', 1), 'secret', 'he receives it');
	is(of($mailer, "SELECT delay_fail($id, give_up => true)"), 't', 'he may give it up');
	is(of($mailer, 'SELECT count(*) FROM delay_wheel.failed'), 0, 'but sees no more of it');
	of($mailer, 'COMMIT');
	is(of($sender, 'SELECT id, payload, sqlstate FROM delay_wheel.failed'), qq{$id|"secret"|DW007}, 'its sender does');

	# receivers change while a transaction is open, and while a session waits
	my $waiter = session('mailer');
	of($mailer, 'BEGIN');
	is(got($mailer, 'post', 1), '2', 'he receives another one');
	begin($waiter, q{CALL delay_await('post', null, null)});
	comes(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND wait_event_type = 'Extension'}, 1, 'he waits for more');
	value(q{SELECT delay_wheel.create_queue('post', receivers => '{nobody}')});
	comes(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'mailer' AND state = 'active'}, 0, 'receivers change: he does not wait any more');
	eval { answer($waiter) };
	like($@, qr/ERROR:  42501:/, 'with an error');
	is(of($nobody, q{SELECT count(*) FROM delay_receive('post', autocommit => true)}), 0, 'another one may receive');
	refused($mailer, q{SELECT * FROM delay_receive('post')}, '42501', 'the former one must not, in the same transaction');
	of($mailer, 'ROLLBACK');
	ready('post', 1);
	is(got($nobody, 'post', '1, true'), '2', 'the message is received by the new one');
	value(q{SELECT delay_wheel.create_queue('post', receivers => '{public}', users => '{public}')});
	of($mailer, q{SELECT delay_send('post', '"3"')});
	ready('post', 1);
	is(got($sender, 'post', '1, true'), '3', 'public is for all');
	value(q{REVOKE INSERT ON delay_wheel.tasks FROM sender});
	refused($sender, q{SELECT * FROM delay_receive('post', autocommit => true)}, '42501', 'but for those who may not use delay_wheel');
	$_->quit for $sender, $mailer, $nobody, $waiter;
	clear('post');
};

#
# Keys: a message that somebody has received is running.
#
group keys => sub {
	my $first = value(q{SELECT delay_send('mail', '"first"', key => 'k')});

	ready('mail', 1);
	is(value(q{SELECT delay_send('mail', '"other"', key => 'k')}), $first, 'keep: the message of the key is kept');
	refused($admin, q{SELECT delay_send('mail', '1', key => 'k', if_exists => 'error')}, '23505', 'error: it is one');
	my $second = value(q{SELECT delay_send('mail', '"second"', key => 'k', if_exists => 'replace')});
	isnt($second, $first, 'replace: there is another one');
	of($one, 'BEGIN');
	is(soon($one, 'mail'), 'second', 'only the replacing message is received');

	# open: all these do not wait for its receiver
	is(of($two, "SELECT delay_cancel($second)"), 'running', 'it is running for delay_cancel()');
	is(of($two, q{SELECT delay_cancel(key => 'k', queue => 'mail')}), 'running', 'and for delay_cancel()');
	is(of($two, "SELECT delay_reschedule($second, '1 hour')"), 'running', 'it is not moved');
	my $third = of($two, q{SELECT delay_send('mail', '"third"', key => 'k')});
	cmp_ok($third, '>', $second, 'keep makes a new message at once');
	is(of($two, q{SELECT delay_send('mail', '"4"', key => 'k')}), $third, 'the third message is kept');
	is(of($two, q{SELECT delay_cancel(key => 'k', queue => 'mail')}), 'cancelled', 'and can be cancelled');
	$third = of($two, q{SELECT delay_send('mail', '"third"', key => 'k', if_exists => 'replace')});
	is(soon($two, 'mail', '1, true'), 'third', 'it is received while the other one is');
	of($one, 'COMMIT');
	is(left(), 0, 'both are gone');
	clear('mail');

	# in a savepoint
	$first = value(q{SELECT delay_send('mail', '"first"', key => 'k')});
	ready('mail', 1);
	of($one, 'BEGIN');
	of($one, 'SAVEPOINT s');
	is(got($one, 'mail'), 'first', 'received in a savepoint');
	is(of($two, "SELECT delay_cancel($first)"), 'running', 'a message is running, too');
	of($one, 'RELEASE s');
	is(of($two, "SELECT delay_cancel($first)"), 'running', 'also when the savepoint is released');
	$second = of($two, q{SELECT delay_send('mail', '"second"', key => 'k')});
	cmp_ok($second, '>', $first, 'a new one is made at once');

	# the older one comes back
	ready('mail', 1);
	of($one, 'ROLLBACK');
	ready('mail', 2);
	is(value('SELECT count(*) FROM delay_wheel.tasks'), 1, 'after a rollback the older one is superseded');
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'second', 'only the newer one is received');
	is(value('SELECT count(*) FROM delay_wheel.failed'), 0, 'others see the end of the older one after the commit');
	of($one, 'ROLLBACK');
	ready('mail', 2);
	is(got($one, 'mail', '10, true'), 'second', 'after a rollback only the newer one is received');
	is(value(q{SELECT id, sqlstate, payload FROM delay_wheel.failed}), qq{$first|DW001|"first"}, 'the older one is given up');
	is(left(), 0, 'nothing is left');
	clear('mail');

	# failed while there is a newer one
	$first = value(q{SELECT delay_send('mail', '"first"', key => 'k')});
	ready('mail', 1);
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'first', 'received');
	$second = of($two, q{SELECT delay_send('mail', '"second"', key => 'k')});
	is(of($one, "SELECT delay_fail($first, error => 'no')"), 't', 'it fails');
	of($one, 'COMMIT');
	is(value('SELECT id, sqlstate, message FROM delay_wheel.failed'), "$first|DW007|no", 'it is not tried again, since there is a newer one');
	is(value('SELECT id FROM delay_wheel.tasks'), $second, 'the newer message is left');
	clear('mail');

	# keys are those of a queue
	$first = value(q{SELECT delay_send('mail', '1', key => 'k', delay => '1 day')});
	isnt(value(q{SELECT delay_schedule_task('SELECT 1', key => 'k', delay => '1 day')}), $first, 'a task with the same key is another one');
	value(q{SELECT delay_cancel(key => 'k')});
	clear('mail');
};

#
# Attempts that fail.
#
group failures => sub {
	my $id = value(q{SELECT delay_send('mail', '"a"', max_attempts => 3, options => '{"retry_delay": "10 minutes"}')});
	# how it stands, with minutes until it is due
	my $stands = q{SELECT attempts, last_error, round(extract(epoch FROM due - now()) / 60) FROM delay_wheel.tasks};

	ready('mail', 1);
	is(value("SELECT delay_fail($id)"), 'f', 'a message that is not received does not fail');
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'a', 'received');
	is(of($two, "SELECT delay_fail($id)"), 'f', 'it does not fail for another session');
	is(of($one, "SELECT delay_fail($id, error => 'mailbox full', retry_in => '3 hours')"), 't', 'it fails for its receiver');
	is(of($one, "SELECT delay_fail($id)"), 'f', 'once');
	is(value($stands), '0||0', 'others see that after the commit');
	of($one, 'ROLLBACK');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT payload, attempt FROM delay_receive('mail')}), '"a"|1', 'a rollback undoes the attempt');
	of($one, "SELECT delay_fail($id, error => 'mailbox full', retry_in => '3 hours')");
	of($one, 'COMMIT');
	is(value($stands), '1|DW007: mailbox full|180', 'it is due again after retry_in');
	is(value("SELECT delay_reschedule($id, '0')"), 'moved', 'it is moved');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT payload, attempt FROM delay_receive('mail')}), '"a"|2', 'it is the second attempt');
	of($one, "SELECT delay_fail($id)");
	of($one, 'COMMIT');
	is(value(q{SELECT attempts, last_error, due - now() BETWEEN '19 minutes' AND '25 minutes' FROM delay_wheel.tasks}),
		'2|DW007: the receiver has reported a failure|t', 'without retry_in it is its retry delay, doubled');
	value("SELECT delay_reschedule($id, '0')");
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT attempt FROM delay_receive('mail')}), 3, 'the third attempt');
	of($one, "SELECT delay_fail($id, error => 'gone away', retry_in => '1 s')");
	of($one, 'COMMIT');
	is(value('SELECT id, sqlstate, message, attempts, payload FROM delay_wheel.failed'), qq{$id|DW007|gone away|3|"a"}, 'is the last one');
	is(left(), 0, 'it is not tried again');

	# back, by hand
	is(value("SELECT delay_retry($id)"), 'retried', 'delay_retry() puts it back');
	is(value('SELECT count(*) FROM delay_wheel.failed'), 0, 'it has not failed any more');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(of($one, q{SELECT id, payload, attempt FROM delay_receive('mail')}), qq{$id|"a"|1}, 'with its id, and all its attempts');
	is(of($one, "SELECT delay_fail($id, error => 'hopeless', give_up => true)"), 't', 'it is given up');
	of($one, 'COMMIT');
	is(value('SELECT sqlstate, message, attempts FROM delay_wheel.failed'), 'DW007|hopeless|1', 'at the first attempt');
	is(value(q{SELECT delay_retry_all(queue => 'mail', sqlstate => 'DW007')}), 1, 'delay_retry_all() puts it back, too');
	ready('mail', 1);

	# savepoints
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'a', 'received');
	of($one, 'SAVEPOINT s');
	is(of($one, "SELECT delay_fail($id, give_up => true)"), 't', 'it fails after a savepoint');
	of($one, 'ROLLBACK TO s');
	is(of($one, "SELECT delay_fail($id, give_up => true)"), 't', 'after a rollback to it the message can fail again');
	of($one, 'ROLLBACK TO s');
	of($one, 'COMMIT');
	is(left(), 0, 'or be done');
	is(value('SELECT count(*) FROM delay_wheel.failed'), 0, 'and has not failed');
	$id = value(q{SELECT delay_send('mail', '"b"')});
	ready('mail', 1);
	of($one, 'BEGIN');
	of($one, 'SAVEPOINT s');
	is(got($one, 'mail'), 'b', 'received in a savepoint');
	of($one, 'RELEASE s');
	of($one, 'SAVEPOINT t');
	is(of($one, "SELECT delay_fail($id, retry_in => '1 day')"), 't', 'fails in another one');
	of($one, 'RELEASE t');
	of($one, 'COMMIT');
	is(value('SELECT count(*), sum(attempts) FROM delay_wheel.tasks'), '1|1', 'after RELEASE it is put back once');

	# nothing says how often: 20 times
	value('UPDATE delay_wheel_data.task SET attempts = 18');
	value("SELECT delay_reschedule($id, '0')");
	for my $attempt (19, 20)
	{
		ready('mail', 1);
		of($one, 'BEGIN');
		is(of($one, q{SELECT attempt FROM delay_receive('mail')}), $attempt, "attempt $attempt");
		of($one, "SELECT delay_fail($id, retry_in => '0')");
		of($one, 'COMMIT');
	}
	is(value('SELECT attempts FROM delay_wheel.failed'), 20, 'is the last one by default');

	# received and failed in a savepoint that is undone
	put('mail', 'c');
	ready('mail', 1);
	of($one, 'BEGIN');
	of($one, 'SAVEPOINT s');
	is(of($one, q{SELECT delay_fail(id, retry_in => '0') FROM delay_receive('mail')}), 't', 'received and failed in a savepoint');
	of($one, 'ROLLBACK TO s');
	ready('mail', 1);
	is(of($two, q{SELECT payload, attempt FROM delay_receive('mail', 10, true)}), '"c"|1', 'after a rollback to it the message is back, once');
	of($one, 'COMMIT');
	is(left(), 0, 'and then gone');
	refused($admin, 'SELECT delay_fail(null)', '22004', 'no null id');
	refused($admin, "SELECT delay_fail(1, retry_in => '$_')", '22023', "no retry_in of $_") for '-1 s', '367 days';
	clear('mail');
};

#
# What holds for all tasks.
#
group tasks => sub {
	# cancelled, moved
	my ($a, $b, $c) = map { value(qq{SELECT delay_send('mail', '"$_"', tag => '$_')}) } qw(a b c);

	ready('mail', 3);
	of($one, 'BEGIN');
	is(of($one, "SELECT delay_cancel($a)"), 'cancelled', 'a message is cancelled');
	of($two, 'BEGIN');
	is(got($two, 'mail', 1), 'b', 'nobody gets it, or waits, while that is open');
	of($two, 'ROLLBACK');
	of($one, 'ROLLBACK');
	ready('mail', 3);
	of($two, 'BEGIN');
	is(join(' ', sort split / /, got($two, 'mail')), 'a b c', 'after a rollback it is there again');
	of($two, 'ROLLBACK');
	ready('mail', 3);
	is(value("SELECT delay_cancel($a)"), 'cancelled', 'it is cancelled');
	is(value("SELECT delay_reschedule($b, '1 hour')"), 'moved', 'another one is moved');
	is(got($one, 'mail', '10, true'), 'c', 'only what is left is received');
	is(value("SELECT delay_cancel($c), delay_cancel($a)"), 'gone|gone', 'these are gone');
	is(value("SELECT delay_reschedule($b, '0')"), 'moved', 'the other one is moved back');
	ready('mail', 1);
	is(got($one, 'mail', '10, true'), 'b', 'and received');
	value(qq{SELECT delay_send('mail', '"$_"', tag => '$_')}) for qw(a b);
	ready('mail', 2);
	value(q{SELECT delay_cancel_all(queue => 'mail', tag => 'a')});
	is(got($one, 'mail', '10, true'), 'b', 'delay_cancel_all() acts at once');
	comes('SELECT count(*) FROM delay_wheel_data.task', 0, 'rows are removed');
	# a receiver that met the row as it was removed has put it back in memory, until somebody looks again
	is(got($one, 'mail', '10, true'), '', 'and nobody gets them');
	put('mail', 'a');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'a', 'received');
	value(q{SELECT delay_cancel_all(queue => 'mail')});
	of($one, 'COMMIT');
	is(left(), 0, 'what is received is not stopped by it');
	put('mail', 'b');
	ready('mail', 1);
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'b', 'received');
	value(q{SELECT delay_cancel_all(queue => 'mail')});
	of($one, 'ROLLBACK');
	comes('SELECT count(*) FROM delay_wheel_data.task', 0, 'after a rollback it is cancelled');
	is(got($one, 'mail', '10, true'), '', 'nobody gets it');

	# pauses act at once
	put('mail', 'a');
	ready('mail', 1);
	for my $of ([ 'the queue', q{delay_wheel.pause_queue('mail')}, q{delay_wheel.resume_queue('mail')} ], [ 'its owner', 'delay_pause_all()', 'delay_resume_all()' ])
	{
		my ($whom, $pause, $resume) = @$of;

		value("SELECT $pause");
		is(got($one, 'mail', '10, true'), '', "a pause of $whom holds it back");
		comes(q{CALL delay_await('mail', '0', null)}, 'f', 'there is nothing to wait for');
		begin($two, q{CALL delay_await('mail', null, null)});
		comes(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND wait_event_type = 'Extension'}, 1, 'a session waits');
		value("SELECT $resume");
		is(answer($two), 't', 'the end of the pause wakes the session');
		of($one, 'BEGIN');
		is(got($one, 'mail'), 'a', 'it is received');
		value("SELECT $pause");
		of($one, 'ROLLBACK');
		is(got($one, 'mail', '10, true'), '', 'paused before a rollback it is held back');
		value("SELECT $resume");
		ready('mail', 1);
	}
	clear('mail');

	# too late
	value(q{SELECT delay_send('mail', '"expired"', due => now() - interval '1 hour', options => '{"expires": "1 minute"}')});
	value(q{SELECT delay_send('mail', '"skipped"', due => now() - interval '1 hour', options => '{"skip_after": "1 minute"}')});
	value(q{SELECT delay_send('mail', '"late"', due => now() - interval '1 hour', options => '{"skip_after": "1 day", "expires": "1 day"}')});
	ready('mail', 3);
	of($one, 'BEGIN');
	is(got($one, 'mail'), 'late', 'what is too late is not received');
	is(value('SELECT count(*) FROM delay_wheel_data.task'), 3, 'as others see it, all are there');
	of($one, 'ROLLBACK');
	ready('mail', 3);
	is(got($one, 'mail', '10, true'), 'late', 'also not after a rollback');
	is(value('SELECT payload, sqlstate, attempts FROM delay_wheel.failed'), '"expired"|DW002|0', 'one has failed');
	is(value('SELECT count(*) FROM delay_wheel_data.task'), 0, 'none is left');
	is(value(q{SELECT skipped, failed > 0 FROM delay_wheel.queues WHERE name = 'mail'}), '1|t', 'one was skipped');
	clear('mail');

	# the order: priority, then due times; senders in turn
	value(q{SELECT count(delay_send('mail', to_jsonb(n), priority => p, due => now() + ms * interval '1 ms'))
		FROM (VALUES (1, -1, 300), (2, 0, 500), (3, 1, 500), (4, 0, 400), (5, 1, 400)) v(n, p, ms)});
	ready('mail', 5);
	is(got($one, 'mail', '2, true'), '5 3', 'high priorities come first');
	is(got($one, 'mail', '10, true'), '4 2 1', 'then lower due times');
	value(q{SELECT delay_wheel.create_queue('mail', users => '{sender,sender2}'), delay_wheel.allow('sender', 'sender2')});
	value(q{SELECT delay_wheel.pause_queue('mail')});
	for my $role (qw(sender sender2))
	{
		value("SET ROLE $role");
		put('mail', map { "$role:$_" } 1 .. 3);
		value('RESET ROLE');
	}
	value(q{SELECT delay_wheel.resume_queue('mail')});
	ready('mail', 6);
	my $order = got($one, 'mail', '10, true');
	is($order =~ s/:\d//gr =~ s/^sender2 (.*)$/$1 sender2/r, 'sender sender2 sender sender2 sender sender2', "senders come in turn ($order)");

	# max_running
	value(q{SELECT delay_wheel.create_queue('narrow', external => true, max_running => 2)});
	put('narrow', 1 .. 5);
	ready('narrow', 5);
	of($_, 'BEGIN') for $one, $two;
	is(got($one, 'narrow'), '1 2', 'two at a time are received');
	is(got($two, 'narrow'), '', 'others get none, and do not wait');
	comes(q{SELECT state, reason, ready FROM delay_wheel.lanes WHERE queue = 'narrow'}, 'limited|max_running|3', 'the view lanes says why');
	is(got($one, 'narrow'), '', 'the receiver that has two gets no more');
	is(value(q{CALL delay_await('narrow', '0', null)}), 'f', 'there is nothing to wait for');
	# each end of one frees its places
	my @ends = (
		[ 'a commit', sub { of($one, 'COMMIT') }, 2 ],
		[ 'a rollback', sub { of($one, 'ROLLBACK') }, 2 ],
		[ 'a rollback to a savepoint', sub { of($one, 'ROLLBACK TO s') }, 2 ],
		[ 'delay_fail()', sub { of($one, q{SELECT count(*) FROM done WHERE delay_fail(text::bigint, retry_in => '1 hour')}); of($one, 'COMMIT') }, 1 ]);
	for my $end (@ends)
	{
		begin($three, q{CALL delay_await('narrow', null, null)});
		comes(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND wait_event_type = 'Extension'}, 1, 'a session waits for a place');
		$end->[1]->();
		is(answer($three), 't', "$end->[0] wakes it");
		of($one, 'COMMIT');
		of($one, 'BEGIN');
		of($one, 'SAVEPOINT s');
		of($one, 'TRUNCATE done');
		is(of($one, q{WITH r AS (INSERT INTO done (text) SELECT id FROM delay_receive('narrow', 10) RETURNING 1) SELECT count(*) FROM r}),
			$end->[2], 'so many are received then');
	}
	of($_, 'ROLLBACK') for $one, $two;
	value(q{SELECT delay_wheel.create_queue('narrow', max_running => 0)});
	clear('narrow');

	# rate
	value(q{SELECT delay_wheel.create_queue('rated', external => true, rate => 20)});
	value(q{SELECT count(delay_send('rated', '1')) FROM generate_series(1, 50)});
	ready('rated', 50);
	my $begun = value('SELECT clock_timestamp()');
	my ($received, $too_many, $awaited) = (0, 0, 0);
	while ($received < 50)
	{
		$received += of($one, q{SELECT count(*) FROM delay_receive('rated', 50, autocommit => true)});
		# what 100 ms allow is taken at once
		$too_many++ if value("SELECT $received > 20 * extract(epoch FROM clock_timestamp() - '$begun') + 4") eq 't';
		last if $received >= 50;
		$awaited++;
		last if of($one, q{CALL delay_await('rated', '20 s', null)}) ne 't';
	}
	is($received, 50, 'all messages of a queue with a rate are received');
	is($too_many, 0, 'never more than the rate');
	cmp_ok($awaited, '>', 3, 'sessions that wait are woken again and again');
};

#
# What follows the end of a message.
#
group endings => sub {
	my $listener = session();
	my $outcomes = q{SELECT string_agg(text, ' ' ORDER BY text) FROM done};
	my $ids = 0;

	value(q{SELECT delay_wheel.create_queue('told', external => true, users => '{sender}', receivers => '{mailer}', options => '{"history": "all"}')});
	value(q{SELECT delay_wheel.allow('sender', 'mailer')});
	of($listener, 'LISTEN ended');
	value('SET ROLE sender');
	my ($done, $failed, $cancelled, $skipped) = map {
		value(qq{SELECT delay_send('told', '"$_->[0]"', tag => '$_->[0]', max_attempts => 2, $_->[1]
			options => jsonb_build_object('notify', 'ended', 'skip_after', $_->[2], 'on_success', 'INSERT INTO done (text) VALUES (format(''done %s %s'', current_user, \$1 > 0))', 'on_failure', 'INSERT INTO done (text) VALUES (format(''failed %s %s %s %s'', current_user, \$1 > 0, \$2, \$3))'))})
	} [ done => '', 'NULL' ], [ failed => '', 'NULL' ], [ cancelled => q{delay => '1 hour',}, 'NULL' ],
	  [ skipped => q{due => now() - interval '1 hour',}, q{'1 minute'} ];
	value('RESET ROLE');
	ready('told', 3);
	my $told = q{SELECT task, outcome, sqlstate, message, attempt, started >= due, rows FROM delay_wheel.history h JOIN delay_wheel.queues q ON q.name = h.queue
		WHERE queue = 'told' ORDER BY ended};

	# sessions that wait for its end
	my %waiter = map { $_ => session() } $done, $failed, $cancelled, $skipped;
	begin($waiter{$_}, "SELECT delay_wait($_)") for keys %waiter;
	comes(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_wait%' AND wait_event_type = 'Extension'}, 4, 'sessions wait for messages');
	is(of($two, "SELECT delay_wait($done, '0')"), 'timeout', 'none has ended');

	of($one, 'SET ROLE mailer');
	of($one, 'BEGIN');
	is(join(' ', sort split / /, got($one, 'told')), 'done failed', 'two messages are received');
	is(of($two, "SELECT delay_wait($done, '0')"), 'timeout', 'what is received has not ended');
	of($one, 'ROLLBACK');
	is(value($told), '', 'after a rollback nothing has ended');
	is(of($listener, 'SELECT 1'), 1, 'nobody is told');
	ready('told', 3);
	of($one, 'BEGIN');
	is(join(' ', sort split / /, got($one, 'told')), 'done failed', 'they are received again');
	of($one, "SELECT delay_fail($failed, error => 'not now', retry_in => '0')");
	of($one, 'COMMIT');
	value("SELECT delay_cancel($cancelled)");
	ready('told', 1);
	is(answer($waiter{$done}), 'done', 'delay_wait(): one is done');
	is(answer($waiter{$cancelled}), 'cancelled', 'one is cancelled');
	is(answer($waiter{$skipped}), 'skipped', 'one is skipped');
	comes($outcomes, 'done sender t', 'on_success is run, as the sender');
	is(value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT delay_wait($failed)%' AND state = 'active'"), 1, 'one that will be tried again is waited for');
	of($one, 'BEGIN');
	is(got($one, 'told'), 'failed', 'it is received again');
	is(value("SELECT concat_ws(' ', state, at, attempts, sqlstate) FROM delay_status($failed)"), 'running 2 DW007', 'delay_status() says that a receiver has it');
	of($one, "SELECT delay_fail($failed, error => 'never', retry_in => '0')");
	of($one, 'COMMIT');
	is(answer($waiter{$failed}), 'failed', 'it has failed');
	comes($outcomes, 'done sender t failed sender t DW007 never', 'on_failure is run, with its error');
	is(join(' ', sort split /\n/, value($told)), join(' ', sort "$skipped|skipped|||||", "$cancelled|cancelled|||||", "$done|done|||1|t|", "$failed|retried|DW007|not now|1|t|", "$failed|failed|DW007|never|2|t|"),
		'the history has all attempts');
	my $notifications = of($listener, 'SELECT');
	my @outcomes = $notifications =~ /"outcome": ?"(\w+)"/g;
	is("@{[ sort @outcomes ]}", 'cancelled done failed skipped', 'each end is told once') or diag($notifications);
	like($notifications, qr/"id": ?$failed\D.*DW007/, 'with its error');
	is(of($two, "SELECT delay_wait($done)"), 'done', 'delay_wait() knows from the history');
	is(of($two, "SELECT delay_wait($failed)"), 'failed', 'or from what has failed');
	of($one, 'RESET ROLE');
	$_->quit for $listener, values %waiter;
	clear('told');

	# a follow-up may be a message's receiver, and a task may send and receive
	value(q{SELECT delay_schedule('0', $$SELECT delay_send('mail', '"of a task"')$$)});
	is(soon($one, 'mail', '1, true'), 'of a task', 'a task sends');
	put('mail', 'to a task');
	ready('mail', 1);
	value(q{SELECT delay_schedule('0', $$SELECT handle('mail')$$)});
	comes($outcomes, 'to a task', 'a task receives');
	is(left(), 0, 'and takes the message with it');
	put('mail', 'again');
	ready('mail', 1);
	value(q{SELECT delay_schedule('0', $$SELECT 1 / (1 - handle('mail'))$$)});
	comes('SELECT sqlstate FROM delay_wheel.failed', '22012', 'a task receives, and fails');
	is(soon($one, 'mail', '1, true'), 'again', 'the message is back');
	clear('mail');
};

#
# Waiting.
#
group waiting => sub {
	my $pid = of($two, 'SELECT pg_backend_pid()');
	my $call = q{CALL delay_await('mail', null, null)};
	my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND wait_event_type = 'Extension'};

	is(of($two, q{CALL delay_await('mail', '0', null)}), 'f', 'there is nothing: false');
	is(of($two, q{CALL delay_await('mail', '-1 hour', null)}), 'f', 'with a negative timeout the answer is false');
	my $begun = value('SELECT clock_timestamp()');
	is(of($two, q{CALL delay_await('mail', '200 ms', null)}), 'f', 'and after a timeout');
	is(value("SELECT clock_timestamp() - '$begun' >= '200 ms'"), 't', 'not before it');
	of($two, q{SET statement_timeout = '300 ms'});
	is(of($two, $call), 'f', 'statement_timeout ends it without an error');
	of($two, q{SET statement_timeout = '30 s'});

	# what wakes it
	my @causes = (
		[ 'a message', sub { }, sub { put('mail', 'a') } ],
		[ 'one that becomes due', sub { value(q{SELECT delay_send('mail', '"a"', delay => '300 ms')}) }, sub { } ],
		[ 'one that is moved', sub { value(q{SELECT delay_send('mail', '"a"', delay => '1 hour')}) },
			sub { value('SELECT delay_reschedule(id, interval \'0\') FROM delay_wheel.tasks') } ],
		[ 'a rollback', sub { put('mail', 'a'); ready('mail', 1); of($one, 'BEGIN'); got($one, 'mail') }, sub { of($one, 'ROLLBACK') } ],
		[ 'a rollback to a savepoint', sub { put('mail', 'a'); ready('mail', 1); of($one, 'BEGIN'); of($one, 'SAVEPOINT s'); got($one, 'mail') },
			sub { of($one, 'ROLLBACK TO s') } ],
		[ 'the end of a receiver', sub { put('mail', 'a'); ready('mail', 1); of($three, 'BEGIN'); got($three, 'mail') },
			sub { $three->quit; $three = session() } ],
		[ 'delay_fail()', sub { put('mail', 'a'); ready('mail', 1); of($one, 'BEGIN');
				of($one, q{SELECT delay_fail(id, retry_in => '0') FROM delay_receive('mail')}) }, sub { of($one, 'COMMIT') } ],
		[ 'COMMIT PREPARED', sub { of($one, 'BEGIN'); of($one, q{SELECT delay_send('mail', '1')}); of($one, q{PREPARE TRANSACTION 'p'}) },
			sub { value(q{COMMIT PREPARED 'p'}) } ]);
	for my $cause (@causes)
	{
		my ($what, $prepare, $happens) = @$cause;

		$prepare->();
		begin($two, $call);
		comes($waiting, 1, 'a session waits') unless $what =~ /becomes due/;
		$happens->();
		is(answer($two), 't', "$what wakes it");
		is(of($two, q{CALL delay_await('mail', '0', null)}), 't', 'what is there already needs no waiting');
		clear('mail');
	}

	# it holds nothing
	begin($two, $call);
	comes($waiting, 1, 'a session waits');
	is(value("SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = $pid"), 'active||', 'it has neither snapshot nor transaction id');
	is(value("SELECT string_agg(locktype || ' ' || mode, ', ') FROM pg_locks WHERE pid = $pid"), 'virtualxid ExclusiveLock', 'and no locks');
	value('VACUUM FULL delay_wheel_data.task, delay_wheel_data.queue');
	is(value($waiting), 1, 'tables can be rewritten');
	put('mail', 'a');
	is(answer($two), 't', 'then it is woken');
	clear('mail');

	# one message wakes one of two; another one if that does not take it
	my @waiters = ($two, $three);
	my $one_waits = 0;
	for my $try (1 .. 10)
	{
		begin($_, "$call;\nBEGIN;\nSELECT payload #>> '{}' FROM delay_receive('mail');\nCOMMIT") for @waiters;
		comes($waiting, 2, 'two sessions wait');
		put('mail', 'a');
		comes('SELECT count(*) FROM delay_wheel_data.task', 0, 'one of them has received the message');
		# a slow one has made the timer wake the other
		$one_waits = value($waiting);
		value(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND state = 'active' AND pid <> pg_backend_pid()});
		my @answers = map { eval { answer($_) } // '' } @waiters;
		is(scalar(grep { /a/ } @answers), 1, 'one has it');
		last if $one_waits == 1;
	}
	is($one_waits, 1, 'the other one was not woken');
	begin($_, $call) for @waiters;
	comes($waiting, 2, 'two sessions wait');
	put('mail', 'a');
	is(answer($_), 't', 'nobody takes the message: both are woken, one after the other') for @waiters;
	clear('mail');

	# two messages of one transaction
	begin($_, "$call;\nBEGIN;\nSELECT payload #>> '{}' FROM delay_receive('mail');\nCOMMIT") for @waiters;
	comes($waiting, 2, 'two sessions wait');
	value(q{SELECT delay_send('mail', '"a"'), delay_send('mail', '"b"')});
	is(join(' ', sort map { answer($_) =~ s/\s+/:/gr } @waiters), 't:a t:b', 'two messages wake both, one each');
	clear('mail');

	# who takes one message wakes the next session itself, and none that has left: the
	# timer is stopped meanwhile
	my ($timer) = worker_pids($node, 'timer');
	my $gone = session();
	my $narrow = q{CALL delay_await('narrow', null, null)};
	value(q{SELECT delay_wheel.create_queue('narrow', external => true, max_running => 2)});
	clear('narrow');
	begin($_, $narrow) for $gone, $three;
	comes($waiting, 2, 'two sessions wait');
	value(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND state = 'active' AND pid <> pg_backend_pid()});
	comes($waiting, 0, 'both are cancelled');
	eval { answer($_) } for $gone, $three;
	for my $round (1, 2)
	{
		put('narrow', 1 .. 4);
		ready('narrow', 4);
		of($one, 'BEGIN');
		is(got($one, 'narrow'), '1 2', 'two places are taken');
		begin($two, $narrow);
		comes($waiting, 1, 'a session waits for another one');
		kill 'STOP', $timer;
		of($one, 'COMMIT');
		of($three, 'BEGIN');
		is(got($three, 'narrow', 1), '3', 'both are free, one is taken');
		comes($waiting, 0, 'the session is woken');
		kill 'CONT', $timer;
		is(answer($two), 't', 'to take the other');
		clear('narrow');
	}
	$gone->quit;

	# the end of a waiter
	my $other = session();
	begin($other, $call);
	begin($two, $call);
	comes($waiting, 2, 'two sessions wait');
	value("SELECT pg_cancel_backend($pid)");
	eval { answer($two) };
	like($@, qr/ERROR:  57014:/, 'a cancel ends one');
	value(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%delay_await%' AND state = 'active' AND pid <> pg_backend_pid()});
	comes($waiting, 0, 'pg_terminate_backend() the other');
	eval { $other->quit };
	is(of($two, q{CALL delay_await('mail', '0', null)}), 'f', 'the one that was cancelled goes on');
	$other = session();
	my $other_pid = of($other, 'SELECT pg_backend_pid()');
	begin($other, $call);
	comes($waiting, 1, 'a session waits');
	kill 'KILL', map { $_->{PID} } @{ $other->{run}{KIDS} };
	comes("SELECT count(*) FROM pg_stat_activity WHERE pid = $other_pid", 0, 'it ends with its client');
	eval { $other->quit };
	begin($two, $call);
	comes($waiting, 1, 'a session waits');
	put('mail', 'a');
	is(answer($two), 't', 'those that are gone take no wake-up with them');
	clear('mail');

	# one that is woken and does not look, since it is stopped; it is its turn once in two rounds
	my $stopped = session();
	my $stopped_pid = of($stopped, 'SELECT pg_backend_pid()');
	begin($stopped, $call);
	comes($waiting, 1, 'a session waits');
	kill 'STOP', $stopped_pid;
	for my $round (1, 2)
	{
		begin($two, $call);
		comes($waiting, 2, 'another one waits beside one that is stopped');
		put('mail', 'a');
		is(answer($two), 't', "the other one is woken: round $round");
		clear('mail');
	}
	kill 'CONT', $stopped_pid;
	put('mail', 'a');
	is(answer($stopped), 't', 'it goes on');
	clear('mail');
	$stopped->quit;

	# queues that change
	value(q{SELECT delay_wheel.create_queue('brief', external => true)});
	begin($two, q{CALL delay_await('brief', null, null)});
	comes($waiting, 1, 'a session waits');
	value(q{SELECT delay_wheel.create_queue('brief', rate => 10)});
	value(q{SELECT delay_wheel.drop_queue('brief')});
	eval { answer($two) };
	like($@, qr/ERROR:  42704:/, 'its queue is dropped: an error');
	value(q{SELECT delay_wheel.create_queue('brief', external => true)});
	begin($two, q{CALL delay_await('brief', null, null)});
	comes($waiting, 1, 'a session waits');
	value(q{SELECT delay_wheel.create_queue('brief', external => false)});
	eval { answer($two) };
	like($@, qr/ERROR:  55000:/, 'it is not external any more: an error');
	value(q{SELECT delay_wheel.drop_queue('brief')});

	# where it cannot wait
	value(q{
		CREATE PROCEDURE await() LANGUAGE plpgsql AS $$ DECLARE f boolean; BEGIN CALL delay_await('mail', '0', f); END $$;
		CREATE FUNCTION await_in_function() RETURNS void LANGUAGE plpgsql AS $$ DECLARE f boolean; BEGIN CALL delay_await('mail', '0', f); END $$;
		CREATE FUNCTION writes(text) RETURNS text LANGUAGE sql AS $$ INSERT INTO done (text) VALUES ($1) RETURNING text $$;
	});
	of($one, 'BEGIN');
	refused($one, q{CALL delay_await('mail', '0', null)}, '25001', 'not in a transaction block');
	of($one, 'ROLLBACK');
	refused($one, $_, '25001', "not by $_") for 'CALL await()', 'SELECT await_in_function()', q{CALL delay_await(writes('mail'), '0', null)},
	  q{DO $$ DECLARE f boolean; BEGIN CALL delay_await('mail', '0', f); END $$}, q{SELECT 1\; CALL delay_await('mail', '0', null)};
	is(value('SELECT count(*) FROM done'), 0, 'nothing is written');
	refused($one, "CALL delay_await($_->[0], '0', null)", $_->[1], "delay_await(): $_->[2]")
	  for [ 'null', '22004', 'no null queue' ], [ q{'nowhere'}, '42704', 'no unknown queue' ], [ q{'sql'}, '55000', 'no queue that is not external' ],
	  [ q{'default'}, '55000', 'not the default queue' ];
};

#
# SQL tasks and messages do not mix.
#
group kinds => sub {
	refused($one, $_, '55000', "refused: $_") for q{SELECT delay_schedule_task('SELECT 1', queue => 'mail')}, q{SELECT delay_send('sql', '1')},
	  q{SELECT delay_every('r', '1 hour', 'SELECT 1', queue => 'mail')}, q{SELECT delay_cron('r', '* * * * *', 'SELECT 1', queue => 'mail')};
	my $id = value(q{SELECT delay_send('mail', '"a"')});
	value(q{SELECT delay_schedule_task('SELECT 1', queue => 'sql', delay => '1 hour')});
	refused($one, "SELECT delay_run($id)", '55000', 'a message is not run');
	is(value('SELECT delay_run_due()'), 0, 'delay_run_due() runs no message');
	refused($one, q{SELECT delay_wheel.create_queue('mail', external => false)}, '55006', 'a queue with messages stays external');
	refused($one, q{SELECT delay_wheel.create_queue('sql', external => true)}, '55006', 'one with tasks does not become it');
	refused($one, q{SELECT delay_wheel.drop_queue('mail')}, '55006', 'a queue with messages is not dropped');
	of($two, 'BEGIN');
	is(soon($two, 'mail'), 'a', 'the message is received');
	refused($one, q{SELECT delay_wheel.drop_queue('mail')}, '55006', 'nor is one that somebody receives from');
	refused($one, q{SELECT delay_wheel.create_queue('mail', external => false)}, '55006', 'which stays external');
	of($two, 'ROLLBACK');
	refused($one, 'UPDATE delay_wheel_data.task SET sql = $$SELECT 1$$ WHERE payload IS NOT NULL', '23514', 'no row is both');
	refused($one, 'UPDATE delay_wheel_data.task SET payload = null WHERE payload IS NOT NULL', '23514', 'or neither');
	# what plain SQL puts into the wrong queue is neither run nor received
	value(q{
		INSERT INTO delay_wheel_data.task (due, queue, sql) SELECT now(), id, 'INSERT INTO done (text) VALUES (1)' FROM delay_wheel_data.queue WHERE name = 'mail'});
	value(q{INSERT INTO delay_wheel_data.task (due, queue, payload) SELECT now(), id, '"lost"' FROM delay_wheel_data.queue WHERE name = 'sql'});
	comes(q{SELECT payload, sqlstate IS NULL FROM delay_wheel.failed}, '"lost"|f', 'a message of plain SQL in an SQL queue fails');
	is(soon($two, 'mail', '10, true'), 'a', 'SQL in an external queue is not received');
	is(value('SELECT count(*) FROM done'), 0, 'SQL in an external queue is not run');
	value(q{SELECT delay_cancel_all(due_from => '-infinity')});
	clear('mail');
	comes('SELECT count(*) FROM delay_wheel_data.task', 0, 'the queues are empty');
	of($two, q{BEGIN; SELECT delay_schedule_task('SELECT 1', queue => 'sql', delay => '1 hour')});
	refused($one, q{SELECT delay_wheel.create_queue('sql', external => true)}, '55006', 'but open transactions may schedule into one');
	of($two, 'ROLLBACK');
	value(q{SELECT delay_wheel.create_queue('mail', external => false), delay_wheel.create_queue('mail', external => true)});
	is(value(q{SELECT external FROM delay_wheel.queues WHERE name = 'mail'}), 't', 'an empty queue can be changed');
};

disconnect_all();
$node->stop;

#
# Messages that nobody takes are in nobody's way, also with little memory.
#
group flood => sub {
	$node = new_node('flood', conf => q{
log_statement = none
autovacuum = off
delay_wheel.ring_memory = 48kB
delay_wheel.inbox_size = 16
});
	connect_all();
	value(q{SELECT delay_wheel.create_queue('mail', external => true), delay_wheel.create_queue('sql')});
	value('CREATE TABLE done (n int)');
	value(q{SELECT count(delay_send('mail', to_jsonb(n), priority => n % 3 - 1)) FROM generate_series(1, 20000) n});
	value(q{SELECT count(delay_schedule_task('INSERT INTO done VALUES (' || n || ')', queue => CASE n % 2 WHEN 0 THEN 'sql' END,
		delay => n * interval '1 ms')) FROM generate_series(1, 1000) n});
	comes('SELECT count(*), count(DISTINCT n) FROM done', '1000|1000', 'tasks run beside 20,000 messages that nobody takes');
	is(value('SELECT count(*) FROM delay_wheel.tasks WHERE payload IS NOT NULL'), 20000, 'which are all there');
	is(value(q{SELECT memory_used <= memory_limit FROM delay_wheel.status}), 't', 'memory is within its limit');
	is(value(q{SELECT count(*) FROM pg_stat_activity a JOIN delay_wheel.lanes l ON l.queue = 'mail' AND l.running > 0}), 0, 'no executor is on them');
	value('TRUNCATE done');
	# then they are taken, by two
	value(q{
		CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
		BEGIN
			WHILE EXISTS (SELECT FROM delay_wheel_data.task) LOOP
				INSERT INTO done SELECT (payload #>> '{}')::int FROM delay_receive('mail', 500);
				COMMIT;
			END LOOP;
		END $$});
	of($_, 'SET statement_timeout = 0') for $one, $two;
	begin($_, 'CALL work()') for $one, $two;
	is(answer($_), '', 'a session has taken what it could') for $one, $two;
	is(value('SELECT count(*), count(DISTINCT n) FROM done'), '20000|20000', 'each is received once');
	disconnect_all();
	$node->stop;
};

done_testing();
