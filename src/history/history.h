/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Records of ends of tasks, and of actions of roles.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_HISTORY_H
#define DW_HISTORY_H

#include "postgres.h"

#include "storage/block.h"
#include "utils/snapshot.h"

#include "../base/wing.h"
#include "../task/task.h"

/*---- record.c: delay_wheel.history ----*/

/* The maximum age of rows, in us, and the maximum size of all tables, in pages. */
#define dw_history_max_age_us()		((int64) dw_history_max_age * USECS_PER_MINUTE)
#define dw_history_max_pages()		((BlockNumber) (dw_history_max_size / (BLCKSZ / 1024)))

/* Age, in us, at which the next table replaces the current table. */
#define dw_history_turn_us()		(dw_history_max_age_us() / 3)

/* The end of a task in the history. */
typedef struct DwHistoryEnd
{
	DwOutcome	outcome;		/* DW_NOT_ENDED: no end is recorded, but perhaps failed attempts */
	TimestampTz ended;			/* time of the end, or of the latest failed attempt */
	int16		attempt;		/* number of the attempt; 0 if the task was not run */
	char	   *sqlstate;		/* SQLSTATE of its error, or NULL */
	char	   *message;
} DwHistoryEnd;

extern int	dw_history_max_result(int16 queue);
extern bool dw_history_wants(int16 queue, int outcome);
extern void dw_history_record(const DwEnded *ended);
extern bool dw_history_may_record(Relation rel, HeapTuple row);
extern void dw_history_collect(void);
extern void dw_history_write_collected(void);
extern void dw_history_forget(void);
extern const char *dw_history_newest_end(int64 id);
extern void dw_history_find(int64 id, Snapshot snapshot, DwHistoryEnd *end);
extern BlockNumber dw_history_turn_pages(BlockNumber room);
extern int dw_history_read_current(Oid sequence);
extern void dw_history_set_full(DwDatabase *db, bool full);

/*---- audit.c: delay_wheel.audit ----*/

extern void dw_audit_record(const DwAction *action);
extern TimestampTz dw_audit_trim(DwDatabase *db);

extern const DwWing dw_history_wing;

#endif							/* DW_HISTORY_H */
