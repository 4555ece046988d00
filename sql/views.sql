--
-- VIEWS
-- tasks shows where the ring places each task; ring what is in memory, running
-- what runs, status how it is all going.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

SELECT current_setting('delay_wheel.slots')::int AS slots, extract(epoch FROM current_setting('delay_wheel.tick')::interval) AS tick \gset
CREATE TABLE views_effect (label text);

CREATE FUNCTION pg_temp.place(due timestamptz, OUT slot int, OUT cycle_num bigint) STRICT LANGUAGE sql
	AS 'SELECT delay_wheel_internal.slot(due), delay_wheel_internal.cycle_num(due)';
-- A slot later for each tick, the same one after each turn; turns counted
-- whole, none for what is past.
SELECT bool_and((p.slot - h.slot + :slots) % :slots = (s % :slots + :slots) % :slots) AS slots_follow, min(p.slot) >= 0 AND max(p.slot) < :slots AS in_range
	FROM (SELECT now() AS t0) t, generate_series(-2 * :slots, 2 * :slots, 7) s,
		pg_temp.place(t0) h, pg_temp.place(t0 + s * :tick * interval '1 s') p;
SELECT n, p.slot = h.slot AS same_slot, q.cycle_num = n AS turns
	FROM generate_series(0, 1000, 250) n,
		pg_temp.place(now()) h, pg_temp.place(now() + n * :slots * :tick * interval '1 s') p,
		pg_temp.place(clock_timestamp() + (n * :slots + 0.5) * :tick * interval '1 s') q
	ORDER BY n;
SELECT slot BETWEEN 0 AND :slots - 1 AS slot_ok, cycle_num FROM pg_temp.place('1900-01-01 00:00:00.000001+00');
SELECT slot BETWEEN 0 AND :slots - 1 AS slot_ok, cycle_num > 0 AS far FROM pg_temp.place('294276-12-31 23:59:59.999999+00');
SELECT slot BETWEEN 0 AND :slots - 1 AS slot_ok, cycle_num FROM pg_temp.place('4714-11-24 00:00:00+00 BC');
SELECT pg_temp.place(NULL);

-- the article's example: 3610 seconds from slot 1 on are slot 11, a turn later
SELECT (p.slot - h.slot + :slots) % :slots = (3610 / :tick)::int % :slots AS ten_slots_on,
	   p.cycle_num IN (floor(3610 / :tick / :slots), floor(3609 / :tick / :slots)) AS a_turn_later
	FROM pg_temp.place(now()) h, pg_temp.place(now() + interval '3610 s') p;

-- in the view, the same
BEGIN;
SELECT delay_schedule('3610 s', 'SELECT 1', VARIADIC NULL::text[]) AS id \gset
SELECT t.slot = p.slot AND abs(t.cycle_num - p.cycle_num) <= 1 AS as_placed, queue, priority, key, tag, attempts, last_error, armed
	FROM delay_wheel.tasks t, pg_temp.place(now() + interval '3610 s') p WHERE id = :id;
ROLLBACK;

-- all that delay_schedule_task() and delay_every() take; and which one a run is of
BEGIN;
SELECT delay_schedule_task('SELECT $1', args => '{1}', delay => '1 day', max_attempts => 3, options => '{"arg_types": ["int"], "retry_delay": "4 s", "timeout": "5 s", "expires": "6 s", "notify": "views", "on_success": "SELECT 7", "on_failure": "SELECT 8"}') AS id \gset
SELECT arg_types, max_attempts, retry_delay, timeout, expires, skip_after, notify, on_success, on_failure FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_task('SELECT 1', delay => '1 day', options => '{"skip_after": "1 h"}') AS id \gset
SELECT arg_types, max_attempts, retry_delay, timeout, expires, skip_after, notify, on_success, on_failure FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_every('views', '1 day', 'SELECT 1', max_attempts => 3, options => '{"retry_delay": "4 s", "timeout": "5 s", "skip_after": "6 s", "notify": "views", "on_success": "SELECT 7", "on_failure": "SELECT 8"}') > 0 AS ok;
SELECT r.id = d.id AS same_id, r.arg_types, r.max_attempts, r.retry_delay, r.timeout, r.skip_after, r.notify, r.on_success, r.on_failure, r.mode FROM delay_wheel.recurring r JOIN delay_wheel_data.recurring_task d USING (id);
-- whatever plain SQL has written there, the views can be read
INSERT INTO delay_wheel_data.task (due, sql, key, tag, more)
	SELECT now() + '1 day', 'SELECT 1', n, 'views_more', more::jsonb
	FROM unnest('{"1000000","\"1 h\"","{}","[1]","null","true","-5","0.5","1e400","-1e400"}'::text[]) WITH ORDINALITY m(value, n),
		format('{"skip_after": %s, "notify": 1}', value) more;
