/*-------------------------------------------------------------------------
 *
 * follow_up.h
 *	  Tasks that follow the end of another one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FOLLOW_UP_H
#define DW_FOLLOW_UP_H

#include "postgres.h"

#include "../task/ended.h"

/*
 * Number of a follow-up's arguments: id and rows, of a message id and result; or id,
 * SQLSTATE and message.
 */
#define DW_ON_SUCCESS_ARGS	2
#define DW_ON_FAILURE_ARGS	3

extern void dw_follow_up(const DwEnded *ended);

#endif							/* DW_FOLLOW_UP_H */
