/*-------------------------------------------------------------------------
 *
 * call_sweeper.h
 *	  The timer starts the sweeper when there is something to remove.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CALL_SWEEPER_H
#define DW_CALL_SWEEPER_H

#include "postgres.h"

#include "../shmem/shared.h"

/*
 * For timers: starts the sweeper if there is something to remove.  Returns
 * when it wants to be called again.
 */
extern TimestampTz dw_sweeper_look(DwDatabase *db, bool changed);

/* For timers: an owner needs a background worker.  One that waits ends, for some time. */
extern void dw_sweeper_ask_to_make_way(DwDatabase *db);

/* For timers: has the sweeper's background worker ended since it was asked last? */
extern bool dw_sweeper_worker_ended(DwDatabase *db);

#endif							/* DW_CALL_SWEEPER_H */
