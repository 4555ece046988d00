/*-------------------------------------------------------------------------
 *
 * plans.h
 *	  Runs tasks' SQL by plans that an executor keeps.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PLANS_H
#define DW_PLANS_H

#include "postgres.h"

#include "executor/spi.h"

extern bool dw_plans_run(const char *sql, const SPIExecuteOptions *options, int *result);

#endif							/* DW_PLANS_H */
