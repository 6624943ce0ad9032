"""The vocabulary that suits a text: larger for many characters, unigram where words are not separated by spaces."""

import random
from collections import Counter

import pytest

from unmask.data.tokenizers.coverage import count_characters, suited_vocabulary
from unmask.data.tokenizers.train import train_vocabulary

ENGLISH = "The quick brown fox jumps over the lazy dog. " * 20


@pytest.mark.parametrize(
    "text",
    [ENGLISH, "Le garçon a été très étonné à la fête. ", "한국어 텍스트", "हिन्दी में लिखा", "一个没有大写字母的文本", ""],
)
def test_text_with_few_characters_gets_wordpiece_of_the_smallest_size(text):
    assert suited_vocabulary([text], 8000) == ("wordpiece", 8000)


@pytest.mark.parametrize(
    "text",
    ["ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำ", "ພາສາລາວເປັນພາສາ", "ភាសាខ្មែរ", "မြန်မာဘာသာ", ENGLISH[:90] + "ภาษาไทยเป็นภาษา"],
    ids=["thai", "lao", "khmer", "burmese", "english with thai"],
)
def test_text_without_spaces_between_words_gets_a_unigram_vocabulary(text):
    assert suited_vocabulary([text], 8000) == ("unigram", 8000)


def sequences(alphabet, length, seed=0):
    rng = random.Random(seed)
    return ["".join(rng.choices(alphabet, k=length)) for _ in range(20)]


@pytest.mark.parametrize(
    "alphabet", ["ACDEFGHIKLMNPQRSTVWY", "ACGT", "აბგდევზთიკლმნ"], ids=["protein", "dna", "letters"]
)
def test_words_that_are_too_long_for_wordpiece_get_a_unigram_vocabulary(alphabet):
    texts = sequences(alphabet, 300)
    assert suited_vocabulary(texts, 8000) == ("unigram", 8000)
    assert suited_vocabulary(sequences(alphabet, 100), 8000) == ("wordpiece", 8000)
    tokenizer = train_vocabulary("unigram", texts, size=200, lowercase=False)
    ids = tokenizer.encode_many(texts)
    assert not any((each == tokenizer.unk).any() for each in ids)
    assert tokenizer.decode(ids[0]) == texts[0]


def test_some_long_words_do_not_matter():
    blob = sequences("ABCDEFabcdef0123456789", 200)[0]
    assert suited_vocabulary([ENGLISH * 10, blob], 8000)[0] == "wordpiece"  # 3 % of the characters
    assert suited_vocabulary([ENGLISH, blob], 8000)[0] == "unigram"


def test_what_wordpiece_divides_is_not_long():
    molecules = ["CC(=O)Oc1ccccc1C(=O)O.[Na+].CN1C=NC2=C1C(=O)N(C(=O)N2C)C" * 3]
    for texts in (molecules, ["一个没有大写字母的文本" * 30], ["snake_case_name" * 20], ["/".join(["path"] * 90)]):
        assert suited_vocabulary(texts, 8000)[0] == "wordpiece"


def test_characters_are_counted_as_by_a_counter():
    rng = random.Random(0)
    for _ in range(50):
        limits = rng.choice([(0, 127), (0, 0xD7FF), (0xE000, 0x10FFFF)])
        texts = ["".join(chr(rng.randint(*limits)) for _ in range(rng.randint(0, 50))) for _ in range(5)]
        assert count_characters(texts) == Counter("".join(texts))


def test_many_characters_leave_room_for_longer_tokens():
    ideographs = "".join(map(chr, range(0x4E00, 0x4E00 + 6200)))
    letters = "".join(map(chr, range(0x10A0, 0x10A0 + 30)))  # Georgian, which continues words
    kind, size = suited_vocabulary([ideographs, letters], 8000)
    assert size == 10_500  # 6,200 + 2 * 30, + 4,000, rounded up
    texts = [" ".join([ideographs, letters])]
    assert train_vocabulary(kind, texts, size=size, lowercase=False).size <= size


def test_the_trainer_accepts_the_size_for_any_text():
    """The number of characters is an upper bound of what the trainer counts."""
    texts = ["Ǆ ŉ ß İ ﬁ Å ſ e\u0301 \u0345 “x” #1 \u200b x\u00a0y ，。 ｱｲ ａｂ アイ あい ①② 🚲 ", ENGLISH]
    for given in (texts, texts[:1], texts[1:]):
        kind, size = suited_vocabulary(given, 1)
        assert train_vocabulary(kind, given, size=size, lowercase=False).size <= size
