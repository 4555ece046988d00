/*-------------------------------------------------------------------------
 *
 * ends.h
 *	  Consequences of the end of a task: waiting sessions, notifications, follow-ups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ENDS_H
#define DW_ENDS_H

#include "postgres.h"

#include "../base/wing.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../task/task.h"

/*
 * A waiting session reads the row at least once in this time, since no process informs the session
 * when logical replication deletes the row.
 */
#define DW_WAIT_LOOK_US		USECS_PER_MINUTE

/* A slot: the task that one process waits for, and the task's outcome. */
typedef struct DwWaiter
{
	slock_t		lock;
	Oid			database;		/* InvalidOid: the process does not wait */
	int64		id;				/* id of the task */
	DwOutcome	outcome;		/* DW_NOT_ENDED until the task has ended */
	bool		let_go;			/* the transaction that ended the task has released its locks, so
								 * delay_wait() may return */
	bool		look;			/* the session must look at the task's row */
} DwWaiter;

extern DwWaiter *dw_my_waiter(void);
extern void dw_wait_begin(DwDatabase *db, int64 id);
extern void dw_wait_end(int code, Datum db);
extern DwOutcome dw_wait_read(bool *look);

extern const char *dw_outcome_if_ended(int64 id);

extern void dw_ends_follow(const DwEnded *ended);

extern const DwWing dw_ends_wing;

#endif							/* DW_ENDS_H */
