"""Multiple choice: one softmax over the [CLS] of each choice; all parameters are tuned (Devlin et al. 2019, 4.4).

Input: questions with their choices. Output: samples, the head with its loss, the chosen choice.

Each choice is a sequence: [CLS] passage [SEP] question choice [SEP], of SWAG the first sentence and the continued
second one, of RACE the article and the question with an option. The dot product of a vector with the pooled [CLS] is
its score. In training the sequences of a question are one sample, so that they are in one batch (`Sample.parts`). The
longer of the two texts is truncated at its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.data.labelled.choices_file import FORMS, Choices, read_choices
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.objectives.objective import Part
from unmask.support.errors import UserError, check_unicode, refuse_idle
from unmask.support.messages import argument
from unmask.support.model_card import Card
from unmask.tasks.extraction import choose_passages
from unmask.tasks.mistakes import Mistake, Passage
from unmask.tasks.pooled_head import PooledHead
from unmask.tasks.routes import ChooseRequest, Route
from unmask.tasks.rows import frame_rows
from unmask.tasks.task import Columns, Framed, Notes, Paths, Reason, Refusals, Task

LABEL = "multiple_choice"
"""Name of the label that tells whether a sequence has the right choice."""


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question with the chosen choice.

    Attributes:
        id: the id as given.
        choice, text: the index of the most probable choice, from 0, and its text.
        probabilities: the probability of each choice.
        cut: whether a choice was truncated because it exceeds the task's `length`.
    """

    id: str
    choice: int
    text: str
    probabilities: tuple[float, ...]
    cut: bool = False


CHOOSE = Route(
    "/choose",
    "Choose the text that fits a passage, or answers a question about it.",
    ChooseRequest,
    Chosen,
    lambda task, request: [task.pose(request.passage, request.choices, request.question)],
    lambda task, request, predictions, outputs: predictions[0],
    f"{argument('passage')}, {argument('question')} or {argument('choices')}: a text has characters that cannot be "
    "encoded",
    {"passage": "Eve lives in Rome.", "question": "Where does Eve live?", "choices": ["In Rome.", "In Paris."]},
    view="choose",
)
"""The route of tasks that choose among texts."""


