--
-- TENANTS
-- One trigger function in a shared schema, one table of the same name for each
-- tenant: each task works on the table of its own tenant, whether the tenant is
-- a role with a schema of its name, a role with a search_path of its own, or a
-- search_path that the application has set for the session.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_tenant1 LOGIN;
CREATE ROLE regress_dw_tenant2 LOGIN;
CREATE ROLE regress_dw_app LOGIN;
ALTER ROLE regress_dw_tenant2 SET search_path = tenants_second, tenants_shared, public;
SELECT delay_wheel.allow('regress_dw_tenant1', 'regress_dw_tenant2', 'regress_dw_app');
CREATE SCHEMA tenants_shared;
GRANT USAGE ON SCHEMA tenants_shared TO PUBLIC;
CREATE SCHEMA regress_dw_tenant1 AUTHORIZATION regress_dw_tenant1;
CREATE SCHEMA tenants_second AUTHORIZATION regress_dw_tenant2;
CREATE SCHEMA "tenants Third" AUTHORIZATION regress_dw_app;
CREATE SCHEMA "tenants, ""4th""" AUTHORIZATION regress_dw_app;

CREATE FUNCTION tenants_shared.rate_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.delay_schedule('0', 'UPDATE t_order SET stars = 5, rated_in = current_schema() WHERE oid = $1 AND stars IS NULL', NEW.oid);
	RETURN NULL;
END $$;
-- the tables have the same numbers of orders in them
SELECT format('CREATE TABLE %1$I.t_order (oid int PRIMARY KEY, stars int, rated_in name);
	CREATE TRIGGER rate_later AFTER INSERT ON %1$I.t_order FOR EACH ROW EXECUTE FUNCTION tenants_shared.rate_later();
	ALTER TABLE %1$I.t_order OWNER TO %2$I', s, o)
	FROM (VALUES ('regress_dw_tenant1', 'regress_dw_tenant1'), ('tenants_second', 'regress_dw_tenant2'),
		('tenants Third', 'regress_dw_app'), ('tenants, "4th"', 'regress_dw_app')) v(s, o) \gexec

-- a role whose default is "$user", one with a default of its own, and one that
-- changes it with the customer; all at once
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_tenant1;
INSERT INTO t_order (oid) VALUES (1), (2);
COMMIT;
SET SESSION AUTHORIZATION regress_dw_tenant2;
SET search_path = tenants_second, tenants_shared, public;
INSERT INTO t_order (oid) VALUES (1), (2);
-- in the code of a function that has its own path, as extensions do
CREATE FUNCTION tenants_second.insert_order(int) RETURNS void LANGUAGE sql SET search_path = tenants_second AS
	'INSERT INTO t_order (oid) VALUES ($1)';
SET search_path = pg_catalog;
SELECT tenants_second.insert_order(3);
RESET search_path;
SET SESSION AUTHORIZATION regress_dw_app;
BEGIN;
SET LOCAL search_path = "tenants Third", tenants_shared;
INSERT INTO t_order (oid) VALUES (1), (2);
SET LOCAL search_path = "tenants, ""4th""";
INSERT INTO t_order (oid) VALUES (1), (2);
COMMIT;
RESET SESSION AUTHORIZATION;
-- whoever writes the row, as here a superuser with the path of a tenant: the
-- task is his own
SET search_path = "tenants Third", tenants_shared;
INSERT INTO t_order (oid) VALUES (3);
RESET search_path;
SELECT pg_temp.wait_until_done();
SELECT * FROM delay_wheel.failed;
SELECT * FROM (SELECT 'regress_dw_tenant1' AS tenant, * FROM regress_dw_tenant1.t_order
	UNION ALL SELECT 'tenants_second', * FROM tenants_second.t_order
	UNION ALL SELECT 'tenants Third', * FROM "tenants Third".t_order
	UNION ALL SELECT 'tenants, "4th"', * FROM "tenants, ""4th""".t_order) all_of_them
	ORDER BY tenant COLLATE "C", oid;

-- what is kept with a task is the path as it was written; what it means is
-- found when the task runs
SET SESSION AUTHORIZATION regress_dw_tenant1;
SELECT delay_schedule('1 hour', 'SELECT ''of the first''') AS id1 \gset
SET search_path = 'regress_dw_tenant1', pg_temp;
SELECT public.delay_schedule('1 hour', 'SELECT ''of the first, with a path''') AS id2 \gset
RESET search_path;
RESET SESSION AUTHORIZATION;
SELECT sql, search_path FROM delay_wheel_data.task WHERE id IN (:id1, :id2) ORDER BY id;
SELECT delay_cancel(:id1), delay_cancel(:id2);

-- the same role in another schema in between: one executor, each its own path
SET SESSION AUTHORIZATION regress_dw_app;
DO $$
BEGIN
	FOR i IN 11..20 LOOP
		PERFORM set_config('search_path', CASE WHEN i % 2 = 0 THEN '"tenants Third"' ELSE '"tenants, ""4th"""' END, true);
		INSERT INTO t_order (oid) VALUES (i);
	END LOOP;
END $$;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT rated_in, array_agg(oid ORDER BY oid) FROM "tenants Third".t_order WHERE oid > 10 GROUP BY 1
	UNION ALL SELECT rated_in, array_agg(oid ORDER BY oid) FROM "tenants, ""4th""".t_order WHERE oid > 10 GROUP BY 1;

SELECT delay_wheel.disallow('regress_dw_tenant1', 'regress_dw_tenant2', 'regress_dw_app');
SET client_min_messages = warning;
DROP SCHEMA tenants_shared, regress_dw_tenant1, tenants_second, "tenants Third", "tenants, ""4th""" CASCADE;
DROP ROLE regress_dw_tenant1, regress_dw_tenant2, regress_dw_app;
