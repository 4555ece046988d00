// An order is delivered, and rated 48 hours later: with Drizzle.  PGHOST and the like say
// where the database is.
const { eq, sql } = require('drizzle-orm');
const { drizzle } = require('drizzle-orm/node-postgres');
const { integer, pgTable, text } = require('drizzle-orm/pg-core');
const { Pool } = require('pg');

const orders = pgTable('orders', { id: integer('id').primaryKey(), state: text('state'), stars: integer('stars') });

async function deliver(tx, id) {
	await tx.update(orders).set({ state: 'delivered' }).where(eq(orders.id, id));
	await tx.execute(sql`SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', ${id})`);
}

const testIsRatedAfterTwoDays = (db) => db.transaction(async (tx) => {
	await deliver(tx, 1);
	await tx.execute(sql`SELECT delay_run_due(now() + interval '48 hours')`);
	const [order] = await tx.select().from(orders).where(eq(orders.id, 1));
	if (order.stars === 5) tx.rollback(); // by an exception, which ends db.transaction()
}).then(() => { throw new Error('it is not rated'); }, (e) => { if (e.constructor.name !== 'TransactionRollbackError') throw e; });

(async () => {
	const pool = new Pool();
	const db = drizzle({ client: pool });
	await testIsRatedAfterTwoDays(db);
	await db.transaction((tx) => deliver(tx, 2));
	await pool.end();
})();
