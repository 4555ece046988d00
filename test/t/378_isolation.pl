# A task runs at the isolation level that a new session of its owner has, in a transaction of
# its own if that keeps one snapshot: two doctors on call, of whom one must stay; it sees
# all that it must see, though its snapshot is taken once; what we read ourselves makes no
# conflicts.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $injection = has_injection();
my $node = new_node('isolation', batches => 1, ($injection ? (injection => 1) : ()), conf => "log_statement = none\ndelay_wheel.max_executors = 4\n");

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	CREATE ROLE a LOGIN;
	SELECT delay_wheel.allow('a');
	CREATE TABLE effects (n int, level text DEFAULT current_setting('transaction_isolation'), read_only text DEFAULT current_setting('transaction_read_only'),
		xid xid8 DEFAULT pg_current_xact_id(), seen int);
	CREATE TABLE on_call (doctor text PRIMARY KEY, on_call boolean);
	INSERT INTO on_call VALUES ('a', true), ('b', true);
	-- goes off call if another one is on; may be told to wait when it has looked, or is off
	CREATE FUNCTION go_off(who text, waits text DEFAULT 'never') RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		n int := (SELECT count(*) FROM on_call WHERE on_call);
	BEGIN
		IF waits = 'looked' THEN
			PERFORM pg_advisory_xact_lock_shared(7);
		END IF;
		IF n > 1 THEN
			UPDATE on_call SET on_call = false WHERE doctor = who;
		END IF;
		IF waits = 'off' THEN
			PERFORM pg_advisory_xact_lock_shared(7);
		END IF;
	END $$;
	GRANT ALL ON effects, on_call TO a});

sub wait_until_done
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_for($node, 'SELECT NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE due <= now())', $_[0]);
}

