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

/* Maximum length of a schedule's text, in bytes. */
#define DW_MAX_CRON		1000

/*
 * A schedule.  Fields of integer types are sets: bit n is set if the value n matches.
 * Has no pointers, so it can be copied by assignment.
 */
typedef struct DwCron
{
	uint64		seconds;
	uint64		minutes;
	uint32		hours;
	uint32		days;			/* days of the month, 1 to 31 */
	uint16		months;			/* 1 to 12 */
	uint8		weekdays;		/* weekdays that match in every week; 0 is Sunday */
	uint8		nth_weekdays[5];	/* weekdays that match if they are the first ([0]),
									 * second ([1]) ... of their month */
	uint8		last_weekdays;	/* weekdays that match if they are the last of their
								 * month */
	bool		last_day;		/* the last day of a month matches */
	bool		both_days;		/* True if day of month and weekday must both match; else
								 * one of them is enough */
	bool		any_hour;		/* True if the field "hour" begins with *: a time that the
								 * clock shows twice is due twice, see cron.c */
} DwCron;

extern bool dw_cron_parse(const char *text, DwCron *cron, const char **problem, const char **hint);
extern bool dw_cron_next(const DwCron *cron, pg_tz *zone, TimestampTz after, TimestampTz *next);

#endif							/* DW_CRON_H */
