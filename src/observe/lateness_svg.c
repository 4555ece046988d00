/*-------------------------------------------------------------------------
 *
 * lateness_svg.c
 *	  A picture of how late tasks were begun: a histogram, and the latest lanes.
 *
 * Run by backends, as the caller.  Both have one axis of time, on which each
 * step to the right is as much longer as the one before, so that microseconds
 * and days have their place; the axis of attempts is of this kind, too, since
 * the few that were very late are what one looks for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "../base/signature.h"
#include "svg.h"

PG_FUNCTION_INFO_V1(dw_lateness_svg);

#define WIDTH		780
#define PLOT_LEFT	270.0
#define PLOT_RIGHT	750.0
#define PLOT_TOP	130.0
#define PLOT_BOTTOM	290.0
#define LANES_TOP	360.0
#define LANE_STEP	24.0
#define MAX_LANES	12
#define MAX_RANGES	64
/* the axis shows at least this */
#define LEAST_FROM	64.0
#define LEAST_UNTIL	1.1e6
/* what is less is shown there */
#define SHORTEST	32.0

/* Times are microseconds. */
typedef struct Range
{
	double		from;
	double		until;
	int64		attempts;
} Range;

typedef struct Lane
{
	char	   *name;
	double		median;
	double		p95;
	double		max;
} Lane;

typedef struct Lateness
{
	Range		ranges[MAX_RANGES];
	int			nranges;
	Lane		lanes[MAX_LANES];
	int			nlanes;
	int64		all_lanes;
	int64		attempts;
	int64		most;			/* of a range */
	double		from;			/* of the axis */
	double		until;
} Lateness;

/* Columns of the query. */
enum
{
	DATABASE, MEDIAN, P95, P99, HIGHEST, CLOCK, NCOLUMNS
};

static const char query[] =
	"SELECT d.name, s.lateness_p50, s.lateness_p95, s.lateness_p99, s.lateness_max,"
	" to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS TZ')"
	" FROM (SELECT current_database() AS name) d"
	" LEFT JOIN delay_wheel.status s ON s.database = d.name";

/* Differences of the view's sums. */
static const char ranges_query[] =
	"SELECT low, below, attempts FROM (SELECT lag(below, 1, 0) OVER w AS low, below,"
	" tasks - lag(tasks, 1, 0) OVER w AS attempts"
	" FROM delay_wheel.lateness WHERE database = current_database()"
	" WINDOW w AS (ORDER BY below)) r WHERE attempts > 0";

static const char lanes_query[] =
	"SELECT owner, queue, priority, lateness_p50, lateness_p95, lateness_max, count(*) OVER ()"
	" FROM delay_wheel.lanes WHERE lateness_p50 IS NOT NULL"
	" ORDER BY lateness_p95 DESC, lateness_max DESC, queue, priority LIMIT 12";

static double
get_double(uint64 row, int column)
{
	bool		isnull;

	return DatumGetFloat8(SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull));
}

static void
read_ranges(Lateness *l)
{
	l->from = LEAST_FROM;
	l->until = LEAST_UNTIL;
	if (SPI_execute(ranges_query, true, MAX_RANGES) != SPI_OK_SELECT)
		elog(ERROR, "could not read the lateness");
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		Range	   *r = &l->ranges[l->nranges++];

		r->from = Max(get_double(row, 1) * USECS_PER_SEC, SHORTEST);
		r->until = get_double(row, 2) * USECS_PER_SEC;
		r->attempts = dw_svg_int64(row, 3);
		l->attempts += r->attempts;
		l->most = Max(l->most, r->attempts);
		l->from = Min(l->from, r->from);
		/* the last one has no end */
		l->until = Max(l->until, Min(r->until, r->from * 2));
	}
}

static void
read_lanes(Lateness *l)
{
	if (SPI_execute(lanes_query, true, MAX_LANES) != SPI_OK_SELECT)
		elog(ERROR, "could not read the lanes");
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		Lane	   *lane = &l->lanes[l->nlanes++];
		char	   *priority = dw_svg_text_at(row, 3);

		lane->name = psprintf("%s, %s%s", dw_svg_text_at(row, 1), dw_svg_text_at(row, 2),
							  strcmp(priority, "0") == 0 ? "" : psprintf(" (%s)", priority));
		lane->median = get_double(row, 4) * 1000;
		lane->p95 = get_double(row, 5) * 1000;
		lane->max = get_double(row, 6) * 1000;
		l->all_lanes = dw_svg_int64(row, 7);
	}
}

/*---- Axes ----*/

static double
time_x(const Lateness *l, double us)
{
	double		part = log(Max(us, l->from) / l->from) / log(l->until / l->from);

	return PLOT_LEFT + Min(part, 1) * (PLOT_RIGHT - PLOT_LEFT);
}

