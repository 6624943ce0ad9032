"""Tests of coverage: the rarest characters of a large text take nothing from its vocabulary."""

import pytest

from unmask.data.tokenizers.coverage import covered_characters, suited_vocabulary
from unmask.data.tokenizers.train import train_vocabulary
from unmask.support.errors import UserError

RARE = "ψж☃"
TEXTS = ["the cat sat on the mat"] * 10_000 + [f"a {character} here" for character in RARE]


def test_the_most_frequent_characters_are_covered():
    counts = {"a": 90, "bb": 4, "c": 1, "d": 1}
    assert covered_characters(counts, 0.9) == {"a"}
    assert covered_characters(counts, 0.91) == {"a", "b"}
    assert covered_characters(counts, 0.985) == {"a", "b", "c", "d"}  # as frequent as c
    assert covered_characters(counts, 1) == {"a", "b", "c", "d"}
    assert covered_characters({}) == set()
    for share in (0, -1, 1.1):
        with pytest.raises(ValueError, match="coverage"):
            covered_characters(counts, share)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_rare_characters_are_unknown_unless_all_are_covered(kind):
    most = train_vocabulary(kind, TEXTS, size=60, lowercase=True)
    every = train_vocabulary(kind, TEXTS, size=60, lowercase=True, coverage=1)
    for character in RARE:
        assert most.unk in most.encode(f"the {character} cat")
        assert every.unk not in every.encode(f"the {character} cat")
    assert most.unk not in most.encode(TEXTS[0])


def test_a_small_text_is_covered_completely():
    texts = ["the cat", *RARE]
    tokenizer = train_vocabulary("wordpiece", texts, size=60, lowercase=True)
    assert tokenizer.unk not in tokenizer.encode(" ".join(texts))


def test_the_size_is_refused_by_what_is_covered():
    train_vocabulary("wordpiece", TEXTS, size=21, lowercase=True)
    with pytest.raises(UserError, match="too small for the characters"):
        train_vocabulary("wordpiece", TEXTS, size=21, lowercase=True, coverage=1)


def test_rare_characters_do_not_enlarge_a_vocabulary():
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    assert suited_vocabulary([*TEXTS * 20, rare], 500) == ("wordpiece", 500)
    assert suited_vocabulary([*TEXTS, rare], 500)[1] > 500
