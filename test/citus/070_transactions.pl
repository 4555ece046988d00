# Transactions of the coordinator that write to the workers, and schedule, send, receive or end
# a lease, with groups: both parts are there, or none, each effect once, and those of a group in
# order, over savepoints, rollbacks, loads in between, and kills of the coordinator.
#
# Environment: DW_TASKS, how many transactions the clients begin.

use strict;
use warnings;

use POSIX ();
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../t";
use Citus;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = $ENV{DW_TASKS} || ($ENV{DW_LONG} ? 1200 : 300);
my $groups = 6;
my $per_group = int($n / $groups);
my ($coordinator, @workers) = new_cluster(2);
my @nodes = ($coordinator, @workers);

sub sql { return $coordinator->safe_psql('postgres', $_[0]); }

sql(q{SELECT delay_wheel.set_up_citus();
	SELECT delay_wheel.create_queue('jobs', groups => true, max_attempts => 1000, users => '{shop}', options => '{"group_order": "hold", "retry_delay": "10 ms"}');
	SELECT delay_wheel.create_queue('mail', external => true, groups => true, max_attempts => 1000, users => '{shop}', receivers => '{shop}', options => '{"group_order": "hold", "retry_delay": "10 ms"}');
	SELECT delay_wheel.create_queue('leased', external => true, groups => true, max_attempts => 1000, users => '{shop}', receivers => '{shop}', options => '{"group_order": "hold", "retry_delay": "10 ms"}')});
# sent: by a client; done: the order in which a task or a message took effect
sql(q{SET ROLE shop;
	CREATE TABLE sent (g bigint, n bigint, PRIMARY KEY (g, n));
	CREATE TABLE done (g bigint, what text, ns bigint[] NOT NULL DEFAULT '{}', PRIMARY KEY (g, what));
	SELECT create_distributed_table('sent', 'g', shard_count => 8), create_distributed_table('done', 'g', colocate_with => 'sent');
	CREATE FUNCTION effect(bigint, text, bigint) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE public.done SET ns = ns || $3 WHERE g = $1 AND what = $2;
	END $$;
	-- what a client writes in one transaction
	CREATE FUNCTION put(g bigint, n bigint) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.sent VALUES (g, n);
		PERFORM delay_schedule_task('SELECT public.effect($1, $2, $3)', args => ARRAY[g::text, 'jobs', n::text], queue => 'jobs', group_key => g::text);
		PERFORM delay_send('mail', jsonb_build_object('g', g, 'n', n), group_key => g::text);
		PERFORM delay_send('leased', jsonb_build_object('g', g, 'n', n), group_key => g::text);
	END $$;
	-- an exception block, of which nothing stays
	CREATE FUNCTION put_and_fail(g bigint, n bigint) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM put(g, n);
		RAISE 'no';
	EXCEPTION WHEN raise_exception THEN NULL;
	END $$});
sql("SET ROLE shop; INSERT INTO done SELECT g, what FROM generate_series(1, $groups) g, unnest('{jobs,mail,leased}'::text[]) what");

