/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  Functions that the files of the sweeper share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_H
#define DW_SWEEPER_H

#include "postgres.h"

#include "access/table.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../ending/ending.h"
#include "../shmem/shared.h"

extern PGDLLEXPORT void dw_sweeper_main(Datum number);

/*---- aged_rows.c: removes rows whose time has come, in slices ----*/

/* A kind of rows that are removed after a time. */
typedef struct DwAged
{
	DwJob		job;
	size_t		table;			/* offset of the table's OID in DwCatalog */
	size_t		index;			/* offset of the OID of an index whose first column is the time */
	AttrNumber	column;			/* table's column of the time */
	TimestampTz reached;		/* where the next slice of this pass begins */
} DwAged;

extern TimestampTz dw_aged_remove(DwDatabase *db, DwAged *kind, int64 age);
extern TimestampTz dw_periods_end(DwDatabase *db);

/*
 * Does the work of a slice, in the transaction of dw_slice_do().  "state" belongs to the caller.
 * Returns false if the job cannot be done now, since a table is locked.
 */
typedef bool (*DwSliceWork) (DwDatabase *db, const DwCatalog *cat, void *state);

extern bool dw_slice_do(DwDatabase *db, DwSliceWork work, void *state);
extern Relation dw_slice_open(Oid table);
extern void dw_slice_close(Relation rel);
extern bool dw_slice_open_both(Oid table, Oid index, Relation *rel, Relation *index_rel);
extern void dw_slice_close_both(Relation rel, Relation index_rel);

/*---- leases.c: jobs for messages ----*/

extern TimestampTz dw_leases_end(DwDatabase *db);
extern TimestampTz dw_queues_notify(DwDatabase *db);
extern TimestampTz dw_rollbacks_end(DwDatabase *db);

/*---- sweep.c: removes the rows of cancelled tasks, and then the marks ----*/

extern void dw_sweep_begin(DwDatabase *database);
extern TimestampTz dw_sweep_some(void);

#endif							/* DW_SWEEPER_H */
