/*-------------------------------------------------------------------------
 *
 * cron.h
 *	  Cron schedules.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CRON_H
#define DW_CRON_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "pgtime.h"

/* longer texts are refused; no schedule that is meant needs more */
#define DW_MAX_CRON		1000

/* A schedule: bit n of a set stands for the value n.  Can be copied, compared. */
typedef struct DwCron
{
	uint64		seconds;
	uint64		minutes;
	uint32		hours;
	uint32		days;			/* of the month, 1 to 31 */
	uint16		months;			/* 1 to 12 */
	uint8		weekdays;		/* 0 is Sunday */
	uint8		nth_weekdays[5];	/* [0]: those that are the first of their
									 * month, and so on */
	uint8		last_weekdays;	/* those that are the last of their month */
	bool		last_day;		/* of the month */
	bool		both_days;		/* day of month and weekday must match, not
								 * just one of them */
	bool		any_hour;		/* hour is * or * / n: goes by elapsed time */
} DwCron;
extern bool dw_cron_parse(const char *text, DwCron *cron, const char **problem, const char **hint);
extern bool dw_cron_next(const DwCron *cron, pg_tz *zone, TimestampTz after, TimestampTz *next);

#endif							/* DW_CRON_H */