class MultipleChoice(Task, frozen=True, kw_only=True, tag="multiple-choice"):
    """The recipe's [task] for `kind = "multiple-choice"`; see `Task`."""

    part = "multiple_choice"
    metric = "accuracy"
    card = Card(
        title="A choice among several texts",
        pipeline="multiple-choice",
        usage={"passage": "A text.", "choices": ["An end.", "Another."]},
    )
    route = CHOOSE
    refusals: ClassVar[Refusals] = {
        "frozen": Reason("multiple choice does not work with a frozen encoder", f"omit {argument('frozen')}")
    }

    @property
    def grouped(self) -> str:
        """See `Task`: the choices of a question."""
        return "texts"

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Choices]:
        """See `Task`."""
        refuse_idle(f": choices are read in the format of {FORMS}", columns=columns, format=kind)
        return read_choices(paths, gold=gold)

    def pose(self, passage: str, choices: Sequence[str], question: str = "") -> Choices:
        """Return a question, asked from a program or a command line, as an example.

        Raises:
            UserError: a text is empty, or there are fewer than two choices.
        """
        check_unicode((passage, question, *choices))
        if isinstance(choices, str) or len(choices) < 2:
            raise UserError("there are fewer than two choices", remedy="give two or more")
        if not passage.strip() or not all(choice.strip() for choice in choices):
            raise UserError("the passage or a choice is empty", remedy="give all of them")
        return Choices("", passage, question, tuple(choices))

    def label_names(self, examples: Sequence[Choices]) -> tuple[str, ...]:
        """See `Task`: none."""
        return ()

    def texts(self, example: Choices) -> tuple[str, ...]:
        """See `Task`."""
        return example.passage, example.question, *example.choices

    def choose_held(
        self, examples: Sequence[Choices], identities: Identities, seed: int, notes: Notes = None
    ) -> np.ndarray:
        """See `Task`: a tenth of the passages, with all their questions."""
        return choose_passages(examples, seed)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> MultipleChoiceHead:
        """See `Task`."""
        return MultipleChoiceHead(spec, 1, bias=spec.bias)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Choices], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: with `gold`, a sample per question; otherwise, one per choice."""
        rows = [
            Row({"text": example.passage, "text_b": text}, example.file, 0)
            for example in examples
            for text in _seconds(example)
        ]
        samples, cut, notes = frame_rows(tokenizer, rows, self.length, pairs=True)
        ends = np.cumsum([0, *(len(example.choices) for example in examples)])
        parts = [slice(start, end) for start, end in itertools.pairwise(ends)]

        def read(logits: Sequence[np.ndarray]) -> list[Chosen]:
            scores = [np.concatenate(logits[part])[:, 0] for part in parts]
            return [
                _chosen(example, values, any(cut[part]))
                for example, values, part in zip(examples, scores, parts, strict=True)
            ]

        return Framed(_grouped(samples, examples, parts) if gold else samples, read, notes)

    def measure(self, examples: Sequence[Choices], predictions: Sequence[Chosen], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        pairs = zip(examples, predictions, strict=True)
        right = np.array([example.gold == prediction.choice for example, prediction in pairs])
        return lambda chosen: {"accuracy": 100 * float(right[chosen].mean())}

    def details(
        self, examples: Sequence[Choices], predictions: Sequence[Chosen], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the accuracy of each part of the data set, if it has several."""
        measure, parts = self.measure(examples, predictions, labels), np.array([example.part for example in examples])
        by_type = {name: measure(np.flatnonzero(parts == name)) for name in sorted(set(parts.tolist()))}
        return {"by_type": by_type} if len(by_type) > 1 else {}

    def labelled(self, examples: Sequence[Choices], predictions: Sequence[Chosen]) -> list[Choices]:
        """See `Task`."""
        pairs = zip(examples, predictions, strict=True)
        return [msgspec.structs.replace(example, gold=prediction.choice) for example, prediction in pairs]

    def mistakes(
        self, examples: Sequence[Choices], predictions: Sequence[Chosen], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: wrong choices, by their probability."""
        return [
            Mistake(
                (
                    Passage(example.passage, "passage"),
                    *([Passage(example.question, "question")] if example.question else ()),
                ),
                caption=f"{example.file}: {example.id}",
                score=guess.probabilities[guess.choice],
                measure="probability",
                gold=example.choices[example.gold or 0],
                predicted=guess.text,
                probabilities=dict(zip(example.choices, guess.probabilities, strict=True)),
            )
            for example, guess in zip(examples, predictions, strict=True)
            if guess.choice != example.gold
        ]

    def line(self, prediction: Chosen) -> str:
        """See `Task`."""
        return f"{prediction.choice}\t{prediction.probabilities[prediction.choice]:.3f}\t{prediction.text}"


class MultipleChoiceHead(PooledHead):
    """Head of multiple choice with its loss: the cross-entropy of each question, over its choices."""

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        logits = self.predict(encoder, encoded, batch).squeeze(1).float()  # (sequences,)
        right, group = batch.labels[LABEL], batch.labels[GROUP]  # (sequences,) each
        others = group[:, None] != group[None]  # (sequences, sequences)
        table = logits.expand(len(logits), -1).masked_fill(others, -torch.inf)  # a row per sequence: its question's
        loss = ((table.logsumexp(1) - logits) * right).sum()
        best: Tensor = table.detach().argmax(1) == torch.arange(len(logits), device=logits.device)
        return Part(loss, {"accuracy": (best & right.bool()).sum()})


def _grouped(samples: Sequence[Sample], examples: Sequence[Choices], parts: Sequence[slice]) -> list[Sample]:
    """Return a sample per question."""
    made = []
    for number, (example, part) in enumerate(zip(examples, parts, strict=True)):
        right = np.arange(len(example.choices)) == example.gold
        made.append(Sample.joined(samples[part], {LABEL: right.astype(np.int64)}).named((0, number)))
    return made


def _seconds(example: Choices) -> list[str]:
    """Return the second text of each choice's sequence."""
    return [f"{example.question} {choice}".strip() for choice in example.choices]


def _chosen(example: Choices, logits: np.ndarray, cut: bool) -> Chosen:
    probabilities = torch.from_numpy(logits).double().softmax(0).tolist()
    best = int(logits.argmax())
    return Chosen(example.id, best, example.choices[best], tuple(probabilities), cut)
