# Effects on other nodes: as a distributed database has them, which sees to it in
# the same transaction (test/tools/other_node.c), and by foreign tables.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $moduledir = abs_path(PostgreSQL::Test::Utils::tempdir());
chomp(my $includes = `$ENV{PG_CONFIG} --includedir-server`);

sub compile
{
	my ($name, @flags) = @_;

	return PostgreSQL::Test::Utils::run_log(
		[ $ENV{CC} || 'cc', '-shared', '-fPIC', @flags, "-I$includes", '-o', "$moduledir/$name.so", "$FindBin::RealBin/../tools/other_node.c" ]);
}

sub node_with
{
	my ($library) = @_;
	my $node = new_node($library, batches => 1, conf => qq{
		restart_after_crash = on
		max_prepared_transactions = 10
		shared_preload_libraries = '$moduledir/$library, delay_wheel'
	});

	$node->safe_psql('postgres', qq{
		CREATE ROLE worker LOGIN;
		SELECT delay_wheel.allow('worker');
		CREATE FUNCTION remote_write(bigint) RETURNS void AS '$moduledir/$library' LANGUAGE C STRICT;
		CREATE FUNCTION remote_deadlock(int DEFAULT 0) RETURNS void AS '$moduledir/$library' LANGUAGE C STRICT;
		CREATE FUNCTION remote_note_write() RETURNS trigger AS '$moduledir/$library' LANGUAGE C;
	});
	return $node;
}

sub set_batches
{
	my ($node, $n) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET delay_wheel.batch_tasks = $n");
	$node->reload;
	wait_for($node, 'SHOW delay_wheel.batch_tasks', "batch_tasks is $n", 30, expected => $n);
	return;
}

my $next = 1;

# Schedules N tasks in one transaction; where $n % $fails is 0, ones that fail.
sub schedule
{
	my ($node, $n, $fails) = @_;
	my $first = $next;

	$fails //= $n + 1;
	$next += $n;
	# the server may die before psql has said goodbye
	$node->psql('postgres', qq{SET ROLE worker;
		SELECT count(CASE WHEN g % $fails = 0 THEN delay_schedule('0', 'SELECT 1 / 0')
			ELSE delay_schedule('0', 'SELECT public.remote_write(\$1)', $first + g - 1::bigint) END) FROM generate_series(1, $n) g});
	return $first;
}

# How often the other node has each key from the first one on, when its own
# recovery has ended.
sub effects
{
	my ($node, $first) = @_;
	my $file = $node->data_dir . '/other_node';
	my @lines = map { [ split / / ] } -e $file ? split(/\n/, slurp_file($file)) : ();
	my %xids = map { $_->[2] => 1 } grep { $_->[0] eq 'P' && $_->[1] >= $first } @lines;
	my %committed = map { $_ => 1 } split /\n/,
	  $node->safe_psql('postgres', "SELECT x FROM unnest('{" . join(',', keys %xids) . "}'::xid8[]) x WHERE pg_xact_status(x) = 'committed'");
	my %count;

	for my $line (@lines)
	{
		my ($how, $key, $xid) = @$line;

		$count{$key}++ if $key >= $first && ($how eq 'C' || $committed{$xid});
	}
	return \%count;
}

