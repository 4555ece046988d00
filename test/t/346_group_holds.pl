# What held an ordered group back was cancelled, moved, changed, replaced, run, put back or ended by
# a function of ours: the group goes on at the commit, in whatever lanes its tasks wait, and does not
# wait for the next look, which may come 10 s later.  What is rolled back changes nothing.
#
#   DW_RACES   parts to run: tasks undone locked plain ended races messages

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $injection = has_injection();
my $node = new_node('group_holds', injection => $injection, conf => q{
log_statement = none
autovacuum = off
delay_wheel.max_executors = 6
});

sub query { return $node->safe_psql('postgres', $_[0]); }

sub as { my ($role, $sql) = @_; return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]); }

sub session { return $node->background_psql('postgres', on_error_stop => 0, timeout => 3 * $PostgreSQL::Test::Utils::timeout_default); }

query(q{
	CREATE ROLE anna LOGIN; CREATE ROLE berta LOGIN;
	SELECT delay_wheel.allow('public');
	SELECT delay_wheel.create_queue('held', groups => true, max_attempts => 3, users => '{public}', options => '{"group_order": "hold", "retry_delay": "1 hour"}');
	SELECT delay_wheel.create_queue('other', groups => true, users => '{public}');
	SELECT delay_wheel.create_queue('mail', external => true, groups => true, max_attempts => 3, users => '{public}', receivers => '{public}', options => '{"group_order": "hold", "retry_delay": "1 hour"}');
	SELECT delay_wheel.create_queue('other mail', external => true, groups => true, users => '{public}');
	CREATE TABLE ran (n bigserial, label text, of text, role name DEFAULT current_user, at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON ran, ran_n_seq TO PUBLIC;
});

# A task in group $of of this role; it notes that it has run.
sub put
{
	my ($role, $of, $label, $more) = @_;

	return as($role, sprintf q{SELECT delay_schedule_task('INSERT INTO ran (label, of) VALUES ($1, $2)', args => ARRAY['%s', '%s'], queue => 'held', group_key => '%2$s'%s)},
		$label, $of, call_args($more // ''));
}

# Tasks of two roles, and two priorities, that wait for the first one of their group.
sub put_others
{
	my ($of) = @_;

	put('anna', $of, 'other');
	put('berta', $of, 'other');
	put('berta', $of, 'other', ', priority => 5');
	return;
}

# The first task of a group has failed, and holds its group back for an hour.  Returns its id.
sub failed_first
{
	my ($of, $role, $more) = @_;
	my $id = as($role // 'anna', sprintf q{SELECT delay_schedule_task('SELECT 1 / 0', queue => 'held', group_key => '%s', tag => '%s', key => 'key of %1$s'%s)},
		$of, $of, $more // '');

	wait_for($node, "SELECT attempts FROM delay_wheel.tasks WHERE id = $id", "$of: the first one has failed", 60, expected => 1);
	return $id;
}

#
# Waits until the places of a group are held for long; returns until when they are.  Each lane looks again for
# itself, so on a busy machine they are not held until the same moment.
#
sub held
{
	my ($of, $places) = @_;
	my $until = '';

	$places //= 3;
	my $left = $places == 1 ? 4 : 2;
	ok(wait_until(60, sub {
		$until = query(qq{SELECT CASE WHEN count(*) = $places AND min(waits_until) > clock_timestamp() + interval '$left s' THEN min(waits_until)::text ELSE '' END
			FROM delay_wheel.groups WHERE group_key = '$of' AND state = 'held'});
		return $until ne '';
	}), "$of: the group is held, in each lane") or diag(query('SELECT * FROM delay_wheel.groups; SELECT * FROM delay_wheel.tasks'));
	return $until;
}

my $longest = 0;

# All others of the group have run, before anybody would have looked again.
sub goes_on
{
	my ($of, $until, $since, $others) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$others //= 3;
	wait_for($node, "SELECT count(*) FROM ran WHERE of = '$of' AND label = 'other'", "$of: the others run", 60, expected => $others);
	my ($late, $in_time) = split /\|/, query("SELECT extract(epoch FROM max(at) - '$since'), max(at) < '$until' FROM ran WHERE of = '$of' AND label = 'other'");
	is($in_time, 't', "$of: at once") or note("after $late s");
	$longest = $late if $late > $longest;
	return;
}

# Holds a group back, does something, and looks whether the others run then.
sub unblocks
{
	my ($of, $role, $sql) = @_;
	my $id = failed_first($of, $role eq 'postgres' ? 'anna' : $role);

	put_others($of);
	my $until = held($of);
	my $since = query('SELECT clock_timestamp()');
	$sql =~ s/\bID\b/$id/g;
	$sql =~ s/\bOF\b/$of/g;
	$role eq 'postgres' ? query($sql) : as($role, $sql);
	goes_on($of, $until, $since);
	return $id;
}

#
# What ends a hold
#
group(tasks => sub {
	for my $way (
		[ 'cancel', 'anna', 'SELECT delay_cancel(ID)' ],
		[ 'cancel key', 'berta', q{SELECT delay_cancel(key => 'key of OF', queue => 'held')} ],
		[ 'cancel all', 'anna', q{SELECT delay_cancel_all(tag => 'OF')} ],
		[ 'reschedule', 'anna', q{SELECT delay_reschedule(ID, '1 hour')} ],
		[ 'reschedule key', 'berta', q{SELECT delay_reschedule(key => 'key of OF', delay => '1 hour', queue => 'held')} ],
		[ 'update', 'anna', q{SELECT delay_update(ID, options => '{"to_queue": "other"}')} ],
		[ 'update key', 'anna', q{SELECT delay_update(key => 'key of OF', queue => 'held', options => '{"to_queue": "other"}')} ],
		[ 'replace', 'anna', q{SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'held', group_key => 'OF', key => 'key of OF', if_exists => 'replace')} ],
		[ 'replace elsewhere', 'anna', q{SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'held', group_key => 'elsewhere', key => 'key of OF', if_exists => 'replace')} ],
		[ 'earlier', 'anna', q{SELECT delay_schedule_task('SELECT 1', due => now(), queue => 'held', group_key => 'OF', key => 'key of OF', if_exists => 'earlier')} ],
		[ 'run', 'anna', q{DO $$ BEGIN PERFORM delay_run(ID); EXCEPTION WHEN division_by_zero THEN PERFORM delay_cancel(ID); END $$} ],
		[ 'savepoint', 'anna', 'BEGIN; SAVEPOINT s; SELECT delay_cancel(ID); RELEASE s; SAVEPOINT s; ROLLBACK TO s; COMMIT' ],
		[ 'exception', 'anna', q{DO $$ BEGIN BEGIN PERFORM delay_cancel(ID); RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END; PERFORM delay_cancel(ID); END $$} ],
		[ 'prepared', 'anna', q{BEGIN; SELECT delay_cancel(ID); PREPARE TRANSACTION 'OF'; COMMIT PREPARED 'OF'} ],
		[ 'many groups', 'anna', q{BEGIN;
			SELECT count(delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'held', group_key => 'many ' || i, tag => 'many')) FROM generate_series(1, 1200) i;
			SELECT count(delay_cancel(t.id)) FROM (SELECT id FROM delay_wheel.tasks WHERE tag = 'many' OR id = ID ORDER BY id DESC) t; COMMIT} ],
		[ 'in a task', 'anna', q{SELECT delay_schedule_task('SELECT delay_cancel($1)', args => ARRAY['ID'], queue => 'other', options => '{"arg_types": ["bigint"]}')} ],
		[ 'plain sql', 'postgres', q{UPDATE delay_wheel_data.task SET due = due + interval '1 hour' WHERE id = ID} ],
		[ 'passed by', 'postgres', q{SELECT delay_wheel.create_queue('held', options => '{"group_order": "pass"}')} ])
	{
		unblocks(@$way);
	}
	query(q{SELECT delay_wheel.create_queue('held', options => '{"group_order": "hold"}')});

	# the run of a recurring task
	as('anna', q{SELECT delay_every('each hour', '1 hour', 'SELECT 1 / 0', starts => clock_timestamp() + interval '200 ms', queue => 'held', options => '{"group_key": "recurring"}')});
	wait_for($node, q{SELECT attempts FROM delay_wheel.tasks WHERE group_key = 'recurring'}, 'recurring: a run has failed', 60, expected => 1);
	put_others('recurring');
	my $until = held('recurring');
	my $since = query('SELECT clock_timestamp()');
	as('anna', q{SELECT delay_unschedule('each hour')});
	goes_on('recurring', $until, $since);

	# the role of the first one is dropped
	query(q{CREATE ROLE cara LOGIN});
	failed_first('dropped', 'cara');
	put_others('dropped');
	$until = held('dropped', 4);
	$since = query('SELECT clock_timestamp()');
	query(q{DROP ROLE cara});
	goes_on('dropped', $until, $since);

	# one that comes before those that wait, while memory has no room for more of its group
	failed_first('full', 'anna');
	query(q{INSERT INTO delay_wheel_data.task (due, owner, queue, sql, group_key)
		SELECT now() + i * interval '1 us', 'anna'::regrole, q.id, 'INSERT INTO ran (label, of) VALUES (''other'', ''full'')', 'full' FROM delay_wheel_data.queue q, generate_series(1, 1500) i WHERE q.name = 'held'});
	wait_for($node, q{SELECT sum(ready) FROM delay_wheel.groups WHERE group_key = 'full'}, 'full: a thousand are in memory', 60, expected => 1000);
	$until = held('full', 1);
	as('anna', q{SELECT delay_schedule_task('INSERT INTO ran (label, of) VALUES ($1, $2)', args => '{first,full}', due => now() - interval '1 day', queue => 'held', group_key => 'full')});
	wait_for($node, q{SELECT count(*) FROM ran WHERE label = 'first' AND of = 'full'}, 'full: the first one runs', 60, expected => 1);
	is(query("SELECT at < '$until' FROM ran WHERE label = 'first' AND of = 'full'"), 't', 'full: at once');
	query(q{SELECT delay_cancel_all(queue => 'held')});
});

#
# What is undone: the first one holds its group back as before, and is not lost.
#
group(undone => sub {
	for my $way (
		[ 'rolled back', 'BEGIN; SELECT delay_cancel(ID); ROLLBACK' ],
		[ 'to a savepoint', q{BEGIN; SAVEPOINT s; SELECT delay_reschedule(ID, '1 hour'); ROLLBACK TO s; COMMIT} ],
		[ 'prepared in vain', q{BEGIN; SELECT delay_cancel(ID); PREPARE TRANSACTION 'OF'; ROLLBACK PREPARED 'OF'} ])
	{
		my ($of, $sql) = @$way;
		my $id = failed_first($of, 'anna');

		put_others($of);
		held($of);
		$sql =~ s/\bID\b/$id/g;
		$sql =~ s/\bOF\b/$of/g;
		as('anna', $sql);
		held($of);
		is(query("SELECT attempts FROM delay_wheel.tasks WHERE id = $id"), 1, "$of: the first one is still there");
		my $since = query('SELECT clock_timestamp()');
		as('anna', "SELECT delay_update($id, sql_text => 'INSERT INTO ran (label, of) VALUES (''first'', ''$of'')'); SELECT delay_reschedule($id, now() - interval '1 hour')");
		wait_for($node, "SELECT count(*) FROM ran WHERE of = '$of'", "$of: it runs in the end, and the others", 60, expected => 4);
		is(query("SELECT label FROM ran WHERE of = '$of' ORDER BY n LIMIT 1"), 'first', "$of: it runs first");
	}
});

#
# The first one is locked by an open transaction of ours, for long.
#
group(locked => sub {
	my @sessions = map { session() } 1 .. 4;
	my @ways = (
		[ 'cancelled late', q{SELECT delay_cancel(ID)}, 'COMMIT', 0 ],
		[ 'not cancelled', q{SELECT delay_cancel(ID)}, 'ROLLBACK', 1 ],
		[ 'not in the savepoint', q{SAVEPOINT s; SELECT delay_cancel(ID)}, 'ROLLBACK TO s', 1 ],
		[ 'kept', q{SELECT delay_schedule_task('SELECT 1', queue => 'held', group_key => 'kept', key => 'kept', if_exists => 'keep')}, 'COMMIT', 1 ]);

	query(q{SELECT delay_wheel.pause_queue('held')});
	for my $i (0 .. $#ways)
	{
		my ($of, $sql) = @{ $ways[$i] };
		my $id = put('anna', $of, 'first', ", key => '$of'");

		put_others($of);
		$sql =~ s/\bID\b/$id/;
		$sessions[$i]->query_safe("SET SESSION AUTHORIZATION anna; BEGIN; $sql");
	}
	query(q{SELECT delay_wheel.resume_queue('held')});
	for my $i (0 .. $#ways)
	{
		my ($of, undef, $end, $first) = @{ $ways[$i] };
		my $until = held($of);
		my $since = query('SELECT clock_timestamp()');

		$sessions[$i]->query_safe($end);
		goes_on($of, $until, $since);
		is(query("SELECT coalesce(string_agg(label, ' ' ORDER BY n), '') FROM ran WHERE of = '$of'"), $first ? 'first other other other' : 'other other other', "$of: the first one has run, or not");
	}
	$_->quit for @sessions;
});

#
# The first one is locked by plain SQL, and then no more, which nobody tells.  Its group is looked at
# again soon, also if that was its only task, or the others are in other lanes.
#
group(plain => sub {
	my @of = qw(same other alone);
	my (%lockers, %id);

	query(q{SELECT delay_wheel.pause_queue('held'); SELECT delay_wheel.pause_queue('mail')});
	for my $of (@of)
	{
		$id{$of} = put('anna', $of, 'first');
		put('anna', $of, 'other') if $of eq 'same';
		put_others($of) if $of eq 'other';
		$id{"mail $of"} = as('anna', "SELECT delay_send('mail', '\"first\"', group_key => '$of')");
		as('anna', "SELECT delay_send('mail', '\"other\"', group_key => '$of')") if $of eq 'same';
		as('berta', "SELECT delay_send('mail', '\"other\"', group_key => '$of')") if $of eq 'other';
	}
	my $locker = session();
	$locker->query_safe(sprintf 'BEGIN; SELECT id FROM delay_wheel_data.task WHERE id IN (%s) FOR UPDATE', join ', ', values %id);
	query(q{SELECT delay_wheel.resume_queue('held'); SELECT delay_wheel.resume_queue('mail')});
	is(query(q{CALL delay_await('mail', '60 s')}), 't', 'plain: messages are there');
	is(query(q{SELECT count(*) FROM delay_lease('mail', 10)}), 0, 'plain: they have to wait');
	# executors have met the locked rows, too
	wait_for($node, q{SELECT count(*) FROM delay_wheel.groups WHERE group_key IN ('same', 'other', 'alone') AND state = 'held' AND waits_until > clock_timestamp() + interval '1 s' AND queue = 'held'},
		'plain: the groups are held, in each lane', 60, expected => 5);
	is(query(q{SELECT count(*) FROM delay_wheel.lanes WHERE recheck_at IS NOT NULL}), 0, 'plain: no lane is to be looked at minutes later');
	$locker->query_safe('ROLLBACK');
	my $since = time;
	wait_for($node, q{SELECT count(*) FROM ran WHERE of IN ('same', 'other', 'alone')}, 'plain: all tasks run', 60, expected => 7);
	my $received = 0;
	ok(wait_until(60, sub {
		$received += query(q{CALL delay_await('mail', '1 s'); SELECT count(delay_done(id, token)) FROM delay_lease('mail', 10)}) =~ /^(\d+)$/m ? $1 : 0;
		return $received == 5;
	}), 'plain: all messages come') or diag("$received: " . query('SELECT * FROM delay_wheel.groups; SELECT * FROM delay_wheel.lanes'));
	note(sprintf 'plain: after %.1f s', time - $since);
	is(query(q{SELECT string_agg(label, ' ' ORDER BY of, n) FROM ran WHERE of IN ('same', 'other', 'alone')}), 'first first other other other first other', 'plain: in their order');
	$locker->quit;
});

#
# The first one ends without having begun: it has expired, or would be too late.  Executors of its role
# were busy until then.
#
group(ended => sub {
	my $busy = session();

	$busy->query_safe('SELECT pg_advisory_lock(1)');
	query(q{GRANT SELECT ON delay_wheel.tasks TO PUBLIC});
	as('berta', q{SELECT delay_schedule_task('SELECT pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1)', queue => 'held') FROM generate_series(1, 4)});
	wait_for($node, q{SELECT running FROM delay_wheel.lanes WHERE queue = 'held' AND owner = 'berta' AND priority = 0}, 'all executors of a lane are busy', 60, expected => 4);
	put('berta', 'expired', 'first', q{, expires => '100 ms'});
	put('berta', 'skipped', 'first', q{, skip_after => '100 ms'});
	put('anna', $_, 'other') for qw(expired skipped);
	my %until = map { $_ => held($_, 1) } qw(expired skipped);
	my $since = query('SELECT clock_timestamp()');
	$busy->quit;
	goes_on($_, $until{$_}, $since, 1) for qw(expired skipped);
	is(query(q{SELECT count(*) FROM ran WHERE label = 'first' AND of IN ('expired', 'skipped')}), 0, 'what has expired has not run');
});

#
# The first one is cancelled between an executor's look and its decision to wait
#
group(races => sub {
	return if !$injection;
	query(q{SELECT delay_wheel.create_queue('held', options => '{"retry_delay": "1 hour"}')});
	my $id = failed_first('race', 'anna');

	attach($node, 'order-before-hold', 'wait', 0, 1);
	put('berta', 'race', 'other');
	wait_until_waiting($node, 'order-before-hold');
	as('anna', "SELECT delay_cancel($id)");
	my $since = query('SELECT clock_timestamp()');
	detach($node, 'order-before-hold');
	goes_on('race', query("SELECT timestamptz '$since' + interval '4 s'"), $since, 1);

	# it is cancelled by a mark
	$id = failed_first('mark', 'anna');
	attach($node, 'order-before-hold', 'wait', 0, 1);
	put('berta', 'mark', 'other');
	wait_until_waiting($node, 'order-before-hold');
	as('anna', q{SELECT delay_cancel_all(tag => 'mark')});
	# the timer has seen it
	wait_for($node, q{SELECT count(*) FROM delay_wheel_data.task WHERE tag = 'mark'}, 'the mark was swept', 60, expected => 0);
	$since = query('SELECT clock_timestamp()');
	detach($node, 'order-before-hold');
	goes_on('mark', query("SELECT timestamptz '$since' + interval '4 s'"), $since, 1);
});

note(sprintf 'tasks: %.3f s at the most', $longest);

#
# Messages
#
group(messages => sub {
	my $waiter = session();

	for my $way (
		[ 'cancel', 'SELECT delay_cancel(ID)' ],
		[ 'cancel key', q{SELECT delay_cancel(key => 'key of OF', queue => 'mail')} ],
		[ 'cancel all', q{SELECT delay_cancel_all(tag => 'OF')} ],
		[ 'reschedule', q{SELECT delay_reschedule(ID, '1 hour')} ],
		[ 'update', q{SELECT delay_update(ID, options => '{"to_queue": "other mail"}')} ],
		[ 'replace', q{SELECT delay_send('mail', '"new"', delay => '1 hour', key => 'key of OF', group_key => 'elsewhere', if_exists => 'replace')} ],
		[ 'prepared', q{BEGIN; SELECT delay_cancel(ID); PREPARE TRANSACTION 'OF'; COMMIT PREPARED 'OF'} ],
		[ 'passed by', q{SELECT delay_wheel.create_queue('mail', options => '{"group_order": "pass"}')} ])
	{
		my ($of, $sql) = @$way;
		my $id = query("SELECT delay_send('mail', '\"first\"', key => 'key of $of', tag => '$of', group_key => '$of')");

		is(query(q{CALL delay_await('mail', '60 s')}), 't', "$of: a message is there");
		is(query("SELECT delay_fail(id, token, 'no', '1 hour') FROM delay_lease('mail') WHERE id = $id"), 't', "$of: it has failed");
		as($_, "SELECT delay_send('mail', '\"other\"', group_key => '$of')") for qw(anna berta);
		wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, "$of: it waits for its next attempt, and two more with it", 60, expected => 3);
		is(query(q{SELECT count(*) FROM delay_lease('mail', 10)}), 0, "$of: they have to wait");
		$waiter->query_until(qr/^waits$/m, "\\echo waits\nCALL delay_await('mail', '60 s');\n\\echo ended\n");
		wait_for($node, q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'mail'}, "$of: a session waits", 60, expected => 1);
		my $until = held($of);
		$sql =~ s/\bID\b/$id/g;
		$sql =~ s/\bOF\b/$of/g;
		query($sql);
		ok(wait_until(60, sub { $waiter->{run}->pump_nb; return $waiter->{stdout} =~ /^ended$/m }), "$of: it is woken");
		is(query("SELECT clock_timestamp() < '$until'"), 't', "$of: at once");
		$waiter->{stdout} = '';
		is(query(q{SELECT payload FROM delay_lease('mail', 10)}), '"other"', "$of: it can be received");
		# the lease, and what it keeps back
		query(q{SELECT count(delay_cancel(id, stop_running => true)) FROM delay_wheel.tasks WHERE queue = 'mail'});
		wait_for($node, q{SELECT count(*) FROM delay_wheel.tasks WHERE queue = 'mail'}, "$of: all is gone", 60, expected => 0);
		query(q{SELECT count(*) FROM delay_lease('mail', 10)});
		wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'mail'}, "$of: and forgotten", 60, expected => 0);
	}
	$waiter->quit;
});

$node->stop;
done_testing();
