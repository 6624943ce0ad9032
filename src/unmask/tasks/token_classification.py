"""Token classification (entity recognition): one tag per word, at its first subword; all parameters are tuned.

Input: sentences of tagged words. Output: samples, the head with its loss, entities.

Devlin et al. 2019, section 5.3: the first subword of each word, and no CRF. The head is that of
`BertForTokenClassification`: dropout and one linear layer over the last layer (in ModernBERT over its pooler's output).
No document context is used.

Nothing is truncated: a sentence longer than `length` is divided into windows that overlap by half, and each word is
trained on and predicted once, in the window in which it has the most context (`_check_is_max_context` in BERT's
run_squad.py). A word that the tokenizer reduces to nothing is read as [UNK].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from torch import Tensor

from unmask.batches.batch import Batch, Sample
from unmask.batches.frame import Frame
from unmask.batches.rng import derive_rng
from unmask.encoders.encoder import Encoded, Encoder, HeadSpec, token_vectors
from unmask.errors import UserError
from unmask.labelled.sentence import Sentence, split_text
from unmask.labelled.table import Source
from unmask.labelled.tag_schemes import write_tags
from unmask.labelled.tagged_file import iterate_sentences, read_sentences, write_columns
from unmask.layers.dropout import Dropout
from unmask.layers.linear import Linear
from unmask.metrics import token_classification as metrics
from unmask.metrics.intervals import Measure
from unmask.metrics.token_classification import Chunk, chunks, split_tag
from unmask.objectives.objective import Objective, Part, imitate_softmax
from unmask.tasks.mistake import Mark, Mistake, Passage
from unmask.tasks.regularization import NONE, Regularization, score, second_pass_flops
from unmask.tasks.task import DEV_SHARE, Columns, Framed, Notes, Paths, Task
from unmask.text.unicode import check_unicode
from unmask.tokenizers.tokenizer import Ids, Tokenizer

COLUMNS = (".conll", ".tsv", ".txt")
"""Suffixes of files of predictions that have a word in each line."""


class Entity(msgspec.Struct, frozen=True):
    """An entity in a text.

    Attributes:
        label: its type.
        start, end: offsets in the text, in code points, `end` exclusive.
        text: the text of the entity.
        probability: the minimum over its words of the probability of the tag.
    """

    label: str
    start: int
    end: int
    text: str
    probability: float


class Tagged(msgspec.Struct, frozen=True):
    """A text, as given or joined from words, and its entities in order."""

    text: str
    entities: list[Entity]


class TokenClassification(Task, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="token-classification"):
    """The recipe's [task] for `kind = "token-classification"`; see `Task`.

    Attributes:
        length: maximum length of a window in tokens, special tokens included.
        regularization: label smoothing and R-Drop.
    """

    regularization: Regularization = NONE

    part = "token_classification"
    metric = "f1"
    title = "A named entity recognizer"

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Sentence]:
        """See `Task`; `notes` reports the entities that deviate from the tagging scheme of their file."""
        sentences = read_sentences(paths, columns=columns, kind=kind, gold=gold)
        for file in dict.fromkeys(sentence.file for sentence in sentences if sentence.irregular):
            irregular = [sentence for sentence in sentences if sentence.file == file and sentence.irregular]
            number = sum(sentence.irregular for sentence in irregular)
            if notes is not None:
                notes.append(
                    f"{file}: {number:,} entities deviate from the tagging scheme of the file (I- without B-, for "
                    f"example), the first in the sentence of line {irregular[0].line}; they are read as conlleval does"
                )
        return sentences

    def iterate(
        self, source: Source, *, columns: Columns, kind: str | None = None, notes: Notes = None
    ) -> Iterator[Sentence]:
        """See `Task`."""
        return iterate_sentences(source, columns=columns, kind=kind)

    def from_texts(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[Sentence]:
        """See `Task`; the texts are split into words."""
        if texts_b is not None:
            raise UserError("second texts have no effect: this model tags single texts")
        texts = list(texts)
        check_unicode(texts)
        return [split_text(text) for text in texts]

    def label_names(self, examples: Sequence[Sentence]) -> tuple[str, ...]:
        """See `Task`: O, then B- and I- of each type, with the types in alphabetical order."""
        kinds = sorted({split_tag(tag)[1] for sentence in examples for tag in sentence.tags} - {""})
        if not kinds:
            raise UserError(
                f"no entity is tagged in {len(examples)} sentences",
                file=examples[0].file,
                remedy="is it the right column?",
            )
        return ("O", *(f"{role}-{kind}" for kind in kinds for role in "BI"))

    def hold_out(self, examples: Sequence[Sentence], seed: int) -> tuple[list[Sentence], list[Sentence]]:
        """See `Task`: splits by document if documents are marked, because sentences of one document share names."""
        units = [
            (sentence.file, number if sentence.document is None else -1 - sentence.document)
            for number, sentence in enumerate(examples)
        ]
        names = list(dict.fromkeys(units))
        order = derive_rng(seed, "dev", 0).permutation(len(names))
        chosen = {names[index] for index in order[: round(DEV_SHARE * len(names))]}
        if not chosen:
            raise UserError(
                f"{len(names)} sentences or documents are too few to hold out a tenth",
                file=examples[0].file,
                remedy="pass --dev FILE",
            )
        parts: tuple[list[Sentence], list[Sentence]] = ([], [])
        for sentence, unit in zip(examples, units, strict=True):
            parts[unit in chosen].append(sentence)
        return parts

    def classes(self, labels: Sequence[str]) -> set[str]:
        """See `Task`: the types of entities, whatever the tagging scheme."""
        return _kinds(labels)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> TokenClassificationHead:
        """See `Task`."""
        return TokenClassificationHead(spec, len(labels), self.regularization)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Sentence], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: one sample per window."""
        _check_labels(labels)
        frame = Frame.of(tokenizer)
        capacity = frame.capacity(self.length, texts=1)
        subwords = _subwords(tokenizer, examples)
        samples: list[Sample] = []
        owners: list[int] = []
        for number, sentence in enumerate(examples):
            ids = [subwords[word][:capacity] for word in sentence.words]  # one array (subwords,) per word
            sizes = np.array([len(one) for one in ids], np.int64)
            tags = _numbers(sentence, labels) if gold else None
            for window in cut_windows(sizes, capacity):
                sample = frame.wrap(np.concatenate(ids[window.start : window.stop]))
                within = sizes[window.start : window.stop]
                first = frame.start + np.cumsum(within) - within
                own = slice(window.first - window.start, window.last - window.start)
                sample = sample.add(positions={"first": first[own]}).named((0, len(samples)))
                if tags is not None:
                    sample = sample.add(labels={"token_classification": tags[window.first : window.last]})
                samples.append(sample)
                owners.append(number)

        def read(logits: Sequence[np.ndarray]) -> list[Tagged]:
            of_sentence: list[list[np.ndarray]] = [[] for _ in examples]
            for owner, rows in zip(owners, logits, strict=True):
                of_sentence[owner].append(rows)
            return [_tagged(sentence, labels, rows) for sentence, rows in zip(examples, of_sentence, strict=True)]

        empty = sum(not sentence.starts for sentence in examples)
        notes = [f"{empty:,} of {len(examples):,} texts are empty"] if empty else []
        words = (subwords[word] for sentence in examples for word in sentence.words)
        return Framed(samples, read, (*notes, *tokenizer.notes(words)))

    def measure(self, examples: Sequence[Sentence], predictions: Sequence[Tagged], labels: Sequence[str]) -> Measure:
        """See `Task`: entities are compared, so that the tagging schemes of file and model may differ."""
        return metrics.measure(*gold_and_predicted(examples, predictions, labels))

    def labelled(self, examples: Sequence[Sentence], predictions: Sequence[Tagged]) -> list[Sentence]:
        """See `Task`."""
        pairs = zip(examples, predictions, strict=True)
        return [replace(one, tags=tuple(tags_of(one, prediction))) for one, prediction in pairs]

    def mistakes(
        self, examples: Sequence[Sentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: the sentences with the most missed or spurious entities first."""
        found = []
        for sentence, prediction in zip(examples, predictions, strict=True):
            gold = {(kind, start, end) for kind, start, end in sentence.entities}
            predicted = {(one.label, one.start, one.end) for one in prediction.entities}
            if gold != predicted:
                marked = Passage(
                    sentence.text,
                    gold=tuple(Mark(start, end, kind) for kind, start, end in sorted(gold, key=lambda it: it[1])),
                    predicted=tuple(
                        Mark(start, end, kind) for kind, start, end in sorted(predicted, key=lambda it: it[1])
                    ),
                )
                caption = f"{sentence.file}:{sentence.line}"
                found.append(
                    Mistake((marked,), caption, score=len(gold ^ predicted), measure="missed or spurious entities")
                )
        return sorted(found, key=lambda mistake: -mistake.score)

    def details(
        self, examples: Sequence[Sentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scores of each type of entity."""
        return {"by_type": metrics.by_type(*gold_and_predicted(examples, predictions, labels))}

    def record(self, path: Path, example: Sentence, prediction: Tagged) -> Any:
        """See `Task`: a prediction or, depending on the suffix, the lines of a sentence."""
        return write_columns(example, tags_of(example, prediction)) if path.suffix in COLUMNS else prediction

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: JSON Lines or, depending on the suffix, columns that `evaluate` reads."""
        return {path: (lines.encode() for lines in records)} if path.suffix in COLUMNS else {}

    def line(self, prediction: Tagged) -> str:
        """See `Task`."""
        found = (f"{entity.label} {entity.probability:.3f} {entity.text}" for entity in prediction.entities)
        return "\t".join((prediction.text, *found))


class TokenClassificationHead(Objective):
    """Token classification head with its loss.

    Args:
        spec: the properties of the body under the head.
        num_labels: number of tags.
        regularization: changes the loss in training.
    """

    at = "first"
    needs = frozenset({"token_classification"})

    def __init__(self, spec: HeadSpec, num_labels: int, regularization: Regularization = NONE) -> None:
        super().__init__()
        self.regularization = regularization
        self.dropout = Dropout(spec.token_dropout)
        self.out = Linear(spec.width, num_labels)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per word."""
        return sample.add(counts={name: len(sample.positions["first"])})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions["first"]

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits, (words, labels)."""
        rows = token_vectors(encoder, encoded.last, batch, "first")  # (words, width)
        return self.out(self.dropout(rows))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return score(self, encoder, encoded, batch, batch.labels["token_classification"])

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`."""
        return imitate_softmax(logits, targets, temperature)

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the linear layer, and the pooler if it reads words, once per word."""
        outputs = self.out.out_features + encoder.head.pools_tokens * encoder.width
        own = 2 * len(batch.positions["first"]) * encoder.width * outputs
        return own + second_pass_flops(self, encoder, batch)


class Window(NamedTuple):
    """Words `start` to `stop` of a sentence, of which `first` to `last` are predicted in it (ends exclusive)."""

    start: int
    stop: int
    first: int
    last: int


def cut_windows(sizes: np.ndarray, capacity: int) -> list[Window]:
    """Divide a sentence into windows that overlap by half; every word is predicted in exactly one of them.

    It is the window in which the smaller of the left and the right context is largest; among equals, the first.

    Args:
        sizes: the number of subwords of each word, from 1 to `capacity`; (words,).
        capacity: the number of subwords that fit into a window.
    """
    stops = np.cumsum(sizes)
    starts = stops - sizes
    owner, most = np.zeros(len(sizes), np.int64), np.full(len(sizes), -1)
    spans: list[tuple[int, int]] = []
    start = stop = 0
    while stop < len(sizes):
        stop = int(np.searchsorted(stops, starts[start] + capacity, side="right"))
        words = slice(start, stop)
        context = np.minimum(starts[words] - starts[start], stops[stop - 1] - stops[words])
        owner[words][context > most[words]] = len(spans)
        most[words] = np.maximum(most[words], context)
        spans.append((start, stop))
        half = int(np.searchsorted(starts, starts[start] + (capacity + 1) // 2))
        start = min(max(half, start + 1), stop)
    bounds = np.searchsorted(owner, np.arange(len(spans) + 1))  # `owner` is non-decreasing; the tests check it
    return [
        Window(*span, int(first), int(last))
        for span, first, last in zip(spans, bounds[:-1], bounds[1:], strict=True)
        if first < last
    ]


def gold_and_predicted(
    examples: Sequence[Sentence], predictions: Sequence[Tagged], labels: Sequence[str]
) -> tuple[list[list[Chunk]], list[list[Chunk]]]:
    """Return the gold and the predicted entities of each sentence, with offsets in code points.

    Raises:
        UserError: the model does not know the type of an entity.
    """
    kinds = {"", *_kinds(labels)}
    for sentence in examples:
        for index, tag in enumerate(sentence.tags):
            if split_tag(tag)[1] not in kinds:
                raise _unknown(sentence, index, labels)
    predicted = [[Chunk(one.label, one.start, one.end) for one in prediction.entities] for prediction in predictions]
    return [sentence.entities for sentence in examples], predicted


def tags_of(sentence: Sentence, prediction: Tagged) -> list[str]:
    """Return the tags of a prediction, one per word, in IOB2."""
    starts = {start: number for number, start in enumerate(sentence.starts)}
    stops = {stop: number + 1 for number, stop in enumerate(sentence.stops)}
    found = [Chunk(one.label, starts[one.start], stops[one.end]) for one in prediction.entities]
    return write_tags(found, len(sentence.starts))


def _subwords(tokenizer: Tokenizer, examples: Sequence[Sentence]) -> dict[str, Ids]:
    """Return the token ids of each word; [UNK] for words that the tokenizer reduces to nothing."""
    words = list(dict.fromkeys(word for sentence in examples for word in sentence.words))
    unknown = np.array([tokenizer.unk], np.int32)
    return {
        word: ids if len(ids) else unknown for word, ids in zip(words, tokenizer.encode_separately(words), strict=True)
    }


def _check_labels(labels: Sequence[str]) -> None:
    """Raise an error if the labels of a model are not tags, as in models for other tasks."""
    try:
        for label in labels:
            split_tag(label)
    except ValueError as error:
        raise UserError(
            f"a label of this model: {error}", remedy="name its labels under id2label in config.json"
        ) from error


def _numbers(sentence: Sentence, labels: Sequence[str]) -> np.ndarray:
    """Return the index of each word's tag, (words,)."""
    numbers = {label: number for number, label in enumerate(labels)}
    for index, tag in enumerate(sentence.tags):
        if tag not in numbers:
            raise _unknown(sentence, index, labels)
    return np.array([numbers[tag] for tag in sentence.tags], np.int64)


def _kinds(labels: Sequence[str]) -> set[str]:
    return {split_tag(label)[1] for label in labels} - {""}


def _unknown(sentence: Sentence, index: int, labels: Sequence[str]) -> UserError:
    kinds = sorted(_kinds(labels))
    return UserError(
        f"unknown type '{split_tag(sentence.tags[index])[1]}'; the model knows {', '.join(kinds)}",
        file=sentence.file,
        line=sentence.line + sentence.step * index,
        remedy="correct the tag, or train on a file that contains it",
    )


def _tagged(sentence: Sentence, labels: Sequence[str], rows: Sequence[np.ndarray]) -> Tagged:
    """Convert the logits of a sentence's windows, each (words, labels), to its entities."""
    if not rows:
        return Tagged(sentence.text, [])
    logits = np.concatenate(rows).astype(np.float64)  # (words, labels)
    probabilities = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)  # (words,), of the most probable label
    found = chunks([labels[number] for number in logits.argmax(1)])
    return Tagged(
        sentence.text,
        [
            Entity(kind, start, end, sentence.text[start:end], float(probabilities[chunk.start : chunk.stop].min()))
            for chunk, (kind, start, end) in zip(found, sentence.in_text(found), strict=True)
        ],
    )
