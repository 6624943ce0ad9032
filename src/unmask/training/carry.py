"""State that goes from step to step, a row for each stream: what a body gave for a stream's last window.

In: batches whose sequences are windows of streams, and what the body carries on. Out: the same batches with the rows of
their streams. The table is the loop's, never a buffer: rows are staged during a step and committed with the weights.
Stream s is in process s % size, which reads no other; a checkpoint holds the table by stream number, so that the number
of processes may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from unmask.batches.batch import Batch
from unmask.objectives.learner import Learner
from unmask.training.processes import Processes


class CarryTable:
    """The rows of this process's streams; empty until the first commit.

    Args:
        streams: how many there are in all processes.
        processes: those that share them.
    """

    def __init__(self, streams: int, processes: Processes | None = None) -> None:
        self.streams = streams
        self.processes = processes or Processes()
        self.rows: dict[str, Tensor] = {}
        self._staged: list[tuple[Tensor, Mapping[str, Tensor]]] = []

    def give(self, batch: Batch, learner: Learner) -> Batch:
        """Return a batch, on its device, with the rows of its streams, where it has streams and the body carries state.

        A stream that begins gets the body's start, as all do before the first commit.
        """
        if batch.streams is None or batch.fresh is None:
            return batch
        if not self.rows:
            return replace(batch, carry=learner.start(len(batch.streams)))
        device = batch.tokens.ids.device
        places = self._places(batch.streams).to(device)  # (sequences,)
        carry = {name: rows[places] for name, rows in self.rows.items()}  # (sequences, ...)
        if batch.fresh.any():  # on the host
            fresh, start = batch.fresh.to(device), learner.start(len(batch.streams))
            carry = {
                name: torch.where(fresh.view(-1, *[1] * (rows.ndim - 1)), start[name], rows)
                for name, rows in carry.items()
            }
        return replace(batch, carry=carry)

    def stage(self, batch: Batch, carry: Mapping[str, Tensor]) -> None:
        """Take new rows of a batch's streams, to be committed with the step."""
        if carry and batch.streams is not None:
            self._staged.append((self._places(batch.streams), {name: rows.detach() for name, rows in carry.items()}))

    def commit(self) -> None:
        """Put what was staged into the table."""
        for places, carry in self._staged:
            for name, rows in carry.items():
                if name not in self.rows:
                    mine = len(range(self.processes.rank, self.streams, self.processes.size))
                    self.rows[name] = rows.new_zeros(mine, *rows.shape[1:])
                self.rows[name][places.to(rows.device)] = rows
        self.drop()

    def drop(self) -> None:
        """Forget what was staged."""
        self._staged.clear()

    def gather(self) -> dict[str, Tensor]:
        """Return the table of all processes by stream, (streams, ...), in the first one; all processes call it."""
        size, table = self.processes.size, {}
        for name, rows in sorted(self.rows.items()):
            if size == 1:
                table[name] = rows
                continue
            padded = rows.new_zeros(-(-self.streams // size), *rows.shape[1:])
            padded[: len(rows)] = rows
            found = self.processes.collect(padded)
            if self.processes.is_main:
                table[name] = torch.empty(self.streams, *rows.shape[1:], dtype=rows.dtype)
                for rank, part in enumerate(found):
                    mine = table[name][rank::size]
                    mine.copy_(part[: len(mine)])
        return table

    def load(self, table: Mapping[str, Tensor], device: torch.device) -> None:
        """Take this process's rows of what `gather` returned."""
        self.drop()
        rank, size = self.processes.rank, self.processes.size
        self.rows = {name: rows[rank::size].to(device, copy=True).contiguous() for name, rows in table.items()}

    def _places(self, streams: Tensor) -> Tensor:
        return streams // self.processes.size
