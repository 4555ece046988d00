/*---- Rows that the reader may read: the views are made of these ----*/

CREATE FUNCTION delay_wheel_internal.readable_owners() RETURNS regrole[]
AS 'MODULE_PATHNAME', 'dw_readable_owners' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.readable_owners() IS
'roles whose tasks the current user may read: those whose rights it has';
GRANT EXECUTE ON FUNCTION delay_wheel_internal.readable_owners() TO PUBLIC;

/*
 * Each of these is empty, and one of our tables inherits from it (history: three).  Who
 * reads it reads the rows of ours, under the row level security of this one alone.  Ours
 * have none themselves: with it pg_dump, which sets row_security to off, would fail for
 * all but superusers.
 */
CREATE TABLE delay_wheel_data.readable_task (LIKE delay_wheel_data.task INCLUDING COMMENTS) USING heap;
-- a generated column has no place in it
ALTER TABLE delay_wheel_data.readable_task DROP COLUMN group_hash;
ALTER TABLE delay_wheel_data.task INHERIT delay_wheel_data.readable_task;

CREATE TABLE delay_wheel_data.readable_failed_task (LIKE delay_wheel_data.failed_task INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.failed_task INHERIT delay_wheel_data.readable_failed_task;

CREATE TABLE delay_wheel_data.readable_recurring_task (LIKE delay_wheel_data.recurring_task INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.recurring_task INHERIT delay_wheel_data.readable_recurring_task;

CREATE TABLE delay_wheel_data.readable_history (LIKE delay_wheel_data.history_0 INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.history_0 INHERIT delay_wheel_data.readable_history;
ALTER TABLE delay_wheel_data.history_1 INHERIT delay_wheel_data.readable_history;
ALTER TABLE delay_wheel_data.history_2 INHERIT delay_wheel_data.readable_history;

CREATE TABLE delay_wheel_data.readable_queue (LIKE delay_wheel_data.queue INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.queue INHERIT delay_wheel_data.readable_queue;
-- a queue is shown to all who may use it; 0 stands for all roles
CREATE POLICY usable ON delay_wheel_data.readable_queue FOR SELECT USING (
	(users OPERATOR(pg_catalog.||) receivers)::oid[] OPERATOR(pg_catalog.&&) (0::oid OPERATOR(pg_catalog.||) delay_wheel_internal.readable_owners()::oid[]));
CREATE POLICY watched ON delay_wheel_data.readable_queue FOR SELECT TO pg_read_all_stats USING (true);

CREATE TABLE delay_wheel_data.readable_unique_key (LIKE delay_wheel_data.unique_key INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.unique_key INHERIT delay_wheel_data.readable_unique_key;

CREATE TABLE delay_wheel_data.readable_audit (LIKE delay_wheel_data.audit INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.audit INHERIT delay_wheel_data.readable_audit;

-- for views that are read with the rights of the reader, and compare its rows with these
CREATE VIEW delay_wheel_data.queue_name AS SELECT id, name FROM delay_wheel_data.queue;
COMMENT ON VIEW delay_wheel_data.queue_name IS 'names of all queues, for the views';
CREATE VIEW delay_wheel_data.mark AS SELECT * FROM delay_wheel_data.cancellation;
COMMENT ON VIEW delay_wheel_data.mark IS 'calls of delay_cancel_all() of all roles, for the view delay_wheel.tasks';
-- one row for each owner; OFFSET keeps it from being read again for each task
CREATE VIEW delay_wheel_data.owner_mark AS
SELECT c.id, c.origin, o.owner, c.queue, c.tag, c.due_from, c.due_until
FROM delay_wheel_data.cancellation c CROSS JOIN LATERAL pg_catalog.unnest(c.owners) o(owner)
OFFSET 0;
COMMENT ON VIEW delay_wheel_data.owner_mark IS 'calls of delay_cancel_all() of single roles, for the view delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel_data.owner_mark.owner IS 'a role whose tasks are cancelled';
CREATE VIEW delay_wheel_data.keyed AS SELECT id, origin, owner, queue, key FROM delay_wheel_data.task WHERE key IS NOT NULL;
COMMENT ON VIEW delay_wheel_data.keyed IS 'tasks of all roles that have a key, for the view delay_wheel.tasks';
GRANT SELECT ON delay_wheel_data.queue_name, delay_wheel_data.mark, delay_wheel_data.owner_mark, delay_wheel_data.keyed TO PUBLIC;

DO $$
DECLARE
	parent regclass;
	command text;
BEGIN
	FOREACH parent IN ARRAY '{delay_wheel_data.readable_task,delay_wheel_data.readable_failed_task,delay_wheel_data.readable_recurring_task,delay_wheel_data.readable_history,delay_wheel_data.readable_queue,delay_wheel_data.readable_unique_key,delay_wheel_data.readable_audit}'::regclass[]
	LOOP
		FOREACH command IN ARRAY ARRAY[
			'COMMENT ON TABLE %s IS ''rows of a table that the reader may read, for the views''',
			'ALTER TABLE %s ENABLE ROW LEVEL SECURITY',
			'CREATE POLICY own ON %s FOR SELECT USING (owner OPERATOR(pg_catalog.=) ANY (delay_wheel_internal.readable_owners()))',
			'CREATE POLICY everything ON %s FOR SELECT TO pg_read_all_data USING (true)',
			'GRANT SELECT ON %s TO PUBLIC',
			-- triggers of ours would not notice a statement that names this table
			'CREATE RULE no_insert AS ON INSERT TO %s DO INSTEAD NOTHING',
			'CREATE RULE no_update AS ON UPDATE TO %s DO INSTEAD NOTHING',
			'CREATE RULE no_delete AS ON DELETE TO %s DO INSTEAD NOTHING']
		LOOP
			EXECUTE pg_catalog.format(command, parent);
		END LOOP;
	END LOOP;
	FOR command IN
		SELECT pg_catalog.format('COMMENT ON COLUMN %s.%I IS %L', v.name::regclass, a.attname, pg_catalog.col_description(t.attrelid, t.attnum))
			FROM (VALUES ('delay_wheel_data.queue_name', 'delay_wheel_data.queue'), ('delay_wheel_data.mark', 'delay_wheel_data.cancellation'), ('delay_wheel_data.owner_mark', 'delay_wheel_data.cancellation'), ('delay_wheel_data.keyed', 'delay_wheel_data.task')) v(name, of)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = v.name::regclass::oid
				JOIN pg_catalog.pg_attribute t ON t.attrelid = v.of::regclass::oid AND t.attname = a.attname
			WHERE a.attnum > 0
	LOOP
		EXECUTE command;
	END LOOP;
	-- EXPLAIN shows estimates, which PostgreSQL makes of statistics of all rows.  Those of the
	-- owners tell nothing of others, and lead to the few rows of a small owner by an index
	FOR command IN
		SELECT pg_catalog.format('ALTER TABLE %s %s', i.inhrelid::regclass,
				pg_catalog.string_agg(pg_catalog.format('ALTER COLUMN %I SET STATISTICS 0', a.attname), ', '))
			FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.inhrelid
			WHERE i.inhparent::regclass::text LIKE 'delay_wheel_data.readable_%' AND a.attnum > 0 AND a.attname <> 'owner'
			GROUP BY i.inhrelid
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;

