/*---- The end: what all tables have, and all functions ----*/

DO $$
DECLARE
	command text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format(c.command, t.oid::regclass)
			FROM pg_catalog.pg_class t CROSS JOIN pg_catalog.unnest(CASE WHEN t.relname LIKE 'readable\_%'::text THEN ARRAY[
					'COMMENT ON TABLE %s IS ''rows of a table that the reader may read, for the views''',
					'ALTER TABLE %s ENABLE ROW LEVEL SECURITY',
					-- the second condition says the same, to an index
					'CREATE POLICY own ON %s FOR SELECT USING (delay_wheel_internal.is_readable(owner) AND owner OPERATOR(pg_catalog.=) ANY (delay_wheel_internal.readable_owners()))',
					'CREATE POLICY everything ON %s FOR SELECT TO pg_read_all_data USING (true)',
					'GRANT SELECT ON %s TO PUBLIC',
					-- triggers of ours would not notice a statement that names this table
					'CREATE RULE no_insert AS ON INSERT TO %s DO INSTEAD NOTHING',
					'CREATE RULE no_update AS ON UPDATE TO %s DO INSTEAD NOTHING',
					'CREATE RULE no_delete AS ON DELETE TO %s DO INSTEAD NOTHING']
				WHEN t.relkind = 'S' OR t.relname = 'prepared' THEN ARRAY['REVOKE ALL ON %s FROM PUBLIC']
				ELSE ARRAY[
					'REVOKE ALL ON %s FROM PUBLIC',
					'CREATE TRIGGER plain_sql AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.plain_sql()',
					'ALTER TABLE %s ENABLE ALWAYS TRIGGER plain_sql'] END) WITH ORDINALITY c(command, n)
			WHERE t.relnamespace = 'delay_wheel_data'::regnamespace::oid AND t.relkind IN ('r', 'S')
			ORDER BY t.oid, c.n
	LOOP
		EXECUTE command;
	END LOOP;
	-- a queue is shown to all who may use it
	ALTER POLICY own ON delay_wheel_data.readable_queue USING (delay_wheel_internal.is_readable(owner, users, receivers));
	-- EXPLAIN shows estimates, which PostgreSQL makes of statistics of all rows, ANALYZE of a
	-- parent of those of its children, too.  Those of the owners tell nothing of others, and
	-- lead to the few rows of a small owner by an index
	FOR command IN
		SELECT pg_catalog.format('ALTER TABLE %s %s', a.attrelid::regclass,
				pg_catalog.string_agg(pg_catalog.format('ALTER COLUMN %I SET STATISTICS 0', a.attname), ', '))
			FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
			WHERE c.relnamespace = 'delay_wheel_data'::regnamespace::oid AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'owner'
			GROUP BY a.attrelid
	LOOP
		EXECUTE command;
	END LOOP;
	-- everybody may execute the functions, also where default privileges say otherwise: they ask
	-- for INSERT on the view tasks themselves
	FOR command IN
		SELECT pg_catalog.format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', d.objid::regprocedure)
			FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'delay_wheel'
				JOIN pg_catalog.pg_proc p ON p.oid = d.objid
			WHERE d.classid = 'pg_proc'::regclass::oid AND d.refclassid = 'pg_extension'::regclass::oid AND d.deptype = 'e' AND p.pronamespace = e.extnamespace
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;

SELECT delay_revoke_defaults();
DROP FUNCTION delay_revoke_defaults();

-- whose dump is to have the tables
GRANT USAGE ON SCHEMA delay_wheel_data TO pg_database_owner;
DO $$
DECLARE
	command text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format('GRANT SELECT ON %s TO pg_database_owner', c.oid::regclass)
			FROM pg_catalog.pg_class c
			WHERE c.relnamespace = 'delay_wheel_data'::regnamespace::oid AND c.relkind IN ('r', 'S') AND c.relname NOT LIKE 'readable\_%'::text
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;
