"""A layer of an LSTM with projection and clipping, in one direction, over packed sequences.

Hochreiter and Schmidhuber 1997; projection: Sak et al. 2014, section 2; clipping of cells and of projected outputs as
in TensorFlow's `LSTMCell` (`cell_clip`, `proj_clip`), which ELMo was trained with and torch's LSTM lacks. The
recurrence is one autograd function: the products of all inputs are computed at once before it, and in the backward pass
those of the weights' gradients after it.

Rows are packed as torch packs them: ordered by step, in each step by decreasing length of the sequences, so that those
of a sequence that goes on come first. Gates are in the order input, forget, output, new: the first three are sigmoids.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unmask.layers.linear import Linear, product


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

    def forward_flops(self, tokens: int) -> int:
        """Return the operations of its matrix products for a number of tokens."""
        return 2 * tokens * sum(part.weight.numel() for part in (self.input, self.recurrent, self.project))


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
        gates = inputs.clone()
        outputs, memory, shown = (gates.new_empty(len(gates), size) for size in (width, inner, inner))
        for rows in _steps(sizes):
            size = rows.stop - rows.start
            gate = gates[rows].add_(product(hidden[:size], recurrent))
            gate[:, : 3 * inner].sigmoid_()
            gate[:, 3 * inner :].tanh_()
            enter, forget, leave, new = gate.chunk(4, 1)
            cells = torch.mul(cells[:size], forget, out=memory[rows]).addcmul_(enter, new)
            _clip(cells, clip)
            torch.mul(cells.tanh(), leave, out=shown[rows])
            hidden = outputs[rows].copy_(product(shown[rows], project))
            _clip(hidden, clip)
        ctx.results, ctx.sizes, ctx.clip = (gates, outputs, memory, shown), sizes, clip
        ctx.mark_non_differentiable(memory)
        return outputs, memory

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, project, hidden, cells = ctx.saved_tensors
        (gates, outputs, memory, shown), sizes, clip = ctx.results, ctx.sizes, ctx.clip
        inner = project.shape[1]
        grad = grads[0].clone()  # of the outputs
        grad_gates = torch.empty_like(gates)
        grad_hidden, grad_cells = grad.new_zeros(sizes[0], len(project)), memory.new_zeros(sizes[0], inner)
        steps = _steps(sizes)
        for number in reversed(range(len(steps))):
            rows = steps[number]
            size = rows.stop - rows.start
            own = _stop_clipped(grad[rows].add_(grad_hidden[:size]), outputs[rows], clip)
            enter, forget, leave, new = gates[rows].chunk(4, 1)
            grad_gate = grad_gates[rows]
            grad_enter, grad_forget, grad_leave, grad_new = grad_gate.chunk(4, 1)
            grad_shown, squashed = product(own, project.t()), memory[rows].tanh()
            torch.mul(grad_shown, squashed, out=grad_leave)
            carried = grad_cells[:size].addcmul_(grad_shown.mul_(leave), squashed.square_().neg_().add_(1))
            _stop_clipped(carried, memory[rows], clip)
            torch.mul(carried, new, out=grad_enter)
            torch.mul(carried, memory[steps[number - 1]][:size] if number else cells[:size], out=grad_forget)
            torch.mul(carried, enter, out=grad_new)
            carried.mul_(forget)
            sigmoids = gates[rows, : 3 * inner]
            grad_gate[:, : 3 * inner].mul_(sigmoids).mul_(1 - sigmoids)
            grad_new.mul_(1 - new.square())
            grad_hidden[:size] = product(grad_gate, recurrent.t())
        before = torch.cat(
            [hidden[: sizes[0]], *(outputs[rows][:size] for rows, size in zip(steps, sizes[1:], strict=False))]
        )
        return grad_gates, grad_gates.t() @ before, grad.t() @ shown, None, None, None, None


def _steps(sizes: Sequence[int]) -> list[slice]:
    """Return the rows of each step."""
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _last_rows(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return the row of each sequence's last step, (sequences,)."""
    last = [0] * sizes[0]
    for rows in _steps(sizes):
        last[: rows.stop - rows.start] = range(rows.start, rows.stop)
    return torch.tensor(last, device=device)


def _clip(x: Tensor, limit: float | None) -> None:
    if limit is not None:
        x.clamp_(-limit, limit)


def _stop_clipped(grad: Tensor, x: Tensor, limit: float | None) -> Tensor:
    """Set a gradient to 0 where its tensor was clipped, in place."""
    return grad if limit is None else grad.masked_fill_(x.abs() >= limit, 0)
