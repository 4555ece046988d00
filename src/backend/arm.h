/*-------------------------------------------------------------------------
 *
 * arm.h
 *	  delay_arm(): takes over tasks that came with a copy of another database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ARM_H
#define DW_ARM_H

#include "postgres.h"

#endif							/* DW_ARM_H */
