/*---- Scheduling, cancelling, moving, waiting, running at once ----*/

CREATE FUNCTION delay_schedule(delay interval, sql_text text) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(interval, text) IS
'schedules SQL to be run once, delay after the start of this transaction and as the current user, if this transaction commits; returns the id of the task. A delay of zero or less runs it at once after the commit. Errors: null arguments, SQLSTATE 22004; an infinite delay, 22008; syntax errors, 42601, unless delay_wheel.check_sql is off; what names, types and rights forbid, if that is plan, see delay_schedule_task; an empty text, 22023; transaction control, LISTEN and COPY with a client, 0A000; statements that cannot run inside a transaction, 25001, for which see delay_schedule_task, mode; more pending tasks than delay_wheel.max_pending allows, 53400; a read-only transaction or a standby, 25006';

CREATE FUNCTION delay_schedule(delay interval, sql_text text, VARIADIC args "any") RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(interval, text, "any") IS
'like delay_schedule(interval, text), with values for $1, $2 ... of the SQL, bound with their types; an untyped literal, and a parameter of a client that names no type, or character, takes its type from the statement, and means what it would mean in that place in this session, see keep_settings of delay_schedule_task(); only that ARRAY[$1]::d[] and ROW($1)::r do not cut what is too long for a domain over varchar(n), char(n) or bit(n), but fail, SQLSTATE 22001. A parameter without a value, SQLSTATE 42P02, a value without a parameter, 22023, and more than 65535 values, 54000, are errors';

-- the type of the default is that of no value: so the function knows that there are none
CREATE FUNCTION delay_schedule(delay text, sql_text text, VARIADIC args "any" DEFAULT NULL::void) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_text' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule(text, text, "any") IS
'like delay_schedule(interval, text, "any"), with the delay as text, such as 48 hours, which is read as a literal of the type interval is; so are untyped literals, and parameters of clients that name no type. A text that begins with a date, as 2027-03-28 09:00, is a point in time, read as a literal of timestamptz. An invalid one is an error, SQLSTATE 22007, and so is a number without a unit, other than 0: PostgreSQL would read seconds, and many a program means milliseconds';

CREATE FUNCTION delay_schedule_at(due timestamptz, sql_text text, VARIADIC args "any" DEFAULT NULL::void) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_at' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_at(timestamptz, text, "any") IS
'like delay_schedule(interval, text, "any"), at a point in time; one that is past runs at once after the commit, infinity is an error, SQLSTATE 22008';

