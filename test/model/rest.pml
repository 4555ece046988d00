/*
 * A timer that goes to rest, sessions that commit meanwhile, and the launcher that starts the next one.
 *
 * One database.  What a timer does with a task is in wheel.pml; here it has a ring without limits, reads all
 * rows when it begins, and runs a task itself.  A session tells by one flag, news, which stands for inbox,
 * flags and bitmaps.  The names of the steps (C3, Z1, ...) are those of README.md.  Search is exhaustive and
 * sequentially consistent; a barrier that is taken out is a read done before the store in front of it.
 *
 * With WAY: a timer that gives way to another database, and leaves messages to sessions that receive them.
 *
 *   NM     messages that are there (2), and as many that are sent
 *   NR     receivers (2), each of which receives NGET (2)
 *   LEFT   messages that stay in memory (1)
 *   WAYS   times it gives way (2)
 *
 * With TURNS: processes that start workers, of which there are too few (shmem/starts.c).
 *
 *   NP     processes (3), each of which needs a worker NEED (2) times
 *   W      workers (1)
 *   GONE   so many needs pass while they wait
 *   FREEZE so many processes are stopped while they wait; THAW: and go on later
 *   HANG   so many workers do not end
 */
#ifdef WAY

#ifndef NM
#define NM 2
#endif
#ifndef NR
#define NR 2
#endif
#ifndef NGET
#define NGET 2
#endif
#ifndef LEFT
#define LEFT 1
#endif
#ifndef WAYS
#define WAYS 2
#endif

byte rows = NM;			/* messages that nobody has received */
byte list;			/* of these in memory */
bool low;			/* more are in the table than in memory: tell when few are left */
byte waiting;			/* sessions that wait for one */
byte woken;			/* sessions that were woken, and have not looked */
bool news, proc, latch, started, resting;
bool running;			/* the timer; or it is being started */
bool called = 1;		/* the launcher's latch */
byte ways = WAYS;

/* Who has stored news: C3, or C4 */
inline tell()
{
	news = 1;
	if
	:: proc -> latch = 1
	:: else ->
		started = 1;
		called = 1
	fi
}

/* Under the ready lock: wakes a session, if there is one, and a message */
inline wake_one()
{
	if
	:: list > 0 && waiting > 0 -> waiting--; woken++
	:: else
	fi
}

proctype Timer()
{
	byte n;

	/* a new timer knows nothing, and reads the table */
	list = 0;
	low = 0;
	proc = 1;
	started = 0;
	news = 0;
	atomic { list = rows; wake_one() };
	do
	:: news || latch ->
		atomic { latch = 0; news = 0 };
		atomic { list = rows; wake_one() }
	:: ways > 0 ->
		ways--;
		resting = 1;		/* Z1 */
		proc = 0;		/* Z2 */
		if
		:: news -> proc = 1; resting = 0	/* Z3 */
		:: else -> break
		fi
	od;
	/* Z4: what is too much is taken away, and the rest put back */
	atomic { n = list; list = 0 };
	atomic {
		if
		:: n > LEFT ->
			list = LEFT;
#ifndef MUT_LOW_UNSET
			low = 1
#endif
		:: else -> list = n
		fi;
#ifndef MUT_LEFT_UNWOKEN
		wake_one()
#endif
	};
	running = 0;
	called = 1
}

proctype Receiver()
{
	byte got;
	bool few;

	do
	:: got == NGET -> break
	:: else ->
		atomic {
			few = 0;
			if
			:: list > 0 ->
				list--;
				rows--;
				got++;
				few = low && list == 0;
				/* Q5 */
				wake_one();
				goto has
			:: else -> waiting++
			fi
		};
		atomic { woken > 0 -> woken-- };
		goto next;
has:
#ifndef MUT_LOW_SILENT
		/* Z5 */
		if
		:: few -> tell()
		:: else
		fi;
#endif
next:
		skip
	od
}

proctype Sender()
{
	byte n;

	do
	:: n == NM -> break
	:: else -> n++; rows++; tell()
	od
}

proctype Launcher()
{
	do
	:: called ->
		called = 0;
		if
		:: !running && (started || !resting) ->
			resting = 0;
			running = 1;
			run Timer()
		:: else
		fi
	od
}

/* When all has come to rest. */
proctype Env()
{
	timeout;
#ifdef MUT_REACH
	assert(!(resting && !running && rows > 0 && waiting == 0))
#endif
	assert(!(rows > 0 && waiting > 0))
}

init
{
	byte i;

	atomic {
		run Launcher();
		run Sender();
		do
		:: i == NR -> break
		:: else -> i++; run Receiver()
		od;
		run Env()
	}
}
#else
#ifdef TURNS

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
#else

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
#endif
#endif
