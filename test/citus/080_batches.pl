# Batches on a cluster.  A batch and its members are on the node that made it.  Its callbacks run
# once, with the right numbers, and see what its members wrote on other nodes.  A task, too, sees what
# the transaction wrote there that scheduled it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $n = 200;
my $pending = 'SELECT count(*) FROM delay_wheel_data.task';
# only members and tasks that ask for it wait for a standby at their commit
my ($coordinator, @workers) = new_cluster(2, conf => "synchronous_commit = local\n");
my @nodes = ($coordinator, @workers);

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sql(q{SELECT delay_wheel.set_up_citus()});
sql(q{SET ROLE shop;
	CREATE TABLE t_order (oid bigint PRIMARY KEY, batch bigint, runs int NOT NULL DEFAULT 0);
	CREATE TABLE effect (batch bigint, what text, numbers bigint[], seen bigint);
	SELECT create_distributed_table('t_order', 'oid', shard_count => 8), create_distributed_table('effect', 'batch', shard_count => 8);
	CREATE FUNCTION member(row_id bigint) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE public.t_order SET runs = runs + 1 WHERE oid = row_id;
		-- a test may hold members here
		PERFORM pg_advisory_xact_lock_shared(1);
	END $$;
	-- the commit waits for a standby, if one is named
	CREATE FUNCTION slow_member(row_id bigint) RETURNS void LANGUAGE sql AS $$
		SELECT set_config('synchronous_commit', 'on', true), public.member(row_id)
	$$;
	CREATE FUNCTION callback(id bigint, what text, VARIADIC numbers bigint[]) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		seen bigint := count(*) FROM public.t_order WHERE batch = id AND runs = 1;
	BEGIN
		INSERT INTO public.effect VALUES (id, what, numbers, seen);
	END $$;
	CREATE FUNCTION make(name text DEFAULT NULL, open boolean DEFAULT false) RETURNS bigint LANGUAGE sql AS $$
		SELECT delay_batch(name, open => open,
			on_done => 'SELECT public.callback($1, ''done'', $3, $4, $5, $6, $7)',
			on_failed => 'SELECT public.callback($1, ''failed'', $3, $4, $5, $6, $7)',
			on_end => 'SELECT public.callback($1, ''end'', $3, $4, $5, $6, $7)')
	$$;
	CREATE FUNCTION put(batch bigint, sql text, VARIADIC args text[] DEFAULT '{}') RETURNS bigint LANGUAGE sql AS $$
		SELECT delay_schedule_task(sql, args => args, options => jsonb_build_object('batch_id', batch))
	$$});

# All batches whose callbacks have run.
my $batches = 0;

# A test: both callbacks of the batch have run once, with these numbers (total, done, failed,
# cancelled, skipped), and saw so many rows of members.
sub ended
{
	my ($batch, $numbers, $seen, $what) = @_;
	my ($total, $done) = split /,/, $numbers;
	my $outcome = $total == $done ? 'done' : 'failed';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$batches++;
	return wait_for($coordinator, "SELECT string_agg(concat_ws(' ', what, numbers, seen), ';' ORDER BY what = 'end') FROM effect WHERE batch = $batch",
		$what, 60, expected => "$outcome {$numbers} $seen;end {$numbers} $seen");
}

# A new row, and a batch at the coordinator with one member that writes it, by this function.
my $next = 1000;

sub one_member
{
	my ($function) = @_;
	my $row = $next++;
	my $batch = sql(qq{SET ROLE shop; BEGIN; SELECT make() AS batch \\gset
		INSERT INTO t_order VALUES ($row, :batch);
		SELECT put(:batch, 'SELECT public.$function(\$1)', '$row') \\g /dev/null
		COMMIT; SELECT :batch});

	return ($batch, $row);
}

# Holds commits that ask for it, after Citus has prepared them on the workers; until release().
sub hold
{
	sql(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	sql('SELECT pg_reload_conf()');
	wait_for($coordinator, 'SHOW synchronous_standby_names', 'commits are held', 30, expected => 'nobody');
	return;
}

sub release
{
	sql('ALTER SYSTEM RESET synchronous_standby_names');
	sql('SELECT pg_reload_conf()');
	return;
}

sub is_held
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($coordinator, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, $what, 60, expected => 1);
	return;
}

