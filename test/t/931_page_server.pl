# The web page through the server of examples/page, by the command of doc/web.md: it shows
# state, queues and failed tasks, and goes on doing so, also after the database was away;
# it says why it cannot reach it; it shows a role without rights nothing of others; no
# other machine, and no page from elsewhere, gets anything.  Where it is allowed to, the page
# acts, with the rights of the role and after a question; no page from elsewhere can make it.
#
#   DW_NODE_MODULES   directory in which node finds "pg", if it is not installed

use strict;
use warnings;
use utf8;

use Cwd qw(abs_path);
use DelayWheel;
use File::Basename;
use File::Path qw(make_path remove_tree);
use IO::Socket::INET;
use JSON::PP;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use lib dirname(__FILE__) . '/../page';
use Browser;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my $dir = PostgreSQL::Test::Utils::tempdir();

plan skip_all => 'there is no node' if system('node --version >/dev/null 2>&1') != 0;
$ENV{NODE_PATH} = $ENV{DW_NODE_MODULES} // '/usr/share/nodejs:/usr/lib/node_modules:/usr/local/lib/node_modules';
plan skip_all => 'node has no "pg"' if system(q{node -e "require('pg')" 2>/dev/null}) != 0;

#
# The command of the document, in a copy of what it needs.  npm has nothing to fetch: what
# it would is in its place already.
#
my $manual = slurp_file("$tree/doc/web.md");
my ($command) = $manual =~ m{^<!-- shown by: test/t/931_page_server.pl -->\n+```sh\n(.*?)^```}ms;
chomp $command;
my ($role) = $manual =~ /^<!-- role for the page -->\n+```sql\n(.*?)^```/ms;
my $start = qr/^npm install --prefix examples\/page && (.* node examples\/page\/server.js)$/;

