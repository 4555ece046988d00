# Around the horizon: clients commit tasks just before, at and after the point
# up to which the timer has read the table, which moves all the time, since
# memory, inbox and ring are as small as can be; meanwhile each step of the
# load fails in turn, or ends the timer, or takes long.  Then more tasks of
# one due time than memory takes.  Nothing is lost, nothing runs twice or
# early, and memory keeps to its limit.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IPC::Run qw(start finish);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

plan skip_all => 'needs the build with injection points' unless has_injection();

my $node = new_node('horizon', injection => 1, conf => q{
log_statement = none
log_min_error_statement = panic
delay_wheel.turns_ahead = 1
delay_wheel.max_executors = 3
});

# What is planned is written in the transaction that schedules it.
$node->safe_psql('postgres', q{
	CREATE TABLE effects (id bigint, started timestamptz);
	CREATE TABLE plan (id bigint PRIMARY KEY, due timestamptz);

	CREATE FUNCTION schedule(due timestamptz) RETURNS void LANGUAGE sql AS $$
		INSERT INTO plan SELECT delay_schedule_at(due,
			'INSERT INTO effects VALUES (current_setting(''delay_wheel.task_id'')::bigint, now())'), due
	$$;
	CREATE FUNCTION horizon() RETURNS timestamptz LANGUAGE sql AS
		'SELECT greatest(max(horizon) FILTER (WHERE horizon < now() + interval ''12 hours''), now() - interval ''1 s'') FROM delay_wheel.status';

	-- a task that is pending or has just run
	CREATE FUNCTION some_task() RETURNS plan LANGUAGE sql AS $$
		SELECT * FROM plan WHERE id >= (SELECT max(id) - (random() * 300)::int FROM plan)
		ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
	$$;
	CREATE FUNCTION move(due timestamptz) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE t plan := some_task();
	BEGIN
		IF t.id IS NOT NULL AND delay_reschedule(t.id, move.due) = 'moved' THEN
			UPDATE plan SET due = move.due WHERE id = t.id;
		END IF;
	END $$;
	CREATE FUNCTION cancel() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE t plan := some_task();
	BEGIN
		IF t.id IS NOT NULL AND delay_cancel(t.id) = 'cancelled' THEN
			DELETE FROM plan WHERE id = t.id;
		END IF;
	END $$;
	CREATE FUNCTION in_vain(due timestamptz) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM schedule(due), move(due), cancel();
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
	END $$;
});

my %script = (
	# up to a turn and a half of the ring
	plain => 'SELECT schedule(now() + random() * 1.5 * :turn * interval \'1 ms\');',
	horizon => q{SELECT schedule(horizon() + d * interval '1 us') FROM generate_series(-1, 1) d;},
	moved => q{SELECT move(horizon() + (random() * 2 - 1) * interval '1 us');},
	sooner => q{SELECT move(now());},
	cancelled => 'SELECT cancel();',
	burst => q{SELECT schedule(now() + interval '0.2 s') FROM generate_series(1, 60);},
	in_vain => q{SELECT in_vain(now()), schedule(now());},
	rollback => q{BEGIN;
		SELECT move(horizon()), schedule(now() + interval '0.1 s'), cancel();
		ROLLBACK;});

my ($samples, $most, $over) = (0, 0, 0);

# Memory is within its limit, as often as we look.
sub sample_memory
{
	my (undef, $out) = $node->psql('postgres',
		'SELECT memory_used, memory_limit FROM delay_wheel.status');
	return unless defined $out && $out =~ /^(\d+)\|(\d+)$/;
	$samples++;
	$most = $1 if $1 > $most;
	$over++ if $1 > $2;
	return;
}

