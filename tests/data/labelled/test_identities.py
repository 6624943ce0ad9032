"""Equal examples are those that a dictionary of folded texts finds."""

import random
import unicodedata

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


@pytest.mark.seeds(80)
def test_equal_examples_are_those_of_a_dictionary(monkeypatch, seed):
    rng = random.Random(seed)
    if seed % 4 == 0:  # as if all keys were equal
        monkeypatch.setattr(module, "_keys", lambda texts, *_: np.zeros(len(texts), np.uint64))
    examples, others = made(rng), made(rng)
    known, asked = Identities.of(examples), Identities.of(iter(others))
    expected = list(map(naive, examples))
    assert list(known.folded()) == identities(examples) == expected
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


def test_keys_depend_on_the_start_of_what_is_left_of_a_text():
    texts = ["a" * 31 + "b", "a" * 30 + "b", "b" + "a" * 31, "a", "aa", "b", "", "!", "-" * 60, "-" * 60 + "a" * 20]
    assert len(set(Identities.of((text,) for text in texts).keys.tolist())) == len(texts)
    later = [first + "a" * 40 + second for first in ("", "- ") for second in ("", "b")]
    assert len(set(Identities.of((text,) for text in later).keys.tolist())) == 1


@pytest.mark.seeds(80)
def test_keys_of_equal_texts_are_equal_wherever_their_starts_end(seed):
    """Cased, composed, decomposed, and with punctuation of ASCII and others, before and at the end of the start."""
    rng = random.Random(seed)
    alphabet = rng.choice(
        ["ab\u00e9", "aA\u0130\u1e96\ufb01\u00df", "\uac00\u1100\u1161\u11a8a", "a\u0301\u0323\u0308e"]
    )
    for _ in range(20):
        text = "".join(rng.choices(alphabet, k=rng.randrange(100)))
        spellings = [text]
        for form in ("NFC", "NFD"):
            letters = unicodedata.normalize(form, text)
            spellings += [letters, rng.choice(["", "-" * rng.randrange(60), "\u00ab" * rng.randrange(60)]) + letters]
            spellings.append("".join(letter + rng.choice(["", "", " ", "\0"]) for letter in letters))
        number_of = {}
        for key, folded in zip(
            Identities.of((it,) for it in spellings).keys.tolist(), map(fold, spellings), strict=True
        ):
            assert number_of.setdefault(folded, key) == key
        pairs = Identities.of([(text, "b"), ("b", text)])
        assert pairs.firsts().tolist() == [0, 0]


def test_pairs_are_equal_in_any_order_but_not_to_their_concatenation():
    first, swapped, joined, single = identities([("a b", "c"), ("C.", "ab"), ("a", "b c"), ("a b c",)])
    assert first == swapped
    assert len({first, joined, single}) == 3
