"""A layer of an LSTM with projection and clipping, in one direction, over packed sequences, and how they are packed.

Tokens of a batch are ordered by sequence, the shortest first; torch's recurrent networks and `Lstm` want them ordered
by time step, in each step the longer sequences first, so that each step is a few contiguous rows, and those of a
sequence that goes on come first. `pack` and `mirror` return the orders in which a ragged batch is read.

Hochreiter and Schmidhuber 1997; projection: Sak et al. 2014, section 2; clipping of cells and of projected outputs as
in TensorFlow's `LSTMCell` (`cell_clip`, `proj_clip`), which ELMo was trained with and torch's LSTM lacks. The
recurrence is one autograd function: the products of all inputs are computed at once before it, and in the backward pass
those of the weights' gradients after it. On a CPU it takes as long as torch's without clipping, or less
(benchmarks/recurrence.py): torch has no fused kernel there for LSTMs with projection either. What made it faster: the
matrices in oneDNN's order (`packed`) and the sum in the same call, gates and their gradients written in place, and as
few operations per step as possible. What did not: `packed` in the backward pass, where transposing first takes as long
as it saves in 20 steps.

Gates are in the order input, forget, output, new: the first three are sigmoids.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unmask.nn.layers.linear import Linear, packed, product, product_plus
from unmask.support.transfer import to_device

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
"""The gradient of a function's input, given that of its output and the output."""


