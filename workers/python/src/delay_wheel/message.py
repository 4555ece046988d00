"""What a handler gets, and what it raises to tell what comes next."""
from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Interval = str | float | timedelta


def interval(value: Interval) -> str:
    """An interval as PostgreSQL reads it: a text, or a number of seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return value if isinstance(value, str) else f"{value} s"


@dataclass(slots=True)
class Message:
    """A message, received by a handler. Its id is the same in all its attempts."""

    id: int
    queue: str
    payload: Any
    attempt: int
    due: datetime
    headers: dict[str, Any] | None = None
    key: str | None = None

    @property
    def traceparent(self) -> str | None:
        """The trace that its sender has put into the headers (W3C Trace Context)."""
        value = (self.headers or {}).get("traceparent")
        return value if isinstance(value, str) else None


class Context:
    """What a handler gets beside its message."""

    __slots__ = ("connection", "_told", "_stopping")

    def __init__(self) -> None:
        self.connection: Any = None
        """With transaction=True: the connection whose transaction has received the message. An
        AsyncConnection of psycopg for a coroutine, a Connection for a plain function."""
        self._told = False
        self._stopping: threading.Event | None = None  # few handlers ask for it

    @property
    def stopping(self) -> threading.Event:
        """Set when the handler is told to stop. A coroutine is cancelled, too."""
        if self._stopping is None:
            self._stopping = threading.Event()
        if self._told:  # maybe meanwhile, by another thread
            self._stopping.set()
        return self._stopping

    def _tell(self) -> None:
        self._told = True
        if self._stopping is not None:
            self._stopping.set()


class Retry(Exception):
    """The attempt has failed, and the next one comes after this delay."""

    def __init__(self, delay: Interval, reason: object = "tried again later") -> None:
        super().__init__(str(reason))
        self.delay = interval(delay)


class GiveUp(Exception):
    """The message has failed, and is not tried again."""

    def __init__(self, reason: object = "given up") -> None:
        super().__init__(str(reason))


def error_text(error: BaseException) -> str:
    """The text of an error, as delay_fail() takes it."""
    if isinstance(error, (Retry, GiveUp)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # texts of PostgreSQL have no NUL, and valid UTF-8 has no lone surrogates
    return text[:16384].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
