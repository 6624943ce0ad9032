"""Inference backends: prepared samples in, arrays out.

`TorchBackend` computes with its own copies of the model's modules, in evaluation mode and on the machine's device and
precision. The model itself is never changed, and its weights are shared if neither device nor precision differs.
`run_in_batches` splits samples into batches and returns the rows of each sample. Outputs that are not numbers never
leave a backend.

A backend for decisions computes in bf16 where the largest logit is clear, and in float32 where it is not: its logits
have the largest class of float32, at little more than the cost of bf16. A logit in bf16 is off by a few hundredths, and
most decisions of a trained model have a margin of several units. All samples are computed in bf16, and those with a
smaller margin than `MARGIN` again in float32, beside some that are evenly spaced. This shows how much bf16 is off: if
`SAFETY` times that exceeds the margin, the margin is raised and more samples are computed again.
"""

from __future__ import annotations

import copy
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Batch, Sample, collate, split, total_length
from unmask.nn.encoders.encoder import POOLER, Encoder, Keep, WithPooler, text_vectors
from unmask.nn.layers.block import Block, PreNormBlock
from unmask.nn.layers.linear import Linear
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective
from unmask.support.capabilities import cpu_or_gpu
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.training.machine import INT8, Machine
from unmask.training.runs.display import Display

if TYPE_CHECKING:
    from unmask.model.model import Model

BATCH_TOKENS = {"cpu": 2048, "gpu": 8192}
"""Maximum number of tokens per batch on a device."""
_Module = TypeVar("_Module", bound=nn.Module)
MARGIN = 0.25
"""Difference between the two largest logits from which on a decision is clear at first."""
SAFETY = 3.0
"""Ratio of the margin to the largest error of a difference of two logits that was seen."""
CHECKED = 32
"""Number of evenly spaced samples that are computed in float32 in any case."""


class Backend(Protocol):
    """Interface of the engine that computes a model's outputs.

    Attributes:
        precision: "float32", "bf16", "fp16" or "int8"; the returned arrays are float32 in any case.
        has_layers: whether hidden states can be returned; an exported program may have logits alone.
    """

    @property
    def precision(self) -> str:
        """See the class."""
        ...

    @property
    def has_layers(self) -> bool:
        """See the class."""
        ...

    def has_head(self, head: str) -> bool:
        """Return whether the logits of a head can be returned."""
        ...

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return the logits of a head, (targets, classes), for each sample in the given order.

        Raises:
            UserError: the model has no such head, the head is damaged, or the logits are not numbers.
        """
        ...

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each sample's index and its hidden states, (tokens, layers, width); short samples come first.

        Args:
            samples: inputs of the encoder.
            layers: layer numbers; 0 is the embeddings.
            at: name of the positions whose rows are returned; None returns all tokens.
            pooled: whether to return what heads read instead: vectors of texts, if positions are named, or of tokens;
                they are pooled if the body has a pooler.

        Raises:
            UserError: the hidden states are not numbers.
        """
        ...


