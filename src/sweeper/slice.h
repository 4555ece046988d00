/*-------------------------------------------------------------------------
 *
 * slice.h
 *	  A slice of one of the sweeper's jobs: the transaction around it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SLICE_H
#define DW_SLICE_H

#include "postgres.h"

#include "utils/relcache.h"

#include "../rows/catalog.h"
#include "../shmem/shared.h"

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

#endif							/* DW_SLICE_H */
