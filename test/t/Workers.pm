# What the tests of workers need of this machine: node and Python with their packages, and what
# delay-wheel-http is built from.
#
#   DW_DRIVER_MODULES, DW_NODE_MODULES   directories in which node finds packages, see 945_drivers.pl

package Workers;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();

our @EXPORT = qw(works has_node node_modules_with link_node_modules has_python lacks_for_http);

# Does the command come to its end, without an error?
sub works { my @command = @_; return eval { IPC::Run::run(\@command, '<', \undef, '>', \my $out, '2>', \my $err) }; }

sub _node_modules
{
	return grep { -d } split /:/, join ':', grep { defined } @ENV{qw(DW_DRIVER_MODULES DW_NODE_MODULES)},
	  '/usr/share/nodejs', '/usr/lib/node_modules', '/usr/local/lib/node_modules';
}

# The first directory that has the package, or undef.
sub node_modules_with
{
	my ($package) = @_;
	my ($found) = grep { -d "$_/$package" } _node_modules();

	return $found;
}

# Is there node 20 or later, and all of these packages?
sub has_node
{
	my @packages = @_;

	return !(grep { !defined node_modules_with($_) } @packages) &&
	  works('node', '-e', 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)');
}

# node looks for packages beside a program, so they are linked there.
sub link_node_modules
{
	my ($directory) = @_;

	for my $modules (_node_modules())
	{
		symlink($_, "$directory/" . s{.*/}{}r) for glob "$modules/*";
	}
	return;
}

# Is there Python 3.11 or later with psycopg 3?
sub has_python { return works('/usr/bin/python3', '-c', 'import sys, psycopg; sys.exit(sys.version_info < (3, 11))'); }

# What is not there to build delay-wheel-http; '' if nothing is missing.
sub lacks_for_http { return works(qw(pkg-config --exists), 'libcurl >= 7.87', 'libpq', 'libcrypto') ? '' : 'libcurl 7.87, libpq and OpenSSL are not there to build with'; }

1;
