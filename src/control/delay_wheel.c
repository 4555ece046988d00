/*-------------------------------------------------------------------------
 *
 * delay_wheel.c
 *	  Entry point of the library.
 *
 * Run once by the postmaster, when the library is preloaded; all other processes inherit
 * the hooks and callbacks that are installed here.  The library can also be loaded by a
 * session of a server that has not preloaded it, so that a dump can be restored; its
 * functions raise errors then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "../base/settings.h"
#include "../backend/lease.h"
#include "../backend/parameters.h"
#include "../backend/receive.h"
#include "../executor/executor.h"
#include "../executor/task_log.h"
#include "../shmem/crash_watch.h"
#include "../shmem/writers.h"
#include "../statement/open_query.h"
#include "../task/marks.h"
#include "../task/other_nodes.h"
#include "../task/touched.h"
#include "ddl.h"
#include "hold.h"
#include "launcher.h"
#include "recycle.h"
#include "shmem.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* Installs all hooks and callbacks, and registers the launcher. */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		if (creating_extension)
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("no task will run before delay_wheel is loaded via \"%s\"",
							"shared_preload_libraries"),
					 errhint("Add delay_wheel to \"%s\" in postgresql.conf and restart the server.",
							 "shared_preload_libraries")));
		return;
	}

	dw_executor_install();
	dw_define_settings();

	/* the servers that pg_upgrade starts must run nothing of ours */
	if (IsBinaryUpgrade)
		return;

	dw_shared_install();
	dw_touched_install();
	dw_receive_install();
	dw_lease_install();
	dw_parameters_install();
	dw_marks_install();
	dw_hold_install();
	dw_recycle_install();
	dw_ddl_install();
	dw_task_log_install();
	dw_open_queries_hooks_begin();
	dw_crashes_install();
	dw_other_nodes_install();
	dw_writers_install();
	dw_open_queries_hooks_end();
	dw_launcher_register();
}
