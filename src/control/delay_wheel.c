/*-------------------------------------------------------------------------
 *
 * delay_wheel.c
 *	  Entry point of the library.
 *
 * Run once by the postmaster, when the library is preloaded.  All other processes inherit the hooks
 * and callbacks that are installed here.  If the server has not preloaded the library, a session
 * can load it, so that a dump can be restored.  Then the functions raise errors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"

#include "../backend/backend.h"
#include "../copies/copies.h"
#include "../ends/ends.h"
#include "../executor/executor.h"
#include "../failed/failed.h"
#include "../history/history.h"
#include "../recurring/recurring.h"
#include "control.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* The only list of all wings. */
static const DwWing *const wings[] = {&dw_copies_wing, &dw_failed_wing, &dw_history_wing, &dw_ends_wing, &dw_recurring_wing, NULL};

/* Installs all hooks and callbacks, and registers the launcher. */
void
_PG_init(void)
{
	dw_wings = wings;
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

	/* a server that pg_upgrade starts must run no process of ours */
	if (IsBinaryUpgrade)
		return;

	dw_shared_install();
	dw_touched_install();
	dw_receive_install();
	dw_lease_install();
	dw_parameters_install();
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
