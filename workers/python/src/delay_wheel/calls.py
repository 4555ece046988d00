"""delay_send() and delay_schedule_task(), as functions of Python.

db is what runs the statement, in its own transaction: a connection or a cursor of psycopg 3, sync or
async; a cursor of psycopg2 or Django; or anything whose execute(sql, values) takes %s and returns
something with fetchone(), or has it itself.
"""
from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, overload

import psycopg

from .message import Interval, interval


class Database(Protocol):
    def execute(self, __sql: Any, __values: Any) -> Any: ...


AsyncDatabase = psycopg.AsyncConnection[Any] | psycopg.AsyncCursor[Any]


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


# parameters of the SQL functions: their types, and how values become what the driver takes
PARAMETERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "queue": ("text", str), "payload": ("jsonb", _json), "sql_text": ("text", str), "args": ("text[]", lambda args: [_text(a) for a in args]),
    "named": ("jsonb", _json), "delay": ("interval", interval), "due": ("timestamptz", lambda due: due), "key": ("text", str),
    "if_exists": ("text", str), "tag": ("text", str), "priority": ("integer", int), "max_attempts": ("integer", int),
    "group_key": ("text", str), "headers": ("jsonb", _json), "options": ("jsonb", _json),
}


def _text(value: Any) -> str | None:
    """An argument of a task, as its statement reads a literal."""
    if value is None or isinstance(value, str):
        return value
    return _json(value) if isinstance(value, (bool, int, float, dict, list)) else str(value)


async def _id_async(execution: Awaitable[Any]) -> Any:
    return _only(await (await execution).fetchone())


def _only(row: Any) -> Any:
    return next(iter(row.values() if isinstance(row, Mapping) else row))


def _call(db: Any, function: str, arguments: dict[str, Any]) -> Any:
    """Calls an SQL function. Returns its value; of an async database, what can be awaited for it."""
    if unknown := arguments.keys() - PARAMETERS.keys():
        raise TypeError(f"{function}() has no parameter {', '.join(sorted(unknown))}")
    given = {name: value for name, value in arguments.items() if value is not None or name == "payload"}
    names = ", ".join(f"{name} => %s::{PARAMETERS[name][0]}" for name in given)
    answer = db.execute(f"SELECT {function}({names})", [PARAMETERS[name][1](value) for name, value in given.items()])
    return _id_async(answer) if inspect.isawaitable(answer) else _only((db if answer is None else answer).fetchone())


@overload  # type: ignore[misc]  # an AsyncDatabase would fit the second one, too
def send(db: AsyncDatabase, queue: str, payload: Any, *, delay: Interval | None = None, due: datetime | None = None,
         key: str | None = None, if_exists: str | None = None, tag: str | None = None, priority: int | None = None,
         max_attempts: int | None = None, group_key: str | None = None, headers: Mapping[str, Any] | None = None,
         options: Mapping[str, Any] | None = None) -> Awaitable[int]: ...


@overload
def send(db: Database, queue: str, payload: Any, *, delay: Interval | None = None, due: datetime | None = None,
         key: str | None = None, if_exists: str | None = None, tag: str | None = None, priority: int | None = None,
         max_attempts: int | None = None, group_key: str | None = None, headers: Mapping[str, Any] | None = None,
         options: Mapping[str, Any] | None = None) -> int: ...


def send(db: Any, queue: str, payload: Any, **arguments: Any) -> Any:
    """Sends a message, if the transaction of db commits. Returns its id.

    The arguments are those of delay_send(): delay, due, key, headers and so on."""
    return _call(db, "delay_send", {"queue": queue, "payload": payload, **arguments})


@overload  # type: ignore[misc]
def schedule(db: AsyncDatabase, sql: str, args: Sequence[Any] | Mapping[str, Any] | None = None, *, delay: Interval | None = None,
             due: datetime | None = None, key: str | None = None, if_exists: str | None = None, queue: str | None = None,
             tag: str | None = None, priority: int | None = None, max_attempts: int | None = None, group_key: str | None = None,
             options: Mapping[str, Any] | None = None) -> Awaitable[int]: ...


@overload
def schedule(db: Database, sql: str, args: Sequence[Any] | Mapping[str, Any] | None = None, *, delay: Interval | None = None,
             due: datetime | None = None, key: str | None = None, if_exists: str | None = None, queue: str | None = None,
             tag: str | None = None, priority: int | None = None, max_attempts: int | None = None, group_key: str | None = None,
             options: Mapping[str, Any] | None = None) -> int: ...


def schedule(db: Any, sql: str, args: Any = None, **arguments: Any) -> Any:
    """Schedules SQL, if the transaction of db commits. Returns the id of the task.

    args: values of $1, $2 ... as a list, or of :name as a dictionary. The others are those of
    delay_schedule_task()."""
    return _call(db, "delay_schedule_task", {"sql_text": sql, "named" if isinstance(args, Mapping) else "args": args, **arguments})
