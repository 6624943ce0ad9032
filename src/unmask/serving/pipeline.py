"""Text in, answers out: a model ready for use, without any file or network around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch

from unmask.batches.batch import Batch, Sample, collate, split
from unmask.batches.frame import Frame
from unmask.errors import UserError
from unmask.model import Model, load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import Objective
from unmask.tasks import classification
from unmask.training.machine import Machine, choose_machine

PIECE_TOKENS = 8192
"""How many tokens are in memory at once."""


class Prediction(msgspec.Struct, frozen=True):
    """A classified text.

    Attributes:
        text: as given.
        label: the most probable one.
        scores: probability of each label, in the model's order.
    """

    text: str
    label: str
    scores: dict[str, float]


class Candidate(msgspec.Struct, frozen=True):
    """What may stand at a mask: a piece as it stands in the vocabulary, and its probability."""

    token: str
    probability: float


class Mask(msgspec.Struct, frozen=True):
    """A mask of a text.

    Attributes:
        position: the character where it starts.
        candidates: the most probable first.
    """

    position: int
    candidates: list[Candidate]


class Filling(msgspec.Struct, frozen=True):
    """A text with masks, as given, and what may stand there."""

    text: str
    masks: list[Mask]


class Pipeline:
    """A loaded model: `predict` classifies, `fill` fills masks.

    Args:
        model: encoder, tokenizer, heads.
        machine: device and precision; None: float32 on the best device.
    """

    def __init__(self, model: Model, machine: Machine | None = None) -> None:
        self.model = model
        self.machine = machine or choose_machine(precision="float32")
        self.encoder = model.encoder.to(self.machine.device, self.machine.dtype).eval()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of `predict`, in order; empty where the model is no classifier."""
        return self.model.labels

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """Classify texts; longer ones than the model was trained on are cut at their end.

        Raises:
            UserError: the model has no classification head.
        """
        if not self.labels:
            raise UserError(
                "this model has no classification head",
                remedy="train one: unmask finetune classification --model MODEL --train FILE --out RUN",
            )
        texts = [texts] if isinstance(texts, str) else texts
        head = classification.Classification(self.encoder.settings, len(self.labels))
        self.model.take("classification", head)
        samples = classification.samples(self.model.tokenizer, texts, self.model.length)
        found: list[Prediction | None] = [None] * len(texts)
        for batch, logits in self._run(head, "classification", samples):
            for (_, number), row in zip(batch.keys, torch.softmax(logits, 1).tolist(), strict=True):
                scores = dict(zip(self.labels, row, strict=True))
                found[number] = Prediction(texts[number], max(scores, key=lambda label: scores[label]), scores)
        return [prediction for prediction in found if prediction]

    def fill(self, texts: Sequence[str], *, top: int = 5) -> list[Filling]:
        """Say what may stand at each mask of each text.

        Raises:
            UserError: the model has no masked-LM head, a text has no mask, or is too long.
        """
        if top < 1:
            raise UserError(f"{top} candidates cannot be shown", remedy="pass --top 1 or more")
        texts = [texts] if isinstance(texts, str) else texts
        head = MaskedLM(self.encoder.settings, self.encoder.vocabulary)
        if not self.model.take("masked_lm", head):
            raise UserError(
                "this model has no masked-LM head (fine-tuned models have none)",
                remedy="take a pretrained one, or adapt it: unmask pretrain RECIPE --init MODEL",
            )
        masks = [self._masks(text) for text in texts]
        samples = [sample.named((number,)) for number, (_, sample) in enumerate(masks)]
        found: list[Filling | None] = [None] * len(texts)
        for batch, logits in self._run(head, "masked_lm", samples):
            logits[:, self.model.tokenizer.size :] = -torch.inf  # rows that pad the table have no piece
            chances, ids = torch.softmax(logits, 1).topk(min(top, self.model.tokenizer.size))
            rows = iter(zip(chances.tolist(), ids.tolist(), strict=True))
            for (number,) in batch.keys:
                filled = [Mask(place, self._candidates(*next(rows))) for place in masks[number][0]]
                found[number] = Filling(texts[number], filled)
        return [filling for filling in found if filling]

    def _masks(self, text: str) -> tuple[list[int], Sample]:
        """Find a text's masks: their characters, and the sample with its hidden positions."""
        tokenizer = self.model.tokenizer
        ids = tokenizer.encode(text.replace("[MASK]", tokenizer.mask_token))
        hidden = np.flatnonzero(ids == tokenizer.mask)
        if not len(hidden):
            raise UserError(f"no mask in '{text[:60]}'", remedy=f"write {tokenizer.mask_token} where a word is missing")
        if len(ids) + 2 > self.encoder.longest:
            raise UserError(
                f"'{text[:40]}…' has {len(ids) + 2} tokens, the model reads {self.encoder.longest}", remedy="shorten it"
            )
        sample = Frame(tokenizer.cls, tokenizer.sep).wrap(ids)
        sample = sample.add(positions={"hidden": hidden + 1})
        # the mask may be written in two ways: count occurrences in the text as given
        places = [match.start() for match in re.finditer(f"{re.escape(tokenizer.mask_token)}|\\[MASK\\]", text)]
        return places, sample

    def _run(self, head: Objective, name: str, samples: Sequence[Sample]) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Give each piece's batch and logits (targets, classes), in float32 on the CPU."""
        learner = Learner(self.encoder, {name: head}).to(self.machine.device, self.machine.dtype).eval()
        for piece in split(samples, PIECE_TOKENS) if samples else ():
            batch = collate(piece)
            with torch.inference_mode():
                encoded = learner.encoder((moved := batch.to(self.machine.device)).tokens)
                yield batch, head.predict(learner.encoder, encoded, moved).float().cpu()

    def _candidates(self, chances: Sequence[float], ids: Sequence[int]) -> list[Candidate]:
        pieces = self.model.tokenizer.pieces(ids)
        return [Candidate(piece, chance) for piece, chance in zip(pieces, chances, strict=True)]


def load(
    source: str | Path, *, allow_pickle: bool = False, device: str = "auto", precision: str = "float32"
) -> Pipeline:
    """Load MODEL (a run or a Hugging Face directory) for use.

    Args:
        source: the directory.
        allow_pickle: read a `pytorch_model.bin`, tensors only.
        device: "cpu", "cuda" or "auto".
        precision: "float32", "bf16", or "auto": bf16 where the hardware multiplies it.

    Raises:
        UserError: no such model, or a damaged one.
    """
    return Pipeline(load_model(source, allow_pickle=allow_pickle), choose_machine(device, precision))
