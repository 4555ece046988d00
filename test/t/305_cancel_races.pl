# Cancelling against running: two sessions cancel each task at just about its
# due time.  Whatever they were told is what has happened, and each task was
# either cancelled or run, none both, none neither.
#
# 4,000 tasks; 100,000 with DW_LONG.

use strict;
use warnings;
use DelayWheel;
use PostgreSQL::Test::Utils;
use Test::More;

my $ntasks = long_tests() ? 100_000 : 4_000;
my $a_second = 1_000;
my $node = new_node('cancel_races');

$node->safe_psql('postgres', q{
	CREATE TABLE task (id bigint PRIMARY KEY, n int, due timestamptz);
	CREATE TABLE ran (id bigint PRIMARY KEY);
	CREATE TABLE told (id bigint PRIMARY KEY, answer text);
	-- cancels every second task, in the order of due times, each around its own
	CREATE PROCEDURE cancel_at_due(turn int) LANGUAGE plpgsql AS $$
	DECLARE
		t task;
	BEGIN
		FOR t IN SELECT * FROM task WHERE n % 2 = turn ORDER BY due LOOP
			t.due := t.due + (random() * 0.001 - 0.0003) * interval '1 second';
			WHILE clock_timestamp() < t.due LOOP
				PERFORM pg_sleep(extract(epoch FROM t.due - clock_timestamp()) / 2);
			END LOOP;
			INSERT INTO told VALUES (t.id, delay_cancel(t.id));
			COMMIT;
		END LOOP;
	END $$});
$node->safe_psql('postgres', qq{
	INSERT INTO task
	SELECT delay_schedule(interval '3 seconds' + n * interval '1 second' / $a_second,
		'INSERT INTO ran VALUES (current_setting(''delay_wheel.task_id'')::bigint); SELECT pg_sleep(0.0004)'),
		n, now() + interval '3 seconds' + n * interval '1 second' / $a_second
	FROM generate_series(1, $ntasks) n});

my @sessions = map {
	my ($in, $out, $err) = ("SET synchronous_commit = off; CALL cancel_at_due($_)", '', '');
	my $handle = IPC::Run::start(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ],
		\$in, \$out, \$err, IPC::Run::timer(600));
	{ handle => $handle, err => \$err };
} (0, 1);
for my $session (@sessions)
{
	IPC::Run::finish($session->{handle});
	is(${ $session->{err} }, '', 'a session has cancelled what it could');
}
wait_for($node, 'SELECT count(*) FROM delay_wheel_data.task', 'nothing is left', 60, expected => 0);

is($node->safe_psql('postgres', 'SELECT count(*) FROM told'), $ntasks, 'each task had an answer');
is($node->safe_psql('postgres', q{
		SELECT count(*) FROM task LEFT JOIN told USING (id) LEFT JOIN ran ON ran.id = task.id
		WHERE (told.answer = 'cancelled') = (ran.id IS NOT NULL)}),
	0, 'each was cancelled or run, as it was told, none both, none neither');
is($node->safe_psql('postgres', 'SELECT count(*) FROM delay_wheel_data.failed_task'), 0, 'none failed');
my $answers = $node->safe_psql('postgres',
	q{SELECT string_agg(answer || ' ' || n, ', ' ORDER BY answer) FROM (SELECT answer, count(*) AS n FROM told GROUP BY 1) t});
note("answers: $answers");
like($answers, qr/cancelled \d+, gone \d+, running \d+/, 'the race was open');

$node->stop;
done_testing();
