/*---- Pictures in SVG: the ring, when tasks are due, lateness ----*/

/*
 * Each picture is one query on the views, with the rights of its caller.  It uses
 * no script, font or file from elsewhere, and is light or dark as the viewer
 * prefers.  Things that differ in colour also differ in shape, size or words.
 * Coordinates have four digits: hence extra_float_digits.
 */

-- The name of a role or a database can be invalid here: it may have been given in a
-- database with another encoding.  So this function reads bytes, and converts only from
-- encodings in which each byte is valid.
CREATE FUNCTION delay_wheel_internal.svg_escape(content text, most integer DEFAULT 1000) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
WITH source(bytes, known) AS (
	SELECT CASE WHEN complete THEN convert_to(content, 'UTF8') ELSE decode(replace(content, E'\\', E'\\\\'), 'escape') END, complete OR encoding IN ('UTF8', 'SQL_ASCII')
	FROM getdatabaseencoding() encoding, LATERAL (SELECT encoding ~ '^(LATIN[^3]|KOI8)') c(complete)
), character AS (	-- code is null for a byte that belongs to no character
	SELECT n, count(*) OVER () AS total, CASE length(m[1]) WHEN 2 THEN CASE WHEN bits < 128 THEN bits END
		WHEN 4 THEN (bits >> 2 & 1984) + (bits & 63)
		WHEN 6 THEN (bits >> 4 & 61440) + (bits >> 2 & 4032) + (bits & 63)
		ELSE (bits >> 6 & 1835008) + (bits >> 4 & 258048) + (bits >> 2 & 4032) + (bits & 63) END AS code
	FROM source, regexp_matches(encode(bytes, 'hex'), CASE WHEN known THEN 'f[0-4][89ab].[89ab].[89ab].|e.[89ab].[89ab].|[cd].[89ab].|..' ELSE '..' END, 'g')
		 WITH ORDINALITY r(m, n), LATERAL (SELECT ('x' || lpad(m[1], 8, '0'))::bit(32)::integer) b(bits)
)
SELECT string_agg(CASE WHEN total > most AND n = most * 2 / 3 - 1 THEN '...'
	WHEN total > most AND n >= most * 2 / 3 AND n <= total - most / 3 + 1 THEN ''
	WHEN code BETWEEN 32 AND 126 AND code NOT IN (34, 38, 60, 62) THEN chr(code)
	WHEN code IN (9, 10, 34, 38, 60, 62) OR code BETWEEN 128 AND 55295 OR code BETWEEN 57344 AND 65533 OR code BETWEEN 65536 AND 1114111 THEN '&#' || code || ';'
	ELSE '?' END, '' ORDER BY n)
FROM character
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_escape(text, integer) IS
'Returns a text as XML in plain ASCII, and shortens it in its middle if it is too long.';

CREATE FUNCTION delay_wheel_internal.svg_text(x double precision, y double precision, class text, content text, most integer DEFAULT 1000) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
SELECT format(E'<text class="%s" x="%s" y="%s">%s</text>\n', class, x, y, svg_escape(content, most))
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_text(double precision, double precision, text, text, integer) IS
'Returns an SVG element with an escaped text at a place of a picture.';

CREATE FUNCTION delay_wheel_internal.svg_short(n numeric) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
SELECT trim_scale(round(n / size, (n / size < 99.95)::integer)) || unit
FROM unnest('{"",k,M,G,T,P,E}'::text[], '{1,1e3,1e6,1e9,1e12,1e15,1e18}'::numeric[]) u(unit, size) WHERE n < 999.5 * size ORDER BY size LIMIT 1
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_short(numeric) IS
'Returns a number with a unit, such as 12k or 3.5M.';

CREATE FUNCTION delay_wheel_internal.svg_count(n numeric, noun text, exact boolean DEFAULT true) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
SELECT CASE WHEN exact THEN to_char(n, 'FM999,999,999,999,999,999,990') ELSE 'about ' || svg_short(n) END || ' ' || noun || CASE n WHEN 1 THEN '' ELSE 's' END
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_count(numeric, text, boolean) IS
'Returns a number with a noun, such as "1 turn" or "1,234 tasks". For an estimate, the text begins with "about".';

