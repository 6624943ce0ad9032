"""Tests of the word cache: it returns the ids of the whole text for any text, and its memory is bounded."""

import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from unmask.data.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer
from unmask.data.tokenizers.wordpiece import WORDPIECE, bert_wordpiece
from unmask.data.tokenizers.words import WordCache

LETTERS = [*"abcdeéßΣςσİıﬁ가각你好漢か0123456789[]=.#-", "\u0301", "\u0338", "\u3099"]
PIECES = [*SPECIAL_TOKENS.values(), *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "cat", "##s", "mask"]
HARD = [
    *" \t\n\0\u00a0\u3000\u2028\u200b\u200d\u00ad\ufffd",
    "[MASK]",
    "[mask]",
    "[SEP]",
    "the",
    "cats",
    "don't",
    "U.S.",
]
HARD += ["x" * 101, "\U00020000", "\u1100\u1161", "😀", "…", "—", "½", "e\u0301", *LETTERS]
TEXTS = st.lists(st.one_of(st.sampled_from(HARD), st.characters(codec="utf-8")), max_size=20).map("".join)


def make(*added, lowercase=True, **normalizer):
    library = bert_wordpiece({piece: id for id, piece in enumerate(dict.fromkeys(PIECES))}, lowercase=lowercase)
    for name, value in normalizer.items():
        setattr(library.normalizer, name, value)
    library.add_tokens(list(added))
    return Tokenizer(library, WORDPIECE)


def encoded(cache, text):
    return np.frombuffer(cache.encode(text), cache.dtype).tolist()


@pytest.mark.parametrize(
    "tokenizer",
    [
        make(),
        make(lowercase=False),
        make(lowercase=False, strip_accents=True),
        make(handle_chinese_chars=False),
        make(clean_text=False),
        make(AddedToken("cat.s", normalized=False)),
        make(AddedToken("[the", normalized=False, single_word=True, lstrip=True), AddedToken("好你", normalized=False)),
        make(AddedToken("the cat", normalized=False)),
        make(AddedToken("A.B", normalized=True)),
    ],
    ids=["uncased", "cased", "stripped", "chinese", "not cleaned", "added", "alone", "space", "normalized"],
)
@given(texts=st.lists(TEXTS, max_size=4))
def test_ids_are_those_of_the_whole_text(tokenizer, texts):
    cache = WordCache(tokenizer, "<u2")
    for text in [*texts, *texts]:  # the second time from the cache
        assert encoded(cache, text) == tokenizer.encode(text).tolist()
    together = WordCache(tokenizer, "<u2").encode_many(texts)
    assert [ids.tolist() for ids in together] == [tokenizer.encode(text).tolist() for text in texts]


HARDEST = "The cat.s a.b 你好好你x [MASK]ed [thethe the cat"


@pytest.mark.parametrize("token", ["cat.s", "the cat", "A.B", "好你"])
def test_planted_faults_are_found(token):
    """Splitting an added token changes the ids."""
    tokenizer = make(AddedToken(token, normalized=token == "A.B"))
    assert encoded(WordCache(tokenizer, "<u2"), HARDEST) == tokenizer.encode(HARDEST).tolist()
    careless = WordCache(tokenizer, "<u2")
    careless._added, careless.splits = re.compile("(?!)"), True
    assert encoded(careless, HARDEST) != tokenizer.encode(HARDEST).tolist()


def test_memory_is_bounded_and_frequent_words_stay(monkeypatch):
    monkeypatch.setattr("unmask.data.tokenizers.words.MAX_CACHED", 10)
    tokenizer, asked = make(), []
    cache = WordCache(tokenizer, "<u4")
    encode = cache._encode
    cache._encode = lambda word: asked.append(word) or encode(word)
    words = [word for number in range(200) for word in ("the", f"cat{number}", "a" * 41)]
    for word in words:
        assert encoded(cache, word) == tokenizer.encode(word).tolist()
        assert len(cache) + len(cache._older) <= 20
    assert asked.count("the") == 1
    assert asked.count("a" * 41) == 200, "long words are not kept"


def test_threads_encode_at_the_same_time(monkeypatch):
    monkeypatch.setattr("unmask.data.tokenizers.words.MAX_CACHED", 3)  # the cache is emptied again and again
    tokenizer = make()
    cache = WordCache(tokenizer, "<u4")
    texts = [" ".join(f"cat{(number * step) % 17}" for number in range(40)) for step in range(1, 40)]
    expected = [tokenizer.encode(text).tolist() for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(cache.encode_many, [texts] * 8):
            assert [ids.tolist() for ids in found] == expected


def test_it_can_be_sent_to_another_process():
    cache = WordCache(make(), "<u2")
    before = encoded(cache, HARDEST)
    assert encoded(pickle.loads(pickle.dumps(cache)), HARDEST) == before
