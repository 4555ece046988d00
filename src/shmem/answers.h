/*-------------------------------------------------------------------------
 *
 * answers.h
 *	  Answers of a timer to sessions that wait until it has taken what they have stored.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ANSWERS_H
#define DW_ANSWERS_H

#include "postgres.h"

#include "port/atomics.h"
#include "storage/condition_variable.h"

typedef struct DwAnswers
{
	pg_atomic_uint32 asked;		/* number of the last question; raised by sessions */
	pg_atomic_uint32 given;		/* number of the last one that the timer has answered */
	ConditionVariable waiting;	/* sessions that wait */
} DwAnswers;

extern void dw_answers_init(DwAnswers *answers);
extern uint32 dw_answer_ask(DwAnswers *answers);
extern uint32 dw_answer_asked(DwAnswers *answers);
extern bool dw_answer_is_given(DwAnswers *answers, uint32 question);
extern void dw_answer_give(DwAnswers *answers, uint32 question);
extern void dw_answer_await(DwAnswers *answers, uint32 question, int64 us, uint32 wait_event);

#endif							/* DW_ANSWERS_H */
