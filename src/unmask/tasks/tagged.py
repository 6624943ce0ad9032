"""What tasks over words share: windows of whole words, labels and predictions.

- A sentence is divided into overlapping windows of whole words. A word is predicted in the window where it has the most
  context (`_check_is_max_context` in run_squad.py of google-research/bert).
- The logits of the words become entities; the logits are kept, as probabilities are calibrated by them.
- The labels are those that examples need, or those that a model may have; predictions are written as tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from unmask.data.labelled.span_export import Marked
from unmask.data.labelled.tagged_sentence import MISSPELLED, TaggedSentence, write_tags
from unmask.metrics.token_classification import Chunk, are_word_tags, chunks, is_word_tag, split_tag
from unmask.support.errors import UserError, counted
from unmask.tasks.explained import Explanation
from unmask.tasks.tuning import softmax


class WordWindow(NamedTuple):
    """Words `start` to `stop` of a sentence, of which `first` to `last` are predicted in it (ends exclusive)."""

    start: int
    stop: int
    first: int
    last: int


def cut_windows(sizes: np.ndarray, capacity: int) -> list[WordWindow]:
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
        WordWindow(*span, int(first), int(last))
        for span, first, last in zip(spans, bounds[:-1], bounds[1:], strict=True)
        if first < last
    ]


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


class WordScores(NamedTuple):
    """Logits of the words of a text, divided by the task's temperature.

    Attributes:
        labels: the model's tags, in order.
        logits: (words, labels).
    """

    labels: tuple[str, ...]
    logits: np.ndarray


class Tagged(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """A text, as given or joined from words, and its entities in order.

    Attributes:
        text: the text.
        entities: its entities.
        explanations: what the words contribute to the tag of each word that has one, if it was asked for.
    """

    text: str
    entities: list[Entity]
    explanations: tuple[Explanation, ...] = ()

    @property
    def scores(self) -> WordScores | None:
        """What the entities were read from, for calibration: not a field, so that it is neither written nor compared.

        None: the text has no words, or was not predicted here.
        """
        return self.__dict__.get("scores")


def read_tags(
    sentence: TaggedSentence, labels: Sequence[str], rows: Sequence[np.ndarray], temperature: float
) -> Tagged:
    """Convert the logits of a sentence's windows, each (words, labels), to its entities."""
    if not rows:
        return Tagged(sentence.text, [])
    logits = np.concatenate(rows).astype(np.float64) / temperature  # (words, labels)
    probabilities = softmax(logits).max(1)  # (words,)
    entities = chunks([_prefixed(labels[number], labels) for number in logits.argmax(1)])
    tagged = Tagged(
        sentence.text,
        [
            Entity(kind, start, end, sentence.text[start:end], float(probabilities[chunk.start : chunk.stop].min()))
            for chunk, (kind, start, end) in zip(entities, sentence.in_text(entities), strict=True)
        ],
    )
    tagged.__dict__["scores"] = WordScores(tuple(labels), logits.astype(np.float32))
    return tagged


def tags_of(sentence: TaggedSentence, prediction: Tagged) -> list[str]:
    """Return the tags of a prediction, one per word, in IOB2, or without prefixes if the model's have none."""
    if prediction.scores and are_word_tags(prediction.scores.labels):
        return [prediction.scores.labels[number] for number in prediction.scores.logits.argmax(1)]
    return write_tags(in_words(sentence, prediction), len(sentence.starts))


def in_words(sentence: TaggedSentence, prediction: Tagged) -> list[Chunk]:
    """Return the entities of a prediction as ranges of words."""
    starts = {start: number for number, start in enumerate(sentence.starts)}
    stops = {stop: number + 1 for number, stop in enumerate(sentence.stops)}
    return [Chunk(entity.label, starts[entity.start], stops[entity.end]) for entity in prediction.entities]


def labels_of(examples: Sequence[TaggedSentence]) -> tuple[str, ...]:
    """Return the labels that sentences need: O, then B- and I- of each type, or all tags without prefixes.

    Raises:
        UserError: no entity is tagged, all words have the same tag, or tags of words and of entities are mixed.
    """
    tags = {tag for sentence in examples for tag in sentence.tags}
    if are_word_tags(tags):
        if len(tags) == 1:
            raise UserError(
                f"all words have the tag '{min(tags)}'", file=examples[0].file, remedy="is it the right column?"
            )
        return tuple(sorted(tags))
    if wrong := sorted(filter(is_word_tag, tags)):
        raise UserError(f"'{wrong[0]}' is a tag of words, but other files have tags of entities", file=examples[0].file)
    kinds = sorted({split_tag(tag)[1] for tag in tags} - {""})
    if not kinds:
        raise UserError(
            f"no entity is tagged in {counted(len(examples), 'sentence')}",
            file=examples[0].file,
            remedy="is it the right column?",
        )
    return ("O", *(f"{role}-{kind}" for kind in kinds for role in "BI"))


def check_labels(labels: Sequence[str]) -> None:
    """Raise an error if the labels of a model are not tags, as in models for other tasks."""
    plain = [label for label in labels if is_word_tag(label)]
    prefixed = any(label != "O" for label in labels if not is_word_tag(label))
    try:
        for label in labels:
            split_tag(label)
            if label in plain and (prefixed or MISSPELLED.fullmatch(label)):
                raise ValueError(f"'{label}' is not a tag such as O, B-PER or I-PER")
    except ValueError as error:
        raise UserError(
            f"a label of this model: {error}", remedy="name its labels under id2label in config.json"
        ) from error


def all_tags(
    examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]
) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    """Return the gold and the predicted tags of each sentence."""
    return [sentence.tags for sentence in examples], [
        tags_of(*pair) for pair in zip(examples, predictions, strict=True)
    ]


def marked(prediction: Tagged) -> list[Marked]:
    """Return the entities of a prediction as annotators import them."""
    return [
        Marked(entity.start, entity.end, entity.label, entity.text, entity.probability)
        for entity in prediction.entities
    ]


def _prefixed(label: str, labels: Sequence[str]) -> str:
    """Return a label of a model; one without a prefix beside O is inside of an entity: runs of it are entities."""
    return f"I-{label}" if "O" in labels and is_word_tag(label) else label
