# A client of the campaign: schedules, changes its mind, and writes down, in a
# file of its own, what it is about to do and what it was told.
#
# In each line of the journal e says what it is about:
#   begin  a transaction begins
#   task   it has scheduled a task: token, id, due, owner, kind
#   act    it has done something to earlier tasks: cancel, move ...
#   undo   what it has scheduled since a savepoint is rolled back
#   commit it is about to commit; prepared: it is prepared
#   end    outcome: committed, aborted, or unknown (the answer was lost; the
#          row of the transaction in client_tx tells, for ever)
#   wait   what delay_wait said of a task
package Chaos::Client;

use strict;
use warnings;

use Chaos::Lines;
use Chaos::Server;
use Time::HiRes qw(sleep time);

# dir, sockets, number, db, role, seed
sub run
{
	my (%self) = @_;
	my $self = bless {%self, n => 0, recent => [], name => "c$self{number}", rand => $self{seed} * 1000 + $self{number}}, __PACKAGE__;

	srand($self->{rand});
	open($self->{journal}, '>>', "$self->{dir}/journal.$self->{name}") or die $!;
	$self->{journal}->autoflush(1);
	until (-e "$self->{dir}/stop.clients")
	{
		$self->be_connected or next;
		$self->transaction;
		$self->wait_for_one if rand() < 0.02;
		sleep(rand($self->{think}));
	}
	$self->settle while $self->be_connected && $self->{gid};
	return;
}

sub note
{
	my ($self, $event, %what) = @_;
	print { $self->{journal} } Chaos::Lines::encode(e => $event, t => us(), %what);
	return;
}

sub us { return int(time() * 1e6); }

sub be_connected
{
	my ($self) = @_;
	my $port;

	return $self->settle if $self->{dbh};
	if (open(my $in, '<', "$self->{dir}/current"))
	{
		$port = <$in>;
	}
	$self->{dbh} = Chaos::Server::connect_to($self->{sockets}, $port, $self->{db}, $self->{role}) if $port;
	if (!$self->{dbh})
	{
		sleep(0.05 + rand(0.1));
		return 0;
	}
	return $self->settle;
}

# A transaction that may be prepared: until it is known not to be.
sub settle
{
	my ($self) = @_;
	my $gid = $self->{gid} // return 1;

	return 1 if eval {
		my ($there) = $self->{dbh}->selectrow_array('SELECT count(*) FROM pg_prepared_xacts WHERE gid = ?', undef, $gid);
		$self->decide if $there;
		1;
	} && do { delete $self->{gid}; $self->note('end', tx => $gid, outcome => 'unknown'); 1 };
	$self->lost;
	return 0;
}

# Only who has prepared a transaction can end it.
sub decide
{
	my ($self) = @_;
	my $dbh = $self->{dbh};

	$dbh->do("SET ROLE $self->{gid_owner}");
	$dbh->do("$self->{decision} '$self->{gid}'");
	$dbh->do('RESET ROLE');
	return;
}

# Forget the connection if it is not good any more.
sub lost
{
	my ($self) = @_;

	return 0 if $self->{dbh} && eval { $self->{dbh}->do('ROLLBACK'); 1 };
	eval { $self->{dbh}->disconnect };
	delete $self->{dbh};
	$self->{recent} = [ grep { $_->{committed} } @{ $self->{recent} } ];
	return 1;
}

