"""The metrics of dialogues about a passage, CoQA and QuAC, times 100, as their official scorers compute them.

Input: predicted answers, and the gold answers of each question. F1 is that of words, as in SQuAD 2.0; one of several
gold answers is left out in turn, as humans can be scored only with the others. A missing prediction counts 0.

**CoQA** (evaluate-v1.0.py; Reddy et al. 2019). Output: exact match and F1, of all questions and of those of each
domain. The score is the mean, over the gold answers left out, of the best match with the others.

**QuAC** (scorer.py on quac.ai; Choi et al. 2018). Input: also dialogue acts. Output: F1 and the share of questions
(HEQ-Q) and of dialogues (HEQ-D) for which the model is as good as humans are. If at least half of the gold answers are
CANNOTANSWER, it is the only one; otherwise it is none of them. Questions on which humans reach less than 0.4 are left
out of everything but the "unfiltered" F1, except those without a prediction, which count 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure
from unmask.metrics.question_answering import normalize, overlap

IN_DOMAIN = {
    "mctest": "children_stories",
    "gutenberg": "literature",
    "race": "mid-high_school",
    "cnn": "news",
    "wikipedia": "wikipedia",
}
"""Names of the domains that CoQA has training data of, by source."""
OUT_DOMAIN = {"reddit": "reddit", "science": "science"}
"""Names of the others."""
CANNOT = "CANNOTANSWER"
"""The answer of questions without one."""
MIN_HUMAN_F1 = 0.4
"""Smallest F1 of humans of the questions that count."""


def turn_scores(references: Sequence[str], predicted: str | None) -> tuple[float, float]:
    """Return exact match and F1 of a prediction, from 0 to 1; None is a missing one."""
    if predicted is None:
        return 0.0, 0.0
    scores = [_exact_and_f1(gold, predicted) for gold in references]
    folds = [[*scores[:number], *scores[number + 1 :]] for number in range(len(scores))]
    if len(scores) == 1:
        folds = [scores]
    exact = sum(max(exact_match for exact_match, _ in fold) for fold in folds) / len(folds)
    return exact, sum(max(f1 for _, f1 in fold) for fold in folds) / len(folds)


def measure_coqa(gold: Sequence[Sequence[str]], predicted: Sequence[str | None]) -> Measure:
    """Return a function from questions to metrics."""
    pairs = zip(gold, predicted, strict=True)
    values = 100 * np.array([turn_scores(*pair) for pair in pairs], float).reshape(-1, 2)  # (questions, 2)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        exact, f1 = values[examples].mean(0)
        return {"f1": float(f1), "exact_match": float(exact)}

    return chosen


def by_domain(sources: Sequence[str], of: Measure) -> dict[str, dict[str, float]]:
    """Return the metrics of the questions of each domain that occurs, and of those in and out of domain.

    Args:
        sources: the source of each question's story.
        of: the metrics of a selection of questions.
    """
    names = {**IN_DOMAIN, **OUT_DOMAIN}
    parts = {names.get(source, source): [source] for source in dict.fromkeys(sources) if source}
    parts |= {"in_domain": list(IN_DOMAIN), "out_domain": list(OUT_DOMAIN)}
    selections = {name: np.flatnonzero(np.isin(sources, part)) for name, part in parts.items()}
    return {name: of(examples) for name, examples in selections.items() if len(examples)}


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


def measure_quac(gold: Sequence[Gold], predicted: Sequence[Guess | None]) -> Measure:
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


def _exact_and_f1(gold: str, predicted: str) -> tuple[float, float]:
    gold, predicted = normalize(gold), normalize(predicted)
    exact = float(gold == predicted)
    return exact, overlap(gold.split(), predicted.split()) if gold and predicted else exact


def _others(references: Sequence[str]) -> list[list[str]]:
    """Return for each of several gold answers the others."""
    return [[*references[:number], *references[number + 1 :]] for number in range(len(references))]


def _span_f1(gold: str, span: str) -> float:
    return float(span == CANNOT) if gold == CANNOT else _word_f1(gold, span)


def _word_f1(gold: str, span: str) -> float:
    return overlap(normalize(gold).split(), normalize(span).split())


def _mean(values: np.ndarray) -> float:
    return 100 * float(values.mean()) if len(values) else 0.0
