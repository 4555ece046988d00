"""Leases, and the thread that extends them.

A coroutine that blocks the event loop, by a call that waits or by much computing, is the most common
mistake in programs with asyncio. It must not cost the leases of all messages in hand. So a thread
extends them, with an event loop and a session of its own, which it has only as long as a handler
runs for more than a third of its lease.
"""
from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable

import psycopg

from .outage import Outage
from .session import Lost, Session
from .wire import array, numbers

# lock_timeout for this statement only, since the session may be one of a pooler. Another transaction
# may have locked the row of one message for long: that must not keep the others.
LOCK_TIMEOUT = "500ms"
LOCK_TIMEOUT_ALONE = "20ms"
EXTEND = """
    WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', $1, true))
    SELECT array_agg(m.id)::text FROM s, unnest($2::bigint[], $3::bigint[]) AS m(id, token)
    WHERE delay_extend(m.id, m.token, $4::interval)"""
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


def margin(length: float) -> float:
    """How long before the end of a lease its handler is told to stop."""
    return min(length / 10, 5.0)


class Lease:
    __slots__ = ("id", "token", "length", "ends", "extend_at", "failures", "is_lost", "is_refused")

    def __init__(self, id: int, token: int, length: float, asked: float) -> None:
        self.id = id
        self.token = token
        self.length = length
        self.failures = 0  # to extend it, in a row
        self.is_lost = False  # the application has been told
        self.is_refused = False  # by the server: no report is of use
        self.renew(asked)

    def renew(self, asked: float) -> None:
        self.ends = asked + self.length
        self.extend_at = asked + self.length / 3

    @property
    def stop_at(self) -> float:
        """When its handler must be told to stop: a margin before the end."""
        return self.ends - margin(self.length)


class Keeper:
    def __init__(self, conninfo: str, lost: Callable[[Lease], None], log: Callable[[str], None], outage: Outage) -> None:
        """lost is called, in the caller's event loop, if a lease is no longer ours."""
        self._conninfo = conninfo
        self._caller = asyncio.get_running_loop()
        self._lost = lost
        self._log = log
        self._outage = outage
        self._held: dict[Lease, None] = {}
        self._sleeps_until = math.inf
        self._closing = False
        self._session: Session | None = None
        self._loop = asyncio.new_event_loop()
        self._woken = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="delay_wheel leases", daemon=True)
        self._thread.start()

    def hold(self, leases: list[Lease]) -> None:
        """Leases of one answer, which are extended at the same time."""
        self._held.update(dict.fromkeys(leases))
        if leases and leases[0].extend_at < self._sleeps_until:
            self._call(self._woken.set)

    def drop(self, lease: Lease) -> None:
        self._held.pop(lease, None)

    async def close(self) -> None:
        self._call(self._close)
        while self._thread.is_alive():
            await asyncio.sleep(0.002)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # its thread has ended

    def _close(self) -> None:
        self._closing = True
        self._woken.set()
        if self._session is not None:
            self._ending = self._loop.create_task(self._session.close())

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._keep())
        except Exception as e:  # it cannot happen, and the handlers are told to stop in time
            self._log(f"leases are not extended any more: {e!r}")
        finally:
            self._loop.close()

    async def _keep(self) -> None:
        while not self._closing:
            self._woken.clear()
            self._sleeps_until = math.inf  # who holds a lease meanwhile wakes us
            leases = list(self._held)
            due = [lease for lease in leases if lease.extend_at <= time.monotonic()]
            if due:
                await self._extend_all(due)
                continue
            if not leases and self._session is not None:
                await self._session.close()
                self._session = None
            self._sleeps_until = min((lease.extend_at for lease in leases), default=math.inf)
            await self._sleep(self._sleeps_until - time.monotonic())
        if self._session is not None:
            await self._session.close()

    async def _sleep(self, seconds: float) -> None:
        timer = self._loop.call_later(seconds, self._woken.set) if seconds < math.inf else None
        await self._woken.wait()
        if timer:
            timer.cancel()

    async def _extend_all(self, due: list[Lease]) -> None:
        """By one statement for each length; if that fails, one by one."""
        for length in {lease.length for lease in due}:
            same = [lease for lease in due if lease.length == length]
            if await self._extend(same, LOCK_TIMEOUT) or len(same) == 1:
                continue
            for lease in same:
                if lease in self._held and not self._closing:
                    await self._extend([lease], LOCK_TIMEOUT_ALONE)

    async def _extend(self, leases: list[Lease], lock_timeout: str) -> bool:
        # in one order in all statements, so that they cannot deadlock
        leases = sorted((lease for lease in leases if lease in self._held), key=lambda lease: lease.id)
        if self._session is None:
            self._session = Session("lease", self._conninfo, outage=self._outage)
        try:
            answer = await self._session.execute(
                EXTEND, (lock_timeout, array(lease.id for lease in leases), array(lease.token for lease in leases), f"{leases[0].length} s")
            ) if leases else None
        except (Lost, psycopg.Error) as e:
            for lease in leases:
                if lease.failures == 0 and isinstance(e, psycopg.Error) and len(leases) == 1:
                    self._log(f"message {lease.id}: its lease cannot be extended: {e}")
                lease.extend_at = time.monotonic() + PAUSES[min(lease.failures, len(PAUSES) - 1)]
                lease.failures += 1
            return isinstance(e, Lost)  # with a new connection all are tried together again
        if answer is None:
            return True
        ours = numbers(answer.row[0])
        for lease in leases:
            lease.failures = 0
            if lease.id in ours:
                lease.renew(answer.sent)
            else:
                lease.extend_at = math.inf
                self._tell(lease)
        return True

    def _tell(self, lease: Lease) -> None:
        try:
            self._caller.call_soon_threadsafe(self._lost, lease)
        except RuntimeError:
            pass  # the caller's loop has ended
