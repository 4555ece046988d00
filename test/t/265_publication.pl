# A publication FOR ALL TABLES holds the tables of delay_wheel, too. Decoding
# them breaks nothing; a subscriber with the extension gets the tasks, does not
# run them, and loses them when the publisher has run them; one without it is
# told what it lacks.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = q{
log_statement = none
wal_level = logical
wal_retrieve_retry_interval = 100ms
max_worker_processes = 40
};
my $create = q{
	CREATE TABLE effects (label text, who name DEFAULT current_user);
	ALTER TABLE effects REPLICA IDENTITY FULL;
	GRANT ALL ON effects TO PUBLIC;
};
my $roles = q{CREATE ROLE anna LOGIN; CREATE ROLE other LOGIN; CREATE ROLE bert LOGIN};
my $allow = 'GRANT INSERT ON delay_wheel.tasks TO PUBLIC; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC; GRANT EXECUTE ON FUNCTION delay_wheel.create_queue, delay_wheel.drop_queue, delay_wheel.pause_database, delay_wheel.resume_database, delay_wheel.arm, delay_wheel.follow_shards TO PUBLIC';

my $publisher = new_node('publisher', conf => $conf, init => [ allows_streaming => 'logical' ]);
$publisher->safe_psql('postgres', "$roles; $create; $allow; CREATE PUBLICATION everything FOR ALL TABLES");
my $connection = $publisher->connstr . ' dbname=postgres';

sub schedule
{
	my ($node, $label, $delay, $sql) = @_;

	$sql //= 'INSERT INTO public.effects VALUES ($1)';
	return $node->safe_psql('postgres', qq{
		SET SESSION AUTHORIZATION anna;
		SELECT delay_schedule('$delay', \$\$$sql\$\$, '$label')});
}

sub nothing_due
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task WHERE due <= now() AND origin = delay_wheel_internal.origin()',
		$what, 60, expected => 0);
}

# The sweeper commits asynchronously: what it has done is visible before it is
# in what has been written of the WAL, where the wait would look by default.
sub caught_up
{
	$publisher->wait_for_catchup('tasks', 'replay', $publisher->lsn('insert'));
	return;
}

# All that tasks can go through; what is left is pending.
my $round = 0;

sub traffic
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$round++;
	schedule($publisher, "run $round", '0');
	schedule($publisher, 'fail', '0', 'SELECT 1 / 0, $1');
	my $cancel = schedule($publisher, 'cancel', '1 hour');
	my $move = schedule($publisher, "moved $round", '1 hour');
	schedule($publisher, "pending $round", '1 hour');
	$publisher->safe_psql('postgres', "SELECT delay_cancel($cancel), delay_reschedule($move, '0')");
	for my $end (qw(COMMIT ROLLBACK))
	{
		$publisher->safe_psql('postgres', qq{
			BEGIN;
			SELECT delay_schedule('0', 'INSERT INTO effects VALUES (\$1)', 'two-phase $end $round'),
				delay_schedule('1 hour', 'SELECT 1');
			PREPARE TRANSACTION 'two-phase';
			$end PREPARED 'two-phase'});
	}
	$publisher->safe_psql('postgres', "SELECT delay_wheel.create_queue('queue $round', rate => $round, users => '{anna,public}'), delay_wheel.pause_queue('queue $round')");
	$publisher->safe_psql('postgres', 'SELECT delay_wheel.resume_queue(name), delay_wheel.create_queue(name, rate => 0) FROM delay_wheel.queues WHERE rate < ' . $round);
	$publisher->safe_psql('postgres', 'SELECT delay_wheel.drop_queue(name) FROM delay_wheel.queues WHERE rate IS NULL AND NOT paused ORDER BY name OFFSET 1');
	nothing_due($publisher, "$what: tasks run at the publisher");
	wait_for($publisher, 'SELECT count(*) FROM delay_wheel_data.prepared', 'what was prepared is forgotten', 60, expected => 0);
	return;
}

my $rows = q{SELECT string_agg(format('%s %s %s', id, owner, origin), ', ' ORDER BY id) FROM delay_wheel_data.task};
my $failed = 'SELECT count(*) FROM delay_wheel_data.failed_task';

