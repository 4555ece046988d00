# The rows of the benchmark about messages: sent, received in transactions and under
# leases, waited for.  Loaded by bench.pl.
#
# The floor of sending is an INSERT into a copy of our own table.  The others are what one
# would write by hand: a table of messages, from which rows are deleted, or put off for a
# time, with SKIP LOCKED.  If pgmq.sql is given (option --pgmq of
# test/bench/run), leases are compared with pgmq, too.

package Messages;

use strict;
use warnings;

use Bench;
use Exporter 'import';
use List::Util qw(max min sum);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(measure_messages);

# as many as are received, or leased, at a time
my $batch = 100;
my $payload = q{'{"to": 4711, "template": "welcome", "language": "en"}'};

# What pgbench runs; each is a statement, or two, of a client.
my %script = (
	send => "SELECT delay_send('bench', $payload, delay => '48 hours');\n",
	insert => "INSERT INTO floor_task (due, payload) VALUES (now() + interval '48 hours', $payload);\n",
	receive => "SELECT count(*) FROM delay_receive('bench', $batch, autocommit => true);\n",
	delete => "WITH d AS (DELETE FROM floor_message WHERE id IN (SELECT id FROM floor_message WHERE due <= now() ORDER BY due LIMIT $batch FOR UPDATE SKIP LOCKED) RETURNING payload) SELECT count(*) FROM d;\n",
	lease => "SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM delay_lease('bench', $batch) \\gset\n"
	  . "SELECT cardinality(delay_done_all(:ids\::bigint[], :tokens\::bigint[]));\n",
	put_off => "WITH u AS (UPDATE floor_message SET due = clock_timestamp() + interval '1 minute', attempts = attempts + 1 WHERE id IN (SELECT id FROM floor_message WHERE due <= now() ORDER BY due LIMIT $batch FOR UPDATE SKIP LOCKED) RETURNING id, payload)"
	  . " SELECT array_agg(id) AS ids FROM u \\gset\n"
	  . "DELETE FROM floor_message WHERE id = ANY (:ids\::bigint[]);\n",
	pgmq => "SELECT array_agg(msg_id) AS ids FROM pgmq.read('bench', 60, $batch) \\gset\n"
	  . "SELECT count(*) FROM pgmq.delete('bench', :ids\::bigint[]);\n");

my ($opt, $rounds, $record, $sync_commit);

# Runs a script by so many clients; returns the transactions in a second.
sub pgbench
{
	my ($name, $clients, @how) = @_;

	return scalar end_pgbench(begin_pgbench($script{$name}, $clients, @how));
}

sub make_tables
{
	shop()->query(q{
		CREATE TABLE floor_message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, due timestamptz NOT NULL, attempts int NOT NULL DEFAULT 0, payload jsonb NOT NULL) WITH (vacuum_truncate = off);
		CREATE INDEX ON floor_message (due)});
	run(q{SELECT delay_wheel.create_queue('bench', external => true, users => '{shop}', receivers => '{shop}')});
	return if !$opt->{pgmq};
	open(my $in, '<', $opt->{pgmq}) or die "$opt->{pgmq}: $!";
	run(do { local $/ = undef; scalar readline $in });
	run(q{SELECT pgmq.create('bench'); GRANT ALL ON SCHEMA pgmq TO shop; GRANT ALL ON ALL TABLES IN SCHEMA pgmq TO shop; GRANT ALL ON ALL SEQUENCES IN SCHEMA pgmq TO shop});
	return;
}

sub empty
{
	my $ours = value('SELECT count(*) FROM delay_wheel_data.task');

	run('TRUNCATE floor_message, floor_task');
	if ($ours > 0)
	{
		run('TRUNCATE delay_wheel_data.task');
		# what memory still has of them
		stop_server();
		start_server();
	}
	return;
}

# The rate of sending one a transaction.
sub send_rate
{
	my ($name, $clients) = @_;

	run('CHECKPOINT');
	return pgbench($name, $clients, split ' ', $opt->{pgbench});
}

