/*-------------------------------------------------------------------------
 *
 * own_sql.c
 *	  SQL of our own, executed in a session of any user.
 *
 * Run by all processes that execute such SQL outside of a function of the extension that
 * has a search_path of its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/guc.h"

#include "own_sql.h"

/*
 * Connects to SPI, under a search_path on which no user can put anything.  Returns what
 * dw_own_sql_end() needs; after an error, the end of the transaction undoes both.
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
