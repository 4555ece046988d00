/*-------------------------------------------------------------------------
 *
 * cron_times.h
 *	  delay_wheel.cron_times(): the next times of a schedule.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CRON_TIMES_H
#define DW_CRON_TIMES_H

#include "postgres.h"

#include "pgtime.h"

#include "cron.h"

/* The same two for SQL functions: what is wrong is an error (cron_times.c). */
extern void dw_cron_read(const char *text, DwCron *cron);
extern pg_tz *dw_time_zone(const char *name);

#endif							/* DW_CRON_TIMES_H */
