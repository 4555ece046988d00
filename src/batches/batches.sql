/*---- Batches: sets of tasks and messages, and what follows when all of them have ended ----*/

CREATE TABLE delay_wheel_data.batch
(
	id bigint NOT NULL,
	origin bigint NOT NULL DEFAULT delay_wheel_internal.origin(),
	owner regrole NOT NULL,
	batch_id bigint,
	closed boolean NOT NULL,
	made_at timestamptz NOT NULL,
	ended_at timestamptz,
	total bigint NOT NULL DEFAULT 0,
	failed bigint NOT NULL DEFAULT 0,
	cancelled bigint NOT NULL DEFAULT 0,
	skipped bigint NOT NULL DEFAULT 0,
	queue smallint NOT NULL,
	name text,
	on_done text,
	on_failed text,
	on_end text,
	search_path text,
	settings jsonb,
	CONSTRAINT batch_pkey PRIMARY KEY (id)
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);
CREATE INDEX batch_open_idx ON delay_wheel_data.batch (id) WHERE ended_at IS NULL;
CREATE INDEX batch_outer_idx ON delay_wheel_data.batch (batch_id) WHERE batch_id IS NOT NULL AND ended_at IS NULL;
CREATE INDEX batch_ended_at_idx ON delay_wheel_data.batch (ended_at);
COMMENT ON TABLE delay_wheel_data.batch IS
'Batches that delay_batch() made. To read them, use the view delay_wheel.batches.';
COMMENT ON COLUMN delay_wheel_data.batch.id IS 'Id of the batch, from the same sequence as ids of tasks';
COMMENT ON COLUMN delay_wheel_data.batch.origin IS 'Database in which the batch was made. In another database, the batch ends only after delay_wheel.arm().';
COMMENT ON COLUMN delay_wheel_data.batch.owner IS 'Role that made the batch; its callbacks run with the rights of this role';
COMMENT ON COLUMN delay_wheel_data.batch.batch_id IS 'Outer batch, of which this batch is a member; NULL: none';
COMMENT ON COLUMN delay_wheel_data.batch.closed IS 'Whether only tasks of the batch itself can still join';
COMMENT ON COLUMN delay_wheel_data.batch.made_at IS 'Start of the transaction that made the batch';
COMMENT ON COLUMN delay_wheel_data.batch.ended_at IS 'Time at which all members had ended; NULL: not yet';
COMMENT ON COLUMN delay_wheel_data.batch.total IS 'Number of members; before the end see delay_wheel_data.batch_count, too';
COMMENT ON COLUMN delay_wheel_data.batch.failed IS 'Members that failed';
COMMENT ON COLUMN delay_wheel_data.batch.cancelled IS 'Members that were cancelled';
COMMENT ON COLUMN delay_wheel_data.batch.skipped IS 'Members that were skipped, because they were too late';
COMMENT ON COLUMN delay_wheel_data.batch.queue IS 'Queue of the callbacks';
COMMENT ON COLUMN delay_wheel_data.batch.name IS 'Free label';
COMMENT ON COLUMN delay_wheel_data.batch.on_done IS 'SQL of the task that follows if all members are done';
COMMENT ON COLUMN delay_wheel_data.batch.on_failed IS 'SQL of the task that follows if not all members are done';
COMMENT ON COLUMN delay_wheel_data.batch.on_end IS 'SQL of the task that follows in any case';
COMMENT ON COLUMN delay_wheel_data.batch.search_path IS 'search_path of the callbacks; NULL: the owner''s default';
COMMENT ON COLUMN delay_wheel_data.batch.settings IS 'Settings of the callbacks, as in column more of delay_wheel_data.task';

CREATE TABLE delay_wheel_data.batch_count
(
	batch_id bigint NOT NULL,
	owner regrole NOT NULL,
	total bigint NOT NULL,
	failed bigint NOT NULL,
	cancelled bigint NOT NULL,
	skipped bigint NOT NULL
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);
CREATE INDEX batch_count_batch_id_idx ON delay_wheel_data.batch_count (batch_id);
COMMENT ON TABLE delay_wheel_data.batch_count IS
'Changes of a batch''s numbers by single transactions, to be added to the numbers in delay_wheel_data.batch. So transactions do not wait for each other.';
COMMENT ON COLUMN delay_wheel_data.batch_count.batch_id IS 'Id of the batch';
COMMENT ON COLUMN delay_wheel_data.batch_count.owner IS 'Owner of the batch';
COMMENT ON COLUMN delay_wheel_data.batch_count.total IS 'Members that have joined';
COMMENT ON COLUMN delay_wheel_data.batch_count.failed IS 'Members that failed; negative: failed members that were put back';
COMMENT ON COLUMN delay_wheel_data.batch_count.cancelled IS 'Members that were cancelled';
COMMENT ON COLUMN delay_wheel_data.batch_count.skipped IS 'Members that were skipped';
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.batch', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');
SELECT pg_catalog.pg_extension_config_dump('delay_wheel_data.batch_count', 'WHERE owner IN (SELECT oid FROM pg_catalog.pg_roles)');

