/*-------------------------------------------------------------------------
 *
 * rollbacks_end.h
 *	  The sweeper counts attempts whose transactions were rolled back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ROLLBACKS_END_H
#define DW_ROLLBACKS_END_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_rollbacks_end(DwDatabase *db, bool *more);

#endif							/* DW_ROLLBACKS_END_H */
