/*-------------------------------------------------------------------------
 *
 * ring_svg.c
 *	  A picture of the ring.
 *
 * Run by backends.  It shows what the views say, read as the caller.  A ring of
 * 3600 slots is drawn as 60 segments; a clock's face, if slots are seconds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ring/ring.h"
#include "../shmem/places.h"
#include "../shmem/shared.h"
#include "svg.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_ring_svg);

#define WIDTH			780
#define HEIGHT			500
#define CENTER_X		230.0
#define CENTER_Y		275.0
#define LABEL_RADIUS	92.0
#define INNER_RADIUS	108.0
#define BAND			14.0	/* of an empty segment */
#define BAR				62.0	/* of the fullest one, beside that */
#define MARK_RADIUS		190.0
#define PANEL_X			480.0
#define MAX_SEGMENTS	60
#define MAX_LABELS		12

/* Slots next to each other, drawn as one. */
typedef struct Segment
{
	int			first;
	int			last;
	int64		tasks;
	int64		max_cycle;
} Segment;

typedef struct Ring
{
	Segment		segments[MAX_SEGMENTS];
	int			n;
	int			width;			/* slots of a segment, but the last one */
	int64		most;			/* tasks of the fullest segment */
	int64		max_cycle;
	TimestampTz horizon;		/* DW_NEVER: there is none */
	TimestampTz now;
} Ring;

/* Columns of the query. */
enum
{
	DATABASE, STATE, CURRENT, NEAR, READY, RUNNING, NEXT_IN, NEXT_SLOT, NEXT_CYCLE, CLOCK, NCOLUMNS
};

static const char query[] =
	"SELECT d.name, coalesce(s.state, 'stopped'), coalesce(s.current_index, c.slot),"
	" coalesce(s.near, 0), coalesce(s.ready, 0), coalesce(s.running, 0),"
	" date_part('epoch', d.due - d.now), n.slot, n.cycle_num, to_char(d.now, 'YYYY-MM-DD HH24:MI:SS TZ')"
	" FROM (SELECT current_database() AS name, clock_timestamp() AS now, delay_wheel_internal.next_due() AS due) d"
	" LEFT JOIN delay_wheel.status s ON s.database = d.name"
	" CROSS JOIN LATERAL delay_wheel_internal.place(d.now) c"
	" CROSS JOIN LATERAL delay_wheel_internal.place(d.due) n";

/* What is due before is in memory. */
static TimestampTz
my_horizon(void)
{
	DwDatabase *db;

	dw_require_shared();
	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	db = dw_database_find(MyDatabaseId);
	LWLockRelease(dw_shared->table_lock);
	return db != NULL ? dw_lowest_horizon(db) : DW_NEVER;
}

