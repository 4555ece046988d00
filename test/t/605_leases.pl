# Leases: a message belongs to one receiver until its lease ends, and is then due again;
# who shows another token changes nothing; the last lease is ended by the sweeper; keys,
# cancellations, limits, pauses, crashes, copies; and the trigger that sends.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('leases', conf => q{
log_statement = none
autovacuum = off
wal_level = minimal
max_wal_senders = 0
});

sub query { return $node->safe_psql('postgres', $_[0]); }

# The SQLSTATE of a statement, or what it returns.
sub outcome
{
	my ($sql, %with) = @_;
	my ($code, $out, $err) = $node->psql($with{db} // 'postgres', $sql,
		extra_params => [ '-v', 'VERBOSITY=sqlstate', $with{role} ? ('-U', $with{role}) : () ]);

	return $err =~ /ERROR: +(\w{5})/ ? $1 : $out;
}

# Leases up to n messages; returns a list of [id, token, payload, attempt].
sub lease
{
	my ($queue, $n, $time, %with) = @_;

	return map { [ split /\|/, $_ ] } split /\n/,
	  $node->safe_psql($with{db} // 'postgres', "SELECT id, token, payload #>> '{}', attempt FROM delay_lease('$queue', $n, '$time')",
		extra_params => [ $with{role} ? ('-U', $with{role}) : () ]);
}

sub texts { return join(' ', map { $_->[2] } @_); }

sub put
{
	my ($queue, @texts) = @_;

	query("SELECT delay_send('$queue', to_jsonb('$_'::text))") for @texts;
	wait_for($node, "SELECT ready >= " . @texts . " FROM delay_wheel.queues WHERE name = '$queue'", "$queue: @texts");
	return;
}

# A message can be received, whatever entries of others are still in memory.
sub await { is(query("CALL delay_await('$_[0]', '60 s')"), 't', $_[1]); return; }

# Leases one message; waits for it.
sub lease_one
{
	my ($queue, $time, $what) = @_;
	my @got;

	wait_until(60, sub { query("CALL delay_await('$queue', '1 s')"); return @got = lease($queue, 1, $time) });
	is(scalar(@got), 1, $what);
	return $got[0] // [ 0, 0, '', 0 ];
}

sub call { my ($function, $lease, @more) = @_; return query("SELECT $function(" . join(', ', @$lease[ 0, 1 ], @more) . ')'); }

sub pending { return query('SELECT count(*) FROM delay_wheel.tasks'); }

query(q{
	CREATE ROLE sender LOGIN; CREATE ROLE mailer LOGIN; CREATE ROLE stranger LOGIN;
	SELECT delay_wheel.allow('public');
	SELECT delay_wheel.create_queue('mail', external => true, users => '{public}', receivers => '{mailer}', options => '{"retry_delay": "100 ms"}');
	CREATE TABLE followed (what text, role name DEFAULT current_user);
	GRANT ALL ON followed TO PUBLIC;
});

#
# Done
#
put('mail', 'a');
my ($first) = lease('mail', 10, '1 hour');
is(texts($first), 'a', 'a message is leased');
is($first->[3], 1, 'the first time');
is(scalar(lease('mail', 10, '1 hour')), 0, 'nobody else gets it');
is(query("CALL delay_await('mail', '0')"), 'f', 'and nobody is told that there is one');
is(query("SELECT leased_until > now() + interval '59 minutes' AND due <= now() FROM delay_wheel.tasks"), 't', 'the view shows the end of the lease, and when the message was due');
is(call('delay_done', [ $first->[0], $first->[1] + 1 ]), 'f', 'another token is refused');
is(call('delay_done', [ $first->[0] + 1000, $first->[1] ]), 'f', 'another id is');
is(outcome("BEGIN; SELECT delay_done($first->[0], $first->[1]); ROLLBACK"), 't', 'done in a transaction that is rolled back');
is(query("BEGIN; SAVEPOINT a; SELECT delay_done($first->[0], $first->[1]); ROLLBACK TO a; COMMIT; SELECT count(*) FROM delay_wheel.tasks"), "t\n1", '... or in such a savepoint is not done');
is(call('delay_done', $first), 't', 'then it is');
is(call('delay_done', $first), 'f', 'once');
is(pending(), 0, 'it is gone');
is(outcome("SELECT $_"), '22004', "$_ is refused") for 'delay_done(NULL, 1)', 'delay_done(1, NULL)', 'delay_extend(1, NULL)', 'delay_release(NULL, 1)', 'delay_fail(NULL, 1)', 'delay_done_all(NULL, NULL)',
  q{delay_done_all('{NULL}', '{1}')};
is(outcome(q{SELECT delay_done_all('{1,2}', '{1}')}), '2202E', 'arrays of different length are refused');

# What PostgreSQL cannot hold is an error of the call, and the lease goes on.
put('mail', 'nul');
my ($nul) = lease('mail', 1, '1 hour');
is(outcome(sprintf q{SELECT delay_done(%s, %s, '{"text": "\u0000"}')}, @$nul[ 0, 1 ]), '22P05', 'a result with \u0000 is refused');
is(outcome(sprintf q{SELECT delay_fail(%s, %s, E'a\000b')}, @$nul[ 0, 1 ]), '22021', 'an error text with a NUL byte is refused');
is(call('delay_done', $nul), 't', 'the message can be finished after that');

put('mail', 1 .. 5);
my @five = lease('mail', 10, '1 hour');
is(texts(@five), '1 2 3 4 5', 'several are leased, in their order');
is(query(sprintf "SELECT delay_done_all('{%s}', '{%s}')", join(',', map { $_->[0] } @five), join(',', $five[0][1], 7, map { $_->[1] } @five[ 2 .. 4 ])),
	'{' . join(',', map { $_->[0] } @five[ 0, 2, 3, 4 ]) . '}', 'delay_done_all() says which were done');
