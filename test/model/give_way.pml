/*
 * A timer that gives way to another database, and leaves messages to sessions that receive them meanwhile.
 *
 * The names of the steps (Z4, Z5, ...) are those of README.md; what the timer and the launcher do is as in
 * rest.pml.
 *
 *   NM     messages that are there (2), and as many that are sent
 *   NR     receivers (2), each of which receives NGET (2)
 *   LEFT   messages that stay in memory (1)
 *   WAYS   times it gives way (2)
 */
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
