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

/* Called by the postmaster when shared memory is set up. */
extern void dw_recovery_note(void);

/*
 * Must the launcher wait for a word of the DBA?  Asked at its start, and
 * again after each reload of the settings as long as it must.
 */
extern bool dw_recovery_must_wait(void);

/* The same for who only looks. */
extern bool dw_recovery_is_held(void);

#endif							/* DW_RECOVERY_H */