is(call('delay_done', $five[1]), 't', 'the other one is left');

# A receiver remembers where the rows of its leases are.  Then they are elsewhere, and other messages
# are in their place.
sub place_of { return $node->safe_psql('postgres', "SELECT ctid FROM delay_wheel_data.task WHERE id = $_[0]"); }

my $receiver = $node->background_psql('postgres');
my $leased = sub { return [ split /\|/, $receiver->query_safe("SELECT id, token FROM delay_lease('mail', 1, '1 hour')") ] };
my $says = sub { return $receiver->query_safe($_[0]) };
my $done = sub { my ($lease) = @_; return $says->("SELECT delay_done($lease->[0], $lease->[1])") };

# A lease whose row has moved, and the message that is in its place.
sub move_row
{
	put('mail', 'moved');
	my $lease = $leased->();
	my $place = place_of($lease->[0]);
	my $other = 0;

	is(call('delay_extend', $lease, q{'1 hour'}), 't', 'another session extends the lease');
	query('VACUUM (INDEX_CLEANUP ON) delay_wheel_data.task');
	for (1 .. 500)
	{
		$other = query(q{SELECT delay_send('mail', '"other"', due => now() + interval '1 hour')});
		last if place_of($other) eq $place;
	}
	is(place_of($other), $place, 'another message is in the place where its row was');
	return ($lease, $other);
}

my ($moved, $other) = move_row();
is($done->($moved), 't', 'the receiver finds the row');
is($done->($moved), 'f', 'once');
is(query("SELECT count(*) FROM delay_wheel.tasks WHERE id = $other"), 1, 'and not the other message');
# it has not read the other message, for PostgreSQL neither
($moved, $other) = move_row();
$says->('BEGIN ISOLATION LEVEL SERIALIZABLE');
is($done->($moved), 't', 'done in a serializable transaction');
my $beside = $node->background_psql('postgres', on_error_stop => 0);
$beside->query("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM delay_wheel_data.task; SELECT delay_cancel($other)");
$says->('COMMIT');
$beside->query('COMMIT');
$beside->quit;
is(query("SELECT count(*) FROM delay_wheel.tasks WHERE id = $other"), 0, 'beside it a transaction that cancels the other message is not refused');
query(q{SELECT delay_cancel_all(due_from => '-infinity')});

put('mail', 'lapsed');
my $lapsed = $leased->();
query("UPDATE delay_wheel_data.task SET due = now() WHERE id = $lapsed->[0]");
my $next = lease_one('mail', '1 hour', 'a lease has ended, and another session has the message');
is($done->($lapsed), 'f', 'the first receiver is refused');
is(call('delay_done', $next), 't', 'the second is not');

put('mail', 'undone');
my $undone = $leased->();
$says->("BEGIN; SAVEPOINT a; SELECT delay_extend($undone->[0], $undone->[1], '1 hour'); ROLLBACK TO a");
is($done->($undone), 't', 'a savepoint with an extension is rolled back: the receiver finds the row');
$says->('ROLLBACK');
is($says->("SELECT delay_release($undone->[0], $undone->[1])"), 't', 'and again after a rollback');
await('mail', 'the message is back');
$undone = $leased->();
is($says->("SELECT delay_done_all(ARRAY[$undone->[0], $undone->[0]], ARRAY[$undone->[1], $undone->[1]])"), "{$undone->[0]}", 'in one call a message is done once');
is(pending(), 0, 'all are done');
$receiver->quit;

#
# The end of a lease
#
put('mail', 'long', 'short');
my ($long) = lease('mail', 1, '1 hour');
my ($short) = lease('mail', 1, '300 ms');
is(texts($long, $short), 'long short', 'a long lease, then a short one');
await('mail', 'who waits is told when the short one has ended');
my ($again) = lease('mail', 10, '1 hour');
is(texts($again), 'short', 'the message is due again');
is($again->[3], 2, 'for the second time');
isnt($again->[1], $short->[1], 'with another token');
is(call($_, $short), 'f', "the first receiver is too late: $_()") for qw(delay_done delay_extend delay_release delay_fail);
is(call('delay_done', $again), 't', 'the second one is not');
is(call('delay_done', $long), 't', 'the long lease has lasted');

put('mail', 'late');
my ($late) = lease('mail', 1, '1 ms');
wait_for($node, 'SELECT leased_until IS NULL FROM delay_wheel.tasks', 'a lease has ended');
is(call('delay_done', $late), 't', 'a message that nobody has got since can still be finished');
is(pending(), 0, 'it is gone, too');

query(q{SELECT delay_send('mail', to_jsonb(i::text)) FROM generate_series(1, 200) i});
wait_for($node, q{SELECT ready >= 200 FROM delay_wheel.queues WHERE name = 'mail'}, 'many messages');
my @many = lease('mail', 1000, '1 s');
is(scalar(@many), 200, 'all are leased');
query(sprintf "SELECT delay_done_all('{%s}', '{%s}')", join(',', map { $_->[0] } @many[ 0 .. 149 ]), join(',', map { $_->[1] } @many[ 0 .. 149 ]));
my %back;
wait_until(60, sub { $back{ $_->[2] }++ for lease('mail', 7, '1 hour'); return keys %back == 50 });
is(join(' ', sort { $a <=> $b } keys %back), join(' ', 151 .. 200), 'those that were not done come back');
is(join(' ', grep { $back{$_} > 1 } keys %back), '', 'each once');
query(q{SELECT delay_cancel_all(queue => 'mail')});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'they are cancelled');
is(call('delay_done', $many[199]), 'f', 'a token is void then');

