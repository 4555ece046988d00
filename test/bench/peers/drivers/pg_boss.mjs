// pg-boss' side of the measure.
//
//   pg_boss.mjs setup              makes its schema, and the queue
//   pg_boss.mjs schedule SECONDS   two clients; prints how many, and how many a second
//   pg_boss.mjs bulk               the orders of the table, 10,000 a call; prints seconds
//   pg_boss.mjs work               runs jobs until SIGTERM
//
// Tuned: the shortest poll that it allows, batches of 100 in two workers, which go on
// without a pause while batches are full, and the work in the transaction that completes
// them.

import { PgBoss } from 'pg-boss';
import pg from 'pg';

const [action, argument] = process.argv.slice(2);
const now = () => Date.now() / 1000;
const working = action === 'work';
const boss = new PgBoss({
	host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE,
	supervise: working, schedule: working,
});
boss.on('error', (error) => console.error(error.message));
await boss.start();

if (action === 'setup') {
	await boss.createQueue('rate');
} else if (action === 'schedule') {
	const begun = now();
	let count = 0;
	await Promise.all([0, 1].map(async () => {
		while (now() < begun + Number(argument)) {
			await boss.send('rate', { oid: ++count }, { startAfter: 48 * 3600 });
		}
	}));
	console.log(count, count / (now() - begun));
} else if (action === 'bulk') {
	const client = new pg.Client();
	await client.connect();
	const { rows } = await client.query('SELECT oid, due FROM t_order');
	const begun = now();
	for (let i = 0; i < rows.length; i += 10000) {
		await boss.insert('rate', rows.slice(i, i + 10000).map(({ oid, due }) => ({ data: { oid }, startAfter: due })));
	}
	console.log(now() - begun);
} else {
	await boss.work('rate', {
		batchSize: 100, localConcurrency: 2, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true, transactional: true,
	}, async (jobs, transaction) => {
		await transaction.executeSql(jobs.map(({ data }) =>
			`UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = ${Number(data.oid)}`).join(';'));
	});
	process.on('SIGTERM', async () => {
		await boss.stop();
		process.exit(0);
	});
	console.log('ready');
}
if (!working) {
	await boss.stop();
	process.exit(0);
}
