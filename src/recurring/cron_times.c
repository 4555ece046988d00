/*-------------------------------------------------------------------------
 *
 * cron_times.c
 *	  Cron schedules and time zones from SQL, and delay_wheel.cron_times().
 *
 * Run by sessions, and by executors whose tasks call these functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "../base/errors.h"
#include "../base/signature.h"
#include "recurring.h"

/* Maximum number of times in the result of cron_times(). */
#define MAX_TIMES	10000

PG_FUNCTION_INFO_V1(dw_cron_times);

/* Reads a schedule that a user wrote.  Raises an error if the text is not a schedule. */
void
dw_cron_read(const char *text, DwCron *cron)
{
	const char *problem;
	const char *hint;

	if (!dw_cron_parse(text, cron, &problem, &hint))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid cron schedule: \"%.*s\"",
						pg_mbcliplen(text, strlen(text), DW_MAX_CRON), text),
				 errdetail("%s", problem),
				 errhint("%s", hint)));
}

/*
 * Returns the time zone with a name that a user wrote.  Raises an error if there is no such zone,
 * or if PostgreSQL refuses it (a zone with leap seconds).
 */
pg_tz *
dw_time_zone(const char *name)
{
	pg_tz	   *zone = pg_tzset(name);

	if (zone == NULL || !pg_tz_acceptable(zone))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%.*s\" not recognized",
						pg_mbcliplen(name, strlen(name), TZ_STRLEN_MAX), name),
				 errhint("Names are in the view %s.", "pg_timezone_names")));
	return zone;
}

/*
 * delay_wheel.cron_times(schedule, timezone, after, n): returns the next n times of a schedule
 * after a time.  A null time zone means the session's zone.
 */
Datum
dw_cron_times(PG_FUNCTION_ARGS)
{
	DwCron		cron;
	pg_tz	   *zone;
	TimestampTz t;
	int			n;

	dw_refuse_null(PG_ARGISNULL(0), "schedule");
	dw_refuse_null(PG_ARGISNULL(2), "after");
	dw_refuse_null(PG_ARGISNULL(3), "n");
	dw_cron_read(text_to_cstring(PG_GETARG_TEXT_PP(0)), &cron);
	zone = PG_ARGISNULL(1) ? session_timezone : dw_time_zone(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	t = PG_GETARG_TIMESTAMPTZ(2);
	if (TIMESTAMP_NOT_FINITE(t))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("after must be finite"),
				 errhint("The function returns the times after this time.")));
	n = PG_GETARG_INT32(3);
	if (n < 1 || n > MAX_TIMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("n must be between %d and %d", 1, MAX_TIMES),
				 errhint("For later times, pass a later value of after.")));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < n && dw_cron_next(&cron, zone, t, &t); i++)
	{
		CHECK_FOR_INTERRUPTS();
		dw_put_row(fcinfo, DW_TIME(t));
	}
	return (Datum) 0;
}
