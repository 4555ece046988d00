-- Stand-ins for the tables of graphile-worker 0.17 and pg-boss 12.27 that the manual moves jobs
-- out of (doc/from-graphile-worker.md): their columns and defaults as the two projects document
-- them, without their indexes, functions and workers.  add_job only does what the page needs.

CREATE SCHEMA graphile_worker;
CREATE TABLE graphile_worker._private_tasks (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	identifier text NOT NULL UNIQUE);
CREATE TABLE graphile_worker._private_job_queues (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	queue_name text NOT NULL UNIQUE,
	locked_at timestamptz,
	locked_by text);
CREATE TABLE graphile_worker._private_jobs (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job_queue_id int,
	task_id int NOT NULL,
	payload json NOT NULL DEFAULT '{}',
	priority smallint NOT NULL DEFAULT 0,
	run_at timestamptz NOT NULL DEFAULT now(),
	attempts smallint NOT NULL DEFAULT 0,
	max_attempts smallint NOT NULL DEFAULT 25,
	last_error text,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	key text UNIQUE,
	locked_at timestamptz,
	locked_by text,
	revision int NOT NULL DEFAULT 0,
	flags jsonb,
	is_available boolean NOT NULL GENERATED ALWAYS AS (locked_at IS NULL AND attempts < max_attempts) STORED);
ALTER TABLE graphile_worker._private_jobs ENABLE ROW LEVEL SECURITY;

CREATE FUNCTION graphile_worker.add_job(identifier text, payload json DEFAULT NULL, queue_name text DEFAULT NULL,
	run_at timestamptz DEFAULT NULL, max_attempts int DEFAULT NULL, job_key text DEFAULT NULL, priority int DEFAULT NULL)
	RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	INSERT INTO graphile_worker._private_tasks (identifier) VALUES (add_job.identifier) ON CONFLICT DO NOTHING;
	INSERT INTO graphile_worker._private_jobs (task_id, payload, run_at, max_attempts, key, priority)
		SELECT t.id, coalesce(add_job.payload, '{}'), coalesce(add_job.run_at, now()), coalesce(add_job.max_attempts, 25), job_key,
			coalesce(add_job.priority, 0)
		FROM graphile_worker._private_tasks t WHERE t.identifier = add_job.identifier
		RETURNING _private_jobs.id INTO id;
	RETURN id;
END $$;

CREATE SCHEMA pgboss;
CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
CREATE TABLE pgboss.job (
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	name text NOT NULL,
	priority int NOT NULL DEFAULT 0,
	data jsonb,
	state pgboss.job_state NOT NULL DEFAULT 'created',
	retry_limit int NOT NULL DEFAULT 2,
	retry_count int NOT NULL DEFAULT 0,
	retry_delay int NOT NULL DEFAULT 0,
	retry_backoff boolean NOT NULL DEFAULT false,
	retry_delay_max int,
	expire_seconds int NOT NULL DEFAULT 900,
	deletion_seconds int NOT NULL DEFAULT 604800,
	singleton_key text,
	singleton_on timestamp,
	group_id text,
	group_tier text,
	start_after timestamptz NOT NULL DEFAULT now(),
	created_on timestamptz NOT NULL DEFAULT now(),
	started_on timestamptz,
	completed_on timestamptz,
	keep_until timestamptz NOT NULL DEFAULT now() + interval '14 days',
	output jsonb,
	dead_letter text,
	policy text,
	heartbeat_on timestamptz,
	heartbeat_seconds int,
	blocked boolean NOT NULL DEFAULT false,
	blocking boolean NOT NULL DEFAULT false,
	pending_dependencies int NOT NULL DEFAULT 0,
	source_name text,
	source_id uuid,
	source_created_on timestamptz,
	source_retry_count int,
	PRIMARY KEY (name, id)) PARTITION BY LIST (name);
CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;
