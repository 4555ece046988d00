/*-------------------------------------------------------------------------
 *
 * row_lock.h
 *	  Locking and deleting the rows of pending tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ROW_LOCK_H
#define DW_ROW_LOCK_H

#include "postgres.h"

#include "access/tableam.h"
#include "storage/lock.h"
#include "utils/relcache.h"

#include "../rows/task_rows.h"
#include "../shmem/shared.h"

extern TM_Result dw_row_delete(Relation rel, const DwTaskKey *key);
extern TM_Result dw_row_remove(Relation rel, const DwTaskKey *key);
extern TM_Result dw_row_keep(Relation rel, const DwTaskKey *key);
extern bool dw_row_is_claimed(Relation rel, const DwTaskKey *key);
extern bool dw_row_is_locked_here(Relation rel, const DwTaskKey *key);
extern bool dw_row_wait(Relation rel, const DwTaskKey *key);
extern bool dw_autonomous_enter(int64 id, bool wait);
extern void dw_autonomous_leave(int64 id);
extern bool dw_autonomous_has_key(const DwKey *key);
extern uint32 dw_autonomous_ended(void);
extern bool dw_lock_is_wanted(const Oid *relations, int n);
extern bool dw_is_one_of(const LOCKTAG *tag, const Oid *relations, int n);
extern bool dw_locks_conflict(LOCKMASK held, LOCKMODE wanted);
extern pid_t dw_who_waits_for_us(void);

#endif							/* DW_ROW_LOCK_H */