def pack(position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the order in which recurrent networks read a batch, and the number of sequences in each time step.

    The longest sequence, which is the last of the batch, comes first in each step. The sizes must be on the CPU, so on
    a GPU this synchronizes.

    Args:
        position_ids: (tokens,), each token's index in its sequence; sequences must be in order of length.

    Returns:
        Token indices, (tokens,), and sizes, (longest,) int64 on the CPU.
    """
    count = len(position_ids)
    # at equal positions, later tokens belong to later and therefore longer sequences
    order = (position_ids * count + (count - 1 - torch.arange(count, device=position_ids.device))).argsort()
    return order, torch.bincount(position_ids).cpu()


def mirror(position_ids: Tensor, offsets: Tensor) -> Tensor:
    """Return for each token the one as far from the end of its sequence as it is from the start, (tokens,).

    Args:
        position_ids: (tokens,), each token's index in its sequence.
        offsets: (sequences + 1,), where each sequence starts.
    """
    starts = torch.arange(len(position_ids), device=position_ids.device) - position_ids  # (tokens,)
    sequence = torch.bucketize(starts, offsets[1:], right=True)
    return offsets[1:].long().index_select(0, sequence) - 1 - position_ids


class LstmState(NamedTuple):
    """The state of sequences after a step.

    Attributes:
        hidden: the projected outputs, (sequences, width).
        cells: the cells, (sequences, width of the cells).
    """

    hidden: Tensor
    cells: Tensor


class Lstm(nn.Module):
    """See the module.

    Args:
        width: width of the inputs and of the projected outputs.
        cells: width of the cells.
        clip: maximum absolute value of cells and of projected outputs, whose gradient is 0 there; None: no limit.
    """

    def __init__(self, width: int, cells: int, clip: float | None = None) -> None:
        super().__init__()
        self.width = width
        self.cells = cells
        self.clip = clip
        self.input = Linear(width, 4 * cells)
        self.input.stacked = 4
        self.recurrent = Linear(width, 4 * cells, bias=False)
        self.recurrent.stacked = 4
        self.project = Linear(cells, width, bias=False)

    def start(self, sequences: int) -> LstmState:
        """Return the state before the first step: zeros."""
        like = self.project.weight
        return LstmState(like.new_zeros(sequences, self.width), like.new_zeros(sequences, self.cells))

    def forward(self, x: Tensor, sizes: Sequence[int], state: LstmState) -> tuple[Tensor, LstmState]:
        """Return the projected outputs, and the state after the last step of each sequence, without graph.

        Args:
            x: inputs, (tokens, width), packed.
            sizes: number of sequences in each step, decreasing.
            state: the state before the first step, in the order of the sequences in it.

        Returns:
            Outputs, (tokens, width), packed, and the new state in the order of the given one.
        """
        weights = self.recurrent.weight, self.project.weight
        outputs, cells = _Recurrence.apply(self.input(x), *weights, *state, tuple(sizes), self.clip)  # type: ignore[no-untyped-call]
        last = _last_rows(sizes, x.device)
        return outputs, LstmState(outputs.detach().index_select(0, last), cells.index_select(0, last))


class _Recurrence(torch.autograd.Function):
    """The steps, given the products of the inputs.

    Shape:
        inputs: (tokens, 4 * cells); recurrent: (4 * cells, width); project: (width, cells); hidden, cells: the state;
        returns the outputs, (tokens, width), and the cells, (tokens, cells), which are not differentiable.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        recurrent: Tensor,
        project: Tensor,
        hidden: Tensor,
        cells: Tensor,
        sizes: tuple[int, ...],
        clip: float | None,
    ) -> tuple[Tensor, Tensor]:
        width, inner = project.shape
        ctx.save_for_backward(recurrent, project, hidden, cells)
        gates = torch.empty_like(inputs)
        outputs, memory, squashed, shown = (gates.new_empty(len(gates), size) for size in (width, inner, inner, inner))
        step, back = packed(recurrent), packed(project)
        parts = gates[:, : 3 * inner], *gates.chunk(4, 1), outputs, memory, squashed, shown
        for from_input, sigmoids, enter, forget, leave, new, output, cell, tanh, seen in _steps(sizes, inputs, *parts):
            size = len(from_input)
            before = product_plus(hidden[:size], step, from_input)  # (sequences, 4 * cells)
            torch.sigmoid(before[:, : 3 * inner], out=sigmoids)
            torch.tanh(before[:, 3 * inner :], out=new)
            cells = torch.mul(cells[:size], forget, out=cell).addcmul_(enter, new)
            _clip(cells, clip)
            torch.mul(torch.tanh(cells, out=tanh), leave, out=seen)
            hidden = output.copy_(product(seen, back))
            _clip(hidden, clip)
        ctx.results, ctx.sizes, ctx.clip = (gates, outputs, memory, squashed, shown), sizes, clip
        ctx.mark_non_differentiable(memory)
        return outputs, memory

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, project, hidden, cells = ctx.saved_tensors
        (gates, outputs, memory, squashed, shown), sizes, clip = ctx.results, ctx.sizes, ctx.clip
        inner = project.shape[1]
        grad = grads[0].clone()  # of the outputs
        grad_gates = torch.empty_like(gates)
        grad_hidden, grad_cells = grad.new_zeros(sizes[0], len(project)), memory.new_zeros(sizes[0], inner)
        before = _shifted(memory, cells, sizes)  # the cells before each step
        parts = gates[:, : 3 * inner], *gates.chunk(4, 1), memory, before, squashed
        grads_of = grad_gates, grad_gates[:, : 3 * inner], *grad_gates.chunk(4, 1)
        steps = zip(_steps(sizes, grad, outputs), _steps(sizes, *parts), _steps(sizes, *grads_of), strict=True)
        for (grad_output, output), (sigmoids, enter, forget, leave, new, cell, previous, tanh), into in reversed(
            list(steps)
        ):
            size = len(grad_output)
            grad_gate, grad_sigmoids, grad_enter, grad_forget, grad_leave, grad_new = into
            grad_shown = product(_stop_clipped(grad_output.add_(grad_hidden[:size]), output, clip), project.t())
            torch.mul(grad_shown, tanh, out=grad_leave)
            carried = grad_cells[:size].add_(tanh_backward(grad_shown.mul_(leave), tanh))
            _stop_clipped(carried, cell, clip)
            torch.mul(carried, new, out=grad_enter)
            torch.mul(carried, previous, out=grad_forget)
            torch.mul(carried, enter, out=grad_new)
            carried.mul_(forget)
            sigmoid_backward(grad_sigmoids, sigmoids, grad_input=grad_sigmoids)
            tanh_backward(grad_new, new, grad_input=grad_new)
            grad_hidden[:size] = product(grad_gate, recurrent.t())
        read = _shifted(outputs, hidden, sizes)
        return grad_gates, grad_gates.t() @ read, grad.t() @ shown, None, None, None, None


def _shifted(rows: Tensor, first: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return for each row that of the same sequence a step earlier, (tokens, any), given those before the first."""
    earlier = [part[:size] for part, size in zip(rows.split(list(sizes)), sizes[1:], strict=False)]  # type: ignore[no-untyped-call]
    return torch.cat([first[: sizes[0]], *earlier])


def _steps(sizes: Sequence[int], *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the rows of each step, of each tensor."""
    return list(zip(*(rows.split(list(sizes)) for rows in tensors), strict=True))  # type: ignore[no-untyped-call]


def _last_rows(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return the row of each sequence's last step, (sequences,)."""
    last = [0] * sizes[0]
    for size, end in zip(sizes, accumulate(sizes), strict=True):
        last[:size] = range(end - size, end)
    return to_device(torch.tensor(last), device)


def _clip(x: Tensor, limit: float | None) -> None:
    if limit is not None:
        x.clamp_(-limit, limit)


def _stop_clipped(grad: Tensor, x: Tensor, limit: float | None) -> Tensor:
    """Set a gradient to 0 where its tensor was clipped, in place."""
    return grad if limit is None else grad.masked_fill_(x.abs() >= limit, 0)
