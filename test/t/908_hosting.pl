# What the site that hosts the repository takes from the tree: the workflow, the forms for
# issues, and CITATION.cff.  It is read by its rules, as far as we use them; what a workflow
# or a form speaks of is there, and the SQL of the forms runs.

use strict;
use warnings;

use DelayWheel;
use Documents;
use File::Basename;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = dirname(__FILE__) . '/../..';
my ($python) = grep { system("$_ -c 'import yaml' 2>/dev/null") == 0 } qw(python3 /usr/bin/python3);
plan skip_all => 'there is no YAML for Python' if !$python;

# "on" is a truth value in YAML 1.1, by which this library reads, and true is no key in JSON.
my $to_json = 'import json, sys, yaml; print(json.dumps({str(k): v for k, v in yaml.safe_load(open(sys.argv[1])).items()}))';

sub yaml
{
	my ($path) = @_;
	my ($out, $err);

	IPC::Run::run([ $python, '-c', $to_json, "$root/$path" ], '>', \$out, '2>', \$err) or die "$path: $err";
	return decode_json($out);
}

# Keys beside these are wrong, and so is a missing one that does not end with "?".
sub problems_of_keys
{
	my ($where, $object, @keys) = @_;
	my %known = map { s/\?$//r => 1 } @keys;

	return "$where: not a set of keys" if ref $object ne 'HASH';
	return (
		map({ $known{$_} ? () : "$where: has $_" } sort keys %$object),
		map({ /\?$/ || exists $object->{$_} ? () : "$where: lacks $_" } @keys));
}

#
# The workflow.
#
sub problems_of_workflow
{
	my ($workflow) = @_;
	my @problems = problems_of_keys('workflow', $workflow, qw(name True permissions? concurrency? jobs));

	for my $name (sort keys %{ $workflow->{jobs} })
	{
		my $job = $workflow->{jobs}{$name};

		push @problems, problems_of_keys($name, $job, qw(name runs-on timeout-minutes strategy? container? env? steps));
		my @variants = $job->{strategy} ? @{ $job->{strategy}{matrix}{include} } : ({});
		for my $step (@{ $job->{steps} })
		{
			push @problems, problems_of_keys($name, $step, 'name?', 'if?', 'env?', $step->{uses} ? ('uses', 'with?') : 'run');
			push @problems, "$name: uses $step->{uses}" if $step->{uses} && $step->{uses} !~ m{^[\w-]+/[\w-]+\@v\d+$};
			push @problems, map { problems_of_command($name, $step, $_) } @variants if $step->{run};
		}
		my $text = encode_json($job);
		for my $key ($text =~ /\$\{\{ matrix\.(\w+) \}\}/g)
		{
			push @problems, "$name: matrix.$key is not set" if grep { !defined $_->{$key} } @variants;
		}
	}
	return @problems;
}

# What is run is a program of the tree, or a target of the Makefile, where it looks like one.
sub problems_of_command
{
	my ($name, $step, $variant) = @_;
	my $command = $step->{run} =~ s/\$\{\{ matrix\.(\w+) \}\}/$variant->{$1} \/\/ ''/ger;
	my @problems;

	push @problems, "$name: no shell command: $command" if !IPC::Run::run([ 'bash', '-n', '-c', $command ], '2>', \my $err);
	push @problems, map { -x "$root/$_" ? () : "$name: there is no $_" } $command =~ m{^\s*((?:\.ci|test|scripts)/[\w/]+)}mg;
	push @problems, map { slurp_file("$root/Makefile") =~ /^$_:/m ? () : "$name: no target $_" } $command =~ /^\s*make (\w+)/mg;
	return @problems;
}

my $path = '.github/workflows/tests.yml';
is(join("\n", problems_of_workflow(yaml($path))), '', "$path follows the rules");
my ($majors) = slurp_file("$root/scripts/common.sh") =~ /^dw_majors="(.*)"$/m;
is_deeply(
	[ map { $_->{command} eq 'make test' ? $_->{postgresql} : () } @{ yaml($path)->{jobs}{tests}{strategy}{matrix}{include} } ],
	[ sort split ' ', $majors ],
	'it tests all majors');

# The rules do refuse what is against them.
my %wrong = (
	'a job without a machine' => sub { delete $_[0]{jobs}{debian}{'runs-on'} },
	'a misspelt key' => sub { $_[0]{jobs}{debian}{'time-out'} = 5 },
	'a step that does nothing' => sub { delete $_[0]{jobs}{debian}{steps}[1]{run} },
	'an action without a version' => sub { $_[0]{jobs}{debian}{steps}[0]{uses} = 'actions/checkout' },
	'a program that is not there' => sub { $_[0]{jobs}{debian}{steps}[1]{run} = '.ci/walk' },
	'a target that is not there' => sub { $_[0]{jobs}{tests}{strategy}{matrix}{include}[0]{command} = 'make nothing' },
	'a shell command with a fault' => sub { $_[0]{jobs}{debian}{steps}[1]{run} = 'if true' },
	'a value that no variant has' => sub { $_[0]{jobs}{tests}{name} = '${{ matrix.title }}' });
for my $what (sort keys %wrong)
{
	my $other = yaml($path);

	$wrong{$what}->($other);
	isnt(join("\n", problems_of_workflow($other)), '', "$what is refused");
}

#
# Forms for issues.  Their SQL is run as a superuser; there is a row of each that it asks for.
#
my %attributes = (
	markdown => [qw(value)],
	textarea => [qw(label description? placeholder? value? render?)],
	input => [qw(label description? placeholder? value?)]);

sub problems_of_form
{
	my ($form) = @_;
	my @problems = problems_of_keys('form', $form, qw(name description title? labels? body));
	my %seen;

	for my $element (@{ $form->{body} })
	{
		my $type = $element->{type} // '';
		my $where = $element->{id} // $type;

		push @problems, "$where: of type $type" and next if !$attributes{$type};
		push @problems, problems_of_keys($where, $element, qw(type attributes), $type eq 'markdown' ? () : qw(id validations?));
		push @problems, problems_of_keys($where, $element->{attributes}, @{ $attributes{$type} });
		push @problems, "$where: not an id, or one that was there before" if $type ne 'markdown' && ($where !~ /^[\w-]+$/ || $seen{$where}++);
		push @problems, "$where: a label that was there before" if $seen{ 'label ' . ($element->{attributes}{label} // $where) }++;
	}
	push @problems, 'it asks for nothing' if !grep { $_->{type} ne 'markdown' } @{ $form->{body} };
	return @problems;
}

my $node = new_node('hosting');
my $statements = 0;
for my $file (glob("$root/.github/ISSUE_TEMPLATE/*.yml"))
{
	next if basename($file) eq 'config.yml';
	my $form = yaml($file =~ s{^\Q$root\E/}{}r);

	is(join("\n", problems_of_form($form)), '', basename($file) . ' follows the rules');
	for my $sql (map { $_->{type} eq 'markdown' ? $_->{attributes}{value} =~ /^```sql\n(.*?)^```/msg : () } @{ $form->{body} })
	{
		my ($code, $out, $err) = $node->psql('postgres', $sql);

		is("$code $err", '0 ', basename($file) . ': its SQL runs');
		like($out, qr/PostgreSQL \d.*\|1\.0\n.*^shared_preload_libraries\|.*delay_wheel.*^postgres\|/ms, basename($file) . ': and shows what is asked for');
		$statements++;
	}
}
cmp_ok($statements, '>', 0, 'SQL of forms was run');
isnt(join("\n", problems_of_form({ name => 'a', description => 'b', body => [ { type => 'text' } ] })), '', 'an unknown type is refused');
is(join("\n", problems_of_keys('config.yml', yaml('.github/ISSUE_TEMPLATE/config.yml'), qw(blank_issues_enabled contact_links?))), '', 'config.yml follows the rules');

#
# CITATION.cff, as version 1.2.0 of its format asks.  (269_packaging.pl compares its version.)
#
my $citation = yaml('CITATION.cff');
is(join("\n", problems_of_keys('CITATION.cff', $citation, qw(cff-version message title authors abstract? type? version? license? keywords?))), '', 'CITATION.cff follows the rules');
is($citation->{'cff-version'}, '1.2.0', '... of this version');
is($citation->{license}, 'PostgreSQL', '... with the licence by its name in SPDX');
ok(!ref $citation->{version}, '... and a version that is a text') or diag($citation->{version});

# Nobody who does not exist is named.
unlike(slurp_file("$root/SECURITY.md"), qr/\S\@\S/, 'SECURITY.md asks to write to no address');

done_testing();