CREATE TABLE delay_wheel_data.readable_batch (LIKE delay_wheel_data.batch INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.batch INHERIT delay_wheel_data.readable_batch;
CREATE TABLE delay_wheel_data.readable_batch_count (LIKE delay_wheel_data.batch_count INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.batch_count INHERIT delay_wheel_data.readable_batch_count;

CREATE FUNCTION delay_batch(name text DEFAULT NULL, on_done text DEFAULT NULL, on_failed text DEFAULT NULL, on_end text DEFAULT NULL,
	open boolean DEFAULT false, queue text DEFAULT NULL, batch_id bigint DEFAULT NULL) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_batch_make' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_batch(text, text, text, text, boolean, text, bigint) IS
'Makes a batch, whose callbacks run when all tasks and messages with its id in option batch_id have ended. Returns the id.';

CREATE FUNCTION delay_close_batch(batch_id bigint) RETURNS text
AS 'MODULE_PATHNAME', 'dw_batch_close' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_close_batch(bigint) IS
'Closes a batch, so that it can end. Returns closed, or gone if there is no such batch that has not ended.';

CREATE FUNCTION delay_cancel_batch(batch_id bigint) RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_batch_cancel' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_cancel_batch(bigint) IS
'Closes a batch and cancels its pending tasks and messages. Running ones go on. Returns the number of cancelled ones.';

-- Without volatile functions, PostgreSQL merges the view into a query: it counts the members of the
-- rows that the query needs, and only if the query shows the numbers.
CREATE VIEW delay_wheel.batches WITH (security_invoker) AS
SELECT b.id, b.name, pg_catalog.pg_get_userbyid(b.owner::oid)::text AS owner,
	   -- plain SQL may have written any numbers and times
	   CASE WHEN b.ended_at IS NOT NULL AND b.failed = 0 AND b.cancelled = 0 AND b.skipped = 0 THEN 'done'
			WHEN b.ended_at IS NOT NULL THEN 'failed'
			WHEN b.origin <> delay_wheel_internal.origin() THEN 'unarmed'
			WHEN b.closed THEN 'closed'
			ELSE 'open' END AS state,
	   b.made_at, b.ended_at, LEAST(GREATEST(c.total, 0::numeric), 9223372036854775807::numeric)::bigint AS total, p.pending + i.pending AS pending,
	   LEAST(GREATEST(c.total - p.pending::numeric - i.pending::numeric - c.failed - c.cancelled - c.skipped, 0::numeric), 9223372036854775807::numeric)::bigint AS done,
	   LEAST(GREATEST(c.failed, 0::numeric), 9223372036854775807::numeric)::bigint AS failed,
	   LEAST(GREATEST(c.cancelled, 0::numeric), 9223372036854775807::numeric)::bigint AS cancelled,
	   LEAST(GREATEST(c.skipped, 0::numeric), 9223372036854775807::numeric)::bigint AS skipped,
	   pg_catalog.round((c.total - p.pending::numeric - i.pending::numeric) /
			GREATEST(EXTRACT(epoch FROM COALESCE(b.ended_at, delay_wheel_internal.clock())) - EXTRACT(epoch FROM b.made_at), 0.001), 1)::double precision AS rate,
	   b.batch_id, COALESCE(q.name, CASE b.queue WHEN 0 THEN 'default' END) AS queue, b.on_done, b.on_failed, b.on_end
FROM delay_wheel_data.readable_batch b
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = b.queue
	 LEFT JOIN LATERAL (
		SELECT b.total::numeric + COALESCE(pg_catalog.sum(n.total), 0::numeric) AS total, b.failed::numeric + COALESCE(pg_catalog.sum(n.failed), 0::numeric) AS failed,
			   b.cancelled::numeric + COALESCE(pg_catalog.sum(n.cancelled), 0::numeric) AS cancelled, b.skipped::numeric + COALESCE(pg_catalog.sum(n.skipped), 0::numeric) AS skipped
		FROM delay_wheel_data.readable_batch_count n WHERE n.batch_id = b.id) c ON true
	 LEFT JOIN LATERAL (
		SELECT pg_catalog.count(*) AS pending FROM delay_wheel_data.readable_task t
		WHERE delay_wheel_internal.batch_of(t.more) = b.id) p ON true
	 LEFT JOIN LATERAL (
		SELECT pg_catalog.count(*) AS pending FROM delay_wheel_data.readable_batch o
		WHERE o.batch_id = b.id AND o.ended_at IS NULL) i ON true;
COMMENT ON VIEW delay_wheel.batches IS
'Batches that delay_batch() made, with their progress';
COMMENT ON COLUMN delay_wheel.batches.id IS 'Id of the batch';
COMMENT ON COLUMN delay_wheel.batches.name IS 'Free label';
COMMENT ON COLUMN delay_wheel.batches.owner IS 'Role that made the batch; its callbacks run with the rights of this role';
COMMENT ON COLUMN delay_wheel.batches.state IS 'open: others can join; closed: ends with its last member; done: all members are done; failed: ended, and not all are done; unarmed: a copy, see delay_wheel.arm()';
COMMENT ON COLUMN delay_wheel.batches.made_at IS 'Start of the transaction that made the batch';
COMMENT ON COLUMN delay_wheel.batches.ended_at IS 'Time at which all members had ended; NULL: not yet';
COMMENT ON COLUMN delay_wheel.batches.total IS 'Members so far: tasks, messages and inner batches';
COMMENT ON COLUMN delay_wheel.batches.pending IS 'Members that have not ended';
COMMENT ON COLUMN delay_wheel.batches.done IS 'Members that are done';
COMMENT ON COLUMN delay_wheel.batches.failed IS 'Members that failed';
COMMENT ON COLUMN delay_wheel.batches.cancelled IS 'Members that were cancelled';
COMMENT ON COLUMN delay_wheel.batches.skipped IS 'Members that were skipped, because they were too late';
COMMENT ON COLUMN delay_wheel.batches.rate IS 'Members that have ended, for each second since the batch was made';
COMMENT ON COLUMN delay_wheel.batches.batch_id IS 'Outer batch, of which this batch is a member; NULL: none';
COMMENT ON COLUMN delay_wheel.batches.queue IS 'Name of the queue of the callbacks; NULL if the queue was dropped';
COMMENT ON COLUMN delay_wheel.batches.on_done IS 'SQL of the task that follows if all members are done';
COMMENT ON COLUMN delay_wheel.batches.on_failed IS 'SQL of the task that follows if not all members are done';
COMMENT ON COLUMN delay_wheel.batches.on_end IS 'SQL of the task that follows in any case';
GRANT SELECT ON delay_wheel.batches TO PUBLIC;

CREATE VIEW delay_wheel_internal.newest_batches WITH (security_invoker) AS
SELECT b.id, b.ended_at FROM delay_wheel_data.readable_batch b ORDER BY b.ended_at DESC LIMIT 1000;
COMMENT ON VIEW delay_wheel_internal.newest_batches IS
'1,000 batches: those that have not ended, then those that ended last. delay_wheel.page_data() reads it: delay_wheel.batches counts the members of each batch.';
COMMENT ON COLUMN delay_wheel_internal.newest_batches.id IS 'Id of the batch';
COMMENT ON COLUMN delay_wheel_internal.newest_batches.ended_at IS 'Time at which all members had ended; NULL: not yet';
GRANT SELECT ON delay_wheel.batches, delay_wheel_internal.newest_batches TO PUBLIC;

-- only plain SQL fires them: the library deletes rows without triggers
CREATE FUNCTION delay_wheel_internal.member_deleted() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_batch_member_deleted' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.member_deleted() IS
'Counts members of batches as cancelled that DELETE or TRUNCATE removes.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.member_deleted() FROM PUBLIC;
CREATE TRIGGER member_deleted AFTER DELETE ON delay_wheel_data.task
	FOR EACH ROW WHEN (delay_wheel_internal.batch_of(OLD.more) IS NOT NULL) EXECUTE FUNCTION delay_wheel_internal.member_deleted();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER member_deleted;
CREATE TRIGGER members_truncated BEFORE TRUNCATE ON delay_wheel_data.task
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.member_deleted();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER members_truncated;
