// The calls of test/t/945_drivers.pl, by Drizzle, on "pg".
const { sql } = require('drizzle-orm');
const { drizzle } = require('drizzle-orm/node-postgres');
const { pgTable, integer, text } = require('drizzle-orm/pg-core');
const { Pool } = require('pg');
const interval = require('postgres-interval'); // which "pg" uses itself

const pool = new Pool({ max: 1 });
const db = drizzle({ client: pool });
const t = pgTable('t', { id: integer('id').primaryKey(), n: integer('n'), note: text('note') });

const queue = process.env.PGUSER;
const past = new Date('2001-02-03T04:05:06Z');
const ids = [];

const one = async (query, by = db) => Object.values((await by.execute(query)).rows[0])[0];
const schedule = async (query, by) => ids.push(await one(query, by)) > 0;

const calls = {
	untyped: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', ${"it's"}, ${7})`),
	typed: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', ${"it's"}::text, ${7}::int)`),
	mixed: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', ${7}::int, ${past}, 3)`),
	null: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', ${null}, ${8})`),
	async prepared() {
		await db.execute(sql`PREPARE later AS SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)`);
		for (const n of [5, 6]) await schedule(sql.raw(`EXECUTE later('0', ${n}, ${n})`));
		return true;
	},
	text: () => schedule(sql`SELECT delay_schedule(${'100 milliseconds'}, ${'UPDATE t SET n = 7 WHERE id = $1'}, ${7})`),
	duration: () => schedule(sql`SELECT delay_schedule(${interval('00:00:00.1')}, 'UPDATE t SET n = 8 WHERE id = $1', ${8})`),
	at: () => schedule(sql`SELECT delay_schedule_at(${new Date()}, 'UPDATE t SET at = $1 WHERE id = 9', ${past})`),
	async args() {
		await schedule(sql`SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => ${sql.param([100, 10])}, delay => '0')`);
		return schedule(sql`SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => ${sql.param(['a list', '11'])})`);
	},
	named: () => schedule(sql`SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => ${{ note: 'named', id: 12 }})`),
	rollback: () => db.transaction(async (tx) => {
		await tx.execute(sql`SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', ${13})`);
		throw new Error('no');
	}).then(() => false, (e) => e.message === 'no'),
	commit: () => db.transaction(async (tx) => {
		await tx.update(t).set({ note: 'mine' }).where(sql`${t.id} = 14`);
		return schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', ${14}, ${'mine'})`, tx);
	}),
	async cancel_key() {
		await one(sql`SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => ${'1 second'}, key => ${'a key'})`);
		return await one(sql`SELECT delay_cancel(key => ${'a key'})`) === 'cancelled';
	},
	async reschedule() {
		await schedule(sql`SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')`);
		return await one(sql`SELECT delay_reschedule(${ids.at(-1)}, ${'0'})`) === 'moved';
	},
	send: async () => await one(sql`SELECT delay_send(${queue}, ${{ to: 'anna', n: 1 }})`) > 0,
	async lease() {
		const found = await one(sql`CALL delay_await(${queue}, '30 s')`);
		const { rows: [{ id, token, payload }] } = await db.execute(sql`SELECT id, token, payload FROM delay_lease(${queue}, 10)`);
		return found && payload.to === 'anna' && payload.n === 1 && await one(sql`SELECT delay_done(${id}, ${token})`) === true;
	},
	async views() {
		const names = (await db.execute(sql`SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'`)).rows;
		for (const { viewname } of names) await db.execute(sql`SELECT * FROM delay_wheel.${sql.identifier(viewname)}`);
		return names.length > 10;
	},
	async effect() {
		for (const id of ids) if (!['done', 'gone'].includes(await one(sql`SELECT delay_wait(${id}, '30 s')`))) return false;
		const [{ n, note }] = await db.select().from(t).where(sql`${t.id} = 1`);
		return n === 7 && note === "it's";
	},
	error: () => one(sql`SELECT delay_schedule(${'1 hrz'}, 'SELECT 1')`).then(() => false, (e) => (e.cause ?? e).code === '22007'),
};

(async () => {
	for (const [name, does] of Object.entries(calls))
		await does().then((ok) => console.log(ok ? 'ok' : 'not ok', name), (e) => console.log('not ok', `${name}: ${e.message} ${e.cause ?? ''}`));
	await pool.end();
})();
