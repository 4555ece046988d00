/*-------------------------------------------------------------------------
 *
 * local.c
 *	  delay_schedule_local(): schedules a task for a local time of a time zone.
 *
 * Run by sessions, and by executors whose tasks call it.  The options are those of
 * delay_schedule_task(), but for delay and due, and are read by the same code.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../recurring/cron_times.h"
#include "../recurring/local_time.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "../task/my_session.h"
#include "../task/new_task.h"
#include "options.h"
#include "schedule.h"

PG_FUNCTION_INFO_V1(dw_schedule_local);

/* The arguments, in the order of the install script; those of OPTIONS follow. */
#define LOCAL_TIME		0
#define TIME_ZONE		1
#define OPTIONS			2

/* Reads the options; returns the number of the arguments of the SQL. */
static int
read_task_options(FunctionCallInfo fcinfo, DwNewTask *task)
{
	LOCAL_FCINFO(options, DW_NARGS);
	int			from = OPTIONS;

	InitFunctionCallInfoData(*options, fcinfo->flinfo, DW_NARGS, InvalidOid, NULL, NULL);
	for (int i = 0; i < DW_NARGS; i++)
		if (i == DW_ARG_DELAY || i == DW_ARG_DUE)
			options->args[i].isnull = true;
		else
			options->args[i] = fcinfo->args[from++];
	Assert(from == PG_NARGS());
	return dw_options_read(options, task);
}

/* Reads when the task is due. */
static void
read_local_time(FunctionCallInfo fcinfo, DwLocalTime *local)
{
	dw_refuse_null(PG_ARGISNULL(LOCAL_TIME), "local time");
	dw_refuse_null(PG_ARGISNULL(TIME_ZONE), "time zone");
	local->time = PG_GETARG_TIMESTAMP(LOCAL_TIME);
	local->zone = text_to_cstring(PG_GETARG_TEXT_PP(TIME_ZONE));
	if (TIMESTAMP_NOT_FINITE(local->time))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("local time must not be infinite")));
	if (!dw_local_instant(local->time, dw_time_zone(local->zone), &local->instant))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("local time is out of range")));
}

/* SQL function delay_schedule_local(). */
Datum
dw_schedule_local(PG_FUNCTION_ARGS)
{
	DwDatabase *db;
	DwLocalTime local;
	DwNewTask	task;
	int			nargs;
	int64		id;

	dw_require_writable("delay_schedule_local()");
	read_local_time(fcinfo, &local);
	nargs = read_task_options(fcinfo, &task);
	task.due = local.instant;
	dw_local_time_write(task.values, task.nulls, &local);
	id = dw_schedule_new(&task, nargs);
	/* after the row is there: the sweeper counts rows of open transactions, too */
	db = dw_my_database();
	if (db != NULL)
		dw_ask_sweeper(db, DW_JOB_LOCAL, dw_time_add(dw_now(), USECS_PER_DAY));
	PG_RETURN_INT64(id);
}
