/*-------------------------------------------------------------------------
 *
 * rights.h
 *	  Rights: to schedule tasks, how many, and to change a task of another role.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RIGHTS_H
#define DW_RIGHTS_H

#include "postgres.h"

extern bool dw_may_read(Oid owner);
extern void dw_require_task_owner(int64 id, Oid owner);
extern void dw_require_role(Oid owner);
extern void dw_require_room(Oid owner);

#endif							/* DW_RIGHTS_H */