class TorchBackend:
    """`Backend` that computes with torch. Heads are built once, on first use.

    Args:
        model: encoder, heads and task; not changed.
        machine: device and precision.
        display: shows the progress of long computations; None shows nothing.
        encoder: `inference_copy` of the encoder of the model, for several models with one encoder; None: it is made.

    Raises:
        UserError: none of the layers can be computed in int8.
    """

    has_layers = True

    def __init__(
        self, model: Model, machine: Machine, display: Display | None = None, *, encoder: Encoder | None = None
    ) -> None:
        self.model = model
        self.machine = machine
        self.display = display or Display(quiet=True)
        self.encoder = inference_copy(model.encoder, machine) if encoder is None else encoder
        if machine.precision == INT8 and not any(part.in_bytes for part in _linears(self.encoder)):
            raise UserError(
                "the model has no layers that can be computed in int8", remedy=f"omit {argument('precision', INT8)}"
            )
        self._learners: dict[str, Learner] = {}
        self._building = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model, self.machine)

    def over(self, model: Model, encoder: Encoder) -> TorchBackend:
        """Return a backend like this one for a model whose `inference_copy` of the encoder is there already."""
        return TorchBackend(model, self.machine, encoder=encoder)

    @property
    def precision(self) -> str:
        """See `Backend`."""
        return self.machine.precision

    def has_head(self, head: str) -> bool:
        """See `Backend`."""
        return head in self.model.heads

    @property
    def _batch_tokens(self) -> int:
        return BATCH_TOKENS[cpu_or_gpu(self.machine.device)]

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """See `Backend`."""
        learner = self.learner(head)
        objective = learner.parts[head]

        def compute(batch: Batch) -> np.ndarray:
            with torch.inference_mode():
                moved = batch.to(self.machine.device)
                encoded = learner.encoder(moved.tokens, Keep(rows=objective.reads(learner.encoder, moved)))
                logits = objective.predict(learner.encoder, encoded, moved)  # (targets, classes)
                return logits.float().cpu().numpy()

        infinite = self.model.task is not None and head == self.model.task.part and self.model.task.infinite
        rows = run_in_batches(samples, compute, objective.at, self._batch_tokens, self.display, infinite=infinite)
        return in_order(rows)

    def learner(self, head: str) -> Learner:
        """Return a head and the body below it; it is built once, also if several threads ask for it.

        Raises:
            UserError: the model has no such head, or the head is damaged.
        """
        with self._building:
            if head not in self._learners:
                self._learners[head] = self._build(head)
            return self._learners[head]

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """See `Backend`."""

        def compute(batch: Batch) -> np.ndarray:
            with torch.inference_mode():
                moved = batch.to(self.machine.device)
                states = self.encoder(moved.tokens, Keep(frozenset(layers))).layers
                if pooled:
                    (last,) = states.values()
                    rows = last if at is None else text_vectors(self.encoder, last, moved)
                    if POOLER in self.encoder.provides:
                        rows = cast(WithPooler, self.encoder).pooler(rows)
                    rows = rows[:, None]  # (tokens or texts, 1, width)
                else:
                    rows = torch.stack([states[layer] for layer in layers], 1)  # (tokens, layers, width)
                    rows = rows if at is None else rows.index_select(0, moved.positions[at])
                return rows.float().cpu().numpy()

        return run_in_batches(samples, compute, at, self._batch_tokens, self.display)

    def _build(self, name: str) -> Learner:
        """Return a learner of the head and the body below it, with the model's tensors.

        Raises:
            UserError: the model has no such head, or the head is damaged.
        """
        task = self.model.task
        with torch.random.fork_rng(devices=()):  # the initial weights are overwritten
            stored = name
            if task is not None and name == task.part:
                body = self.model.body()
                objective: Objective = task.build_on(body, self.model.labels)
                stored = task.head.adopts or name
            else:
                body = self.encoder
                objective = pretraining_objective(self.model, name if name in OBJECTIVES else "masked_lm", body)
        if self.model.take(stored, objective):
            raise UserError(f"this model has no {name} head")
        return Learner(body.over(self.encoder), {name: objective}).to(self.machine.device, self.machine.dtype).eval()


def pretraining_objective(model: Model, name: str, body: Encoder) -> Objective:
    """Return a pretraining objective of the size of the model's head, with newly initialized weights.

    Args:
        model: the model; if it has no such head, the size is the default.
        name: name of the objective.
        body: the body below it.

    Raises:
        UserError: the head is damaged.
    """
    settings = OBJECTIVES[name]
    try:
        sized = settings.of_head(model.heads[name], body.width) if name in model.heads else settings()
    except ValueError as error:
        raise UserError(f"the tensors of the {name} head are damaged ({error})") from error
    return sized.build(BuildContext(body, tokenizer_size=model.tokenizer.size))


def inference_copy(module: _Module, machine: Machine) -> _Module:
    """Return a copy in evaluation mode, on the machine's device and in its precision; the module is not changed.

    If neither differs, the copy shares the module's tensors, so that no weights are in memory twice. On a CPU its
    linear layers also keep their matrices in another order, from the first batch on (`Linear.keeps_packed`); in int8
    those of layers keep bytes.
    """
    tensors = list(chain(module.parameters(), module.buffers()))
    if all(_fits(tensor, machine) for tensor in tensors):
        copied = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors}).eval()
    else:
        copied = copy.deepcopy(module).to(machine.device, machine.dtype).eval()
    for part in copied.modules():
        if isinstance(part, Linear):
            part.keeps_packed = machine.device.type == "cpu"
    if machine.precision == INT8:
        for original, part in zip(_linears(module), _linears(copied), strict=True):
            part.keep_bytes_of(original.weight)
    return copied


def _linears(module: nn.Module) -> Iterator[Linear]:
    """Yield the linear layers of the layers of a Transformer."""
    for block in module.modules():
        if isinstance(block, Block | PreNormBlock):
            yield from (part for part in block.modules() if isinstance(part, Linear))


