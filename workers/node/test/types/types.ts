// Compiled, never run: what should compile does, and each line after "@ts-expect-error" does not.
import { Pool } from 'pg';
import { GiveUp, Retry, schedule, send, Stopped, Worker, type Message, type Queue } from 'delay-wheel';

interface Mail { to: string }

const mail: Queue<Mail> = {
	concurrency: 20,
	lease: '30 s',
	handle: async (message, { signal }) => {
		signal.throwIfAborted();
		if (signal.reason instanceof Stopped) signal.reason.why satisfies 'lost' | 'stop' | 'timeout';
		message.id satisfies string;
		message.due satisfies Date;
		message.key satisfies string | null;
		if (!message.payload.to) throw new GiveUp('no such address');
		throw new Retry('5 minutes');
	},
};

const worker = new Worker({
	connection: process.env.DATABASE_URL,
	waitConnection: { host: 'db.example.com' },
	queues: {
		mail,
		ledger: { transaction: true, handle: async (message, { client }) => client.query('INSERT INTO ledger VALUES ($1)', [message.payload.id]) },
		batch: { batch: 100, handle: async (messages: Message<Mail>[]) => messages.map((m) => m.payload.to) },
		rows: { transaction: true, batch: 10, concurrency: 2, handle: async (messages, { client }) => { await client.query('SELECT $1', [messages.length]); } },
	},
	log: (level, text) => { level satisfies 'info' | 'warning' | 'error'; text satisfies string; },
	around: async (message, next) => { void message; return next(); },
});
worker.on('failed', (message, error) => { message.attempt satisfies number; error satisfies unknown; });
worker.on('problem', (queue, error) => { queue satisfies string; error.message satisfies string; });
const handled: Promise<number> = worker.drain();
const ran: Promise<void> = worker.run({ within: 10_000 });
const ended: Promise<void> = worker.stop({ within: 1000 });
const id: Promise<string> = send(new Pool(), 'mail', { to: 'anna@example.com' }, { delay: '30 minutes', key: 'order 7', headers: { traceparent: '00' } });
const task: Promise<string> = schedule(new Pool(), 'UPDATE t SET n = :n', { n: 1 }, { due: new Date(), retryOn: ['40001'] });
void [handled, ran, ended, id, task];

// @ts-expect-error there are no queues
new Worker({});
// @ts-expect-error a lease is an interval
new Worker({ queues: { mail: { lease: 30, handle: async () => {} } } });
// @ts-expect-error a transaction has no lease
new Worker({ queues: { mail: { transaction: true, lease: '30 s', handle: async () => {} } } });
// @ts-expect-error there is no such option
new Worker({ queues: { mail: { parallel: 3, handle: async () => {} } } });
// @ts-expect-error no client without a transaction
new Worker({ queues: { mail: { handle: async (_message, { client }) => client } } });
// @ts-expect-error there is no such event
worker.on('finished', () => {});
// @ts-expect-error nor such an option
send(new Pool(), 'mail', {}, { later: '1 hour' });
// @ts-expect-error payload is missing
send(new Pool(), 'mail');
