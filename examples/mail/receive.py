"""Writes each message of the queue "greetings" into a table, exactly once: it is received in
the transaction that writes.  PGHOST and the like say where the database is."""
import psycopg

with psycopg.connect(autocommit=True) as db:  # so that a wait is a statement of its own
    while True:
        db.execute("CALL delay_await('greetings', '30 s')")
        with db.transaction():
            for id, payload in db.execute("SELECT id, payload FROM delay_receive('greetings', 100)").fetchall():
                db.execute("INSERT INTO greeting VALUES (%s, %s)", (id, payload["text"]))