# A test: all tasks have come to an end, with their effect once.
sub each_once
{
	my ($node, $first, $n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return unless wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', "$what: all tasks come to an end", 180, expected => 0);
	my $count = effects($node, $first);
	my $twice = grep { $_ > 1 } values %$count;
	my $there = keys %$count;
	is("$there there, $twice more than once", "$n there, 0 more than once", $what);
	return;
}

# The server dies when the other node has heard of the commit, and this one has not.
sub die_at_next_commit
{
	my ($node, $code) = @_;
	my $file = $node->data_dir . '/die_before_commit';

	append_to_file($file, '');
	chmod 0666, $file;
	$code->();
	ok(wait_until(60, sub { !-e $file }), 'the server dies in the middle of a commit');
	wait_for($node, 'SELECT true', 'it comes back');
	return;
}

sub kills
{
	my ($node, $how) = @_;
	my $first;

	set_batches($node, 100);
	die_at_next_commit($node, sub { $first = schedule($node, 200) });
	each_once($node, $first, 200, "$how: a server that dies in the commit of a batch");
	set_batches($node, 1);
	die_at_next_commit($node, sub { $first = schedule($node, 20) });
	each_once($node, $first, 20, "$how: in that of a task that runs alone");

	# one that a session runs itself
	$first = $next++;
	my $id = $node->safe_psql('postgres', "SET ROLE worker; SELECT delay_schedule('1 hour', 'SELECT public.remote_write(\$1)', ${first}::bigint)");
	die_at_next_commit($node, sub { $node->psql('postgres', "BEGIN; SELECT delay_run($id); COMMIT", extra_params => [ '-U', 'worker' ]) });
	$node->safe_psql('postgres', "SET ROLE worker; SELECT delay_reschedule($id, '0')");
	each_once($node, $first, 1, "$how: in that of a session with delay_run()");

	# what a session schedules, sends and receives is there, or gone, as its effect is
	my $pending = q{SELECT string_agg(tag, ' ' ORDER BY tag) FROM delay_wheel_data.task};
	$node->safe_psql('postgres', q{SELECT delay_wheel.create_queue('mail', external => true, groups => true, users => '{worker}', receivers => '{worker}', options => '{"group_max_running": 1}');
		SET ROLE worker; SELECT delay_send('mail', '1', tag => 'mail', group_key => 'g')});
	wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'a message is due', 30, expected => 1);
	for my $what (
		[ 'schedules', q{SELECT delay_schedule_task('SELECT 1', delay => '1 hour', tag => 'new')} ],
		[ 'sends', q{SAVEPOINT s; SELECT delay_send('mail', '2', tag => 'new', group_key => 'g'); RELEASE s} ],
		[ 'receives', q{SELECT count(*) FROM delay_receive('mail')} ],
		[ 'receives and puts back', q{SELECT delay_fail(id, retry_in => '1 hour') FROM delay_receive('mail')} ])
	{
		for my $write_first (1, 0)
		{
			my ($word, $does) = @$what;
			my $key = $next++;
			my $write = "SELECT remote_write($key)";

			$does = $write_first ? "$write; $does" : "$does; $write";
			die_at_next_commit($node, sub { $node->psql('postgres', "BEGIN; SET ROLE worker; $does; COMMIT") });
			is($node->safe_psql('postgres', $pending) . '; ' . (effects($node, $key)->{$key} // 0), 'mail; 0',
				"$how: in that of a session that $word, " . ($write_first ? 'after' : 'before') . ' its effect');
		}
	}
	my $key = $next++;
	wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'the message is due again', 30, expected => 1);
	is($node->safe_psql('postgres', qq{BEGIN; SET ROLE worker; SELECT payload FROM delay_receive('mail'); SELECT remote_write($key); COMMIT}), "1\n", "$how: the message is received at last");
	is($node->safe_psql('postgres', $pending) . '; ' . effects($node, $key)->{$key}, '; 1', "$how: once");
	$node->safe_psql('postgres', q{SELECT delay_wheel.drop_queue('mail')});
	return;
}

ok(compile('other_node'), 'another extension is compiled');
my $node = node_with('other_node');

group block => sub {
	set_batches($node, 100);
	my $first = schedule($node, 2000, 100);
	each_once($node, $first, 1980, 'batches with tasks that fail');
	$first = schedule($node, 2000);
	each_once($node, $first, 2000, 'batches that nothing disturbs');
	set_batches($node, 1);
	$first = schedule($node, 200, 10);
	each_once($node, $first, 180, 'tasks that run alone');
	is($node->psql('postgres', 'CREATE TABLE delay_wheel_data.task_102008 (LIKE delay_wheel_data.task)'), 3, 'there are no shards of our tables');
};

group two_phase => sub {
	kills($node, 'by its function');
};

