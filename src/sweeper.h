/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  The process that removes rows of cancelled and of old failed tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_H
#define DW_SWEEPER_H

#include "shared.h"

/*
 * For timers: starts the sweeper if there is something to remove.  Returns
 * when it wants to be called again.
 */
extern TimestampTz dw_sweeper_look(DwDatabase *db, bool changed);

/* For timers: an owner needs a background worker.  One that waits ends, for some time. */
extern void dw_sweeper_ask_to_make_way(DwDatabase *db);

/* For timers: has the sweeper's background worker ended since it was asked last? */
extern bool dw_sweeper_worker_ended(DwDatabase *db);

extern PGDLLEXPORT void dw_sweeper_main(Datum number);

#endif							/* DW_SWEEPER_H */
