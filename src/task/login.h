/*-------------------------------------------------------------------------
 *
 * login.h
 *	  How a new session of a role would read a task's text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LOGIN_H
#define DW_LOGIN_H

#include "postgres.h"

#include "../shmem/logins.h"

/* The settings with which a new session of a role in this database would begin */
typedef struct DwLogin DwLogin;

extern const DwLogin *dw_login(Oid role);
extern const char *dw_login_value(const DwLogin *login, DwLoginSetting setting);
extern bool dw_login_differs(const DwLogin *login, DwLoginSetting setting);
extern void dw_login_changing(void);
extern void dw_login_changed(void);

#endif							/* DW_LOGIN_H */
