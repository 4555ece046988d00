"""A session of the server that comes back by itself.

One connection at a time, in autocommit mode. When it is lost, for whatever reason, the next one is
tried after a growing pause with jitter, which stays below half a second: work goes on within a
second of the server's return. A session keeps no setting, so a pooler may stand before it.
"""
from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from .outage import Outage
from .wire import AsyncConnection, Row, Wire

PAUSES = (0, 0.05, 0.1, 0.2, 0.4, 0.5)  # s, times 0.5 to 1
CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 5.0
CLOSE_TIMEOUT = 1.0  # s that a statement has to end before its session is cut off


class Lost(Exception):
    """The connection was lost before the answer, or the session is closed."""


class Answer(NamedTuple):
    row: Row  # the first one
    sent: float  # by time.monotonic(), a moment before the statement was sent


def cut(connection: AsyncConnection) -> None:
    """Ends a connection so that its statement fails at once, though the server may never answer."""
    try:
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as end:
            end.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        pass  # it has ended already


def is_of_session(error: psycopg.Error) -> bool:
    """Whether this session, or this server, is of no more use after the error."""
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P")) or state in ("25006", "25P03")


def attempts(conninfo: str) -> list[dict[str, Any]]:
    """Parameters to connect with: those of each host, since a dead one must not use up the time of
    all. libpq tries the next host only when the system gives up the first one, which takes minutes."""
    common = {
        "keepalives_idle": "10", "keepalives_interval": "1", "keepalives_count": "10", "client_encoding": "utf-8",
        "fallback_application_name": "delay_wheel", **conninfo_to_dict(conninfo),
    }
    hosts = str(common.get("host") or os.environ.get("PGHOST") or "").split(",")
    ports = str(common.get("port") or os.environ.get("PGPORT") or "").split(",")
    if len(hosts) == 1 or "hostaddr" in common:
        return [common]
    return [{**common, "host": host, "port": ports[i % len(ports)] or None} for i, host in enumerate(hosts)]


def target(parameters: dict[str, Any]) -> str:
    """Where they lead, for the log: never the password."""
    if "service" in parameters:
        return f"service {parameters['service']}"  # libpq reads its file
    known = {option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val}
    known |= {name: value for name, value in parameters.items() if value}
    host, user = known.get("host") or known.get("hostaddr") or "local socket", known.get("user")
    return f"server {host}, port {known.get('port')}, database {known.get('dbname') or user}, user {user}"


def one_line(error: Exception) -> str:
    """Of libpq's errors, which have a line for each address."""
    return "; ".join(filter(None, map(str.strip, str(error).splitlines()))) or type(error).__name__


