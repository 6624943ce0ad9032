"""Tests of coverage: the rarest characters of a large text take nothing from its vocabulary."""

import random
import unicodedata
import warnings
from collections import Counter

import pytest

from unmask.data.tokenizers.coverage import covered_characters, lost_marks, suited_vocabulary
from unmask.data.tokenizers.train import train_vocabulary
from unmask.support.errors import InputWarning, UserError

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


def without_marks(text, kind):
    """Normalize as tokenization.py of google-research/bert does, or preprocess_text of google-research/albert."""
    if kind == "wordpiece":
        return "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    text = unicodedata.normalize("NFKD", text)
    return "".join(c for c in text if not unicodedata.category(c).startswith("M")).lower()


LANGUAGES = {
    "hi": ("कखगघचजटडतद", "ािीुूेै्ं"),
    "th": ("กขคงจชดต", "ะัาิีึืุู"),
    "ar": ("ابتثجحخد", "\u064b\u064e\u064f\u0651\u0652"),
    "he": ("אבגדהוז", "\u05b0\u05b4\u05b7\u05bc"),
    "yo": ("abdẹọṣ", "\u0300\u0301"),
    "vi": ("abcơưđêôă", "\u0300\u0301\u0303\u0309\u0323"),
    "tr": ("abcçğıöşü", ""),
    "ka": ("აბგდევზთი", ""),
    "en": ("abcdefghij", ""),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_accents_and_vowels_that_a_lowercase_vocabulary_loses_are_told(language, kind):
    letters, marks = LANGUAGES[language]
    rng = random.Random(language)
    words = ["".join(rng.choice(letters) + rng.choice([*marks, "", ""]) for _ in range(5)) for _ in range(250)]
    text = " ".join(words)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        tokenizer = train_vocabulary(kind, [text], size=800, lowercase=True)
        train_vocabulary(kind, [text], size=800, lowercase=False)
    lost = {c for c in text if unicodedata.normalize("NFD", without_marks(c, kind)) != unicodedata.normalize("NFD", c)}
    assert lost_marks(Counter(text), tokenizer.normalize).keys() == lost
    share = sum(character in lost for character in text) / len(text.replace(" ", ""))
    told = [message.split(" lose")[0] for warning in caught if " lose" in (message := str(warning.message))]
    assert told == [f"{share:.1%} of the letters"] * bool(lost)


def test_joiners_that_wordpiece_removes_are_told():
    rng = random.Random(0)
    texts = [" ".join("\u200c".join(rng.choices("کتابها", k=3)) for _ in range(9)) for _ in range(40)]
    with pytest.warns(InputWarning, match=r"^40.0% of the characters of words are joiners, .* of the kind unigram$"):
        tokenizer = train_vocabulary("wordpiece", texts, size=200, lowercase=False)
    assert "\u200c" not in tokenizer.decode(tokenizer.encode(texts[0]))
    unigram = train_vocabulary("unigram", texts, size=200, lowercase=False)
    assert unigram.decode(unigram.encode(texts[0])) == texts[0]
