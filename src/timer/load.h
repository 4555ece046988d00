/*-------------------------------------------------------------------------
 *
 * load.h
 *	  Loading tasks of the near future from the table into memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOAD_H
#define DW_LOAD_H

#include "postgres.h"

#include "../shmem/shared.h"

extern void dw_load_reset(DwDatabase *database);

/*
 * Does a slice of what is to be loaded; true if there is more to do at once.
 */
extern bool dw_load_some(void);

/* When a lane must be loaded next, if nobody lowers anything. */
extern TimestampTz dw_load_next(void);

/* All lanes are to be looked at: settings may have changed. */
extern void dw_load_settings_changed(void);

/* Gives empty lanes back when places are short. */
extern void dw_load_tidy(void);

#endif							/* DW_LOAD_H */
