# The web page, in a real browser, and what feeds it: all that a DBA asks is
# there; the feed stays small however many tasks fail; what others have written
# into SQL, errors and names is text and nothing else; narrow, light and dark,
# all of it can be read.

use strict;
use warnings;
use utf8;

use DelayWheel;
use Digest::SHA qw(sha256_base64);
use File::Basename;
use File::Path qw(make_path);
use IO::Socket::INET;
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = dirname(__FILE__) . '/../..';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $feeds = "$dir/feeds";
make_path($feeds);

#
# The file: nothing from elsewhere, and a policy that lets only its own script
# and style in.
#
my $page = slurp_file("$tree/web/delay_wheel.html");
for my $tag (qw(script style))
{
	my ($text) = $page =~ m{<$tag>(.*?)</$tag>}s;
	my $hash = sha256_base64($text);
	$hash .= '=' while length($hash) % 4;
	like($page, qr{\Q$tag-src 'sha256-$hash'\E}, "the policy lets the page's own $tag in")
	  or diag("it should say $tag-src 'sha256-$hash'");
}
unlike($page, qr{innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function}, 'no way from text to HTML is used');
unlike($page, qr{(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//}i, 'nothing is loaded from elsewhere');

#
# The feed.
#
my $node = new_node('page', conf => "delay_wheel.max_executors = 4\nlog_min_messages = panic\n");

sub feed
{
	my ($sql, $db) = @_;
	return decode_json($node->safe_psql($db // 'postgres', $sql // 'SELECT delay_wheel.page_data()'));
}

# The export of doc/web.md
sub export
{
	my ($name, $db) = @_;

	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => $db // 'postgres', PGCLIENTENCODING => 'UTF8');
	is(system("psql -XAtc 'SELECT delay_wheel.page_data()' > $feeds/$name.json"), 0, "$name: the feed is exported");
	return;
}

sub write_feed
{
	my ($name, $text) = @_;
	unlink "$feeds/$name.json";
	append_to_file("$feeds/$name.json", $text);
	return;
}

# a document that differs in some way from another one
sub variant
{
	my ($name, $from, $change) = @_;
	my $d = decode_json(slurp_file("$feeds/$from.json"));

	$change->($d);
	write_feed($name, JSON::PP->new->utf8->encode($d));
	return;
}

$node->safe_psql('postgres', 'CREATE DATABASE nothing');
$node->safe_psql('nothing', 'CREATE EXTENSION delay_wheel');
wait_for($node, q{SELECT count(*) FROM delay_wheel.status WHERE state = 'running'}, 'both databases are served', 60, expected => 2);
export('empty', 'nothing');
my $d = feed(undef, 'nothing');
is_deeply([ map { $d->{$_}{total} } qw(running failed queues lanes recurring batches cancellations) ], [ (0) x 7 ], 'a database without tasks: nothing is listed');
is_deeply([ $d->{format}, $d->{database}, $d->{status}{state}, scalar @{ $d->{ring}{tasks} }, $d->{ring}{slots}, $d->{ring}{per_part}, $d->{ring}{tick_s} ],
	[ 1, 'nothing', 'running', 360, 3600, 10, 1 ], 'and how it stands is there');

# Texts of others, for whoever puts them into HTML without care.
my $evil = q{<img src=x onerror="top.hit=1;window.hit=1"><script>top.hit=1</script></pre></script>'"&lt;<!--\\};
my $name = q{<svg onload="top.hit=1">&amp;'};
sub quoted { return "'" . $_[0] =~ s/'/''/gr . "'"; }
(my $ident = $name) =~ s/"/""/g;
my $raise = "DO \$d\$BEGIN RAISE EXCEPTION USING MESSAGE = \$m\$message $evil\$m\$, DETAIL = \$m\$detail $evil\$m\$, HINT = \$m\$hint $evil\$m\$; END\$d\$";

$node->safe_psql('postgres', qq{
	CREATE ROLE "$ident";
	CREATE ROLE shop;
	CREATE ROLE watcher IN ROLE pg_monitor, pg_read_all_data;
	SELECT delay_wheel.allow('shop', @{[quoted($name)]});
	SELECT delay_wheel.create_queue(@{[quoted($name)]}, max_running => 3, users => '{public}');
	SELECT delay_wheel.create_queue('mail', max_running => 1, rate => 100, users => '{public}');
	SELECT delay_wheel.pause_queue('mail');
	SET ROLE "$ident";
	SELECT delay_schedule_task(@{[quoted($raise)]}, queue => @{[quoted($name)]}, key => @{[quoted("key $evil")]}, tag => @{[quoted("tag $evil")]});
	SELECT delay_schedule_task(@{[quoted("SELECT pg_sleep(3600) /* running $evil */")]}, queue => @{[quoted($name)]});
	SELECT delay_every(@{[quoted("again $evil")]}, '1 hour', @{[quoted($raise)]}, starts => now());
	SELECT delay_batch(@{[quoted("all $evil")]}, open => true);
	SET ROLE shop;
	WITH b AS MATERIALIZED (SELECT delay_batch('greetings') AS id)
	SELECT delay_schedule_task('SELECT 1', delay => delay, options => jsonb_build_object('batch_id', b.id)) FROM b, unnest('{0,1 day}'::interval[]) delay;
	SELECT delay_schedule_task('SELECT 1 / 0', tag => 'spring');
	SELECT delay_schedule_task('SELECT 1', queue => 'mail');
	SELECT delay_schedule(make_interval(secs => i * 13), 'SELECT 1') FROM generate_series(1, 700) i;
	SELECT delay_schedule('0', 'SELECT 1') FROM generate_series(1, 20);
});
wait_for($node, q{SELECT count(*) = 3 FROM delay_wheel.failed}, 'three tasks have failed');
wait_for($node, q{SELECT count(*) = 1 FROM delay_wheel.running}, 'one runs');
wait_for($node, q{SELECT count(*) = 1 FROM delay_wheel.batches WHERE done = 1}, 'one of a batch is done');
wait_for($node, q{SELECT near >= 500 AND ready = 1 FROM delay_wheel.status WHERE database = 'postgres'}, 'one waits, others are coming up');
export('full');
$d = feed();
is_deeply([ map { $d->{$_}{total} } qw(running failed queues recurring batches) ], [ 1, 3, 2, 1, 2 ], 'what runs, what failed, queues, recurring tasks, batches');
is_deeply([ map { join ' ', @$_{qw(owner name state total pending done failed)} } @{ $d->{batches}{rows} } ], [ 'shop greetings closed 2 1 1 0', "$name all $evil open 0 0 0 0" ], 'how far batches are');
ok($d->{waiting_since}, 'since when the first due task waits');
is_deeply($d->{background}, [], 'nothing goes on in the background');
is($d->{running}{rows}[0]{sql}, "SELECT pg_sleep(3600) /* running $evil */", 'with the SQL of what runs');
is_deeply([ sort map { "$_->{sqlstate} $_->{tasks}" } @{ $d->{failed}{errors} } ], [ '22012 1', 'P0001 2' ], 'and how often each error came');
is_deeply([ scalar @{ $d->{forecast}{minutes} }, scalar @{ $d->{forecast}{hours} }, scalar @{ $d->{forecast}{days} } ], [ 60, 48, 31 ], 'when tasks are due');
cmp_ok($d->{forecast}{pending}, '>=', 690, 'all that are pending are in the forecast');
my $sum = 0;
$sum += $_->[2] for @{ $d->{lateness} };
cmp_ok($sum, '>=', 20, 'what was run is in the histogram of lateness');
$sum = 0;
$sum += $_ for @{ $d->{ring}{tasks} };
cmp_ok($sum, '>=', $d->{status}{near}, 'all that is in memory is in some part of the ring');
is(feed(q{SELECT delay_wheel.page_data(NULL, NULL)})->{failed}{total}, 3, 'nulls are allowed');
is(feed(q{BEGIN READ ONLY; SELECT delay_wheel.page_data(); COMMIT})->{format}, 1, 'it can be read in a read-only transaction');

# what is due next
$d = feed();
my @next = @{ $d->{pending}{rows} };
is(scalar(@next), 50, 'of pending tasks the first ones are listed');
is_deeply([ map { $_->{due} } @next ], [ sort map { $_->{due} } @next ], 'by due time');
is_deeply([ grep { my $id = $_->{id}; grep { $_->{id} == $id } @next } @{ $d->{running}{rows} } ], [], 'running tasks are not listed as pending');

# rights: what the views show
is(feed(q{SET ROLE shop; SELECT delay_wheel.page_data()})->{failed}{rows}[0]{tag}, 'spring', 'a role sees its own failed task');
is(feed(q{SET ROLE shop; SET row_security = off; SELECT delay_wheel.page_data()})->{failed}{rows}[0]{tag}, 'spring', 'also without row level security');
$d = feed(q{SET ROLE shop; SELECT delay_wheel.page_data()});
is_deeply([ map { $d->{$_}{total} } qw(running failed lanes recurring batches) ], [ 0, 1, 2, 0, 1 ], 'and nothing of others');
is_deeply([ grep { $_->{owner} ne 'shop' } @{ $d->{pending}{rows} } ], [], 'a role sees no pending tasks of others');
unlike(encode_json($d), qr/onerror/, 'a role sees no texts of others');
$d = feed(q{SET ROLE watcher; SELECT delay_wheel.page_data()});
is_deeply([ map { $d->{$_}{total} } qw(running failed lanes recurring batches) ], [ 1, 3, 4, 1, 2 ], 'a role that may read all sees all');
$d = feed(q{SELECT delay_wheel.page_data(texts => false)});
unlike(encode_json($d), qr/(?:message|detail|hint) <img|division by zero|pg_sleep/, 'without texts: no SQL, no message');
is_deeply([ grep { my $row = $_; grep { defined $row->{$_} } qw(sql message detail hint context) } @{ $d->{failed}{rows} } ], [], 'also in the list of failed tasks');
$d = feed(q{SELECT delay_wheel.page_data(max_rows => 1)});
is_deeply([ scalar @{ $d->{failed}{rows} }, $d->{failed}{total}, scalar @{ $d->{lanes}{rows} }, $d->{lanes}{total} ], [ 1, 3, 1, 4 ], 'lists have at most max_rows entries');

# queues of messages
$node->safe_psql('postgres', 'CREATE DATABASE letters');
$node->safe_psql('letters', qq{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.create_queue('sql');
	SELECT delay_wheel.create_queue(@{[quoted($name)]}, external => true);
	SELECT delay_send(@{[quoted($name)]}, '1') FROM generate_series(1, 4)});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE external}, 'messages are due', 60, db => 'letters', expected => 4);
$node->safe_psql('letters', "SELECT id FROM delay_lease(@{[quoted($name)]}, 3, '1 hour')");
$node->safe_psql('letters', "SELECT id FROM delay_lease(@{[quoted($name)]}, 1, '1 ms')");
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE external}, 'a lease has ended', 60, db => 'letters', expected => 1);
$node->safe_psql('letters', "SELECT id FROM delay_lease(@{[quoted($name)]}, 1, '1 ms')");
wait_for($node, q{SELECT ready, lapsed FROM delay_wheel.queues WHERE external}, 'and another one', 60, db => 'letters', expected => '1|1');
wait_for($node, q{SELECT state = 'unreceived' AND reason IS NOT NULL FROM delay_wheel.queues WHERE external}, 'no receiver has come lately', 60, db => 'letters');
export('letters', 'letters');
my ($letters, $sql_queue) = @{ feed(undef, 'letters')->{queues}{rows} };
is_deeply([ @$letters{qw(external ready awaiting leased lapsed)} ], [ JSON::PP::true, 1, 0, 3, 1 ], 'messages: due, receivers that wait, leases out, leases that ended without a word');
ok($letters->{first_due}, 'and since when the first one waits');
is_deeply([ grep { exists $sql_queue->{$_} } qw(first_due awaiting leased lapsed) ], [], 'a queue of SQL tasks has none of these');

# deliveries: HTTP calls among them; of each queue, and whatever else is due before them
$node->safe_psql('letters', qq{
	CREATE ROLE stranger;
	SELECT delay_wheel.allow('shop', 'stranger');
	SELECT delay_wheel.create_queue('calls', external => true, max_attempts => 18, users => '{shop}', receivers => '{stranger}');
	SELECT delay_wheel.create_queue('crowd', external => true, users => '{shop}');
	SET ROLE shop;
	SELECT delay_schedule('10 minutes', 'SELECT 1') FROM generate_series(1, 1100);
	SELECT delay_send('crowd', '1', delay => '10 minutes') FROM generate_series(1, 100);
	SELECT delay_send('calls', format('{"method": "POST", "url": "https://me:hidden\@Shop.example:8443/hooks/hidden?hidden", "body": "hidden", "n": %s}', i)::jsonb, key => 'call ' || i)
		FROM generate_series(1, 4) i;
	SELECT delay_send('calls', '{"method": "GET", "url": "http://[::1]/hidden"}', delay => '1 day', tag => @{[quoted("tag $evil")]});
	SELECT delay_send('calls', '{"method": "hidden", "to": "nobody"}', delay => '2 days')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'calls'}, 'calls are due', 60, db => 'letters', expected => 4);
$node->safe_psql('letters', qq{
	SELECT id FROM delay_lease('calls', 1, '1 hour', @{[quoted("worker $evil")]});
	SELECT id, token FROM delay_lease('calls') \\gset
	SELECT delay_fail(:id, :token, 'HTTP 503: try later', retry_in => '1 hour');
	SELECT id, token FROM delay_lease('calls') \\gset
	SELECT delay_fail(:id, :token, @{[quoted("HTTP 410: gone $evil")]}, give_up => true);
	SELECT id FROM delay_lease('calls', 1, '1 ms')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'calls'}, 'a lease of a call has ended', 60, db => 'letters', expected => 1);
my $waiter = $node->background_psql('letters');
$waiter->query_safe(q{SET application_name = 'mailer 1'});
$waiter->query_until(qr/begun/, "\\echo begun\nCALL delay_await('crowd', '1 hour');\n");
wait_for($node, q{SELECT awaiting FROM delay_wheel.queues WHERE name = 'crowd'}, 'a session waits', 60, db => 'letters', expected => 1);
export('calls', 'letters');
my $calls = feed(undef, 'letters');
sub delivered { my ($d, @of) = @_; return [ map { my $m = $_; join ' ', map { $m->{$_} // '-' } @of } grep { $_->{queue} eq 'calls' } @{ $d->{deliveries}{rows} } ]; }
is_deeply(delivered($calls, qw(key state attempts max_attempts method host status)), [ 'call 4 due 1 18 POST shop.example -', 'call 2 retry 1 18 POST shop.example 503', 'call 1 leased 1 18 POST shop.example -',
	'- pending 0 18 GET [::1] -', '- pending 0 18 - - -' ], 'deliveries: how each stands, what has failed first, and what is an HTTP call');
my %delivery = map { ($_->{key} // '') => $_ } @{ $calls->{deliveries}{rows} };
is_deeply([ $delivery{'call 4'}{lapsed}, $delivery{'call 2'}{error}, $delivery{'call 1'}{receiver} ], [ JSON::PP::true, 'DW007: HTTP 503: try later', "worker $evil" ], 'with the last error, or who has it');
is($calls->{deliveries}{retrying}, 1, 'how many are tried again');
is(scalar @{ $calls->{deliveries}{rows} }, 50, 'a crowd of one queue leaves others their share');
my ($given_up) = @{ $calls->{failed}{rows} };
is_deeply([ @$given_up{qw(is_message method host status)} ], [ JSON::PP::true, 'POST', 'shop.example', 410 ], 'what was given up was a call, too');
is_deeply([ map { join ' ', @$_{qw(queue messages)}, $_->{receiver} // '-' } @{ $calls->{leases}{rows} } ], [ "$name 3 -", "calls 1 worker $evil" ], 'who holds leases');
is_deeply([ map { join ' ', @$_{qw(role application query)} } @{ $calls->{awaiting}{rows} } ], [ join(' ', $node->safe_psql('postgres', 'SELECT current_user'), 'mailer 1', q{CALL delay_await('crowd', '1 hour');}) ], 'who waits');
unlike(encode_json($calls), qr/hidden/, 'nothing else of payloads and addresses is in the document');
$d = feed(q{SELECT delay_wheel.page_data(texts => false)}, 'letters');
is_deeply([ grep { my $row = $_; grep { defined $row->{$_} } qw(method host status error message query) } map { @{ $d->{$_}{rows} } } qw(deliveries failed awaiting) ], [], 'without texts there are no hosts, answers and calls');
is_deeply(delivered(feed(q{SET ROLE shop; SELECT delay_wheel.page_data()}, 'letters'), 'key'), delivered($calls, 'key'), 'the owner of messages sees them');
is_deeply(delivered(feed(q{SET ROLE watcher; SELECT delay_wheel.page_data()}, 'letters'), 'key'), delivered($calls, 'key'), 'and who may read all');
$d = feed(q{SET ROLE stranger; SELECT delay_wheel.page_data()}, 'letters');
is_deeply([ map { scalar @{ $d->{$_}{rows} } } qw(deliveries leases awaiting failed queues) ], [ 0, 0, 0, 0, 1 ], 'their receiver sees his queue, not the messages, nor the sessions of others');
unlike(encode_json($d), qr/shop\.example|worker|onerror/, 'and nothing of them');
# a small table is read as a whole
my $reads = $node->safe_psql('letters', 'SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM delay_wheel_internal.first_messages');
is(join(' ', sort $reads =~ /Scan (?:using|on) (task_\w+_idx)/g), 'task_lane_due_idx task_lane_due_idx task_lease_idx', 'leases are read by their index, other messages by that of lanes') or diag($reads);
$node->safe_psql('letters', q{SELECT delay_end_await(pid) FROM pg_stat_activity WHERE application_name = 'mailer 1'});
$waiter->quit;

# groups that wait
$node->safe_psql('postgres', 'CREATE DATABASE tenants');
$node->safe_psql('tenants', qq{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.create_queue('tenants', groups => true, users => '{public}');
	SELECT delay_wheel.pause_queue('tenants');
	SELECT delay_wheel.allow('shop');
	SELECT delay_schedule_task('SELECT 1', due => now() - interval '3 hours', queue => 'tenants', group_key => @{[quoted("group $evil")]});
	SET ROLE shop;
	SELECT delay_schedule_task('SELECT 1', due => now() - interval '2 hours', queue => 'tenants', group_key => 'of shop') FROM generate_series(1, 2);
	SELECT delay_schedule_task('SELECT 1', queue => 'tenants')});
wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'tenants'}, 'tasks of groups are due', 60, db => 'tenants', expected => 4);
export('tenants', 'tenants');
my $tenants = feed(undef, 'tenants')->{groups};
is_deeply([ $tenants->{total}, map { $_->{group_key} } @{ $tenants->{rows} } ], [ 3, "group $evil", 'of shop', undef ], 'the groups that wait, the longest first');
is_deeply([ @{ $tenants->{rows}[1] }{qw(queue state ready running more owner)} ], [ 'tenants', 'open', 2, 0, JSON::PP::false, 'shop' ], 'how they stand');
$tenants = feed(q{SET ROLE shop; SELECT delay_wheel.page_data(max_rows => 1)}, 'tenants')->{groups};
is_deeply([ $tenants->{total}, map { $_->{group_key} } @{ $tenants->{rows} } ], [ 2, 'of shop' ], 'a role sees its own');
is(feed()->{groups}{total}, 0, 'elsewhere there is none');

# In a database of bytes each role can write what is no text to the client, and
# the page of all is to be there yet. What is cut is not cut within a character.
$node->safe_psql('postgres', q{CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'});
$node->safe_psql('bytes', q{
	CREATE EXTENSION delay_wheel;
	DO $do$
	DECLARE
		bad text := convert_from('\xff22c3', 'SQL_ASCII');
		good text := convert_from('\xc3bce697a5', 'SQL_ASCII');
	BEGIN
		PERFORM delay_schedule_task('SELECT 1 / 0 /* ' || bad || good || ' */', key => 'key ' || bad || good, tag => bad);
		PERFORM delay_schedule_task(format('DO $d$BEGIN RAISE EXCEPTION %L; END$d$', rpad('', 499, 'x') || good || bad));
		PERFORM delay_every('every ' || bad, '1 day', 'SELECT 1');
		PERFORM delay_wheel.create_queue(bad);
	END $do$});
wait_for($node, q{SELECT count(*) FROM delay_wheel.failed}, 'tasks with bytes have failed', 60, db => 'bytes', expected => 2);
export('bytes', 'bytes');
$d = decode_json(slurp_file("$feeds/bytes.json"));
my %failed_bytes = map { $_->{sqlstate} => $_ } @{ $d->{failed}{rows} };
is($failed_bytes{22012}{key}, qq{key ?"?\x{fc}\x{65e5}}, 'bytes that are no text are question marks in the feed, what is text is as it was');
is($failed_bytes{22012}{sql}, qq{SELECT 1 / 0 /* ?"?\x{fc}\x{65e5} */}, 'also in SQL');
is($failed_bytes{P0001}{message}, ('x' x 499) . '?', 'and at the end of what was cut');
is_deeply([ $d->{recurring}{rows}[0]{name}, $d->{queues}{rows}[0]{name} ], [ q{every ?"?}, q{?"?} ], 'and in names');
# where a backslash can be the second half of a character, no first half is left
for my $encoding (qw(SJIS BIG5 GBK UHC GB18030 JOHAB SHIFT_JIS_2004 LATIN1 EUC_JP))
{
	local %ENV = (%ENV, PGCLIENTENCODING => $encoding);
	my $text = $node->safe_psql('bytes', 'SELECT delay_wheel.page_data()');
	is(JSON::PP->new->decode($text)->{failed}{total}, 2, "bytes: it can be read by a client whose encoding is $encoding");
	unlike($text, qr/[\x80-\xff]/, "bytes: $encoding: it is plain ASCII") if $encoding !~ /^(?:LATIN1|EUC_JP)$/;
}
is($node->safe_psql('bytes', q{SELECT delay_wheel.page_data() -> 'failed' ->> 'total'}), '2', 'bytes: and in the database itself');
like($node->safe_psql('bytes', q{SET client_encoding = SQL_ASCII; SELECT delay_wheel.page_data()}), qr/key \xff\\"\xc3\xc3\xbc\xe6\x97\xa5/, 'bytes: who reads bytes has them as they are');

# The dashboard for a terminal.
$node->safe_psql('bytes', q{
	INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
	SELECT 4711, now(), now(), 0, 'postgres', 0, 0, 1, '22012', 'bytes ' || convert_from('\xff9bc3', 'SQL_ASCII') || '31m', 'x'});
{
	local %ENV = (%ENV, PGCLIENTENCODING => 'UTF8');
	my (undef, $shown, $error) = $node->psql('bytes', '', extra_params => [ '-v', 'once=1', '-f', "$tree/scripts/dashboard.sql" ]);
	is($error, '', 'bytes: the dashboard for a terminal can be read');
	like($shown, qr/22012 bytes \?\?\?31m/, 'and has question marks');
}

# Many failed tasks.
$node->safe_psql('postgres', q{
	INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
		SELECT nextval('delay_wheel_data.task_id_seq'), now() - i * interval '1 s', now(), 0, 'shop'::regrole, 0, 0, 1, '22012', repeat('long ', 2000) || i, repeat('x', 5000)
		FROM generate_series(1, 10000) i;
	ANALYZE delay_wheel_data.failed_task});
export('many');
$d = feed();
is_deeply([ $d->{failed}{total}, $d->{failed}{newest}, scalar @{ $d->{failed}{rows} } ], [ 10001, 1000, 50 ], '10,000 failed tasks: the newest are shown, the rest is counted, not for ever');
cmp_ok(-s "$feeds/many.json", '<', 200_000, 'and the feed stays small');
is($node->safe_psql('postgres', q{SELECT array_agg(id) = (SELECT array_agg(id) FROM (SELECT id FROM delay_wheel.failed ORDER BY failed_at DESC, id DESC LIMIT 1000) f) FROM (SELECT id FROM delay_wheel_internal.newest_failed) n}),
	't', 'newest_failed has the newest 1,000');
my $plan = $node->safe_psql('postgres', 'EXPLAIN (COSTS OFF) SELECT * FROM delay_wheel_internal.newest_failed');
my @scans = $plan =~ /Scan.* on failed_task\b/g;
is(scalar @scans, 1, 'which are read by one scan') or diag($plan);
like($plan, qr/Index Scan Backward using failed_task_failed_at_idx on failed_task/, 'newest_failed reads the index from its end') or diag($plan);

#
# The set-up for PostgREST of doc/web.md, and a stand-in for it: started by the command
# of the document, which has to say all that it needs; it asks and answers as the
# documentation and source of PostgREST say.  GET of a function in a read-only transaction
# of the role that it connects as, which becomes that of the token or else the anonymous
# one; JSON as it is; errors as JSON; any origin may ask, unless some are named.
#
my $manual = slurp_file("$tree/doc/web.md");
my ($setup) = $manual =~ /^<!-- role for PostgREST -->\n+```sql\n(.*?)^```/ms;
my ($command) = $manual =~ m{^<!-- shown by: test/t/930_page.pl -->\n+```sh\n(.*?)^```}ms;
$node->safe_psql('postgres', $setup);
is($node->safe_psql('postgres', q{SELECT has_table_privilege('wheel_web', 'pg_authid', 'SELECT'), pg_has_role('wheel_web', 'pg_read_all_data', 'USAGE'), pg_has_role('authenticator', 'pg_read_all_data', 'USAGE')}),
	'f|f|f', 'the roles of the web server may read nothing by themselves');
$node->safe_psql('postgres', 'CREATE ROLE anonymous; GRANT anonymous TO authenticator');

make_path("$dir/bin");
append_to_file("$dir/bin/postgrest", "#!/bin/sh\nenv >'$dir/settings'\n");
chmod 0755, "$dir/bin/postgrest";
{
	local %ENV = (%ENV, PATH => "$dir/bin:$ENV{PATH}");
	is(system('bash', '-euo', 'pipefail', '-c', $command), 0, 'the command for PostgREST');
}
my %documented = map { /^((?:PG|PGRST_)\w+)=(.*)$/ ? ($1 => $2) : () } split /\n/, slurp_file("$dir/settings");
is($documented{PGRST_SERVER_HOST}, '127.0.0.1', 'it listens on this machine only');

my %cors = (
	'Access-Control-Max-Age' => 86400,
	'Access-Control-Allow-Methods' => 'GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD',
	'Access-Control-Allow-Headers' => 'Authorization, Content-Type, Accept, Accept-Language, Content-Language');

sub postgrest
{
	my ($settings, $method, $path, $headers) = @_;
	my ($function) = $path =~ m{^/rpc/(\w+)$};
	my $origins = $settings->{PGRST_SERVER_CORS_ALLOWED_ORIGINS} // '';
	my %allowed = map { $_ => 1 } split /,\s*/, $origins;
	my $origin = $headers->{origin} // '';
	my %more = $origins eq '' ? (%cors, 'Access-Control-Allow-Origin' => '*')
	  : $allowed{$origin} ? (%cors, 'Access-Control-Allow-Origin' => $origin, 'Access-Control-Allow-Credentials' => 'true') : ();

	append_to_file("$dir/requests", join(' ', $method, $path, $headers->{origin} // '-', $headers->{authorization} // '-', "\n"));
	return (200, 'text/plain', '', %more) if $method eq 'OPTIONS';
	return (404, 'application/json', '{"code":"PGRST202","message":"Could not find the function"}', %more) if $method ne 'GET' || !$function;
	my $known = ($headers->{authorization} // '') eq 'Bearer good.token';
	my $role = $known ? 'wheel_web' : $settings->{PGRST_DB_ANON_ROLE};
	my $schema = $settings->{PGRST_DB_SCHEMAS};
	my ($code, $out, $err) = $node->psql('postgres', qq{
		\\o /dev/null
		BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
		SELECT set_config('search_path', '"$schema", "public"', true), set_config('role', '$role', true), set_config('request.method', 'GET', true);
		\\o
		WITH source AS (SELECT call.scalar FROM (SELECT "$schema"."$function"() AS scalar) AS call)
			SELECT coalesce(json_agg(answer.scalar) -> 0, 'null') FROM (SELECT * FROM source) AS answer;
		COMMIT}, extra_params => [ '-U', $settings->{PGUSER} ]);
	return (200, 'application/json; charset=utf-8', $out, %more) if $code == 0;
	my ($message) = $err =~ /ERROR:\s+(.*)/;
	return ($known ? 403 : 401, 'application/json; charset=utf-8', encode_json({ code => '42501', message => $message, details => undef, hint => undef }), %more);
}

#
# Web servers, each request in a process of its own.
#
sub respond
{
	my ($client, $handler) = @_;
	my ($head, $body, %headers) = ('', '');

	while ($head !~ /\r\n\r\n/)
	{
		sysread($client, $head, 65536, length $head) or return;
	}
	($head, $body) = split /\r\n\r\n/, $head, 2;
	$headers{ lc $1 } = $2 while $head =~ /^([\w-]+):\s*(.*?)\r?$/mg;
	while (length $body < ($headers{'content-length'} // 0))
	{
		sysread($client, $body, 65536, length $body) or return;
	}
	my ($method, $path) = $head =~ /^(\w+) ([^ ?]*)/;
	my ($status, $type, $content, %more) = $handler->($method, $path, \%headers, $body);
	my $answer = join("\r\n", "HTTP/1.1 $status x", "Content-Type: $type", 'Content-Length: ' . length $content, 'Connection: close',
		(map { "$_: $more{$_}" } sort keys %more), '', $content);
	for (my $sent = 0; $sent < length $answer;)
	{
		$sent += syswrite($client, $answer, length($answer) - $sent, $sent) || return;
	}
	return;
}

my @servers;

sub serve
{
	my ($handler) = @_;
	my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die "could not listen: $!";
	my $pid = fork // die "could not fork: $!";

	if ($pid == 0)
	{
		$SIG{CHLD} = 'IGNORE';
		$SIG{TERM} = 'DEFAULT';
		for (;;)
		{
			my $client = $listen->accept or next;
			if (fork == 0)
			{
				$SIG{CHLD} = 'DEFAULT';
				alarm 120;
				eval { respond($client, $handler) };
				$client->shutdown(2);
				# not the end of the test, which stops the server
				POSIX::_exit(0);
			}
			close $client;
		}
	}
	push @servers, $pid;
	return 'http://127.0.0.1:' . $listen->sockport;
}

sub site
{
	my ($method, $path, $headers, $body) = @_;
	my %pages = ('/delay_wheel.html' => "$tree/web/delay_wheel.html", '/harness.html' => "$tree/test/page/harness.html", '/cases.json' => "$dir/cases.json");
	my $file = $pages{$path} // ($path =~ m{^/feeds/([\w.]+)$} ? "$feeds/$1" : '');

	if ($method eq 'POST' && $path eq '/result')
	{
		append_to_file("$dir/result.new", $body);
		rename "$dir/result.new", "$dir/result";
		return (200, 'text/plain', 'ok');
	}
	return postgrest(\%documented, $method, $path, $headers) if $path =~ m{^/rpc/};
	return (404, 'text/html', "<h1>404</h1><script>top.hit=1</script>") if !-f $file;
	return (200, $file =~ /html$/ ? 'text/html; charset=utf-8' : 'application/json', slurp_file($file));
}

END
{
	my $exit_code = $?;
	kill 'TERM', @servers if @servers;
	$? = $exit_code;
}

#
# The browser.
#
sub find_chromium
{
	for my $name (qw(chromium chromium-browser google-chrome))
	{
		for my $path (split /:/, $ENV{PATH})
		{
			return "$path/$name" if -x "$path/$name";
		}
	}
	return;
}

my $chromium = find_chromium();
SKIP:
{
	skip 'there is no chromium: the page is not looked at', 1 if !$chromium;

	my $site = serve(\&site);
	my $postgrest = serve(sub { return postgrest({ PGRST_DB_SCHEMAS => 'api', PGRST_DB_ANON_ROLE => 'anonymous', PGUSER => 'authenticator' }, @_) });
	my $documented = serve(sub { return postgrest(\%documented, @_) });

	# Looks at cases; what it saw, by name.
	sub browse
	{
		my ($cases, @options) = @_;

		unlink "$dir/cases.json", "$dir/result";
		append_to_file("$dir/cases.json", encode_json($cases));
		my $pid = fork // die "could not fork: $!";
		if ($pid == 0)
		{
			setpgrp;
			$ENV{HOME} = "$dir";
			open(STDIN, '<', '/dev/null');
			open(STDOUT, '>>', "$dir/chromium.log");
			open(STDERR, '>>', "$dir/chromium.log");
			# the sandbox needs rights that a test's user need not have; the only pages are our own
			exec($chromium, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
				'--disable-extensions', '--disable-background-networking', '--disable-component-update', '--no-proxy-server', '--hide-scrollbars',
				'--remote-debugging-port=0', "--user-data-dir=$dir/chromium", '--lang=en-US', '--window-size=1400,1000', @options, "$site/harness.html")
			  or POSIX::_exit(1);
		}
		my $came = wait_until(180, sub { -s "$dir/result" });
		kill 'KILL', -$pid;
		waitpid($pid, 0);
		ok($came, 'the browser has looked at ' . @$cases . ' pages') or diag(slurp_file("$dir/chromium.log"));
		return {} if !$came;
		return { map { $_->{name} => $_ } @{ decode_json(slurp_file("$dir/result")) } };
	}

	sub case
	{
		my ($name, $width, $fragment, %more) = @_;
		return { name => $name, width => $width, url => "$site/delay_wheel.html#$fragment", %more };
	}

	my $ages_ago = sub { $_[0]{now} = '2020-01-01T00:00:00+00:00' };
	variant('old', 'full', $ages_ago);
	variant('stopped', 'full', sub { my $d = shift; @{ $d->{status} }{qw(state parked unarmed last_problem last_problem_at)} = ('stopped', 2, JSON::PP::true, "no worker $evil", $d->{now}) });
	variant('loading', 'full', sub { $_[0]{background} = [ { process => 'delay_wheel timer', work => "load $evil", since => $_[0]{now} } ] });
	variant('estimates', 'full', sub { my $f = $_[0]{forecast}; $f->{exact} = JSON::PP::false; $f->{hours}[$_] = [ $f->{hours}[$_][0], 5000, JSON::PP::false ] for 3 .. 6 });
	variant('fine', 'empty', sub { });
	variant('junk', 'full', sub {
		my $d = shift;
		$d->{status} = { map { $_ => $evil } keys %{ $d->{status} } };
		$d->{ring} = { map { $_ => ref $d->{ring}{$_} ? [ $evil, { x => $evil } ] : $evil } keys %{ $d->{ring} } };
		$d->{failed}{rows} = [ { map { $_ => $evil } keys %{ $d->{failed}{rows}[0] } }, 7, $evil ];
		$d->{running} = $evil;
		$d->{lateness} = [ $evil, [$evil, $evil, $evil ], [ 1, 1e300, 1e300 ] ];
		$d->{forecast} = { pending => $evil, next_due => $evil, minutes => [ $evil, [ $evil, $evil, $evil ] ], hours => $evil, days => [ {} ] };
		$d->{lanes}{rows} = { $evil => $evil };
		$d->{batches}{rows} = [ 7, $evil, { map { $_ => $evil } keys %{ $d->{batches}{rows}[0] } } ];
		$d->{groups}{rows} = [ $evil, { map { $_ => $evil } qw(queue group_key group_hash state ready more running first_due waits_until owner) } ];
		$d->{$_}{rows} = [ 7, $evil, { map { $_ => $evil } qw(id queue state next_at attempts max_attempts method host status key tag owner error lapsed receiver messages oldest pid role application address since query) } ]
			for qw(deliveries leases awaiting);
		$d->{$_} = $evil for qw(max_executors version role server_started);
	});
	# what is not seen, and turns around what stands beside it; and letters that are written from right to left
	my $turning = "a\x{202e}b\x{2066}c\x{200f}d\x{1b}[31m\x{9b}e\r\n\tf";
	my $turn;
	$turn = sub {
		my ($data) = @_;
		if (ref $data eq 'ARRAY')
		{
			$turn->($_) for @$data;
		}
		elsif (ref $data eq 'HASH')
		{
			for (keys %$data)
			{
				if (/^(?:owner|queue)$/) { $data->{$_} = "\x{5d0}\x{5d1} 1" }
				elsif (/^(?:key|tag|sql|message|detail|hint|context|name|database|role|reason|last_error|last_problem|timezone|receiver|application|query|error|method|host|group_key)$/) { $data->{$_} = $turning }
				else { $turn->($data->{$_}) }
			}
		}
	};
	variant('turning', 'full', sub { @{ $_[0] }{qw(deliveries leases awaiting)} = @$calls{qw(deliveries leases awaiting)}; $turn->($_[0]); $_[0]{status}{last_problem_at} = $_[0]{now} });
	write_feed('turningcut', JSON::PP->new->utf8->encode([ $turning ]) =~ s/"]//r);
	write_feed('html', "<html><body>$evil</body></html>");
	write_feed('other', '{"format": 2, "now": "2026-01-01T00:00:00Z"}');
	write_feed('cut', substr(slurp_file("$feeds/full.json"), 0, 1000));

	my $r = browse([
		case('full', 1200, 'feed=feeds/full.json'),
		case('narrow', 340, 'feed=feeds/full.json'),
		case('middle', 800, 'feed=feeds/full.json'),
		case('empty', 1200, 'feed=feeds/empty.json'),
		case('empty narrow', 340, 'feed=feeds/empty.json'),
		case('many', 1200, 'feed=feeds/many.json&every=1', act => 'unfold'),
		case('many narrow', 340, 'feed=feeds/many.json'),
		case('stopped', 340, 'feed=feeds/stopped.json'),
		case('loading', 340, 'feed=feeds/loading.json'),
		case('estimates', 1200, 'feed=feeds/estimates.json'),
		case('letters', 1200, 'feed=feeds/letters.json'),
		case('letters narrow', 340, 'feed=feeds/letters.json'),
		case('calls', 1200, 'feed=feeds/calls.json'),
		case('calls narrow', 340, 'feed=feeds/calls.json'),
		case('tenants', 1200, 'feed=feeds/tenants.json'),
		case('tenants narrow', 340, 'feed=feeds/tenants.json'),
		case('old', 1200, 'feed=feeds/old.json'),
		case('junk', 1200, 'feed=feeds/junk.json'),
		case('turning', 1400, 'feed=feeds/turning.json'),
		case('turning narrow', 340, 'feed=feeds/turning.json'),
		case('turningcut', 1200, 'feed=feeds/turningcut.json'),
		case('html', 1200, 'feed=feeds/html.json'),
		case('other', 1200, 'feed=feeds/other.json'),
		case('cut', 1200, 'feed=feeds/cut.json'),
		case('missing', 1200, ''),
		case('file', 1200, '', act => 'file'),
		case('pause', 1200, 'feed=feeds/fine.json&every=1', act => 'pause'),
		case('postgrest', 1200, "feed=$postgrest/rpc/delay_wheel_page&token=good.token&every=1", rounds => 2),
		case('refused', 1200, "feed=$postgrest/rpc/delay_wheel_page"),
		case('passed on', 1200, 'feed=/rpc/delay_wheel_page'),
		case('foreign', 1200, "feed=$documented/rpc/delay_wheel_page"),
		case('unreachable', 1200, 'feed=http://127.0.0.1:1/'),
	]);

	# whatever it was fed with
	for my $c (sort { $a->{name} cmp $b->{name} } values %$r)
	{
		my $n = $c->{name};
		is($c->{error}, undef, "$n: looked at") or next;
		ok($c->{answered}, "$n: it got its answers");
		ok(!$c->{hit}, "$n: no script of others has run");
		is_deeply([ grep { /^(?:img|iframe|object|embed|a|link|form|image|use|animate)$/ } @{ $c->{tags} } ], [], "$n: no element of others is in it");
		is_deeply($c->{handlers}, [], "$n: no attribute that could run anything");
		cmp_ok($c->{overflow}, '<=', 0, "$n: nothing is cut off at its side");
		is_deeply($c->{pale}, [], "$n: all texts stand out from what is behind them");
		is_deeply($c->{collisions}, [], "$n: no label lies on another one");
		is_deeply($c->{unseen}, [], "$n: no character is hidden in it");
		is_deeply([ grep { $_ ne 'no' } @{ $c->{turned} } ], [], "$n: no name takes the place of another one");
	}

	for my $n ('full', 'narrow', 'postgrest', 'passed on', 'file')
	{
		my $c = $r->{$n};
		is($c->{state}, '✓ running', "$n: the state");
		for my $part ("running $evil", "message $evil", $name, "again $evil", "all $evil", 'greetings shop closed 2 1 1 0 0 0', 'division by zero', 'mail')
		{
			my $text = $part =~ s/\s+/ /gr;
			ok(index($c->{text} =~ s/\s+/ /gr, $text) >= 0, "$n: shows " . substr($text, 0, 40)) or diag($c->{text});
		}
		cmp_ok($c->{parts}, '>', 100, "$n: the ring has its bars");
		like($c->{text}, qr/[67]\d\d tasks are pending, the next one is due at.*The next hour, by minute\s.*at most \d in a minute/s, "$n: when tasks are due");
	}
	like(join("\n", @{ $r->{full}{problems} }), qr/bad: ✖ 3 tasks failed in the last hour.*bad: ✖ The last run of 1 recurring task failed.*warn: ▲ Due tasks of 1 lane wait/s, 'full: says what is wrong');
	is($r->{many}{failed}, 50, 'many: 50 failed tasks are listed');
	is($r->{many}{unfolded}, 1, 'many: what was folded out stays so with the next data');
	like($r->{many}{text}, qr/More than 10,000 failed tasks are kept.*By error, of the newest 1,000.*The newest 50 are shown/s, 'many: how many more there are');
	is_deeply($r->{empty}{problems}, ['good: ✓ Nothing is wrong that can be seen from here.'], 'empty: nothing is wrong');
	like($r->{empty}{text}, qr/Nothing runs at this moment.*No failed tasks are kept.*No queue is declared.*There are no recurring tasks/s, 'empty: says so');
	is($r->{stopped}{state}, '✖ stopped', 'stopped: the state');
	like(join("\n", @{ $r->{stopped}{problems} }), qr/^bad: ✖ No task is run: there is no timer process.*bad: ✖ 2 lanes.*warn: ▲ There are tasks that came with a copy.*warn: ▲ Last problem: no worker \Q<img\E/s, 'stopped: what is wrong');
	unlike(join(' ', map { /^(\w+)/ } @{ $r->{stopped}{problems} }), qr/warn.*bad/, 'stopped: the worst first');
	like($r->{stopped}{title}, qr/^✖ delay_wheel postgres/, 'stopped: also in the title of the tab');
	like($r->{loading}{text}, qr/In the background\s.*load <img/s, 'loading: what goes on in the background');
	like($r->{loading}{text}, qr/Due and waiting\s+1\s+the first for \d/, 'and for how long a due task has waited');
	is($r->{estimates}{estimates}, 4, 'estimates: are drawn otherwise');
	like($r->{estimates}{text}, qr/About \d+ tasks are pending.*Hatched bars are estimates/s, 'estimates: and called so');
	for my $n ('letters', 'letters narrow')
	{
		like($r->{$n}{text}, qr/Workers\s.*By queue\s.*Under a lease.*Lapsed leases/s, "$n: queues of messages have figures of their own");
		like(join("\n", @{ $r->{$n}{problems} }), qr/^warn: ▲ Due messages of 1 queue wait, and no receiver has come/m, "$n: says that nobody takes them");
	}
	for my $n ('calls', 'calls narrow')
	{
		like($r->{$n}{text}, qr/HTTP 410: gone <img.*Deliveries\s.*due.* its last lease ended without a report.*retry.*in 1 h|59 min.*1 of 18.*POST\s+shop\.example.*503.*key call 2.*shop.*DW007: HTTP 503: try later.*leased.* by worker <img.*lease ends/s,
			"$n: deliveries, with what was answered, and who has them");
		like($r->{$n}{text}, qr/Who holds leases\s.*worker <img.*Who waits for messages\s.*mailer 1.*CALL delay_await\('crowd', '1 hour'\)/s, "$n: workers that work, and that wait");
		like(join("\n", @{ $r->{$n}{problems} }), qr/1 message has failed and will be tried again/, "$n: says that one has failed");
		unlike($r->{$n}{text}, qr/hidden/, "$n: shows no more of an address than its host");
	}
	for my $n ('tenants', 'tenants narrow')
	{
		like($r->{$n}{text}, qr/Groups that wait\s.*tenants.*group <img.*open.*3 h.*of shop.*2 h.*without a group/s, "$n: groups that wait, and since when");
	}
	unlike($r->{full}{text}, qr/Groups that wait/s, 'full: without such groups nothing is said of them');
	unlike($r->{full}{text}, qr/Deliveries\s|Workers\s/, 'full: without such queues there are none');
	unlike($r->{empty}{text}, qr/Batches\s/, 'empty: no table of batches');
	like($r->{old}{problems}[0], qr/^bad: ✖ The data is \d+ d .*old/, 'old: data that is not renewed is called old');
	for my $n ('turning', 'turning narrow')
	{
		cmp_ok(scalar(() = $r->{$n}{text} =~ /a\[U\+202E\]b\[U\+2066\]c\[U\+200F\]d\[U\+001B\]\[31m\[U\+009B\]e\s+f/g), '>=', 10, "$n: what would turn text around is shown by its number");
		cmp_ok(scalar @{ $r->{$n}{turned} }, '>=', 3, "$n: some names stand beside each other");
	}
	like($r->{html}{problems}[0], qr/^bad: ✖ Could not read feeds\/html.json/, 'html: something else than the feed');
	like($r->{other}{problems}[0], qr/not what delay_wheel.page_data\(\) of this version returns/, 'other: another version of the feed');
	like($r->{cut}{problems}[0], qr/^bad: ✖ Could not read feeds\/cut.json/, 'cut: half a feed');
	like($r->{missing}{problems}[0], qr/^bad: ✖ Could not read delay_wheel.json: HTTP status 404/, 'missing: no feed');
	is($r->{pause}{paused}, 'true', 'pause: no data is read while it is paused, and then again');
	like($r->{refused}{problems}[0], qr/401, permission denied for (?:function|schema)/, 'refused: says what PostgREST says');
	like($r->{foreign}{problems}[0], qr{^bad: ✖ Could not read \Q$documented\E}, 'foreign: the data is not for pages from elsewhere');
	like($r->{unreachable}{problems}[0], qr/^bad: ✖ Could not read http:/, 'unreachable: says so');
	my $asked = slurp_file("$dir/requests");
	like($asked, qr{^OPTIONS /rpc/delay_wheel_page \Q$site\E}m, 'a browser asks PostgREST first whether it may come from elsewhere');
	like($asked, qr{^GET /rpc/delay_wheel_page \Q$site\E Bearer good.token}m, 'then with the token');

	$r = browse([ case('dark', 1200, 'feed=feeds/stopped.json'), case('dark narrow', 340, 'feed=feeds/many.json'), case('dark empty', 1200, 'feed=feeds/empty.json'), case('dark calls', 1200, 'feed=feeds/calls.json') ],
		'--blink-settings=preferredColorScheme=0');
	for my $n ('dark', 'dark narrow', 'dark empty', 'dark calls')
	{
		ok($r->{$n}{dark}, "$n: it is dark");
		is_deeply($r->{$n}{pale}, [], "$n: all texts stand out from what is behind them");
	}
}

$node->stop('immediate');
done_testing();
