"""Queues of a running worker: places, the call of the handler, and what follows from its end."""
from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from .leases import Keeper, Lease, margin
from .message import Context, GiveUp, Message, Retry
from .reports import DONE, FAIL, IS_DONE, IS_RELEASED, RESULT, Outcome, Report, Reports
from .session import Lost, Session

if TYPE_CHECKING:
    from .worker import Service

MOST = 1000  # messages of one delay_lease()
TURN = 12  # handlers that begin in one turn of the event loop
# one value: the driver would take far longer to make rows of it than json
LEASE = "SELECT json_agg(m)::text FROM delay_lease($1, $2::int, $3::interval, $4) m"
RECEIVE = "SELECT json_agg(m)::text FROM delay_receive(%s, %s) m"
PROBLEM_PAUSES = (1, 2, 4, 8, 10)  # s, before a queue with a problem is tried again

Handler = Callable[[Any, Context], Any]


@dataclass(frozen=True)
class Options:
    """Options of a queue, as the application has given them."""

    name: str
    handler: Handler
    concurrency: int
    batch: int | None
    transaction: bool
    lease: str | None
    timeout: str | None

    @property
    def is_plain(self) -> bool:
        call = getattr(self.handler, "__call__", None)
        return not (inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call))


class Work:
    """Messages of one call of the handler. They hold one place."""

    __slots__ = ("messages", "context", "task", "told", "running", "raised", "traced")

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.context = Context()
        self.task: asyncio.Task[Any] | None = None  # the handler's, if it is a coroutine
        self.told = ""  # why the handler is told to stop: lost, stop or timeout
        self.running = False
        self.raised = False
        self.traced: BaseException | None = None  # whose traceback is in the log

    def tell_to_stop(self, why: str) -> None:
        if self.told or not self.running:
            return
        self.told = why
        self.context._tell()
        if self.task is not None:
            self.task.cancel()