# Stops the sessions on the workers that have prepared; goes on when the code returns.
sub with_prepared_stopped
{
	my ($code) = @_;
	my @pids = grep { /^\d+$/ } map { split /\n/ } on_nodes(q{SELECT pid FROM pg_stat_activity WHERE state = 'idle' AND query ~ '^PREPARE TRANSACTION'}, @workers);

	cmp_ok(scalar @pids, '>', 0, 'sessions of the workers are stopped');
	kill 'STOP', @pids;
	$code->();
	kill 'CONT', @pids;
	return;
}

#
# A batch at the coordinator.  An executor is killed while it runs a member that has written.
#
group killed => sub {
	my $gate = $coordinator->background_psql('postgres');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	my $batch = sql(qq{SET ROLE shop; BEGIN; SELECT make() AS batch \\gset
		INSERT INTO t_order SELECT i, :batch FROM generate_series(1, $n) i;
		SELECT put(:batch, 'SELECT public.member(\$1)', i::text) FROM generate_series(1, $n) i \\g /dev/null
		SELECT put(:batch, 'SELECT 1 / 0') \\g /dev/null
		COMMIT; SELECT :batch});
	my $held = q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type ~ 'executor' AND wait_event = 'advisory'};
	wait_for($coordinator, "SELECT ($held) IS NOT NULL", 'a member has written, and is held', 60);
	is(sql("SELECT state, total, pending > 0 FROM delay_wheel.batches WHERE id = $batch"), 'closed|' . ($n + 1) . '|t', 'the batch has not ended');
	kill 'KILL', sql($held);
	eval { $gate->quit };
	ended($batch, ($n + 1) . ",$n,1,0,0", $n, 'its executor is killed: the batch ends once');
	is(sql("SELECT count(*) FROM t_order WHERE batch = $batch AND runs = 1"), $n, 'each member took effect once');
};

