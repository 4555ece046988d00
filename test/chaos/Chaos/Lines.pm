# Lines of name=value, separated by tabs: the format of journals and states.
# What is undefined is left out; a list of tokens is separated by commas.
package Chaos::Lines;

use strict;
use warnings;

sub encode
{
	my (%row) = @_;
	my @fields;

	for my $name (sort keys %row)
	{
		my $value = $row{$name} // next;
		$value =~ s/([\\\t\n])/{ "\\" => "\\\\", "\t" => "\\t", "\n" => "\\n" }->{$1}/ge;
		push @fields, "$name=$value";
	}
	return join("\t", @fields) . "\n";
}

# A line without its end is torn: nothing.
sub decode
{
	my ($line) = @_;
	my %row;

	$line =~ s/\n\z// or return;
	for my $field (split /\t/, $line)
	{
		my ($name, $value) = split /=/, $field, 2;
		$value =~ s/\\(.)/{ t => "\t", n => "\n", "\\" => "\\" }->{$1}/ge if index($value, '\\') >= 0;
		$row{$name} = $value;
	}
	return \%row;
}

sub read_file
{
	my ($file, $code) = @_;

	open(my $in, '<', $file) or die "cannot read $file: $!\n";
	while (my $line = <$in>)
	{
		my $row = decode($line) or next;
		$code->($row);
	}
	return;
}

1;
