/*-------------------------------------------------------------------------
 *
 * give_way.h
 *	  Long tasks give way to sessions that wait for a lock on delay_wheel's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GIVE_WAY_H
#define DW_GIVE_WAY_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_give_way(DwDatabase *db);

#endif							/* DW_GIVE_WAY_H */