# Cancelled as the victim of a deadlock that only the extension knows of, twice.
group deadlock => sub {
	$node->safe_psql('postgres', q{
		CREATE SEQUENCE tries;
		GRANT ALL ON SEQUENCE tries TO worker;
		CREATE FUNCTION meets_others() RETURNS void LANGUAGE sql AS
			$$SELECT CASE WHEN nextval('tries') < 3 THEN remote_deadlock() END$$});
	set_batches($node, 100);
	my $position = log_position($node);
	for my $how ('alone', 'in a batch', q{with a mode})
	{
		my $more = $how eq 'with a mode' ? call_args(q{, mode => 'at_least_once', max_attempts => 3, retry_delay => '1 ms'}) : '';
		my $n = $how eq 'in a batch' ? 20 : 1;

		$node->safe_psql('postgres', qq{SELECT setval('tries', 1, false);
			SET ROLE worker; SELECT count(delay_schedule_task('SELECT public.meets_others()'$more)) FROM generate_series(1, $n)});
		wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, "a deadlock, $how: tasks come to an end", 60, expected => 0);
		is($node->safe_psql('postgres', q{SELECT count(*), (SELECT last_value >= 3 FROM tries) FROM delay_wheel.failed WHERE sql ~ 'meets_others'}), '0|t', 'they are repeated');
	}
	like(log_since($node, $position), qr/will be tried again: canceling the transaction since it was involved in a distributed deadlock/,
		'the log says why');

	# A task that runs alone, and what becomes of it: the number of its runs, and its error.
	set_batches($node, 1);
	my $runs_to = sub {
		my ($what, $body, $expected) = @_;
		my $id = $node->safe_psql('postgres', qq{SELECT setval('tries', 1, false);
			CREATE OR REPLACE FUNCTION meets() RETURNS void LANGUAGE plpgsql AS \$\$
			DECLARE
				try CONSTANT bigint := nextval('tries');
			BEGIN
				$body
			END \$\$;
			SET ROLE worker; SELECT delay_schedule('0', 'SELECT public.meets()')});
		$id =~ s/.*\n//s;
		wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, "$what: the task comes to an end", 60, expected => 0);
		is($node->safe_psql('postgres', qq{SELECT last_value, (SELECT format('%s in attempt %s', sqlstate, attempts)
			FROM delay_wheel.failed WHERE id = $id) FROM tries}), $expected, $what);
	};
	my $stray = 'PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(60)';
	# a stray cancel meets a run in its first second, so the tasks are older
	$runs_to->('cancelled again while it is undone', 'IF try = 1 THEN PERFORM pg_sleep(1.1), remote_deadlock(2); END IF;', '2|');
	$runs_to->('three strays after many deadlocks', qq{
		IF try = 1 THEN PERFORM pg_sleep(1.1); END IF;
		IF try <= 5 THEN PERFORM remote_deadlock(); ELSIF try <= 8 THEN $stray; END IF;}, '9|');
	$runs_to->('deadlocks without end after a stray', "IF try = 1 THEN $stray; ELSE PERFORM remote_deadlock(1); END IF;", '12|40P01 in attempt 1');
	$runs_to->('a cancel that somebody means after a deadlock', qq{
		IF try = 1 THEN PERFORM remote_deadlock(1); ELSE PERFORM pg_sleep(1.1); $stray; END IF;}, '2|57014 in attempt 1');
	set_batches($node, 100);

	# A cancel that was sent to the transaction before meets a task that has just begun.
	for my $how ('alone', 'in a batch')
	{
		my $n = $how eq 'in a batch' ? 20 : 1;

		$node->safe_psql('postgres', qq{SELECT setval('tries', 1, false);
			SET ROLE worker; SELECT count(delay_schedule('0', 'SELECT pg_cancel_backend(pg_backend_pid()) WHERE nextval(''tries'') < 3')) FROM generate_series(1, $n)});
		wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task}, "a stray cancel, $how: tasks come to an end", 60, expected => 0);
		is($node->safe_psql('postgres', q{SELECT count(*), (SELECT last_value >= 3 FROM tries) FROM delay_wheel.failed WHERE sql ~ 'tries'}), '0|t', 'they are repeated');
	}
	# a cancel that somebody means
	for my $sql ('SELECT pg_sleep(1.2), pg_cancel_backend(pg_backend_pid())', 'SELECT pg_cancel_backend(pg_backend_pid())')
	{
		my $id = $node->safe_psql('postgres', "SET ROLE worker; SELECT delay_schedule('0', '$sql')");
		wait_for($node, "SELECT attempts, sqlstate FROM delay_wheel.failed WHERE id = $id", "failed: $sql", 60, expected => '1|57014');
	}
	# in its first second, too
	my $id = $node->safe_psql('postgres', q{SET ROLE worker; SELECT delay_schedule('0', 'SELECT pg_sleep(600)')});
	wait_for($node, "SELECT count(*) FROM delay_wheel.running WHERE task = $id", 'a task runs', 60, expected => 1);
	is($node->safe_psql('postgres', "SELECT delay_cancel($id, true)"), 'stopping', 'it can be stopped');
	wait_for($node, "SELECT attempts, sqlstate FROM delay_wheel.failed WHERE id = $id", 'it has failed', 60, expected => '1|57014');
	$node->safe_psql('postgres', 'SELECT delay_discard_all()');
};

