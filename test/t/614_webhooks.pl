# examples/webhooks, as its README has it: orders, delay-wheel-http and the receiver, which verifies
# signatures by a package that is not ours.  An unpaid order is reported once, a paid one never; a
# receiver that was away gets its call later; a signature by another secret is refused, and the call
# given up.
#
#   DW_DRIVER_MODULES   see Workers.pm

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use IO::Socket::INET;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Workers;

my $tree = abs_path("$FindBin::RealBin/../..");
my $scratch = PostgreSQL::Test::Utils::tempdir();
my $modules = node_modules_with('standardwebhooks');

plan skip_all => lacks_for_http() if lacks_for_http();
plan skip_all => 'node with the package "standardwebhooks" is not there' if !$modules || !works(qw(node --version));

# A copy of what the example needs, with a port of its own.
mkdir "$scratch/$_" for qw(workers examples);
for my $part (qw(workers/http examples/webhooks))
{
	system('cp', '-R', "$tree/$part", "$scratch/$part") == 0 or die "cannot copy $part\n";
}
symlink($modules, "$scratch/node_modules") or die "symlink: $!\n";
ok(works('make', '-s', '-C', "$scratch/workers/http", 'clean', 'all'), 'the program is built');
my $port = do { my $probe = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "no port: $!"; $probe->sockport };
system('sed', '-i', "s/localhost:8080/localhost:$port/", "$scratch/examples/webhooks/schema.sql") == 0 or die 'sed';

my $node = new_node('webhooks', extension => 0, conf => "autovacuum = off\n");
$node->safe_psql('postgres', 'CREATE DATABASE shop');
local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PORT => $port, PATH => "$scratch/workers/http:$ENV{PATH}");

sub query { my ($sql, $role) = @_; return $node->safe_psql('shop', $sql, extra_params => [ '-U', $role // 'postgres' ]); }

# Runs commands of the README.
sub sh
{
	my ($commands) = @_;
	return IPC::Run::run([ 'bash', '-euo', 'pipefail', '-c', "cd '$scratch'; exec >>said 2>&1; $commands" ], '<', \undef);
}

sub pid_of { my ($name) = @_; return slurp_file("$scratch/$name.pid") =~ s/\s//gr; }

sub stop
{
	my ($name) = @_;
	my $pid = pid_of($name);

	kill 'TERM', $pid;
	return wait_until(60, sub { return !kill 0, $pid });
}

# The orders that the receiver has reported.
sub reported { return join ' ', sort map { /^not paid: (\d+) / ? $1 : () } split /\n/, slurp_file("$scratch/said"); }

ok(sh(q{sudo() { shift 3; psql -v ON_ERROR_STOP=1 "$@"; }; cat workers/http/setup.sql examples/webhooks/schema.sql | sudo -u postgres psql -d shop}), 'the schema is made') or diag(slurp_file("$scratch/said"));
query(q{SELECT delay_wheel.create_queue('http', options => '{"retry_delay": "200 ms"}')});
sh(<<'END');
export SECRET=whsec_$(openssl rand -base64 24)
echo $SECRET >secret
node examples/webhooks/receiver.mjs &
echo $! >receiver.pid
DELAY_HTTP_SECRET_SHOP=$SECRET PGDATABASE=shop PGUSER=delay_http_worker \
	delay-wheel-http --allow-address 127.0.0.0/8 --allow-address ::1 &
echo $! >program.pid
END

query(q{INSERT INTO t_order (oid, email) VALUES (7, 'anna@example.com'), (8, 'berta@example.com'), (9, 'carla@example.com')}, 'shop');
query(q{UPDATE t_order SET paid = true WHERE oid = 8}, 'shop');

# whoever sets it paid: another role, which may schedule nothing; the administrator
query(q{INSERT INTO t_order (oid, email) VALUES (12, 'frida@example.com'), (13, 'gerda@example.com')}, 'shop');
query(q{UPDATE t_order SET paid = true WHERE oid = 12}, 'billing');
query(q{UPDATE t_order SET paid = true WHERE oid = 13});
is(query('SELECT count(*) FROM delay_wheel.tasks', 'shop'), '2', 'a payment by another role cancels the call, and shop sees its calls');
isnt($node->psql('shop', q{CREATE TEMP TABLE mine (oid bigint, email text, paid boolean); CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION report_unpaid()},
	on_error_stop => 1, extra_params => [ '-U', 'billing' ]), 0, 'others cannot use its function for tables of their own');
is(query(q{SELECT string_agg(key, ' ' ORDER BY key), bool_and(due > now() + '29 min' AND due <= now() + '30 min') FROM delay_wheel.tasks}), 'unpaid 7 unpaid 9|t', 'a call in 30 minutes for each order that is not paid');

# half an hour later
sub later { return query('SELECT count(delay_update(id, due => now())) FROM delay_wheel.tasks'); }
later();
wait_until(60, sub { return reported() eq '7 9' });
is(reported(), '7 9', 'both are reported, and verified');
wait_for($node, 'SELECT count(*) = 0 FROM delay_wheel.tasks', 'their calls are done', 60, db => 'shop');
query(q{UPDATE t_order SET email = 'carla@shop.example' WHERE oid = 9}, 'shop');
is(query('SELECT count(*) FROM delay_wheel.tasks'), '0', 'a change of another column repeats no call');

# the receiver is away
ok(stop('receiver'), 'the receiver ends');
query(q{INSERT INTO t_order (oid, email) VALUES (10, 'dora@example.com')}, 'shop');
later();
wait_for($node, q{SELECT attempts > 1 FROM delay_wheel.tasks WHERE key = 'unpaid 10'}, 'a receiver that is away is called again', 60, db => 'shop');
sh(q{SECRET=$(cat secret) node examples/webhooks/receiver.mjs & echo $! >receiver.pid});
wait_until(60, sub { return reported() eq '10 7 9' });
is(reported(), '10 7 9', 'and gets its call when it is back');

# a receiver with another secret
ok(stop('receiver'), 'it ends again');
sh(q{SECRET=whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD node examples/webhooks/receiver.mjs & echo $! >receiver.pid});
query(q{INSERT INTO t_order (oid, email) VALUES (11, 'edda@example.com')}, 'shop');
later();
wait_for($node, q{SELECT count(*) = 1 FROM delay_wheel.failed WHERE key = 'unpaid 11' AND message LIKE '%401%'}, 'a signature by another secret is refused, and the call given up', 90, db => 'shop');
is(reported(), '10 7 9', 'and not reported');

ok(stop($_), "SIGTERM ends the $_") for qw(program receiver);
note(slurp_file("$scratch/said"));
$node->stop;
done_testing();
