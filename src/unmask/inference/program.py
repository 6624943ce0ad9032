"""A model with one of its heads as a single function of padded tensors, for export.

Input: token ids, a mask of real tokens and segment ids, (batch, length) int64 each, as in transformers. Output: logits
of whole texts, (batch, classes), or of tokens, (batch, length, classes); without a head, the last layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from unmask.data.batches.batch import TARGETS, Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.inference.backend import TorchBackend
from unmask.nn.encoders.encoder import CARRY, Encoder
from unmask.nn.encoders.stored import padded_tokens
from unmask.objectives.objective import Objective
from unmask.support.errors import UserError
from unmask.support.messages import argument

if TYPE_CHECKING:
    from unmask.model.model import Model

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SUMMARY = "summary"
FEATURES = "features"
"""Name of the output without a head."""
LENGTHS = (3, 4, 7, 12, 20, 33, 60, 128)
"""Lengths of the random sequences that an exported model is checked with; of each there are two."""


class Program(nn.Module):
    """See the module.

    Args:
        body: the encoder, or the downstream model on it.
        head: the head; None: the last layer is returned.
    """

    def __init__(self, body: Encoder, head: Objective | None) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """See the module; padding is at the end of each row."""
        batch, length = input_ids.shape
        tokens = padded_tokens(input_ids, attention_mask != 0, token_type_ids)
        if self.head is None:
            return self.body(tokens).last.view(batch, length, -1)
        starts = torch.arange(batch, device=input_ids.device) * length
        summary = starts if self.body.head.summary == "first" else starts + attention_mask.sum(1) - 1
        every = torch.arange(batch * length, device=input_ids.device)
        positions = {self.head.at: every, SUMMARY: summary}
        encoded = self.body(tokens, self.head.keep)
        logits = self.head.predict(self.body, encoded, Batch((), tokens, positions, {}, {}))
        return logits if self.head.at == SUMMARY else logits.view(batch, length, -1)


class ProgramSignature(msgspec.Struct, frozen=True):
    """What a program computes.

    Attributes:
        head: name of the head; `FEATURES` without one.
        at: name of the positions that have a row of output each; "" without a head: all tokens.
    """

    head: str
    at: str

    @property
    def per_text(self) -> bool:
        """Whether there is one row per text."""
        return self.at == SUMMARY


def build_program(model: Model, backend: TorchBackend, head: str) -> tuple[Program, ProgramSignature]:
    """Return a model as a program, which shares the tensors of a backend in float32.

    Args:
        model: the model.
        backend: its backend.
        head: name of the head, or `FEATURES`.

    Raises:
        UserError: this model or head cannot be a program; the message says why.
    """
    if CARRY in model.encoder.provides:
        raise UserError(
            "a recurrent model such as ELMo cannot be exported: its loop over the tokens depends on their number",
            remedy=f"for AllenNLP, pass {argument('format', 'allennlp')}",
        )
    if head == FEATURES:
        return Program(backend.encoder, None).eval(), ProgramSignature(FEATURES, "")
    learner = backend.learner(head)
    objective = learner.parts[head]
    if objective.at == TARGETS:
        raise UserError(
            "this head predicts tokens by queries beside the text, which an exported program does not have",
            remedy=f"export the hidden states: {argument('head', 'features')}",
        )
    return Program(learner.encoder, objective).eval(), ProgramSignature(head, objective.at)


def default_head(model: Model) -> str:
    """Return the head to export: that of the task, else the masked-LM head, else `FEATURES`."""
    if model.task is not None:
        return model.task.part
    return "masked_lm" if "masked_lm" in model.heads else FEATURES


def probes(model: Model, signature: ProgramSignature) -> list[Sample]:
    """Return random texts and pairs to compare two backends of a model with, with an output at every token or text."""
    rng, frame, longest = np.random.default_rng(0), Frame.of(model.tokenizer), model.encoder.longest
    made = list[Sample]()
    for length, texts in ((min(length, longest), texts) for texts in (1, 2) for length in LENGTHS):
        ids = rng.integers(model.tokenizer.size, size=max(texts, frame.capacity(length, texts)))
        sample = frame.wrap(*np.array_split(ids, texts))
        every = {} if signature.at in ("", SUMMARY) else {signature.at: np.arange(len(sample))}
        made.append(sample.add(positions=every).named((len(made),)))
    return made