/* One attempt is to be seen: the axis begins at half of one. */
static double
attempts_y(const Lateness *l, double attempts)
{
	double		top = pow(10, ceil(log10(Max(l->most, 10))));

	return PLOT_BOTTOM - log(attempts * 2) / log(top * 2) * (PLOT_BOTTOM - PLOT_TOP);
}

static void
draw_time_axis(StringInfo svg, const Lateness *l, double top, double bottom)
{
	static const struct
	{
		double		us;
		const char *label;
	}			ticks[] = {
		{10, "10 us"}, {100, "100 us"}, {1e3, "1 ms"}, {1e4, "10 ms"}, {1e5, "100 ms"}, {1e6, "1 s"},
		{1e7, "10 s"}, {60e6, "1 min"}, {600e6, "10 min"}, {3600e6, "1 h"}, {6 * 3600e6, "6 h"}, {86400e6, "1 d"},
		{10 * 86400e6, "10 d"}, {100 * 86400e6, "100 d"}, {1000 * 86400e6, "1000 d"}
	};
	double		last = 0;

	for (int i = 0; i < (int) lengthof(ticks); i++)
	{
		double		x = time_x(l, ticks[i].us);

		if (ticks[i].us < l->from || ticks[i].us > l->until)
			continue;
		appendStringInfo(svg, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, top, bottom);
		/* not where the one before is */
		if (x - last < 42)
			continue;
		dw_svg_text(svg, x, bottom + 18, "small m", "%s", ticks[i].label);
		last = x;
	}
	appendStringInfo(svg, "<path class=\"line\" d=\"M%.1f %.1fH%.1f\"/>\n", PLOT_LEFT, bottom, PLOT_RIGHT);
}

static void
draw_attempts_axis(StringInfo svg, const Lateness *l)
{
	int			powers = (int) ceil(log10(Max(l->most, 10)));
	/* at most five lines */
	int			step = powers / 6 + 1;

	for (int i = 0; i <= powers; i += step)
	{
		double		value = pow(10, i);
		double		y = attempts_y(l, value);

		appendStringInfo(svg, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", PLOT_LEFT, y, PLOT_RIGHT);
		dw_svg_text(svg, PLOT_LEFT - 6, y + 4, "small e", "%s", dw_svg_short_number((int64) value));
	}
	appendStringInfo(svg, "<g transform=\"translate(%.1f %.1f) rotate(-90)\">", PLOT_LEFT - 32,
					 (PLOT_TOP + PLOT_BOTTOM) / 2);
	dw_svg_text(svg, 0, 0, "small m", "attempts");
	appendStringInfoString(svg, "</g>\n");
}

/*---- The histogram ----*/

static void
draw_ranges(StringInfo svg, const Lateness *l)
{
	for (int i = 0; i < l->nranges; i++)
	{
		const Range *r = &l->ranges[i];
		double		x = time_x(l, r->from);
		double		y = attempts_y(l, r->attempts);

		appendStringInfo(svg, "<rect class=\"shade3\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">",
						 x + 1, y, time_x(l, r->until) - x - 2, PLOT_BOTTOM - y);
		dw_svg_tooltip(svg, "%s %s: %s attempt%s", r->from <= SHORTEST ? "0" : dw_svg_duration(r->from),
					   isinf(r->until) ? "or more" : psprintf("to %s", dw_svg_duration(r->until)),
					   dw_svg_number(r->attempts), r->attempts == 1 ? "" : "s");
		appendStringInfoString(svg, "</rect>\n");
	}
}

/*
 * Each of the marks has a row of its own for its name, the later ones above:
 * so none is crossed by the line of another.
 */
static void
draw_percentiles(StringInfo svg, const Lateness *l, char **row)
{
	static const char *const names[] = {"50%", "95%", "99%", "latest"};

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		double		y = PLOT_TOP - 14 - 14 * i;
		double		x;

		if (row[MEDIAN + i] == NULL)
			continue;
		x = time_x(l, atof(row[MEDIAN + i]) * 1000);
		appendStringInfo(svg, "<path class=\"mark\" d=\"M%.1f %.1fV%.1f\"/>\n", x, y - 9, PLOT_BOTTOM);
		dw_svg_text(svg, x - 4, y, "small e", "%s", names[i]);
	}
}

static void
draw_facts(StringInfo svg, const Lateness *l, char **row)
{
	static const char *const names[] = {"half of them up to", "95% up to", "99% up to", "the latest one"};
	static const char *const lines[] = {
		"Time from due to start, since the",
		"start of the server; waiting for",
		"limits, and pauses, included."
	};
	double		y = 84;

	dw_svg_text(svg, 20, y, "head", "%s attempt%s", dw_svg_number(l->attempts), l->attempts == 1 ? "" : "s");
	for (int i = 0; i < (int) lengthof(names); i++)
		if (row[MEDIAN + i] != NULL)
		{
			dw_svg_text(svg, 20, y += 21, "", "%s", names[i]);
			dw_svg_text(svg, 224, y, "e", "%s", dw_svg_duration(atof(row[MEDIAN + i]) * 1000));
		}
	y += 12;
	for (int i = 0; i < (int) lengthof(lines); i++)
		dw_svg_text(svg, 20, y += 16, "small", "%s", lines[i]);
}

