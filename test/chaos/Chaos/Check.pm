# The checker: compares what the clients wrote down with what is in the
# databases at the end.  Knows nothing of delay_wheel but its promises.
#
# State, a file written by the campaign when all has come to
# rest; in each line s says what it is: tx (a committed transaction), effect, pending,
# failed, put_back (failed because of a fault, and was put back at the end),
# history, recurring, end (when the file was written, us).
package Chaos::Check;

use strict;
use warnings;

use Chaos::Lines;
use Chaos::Receiver;

# How many of a group may run, or be with receivers, at a time; of the queue narrow, in all.
my %limit = (narrow => 1, grouped => 2, ordered => 1, parcels => 2, ledger => 1);

my $token = qr/c\d+\.\d+\.\d+(?:\.\w+)?/;

# The findings (texts), and figures by name.
sub check
{
	my ($dir) = @_;
	my $self = bless { findings => [], figures => {}, tasks => {}, of_id => {}, follow => {} }, __PACKAGE__;

	$self->read_state($dir);
	$self->read_journal($_) for sort glob("$dir/journal.*");
	$self->read_received($_) for sort glob("$dir/received.*");
	$self->check_tasks;
	$self->check_receivers;
	$self->check_limits;
	$self->check_order;
	$self->check_batches;
	$self->check_unknown;
	$self->check_keys;
	$self->check_recurring;
	$self->check_history;
	return ($self->{findings}, $self->{figures});
}

sub finding
{
	my ($self, $kind, $what) = @_;

	$self->{figures}{"finding: $kind"}++;
	push @{ $self->{findings} }, "$kind: $what";
	return;
}

