/*-------------------------------------------------------------------------
 *
 * alarm.h
 *	  Sleeps until a time of the clock, even if the clock is set meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ALARM_H
#define DW_ALARM_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern void dw_alarm_create(void);
extern void dw_alarm_wait(TimestampTz until, int64 uptime, uint32 wait_event);

#endif							/* DW_ALARM_H */
