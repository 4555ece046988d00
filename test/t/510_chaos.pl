# A short fault campaign (test/chaos): whatever is killed, full or exhausted,
# each task takes effect once, and none early.  Then its checker is shown states
# that are wrong, in each way that it is to find.
#
# DW_CHAOS_SEED repeats a campaign; DW_LONG makes it ten minutes; DW_RACES has the names of faults,
# if not all are wanted.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/../chaos";
use Chaos::Check;
use Chaos::Lines;
use DelayWheel;
use File::Path qw(remove_tree);
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'there is no build with injection points' unless has_injection();
plan skip_all => 'perl has no DBD::Pg' unless eval { require DBD::Pg; 1 };

my $program = "$FindBin::RealBin/../chaos/chaos.pl";
# sockets have short names
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $seed = $ENV{DW_CHAOS_SEED} // time() % 1_000_000;
chomp(my $bindir = `$ENV{PG_CONFIG} --bindir`);

delete @ENV{ grep { /^PG(HOST|PORT|USER|DATABASE|APPNAME)$/ } keys %ENV };
my $ok = run_log([ $^X, $program, '--bindir', $bindir, '--injection', $ENV{DW_INJECTION_LIBDIR}, '--dir', "$dir/c",
	'--seed', $seed, '--minutes', long_tests() ? 10 : 1, $ENV{DW_RACES} ? ('--faults', join(',', split(' ', $ENV{DW_RACES}))) : () ], '>', "$dir/said", '2>&1');
my $said = slurp_file("$dir/said");

note($said);
ok($ok, "a campaign with seed $seed has no finding")
  or diag("repeat it with: DW_CHAOS_SEED=$seed, or test/chaos/run --seed $seed\n", grep { /finding|FINDING/ } map { "$_\n" } split /\n/, $said);
