"""The calls of test/t/945_drivers.pl, by psycopg2."""
import datetime
import os

import psycopg2
from psycopg2.extras import Json

db = psycopg2.connect("")
db.autocommit = True
queue = os.environ["PGUSER"]
past = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
ids = []


def call(does):
    try:
        print("ok" if does() else "not ok", does.__name__)
    except Exception as e:
        print("not ok", does.__name__ + ":", repr(e))


def rows(sql, values=()):
    with db.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall()


def one(sql, values=()):
    return rows(sql, values)[0][0]


def schedule(*args):
    ids.append(one(*args))
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
    with db.cursor() as cursor:
        cursor.execute("PREPARE later AS SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)")
    return all(schedule("EXECUTE later(%s, %s, %s)", ("0", n, n)) for n in (5, 6))


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
    return schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => %s)", (Json({"note": "named", "id": 12}),))


@call
def rollback():
    db.autocommit = False
    found = one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', %s)", (13,)) > 0
    db.rollback()
    return found


@call
def commit():
    with db, db.cursor() as cursor:
        cursor.execute("UPDATE t SET note = 'mine' WHERE id = 14")
        found = schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', %s, %s)", (14, "mine"))
    db.autocommit = True
    return found


@call
def zone():
    later = one("SELECT delay_schedule('1 hour', 'SELECT 1')")
    kept = one("SELECT settings FROM delay_wheel.tasks WHERE id = %s", (later,))
    one("SELECT delay_cancel(%s)", (later,))
    with psycopg2.connect("", options="-c timezone=Asia/Kolkata") as kolkata, kolkata.cursor() as cursor:
        cursor.execute("SELECT delay_schedule('0', 'UPDATE t SET at = $1, note = ($2::timestamptz = $1)::text WHERE id = 16', %s, %s)",
                       (datetime.datetime(2001, 2, 3, 9, 35, 6), "2001-02-03 09:35:06"))
        ids.append(cursor.fetchone()[0])
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
    return one("SELECT delay_send(%s, %s)", (queue, Json({"to": "anna", "n": 1}))) > 0


@call
def lease():
    found = one("CALL delay_await(%s, '30 s')", (queue,))
    id, token, payload = rows("SELECT id, token, payload FROM delay_lease(%s, 10)", (queue,))[0]
    return found and payload == {"to": "anna", "n": 1} and one("SELECT delay_done(%s, %s)", (id, token)) is True


@call
def views():
    names = rows("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'")
    return len([rows(f"SELECT * FROM delay_wheel.{name}") for name, in names]) > 10


@call
def effect():
    return (all(one("SELECT delay_wait(%s, '30 s')", (id,)) in ("done", "gone") for id in ids)
            and rows("SELECT n, note FROM t WHERE id = 1")[0] == (7, "it's"))


@call
def error():
    try:
        one("SELECT delay_schedule(%s, 'SELECT 1')", ("1 hrz",))
    except psycopg2.Error as e:
        return e.pgcode == "22007"
