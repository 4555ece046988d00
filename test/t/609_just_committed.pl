# What is overdue when it is committed comes in the order of due times.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('just_committed', conf => q{
log_statement = none
autovacuum = off
});

sub query { return $node->safe_psql('postgres', $_[0]); }

sub session { return $node->background_psql('postgres', on_error_stop => 0, timeout => 3 * $PostgreSQL::Test::Utils::timeout_default); }

query(q{
	SELECT delay_wheel.create_queue('one', max_running => 1), delay_wheel.create_queue('grouped', groups => true, options => '{"group_order": "pass"}'),
		delay_wheel.create_queue('mail', external => true), delay_wheel.create_queue('grouped mail', external => true, groups => true), delay_wheel.create_queue('other mail', external => true);
	CREATE TABLE ran (n bigserial, label text, due int);
	CREATE TABLE numbers AS SELECT n, (n * 7) % 31 AS ago FROM generate_series(1, 30) n;
});

#
# Order
#
my $rounds = long_tests() ? 100 : 20;
my @kinds = (
	[ 'in a queue', q{SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], due => now() - ago * interval '2 ms', queue => 'one', options => '{"arg_types": ["text", "int"]}') FROM numbers ORDER BY n} ],
	[ 'of groups', q{SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], due => now() - ago * interval '2 ms', queue => 'grouped', group_key => 'g', options => '{"arg_types": ["text", "int"]}') FROM numbers ORDER BY n} ],
	[ 'by several statements', q{BEGIN; SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], due => now() - ago * interval '2 ms', queue => 'one', options => '{"arg_types": ["text", "int"]}') FROM numbers WHERE n < 15 ORDER BY n;
		SAVEPOINT s; SELECT delay_schedule_task('SELECT 1', queue => 'one'); ROLLBACK TO s;
		SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], due => now() - ago * interval '2 ms', queue => 'one', options => '{"arg_types": ["text", "int"]}') FROM numbers WHERE n >= 15 ORDER BY n; COMMIT} ],
	[ 'moved', q{BEGIN; SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], delay => '1 hour', queue => 'one', tag => LABEL, options => '{"arg_types": ["text", "int"]}') FROM numbers ORDER BY n;
		SELECT delay_reschedule(id, now() - (args[2])::int * interval '2 ms') FROM (SELECT id, args FROM delay_wheel.tasks WHERE tag = LABEL ORDER BY id) t; COMMIT} ]);

for my $kind (@kinds)
{
	my ($what, $sql) = @$kind;

	for my $round (1 .. $rounds)
	{
		(my $now = $sql) =~ s/LABEL/'$what $round'/g;
		query($now);
	}
	wait_for($node, "SELECT count(*) FROM ran WHERE label LIKE '$what %'", "tasks $what run", 120, expected => 30 * $rounds);
	is(query("SELECT count(*) FROM (SELECT due > lag(due) OVER (PARTITION BY label ORDER BY n) AS early FROM ran WHERE label LIKE '$what %') o WHERE early"), 0,
		"tasks $what that are overdue when they are committed run in the order of due times");
}

my $one = session();
for my $queue ('mail', 'grouped mail')
{
	my $wrong = 0;

	for my $round (1 .. $rounds)
	{
		query("SELECT delay_send('$queue', to_jsonb(ago), due => now() - ago * interval '2 ms'"
			  . ($queue eq 'mail' ? '' : q{, group_key => 'g'}) . ') FROM numbers ORDER BY n');
		my $got = '';
		wait_until(60, sub {
			my $more = $one->query_safe("BEGIN; SELECT coalesce(string_agg(payload::text, ' '), '') FROM delay_receive('$queue', 100); COMMIT");
			$got .= " $more" if $more ne '';
			return split(' ', $got) == 30;
		});
		$wrong++ if join(' ', split ' ', $got) ne join(' ', sort { $b <=> $a } split ' ', $got);
	}
	is($wrong, 0, "messages of $queue that are overdue when they are sent come in the order of due times");
}

# A session that polls may look before the timer has taken what was committed; it need only look again.
query(q{SELECT delay_cancel(id) FROM delay_wheel.tasks});
for (1 .. $rounds)
{
	$one->query_safe(q{SELECT delay_send('mail', '"own"')});
	my $seen = wait_until(60, sub { $one->query_safe(q{BEGIN; SELECT payload FROM delay_receive('mail'); COMMIT}) eq '"own"' });
	ok($seen, 'a session finds what it has sent, at once or a moment later') unless $seen;
}
$one->query_safe(q{SELECT delay_send('mail', '"awaited"')});
like($one->query_safe(q{CALL delay_await('mail', '60 s'); SELECT payload FROM delay_lease('mail')}), qr/"awaited"/, 'delay_await() waits for it');
$one->quit;

$node->stop;
done_testing();
