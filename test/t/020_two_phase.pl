# Two-phase commit: a prepared transaction decides over its tasks by its end,
# also if that comes from another session, after a restart, and after they
# fell due.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('two_phase');
$node->safe_psql('postgres', q{
	CREATE TABLE ran (name text, at timestamptz);
	CREATE TABLE tasks (name text, id bigint, due timestamptz);

	CREATE FUNCTION schedule(what text, delay interval) RETURNS void LANGUAGE sql AS $$
		INSERT INTO tasks SELECT what, delay_schedule(delay, 'INSERT INTO ran VALUES ($1, now())', what), now() + delay
	$$;
	CREATE FUNCTION cancel(what text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		ASSERT delay_cancel((SELECT id FROM tasks WHERE name = what)) = 'cancelled';
	END $$;
	CREATE FUNCTION reschedule(what text, delay interval) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		ASSERT delay_reschedule((SELECT id FROM tasks WHERE name = what), delay) = 'moved';
		UPDATE tasks SET due = now() + delay WHERE name = what;
	END $$;
	CREATE VIEW pending AS SELECT name, t.id, t.due FROM delay_wheel_data.task t JOIN tasks USING (id);
});

# What is done in a prepared transaction, and whether the task (there before or
# not) runs after its end.
my %cases = (
	schedule_commit => [ undef, q{SELECT schedule($name, '5 s')}, 1 ],
	schedule_rollback => [ undef, q{SELECT schedule($name, '5 s')}, 0 ],
	cancel_commit => [ '5 s', q{SELECT cancel($name)}, 0 ],
	cancel_rollback => [ '5 s', q{SELECT cancel($name)}, 1 ],
	earlier_commit => [ '1 hour', q{SELECT reschedule($name, '5 s')}, 1 ],
	earlier_rollback => [ '1 hour', q{SELECT reschedule($name, '5 s')}, 0 ],
	later_commit => [ '5 s', q{SELECT reschedule($name, '1 hour')}, 0 ],
	later_rollback => [ '5 s', q{SELECT reschedule($name, '1 hour')}, 1 ],
	plain_commit => [ undef, q{INSERT INTO delay_wheel_data.task (due, sql) VALUES (now() + interval '5 s', format('INSERT INTO ran VALUES (%L, now())', $name))}, 1 ],
	# more than are remembered one by one
	many_commit => [ undef, q{SELECT schedule($name, '5 s') FROM generate_series(1, 3000)}, 3000 ]);

sub run_cases
{
	my ($when, $meanwhile) = @_;
	my $sql = "SELECT schedule('$when control', '5 s');\n";

	for my $case (sort keys %cases)
	{
		my ($before, $action) = @{ $cases{$case} };
		my $name = "$when $case";

		$action =~ s/\$name/'$name'/;
		$sql .= "SELECT schedule('$name', '$before');\n" if $before;
		$sql .= "BEGIN; $action; PREPARE TRANSACTION '$name';\n";
	}
	$node->safe_psql('postgres', "$sql SELECT pg_sleep(0)");
	$meanwhile->();

	# this one is due before all the others
	wait_for($node, "SELECT count(*) FROM ran WHERE name = '$when control'",
		"$when: a task runs while others are prepared", 60, expected => 1);
	wait_for($node, q{SELECT clock_timestamp() > max(prepared) + interval '6 s' FROM pg_prepared_xacts},
		"$when: the others have fallen due");
	is($node->safe_psql('postgres', "SELECT count(*) FROM ran WHERE name LIKE '$when %'"), 1,
		"$when: but are not run");

	for my $case (sort keys %cases)
	{
		my $how = $case =~ /commit/ ? 'COMMIT' : 'ROLLBACK';

		$node->safe_psql('postgres', "$how PREPARED '$when $case'");
	}
	for my $case (sort keys %cases)
	{
		my $times = $cases{$case}[2];

		wait_for($node, "SELECT count(*) FROM ran WHERE name = '$when $case'", "$when: $case runs",
			60, expected => $times)
		  if $times;
	}
	# the hour's ones
	is($node->safe_psql('postgres', qq{
			SELECT string_agg(name, ', ' ORDER BY name) FROM pending
			WHERE name LIKE '$when %' AND due > now() + interval '50 min'}),
		"$when earlier_rollback, $when later_commit", "$when: others are pending");
	wait_for($node, 'SELECT count(*) FROM delay_wheel_data.prepared', "$when: no trace is left",
		60, expected => 0);
}

run_cases('same server', sub { });
run_cases('after a restart', sub { $node->restart });
run_cases('after a crash', sub { $node->stop('immediate'); $node->start });

# the count of all that ran, once and for all
my $expected = join("\n", map {
	my $when = $_;
	map { "$when $_|$cases{$_}[2]" } grep { $cases{$_}[2] } sort keys %cases
} 'after a crash', 'after a restart', 'same server');
is($node->safe_psql('postgres',
		q{SELECT name, count(*) FROM ran WHERE name NOT LIKE '% control' GROUP BY name ORDER BY name COLLATE "C"}),
	$expected, 'nothing else ran, and nothing twice');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ran JOIN tasks USING (name) WHERE at < due'), 0, 'nothing ran early');
is($node->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel_data.task WHERE due < now() + interval '50 min'}),
	0, 'nothing is left');

# the one that is ended later gets the name of an earlier one
$node->safe_psql('postgres', q{
	BEGIN; SELECT schedule('reused 1', '1 hour'); PREPARE TRANSACTION 'reused'; COMMIT PREPARED 'reused';
	BEGIN; SELECT schedule('reused 2', '1 s'); PREPARE TRANSACTION 'reused';
});
my ($ret, $out, $err) = $node->psql('postgres', q{
	BEGIN;
	COMMIT PREPARED 'reused';
});
like($err, qr/COMMIT PREPARED cannot run inside a transaction block/, 'COMMIT PREPARED is refused as ever');
$node->safe_psql('postgres', q{COMMIT PREPARED 'reused'});
wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'reused 2'}, 'a name can be used again', 60, expected => 1);

#
# The extension itself comes and goes with a prepared transaction.
#
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{
	CREATE TABLE ran (name text);
	BEGIN;
	CREATE EXTENSION delay_wheel;
	SELECT delay_schedule('0.5 s', 'INSERT INTO ran VALUES (''created'')');
	PREPARE TRANSACTION 'create';
});
$node->restart;
$node->safe_psql('other', q{COMMIT PREPARED 'create'});
wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'created'},
	'a task scheduled with CREATE EXTENSION runs', 60, db => 'other', expected => 1);

# a lock of the prepared transaction on our tables is in nobody's way
$node->safe_psql('other', q{
	BEGIN;
	SELECT delay_schedule('0', 'INSERT INTO ran VALUES (''locked'')');
	LOCK TABLE delay_wheel_data.task, delay_wheel_data.prepared;
	PREPARE TRANSACTION 'lock';
	SET statement_timeout = '60 s';
	COMMIT PREPARED 'lock';
});
wait_for($node, q{SELECT count(*) FROM ran WHERE name = 'locked'},
	'a task scheduled together with a lock of the tables runs', 60, db => 'other', expected => 1);
$node->safe_psql('other', q{
	BEGIN;
	SELECT delay_schedule('0', 'SELECT 1');
	DROP EXTENSION delay_wheel;
	PREPARE TRANSACTION 'drop';
	SET statement_timeout = '60 s';
	COMMIT PREPARED 'drop';
});
wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'other' AND backend_type LIKE 'delay_wheel %'},
	'the timer ends with the extension');

$node->stop;
done_testing();
