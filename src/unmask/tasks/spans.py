"""Entities that may be nested or overlap: every span of words up to a maximum width is classified.

Input: texts with spans, or sentences of tagged words (`data.labelled.annotations`). Output: samples, the head with its
loss, entities.

A span is read from the vectors of its first and of its last word, and a learned embedding of its width (Lee et al.
2017, section 3.1; Zhong and Chen 2021, section 3.2). One softmax decides on its type or on none, as in Zhong and Chen
2021, Eberts and Ulges 2020 (section 3.1) and Yu et al. 2020 (section 3), whose results on nested entities it is known
from. All spans are trained on: their scores cost little beside the encoder, and a sample of the negative ones (Eberts
and Ulges 2020: 100 per sentence) would shift the probabilities.

Differs from Zhong and Chen 2021: the head has one hidden layer instead of two, so that the product with the vectors of
words is computed once per word rather than once per span; the sentences around a sentence are not read. As in Yu et al.
2020, where entities do not overlap, the most probable ones of those that do are predicted.

A long sentence is divided into windows, as in token classification. A span is trained on and predicted in the window of
its first word; spans that are too wide, or end beyond that window, are missed, and counted in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, pad
from torch.utils.checkpoint import checkpoint

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import token_classification as metrics
from unmask.metrics.intervals import Measure
from unmask.metrics.token_classification import Chunk
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec, token_vectors
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.objectives.flops import head_flops, matrices
from unmask.objectives.objective import Objective, Part, imitate_softmax
from unmask.support.errors import ShareNote, UserError, counted
from unmask.support.model_card import Card
from unmask.tasks.entity_task import EntityTask, encode_words, in_code_points
from unmask.tasks.tagged import Entity, Tagged, WordWindow, cut_windows, in_words
from unmask.tasks.task import Framed, Reason, Refusals, Training
from unmask.tasks.tuning import softmax

NO_ENTITY = "O"
"""The first label: the span is no entity."""
TRAINED = "trained_spans"
"""Name of the label with the spans that are trained on, among all."""
UNTRAINED = -100
"""Label of what is no span of the window: it would end after its last word, or begins in another window."""
USUAL, COVERED = 8, 0.99
"""Maximum width as in Zhong and Chen 2021, and the share of entities for which spans may be wider."""
HIDDEN = 256
"""Width of the hidden layer."""
BLOCK = 1 << 14
"""Number of spans whose hidden layer is in memory at once."""


class Spans(EntityTask, frozen=True, kw_only=True, tag="spans"):
    """The recipe's [task] for `kind = "spans"`; see `EntityTask`.

    Attributes:
        width: maximum number of words of a span; None: that of a model that is trained further, otherwise at most 8, or
            what 99 % of the training entities need.
        nested: whether entities that overlap are predicted; None: whether any of the training entities do.
    """

    width: int | None = None
    nested: bool | None = None

    overlapping = True
    part = "spans"
    metric = "f1"
    comparable = metrics.NAMES_WITH_MACRO
    card = Card(title="A recognizer of nested entities", pipeline="token-classification")
    training = Training(rate=2.0, epochs=4, steps=200, inherited=("width",))
    refusals: ClassVar[Refusals] = {
        "export": Reason(
            "spans are of words, which an exported program does not know", "export token-classification instead"
        )
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and self.width < 1:
            raise ValueError("width must be at least 1")

    def label_names(self, examples: Sequence[TaggedSentence]) -> tuple[str, ...]:
        """See `Task`: O, for no entity, then the types in alphabetical order."""
        kinds = {chunk.type for sentence in examples for chunk in sentence.chunks}
        if not kinds or NO_ENTITY in kinds:
            none = f"there is no entity in {counted(len(examples), 'text')}"
            what = f"a span has the label '{NO_ENTITY}'" if kinds else none
            raise UserError(what, file=examples[0].file, remedy="is it the right column?")
        return (NO_ENTITY, *sorted(kinds))

    def labels_of(self, example: TaggedSentence) -> tuple[str, ...]:
        """See `Task`: the types of the entities."""
        return tuple(chunk.type for chunk in example.chunks)

    def classes(self, labels: Sequence[str]) -> set[str]:
        """See `Task`: the types of entities."""
        return set(labels) - {NO_ENTITY}

    def settle(self, examples: Sequence[TaggedSentence], labels: Sequence[str]) -> Spans:
        """See `Task`: the maximum width, and whether entities overlap."""
        widths = [chunk.stop - chunk.start for sentence in examples for chunk in sentence.chunks] or [1]
        needed = int(np.quantile(widths, COVERED, method="inverted_cdf"))
        width = min(max(widths), max(USUAL, needed)) if self.width is None else self.width
        nested = any(map(_overlap, examples)) if self.nested is None else self.nested
        return msgspec.structs.replace(self, width=width, nested=nested)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> SpanHead:
        """See `Task`."""
        return SpanHead(spec, len(labels), self._width)

    @property
    def _width(self) -> int:
        return USUAL if self.width is None else self.width

    def frame(
        self, tokenizer: Tokenizer, examples: Sequence[TaggedSentence], labels: Sequence[str], *, gold: bool
    ) -> Framed:
        """See `Task`: one sample per window."""
        frame, subwords = Frame.of(tokenizer), encode_words(tokenizer, examples)
        capacity = frame.capacity(self.length, texts=1)
        samples: list[Sample] = []
        windows: list[_Window] = []
        missed = 0
        for number, sentence in enumerate(examples):
            ids = [subwords[word][:capacity] for word in sentence.words]  # one array (subwords,) per word
            sizes = np.array([len(subword_ids) for subword_ids in ids], np.int64)
            numbered = _numbered(sentence, labels) if gold else []
            for cut in cut_windows(sizes, capacity):
                window = _Window.of(cut, number, self._width)
                within = sizes[cut.start : cut.stop]
                first = frame.start + np.cumsum(within) - within
                sample = frame.wrap(np.concatenate(ids[cut.start : cut.stop])).named((0, len(samples)))
                sample = sample.add(positions={"first": first[window.first - cut.start : window.stop - cut.start]})
                if gold:
                    targets, without = window.targets(numbered, self._width)
                    sample, missed = sample.add(labels={"spans": targets.reshape(-1)}), missed + without
                samples.append(sample)
                windows.append(window)

        def read(logits: Sequence[np.ndarray]) -> list[Tagged]:
            chunks: list[dict[Chunk, float]] = [{} for _ in examples]
            for window, rows in zip(windows, logits, strict=True):
                chunks[window.owner] |= window.read(rows, labels)
            return [_tagged(*pair, nested=self.nested is not False) for pair in zip(examples, chunks, strict=True)]

        empty = sum(not sentence.starts for sentence in examples)
        notes = [ShareNote(empty, len(examples), "texts are empty")] if empty else []
        if missed:
            total = sum(len(sentence.chunks) for sentence in examples)
            limits = f"{counted(self._width, 'word')} (task.width), or {counted(self.length, 'token')} (task.length)"
            notes.append(ShareNote(missed, total, f"entities are longer than {limits} and cannot be found"))
        words = (subwords[word] for sentence in examples for word in sentence.words)
        return Framed(samples, read, (*notes, *tokenizer.notes(words, (sentence.text for sentence in examples))))

    def measure(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> Measure:
        """See `Task`: an entity is correct if its type, its first and its last word are."""
        return metrics.measure_with_macro(*_gold_and_predicted(examples, predictions, labels))

    def details(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scores of each type of entity."""
        return {"by_type": metrics.by_type(*_gold_and_predicted(examples, predictions, labels))}

    def labelled(self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]) -> list[TaggedSentence]:
        """See `Task`."""
        return [
            replace(sentence, tags=(), spans=tuple(in_words(sentence, prediction)))
            for sentence, prediction in zip(examples, predictions, strict=True)
        ]


