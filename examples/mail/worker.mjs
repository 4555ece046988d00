// Sends the mails of the queue "mail".  PGHOST and the like say where the database is, SMTP_HOST
// and SMTP_PORT where mails go.
import { GiveUp, Worker } from 'delay-wheel';
import nodemailer from 'nodemailer';

const smtp = nodemailer.createTransport({ host: process.env.SMTP_HOST ?? 'localhost', port: Number(process.env.SMTP_PORT ?? 25) });

async function handle({ id, payload }) {
	try {
		await smtp.sendMail({
			from: 'shop@example.com',
			to: payload.email,
			subject: payload.subject ?? `Your order ${payload.id}`,
			text: payload.text ?? 'It is not paid yet.',
			messageId: `<${id}@example.com>`, // a mail that is sent again can be recognized
		});
	} catch (error) {
		throw error.responseCode >= 500 ? new GiveUp(error.message) : error;
	}
}

await new Worker({ queues: { mail: { concurrency: 20, handle } } }).run();
