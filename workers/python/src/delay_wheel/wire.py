"""Statements of a session, by libpq itself.

A cursor of psycopg takes 0.2 ms of Python for each statement, a fifth of the time from a message's
due time to its handler. The few statements of a worker have values that are texts, and answer with
one row of texts.
"""
from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = Sequence[str | None]


class Wire:
    """A connection on which nobody else runs statements."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.ended: psycopg.Error | None = None  # why
        self._pgconn = connection.pgconn  # it does not block
        self._socket = self._pgconn.socket
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Row] | None = None
        self._row: Row = ()
        self._error: psycopg.Error | None = None
        self._loop.add_reader(self._socket, self._read)

    async def execute(self, sql: str, values: Sequence[str | None]) -> Row:
        """Runs a statement with $1 ... and returns its first row, or () if there is none."""
        if self._answer is not None:
            raise psycopg.OperationalError("another statement has not ended")
        texts = [None if value is None else value.encode() for value in values]
        answer: asyncio.Future[Row] = self._loop.create_future()
        self._answer = answer
        self._row = ()
        try:
            self._pgconn.send_query_params(sql.encode(), texts)
            self._flush()
        except psycopg.Error as e:
            self._end(e)
        return await answer

    def close(self) -> None:
        """Before the connection is closed."""
        if self.ended is None:
            self._end(psycopg.OperationalError("the connection is closed"))

    def _flush(self) -> None:
        """Sends what is left. What the system does not take now follows when it can."""
        try:
            if self._pgconn.flush():
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)
        except psycopg.Error as e:
            self._end(e)

    def _read(self) -> None:
        try:
            self._pgconn.consume_input()
            # also if no answer is expected: a notice, or the server's last words
            while not self._pgconn.is_busy() and self._answer is not None:
                result = self._pgconn.get_result()
                if result is None:
                    self._settle()
                elif result.status == ExecStatus.TUPLES_OK:
                    self._row = [self._text(result.get_value(0, column)) for column in range(result.nfields)] if result.ntuples else ()
                elif result.status != ExecStatus.COMMAND_OK:
                    self._error = error_from_result(result)
        except psycopg.Error as e:
            self._end(e)

    @staticmethod
    def _text(value: bytes | None) -> str | None:
        return None if value is None else value.decode()

    def _settle(self) -> None:
        """All of the answer is there."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        if answer is None or answer.done():  # who has asked does not wait any more
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(self._row)

    def _end(self, error: psycopg.Error) -> None:
        with suppress(OSError, ValueError):
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        # the server may have told why before it has ended the connection
        self.ended = self._error = self._error or error
        self._settle()


def array(values: Iterable[int]) -> str:
    """An array of PostgreSQL."""
    return "{" + ",".join(map(str, values)) + "}"


def numbers(text: str | None) -> set[int]:
    """The elements of such an array."""
    return set(map(int, text[1:-1].split(","))) if text and text != "{}" else set()


def text_array(values: Iterable[str]) -> str:
    return "{" + ",".join('"' + re.sub(r'(["\\])', r"\\\1", value) + '"' for value in values) + "}"


def elements(text: str | None) -> set[str]:
    """The elements of an array of texts, none of which is null or empty."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', text or "", re.DOTALL)
    return {re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted else plain for quoted, plain in found}
