"""Sends the mails of the queue "mail".  PGHOST and the like say where the database is, SMTP_HOST
and SMTP_PORT where mails go."""
import os
import smtplib
from email.message import EmailMessage

from delay_wheel import GiveUp, Worker

worker = Worker()


@worker.queue("mail", concurrency=20)
def send(message, context):
    mail = EmailMessage()
    mail["From"] = "shop@example.com"
    mail["To"] = message.payload["email"]
    mail["Subject"] = message.payload.get("subject", f"Your order {message.payload.get('id')}")
    mail["Message-ID"] = f"<{message.id}@example.com>"  # a mail that is sent again can be recognized
    mail.set_content(message.payload.get("text", "It is not paid yet."))
    try:
        with smtplib.SMTP(os.environ.get("SMTP_HOST", "localhost"), int(os.environ.get("SMTP_PORT", "25")), timeout=20) as smtp:
            smtp.send_message(mail)
    except smtplib.SMTPRecipientsRefused as error:
        code, text = error.recipients[message.payload["email"]]
        raise GiveUp(text.decode()) if code >= 500 else error


worker.run()
