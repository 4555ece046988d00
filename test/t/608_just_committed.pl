# What was just committed: what of it is overdue comes in the order of due times; and the session
# that has committed messages, or given them back, can receive them at once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('just_committed', conf => q{
log_statement = none
autovacuum = off
});

sub query { return $node->safe_psql('postgres', $_[0]); }

sub session { return $node->background_psql('postgres', on_error_stop => 0, timeout => 3 * $PostgreSQL::Test::Utils::timeout_default); }

query(q{
	SELECT delay_queue('one', max_running => 1), delay_queue('grouped', groups => true, group_order => 'pass'),
		delay_queue('mail', external => true), delay_queue('grouped mail', external => true, groups => true), delay_queue('other mail', external => true);
	CREATE TABLE ran (n bigserial, label text, due int);
	CREATE TABLE numbers AS SELECT n, (n * 7) % 31 AS ago FROM generate_series(1, 30) n;
});

#
# Order
#
my $rounds = long_tests() ? 100 : 20;
my @kinds = (
	[ 'in a queue', q{SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], arg_types => '{text,int}', due => now() - ago * interval '2 ms', queue => 'one') FROM numbers ORDER BY n} ],
	[ 'of groups', q{SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], arg_types => '{text,int}', due => now() - ago * interval '2 ms', queue => 'grouped', group_key => 'g') FROM numbers ORDER BY n} ],
	[ 'by several statements', q{BEGIN; SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], arg_types => '{text,int}', due => now() - ago * interval '2 ms', queue => 'one') FROM numbers WHERE n < 15 ORDER BY n;
		SAVEPOINT s; SELECT delay_schedule_task('SELECT 1', queue => 'one'); ROLLBACK TO s;
		SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], arg_types => '{text,int}', due => now() - ago * interval '2 ms', queue => 'one') FROM numbers WHERE n >= 15 ORDER BY n; COMMIT} ],
	[ 'moved', q{BEGIN; SELECT delay_schedule_task('INSERT INTO ran (label, due) VALUES ($1, $2)', args => ARRAY[LABEL, ago::text], arg_types => '{text,int}', delay => '1 hour', queue => 'one', tag => LABEL) FROM numbers ORDER BY n;
		SELECT delay_reschedule_at(id, now() - (args[2])::int * interval '2 ms') FROM (SELECT id, args FROM delay_wheel.tasks WHERE tag = LABEL ORDER BY id) t; COMMIT} ]);

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
		my $n = 0;
		wait_until(60, sub {
			my $more = $one->query_safe("BEGIN; SELECT coalesce(string_agg(payload::text, ' '), '') FROM delay_receive('$queue', 100); COMMIT");
			$got .= " $more" if $more ne '';
			return split(' ', $got) == 30;
		});
		$wrong++ if join(' ', split ' ', $got) ne join(' ', sort { $b <=> $a } split ' ', $got);
	}
	is($wrong, 0, "messages of $queue that are overdue when they are sent come in the order of due times");
}

#
# A session receives what it has just committed.
#
my $tries = long_tests() ? 5000 : 500;

# One session does this again and again, and looks each time for what it has committed.
sub misses
{
	my ($what, $before, $ask) = @_;
	my @answers = split /\n/, query("\\set QUIET\n\\o /dev/null\n" . "$before;\n\\o\n$ask;\n\\o /dev/null\n" x $tries);

	is(scalar(@answers), $tries, "$what: each try has an answer");
	is(scalar(grep { $_ eq '0' || $_ eq 'f' } @answers), 0, "$what: in none of $tries tries nothing is found");
	query(q{SELECT count(delay_cancel(id, stop_running => true)) FROM delay_wheel.tasks});
	return;
}
my $count = q{SELECT count(*) FROM delay_receive('mail', 10, autocommit => true)};
my $receive = q{BEGIN; SELECT payload FROM delay_receive('mail'); COMMIT};
misses('sent', q{SELECT delay_send('mail', '"x"')}, $count);
misses('sent in a block', q{BEGIN; SELECT delay_send('mail', '"x"'); SELECT delay_send('other mail', '"y"', delay => '1 hour'); COMMIT}, $count);
misses('moved', q{BEGIN; SELECT delay_reschedule(delay_send('mail', '"x"', delay => '1 hour'), '0 s'); COMMIT}, $count);
misses('rolled back', q{SELECT delay_send('mail', '"x"'); BEGIN; SELECT count(*) FROM delay_receive('mail', 10); ROLLBACK}, $count);
misses('for a lease', q{SELECT delay_send('mail', '"x"')}, q{SELECT count(*) FROM delay_lease('mail', 10)});
misses('released', q{SELECT delay_send('mail', '"x"'); SELECT delay_release(id, token) FROM delay_lease('mail')}, $count);
misses('awaited', qq{$count; SELECT delay_send('mail', '"x"')}, q{CALL delay_await('mail', '0')});
misses('by plain SQL', q{INSERT INTO delay_wheel.task (due, queue, payload) SELECT now(), id, '"x"' FROM delay_wheel.queue WHERE name = 'mail'}, $count);
misses('after a pause', q{BEGIN; SELECT delay_pause('mail'); SELECT delay_send('mail', '"x"'); COMMIT; SELECT delay_resume('mail')}, $count);

#
# It does not wait for long, nor for nothing.
#
my ($timer) = worker_pids($node, 'timer');
my $two = session();

# The shortest of some calls, in s
sub shortest
{
	my ($session, $before) = @_;
	my $best = 1000;

	for (1 .. 5)
	{
		$session->query_safe($before) if $before;
		my $at = time;
		$session->query_safe($receive);
		$best = time - $at if time - $at < $best;
	}
	return $best;
}
kill 'STOP', $timer;
cmp_ok(shortest($two, ''), '<', 0.09, 'a session that has committed nothing does not wait for a timer that stands still');
cmp_ok(shortest($one, q{SELECT delay_send('mail', '"x"', delay => '1 hour')}), '<', 0.09, 'nor one whose messages are due later');
$one->query_safe(q{SELECT delay_send('mail', '"late"')});
my $began = time;
is($one->query_safe($receive), '', 'one that has sent something waits, finds nothing');
cmp_ok(time - $began, '>=', 0.1, 'after it has waited');
cmp_ok(shortest($one, ''), '<', 0.09, 'and does not wait for it again');
is(query(qq{SELECT delay_send('mail', '"later"') > 0; SET statement_timeout = '20ms';
	DO \$\$ BEGIN PERFORM delay_receive FROM delay_receive('mail'); EXCEPTION WHEN query_canceled THEN RAISE WARNING 'cancelled'; END \$\$;
	RESET statement_timeout; SELECT count(*) FROM delay_wheel.tasks WHERE payload = '"later"'}), "t\n1", 'the wait can be cancelled');
kill 'CONT', $timer;
my %got;
wait_until(60, sub {
	$got{$_}++ for grep { /late/ } split /\n/, $one->query_safe(q{BEGIN; SELECT payload FROM delay_receive('mail', 10); COMMIT});
	return $got{'"late"'} && $got{'"later"'};
});
is(join(' ', map { "$_ $got{$_}" } sort keys %got), '"late" 1 "later" 1', 'nothing is lost');
$_->quit for $one, $two;

$node->stop;
done_testing();
