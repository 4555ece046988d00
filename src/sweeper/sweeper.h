/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  What the sweeper and its jobs offer to each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_H
#define DW_SWEEPER_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "../rows/catalog.h"
#include "../shmem/shared.h"

extern PGDLLEXPORT void dw_sweeper_main(Datum number);

/*---- aged_rows.c: the sweeper removes rows whose time has come ----*/

extern TimestampTz dw_periods_end(DwDatabase *db, bool *more);
extern TimestampTz dw_audit_trim(DwDatabase *db, bool *more);

/*---- failed.c: how long failed tasks are kept ----*/

extern void dw_failed_restart(void);
extern TimestampTz dw_failed_trim(DwDatabase *db, bool *more);

/*---- history_tables.c ----*/

extern TimestampTz dw_history_turn(DwDatabase *db, bool *more);

/*---- leases.c: the sweeper ends messages whose last lease has ended ----*/

extern TimestampTz dw_leases_end(DwDatabase *db, bool *more);

/*---- local_times.c: the sweeper moves tasks whose local time has got another instant ----*/

extern TimestampTz dw_local_times_follow(DwDatabase *db, bool *more);

/*---- leases.c: the sweeper notifies channels of queues ----*/

extern TimestampTz dw_queues_notify(DwDatabase *db, bool *more);

/*---- repair.c ----*/

extern TimestampTz dw_recurring_repair(DwDatabase *db);

/*---- leases.c: the sweeper counts attempts whose transactions were rolled back ----*/

extern TimestampTz dw_rollbacks_end(DwDatabase *db, bool *more);

/*---- aged_rows.c: a slice of one of the sweeper's jobs: the transaction around it ----*/

/*
 * The work of a slice, in the transaction of dw_slice_do().  state is the caller's.  Returns
 * false if the job cannot be done now: a table is locked.
 */
typedef bool (*DwSliceWork) (DwDatabase *db, const DwCatalog *cat, void *state);

extern bool dw_slice_do(DwDatabase *db, DwSliceWork work, void *state);
extern Relation dw_slice_open(Oid table);
extern void dw_slice_close(Relation rel);
extern bool dw_slice_open_both(Oid table, Oid index, Relation *rel, Relation *index_rel);
extern void dw_slice_close_both(Relation rel, Relation index_rel);

/*---- sweep.c: removing the rows of cancelled tasks, and then the marks ----*/

extern void dw_sweep_begin(DwDatabase *database);
extern TimestampTz dw_sweep_some(void);

#endif							/* DW_SWEEPER_H */
