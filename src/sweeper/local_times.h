/*-------------------------------------------------------------------------
 *
 * local_times.h
 *	  The sweeper moves tasks whose local time has got another instant.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOCAL_TIMES_H
#define DW_LOCAL_TIMES_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

extern TimestampTz dw_local_times_follow(DwDatabase *db, bool *more);

#endif							/* DW_LOCAL_TIMES_H */
