// An order is delivered, and rated 48 hours later: with Knex.  PGHOST and the like say where
// the database is.
const knex = require('knex')({ client: 'pg', connection: {} });

async function deliver(trx, id) {
	await trx('orders').where({ id }).update({ state: 'delivered' });
	await trx.raw("SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', ?)", [id]);
}

async function testIsRatedAfterTwoDays() {
	const trx = await knex.transaction();
	await deliver(trx, 1);
	await trx.raw("SELECT delay_run_due(now() + interval '48 hours')");
	if ((await trx('orders').where({ id: 1 }).first()).stars !== 5) throw new Error('it is not rated');
	await trx.rollback();
}

(async () => {
	await testIsRatedAfterTwoDays();
	await knex.transaction((trx) => deliver(trx, 2));
	await knex.destroy();
})();
