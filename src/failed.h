/*-------------------------------------------------------------------------
 *
 * failed.h
 *	  How long failed tasks are kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FAILED_H
#define DW_FAILED_H

#include "shared.h"

/* So many failures were recorded, and committed: counts them. */
extern void dw_failed_recorded(DwDatabase *db, uint64 n);

/* For timers and the sweeper: at their start, or when the clock was set; when settings may have changed. */
extern void dw_failed_begin(DwDatabase *db);
/* True if they have: then the sweeper begins anew, see dw_failed_restart(). */
extern bool dw_failed_obey_settings(DwDatabase *db);
/* For the sweeper: what it has counted does not hold any more. */
extern void dw_failed_restart(void);

/*
 * For the sweeper: removes failed tasks that are too old or too many, a slice
 * of them, in a transaction of its own.  Sets *more if there is more to do at
 * once; if not, returns when there will be, as far as is known by now.
 */
extern TimestampTz dw_failed_trim(bool *more);

/* Asks for the sweeper to look at failed tasks at that time. */
extern void dw_failed_ask(DwDatabase *db, TimestampTz at);

#endif							/* DW_FAILED_H */
