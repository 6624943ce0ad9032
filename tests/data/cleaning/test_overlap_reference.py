"""Overlap with test files beside a search word by word, in texts of several scripts, written in several ways."""

import json
import random
import re
from unicodedata import category, normalize

import pytest

from unmask.data.cleaning.overlap import Overlap, comparable_words, read_passages
from unmask.data.cleaning.rule import Document
from unmask.support.scripts import UNSPACED

WORDS = (
    *("The", "office", "straße", "Ａ１２", "naïve", "ﬁrst", "Ⅻ", "don't", "co-operate", "ΟΔΟΣ", "İstanbul", "x²"),
    *("कि", "किसानों", "কৃষকরা", "می‌شود", "كِتَاب", "ﷺ", "안녕하세요", "шапка"),
    *("東京", "です", "ｶﾞｷﾞ", "北京大学", "ภาษาไทย", "น้ำ", "ລາວ", "ဗမာ"),
)
UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")


def reference_words(text):
    """Return words, a character at a time: letters and digits with marks; single ones where scripts have no spaces."""
    text = "".join(each for each in normalize("NFKC", text).casefold() if category(each) != "Cf")
    words, inside = [], False
    for each in normalize("NFC", text):
        if category(each)[0] == "M" and inside is not False:
            words[-1] += each
        elif UNSPACED_LETTER.match(each):
            words.append(each)
            inside = None  # whatever follows, but a mark, is another word
        elif each.isalnum():
            words[-1:] = [words[-1] + each] if inside else [*words[-1:], each]
            inside = True
        else:
            inside = False
    return words


def disguised(word, rng):
    """Return a word as another program or person would have written it."""
    change = rng.choice(
        [
            lambda: word,
            word.upper,
            word.lower,
            lambda: normalize("NFD", word),
            lambda: normalize("NFKC", word),
            lambda: word[:1] + rng.choice(["\u00ad", "\u2060", "\u200e", "\ufeff"]) + word[1:],
            lambda: "".join(
                chr(ord(each) + 0xFEE0) if "!" <= each <= "~" and each.isalnum() else each for each in word
            ),
        ]
    )
    return change()


@pytest.mark.seeds(40)
def test_words_are_those_of_a_search_character_by_character(seed):
    rng = random.Random(seed)
    words = [rng.choice(WORDS) for _ in range(40)]
    text = "".join(word + rng.choice([" ", ", ", "\n\n", "。", " — ", "/"]) for word in words)
    assert comparable_words(text) == reference_words(text)
    other = "".join(disguised(word, rng) + rng.choice([" ", "、", "\u3000", ". “"]) for word in words)
    assert comparable_words(other) == comparable_words(text)


@pytest.mark.seeds(20)
def test_documents_are_dropped_that_share_an_ngram(tmp_path, verdict, seed):
    rng = random.Random(seed)
    passages = [[rng.choice(WORDS) for _ in range(rng.randint(1, 25))] for _ in range(8)]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps({"text": " ".join(words)}) + "\n" for words in passages))
    rule, wanted = Overlap(files=(str(path),)), set()
    for words in passages:
        known = reference_words(" ".join(words))
        size = min(13, len(known))
        if size >= 8:
            wanted |= {tuple(known[start : start + size]) for start in range(len(known) - size + 1)}
    assert wanted
    judge, dropped = rule.build(), 0
    for _ in range(40):
        around = [[rng.choice(WORDS) for _ in range(rng.randint(0, 6))] for _ in range(2)]
        source = rng.choice(passages)
        start = rng.randint(0, len(source))
        copied = [disguised(word, rng) for word in source[start : start + rng.randint(1, 14)]]
        text = " ".join([*around[0], *copied, *around[1]])
        own = reference_words(text)
        overlaps = any(
            tuple(own[start : start + size]) in wanted for size in range(8, 14) for start in range(len(own) - size + 1)
        )
        assert bool(judge(Document(text)).dropped) == overlaps
        dropped += overlaps
    assert 0 < dropped < 40


SENTENCE = [f"word{number}" for number in range(14)]


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("tags", [0, 20])
def test_the_words_of_tagged_files_are_found_in_any_column(tmp_path, at, tags):
    """As in CoNLL-2012, whose words are in the fourth column of sometimes more than twelve."""
    rows = []
    for number, word in enumerate(SENTENCE):
        cells = ["bc/cctv", "0", str(number), *(["-"] * tags)]
        rows.append(" ".join([*cells[:at], word, *cells[at:]]))
    short = " ".join([*["-"] * at, "short", *["-"] * (3 - at), *["*"] * (tags + 2)])
    path = tmp_path / "test.conll"
    path.write_text("\n".join([*rows, "", short, ""]))
    passages = list(read_passages(path))
    assert " ".join(SENTENCE) in passages
    assert " ".join(map(str, range(14))) not in passages, "numbers of words are no text"


@pytest.mark.parametrize("width", range(1, 9))
def test_paragraphs_may_have_short_lines(tmp_path, verdict, width):
    lines = [" ".join(SENTENCE[start : start + width]) for start in range(0, len(SENTENCE), width)]
    path = tmp_path / "test.txt"
    path.write_text("\n".join([*lines, "", "another one", ""]))
    assert verdict(Overlap(files=(str(path),)), f"before {' '.join(SENTENCE[1:])} after")[0] == f"overlap with {path}"


@pytest.mark.parametrize("odd", ["\u00a0", "", "New York", " "])
def test_words_in_json_may_be_spaces_or_have_some(tmp_path, verdict, odd):
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps({"tokens": [*SENTENCE[:6], odd, *SENTENCE[6:]]}) + "\n")
    text = " ".join([*SENTENCE[:6], *odd.split(), *SENTENCE[6:]])
    assert verdict(Overlap(files=(str(path),)), text)[0] == f"overlap with {path}"
