/*-------------------------------------------------------------------------
 *
 * loaded.h
 *	  Rows that loads have read of late, so that their hints are superfluous.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOADED_H
#define DW_LOADED_H

#include "postgres.h"

#include "../rows/task_rows.h"
#include "../shmem/shared.h"

extern void dw_loaded_reset(DwDatabase *database);
extern void dw_loaded_begin(void);
extern void dw_loaded_note(const DwTaskKey *key);
extern bool dw_loaded_has(const DwHint *hint);

#endif							/* DW_LOADED_H */
