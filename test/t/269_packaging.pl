# What packagers read: META.json follows the rules of PGXN (test/packages/META.schema.json),
# all files name the same version, and the script has all its parts.  The distribution for
# PGXN is what was committed.  The links of the documents in Debian's
# package hold.  Its removal warns of clusters that need it.
# (test/packages/run builds and installs the packages and the distribution.)

use strict;
use warnings;

use DelayWheel;
use Documents;
use File::Basename;
use File::Find;
use IPC::Run ();
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = dirname(__FILE__) . '/../..';

sub file { return slurp_file("$root/$_[0]") }

#
# As much of JSON Schema as the schema uses.  Returns what is wrong, by places.
#
my $schema = decode_json(file('test/packages/META.schema.json'));
my %is_type = (
	object => sub { ref $_[0] eq 'HASH' },
	array => sub { ref $_[0] eq 'ARRAY' },
	string => sub { defined $_[0] && !ref $_[0] });

sub check
{
	my ($rule, $value, $place) = @_;
	my @wrong;

	return check($schema->{definitions}{$1}, $value, $place) if ($rule->{'$ref'} // '') =~ m{^#/definitions/(\w+)$};
	my ($type) = grep { $is_type{$_}->($value) } qw(object array string);
	return "$place: is no $rule->{type}" if $rule->{type} && ($type // '') ne $rule->{type};
	push @wrong, "$place: none of what is allowed" if $rule->{anyOf} && !grep { !(() = check($_, $value, $place)) } @{ $rule->{anyOf} };
	push @wrong, "$place: not one of " . join(', ', @{ $rule->{enum} }) if $rule->{enum} && !grep { !ref $value && $_ eq $value } @{ $rule->{enum} };
	return (@wrong, check_text($rule, $value, $place)) if !ref $value;
	return (@wrong, check_object($rule, $value, $place)) if $type eq 'object';
	push @wrong, "$place: too few" if @$value < ($rule->{minItems} // 0);
	return (@wrong, map { check($rule->{items} // {}, $value->[$_], "$place\[$_]") } 0 .. $#$value);
}

sub check_text
{
	my ($rule, $value, $place) = @_;

	return (
		length $value < ($rule->{minLength} // 0) ? "$place: too short" : (),
		length $value > ($rule->{maxLength} // 1e9) ? "$place: too long" : (),
		defined $rule->{pattern} && $value !~ /$rule->{pattern}/ ? "$place: not like $rule->{pattern}" : ());
}

sub check_object
{
	my ($rule, $value, $place) = @_;
	my @wrong = map { exists $value->{$_} ? () : "$place: lacks $_" } @{ $rule->{required} // [] };
	my $patterns = $rule->{patternProperties} // {};
	my $others = $rule->{additionalProperties} // {};

	push @wrong, "$place: too few" if keys %$value < ($rule->{minProperties} // 0);
	for my $key (sort keys %$value)
	{
		my @rules = (grep({ defined } $rule->{properties}{$key}), map { $patterns->{$_} } grep { $key =~ /$_/ } sort keys %$patterns);

		@rules = ($others) if !@rules && ref $others eq 'HASH';
		push @wrong, @rules ? map({ check($_, $value->{$key}, "$place/$key") } @rules) : "$place: has $key";
	}
	return @wrong;
}

my $text = file('META.json');
my $meta = decode_json($text);

is_deeply([ check($schema, $meta, '') ], [], 'META.json follows the rules');

# The rules do refuse what is against them.
my %wrong = (
	'no name' => sub { delete $_[0]{name} },
	'a name with a slash' => sub { $_[0]{name} = 'delay/wheel' },
	'a version that is not semantic' => sub { $_[0]{version} = '1.1' },
	'a version with a leading zero' => sub { $_[0]{provides}{delay_wheel}{version} = '1.01.0' },
	'an unknown licence' => sub { $_[0]{license} = 'beerware' },
	'a licence without its address' => sub { $_[0]{license} = { PostgreSQL => 'it' } },
	'an empty abstract' => sub { $_[0]{abstract} = '' },
	'nobody who maintains it' => sub { $_[0]{maintainer} = [] },
	'an unknown status' => sub { $_[0]{release_status} = 'done' },
	'an extension without its file' => sub { delete $_[0]{provides}{delay_wheel}{file} },
	'no extension' => sub { $_[0]{provides} = {} },
	'another specification' => sub { $_[0]{'meta-spec'}{version} = '3.0.0' },
	'an unknown phase' => sub { $_[0]{prereqs}{use} = {} },
	'a malformed requirement' => sub { $_[0]{prereqs}{runtime}{requires}{PostgreSQL} = '15' },
	'a tag with a slash' => sub { push @{ $_[0]{tags} }, 'a/b' },
	'tags that are a text' => sub { $_[0]{tags} = 'queue' },
	'an unknown key' => sub { $_[0]{homepage} = 'https://here.example/' },
);
for my $what (sort keys %wrong)
{
	my $other = decode_json($text);

	$wrong{$what}->($other);
	is(scalar(@{ [ check($schema, $other, '') ] }), 1, "$what is refused") or diag(check($schema, $other, ''));
}
my $custom = decode_json($text);
@$custom{qw(x_own license)} = ({ a => 1 }, { PostgreSQL => 'https://www.postgresql.org/about/licence' });
is_deeply([ check($schema, $custom, '') ], [], 'keys of one\'s own, and licences with addresses, are not');

my ($provided) = values %{ $meta->{provides} };
ok(-f "$root/$_", "META.json: $_ is there") for @$provided{qw(file docfile)};

#
# The same majors, everywhere.
#
my ($majors) = file('scripts/common.sh') =~ /^dw_majors="(.*)"$/m;
my ($oldest, $newest) = (sort split ' ', $majors)[0, -1];
my $named = qr/PostgreSQL $oldest to $newest\b/;
like(file($_), $named, "$_ names all majors") for qw(README.md CHANGELOG.md SECURITY.md doc/install.md doc/architecture.md scripts/common.sh);
like(file('README.zh-CN.md'), qr/PostgreSQL $oldest 到 $newest /, 'the Chinese README names all majors');
is($meta->{prereqs}{runtime}{requires}{PostgreSQL}, ">= $oldest.0.0, < " . ($newest + 1) . '.0.0', 'META.json requires one of them');
is(join(' ', (file('test/majors/run') =~ /^all_targets="([\d ]+\d)\b/m)[0]), join(' ', sort split ' ', $majors), 'test/majors runs all of them');

#
# One version, everywhere.
#
my ($version) = file('delay_wheel.control') =~ /^default_version = '([\d.]+)'$/m;
like($version, qr/^\d+\.\d+$/, "the version is $version");
is($meta->{version}, "$version.0", 'META.json has it');
is($provided->{version}, "$version.0", 'and its extension');
is((file('Makefile') =~ /^SCRIPT = delay_wheel--([\d.]+)\.sql$/m)[0], $version, 'and the script that is built');
is((file('CHANGELOG.md') =~ /^## (\S+)/m)[0], $version, 'the changelog begins with it');
is((file('debian/changelog') =~ /\Adelay-wheel \((.*?)-\d+\) /)[0], $version, 'the changelog of the package begins with it');

is((file('CITATION.cff') =~ /^version: "(.*)"$/m)[0], $version, 'CITATION.cff has the version');

# each file of SQL is a part of it
my $script = file("delay_wheel--$version.sql");
is_deeply([ grep { index($script, slurp_file($_)) < 0 } glob("$root/src/*/*.sql") ], [], 'it has all files of SQL');

# Packagers run the SQL tests by "make installcheck".
my $node = new_node('packaging', conf => "autovacuum = off\n");
{
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port);

	is(system("make -s -C '$root' installcheck REGRESS=rights >&2"), 0, 'make installcheck runs a test')
	  or diag(slurp_file("$root/regression.diffs"));
}

# As Debian's packages do: with the settings of test/run, and a server that lets the tests' roles in
# without a password.
my %settings = file('test/regress.conf') =~ /^(\w+) = '?(.*?)'?$/mg;
delete $settings{log_line_prefix};
cmp_ok(scalar keys %settings, '>', 5, 'there are settings');
for my $name (qw(debian/rules debian/tests/installcheck))
{
	my $text = file($name);

	is(join(' ', grep { $text !~ /-o $_=\Q$settings{$_}\E\s/ } sort keys %settings), '', "$name has the settings of test/regress.conf");
	like($text, qr/-i --auth=trust\s/, 'and asks for no password');
}

#
# The licence is PostgreSQL's, in the package, too.
#
my $licence = file('LICENSE');
my $copyright = file('debian/copyright');
like($licence, qr/Permission to use, copy, modify, and distribute this software and its\s+documentation for any purpose, without fee, and without a written agreement/,
	'the licence is that of PostgreSQL');
s/^\s*\.?\s*$//mg, s/\s+/ /g for $licence, $copyright;
my ($words) = $licence =~ /(Permission to use.*\S)/;
ok(index($copyright, $words) >= 0, 'debian/copyright has it word for word');

#
# The documents of Debian's package: each link leads to a file that is in it, under that
# name.  (debian/copyright is put beside them by debhelper.)
#
my $installed = PostgreSQL::Test::Utils::tempdir() . '/postgresql-15-delay-wheel';
PostgreSQL::Test::Utils::system_or_bail("$root/debian/documents", $installed);
append_to_file("$installed/copyright", file('debian/copyright'));

my (@documents, @large);
find({
	no_chdir => 1,
	wanted => sub {
		push @documents, $_ if /\.md$/;
		push @large, $_ if -f && -s > 4096 && !m{^\Q$installed\E/examples/|\.(?:svg|png)$};
	}
}, $installed);
cmp_ok(scalar @documents, '>', 20, 'documents are in the package');
is(join("\n", map { s{^\Q$installed\E/}{}r } broken_links($_)), '', 'links of ' . s{^\Q$installed\E/}{}r) for sort @documents;

# dh_compress would add .gz to all that is large, but examples and pictures
my $rules = file('debian/rules');
my @excluded = $rules =~ /--exclude=(\S+)/g;
like($rules, qr{^\t+debian/documents }m, 'debian/rules puts them there');
is(join(' ', grep { my $path = $_; !grep { index($path, $_) >= 0 } @excluded } @large), '', 'and leaves their names as they are');

#
# The removal of the package warns of clusters that would not start any more.
#
SKIP:
{
	skip 'there is no pg_conftool (package postgresql-common)', 1 if system('command -v pg_conftool >/dev/null') != 0;

	my $etc = PostgreSQL::Test::Utils::tempdir();
	my $preload = 'shared_preload_libraries';

	# a cluster: its postgresql.conf, a file in conf.d, and what ALTER SYSTEM has written
	my $make = sub {
		my ($name, %files) = @_;
		my $cluster = "$etc/$name";

		system_or_bail('mkdir', '-p', "$cluster/conf.d", "$cluster/data");
		append_to_file("$cluster/postgresql.conf", "data_directory = '$cluster/data'\n" . ($files{conf} // '') . "\ninclude_dir = 'conf.d'\n");
		append_to_file("$cluster/conf.d/own.conf", $files{own}) if $files{own};
		append_to_file("$cluster/data/postgresql.auto.conf", $files{auto}) if $files{auto};
	};
	# what is said at removal, by cluster
	my $warnings = sub {
		my ($action, $clusters, $path) = @_;
		local %ENV = (%ENV, PG_CLUSTER_CONF_ROOT => $clusters, DPKG_MAINTSCRIPT_PACKAGE => 'postgresql-15-delay-wheel', PATH => $path // $ENV{PATH});
		my ($out, $err) = ('', '');

		ok(IPC::Run::run([ '/bin/sh', "$root/debian/prerm.in", $action ], '<', \undef, '>', \$out, '2>', \$err), "$action does not fail");
		is($out, '', "$action writes nothing to stdout");
		return { map { m{\A(\S+) has delay_wheel in shared_preload_libraries\.\n(.*)}s ? ($1 => $2) : ('?' => $_) } grep { $_ ne '' } split /^Warning: the PostgreSQL cluster /m, $err };
	};

	$make->('15/main', auto => "$preload = 'delay_wheel'\n");
	$make->('15/more', auto => "$preload = 'pg_stat_statements, delay_wheel, \"a b\"'\n", conf => "$preload = 'delay_wheel'");
	$make->('15/file', own => "$preload = '\$libdir/delay_wheel.so'\n");
	$make->('15/none', conf => "#$preload = 'delay_wheel'", own => "$preload = 'delay_wheel_more, auto_explain'\n");
	$make->('15/over', conf => "$preload = 'delay_wheel'", auto => "$preload = 'auto_explain'\n");
	$make->('15/lost', conf => "$preload = 'delay_wheel'");
	$make->('14/main', conf => "$preload = 'delay_wheel'");
	rmdir "$etc/15/lost/data" or die $!;
	# directories of others, a cluster that is no more, a file that is none
	mkdir "$etc/15/gone" or die $!;
	chmod 0, "$etc/15/none/data" or die $!;

	my $said = $warnings->('remove', $etc);
	is(join(' ', sort keys %$said), '15/file 15/lost 15/main 15/more', 'those that preload it are named, and no others');
	like($said->{'15/main'}, qr/^  sudo -u postgres psql --cluster 15\/main -c "ALTER SYSTEM RESET $preload"\nThen restart/m, 'with the way out');
	like($said->{'15/more'}, qr/-c "ALTER SYSTEM SET $preload = 'pg_stat_statements', 'a b'"$/m, 'other libraries stay');
	like($said->{'15/more'}, qr{^  take delay_wheel out of $preload in \Q$etc\E/15/more/postgresql\.conf$}m, 'and the file is named where it would come back from');
	like($said->{'15/file'}, qr{^  take delay_wheel out of $preload in \Q$etc\E/15/file/conf\.d/own\.conf\nThen}m, 'or where it is');
	is_deeply($warnings->($_, $etc), {}, "$_: no warning") for qw(upgrade deconfigure failed-upgrade);
	is_deeply($warnings->('remove', "$etc/nothing"), {}, 'without clusters there is nothing to warn of');
	# the rest of what it calls is there
	my $bin = PostgreSQL::Test::Utils::tempdir();
	for my $program (qw(tr sed grep paste cat))
	{
		my ($path) = grep { -x } map { "$_/$program" } '/usr/bin', '/bin';
		symlink $path, "$bin/$program" or die $!;
	}
	is_deeply($warnings->('remove', $etc, $bin), {}, 'no warning without postgresql-common');
	chmod 0700, "$etc/15/none/data" or die $!;
}
like($rules, qr{^\t+cp debian/prerm\.in debian/\$\$package\.prerm }m, 'debian/rules makes it part of each package');

#
# "make dist", in a repository of its own: this may be a copy of the tree without one.
#
SKIP:
{
	my ($programs) = grep { system("command -v $_ >/dev/null") != 0 } qw(git unzip);
	skip "there is no $programs", 1 if $programs;

	my $place = PostgreSQL::Test::Utils::tempdir();
	my $name = "$meta->{name}-$meta->{version}";
	my $git = "git -C '$place/tree' -c user.name=test -c user.email=test\@test.invalid";

	mkdir "$place/tree" or die $!;
	# what was built here is of no commit
	system("tar -C '$root' --exclude=./.git --exclude=./build --exclude='./delay_wheel*' --exclude='*.o' --exclude=./test/tmp_check -cf - . | tar -C '$place/tree' -xf -") == 0
	  or die 'could not copy the tree';
	system_or_bail('cp', "$root/delay_wheel.control", "$place/tree/");
	system("git init -q '$place/tree' && $git add --all && $git commit -q -m one") == 0 or die 'no repository';
	append_to_file("$place/tree/stray", 'not committed');
	system_or_bail('make', '-s', '-C', "$place/tree", 'dist');
	system_or_bail('unzip', '-q', "$place/tree/build/$name.zip", '-d', $place);
	ok(-f "$place/$name/META.json", 'the distribution has META.json at its top');

	# with their modes
	my $list = q{find . -path ./.git -prune -o -type f -printf '%m %P\n' | LC_ALL=C sort};
	system_or_bail('git', 'clone', '-q', "$place/tree", "$place/clone");
	is(scalar qx(cd '$place/$name' && $list), scalar qx(cd '$place/clone' && $list), 'it has all files that were committed');
	is(scalar qx(diff -r --exclude=.git '$place/clone' '$place/$name'), '', 'as they were');

	# test/packages/run builds it; here make finds all that it would build
	is(system("make -n -C '$place/$name' all install >'$place/log' 2>&1"), 0, 'make has what it is built of') or diag(slurp_file("$place/log"));
	unlink "$place/$name/src/sql/rights.sql" or die $!;
	isnt(system("make -n -C '$place/$name' all install >'$place/log' 2>&1"), 0, 'make fails if a file is missing');
}

done_testing();