# The rate at which two clients take so many messages that are due.
sub take_rate
{
	my ($name, $n) = @_;
	my $table = $name eq 'pgmq' ? 'pgmq.q_bench' : $name =~ /receive|lease/ ? 'delay_wheel_data.task' : 'floor_message';

	if ($table eq 'floor_message')
	{
		shop()->query("INSERT INTO floor_message (due, payload) SELECT now(), $payload FROM generate_series(1, $n)");
	}
	elsif ($name eq 'pgmq')
	{
		shop()->query("SELECT count(*) FROM pgmq.send_batch('bench', array_fill($payload\::jsonb, ARRAY[$n]))");
	}
	else
	{
		shop()->query("SELECT count(delay_send('bench', $payload)) FROM generate_series(1, $n)");
		wait_for('messages', 60, "SELECT ready > least($n, 1000) - 1 FROM delay_wheel.queues WHERE name = 'bench'");
	}
	run("VACUUM ANALYZE $table");
	run('CHECKPOINT');
	my $rate = $batch * pgbench($name, 2, '-t', $n / $batch / 2);
	my $left = value("SELECT count(*) FROM $table");
	die "$name: $left of $n messages are left\n" if $left != 0;
	return $rate;
}

sub send_and_take
{
	my ($sync) = @_;
	my $n = $opt->{messages};

	$sync_commit->($sync);
	for my $clients (1, 2)
	{
		my %figures = $rounds->($opt->{rounds}, [qw(ours floor)],
			{ ours => sub { send_rate('send', $clients) }, floor => sub { send_rate('insert', $clients) } });
		$record->('messages', %figures, place => 90, variant => "sent, one per transaction, $clients client" . ($clients > 1 ? 's' : ''), sync => $sync,
			unit => 'messages/s', reach => [ '>=', 0.90 ], note => 'floor: the same INSERT');
		empty();
	}
	my %receive = $rounds->($opt->{rounds}, [qw(ours floor)],
		{ ours => sub { take_rate('receive', $n) }, floor => sub { take_rate('delete', $n) } });
	$record->('messages', %receive, place => 91, variant => "received by $batch, 2 clients", sync => $sync, unit => 'messages/s', reach => [ '>=', 1.0 ],
		note => 'floor: DELETE, SKIP LOCKED');
	my %lease = $rounds->($opt->{rounds}, [ 'lease', 'put_off', $opt->{pgmq} ? 'pgmq' : () ],
		{ map { my $name = $_; $name => sub { take_rate($name, $n) } } qw(lease put_off pgmq) });
	$record->('messages', ours => $lease{lease}, floor => $lease{put_off}, place => 92, variant => "leased and done by $batch, 2 clients", sync => $sync,
		unit => 'messages/s', reach => [ '>=', 1.0 ], note => 'floor: UPDATE, SKIP LOCKED, and DELETE');
	$record->('messages', ours => $lease{lease}, floor => $lease{pgmq}, place => 93, variant => "leased and done by $batch, 2 clients, beside pgmq", sync => $sync,
		unit => 'messages/s', reach => [ '>=', 0.80 ], note => 'floor: pgmq.read and pgmq.delete') if $opt->{pgmq};
	return;
}

# From the due time to the row in a client that waits, in ms: fifty messages a second.
sub latency
{
	my $n = $opt->{message_latencies};
	my $receiver = session('shop', 'receiver');
	my @late;

	$sync_commit->('on');
	shop()->query("SELECT count(delay_send('bench', $payload, due => now() + interval '2 s' + i * interval '20 ms')) FROM generate_series(1, $n) i");
	while (@late < $n)
	{
		$receiver->query(q{CALL delay_await('bench', '20 s') \g /dev/null});
		my ($row) = $receiver->query(q{SELECT id, token, extract(epoch FROM due) FROM delay_lease('bench')});
		my $now = time();
		next if !defined $row;
		my ($id, $token, $due) = split /\|/, $row;
		push @late, ($now - $due) * 1000;
		$receiver->query("SELECT delay_done($id, $token)");
	}
	$receiver->close;
	for my $line ([ p50 => 0.5, 1 ], [ p99 => 0.99, 5 ])
	{
		my ($name, $at, $limit) = @$line;
		$record->('messages', place => 94, variant => "due until a waiting client has it, $name", sync => 'on', unit => 'ms', ours => [ quantiles(\@late, $at) ], reach => [ '<=', $limit ]);
	}
	return;
}

