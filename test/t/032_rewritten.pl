# A command rewrites a table of ours so that snapshots from before see no row in it:
# some forms of ALTER TABLE, and REPACK (CONCURRENTLY).  Who has waited for the lock of
# such a command finds the rows nevertheless.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('rewritten', conf => q{
autovacuum = off
wal_level = replica
delay_wheel.executor_idle_timeout = 1h
});

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q{
	CREATE TABLE effect (n int);
	CREATE ROLE hasty LOGIN;
	ALTER ROLE hasty SET lock_timeout = '1ms';
	GRANT INSERT ON effect TO hasty;
	SELECT delay_wheel.allow('hasty');
	SELECT delay_wheel.create_queue('mail', external => true);
});

# Locked, and rewritten, until release().
my ($session, $rewriter);

sub rewrite
{
	my ($table) = @_;

	$session = $node->background_psql('postgres');
	$rewriter = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe("BEGIN; ALTER TABLE $table ADD COLUMN theirs float DEFAULT random()");
	return;
}

sub release
{
	my ($table) = @_;

	$session->query_safe('COMMIT');
	$session->quit;
	query("ALTER TABLE $table DROP COLUMN theirs");
	return;
}

# So many processes of this kind wait for the command.
sub waits
{
	my ($kind, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, "SELECT count(*) > 0 FROM pg_stat_activity
		WHERE backend_type = '$kind' AND $rewriter = ANY (pg_blocking_pids(pid))", $what);
}

# Nothing is pending, nothing is left in memory, and each of the tasks has run once.
sub all_done
{
	my ($n, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', "$what: all tasks run", 60, expected => 0);
	wait_for($node, 'SELECT near + ready = 0 FROM delay_wheel.status', "$what: nothing is left in memory");
	is(query('SELECT count(*), count(DISTINCT n) FROM effect'), "$n|$n", "$what: each once");
	is(query('SELECT count(*) FROM delay_wheel.failed'), 0, "$what: none failed");
	query('TRUNCATE effect');
	return;
}

# an executor that is there already takes the task the moment that it is due
query(q{SELECT delay_schedule('0', 'INSERT INTO effect VALUES (0)')});
all_done(1, 'before');

foreach my $batches (1, 100)
{
	$node->append_conf('postgresql.conf', "delay_wheel.batch_tasks = $batches");
	$node->reload;
	query(q{SELECT delay_schedule('15 s', 'INSERT INTO effect VALUES ($1)', i) FROM generate_series(1, 20) i});
	# its own waits are limited, not those of the claim
	query(q{SET ROLE hasty; SELECT delay_schedule('15 s', 'INSERT INTO public.effect VALUES (21)')});
	wait_for($node, 'SELECT near >= 20 FROM delay_wheel.status', "batches of $batches: they are in the ring");
	rewrite('delay_wheel_data.task');
	waits('delay_wheel executor', "batches of $batches: an executor waits");
	release('delay_wheel_data.task');
	all_done(21, "batches of $batches");
}

SKIP:
{
	skip 'REPACK is new in 19', 4 if $node->pg_version->major < 19;

	# tasks come and run meanwhile
	my $rounds = long_tests() ? 200 : 20;
	my $n = 0;

	for (1 .. $rounds)
	{
		query("SELECT delay_schedule(i * interval '1 ms', 'INSERT INTO effect VALUES (\$1)', $n + i) FROM generate_series(1, 300) i");
		$n += 300;
		query('REPACK (CONCURRENTLY) delay_wheel_data.task');
	}
	note("$rounds times REPACK (CONCURRENTLY)");
	all_done($n, 'REPACK (CONCURRENTLY)');
}

# sessions
sub asks
{
	my ($table, $sql, $what, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $asking = $node->background_psql('postgres');

	rewrite($table);
	$asking->query_until(qr/^asks/m, "\\echo asks\n$sql;\n\\echo answered\n");
	waits('client backend', "$what: the session waits");
	release($table);
	my $answer = $asking->query_until(qr/^answered/m, '');
	$answer =~ s/^answered.*//ms;
	$answer =~ s/\s+$//;
	is($answer, $expected, "$what: it finds the row");
	$asking->quit;
	return;
}

my $id = query(q{SELECT delay_schedule('1 hour', 'INSERT INTO effect VALUES (1)')});
asks('delay_wheel_data.task', "SELECT delay_reschedule($id, '2 hours')", 'delay_reschedule()', 'moved');
asks('delay_wheel_data.task', "SELECT delay_cancel($id)", 'delay_cancel()', 'cancelled');
$id = query(q{SELECT delay_schedule('0', 'INSERT INTO effect VALUES (1 / 0)')});
wait_for($node, 'SELECT count(*) FROM delay_wheel.failed', 'a task fails', 60, expected => 1);
asks('delay_wheel_data.failed_task', "SELECT state FROM delay_status($id)", 'delay_status()', 'failed');
asks('delay_wheel_data.failed_task', "SELECT delay_discard($id)", 'delay_discard()', 'discarded');

# a message is not forgotten by who could not see it
query(q{SELECT delay_send('mail', '1')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, 'a message is due', 60, expected => 1);
my $receiving = $node->background_psql('postgres');
rewrite('delay_wheel_data.task');
$receiving->query_until(qr/^asks/m, "\\echo asks\nSELECT count(*) FROM delay_lease('mail', 1);\n\\echo answered\n");
waits('client backend', 'a receiver waits');
release('delay_wheel_data.task');
$receiving->query_until(qr/^answered/m, '');
$receiving->quit;
wait_for($node, q{SELECT (SELECT count(*) FROM delay_wheel_data.task WHERE leased_at IS NOT NULL) + (SELECT count(*) FROM delay_lease('mail', 1))},
	'the message is leased, then or now', 60, expected => 1);

$node->stop;
done_testing();