CREATE FUNCTION delay_schedule_task(
	sql_text text,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	key text DEFAULT NULL,
	if_exists text DEFAULT NULL,
	queue text DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	group_key text DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_schedule_task' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_task(text, anycompatiblearray, jsonb, interval, timestamptz, text, text, text, text, integer, integer, text, jsonb) IS
'delay_schedule with all options, to be called with names: delay_schedule_task(''SELECT f($1)'', args => ''{1}'', delay => ''1 hour'', key => ''f 1''). Null is always: not given.
args: values of $1, $2 ..., an array. Texts (also an untyped literal, as ''{7,abc}'') are read as literals are in this session, and take their types from the statement; elements of another type, as of ARRAY[7, 8], have this type. At most 65535, SQLSTATE 54000.
named: instead of args, a JSON object with the values of :name in the SQL text, which is stored with $1, $2 ... in their place: strings, numbers and booleans as text, objects and arrays as JSON; all take their types from the statement. A name without a value is an error, SQLSTATE 42P02, so are a value without a name and args beside it, 22023, and $1 beside :name, 42601.
delay: counted from the start of this transaction; zero or less is at once after the commit.
due: point in time, instead of delay; with neither, the task runs at once after the commit; both are an error.
key, 1 to 1000 bytes: at most one pending task for each owner, queue and key.
if_exists: what to do if there is one: keep (the default) returns its id and leaves it as it is, with the promise that it begins after this transaction, and sees what it did; replace deletes it, as cancelled, and makes a new one, with a new id; replace_keep_due does so, too, but the new one is due when the old one was, whatever delay and due say (at most once in that time, and with the last arguments: throttle); earlier returns its id, and moves it to the new due time if that is earlier, later if that is later (not before it has been quiet for that long: debounce), all else of it stays, and one that is not moved is kept; error raises unique_violation, SQLSTATE 23505. A task that an executor runs just now is not pending: there is a new one then, and it is not waited for. Other transactions that have scheduled, moved or cancelled it, and are open, are waited for as UPDATE does.
queue: name of a declared queue, see delay_wheel.create_queue(); null is the default queue.
tag, 1 to 1000 bytes: for grouping, as for delay_cancel_all().
priority: -9 to 9, higher first; null is the queue''s, or else 0.
max_attempts, 1 to 32767: how often it is run if it fails; null is the queue''s, or else 1.
group_key, for a queue that has groups, see delay_wheel.create_queue(): the group that the task belongs to, any text of 1 to 1000 bytes. Groups take turns, and each has limits as the queue says. In a queue without groups it is an error, SQLSTATE 55000. Null is none: tasks without a group take turns as if they were one group, which has no limits.
options: further ones, a JSON object, as {"timeout": "5 minutes", "retry_on": ["40001"]}: intervals and points in time are texts, lists are arrays of texts. The parameters from key on may stand there, too. An unknown name is an error, SQLSTATE 22023, so are one that is not for tasks, and one that is given twice; a value of the wrong type is one, 42804. The view delay_wheel.options has all of them.
arg_types: the types of args that are texts, as many, ''-'' or null for one that takes its type from the statement, as all do without arg_types.
retry_delay, 0 to 366 days: pause before the second attempt; 0 is at once; null is the queue''s, or else 10 seconds. How it grows, and to what, say retry_backoff and retry_max_delay; each pause is lengthened by up to a quarter at random.
retry_backoff: the pause before each further attempt: exponential: twice the one before; linear: retry_delay times the number of failed attempts; fixed: retry_delay; null is the queue''s, or else exponential.
retry_max_delay, 0 to 366 days: no pause is longer, but for what is added at random; 0 is an hour, or retry_delay if that is longer; null is the queue''s, or else 0.
retry_on: SQLSTATEs, as 40001, or their classes, as 08: after another error the task is not tried again, whatever max_attempts says. give_up_on: after one of these it is not. At most 100 each; an empty array is none, so after each error it may be tried again; null is the queue''s, or else none. The error of a timeout is 57014. A serialization failure or deadlock (40001, 40P01) is judged when ten repeats at once, which are no attempts, did not help; a connection to another node of Citus that was lost, which is no attempt either, by give_up_on alone. What is no SQLSTATE is an error, SQLSTATE 22023.
timeout, 0 to 2147483647 ms: after which each attempt is cancelled, rounded up to whole ms; 0 is never, whatever the queue and the settings say; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout.
expires: it is not run later than that after due, but fails with SQLSTATE DW002; greater than zero; null is at any time.
skip_after: it is not run later than that after due, which of a later attempt is its own, and leaves no failed task: its row goes, and it is counted as skipped; greater than zero, null is not at all. The shorter one of expires and skip_after decides, expires if they are equal.
unique_for, up to 366 days, for a task with a key: no second task of the key within this time after the start of the transaction that scheduled the first one, also when that runs, or is done: it is refused, and the id of the first one returned; with if_exists => error that is an error, SQLSTATE 23505. While the first one is pending if_exists decides alone; one that replaces it begins a period anew. A first one that is cancelled, skipped or given up ends its period. Only calls with unique_for are refused, in the queue of the first one, and for the time that the first one gave. The view delay_wheel.unique_keys has the periods; they go with dumps and copies of the database, armed or not. Null is none.
headers: a JSON object, up to 64 kB, that is kept with the task. Its text traceparent, if it has one, is the setting delay_wheel.traceparent while the task runs, and what follows by on_success and on_failure.
notify, 1 to 63 bytes: a channel, as given to pg_notify(), that is notified of its end, in the transaction that ends it: a JSON object with id, outcome (done, failed: given up, skipped, cancelled), sqlstate if it failed, key and tag if it has them and they are not too long.
on_success, on_failure: SQL that is scheduled as a task of its own, due at once, in the transaction in which this one is done, or given up; with its owner, queue, priority, tag, search_path and kept settings. on_success may use $1, its id (bigint), and $2, the number of rows of its last statement (bigint); on_failure $1, its id, $2, SQLSTATE, and $3, the message of its last error (text). Neither is run for tasks that are skipped or cancelled. Together they have 128 MB at most, SQLSTATE 54000.
mode, for a statement that cannot run inside a transaction (VACUUM, CREATE INDEX CONCURRENTLY, CALL of a procedure that commits ...): at_most_once or at_least_once; it is run by itself then, as a client would run it, and only this one statement is allowed. at_most_once: it is not begun a second time if its end is not known, after a crash of the server or the end of its executor, but stands in delay_wheel.failed with SQLSTATE DW003; at_least_once: it is run again then. Both are run again after an error if max_attempts allows; what the statement had committed before the error stays. Not for tasks of roles without LOGIN before PostgreSQL 17: these fail with SQLSTATE 0A000. Null, the default, for all that can run in a transaction: only these are run exactly once.
check_sql: how the text is checked now: off; on: it is parsed; plan: it is also analyzed and planned as a prepared statement would be, with this search_path and the types of the arguments, and the rights of the current user are looked at: those on tables, columns, and functions that it calls itself; null is as the setting delay_wheel.check_sql says. The errors are those that the run would raise, with their position. With plan: what is not there yet is an error, also if somebody would create it in time; what this transaction has created is there. A temporary table is an error, SQLSTATE 0A000, since the task runs in another session; temporary functions, types and sequences are not noticed, and a permanent table that a temporary one hides is not seen. Nothing is executed, but planning may evaluate functions that are declared immutable or stable; no lock is kept but session-level advisory locks that these take. Utility statements are only parsed, except CALL, and the queries in EXPLAIN, DECLARE and CREATE TABLE AS; of several statements those after the first utility statement are only parsed, too, since it may create what they need; so are on_success, on_failure, and the bodies of functions. Constraints, triggers and the values of arguments that have types are not looked at.
keep_settings: names of settings, as app.tenant and TimeZone, whose present values are stored with it, and are set while it runs, as if it began with SET LOCAL: row security, for instance, finds them as the caller had them. Each attempt has them, and what follows by on_success and on_failure. A custom setting that is not set is empty then. They must be such that the current user may set them; the rights of the owner count again when it runs. At most 100 of them, and 64 kB, SQLSTATE 54000; an empty array is none; null is as the queue says, or else the setting delay_wheel.keep_settings. Kept without being named are TimeZone, the order of DateStyle, IntervalStyle (whether it is sql_standard), timezone_abbreviations, lc_monetary, xmloption, array_nulls, standard_conforming_strings and transform_null_equals, each if a text may mean something else by it than in a new session of the owner. Not kept are role, session_authorization, search_path (which each task keeps), statement_timeout (which is timeout), those of transactions and those of delay_wheel but traceparent, SQLSTATE 22023; an unknown name without a dot is an error, 42704, and so is one that the current user may not set, 42501, or nobody, 55P02.
Other errors as in delay_schedule. The id of a task with the key that is pending already is returned with keep, else that of the new one';

CREATE FUNCTION delay_wheel_internal.get_options(OUT name text, OUT type text, OUT minimum text, OUT maximum text, OUT given_to text[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_options' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_options() IS 'all options, see delay_wheel.options';

CREATE VIEW delay_wheel.options AS SELECT * FROM delay_wheel_internal.get_options();
COMMENT ON VIEW delay_wheel.options IS
'all options that the functions which schedule, send, change and declare take by name, as parameters or in their parameter options';
COMMENT ON COLUMN delay_wheel.options.name IS 'name of the option';
COMMENT ON COLUMN delay_wheel.options.type IS 'type of the parameter; in options an interval and a timestamptz are texts, arrays are arrays of texts';
COMMENT ON COLUMN delay_wheel.options.minimum IS 'lowest value; null if there is none; of texts: their length in bytes';
COMMENT ON COLUMN delay_wheel.options.maximum IS 'highest value, likewise';
COMMENT ON COLUMN delay_wheel.options.given_to IS 'what has it: tasks, messages, triggers (on their rows), recurring tasks, changes of pending tasks, queues';
GRANT SELECT ON delay_wheel.options TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_options() TO PUBLIC;

CREATE FUNCTION delay_scheduled(INOUT id bigint DEFAULT NULL, OUT outcome text, OUT due_at timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'dw_scheduled' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_scheduled(bigint) IS
'what the last call of this transaction that scheduled a task, or sent a message, has done with the key: SELECT * FROM delay_scheduled(delay_schedule_task(...)).
id: of the task that is pending then, as delay_schedule_task() returns it.
outcome: new, there is one more task; kept, one of the key was pending and stays as it was; moved, one of the key was pending and has the new due time; replaced, one of the key was pending and is cancelled, and id is the new one; refused, one of the key was scheduled within its unique_for, and is not pending any more: id is its, due_at is null.
due_at: when it is due.
It is an error, SQLSTATE 55000, if there was no such call, or it was undone by ROLLBACK TO SAVEPOINT, or its task has another id';

CREATE FUNCTION delay_schedule_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_schedule_trigger' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_schedule_trigger() IS
'for CREATE TRIGGER ... AFTER INSERT OR UPDATE ... FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(delay, sql [, column ...] [, option ...]): each row schedules a task of the current user, who must be allowed to use delay_wheel, see delay_wheel.allow(). Names of columns are written as in the catalog, without quotes.
delay: the name of a column of type interval (counted from the start of the transaction) or timestamptz (point in time), or else an interval. Null in the column: no task, and with if_exists=replace or replace_keep_due the pending one of the key is cancelled. sql: as in delay_schedule. column ...: for $1, $2 ..., bound with their types.
Options: key=, queue=, tag=, group_key=, each with the name of a column, of any type, or else text; null in the column: none. Keys are those of the current user and the queue: two triggers with the same keys replace each other''s tasks. if_exists= what to do if a task of the key is pending: replace (the default), keep, replace_keep_due, earlier, later, error; see delay_schedule_task. Others have a constant, for all rows: priority=, max_attempts=, retry_delay=, retry_backoff=, retry_max_delay=, retry_on={40001,08}, give_up_on=, timeout=, expires=, skip_after=, unique_for= (for rows with a key), notify=, on_success=, on_failure=, keep_settings={app.tenant}. All else is as the queue says.
Wrong arguments and wrong kinds of triggers are errors when the trigger first fires, others as in delay_schedule';

CREATE FUNCTION delay_cancel(id bigint DEFAULT NULL, stop_running boolean DEFAULT false, tell_end boolean DEFAULT false,
	key text DEFAULT NULL, queue text DEFAULT NULL, no_retry boolean DEFAULT false) RETURNS text
AS 'MODULE_PATHNAME', 'dw_cancel' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel(bigint, boolean, boolean, text, text, boolean) IS
'cancels a pending task, if this transaction commits: cancelled; running, if an executor runs it just now (it is not stopped, unless stop_running is true); gone, if there is no such task (any more). Waits for another session''s open change of the task as UPDATE does. With stop_running, a task that runs is stopped at once, whatever becomes of this transaction: stopping; it fails with SQLSTATE 57014 and a message that says who stopped it, and is not tried again. A task that is just committing may still be done, and one that is not interruptible (as a function in C that does not look for cancels) goes on until it is; delay_wait(id) tells. With no_retry, one that runs goes on, and is not tried again if it fails, whatever becomes of this transaction: ending. With tell_end, how a task has ended stands in place of gone, as far as it is known: done, failed, skipped or cancelled; it is found as delay_status() finds it, so gone is said then of a task of which nothing is known. Neither an id nor a key is an error, SQLSTATE 22004, both are one, 22023, and so are stop_running, no_retry and tell_end with a key. Only for members of the owner role and superusers, for others an error, SQLSTATE 42501.
key, queue: instead of the id, the key of a task of the current user, and its queue (null: the default queue): delay_cancel(key => ''unpaid 7''). A call by key does not see tasks that others have not committed. A queue that does not exist is an error, SQLSTATE 42704';

CREATE FUNCTION delay_cancel_all(queue text DEFAULT NULL, tag text DEFAULT NULL, due_from timestamptz DEFAULT NULL, due_until timestamptz DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_cancel_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel_all(text, text, timestamptz, timestamptz) IS
'cancels all pending tasks of this queue, with this tag, that are due from due_from (inclusive) to due_until (exclusive), if this transaction commits: at once, however many they are, also those that open and prepared transactions have scheduled before. Null does not restrict; one of the four must be given (all tasks: due_from => ''-infinity''). Concerns the tasks of all roles whose rights the caller has, of all roles for a superuser. Returns the number of the cancellation in the view delay_wheel.cancellations: it shows which of the tasks are running, which are not stopped, and how far the removal of their rows is, which goes on in the background. Tasks that are scheduled, or moved to such a time, afterwards are not concerned. No restriction at all, SQLSTATE 22004, an unknown queue, 42704, a tag of more than 1000 bytes, due times in the wrong order, 22023, and more than 10,000 cancellations of one role, which is no superuser, whose rows are not removed yet, 53400, are errors; the last one not for a whole queue, or all tasks, without tag and due times (other than ''-infinity'' and ''infinity''): so an emergency stop always works. Such a cancellation takes the place of older ones that hit nothing but what it hits, which are not in the view any more';

CREATE FUNCTION delay_reschedule(id bigint DEFAULT NULL, delay interval DEFAULT NULL, key text DEFAULT NULL, queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_reschedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, interval, text, text) IS
'moves a pending task to delay after the start of this transaction, if this transaction commits; the id stays: moved; running, if an executor runs it just now; gone, if there is no such task (any more). Waits, rights, and key and queue, as in delay_cancel. A null delay, SQLSTATE 22004, and an infinite one, 22008, are errors; without delay and due PostgreSQL finds more than one function, 42725';

CREATE FUNCTION delay_reschedule(id bigint DEFAULT NULL, delay text DEFAULT NULL, key text DEFAULT NULL, queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_reschedule_text' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, text, text, text) IS
'like delay_reschedule(bigint, interval, text, text), with a delay or a point in time as in delay_schedule(text, text, "any")';

CREATE FUNCTION delay_reschedule(id bigint DEFAULT NULL, due timestamptz DEFAULT NULL, key text DEFAULT NULL, queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_reschedule_due' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_reschedule(bigint, timestamptz, text, text) IS
'like delay_reschedule(bigint, interval, text, text), to a point in time';

CREATE FUNCTION delay_update(
	id bigint DEFAULT NULL,
	delay interval DEFAULT NULL,
	due timestamptz DEFAULT NULL,
	sql_text text DEFAULT NULL,
	args anycompatiblearray DEFAULT NULL::text[],
	named jsonb DEFAULT NULL,
	payload jsonb DEFAULT NULL,
	tag text DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	options jsonb DEFAULT NULL,
	key text DEFAULT NULL,
	queue text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'dw_update' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_update(bigint, interval, timestamptz, text, anycompatiblearray, jsonb, jsonb, text, integer, integer, jsonb, text, text) IS
'changes a pending task, if this transaction commits, to be called with names: delay_update(7, priority => 1); what is null stays as it was, and so does the id: changed; running, if an executor runs it just now; gone, if there is no such task (any more). Waits, rights, and key and queue, as in delay_cancel.
delay, due: when it is due, as in delay_schedule_task().
sql_text, args, named: as in delay_schedule_task(); args of texts alone, without arg_types and sql_text, have the types that the arguments had, if their number is the same; judged as there, by the setting delay_wheel.check_sql (plan only a new text of a task of the current user); a text without args keeps the arguments, args without a text keep the text, an empty array (''{}'') is for none. Beside the rights of delay_cancel one must be able to become the owner by SET ROLE, SQLSTATE 42501. A new text is read as in this session from then on, see keep_settings there. Arguments without a type are an error, SQLSTATE 55000, if the text stays and is not read as in this session: pass arg_types, or the text, too.
priority, max_attempts: as in delay_schedule_task().
tag: an empty one takes it away.
payload: of a message, see delay_send(), which has no text, arguments, timeout, retry_on and give_up_on.
options: a JSON object with what else is to be changed: arg_types, group_key (an empty text is for none), retry_delay, retry_backoff, retry_max_delay, retry_on, give_up_on, timeout, expires, skip_after, notify, on_success, on_failure, headers (an empty object is none), as in delay_schedule_task(); to_queue and new_key. An empty text takes notify, on_success and on_failure away, 0 expires and skip_after.
to_queue: name of the queue that it goes to; default is the default queue. The current user must own it, or be one of its users; another task of its key that is pending there is an error, SQLSTATE 23505.
new_key: its key from now on; an empty text is for none. Another task of that key that is pending is an error, SQLSTATE 23505.
Of a run of a recurring task only this run is changed. Nothing to be changed, SQLSTATE 22004, what does not fit a message or an SQL task, 55000, and what delay_schedule_task() refuses are errors';

CREATE FUNCTION delay_run(id bigint) RETURNS text
AS 'MODULE_PATHNAME', 'dw_run' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_run(bigint) IS
'runs a pending task now: done; moved, or cancelled, if it has called delay_snooze(); running, if an executor runs it just now; gone, if there is no such task (any more). It runs as its owner and in the caller''s transaction, whatever its due time, expires, skip_after, attempts, and pauses of its queue; errors are the caller''s. If the caller''s transaction is rolled back the task stays as it was. Waits for another session''s open change of the task as UPDATE does. The task''s timeout does not apply, the caller''s statement_timeout does; settings that the task makes are undone. Only in a session that has logged in as the task''s owner, and is it still: not after SET ROLE, and not for superusers. Elsewhere use delay_reschedule(id, ''0''), and delay_wait. Errors, beside those of the SQL: another session, a task that is not armed, or has a mode, SQLSTATE 55000; that of a role whose rights one does not have, 42501; a null id, 22004';

CREATE FUNCTION delay_snooze(delay interval) RETURNS void
AS 'MODULE_PATHNAME', 'dw_delay_snooze' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_snooze(interval) IS
'by the SQL of a task: not yet. The task is run again after delay, which counts from the time of the call, if this run ends without an error. What this run has done stays; it is no attempt, and leaves no row in the history; nothing follows from it. The last call counts, and one that was rolled back to a savepoint does not. The id stays, so do expires and skip_after, which count from the new due time. In a group whose order is held, the task keeps its place, and those after it wait. If the task was told to end with this run (delay_cancel with no_retry), or a newer one of its key is pending, it counts as cancelled. In a task with a mode it may be called by whichever transaction of its statement. No delay, SQLSTATE 22004, one below a millisecond or above 366 days, 22023, and a call outside of a task, or from its deferred triggers, 55000, are errors';

CREATE FUNCTION delay_run_due(until timestamptz DEFAULT NULL, as_executor boolean DEFAULT false) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_run_due' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_run_due(timestamptz, boolean) IS
'for tests of an application: runs all pending tasks of the current user that are due until then (null: now(), the start of this transaction), in the order of their due times, as delay_run() does: in the caller''s transaction, whatever pauses, limits, timeout, expires, skip_after and attempts say, errors being the caller''s; returns how many. Those that this transaction has scheduled are among them, and those that the tasks schedule: delays count from the due time of the task that is run, if it is later than now(), which stays as it is (delay_now() is that time); so with recurring tasks and until = infinity it has no end. Tasks that executors run just now, that are not armed, and those that do not run in a transaction (with a notice of their number) are left; others that open transactions change are waited for as UPDATE does. Tasks that were committed may be run by executors before: delay_pause_all(), committed, keeps them from that. Tasks of one due time that schedule others for the same time, more than 1000 times one after the other, are an error, SQLSTATE 54000.
as_executor: a task that fails raises no error, but what it did is undone, and it is pending again or in delay_wheel.failed, as max_attempts, retry_delay, retry_on and give_up_on say; further attempts and on_failure are run as well if they are due by then; tasks that are late are skipped or fail, as skip_after and expires say, by the clock or by the highest due time so far, if that is later. Each attempt counts in the result, what was skipped or has expired does not. A notice has the number of tasks due by then that are left of other roles whose rights the caller has. What differs from executors: all is one transaction, with a subtransaction for each attempt, so deferred constraints and triggers come at its end, unless SET CONSTRAINTS ALL IMMEDIATE is in force, and advisory locks, temporary objects and settings of the session are the caller''s; pauses, limits and timeouts do not count; times in history and failed tasks are those of the clock. A cancel of the caller''s statement, SQLSTATE 57014, is raised, and so is that error of a task''s own. Null is false';

CREATE FUNCTION delay_now() RETURNS timestamptz
AS 'MODULE_PATHNAME', 'dw_delay_now' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_now() IS
'now(), the start of this transaction; in a task that delay_run_due() runs the time that delays count from: the due time of the task (with as_executor: the highest one so far), if that is later. For the SQL of tasks that asks for the time and is to be tested so';
