"""Predictions of token classification: entities, read from the logits of words.

In: a sentence, and the logits of its words. Out: its entities, and the logits, by which probabilities are calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from unmask.data.labelled.sentence import Sentence
from unmask.data.labelled.tag_schemes import write_tags
from unmask.metrics.token_classification import Chunk, chunks
from unmask.tasks.calibration import softmax


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


class Tagged(msgspec.Struct, frozen=True, dict=True):
    """A text, as given or joined from words, and its entities in order."""

    text: str
    entities: list[Entity]

    @property
    def scores(self) -> WordScores | None:
        """What the entities were read from, for calibration: not a field, so that it is neither written nor compared.

        None: the text has no words, or was not predicted here.
        """
        return self.__dict__.get("scores")


def read_tags(sentence: Sentence, labels: Sequence[str], rows: Sequence[np.ndarray], temperature: float) -> Tagged:
    """Convert the logits of a sentence's windows, each (words, labels), to its entities."""
    if not rows:
        return Tagged(sentence.text, [])
    logits = np.concatenate(rows).astype(np.float64) / temperature  # (words, labels)
    probabilities = softmax(logits).max(1)  # (words,)
    found = chunks([labels[number] for number in logits.argmax(1)])
    tagged = Tagged(
        sentence.text,
        [
            Entity(kind, start, end, sentence.text[start:end], float(probabilities[chunk.start : chunk.stop].min()))
            for chunk, (kind, start, end) in zip(found, sentence.in_text(found), strict=True)
        ],
    )
    tagged.__dict__["scores"] = WordScores(tuple(labels), logits.astype(np.float32))
    return tagged


def tags_of(sentence: Sentence, prediction: Tagged) -> list[str]:
    """Return the tags of a prediction, one per word, in IOB2."""
    starts = {start: number for number, start in enumerate(sentence.starts)}
    stops = {stop: number + 1 for number, stop in enumerate(sentence.stops)}
    found = [Chunk(one.label, starts[one.start], stops[one.end]) for one in prediction.entities]
    return write_tags(found, len(sentence.starts))
