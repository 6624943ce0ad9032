"""`Tokens`, what an encoder reads of a batch: ids, where sequences begin, and how they are read.

`Reading` (of a sample) and `Readings` (of the tokens of a batch) say how sequences are read other than from left to
right with all tokens in sight, for ELMo and XLNet; for all other bodies both have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.groups import Change, Group, group_queries

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a sequence is read.

    Attributes:
        backward: whether the ids are in reverse order, for bodies that distinguish directions; None: samples have no
            direction.
        order: each token's rank in the factorization order, (length,): it sees the tokens with ranks up to its own;
            None: all tokens see each other.
        remember: number of its first tokens that the next window of the stream can attend to, which do not see the
            others; None: all.
    """

    backward: bool | None = None
    order: np.ndarray | None = None
    remember: int | None = None


@dataclass(frozen=True, kw_only=True)
class Readings:
    """How the sequences of a batch are read.

    Attributes:
        backward: number of sequences whose tokens are in reverse order, the last ones; None: no sequence has a
            direction.
        order: (tokens,); see `Reading`.
        queries: (queries,) tokens that a body with two streams predicts without reading them, in order; None: none.
        query_groups: the queries of each of the groups, which pad them like tokens; empty without queries.
        remember: see `Reading`; the same for all sequences.
    """

    backward: int | None = None
    order: Tensor | None = None
    queries: Tensor | None = None
    query_groups: tuple[Group, ...] = ()
    remember: int | None = None

    def map(self, change: Change) -> Readings:
        """Return a copy with `change` applied to all tensors."""
        order, queries = (None if old is None else change(old) for old in (self.order, self.queries))
        groups = tuple(group.map(change) for group in self.query_groups)
        return replace(self, order=order, queries=queries, query_groups=groups)


PLAIN, ALL_PLAIN = Reading(), Readings()


def count_backward(readings: Sequence[Reading]) -> int | None:
    """Return how many sequences are in reverse order, or None if none has a direction.

    Raises:
        ValueError: only some of them have a direction.
    """
    directions = [reading.backward for reading in readings if reading.backward is not None]
    if directions and len(directions) != len(readings):
        raise ValueError("either all samples of a batch must have a direction, or none")
    return sum(directions) if directions else None


def collate_readings(
    readings: Sequence[Reading], groups: Sequence[Group], queries: Tensor | None, counts: Sequence[int]
) -> Readings:
    """Return how the sequences of a batch are read.

    Args:
        readings: how each is read, in the order of the batch.
        groups: the groups of the sequences.
        queries: the tokens that are predicted by queries, (queries,) int64, if there are any.
        counts: number of queries of each sequence.

    Raises:
        ValueError: only some of them have a direction or an order, or they are remembered to different lengths.
    """
    orders = [reading.order for reading in readings if reading.order is not None]
    if orders and len(orders) != len(readings):
        raise ValueError("either all samples of a batch must have order, or none")
    (remember, *others) = {reading.remember for reading in readings}
    if others:
        raise ValueError("the samples of a batch must be remembered to the same length")
    return Readings(
        backward=count_backward(readings),
        order=torch.from_numpy(np.concatenate(orders).astype(np.int64)) if orders else None,
        queries=queries,
        query_groups=group_queries(np.array(counts), tuple(groups)) if queries is not None else (),
        remember=remember,
    )


@dataclass(frozen=True)
class Plan:
    """What a body or an objective works out of a batch on the host, so that it need not ask the device for it.

    How many words of a batch are distinct, say, depends on values: a device that has them would be waited for. Made of
    the tokens of a batch before it is moved (`Encoder.plan`, `Objective.plan`): indices and sizes by name, which move
    with the batch.

    Attributes:
        tensors: what is read on the device.
        sizes: numbers that shapes depend on, read on the host.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def map(self, change: Change) -> Plan:
        """Return a copy with `change` applied to all tensors."""
        return replace(self, tensors={name: change(value) for name, value in self.tensors.items()})

    def __or__(self, other: Plan) -> Plan:
        """Return both as one."""
        return Plan({**self.tensors, **other.tensors}, {**self.sizes, **other.sizes})


@dataclass(frozen=True)
class Tokens:
    """The input of an encoder.

    Attributes:
        ids: (tokens,), or (tokens, any number) for bodies that read several numbers per token, such as its characters.
        segments: (tokens,); None if segments are not distinguished, which is the same for all batches of a run.
        position_ids: (tokens,), each token's index in its sequence.
        offsets: (sequences + 1,) int32.
        groups: see `Group`; together they cover all tokens in order.
        packed: one group of all tokens instead, whose rows hold several sequences, where that costs kernels that
            support it less; otherwise None.
        reading: how the sequences are read, if not from left to right with all tokens in sight.
        plan: what the body that reads them works out on the host; None: not yet, or nothing.
    """

    ids: Tensor
    segments: Tensor | None
    position_ids: Tensor
    offsets: Tensor
    groups: tuple[Group, ...]
    packed: Group | None = None
    reading: Readings = ALL_PLAIN
    plan: Plan | None = None
    _values: dict[Hashable, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def once(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return what `compute` returned at the first call with a key, for what all layers compute of the tokens alike.

        Copies with other tensors begin anew. The result has no gradient, and can be saved for a backward pass.
        """
        if key not in self._values:
            with torch.inference_mode(False), torch.no_grad():
                self._values[key] = compute()
        value: Value = self._values[key]
        return value

    @property
    def attention_groups(self) -> tuple[Group, ...]:
        """The groups for kernels that support several sequences in a row: `packed`, where there is one."""
        return self.groups if self.packed is None else (self.packed,)

    @property
    def border(self) -> int:
        """The first token of the sequences in reverse order; the number of tokens, if there are none."""
        return next((group.start for group in self.groups if group.backward), self.groups[-1].stop)

    def map(self, change: Change) -> Tokens:
        """Return a copy with `change` applied to all tensors."""
        return replace(
            self,
            ids=change(self.ids),
            segments=None if self.segments is None else change(self.segments),
            position_ids=change(self.position_ids),
            offsets=change(self.offsets),
            groups=tuple(group.map(change) for group in self.groups),
            packed=None if self.packed is None else self.packed.map(change),
            reading=self.reading.map(change),
            plan=None if self.plan is None else self.plan.map(change),
        )