class SpanHead(Objective):
    """Classifier of spans of words, with its loss.

    Args:
        spec: the properties of the body under the head.
        num_labels: number of labels, the first of which is that of no entity.
        max_width: maximum number of words of a span.
    """

    at = "first"

    def __init__(self, spec: HeadSpec, num_labels: int, max_width: int) -> None:
        super().__init__()
        self.num_labels = num_labels
        self.dropout = Dropout(spec.token_dropout)
        self.start = Linear(spec.width, HIDDEN)
        self.end = Linear(spec.width, HIDDEN, bias=False)
        self.width = nn.Embedding(max_width, HIDDEN)
        self.out = Linear(HIDDEN, num_labels)
        replace(spec.init, std=HIDDEN**-0.5)(self)  # with that of encoders, two layers hardly learn at first

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per span."""
        return sample.add(counts={name: int((sample.labels["spans"] != UNTRAINED).sum())})

    def plan(self, batch: Batch) -> Batch:
        """See `Objective`; finds the spans that are trained on."""
        return replace(batch, labels={**batch.labels, TRAINED: _trained(batch)})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions["first"]

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits of all spans by their first word, (words, widths * labels).

        Those of spans that would end beyond the last word of a sequence have no meaning.
        """
        rows = self.dropout(token_vectors(encoder, encoded.last, batch, "first"))  # (words, width)
        starts, widths = self.start(rows), self.width.num_embeddings  # (words, hidden)
        ends = pad(self.end(rows), (0, 0, 0, widths))  # (words + widths, hidden)
        size = max(1, BLOCK // widths)
        logits = []
        for first in range(0, max(1, len(rows)), size):
            block = starts[first : first + size], ends[first : first + size + widths]
            if torch.is_grad_enabled():  # there is nothing random in it
                logits.append(checkpoint(self._score, *block, use_reentrant=False, preserve_rng_state=False))
            else:
                logits.append(self._score(*block))
        return torch.cat(logits)

    def _score(self, starts: Tensor, ends: Tensor) -> Tensor:
        """Return the logits of a block of words, (words, widths * labels).

        Shape:
            starts: (words, hidden); ends: (words + widths, hidden), those of the following words too.
        """
        widths = self.width.num_embeddings
        last = ends.unfold(0, widths, 1)[: len(starts)].transpose(1, 2)  # (words, widths, hidden)
        hidden = gelu(starts[:, None] + last + self.width.weight)
        logits: Tensor = self.out(hidden.flatten(0, 1))  # (words * widths, labels)
        return logits.view(len(starts), widths * self.num_labels)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        logits = self.predict(encoder, encoded, batch).float().view(-1, self.num_labels)  # (words * widths, labels)
        gold = batch.labels["spans"]
        loss = cross_entropy(logits, gold, reduction="sum", ignore_index=UNTRAINED)
        return Part(loss, {"accuracy": (logits.detach().argmax(1) == gold).sum()})

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`: the spans that are trained on."""
        trained = batch.labels[TRAINED] if TRAINED in batch.labels else _trained(batch)
        student, teacher = (
            values.reshape(-1, self.num_labels).index_select(0, trained) for values in (logits, targets)
        )
        return imitate_softmax(student, teacher, temperature)


def _trained(batch: Batch) -> Tensor:
    """Return the indices of the spans that are trained on, (spans,)."""
    return (batch.labels["spans"] != UNTRAINED).nonzero().squeeze(1)


@head_flops.register
def _(head: SpanHead, encoder: Encoder, batch: Batch) -> int:
    words = len(batch.positions[head.at])
    return 2 * words * (matrices(head.start, head.end) + head.width.num_embeddings * matrices(head.out))


class _Window(NamedTuple):
    """The words of a sentence that are read in a window.

    Attributes:
        owner: number of the sentence.
        first, last: the words that its spans begin with, `last` exclusive.
        stop: the end of the words that its spans end with.
    """

    owner: int
    first: int
    last: int
    stop: int

    @classmethod
    def of(cls, cut: WordWindow, owner: int, width: int) -> _Window:
        return cls(owner, cut.first, cut.last, min(cut.stop, cut.last + width - 1))

    def inside(self, width: int) -> np.ndarray:
        """Return which spans are those of the window, by first word and width - 1, (words, widths) bool."""
        starts, widths = np.arange(self.first, self.stop)[:, None], np.arange(1, width + 1)
        return (starts < self.last) & (starts + widths <= self.stop)

    def targets(self, chunks: Sequence[tuple[int, Chunk]], width: int) -> tuple[np.ndarray, int]:
        """Return the label of each span, (words, widths), and the number of entities that are none of them.

        Args:
            chunks: the entities of the sentence, with the numbers of their labels.
            width: maximum number of words of a span.
        """
        targets, missed = np.where(self.inside(width), 0, UNTRAINED), 0
        for number, (_, start, stop) in chunks:
            if self.first <= start < self.last:
                if stop - start > width or stop > self.stop:
                    missed += 1
                else:
                    targets[start - self.first, stop - start - 1] = number
        return targets, missed

    def read(self, logits: np.ndarray, labels: Sequence[str]) -> dict[Chunk, float]:
        """Return the entities that logits predict, (words, widths * labels), with their probabilities."""
        logits = logits.reshape(len(logits), -1, len(labels)).astype(np.float64)  # (words, widths, labels)
        found = self.inside(logits.shape[1]) & (logits.argmax(2) != 0)  # (words, widths)
        places, probabilities = np.argwhere(found), softmax(logits[found])  # (entities, 2), (entities, labels)
        return {
            Chunk(labels[row.argmax()], self.first + start, self.first + start + width + 1): float(row.max())
            for (start, width), row in zip(places.tolist(), probabilities, strict=True)
        }


def _tagged(sentence: TaggedSentence, chunks: dict[Chunk, float], *, nested: bool) -> Tagged:
    """Return entities as a prediction; of those that overlap only the most probable ones, unless they may."""
    chosen = sorted(chunks, key=lambda chunk: -chunks[chunk])
    if not nested:
        free = np.ones(len(sentence.starts), bool)
        probable, chosen = chosen, []
        for chunk in probable:
            if free[chunk.start : chunk.stop].all():
                free[chunk.start : chunk.stop] = False
                chosen.append(chunk)
    chosen.sort(key=lambda chunk: (chunk.start, chunk.stop))
    return Tagged(
        sentence.text,
        [
            Entity(kind, start, end, sentence.text[start:end], chunks[chunk])
            for chunk, (kind, start, end) in zip(chosen, sentence.in_text(chosen), strict=True)
        ],
    )


def _overlap(sentence: TaggedSentence) -> bool:
    """Return whether entities of a sentence overlap."""
    words = [word for chunk in sentence.chunks for word in range(chunk.start, chunk.stop)]
    return len(words) > len(set(words))


def _numbered(sentence: TaggedSentence, labels: Sequence[str]) -> list[tuple[int, Chunk]]:
    """Return the entities of a sentence with the numbers of their labels.

    Raises:
        UserError: the model does not know the type of an entity.
    """
    numbers = {label: number for number, label in enumerate(labels) if number}
    for chunk in sentence.chunks:
        if chunk.type not in numbers:
            raise UserError(
                f"unknown type '{chunk.type}'; the model knows {', '.join(numbers)}",
                file=sentence.file,
                line=sentence.line + sentence.step * chunk.start,
                remedy="correct the label, or train on a file that contains it",
            )
    return [(numbers[chunk.type], chunk) for chunk in sentence.chunks]


def _gold_and_predicted(
    examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
) -> tuple[list[list[Chunk]], list[list[Chunk]]]:
    """Return the gold and the predicted entities of each sentence, with offsets in code points.

    Raises:
        UserError: the model does not know the type of an entity.
    """
    for sentence in examples:
        _numbered(sentence, labels)
    return in_code_points(examples, predictions)
