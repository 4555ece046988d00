/*-------------------------------------------------------------------------
 *
 * spi_run.h
 *	  Running the SQL of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SPI_RUN_H
#define DW_SPI_RUN_H

#include "postgres.h"

#include "nodes/params.h"
#include "tcop/cmdtag.h"

/* What the last statement did. */
typedef struct DwSpiResult
{
	int			code;			/* of SPI: SPI_OK_UPDATE, say */
	CommandTag	utility;		/* with SPI_OK_UTILITY */
	uint64		rows;
} DwSpiResult;

/*
 * Runs it in the current transaction, as the current user; errors are raised,
 * results are not asked for: they may be huge.
 *
 * The first is for an executor's next task, and uses plans that are kept.
 */
extern DwSpiResult dw_spi_run(const char *sql, ParamListInfo params);
extern DwSpiResult dw_spi_run_once(const char *sql, ParamListInfo params);
extern void dw_spi_note_utility(CommandTag tag, const QueryCompletion *qc);
extern DwSpiResult dw_spi_noted_utility(void);

#endif							/* DW_SPI_RUN_H */
