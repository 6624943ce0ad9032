"""The metrics of CoQA agree with an independent implementation of its scorer's definitions."""

import random
import re
import string

import numpy as np
import pytest

from unmask.metrics import question_answering
from unmask.metrics.question_answering import by_domain, measure_coqa, turn_scores


def plain(text):
    text = re.sub(r"\b(?:a|an|the)\b", " ", "".join(c for c in text.lower() if c not in string.punctuation))
    return text.split()


def expected(references, predicted):
    """Return exact match and F1 by leaving out one gold answer after the other."""
    if predicted is None:
        return 0.0, 0.0
    guess = plain(predicted)

    def f1(gold):
        words, left, common = plain(gold), list(guess), 0
        for word in words:
            if word in left:
                left.remove(word)
                common += 1
        if not words or not guess:
            return float(words == guess)
        return 2 * common / (len(words) + len(guess))

    sums = [0.0, 0.0]
    for number in range(len(references)):
        rest = [text for other, text in enumerate(references) if other != number] or list(references)
        sums[0] += any(plain(text) == guess for text in rest)
        sums[1] += max(map(f1, rest))
    return sums[0] / len(references), sums[1] / len(references)


WORDS = ["yes", "No", "unknown", "the", "A", "dog", "dog.", "cat", "'s", "an", "!", ""]


def drawn(rng):
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(0, 3))) for _ in range(5)]
    return texts[: rng.choice([1, 2, 4])], None if rng.random() < 0.05 else rng.choice(texts)


def test_random_turns():
    rng, seen = random.Random(0), set()
    for _ in range(3000):
        references, predicted = drawn(rng)
        found = turn_scores(references, predicted)
        assert found == pytest.approx(expected(references, predicted))
        seen |= {(0 < found[0] < 1, 0 < found[1] < 1)}
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("references", "predicted", "scores"),
    [
        (["white"], "White.", (1, 1)),
        (["white", "white", "black"], "white", (1, 1)),
        (["white", "black", "red"], "white", (2 / 3, 2 / 3)),
        (["a white cat", "white"], "white", (0.5, (1 + 2 / 3) / 2)),
        (["the"], "", (1, 1)),
        (["unknown"], "yes", (0, 0)),
        (["yes"], None, (0, 0)),
    ],
)
def test_hand_worked_turns(references, predicted, scores):
    assert turn_scores(references, predicted) == pytest.approx(scores)
    assert expected(references, predicted) == pytest.approx(scores)


def test_domains():
    of = measure_coqa([["a"], ["dog"], ["cat"], ["sea"]], ["a", "dog", "dog", "sea"])
    assert of(np.arange(4)) == {"f1": 75, "exact_match": 75}
    found = by_domain(["cnn", "cnn", "race", "science"], of)
    assert {name: scores["f1"] for name, scores in found.items()} == {
        "news": 100,
        "mid-high_school": 0,
        "science": 100,
        "in_domain": pytest.approx(200 / 3),
        "out_domain": 100,
    }
    assert by_domain(["", "", "", ""], of) == {}


@pytest.mark.parametrize("fault", ["one fold", "articles", "empty"])
def test_a_planted_fault_is_noticed(monkeypatch, fault):
    if fault == "one fold":
        monkeypatch.setattr(
            question_answering,
            "turn_scores",
            lambda references, guess: tuple(np.max([expected([one], guess) for one in references], 0)),
        )
    elif fault == "articles":
        monkeypatch.setattr(
            question_answering,
            "normalize",
            lambda text: " ".join(text.lower().translate(str.maketrans("", "", string.punctuation)).split()),
        )
    else:
        monkeypatch.setattr(question_answering, "overlap", lambda gold, guess: float(bool(set(gold) & set(guess))))
    rng = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(300):
            references, predicted = drawn(rng)
            assert question_answering.turn_scores(references, predicted) == pytest.approx(
                expected(references, predicted)
            )
