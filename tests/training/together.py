"""Processes that are threads: `together` calls a function in several of them, which exchange values in memory.

One thread runs at a time, until it waits for the others: msgspec does not survive it if threads use a type at once for
the first time.
"""

import threading

from unmask.training.connection import LostProcessError
from unmask.training.processes import Processes


class Threads(Processes):
    """One of several threads that stand for the processes that train together."""

    def __init__(self, rank, size, turn, values, ended):
        super().__init__(rank, size)
        self._turn, self._values, self._ended, self._calls = turn, values, ended, 0

    def gather(self, value):
        """See `Processes`."""
        self._calls += 1
        gathered = self._values.setdefault(self._calls, {})
        gathered[self.rank] = value
        self._turn.notify_all()
        self._turn.wait_for(lambda: len(gathered) == self.size or self._ended - gathered.keys())
        if len(gathered) < self.size:
            raise LostProcessError("another process has exited", sorted(self._ended))
        return [gathered[rank] for rank in range(self.size)]

    def broadcast(self, value, source=0):
        """See `Processes`."""
        return self.gather(value)[source]

    def broadcast_into(self, tensor, source=0):
        """See `Processes`."""
        tensor.copy_(self.gather(tensor.clone())[source])

    def barrier(self):
        """See `Processes`."""
        self.gather(None)

    def lead(self, work):
        """See `Processes`."""
        return self.broadcast(work() if self.is_main else None)


def together(size, work):
    """Return what `work` returns, or the exception that it raises, when it is called with each of the processes."""
    turn, values, ended, results = threading.Condition(), {}, set(), [None] * size

    def call(rank):
        with turn:
            try:
                results[rank] = work(Threads(rank, size, turn, values, ended))
            except Exception as error:
                results[rank] = error
            ended.add(rank)
            turn.notify_all()

    threads = [threading.Thread(target=call, args=[rank]) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