# A connection that is lost or refused is no attempt: the task is run again, with pauses.
group connections => sub {
	my $sql = sub { return $node->safe_psql('postgres', $_[0]); };
	my $lose = sub { $sql->(q{SELECT setval('losses', 1, false)}); return $sql->("SET ROLE worker; $_[0]"); };
	my $failed_with = sub {
		my ($id, $expected, $what) = @_;
		wait_for($node, "SELECT attempts, sqlstate FROM delay_wheel.failed WHERE id = $id", $what, 60, expected => $expected);
	};

	$sql->(q{CREATE SEQUENCE losses; CREATE TABLE ran (id bigint); CREATE TABLE lost_later (here bool);
		GRANT ALL ON losses, ran, lost_later TO worker;
		CREATE FUNCTION me() RETURNS bigint LANGUAGE sql AS $$ SELECT current_setting('delay_wheel.task_id')::bigint $$;
		CREATE FUNCTION lose(times int, code text, here bool DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			IF NOT here THEN
				PERFORM public.remote_write(0);
			END IF;
			IF nextval('losses') <= times THEN
				RAISE 'the other node is gone' USING ERRCODE = code;
			END IF;
		END $$;
		CREATE FUNCTION lose_later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM lose(1, '08006', NEW.here); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER lose_later AFTER INSERT ON lost_later DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION lose_later()});
	set_batches($node, 100);

	my $position = log_position($node);
	for my $code (qw(08000 08001 08003 08006 57P01 57P02 57P03 XX000))
	{
		my $id = $lose->("SELECT delay_schedule('0', 'SELECT lose(1, \$\$$code\$\$); INSERT INTO ran VALUES (me())')");
		wait_for($node, "SELECT count(*) FROM ran WHERE id = $id", "$code: run again", 60, expected => 1);
	}
	like(log_since($node, $position), qr/has lost a connection to another node and will be run again: the other node is gone/, 'the log tells');
	for my $code (qw(08004 08007 08P01))
	{
		$failed_with->($lose->("SELECT delay_schedule('0', 'SELECT lose(1, \$\$$code\$\$)')"), "1|$code", "$code is a failure like others");
	}
	$failed_with->($lose->(q{SELECT delay_schedule('0', 'SELECT lose(1, ''08006'', true)')}), '1|08006', 'so is 08006, where no other node takes part');
	$failed_with->($lose->(q{SELECT delay_schedule('0', 'INSERT INTO lost_later VALUES (true)')}), '1|08006', 'and at the commit');
	$failed_with->($lose->(q{SELECT delay_schedule_task('SELECT lose(1, ''08006'')', options => '{"mode": "at_least_once"}')}), '1|08006', 'and with a mode');
	$failed_with->($lose->(q{SELECT delay_schedule_task('SELECT lose(3, ''08006''); SELECT 1 / 0', max_attempts => 2, options => '{"retry_delay": "0"}')}),
		'2|22012', 'attempts are counted without the lost connections');
	$failed_with->($lose->(q{SELECT delay_schedule_task('SELECT lose(1, ''08006'')', max_attempts => 3, options => '{"give_up_on": ["08"]}')}), '1|08006', 'give_up_on ends it at once');
	$failed_with->($lose->(q{SELECT delay_schedule_task('SELECT lose(3, ''08006''); SELECT 1 / 0', max_attempts => 2, options => '{"retry_delay": "0", "retry_on": ["22"]}')}),
		'2|22012', 'retry_on is not asked, since it is no attempt');
	$sql->(q{SELECT setval('losses', 1, false)});
	isnt($node->safe_psql('postgres', q{SELECT delay_run(delay_schedule('1 h', 'SELECT lose(0, ''08006'')'))}, extra_params => [ '-U', 'worker' ]), '', 'a session runs one at once');

	# many at once, as in a batch
	$sql->('TRUNCATE ran');
	$lose->(q{SELECT count(delay_schedule('0', 'INSERT INTO ran SELECT me() FROM (SELECT lose(20, ''08006'')) x')) FROM generate_series(1, 20)});
	wait_for($node, q{SELECT count(DISTINCT id) FROM ran}, 'many that lose their connection at once', 120, expected => 20);
	is($sql->('SELECT count(*) FROM ran'), '20', 'each ran once');

	# meanwhile a task is pending, and tells why; but not for ever
	my $id = $lose->(q{SELECT delay_schedule('0', 'SELECT lose(1000, ''08006'')')});
	wait_for($node, "SELECT attempts = 0 AND last_error = '08006: the other node is gone' AND due > now() FROM delay_wheel.tasks WHERE id = $id", 'a task that waits for a node tells so');
	$sql->("UPDATE delay_wheel_data.task SET more = jsonb_set(more, '{lost}', '300') WHERE id = $id; SELECT delay_reschedule($id, '0')");
	$failed_with->($id, '1|08006', 'after a day it has failed');
	my $vague = $lose->(q{SELECT delay_schedule('0', 'SELECT lose(1000, ''XX000'')')});
	wait_for($node, "SELECT last_error = 'XX000: the other node is gone' FROM delay_wheel.tasks WHERE id = $vague", 'an internal error may be one', 60);
	$sql->("UPDATE delay_wheel_data.task SET more = jsonb_set(more, '{lost}', '10') WHERE id = $vague; SELECT delay_reschedule($vague, '0')");
	$failed_with->($vague, '1|XX000', 'for ten times');
	$id = $sql->("SELECT delay_retry($id)");
	wait_for($node, "SELECT coalesce(attempts, 0) = 0 AND more->>'lost' = '1' FROM delay_wheel_data.task", 'put back, it waits as if for the first time');
	is($sql->('SELECT delay_cancel(id) FROM delay_wheel.tasks'), 'cancelled', 'it can be cancelled');
};

$node->stop;

#
# Where the function is hidden, by a table.
#
ok(compile('hidden_node', '-DHIDE_SYMBOL'), 'it is compiled with its symbols hidden');
my $hidden = node_with('hidden_node');

group hidden => sub {
	# an ordinary table, as a dump restores it, and none at all
	for my $table ('CREATE TABLE delay_wheel_data.two_phase (n int)', 'DROP TABLE delay_wheel_data.two_phase')
	{
		$hidden->safe_psql('postgres', $table);
		$hidden->restart;
		my $position = log_position($hidden);
		my $first = schedule($hidden, 20);
		each_once($hidden, $first, 20, $table);
		my $said = () = log_since($hidden, $position) =~ /since table "delay_wheel_data.two_phase" does not exist, or Citus does not know it/g;
		cmp_ok($said, '>=', 1, 'the log says that it is of no use');
	}

	# as if it were owned by a role that may do nothing
	$hidden->safe_psql('postgres', q{
		CREATE ROLE nobody;
		GRANT USAGE ON SCHEMA delay_wheel_data TO nobody;
		CREATE FUNCTION citus_add_local_table_to_metadata(name regclass) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			EXECUTE format('CREATE TRIGGER note AFTER INSERT ON %s EXECUTE FUNCTION remote_note_write()', name);
		END $$;
		CREATE TABLE delay_wheel_data.two_phase (n int);
		SELECT citus_add_local_table_to_metadata('delay_wheel_data.two_phase');
		ALTER TABLE delay_wheel_data.two_phase OWNER TO nobody;
	});
	kills($hidden, 'by a table');
	is($hidden->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.two_phase'), 0, 'no row is written there');
};

#
# What a task reads by a foreign table was read for it, not for the one before.
#
group foreign => sub {
	my $conninfo = 'host=' . $hidden->host . ' port=' . $hidden->port . ' dbname=postgres';

	set_batches($hidden, 100);
	$hidden->safe_psql('postgres', qq{
		ALTER SYSTEM SET delay_wheel.batch_time = 100;
		ALTER SYSTEM SET delay_wheel.max_executors = 1;
		CREATE EXTENSION postgres_fdw;
		CREATE EXTENSION dblink;
		CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '${\$hidden->host}', port '${\$hidden->port}', dbname 'postgres');
		CREATE USER MAPPING FOR postgres SERVER other;
		CREATE TABLE there (n int);
		CREATE FOREIGN TABLE here (n int) SERVER other OPTIONS (table_name 'there');
		CREATE VIEW seen_here AS SELECT * FROM here;
		CREATE TABLE parted (n int) PARTITION BY LIST (n);
		CREATE FOREIGN TABLE parted_0 PARTITION OF parted FOR VALUES IN (0) SERVER other OPTIONS (table_name 'there');
		CREATE TABLE seen (n int, rows bigint, xid xid8 DEFAULT pg_current_xact_id());
		CREATE FUNCTION reads_query() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM seen_here; END';
		CREATE FUNCTION reads_copy() RETURNS void LANGUAGE plpgsql AS 'BEGIN COPY here FROM PROGRAM ''echo 0''; END';
		CREATE FUNCTION reads_rows() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO parted VALUES (0); END';
		-- what is not read runs at the query's end
		CREATE FUNCTION reads_cte() RETURNS void LANGUAGE plpgsql AS
			'BEGIN EXECUTE ''WITH w AS (INSERT INTO parted VALUES (0) RETURNING n) SELECT 1''; END';
		CREATE FUNCTION reads_caught() RETURNS void LANGUAGE plpgsql AS
			'BEGIN INSERT INTO parted SELECT 1 / (1 - g) * 0 FROM generate_series(0, 1) g; EXCEPTION WHEN division_by_zero THEN NULL; END';
		CREATE FUNCTION reads_caught_cte() RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			EXECUTE 'WITH w AS (INSERT INTO parted SELECT 1 / (1 - g) * 0 FROM generate_series(0, 1) g RETURNING n) SELECT 1';
		EXCEPTION WHEN division_by_zero THEN NULL;
		END \$\$;
		-- another session writes, and then schedules a task, which joins if it may
		CREATE FUNCTION first_task(how text, m int) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			EXECUTE format('SELECT reads_%s()', how);
			PERFORM dblink_exec('$conninfo', format('INSERT INTO there VALUES (%s)', m));
			PERFORM * FROM dblink('$conninfo', format(
				'SELECT delay_schedule_at(now() - interval ''1 minute'', ''INSERT INTO seen SELECT %s, count(*) FROM here WHERE n = %s'')', m, m)) AS d (id bigint);
			PERFORM pg_sleep(0.01);
		END \$\$});
	$hidden->restart;
	my $m = 0;
	for my $how (qw(query copy rows cte caught caught_cte))
	{
		for (1 .. 5)
		{
			$m++;
			$hidden->safe_psql('postgres', "SELECT delay_schedule('0', 'SELECT first_task(''$how'', $m)'), delay_schedule('0', 'SELECT 1')");
			wait_for($hidden, "SELECT EXISTS (SELECT FROM seen WHERE n = $m) AND NOT EXISTS (SELECT FROM delay_wheel_data.task)", "by $how: a task reads what another one has scheduled it for");
		}
		is($hidden->safe_psql('postgres', "SELECT count(*) FROM seen WHERE n > $m - 5 AND rows = 0"), 0, "by $how: what was committed before a task, it sees there");
	}

	# views of delay_wheel read foreign tables, too, of this server's memory
	$hidden->safe_psql('postgres', q{SELECT delay_wheel.create_queue('fresh');
		SELECT count(delay_schedule_task('INSERT INTO seen SELECT 1000, count(*) FROM delay_wheel.tasks', queue => 'fresh')) FROM generate_series(1, 20)});
	wait_for($hidden, 'SELECT count(*) FROM seen WHERE n = 1000', 'tasks that read our views come to an end', 60, expected => 20);
	cmp_ok($hidden->safe_psql('postgres', 'SELECT count(DISTINCT xid) FROM seen WHERE n = 1000'), '<', 10, 'they share transactions');
};

$hidden->stop;

done_testing();
