"""State carried from step to step, one row per stream: the encoder's state after the stream's last window.

Input: batches whose sequences are windows of streams, and the state that the encoder returns for them. Output: the same
batches with the rows of their streams. The table belongs to the loop and is not a module buffer: rows are staged during
a step and committed together with the weights. Stream s is in process s % size, which reads no other stream; a
checkpoint holds the table in the order of the streams, so that the number of processes may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.objectives.learner import Learner
from unmask.support.transfer import to_device
from unmask.training.processes import Processes


class CarryTable:
    """The rows of this process's streams; empty until the first commit.

    Args:
        streams: number of streams over all processes.
        processes: the processes that share them.
    """

    def __init__(self, streams: int, processes: Processes | None = None) -> None:
        self.streams = streams
        self.processes = processes or Processes()
        self.rows: dict[str, Tensor] = {}
        self._staged: list[tuple[Tensor, Mapping[str, Tensor]]] = []

    def attach(self, batch: Batch, learner: Learner) -> Batch:
        """Return a batch with the rows of its streams, on its device; a batch without streams is returned unchanged.

        A stream that starts in this batch gets the encoder's initial state, as all streams do before the first commit.
        """
        if batch.streams is None or batch.fresh is None:
            return batch
        if not self.rows:
            return replace(batch, carry=learner.start(len(batch.streams)))
        device = batch.tokens.ids.device
        indices = to_device(self._indices(batch.streams), device)  # (sequences,)
        carry = {name: rows[indices] for name, rows in self.rows.items()}  # (sequences, ...)
        if batch.fresh.any():  # on the host
            fresh, start = to_device(batch.fresh, device), learner.start(len(batch.streams))
            carry = {
                name: torch.where(fresh.view(-1, *[1] * (rows.ndim - 1)), start[name], rows)
                for name, rows in carry.items()
            }
        return replace(batch, carry=carry)

    def stage(self, batch: Batch, carry: Mapping[str, Tensor]) -> None:
        """Keep the new rows of a batch's streams until the step is committed."""
        if carry and batch.streams is not None:
            indices = to_device(self._indices(batch.streams), batch.tokens.ids.device)
            self._staged.append((indices, {name: rows.detach() for name, rows in carry.items()}))

    def commit(self) -> None:
        """Write the staged rows to the table."""
        for indices, carry in self._staged:
            for name, rows in carry.items():
                if name not in self.rows:
                    mine = len(range(self.processes.rank, self.streams, self.processes.size))
                    self.rows[name] = rows.new_zeros(mine, *rows.shape[1:])
                self.rows[name][indices] = rows
        self.drop()

    def drop(self) -> None:
        """Discard the staged rows."""
        self._staged.clear()

    def gather(self) -> dict[str, Tensor]:
        """Return the table of all streams, (streams, ...), in the main process and {} in the others.

        All processes must call it.
        """
        size, table = self.processes.size, {}
        for name, rows in sorted(self.rows.items()):
            if size == 1:
                table[name] = rows
                continue
            padded = rows.new_zeros(-(-self.streams // size), *rows.shape[1:])
            padded[: len(rows)] = rows
            parts = self.processes.collect(padded)
            if self.processes.is_main:
                table[name] = torch.empty(self.streams, *rows.shape[1:], dtype=rows.dtype)
                for rank, part in enumerate(parts):
                    mine = table[name][rank::size]
                    mine.copy_(part[: len(mine)])
        return table

    def load(self, table: Mapping[str, Tensor], device: torch.device) -> None:
        """Load this process's rows from a table that `gather` returned."""
        self.drop()
        rank, size = self.processes.rank, self.processes.size
        self.rows = {name: rows[rank::size].to(device, copy=True).contiguous() for name, rows in table.items()}

    def _indices(self, streams: Tensor) -> Tensor:
        """Return the row of each stream in this process's table, (sequences,)."""
        return streams // self.processes.size
