/*-------------------------------------------------------------------------
 *
 * receivers.h
 *	  Sessions that receive messages, and sessions that wait for a message.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECEIVERS_H
#define DW_RECEIVERS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "queue_limits.h"
#include "shared.h"

/* If a woken session has not looked for a message within this time, another session is woken. */
#define DW_WAKE_AGAIN_US	(50 * 1000)

/* After this time, a task or receiver that blocks other processes by its locks is terminated. */
#define DW_GIVE_WAY_US		(500 * 1000)

extern void dw_receivers_request(void);
extern void dw_receivers_init(void);

extern void dw_receiver_publish(TransactionId xid);
extern void dw_receiver_withdraw(void);
extern bool dw_xid_receives(TransactionId xid);
extern TimestampTz dw_receivers_oldest(DwDatabase *db);
extern bool dw_receiver_terminate(DwDatabase *db, pid_t pid, TimestampTz by);

/* Maximum number of queues for which a session can wait at once. */
#define DW_MAX_AWAITED	32

extern void dw_await_enter(DwDatabase *db, const int16 *queues, int n);
extern bool dw_await_leave(DwDatabase *db);
extern bool dw_await_wake_one(DwQueue *queue);
extern bool dw_await_end(DwDatabase *db, pid_t pid);
extern void dw_await_wake_all(DwDatabase *db);

#endif							/* DW_RECEIVERS_H */
