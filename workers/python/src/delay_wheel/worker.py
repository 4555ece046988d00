"""The worker: sessions, signals, the end.

Two sessions. One waits for messages of all queues that have a free place, and runs nothing but CALL
delay_await_any(). The other one leases and reports. A queue with a transaction has a session for each of
its places besides, and leases.py has one while it extends leases.
"""
from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

import psycopg

from .leases import Keeper, Lease
from .message import Interval, Message, interval
from .outage import Outage
from .queues import Handler, LeaseQueue, Options, Queue
from .reports import Reports
from .session import Lost, Session
from .threads import Threads
from .transactions import TransactionQueue
from .wire import elements, text_array

EVENTS = ("started", "done", "failed", "released", "lost", "connected", "disconnected", "problem")
MOST_QUEUES = 32  # that delay_await_any() takes
LONGEST_WAIT = 300.0  # s: a wait that is longer begins again
LAST_WORDS = 1.0  # s that handlers have after they were told to stop
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)  # s, after a wait has failed
MOMENT = 0.003  # s that a wait is put off so that it need not be ended soon
DOUBT = 5.0  # s after which a wait that cannot be ended is cut off
DRAIN_PATIENCE = 5.0  # s that drain() waits for a connection, or for messages that are due and do not come
DUE = """
    SELECT count(*) FROM delay_wheel.tasks AS t JOIN delay_wheel.queues AS q ON q.name = t.queue AND NOT q.paused
    WHERE t.queue = ANY($1::text[]) AND t.due <= now() AND t.leased_until IS NULL"""

Around = Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]
H = TypeVar("H", bound=Handler)
Listener = Callable[..., object]


