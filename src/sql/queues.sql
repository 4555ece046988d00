/*---- Queues and pauses ----*/

CREATE FUNCTION delay_wheel.create_queue(
	name text,
	max_running integer DEFAULT NULL,
	rate integer DEFAULT NULL,
	per interval DEFAULT NULL,
	burst integer DEFAULT NULL,
	priority integer DEFAULT NULL,
	max_attempts integer DEFAULT NULL,
	groups boolean DEFAULT NULL,
	external boolean DEFAULT NULL,
	users name[] DEFAULT NULL,
	receivers name[] DEFAULT NULL,
	options jsonb DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_create_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.create_queue(text, integer, integer, interval, integer, integer, integer, boolean, boolean, name[], name[], jsonb) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.create_queue(text, integer, integer, interval, integer, integer, integer, boolean, boolean, name[], name[], jsonb) IS
'declares a queue, which the current user owns, or changes one, if this transaction commits; acts at once. What is null is left as it is, or is the default of a new queue.
name: up to 63 bytes, not ''default''.
max_running: how many of its tasks run at a time; 0 (the default) is no limit.
rate, up to 1000000: how many are started in the time per; 0 (the default) is no limit.
per, 1 second to 366 days: the time that rate is for: rate => 10, per => ''1 minute'' starts one each 6 seconds; a second is the default.
burst, up to 100000: how many starts that the rate has left unused are made up for at once, the next one included: 1 is never two at once; 0 (the default) is what the rate allows in 100 ms and one more, at least 2. After a restart of the server all of them count as unused.
priority: of tasks that say none: -9 to 9; 0 is the default.
max_attempts, 1 to 32767: of tasks that say none; 1 is the default, of an external queue 20.
groups: whether its tasks may belong to groups, by group_key of delay_schedule_task(): tenants, say, or accounts; false by default. Of the groups with due tasks each has one task begun in turn, so one with 100,000 does not hold up another with one. Tasks whose group_key is the same text are one group, whoever owns them and whatever their priority; roles and priorities take turns as in other queues, and groups within these. Any number of groups may have pending tasks; delay_wheel.max_groups of them take turns at once. It cannot be taken away while the queue has tasks, SQLSTATE 55006; limits and order of groups can.
external: whether it has messages, which sessions take by delay_receive(), and not SQL tasks, which executors run; false by default. It cannot be changed while the queue has tasks or messages, or open transactions use it, SQLSTATE 55006; options that mean nothing for its new kind are reset then. Its max_running is how many of its messages open transactions and leases may have at a time, its rate how many are received in a second; timeout, batch, retry_on, give_up_on and keep_settings are refused for it, and receivers, lease, receive_timeout and notify_channel for others, SQLSTATE 22023.
users: roles that may schedule into it, beside members of its owner and superusers, names as in pg_roles, public for all roles; none by default.
receivers: of an external queue: roles that may receive its messages, beside members of its owner and superusers, names as for users; none by default. Its users are those who may send.
options: further ones, a JSON object, as {"lease": "5 minutes", "group_max_running": 1}; see delay_schedule_task(). The parameters but the name may stand there, too.
timeout, 0 to 2147483647 ms: of tasks that say none; 0 (the default) is none of the queue''s own: for them the settings of the role hold.
retry_delay, 0 to 366 days: of tasks that say none; 0 is at once, 10 seconds the default.
batch: whether its tasks may share a transaction with others, true by default.
spread, up to 366 days: due times of new tasks are put off, each by another part of this; 0 (the default) is not at all.
history: which ends of its tasks are recorded in delay_wheel.history, off, errors, sample or all, or default (the default): as the setting delay_wheel.history says.
lease, a millisecond to 366 days: of an external queue: how long delay_lease() gives a message away if it says nothing; a minute is the default.
receive_timeout, 0 to 2147483647 ms: of an external queue: how long a transaction that has received by delay_receive() may be idle, before its session is ended and its messages are due again: sets idle_in_transaction_session_timeout for the transaction, unless that is shorter; 0 is without limit, a minute the default.
notify_channel, up to 63 bytes: of an external queue: a channel, as given to pg_notify(), that is notified, with the name of the queue, when a message can be received, at most ten times a second; empty (the default) is none. For those who cannot call delay_await(): look for messages after LISTEN and after each notification.
retry_backoff, retry_max_delay, retry_on, give_up_on: of tasks that say none, as in delay_schedule_task; exponential, 0 (an hour) and empty arrays (none) are the defaults.
keep_settings: settings of the callers that are kept with tasks that say none, also by delay_schedule_trigger(), as in delay_schedule_task; the current user must be allowed to set them, and so must be each caller; an empty array (the default) is those of the setting delay_wheel.keep_settings.
group_max_running: how many tasks of one group run at a time, or of an external queue how many messages of one group are received by open transactions or leased; 0 (the default) is no limit.
group_rate, group_per, group_burst: as rate, per and burst, for one group.
group_order: hold or pass: tasks of one group run one after the other, each after the commit of the one before, in the order of their due times, and of their ids where these are equal; whatever their owners and priorities. A task that cannot begin (its role or queue is paused, its row is locked, its role cannot log in) holds its group back until it can, or is gone. With hold so does one that has failed and is to be tried again; with pass those behind it go on meanwhile. One that is scheduled with a due time that has passed comes next. Tasks without a group have no order. any (the default) is no order.
Limits and order of groups need groups, and hold beside the limits of the queue. Of an external queue with group_order a message of a group is received after the one before is gone: its transaction committed, its lease ended by delay_done() or a last failure. With hold one whose lease has ended without a word, or that is released, is received again before those behind it, and with pass a message whose lease has ended is due at that time. delay_extend() refuses a lease that has ended, in a group with group_max_running or group_order.
Limits hold for the whole database, whoever owns the tasks. To be called by those granted it; a queue is changed only by members of its owner and superusers, for others it is an error, SQLSTATE 42501. So is more than delay_wheel.max_queues in all databases, 53400, a value out of its range, 22023, and a name that is null, 22004, or too long, 42622. Returns true';

CREATE FUNCTION delay_wheel.drop_queue(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_drop_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.drop_queue(text) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.drop_queue(text) IS
'drops a queue, if this transaction commits. An error, SQLSTATE 55006, if tasks are pending in it, recurring tasks name it, or open transactions have scheduled some; nothing is waited for. A queue that does not exist is one, too, 42704. Failed tasks of it stay, without the name. To be called by those granted it, for queues of roles that they are members of. Returns true';

CREATE FUNCTION delay_pause_all() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_pause_all() IS
'pauses all tasks of the current user in this database, if this transaction commits: from then on none of them is started; those that run go on. Tasks are scheduled, moved and cancelled as ever. A pause lasts until delay_resume_all(), also over restarts; if there is one already nothing changes. Waits for another session''s open pause or resume of the same. Returns true';

CREATE FUNCTION delay_resume_all() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_resume_all() IS
'ends what delay_pause_all() began, if this transaction commits: tasks that are overdue run at once, at the rate of their queue, begun in the order of their due times: where several executors work off a queue (max_running is not 1), one may be done before another that was due earlier. What is paused otherwise, too (queue, database), stays paused. If there is no such pause nothing changes. Waits as delay_pause_all() does. Returns true';

CREATE FUNCTION delay_wheel.pause_queue(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION delay_wheel.pause_queue(text) TO PUBLIC;
COMMENT ON FUNCTION delay_wheel.pause_queue(text) IS
'pauses a queue, as delay_pause_all() does the tasks of a role. For members of its owner and superusers, for others it is an error, SQLSTATE 42501; a queue that does not exist is one, 42704, so is default, 42939, and a null name, 22004. Returns true';

CREATE FUNCTION delay_wheel.resume_queue(name text) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_queue' LANGUAGE C VOLATILE PARALLEL UNSAFE;
GRANT EXECUTE ON FUNCTION delay_wheel.resume_queue(text) TO PUBLIC;
COMMENT ON FUNCTION delay_wheel.resume_queue(text) IS
'ends what delay_wheel.pause_queue() began, as delay_resume_all() does for a role; rights as there. Returns true';

CREATE FUNCTION delay_wheel.pause_database() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_pause_database' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.pause_database() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.pause_database() IS
'pauses all tasks of this database, as delay_pause_all() does those of one role. Only for superusers and the owner of the function, unless granted. Returns true';

CREATE FUNCTION delay_wheel.resume_database() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_resume_database' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.resume_database() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.resume_database() IS
'ends what delay_wheel.pause_database() began; pauses of roles and queues stay. Only for superusers and the owner of the function, unless granted. Returns true';