INSERT INTO delay_wheel_data.task (due, sql, key, tag, more) VALUES (now() + '1 day', 'SELECT 1', 'array', 'views_more', '["skip_after"]'),
	(now() + '1 day', 'SELECT 1', 'scalar', 'views_more', '"skip_after"'), (now() + '1 day', 'SELECT 1', 'null', 'views_more', 'null');
SELECT t.key, left(r.more ->> 'skip_after', 10) AS written, t.skip_after, t.notify
	FROM delay_wheel.tasks t JOIN delay_wheel_data.task r USING (id) WHERE t.tag = 'views_more' ORDER BY id;
UPDATE delay_wheel_data.recurring_task SET more = '{"skip_after": "soon"}' WHERE name = 'views';
SELECT skip_after FROM delay_wheel.recurring WHERE name = 'views';
UPDATE delay_wheel_data.recurring_task SET more = '{"skip_after": 1e400}' WHERE name = 'views';
SELECT skip_after FROM delay_wheel.recurring WHERE name = 'views';
-- by its id, by ids, and in the order of ids: by the index, so that it takes no time if there are many
INSERT INTO delay_wheel_data.task (due, sql, tag) SELECT now() + '1 day', 'SELECT 1', 'views_many' FROM generate_series(1, 1000);
SELECT min(id) AS first FROM delay_wheel.tasks WHERE tag = 'views_many' \gset
SELECT count(*) FROM delay_wheel.tasks WHERE id = :first;
SELECT count(*) FROM delay_wheel.tasks WHERE :first = id;
SELECT count(*) FROM delay_wheel.tasks WHERE id = ANY (ARRAY[:first, :first + 1, -1, NULL]);
SELECT count(*) FROM delay_wheel.tasks WHERE id = NULL;
SELECT count(*) FROM generate_series(:first, :first + 9) i JOIN delay_wheel.tasks t ON t.id = i;
SELECT bool_and(below) AS ordered FROM (SELECT id > lag(id) OVER (ORDER BY n) AS below FROM (SELECT id, row_number() OVER () AS n FROM (SELECT id FROM delay_wheel.tasks ORDER BY id LIMIT 100) t) t) t;
SELECT id - :first AS last FROM delay_wheel.tasks WHERE tag = 'views_many' ORDER BY id DESC LIMIT 1;
SELECT count(*) >= 1000 AS of_owner FROM delay_wheel.tasks WHERE owner = current_user;
-- by which index a role finds its own rows, however many others have: with 3 of 3,000, in any order of queue and priority
CREATE FUNCTION pg_temp.access(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (COSTS OFF, FORMAT JSON) SELECT %s', query) INTO plan;
	RETURN QUERY SELECT DISTINCT p ->> 'Index Name' FROM jsonb_path_query(plan, '$.** ? (@."Index Name" starts with "task_")') p ORDER BY 1;
END $$;
CREATE ROLE regress_dw_views_small;
CREATE ROLE regress_dw_views_large;
INSERT INTO delay_wheel_data.task (due, sql, owner, key, queue, priority)
	SELECT now() + '1 day', 'SELECT 1', CASE WHEN i % 1000 = 0 THEN 'regress_dw_views_small' ELSE 'regress_dw_views_large' END::regrole, 'key ' || i, i % 2, i % 3 FROM generate_series(1, 3000) i;
ANALYZE delay_wheel_data.task;
SET LOCAL ROLE regress_dw_views_small;
SELECT count(*) FROM delay_wheel.tasks;
SELECT query, access FROM unnest(ARRAY['* FROM delay_wheel.tasks', '* FROM delay_wheel.tasks WHERE id = 1', '* FROM delay_wheel.tasks WHERE key = ''key 1000''', '* FROM delay_wheel.tasks WHERE due > now()',
	'* FROM (VALUES (1)) i JOIN delay_wheel.tasks t ON t.id = i.column1']) query, pg_temp.access(query) access;
RESET ROLE;
SELECT query, access FROM unnest(ARRAY['* FROM delay_wheel.tasks ORDER BY id LIMIT 1', '* FROM delay_wheel.tasks WHERE id = 1']) query, pg_temp.access(query) access;
-- 20 rows of 3,000 are read by an index, and the others are not read at all
CREATE FUNCTION pg_temp.rows_read(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) SELECT %s', query) INTO plan;
	RETURN sum(((p -> 'Actual Rows')::numeric + COALESCE((p -> 'Rows Removed by Filter')::numeric, 0)) * (p -> 'Actual Loops')::numeric)
		FROM jsonb_path_query(plan, 'strict $.** ? (exists (@."Relation Name"))') p;
END $$;
CREATE ROLE regress_dw_views_stranger;
CREATE TEMP TABLE views_row AS SELECT i, CASE WHEN i % 1000 = 0 THEN 'regress_dw_views_small' ELSE 'regress_dw_views_large' END::regrole AS owner FROM generate_series(1, 3000) i;
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
	SELECT i, now() + i * interval '1 s', now(), delay_wheel_internal.origin(), owner, 0, 0, 1, '22012', 'division by zero', 'SELECT 1/0' FROM views_row;
INSERT INTO delay_wheel_data.audit (id, at, owner, pid, action) SELECT i, now() + i * interval '1 s', owner, 1, 'schedule' FROM views_row;
INSERT INTO delay_wheel_data.unique_key (id, until, owner, queue, key) SELECT i, now() + '1 day' + i * interval '1 s', owner, 0, i FROM views_row;
INSERT INTO delay_wheel_data.recurring_task (starts, every, owner, name, timezone, sql) SELECT now(), '1 day', owner, i, 'UTC', 'SELECT 1' FROM views_row;
INSERT INTO delay_wheel_data.batch (id, owner, closed, made_at, ended_at, queue) SELECT i, owner, true, now(), now() + i * interval '1 s', 0 FROM views_row;
ANALYZE delay_wheel_data.failed_task, delay_wheel_data.audit, delay_wheel_data.unique_key, delay_wheel_data.recurring_task, delay_wheel_data.batch;
CREATE TEMP VIEW reads AS
	SELECT query, pg_temp.rows_read(query) FROM unnest(ARRAY['tasks ORDER BY id', 'tasks ORDER BY id DESC', 'tasks WHERE id > 0 ORDER BY id', 'failed ORDER BY id', 'failed ORDER BY failed_at DESC, id DESC',
		'audit ORDER BY at DESC, id DESC', 'unique_keys ORDER BY id', 'unique_keys ORDER BY until', 'recurring ORDER BY id', 'batches ORDER BY id DESC', 'batches ORDER BY ended_at DESC']) v, format('* FROM delay_wheel.%s LIMIT 20', v) query;
GRANT SELECT ON pg_temp.reads TO PUBLIC;
SELECT query, rows_read FROM pg_temp.reads WHERE rows_read > 150;
-- (rows of other roles come first)
SET LOCAL ROLE regress_dw_views_large;
SELECT query, rows_read FROM pg_temp.reads WHERE rows_read > 2000;
SET LOCAL ROLE regress_dw_views_small;
SELECT query, rows_read FROM pg_temp.reads WHERE rows_read > 150 AND query LIKE '% delay_wheel.tasks %';
SET LOCAL ROLE regress_dw_views_stranger;
SELECT query, rows_read FROM pg_temp.reads WHERE rows_read > 0 AND query LIKE '% delay_wheel.tasks %';
RESET ROLE;
-- views that PostgreSQL does not merge into a query: those with GROUP BY, DISTINCT, ORDER BY, LIMIT or WITH, and none for a volatile column
CREATE FUNCTION pg_temp.is_merged(name regclass) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE format('EXPLAIN (FORMAT JSON) SELECT FROM %s probe WHERE random() < 2', name) INTO plan;
	RETURN NOT plan @? 'strict $.** ? (@."Node Type" == "Subquery Scan" && @."Alias" == "probe")';
END $$;
SELECT oid::regclass AS not_merged FROM pg_class
	WHERE relkind = 'v' AND relnamespace IN ('delay_wheel'::regnamespace, 'delay_wheel_data'::regnamespace, 'delay_wheel_internal'::regnamespace) AND NOT pg_temp.is_merged(oid) ORDER BY oid::regclass::text COLLATE "C";
-- a lease ends for a transaction that began before; then a newer message of the key supersedes the message
INSERT INTO delay_wheel_data.task (due, payload, key, tag, token, first_due, leased_at, more) VALUES (clock_timestamp() + '1 s', '1', 'views_lease', 'views_lease', 1, now(), now(), '{"receiver": "views"}');
SELECT pg_temp.wait_for($$leased_until IS NULL AND receiver IS NULL FROM delay_wheel.tasks WHERE tag = 'views_lease'$$);
UPDATE delay_wheel_data.task SET due = clock_timestamp() + '1 s' WHERE tag = 'views_lease';
INSERT INTO delay_wheel_data.task (due, payload, key) VALUES (now() + '1 day', '2', 'views_lease');
SELECT pg_temp.wait_for($$NOT EXISTS (SELECT FROM delay_wheel.tasks WHERE tag = 'views_lease')$$);
-- a newer one of the same key is the task; found by the key
INSERT INTO delay_wheel_data.task (due, sql, key) SELECT now() + '1 day', 'SELECT ' || i, 'views_key' FROM generate_series(1, 3) i;
SELECT sql FROM delay_wheel.tasks WHERE key = 'views_key';
SELECT count(*) FROM delay_wheel.tasks t JOIN delay_wheel_data.task r USING (id) WHERE r.key = 'views_key';
-- a cursor, in pieces, while rows are scheduled and it is rewound
DECLARE c SCROLL CURSOR FOR SELECT 1 FROM delay_wheel.tasks WHERE tag = 'views_many';
MOVE 10 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
MOVE ALL FROM c;
MOVE BACKWARD ALL FROM c;
FETCH 1 FROM c;
SAVEPOINT s;
DROP EXTENSION delay_wheel;
ROLLBACK TO s;
CLOSE c;
DELETE FROM delay_wheel_data.readable_task;
INSERT INTO delay_wheel_data.readable_task (id) VALUES (1);
UPDATE delay_wheel_data.readable_task SET due = now();
ROLLBACK;

-- What is due within the next turn is in memory, in its slot; what is due in
-- a year is not.
-- (not at the beginning of a minute, where cron schedules have theirs)
SELECT delay_schedule_at(date_trunc('minute', clock_timestamp()) + interval '17 min 30.5 s', 'SELECT 1') AS id1 \gset
SELECT delay_schedule_at(due, 'SELECT 2') AS id2 FROM delay_wheel.tasks WHERE id = :id1 \gset
SELECT delay_schedule('1 year', 'SELECT 3') AS id3 \gset
SELECT slot AS slot1 FROM delay_wheel.tasks WHERE id = :id1 \gset
-- (news of what is due after the timer wakes anyway wait until then)
SELECT delay_schedule('0', 'SELECT 4') > 0 AS ok;
SELECT pg_temp.wait_for(format('tasks = 2 FROM delay_wheel.ring WHERE slot = %s', :slot1));
SELECT count(*) = :slots AS all_slots, count(*) FILTER (WHERE is_current) AS current, min(slot), max(slot) = :slots - 1 AS max FROM delay_wheel.ring;
SELECT tasks, min_cycle, max_cycle FROM delay_wheel.ring WHERE slot = :slot1;
-- (a slot can hold what was cancelled: that is noticed when it falls due)
SELECT near >= 2 AS near, lanes > 0 AS lanes, memory_used > 0 AND memory_used <= memory_limit AS memory
	FROM delay_wheel.status WHERE database = current_database();
-- (while the lane is loaded anew, it is not known)
SELECT pg_temp.wait_for($$horizon < now() + interval '1 year' FROM delay_wheel.status WHERE database = current_database()$$) AS horizon_before_the_rest;
SELECT delay_cancel(:id1), delay_cancel(:id2), delay_cancel(:id3);
-- of a lane with tasks of the far future only nothing was loaded yet: what is due before the first of them is in memory, there is nothing
SELECT delay_wheel.create_queue('views_far');
SELECT delay_schedule_task('SELECT 5', delay => '2 years', queue => 'views_far') AS id5 \gset
SELECT pg_temp.wait_for(format($$l.horizon > now() AND l.horizon <= t.due FROM delay_wheel.lanes l, delay_wheel.tasks t WHERE l.queue = 'views_far' AND l.owner = t.owner AND l.priority = t.priority AND t.id = %s$$, :id5)) AS ahead;
SELECT pg_temp.wait_for('horizon > now() FROM delay_wheel.status WHERE database = current_database()');
SELECT delay_cancel(:id5);
SELECT delay_wheel.drop_queue('views_far');

-- The current index is the clock's.
SELECT pg_temp.wait_for('current_index = p.slot FROM delay_wheel.status, pg_temp.place(clock_timestamp()) p WHERE database = current_database()');
SELECT pg_temp.wait_for('r.slot = p.slot FROM delay_wheel.ring r, pg_temp.place(clock_timestamp()) p WHERE is_current');

-- running: which task, since when, until it is done
SELECT pg_advisory_lock(4711);
SELECT delay_schedule('0', 'SELECT pg_advisory_lock_shared(4711)') AS id \gset
-- an executor says so before it reports its activity
SELECT pg_temp.wait_for('EXISTS (SELECT FROM delay_wheel.running JOIN pg_stat_activity USING (pid) WHERE query LIKE ''%4711%'')');
SELECT r.task = :id AS this_one, r.due = t.due AS same_due, r.since >= r.due AND r.since <= clock_timestamp() AS since, r.owner = current_user AS mine, a.backend_type, a.datname = current_database() AS here, a.query
	FROM delay_wheel.running r JOIN pg_stat_activity a USING (pid) JOIN delay_wheel.tasks t ON t.id = r.task;
SELECT running, executors > 0 AS executors, state FROM delay_wheel.status WHERE database = current_database();
-- whose: everybody's for who may read all, and, without SQL, for who monitors
CREATE ROLE views_reader IN ROLE pg_read_all_data;
CREATE ROLE views_monitor IN ROLE pg_monitor;
CREATE ROLE views_nobody;
SELECT delay_wheel.create_queue('views_seen');
SELECT pg_temp.wait_for($$near = 0 FROM delay_wheel.queues WHERE name = 'views_seen'$$);
\set seen 'SELECT (SELECT count(*) FROM delay_wheel.running) AS running, (SELECT count(*) > 0 FROM delay_wheel.lanes) AS lanes, (SELECT count(*) > 0 FROM delay_wheel.tasks) AS tasks, (SELECT near FROM delay_wheel.queues WHERE name = ''views_seen'') AS queue'
SET ROLE views_reader;
:seen;
SET ROLE views_monitor;
:seen;
SET ROLE views_nobody;
:seen;
RESET ROLE;
SELECT delay_wheel.drop_queue('views_seen');
DROP ROLE views_reader, views_monitor, views_nobody;
-- it is running: it cannot be cancelled or moved any more, and nobody waits
SELECT delay_cancel(:id), delay_reschedule(:id, '1 hour'), delay_reschedule(:id, now());
BEGIN;
SELECT delay_cancel(:id);
ROLLBACK;
SELECT pg_advisory_unlock(4711);
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.running)');
SELECT delay_cancel(:id);

