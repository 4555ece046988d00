/*-------------------------------------------------------------------------
 *
 * answers.c
 *	  Answers of a timer to sessions that wait until it has taken what they have stored.
 *
 * Run by sessions, which ask, and by the timer of the database.  A session stores its news first,
 * asks, and wakes the timer.  The timer reads the number of the last question before it takes news,
 * and answers that one when all that it took is in memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "answers.h"

/* Nobody has asked. */
void
dw_answers_init(DwAnswers *answers)
{
	pg_atomic_init_u32(&answers->asked, 0);
	pg_atomic_init_u32(&answers->given, 0);
	ConditionVariableInit(&answers->waiting);
}

/* Asks; returns the number of the question.  Full barrier.  The caller wakes the timer. */
uint32
dw_answer_ask(DwAnswers *answers)
{
	return pg_atomic_add_fetch_u32(&answers->asked, 1);
}

/* The number of the last question.  What is read afterwards was stored before it, or later. */
uint32
dw_answer_asked(DwAnswers *answers)
{
	uint32		question = pg_atomic_read_u32(&answers->asked);

	pg_read_barrier();
	return question;
}

/* True if this question was answered. */
bool
dw_answer_is_given(DwAnswers *answers, uint32 question)
{
	return (int32) (pg_atomic_read_u32(&answers->given) - question) >= 0;
}

/* Answers this question, and all before it. */
void
dw_answer_give(DwAnswers *answers, uint32 question)
{
	if (dw_answer_is_given(answers, question))
		return;
	pg_atomic_write_u32(&answers->given, question);
	ConditionVariableBroadcast(&answers->waiting);
}

/* Waits for the answer to this question, for so long at most. */
void
dw_answer_await(DwAnswers *answers, uint32 question, int64 us, uint32 wait_event)
{
	int64		deadline = dw_uptime() + us;
	int64		left;

	ConditionVariablePrepareToSleep(&answers->waiting);
	while (!dw_answer_is_given(answers, question) && (left = deadline - dw_uptime()) > 0)
		(void) ConditionVariableTimedSleep(&answers->waiting, (left + 999) / 1000, wait_event);
	ConditionVariableCancelSleep();
}
