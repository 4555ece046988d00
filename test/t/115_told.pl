# A task sees what the transaction did that scheduled it, kept it, let it go on:
# functions, rights.  What a transaction wrote is visible a moment before
# others have heard of what it changed in catalogs; nobody runs a task of it
# in between with what he remembers from before.
#
# First what happens by itself, in many tries, then each way with the
# transaction stopped in that moment.
#
# With DW_LONG there are more tries.  DW_RACES has the groups to run (default: all).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' unless has_injection();

my $limit = $ENV{DW_RACE_LIMIT} // 60;
my $node = new_node('told', injection => 1, conf => q{
autovacuum = off
wal_level = logical
max_wal_senders = 5
wal_retrieve_retry_interval = 100ms
log_min_error_statement = panic
delay_wheel.executor_idle_timeout = 1h
});

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE seen (n int, edition int);
	CREATE TABLE target (n int);
	CREATE FUNCTION edition() RETURNS int LANGUAGE sql AS 'SELECT 0';
	CREATE ROLE guest LOGIN;
	SELECT delay_wheel.allow('guest');

	CREATE PROCEDURE await(bigint) LANGUAGE plpgsql AS $$
	BEGIN
		WHILE EXISTS (SELECT FROM delay_wheel_data.task WHERE id = $1) LOOP
			PERFORM pg_sleep(0.0005);
		END LOOP;
	END $$;
	CREATE FUNCTION new_edition(int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('CREATE OR REPLACE FUNCTION edition() RETURNS int LANGUAGE sql AS ''SELECT %s''', $1);
	END $$;

	-- schedules in a subtransaction, or not
	CREATE PROCEDURE schedule_many(times int, sub boolean) LANGUAGE plpgsql AS $$
	DECLARE
		task bigint;
	BEGIN
		FOR n IN 1..times LOOP
			PERFORM new_edition(n);
			IF sub THEN
				BEGIN
					task := delay_schedule('0', format('INSERT INTO seen VALUES (%s, edition())', n));
				EXCEPTION WHEN division_by_zero THEN NULL;
				END;
			ELSE
				task := delay_schedule('0', format('INSERT INTO seen VALUES (%s, edition())', n));
			END IF;
			COMMIT;
			CALL await(task);
		END LOOP;
	END $$;

	-- keeps what is due before it has ended
	CREATE PROCEDURE keep_many(times int) LANGUAGE plpgsql AS $$
	DECLARE
		task bigint;
		kept bigint;
	BEGIN
		FOR i IN 1..times LOOP
			task := delay_schedule_task(format('INSERT INTO seen VALUES (%s, edition())', i), delay => '2 ms', key => 'k');
			COMMIT;
			PERFORM new_edition(i);
			kept := delay_schedule_task('SELECT 1', key => 'k', if_exists => 'keep');
			PERFORM pg_sleep(0.004);
			COMMIT;
			CALL await(task);
			CALL await(kept);
			IF kept <> task THEN
				DELETE FROM seen WHERE n = i;
			END IF;
		END LOOP;
	END $$;

	-- grants to a task's owner what the task needs
	CREATE PROCEDURE grant_many(times int) LANGUAGE plpgsql AS $$
	DECLARE
		task bigint;
	BEGIN
		FOR n IN 1..times LOOP
			REVOKE ALL ON target FROM guest;
			-- its executor remembers that
			SET LOCAL ROLE guest;
			task := delay_schedule('0', $t$SELECT has_table_privilege('target', 'INSERT')$t$);
			COMMIT;
			CALL await(task);
			GRANT INSERT ON target TO guest;
			SET LOCAL ROLE guest;
			BEGIN
				task := delay_schedule('0', format('INSERT INTO target VALUES (%s)', n));
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
			COMMIT;
			CALL await(task);
		END LOOP;
	END $$;
});

#
# By itself.
#
my $tries = long_tests() ? 801 : 200;

