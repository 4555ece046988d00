"""The calls of test/t/945_drivers.pl, by psycopg 3."""
import datetime
import os

import psycopg
from psycopg.types.json import Jsonb

db = psycopg.connect(autocommit=True)
queue = os.environ["PGUSER"]
past = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
ids = []


def call(does):
    try:
        print("ok" if does() else "not ok", does.__name__)
    except Exception as e:
        print("not ok", does.__name__ + ":", repr(e))


def one(sql, values=(), **options):
    return db.execute(sql, values, **options).fetchone()[0]


def schedule(*args, **options):
    ids.append(one(*args, **options))
    return ids[-1] > 0


@call
def untyped():
    return schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', %s, %s)", ("it's", 7))


@call
def typed():
    return schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', %s::text, %s::int)", ("it's", 7))


@call
def mixed():
    return schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', %s::int, %s, 3)", (7, past))


@call
def null():
    return schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', %s, %s)", (None, 8))


@call
def prepared():
    return all(schedule("SELECT delay_schedule(%s, 'UPDATE t SET n = $1 WHERE id = $2', %s, %s)", ("0", n, n), prepare=True) for n in (5, 6))


@call
def text():
    return schedule("SELECT delay_schedule(%s, %s, %s)", ("100 milliseconds", "UPDATE t SET n = 7 WHERE id = $1", 7))


@call
def duration():
    return schedule("SELECT delay_schedule(%s, 'UPDATE t SET n = 8 WHERE id = $1', %s)", (datetime.timedelta(milliseconds=100), 8))


@call
def at():
    return schedule("SELECT delay_schedule_at(%s, 'UPDATE t SET at = $1 WHERE id = 9', %s)", (datetime.datetime.now(datetime.timezone.utc), past))


@call
def args():
    return (schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => %s, delay => '0')", ([100, 10],))
            and schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => %s)", (["a list", "11"],)))


@call
def named():
    return schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => %s)", (Jsonb({"note": "named", "id": 12}),))


@call
def rollback():
    with db.transaction(force_rollback=True):
        return one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', %s)", (13,)) > 0


@call
def commit():
    with db.transaction():
        db.execute("UPDATE t SET note = 'mine' WHERE id = 14")
        return schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', %s, %s)", (14, "mine"))


@call
def zone():
    later = one("SELECT delay_schedule('1 hour', 'SELECT 1')")
    kept = one("SELECT settings FROM delay_wheel.tasks WHERE id = %s", (later,))
    one("SELECT delay_cancel(%s)", (later,))
    with psycopg.connect(autocommit=True, options="-c timezone=Asia/Kolkata") as kolkata:
        ids.append(kolkata.execute("SELECT delay_schedule('0', 'UPDATE t SET at = $1, note = ($2::timestamptz = $1)::text WHERE id = 16', %s, %s)",
                                   (datetime.datetime(2001, 2, 3, 9, 35, 6), "2001-02-03 09:35:06")).fetchone()[0])
    return kept is None


@call
def cancel_key():
    one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => %s, key => %s)", ("1 second", "a key"))
    return one("SELECT delay_cancel(key => %s)", ("a key",)) == "cancelled"


@call
def reschedule():
    return (schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')")
            and one("SELECT delay_reschedule(%s, %s)", (ids[-1], "0")) == "moved")


@call
def send():
    return one("SELECT delay_send(%s, %s)", (queue, Jsonb({"to": "anna", "n": 1}))) > 0


@call
def lease():
    found = one("CALL delay_await(%s, '30 s')", (queue,))
    id, token, payload = db.execute("SELECT id, token, payload FROM delay_lease(%s, 10)", (queue,)).fetchone()
    return found and payload == {"to": "anna", "n": 1} and one("SELECT delay_done(%s, %s)", (id, token)) is True


@call
def views():
    names = db.execute("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'").fetchall()
    return len([db.execute(f"SELECT * FROM delay_wheel.{name}").fetchall() for name, in names]) > 10


@call
def effect():
    return (all(one("SELECT delay_wait(%s, '30 s')", (id,)) in ("done", "gone") for id in ids)
            and db.execute("SELECT n, note FROM t WHERE id = 1").fetchone() == (7, "it's"))


@call
def error():
    try:
        one("SELECT delay_schedule(%s, 'SELECT 1')", ("1 hrz",))
    except psycopg.Error as e:
        return e.sqlstate == "22007"
