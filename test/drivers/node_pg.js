// The calls of test/t/945_drivers.pl, by node-postgres ("pg").
const { Client } = require('pg');
const interval = require('postgres-interval'); // which "pg" uses itself

const queue = process.env.PGUSER;
const past = new Date('2001-02-03T04:05:06Z');
const db = new Client();
const ids = [];

const rows = async (...query) => (await db.query(...query)).rows;
const one = async (...query) => Object.values((await rows(...query))[0])[0];
const schedule = async (...query) => ids.push(await one(...query)) > 0;

const calls = {
	untyped: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)", ["it's", 7]),
	typed: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1::text, $2::int)", ["it's", 7]),
	mixed: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2, 3)", [7, past]),
	null: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2)", [null, 8]),
	async prepared() {
		const text = "SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)";
		for (const n of [5, 6]) await schedule({ name: 'later', text, values: ['0', n, n] });
		return true;
	},
	text: () => schedule('SELECT delay_schedule($1, $2, $3)', ['100 milliseconds', 'UPDATE t SET n = 7 WHERE id = $1', 7]),
	duration: () => schedule("SELECT delay_schedule($1, 'UPDATE t SET n = 8 WHERE id = $1', $2)", [interval('00:00:00.1'), 8]),
	at: () => schedule("SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2)", [new Date(), past]),
	async args() {
		await schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1, delay => '0')", [[100, 10]]);
		return schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)", [['a list', '11']]);
	},
	named: () => schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)", [{ note: 'named', id: 12 }]),
	async rollback() {
		await db.query('BEGIN');
		const id = await one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1)", [13]);
		await db.query('ROLLBACK');
		return id > 0;
	},
	async commit() {
		await db.query('BEGIN');
		await db.query("UPDATE t SET note = 'mine' WHERE id = 14");
		await schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1, $2)", [14, 'mine']);
		await db.query('COMMIT');
		return true;
	},
	async zone() {
		const later = await one("SELECT delay_schedule('1 hour', 'SELECT 1')");
		const kept = await one('SELECT settings FROM delay_wheel.tasks WHERE id = $1', [later]);
		await one('SELECT delay_cancel($1)', [later]);
		const kolkata = new Client({ options: '-c timezone=Asia/Kolkata' });
		await kolkata.connect();
		const { rows: [{ id }] } = await kolkata.query("SELECT delay_schedule('0', 'UPDATE t SET at = $1, note = ($2::timestamptz = $1)::text WHERE id = 16', $1, $2) AS id",
			[past, '2001-02-03 09:35:06']);
		await kolkata.end();
		return kept === null && ids.push(id) > 0;
	},
	async cancel_key() {
		await one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)", ['1 second', 'a key']);
		return await one('SELECT delay_cancel(key => $1)', ['a key']) === 'cancelled';
	},
	async reschedule() {
		await schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')");
		return await one('SELECT delay_reschedule($1, $2)', [ids.at(-1), '0']) === 'moved';
	},
	send: async () => await one('SELECT delay_send($1, $2)', [queue, { to: 'anna', n: 1 }]) > 0,
	async lease() {
		const found = await one("CALL delay_await($1, '30 s')", [queue]);
		const [{ id, token, payload }] = await rows('SELECT id, token, payload FROM delay_lease($1, 10)', [queue]);
		return found && payload.to === 'anna' && payload.n === 1 && await one('SELECT delay_done($1, $2)', [id, token]) === true;
	},
	async views() {
		const names = await rows("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'");
		for (const { viewname } of names) await rows(`SELECT * FROM delay_wheel.${viewname}`);
		return names.length > 10;
	},
	async effect() {
		for (const id of ids) if (!['done', 'gone'].includes(await one("SELECT delay_wait($1, '30 s')", [id]))) return false;
		const [{ n, note }] = await rows('SELECT n, note FROM t WHERE id = 1');
		return n === 7 && note === "it's";
	},
	error: () => one("SELECT delay_schedule($1, 'SELECT 1')", ['1 hrz']).then(() => false, (e) => e.code === '22007'),
};

(async () => {
	await db.connect();
	for (const [name, does] of Object.entries(calls))
		await does().then((ok) => console.log(ok ? 'ok' : 'not ok', name), (e) => console.log('not ok', `${name}: ${e.message}`));
	await db.end();
})();
