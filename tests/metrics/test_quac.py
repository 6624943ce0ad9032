"""The metrics of QuAC agree with an independent implementation of its scorer's definitions, question by question."""

import math
import random
import re
import string
from collections import defaultdict

import numpy as np
import pytest

from unmask.metrics import question_answering
from unmask.metrics.intervals import intervals, wilson
from unmask.metrics.question_answering import Gold, Guess, answer_f1, human_f1, measure_quac, settle_references

CANNOT = "CANNOTANSWER"


def words(text):
    """Return the words of a text: lower case, without ASCII punctuation and articles."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(?:a|an|the)\b", " ", text).split()


def word_f1(first, second):
    left, common = words(first), 0
    for word in words(second):
        if word in left:
            left.remove(word)
            common += 1
    if not common:
        return 0.0
    precision, recall = common / len(words(first)), common / len(words(second))
    return 2 * precision * recall / (precision + recall)


def of_span(guess, truth):
    return float(guess == CANNOT) if truth == CANNOT else word_f1(guess, truth)


def expected(gold, predicted):
    """Return the metrics, dialogue by dialogue and question by question."""
    totals, good_dialogues, dialogues = defaultdict(list), 0, defaultdict(list)
    for one, guess in zip(gold, predicted, strict=True):
        dialogues[one.dialogue].append((one, guess))
    for turns in dialogues.values():
        good_dialogue = True
        for one, guess in turns:
            spans = [text for text in one.references if text != CANNOT]
            truths = spans if len(spans) > len(one.references) - len(spans) else [CANNOT]
            folds = [truths[:i] + truths[i + 1 :] for i in range(len(truths))] if len(truths) > 1 else [truths]
            human = 1.0
            if len(truths) > 1:
                human = sum(max(word_f1(a, b) for b in rest) for a, rest in zip(truths, folds, strict=True)) / len(
                    truths
                )
            if human >= 0.4:
                totals["human_f1"].append(human)
            if guess is None:
                score = 0.0
            else:
                score = sum(max(of_span(guess.span, truth) for truth in rest) for rest in folds) / len(folds)
            totals["unfiltered_f1"].append(score)
            if guess is not None and human < 0.4:
                continue
            good = guess is not None and score >= human
            good_dialogue &= good
            totals["f1"].append(score)
            totals["heq_q"].append(good)
            totals["yes_no"].append(guess is not None and guess.yesno == one.yesno)
            totals["followup"].append(guess is not None and guess.followup == one.followup)
            if truths == [CANNOT]:
                totals["unanswerable"].append(score)
        good_dialogues += good_dialogue
    names = ("f1", "heq_q", "yes_no", "followup", "unanswerable", "unfiltered_f1", "human_f1")
    means = {name: 100 * math.fsum(totals[name]) / len(totals[name]) if totals[name] else 0.0 for name in names}
    return means | {"heq_d": 100 * good_dialogues / len(dialogues)}


def drawn(rng):
    """Return random gold answers and predictions of one to three dialogues."""

    def text():
        if rng.random() < 0.2:
            return CANNOT
        return " ".join(
            rng.choice(["the", "A", "dog", "dog,", "cat", "sea", "in", "old"]) for _ in range(rng.randint(1, 4))
        )

    gold, predicted = [], []
    for dialogue in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 3)):
            texts = tuple(text() for _ in range(rng.choice([1, 2, 3, 4, 5])))
            gold.append(Gold(f"d{dialogue}", texts, rng.choice("ynx"), rng.choice("ynm")))
            guess = rng.choice([text(), rng.choice(texts)])
            predicted.append(None if rng.random() < 0.1 else Guess(guess, rng.choice("ynx"), rng.choice("ynm")))
    return gold, predicted


def test_random_dialogues():
    rng = random.Random(0)
    seen = set()
    for _ in range(400):
        gold, predicted = drawn(rng)
        found = measure_quac(gold, predicted)(np.arange(len(gold)))
        assert found == pytest.approx(expected(gold, predicted))
        seen |= {name for name, value in found.items() if 0 < value < 100}
    assert seen == set(found), "every metric had a value other than 0 and 100"


HUMANS = [
    (["cat"], 1.0),
    (["cat", "cat"], 1.0),
    (["cat", "dog"], 0.0),
    (["old cat", "cat"], 2 / 3),
    (["old cat", "cat", "sea"], (2 / 3 + 2 / 3 + 0) / 3),
]


@pytest.mark.parametrize(("texts", "f1"), HUMANS)
def test_humans_are_scored_with_the_others(texts, f1):
    assert human_f1(texts) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["cat", CANNOT], [CANNOT]),
        ([CANNOT, "cat", "dog"], ["cat", "dog"]),
        ([CANNOT, CANNOT, "dog"], [CANNOT]),
        (["cat"], ["cat"]),
    ],
)
def test_half_of_the_answers_settle_that_there_is_none(texts, kept):
    assert settle_references(texts) == kept


def test_a_prediction_is_scored_without_each_answer_in_turn():
    # without "old cat" the best is 2/3, without the others it is 1
    assert answer_f1(["old cat", "cat", "sea"], "old cat") == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert answer_f1([CANNOT], CANNOT) == 1
    assert answer_f1([CANNOT], "cannotanswer") == 0
    assert answer_f1(["cat", "dog"], CANNOT) == 0


def test_questions_on_which_humans_disagree_count_only_unfiltered():
    gold = [Gold("d", ("cat", "dog"), "x", "m"), Gold("d", ("sea",), "y", "y")]
    found = measure_quac(gold, [Guess("bird", "y", "y"), Guess("sea", "y", "n")])(np.arange(2))
    assert found == pytest.approx(
        {
            "f1": 100,
            "heq_q": 100,
            "heq_d": 100,
            "yes_no": 100,
            "followup": 0,
            "unanswerable": 0,
            "unfiltered_f1": 50,
            "human_f1": 100,
        }
    )
    # but a missing prediction counts, also on these
    found = measure_quac(gold, [None, Guess("sea", "y", "n")])(np.arange(2))
    assert (found["f1"], found["heq_q"], found["heq_d"], found["human_f1"]) == (50, 50, 0, 100)


def test_dialogues_are_resampled_as_wholes():
    gold = [Gold(name, ("sea",), "x", "m") for name in "aabbcc"]
    guesses = [Guess("sea" if right else "cat", "x", "m") for right in (1, 1, 1, 0, 1, 1)]
    of = measure_quac(gold, guesses)
    assert of(np.arange(6))["heq_d"] == pytest.approx(200 / 3)
    assert of(np.array([0, 1, 0, 1, 2, 3]))["heq_d"] == pytest.approx(200 / 3), "a dialogue drawn twice counts twice"
    ends = intervals(of, 6, groups=[one.dialogue for one in gold])["heq_d"]
    assert ends == pytest.approx([100 * end for end in wilson(2 / 3, 3)], abs=1), "three dialogues"


@pytest.mark.parametrize("planted", ["filter", "majority", "folds", "ties"])
def test_a_planted_fault_is_noticed(monkeypatch, planted):
    if planted == "filter":
        monkeypatch.setattr(question_answering, "MIN_HUMAN_F1", 0.5)
    elif planted == "majority":
        monkeypatch.setattr(
            question_answering,
            "settle_references",
            lambda texts: [text for text in texts if text != CANNOT] or [CANNOT],
        )
    elif planted == "folds":
        monkeypatch.setattr(
            question_answering, "answer_f1", lambda texts, span: max(of_span(span, text) for text in texts)
        )
    else:
        monkeypatch.setattr(question_answering, "human_f1", lambda texts: human_f1(texts) + 1e-9)
    rng = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(300):
            gold, predicted = drawn(rng)
            assert measure_quac(gold, predicted)(np.arange(len(gold))) == pytest.approx(expected(gold, predicted))
