# Cron schedules: the next times are those that a look at each minute (or second)
# finds, for schedules made at random, around changes of the clock in many time
# zones; and no text, however wrong, does harm.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DelayWheel;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{DW_SEED} // time();
srand($seed);
diag("DW_SEED=$seed");
my $node = new_node('cron', conf => "autovacuum = off\njit = off\n", init => [ extra => ['--encoding=UTF8'] ]);

sub sql { return $node->safe_psql('postgres', "SET TimeZone = 'UTC'; SET seed = " . rand() . "; $_[0]"); }
sub any { return $_[ rand @_ ]; }
sub between { return $_[0] + int(rand($_[1] - $_[0] + 1)); }

#
# Schedules, and what they mean: a number for each field, of which bit n says that n
# is in the set.
#
my %names = (
	month => [ undef, qw(jan feb mar apr may jun jul aug sep oct nov dec) ],
	weekday => [qw(sun mon tue wed thu fri sat)]);
my %range = (second => [ 0, 59 ], minute => [ 0, 59 ], hour => [ 0, 23 ], day => [ 1, 31 ], month => [ 1, 12 ], weekday => [ 0, 6 ]);

sub bits
{
	my $set = 0;
	$set |= 1 << $_ for @_;
	return $set;
}

sub shown
{
	my ($field, $value) = @_;
	return $value if !$names{$field} || rand() < 0.5;
	return any($names{$field}[$value], uc $names{$field}[$value]);
}

