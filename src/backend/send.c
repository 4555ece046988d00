/*-------------------------------------------------------------------------
 *
 * send.c
 *	  delay_send() and delay_put_message(): send a message into an external queue.
 *
 * Run by sessions, and by executors whose tasks call it.  A message is a task with a
 * payload in place of SQL: the options are those of delay_schedule_task(), and are read
 * by the same code.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "../base/errors.h"
#include "../rows/catalog.h"
#include "../task/new_task.h"
#include "options.h"
#include "schedule.h"

PG_FUNCTION_INFO_V1(dw_send);
PG_FUNCTION_INFO_V1(dw_put_message);

/*
 * The arguments of delay_send(), in the order of the install script: which argument of
 * delay_schedule_task() each one is.  The payload, argument PAYLOAD, is none.
 */
static const int option_of[] = {
	DW_ARG_QUEUE, -1, DW_ARG_DELAY, DW_ARG_DUE, DW_ARG_KEY, DW_ARG_IF_EXISTS, DW_ARG_TAG,
	DW_ARG_PRIORITY, DW_ARG_MAX_ATTEMPTS, DW_ARG_RETRY_DELAY, DW_ARG_EXPIRES,
	DW_ARG_SKIP_AFTER, DW_ARG_NOTIFY, DW_ARG_ON_SUCCESS, DW_ARG_ON_FAILURE,
	DW_ARG_RETRY_BACKOFF, DW_ARG_RETRY_MAX_DELAY, DW_ARG_UNIQUE_FOR, DW_ARG_GROUP_KEY
};

#define PAYLOAD		1

/* Makes a message of the arguments of delay_send().  An invalid one raises an error. */
static void
read_message(FunctionCallInfo fcinfo, DwNewTask *message)
{
	LOCAL_FCINFO(options, DW_NARGS);

	dw_refuse_null(PG_ARGISNULL(0), "queue name");
	dw_refuse_null(PG_ARGISNULL(PAYLOAD), "payload");
	InitFunctionCallInfoData(*options, fcinfo->flinfo, DW_NARGS, InvalidOid, NULL, NULL);
	for (int i = 0; i < DW_NARGS; i++)
		options->args[i].isnull = true;
	for (int i = 0; i < lengthof(option_of); i++)
		if (option_of[i] >= 0)
			options->args[option_of[i]] = fcinfo->args[i];
	dw_options_read_message(options, PG_GETARG_DATUM(PAYLOAD), message);
}

/* SQL function delay_send(). */
Datum
dw_send(PG_FUNCTION_ARGS)
{
	DwNewTask	message;

	dw_require_writable("delay_send()");
	read_message(fcinfo, &message);
	PG_RETURN_INT64(dw_schedule_new(&message, DW_SQL_CHECKED));
}

/* SQL function delay_put_message(): as delay_send(), and tells what it has done. */
Datum
dw_put_message(PG_FUNCTION_ARGS)
{
	DwNewTask	message;

	dw_require_writable("delay_put_message()");
	read_message(fcinfo, &message);
	return dw_schedule_and_tell(fcinfo, &message, DW_SQL_CHECKED);
}
