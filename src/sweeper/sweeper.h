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

/* Rows that go by a time. */
typedef struct DwAged
{
	DwJob		job;
	size_t		table;			/* place of its OID in DwCatalog */
	size_t		index;			/* the same of an index that begins with the time */
	AttrNumber	column;			/* of the time */
	TimestampTz reached;		/* where the next slice of this pass begins */
} DwAged;

extern TimestampTz dw_aged_remove(DwDatabase *db, DwAged *kind, int64 age, bool *more);
extern TimestampTz dw_periods_end(DwDatabase *db, bool *more);

/*---- leases.c: the sweeper ends messages whose last lease has ended ----*/

extern TimestampTz dw_leases_end(DwDatabase *db, bool *more);

/*---- leases.c: the sweeper notifies channels of queues ----*/

extern TimestampTz dw_queues_notify(DwDatabase *db, bool *more);

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
