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

extern PGDLLEXPORT void dw_sweeper_main(Datum number);

#endif							/* DW_SWEEPER_H */
