-- An order that is not paid within 30 minutes is reported to another program by HTTP.  Before
-- this file: workers/http/setup.sql.
CREATE ROLE shop LOGIN;
GRANT delay_http_sender TO shop;
CREATE ROLE billing LOGIN;

CREATE TABLE t_order (
	oid bigint PRIMARY KEY,
	email text NOT NULL,
	paid boolean NOT NULL DEFAULT false
);
GRANT SELECT, INSERT, UPDATE ON t_order TO shop;
GRANT SELECT, UPDATE ON t_order TO billing;

-- Keys belong to the role that schedules: the calls are all of "shop", whoever writes the table.
-- Without SECURITY DEFINER the call would be made if "billing" sets an order paid.
CREATE FUNCTION report_unpaid() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF NEW.paid THEN
		PERFORM delay_http.cancel('unpaid ' || NEW.oid);
	ELSE
		PERFORM delay_http.post('http://localhost:8080/unpaid', jsonb_build_object('oid', NEW.oid, 'email', NEW.email),
			delay => '30 minutes', key => 'unpaid ' || NEW.oid, endpoint => 'shop');
	END IF;
	RETURN NULL;
END
$$;
ALTER FUNCTION report_unpaid() OWNER TO shop;
-- or others could use it for tables of their own
REVOKE EXECUTE ON FUNCTION report_unpaid() FROM PUBLIC;

CREATE TRIGGER report_unpaid AFTER INSERT OR UPDATE OF paid ON t_order FOR EACH ROW EXECUTE FUNCTION report_unpaid();