sub transaction
{
	my ($self) = @_;
	my $tx = $self->{tx} = "$self->{name}." . ++$self->{n};
	my $dbh = $self->{dbh};
	my $sent = 0;
	my @new = @{ $self->{new} = [] };

	$self->{owner} = $self->{role};
	$self->{ntokens} = 0;
	$self->note('begin', tx => $tx);
	my $done = eval {
		$dbh->do('BEGIN');
		$dbh->do('SET LOCAL lock_timeout = \'10s\'');
		if (rand() < 0.1)
		{
			$self->{owner} = 'n';
			$dbh->do('SET LOCAL ROLE n');
		}
		$self->operation for 1 .. 1 + int(rand(4));
		$self->savepoint if rand() < 0.1;
		$dbh->do('INSERT INTO client_tx VALUES (?)', undef, $tx);
		my $end = rand();
		if ($end < 0.12)
		{
			$dbh->do('ROLLBACK');
			$self->note('end', tx => $tx, outcome => 'aborted');
		}
		elsif ($end < 0.25)
		{
			$self->two_phase($tx, \$sent);
		}
		else
		{
			$self->note('commit', tx => $tx);
			$sent = 1;
			$dbh->do('COMMIT');
			$self->note('end', tx => $tx, outcome => 'committed');
			$_->{committed} = 1 for @{ $self->{new} };
		}
		1;
	};
	if (!$done)
	{
		my $error = $@;
		my $state = eval { $dbh->state } // '';

		# an error at COMMIT, from a server that goes on, is a rollback
		my $lost = $self->lost;
		$self->note('end', tx => $tx, outcome => $lost && $sent ? 'unknown' : 'aborted', state => $state, error => substr($error, 0, 300))
		  unless $self->{gid};
	}
	push @{ $self->{recent} }, @{ $self->{new} };
	# after a crash the id of what was not committed may be given to another task
	$self->{recent} = [ grep { $_->{committed} } @{ $self->{recent} } ] unless $self->{dbh};
	splice(@{ $self->{recent} }, 0, -40) if @{ $self->{recent} } > 40;
	return;
}

sub two_phase
{
	my ($self, $tx) = @_;
	my $dbh = $self->{dbh};

	$self->{decision} = rand() < 0.7 ? 'COMMIT PREPARED' : 'ROLLBACK PREPARED';
	$self->note('commit', tx => $tx);
	$self->{gid} = $tx;
	$self->{gid_owner} = $self->{owner};
	$dbh->do("PREPARE TRANSACTION '$tx'");
	sleep(rand() < 0.1 ? rand(2) : rand(0.05));
	$self->decide;
	delete $self->{gid};
	$self->note('end', tx => $tx, outcome => $self->{decision} eq 'COMMIT PREPARED' ? 'committed' : 'aborted');
	return;
}

