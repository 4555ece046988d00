"""The calls of test/t/945_drivers.pl, by asyncpg.  It asks the server for the types of all
parameters, and takes no other: an argument without a cast is a text."""
import asyncio
import datetime
import json
import os

import asyncpg

queue = os.environ["PGUSER"]
past = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)
ids = []
loop = asyncio.new_event_loop()
db = loop.run_until_complete(asyncpg.connect())


def call(does):
    try:
        print("ok" if loop.run_until_complete(does()) else "not ok", does.__name__)
    except Exception as e:
        print("not ok", does.__name__ + ":", repr(e))


async def schedule(sql, *values):
    ids.append(await db.fetchval(sql, *values))
    return ids[-1] > 0


@call
async def untyped():
    return await schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)", "it's", "7")


@call
async def typed():
    return await schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1, $2::int)", "it's", 7)


@call
async def mixed():
    return await schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2::timestamptz, 3)", 7, past)


@call
async def null():
    return await schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2::int)", None, 8)


@call
async def prepared():
    later = await db.prepare("SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2::int, $3::int)")
    for n in 5, 6:
        ids.append(await later.fetchval("0", n, n))
    return ids[-2] < ids[-1]


@call
async def text():
    return await schedule("SELECT delay_schedule($1, $2, $3::int)", "100 milliseconds", "UPDATE t SET n = 7 WHERE id = $1", 7)


@call
async def duration():
    return await schedule("SELECT delay_schedule($1::interval, 'UPDATE t SET n = 8 WHERE id = $1', $2::int)", datetime.timedelta(milliseconds=100), 8)


@call
async def at():
    return await schedule("SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2::timestamptz)", datetime.datetime.now(datetime.timezone.utc), past)


@call
async def args():
    return (await schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1::int[], delay => '0')", [100, 10])
            and await schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)", ["a list", "11"]))


@call
async def named():
    return await schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)", json.dumps({"note": "named", "id": 12}))


@call
async def rollback():
    transaction = db.transaction()
    await transaction.start()
    found = await db.fetchval("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1::int)", 13)
    await transaction.rollback()
    return found > 0


@call
async def commit():
    async with db.transaction():
        await db.execute("UPDATE t SET note = 'mine' WHERE id = 14")
        return await schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1::int, $2)", 14, "mine")


@call
async def cancel_key():
    await db.fetchval("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)", datetime.timedelta(seconds=1), "a key")
    return await db.fetchval("SELECT delay_cancel(key => $1)", "a key") == "cancelled"


@call
async def reschedule():
    return (await schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')")
            and await db.fetchval("SELECT delay_reschedule($1, $2)", ids[-1], "0") == "moved")


@call
async def send():
    return await db.fetchval("SELECT delay_send($1, $2)", queue, json.dumps({"to": "anna", "n": 1})) > 0


@call
async def lease():
    found = await db.fetchval("CALL delay_await($1, '30 s')", queue)
    id, token, payload = await db.fetchrow("SELECT id, token, payload FROM delay_lease($1, 10)", queue)
    return found and json.loads(payload) == {"to": "anna", "n": 1} and await db.fetchval("SELECT delay_done($1, $2)", id, token) is True


@call
async def views():
    names = await db.fetch("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'")
    return len([await db.fetch(f"SELECT * FROM delay_wheel.{name}") for name, in names]) > 10


@call
async def effect():
    ends = [await db.fetchval("SELECT delay_wait($1, '30 s')", id) for id in ids]
    return set(ends) <= {"done", "gone"} and tuple(await db.fetchrow("SELECT n, note FROM t WHERE id = 1")) == (7, "it's")


@call
async def error():
    try:
        await db.fetchval("SELECT delay_schedule($1, 'SELECT 1')", "1 hrz")
    except asyncpg.PostgresError as e:
        return e.sqlstate == "22007"