class Worker:
    """Receives messages, and calls a handler for each.

    connection: connection string; may be of a pooler in transaction mode. "" takes PGHOST and the like.
    wait_connection: connection string that reaches the server past such a pooler.
    log: the logger, instead of that of the name delay_wheel.
    around: called as await around(message, call_next) around each handler, for tracing and the like.
    name: what delay_wheel.tasks shows as the receiver of a leased message.
    """

    def __init__(self, connection: str = "", *, wait_connection: str | None = None, log: logging.Logger | None = None,
                 around: Around | None = None, name: str | None = None) -> None:
        for conninfo in (connection, wait_connection or ""):
            try:
                psycopg.conninfo.conninfo_to_dict(conninfo)
            except psycopg.ProgrammingError as e:
                raise ValueError(f"connection: {e}") from None
        self._connection = connection
        self._wait_connection = connection if wait_connection is None else wait_connection
        self._log = log or logging.getLogger("delay_wheel")
        self._around = around
        self._name = name or f"{socket.gethostname()} {os.getpid()}"
        self._queues: dict[str, Options] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._service: Service | None = None
        self._stopped = False

    def queue(self, name: str, *, concurrency: int | None = None, lease: Interval | None = None, batch: int | None = None,
              transaction: bool = False, timeout: Interval | None = None) -> Callable[[H], H]:
        """Decorates the handler of a queue: a coroutine, or a plain function, which runs in a thread.

        concurrency: places, the largest number of calls at the same time; 10, in a transaction 1.
        lease: length of a lease, which is extended as long as the handler runs; that of the queue.
        batch: the handler gets a list of up to this many messages.
        transaction: the handler writes to this database, by context.connection; exactly once.
        timeout: the handler is told to stop after this time, and the attempt has failed.
        """
        for what, number in (("concurrency", concurrency), ("batch", batch)):
            if number is not None and (not isinstance(number, int) or not 1 <= number <= 1000):
                raise ValueError(f"{what} must be a number from 1 to 1000")
        if not name or name in self._queues:
            raise ValueError(f"queue {name!r} has a handler already" if name else "a queue must have a name")
        if len(self._queues) >= MOST_QUEUES:
            raise ValueError(f"a worker can have at most {MOST_QUEUES} queues")
        if transaction and lease is not None:
            raise ValueError("a queue with a transaction has no leases")

        def decorate(handler: H) -> H:
            if not callable(handler):
                raise ValueError("the handler must be a function")
            self._queues[name] = Options(name, handler, concurrency or (1 if transaction else 10), batch, transaction,
                                         None if lease is None else interval(lease), None if timeout is None else interval(timeout))
            return handler

        return decorate

    def on(self, event: str, listener: Listener) -> None:
        """Calls the function at each event: started, done, failed, released or lost with the message
        (and the error); connected, disconnected or problem with the name of the session or queue."""
        if event not in EVENTS:
            raise ValueError(f"there is no event {event!r}")
        self._listeners.setdefault(event, []).append(listener)

    def run(self, within: float = 30) -> None:
        """Works until SIGTERM or SIGINT, or until stop(). After a signal handlers have within
        seconds, then they are told to stop. A second signal ends the process."""
        # not asyncio.run(), which would wait for a handler that does not end
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            with self._signals(loop, within):
                loop.run_until_complete(self.run_async())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    async def run_async(self) -> None:
        """As run(), in an event loop of the application, which handles the signals itself."""
        if self._stopped:
            return
        await self._serve(Service(self))

    async def stop(self, within: float = 30) -> None:
        """Takes no new message. Returns when all handlers have ended: they are told to stop after
        within seconds."""
        self._stopped = True
        if self._service is not None:
            await self._service.stop(within, "stop()")

    async def drain(self) -> int:
        """For tests of an application: handles all that is due, also what handlers send meanwhile.
        Returns the number of messages that are done or have failed. Raises the error if it has no
        connection for 5 s, or may not receive from a queue."""
        service = Service(self, drains=True)
        await self._serve(service)
        return service.handled

    async def _serve(self, service: Service) -> None:
        if self._service is not None:
            raise RuntimeError("the worker is running already")
        if not self._queues:
            raise ValueError("the worker has no queue")
        self._service = service
        try:
            await service.run()
        finally:
            self._service = None

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop, within: float) -> Iterator[None]:
        """Ends the worker at the first signal. For the second one the system's own action is back,
        which ends the process whatever it is doing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)

        def on_signal(number: int, frame: FrameType | None) -> None:
            for other in numbers:
                signal.signal(other, signal.SIG_DFL)
            loop.call_soon_threadsafe(stop, number)

        def stop(number: int) -> None:
            self._stopped = True
            if self._service is not None:
                self._service.stopping = True
                self._service.start(self._service.stop(within, signal.Signals(number).name))

        before = {number: signal.signal(number, on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is on_signal:
                    signal.signal(number, handler)


class Service:
    """One run of a worker, in one event loop."""

    def __init__(self, worker: Worker, drains: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = worker._log
        self.around = worker._around
        self.name = worker._name
        self.threads = Threads()
        self.stopping = False
        self.handled = 0
        self.settled = asyncio.Event()  # a queue may have become idle
        self._listeners = worker._listeners
        self._connection = worker._connection
        self._drains = drains
        self._tasks: set[asyncio.Task[Any]] = set()
        self._outage = Outage(self.log)
        self._wait = self.session("wait", worker._wait_connection, waits=True)
        self._work = self.session("work")
        self._reports = Reports(self._work, self.log.warning)
        self._keeper = Keeper(self._connection, self._refused, self.log.warning, self._outage)
        self._queues: list[Queue] = [
            TransactionQueue(self, options) if options.transaction else LeaseQueue(self, options, self._work, self._reports, self._keeper)
            for options in worker._queues.values()]
        self._changed = asyncio.Event()  # the set of queues that want to be waited for
        self._awaited: set[str] | None = None  # those of the wait that is going on
        self._waits = 0
        self._ending_wait = False
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._end: asyncio.Task[None] | None = None

    def session(self, name: str, connection: str | None = None, waits: bool = False) -> Session:
        return Session(name, self._connection if connection is None else connection, waits=waits,
                       connected=self._connected, disconnected=self._disconnected, outage=self._outage)

    # Beginning and end

    async def run(self) -> None:
        if self._drains:
            self.start(self._watch_outage())
        else:
            wait, work = self._wait.target, self._work.target
            self.log.info("begins with %s (%s)", ", ".join(queue.name for queue in self._queues), work if wait == work else f"{work}; waits on {wait}")
        try:
            self.start(self._begin())
            await self._ended
        except asyncio.CancelledError:
            await self.stop(30, "cancelled")
            raise
        finally:
            await self.stop(0, "an error")
            if not self._drains:
                self.log.info("ended")

    async def _begin(self) -> None:
        try:
            await self._read_options()
        except Lost:
            return  # stopped while it was connecting
        except ValueError as e:
            self._fail(e)
            return
        for queue in self._queues:
            self.start(queue.serve())
        self.start(self._drain() if self._drains else self._wait_for_messages())

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)  # the loop itself may forget it
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.has_bug(error)

    def has_bug(self, error: BaseException) -> None:
        self.log.error("error in the worker itself", exc_info=error)
        self._fail(error)

    def has_problem(self, queue: Queue, error: Exception) -> None:
        self.log.error("queue %s: %s", queue.name, error)
        self.emit("problem", queue.name, error)
        if self._drains:  # a test is told, and does not wait for it to be mended
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def stop(self, within: float, why: str) -> None:
        if self._end is None:
            if not self._drains:
                self.log.info("%s: no new message is taken, handlers still running: %s", why, sum(len(queue.works) for queue in self._queues))
            self._end = self.loop.create_task(self._stop(within))
        await asyncio.shield(self._end)

    async def _stop(self, within: float) -> None:
        until = self.loop.time() + within
        self.stopping = True
        for queue in self._queues:
            queue.stop()
        self._changed.set()
        closing = asyncio.ensure_future(self._close_wait())
        if not await self._all_idle(until - self.loop.time()):
            for queue in self._queues:
                for work in list(queue.works):
                    queue.tell_to_stop(work, "stop")
            if not await self._all_idle(LAST_WORDS):
                left = [message.id for queue in self._queues for work in queue.works for message in work.messages]
                self.log.warning("still at work, or not reported, when the worker ends: messages %s", ", ".join(map(str, left)))
        self._reports.give_up()
        for queue in self._queues:
            await queue.close()
        await closing  # over the work session
        await asyncio.gather(self._work.close(), self._keeper.close())
        if not self._ended.done():
            self._ended.set_result(None)

    async def _all_idle(self, seconds: float) -> bool:
        until = self.loop.time() + seconds
        while not all(queue.is_idle for queue in self._queues):
            self.settled.clear()
            left = until - self.loop.time()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self.settled.wait(), left)
            except TimeoutError:
                return False
        return True

    async def _drain(self) -> None:
        """Until nothing is due. The server can give a message a moment after its sender's commit:
        those that this role sees in the table are waited for."""
        names = [text_array(queue.name for queue in self._queues)]
        seen, since = (0, 0), self.loop.time()
        while not self.stopping:
            for queue in self._queues:
                queue.look()
            while self._is_busy and not self.stopping:
                self.settled.clear()
                await self.settled.wait()
            handled = self.handled
            with suppress(Lost):
                if (await self._wait.execute("CALL delay_await_any($1::text[], '20 ms')", names)).row[0]:
                    continue
                due = int((await self._work.execute(DUE, names)).row[0] or 0)
                if self._is_busy or handled != self.handled:
                    continue  # a new connection has made the queues look again
                if seen != (due, handled):
                    seen, since = (due, handled), self.loop.time()
                if due == 0:
                    break
                if self.loop.time() - since > DRAIN_PATIENCE:
                    self.log.warning("drain: due messages that cannot be received: %s", due)
                    break
        self.start(self.stop(30, "drain"))

    async def _watch_outage(self) -> None:
        """A test does not wait for a server that is not there, or does not let it in."""
        while not self.stopping:
            if (error := self._outage.error_after(DRAIN_PATIENCE)) is not None:
                self._fail(error)
                return
            await asyncio.sleep(0.1)

    @property
    def _is_busy(self) -> bool:
        return any(queue.may_have or not queue.is_idle for queue in self._queues)

    # Connections

    def _connected(self, name: str) -> None:
        self.emit("connected", name)
        if name == "work":
            self._reports.hurry()
            for queue in self._queues:
                queue.look()  # the answer of delay_lease() may have been lost

    def _disconnected(self, name: str, error: Exception) -> None:
        self.emit("disconnected", name, error)

    async def _read_options(self) -> None:
        """Lengths of leases and timeouts: PostgreSQL takes intervals apart."""
        for queue in self._queues:
            options = queue.options
            if options.lease is None:
                await self.read_own_lease(queue)
            else:
                queue.lease_length = await self._seconds(queue, options.lease)
            if options.timeout is not None:
                queue.timeout = await self._seconds(queue, options.timeout)

    async def _seconds(self, queue: Queue, text: str) -> float:
        seconds = None
        while seconds is None:
            try:
                answer = await self._work.execute("SELECT extract(epoch FROM $1::interval)::float8", [text])
                seconds = float(answer.row[0] or 0)
            except psycopg.DataError as e:
                raise ValueError(f"queue {queue.name}: {e}") from None
            except Lost:
                if self.stopping:
                    raise
            except psycopg.Error as e:
                self.log.warning("%s", e)
                await asyncio.sleep(PAUSES[-1])
        if seconds <= 0:
            raise ValueError(f"queue {queue.name}: {text!r} is not longer than 0")
        return seconds

    async def read_own_lease(self, queue: Queue) -> None:
        """What the queue has declared, if this role can see it."""
        if queue.options.lease is not None:
            return
        while True:
            try:
                answer = await self._work.execute("SELECT extract(epoch FROM lease::interval)::float8 FROM delay_wheel.queues WHERE name = $1", [queue.name])
                queue.lease_length = float(answer.row[0] or 60) if answer.row else 60.0
                return
            except Lost:
                if self.stopping:
                    raise
            except psycopg.Error:
                return  # there may be no extension yet

    # Waiting

    def needs_wait(self, queue: Queue) -> None:
        """The queue has a free place, and no message as far as it knows: somebody has to wait for it."""
        if self._awaited is None:
            self._changed.set()
        elif queue.name not in self._awaited and not self._ending_wait:
            self._ending_wait = True
            self.start(self._end_wait())

    def _begin_wait(self) -> list[str] | None:
        """Values of the statement that waits, when it is sent."""
        names = {queue.name for queue in self._queues if queue.wants_wait}
        if not names or self.stopping:
            return None
        self._waits += 1
        self._awaited = names
        return [text_array(names), f"{LONGEST_WAIT} s"]

    async def _wait_for_messages(self) -> None:
        failures = 0
        while not self.stopping:
            if any(queue.asks for queue in self._queues):  # it may want to be waited for in a moment
                self._changed.clear()
                timer = self.loop.call_later(MOMENT, self._changed.set)
                await self._changed.wait()
                timer.cancel()
            if not any(queue.wants_wait for queue in self._queues):
                self._changed.clear()
                await self._changed.wait()
                continue
            found: Container[str] = ()
            try:
                answer = await self._wait.execute("CALL delay_await_any($1::text[], $2::interval)", self._begin_wait, LONGEST_WAIT + 10)
                found = elements(answer.row[0])
                failures = 0
            except Lost:
                continue
            except psycopg.errors.QueryCanceled:
                continue  # by hand
            except psycopg.Error as e:
                # a queue is no longer what it was: asked for messages, it says so itself
                if failures == 1:
                    self.log.warning("cannot wait for messages: %s", e)
                if failures:
                    await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1])
                failures += 1
                found = self._awaited or ()
            finally:
                self._awaited = None
                self._ending_wait = False
            for queue in self._queues:
                if queue.name in found:
                    queue.look()

    async def _end_wait(self) -> None:
        """Makes the wait return: it begins again with other queues, or the worker ends."""
        waits, pause = self._waits, 0.002
        until = self.loop.time() + DOUBT
        while waits == self._waits and self._awaited is not None:
            try:
                # a pooler hides the pid; another role may not end the wait
                if self._wait.pid is not None and (await self._work.execute("SELECT delay_end_await($1::int)", [str(self._wait.pid)])).row[0] == "t":
                    return
                in_doubt = self._wait.pid is None or self.loop.time() > until
            except psycopg.Error:
                in_doubt = True
            except Lost:
                in_doubt = self._work.is_closed
            if in_doubt and waits == self._waits and self._awaited is not None:
                self._wait.cut()
                return
            await asyncio.sleep(pause)  # it has been sent, and not begun
            pause = min(pause * 2, 0.1)

    async def _close_wait(self) -> None:
        if self._awaited is not None and self._work.is_connected:
            await asyncio.wait({self.loop.create_task(self._end_wait())}, timeout=LAST_WORDS)
        await self._wait.close()

    # Leases

    def _refused(self, lease: Lease) -> None:
        for queue in self._queues:
            if isinstance(queue, LeaseQueue):
                queue.refused(lease)

    # Events: the listeners are the application's, and what they raise goes no further

    def emit(self, event: str, *values: object) -> None:
        if event in ("done", "failed"):
            self.handled += 1
        for listener in self._listeners.get(event, ()):
            try:
                value = listener(*values)
                if asyncio.iscoroutine(value):
                    self.start(self._listen(event, value))
            except Exception:
                self.log.exception("a listener of %s raises", event)

    async def _listen(self, event: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            await coroutine
        except Exception:
            self.log.exception("a listener of %s raises", event)

    def emit_each(self, event: str, messages: list[Message]) -> None:
        if event in self._listeners:
            for message in messages:
                self.emit(event, message)
