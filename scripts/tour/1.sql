-- The tour of scripts/try, 1 of 3: a task runs while one looks.

\echo
\echo '1 of 3. A task is SQL and a time. This one writes a memo, three seconds from now.'
\echo
\set ECHO queries
CREATE TABLE memo (text text, written timestamptz DEFAULT clock_timestamp());

SELECT delay_schedule('3 seconds', 'INSERT INTO memo (text) VALUES ($1)', 'hello from the past') AS id \gset
SELECT id, sql, args, round(extract(epoch FROM due - now()), 1) AS seconds_to_go FROM delay_wheel.tasks;
\set ECHO none
SELECT due FROM delay_wheel.tasks WHERE id = :id \gset
\echo 'Nobody looks for tasks that are due: a timer sleeps until then. We wait, too.'
\echo
\set ECHO queries
SELECT delay_wait(:id, '1 minute') AS outcome;

SELECT text, round(extract(epoch FROM written - :'due') * 1000, 1) AS milliseconds_late FROM memo;
\set ECHO none
\set next '\\i :tour/2.sql'
\echo :hint
