# The reference (doc/reference.md, doc/reference/) has each function, parameter, option, view,
# column, setting, message, process and wait event of this very source and catalog, and no
# other; COMMENTs are short; doc/architecture.md and the README.md of each folder of src name
# what is there; doc/proof.md counts all mutations.

use strict;
use warnings;

use DelayWheel;
use File::Basename;
use PostgreSQL::Test::Utils;
use ReferenceErrors qw(read_rows differing);
use Test::More;

my $root = dirname(__FILE__) . '/../..';
my $node = new_node('reference');
my $longest_comment = 250;

sub rows { return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $_[0]) }

# What the extension has, by pg_depend.
$node->safe_psql('postgres', q{
	CREATE SCHEMA checks;
	CREATE FUNCTION checks.short(text) RETURNS text LANGUAGE sql AS
		$$SELECT replace(replace(regexp_replace($1, '( DEFAULT [^:,]*)::[^,]*', '\1', 'g'), 'timestamp with time zone', 'timestamptz'), 'delay_wheel_internal.', '')$$;
	CREATE VIEW checks.members AS
		SELECT d.classid, d.objid, e.extnamespace
		FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
		WHERE d.deptype = 'e' AND e.extname = 'delay_wheel';
	CREATE VIEW checks.functions AS
		SELECT p.oid, n.nspname, CASE WHEN n.oid = m.extnamespace THEN proname::text ELSE n.nspname || '.' || proname END AS name,
			checks.short(pg_get_function_arguments(p.oid)) AS args, checks.short(pg_get_function_result(p.oid)) AS result,
			ARRAY(SELECT a.name FROM unnest(proargnames, proargmodes) a(name, mode)
				WHERE COALESCE(mode, 'i') IN ('i', 'v') AND a.name <> '') AS parameters
		FROM checks.members m JOIN pg_proc p ON p.oid = m.objid JOIN pg_namespace n ON n.oid = pronamespace
		WHERE m.classid = 'pg_proc'::regclass;
	CREATE VIEW checks.comments AS
		SELECT pg_describe_object(classid, objid, 0) AS object, obj_description(objid, classid::regclass::name) AS comment
		FROM checks.members
		WHERE NOT (classid = 'pg_type'::regclass AND EXISTS (
			SELECT FROM pg_type t WHERE t.oid = objid AND (typrelid <> 0 OR typelem <> 0)))
		UNION ALL
		SELECT pg_describe_object(classid, objid, attnum), col_description(objid, attnum)
		FROM checks.members JOIN pg_class c ON c.oid = objid JOIN pg_attribute ON attrelid = objid
		WHERE classid = 'pg_class'::regclass AND relkind IN ('r', 'v', 'm', 'f') AND attnum > 0 AND NOT attisdropped;
});

sub lacking_comments
{
	return $node->safe_psql('postgres', "SELECT object || COALESCE(': ' || length(comment), '') FROM checks.comments
		WHERE comment IS NULL OR length(comment) > $longest_comment ORDER BY object COLLATE \"C\"");
}
is(lacking_comments(), '', "each object and column has a COMMENT, of $longest_comment characters at most");

#
# The pages: sections by their headings
#
my (%page_of, %text_of, @rows);

