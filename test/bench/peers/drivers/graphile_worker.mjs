// graphile-worker's side of the measure.
//
//   graphile_worker.mjs setup                  makes its schema
//   graphile_worker.mjs work tuned|default     runs jobs until SIGTERM
//
// Tuned as its documentation on performance recommends: jobs are fetched and completed in
// batches. The poll is short.

import * as graphile from 'graphile-worker';
import pg from 'pg';

const [action, how] = process.argv.slice(2);
const quiet = new graphile.Logger(() => () => {});
const tuned = {
	concurrentJobs: 10, pollInterval: 100, maxPoolSize: 12,
	localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0,
};

const pool = new pg.Pool({ max: 12 });
pool.on('error', (error) => console.error(error.message));
pool.on('connect', (client) => client.on('error', () => {}));

if (action === 'setup') {
	await graphile.runMigrations({ pgPool: pool, logger: quiet });
	process.exit(0);
}
const runner = await graphile.run({
	pgPool: pool,
	logger: quiet,
	noHandleSignals: true,
	preset: { worker: how === 'tuned' ? tuned : {} },
	taskList: {
		rate: async ({ oid }, helpers) => {
			await helpers.query('UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = $1', [oid]);
		},
	},
});
process.on('SIGTERM', async () => {
	await runner.stop();
	process.exit(0);
});
console.log('ready');
