/*-------------------------------------------------------------------------
 *
 * recovery.h
 *	  Whether a server that came out of recovery is to run tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECOVERY_H
#define DW_RECOVERY_H

#include "postgres.h"

extern void dw_recovery_note(void);
extern bool dw_recovery_must_wait(void);
extern bool dw_recovery_is_held(void);

#endif							/* DW_RECOVERY_H */
