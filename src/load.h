/*-------------------------------------------------------------------------
 *
 * load.h
 *	  Loading tasks of the near future from the table into memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOAD_H
#define DW_LOAD_H

#include "shared.h"
#include "task_rows.h"
#include "utils/relcache.h"

/* Is the extension still in this database?  Found out by each load. */
extern bool dw_extension_gone;

extern void dw_load_reset(DwDatabase *database);

/*
 * Does a slice of what is to be loaded; true if there is more to do at once.
 */
extern bool dw_load_some(void);

/* When a lane must be loaded next, if nobody lowers anything. */
extern TimestampTz dw_load_next(void);

/* All lanes are to be looked at: settings may have changed. */
extern void dw_load_settings_changed(void);

/*
 * A transaction of the timer, with a snapshot and the task table opened; NULL
 * if the table is locked by somebody, or gone.
 */
extern Relation dw_read_begin(void);
extern void dw_read_end(Relation rel);
/* The same after an error, which is reported. */
extern void dw_read_failed(DwDatabase *database, const char *what);

/* Where the rows of a lane begin that are this database's own. */
extern DwTaskKey dw_lane_begin(const DwLane *lane);

/* Gives empty lanes back when places are short. */
extern void dw_load_tidy(void);

#endif							/* DW_LOAD_H */
