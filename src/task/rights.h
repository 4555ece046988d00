/*-------------------------------------------------------------------------
 *
 * rights.h
 *	  Rights: to schedule tasks, how many, and to change somebody's task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RIGHTS_H
#define DW_RIGHTS_H

#include "postgres.h"

/* An error unless the current user is a member of the task's owner. */
extern void dw_require_task_owner(int64 id, Oid owner);

/* An error if delay_wheel.max_pending does not let the role have another task. */
extern void dw_require_room(Oid owner);

#endif							/* DW_RIGHTS_H */
