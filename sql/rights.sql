/*---- Who may schedule ----*/

-- nobody but their owner and superusers, until allowed to
REVOKE EXECUTE ON FUNCTION
	delay_schedule(interval, text), delay_schedule(interval, text, VARIADIC "any"),
	delay_schedule(text, text), delay_schedule(text, text, VARIADIC "any"),
	delay_schedule_at(timestamptz, text), delay_schedule_at(timestamptz, text, VARIADIC "any"),
	delay_schedule_task(text, anycompatiblearray, regtype[], jsonb, interval, timestamptz, text, text, text, text, integer, integer, interval, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], interval, text, text),
	delay_put(text, anycompatiblearray, regtype[], jsonb, interval, timestamptz, text, text, text, text, integer, integer, interval, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], interval, text, text),
	delay_schedule_local(timestamp, text, text, anycompatiblearray, regtype[], jsonb, text, text, text, text, integer, integer, interval, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], interval, text, text),
	delay_cancel(bigint, boolean, boolean), delay_cancel_key(text, text),
	delay_cancel_all(text, text, timestamptz, timestamptz),
	delay_wait(bigint, interval), delay_outcome(bigint), delay_reschedule(bigint, interval), delay_reschedule(bigint, text), delay_reschedule_at(bigint, timestamptz),
	delay_reschedule_key(text, interval, text), delay_reschedule_key(text, text, text), delay_reschedule_key_at(text, timestamptz, text),
	delay_update(bigint, text, anycompatiblearray, regtype[], jsonb, integer, text, integer, interval, text, jsonb),
	delay_update_key(text, text, text, anycompatiblearray, regtype[], jsonb, integer, text, integer, interval, text, jsonb),
	delay_pause(text), delay_resume(text),
	delay_schedule_trigger(), delay_send_trigger(),
	delay_send(text, jsonb, interval, timestamptz, text, text, text, integer, integer, interval, interval, interval, text, text, text, text, interval, interval, text),
	delay_put_message(text, jsonb, interval, timestamptz, text, text, text, integer, integer, interval, interval, interval, text, text, text, text, interval, interval, text),
	delay_receive(text, integer, boolean), delay_fail(bigint, bigint, text, interval, boolean),
	delay_lease(text, integer, interval), delay_done(bigint, bigint, jsonb), delay_done_all(bigint[], bigint[]),
	delay_extend(bigint, bigint, interval), delay_release(bigint, bigint, interval),
	delay_run(bigint), delay_run_due(timestamptz, boolean), delay_now(), delay_retry(bigint),
	delay_redrive(text, text, text, timestamptz, timestamptz, integer),
	delay_every(text, interval, text, anycompatiblearray, regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], text, text),
	delay_cron(text, text, text, anycompatiblearray, regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text, text, interval, text[], text[], text[], text, text),
	delay_unschedule(text), delay_pause_recurring(text), delay_resume_recurring(text)
	FROM PUBLIC;
REVOKE EXECUTE ON PROCEDURE delay_await(text, interval, boolean) FROM PUBLIC;

CREATE FUNCTION delay_wheel.allow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_allow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.allow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'allows roles to schedule, cancel and reschedule tasks of their own: grants EXECUTE on all functions of the extension that lie in the schema given to CREATE EXTENSION, but those for administrators: delay_arm, delay_queue, delay_queue_drop, delay_pause_database, delay_resume_database. Names are as in pg_roles, upper and lower case as they are; public stands for all roles. Only for superusers and the owner of the functions, for others an error, SQLSTATE 42501. No name at all is one, 42883, an empty array (VARIADIC) another, 22023, a null name, 22004, and a role that does not exist, 42704. Plain GRANT does as well; a dump carries the grants. On Citus the roles become members of the role delay_wheel_user, which has these grants on all nodes, and on nodes that are added later; all of it is undone by ROLLBACK; public, and roles with NOINHERIT, are errors there, 0A000 and 55000. With citus.enable_ddl_propagation off only this node is concerned. For many roles allow a group once, and grant that to them: a call for each of thousands takes minutes, as so many GRANTs would. Returns true';

CREATE FUNCTION delay_wheel.disallow(VARIADIC roles name[]) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_disallow' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.disallow(name[]) FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.disallow(name[]) IS
'takes back what delay_wheel.allow(name[]) granted, on all nodes of Citus; what a role may do as a member of another one, or since all may, it still may. Tasks that are pending run nevertheless. A role that was allowed can be dropped after this (or after DROP OWNED). Returns true';