my ($faults) = $said =~ /^faults +(\d+)/m;
my ($done) = $said =~ /^tasks done +(\d+)/m;
cmp_ok($faults // 0, '>=', $ENV{DW_RACES} ? 3 : 8, 'there were faults');
cmp_ok($done // 0, '>=', 500, 'tasks were done');

#
# What the checker says of a state in which some lines are others: the code gets
# a row and returns those that are to stand for it.
#
sub slurp_rows
{
	my @rows;

	Chaos::Lines::read_file($_[0], sub { push @rows, $_[0] });
	return @rows;
}

sub spew_rows
{
	my ($file, @rows) = @_;
	open(my $out, '>', $file) or die $!;
	print $out map { Chaos::Lines::encode(%$_) } @rows;
	return close($out);
}

# of one client alone: that is quicker
my @all = slurp_rows("$dir/c/state.one");
my @journal = slurp_rows("$dir/c/journal.c1");
my %own = map { $_->{task} => 1 } grep { $_->{s} eq 'effect' && $_->{token} =~ /^c1\./ } @all;
my %own_recurring = map { $_->{id} => 1 } grep { $_->{s} eq 'recurring' && $_->{name} =~ /^c1\./ } @all;
my @state = grep { ($_->{tx} // $_->{token} // $_->{name} // $_->{sql} // 'c1.') =~ /\bc1\./ || ($_->{args} // '') =~ /\bc1\./ }
  grep { $_->{s} ne 'history' || ($_->{recurring} ? $own_recurring{ $_->{recurring} } : $own{ $_->{task} }) } @all;
unlink(glob("$dir/c/journal.c[2-9]"), glob("$dir/c/received.*"));
spew_rows("$dir/c/state.two", { s => 'end', t => 1 });
spew_rows("$dir/c/state.one", @state);
is_deeply((Chaos::Check::check("$dir/c"))[0], [], 'the checker finds nothing wrong with one client alone');

sub finds
{
	my ($finding, $what, @rows) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	spew_rows("$dir/c/state.one", @rows);
	my ($findings) = Chaos::Check::check("$dir/c");
	ok((grep { /^$finding: / } @$findings) > 0, "the checker finds $what");
	return;
}

sub first_of { my ($code, @rows) = @_; return (grep { $code->($_) } @rows)[0]; }

# a task that nobody touched after it was committed
my %touched = map { $_->{token} => 1 } grep { $_->{e} eq 'act' && defined $_->{token} } @journal;
my %committed = map { $_->{tx} => 1 } grep { $_->{e} eq 'end' && $_->{outcome} eq 'committed' } @journal;
my %undone = map { $_ => 1 } map { split /,/, $_->{tokens} } grep { $_->{e} eq 'undo' } @journal;
my %due = map { $_->{token} => $_->{due} }
  grep { $_->{e} eq 'task' && $_->{kind} eq 'argument' && $committed{ $_->{tx} } && !$touched{ $_->{token} } && !$undone{ $_->{token} } } @journal;
my $effect = first_of(sub { $_[0]{s} eq 'effect' && $due{ $_[0]{token} // '' } }, @state);
ok($effect, 'there is a task to begin with') or BAIL_OUT('the campaign did nothing');
my @others = grep { $_ != $effect } @state;
# Its transaction.  A client's own rolled back transactions do not serve: there may be none,
# and one whose outcome the client did not learn may have been committed.
my ($its) = map { $_->{tx} } grep { $_->{e} eq 'task' && $_->{token} eq $effect->{token} } @journal;
my $run = first_of(sub { $_[0]{s} eq 'history' && $_[0]{recurring} && $_[0]{outcome} eq 'done' }, @state);
my $tx = first_of(sub { $_[0]{s} eq 'tx' && $committed{ $_[0]{tx} } }, @state);
my $in_history = first_of(sub { $_[0]{s} eq 'history' && $_[0]{task} == $effect->{task} && $_[0]{outcome} eq 'done' }, @state);
my %pending = (s => 'pending', id => 1, due => 9e15, owner => 'a', queue => 'default', key => 'k', args => undef);
my $error = { s => 'failed', id => $effect->{task}, sqlstate => '42P01', message => 'no such table', sql => "INSERT INTO effects (token) VALUES ('$effect->{token}')", args => undef };

finds('lost', 'one that was lost', @others);
finds('doubled', 'one that took effect twice', @state, $effect);
finds('doubled', 'one that took effect and is pending', @state, { %pending, sql => "x '$effect->{token}'" });
finds('early', 'one that was early', @others, { %$effect, at => $due{ $effect->{token} } - 1 });
finds('role', 'one that ran as another role', @others, { %$effect, role => 'postgres' });
finds('id', 'one that ran as another task', @others, { %$effect, task => $effect->{task} + 1_000_000_000 });
finds('failed', 'one that failed without a reason', @others, $error);
finds('stuck', 'one that is overdue', @others, { %pending, key => undef, due => 1, sql => "x '$effect->{token}'" });
finds('ran', 'one that was rolled back and ran', grep { $_->{s} ne 'tx' || $_->{tx} ne $its } @state);
finds('unknown', 'one that nobody scheduled', @state, { %$effect, token => 'c1.999999.1' });
finds('key', 'a key that is pending twice', @state, map { { %pending, sql => "x 'c1.999999.$_'" } } 1 .. 2);
finds('commit lost', 'a commit that is gone', grep { $_ != $tx } @state);
finds('recurring', 'a run that was made twice', @state, $run);
finds('recurring', 'a run at no ideal time', @state, { %$run, due => $run->{due} + 1 });
finds('history', 'an end that is not in the history', grep { $_ != $in_history } @state);

#
# Of messages: what receivers have written down.  Two messages and two tasks that nobody touched are
# made up, as if this client had sent them.
#
sub made_up
{
	my ($n, %more) = @_;
	my $token = "c1.99999$n.1";
	my %task = (token => $token, id => 1_000_000_000 + $n, due => 1000 * $n, owner => 'a', kind => 'message', %more);

	return ({ e => 'begin', t => 0, tx => "c1.99999$n" }, { e => 'task', t => 0, tx => "c1.99999$n", %task }, { e => 'end', t => 1, tx => "c1.99999$n", outcome => 'committed' });
}

sub finds_received
{
	my ($finding, $what, $sent, $effects, @received) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @tokens = map { $_->{token} } grep { $_->{e} eq 'task' } @$sent;

	spew_rows("$dir/c/journal.c1", @journal, @$sent);
	spew_rows("$dir/c/received.1", @received);
	spew_rows("$dir/c/state.one", @state, (map { { s => 'tx', tx => $_ } } map { /^(.*)\./ } @tokens),
		map { { s => 'effect', token => $_, task => 0, role => 'a', at => $effects->{$_}[0], written => $effects->{$_}[1], pid => 1 } } grep { $effects->{$_} } @tokens);
	my ($findings) = Chaos::Check::check("$dir/c");
	my @other = grep { !defined $finding || !/^$finding: / } @$findings;
	is("@other", '', defined $finding ? "the checker finds nothing else than $what" : $what);
	return !defined $finding || ok(@$findings > @other, "the checker finds $what");
}

sub had { my ($n, $after, $until) = @_; return { e => 'had', t => 0, db => 'one', after => $after, until => $until, tokens => "c1.99999$n.1" }; }

sub leased
{
	my ($n, $lease, $before, @more) = @_;
	my %of = (token => "c1.99999$n.1", lease => $lease);
	return ({ e => 'lease', t => 0, %of, db => 'one', before => $before, after => $before + 10 }, map { { %of, %$_ } } @more);
}

my ($ledger, $letters, $ordered, $narrow) = map { [ made_up(1, @$_), made_up(2, @$_) ] } [ queue => 'ledger', group_key => 'g' ], [ queue => 'letters' ],
  [ queue => 'ordered', group_key => 'g', kind => 'queue' ], [ queue => 'narrow', kind => 'queue', lasts => 1 ];
my ($a, $b) = ('c1.999991.1', 'c1.999992.1');
my $tried = { e => 'try', t => 20_000 };
my $extended = { e => 'word', word => 'extend', result => 1, sent => 15_000, t => 15_100 };
my %in_time = ($a => [ 2000, 2500 ], $b => [ 3000, 3500 ]);

finds_received(undef, 'nothing is wrong with two messages in order', $ledger, \%in_time, had(1, 2100, 2600), had(2, 3100, 3600));
finds_received('lost', 'a message that was lost', $letters, { $b => [ 3000, 3500 ] });
finds_received('early', 'a message that was early', $letters, { %in_time, $b => [ 1000, 1500 ] });
finds_received('early', 'one that was received early', $letters, \%in_time, had(2, 1500, 1600));
finds_received('unknown', 'a message that nobody sent', $letters, \%in_time, had(3, 5000, 5100));
finds_received('leased twice', 'two leases at a time', $letters, \%in_time, leased(1, 1, 10_000), leased(1, 2, 12_000));
finds_received(undef, 'nothing is wrong with a lease after the word about another one', $letters, \%in_time, leased(1, 1, 10_000, $tried), leased(1, 2, 20_100));
finds_received(undef, 'nor with one after its end', $letters, \%in_time, leased(1, 1, 10_000), leased(1, 2, 10_000 + $Chaos::Receiver::lease));
finds_received('leased twice', 'one after the end that was extended', $letters, \%in_time, leased(1, 1, 10_000, $extended), leased(1, 2, 10_000 + $Chaos::Receiver::lease));
finds_received('leased twice', 'one that is received inside, too', $letters, \%in_time, leased(1, 1, 10_000), had(1, 12_000, 12_100));
finds_received('limit', 'two messages of a group at a time', $ledger, { $a => [ 3000, 3500 ], $b => [ 3000, 3500 ] }, had(1, 3100, 3600), had(2, 3200, 3300));
finds_received('order', 'a message before one that comes first', $ledger, { $a => [ 4000, 4500 ], $b => [ 3000, 3500 ] }, had(2, 3100, 3600));
finds_received(undef, 'nothing is wrong with two tasks in order', $ordered, \%in_time);
finds_received('order', 'a task before one that comes first', $ordered, { $a => [ 2000, 3500 ], $b => [ 3499, 4000 ] });
finds_received('limit', 'two tasks of a queue at a time', $narrow, { $a => [ 2000, 3500 ], $b => [ 3499, 4000 ] });

done_testing();
