# The row of the benchmark about isolation: a burst of many roles, queues or groups, and beside
# it single tasks of one more role, queue or group, which should not feel the burst.  Loaded by
# bench.pl.

package Isolation;

use strict;
use warnings;

use Bench;
use Burst;
use Exporter 'import';

our @EXPORT_OK = qw(measure_isolation);

my $many = 10;
my $groups = 1000;
# Seconds between two of the single tasks, and how many tasks of the burst run in a second at least.
my %free = (fraction => 1, between => 0.05, rate => 50_000);
# With limits, each queue or group runs one task at a time, and so many tasks a second may begin in
# all: one of 1,000 groups five.  The single tasks must be fewer, or they wait for their share.
my %limited = (fraction => 1 / 4, between => 0.5, rate => 5_000);
# The first single task comes when all groups are new.  With the rate, these take 200 ms.
my $first_round = 1000 * $groups / $limited{rate};

# Who has the burst's tasks: for each kind the statements' sessions and arguments, the part of the
# tasks that each gets, and the same for the single tasks.
my @kinds = (
	[ "$many roles", {
		burst => [ map { { user => "role$_", part => "i % $many = $_ - 1" } } 1 .. $many ], single => { user => 'role0' }, %free } ],
	[ "$many queues", in_queues('isolated', %free) ],
	[ "$groups groups", in_groups('isolated', %free) ],
	[ "$many queues with limits", in_queues('limited', %limited) ],
	[ "$groups groups with limits", in_groups('limited', %limited, p99 => $first_round) ]);

sub in_queues
{
	my ($name, %pace) = @_;

	return { %pace, burst => [ { options => ", queue => '$name' || i % $many + 1" } ], single => { options => ", queue => '${name}0'" } };
}

sub in_groups
{
	my ($name, %pace) = @_;

	return {
		%pace,
		burst => [ { options => ", queue => '$name', group_key => 'group' || i % $groups" } ],
		single => { options => ", queue => '$name', group_key => 'single'" } };
}

sub set_up
{
	run("CREATE TABLE single_order (LIKE t_order INCLUDING ALL, due timestamptz NOT NULL); GRANT ALL ON t_order, single_order TO PUBLIC");
	run("CREATE ROLE role$_ LOGIN; SELECT delay_wheel.allow('role$_')") for 0 .. $many;
	my %limits = (isolated => [ '', '' ], limited => [ "max_running => 1, rate => $limited{rate} / $many,", qq{rate => $limited{rate}, options => '{"group_max_running": 1}',} ]);
	for my $name (sort keys %limits)
	{
		my ($of_queues, $of_groups) = @{ $limits{$name} };
		run("SELECT delay_wheel.create_queue('$name$_', $of_queues users => '{shop}')") for 0 .. $many;
		run("SELECT delay_wheel.create_queue('$name', $of_groups groups => true, users => '{shop}')");
	}
	return;
}

sub clean_up
{
	run('TRUNCATE delay_wheel_data.task; DROP TABLE single_order; REVOKE ALL ON t_order FROM PUBLIC');
	run("SELECT delay_wheel.drop_queue('isolated$_'), delay_wheel.drop_queue('limited$_')") for '', 0 .. $many;
	return;
}

sub session_of
{
	my ($how) = @_;
	my $user = $how->{user} // 'shop';

	return kept_session("isolation $user", $user);
}

# Schedules tasks: "how" tells by whom and with which arguments, "rows" where their numbers i come from.
sub schedule
{
	my ($text, $due, $rows, $how) = @_;

	session_of($how)->query("SELECT count(delay_schedule_task('$text', args => ARRAY[i::text], due => $due"
		  . ($how->{options} // '') . ")) FROM $rows WHERE " . ($how->{part} // 'true'));
	return;
}

# One burst.  Returns its rate, and how many milliseconds late the single tasks were.
sub burst_beside
{
	my ($n, $kind) = @_;
	my $text = 'update single_order set stars=stars+5, status=status+1, at=clock_timestamp() where oid=$1';
	my $between = $kind->{between};
	my $count = 1 + int($n / $kind->{rate} / $between);
	my %sessions = map { $_->{name} => $_ } map { session_of($_) } @{ $kind->{burst} }, $kind->{single};

	shop()->query("SELECT new_orders($n)");
	settle();
	my ($due) = finish_burst($n + $count, sub {
		my ($due) = @_;

		run("TRUNCATE single_order; INSERT INTO single_order (oid, due) SELECT i, to_timestamp($due + 0.005 + (i - 1) * $between) FROM generate_series(1, $count) i");
		schedule($bound_text, "to_timestamp($due)", "generate_series(1, $n) i", $_) for @{ $kind->{burst} };
		schedule($text, 'due', '(SELECT oid AS i, due FROM single_order) o', $kind->{single});
	}, [ values %sessions ]);
	my $end = last_commit();

	shop()->query("SELECT check_orders($n); SELECT check_orders($count, 'single_order')");
	my @late = shop()->query("SELECT 1000 * extract(epoch FROM at - due) FROM single_order WHERE due < to_timestamp($end)");

	return { rate => $n / ($end - $due), late => \@late };
}

sub measure_isolation
{
	my ($opt, undef, $record, $sync_commit) = @_;

	$sync_commit->('on');
	shop()->query('SELECT new_orders(1)');
	set_up();
	for my $executors (2, 4)
	{
		set_conf('delay_wheel.max_executors' => $executors);
		for (@kinds)
		{
			my ($name, $kind) = @$_;
			my $n = $opt->{isolation} * $kind->{fraction};
			my @results = map { burst_beside($n, $kind) } 1 .. $opt->{isolation_rounds};
			my @late = map { $_->{late} } @results;
			my %row = (place => 53, sync => 'on', unit => 'ms', note => sprintf('of %d tasks, beside %.0f tasks/s', scalar(map { @$_ } @late), median(map { $_->{rate} } @results)));

			$record->('isolation', %row, variant => "$n of $name, $executors executors, p50", ours => [ map { quantiles($_, 0.5) } @late ], reach => [ '<=', 5 ]);
			$record->('isolation', %row, variant => "$n of $name, $executors executors, p99", ours => [ map { quantiles($_, 0.99) } @late ], reach => [ '<=', $kind->{p99} // 20 ]);
		}
	}
	set_conf('delay_wheel.max_executors' => undef);
	clean_up();
	return;
}

1;
