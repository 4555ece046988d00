// Serves web/delay_wheel.html and its data to browsers on this machine: see doc/web.md.
// PGHOST and the like say which database, and as which role; PORT where to listen.
const fs = require('fs');
const http = require('http');
const { Pool } = require('pg');

const packaged = `${__dirname}/../web/delay_wheel.html`; // as Debian's package has it
const page = fs.readFileSync(fs.existsSync(packaged) ? packaged : `${__dirname}/../../web/delay_wheel.html`);
// all that the database is ever asked
const query = "BEGIN READ ONLY; SET LOCAL statement_timeout = '20s'; SELECT delay_wheel.page_data()::text AS data; COMMIT";
const headers = {
	'Cache-Control': 'no-store', 'Content-Security-Policy': "frame-ancestors 'none'; connect-src 'self'",
	'Cross-Origin-Resource-Policy': 'same-origin', 'Referrer-Policy': 'no-referrer', 'X-Content-Type-Options': 'nosniff',
};
const db = new Pool({ max: 1, connectionTimeoutMillis: 5000, query_timeout: 25000, fallback_application_name: 'delay_wheel page' });
db.on('error', () => {}); // a connection has ended while nothing was asked: the next query makes a new one

let trouble = null;
const ask = () => db.query(query).then((results) => [200, results[2].rows[0].data], (e) => {
	const why = 'database: ' + ((e.errors || [e]).map((each) => each.message).join(', ') || e.code);
	return [503, JSON.stringify({ message: why }), why];
}).then((answer) => {
	if (answer[2] && answer[2] !== trouble) console.error(answer[2]);
	trouble = answer[2];
	asked = null;
	return answer;
});
let asked = null; // however many browsers there are, there is one query at a time

const server = http.createServer(async ({ method, url, headers: { host } }, response) => {
	const send = (status, type, text) => response.writeHead(status, { ...headers, 'Content-Type': `${type}; charset=utf-8` }).end(text);
	const path = url.split('?')[0];

	// a page from elsewhere, whose name has been made to lead to this machine, gets nothing
	if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(host)) return send(421, 'text/plain', 'this server does not have that name\n');
	if (method !== 'GET' && method !== 'HEAD') return send(405, 'text/plain', 'only GET\n');
	if (path === '/' || path === '/delay_wheel.html') return send(200, 'text/html', page);
	if (path !== '/delay_wheel.json') return send(404, 'text/plain', 'no such page\n');
	const [status, text] = await (asked = asked || ask());
	return send(status, 'application/json', text);
});
server.on('error', (e) => { console.error(e.message); process.exit(1); });
server.listen(Number(process.env.PORT || 8080), '127.0.0.1', () => {
	console.log(`http://127.0.0.1:${server.address().port}/`);
	asked = ask(); // if the database cannot be reached, that is said at once
});
