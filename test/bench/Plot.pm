# Line plots in SVG, by hand: readable on light and on dark pages, since they
# bring their own background, which follows the reader's preference where the
# program that shows them knows it.

package Plot;

use strict;
use warnings;

use List::Util qw(max min);
use POSIX qw(ceil floor);

my ($width, $height) = (760, 420);
my ($left, $right, $top, $bottom) = (92, 36, 76, 54);

# Colours that the colour-blind can tell, for light pages and for dark ones.
my @colors = ([ '#666666', '#a8a8a8' ], [ '#0063b2', '#56b4e9' ], [ '#c24e00', '#ff9e4a' ], [ '#007a5a', '#2fd39f' ], [ '#9c3f83', '#e79ad0' ]);

sub escape
{
	my ($text) = @_;

	$text =~ s/&/&amp;/g;
	$text =~ s/</&lt;/g;
	$text =~ s/>/&gt;/g;
	return $text;
}

sub style
{
	my $light = join ' ', map { ".c$_ { stroke: $colors[$_][0]; } .f$_ { fill: $colors[$_][0]; }" } 0 .. $#colors;
	my $dark = join ' ', map { ".c$_ { stroke: $colors[$_][1]; } .f$_ { fill: $colors[$_][1]; }" } 0 .. $#colors;

	return <<"END";
<style>
text { font-family: sans-serif; font-size: 13px; fill: #333333; }
.title { font-size: 15px; font-weight: bold; }
.page { fill: #ffffff; }
.grid { stroke: #dddddd; stroke-width: 1; }
.axis { stroke: #888888; stroke-width: 1; }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 7 5; }
$light
\@media (prefers-color-scheme: dark) {
text { fill: #dddddd; }
.page { fill: #16191d; }
.grid { stroke: #33383f; }
$dark
}
</style>
END
}

# Round numbers from below the least value to above the greatest.
sub ticks
{
	my ($from, $to) = @_;
	my $rough = ($to - $from) / 6 || 1;
	my $power = 10**floor(log($rough) / log(10));
	my ($step) = grep { $_ >= $rough * 0.999 } map { $_ * $power } 1, 2, 2.5, 5, 10;

	return map { $_ * $step } floor($from / $step + 1e-9) .. ceil($to / $step - 1e-9);
}

sub label
{
	my ($x) = @_;
	my $text = sprintf('%.4g', $x);

	$text = sprintf('%.0f', $x) if abs($x) >= 1000;
	1 while $text =~ s/^(-?\d+)(\d{3})/$1,$2/;
	return $text;
}

# Where a value is along an axis, from 0 to 1, and the marks of the axis.
sub axis
{
	my ($axis, @values) = @_;

	if ($axis->{categories})
	{
		my $last = $#{ $axis->{categories} } || 1;

		return (sub { return 0.06 + 0.88 * $_[0] / $last },
			map { [ $_, $axis->{categories}[$_] ] } 0 .. $#{ $axis->{categories} });
	}
	if ($axis->{log})
	{
		my $from = floor(log(min(@values)) / log(10) + 1e-9);
		my $to = max($from + 1, ceil(log(max(@values)) / log(10) - 1e-9));

		return (sub { return (log($_[0]) / log(10) - $from) / ($to - $from) }, map { [ 10**$_, label(10**$_) ] } $from .. $to);
	}
	my @ticks = ticks($axis->{from} // min(@values), $axis->{to} // max(@values));

	return (sub { return ($_[0] - $ticks[0]) / ($ticks[-1] - $ticks[0]) }, map { [ $_, label($_) ] } @ticks);
}

#
# title; x, y: { label, from, to, log, categories }; lines: a list of { name,
# points, color, style, marks }.
#
sub lines
{
	my (%plot) = @_;
	my @points = map { @{ $_->{points} } } @{ $plot{lines} };
	my ($x_place, @x_ticks) = axis($plot{x}, map { $_->[0] } @points);
	my ($y_place, @y_ticks) = axis($plot{y}, map { $_->[1] } @points);
	my $x = sub { return sprintf('%.1f', $left + $x_place->($_[0]) * ($width - $left - $right)) };
	my $y = sub { return sprintf('%.1f', $height - $bottom - $y_place->($_[0]) * ($height - $top - $bottom)) };
	my $svg = qq{<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" height="$height" role="img">\n}
	  . '<title>' . escape($plot{title}) . "</title>\n" . style()
	  . qq{<rect class="page" width="$width" height="$height" rx="8" fill="#ffffff"/>\n}
	  . qq{<text class="title" x="$left" y="26">} . escape($plot{title}) . "</text>\n";
	my ($x_end, $y_end) = ($width - $right, $height - $bottom);
	my $middle = ($left + $x_end) / 2;

	for my $tick (@x_ticks)
	{
		my $at = $x->($tick->[0]);
		$svg .= qq{<line class="grid" x1="$at" y1="$top" x2="$at" y2="$y_end"/>}
		  . qq{<text x="$at" y="} . ($y_end + 18) . qq{" text-anchor="middle">} . escape($tick->[1]) . "</text>\n";
	}
	for my $tick (@y_ticks)
	{
		my $at = $y->($tick->[0]);
		$svg .= qq{<line class="grid" x1="$left" y1="$at" x2="$x_end" y2="$at"/>}
		  . qq{<text x="} . ($left - 8) . qq{" y="} . ($at + 4) . qq{" text-anchor="end">} . escape($tick->[1]) . "</text>\n";
	}
	$svg .= qq{<line class="axis" x1="$left" y1="$y_end" x2="$x_end" y2="$y_end"/>}
	  . qq{<line class="axis" x1="$left" y1="$top" x2="$left" y2="$y_end"/>\n}
	  . qq{<text x="$middle" y="} . ($height - 12) . qq{" text-anchor="middle">} . escape($plot{x}{label}) . "</text>\n"
	  . qq{<text transform="translate(16 } . (($top + $y_end) / 2) . qq{) rotate(-90)" text-anchor="middle">}
	  . escape($plot{y}{label}) . "</text>\n";

	# the legend, above the plot, from left to right
	my ($legend_x, $legend_y) = ($left, 46);
	for my $line (@{ $plot{lines} })
	{
		my $class = "line c$line->{color}" . ($line->{style} ? " $line->{style}" : '');
		my $text_width = 34 + 7.1 * length $line->{name};

		($legend_x, $legend_y) = ($left, $legend_y + 18) if $legend_x + $text_width > $width && $legend_x > $left;
		$svg .= qq{<line class="$class" x1="$legend_x" y1="} . ($legend_y - 4) . qq{" x2="} . ($legend_x + 24) . qq{" y2="} . ($legend_y - 4) . '"/>'
		  . '<text x="' . ($legend_x + 29) . qq{" y="$legend_y">} . escape($line->{name}) . "</text>\n";
		$legend_x += $text_width + 8;

		$svg .= qq{<polyline class="$class" points="} . join(' ', map { $x->($_->[0]) . ',' . $y->($_->[1]) } @{ $line->{points} }) . qq{"/>\n};
		next unless $line->{marks};
		$svg .= qq{<circle class="f$line->{color}" cx="} . $x->($_->[0]) . '" cy="' . $y->($_->[1]) . qq{" r="3.5"/>\n} for @{ $line->{points} };
	}
	return "$svg</svg>\n";
}

1;
