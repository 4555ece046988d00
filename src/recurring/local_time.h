/*-------------------------------------------------------------------------
 *
 * local_time.h
 *	  Tasks that are due at a local time of a time zone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOCAL_TIME_H
#define DW_LOCAL_TIME_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "pgtime.h"

/* When such a task is due, as its row says in "more". */
typedef struct DwLocalTime
{
	Timestamp	time;			/* what the clocks of the zone show */
	char	   *zone;
	TimestampTz instant;		/* what that was when the row was written */
} DwLocalTime;

extern bool dw_local_instant(Timestamp time, pg_tz *zone, TimestampTz *instant);
extern bool dw_local_time_read(const Datum *values, const bool *nulls, DwLocalTime *local);
extern void dw_local_time_write(Datum *values, bool *nulls, const DwLocalTime *local);

#endif							/* DW_LOCAL_TIME_H */
