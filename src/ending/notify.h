/*-------------------------------------------------------------------------
 *
 * notify.h
 *	  Notifications of the end of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NOTIFY_H
#define DW_NOTIFY_H

#include "postgres.h"

#include "../task/ended.h"

/* Is it the name of a channel? */
extern bool dw_is_channel(const char *name);

/* Notifies the channel of the task's option, if it has one, at the commit. */
extern void dw_notify_end(const DwEnded *ended);

#endif							/* DW_NOTIFY_H */
