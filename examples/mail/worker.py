"""Sends the mails of the queue "mail".  PGHOST and the like say where the database is,
SMTP_HOST and SMTP_PORT where mails go.  SIGTERM: ends when the mail in hand is sent."""
import os
import signal
import smtplib
import sys
import time
from email.message import EmailMessage

import psycopg

ending = False
waiting = False


def on_sigterm(number, frame):
    global ending
    ending = True
    if waiting:  # nothing is in hand
        os._exit(0)


def send(id, attempt, payload):
    mail = EmailMessage()
    mail["From"] = "shop@example.com"
    mail["To"] = payload["email"]
    mail["Subject"] = payload.get("subject", f"Your order {payload.get('id')}")
    mail["Message-ID"] = f"<{id}.{attempt}@example.com>"  # the same mail, sent twice, is known by it
    mail.set_content(payload.get("text", "It is not paid yet."))
    with smtplib.SMTP(os.environ.get("SMTP_HOST", "localhost"), int(os.environ.get("SMTP_PORT", "25")), timeout=20) as smtp:
        smtp.send_message(mail)


def finish(db, sent):
    """Says that these are done, by one call: each call takes a connection of a pooler, if there is one."""
    if sent:
        db.execute("SELECT delay_done_all(%s::bigint[], %s::bigint[])", ([id for id, _ in sent], [token for _, token in sent]))
        sent.clear()


def work(db, sent, id, token, payload, attempt):
    if ending:  # others may have it at once, and no attempt is counted
        db.execute("SELECT delay_release(%s, %s)", (id, token))
        return
    try:
        send(id, attempt, payload)
    except (smtplib.SMTPException, OSError) as e:
        code = getattr(e, "smtp_code", 0)
        if isinstance(e, smtplib.SMTPRecipientsRefused):
            code = next(iter(e.recipients.values()))[0]
        db.execute("SELECT delay_fail(%s, %s, %s::text, give_up => %s)", (id, token, str(e)[:500], code >= 500))
        print(id, payload["email"], e, flush=True)
    else:
        sent.append((id, token))
        print(id, payload["email"], "sent", flush=True)


def serve():
    global waiting
    with psycopg.connect(autocommit=True) as db:  # a lease and a wait are statements of their own
        while not ending:
            waiting = True
            db.execute("CALL delay_await('mail', '30 s')")
            waiting = False
            sent, began = [], time.monotonic()
            for message in db.execute("SELECT id, token, payload, attempt FROM delay_lease('mail', 10)").fetchall():
                work(db, sent, *message)
                if time.monotonic() - began > 1:  # should this program die, only these are sent twice
                    finish(db, sent)
                    began = time.monotonic()
            finish(db, sent)


signal.signal(signal.SIGTERM, on_sigterm)
while not ending:
    try:
        serve()
    except psycopg.OperationalError as e:  # the server restarts, the network is cut
        print(e, file=sys.stderr)
        time.sleep(1)
    waiting = False
