"""Vocabularies of words: by frequency; words that one lacks; characters; directories, bilm-tf's among them."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from transformers import AutoTokenizer

from unmask.data.tokenizers import word_level
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.word_level import FIRST, WORDS, train_words
from unmask.data.tokenizers.words import BEGIN_SENTENCE, END_SENTENCE, spell
from unmask.support.errors import UserError

TEXTS = ["The cat sat on the mat, the Café cat.", "cats sat; the cats"] * 3
RANKED = ["the", "cat", "cats", "sat", ",", ".", ";", "Café", "The", "mat", "on"]


@pytest.fixture
def tokenizer():
    return train_words(TEXTS, size=100)


def test_the_most_frequent_words_come_first(tokenizer):
    assert tokenizer.tokens(range(tokenizer.size)) == [*FIRST, *RANKED, "<UNK>"]
    assert (tokenizer.cls, tokenizer.sep, tokenizer.pad, tokenizer.mask, tokenizer.unk) == (0, 1, 2, 3, 15)
    few = train_words(TEXTS, size=8)
    assert few.tokens(range(few.size)) == [*FIRST, *RANKED[:3], "<UNK>"]
    with pytest.raises(UserError, match="a vocabulary of 5 is too small"):
        train_words(TEXTS, size=5)
    with pytest.raises(UserError, match="there is no text"):
        train_words([" "], size=10)


def test_words_that_it_lacks_have_ids_of_their_own(tokenizer):
    text = "the dog sat on the dog,\tthe Hündin"
    ids = tokenizer.encode(text)
    assert tokenizer.tokens(ids) == ["the", "dog", "sat", "on", "the", "dog", ",", "the", "Hündin"]
    assert ids[1] == ids[5] == tokenizer.size
    assert ids[-1] == tokenizer.size + 1
    assert tokenizer.decode(ids) == "the dog sat on the dog , the Hündin"
    assert tokenizer.encode_many([text])[0].tolist() == ids.tolist()
    assert tokenizer.encode_words([text])[0][0].tolist() == ids.tolist()
    assert tokenizer.encode_offsets(text)[0].tolist() == ids.tolist()
    assert tokenizer.encode_offsets_many([text])[0][0].tolist() == ids.tolist()
    assert tokenizer.closed.encode(text).tolist() == [id if id < tokenizer.size else tokenizer.unk for id in ids]
    assert tokenizer.encode("<UNK>").tolist() == [tokenizer.unk]
    with pytest.raises(IndexError):
        tokenizer.token(tokenizer.size + 2)


def test_separate_words_are_one_token_each(tokenizer):
    found = tokenizer.encode_separately(["the", "U.S.", "don't", "the"])
    assert [len(ids) for ids in found] == [1, 1, 1, 1]
    assert tokenizer.tokens(np.concatenate(found)) == ["the", "U.S.", "don't", "the"]


def test_the_oldest_of_too_many_words_is_forgotten(tokenizer, monkeypatch):
    monkeypatch.setattr(word_level, "MAX_OTHERS", 2)
    first, second, third = (tokenizer.encode(word)[0] for word in ("one", "two", "three"))
    assert (first, second) == (third, tokenizer.size + 1)
    assert tokenizer.tokens([third, second]) == ["three", "two"]
    assert tokenizer.encode("one")[0] == second, "it has been forgotten, and two is the oldest now"
    assert tokenizer.encode("three")[0] == third


def test_characters(tokenizer):
    ids = [tokenizer.cls, *tokenizer.encode("Café dog Café"), tokenizer.sep]
    for _ in range(2):  # the second time they are remembered
        found = tokenizer.spell(np.array(ids))
        words = [[BEGIN_SENTENCE], "Café".encode(), b"dog", "Café".encode(), [END_SENTENCE]]
        assert found.tolist() == [spell(word).tolist() for word in words]
    assert tokenizer.spell(np.array([], np.int64)).shape == (0, 50)


def test_words_that_are_cut_are_counted(tokenizer):
    words = train_words(["short " + "l" * 48 + " " + "m" * 49], size=20)
    assert words.notes([np.arange(words.size)]) == ["1 word longer than 48 bytes, of which no more are read"]
    longer = "ü" * 25
    texts = tokenizer.encode_many([f"the {longer} and {longer}", "the cat"])
    assert tokenizer.notes(texts) == ["2 words longer than 48 bytes, of which no more are read"]
    assert tokenizer.notes(texts[1:]) == tokenizer.notes([]) == []
    counts = np.bincount([tokenizer.unk] * 20, minlength=tokenizer.size)
    assert tokenizer.count_notes(counts) == [], "the characters of unknown words are read"


def test_a_directory(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.sha256 == tokenizer.sha256
    assert again.kind is WORDS
    assert again.tokens(again.encode("the dog")) == ["the", "dog"]
    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    text = "the cat sat, the dog"
    assert theirs(text)["input_ids"] == [0, *tokenizer.closed.encode(text), 1]
    assert theirs.decode(tokenizer.closed.encode(text)) == "the cat sat , the <UNK>"


def test_a_vocabulary_of_bilm_tf(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\nCat\n", encoding="utf8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.kind is WORDS
    assert tokenizer.tokens(tokenizer.encode("the Cat the cat")) == ["the", "Cat", "the", "cat"]
    assert tokenizer.encode("the Cat").tolist() == [3, 4]
    assert (tokenizer.cls, tokenizer.sep, tokenizer.unk) == (0, 1, 2)
    assert sorted((tokenizer.pad, tokenizer.mask)) == [5, 6]


def test_counting_words(tokenizer):
    assert tokenizer.count_words(["the dog, the"]) == {"the": 2, "dog": 1, ",": 1}
    assert tokenizer.split_word("dog") == ["<UNK>"]


def test_words_that_it_lacks_have_one_id_each_in_several_threads(tokenizer):
    """As a server tokenizes: no two words have the same id, nor a word two, whichever thread meets it first."""
    words = [f"w{number}" for number in range(20_000)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            encoded = list(pool.map(tokenizer.encode_separately, [words, words[::-1], words, words[::-1]]))
    finally:
        sys.setswitchinterval(before)
    ids = [np.concatenate(of).tolist() for of in encoded]
    assert ids[0] == ids[2] == ids[1][::-1] == ids[3][::-1]
    assert tokenizer.tokens(ids[0]) == words


def test_of_long_words_what_is_read_is_kept(tokenizer):
    long = "x" * 100_000
    (id,) = tokenizer.encode(long).tolist()
    assert len(tokenizer.token(id)) < 100 and (id,) == tuple(tokenizer.encode(long[:200]).tolist())
    np.testing.assert_array_equal(tokenizer.spell(np.array([id]))[0], spell(long.encode()))
    assert tokenizer.notes([np.array([id])]) == ["1 word longer than 48 bytes, of which no more are read"]


CLAUSES = ["今日はとても天気がいいです。", "我今天去了北京大学的图书馆。", "วันนี้อากาศดีมากและเราไปเดินเล่น"]
DIVIDED = [
    "今日 は とても 天気 が いい です 。",
    "我 今天 去 了 北京 大学 的 图书馆 。",
    "วันนี้ อากาศ ดี มาก และ เรา ไป เดินเล่น",
]


@pytest.mark.parametrize(("texts", "told"), [(CLAUSES, True), (DIVIDED, False), (["today is a fine day"], False)])
def test_clauses_that_are_read_as_words_are_told(texts, told):
    words = train_words(texts, size=60)
    encoded = words.encode_many(texts)
    notes = words.notes(encoded, texts)
    assert [note for note in notes if "whole clauses" in note] == [f"3 of 3 {word_level.CLAUSES}"] * told
    counts = np.bincount(np.concatenate(encoded), minlength=words.size)
    assert words.count_notes(counts) == [f"3 of 3 {word_level.CLAUSES}"] * told
