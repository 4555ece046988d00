/*-------------------------------------------------------------------------
 *
 * control.h
 *	  Declarations shared by the files of this folder.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CONTROL_H
#define DW_CONTROL_H

#include "postgres.h"

#include "access/table.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../shmem/groups.h"
#include "../task/task.h"

/*---- ddl.c: SQL commands of users that delay_wheel must act on ----*/

extern void dw_ddl_install(void);

/*---- hold.c ----*/

extern void dw_hold_install(void);
extern void dw_hold_database(Oid database);

/*---- launcher.c: the process that starts a timer for each database ----*/

extern void dw_launcher_register(void);
extern PGDLLEXPORT void dw_launcher_main(Datum arg);
extern PGDLLEXPORT void dw_look_main(Datum arg);

/*---- recycle.c ----*/

extern void dw_recycle_install(void);
extern List *dw_concern(List *found, Oid database, Oid role, bool settings, DwStale how);
extern List *dw_concern_members(List *found, Oid role);
extern void dw_recycle(const List *found, bool databases);

#endif							/* DW_CONTROL_H */
