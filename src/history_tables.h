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

#include "shared.h"
#include "storage/block.h"
#include "utils/relcache.h"

/*---- For those who write; the database may be NULL, if it has no place ----*/

/* Opens the table that is written, locked until the end of the transaction. */
extern Relation dw_history_open_current(DwDatabase *db);

/* The same to read, if that is possible at once; NULL if not. */
extern Relation dw_history_try_current(DwDatabase *db);

/* May more be written?  If not, what is to be recorded is lost. */
extern bool dw_history_has_room(DwDatabase *db, Relation rel);

/* Rows were written, the last one to that page. */
extern void dw_history_wrote(DwDatabase *db, Relation rel, BlockNumber page);

/*---- For timers: at their start, and when settings may have changed ----*/

extern void dw_history_begin(DwDatabase *db);
extern void dw_history_obey_settings(DwDatabase *db);

/*---- For the sweeper ----*/

/*
 * Empties a table whose time has come, or goes on to the next one, in a
 * transaction of its own.  Sets *more if there is more to do at once; if not,
 * returns when there will be, as far as is known by now.
 */
extern TimestampTz dw_history_turn(bool *more);

#endif							/* DW_HISTORY_TABLES_H */
