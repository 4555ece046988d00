/*-------------------------------------------------------------------------
 *
 * forecast_svg.c
 *	  A picture of the view delay_wheel.forecast: three charts of bars.
 *
 * Run by backends, as the caller.
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

PG_FUNCTION_INFO_V1(dw_forecast_svg);

#define WIDTH		780
#define HEIGHT		680
#define LEFT		70
#define RIGHT		20
#define CHART_TOP	130			/* of the bars of the first chart */
#define CHART_STEP	190			/* from one chart to the next */
#define CHART_HEIGHT 110
#define MAX_BARS	64
#define MAX_LINES	4			/* of the grid, above zero */

typedef struct Bar
{
	int64		tasks;
	bool		exact;
	char	   *label;			/* below it; NULL: none */
	char	   *period;
} Bar;

typedef struct Chart
{
	const char *step;
	const char *title;
	Bar			bars[MAX_BARS];
	int			n;
	int64		most;
	int64		sum;
	bool		exact;
} Chart;

/* What lies outside of the charts. */
typedef struct Rest
{
	int64		tasks;
	bool		exact;
} Rest;

static const char query[] =
	"SELECT step, tasks, exact,"
	" CASE step"
	" WHEN 'minute' THEN CASE WHEN date_part('minute', due_from)::integer % 10 = 0 THEN to_char(due_from, 'HH24:MI') END"
	" WHEN 'hour' THEN CASE date_part('hour', due_from)::integer % 6 WHEN 0 THEN"
	" to_char(due_from, CASE date_part('hour', due_from) WHEN 0 THEN 'DD Mon' ELSE 'HH24:00' END) END"
	" WHEN 'day' THEN CASE (date_part('day', due_from)::integer - 1) % 5 WHEN 0 THEN to_char(due_from, 'DD Mon') END"
	" END,"
	" CASE step WHEN 'day' THEN to_char(due_from, 'Dy DD Mon YYYY')"
	" ELSE to_char(due_from, 'DD Mon HH24:MI') || ' to ' || to_char(due_until, 'HH24:MI') END"
	" FROM delay_wheel.forecast";

static bool
get_bool(uint64 row, int column)
{
	bool		isnull;

	return DatumGetBool(SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull));
}

static void
add_bar(Chart *chart, uint64 row)
{
	Bar		   *bar = &chart->bars[chart->n];

	if (chart->n == MAX_BARS)
		return;
	chart->n++;
	bar->tasks = dw_svg_int64(row, 2);
	bar->exact = get_bool(row, 3);
	bar->label = dw_svg_text_at(row, 4);
	bar->period = dw_svg_text_at(row, 5);
	chart->most = Max(chart->most, bar->tasks);
	chart->sum += bar->tasks;
	chart->exact &= bar->exact;
}

static void
read_forecast(Chart *charts, int n, Rest *overdue, Rest *later)
{
	if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the forecast");
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		char	   *step = dw_svg_text_at(row, 1);

		if (strcmp(step, "overdue") == 0)
			*overdue = (Rest) {dw_svg_int64(row, 2), get_bool(row, 3)};
		else if (strcmp(step, "later") == 0)
			*later = (Rest) {dw_svg_int64(row, 2), get_bool(row, 3)};
		for (int i = 0; i < n; i++)
			if (strcmp(step, charts[i].step) == 0)
				add_bar(&charts[i], row);
	}
}

/* Estimates are not written to the last digit. */
static char *
tasks_text(int64 tasks, bool exact)
{
	return psprintf("%s%s task%s", exact ? "" : "about ",
					exact ? dw_svg_number(tasks) : dw_svg_short_number(tasks), tasks == 1 ? "" : "s");
}

/* The distance of grid lines: 1, 2 or 5 times a power of ten. */
static int64
grid_step(int64 most)
{
	static const int factors[] = {1, 2, 5};

	for (int64 power = 1; power < PG_INT64_MAX / 100; power *= 10)
		for (int i = 0; i < (int) lengthof(factors); i++)
			if (factors[i] * power * MAX_LINES >= most)
				return factors[i] * power;
	return most;
}

static void
draw_grid(StringInfo svg, const Chart *chart, double bottom, int64 step, int64 top)
{
	for (int64 value = 0; value <= top; value += step)
	{
		double		y = bottom - (double) CHART_HEIGHT * value / top;

		appendStringInfo(svg, "<path class=\"%s\" d=\"M%d %.1fH%d\"/>\n",
						 value == 0 ? "line" : "grid", LEFT, y, WIDTH - RIGHT);
		dw_svg_text(svg, LEFT - 8, y + 4, "small e", "%s", dw_svg_short_number(value));
	}
}

static void
draw_bar(StringInfo svg, const Bar *bar, double x, double width, double bottom, int64 top)
{
	/* what is there is to be seen */
	double		height = Max((double) CHART_HEIGHT * bar->tasks / top, bar->tasks > 0 ? 2 : 0);

	appendStringInfo(svg, "<g>");
	dw_svg_tooltip(svg, "%s: %s", bar->period, tasks_text(bar->tasks, bar->exact));
	/* over its whole height, so that a pointer finds empty ones, too */
	appendStringInfo(svg, "<rect fill=\"none\" pointer-events=\"all\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>",
					 x, bottom - CHART_HEIGHT, width, CHART_HEIGHT);
	if (bar->tasks > 0)
		appendStringInfo(svg, "<rect class=\"shade3\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
						 x + 1, bottom - height, width - 2, height);
	/* stripes need some height to be seen */
	if (height >= 4 && !bar->exact)
		appendStringInfo(svg, "<rect fill=\"url(#dw-hatch)\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
						 x + 1, bottom - height, width - 2, height);
	appendStringInfoString(svg, "</g>\n");
}

