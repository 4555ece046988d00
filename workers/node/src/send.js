// Thin calls of delay_send() and delay_schedule_task(): one statement on whatever has
// query(text, values), in its transaction.

// parameters of the SQL functions; all other options are members of their parameter "options"
const PARAMETERS = { delay: 'interval', due: 'timestamptz', key: 'text', ifExists: 'text', tag: 'text', priority: 'integer', maxAttempts: 'integer', groupKey: 'text' };
const OF_SEND = { ...PARAMETERS, headers: 'jsonb' };
const OF_SCHEDULE = { ...PARAMETERS, queue: 'text' };

const snakeCase = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

// Each value is used once, and in order, so that adapters may put "?" in place of $1.
async function call(db, name, args, options, parameters) {
	const values = [];
	const list = args.map(([type, value, parameter]) => `${parameter ? `${parameter} => ` : ''}$${values.push(value)}::${type}`);
	const others = {};
	for (const [option, value] of Object.entries(options)) {
		if (value === undefined || value === null) continue;
		if (Object.hasOwn(parameters, option)) list.push(`${snakeCase(option)} => $${values.push(valueOf(value, parameters[option]))}::${parameters[option]}`);
		else others[snakeCase(option)] = value;
	}
	if (Object.keys(others).length) list.push(`options => $${values.push(JSON.stringify(others))}::jsonb`);
	const result = await db.query(`SELECT ${name}(${list.join(', ')}) AS id`, values);
	return String((result.rows ?? result)[0].id);
}

function valueOf(value, type) {
	if (type === 'jsonb') return JSON.stringify(value);
	if (type === 'interval' && typeof value === 'number') return `${value} ms`;
	if (value instanceof Date) return value.toISOString();
	return value;
}

/** Sends a message; returns its id. */
export function send(db, queue, payload, options = {}) {
	return call(db, 'delay_send', [['text', queue], ['jsonb', JSON.stringify(payload ?? null)]], options, OF_SEND);
}

/** Schedules SQL with values for $1, $2 ... (array), or for :name (object); returns the id of the task. */
export function schedule(db, sql, args = [], options = {}) {
	const list = [['text', sql]];
	if (!Array.isArray(args)) list.push(['jsonb', JSON.stringify(args), 'named']);
	else if (args.length) list.push(['text[]', arrayOf(args), 'args']);
	return call(db, 'delay_schedule_task', list, options, OF_SCHEDULE);
}

// As a text, since drivers differ in what they make of arrays.
function arrayOf(args) {
	return `{${args.map((value) => (value === null || value === undefined ? 'NULL' : `"${textOf(value).replace(/["\\]/g, '\\$&')}"`)).join(',')}}`;
}

function textOf(value) {
	if (value instanceof Date) return value.toISOString();
	return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