sub count { $_[0]{figures}{ $_[1] } += $_[2] // 1; return; }

sub read_state
{
	my ($self, $dir) = @_;

	for my $file (sort glob("$dir/state.*"))
	{
		my ($db) = $file =~ /state\.(\w+)$/;
		Chaos::Lines::read_file($file, sub {
			my ($row) = @_;
			my $s = delete $row->{s};
			$row->{db} = $db;
			($row->{token}) = ($row->{sql} . ' ' . ($row->{args} // '')) =~ /($token)/ if defined $row->{sql};
			if ($s eq 'tx') { $self->{tx}{ $row->{tx} } = 1; }
			elsif ($s eq 'end') { $self->{end}{$db} = $row->{t}; }
			elsif ($s eq 'recurring') { push @{ $self->{recurring} }, $row; }
			elsif ($s eq 'history') { push @{ $self->{history} }, $row; }
			else
			{
				push @{ $self->{$s}{ $row->{token} // 'none' } }, $row;
				push @{ $self->{all_pending} }, $row if $s eq 'pending';
			}
		});
		die "$file is not complete\n" unless $self->{end}{$db};
	}
	return;
}

# One client's journal.  A transaction is judged when its outcome is known.
sub read_journal
{
	my ($self, $file) = @_;
	my @tx;

	$self->{holder} = {};
	$self->{mine} = [];
	Chaos::Lines::read_file($file, sub {
		my ($row) = @_;
		if ($row->{e} eq 'begin' || $row->{e} eq 'wait')
		{
			$self->settle(@tx) if @tx;
			@tx = ();
		}
		if ($row->{e} eq 'wait')
		{
			$self->finding('wait', "delay_wait said done of $row->{token}, which had $row->{effects} effects")
			  if $row->{said} eq 'done' && $row->{effects} != 1 && !$self->{alias}{ $row->{token} };
			$self->count('delay_wait');
			return;
		}
		push @tx, $row;
	});
	$self->settle(@tx) if @tx;
	return;
}

sub settle
{
	my ($self, @tx) = @_;
	my $tx = $tx[0]{tx};
	my ($end) = grep { $_->{e} eq 'end' } @tx;
	my $outcome = $end ? $end->{outcome} : 'unknown';
	my $is_there = $self->{tx}{$tx} // 0;
	my %undone = map { $_ => 1 } map { split /,/, $_->{tokens} } grep { $_->{e} eq 'undo' } @tx;
	my $t = $end ? $end->{t} : 9e18;

	$self->count("transactions $outcome");
	$self->finding('commit lost', "transaction $tx was acknowledged and is not there") if $outcome eq 'committed' && !$is_there;
	$self->finding('abort undone', "transaction $tx was rolled back and is there") if $outcome eq 'aborted' && $is_there;
	for my $row (@tx)
	{
		# also by what may have been rolled back: what is said of the order of tasks is of others
		$self->{touched}{ $row->{token} } = 1 if $row->{e} eq 'act' && defined $row->{token};
		if ($row->{e} eq 'task')
		{
			my $of = $self->add_task($row);
			$self->{fate}{ $row->{token} } //= 'never';
			next if !$is_there || $undone{ $row->{token} };
			$self->commit_task($of, $row, $t);
		}
		elsif ($row->{e} eq 'act' && $is_there)
		{
			$self->commit_act($row, $t);
		}
	}
	return;
}

# The task that a token stands for: another one, if that was kept.
sub add_task
{
	my ($self, $row) = @_;
	my ($db) = $row->{token} =~ /^(c\d+)/;

	my $of = $row->{id} > 0 ? $self->{of_id}{"$db $row->{id}"} : undef;
	# the id of what was rolled back may be given again after a crash
	if ($of && ($of->{fate} ne 'never' || $of->{tx} eq $row->{tx}))
	{
		$self->{alias}{ $row->{token} } = $of;
		return $of;
	}
	$self->{tasks}{ $row->{token} } = $of = { %$row, fate => 'never' };
	$self->{of_id}{"$db $row->{id}"} = $of if $row->{id} > 0;
	return $of;
}

sub find_task { my ($self, $name) = @_; return $self->{alias}{$name} // $self->{tasks}{$name}; }

# From t on it does not begin any more.
sub end_task
{
	my ($self, $of, $t) = @_;

	return if $of->{fate} ne 'once';
	$of->{fate} = 'at most once';
	$of->{not_after} = $t;
	return;
}

sub commit_task
{
	my ($self, $of, $row, $t) = @_;
	my $key = defined $row->{key} ? "$row->{owner} $row->{key}" : undef;

	if ($of->{token} ne $row->{token})
	{
		$self->count('tasks kept for their key');
		return;
	}
	$of->{fate} = 'once';
	$of->{committed} = $t;
	push @{ $self->{mine} }, $of;
	return unless defined $key;
	my $before = $self->{holder}{$key};
	$self->end_task($before, $t) if $before && $row->{if_exists} eq 'replace';
	$self->{holder}{$key} = $of;
	return;
}

sub commit_act
{
	my ($self, $row, $t) = @_;
	my $what = $row->{what};
	my $of = defined $row->{token} ? $self->find_task($row->{token}) : undef;
	my $result = $row->{result} // '';

	$self->count("$what: $result") if $what =~ /^cancel(_key)?$|move|run/;
	if ($what eq 'cancel_all')
	{
		$self->end_task($_, $t)
		  for grep { ($_->{tag} // '') eq $row->{tag} && ($row->{owner} ne 'n' || $_->{owner} eq 'n') } @{ $self->{mine} };
		$self->count($what);
		return;
	}
	$of = $self->{holder}{"$row->{owner} $row->{key}"} if $what eq 'cancel_key';
	if ($what =~ /^cancel/ && $result eq 'cancelled')
	{
		if (!$of || $of->{fate} eq 'never')
		{
			$self->finding('cancelled', "$what cancelled what could not be pending: " . ($row->{token} // $row->{key}));
			return;
		}
		$of->{fate} = 'never';
	}
	elsif ($what eq 'move' && $result) { $of->{due} = $row->{due}; }
	elsif ($what eq 'run' && $result) { $of->{ran} = 1; }
	return;
}

sub check_tasks
{
	my ($self) = @_;

	for my $of (values %{ $self->{tasks} })
	{
		my $name = "$of->{token} ($of->{kind}, id $of->{id})";
		my @effects = @{ $self->{effect}{ $of->{token} } // [] };
		my @pending = @{ $self->{pending}{ $of->{token} } // [] };
		my @failed = @{ $self->{failed}{ $of->{token} } // [] };
		my $n = @effects + @pending + @failed;
		my $again = $of->{kind} eq 'at_least_once';
		my $outside = $of->{kind} =~ /^at_/;

		if ($of->{fate} eq 'never')
		{
			$self->count($n ? 'tasks that should not be' : 'tasks undone');
			$self->finding($_->[0], "$name was cancelled, or rolled back")
			  for grep { $_->[1] } [ 'ran', !$outside && @effects ], [ 'pending', scalar(@pending) ], [ 'failed', !$outside && @failed ];
			next;
		}
		$self->finding('doubled', "$name took effect " . @effects . ' times') if @effects > 1 && !$again;
		$self->finding('doubled', "$name is pending and took effect") if @effects && @pending && !$outside;
		$self->finding('doubled', "$name failed and took effect") if @effects && @failed && !$outside;
		for my $effect (@effects)
		{
			$self->finding('id', "$name says its id is $effect->{task}")
			  if $of->{id} > 0 && $effect->{task} && $effect->{task} != $of->{id};
			if ($of->{kind} eq 'message')
			{
				# who received it writes when he is ready; a lease may have begun before it was moved
				$self->finding('early', "$name was due $of->{due}, received by $effect->{written}")
				  if $effect->{written} < $of->{due} && !$self->{touched}{ $of->{token} };
				next;
			}
			$self->finding('early', "$name was due $of->{due}, began $effect->{at}") if $effect->{at} < $of->{due} && !$of->{ran};
			$self->finding('late', "$name began $effect->{at}, but was ended at $of->{not_after}")
			  if $of->{not_after} && $effect->{at} > $of->{not_after} && !$self->{put_back}{ $of->{token} };
			$self->finding('role', "$name of $of->{owner} ran as $effect->{role}") if $effect->{role} ne $of->{owner};
		}
		$self->check_failed($of, $name, @failed);
		$self->check_follow($of, $name, scalar(@effects), @failed);
		if ($of->{fate} eq 'at most once')
		{
			$self->finding('pending', "$name was replaced, or cancelled") if @pending;
			$self->count(@effects ? 'tasks done' : 'tasks replaced or cancelled by tag');
			next;
		}
		if (@pending)
		{
			my $due = $pending[0]{due};
			$self->finding('stuck', "$name was due $due") if $due < $self->{end}{ $pending[0]{db} };
			$self->finding('due', "$name is due $due instead of $of->{due}") if $of->{kind} !~ /^retried|^doomed|literal|^message/ && $due != $of->{due};
			$self->count('tasks pending');
		}
		elsif (!$n)
		{
			$self->finding('lost', "$name, due $of->{due}");
		}
		else
		{
			$self->count(@effects ? 'tasks done' : 'tasks failed');
		}
	}
	return;
}

# What a receiver had, and when.  A lease is that of a token; words about it are in the order of time.
sub read_received
{
	my ($self, $file) = @_;

	Chaos::Lines::read_file($file, sub {
		my ($row) = @_;
		my $l = defined $row->{lease} ? $self->{lease}{"$row->{token} $row->{lease}"} : undef;

		if ($row->{e} eq 'had')
		{
			push @{ $self->{had} }, { %$row, token => $_ } for split /,/, $row->{tokens};
		}
		elsif ($row->{e} eq 'lease')
		{
			$self->{lease}{"$row->{token} $row->{lease}"} = $l = { %$row, until => $row->{before} + $Chaos::Receiver::lease };
			push @{ $self->{leases}{ $row->{token} } }, $l;
			push @{ $self->{had} }, $l;
		}
		elsif ($row->{e} eq 'try')
		{
			# from here on it may have ended
			$l->{until} = $row->{t} if $row->{t} < $l->{until};
		}
		elsif ($row->{word} eq 'extend')
		{
			my $to = $row->{sent} + $Chaos::Receiver::extension;
			# of what was extended too late another one may have been received
			$l->{until} = $to if $row->{result} eq '1' && $row->{t} < $l->{until} && $to > $l->{until};
		}
		$self->count("$row->{word}: $row->{result}") if $row->{e} eq 'word';
	});
	return;
}

# Of messages: what is received was committed; no two leases of one are valid at a time, nor is one
# received inside that is leased.
sub check_receivers
{
	my ($self) = @_;

	for my $had (@{ $self->{had} // [] })
	{
		my $of = $self->{tasks}{ $had->{token} };

		$self->count($had->{e} eq 'lease' ? 'leases' : 'messages received inside');
		$self->finding('unknown', "$had->{token} was received, and no committed transaction sent it") if !$of || !$of->{committed};
		$self->finding('early', "$had->{token}, due $of->{due}, was received by $had->{after}")
		  if $of && $had->{after} < $of->{due} && !$self->{touched}{ $had->{token} };
		# somebody else's that surely was valid when this one was asked for, and known
		for my $other (@{ $self->{leases}{ $had->{token} } // [] })
		{
			$self->finding('leased twice', "$had->{token} until $other->{until}, and again at $had->{after}")
			  if $other != $had && ($had->{before} // $had->{after}) > $other->{after} && $had->{after} < $other->{until};
		}
	}
	return;
}

# The name of its group, with its queue and database, if it has one that is limited.
sub group_of
{
	my ($of, $db) = @_;

	return unless defined $of->{queue} && $limit{ $of->{queue} } && ($of->{queue} eq 'narrow' || defined $of->{group_key});
	return "$db $of->{queue} " . ($of->{group_key} // '');
}

# Never do more tasks of a group run, or are with receivers, than may: of each there is a time in which
# it surely was.
sub check_limits
{
	my ($self) = @_;
	my %changes;

	my $note = sub {
		my ($of, $db, $from, $until) = @_;
		my $group = group_of($of, $db) // return;

		return if $until <= $from;
		# at the same moment ends come first
		push @{ $changes{$group} }, [ $from, 1, $of->{token} ], [ $until, -1, $of->{token} ];
	};
	for my $of (grep { $_->{lasts} && !$self->{touched}{ $_->{token} } } values %{ $self->{tasks} })
	{
		$note->($of, $_->{db}, $_->{at}, $_->{written}) for @{ $self->{effect}{ $of->{token} } // [] };
	}
	for my $had (@{ $self->{had} // [] })
	{
		my $of = $self->{tasks}{ $had->{token} } // next;
		# delay_cancel() may have ended the lease
		next if $self->{touched}{ $had->{token} };
		$note->($of, $had->{db}, $had->{after}, $had->{until});
	}
	for my $group (sort keys %changes)
	{
		my ($db, $queue) = split / /, $group;
		my %now;

		for my $change (sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } @{ $changes{$group} })
		{
			my ($t, $step, $name) = @$change;

			$now{$name} += $step;
			delete $now{$name} if !$now{$name};
			$self->count("of $queue, at a time", 0);
			$self->{figures}{"of $queue, at a time"} = keys %now if keys %now > $self->{figures}{"of $queue, at a time"};
			$self->finding('limit', "$group: " . join(', ', sort keys %now) . " at $t") if keys %now > $limit{$queue} && $step > 0;
		}
	}
	return;
}

# In groups with an order, one that was committed before another one was due, and is due before it, has
# ended when that one begins.  Of others than those that were changed or put back.
sub check_order
{
	my ($self) = @_;
	my %groups;

	for my $of (grep { ($_->{queue} // '') =~ /^(ordered|ledger)$/ && $_->{committed} && defined $_->{group_key} } values %{ $self->{tasks} })
	{
		my $name = $of->{token};
		my ($effect) = @{ $self->{effect}{$name} // [] };
		my ($pending) = @{ $self->{pending}{$name} // [] };
		my ($row) = ($effect // $pending) || next;
		my %one = (%$of, ended => $effect ? $effect->{ $of->{kind} eq 'message' ? 'at' : 'written' } : 9e18);

		$one{comes_first} = $of->{fate} eq 'once' && !$self->{put_back}{$name} && !$self->{failed}{$name};
		# when it surely had begun; one that was moved perhaps by another due time
		next if $self->{touched}{$name};
		$one{began} = [ $effect && $of->{kind} ne 'message' ? $effect->{at} : () ];
		push @{ $groups{"$row->{db} $of->{queue} $of->{group_key}"} }, \%one;
	}
	my %began;
	push @{ $began{ $_->{token} } }, $_->{after} for @{ $self->{had} // [] };
	for my $group (sort keys %groups)
	{
		my @all = sort { $a->{due} <=> $b->{due} } @{ $groups{$group} };

		push @{ $_->{began} }, @{ $began{ $_->{token} } // [] } for @all;
		for my $i (0 .. $#all)
		{
			for my $before (grep { $_->{comes_first} } @all[ 0 .. $i - 1 ])
			{
				next if $before->{due} >= $all[$i]{due} || $before->{committed} >= $all[$i]{due};
				$self->count('pairs in order');
				for my $began (@{ $all[$i]{began} })
				{
					$self->finding('order', "$group: $all[$i]{token}, due $all[$i]{due}, had begun at $began, before $before->{token}, due $before->{due}, had ended at $before->{ended}")
					  if $began < $before->{ended};
				}
			}
		}
	}
	return;
}

# What failed because of the machine has been put back by the campaign, so only
# what must fail is left.
sub check_failed
{
	my ($self, $of, $name, @failed) = @_;

	for my $row (@failed)
	{
		next if $of->{kind} eq 'doomed' || $of->{kind} =~ /^at_/;
		# a newer one of its key came while a receiver had it
		next if $of->{kind} eq 'message' && $row->{sqlstate} eq 'DW001' && defined $of->{key};
		# nor can it be put back while another one of its key waits until tomorrow
		next if $row->{others} && $row->{sqlstate} =~ /^(53|58|57|25006|XX000|40|55P03|DW004|DW005)/;
		$self->finding('failed', "$name: $row->{sqlstate} $row->{message}");
	}
	return;
}

sub check_follow
{
	my ($self, $of, $name, $done, @failed) = @_;
	my $follow = $of->{follow} // return;
	my $n = @{ $self->{effect}{$follow} // [] } + @{ $self->{pending}{$follow} // [] } + @{ $self->{failed}{$follow} // [] };
	my $expected = $of->{kind} eq 'doomed' ? scalar(@failed) : $done;

	$self->{known}{$follow} = 1;
	$self->finding('followed', "$name has $n tasks that follow it instead of $expected") if $n != $expected;
	$self->finding('role', "$follow ran as $_->{role}") for grep { $_->{role} ne $of->{owner} } @{ $self->{effect}{$follow} // [] };
	return;
}

# Each batch has ended once, after its last member, with all of them counted; once more for each member that
# was put back.  A batch with a pending member has not ended since.
sub check_batches
{
	my ($self) = @_;
	my (%batches, %ends);

	push @{ $batches{ $_->{batch} } }, $_ for grep { $_->{batch} && $_->{committed} } values %{ $self->{tasks} };
	for my $where (qw(effect pending failed))
	{
		for my $name (grep { /\.[eo]\.\d+$/ } keys %{ $self->{$where} })
		{
			my ($level, $total) = $name =~ /^(.*\.[eo])\.(\d+)$/;
			push @{ $ends{$level} }, map { { %$_, total => $total, where => $where } } @{ $self->{$where}{$name} };
			$self->{known}{$name} = 1 if $batches{ $level =~ s/\.[eo]$//r };
		}
	}
	for my $batch (sort keys %batches)
	{
		my @members = @{ $batches{$batch} };
		my $pending = grep { @{ $self->{pending}{ $_->{token} } // [] } } @members;
		my $members_back = grep { $self->{put_back}{ $_->{token} } } @members;
		my ($last) = sort { $b <=> $a } map { $_->{written} } map { @{ $self->{effect}{ $_->{token} } // [] } } @members;

		for my $level ('e', $members[0]{outer} ? 'o' : ())
		{
			my @ends = @{ $ends{"$batch.$level"} // [] };
			my @ran = grep { $_->{where} eq 'effect' } @ends;
			# the callback of the inner batch is a member of the outer one
			my $back = $members_back + ($level eq 'o' && $self->{put_back}{"$batch.e"} ? 1 : 0);
			# an inner batch, and its callback for each of its ends
			my ($least, $most) = $level eq 'e' ? ($members[0]{members}) x 2 : (2, 2 + $back);

			$self->count('batches that have ended') if @ran;
			$self->finding('batch', "$batch.$level has " . @ends . " ends, $pending pending members and $back that were put back")
			  if @ends > 1 + $back || (!@ends && !$pending) || (@ends && $pending && !$back);
			$self->finding('batch', "$batch.$level counted $_->{total} members") for grep { $_->{total} < $least || $_->{total} > $most } @ends;
			$self->finding('batch', "$batch.$level ended before its last member") if @ran && !$back && $last && (sort { $a <=> $b } map { $_->{at} } @ran)[0] < $last;
			$self->finding('role', "$batch.$level ran as $_->{role}") for grep { $_->{role} ne $members[0]{owner} } @ran;
		}
	}
	return;
}

# What no client knows of, or of what was rolled back.
sub check_unknown
{
	my ($self) = @_;

	for my $s (qw(effect pending failed))
	{
		for my $name (keys %{ $self->{$s} })
		{
			next if $name eq 'none' || $self->{tasks}{$name} || $self->{known}{$name};
			next if $name =~ /^c\d+\.(all|skip)$/;
			$self->finding('unknown', "$name, which no committed transaction made, is in $s");
		}
	}
	return;
}

sub check_keys
{
	my ($self) = @_;
	my %n;

	# beside a leased message another one of its key may be pending
	$n{"$_->{db} $_->{owner} $_->{queue} $_->{key}"}++ for grep { defined $_->{key} && $_->{queue} !~ /^(inbox|letters)$/ } @{ $self->{all_pending} // [] };
	$self->finding('key', "$_ is pending $n{$_} times") for grep { $n{$_} > 1 } keys %n;
	return;
}

# Each ideal time once; with catch_up all, none left out.
sub check_recurring
{
	my ($self) = @_;
	my %runs;

	for my $row (grep { $_->{recurring} } @{ $self->{history} // [] })
	{
		push @{ $runs{"$row->{db} $row->{recurring}"} }, $row if $row->{outcome} =~ /^(done|failed)$/;
	}
	for my $of (@{ $self->{recurring} // [] })
	{
		my @runs = sort { $a->{due} <=> $b->{due} } @{ $runs{"$of->{db} $of->{id}"} // [] };
		my $before;

		$self->count('runs of recurring tasks', scalar(@runs));
		$self->finding('recurring', "$of->{name} has no next run") unless $of->{next_due};
		for my $run (@runs)
		{
			my $due = $run->{due};
			$self->finding('recurring', "$of->{name}: $due is no ideal time") if ($due - $of->{starts}) % 700_000;
			if (defined $before)
			{
				$self->finding('recurring', "$of->{name}: $due twice") if $due == $before;
				$self->finding('recurring', "$of->{name}: nothing between $before and $due") if $of->{catch_up} eq 'all' && $due > $before + 700_000;
			}
			$self->finding('early', "$of->{name}: began before $due") if $run->{started} < $due;
			$before = $due;
		}
		my $done = grep { $_->{outcome} eq 'done' } @runs;
		my $effects = @{ $self->{effect}{ $of->{name} } // [] };
		$self->finding('recurring', "$of->{name}: $effects effects of $done runs") if $effects != $done;
		$self->finding('stuck', "$of->{name}: its last run was due $before, the next $of->{next_due}")
		  if $of->{next_due} && $of->{next_due} < $self->{end}{ $of->{db} } - 30_000_000;
	}
	return;
}

# Its own account agrees.
sub check_history
{
	my ($self) = @_;
	my %done;

	$done{"$_->{db} $_->{task}"}++ for grep { $_->{outcome} eq 'done' && !$_->{recurring} } @{ $self->{history} // [] };
	$self->count('rows of the history', scalar(@{ $self->{history} // [] }));
	for my $name (grep { $_ ne 'none' && !/^c\d+\.(all|skip)$/ } keys %{ $self->{effect} })
	{
		my $effect = $self->{effect}{$name}[0];
		my $of = $self->{tasks}{$name};
		next if !$effect->{task} || ($of && $of->{kind} =~ /^at_/);
		my $n = $done{"$effect->{db} $effect->{task}"} // 0;
		$self->finding('history', "$name (id $effect->{task}) has $n rows that say done") if $n != 1;
	}
	return;
}

1;
