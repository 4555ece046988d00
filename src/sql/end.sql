/*---- The end: COMMENTs, triggers and rights that all tables have, and rights to all functions ----*/

DO $$
DECLARE
	command text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format(c.command, t.oid::regclass)
			FROM pg_catalog.pg_class t CROSS JOIN pg_catalog.unnest(CASE WHEN t.relname LIKE 'readable\_%'::text THEN ARRAY[
					'COMMENT ON TABLE %s IS ''Empty parent of a table: through it the views read the rows that the reader may read''',
					'ALTER TABLE %s ENABLE ROW LEVEL SECURITY',
					-- the second condition means the same, and can use an index
					'CREATE POLICY own ON %s FOR SELECT USING (delay_wheel_internal.is_readable(owner) AND owner OPERATOR(pg_catalog.=) ANY (delay_wheel_internal.readable_owners()))',
					'CREATE POLICY everything ON %s FOR SELECT TO pg_read_all_data USING (true)',
					'GRANT SELECT ON %s TO PUBLIC',
					-- our statement triggers do not fire for a statement that names the parent
					'CREATE RULE no_insert AS ON INSERT TO %s DO INSTEAD NOTHING',
					'CREATE RULE no_update AS ON UPDATE TO %s DO INSTEAD NOTHING',
					'CREATE RULE no_delete AS ON DELETE TO %s DO INSTEAD NOTHING']
				WHEN t.relkind = 'S' OR t.relname IN ('prepared', 'batch', 'batch_count') THEN ARRAY['REVOKE ALL ON %s FROM PUBLIC']
				ELSE ARRAY[
					'REVOKE ALL ON %s FROM PUBLIC',
					'CREATE TRIGGER plain_sql AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.plain_sql()',
					'ALTER TABLE %s ENABLE ALWAYS TRIGGER plain_sql'] END) WITH ORDINALITY c(command, n)
			WHERE t.relnamespace = 'delay_wheel_data'::regnamespace::oid AND t.relkind IN ('r', 'S')
			ORDER BY t.oid, c.n
	LOOP
		EXECUTE command;
	END LOOP;
	-- all roles that may use a queue can see it
	ALTER POLICY own ON delay_wheel_data.readable_queue USING (delay_wheel_internal.is_readable(owner, users, receivers));
	-- EXPLAIN shows estimates from statistics of all rows, and for a parent from statistics of
	-- its children.  These would reveal rows of other roles.  Statistics of owners reveal
	-- nothing, and make the planner use an index for an owner with few rows
	FOR command IN
		SELECT pg_catalog.format('ALTER TABLE %s %s', a.attrelid::regclass,
				pg_catalog.string_agg(pg_catalog.format('ALTER COLUMN %I SET STATISTICS 0', a.attname), ', '))
			FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
			WHERE c.relnamespace = 'delay_wheel_data'::regnamespace::oid AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'owner'
			GROUP BY a.attrelid
	LOOP
		EXECUTE command;
	END LOOP;
	-- all roles may execute the functions, even if default privileges differ: the functions
	-- themselves check INSERT on the view tasks
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

-- the owner of the database must be able to dump the tables
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
