/*-------------------------------------------------------------------------
 *
 * history_tables.h
 *	  The tables of delay_wheel.history: which one is written, and when old
 *	  ones are emptied.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_HISTORY_TABLES_H
#define DW_HISTORY_TABLES_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_history_turn(DwDatabase *db, bool *more);

#endif							/* DW_HISTORY_TABLES_H */
