"""Threads for handlers that are plain functions.

They are daemons, unlike those of concurrent.futures: a handler that never ends must not keep the
process from ending.
"""
from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Threads:
    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0  # threads without work, less the calls that are queued for them

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls the function in a thread. It goes on if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def tell(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def call() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(function, *args)
            except StopIteration as e:  # a future cannot have it
                error = RuntimeError(f"StopIteration: {e}")
            except BaseException as e:
                error = e
            try:
                loop.call_soon_threadsafe(tell, result, error)
            except RuntimeError:
                pass  # the loop has ended, and nobody waits any more

        with self._lock:
            self._idle -= 1
            if self._idle < 0:
                self._idle += 1
                threading.Thread(target=self._work, args=(call,), name="delay_wheel handler", daemon=True).start()
            else:
                self._calls.put((call,))
        return await future

    def _work(self, call: Callable[[], None]) -> None:
        while True:
            call()
            with self._lock:
                self._idle += 1
            call, = self._calls.get()