# An old snapshot sees the row as it was before it failed, and must not forget what it is now.
my $old_snapshot = $node->background_psql('postgres', on_error_stop => 0);
put('mail', 'v');
my ($v) = lease('mail', 1, '1 hour');
$old_snapshot->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM delay_wheel.tasks');
call('delay_fail', $v, 'NULL', q{'0'});
await('mail', 'a message has failed and is due again');
is($old_snapshot->query(q{SELECT count(*) FROM delay_receive('mail', 10)}), 0, 'a transaction that is older does not get it');
$old_snapshot->query('COMMIT');
$v = lease_one('mail', '1 hour', 'it is not forgotten');
is($v->[2], 'v', 'others get it');
# the same due time as before, and another row
is(call('delay_release', $v), 't', 'it is released');
await('mail', 'it is due again');
$old_snapshot->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM delay_wheel.tasks');
($v) = lease('mail', 1, '1 hour');
is(call('delay_release', $v), 't', 'it is leased and released while a snapshot is held');
await('mail', 'it is due once more');
is($old_snapshot->query(q{SELECT count(*) FROM delay_receive('mail', 10)}), 0, 'a transaction that is older does not get it');
$old_snapshot->query('COMMIT');
$old_snapshot->quit;
is(lease_one('mail', '1 ms', 'it is not forgotten')->[2], 'v', 'others get it');
query(q{SELECT delay_cancel_all(queue => 'mail')});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'it is cancelled');

#
# What the view of queues says: due and not taken, waited for, leased, ended without a word
#
query(q{SELECT delay_wheel.create_queue('seen', external => true, users => '{sender}', receivers => '{mailer}'); SELECT delay_wheel.create_queue('sql')});

# A test: the queue comes to have these figures.
sub seen
{
	my ($figures, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_for($node, q{SELECT ready, awaiting, leased, lapsed FROM delay_wheel.queues WHERE name = 'seen'}, $what, 60, expected => $figures);
}

# Sends a message, whose lease ends without a word so far; returns that lease.
sub lapse
{
	my ($text, %with) = @_;
	my $key = $with{key} // '';

	query("SELECT delay_send('seen', '\"$text\"', key => nullif('$key', ''))");
	my $lease = lease_one('seen', '1 ms', "$text is leased");
	wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'seen'}, 'the lease has ended', 60, expected => 1);
	return $lease;
}

seen('0|0|0|0', 'a new queue');
is(query(q{SELECT first_due IS NULL, awaiting IS NULL, leased IS NULL, lapsed IS NULL FROM delay_wheel.queues WHERE name = 'sql'}), 't|t|t|t', 'one of SQL tasks has no such figures');
put('seen', 'a', 'b', 'c');
is(query(q{SELECT first_due = (SELECT min(due) FROM delay_wheel.tasks) FROM delay_wheel.queues WHERE name = 'seen'}), 't', 'since when the oldest message waits');
my @held = lease('seen', 2, '1 hour');
seen('1|0|2|0', 'two are leased, one is not taken');
is(query(q{SELECT first_due = (SELECT max(due) FROM delay_wheel.tasks) FROM delay_wheel.queues WHERE name = 'seen'}), 't', 'the oldest is another one');
is(query(q{SET SESSION AUTHORIZATION sender; SELECT ready, awaiting, leased, lapsed FROM delay_wheel.queues WHERE name = 'seen'}), '1|0|2|0', 'its senders see these figures');
my $locker = $node->background_psql('postgres', on_error_stop => 0);
$locker->query('BEGIN; LOCK TABLE delay_wheel_data.task IN ACCESS EXCLUSIVE MODE');
is(query(q{SELECT ready, awaiting, leased, lapsed FROM delay_wheel.queues WHERE name = 'seen'}), '1|0||0', 'while the table is rewritten the view does not wait, and does not know');
$locker->query('ROLLBACK');
call('delay_done', $_) for @held, lease('seen', 1, '1 hour');
seen('0|0|0|0', 'all are done');
is(query(q{SELECT first_due IS NULL FROM delay_wheel.queues WHERE name = 'seen'}), 't', 'none waits');
$locker->query_until(qr/begun/, "\\echo begun\nCALL delay_await('seen');\n");
seen('0|1|0|0', 'a receiver waits');
query(q{SELECT delay_send('seen', '"for it"')});
seen('1|0|0|0', 'until a message comes');
is($locker->query('SELECT 1'), "t\n1", 'the waiting session is told of the message');
$locker->quit;
call('delay_done', lease_one('seen', '1 hour', 'it is leased'));

my $spoken = lapse('late');
is(call('delay_done', $spoken), 't', 'a receiver is late');
is(scalar(lease('seen', 1, '1 hour')), 0, 'nothing is left');
seen('0|0|0|0', 'a late word is a word');
lapse('d');
$spoken = lease_one('seen', '1 hour', 'it is leased again');
seen('0|0|1|1', 'the first lease ended without a word');
call('delay_fail', $spoken, 'NULL', q{'0'});
$spoken = lease_one('seen', '1 hour', 'it has failed');
call('delay_extend', $spoken, q{'2 hours'});
call('delay_release', $spoken);
$spoken = lease_one('seen', '1 hour', 'it was extended, and released');
call('delay_done', $spoken);
seen('0|0|0|1', 'these were words');

