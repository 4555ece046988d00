"""A queue whose handlers write to this database: a message is received in the handler's transaction,
and gone when that is committed."""
from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
from psycopg.pq import TransactionStatus

from .message import Message
from .queues import RECEIVE, Options, Queue, Work
from .reports import FAIL, RELEASE, Outcome
from .session import ANSWER_TIMEOUT, Lost, Session, cut, is_of_session
from .wire import AsyncConnection

if TYPE_CHECKING:
    from .worker import Service

CANCEL_TIMEOUT = 1.0  # s that a cancelled statement has to end
WATCH_AFTER = 0.05  # s: handlers that end before are not watched


class Undo(Exception):
    """Raised to roll back a transaction, or to its savepoint."""


class BorrowedConnection(psycopg.Connection[Any]):
    """The worker's connection for a handler in a thread: the worker ends the transaction."""

    def _refuse(self) -> NoReturn:
        raise psycopg.ProgrammingError("the worker ends this transaction when the handler has ended")

    def commit(self) -> None:
        self._refuse()

    def rollback(self) -> None:
        self._refuse()

    def close(self) -> None:
        self._refuse()


class Place:
    """A place of the queue, with a session of its own."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.borrowed: BorrowedConnection | None = None

    def borrow(self, connection: AsyncConnection) -> BorrowedConnection:
        if self.borrowed is None or self.borrowed.pgconn is not connection.pgconn:
            self.borrowed = BorrowedConnection(connection.pgconn)
            self.borrowed.prepare_threshold = None
        return self.borrowed


class Watch:
    """Notices the end of a connection on which no statement is running."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: AsyncConnection, lock: Any, lost: Callable[[], None]) -> None:
        self._loop = loop
        self._connection = connection
        self._lock = lock  # held by whoever has a statement running, maybe in another thread
        self._lost = lost
        self._fd = -1  # of its own, since the driver watches the connection's
        self._timer = loop.call_later(WATCH_AFTER, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _begin(self) -> None:
        with suppress(OSError, psycopg.Error):
            self._fd = os.dup(self._connection.pgconn.socket)
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        ended = self._look()
        self.end()
        if ended:
            self._lost()
        else:
            self._timer = self._loop.call_later(WATCH_AFTER, self._begin)

    def _look(self) -> bool:
        in_thread = not isinstance(self._lock, asyncio.Lock)
        if not self._lock.acquire(blocking=False) if in_thread else self._lock.locked():
            return False  # a statement is running, and will notice by itself
        try:
            self._connection.pgconn.consume_input()
        except psycopg.Error:
            return True
        finally:
            if in_thread:
                self._lock.release()
        return self._connection.closed


class TransactionQueue(Queue):
    def __init__(self, service: Service, options: Options) -> None:
        super().__init__(service, options)
        self._places: list[Place] = []
        self._free_places: list[Place] = []
        self._working: dict[Work, AsyncConnection] = {}

    async def ask(self) -> bool:
        """One place at a time asks, so that one message does not wake them all."""
        answer: asyncio.Future[bool] = self.service.loop.create_future()
        self.service.start(self._fill_place(answer))
        return await answer

    def stop(self) -> None:
        super().stop()
        for place in self._places:
            if not place.session.is_connected:  # and waits for it
                self.service.start(place.session.close())

    async def close(self) -> None:
        await asyncio.gather(*(place.session.close() for place in self._places))

    def _open(self) -> Place:
        place = Place(self.service.session(f"{self.name} {len(self._places) + 1}"))
        self._places.append(place)
        return place

    async def _fill_place(self, answer: asyncio.Future[bool]) -> None:
        place = self._free_places.pop() if self._free_places else self._open()
        works: list[Work] = []
        try:
            outcomes = await self._transaction(place, works, answer)
        except (psycopg.Error, Lost) as e:
            if not works:
                answer.set_exception(e)
            for work in works:
                self._lose(work, str(e))
        else:
            for work in works:
                for message, outcome in zip(work.messages, outcomes):
                    self.ended(message, outcome, work)
        self._free_places.append(place)
        if not answer.done():
            answer.set_result(False)
        for work in works:
            self.leave(work)

    async def _transaction(self, place: Place, works: list[Work], answer: asyncio.Future[bool]) -> list[Outcome]:
        """Receives messages, and calls the handler, in one transaction. The work is put into works."""
        connection = await place.session.connection()
        outcomes: list[Outcome] = []
        limit = self._limit(connection)
        try:
            async with connection.transaction():
                messages = await self._receive(connection)
                if not messages or self.service.stopping:
                    raise Undo
                limit.cancel()
                work = Work(messages)
                works.append(work)
                self.works.add(work)
                answer.set_result(len(messages) == self._batch)
                outcomes = await self._work(work, connection, place)
                limit = self._limit(connection)
                if any(outcome.kind == RELEASE for outcome in outcomes):
                    raise Undo
                for message, outcome in zip(messages, outcomes):
                    if outcome.kind == FAIL:
                        await self._fail(connection, message, outcome)
        except (psycopg.Error, Undo) as e:
            ended = e if isinstance(e, psycopg.Error) else psycopg.OperationalError("the connection has ended")
            is_lost = isinstance(e, psycopg.Error) and is_of_session(e)
            if is_lost or connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
                await place.session.lost(ended)
                raise Lost(str(ended)) from e
            if not isinstance(e, Undo):
                raise
        finally:
            limit.cancel()
        return outcomes

    def _limit(self, connection: AsyncConnection) -> asyncio.TimerHandle:
        """For the worker's own statements: a server that does not answer has lost the session."""
        return self.service.loop.call_later(ANSWER_TIMEOUT, cut, connection)

    async def _receive(self, connection: AsyncConnection) -> list[Message]:
        cursor = await connection.execute(RECEIVE, (self.name, self._batch))
        row = await cursor.fetchone()
        return [self.message(message) for message in json.loads(row and row[0] or "[]")]

    async def _work(self, work: Work, connection: AsyncConnection, place: Place) -> list[Outcome]:
        """Calls the handler; what it has written is undone if it fails."""
        given: BorrowedConnection | AsyncConnection = place.borrow(connection) if self._is_plain else connection
        work.context.connection = given
        work.task = asyncio.current_task()
        self._working[work] = connection
        watch = Watch(self.service.loop, connection, given.lock, lambda: self.tell_to_stop(work, "lost"))
        outcomes: list[Outcome] = []
        try:
            async with connection.transaction():
                outcomes = await self.handle(work)
                watch.end()
                if work.raised:
                    raise Undo
                # so that what is deferred fails here, as an error of the handler
                await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except Undo:
            if connection.closed or connection.info.transaction_status != TransactionStatus.INTRANS:
                raise
        except psycopg.Error as e:
            if connection.closed or is_of_session(e):
                raise
            outcomes = [Outcome(FAIL, cause=e) for _ in work.messages]
        finally:
            watch.end()
            del self._working[work]
            work.context.connection = None
        return outcomes

    async def _fail(self, connection: AsyncConnection, message: Message, outcome: Outcome) -> None:
        retry_in = outcome.retry_in
        if retry_in is not None:
            try:
                async with connection.transaction():
                    await connection.execute("SELECT delay_fail(%s, NULL, %s, %s::interval)", (message.id, outcome.error, retry_in))
                return
            except psycopg.DataError as e:
                self.service.log.warning("message %s of %s: its delay is left out: %s", message.id, self.name, e)
                outcome.retry_in = None
        await connection.execute("SELECT delay_fail(%s, NULL, %s, NULL, %s)", (message.id, outcome.error, outcome.gives_up))

    def tell_to_stop(self, work: Work, why: str) -> None:
        if work.told or not work.running:
            return
        connection = self._working[work]
        if why != "lost" and connection.info.transaction_status == TransactionStatus.ACTIVE:
            # a statement that is cancelled leaves a transaction that can be rolled back
            work.told = why
            work.context._tell()
            self.service.start(self._cancel(work, connection))
        else:
            work.tell_to_stop(why)

    async def _cancel(self, work: Work, connection: AsyncConnection) -> None:
        """Cancels the handler's statement; the handler, if that does not end it."""
        with suppress(TimeoutError, psycopg.Error):
            await asyncio.wait_for(self.service.threads.run(connection.cancel), CANCEL_TIMEOUT)
        until = self.service.loop.time() + CANCEL_TIMEOUT
        while work.running and self.service.loop.time() < until and connection.info.transaction_status == TransactionStatus.ACTIVE:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        if work.running and work.task is not None:
            work.task.cancel()

    def _lose(self, work: Work, reason: str) -> None:
        for message in work.messages:
            self.lost(message, reason)
