/*-------------------------------------------------------------------------
 *
 * give_way.h
 *	  Long tasks give way to who waits for a lock on delay_wheel's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GIVE_WAY_H
#define DW_GIVE_WAY_H

#include "shared.h"

/*
 * Looks, if it is time, whether somebody waits behind a long task, and puts
 * it back.  Returns when to look again; DW_NEVER if nothing runs.
 */
extern TimestampTz dw_give_way(DwDatabase *db);

/* Who waits for a lock of this transaction that keeps tasks from running; 0 if nobody does. */
extern pid_t dw_who_waits_for_us(void);

#endif							/* DW_GIVE_WAY_H */
