"""The rows of each parameter that a process has, where parameters are divided among processes.

Input: a module whose parameters `fully_shard` has divided: by rows, as torch.chunk does it, so that the last processes
may have fewer or none. Output: this process's rows as tensors that an optimizer updates, whole tensors in the main
process, and sums and whole matrices where a step depends on all rows. The state of an optimizer is named
"PARAMETER.moment" and divided like the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from unmask.training.processes import Processes, divide

AT_ONCE = 1 << 24
"""Approximate number of elements of whole matrices that a process has at once."""
Compute = Callable[[Sequence[str], Sequence[Tensor]], Sequence[Tensor]]
"""Maps the names of some parameters, and whole matrices of their shapes, to others of these shapes."""


class Shards:
    """The rows of a module's parameters that this process has, and those of the processes that have the others.

    Args:
        shapes: shapes of the whole parameters by name.
        parts: this process's rows of each, (rows, ...).
        group: process group of the processes that have all rows together, in the order of the rows.
        processes: all processes that train together, of which several may have the same rows.
    """

    def __init__(
        self, shapes: Mapping[str, torch.Size], parts: Mapping[str, Tensor], group: Any, processes: Processes
    ) -> None:
        self.shapes = dict(shapes)
        self.parts = dict(parts)
        self.processes = processes
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.with_main = 0 in dist.get_process_group_ranks(group)
        self._group = group

    def shape(self, name: str, part: Tensor) -> torch.Size:
        """Return the shape of the whole tensor of which a process has a part."""
        divided = self._divided(name, part)
        return self.shapes[divided] if divided else part.shape

    def take(self, name: str, whole: Tensor) -> Tensor:
        """Return a copy of this process's rows of a parameter or its state; of other tensors, the tensor itself."""
        divided = self._divided(name, whole)
        if divided is None or whole.shape != self.shapes[divided]:  # of another model
            return whole
        first, last = self._rows(divided, self.rank)
        return whole[first:last].clone()

    def gather(self, name: str, part: Tensor) -> Tensor | None:
        """Return the whole tensor on the CPU in the main process, and None in the others; all must call it."""
        divided = self._divided(name, part)
        if divided is None:
            return part.detach().cpu() if self.processes.is_main else None
        if not self.with_main:
            return None
        shape = self.shapes[divided]
        most = self._rows(divided, 0)[1]
        padded = torch.zeros(most, *shape[1:], dtype=part.dtype)
        padded[: len(part)] = part.detach()
        main = self.processes.is_main
        whole = torch.empty(most * self.size, *shape[1:], dtype=part.dtype) if main else None
        with self.processes.watched():
            dist.gather(_bytes(padded), None if whole is None else [*_bytes(whole).chunk(self.size)], 0, self._group)
        return None if whole is None else whole[: shape[0]]

    def add_up(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes that have all rows together."""
        total = tensor.clone()
        with self.processes.watched():
            dist.all_reduce(total, group=self._group)
        return total

    def norms(self, norms: Tensor) -> Tensor:
        """Return Euclidean norms of whole tensors, given those of this process's rows, of any shape."""
        return self.add_up(norms.square()).sqrt()

    def on_whole(
        self, names: Sequence[str], parts: Sequence[Tensor], compute: Compute, dtype: torch.dtype
    ) -> list[Tensor]:
        """Return this process's rows of what is computed from whole matrices, each of them in one process.

        Args:
            names: names of the matrices' parameters, the same in all processes.
            parts: this process's rows of each matrix, (rows, columns).
            compute: called with this process's matrices.
            dtype: dtype in which the results are sent.
        """
        rows, batch, size = list[Tensor](), list[int](), 0
        for index, name in enumerate(names):
            batch.append(index)
            size += self.shapes[name].numel()
            if size >= AT_ONCE * self.size or index == len(names) - 1:
                chosen = [names[number] for number in batch], [parts[number] for number in batch]
                rows += self._on_whole(*chosen, compute, dtype)
                batch, size = [], 0
        return rows

    def _on_whole(
        self, names: Sequence[str], parts: Sequence[Tensor], compute: Compute, dtype: torch.dtype
    ) -> list[Tensor]:
        """See `on_whole`; all matrices at once."""
        shapes, lengths = [self.shapes[name] for name in names], [self._lengths(name) for name in names]
        owned = divide([rows * columns * min(rows, columns) for rows, columns in shapes], self.size)
        mine = owned[self.rank]
        received = self._exchange(
            [[parts[index] for index in indices] for indices in owned],
            [[lengths[index][sender] for index in mine] for sender in range(self.size)],
            parts[0].dtype,
        )
        wholes = [
            torch.cat(vectors).view(shapes[index])
            for index, vectors in zip(mine, zip(*received, strict=True), strict=True)
        ]
        results = compute([names[index] for index in mine], wholes)
        divided = [
            result.reshape(-1).split_with_sizes(lengths[index]) for index, result in zip(mine, results, strict=True)
        ]
        returned = self._exchange(
            [[vectors[rank] for vectors in divided] for rank in range(self.size)],
            [[lengths[index][self.rank] for index in indices] for indices in owned],
            dtype,
        )
        rows: list[Tensor] = list(parts)
        for indices, vectors in zip(owned, returned, strict=True):
            for index, vector in zip(indices, vectors, strict=True):
                rows[index] = vector.view_as(parts[index])
        return rows

    def close(self) -> None:
        """Release the reference to the process group."""
        self._group = None

    def _divided(self, name: str, tensor: Tensor) -> str | None:
        """Return the parameter like which a tensor is divided: it is the parameter, or a state of it with its shape."""
        for parameter in (name, name.rpartition(".")[0]):
            if parameter in self.shapes and tensor.ndim:
                return parameter
        return None

    def _rows(self, name: str, rank: int) -> tuple[int, int]:
        """Return the first row of a process, and the one after its last, as torch.chunk divides them."""
        rows = self.shapes[name][0]
        most = -(-rows // self.size)
        return min(rank * most, rows), min((rank + 1) * most, rows)

    def _lengths(self, name: str) -> list[int]:
        """Return the number of elements of a parameter that each process has."""
        shape = self.shapes[name]
        return [
            (last - first) * shape[1:].numel() for first, last in (self._rows(name, rank) for rank in range(self.size))
        ]

    def _exchange(
        self, sent: Sequence[Sequence[Tensor]], lengths: Sequence[Sequence[int]], dtype: torch.dtype
    ) -> list[Sequence[Tensor]]:
        """Send tensors to each process; return what each of them has sent to this one, as vectors.

        Args:
            sent: the tensors for each process.
            lengths: numbers of elements of the tensors that come from each process.
            dtype: dtype in which they are sent.
        """
        device = next(iter(self.parts.values())).device
        outgoing = [
            torch.cat(
                [torch.empty(0, dtype=dtype, device=device), *(tensor.to(dtype).reshape(-1) for tensor in tensors)]
            )
            for tensors in sent
        ]
        incoming = [sum(own) for own in lengths]
        vector = torch.empty(sum(incoming), dtype=dtype, device=device)
        with self.processes.watched():
            dist.all_to_all_single(vector, torch.cat(outgoing), incoming, [*map(len, outgoing)], group=self._group)
        return [
            part.split_with_sizes([*own]) if own else ()
            for part, own in zip(vector.split_with_sizes(incoming), lengths, strict=True)
        ]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
