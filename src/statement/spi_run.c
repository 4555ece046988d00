/*-------------------------------------------------------------------------
 *
 * spi_run.c
 *	  Running the SQL of a task.
 *
 * Run by executors, and by backends that run a task at once.
 * What the last statement was is noted for the history.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "nodes/params.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"

#include "plans.h"
#include "spi_run.h"

static DwSpiResult last_utility = {.code = SPI_OK_UTILITY, .utility = CMDTAG_UNKNOWN};

/*
 * A utility statement of this process has ended, the last one so far.
 *
 * EXECUTE is what it has executed, as for psql.
 */
void
dw_spi_note_utility(CommandTag tag, const QueryCompletion *qc)
{
	bool		known = qc != NULL && qc->commandTag != CMDTAG_UNKNOWN;

	last_utility.utility = known && tag == CMDTAG_EXECUTE ? qc->commandTag : tag;
	last_utility.rows = known ? qc->nprocessed : 0;
}

/* What has become of it. */
DwSpiResult
dw_spi_noted_utility(void)
{
	return last_utility;
}

/*
 * Drops what it gets, as None_Receiver does; but SPI knows that one, and then
 * does not say whether a statement was a query.
 */
static DestReceiver *
nowhere(void)
{
	static DestReceiver receiver;

	receiver = *None_Receiver;
	receiver.mydest = DestTuplestore;
	return &receiver;
}

static void
begin_call(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
}

/* Some statements are refused without an error. */
static DwSpiResult
end(int result)
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
	return done;
}

DwSpiResult
dw_spi_run(const char *sql, ParamListInfo params)
{
	SPIExecuteOptions options = {.params = params, .dest = nowhere()};
	int			result;

	begin_call();
	if (!dw_plans_run(sql, &options, &result))
		result = SPI_execute_extended(sql, &options);
	return end(result);
}

DwSpiResult
dw_spi_run_once(const char *sql, ParamListInfo params)
{
	SPIExecuteOptions options = {.params = params, .dest = nowhere()};

	begin_call();
	return end(SPI_execute_extended(sql, &options));
}
