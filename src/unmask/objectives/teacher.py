"""A teacher: a model that objectives learn from, which is not trained, saved or copied.

Input: the batches that the student reads. Output: the encoder's hidden states and attention scores, and the predictions
of its heads, in evaluation mode and without graph. However many objectives ask, it reads a batch once.

It is not an `nn.Module`, so it is not a submodule of the objectives that hold it: its weights are not in
`parameters()`, `state_dict()`, the optimizer or checkpoints, `train()` does not affect it, and the bf16 copy of a
learner shares it. `fingerprint` identifies it.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.data.batches.tokens import Tokens
from unmask.nn.encoders.encoder import NOTHING, Encoded, Encoder, Keep
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint, fingerprint_values

if TYPE_CHECKING:
    from unmask.objectives.learner import Learner
    from unmask.objectives.objective import Distributions

TEACHER = "a teacher"
"""What objectives ask for that learn from a teacher; `unmask distill` gives it."""


class Teacher:
    """See the module.

    Args:
        learner: the encoder, and the heads whose predictions objectives learn from; it is put into evaluation mode, and
            its weights are frozen.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner.eval().requires_grad_(requires_grad=False)
        self._asked: dict[str, Keep] = {}
        self._finite: Tensor | None = None
        self._read: tuple[Tokens, Keep, Encoded] | None = None

    @property
    def encoder(self) -> Encoder:
        """Its encoder."""
        return self.learner.encoder

    def ask(self, name: str, keep: Keep) -> None:
        """Keep these inner results for the objective of this name, in batches that were prepared for it."""
        self._asked[name] = keep

    def has(self, name: str) -> bool:
        """Return whether it has a head of this name."""
        return name in self.learner.parts

    @torch.no_grad()
    def read(self, batch: Batch) -> Encoded:
        """Return what the encoder computes of a batch; the last one is remembered.

        Raises:
            UserError: the hidden states are not numbers.
        """
        keep: Keep = reduce(or_, (keep for name, keep in self._asked.items() if name in batch.counts), NOTHING)
        if self._read is None or self._read[0] is not batch.tokens or self._read[1] != keep:
            self._read = None  # frees the previous one first
            self._read = batch.tokens, keep, self.encoder(batch.tokens, keep)
            self._check(self._read[2].last)
        return self._read[2]

    @torch.no_grad()
    def predict(self, name: str, batch: Batch) -> Distributions | Tensor:
        """Return the logits of a head, (targets, classes), or if they are over the vocabulary, the distributions.

        Raises:
            UserError: they are not numbers.
        """
        head, read = self.learner.parts[name], self.read(batch)
        decoding = head.decoding(self.encoder, read, batch)
        if decoding is not None:
            self._check(decoding.rows)
            return decoding
        logits = head.predict(self.encoder, read, batch)
        self._check(logits)
        return logits

    def check(self) -> None:
        """Raise a `UserError` if outputs that a device has computed since it was last asked were not numbers."""
        if self._finite is not None:
            _raise_unless(self._finite)

    def _check(self, outputs: Tensor) -> None:
        """Check outputs, at once on a CPU; a device is asked only if the loss, too, is no number."""
        finite = _are_numbers(outputs)
        if outputs.is_cpu:
            _raise_unless(finite)
        else:
            self._finite = finite if self._finite is None else self._finite & finite

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Teacher:
        """Move the weights in place. `Module.to` of the objective does not move them, so call this once on creation."""
        self.learner.to(device, dtype)
        return self

    def fingerprint(self) -> str:
        """Return the sha256 of everything that its predictions depend on: weights, and settings of the encoder."""
        return fingerprint_values([fingerprint(self.learner.state_dict()), self.encoder.settings])

    def __deepcopy__(self, memo: dict[int, object]) -> Teacher:
        return self


def check_numbers(outputs: Tensor) -> None:
    """Raise an error if outputs of a teacher, of any shape, are not numbers; logits may be minus infinity."""
    _raise_unless(_are_numbers(outputs))


def _are_numbers(outputs: Tensor) -> Tensor:
    return (outputs < math.inf).all()


def _raise_unless(finite: Tensor) -> None:
    if not bool(finite):
        raise UserError(
            "the teacher's outputs are not numbers (overflow)",
            remedy="its weights are damaged or too large: use another teacher",
        )