#
# The levels, as they are set for the server, a database or a role; tasks at READ COMMITTED share
# transactions, others have one each.
#
group levels => sub {
	for my $case (
		[ 'read committed' ],
		[ 'read uncommitted', q{ALTER ROLE a SET default_transaction_isolation = 'read uncommitted'} ],
		[ 'repeatable read', q{ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'} ],
		[ 'serializable', q{ALTER ROLE a SET default_transaction_isolation = 'serializable'} ],
		[ 'serializable', q{ALTER ROLE a SET default_transaction_isolation = 'serializable'; ALTER ROLE a SET default_transaction_read_only = on;
			ALTER ROLE a SET default_transaction_deferrable = on} ],
		[ 'repeatable read', undef, 'repeatable read' ])
	{
		my ($level, $by, $conf) = @$case;

		sql("$by") if $by;
		if ($conf)
		{
			$node->append_conf('postgresql.conf', "default_transaction_isolation = '$conf'\n");
			$node->reload;
			ok(wait_until(60, sub { return sql('SHOW default_transaction_isolation') eq $conf }), "$level: by a reload");
			# an executor reads the new settings before its next task
			sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
		}
		# a session at another level schedules, and does not matter
		sql(q{SET ROLE a; SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; SELECT delay_pause_all();
			SELECT count(delay_schedule('0', 'INSERT INTO effects (n) VALUES ($1)', i)) FROM generate_series(1, 40) i; SELECT delay_resume_all()});
		wait_until_done("$level: all are run");
		is(sql('SELECT DISTINCT level, read_only FROM effects'), "$level|off", "$level: at that level, and may write");
		my $transactions = sql('SELECT count(DISTINCT xid) FROM effects');
		if ($level =~ /^read/)
		{
			cmp_ok($transactions, '<', 40, "$level: in batches");
		}
		else
		{
			is($transactions, 40, "$level: each alone");
		}
		# outside of a transaction, as before
		sql('TRUNCATE effects');
		if (($by // '') !~ /read_only/)
		{
			sql(q{SET ROLE a; SELECT delay_schedule_task('DO $$BEGIN INSERT INTO effects VALUES (1); COMMIT; END$$', options => '{"mode": "at_least_once"}')});
			wait_until_done("$level: outside of a transaction");
			is(sql('SELECT level FROM effects'), $level, "$level: there, too");
		}
		sql('TRUNCATE effects; ALTER ROLE a RESET ALL; ALTER DATABASE postgres RESET ALL');
		if ($conf)
		{
			$node->append_conf('postgresql.conf', "default_transaction_isolation = 'read committed'\n");
			$node->reload;
		}
	}
	is(sql('SELECT count(*) FROM delay_wheel.failed'), 0, 'none has failed');
};

#
# Two are on call, and one of them must stay.
#
sub on_call { return sql(q{SELECT string_agg(doctor, ' ' ORDER BY doctor) FROM on_call WHERE on_call}); }

group skew => sub {
	sql(q{ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'});

	# the task commits first
	my $client = $node->background_psql('postgres', on_error_stop => 0);
	$client->query_safe(q{BEGIN; SELECT go_off('a')});
	sql(q{SELECT delay_schedule('0', $$SELECT go_off('b')$$)});
	wait_until_done('a task runs beside a client');
	$client->query('COMMIT');
	is(on_call(), 'a', 'the client has failed to serialize');
	$client->quit;

	# the client commits first, when the task has looked, or has written, which the client reads
	my $gate = $node->background_psql('postgres');
	for my $waits (qw(looked off))
	{
		sql('UPDATE on_call SET on_call = true');
		$client = $node->background_psql('postgres');
		$gate->query_safe('SELECT pg_advisory_lock(7)');
		$client->query_safe(q{BEGIN; SELECT go_off('a')}) if $waits eq 'looked';
		sql(qq{SELECT delay_schedule('0', \$\$SELECT go_off('b', '$waits')\$\$)});
		wait_for($node, q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, "the task has come so far: $waits");
		$client->query_safe(q{BEGIN; SELECT go_off('a')}) if $waits eq 'off';
		$client->query_safe('COMMIT');
		$gate->query_safe('SELECT pg_advisory_unlock(7)');
		wait_until_done('it is run to its end');
		is(on_call(), 'b', 'it was repeated, and has seen the client');
		is(sql('SELECT count(*) FROM delay_wheel.failed'), 0, 'it has not failed');
		$client->quit;
	}

	# two tasks
	sql('UPDATE on_call SET on_call = true');
	$gate->query_safe('SELECT pg_advisory_lock(7)');
	sql(q{SELECT delay_schedule('0', 'SELECT go_off($1, ''looked'')', doctor) FROM on_call});
	wait_for($node, q{SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'both have looked');
	$gate->query_safe('SELECT pg_advisory_unlock(7)');
	wait_until_done('both are run to their end');
	like(on_call(), qr/^[ab]$/, 'one of two tasks has stayed');

	# by delay_run(), at the level of the caller
	sql(q{UPDATE on_call SET on_call = true; SELECT delay_schedule('1 hour', 'INSERT INTO effects (n) VALUES (1)')});
	sql(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT delay_run(id) FROM delay_wheel.tasks; COMMIT});
	is(sql('SELECT level FROM effects'), 'repeatable read', 'delay_run() runs a task in the transaction of its caller');
	sql('TRUNCATE effects; ALTER DATABASE postgres RESET default_transaction_isolation');
	$gate->quit;
};

#
# What we read and write ourselves: a task that is about to commit has predicate locks on
# nothing of ours.
#
group predicates => sub {
	sql(q{
		ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
		ALTER DATABASE postgres SET delay_wheel.history = 'all';
		CREATE TABLE waits (i int);
		CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock_shared(8); RETURN NULL; END$$;
		CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON waits DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION waits();
		SELECT delay_wheel.create_queue('ordered', groups => true, options => '{"group_order": "hold"}')});
	my $gate = $node->background_psql('postgres');
	for my $case (
		[ 'a task', q{SELECT delay_schedule('0', 'INSERT INTO waits VALUES (1)')} ],
		[ 'one with all options', q{SELECT delay_schedule_task('INSERT INTO waits VALUES ($1)', args => '{1}', key => 'k', tag => 't', max_attempts => 3, options => '{"unique_for": "1 hour", "notify": "c", "on_success": "SELECT 1", "on_failure": "SELECT 1", "expires": "1 hour", "skip_after": "1 hour", "keep_settings": ["work_mem"]}')} ],
		[ 'one of an ordered group', q{SELECT delay_schedule_task('INSERT INTO waits VALUES (1)', queue => 'ordered', group_key => 'g')} ],
		[ 'a recurring one', q{SELECT delay_every('r', '1 hour', 'INSERT INTO waits VALUES (1)', starts => now() - interval '1 minute', options => '{"catch_up": "all", "max_runs": 2}')} ],
		[ 'one that fails', q{SELECT delay_schedule_task('INSERT INTO waits SELECT 1 / (SELECT count(*) FROM waits)', max_attempts => 2, key => 'f', options => '{"retry_delay": "1 hour"}')} ])
	{
		my ($what, $sql) = @$case;

		sql('TRUNCATE waits');
		$gate->query_safe('SELECT pg_advisory_lock(8)');
		sql($sql);
		if ($what !~ /fails/)
		{
			wait_for($node, q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 8}, "$what: is about to commit");
			# the next run needs the definition, by its index; a sequence is written without a look at such locks
			is(sql(q{SELECT string_agg(DISTINCT relation::regclass::text || ' ' || locktype, ', ') FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE mode = 'SIReadLock'
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND relkind <> 'S'}),
				$what =~ /recurring/ ? 'delay_wheel_data.recurring_task_pkey page' : '', "$what: without other predicate locks of ours");
		}
		$gate->query_safe('SELECT pg_advisory_unlock(8)');
		wait_until_done("$what: is done");
	}
	is(sql('SELECT count(*) FROM delay_wheel.failed'), 0, 'none has failed');
	is(sql(q{SELECT attempts FROM delay_wheel_data.task WHERE key = 'f'}), '1', 'one is to be tried again');
	sql(q{SELECT delay_unschedule('r'); SELECT delay_cancel_all(due_from => '-infinity'); ALTER DATABASE postgres RESET ALL});
	$gate->quit;
};

#
# Serializable sessions that schedule, and tasks that write what nobody reads: nobody fails.
#
group bystanders => sub {
	sql(q{ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'; CREATE TABLE written (i int)});
	my @sessions = map { $node->background_psql('postgres') } 1 .. 3;
	for my $round (1 .. 30)
	{
		$_->query_safe(q{BEGIN; SELECT delay_schedule_task('INSERT INTO written VALUES ($1)', args => '{1}', key => 'k' || txid_current())}) for @sessions;
		$_->query_safe('COMMIT') for @sessions;
	}
	pass('sessions have scheduled');
	wait_until_done('their tasks are run');
	is(sql('SELECT count(*) FROM written'), 90, 'each once');
	is(sql('SELECT count(*) FROM delay_wheel.failed'), 0, 'none has failed');
	sql('ALTER DATABASE postgres RESET ALL');
	$_->quit for @sessions;
};

#
# What a task must see is there, though its snapshot is taken once: that of who keeps it, or
# ends its pause, between its snapshot and its claim.  What is moved then is not run.
#
group snapshot => sub {
  SKIP:
	{
		skip('without injection points', 1) if !$injection;
		# one executor, so that no other one takes the task while it waits
		sql('ALTER SYSTEM SET delay_wheel.max_executors = 1');
		$node->reload;
		ok(wait_until(60, sub { return sql('SHOW delay_wheel.max_executors') eq '1' }), 'one executor only');
		sql(q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'delay_wheel executor'});
		my $let_go = sub { detach($node, 'claim-after-snapshot'); return wait_for($node, q{SELECT dw_inject_waiting('claim-after-snapshot') = 0}, 'it goes on'); };
		for my $level ('repeatable read', 'serializable')
		{
			sql(qq{ALTER DATABASE postgres SET default_transaction_isolation = '$level'; CREATE TABLE IF NOT EXISTS seen (by text)});
			my $other = $node->background_psql('postgres');
			my $another = $node->background_psql('postgres');
			for my $case (
				[ 'who keeps it', q{BEGIN ISOLATION LEVEL READ COMMITTED; INSERT INTO seen VALUES ('x'); SELECT delay_schedule_task('SELECT 1', key => 's'); COMMIT} ],
				[ 'who keeps it in a savepoint, beside another one', q{BEGIN ISOLATION LEVEL READ COMMITTED; INSERT INTO seen VALUES ('x'); SAVEPOINT s; SELECT delay_schedule_task('SELECT 1', key => 's'); RELEASE s; COMMIT}, 1 ],
				[ 'who ends its pause', q{SELECT delay_pause_all(); BEGIN ISOLATION LEVEL READ COMMITTED; INSERT INTO seen VALUES ('x'); SELECT delay_resume_all(); COMMIT} ])
			{
				my ($what, $does, $beside) = @$case;

				sql('TRUNCATE seen, effects');
				attach($node, 'claim-after-snapshot', 'wait', 0, 1);
				sql(q{SELECT delay_schedule_task('INSERT INTO effects (n, seen) SELECT 1, count(*) FROM seen', key => 's')});
				wait_until_waiting($node, 'claim-after-snapshot');
				$another->query_safe(q{BEGIN ISOLATION LEVEL READ COMMITTED; SELECT delay_schedule_task('SELECT 1', key => 's')}) if $beside;
				$other->query_safe($_) for split /; /, $does;
				$another->query_safe('COMMIT') if $beside;
				$let_go->();
				wait_until_done("$level: a task is run");
				is(sql('SELECT level, seen FROM effects'), "$level|1", "$level: it sees what was done by $what");
			}
			$_->quit for $other, $another;

			# moved, and cancelled
			for my $what (q{delay_reschedule(key => 's', delay => '1 hour')}, q{delay_cancel(key => 's')}, q{delay_update(key => 's', sql_text => 'INSERT INTO effects (n) VALUES (2)')})
			{
				sql('TRUNCATE effects');
				attach($node, 'claim-after-snapshot', 'wait', 0, 1);
				sql(q{SELECT delay_schedule_task('INSERT INTO effects (n) VALUES (1)', key => 's')});
				wait_until_waiting($node, 'claim-after-snapshot');
				sql("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT $what; COMMIT");
				$let_go->();
				wait_until_done("$level: after $what nothing is left that is due");
				is(sql(q{SELECT COALESCE(string_agg(n::text, ' '), '') FROM effects}), $what =~ /update/ ? '2' : '', "$level: after $what");
				sql(q{SELECT delay_cancel(key => 's')});
			}
			sql('ALTER DATABASE postgres RESET ALL');
		}
	}
};

$node->stop;
done_testing();
