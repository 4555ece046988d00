/*---- Rows that the reader may read: the views are made of these ----*/

CREATE FUNCTION delay_wheel_internal.readable_owners() RETURNS regrole[]
AS 'MODULE_PATHNAME', 'dw_readable_owners' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.readable_owners() IS
'Returns the roles whose rights the current user has. The current user may read their tasks.';
-- Makes is_readable() cost nothing, so that it is evaluated first: other conditions see
-- only rows that the reader may read.
CREATE FUNCTION delay_wheel_internal.costs_nothing(internal) RETURNS internal
AS 'MODULE_PATHNAME', 'dw_costs_nothing' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.costs_nothing(internal) IS
'Makes the planner check delay_wheel_internal.is_readable() before all other conditions.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.costs_nothing(internal) FROM PUBLIC;
CREATE FUNCTION delay_wheel_internal.is_readable(owner regrole) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_is_readable' LANGUAGE C STABLE STRICT PARALLEL SAFE SUPPORT delay_wheel_internal.costs_nothing;
COMMENT ON FUNCTION delay_wheel_internal.is_readable(regrole) IS
'Returns true if the current user may read tasks of the role, because it has the rights of the role.';
CREATE FUNCTION delay_wheel_internal.is_readable(owner regrole, users regrole[], receivers regrole[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_is_readable' LANGUAGE C STABLE STRICT PARALLEL SAFE SUPPORT delay_wheel_internal.costs_nothing;
COMMENT ON FUNCTION delay_wheel_internal.is_readable(regrole, regrole[], regrole[]) IS
'Returns true if the current user has the rights of one of the roles. 0 stands for all roles.';
GRANT EXECUTE ON FUNCTION delay_wheel_internal.readable_owners(), delay_wheel_internal.is_readable(regrole), delay_wheel_internal.is_readable(regrole, regrole[], regrole[]) TO PUBLIC;

/*
 * Each of these tables is empty, and one of our tables inherits from it (three, for the
 * history).  A reader of the parent gets the rows of its child, under the row level
 * security of the parent only (end.sql).  Our own tables have none: pg_dump sets
 * row_security to off, and would fail for all but superusers.
 */
CREATE TABLE delay_wheel_data.readable_task (LIKE delay_wheel_data.task INCLUDING COMMENTS,
	-- the planner skips this table in a search for a key
	CONSTRAINT readable_task_is_empty CHECK (key IS NULL) NO INHERIT) USING heap;
-- the parent of a generated column would have to be generated, too
ALTER TABLE delay_wheel_data.readable_task DROP COLUMN group_hash;
ALTER TABLE delay_wheel_data.task INHERIT delay_wheel_data.readable_task;

CREATE TABLE delay_wheel_data.readable_queue (LIKE delay_wheel_data.queue INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.queue INHERIT delay_wheel_data.readable_queue;
CREATE POLICY watched ON delay_wheel_data.readable_queue FOR SELECT TO pg_read_all_stats USING (true);

CREATE TABLE delay_wheel_data.readable_unique_key (LIKE delay_wheel_data.unique_key INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.unique_key INHERIT delay_wheel_data.readable_unique_key;

-- These three views have the rights of their owner. Views with the reader's rights read them.
CREATE VIEW delay_wheel_data.queue_name AS SELECT id, name FROM delay_wheel_data.queue;
COMMENT ON VIEW delay_wheel_data.queue_name IS
'Names of all queues, for the views';
-- DISTINCT: plans read these two views once, not for each task, also in parallel workers.
CREATE VIEW delay_wheel_data.mark AS
SELECT DISTINCT id, origin, queue, tag, due_from, due_until
FROM delay_wheel_data.cancellation
WHERE owners IS NULL;
COMMENT ON VIEW delay_wheel_data.mark IS
'Cancellations of tasks of all roles, for the view delay_wheel.tasks';
-- one row for each owner
CREATE VIEW delay_wheel_data.owner_mark AS
SELECT DISTINCT c.id, c.origin, o.owner, c.queue, c.tag, c.due_from, c.due_until
FROM delay_wheel_data.cancellation c CROSS JOIN LATERAL pg_catalog.unnest(c.owners) o(owner);
COMMENT ON VIEW delay_wheel_data.owner_mark IS
'Cancellations of tasks of single roles, for the view delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel_data.owner_mark.owner IS 'Role whose tasks are cancelled';
GRANT SELECT ON delay_wheel_data.queue_name, delay_wheel_data.mark, delay_wheel_data.owner_mark TO PUBLIC;

-- the COMMENTs of the tables' columns
DO $$
DECLARE
	command text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format('COMMENT ON COLUMN %s.%I IS %L', v.name::regclass, a.attname, pg_catalog.col_description(t.attrelid, t.attnum))
			FROM (VALUES ('delay_wheel_data.queue_name', 'delay_wheel_data.queue'), ('delay_wheel_data.mark', 'delay_wheel_data.cancellation'), ('delay_wheel_data.owner_mark', 'delay_wheel_data.cancellation')) v(name, of)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = v.name::regclass::oid
				JOIN pg_catalog.pg_attribute t ON t.attrelid = v.of::regclass::oid AND t.attname = a.attname
			WHERE a.attnum > 0
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;