for my $file (sort glob "$root/doc/reference/*.md")
{
	my ($heading, $in_code) = ('', 0);
	push @rows, map { { %$_, page => basename($file) } } read_rows($file);
	for my $line (split /\n/, slurp_file($file))
	{
		$in_code = !$in_code if $line =~ /^```/;
		if (!$in_code && $line =~ /^##+ (.*)/)
		{
			$heading = $1;
			push @{ $page_of{$heading} }, basename($file);
		}
		$text_of{$heading} .= "$line\n";
	}
}

# The rows of the tables below a heading, or of a page, whose first column has this head: cells by heads.
sub table
{
	my ($where, $head) = @_;
	return map { $_->{cells} } grep { $_->{head} eq $head && ($_->{heading} eq $where || $_->{page} eq $where) } @rows;
}

# The names in backticks of a cell.
sub names { return $_[0] =~ /`([^`]+)`/g }

# A signature as it stands in a page: one line, or an argument a line.
sub squeezed { return $_[0] =~ s/\s+/ /gr =~ s/\( /(/gr =~ s/^ | $//gr }

sub wrong_functions
{
	my (@wrong, %signatures, %parameters);

	for (rows(q{SELECT name, args, COALESCE(result, ''), array_to_string(parameters, ',') FROM checks.functions
		WHERE nspname NOT IN ('delay_wheel_internal', 'delay_wheel_data')}))
	{
		my ($name, $args, $result, $parameters) = @$_;
		push @{ $signatures{$name} }, squeezed("$name($args)" . ($result eq '' ? '' : " returns $result"));
		$parameters{$name}{$_} = 1 for split /,/, $parameters;
	}
	for my $name (sort keys %signatures)
	{
		my $section = $text_of{$name} // (push(@wrong, "$name has no section"), next);
		push @wrong, "$name has several sections" if @{ $page_of{$name} } > 1;
		my @signatures = map { squeezed($_) } $section =~ /^```\n(\Q$name\E\(.*?)^```$/msg;
		push @wrong, differing($name, \@signatures, $signatures{$name}),
		  differing("the table of $name", [ map { names($_->{parameter}) } table($name, 'parameter') ], [ keys %{ $parameters{$name} } ]);
		push @wrong, "$name has no example" if $section !~ /^```sql$/m;
	}
	push @wrong, map { "$_ is no function" } grep { /^(?:delay_(?!wheel\b)\w+|delay_wheel\.\w+)$/ && !$signatures{$_} && $page_of{$_}[0] !~ /^(?:views|settings|errors)\.md$/ } sort keys %page_of;
	push @wrong, differing('administration.md',
		[ map { map { s/\(.*//sr =~ s/^delay_wheel_internal\.//r } names($_->{function}) } table('administration.md', 'function') ],
		[ map { $_->[0] =~ s/^delay_wheel_internal\.//r } rows(q{SELECT name FROM checks.functions WHERE nspname IN ('delay_wheel_internal', 'delay_wheel_data')}) ]);
	return @wrong;
}

sub wrong_options
{
	return differing('the table of options', [ map { (names($_->{option}))[0] . " $_->{type} of $_->{where}" } table('Options', 'option') ],
		[ map { "$_->[0] $_->[1] of $_->[2]" } rows(q{SELECT name, checks.short(type), array_to_string(given_to, ', ') FROM delay_wheel.options}) ]);
}

sub wrong_views
{
	my (@wrong, %columns);

	push @{ $columns{ $_->[0] } }, join(' | ', @$_[ 1 .. 3 ]) for rows(q{
		SELECT c.oid::regclass, attname, checks.short(format_type(atttypid, atttypmod)), replace(col_description(attrelid, attnum), '|', '\')
		FROM checks.members m JOIN pg_class c ON c.oid = m.objid JOIN pg_attribute ON attrelid = c.oid
		WHERE m.classid = 'pg_class'::regclass AND relkind IN ('v', 'm') AND relnamespace = 'delay_wheel'::regnamespace AND attnum > 0 AND NOT attisdropped
		ORDER BY c.oid, attnum});
	for my $view (sort keys %columns)
	{
		next if !$text_of{$view} && push @wrong, "$view has no section";
		my @have = map { join(' | ', names($_->{column}), $_->{type}, ($_->{meaning} // '') =~ s/\\([\\`*\[\]<|_])/$1/gr =~ s/\[([^\]]*)\]\([^)]*\)/$1/gr =~ s/`//gr =~ s/\|/\\/gr) } table($view, 'column');
		push @wrong, differing($view, \@have, [ map { s/`//gr } @{ $columns{$view} } ]);
	}
	my @tables = map { $_->[0] } rows(q{SELECT c.oid::regclass FROM checks.members m JOIN pg_class c ON c.oid = m.objid
		WHERE m.classid = 'pg_class'::regclass AND relkind IN ('r', 'S') AND relnamespace = 'delay_wheel_data'::regnamespace});
	my $views = slurp_file("$root/doc/reference/views.md");
	return (@wrong, map { "views.md lacks $_" } grep { my $short = s/.*\.//r; $views !~ /`(?:delay_wheel_data\.)?\Q$short\E`/ } @tables);
}

my %factors = (
	ms => [ [ 24 * 3600 * 1000, 'd' ], [ 3600 * 1000, 'h' ], [ 60 * 1000, 'min' ], [ 1000, 's' ] ],
	s => [ [ 24 * 3600, 'd' ], [ 3600, 'h' ], [ 60, 'min' ] ],
	min => [ [ 24 * 60, 'd' ], [ 60, 'h' ] ],
	kB => [ [ 1024 * 1024, 'GB' ], [ 1024, 'MB' ] ]);

# In the largest unit in which it is a whole number.
sub amount
{
	my ($value, $unit) = @_;

	return $value if $unit eq '' || $value <= 0;
	for my $factor (@{ $factors{$unit} })
	{
		return $value / $factor->[0] . $factor->[1] if $value % $factor->[0] == 0;
	}
	return "$value$unit";
}

sub wrong_settings
{
	my @wrong;
	my %change = (postmaster => 'restart', sighup => 'reload', superuser => 'superuser', user => 'session');
	my %row = map { (names($_->{setting}))[0] => $_ } table('settings.md', 'setting');
	# those of the tests' build have no place in a sample file
	my @settings = rows(q{SELECT name, boot_val, COALESCE(unit, ''), context FROM pg_settings
		WHERE name LIKE 'delay\_wheel.%' AND NOT 'NOT_IN_SAMPLE' = ANY (pg_settings_get_flags(name))});

	for (@settings)
	{
		my ($name, $default, $unit, $context) = @$_;
		push @wrong, "$name has no section" if !$text_of{$name};
		my $row = $row{$name} // $row{ $name =~ s/^delay_wheel\.//r } // (push(@wrong, "$name is not in the table"), next);
		$default = $default eq '' ? 'empty' : amount($default, $unit);
		push @wrong, "default of $name: $default" if ($row->{default} =~ s/[` ]//gr) ne $default =~ s/ //gr;
		push @wrong, "change of $name: $change{$context}" if $row->{change} !~ /\b$change{$context}/;
	}
	my %there = map { $_->[0] => 1 } @settings;
	return (@wrong, map { "there is no $_" } grep { !$there{$_} && !$there{"delay_wheel.$_"} } sort keys %row);
}

# The index has each section of a page.
sub not_in_index
{
	my $index = slurp_file("$root/doc/reference.md");
	my @objects = grep { /^(?:delay_|delay_wheel\.)\w+$/ } keys %page_of;
	my @lacking;
	for my $object (@objects)
	{
		my $anchor = lc $object =~ s/[^\w-]//gr;
		push @lacking, map { "$object of $_ is not in the index" } grep { $index !~ m{\(reference/\Q$_\E#\Q$anchor\E\)} } @{ $page_of{$object} };
	}
	return sort @lacking;
}

my %checks = (functions => \&wrong_functions, options => \&wrong_options, views => \&wrong_views, settings => \&wrong_settings,
	index => \&not_in_index, errors => sub { ReferenceErrors::wrong($root) });
is(join("\n", $checks{$_}->()), '', "the reference and the source agree: $_") for sort keys %checks;
cmp_ok(scalar(split /\n/, slurp_file("$root/doc/reference.md")), '<=', 80, 'the index is a page');

# The documents of the source name what is there: files, and functions and variables.
# The README.md of a folder names each of its .c files.
my @source_files = glob "$root/src/*/*.[ch]";
my $source = join '', map { slurp_file($_) } @source_files;
my %is_there = map { basename($_) => 1 } @source_files;
my %folders = map { dirname($_) => 1 } @source_files;
for my $document ("$root/doc/architecture.md", "$root/src/README.md", map { "$_/README.md" } sort keys %folders)
{
	my $short = $document =~ s,^\Q$root/,,r;
	my $text = -e $document ? slurp_file($document) : '';
	my @missing;

	for my $name ($text =~ /`([^`\n]+)`/g)
	{
		push @missing, $name if $name =~ m{^(?:test|sql|expected|examples|scripts|doc)(?:/[\w.]+)+$} && !-e "$root/$name";
		push @missing, grep { !$is_there{$_} } $name =~ m{(?<![\w/.])(\w+\.[ch])\b}g;
		push @missing, grep { $source !~ /\b\Q$_\E\b/ } $name =~ /\b((?:dw_|Dw|DW_)\w+)/g;
	}
	is(join("\n", @missing), '', "all that $short names is there");

	my @not_named = grep { index($text, "`$_`") < 0 } map { basename($_) } glob dirname($document) . '/*.c';
	is("@not_named", '', "$short names each file") if $folders{ dirname($document) };
	cmp_ok(length $text, '<=', 10_000, "$short is a page") if $short =~ m,^src/,;
}

cmp_ok(scalar(split /\n/, slurp_file("$root/doc/architecture.md")), '<=', 300, 'doc/architecture.md is a map');

# What proof.md counts is as many.
my ($rules) = slurp_file("$root/doc/proof.md") =~ /^\| rules of \|(.*?)\n\n/ms or die 'no table of mutations';
my $counted = 0;
$counted += $_ for $rules =~ /\| (\d+) \|/g;
my ($list) = run_command([ 'perl', "$root/test/mutations/run", '--list' ]);
is($counted, scalar(split /\n/, $list),
	'the table "rules of" in proof.md has all that test/mutations/run has');

# These checks notice what is taken away, and what is there beside.
$node->safe_psql('postgres', q{
	COMMENT ON COLUMN delay_wheel.tasks.due IS NULL;
	COMMENT ON FUNCTION delay_retry(bigint) IS NULL;
	CREATE FUNCTION delay_wheel.quietly(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT 1';
	ALTER EXTENSION delay_wheel ADD FUNCTION delay_wheel.quietly(int, int);
	COMMENT ON FUNCTION delay_wheel.quietly(int, int) IS 'a and b';
	ALTER EXTENSION delay_wheel DROP FUNCTION delay_snooze(interval);
});
is(lacking_comments(), "column due of view delay_wheel.tasks\nfunction delay_retry(bigint)", 'a lacking COMMENT is found');
is(join("\n", wrong_functions()), "delay_wheel.quietly has no section\ndelay_snooze is no function", 'an additional function and a lacking one are found');
like(join("\n", wrong_views()), qr/^delay_wheel.tasks lacks due \| timestamptz \| $/m, 'and a column whose COMMENT is another one');

$node->stop;

# The library takes as much shared memory as the documents have (PostgreSQL rounds both sizes up).
my ($with, $without) = map {
	my ($size, $error) = run_command([ 'postgres', '-D', $node->data_dir, '-c', "shared_preload_libraries=$_", '-C', 'shared_memory_size' ]);
	$size || die $error } 'delay_wheel', '';
for my $file (qw(README.md README.zh-CN.md doc/README.md doc/dba.md doc/scaling.md doc/promises.md))
{
	my ($size) = slurp_file("$root/$file") =~ /(\d+) MB (?:of shared memory|with the default settings, for any|by default \(|\xe5\x85\xb1\xe4\xba\xab)/;

	cmp_ok(abs(($size // 0) - ($with - $without)), '<=', 1, "$file: " . ($size // 'no') . ' MB of shared memory');
}

done_testing();
