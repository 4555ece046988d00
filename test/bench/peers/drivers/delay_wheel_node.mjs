// The side of delay_wheel's library for Node.
//
//   delay_wheel_node.mjs lease|transaction     handles messages until SIGTERM

import { Worker } from 'delay-wheel';
import pg from 'pg';

const pool = new pg.Pool({ max: 12 });
pool.on('error', (error) => console.error(error.message));
const update = (db, { payload }) => db.query('UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = $1', [payload.oid]);
const worker = new Worker({
	connection: {},
	log: false,
	queues: {
		rate: process.argv[2] === 'lease' ? { concurrency: 100, handle: async (message) => { await update(pool, message); } }
			: { concurrency: 10, transaction: true, handle: async (message, { client }) => { await update(client, message); } },
	},
});
let ready = false;
worker.on('connected', () => {
	if (!ready) console.log('ready');
	ready = true;
});
await worker.run();
await pool.end();
