/*-------------------------------------------------------------------------
 *
 * plans.h
 *	  Plans of tasks' SQL that an executor keeps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PLANS_H
#define DW_PLANS_H

#include "postgres.h"

#include "executor/spi.h"

/*
 * Runs a task's SQL by a plan that is kept, if there is one or it is worth
 * one; *result is what SPI says.  False if nothing was done: the text is to be
 * run without.
 *
 * Executors only, inside SPI_connect(), at the beginning of a task: settings
 * are the session's own but for search_path.
 */
extern bool dw_plans_run(const char *sql, const SPIExecuteOptions *options, int *result);

#endif							/* DW_PLANS_H */
