"""Computation in 16 bits with float32 weights, and the number of tokens that fit into memory at once.

In bf16 the forward and backward pass run on a working copy of the learner, whose weights, activations and gradients are
bf16, so that nothing is converted between matrix products. The learner itself keeps the float32 weights, which are
rounded into the copy after each step (Micikevicius et al. 2018, section 3.1). Losses are summed in float32.

In fp16 the loss is scaled, dynamically (sections 3.2 and 3.3). Below 6e-8 a number is 0 in fp16, and above 65,504 it is
infinite. Gradients of a loss that is multiplied by a factor are larger by that factor; they are divided by it when the
optimizer reads them in float32. The factor is as large as possible: it is halved when a gradient is infinite, in which
case the step is skipped, and doubled after `PATIENCE` steps without one, as by `torch.amp.GradScaler`. The state is in
the run's progress, and so in checkpoints. In float32 and bf16, whose exponents reach as far as the gradients, the
factor is 1.

How many tokens fit is measured by two trial micro-batches; running out of memory anyway is an error that names the
settings to change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Sample
from unmask.objectives.learner import Learner
from unmask.support.environment import naming_shortage
from unmask.support.messages import argument, setting
from unmask.training.checkpoint import Progress
from unmask.training.machine import Machine

FIRST = 2.0**16
PATIENCE = 2000
LEAST, LARGEST = 1.0, 2.0**24
"""Loss scales: the first one, the finite steps after which it is doubled, and its bounds."""


class Working:
    """Working copy of a learner; in float32 it is the learner itself.

    Args:
        learner: holds the float32 weights and, after `gather`, their gradients.
        machine: machine whose precision is used.

    Attributes:
        written: weights of the copy that the optimizer's step writes. Where a step is one micro-batch, it
            reads their gradients, too.
    """

    def __init__(self, learner: Learner, machine: Machine) -> None:
        self.written: frozenset[Tensor] = frozenset()
        self.learner = learner
        self.copy = learner
        if machine.dtype != torch.float32:
            self.copy = copy.deepcopy(learner).to(machine.dtype)
        self.pairs = list(zip(learner.parameters(), self.copy.parameters(), strict=True))
        self.gradients: dict[
            nn.Parameter, Tensor
        ] = {}  # float32, reused: allocating in each step costs more than adding

    @torch.no_grad()
    def gather(self, *, last: bool = False) -> None:
        """Add the gradients of a micro-batch to the learner's, in float32, and clear them.

        Args:
            last: whether it is the step's last one: what the optimizer reads, and was not added to, stays as it is.
        """
        if self.copy is self.learner:
            return
        copied: tuple[list[Tensor], list[Tensor]] = [], []
        added: tuple[list[Tensor], list[Tensor]] = [], []
        for parameter, working in self.pairs:
            grad, first = working.grad, parameter.grad is None
            if grad is None or (last and first and working in self.written and not grad.is_sparse):
                continue
            working.grad = None
            if parameter.grad is None:
                if parameter not in self.gradients:
                    self.gradients[parameter] = torch.empty_like(parameter)
                parameter.grad = self.gradients[parameter]
            if grad.is_sparse:  # of an embedding that is only used for look-up
                if first:
                    parameter.grad.zero_()
                parameter.grad.index_add_(0, grad._indices()[0], grad._values().float())
            else:
                sums, more = copied if first else added
                sums.append(parameter.grad)
                more.append(grad)
        # all at once: a GPU starts few kernels
        if copied[0]:
            torch._foreach_copy_(*copied)
        if added[0]:
            torch._foreach_add_(*added)

    @torch.no_grad()
    def refresh(self, *, stepped: bool = False) -> None:
        """Copy the learner's weights into the working copy.

        Args:
            stepped: whether nothing but a step of the optimizer has changed them.
        """
        pairs = [pair for pair in self.pairs if not (stepped and pair[1] in self.written)]
        if pairs and self.copy is not self.learner:
            weights, working = zip(*pairs, strict=True)
            torch._foreach_copy_(working, weights)


SMALL, PROBE = 2048, 8192
"""Tokens of the two trial micro-batches. A step of at most `PROBE` tokens is one micro-batch, without trials."""
JOINT = 4 * PROBE
"""A step of at most so many tokens, all of whose sequences are compared, is one micro-batch on a CPU, too."""


def find_micro_tokens(
    samples: Sequence[Sample],
    learn: Callable[[list[Sample]], None],
    machine: Machine,
    *,
    reserve: int,
    joint: bool = False,
    most: int | None = None,
) -> int:
    """Return approximately the largest number of tokens whose forward and backward pass fits, at most two steps' worth.

    On a CPU it is `PROBE` where that fits: larger micro-batches are no faster there, and take several times the memory.
    Joint losses are an exception up to `JOINT`: of them, several micro-batches need one more forward pass (joint.py).

    As long as sequences are no longer than those tried, memory grows linearly with the tokens, so the memory per token
    follows from two micro-batches of different size. Return `PROBE` if the machine does not provide its memory use.

    Args:
        samples: this process's samples of one step, sorted by length; the longest are tried.
        learn: computes the gradient of a micro-batch.
        machine: machine that the trials run on.
        reserve: bytes that will be needed for other purposes.
        joint: whether the loss compares all sequences of a step.
        most: number of tokens of the process that has most, so that all processes try or none; None: of this one.
    """
    whole = sum(map(len, samples)) if most is None else most
    if whole <= PROBE:
        return PROBE
    used, tokens = [], []
    for limit in (SMALL, PROBE):
        micro_batch = _longest(samples, limit)
        measurable = machine.reset_peak_memory()
        learn(micro_batch)
        tokens.append(sum(map(len, micro_batch)))
        used.append(machine.memory())
    per_token = (used[1] - used[0]) / (tokens[1] - tokens[0])
    if not measurable or per_token <= 0:
        return PROBE
    machine.reset_peak_memory()  # also releases the memory of the trials
    available = machine.available_memory() - reserve
    is_whole = machine.device.type != "cpu" or (joint and whole <= JOINT)
    useful = 2 * whole if is_whole else PROBE  # steps of a fixed number of sequences differ in size
    return max(SMALL, min(useful, int(available / per_token)))


def _longest(samples: Sequence[Sample], limit: int) -> list[Sample]:
    chosen: list[Sample] = []
    size = 0
    for sample in reversed(samples):
        if chosen and size + len(sample) > limit:
            break
        chosen.append(sample)
        size += len(sample)
    return chosen


def name_remedy(micro_tokens: int) -> AbstractContextManager[None]:
    """Return a context that converts out-of-memory errors into an error that names the settings to change."""
    return naming_shortage(
        f"with {micro_tokens:,} tokens at once; the newest checkpoint is intact",
        f"continue with {argument('resume', True)} and {setting('batch.micro_tokens', max(1, micro_tokens // 2))}, or "
        f"{setting('batch.recompute', True)}",
    )


class LossScale:
    """The factor of the loss of a run.

    Args:
        precision: "float32", "bf16" or "fp16".
    """

    def __init__(self, precision: str) -> None:
        self.active = precision == "fp16"

    def of(self, progress: Progress) -> float:
        """Return the factor of the next step."""
        return (progress.loss_scale or FIRST) if self.active else 1.0

    def update(self, progress: Progress, *, overflowed: bool) -> bool:
        """Choose the factor of the next step, and return whether a smaller one may help against the overflow."""
        if not self.active:
            return False
        scale = self.of(progress)
        progress.finite_steps = 0 if overflowed else progress.finite_steps + 1
        if overflowed:
            progress.loss_scale = max(LEAST, scale / 2)
        elif progress.finite_steps == PATIENCE:
            progress.loss_scale, progress.finite_steps = min(LARGEST, 2 * scale), 0
        else:
            progress.loss_scale = scale
        return overflowed and scale > LEAST