# The subscriber has what the publisher has, and has run nothing.
sub same
{
	my ($subscriber, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	caught_up();
	for my $query ($rows, $failed, 'SELECT string_agg(label, \', \' ORDER BY label) FROM effects',
		'SELECT count(*) FROM delay_wheel_data.prepared',
		'SELECT q.* FROM delay_wheel_data.queue q ORDER BY id; SELECT * FROM delay_wheel_data.pause')
	{
		is($subscriber->safe_psql('postgres', $query), $publisher->safe_psql('postgres', $query), $what);
	}
	return;
}

#
# Without a first copy the timer hears from the apply worker only: of tasks
# that wait to be armed, and of those that are the subscriber's own, after all.
#
sub changes_only
{
	my ($subscriber) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$subscriber->restart;
	wait_for($subscriber, 'SELECT state, unarmed FROM delay_wheel.status', 'there is nothing to be armed', 60, expected => 'running|f');
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION tasks CONNECTION '$connection' PUBLICATION everything WITH (copy_data = off)");
	my $id = schedule($publisher, 'changes only', '1 hour');
	caught_up();
	wait_for($subscriber, 'SELECT unarmed FROM delay_wheel.status', 'a task came by a change, which the view status tells', 60);
	my $origin = $subscriber->safe_psql('postgres', 'SELECT delay_wheel_internal.origin()');
	my $own = $publisher->safe_psql('postgres', "INSERT INTO delay_wheel_data.task (due, origin, owner, sql)
		VALUES (now(), $origin, 'anna', \$\$INSERT INTO public.effects VALUES ('came home')\$\$) RETURNING id");
	wait_for($subscriber, q{SELECT count(*) FROM effects WHERE label = 'came home'}, 'one that is its own is run', 60, expected => 1);
	$publisher->safe_psql('postgres', 'SELECT delay_wheel.pause_database()');
	wait_for($subscriber, 'SELECT state FROM delay_wheel.status', 'so does a pause', 60, expected => 'paused');
	$publisher->safe_psql('postgres', 'SELECT delay_wheel.resume_database()');
	wait_for($subscriber, 'SELECT state FROM delay_wheel.status', 'and its end', 60, expected => 'running');
	$publisher->safe_psql('postgres', "DELETE FROM delay_wheel_data.task WHERE id IN ($id, $own)");
	caught_up();
	is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.task'), 0, 'what the publisher deletes is gone');
	is($subscriber->safe_psql('postgres', 'SELECT delay_wheel.arm(), unarmed FROM delay_wheel.status'), '0|t', 'the view is late to tell');
	is($subscriber->safe_psql('postgres', 'SELECT unarmed FROM delay_wheel.status'), 'f', 'delay_wheel.arm() has looked');
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION tasks');
	return;
}

sub no_errors
{
	my ($node, $position, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	unlike(log_since($node, $position), qr/ERROR(?!.*(?:division by zero|already active|is active for PID))|FATAL(?!.*administrator command)|PANIC/, "$what: no errors");
	return;
}

traffic('before anybody has subscribed');

for my $preload (1, 0)
{
	my $with = $preload ? 'with the library' : 'without the library';
	my $subscriber = new_node("subscriber$preload", conf => $conf, preload => $preload);
	my $position = log_position($subscriber);
	my $publisher_position = log_position($publisher);

	$subscriber->safe_psql('postgres', "$roles; $create");
	# the owner of a task of the first round
	$subscriber->safe_psql('postgres', 'CREATE EXTENSION delay_wheel; CREATE ROLE role1 LOGIN') if !$preload;
	$subscriber->safe_psql('postgres', "$allow; CREATE SUBSCRIPTION tasks CONNECTION '$connection' PUBLICATION everything");
	$subscriber->wait_for_subscription_sync($publisher, 'tasks');
	same($subscriber, "$with, first copy");

	traffic($with);
	same($subscriber, "$with, changes");
	my $pending = schedule($publisher, "runs at the publisher $preload", '1 hour');
	same($subscriber, "$with, a task more");
	if ($preload)
	{
		wait_for($subscriber, 'SELECT unarmed FROM delay_wheel.status', 'the view status tells', 60);
		# the subscriber's own tasks run; their numbers must not meet the others'
		$subscriber->safe_psql('postgres', "SELECT setval('delay_wheel_data.task_id_seq', 1000000000)");
		schedule($subscriber, 'own', '0');
		wait_for($subscriber, q{SELECT count(*) FROM effects WHERE label = 'own'}, 'own tasks run', 60, expected => 1);
		$subscriber->safe_psql('postgres', q{DELETE FROM effects WHERE label = 'own'});
	}
	# a cancellation that has to wait, and a task that comes after it and is hit
	my @open = map { $publisher->background_psql('postgres') } (0, 1);
	$_->query_safe(q{SET SESSION AUTHORIZATION anna; BEGIN; SELECT delay_schedule('3 hours', 'SELECT 1')}) for @open;
	$publisher->safe_psql('postgres', q{SET SESSION AUTHORIZATION anna; SELECT delay_cancel_all(due_from => now() + interval '2 hours')});
	wait_for($publisher, 'SELECT state FROM delay_wheel.cancellations', 'a cancellation waits', 60, expected => 'waiting');
	$open[0]->query_safe('COMMIT');
	same($subscriber, "$with, a task that is cancelled");
	my $hit = q{SELECT (SELECT count(*) FROM delay_wheel_data.task WHERE due > now() + interval '2 hours'),
		(SELECT count(*) FROM delay_wheel.tasks WHERE due > now() + interval '2 hours'), state FROM delay_wheel.cancellations};
	is($publisher->safe_psql('postgres', $hit), '1|0|waiting', 'it is hit at the publisher');
	is($subscriber->safe_psql('postgres', $hit), '1|0|unarmed', 'and at the subscriber') if $preload;
	$open[1]->query_safe('COMMIT');
	$_->quit for @open;
	wait_for($publisher, 'SELECT count(*) FROM delay_wheel_data.cancellation', 'it comes to its end', 60, expected => 0);
	same($subscriber, "$with, without it");
	is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.cancellation'), 0, 'also at the subscriber');

	# overdue at both: one runs it, and both lose it
	$publisher->safe_psql('postgres', "SELECT delay_reschedule($pending, '0')");
	nothing_due($publisher, "$with, it is run");
	same($subscriber, "$with, it is gone");
	is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel.tasks WHERE armed'), 0, 'nothing there is armed') if $preload;

	# the whole of a two-phase transaction
	my $empty = 'TRUNCATE effects, delay_wheel_data.task, delay_wheel_data.cancellation, delay_wheel_data.queue, delay_wheel_data.pause, delay_wheel_data.failed_task, delay_wheel_data.prepared';
	$subscriber->safe_psql('postgres', "DROP SUBSCRIPTION tasks; $empty");
	changes_only($subscriber) if $preload;
	$subscriber->safe_psql('postgres', $empty);
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION tasks CONNECTION '$connection' PUBLICATION everything WITH (two_phase = on)");
	$subscriber->wait_for_subscription_sync($publisher, 'tasks');
	traffic("$with, two_phase");
	same($subscriber, "$with, two_phase");
	no_errors($subscriber, $position, $with);
	no_errors($publisher, $publisher_position, "publisher, $with");

	# a role that is not there stops it, until it is
	$position = log_position($subscriber);
	$publisher->safe_psql('postgres', "CREATE ROLE role$preload LOGIN; SET SESSION AUTHORIZATION role$preload; SELECT delay_schedule('1 hour', 'SELECT 1')");
	ok(wait_until(60, sub { log_since($subscriber, $position) =~ /ERROR:  role "role$preload" does not exist/ }),
		'an owner that does not exist at the subscriber is told');
	$subscriber->safe_psql('postgres', "CREATE ROLE role$preload LOGIN");
	same($subscriber, 'it goes on when he does');

	# in binary, owners cannot be told
	$position = log_position($subscriber);
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION tasks SET (binary = true)');
	schedule($publisher, 'binary', '1 hour');
	schedule($publisher, "after binary $preload", '0');
	nothing_due($publisher, 'a task runs');
	caught_up();
	wait_for($subscriber, "SELECT count(*) FROM effects WHERE label = 'after binary $preload'", 'in binary, other tables are replicated', 60, expected => 1);
	is($subscriber->safe_psql('postgres', q{SELECT count(*) FROM delay_wheel_data.task WHERE args = '{binary}'}), 0, 'tasks are not');
	like(log_since($subscriber, $position), qr/WARNING:  subscription "tasks" does not replicate tasks of delay_wheel/, 'the log warns about tasks in the subscription');
	$publisher->safe_psql('postgres', q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE args = '{binary}'});
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION tasks SET (binary = false)');
	same($subscriber, 'in text they are again');

	# the publisher is gone: the subscriber takes over
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION tasks; TRUNCATE effects');
	if (!$preload)
	{
		$subscriber->append_conf('postgresql.conf', "shared_preload_libraries = 'delay_wheel'\n");
		$subscriber->restart;
		wait_for($subscriber, 'SELECT unarmed FROM delay_wheel.status', 'once it has the library, the view status tells', 60);
	}
	$subscriber->safe_psql('postgres', 'UPDATE delay_wheel_data.task SET due = now()');
	cmp_ok($subscriber->safe_psql('postgres', 'SELECT delay_wheel.arm()'), '>', 0, 'a subscriber that takes over arms the tasks');
	nothing_due($subscriber, 'which run there');
	is($subscriber->safe_psql('postgres', 'SELECT count(*) = count(DISTINCT label) AND count(*) > 0 FROM effects'), 't', 'each once');
	$subscriber->stop;
}

#
# Without the extension.
#
my $bare = new_node('bare', conf => $conf, preload => 0);
$bare->safe_psql('postgres', "$roles; $create");
my $subscribe = "CREATE SUBSCRIPTION tasks CONNECTION '$connection' PUBLICATION";
my ($rc, $out, $err) = $bare->psql('postgres', "$subscribe everything");
like($err, qr/(relation|schema) "delay_wheel[^"]*" does not exist/, 'a subscriber without the extension is told so');
$publisher->safe_psql('postgres', 'CREATE PUBLICATION without_tasks FOR TABLE effects');
$bare->safe_psql('postgres', "$subscribe without_tasks");
$bare->wait_for_subscription_sync($publisher, 'tasks');
schedule($publisher, 'of some tables', '0');
wait_for($bare, q{SELECT count(*) FROM effects WHERE label = 'of some tables'}, 'a publication of some tables does', 60, expected => 1);
$bare->safe_psql('postgres', 'DROP SUBSCRIPTION tasks; TRUNCATE effects; CREATE EXTENSION delay_wheel');
$bare->safe_psql('postgres', 'CREATE ROLE role1; CREATE ROLE role0');
$bare->safe_psql('postgres', "$subscribe everything");
$bare->wait_for_subscription_sync($publisher, 'tasks');
same($bare, 'so does the extension');

#
# From 19 on a publication can have sequences, too.
#
if ($publisher->pg_version->major >= 19)
{
	my $last = 'SELECT last_value FROM delay_wheel_data.task_id_seq';
	my $subscriber = new_node('sequences', conf => $conf);

	schedule($publisher, 'before sequences', '1 hour');
	$publisher->safe_psql('postgres', 'CREATE PUBLICATION with_sequences FOR ALL TABLES, ALL SEQUENCES');
	$bare->safe_psql('postgres', 'DROP SUBSCRIPTION tasks');
	$subscriber->safe_psql('postgres', "$roles; CREATE ROLE role0; CREATE ROLE role1; $create; $allow;
		SELECT setval('delay_wheel_data.task_id_seq', 1000000000)");
	$subscriber->safe_psql('postgres', "$subscribe with_sequences");
	$subscriber->wait_for_subscription_sync($publisher, 'tasks');
	wait_for($subscriber, $last, 'a subscriber has the numbers of the publisher, and not its own',
		60, expected => $publisher->safe_psql('postgres', $last));
	same($subscriber, 'and the tasks');

	schedule($publisher, 'after sequences', '1 hour');
	same($subscriber, 'and those that come');
	cmp_ok($subscriber->safe_psql('postgres', $last), '<', $publisher->safe_psql('postgres', $last), 'numbers do not come by changes');
	$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION tasks REFRESH SEQUENCES');
	wait_for($subscriber, $last, 'they come when they are asked for', 60, expected => $publisher->safe_psql('postgres', $last));
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION tasks');
	cmp_ok(schedule($subscriber, 'next', '1 hour'), '>', $publisher->safe_psql('postgres', 'SELECT max(id) FROM delay_wheel_data.task'),
		'who takes over goes on behind');
	$subscriber->stop;
}

done_testing();