group tries => sub {
	my $old = 'SELECT count(*) FILTER (WHERE edition < n), count(*) FROM seen';
	for my $sub (0, 1)
	{
		query("CALL schedule_many($tries, '$sub')");
		is(query($old), "0|$tries", 'scheduled ' . ($sub ? 'in a subtransaction' : 'without') . ': none runs an old function');
		query('TRUNCATE seen');
	}

	query("CALL keep_many($tries)");
	like(query($old), qr/^0\|[1-9]/, 'kept: none runs an old function');
	query('TRUNCATE seen');

	query("CALL grant_many($tries)");
	is(query('SELECT (SELECT count(*) FROM target), (SELECT count(*) FROM delay_wheel.failed)'), "$tries|0",
		'granted: all have the right');
};

#
# A right that owners wait for: at once, not at the next try, a second later.
#
group connect => sub {
	query(q{
		CREATE DATABASE other;
		REVOKE CONNECT ON DATABASE other FROM PUBLIC;
	});
	$node->safe_psql('other', q{
		CREATE EXTENSION delay_wheel;
		SELECT delay_wheel.allow('guest');
		CREATE TABLE ran (at timestamptz DEFAULT clock_timestamp());
		GRANT INSERT ON ran TO guest;
	});
	my $grants = long_tests() ? 20 : 12;
	my $at_once = 0;
	for (1 .. $grants)
	{
		$node->safe_psql('other', q{TRUNCATE ran; SET ROLE guest; SELECT delay_schedule('0', 'INSERT INTO ran DEFAULT VALUES')});
		wait_until($limit, sub { return $node->safe_psql('other', q{SELECT reason ~ 'CONNECT' FROM delay_wheel.lanes}) eq 't' });
		my $granted = $node->safe_psql('other', 'SELECT clock_timestamp(); GRANT CONNECT ON DATABASE other TO guest');
		wait_until($limit, sub { return $node->safe_psql('other', 'SELECT count(*) FROM ran') eq '1' });
		$at_once++ if $node->safe_psql('other', "SELECT at < '$granted'::timestamptz + interval '0.8 s' FROM ran") eq 't';
		$node->safe_psql('other', 'REVOKE CONNECT ON DATABASE other FROM guest');
	}
	cmp_ok($at_once, '>=', $grants - 2, "granted CONNECT: tried at once ($at_once of $grants)");
	$node->safe_psql('other', 'SELECT delay_wheel.pause_database()');
};

#
# With the transaction stopped when it is visible, and nobody has heard of what
# it did: a load finds the task.
#
my $number = 0;
my $task = q{delay_schedule('0', 'INSERT INTO seen VALUES (%d, edition())')};

# The executor knows the function as it is.
sub remember
{
	query('TRUNCATE seen');
	query(sprintf "SELECT new_edition(%d); SELECT $task", $number, $number);
	wait_for($node, 'SELECT count(*) FROM seen', 'before', $limit, expected => 1);
	query('TRUNCATE seen');
	$number++;
	return;
}

# An executor has claimed the task, and waits; or it has not waited.
sub claimed
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	query('UPDATE delay_wheel_data.task SET tag = tag WHERE false');
	ok(wait_until($limit, sub {
		return query(q{SELECT (SELECT count(*) FROM seen) +
			(SELECT count(*) FROM delay_wheel.running JOIN pg_stat_activity USING (pid) WHERE wait_event = 'transactionid')}) > 0;
	}), "$what: the task is found");
	is(query('SELECT count(*) FROM seen'), 0, "$what: it is not run before its transaction has told all");
	return;
}

