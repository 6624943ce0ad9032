"""Answers of several kinds: the labels of windows, and how the kinds of several windows are combined."""

import numpy as np
import pytest

from unmask.data.batches.batch import Sample
from unmask.data.labelled.question_files import Question
from unmask.tasks.answer_head import KIND, KINDS, KindAnswered, read_kinds, with_kind
from unmask.tasks.dialogues import Coqa
from unmask.tasks.passage_windows import PassageWindow

PASSAGE = "one two three four"
OFFSETS = np.array([[0, 3], [4, 7], [8, 13], [14, 18]])
TASK = Coqa(length=32, question=4, stride=4, answer=2, best=3)
ALL = {"yes": "yes", "no": "no", "none": "unknown"}


def window(kinds, *best, offsets=OFFSETS):
    """Return logits of a window: of the kinds, in order, and (token, logit) of starts and ends."""
    values = np.zeros((1 + len(offsets), 6))
    values[:, 2:] = kinds
    for token, value in best:
        values[1 + token, :2] = value
    return values


def read(*logits, texts=ALL, offsets=OFFSETS):
    windows = [PassageWindow(0, offsets, None) for _ in logits]
    (found,) = read_kinds(TASK, [Question("q", "?", PASSAGE)], windows, logits, texts)
    return KindAnswered(**found)


@pytest.mark.parametrize(
    ("kinds", "answer", "kind"),
    [
        ([3, 0, 0, 0], "two", "span"),
        ([0, 3, 0, 0], "yes", "yes"),
        ([0, 0, 3, 0], "no", "no"),
        ([0, 0, 0, 3], "unknown", "unknown"),
    ],
)
def test_one_window_decides_by_its_largest_logit(kinds, answer, kind):
    found = read(window(kinds, (1, 2.0)))
    assert (found.answer, found.kind) == (answer, kind)
    assert (found.start, found.end) == ((4, 7) if kind == "span" else (None, None))
    odds = np.exp(kinds) / np.exp(kinds).sum()
    assert list(found.kinds) == list(KINDS)
    assert list(found.kinds.values()) == pytest.approx(odds)
    assert sum(one.probability for one in found.nbest) == pytest.approx(1)
    assert found.probability == next(one.probability for one in found.nbest if one.answer == answer)


def test_none_needs_all_windows():
    unsure, sure = window([1, 0, 0, 3], (1, 2.0)), window([0, 4, 0, 0], (1, 1.0))
    assert read(unsure).answer == "unknown"
    assert read(unsure, sure).answer == "yes"


def test_spans_prefer_windows_that_have_one():
    first, second = window([0, 0, 0, 9], (0, 5.0)), window([9, 0, 0, 0], (2, 3.0))
    assert read(first, second).answer == "three", "the score in the first window is higher, but it has no answer"


def test_none_may_be_excluded():
    found = read(window([1, 0, 0, 9], (1, 2.0)), texts={"yes": "yes", "no": "no"})
    assert (found.answer, list(found.kinds)) == ("two", ["span", "yes", "no"])


def test_a_passage_without_tokens_has_no_span():
    found = read(window([9, 1, 0, 0], offsets=np.zeros((0, 2), np.int64)), offsets=np.zeros((0, 2), np.int64))
    assert found.answer == "yes"


@pytest.mark.parametrize(("inside", "label"), [(True, 1), (False, 3)])
def test_windows_without_the_answer_are_none(inside, label):
    made = with_kind(PassageWindow(0, OFFSETS, Sample(key=(), ids=np.zeros(3))), "yes", inside=inside)
    assert made.sample.labels[KIND].tolist() == [label]
