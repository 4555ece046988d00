# What plain SQL does to rows of delay_wheel_data.task reaches all that is kept of a task elsewhere: the
# period of its key, sessions that wait for it, its recurring task, counts of leases, what is known
# of copies.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('plain_sql');
my $q = sub { return $node->safe_psql('postgres', $_[0]) };

$q->(q{
	CREATE TABLE effect (key text);
	CREATE ROLE anna LOGIN;
	CREATE ROLE bert LOGIN;
	SELECT delay_wheel.allow('anna', 'bert');
	SELECT delay_wheel.create_queue('other', users => '{public}'), delay_wheel.create_queue('letters', external => true, max_running => 1);
	GRANT ALL ON effect TO PUBLIC;
	CREATE FUNCTION put(of_key text, after interval DEFAULT '1 hour', in_queue text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
		SELECT outcome FROM delay_scheduled(delay_schedule_task('INSERT INTO public.effect VALUES ($1)', args => ARRAY[of_key], key => of_key,
			delay => after, queue => in_queue, options => '{"unique_for": "1 day"}')) $$;
});

# What a statement leaves of the period of a task that is pending.
sub after
{
	my ($sql, $expected, $what, $again) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($q->("SELECT put('pending')"), 'new', "before: $what");
	$q->($sql);
	is($q->($again // "SELECT put('pending')"), $expected, $what);
	$q->("DELETE FROM delay_wheel_data.task; DELETE FROM delay_wheel_data.unique_key WHERE key <> 'done'");
	return;
}

#
# The period in which a key is unique.
#
group unique => sub {
	after('TRUNCATE delay_wheel_data.task, delay_wheel_data.unique_key', 'new', 'of both tables');
	is($q->("SELECT put('done', '0')"), 'new', 'one that is done');
	wait_for($node, 'SELECT count(*) FROM effect', 'it is done', 60, expected => 1);

	my $delete = q{DELETE FROM delay_wheel_data.task WHERE key = 'pending'};
	after($delete, 'new', 'a deleted task can be scheduled again');
	after("BEGIN; $delete; ROLLBACK", 'kept', 'not if that is rolled back');
	after("BEGIN; SAVEPOINT s; $delete; ROLLBACK TO s; COMMIT", 'kept', 'nor after a savepoint');
	after("BEGIN; SAVEPOINT s; $delete; RELEASE s; COMMIT", 'new', 'but one whose savepoint is kept');
	after("BEGIN ISOLATION LEVEL SERIALIZABLE; $delete; COMMIT", 'new', 'at any level');
	after("BEGIN; $delete; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'", 'new', 'by a prepared transaction');
	after("EXPLAIN (ANALYZE) $delete", 'new', 'by EXPLAIN ANALYZE');
	after("SET session_replication_role = replica; $delete", 'new', 'as a replica');
	after("SET ROLE anna; RESET ROLE; GRANT pg_write_all_data, pg_read_all_data TO anna; SET ROLE anna; $delete", 'new', 'by a role that may write to any table');
	after('TRUNCATE delay_wheel_data.task', 'new', 'after TRUNCATE');
	after('BEGIN; TRUNCATE delay_wheel_data.task; ROLLBACK', 'kept', 'not if that is rolled back');
	after("BEGIN; SELECT put('at once'); TRUNCATE delay_wheel_data.task; COMMIT", 'new', 'of this transaction, too', "SELECT put('at once')");
	after("UPDATE delay_wheel_data.task SET due = due + interval '1 hour', tag = 'x'", 'kept', 'a change of other columns does not end the period');
	is($q->('SELECT count(*) FROM delay_wheel_data.unique_key'), 1, 'nothing is left over');
	is($q->("SELECT put('done')"), 'refused', 'a task that was done keeps its period');

	# in one transaction with the next one
	is($q->("SELECT put('one')"), 'new', 'another one');
	is($q->("BEGIN; DELETE FROM delay_wheel_data.task WHERE key = 'one'; SELECT put('one'); COMMIT"), 'new', 'the deleting transaction itself can schedule it again');
	is($q->("SELECT count(*) FROM delay_wheel_data.task WHERE key = 'one'"), 1, 'the new task is pending');
	$q->('TRUNCATE delay_wheel_data.task');

	# given away
	my $as = sub { return $q->("SET ROLE $_[0]; SELECT put('given'" . ($_[1] // '') . ')') };
	my $done = sub {
		$q->("SELECT count(delay_reschedule(id, '0')) FROM delay_wheel.tasks");
		wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'they are run');
		return;
	};
	is($as->('anna'), 'new', "anna's task");
	$q->("UPDATE delay_wheel_data.task SET owner = 'bert'");
	is($as->('bert'), 'kept', 'is bert\'s now');
	is($as->('anna'), 'new', 'anna can schedule another task of the key');
	$done->();
	is($as->('bert'), 'refused', 'when it is done, he is refused');
	is($as->('anna'), 'refused', 'anna is refused because of her own task');
	is($q->("SELECT string_agg(owner::text, ',' ORDER BY owner::text) FROM delay_wheel.unique_keys WHERE key = 'given'"), 'anna,bert', 'as the view shows');
	is($as->('anna', ", in_queue => 'other'"), 'new', 'in another queue');
	$q->("UPDATE delay_wheel_data.task SET queue = 0, key = 'taken'");
	is($as->('anna', ", in_queue => 'other'"), 'new', 'one that has left the queue is in nobody\'s way there');
	$done->();
	is($q->("SET ROLE anna; SELECT put('taken')"), 'refused', 'the changed key of the task is refused');
	is($q->("SET ROLE anna; SELECT put('keyless')"), 'new', 'a key');
	$q->("UPDATE delay_wheel_data.task SET key = NULL WHERE key = 'keyless'");
	is($q->("SET ROLE anna; SELECT put('keyless')"), 'new', 'a key that was taken away is free');
	$q->("UPDATE delay_wheel_data.task SET more = more - 'unique_for' WHERE key = 'keyless'");
	$done->();
	is($q->("SET ROLE anna; SELECT put('keyless')"), 'new', 'and a period that is taken away');
	$q->('TRUNCATE delay_wheel_data.task');

	# a lookup meets a deletion that is not committed: it waits for it
	is($q->("SELECT put('open')"), 'new', 'a task');
	my $open = $node->background_psql('postgres');
	$open->query_safe("BEGIN; DELETE FROM delay_wheel_data.task WHERE key = 'open'");
	my $other = $node->background_psql('postgres');
	my $pid = $other->query_safe('SELECT pg_backend_pid()');
	$other->query_until(qr/putting/, "\\echo putting\nSELECT 'told: ' || put('open');\n");
	wait_for($node, "SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted", 'another session waits', 60, expected => 1);
	$open->query_safe('COMMIT');
	$open->quit;
	like($other->query_until(qr/told: \w+/, ''), qr/told: new/, 'and schedules it then');
	$other->quit;
	$q->('TRUNCATE delay_wheel_data.task');
};

#
# Sessions that wait for the task.
#
group waiters => sub {
	for my $sql ('DELETE FROM delay_wheel_data.task', 'TRUNCATE delay_wheel_data.task', 'BEGIN; DELETE FROM delay_wheel_data.task; PREPARE TRANSACTION $$p$$; COMMIT PREPARED $$p$$')
	{
		my $id = $q->("SELECT delay_schedule('1 day', 'SELECT 1')");
		my $waiter = $node->background_psql('postgres');

		# they look of themselves after a minute only
		$waiter->query_until(qr/waiting/, "\\echo waiting\nSELECT 'waited: ' || delay_wait($id, '40 s');\n");
		wait_for($node, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE '%delay_wait($id%' AND pid <> pg_backend_pid()",
			'a session waits', 60, expected => 1);
		$q->($sql);
		like($waiter->query_until(qr/waited: \w+/, ''), qr/waited: cancelled/, "is told of: $sql");
		$waiter->quit;
	}
};

#
# Recurring tasks.
#
group recurring => sub {
	$q->(q{SELECT delay_every('daily', '1 day', 'SELECT 1', starts => now() + interval '1 hour')});
	for my $sql ('DELETE FROM delay_wheel_data.task', 'TRUNCATE delay_wheel_data.task', 'BEGIN; DELETE FROM delay_wheel_data.task; PREPARE TRANSACTION $$p$$; COMMIT PREPARED $$p$$')
	{
		my $id = $q->('SELECT id FROM delay_wheel_data.task');
		$q->($sql);
		wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id > $id", "gets another run after: $sql", 60, expected => 1);
	}
	$q->(q{DELETE FROM delay_wheel_data.recurring_task; DELETE FROM delay_wheel_data.task});
};

#
# Leases, and tasks of a copy.
#
group others => sub {
	$q->(q{SELECT delay_send('letters', '1'), delay_send('letters', '2')});
	wait_for($node, q{SELECT count(*) FROM delay_lease('letters', lease => '1 day')}, 'a message is leased', 60, expected => 1);
	is($q->(q{SELECT count(*) FROM delay_lease('letters')}), 0, 'no other one, since the queue has a limit');
	$q->('DELETE FROM delay_wheel_data.task WHERE token IS NOT NULL');
	wait_for($node, q{SELECT count(*) FROM delay_lease('letters', lease => '1 day')}, 'another one when that is deleted', 60, expected => 1);
	$q->('TRUNCATE delay_wheel_data.task');
	$q->(q{SELECT delay_send('letters', '3')});
	wait_for($node, q{SELECT count(*) FROM delay_lease('letters', lease => '1 day')}, 'another one after TRUNCATE', 60, expected => 1);
	$q->('TRUNCATE delay_wheel_data.task');

	for my $sql ('DELETE FROM delay_wheel_data.task', 'TRUNCATE delay_wheel_data.task')
	{
		$q->(q{SELECT delay_schedule('1 day', 'SELECT 1'); UPDATE delay_wheel_data.task SET origin = 1});
		wait_for($node, q{SELECT unarmed FROM delay_wheel.status WHERE database = current_database()}, 'a task that came with a copy');
		$q->($sql);
		wait_for($node, q{SELECT NOT unarmed FROM delay_wheel.status WHERE database = current_database()}, "is not known any more after: $sql");
	}
};

#
# Without the library.
#
group preload => sub {
	is($q->("SELECT put('pending')"), 'new', 'a task');
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->restart;
	$q->('DELETE FROM delay_wheel_data.task');
	is($q->("SELECT count(*) FROM delay_wheel_data.unique_key WHERE key = 'pending'"), 0, 'without the library, too, its period goes with it');
	$q->('TRUNCATE delay_wheel_data.task');
};

done_testing();