#
# The executor is killed after its commit, and before that of the worker.
#
group killed_in_commit => sub {
	hold();
	my ($batch, $row) = one_member('slow_member');
	is_held('a member is prepared, and is held at its commit');
	kill 'KILL', sql(q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
	wait_for($coordinator, "SELECT runs FROM t_order WHERE oid = $row", 'Citus recovers the part of the worker', 60, expected => 1);
	release();
	$batches++;
	# after a crash callbacks may run before Citus has recovered, and so see less
	wait_for($coordinator, "SELECT string_agg(concat_ws(' ', what, numbers), ';' ORDER BY what) FROM effect WHERE batch = $batch",
		'killed in a commit: the batch ends once', 60, expected => 'done {1,1,0,0,0};end {1,1,0,0,0}');
	is(sql("SELECT runs FROM t_order WHERE oid = $row"), '1', 'the member took effect once');
};

#
# A transaction is visible at the coordinator before the workers have committed.
#
sub waits
{
	my ($kind) = @_;

	return sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '$kind' AND wait_event = 'transactionid'") eq '1';
}

# A test: the sweeper waits (or has ended the batch, which will be noticed).
sub sweeper_waits
{
	my ($batch) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(wait_until(60, sub { return waits('sweeper') || sql("SELECT ended_at IS NOT NULL FROM delay_wheel.batches WHERE id = $batch") eq 't'; }),
		'the sweeper waits for the workers');
}

group visible => sub {
	hold();
	my ($batch) = one_member('slow_member');
	is_held('a member is prepared, and is held at its commit');
	with_prepared_stopped(sub {
		release();
		sweeper_waits($batch);
		is(sql("SELECT pending FROM delay_wheel.batches WHERE id = $batch"), '0', 'the member has committed at the coordinator');
	});
	ended($batch, '1,1,0,0,0', 1, 'callbacks see what the last member wrote on a worker');

	# the same of a transaction that closes its batch
	my $session = $coordinator->background_psql('postgres');
	my $row = $next++;
	hold();
	$batch = sql('SET ROLE shop; SELECT make(open => true)');
	$session->query_until(qr/^begun$/m, qq{\\echo begun
		SET ROLE shop; SET synchronous_commit = on; BEGIN; INSERT INTO t_order VALUES ($row, $batch, 1); SELECT delay_close_batch($batch); COMMIT;
	});
	is_held('a transaction that closes its batch is held at its commit');
	with_prepared_stopped(sub {
		release();
		sweeper_waits($batch);
	});
	ended($batch, '0,0,0,0,0', 1, 'callbacks see what the transaction wrote that closed the batch');
	$session->quit;
};

# a task that a load finds: no hint of it is sent before the workers have committed
for my $savepoint ('', 'SAVEPOINT a; ')
{
	my $session = $coordinator->background_psql('postgres');
	my $row = $next++;
	hold();
	$session->query_until(qr/^begun$/m, qq{\\echo begun
		SET ROLE shop; SET synchronous_commit = on; BEGIN; INSERT INTO t_order VALUES ($row);
		$savepoint SELECT delay_schedule('0', 'UPDATE public.t_order SET runs = runs + 1 WHERE oid = \$1', $row); COMMIT;
	});
	is_held("${savepoint}a transaction that schedules is held at its commit");
	with_prepared_stopped(sub {
		release();
		wait_for($coordinator, $pending, 'its task is visible', 60, expected => 1);
		sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
		ok(wait_until(60, sub { return waits('executor') || sql($pending) eq '0'; }), 'the task waits');
	});
	$session->quit;
	wait_for($coordinator, $pending, 'it runs', 60, expected => 0);
	is(sql("SELECT runs FROM t_order WHERE oid = $row"), '1', 'it has seen the row that its transaction wrote');
}

#
# Batches on the workers, by a trigger on a distributed table.  They stay when their shard moves.
#
group at_the_rows => sub {
	sql(q{SET ROLE shop;
		CREATE TABLE parcel (id bigint PRIMARY KEY, runs int NOT NULL DEFAULT 0, ends int NOT NULL DEFAULT 0);
		SELECT create_distributed_table('parcel', 'id', shard_count => 8, colocate_with => 'none');
		CREATE FUNCTION in_batch() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			batch bigint := delay_batch(NEW.id::text, on_done => 'UPDATE public.parcel SET ends = ends + 1 WHERE id = $2::bigint');
		BEGIN
			PERFORM delay_schedule_task('UPDATE public.parcel SET runs = runs + 1 WHERE id = $1', args => ARRAY[NEW.id::text],
				delay => NEW.runs * interval '1 day', options => jsonb_build_object('batch_id', batch)) FROM generate_series(1, 3);
			RETURN NULL;
		END $$;
		SET citus.enable_unsafe_triggers = on;
		CREATE TRIGGER in_batch AFTER INSERT ON parcel FOR EACH ROW EXECUTE FUNCTION in_batch();
		INSERT INTO parcel SELECT generate_series(1, 100)});
	sql('SET ROLE shop; BEGIN; INSERT INTO parcel SELECT generate_series(101, 200); ROLLBACK');
	wait_for($coordinator, 'SELECT count(*) FILTER (WHERE runs = 3 AND ends = 1) FROM parcel', 'each batch ends once', 60, expected => 100);
	is(sum_of(q{SELECT count(*) FROM delay_wheel.batches WHERE state = 'done' AND total = 3 AND done = 3}, @workers), 100, 'on the workers');
	is(sum_of('SELECT count(*) FROM delay_wheel.batches', @workers), 100, 'ROLLBACK has left none');

	# an id of another node
	my ($shard, $port) = shard_of($coordinator, 'parcel', 1000);
	my ($from) = grep { $_->port == $port } @workers;
	my ($to) = grep { $_->port != $port } @workers;
	$from->safe_psql('postgres', q{SELECT setval('delay_wheel_data.task_id_seq', 1000000)});
	sql('SET ROLE shop; INSERT INTO parcel VALUES (1000, 1)');
	my $batch = $from->safe_psql('postgres', q{SELECT id FROM delay_wheel.batches WHERE name = '1000'});
	my (undef, undef, $err) = $coordinator->psql('postgres', "SET ROLE shop; SELECT put($batch, 'SELECT 1')");
	like($err, qr/ERROR:  batch $batch does not exist\n.*HINT:  Use the id that delay_batch\(\) has returned in this database\./, 'a batch of another node');

	is(move_shard($coordinator, $shard, $from, $to), 0, 'the shard moves');
	is(sql('SELECT delay_wheel.follow_shards()'), '0', 'its batch stays');
	is($from->safe_psql('postgres', q{SELECT count(delay_reschedule(id, '0')) FROM delay_wheel.tasks}), '3', 'its members are due');
	wait_for($coordinator, 'SELECT runs, ends FROM parcel WHERE id = 1000', 'it ends, through Citus', 60, expected => '4|1');
	wait_for_sum($pending, 0, 'nothing is left', 60, @nodes);
	is(sql('SELECT count(*) FROM parcel WHERE ends <> 1'), '0', 'no callback has run twice');
};
is(sql('SELECT count(*) FROM effect'), 2 * $batches, 'no callback has run twice at the coordinator');

done_testing();
