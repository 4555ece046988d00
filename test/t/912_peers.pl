# test/bench/peers/run works: with tiny sizes each measure of delay_wheel, of a queue by
# hand and of the floor yields a figure, the tables have them, an effect that is there twice
# is noticed, and nothing is left behind.  How fast anything is, is not looked at.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $here = "$FindBin::RealBin/../bench/peers";
my $out = PostgreSQL::Test::Utils::tempdir();
# its server's directory; sockets have short names
my $place = PostgreSQL::Test::Utils::tempdir_short();

local $ENV{TMPDIR} = $place;
plan skip_all => 'pg_stat_statements is not installed' if !-f `$ENV{PG_CONFIG} --pkglibdir` =~ s/\n//r . '/pg_stat_statements.so';

# A copy, in which the queue by hand does a task twice where it takes one a transaction.
my $tree = PostgreSQL::Test::Utils::tempdir();
system('tar', '-C', "$here/../../..", '-cf', "$tree/tar", 'scripts', 'test/bench') == 0 or die;
system('tar', '-C', $tree, '-xf', "$tree/tar") == 0 or die;
my $driver = "$tree/test/bench/peers/drivers/skip_locked.pl";
my $text = slurp_file($driver);
$text =~ s/(UPDATE t_order SET .*?;)/$1 UPDATE t_order SET status = status + 1 WHERE batch = 1 AND oid = task AND oid = 7;/ or die;
unlink $driver;
append_to_file($driver, $text);

my @run = ("$tree/test/bench/peers/run", '--quick', '--prepared', '--out', $out);
ok(!run_log([ @run, '--only', 'delay_wheel,skip_locked,pgmq' ], '>', "$out/said", '2>', "$out/errors"), 'it is an error if a task was done twice');
my $errors = slurp_file("$out/errors");
is(join('', $errors =~ /^FAILED.*\n/mg), "FAILED: skip_locked_1: 4 twice\n", 'that is what it says, and nothing else has failed')
  or diag($errors);
unlike($errors, qr/uninitialized/, 'it knows all its values');
like($errors, qr/^pgmq: skipped, .*--pgmq FILE/m, 'a peer that is not there is skipped, with a word');
is(join(' ', glob("$place/*")), '', 'nothing is left behind');

my $results = decode_json(slurp_file("$out/peers.json"));
my %measures = %{ $results->{rounds}[0]{measures} };
my %expected = (
	(map { $_ => 'delay_wheel floor skip_locked' } qw(schedule bulk)),
	(map { $_ => 'delay_wheel floor skip_locked skip_locked_1' } qw(late burst snapshot)),
	idle => 'delay_wheel skip_locked skip_locked_1');
is(join(' ', sort keys %{ $measures{$_} }), $expected{$_}, "$_: there are figures") for sort keys %expected;
is(scalar(grep { ($_->{rate} // $_->{first} // $_->{p50}) <= 0 } map { values %{ $measures{$_} } } qw(schedule bulk late burst snapshot)),
	0, 'rates and lateness are positive');
is($measures{idle}{delay_wheel}{statements}, 0, 'delay_wheel asks nothing while nothing is due');
cmp_ok($measures{idle}{skip_locked}{statements}, '>', 5, 'a poller does');

# lateness, a burst, and two beside the snapshot
is($results->{effects}{$_}{once}, 50 + 3 * 400, "$_: each effect was there once") for qw(floor delay_wheel skip_locked);
is("$results->{effects}{skip_locked_1}{once} $results->{effects}{skip_locked_1}{twice}", 49 + 3 * 399 . ' 4', 'the spoilt one: one task of each was done twice');

my $table = slurp_file("$out/peers.md");
is(scalar(() = $table =~ /^\| delay_wheel \S+ \| (?:\*\*|1,250)/mg), 5, 'delay_wheel has a row in each table');
unlike($table, qr/nan|inf\b/i, 'the tables have no impossible numbers');
unlink "$out/peers.md";
command_ok([ @run, '--report' ], 'the tables can be made again');
is(slurp_file("$out/peers.md"), $table, 'the same');

command_fails([ "$here/run", '--only', 'nonsense' ], 'a peer that does not exist is refused');

done_testing();