class Session:
    def __init__(self, name: str, conninfo: str, *, waits: bool = False,
                 connected: Callable[[str], None] = lambda name: None,
                 disconnected: Callable[[str, Exception], None] = lambda name, error: None,
                 outage: Outage) -> None:
        self.name = name
        self.target = target(conninfo_to_dict(conninfo))
        self.pid: int | None = None  # by which another session can end its wait; a pooler hides it
        self._attempts = attempts(conninfo)
        self._waits = waits
        self._connected = connected
        self._disconnected = disconnected
        self._outage = outage
        self._connection: AsyncConnection | None = None
        self._wire: Wire | None = None  # if it runs statements
        self._trying: AsyncConnection | None = None  # it is not known yet whether it can be used
        self._lock = asyncio.Lock()
        self._closing = asyncio.Event()
        self._failures = 0
        self._since = 0.0

    async def execute(self, sql: str, values: Sequence[str | None] | Callable[[], Sequence[str | None] | None] = (),
                      timeout: float = ANSWER_TIMEOUT) -> Answer:
        """Runs one statement, as soon as it is its turn and there is a connection. Raises Lost if the
        connection ends before the answer; the server may have run the statement then.

        values: or a function that returns them when the statement is sent; None: it is not wanted."""
        async with self._lock:
            connection = await self._connect()
            given = values() if callable(values) else values
            if self._closing.is_set() or given is None:  # it may have taken long to connect
                raise Lost("the worker ends")
            if self._wire is None:
                self._wire = Wire(connection)
            timer = asyncio.get_running_loop().call_later(timeout, cut, connection)
            try:
                sent = time.monotonic()
                return Answer(await self._wire.execute(sql, given), sent)
            except psycopg.Error as e:
                if self._wire.ended is None and not is_of_session(e):
                    raise
                await self._drop(e)
                raise Lost(str(e)) from e
            except asyncio.CancelledError:
                await self._drop(psycopg.OperationalError("its answer is not waited for"))
                raise
            finally:
                timer.cancel()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    async def connection(self) -> AsyncConnection:
        """The connection, for who has the session alone."""
        async with self._lock:
            return await self._connect()

    async def lost(self, error: Exception) -> None:
        """Tells the session that its connection is of no more use."""
        async with self._lock:
            await self._drop(error)

    def cut(self) -> None:
        for connection in (self._connection, self._trying):
            if connection is not None:
                cut(connection)

    async def close(self) -> None:
        """Ends the session for good. A statement that is under way may end, unless that takes long."""
        self._closing.set()
        self._outage.ends(self)
        cutting = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self.cut)
        async with self._lock:
            cutting.cancel()
            await self._close_connection()

    async def _close_connection(self) -> None:
        if self._wire is not None:
            self._wire.close()
        if self._connection is not None:
            await self._connection.close()
        self._connection = self._wire = self.pid = None

    async def _drop(self, error: Exception, was_idle: bool = False) -> None:
        if self._connection is None:
            return
        await self._close_connection()
        if self._closing.is_set():
            return
        if time.monotonic() - self._since > 1:  # otherwise the next pause is longer
            self._failures = 0
        self._outage.begins(self)
        if not was_idle:  # an outage that ended long ago is no news
            self._outage.tell(self, self.name, error, f"lost ({self.target}): {one_line(error)}")
        self._disconnected(self.name, error)

    @property
    def _has_ended(self) -> bool:
        if self._connection is None or self._connection.closed:
            return True
        if self._wire is not None:
            return self._wire.ended is not None
        with suppress(psycopg.Error):
            for _ in range(2):  # the server's last words, and the end
                self._connection.pgconn.consume_input()
            return False
        return True

    async def _connect(self) -> AsyncConnection:
        while self._connection is None or self._has_ended:
            await self._drop(self._wire and self._wire.ended or psycopg.OperationalError("the connection has ended"), was_idle=True)
            if self._closing.is_set():
                raise Lost("the session is closed")
            self._outage.begins(self)
            await self._pause()
            parameters = self._attempts[self._failures % len(self._attempts)]
            try:
                self._connection = await self._try(parameters)
            except (psycopg.Error, OSError, TimeoutError) as e:
                if not self._closing.is_set():
                    self._outage.tell(self, self.name, e, f"cannot connect ({target(parameters)}): {one_line(e)}")
                continue
            self._since = time.monotonic()
            self._outage.ends(self, target(parameters))
            self._connected(self.name)
        return self._connection

    async def _pause(self) -> None:
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)] * random.uniform(0.5, 1)
        self._failures += 1
        if pause:
            try:
                await asyncio.wait_for(self._closing.wait(), pause)
            except TimeoutError:
                return
            raise Lost("the session is closed")

    async def _try(self, parameters: dict[str, Any]) -> AsyncConnection:
        # no statements are prepared, since a pooler may stand between
        connecting = asyncio.ensure_future(psycopg.AsyncConnection.connect(**parameters, autocommit=True, prepare_threshold=None))
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait((connecting, closing), timeout=CONNECT_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not connecting.done() and self._closing.is_set():
            await asyncio.wait((connecting,), timeout=CLOSE_TIMEOUT)  # a server logs an error if nobody is there any more
        if not connecting.done():
            connecting.cancel()
            raise psycopg.OperationalError("the server does not answer")
        connection: AsyncConnection = connecting.result()
        if self._closing.is_set():
            await connection.close()
            raise Lost("the session is closed")
        self._trying = connection
        loop = asyncio.get_running_loop()
        until = loop.time() + CONNECT_TIMEOUT
        timer = loop.call_at(until, cut, connection)
        try:
            await self._check(connection)
        except BaseException as e:
            await connection.close()
            if isinstance(e, psycopg.Error) and loop.time() >= until:  # a pooler may have let us in
                raise psycopg.OperationalError("the server does not answer") from e
            raise
        finally:
            self._trying = None
            timer.cancel()
        return connection

    async def _check(self, connection: AsyncConnection) -> None:
        """A standby has no messages: its primary may be the next host, or come to this address."""
        sql = "SELECT pg_is_in_recovery(), pg_backend_pid()"
        if self._waits:
            # so that the server forgets a worker whose network is cut, and wakes another one
            sql += ", set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '2', false), set_config('tcp_keepalives_count', '5', false)"
        row = await (await connection.execute(sql)).fetchone()
        if row is None or row[0]:
            raise psycopg.OperationalError("the server is a standby")
        self.pid = row[1] if row[1] == connection.pgconn.backend_pid else None