like($manual, qr/^# The web page\n\n.*\n\n<!-- shown by/, 'the document begins with a command');
like($command, $start, 'the command installs and starts the page');
make_path("$dir/copy/examples");
system_or_bail('cp', '-R', "$tree/web", "$dir/copy/");
system_or_bail('cp', '-R', "$tree/examples/page", "$dir/copy/examples/");
remove_tree("$dir/copy/examples/page/node_modules");
my $modules = (grep { -d "$_/pg" } split /:/, $ENV{NODE_PATH})[0];
my $installs = $modules && -f "$modules/.package-lock.json" && system('npm --version >/dev/null 2>&1') == 0;
if ($installs)
{
	system_or_bail('cp', '-R', $modules, "$dir/copy/examples/page/");
	delete $ENV{NODE_PATH};
	@ENV{qw(npm_config_offline npm_config_update_notifier npm_config_audit npm_config_cache)} = ('true', 'false', 'false', "$dir/npm");
}
else
{
	note('npm is left out: "pg" was not installed by it');
	($command) = $command =~ $start;
}

my $node = new_node('pageserver', extension => 0, conf => "delay_wheel.max_executors = 4\nlog_statement = all\nlog_line_prefix = '%m [%p] %b %u '\n");
@ENV{qw(PGHOST PGPORT)} = ($node->host, $node->port);

my %servers;

# Starts it; its port, and what it says is in "$dir/$name.log".
sub start_server
{
	my ($name, $text) = @_;
	my $pid = fork // die "could not fork: $!";

	if ($pid == 0)
	{
		setpgrp;
		$ENV{PORT} = 0;
		delete $ENV{PGAPPNAME};
		chdir "$dir/copy";
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', "$dir/$name.log");
		open(STDERR, '>>', "$dir/$name.log");
		exec('bash', '-euo', 'pipefail', '-c', $text) or POSIX::_exit(1);
	}
	$servers{$name} = $pid;
	my $port;
	wait_until(60, sub { ($port) = said($name) =~ m{^http://127\.0\.0\.1:(\d+)/$}m });
	ok($port, "$name: it is there") or BAIL_OUT(said($name));
	return $port;
}

sub stop_server { my $pid = delete $servers{ $_[0] }; kill 'TERM', -$pid; waitpid($pid, 0); return; }
sub said { my $file = "$dir/$_[0].log"; return -e $file ? slurp_file($file) : ''; }

my $browser;
# if the test is ended from outside, they end too
$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);
END
{
	my $exit_code = $?;
	stop_server($_) for keys %servers;
	$browser->end if $browser;
	$? = $exit_code;
}

sub request
{
	my ($port, $request, $host) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 60) or die "no connection: $!";

	$host //= "127.0.0.1:$port";
	print $socket "$request HTTP/1.0\r\nHost: $host\r\n\r\n";
	return $socket;
}

# The head, and what comes after it.
sub answer { my ($socket) = @_; local $/; return split /\r\n\r\n/, scalar(<$socket>), 2; }
sub ask { return answer(request(@_)); }

# What the page sends, or what one from elsewhere might; the status, and the answer.
sub act
{
	my ($port, $token, $document, %other) = @_;
	my $text = ref $document ? encode_json($document) : $document;
	my %head = (Host => "127.0.0.1:$port", Origin => "http://127.0.0.1:$port", 'Content-Type' => 'application/json',
		'X-Delay-Wheel-Token' => $token, 'Content-Length' => length $text, %other);
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 60) or die "no connection: $!";

	print $socket "POST /act HTTP/1.0\r\n", (map { "$_: $head{$_}\r\n" } grep { defined $head{$_} } sort keys %head), "\r\n$text";
	my ($first, $answer) = answer($socket);
	return ($first =~ m{^HTTP/1\.1 (\d+)})[0] . ' ' . ($answer // '');
}

#
# The server.
#
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('postgres', $role);
$node->safe_psql('postgres', 'CREATE ROLE clerk LOGIN; CREATE ROLE visitor LOGIN; CREATE ROLE stranger LOGIN; REVOKE CONNECT ON DATABASE shop FROM PUBLIC; GRANT CONNECT ON DATABASE shop TO clerk, visitor, watcher');
$node->safe_psql('shop', q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.allow('clerk');
	SELECT delay_wheel.create_queue('mail', users => '{clerk}');
	SELECT delay_wheel.pause_queue('mail');
	SET ROLE clerk;
	SELECT delay_schedule_task('SELECT 1', queue => 'mail');
	SELECT delay_schedule_task('SELECT 1 / 0 /* of the clerk */', tag => 'month end')});
wait_for($node, 'SELECT count(*) = 1 FROM delay_wheel.failed', 'a task has failed', 60, db => 'shop');

my $log = log_position($node);
my $port = start_server('watcher', $command);
my ($head, $body) = ask($port, 'GET /');
like($head, qr{^HTTP/1.1 200 .*^Content-Type: text/html; charset=utf-8\r?$}ms, 'the page');
ok($body eq slurp_file("$tree/web/delay_wheel.html"), 'as it is');
for my $header ('X-Content-Type-Options: nosniff', 'Cache-Control: no-store', 'Referrer-Policy: no-referrer',
	'Cross-Origin-Resource-Policy: same-origin', q{Content-Security-Policy: frame-ancestors 'none'; connect-src 'self'})
{
	like($head, qr/^\Q$header\E\r?$/m, $header =~ s/:.*//r);
	like((ask($port, 'GET /delay_wheel.json'))[0], qr/^\Q$header\E\r?$/m, 'and of the data');
}
unlike($head, qr/^Access-Control/m, 'no page from elsewhere may read it');
($head, $body) = ask($port, 'GET /delay_wheel.json?sql=SELECT%20666%3B', "localhost:$port");
like($head, qr{^HTTP/1.1 200 .*^Content-Type: application/json; charset=utf-8\r?$}ms, 'the data');
is(decode_json($body)->{role}, 'watcher', 'as the role that it connects as');
for my $name ("evil.example:$port", 'evil.example', "127.0.0.1.evil.example:$port", "evil.example/127.0.0.1:$port", '')
{
	for my $path ('/', '/delay_wheel.json')
	{
		($head, $body) = ask($port, "GET $path", $name);
		like($head, qr{^HTTP/1.1 4}, "for \"$name\" there is no $path");
		unlike($body, qr/delay_wheel|format/, "for \"$name\" the answer has no data");
	}
}
like((ask($port, "$_ /delay_wheel.json"))[0], qr{^HTTP/1.1 405 }, "$_ is refused") for qw(POST PUT DELETE OPTIONS);
like((ask($port, "GET $_"))[0], qr{^HTTP/1.1 404 }, "there is no $_")
  for '/server.js', '/package.json', '/../examples/page/server.js', '/%2e%2e/page/server.js', '/delay_wheel.html/../../page/server.js', '//', '/etc/passwd', '/SELECT%20666';
unlike((ask($port, 'GET /delay_wheel.json'))[1], qr/token/, 'it lets nobody act');
like(act($port, 'x', { action => 'pause', values => ['mail'] }), qr/^405 /, 'whatever is sent');
is(IO::Socket::INET->new(PeerAddr => '127.0.0.2', PeerPort => $port, Timeout => 10), undef, 'it listens at no other address');

# while the database takes its time, all wait for the same answer
my $backend = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE usename = 'watcher'});
my $asked_before = log_position($node);
kill 'STOP', $backend;
my @waiting = map { request($port, 'GET /delay_wheel.json') } 1 .. 10;
like((ask($port, 'GET /'))[0], qr{^HTTP/1.1 200 }, 'while the database does not answer, the page is there');
kill 'CONT', $backend;
is(scalar(grep { (answer($_))[0] =~ m{^HTTP/1.1 200 } } @waiting), 10, 'ten at once have their answers');
cmp_ok(scalar(() = log_since($node, $asked_before) =~ /page_data/g), '<', 5, 'ten requests at once need fewer than five queries');
unlike(said('watcher'), qr/database:/, 'it has nothing to complain of');

