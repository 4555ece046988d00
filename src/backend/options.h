/*-------------------------------------------------------------------------
 *
 * options.h
 *	  Makes a task of the arguments of delay_schedule_task().
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OPTIONS_H
#define DW_OPTIONS_H

#include "postgres.h"

#include "fmgr.h"

#include "../rows/task_rows.h"
#include "../task/new_task.h"

/* The arguments of delay_schedule_task(), in the order of the install script */
enum
{
	DW_ARG_SQL,
	DW_ARG_ARGS,
	DW_ARG_ARG_TYPES,
	DW_ARG_NAMED,
	DW_ARG_DELAY,
	DW_ARG_DUE,
	DW_ARG_KEY,
	DW_ARG_IF_EXISTS,
	DW_ARG_QUEUE,
	DW_ARG_TAG,
	DW_ARG_PRIORITY,
	DW_ARG_MAX_ATTEMPTS,
	DW_ARG_RETRY_DELAY,
	DW_ARG_TIMEOUT,
	DW_ARG_EXPIRES,
	DW_ARG_SKIP_AFTER,
	DW_ARG_NOTIFY,
	DW_ARG_ON_SUCCESS,
	DW_ARG_ON_FAILURE,
	DW_ARG_MODE,
	DW_ARG_RETRY_BACKOFF,
	DW_ARG_RETRY_MAX_DELAY,
	DW_ARG_RETRY_ON,
	DW_ARG_GIVE_UP_ON,
	DW_ARG_KEEP_SETTINGS,
	DW_ARG_UNIQUE_FOR,
	DW_ARG_CHECK_SQL,
	DW_ARG_GROUP_KEY,
	DW_NARGS
};

extern int	dw_options_read(FunctionCallInfo fcinfo, DwNewTask *task);
extern void dw_options_read_message(FunctionCallInfo fcinfo, Datum payload, DwNewTask *task);
extern void dw_option_refuse_long_json(Datum json, const char *what);
extern void dw_new_task_payload(DwNewTask *task, Datum payload);
extern void dw_new_task_queue(DwNewTask *task, const char *name, int16 priority);
extern int32 dw_option_number(FunctionCallInfo fcinfo, int number, const char *name, int32 low,
							  int32 high);
extern int64 dw_option_pause(FunctionCallInfo fcinfo, int number, const char *name);
extern int64 dw_option_lease(FunctionCallInfo fcinfo, int number, const char *name);
extern int32 dw_option_timeout(FunctionCallInfo fcinfo, int number, const char *name);
extern DwIfExists dw_if_exists_named(const char *name);
extern void dw_option_refuse_both(bool named, bool args);
extern void dw_option_refuse_long(const text *value, const char *name);
extern void dw_option_check_text(const text *value, const char *name);
extern text *dw_option_text(FunctionCallInfo fcinfo, int number, const char *name);

#endif							/* DW_OPTIONS_H */
