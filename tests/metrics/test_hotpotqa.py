"""The metrics of HotpotQA agree with an independent implementation of its scorer's definitions."""

import random
import re
import string

import numpy as np
import pytest

from unmask.metrics import question_answering
from unmask.metrics.question_answering import NAMES, Solution, measure_hotpotqa, question_scores, support_f1


def plain(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", text).split())


def f1_of(precision, recall):
    return 0.0 if precision + recall == 0 else 2 / (1 / precision + 1 / recall) if precision * recall else 0.0


def expected(gold, predicted):
    """Return the metrics of a question by name."""
    found = dict.fromkeys(NAMES, 0.0)
    parts = {}
    if predicted.answer is not None:
        truth, guess = plain(gold.answer), plain(predicted.answer)
        left, common = guess.split(), 0
        for word in truth.split():
            if word in left:
                left.remove(word)
                common += 1
        closed = {"yes", "no", "noanswer"} & {truth, guess} and truth != guess
        common = 0 if closed else common
        parts[""] = (
            float(truth == guess),
            common / len(guess.split()) if common else 0.0,
            common / len(truth.split()) if common else 0.0,
        )
    if predicted.support is not None:
        truth, guess = list(dict.fromkeys(gold.support)), list(dict.fromkeys(predicted.support))
        common = sum(fact in truth for fact in guess)
        parts["support_"] = (
            float(sorted(truth) == sorted(guess)),
            common / len(guess) if guess else 0.0,
            common / len(truth) if truth else 0.0,
        )
    if len(parts) == 2:
        parts["joint_"] = tuple(np.prod(list(parts.values()), axis=0))
    for part, (exact, precision, recall) in parts.items():
        found |= {f"{part}exact_match": exact, f"{part}precision": precision, f"{part}recall": recall}
        found[f"{part}f1"] = f1_of(precision, recall)
    return found


def drawn(rng):
    def answer():
        return " ".join(rng.choices(["yes", "no", "noanswer", "the", "dog", "cat.", "old", "Dog"], k=rng.randint(1, 3)))

    def facts():
        return [(rng.choice("AB"), rng.randint(0, 2)) for _ in range(rng.randint(0, 4))]

    gold = Solution(answer(), facts())
    near = gold.answer if rng.random() < 0.3 else answer()
    some = list(gold.support) if rng.random() < 0.3 else facts()
    return gold, Solution(None if rng.random() < 0.1 else near, None if rng.random() < 0.1 else some)


def test_random_questions():
    rng, between = random.Random(0), set()
    rows = [drawn(rng) for _ in range(3000)]
    for gold, predicted in rows:
        found = dict(zip(NAMES, question_scores(gold, predicted), strict=True))
        assert found == pytest.approx(expected(gold, predicted))
        between |= {name for name, value in found.items() if 0 < value < 1}
    assert between == {name for name in NAMES if not name.endswith("exact_match")}
    whole = measure_hotpotqa(*zip(*rows, strict=True))(np.arange(len(rows)))
    means = {name: 100 * np.mean([expected(*row)[name] for row in rows]) for name in NAMES}
    assert whole == pytest.approx(means)


FACTS = [("A", 0), ("B", 1)]


@pytest.mark.parametrize(
    ("gold", "predicted", "some"),
    [
        (Solution("yes", FACTS), Solution("Yes.", FACTS), {"joint_exact_match": 1, "joint_f1": 1}),
        (Solution("yes", FACTS), Solution("yes sir", FACTS), {"f1": 0, "support_f1": 1, "joint_f1": 0}),
        (
            Solution("old dog", FACTS),
            Solution("dog", FACTS[:1]),
            {"precision": 1, "recall": 0.5, "joint_recall": 0.25, "joint_precision": 1, "joint_f1": 0.4},
        ),
        (Solution("dog", FACTS), Solution("dog", []), {"exact_match": 1, "support_f1": 0, "joint_f1": 0}),
        (Solution("dog", FACTS), Solution(None, FACTS), {"exact_match": 0, "support_f1": 1, "joint_f1": 0}),
        (Solution("dog", FACTS), Solution("dog", None), {"f1": 1, "support_f1": 0, "joint_exact_match": 0}),
        (Solution("dog", [("A", 0), ("A", 0)]), Solution("dog", [("A", 0)]), {"support_exact_match": 1}),
    ],
)
def test_hand_worked_questions(gold, predicted, some):
    found = dict(zip(NAMES, question_scores(gold, predicted), strict=True))
    assert {name: found[name] for name in some} == pytest.approx(some)
    assert found == pytest.approx(expected(gold, predicted))


def test_support_alone():
    assert support_f1(FACTS, [("A", 0)]) == pytest.approx(2 / 3)
    assert support_f1(FACTS, []) == 0


@pytest.mark.parametrize("fault", ["closed", "sets", "joint"])
def test_a_planted_fault_is_noticed(monkeypatch, fault):
    if fault == "closed":
        monkeypatch.setattr(question_answering, "CLOSED", ("yes", "no"))
    elif fault == "sets":
        monkeypatch.setattr(question_answering, "_support", lambda gold, found: (float(found >= gold), 1.0, 1.0))
    else:
        monkeypatch.setattr(
            question_answering,
            "_row",
            lambda exact, precision, recall: (exact, (precision + recall) / 2, precision, recall),
        )
    rng = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(300):
            pair = drawn(rng)
            assert dict(zip(NAMES, question_scores(*pair), strict=True)) == pytest.approx(expected(*pair))