#
# Citus is asked for two-phase commit by transactions that do something with tasks, and by no others.
#
group phases => sub {
	my $phases = sub {
		my ($does) = @_;
		my (undef, undef, $err) = $coordinator->psql('postgres',
			"SET ROLE shop; SET citus.log_remote_commands = on; BEGIN; UPDATE done SET ns = ns WHERE g = 1 AND what = 'jobs'; $does; COMMIT");
		return $err =~ /ERROR/ ? $err : $err =~ /issuing PREPARE TRANSACTION/ ? 2 : $err =~ /issuing COMMIT/ ? 1 : $err;
	};
	my $later = q{delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'jobs', tag => 'later')};
	is($phases->('SELECT 1'), 1, 'a transaction without tasks is left to Citus');
	is($phases->("SELECT $later"), 2, 'one that schedules: two phases');
	is($phases->("SAVEPOINT s; SELECT $later; RELEASE s"), 2, 'in a savepoint');
	is($phases->("SAVEPOINT s; SELECT $later; ROLLBACK TO s"), 1, 'in one that is rolled back: nothing is left to be decided');
	is($phases->(q{SELECT delay_reschedule(id, '2 hours') FROM delay_wheel.tasks WHERE tag = 'later'}), 2, 'one that moves tasks');
	is($phases->(q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE tag = 'later'}), 2, 'one that cancels');
	is($phases->('SELECT delay_batch(open => true)'), 2, 'one that makes a batch');
	is($phases->('SELECT delay_close_batch(id) FROM delay_wheel.batches'), 2, 'one that closes a batch');
	is($phases->(q{SELECT delay_send('mail', '{}', tag => 'one')}), 2, 'one that sends');
	wait_for($coordinator, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'a message is due', 30, expected => 1);
	is($phases->(q{SAVEPOINT s; SELECT count(*) FROM delay_receive('mail'); ROLLBACK TO s}), 1, 'one that has put back what it has received');
	is($phases->(q{SELECT count(*) FROM delay_receive('mail')}), 2, 'one that receives');
	is($phases->(q{SELECT delay_send('leased', '{}')}), 2, 'one that sends to be leased');
	wait_for($coordinator, q{SELECT ready FROM delay_wheel.queues WHERE name = 'leased'}, 'a message is due', 30, expected => 1);
	my ($id, $token) = split /\|/, sql(q{SET ROLE shop; SELECT id, token FROM delay_lease('leased')});
	is($phases->("SELECT delay_done($id, $token)"), 2, 'one that ends a lease');
	is(sql('SELECT count(*) FROM delay_wheel_data.task'), '0', 'nothing is left');
};

#
# Clients.  Each group has one sender, so its order is known; everybody receives.
#
# Runs a code in a process of its own until it returns true; the server may be killed meanwhile.
sub client
{
	my ($code) = @_;
	my $pid = fork();

	return $pid if $pid != 0;
	srand($$);
	my $ok = eval { 1 until $code->(); 1 };
	warn $@ unless $ok;
	# nothing of the test's own is to be undone here
	POSIX::_exit($ok ? 0 : 1);
}

my $ended = $coordinator->data_dir . '/test_senders_ended';
my $left = q{SELECT count(*) FROM delay_wheel_data.task};

sub all_received
{
	my ($status, $out) = try_psql($coordinator, 'postgres', $left);
	return -e $ended && $status == 0 && $out eq '0';
}

# A transaction that puts some numbers, and one that it does not mean.
sub sender
{
	my ($g) = @_;
	my $next = 0;
	my $rounds = 0;

	return client(sub {
		my $n = ++$next;
		my $m = -$n;
		my @ways = (
			"SELECT put($g, $n)",
			"SELECT put($g, $m); ROLLBACK; BEGIN; SELECT put($g, $n)",
			"SAVEPOINT a; SELECT put($g, $m); ROLLBACK TO a; SELECT put($g, $n)",
			"SAVEPOINT a; SELECT put($g, $n); SAVEPOINT b; SELECT put($g, $m); ROLLBACK TO b; RELEASE a",
			"SELECT put_and_fail($g, $m), put($g, $n)",
			"SELECT put($g, $m); SELECT 1 / 0; SELECT put($g, $n)");
		my ($status) = try_psql($coordinator, 'postgres', "SET ROLE shop; BEGIN; $ways[rand @ways]; COMMIT");
		# there is no server: those do not count
		sleep(0.2) if $status == 2;
		$rounds++ if $status != 2;
		return $rounds >= $per_group;
	});
}

