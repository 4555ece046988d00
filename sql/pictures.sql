/*---- Pictures in SVG: the ring, when tasks are due, lateness ----*/

CREATE FUNCTION delay_wheel.ring_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_ring_svg' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.ring_svg() IS
'a picture of this database''s ring as SVG, which any browser shows: how many tasks its slots hold, the current index, the horizon up to which tasks are in memory, and which slots hold tasks of a later turn. These are tasks of all roles, as in delay_wheel.ring; the next due time is of one''s own tasks, see delay_wheel.next_due(). Times are in the time zone of the session';

CREATE FUNCTION delay_wheel.forecast_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_forecast_svg' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.forecast_svg() IS
'the view delay_wheel.forecast as a picture in SVG, which any browser shows: tasks due in each of the next 60 minutes, 48 hours and 31 days, in the time zone of the session. Estimates are hatched';

CREATE FUNCTION delay_wheel.lateness_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_lateness_svg' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.lateness_svg() IS
'how late tasks of this database were begun since the start of the server, as a picture in SVG, which any browser shows: a histogram of all attempts, and median, 95th percentile and maximum of the lanes that were latest, which are one''s own ones, or those of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';

GRANT EXECUTE ON FUNCTION delay_wheel.ring_svg(), delay_wheel.forecast_svg(), delay_wheel.lateness_svg()
	TO PUBLIC;
