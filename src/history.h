/*-------------------------------------------------------------------------
 *
 * history.h
 *	  The record of how tasks ended, delay_wheel.history.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_HISTORY_H
#define DW_HISTORY_H

#include "postgres.h"

#include "conclude.h"

/* Which ends are recorded. */
typedef enum DwHistoryLevel
{
	DW_HISTORY_UNSET = -1,		/* of a queue: as the setting says */
	DW_HISTORY_OFF,
	DW_HISTORY_ERRORS,
	DW_HISTORY_ALL
} DwHistoryLevel;

extern const char *const dw_history_levels[];

/* UNSET if it is none of off, errors and all. */
extern DwHistoryLevel dw_history_level(const char *text);

/*
 * Records the end of a task, if it is to be recorded, in the transaction of
 * that end.
 */
extern void dw_history_record(const DwEnded *ended);

/*
 * How a task ended that is gone, as dw_end_names has it, if the user may know that
 * and it is among the newest rows; else NULL.
 */
extern const char *dw_history_newest_end(int64 id);

/*
 * For batches: from here on rows are collected; they are written, in the
 * current transaction; they are forgotten, after its abort.
 */
extern void dw_history_collect(void);
extern void dw_history_write_collected(void);
extern void dw_history_forget(void);

#endif							/* DW_HISTORY_H */
