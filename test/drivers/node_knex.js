// The calls of test/t/945_drivers.pl, by Knex, on "pg".  A "?" is a value.
const knex = require('knex')({ client: 'pg', connection: {}, pool: { min: 1, max: 1 } });
const interval = require('postgres-interval'); // which "pg" uses itself

const queue = process.env.PGUSER;
const past = new Date('2001-02-03T04:05:06Z');
const ids = [];

const rows = async (...query) => (await knex.raw(...query)).rows;
const one = async (...query) => Object.values((await rows(...query))[0])[0];
const schedule = async (...query) => ids.push(await one(...query)) > 0;

const calls = {
	untyped: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', ?, ?)", ["it's", 7]),
	typed: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', ?::text, ?::int)", ["it's", 7]),
	mixed: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', ?::int, ?, 3)", [7, past]),
	null: () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', ?, ?)", [null, 8]),
	async prepared() {
		await knex.raw("PREPARE later AS SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)");
		for (const n of [5, 6]) await schedule(`EXECUTE later('0', ${n}, ${n})`);
		return true;
	},
	text: () => schedule('SELECT delay_schedule(?, ?, ?)', ['100 milliseconds', 'UPDATE t SET n = 7 WHERE id = $1', 7]),
	duration: () => schedule("SELECT delay_schedule(?, 'UPDATE t SET n = 8 WHERE id = $1', ?)", [interval('00:00:00.1'), 8]),
	at: () => schedule("SELECT delay_schedule_at(?, 'UPDATE t SET at = $1 WHERE id = 9', ?)", [new Date(), past]),
	async args() {
		await schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => ?, delay => '0')", [[100, 10]]);
		return schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => ?)", [['a list', '11']]);
	},
	named: () => schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => ?)", [{ note: 'named', id: 12 }]),
	rollback: () => knex.transaction(async (trx) => {
		await trx.raw("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', ?)", [13]);
		throw new Error('no');
	}).then(() => false, (e) => e.message === 'no'),
	commit: () => knex.transaction(async (trx) => {
		await trx('t').where({ id: 14 }).update({ note: 'mine' });
		const { rows: [{ id }] } = await trx.raw("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', ?, ?) AS id", [14, 'mine']);
		return ids.push(id);
	}),
	async cancel_key() {
		await one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => ?, key => ?)", ['1 second', 'a key']);
		return await one('SELECT delay_cancel(key => ?)', ['a key']) === 'cancelled';
	},
	async reschedule() {
		await schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')");
		return await one('SELECT delay_reschedule(?, ?)', [ids.at(-1), '0']) === 'moved';
	},
	send: async () => await one('SELECT delay_send(?, ?)', [queue, { to: 'anna', n: 1 }]) > 0,
	async lease() {
		const found = await one("CALL delay_await(?, '30 s')", [queue]);
		const [{ id, token, payload }] = await rows('SELECT id, token, payload FROM delay_lease(?, 10)', [queue]);
		return found && payload.to === 'anna' && payload.n === 1 && await one('SELECT delay_done(?, ?)', [id, token]) === true;
	},
	async views() {
		const names = await rows("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'");
		for (const { viewname } of names) await rows(`SELECT * FROM delay_wheel.${viewname}`);
		return names.length > 10;
	},
	async effect() {
		for (const id of ids) if (!['done', 'gone'].includes(await one("SELECT delay_wait(?, '30 s')", [id]))) return false;
		const [{ n, note }] = await rows('SELECT n, note FROM t WHERE id = 1');
		return n === 7 && note === "it's";
	},
	error: () => one("SELECT delay_schedule(?, 'SELECT 1')", ['1 hrz']).then(() => false, (e) => e.code === '22007'),
};

(async () => {
	for (const [name, does] of Object.entries(calls))
		await does().then((ok) => console.log(ok ? 'ok' : 'not ok', name), (e) => console.log('not ok', `${name}: ${e.message}`));
	await knex.destroy();
})();