/*---- The lanes ----*/

static void
draw_lane(StringInfo svg, const Lateness *l, const Lane *lane, double y)
{
	double		median = time_x(l, lane->median);
	double		p95 = time_x(l, lane->p95);
	double		max = time_x(l, lane->max);

	appendStringInfoString(svg, "<g>");
	dw_svg_tooltip(svg, "%s: median %s, 95%% up to %s, latest %s", lane->name, dw_svg_duration(lane->median),
				   dw_svg_duration(lane->p95), dw_svg_duration(lane->max));
	dw_svg_text(svg, 20, y + 4, "", "%s", dw_svg_clip(lane->name, 32));
	appendStringInfo(svg, "<path class=\"line\" d=\"M%.1f %.1fH%.1f\"/>", median, y, Max(max, median));
	appendStringInfo(svg, "<rect class=\"shade3\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"8\"/>",
					 median, y - 4, Max(p95 - median, 2));
	appendStringInfo(svg, "<path class=\"mark\" d=\"M%.1f %.1fv10\"/>", Max(max, median), y - 5);
	appendStringInfoString(svg, "</g>\n");
}

static void
draw_lanes(StringInfo svg, const Lateness *l)
{
	double		bottom = LANES_TOP + l->nlanes * LANE_STEP;

	dw_svg_text(svg, 20, LANES_TOP - 26, "head", "Latest lanes (owner, queue)");
	dw_svg_text(svg, PLOT_RIGHT, LANES_TOP - 26, "small e", "bar: median to 95%%; line and stroke: up to the latest attempt");
	draw_time_axis(svg, l, LANES_TOP - 14, bottom);
	for (int i = 0; i < l->nlanes; i++)
		draw_lane(svg, l, &l->lanes[i], LANES_TOP + i * LANE_STEP);
	if (l->all_lanes > l->nlanes)
		dw_svg_text(svg, 20, bottom + 18, "small", "and %s more", dw_svg_number(l->all_lanes - l->nlanes));
}

static char *
describe(const Lateness *l, char **row)
{
	if (row[MEDIAN] == NULL)
		return "No task was begun since the start of the server.";
	return psprintf("%s attempts since the start of the server. Median: %s late; 95%% up to %s, 99%% up to %s; the latest one %s.",
					dw_svg_number(l->attempts), dw_svg_duration(atof(row[MEDIAN]) * 1000),
					dw_svg_duration(atof(row[P95]) * 1000), dw_svg_duration(atof(row[P99]) * 1000),
					dw_svg_duration(atof(row[HIGHEST]) * 1000));
}

Datum
dw_lateness_svg(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	Lateness   *l;
	StringInfoData svg;
	char	  **row;
	text	   *result;

	dw_require_signature(fcinfo, TEXTOID, 0, NULL);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	l = palloc0(sizeof(Lateness));
	read_ranges(l);
	read_lanes(l);
	row = dw_svg_row(query, NCOLUMNS);
	if (row[HIGHEST] != NULL)
		l->until = Max(l->until, atof(row[HIGHEST]) * 1000);

	initStringInfo(&svg);
	dw_svg_begin(&svg, WIDTH, (int) (l->nlanes > 0 ? LANES_TOP + l->nlanes * LANE_STEP + 36 : PLOT_BOTTOM + 40),
				 psprintf("How late tasks of \"%s\" are begun", dw_svg_clip(row[DATABASE], 40)), describe(l, row));
	dw_svg_text(&svg, WIDTH - 20, 32, "dim e", "%s", row[CLOCK]);
	draw_facts(&svg, l, row);
	draw_time_axis(&svg, l, PLOT_TOP, PLOT_BOTTOM);
	if (l->attempts > 0)
	{
		draw_attempts_axis(&svg, l);
		draw_ranges(&svg, l);
		draw_percentiles(&svg, l, row);
	}
	else
		dw_svg_text(&svg, (PLOT_LEFT + PLOT_RIGHT) / 2, (PLOT_TOP + PLOT_BOTTOM) / 2, "dim m",
					"no task was begun yet");
	if (l->nlanes > 0)
		draw_lanes(&svg, l);
	dw_svg_end(&svg);
	MemoryContextSwitchTo(context);
	result = cstring_to_text_with_len(svg.data, svg.len);
	SPI_finish();
	PG_RETURN_TEXT_P(result);
}
