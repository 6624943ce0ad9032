"""A mistake of a model, as a task describes it for whoever wants to read it: texts, what is true, what was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """A part of a text that is pointed at.

    Attributes:
        start, end: its characters, end exclusive.
        label: what it is called, if anything.
    """

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True)
class Passage:
    """A text of an example.

    Attributes:
        text: as given.
        name: what it is called, "question" for example; none where there is only one.
        gold, predicted: the parts that are right to point at, and those that the model points at.
    """

    text: str
    name: str = ""
    gold: tuple[Mark, ...] = ()
    predicted: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """What a model got wrong.

    Attributes:
        passages: the texts of the example.
        caption: where the example stands, a file and a line for example.
        score: how bad it is, larger is worse.
        measure: what the score is, in words.
        gold, predicted: what is true and what the model says, in words; empty where marks say it all.
        probabilities: the probabilities among which the model chose, if any.
    """

    passages: tuple[Passage, ...]
    caption: str
    score: float
    measure: str
    gold: str = ""
    predicted: str = ""
    probabilities: Mapping[str, float] = field(default_factory=dict)
