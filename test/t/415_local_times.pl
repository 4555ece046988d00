# Tasks that are due at a local time follow their zone when its rules change.  A test cannot change
# the server's time zone data, so it changes what rows say that the zone has said before.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $injection = has_injection();
my $node = new_node('local_times', injection => $injection);
$node->safe_psql('postgres', q{
	CREATE TABLE effect (label text);
	CREATE ROLE app LOGIN;
	SELECT delay_wheel.allow('app');
	GRANT INSERT ON effect TO app;
	SELECT delay_wheel.create_queue('spread', users => '{app}', options => '{"spread": "1 hour"}');
});
my $zone = 'Europe/Berlin';

# Makes the sweeper look, as it does once a day: a timer that starts asks for that.
sub look
{
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer'});
	return;
}

# The ids of new tasks, all due at noon in July of 2099, with other options of each.
sub schedule
{
	my ($user, @options) = @_;
	return map {
		$node->safe_psql('postgres', "SELECT delay_schedule_local('2099-07-01 12:00', '$zone', 'INSERT INTO effect VALUES (1)'" . call_args($_) . ')',
			extra_params => [ '-U', $user ])
	} @options;
}

# Makes a task one that was scheduled when the zone said so much more for its local time.
sub was_later
{
	my ($id, $interval) = @_;
	$node->safe_psql('postgres', qq{
		UPDATE delay_wheel_data.task SET due = due + '$interval',
			more = jsonb_set(more, '{local,instant}', to_jsonb((more->'local'->'instant')::bigint + (extract(epoch FROM '$interval'::interval) * 1000000)::bigint))
		WHERE id = $id});
	return;
}

# What a task has, but for what depends on where its row is.
sub row_of
{
	my ($id) = @_;
	return $node->safe_psql('postgres', "SELECT to_jsonb(t) FROM delay_wheel_data.task t WHERE id = $id");
}

my @ids = schedule('app', '', q{, key => 'k', tag => 't', priority => 3, expires => '1 hour', max_attempts => 3, keep_settings => '{TimeZone}'},
	q{, queue => 'spread'}, '', '');
my @before = map { row_of($_) } @ids;
my ($moved) = schedule('postgres', '');
my $ordinary = $node->safe_psql('postgres', q{SELECT delay_schedule_at('2099-07-01 12:00', 'SELECT 1')});
my $ordinary_row = row_of($ordinary);

was_later($ids[0], '1 hour');
was_later($ids[1], '-1 hour');
was_later($ids[2], '30 min');
my $start = log_position($node);
$node->restart;
wait_for($node, qq{SELECT count(*) FROM delay_wheel_data.task WHERE id = $ids[0] AND due = '2099-07-01 12:00 $zone'}, 'after a start the tasks follow', 60, expected => 1);
wait_for($node, "SELECT string_agg(to_jsonb(t)::text, ' ' ORDER BY id) FROM delay_wheel_data.task t WHERE id IN (@{[join ',', @ids[0 .. 2]]})",
	'all of each is as it was: owner, key, queue with its spread, options', 60, expected => join ' ', @before[0 .. 2]);
is(row_of($ids[3]), $before[3], 'one whose zone has the same rules stays');
is(row_of($ordinary), $ordinary_row, 'and one without a local time');
ok(wait_until(60, sub { log_since($node, $start) =~ /has moved 3 tasks to other due times/ }), 'the log says so');

# What is locked, not committed, not ours, or makes no sense.
my $locker = $node->background_psql('postgres', on_error_stop => 1);
was_later($ids[0], '1 hour');
was_later($ids[3], '1 hour');
$node->safe_psql('postgres', "UPDATE delay_wheel_data.task SET origin = 7 WHERE id = $ids[3]");
my $foreign = row_of($ids[3]);
$node->safe_psql('postgres', qq{
	UPDATE delay_wheel_data.task SET more = '{"local": {"time": 1, "zone": "No/Where", "instant": 5}}' WHERE id = $ids[4];
	UPDATE delay_wheel_data.task SET more = '{"local": ["UTC"]}' WHERE id = $moved;
	BEGIN;
	SELECT delay_schedule_local('2099-07-01 12:00', '$zone', 'SELECT 1', tag => 'prepared');
	UPDATE delay_wheel_data.task SET due = due + '1 hour', more = jsonb_set(more, '{local,instant}', to_jsonb((more->'local'->'instant')::bigint + 3600000000)) WHERE tag = 'prepared';
	PREPARE TRANSACTION 'local';
});
my @nonsense = map { row_of($_) } $ids[4], $moved;
my ($last) = schedule('app', '');
was_later($last, '1 hour');
look();
wait_for($node, qq{SELECT count(*) FROM delay_wheel_data.task WHERE id IN ($ids[0], $last) AND due = '2099-07-01 12:00 $zone'}, 'the others follow', 60, expected => 2);
is(row_of($ids[3]), $foreign, 'one that came with a copy stays');
is(join(' ', map { row_of($_) } $ids[4], $moved), "@nonsense", 'rows without a valid local time stay as they are');
$node->safe_psql('postgres', q{COMMIT PREPARED 'local'});
is($node->safe_psql('postgres', "SELECT due = '2099-07-01 13:00 $zone' FROM delay_wheel_data.task WHERE tag = 'prepared'"), 't', 'one that was prepared meanwhile is not seen yet');
look();
wait_for($node, "SELECT due = '2099-07-01 12:00 $zone' FROM delay_wheel_data.task WHERE tag = 'prepared'", 'it follows later', 60, expected => 't');

