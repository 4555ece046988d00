/*-------------------------------------------------------------------------
 *
 * own_sql.h
 *	  Executes delay_wheel's own SQL in a session of any user.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OWN_SQL_H
#define DW_OWN_SQL_H

extern int	dw_own_sql_begin(void);
extern void dw_own_sql_end(int nest_level);

#endif							/* DW_OWN_SQL_H */
