/*-------------------------------------------------------------------------
 *
 * give_way.h
 *	  Long tasks give way to who waits for a lock on delay_wheel's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GIVE_WAY_H
#define DW_GIVE_WAY_H

#include "postgres.h"

#include "../shmem/shared.h"

/*
 * Looks, if it is time, whether somebody waits behind a long task, and puts
 * it back.  Returns when to look again; DW_NEVER if nothing runs.
 */
extern TimestampTz dw_give_way(DwDatabase *db);

#endif							/* DW_GIVE_WAY_H */
