"""What the log says of sessions that are lost, or cannot connect.

A server that goes away takes all sessions of a worker along, and each tries again twice a second. An
outage begins when the first session has no connection, and ends when all have one: each kind of error
of it is one line, whichever session meets it, and its end is another one.
"""
from __future__ import annotations

import logging
import threading
import time

import psycopg

SHORT = 1.0  # s: a session that is lost sooner after the end goes on with the same outage


class Outage:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._away: dict[object, tuple[float, Exception | None]] = {}  # sessions without a connection: since when, and why
        self._over = float("-inf")  # when the last outage ended
        self._told: set[str] = set()
        self._unsettled = False  # something was told since the last end
        self._lock = threading.Lock()  # the session that extends leases has a thread of its own

    def begins(self, session: object) -> None:
        """The session has no connection from now on."""
        with self._lock:
            if session in self._away:
                return
            now = time.monotonic()
            if not self._away and now - self._over > SHORT:
                self._told.clear()
            self._away[session] = now, None

    def tell(self, session: object, name: str, error: Exception, text: str) -> None:
        with self._lock:
            if session in self._away:
                self._away[session] = self._away[session][0], error
            if text in self._told:
                return
            self._told.add(text)
            self._unsettled = True
            self._log.warning("%s session: %s", name, text)

    def ends(self, session: object, target: str | None = None) -> None:
        """The session has a connection, or needs none any more: without a target."""
        with self._lock:
            if self._away.pop(session, None) is None or self._away:
                return
            self._over = time.monotonic()
            if target is None or not self._unsettled:
                return
            self._unsettled = False
            self._log.info("connected (%s)", target)

    def error_after(self, seconds: float) -> Exception | None:
        """The error of a session that has had no connection for so long, if there is one."""
        with self._lock:
            for since, error in self._away.values():
                if time.monotonic() - since >= seconds:
                    return error or psycopg.OperationalError("the server does not answer")
        return None