sub element
{
	my ($field) = @_;
	my ($low, $high) = @{ $range{$field} };
	my @all = ($low .. $high);
	my $kind = rand();
	my $from = between($low, $high);
	my $to = between($low, $high);

	return (shown($field, $from), $from) if $kind < 0.5;
	return ('7', 0) if $field eq 'weekday' && $kind < 0.55;

	# the values from the one to the other, around the end if need be
	my @values = $kind < 0.6 ? @all : $from <= $to ? ($from .. $to) : ($from .. $high, $low .. $to);
	my $text = $kind < 0.6 ? '*' : shown($field, $from) . '-' . shown($field, $to);
	if (rand() < 0.4)
	{
		my $step = between(1, scalar @all);
		@values = @values[ grep { $_ % $step == 0 } 0 .. $#values ];
		$text .= "/$step";
	}
	return ($text, @values);
}

sub field
{
	my ($field, $star) = @_;
	my ($low, $high) = @{ $range{$field} };

	return ('*', bits($low .. $high)) if rand() < $star;
	return ('*/2', bits(grep { ($_ - $low) % 2 == 0 } $low .. $high)) if rand() < $star / 3;
	my (@texts, @values);
	for (1 .. any(1, 1, 1, 2, 3))
	{
		my ($text, @more) = element($field);
		push @texts, $text;
		push @values, @more;
	}
	return (join(',', @texts), bits(@values));
}

# day of week with friL and fri#2: weekdays, n-th ones (bit weekday + 7 * (n - 1)), last ones
sub weekday_field
{
	my ($text, $weekdays) = field('weekday', 0.6);
	my ($nth, $last) = (0, 0);

	return ($text, $weekdays, 0, 0) if rand() < 0.8;
	my @texts = rand() < 0.3 ? ($text) : ();
	$weekdays = 0 if !@texts;
	for (1 .. between(1, 3))
	{
		my $weekday = between(0, 6);
		if (rand() < 0.5)
		{
			$last |= 1 << $weekday;
			push @texts, shown('weekday', $weekday) . any('L', 'l');
		}
		else
		{
			my $n = between(1, 5);
			$nth |= 1 << $weekday + 7 * ($n - 1);
			push @texts, shown('weekday', $weekday) . "#$n";
		}
	}
	return (join(',', @texts), $weekdays, $nth, $last);
}

# A row of the table of schedules.
sub schedule
{
	my ($id, $unit) = @_;
	my ($second, $seconds) = $unit eq 'second' || rand() < 0.1 ? field('second', 0.3) : (undef, 1);
	my ($minute, $minutes) = field('minute', 0.3);
	my ($hour, $hours) = field('hour', 0.35);
	my ($day, $days) = field('day', 0.6);
	my ($month, $months) = field('month', 0.8);
	my ($weekday, $weekdays, $nth, $last) = weekday_field();
	my $last_day = rand() < 0.1 ? 'true' : 'false';

	if ($last_day eq 'true')
	{
		($day, $days) = rand() < 0.5 ? ('L', 0) : ("$day,L", $days);
	}
	# seconds other than 0 are not looked at by the minute
	($second, $seconds) = ('0', 1) if $unit eq 'minute' && defined $second;
	my $text = join(' ', grep { defined } $second, $minute, $hour, $day, $month, $weekday);
	my $any_hour = $hour =~ /^\*/ ? 'true' : 'false';
	my $both = $day =~ /^\*/ || $weekday =~ /^\*/ ? 'true' : 'false';
	return "($id, '$text', $seconds, $minutes, $hours, $days, $months, $weekdays, $nth, $last, $last_day, $any_hour, $both)";
}

#
# The definition.  clock has each instant of a window of time and what the clock
# shows.  shown has each local time with the instant at which it, or a later one,
# is shown for the first time.  Both with the bits to be looked for in sets.
#
sql(q{
	CREATE TABLE schedule (id int, text text, seconds bigint, minutes bigint, hours bigint, days bigint, months bigint,
		weekdays bigint, nths bigint, last bigint, last_days boolean, any_hour boolean, both_days boolean);
	CREATE TABLE outcome (zone text, center timestamptz, schedule text, start timestamptz, n bigint, agrees boolean);
	CREATE TABLE clock (t timestamptz, local timestamp,
		second bigint GENERATED ALWAYS AS (1::bigint << extract(second FROM local)::int) STORED,
		minute bigint GENERATED ALWAYS AS (1::bigint << extract(minute FROM local)::int) STORED,
		hour bigint GENERATED ALWAYS AS (1::bigint << extract(hour FROM local)::int) STORED,
		day bigint GENERATED ALWAYS AS (1::bigint << extract(day FROM local)::int) STORED,
		month bigint GENERATED ALWAYS AS (1::bigint << extract(month FROM local)::int) STORED,
		weekday bigint GENERATED ALWAYS AS (1::bigint << extract(dow FROM local)::int) STORED,
		nth bigint GENERATED ALWAYS AS (1::bigint << (extract(dow FROM local)::int + 7 * ((extract(day FROM local)::int - 1) / 7))) STORED,
		last_week boolean GENERATED ALWAYS AS (extract(month FROM local + interval '7 days') <> extract(month FROM local)) STORED,
		last_day boolean GENERATED ALWAYS AS (extract(month FROM local + interval '1 day') <> extract(month FROM local)) STORED);
	CREATE TABLE shown (LIKE clock INCLUDING GENERATED);

	CREATE FUNCTION make_clock(zone text, center timestamptz, unit interval, n int) RETURNS void LANGUAGE sql AS $$
		TRUNCATE clock, shown;
		INSERT INTO clock SELECT t, t AT TIME ZONE zone FROM generate_series(center - n * unit, center + n * unit, unit) t;
		-- what it had shown before: two days are more than it was ever put back
		INSERT INTO shown SELECT t, local FROM
			(SELECT t, greatest(max(local) OVER (ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), earlier) AS before, clock.local AS now
			FROM clock, (SELECT max(t AT TIME ZONE zone) AS earlier
				FROM generate_series(center - n * unit - interval '2 days', center - (n + 1) * unit, unit) t) e) c,
			generate_series(before + unit, now, unit) local;
	$$;
	CREATE FUNCTION compare(zone text, center timestamptz) RETURNS void LANGUAGE sql AS $$
		INSERT INTO outcome
		SELECT zone, center, s.text, start, cardinality(actual), actual IS NOT DISTINCT FROM expected
		FROM (SELECT max(t) AS ending FROM clock) e, schedule s,
			LATERAL (SELECT t + CASE WHEN random() < 0.3 THEN interval '1 microsecond' WHEN random() < 0.3 THEN - interval '1 microsecond' ELSE '0' END AS start
				FROM clock WHERE s.id IS NOT NULL ORDER BY random() LIMIT 1) f,
			LATERAL (SELECT ARRAY(SELECT t FROM delay_wheel.cron_times(s.text, zone, start, 1000) t WHERE t <= ending)) a(actual),
			LATERAL (SELECT ARRAY(SELECT DISTINCT t FROM
					(SELECT * FROM clock WHERE s.any_hour UNION ALL SELECT * FROM shown WHERE NOT s.any_hour) u
				WHERE t > start AND s.seconds & second <> 0 AND s.minutes & minute <> 0 AND s.hours & hour <> 0 AND s.months & month <> 0
					AND CASE WHEN s.both_days THEN (s.days & day <> 0 OR s.last_days AND last_day) AND (s.weekdays & weekday <> 0 OR s.nths & nth <> 0 OR last_week AND s.last & weekday <> 0)
						ELSE (s.days & day <> 0 OR s.last_days AND last_day) OR (s.weekdays & weekday <> 0 OR s.nths & nth <> 0 OR last_week AND s.last & weekday <> 0) END
				ORDER BY t LIMIT 1000)) b(expected);
	$$;
});

sub compare
{
	my ($zone, $center, $unit, $n, $count) = @_;
	my $schedules = join(",\n", map { schedule($_, $unit) } 1 .. $count);

	sql("TRUNCATE schedule; INSERT INTO schedule VALUES $schedules;
		SELECT make_clock('$zone', '$center', '1 $unit', $n); SELECT compare('$zone', '$center')");
	return;
}

sub all_agree
{
	my ($least, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is(sql('SELECT * FROM outcome WHERE NOT agrees LIMIT 5'), '', "$what: all as defined");
	cmp_ok(sql('SELECT sum(n) FROM outcome'), '>', $least, "$what: many times");
	sql('TRUNCATE outcome');
	return;
}

#
# Changes of all kinds: by an hour, by half of one, at midnight, without
# summer time, by a day
#
my @changes = (
	[ 'Europe/Berlin', '2024-03-31 01:00' ], [ 'Europe/Berlin', '2024-10-27 01:00' ], [ 'Europe/Berlin', '2038-03-28 01:00' ],
	[ 'America/New_York', '2024-03-10 07:00' ], [ 'America/New_York', '2024-11-03 06:00' ],
	[ 'Australia/Lord_Howe', '2024-10-05 15:30' ], [ 'Australia/Lord_Howe', '2024-04-06 15:00' ],
	[ 'America/Sao_Paulo', '2018-11-04 03:00' ], [ 'America/Sao_Paulo', '2018-02-18 02:00' ],
	[ 'Africa/Cairo', '2010-04-29 22:00' ], [ 'Africa/Cairo', '2010-08-10 21:00' ],
	[ 'Europe/Moscow', '2014-10-25 22:00' ], [ 'Pacific/Apia', '2011-12-30 10:00' ], [ 'Pacific/Kwajalein', '1993-08-21 12:00' ],
	[ 'UTC', '2024-02-29' ], [ 'UTC', '2100-03-01' ], [ 'CET-1CEST,M3.5.0,M10.5.0/3', '2450-03-27 01:00' ]);
compare($_->[0], "$_->[1] UTC", 'minute', 4 * 1440, long_tests() ? 200 : 20) for @changes;
all_agree(10000, 'known changes');

#
# Any zone, at a change in any year, if it has one
#
my @zones = split /\n/, sql(q{SELECT name FROM pg_timezone_names WHERE name !~ '^posix' ORDER BY name});
my $found = 0;
for (1 .. 1000)
{
	my $zone = any(@zones);
	my $year = between(1973, 2060);
	# to the minute; changes of whole minutes only, so that minutes can be looked at
	my $change = sql(qq{
		WITH o AS (SELECT t, (t AT TIME ZONE '$zone') - (t AT TIME ZONE 'UTC') AS o FROM generate_series('$year-01-01', '$year-12-31', interval '1 day') t),
		days AS (SELECT t, next FROM (SELECT t, o, lead(o) OVER (ORDER BY t) AS next FROM o) d WHERE o <> next AND extract(second FROM o) = 0
			AND extract(second FROM next) = 0 ORDER BY random() LIMIT 1)
		SELECT min(m) FROM days, generate_series(t, t + interval '1 day', '1 minute') m WHERE (m AT TIME ZONE '$zone') - (m AT TIME ZONE 'UTC') = next});
	next if $change eq '';
	compare($zone, $change, 'minute', 3 * 1440, 20);
	last if ++$found == (long_tests() ? 200 : 15);
}
all_agree(5000, 'changes at random');

#
# By the second, where changes are of seconds, too
#
compare($_->[0], "$_->[1] UTC", 'second', 7200, 20) for (
	[ 'Africa/Monrovia', '1972-01-07 00:44:30' ], [ 'Europe/Berlin', '2024-03-31 01:00' ], [ 'Europe/Berlin', '2024-10-27 01:00' ],
	[ 'Australia/Lord_Howe', '2024-04-06 15:00' ], [ 'America/New_York', '1883-11-18 17:00' ]);
all_agree(1000, 'by the second');

#
# Texts at random, also bytes, and schedules with something changed: either refused
# as they should be, or good for times that grow
#
sql(q{
	CREATE FUNCTION random_text() RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		pieces text[] := '{*,*,*,*/,0,1,5,7,12,23,29,31,59,60,-,-,/,",",",","\\\\",L,l,#,mon,FRI,sun,jan,Dec,@daily,@,?,W,é,99999999999,"\t"," "," "}';
		valid text[] := '{*/5 * * * *,0 0 29 2 *,30 2 * * *,0 0 L * *,0 0 * * friL,1-5 22-2 * nov-feb mon#1,*/10 * * * * *,@weekly,0 0 13 * fri,0 0 */2 * 1,0 0 31 feb *,*/5 * 30 2 *}';
		result text := '';
	BEGIN
		IF random() < 0.6 THEN
			result := valid[1 + floor(random() * cardinality(valid))];
			FOR i IN 1 .. floor(random() * 4) LOOP
				result := overlay(result PLACING CASE WHEN random() < 0.3 THEN '' ELSE pieces[1 + floor(random() * cardinality(pieces))] END
					FROM 1 + floor(random() * length(result))::int FOR floor(random() * 3)::int);
			END LOOP;
			RETURN result;
		END IF;
		FOR f IN 1 .. CASE WHEN random() < 0.8 THEN 5 + random() ELSE random() * 8 END LOOP
			FOR i IN 1 .. 1 + power(random(), 2) * 4 LOOP
				result := result || CASE WHEN random() < 0.02 THEN chr(1 + floor(random() * 300)::int) ELSE pieces[1 + floor(random() * cardinality(pieces))] END;
			END LOOP;
			result := result || ' ';
		END LOOP;
		RETURN result;
	END $$;
	CREATE FUNCTION fuzz(n int, OUT good int, OUT never int, OUT refused int) LANGUAGE plpgsql AS $$
	DECLARE
		zones text[] := '{UTC,Europe/Berlin,Australia/Lord_Howe,Pacific/Apia,America/Sao_Paulo,XXX-167,XXX+167}';
		text text;
		start timestamptz;
		times timestamptz[];
		detail text;
		hint text;
	BEGIN
		good := 0; never := 0; refused := 0;
		FOR i IN 1 .. n LOOP
			text := random_text();
			start := timestamptz '2000-01-01' + random() * interval '100 years';
			IF random() < 0.01 THEN
				start := CASE WHEN random() < 0.5 THEN timestamptz '4714-11-24 BC' + random() * interval '10 years' ELSE timestamptz '294276-12-31 23:59:59' - random() * interval '10 years' END;
			END IF;
			BEGIN
				times := ARRAY(SELECT delay_wheel.cron_times(text, zones[1 + floor(random() * cardinality(zones))], start, 3));
				IF times = '{}' THEN never := never + 1; ELSE good := good + 1; END IF;
				IF times[1] <= start OR times[2] <= times[1] OR times[3] <= times[2] OR date_trunc('second', times[1]) <> times[1] THEN
					RAISE EXCEPTION '% from %: %', text, start, times;
				END IF;
			EXCEPTION WHEN invalid_parameter_value THEN
				GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
				IF detail !~ '\.$' OR hint !~ '\.$' THEN
					RAISE EXCEPTION '%: % / %', text, detail, hint;
				END IF;
				refused := refused + 1;
			END;
		END LOOP;
	END $$;
});
my $fuzzed = long_tests() ? 2000000 : 200000;
my ($good, $never, $refused) = split /\|/, sql("SELECT * FROM fuzz($fuzzed)");
is($good + $never + $refused, $fuzzed, "$fuzzed texts: times, or errors that help");
cmp_ok($_, '>', 100, 'of each kind') for ($good, $never, $refused);

done_testing();
