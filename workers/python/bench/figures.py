"""Figures of a worker, beside those of SQL alone: due to handler, messages a second, and an idle minute.

PGHOST and the like name a server with the extension, and a superuser. Usage: figures.py [idle seconds]
"""
import asyncio
import os
import statistics
import sys
import time

import psycopg

from delay_wheel import Worker

N = 20000
db = psycopg.connect(autocommit=True)
db.execute("CREATE EXTENSION IF NOT EXISTS delay_wheel")


def fresh(queue: str) -> None:
    db.execute("SELECT delay_wheel.create_queue(%s, external => true)", (queue,))
    db.execute("SELECT delay_cancel_all(due_from => '-infinity')")


def fill(queue: str) -> None:
    db.execute("SELECT count(delay_send(%s, jsonb_build_object('n', n))) FROM generate_series(1, %s) n", (queue, N))
    while db.execute("SELECT ready FROM delay_wheel.queues WHERE name = %s", (queue,)).fetchone()[0] < min(N, 1000):
        time.sleep(0.1)


def sql_alone(queue: str) -> float:
    done, start = 0, time.monotonic()
    while done < N:
        ids, tokens, n = db.execute("SELECT array_agg(id)::text, array_agg(token)::text, count(*) FROM delay_lease(%s, 100)", (queue,)).fetchone()
        if n:
            db.execute("SELECT cardinality(delay_done_all(%s::bigint[], %s::bigint[]))", (ids, tokens))
        done += n
    return N / (time.monotonic() - start)


async def with_worker(queue: str, concurrency: int, **options) -> float:
    worker, done, start, end = Worker(), 0, 0.0, 0.0

    @worker.queue(queue, concurrency=concurrency, **options)
    async def handle(message, context):
        nonlocal start
        start = start or time.monotonic()

    def on_done(message):
        nonlocal done, end
        done += 1
        if done == N:
            end = time.monotonic()
            asyncio.ensure_future(worker.stop())

    worker.on("done", on_done)
    await worker.run_async()
    return N / (end - start)


async def latency(queue: str, n: int = 200) -> list[float]:
    worker, late = Worker(), []

    @worker.queue(queue)
    async def handle(message, context):
        late.append((time.time() - message.due.timestamp()) * 1000)
        if len(late) == n:
            asyncio.ensure_future(worker.stop())

    # odd times, to meet no tick
    db.execute("SELECT delay_send(%s, '{}', delay => make_interval(secs => 1 + n * 0.0517)) FROM generate_series(1, %s) n", (queue, n))
    await worker.run_async()
    return sorted(late)


async def idle(queue: str, seconds: float) -> str:
    worker = Worker()

    @worker.queue(queue)
    async def handle(message, context):
        pass

    def switches() -> int:
        total = 0
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/status") as f:
                total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
        return total

    def statements() -> int:
        return db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'delay_wheel' AND query_start > %s", (since,)).fetchone()[0]

    running = asyncio.ensure_future(worker.run_async())
    await asyncio.sleep(2)
    since = db.execute("SELECT clock_timestamp()").fetchone()[0]
    before = switches()
    await asyncio.sleep(seconds)
    after = switches()  # one is that of this sleep
    said = f"{after - before} switches of its threads, one that of the measurement; {statements()} statements"
    await worker.stop()
    await running
    return said


QUEUE = "figures"
fresh(QUEUE)
late = asyncio.run(latency(QUEUE))
print(f"due to handler: p50 {statistics.median(late):.2f} ms, p99 {late[int(len(late) * 0.99)]:.2f} ms, worst {late[-1]:.2f} ms", flush=True)
# by turns, since the machine may have other work
kinds = {"concurrency 100": (100, {}), "concurrency 200": (200, {}), "concurrency 400": (400, {}), "10 places, batches of 100": (10, {"batch": 100})}
alone, rates = [], {kind: [] for kind in kinds}
for _ in range(3):
    fill(QUEUE)
    alone.append(sql_alone(QUEUE))
    for kind, (concurrency, options) in kinds.items():
        fill(QUEUE)
        rates[kind].append(asyncio.run(with_worker(QUEUE, concurrency, **options)))
print(f"SQL alone, by 100: {statistics.median(alone):.0f} messages a second ({min(alone):.0f} to {max(alone):.0f})")
for kind, figures in rates.items():
    print(f"{kind}: {statistics.median(figures):.0f} ({min(figures):.0f} to {max(figures):.0f}), {statistics.median(figures) / statistics.median(alone):.2f} of that")
if len(sys.argv) > 1:
    print(f"idle {sys.argv[1]} s: {asyncio.run(idle(QUEUE, float(sys.argv[1])))}")
