/*-------------------------------------------------------------------------
 *
 * batches.h
 *	  Batches: sets of tasks and messages, and what follows when all of them have ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_BATCHES_H
#define DW_BATCHES_H

#include "postgres.h"

#include "../base/wing.h"
#include "../shmem/parts.h"
#include "../shmem/shared.h"

/* Number of a callback's arguments: id, name, total, done, failed, cancelled, skipped. */
#define DW_BATCH_ARGS	7

extern const DwWing dw_batches_wing;

/* members.c: joining a batch, and what a transaction has done to batches */
extern void dw_batches_install(void);
extern int	dw_batches_sql_begin(Oid *user, int *context);
extern void dw_batches_sql_end(int nest_level, Oid user, int context);
extern uint64 dw_batches_sql(const char *sql, int n, const Oid *types, const Datum *values);
extern void dw_batch_touch(int64 id, Oid owner, bool made);
extern bool dw_batch_is_touched(int64 id);
extern bool dw_batch_runs_here(int64 id);
extern void dw_batch_join(int64 id, Oid role, bool by_engine);
extern void dw_batch_member_ended(int64 id, Oid owner, DwOutcome outcome, int64 n);
extern void dw_batch_member_put_back(int64 id, Oid owner);

/* notes.c: at which batches the sweeper must look */
extern void dw_batches_request_memory(void);
extern void dw_batches_init(void);
extern void dw_batch_look(DwDatabase *db, int64 id);
extern void dw_batches_look_at_all(DwDatabase *db);
extern bool dw_batch_notes_take(DwDatabase *db, int64 *ids, int max, int *n);
extern void dw_batch_notes_remove(DwDatabase *db);
extern bool dw_batch_pass_begin(DwDatabase *db);
extern void dw_batch_pass_end(DwDatabase *db);
extern void dw_batch_pass_delay(DwDatabase *db, int64 pause);
extern void dw_batch_put_off(DwDatabase *db, int64 id, bool failed, int64 pause);
extern bool dw_batch_is_put_off(DwDatabase *db, int64 id, bool noted, int64 now);
extern int	dw_batch_put_off_take(DwDatabase *db, int64 *ids, int64 now);
extern void dw_batch_put_off_remove(DwDatabase *db, int64 now);
extern int64 dw_batch_next_look(DwDatabase *db);

/* batch_end.c: ending batches */
extern TimestampTz dw_batches_end(DwDatabase *db);
extern TimestampTz dw_batches_forget(DwDatabase *db);

#endif							/* DW_BATCHES_H */
