/*-------------------------------------------------------------------------
 *
 * cron_times.h
 *	  Cron schedules and time zones from SQL, and delay_wheel.cron_times().
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CRON_TIMES_H
#define DW_CRON_TIMES_H

#include "postgres.h"

#include "pgtime.h"

#include "cron.h"

extern void dw_cron_read(const char *text, DwCron *cron);
extern pg_tz *dw_time_zone(const char *name);

#endif							/* DW_CRON_TIMES_H */
