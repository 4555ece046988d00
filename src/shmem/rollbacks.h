/*-------------------------------------------------------------------------
 *
 * rollbacks.h
 *	  Messages whose receivers were rolled back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ROLLBACKS_H
#define DW_ROLLBACKS_H

#include "postgres.h"

#include "port/atomics.h"

/*
 * This number of rollbacks in a row has no consequence for a message.  Often the message is not the
 * cause of a rollback, for example in a deployment.  After one more rollback the message is
 * received alone.
 */
#define DW_ROLLBACKS_FREE	2

/* Maximum number of messages whose rollbacks are counted. */
#define DW_ROLLBACKS	1024
/* Maximum number of messages that are left to the sweeper. */
#define DW_TO_SETTLE	256

/* All fields are atomics: sessions write them in callbacks at the end of a transaction. */
typedef struct DwRollbacks
{
	struct
	{
		pg_atomic_uint64 id;	/* id of a message; 0: free */
		pg_atomic_uint32 n;		/* number of rollbacks of its receivers in a row */
	}			seen[DW_ROLLBACKS];	/* index: id % DW_ROLLBACKS */
	pg_atomic_uint64 to_settle[DW_TO_SETTLE];	/* ids; 0: free */
} DwRollbacks;

extern void dw_rollbacks_init(DwRollbacks *rollbacks);
extern uint32 dw_rollback_note(DwRollbacks *rollbacks, int64 id);
extern uint32 dw_rollbacks_of(DwRollbacks *rollbacks, int64 id);
extern void dw_rollback_forget(DwRollbacks *rollbacks, int64 id);
extern bool dw_rollback_hand_over(DwRollbacks *rollbacks, int64 id);
extern int64 dw_rollback_to_settle(DwRollbacks *rollbacks);
extern void dw_rollback_settled(DwRollbacks *rollbacks, int64 id);

#endif							/* DW_ROLLBACKS_H */