sub stopped
{
	my ($what, $sql, %options) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	remember();
	$options{before}->() if $options{before};
	attach($node, 'commit-before-news', 'wait', $options{skip} // 0, 1);
	(my $statements = $sql) =~ s/TASK/sprintf($task, $number)/ge;
	$statements =~ s/NUMBER/$number/g;
	$session->query_until(qr/^started$/m, "\\echo started\n$statements\n");
	wait_until_waiting($node, 'commit-before-news', "$what: the commit is visible");
	claimed($what);
	detach($node, 'commit-before-news');
	$session->quit;
	wait_for($node, 'SELECT edition FROM seen', "$what: the task sees what its transaction did", $limit, expected => $number);
	return;
}

group executor => sub {
	stopped('plain', 'BEGIN; SELECT new_edition(NUMBER); SELECT TASK; COMMIT;');
	stopped('savepoint', 'BEGIN; SELECT new_edition(NUMBER); SAVEPOINT a; SELECT TASK; COMMIT;');
	stopped('the function after the savepoint', 'BEGIN; SELECT TASK; SAVEPOINT a; SELECT new_edition(NUMBER); RELEASE a; COMMIT;');
	stopped('exception block', q{
		DO $$ BEGIN PERFORM new_edition(NUMBER); PERFORM TASK; EXCEPTION WHEN division_by_zero THEN NULL; END $$;});
	stopped('many', q{BEGIN; SELECT new_edition(NUMBER); SELECT TASK; SAVEPOINT a;
		SELECT delay_schedule('1 day', 'SELECT 1') FROM generate_series(1, 1100); COMMIT;});
	stopped('plain SQL', q{BEGIN; SELECT new_edition(NUMBER); SAVEPOINT a;
		INSERT INTO delay_wheel_data.task (due, sql) VALUES (now(), 'INSERT INTO seen VALUES (NUMBER, edition())'); COMMIT;});
	stopped('a task that schedules',
		q{SELECT delay_schedule('0', $t$SELECT new_edition(NUMBER), TASK$t$);}, skip => 1);
	stopped('kept', q{BEGIN; SELECT new_edition(NUMBER);
			SELECT delay_schedule_task('SELECT 1', key => 'k', if_exists => 'keep');
			SELECT pg_sleep_until(due) FROM delay_wheel_data.task WHERE key = 'k'; COMMIT;},
		before => sub {
			query("SELECT delay_schedule_task('INSERT INTO seen VALUES ($number, edition())', delay => '3 s', key => 'k')");
		});
	stopped('resumed', 'BEGIN; SELECT new_edition(NUMBER); SELECT delay_resume_all(); COMMIT;',
		before => sub {
			query('SELECT delay_pause_all()');
			query(sprintf "SELECT $task", $number);
		});
};

# A prepared transaction is ended by another one, which is not its own.  That is
# stopped by a lock: it takes it once it has ended the prepared one, before it tells
# what that has changed, because a row of pg_class about pg_class is new.
group prepared => sub {
	my ($session, $holder) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;

	query(q{CREATE FUNCTION dw_inject_locked(text) RETURNS void AS 'delay_wheel', 'dw_inject_locked' LANGUAGE C STRICT});
	remember();
	query("BEGIN; GRANT SELECT ON pg_catalog.pg_class TO guest; SELECT new_edition($number); "
		  . sprintf("SELECT $task; PREPARE TRANSACTION 'told'", $number));
	attach($node, 'locked', 'wait', 0, 1);
	$holder->query_until(qr/^started$/m, "\\echo started\nSELECT dw_inject_locked('locked');\n");
	wait_until_waiting($node, 'locked', 'somebody has the lock');
	$session->query_until(qr/^started$/m, "\\echo started\nCOMMIT PREPARED 'told';\n");
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'RelCacheInit'},
		'COMMIT PREPARED: what was prepared is visible', $limit, expected => 1);
	claimed('COMMIT PREPARED');
	detach($node, 'locked');
	$_->quit for $session, $holder;
	wait_for($node, 'SELECT edition FROM seen', 'COMMIT PREPARED: the task sees what was prepared with it', $limit, expected => $number);
};

