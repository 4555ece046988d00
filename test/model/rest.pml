/*
 * A timer that goes to rest, sessions that commit meanwhile, and the launcher that starts the next one.
 *
 * One database.  What a timer does with a task is in wheel.pml; here it has a ring without limits, reads all
 * rows when it begins, and runs a task itself.  A session tells by one flag, news, which stands for inbox,
 * flags and bitmaps.  The names of the steps (C3, Z1, ...) are those of README.md.  Search is exhaustive and
 * sequentially consistent; a barrier that is taken out is a read done before the store in front of it.
 */

#ifndef NT
#define NT 2			/* sessions, each with one task, 1..NT */
#endif
#ifndef MAXT
#define MAXT 2			/* the clock goes from 0 to here */
#endif
#ifndef CRASH
#define CRASH 0			/* times the timer dies */
#endif
#ifndef RESTS
#define RESTS 2			/* times it goes to rest */
#endif

#define INF 9			/* DW_NEVER */
#define AWAKE 0			/* DW_AWAKE, and times are one higher */
#define FAILED 0
#define RESTING 1
#define NONE 0
#define STARTING 1
#define RUNNING 2

byte now = 1;
bool vis[NT + 1], ran[NT + 1];
byte due[NT + 1];
bool news, proc, latch, started;
byte sleep_until = AWAKE, rest_until = AWAKE;
byte state = NONE, end = FAILED;
bool called;			/* the launcher's latch, and the number of its calls */
byte crash = CRASH, rests = RESTS;
bool die;

/* C4: proc was found to be 0 */
inline call_launcher(d)
{
	if
	:: atomic { rest_until != AWAKE && d < rest_until ->
#ifdef MUT_NOT_TOLD
			skip
#else
			rest_until = d
#endif
		};
#ifndef MUT_NO_CALL
		called = 1
#endif
	:: atomic { rest_until != AWAKE && d >= rest_until ->
#ifdef MUT_OVERWRITE
			rest_until = d
#endif
			skip
		}
	:: rest_until == AWAKE ->
		started = 1;
		called = 1
	fi
}

proctype Session(byte i)
{
	bool there;
	byte su;

	if :: due[i] = 1 :: due[i] = 2 :: due[i] = MAXT + 1 fi;
	vis[i] = 1;			/* C1 */
#ifdef MUT_NB_C3
	there = proc;
	news = 1;
#else
	news = 1;			/* C2 */
	there = proc;			/* C3 */
#endif
	if
	:: there ->
		su = sleep_until;
		if :: su > due[i] && proc -> latch = 1 :: else fi
	:: else -> call_launcher(due[i])
	fi
}

inline load()
{
	/* a snapshot */
	d_step {
		k = 1; first = INF;
		do
		:: k <= NT -> if :: vis[k] && !ran[k] && due[k] < first -> first = due[k] :: else fi; k++
		:: else -> break
		od;
		k = 0
	}
}

proctype Timer()
{
	byte first = INF, k = 0;

	{
		state = RUNNING;
		sleep_until = AWAKE;
		proc = 1;
		started = 0;
		news = 0;
		load();
W0:
		atomic { sleep_until = AWAKE; latch = 0 };
D1:
		if
		:: news -> news = 0; load(); goto D1
		:: else
		fi;
		if
		:: first <= now ->
			d_step {
				k = 1;
				do
				:: k <= NT -> if :: vis[k] && due[k] <= now -> ran[k] = 1 :: else fi; k++
				:: else -> break
				od;
				k = 0
			};
			load();
			goto D1
		:: else
		fi;
		if
		:: true -> goto H1
		:: rests > 0 && first > now -> rests--; goto Z1
		fi;
H1:
		sleep_until = first;
		if :: news -> goto W0 :: else fi;
		latch || now >= first;
		goto W0;
Z1:
		rest_until = first;
#ifdef MUT_NB_Z2
		if :: news -> rest_until = AWAKE; goto W0 :: else fi;
		proc = 0;
#else
		proc = 0;			/* Z2 */
#ifndef MUT_NO_Z3
		if :: news -> proc = 1; rest_until = AWAKE; goto W0 :: else fi;
#endif
#endif
		atomic { state = NONE; end = RESTING };
#ifndef MUT_END_UNTOLD
		called = 1
#endif
	} unless {
		atomic { die -> die = 0; proc = 0; state = NONE; end = FAILED; called = 1 }
	}
}

proctype Launcher()
{
	byte alarm;

	do
	::
		alarm = INF;
#ifndef MUT_CALLED_LATE
		called = 0;
#endif
		if
		:: state == NONE && end == RESTING && !started && rest_until > now -> alarm = rest_until
		:: state == NONE && !(end == RESTING && !started && rest_until > now) ->
			started = 0;
			state = STARTING;
#ifndef MUT_STILL_RESTS
			rest_until = AWAKE;
#endif
			run Timer()
		:: else
		fi;
#ifdef MUT_CALLED_LATE
		called = 0;
#endif
#ifdef MUT_NO_ALARM
		called
#else
		called || now >= alarm
#endif
	od
}

/* The clock may stop at any moment: then everything else comes to rest, and no task is overdue. */
proctype Env()
{
	do
	:: now <= MAXT -> now++
	:: d_step { crash > 0 && !die && state == RUNNING -> crash--; die = 1 }
	:: break
	od;
	timeout;
#ifdef MUT_REACH
	assert(!(end == RESTING && state == NONE && ran[1] && vis[NT] && !ran[NT]))
#endif
	assert(!(vis[1] && !ran[1] && due[1] <= now));
#if NT > 1
	assert(!(vis[2] && !ran[2] && due[2] <= now))
#endif
}

init
{
	atomic {
		run Launcher();
		run Session(1);
#if NT > 1
		run Session(2);
#endif
		run Env()
	}
}
