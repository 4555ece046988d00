"""A process with a worker, for the tests: its options have its queues, and the payload of a message has
what its handler does. Each handler writes a line at its start and one at its end, with one
write() each: what is in the file has happened, whatever becomes of this program.

  {"sleep": s}    work that stops when it is told to
  {"ignore": s}   work that does not
  {"never": 1}    work that never ends, and does not stop
  {"block": s}    work that keeps the event loop
  {"once": 1}     all this at the first attempt only
  {"raise", "give_up", "retry", "result", "odd", "exit", "insert", "sql", ...}
"""
from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sys
import threading
import time
from datetime import datetime
from typing import Any

from delay_wheel import Context, GiveUp, Message, Retry, Worker

file = -1
cycle: list[Any] = []
cycle.append(cycle)
ODD: dict[str, Any] = {"function": print, "nul": "a\0b", "long": "x" * 2_000_000, "cycle": cycle, "surrogate": "\ud800", "nan": float("nan"), "date": datetime.now(), "set": {1}}


def write(what: str, **values: Any) -> None:
    os.write(file, (json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **values}) + "\n").encode())


def end_of(payload: Any) -> Any:
    """What the work comes to, when its time has passed."""
    if "exit" in payload:
        os._exit(payload["exit"])
    if "sys_exit" in payload:
        sys.exit(payload["sys_exit"])
    if "give_up" in payload:
        raise GiveUp(payload["give_up"])
    if "retry" in payload:
        raise Retry(payload["retry"], "not yet")
    if "raise" in payload:
        raise ValueError(payload["raise"].replace("~", "\0"))
    return ODD[payload["odd"]] if "odd" in payload else payload.get("result")


async def ignore(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            pass


def payload_of(message: Message) -> dict[str, Any]:
    payload = message.payload if isinstance(message.payload, dict) else {}
    return {} if "once" in payload and message.attempt > 1 else payload


async def work(message: Message, context: Context) -> Any:
    payload = payload_of(message)
    if "insert" in payload:
        await context.connection.execute("INSERT INTO python_ledger VALUES (%s, %s)", (message.id, payload["insert"]))
    if "sql" in payload:
        await context.connection.execute(payload["sql"])
    if "sleep" in payload:
        await asyncio.sleep(payload["sleep"])
    if "ignore" in payload:
        await ignore(payload["ignore"])
    if "never" in payload:
        await ignore(10_000)
    if "block" in payload:
        time.sleep(payload["block"])
    return end_of(payload)


def work_in_thread(message: Message, context: Context) -> Any:
    payload = payload_of(message)
    if "insert" in payload:
        context.connection.execute("INSERT INTO python_ledger VALUES (%s, %s)", (message.id, payload["insert"]))
    if "sql" in payload:
        context.connection.execute(payload["sql"])
    if "commit" in payload:
        context.connection.commit()
    if "sleep" in payload and context.stopping.wait(payload["sleep"]):
        raise InterruptedError("told to stop")
    if "ignore" in payload:
        time.sleep(payload["ignore"])
    if "never" in payload:
        time.sleep(10_000)
    return end_of(payload)


def begin(message: Message) -> None:
    write("start", queue=message.queue, id=message.id, key=message.key, attempt=message.attempt, due=message.due.timestamp(), traceparent=message.traceparent,
          headers=message.headers, sum=hashlib.md5(json.dumps(message.payload, sort_keys=True).encode()).hexdigest(), thread=threading.current_thread().name)


def end(message: Message, how: str) -> None:
    write("end", queue=message.queue, id=message.id, attempt=message.attempt, how=how)


async def handle(message: Message, context: Context) -> Any:
    begin(message)
    how = "raised"
    try:
        result = await work(message, context)
        how = "returned"
        return result
    except asyncio.CancelledError:
        how = "told"
        raise
    finally:
        end(message, how)


def handle_in_thread(message: Message, context: Context) -> Any:
    begin(message)
    how = "raised"
    try:
        result = work_in_thread(message, context)
        how = "returned"
        return result
    except InterruptedError:
        how = "told"
        raise
    finally:
        end(message, how)


async def handle_batch(messages: list[Message], context: Context) -> Any:
    write("batch", n=len(messages))
    if "whole" in messages[0].payload:
        return await work(messages[0], context)
    return await asyncio.gather(*(handle(message, context) for message in messages), return_exceptions=True)


async def around(message: Any, call_next: Any) -> Any:
    write("around", id=message.id)
    if isinstance(message.payload, dict) and "around" in message.payload:
        raise RuntimeError(message.payload["around"])
    result = await call_next()
    write("around end", id=message.id)
    return result


def on(worker: Worker, event: str) -> None:
    if event in ("connected", "disconnected", "problem"):
        worker.on(event, lambda name, error=None: write(event, name=name, error=error and str(error)))
    else:
        worker.on(event, lambda message, error=None: write(event, queue=message.queue, id=message.id, attempt=message.attempt, error=error and str(error)))


def bad_listener(message: Message) -> None:
    raise RuntimeError("bad listener")


def main(options: dict[str, Any]) -> None:
    global file
    file = os.open(options["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    log = os.open(options["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for fd, to in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(to, fd)
    logging.basicConfig(level="INFO", format="%(created).6f %(levelname)s %(message)s", stream=open(2, "w", closefd=False))
    worker = Worker(options["connection"], wait_connection=options.get("wait_connection"), around=around if options.get("around") else None, name=options.get("name"))
    for name, own in options["queues"].items():
        own = dict(own)
        plain = own.pop("plain", False)
        handler: Any = handle_in_thread if plain else handle_batch if own.get("batch") else handle
        worker.queue(name, **own)(handler)
    for event in ("done", "failed", "released", "lost", "connected", "disconnected", "problem"):
        on(worker, event)
    if options.get("bad_listener"):
        worker.on("started", bad_listener)
        worker.on("done", bad_listener)
    worker.run(**({"within": options["within"]} if "within" in options else {}))
    write("ended")