#
# What triggers of replicated rows do is done by apply workers.
#
group apply => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE source');
	$node->safe_psql('source', 'CREATE TABLE news (n int); CREATE PUBLICATION news FOR TABLE news');
	query(q{
		CREATE TABLE news (n int);
		CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
		BEGIN
			IF NEW.n IS NULL THEN
				PERFORM delay_cancel(id) FROM delay_wheel_data.task WHERE due < now() + interval '1 minute';
			ELSE
				PERFORM new_edition(NEW.n);
				PERFORM delay_schedule('0', format('INSERT INTO public.seen VALUES (%s, public.edition())', NEW.n));
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER tell AFTER INSERT ON news FOR EACH ROW EXECUTE FUNCTION tell();
		ALTER TABLE news ENABLE ALWAYS TRIGGER tell;
	});

	for my $two_phase (qw(off on))
	{
		$node->safe_psql('source', "SELECT pg_create_logical_replication_slot('news', 'pgoutput', false, '$two_phase')");
		query("CREATE SUBSCRIPTION news CONNECTION '" . $node->connstr . ' dbname=source'
			  . "' PUBLICATION news WITH (slot_name = 'news', create_slot = false, copy_data = false, two_phase = $two_phase)");
		wait_for($node, q{SELECT subtwophasestate IN ('d', 'e') FROM pg_subscription}, 'replication works', $limit);

		remember();
		if ($two_phase eq 'off')
		{
			attach($node, 'commit-before-news', 'wait', 0, 1);
			$node->safe_psql('source', "INSERT INTO news VALUES ($number)");
			wait_until_waiting($node, 'commit-before-news', 'apply worker: the commit is visible');
			claimed('apply worker');
			detach($node, 'commit-before-news');
			wait_for($node, 'SELECT edition FROM seen', 'apply worker: the task sees what its transaction did', $limit, expected => $number);
		}
		else
		{
			# two at once: the end of one is not that of the other
			my $prepared = q{SELECT count(*) FROM pg_prepared_xacts WHERE database = 'postgres'};
			query("SELECT delay_schedule('5 s', 'INSERT INTO seen VALUES (0, edition())')");
			$node->safe_psql('source', "BEGIN; INSERT INTO news VALUES (NULL); PREPARE TRANSACTION 'cancel'");
			wait_for($node, $prepared, 'a cancel is prepared', $limit, expected => 1);
			$node->safe_psql('source', "BEGIN; INSERT INTO news VALUES ($number); PREPARE TRANSACTION 'schedule'");
			wait_for($node, $prepared, 'a task is prepared', $limit, expected => 2);
			query('SELECT pg_sleep_until(min(due)) FROM delay_wheel_data.task');
			$node->safe_psql('source', "ROLLBACK PREPARED 'cancel'");
			wait_for($node, 'SELECT n, edition FROM seen', 'a cancel that an apply worker undoes: the task runs', $limit, expected => '0|' . ($number - 1));
			query('TRUNCATE seen');
			$node->safe_psql('source', "COMMIT PREPARED 'schedule'");
			wait_for($node, 'SELECT n, edition FROM seen', 'a task that it commits runs, and sees what was prepared with it', $limit,
				expected => "$number|$number");
		}
		query('DROP SUBSCRIPTION news');
	}
};