class Queue:
    def __init__(self, service: Service, options: Options) -> None:
        self.service = service
        self.options = options
        self.name = options.name
        self.works: set[Any] = set()  # of Work
        self.may_have = True  # there may be messages that nobody has asked for yet
        self.wake = asyncio.Event()  # set to make serve() look at the state again
        self.lease_length = 60.0
        self.timeout: float | None = None
        self._looks = 0
        self._asking = False
        self._problems = 0  # failures in a row
        self._problem_timer: asyncio.TimerHandle | None = None
        self._is_plain = options.is_plain
        self._is_direct = not self._is_plain and service.around is None
        self._batch = options.batch or 1

    @property
    def free(self) -> int:
        return self.options.concurrency - len(self.works)

    @property
    def is_idle(self) -> bool:
        """Whether no place is taken, or is about to be."""
        return not self.works and not (self._asking and self.can_ask)

    @property
    def can_ask(self) -> bool:
        """False while it waits for a connection."""
        return True

    @property
    def asks(self) -> bool:
        """It is asking for messages, or about to."""
        return self._asking or self.may_have and self.free > 0 and self._problem_timer is None

    @property
    def wants_wait(self) -> bool:
        """Nothing is there to be had now, and there is a place for what comes."""
        return self._problem_timer is None and not (self.may_have or self._asking) and self.free > 0

    def look(self) -> None:
        """There may be messages."""
        self._looks += 1
        self.may_have = True
        self.wake.set()

    async def serve(self) -> None:
        """Asks for messages whenever there may be some and a place is free."""
        while not self.service.stopping:
            if not self.may_have or self._problem_timer is not None or self.free < 1:
                self.wake.clear()
                await self.wake.wait()
                continue
            looks = self._looks
            self._asking = True
            try:
                if self._problems:
                    await self.service.read_own_lease(self)
                if not await self.ask() and looks == self._looks:
                    self.may_have = False
                if self._problems:
                    self.service.log.info("queue %s: messages can be received again", self.name)
                self._problems = 0
            except Lost:
                pass  # the next connection is waited for
            except psycopg.errors.QueryCanceled:
                await asyncio.sleep(0.05)  # by a timeout, or by hand
            except psycopg.Error as e:
                self.has_problem(e)
            finally:
                self._asking = False
            self._tell()

    def _tell(self) -> None:
        if self.wants_wait:
            self.service.needs_wait(self)
        if self.is_idle:
            self.service.settled.set()

    async def ask(self) -> bool:
        """Takes messages for the free places. False if there were fewer."""
        raise NotImplementedError

    def has_problem(self, error: Exception) -> None:
        """The queue is missing, or not for us ... The others go on, this one is tried again."""
        if self._problems == 0:
            self.service.has_problem(self, error)
        pause = PROBLEM_PAUSES[min(self._problems, len(PROBLEM_PAUSES) - 1)]
        self._problems += 1
        self._problem_timer = self.service.loop.call_later(pause, self._try_again)

    def _try_again(self) -> None:
        self._problem_timer = None
        self.look()

    def stop(self) -> None:
        if self._problem_timer is not None:
            self._problem_timer.cancel()
        self.wake.set()

    async def close(self) -> None:
        pass

    def leave(self, work: Work) -> None:
        self.works.discard(work)
        self.wake.set()
        self._tell()

    def message(self, row: dict[str, Any]) -> Message:
        return Message(row["id"], self.name, row["payload"], row["attempt"], datetime.fromisoformat(row["due"]), row["headers"], row["key"])

    async def handle(self, work: Work) -> list[Outcome]:
        """Calls the handler. Returns what is to be reported of each message; never raises."""
        messages = work.messages
        given: Any = messages[0] if self.options.batch is None else messages
        timer = None if self.timeout is None else self.service.loop.call_later(self.timeout, self.tell_to_stop, work, "timeout")
        work.running = True
        self.service.emit_each("started", messages)
        try:
            value = await (self.options.handler(given, work.context) if self._is_direct else self._call(given, work))
            if self.options.batch is None:
                return [self._done(messages[0], value)]
            if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) == len(messages):
                return [Outcome(FAIL, cause=v) if isinstance(v, Exception) else self._done(m, v) for m, v in zip(messages, value)]
            return [IS_DONE] * len(messages)
        except BaseException as e:  # SystemExit and CancelledError, too: the worker goes on
            work.raised = True
            if work.told == "timeout":
                e = e if isinstance(e, (Retry, GiveUp)) else TimeoutError("timeout")
            elif work.told:
                return [IS_RELEASED] * len(messages)
            return [Outcome(FAIL, cause=e) for _ in messages]
        finally:
            work.running = False
            if timer is not None:
                timer.cancel()

    def tell_to_stop(self, work: Work, why: str) -> None:
        work.tell_to_stop(why)

    async def _call(self, given: Any, work: Work) -> Any:
        if self.service.around is None:
            return await self._call_handler(given, work)
        return await self.service.around(given, lambda: self._call_handler(given, work))

    async def _call_handler(self, given: Any, work: Work) -> Any:
        if not self._is_plain:
            return await self.options.handler(given, work.context)
        work.task = None  # a thread cannot be cancelled, and holds its place until it ends
        value = await self.service.threads.run(self.options.handler, given, work.context)
        return await value if inspect.isawaitable(value) else value

    def _done(self, message: Message, value: Any) -> Outcome:
        if value is None:
            return IS_DONE
        try:
            return Outcome(RESULT, json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as e:
            self.service.log.warning("message %s of %s: its result is left out: %s", message.id, self.name, e)
            return IS_DONE

    def ended(self, message: Message, outcome: Outcome, work: Work) -> None:
        """What became of a message: an event, and a line of the log unless all is well."""
        if outcome.kind in (DONE, RESULT):
            self.service.emit("done", message)
        elif outcome.kind == FAIL:
            # delay_fail() does not tell whether this was the last attempt
            after = "" if outcome.retry_in is None else f" in {outcome.retry_in}"
            next = "given up" if outcome.gives_up else f"comes again{after} if attempts are left"
            cause = outcome.cause
            # of a batch that fails once; what has no traceback was not raised by the handler
            is_traced = cause is None or cause is work.traced or isinstance(cause, (Retry, GiveUp)) or cause.__traceback__ is None
            work.traced = cause
            self.service.log.warning("message %s of %s, attempt %s failed, %s: %s", message.id, self.name, message.attempt, next, outcome.error,
                                     exc_info=None if is_traced else cause)
            self.service.emit("failed", message, outcome.cause)
        else:
            self.service.log.info("message %s of %s: released, %s", message.id, self.name, work.told or "the worker ends")
            self.service.emit("released", message)

    def lost(self, message: Message, reason: str) -> None:
        self.service.log.warning("message %s of %s, attempt %s: lost, %s", message.id, self.name, message.attempt, reason)
        self.service.emit("lost", message, reason)


class LeasedWork(Work):
    __slots__ = ("queue", "leases", "left", "stop_at", "is_refused")

    def __init__(self, queue: LeaseQueue, messages: list[Message], leases: list[Lease], stop_at: float) -> None:
        super().__init__(messages)
        self.queue = queue
        self.leases = leases
        self.left = len(messages)  # whose reports are not answered
        self.stop_at = stop_at  # unless it has been extended meanwhile
        self.is_refused = False  # to extend one of its leases

    def answered(self, report: Report, taken: bool | None) -> None:
        """taken: whether the server has taken the report; None: it could not be sent."""
        if taken:
            self.queue.ended(report.message, report.outcome, self)
        else:
            self.queue.lose(report.message, report.lease, "it could not be reported before the lease had ended" if taken is None else "the server has refused its report")
        self.left -= 1
        if self.left == 0:
            self.queue.leave(self)


class LeaseQueue(Queue):
    """A queue whose messages are leased: work outside of the database."""

    def __init__(self, service: Service, options: Options, session: Session, reports: Reports, keeper: Keeper) -> None:
        super().__init__(service, options)
        self._session = session
        self._reports = reports
        self._keeper = keeper
        self._watch: asyncio.TimerHandle | None = None  # at the latest when the first handler must be told to stop

    @property
    def can_ask(self) -> bool:
        return self._session.is_connected

    async def ask(self) -> bool:
        asked = 0

        def values() -> list[str] | None:
            nonlocal asked
            # more places may be free than when it was called. Of many not all, so that the server and
            # this process do not wait for each other by turns
            asked = min(self.free * self._batch, max(self.options.concurrency * self._batch // 2, 100), MOST)
            return None if self.service.stopping else [self.name, str(asked), f"{self.lease_length} s", self.service.name]

        answer = await self._session.execute(LEASE, values)
        await asyncio.sleep(0)  # the next statement is sent before these messages are begun
        rows = json.loads(answer.row[0] or "[]")
        if not rows:
            return False
        leases = [Lease(row["id"], row["token"], self.lease_length, answer.sent) for row in rows]
        self._keeper.hold(leases)  # extended from now on, though another handler may keep the event loop
        stop_at = answer.sent + self.lease_length - margin(self.lease_length)
        if self._watch is None or self._watch.when() > stop_at:
            self._watch_until(stop_at)
        messages = [self.message(row) for row in rows]
        steps = range(0, len(rows), self._batch)
        works = [LeasedWork(self, messages[i:i + self._batch], leases[i:i + self._batch], stop_at) for i in steps]
        self.works.update(works)
        self._begin(works)
        return len(rows) == asked

    def _begin(self, works: list[LeasedWork]) -> None:
        """Some in each turn of the event loop, so that the server's answers do not wait for all of them."""
        for work in works[:TURN]:
            work.task = self.service.loop.create_task(self._work(work))
        if len(works) > TURN:
            self.service.loop.call_soon(self._begin, works[TURN:])

    async def _work(self, work: LeasedWork) -> None:
        try:
            outcomes = await self.handle(work) if self._may_begin(work) else [IS_RELEASED] * len(work.messages)
            for message, lease, outcome in zip(work.messages, work.leases, outcomes):
                self._keeper.drop(lease)
                if lease.is_refused:
                    work.left -= 1
                else:
                    self._reports.add(Report(message, lease, work, outcome))
            if work.left == 0:
                self.leave(work)
        except Exception as e:
            self.service.has_bug(e)

    def _may_begin(self, work: LeasedWork) -> bool:
        """The answer may have been on its way for long, or this process frozen."""
        if self.service.stopping or work.is_refused:
            return False
        now = time.monotonic()
        if now < work.stop_at:
            return True
        stop_at = min(lease.stop_at for lease in work.leases)
        if now < stop_at:
            self._watch_until(min(stop_at, self._watch.when() if self._watch else stop_at))
        return now < stop_at

    def leave(self, work: Work) -> None:
        super().leave(work)
        if not self.works and self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def lose(self, message: Message, lease: Lease, reason: str) -> None:
        if not lease.is_lost:
            lease.is_lost = True
            self.lost(message, reason)

    def refused(self, lease: Lease) -> None:
        """The server has refused to extend the lease."""
        for work in self.works:
            if lease in work.leases:
                lease.is_refused = work.is_refused = True
                self._stop(work, "another receiver has it, or it was cancelled")

    def _stop_overdue(self) -> None:
        """Tells handlers to stop whose leases could not be extended, a margin before they end."""
        self._watch = None
        now = time.monotonic()
        soonest: float | None = None
        work: LeasedWork
        for work in list(self.works):
            stop_at = min(lease.stop_at for lease in work.leases)
            if stop_at > now:
                soonest = stop_at if soonest is None else min(soonest, stop_at)
            elif work.told != "lost":
                self._stop(work, "its lease could not be extended in time")
        if soonest is not None:
            self._watch_until(soonest)

    def _watch_until(self, stop_at: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.service.loop.call_at(stop_at, self._stop_overdue)  # its clock is time.monotonic()

    def _stop(self, work: LeasedWork, reason: str) -> None:
        if work.running:  # otherwise its report says more
            for message, lease in zip(work.messages, work.leases):
                self.lose(message, lease, reason)
            work.tell_to_stop("lost")

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
