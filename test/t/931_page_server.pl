# The web page through the server of examples/page, by the command of doc/web.md: it shows
# state, queues and failed tasks, and goes on doing so, also after the database was away;
# it says why it cannot reach it; it shows a role without rights nothing of others; no
# other machine, and no page from elsewhere, gets anything.
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
like($command, $start, 'which installs and starts');
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

#
# The server.
#
$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('postgres', $role);
$node->safe_psql('postgres', 'CREATE ROLE clerk LOGIN; CREATE ROLE visitor LOGIN; CREATE ROLE stranger LOGIN; REVOKE CONNECT ON DATABASE shop FROM PUBLIC; GRANT CONNECT ON DATABASE shop TO clerk, visitor, watcher');
$node->safe_psql('shop', q{
	CREATE EXTENSION delay_wheel;
	SELECT delay_wheel.allow('clerk');
	SELECT delay_queue('mail', users => '{clerk}');
	SELECT delay_pause('mail');
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
		unlike($body, qr/delay_wheel|format/, 'nor any of it');
	}
}
like((ask($port, "$_ /delay_wheel.json"))[0], qr{^HTTP/1.1 405 }, "$_ is refused") for qw(POST PUT DELETE OPTIONS);
like((ask($port, "GET $_"))[0], qr{^HTTP/1.1 404 }, "there is no $_")
  for '/server.js', '/package.json', '/../examples/page/server.js', '/%2e%2e/page/server.js', '/delay_wheel.html/../../page/server.js', '//', '/etc/passwd', '/SELECT%20666';
is(IO::Socket::INET->new(PeerAddr => '127.0.0.2', PeerPort => $port, Timeout => 10), undef, 'it listens at no other address');

# while the database takes its time, all wait for the same answer
my $backend = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE usename = 'watcher'});
my $asked_before = log_position($node);
kill 'STOP', $backend;
my @waiting = map { request($port, 'GET /delay_wheel.json') } 1 .. 10;
like((ask($port, 'GET /'))[0], qr{^HTTP/1.1 200 }, 'while the database does not answer, the page is there');
kill 'CONT', $backend;
is(scalar(grep { (answer($_))[0] =~ m{^HTTP/1.1 200 } } @waiting), 10, 'ten at once have their answers');
cmp_ok(scalar(() = log_since($node, $asked_before) =~ /page_data/g), '<', 5, 'of few queries');
unlike(said('watcher'), qr/database:/, 'it has nothing to complain of');

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
	$browser->end;
}

# two at one port
my $second = $command =~ s/^npm install.*? && //r;
is(system('bash', '-c', "cd '$dir/copy'; PORT=$port $second >'$dir/second.log' 2>&1"), 256, 'a port that is taken');
like(said('second'), qr/^listen EADDRINUSE.*:$port$/, 'is named');

# whatever was asked
my %asked = map { $_ => 1 } log_since($node, $log) =~ /(?:watcher|visitor|stranger) LOG:  (?:statement|execute [^:]*): (.*)/g;
is(join("\n", keys %asked), "BEGIN READ ONLY; SET LOCAL statement_timeout = '20s'; SELECT delay_wheel.page_data()::text AS data; COMMIT", 'the database was asked for one thing only');

$node->stop;
done_testing();