/* The label of the highest bar: above it, but not outside of the picture. */
static void
draw_peak(StringInfo svg, const Chart *chart, double width, double bottom, int64 top)
{
	for (int i = 0; i < chart->n; i++)
		if (chart->bars[i].tasks == chart->most)
		{
			double		x = Min(Max(LEFT + (i + 0.5) * width, LEFT + 20), WIDTH - RIGHT - 20);

			dw_svg_text(svg, x, bottom - (double) CHART_HEIGHT * chart->most / top - 5, "small m", "%s",
						dw_svg_short_number(chart->most));
			return;
		}
}

static void
draw_chart(StringInfo svg, const Chart *chart, double bottom)
{
	double		width = (double) (WIDTH - LEFT - RIGHT) / Max(chart->n, 1);
	int64		step = grid_step(Max(chart->most, 1));
	int64		top = (Max(chart->most, 1) + step - 1) / step * step;
	double		head = bottom - CHART_HEIGHT - 26;

	dw_svg_text(svg, 20, head, "head", "%s", chart->title);
	dw_svg_text(svg, WIDTH - RIGHT, head, "e", "%s", tasks_text(chart->sum, chart->exact));
	draw_grid(svg, chart, bottom, step, top);
	for (int i = 0; i < chart->n; i++)
	{
		double		x = LEFT + i * width;

		draw_bar(svg, &chart->bars[i], x, width, bottom, top);
		if (chart->bars[i].label != NULL)
		{
			appendStringInfo(svg, "<path class=\"line\" d=\"M%.1f %.1fv5\"/>\n", x + width / 2, bottom);
			dw_svg_text(svg, x + width / 2, bottom + 18, "small m", "%s", chart->bars[i].label);
		}
	}
	if (chart->most > 0)
		draw_peak(svg, chart, width, bottom, top);
	else
		dw_svg_text(svg, LEFT + (WIDTH - LEFT - RIGHT) / 2.0, bottom - CHART_HEIGHT / 2.0, "dim m",
					"nothing is due in this time");
}

static void
draw_legend(StringInfo svg, double x, double y)
{
	appendStringInfo(svg, "<rect class=\"shade3\" x=\"%.1f\" y=\"%.1f\" width=\"18\" height=\"12\"/>\n", x, y - 10);
	dw_svg_text(svg, x + 24, y, "dim", "counted");
	x += 90;
	appendStringInfo(svg, "<rect class=\"shade3\" x=\"%.1f\" y=\"%.1f\" width=\"18\" height=\"12\"/>"
					 "<rect fill=\"url(#dw-hatch)\" x=\"%.1f\" y=\"%.1f\" width=\"18\" height=\"12\"/>\n",
					 x, y - 10, x, y - 10);
	dw_svg_text(svg, x + 24, y, "dim", "estimated");
}

Datum
dw_forecast_svg(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	Chart	   *charts;
	Rest		overdue = {0, true};
	Rest		later = {0, true};
	StringInfoData svg;
	char	  **about;
	text	   *result;

	dw_require_signature(fcinfo, TEXTOID, 0, NULL);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	charts = palloc0(sizeof(Chart) * 3);
	charts[0] = (Chart) {.step = "minute", .title = "Tasks due in each minute of the next hour", .exact = true};
	charts[1] = (Chart) {.step = "hour", .title = "Tasks due in each of the next 48 hours", .exact = true};
	charts[2] = (Chart) {.step = "day", .title = "Tasks due in each of the next 31 days", .exact = true};
	read_forecast(charts, 3, &overdue, &later);
	about = dw_svg_row("SELECT current_database(), to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS TZ')", 2);

	initStringInfo(&svg);
	dw_svg_begin(&svg, WIDTH, HEIGHT, psprintf("When tasks of \"%s\" will be due", dw_svg_clip(about[0], 40)),
				 psprintf("Overdue: %s. Next hour: %s. Next 48 hours: %s. Next 31 days: %s. Later: %s.",
						  tasks_text(overdue.tasks, overdue.exact), tasks_text(charts[0].sum, charts[0].exact),
						  tasks_text(charts[1].sum, charts[1].exact), tasks_text(charts[2].sum, charts[2].exact),
						  tasks_text(later.tasks, later.exact)));
	dw_svg_text(&svg, 20, 56, "", "overdue: %s", tasks_text(overdue.tasks, overdue.exact));
	dw_svg_text(&svg, 300, 56, "", "due later: %s", tasks_text(later.tasks, later.exact));
	dw_svg_text(&svg, WIDTH - 20, 32, "dim e", "%s", about[1]);
	draw_legend(&svg, WIDTH - 205, 56);
	for (int i = 0; i < 3; i++)
		draw_chart(&svg, &charts[i], CHART_TOP + CHART_HEIGHT + i * CHART_STEP);
	dw_svg_end(&svg);
	MemoryContextSwitchTo(context);
	result = cstring_to_text_with_len(svg.data, svg.len);
	SPI_finish();
	PG_RETURN_TEXT_P(result);
}