# What clients that wait cost while nothing is due.
sub idle
{
	my $n = $opt->{message_waiters};
	my $seconds = $opt->{idle_seconds};
	my @waiters = map { session('shop', "waiter $_") } 1 .. $n;

	$_->send(q{CALL delay_await('bench')}) for @waiters;
	close_sessions();
	my $outside = session('postgres', 'outside', 'postgres');
	my $condition = q{FROM pg_stat_activity WHERE query LIKE 'CALL delay_await%' AND wait_event_type = 'Extension' OR backend_type = 'delay_wheel timer'};
	my $deadline = time() + 60;
	until ($outside->value("SELECT count(*) > $n $condition") eq 't')
	{
		die "not all wait\n" if time() > $deadline;
		sleep(0.1);
	}
	# PostgreSQL leaves the timer of authentication_timeout running, which wakes each session once
	sleep($seconds < 60 ? 2 : 62);
	my @pids = $outside->query("SELECT pid $condition");
	my $switches = sub {
		return sum(map { open(my $in, '<', "/proc/$_/status") or die "process $_ has ended\n"; map { /^voluntary_ctxt_switches:\s+(\d+)/ ? $1 : () } readline $in } @pids);
	};
	my $statements = sub { return $outside->value(q{SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'bench'}) };
	my @before = ($switches->(), $statements->());
	sleep($seconds);
	my @after = ($switches->(), $statements->());
	$outside->query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL delay_await%'});
	eval { $_->answer } for @waiters;
	$_->close for @waiters;
	$outside->close;
	for my $what ([ 'wake-ups', 0 ], [ 'statements', 1 ])
	{
		$record->('messages', place => 95, variant => "$n clients wait, nothing is due: $what->[0]", unit => 'a minute',
			ours => [ ($after[$what->[1]] - $before[$what->[1]]) * 60 / $seconds ], reach => [ '<=', 0 ]);
	}
	return;
}

# How long a message of a client that is killed is with nobody, in ms.
sub after_a_kill
{
	my ($in_transaction) = @_;
	my ($first, $second) = map { session('shop', $_) } qw(first second);

	shop()->query("SELECT delay_send('bench', $payload)");
	$first->query(q{CALL delay_await('bench', '20 s')});
	my ($until) = $first->query($in_transaction ? q{BEGIN; SELECT id FROM delay_receive('bench')} :
		  q{SELECT extract(epoch FROM clock_timestamp() + interval '1 s') FROM delay_lease('bench', lease => '1 s')});
	$second->send(q{CALL delay_await('bench', '20 s') \g /dev/null
		SELECT id, token FROM delay_lease('bench')});
	sleep(0.3);
	$until = time() if $in_transaction;
	kill 'KILL', $first->{pid};
	my ($row) = $second->answer;
	my $late = (time() - $until) * 1000;
	die "the message did not come again\n" if !defined $row;
	$second->query('SELECT delay_done(' . ($row =~ s/\|/, /r) . ')');
	$_->close for $first, $second;
	return $late;
}

sub dead_receivers
{
	for my $kind ([ 1, 'received in a transaction, after the kill', 100 ], [ 0, 'under a lease, after its end', 5 ])
	{
		my @late = map { after_a_kill($kind->[0]) } 1 .. $opt->{rounds};
		$record->('messages', place => 96, variant => "the client is killed; the next one has it: $kind->[1]", sync => 'on', unit => 'ms', ours => \@late, reach => [ '<=', $kind->[2] ]);
	}
	return;
}

# All of it.  $rounds, $record and $sync_commit are functions of bench.pl.
sub measure_messages
{
	($opt, $rounds, $record, $sync_commit) = @_;

	make_tables();
	send_and_take($_) for split /,/, $opt->{syncs};
	latency();
	dead_receivers();
	idle();
	empty();
	return;
}

1;
