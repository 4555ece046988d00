exports.up = (knex) => knex.raw(`
	CREATE TRIGGER unpaid AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(
		'30 minutes', 'UPDATE orders SET state = ''cancelled'' WHERE id = $1 AND state = ''open''', 'id')`);
exports.down = (knex) => knex.raw('DROP TRIGGER unpaid ON orders');