CREATE FUNCTION delay_wheel_internal.svg_duration(us double precision) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
SELECT CASE WHEN us < 59.5e6 THEN (
	SELECT trim_scale(round(us::numeric / size, (us < 9.95 * size AND size > 1)::integer)) || unit
	FROM unnest('{" us"," ms"," s"}'::text[], '{1,1e3,1e6}'::numeric[]) u(unit, size) WHERE us < 999.5 * size ORDER BY size LIMIT 1)
ELSE substring(regexp_replace(to_char(justify_hours(make_interval(secs => round(us / 1e6))),
	'FMDD" d "FMHH24" h "FMMI" min "FMSS" s"'), E'\\m0 \\w+ ?', '', 'g') FROM '^[^ ]+ [^ ]+(?: [^ ]+ [^ ]+)?') END
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_duration(double precision) IS
'Returns microseconds as text with a unit, such as 350 us, 2.5 ms or 3 min 20 s.';

CREATE FUNCTION delay_wheel_internal.svg_axis(us double precision, low double precision, high double precision) RETURNS double precision
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
SELECT 270 + 480 * LEAST(ln(GREATEST(us, low) / low) / ln(high / low), 1)
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_axis(double precision, double precision, double precision) IS
'Returns the place of a time on the logarithmic axis of delay_wheel.lateness_svg().';

