// A small consumer of a sorted set of Redis, and what schedules into it.
//
//   redis.mjs schedule SECONDS   two clients; prints how many, and how many a second
//   redis.mjs bulk               the orders of the table, 1,000 a command; prints seconds
//   redis.mjs work BATCH         until SIGTERM: two workers, each with a connection of its
//                                own to both servers
//
// A script in Redis takes what is due out of the set.  By 100, their UPDATEs go to
// PostgreSQL in one message, which makes them one transaction.

import Redis from 'ioredis';
import pg from 'pg';

const [action, argument] = process.argv.slice(2);
const twoDays = 48 * 3600;
const take = `local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
	if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end
	return due`;
const now = () => Date.now() / 1000;

function redis() {
	const client = new Redis({ path: process.env.DW_PEERS_REDIS });
	client.defineCommand('take', { numberOfKeys: 1, lua: take });
	return client;
}

async function postgres() {
	const client = new pg.Client();
	await client.connect();
	return client;
}

if (action === 'schedule') {
	const clients = [redis(), redis()];
	await Promise.all(clients.map((client) => client.ping()));
	const begun = now();
	let count = 0;
	await Promise.all(clients.map(async (client) => {
		while (now() < begun + Number(argument)) {
			await client.zadd('delayed', now() + twoDays, ++count);
		}
	}));
	console.log(count, count / (now() - begun));
} else if (action === 'bulk') {
	const client = redis();
	const { rows } = await (await postgres()).query('SELECT extract(epoch FROM due)::float8 AS due, oid FROM t_order');
	const begun = now();
	for (let i = 0; i < rows.length; i += 1000) {
		await client.zadd('delayed', ...rows.slice(i, i + 1000).flatMap((row) => [row.due, row.oid]));
	}
	console.log(now() - begun);
} else {
	const batch = Number(argument);
	const update = 'UPDATE t_order SET stars = stars + 5, status = status + 1 WHERE oid = ';
	const connections = await Promise.all([0, 1].map(async () => [redis(), await postgres()]));
	console.log('ready');
	connections.forEach(async ([queue, database]) => {
		for (;;) {
			const due = await queue.take('delayed', now(), batch);
			if (due.length === 0) {
				await new Promise((wake) => { setTimeout(wake, 10); });
			} else if (batch === 1) {
				await database.query({ name: 'update', text: update + '$1', values: due });
			} else {
				await database.query(due.map((oid) => update + oid).join(';'));
			}
		}
	});
	process.on('SIGTERM', () => process.exit(0));
}
if (action !== 'work') process.exit(0);
