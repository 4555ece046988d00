/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  Asking the sweeper to look for old rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RETENTION_H
#define DW_RETENTION_H

#include "postgres.h"

#include "../shmem/shared.h"

extern void dw_retention_begin(DwDatabase *db);
extern bool dw_retention_obey_settings(DwDatabase *db);
extern void dw_retention_tell_settings(DwDatabase *db);
extern bool dw_retention_missed_reload(DwDatabase *db);

#endif							/* DW_RETENTION_H */
