# The calls of test/t/945_drivers.pl, by DBD::Pg.
use strict;
use warnings;
use DBI;
use JSON::PP;

my $db = DBI->connect('dbi:Pg:', '', '', { RaiseError => 1, PrintError => 0 });
my $json = JSON::PP->new;
my $queue = $ENV{PGUSER};
my $past = '2001-02-03T04:05:06Z';
my @ids;

sub call { my ($name, $does) = @_; print eval { $does->() } ? "ok $name\n" : "not ok $name: $@\n"; return; }
sub one { return scalar $db->selectrow_array(shift, {}, @_); }
sub schedule { push @ids, one(@_); return $ids[-1] > 0; }

call(untyped => sub { schedule(q{SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)}, "it's", 7) });
call(typed => sub { schedule(q{SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1::text, $2::int)}, "it's", 7) });
call(mixed => sub { schedule(q{SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2, 3)}, 7, $past) });
call(null => sub { schedule(q{SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2)}, undef, 8) });
call(prepared => sub {
	my $later = $db->prepare(q{SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)}, { pg_prepare_now => 1 });
	push @ids, $db->selectrow_array($later, {}, '0', $_, $_) for 5, 6;
	return 1;
});
call(text => sub { schedule('SELECT delay_schedule($1, $2, $3)', '100 milliseconds', 'UPDATE t SET n = 7 WHERE id = $1', 7) });
print "none duration\n";
call(at => sub { schedule(q{SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2)}, scalar gmtime() . ' UTC', $past) });
call(args => sub {
	schedule(q{SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1, delay => '0')}, [ 100, 10 ])
	  && schedule(q{SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)}, [ 'a list', '11' ]);
});
call(named => sub { schedule(q{SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)}, $json->encode({ note => 'named', id => 12 })) });
call(rollback => sub {
	$db->begin_work;
	my $id = one(q{SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1)}, 13);
	$db->rollback;
	return $id > 0;
});
call(commit => sub {
	$db->begin_work;
	$db->do(q{UPDATE t SET note = 'mine' WHERE id = 14});
	schedule(q{SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1, $2)}, 14, 'mine');
	return $db->commit;
});
call(cancel_key => sub {
	one(q{SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)}, '1 second', 'a key');
	return one('SELECT delay_cancel(key => $1)', 'a key') eq 'cancelled';
});
call(reschedule => sub {
	schedule(q{SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')});
	return one('SELECT delay_reschedule($1, $2)', $ids[-1], '0') eq 'moved';
});
call(send => sub { one('SELECT delay_send($1, $2)', $queue, $json->encode({ to => 'anna', n => 1 })) > 0 });
call(lease => sub {
	my $found = one(q{CALL delay_await($1, '30 s')}, $queue);
	my ($id, $token, $payload) = $db->selectrow_array('SELECT id, token, payload FROM delay_lease($1, 10)', {}, $queue);
	return $found && $json->decode($payload)->{to} eq 'anna' && one('SELECT delay_done($1, $2)', $id, $token);
});
call(views => sub {
	my $names = $db->selectcol_arrayref(q{SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'});
	$db->selectall_arrayref("SELECT * FROM delay_wheel.$_") for @$names;
	return @$names > 10;
});
call(effect => sub {
	my @ends = map { one(q{SELECT delay_wait($1, '30 s')}, $_) } @ids;
	return !(grep { !/^(?:done|gone)$/ } @ends) && join(' ', $db->selectrow_array('SELECT n, note FROM t WHERE id = 1')) eq "7 it's";
});
call(error => sub { !eval { one(q{SELECT delay_schedule($1, 'SELECT 1')}, '1 hrz') } && $db->state eq '22007' });
$db->disconnect;
