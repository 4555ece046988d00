/*-------------------------------------------------------------------------
 *
 * waiters.h
 *	  Slots of sessions that wait in delay_wait().
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WAITERS_H
#define DW_WAITERS_H

#include "postgres.h"

#include "outcome.h"
#include "shared.h"

/* How long a row that was deleted by plain SQL is waited for at most. */
#define DW_WAIT_LOOK_US		USECS_PER_MINUTE

typedef struct DwWaiter
{
	slock_t		lock;
	Oid			database;		/* InvalidOid: it does not wait */
	int64		id;
	DwOutcome	outcome;
	bool		let_go;			/* who ended it has no locks any more */
	bool		look;
} DwWaiter;
extern DwWaiter *dw_my_waiter(void);
extern void dw_wait_begin(DwDatabase *db, int64 id);
extern void dw_wait_end(int code, Datum db);
extern DwOutcome dw_wait_read(bool *look);
extern Size dw_wait_size(void);
extern void dw_wait_attach(void);

/*
 * For callbacks: a task has ended, which those who wait return when they are
 * let go; or they are to look at their tasks' rows, since something concerns
 * many of them.
 */
extern void dw_tell_waiters(DwDatabase *db, int64 id, DwOutcome outcome);
extern void dw_let_waiters_go(DwDatabase *db, int64 id);
extern void dw_make_waiters_look(DwDatabase *db);

#endif							/* DW_WAITERS_H */
