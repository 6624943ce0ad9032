"""One timer for all that waits: of equal times, what began first ends first."""

from __future__ import annotations

import asyncio
from typing import Any


class Deadlines:
    """Ends what takes too long with a `TimeoutError`.

    A timer for each of thousands of futures, nearly all of which are cancelled, takes longer than the rest of waiting.

    Args:
        seconds: how long a future may be waited for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[asyncio.Future[Any], float] = {}  # in the order in which they end
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: asyncio.Future[Any]) -> None:
        """Begin to count the time of a future of the running event loop."""
        loop = future.get_loop()
        self._ends[future] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._end)

    def remove(self, future: asyncio.Future[Any]) -> None:
        """Stop to count the time of a future."""
        self._ends.pop(future, None)

    def _end(self) -> None:
        """End what is late, and wait for the next end, if there is one."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._ends:
            future, end = next(iter(self._ends.items()))
            if end > loop.time():
                self._timer = loop.call_at(end, self._end)
                return
            del self._ends[future]
            if not future.done():
                future.set_exception(TimeoutError())
