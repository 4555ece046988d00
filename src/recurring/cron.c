/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  Cron schedules: turns their text into sets of values, and computes the next time in a time
 *	  zone.
 *
 * Run by sessions, executors and the sweeper.  The functions here use neither the clock
 * nor a catalog, and raise no error.
 *
 * There are two kinds of schedule, as in Vixie's cron: with fixed hours, and for any hour (the
 * field "hour" begins with *).  README.md describes which times are due if local clocks are set
 * forward or back.
 *
 * This file counts in seconds.  Instants are counted from the Unix epoch.  Local times are also
 * counted from the epoch, as if the clock showed UTC.  The offset is local time minus UTC.
 * pg_next_dst_boundary() reads a time zone as a sequence of spans with one offset each.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "mb/pg_wchar.h"
#include "port/pg_bitutils.h"
#include "utils/datetime.h"

#include "recurring.h"

#define DAYS_PER_WEEK	7
#define EPOCH_DIFF		((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (int64) SECS_PER_DAY)

/*
 * Period of the Gregorian calendar, weekdays included, in seconds: 400 years.  A schedule without a
 * match in one period has no match.
 */
#define CALENDAR_CYCLE	(INT64CONST(146097) * SECS_PER_DAY)

/* Limit of the offset of a time zone, in seconds.  POSIX time zones allow up to 167 hours. */
#define MAX_OFFSET		(INT64CONST(7) * SECS_PER_DAY)

/*---- Reading a schedule ----*/

/* The fields of a schedule, in their order.  The field "second" may be left out. */
typedef enum FieldNumber
{
	SECOND_FIELD,
	MINUTE_FIELD,
	HOUR_FIELD,
	DAY_FIELD,
	MONTH_FIELD,
	WEEKDAY_FIELD,
	NFIELDS
} FieldNumber;

typedef struct Field
{
	const char *name;
	int			min;
	int			max;
	int			cycle;			/* number of different values; the first value follows the last */
	const char *names;			/* three-letter names of the values from min on, or "" */
	const char *hint;			/* errhint() for a wrong value */
} Field;

static const Field fields[NFIELDS] = {
	{"second", 0, 59, 60, "", "Seconds are 0 to 59."},
	{"minute", 0, 59, 60, "", "Minutes are 0 to 59."},
	{"hour", 0, 23, 24, "", "Hours are 0 to 23."},
	{"day of month", 1, 31, 31, "", "Days of the month are 1 to 31, and L is the last day."},
	{"month", 1, 12, 12, "janfebmaraprmayjunjulaugsepoctnovdec", "Months are 1 to 12, or jan to dec."},
	{"day of week", 0, 7, 7, "sunmontuewedthufrisat",
	"Days of the week are 0 to 7, or sun to sat. 0 and 7 are Sunday, friL is the last Friday of a month, and fri#2 is the second Friday."}
};

