# The ten lines with which doc/messages.md begins, as they stand there: the SQL, and the worker in
# Node and in Python.  Each worker gets the message when it is due, and ends on SIGTERM.  It runs as a
# role that may only receive, and logs in by one of the commands of "How a worker logs in": in Node by a
# password, in Python through the socket.  The unit of "Workers in production" is one that systemd takes.
# A worker whose packages are not there is left out.  All commands are read from the page:
# <!-- shown by: test/t/616_first_lines.pl -->
#
#   DW_DRIVER_MODULES   see Workers.pm

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use Documents;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Workers;

my $tree = "$FindBin::RealBin/../..";
my $scratch = PostgreSQL::Test::Utils::tempdir();
my $text = slurp_file("$tree/doc/messages.md");
my ($lines) = $text =~ /^## Ten lines\n(.*?)^## /ms or die 'there are no ten lines';
my ($blocks) = Documents::parse_document($lines);
my %block = map { $_->{kind} => $_->{text} } @$blocks;
is(join(' ', map { $_->{kind} } @$blocks), 'sql sh js python', 'the SQL, and two workers');
my ($login) = $text =~ /^## How a worker logs in\n(.*?)^## /ms or die 'no worker logs in';
my ($role, $by_password, $by_socket) = map { $_->{text} } @{ (Documents::parse_document($login))[0] };
my ($create_role, $may_receive) = $role =~ /^(CREATE ROLE [^\n]*\n)(.*)/s or die 'there is no CREATE ROLE';

# as Debian's, but that the user of the system is the one that runs the test
my $node = new_node('lines', extension => 0, conf => "listen_addresses = '127.0.0.1'\n");
my $me = getpwuid($<);
unlink $node->data_dir . '/pg_hba.conf';
append_to_file($node->data_dir . '/pg_hba.conf', "local all postman peer map=worker\nlocal all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
append_to_file($node->data_dir . '/pg_ident.conf', "worker $me postman\n");
$node->reload;
$node->safe_psql('postgres', $create_role);

# "pg" is not downloaded: node looks for packages beside a program
my ($install) = $block{sh} =~ /\A(npm install) pg (?="\$\(npm pack ~)/ ? $block{sh} =~ s/ pg / /r =~ s,~/delay_wheel,$tree,r : die 'npm does not install pg';
if (works(qw(npm --version)))
{
	local %ENV = (%ENV, npm_config_cache => "$scratch/npm", npm_config_offline => 'true', npm_config_legacy_peer_deps => 'true', npm_config_audit => 'false', npm_config_fund => 'false');
	my $installed = IPC::Run::run([ 'bash', '-euc', "cd '$scratch'; $install" ], '<', \undef, '>', \my $said, '2>&1');
	ok($installed && -f "$scratch/node_modules/delay-wheel/src/index.js", 'npm installs the library') or diag($said);
}
else
{
	mkdir "$scratch/node_modules" or die $!;
	system('cp', '-R', "$tree/workers/node", "$scratch/node_modules/delay-wheel") == 0 or die "cannot copy workers/node\n";
	system('rm', '-rf', "$scratch/node_modules/delay-wheel/node_modules");
}
link_node_modules("$scratch/node_modules");
my %worker = (
	js => { file => 'worker.mjs', start => $by_password =~ s/localhost/127.0.0.1/r, there => sub { return has_node('pg') } },
	python => { file => 'worker.py', start => $by_socket =~ s/^sudo adduser .*\n//r =~ s/^sudo -u postman //r =~ s,/var/run/postgresql,$node->host,er =~ s,node worker\.mjs,/usr/bin/python3 -u worker.py,r, there => \&has_python });


for my $kind (sort keys %worker)
{
  SKIP:
	{
		my $worker = $worker{$kind};

		skip("the packages of $worker->{file} are not there", 1) if !$worker->{there}->();
		append_to_file("$scratch/$worker->{file}", $block{$kind});
		$node->safe_psql('postgres', "CREATE DATABASE $kind");
		$node->safe_psql($kind, $block{sql});
		is($node->safe_psql($kind, q{SELECT due > now() AND due <= now() + interval '10 s' FROM delay_wheel.tasks}), 't', "$kind: the message is due in ten seconds");
		$node->safe_psql($kind, "$may_receive; SELECT delay_reschedule(id, '0') FROM delay_wheel.tasks");
		is($node->safe_psql($kind, q{SELECT retry_delay FROM delay_wheel.queues WHERE name = 'mail'}), '00:01:00', "$kind: its pause is set");

		my ($out, $err) = ('', '');
		my $run = do
		{
			my ($variables, $program) = $worker->{start} =~ s/PGDATABASE=\Kshop/$kind/r =~ /\A(?:env )?((?:\w+=\S+ )+)(\S.*)/ or die "no command: $worker->{start}";
			my @given = grep { !/^PG/ } keys %ENV;
			local %ENV = ((map { $_ => $ENV{$_} } @given), PGPORT => $node->port,
				PYTHONPATH => "$tree/workers/python/src", PYTHONDONTWRITEBYTECODE => 1);
			IPC::Run::start([ 'bash', '-c', "cd '$scratch'; $variables exec $program" ], '<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(120));
		};
		wait_until(60, sub { return !eval { $run->pump_nb; 1 } || $out ne '' });
		isnt($out, '', "$kind: the message is there") or diag($err);
		wait_for($node, q{SELECT count(*) = 0 FROM delay_wheel.tasks}, "$kind: and done", 60, db => $kind);
		$run->signal('TERM');
		$run->finish;
		is(($run->full_results)[0], 0, "$kind: it ends with 0") or diag($err);
		is($out, "a mail to anna\@example.com\n", "$kind: its handler was called once");

		my (undef, undef, $refused) = $node->psql($kind, q{SELECT delay_schedule('1 hour', 'SELECT 1')}, extra_params => [ '-U', 'postman' ]);
		like($refused, qr/reached its limit of pending tasks: 0/, "$kind: the worker's role cannot schedule");
	}
}

#
# The unit of "Workers in production" is that of workers/worker.service (905_docs.pl).
#
my $unit = slurp_file("$tree/workers/worker.service");
my ($environment) = $by_socket =~ /env ((?:\w+=\S+ )+)/;
my ($wait) = $unit =~ /^TimeoutStopSec=(\d+)$/m;
my @times = $text =~ /`(?:stop_grace_period: |terminationGracePeriodSeconds: )(\d+)s?`/g;

is(($unit =~ /^Environment=(.*)$/m)[0], $environment =~ s/ $//r, 'the unit logs in as the command does');
is("@times", "$wait $wait", 'Docker and Kubernetes wait as long as systemd');
cmp_ok($wait, '>', 35, 'which is longer than a worker takes');
SKIP:
{
	skip('there is no systemd', 1) if !works(qw(systemd-analyze --version));
	append_to_file("$scratch/postman.service", $unit =~ s,/usr/bin/node,/bin/true,r);
	IPC::Run::run([ 'systemd-analyze', 'verify', '--man=no', "$scratch/postman.service" ], '<', \undef, '>', \my $said, '2>&1');
	unlike($said, qr/postman\.service/, 'systemd takes the unit');
}

$node->stop;
done_testing();
