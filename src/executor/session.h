/*-------------------------------------------------------------------------
 *
 * session.h
 *	  The session of an executor: its role, its settings, cleaning between tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SESSION_H
#define DW_SESSION_H

#include "postgres.h"

extern void dw_session_begin(Oid database, Oid owner, bool can_log_in);
extern bool dw_session_interrupts(void);
extern bool dw_session_is_switched(void);
extern void dw_session_start_transaction(void);
extern void dw_session_commit_transaction(void);
extern void dw_session_finish_work(void);
extern void dw_session_clean_within(void);
extern void dw_session_clean(bool used_temp);

#endif							/* DW_SESSION_H */