sub settled
{
	my ($what, $seconds) = @_;
	my $done = wait_until($seconds, sub {
		sample_memory();
		my (undef, $lost) = $node->psql('postgres',
			'SELECT count(*) FROM plan p WHERE NOT EXISTS (SELECT FROM effects e WHERE e.id = p.id)');
		return ($lost // '') eq '0';
	});
	ok($done, "$what: nothing is lost") or diag $node->safe_psql('postgres', q{
		SELECT *, now() FROM plan p WHERE NOT EXISTS (SELECT FROM effects e WHERE e.id = p.id) LIMIT 20;
		SELECT * FROM delay_wheel.status});
	is( $node->safe_psql('postgres', q{
			SELECT count(*), count(DISTINCT id) FILTER (WHERE started >= due)
			FROM effects LEFT JOIN plan USING (id)}),
		join('|', ($node->safe_psql('postgres', 'SELECT count(*) FROM plan')) x 2),
		"$what: each ran once, none early, none that was not to run");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.failed'), 0, "$what: none failed");
	# an entry that has become void goes when it is due
	wait_for($node, 'SELECT near + ready + running FROM delay_wheel.status',
		"$what: nothing is left in memory", 30, expected => 0);
	is($over, 0, "$what: memory is within its limit");
	note("$samples samples of memory, at most $most bytes; "
		. $node->safe_psql('postgres', 'SELECT count(*) FROM effects') . ' tasks');
	$node->safe_psql('postgres', 'TRUNCATE plan, effects');
	($samples, $most) = (0, 0);
	return;
}

sub new_launcher
{
	my ($pid) = worker_pids($node, 'launcher');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") if $pid;
	return;
}

my @points = qw(load-before-take load-after-publish load-before-snapshot
  load-after-snapshot load-row load-after-scan load-after-cursor reload-after-take
  reload-after-scan drain-after-take add-no-room sleep-before-publish
  sleep-after-publish sleep-before-wait);

sub trouble
{
	my ($point, $action) = @_;

	attach($node, $point, $action, int(rand(5)), 1);
	$node->safe_psql('postgres', 'UPDATE delay_wheel_data.task SET tag = tag WHERE false')
	  if $point =~ /^reload/;
	if ($action eq 'wait')
	{
		wait_until(2, sub {
			return $node->safe_psql('postgres', "SELECT dw_inject_waiting('$point')") > 0;
		});
		sleep(0.3);
	}
	else
	{
		sleep(0.5);
	}
	sample_memory();
	detach($node, $point);
	# a timer that ends often is started later each time; a new launcher
	# does not know
	new_launcher() if !worker_pids($node, 'timer');
	return;
}

#
# Producers around the moving cursor.
#
my @sizes = (
	{ slots => 8, tick => 100, ring_memory => 16, inbox_size => 1, actions => [qw(error wait)] },
	{ slots => 60, tick => 10, ring_memory => 48, inbox_size => 4, actions => [qw(fatal)] });

for my $size (@sizes)
{
	my $turn = $size->{slots} * $size->{tick};
	my $what = join(', ', map { "$_ $size->{$_}" } qw(slots tick ring_memory inbox_size));
	my @command = ('pgbench', '-n', '-c', 3, '-T', 3600, '-R', 300, '-D', "turn=$turn");
	my $dir = $node->basedir;

	$node->append_conf('postgresql.conf', qq{
delay_wheel.slots = $size->{slots}
delay_wheel.tick = $size->{tick}ms
delay_wheel.ring_memory = $size->{ring_memory}kB
delay_wheel.inbox_size = $size->{inbox_size}
});
	$node->restart;
	# the horizon of a lane that has no task beyond is not shown
	my $far = $node->safe_psql('postgres', q{SELECT delay_schedule('1 day', 'SELECT 1')});

	for my $name (sort keys %script)
	{
		append_to_file("$dir/$name.sql", $script{$name}) unless -e "$dir/$name.sql";
		push @command, '-f', "$dir/$name.sql" . ($name eq 'plain' ? '@4' : '@1');
	}
	push @command, 'postgres';
	my ($out, $err) = ('', '');
	my $pgbench;
	{
		local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port);
		$pgbench = start(\@command, '<', \undef, '>', \$out, '2>', \$err);
	}
	for my $action (@{ $size->{actions} })
	{
		trouble($_, $action) for @points;
	}
	$pgbench->signal('INT');
	eval { $pgbench->finish };
	unlike($err, qr/error|fatal/i, "$what: no transaction of the clients failed");
	settled("clients around the horizon, $what", 180);
	$node->safe_psql('postgres', "SELECT delay_cancel($far)");
}

#
# More tasks of one due time than memory takes, scheduled by several
# transactions, which draw their ids in one order and commit in another.
#
my $n = long_tests() ? 1_000_000 : 100_000;
my $part = $n / 4;
my $due = $node->safe_psql('postgres', q{SELECT clock_timestamp() + interval '6 s'});
my $late = $node->background_psql('postgres');
$late->query_safe('BEGIN');
$late->query_safe("SELECT schedule('$due') FROM generate_series(1, 100)");
for my $i (1 .. 4)
{
	$node->safe_psql('postgres', "SELECT schedule('$due') FROM generate_series(1, $part)");
	sample_memory();
	$late->query_safe('COMMIT') if $i == 3;
}
$late->quit;
trouble('load-row', 'error');
trouble('load-row', 'fatal');
settled("$n tasks of one due time", long_tests() ? 3600 : 600);

done_testing();
