"""Relations between the marked spans of a text: each ordered pair of spans has one relation of a type, or none.

Input: texts with spans, and relations for training (`data.labelled.relations`). Output: samples, the head with its
loss, the relations of each text.

Each pair is read by itself, with typed markers around its two spans, and classified by the vectors of the first token
of each marker (Baldini Soares et al. 2019, entity markers and entity start; Zhong and Chen 2021, section 3.2). Pooled
vectors of spans would need one pass for all pairs of a text, but are worse, as the encoder does not know which pair it
reads (both papers). The markers are punctuation, "@ * type * … @" around the head and "# ^ type ^ … #" around the tail,
as in Zhou and Chen 2022 (table 2), which every vocabulary has: new tokens would have to be learned.

Differs from Zhou and Chen 2022: the vectors are classified by a linear layer without a hidden one, as in Zhong and Chen
2021. Of a longer text, the words around the pair are read; a pair that does not fit with its markers has no relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.relations import relate
from unmask.data.labelled.span_export import Marked, export_record, is_export
from unmask.data.labelled.spans import Annotated, Reading, Span, to_sentence
from unmask.data.labelled.tagged_sentence import Relation, TaggedSentence
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.metrics import token_classification as metrics
from unmask.metrics.intervals import Measure
from unmask.metrics.token_classification import Chunk
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec, token_vectors
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.objectives.objective import Objective, Part, classify, imitate_softmax
from unmask.support.errors import ShareNote, UserError, check_unicode
from unmask.support.messages import argument, setting
from unmask.support.model_card import Card
from unmask.tasks.entity_task import AnnotatedTask, encode_words
from unmask.tasks.mistakes import Mistake, Passage
from unmask.tasks.routes import RelateRequest, Route
from unmask.tasks.task import Columns, Framed, Notes, Paths, Reason, Refusals, Training
from unmask.tasks.tuning import softmax

NO_RELATION = "O"
"""The first label: the pair has no relation."""
MARKS = ("@", "*"), ("#", "^")
"""Marks around the head and around its type, and those of the tail."""
MOST_PAIRS = 10_000
"""Number of pairs of a text at most: of 100 spans."""


class RelatedSpan(msgspec.Struct, frozen=True):
    """A span between which relations are predicted; offsets are code points, `end` is exclusive."""

    label: str
    start: int
    end: int
    text: str


class PredictedRelation(msgspec.Struct, frozen=True):
    """A relation of two spans, by their indices, with its probability."""

    label: str
    head: int
    tail: int
    probability: float


class Related(msgspec.Struct, frozen=True):
    """A text, its spans as given, and the relations between them."""

    text: str
    spans: list[RelatedSpan]
    relations: list[PredictedRelation]


RELATE = Route(
    "/relate",
    "Find the relations between the marked spans of a text.",
    RelateRequest,
    Related,
    lambda task, request: [task.pose(request.text, [(of.start, of.end, of.label) for of in request.spans])],
    lambda task, request, predictions, outputs: predictions[0],
    f"{argument('spans')}: there are fewer than two, too many, or one is not in the text; or {argument('text')} has "
    "characters that cannot be encoded",
    {
        "text": "Ada Lovelace lived in London.",
        "spans": [{"start": 0, "end": 12, "label": "PER"}, {"start": 22, "end": 28, "label": "LOC"}],
    },
    view="relations",
)
"""The route of tasks that relate spans."""


class Relations(AnnotatedTask, frozen=True, kw_only=True, tag="relations"):
    """The recipe's [task] for `kind = "relations"`; see `AnnotatedTask`."""

    part = "relations"
    metric = "f1"
    comparable = metrics.NAMES_WITH_MACRO
    card = Card(title="A classifier of relations", usage={"data": "FILE"})
    decides = True
    route = RELATE
    training = Training(rate=1.0)
    refusals: ClassVar[Refusals] = {
        "export": Reason(
            "relations are of marked spans, which an exported program does not know", "use the model itself"
        ),
        "vocabulary": Reason(
            "which pairs of spans fit into a sequence depends on the vocabulary", "use a student with the same one"
        ),
    }

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[TaggedSentence]:
        """See `Task`; spans are read also without gold labels."""
        sentences = read_annotations(
            paths,
            columns=columns,
            kind=kind,
            notes=notes,
            inexact=self.inexact,
            units=self.units,
            relations=True,
        )
        if without := next((sentence for sentence in sentences if sentence.spans is None), None):
            raise UserError(
                "the file has words with tags, without spans",
                file=without.file,
                remedy='write JSON Lines: {"text": …, "spans": [{"start": …}, …], "relations": [{"head": …}, …]}',
            )
        return sentences if gold else [replace(sentence, relations=()) for sentence in sentences]

    def from_texts(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> NoReturn:
        """See `Task`: relations are those of marked spans."""
        raise UserError(
            "this model finds relations between spans, and texts have none",
            remedy=f"pass {argument('data', 'FILE')} with spans; in Python, model.relate(text, [(START, END, LABEL)])",
        )

    def pose(self, text: str, spans: Sequence[tuple[int, int, str]]) -> TaggedSentence:
        """Return a text with spans, asked from a program, as an example.

        Args:
            text: the text.
            spans: start and end of each span, in code points, and its label.

        Raises:
            UserError: there are fewer than two spans, two of them have the same words, or one is not in the text.
        """
        check_unicode((text, *(label for *_, label in spans)))
        for start, end, _ in spans:
            if not 0 <= start < end <= len(text):
                raise UserError(f"the span {start}–{end} is not in the text of {len(text):,} characters")
        reading = Reading("", overlapping=True, relations=True)
        annotated = Annotated(text, [Span(*span) for span in spans], "", 0)
        sentence = relate(to_sentence(annotated, reading), annotated, reading)
        if reading.omitted or len(spans) < 2:
            raise UserError("there are fewer than two spans of different words", remedy="mark other spans")
        return sentence

    def label_names(self, examples: Sequence[TaggedSentence]) -> tuple[str, ...]:
        """See `Task`: O, for no relation, then the types in alphabetical order."""
        kinds = {relation.type for sentence in examples for relation in sentence.relations}
        if not kinds or NO_RELATION in kinds:
            what = f"a relation has the label '{NO_RELATION}'" if kinds else "no text has a relation"
            raise UserError(what, file=examples[0].file, remedy="relations are read from the key 'relations'")
        return (NO_RELATION, *sorted(kinds))

    def labels_of(self, example: TaggedSentence) -> tuple[str, ...]:
        """See `Task`: the types of the relations."""
        return tuple(relation.type for relation in example.relations)

    def classes(self, labels: Sequence[str]) -> set[str]:
        """See `Task`: the types of relations."""
        return set(labels) - {NO_RELATION}

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> RelationHead:
        """See `Task`."""
        return RelationHead(spec, len(labels))

    def frame(
        self, tokenizer: Tokenizer, examples: Sequence[TaggedSentence], labels: Sequence[str], *, gold: bool
    ) -> Framed:
        """See `Task`: one sample per ordered pair of spans."""
        frame, subwords = Frame.of(tokenizer), encode_words(tokenizer, examples)
        markers = _encode_markers(tokenizer, {chunk.type for sentence in examples for chunk in sentence.chunks})
        capacity = frame.capacity(self.length, texts=1)
        samples: list[Sample] = []
        owners: list[tuple[int, int, int]] = []
        missed = total = 0
        for number, sentence in enumerate(examples):
            _check_pairs(sentence)
            ids = [subwords[word] for word in sentence.words]  # one array (subwords,) per word
            numbered = _numbered(sentence, labels) if gold else {}
            for pair in permutations(range(len(sentence.chunks)), 2):
                total += 1
                marked = _mark(ids, [sentence.chunks[index] for index in pair], markers, capacity)
                if marked is None:
                    missed += 1
                    continue
                tokens, *places = marked
                sample = frame.wrap(tokens).named((0, len(samples)))
                head, tail = (frame.start + np.array([place]) for place in places)  # (1,) each
                sample = sample.add(positions={"head": head, "tail": tail})
                samples.append(sample.add(labels={"relations": np.array([numbered.get(pair, 0)])}) if gold else sample)
                owners.append((number, *pair))

        def read(logits: Sequence[np.ndarray]) -> list[Related]:
            relations: list[list[PredictedRelation]] = [[] for _ in examples]
            for (owner, head, tail), rows in zip(owners, logits, strict=True):
                probabilities = softmax(rows.astype(np.float64))[0]  # (labels,)
                if best := int(rows[0].argmax()):
                    relations[owner].append(PredictedRelation(labels[best], head, tail, float(probabilities[best])))
            return [_related(*pair) for pair in zip(examples, relations, strict=True)]

        notes: list[str] = []
        if missed:
            limit = setting("task.length", self.length)
            notes.append(ShareNote(missed, total, f"pairs of spans have more than {limit} tokens and are not read"))
        if any(tokenizer.unk in opening for opening, _ in markers.values()):
            notes.append("the vocabulary lacks a mark (@ * # ^) or the name of a label: spans are marked with [UNK]")
        words = (subwords[word] for sentence in examples for word in sentence.words)
        return Framed(samples, read, (*notes, *tokenizer.notes(words, (sentence.text for sentence in examples))))

    def measure(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Related], labels: Sequence[str]
    ) -> Measure:
        """See `Task`: a relation is correct if its type and its two spans are."""
        return metrics.measure_with_macro(*_gold_and_predicted(examples, predictions, labels))

    def details(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Related], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scores of each type of relation, and the number of its gold `relations`."""
        by_type = metrics.by_type(*_gold_and_predicted(examples, predictions, labels))
        return {"by_type": {kind: {**of, "relations": of.pop("entities")} for kind, of in by_type.items()}}

    def labelled(self, examples: Sequence[TaggedSentence], predictions: Sequence[Related]) -> list[TaggedSentence]:
        """See `Task`."""
        return [
            replace(sentence, relations=tuple(Relation(of.label, of.head, of.tail) for of in prediction.relations))
            for sentence, prediction in zip(examples, predictions, strict=True)
        ]

    def mistakes(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Related], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: texts with missed or spurious relations, by their number."""
        mistakes = []
        for sentence, other in zip(examples, self.labelled(examples, predictions), strict=True):
            gold, predicted = set(sentence.relations), set(other.relations)
            if gold != predicted:
                mistakes.append(
                    Mistake(
                        (Passage(sentence.text),),
                        caption=f"{sentence.file}:{sentence.line}",
                        score=len(gold ^ predicted),
                        measure="missed or spurious relations",
                        gold=_describe(sentence) or "(none)",
                        predicted=_describe(other) or "(none)",
                    )
                )
        return mistakes

    def record(self, path: Path, example: TaggedSentence, prediction: Related) -> Any:
        """See `Task`: a prediction, which can be read again, or an annotator's record."""
        if not is_export(path):
            return prediction
        spans = [Marked(span.start, span.end, span.label, span.text, 1.0) for span in prediction.spans]
        relations = [(of.head, of.tail, of.label, of.probability) for of in prediction.relations]
        return export_record(path, prediction.text, spans, relations)

    def line(self, prediction: Related) -> str:
        """See `Task`."""
        spans = prediction.spans
        relations = (
            f"{spans[of.head].text} -> {spans[of.tail].text} {of.label} {of.probability:.3f}"
            for of in prediction.relations
        )
        return "\t".join((prediction.text, *relations))


