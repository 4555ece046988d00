/*
 * Processes that start workers, of which there are too few (shmem/starts.c).
 *
 * The queue stands for the times since which each of them lacks a worker.  The names of the steps (J1, J2,
 * ...) are those of README.md.
 *
 *   NP     processes (3), each of which needs a worker NEED (2) times
 *   W      workers (1)
 *   GONE   so many needs pass while they wait
 *   FREEZE so many processes are stopped while they wait; THAW: and go on later
 *   HANG   so many workers do not end
 */
#ifndef NP
#define NP 3
#endif
#ifndef NEED
#define NEED 2
#endif
#ifndef W
#define W 1
#endif
#ifndef GONE
#define GONE 0
#endif
#ifndef FREEZE
#define FREEZE 0
#endif
#ifndef HANG
#define HANG 0
#endif

#define MOST 4			/* more than NP, which is 3 at most */

byte free = W;
byte queue[MOST], waits;	/* who waits, in this order; 0 behind the last one */
byte holder[MOST], holds;	/* who has a worker, the longest first */
bool latch[MOST];		/* of process i, from 1 on */
bool retries[MOST];		/* it knows that it is the first one, and tries again after a pause */
bool silent[MOST];		/* it was stopped */
bool told[MOST], hangs[MOST];	/* of its worker */
byte passed[MOST];		/* workers that others had since it waits */
byte gone = GONE, freeze = FREEZE, hang = HANG;

#define has_worker(i) (holder[0] == i || holder[1] == i || holder[2] == i)
/* another look shows that the ones before i do not answer */
#ifdef MUT_NOT_PASSED
#define is_next(i) false
#else
#define is_next(i) (silent[queue[0]] && (queue[1] == i || (silent[queue[1]] && queue[2] == i)))
#endif
#define ends(k) (holder[k] != 0 && told[holder[k]] && !hangs[holder[k]])
#define goes_on(k) (holder[k] != 0 && !told[holder[k]])
/* another try tells another worker to end its turn */
#ifdef MUT_TOLD_AGAIN
#define tells_another() goes_on(0)
#elif defined(MUT_NOT_ASKED)
#define tells_another() false
#else
#define tells_another() (!ends(0) && !ends(1) && !ends(2) && (goes_on(0) || goes_on(1) || goes_on(2)))
#endif

/* r is the first one of the queue that answers, mine in any case */
inline first_one(mine)
{
	r = 0;
	k = 0;
	do
	:: k == waits || r != 0 -> break
	:: else ->
#ifdef MUT_NOT_PASSED
		r = queue[k];
#else
		r = (silent[queue[k]] && queue[k] != mine -> 0 : queue[k]);
#endif
		k++
	od
}

/* Has the first one try */
inline call_first()
{
	first_one(0);
	if
	:: r != 0 -> latch[r] = 1
	:: else
	fi;
	r = 0
}

inline leave_queue(what)
{
	k = 0;
	do
	:: k == waits || queue[k] == what -> break
	:: else -> k++
	od;
	if
	:: k < waits ->
		waits--;
		do
		:: k == waits -> break
		:: else -> queue[k] = queue[k + 1]; k++
		od;
		queue[waits] = 0
	:: else
	fi;
	k = 0
}

inline leave_worker(what)
{
	k = 0;
	do
	:: k == holds || holder[k] == what -> break
	:: else -> k++
	od;
	if
	:: k < holds ->
		holds--;
		do
		:: k == holds -> break
		:: else -> holder[k] = holder[k + 1]; k++
		od;
		holder[holds] = 0
	:: else
	fi;
	k = 0
}

/* Others that wait see one more worker go to somebody else */
inline count_passed()
{
	k = 0;
	do
	:: k == waits -> break
	:: else ->
		if
		:: queue[k] != i && !silent[queue[k]] ->
			passed[queue[k]]++;
			assert(passed[queue[k]] <= 2 * (NP - 1))
		:: else
		fi;
		k++
	od;
	k = 0
}

/* r is the worker that is to end its turn: the one that has lasted longest, and was not told before */
inline longest()
{
	r = 0;
	k = 0;
	do
	:: k == holds || r != 0 -> break
	:: else ->
#ifdef MUT_TOLD_AGAIN
		r = holder[k];
#else
		r = (told[holder[k]] -> 0 : holder[k]);
#endif
		k++
	od;
	k = 0
}

proctype Worker(byte i)
{
	byte k, r;

	if
	:: told[i] && !hangs[i]
	:: d_step { hang > 0 -> hang--; hangs[i] = 1 }; false
	fi;
#ifndef MUT_END_UNTOLD
	/* J5: before the postmaster can give the worker to another one */
	d_step { call_first() };
#endif
	d_step { leave_worker(i); told[i] = 0; free++ }
}

proctype Process(byte i)
{
	byte needed = NEED, k, r;
	bool first;

	do
	:: needed == 0 -> break
	:: needed > 0 && !has_worker(i) ->
		needed--;
try:
		skip;
		/* J1 */
		d_step { first_one(i); first = (r == 0 || r == i); r = 0 };
#ifdef MUT_NO_ORDER
		first = 1;
#endif
		if
		:: atomic { first && free > 0 -> free-- };
			d_step {
				leave_queue(i);
				passed[i] = 0;
				retries[i] = 0;
				count_passed();
				holder[holds] = i;
				holds++;
#ifndef MUT_NEXT_UNCALLED
				/* J4 */
				call_first()
#endif
			};
			run Worker(i)
		:: !first || free == 0 ->
			/* J2 */
			d_step {
				k = 0;
				do
				:: k == waits || queue[k] == i -> break
				:: else -> k++
				od;
				if
				:: k == waits -> queue[waits] = i; waits++
				:: else
				fi;
				first_one(i);
				retries[i] = (r == i);
				r = 0
			};
#ifndef MUT_NOT_ASKED
			/* J3 */
			d_step {
				if
				:: retries[i] ->
					longest();
					if
					:: r != 0 -> told[r] = 1
					:: else
					fi;
					r = 0
				:: else
				fi
			};
#endif
wait:
			if
			:: atomic { latch[i] && !silent[i] -> latch[i] = 0 }; goto try
			:: retries[i] && !silent[i] && free > 0 -> goto try
			:: retries[i] && !silent[i] && tells_another() -> goto try
#ifndef MUT_NO_LOOK
			/* J6 */
			:: !retries[i] && !silent[i] && is_next(i) -> goto try
#endif
			:: d_step { gone > 0 && !silent[i] ->
					gone--;
					leave_queue(i);
					passed[i] = 0;
					retries[i] = 0;
#ifndef MUT_GONE_UNCALLED
					/* J4 */
					call_first()
#endif
				}
			:: d_step { freeze > 0 && !silent[i] -> freeze--; silent[i] = 1 };
				goto wait
#ifdef THAW
			:: d_step { silent[i] -> silent[i] = 0 }; goto try
#endif
			fi
		fi
	od
}

/* When all has come to rest, who waits does so since no worker ends. */
proctype Env()
{
	byte k;

	timeout;
#ifdef MUT_REACH
	assert(!(waits == 0 && holds == W))
#endif
	do
	:: k == waits -> break
	:: else ->
		assert(silent[queue[k]] ||
			(free == 0 && !goes_on(0) && !goes_on(1) && !goes_on(2) && !ends(0) && !ends(1) && !ends(2)));
		k++
	od
}

init
{
	byte i;

	atomic {
		do
		:: i == NP -> break
		:: else -> i++; run Process(i)
		od;
		run Env()
	}
}
