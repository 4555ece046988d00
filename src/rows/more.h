/*-------------------------------------------------------------------------
 *
 * more.h
 *	  The column "more" of a task's row: options that few tasks have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_MORE_H
#define DW_MORE_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/jsonb.h"

/* The keys of the column, a jsonb object. */
#define DW_MORE_LAST_ERROR	"last_error"	/* text: error of the last attempt */
#define DW_MORE_LOST		"lost"	/* number: how often the task was put back because it had lost
									 * its connection to another node */
#define DW_MORE_SNOOZES		"snoozes"	/* number: how often the task has called delay_snooze() */
#define DW_MORE_SHARD		"shard"	/* number: the shard of Citus whose trigger
									 * scheduled the task */
#define DW_MORE_SKIP_AFTER	"skip_after"	/* number: in us; the task is skipped if it would begin
											 * later than this after its due time */
#define DW_MORE_UNIQUE_FOR	"unique_for"	/* number: how long the task's key is unique after the
											 * call that scheduled the task, in us */
#define DW_MORE_HEADERS		"headers"	/* object: headers of the sender */
#define DW_MORE_RECEIVER		"receiver"	/* text: the last receiver that leased the message */
#define DW_MORE_NOTIFY		"notify"	/* text: channel for a NOTIFY at the end */
#define DW_MORE_ON_SUCCESS	"on_success"	/* text: SQL of a follow-up task */
#define DW_MORE_ON_FAILURE	"on_failure"	/* text: SQL of a follow-up task */
#define DW_MORE_MODE		"mode"	/* text: see DwMode */
#define DW_MORE_RETRY_BACKOFF	"retry_backoff" /* text: see task/attempts.c */
#define DW_MORE_RETRY_MAX_DELAY "retry_max_delay"	/* number: the longest pause, in us; 0: an hour,
													 * or retry_delay if that is longer */
#define DW_MORE_RETRY_ON	"retry_on"	/* text: SQLSTATEs or classes, separated by commas */
#define DW_MORE_GIVE_UP_ON	"give_up_on"	/* text: SQLSTATEs or classes, as in retry_on */
#define DW_MORE_SETTINGS	"settings"	/* object: settings of the caller, see
										 * statement/kept_settings.c */
#define DW_MORE_NOT_BEFORE	"not_before"	/* number, a timestamptz: no attempt begins before this
											 * time; the task keeps its due time, and so its place
											 * in its group */
#define DW_MORE_LOCAL		"local" /* object: the task's local due time, see
									 * recurring/local_times.c; an index names this key */
#define DW_MORE_RECURRING	"recurring" /* number: id of the recurring task, if this task is one of
										 * its runs */

/* The option mode: how the task's statement is run, see executor/autonomous.c. */
typedef enum DwMode
{
	DW_IN_TRANSACTION,			/* in the transaction that deletes the row (default) */
	DW_AT_MOST_ONCE,			/* outside of a transaction; not again after a crash */
	DW_AT_LEAST_ONCE			/* outside of a transaction; again after a crash */
} DwMode;

/* Lengths of an SQLSTATE, and of its class, the first characters. */
#define DW_STATE_LENGTH	5
#define DW_CLASS_LENGTH	2

/* How the pause before further attempts grows. */
typedef enum DwBackoff
{
	DW_EXPONENTIAL,				/* doubled each time; the default */
	DW_LINEAR,					/* retry_delay times the number of failed attempts */
	DW_FIXED					/* retry_delay */
} DwBackoff;

extern bool dw_more_has(const Datum *values, const bool *nulls, int column, const char *key);
extern char *dw_more_text(const Datum *values, const bool *nulls, int column, const char *key);
extern bool dw_more_number(const Datum *values, const bool *nulls, int column, const char *key,
						   int64 *number);
extern Jsonb *dw_more_object(const Datum *values, const bool *nulls, int column, const char *key);
extern bool dw_more_has_room(const Datum *values, const bool *nulls, int column, Size bytes);
extern void dw_more_set_text(Datum *values, bool *nulls, int column, const char *key,
							 const char *text);
extern void dw_more_set_number(Datum *values, bool *nulls, int column, const char *key,
							   int64 number);
extern void dw_more_set_object(Datum *values, bool *nulls, int column, const char *key,
							   Jsonb *object);
extern void dw_more_remove(Datum *values, bool *nulls, int column, const char *key);
extern DwMode dw_mode(const Datum *values, const bool *nulls);
extern DwMode dw_mode_named(const char *name);
extern DwBackoff dw_backoff_named(const char *name, bool strict);
extern void dw_errors_check(ArrayType *errors, const char *option);
extern char *dw_errors_joined(ArrayType *errors);

#endif							/* DW_MORE_H */
