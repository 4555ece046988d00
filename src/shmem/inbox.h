/*-------------------------------------------------------------------------
 *
 * inbox.h
 *	  The inbox of a database: hints from sessions to the timer about tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_INBOX_H
#define DW_INBOX_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "storage/spin.h"

/* A reference to a lane.  The reference is stale if the lane's generation has changed. */
typedef struct DwLaneRef
{
	uint16		index;
	uint32		generation;
} DwLaneRef;

/*
 * A hint: a session that committed a task gives the timer the task's key and TID.  A hint may come
 * twice or be wrong.  This is harmless, since the executor that takes the task reads the row.  If a
 * hint is lost, the session must request a reload of the lane instead.
 */
typedef struct DwHint
{
	TimestampTz due;
	int64		id;
	ItemPointerData tid;
	uint16		loads;			/* low bits of the number of the last load whose snapshot may miss
								 * the row, see timer/hints.c */
	DwLaneRef	lane;
} DwHint;

/* A ring buffer of dw_inbox_size hints. */
typedef struct DwInbox
{
	slock_t		lock;
	uint32		head;			/* index of the oldest hint */
	uint32		count;
	DwHint		hints[FLEXIBLE_ARRAY_MEMBER];
} DwInbox;

extern Size dw_inbox_bytes(void);
extern void dw_inbox_init(DwInbox *inbox);
extern bool dw_inbox_push(DwInbox *inbox, const DwHint *hint, bool *crowded);
extern uint32 dw_inbox_drain(DwInbox *inbox, DwHint *hints, uint32 max);
extern bool dw_inbox_is_empty(DwInbox *inbox);

/*---- The last problem of a database, for the view status ----*/

typedef struct DwProblem
{
	slock_t		lock;
	TimestampTz at;
	char		text[256];		/* empty if no problem has occurred */
	int			plain;			/* length of the part that quotes no error message */
} DwProblem;

extern void dw_problem_init(DwProblem *problem);
extern void dw_problem(DwProblem *problem, const char *text);
extern void dw_problem_quoting(DwProblem *problem, const char *text, const char *quoted);
extern TimestampTz dw_problem_read(DwProblem *problem, char *text, Size size, bool all);

#endif							/* DW_INBOX_H */
