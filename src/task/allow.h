/*-------------------------------------------------------------------------
 *
 * allow.h
 *	  delay_wheel.allow() and disallow(): the rights of applications.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ALLOW_H
#define DW_ALLOW_H

/* The group of roles that may schedule on all nodes of Citus. */
#define DW_GROUP	"delay_wheel_user"

extern void dw_group_allow(void);

#endif							/* DW_ALLOW_H */
