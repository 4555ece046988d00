/*-------------------------------------------------------------------------
 *
 * orphans.h
 *	  Tasks of roles that do not exist any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ORPHANS_H
#define DW_ORPHANS_H

#include "postgres.h"

#include "../shmem/shared.h"

extern void dw_orphans_reset(DwDatabase *database);

/*
 * The owner does not exist: its lanes get no executor any more, and their
 * tasks become failed ones.  For the timer, outside of locks.
 */
extern void dw_owner_dropped(DwDatabase *database, Oid owner);

/* The owners of all lanes are to be looked at. */
extern void dw_orphans_check_all(void);

/* Does a slice of what is to be done; true if there is more to do at once. */
extern bool dw_orphans_some(void);

/* When there is something to do next, if nobody lowers anything. */
extern TimestampTz dw_orphans_next(void);

/* The lane may have tasks that nobody has moved yet, if it is an orphan. */
extern void dw_orphans_wanted(const DwLane *lane);

/* The lane is just being emptied: it must not be given back. */
extern bool dw_orphans_holds(const DwLane *lane);

#endif							/* DW_ORPHANS_H */
