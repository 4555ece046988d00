/*-------------------------------------------------------------------------
 *
 * load.h
 *	  Loading tasks of the near future from the table into memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOAD_H
#define DW_LOAD_H

#include "postgres.h"

#include "storage/itemptr.h"

#include "../shmem/shared.h"

extern void dw_load_reset(DwDatabase *database);
extern bool dw_load_hinted(const DwHint *hints, int n, DwEntry *entries, ItemPointerData *tids);
extern bool dw_load_some(void);
extern TimestampTz dw_load_next(void);
extern void dw_load_settings_changed(void);
extern void dw_load_tidy(void);
extern TimestampTz dw_load_first_due(void);
extern void dw_load_rest(TimestampTz until);

#endif							/* DW_LOAD_H */
