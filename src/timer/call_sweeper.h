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

extern TimestampTz dw_sweeper_look(DwDatabase *db, bool changed);
extern bool dw_sweeper_worker_ended(DwDatabase *db);

#endif							/* DW_CALL_SWEEPER_H */
