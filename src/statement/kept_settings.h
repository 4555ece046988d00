/*-------------------------------------------------------------------------
 *
 * kept_settings.h
 *	  Settings of the session that schedules a task, kept for the run of its SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_KEPT_SETTINGS_H
#define DW_KEPT_SETTINGS_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/guc.h"
#include "utils/jsonb.h"

extern ArrayType *dw_kept_settings_default(void);
extern void dw_kept_settings_check(ArrayType *names);
extern Jsonb *dw_kept_settings_take(ArrayType *names, const char *const *others, int nothers);
extern bool dw_kept_settings_set(Jsonb *settings, GucAction action);

#endif							/* DW_KEPT_SETTINGS_H */