def run_in_batches(
    samples: Sequence[Sample],
    compute: Callable[[Batch], np.ndarray],
    at: str | None,
    tokens: int,
    display: Display,
    *,
    infinite: bool = False,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each sample's index and its rows of the computed output; short samples come first.

    Samples that are equal are computed once. Only one batch is in memory at a time, unless the caller keeps the rows.

    Args:
        samples: inputs.
        compute: returns the rows of a batch, (positions, ...), in the batch's order.
        at: name of the positions that have a row each; None: all tokens.
        tokens: maximum number of tokens per batch.
        display: shows the progress.
        infinite: whether outputs may be minus infinity.

    Raises:
        UserError: an output is not a number.
    """
    equal = defaultdict[Any, list[int]](list)
    for number, sample in enumerate(samples):
        equal[_content(sample)].append(number)
    copies = {number: others for number, *others in equal.values()}
    distinct = [samples[number].named((number,)) for number in copies]
    for micro_batch in display.count(split(distinct, tokens), total_length) if distinct else ():
        batch = collate(micro_batch)
        numbers = [number for (number,) in batch.keys]
        sizes = [len(samples[n]) if at is None else len(samples[n].positions[at]) for n in numbers]
        parts = np.split(finite(compute(batch), infinite), np.cumsum(sizes)[:-1])
        for number, rows in zip(numbers, parts, strict=True):
            yield number, rows
            yield from ((copy, rows.copy()) for copy in copies[number])


def _content(sample: Sample) -> Any:
    """Return what the output of a sample depends on, as a key."""
    reading = sample.reading
    arrays = {"ids": sample.ids, "segments": sample.segments, "order": reading.order}
    named = [*arrays.items(), *sample.positions.items(), *sample.labels.items()]
    contents = ((name, array.dtype, array.shape, array.tobytes()) for name, array in named if array is not None)
    return *contents, sample.parts, reading.backward, reading.remember


def finite(outputs: np.ndarray, infinite: bool = False) -> np.ndarray:
    """Return outputs of a model, of any shape, after checking that they are numbers.

    Args:
        outputs: the outputs.
        infinite: whether they may be minus infinity.

    Raises:
        UserError: they are not.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = outputs.sum()  # only if it is not finite, each value is looked at
    if not np.isfinite(total) and not (outputs < np.inf if infinite else np.isfinite(outputs)).all():
        raise UserError(
            "the model's outputs are not numbers (overflow)",
            remedy="its weights are damaged or too large: use another checkpoint, or train it again with a lower "
            "optimizer.learning_rate",
        )
    return outputs


def in_order(numbered_rows: Iterable[tuple[int, np.ndarray]]) -> list[np.ndarray]:
    """Return the rows that `run_in_batches` yields, in the order of the samples."""
    return [rows for _, rows in sorted(numbered_rows, key=lambda item: item[0])]


class DecisionBackend:
    """`Backend` for the scores of tasks that depend on the class with the largest logit alone (`Task.decides`).

    Args:
        model: encoder, heads and task; not changed.
        machine: device and the fast precision.
        display: shows the progress of the fast computation.
    """

    has_layers = True

    def __init__(self, model: Model, machine: Machine, display: Display | None = None) -> None:
        self.fast = TorchBackend(model, machine, display)
        self.exact = TorchBackend(model, replace(machine, precision="float32"))

    @property
    def precision(self) -> str:
        """See `Backend`."""
        return self.fast.precision

    def has_head(self, head: str) -> bool:
        """See `Backend`."""
        return self.exact.has_head(head)

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """See `Backend`."""
        all_logits = self.fast.logits(head, samples)
        margins = np.array([margin(logits) for logits in all_logits])
        step = max(1, len(samples) // CHECKED)
        doubtful, clear, known = set(range(0, len(samples), step)), MARGIN, set[int]()
        while doubtful := (doubtful | set(np.flatnonzero(margins < clear).tolist())) - known:
            numbers = sorted(doubtful)
            exact = self.exact.logits(head, [samples[number] for number in numbers])
            for number, logits in zip(numbers, exact, strict=True):
                clear = max(clear, SAFETY * error(all_logits[number], logits))
                all_logits[number] = logits
            known |= doubtful
        return all_logits

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """See `Backend`."""
        return self.fast.layers(samples, layers, at=at, pooled=pooled)


def margin(logits: np.ndarray) -> float:
    """Return the smallest difference between the two largest logits of a target; infinity without targets.

    Shape:
        logits: (targets, classes), with at least two classes.
    """
    largest = np.partition(logits, -2, axis=1)[:, -2:]  # (targets, 2), in order
    return float((largest[:, 1] - largest[:, 0]).min(initial=np.inf))


def error(fast: np.ndarray, exact: np.ndarray) -> float:
    """Return by how much a difference of two logits of a target is off at most.

    Shape:
        fast, exact: (targets, classes).
    """
    apart = fast - exact
    return float((apart.max(1) - apart.min(1)).max(initial=0.0))


def _fits(tensor: Tensor, machine: Machine) -> bool:
    """Return whether a tensor is already on the machine's device and in its precision."""
    return tensor.device == machine.device and (tensor.dtype == machine.dtype or not tensor.is_floating_point())