/* What the slots hold; nothing, if the database is not served. */
static void
read_ring(Ring *ring)
{
	memset(ring, 0, sizeof(Ring));
	ring->horizon = my_horizon();
	ring->now = dw_now();
	ring->width = (dw_slots + MAX_SEGMENTS - 1) / MAX_SEGMENTS;
	ring->n = (dw_slots + ring->width - 1) / ring->width;
	for (int i = 0; i < ring->n; i++)
	{
		ring->segments[i].first = i * ring->width;
		ring->segments[i].last = Min((i + 1) * ring->width, dw_slots) - 1;
	}
	if (SPI_execute("SELECT slot, tasks, max_cycle FROM delay_wheel.ring WHERE tasks > 0", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the ring");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		Segment    *s = &ring->segments[DatumGetInt32(SPI_getbinval(row, desc, 1, &isnull)) / ring->width];

		s->tasks += DatumGetInt64(SPI_getbinval(row, desc, 2, &isnull));
		s->max_cycle = Max(s->max_cycle, DatumGetInt64(SPI_getbinval(row, desc, 3, &isnull)));
		ring->most = Max(ring->most, s->tasks);
		ring->max_cycle = Max(ring->max_cycle, s->max_cycle);
	}
}

/*---- The ring ----*/

/* Angles are in slots, from the top, clockwise. */
static double
point_x(double slot, double radius)
{
	return CENTER_X + radius * sin(2 * M_PI * slot / dw_slots);
}

static double
point_y(double slot, double radius)
{
	return CENTER_Y - radius * cos(2 * M_PI * slot / dw_slots);
}

static void
append_point(StringInfo svg, char command, double slot, double radius)
{
	appendStringInfo(svg, "%c%.1f %.1f", command, point_x(slot, radius), point_y(slot, radius));
}

/* The outline of a segment, from the innermost radius to another one. */
static void
append_outline(StringInfo svg, const Segment *s, double radius)
{
	int			large = 2 * (s->last + 1 - s->first) > dw_slots;

	append_point(svg, 'M', s->first, radius);
	appendStringInfo(svg, "A%.1f %.1f 0 %d 1 ", radius, radius, large);
	append_point(svg, ' ', s->last + 1, radius);
	append_point(svg, 'L', s->last + 1, INNER_RADIUS);
	appendStringInfo(svg, "A%.1f %.1f 0 %d 0 ", INNER_RADIUS, INNER_RADIUS, large);
	append_point(svg, ' ', s->first, INNER_RADIUS);
	appendStringInfoChar(svg, 'Z');
}

static char *
slots_of(const Segment *s)
{
	return s->first == s->last ? psprintf("slot %d", s->first) :
		psprintf("slots %d to %d", s->first, s->last);
}

static char *
turns(int64 n)
{
	return psprintf("%s turn%s", dw_svg_number(n), n == 1 ? "" : "s");
}

static void
draw_segment(StringInfo svg, const Ring *ring, const Segment *s)
{
	double		radius = INNER_RADIUS + BAND;

	if (s->tasks > 0)
		radius += Max(BAR * s->tasks / ring->most, 3);
	appendStringInfo(svg, "<path class=\"shade%d edge\" d=\"", dw_svg_shade(s->tasks));
	append_outline(svg, s, radius);
	appendStringInfoString(svg, "\">");
	dw_svg_tooltip(svg, "%s: %s task%s%s", slots_of(s), dw_svg_number(s->tasks), s->tasks == 1 ? "" : "s",
				   s->max_cycle > 0 ? psprintf(", up to %s ahead", turns(s->max_cycle)) : "");
	appendStringInfoString(svg, "</path>\n");
	if (s->max_cycle > 0)
	{
		appendStringInfoString(svg, "<path fill=\"url(#dw-hatch)\" pointer-events=\"none\" d=\"");
		append_outline(svg, s, radius);
		appendStringInfoString(svg, "\"/>\n");
	}
}

static void
draw_labels(StringInfo svg, const Ring *ring)
{
	int			step = (ring->n + MAX_LABELS - 1) / MAX_LABELS;

	for (int i = 0; i < ring->n; i += step)
	{
		/* a single slot has its number at its middle */
		double		slot = ring->segments[i].first + (ring->width == 1 ? 0.5 : 0);

		/* the last one must not run into the first */
		if (i > 0 && dw_slots - ring->segments[i].first < 0.6 * step * ring->width)
			break;
		dw_svg_text(svg, point_x(slot, LABEL_RADIUS), point_y(slot, LABEL_RADIUS) + 4, "small m",
					"%d", ring->segments[i].first);
	}
}

/* Signs for slots, also in the legend: x and y are those of the sign's middle. */
static void
draw_now(StringInfo svg, double x, double y, double degrees)
{
	appendStringInfo(svg, "<path class=\"now\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" d=\"M0 9L-7 -6H7Z\"/>\n",
					 x, y, degrees);
}

static void
draw_next(StringInfo svg, double x, double y)
{
	appendStringInfo(svg, "<path class=\"next\" d=\"M%.1f %.1fl6 7l-6 7l-6 -7Z\"/>\n", x, y - 7);
}

static bool
horizon_is_ahead(const Ring *ring)
{
	return ring->horizon != DW_NEVER && ring->horizon >= ring->now;
}

static uint32
horizon_slot(const Ring *ring)
{
	DwRing		shape = {.nslots = dw_slots, .tick_us = dw_tick_us()};

	return dw_ring_index(&shape, dw_ring_tick(&shape, ring->horizon));
}

static void
draw_ray(StringInfo svg, const char *class, double slot, double radius)
{
	appendStringInfo(svg, "<path class=\"%s\" d=\"", class);
	append_point(svg, 'M', slot, INNER_RADIUS);
	append_point(svg, 'L', slot, radius);
	appendStringInfoString(svg, "\"/>\n");
}

static void
draw_marks(StringInfo svg, const Ring *ring, char **row)
{
	double		slot = atoi(row[CURRENT]) + 0.5;

	draw_ray(svg, "mark", slot, MARK_RADIUS);
	if (horizon_is_ahead(ring))
		draw_ray(svg, "far", horizon_slot(ring) + 0.5, MARK_RADIUS + 12);
	draw_now(svg, point_x(slot, MARK_RADIUS + 6), point_y(slot, MARK_RADIUS + 6), 360.0 * slot / dw_slots);
	if (row[NEXT_SLOT] != NULL)
	{
		slot = atoi(row[NEXT_SLOT]) + 0.5;
		draw_next(svg, point_x(slot, MARK_RADIUS + 23), point_y(slot, MARK_RADIUS + 23));
	}
}

static void
draw_center(StringInfo svg, char **row)
{
	int64		near = strtoll(row[NEAR], NULL, 10);
	bool		one = near == 1;

	dw_svg_text(svg, CENTER_X, CENTER_Y - 4, "big m", "%s",
				near < 10000000 ? dw_svg_number(near) : dw_svg_short_number(near));
	dw_svg_text(svg, CENTER_X, CENTER_Y + 16, "dim m", one ? "task waits" : "tasks wait");
	dw_svg_text(svg, CENTER_X, CENTER_Y + 33, "dim m", "in memory");
}

/*---- What it means ----*/

static void
draw_shades(StringInfo svg, double x, double y)
{
	static const char *const labels[DW_SVG_SHADES] = {"none", "1+", "10+", "100+", "1k+", "10k+"};

	for (int i = 0; i < DW_SVG_SHADES; i++)
	{
		appendStringInfo(svg, "<rect class=\"shade%d edge\" x=\"%.1f\" y=\"%.1f\" width=\"42\" height=\"14\"/>\n",
						 i, x + 44 * i, y);
		dw_svg_text(svg, x + 44 * i + 21, y + 28, "small m", "%s", labels[i]);
	}
}

static char *
next_text(char **row)
{
	int64		cycle;

	if (row[NEXT_SLOT] == NULL)
		return "next due: nothing";
	cycle = strtoll(row[NEXT_CYCLE], NULL, 10);
	return psprintf("next due: slot %s, in %s%s", row[NEXT_SLOT],
					dw_svg_duration(Max(atof(row[NEXT_IN]), 0) * 1e6),
					cycle == 0 ? "" : psprintf(" (%s)", turns(cycle)));
}

static char *
horizon_text(const Ring *ring)
{
	if (ring->horizon == DW_NEVER)
		return "no horizon: all tasks are in memory";
	if (!horizon_is_ahead(ring))
		return "horizon: passed, more is being loaded";
	return psprintf("horizon: slot %u, in %s", horizon_slot(ring),
					dw_svg_duration((double) (ring->horizon - ring->now)));
}

static void
draw_panel(StringInfo svg, const Ring *ring, char **row)
{
	double		x = PANEL_X;
	double		y = 110;

	dw_svg_text(svg, x, y, "head", "Tasks in %s (%s)",
				ring->width == 1 ? "a slot" : psprintf("a segment of %d slots", ring->width),
				dw_svg_duration((double) ring->width * dw_tick_us()));
	if (ring->most > 0)
		dw_svg_text(svg, x, y + 19, "dim", "by shade; the longest bar is %s", dw_svg_number(ring->most));
	else
		dw_svg_text(svg, x, y + 19, "dim", "by shade");
	draw_shades(svg, x, y + 30);
	y += 84;
	appendStringInfo(svg, "<rect class=\"shade3 edge\" x=\"%.1f\" y=\"%.1f\" width=\"20\" height=\"14\"/>"
					 "<rect fill=\"url(#dw-hatch)\" x=\"%.1f\" y=\"%.1f\" width=\"20\" height=\"14\"/>\n",
					 x, y - 11, x, y - 11);
	dw_svg_text(svg, x + 30, y, "", "striped: some are for a later turn");
	y += 40;
	draw_now(svg, x + 10, y - 5, 0);
	dw_svg_text(svg, x + 30, y, "", "current index: slot %s", row[CURRENT]);
	y += 28;
	draw_next(svg, x + 10, y - 5);
	dw_svg_text(svg, x + 30, y, "", "%s", next_text(row));
	y += 28;
	appendStringInfo(svg, "<path class=\"far\" d=\"M%.1f %.1fH%.1f\"/>\n", x, y - 5, x + 21);
	dw_svg_text(svg, x + 30, y, "", "%s", horizon_text(ring));
	if (horizon_is_ahead(ring))
		dw_svg_text(svg, x + 30, y += 18, "dim", "what is due before is in memory");

	y += 40;
	dw_svg_text(svg, x, y, strcmp(row[STATE], "running") == 0 ? "head" : "head now", "Timer: %s", row[STATE]);
	dw_svg_text(svg, x, y += 22, "", "due and waiting for an executor: %s",
				dw_svg_number(strtoll(row[READY], NULL, 10)));
	dw_svg_text(svg, x, y += 22, "", "running: %s", dw_svg_number(strtoll(row[RUNNING], NULL, 10)));
	if (ring->max_cycle > 0)
		dw_svg_text(svg, x, y += 22, "", "in memory: up to %s ahead", turns(ring->max_cycle));
}

static char *
describe(const Ring *ring, char **row)
{
	return psprintf("%d slots of %s. Timer: %s. Current index: slot %s. %s tasks wait in memory, up to %s ahead."
					" %s. %s. Due and waiting: %s. Running: %s.",
					dw_slots, dw_svg_duration(dw_tick_us()), row[STATE], row[CURRENT], row[NEAR],
					turns(ring->max_cycle), next_text(row), horizon_text(ring), row[READY], row[RUNNING]);
}

Datum
dw_ring_svg(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	StringInfoData svg;
	Ring		ring;
	char	  **row;
	text	   *result;

	dw_require_signature(fcinfo, TEXTOID, 0, NULL);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	read_ring(&ring);
	row = dw_svg_row(query, NCOLUMNS);
	initStringInfo(&svg);
	dw_svg_begin(&svg, WIDTH, HEIGHT, psprintf("Ring of database \"%s\"", dw_svg_clip(row[DATABASE], 50)),
				 describe(&ring, row));
	dw_svg_text(&svg, 20, 54, "dim", "%s slots of %s: one turn takes %s", dw_svg_number(dw_slots),
				dw_svg_duration(dw_tick_us()), dw_svg_duration((double) dw_tick_us() * dw_slots));
	dw_svg_text(&svg, WIDTH - 20, 54, "dim e", "%s", row[CLOCK]);
	for (int i = 0; i < ring.n; i++)
		draw_segment(&svg, &ring, &ring.segments[i]);
	draw_labels(&svg, &ring);
	draw_center(&svg, row);
	draw_marks(&svg, &ring, row);
	draw_panel(&svg, &ring, row);
	dw_svg_end(&svg);
	MemoryContextSwitchTo(context);
	result = cstring_to_text_with_len(svg.data, svg.len);
	SPI_finish();
	PG_RETURN_TEXT_P(result);
}
