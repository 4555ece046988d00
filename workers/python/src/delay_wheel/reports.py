"""Reports: what became of leased messages, sent over the work session.

Reports that come at about the same time are one statement for each kind. A report that cannot be
sent, or fails, is sent again until its lease has ended.
"""
from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg

from .leases import LOCK_TIMEOUT, LOCK_TIMEOUT_ALONE, PAUSES, Lease
from .message import GiveUp, Message, Retry, error_text
from .session import Lost, Session
from .wire import array, numbers

if TYPE_CHECKING:
    from .queues import LeasedWork

DONE, RESULT, FAIL, RELEASE = range(4)

# see LOCK_TIMEOUT. They return the ids of the messages whose report the server has taken. One JSON
# value has what the messages do not have in common.
WITH = "WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', $1, true)) "
FROM = "FROM s, unnest($2::bigint[], $3::bigint[], ARRAY(SELECT json_array_elements($4::json))) AS m(id, token, more) "
STATEMENTS = {
    DONE: WITH + "SELECT delay_done_all($2::bigint[], $3::bigint[])::text FROM s",
    RESULT: WITH + "SELECT array_agg(m.id)::text " + FROM + "WHERE delay_done(m.id, m.token, (m.more ->> 0)::jsonb)",
    FAIL: WITH + "SELECT array_agg(m.id)::text " + FROM + "WHERE delay_fail(m.id, m.token, m.more ->> 0, (m.more ->> 1)::interval, (m.more ->> 2)::boolean)",
    RELEASE: WITH + "SELECT array_agg(m.id)::text " + FROM + "WHERE delay_release(m.id, m.token)",
}
MOST = 1000  # of one statement


class Outcome:
    """What became of a message."""

    __slots__ = ("kind", "result", "cause", "error", "retry_in")

    def __init__(self, kind: int, result: str | None = None, cause: BaseException | None = None) -> None:
        self.kind = kind
        self.result = result  # JSON
        self.cause = cause
        self.error = None if cause is None else error_text(cause)
        self.retry_in = cause.delay if isinstance(cause, Retry) else None

    @property
    def gives_up(self) -> bool:
        return isinstance(self.cause, GiveUp)

    @property
    def more(self) -> list[Any]:
        """What the statement needs besides the lease."""
        return [self.result] if self.kind == RESULT else [self.error, self.retry_in, self.gives_up]


IS_DONE = Outcome(DONE)
IS_RELEASED = Outcome(RELEASE)


class Report:
    __slots__ = ("message", "lease", "work", "outcome", "failures", "sent", "timer")

    def __init__(self, message: Message, lease: Lease, work: LeasedWork, outcome: Outcome) -> None:
        self.message = message
        self.lease = lease
        self.work = work
        self.outcome = outcome
        self.failures = 0
        self.sent = False  # the server may have taken it, though the answer was lost
        self.timer: asyncio.TimerHandle | None = None


by_id = attrgetter("lease.id")


class Reports:
    def __init__(self, session: Session, log: Callable[[str], None]) -> None:
        self._session = session
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._new: list[Report] = []
        self._again: dict[Report, None] = {}  # sent again after a pause
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, report: Report) -> None:
        self._new.append(report)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())  # with those of this turn of the loop

    def hurry(self) -> None:
        """There is a new connection: all that was waiting for it goes at once."""
        for report in list(self._again):
            report.failures = 0
            self._retry(report)

    def give_up(self) -> None:
        """The worker ends: what is not answered is not sent any more."""
        self._closed = True
        for report in [*self._again, *self._new]:
            if report.timer:
                report.timer.cancel()
            report.work.answered(report, None)
        self._again.clear()
        self._new.clear()

    async def _send_all(self) -> None:
        while self._new:
            reports, self._new = self._new, []
            # in one order in all statements, so that they cannot deadlock
            reports.sort(key=by_id)
            groups = [[report for report in reports if report.outcome.kind == kind and not report.failures] for kind in STATEMENTS]
            # those that have failed before come last, each by its own
            groups += [[report] for report in reports if report.failures]
            for group in groups:
                for i in range(0, len(group), MOST):
                    await self._send(group[i:i + MOST])
        self._sending = None

    async def _send(self, reports: list[Report]) -> None:
        kind = reports[0].outcome.kind
        values = [
            LOCK_TIMEOUT_ALONE if reports[0].failures else LOCK_TIMEOUT,
            array([report.lease.id for report in reports]), array([report.lease.token for report in reports]),
        ]
        if kind != DONE:
            values.append(json.dumps([report.outcome.more for report in reports]))
        try:
            answer = await self._session.execute(STATEMENTS[kind], values)
        except (Lost, psycopg.Error) as e:
            await self._failed(reports, e)
            return
        taken = numbers(answer.row[0])
        for report in reports:
            # until the lease has ended, only the first report can have ended it
            report.work.answered(report, report.lease.id in taken or report.sent and time.monotonic() < report.lease.ends)

    async def _failed(self, reports: list[Report], error: Exception) -> None:
        if isinstance(error, Lost):
            for report in reports:
                report.sent = True
                self._later(report, error)
        elif len(reports) > 1:  # one of them fails, or is locked
            for report in reports:
                await self._send([report])
        elif isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(("22", "54")) and self._leave_out(reports[0], error):
            self.add(reports[0])
        else:
            self._later(reports[0], error)

    def _leave_out(self, report: Report, error: Exception) -> bool:
        """What the server does not like is the result, or the delay: the rest is true without it."""
        outcome = report.outcome
        if outcome.kind == RESULT:
            outcome.kind, what = DONE, "result"
        elif outcome.kind == FAIL and outcome.retry_in is not None:
            outcome.retry_in, what = None, "delay"
        else:
            return False
        self._log(f"message {report.message.id}: its {what} is left out: {error}")
        return True

    def _later(self, report: Report, error: Exception) -> None:
        if self._closed or time.monotonic() >= report.lease.ends:
            report.work.answered(report, None)
            return
        if report.failures == 0 and isinstance(error, psycopg.Error):
            self._log(f"message {report.message.id}: its report is sent again: {error}")
        pause = PAUSES[min(report.failures, len(PAUSES) - 1)]
        report.failures += 1
        self._again[report] = None
        report.timer = self._loop.call_later(pause, self._retry, report)

    def _retry(self, report: Report) -> None:
        if report.timer:
            report.timer.cancel()
        if report in self._again:
            del self._again[report]
            self.add(report)