#
# A page that acts.
#
my $evil = q{<img src=x onerror="window.hit=1"><b>'"};
my ($operator) = $manual =~ /^<!-- role that acts -->\n+```sql\n(.*?)^```/ms;
my ($acting) = $manual =~ /^<!-- command that acts -->\n<!-- shown by: [^\n]*\n+```sh\n(.*?)^```/ms;
$operator =~ s/\bshop_owner\b/clerk/g;
chomp $acting;
$node->safe_psql('shop', $operator);
$node->safe_psql('shop', q{
	GRANT CONNECT ON DATABASE shop TO operator;
	ALTER ROLE operator SET delay_wheel.audit = 'control';
	SELECT delay_wheel.create_queue('letters', external => true, users => '{clerk}', receivers => '{visitor}');
	UPDATE delay_wheel_data.queue SET owner = 'operator' WHERE name = 'letters';
	SELECT delay_schedule('1 day', 'SELECT 1 /* of the superuser */')});
sub in_shop { return $node->safe_psql('shop', shift); }
my $audited = q{SELECT string_agg(action || ' ' || role || ' ' || application_name, ', ' ORDER BY at) FROM delay_wheel.audit};
my $acts = start_server('operator', $acting);
my $token = decode_json((ask($acts, 'GET /delay_wheel.json'))[1])->{act}{token};
like($token, qr/^[0-9a-f]{64}$/, 'a page that may act has a token');
my $pause = { action => 'pause', values => ['letters'] };
my $paused = q{SELECT paused FROM delay_wheel_data.queue WHERE name = 'letters'};
like(act($acts, $_, $pause), qr/^403 /, 'not with the token "' . substr($_ // '', 0, 4) . '"') for '', 'x', 'f' x 64, substr($token, 1), undef;
like(act($acts, $token, $pause, Origin => $_), qr/^403 /, 'not from ' . ($_ // 'nowhere'))
  for undef, 'null', 'http://evil.example', "http://127.0.0.1:$port", "https://127.0.0.1:$acts", "http://localhost:$acts";
like(act($acts, $token, $pause, 'Content-Type' => $_), qr/^403 /, 'not as ' . ($_ // 'nothing')) for undef, 'text/plain', 'application/x-www-form-urlencoded';
like(act($acts, $token, $pause, Host => 'evil.example', Origin => 'http://evil.example'), qr/^421 /, 'not for another name');
like(act($acts, $token, $_), qr/^400 /, 'no other action is accepted') for 'x', '', '[]', '{}', '"pause"', { action => 'drop', values => ['letters'] },
  { action => 'constructor', values => [] }, { action => 'pause', values => [] }, { action => 'pause', values => [ 'letters', 'x' ] },
  { action => 'pause', values => [ [ 'letters' ] ] }, { action => 'pause', values => 'letters' }, 'x' x 20000;
unlike((ask($acts, "GET /act?token=$token&action=pause"))[0], qr{^HTTP/1.1 200}, 'not by GET');
is(in_shop($paused), 'f', 'and nothing was done');
like(act($acts, $token, { action => 'cancel', values => ['1); SELECT delay_pause('] }), qr/^409 .*invalid input syntax for type bigint/, 'values are values');
like(act($acts, $token, { action => 'pause', values => ['mail'] }), qr/^409 .*must be owner of queue/, 'it has the rights of its role');
is(act($acts, $token, $pause), '200 {"result":true}', 'an action');
is(in_shop($paused), 't', 'is done');
is(act($acts, $token, { action => 'resume', values => ['letters'] }), '200 {"result":true}', 'and another one');
is(in_shop($audited), 'pause_queue operator delay_wheel page, resume_queue operator delay_wheel page', 'the audit has both');

#
# The browser.
#
SKIP:
{
	$browser = Browser->new($dir) or skip 'there is no chromium: the page is not looked at', 1;

	my $problems = q{Array.from(document.querySelectorAll('#problems li'), e => e.innerText).join('\n')};
	my $shown = sub {
		my ($part, $pattern, $what) = @_;
		my $text = $part eq 'problems' ? $problems : "document.getElementById('$part').innerText";

		local $Test::Builder::Level = $Test::Builder::Level + 1;
		return if ok($browser->wait_for("/$pattern/s.test($text)"), $what);
		diag($browser->ask('document.body.innerText'));
		# all that follows would be waited for in vain, too
		die "failed: $what\n";
	};
	$browser->show("http://127.0.0.1:$port/#every=1");
	$shown->('state', 'running', 'the page shows the state');
	$shown->('database', '^shop$', 'of the database');
	$shown->('queues', 'mail\s.*paused', 'its queues');
	$shown->('failed', '1 failed task is kept.*22012.*division by zero.*clerk', 'the failed task');
	is($browser->ask('document.querySelector("#failed details").textContent.includes("of the clerk")'), JSON::PP::true, 'with its SQL');
	$shown->('problems', '1 task failed in the last hour', 'what is wrong');
	$shown->('foot', 'watcher, which sees all tasks', 'and as whom it reads');
	is($browser->ask('document.querySelectorAll(".acts button").length'), 0, 'it has no buttons');
	is($browser->ask(q{fetch('http://127.0.0.1:1/').then(() => 'read', e => e.message)}) =~ /fetch/, 1, 'it asks no other server');
	my @said = $browser->said;
	ok(@said > 0, 'since its policy forbids that');
	is(join("\n", grep { !/127\.0\.0\.1:1\b.*Content Security Policy/ } @said), '', 'and nothing else that it does');

	$node->safe_psql('shop', q{SET ROLE clerk; SELECT delay_schedule_task('SELECT nothing')});
	$shown->('failed', '2 failed tasks are kept.*42703', 'it goes on: the next failed task is shown by itself');

	$node->stop('fast');
	$shown->('problems', 'Could not read delay_wheel.json: 503, database: .*What is shown is older', 'without the database the page says so');
	$shown->('problems', 'database: connect ENOENT .*\.s\.PGSQL\.', 'and where it was looked for');
	$shown->('failed', '2 failed tasks are kept', 'what was shown is still there');
	ok(wait_until(60, sub { said('watcher') =~ /^database: connect ENOENT .*\.s\.PGSQL\./m }), 'the server says so, too');
	my $rounds = $browser->ask('Number(document.body.dataset.rounds)');
	ok($browser->wait_for("document.body.dataset.rounds > $rounds + 1"), 'it is asked again');
	is(scalar(() = said('watcher') =~ /^database: connect ENOENT/mg), 1, 'but does not repeat that');
	$node->start;
	$node->safe_psql('shop', q{SET ROLE clerk; SELECT delay_schedule_task('SELECT nothing', tag => 'again')});
	$shown->('failed', '3 failed tasks are kept', 'the database is up again: it goes on by itself');
	ok($browser->wait_for("!/503/.test($problems)"), 'and has no more to say of that');
	@said = grep { !/status of 503/ } $browser->said;
	is("@said", '', 'no error in the page');

	# others
	my $other = start_server('visitor', 'PGDATABASE=shop PGUSER=visitor node examples/page/server.js');
	$browser->show("http://localhost:$other/#every=1");
	$shown->('state', 'running', 'a role without rights sees the state');
	$shown->('failed', 'No failed tasks are kept', 'but no task of others');
	$shown->('foot', 'visitor: it sees its own tasks only', 'and is told so');
	is($browser->ask(q{/clerk|month end|division/.test(document.documentElement.textContent)}), JSON::PP::false, 'nothing of them is in the page');
	is(join(' ', $browser->said), '', 'no error in the page');
	stop_server('visitor');
	$other = start_server('stranger', 'PGDATABASE=shop PGUSER=stranger node examples/page/server.js');
	$browser->show("http://127.0.0.1:$other/#every=1");
	$shown->('problems', '503, database: permission denied for database "shop"', 'a role that may not even connect: the page says so');
	like(said('stranger'), qr/^database: permission denied for database "shop"$/m, 'and the server');

	# and one that acts: each button asks, and names what it is about
	my $quoted = $evil =~ s/'/''/gr;
	my $task = in_shop(qq{SET ROLE clerk; SELECT delay_schedule_task('SELECT 2 /* $quoted */', delay => '1 day', key => 'key $quoted')});
	my $strange = in_shop(q{SELECT id FROM delay_wheel.tasks WHERE sql LIKE '%superuser%'});
	my $failed = in_shop(q{SELECT min(id) FROM delay_wheel.failed});
	in_shop(q{SET ROLE operator; SELECT delay_every('again', '1 day', 'SELECT 3')});
	my $click = sub {
		my ($label, $what) = @_;
		my $find = qq{document.querySelector('button[aria-label="$label"]')};

		local $Test::Builder::Level = $Test::Builder::Level + 1;
		ok($browser->wait_for("$find !== null"), "there is: $label") or die "failed: $label\n";
		$browser->ask("$find.closest('details') && ($find.closest('details').open = true), $find.click()");
		$shown->('dialog', $what, 'it asks');
	};
	my $answer = sub { $browser->ask("document.querySelector('#dialog $_[0]').click()"); };
	my $close = sub { $browser->ask('document.getElementById("dialog").close()'); };
	my $is_open = 'document.getElementById("dialog").open';
	$browser->show("http://127.0.0.1:$acts/#every=1");
	$shown->('foot', 'What is done here is done as that role', 'a page that acts says so');
	$shown->('workers', 'letters.*operator, visitor', 'receivers are shown');

	$click->("Cancel task $task", "Cancel task $task\\?.*clerk.*default.*key <img.*SELECT 2.*<b>.*No.*Yes, cancel");
	is($browser->ask('document.activeElement.textContent'), 'No', 'and prefers no');
	$answer->('.acts button');
	is($browser->ask($is_open), JSON::PP::false, 'no');
	is(in_shop("SELECT count(*) FROM delay_wheel.tasks WHERE id = $task"), 1, 'nothing is done');

	$click->("Move task $task", 'New time');
	$browser->ask(q{document.getElementById('when').value = '2099-01-02T03:04:05'});
	$answer->('.go');
	$shown->('dialog', 'Result: moved', 'moved');
	is(in_shop("SELECT due BETWEEN '2099-01-01' AND '2099-01-04' FROM delay_wheel.tasks WHERE id = $task"), 't', 'as said');
	$close->();
	$click->("Cancel task $task", 'Yes, cancel');
	$answer->('.go');
	$shown->('dialog', 'Result: cancelled', 'cancelled');
	is(in_shop("SELECT count(*) FROM delay_wheel.tasks WHERE id = $task"), 0, 'indeed');
	$close->();
	ok($browser->wait_for("document.querySelector('button[aria-label=\"Cancel task $task\"]') === null"), 'it is not listed any more');

	$click->("Run now task $strange", 'of the superuser');
	$answer->('.go');
	$shown->('dialog', "permission denied for task $strange", 'what the role may not do is refused, with the reason');
	is(in_shop("SELECT count(*) FROM delay_wheel.tasks WHERE id = $strange"), 1, 'and not done');
	$close->();

	$task = in_shop(q{SET ROLE clerk; SELECT delay_schedule('1 day', 'SELECT 4')});
	$click->("Run now task $task", 'SELECT 4');
	$answer->('.go');
	$shown->('dialog', 'Result: moved', 'run now');
	wait_for($node, "SELECT count(*) FROM delay_wheel_data.task WHERE id = $task", 'it has run', 60, db => 'shop', expected => 0);
	$close->();

	$click->("Retry task $failed", 'division by zero');
	$answer->('.go');
	$shown->('dialog', 'Result: retried', 'put back');
	wait_for($node, "SELECT failed_at > now() - interval '1 min' FROM delay_wheel.failed WHERE id = $failed", 'it has failed again', 60, db => 'shop');
	$close->();

	$task = in_shop(q{SET ROLE clerk; SELECT delay_schedule('0', 'SELECT pg_sleep(3600)')});
	$click->("Stop task $task", 'pg_sleep');
	$answer->('.go');
	$shown->('dialog', 'Result: stopping', 'told to stop');
	wait_for($node, "SELECT sqlstate FROM delay_wheel.failed WHERE id = $task", 'it is stopped', 60, db => 'shop', expected => '57014');
	$close->();

	# messages: each state has its own buttons
	$task = in_shop(q{SET ROLE clerk; SELECT delay_send('letters', '{"method": "POST", "url": "https://shop.example/hooks"}', delay => '1 day')});
	$click->("Deliver now message $task", 'clerk.*letters.*POST shop\.example');
	$answer->('.go');
	$shown->('dialog', 'Result: moved', 'a message is due now');
	$close->();
	wait_for($node, q{SELECT ready FROM delay_wheel.queues WHERE name = 'letters'}, 'indeed', 60, db => 'shop', expected => 1);
	in_shop(q{SELECT id, token FROM delay_lease('letters') \gset
		SELECT delay_fail(:id, :token, 'HTTP 410: gone', give_up => true)});
	$click->("Discard message $task", 'HTTP 410: gone');
	$answer->('.go');
	$shown->('dialog', 'Result: discarded', 'one that was given up is discarded');
	is(in_shop("SELECT count(*) FROM delay_wheel.failed WHERE id = $task"), 0, 'for good');
	$close->();
	$task = in_shop(q{SET ROLE clerk; SELECT delay_send('letters', '1')});
	wait_for($node, q{SELECT count(*) FROM delay_lease('letters', 1, '1 hour')}, 'one is leased', 60, db => 'shop', expected => 1);
	$click->("Cancel message $task", 'letters');
	$answer->('.go');
	$shown->('dialog', 'Result: (?:cancelled|stopping)', 'it is cancelled, and its lease ends');
	is(in_shop("SELECT count(*) FROM delay_wheel.tasks WHERE id = $task"), 0, 'at once');
	$close->();

	$click->('Pause queue letters', 'operator');
	$answer->('.go');
	$shown->('dialog', 'Done.', 'paused');
	$close->();
	$click->('Resume queue letters', 'Resume queue letters');
	$answer->('.go');
	$shown->('dialog', 'Done.', 'resumed');
	is(in_shop($paused), 'f', 'as before');
	$close->();
	$click->('Pause recurring task again', 'Next');
	$answer->('.go');
	$shown->('dialog', 'Done.', 'paused');
	is(in_shop(q{SELECT state FROM delay_wheel.recurring WHERE name = 'again'}), 'paused', 'a recurring task');
	$close->();
	ok($browser->wait_for(q{document.querySelector('button[aria-label="Resume recurring task again"]') !== null}), 'the paused recurring task can be resumed');
	is(in_shop($audited . q{ WHERE task IS NOT NULL}), join(', ', map { "$_ operator delay_wheel page" } qw(reschedule cancel reschedule retry cancel reschedule discard cancel)), 'the audit has what was done to tasks');
	is($browser->ask('window.hit === undefined'), JSON::PP::true, 'texts of tasks are text');
	# those before it may have asked their servers once more, which are not there any more
	is(join(' ', grep { !/status of 409/ && !(m{//[\w.]+:(\d+)} && $1 != $acts) } $browser->said), '', 'no error in the page');

	# the server begins anew: the page has the new token with the next data
	my $number = $acts;
	stop_server('operator');
	unlink "$dir/operator.log";
	start_server('operator', "export PORT=$number; $acting");
	$shown->('problems', '.', 'it goes on');
	ok($browser->wait_for(qq{fetch('delay_wheel.json').then(a => a.json()).then(d => d.act.token !== '$token' && acting === d.act.token)}), 'with another token');
	$click->('Pause queue letters', 'operator');
	$answer->('.go');
	$shown->('dialog', 'Done.', 'which it uses');
	$browser->end;
}

# two at one port
my $second = $command =~ s/^npm install.*? && //r;
is(system('bash', '-c', "cd '$dir/copy'; PORT=$port $second >'$dir/second.log' 2>&1"), 256, 'a port that is taken');
like(said('second'), qr/^listen EADDRINUSE.*:$port$/, 'is named');

# whatever was asked
my %asked = map { $_ => 1 } log_since($node, $log) =~ / (?:watcher|visitor|stranger) LOG:  (?:statement|execute [^:]*): (.*)/g;
is(join("\n", keys %asked), "BEGIN READ ONLY; SET LOCAL statement_timeout = '20s'; SELECT delay_wheel.page_data()::text AS data; COMMIT", 'the database was asked for one thing only');

$node->stop;
done_testing();
