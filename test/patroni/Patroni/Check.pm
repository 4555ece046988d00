# What the Patroni test checks: the journals of the clients against the history that has
# survived, and what an isolated leader did; and the tables that it prints.
package Patroni::Check;

use strict;
use warnings;

use Chaos::Lines;
use DBI;

# After a node is cut off, answers that were under way before still arrive.
my $grace = 0.2;
# The lease of the queue "outside", in seconds.
my $lease = 15;
# Limit for all overdue tasks after a promotion, in seconds.
my $overdue_limit = 30;

sub new
{
	my ($class, %opt) = @_;

	return bless { %opt, passed => 0, failed => 0 }, $class;
}

sub ok
{
	my ($self, $holds, $what) = @_;

	$self->{ $holds ? 'passed' : 'failed' }++;
	print $holds ? "ok - $what\n" : "not ok - $what\n";
	return;
}

# A count that must be zero where nothing that was acknowledged can be lost, and is only
# told else.
sub zero_if_sync
{
	my ($self, $n, $what) = @_;

	return $self->ok($n == 0, "$what: $n") if $self->{mode} eq 'sync';
	print "   - $what: $n\n";
	return;
}

# How many effects the isolated leader shows since it is isolated, as long as it is no
# standby.  Asked from beside it.
sub peek
{
	my ($self, $fault, $name) = @_;
	my $since = sprintf '%.6f', $fault->{isolated} + $grace;
	my $row = qx{timeout 2 nsenter --net=/run/netns/$self->{cluster}{prefix}$name $self->{cluster}{bindir}/psql -XAtq \\
		-h 127.0.0.1 -U app -d app -c 'SELECT pg_is_in_recovery(), count(*) FROM effect WHERE ran > to_timestamp($since)' 2>/dev/null};

	return unless $row =~ /^f\|(\d+)/;
	$fault->{primary_until} = Time::HiRes::time();
	$fault->{peeked} = $1 if $1 > ($fault->{peeked} // 0);
	return;
}

#
# Reading
#

sub read_journals
{
	my ($self, $journals, $faults) = @_;
	my $j = { put => {}, put_ok => {}, inside_ok => {}, leases => {}, done => {}, warned => 0 };
	my @isolated = grep { $_->{isolated} } @$faults;

	for my $file (@$journals)
	{
		Chaos::Lines::read_file($file, sub {
			my ($row) = @_;
			my $e = $row->{e};

			if ($e eq 'put') { $j->{put}{ $row->{token} } = $row->{kind} }
			elsif ($e eq 'put_ok') { $j->{put_ok}{ $row->{token} } = 1 }
			elsif ($e eq 'inside_ok') { $j->{inside_ok}{ $row->{token} }++ }
			elsif ($e eq 'lease_ok') { push @{ $j->{leases}{ $row->{token} } }, [ $row->{asked}, $row->{t} ] }
			elsif ($e eq 'done_ok') { push @{ $j->{done}{ $row->{token} } }, $row->{t} }
			elsif ($e eq 'error') { $j->{warned}++ if $row->{text} =~ /^no replication/ }
			return unless $e =~ /_ok$/;
			for my $fault (@isolated)
			{
				next unless $row->{node} eq $fault->{old};
				next unless $row->{t} > $fault->{isolated} && $row->{t} < $fault->{healed};
				$fault->{last_ok} = $row->{t} if $row->{t} > ($fault->{last_ok} // 0);
				$fault->{acknowledged}{$e}++ if $row->{t} > $fault->{isolated} + $grace;
			}
		});
	}
	return $j;
}

sub read_history
{
	my ($self, $leader) = @_;
	my $c = $self->{cluster};
	my %h;

	$h{marker} = { map { @$_ } @{ $c->query($leader, 'SELECT token, kind FROM marker', 'app') } };
	$h{effects}{ $_->[0] }++ for @{ $c->query($leader, 'SELECT token FROM effect', 'app') };
	$h{early} = $c->query($leader, 'SELECT count(*) FROM effect WHERE ran < due', 'app')->[0][0];
	$h{failed} = $c->query($leader, 'SELECT count(*) FROM delay_wheel.failed', 'app')->[0][0];
	$h{timeline} = $c->query($leader, 'SELECT timeline_id FROM pg_control_checkpoint()')->[0][0];
	return \%h;
}

#
# What was acknowledged, and what has become of it
#

sub check_tasks
{
	my ($self, $j, $h) = @_;
	my @acked = keys %{ $j->{put_ok} };
	my @unknown = grep { !$j->{put_ok}{$_} } keys %{ $j->{put} };
	my $marker = $h->{marker};
	my @own = grep { $marker->{$_} ne 'outside' } keys %$marker;

	printf "   - acknowledged: %d, of these tasks %d, messages %d; outcome unknown to the client: %d, of these committed %d\n",
	  scalar @acked, scalar(grep { $j->{put}{$_} eq 'task' } @acked), scalar(grep { $j->{put}{$_} ne 'task' } @acked),
	  scalar @unknown, scalar grep { $marker->{$_} } @unknown;
	print "   - commits that ended with \"might not have been replicated\", which are not acknowledged: $j->{warned}\n";
	$self->ok(@acked > 1000, 'the clients got on');
	$self->zero_if_sync(scalar(grep { !$marker->{$_} } @acked), 'acknowledged, and lost by PostgreSQL with the plain row of their transaction');
	$self->ok(!(grep { !$h->{effects}{$_} } @own), 'each task, and message received inside, whose plain row survived took effect: '
		. @own . ', without effect ' . grep { !$h->{effects}{$_} } @own);
	$self->ok(!(grep { $_ > 1 } values %{ $h->{effects} }), 'none of them twice: ' . grep { $_ > 1 } values %{ $h->{effects} });
	my $orphans = grep { ($marker->{$_} // 'outside') eq 'outside' } keys %{ $h->{effects} };
	$self->ok(!$orphans, "no effect of what was not committed: $orphans");
	$self->ok(!$h->{early}, "none early: $h->{early}");
	$self->ok(!$h->{failed}, "none has failed: $h->{failed}");
	return;
}

sub check_messages
{
	my ($self, $j, $h) = @_;
	my ($gets, $two, $after, $again) = (0, 0, 0, 0);
	my @outside = grep { $h->{marker}{$_} eq 'outside' } keys %{ $h->{marker} };

	for my $token (keys %{ $j->{leases} })
	{
		my @given = sort { $a->[1] <=> $b->[1] } @{ $j->{leases}{$token} };
		my @done = @{ $j->{done}{$token} // [] };

		$gets += @given;
		$two += grep { $given[$_][1] < $given[ $_ - 1 ][0] + $lease } 1 .. $#given;
		$again++ if @done > 1;
		for my $give (@given)
		{
			$after++ if grep { $give->[0] > $_ } @done;
		}
	}
	printf "   - leases: %d, of %d messages\n", $gets, scalar keys %{ $j->{leases} };
	$self->ok(!(grep { !$j->{leases}{$_} } @outside), 'each message outside whose plain row survived was leased: '
		. @outside . ', without a lease ' . grep { !$j->{leases}{$_} } @outside);
	$self->zero_if_sync(scalar(grep { !$h->{effects}{$_} } keys %{ $j->{inside_ok} }), 'received inside, acknowledged, and lost');
	$self->zero_if_sync(scalar(grep { !$h->{marker}{$_} } keys %{ $j->{leases} }), 'leased, and the message itself was lost');
	$self->zero_if_sync($two, 'leased to two receivers at a time');
	$self->zero_if_sync($after, 'leased after delay_done had been acknowledged');
	$self->zero_if_sync($again, 'ended by delay_done twice');
	return;
}

#
# Isolated leaders
#

sub check_isolation
{
	my ($self, $faults) = @_;
	my @isolated = grep { $_->{isolated} } @$faults or return;
	my (%sum, $ttl);

	print "\nisolated leaders: what they acknowledged to clients beside them, later than $grace s after the fault\n";
	printf "%-12s %-4s %10s %10s %10s %8s %8s %8s %8s\n", qw(fault node isolated primary last), 'put', 'inside', 'leased', 'effects';
	for my $fault (@isolated)
	{
		my @n = map { $fault->{acknowledged}{$_} // 0 } qw(put_ok inside_ok lease_ok);

		push @n, $fault->{peeked} // 0;
		printf "%-12s %-4s %8.1f s %8.1f s %8.1f s %8d %8d %8d %8d\n", $fault->{kind}, $fault->{old},
		  $fault->{healed} - $fault->{isolated}, ($fault->{primary_until} // $fault->{isolated}) - $fault->{isolated},
		  ($fault->{last_ok} // $fault->{isolated}) - $fault->{isolated}, @n;
		$sum{ $fault->{kind} } += $_ for @n;
	}
	$ttl = $self->{cluster}->timing('ttl');
	if ($self->{mode} eq 'sync')
	{
		$self->ok(!$sum{$_}, "$_: an isolated leader has acknowledged and shown nothing: $sum{$_}") for sort keys %sum;
	}
	else
	{
		# these show that the sums see something if there is something
		$self->ok($sum{$_} > 0, "$_: an isolated leader without synchronous replication goes on: $sum{$_}") for sort keys %sum;
		my @late = grep { $_->{kind} eq 'cut' && ($_->{last_ok} // 0) > $_->{isolated} + $ttl } @isolated;
		$self->ok(!@late, "but where Patroni lives, not longer than the ttl of $ttl s");
	}
	return;
}

#
# After each fault
#

sub overdue
{
	my ($self, $leader, $fault) = @_;
	my $at = sprintf "to_timestamp(%.6f)", $fault->{promoted};

	return @{ $self->{cluster}->query($leader, <<"END", 'app')->[0] };
SELECT count(*), extract(epoch FROM min(ran) - $at), extract(epoch FROM max(ran) - $at), extract(epoch FROM max(ran - e.due))
FROM effect e JOIN marker USING (token) WHERE kind = 'task' AND e.due <= $at AND ran >= $at
END
}

sub check_faults
{
	my ($self, $leader, $faults) = @_;
	my $slow = 0;

	print "\n";
	printf "%-16s %-9s %10s %8s %10s %10s %10s %10s\n",
	  'fault', 'leaders', 'promoted', 'overdue', 'first', 'all', 'latest', 'whole';
	for my $fault (@$faults)
	{
		my ($n, $first, $all, $latest) = $self->overdue($leader, $fault);

		printf "%-16s %-9s %8.1f s %8d %7.0f ms %7.0f ms %8.1f s %8.1f s\n", $fault->{kind}, "$fault->{old} > $fault->{new}",
		  $fault->{promoted} - $fault->{at}, $n, 1000 * ($first // 0), 1000 * ($all // 0), $latest // 0, $fault->{back} - $fault->{at};
		$slow++ if ($all // 0) > $overdue_limit;
	}
	$self->ok(!$slow, "after each promotion all overdue tasks ran within $overdue_limit s: " . @$faults . " faults, too slow $slow");
	return;
}

sub check_logs
{
	my ($self) = @_;
	my ($bad, $rewinds) = ('', 0);

	for my $name (@Patroni::Cluster::nodes)
	{
		open(my $log, '<', "$self->{dir}/$name/log") or next;
		while (my $line = <$log>)
		{
			$bad .= "$name: $line" if $line =~ /PANIC|TRAP:|terminated by signal (?!9)|exited with exit code 2\b/;
			$rewinds++ if $line =~ /running pg_rewind from/;
		}
	}
	print "   - pg_rewind ran $rewinds times\n";
	print $bad;
	$self->ok($bad eq '', 'no PANIC and no crash in the logs');
	return;
}

# All checks; returns how many have failed.
sub all
{
	my ($self, $leader, $faults, $journals) = @_;
	my $j = $self->read_journals($journals, $faults);
	my $h = $self->read_history($leader);

	$self->check_faults($leader, $faults);
	$self->check_isolation($faults);
	print "\n";
	$self->check_tasks($j, $h);
	$self->check_messages($j, $h);
	$self->check_logs;
	print "   - timeline $h->{timeline}\n";
	print "$self->{passed} passed, $self->{failed} failed\n";
	return $self->{failed};
}

1;
