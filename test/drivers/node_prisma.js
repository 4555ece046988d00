// The calls of test/t/945_drivers.pl, by Prisma, on "pg", with a client of no models: its
// $queryRaw.
const { PrismaClient } = require('.prisma/client');
const { PrismaPg } = require('@prisma/adapter-pg');

const prisma = new PrismaClient({ adapter: new PrismaPg({ max: 1 }) });
const sql = prisma.$queryRaw.bind(prisma);

const queue = process.env.PGUSER;
const past = new Date('2001-02-03T04:05:06Z');
const ids = [];

const one = async (rows) => Object.values((await rows)[0])[0];
const schedule = async (rows) => ids.push(await one(rows)) > 0;

const calls = {
	untyped: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', ${"it's"}, ${7})`),
	typed: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', ${"it's"}::text, ${7}::int)`),
	mixed: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', ${7}::int, ${past}, 3)`),
	null: () => schedule(sql`SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', ${null}, ${8})`),
	async prepared() { // if at all, by the driver
		for (const n of [5, 6]) await schedule(sql`SELECT delay_schedule(${'0'}, 'UPDATE t SET n = $1 WHERE id = $2', ${n}, ${n})`);
		return true;
	},
	text: () => schedule(sql`SELECT delay_schedule(${'100 milliseconds'}, ${'UPDATE t SET n = 7 WHERE id = $1'}, ${7})`),
	duration: null,
	at: () => schedule(sql`SELECT delay_schedule_at(${new Date()}, 'UPDATE t SET at = $1 WHERE id = 9', ${past})`),
	async args() {
		await schedule(sql`SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => ${[100, 10]}, delay => '0')`);
		return schedule(sql`SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => ${['a list', '11']})`);
	},
	named: () => schedule(sql`SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => ${{ note: 'named', id: 12 }})`),
	rollback: () => prisma.$transaction(async (tx) => {
		await tx.$queryRaw`SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', ${13})`;
		throw new Error('no');
	}).then(() => false, (e) => e.message === 'no'),
	commit: () => prisma.$transaction(async (tx) => {
		await tx.$executeRaw`UPDATE t SET note = 'mine' WHERE id = 14`;
		return schedule(tx.$queryRaw`SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', ${14}, ${'mine'})`);
	}),
	async cancel_key() {
		await sql`SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => ${'1 second'}, key => ${'a key'})`;
		return await one(sql`SELECT delay_cancel(key => ${'a key'})`) === 'cancelled';
	},
	async reschedule() {
		await schedule(sql`SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')`);
		return await one(sql`SELECT delay_reschedule(${ids.at(-1)}, ${'0'})`) === 'moved';
	},
	send: async () => await one(sql`SELECT delay_send(${queue}, ${{ to: 'anna', n: 1 }})`) > 0,
	async lease() {
		const found = await one(sql`CALL delay_await(${queue}, '30 s')`);
		const [{ id, token, payload }] = await sql`SELECT id, token, payload FROM delay_lease(${queue}, 10)`;
		return found && payload.to === 'anna' && payload.n === 1 && await one(sql`SELECT delay_done(${id}, ${token})`) === true;
	},
	async views() {
		const names = await sql`SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'`;
		for (const { viewname } of names) await prisma.$queryRawUnsafe(`SELECT * FROM delay_wheel.${viewname}`);
		return names.length > 10;
	},
	async effect() {
		for (const id of ids) if (!['done', 'gone'].includes(await one(sql`SELECT delay_wait(${id}, '30 s')`))) return false;
		const [{ n, note }] = await sql`SELECT n, note FROM t WHERE id = 1`;
		return n === 7 && note === "it's";
	},
	error: () => one(sql`SELECT delay_schedule(${'1 hrz'}, 'SELECT 1')`).then(() => false, (e) => e.meta.driverAdapterError.cause.originalCode === '22007'),
};

(async () => {
	for (const [name, does] of Object.entries(calls))
		if (!does) console.log('none', name);
		else await does().then((ok) => console.log(ok ? 'ok' : 'not ok', name), (e) => console.log('not ok', `${name}: ${e.message}`));
	await prisma.$disconnect();
})();