lapse('e');
my $receive = q{SELECT count(*) FROM delay_receive('seen', 10)};
is(query("BEGIN; $receive; ROLLBACK"), 1, 'one is received, and rolled back');
seen('1|0|0|1', 'which is not counted');
is(query("BEGIN; SAVEPOINT s; $receive; ROLLBACK TO s; COMMIT"), 1, 'it is in a savepoint');
seen('1|0|0|1', 'which is not, either');
is(query("BEGIN; $receive; COMMIT"), 1, 'it is received');
seen('0|0|0|2', 'that is');
query(q{SELECT delay_wheel.create_queue('seen', options => '{"retry_delay": "0"}')});
lapse('poison');
for my $n (1 .. 3)
{
	ok(wait_until(60, sub { return query("BEGIN; $receive; ROLLBACK") == 1 }), "one whose lease has ended is received and rolled back: $n");
}
ok(wait_until(60, sub { return query("BEGIN; $receive; COMMIT") == 1 }), 'it is not forgotten');
seen('0|0|0|3', 'its lease is counted once');
query(q{SELECT delay_send('seen', '"f"', max_attempts => 1)});
lease_one('seen', '1 ms', 'a last lease');
wait_for($node, q{SELECT lapsed FROM delay_wheel.queues WHERE name = 'seen'}, 'it is counted when the message has failed', 60, expected => 4);
lapse('g', key => 'k');
query(q{SELECT delay_send('seen', '"new"', key => 'k', delay => '1 hour')});
ok(wait_until(60, sub { lease('seen', 1, '1 hour'); return query(q{SELECT lapsed FROM delay_wheel.queues WHERE name = 'seen'}) == 5 }), 'or was superseded');
lapse('h');
query(q{SELECT delay_wheel.pause_queue('seen')});
is(query("BEGIN; $receive; COMMIT"), 0, 'what a pause holds back is not received');
query(q{SELECT delay_cancel_all(queue => 'seen'); SELECT delay_wheel.resume_queue('seen')});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'it is cancelled');
is(scalar(lease('seen', 10, '1 hour')), 0, 'nothing is left');
seen('0|0|0|5', 'what was cancelled is not counted');
put('seen', 'kept', 'left');
my $over_restart = lease_one('seen', '1 hour', 'a message is leased');
$node->restart;
seen('1|0|1|0', 'leases last over a restart; they are counted from it on');
call('delay_done', $over_restart);
call('delay_done', lease_one('seen', '1 hour', 'the other one'));
seen('0|0|0|0', 'the queue is empty');
query('DELETE FROM delay_wheel_data.failed_task');

#
# Extending, releasing, failing
#
put('mail', 'e', 'f', 'g');
my ($e) = lease('mail', 1, '500 ms');
is(call('delay_extend', $e, "'1 hour'"), 't', 'a lease is extended');
is(query("SELECT leased_until > now() + interval '59 minutes' FROM delay_wheel.tasks WHERE id = $e->[0]"), 't', 'it lasts longer');
my ($f) = lease('mail', 1, '1 hour');
is(call('delay_release', $f), 't', 'one is released');
my @after = map { lease_one('mail', '1 hour', 'another one') } 1 .. 2;
is(join(' ', sort map { $_->[2] } @after), 'f g', 'it is due again');
is(join(' ', map { $_->[3] } @after), '1 1', 'and no attempt was counted');
is(call('delay_release', $after[0], "'1 hour'"), 't', 'one is released for later');
is(query("SELECT due > now() + interval '59 minutes' AND attempts = 0 AND leased_until IS NULL FROM delay_wheel.tasks WHERE id = $after[0][0]"), 't', 'it is due then');
is(call('delay_fail', $after[1], q{'no'}, q{'2 hours'}), 't', 'one fails');
is(query("SELECT due > now() + interval '119 minutes', attempts, last_error FROM delay_wheel.tasks WHERE id = $after[1][0]"), 't|1|DW007: no', 'it is due again when its receiver said');
is(call('delay_fail', $e, 'NULL', 'NULL', 'true'), 't', 'one is given up');
is(query("SELECT sqlstate, attempts, message FROM delay_wheel.failed WHERE id = $e->[0]"), 'DW007|1|the receiver has reported a failure', 'it has failed');
is(query("SELECT delay_retry($e->[0])"), 'retried', 'it is put back');
is(lease_one('mail', '1 hour', 'it is leased')->[2], 'e', 'and got again');
is(outcome("SELECT * FROM delay_lease('mail', 1, '$_')"), '22023', "no lease of $_") for '0', '-1 s', '999 us', '367 days';
is(outcome("SELECT * FROM delay_lease('mail', $_)"), '22023', "no $_ messages") for 0, 1001, -1;
is(outcome("SELECT delay_extend(1, 1, '0')"), '22023', 'no extension of nothing');
is(query('SELECT delay_wait(' . query(q{SELECT min(id) FROM delay_wheel.tasks}) . q{, '0')}), 'timeout', 'a leased message is pending');
query(q{SELECT delay_cancel(id, true) FROM delay_wheel.tasks});
is(pending(), 0, 'all are cancelled');

# The ends that a lease would have had leave nothing behind: it is extended time and again, also in one
# transaction, and done.  The one that is sent last is due after all of these ends.
query(q{SELECT delay_wheel.create_queue('longer', external => true)});
put('longer', 'a');
my ($longer) = lease('longer', 1, '2 s');
my $extend = "SELECT delay_extend($longer->[0], $longer->[1], '2 s');\n";
is(query($extend x 20 . "BEGIN; $extend $extend COMMIT; BEGIN; SAVEPOINT s; $extend ROLLBACK TO s; COMMIT; SELECT delay_done($longer->[0], $longer->[1]); SELECT delay_send('longer', '\"last\"', delay => '3 s') > 0"),
	join("\n", ('t') x 25), 'a lease is extended, and done');
wait_for($node, q{SELECT ready > 0 FROM delay_wheel.queues WHERE name = 'longer'}, 'another message is due, after the time of these ends');
is(query(q{SELECT ready FROM delay_wheel.queues WHERE name = 'longer'}), 1, 'and nothing but that');
$longer = lease_one('longer', '1 hour', 'it is leased');
is(call('delay_extend', $longer, "'500 ms'"), 't', 'its lease is shortened');
$longer = lease_one('longer', '500 ms', 'it comes back at the new end');
is(call('delay_extend', $longer, "'1 s'"), 't', 'its lease is extended');
$longer = lease_one('longer', '1 hour', 'it comes back, and is not forgotten');
is(call('delay_done', $longer), 't', 'and done');