sub savepoint
{
	my ($self) = @_;
	my @before = @{ $self->{new} };

	$self->{dbh}->do('SAVEPOINT s');
	$self->{undoing} = 1;
	$self->create for 1 .. 1 + int(rand(3));
	delete $self->{undoing};
	if (rand() < 0.7)
	{
		$self->{dbh}->do('ROLLBACK TO s');
		$self->note('undo', tx => $self->{tx}, tokens => join(',', map { $_->{token} } @{ $self->{new} }[ scalar(@before) .. $#{ $self->{new} } ]));
		$self->{new} = \@before;
	}
	return;
}

sub operation
{
	my ($self) = @_;
	my $r = rand();

	return $self->create if $r < 0.7 || !@{ $self->{recent} };
	return $self->change;
}

sub token { my ($self) = @_; return "$self->{tx}." . ++$self->{ntokens}; }

sub delay
{
	my $r = rand();
	return 0 if $r < 0.3;
	return int(rand(1500)) if $r < 0.75;
	return int(rand(8000)) if $r < 0.98;
	return 86400000;
}

# Runs a query that schedules; its first columns are id and due (us).
sub schedule
{
	my ($self, $token, $kind, $more, $sql, @args) = @_;
	my ($id, $due) = $self->{dbh}->selectrow_array($sql, undef, @args);
	my %task = (token => $token, id => $id + 0, due => $due + 0, kind => $kind, owner => $self->{owner}, %$more);

	$self->note('task', tx => $self->{tx}, %task);
	push @{ $self->{new} }, \%task;
	return;
}

sub create
{
	my ($self) = @_;
	my $token = $self->token;
	my $ms = delay();
	my $delay = "$ms ms";
	my $r = rand();
	my $effect = "INSERT INTO effects (token) VALUES ('$token')";

	if (rand() < 0.15)
	{
		my $queue = ('inbox', 'letters', 'parcels', 'ledger')[ rand(4) ];
		my %group = $queue =~ /parcels|ledger/ ? (group_key => 'g' . int(rand(4))) : ();

		# some of one group, one soon after the other: then its limit, and its order, matter
		for my $n (1 .. (%group && rand() < 0.3 ? 4 : 1))
		{
			$self->message($n == 1 ? $token : $self->token, $ms + 7 * $n . ' ms', $queue, priority => int(rand(3)) - 1, %group);
		}
		return;
	}
	my $options = sub {
		my ($kind, $more, $task, %options) = @_;
		my @names = in_order(keys %options);
		$self->schedule($token, $kind, $more,
			'SELECT delay_schedule_task(?, delay => ?::interval' . named(@names) . '),'
			  . ' (extract(epoch FROM now() + ?::interval) * 1000000)::bigint',
			$task, $delay, @options{@names}, $delay);
	};

	if ($r < 0.3)
	{
		$self->schedule($token, 'argument', {},
			'SELECT delay_schedule(?::interval, \'INSERT INTO effects (token) VALUES ($1)\', ?::text), (extract(epoch FROM now() + ?::interval) * 1000000)::bigint',
			$delay, $token, $delay);
	}
	elsif ($r < 0.4)
	{
		$self->schedule($token, 'literal', {},
			'SELECT delay_schedule_at(clock_timestamp() + ?::interval, ?), (extract(epoch FROM now() + ?::interval) * 1000000)::bigint',
			$delay, $effect, $delay);
	}
	elsif ($r < 0.5)
	{
		my $tag = "$self->{name}.t" . int(rand(3));
		my $queue = ('narrow', 'steady', 'single', 'grouped', 'ordered')[ rand(5) ];
		my %group = $queue =~ /ed$/ && rand() < 0.9 ? (group_key => 'g' . int(rand(4))) : ();
		for my $n (1 .. (%group && rand() < 0.3 ? 4 : 1))
		{
			# lasts, so that limits are seen to hold; and is not a part of a batch, whose tasks begin all at once
			my %lasts = rand() < 0.5 ? (lasts => 1) : ();

			$token = $self->token if $n > 1;
			$delay = $ms + 7 * $n . ' ms';
			$effect = "INSERT INTO effects (token) VALUES ('$token')";
			$effect = sprintf('SELECT pg_sleep(%.3f); %s', 0.005 + rand(0.04), $effect) if %lasts;
			$options->('queue', { tag => $tag, queue => $queue, %group, %lasts }, $effect, queue => $queue, priority => int(rand(3)) - 1, tag => $tag, %group);
		}
	}
	elsif ($r < 0.6)
	{
		my $key = "$self->{name}.$self->{owner}." . int(rand(4));
		my $if = rand() < 0.6 ? 'replace' : 'keep';
		$options->('key', { key => $key, if_exists => $if }, $effect, key => $key, if_exists => $if);
	}
	elsif ($r < 0.66)
	{
		# not until tomorrow: it may be moved
		my $until = us() + 1000 * ($ms < 60_000 ? $ms : 0) + int(rand(2_000_000));
		$options->('retried', {}, "INSERT INTO effects (token) SELECT '$token' WHERE 1 / (extract(epoch FROM now()) * 1000000 >= $until)::int = 1",
			max_attempts => 30000, retry_delay => '400 ms');
	}
	elsif ($r < 0.70)
	{
		$options->('doomed', { follow => "$token.f" }, "INSERT INTO effects (token) SELECT '$token' WHERE 1 / 0 = 1",
			max_attempts => 2, retry_delay => '200 ms', on_failure => "INSERT INTO effects (token) SELECT '$token.f' WHERE (\$1, \$2, \$3) IS NOT NULL");
	}
	elsif ($r < 0.76)
	{
		$options->('slow', {}, sprintf('SELECT pg_sleep(%.2f); %s; SELECT pg_sleep(%.2f)', rand(0.3), $effect, rand(0.3)));
	}
	elsif ($r < 0.81)
	{
		$options->('followed', { follow => "$token.s" }, $effect, on_success => "INSERT INTO effects (token) SELECT '$token.s' WHERE (\$1, \$2) IS NOT NULL");
	}
	elsif ($r < 0.85)
	{
		$self->schedule($token, 'parent', { follow => "$token.p" },
			'SELECT delay_schedule(?::interval, ?), (extract(epoch FROM now() + ?::interval) * 1000000)::bigint', $delay,
			"INSERT INTO effects (token) VALUES ('$token'); SELECT delay_schedule('300 ms', 'INSERT INTO effects (token) VALUES (\$1)', '$token.p'::text)", $delay);
	}
	elsif ($r < 0.87 && $self->{owner} ne 'n')
	{
		my $mode = rand() < 0.5 ? 'at_most_once' : 'at_least_once';
		$options->($mode, {}, "CALL note('$token')", mode => $mode);
	}
	elsif ($r < 0.94)
	{
		$self->schedule($token, 'trigger', {},
			'WITH i AS (INSERT INTO orders (token, wait) VALUES (?, ?::interval) RETURNING 1) SELECT -1, (extract(epoch FROM now() + ?::interval) * 1000000)::bigint FROM i',
			$token, $delay, $delay);
	}
	else
	{
		my $n = rand() < 0.04 ? 1500 : 1 + int(rand(60));

		if (rand() < 0.4) { $self->batch($token, $delay, $n); return }
		my $rows = $self->{dbh}->selectall_arrayref(
			'SELECT delay_schedule(?::interval + i % 7 * interval \'50 ms\', \'INSERT INTO effects (token) VALUES ($1)\', ? || \'.\' || i), ? || \'.\' || i,'
			  . ' (extract(epoch FROM now() + ?::interval + i % 7 * interval \'50 ms\') * 1000000)::bigint FROM generate_series(1, ?::int) i',
			undef, $delay, $token, $token, $delay, $n);
		for my $row (@$rows)
		{
			my %task = (token => $row->[1], id => $row->[0] + 0, due => $row->[2] + 0, kind => 'bulk', owner => $self->{owner});
			$self->note('task', tx => $self->{tx}, %task);
			push @{ $self->{new} }, \%task;
		}
	}
	return;
}

# A batch of n tasks, whose callback writes the number of its members.  Sometimes it is a member of an
# outer batch, which has no other one but its callback.
sub batch
{
	my ($self, $token, $delay, $n) = @_;
	my $dbh = $self->{dbh};
	my $on_end = sub { return "INSERT INTO effects (token) SELECT '$_[0].' || \$3" };
	my $outer;

	($outer) = $dbh->selectrow_array('SELECT delay_batch(on_end => ?)', undef, $on_end->("$token.o")) if rand() < 0.3;
	my ($batch) = $dbh->selectrow_array('SELECT delay_batch(on_end => ?, batch_id => ?::bigint)', undef, $on_end->("$token.e"), $outer);
	my $rows = $dbh->selectall_arrayref(
		'SELECT delay_schedule_task(\'INSERT INTO effects (token) VALUES ($1)\', ARRAY[? || \'.\' || i], delay => ?::interval + i % 7 * interval \'50 ms\', options => jsonb_build_object(\'batch_id\', ?::bigint)),'
		  . ' ? || \'.\' || i, (extract(epoch FROM now() + ?::interval + i % 7 * interval \'50 ms\') * 1000000)::bigint FROM generate_series(1, ?::int) i',
		undef, $token, $delay, $batch, $token, $delay, $n);
	for my $row (@$rows)
	{
		my %task = (token => $row->[1], id => $row->[0] + 0, due => $row->[2] + 0, kind => 'bulk', owner => $self->{owner},
			batch => $token, members => $n, outer => $outer ? 1 : 0);
		$self->note('task', tx => $self->{tx}, %task);
		push @{ $self->{new} }, \%task;
	}
	return;
}

# A message, which receivers take (Receiver.pm).
sub message
{
	my ($self, $token, $delay, $queue, %more) = @_;
	my %options = %more;

	if ($queue =~ /inbox|letters/ && rand() < 0.2)
	{
		%more = %options = (key => "$self->{name}.$self->{owner}.$queue." . int(rand(3)), if_exists => rand() < 0.6 ? 'replace' : 'keep');
	}
	elsif (rand() < 0.15)
	{
		$more{follow} = "$token.s";
		$options{on_success} = "INSERT INTO effects (token) SELECT '$token.s' WHERE \$1 IS NOT NULL";
	}
	my @names = in_order(keys %options);
	$self->schedule($token, 'message', { queue => $queue, %more },
		'SELECT delay_send(?, ?::jsonb, delay => ?::interval' . named(@names) . '),'
		  . ' (extract(epoch FROM now() + ?::interval) * 1000000)::bigint',
		$queue, qq({"token": "$token"}), $delay, @options{@names}, $delay);
	return;
}

# Names of options: parameters, and then those that go into the parameter options.
my %is_parameter = map { $_ => 1 } qw(key if_exists queue tag priority max_attempts group_key);

sub in_order
{
	my @names = sort @_;
	return ((grep { $is_parameter{$_} } @names), grep { !$is_parameter{$_} } @names);
}

# Places for the values of these options in a call; the names are in order.
sub named
{
	my @names = @_;
	my @rare = grep { !$is_parameter{$_} } @names;

	return join('', map { ", $_ => ?" } grep { $is_parameter{$_} } @names)
	  . (@rare ? ', options => jsonb_build_object(' . join(', ', map { "'$_', ?::text" } @rare) . ')' : '');
}

sub call
{
	my ($self, $sql, @args) = @_;
	return ($self->{dbh}->selectrow_array("SELECT $sql", undef, @args))[0];
}

sub act
{
	my ($self, $what, %more) = @_;
	return $self->note('act', tx => $self->{tx}, owner => $self->{owner}, what => $what, %more);
}

# To a task of before, whatever has become of it.
sub change
{
	my ($self) = @_;
	my @own = grep { $_->{owner} eq $self->{owner} && $_->{id} > 0 } @{ $self->{recent} };
	my $task = @own ? $own[ rand(@own) ] : return;
	my $r = rand();
	my %of = (token => $task->{token});

	if ($r < 0.3)
	{
		$self->act('cancel', %of, result => $self->call('delay_cancel(?)', $task->{id}));
	}
	elsif ($r < 0.36)
	{
		# acts at once, whatever becomes of this transaction
		$self->act('stopping', %of);
		$self->act('cancel', %of, result => $self->call('delay_cancel(?, true)', $task->{id}));
	}
	elsif ($r < 0.66)
	{
		my $delay = delay() . ' ms';
		my ($moved, $due) = $self->{dbh}->selectrow_array(q{SELECT delay_reschedule(?, ?::interval) = 'moved', (extract(epoch FROM now() + ?::interval) * 1000000)::bigint},
			undef, $task->{id}, $delay, $delay);
		$self->act('move', %of, result => $moved, due => $due + 0);
	}
	elsif ($r < 0.76 && $self->{owner} eq $self->{role} && $task->{kind} !~ /^at_|message/)
	{
		# its error, if it has one, is ours
		$self->{dbh}->do('SAVEPOINT run');
		my $ran = eval { $self->call(q{delay_run(?) = 'done'}, $task->{id}) };
		if ($@)
		{
			die $@ unless eval { $self->{dbh}->do('ROLLBACK TO run'); 1 };
		}
		else
		{
			$self->act('run', %of, result => $ran);
		}
	}
	elsif ($r < 0.86)
	{
		my ($key) = grep { $_ } map { $_->{key} } grep { $_->{kind} ne 'message' } reverse @own;
		$self->act('cancel_key', key => $key, result => $self->call('delay_cancel(key => ?)', $key)) if $key;
	}
	elsif ($r < 0.90)
	{
		my ($tag) = grep { $_ } map { $_->{tag} } reverse @own;
		# also what others of this owner have with the tag: these are only ours
		$self->act('cancel_all', tag => $tag, result => $self->call('delay_cancel_all(tag => ?)', $tag)) if $tag;
	}
	elsif ($self->{owner} eq $self->{role})
	{
		for my $catch_up (qw(all skip))
		{
			$self->call('delay_every(?, \'700 ms\', ?, options => jsonb_build_object(\'catch_up\', ?::text))', "$self->{name}.$catch_up",
				"INSERT INTO effects (token) VALUES ('$self->{name}.$catch_up')", $catch_up);
		}
	}
	return;
}

sub wait_for_one
{
	my ($self) = @_;
	my $task = (grep { $_->{id} > 0 && $_->{owner} eq $self->{role} && $_->{kind} !~ /^at_/ } @{ $self->{recent} })[-1] // return;
	my $dbh = $self->{dbh} // return;

	eval {
		my $said = $self->call('delay_wait(?, \'2 s\')', $task->{id});
		my ($effects) = $dbh->selectrow_array('SELECT count(*) FROM effects WHERE token = ?', undef, $task->{token});
		$self->note('wait', token => $task->{token}, said => $said, effects => $effects + 0);
		1;
	} or $self->lost;
	return;
}

1;
