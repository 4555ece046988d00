"""The calls of test/t/945_drivers.pl, by SQLAlchemy on psycopg2: with func where it is at
home, and with text() where SQL is."""
import datetime
import os

from sqlalchemy import bindparam, cast, create_engine, func, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError

engine = create_engine("postgresql+psycopg2://", isolation_level="AUTOCOMMIT", future=True)
db = engine.connect()
queue = os.environ["PGUSER"]
past = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
ids = []


def call(does):
    try:
        print("ok" if does() else "not ok", does.__name__)
    except Exception as e:
        print("not ok", does.__name__ + ":", repr(e))


def one(statement, db=db, **values):
    if isinstance(statement, str):
        return db.execute(sql(statement), values).scalar()
    return db.execute(select(statement)).scalar()


def schedule(statement, db=db, **values):
    ids.append(one(statement, db, **values))
    return ids[-1] > 0


@call
def untyped():
    return schedule(func.delay_schedule("0", "UPDATE t SET note = $1, n = $2 WHERE id = 1", "it's", 7))


@call
def typed():
    return schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', CAST(:note AS text), CAST(:n AS int))", note="it's", n=7)


@call
def mixed():
    return schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', CAST(:n AS int), :at, 3)", n=7, at=past)


@call
def null():
    return schedule(func.delay_schedule("0", "UPDATE t SET note = $1, n = $2 WHERE id = 4", None, 8))


@call
def prepared():
    db.execute(sql("PREPARE later AS SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)"))
    return all(schedule("EXECUTE later(:delay, :n, :id)", delay="0", n=n, id=n) for n in (5, 6))


@call
def text():
    return schedule("SELECT delay_schedule(:delay, :what, :id)", delay="100 milliseconds", what="UPDATE t SET n = 7 WHERE id = $1", id=7)


@call
def duration():
    return schedule(func.delay_schedule(datetime.timedelta(milliseconds=100), "UPDATE t SET n = 8 WHERE id = $1", 8))


@call
def at():
    return schedule(func.delay_schedule_at(datetime.datetime.now(datetime.timezone.utc), "UPDATE t SET at = $1 WHERE id = 9", past))


@call
def args():
    return (schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => :args, delay => '0')", args=[100, 10])
            and schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => :args)", args=["a list", "11"]))


@call
def named():
    statement = sql("SELECT delay_schedule_task(:what, named => :values)").bindparams(bindparam("values", type_=JSONB))
    ids.append(db.execute(statement, {"what": "UPDATE t SET note = :note WHERE id = :id", "values": {"note": "named", "id": 12}}).scalar())
    return ids[-1] > 0


@call
def rollback():
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as other:
        found = one(func.delay_schedule("0", "UPDATE t SET n = 13 WHERE id = $1", 13), other) > 0
        other.rollback()
        return found


@call
def commit():
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as other:
        other.execute(sql("UPDATE t SET note = 'mine' WHERE id = 14"))
        found = schedule(func.delay_schedule("0", "UPDATE t SET n = 14 WHERE id = $1 AND note = $2", 14, "mine"), other)
        other.commit()
        return found


@call
def cancel_key():
    one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => :delay, key => :key)", delay="1 second", key="a key")
    return one(func.delay_cancel(None, False, False, "a key")) == "cancelled"


@call
def reschedule():
    return (schedule(func.delay_schedule("1 hour", "UPDATE t SET n = 15 WHERE id = 15"))
            and one(func.delay_reschedule(ids[-1], "0")) == "moved")


@call
def send():
    return one(func.delay_send(queue, cast({"to": "anna", "n": 1}, JSONB))) > 0


@call
def lease():
    found = one("CALL delay_await(:queue, '30 s')", queue=queue)
    id, token, payload = db.execute(sql("SELECT id, token, payload FROM delay_lease(:queue, 10)"), {"queue": queue}).one()
    return found and payload == {"to": "anna", "n": 1} and one(func.delay_done(id, token)) is True


@call
def views():
    names = db.execute(sql("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'")).all()
    return len([db.execute(sql(f"SELECT * FROM delay_wheel.{name}")).all() for name, in names]) > 10


@call
def effect():
    return (all(one(func.delay_wait(id, "30 s")) in ("done", "gone") for id in ids)
            and db.execute(sql("SELECT n, note FROM t WHERE id = 1")).one() == (7, "it's"))


@call
def error():
    try:
        one(func.delay_schedule("1 hrz", "SELECT 1"))
    except DBAPIError as e:
        return e.orig.pgcode == "22007"
