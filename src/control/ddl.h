/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  SQL commands of users that delay_wheel must act on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_DDL_H
#define DW_DDL_H

extern void dw_ddl_install(void);

#endif							/* DW_DDL_H */