#
# The last lease, though no receiver comes
#
query(q{SET SESSION AUTHORIZATION sender;
	SELECT delay_send('mail', '"last"', max_attempts => 2, options => '{"on_failure": "INSERT INTO followed VALUES ($2)"}')});
lease_one('mail', '1 ms', 'the first lease');
my $last = lease_one('mail', '300 ms', 'the last lease');
is($last->[3], 2, 'is the second attempt');
is(query("SELECT delay_wait($last->[0], '60 s')"), 'failed', 'its end is the end of the message');
is(query('SELECT sqlstate, attempts FROM delay_wheel.failed'), 'DW006|2', 'it stands among the failed ones');
wait_for($node, q{SELECT string_agg(what || ' ' || role, ', ') = 'DW006 sender' FROM followed}, 'its sender is told');
is(call('delay_done', $last), 'f', 'its token is void');
is(scalar(lease('mail', 10, '1 hour')), 0, 'nobody gets it');
query('DELETE FROM delay_wheel_data.failed_task');

#
# What is refused
#
put('mail', 'r');
is(outcome("BEGIN; SELECT * FROM delay_lease('mail'); COMMIT"), '25001', 'no lease in a transaction block');
is(outcome("DO 'BEGIN PERFORM * FROM delay_lease(''mail''); END'"), '25001', 'in DO');
query(q{CREATE FUNCTION leases() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM delay_lease('mail') $$});
is(outcome('SELECT leases()'), '25001', 'in a function');
is(outcome("WITH l AS (SELECT id FROM delay_lease('mail')) INSERT INTO followed SELECT id::text FROM l"), '25001', 'in a statement that writes');
is(outcome("COPY (SELECT * FROM delay_lease('mail')) TO STDOUT"), '25001', 'in COPY');
is(outcome("EXPLAIN ANALYZE SELECT * FROM delay_lease('mail')"), '0A000', 'in EXPLAIN ANALYZE');
is(outcome("SELECT (delay_lease('mail')).*"), '0A000', 'in the target list');
is(outcome(q{SELECT * FROM delay_lease('default')}), '55000', 'from a queue of SQL tasks');
is(outcome(q{SELECT * FROM delay_lease('mail')}, role => 'stranger'), '42501', 'by a stranger');
is(outcome(q{SELECT * FROM delay_lease('mail')}, role => 'sender'), '42501', 'by a sender');
my ($r) = lease('mail', 1, '1 hour', role => 'mailer');
is(texts($r), 'r', 'its receiver gets it');
is(outcome("SELECT delay_done($r->[0], 1)", role => 'stranger'), 'f', 'a stranger learns nothing by a guess');
query(q{SELECT delay_wheel.create_queue('mail', receivers => '{}')});
is(outcome("SELECT delay_done($r->[0], $r->[1])", role => 'mailer'), '42501', 'who has lost the right cannot finish');
query(q{SELECT delay_wheel.create_queue('mail', receivers => '{mailer}')});
is(outcome("SELECT delay_done($r->[0], $r->[1])", role => 'mailer'), 't', 'who has it again can');

#
# Keys, cancelling, moving, pauses
#
query(q{SELECT delay_send('mail', '"k1"', key => 'k')});
my $k1 = lease_one('mail', '1 hour', 'a message with a key');
my $k2 = query(q{SELECT delay_send('mail', '"k2"', key => 'k')});
isnt($k2, $k1->[0], 'while it is leased it counts as running: another one is sent');
is(query("SELECT delay_send('mail', '\"k3\"', key => 'k')"), $k2, 'a further message with the key keeps the second one');
is(query("SELECT delay_cancel($k1->[0]), delay_reschedule($k1->[0], '0')"), 'running|running', 'it cannot be cancelled or moved');
my $second = lease_one('mail', '1 hour', 'the newer one is leased, too');
is($second->[2], 'k2', 'at the same time');
is(call('delay_done', $k1), 't', 'the older one can be finished');
is(call('delay_done', $second), 't', 'and the newer one');

query(q{SELECT delay_send('mail', '"old"', key => 'k')});
my $old = lease_one('mail', '3 s', 'a message with a key');
query(q{SELECT delay_send('mail', '"new"', key => 'k', delay => '1 hour')});
my @nothing;
wait_until(60, sub { @nothing = lease('mail', 1, '1 hour'); return query("SELECT count(*) FROM delay_wheel.failed WHERE id = $old->[0]") == 1 });
is(query("SELECT sqlstate FROM delay_wheel.failed WHERE id = $old->[0]"), 'DW001', 'one whose lease has ended is superseded by a newer one of its key');
is(scalar(@nothing), 0, 'nobody gets it');
is(query(q{SELECT delay_cancel(key => 'k', queue => 'mail')}), 'cancelled', 'the newer one is pending');

put('mail', 'c');
my ($c) = lease('mail', 1, '1 hour');
is(query("SELECT delay_cancel($c->[0], true)"), 'cancelled', 'with stop_running a leased message is cancelled');
is(call('delay_done', $c), 'f', 'its token is void');
my $before = query('SELECT clock_timestamp()');
query(q{SELECT delay_send('mail', '"tagged"', tag => 't')});
my $tagged = lease_one('mail', '1 hour', 'one with a tag');
query(q{SELECT delay_cancel_all(due_from => now() + interval '1 minute')});
is(call('delay_extend', $tagged, "'2 hours'"), 't', 'the end of a lease is no due time');
query("SELECT delay_cancel_all(tag => 't', due_from => '$before', due_until => clock_timestamp())");
is(call('delay_done', $tagged), 'f', 'the first due time is');
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'its row is removed');

