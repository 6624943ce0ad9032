"""Equal examples are those that a dictionary of folded texts finds."""

import random

import numpy as np
import pytest

from unmask.data.labelled import identities as module
from unmask.data.labelled.folding import fold
from unmask.data.labelled.identities import Identities, identities

SPELLINGS = ("{}", "{}!", " {}", "{}\u200b", "\u00ab{}\u00bb")


def made(rng):
    """Texts of which many are equal, or differ in few of many bytes."""
    bases = [rng.choice(["", "x" * rng.randrange(60)]) + rng.choice("abcé?") for _ in range(rng.randrange(1, 12))]
    bases += ["".join(rng.choices("ab", k=40)) for _ in range(rng.randrange(3))]
    number = rng.choice([1, 1, 2, None])
    return [
        tuple(
            rng.choice(SPELLINGS).format(rng.choice(bases))
            for _ in range(rng.randrange(4) if number is None else number)
        )
        for _ in range(rng.randrange(120))
    ]


def naive(texts):
    return b"\0".join(sorted(map(fold, texts)))


@pytest.mark.parametrize("seed", range(80))
def test_equal_examples_are_those_of_a_dictionary(monkeypatch, seed):
    rng = random.Random(seed)
    if seed % 4 == 0:  # as if all keys were equal
        monkeypatch.setattr(module, "_keys", lambda folded: np.zeros(len(folded), np.uint64))
    examples, others = made(rng), made(rng)
    known, asked = Identities.of(examples), Identities.of(iter(others))
    expected = list(map(naive, examples))
    assert list(known.texts) == identities(examples) == expected
    firsts = {}
    assert known.firsts().tolist() == [firsts.setdefault(text, index) for index, text in enumerate(expected)]
    equal = asked.equal(known)
    wanted = {index: firsts[naive(texts)] for index, texts in enumerate(others) if naive(texts) in firsts}
    assert list(equal.items()) == list(wanted.items())
    assert known.is_ascii.tolist() == [all(text.isascii() for text in texts) for texts in examples]
    chosen = np.array([rng.random() < 0.5 for _ in examples], bool)
    assert known.select(chosen).equal(known.select(~chosen)) == Identities.of(
        [texts for texts, flag in zip(examples, chosen, strict=True) if flag]
    ).equal(Identities.of([texts for texts, flag in zip(examples, chosen, strict=True) if not flag]))


def test_keys_depend_on_the_length_and_on_words_from_start_to_end():
    texts = ["a" * 100, "a" * 101, "b" + "a" * 99, "a" * 99 + "b", "a" * 31 + "b" * 8 + "a" * 61, "a", "b", "ab"]
    assert len(set(Identities.of((text,) for text in texts).keys.tolist())) == len(texts)


def test_pairs_are_equal_in_any_order_but_not_to_their_concatenation():
    first, swapped, joined, single = identities([("a b", "c"), ("C.", "ab"), ("a", "b c"), ("a b c",)])
    assert first == swapped
    assert len({first, joined, single}) == 3
