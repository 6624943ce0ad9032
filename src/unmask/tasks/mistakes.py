"""What a page of errors shows of an example on which a model is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """A marked span of a text.

    Attributes:
        start, end: character offsets, `end` exclusive.
        label: the label of the span; may be empty.
    """

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True)
class Passage:
    """A text of an example.

    Attributes:
        text: the text as given.
        name: its role, for example "question"; empty if the example has only one text.
        gold, predicted: the gold spans and the spans that the model predicted.
    """

    text: str
    name: str = ""
    gold: tuple[Mark, ...] = ()
    predicted: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """An example on which the model is wrong.

    Attributes:
        passages: the texts of the example.
        caption: the source of the example, for example a file and a line.
        score: the severity of the mistake; larger is worse.
        measure: what `score` measures, in words.
        gold, predicted: the gold answer and the prediction as text; empty if the marks show them.
        probabilities: the probability of each class, if there are classes.
    """

    passages: tuple[Passage, ...]
    caption: str
    score: float
    measure: str
    gold: str = ""
    predicted: str = ""
    probabilities: Mapping[str, float] = field(default_factory=dict)


def worst_first(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Return mistakes in the order of their scores, the largest first; of equal ones, the first is the first."""
    return sorted(mistakes, key=lambda mistake: -mistake.score)