put('mail', 'p', 'q');
my ($p) = lease('mail', 1, '1 hour');
query(q{SELECT delay_wheel.pause_queue('mail')});
is(scalar(lease('mail', 1, '1 hour')), 0, 'a paused queue gives nothing');
is(call('delay_done', $p), 't', 'what was leased before can be finished');
is(outcome(q{SELECT delay_wheel.drop_queue('mail')}), '55006', 'a queue with messages is not dropped');
query(q{SELECT delay_wheel.resume_queue('mail')});
is(call('delay_done', lease_one('mail', '1 hour', 'a resumed queue gives')), 't', 'the other one');

#
# Limits
#
query(q{SELECT delay_wheel.create_queue('narrow', external => true, max_running => 2)});
put('narrow', 1 .. 5);
my @two = lease('narrow', 10, '1 hour');
is(texts(@two), '1 2', 'max_running counts leases');
is(scalar(lease('narrow', 10, '1 hour')), 0, 'no more');
is(query(q{CALL delay_await('narrow', '0')}), 'f', 'which delay_await() knows');
$node->restart;
wait_for($node, q{SELECT ready = 3 FROM delay_wheel.queues WHERE name = 'narrow'}, 'after a restart');
is(scalar(lease('narrow', 10, '1 hour')), 0, 'leases are counted, too');
is(call('delay_done', $two[0]), 't', 'one is done');
is(lease_one('narrow', '1 hour', 'its place is free')->[2], '3', 'for the next');
is(call('delay_release', $two[1], "'1 hour'"), 't', 'one is released');
is(lease_one('narrow', '200 ms', 'its place is free')->[2], '4', 'for the next');
like(lease_one('narrow', '1 hour', 'the end of a lease frees a place')->[2], qr/^[45]$/, 'for one of those that are left');
query(q{SELECT delay_cancel_all(queue => 'narrow')});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'narrow is empty');

#
# Notifications, for those who listen
#
query(q{SELECT delay_wheel.create_queue('told', external => true, options => '{"notify_channel": "there"}')});
is(outcome("SELECT delay_wheel.create_queue('told', options => jsonb_build_object('notify_channel', repeat('x', 64)))"), '22023', 'a channel has at most 63 bytes');
my $listener = $node->background_psql('postgres', on_error_stop => 0);
$listener->query('LISTEN there');
my $heard = '';

# A test: the listener is notified; and then not again for nothing.
sub hears
{
	my ($what) = @_;

	ok(wait_until(60, sub { $heard = $listener->query('SELECT 1'); return $heard =~ /"there" with payload "told"/ }), $what);
	return;
}

query(q{SELECT delay_send('told', '"n"', delay => '300 ms')});
hears('a message that becomes due is told');
my $n = lease_one('told', '300 ms', 'it is leased');
hears('so is the end of its lease');
$n = lease_one('told', '1 hour', 'it is leased again');
is(call('delay_release', $n), 't', 'and released');
hears('which is told');
query(q{SELECT delay_wheel.pause_queue('told')});
wait_for($node, q{SELECT state = 'paused' FROM delay_wheel.queues WHERE name = 'told'}, 'the queue is paused');
query(q{SELECT delay_wheel.resume_queue('told')});
hears('a resume is told');
# a place that is free again is told, if it was taken by a transaction, too
query(q{SELECT delay_wheel.create_queue('told', max_running => 1); SELECT delay_send('told', '"second"')});
hears('another message is told');
my $holder = $node->background_psql('postgres', on_error_stop => 0);
is($holder->query(q{BEGIN; SELECT count(*) FROM delay_receive('told')}), 1, 'one is received');
$listener->query('SELECT 1');
$holder->query('ROLLBACK');
hears('so is the end of the transaction that has one');
$holder->quit;
query(q{SELECT delay_wheel.create_queue('told', max_running => 0)});
# a message that nobody takes is told once: each look at queues would tell it again
wait_until(60, sub { query('SELECT pg_sleep(0.3)'); return $listener->query('SELECT 1') !~ /told/ });
query(q{SELECT delay_wheel.create_queue('told', priority => 1)}) for 1 .. 3;
wait_for($node, q{SELECT state = 'unreceived' FROM delay_wheel.queues WHERE name = 'told'}, 'a message waits');
query(q{SELECT pg_notify('there', 'the end')});
my $more = '';
ok(wait_until(60, sub { $more .= $listener->query('SELECT 1'); return $more =~ /the end/ }), 'all notifications have come');
unlike($more, qr/payload "told"/, 'none of them for nothing');
$listener->quit;
query(q{SELECT delay_wheel.create_queue('told', options => '{"notify_channel": ""}')});
is(query(q{SELECT notify_channel IS NULL FROM delay_wheel.queues WHERE name = 'told'}), 't', 'an empty channel is none');
query(q{SELECT delay_cancel_all(queue => 'told')});
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel_data.task', 'told is empty');

#
# Expiry counts from the first due time.
#
query(q{SELECT delay_send('mail', '"x"', options => '{"expires": "1 s"}')});
my $x = lease_one('mail', '1200 ms', 'a message that expires');
wait_until(60, sub { @nothing = lease('mail', 1, '1 hour'); return query("SELECT count(*) FROM delay_wheel.failed WHERE id = $x->[0]") == 1 });
is(query("SELECT sqlstate FROM delay_wheel.failed WHERE id = $x->[0]"), 'DW002', 'when its lease has ended it has expired');
is(scalar(@nothing), 0, 'nobody gets it');