# delay_run() is no executor.
group run => sub {
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	my $runner = $node->background_psql('postgres', on_error_stop => 1);

	remember();
	query('SELECT delay_pause_all()');
	$runner->query_safe('SELECT edition()');
	attach($node, 'commit-visible', 'wait', 0, 1);
	$session->query_until(qr/^started$/m, "\\echo started\nBEGIN; SELECT new_edition($number); SAVEPOINT a; "
		  . sprintf("SELECT $task; COMMIT;\n", $number));
	wait_until_waiting($node, 'commit-visible', 'delay_run(): the commit is visible');
	$runner->query_until(qr/^started$/m, "\\echo started\nSELECT delay_run(id) FROM delay_wheel_data.task WHERE due <= now();\n");
	ok(wait_until($limit, sub {
		return query(q{SELECT (SELECT count(*) FROM seen) +
			(SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT delay_run' AND wait_event = 'transactionid')}) > 0;
	}), 'delay_run(): the task is found');
	detach($node, 'commit-visible');
	$session->quit;
	$runner->quit;
	is(query('SELECT edition FROM seen'), $number, 'delay_run(): the task sees what its transaction did');
	query('SELECT delay_resume_all()');
};

#
# Who waits for a task that delay_run() runs in a subtransaction is told how it
# ended, also if he looks in that moment.
#
group wait => sub {
	my $waiter = $node->background_psql('postgres', on_error_stop => 1);
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	my $id = query(q{SELECT delay_schedule('1 hour', 'SELECT 1')});

	$waiter->query_until(qr/^started$/m, "\\echo started\nSELECT 'told: ' || delay_wait($id);\n");
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'delay_wait\(' AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()},
		'somebody waits', $limit, expected => 1);
	attach($node, 'commit-visible', 'wait', 0, 1);
	$session->query_until(qr/^started$/m, "\\echo started\nBEGIN; SAVEPOINT a; SELECT delay_run($id); COMMIT;\n");
	wait_until_waiting($node, 'commit-visible', 'the task has been run');
	# all who wait look
	query('SELECT delay_pause_all(); SELECT delay_resume_all()');
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'delay_wait\(' AND pid <> pg_backend_pid()
			AND (wait_event = 'transactionid' OR state = 'idle')},
		'who waits looks', $limit, expected => 1);
	detach($node, 'commit-visible');
	like($waiter->query('SELECT 1'), qr/told: done/, 'he is told that it is done');

	# also who comes in that moment, and his next statement sees what came with it
	for my $sub ('', 'SAVEPOINT a;')
	{
		remember();
		$id = query(q{SELECT delay_schedule('1 hour', 'SELECT 1')});
		$waiter->query_safe('SELECT edition()');
		attach($node, 'commit-visible', 'wait', 0, 1);
		$session->query_until(qr/^started$/m, "\\echo started\nBEGIN; SELECT new_edition($number); $sub SELECT delay_cancel($id); COMMIT;\n");
		wait_until_waiting($node, 'commit-visible', 'a task has been cancelled');
		$waiter->query_until(qr/^started$/m, "\\echo started\nSELECT 'told: ' || delay_wait($id);\nSELECT 'edition ' || edition();\n");
		wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
				AND (query ~ 'delay_wait\(' AND wait_event = 'transactionid' OR query ~ 'edition . ..' AND state = 'idle')},
			'somebody waits for it', $limit, expected => 1);
		detach($node, 'commit-visible');
		like($waiter->query('SELECT 1'), qr/told: gone\nedition $number\n/, 'he is told when all that came with it can be seen');
	}
	$waiter->quit;
	$session->quit;
};

#
# Who was told that a task is done sees it in the counts: they are told while the executor has
# not gone on since its commit.
#
group counts => sub {
	my $done = 'SELECT done FROM delay_wheel.status WHERE database = current_database()';
	my $before = query($done);

	attach($node, 'run-after-commit', 'wait');
	my $told = query(q{SELECT delay_schedule('0', 'SELECT 1') AS id \gset
SELECT delay_wait(:id, '60 s');});
	is(query($done) - $before, 1, "$told: the task counts");
	detach($node, 'run-after-commit');

	# a backlog for one executor, which runs many in one transaction
	query(q{ALTER SYSTEM SET delay_wheel.max_executors = 1});
	$node->reload;
	wait_for($node, 'SELECT count(*) FROM delay_wheel.running', 'none runs', $limit, expected => 0);
	$before = query($done);
	attach($node, 'run-after-commit', 'wait', 2);
	query(q{SELECT delay_schedule_task('SELECT 1', delay => '0', tag => 'counted') FROM generate_series(1, 1000)});
	wait_until_waiting($node, 'run-after-commit', 'an executor has committed tasks of a backlog');
	my $gone = 1000 - query(q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'counted'});
	cmp_ok($gone, '>', 3, 'several in one transaction');
	is(query($done) - $before, $gone, 'all of them count');
	detach($node, 'run-after-commit');
	wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'counted'}, 'all are done', $limit, expected => 0);
	query(q{ALTER SYSTEM RESET delay_wheel.max_executors});
	$node->reload;
};

#
# A commit that waits for a standby is not visible: nobody waits for it.
#
group standby => sub {
	query('ALTER DATABASE postgres SET synchronous_commit = local');
	remember();
	query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	$node->reload;
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	$session->query_safe('SET synchronous_commit = on');
	$session->query_until(qr/^started$/m, "\\echo started\nBEGIN; SELECT new_edition($number); SELECT delay_schedule('1 hour', 'SELECT 1'); COMMIT;\n");
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, 'a commit waits for a standby', $limit, expected => 1);
	query(sprintf "SELECT $task", $number);
	wait_for($node, 'SELECT count(*) FROM seen', 'tasks run meanwhile', $limit, expected => 1);
	is(query(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}), 1, 'and it waits still');
	query(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
	$session->quit;
};

$node->stop;
done_testing();