-- status: what was done is counted, with its lateness; an executor of an earlier test
-- may have met the end of its role
SELECT done, failed, coalesce(last_problem, '') AS problem FROM delay_wheel.status WHERE database = current_database() \gset before_
SELECT count(delay_schedule('0', 'INSERT INTO views_effect VALUES (''done'')')) FROM generate_series(1, 100);
SELECT delay_schedule('0', 'SELECT 1 / 0') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT pg_temp.wait_for(format('done - %s >= 100 AND failed - %s >= 1 FROM delay_wheel.status WHERE database = current_database()', :before_done, :before_failed));
SELECT done - :before_done AS done, failed - :before_failed AS failed,
	   lateness_p50 >= 0 AND lateness_p50 <= lateness_p95 AND lateness_p95 <= lateness_p99 AND lateness_p99 <= lateness_max AS lateness,
	   nullif(last_problem, :'before_problem') AS last_problem
	FROM delay_wheel.status WHERE database = current_database();
SELECT backend_type, count(*) > 0 AS there FROM pg_stat_activity WHERE backend_type LIKE 'delay_wheel%' AND backend_type <> 'delay_wheel sweeper' AND (datname = current_database() OR datname IS NULL) GROUP BY 1 ORDER BY 1;

DELETE FROM delay_wheel_data.failed_task;
DROP TABLE views_effect;

-- a queue whose declaration was rolled back leaves a lane, which waits for nothing
BEGIN;
SELECT delay_wheel.create_queue('views_ghost');
SELECT delay_schedule_task('SELECT 1', queue => 'views_ghost') > 0 AS ok;
ROLLBACK;
SELECT DISTINCT state, reason, ready FROM delay_wheel.lanes WHERE queue ~ '^\d+$';
