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

/* A row of delay_wheel.cancellation. */
typedef struct DwMark
{
	int64		id;				/* hits tasks with lower numbers */
	int64		origin;
	bool		ours;			/* made in this database */
	bool		any_owner;
	Oid		   *owners;			/* else these, sorted */
	int			nowners;
	bool		any_queue;
	int16		queue;
	char	   *tag;			/* NULL: any */
	Size		tag_length;
	TimestampTz due_from;
	TimestampTz due_until;		/* exclusive */
} DwMark;

/* What marks ask of a task. */
typedef struct DwMarkable
{
	int64		number;			/* its id, or up to where it is spared */
	int64		origin;
	Oid			owner;
	int16		queue;
	TimestampTz due;
	struct varlena *tag;		/* NULL: none */
} DwMarkable;
extern void dw_marks_install(void);
extern bool dw_task_is_cancelled(Relation rel, HeapTuple tuple);
extern int64 dw_mark_on_row(const Datum *values, const bool *nulls);
extern const DwMark *dw_marks(int *n);
/*
 * The same, none of them gone before this call: for many rows of one snapshot
 * that was taken before.  Rows that were moved by then are spared by what there
 * was, so that dw_marks_hit() is enough for them.
 */
extern const DwMark *dw_marks_anew(int *n);
extern bool dw_marks_hit(Relation rel, HeapTuple tuple);
extern void dw_marks_touched(void);
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
