/*-------------------------------------------------------------------------
 *
 * delay_wheel.c
 *	  Entry point of the library.
 *
 * Run once by the postmaster, when the library is preloaded; all processes
 * inherit what is installed here.  Without preloading the library can be
 * loaded, so that a dump can be restored, but its functions refuse to work.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "../base/settings.h"
#include "../executor/executor.h"
#include "../executor/task_log.h"
#include "../shmem/crash_watch.h"
#include "../shmem/writers.h"
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

	/* pg_upgrade must find nothing of us running */
	if (IsBinaryUpgrade)
		return;

	dw_shared_install();
	dw_touched_install();
	dw_marks_install();
	dw_hold_install();
	dw_recycle_install();
	dw_ddl_install();
	dw_task_log_install();
	dw_crashes_install();
	dw_other_nodes_install();
	dw_writers_install();
	dw_launcher_register();
}