/* Words that stand for a whole schedule. */
static const struct
{
	const char *word;
	const char *fields;			/* the schedule that the word means */
}			abbreviations[] = {
	{"@hourly", "0 * * * *"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@weekly", "0 0 * * 0"},
	{"@monthly", "0 0 1 * *"},
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"}
};

/*
 * State of the reader.  A field is a list of elements, separated by commas.  The read_*() functions
 * consume text of the element.  After an error, they set problem and hint, and return false.
 */
typedef struct Reader
{
	const Field *field;			/* the current field */
	const char *element;		/* begin of the current element */
	const char *at;				/* the next character of the element */
	const char *end;			/* end of the element */
	const char *problem;		/* errdetail() of the error */
	const char *hint;			/* errhint() of the error */
} Reader;

/* Notes an error.  Returns false, which the caller can return. */
static bool
fail(Reader *reader, const char *problem, const char *hint)
{
	reader->problem = problem;
	reader->hint = hint;
	return false;
}

/* Notes that the current element has a wrong form.  Returns false. */
static bool
not_understood(Reader *reader)
{
	int			length = reader->end - reader->element;

	if (length == 0)
		return fail(reader, psprintf("Field \"%s\" has an empty element.", reader->field->name),
					"Elements of a list are separated by single commas.");
	return fail(reader,
				psprintf("\"%.*s\" is not understood as \"%s\".",
						 pg_mbcliplen(reader->element, length, 60), reader->element, reader->field->name),
				psprintf("Write *, a value, or a range such as 2-4, each with a step such as /2 or without. %s", reader->field->hint));
}

/* Notes that a value is too small or too large for the current field.  Returns false. */
static bool
out_of_range(Reader *reader, const char *what, int value)
{
	return fail(reader, psprintf("%s %d is out of range for \"%s\".", what, value, reader->field->name),
				reader->field->hint);
}

/*
 * If the next character of the element is c (a lower-case letter), in upper or lower case, moves
 * the reader after it, and returns true.
 */
static bool
take_char(Reader *reader, char c)
{
	if (reader->at == reader->end || pg_tolower((unsigned char) *reader->at) != c)
		return false;
	reader->at++;
	return true;
}

/*
 * Reads an unsigned number.  Returns false, without noting an error, if there is no digit.  Stops
 * at 1000, before the number overflows: no field has such a value.
 */
static bool
read_cron_number(Reader *reader, int *value)
{
	const char *begin = reader->at;

	*value = 0;
	while (reader->at < reader->end && isdigit((unsigned char) *reader->at) && *value < 1000)
		*value = *value * 10 + (*reader->at++ - '0');
	return reader->at > begin;
}

/*
 * Reads a number, or the name of a value such as "mon".  Returns false, without noting an error, if
 * the text is not a number or a name.
 */
static bool
read_value(Reader *reader, int *value)
{
	const Field *field = reader->field;

	if (reader->end - reader->at >= 3)
		for (int i = 0; field->names[i * 3] != '\0'; i++)
			if (pg_strncasecmp(reader->at, field->names + i * 3, 3) == 0)
			{
				reader->at += 3;
				*value = field->min + i;
				return true;
			}
	return read_cron_number(reader, value);
}

/*
 * Returns the set of values from first to last in steps.  If last is less than first, the range
 * continues from the lowest value: in the field "hour", 22-2 is 22, 23, 0, 1, 2.
 */
static uint64
range_of(const Field *field, int first, int last, int step)
{
	uint64		set = 0;

	if (last < first)
	{
		first = (first - field->min) % field->cycle + field->min;
		if (last < first)
			last += field->cycle;
	}
	for (int value = first; value <= last; value += step)
		set |= UINT64CONST(1) << ((value - field->min) % field->cycle + field->min);
	return set;
}

/*
 * Reads the text after a weekday: L (the last such weekday of a month), or # and a number n (the
 * n-th such weekday of a month).
 */
static bool
read_which_weekday(Reader *reader, int weekday, DwCron *cron)
{
	int			nth;

	if (weekday > reader->field->max)
		return out_of_range(reader, "Value", weekday);
	weekday %= DAYS_PER_WEEK;
	if (take_char(reader, 'l'))
		cron->last_weekdays |= 1 << weekday;
	else
	{
		reader->at++;
		if (!read_cron_number(reader, &nth))
			return not_understood(reader);
		if (nth < 1 || nth > lengthof(cron->nth_weekdays))
			return out_of_range(reader, "Number", nth);
		cron->nth_weekdays[nth - 1] |= 1 << weekday;
	}
	return reader->at == reader->end || not_understood(reader);
}

/*
 * Reads one element of a field and adds its values to the set, or to the sets of *cron for L and #.
 */
static bool
read_element(Reader *reader, DwCron *cron, uint64 *set)
{
	const Field *field = reader->field;
	int			first = field->min;
	int			last = field->max;
	int			step = 1;

	if (field == &fields[DAY_FIELD] && take_char(reader, 'l'))
	{
		cron->last_day = true;
		return reader->at == reader->end || not_understood(reader);
	}
	if (!take_char(reader, '*'))
	{
		if (!read_value(reader, &first))
			return not_understood(reader);
		if (field == &fields[WEEKDAY_FIELD] && reader->at < reader->end && strchr("lL#", *reader->at))
			return read_which_weekday(reader, first, cron);
		if (take_char(reader, '-'))
		{
			if (!read_value(reader, &last))
				return not_understood(reader);
		}
		else if (reader->at == reader->end || *reader->at != '/')
			last = first;
	}
	if (take_char(reader, '/') && !read_cron_number(reader, &step))
		return not_understood(reader);
	if (reader->at < reader->end)
		return not_understood(reader);

	if (first < field->min || first > field->max)
		return out_of_range(reader, "Value", first);
	if (last < field->min || last > field->max)
		return out_of_range(reader, "Value", last);
	if (step < 1 || step > field->cycle)
		return fail(reader, psprintf("Step %d is out of range for \"%s\".", step, field->name),
					psprintf("Steps are 1 to %d. They start again with each cycle of the field.", field->cycle));
	*set |= range_of(field, first, last, step);
	return true;
}

/* Reads a field, the given text, into a set of values. */
static bool
read_field(Reader *reader, const char *text, DwCron *cron, uint64 *set)
{
	*set = 0;
	for (;;)
	{
		const char *comma = strchr(text, ',');

		reader->element = reader->at = text;
		reader->end = comma ? comma : text + strlen(text);
		if (!read_element(reader, cron, set))
			return false;
		if (comma == NULL)
			return true;
		text = comma + 1;
	}
}

/* Splits a text at blanks.  Returns the number of words, and the first max words. */
static int
split(const char *text, const char **words, int max)
{
	static const char blanks[] = " \t\n\r\f\v";
	char	   *rest;
	int			n = 0;

	for (char *word = strtok_r(pstrdup(text), blanks, &rest); word != NULL;
		 word = strtok_r(NULL, blanks, &rest))
	{
		if (n < max)
			words[n] = word;
		n++;
	}
	return n;
}

/* Returns the schedule for an abbreviation such as @daily; NULL if the word is no abbreviation. */
static const char *
abbreviated(const char *word)
{
	for (int i = 0; i < lengthof(abbreviations); i++)
		if (pg_strcasecmp(abbreviations[i].word, word) == 0)
			return abbreviations[i].fields;
	return NULL;
}

/* Notes that a word with @ is no abbreviation.  Returns false. */
static bool
wrong_word(Reader *reader, const char *word)
{
	if (pg_strcasecmp(word, "@reboot") == 0)
		return fail(reader, "\"@reboot\" is not a time.",
					"A schedule consists of times. Recurring tasks stay after a restart.");
	return fail(reader,
				psprintf("\"%.*s\" is not known.", pg_mbcliplen(word, strlen(word), 60), word),
				"There are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually.");
}

/* Reads a whole schedule. */
static bool
read_schedule(Reader *reader, const char *text, DwCron *cron)
{
	const char *words[NFIELDS];
	uint64		sets[NFIELDS] = {1};	/* second 0, if there is no such field */
	int			n;
	int			first;

	if (strlen(text) > DW_MAX_CRON)
		return fail(reader, psprintf("The schedule is longer than %d bytes.", DW_MAX_CRON),
					"Use ranges and steps to shorten the schedule.");
	n = split(text, words, lengthof(words));
	if (n == 1 && words[0][0] == '@')
	{
		text = abbreviated(words[0]);
		if (text == NULL)
			return wrong_word(reader, words[0]);
		n = split(text, words, lengthof(words));
	}
	if (n != NFIELDS && n != NFIELDS - 1)
		return fail(reader,
					n == 1 ? "The schedule has 1 field." : psprintf("The schedule has %d fields.", n),
					"A schedule has five fields: minute, hour, day of month, month and day of week. A field for the second can precede them.");
	first = NFIELDS - n;
	for (int i = 0; i < n; i++)
	{
		reader->field = &fields[first + i];
		if (!read_field(reader, words[i], cron, &sets[first + i]))
			return false;
	}
	cron->seconds = sets[SECOND_FIELD];
	cron->minutes = sets[MINUTE_FIELD];
	cron->hours = (uint32) sets[HOUR_FIELD];
	cron->days = (uint32) sets[DAY_FIELD];
	cron->months = (uint16) sets[MONTH_FIELD];
	cron->weekdays = (uint8) sets[WEEKDAY_FIELD];
	/* as in Vixie's cron, a field that begins with * counts as *, even with a step */
	cron->any_hour = *words[HOUR_FIELD - first] == '*';
	cron->both_days = *words[DAY_FIELD - first] == '*' || *words[WEEKDAY_FIELD - first] == '*';
	return true;
}

/*
 * Reads a schedule from its text.  Returns false if the text is not a schedule.  Then sets *problem
 * to a sentence with the reason, for errdetail(), and *hint to a sentence for errhint().  The
 * sentences are static or in the current memory context.
 */
bool
dw_cron_parse(const char *text, DwCron *cron, const char **problem, const char **hint)
{
	Reader		reader = {0};

	memset(cron, 0, sizeof(DwCron));
	if (read_schedule(&reader, text, cron))
		return true;
	*problem = reader.problem;
	*hint = reader.hint;
	return false;
}

/*---- The calendar ----*/

/* Returns the lowest value of a set that is not less than `from`; -1 if there is none. */
static int
next_value(uint64 set, int from)
{
	if (from > 63 || set >> from == 0)
		return -1;
	return from + pg_rightmost_one_pos64(set >> from);
}

/*
 * Returns the first matching time of a day that is not before `from`; -1 if there is none.  `from`
 * and the result are seconds since midnight.
 */
static int
next_time_of_day(const DwCron *cron, int from)
{
	int			from_hour = from / SECS_PER_HOUR;
	int			from_minute = from / SECS_PER_MINUTE % MINS_PER_HOUR;
	int			second = next_value(cron->seconds, from % SECS_PER_MINUTE);
	int			minute = next_value(cron->minutes, from_minute + (second < 0));
	int			hour = next_value(cron->hours, from_hour + (minute < 0));

	if (hour < 0)
		return -1;
	if (hour > from_hour)
		minute = next_value(cron->minutes, 0);
	if (hour > from_hour || minute > from_minute)
		second = next_value(cron->seconds, 0);
	return (hour * MINS_PER_HOUR + minute) * SECS_PER_MINUTE + second;
}

/*
 * Returns a set of days among seven consecutive days: bit n is set if the n-th day, counted from 0,
 * is one of the given weekdays.  The first day is a `weekday`.
 */
static uint64
week_from(int weekday, uint8 weekdays)
{
	return ((weekdays | weekdays << DAYS_PER_WEEK) >> weekday) & 0x7f;
}

/*
 * Returns the set of matching days of a month.  Bit 1 is the first day, and `first` is its Julian
 * day number.
 */
static uint32
days_of_month(const DwCron *cron, int year, int month, int first)
{
	int			length = day_tab[isleap(year)][month - 1];
	int			last_week = length - DAYS_PER_WEEK; /* days before the last seven days */
	uint64		all = ((UINT64CONST(1) << length) - 1) << 1;
	uint64		by_date = cron->days;
	uint64		by_weekday;

	if (cron->last_day)
		by_date |= UINT64CONST(1) << length;
	by_weekday = week_from(j2day(first + last_week), cron->last_weekdays) << last_week;
	for (int week = 0; week < lengthof(cron->nth_weekdays); week++)
		by_weekday |= week_from(j2day(first), cron->weekdays | cron->nth_weekdays[week]) << (week * DAYS_PER_WEEK);
	by_weekday <<= 1;			/* days count from 1 */
	return (uint32) (all & (cron->both_days ? by_date & by_weekday : by_date | by_weekday));
}

/*
 * Finds the first matching local time that is not before `from` and is before `before`.  Returns
 * false if there is none.
 */
static bool
next_match(const DwCron *cron, int64 from, int64 before, int64 *match)
{
	int64		julian = from / SECS_PER_DAY + UNIX_EPOCH_JDATE;
	int			second = from % SECS_PER_DAY;
	int			year;
	int			month;
	int			day;

	if (second < 0)
	{
		second += SECS_PER_DAY;
		julian--;
	}
	if (julian < 0)				/* happens near the lowest timestamp */
		julian = second = 0;
	j2date((int) julian, &year, &month, &day);
	for (;; day = 0)
	{
		int			first = date2j(year, month, 1);
		int64		begin = ((int64) first - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
		uint64		days = 0;

		if (begin >= before)
			return false;
		if (cron->months & (1 << month))
			days = days_of_month(cron, year, month, first);
		for (int d = next_value(days, day); d >= 0; d = next_value(days, d + 1))
		{
			int			time = next_time_of_day(cron, d == day ? second : 0);

			if (time < 0)
				continue;
			*match = begin + (int64) (d - 1) * SECS_PER_DAY + time;
			return *match < before;
		}
		if (++month > MONTHS_PER_YEAR)
		{
			month = 1;
			year++;
		}
	}
}

/*---- Time zones ----*/

/*
 * Sets *offset to the offset of a time zone at instant t, and *until to the end of this offset;
 * PG_INT64_MAX: no end.
 */
static void
offset_at(pg_tz *zone, pg_time_t t, int64 *offset, pg_time_t *until)
{
	long int	before = 0;
	long int	after;
	int			dst;
	pg_time_t	boundary = t;
	int			found;

	found = pg_next_dst_boundary(&t, &before, &dst, &boundary, &after, &dst, zone);
	if (found == 0)
	{
		/*
		 * Exactly at the last change in the zone's table, pg_next_dst_boundary() wrongly finds no
		 * next change.  One second later, its result is right.
		 */
		pg_time_t	later = t + 1;

		found = pg_next_dst_boundary(&later, &before, &dst, &boundary, &after, &dst, zone);
	}
	*offset = before;
	*until = found > 0 && boundary > t ? boundary : PG_INT64_MAX;
}

/*
 * Returns the first local time that the clock has not reached up to the given instant.
 *
 * Before it was set back, the clock may have shown a later time than now.  The spans of the last
 * two weeks are enough, since offsets are less than a week.
 */
static int64
not_shown_until(pg_tz *zone, pg_time_t instant)
{
	int64		shown = PG_INT64_MIN;
	pg_time_t	t = instant - 2 * MAX_OFFSET;

	for (;;)
	{
		int64		offset;
		pg_time_t	until;

		offset_at(zone, t, &offset, &until);
		if (until > instant)
			return Max(shown, instant + offset + 1);
		shown = Max(shown, until + offset);
		t = until;
	}
}

/*
 * Returns the first instant, not before t, at which the clock shows the given local time or a later
 * time.
 */
static pg_time_t
first_shown(pg_tz *zone, int64 local, pg_time_t t)
{
	for (;;)
	{
		int64		offset;
		pg_time_t	until;

		offset_at(zone, t, &offset, &until);
		if (Max(t, local - offset) < until)
			return Max(t, local - offset);
		t = until;
	}
}

/*
 * Finds the first instant after `after` at which a schedule with fixed hours is due.  Returns false
 * if there is no such instant.
 */
static bool
next_of_fixed_hours(const DwCron *cron, pg_tz *zone, pg_time_t after, pg_time_t *next)
{
	int64		from = not_shown_until(zone, after);
	int64		match;

	if (!next_match(cron, from, from + CALENDAR_CYCLE, &match))
		return false;
	*next = first_shown(zone, match, Max(after + 1, match - MAX_OFFSET));
	return true;
}

/*
 * Finds the first instant after `after` at which a schedule for any hour is due.  Returns false if
 * there is no such instant.  Searches the local times span by span.
 */
static bool
next_of_any_hour(const DwCron *cron, pg_tz *zone, pg_time_t after, pg_time_t *next)
{
	pg_time_t	end = after + CALENDAR_CYCLE;

	for (pg_time_t t = after + 1; t < end;)
	{
		int64		offset;
		pg_time_t	until;
		int64		match;

		offset_at(zone, t, &offset, &until);
		until = Min(until, end);
		if (next_match(cron, t + offset, until + offset, &match))
		{
			*next = match - offset;
			return true;
		}
		t = until;
	}
	return false;
}

/*
 * Finds the first time after `after` when a schedule is due.  Returns false if there is none: no
 * date matches, the next date is beyond the range of timestamps, or `after` is infinite.
 */
bool
dw_cron_next(const DwCron *cron, pg_tz *zone, TimestampTz after, TimestampTz *next)
{
	pg_time_t	from;
	pg_time_t	t = 0;			/* for gcc at -O1 */

	if (TIMESTAMP_NOT_FINITE(after))
		return false;
	from = after / USECS_PER_SEC - (after % USECS_PER_SEC < 0) + EPOCH_DIFF;
	if (!(cron->any_hour ?
		  next_of_any_hour(cron, zone, from, &t) :
		  next_of_fixed_hours(cron, zone, from, &t)))
		return false;
	if (t - EPOCH_DIFF >= END_TIMESTAMP / USECS_PER_SEC)
		return false;
	*next = (t - EPOCH_DIFF) * USECS_PER_SEC;
	return true;
}
