import random
import unicodedata

import pytest

from unmask.data.cleaning.overlap import LONGEST, SHARE, SHORTEST, count_seen


def words(text):
    """The words of a text by the categories of its characters: marks, such as vowels of Hindi, go on with a word."""
    found, inside = [], False
    for character in text.casefold():
        kind, unspaced = unicodedata.category(character)[0], character in "家犬ไทยนำ"
        if kind not in "LNM" or (kind == "M" and not inside):
            inside = False
            continue
        found += [] if inside and not (unspaced and kind != "M") else [""]
        found[-1] += character
        inside = True
    return found


def contains(document, gram):
    text = f" {' '.join(words(document))} "
    return f" {' '.join(gram)} " in text


def simply(documents, examples):
    """The definition, without an index."""
    seen = 0
    for texts in examples:
        grams = set()
        for text in texts:
            each = words(text)
            if len(each) >= SHORTEST:
                size = min(LONGEST, len(each))
                grams |= {tuple(each[start : start + size]) for start in range(len(each) - size + 1)}
        if grams and sum(any(contains(d, gram) for d in documents) for gram in grams) >= SHARE * len(grams):
            seen += 1
    return seen


@pytest.mark.seeds(60)
def test_generated_texts(seed):
    rng = random.Random(seed)
    vocabulary = ["The", "cat", "straße", "über", "дом", "家", "犬", "naïve", "co-op", "42", "x"]
    vocabulary = [*vocabulary[: rng.randint(4, 11)], *["हिन्दी", "दुनिया", "น้ำ", "가나다"][: rng.randint(0, 4)]]

    def text(size):
        return rng.choice([" ", ", ", "\n"]).join(rng.choices(vocabulary, k=size))

    examples = [tuple(text(rng.randint(1, 15)) for _ in range(rng.randint(1, 2))) for _ in range(12)]
    documents = [text(rng.randint(0, 40)) for _ in range(4)]
    for example in examples[: rng.randint(0, 6)]:
        shown = example[0].upper() if rng.random() < 0.3 and "ß" not in example[0] else example[0]
        documents.append(f"{text(3)}. {shown}! {text(5)}")
    assert count_seen(documents, examples) == simply(documents, examples)


@pytest.mark.parametrize("text", ["नमस्ते दुनिया", "안녕하세요 여러분", "السَّلَامُ عَلَيْكُمْ"])
def test_texts_of_two_words_are_short_in_every_script(text):
    """They were five or more fragments, between the marks, or syllables, so that greetings counted as seen."""
    assert count_seen([f"{text}, {text}!"], [(text,)]) == 0


def test_texts_without_spaces_are_found():
    assert count_seen(["ชื่อของฉันคือสมชายและฉันอยู่ที่นี่"], [("ฉันคือสมชาย",), ("ฉันคือสมหญิง",)]) == 1


def test_short_texts_and_empty_ones_are_not_looked_for():
    assert count_seen(["good film good film"], [("good film",), ("",), ()]) == 0
    assert count_seen([], [("one two three four five",)]) == 0
