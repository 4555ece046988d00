/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  Commands of others that delay_wheel must know of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_DDL_H
#define DW_DDL_H

extern void dw_ddl_install(void);

#endif							/* DW_DDL_H */