# Receives in transactions that write to the workers, some of which are undone.
sub receiver
{
	return client(sub {
		my @ends = ('COMMIT', 'COMMIT', 'ROLLBACK', 'SAVEPOINT s; SELECT count(effect((payload->>\'g\')::bigint, \'mail\', 0)) FROM delay_receive(\'mail\', 5); ROLLBACK TO s; COMMIT');
		try_psql($coordinator, 'postgres', sprintf q{SET ROLE shop; CALL delay_await('mail', '0.2 s');
			BEGIN; SELECT count(effect((payload->>'g')::bigint, 'mail', (payload->>'n')::bigint)) FROM delay_receive('mail', %d); %s},
			1 + rand(4), $ends[ rand @ends ]);
		return all_received();
	});
}

# Leases; is done in a transaction that writes to the workers, or not at all.
sub lessee
{
	return client(sub {
		my ($status, $out) = try_psql($coordinator, 'postgres',
			q{SET ROLE shop; CALL delay_await('leased', '0.2 s'); SELECT id, token, payload->>'g', payload->>'n' FROM delay_lease('leased', 3, '1 s')});
		for my $line (grep { /^\d+\|-?\d+\|/ } split /\n/, $out // '')
		{
			my ($id, $token, $g, $n) = split /\|/, $line;
			# one in ten is not heard of again
			next if rand(10) < 1;
			my $end = rand(5) < 1 ? 'ROLLBACK' : 'COMMIT';
			# what is not done by this lease has no effect
			try_psql($coordinator, 'postgres', "SET ROLE shop; BEGIN; SELECT effect($g, 'leased', $n); SELECT 1 / delay_done($id, $token)::int; $end");
		}
		return all_received();
	});
}

# A test: tasks and messages took effect as their transactions were committed.
sub check
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($coordinator, $left, "$what: none is pending", 180, expected => 0);
	wait_for_sum(q{SELECT count(*) FROM pg_prepared_xacts}, 0, "$what: no prepared transaction is left", 60, @nodes);
	is(sql(q{SELECT count(*) FROM sent WHERE n <= 0}), '0', "$what: nothing that was undone is there");
	cmp_ok(sql(q{SELECT count(*) FROM sent}), '>', $per_group * $groups / 3, "$what: much was committed");
	my $sent = sql(q{SELECT g, array_agg(n ORDER BY n) FROM sent GROUP BY g ORDER BY g});
	for my $how (qw(jobs mail leased))
	{
		is(sql("SELECT g, ns FROM done WHERE what = '$how' ORDER BY g"), $sent, "$what: $how took effect once, in order");
	}
	is(sql(q{SELECT count(*) FROM delay_wheel.failed}), '0', "$what: none has failed");
	wait_for($coordinator, q{SELECT sum(ready) FROM delay_wheel.lanes}, "$what: none is counted as ready", 60, expected => 0);
	sql(q{DELETE FROM sent; UPDATE done SET ns = '{}'; SELECT delay_discard_all()});
	return;
}

# Runs all clients, and something beside them until the senders have ended.
sub campaign
{
	my ($what, $beside) = @_;
	my @receivers;
	my @senders;

	unlink $ended;
	@senders = map { sender($_) } 1 .. $groups;
	@receivers = ((map { receiver() } 1, 2), (map { lessee() } 1, 2));
	while (grep { kill 0, $_ } @senders)
	{
		$beside->();
		sleep(0.2);
		waitpid($_, POSIX::WNOHANG()) for @senders;
	}
	append_to_file($ended, '');
	waitpid($_, 0) for @receivers;
	check($what);
	return;
}

group together => sub { campaign('clients', sub { }) };
# the next timer loads all lanes, while transactions commit
group loads => sub {
	campaign('while lanes are loaded', sub {
		try_psql($coordinator, 'postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
		sleep(0.5);
	});
};
# executors are stale again and again
group stale => sub {
	my $i = 0;
	campaign('while settings change', sub {
		$i++;
		try_psql($coordinator, 'postgres', "ALTER ROLE shop SET work_mem = '${\(4 + $i % 2)}MB'");
	});
};
group kills => sub {
	campaign('the coordinator is killed', sub {
		sleep(1 + rand(2));
		kill_server($coordinator);
		await_server($coordinator);
	});
};

done_testing();