#
# Crashes
#
put('mail', 'kept', 'ended');
my ($kept) = lease('mail', 1, '1 hour');
my ($ended) = lease('mail', 1, '500 ms');
my $given = query(q{SELECT delay_send('mail', '"given up"', max_attempts => 1)});
lease_one('mail', '500 ms', 'one with a single attempt');
$node->stop('immediate');
$node->start;
await('mail', 'after a crash a lease has ended');
my ($third) = lease('mail', 10, '1 hour');
is("$third->[2] $third->[3]", 'ended 2', 'and its message is due');
is(call('delay_done', $ended), 'f', 'not for its first receiver');
is(call('delay_done', $kept), 't', 'another lease has lasted');
is(call('delay_done', $third), 't', 'all are finished');
wait_for($node, "SELECT sqlstate = 'DW006' FROM delay_wheel.failed WHERE id = $given", 'the last lease is ended');

#
# Copies
#
put('mail', 'copied');
my ($copied) = lease('mail', 1, '1 hour');
$node->safe_psql('template1', 'SELECT 1');
wait_until(60, sub { $node->psql('template1', 'CREATE DATABASE copy TEMPLATE postgres') == 0 });
$node->safe_psql('copy', 'SELECT delay_wheel.arm()');
is(outcome("SELECT delay_done($copied->[0], $copied->[1])", db => 'copy'), 'f', 'delay_wheel.arm() voids the tokens of a copy');
is($node->safe_psql('copy', "CALL delay_await('mail', '60 s')"), 't', 'its messages are due');
is(texts(lease('mail', 1, '1 hour', db => 'copy')), 'copied', 'and can be leased');
is(call('delay_done', $copied), 't', 'the original is as it was');

#
# History, notification, follow-up
#
query(q{SELECT delay_wheel.create_queue('mail', options => '{"history": "all"}');
	SELECT delay_send('mail', '"h"', key => 'h', options => jsonb_build_object('on_success', 'INSERT INTO followed VALUES (''done'')'))});
call('delay_fail', lease_one('mail', '1 hour', 'a message fails'), q{'once'}, q{'0'});
my $h = lease_one('mail', '1 hour', 'it is leased again');
is($h->[3], 2, 'for the second attempt');
is(call('delay_done', $h), 't', 'and done');
is(query("SELECT string_agg(outcome || ' ' || attempt, ', ' ORDER BY ended) FROM delay_wheel.history WHERE key = 'h'"), 'retried 1, done 2', 'the history has both');
wait_for($node, q{SELECT count(*) = 1 FROM followed WHERE what = 'done'}, 'on_success has run');

