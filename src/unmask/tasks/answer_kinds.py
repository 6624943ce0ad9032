"""Answers that are a span of the passage, yes, no, or none of these, as in CoQA and HotpotQA.

Input: windows of questions with an answer of one of these kinds. Output: the label of each window's classifier, and the
answers that follow from the logits.

In training, a window that contains what answers the question has the kind of the answer, and other windows "none". In
prediction, the score of a kind is the highest log-probability of all windows, but the lowest for "none", as for "no
answer" in question answering; a span's score is the sum of its two logits and the log-probability of spans in its
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from unmask.data.labelled.squad_file import Question
from unmask.tasks.extraction import Extraction, Found, Span
from unmask.tasks.passage_windows import Window

KIND = "kind"
"""Name of the classifier and of its label."""
KINDS = ("span", "yes", "no", "none")


class KindAnswered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question with its answer.

    Attributes:
        id, question: the id and the question as given.
        answer: a span of the passage, or the text of another kind of answer.
        start, end: character offsets of the span, `end` exclusive; None if the answer is no span.
        probability: the probability, normalized over the listed answers.
        kind: the kind of the answer.
        kinds: the probability of each kind that may be answered.
        nbest: the most probable answers of all kinds, the best first.
        cut: whether the question was truncated because it exceeds the task's `question`.
    """

    id: str
    question: str
    answer: str
    start: int | None
    end: int | None
    probability: float
    kind: str
    kinds: dict[str, float]
    nbest: tuple[Span, ...]
    cut: bool = False


def with_kind(window: Window, kind: str, *, inside: bool) -> Window:
    """Return a window with the label of its kind; `inside`: whether it contains what answers the question."""
    label = np.array([KINDS.index(kind if inside else "none")])
    return replace(window, sample=window.sample.add(labels={KIND: label}))


def read_kinds(
    task: Extraction,
    examples: Sequence[Question],
    windows: Sequence[Window],
    logits: Sequence[np.ndarray],
    texts: dict[str, str],
) -> list[dict[str, Any]]:
    """Return the attributes of `KindAnswered` for each example.

    Args:
        task: settings of the search.
        examples: the questions.
        windows: their windows, whose first candidate is [CLS].
        logits: start, end and `KINDS` of each candidate of a window, (tokens, 6 or more).
        texts: the answer of each kind that may be answered besides spans.
    """
    rows = np.array([values[0, 2:6] for values in logits], np.float64).reshape(-1, len(KINDS))
    scores = rows - np.logaddexp.reduce(rows, 1, keepdims=True)  # (windows, kinds)
    spans = [values[:, :2] for values in logits]
    found = task.search(examples, windows, spans, none=True, bonus=scores[:, 0].tolist())
    return [_choose(task, *pair, scores, texts) for pair in zip(examples, found, strict=True)]


def _choose(
    task: Extraction, example: Question, found: Found, scores: np.ndarray, texts: dict[str, str]
) -> dict[str, Any]:
    own = scores[found.windows]  # (windows of the question, kinds)
    best = np.concatenate([own[:, :-1].max(0), own[:, -1:].min(0)])  # (kinds,)
    spans, _ = task.list_spans(example, found.spans)
    allowed = [name for name in KINDS if name in texts or (name == "span" and spans)]
    odds = np.exp(best[[KINDS.index(name) for name in allowed]])
    kinds = dict(zip(allowed, (odds / odds.sum()).tolist(), strict=True))
    listed = [Span(one.answer, one.start, one.end, one.probability * kinds["span"]) for one in spans]
    others = {name: Span(texts[name], None, None, kinds[name]) for name in allowed if name != "span"}
    kind = max(kinds, key=lambda name: kinds[name])
    chosen = listed[0] if kind == "span" else others[kind]
    return {
        **{"id": example.id, "question": example.question},
        **{"answer": chosen.answer, "start": chosen.start, "end": chosen.end, "probability": chosen.probability},
        **{"kind": texts.get(kind, kind) if kind == "none" else kind, "kinds": kinds, "cut": found.cut},
        "nbest": tuple(sorted([*listed, *others.values()], key=lambda one: -one.probability)),
    }
