# A session that has committed tasks, or messages, is stopped before it tells the timer of
# them, or of the rest of them, and the timer loads them meanwhile.  They are in memory once:
# nobody takes them, so they would be counted twice for ever.  And leases that a load meets.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the build with injection points' if !has_injection();

my $node = new_node('loaded', injection => 1, conf => q{
log_statement = none
autovacuum = off
});

sub query { return $node->safe_psql('postgres', $_[0]); }

# The timer has taken all hints that were sent so far: it takes them in their order.
sub is_told
{
	my ($queue) = @_;

	query("SELECT delay_wheel.create_queue('$queue', external => true); SELECT delay_send('$queue', '1')");
	return wait_for($node, "SELECT ready >= 1 FROM delay_wheel.queues WHERE name = '$queue'", "$queue: the timer has taken all hints");
}

my %kinds = (
	external => q{external => true},
	grouped => q{external => true, groups => true},
	tasks => call_args(q{batch => false}));

query(q{CREATE FUNCTION put(queue text) RETURNS bigint LANGUAGE plpgsql AS $$
	BEGIN
		IF queue ~ 'tasks' THEN
			RETURN delay_schedule_task('SELECT 1', queue => queue);
		END IF;
		RETURN delay_send(queue, '1', group_key => CASE WHEN queue ~ 'grouped' THEN 'g' END);
	END $$});
for my $kind (sort keys %kinds)
{
	# the point, how often it is passed by, what makes the timer load the lane
	for my $stop ([ 'commit-before-hints', 0, sub { query('UPDATE delay_wheel_data.task SET due = due WHERE false') } ],
		[ 'commit-before-far', 1, sub { is_told("$kind, load") } ])
	{
		my ($point, $skip, $load) = @$stop;
		my $queue = $kind . ($skip ? '_2' : '_1');
		my $session = $node->background_psql('postgres', on_error_stop => 0);

		query("SELECT delay_wheel.create_queue('$queue', $kinds{$kind})");
		query("SELECT delay_wheel.pause_queue('$queue')") if $kind eq 'tasks';
		is_told("$queue, before");
		attach($node, $point, 'wait', $skip, 1);
		$session->query_until(qr/^sent$/m, "\\echo sent\nSELECT count(put('$queue')) FROM generate_series(1, 4);\n");
		wait_until_waiting($node, $point, "$queue: a session has committed messages");
		$load->();
		wait_for($node, "SELECT ready = 4 FROM delay_wheel.queues WHERE name = '$queue'", "$queue: they are loaded");
		detach($node, $point);
		$session->quit;
		is_told("$queue, after");
		is(query("SELECT ready FROM delay_wheel.queues WHERE name = '$queue'"), 4, "$queue: each is in memory once");

		# taken out of memory and put back, they are told of again, and that counts
		next if $kind eq 'tasks';
		is(query("BEGIN; SELECT count(*) FROM delay_receive('$queue', 4); ROLLBACK"), 4, "$queue: they are received, and rolled back");
		wait_for($node, "SELECT ready = 4 FROM delay_wheel.queues WHERE name = '$queue'", "$queue: and are due again");
	}
}

# A lease whose row a load has met: its message is in memory once when it ends, and not at all if
# its receiver was done with it.
query(q{SELECT delay_wheel.create_queue('leased', external => true); SELECT count(delay_send('leased', to_jsonb(i))) FROM generate_series(1, 3) i});
wait_for($node, q{SELECT ready = 3 FROM delay_wheel.queues WHERE name = 'leased'}, 'messages are due');
is(query(q{SELECT count(*) FROM delay_lease('leased', 2, '3 s')}), 2, 'some are leased');
is(query(q{SELECT count(*) FROM delay_lease('leased', 1, '1 hour')}), 1, 'one is leased for longer');
query('VACUUM delay_wheel_data.task');
query('UPDATE delay_wheel_data.task SET due = due WHERE false');
is_told('leased, loaded');
is(query(q{SELECT near, ready, leased FROM delay_wheel.queues WHERE name = 'leased'}), '0|0|3', 'they are not in memory');
my $leases = q{delay_wheel_data.task t JOIN delay_wheel_data.queue q ON q.id = t.queue WHERE q.name = 'leased' AND token IS NOT NULL};
is(query("SELECT delay_done(id, token) FROM (SELECT t.id, t.token FROM $leases ORDER BY t.due LIMIT 1) l"), 't', 'one is done');
wait_for($node, q{SELECT ready = 1 FROM delay_wheel.queues WHERE name = 'leased'}, 'the other short lease ends');
# plain SQL tells of no lease, and no other one ends in the next hour
query("UPDATE delay_wheel_data.task SET due = clock_timestamp() + '1 s' WHERE id = (SELECT t.id FROM $leases AND t.due > now() + '1 min')");
wait_for($node, "SELECT count(*) = 2 FROM $leases AND t.due < clock_timestamp()", 'the last one ends, which plain SQL has made shorter');
wait_for($node, q{SELECT ready >= 2 FROM delay_wheel.queues WHERE name = 'leased'}, 'its message is due, too');
is_told('leased, ended');
is(query(q{SELECT near, ready, leased FROM delay_wheel.queues WHERE name = 'leased'}), '0|2|0', 'each is in memory once');
is(query(q{SELECT count(*) FROM delay_lease('leased', 10)}), 2, 'and is leased again');

$node->stop;
done_testing();
