# A receiver of the campaign: takes messages of the external queues, inside of a transaction or under a
# lease, and writes down what it has got and what it was told.
#
# What a message does is a row of effects: written in the transaction that has received it, or by the
# statement that ends its lease.  So the table tells how often each message took effect, and the journal
# who had it when.  In each line e says what it is about; times are in us:
#   had    a committed transaction had these messages from then (after) until then (until)
#   lease  a lease: asked for at "before", known at "after"
#   word   extend, done, release or fail, sent at "sent", answered at "t" with result (? if that was lost)
package Chaos::Receiver;

use strict;
use warnings;

use Chaos::Client;
use Chaos::Lines;
use Chaos::Server;
use Time::HiRes qw(sleep time);

use parent -norequire, 'Chaos::Client';

# Of a lease, and of its extension, in us.
our $lease = 1_500_000;
our $extension = 2_000_000;

# In which ways the messages of a queue are received.
my %ways = (inbox => [ 'inside' ], letters => [ 'leased' ], parcels => [ 'inside', 'leased' ], ledger => [ 'inside', 'leased' ]);

# dir, sockets, number, db, role, seed
sub run
{
	my (%self) = @_;
	my $self = bless {%self}, __PACKAGE__;

	srand($self->{seed} * 1000 + 500 + $self->{number});
	open($self->{journal}, '>>', "$self->{dir}/received.$self->{number}") or die $!;
	$self->{journal}->autoflush(1);
	until (-e "$self->{dir}/stop.receivers")
	{
		$self->be_connected or next;
		my $queue = (sort keys %ways)[ rand(keys %ways) ];
		my $way = $ways{$queue}[ rand(@{ $ways{$queue} }) ];

		eval {
			$self->{dbh}->do('CALL delay_await(?, \'300 ms\')', undef, $queue);
			$self->$way($queue);
			1;
		} or $self->lost;
	}
	return;
}

# There is no other state than the connection.
sub lost
{
	my ($self) = @_;

	return if eval { $self->{dbh}->do('ROLLBACK'); 1 };
	eval { $self->{dbh}->disconnect };
	delete $self->{dbh};
	return;
}

sub receive
{
	my ($self, $queue, $n) = @_;
	return @{ $self->{dbh}->selectall_arrayref(
			q{INSERT INTO effects (token, task, at) SELECT payload ->> 'token', id, statement_timestamp() FROM delay_receive(?, ?) RETURNING token, task},
			undef, $queue, $n) };
}

sub inside
{
	my ($self, $queue) = @_;
	my $dbh = $self->{dbh};

	$dbh->do('BEGIN');
	my @got = $self->receive($queue, 1 + int(rand(10)));
	my $after = Chaos::Client::us();

	if (rand() < 0.1)
	{
		$dbh->do('SAVEPOINT s');
		$self->receive($queue, 3);
		$dbh->do('ROLLBACK TO s');
	}
	if (@got && rand() < 0.1)
	{
		my ($token, $id) = @{ pop @got };

		$dbh->do('DELETE FROM effects WHERE token = ?', undef, $token);
		$dbh->do('SELECT delay_fail(?, retry_in => ?::interval)', undef, $id, int(rand(200)) . ' ms');
	}
	sleep(rand(0.05)) if rand() < 0.3;
	return $dbh->do('ROLLBACK') if rand() < 0.1;
	my $until = Chaos::Client::us();
	$dbh->do('COMMIT');
	$self->note('had', db => $self->{db}, queue => $queue, after => $after, until => $until, tokens => join(',', map { $_->[0] } @got)) if @got;
	return;
}

# A word about a lease, and what came of it.
sub word
{
	my ($self, $word, $l, $sql, @args) = @_;
	my $sent = Chaos::Client::us();

	$self->note('try', token => $l->[2], lease => $l->[1]) if $word ne 'extend';
	my $result = eval { $self->{dbh}->do($sql, undef, @args) };
	my $error = $@;
	$self->note('word', token => $l->[2], lease => $l->[1], word => $word, sent => $sent, result => defined $result ? $result + 0 : '?');
	die $error unless defined $result;
	return;
}

sub leased
{
	my ($self, $queue) = @_;
	my $before = Chaos::Client::us();
	my $got = $self->{dbh}->selectall_arrayref(q{SELECT id, token, payload ->> 'token' FROM delay_lease(?, ?, ?::interval)},
		undef, $queue, 1 + int(rand(8)), "$lease us");
	my $after = Chaos::Client::us();

	$self->note('lease', token => $_->[2], lease => $_->[1], db => $self->{db}, queue => $queue, before => $before, after => $after) for @$got;
	for my $l (@$got)
	{
		my ($id, $token, $name) = @$l;
		my $chance = rand();

		next if $chance < 0.03;    # forgotten
		sleep(rand(0.02));
		sleep(1.7) if rand() < 0.01;    # too slow
		$self->word('extend', $l, 'SELECT 1 WHERE delay_extend(?, ?, ?::interval)', $id, $token, "$extension us") if $chance < 0.08;
		if ($chance > 0.95)
		{
			$self->word('release', $l, 'SELECT 1 WHERE delay_release(?, ?)', $id, $token);
		}
		elsif ($chance > 0.9)
		{
			$self->word('fail', $l, 'SELECT 1 WHERE delay_fail(?, ?, \'no\', ?::interval)', $id, $token, int(rand(200)) . ' ms');
		}
		else
		{
			$self->word('done', $l, 'INSERT INTO effects (token, task) SELECT ?, ? WHERE delay_done(?, ?)', $name, $id, $id, $token);
		}
	}
	return;
}

1;
