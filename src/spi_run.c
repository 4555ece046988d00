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
#include "plans.h"
#include "spi_run.h"
#include "tcop/dest.h"

static CommandTag last_utility = CMDTAG_UNKNOWN;

void
dw_spi_note_utility(CommandTag tag)
{
	last_utility = tag;
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
begin(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
}

/* Some statements are refused without an error. */
static DwSpiResult
end(int result)
{
	DwSpiResult done = {.code = result, .utility = last_utility};

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
	done.rows = SPI_processed;
	SPI_finish();
	return done;
}

DwSpiResult
dw_spi_run(const char *sql, ParamListInfo params)
{
	SPIExecuteOptions options = {.params = params, .dest = nowhere()};
	int			result;

	begin();
	if (!dw_plans_run(sql, &options, &result))
		result = SPI_execute_extended(sql, &options);
	return end(result);
}

DwSpiResult
dw_spi_run_once(const char *sql, ParamListInfo params)
{
	SPIExecuteOptions options = {.params = params, .dest = nowhere()};

	begin();
	return end(SPI_execute_extended(sql, &options));
}