-- each selector begins with .dw, so that the style affects nothing else in a page
CREATE FUNCTION delay_wheel_internal.svg_frame(height double precision, title text, description text, body text) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp AS $$
SELECT format($svg$<svg class="dw" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 %1$s" width="780" height="%1$s" role="img">
<title>%2$s</title>
<desc>%3$s</desc>
<style>
.dw text{font-family:system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328} .dw .dim,.dw .small{fill:#59636e}
.dw .title{font-size:18px;font-weight:600} .dw .head{font-weight:600} .dw .big{font-size:24px;font-weight:600} .dw .small{font-size:11px}
.dw .m{text-anchor:middle} .dw .e{text-anchor:end}
.dw .frame{fill:#fff;stroke:#d1d9e0} .dw .line{fill:none;stroke:#818b98} .dw .grid{fill:none;stroke:#e1e6eb}
.dw .shade0{fill:#eef2f6} .dw .shade1{fill:#c6dff5} .dw .shade2{fill:#8fc1ea} .dw .shade3{fill:#4b97d6} .dw .shade4{fill:#1c66ac} .dw .shade5{fill:#0a3263}
.dw .edge{stroke:#818b98;stroke-width:.5} .dw .hatch{stroke:#fff;stroke-width:1.5} .dw .now{fill:#b3401a} .dw .next{fill:#1a7f37}
.dw .far{fill:none;stroke:#7a3fb8;stroke-width:2;stroke-dasharray:5 3} .dw .mark{fill:none;stroke:#b3401a;stroke-width:1.5}
@media (prefers-color-scheme:dark){
.dw text{fill:#e6edf3} .dw .dim,.dw .small{fill:#9da7b3} .dw .frame{fill:#0d1117;stroke:#30363d} .dw .line{stroke:#7d8793} .dw .grid{stroke:#252b32}
.dw .shade0{fill:#1c2229} .dw .shade1{fill:#16395e} .dw .shade2{fill:#1f5a96} .dw .shade3{fill:#3b86d0} .dw .shade4{fill:#7bb8f0} .dw .shade5{fill:#cfe8ff}
.dw .edge{stroke:#7d8793} .dw .hatch{stroke:#0d1117} .dw .now{fill:#ff9466} .dw .next{fill:#56d364} .dw .far{stroke:#c297ff} .dw .mark{stroke:#ff9466}
}
</style>
<defs><pattern id="dw-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V5"/></pattern></defs>
<rect class="frame" x="0.5" y="0.5" width="779" height="%4$s" rx="8"/>
%5$s%6$s</svg>
$svg$, height, svg_escape(title), svg_escape(description), height - 1, svg_text(20, 32, 'title', title, 54), body)
$$;
COMMENT ON FUNCTION delay_wheel_internal.svg_frame(double precision, text, text, text) IS
'Returns a whole picture: style, title, a description for screen readers, and the body.';

CREATE FUNCTION delay_wheel.ring_svg() RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp SET extra_float_digits = -11 AS $$
WITH shape AS (	-- slots are drawn as at most 60 segments; null without the library, since the views would raise an error
	SELECT slots, width, (slots + 12 * width - 1) / (12 * width) * width AS step, 360 / slots::float8 AS degrees,
		   1e6 * EXTRACT(epoch FROM current_setting('delay_wheel.tick', true)::interval) AS tick
	FROM (SELECT current_setting('delay_wheel.slots', true)::integer) s(slots), LATERAL (SELECT (slots + 59) / 60) w(width)
), clock AS MATERIALIZED (
	SELECT clock_timestamp() AS now, next_due() AS due
), facts AS MATERIALIZED (
	SELECT c.now, COALESCE(s.state, 'stopped') AS state, COALESCE(s.near, 0) AS near, COALESCE(s.ready, 0) AS ready, COALESCE(s.running, 0) AS running,
		   COALESCE(s.current_index, slot(c.now)) AS slot, n.slot AS next_slot, CASE WHEN s.horizon >= c.now THEN h.slot END AS far_slot,
		   'next due: ' || COALESCE(format('slot %s, in %s', n.slot, svg_duration(1e6 * EXTRACT(epoch FROM GREATEST(c.due - c.now, '0'))))
				|| CASE WHEN n.cycle_num > 0 THEN ' (' || svg_count(n.cycle_num, 'turn') || ')' ELSE '' END, 'nothing') AS next_text,
		   CASE WHEN s.horizon >= c.now THEN format('horizon: slot %s, in %s', h.slot, svg_duration(1e6 * EXTRACT(epoch FROM s.horizon - c.now)))
				WHEN s.horizon < c.now THEN 'horizon: passed, more is being loaded'
				ELSE 'no horizon: all tasks are in memory' END AS far_text
	FROM clock c LEFT JOIN delay_wheel.status s ON s.database = current_database(),
		 LATERAL (SELECT slot(c.due), cycle_num(c.due)) n(slot, cycle_num), LATERAL (SELECT slot(s.horizon)) h(slot)
), held AS (
	SELECT slot / width * width AS first, sum(tasks) AS tasks, max(max_cycle) AS cycle FROM shape, delay_wheel.ring WHERE tasks > 0 GROUP BY 1
), segment AS MATERIALIZED (
	SELECT first, LEAST(width, slots - first) AS n, COALESCE(tasks, 0) AS tasks, COALESCE(cycle, 0) AS cycle, COALESCE(max(tasks) OVER (), 0) AS most
	FROM shape CROSS JOIN generate_series(0, slots - 1, width) first LEFT JOIN held USING (first)
), drawn AS (
	SELECT string_agg(format(E'<g transform="rotate(%s)"><title>%s: %s%s</title><path class="shade%s edge" d="%s"/>%s</g>\n', degrees * first,
				CASE n WHEN 1 THEN format('slot %s', first) ELSE format('slots %s to %s', first, first + n - 1) END,
				svg_count(tasks, 'task'), ', up to ' || svg_count(NULLIF(cycle, 0), 'turn') || ' ahead',
				CASE WHEN tasks > 0 THEN LEAST(length(tasks::text), 5) ELSE 0 END, path,
				CASE WHEN cycle > 0 THEN format('<path fill="url(#dw-hatch)" pointer-events="none" d="%s"/>', path) END), '' ORDER BY first) AS segments,
		   string_agg(svg_text(92 * sind(middle), 4 - 92 * cosd(middle), 'small m', first::text), '')
				-- the last label must not overlap the first label
				FILTER (WHERE first % step = 0 AND (first = 0 OR slots - first >= 0.6 * step)) AS labels,
		   max(most) AS most, max(cycle) AS cycle
	FROM shape, segment,
		 -- a single slot has its number at its middle
		 LATERAL (SELECT degrees * n, degrees * (first + CASE width WHEN 1 THEN 0.5 ELSE 0 END),
				  122 + CASE WHEN tasks > 0 THEN GREATEST(62 * tasks::float8 / most, 3) ELSE 0 END) a(angle, middle, radius),
		 format('M0 %sA%s %s 0 0 1 %s %sL%s %sA108 108 0 0 0 0 -108Z', -radius, radius, radius,
				radius * sind(angle), -radius * cosd(angle), 108 * sind(angle), -108 * cosd(angle)) path
)
SELECT svg_frame(500, format('Ring of database "%s"', current_database()),
	format('%s of %s. Timer: %s. Current index: slot %s. %s in memory, up to %s ahead. %s. %s. Due and waiting: %s. Running: %s.',
		svg_count(slots, 'slot'), svg_duration(tick), state, slot, svg_count(near, 'task'),
		svg_count(cycle, 'turn'), next_text, far_text, ready, running),
	concat(
		-- the ring, its middle at 0, 0
		E'<g transform="translate(230 275)">\n', segments, labels,
		svg_text(0, -4, 'big m', CASE WHEN near < 10000000 THEN to_char(near, 'FM9,999,990') ELSE svg_short(near) END),
		svg_text(0, 16, 'dim m', CASE near WHEN 1 THEN 'task waits' ELSE 'tasks wait' END), svg_text(0, 33, 'dim m', 'in memory'),
		format(E'<path class="mark" transform="rotate(%1$s)" d="M0 -108V-190"/>\n', degrees * (slot + 0.5)),
		'<path class="far" transform="rotate(' || degrees * (far_slot + 0.5) || E')" d="M0 -108V-202"/>\n',
		format(E'<path class="now" transform="rotate(%1$s)" d="M0 -187l-7 -15h14Z"/>\n', degrees * (slot + 0.5)),
		CASE WHEN next_slot >= 0 THEN	-- upright
			format('<path class="next" transform="rotate(%1$s) translate(0 -213) rotate(-%1$s)" d="M0 -7l6 7l-6 7l-6 -7Z"/>', degrees * (next_slot + 0.5)) END, E'</g>\n',
		-- legend
		(SELECT string_agg(format(E'<rect class="shade%s edge" x="%s" y="140" width="42" height="14"/>\n', n - 1, 436 + 44 * n)
			|| svg_text(457 + 44 * n, 168, 'small m', label), '') FROM unnest('{none,1+,10+,100+,1k+,10k+}'::text[]) WITH ORDINALITY l(label, n)),
		E'<rect class="shade3 edge" x="480" y="183" width="20" height="14"/><rect fill="url(#dw-hatch)" x="480" y="183" width="20" height="14"/>\n',
		E'<path class="now" d="M490 238l-7 -15h14Z"/><path class="next" d="M490 250l6 7l-6 7l-6 -7Z"/><path class="far" d="M480 285h21"/>\n',
		(SELECT string_agg(svg_text(x, y, class, content), '') FROM (VALUES
			(20, 54, 'dim', format('%s of %s: one turn takes %s', svg_count(slots, 'slot'), svg_duration(tick), svg_duration(tick * slots))),
			(760, 54, 'dim e', to_char(now, 'YYYY-MM-DD HH24:MI:SS TZ')),
			(480, 110, 'head', format('Tasks in a %s (%s)', CASE width WHEN 1 THEN 'slot' ELSE format('segment of %s slots', width) END, svg_duration(tick * width))),
			(480, 129, 'dim', concat('by shade', '; the longest bar is ' || to_char(NULLIF(most, 0), 'FM999,999,999,999'))),
			(510, 194, '', 'striped: some are for a later turn'),
			(510, 234, '', format('current index: slot %s', slot)),
			(510, 262, '', next_text),
			(510, 290, '', far_text),
			(510, 308, 'dim', CASE WHEN far_slot >= 0 THEN 'what is due before is in memory' END),
			(480, 348, CASE state WHEN 'running' THEN 'head' ELSE 'head now' END, 'Timer: ' || state),
			(480, 370, '', 'due and waiting for an executor: ' || to_char(ready, 'FM999,999,999,990')),
			(480, 392, '', 'running: ' || running),
			(480, 414, '', 'in memory: up to ' || svg_count(NULLIF(cycle, 0), 'turn') || ' ahead')) t(x, y, class, content))))
FROM shape, facts, drawn
$$;
COMMENT ON FUNCTION delay_wheel.ring_svg() IS
'Draws this database''s ring as SVG: tasks in its slots, current index, horizon and next due time.';

CREATE FUNCTION delay_wheel.forecast_svg() RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, delay_wheel_internal, pg_temp SET extra_float_digits = -11 AS $$
WITH period AS MATERIALIZED (
	SELECT *, row_number() OVER (PARTITION BY step ORDER BY due_from) - 1 AS i FROM delay_wheel.forecast
), total AS MATERIALIZED (
	SELECT step, place, words, title, count(*)::float8 AS n, max(tasks) AS most, svg_count(sum(tasks), 'task', bool_and(exact)) AS tasks
	FROM period JOIN (VALUES ('overdue', 0, 'Overdue', NULL), ('minute', 1, 'Next hour', 'Tasks due in each minute of the next hour'),
		('hour', 2, 'Next 48 hours', 'Tasks due in each of the next 48 hours'), ('day', 3, 'Next 31 days', 'Tasks due in each of the next 31 days'),
		('later', 4, 'Later', NULL)) v(step, place, words, title) USING (step)
	GROUP BY step, place, words, title
), chart AS (	-- lines of the grid: at most four above zero, 1, 2 or 5 times a power of ten apart
	SELECT t.*, 690 / n AS width, line, ceil(GREATEST(most, 1) / line)::float8 AS lines
	FROM total t, LATERAL (SELECT min(f * 10.0 ^ e) FROM unnest('{1,2,5}'::numeric[]) f, generate_series(0, 18) e WHERE f * 10.0 ^ e * 4 >= GREATEST(most, 1)) l(line)
	WHERE title IS NOT NULL
), drawn AS (	-- from the lower left corner of the bars
	SELECT place, string_agg(concat('<g><title>', to_char(due_from, CASE step WHEN 'day' THEN 'Dy DD Mon YYYY' ELSE 'DD Mon HH24:MI' END),
				CASE WHEN step <> 'day' THEN to_char(due_until, '" to "HH24:MI') END, ': ', svg_count(p.tasks, 'task', exact), '</title>',
				-- over the whole height, so that a pointer also shows the titles of empty periods
				format('<rect fill="none" pointer-events="all" x="%s" y="-110" width="%s" height="110"/>', x, width),
				CASE WHEN p.tasks > 0 THEN format('<rect class="shade3" %s/>', shape) END,
				-- stripes need some height to be seen
				CASE WHEN height >= 4 AND NOT exact THEN format('<rect fill="url(#dw-hatch)" %s/>', shape) END,
				E'</g>\n', '<path class="line" d="M' || x + width / 2 || ' 0v5"/>' || svg_text(x + width / 2, 18, 'small m', to_char(due_from, label))), '') AS bars,
		   CASE most WHEN 0 THEN svg_text(345, -55, 'dim m', 'nothing is due in this time')
				ELSE svg_text(LEAST(GREATEST(min(x + width / 2) FILTER (WHERE p.tasks = most), 20), 670), -5 - max(height), 'small m', svg_short(most)) END AS peak
	FROM chart JOIN period p USING (step), LATERAL (SELECT width * i, GREATEST(110 * (p.tasks / (lines * line)), CASE WHEN p.tasks > 0 THEN 2 ELSE 0 END),
				CASE WHEN step = 'minute' AND EXTRACT(minute FROM due_from) % 10 = 0 THEN 'HH24:MI'
					WHEN step = 'hour' AND EXTRACT(hour FROM due_from) = 0 OR step = 'day' AND EXTRACT(day FROM due_from) % 5 = 1 THEN 'DD Mon'
					WHEN step = 'hour' AND EXTRACT(hour FROM due_from) % 6 = 0 THEN 'HH24:00' END) b(x, height, label),
		 format('x="%s" y="%s" width="%s" height="%s"', x + 1, -height, width - 2, height) shape
	GROUP BY place, most
)
SELECT svg_frame(680, format('When tasks of "%s" will be due', current_database()),
	(SELECT string_agg(format('%s: %s.', words, tasks), ' ' ORDER BY place) FROM total),
	concat(
		(SELECT string_agg(svg_text(20 + 70 * place, 56, '', lower(words) || ': ' || tasks), '') FROM total WHERE title IS NULL),
		svg_text(760, 32, 'dim e', to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS TZ')),
		'<rect class="shade3" x="575" y="46" width="18" height="12"/>', svg_text(599, 56, 'dim', 'counted'),
		'<rect class="shade3" x="665" y="46" width="18" height="12"/><rect fill="url(#dw-hatch)" x="665" y="46" width="18" height="12"/>',
		svg_text(689, 56, 'dim', 'estimated'),
		(SELECT string_agg(concat(svg_text(20, 190 * place - 86, 'head', title), svg_text(760, 190 * place - 86, 'e', tasks),
			format(E'<g transform="translate(70 %s)">\n', 190 * place + 50),
			(SELECT string_agg(format('<path class="%s" d="M0 %sH690"/>', CASE k WHEN 0 THEN 'line' ELSE 'grid' END, -110 * k / lines)
				|| svg_text(-8, 4 - 110 * k / lines, 'small e', svg_short(k * line)), '') FROM generate_series(0, lines::integer) k),
			bars, peak, E'</g>\n'), '') FROM chart JOIN drawn USING (place))))
$$;
COMMENT ON FUNCTION delay_wheel.forecast_svg() IS
'Draws the view delay_wheel.forecast as SVG: tasks due in the next minutes, hours and days.';

-- Both axes are logarithmic: one axis has room for microseconds and days, and the other axis
-- shows even a few very late attempts.
CREATE FUNCTION delay_wheel.lateness_svg() RETURNS text
LANGUAGE sql VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, delay_wheel_internal, pg_temp SET extra_float_digits = -11 AS $$
WITH range AS MATERIALIZED (	-- microseconds, from differences of the view's sums
	SELECT GREATEST(1e6 * above, 32) AS begins, 1e6 * below AS ends, attempts
	FROM (SELECT lag(below, 1, 0) OVER w AS above, below, tasks - lag(tasks, 1, 0) OVER w AS attempts
		  FROM delay_wheel.lateness WHERE database = current_database() WINDOW w AS (ORDER BY below)) r
	WHERE attempts > 0
), lane AS MATERIALIZED (
	SELECT concat(owner, ', ', queue, ' (' || NULLIF(priority, 0) || ')') AS name, 1e3 * lateness_p50 AS p50, 1e3 * lateness_p95 AS p95, 1e3 * lateness_max AS max,
		   count(*) OVER () AS total, 336 + 24 * row_number() OVER (ORDER BY lateness_p95 DESC, lateness_max DESC, queue, priority) AS y
	FROM delay_wheel.lanes WHERE lateness_p50 IS NOT NULL ORDER BY y LIMIT 12
), total AS MATERIALIZED (	-- the last range has no end
	SELECT 1e3 * lateness_p50 AS p50, 1e3 * lateness_p95 AS p95, 1e3 * lateness_p99 AS p99, 1e3 * lateness_max AS max, attempts, powers,
		   low, GREATEST(1.1e6, ends, 1e3 * lateness_max) AS high, shown, CASE WHEN shown > 0 THEN 360 + 24 * shown END AS last, all_lanes
	FROM (SELECT LEAST(64, min(begins)) AS low, max(LEAST(ends, 2 * begins)) AS ends, COALESCE(sum(attempts), 0) AS attempts,
				 ceil(log(GREATEST(max(attempts), 10)::float8)) AS powers FROM range) r
		 CROSS JOIN (SELECT count(*) AS shown, max(total) AS all_lanes FROM lane) l
		 LEFT JOIN delay_wheel.status ON database = current_database()
), axis(axis) AS (	-- on a long axis, each second line has a label
	SELECT string_agg(format(E'<path class="grid" d="M%s %sV%s"/>\n', x, top, bottom)
			|| CASE WHEN high < 1e7 * low OR n % 2 = 0 THEN svg_text(x, bottom + 18, 'small m', svg_duration(us)) ELSE '' END, '')
	FROM total, LATERAL (VALUES (130, 290), (346, last)) a(top, bottom),
		 unnest('{1e1,1e2,1e3,1e4,1e5,1e6,1e7,6e7,6e8,36e8,216e8,864e8,864e9,864e10,864e11}'::float8[]) WITH ORDINALITY t(us, n), svg_axis(us, low, high) x
	WHERE us BETWEEN low AND high
), histogram(bars) AS (
	SELECT string_agg(format(E'<rect class="shade3" x="%s" y="%s" width="%s" height="%s"><title>%s %s: %s</title></rect>\n',
			x + 1, 290 - height, svg_axis(ends, low, high) - x - 2, height, CASE WHEN begins > 32 THEN svg_duration(begins) ELSE '0' END,
			CASE WHEN ends < 'Infinity' THEN 'to ' || svg_duration(ends) ELSE 'or more' END, svg_count(r.attempts, 'attempt')), '')
	FROM total, range r, svg_axis(begins, low, high) x, LATERAL (SELECT 160 * ln(2 * r.attempts::float8) / ln(2 * 10 ^ powers)) h(height)
), percentiles(marks, facts) AS (	-- each name has a different height, so that no line crosses a name
	SELECT string_agg(format(E'<path class="mark" d="M%s %sV290"/>\n', x, 121 - 14 * n) || svg_text(x - 4, 130 - 14 * n, 'small e', name)
				|| svg_text(20, 84 + 21 * n, '', words) || svg_text(224, 84 + 21 * n, 'e', svg_duration(us)), ''),
		   COALESCE(string_agg(words || ' ' || svg_duration(us), ', ' ORDER BY n), 'none')
	FROM total, unnest(ARRAY[p50, p95, p99, max], '{50%,95%,99%,latest}'::text[], '{half of them up to,95% up to,99% up to,the latest one}'::text[])
		 WITH ORDINALITY p(us, name, words, n), svg_axis(us, low, high) x
), latest(lanes) AS (
	SELECT string_agg(format('<g><title>%s: median %s, 95%% up to %s, latest %s</title>', svg_escape(name), svg_duration(l.p50), svg_duration(l.p95), svg_duration(l.max))
			|| svg_text(20, y + 4, '', name, 30)
			|| format(E'<path class="line" d="M%1$s %2$sH%3$s"/><rect class="shade3" x="%1$s" y="%4$s" width="%5$s" height="8"/><path class="mark" d="M%3$s %6$sv10"/></g>\n',
				x, y, GREATEST(x_max, x), y - 4, GREATEST(x_p95 - x, 2), y - 5), '')
	FROM total, lane l, svg_axis(l.p50, low, high) x, svg_axis(l.p95, low, high) x_p95, svg_axis(l.max, low, high) x_max
)
SELECT svg_frame(COALESCE(last + 36, 330), format('How late tasks of "%s" are begun', current_database()),
	format('%s since the start of the server: %s.', svg_count(attempts, 'attempt'), facts),
	concat(axis, E'<path class="line" d="M270 290H750"/>\n', CASE WHEN attempts > 0 THEN (
			SELECT string_agg(format(E'<path class="grid" d="M270 %sH750"/>\n', y) || svg_text(264, y + 4, 'small e', svg_short(10.0 ^ n)), '')
			FROM generate_series(0, powers::integer, powers::integer / 6 + 1) n, LATERAL (SELECT 290 - 160 * ln(2 * 10 ^ n) / ln(2 * 10 ^ powers)) y(y)) END, bars,
		'<g transform="translate(238 210) rotate(-90)">' || svg_text(0, 0, 'small m', CASE WHEN attempts > 0 THEN 'attempts' END) || '</g>', marks,
		'<path class="line" d="M270 ' || last || E'H750"/>\n', lanes,
		(SELECT string_agg(svg_text(x, y, class, content), '') FROM (VALUES
			(760, 32, 'dim e', to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS TZ')),
			(20, 84, 'head', svg_count(attempts, 'attempt')),
			(20, 196, 'small', 'Time from due to start, since the'),
			(20, 212, 'small', 'start of the server; waiting for'),
			(20, 228, 'small', 'limits, and pauses, included.'),
			(510, 210, 'dim m', CASE attempts WHEN 0 THEN 'no task was begun yet' END),
			(20, 334, 'head', CASE WHEN last > 0 THEN 'Latest lanes (owner, queue)' END),
			(750, 334, 'small e', CASE WHEN last > 0 THEN 'bar: median to 95%; line and stroke: up to the latest attempt' END),
			(20, last + 18, 'small', 'and ' || NULLIF(all_lanes - shown, 0) || ' more')) t(x, y, class, content))))
FROM total, axis, histogram, percentiles, latest
$$;
COMMENT ON FUNCTION delay_wheel.lateness_svg() IS
'Draws as SVG how late tasks of this database have begun since the start of the server.';

GRANT EXECUTE ON FUNCTION delay_wheel_internal.svg_escape(text, integer), delay_wheel_internal.svg_text(double precision, double precision, text, text, integer),
	delay_wheel_internal.svg_short(numeric), delay_wheel_internal.svg_count(numeric, text, boolean), delay_wheel_internal.svg_duration(double precision),
	delay_wheel_internal.svg_axis(double precision, double precision, double precision), delay_wheel_internal.svg_frame(double precision, text, text, text),
	delay_wheel.ring_svg(), delay_wheel.forecast_svg(), delay_wheel.lateness_svg()
	TO PUBLIC;
