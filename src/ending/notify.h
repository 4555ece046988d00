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

extern bool dw_is_channel(const char *name);
extern void dw_notify_end(const DwEnded *ended);

#endif							/* DW_NOTIFY_H */
