/*-------------------------------------------------------------------------
 *
 * history_tables.h
 *	  The tables of delay_wheel.history: which one is written, and how they
 *	  are kept within bounds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_HISTORY_TABLES_H
#define DW_HISTORY_TABLES_H

#include "postgres.h"

/*---- For the sweeper ----*/

/*
 * Empties a table whose time has come, or goes on to the next one, in a
 * transaction of its own.  Sets *more if there is more to do at once; if not,
 * returns when there will be, as far as is known by now.
 */
extern TimestampTz dw_history_turn(bool *more);

#endif							/* DW_HISTORY_TABLES_H */