class RelationHead(Objective):
    """Classifier of pairs of marked spans, with its loss.

    Args:
        spec: the properties of the body under the head.
        num_labels: number of labels, the first of which is that of no relation.
    """

    at = "head"

    def __init__(self, spec: HeadSpec, num_labels: int) -> None:
        super().__init__()
        self.dropout = Dropout(spec.token_dropout)
        self.out = Linear(2 * spec.width, num_labels)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per pair."""
        return sample.add(counts={name: len(sample.positions["head"])})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return torch.cat([batch.positions["head"], batch.positions["tail"]])

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits, (pairs, labels)."""
        rows = [token_vectors(encoder, encoded.last, batch, at) for at in ("head", "tail")]  # (pairs, width) each
        return self.out(self.dropout(torch.cat(rows, 1)))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return classify(self.predict(encoder, encoded, batch), batch.labels["relations"])

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`."""
        return imitate_softmax(logits, targets, temperature)


Markers = dict[tuple[int, str], tuple[Ids, Ids]]
"""The tokens before and after a span, by its role (0: head, 1: tail) and its label."""


def _encode_markers(tokenizer: Tokenizer, kinds: Iterable[str]) -> Markers:
    keys = [(role, kind) for kind in sorted(kinds) for role in range(2)]
    texts = [(f"{MARKS[role][0]} {MARKS[role][1]} {kind} {MARKS[role][1]}", MARKS[role][0]) for role, kind in keys]
    ids = tokenizer.encode_many([text for pair in texts for text in pair])
    return {key: (ids[2 * number], ids[2 * number + 1]) for number, key in enumerate(keys)}


def _mark(
    ids: Sequence[Ids], pair: Sequence[Chunk], markers: Markers, capacity: int
) -> tuple[np.ndarray, int, int] | None:
    """Return the tokens of the words around two marked spans, and where the markers of head and tail begin in them.

    Args:
        ids: the tokens of each word.
        pair: head and tail, which may overlap.
        markers: see `Markers`.
        capacity: maximum number of tokens.

    Returns:
        None: the pair does not fit.
    """
    ends = np.cumsum([0, *map(len, ids)])
    opening, closing = zip(*(markers[role, chunk.type] for role, chunk in enumerate(pair)), strict=True)
    first, last = min(chunk.start for chunk in pair), max(chunk.stop for chunk in pair)
    room = capacity - sum(map(len, (*opening, *closing))) - int(ends[last] - ends[first])
    if room < 0:
        return None
    left = max(room // 2, room - int(ends[-1] - ends[last]))  # tokens; more if there are few at the right
    begin = int(np.searchsorted(ends, ends[first] - left))
    stop = int(np.searchsorted(ends, ends[last] + room - (ends[first] - ends[begin]), side="right")) - 1
    parts: list[np.ndarray] = []
    places = [0, 0]
    outer = sorted(range(2), key=lambda role: (pair[role].start, -pair[role].stop))
    for word in range(begin, stop):
        for role in outer:
            if pair[role].start == word:
                places[role] = sum(map(len, parts))
                parts.append(opening[role])
        parts.append(ids[word])
        parts += [closing[role] for role in reversed(outer) if pair[role].stop == word + 1]
    return np.concatenate(parts), places[0], places[1]


def _check_pairs(sentence: TaggedSentence) -> None:
    number = len(sentence.chunks) * (len(sentence.chunks) - 1)
    if number > MOST_PAIRS:
        raise UserError(
            f"{len(sentence.chunks)} spans have {number:,} ordered pairs, more than {MOST_PAIRS:,}",
            file=sentence.file or None,
            line=sentence.line or None,
            remedy="divide the text into parts, such as sentences or paragraphs",
        )


def _related(sentence: TaggedSentence, relations: list[PredictedRelation]) -> Related:
    spans = [RelatedSpan(kind, start, end, sentence.text[start:end]) for kind, start, end in sentence.entities]
    return Related(sentence.text, spans, relations)


def _describe(sentence: TaggedSentence) -> str:
    texts = [sentence.text[start:end] for _, start, end in sentence.entities]
    return "; ".join(f"{texts[of.head]} -> {texts[of.tail]} {of.type}" for of in sorted(sentence.relations))


def _numbered(sentence: TaggedSentence, labels: Sequence[str]) -> dict[tuple[int, ...], int]:
    """Return the number of the label of each pair of spans that has a relation.

    Raises:
        UserError: the model does not know the type of a relation.
    """
    numbers = {label: number for number, label in enumerate(labels) if number}
    for relation in sentence.relations:
        if relation.type not in numbers:
            raise UserError(
                f"unknown relation '{relation.type}'; the model knows {', '.join(numbers)}",
                file=sentence.file,
                line=sentence.line,
                remedy="correct the label, or train on a file that contains it",
            )
    return {(of.head, of.tail): numbers[of.type] for of in sentence.relations}


def _gold_and_predicted(
    examples: Sequence[TaggedSentence], predictions: Sequence[Related], labels: Sequence[str]
) -> tuple[list[list[Chunk]], list[list[Chunk]]]:
    """Return the gold and the predicted relations of each text, as types with the indices of two spans.

    Raises:
        UserError: the model does not know the type of a relation.
    """
    for sentence in examples:
        _numbered(sentence, labels)
    predicted = [[Chunk(of.label, of.head, of.tail) for of in prediction.relations] for prediction in predictions]
    return [[Chunk(*relation) for relation in sentence.relations] for sentence in examples], predicted
