/*-------------------------------------------------------------------------
 *
 * more.h
 *	  What few tasks have: the column "more" of a task's row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_MORE_H
#define DW_MORE_H

#include "postgres.h"

/* Its keys. */
#define DW_MORE_LAST_ERROR	"last_error"	/* text: of the last attempt */
#define DW_MORE_SKIP_AFTER	"skip_after"	/* number: us after the due time */
#define DW_MORE_NOTIFY		"notify"	/* text: a channel */
#define DW_MORE_ON_SUCCESS	"on_success"	/* text: SQL */
#define DW_MORE_ON_FAILURE	"on_failure"	/* text: SQL */
#define DW_MORE_MODE		"mode"	/* text, see autonomous.h */
#define DW_MORE_RECURRING	"recurring" /* number, see recurring.h */

/* The option mode. */
typedef enum DwMode
{
	DW_IN_TRANSACTION,			/* as ordinary tasks */
	DW_AT_MOST_ONCE,
	DW_AT_LEAST_ONCE
} DwMode;

/*
 * These take the columns of a row of delay_wheel.task or failed_task by its
 * values and nulls, and the number of the column "more" in it.
 *
 * What is there is not to be trusted: it may have been written by plain SQL.
 * So what is not of the right type counts as not there, and is no error.
 */
extern bool dw_more_has(const Datum *values, const bool *nulls, int column, const char *key);
extern char *dw_more_text(const Datum *values, const bool *nulls, int column, const char *key);
extern bool dw_more_number(const Datum *values, const bool *nulls, int column, const char *key,
						   int64 *number);

/* Is there room for so many bytes more? */
extern bool dw_more_has_room(const Datum *values, const bool *nulls, int column, Size bytes);
extern void dw_more_set_text(Datum *values, bool *nulls, int column, const char *key,
							 const char *text);
extern void dw_more_set_number(Datum *values, bool *nulls, int column, const char *key,
							   int64 number);
extern void dw_more_remove(Datum *values, bool *nulls, int column, const char *key);
extern DwMode dw_mode(const Datum *values, const bool *nulls);
extern DwMode dw_mode_named(const char *name);

#endif							/* DW_MORE_H */