# A result is handed on, as a value: not as SQL, and typed.
query(q{SELECT count(delay_send('mail', '"r"', options => jsonb_build_object('on_success', 'INSERT INTO followed SELECT format(''%s: %s, %s'', $1 > 0, $2->>''said'', pg_typeof($2))'))) FROM generate_series(1, 3)});
my @r = map { lease_one('mail', '1 hour', 'one that wants a result') } 1 .. 3;
is(call('delay_done', $r[0], q{'{"said": "''); DROP TABLE followed; --"}'}), 't', 'done with a result');
is(call('delay_done', $r[1]), 't', 'and without one');
is(outcome(sprintf("SELECT delay_done(%s, %s, to_jsonb(repeat('x', 1100000)))", @{ $r[2] }[ 0, 1 ])), '54000', 'one that is too long is refused');
is(call('delay_done', $r[2], q{'null'}), 't', 'and with a null of JSON');
wait_for($node, q{SELECT count(*) = 3 FROM followed WHERE what LIKE 't: %'}, 'the follow-ups have run');
is(query(q{SELECT string_agg(what, ' | ' ORDER BY what COLLATE "C") FROM followed WHERE what LIKE 't: %'}), q{t: '); DROP TABLE followed; --, jsonb | t: , jsonb | t: , jsonb}, 'each with its result');
is(query(q{SELECT done > 0 AND failed > 0 AND retried > 0 FROM delay_wheel.queues WHERE name = 'mail'}), 't', 'the queue has counted');

#
# The trigger
#
query(q{
	CREATE TABLE matter (id int PRIMARY KEY, email text, at interval, old int, "Upper case" numeric);
	CREATE TRIGGER named AFTER INSERT OR UPDATE ON matter FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('at', 'mail', 'id', 'email', 'key=id');
	INSERT INTO matter VALUES (1, 'a', '1 hour'), (2, 'b', '1 hour'), (3, 'c', NULL);
});
is(query(q{SELECT string_agg(key || payload, ' ' ORDER BY key) FROM delay_wheel.tasks}), '1{"id": 1, "email": "a"} 2{"id": 2, "email": "b"}', 'each row sends the columns that are named');
query(q{UPDATE matter SET email = 'd', at = CASE id WHEN 2 THEN NULL ELSE interval '2 hours' END});
is(query(q{SELECT string_agg(key || payload, ' ' ORDER BY key) FROM delay_wheel.tasks}), '1{"id": 1, "email": "d"} 3{"id": 3, "email": "d"}', 'a change replaces the message, or cancels it');
query(q{
	DROP TRIGGER named ON matter; TRUNCATE matter; SELECT delay_cancel(id) FROM delay_wheel.tasks;
	CREATE TRIGGER everything AFTER INSERT ON matter FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('1 hour', 'mail');
	INSERT INTO matter VALUES (1, 'a', '1 day', 5, 1.50);
	ALTER TABLE matter DROP COLUMN old;
	INSERT INTO matter VALUES (2, NULL, NULL, 2);
});
is(query(q{SELECT string_agg(payload::text, ' ' ORDER BY id) FROM delay_wheel.tasks}),
	'{"at": "1 day", "id": 1, "old": 5, "email": "a", "Upper case": 1.50} {"at": null, "id": 2, "email": null, "Upper case": 2}', 'or all of them, as the table has them now');
for my $case ([ q{'1 hour'}, '22023', 'too few arguments' ], [ q{'1 hour', 'mail', 'queue=mail'}, '22023', 'a queue twice' ], [ q{'1 hour', 'mail', 'nothing'}, '42703', 'no such column' ],
	[ q{'1 hour', 'nowhere'}, '42704', 'no such queue' ], [ q{'1 hour', 'mail', 'if_exists=keep'}, '22023', 'if_exists without a key' ])
{
	is(outcome("CREATE TRIGGER wrong AFTER INSERT ON matter FOR EACH ROW EXECUTE FUNCTION delay_send_trigger($case->[0]); INSERT INTO matter VALUES (9)"), $case->[1], $case->[2]);
	query('DROP TRIGGER IF EXISTS wrong ON matter');
}
query(q{SELECT delay_wheel.create_queue('tasks', users => '{public}'); CREATE TRIGGER wrong AFTER INSERT ON matter FOR EACH ROW EXECUTE FUNCTION delay_send_trigger('1 hour', 'tasks')});
is(outcome('INSERT INTO matter VALUES (9)'), '55000', 'a queue of SQL tasks');
query(q{DROP TRIGGER wrong ON matter; GRANT ALL ON matter TO stranger; SELECT delay_wheel.disallow('public')});
is(outcome('INSERT INTO matter VALUES (9)', role => 'stranger'), '42501', 'the writer needs the right to send');

#
# A transaction that cancels or moves due messages, and then receives: a rollback brings them back.
#
query(q{SELECT delay_wheel.create_queue('own', external => true)});
put('own', 1 .. 4);
my $own = q{(SELECT id FROM delay_wheel.tasks WHERE queue = 'own' ORDER BY id OFFSET %d LIMIT 1)};
query(sprintf "BEGIN; SELECT delay_cancel($own); SELECT FROM delay_receive('own'); ROLLBACK", 0);
query(sprintf "BEGIN; SELECT delay_reschedule($own, '1 hour'); SELECT FROM delay_receive('own'); ROLLBACK", 1);
query(sprintf "BEGIN; SAVEPOINT s; SELECT delay_cancel($own); SELECT FROM delay_receive('own', 9); ROLLBACK TO s; COMMIT", 2);
my %own;
while (keys %own < 4 && query(q{CALL delay_await('own', '60 s')}) eq 't')
{
	$own{$_}++ for split /\n/, query(q{SELECT payload #>> '{}' FROM delay_receive('own', 9, autocommit => true)});
}
is(join(' ', map { "$_ $own{$_}" } sort keys %own), '1 1 2 1 3 1 4 1', 'each is received once');

#
# Due messages that are cancelled or moved while nobody receives are not counted for long, and none twice.
#
query(q{SELECT delay_wheel.create_queue(q, external => true, groups => q = 'grouped') FROM unnest('{plain,grouped,kept,held,free}'::text[]) q});
put('plain', 1 .. 5);
put('held', 1 .. 4);
put('free', 1 .. 2);
put('kept', 1);
query(q{SELECT delay_send('grouped', to_jsonb(i), group_key => (i % 2)::text) FROM generate_series(1, 4) i});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'grouped'}, 'messages with groups are due', 60, expected => 4);
my $canceller = $node->background_psql('postgres');
$canceller->query_safe(q{BEGIN; SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'kept'});
# a receiver that hangs has two messages of the queue
my $holder = $node->background_psql('postgres');
is($holder->query_safe(q{BEGIN; SELECT string_agg(payload #>> '{}', ' ' ORDER BY id) FROM delay_receive('held', 2)}), '1 2', 'a receiver holds two messages');
# later than that, so a look at this queue is one at the other, too
query(q{BEGIN; SELECT FROM delay_receive('free', 1); ROLLBACK});
my $nth = q{(SELECT id FROM delay_wheel.tasks WHERE queue = '%s' ORDER BY id OFFSET %d LIMIT 1)};
query(sprintf "SELECT delay_cancel($nth)", plain => 3);
query(sprintf "SELECT delay_reschedule($nth, '1 hour')", plain => 1);
query(sprintf "SELECT delay_reschedule($nth, '0')", plain => 2);
query(q{BEGIN; SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'plain'; ROLLBACK});
query(q{BEGIN; SAVEPOINT s; SELECT delay_reschedule(id, '1 hour') FROM delay_wheel.tasks WHERE queue = 'plain'; ROLLBACK TO s; COMMIT});
query(q{SELECT delay_cancel(id) FROM delay_wheel.tasks WHERE queue = 'grouped'});
query(sprintf "SELECT delay_cancel($nth)", held => 3);
query(sprintf "SELECT delay_cancel($nth)", free => 1);
wait_for($node, q{SELECT string_agg(name || ' ' || ready || CASE WHEN first_due IS NULL THEN '' ELSE ' due' END, ', ' ORDER BY name)
	FROM delay_wheel.queues WHERE name IN ('plain', 'grouped', 'kept', 'free')},
	'as many are ready as are due', 60, expected => 'free 1 due, grouped 0, kept 1 due, plain 3 due');
is(query(q{SELECT count(*) FROM delay_wheel.tasks WHERE queue IN ('plain', 'grouped', 'kept') AND due <= now()}), '4', 'as the table has');
# what a receiver holds is not loaded again, so the one that was cancelled is counted until it ends
is(query(q{SELECT ready FROM delay_wheel.queues WHERE name = 'held'}), 2, 'messages that a receiver holds are not ready');
$holder->query_safe('ROLLBACK');
$holder->quit;
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'held'}, 'what a receiver that hung has rolled back is ready, without the one that was cancelled', 60, expected => 3);
is(texts(lease('held', 9, '1 min')), '1 2 3', 'and is received once');
$canceller->query_safe('ROLLBACK');
$canceller->quit;
is(texts(lease('plain', 9, '1 min')), '1 5 3', 'the others are received');
is(texts(lease('kept', 9, '1 min')), '1', 'so is one whose cancellation was rolled back');

$node->stop;
done_testing();
