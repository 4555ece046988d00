/*-------------------------------------------------------------------------
 *
 * marks.h
 *	  Cancelling many tasks by one mark.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_MARKS_H
#define DW_MARKS_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"

/* A row of delay_wheel_data.cancellation: it cancels the tasks that meet all criteria. */
typedef struct DwMark
{
	int64		id;				/* cancels only tasks with a lower number */
	int64		origin;			/* stamp of the database where the mark was written */
	bool		ours;			/* the mark was written in this database */
	bool		any_owner;		/* cancels tasks of all owners */
	Oid		   *owners;			/* unless any_owner: the owners, sorted */
	int			nowners;
	bool		any_queue;		/* cancels tasks of all queues */
	int16		queue;			/* unless any_queue */
	char	   *tag;			/* NULL: any tag, or none */
	Size		tag_length;
	TimestampTz due_from;		/* range of due times; infinite if not given */
	TimestampTz due_until;		/* exclusive */
} DwMark;

/* The columns of a task that decide whether a mark cancels it. */
typedef struct DwMarkable
{
	int64		number;			/* value of the column "spared"; if null, the task's id */
	int64		origin;
	Oid			owner;
	int16		queue;
	TimestampTz due;
	struct varlena *tag;		/* as in the row, maybe toasted; NULL: none */
} DwMarkable;

extern bool dw_task_is_cancelled(Relation rel, HeapTuple tuple);
extern void dw_marks_spare(Datum *values, bool *nulls);
extern const DwMark *dw_marks(int *n);
extern const DwMark *dw_marks_anew(int *n);
extern bool dw_marks_hit(Relation rel, HeapTuple tuple);
extern void dw_marks_changed(void);
extern void dw_markable(Relation rel, HeapTuple tuple, DwMarkable *task);
extern bool dw_mark_hits(const DwMark *mark, const DwMarkable *task);
extern bool dw_mark_hits_owner(const DwMark *mark, Oid owner);
extern bool dw_mark_hits_lane(const DwMark *mark, int64 origin, Oid owner, int16 queue);
extern HeapTuple dw_mark_take(int64 id);
extern void dw_marks_supersede(int64 id);
extern void dw_marks_armed(void);
extern bool dw_sweep_needed(Relation rel);

#endif							/* DW_MARKS_H */
