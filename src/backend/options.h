/*-------------------------------------------------------------------------
 *
 * options.h
 *	  Reads the options of delay_schedule_task().
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OPTIONS_H
#define DW_OPTIONS_H

#include "postgres.h"

#include "fmgr.h"

#include "../rows/task_rows.h"

/* The arguments of delay_schedule_task(), in the order of the install script */
enum
{
	DW_ARG_SQL,
	DW_ARG_ARGS,
	DW_ARG_ARG_TYPES,
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
	DW_NARGS
};

extern void dw_options_read(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
extern void dw_options_read_more(FunctionCallInfo fcinfo, int first, Datum *values, bool *nulls);
extern int16 dw_option_priority(FunctionCallInfo fcinfo);
extern DwIfExists dw_option_if_exists(FunctionCallInfo fcinfo);
extern DwIfExists dw_if_exists_named(const char *name);
extern void dw_option_refuse_long(const text *value, const char *name);
extern void dw_option_check_text(const text *value, const char *name);
extern text *dw_option_text(FunctionCallInfo fcinfo, int number, const char *name);

#endif							/* DW_OPTIONS_H */