# A task that becomes due by it runs.
my $soon = $node->safe_psql('postgres', qq{SELECT delay_schedule_local(now() AT TIME ZONE 'Asia/Tokyo' - interval '1 min', 'Asia/Tokyo', 'INSERT INTO effect VALUES (''soon'')') FROM delay_pause_all()});
was_later($soon, '1 day');
$node->safe_psql('postgres', 'SELECT delay_resume_all()');
look();
wait_for($node, q{SELECT count(*) FROM effect WHERE label = 'soon'}, 'a task that becomes due is run', 60, expected => 1);

SKIP:
{
	skip 'needs the build with injection points', 4 unless $injection;

	# a row that is locked is tried again
	$node->safe_psql('postgres', "SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE id <> $ids[0]");
	was_later($ids[0], '1 hour');
	attach($node, 'local-before-delete', 'wait', 0, 1);
	look();
	wait_until_waiting($node, 'local-before-delete', 'the sweeper is about to move a task');
	$locker->query_safe("BEGIN; SELECT FROM delay_wheel_data.task WHERE id = $ids[0] FOR UPDATE");
	detach($node, 'local-before-delete');
	wait_for($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel sweeper'}, 'the sweeper goes on', 60, expected => 0);
	is($node->safe_psql('postgres', "SELECT due = '2099-07-01 13:00 $zone' FROM delay_wheel_data.task WHERE id = $ids[0]"), 't', 'what is locked stays');
	$locker->query_safe('COMMIT');
	wait_for($node, "SELECT due = '2099-07-01 12:00 $zone' FROM delay_wheel_data.task WHERE id = $ids[0]", 'it is looked at again', 60, expected => 't');
}

$locker->quit;
$node->stop;

#
# Once a day; the server goes by a clock of its own, see 520_clock.
#
my $tempdir = PostgreSQL::Test::Utils::tempdir();
my ($shim, $file) = ("$tempdir/clock_shim.so", "$tempdir/clock");

sub set_clock
{
	my ($days) = @_;
	# as a whole: processes have mapped the file
	open(my $out, '+<:raw', $file) or die "$file: $!";
	syswrite($out, pack('q', $days * 86400 * 1_000_000)) == 8 or die "$file: $!";
	close $out;
	return;
}

SKIP:
{
	skip 'needs the build with injection points', 3 unless $injection;
	skip 'the clock is set on Linux only', 3 if $^O ne 'linux';
	skip 'the shim and the sanitizers are in each other\'s way', 3 if $ENV{DW_SANITIZE};
	skip 'there is no C compiler for the clock shim', 3
		if system($ENV{CC} // 'cc', '-O2', '-shared', '-fPIC', '-o', $shim, "$FindBin::RealBin/../tools/clock_shim.c", '-ldl') != 0;

	$node = new_node('local_days', start => 0, injection => 1);
	append_to_file($file, pack('q', 0));
	{
		local $ENV{LD_PRELOAD} = $shim;
		local $ENV{DW_CLOCK_FILE} = $file;
		$node->start;
	}
	$node->safe_psql('postgres', 'CREATE EXTENSION delay_wheel');
	create_injection($node);
	my ($daily) = schedule('postgres', '');
	was_later($daily, '1 hour');
	set_clock(1.01);
	wait_for($node, qq{SELECT count(*) FROM delay_wheel_data.task WHERE due = '2099-07-01 12:00 $zone'}, 'after a day a task follows', 60, expected => 1);

	# that of a transaction that was prepared, which ends after the look of the next day
	$node->safe_psql('postgres', qq{
		SELECT delay_cancel($daily);
		BEGIN;
		SELECT delay_schedule_local('2099-07-01 12:00', '$zone', 'SELECT 1', tag => 'prepared');
		UPDATE delay_wheel_data.task SET due = due + '1 hour', more = jsonb_set(more, '{local,instant}', to_jsonb((more->'local'->'instant')::bigint + 3600000000)) WHERE tag = 'prepared';
		PREPARE TRANSACTION 'local'});
	attach($node, 'local-after-pass', 'log');
	my $position = log_position($node);
	set_clock(2.1);
	ok(wait_until(60, sub { log_since($node, $position) =~ /local-after-pass/ }), 'the sweeper looks each day');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'local'});
	set_clock(3.2);
	wait_for($node, qq{SELECT count(*) FROM delay_wheel_data.task WHERE due = '2099-07-01 12:00 $zone'}, 'and the day after', 60, expected => 1);
	$node->stop;
}
done_testing();
