"""The metrics of QuAC, times 100, as its official scorer computes them (scorer.py on quac.ai; Choi et al. 2018).

Input: predicted spans and dialogue acts, and the gold answers of each question. Output: F1 and the share of questions
(HEQ-Q) and of dialogues (HEQ-D) for which the model is as good as humans are.

F1 is that of words, as in SQuAD. If at least half of the gold answers are CANNOTANSWER, it is the only one; otherwise
it is none of them. The F1 of a prediction is the mean over the gold answers of the best F1 with the others, as humans
can be scored only with the others; that of humans is computed in the same way. Questions on which humans reach less
than 0.4 are left out of everything but the "unfiltered" F1. A missing prediction counts 0, even on such a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure
from unmask.metrics.question_answering import normalize, overlap

CANNOT = "CANNOTANSWER"
MIN_HUMAN_F1 = 0.4
"""Smallest F1 of humans of the questions that count."""


class Gold(NamedTuple):
    """The gold answers of a question.

    Attributes:
        dialogue: the id of its dialogue.
        references: the texts of its answers.
        yesno, followup: its dialogue acts.
    """

    dialogue: str
    references: tuple[str, ...]
    yesno: str
    followup: str


class Guess(NamedTuple):
    """A prediction: a span of the passage or CANNOTANSWER, and dialogue acts."""

    span: str
    yesno: str
    followup: str


def settle_references(references: Sequence[str]) -> list[str]:
    """Return the gold answers that count: CANNOTANSWER alone, or those that are not."""
    answers = [text for text in references if text != CANNOT]
    return answers if 2 * len(answers) > len(references) else [CANNOT]


def human_f1(references: Sequence[str]) -> float:
    """Return the mean F1 of each of the gold answers that count with the best of the others; 1 for a single one."""
    if len(references) == 1:
        return 1.0
    return sum(
        max(_word_f1(other, reference) for other in others)
        for reference, others in zip(references, _others(references), strict=True)
    ) / len(references)


def answer_f1(references: Sequence[str], span: str) -> float:
    """Return the mean F1 of a prediction with the best of all gold answers that count but one."""
    if len(references) == 1:
        return _span_f1(references[0], span)
    best = [max(_span_f1(other, span) for other in others) for others in _others(references)]
    return sum(best) / len(best)


def measure(gold: Sequence[Gold], predicted: Sequence[Guess | None]) -> Measure:
    """Return a function from questions to metrics; None is a missing prediction.

    In a selection of questions, a dialogue counts by the share of its questions that are selected.
    """
    settled = [settle_references(question.references) for question in gold]
    human = np.array([human_f1(texts) for texts in settled])
    pairs = list(zip(gold, predicted, strict=True))
    f1 = np.array(
        [
            0.0 if guess is None else answer_f1(texts, guess.span)
            for texts, guess in zip(settled, predicted, strict=True)
        ]
    )
    there = np.array([guess is not None for guess in predicted], bool)
    yesno = np.array([guess is not None and guess.yesno == question.yesno for question, guess in pairs])
    followup = np.array([guess is not None and guess.followup == question.followup for question, guess in pairs])
    none = np.array([texts == [CANNOT] for texts in settled])
    agreed = human >= MIN_HUMAN_F1
    counted, good = agreed | ~there, there & (f1 >= human)
    names = {name: number for number, name in enumerate(dict.fromkeys(question.dialogue for question in gold))}
    dialogue = np.array([names[question.dialogue] for question in gold], np.int64)
    sizes = np.bincount(dialogue, minlength=len(names))

    def chosen(examples: np.ndarray) -> dict[str, float]:
        counting = examples[counted[examples]]
        share = np.bincount(dialogue[examples], minlength=len(names)) / sizes  # (dialogues,)
        bad = np.bincount(dialogue[examples], (counted & ~good)[examples], minlength=len(names))
        return {
            "f1": _mean(f1[counting]),
            "heq_q": _mean(good[counting]),
            "heq_d": 100 * float(share[bad == 0].sum() / share.sum()),
            "yes_no": _mean(yesno[counting]),
            "followup": _mean(followup[counting]),
            "unanswerable": _mean(f1[counting[none[counting]]]),
            "unfiltered_f1": _mean(f1[examples]),
            "human_f1": _mean(human[examples[agreed[examples]]]),
        }

    return chosen


def _others(references: Sequence[str]) -> list[list[str]]:
    """Return for each of several gold answers the others."""
    return [[*references[:number], *references[number + 1 :]] for number in range(len(references))]


def _span_f1(gold: str, span: str) -> float:
    return float(span == CANNOT) if gold == CANNOT else _word_f1(gold, span)


def _word_f1(gold: str, span: str) -> float:
    return overlap(normalize(gold).split(), normalize(span).split())


def _mean(values: np.ndarray) -> float:
    return 100 * float(values.mean()) if len(values) else 0.0
