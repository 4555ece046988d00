/*-------------------------------------------------------------------------
 *
 * spi_run.c
 *	  Runs the SQL of a task.
 *
 * Run by executors, and by sessions that run a task at once.  SPI does not tell
 * which utility statement it has run, but the history shows that.  So the utility
 * hook (control/ddl.c) notes each utility statement here when it ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "nodes/params.h"
#include "tcop/cmdtag.h"

#include "../base/compat.h"
#include "first_row.h"
#include "plans.h"
#include "spi_run.h"

/* The utility statement that has ended last in this process */
static DwSpiResult last_utility = {.code = SPI_OK_UTILITY, .utility = CMDTAG_UNKNOWN};

/*
 * Notes that a utility statement of this process has ended.  For EXECUTE, the
 * executed statement is noted, as psql shows it.  qc may be NULL.
 */
void
dw_spi_note_utility(CommandTag tag, const QueryCompletion *qc)
{
	bool		known = qc != NULL && qc->commandTag != CMDTAG_UNKNOWN;

	last_utility.utility = known && tag == CMDTAG_EXECUTE ? qc->commandTag : tag;
	last_utility.rows = known ? qc->nprocessed : 0;
}

/* Returns the utility statement that was noted last. */
DwSpiResult
dw_spi_noted_utility(void)
{
	return last_utility;
}

static void
begin_call(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
}

/* True if SPI says that the statement was of a kind that returns rows. */
static bool
returns_rows(int code)
{
	return code == SPI_OK_SELECT || code == SPI_OK_UTILITY || code == SPI_OK_INSERT_RETURNING ||
		code == SPI_OK_UPDATE_RETURNING || code == SPI_OK_DELETE_RETURNING ||
		code == SPI_OK_MERGE_RETURNING;
}

/*
 * Ends a call of SPI, and returns what the last statement did.  SPI reports some
 * refused statements by a negative result only; these become errors here.
 */
static DwSpiResult
end(int result, DwFirstRow *row)
{
	DwSpiResult done = {.code = result, .rows = SPI_processed};

	if (result == SPI_ERROR_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("transaction control is not possible in a task")));
	if (result == SPI_ERROR_COPY)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot COPY to or from the client in a task")));
	if (result < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not execute task: %s", SPI_result_code_string(result))));
	if (result == SPI_OK_UTILITY)
		done = last_utility;
	SPI_finish();
	if (returns_rows(result))
		done.first_row = dw_first_row_take(row);
	return done;
}

/*
 * Runs a task's SQL in the current transaction, as the current user, by a kept plan
 * if possible (see dw_plans_run(), whose rules hold for callers of this function).
 * Errors are raised.  Rows that the SQL returns are dropped, since they may be huge; but
 * the first one of the last statement is kept if it has at most max_row bytes (0: none is).
 */
DwSpiResult
dw_spi_run(const char *sql, ParamListInfo params, int max_row)
{
	DwFirstRow	row;
	SPIExecuteOptions options = {.params = params, .dest = &row.pub};
	int			result;

	dw_first_row_init(&row, max_row);
	begin_call();
	if (!dw_plans_run(sql, &options, &result))
		result = SPI_execute_extended(sql, &options);
	return end(result, &row);
}

/* Runs a task's SQL as dw_spi_run() does, but never by a kept plan. */
DwSpiResult
dw_spi_run_once(const char *sql, ParamListInfo params, int max_row)
{
	DwFirstRow	row;
	SPIExecuteOptions options = {.params = params, .dest = &row.pub};

	dw_first_row_init(&row, max_row);
	begin_call();
	return end(SPI_execute_extended(sql, &options), &row);
}
