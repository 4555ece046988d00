/*-------------------------------------------------------------------------
 *
 * own_sql.c
 *	  Executes delay_wheel's own SQL in a session of any user.
 *
 * Run by all processes that execute such SQL outside of functions with a search_path of their own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/guc.h"

#include "own_sql.h"

/*
 * Connects to SPI, with a search_path that no user controls.  Returns a nest level for
 * dw_own_sql_end().  The end of the transaction cleans up after an error.
 */
int
dw_own_sql_begin(void)
{
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	return nest_level;
}

/* Disconnects from SPI, and restores the search_path. */
void
dw_own_sql_end(int nest_level)
{
	SPI_finish();
	AtEOXact_GUC(true, nest_level);
}
