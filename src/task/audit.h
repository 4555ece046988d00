/*-------------------------------------------------------------------------
 *
 * audit.h
 *	  The audit: who has done what to tasks and queues.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_AUDIT_H
#define DW_AUDIT_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "../base/settings.h"

/* What was done.  All that is zero or NULL is null in the row, but for the owner. */
typedef struct DwAction
{
	const char *what;			/* the name of the function, without delay_ */
	int64		task;
	Oid			owner;			/* whose task it is; InvalidOid: the current user */
	int16		queue;			/* with_queue: the queue of the task */
	bool		with_queue;
	TimestampTz due;
	int64		rows;			/* how many tasks, or rows of plain SQL */
	const text *key;
	const text *tag;
	const char *name;			/* of a queue, a recurring task, or a table */
	const char *detail;
} DwAction;

/* True if actions of this level are recorded: all that it costs where they are not. */
#define dw_audits(level)	unlikely(dw_audit >= (level))

extern void dw_audit_write(const DwAction *action);
extern void dw_audit_task(const char *what, const Datum *values, const bool *nulls,
						  TimestampTz due, const char *detail);
extern void dw_audit_row(const char *what, Relation rel, HeapTuple tuple, TimestampTz due,
						 const char *detail);
extern void dw_audit_count(Relation rel);

#endif							/* DW_AUDIT_H */
