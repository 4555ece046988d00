/*-------------------------------------------------------------------------
 *
 * local_time.c
 *	  Tasks that are due at a local time of a time zone.
 *
 * Run by sessions that schedule, and by the sweeper.
 *
 * The rules of time zones change, sometimes at short notice.  So the row of such a task keeps
 * the local time and the zone, and the instant that they stood for when the row was written.
 * If they stand for another instant later, the sweeper moves the due time by the difference
 * (sweeper/local_times.c).  The due time itself may be later than the instant, by the spread
 * of the queue.
 *
 * A process reads the rules of a zone when it first needs them, and keeps them to its end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/datetime.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "../rows/catalog.h"
#include "../rows/more.h"
#include "local_time.h"

/* The keys of the object DW_MORE_LOCAL, and its place in an array of one column. */
#define TIME			"time"
#define ZONE			"zone"
#define INSTANT			"instant"
#define COLUMN			1

/*
 * Finds the instant at which the clocks of a zone show a local time; false if it is out of
 * range.  As AT TIME ZONE has it: of a time that comes twice the second one, and one that is
 * left out counts with the offset from before.
 */
bool
dw_local_instant(Timestamp time, pg_tz *zone, TimestampTz *instant)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	if (timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0)
		return false;
	tz = DetermineTimeZoneOffset(&tm, zone);
	return tm2timestamp(&tm, fsec, &tz, instant) == 0 && IS_VALID_TIMESTAMP(*instant);
}

/* Reads the local time of a task's row; false if it has none, or plain SQL wrote nonsense. */
bool
dw_local_time_read(const Datum *values, const bool *nulls, DwLocalTime *local)
{
	Jsonb	   *object = dw_more_object(values, nulls, Anum_task_more, DW_MORE_LOCAL);
	const Datum column = PointerGetDatum(object);
	const bool	isnull = false;

	if (object == NULL ||
		!dw_more_number(&column, &isnull, COLUMN, TIME, &local->time) ||
		!dw_more_number(&column, &isnull, COLUMN, INSTANT, &local->instant) ||
		!IS_VALID_TIMESTAMP(local->time) || !IS_VALID_TIMESTAMP(local->instant))
		return false;
	local->zone = dw_more_text(&column, &isnull, COLUMN, ZONE);
	return local->zone != NULL;
}

/* Sets the local time of a task's row. */
void
dw_local_time_write(Datum *values, bool *nulls, const DwLocalTime *local)
{
	Datum		column = (Datum) 0;
	bool		isnull = true;

	dw_more_set_number(&column, &isnull, COLUMN, TIME, local->time);
	dw_more_set_text(&column, &isnull, COLUMN, ZONE, local->zone);
	dw_more_set_number(&column, &isnull, COLUMN, INSTANT, local->instant);
	dw_more_set_object(values, nulls, Anum_task_more, DW_MORE_LOCAL, DatumGetJsonbP(column));
}
