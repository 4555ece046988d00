/*-------------------------------------------------------------------------
 *
 * marks.h
 *	  Cancelling many tasks by one mark.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_MARKS_H
#define DW_MARKS_H

#include "postgres.h"

#include "access/htup.h"
#include "utils/relcache.h"

/*
 * Is the task hit by a mark of delay_cancel_all(), committed or of this very
 * transaction?  Reads the marks anew if any was committed since the last
 * call, with a snapshot of its own.
 */
extern bool dw_task_is_cancelled(Relation rel, HeapTuple tuple);

#endif							/* DW_MARKS_H */
